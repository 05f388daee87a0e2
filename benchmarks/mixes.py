"""What a backlog is made of. A mix says which tables there are, how they are filled, and what a reader must deliver."""

import os
import subprocess

ROWS_PER_TRANSACTION = 10000

# The seven-column table of Outboxx's own benchmark.
TABLE = """
CREATE TABLE {name} (
    id bigserial PRIMARY KEY,
    account_id bigint NOT NULL,
    amount numeric(20,6) NOT NULL,
    payload text NOT NULL,
    attributes jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now());
ALTER TABLE {name} REPLICA IDENTITY FULL;
CREATE INDEX ON {name} (account_id);
CREATE INDEX ON {name} (created_at)"""

INSERT = """
INSERT INTO {name} (account_id, amount, payload, attributes)
SELECT (g * 7919) %% 100000, (g %% 1000000) / 100.0, {payload},
       jsonb_build_object('n', g, 'kind', 'bench')
FROM generate_series(%s::bigint, %s::bigint) g"""

PAYLOAD_128 = "rpad(md5(g::text), 128, md5((g + 1)::text))"
# 4 KiB that no compression makes much smaller; 2 KiB are where PostgreSQL moves a value out of line.
PAYLOAD_4K = "(SELECT string_agg(md5((g * 131 + i)::text), '') FROM generate_series(1, 128) i)"

INSERT_SEVEN_COLUMNS = INSERT.format(name="benchmark_records", payload=PAYLOAD_128)


def blocks(count, size):
    """(first, last) of each run of `size` numbers, from 1 on."""
    for begin in range(0, count, size):
        yield begin + 1, min(begin + size, count)


class Inserts:
    """One table, inserts in transactions of 10,000 rows."""
    tables = ("benchmark_records",)
    partitions = 1
    payload = PAYLOAD_128
    rows_per_transaction = ROWS_PER_TRANSACTION
    keys = {}  # of a table whose key is not called id: its name

    def __init__(self, rows):
        self.rows = rows

    def records(self, rows):
        """Kafka records of so many changes: one for each, and tombstones."""
        return rows

    def make(self, connection):
        for name in self.tables:
            connection.execute(TABLE.format(name=name))

    def prepare(self, connection):
        """Rows that are there before the slot is."""

    def fill(self, connection):
        """After each transaction: how many changes there are, and an id. What comes later changes no row up to that."""
        for first, last in blocks(self.rows, self.rows_per_transaction):
            connection.execute(INSERT.format(name=self.tables[0], payload=self.payload), [first, last])
            yield last, last

    def touch(self, connection):
        """A change of each table that is followed."""
        connection.execute(INSERT_SEVEN_COLUMNS, [1, 1])

    def there(self, connection, after=0):
        """(table, id) of the rows that are there in the end, of those behind an id."""
        return {(table, row) for table in self.tables
                for (row,) in connection.execute(f"SELECT id FROM {table} WHERE id > %s", [after])}


