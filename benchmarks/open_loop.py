"""Rows at a fixed rate, whoever reads them: an open loop. And how long each took to a consumer."""

import os
import re
import threading
import time

from confluent_kafka import Consumer, TopicPartition

from mixes import INSERT_SEVEN_COLUMNS

ROWS_PER_TRANSACTION = 10
WARM_UP_S = 2
ID = re.compile(rb'"id"\s*:\s*(\d+)')


class Writer(threading.Thread):
    """Commits at scheduled moments; a late one is not left out, so the rate holds on average."""

    def __init__(self, stand, rate, seconds, rows_per_transaction=ROWS_PER_TRANSACTION):
        super().__init__()
        self.stand, self.size = stand, rows_per_transaction
        self.transactions = int(rate * seconds / rows_per_transaction)
        self.interval = rows_per_transaction / rate
        self.late = 0
        self.commits = []  # wall-clock time of each, as this side saw it

    @property
    def rows(self):
        return self.transactions * self.size

    def run(self):
        with self.stand.connected() as connection:
            begin = time.monotonic()
            for i in range(self.transactions):
                wait = begin + i * self.interval - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                self.late += wait < -0.1
                connection.execute(INSERT_SEVEN_COLUMNS, [i * self.size + 1, (i + 1) * self.size])
                self.commits.append(time.time())


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def consumer_of(topic):
    """From the topic's first record on; only what is committed, which is librdkafka's default."""
    consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": topic,
                         "fetch.wait.max.ms": 5, "fetch.min.bytes": 1})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def follow_ids(topic, after, last, limit_s):
    """Arrival time of each row behind `after`, by its id."""
    consumer = consumer_of(topic)
    arrivals = {}
    deadline = time.monotonic() + limit_s
    while last not in arrivals and time.monotonic() < deadline:
        messages = consumer.consume(500, timeout=0.002)
        now = time.time()
        for message in messages:
            found = ID.search(message.key() or b"") or ID.search(message.value() or b"")
            if message.error() is None and found and int(found[1]) > after:
                arrivals.setdefault(int(found[1]), now)
    consumer.close()
    return arrivals


def waits_ms(writer, arrivals, before):
    """Sorted: from the moment the writer's COMMIT returned to the consumer, of each row behind the warm-up. The row's id
    joins the two."""
    start = writer.commits[0] + WARM_UP_S
    waits = []
    for row, arrival in arrivals.items():
        commit = writer.commits[(row - before - 1) // writer.size]
        if commit >= start:
            waits.append(max(0.0, arrival - commit) * 1000)
    return sorted(waits)
