"""A second reader beside `millrace verify`: it folds a topic and compares it with the table, in Python and with no code of the product or of
the verifier, so that neither is believed alone."""

import collections
import json
import struct

from confluent_kafka.admin import AdminClient

from consume import up_to_now
from kit import BOOTSTRAP, connect, eventually
from witness_values import EXTENSIONS, HIDDEN, Type, Values, placeholders

PLACEHOLDER = "__debezium_unavailable_value"

Seen = collections.namedtuple("Seen", "differences unknown unreadable rows")


class Bare(str):
    """A number or a boolean of JSON, as PostgreSQL's text."""


LOST = object()  # what nobody can tell from null

# A domain is what it is over; the first modifier that one has counts.
TYPES = """WITH RECURSIVE over(number, oid, modifier) AS (
    SELECT attnum, atttypid, atttypmod FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT number, typbasetype, CASE WHEN modifier < 0 THEN typtypmod ELSE modifier END
    FROM over JOIN pg_type ON pg_type.oid = over.oid WHERE typtype = 'd')
SELECT attname, t.typname, t.typtype, t.oid < 16384, over.modifier, e.typname, e.typtype, e.oid < 16384 FROM over
    JOIN pg_attribute ON attrelid = %s::regclass AND attnum = over.number JOIN pg_type t ON t.oid = over.oid
    LEFT JOIN pg_type e ON e.typarray = t.oid WHERE t.typtype <> 'd'"""


def type_of(whole, modifier, element):
    """Of (name, letter, whether it is built in), and the same of an array's elements."""
    is_array = element[0] is not None
    name, letter, built_in = element if is_array else whole
    known = built_in or letter == "b" and name in EXTENSIONS
    return Type("text" if letter == "e" else name if known else "?", modifier, is_array)


class Moment:
    """A snapshot of the table, and which transactions it sees."""

    def __init__(self, database, schema, table, where):
        with connect(database.name, port=database.port) as connection:
            self.before = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()[0]
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SET LOCAL TIME ZONE 'UTC'; SET LOCAL datestyle = 'ISO, MDY'; SET LOCAL intervalstyle = postgres; SET LOCAL bytea_output = hex")
            low, high, running = connection.execute("SELECT pg_current_snapshot()::text").fetchone()[0].split(":")
            self.high, self.running = int(high), {int(number) for number in running.split(",") if number}
            name = f'"{schema}"."{table}"'
            self.key = [row[0] for row in connection.execute(
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
                " WHERE i.indisprimary AND i.indrelid = %s::regclass", [name])]
            found = connection.execute(
                "SELECT attname, typcategory IN ('B', 'N') FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped", [name]).fetchall()
            columns, self.bare = [row[0] for row in found], {row[0] for row in found if row[1]}
            self.types = {row[0]: type_of(row[1:4], row[4], row[5:8]) for row in connection.execute(TYPES, [name, name])}
            names = ['"' + column.replace('"', '""').replace("%", "%%") + '"' for column in columns]
            # Not ::text, which has words of its own for booleans and bpchar.
            texts = ", ".join(f"CASE WHEN {one} IS NOT NULL THEN format('%%s', {one}) END" for one in names)
            self.rows = [dict(zip(columns, row)) for row in connection.execute(f"SELECT {texts} FROM {name} WHERE {where}", [])]
            connection.execute("COMMIT")
            end, self.next = connection.execute("SELECT pg_logical_emit_message(true, 'witness', '')::text,"
                                                " pg_current_xact_id()::text::bigint").fetchone()
        eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), 120, "the stream's passing of the witness' moment")

    def sees(self, number, lsn):
        """By the lower 32 bits of a transaction's number."""
        full = self.high - ((self.high - number + 2**31) % 2**32 - 2**31)
        return lsn <= self.before if full >= self.next else full < self.high and full not in self.running


def records(topic):
    """All that is committed until the topic's present end, partition by partition, in order."""
    found = AdminClient({"bootstrap.servers": BOOTSTRAP}).list_topics(topic, timeout=20).topics[topic]
    for partition in found.partitions if found.error is None else ():
        yield from up_to_now([(topic, partition)], BOOTSTRAP)


class Decoded:
    """A message with another key and value."""

    def __init__(self, message, decode):
        self.message, self.key, self.value = message, lambda: decode(message.key()), lambda: decode(message.value())
        self.headers, self.partition = message.headers, message.partition


def texts(row):
    """PostgreSQL's text of each value."""
    return {name: Bare("t" if value else "f") if isinstance(value, bool) else value for name, value in row.items()}


def parsed(text):
    return json.loads(text, parse_float=Bare, parse_int=Bare)


def read(message):
    """(op, key, before, after), or None: it is no event of a row. An envelope, or a row alone."""
    key = None if message.key() is None else texts(parsed(message.key()))
    value = None if message.value() is None else parsed(message.value())
    if value is None:
        return None
    if "op" in value and "after" in value:
        return value["op"], key, value.get("before") and texts(value["before"]), value.get("after") and texts(value["after"])
    return "u", key, None, texts(value)


