"""context.headers: what a transaction says of itself in a logical message becomes headers of its records."""

import json
import os
import random
import subprocess
import sys
import threading
import urllib.parse

import psycopg
import pytest

from endless import Endless
from kit import BINARY, connect, dsn, eventually, expect, figures
from ledger import peak_rss_mb
from registry import Registry
from test_formats import avro, read
from test_incremental import copy
from test_reload import reload, with_tables

DELIVERIES = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PREFIX = "millrace.context"
HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(HERE), "docs", "examples", "context")


def say(connection, content, transactional=True):
    connection.execute("SELECT pg_logical_emit_message(%s, %s, %s::text)", [transactional, PREFIX, content if isinstance(content, str) else json.dumps(content)])


def said(record):
    return {name: value for name, value in record.headers.items() if not name.startswith(("mr-", "__", "ce_", "content-type"))}


def outcomes(process):
    return {name.partition('"')[2].rstrip('"}'): value for name, value in figures(process.get("/metrics").body).items()
            if name.startswith("millrace_context_messages_total") and value}


@DELIVERIES
@pytest.mark.parametrize("prefixes", ["[]", '["*"]'], ids=["messages-off", "messages-on"])
def test_rows_have_what_was_said_before_them(database, millrace, topic, delivery, prefixes):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(context__headers='["traceparent", "user"]', messages__prefixes=prefixes,
                       sink__kafka__delivery=json.dumps(delivery)).start().streaming()
    with connect(database.name) as connection:
        insert = "INSERT INTO t VALUES (%s)"
        with connection.transaction():
            connection.execute(insert, [1])
            say(connection, {"traceparent": TRACE, "user": "ü-17", "password": "never let through"})
            connection.execute(insert, [2])
            connection.execute(insert, [3])
            say(connection, {"user": "second", "other": "x"})
            connection.execute(insert, [4])
            say(connection, '{"user": 1}')
            connection.execute(insert, [5])
            with connection.transaction():
                say(connection, {"user": "in a savepoint that stays"})
                connection.execute(insert, [6])
            with connection.transaction() as savepoint:
                say(connection, {"user": "rolled back"})
                connection.execute(insert, [-1])
                raise psycopg.Rollback(savepoint)
            connection.execute(insert, [7])
            say(connection, {})
            connection.execute(insert, [8])
            say(connection, {"user": "after all rows"})
        say(connection, {"user": "of no rows"})
        say(connection, {"user": "alone"}, transactional=False)
        connection.execute(insert, [9])
        with connection.transaction(), connect(database.name) as other:
            say(connection, {"user": "one"})
            with other.transaction():  # commits first
                say(other, {"user": "two"})
                other.execute(insert, [10])
                connection.execute(insert, [11])
    records = topic(database.topic("t")).take(11)
    stays = {"user": "in a savepoint that stays"}
    assert {record.json["after"]["id"]: said(record) for record in records} == {
        1: {}, 2: {"traceparent": TRACE, "user": "ü-17"}, 3: {"traceparent": TRACE, "user": "ü-17"}, 4: {"user": "second"}, 5: {"user": "second"},
        6: stays, 7: stays, 8: {}, 9: {}, 10: {"user": "two"}, 11: {"user": "one"}}
    ordinals = [int(record.position.split("-")[1], 16) for record in records[:8]]
    assert ordinals == ([1, 2, 3, 4, 5, 6, 7, 8] if prefixes == "[]" else [1, 3, 4, 6, 8, 10, 11, 13])
    eventually(lambda: outcomes(process).get("taken", 0) >= 8, what="the count")
    assert outcomes(process) == {"taken": 8, "malformed": 1, "not_transactional": 1}
    database.all_confirmed()
    assert f"{database.prefix}.message" not in database.topics(), "the context is no event"
    assert process.stop() == 0
    assert "never let through" not in "".join(process.lines)


