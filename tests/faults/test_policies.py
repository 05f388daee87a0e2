"""What becomes of changes that can't be passed on as they are: too large, refused, or not to be sent at all."""

import json
import re

import psycopg
import pytest

from kit import Database, connect, dsn, eventually

BOTH = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
MARKER = "__debezium_unavailable_value"
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text, small text, large text)"
LARGE = 3_000_000


def quoted(**options):
    return {f"sink__kafka__{name}": json.dumps(value) for name, value in options.items()}


def insert(database, row, bytes_each=LARGE):
    database.run(f"INSERT INTO t VALUES ({row}, 'n', 's', repeat('0123456789', {bytes_each // 10}))")


def exact_rows(records):
    """Each once, in order."""
    positions = [record.position for record in records]
    assert positions == sorted(set(positions)), positions
    return records


@BOTH
def test_a_row_that_is_too_large_becomes_a_placeholder(database, millrace, topic, delivery):
    """The event is there, at its place, without the value that is too large; the log has no row."""
    database.run(TABLE)
    process = millrace(**quoted(delivery=delivery, oversize="placeholder")).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'n', 's', 'fits')")
    insert(database, 2)
    database.run("BEGIN; INSERT INTO t VALUES (3, 'n', 's', 'fits'); "
                 f"UPDATE t SET large = repeat('abc', {LARGE // 3}) WHERE id = 1; COMMIT; DELETE FROM t WHERE id = 2")
    records = exact_rows(topic(database.topic("t")).take(6))
    rows = [record.json["after"] if record.value else None for record in records]
    assert rows[0] == {"id": 1, "name": "n", "small": "s", "large": "fits"}
    assert rows[1] == {"id": 2, "name": "n", "small": "s", "large": MARKER}
    assert rows[2]["id"] == 3 and rows[3] == {"id": 1, "name": "n", "small": "s", "large": MARKER}
    assert [record.json_key["id"] for record in records] == [1, 2, 3, 1, 2, 2]
    assert records[1].json["op"] == "c" and records[3].json["op"] == "u" and records[1].json["source"]["table"] == "t"
    noted = [record.headers.get("mr-oversize") for record in records]
    assert [bool(note) for note in noted] == [False, True, False, True, False, False]
    assert int(noted[1]) > LARGE and records[1].headers["mr-oversize-columns"] == '["large"]'
    said = process.wait_for("record_oversize")
    assert said["table"] == "public.t" and said["value_bytes"] > LARGE
    assert process.figure('millrace_oversize_total{policy="placeholder"}') == 2
    assert process.stop() == 0
    assert "0123456789" not in "".join(process.lines) and "abcabc" not in "".join(process.lines)


