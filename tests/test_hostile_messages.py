"""Any role that may connect can write a logical message (docs/outbox.md, "Without a table"). Whatever one holds, millrace goes on: an
honest one behind it arrives, and no topic is made that a message may not name."""

import json
import random

import psycopg
import pytest

from kit import Topic, eventually
from test_hostile_role import fixture_roles, fixture_scene  # noqa: F401 - fixtures

SEED, MESSAGES = 16, 300
VARIANTS = {
    "text": {"outbox__fields": '["type:header:eventType", "n:header", "part:partition"]'},
    "json": {"outbox__fields": '["type:envelope", "n:envelope", "part:partition"]', "outbox__key_format": '"json"',
             "outbox__value_format": '"json"', "outbox__expand_json": "true", "outbox__expand_keeps": '"nulls"'},
    "debezium": {"types": '"debezium"', "outbox__value_format": '"json"', "outbox__expand_json": "true", "outbox__tombstones": "true",
                 "outbox__fields": '["type:header:eventType", "n:envelope"]', "outbox__timestamp": '"at"'},
}
# As they stand in the message: JSON, and what is none.
VALUES = [
    "null", "true", "0", "-1", "3", "2147483648", "1e999999", "-0.0", "9" * 400, "NaN", '""', '" "', '"a"', '"\\u0000"', '"\\ud800"',
    '"\\udc00\\ud800"', '"é\\ud83d\\ude00"', '"\x01"', '"\\x"', '"..', '"."', '".."', '"a/b"', '"' + "n" * 300 + '"', '"' + "v" * 70000 + '"',
    '"__consumer_offsets"', '"STATE"', "[]", "{}", "[" * 9000 + "]" * 9000, '{"a":' * 70000 + "1" + "}" * 70000, '"' + "[" * 100000 + '"',
    '"' + '{\\"a\\":' * 70000 + '"', '"[1, {\\"a\\": [null, {}]}] and more"', '"2020-02-29 01:02:03"', '"infinity"', '"294276-12-31 23:59:59"',
    '"4713-01-01 00:00:00 BC"', '"' + "9" * 4000 + '"', '{"a":1,"a":2}', "[1,]", "undefined", "'x'", '"\\"},\\"evil\\":true,\\"x\\":{\\""',
]
FIELDS = ["id", "aggregatetype", "aggregateid", "type", "payload", "n", "part", "at"]
WHOLE = ["", "null", "[]", "5", "{", "{}", '"text"', "\ufeff{}", " {} ", "{} {}", '{"aggregatetype"}', '{"aggregatetype":}', "{" * 100000,
         '{"":"","":""}', '{"\\u0000":1}', '{"aggregatetype":"good","aggregatetype":null,"payload":"twice"}']


def messages(state_topic):
    """Each has one to three fields that no honest writer would write."""
    chance = random.Random(SEED)
    yield from WHOLE
    for _ in range(MESSAGES):
        fields = {"id": '"1"', "aggregatetype": '"good"', "aggregateid": '"k"', "type": '"t"', "payload": '"p"', "part": "0"}
        for name in chance.sample(FIELDS, chance.randint(1, 3)):
            fields[name] = chance.choice(VALUES).replace("STATE", state_topic)
        yield "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_message_ends_the_stream(scene, variant):
    database = scene.database
    for name in ("good", "last"):
        database.create_topic(f"{database.prefix}.{name}")
    before = set(database.topics())
    state_topic = f"{database.prefix}.state"
    process = scene.process(outbox__messages='"outbox"', outbox__topic=json.dumps(f"{database.prefix}.$1"), outbox__topics_max="10",
                            sink__kafka__state_topic=json.dumps(state_topic), **VARIANTS[variant]).start().streaming()
    honest = json.dumps({"id": "1", "aggregatetype": "last", "aggregateid": "k", "payload": "honest"})
    with scene.connect_as(scene.roles.stranger) as stranger:
        stranger.execute("SELECT pg_logical_emit_message(true, 'outbox', %s)", [honest])  # its topic has its place among the ten
        for text in messages(state_topic):
            for transactional in (True, False):
                try:
                    stranger.execute("SELECT pg_logical_emit_message(%s, 'outbox', %s)", [transactional, text])
                except psycopg.DataError:
                    pass  # PostgreSQL does not take it as text
        stranger.execute("SELECT pg_logical_emit_message(true, 'outbox', %s)", [honest])
    topic = Topic(f"{database.prefix}.last")
    found = []

    def both_came():
        found.extend(topic.read())
        return process.process.poll() is not None or len(found) == 2
    eventually(both_came, 60, "the honest message")
    topic.close()
    assert process.process.poll() is None, "".join(process.lines[-20:])
    assert not process.log("sink_session_lost") and not process.log("source_lost")
    made = {name for name in database.topics() if name.startswith(database.prefix)} - before - {state_topic}
    assert len(made) <= 10, made
    assert process.stop() == 0, "".join(process.lines[-20:])
