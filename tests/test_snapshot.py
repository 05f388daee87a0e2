"""Existing rows: copied before the stream begins, once, in Debezium's form, and after a kill so that folding the topics
gives the tables."""

import contextlib
import itertools
import json
import os
import subprocess

import psycopg
import pytest

from endless import Endless
from kit import BINARY, Topic, check, connect, dsn, eventually, expect, swapped
from ledger import peak_rss_mb, size
from test_reload import reload, with_tables

MODES = {"at-least-once": {}, "exactly-once": {"sink__kafka__delivery": '"exactly-once"'}}


def snapshot(millrace, tables, **options):
    return millrace(tables=tables, **{"snapshot__mode": '"initial"', **options})


def run_to_end(process):
    """Exit code, and what it said without the escapes of JSON."""
    code, text = process.run_to_end()
    return code, text.replace('\\"', '"')


def folded(records):
    """Rows by key, as a consumer has them who drops what is not above; and the events it kept."""
    last, rows, kept = {}, {}, []
    for record in records:
        if record.position <= last.get(record.partition, ""):
            continue
        last[record.partition] = record.position
        kept.append(record)
        if record.value is None:
            rows.pop(record.key, None)
        elif record.json["op"] == "t":
            rows.clear()
        elif record.json["op"] == "d":
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.json["after"]
    return rows, kept


def table_rows(database, table):
    found = database.run(f"SELECT row_to_json(x)::text FROM {table} x")
    return sorted(json.dumps(json.loads(row[0]), sort_keys=True) for row in found)


def as_rows(rows):
    return sorted(json.dumps(row, sort_keys=True) for row in rows.values())


