"""All records of a run's topics, read by a client that shares nothing with millrace."""

import dataclasses
import pickle

from confluent_kafka.admin import AdminClient

from consume import up_to_now


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


def read(bootstrap, prefix, without=()):
    """Everything in the topics whose names begin with `prefix`, but for those in `without`, as a reader of committed records gets it."""
    known = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=30).topics
    found = {name: len(topic.partitions) for name, topic in known.items() if name.startswith(prefix) and name not in without}
    records = [Record(message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                      dict(message.headers() or []), message.timestamp()[1])
               for message in up_to_now([(name, number) for name, count in found.items() for number in range(count)], bootstrap)]
    return Capture(records, found)
