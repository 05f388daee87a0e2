"""Partitions that are attached, detached, dropped and truncated while the publication sends them by their root: no event tells of it
(partitions.moved)."""

import pytest

from kit import check as checked
from kit import eventually
from test_incremental import LAST, States, check, copies, is_done, keys_read, writers_of

MODES = ["at-least-once", "exactly-once"]
BY_ROOT = {"publication__via_partition_root": "true"}


def table(database, name, first, rows, more=""):
    database.run(f"CREATE TABLE {name} (id int PRIMARY KEY, n int); INSERT INTO {name} SELECT i, 0 FROM generate_series({first}, {first + rows - 1}) i;"
                 f"ANALYZE {name}; {more}")


def attach(database, name, first, end):
    database.run(f"ALTER TABLE p ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})")


@pytest.fixture(name="partitioned")
def fixture_partitioned(database):
    """p0 to p3 with 1,000 ids each, of which the first 300 are there, and one for all others."""
    database.run("CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id); CREATE TABLE rest PARTITION OF p DEFAULT")
    for i in range(4):
        table(database, f"p{i}", 1000 * i, 300)
        attach(database, f"p{i}", 1000 * i, 1000 * (i + 1))
    return database


def moved(process):
    return {one["how"]: one for one in process.log("partition_moved")}


def done(process):
    return [one["table"] for one in process.get("/api/snapshot/outcome").json["tables"] if one["state"] == "done"]


def test_each_kind_is_named_and_counted(partitioned, millrace, topic):
    """And nothing is sent. One that is made as a partition has moved nothing, nor has VACUUM FULL, which writes a new file, too. TRUNCATE
    of the table is an event."""
    states = States(partitioned, topic)
    process = millrace(tables=("p",), snapshot__added_tables="true", skipped_operations="[]", **BY_ROOT, **states.options("at-least-once")).start().streaming()
    eventually(lambda: states.knows(1), 60, "a look")
    table(partitioned, "late", 4000, 10)
    partitioned.run("VACUUM FULL p0")
    partitioned.run("CREATE TABLE born PARTITION OF p FOR VALUES FROM (5000) TO (6000); TRUNCATE p1; ANALYZE p1;"
                    "ALTER TABLE p DETACH PARTITION p2; DROP TABLE p3; ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (4000) TO (5000)")
    process.wait_for("partition_moved", times=4)
    told = moved(process)
    assert {how: (one["partitions"], one["tables"], one["count"]) for how, one in told.items()} == {
        how: (f"public.{name}", "public.p", 1) for how, name in (("attached", "late"), ("detached", "p2"), ("dropped", "p3"), ("truncated", "p1"))}
    assert "millrace snapshot" in told["attached"]["remedy"] and "verify --repair" in told["detached"]["remedy"]
    for how in told:
        assert process.figure(f'millrace_partitions_moved_total{{how="{how}"}}') == 1
    partitioned.run(f"INSERT INTO p VALUES ({LAST}, 0); TRUNCATE p; ALTER TABLE p DETACH PARTITION p1")
    assert [record.json["op"] for record in topic(partitioned.topic("p")).take(2)] == ["c", "t"]
    process.wait_for("partition_moved", times=5)
    assert process.stop() == 0 and [one["how"] for one in process.log("partition_moved")].count("detached") == 2
    assert len(process.log("partition_moved")) == 5


@pytest.mark.parametrize("mode", MODES)
def test_attached_ones_are_copied(partitioned, millrace, topic, mode):
    """Under writers: a table; a partition of another table; and one that was detached, changed and attached again while nobody looked."""
    states = States(partitioned, topic)
    partitioned.run("CREATE TABLE q (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)")
    table(partitioned, "q5", 5000, 200)
    partitioned.run("ALTER TABLE q ATTACH PARTITION q5 FOR VALUES FROM (5000) TO (6000)")
    process = millrace(tables=("p", "q"), partitions__moved='"copy"', **BY_ROOT, **states.options(mode)).start().streaming()
    eventually(lambda: states.knows(8), 60, "what is known")
    partitioned.run("UPDATE p SET n = n")  # the topic has all of it
    writers = writers_of(partitioned, "p")
    table(partitioned, "late", 4000, 700)
    partitioned.run("ALTER TABLE p DETACH PARTITION p2; INSERT INTO p2 SELECT i, 0 FROM generate_series(2500, 2549) i; UPDATE p2 SET n = n + 1;"
                    "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (2000) TO (3000); ALTER TABLE q DETACH PARTITION q5;"
                    "ALTER TABLE p ATTACH PARTITION q5 FOR VALUES FROM (5000) TO (6000); ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (4000) TO (5000)")
    eventually(lambda: done(process) == ["public.p"] * 3, 60, "copies")
    writers.end(more=20)
    check(partitioned, topic, "p", mode)
    told = moved(process)
    assert (told["attached"]["count"], told["attached"]["level"], told["detached"]["count"]) == (3, "info", 2)
    assert told["attached"]["remedy"].startswith("none") and process.stop() == 0


