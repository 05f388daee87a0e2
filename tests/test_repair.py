"""`millrace verify --repair`: what differs is named first, and then repaired by the running millrace, never over what is newer."""

import json
import random
import re
import subprocess

import pytest
from confluent_kafka import TopicPartition

import witness
from endless import Endless
from kit import BINARY, Record, Topic, connect, eventually, expect
from test_verify import DIFFERENT, EQUAL, after, copied, kinds, of_t, produce

DELIVERIES = ["at-least-once", "exactly-once"]
GONE = {"op": "d", "after": None, "source": {}}


def command(process, *tables, yes=True):
    return [BINARY, "verify", *tables, "--repair", *(["--yes"] if yes else []), "--json", "--config", process.path, "--address", process.address()]


def said_by(text):
    """The first proof, what the repair came to, the second proof; None where there is no such line."""
    lines = [json.loads(line) for line in text.splitlines()]
    proofs = [line for line in lines if "verdict" in line]
    repairs = [line for line in lines if "repair" in line]
    return proofs[0], repairs[0] if repairs else None, proofs[1] if len(proofs) > 1 else None


def repair(process, yes=True):
    done = subprocess.run(command(process, "public.t", yes=yes), env=process.environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout, done.stderr
    return done.returncode, *said_by(done.stdout)


def repairs_in(database, table="t"):
    """(why, op, key) of the records that a repair has sent; None is a tombstone's op."""
    found = []
    for record, _ in copied(database.topic(table), lambda record: "mr-repair" in record.headers):
        found.append((record.headers["mr-repair"], record.json.get("op") if record.value is not None else None, record.key))
    return sorted(found, key=str)


def agrees(database, **view):
    seen = witness.look(database, "t", **view)
    assert not seen.differences and not seen.unreadable, seen


def plant(database, topic, bare=False):
    """A lost record, an old value, a changed bit, a phantom, in a topic whose last record is of the rows' last transaction."""
    last = copied(topic, lambda record: True)[-1][0]
    place = after(last)
    row = (lambda after: after) if bare else (lambda after: {"op": "u", "before": None, "after": after, "source": {}})
    produce(topic, '{"id":3}', None if bare else json.dumps({**GONE, "before": {"id": 3}}), place)
    for number, (key, value, xid) in enumerate(((4, {"id": 4, "v": "older", "n": 0}, "3"), (5, {"id": 5, "v": "v4", "n": 0}, None),
                                                (77, {"id": 77, "v": "x", "n": 0}, None))):
        later = [("mr-pos", place[0][1][:-1] + str(number + 1)), ("mr-xid", xid or place[1][1])]
        produce(topic, f'{{"id":{key}}}', json.dumps(row(value)), later)


NAMED = [("altered", '{"id":5}'), ("missing", '{"id":3}'), ("phantom", '{"id":77}'), ("stale", '{"id":4}')]


@pytest.fixture
def planted(database, millrace):
    """A stream whose topic differs in four ways."""
    def make(**options):
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text, n int);"
                     "INSERT INTO t SELECT n, 'v' || n, 0 FROM generate_series(1, 40) n")
        process = millrace(**{"snapshot__mode": '"initial"', **options}).start().streaming()
        database.run("UPDATE t SET v = v")
        assert of_t(process, bare=options.get("format") == '"row"')[0] == EQUAL
        plant(database, database.topic("t"), options.get("format") == '"row"')
        return process
    return make


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("form", ["debezium", "row"])
def test_each_planted_difference_is_named_and_repaired(database, planted, delivery, form):
    process = planted(sink__kafka__delivery=json.dumps(delivery), format=json.dumps(form))
    code, first, done, second = repair(process)
    assert kinds(first) == NAMED and first["verdict"] == "different"
    assert (done["keys"], done["sent"], done["passed_over"], done["fault"]) == (4, 4, 0, "")
    assert code == EQUAL and second["verdict"] == "equal"
    assert of_t(process, bare=form == "row")[0] == EQUAL
    agrees(database, bare=form == "row")
    found = repairs_in(database)
    if form == "debezium":
        assert found == sorted([("missing", "r", '{"id":3}'), ("stale", "r", '{"id":4}'), ("altered", "r", '{"id":5}'),
                                ("phantom", "d", '{"id":77}'), ("phantom", None, '{"id":77}')], key=str)
    else:
        assert [(why, key) for why, _, key in found if why == "phantom"] == [("phantom", '{"id":77}')] and len(found) == 4
    assert sorted((line["why"], line["keys"]) for line in process.log("repair_asked")) == [(why, 1) for why in ("altered", "missing", "phantom", "stale")]