@DELIVERIES
@pytest.mark.parametrize("prefixes", ["[]", '["x"]'], ids=["messages-off", "messages-on"])
def test_killed_in_the_middle_and_switched(database, millrace, topic, delivery, prefixes):
    """A transaction far longer than a batch, again and again from its middle, with the option on, off and on: the places of rows stay."""
    rows, each = 100000, 500
    database.run("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    options = {"messages__prefixes": prefixes, "sink__kafka__delivery": json.dumps(delivery), "pipeline__memory": '"64MiB"'}
    process = millrace(context__headers='["user"]', **options).start().streaming()
    with connect(database.name) as connection, connection.transaction():
        for first in range(0, rows, each):
            say(connection, {"user": f"u{first}", "pad": "x" * 100})
            connection.execute("INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(%s::int, %s::int) g", [first, first + each - 1])
    database.run("INSERT INTO t VALUES (-1)")
    reader, seen = topic(database.topic("t")), []
    for is_on in (False, True):
        seen += reader.take(1)
        process.kill()
        while more := reader.read(0.3):  # what comes after it is the next one's
            seen += more
        assert seen[-1].json["after"]["id"] != -1, "it was killed in the middle"
        process.configure(**({"context__headers": '["user"]'} if is_on else {}), **options).start()
    while not any(record.json["after"]["id"] == -1 for record in seen[-1:]):
        seen += reader.read(0.1)
    at = {}
    for record in seen:
        row = record.json["after"]["id"]
        at.setdefault(row, []).append(record)
        assert said(record) in ({}, {"user": f"u{row // each * each}"}) and (row >= 0 or not said(record))
        ordinal = int(record.position.split("-")[1], 16)
        assert row < 0 or ordinal == row + 1 + (row // each + 1 if prefixes != "[]" else 0), (row, ordinal)
    assert sorted(at) == list(range(-1, rows))
    if delivery == "exactly-once":
        assert len(seen) == rows + 1
    groups = [bool(said(record)) for record in seen if record.json["after"]["id"] >= 0]
    assert [one for one, before in zip(groups, [None, *groups]) if one != before] == [True, False, True]


class RandomWriter(threading.Thread):
    """Transactions of rows, contexts, what is none, and savepoints, of which some are rolled back; knows what each row that stays must have.
    Between levels something else is written (the test below says why)."""

    def __init__(self, database, number, transactions):
        super().__init__()
        self.database, self.chance, self.transactions = database, random.Random(number), transactions
        self.next, self.wanted = number * 1000000, {}

    def part(self, connection, user, depth=0):
        """Answers the user that the next row has, and the rows of this part, {id: user}."""
        rows = {}
        for _ in range(self.chance.randint(1, 7)):
            what = self.chance.choice(["row", "row", "row", "say", "say", "nothing", "malformed", "alone", "savepoint" if depth < 3 else "row"])
            if what == "row":
                connection.execute("INSERT INTO t VALUES (%s)", [self.next])
                rows[self.next] = user
                self.next += 1
            elif what == "say":
                user = f"u{self.chance.getrandbits(40)}"
                say(connection, {"user": user})
            elif what == "nothing":
                user = None
                say(connection, self.chance.choice(["{}", '{"user":null}', '{"other":"x"}']))
            elif what == "malformed":
                say(connection, self.chance.choice(["", "x", '{"user":1}', '{"user":"x"', '{"user":"' + "x" * 5000 + '"}']))
            elif what == "alone":
                say(connection, {"user": "alone"}, transactional=False)
            else:
                connection.execute("SELECT pg_logical_emit_message(false, 'between', '')")
                with connection.transaction() as savepoint:
                    after, inner = self.part(connection, user, depth + 1)
                    connection.execute("SELECT pg_logical_emit_message(false, 'between', '')")
                    if self.chance.random() < 0.5:
                        raise psycopg.Rollback(savepoint)
                    user, rows = after, {**rows, **inner}
        return user, rows

    def run(self):
        with connect(self.database.name) as connection:
            for _ in range(self.transactions):
                with connection.transaction() as transaction:
                    _, rows = self.part(connection, None)
                    if self.chance.random() < 0.2:
                        raise psycopg.Rollback(transaction)
                    self.wanted.update(rows)


@DELIVERIES
def test_random_transactions_and_kills(database, millrace, topic, delivery):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(context__headers='["user"]', sink__kafka__delivery=json.dumps(delivery)).start().streaming()
    writers = [RandomWriter(database, number, 400) for number in range(1, 4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        process.kill().start().streaming()
    wanted = {row: user for writer in writers for row, user in writer.wanted.items()}
    assert len(wanted) > 1000 and 0.3 < sum(user is not None for user in wanted.values()) / len(wanted) < 0.9
    reader, seen = topic(database.topic("t")), {}
    while len(seen) < len(wanted):
        for record in reader.take(1) + reader.read(0.05):
            row = record.json["after"]["id"]
            assert said(record).get("user") == wanted[row], row
            assert delivery == "at-least-once" or row not in seen
            seen[row] = record


def test_a_row_of_another_savepoint_may_come_first(database, millrace, topic):
    """A message's LSN is where its record ends, a row's where its own begins, and the server sorts by them (docs/dev/protocol.md)."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(context__headers='["user"]').start().streaming()
    with connect(database.name) as connection, connection.transaction():
        with connection.transaction():
            say(connection, {"user": "u"})
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("INSERT INTO t VALUES (2)")
    records = topic(database.topic("t")).take(2)
    assert said(records[1]) == {"user": "u"}
    assert said(records[0]) in ({}, {"user": "u"}) and outcomes(process) == {"taken": 1}


@pytest.mark.parametrize("options", [{}, {"json__schemas": '"both"', "types": '"debezium"'}, {"format": '"flat"'}, {"format": '"row"'}, {"format": '"avro"'},
                                     {"format": '"cloudevents"'}, {"format": '"cloudevents"', "cloudevents__mode": '"binary"'}],
                         ids=["debezium", "schemas", "flat", "row", "avro", "cloudevents", "cloudevents-binary"])
def test_each_form(database, millrace, topic, options):
    """Each record of a row: an insert, a changed key, a delete with its tombstone, a message."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    registry = Registry()
    is_flat, is_avro, is_cloud = (options.get("format") == f'"{name}"' for name in ("flat", "avro", "cloudevents"))
    options = avro(registry) if is_avro else options
    if not is_flat:
        options = {**options, "messages__prefixes": '["p"]'}
    process = millrace(context__headers='["traceparent", "user"]', **options).start().streaming()
    wanted = {"traceparent": TRACE, "user": 'a "b" \\ ü'}
    with connect(database.name) as connection, connection.transaction():
        say(connection, wanted)
        connection.execute("SELECT pg_logical_emit_message(true, 'p', 'content')")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute("UPDATE t SET id = 2")
        connection.execute("DELETE FROM t")
    database.run("INSERT INTO t VALUES (3, 'no context')")
    # What a changed key and a delete become: docs/formats.md.
    count = 1 + {"flat": 2, "row": 3}.get(options.get("format", '""').strip('"'), 5)
    records = topic(database.topic("t")).take(count + 1)
    if not is_flat:
        records = topic(f"{database.prefix}.message").take(1) + records
    assert [said(record) for record in records[:-1]] == [wanted] * (len(records) - 1) and said(records[-1]) == {}
    if is_cloud:
        mode = "binary" if "cloudevents__mode" in options else "structured"
        for record in records:
            if record.value is not None:
                # The SDK has no header but those of CloudEvents for an attribute.
                record.headers = {name: value for name, value in record.headers.items() if name.startswith(("ce_", "content-type"))}
                event = read(mode, record)
                attributes = {name: event.get_attributes().get(name) for name in wanted} if hasattr(event, "get_attributes") else \
                    {name: event[name] for name in wanted if name in event}
                assert {name: value for name, value in attributes.items() if value is not None} == (wanted if record is not records[-1] else {})
    registry.close()
    if not is_flat and not is_avro and not is_cloud:
        proof = subprocess.run([BINARY, "verify", "--config", process.path], capture_output=True, text=True, timeout=120,
                               env=process.environment, check=False)
        assert proof.returncode == 0, proof.stdout + proof.stderr


def test_outbox_and_exactly_once(database, millrace, topic):
    database.run("CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, payload jsonb)")
    process = millrace(tables=("outbox",), context__headers='["traceparent"]', outbox__tables='["outbox"]', outbox__messages='"box"',
                       outbox__topic=json.dumps(f"{database.prefix}.$1"), sink__kafka__delivery='"exactly-once"').start().streaming()
    event = {"id": "7", "aggregatetype": "order", "aggregateid": "k", "payload": "{}"}
    with connect(database.name) as connection, connection.transaction():
        say(connection, {"traceparent": TRACE})
        connection.execute("INSERT INTO outbox VALUES (1, 'order', 'k', '{\"a\": 1}')")
        connection.execute("SELECT pg_logical_emit_message(true, 'box', %s)", [json.dumps(event)])
    database.run("SELECT pg_logical_emit_message(false, 'box', %s)", [json.dumps(event)])
    records = topic(f"{database.prefix}.order").take(3)
    assert [said(record) for record in records] == [{"id": "1", "traceparent": TRACE}, {"id": "7", "traceparent": TRACE}, {"id": "7"}]


def test_a_reload_changes_the_list(database, millrace, topic):
    """On, with another name, off, and on: nothing is lost or repeated, and a transaction has one list or the other."""
    database.run("CREATE TABLE t (id serial PRIMARY KEY)")
    process = millrace().start().streaming()

    def write(connection, _):
        while True:
            with connection.transaction():
                say(connection, {"user": "u", "reason": "r"})
                connection.execute("INSERT INTO t DEFAULT VALUES")
                connection.execute("INSERT INTO t DEFAULT VALUES")
            yield
    seen = []

    def comes(wanted):
        def there():
            seen.extend(reader.read(0.1))
            return seen and said(seen[-1]) == wanted
        eventually(there, 60, f"rows with {wanted}")
    with Endless(database, write):
        reader = topic(database.topic("t"))
        comes({})
        for names, wanted in ((["user"], {"user": "u"}), (["reason", "user"], {"user": "u", "reason": "r"}), ([], {}), (["reason"], {"reason": "r"})):
            with_tables(process, "t", **({"context__headers": json.dumps(names)} if names else {}))
            expect(reload(process), 0, "context.headers")
            comes(wanted)
        with_tables(process, "t", context__headers='["mr-pos"]')
        expect(reload(process), 78, "is a header that millrace itself may write")
    last = database.run("SELECT max(id) FROM t")[0][0]
    while seen[-1].json["after"]["id"] != last:
        seen += reader.take(1)
    assert [record.json["after"]["id"] for record in seen] == list(range(1, last + 1))
    for one, other in zip(seen[::2], seen[1::2]):
        assert said(one) == said(other)


def flood(database, role, stop, sent, content, prefix=PREFIX, transactional=True):
    with psycopg.connect(dsn(database.name, database.port), user=role, password=role, autocommit=True) as connection:
        while not stop.is_set():
            connection.execute("SELECT pg_logical_emit_message(%s, %s, %s)", [transactional, prefix, content])
            sent.append(1)


def test_hostile_messages_change_nothing_else(database, millrace, topic):
    """By a role that may only connect, beside and within transactions of others: sizes, names, bytes, nesting, thousands of them."""
    hostile = [
        b"SECRET", b"", b"{", b"[]", b'{"user":"SECRET', b'{"user":{"a":{"SECRET":[' + b"[" * 3000, b'{"user":"SECRET\xff"}', b'{"user":"SECRET\x00"}',
        b'{"user":"SECRET\\u0000"}', b'{"user":"SECRET\\r\\nX-Admin: 1"}', b'{"user":"SECRET\x1b[31m"}', b'{"user":17}', b'{"user":["SECRET"]}',
        b'{"user":"' + b"SECRET" * 1000 + b'"}', b'{"' + b"n" * 5000 + b'":"SECRET"}', b'{"user":"SECRET"}x', b"\xff\xfe" * 1000,
        b"{" + b",".join(b'"n%d":"v"' % n for n in range(400)) + b"}", b'{"user":"' + b"SECRET" * 2_000_000 + b'"}']
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    role = database.name + "_stranger"
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    process = millrace(context__headers='["user"]', pipeline__memory='"64MiB"').start().streaming()
    stop, sent, strangers = threading.Event(), [], []
    try:
        for arguments in ((b'{"user":"SECRET-of-a-stranger"}',), (hostile[6],), (hostile[4], PREFIX, False), (b"SECRET", "other", False),
                          (b'{"user":"SECRET"}', PREFIX + "x")):
            strangers.append(threading.Thread(target=flood, args=(database, role, stop, sent, *arguments)))
            strangers[-1].start()
        with connect(database.name) as connection:
            for n in range(200):
                with connection.transaction():
                    say(connection, {"user": f"u{n}"})
                    for content in hostile[:-1] if n % 20 == 0 else ():
                        connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, content])
                    if n == 77:
                        connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, hostile[-1]])
                        connection.execute("SELECT pg_logical_emit_message(true, %s, %s) FROM generate_series(1, 5000)", [PREFIX, hostile[4]])
                    connection.execute("INSERT INTO t VALUES (%s)", [n])
        records = topic(database.topic("t")).take(200)
        assert [(record.json["after"]["id"], said(record)) for record in records] == [(n, {"user": f"u{n}"}) for n in range(200)]
    finally:
        stop.set()
        for stranger in strangers:
            stranger.join()
        database.run(f"DROP ROLE {role}")
    assert len(sent) > 100
    database.all_confirmed()
    told = outcomes(process)
    assert told["malformed"] >= 5000 + 10 * 15 and told["too_large"] >= 1 + 10 * 2 and told["taken"] > 200 and told["not_transactional"] > 10, told
    assert "MILLRACE_TEST_SANITIZED" in os.environ or peak_rss_mb(process) < 160, "a message of 12 MB, twice in libpq"
    assert process.stop() == 0
    assert "SECRET" not in "".join(process.lines)