class Mixed(Inserts):
    """50 % inserts, 40 % updates and 10 % deletes of what the transaction before inserted."""
    half = ROWS_PER_TRANSACTION // 2

    def __init__(self, rows):
        super().__init__(max(1, rows // ROWS_PER_TRANSACTION) * ROWS_PER_TRANSACTION)

    def records(self, rows):
        """A delete is followed by its tombstone."""
        return rows + rows // 10

    def insert(self, connection, block):
        connection.execute(INSERT_SEVEN_COLUMNS, [block * self.half + 1, (block + 1) * self.half])

    def prepare(self, connection):
        self.insert(connection, 0)

    def fill(self, connection):
        for block in range(1, self.rows // ROWS_PER_TRANSACTION + 1):
            before = (block - 1) * self.half
            with connection.transaction():
                self.insert(connection, block)
                connection.execute("UPDATE benchmark_records SET amount = amount + 1, updated_at = now() "
                                   "WHERE id > %s AND id <= %s", [before, before + self.half * 8 // 10])
                connection.execute("DELETE FROM benchmark_records WHERE id > %s AND id <= %s",
                                   [before + self.half * 8 // 10, before + self.half])
            yield block * ROWS_PER_TRANSACTION, block * self.half


class Wide(Inserts):
    """Rows of 4 KiB."""
    payload = PAYLOAD_4K
    rows_per_transaction = 1000

    def __init__(self, rows):
        super().__init__(max(1, rows // 10))


class Tables(Inserts):
    """A hundred tables; each transaction inserts a row into each."""
    tables = tuple(f"benchmark_{n}" for n in range(100))

    def __init__(self, rows):
        super().__init__(max(1, rows // len(self.tables)) * len(self.tables))

    def fill(self, connection):
        inserts = [f"{name} AS ({INSERT.format(name=name, payload=self.payload)})" for name in self.tables]
        for block in blocks(self.rows // len(self.tables), 1):
            connection.execute(f"WITH {', '.join(inserts)} SELECT", list(block) * len(self.tables), prepare=True)
            yield block[1] * len(self.tables), block[1]


class Two(Inserts):
    """Two tables, in transactions in turns."""
    tables = ("benchmark_0", "benchmark_1")

    def __init__(self, rows):
        super().__init__(max(1, rows // (2 * ROWS_PER_TRANSACTION)) * 2 * ROWS_PER_TRANSACTION)

    def prepare(self, connection):
        """Changes are decoded with the publications that were there with them."""
        for name in self.tables:
            connection.execute(f"CREATE PUBLICATION {name} FOR TABLE {name}")

    def fill(self, connection):
        for at, (first, last) in enumerate(blocks(self.rows, self.rows_per_transaction)):
            connection.execute(INSERT.format(name=self.tables[at % 2], payload=self.payload), [first, last])
            yield last, 0


class Small(Inserts):
    """Transactions of ten rows, as applications write them."""
    rows_per_transaction = 10


class Transaction(Inserts):
    """All rows in one transaction."""

    @property
    def rows_per_transaction(self):
        return self.rows


class Partitions(Inserts):
    """A topic of twelve partitions."""
    partitions = 12


class Bank(Inserts):
    """pgbench's TPC-B, by pgbench itself: a transaction updates an account, a teller and a branch, and inserts a line of history."""
    script = "tpcb-like"
    tables = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history")
    keys = dict(zip(tables, ("aid", "tid", "bid", "aid")))
    changed = tables  # by a transaction, one row each
    scale, clients = 10, 4

    def __init__(self, rows):
        super().__init__(max(1, rows // len(self.changed)) * len(self.changed))

    def pgbench(self, connection, *options):
        """The program, with the standard scripts and options."""
        return subprocess.Popen([os.path.join(os.environ["MILLRACE_PG_BIN"], "pgbench"), *map(str, options), connection.info.dbname],
                                env={**os.environ, "PGHOST": connection.info.host, "PGPORT": str(connection.info.port),
                                     "PGUSER": connection.info.user, "PGPASSWORD": connection.info.password},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ended(self, process):
        said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"pgbench ended with {process.returncode}: {said}")

    def transactions(self, connection, count, *options):
        """So many, of several sessions."""
        clients = min(self.clients, count)
        for each, sessions in ((count // clients, clients), (count % clients, 1)):
            if each:
                self.ended(self.pgbench(connection, "-n", "-M", "prepared", "-b", self.script, "-c", sessions, "-t", each, *options))

    def make(self, connection):
        self.ended(self.pgbench(connection, "-i", "-q", "-s", self.scale))

    def fill(self, connection):
        count = self.rows // len(self.changed)
        first = count - max(1, count // 10)
        for part in (first, count - first):
            self.transactions(connection, part)
            (now,), = connection.execute("SELECT clock_timestamp()::timestamp::text")
            yield len(self.changed) * (first if part == first else count), now

    def touch(self, connection):
        self.transactions(connection, 1)

    def there(self, connection, after=0):
        """The rows that were changed; history has what each transaction did."""
        return {(table, row) for table in self.changed for (row,) in connection.execute(
            f"SELECT DISTINCT {self.keys[table]} FROM pgbench_history WHERE mtime > %s", [after or "-infinity"])}


class Accounts(Bank):
    """pgbench -N: the account and the line of history alone, so that no two wait for a branch."""
    script = "simple-update"
    changed = ("pgbench_accounts", "pgbench_history")


MIXES = {"insert": Inserts, "mixed": Mixed, "wide": Wide, "tables": Tables, "small": Small, "partitions": Partitions,
         "transaction": Transaction, "pgbench": Bank, "pgbench-n": Accounts}