def test_placeholder_of_both_sides_of_a_key_change(database, millrace, topic):
    """Only what is too large is left out, and the header of each record names what that is."""
    database.run(TABLE + "; ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace(**quoted(oversize="placeholder")).start().streaming()
    database.run(f"INSERT INTO t VALUES (1, repeat('x', 400000), 's', repeat('y', {LARGE}))")
    database.run("UPDATE t SET id = 2, large = 'fits'")
    created, deleted, tombstone, again = exact_rows(topic(database.topic("t")).take(4))
    assert created.json["after"]["name"] == "x" * 400000 and created.json["after"]["large"] == MARKER
    assert deleted.json["before"]["large"] == MARKER and deleted.json["before"]["name"] == "x" * 400000
    assert deleted.headers["mr-oversize-columns"] == '["large"]'
    assert tombstone.value is None and again.json["after"]["large"] == "fits"
    assert "mr-oversize" not in tombstone.headers and "mr-oversize" not in again.headers


def test_placeholder_in_the_flat_form_without_headers(database, millrace, topic):
    """The header that says so is there even where the others are switched off."""
    database.run(TABLE)
    process = millrace(format='"flat"', sink__kafka__headers="false", unavailable_value='"gone"',
                       **quoted(oversize="placeholder")).start().streaming()
    insert(database, 1)
    record = topic(database.topic("t")).take(1)[0]
    assert record.json["data"] == {"id": 1, "name": "n", "small": "s", "large": "gone"}
    assert set(record.headers) == {"mr-oversize", "mr-oversize-columns"}


@BOTH
def test_dead_letter(database, millrace, topic, delivery):
    """The topic goes on without the change; the letter says where it is."""
    database.run(TABLE)
    process = millrace(**quoted(delivery=delivery, oversize="dead-letter")).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'n', 's', 'fits')")
    insert(database, 2)
    database.run("INSERT INTO t VALUES (3, 'n', 's', 'fits')")
    assert [record.json_key["id"] for record in exact_rows(topic(database.topic("t")).take(2))] == [1, 3]
    letter = topic(f"{database.prefix}.dead-letter").take(1)[0]
    assert letter.json_key == {"id": 2} and letter.json["key"] == {"id": 2}
    assert letter.json["position"] == letter.position and letter.json["topic"] == database.topic("t")
    assert letter.json["bytes"] > LARGE and letter.json["limit"] == 1000000 and letter.json["reason"] == "message_max"
    assert letter.json["operation"] == "insert" and (letter.json["schema"], letter.json["table"]) == ("public", "t")
    assert letter.headers["mr-oversize"] == str(letter.json["bytes"]) and "0123456789" not in letter.value
    high, low = letter.json["commit_lsn"].split("/")
    assert letter.position.startswith(f"{int(high, 16):08X}{int(low, 16):08X}")
    assert process.figure('millrace_oversize_total{policy="dead-letter"}') == 1


def test_a_restart_repeats_the_same_placeholder(database, millrace, topic):
    database.run(TABLE)
    options = {"pipeline__status_interval": '"60s"', **quoted(oversize="placeholder", state_topic="")}
    process = millrace(**options).start().streaming()
    insert(database, 1)
    reader = topic(database.topic("t"))
    first = reader.take(1)[0]
    process.kill().start().streaming()
    again = reader.take(1)[0]
    assert (again.position, again.key, again.headers) == (first.position, first.key, first.headers)
    assert again.json["after"] == first.json["after"]


@pytest.mark.parametrize("policy", ["placeholder", "dead-letter"])
def test_change_that_no_batch_can_hold_is_replaced(database, millrace, topic, policy):
    database.run(TABLE)
    process = millrace(pipeline__change_max="2000000", **quoted(oversize=policy)).start().streaming()
    insert(database, 1, 10_000_000)
    database.run("INSERT INTO t VALUES (2, 'n', 's', 'fits')")
    reader = topic(database.topic("t"))
    if policy == "placeholder":
        assert reader.take(1)[0].json["after"]["large"] == MARKER
    else:
        letter = topic(f"{database.prefix}.dead-letter").take(1)[0]
        assert letter.json["bytes"] >= 10_000_000 and letter.json["key"] == {"id": 1}
    assert reader.take(1)[0].json_key == {"id": 2}


