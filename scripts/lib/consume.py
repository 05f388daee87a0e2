"""Reads topics from their first records on, committed records only: as they come, or what is there now. Benchmarks and tests use it."""

import os
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition


def consumer_of(partitions, bootstrap=None):
    """A consumer of these (topic, partition)."""
    # librdkafka may be left without a broker where the only one is restarted (tests/lies/test_lying_kafka.py): with the default of five
    # minutes a producer was after two of five restarts, with this after none of four.
    consumer = Consumer({"topic.metadata.refresh.interval.ms": 1000,
                         "bootstrap.servers": bootstrap or os.environ["KAFKA_BOOTSTRAP"], "group.id": "reader", "log_level": 0,
                         "isolation.level": "read_committed", "enable.partition.eof": True,
                         "fetch.wait.max.ms": 5, "fetch.min.bytes": 1})
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in partitions])
    return consumer


def as_they_come(consumer, limit_s):
    """Each record with the wall-clock time of its arrival, for at most `limit_s` seconds. Whoever has enough breaks off."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        messages = consumer.consume(500, timeout=0.002)
        now = time.time()
        for message in messages:
            if message.error() is None:
                yield message, now


def up_to_now(partitions, bootstrap=None, quiet_s=60):
    """Each record that these (topic, partition) hold now. Fails when nothing comes for `quiet_s` seconds."""
    consumer = consumer_of((), bootstrap)
    try:
        ends, begins = {}, []
        for topic, number in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            if high > low:
                ends[topic, number] = high
                begins.append(TopicPartition(topic, number, low))  # the head of a topic may be gone
        consumer.assign(begins)
        heard = time.monotonic()
        while ends:
            messages = consumer.consume(5000, timeout=0.1)
            heard = time.monotonic() if messages else heard
            assert time.monotonic() - heard < quiet_s, f"nothing comes of {ends}"
            for message in messages:
                where, next_offset = (message.topic(), message.partition()), message.offset()
                if message.error() is None:
                    yield message
                    next_offset += 1
                elif message.error().code() != KafkaError._PARTITION_EOF:  # pylint: disable=protected-access
                    continue
                # The last offsets may be those of transactions' ends, which no reader gets.
                if next_offset >= ends.get(where, 0):
                    ends.pop(where, None)
    finally:
        consumer.close()


def murmur2(data):
    """As Kafka's Java client has it; the partition of a key is its 31 low bits modulo the partitions."""
    mask = 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at:at + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ k >> 24) * 0x5BD1E995 & mask
        h = (h * 0x5BD1E995 & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    h = (h ^ h >> 13) * 0x5BD1E995 & mask
    return h ^ h >> 15
