"""`millrace verify`: topics that equal the tables are proved, and each fault that is placed on purpose is found and named."""

import hashlib
import itertools
import json
import os
import pty
import signal
import subprocess
import threading

import pytest
from confluent_kafka import Producer, TopicPartition

import witness
from endless import Endless
from kit import BINARY, BOOTSTRAP, Database, Topic, connect, eventually, expect

EQUAL, DIFFERENT, IN_PART, NO_VERDICT = 0, 4, 5, 6


def agree(line, seen):
    """The witness found the same: the differences that are named, and whether anything is unknown or unreadable."""
    named = {("value" if one["kind"] in ("stale", "altered") else one["kind"],
              one["key"] and tuple(sorted(witness.texts(witness.parsed(one["key"])).items()))) for one in line["differences"] if one["kind"] != "unknown"}
    unknown = sum(one["kind"] == "unknown" for one in line["differences"])
    assert named == seen.differences, (line, seen)
    assert line["unknown"] == seen.unknown and unknown == min(seen.unknown, 100 - len(line["differences"]) + unknown), (line, seen)
    assert ('topic "' in line["reason"]) == (seen.unreadable > 0), (line, seen)


def verify(process, *tables, options=(), views=None):
    """Exit code, and what it says of each table; the witness looks too. `views`: of a table, what look() is told about it."""
    done = subprocess.run([BINARY, "verify", *tables, *options, "--json", "--config", process.path], env=process.environment,
                          capture_output=True, text=True, timeout=240, check=False)
    said = {f"{line['schema']}.{line['table']}": line for line in map(json.loads, done.stdout.splitlines())}
    for name, line in said.items():
        if line["verdict"] in ("equal", "equal in part", "different"):
            agree(line, witness.look(process.database, line["table"], line["schema"], **(views or {}).get(name, {})))
    return done.returncode, said, done.stderr


def of_t(process, **view):
    code, said, errors = verify(process, "public.t", views={"public.t": view})
    assert "public.t" in said, errors
    return code, said["public.t"]


