"""The workload of a seed: tables of all shapes and transactions of all shapes, as plain SQL.

A plan is what a run needs, and no more: statements to make the tables, the publication, and phases of steps. A step is
one statement of one session. Steps of one `unit` belong together (a transaction, mostly); a unit that fails is rolled back,
and what is left of it is passed over. So any part of a plan is a plan again, which is what shrink.py lives on.

Each writer's tables are its own, but for the shared ones: what it sees of its own tables at any moment is what the events up to
that moment make of them, also inside its transactions. That is why it may take a picture of them there (see execute.py)."""

import copy
import dataclasses
import os
import random

import values

FEATURES = ("messages", "origin", "ddl", "key-ddl", "identity-ddl", "publication-ddl", "rename", "drop", "drop-full", "prepared", "toast-key",
            "composite-order", "index-with-key", "swap", "encoding", "settings", "full", "no-key", "nothing", "truncate", "partitions",
            "names", "large", "filter", "schemas", "again", "generated", "virtual", "temporal", "not-valid", "nulls-not-distinct")
UNPUBLISHED_SCHEMAS = ("w",)  # markers and types; the marker table is published all the same

SETUP = """
CREATE SCHEMA w;
CREATE TABLE w.marker (n bigint PRIMARY KEY, xid bigint);
CREATE TYPE w.mood AS ENUM ('sad', 'so so', 'happy');
CREATE TYPE w.pair AS (a int, b text);
CREATE DOMAIN w.positive AS int CHECK (value > 0);
CREATE DOMAIN w.label AS text;
CREATE FUNCTION w.audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO %s (n, what) VALUES ($1, $2)', TG_ARGV[0]) USING coalesce(NEW.n, OLD.n), TG_OP;
  RETURN NULL;
END $$;
CREATE FUNCTION w.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := coalesce(NEW.n, 0) + 1; RETURN NEW; END $$;
"""

NAMES = ["plain", "Mixed Case", 'with "quote"', "dot.ted", "\u00fcn\u00efc\u00f6de", "select", "it's", "\u8868", "back\\slash", "per%cent", "$1", "a:b/c",
         "tab\tname", "new\nline", "\U0001f600", "-", "\u00fc" * 31, "z" * 60]
SCHEMAS = ["public", "Other Schema", "s\u00e4.x"]


def quote(name):
    return '"' + name.replace('"', '""') + '"'


@dataclasses.dataclass
class Step:
    session: str
    unit: int
    sql: str
    kind: str = "sql"      # or copy (with `data`), moment, ddl
    tables: tuple = ()     # of a moment, of a ddl: qualified names as they are after it
    data: str = ""


@dataclasses.dataclass
class Plan:
    seed: int
    options: dict
    setup: list            # statements
    publication: str
    phases: list           # lists of Steps
    threads: bool = False  # each session in a thread of its own; otherwise the steps one by one, in this order

    def units(self):
        return len({step.unit for phase in self.phases for step in phase})


@dataclasses.dataclass
class Column:
    name: str
    type: str
    generated: str = ""    # s: stored; v: virtual
    required: bool = False
    unvalidated: bool = False  # NOT NULL … NOT VALID, given when an index needs it

    @property
    def sql(self):
        return quote(self.name)


@dataclasses.dataclass
class Table:
    schema: str
    name: str
    columns: list
    key: list                 # names of the primary key's columns, in its order
    identity: str = "DEFAULT"
    index: list = dataclasses.field(default_factory=list)  # names of the identity index's columns
    deferrable: bool = False
    leaves: list = dataclasses.field(default_factory=list)  # qualified names of partitions
    bounds: list = dataclasses.field(default_factory=list)  # (leaf, FOR VALUES …) of those that are there now
    shared: bool = False
    published: bool = True
    fixed: bool = False       # no DDL: others depend on its form
    filter: str = ""          # row filter
    listed: tuple = ()        # column list
    had_hidden_key: bool = False  # under an identity that it had before
    temporal: bool = False    # the key's last column WITHOUT OVERLAPS
    chooses: bool = False     # PostgreSQL 18: publications choose whether they send generated columns, and an identity must be sent
    sent: str = ""            # which of them this one sends

    @property
    def key_is_streamed(self):
        """What was written under each of its identities says by itself which columns are the key."""
        return not self.had_hidden_key and (self.identity == "DEFAULT" and not self.deferrable or self.identity == "INDEX")

    @property
    def sql(self):
        return quote(self.schema) + "." + quote(self.name)

    def column(self, name):
        return next(column for column in self.columns if column.name == name)

    def names(self, columns):
        return ", ".join(quote(name) for name in columns)

    @property
    def row_key(self):
        """What tells rows apart: key or unique index."""
        return self.key or self.index

    def is_sent(self, column):
        return column.name in self.listed if self.listed else not column.generated or column.generated in self.sent

    def changeable(self):
        """Whether PostgreSQL lets rows be updated and deleted while the table is published."""
        held = {"FULL": [column.name for column in self.columns], "INDEX": self.index, "NOTHING": []}.get(
            self.identity, [] if self.deferrable else self.key)
        if not self.published or not held:
            return not self.published or self.identity == "FULL"
        if self.identity == "FULL" and self.listed:
            return False
        return not self.chooses or all(self.is_sent(column) for column in self.columns if column.name in held)

    def writable(self):
        return [column for column in self.columns if not column.generated]

    def others(self):
        return [column for column in self.writable() if column.name not in self.key and column.name not in self.index
                and not column.name.startswith("base")]