def test_attached_between_two_starts(partitioned, millrace, topic):
    """What is known of partitions is stored; one that was made, filled and attached in one transaction is copied, too, and one that was detached
    in between; those of a new root are not."""
    states = States(partitioned, topic)
    options = {"partitions__moved": '"copy"', **BY_ROOT, **states.options("at-least-once")}
    process = millrace(tables=("p",), **options).start().streaming()
    eventually(lambda: states.knows(6), 60, "what is known")
    assert process.stop() == 0
    partitioned.run("ALTER TABLE p DETACH PARTITION p3; UPDATE p3 SET n = 7; ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (3000) TO (4000)")
    partitioned.run("BEGIN; CREATE TABLE late (id int PRIMARY KEY, n int); INSERT INTO late SELECT i, 0 FROM generate_series(4000, 4099) i;"
                    "ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (4000) TO (5000); COMMIT; DROP TABLE p0;"
                    "CREATE TABLE q (id int PRIMARY KEY, n int) PARTITION BY HASH (id); CREATE TABLE q0 PARTITION OF q FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
                    f"INSERT INTO q SELECT i FROM generate_series(1, 20) i WHERE satisfies_hash_partition('q'::regclass, 2, 0, i);"
                    f"ALTER PUBLICATION {partitioned.publication} ADD TABLE q")
    process.tables = ("p", "q")
    process.configure(**options).start().streaming()
    eventually(lambda: done(process) == ["public.p"] * 2, 60, "both copies")
    assert "public.q" not in copies(process)
    table(partitioned, "q1", 0, 0, "INSERT INTO q1 SELECT i FROM generate_series(1, 20) i WHERE NOT satisfies_hash_partition('q'::regclass, 2, 0, i)")
    partitioned.run("ALTER TABLE q ATTACH PARTITION q1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
    assert eventually(lambda: copies(process).get("public.q", {}).get("state") == "done" and copies(process)["public.q"]["rows"], 60) == (
        partitioned.run("SELECT count(*) FROM q1")[0][0])
    read = keys_read(topic(partitioned.topic("p")).take(400))
    assert sorted(read) == sorted(f'{{"id":{i}}}' for i in (*range(3000, 3300), *range(4000, 4100)))


def test_bounds_that_are_too_long(partitioned, millrace, topic):
    """The rows are found by where they lie. Without via_partition_root the option does nothing, and that is said."""
    states = States(partitioned, topic)
    parts = "".join(f"CREATE TABLE q{i} PARTITION OF q FOR VALUES IN ('{letter * 1500}');" for i, letter in enumerate("ABCDEFGHIJKL"))
    partitioned.run(f"CREATE TABLE q (id text PRIMARY KEY, n int) PARTITION BY LIST (id); {parts} INSERT INTO q VALUES ('{'A' * 1500}', 0)")
    options = {"partitions__moved": '"copy"', **states.options("at-least-once")}
    process = millrace(tables=("q",), **BY_ROOT, **options).start().streaming()
    eventually(lambda: states.knows(13), 60, "what is known")
    partitioned.run("CREATE TABLE others (id text PRIMARY KEY, n int); INSERT INTO others SELECT i, 0 FROM generate_series(1, 3000) i;"
                    "ALTER TABLE q ATTACH PARTITION others DEFAULT")
    assert len(partitioned.run("SELECT pg_get_partition_constraintdef('others'::regclass)")[0][0]) > 16 * 1024
    assert eventually(lambda: is_done(process, "public.q"), 60)["rows"] == 3000
    assert process.stop() == 0
    process.configure(**options)
    said = checked(process)[1]
    assert "partitions.moved" in said and "sends partitions by their root; what partitions.moved says counts with" in said, said
