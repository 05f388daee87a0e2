"""Rows at a fixed rate, whoever reads them: an open loop. And how long each took to a consumer."""

import re
import threading
import time

from consume import as_they_come, consumer_of
from mixes import INSERT_SEVEN_COLUMNS

ROWS_PER_TRANSACTION = 10
WARM_UP_S = 2
ID = re.compile(rb'"id"\s*:\s*(\d+)')


class Writer(threading.Thread):
    """Commits at scheduled moments; a late one is not left out, so the rate holds on average."""

    def __init__(self, stand, rate, seconds, rows_per_transaction=ROWS_PER_TRANSACTION):
        super().__init__(daemon=True)
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


def follow_ids(topic, after, last, limit_s):
    """Arrival time of each row behind `after`, by its id."""
    consumer = consumer_of([(topic, 0)])
    arrivals = {}
    for message, now in as_they_come(consumer, limit_s):
        found = ID.search(message.key() or b"") or ID.search(message.value() or b"")
        if found and int(found[1]) > after:
            arrivals.setdefault(int(found[1]), now)
        if last in arrivals:
            break
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
