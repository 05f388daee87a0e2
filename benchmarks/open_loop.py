"""Rows at a fixed rate, whoever reads them: an open loop. And how long each took to a consumer."""

import datetime
import re
import threading
import time
from array import array

from consume import as_they_come, consumer_of
from mixes import INSERT_SEVEN_COLUMNS

ROWS_PER_TRANSACTION = 10
WARM_UP_S = 2


def id_called(name):
    """Where a row's key of that name is in a key or a value."""
    return re.compile(rb'"%s"\s*:\s*(\d+)' % name.encode())


ID = id_called("id")
FOLLOWED = 1_000_000  # of more rows, every n-th is followed; all must arrive


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


def percentiles_ms(pairs):
    waits = sorted(max(0.0, arrival - commit) * 1000 for commit, arrival in pairs)
    return {f"p{share}_ms": percentile(waits, share / 100) for share in (50, 90, 99, 99.9)} | {"max_ms": waits[-1]}


class Follower:
    """Reads a topic until each of the writer's rows, whose ids come after `before`, has arrived."""

    def __init__(self, topic, before, rows):
        self.topic, self.before, self.step = topic, before, -(-rows // FOLLOWED)
        self.missing, self.left = bytearray(b"\1") * rows, rows
        self.rows, self.times = array("q"), array("d")

    def follow(self, limit_s):
        consumer = consumer_of([(self.topic, 0)])
        for message, now in as_they_come(consumer, limit_s):
            found = ID.search(message.key() or b"") or ID.search(message.value() or b"")
            row = int(found[1]) - self.before - 1 if found else -1
            if 0 <= row < len(self.missing) and self.missing[row]:
                self.missing[row], self.left = 0, self.left - 1
                if row % self.step == 0:
                    self.rows.append(row)
                    self.times.append(now)
                if self.left == 0:
                    break
        consumer.close()

    def pairs(self, writer):
        """(commit, arrival) of the rows after the warm-up, in order of commits: from the moment the writer's COMMIT returned."""
        start = writer.commits[0] + WARM_UP_S
        found = sorted((row, arrival) for row, arrival in zip(self.rows, self.times))
        return [(commit, arrival) for commit, arrival in ((writer.commits[row // writer.size], arrival) for row, arrival in found)
                if commit >= start]


class Arrivals(threading.Thread):
    """Reads pgbench's history as it comes: (begin of the transaction, arrival) of each line."""

    MTIME = re.compile(rb'"mtime"\s*:\s*"?([^",}]+)')

    def __init__(self, topic):
        super().__init__(daemon=True)
        self.topic, self.pairs, self.ends = topic, [], threading.Event()
        self.start()

    @staticmethod
    def seconds(text):
        """Of a timestamp without a zone, by a server whose zone is UTC: µs, or ISO 8601."""
        return int(text) / 1e6 if text.isdecimal() else datetime.datetime.fromisoformat(text.removesuffix("Z") + "+00:00").timestamp()

    def run(self):
        consumer = consumer_of([(self.topic, 0)])
        while not self.ends.is_set():
            for message, now in as_they_come(consumer, 0.2):
                self.pairs.append((self.seconds(self.MTIME.search(message.value())[1].decode()), now))
        consumer.close()

    def all(self, count, limit_s):
        """In order of their transactions, once so many are there; or fewer after that time."""
        deadline = time.monotonic() + limit_s
        while len(self.pairs) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        self.ends.set()
        self.join()
        return sorted(self.pairs)