def test_key_that_its_type_has_no_more(database, millrace):
    """A label of an enum was renamed: no row can have the old one, so its event is deleted, and the new one's is sent."""
    database.run("CREATE TYPE mood AS ENUM ('a', 'b'); CREATE TABLE t (id mood PRIMARY KEY, v text); INSERT INTO t VALUES ('a', 'x'), ('b', 'y')")
    process = millrace(snapshot__mode='"initial"').start().streaming()
    database.run("UPDATE t SET v = v")
    assert of_t(process)[0] == EQUAL
    database.run("ALTER TYPE mood RENAME VALUE 'a' TO 'c'")
    code, first, done, second = repair(process)
    assert kinds(first) == [("missing", '{"id":"c"}'), ("phantom", '{"id":"a"}')]
    assert (done["keys"], done["sent"], done["fault"]) == (2, 2, "") and code == EQUAL and second["verdict"] == "equal"


def test_a_dry_run_names_and_changes_nothing(database, planted):
    process = planted()
    reader = Topic(database.topic("t"))
    ends = reader.consumer.get_watermark_offsets(TopicPartition(database.topic("t"), 0), timeout=20)
    code, first, done, second = repair(process, yes=False)
    assert code == DIFFERENT and kinds(first) == NAMED and second is None
    assert (done["repair"], done["keys"], done["sent"]) == ("dry run", 4, 0)
    assert reader.consumer.get_watermark_offsets(TopicPartition(database.topic("t"), 0), timeout=20) == ends
    assert not process.log("repair_asked") and not process.get("/api/snapshot/outcome").json["tables"]
    reader.close()
    plain = subprocess.run([BINARY, "verify", "--repair", "--config", process.path], env=process.environment, capture_output=True, text=True,
                           timeout=120, check=False)
    assert plain.returncode == DIFFERENT and "4 keys would be sent again or deleted: --yes does it" in plain.stdout
    assert subprocess.run([BINARY, "verify", "--yes", "--config", process.path], env=process.environment, check=False).returncode == 64


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_writers_to_the_same_keys_are_never_overwritten(database, planted, delivery):
    """n of a row only grows, so an event that goes back is one that a repair wrote over a newer one."""
    process = planted(sink__kafka__delivery=json.dumps(delivery))

    def write(connection, seed):
        chance = random.Random(seed)
        connection.execute("SET synchronous_commit = off")
        while True:
            key = chance.choice((1, 3, 4, 5, 77, 78)[seed::3])
            connection.execute("INSERT INTO t SELECT %(key)s, 'w', nextval('counter') ON CONFLICT (id) DO UPDATE SET n = excluded.n,"
                               " v = excluded.v" if chance.random() < 0.7 else "DELETE FROM t WHERE id = %(key)s", {"key": key})
            yield 0.002

    database.run("CREATE SEQUENCE counter")
    with subprocess.Popen(command(process, "public.t"), env=process.environment, stdout=subprocess.PIPE, text=True) as run:
        writers = Endless(database, write, 3)
        text = run.communicate(timeout=240)[0]
    rounds = 1
    while run.returncode != EQUAL and rounds < 4:
        assert said_by(text)[2] is None or said_by(text)[2]["verdict"] != "different", text
        text = subprocess.run(command(process, "public.t"), env=process.environment, capture_output=True, text=True, timeout=240, check=False).stdout
        rounds += 1
    writers.end()
    assert of_t(process)[0] == EQUAL
    agrees(database)
    newest = {}
    for message in witness.records(database.topic("t")):
        record = Record(message)
        row = None if record.value is None else record.json["after"]
        if row is None:
            continue
        if row["v"] == "w":
            assert row["n"] > newest.get(row["id"], 0) or "mr-repair" in record.headers and row["n"] == newest.get(row["id"]), record.value
            newest[row["id"]] = row["n"]
        else:
            assert row["id"] not in newest, record.value


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_what_changes_after_it_was_named(database, planted, delivery):
    """A row that is deleted meanwhile is not sent, and a phantom that has come back is not deleted."""
    process = planted(sink__kafka__delivery=json.dumps(delivery))
    with connect(database.name) as connection:
        connection.execute("BEGIN; SELECT pg_current_xact_id()")  # no chunk is good before it ends
        with subprocess.Popen(command(process, "public.t"), env=process.environment, stdout=subprocess.PIPE, text=True) as run:
            eventually(lambda: process.get("/api/snapshot/outcome").json["tables"], what="a repair")
            database.run("DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (77, 'back', 9)")
            connection.execute("COMMIT")
            text = run.communicate(timeout=240)[0]
    first, done, second = said_by(text)
    assert kinds(first) == NAMED and (done["sent"], done["passed_over"]) == (2, 2), done
    assert run.returncode == EQUAL and second["verdict"] == "equal"
    assert {key for _, _, key in repairs_in(database)} == {'{"id":4}', '{"id":5}'}
    agrees(database)