class Generator:
    """`scale`: about how many units a writer has. `without`: names of FEATURES that are left out. `version`: PostgreSQL's, of which
    some features are new."""

    def __init__(self, seed, scale=14, without=(), version=None):
        self.version = version or int(os.environ.get("MILLRACE_TEST_PG", "15"))
        self.chance = random.Random(f"wide {seed}")
        self.seed, self.scale, self.without = seed, scale, set(without)
        assert self.without <= set(FEATURES), f"features: {', '.join(FEATURES)}"
        self.number = 0   # of names
        self.unit = 0
        self.fresh = 5000  # keys that nobody has used
        self.setup = [SETUP]
        self.tables = {}  # writer -> tables
        self.open_prepared = []
        self.bases = set()  # of generated columns of a key
        self.schemas = []   # published whole
        self.again = f"Again {seed}" if "again" not in self.without and random.Random(f"again {seed}").random() < 0.4 else ""  # goes and comes back
        self.left = {}    # writer -> (schema, name) that its tables had
        self.options = {}
        self.enum_values = 0

    # ---- helpers ----

    def maybe(self, share):
        return self.chance.random() < share

    def has(self, feature):
        return feature not in self.without

    def pick(self, *weighted):
        """One of (weight, thing)."""
        return self.chance.choices([thing for _, thing in weighted], [weight for weight, _ in weighted])[0]

    def some(self, things, least=1):
        things = list(things)
        return self.chance.sample(things, self.chance.randint(min(least, len(things)), len(things)))

    def new_name(self, part="t"):
        self.number += 1
        if not self.has("names") or self.maybe(0.5):
            return f"{part}{self.number}"
        name = self.chance.choice(NAMES)
        number = str(self.number)
        while len((name + number).encode()) > 63:
            name = name[:-1]
        return name + number

    def names_63(self, name):
        """Made as long as a name may be."""
        return name + "_" * (63 - len(name.encode()))

    def schema(self):
        return self.pick((4, "public"), (1, SCHEMAS[1]), (1, SCHEMAS[2])) if self.has("names") else "public"

    def type(self):
        return self.chance.choice(list(values.VALUES))

    # ---- tables ----

    def prepare_plan(self):
        chance = self.chance
        for schema in SCHEMAS[1:]:
            self.setup.append(f"CREATE SCHEMA {quote(schema)}")
        if self.has("encoding") and self.maybe(0.06):
            self.options["encoding"] = "SQL_ASCII"
        if self.has("settings") and self.maybe(0.25):
            self.options["settings"] = self.some([
                "DateStyle = 'German, DMY'", "IntervalStyle = 'sql_standard'", "bytea_output = 'escape'", "extra_float_digits = -10",
                "TimeZone = 'Asia/Kolkata'", "quote_all_identifiers = on", "xmloption = 'document'", "lock_timeout = '1s'",
                "array_nulls = off", "default_transaction_isolation = 'serializable'", "search_path = 'w'",
                "default_transaction_read_only = off", "standard_conforming_strings = off", "client_min_messages = 'debug1'"])
        self.options["partitions"] = chance.choice([1, 2, 3])
        self.options["via_root"] = self.maybe(0.5)
        self.options["name_roots"] = self.maybe(0.5)
        self.options["origin"] = self.has("origin") and self.maybe(0.08)
        self.options["messages"] = self.has("messages") and self.maybe(0.6)
        # Which of them millrace is to pass on: all, some, none.
        self.options["prefixes"] = self.pick((3, ["*"]), (1, ["x", "\u00fc \"q\""]), (1, [])) if self.options["messages"] else []
        self.options["small_batches"] = self.maybe(0.5)
        self.options["generated"] = self.chooses and self.has("generated") and self.maybe(0.5)
        # Schemas that are published whole, those that tables come to later among them; tables of the others are named.
        self.schemas = self.some(["public", *SCHEMAS[1:]]) if self.has("schemas") and self.maybe(0.15) else []
        writers = chance.choice([1, 2, 3])
        for number in range(1, writers + 1):
            writer = f"w{number}"
            self.tables[writer] = []
            for _ in range(chance.choice([2, 3, 4])):
                self.make_table(writer)
            if self.again and self.has("drop"):
                self.shape_again(writer)
        if self.options.get("encoding"):
            self.make_bytes_table("w1")
        shared = self.plain_table("shared", [Column("k", "int4"), Column("n", "int4"), Column("v", "text")], ["k"])
        shared.shared = shared.fixed = True
        self.setup.append(self.create(shared))
        self.shared = shared

    def plain_table(self, part, columns, key=(), **fields):
        name = self.new_name(part)
        if self.has("names") and self.maybe(0.15):
            name = self.names_63(name)
        return Table(self.schema(), name, columns, list(key), chooses=self.chooses, sent="s" if self.options["generated"] else "", **fields)

    @property
    def chooses(self):
        return self.version >= 18

    def make_table(self, writer):
        shapes = [(4, self.shape_simple), (3, self.shape_composite), (2, self.shape_wide), (2, self.shape_generated), (1, self.shape_parent),
                  (1, self.shape_audit), (1, self.shape_inherits), (0.5, self.shape_bare)]
        if self.has("filter"):
            shapes += [(0.7, self.shape_filtered), (0.7, self.shape_listed)]
        if self.has("generated") and self.chooses and (self.options["generated"] or not self.schemas):
            shapes.append((1, self.shape_generated_key))
        if self.has("temporal") and self.version >= 18:
            shapes.append((2, self.shape_temporal))
        if self.has("no-key"):
            shapes.append((2, self.shape_no_key))
        if self.has("full"):
            shapes += [(3, self.shape_full), (1.5, self.shape_deferrable)]
        if self.has("toast-key"):
            shapes.append((2, self.shape_toast_key))
        if self.has("index-with-key"):
            shapes.append((2, self.shape_index))
        if self.has("nothing"):
            shapes.append((1, self.shape_nothing))
        if self.has("partitions"):
            shapes.append((3, self.shape_partitioned))
        self.pick(*shapes)(writer)

    def other_columns(self, low=1, high=6):
        return [Column("n", "int4")] + [Column(self.new_name("c"), self.type()) for _ in range(self.chance.randint(low, high))]

    def key_column(self, types=None):
        return Column(self.new_name("k"), self.chance.choice(types or list(values.KEYS)), required=True)

    def add(self, writer, table, *more):
        """Makes it; with a column dropped before anybody wrote to it, now and then."""
        self.setup.append(self.create(table))
        if self.maybe(0.25) and not table.leaves:
            self.setup.append(f"ALTER TABLE {table.sql} ADD COLUMN gone int")
            self.setup.append(f"ALTER TABLE {table.sql} DROP COLUMN gone, ADD COLUMN {quote('later' + str(self.number))} text DEFAULT 'd'")
            table.columns.append(Column("later" + str(self.number), "text"))
        for column in table.columns:
            if column.type in values.LARGE and self.maybe(0.4):
                self.setup.append(f"ALTER TABLE {table.sql} ALTER {column.sql} SET STORAGE {self.chance.choice(['EXTERNAL', 'MAIN', 'EXTENDED'])}")
        self.setup += more
        self.tables[writer].append(table)

    def create(self, table):
        parts = []
        for column in table.columns:
            text = f"{column.sql} {column.type}"
            if column.generated:
                text += " " + self.generation(table, column)
            if column.required and column.name not in table.key and not column.unvalidated:
                text += " NOT NULL"
            parts.append(text)
        if table.key:
            parts.append(f"PRIMARY KEY ({table.names(table.key)}{' WITHOUT OVERLAPS' if table.temporal else ''})"
                         + (" DEFERRABLE INITIALLY IMMEDIATE" if table.deferrable else ""))
        text = f"CREATE TABLE {table.sql} ({', '.join(parts)})"
        if table.identity in ("FULL", "NOTHING"):
            text += f"; ALTER TABLE {table.sql} REPLICA IDENTITY {table.identity}"
        elif table.identity == "INDEX":
            text += self.identity_by_index(table)
        return text

    def generation(self, table, column):
        """Of what a number makes too; of a key by what tells rows apart."""
        of = "n * 2" if column.name not in table.key + table.index else f"{next(c.sql for c in table.columns if c.name in self.bases)} + 1"
        return f"GENERATED ALWAYS AS ({of}) {'VIRTUAL' if column.generated == 'v' else 'STORED'}"

    def kind_of_generated(self):
        return "v" if self.version >= 18 and self.has("virtual") and self.maybe(0.4) else "s"

    def identity_by_index(self, table):
        self.number += 1
        free = [column for column in table.columns if column.name == "n" and "n" not in table.index]
        also = ' INCLUDE ("n")' if free and self.maybe(0.3) else ""
        also += " NULLS NOT DISTINCT" if self.has("nulls-not-distinct") and self.maybe(0.3) else ""
        text = "".join(f"; ALTER TABLE {table.sql} ADD CONSTRAINT {quote(f'given{self.number} {at}')} NOT NULL {column.sql} NOT VALID"
                       for at, column in enumerate(table.columns) if column.name in table.index and column.unvalidated)
        for column in table.columns:
            column.unvalidated = column.unvalidated and column.name not in table.index
        return (f"{text}; CREATE UNIQUE INDEX ident{self.number} ON {table.sql} ({table.names(table.index)}){also};"
                f" ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX ident{self.number}")

    def shape_simple(self, writer):
        key = self.key_column()
        columns = self.other_columns()
        columns.insert(self.chance.randint(0, len(columns)), key)
        self.add(writer, self.plain_table("t", columns, [key.name]))

    def composite_key(self, columns):
        keys = [self.key_column() for _ in range(self.chance.choice([2, 2, 3]))]
        for key in keys:
            columns.insert(self.chance.randint(0, len(columns)), key)
        names = [key.name for key in keys]
        if self.has("composite-order"):
            self.chance.shuffle(names)
        else:
            names.sort(key=[column.name for column in columns].index)
        return names

    def shape_again(self, writer):
        """Its schema, which nothing else is in, is dropped and made again with it now and then."""
        schema = f"{self.again} {writer}"
        self.setup.append(f"CREATE SCHEMA {quote(schema)}")
        table = Table(schema, "t", [*self.other_columns(), self.key_column(["int8", "text"])], [], chooses=self.chooses,
                      sent="s" if self.options["generated"] else "")
        table.key, table.fixed = [table.columns[-1].name], True
        self.add(writer, table)

    def shape_composite(self, writer):
        columns = self.other_columns()
        key = self.composite_key(columns)
        self.add(writer, self.plain_table("comp", columns, key, identity="FULL" if self.has("full") and self.maybe(0.3) else "DEFAULT"))

    def shape_no_key(self, writer):
        identity = self.pick((2, "FULL"), (1, "DEFAULT"), (1, "NOTHING"))
        self.add(writer, self.plain_table("nokey", self.other_columns(), identity=identity))

    def shape_full(self, writer):
        key = self.key_column()
        columns = self.other_columns() + [key]
        self.chance.shuffle(columns)
        self.add(writer, self.plain_table("full", columns, [key.name], identity="FULL"))

    def shape_deferrable(self, writer):
        columns = [Column("id", "int4", required=True), *self.other_columns()]
        self.add(writer, self.plain_table("swap", columns, ["id"], identity="FULL", deferrable=True))

    def shape_toast_key(self, writer):
        key = Column("id", "text", required=True)
        columns = [key, *self.other_columns(1, 3)]
        names = ["id"]
        if self.maybe(0.4):
            columns.insert(0, Column("part", "int4", required=True))
            names.insert(self.chance.randint(0, 1), "part")
        table = self.plain_table("toastkey", columns, names, identity=self.pick((3, "DEFAULT"), (1, "FULL")))
        table.fixed = True
        self.add(writer, table, f"ALTER TABLE {table.sql} ALTER id SET STORAGE EXTERNAL")

    def shape_index(self, writer):
        columns = self.other_columns()
        code = [self.key_column() for _ in range(self.chance.choice([1, 1, 2]))]
        columns += code
        if self.version >= 18 and self.has("not-valid") and self.maybe(0.3):
            code[0].unvalidated = True
        key = []
        if self.maybe(0.6):
            key = [self.key_column()]
            columns += key
        self.chance.shuffle(columns)
        if self.maybe(0.5):
            code.reverse()
        self.add(writer, self.plain_table("ident", columns, [column.name for column in key], identity="INDEX",
                                          index=[column.name for column in code]))

    def shape_nothing(self, writer):
        key = self.key_column()
        self.add(writer, self.plain_table("nothing", [key, *self.other_columns()], [key.name], identity="NOTHING"))

    def shape_wide(self, writer):
        """A column of each type, and a key of any."""
        key = self.key_column()
        columns = [Column("n", "int4"), *(Column(f"of {name}"[:50], name) for name in values.VALUES), key]
        table = self.plain_table("wide", columns, [key.name], identity="FULL" if self.has("full") and self.maybe(0.3) else "DEFAULT")
        if self.has("filter") and self.maybe(0.3):
            table.listed = tuple([key.name, "n", *(column.name for column in self.some(columns) if column.name not in (key.name, "n"))])
            table.identity, table.fixed = "DEFAULT", True
        self.add(writer, table)

    def shape_generated(self, writer):
        key = self.key_column()
        columns = [key, *self.other_columns(), Column("twice", "int8", generated=self.kind_of_generated()), Column("behind", "text")]
        if self.version >= 18 and self.maybe(0.3):
            columns.append(Column("more twice", "int8", generated=self.kind_of_generated()))
        table = self.plain_table("gen", columns, [key.name])
        if self.has("filter") and self.has("full") and self.maybe(0.3) and (not self.chooses or all(map(table.is_sent, columns))):
            table.filter, table.identity, table.fixed = "n > 5", "FULL", True
        elif self.has("filter") and self.chooses and self.maybe(0.3):  # listed, it is sent whatever the publication says
            table.listed, table.fixed = tuple([key.name, "n", "behind", *(c.name for c in columns if c.generated == "s")]), True
        self.add(writer, table)

    def shape_generated_key(self, writer):
        """A generated column in the key, or in the index that is the identity, and sent."""
        base = Column(f"base{self.number}", "int4", required=True)
        made = Column(f"made{self.number}", "int4", generated="s", required=True)
        self.bases.add(base.name)
        columns = [made, *self.other_columns(1, 3), base]
        self.chance.shuffle(columns)
        by_index = self.has("index-with-key") and self.maybe(0.5)
        names = [made.name, base.name] if self.maybe(0.4) else [made.name]
        table = self.plain_table("genkey", columns, () if by_index else names, identity="INDEX" if by_index else "DEFAULT",
                                 index=names if by_index else [])
        table.listed = () if self.options["generated"] else tuple(column.name for column in columns)
        table.fixed = True
        self.add(writer, table)

    def shape_filtered(self, writer):
        """Rows that come and go as they begin and cease to fit; by the key alone where no more is known of old rows."""
        key = self.key_column(["int4", "int8", "text"])
        columns = [key, *self.other_columns(), Column("flag", "bool")]
        table = self.plain_table("filtered", columns, [key.name], identity="FULL" if self.has("full") and self.maybe(0.7) else "DEFAULT")
        one = values.key(key.type, 5)
        table.filter = self.chance.choice(["n % 2 = 0", "flag", "flag IS NOT TRUE AND n < 8", f"{key.sql} < {one} OR n IS NULL"]) \
            if table.identity == "FULL" else f"{key.sql} <> {one}"
        table.fixed = True
        self.add(writer, table)

    def shape_listed(self, writer):
        """Some columns only; with FULL no row of it can be updated."""
        key = self.key_column()
        columns = [key, *self.other_columns(2)]
        self.chance.shuffle(columns)
        table = self.plain_table("listed", columns, [key.name], identity="FULL" if self.has("full") and self.maybe(0.2) else "DEFAULT")
        table.listed = tuple([key.name, "n", *(column.name for column in self.some(columns) if column.name not in (key.name, "n"))])
        table.fixed = True
        self.add(writer, table)

    def shape_temporal(self, writer):
        """A key of which a part is a time: two rows' may not overlap."""
        columns = self.other_columns()
        keys = [Column(self.new_name("k"), "int4range", required=True) for _ in range(self.chance.choice([2, 2, 3]))]
        for key in keys:
            columns.insert(self.chance.randint(0, len(columns)), key)
        self.add(writer, self.plain_table("temporal", columns, [key.name for key in keys], temporal=True,
                                          identity="FULL" if self.has("full") and self.maybe(0.3) else "DEFAULT"))

    def shape_parent(self, writer):
        """A table and its child, whose rows go with it."""
        parent = self.plain_table("parent", [Column("id", "int4", required=True), Column("n", "int4"), Column("v", "text")], ["id"])
        child = self.plain_table("child", [Column("id", "int4", required=True), Column("n", "int4"), Column("v", "text")], ["id"],
                                 identity="FULL" if self.has("full") and self.maybe(0.5) else "DEFAULT")
        parent.fixed = child.fixed = True
        self.add(writer, parent)
        self.add(writer, child, f"ALTER TABLE {child.sql} ADD COLUMN parent int REFERENCES {parent.sql} ON DELETE CASCADE "
                 "ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED")
        child.columns.append(Column("parent", "int4"))

    def shape_audit(self, writer):
        """Triggers: one that changes the row, and one that writes to another table."""
        audit = self.plain_table("audit", [Column("n", "int4"), Column("what", "text")], identity="DEFAULT")
        audit.fixed = True
        key = self.key_column()
        table = self.plain_table("audited", [key, *self.other_columns()], [key.name])
        self.add(writer, audit)
        argument = values.literal(audit.sql, "text")[:-6]
        self.add(writer, table,
                 f"CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON {table.sql} FOR EACH ROW EXECUTE FUNCTION w.audit({argument})",
                 f"CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON {table.sql} FOR EACH ROW EXECUTE FUNCTION w.touch()")

    def shape_inherits(self, writer):
        key = self.key_column()
        table = self.plain_table("base", [key, *self.other_columns(1, 3)], [key.name])
        table.fixed = True
        self.add(writer, table)
        heir = self.plain_table("heir", [*table.columns, Column("own", "text")], [key.name])
        heir.fixed = True
        self.setup.append(f"CREATE TABLE {heir.sql} (own text, PRIMARY KEY ({key.sql})) INHERITS ({table.sql})")
        self.tables[writer].append(heir)

    def shape_bare(self, writer):
        """Columns of the key alone, or none at all."""
        if self.maybe(0.5):
            key = self.key_column()
            self.add(writer, self.plain_table("bare", [key], [key.name]))
        else:
            table = self.plain_table("empty", [])
            table.fixed = True
            self.setup.append(self.create(table))
            self.tables[writer].append(table)

    def shape_partitioned(self, writer):
        """By range, list or hash, one leaf with its columns in another order."""
        part = Column("part", "int4", required=True)
        columns = [part, *self.other_columns(1, 4)]
        key = ["part"]
        identity = "DEFAULT"
        if self.maybe(0.7):
            more = self.key_column()
            columns.append(more)
            key.insert(self.chance.randint(0, 1), more.name)
        elif self.has("full"):
            key, identity = [], "FULL"
        self.chance.shuffle(columns)
        table = self.plain_table("part", columns, key, identity=identity)
        table.fixed = True
        how = self.chance.choice(["RANGE", "LIST", "HASH"])
        forms = {"RANGE": ["FOR VALUES FROM (MINVALUE) TO (4)", "FOR VALUES FROM (4) TO (7)", "FOR VALUES FROM (7) TO (MAXVALUE)"],
                 "LIST": ["FOR VALUES IN (0, 1, 2, 3)", "FOR VALUES IN (4, 5, 6)", "DEFAULT"],
                 "HASH": [f"FOR VALUES WITH (MODULUS 3, REMAINDER {r})" for r in range(3)]}[how]
        self.setup.append(self.create(dataclasses.replace(table, identity="DEFAULT")) + f" PARTITION BY {how} (part)"
                          + ("; ALTER TABLE " + table.sql + " REPLICA IDENTITY FULL" if identity == "FULL" else ""))
        for number, form in enumerate(forms):
            leaf = dataclasses.replace(table, name=f"{self.new_name('leaf')}", columns=list(columns), leaves=[])
            if number == 1:
                self.chance.shuffle(leaf.columns)
                self.setup.append(f"CREATE TABLE {leaf.sql} (gone int, {', '.join(f'{c.sql} {c.type}' + (' NOT NULL' if c.required else '') for c in leaf.columns)})")
                self.setup.append(f"ALTER TABLE {leaf.sql} DROP COLUMN gone")
                self.setup.append(f"ALTER TABLE {table.sql} ATTACH PARTITION {leaf.sql} {form}")
            else:
                self.setup.append(f"CREATE TABLE {leaf.sql} PARTITION OF {table.sql} {form}")
            if identity == "FULL":
                self.setup.append(f"ALTER TABLE {leaf.sql} REPLICA IDENTITY FULL")
            table.leaves.append(leaf.sql)
            table.bounds.append((leaf.sql, form))
        self.tables[writer].append(table)

    def make_bytes_table(self, writer):
        """In a database without encoding: keys and values of bytes that are not UTF-8."""
        table = self.plain_table("bytes", [Column("k", "text", required=True), Column("n", "int4"), Column("v", "text")], ["k"])
        table.name = f"bytes{self.number}"
        table.fixed = True
        self.add(writer, table)
        self.bytes_table = table

    # ---- statements: each answers the text, or None if the table is not for it ----

    def key_number(self):
        return self.chance.randint(1, 8)

    def key_value(self, table, column, number):
        if column.name == "id" and column.type == "text" and table.name.startswith("toastkey") or (
                column.type == "text" and column.name == "id"):
            return f"repeat('k{number}', 1250)" if number % 3 else f"'k{number}'"
        if table is getattr(self, "bytes_table", None) and column.name == "k":
            return f"convert_from('\\x{255 - number % 60:02x}'::bytea, 'SQL_ASCII')"
        if column.name == "part":
            return str(number % 10)
        return values.key(column.type, number)

    def row(self, table, numbers=None):
        """(columns, values) of a new row; `numbers`: one for each column of the row key."""
        columns, texts = [], []
        numbers = numbers or [self.key_number() for _ in range(8)]
        wanted = [column for column in table.writable()]
        for column in wanted:
            if column.name in table.key or column.name in table.index:
                at = (table.key + table.index).index(column.name)
                text = self.key_value(table, column, numbers[at])
            elif column.name == "n":
                text = str(self.chance.randint(0, 9))
            elif column.name == "parent":
                text = str(self.key_number())
            elif column.name in self.bases:
                text = str(numbers[0])
            elif self.maybe(0.15) and not column.required:
                continue  # its default
            else:
                text = values.value(self.chance, column.type, nullable=not column.required)
            columns.append(column.sql)
            texts.append(text)
        return columns, texts

    def insert(self, table, rows=1):
        if not table.columns:
            return f"INSERT INTO {table.sql} DEFAULT VALUES"
        columns, first = self.row(table)
        if not columns:
            return f"INSERT INTO {table.sql} DEFAULT VALUES"
        tuples = [first]
        by_name = {column.sql: column for column in table.columns}
        for _ in range(rows - 1):
            found = dict(zip(*self.row(table)))
            tuples.append([found.get(name, "NULL" if not by_name[name].required else "DEFAULT") for name in columns])
        text = ", ".join("(" + ", ".join(row) + ")" for row in tuples)
        conflict = " ON CONFLICT DO NOTHING" if not table.deferrable else ""
        return f"INSERT INTO {table.sql} ({', '.join(columns)}) VALUES {text}{conflict}"

    def insert_many(self, table):
        return self.insert(table, self.chance.randint(2, 6))

    def upsert(self, table):
        if not table.key or table.deferrable or table.temporal or not table.changeable():
            return None
        columns, texts = self.row(table)
        sets = [f"{column.sql} = excluded.{column.sql}" for column in table.others() if column.sql in columns]
        if not sets:
            return None
        return (f"INSERT INTO {table.sql} ({', '.join(columns)}) VALUES ({', '.join(texts)}) ON CONFLICT ({table.names(table.key)}) "
                f"DO UPDATE SET {', '.join(self.some(sets))}")

    def merge(self, table):
        if not table.key or not table.changeable() or table.key[0] == "part" or any(table.column(name).generated for name in table.key):
            return None
        columns, texts = self.row(table)
        sets = [f"{column.sql} = s.{column.sql}" for column in table.others() if column.sql in columns]
        if not sets:
            return None
        join = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in table.key)
        delete = "WHEN MATCHED AND t.n = 3 THEN DELETE " if table.column("n") else ""
        if self.version >= 17 and self.maybe(0.3):
            delete += self.chance.choice(["WHEN NOT MATCHED BY SOURCE AND t.n = 4 THEN DELETE ", "WHEN NOT MATCHED BY SOURCE AND t.n = 6 THEN UPDATE SET n = 7 "])
        return (f"MERGE INTO {table.sql} t USING (SELECT {', '.join(f'{text} AS {name}' for name, text in zip(columns, texts))}) s ON {join} "
                f"{delete}WHEN MATCHED THEN UPDATE SET {', '.join(sets)} "
                f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({', '.join('s.' + name for name in columns)})")

    def where(self, table):
        choices = [(2, f"n % {self.chance.choice([2, 3])} = {self.chance.randint(0, 2)}")] if any(c.name == "n" for c in table.columns) else []
        if table.row_key:
            column = table.column(table.row_key[0])
            choices.append((4, f"{column.sql} = {self.key_value(table, column, self.key_number())}"))
            column = table.column(self.chance.choice(table.row_key))
            choices.append((1, f"{column.sql} IN ({self.key_value(table, column, 1)}, {self.key_value(table, column, self.key_number())})"))
        choices.append((0.4, "true"))
        return self.pick(*choices)

    def update(self, table):
        if not table.changeable() or not table.others():
            return None
        sets = []
        for column in self.some(table.others())[:self.chance.choice([1, 1, 2, 9])]:
            if column.name == "n":
                text = self.pick((2, "n + 1"), (1, "n"), (1, str(self.chance.randint(0, 9))))
            elif column.name == "parent":
                text = str(self.key_number())
            else:
                text = self.pick((5, values.value(self.chance, column.type, nullable=not column.required)), (1, column.sql))
            sets.append(f"{column.sql} = {text}")
        return f"UPDATE {table.sql} SET {', '.join(sets)} WHERE {self.where(table)}"

    def move_key(self, table):
        """Another key for a row, where no row has it."""
        if not table.changeable() or not table.row_key:
            return None
        column = table.column(self.chance.choice(table.row_key))
        if column.generated:
            column = next(c for c in table.columns if c.name in self.bases)
        new = self.key_value(table, column, self.key_number())
        old = self.key_value(table, column, self.key_number())
        also = f", {table.others()[0].sql} = {table.others()[0].sql}" if table.others() and self.maybe(0.3) else ""
        return (f"UPDATE {table.sql} SET {column.sql} = {new}{also} WHERE {column.sql} = {old} AND "
                f"NOT EXISTS (SELECT 1 FROM {table.sql} WHERE {column.sql} = {new})")

    def swap(self, table):
        """Keys swapped, or all of them moved, in one statement."""
        if not self.has("swap") or not table.changeable() or len(table.row_key) != 1:
            return None
        column = table.column(table.row_key[0])
        if column.generated or column.type not in ("int4", "int8", "numeric", "float8"):
            return None
        if table.deferrable and self.maybe(0.7):
            a, b = self.key_number(), self.key_number()
            return f"UPDATE {table.sql} SET {column.sql} = CASE {column.sql} WHEN {a} THEN {b} ELSE {a} END WHERE {column.sql} IN ({a}, {b})"
        return f"UPDATE {table.sql} SET {column.sql} = -{column.sql} WHERE {self.where(table)}"

    def delete(self, table):
        if not table.changeable():
            return None
        return f"DELETE FROM {table.sql} WHERE {self.where(table)}"

    def bulk(self, table):
        names = table.row_key or (["n"] if table.columns else [])
        if not names or "part" in names and len(names) == 1:
            return None
        count = self.chance.choice([50, 200, 1000])
        parts = []
        free = False
        for name in dict.fromkeys(table.column(name).generated and next(c.name for c in table.columns if c.name in self.bases) or name
                                  for name in table.key + table.index):
            column = table.column(name)
            if column.name == "part":
                parts.append((column.sql, "g % 10"))
            elif column.type in values.BULK_KEYS:
                parts.append((column.sql, values.BULK_KEYS[column.type]))
                free = True
            else:
                parts.append((column.sql, self.key_value(table, column, self.key_number())))
        if (table.key or table.index) and not free:
            return None
        parts += [(column.sql, "g % 10" if column.name == "n" else values.value(self.chance, column.type)) for column in table.others()
                  if column.name != "parent" and column.type not in values.LARGE]
        low = self.fresh
        self.fresh += count
        conflict = " ON CONFLICT DO NOTHING" if not table.deferrable else ""
        return (f"INSERT INTO {table.sql} ({', '.join(name for name, _ in parts)}) SELECT {', '.join(text for _, text in parts)} "
                f"FROM generate_series({low}, {low + count - 1}) g{conflict}")

    def subtransactions(self, table):
        """More than the 64 that fit into a transaction's first list; some of them fail."""
        statement = self.bulk(table)
        if statement is None:
            return None
        statement = statement.split("FROM generate_series")[0]
        low, count = self.fresh, self.chance.choice([70, 130])
        self.fresh += count
        return (f"DO $do$ BEGIN FOR i IN {low}..{low + count - 1} LOOP BEGIN {statement}FROM generate_series(i, i) g; "
                f"IF i % 5 = 0 THEN RAISE EXCEPTION 'rolled back'; END IF; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $do$")

    def truncate(self, table):
        if not self.has("truncate") or table.leaves and self.maybe(0.5):
            return None
        also = [table.sql]
        if self.maybe(0.5):
            also += [other.sql for other in self.some(self.tables.get(self.writer, [table])) if other.published and other is not table
                     and not other.shared]
        return f"TRUNCATE {', '.join(dict.fromkeys(also))}" + self.pick((2, ""), (1, " CASCADE"), (1, " RESTART IDENTITY CASCADE"))

    def large_row(self, table):
        columns = [column for column in table.others() if column.type == "text"]
        if not self.has("large") or not columns or not table.changeable():
            return None
        return (f"UPDATE {table.sql} SET {columns[0].sql} = repeat('large', {self.chance.choice([10000, 60000])}) WHERE "
                f"ctid = (SELECT ctid FROM {table.sql} LIMIT 1)")

    def returning(self, table):
        """Two tables in one statement."""
        other = self.chance.choice(self.tables[self.writer])
        first, second = self.delete(table) or self.insert(table), self.insert(other)
        if other is table or " DO $do$" in first:
            return None
        return f"WITH changed AS ({first} RETURNING 1) {second}"

    def copy_step(self, table):
        """COPY as text; keys that nobody has."""
        if not table.columns or "id" in table.key and table.column("id").type == "text" or table.fixed:
            return None
        free = [name for name in table.key + table.index if table.column(name).type in values.BULK_KEYS and name != "part"]
        if (table.key or table.index) and not free:
            return None
        columns = [column for column in table.writable() if column.name in table.key + table.index or column.name == "n" or column.type in
                   ("text", "numeric", "float8", "bool")]
        if not columns:
            return None
        lines = []
        for _ in range(self.chance.choice([2, 20])):
            self.fresh += 1
            texts = []
            for column in columns:
                if column.name in table.key + table.index:
                    texts.append("3" if column.name == "part" else values.KEYS[column.type](self.fresh % 30000 if column.type == "int2" else self.fresh))
                elif column.name == "n":
                    texts.append(str(self.chance.randint(0, 9)))
                else:
                    texts.append(self.chance.choice([None, *values.VALUES[column.type]]))
            lines.append("\t".join("\\N" if text is None else text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace(
                "\r", "\\r") for text in texts))
        return f"COPY {table.sql} ({', '.join(column.sql for column in columns)}) FROM STDIN", "\n".join(lines) + "\n"

    def message(self):
        kind = self.pick((1, "true"), (2, "false"))
        prefix = self.chance.choice(["x", "prefix", "", "\u00fc \"q\"", "long" * 20, "p" * 255, "p" * 256])
        content = self.pick((3, "'hello'"), (1, "''"), (1, "'\\x00ff'::bytea"), (1, f"repeat('m', {self.chance.choice([100, 9000, 262144, 262145, 2000000])})"))
        return f"SELECT pg_logical_emit_message({kind}, {values.literal(prefix, 'text')}, {content})"

    def dml(self, table):
        """A statement that suits the table."""
        kinds = [(5, self.insert), (3, self.insert_many), (3, self.upsert), (6, self.update), (4, self.delete), (3, self.move_key), (1.5, self.swap),
                 (1, self.merge), (0.7, self.bulk), (0.5, self.subtransactions), (0.5, self.truncate), (0.4, self.large_row), (0.6, self.returning)]
        for _ in range(20):
            try:
                text = self.pick(*kinds)(table)
            except StopIteration:  # no such column
                text = None
            if text is not None:
                return text
        return self.insert(table)

    # ---- units ----

    def steps(self, session):
        """Statements of one unit."""
        self.unit += 1
        unit = self.unit

        def step(sql, kind="sql", tables=(), data=""):
            return Step(session, unit, sql, kind, tuple(tables), data)
        return step

    def table_of(self, writer):
        if self.maybe(0.12):
            return self.shared
        return self.chance.choice(self.tables[writer])

    def unit_of(self, writer):
        """The steps of one more unit of the writer."""
        self.writer = writer
        step = self.steps(writer)
        kind = self.pick((3, "single"), (6, "transaction"), (1 if self.has("ddl") else 0, "ddl alone"),
                         (0.2, "maintenance"), (0.6 if self.options["messages"] else 0, "messages"),
                         (0.7 if self.options["origin"] else 0, "origin"),
                         (0.5 if self.has("ddl") and self.has("drop") and self.left.get(writer) else 0, "restore"),
                         (0.7 if self.has("ddl") and self.has("drop") and self.again else 0, "schema"))
        if kind == "schema":
            return self.schema_again(writer)
        if kind == "restore":
            return self.restore(writer)
        if kind == "single":
            return [step(self.dml(self.table_of(writer)))]
        if kind == "messages":
            return [step(self.message()) for _ in range(self.chance.choice([1, 2, 3]))]
        if kind == "maintenance":
            table = self.table_of(writer)
            return [step(self.chance.choice([f"VACUUM FULL {table.sql}", f"REINDEX TABLE {table.sql}", f"ANALYZE {table.sql}", "CHECKPOINT",
                                             f"VACUUM {table.sql}"]))]
        if kind == "origin":
            time = self.chance.choice(["infinity", "-infinity", "2300-01-01", "0001-01-01 BC", "1969-12-31 23:59:59", "2010-01-01"])
            return [step("SELECT pg_replication_origin_session_setup('{db}')"), step("BEGIN"),
                    step(f"SELECT pg_replication_origin_xact_setup('0/1', '{time}')"), step(self.dml(self.table_of(writer))), step("COMMIT"),
                    step("SELECT pg_replication_origin_session_reset()")]
        if kind == "ddl alone":
            return [step("BEGIN"), *self.ddl(writer, step), step("COMMIT")]
        return self.transaction(writer, step)

    def restore(self, writer):
        """As pg_restore: a table, its rows, its key, each in a transaction of its own; under a name that is configured."""
        schema, name = self.left[writer].pop()
        table = Table(schema, name, [*self.other_columns(), self.key_column(["int8", "text"])], [])
        table.key = [table.columns[-1].name]
        made = self.create(dataclasses.replace(table, key=[]))
        if self.publication_kind == "tables" or self.publication_kind == "schemas" and schema not in self.schemas:
            made += f"; ALTER PUBLICATION {{publication}} ADD TABLE {table.sql}"
        keyed = f"ALTER TABLE {table.sql} ADD PRIMARY KEY ({table.names(table.key)})"
        filled = [self.insert(table, 3), self.insert(table)]
        self.tables[writer].append(table)
        units = []
        for statements in ([(made, "ddl")], [(text, "sql") for text in filled], [(keyed, "ddl")]):
            step = self.steps(writer)
            units += [step("BEGIN"), *(step(text, kind, [table.sql] if kind == "ddl" else ()) for text, kind in statements), step("COMMIT")]
        return units

    def schema_again(self, writer):
        """In one transaction or two; the table has another form then."""
        old = next(table for table in self.tables[writer] if table.schema.startswith(self.again))
        new = dataclasses.replace(old, columns=[*self.other_columns(), self.key_column(["int8", "text"])])
        new.key = [new.columns[-1].name]
        self.tables[writer][self.tables[writer].index(old)] = new
        made = f"CREATE SCHEMA {quote(new.schema)}; {self.create(new)}"
        if self.publication_kind != "all":
            made += f"; ALTER PUBLICATION {{publication}} ADD TABLE {new.sql}"
        statements = [f"DROP SCHEMA {quote(old.schema)} CASCADE", made]
        units = []
        for statement in ["; ".join(statements)] if self.maybe(0.5) else statements:
            step = self.steps(writer)
            units += [step("BEGIN"), step(statement, "ddl", [new.sql]), step("COMMIT")]
        return units

    def transaction(self, writer, step):
        before = copy.deepcopy(self.tables[writer])
        ending = self.pick((10, "COMMIT"), (2, "ROLLBACK"), (1 if self.has("prepared") else 0, "prepared"),
                           (1 if self.has("prepared") else 0, "held"), (0.3 if self.has("prepared") else 0, "prepared, rolled back"))
        level = self.pick((6, ""), (1, " ISOLATION LEVEL REPEATABLE READ"), (1, " ISOLATION LEVEL SERIALIZABLE"))
        steps = [step("BEGIN" + level)]
        pictures = ending != "held"
        depth = []
        for _ in range(self.chance.choice([1, 2, 3, 5, 8])):
            what = self.pick((10, "dml"), (1.2, "savepoint"), (1.2 if depth else 0, "release"), (1.5 if depth else 0, "rollback to"),
                             (1 if self.options["messages"] else 0, "message"), (0.8 if self.has("ddl") and pictures else 0, "ddl"),
                             (0.8 if pictures else 0, "moment"), (0.6, "copy"), (0.15, "snapshot"))
            if what == "dml":
                steps.append(step(self.dml(self.table_of(writer))))
            elif what == "savepoint":
                depth.append((f"s{len(depth)}", copy.deepcopy(self.tables[writer])))
                steps.append(step(f"SAVEPOINT {depth[-1][0]}"))
            elif what == "release":
                steps.append(step(f"RELEASE {depth.pop()[0]}"))
            elif what == "rollback to":
                name, self.tables[writer] = depth.pop()
                steps += [step(f"ROLLBACK TO {name}"), step(f"RELEASE {name}")]
            elif what == "message":
                steps.append(step(self.message()))
            elif what == "ddl":
                steps += self.ddl(writer, step, bool(depth))
            elif what == "moment":
                steps.append(step("", "moment", [table.sql for table in self.some(self.tables[writer])]))
            elif what == "copy":
                found = self.copy_step(self.chance.choice(self.tables[writer]))
                if found:
                    steps.append(step(found[0], "copy", data=found[1]))
            elif what == "snapshot":
                steps.append(step("SET CONSTRAINTS ALL DEFERRED"))
        if ending in ("COMMIT", "ROLLBACK"):
            steps.append(step(ending))
        elif ending == "held":
            steps.append(step(f"PREPARE TRANSACTION '{{db}} {self.unit}'"))
            self.open_prepared.append((writer, f"{self.pick((4, 'COMMIT'), (1, 'ROLLBACK'))} PREPARED '{{db}} {self.unit}'"))
        else:
            how = "COMMIT" if ending == "prepared" else "ROLLBACK"
            steps += [step(f"PREPARE TRANSACTION '{{db}} {self.unit}'"), step(f"{how} PREPARED '{{db}} {self.unit}'")]
        if "COMMIT" not in steps[-1].sql:  # a held one has no DDL, so this changes nothing then
            self.tables[writer] = before
        return steps

    # ---- DDL ----

    def ddl(self, writer, step, under_savepoint=False):
        """Steps of one DDL statement inside a transaction: before it a picture of the table, now and then."""
        candidates = [table for table in self.tables[writer] if not table.fixed]
        kinds = [(1, self.ddl_new_table), (0.4, self.ddl_enum)]
        if candidates:
            kinds += [(4, self.ddl_add), (3, self.ddl_drop), (2, self.ddl_rename_column), (2, self.ddl_type)]
            if self.has("generated"):
                kinds += [(1, self.ddl_generated)]
            if self.has("rename"):
                kinds += [(1.5, self.ddl_rename), (0.7, self.ddl_schema)]
            if self.has("key-ddl"):
                kinds += [(1, self.ddl_rename_key), (1, self.ddl_key_type), (1, self.ddl_move_key)]
            if self.has("identity-ddl"):
                kinds += [(2, self.ddl_identity)]
            if self.has("publication-ddl") and self.publication_kind == "tables":
                kinds += [(1.5, self.ddl_publication)]
            if self.has("drop"):
                kinds += [(0.8, self.ddl_drop_table)]
        if self.has("drop") and not self.options["via_root"] and any(table.bounds for table in self.tables[writer]):
            kinds += [(8, self.ddl_partition)]
        for _ in range(10):
            table = self.chance.choice(candidates) if candidates else None
            change = self.pick(*kinds)
            if under_savepoint and change == self.ddl_move_key and table.identity == "FULL":
                continue  # docs/keys.md, "What the catalog can tell about a backlog"
            old = table.sql if table else None
            found = change(table, writer)
            if found is None:
                continue
            sql, names = found
            before = [step("", "moment", [old])] if table and old in names and self.maybe(0.5) else []
            return [*before, step(sql, "ddl", names)]
        return []

    def ddl_add(self, table, _writer):
        column = Column(self.new_name("add"), self.type())
        table.columns.append(column)
        default = self.pick((3, ""), (1, " DEFAULT " + values.value(self.chance, column.type, nullable=False)))
        if column.type == "text" and self.maybe(0.3):
            default = " DEFAULT clock_timestamp()::text"  # rewrites the table
        return f"ALTER TABLE {table.sql} ADD COLUMN {column.sql} {column.type}{default}", [table.sql]

    def ddl_generated(self, table, _writer):
        """A generated column more; or one gets another expression, or becomes one of its own. Their values change without events."""
        if all(column.name != "n" for column in table.columns):
            return None
        made = [column for column in table.columns if column.generated and column.name not in table.row_key]
        if made and self.maybe(0.6):
            column = self.chance.choice(made)
            change = "DROP EXPRESSION" if self.version < 17 or self.maybe(0.5) else f"SET EXPRESSION AS (n + {self.chance.randint(1, 9)})"
            if change == "DROP EXPRESSION" and column.generated == "s":  # of virtual ones it is refused
                column.generated = ""
            return f"ALTER TABLE {table.sql} ALTER {column.sql} {change}", [table.sql]
        column = Column(self.new_name("made"), "int8", generated=self.kind_of_generated())
        table.columns.append(column)
        return f"ALTER TABLE {table.sql} ADD COLUMN {column.sql} int8 {self.generation(table, column)}", [table.sql]

    def ddl_drop(self, table, _writer):
        columns = [column for column in table.others() if column.name != "n"]
        if not columns:
            return None
        column = self.chance.choice(columns)
        table.columns.remove(column)
        return f"ALTER TABLE {table.sql} DROP COLUMN {column.sql}", [table.sql]

    def rename_column(self, table, column):
        old, new = column.name, self.new_name("ren")
        column.name = new
        table.key = [new if name == old else name for name in table.key]
        table.index = [new if name == old else name for name in table.index]
        return f"ALTER TABLE {table.sql} RENAME COLUMN {quote(old)} TO {quote(new)}", [table.sql]

    def ddl_rename_column(self, table, _writer):
        columns = [column for column in table.others() if column.name != "n"]
        return self.rename_column(table, self.chance.choice(columns)) if columns else None

    def ddl_rename_key(self, table, _writer):
        return self.rename_column(table, table.column(self.chance.choice(table.row_key))) if table.row_key else None

    def change_type(self, table, column, new):
        column.type = new
        return f"ALTER TABLE {table.sql} ALTER COLUMN {column.sql} TYPE {new} USING {column.sql}::{new}", [table.sql]

    def ddl_type(self, table, _writer):
        columns = [column for column in table.others() if column.type in ("int2", "int4", "varchar(40)", "uuid", "date", "json", "bool")
                   and column.name != "n"]
        if not columns:
            return None
        column = self.chance.choice(columns)
        new = {"int2": "int4", "int4": "numeric", "varchar(40)": "text", "uuid": "text", "date": "timestamp", "json": "jsonb",
               "bool": "text"}[column.type]
        return self.change_type(table, column, new)

    def ddl_key_type(self, table, _writer):
        columns = [column for column in table.columns if column.name in table.row_key and column.type in ("int4", "int2", "varchar(40)", "uuid")]
        if not columns or table.deferrable:
            return None
        column = self.chance.choice(columns)
        return self.change_type(table, column, {"int4": "int8", "int2": "int4", "varchar(40)": "text", "uuid": "text"}[column.type])

    def ddl_move_key(self, table, _writer):
        """The primary key goes to another column, filled with what is unique; all in one statement list."""
        if not table.key or table.identity not in ("FULL", "DEFAULT") or table.deferrable or table.index:
            return None
        column = Column(self.new_name("newkey"), "int4", required=True)
        name = quote(self.new_name("pk"))
        table.columns.append(column)
        for old in table.key:
            table.column(old).required = True
        table.key = [column.name]
        self.number += 1
        return (f"DO $do$ DECLARE c text; BEGIN SELECT conname INTO c FROM pg_constraint WHERE conrelid = {values.literal(table.sql, 'regclass')} "
                f"AND contype = 'p'; EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', {values.literal(table.sql, 'text')}, c); END $do$; "
                f"ALTER TABLE {table.sql} ADD COLUMN {column.sql} serial, ADD CONSTRAINT {name} PRIMARY KEY ({column.sql})", [table.sql])

    def ddl_rename(self, table, writer):
        """To a new name, or to one that another table had, which is configured."""
        old = table.sql
        again = [name for schema, name in self.left.get(writer, ()) if schema == table.schema and name != table.name]
        self.left.setdefault(writer, []).append((table.schema, table.name))
        table.name = self.chance.choice(again) if again and self.maybe(0.7) else self.new_name("renamed")
        return f"ALTER TABLE {old} RENAME TO {quote(table.name)}", [old, table.sql]

    def ddl_schema(self, table, _writer):
        old = table.sql
        named = table.published and table.schema not in self.schemas
        table.schema = self.chance.choice([schema for schema in SCHEMAS if schema != table.schema])
        if self.publication_kind == "schemas":
            table.published = named or table.schema in self.schemas
        return f"ALTER TABLE {old} SET SCHEMA {quote(table.schema)}", [table.sql]

    def ddl_identity(self, table, _writer):
        choices = []
        if self.has("full"):
            choices += [(2, "FULL")]
        if table.key and not table.deferrable:
            choices += [(2, "DEFAULT")]
        if self.has("nothing"):
            choices += [(0.4, "NOTHING")]
        if not choices:
            return None
        table.had_hidden_key = not table.key_is_streamed
        table.identity, table.index = self.pick(*choices), []
        if table.identity == "FULL" and table.key and self.has("index-with-key") and self.maybe(0.3) and not table.deferrable:
            # By the index of another column; only where that is unique now, otherwise the unit fails.
            others = [column for column in table.columns if column.required and column.name not in table.key and not column.generated]
            if others:
                table.identity, table.index = "INDEX", [others[0].name]
                return self.identity_by_index(table)[2:], [table.sql]
        return f"ALTER TABLE {table.sql} REPLICA IDENTITY {table.identity}", [table.sql]

    def ddl_publication(self, table, writer):
        if table.filter or table.listed or any(owner == writer for owner, _ in self.open_prepared):
            return None  # what a prepared transaction holds is published as things were when it was made
        verb = "DROP" if table.published else "ADD"
        table.published = not table.published
        return f"ALTER PUBLICATION {{publication}} {verb} TABLE ONLY {table.sql}", [table.sql]

    def ddl_new_table(self, _table, writer):
        if len(self.tables[writer]) > 6:
            return None
        mark = len(self.setup)
        self.chance.choice([self.shape_simple, self.shape_composite, *([self.shape_full] if self.has("full") else [])])(writer)
        statements, self.setup = self.setup[mark:], self.setup[:mark]
        table = self.tables[writer][-1]
        if self.left.get(writer) and self.maybe(0.7):  # a name that is configured
            old = table.sql
            table.schema, table.name = self.left[writer].pop()
            statements = [statement.replace(old, table.sql) for statement in statements]
        if table.listed or table.filter:
            table.listed, table.filter = (), ""
        if self.publication_kind == "tables" or self.publication_kind == "schemas" and table.schema not in self.schemas:
            statements.append(f"ALTER PUBLICATION {{publication}} ADD TABLE {table.sql}")
        return "; ".join(statements), [table.sql]

    def ddl_drop_table(self, table, writer):
        """Gone; and now and then one of another form comes in its place, under its name."""
        if len(self.tables[writer]) < 2 or not table.key_is_streamed and not self.has("drop-full"):
            return None
        self.tables[writer].remove(table)
        self.left.setdefault(writer, []).append((table.schema, table.name))
        text = f"DROP TABLE {table.sql}"
        if self.maybe(0.6):
            again = Table(table.schema, table.name, [*self.other_columns(), self.key_column(["int8", "text"])], [])
            again.key = [again.columns[-1].name]
            again.chooses, again.sent = table.chooses, table.sent
            self.tables[writer].append(again)
            text += "; " + self.create(again)
            if self.publication_kind == "tables" or self.publication_kind == "schemas" and again.schema not in self.schemas:
                text += f"; ALTER PUBLICATION {{publication}} ADD TABLE {again.sql}"
        return text, [table.sql]

    def ddl_partition(self, _table, writer):
        """One that is detached or dropped; and mostly another one in its place, attached or made."""
        table = self.chance.choice([table for table in self.tables[writer] if table.bounds])
        leaf, form = table.bounds.pop(self.chance.randrange(len(table.bounds)))
        text = self.chance.choice([f"DROP TABLE {leaf}", f"ALTER TABLE {table.sql} DETACH PARTITION {leaf}; DROP TABLE {leaf}",
                                   f"ALTER TABLE {table.sql} DETACH PARTITION {leaf}"])
        names = [table.sql, leaf]
        if not table.bounds or self.maybe(0.8):
            new = dataclasses.replace(table, name=self.new_name("leaf")).sql
            text += "; " + self.chance.choice([
                f"CREATE TABLE {new} PARTITION OF {table.sql} {form}",
                f"CREATE TABLE {new} (LIKE {table.sql} INCLUDING ALL); ALTER TABLE {table.sql} ATTACH PARTITION {new} {form}"])
            text += f"; ALTER TABLE {new} REPLICA IDENTITY FULL" if table.identity == "FULL" else ""
            table.bounds.append((new, form))
            names.append(new)
        return text, names

    def ddl_enum(self, _table, _writer):
        """A value more; it may be used only behind this transaction, and isn't."""
        self.enum_values += 1
        return f"ALTER TYPE w.mood ADD VALUE IF NOT EXISTS 'v{self.enum_values}'", []

    # ---- the whole ----

    def make_publication(self):
        tables = [table for found in self.tables.values() for table in found] + [self.shared]
        plain = not any(table.filter or table.listed for table in tables)
        self.publication_kind = "schemas" if self.schemas else "all" if plain and self.maybe(0.15) else "tables"
        if self.publication_kind == "all":
            return "CREATE PUBLICATION {publication} FOR ALL TABLES" + self.publication_options()
        parts = ["w.marker"]
        if self.schemas:
            # PostgreSQL takes no column lists beside schemas, and conditions of tables whose schema is there do not count.
            for table in tables:
                table.listed = ()
                table.filter = "" if table.schema in self.schemas else table.filter
            tables = [table for table in tables if table.schema not in self.schemas]
        for table in tables:
            listed = f" ({table.names(table.listed)})" if table.listed else ""
            parts.append(f"ONLY {table.sql}{listed}" + (f" WHERE ({table.filter})" if table.filter else "") if not table.leaves else table.sql)
        schemas = f", TABLES IN SCHEMA {', '.join(map(quote, self.schemas))}" if self.schemas else ""
        return f"CREATE PUBLICATION {{publication}} FOR TABLE {', '.join(parts)}{schemas}" + self.publication_options()

    def publication_options(self):
        generated = ", publish_generated_columns = stored" if self.options["generated"] else ""
        return f" WITH (publish_via_partition_root = {'true' if self.options['via_root'] else 'false'}{generated})"

    def interleave(self, queues):
        """The steps of all sessions in one order; each keeps its own."""
        merged = []
        queues = [queue for queue in queues if queue]
        while queues:
            queue = self.chance.choice(queues)
            for _ in range(self.chance.choice([1, 1, 2, 6])):
                if queue:
                    merged.append(queue.pop(0))
            queues = [queue for queue in queues if queue]
        return merged

    def guest(self, count):
        """A role that may do nothing but connect; it has logical messages."""
        queue = []
        for _ in range(count):
            step = self.steps("guest")
            queue += [step(self.message()) for _ in range(self.chance.choice([1, 1, 4]))]
        return queue

    def plan(self):
        self.prepare_plan()
        publication = self.make_publication()
        phases = []
        for _ in range(self.chance.choice([1, 2, 3])):
            queues = []
            for writer in self.tables:
                queue = []
                units = max(2, int(self.scale * self.chance.uniform(0.3, 1)))
                for _ in range(units):
                    queue += self.unit_of(writer)
                    while self.open_prepared and self.open_prepared[0][0] == writer and self.maybe(0.4):
                        queue.append(self.steps(writer)(self.open_prepared.pop(0)[1]))
                queues.append(queue)
            if self.options["messages"]:
                queues.append(self.guest(self.chance.choice([0, 3, 10])))
            phases.append(self.interleave(queues))
        # By those who prepared them: a picture of their tables must not be taken beside a commit that it can't see yet.
        phases[-1] += [self.steps(writer)(text) for writer, text in self.open_prepared]
        return Plan(self.seed, self.options, self.setup, publication, phases, threads=self.maybe(0.35))
