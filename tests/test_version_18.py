"""What PostgreSQL 18 brings: NOT NULL that old rows know nothing of, keys with periods, stored generated columns that are published, and
virtual ones, which never are. scripts/test.sh runs this file, and some others, on 18 (tests/README.md)."""

import json
import os

import pytest

from kit import check, eventually, expect
from test_incremental import command, copies, copy
from test_snapshot import as_rows, folded, read_until, table_rows

pytestmark = pytest.mark.skipif(int(os.environ.get("MILLRACE_TEST_PG", "15")) < 18, reason="needs PostgreSQL 18, on which scripts/test.sh runs it")

LAST = '{"id":2000000000}'


def test_identity_whose_not_null_is_not_valid(database, millrace, topic):
    """`check` says what an old row does. Validated, the table is one like others."""
    for table in ("t", "u"):
        database.run(f"CREATE TABLE {table} (\"the k\" int, v int); INSERT INTO {table} VALUES (NULL, 1), (2, 2); CREATE UNIQUE INDEX {table}i"
                     f" ON {table} (\"the k\"); ALTER TABLE {table} ADD CONSTRAINT given NOT NULL \"the k\" NOT VALID;"
                     f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {table}i")
    database.run("DELETE FROM t WHERE v = 1")
    process = millrace(["t", "u"])
    code, text = check(process)
    remedy = 'ALTER TABLE "public"."t" ALTER COLUMN "the k" SET NOT NULL'
    assert code == 0 and 'column "the k", whose NOT NULL is NOT VALID' in text and remedy in text, text
    process.start().streaming()
    for table in ("t", "u"):
        expect(command(process, table), 78, "NOT NULL is NOT VALID")
    database.run("INSERT INTO t VALUES (3, 3); " + remedy)
    assert copy(process, "t")["rows"] == 2
    assert {record.key for record in topic(database.topic("t")).take(3)} == {'{"the k":2}', '{"the k":3}'}
    assert remedy not in check(process)[1]
    database.run("DELETE FROM u WHERE v = 1")
    assert process.ended(60) == 65
    assert "it is part of the key, and the row has null there" in process.log("stopped")[0]["message"]


def test_copy_by_columns_whose_not_null_is_not_valid(database, millrace):
    """No chunk behind the first would have the rows with null. With all of them in the first the copy would be whole, so there are many."""
    database.run("CREATE TABLE t (id int, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 30000) i;"
                 "INSERT INTO t VALUES (NULL, 1), (NULL, 2); CREATE UNIQUE INDEX ON t (id);"
                 "ALTER TABLE t ADD CONSTRAINT given NOT NULL id NOT VALID; ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace(key_columns='["t:id"]').start().streaming()
    expect(command(process, "t"), 78, "NOT NULL is NOT VALID")
    database.run("DELETE FROM t WHERE id IS NULL; ALTER TABLE t VALIDATE CONSTRAINT given")
    assert copy(process, "t")["rows"] == 30000


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_key_with_a_period(database, millrace, topic, identity):
    """PRIMARY KEY (… WITHOUT OVERLAPS): a GiST index, by which rows have no order."""
    database.run("CREATE TABLE t (room int4range, v text, during tsrange, PRIMARY KEY (room, during WITHOUT OVERLAPS));"
                 f"ALTER TABLE t REPLICA IDENTITY {identity};"
                 "INSERT INTO t SELECT int4range(i, i + 1), 'old', '[2026-01-01,2026-02-01)' FROM generate_series(1, 3) i")
    process = millrace(snapshot__mode='"initial"')
    assert check(process)[0] == 0
    process.start().streaming()
    records = topic(database.topic("t"))
    key = '{{"room":"[{},{})","during":"[\\"2026-{}-01 00:00:00\\",\\"2026-{}-01 00:00:00\\")"}}'
    january = [key.format(i, i + 1, "01", "02") for i in range(1, 4)]
    assert sorted(record.key for record in records.take(3)) == january
    database.run("INSERT INTO t VALUES ('[1,2)', 'new', '[2026-02-01,2026-03-01)')")
    database.run("UPDATE t SET v = 'changed' WHERE room = '[2,3)'; UPDATE t SET during = '[2026-03-01,2026-04-01)' WHERE room = '[3,4)';"
                 "DELETE FROM t WHERE during = '[2026-01-01,2026-02-01)' AND room = '[1,2)'")
    found = [(record.key, record.value and record.json["op"]) for record in records.take(7)]
    march = key.format(3, 4, "03", "04")
    assert found == [(key.format(1, 2, "02", "03"), "c"), (january[1], "u"), (january[2], "d"), (january[2], None), (march, "c"),
                     (january[0], "d"), (january[0], None)]

    expect(command(process, "t"), 78, "no unique B-tree index")
    database.run("CREATE UNIQUE INDEX ON t (during, room)")
    assert copy(process, "t")["rows"] == 3
    assert [record.key for record in records.take(3)] == [january[1], key.format(1, 2, "02", "03"), march]


TABLE = ("CREATE TABLE t (id int PRIMARY KEY, n int, s int GENERATED ALWAYS AS (n * 2) STORED, v int GENERATED ALWAYS AS (n * 3) VIRTUAL, e text);"
         "INSERT INTO t VALUES (1, 1), (2, 2);")


@pytest.mark.parametrize("sent", ["none", "stored"])
def test_generated_columns(database, millrace, topic, sent):
    """Rows that are copied first, that are streamed and that are copied beside the stream have the same columns: those that are sent."""
    database.run(TABLE + f"CREATE PUBLICATION {database.publication} FOR TABLE t WITH (publish_generated_columns = {sent})")
    process = millrace(snapshot__mode='"initial"').start().streaming()
    records = topic(database.topic("t"))
    columns = ["id", "n", *(["s"] if sent == "stored" else []), "e"]
    database.run("INSERT INTO t VALUES (3, 3); UPDATE t SET n = 4 WHERE id = 3; ALTER TABLE t ADD COLUMN more int GENERATED ALWAYS AS (n + 1) VIRTUAL;"
                 "UPDATE t SET n = 5 WHERE id = 1")
    found = records.take(5)
    assert [list(record.json["after"]) for record in found] == [columns] * 5
    assert [record.json["after"].get("s") for record in found] == ([2, 4, 6, 8, 10] if sent == "stored" else [None] * 5)
    assert copy(process, "t")["rows"] == 3
    assert [list(record.json["after"]) for record in records.take(3)] == [columns] * 3

    # From here on it is a column like others.
    database.run("ALTER TABLE t ALTER s DROP EXPRESSION; UPDATE t SET s = 7 WHERE id = 2; INSERT INTO t (id) VALUES (2000000000)")
    rows, _ = folded(read_until(records, LAST, 60))
    assert rows['{"id":2}']["s"] == 7


def test_generated_column_of_the_identity(database, millrace, topic):
    """Sent, it is part of the key: of a list that names it, though the publication sends no others; and by all of them."""
    database.run("CREATE TABLE t (n int NOT NULL, s int NOT NULL GENERATED ALWAYS AS (n * 2) STORED, v text); CREATE UNIQUE INDEX i ON t (s);"
                 "ALTER TABLE t REPLICA IDENTITY USING INDEX i; INSERT INTO t VALUES (1), (2)")
    process = millrace()
    expect(check(process), 78, "publish_generated_columns = stored")
    process.configure(publication__columns='["t:n,s"]', snapshot__mode='"initial"')
    expect(check(process), 0)
    process.start().streaming()
    records = topic(database.topic("t"))
    assert sorted(record.key for record in records.take(2)) == ['{"s":2}', '{"s":4}']
    database.run("UPDATE t SET n = 3 WHERE n = 2; DELETE FROM t WHERE n = 1")
    assert [record.key for record in records.take(5)] == ['{"s":4}', '{"s":4}', '{"s":6}', '{"s":2}', '{"s":2}']
    assert copy(process, "t")["rows"] == 1
    assert records.take(1)[0].json["after"] == {"n": 3, "s": 6}


def test_schemas_that_are_published(database, millrace, topic):
    """FOR TABLES IN SCHEMA, with generated columns, and a table that comes."""
    database.run(f"{TABLE} CREATE PUBLICATION {database.publication} FOR TABLES IN SCHEMA public WITH (publish_generated_columns = stored)")
    process = millrace(tables=["public.*"]).start().streaming()
    database.run("CREATE TABLE late (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id + 1) STORED); INSERT INTO late VALUES (1); INSERT INTO t VALUES (9, 9)")
    assert topic(database.topic("late")).take(1)[0].json["after"] == {"id": 1, "g": 2}
    assert topic(database.topic("t")).take(1)[0].json["after"]["s"] == 18