def slots(database):
    return sorted(row[0] for row in database.run(
        f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '{database.slot}%'"))


def read_until(source, last_key, limit_s=60):
    """Records of a topic, until one of that key is among them."""
    records = []

    def enough():
        new = source.read()
        records.extend(new)
        return any(record.key == last_key for record in new)
    eventually(enough, limit_s, "the records")
    return records


def last_of_stream(database, table):
    """The key of a row that is written now."""
    database.run(f"INSERT INTO {table} (id) VALUES (2000000000)")
    return '{"id":2000000000}'


def test_rows_come_first_and_with_debeziums_marks(database, millrace, topic):
    database.run("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text);"
                 "CREATE TABLE nothing (id int PRIMARY KEY, v text);"
                 "INSERT INTO a SELECT i, 'v' || i FROM generate_series(1, 2000) i; INSERT INTO b VALUES (1, 'x'); ANALYZE")
    process = snapshot(millrace, ("a", "b", "nothing")).start().streaming()
    database.run("INSERT INTO a VALUES (2001, 'new'); INSERT INTO nothing VALUES (1, 'new')")
    a, b = topic(database.topic("a")).take(2001), topic(database.topic("b")).take(1)
    only = topic(database.topic("nothing")).take(1)
    body = process.get("/metrics").body
    status = process.get("/status").json["snapshot"]
    assert process.stop() == 0
    assert [r.json["op"] for r in a] == 2000 * ["r"] + ["c"] and only[0].json["op"] == "c"
    marks = [r.json["source"]["snapshot"] for r in a]
    assert marks == ["first"] + 1998 * ["true"] + ["last_in_data_collection", "false"]
    assert b[0].json["source"]["snapshot"] == "last"
    assert all(r.json["before"] is None for r in a)
    positions = [r.position for r in a]
    assert positions == sorted(positions) and len(set(positions)) == len(positions)
    assert max(a[1999].position, b[0].position) < min(a[2000].position, only[0].position)
    source = a[5].json["source"]
    assert source["schema"] == "public" and source["table"] == "a" and source["txId"] > 0
    assert json.loads(source["sequence"]) == [None, str(source["lsn"])]
    assert slots(database) == [database.slot]
    assert (status["state"], status["tables"], status["tables_done"], status["rows"]) == ("done", 3, 3, 2001)
    assert "millrace_snapshot_rows 2001" in body and 'millrace_snapshot_state{state="done"} 1' in body


TYPES = """CREATE TYPE mood AS ENUM ('sad', 'a "b"'); CREATE TYPE pair AS (x int, y text); CREATE DOMAIN small AS int;
CREATE TABLE t (id int PRIMARY KEY, "Ünï ""q"" x" text, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric(30, 6),
 c char(5), vc varchar(9), by bytea, d date, tm time, tz timetz, ts timestamp, tstz timestamptz, iv interval, u uuid,
 j json, jb jsonb, x xml, arr int[], tarr text[], inet inet, cidr cidr, mac macaddr, bits bit varying, p point,
 r int4range, mr int4multirange, e mood, comp pair, s small, ltree text, tsv tsvector, m money, o oid, big text,
 gen int GENERATED ALWAYS AS (id * 2) STORED, dropped int);
ALTER TABLE t DROP COLUMN dropped; ALTER TABLE t ADD added int DEFAULT 7;"""
ROWS = r"""INSERT INTO t VALUES (1, E'tab\t newline\n back\\slash \\N "q" ä€😀 \b\f\r\v', true, -3, 9007199254740993, 'NaN', '-Infinity',
 -12345.678900, 'ab', 'x', '\xdeadbeef5c', '0044-03-15 BC', '24:00', '12:00:00.5+02', 'infinity', '2026-01-01 12:00:00.123456+05',
 '1 year -2 days 03:04:05.6', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": "\t \\ ä"}', '{"b": [1, "\\"]}', '<a>&lt;</a>',
 '{1,NULL,3}', ARRAY[E'a,b', E'"', E'\\', E'\n', 'NULL', NULL], '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '101',
 '(1.5,-2)', '[1,5)', '{[1,2),[5,9)}', 'a "b"', ROW(1, E'x\ty'), 5, '\N', 'fat cat', 12.5, 4294967295, repeat(md5('x'), 500));
INSERT INTO t (id) VALUES (2); INSERT INTO t (id, vc, big) VALUES (3, '', E'\\N');"""


@pytest.mark.parametrize("form", ["debezium", "flat"])
def test_values_are_those_of_the_stream(database, millrace, topic, form):
    """The same rows, copied and streamed: the same keys and values, byte for byte."""
    database.run(TYPES)
    database.run(ROWS)
    process = snapshot(millrace, ("t",), format=json.dumps(form)).start().streaming()
    database.run("DELETE FROM t")
    database.run(ROWS)
    records = topic(database.topic("t")).take(9 if form == "flat" else 12)
    assert process.stop() == 0

    def body(record):
        if form == "flat":
            return record.value[record.value.index('"data":'):record.value.index(',"meta":')]
        return record.value[record.value.index('"after":'):record.value.index(',"source":')]
    copied = [r for r in records if r.value and r.json["op"] in ("r", "READ")]
    streamed = [r for r in records if r.value and r.json["op"] in ("c", "INSERT")]
    assert len(copied) == len(streamed) == 3
    assert [(r.key, body(r)) for r in copied] == [(r.key, body(r)) for r in streamed]


def test_only_what_the_publication_sends(database, millrace, topic):
    """Column lists, row filters, keys of FULL tables, partitions by leaf and by root."""
    database.run("CREATE TABLE f (id int PRIMARY KEY, secret text, v int); INSERT INTO f SELECT i, 's', i FROM"
                 " generate_series(1, 10) i;"
                 "CREATE TABLE k (b int, a text, v int, PRIMARY KEY (a, b)); ALTER TABLE k REPLICA IDENTITY FULL;"
                 "INSERT INTO k VALUES (1, 'x', 5);"
                 "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
                 "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
                 "CREATE TABLE p2 (v text, id int NOT NULL); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);"
                 "INSERT INTO p VALUES (1, 'one'), (11, 'eleven');"
                 "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent);"
                 "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2);"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE f (id, v) WHERE (id > 7), k, p, ONLY parent"
                 " WITH (publish_via_partition_root = true)")
    process = snapshot(millrace, ("f", "k", "p", "parent"), snapshot__max__threads=3).start().streaming()
    f, k, p = topic(database.topic("f")).take(3), topic(database.topic("k")).take(1), topic(database.topic("p")).take(2)
    parent = topic(database.topic("parent")).take(1)
    database.run("UPDATE k SET v = 6; INSERT INTO parent VALUES (3)")
    update = topic(database.topic("k")).take(2)[1]
    assert [r.json["after"]["id"] for r in topic(database.topic("parent")).take(2)] == [1, 3]
    assert process.stop() == 0
    assert [r.json["after"] for r in f] == [{"id": i, "v": i} for i in (8, 9, 10)]
    assert k[0].key == update.key == '{"b":1,"a":"x"}'
    assert sorted((r.json["after"]["id"], r.json["after"]["v"]) for r in p) == [(1, "one"), (11, "eleven")]
    assert all(list(r.json["after"]) == ["id", "v"] and r.json["source"]["table"] == "p" for r in p)
    assert parent[0].json["after"] == {"id": 1}
    positions = [r.position for r in p]
    assert positions == sorted(positions)


@pytest.mark.parametrize("mode", ["initial", "always"])
def test_tables_that_have_no_key(database, millrace, topic, mode):
    """A pattern takes them in, of each identity, with rows and without: they are copied with a null key, beside those that have one."""
    database.run("CREATE TABLE k (id int PRIMARY KEY); INSERT INTO k VALUES (1); CREATE TABLE plain (id int, v text); INSERT INTO plain VALUES (1, 'a');"
                 "CREATE TABLE empty (id int); CREATE TABLE uniq (id int); CREATE UNIQUE INDEX ON uniq (id); INSERT INTO uniq VALUES (NULL), (2);"
                 "CREATE TABLE whole (id int); ALTER TABLE whole REPLICA IDENTITY FULL; INSERT INTO whole VALUES (3);"
                 "CREATE TABLE none (id int PRIMARY KEY); ALTER TABLE none REPLICA IDENTITY NOTHING; INSERT INTO none VALUES (4);"
                 "CREATE TABLE parts (id int) PARTITION BY LIST (id); CREATE TABLE part PARTITION OF parts FOR VALUES IN (5); INSERT INTO parts VALUES (5)")
    process = millrace(tables=("public.*",), snapshot__mode=f'"{mode}"').start().streaming()
    database.run("INSERT INTO plain VALUES (2, 'b'); INSERT INTO empty VALUES (6)")
    for table, rows in (("k", [1]), ("plain", [1, 2]), ("empty", [6]), ("uniq", [None, 2]), ("whole", [3]), ("none", [4]), ("part", [5])):
        records = topic(database.topic(table)).take(len(rows))
        assert [record.json["after"]["id"] for record in records] == rows, table
        assert all((record.key is None) == (table not in ("k", "none")) for record in records), table


def test_partitions_by_leaf(database, millrace, topic):
    database.run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
                 "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); INSERT INTO p VALUES (1), (11)")
    process = snapshot(millrace, ("p",)).start().streaming()
    assert topic(database.topic("p1")).take(1)[0].json["after"] == {"id": 1}
    assert topic(database.topic("p2")).take(1)[0].json["after"] == {"id": 11}


def test_one_table_by_several_threads(database, millrace, topic):
    """Each row once, positions that grow within a partition, and the marks as with one thread; pages without rows at the
    end, and tables in the order of the file."""
    database.run("CREATE TABLE small (id int PRIMARY KEY, v text); INSERT INTO small VALUES (1, 'x');"
                 "CREATE TABLE t (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off);"
                 "INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 12000) i;"
                 "DELETE FROM t WHERE id > 9000; ANALYZE small; ANALYZE t;"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE small, t WHERE (id <> 8999)")
    process = snapshot(millrace, ("t", "small"), snapshot__max__threads=3).start().streaming()
    database.run("INSERT INTO t VALUES (9001, 'new')")
    records = topic(database.topic("t")).take(9000)
    assert process.stop() == 0
    assert {r["table"]: r["pieces"] > 3 for r in process.log("snapshot_table")} == {"public.t": True, "public.small": False}
    assert sorted(r.json["after"]["id"] for r in records) == [i for i in range(1, 9002) if i != 8999]
    positions = [r.position for r in records]
    assert positions == sorted(positions) and len(set(positions)) == 9000
    marks = [r.json["source"]["snapshot"] for r in records]
    assert marks[:-2] == ["first"] + 8997 * ["true"] and marks[-1] == "false"
    small = topic(database.topic("small")).take(1)[0].json["source"]["snapshot"]
    assert {marks[-2], small} == {"last_in_data_collection", "last"}


def test_many_empty_tables(database, millrace):
    """MILLRACE_TEST_EMPTY_TABLES: how many; MILLRACE_TEST_MEMORY: a file that gets a line of figures."""
    count = size("MILLRACE_TEST_EMPTY_TABLES", 150)
    names = [f"t{i}" for i in range(count)]
    for first in range(0, count, 100):
        database.run("".join(f"CREATE TABLE {name} (id int PRIMARY KEY);" for name in names[first:first + 100]))
    process = snapshot(millrace, names, snapshot__max__threads=4).start().streaming()
    done = process.wait_for("snapshot_done")
    assert (done["tables"], done["rows"]) == (count, 0)
    if path := os.environ.get("MILLRACE_TEST_MEMORY"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"| a copy of {count:,} empty tables, {done['ms']} ms | 256MiB | {peak_rss_mb(process):.0f} MiB | |\n")


def writers_of(database, tables):
    """Inserts, updates, moves of keys and deletes, all the time."""
    def write(connection, _):
        for n in itertools.count():
            for table in tables:
                connection.execute(
                    f"INSERT INTO {table} (id, v) VALUES ({1000000 + n}, 'new');"
                    f"UPDATE {table} SET v = 'changed {n}' WHERE id % 997 = {n % 997};"
                    f"DELETE FROM {table} WHERE id % 1009 = {n % 1009};"
                    f"UPDATE {table} SET id = id + 5000000 WHERE id = {n % 20000 + 1}")
            yield 0.1  # no more than the judge can read in a few seconds
    return Endless(database, write)


class Stored:
    """The pipeline's newest state record: how far it says the copy is."""

    def __init__(self, database, topic):
        self.database, self.name = database, f"{database.prefix}/{database.slot}"
        self.source, self.newest = topic("__millrace_state"), None

    def section(self, name):
        for record in self.source.read(0.2):
            if record.key == self.name:
                self.newest = record.json
        return self.newest and self.newest.get(name)

    def copy(self):
        return self.section("copy")

    def is_mostly_done(self, tables):
        """Of each table less than half is left; one that is not listed at all is not begun."""
        if not (text := self.copy()):
            return False
        done, *parts = text.rsplit(" d", 1)[1].split("t")  # the numbers before it may begin with a d, too
        oids, oid = set(), 0
        for number in filter(None, done.split(",")):
            oids.add(oid := oid + int(number, 16))
        for part in parts:
            head, *ranges = part.split(";")
            number = int(head.split(",")[0], 16)
            pages = self.database.run(f"SELECT pg_relation_size({number}) / 8192")[0][0]
            left = sum((int(end, 16) or pages) - (int(after, 16) >> 16)
                       for after, end in (one.split("-") for one in ranges))
            if left < pages / 2:
                oids.add(number)
        return all(self.database.run(f"SELECT '{table}'::regclass::oid::bigint")[0][0] in oids for table in tables)


def slot_of_a_copy(database, tables):
    """As a process leaves it that died right behind making it. (A slot is not made as long as somebody has a table locked.)"""
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE {', '.join(tables)}")
    database.run(f"SELECT pg_create_logical_replication_slot('{database.slot}_snapshot_1', 'pgoutput')")


def slot_of_a_second_copy(database):
    """As a process leaves it that died before it dropped the slot whose place the new one takes."""
    database.run(f"SELECT pg_create_logical_replication_slot('{database.slot}_snapshot_1', 'pgoutput')")


def check_fold(database, topic, table, mode):
    """Folding the topic gives the table; the records."""
    records = read_until(topic(database.topic(table)), last_of_stream(database, table))
    rows, kept = folded(records)
    assert as_rows(rows) == table_rows(database, table), table
    ops = "".join(r.json["op"] for r in kept if r.value is not None)
    assert "r" not in ops.lstrip("r")  # all copied rows come before the first streamed one
    if mode == "exactly-once":
        positions = [(r.partition, r.position) for r in records]
        assert len(positions) == len(set(positions))
    return records


@pytest.mark.parametrize("mode", MODES)
def test_killed_and_started_again_while_others_write(database, millrace, topic, mode):
    """What is stored as copied is not copied again, and nothing is missing."""
    tables = ("a", "b", "z")
    for table in tables:
        database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text, big text); INSERT INTO {table}"
                     f" SELECT i, 'old', repeat('x', i % 100) FROM generate_series(1, {30000 if table != 'z' else 50}) i")
    options = {"snapshot__max__threads": 2, **MODES[mode]}
    process = snapshot(millrace, tables, **options)
    slot_of_a_copy(database, tables)
    writers = writers_of(database, tables)
    # Killed when most of some tables is with Kafka and one can't be read.
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start()
        assert process.wait_for("snapshot_begun")["attempt"] == 2
        stored = Stored(database, topic)
        eventually(lambda: stored.is_mostly_done("ab"), what="the state of two tables")
        process.kill()
        assert slots(database) == [f"{database.slot}_snapshot_2"]
    # Asked to stop meanwhile.
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start()
        begun = process.wait_for("snapshot_begun")
        assert begun["attempt"] == 3 and begun["bytes_left"] < begun["bytes"] / 2 and begun["rows_copied"] > 0
        assert process.stop() == 0
        assert process.log("snapshot_unfinished") and not process.log("source_connected")
    process.start().streaming()
    assert slots(database) == [database.slot]
    writers.end()
    for table in tables:
        check_fold(database, topic, table, mode)
    assert process.stop() == 0
    assert stored.copy() is None
    process.start().streaming()  # and that was the last copy
    assert not process.log("snapshot_begun")


