"""Recordings of a replication stream, read by somebody who knows nothing of millrace: files by docs/dev/recordings.md, messages
by PostgreSQL's manual ("Streaming Replication Protocol", "Logical Replication Message Formats").

    python recording.py FILE       what is in it, a line an event; the expectation of a recording is this text

Needs nothing but Python."""

import struct
import sys
import zlib
from dataclasses import dataclass, field

MAGIC = b"MRSTRM01"
EPOCH_US = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts
LONG = 40  # a value longer than that is told by its length and check sum


def lsn_text(lsn):
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text):
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass
class Frame:
    kind: str
    time_us: int
    data: bytes


def frames(data):
    """Frames of a file's bytes. A recording that was cut off ends early; a damaged one is an error."""
    if data and not data.startswith(MAGIC):
        raise ValueError("not a recording")
    at = 8
    while at + 17 <= len(data):
        kind, length, time_us = struct.unpack_from(">cIQ", data, at)
        end = at + 13 + length
        if end + 4 > len(data):
            return
        if zlib.crc32(data[at:end]) != struct.unpack_from(">I", data, end)[0]:
            raise ValueError(f"damaged at byte {at}")
        yield Frame(kind.decode(), time_us, data[at + 13:end])
        at = end + 4


def properties(frame):
    """name=value lines of the first and the last frame."""
    return dict(line.split("=", 1) for line in frame.data.decode().splitlines())


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        if self.at + length > len(self.data):
            raise ValueError("a message ends too early")
        self.at += length
        return self.data[self.at - length:self.at]

    def number(self, length):
        return int.from_bytes(self.take(length), "big")

    def signed(self, length):
        return int.from_bytes(self.take(length), "big", signed=True)

    def string(self):
        end = self.data.index(0, self.at)
        text = self.data[self.at:end]
        self.at = end + 1
        return text


@dataclass
class Column:
    flags: int
    name: bytes
    type: int
    modifier: int


@dataclass
class Relation:
    oid: int
    schema: bytes
    table: bytes
    identity: str
    columns: list

    def text(self):
        columns = "".join(f" {quoted(c.name)}:{c.type}:{c.modifier}{':key' if c.flags else ''}" for c in self.columns)
        return f"relation {self.oid} {quoted(self.schema or b'pg_catalog')}.{quoted(self.table)} {self.identity}{columns}"


@dataclass
class Event:
    """kind: begin, commit, relation, type, insert, update, delete, truncate, message, keepalive, origin."""
    kind: str
    lsn: int  # of the XLogData, or the server's end
    commit_lsn: int = 0
    end_lsn: int = 0
    time_us: int = 0
    xid: int = 0
    position: tuple = ()
    relation: Relation = None
    old_kind: str = ""
    old: list = None
    new: list = None
    relations: list = field(default_factory=list)
    flags: int = 0
    name: bytes = b""
    content: bytes = b""
    asks: bool = False


def quoted(text):
    """Printable, and the same from C: what is no plain letter becomes \\xNN."""
    return "'" + "".join(chr(byte) if 0x21 <= byte <= 0x7E and byte not in b"'\\" else f"\\x{byte:02X}" for byte in text) + "'"


def value_text(value):
    kind, data = value
    if kind == "n":
        return "null"
    if kind == "u":
        return "unchanged"
    return quoted(data) if len(data) <= LONG else f"{len(data)}:{zlib.crc32(data):08X}"