def test_many_rows_in_several_slices(database, millrace):
    """And the large values that updates left alone; a session of the sink begins with one request after the other."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL;"
                 "INSERT INTO t SELECT n, repeat('x', 3000) FROM generate_series(1, 2500) n")
    process = millrace(snapshot__mode='"no_data"').start().streaming()
    database.run("INSERT INTO t VALUES (9999, 'v')")
    code, first, done, second = repair(process)
    assert first["missing"] == 2500 and len(first["differences"]) == 2500
    assert (done["keys"], done["sent"], done["fault"]) == (2500, 2500, "")
    assert code == EQUAL and second["rows"] == 2501
    assert len(repairs_in(database)) == 2500
    assert [one["state"] for one in process.get("/api/snapshot/outcome").json["tables"]] == ["done"] * 3


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_large_value_that_no_event_has_is_sent(database, millrace, delivery):
    """Nothing is different: the events have the placeholder, and the table the value. Rows that differ are named before those."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL;"
                 "INSERT INTO t SELECT n, 0, repeat('x', 3000) FROM generate_series(1, 40) n; INSERT INTO t VALUES (99, 0, 'lost')")
    process = millrace(snapshot__mode='"no_data"', sink__kafka__delivery=json.dumps(delivery)).start().streaming()
    database.run("UPDATE t SET n = 1 WHERE id <= 40; INSERT INTO t VALUES (50, 0, 'v')")
    code, first, done, second = repair(process, yes=False)
    assert (code, first["unknown"], first["missing"], len(first["differences"])) == (DIFFERENT, 40, 1, 41) and second is None
    assert first["differences"][0]["kind"] == "missing" and done["keys"] == 41, first
    database.run("DELETE FROM t WHERE id = 99")
    database.run("INSERT INTO t VALUES (51, 0, 'v')")
    code, first, done, second = repair(process, yes=False)
    assert first["verdict"] == "equal in part" and done["keys"] == 40, first
    assert {'{"id":7}'} < {one["key"] for one in first["differences"]}
    code, first, done, second = repair(process)
    assert (code, done["sent"], done["fault"], second["unknown"]) == (EQUAL, 40, "", 0), (first, second)
    assert repairs_in(database) == sorted((("unknown", "r", f'{{"id":{number}}}') for number in range(1, 41)), key=str)