@pytest.mark.parametrize("change", ["TRUNCATE z", "DELETE FROM z WHERE id > 2", "ALTER TABLE z DROP v", "ALTER TABLE z ALTER v TYPE int USING 7", "VACUUM FULL", "DROP TABLE z"])
def test_a_table_that_changes_under_the_copy(database, millrace, topic, change):
    """Between the plan and its first row."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 2000);"
                 "CREATE TABLE z (id int PRIMARY KEY, v text); INSERT INTO z SELECT i, 'x' FROM generate_series(1, 500) i")
    process = snapshot(millrace, ("t", "z"), skipped_operations="[]")
    slot_of_a_copy(database, ("t", "z"))
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start()
        eventually(lambda: process.log("snapshot_table"), what="the first table's end")
        # Rows have another place behind this; VACUUM itself can't be run with the lock.
        holder.execute("CREATE INDEX zi ON z (v); CLUSTER z USING zi" if change == "VACUUM FULL" else change)
    if change == "DROP TABLE z":
        assert process.process.wait(60) == 78
        assert any('"public"."z"' in record["message"] for record in process.log("stopped"))
        process.tables = ("t",)
        process.configure(snapshot__mode='"initial"', skipped_operations="[]").start()
    process.streaming()
    check_fold(database, topic, "t", "at-least-once")
    if change != "DROP TABLE z":
        check_fold(database, topic, "z", "at-least-once")
    assert slots(database) == [database.slot]


def test_a_hidden_column_takes_a_name_under_the_copy(database, millrace):
    """Rows are read by names, which the server looks up as of now: what the snapshot calls "pub" is another column by then."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 2000);"
                 "CREATE TABLE z (id int PRIMARY KEY, secret text, pub text); INSERT INTO z VALUES (1, 'SECRET', 'x')")
    process = millrace(tables=("t", "z"), snapshot__mode='"always"', columns__mask='["z:secret=4"]',
                       snapshot__where='["t: pg_advisory_lock_shared(1)::text = \'\'"]').start().streaming()
    records = Topic(database.topic("z"))
    records.take(1)
    assert process.stop() == 0
    with connect(database.name) as holder:
        holder.execute("SELECT pg_advisory_lock(1)")
        process.start().wait_for("snapshot_begun")
        database.run(swapped("z", "secret", "pub"))
    assert process.ended(60) == 65
    assert not records.read(1)


