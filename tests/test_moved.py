"""Partitions that are attached, detached, dropped and truncated while the publication sends them by their root: no event tells of it
(partitions.moved)."""

import pytest

from kit import check as checked
from kit import eventually
from test_incremental import LAST, States, Writers, check, command, copies, is_done, keys_read

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


def test_each_kind_is_named_and_counted(partitioned, millrace, topic):
    """And nothing is sent. One that is made as a partition has moved nothing, nor has VACUUM FULL, which writes a new file, too."""
    states = States(partitioned, topic)
    process = millrace(tables=("p",), snapshot__added_tables="true", **BY_ROOT, **states.options("at-least-once")).start().streaming()
    eventually(lambda: states.knows(1), 60, "a look")
    table(partitioned, "late", 4000, 10)
    partitioned.run("VACUUM FULL p0")
    partitioned.run("CREATE TABLE born PARTITION OF p FOR VALUES FROM (5000) TO (6000); TRUNCATE p1;"
                    "ALTER TABLE p DETACH PARTITION p2; DROP TABLE p3; ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (4000) TO (5000)")
    process.wait_for("partition_moved", times=4)
    told = moved(process)
    assert {how: (one["partitions"], one["tables"], one["count"]) for how, one in told.items()} == {
        how: (f"public.{name}", "public.p", 1) for how, name in (("attached", "late"), ("detached", "p2"), ("dropped", "p3"), ("truncated", "p1"))}
    assert "millrace snapshot" in told["attached"]["remedy"] and "verify --repair" in told["detached"]["remedy"]
    for how in told:
        assert process.figure(f'millrace_partitions_moved_total{{how="{how}"}}') == 1
    partitioned.run(f"INSERT INTO p VALUES ({LAST}, 0)")
    assert [record.json["op"] for record in topic(partitioned.topic("p")).take(1)] == ["c"]
    assert process.stop() == 0 and len(process.log("partition_moved")) == 4


@pytest.mark.parametrize("mode", MODES)
def test_the_topic_follows(partitioned, millrace, topic, mode):
    """Under writers: what was attached comes, what was detached is deleted, and its keys that have come back to the table are not."""
    states = States(partitioned, topic)
    process = millrace(tables=("p",), partitions__moved='"follow"', **BY_ROOT, **states.options(mode)).start().streaming()
    eventually(lambda: states.knows(6), 60, "what is known")
    partitioned.run("UPDATE p SET n = n")  # the topic has all of it
    writers = Writers(partitioned, "p")
    table(partitioned, "late", 4000, 700)
    table(partitioned, "now", 2000, 5)  # as p2 is detached, with some of its keys
    partitioned.run("ALTER TABLE p DETACH PARTITION p2; ALTER TABLE p ATTACH PARTITION now FOR VALUES FROM (2000) TO (3000);"
                    "ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (4000) TO (5000)")
    eventually(lambda: len([one for one in process.get("/api/snapshot/outcome").json["tables"] if one["state"] == "done"]) == 3, 60, "copies")
    writers.end(more=20)
    records = check(partitioned, topic, "p", mode)
    deleted = [record for record in records if record.headers.get("mr-repair") == "detached"]
    assert {record.json["op"] for record in deleted if record.value is not None} == {"d"} and len({record.key for record in deleted}) == 295
    assert {f'{{"id":{i}}}' for i in range(4000, 4700, 97)} <= {*keys_read(records), *(record.key for record in records)}
    assert all(one["level"] == "info" for one in process.log("partition_moved")) and process.stop() == 0


def test_attached_between_two_starts(partitioned, millrace, topic):
    """What is known of partitions is stored; one that was made, filled and attached in one transaction is copied, too; those of a new root are not."""
    states = States(partitioned, topic)
    options = {"partitions__moved": '"copy"', **BY_ROOT, **states.options("at-least-once")}
    process = millrace(tables=("p",), **options).start().streaming()
    eventually(lambda: states.knows(6), 60, "what is known")
    assert process.stop() == 0
    partitioned.run("BEGIN; CREATE TABLE late (id int PRIMARY KEY, n int); INSERT INTO late SELECT i, 0 FROM generate_series(4000, 4099) i;"
                    "ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (4000) TO (5000); COMMIT; DROP TABLE p0;"
                    "CREATE TABLE q (id int PRIMARY KEY, n int) PARTITION BY HASH (id); CREATE TABLE q0 PARTITION OF q FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
                    f"INSERT INTO q SELECT i FROM generate_series(1, 20) i WHERE satisfies_hash_partition('q'::regclass, 2, 0, i);"
                    f"ALTER PUBLICATION {partitioned.publication} ADD TABLE q")
    process.tables = ("p", "q")
    process.configure(**options)
    process.start().streaming()
    assert eventually(lambda: is_done(process, "public.p"), 60)["rows"] == 100
    assert "public.q" not in copies(process)
    table(partitioned, "q1", 0, 0, "INSERT INTO q1 SELECT i FROM generate_series(1, 20) i WHERE NOT satisfies_hash_partition('q'::regclass, 2, 0, i)")
    partitioned.run("ALTER TABLE q ATTACH PARTITION q1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
    assert eventually(lambda: copies(process).get("public.q", {}).get("state") == "done" and copies(process)["public.q"]["rows"], 60) == (
        partitioned.run("SELECT count(*) FROM q1")[0][0])
    assert keys_read(topic(partitioned.topic("p")).take(100)) == [f'{{"id":{i}}}' for i in range(4000, 4100)]
    assert process.stop() == 0


def test_a_detached_table_that_was_dropped_too_soon(partitioned, millrace, topic):
    """Its keys can't be read any more: that is said. Without via_partition_root the option does nothing, and that is said."""
    states = States(partitioned, topic)
    process = millrace(tables=("p",), partitions__moved='"follow"', **BY_ROOT, **states.options("at-least-once")).start().streaming()
    eventually(lambda: states.knows(6), 60, "what is known")
    assert command(process, "--pause")[0] == 0
    partitioned.run("ALTER TABLE p DETACH PARTITION p2")
    process.wait_for("partition_moved")
    partitioned.run("DROP TABLE p2")
    assert command(process, "--resume")[0] == 0
    assert "verify --repair" in process.wait_for("incremental_failed")["message"]
    assert process.stop() == 0
    process.configure(partitions__moved='"copy"')
    said = checked(process)[1]
    assert "partitions.moved" in said and "sends partitions by their root; what partitions.moved says counts with" in said, said
