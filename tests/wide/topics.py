"""All records of a run's topics, read by a client that shares nothing with millrace."""

import dataclasses
import pickle
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition


@dataclasses.dataclass
class Record:
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: dict
    timestamp: int


@dataclasses.dataclass
class Capture:
    records: list      # in the order of each partition
    partitions: dict   # topic -> number

    def keep(self, path):
        with open(path, "wb") as file:
            pickle.dump(self, file)


def read(bootstrap, prefix, limit_s=60, without=()):
    """Everything in the topics whose names begin with `prefix`, but for those in `without`, as a reader of committed records gets it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": prefix + "judge", "log_level": 0, "isolation.level": "read_committed",
                         "enable.partition.eof": True, "fetch.wait.max.ms": 10})
    try:
        found = {name: topic for name, topic in consumer.list_topics(timeout=30).topics.items() if name.startswith(prefix) and name not in without}
        wanted = {(name, number) for name, topic in found.items() for number in topic.partitions}
        open_ends = set(wanted)
        records = []
        consumer.assign([TopicPartition(name, number, 0) for name, number in wanted])
        heard = time.monotonic()
        while open_ends:
            messages = consumer.consume(5000, timeout=0.2)
            heard = time.monotonic() if messages else heard
            assert time.monotonic() - heard < limit_s, f"nothing comes of {open_ends}"
            for message in messages:
                if message.error() is None:
                    records.append(Record(message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                                          dict(message.headers() or []), message.timestamp()[1]))
                elif message.error().code() == KafkaError._PARTITION_EOF:  # pylint: disable=protected-access
                    open_ends.discard((message.topic(), message.partition()))
        return Capture(records, {name: len(topic.partitions) for name, topic in found.items()})
    finally:
        consumer.close()