def test_a_reload_meanwhile_alters_nothing(database, millrace):
    """It is refused, and the publication stays as the copy took it. (A table that is locked would hold up the publication, too.)"""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    options = {"snapshot__where": '["t: pg_advisory_lock_shared(1)::text = \'\'"]', "publication__alter": "true"}
    process = snapshot(millrace, ("t",), **options)
    published = "SELECT count(*) FROM pg_publication_rel"
    with connect(database.name) as holder:
        holder.execute("SELECT pg_advisory_lock(1)")
        process.start().wait_for("snapshot_begun")
        with_tables(process, "t", "u", snapshot__mode='"initial"', **options)
        code, text = reload(process)
        assert code != 0 and "rows are being copied" in text, text
        assert database.run(published) == [(1,)]
    process.streaming()
    code, text = reload(process)
    assert code == 0 and database.run(published) == [(2,)], text
    process.wait_for("source_connected", times=2)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_partition_with_less_of_an_identity_begins_anew(database, millrace, topic, identity):
    """Killed in the middle of its rows. Updates of a row that moved to where the copy has been lack large values, whatever the root's
    identity is."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); ALTER TABLE t REPLICA IDENTITY FULL;"
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (100000); ALTER TABLE t_1 ALTER v SET STORAGE EXTERNAL;"
                 f"ALTER TABLE t_1 REPLICA IDENTITY {identity}; INSERT INTO t SELECT i, repeat('x', CASE i WHEN 1 THEN 5000 ELSE 100 END)"
                 " FROM generate_series(1, 20000) i")
    process = snapshot(millrace, ("t",), publication__via_partition_root="true",
                       snapshot__where='["t: id < 15000 OR pg_advisory_lock_shared(1)::text = \'\'"]')
    with connect(database.name) as holder:
        holder.execute("SELECT pg_advisory_lock(1)")
        process.start().wait_for("snapshot_begun")
        stored = Stored(database, topic)
        eventually(lambda: stored.is_mostly_done(["t_1"]), what="the state of the partition")
        process.kill()
    process.start().streaming()
    begun = process.log("snapshot_begun")[0]
    assert (begun["bytes_left"] == begun["bytes"]) == (identity == "DEFAULT"), begun
    assert begun["bytes_left"] < begun["bytes"] / 2 or identity == "DEFAULT"
    database.run("INSERT INTO t VALUES (50000, '')")
    rows, _ = folded(read_until(topic(database.topic("t")), '{"id":50000}'))
    assert as_rows(rows) == table_rows(database, "t")


def top_of(process):
    """A page of `millrace top`: what it draws until its hint."""
    top = subprocess.Popen([BINARY, "top", "--address", process.address()], stdout=subprocess.PIPE, text=True,
                           stdin=subprocess.DEVNULL)
    try:
        lines = []
        while not lines or not lines[-1].startswith("q quit"):
            lines.append(top.stdout.readline())
            assert lines[-1], "top ended"
        return "".join(lines)
    finally:
        top.kill()
        top.stdout.close()
        top.wait(30)


def test_how_far_it_is(database, millrace):
    """Of each table, in /status, /metrics and top, while one of them can't be read."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE z (id int PRIMARY KEY); CREATE TABLE zz (id int PRIMARY KEY);"
                 "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i; INSERT INTO z VALUES (1); ANALYZE")
    process = snapshot(millrace, ("t", "z", "zz"))
    slot_of_a_copy(database, ("t", "z", "zz"))
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start()

        def status():
            return process.get("/status").json["snapshot"]
        eventually(lambda: [t["state"] for t in status()["progress"]] == ["read", "waits", "done"], what="the first table's end")
        now = status()
        z, zz, t = now["progress"]
        assert (z["table"], z["rows"], zz["table"], zz["percent"]) == ("public.z", 0, "public.zz", 100)
        assert (t["table"], t["rows"], t["rows_estimated"], t["percent"], t["seconds_left"]) == ("public.t", 20000, 20000, 100, 0)
        assert t["bytes"] == t["bytes_total"] and now["bytes_total"] - now["bytes"] == z["bytes_total"] == 8192
        assert now["percent"] in range(90, 100) and now["seconds_left"] > 0 and not now["slot_is_short"]
        body = process.get("/metrics").body
        assert 'millrace_snapshot_table_bytes{table="public.z"} 0' in body and 'table_bytes{table="public.t"}' not in body
        assert f"millrace_snapshot_bytes {now['bytes']}" in body and "millrace_snapshot_slot_is_short 0" in body
        shown = top_of(process)
        assert f"{now['percent']:3} %" in shown and "1 of 3 tables" in shown and "public.z" in shown and "░" in shown, shown
    process.streaming()
    assert status()["percent"] == 100 and "of 3 tables" not in top_of(process)


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_that_is_cut_within_a_copy(database, millrace, topic, mode):
    """Kafka's session stays, and with it the lanes: the next attempt in it goes on with what is left."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE z (id int PRIMARY KEY);"
                 "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i; INSERT INTO z VALUES (1)")
    process = snapshot(millrace, ("t", "z"), **MODES[mode])
    slot_of_a_copy(database, ("t", "z"))
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start().wait_for("snapshot_begun")
        stored = Stored(database, topic)
        eventually(lambda: stored.is_mostly_done("t"), what="the state of a table")
        # Between two tables nothing is read for a moment.
        cut = eventually(lambda: database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                              " WHERE datname = current_database() AND query LIKE 'COPY %'"), what="a table that is read")
        assert cut == [(True,)]
        eventually(lambda: len(process.log("snapshot_begun")) == 2, what="another attempt")
    process.streaming()
    first, second = process.log("snapshot_begun")
    assert second["attempt"] == first["attempt"] + 1 and second["bytes_left"] < second["bytes"] / 2
    check_fold(database, topic, "t", mode)
    assert [r.json["after"] for r in folded(topic(database.topic("z")).take(1))[1]] == [{"id": 1}]


OWNERS = ("walsender", "client backend")  # which makes the slot, and the keeper of the snapshot


@pytest.mark.parametrize("owner", OWNERS)
def test_a_snapshot_that_goes_before_it_is_taken(database, millrace, topic, owner):
    """It goes with its owner's session, here while the connection that is to take it is being made: the server lets each wait."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)")
    process = snapshot(millrace, ("t",))
    process.environment["TEST_URL"] += "?options=-c%20post_auth_delay%3D1"
    process.start()
    if owner != "walsender":
        process.wait_for("snapshot_begun")
    eventually(lambda: database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                                    f" backend_type = '{owner}' AND state = 'idle in transaction'"), what="the snapshot's owner")
    process.streaming()
    assert any("is gone with the connection that had it" in line for line in process.lines)
    assert len(process.log("snapshot_begun")) == (1 if owner == "walsender" else 2)
    assert [r.json["after"]["id"] for r in folded(topic(database.topic("t")).take(10))[1]] == list(range(1, 11))


