"""Concurrent writers whose rows can be counted, and the check that each arrived, in order."""

import os
import random
import threading
import time

import psycopg

from kit import dsn, eventually
from processes import peak_rss

TABLE = "CREATE TABLE t (writer int, n int, pad text, PRIMARY KEY (writer, n))"
# Rows a second of an endless writer: a fault that takes long is no larger for it. 0: as many as it can.
PACE = int(os.environ.get("MILLRACE_TEST_PACE", "400"))


class Writers:
    """Each writer inserts n = 1, 2, 3 … in transactions of different sizes, reconnecting when cut off."""

    def __init__(self, database, count=4, rows_each=None, seed=1):
        self.database, self.rows_each, self.seed = database, rows_each, seed
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(w,), daemon=True) for w in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def _write(self, writer):
        chance = random.Random(self.seed * 1000 + writer)
        done = 0
        connection = None
        while not self.stopping.is_set() and (self.rows_each is None or done < self.rows_each):
            rows = chance.choice([1, 1, 5, 50, 500])
            if self.rows_each is not None:
                rows = min(rows, self.rows_each - done)
            try:
                if connection is None:
                    connection = psycopg.connect(dsn(self.database.name, self.database.port), autocommit=True,
                                                 connect_timeout=10)
                    # A commit whose answer was lost may or may not have happened: the table knows.
                    done = connection.execute("SELECT coalesce(max(n), 0) FROM t WHERE writer = %s",
                                              [writer]).fetchone()[0]
                connection.execute("INSERT INTO t SELECT %s, g, repeat('x', 60) "
                                   "FROM generate_series(%s::int, %s::int) g", [writer, done + 1, done + rows])
                done += rows
            except psycopg.OperationalError:
                connection = None
                time.sleep(0.1)
            if self.rows_each is None:
                time.sleep(chance.random() * 0.02 + (rows / PACE if PACE else 0))
        if connection is not None:
            connection.close()

    def finish(self):
        """Waits for a bounded run, or ends an endless one."""
        if self.rows_each is None:
            self.stopping.set()
        for thread in self.threads:
            thread.join(240)
            assert not thread.is_alive()


def peak_rss_mb(process):
    peak = peak_rss(process.process.pid)
    assert peak > 0, "it has ended"
    return peak / 2**20


class Check:
    """What the topic holds against what the table holds."""

    def __init__(self, reader):
        self.reader = reader
        self.seen = {}       # writer -> highest n, when in order
        self.positions = {}  # position -> record text, to compare repeats
        self.highest = {}    # partition -> highest position
        self.repeats = self.wrong_order = self.changed_repeats = self.total = 0

    def _take(self, record):
        key = record.json_key
        if record.position in self.positions:
            self.repeats += 1
            self.changed_repeats += self.positions[record.position] != record.key
            return
        self.positions[record.position] = record.key
        self.wrong_order += record.position <= self.highest.get(record.partition, "")
        self.highest[record.partition] = record.position
        self.wrong_order += key["n"] != self.seen.get(key["writer"], 0) + 1
        self.seen[key["writer"]] = key["n"]
        self.total += 1

    def read_until(self, count, limit_s=120):
        """The limit is for the time in which nothing new arrives: how much was written is up to the machine."""
        before, since = self.total, time.monotonic()
        while self.total < count:
            for record in self.reader.read():
                self._take(record)
            if self.total > before:
                before, since = self.total, time.monotonic()
            assert time.monotonic() - since < limit_s, f"{self.total} of {count} rows came, then none for {limit_s} s"
        for record in self.reader.read(1):
            self._take(record)

    def expect_all(self, database, limit_s=120):
        rows = dict(database.run("SELECT writer, max(n) FROM t GROUP BY writer"))
        self.read_until(sum(rows.values()), limit_s)
        assert self.seen == rows
        assert self.wrong_order == 0 and self.changed_repeats == 0
        return self


def size(name, default):
    return int(os.environ.get(name, default))


def confirmed_past(database, lsn):
    """The slot has been confirmed up to a position."""
    return eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{lsn}'"), 30, f"confirmation of {lsn}")