class AsText:
    """Rows of `types = "text"`."""

    def __init__(self, moment):
        self.moment = moment

    def row(self, row):
        return row

    def event(self, row):
        return row

    def key(self, row):
        """Of an event."""
        return tuple(sorted(row.items()))

    def key_of(self, row):
        return tuple((name, row[name]) for name in sorted(self.moment.key))

    def is_like(self, row, event):
        """(whether they are equal, whether that was seen of each value). A text is a string in JSON."""
        known = {name: value for name, value in event.items() if value not in (PLACEHOLDER, LOST) and name in row}
        equal = all(self.is_same(name, row[name], value) for name, value in known.items())
        return equal, len(known) == len([name for name in event if name in row])

    def is_same(self, name, value, event):
        return value == event and (name in self.moment.bare or not isinstance(event, Bare))


class AsDebezium(AsText):
    """Rows of `types = "debezium"`, by witness_values."""

    def __init__(self, moment, modes):
        super().__init__(moment)
        self.values = Values(modes)

    def is_seen(self, name):
        kind = self.moment.types.get(name)
        return kind is not None and not self.values.is_absent(kind) and self.values.is_compared(kind)

    def row(self, row):
        return {name: self.values.of_table(self.moment.types[name], value) for name, value in row.items() if self.is_seen(name)}

    def event(self, row):
        return {name: self.value(self.moment.types[name], value) for name, value in row.items() if self.is_seen(name)}

    def value(self, kind, value):
        if value in placeholders(PLACEHOLDER):
            return PLACEHOLDER
        if value is None:
            return LOST if kind.name in HIDDEN else None
        try:
            return self.values.of_event(kind, value)
        except (ValueError, TypeError, KeyError, AssertionError, AttributeError, struct.error):
            return "not a value of its type", value

    def key(self, row):
        return as_item({name: self.value(self.moment.types[name], value) for name, value in row.items()})

    def key_of(self, row):
        return as_item({name: self.values.of_table(self.moment.types[name], row[name]) for name in self.moment.key})

    def is_same(self, name, value, event):
        return value == event


def as_item(row):
    """What can be counted, and be a key."""
    return tuple(sorted((name, value if isinstance(value, str) else repr(value)) for name, value in row.items()))


def look(database, table, schema="public", where="true", change=lambda row: row, bare=False, modes=None):
    """What differs: a set of (kind, key), how many rows have a value that no event has, how many records are no events. `modes`: of
    `types = "debezium"`, and under "avro" what makes JSON of a record's bytes."""
    moment = Moment(database, schema, table, where)
    form = AsText(moment) if modes is None else AsDebezium(moment, modes)
    state, last, unreadable = {}, {}, 0
    counted, places = collections.Counter(), set()
    for message in records(database.topic(table, schema)):
        if "avro" in (modes or {}):
            message = Decoded(message, modes["avro"])
        headers = dict(message.headers() or [])
        if message.value() is None and not bare:
            continue  # says what the delete before it said
        try:
            place = headers["mr-pos"].decode()
            lsn, number = int(place[:16], 16), int(headers["mr-xid"])
            event = ("d", texts(parsed(message.key())), None, None) if message.value() is None else read(message)
            op, key, before, after = event
            assert op in "curdt" and (op == "t" or not moment.key or set(key) == set(moment.key))
        except (ValueError, KeyError, TypeError, AssertionError):
            unreadable += 1
            continue
        # A copied row, or the delete that a repair sends, has no transaction: its place is beside those of commits.
        if not (lsn <= moment.before if op == "r" or lsn % 8 else moment.sees(number, lsn)):
            continue
        if op == "t":
            state.clear()
            counted.clear()
        elif moment.key:
            key = form.key(key)
            if key in last and last[key][0] != message.partition() and place < last[key][1]:
                continue
            last[key] = (message.partition(), place)
            if op == "d":
                state.pop(key, None)
            else:
                old = {} if "mr-oversize" in headers else state.get(key, {})
                state[key] = {name: old.get(name, value) if value == PLACEHOLDER else value for name, value in form.event(after).items()}
        elif place not in places:  # or it is sent again
            places.add(place)
            counted.subtract([as_item(form.event(before))] if before else [])
            counted.update([as_item(form.event(after))] if after else [])
    rows = [change(row) for row in moment.rows]
    if not moment.key:
        counted.subtract(as_item(form.row(row)) for row in rows)
        return Seen({("missing" if times < 0 else "phantom", None) for times in counted.values() if times}, 0, unreadable, len(rows))
    differences, unknown = set(), 0
    for row in rows:
        key = form.key_of(row)
        if key not in state:
            differences.add(("missing", key))
            continue
        equal, all_known = form.is_like(form.row(row), state.pop(key))
        unknown += equal and not all_known
        if not equal:
            differences.add(("value", key))
    return Seen(differences | {("phantom", key) for key in state}, unknown, unreadable, len(rows))
