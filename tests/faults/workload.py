"""Writers whose every committed row can be accounted for.

`ledger` is written once and never changed: each row says of which transaction it is and how many rows that has.
`acct` moves money: the sum is the same after each commit, and `ver` counts an account's changes. `churn` is inserted,
updated, deleted, and its keys change. What was rolled back carries a mark, and must never be seen."""

import random
import threading
import time

import psycopg

from ledger import PACE

ACCOUNTS = 40
MONEY = 1000 * ACCOUNTS
KEYS = 40  # of churn, for each writer
TABLES = ("ledger", "acct", "churn", "extra")
ROLLED_BACK = "rolled back"

SCHEMA = f"""
CREATE TABLE ledger (writer int, txno int, opno int, nops int, payload text, PRIMARY KEY (writer, txno, opno));
CREATE TABLE acct (id int PRIMARY KEY, ver bigint, bal bigint, filler text);
ALTER TABLE acct ALTER filler SET STORAGE EXTERNAL;
CREATE TABLE churn (k int PRIMARY KEY, v text);
CREATE TABLE extra (id serial PRIMARY KEY, v text);
INSERT INTO acct SELECT g, 0, 1000, NULL FROM generate_series(1, {ACCOUNTS}) g;
"""


class Journal:
    """What a writer knows of its transactions: {(writer, txno): rows}, kept apart from the database."""

    def __init__(self):
        self.committed = {}  # the server said so
        self.unknown = {}    # the connection broke while it was asked to commit
        self.rolled_back = {}


class Writer(threading.Thread):
    def __init__(self, dsn, number, seed, workload, slow):
        super().__init__(daemon=True)
        self.dsn, self.number, self.workload, self.slow = dsn, number, workload, slow
        self.chance = random.Random(f"{seed} {number}")
        self.journal = Journal()
        self.txno = 0
        self.connection = None
        self.failure = None

    def run(self):
        try:
            while not self.workload.stopping.is_set():
                rows = 0 if self.workload.resting else self._transaction()
                time.sleep(self.chance.uniform(0, 0.15) + (rows / PACE if PACE else 0))
        except Exception as error:  # pylint: disable=broad-except # told by Workload.finish
            self.failure = error
        finally:
            if self.connection is not None:
                self.connection.close()

    def _transaction(self):
        """How many rows it tried to write."""
        self.txno += 1
        identity = (self.number, self.txno)
        rows = self.chance.choice([1, 1, 3, 10, 30, 100, self.chance.randint(1, 1000)])
        give_up = self.chance.random() < 0.1
        committing = False
        try:
            if self.connection is None:
                self.connection = psycopg.connect(self.dsn, connect_timeout=10)
            cursor = self.connection.cursor()
            self._changes(cursor, rows, ROLLED_BACK if give_up else "row")
            if give_up:
                self.connection.rollback()
                self.journal.rolled_back[identity] = rows
                return rows
            committing = True
            self.connection.commit()
            self.journal.committed[identity] = rows
        except psycopg.errors.DeadlockDetected:
            self.connection.rollback()
            self.journal.rolled_back[identity] = rows
        except psycopg.OperationalError:
            (self.journal.unknown if committing else self.journal.rolled_back)[identity] = rows
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            time.sleep(0.1)
        return rows

    def _changes(self, cursor, rows, mark):
        """`rows` rows of ledger in one to three statements, and other work between them."""
        parts = min(rows, self.chance.choice([1, 1, 2, 3]))
        first = 1
        for part in range(parts):
            last = rows if part == parts - 1 else first + rows // parts - 1
            if self.chance.random() < 0.3:
                self._aborted(cursor)
            nested = self.chance.random() < 0.2
            if nested:
                cursor.execute("SAVEPOINT kept")
            cursor.execute("INSERT INTO ledger SELECT %s, %s, g, %s, %s || repeat('x', 40) "
                           "FROM generate_series(%s::int, %s::int) g",
                           [self.number, self.txno, rows, mark, first, last])
            if nested:
                cursor.execute("RELEASE SAVEPOINT kept")
            first = last + 1
            if self.slow:
                time.sleep(self.chance.uniform(0, 0.7))
        # Late and briefly, so that the locks of rows that all writers share are not held for long.
        if self.chance.random() < 0.5:
            self._churn(cursor, mark)
        if self.chance.random() < 0.5:
            self._transfer(cursor)

    def _aborted(self, cursor):
        """Subtransactions whose rows must not be seen."""
        cursor.execute("SAVEPOINT outer_one")
        cursor.execute("INSERT INTO ledger SELECT %s, %s, -g, 0, %s FROM generate_series(1, 5) g",
                       [self.number, self.txno, ROLLED_BACK])
        cursor.execute("SAVEPOINT inner_one")
        cursor.execute("INSERT INTO ledger VALUES (%s, %s, -6, 0, %s)", [self.number, self.txno, ROLLED_BACK])
        cursor.execute("ROLLBACK TO SAVEPOINT outer_one")

    def _churn(self, cursor, mark):
        base = self.number * 1000
        key, other = base + self.chance.randrange(KEYS), base + self.chance.randrange(KEYS)
        action = self.chance.choice(["put", "put", "delete", "move"])
        if action == "put":
            cursor.execute("INSERT INTO churn (k, v) VALUES (%s, %s) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
                           [key, f"{mark} {self.txno}"])
        elif action == "delete":
            cursor.execute("DELETE FROM churn WHERE k = %s", [key])
        elif key != other:
            cursor.execute("DELETE FROM churn WHERE k = %s", [other])
            cursor.execute("UPDATE churn SET k = %s WHERE k = %s", [other, key])

    def _transfer(self, cursor):
        low, high = sorted(self.chance.sample(range(1, ACCOUNTS + 1), 2))
        amount = self.chance.randint(-50, 50)
        filler = f"{self.txno:08d}" * 500 if self.chance.random() < 0.2 else None
        cursor.execute("UPDATE acct SET ver = ver + 1, bal = bal - %s, filler = coalesce(%s, filler) WHERE id = %s",
                       [amount, filler, low])
        cursor.execute("UPDATE acct SET ver = ver + 1, bal = bal + %s WHERE id = %s", [amount, high])


class Workload:
    """`count` writers, the last of them slow: its transactions stay open while others begin and commit."""

    def __init__(self, dsn, seed, count=4):
        self.stopping = threading.Event()
        self.resting = False
        self.writers = [Writer(dsn, w, seed, self, w == count - 1) for w in range(count)]

    def start(self):
        for writer in self.writers:
            writer.start()
        return self

    def rest(self, whether):
        """No new transactions for now."""
        self.resting = whether

    def finish(self):
        self.stopping.set()
        for writer in self.writers:
            writer.join(120)
            assert not writer.is_alive(), "a writer does not end"
            if writer.failure is not None:
                raise writer.failure

    def journals(self):
        return [writer.journal for writer in self.writers]