def test_key_that_is_too_large_fails(database, millrace):
    """There is nothing smaller that could stand in its place."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace(sink__kafka__message_max="2000", **quoted(oversize="placeholder")).start().streaming()
    database.run("ALTER TABLE t ALTER id TYPE text; INSERT INTO t VALUES (repeat('k', 2500), 'v')")
    assert process.ended(60) == 65
    assert "key and names alone" in "".join(process.lines) and "kkkk" not in "".join(process.lines)


@BOTH
@pytest.mark.parametrize("policy", ["placeholder", "dead-letter"])
def test_record_that_the_topic_refuses(database, millrace, topic, delivery, policy):
    """message_max allows it, the topic does not: only that record is replaced, nothing is lost or out of order."""
    database.run(TABLE)
    name = database.make_topic("t", config={"max.message.bytes": "20000", "compression.type": "producer"})
    process = millrace(**quoted(delivery=delivery, oversize=policy, compression="none")).start().streaming()
    database.run("INSERT INTO t SELECT i, 'n', 's', repeat('x', 15000) FROM generate_series(1, 40) i")
    insert(database, 41, 100_000)
    database.run("INSERT INTO t SELECT i, 'n', 's', 'fits' FROM generate_series(42, 60) i")
    wanted = [i for i in range(1, 61) if policy == "placeholder" or i != 41]
    rows = {}
    reader = topic(name)

    def complete():
        for record in reader.read():
            rows.setdefault(record.json_key["id"], []).append(record)
        return set(rows) == set(wanted)
    eventually(complete, 90, "all rows")
    if policy == "placeholder":
        assert rows[41][0].json["after"]["large"] == MARKER and "mr-oversize" in rows[41][0].headers
    else:
        letter = topic(f"{database.prefix}.dead-letter").take(1)[0]
        assert letter.json["key"] == {"id": 41} and letter.json["reason"] == "refused"
    assert all("mr-oversize" not in record.headers for i in wanted if i != 41 for record in rows[i])
    if delivery == "exactly-once":
        assert all(len(records) == 1 for records in rows.values())
    first = [rows[i][0].position for i in wanted]
    assert first == sorted(first)
    assert process.stop() == 0
    told = [line["message"] for line in process.log("sink_session_lost")]
    assert any("its requests are smaller from now on" in text for text in told) and "dropped" not in "".join(told), told


def test_record_that_the_topic_refuses_ends_the_run(database, millrace):
    """With the default policy: three tries, then one line that names it."""
    database.run(TABLE)
    database.make_topic("t", config={"max.message.bytes": "20000", "compression.type": "producer"})
    process = millrace(**quoted(compression="none")).start().streaming()
    insert(database, 1, 100_000)
    eventually(lambda: process.get("/status").json["state"] == "poison", 30, "state poison")
    assert process.ended(90) == 65
    text = process.log("stopped")[-1]["message"]
    for part in ("MSG_SIZE_TOO_LARGE", "max.message.bytes", database.topic("t"), "--skip-commit-lsn"):
        assert part in text, text


# ---- the same place three times ----


@pytest.fixture
def windows_database():
    database = Database("ENCODING 'WIN1252' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    yield database
    database.drop()


def poison(database):
    """A character that the server stores and can't convert: the commit LSN that skips it is in the error."""
    with psycopg.connect(dsn(database.name), client_encoding="windows-1252", autocommit=True) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'n', 's', 'fits')")
        connection.execute(b"BEGIN; INSERT INTO t VALUES (2, 'n', 's', 'fits'); "
                           b"INSERT INTO t VALUES (3, 'n', 's', 'secret\x81secret'); COMMIT")
        connection.execute("INSERT INTO t VALUES (4, 'n', 's', 'fits')")


@BOTH
def test_row_that_the_server_can_not_send(windows_database, millrace_for, topic, delivery):
    """Three tries with pauses, what is before it delivered, an end that says what and where; then it is skipped."""
    database = windows_database
    database.run(TABLE)
    process = millrace_for(database, **quoted(delivery=delivery)).start().streaming()
    poison(database)
    eventually(lambda: process.get("/status").json["state"] == "poison", 30, "state poison")
    assert process.get("/readyz").status == 503
    assert process.figure('millrace_state{state="poison"}') == 1
    assert process.ended(60) == 65
    error = process.log("stopped")[-1]["message"]
    assert "22P05" in error and "public.t" in error and "secret" not in "".join(process.lines)
    assert "0x81" not in "".join(process.lines)
    assert process.log("totals")[-1]["reconnects"] == 2
    lsn = re.search(r"--skip-commit-lsn ([0-9A-F]+/[0-9A-F]+)", error).group(1)
    reader = topic(database.topic("t"))
    assert [record.json_key["id"] for record in reader.take(2)] == [1, 2]

    process.start("--skip-commit-lsn", lsn)
    said = process.wait_for("transaction_skipped")
    assert said["commit_lsn"] == lsn and "not known" in said["tables"]
    assert reader.take(1)[0].json_key["id"] == 4
    assert process.figure("millrace_skipped_transactions_total") == 1
    database.run("INSERT INTO t VALUES (5, 'n', 's', 'fits')")
    assert reader.take(1)[0].json_key["id"] == 5
    assert process.stop() == 0

    # Asked for once more it is behind, and nothing is skipped.
    process.start("--skip-commit-lsn", lsn).streaming()
    process.wait_for("skip_ignored")
    database.run("INSERT INTO t VALUES (6, 'n', 's', 'fits')")
    assert reader.take(1)[0].json_key["id"] == 6
    assert process.stop() == 0