def alone(process):
    """What it says of t, of which the witness knows too little."""
    done = subprocess.run([BINARY, "verify", "public.t", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=240, check=False)
    return done.returncode, json.loads(done.stdout)


def kinds(said):
    return sorted((one["kind"], one["key"]) for one in said["differences"])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("form", ["debezium", "row"])
def test_what_is_written_is_proved_while_it_is_written(database, millrace, delivery, form):
    """Rows that come, change, move to another key and go, and large values, while writers go on."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, n numeric, b bool, j jsonb, a int[], at timestamptz, f float8);"
                 "CREATE TABLE keyless (v text); ALTER TABLE keyless REPLICA IDENTITY FULL;"
                 "CREATE TABLE named (tenant text, \"I\"\"d\" uuid, PRIMARY KEY (tenant, \"I\"\"d\"), v text)")
    tables = ("t", "keyless", "named") if form == "debezium" else ("t", "named")
    process = millrace(tables, format=json.dumps(form), sink__kafka__delivery=json.dumps(delivery), sink__kafka__partitions="3",
                       skipped_operations="[]").start().streaming()

    def write(connection, number):
        for n in itertools.count(1 + 1000000 * (number + 1)):
            connection.execute(
                "INSERT INTO t VALUES (%s, %s, 1.50, true, '{\"a\": [1, \"\\u00e9\\\"\"]}', '{1,2}', now(), 1e300)",
                [n, "\t\\x\n\u20ac\U0001f600"])
            connection.execute("UPDATE t SET v = repeat(md5(random()::text), 300) WHERE id = %s", [n])
            connection.execute("UPDATE t SET n = 2, b = NULL WHERE id = %s", [n])
            connection.execute("DELETE FROM t WHERE id = %s", [n - 3])
            connection.execute("INSERT INTO named VALUES (%s, gen_random_uuid(), NULL)", [f"'{number}\""])
            connection.execute("INSERT INTO keyless VALUES ('same'), (%s)", [str(n % 5)])
            connection.execute("UPDATE keyless SET v = v || 'x' WHERE ctid = (SELECT max(ctid) FROM keyless)")
            yield

    with Endless(database, write, 3):
        eventually(lambda: database.run("SELECT count(*) FROM named")[0][0] > 300, what="300 rows")
        for _ in range(2):
            code, said, errors = verify(process, views={f"public.{table}": {"bare": form == "row"} for table in tables})
            assert code == EQUAL, (said, errors)
            assert set(said) == {f"public.{table}" for table in tables}
            assert all(line["rows"] > 0 for line in said.values())


def copied(topic, change):
    """All records of a topic, as somebody else writes them again after `change` has looked at each: (key, value, headers) or None."""
    reader = Topic(topic)
    records = reader.take(1)
    records += reader.read(1)
    reader.close()
    return [(record, changed) for record in records if (changed := change(record))]


def produce(topic, key, value, headers, partition=0):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
    producer.produce(topic, value, key, partition=partition, headers=headers)
    assert producer.flush(30) == 0


def after(record, xid=None):
    """Headers of a place after that record, which is a topic's last."""
    head, ordinal, part = record.position.split("-")
    return [("mr-pos", f"{head}-{int(ordinal, 16) + 1:010X}-{part}"), ("mr-xid", xid or record.headers["mr-xid"])]


@pytest.fixture
def proved(database, millrace):
    """Five rows that are proved; then millrace goes on, and somebody else may write into their topic. `place`: headers of the transaction
    that wrote rows 3 to 5 last."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 5) n")
    process = millrace(snapshot__mode='"initial"').start().streaming()
    database.run("UPDATE t SET v = 'w' WHERE id = 1; DELETE FROM t WHERE id = 2")
    database.run("UPDATE t SET v = v WHERE id > 2")
    assert of_t(process)[0] == EQUAL
    topic = database.topic("t")
    last = copied(topic, lambda record: True)[-1][0]
    event = {"before": None, "after": None, "op": "c", "source": {}}
    return process, topic, after(last), event


def test_a_row_that_the_topic_does_not_have_is_missing(proved):
    process, topic, place, event = proved
    produce(topic, '{"id":3}', json.dumps({**event, "op": "d", "before": {"id": 3, "v": None}}), place)
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == [("missing", '{"id":3}')]
    assert said["differences"][0]["position"] == place[0][1] and said["differences"][0]["partition"] == 0


def test_a_record_from_the_future_is_named(proved):
    """No copy of existing rows is under way."""
    process, topic, place, event = proved
    produce(topic, '{"id":3}', json.dumps({**event, "op": "r", "after": {"id": 3, "v": "v3"}}),
            [("mr-pos", "00000000FFFFFFFF-0000000001-0"), place[1]])
    code, said = of_t(process)
    last = len(copied(topic, lambda record: True)) - 1
    assert code == 6 and f"the record at offset {last} of partition 0" in said["reason"] and "0/FFFFFFFF" in said["reason"], said


def test_what_can_not_be_counted_is_not_counted(database, millrace):
    """Records with a key, and then without: nobody knows which of them a row without a key takes away."""
    database.run("CREATE TABLE t (k text NOT NULL, v int); CREATE UNIQUE INDEX tk ON t (k); ALTER TABLE t REPLICA IDENTITY USING INDEX tk")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT 'k' || n, n FROM generate_series(1, 10) n")
    database.run("ALTER TABLE t REPLICA IDENTITY FULL")
    database.run("UPDATE t SET v = v + 1; DELETE FROM t")
    code, said = of_t(process)
    assert code == 5 and "what differs can't be counted" in said["reason"] and "missing" not in said["reason"], said
    assert not said["differences"], said


def test_a_row_that_no_event_ever_had_is_missing(database, millrace):
    database.run("CREATE TABLE t (a text, b int, v text, PRIMARY KEY (b, a)); INSERT INTO t VALUES ('\"x', 1, 'v')")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES ('y', 2, 'v')")
    code, said = of_t(process)
    assert code == DIFFERENT and [one["kind"] for one in said["differences"]] == ["missing"]
    assert json.loads(said["differences"][0]["key"]) == {"a": '"x', "b": 1} and "offset" not in said["differences"][0]
    assert "millrace snapshot copies them" in said["reason"]


def test_a_key_that_is_not_utf8_is_named_in_json(millrace_for):
    """Of a row that has no event, as the server says it, whose database does not know what its bytes mean."""
    odd = Database("ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        odd.run(r"CREATE TABLE t (id text PRIMARY KEY); INSERT INTO t VALUES (E'a\xff\xfe')")
        process = millrace_for(odd).start().streaming()
        done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, timeout=60,
                              check=False)
        said = json.loads(done.stdout.decode("utf-8", "strict"))
        assert done.returncode == DIFFERENT and kinds(said) == [("missing", '{"id":"a\ufffd\ufffd"}')], said
        assert process.stop() == 0
    finally:
        odd.drop()


def test_a_row_that_the_table_does_not_have_is_a_phantom(proved):
    process, topic, place, event = proved
    produce(topic, '{"id":77}', json.dumps({**event, "after": {"id": 77, "v": "x"}}), place)
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == [("phantom", '{"id":77}')]


def test_another_value_is_altered(proved):
    process, topic, place, event = proved
    for number, value in enumerate(("v4 ", "", None, "V4", 4)):
        later = [("mr-pos", place[0][1][:-1] + str(number + 1)), place[1]]
        produce(topic, '{"id":4}', json.dumps({**event, "op": "u", "after": {"id": 4, "v": value}}), later)
        code, said = of_t(process)
        assert code == DIFFERENT and kinds(said) == [("altered", '{"id":4}')], value


def test_a_lost_update_leaves_a_stale_value(proved):
    """A transaction that the topic does not have: what is there is of another one."""
    process, topic, place, event = proved
    produce(topic, '{"id":4}', json.dumps({**event, "op": "u", "after": {"id": 4, "v": "before"}}), [place[0], ("mr-xid", "3")])
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == [("stale", '{"id":4}')]


def test_two_rows_that_changed_places_are_named(proved):
    process, topic, place, event = proved
    for number, (one, other) in enumerate(((4, 5), (5, 4))):
        later = [("mr-pos", place[0][1][:-1] + str(number + 2)), place[1]]
        produce(topic, json.dumps({"id": one}, separators=(",", ":")), json.dumps({**event, "op": "u", "after": {"id": one, "v": f"v{other}"}}), later)
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == [("altered", '{"id":4}'), ("altered", '{"id":5}')]


def test_a_repeat_with_an_old_value_is_out_of_order(proved, database):
    """Sent again as it was it is no fault, under at least once, if the run reaches the highest; with another value it is."""
    process, topic, _, _ = proved
    records = [record for record, _ in copied(topic, lambda record: True)]

    def again(some):
        for record in some:
            produce(topic, record.key, record.value, list(record.headers.items()))

    again(records[-4:])
    assert of_t(process)[0] == EQUAL
    again(records[-4:-2] + records[-1:])  # a run with a hole
    code, said = of_t(process)
    assert code == DIFFERENT and not said["differences"]
    assert f"partition 0, offset {len(records) + 6} comes where a repeat is due" in said["reason"] and "1 runs of repeats" in said["reason"]
    altered = records[-1]
    assert altered.key == '{"id":5}'
    produce(topic, altered.key, altered.value.replace('"v5"', '"v6"'), list(altered.headers.items()))
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == [("altered", '{"id":5}')]
    again(records[-4:])
    code, said = of_t(process)
    assert code == DIFFERENT and "1 unlike the first" in said["reason"] and not said["differences"]
    assert f"partition 0, offset {len(records) + 6} comes where" in said["reason"]
    database.run("UPDATE t SET v = 'later' WHERE id = 5")
    again(records[-4:-2])
    code, said = of_t(process)
    assert code == DIFFERENT and "2 runs of repeats that break off" in said["reason"]


@pytest.mark.parametrize("form", ["debezium", "row"])
def test_a_repeated_delete_that_says_another_row_is_unlike(proved_twice, form):
    """Its tombstone comes again, too, so no key differs; as it was it would be equal."""
    process, topic, records = proved_twice(form)
    delete, tombstone = records[-2:]
    for record in (delete, tombstone):
        produce(topic, record.key, record.value, list(record.headers.items()))
    assert of_t(process, bare=form == "row")[0] == EQUAL
    other = delete.value.replace('"id":2', '"id":4', 1)
    assert other != delete.value
    produce(topic, delete.key, other, list(delete.headers.items()))
    produce(topic, tombstone.key, None, list(tombstone.headers.items()))
    code, said = of_t(process, bare=form == "row")
    assert code == DIFFERENT and "repeats another one with other content" in said["reason"], said


def test_a_repeat_under_exactly_once_is_one_too_many(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__delivery='"exactly-once"').start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    assert of_t(process)[0] == EQUAL
    for record, _ in copied(database.topic("t"), lambda record: True):
        produce(database.topic("t"), record.key, record.value, list(record.headers.items()))
    code, said = of_t(process)
    assert code == DIFFERENT and "1 records come twice" in said["reason"] and not said["differences"]
    assert "partition 0, offset 2" in said["reason"]


def test_a_record_that_is_none_is_named_by_its_offset(proved):
    process, topic, place, _ = proved
    row = '{"op":"c","before":null,"after":{"id":9,"v":"x"}}'
    wrong = [('{"id":9,"id":9}', row), ('{"id":9}', row[:-1]), ('{"id":9}', row.replace('"c"', '"q"')),
             ('{"id":9}', row.replace('"x"', '"x","v":"y"'))]
    for key, value in wrong:
        produce(topic, key, value, place)
    produce(topic, '{"id":9}', row, place[:1])
    done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=240, check=False)
    said = json.loads(done.stdout)
    assert done.returncode == DIFFERENT and not said["differences"]
    assert f'"{topic}", partition 0, offset ' in said["reason"] and "its key is none" in said["reason"] and "5 such records" in said["reason"]
    assert '"x"' not in done.stdout + done.stderr


def test_records_with_another_key_count_for_no_row(proved):
    """They excuse what is from before them, and nothing after."""
    process, topic, place, event = proved
    produce(topic, '{"id":4}', json.dumps({**event, "op": "u", "after": {"id": 4, "v": "x"}}), place)
    later = [("mr-pos", place[0][1][:-1] + "1"), place[1]]
    produce(topic, '{"id":9,"x":1}', json.dumps({**event, "after": {"id": 9, "v": "x"}}), later)
    for number, want in enumerate((IN_PART, DIFFERENT)):
        done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True,
                              timeout=240, check=False)
        said = json.loads(done.stdout)
        assert done.returncode == want and "1 records have the key of another form" in said["reason"], said
        assert said["altered"] == number + 1, said
        later = [("mr-pos", place[0][1][:-1] + "2"), place[1]]
        produce(topic, '{"id":5}', json.dumps({**event, "op": "u", "after": {"id": 5, "v": "x"}}), later)


def test_a_key_that_came_after_rows(database, millrace):
    """As pg_restore makes tables. Rows without a later event are in part, and one that is lost later is not."""
    process = millrace(tables=("public.*",)).start().streaming()
    database.run("CREATE TABLE t (id int NOT NULL, v text)")
    database.run("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    database.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    database.run("UPDATE t SET v = v || v")
    code, said = alone(process)
    assert code == IN_PART and said["missing"] == 0 and "3 records have the key of another form of the table, or none" in said["reason"], said
    topic = database.topic("t")
    records = [record for record, _ in copied(topic, lambda record: True)]
    assert [record.key for record in records[:4]] == [None, None, None, '{"id":1}']
    produce(topic, records[3].key, records[3].value.replace('"aa"', '"x"'), after(records[-1], records[3].headers["mr-xid"]))
    code, said = alone(process)
    assert code == DIFFERENT and said["altered"] == 1, said


def test_a_text_that_comes_as_a_number_is_altered(proved, database):
    process, topic, _, event = proved
    database.run("UPDATE t SET v = '4' WHERE id = 4; UPDATE t SET v = 't' WHERE id = 5")
    assert of_t(process)[0] == EQUAL
    last = copied(topic, lambda record: True)[-1][0]
    produce(topic, '{"id":5}', json.dumps({**event, "op": "u", "after": {"id": 5, "v": True}}), after(last))
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == [("altered", '{"id":5}')]


def test_records_from_before_millrace_count_for_no_row(database, millrace):
    """As Debezium's, whose topic goes on. What they had of rows nobody knows, so that a row without an event is excused."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    topic = database.topic("t")
    database.make_topic("t")
    produce(topic, '{"id":1}', '{"before":null,"after":{"id":1},"op":"c"}', [])
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (2)")
    done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=240, check=False)
    said = json.loads(done.stdout)
    assert done.returncode == IN_PART and "1 records are from before millrace" in said["reason"] and said["missing"] == 1, said
    produce(topic, '{"id":1}', '{"before":null,"after":{"id":1},"op":"c"}', [])
    done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == DIFFERENT and "no headers mr-pos" in json.loads(done.stdout)["reason"]