def test_a_row_goes_without_what_would_make_it_too_large(database, millrace, topic):
    """With oversize = "fail", the default, which ends millrace for a row that is itself too large."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(context__headers='["user"]', sink__kafka__message_max="4000").start().streaming()
    with connect(database.name) as connection, connection.transaction():
        say(connection, {"user": "x" * 2000})
        connection.execute("INSERT INTO t VALUES (1, 'small'), (2, repeat('y', 2000)), (3, 'small')")
    records = topic(database.topic("t")).take(3)
    assert [len(said(record).get("user", "")) for record in records] == [2000, 0, 2000]
    assert process.figure('millrace_oversize_total{policy="without-context"}') == 1
    assert "x" * 20 not in "".join(process.lines) and process.wait_for("record_oversize")["table"] == "public.t"


def test_copied_rows_have_none(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 500)")
    process = millrace(context__headers='["user"]', snapshot__mode='"initial"').start().streaming()
    with connect(database.name) as connection, connection.transaction():
        say(connection, {"user": "u"})
        connection.execute("INSERT INTO t VALUES (501)")
    copy(process, "t")
    records = topic(database.topic("t")).take(500 + 1 + 501)
    assert [record.json["op"] for record in records if said(record)] == ["c"]


@pytest.fixture(scope="session")
def telemetry(tmp_path_factory):
    """A Python with OpenTelemetry's instrumentation of Kafka's client, of packages pinned as the tests' own."""
    folder = tmp_path_factory.mktemp("telemetry")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r",
                    os.path.join(HERE, "telemetry", "requirements.txt")], check=True, timeout=300)
    return python