# Built-in functions that a value can make fail with 54000 ("repeat") and XX000 ("float8_avg"): what a row of more than a
# gigabyte does, with a small one. They are called before the transaction's Begin is sent, if no change of it was.
FRAGILE = "CREATE TABLE t (id int PRIMARY KEY, n int, f float8[])"
FILTER = "repeat('xx', n) IS NOT NULL AND float8_avg(f) IS NOT NULL"
FAILS = {"54000": "1000000000, '{1,2,3}'", "XX000": "1, '{1}'"}
FINE = "1, '{1,2,3}'"


@pytest.mark.parametrize("code, place", [("54000", "first"), ("XX000", "later")])
def test_row_that_the_server_can_not_make(database, millrace, topic, code, place):
    """As above; also where the transaction has not begun in the stream, and others commit within it."""
    database.run(f"{FRAGILE}; CREATE TABLE u (id int PRIMARY KEY);"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE t WHERE ({FILTER}), u WITH (publish = 'insert')")
    process = millrace(("t", "u")).start().streaming()
    database.run(f"INSERT INTO t VALUES (1, {FINE})")
    with psycopg.connect(dsn(database.name)) as connection:
        if place == "later":
            connection.execute(f"INSERT INTO t VALUES (2, {FINE})")
        connection.execute(f"INSERT INTO t VALUES (3, {FAILS[code]})")
        database.run("INSERT INTO u VALUES (1)")
        connection.execute("INSERT INTO u SELECT g FROM generate_series(2, 500) g")
    database.run(f"INSERT INTO t VALUES (4, {FINE})")
    eventually(lambda: process.get("/status").json["state"] == "poison", 30, "state poison")
    assert process.ended(60) == 65
    error = process.log("stopped")[-1]["message"]
    assert code in error and (place == "first" or "public.t" in error), error
    assert process.log("totals")[-1]["reconnects"] == 2
    lsn = re.search(r"--skip-commit-lsn ([0-9A-F]+/[0-9A-F]+)", error).group(1)
    rows, others = topic(database.topic("t")), topic(database.topic("u"))
    before = [1] if place == "first" else [1, 2]
    assert [record.json_key["id"] for record in rows.take(len(before))] == before

    process.start("--skip-commit-lsn", lsn)
    assert process.wait_for("transaction_skipped")["commit_lsn"] == lsn
    assert rows.take(1)[0].json_key["id"] == 4
    database.run("INSERT INTO u VALUES (1000)")
    assert [record.json_key["id"] for record in others.take(2)] == [1, 1000]


@pytest.mark.parametrize("delivery, first, second", [("at-least-once", "4, 0", "5, 0"), ("exactly-once", "4, 1), (5, 0", "6, 0")])
def test_rows_that_the_server_can_not_send(database, millrace, topic, delivery, first, second):
    """One right after the other: who has skipped the first is not asked for it again once the second is skipped."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int);"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE t WHERE (1 / n > 0) WITH (publish = 'insert')")
    process = millrace(**quoted(delivery=delivery), pipeline__reconnect_max='"300ms"').start().streaming()
    database.run("INSERT INTO t VALUES (1, 1)")
    with connect(database.name) as connection:
        connection.execute(f"INSERT INTO t VALUES ({first})")
        connection.execute(f"INSERT INTO t VALUES ({second})")
        connection.execute("INSERT INTO t VALUES (9, 1)")
    skipped = []
    while len(skipped) < 2:
        assert process.ended(60) == 65
        skipped.append(re.search(r"--skip-commit-lsn ([0-9A-F]+/[0-9A-F]+)", process.log("stopped")[-1]["message"]).group(1))
        process.start("--skip-commit-lsn", skipped[-1])
    ids = [int(row.split(",")[0]) for row in f"{first}), ({second}".split("), (") if row.endswith("1")]
    assert [record.json_key["id"] for record in exact_rows(topic(database.topic("t")).take(2 + len(ids)))] == [1, *ids, 9]


@BOTH
def test_skip_of_a_transaction_that_is_too_large(database, millrace, topic, delivery):
    """Exactly that transaction is missing: not the one before, not the one behind, and no other row of it is there."""
    database.run(f"{TABLE}; CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(("t", "u"), **quoted(delivery=delivery)).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'n', 's', 'fits')")
    database.run(f"BEGIN; INSERT INTO u VALUES (1), (2); INSERT INTO t VALUES (2, 'n', 's', repeat('0123456789', {LARGE // 10})); COMMIT")
    database.run("BEGIN; INSERT INTO t VALUES (3, 'n', 's', 'fits'); INSERT INTO t VALUES (4, 'n', 's', 'f'); COMMIT")
    assert process.ended(60) == 65
    error = process.log("stopped")[-1]["message"]
    assert "public.t" in error and "sink.kafka.message_max" in error and "sink.kafka.oversize" in error
    lsn = re.search(r"commits at ([0-9A-F]+/[0-9A-F]+)", error).group(1)
    process.start("--skip-commit-lsn", lsn)
    said = process.wait_for("transaction_skipped")
    assert said["commit_lsn"] == lsn and said["changes"] == 3 and said["tables"] == "public.u 2, public.t 1"
    assert [record.json_key["id"] for record in exact_rows(topic(database.topic("t")).take(3))] == [1, 3, 4]
    assert process.stop() == 0
    assert "0123456789" not in "".join(process.lines)


def test_skip_wants_a_position(database, millrace):
    process = millrace().start("--skip-commit-lsn", "here")
    assert process.ended(30) == 64 and "16/B374D848" in "".join(process.lines)


# ---- a topic that is missing, a queue that is full ----


def test_missing_topic_in_exactly_once(database, millrace, topic):
    """It may not be made: it is waited for by name, nothing is confirmed or lost, and rows come once when it is there."""
    database.run(TABLE)
    process = millrace(sink__kafka__create_topics="false", **quoted(delivery="exactly-once")).start().streaming()
    before = database.slot_row("confirmed_flush_lsn")
    database.run("INSERT INTO t SELECT i, 'n', 's', 'fits' FROM generate_series(1, 500) i")
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    said = process.wait_for("topic_wait")
    assert said["topic"] == database.topic("t") and "sink.kafka.create_topics" in said["message"]
    assert database.slot_row(f"confirmed_flush_lsn < '{end}'::pg_lsn AND confirmed_flush_lsn >= '{before}'")
    database.make_topic("t")
    records = exact_rows(topic(database.topic("t")).take(500))
    assert [record.json_key["id"] for record in records] == list(range(1, 501))
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), what="delivery")
    assert not process.log("sink_session_lost")


@BOTH
@pytest.mark.parametrize("limit", ["queue.buffering.max.messages = 10", "queue.buffering.max.kbytes = 4"])
def test_full_queue_holds_the_flow_back(database, millrace, topic, delivery, limit):
    """The client's own queue is far smaller than what is in flight: all arrives, in order, once, in one session."""
    database.run(TABLE)
    name, value = limit.split(" = ")
    process = millrace(**{f'sink.kafka.properties."{name}"': f'"{value}"'}, **quoted(delivery=delivery)).start().streaming()
    database.run("INSERT INTO t SELECT i, 'n', 's', repeat('x', 100) FROM generate_series(1, 2000) i")
    records = exact_rows(topic(database.topic("t")).take(2000))
    assert [record.json_key["id"] for record in records] == list(range(1, 2001))
    database.all_confirmed()
    assert not process.log("sink_session_lost")
