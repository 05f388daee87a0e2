"""What a backlog is made of. A mix says which tables there are, how they are filled, and what a reader must deliver."""

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

    def __init__(self, rows):
        self.rows = rows

    @property
    def records(self):
        """Kafka records: one for each row."""
        return self.rows

    def make(self, connection):
        for name in self.tables:
            connection.execute(TABLE.format(name=name))

    def prepare(self, connection):
        """Rows that are there before the slot is."""

    def fill(self, connection):
        for first, last in blocks(self.rows, self.rows_per_transaction):
            connection.execute(INSERT.format(name=self.tables[0], payload=self.payload), [first, last])


class Mixed(Inserts):
    """50 % inserts, 40 % updates and 10 % deletes of what the transaction before inserted."""
    half = ROWS_PER_TRANSACTION // 2

    def __init__(self, rows):
        super().__init__(max(1, rows // ROWS_PER_TRANSACTION) * ROWS_PER_TRANSACTION)

    @property
    def records(self):
        """A delete is followed by its tombstone."""
        return self.rows + self.rows // 10

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


MIXES = {"insert": Inserts, "mixed": Mixed, "wide": Wide, "tables": Tables, "small": Small, "partitions": Partitions,
         "transaction": Transaction}
