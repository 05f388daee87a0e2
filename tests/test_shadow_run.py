"""docs/shadow-run.md: millrace beside a connector, with a slot and topics that are its own, and the comparison of their topics."""

import os
import subprocess
import sys

import pytest
from confluent_kafka import Producer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import connect  # noqa: E402
from kit import BOOTSTRAP, Topic, connect as connect_to, eventually  # noqa: E402

COMPARE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "examples", "compare_topics.py")


def compare(*topics):
    done = subprocess.run([sys.executable, COMPARE, "--brokers", BOOTSTRAP, *topics], capture_output=True, text=True, timeout=120,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def place_differences(database, topic, altered):
    """The same records, but for one value and for one that is missing, each in the middle."""
    database.create_topic(altered, partitions=3)
    producer, reader = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0}), Topic(topic)
    ends = sum(reader.consumer.get_watermark_offsets(p, timeout=10)[1] for p in reader.consumer.assignment())
    kept = [[record for record in found if record.partition == partition] for found in [reader.take(ends)] for partition in range(3)]
    reader.close()
    for partition, records in enumerate(kept):
        middle = next(at for at, record in enumerate(records) if at > len(records) / 2 and record.value and record.json["after"])
        for at, record in enumerate(records):
            value = record.value
            if at == middle and partition == 0:
                value = value.replace('"after":{"id":', '"after":{"id":9', 1)
            if at != middle or partition != 1:
                producer.produce(altered, value, record.key, partition)
    assert producer.flush(30) == 0


@pytest.mark.timeout(600)
def test_a_shadow_run_finds_no_difference_and_one_that_is_placed(database, millrace, tmp_path):
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, n numeric, at timestamptz DEFAULT now()); CREATE PUBLICATION {database.publication} FOR TABLE t")
    worker = connect.Connect(database, tmp_path, database.prefix + "-live", {"topic.creation.default.partitions": 3})
    worker.start()
    try:
        eventually(worker.streams, 180, "Debezium reads")
        database.run("INSERT INTO t SELECT generate_series(1, 50), 0.5")  # before millrace is there
        process = millrace(types='"debezium"', sink__kafka__partitions="3", topic_prefix=f'"{database.prefix}-shadow"').start().streaming()
        with connect_to(database.name) as writer:
            for number in range(100, 400):
                writer.execute(f"INSERT INTO t VALUES ({number}, {number}.25); UPDATE t SET n = n + 1 WHERE id = {number - 3}; "
                               f"DELETE FROM t WHERE id = {number - 7}")
        end = database.run("SELECT pg_current_wal_insert_lsn()")[0][0]
        database.run("INSERT INTO t VALUES (0, 0)")  # Debezium confirms up to the transaction before its last
        eventually(lambda: not database.run("SELECT 1 FROM pg_replication_slots WHERE database = current_database() AND "
                                            "confirmed_flush_lsn < %s", [end]), 120, "all is confirmed")
        assert process.stop() == 0
        worker.finish()
    finally:
        worker.stop()
    live, shadow = database.prefix + "-live.public.t", database.prefix + "-shadow.public.t"
    code, text = compare(live, shadow)
    assert code == 0 and "0 differ" in text and int(text.split()[0]) > 800, text
    place_differences(database, shadow, shadow + "-altered")
    code, text = compare(live, shadow + "-altered")
    assert code == 1 and "0 differ" not in text, text
