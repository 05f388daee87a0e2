"""A second reader beside `millrace verify`: it folds a topic and compares it with the table, in Python and with no code of the product or of
the verifier, so that neither is believed alone."""

import collections
import json

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kit import BOOTSTRAP, connect, eventually

PLACEHOLDER = "__debezium_unavailable_value"

Seen = collections.namedtuple("Seen", "differences unknown unreadable rows")


class Bare(str):
    """A number or a boolean of JSON, as PostgreSQL's text."""


class Moment:
    """A snapshot of the table, and which transactions it sees."""

    def __init__(self, database, schema, table, where):
        with connect(database.name) as connection:
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
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "witness", "log_level": 0, "enable.partition.eof": True,
                         "isolation.level": "read_committed", "enable.auto.commit": False})
    found = consumer.list_topics(topic, timeout=20).topics[topic]
    for partition in found.partitions if found.error is None else ():
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        consumer.assign([TopicPartition(topic, partition, low)])
        while low < high:
            message = consumer.poll(60)
            assert message is not None, f"{topic} is silent"
            if message.error() is None:
                low = message.offset() + 1
                if message.offset() < high:
                    yield message
            else:
                # pylint: disable=protected-access
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                low = max(low, message.offset())
    consumer.close()


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


def key_of(moment, row):
    return tuple((name, row[name]) for name in sorted(moment.key))


def is_like(moment, row, event):
    """(whether they are equal, whether that was seen of each value). A text is a string in JSON."""
    known = {name: value for name, value in event.items() if value != PLACEHOLDER and name in row}
    return all(row[name] == value and (name in moment.bare or not isinstance(value, Bare)) for name, value in known.items()), len(known) == len([name for name in event if name in row])


def look(database, table, schema="public", where="true", change=lambda row: row, bare=False):
    """What differs: a set of (kind, key), how many rows have a value that no event has, how many records are no events."""
    moment = Moment(database, schema, table, where)
    state, last, unreadable = {}, {}, 0
    counted = collections.Counter()
    for message in records(database.topic(table, schema)):
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
        if not (lsn <= moment.before if op == "r" else moment.sees(number, lsn)):
            continue
        if op == "t":
            state.clear()
            counted.clear()
        elif moment.key:
            key = tuple(sorted(key.items()))
            if key in last and last[key][0] != message.partition() and place < last[key][1]:
                continue
            last[key] = (message.partition(), place)
            if op == "d":
                state.pop(key, None)
            else:
                old = {} if "mr-oversize" in headers else state.get(key, {})
                state[key] = {name: old.get(name, value) if value == PLACEHOLDER else value for name, value in after.items()}
        else:
            counted.subtract([tuple(sorted(before.items()))] if before else [])
            counted.update([tuple(sorted(after.items()))] if after else [])
    rows = [change(row) for row in moment.rows]
    if not moment.key:
        counted.subtract(tuple(sorted(row.items())) for row in rows)
        return Seen({("missing" if times < 0 else "phantom", None) for times in counted.values() if times}, 0, unreadable, len(rows))
    differences, unknown = set(), 0
    for row in rows:
        key = key_of(moment, row)
        if key not in state:
            differences.add(("missing", key))
            continue
        equal, all_known = is_like(moment, row, state.pop(key))
        unknown += equal and not all_known
        if not equal:
            differences.add(("value", key))
    return Seen(differences | {("phantom", key) for key in state}, unknown, unreadable, len(rows))