@pytest.mark.parametrize("form", ["debezium", "row"])
def test_copied_rows_of_a_quiet_server(database, millrace, form):
    """Their transaction's number is one that nobody had yet, also where the record does not say that it is a copy."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT n, 'v' FROM generate_series(1, 5) n")
    process = millrace(format=json.dumps(form), snapshot__mode='"initial"').start().streaming()
    code, said = of_t(process, bare=form == "row")
    assert (code, said["rows"], said["records"]) == (EQUAL, 5, 5), said


def test_rows_without_a_key_are_counted(database, millrace):
    database.run("CREATE TABLE t (v text); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES ('a'), ('a'), ('b'); DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)")
    assert of_t(process)[0] == EQUAL
    topic = database.topic("t")
    produce(topic, None, '{"op":"c","before":null,"after":{"v":"b"}}', after(copied(topic, lambda record: True)[-1][0]))
    code, said = of_t(process)
    assert code == DIFFERENT and said["phantom"] == 1 and said["missing"] == 0


def test_repeats_of_rows_without_a_key_are_no_rows(database, millrace):
    database.run("CREATE TABLE t (v text); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES ('a'), ('a'), ('b'), ('c')")
    database.run("UPDATE t SET v = v || 'x' WHERE v < 'c'; DELETE FROM t WHERE v = 'c'")
    assert of_t(process)[0] == EQUAL
    topic = database.topic("t")
    records = [record for record, _ in copied(topic, lambda record: True)]
    for record in records[3:]:
        produce(topic, record.key, record.value, list(record.headers.items()))
    assert of_t(process)[0] == EQUAL
    last = records[-2]  # the last row that came, as another one
    produce(topic, None, last.value, after(records[-1]))
    code, said = of_t(process)
    assert code == DIFFERENT and said["phantom"] + said["missing"] > 0, said


@pytest.mark.parametrize("table", ["partitioned", "keyed", "keyless"])
@pytest.mark.parametrize("types", ["text", "debezium"])
def test_a_default_that_the_catalog_has_forgotten_is_proved(database, millrace, table, types):
    """A root has never known it, a rewrite forgets it, and a domain with a condition is such a rewrite. Rows that have had no event since must
    have one value in the column."""
    database.run("CREATE DOMAIN whole AS int CHECK (value > 0)")
    if table == "partitioned":
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
                     "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (99)")
    else:
        database.run(f"CREATE TABLE t (id int {'' if table == 'keyless' else 'PRIMARY KEY'}, v text); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace(types=f'"{types}"', publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO t SELECT n, 'v' FROM generate_series(1, 20) n; ALTER TABLE t ADD a int DEFAULT 7, ADD b text DEFAULT 'b',"
                 " ADD c timestamptz DEFAULT now(), ADD d numeric(9, 2) DEFAULT 1.50, ADD e whole DEFAULT 5, ADD f text")
    database.run("INSERT INTO t (id, v, a) VALUES (30, 'new', 8), (31, 'new', NULL); UPDATE t SET f = 'f' WHERE id = 2; DELETE FROM t WHERE id = 3")
    expect(alone(process), EQUAL)
    for name in ("t_1", "t_2") if table == "partitioned" else ("t",):
        database.run(f"VACUUM FULL {name}")
    expect(alone(process), EQUAL)
    topic = database.topic("t")
    records = [record for record, _ in copied(topic, lambda record: True)]
    old = next(record for record in records if '"id":4' in record.value)  # from before the columns
    produce(topic, old.key, old.value.replace('"v":"v"', '"v":"other"'), after(records[-1], old.headers["mr-xid"]))
    said = expect(alone(process), DIFFERENT)
    if table == "keyless":
        assert (said["phantom"], said["missing"]) == (1, 0)
    else:
        assert kinds(said) == [("altered", '{"id":4}')]
        assert (said["differences"][0]["partition"], said["differences"][0]["offset"]) == (0, len(records))


def test_a_lost_update_of_a_late_column_is_named(database, millrace):
    """Its value is not that of the other rows that have had no event since."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT n, 'v' FROM generate_series(1, 9) n; ALTER TABLE t ADD a int DEFAULT 7")
    database.run("UPDATE t SET a = 8 WHERE id = 5")
    database.run("VACUUM FULL t")
    assert of_t(process)[0] == EQUAL
    topic = database.topic("t")
    records = [record for record, _ in copied(topic, lambda record: True)]
    assert records[-1].key == '{"id":5}'
    produce(topic, records[4].key, records[4].value, after(records[-1], records[4].headers["mr-xid"]))
    code, said = alone(process)
    assert code == DIFFERENT and kinds(said) == [("stale", '{"id":5}')], said