@pytest.mark.parametrize("mode", MODES)
def test_killed_again_and_again_within_a_table(database, millrace, topic, mode):
    """At a growing share of the rows. With exactly-once no row of a table that nobody changes comes twice; with at-least-once
    no more than the batches that were on their way."""
    rows = 30000
    database.run("CREATE TABLE quiet (id int PRIMARY KEY, v text); CREATE TABLE busy (id int PRIMARY KEY, v text);"
                 f"INSERT INTO quiet SELECT i, repeat('x', 150) FROM generate_series(1, {rows}) i;"
                 f"INSERT INTO busy SELECT i, repeat('x', 150) FROM generate_series(1, {rows}) i; ANALYZE")
    process = snapshot(millrace, ("quiet", "busy"), snapshot__max__threads=2, pipeline__batch_size='"32KiB"', **MODES[mode])
    writers = writers_of(database, ("busy",))
    for share in (1, 25, 50, 75, 99):
        process.start()

        def is_so_far():
            status = process.get("/status").json["snapshot"]
            return status["state"] == "done" or status["rows"] >= 2 * rows * share // 100
        eventually(is_so_far, 60, f"{share} % of the rows")
        process.kill()
    process.start().streaming()
    writers.end()
    check_fold(database, topic, "busy", mode)
    records = check_fold(database, topic, "quiet", mode)
    copied = [r.key for r in records if r.value is not None and r.json["op"] == "r"]
    assert len(set(copied)) == rows
    if mode == "exactly-once":
        assert len(copied) == rows