def test_more_rows_than_are_named_at_once(database, millrace):
    """In rounds, within one run."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT n, 'v' FROM generate_series(1, 21000) n")
    process = millrace(snapshot__mode='"no_data"').start().streaming()
    database.run("INSERT INTO t VALUES (99999, 'v')")
    done = subprocess.run(command(process, "public.t"), env=process.environment, capture_output=True, text=True, timeout=240, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == EQUAL, done.stderr
    assert [line["sent"] for line in lines if "repair" in line] == [10000, 10000, 1000]
    assert [line["missing"] for line in lines if "verdict" in line] == [21000, 11000, 1000, 0]


def test_a_person_gets_the_first_differences(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT n, 'v' FROM generate_series(1, 12000) n")
    process = millrace(snapshot__mode='"no_data"').start().streaming()
    done = subprocess.run([word for word in command(process, "public.t") if word != "--json"], env=process.environment, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == EQUAL, done.stderr
    assert done.stdout.count("\n  missing ") == 100 + 10 and re.findall(r"and others: (\d+) in all", done.stdout) == ["12000", "2000"], done.stdout


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_kill_in_the_middle_leaves_nothing_wrong(database, planted, delivery):
    """The request goes with the process: the next proof names what is left, and the next repair mends it."""
    process = planted(sink__kafka__delivery=json.dumps(delivery))
    with connect(database.name) as connection:
        connection.execute("BEGIN; SELECT pg_current_xact_id()")
        with subprocess.Popen(command(process, "public.t"), env=process.environment, stdout=subprocess.PIPE, text=True) as run:
            eventually(lambda: process.get("/api/snapshot/outcome").json["tables"], what="a repair")
            process.kill().start().streaming()
            text = run.communicate(timeout=240)[0]
        connection.execute("COMMIT")
    first, done, second = said_by(text)
    assert kinds(first) == NAMED and done["fault"] and run.returncode == DIFFERENT and kinds(second) == NAMED, text
    assert not process.get("/api/snapshot/outcome").json["tables"]
    assert repair(process)[0] == EQUAL
    agrees(database)


@pytest.mark.parametrize("delivery, way", [("at-least-once", "gone"), ("exactly-once", "gone"), ("at-least-once", "moved")])
def test_after_a_lost_slot_only_what_differs_is_sent(database, millrace, delivery, way):
    """The stream goes on at a new slot; the stored record says between which positions nothing was sent, and goes on saying it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    state = database.create_topic(f"{database.name}-state", config={"cleanup.policy": "compact"})
    options = {"sink__kafka__delivery": json.dumps(delivery), "sink__kafka__state_topic": f'"{state}"'}
    process = millrace(**options).start().streaming()
    database.run("INSERT INTO t SELECT n, 0 FROM generate_series(1, 200) n")
    assert of_t(process)[0] == EQUAL
    assert process.stop() == 0
    if way == "gone":
        database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.run("INSERT INTO t VALUES (701, 0); UPDATE t SET v = 1 WHERE id <= 3; DELETE FROM t WHERE id BETWEEN 10 AND 12")
    if way == "moved":
        database.run("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [database.slot])
    expect(process.run_to_end(), 10, "millrace recover")
    process.configure(**options, snapshot__mode='"accept_gap"').start().streaming()
    gap = process.log("gap_accepted")[0]
    assert database.run("SELECT %s::pg_lsn < %s::pg_lsn", [gap["from"], gap["to"]])[0][0]
    database.run("UPDATE t SET v = 2 WHERE id = 20")
    code, first, done, second = repair(process)
    assert kinds(first) == sorted([("missing", '{"id":701}')] + [("phantom", f'{{"id":{n}}}') for n in (10, 11, 12)] +
                                  [("stale", f'{{"id":{n}}}') for n in (1, 2, 3)])
    assert code == EQUAL and (done["sent"], second["verdict"]) == (7, "equal")
    assert len([why for why, op, _ in repairs_in(database) if op is not None]) == 7
    agrees(database)
    assert process.stop() == 0
    process.configure(**options).start().streaming()
    database.run("UPDATE t SET v = 3 WHERE id = 20")
    eventually(lambda: copied(database.topic("t"), lambda record: True)[-1][0].json["after"] == {"id": 20, "v": 3}, what="the last event")
    assert process.stop() == 0 and not process.log("gap_accepted")
    last = copied(state, lambda record: True)[-1][0].json
    assert (last["gap"]["from"], last["gap"]["to"]) == (gap["from"], gap["to"])


def test_a_first_start_accepts_no_gap(database, millrace, topic):
    """There is none: it is as no_data, also where a slot is there already."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    process = millrace(snapshot__mode='"accept_gap"').start().streaming()
    database.run("INSERT INTO t VALUES (2)")
    assert process.stop() == 0 and not process.log("gap_accepted") and not process.log("snapshot_begun")
    process.start().streaming()
    database.run("INSERT INTO t VALUES (3)")
    assert [record.json["after"]["id"] for record in topic(database.topic("t")).take(2)] == [2, 3]
    assert process.stop() == 0 and not process.log("gap_accepted")


def test_keys_of_all_kinds_and_none_of_them_is_kept(database, millrace):
    """Names and values that need quotes, texts that the server calls equal and the topic does not, the whole old row as identity."""
    database.run("CREATE TABLE t (a numeric, \"b\"\"'\" text, c bool, d uuid, v text, PRIMARY KEY (c, a, \"b\"\"'\", d));"
                 "ALTER TABLE t REPLICA IDENTITY FULL")
    state = database.create_topic(f"{database.name}-state", config={"cleanup.policy": "compact"})
    process = millrace(snapshot__mode='"no_data"', sink__kafka__state_topic=f'"{state}"').start().streaming()
    unique = "5ecae7ed-0000-4000-8000-000000000001"
    database.run("INSERT INTO t VALUES (1.50, E'it''s \\\\ \"\t\u20ac', true, %s, 'v')", [unique])
    assert of_t(process)[0] == EQUAL
    topic = database.topic("t")
    last = copied(topic, lambda record: True)[-1][0]
    place = after(last)
    produce(topic, last.key, json.dumps({**last.json, "after": {**last.json["after"], "v": "w"}}), place)
    phantom = last.key.replace("1.50", "1.5")
    assert phantom != last.key
    produce(topic, phantom, json.dumps({**last.json, "after": {**last.json["after"], "a": 1.5}}), [("mr-pos", place[0][1][:-1] + "1"), place[1]])
    code, first, done, second = repair(process)
    assert kinds(first) == sorted([("altered", last.key), ("phantom", phantom)])
    assert code == EQUAL and done["sent"] == 2 and second["verdict"] == "equal", (done, second)
    assert [one for one in repairs_in(database) if one[1] == "d"] == [("phantom", "d", phantom)]
    assert process.stop() == 0
    kept = [record.value or "" for record, _ in copied(state, lambda record: True)]
    assert kept and not any("5ecae7ed" in value for value in kept)
    assert not any("5ecae7ed" in line for line in process.lines)


# Of a key's column: options, its type, the value of a row, and of a phantom; each beside an int.
CONVERTED = {
    "date": ({}, "date", "2001-02-03", "2001-02-04"),
    "iso": ({"time_precision_mode": "isostring"}, "timestamp", "2001-02-03 04:05:06.789012", "0001-02-03 04:05:06"),
    "micros": ({}, "timestamp", "2001-02-03 04:05:06.789012", "1901-02-03 04:05:06.000001"),
    "millis": ({}, "timestamp(3)", "2001-02-03 04:05:06.789", "1901-02-03 04:05:06.001"),
    "nanos": ({"time_precision_mode": "nanoseconds"}, "time", "04:05:06.789012", "00:00:00.000001"),
    "zoned": ({}, "timestamptz", "2001-02-03 04:05:06.789012+03", "9999-12-31 23:59:59+00"),
    "decimal": ({}, "numeric(30,4)", "-12345678901234567890.1200", "12345678901234567890.0100"),
    "string": ({"decimal_handling_mode": "string"}, "numeric", "1.50", "1.5"),
    "bytes": ({}, "bytea", r"\x00ff10fb", r"\xfbefff"),
    "url": ({"binary_handling_mode": "base64-url-safe"}, "bytea", r"\x00ff10fb", r"\xfbefff"),
    "bit": ({}, "bit", "1", "0"),
    "real": ({}, "float8", "0.1", "1e+300"),
    "interval": ({"interval_handling_mode": "string"}, "interval", "1 year 2 mons 3 days 04:05:06.7", "-1 days"),
    "domain": ({}, "day", "2001-02-03", "2001-02-04"),
    "uuid": ({}, "uuid", "5ecae7ed-0000-4000-8000-000000000001", "5ecae7ed-0000-4000-8000-000000000002"),
}

@pytest.mark.parametrize("kind", CONVERTED)
def test_keys_in_debeziums_form_are_repaired(database, millrace, kind):
    """A row that is lost, one that has another value, and one whose delete is lost."""
    modes, column, value, other = CONVERTED[kind]
    database.run(f"CREATE DOMAIN day AS date; CREATE TABLE t (k {column}, n int, v text, PRIMARY KEY (k, n))")
    process = millrace(types='"debezium"', snapshot__mode='"no_data"', **{name: json.dumps(word) for name, word in modes.items()}).start().streaming()
    database.run("INSERT INTO t VALUES (%s, 1, 'stale'), (%s, 2, 'lost'), (%s, 3, 'phantom')", [value, value, other])
    assert of_t(process, modes=modes)[0] == EQUAL
    topic = database.topic("t")
    records = {json.loads(record.key)["n"]: record for record, _ in copied(topic, lambda record: True)}
    database.run("DELETE FROM t WHERE n = 3")
    database.run("INSERT INTO t VALUES (%s, 9, 'last')", [value])
    assert of_t(process, modes=modes)[0] == EQUAL
    last = copied(topic, lambda record: True)[-1][0]
    head, ordinal, part = last.position.split("-")
    for number, (n, text) in enumerate(((1, "other"), (2, None), (3, "back")), 1):
        place = [("mr-pos", f"{head}-{int(ordinal, 16) + number:010X}-{part}"), ("mr-xid", last.headers["mr-xid"])]
        event = records[n].json
        produce(topic, records[n].key, json.dumps({**event, "after": {**event["after"], "v": text}} if text else {**GONE, "before": event["after"]}), place)
    code, first, done, second = repair(process)
    assert sorted(one["kind"] for one in first["differences"]) == ["missing", "phantom", "stale"], first
    assert (done["keys"], done["sent"], done["fault"]) == (3, 3, ""), done
    assert code == EQUAL and second["verdict"] == "equal", second
    agrees(database, modes=modes)
    assert sorted({(why, key) for why, _, key in repairs_in(database)}) == sorted(
        [("stale", records[1].key), ("missing", records[2].key), ("phantom", records[3].key)])


NOT_TURNED_BACK = {"numeric": ({}, "1.50"), "timetz": ({}, "04:05:06+01"), "int[]": ({}, "{1}"), "varbit(9)": ({}, "101"),
                   "timestamp": ({"time_precision_mode": "connect"}, "2001-02-03 04:05:06.789012")}


@pytest.mark.parametrize("column", NOT_TURNED_BACK)
def test_keys_that_events_do_not_say_whole_are_refused(database, millrace, column):
    modes, value = NOT_TURNED_BACK[column]
    database.run(f"CREATE TABLE t (k {column} PRIMARY KEY); INSERT INTO t VALUES ('{value}')")
    process = millrace(types='"debezium"', snapshot__mode='"no_data"', **{name: json.dumps(word) for name, word in modes.items()}).start().streaming()
    code, first, done, second = repair(process)
    assert code == DIFFERENT and len(first["differences"]) == 1 and second is None
    assert done["keys"] == 0 and done["fault"] == "its key's events do not say the server's value (docs/verify.md): column k"


def test_a_request_by_hand_deletes_no_row_under_another_text(database, millrace):
    """Texts that the server reads as a value that a row has, and would write otherwise; and what is no row's, which goes."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (n numeric(9,2), at timestamp(0), PRIMARY KEY (n, at));"
                 "INSERT INTO t VALUES (7); INSERT INTO u VALUES (1.50, '2001-02-03 04:05:06')")
    process = millrace(("t", "u"), types='"debezium"', snapshot__mode='"initial"').start().streaming()

    def asked(table, columns, *keys, why="phantom"):
        body = {"type": "repair", "schema": "public", "table": table, "why": why, "columns": columns, "keys": keys}
        answer = process.get("/api/snapshot", method="POST", body=json.dumps(body)).json
        number = answer["requests"][0]

        def over():
            found = [one for one in process.get("/api/snapshot/outcome").json["tables"] if one["request"] == number]
            return found and found[0]["state"] in ("done", "failed") and found[0]
        end = eventually(over, what="the request's end")
        return end["state"], end["rows"], end["passed_over"]

    assert asked("t", ["id"], ["07"], ["+7"], [" 7 "], ["7"]) == ("done", 0, 4)
    wrong = [["1.5", "2001-02-03 04:05:06"], ["1.50", "2001-02-03 04:05:06.4"], ["1.500", "2001-02-03T04:05:06"]]
    assert asked("u", ["n", "at"], *wrong, ["2.50", "2001-02-03 04:05:06"]) == ("done", 1, 3)
    for why in ("missing", "stale", "altered"):  # a row under another text is not sent with its key alone
        assert asked("u", ["n", "at"], *wrong, why=why) == ("done", 0, 3)
    assert [one for one in repairs_in(database, "t") if one[1] == "d"] == []
    assert of_t(process)[0] == EQUAL