class Decoder:
    """Protocol version 1, as START_REPLICATION was asked for."""

    def __init__(self):
        self.relations = {}
        self.commit_lsn = self.ordinal = None

    def payload(self, data):
        cursor = Cursor(data)
        kind = cursor.take(1)
        if kind == b"k":
            end = cursor.number(8)
            cursor.number(8)
            return Event("keepalive", end, asks=cursor.number(1) == 1)
        assert kind == b"w", kind
        start = cursor.number(8)
        cursor.take(16)
        event = self.message(cursor, start)
        assert cursor.at == len(data), "bytes are left over"
        return event

    def tuple(self, cursor):
        values = []
        for _ in range(cursor.number(2)):
            kind = cursor.take(1).decode()
            assert kind in "nut", kind
            values.append((kind, cursor.take(cursor.number(4)) if kind == "t" else b""))
        return values

    def place(self, count=1):
        """The position of the next change, and those behind it that belong to the same message."""
        self.ordinal += count
        return (self.commit_lsn, self.ordinal - count + 1)

    def message(self, cursor, start):
        kind = cursor.take(1)
        event = getattr(self, "on_" + {b"B": "begin", b"C": "commit", b"O": "origin", b"R": "relation", b"Y": "type",
                                       b"I": "insert", b"U": "update", b"D": "delete", b"T": "truncate",
                                       b"M": "message"}[kind])(cursor)
        event.lsn = start
        return event

    def on_begin(self, cursor):
        assert self.commit_lsn is None
        event = Event("begin", 0, commit_lsn=cursor.number(8), time_us=cursor.signed(8) + EPOCH_US, xid=cursor.number(4))
        self.commit_lsn, self.ordinal = event.commit_lsn, 0
        return event

    def on_commit(self, cursor):
        assert cursor.number(1) == 0
        event = Event("commit", 0, commit_lsn=cursor.number(8), end_lsn=cursor.number(8),
                      time_us=cursor.signed(8) + EPOCH_US)
        assert event.commit_lsn == self.commit_lsn
        self.commit_lsn = None
        return event

    def on_origin(self, cursor):
        return Event("origin", 0, end_lsn=cursor.number(8), name=cursor.string())

    def on_relation(self, cursor):
        oid, schema, table, identity = cursor.number(4), cursor.string(), cursor.string(), cursor.take(1).decode()
        columns = [Column(cursor.number(1), cursor.string(), cursor.number(4), cursor.signed(4))
                   for _ in range(cursor.number(2))]
        self.relations[oid] = Relation(oid, schema, table, identity, columns)
        return Event("relation", 0, relation=self.relations[oid])

    def on_type(self, cursor):
        return Event("type", 0, flags=cursor.number(4), name=cursor.string() + b"." + cursor.string())

    def on_insert(self, cursor):
        relation = self.relations[cursor.number(4)]
        assert cursor.take(1) == b"N"
        return Event("insert", 0, relation=relation, new=self.tuple(cursor), position=self.place())

    def on_update(self, cursor):
        event = Event("update", 0, relation=self.relations[cursor.number(4)], position=self.place())
        kind = cursor.take(1).decode()
        if kind in "KO":
            event.old_kind, event.old = kind, self.tuple(cursor)
            kind = cursor.take(1).decode()
        assert kind == "N"
        event.new = self.tuple(cursor)
        return event

    def on_delete(self, cursor):
        event = Event("delete", 0, relation=self.relations[cursor.number(4)], position=self.place())
        event.old_kind = cursor.take(1).decode()
        assert event.old_kind in "KO"
        event.old = self.tuple(cursor)
        return event

    def on_truncate(self, cursor):
        count, flags = cursor.number(4), cursor.number(1)
        relations = [self.relations[cursor.number(4)] for _ in range(count)]
        return Event("truncate", 0, relations=relations, flags=flags, position=self.place(count))

    def on_message(self, cursor):
        event = Event("message", 0, flags=cursor.number(1), end_lsn=cursor.number(8), name=cursor.string())
        event.content = cursor.take(cursor.number(4))
        event.position = self.place() if event.flags else (event.end_lsn, 0)
        return event


def events(data):
    """What the server sent, decoded."""
    decoder = Decoder()
    return [decoder.payload(frame.data) for frame in frames(data) if frame.kind == "R"]


# ---- the expectation: what a reader of the stream is to be handed, a line an event ----

def position_text(position):
    return f"{lsn_text(position[0])}:{position[1]}"


def tuple_text(kind, relation, values):
    if values is None:
        return ""
    named = (f" {quoted(column.name)}={value_text(value)}" for column, value in zip(relation.columns, values, strict=True))
    return f" {kind}" + "".join(named)


def lines(all_events):
    shown = {}
    origin = ""

    def shape(relation):
        if shown.get(relation.oid) != relation.text():
            shown[relation.oid] = relation.text()
            yield relation.text()

    for event in all_events:
        if event.kind == "keepalive":
            yield f"keepalive {lsn_text(event.lsn)}{' asks' if event.asks else ''}"
        elif event.kind == "begin":
            origin = ""
            yield f"begin {lsn_text(event.commit_lsn)} xid {event.xid} time {event.time_us}"
        elif event.kind == "origin":
            origin = f" origin {quoted(event.name)} {lsn_text(event.end_lsn)}"
        elif event.kind == "commit":
            yield f"commit {lsn_text(event.end_lsn)}{origin}"
        elif event.kind == "truncate":
            for number, relation in enumerate(event.relations):
                yield from shape(relation)
                place = (event.position[0], event.position[1] + number)
                yield f"truncate {relation.oid} at {position_text(place)} lsn {lsn_text(event.lsn)}"
        elif event.kind == "message":
            yield (f"message {'inside' if event.flags else 'alone'} at {position_text(event.position)} "
                   f"lsn {lsn_text(event.end_lsn)} {quoted(event.name)} {value_text(('t', event.content))}")
        elif event.kind in ("insert", "update", "delete"):
            yield from shape(event.relation)
            yield (f"{event.kind} {event.relation.oid} at {position_text(event.position)} lsn {lsn_text(event.lsn)}"
                   + tuple_text(event.old_kind, event.relation, event.old) + tuple_text("N", event.relation, event.new))


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    for line in lines(events(data)):
        print(line)


if __name__ == "__main__":
    main()