@contextlib.contextmanager
def killed_before_z(database, millrace, topic, **options):
    """A copy of t and z that was killed when most of t was stored. Within it z is locked, so that no copy comes to an end."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE z (id int PRIMARY KEY, v text);"
                 "INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i; INSERT INTO z VALUES (1, 'x')")
    process = snapshot(millrace, ("t", "z"), pipeline__batch_size='"64KiB"', **options)
    slot_of_a_copy(database, ("t", "z"))
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start().wait_for("snapshot_begun")
        stored = Stored(database, topic)
        eventually(lambda: stored.is_mostly_done("t"), what="the state of a table")
        process.kill()
        yield process


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_is_hidden_is_stored_before_the_first_row(database, millrace, delivery):
    """A first copy is killed before a row of it was read, and then two columns take each other's name."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text); INSERT INTO users VALUES (1, 'hidden', 'seen')")
    process = snapshot(millrace, ("users",), sink__kafka__delivery=f'"{delivery}"', columns__mask='["public.users:email=8"]')
    slot_of_a_copy(database, ("users",))
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
        process.start()
        eventually(lambda: database.run("SELECT FROM pg_locks WHERE relation = 'users'::regclass AND NOT granted"), what="somebody who reads rows")
        process.kill()
    database.run(swapped("users", "note", "email"))
    code, text = process.run_to_end()
    assert code == 65 and "columns.unmatched" in text and "hidden" not in text.replace("hidden at", ""), text
    assert database.topic("users") not in database.topics()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_a_new_rule_hides_is_stored_at_once(database, millrace, topic, delivery):
    """No row comes: what is known of the tables' columns goes to Kafka without one."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text)")
    process = millrace(tables=("users",), sink__kafka__delivery=f'"{delivery}"').start().streaming()
    database.run("INSERT INTO users VALUES (1, 'seen', 'seen')")
    assert topic(database.topic("users")).take(1)
    assert process.stop() == 0
    process.configure(sink__kafka__delivery=f'"{delivery}"', columns__mask='["public.users:email=8"]')
    stored = Stored(database, topic)
    process.start()
    eventually(lambda: "email" in json.dumps(stored.section("columns")), what="the columns in the stored position")
    process.kill()
    database.run(swapped("users", "note", "email"))
    database.run("INSERT INTO users VALUES (2, 'seen', 'hidden')")
    expect(process.run_to_end(), 65, "columns.unmatched")


def test_a_table_whose_file_is_new_begins_anew(database, millrace, topic):
    """VACUUM FULL moves rows to other places, and no event tells of it."""
    with killed_before_z(database, millrace, topic) as process:
        pass
    database.run("UPDATE t SET v = 'new' WHERE id % 2 = 0; DELETE FROM t WHERE id % 3 = 0")
    database.run("VACUUM FULL t")
    process.start().streaming()
    begun = process.log("snapshot_begun")[0]
    assert begun["attempt"] == 3 and begun["bytes_left"] == begun["bytes"]
    check_fold(database, topic, "t", "at-least-once")


def test_policies_must_not_hide_rows(database, millrace):
    role = f"{database.slot}_reader"
    database.run(f"CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); ALTER TABLE t ENABLE ROW LEVEL SECURITY;"
                 f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'millrace-stand'; CREATE PUBLICATION {database.publication} FOR TABLE t")
    try:
        process = snapshot(millrace, ("t",))
        process.environment["TEST_URL"] = dsn(database.name).replace("//postgres:", f"//{role}:")
        expect(run_to_end(process), 77, 'GRANT SELECT ON "public"."t"')
        expect(check(process), 77, 'GRANT SELECT ON "public"."t"')
        database.run(f"GRANT SELECT ON t TO {role}")
        expect(run_to_end(process), 77, "BYPASSRLS", 'table "public"."t"')
        assert check(process)[0] == 77
        database.run("ALTER TABLE t DISABLE ROW LEVEL SECURITY")
        expect(check(process), 0, "existing rows: of 1 table can be copied")
        assert slots(database) == []  # none was made
    finally:
        for slot in slots(database):
            database.run(f"SELECT pg_drop_replication_slot('{slot}')")
        database.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_conditions_on_rows(database, millrace, topic):
    """By the table's name or a partition's, beside a filter of the publication, for the copy alone; in several threads."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off);"
                 "INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 9000) i;"
                 "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
                 "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); INSERT INTO p VALUES (1), (2), (11), (12);"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE t WHERE (id > 10), p"
                 " WITH (publish_via_partition_root = true)")
    wheres = ["t: id % 1000 = 1 OR id < 5 -- a comment", "p2: id = 12", "public.p: id = 1"]
    process = snapshot(millrace, ("t", "p"), snapshot__max__threads=2, snapshot__where=json.dumps(wheres))
    expect(check(process), 0, "of 3 tables can be copied")
    process.start().streaming()
    database.run("INSERT INTO t VALUES (9500, 'new'); INSERT INTO p VALUES (3)")
    t, p = topic(database.topic("t")).take(9), topic(database.topic("p")).take(3)
    assert process.stop() == 0
    assert sorted(r.json["after"]["id"] for r in t) == [*range(1001, 9000, 1000), 9500]
    assert sorted((r.json["after"]["id"], r.json["op"]) for r in p) == [(1, "r"), (3, "c"), (12, "r")]


@pytest.mark.parametrize("where, told", [
    ("t: nothing = 1", ('table "public"."t"', 'column "nothing" does not exist')),
    ("other: id = 1", ("snapshot.where, condition 1", "fits none of the tables")),
])
def test_wrong_conditions_are_found_before_anything_is_made(database, millrace, where, told):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = snapshot(millrace, ("t",), snapshot__where=json.dumps([where]))
    for code, text in (check(process), run_to_end(process)):
        assert code == 78 and all(part in text for part in told), text
    assert slots(database) == []


VIEWED = ("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10); CREATE VIEW wanted AS SELECT 3 AS id;"
          "CREATE FUNCTION is_wanted(i int) RETURNS boolean STABLE LANGUAGE plpgsql AS"
          " $$ BEGIN RETURN EXISTS (SELECT FROM public.wanted w WHERE w.id = i); END $$")


def test_a_condition_that_reads_a_view_by_a_function(database, millrace):
    """The server forbids it once rows are read, and each attempt would end there again."""
    database.run(VIEWED)
    process = snapshot(millrace, ("t",), snapshot__where=json.dumps(["t: public.is_wanted(id)"]))
    expect(run_to_end(process), 78, 'access to non-system view "wanted" is restricted', "snapshot.where")


MISSING = {
    "table": "PERFORM FROM public.nothing",
    "column": "PERFORM w.nothing FROM public.t w",
    "schema": "PERFORM nothing.called(i)",
    "said": "RAISE 'no such table' USING ERRCODE = 'undefined_table'",
}


@pytest.mark.parametrize("missing", [*MISSING, "by C"])
def test_a_condition_whose_function_misses_something(database, millrace, missing):
    """The table that is copied is there. Taken for gone, it would be looked for over and over."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10);"
                 "CREATE FUNCTION is_wanted(i int) RETURNS boolean STABLE LANGUAGE plpgsql AS"
                 f" $$ BEGIN {MISSING.get(missing, 'NULL')}; RETURN true; END $$")
    where = "t: public.is_wanted(id)" if missing in MISSING else "t: has_table_privilege('nothing' || id, 'SELECT')"
    process = snapshot(millrace, ("t",), snapshot__where=json.dumps([where]))
    expect(run_to_end(process), 78, "the rows of table public.t can't be copied", "snapshot.where")


def test_large_rows_by_several_threads(database, millrace, topic):
    """Each needs a block of most of what there is for such: two that are half grown must not wait for each other."""
    names = ("a", "b", "c")
    for name in names:
        database.run(f"CREATE TABLE {name} (id int PRIMARY KEY, v text); ALTER TABLE {name} ALTER v SET STORAGE EXTERNAL;"
                     f"INSERT INTO {name} SELECT i, repeat('x', 6000000) FROM generate_series(1, 4) i")
    process = snapshot(millrace, names, snapshot__max__threads=3, pipeline__memory='"128MiB"', pipeline__change_max='"8MiB"',
                       sink__kafka__oversize='"placeholder"').start().streaming()
    for name in names:
        records = topic(database.topic(name)).take(4)
        assert sorted(r.json["after"]["id"] for r in records) == [1, 2, 3, 4]


def test_one_row_of_50_mb(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT 1, repeat('x', 50000000)")
    process = snapshot(millrace, ("t",), pipeline__memory='"512MiB"', pipeline__change_max='"64MiB"',
                       sink__kafka__oversize='"placeholder"').start().streaming()
    record = topic(database.topic("t")).take(1)[0].json
    assert record["after"]["id"] == 1 and record["source"]["snapshot"] == "last"


def test_a_copy_that_is_not_wanted_any_more(database, millrace):
    """Its slot retains WAL, and nobody reads from it. (Without a slot of its own nothing starts: test_beginning.py.)"""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    process = millrace(tables=("t",)).start().streaming()
    assert process.stop() == 0
    slot_of_a_second_copy(database)
    expect(check(process), 0, f"({database.slot}_snapshot_1)", "pg_drop_replication_slot")
    process.start().streaming()
    warnings = [r for r in process.log("setup_warning") if r["subject"] == "snapshot"]
    assert len(warnings) == 1 and f"({database.slot}_snapshot_1)" in warnings[0]["message"]
    assert process.stop() == 0
    database.run(f"SELECT pg_drop_replication_slot('{database.slot}_snapshot_1')")
    assert "of existing rows was interrupted" not in check(process)[1]


def test_initial_only_copies_and_ends(database, millrace, topic):
    """Only then with exit code 0, by which a job is over."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2);"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE t")
    process = snapshot(millrace, ("t",), snapshot__mode='"initial_only"', sink__kafka__state_topic='""')
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        process.start().wait_for("http_listening")
        assert process.stop() == 3
    assert process.run_to_end(60)[0] == 0
    assert [r.json["source"]["snapshot"] for r in topic(database.topic("t")).take(2)] == ["first", "last"]
    assert slots(database) == []


