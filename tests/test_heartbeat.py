"""Heartbeats: a query and a record every so often while the stream is open, and nothing that they could stop."""

import base64
import json
import os
import re
import subprocess

import pytest

from kit import BINARY, connect, eventually

QUERIES, ERRORS = "millrace_heartbeat_queries_total", "millrace_heartbeat_errors_total"
BEATS = {"heartbeat__interval": '"20ms"'}


def beats(database, topic, count):
    """So many records of the topic of heartbeats, which are as Debezium's."""
    records = topic(f"beat.{database.prefix}").take(count)
    times = []
    for record in records:
        assert record.key == json.dumps({"serverName": database.prefix}, separators=(",", ":"))
        times.append(int(re.fullmatch(r'\{"ts_ms":(\d{13})\}', record.value).group(1)))
    assert times == sorted(times)
    return records


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_query_and_records(database, millrace, topic, delivery):
    """The known use: a captured table that is quiet has a row of now. The records go between the rows, and in the order of positions."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE beat (id int PRIMARY KEY, at timestamptz);"
                 "INSERT INTO beat VALUES (1, now())")
    process = millrace(("t", "beat"), **BEATS, heartbeat__query='"UPDATE beat SET at = clock_timestamp() RETURNING id"',
                       heartbeat__topic_prefix='"beat"', sink__kafka__delivery=json.dumps(delivery)).start().streaming()
    rows = topic(database.topic("beat")).take(3)
    assert [record.json["op"] for record in rows] == ["u"] * 3
    with connect(database.name) as connection:
        for n in range(20):
            connection.execute(f"INSERT INTO t VALUES ({n}, 'x')")
            connection.execute("SELECT pg_logical_emit_message(false, 'other', 'x')")
    assert [record.json["after"]["id"] for record in topic(database.topic("t")).take(20)] == list(range(20))
    found = beats(database, topic, 3)
    positions = [record.position for record in found]
    assert positions == sorted(positions) and len(set(positions)) == 3
    assert process.figure(QUERIES) >= 3 and process.figure(ERRORS) == 0
    assert process.stop() == 0
    process.start().streaming()  # what is stored is a place, heartbeats or not
    eventually(lambda: process.figure(QUERIES) >= 2, what="two more")
    database.run("INSERT INTO t VALUES (100, 'x')")
    assert topic(database.topic("t")).take(21)[-1].json["after"]["id"] == 100


def test_a_quiet_server(database, millrace, topic):
    """Records alone, though nothing moves; they hold up no copy beside the stream, nor it them for good."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 5)")
    process = millrace(**BEATS, heartbeat__topic_prefix='"beat"').start().streaming()
    beats(database, topic, 10)
    done = subprocess.run([BINARY, "snapshot", "public.t", "--config", process.path, "--address", process.address()], capture_output=True, text=True,
                          timeout=60, check=False, env=process.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record.json["after"]["id"] for record in topic(database.topic("t")).take(5)] == [1, 2, 3, 4, 5]
    database.run("SELECT pg_logical_emit_message(false, 'other', 'x')")  # the WAL has moved on
    beats(database, topic, 20)
    assert process.figure(QUERIES) == 0


def test_states_of_sequences(database, millrace, topic):
    """As docs/upgrading-postgresql.md has it: in the order of the WAL, and exact once nobody writes."""
    with open(os.path.join(os.path.dirname(__file__), "..", "docs", "upgrading-postgresql.md"), encoding="utf-8") as page:
        options = re.search(r"```toml\n(.*?'sequences'.*?)```", page.read(), re.DOTALL)[1].replace('"10s"', '"100ms"')
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text); CREATE SEQUENCE \"Never used\"")
    process = millrace()
    process.write(process.native(("t",), {}) + options)
    process.start().streaming()
    reader = topic(f"{database.prefix}.message")

    def state():
        record = reader.take(1)[0]
        assert record.json_key == {"prefix": "sequences"}
        return record.position, json.loads(base64.b64decode(record.json["message"]["content"]))
    seen = [state()]
    for n in range(1, 4):
        database.run("INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 40)")
        while seen[-1][1]["public.t_id_seq"] != 40 * n:
            seen.append(state())
    assert {frozenset(numbers) for _, numbers in seen} == {frozenset({"public.t_id_seq", 'public."Never used"'})}
    assert seen[-1][1]['public."Never used"'] is None
    states = [(position, numbers["public.t_id_seq"] or 0) for position, numbers in seen]
    assert states == sorted(states)
    # The rows that a number counts come before it.
    rows = topic(database.topic("t")).take(120)
    assert rows[-1].position < states[-1][0] and process.stop() == 0


def test_a_failure_stops_nothing(database, millrace, topic):
    """It is told once, counted each time, and the next success ends it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    process = millrace(**BEATS, heartbeat__query='"UPDATE absent SET v = 1"').start().streaming()
    assert 'relation "absent" does not exist' in process.wait_for("heartbeat_failed")["message"]
    database.run("INSERT INTO t VALUES (1, 1)")
    assert topic(database.topic("t")).take(1)[0].json["after"]["id"] == 1
    eventually(lambda: process.figure(ERRORS) >= 3, what="three errors")
    assert len(process.log("heartbeat_failed")) == 1
    database.run("CREATE TABLE absent (v int)")
    eventually(lambda: process.figure(QUERIES) >= 1, what="a success")
    database.run("DROP TABLE absent")
    process.wait_for("heartbeat_failed", times=2)


def test_a_query_without_end(database, millrace, topic):
    """The server would end it after 10 s; a stop does not wait for that, and leaves nothing running."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    ends = "SELECT 1 / (current_setting('statement_timeout') = '10s')::int"
    process = millrace(**BEATS, heartbeat__query=json.dumps(ends)).start().streaming()
    eventually(lambda: process.figure(QUERIES) >= 1, what="a query that has that time-out")
    assert process.figure(ERRORS) == 0 and process.stop() == 0
    process.configure(**BEATS, heartbeat__query='"SELECT pg_sleep(3600)"').start().streaming()
    running = "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)' AND state = 'active' AND datname = %s"
    eventually(lambda: database.run(running, [database.name]), what="the query")
    database.run("INSERT INTO t VALUES (1)")
    assert topic(database.topic("t")).take(1)[0].json["after"]["id"] == 1
    assert process.stop() == 0
    eventually(lambda: not database.run(running, [database.name]), what="the end of the query")


def test_a_standby_has_none(database, millrace, topic):
    """One of two instances beats, the one with the stream."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE beat (pid int)")
    options = {**BEATS, "heartbeat__query": '"INSERT INTO beat VALUES (1)"'}
    process = millrace(**options).start().streaming()
    eventually(lambda: process.figure(QUERIES) >= 1, what="a beat")
    second = millrace(**options).start()
    second.wait_for("standby")
    before = process.figure(QUERIES)
    eventually(lambda: process.figure(QUERIES) >= before + 5, what="five more")
    assert second.figure(QUERIES) == 0 and second.figure(ERRORS) == 0
    assert process.stop() == 0
    second.streaming()
    eventually(lambda: second.figure(QUERIES) >= 1, what="a beat of the second")
