"""Runs a plan against PostgreSQL, and notes what the judge has to know: pictures of tables, each with a marker row in the
same transaction, whose event says where in the stream the picture was taken."""

import collections
import dataclasses
import itertools
import random
import re
import threading
import time

import psycopg

from kit import dsn

# How the sessions read and write values, whatever the database is set to.
SETTINGS = {
    "DateStyle": "ISO,MDY", "IntervalStyle": "postgres", "TimeZone": "UTC", "extra_float_digits": "1", "bytea_output": "hex",
    "xmloption": "content", "array_nulls": "on", "search_path": "public", "standard_conforming_strings": "on",
    "quote_all_identifiers": "off", "default_transaction_isolation": r"read\ committed", "statement_timeout": "30s",
    "client_min_messages": "warning",
}

CATALOG = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relreplident::text, c.relkind::text, p.pubname IS NOT NULL, p.rowfilter,
       coalesce((SELECT i.indimmediate FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), true),
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place), pg_attribute a
             WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts AND a.attrelid = c.oid
               AND a.attnum = k.number ORDER BY k.place),
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place), pg_attribute a
             WHERE i.indrelid = c.oid AND i.indisreplident AND k.place <= i.indnkeyatts AND a.attrelid = c.oid
               AND a.attnum = k.number ORDER BY k.place),
       ARRAY(SELECT ARRAY[a.attname::text, a.atttypid::text] FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
             AND NOT a.attisdropped AND {sent} ORDER BY a.attnum),
       -- From 18 on rows can't be updated whose identity has a generated column that the publication does not send; before, it is told by
       -- nobody (docs/keys.md).
       NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped AND NOT {sent}
                   AND (c.relreplident = 'f' AND {chooses} OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid
                        AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_publication_tables p ON p.pubname = %s AND p.schemaname = n.nspname AND p.tablename = c.relname
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""
# Before 16 the names of a publication's columns have the generated ones, too; from 18 on those that are sent.
SENT = "CASE WHEN {chooses} THEN p.attnames IS NULL AND a.attgenerated = '' OR coalesce(a.attname = ANY (p.attnames), false) " \
       "ELSE a.attgenerated = '' AND (p.attnames IS NULL OR a.attname = ANY (p.attnames)) END"
CHOOSES = "current_setting('server_version_num')::int >= 180000"
CATALOG = CATALOG.replace("{sent}", SENT).replace("{chooses}", CHOOSES)


PARENTS = """
SELECT pn.nspname::text, p.relname::text, cn.nspname::text, c.relname::text
FROM pg_class p JOIN pg_namespace pn ON pn.oid = p.relnamespace, pg_partition_tree(p.oid) t JOIN pg_class c ON c.oid = t.relid
     JOIN pg_namespace cn ON cn.oid = c.relnamespace
WHERE p.relkind = 'p' AND t.isleaf
"""


@dataclasses.dataclass
class Info:
    """A table as the catalog has it at one moment."""
    oid: int
    schema: str
    name: str
    identity: str
    kind: str
    published: bool
    filter: str
    key_immediate: bool
    key: list
    index: list
    columns: list   # [name, type's oid as text]
    complete: bool  # the identity is sent whole
    rows: list = None

    @property
    def names(self):
        return [name for name, _ in self.columns]


@dataclasses.dataclass
class Moment:
    """`changed`: the catalog did; the rows are what the table is from here on. Otherwise they are what the events make."""
    number: int
    changed: bool
    infos: list
    gone: list = dataclasses.field(default_factory=list)  # (schema, name) of what is no more


@dataclasses.dataclass
class Message:
    prefix: str
    content: bytes
    transactional: bool
    marker: int = 0      # of its transaction's end; 0: there is none, it is delivered whatever becomes of the transaction
    certain: bool = True


def quote(name):
    return '"' + name.replace('"', '""') + '"'


def unquote(text):
    """(schema, name) of a qualified name with both parts quoted."""
    return tuple(part[1:-1].replace('""', '"') for part in re.findall(r'"(?:[^"]|"")*"', text))


ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def copied_value(field):
    """A field of COPY's text form; bytes that are not UTF-8 become U+FFFD."""
    if field == b"\\N":
        return None
    if b"\\" in field:
        field = re.sub(rb"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), field, flags=re.DOTALL)
    return field.decode("utf-8", "replace")


class Executor:
    """`pause_s`: the longest pause before a statement, for runs in which something is to happen meanwhile."""

    def __init__(self, database, plan, pause_s=0.0):
        self.database, self.plan, self.pause_s = database, plan, pause_s
        self.chance = random.Random(f"pauses {plan.seed}")
        self.numbers = itertools.count(1)
        self.moments = {}
        self.messages = []
        self.connections = {}
        self.foreign = set()  # (schema, name) of tables of others: left out of every picture
        self.parents = {}     # partition -> its root, as (schema, name)
        self.skipped = {}     # session -> unit that is passed over
        self.errors = collections.Counter()  # first line of the server's refusals
        self.done = []        # [session, sql] as executed, in order, for whoever reads
        self.pending = {}     # session -> messages of the open transaction
        self.lock = threading.Lock()

    # ---- connections ----

    def connect(self, session):
        limit = "2s" if self.plan.threads else "40ms"
        options = " ".join(f"-c {name}={value}" for name, value in {**SETTINGS, "lock_timeout": limit}.items())
        user = {"user": f"{self.database.name}_guest"} if session == "guest" else {}
        encoding = {"client_encoding": "SQL_ASCII"} if self.plan.options.get("encoding") else {"client_encoding": "UTF8"}
        connection = psycopg.connect(dsn(self.database.name), autocommit=True, options=options, connect_timeout=10, **user, **encoding)
        connection.prepare_threshold = None
        return connection

    def connection(self, session):
        if session not in self.connections:
            self.connections[session] = self.connect(session)
        return self.connections[session]

    def close(self):
        for connection in self.connections.values():
            connection.close()
        self.connections = {}

    def filled(self, text):
        return text.replace("{db}", self.database.name).replace("{publication}", self.database.publication)

    # ---- setup ----

    def prepare(self):
        """Tables, publication and roles; what the catalog says at the beginning."""
        connection = self.connection("main")
        for statement in self.plan.setup:
            try:
                connection.execute(self.encoded(statement))
            except psycopg.Error as error:  # in a shrunk plan what it stands on may be gone
                self.errors["setup: " + str(error).splitlines()[0]] += 1
        name = self.database.name
        # Removed with the database, see run.py.
        connection.execute(f"CREATE ROLE {name}_guest LOGIN PASSWORD 'millrace-stand'")
        for setting in self.plan.options.get("settings", ()):
            connection.execute(f"ALTER DATABASE {name} SET {setting}")
        if self.plan.options.get("origin"):
            connection.execute("SELECT pg_replication_origin_create(%s)", [name])
        connection.execute(self.encoded(self.filled(self.plan.publication)))
        self.moments[0] = Moment(0, True, [info for info in self.catalog(connection) if info.published])
        self.note_parents(connection)
        for info in self.moments[0].infos:
            info.rows = self.rows(connection, info)

    def note_parents(self, connection):
        """Those of now; what was a partition stays one."""
        self.parents |= {(self.decoded(cs), self.decoded(cn)): (self.decoded(ps), self.decoded(pn)) for ps, pn, cs, cn in connection.execute(PARENTS)}

    def configured(self):
        """Names for millrace's option `tables`, which refuses those whose rows can't be updated. Of partitioned ones the root or,
        where the partitions are published, those."""
        names = [(info.schema, info.name) for info in self.moments[0].infos
                 if info.complete and (info.identity in "fi" or info.identity == "d" and info.key and info.key_immediate)]
        if self.plan.options["name_roots"]:
            names = [self.parents.get(name, name) for name in names]
        return list(dict.fromkeys(names))

    def encoded(self, text):
        return text.encode()

    # ---- pictures ----

    def catalog(self, connection, names=None):
        """What the catalog says of these tables and their partitions; of all, without names."""
        text, parameters = CATALOG, [self.database.publication]
        if names is not None:
            text += "AND c.oid IN (SELECT relid FROM unnest(%s::text[]) t, pg_partition_tree(to_regclass(t)) " \
                    "UNION ALL SELECT to_regclass(t) FROM unnest(%s::text[]) t)"
            parameters += [list(names), list(names)]
        cursor = connection.cursor()
        cursor.execute(text.encode(), parameters)
        found = []
        for row in cursor:
            row = [self.decoded(value) for value in row]
            found.append(Info(*row))
        return [info for info in found if (info.kind == "r" or info.published) and (info.schema, info.name) not in self.foreign]

    @classmethod
    def decoded(cls, value):
        """Without an encoding psycopg answers bytes."""
        if isinstance(value, list):
            return [cls.decoded(part) for part in value]
        return value.decode() if isinstance(value, bytes) else value

    @staticmethod
    def rows(connection, info):
        """What the table holds, as the types' output functions write it."""
        only = "" if info.kind == "p" else "ONLY "
        columns = ", ".join(quote(name) for name in info.names)
        where = f" WHERE {info.filter}" if info.filter else ""
        source = f"FROM {only}{quote(info.schema)}.{quote(info.name)}{where}"
        if not columns:
            return [()] * connection.execute(f"SELECT count(*) {source}".encode()).fetchone()[0]
        with connection.cursor().copy(f"COPY (SELECT {columns} {source}) TO STDOUT".encode()) as copy:
            text = b"".join(bytes(block) for block in copy)
        return [tuple(copied_value(field) for field in line.split(b"\t")) for line in text.split(b"\n")[:-1]]

    def picture(self, connection, names, changed):
        """The marker's row, and what these tables are at this moment."""
        infos = self.catalog(connection, names)
        if changed:
            self.note_parents(connection)
        for info in infos:
            if info.published:
                info.rows = self.rows(connection, info)
        there = {(info.schema, info.name) for info in infos}
        with self.lock:
            number = next(self.numbers)
            self.moments[number] = Moment(number, changed, infos, [unquote(name) for name in names or () if unquote(name) not in there])
        connection.execute(f"INSERT INTO w.marker VALUES ({number}, pg_current_xact_id()::text::bigint)")
        return number

    def picture_of_all(self):
        """At rest: everything that is published, also what several writers share. What a prepared transaction still holds may be
        locked: then it has to end first."""
        try:
            return self.picture_at_rest()
        except psycopg.errors.LockNotAvailable:
            self.end_prepared()
            return self.picture_at_rest()

    def picture_at_rest(self):
        connection = self.connection("main")
        with connection.transaction():
            infos = [info for info in self.catalog(connection) if info.published]
            return self.picture(connection, [f"{quote(i.schema)}.{quote(i.name)}" for i in infos if i.schema != "w"], False)

    # ---- steps ----

    def step(self, step):
        """One step; a refusal ends its unit."""
        if self.skipped.get(step.session) == step.unit:
            return
        sql = self.filled(step.sql)
        if self.pause_s:
            time.sleep(self.chance.uniform(0, self.pause_s))
        try:
            connection = self.connection(step.session)
            if step.kind == "moment":
                if step.session != "main" and connection.info.transaction_status.name == "INTRANS":
                    self.picture(connection, step.tables, False)
                return
            self.note(step.session, sql)
            self.expect_message(step, sql)
            if step.kind == "copy":
                with connection.cursor().copy(sql.encode()) as copy:
                    copy.write(step.data.encode())
                return
            connection.execute(sql.encode())
            if step.kind == "ddl":
                self.picture(connection, step.tables, True)
            self.ended(step.session, sql)
        except psycopg.Error as error:
            if connection_lost(error):
                raise
            self.refused(step, error)

    def note(self, session, sql):
        with self.lock:
            self.done.append([session, sql])

    def refused(self, step, error):
        with self.lock:
            self.errors[str(error).splitlines()[0][:100]] += 1
            self.done.append([step.session, f"-- refused: {str(error).splitlines()[0][:200]}"])
        self.skipped[step.session] = step.unit
        self.pending.pop(step.session, None)
        connection = self.connection(step.session)
        if connection.info.transaction_status.name != "IDLE":
            connection.execute("ROLLBACK")
        if "origin" in step.sql:
            try:
                connection.execute("SELECT pg_replication_origin_session_reset()")
            except psycopg.Error:
                pass

    MESSAGE = re.compile(r"SELECT pg_logical_emit_message\((true|false), '((?:[^']|'')*)'::text, (.*)\)$", re.DOTALL)

    def expect_message(self, step, sql):
        """A message outside transactions is sent at once, whatever becomes of the one around it."""
        found = self.MESSAGE.match(sql)
        if not found:
            return
        prefix = found[2].replace("''", "'")
        content = found[3]
        data = (b"\x00\xff" if "bytea" in content else b"m" * int(re.search(r"\d+", content)[0]) if "repeat" in content
                else content.strip("'").encode())
        message = Message(prefix, data, found[1] == "true")
        in_transaction = self.connection(step.session).info.transaction_status.name != "IDLE"
        with self.lock:
            if message.transactional and in_transaction:
                self.pending.setdefault(step.session, []).append(message)
            else:
                self.messages.append(message)

    def ended(self, session, sql):
        """What becomes of the messages of a transaction. Those rolled back to a savepoint, and of transactions that are
        prepared, may come or not: nothing here knows."""
        if sql.startswith("ROLLBACK TO") or sql.startswith("PREPARE"):
            for message in self.pending.get(session, ()):
                message.certain = False
        if sql == "COMMIT" or sql.startswith("PREPARE"):
            with self.lock:
                self.messages += self.pending.pop(session, [])
        elif sql == "ROLLBACK":
            self.pending.pop(session, None)

    # ---- the whole ----

    def run(self, before_phase=lambda: None):
        for phase in self.plan.phases:
            before_phase()
            if self.plan.threads:
                self.run_threads(phase)
            else:
                for step in phase:
                    self.step(step)
            self.skipped.clear()
            self.end_transactions()
            self.picture_of_all()
        self.end_prepared()
        return self.picture_of_all()

    def run_threads(self, phase):
        failures = []

        def session(name):
            try:
                for step in phase:
                    if step.session == name:
                        self.step(step)
            except Exception as error:  # pylint: disable=broad-except # raised below
                failures.append(error)
        threads = [threading.Thread(target=session, args=(name,)) for name in {step.session for step in phase}]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def end_transactions(self):
        """A shrunk plan may have left some open."""
        for session, connection in self.connections.items():
            if connection.info.transaction_status.name != "IDLE":
                connection.execute("ROLLBACK")
                self.pending.pop(session, None)

    def end_prepared(self):
        connection = self.connection("main")
        for (name,) in connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall():
            connection.execute(f"ROLLBACK PREPARED '{self.decoded(name)}'")

    # ---- at the end ----

    def marker_rows(self):
        """{number: xid} of those that were committed."""
        return dict(self.connection("main").execute("SELECT n, xid FROM w.marker").fetchall())

    def typed_differences(self, info, rows):
        """Rows by the judge put into a table of the same types, compared by SQL: IS NOT DISTINCT FROM, on rows' texts, since
        some types (json, xml, point) have no equality. Answers rows that only the source has, and those that only the copy has."""
        connection = self.connection("main")
        columns = ", ".join(quote(name) for name in info.names)
        source = f"{quote(info.schema)}.{quote(info.name)}"
        only = "" if info.kind == "p" else "ONLY "
        where = f" WHERE {info.filter}" if info.filter else ""
        connection.execute(f"CREATE TEMP TABLE replayed AS SELECT {columns} FROM {source} WITH NO DATA".encode())
        try:
            with connection.cursor().copy(f"COPY replayed FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write("\t".join("\\N" if v is None else v.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
                                         .replace("\r", "\\r") for v in row).encode() + b"\n")
            ours, theirs = f"SELECT r::text FROM replayed r", f"SELECT r::text FROM (SELECT {columns} FROM {only}{source}{where}) r"
            return [connection.execute(f"SELECT count(*) FROM (SELECT t, count(*) AS c FROM ({a}) x (t) GROUP BY 1) a WHERE NOT EXISTS "
                                       f"(SELECT 1 FROM (SELECT t, count(*) AS c FROM ({b}) x (t) GROUP BY 1) b WHERE a IS NOT DISTINCT FROM b)"
                                       .encode()).fetchone()[0] for a, b in ((theirs, ours), (ours, theirs))]
        finally:
            connection.execute("DROP TABLE replayed")


def connection_lost(error):
    return isinstance(error, psycopg.OperationalError) and error.sqlstate in (None, "57P01", "57P02", "57P03", "08006", "08003")