def test_what_cannot_be_repaired_says_why(database, millrace):
    database.run("CREATE TABLE t (v text); ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES ('x')")
    process = millrace(snapshot__mode='"no_data"').start().streaming()
    database.run("INSERT INTO t VALUES ('y')")
    code, _, done, second = repair(process)
    assert code == DIFFERENT and done["fault"] == "it has no key" and done["keys"] == 0 and second is None


def test_who_does_not_take_it_is_named(planted):
    """No millrace, one whose copies are paused, one without HTTP."""
    process = planted()
    assert process.get("/api/snapshot", method="POST", body='{"type":"pause"}').status == 200
    code, _, done, second = repair(process)
    assert code == DIFFERENT and "millrace snapshot --resume" in done["fault"] and second["verdict"] == "different"
    assert process.get("/api/snapshot", method="POST", body='{"type":"stop"}').status == 200
    for body in ('{"type":"repair"}', '{"type":"repair","schema":"public","table":"t","why":"odd","columns":["id"],"keys":[["1"]]}'):
        assert process.get("/api/snapshot", method="POST", body=body).status == 400
    asked = command(process, "public.t")[:-1]
    done = subprocess.run([*asked, "127.0.0.1:1"], env=process.environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == DIFFERENT and "is millrace running" in done.stderr
    assert process.stop() == 0
    process.configure(snapshot__mode='"initial"', http__address='""')
    done = subprocess.run([BINARY, "verify", "--repair", "--yes", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 78 and "http.address is empty" in done.stderr