def lines_until(process, enough):
    """What it has printed, once that is enough; it is ended then."""
    text, reader = [], threading.Thread(target=lambda: text.extend(process.stdout), daemon=True)
    reader.start()
    try:
        return eventually(lambda: enough("".join(list(text))), 60, "what the example prints")
    finally:
        process.kill()
        process.wait()


def spans(text):
    """Objects of JSON, one after the other."""
    found, at = [], 0
    while (at := text.find("{", at)) >= 0:
        try:
            one, at = json.JSONDecoder().raw_decode(text, at)
        except json.JSONDecodeError:
            break  # not whole yet
        found.append(one)
    return found


def test_a_consumer_goes_on_with_the_trace(database, millrace, telemetry):
    """The page's example, with OpenTelemetry's own instrumentation of Kafka's client."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(context__headers='["traceparent", "user"]').start().streaming()
    example = os.path.join(EXAMPLES, "trace.py")
    written = subprocess.run([telemetry, example, "write", dsn(database.name), "INSERT INTO t VALUES (1)"], capture_output=True, text=True, timeout=60,
                             check=False)
    assert written.returncode == 0, written.stderr
    ours = spans(written.stdout)[0]["context"]

    def both(text):
        found = {one["name"]: one for one in spans(text)}
        return {"handle", f"{database.topic('t')} process"} <= set(found) and found
    # The instrumentation ends its span with the next poll.
    reader = subprocess.Popen([telemetry, example, "read", os.environ["KAFKA_BOOTSTRAP"], database.topic("t")], stdout=subprocess.PIPE, text=True)
    found = lines_until(reader, both)
    handled, polled = found["handle"], found[f"{database.topic('t')} process"]
    assert (handled["context"]["trace_id"], handled["parent_id"]) == (ours["trace_id"], ours["span_id"])
    assert handled["attributes"]["user"] == "u-17"
    assert [link["context"]["trace_id"] for link in polled["links"]] == [ours["trace_id"]]


def test_the_example_in_java(database, millrace, tmp_path):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(context__headers='["traceparent", "user"]').start().streaming()
    libraries = ":".join(os.path.join(os.environ["MILLRACE_TOOLS_DIR"], name, "libs", "*") for name in ("kafka", "debezium"))
    subprocess.run(["javac", "-Xlint:all,-classfile", "-Werror", "-cp", libraries, "-d", str(tmp_path), os.path.join(EXAMPLES, "Trace.java")], check=True)
    java = ["java", "-XX:+UseSerialGC", "-cp", f"{tmp_path}:{libraries}", "Trace"]
    url = urllib.parse.urlsplit(dsn(database.name))
    server = f"jdbc:postgresql://{url.hostname}:{url.port}{url.path}?user={url.username}&password={url.password}"
    subprocess.run([*java, "write", server, "INSERT INTO t VALUES (1)", TRACE], check=True, timeout=60)
    reader = subprocess.Popen([*java, "read", os.environ["KAFKA_BOOTSTRAP"], database.topic("t")], stdout=subprocess.PIPE, text=True)
    wanted = f'{{"id":1}} u-17 {TRACE}\n'
    assert lines_until(reader, lambda text: wanted in text)