@pytest.mark.parametrize("mode", MODES)
def test_always_copies_at_each_start(database, millrace, topic, mode):
    """Rows of a later copy are above all that came before; one that was broken off goes on."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE z (id int PRIMARY KEY);"
                 "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i; INSERT INTO z VALUES (1)")
    process = snapshot(millrace, ("t", "z"), snapshot__mode='"always"', **MODES[mode]).start().streaming()
    database.run("INSERT INTO t VALUES (30000, 'new')")
    source = topic(database.topic("t"))
    first = read_until(source, '{"id":30000}')
    assert process.stop() == 0
    database.run("INSERT INTO t VALUES (30001, 'meanwhile'); UPDATE t SET v = 'changed' WHERE id = 1")
    with psycopg.connect(dsn(database.name)) as holder:
        # Killed within the second copy, whose slot has taken the first one's place.
        eventually(lambda: not database.run("SELECT FROM pg_replication_slots WHERE active"), what="the slot's rest")
        slot_of_a_second_copy(database)
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start()
        assert process.wait_for("snapshot_begun")["attempt"] == 2
        stored = Stored(database, topic)
        eventually(lambda: stored.is_mostly_done("t"), what="the state of a table")
        process.kill()
        assert slots(database) == [f"{database.slot}_snapshot_2"]
    process.start().streaming()
    begun = process.log("snapshot_begun")[0]
    assert begun["attempt"] == 3 and begun["bytes_left"] < begun["bytes"] / 2
    second = read_until(source, last_of_stream(database, "t"))
    assert process.stop() == 0
    assert slots(database) == [database.slot]
    copied = [r for r in second if r.json["op"] == "r"]
    assert min(r.position for r in copied) > max(r.position for r in first)
    assert [r.json["after"] for r in second if r.json["op"] != "r"] == [{"id": 2000000000, "v": None}]
    rows, _ = folded(first + second)
    assert as_rows(rows) == table_rows(database, "t")
    if mode == "exactly-once":
        assert len(copied) == 20002 and rows['{"id":1}']["v"] == "changed"


def test_when_needed_copies_where_the_stream_cannot_go_on(database, millrace, topic):
    """The slot is dropped between two starts, made anew by somebody, dropped while it streams; else nothing is copied."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    process = snapshot(millrace, ("t",), snapshot__mode='"when_needed"').start().streaming()
    source = topic(database.topic("t"))
    records = source.take(1)
    assert process.stop() == 0

    def grown():
        """A row is written, and it and all before it come; returns how many were copied."""
        count = database.run("SELECT max(id) + 1 FROM t")[0][0]
        database.run(f"INSERT INTO t VALUES ({count})")
        new = read_until(source, f'{{"id":{count}}}')
        records.extend(new)
        return sum(r.json["op"] == "r" for r in new)
    process.start().streaming()
    assert grown() == 0 and not process.log("snapshot_begun")
    assert process.stop() == 0
    drop = f"SELECT pg_drop_replication_slot('{database.slot}')"
    make = f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')"
    for commands in ((drop,), (drop, make)):
        eventually(lambda: not database.run("SELECT FROM pg_replication_slots WHERE active"), what="the slot's rest")
        database.run(commands[0])
        database.run("INSERT INTO t SELECT max(id) + 1 FROM t")  # no stream has it
        for command in commands[1:]:
            database.run(command)
        code, told = check(process)
        count = database.run("SELECT count(*) FROM t")[0][0]
        process.start().streaming()
        assert process.log("snapshot_needed"), (code, told)
        assert grown() == count
        assert slots(database) == [database.slot]
        if len(commands) == 1:
            assert process.stop() == 0

    def is_gone():
        database.run(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{database.slot}'")
        try:
            database.run(drop)
        except psycopg.errors.ObjectInUse:
            return False
        return True
    eventually(is_gone, what="the end of the slot")
    eventually(lambda: len(process.log("snapshot_done")) == 2, 60, "another copy")
    count = database.run("SELECT count(*) FROM t")[0][0]
    assert grown() == count
    positions = [r.position for r in records]
    assert positions == sorted(positions) and len(set(positions)) == len(positions)
    assert process.stop() == 0
    process.environment["TEST_URL"] = dsn(database.name)
    database.run(drop)
    process.configure(snapshot__mode='"initial"')
    assert process.run_to_end()[0] == 10


def test_no_copy_where_the_slot_is_there(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    process = millrace(tables=("t",)).start().streaming()
    assert process.stop() == 0
    process.configure(snapshot__mode='"initial"').start().streaming()
    database.run("INSERT INTO t VALUES (2)")
    assert [r.json["op"] for r in topic(database.topic("t")).take(1)] == ["c"]
    assert process.stop() == 0 and not process.log("snapshot_begun")


def test_a_row_that_the_topic_refuses(database, millrace, topic):
    """message_max allows it, the topic does not: the next attempt replaces it, although all positions are others then."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, large text); ALTER TABLE t ALTER large SET STORAGE EXTERNAL;"
                 "INSERT INTO t SELECT g, repeat('x', CASE g WHEN 7 THEN 100000 ELSE 10 END) FROM generate_series(1, 20) g")
    name = database.make_topic("t", config={"max.message.bytes": "20000", "compression.type": "producer"})
    process = snapshot(millrace, ("t",), sink__kafka__oversize='"placeholder"', sink__kafka__compression='"none"').start()
    process.wait_for("snapshot_done", 60)
    process.wait_for("source_connected", 60)
    database.run("INSERT INTO t VALUES (21, 'fits')")
    rows, _ = folded(read_until(topic(name), '{"id":21}'))
    assert set(rows) == {f'{{"id":{i}}}' for i in range(1, 22)}
    assert len(rows['{"id":7}']["large"]) < 100 and rows['{"id":8}']["large"] == "x" * 10


def test_a_copied_row_that_cannot_be_sent_is_named(database, millrace):
    """By table and place: it has no transaction, and a skip does nothing for it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, large text); INSERT INTO t VALUES (1, 'x'), (2, repeat('x', 100000))")
    limits = {"sink__kafka__message_max": 20000, "sink__kafka__oversize": '"fail"'}
    process = snapshot(millrace, ("t",), **limits)
    code, said = run_to_end(process)
    oid = database.run("SELECT 't'::regclass::oid::bigint")[0][0]
    assert code == 65 and "public.t: a row that is copied makes a record of" in said, said
    assert f"where tableoid = {oid} and ctid = '(0,2)'" in said and "--skip-commit-lsn skips no row that is copied" in said, said
    assert "of the transaction that commits" not in said and not process.log("skip_ignored")
    process.configure(snapshot__mode='"initial"', snapshot__where="""["public.t: id <> 2"]""", **limits)
    process.start("--skip-commit-lsn", "0/10").streaming()
    assert "--skip-commit-lsn skips a transaction of the stream, and no row that is copied before it" in process.log("skip_ignored")[0]["message"]


def test_a_copied_row_that_kafka_refuses_is_named(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, large text); INSERT INTO t VALUES (1, repeat('x', 100000))")
    database.make_topic("t", config={"max.message.bytes": "20000", "compression.type": "producer"})
    code, said = run_to_end(snapshot(millrace, ("t",), sink__kafka__oversize='"fail"', sink__kafka__compression='"none"'))
    assert code == 65 and "of a row that is copied, of" in said and "--skip-commit-lsn skips no such row" in said, said
    assert "of the transaction that commits" not in said


def test_a_table_without_a_key_that_a_copy_goes_on_with_is_said(database, millrace, topic):
    """What was inserted in between comes as a copied row and as an inserted one (docs/snapshots.md)."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TABLE n (id int);"
                 "ALTER TABLE n REPLICA IDENTITY FULL; INSERT INTO n VALUES (1)")
    process = snapshot(millrace, ("t", "n"))
    slot_of_a_copy(database, ("t", "n"))
    database.run("INSERT INTO n VALUES (2)")
    process.start().streaming()
    told, = process.log("snapshot_without_key")
    assert (told["tables"], told["table"], told["attempt"]) == (1, "public.n", 2), told
    came = [(r.json["op"], r.json["after"]["id"]) for r in topic(database.topic("n")).take(3)]
    assert came == [("r", 1), ("r", 2), ("c", 2)]


def holds_locks(database, table, count=1):
    """Whether so many have the table locked, or wait for that."""
    return database.run("SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND relation = %s::regclass", [table])[0][0] >= count


def test_a_table_is_free_once_it_is_copied(database, millrace, topic):
    """Others may alter it while the rest is copied, also where an earlier attempt had begun it; its rows and its place are right."""
    with killed_before_z(database, millrace, topic, snapshot__max__threads=2) as process:
        process.start().wait_for("snapshot_begun")
        process.wait_for("snapshot_table")
        eventually(lambda: not holds_locks(database, "t"), what="the end of all locks on t")
        database.run("SET lock_timeout = '5s'; ALTER TABLE t ADD more int DEFAULT 7; UPDATE t SET v = 'new' WHERE id % 1000 = 0")
        eventually(lambda: holds_locks(database, "z", 2), what="a reader at z")
    process.streaming()
    assert len(process.log("snapshot_begun")) == 1 and not process.log("source_lost")
    records = read_until(topic(database.topic("t")), last_of_stream(database, "t"))
    rows, _ = folded(records)
    assert len(rows) == 20001 and {row["v"] for row in rows.values() if row["id"] % 1000 == 0 and row["id"] <= 20000} == {"new"}
    check_fold(database, topic, "z", "at-least-once")


def test_a_partition_that_is_attached_meanwhile(database, millrace):
    """The snapshot does not have it, and the stream not what it had before: it is named."""
    database.run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
                 "CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (11); CREATE TABLE z (id int PRIMARY KEY)")
    process = snapshot(millrace, ("p", "z"))
    slot_of_a_copy(database, ("p", "z"))
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start()
        eventually(lambda: holds_locks(database, "z", 2), what="the reader at z")
        database.run("ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (10) TO (20); CREATE TABLE born PARTITION OF p FOR VALUES FROM (20) TO (30)")
    process.streaming()
    assert [one["partitions"] for one in process.log("partition_attached")] == ["public.late"]


SUICIDE = "CREATE FUNCTION last_row(i int) RETURNS boolean {volatility} LANGUAGE plpgsql AS $$ BEGIN RETURN i < 300 OR pg_terminate_backend(pg_backend_pid()); END $$"


@pytest.mark.parametrize("volatility, argument", [("VOLATILE", "id"), ("STABLE", "300")])
def test_a_condition_that_ends_its_own_backend(database, millrace, volatility, argument):
    """While rows are read, or, where its argument is a constant, while it is planned: a few tries, and an end that says why."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000);" + SUICIDE.format(volatility=volatility))
    process = snapshot(millrace, ("t",), snapshot__where=json.dumps([f"t: public.last_row({argument})"]),
                       pipeline__reconnect_max='"100ms"')
    code, text = process.start().ended(60), "".join(process.lines).replace('\\"', '"')
    assert code == 78 and "snapshot.where" in text and "ended" in text and ("public.t" in text or '"public"."t"' in text), text
    assert len(process.log("snapshot_begun")) <= 3