@pytest.mark.parametrize("form", ["debezium", "row"])
def test_a_delete_and_its_tombstone_are_both_there(proved_twice, form):
    process, topic, records = proved_twice(form)
    delete, tombstone = next(pair for pair in zip(records, records[1:]) if pair[1].value is None)
    assert delete.key == tombstone.key == '{"id":2}' and of_t(process, bare=form == "row")[0] == EQUAL
    new = '{"id":77}'
    value = delete.value.replace('"id":2', '"id":77')
    head = records[-1].position[:-2]

    def place(number, part):
        return [("mr-pos", f"{head[:-1]}{number:X}-{part}"), ("mr-xid", records[-1].headers["mr-xid"])]

    produce(topic, new, value, place(9, 0))
    code, said = alone(process)
    assert code == DIFFERENT and kinds(said) == [("torn", new)] and said["torn"] == 1, said
    assert (said["differences"][0]["partition"], said["differences"][0]["offset"]) == (0, len(records))
    produce(topic, new, None, place(9, 1))
    assert of_t(process, bare=form == "row")[0] == EQUAL
    produce(topic, new, None, place(10, 1))
    code, said = alone(process)
    assert code == DIFFERENT and kinds(said) == [("torn", new)] and "compaction" not in said["reason"], said


@pytest.fixture
def proved_twice(database, millrace):
    def begin(form):
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        process = millrace(format=f'"{form}"', **({"row__delete_tombstone_handling_mode": '"rewrite-with-tombstone"'} if form == "row" else {}))
        process.start().streaming()
        database.run("INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 5) n; DELETE FROM t WHERE id = 2")
        assert of_t(process, bare=form == "row")[0] == EQUAL
        return process, database.topic("t"), [record for record, _ in copied(database.topic("t"), lambda record: True)]
    return begin


