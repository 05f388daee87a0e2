"""docs/migrating-from-debezium.md: millrace beside a connector, with its own slot and topics, and the comparison of both sets of topics."""

import os
import subprocess
import sys

import pytest
from confluent_kafka import Producer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import connect  # noqa: E402
from kit import BOOTSTRAP, Topic, connect as connect_to, eventually  # noqa: E402

COMPARE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "examples", "compare_topics.py")
BEFORE, ROWS = 50, 300  # inserted before millrace reads, and after
RECORDS = ROWS + (ROWS - 3) + 2 * (ROWS - 7)  # inserts, updates, deletes and their tombstones


def records(topic, count):
    reader = Topic(topic)
    try:
        return reader.take(count)
    finally:
        reader.close()


def compare(*topics):
    done = subprocess.run([sys.executable, COMPARE, "--brokers", BOOTSTRAP, *topics], capture_output=True, text=True, timeout=120,
                          check=False)
    return done.returncode, done.stdout.splitlines()[-1], done.stdout + done.stderr


def place_difference(database, topic, altered, change):
    """The same records, but what `change` makes of the value in the middle of the first partition; None leaves the record out."""
    database.create_topic(altered, partitions=3)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
    found = records(topic, RECORDS)
    for partition in range(3):
        mine = [record for record in found if record.partition == partition]
        middle = next(at for at, record in enumerate(mine) if at > len(mine) / 2 and record.value and record.json["op"] == "c")
        for at, record in enumerate(mine):
            value = change(record.value) if partition == 0 and at == middle else record.value
            if at != middle or partition != 0 or value is not None:
                producer.produce(altered, value, record.key, partition)
    assert producer.flush(30) == 0


@pytest.mark.timeout(600)
def test_a_shadow_run_finds_no_difference_and_those_that_are_placed(database, millrace, tmp_path):
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, n numeric, at timestamptz); CREATE PUBLICATION {database.publication} FOR TABLE t")
    worker = connect.Connect(database, tmp_path, database.prefix + "-live", {"topic.creation.default.partitions": 3})
    live, shadow = database.prefix + "-live.public.t", database.prefix + "-shadow.public.t"
    worker.start()
    try:
        eventually(worker.streams, 180, "Debezium reads")
        database.run(f"INSERT INTO t SELECT generate_series(1, {BEFORE}), 0.5, now()")
        records(live, BEFORE)
        process = millrace(types='"debezium"', sink__kafka__partitions="3", topic_prefix=f'"{database.prefix}-shadow"').start().streaming()
        with connect_to(database.name) as writer:
            for number in range(100, 100 + ROWS):
                writer.execute(f"INSERT INTO t VALUES ({number}, {number}.25, now()); UPDATE t SET n = n + 1 WHERE id = {number - 3}; "
                               f"DELETE FROM t WHERE id = {number - 7}")
        records(live, BEFORE + RECORDS)
        records(shadow, RECORDS)
        assert process.stop() == 0
    finally:
        worker.stop()
    code, last, text = compare(live, shadow)
    assert (code, last) == (0, f"{RECORDS} records compared, 0 differ"), text
    place_difference(database, shadow, shadow + "-value", lambda value: value.replace('"after":{"id":', '"after":{"id":9', 1))
    code, last, text = compare(live, shadow + "-value")
    assert (code, last) == (1, f"{RECORDS} records compared, 1 differ"), text
    place_difference(database, shadow, shadow + "-missing", lambda value: None)
    code, last, text = compare(live, shadow + "-missing")
    assert code == 1 and last.endswith(" differ") and not last.endswith(" 0 differ"), text
    assert compare(live, shadow + "-absent")[:2] == (1, "0 records compared, 0 differ")