def test_deletes_from_before_tombstones_are_in_part(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(tombstones="false").start().streaming()
    database.run("INSERT INTO t VALUES (1), (2), (3); DELETE FROM t WHERE id = 1")
    assert of_t(process)[0] == EQUAL
    assert process.stop() == 0
    process.configure().start().streaming()
    database.run("DELETE FROM t WHERE id = 2")
    code, said = alone(process)
    assert code == IN_PART and "1 deletes are from before the first tombstone, and have none: one at partition 0, offset 3" in said["reason"], said


def test_a_stream_that_does_not_run_gives_no_verdict(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    assert process.stop() == 0
    code, said = of_t(process)
    assert code == NO_VERDICT and "no millrace reads the slot" in said["reason"]


def test_a_truncated_table_is_empty_on_both_sides(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(skipped_operations="[]").start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 100); TRUNCATE t; INSERT INTO t VALUES (7)")
    code, said = of_t(process)
    assert (code, said["rows"]) == (EQUAL, 1)


def test_large_values_that_an_update_left_alone(database, millrace):
    """An update without the value is proved by the event before; a changed key leaves it unknown, which is said."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT n, 0, repeat(n::text, 5000) FROM generate_series(1, 3) n; UPDATE t SET n = 1")
    assert of_t(process)[0] == EQUAL
    database.run("UPDATE t SET id = 30 WHERE id = 3")
    code, said = of_t(process)
    assert (code, said["unknown"], [one["kind"] for one in said["differences"]]) == (IN_PART, 1, ["unknown"])
    database.run("UPDATE t SET v = 'short' WHERE id = 30")
    assert of_t(process)[0] == EQUAL


def test_a_value_of_an_event_that_was_too_large_is_unknown(proved, database):
    process, topic, _, event = proved
    database.run("UPDATE t SET v = repeat('x', 100) WHERE id = 4")
    assert of_t(process)[0] == EQUAL
    last = copied(topic, lambda record: True)[-1][0]
    produce(topic, '{"id":4}', json.dumps({**event, "op": "u", "after": {"id": 4, "v": "__debezium_unavailable_value"}}),
            after(last) + [("mr-oversize", "9999")])
    code, said = of_t(process)
    assert (code, said["unknown"], [one["kind"] for one in said["differences"]]) == (IN_PART, 1, ["unknown"])


def test_columns_that_come_go_and_are_renamed(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, a text, b text, g int GENERATED ALWAYS AS (id * 2) STORED)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 'a', 'b'); ALTER TABLE t ADD c text DEFAULT 'given'; ALTER TABLE t ADD d int; ALTER TABLE t DROP b")
    assert of_t(process)[0] == EQUAL
    database.run("ALTER TABLE t RENAME a TO e")
    code, said = of_t(process)
    assert (code, said["differences"]) == (IN_PART, [])
    database.run("UPDATE t SET d = 1")
    assert of_t(process)[0] == EQUAL


def test_columns_that_the_configuration_changes(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, m text, c text, h text, x text, d date)")
    process = millrace(columns__mask='["public.t:m=8"]', columns__truncate='["public.t:c=3", "public.t:d=4"]', columns__hash='["public.t:h"]',
                       columns__hash_salt='"env:SALT"', columns__exclude='["public.t:x"]')
    process.environment["SALT"] = "pepper"
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1, 'secret', 'äöüß', 'hashed', 'x', '2020-01-02'), (2, NULL, NULL, NULL, NULL, NULL)")
    def as_sent(row):
        row = {name: value for name, value in row.items() if name != "x"}
        if row["m"] is not None:
            row.update(m="*" * 8, c=row["c"][:3], h=hashlib.sha256(("pepper" + row["h"]).encode()).hexdigest())
        return row

    assert of_t(process, change=as_sent)[0] == EQUAL


def test_partitions_and_filters(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);"
                 "CREATE TABLE f (id int PRIMARY KEY, v int);"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE t, f WHERE (id > 5) WITH (publish_via_partition_root = true)")
    process = millrace(("t", "f"), publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO t SELECT n, n FROM generate_series(1, 19) n; UPDATE t SET id = 15 WHERE id = 1 AND false;"
                 "INSERT INTO f SELECT n, n FROM generate_series(1, 19) n")
    code, said, errors = verify(process, views={"public.f": {"where": "id > 5"}})
    assert code == EQUAL, (said, errors)
    assert (said["public.t"]["rows"], said["public.f"]["rows"]) == (19, 14)


def test_partitions_of_a_configured_table_have_a_line_each(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT n, n FROM generate_series(1, 19) n")
    code, said, errors = verify(process)
    assert code == EQUAL, (said, errors)
    assert {name: line["rows"] for name, line in said.items()} == {"public.t_1": 9, "public.t_2": 10}
    last = copied(database.topic("t_2"), lambda record: True)[-1][0]
    produce(database.topic("t_2"), '{"id":99}', '{"op":"c","before":null,"after":{"id":99,"v":1}}', after(last))
    code, said, errors = verify(process)
    assert code == DIFFERENT and said["public.t_2"]["phantom"] == 1, (said, errors)


def test_what_somebody_withholds_by_hand_is_said(database, millrace):
    """The file does not say so: the rows are equal on what is published, and the line names the rest."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, amount int)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t (id, v) WHERE (id > 1)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    code, said = alone(process)
    assert code == EQUAL and said["verdict"] == "equal", said
    assert "publication.columns does not name: amount" in said["reason"] and "(id > 1)" in said["reason"], said


def test_a_table_that_left_the_publication_has_no_verdict(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(("t", "u")).start().streaming()
    database.run(f"INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); ALTER PUBLICATION {database.publication} DROP TABLE t")
    code, said, errors = verify(process)
    assert code == NO_VERDICT, (said, errors)
    assert "not in the publication" in said["public.t"]["reason"] and said["public.u"]["verdict"] == "equal"


@pytest.mark.parametrize("columns, options, what", [
    ("v text PRIMARY KEY, w text", {"key_columns": '["public.t:w"]'}, "several rows may have a key"),
    ("v text PRIMARY KEY", {"types": '"plain"'}, 'types = "plain"'),
    ("v text PRIMARY KEY", {"skipped_operations": '["delete"]'}, "deletes are not sent"),
    ("v text PRIMARY KEY", {"sink__kafka__headers": "false"}, "no headers"),
    ("v text", {"format": '"row"'}, "it has no key"),
    ("v text", {}, "no REPLICA IDENTITY FULL"),
])
def test_what_can_not_be_proved_is_said(database, millrace, columns, options, what):
    database.run(f"CREATE TABLE t ({columns}); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace(**options).start().streaming()
    if not options:
        database.run("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    code, said = of_t(process)
    assert (code, said["verdict"]) == (IN_PART, "cannot be proved") and what in said["reason"]
    code, said, errors = verify(process, "public.absent")
    assert code == 78 and not said and "is not streamed" in errors


def test_a_sample_of_the_keys_at_a_rate(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT n, n FROM generate_series(1, 2000) n")
    done = subprocess.run([BINARY, "verify", "t", "--sample", "25%", "--rate", "4000", "--json", "--config", process.path],
                          env=process.environment, capture_output=True, text=True, timeout=240, check=False)
    said = json.loads(done.stdout)
    assert (done.returncode, said["verdict"]) == (EQUAL, "equal") and "a sample of 25 %" in said["reason"]
    assert 350 < said["rows"] < 650 and said["records"] == 2000
    for wrong in ("0", "101", "x", "5%%", "-1"):
        done = subprocess.run([BINARY, "verify", "--sample", wrong, "--config", process.path], env=process.environment,
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 64 and "--sample wants percent" in done.stderr


def test_a_large_table_is_read_in_chunks_while_it_is_written(database, millrace):
    """Each chunk has a snapshot of its own, held for seconds; what differs is named all the same."""
    database.run("CREATE TABLE t (b text COLLATE \"C\", a int, v int, PRIMARY KEY (a, b))")
    process = millrace(sink__kafka__partitions="3").start().streaming()
    database.run("INSERT INTO t SELECT chr(97 + n % 7) || '''\\x', n, 0 FROM generate_series(1, 4000) n")
    begun = set()

    def write(connection, _):
        for n in itertools.count(1):
            connection.execute("UPDATE t SET v = v + 1 WHERE a %% 97 = %s", [n % 97])
            connection.execute("DELETE FROM t WHERE a %% 997 = %s", [n % 997])
            connection.execute("UPDATE t SET a = -a WHERE a %% 991 = %s", [n % 991])
            connection.execute("INSERT INTO t VALUES ('new' || %s, %s, 0), ('new', %s, 0)", [n, n * 7 % 4000, 10000 + n])
            yield

    with Endless(database, write):
        with subprocess.Popen([BINARY, "verify", "--rate", "500", "--json", "--config", process.path], env=process.environment,
                              stdout=subprocess.PIPE, text=True) as run:
            while run.poll() is None:
                for start, age in database.run("SELECT xact_start, extract(epoch FROM now() - xact_start) FROM pg_stat_activity"
                                               " WHERE datname = current_database() AND query LIKE 'COPY (SELECT xmin%'"):
                    begun.add(start)
                    assert age < 10
            said = json.loads(run.stdout.read())
    assert not said["differences"] and said["rows"] > 3000, said
    assert run.returncode == EQUAL or run.returncode == IN_PART and "came while the table was read" in said["reason"], said
    assert len(begun) > 1
    last = copied(database.topic("t"), lambda record: True)[-1][0]
    row = {"b": "a'\\x", "a": 77777, "v": 1}
    key = json.dumps({"b": row["b"], "a": row["a"]}, separators=(",", ":"))
    produce(database.topic("t"), key, json.dumps({"op": "c", "before": None, "after": row}), after(last), last.partition)
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == [("phantom", key)]


@pytest.mark.parametrize("tables, want", [(("t",), NO_VERDICT), (("a", "t"), DIFFERENT)])
def test_an_interrupt_ends_it_and_progress_is_shown(database, millrace, tables, want):
    """In a terminal it says how far it is and how long it takes still. What differs before that does so."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    process = millrace(tables).start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 20000); ANALYZE t")
    ours, theirs = pty.openpty()
    with subprocess.Popen([BINARY, "verify", "--rate", "1000", "--config", process.path], env=process.environment, stdout=subprocess.PIPE,
                          stderr=theirs, text=True) as run:
        shown = ""
        while " s left" not in shown:
            shown += os.read(ours, 4096).decode()
        assert "public.t: rows of the table, " in shown and " of 20000, " in shown
        run.send_signal(signal.SIGINT)
        assert run.wait(20) == want and ("public.a: different" in run.stdout.read()) == (want == DIFFERENT)
    os.close(ours)
    os.close(theirs)
    eventually(lambda: database.run("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                                    " AND backend_xmin IS NOT NULL AND query LIKE 'COPY%'")[0][0] == 0, what="the end of its transaction")


def test_a_truncate_between_snapshot_and_reading_is_void_and_proved_again(database, millrace):
    """TRUNCATE is not MVCC-safe: a snapshot from before sees an empty table, which the topic at that moment is not."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(skipped_operations="[]").start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 100)")
    with connect(database.name) as connection:
        connection.execute("BEGIN; TRUNCATE t")  # the lock that the proof waits for, after it has its snapshot
        run = subprocess.Popen([BINARY, "verify", "--json", "--config", process.path], env=process.environment, stdout=subprocess.PIPE, text=True)
        eventually(lambda: database.run("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
                                        " wait_event_type = 'Lock' AND query LIKE 'COPY%'")[0][0] == 1, what="its wait for the lock")
        connection.execute("INSERT INTO t VALUES (7); COMMIT")
    said = json.loads(run.communicate(timeout=120)[0])
    assert (run.returncode, said["rows"], said["differences"]) == (EQUAL, 1, [])


def test_a_commit_that_no_session_sees_yet(database, millrace):
    """A commit is in the WAL, and in the topic, before snapshots see it: as long as a synchronous standby does not answer."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT n, 0 FROM generate_series(1, 10) n")
    try:
        database.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", database="postgres")
        database.run("SELECT pg_reload_conf()", database="postgres")
        with connect(database.name) as connection:
            connection.execute("SET synchronous_commit = on")
            writer = threading.Thread(target=lambda: connection.execute("UPDATE t SET v = 1; "))
            writer.start()
            eventually(lambda: database.run("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", database="postgres")[0][0] == 1,
                       what="a commit that waits")
            topic = Topic(database.topic("t"))
            assert len(topic.take(20)) == 20
            topic.close()
            done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment,
                                  capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == EQUAL and json.loads(done.stdout)["rows"] == 10, done
            database.run("ALTER SYSTEM RESET synchronous_standby_names", database="postgres")
            database.run("SELECT pg_reload_conf()", database="postgres")
            writer.join()
    finally:
        database.run("ALTER SYSTEM RESET synchronous_standby_names", database="postgres")
        database.run("SELECT pg_reload_conf()", database="postgres")
    assert of_t(process)[0] == EQUAL


def test_a_lost_slot_leaves_what_was_written_and_deleted_in_the_gap(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    process = millrace(snapshot__mode='"no_data"').start().streaming()
    database.run("INSERT INTO t SELECT n, 0 FROM generate_series(1, 6) n")
    assert of_t(process)[0] == EQUAL
    assert process.stop() == 0
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.run("INSERT INTO t VALUES (7, 0); UPDATE t SET v = 1 WHERE id = 1; DELETE FROM t WHERE id = 2")
    process.configure(snapshot__mode='"no_data"', sink__kafka__state_name=f'"{database.name}_again"').start().streaming()
    database.run("UPDATE t SET v = 2 WHERE id = 3")
    said = expect(of_t(process), DIFFERENT)
    assert kinds(said) == [("missing", '{"id":7}'), ("phantom", '{"id":2}'), ("stale", '{"id":1}')]


def test_a_topic_whose_head_is_gone_excuses_what_is_missing(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT n, 'v' FROM generate_series(1, 6) n; UPDATE t SET v = 'w' WHERE id > 3")
    assert of_t(process)[0] == EQUAL
    topic = TopicPartition(database.topic("t"), 0, 5)
    for done in database.admin.delete_records([topic]).values():
        done.result(30)
    code, said = of_t(process)
    assert code == IN_PART and "the first records of 1 of 1 partitions are gone" in said["reason"] and said["missing"] == 3


def test_a_column_that_the_publication_withheld_is_named(database, millrace):
    """Somebody alters its list of columns, and alters it back: rows that were written meanwhile lack a value that they always had. Each one is
    named, whatever they have in common, and one repair sends all; a column that came later, whose default the catalog has forgotten, is none."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, status text)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (0, 'v', 'old'), (100, 'v', 'old')")
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE t (id, v)")
    database.run("INSERT INTO t SELECT n, 'v', 'same' FROM generate_series(1, 9) n")
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE t")
    database.run("ALTER TABLE t ADD late int DEFAULT 7")
    database.run("VACUUM FULL t")
    database.run("INSERT INTO t VALUES (10, 'v', 'new', 8)")
    code, said = alone(process)
    assert code == DIFFERENT and kinds(said) == sorted(("altered", f'{{"id":{n}}}') for n in range(1, 10)), said
    done = subprocess.run([BINARY, "verify", "public.t", "--repair", "--yes", "--config", process.path, "--address", process.address()],
                          env=process.environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == EQUAL, done.stdout + done.stderr
    assert of_t(process)[0] == EQUAL


# What is there before the copy, what withholds the column, and what is done to the table after it.
WITHHELD = {
    "as old as the table": ("status text", "id, v", ""),
    "known": ("", "id, v", ""),  # rows have the constant that the catalog says it was added with
    "with a default, and written again": ("status text DEFAULT 'same'", "id, v", "ALTER TABLE t ALTER status SET NOT NULL"),
    "before a later one": ("status text, later text", "id, v, later", "ALTER TABLE t ALTER status SET NOT NULL, ALTER later SET NOT NULL"),
    "written again": ("status text", "id, v", "ALTER TABLE t ALTER status SET NOT NULL"),
}


@pytest.mark.parametrize("kind", ["keyed", "partitioned", "keyless"])
@pytest.mark.parametrize("case", WITHHELD)
def test_a_column_that_copies_lack_is_no_late_one(database, millrace, case, kind):
    """A list of the publication withholds it from the first copy, and is taken back. All rows have one value in it, as after a default."""
    column, sent, later = WITHHELD[case]
    key, form = {"keyed": (" PRIMARY KEY", ""), "partitioned": (" PRIMARY KEY", " PARTITION BY RANGE (id)"), "keyless": ("", "")}[kind]
    database.run(f"CREATE TABLE t (id int{key}, v text{', ' if column else ''}{column}){form}; ALTER TABLE t REPLICA IDENTITY FULL")
    if kind == "partitioned":
        database.run("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (4); CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (4) TO (99)")
    database.run("INSERT INTO t SELECT n, 'v' FROM generate_series(1, 5) n")
    database.run("ALTER TABLE t ADD status text DEFAULT 'same'" if not column else "UPDATE t SET status = 'same'")
    if "later" in column:
        database.run("UPDATE t SET later = 'l'")
    root = "true" if kind == "partitioned" else "false"
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE ONLY t ({sent}) WITH (publish_via_partition_root = {root}, publish = 'insert')")
    process = millrace(snapshot__mode='"initial"', publication__via_partition_root=root).start().streaming()
    copied(database.topic("t"), lambda record: True)
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE ONLY t;"
                 f"ALTER PUBLICATION {database.publication} SET (publish = 'insert, update, delete, truncate')")
    database.run(later)
    database.run(f"INSERT INTO t VALUES (6, 'v', 'other'{', 1' if 'later' in column else ''})")
    code, said = alone(process)
    is_known = case != "written again"  # else nothing tells it from a default that the catalog forgot
    assert code == (DIFFERENT if is_known else IN_PART), said
    if kind == "keyless":
        assert (said["phantom"], said["missing"]) == ((5, 5) if is_known else (0, 0)), said
        assert is_known or "5 records lack a column" in said["reason"], said
        return
    assert kinds(said) == [("altered" if is_known else "unknown", f'{{"id":{n}}}') for n in range(1, 6)], said
    assert is_known or "5 rows have a value in a column that their last event lacks" in said["reason"], said
    done = subprocess.run([BINARY, "verify", "public.t", "--repair", "--yes", "--config", process.path, "--address", process.address()],
                          env=process.environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == EQUAL, done.stdout + done.stderr
    last = {record.json["after"]["id"]: record.json["after"] for record, _ in copied(database.topic("t"), lambda record: True)}
    assert all(last[n]["status"] == "same" for n in range(1, 6)), last


@pytest.mark.parametrize("kind", ["keyed", "keyless"])
@pytest.mark.parametrize("later", ["", "ALTER TABLE t ALTER late SET NOT NULL"])
def test_a_forgotten_default_of_copied_rows_is_proved(database, millrace, kind, later):
    database.run(f"CREATE TABLE t (id int {'PRIMARY KEY' if kind == 'keyed' else ''}, v text); ALTER TABLE t REPLICA IDENTITY FULL;"
                 "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 5) n")
    process = millrace(snapshot__mode='"initial"').start().streaming()
    copied(database.topic("t"), lambda record: True)
    database.run("ALTER TABLE t ADD late int DEFAULT 7")
    database.run("VACUUM FULL t")
    database.run(later)
    database.run("INSERT INTO t VALUES (6, 'v', 8); DELETE FROM t WHERE id = 2")
    expect(alone(process), EQUAL)


def test_a_topic_without_a_key_whose_head_is_gone(database, millrace):
    """What a change takes away was said by a record that is gone: in part, unless something is too much."""
    database.run("CREATE TABLE t (v text); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT 'v' || n FROM generate_series(1, 9) n; UPDATE t SET v = 'w' WHERE v = 'v1'; DELETE FROM t WHERE v = 'v2'")
    assert of_t(process)[0] == EQUAL
    for done in database.admin.delete_records([TopicPartition(database.topic("t"), 0, 5)]).values():
        done.result(30)
    code, said = alone(process)
    assert code == IN_PART and "the first records of 1 of 1 partitions are gone" in said["reason"] and said["missing"] > 0, said
