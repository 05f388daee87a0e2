"""A PostgreSQL that tells one lie: each message that it sends, from the answer to SSLRequest to the end of the stream, is a
list of fields (fields.py), and one of them is sent otherwise.

Formats: PostgreSQL's manual, "Message Formats", "Streaming Replication Protocol", "Logical Replication Message Formats",
"SASL Authentication"."""

import base64
import hashlib
import hmac
import os
import re
import select
import socket
import struct
import threading
import time

from fields import Field, Message, garbage, number
from listener import Listener

TEXT = 25
PARAMETERS = {"server_version": "15.18", "server_encoding": "UTF8", "client_encoding": "UTF8", "DateStyle": "ISO, MDY",
              "integer_datetimes": "on", "standard_conforming_strings": "on", "TimeZone": "UTC"}

# What millrace asks, by a part of its text, in the order in which a start asks it; and what an honest server answers.
QUESTIONS = {
    "lock": (r"pg_try_advisory_lock", [["t"]]),
    "identity": (r"^IDENTIFY_SYSTEM", [["7000000000000000001", "1", "0/2000", "shop"]]),
    "state": (r"current_setting\('wal_level'\)",
              [["logical", "UTF8", None, None, "4711", "t", "logical", "pgoutput", "shop", None, "reserved", "0", "f", "0/1000",
                None, None, None, None, "t", "t", "t", "f"]]),
    "slots": (r"^SELECT slot_name, confirmed_flush_lsn", [["shop", "0/1000", None]]),
    "young": (r"^SELECT EXISTS \(SELECT FROM pg_publication p", [["f"]]),
    "tables": (r"SELECT c\.relkind, c\.relpersistence", [["r", "p", "d", "t", "t", "0", None, None, None]]),
    "unlogged parts": (r"fits AS \(SELECT DISTINCT", [["0", None]]),
    "unlisted": (r"FROM unlisted", [["0", None, "0", "0", "0", None, "0", None, "0", None, "0", None]]),
    "filters": (r"AS filter", [["public", "t", "(id > 0)", "id, v"]]),
    "end": (r"^SELECT CASE WHEN pg_is_in_recovery", [["0/2000", "0"]]),
    "captured": (r"WHEN l\.oid", [["16385", "2", "t", "0", None, None, None]]),
    "keys": (r"SELECT s\.\*, t\.\*", [["0/2000"] + [None] * 15]),
    "form": (r"^SELECT 0::bigint AS oid", [["0", None, None, "0", None, None, None, "t", "t", "t", "t", "f", "f"]]),
    "types": (r"t\.typbasetype", [["50000", "25", "-1", "0", "d", "mood"]]),
}
PASSWORD = "fake-secret"
OID, LISTED = 16385, ("public", "t")
SLOT_AT = 0x1000
FRESH = {"state": [["logical", "UTF8", None, None, "4711", "t"] + [None] * (len(QUESTIONS["state"][1][0]) - 6)], "keys": [["0/2000"] + [None] * 15], "slots": [[None, None, None]]}
MADE = {"patience": (r"^SELECT least\(setting", [["1500"]])}
COMMANDS = {"create publication": r"^(SET LOCAL lock_timeout = \d+; )?CREATE PUBLICATION", "create slot": r"^CREATE_REPLICATION_SLOT"}
# What `millrace check` asks besides.
CHECKED = {"limits": (r"max_replication_slots", [["1", "10", "1", "10", "-1", "60000", "4096"]]),
           "keys besides": (r"^SELECT k\.nspname, k\.relname", [["public", "t", "id,name", "name,id", "t"]]),
           "client's port": (r"^SELECT greatest\(inet_client_port", [["0"]]),
           "role": (r"^SELECT rolsuper", [["f", "t", "t", "f"]]),
           "owner": (r"FROM pg_locks a", [["4711", "millrace", "192.0.2.1", "t", "t", "shop"]]),
           "load": (r"^SELECT active_pid::bigint", [["4711", "0"]]),
           "functions": (r"row_security_active", [["public", "t", "public", "t", "t", "t", "f", "s.f of role x", "t"]]),
           "large values": (r"r\.reltoastrelid <> 0", [["public.t", "f"]])}
# What is asked with types = "debezium", as the registry's trials have it; no lie is told about it.
ORDERED = {"key order": (r"^SELECT oid, kind, rank, place", [["16385", "0", "0", "0", "id"]])}
# What it asks who comes back to a position that is stored, of a server that was promoted meanwhile.
RESUMED = {"identity": [["7000000000000000001", "2", "0/2000", "shop"]]}
BACK = {"history": (r"^TIMELINE_HISTORY", [["00000002.history", "1\t0/1F00\tpromoted\n"]])}
# And where existing rows are copied (snapshot.mode = "initial"); before the others, whose patterns fit some of these, too.
COPIED = {
    "copies": (r"^SELECT slot_name, coalesce", [], 4),
    "rights": (r"row_security_active", [["public", "t", "public", "t", "t", "t", "f", None, "f"]], 9),
    "copy slot": (r"^CREATE_REPLICATION_SLOT", [["shop_snapshot_1", "0/2000", "00000003-00000002-1", "pgoutput"]], 4),
    "snapshot": (r"^SELECT pg_export_snapshot", [["00000004-00000003-1", "700", "1700000000000000"]], 3),
    "copy tables": (r"c\.relreplident, l\.oid::bigint", [["16385", "public", "t", "d", "16385", "public", "t", None, "8192", "2",
                                                         "1", "t", "16400", "t"]], 14),
    "copy columns": (r"s\.oid::bigint, a\.attname", [["16385", "id", "20", "-1", "t", "1"], ["16385", "name", "25", "-1", "f", "2"]], 6),
    "copy file": (r"^SELECT CASE to_regclass", [["16400"]], 1),
    "copy slot seen": (r"^SELECT count\(\*\) FROM pg_replication_slots WHERE slot_name = ", [["1"]], 1),
    "slot of stream": (r"^SELECT pg_copy_logical_replication_slot", [["(shop,0/2000)"]], 1),
    "slot dropped": (r"^SELECT pg_drop_replication_slot", [[""]], 1),
}
BROKEN_OFF = [["shop_snapshot_1", "0/2000", None, "t"]]
TWO_TABLES = {"tables": QUESTIONS["tables"][1] * 2, "captured": [["16385", "2", "t", "0", None, None, None], ["16390", "2", "t", "0", None, None, None]]}
# What is asked for by a row of the table of signals: a table is found, and copied in chunks while the stream runs.
XID = 100_000
SIGNALLED = {
    "names of tables": (r"c\.relname FROM sent JOIN", [["16385", "public", "t"]]),
    "chunk partitions": (r"up\(leaf, oid, youngest\)", [["public", "of_others", "public", "others", "public", "of_others"]]),
    "table found": (r"named AS MATERIALIZED", [["16385", "public", "t", "2", "public", "t", None, "t"]]),
    "transaction number": (r"pg_current_xact_id\(\)", [[str(XID)]]),
    "chunk snapshot": (r"^SELECT pg_current_snapshot\(\)", [[f"{XID + 1}:{XID + 1}:", "0/2000", "77"]]),
    "chunk table": (r" SELECT c\.relreplident, c\.relkind", [["d", "r", "(id > 0)", "0", None, None]]),
    "chunk columns": (r"s\.oid::bigint, a\.attname", [["16385", "id", "20", "-1", "t", "1"], ["16385", "name", "25", "-1", "f", "2"]]),
    "chunk order": (r"w\.attcollation = i\.indcollation", [["id", None, "pg_catalog", ">", "pg_catalog", "<", "0"]]),
}
# What is asked about a table of the stream that is not listed: it may have been a partition of one that is.
DETACHED = {"sees": (r"^SELECT q\.ago", [["t"]]),
            "look": (r"^WITH RECURSIVE up\(oid\)", [["0/2900", "t", "f", "f", "f", "700", "t"]]),
            "kin": (r"at_that_time", [["public.t", "t", "public.gone", "16385", "public", "t"]])}
# What is asked where the publication is to have a row filter and a list of columns: a draft of it, compared, and then altered.
# And rules for columns by patterns are compared with what there is.
DRAFTED = {"columns at the start": (r"a\.attnum, a\.attname, coalesce\(", [["16385", "public", "t", "1", "id", "t"],
                                                                          ["16385", "public", "t", "2", "name", "t"]]),
           "columns by number": (r"^SELECT attnum, CASE", [["1", "id", "0"], ["2", "name", "0"]]),
           "sees": DETACHED["sees"], "look": (DETACHED["look"][0], [["0/2900", "t", "f", "t", "f", "700", "t"]]),
           "rules": (r"shown AS MATERIALIZED", [["t", "f"]]),
           "draft": (r"AS filter.* draft AS ", [["public", "t", "(id > 0)", "id, name", "d", None, None, "t", "t", "f", None, "id", "16400"]])}
BEATEN = {"heartbeat": (r"^SELECT heartbeat", [["1", "2"]])}
# Commands of those states, whose answers are a word.
MORE_COMMANDS = {
    "signals": {"reader's settings": r"^RESET ALL; RESET ROLE; .*SET row_security", "chunk begin": r"^BEGIN ISOLATION.*LOCK TABLE ONLY", "chunk end": r"^COMMIT; RESET ALL"},
    "drafted": {"draft begin": r"^BEGIN$", "draft limit": r"^SET LOCAL lock_timeout", "draft made": r'^CREATE PUBLICATION "millrace_draft',
                "draft of table": r'^ALTER PUBLICATION "millrace_draft', "draft end": r"^ROLLBACK$", "altered": r"^BEGIN; SET LOCAL"},
    "heartbeat": {"heartbeat settings": r"^SET statement_timeout"}, "detached": {},
}
BESIDE = {"signals": SIGNALLED, "drafted": DRAFTED, "heartbeat": BEATEN, "detached": DETACHED}
NOTICE = b"SNOTICE\0C00000\0M" + b"x" * 4000 + b"\0\0"
NOTIFICATION = struct.pack("!I", 1) + b"channel\0" + b"x" * 4000 + b"\0"


def framed(kind):
    return lambda body, length=None: kind + number(4, len(body) + 4 if length is None else length) + body


def data_row(values):
    body = struct.pack("!H", len(values))
    for value in values:
        if value is None:
            body += struct.pack("!i", -1)
        else:
            value = value if isinstance(value, bytes) else value.encode()
            body += struct.pack("!i", len(value)) + value
    return framed(b"D")(body)


def error(sqlstate, text):
    fields = ("S", "FATAL"), ("V", "FATAL"), ("C", sqlstate), ("M", text)
    return framed(b"E")(b"".join(f"{field}{value}\0".encode() for field, value in fields) + b"\0")


def of(name, kind, *fields):
    return Message(name, list(fields), framed(kind.encode()))


# ---- the messages of a session ----

def ready(name):
    return of(f"{name} ready", "Z", Field("char", b"I", "status"))


def answer(name, rows, columns):
    """What a question gets: a message each for the columns, a row, the end."""
    edges = (0, columns // 2, columns - 1)
    described = [Field("count16", columns, "columns")]
    for i in range(columns):
        plain = i not in edges
        described += [Field("name", f"c{i}", f"name {i}", plain), Field("u32", 0, f"table {i}", plain),
                      Field("u16", 0, f"column {i}", plain), Field("u32", TEXT, f"type {i}", plain),
                      Field("u16", 0xFFFF, f"size {i}", plain), Field("u32", 0xFFFFFFFF, f"modifier {i}", plain),
                      Field("u16", 0, f"format {i}", plain)]
    yield of(f"{name} columns", "T", *described)
    for row in rows:
        fields = [Field("count16", columns, "values")]
        for i, value in enumerate(row):
            plain = i not in edges
            fields.append(Field("length", -1 if value is None else len(value), f"length {i}", plain))
            if value is not None:
                fields.append(Field("bytes", value, f"value {i}", plain))
        told = of(f"{name} row", "D", *fields)
        told.values = row
        yield told
    yield of(f"{name} end", "C", Field("name", f"SELECT {len(rows)}", "tag"))
    yield ready(name)


def data(name, start, *fields):
    """XLogData."""
    return of(name, "d", Field("char", b"w", "kind"), Field("lsn", start, "start"), Field("lsn", start, "end of WAL"),
              Field("time", 0, "time"), *fields)


def keepalive(name, end, asks):
    return of(name, "d", Field("char", b"k", "kind"), Field("lsn", end, "end of WAL"), Field("time", 0, "time"),
              Field("u8", asks, "asks"))


def row(*values):
    fields = [Field("count16", len(values), "columns")]
    for i, value in enumerate(values):
        if value in (None, ...):
            fields.append(Field("char", b"n" if value is None else b"u", f"kind {i}"))
        else:
            fields += [Field("char", b"t", f"kind {i}"), Field("length", len(value), f"length {i}"),
                       Field("bytes", value, f"value {i}")]
    return fields


def relation(name, start, columns):
    fields = [Field("char", b"R", "type"), Field("u32", OID, "oid"), Field("name", LISTED[0], "schema"),
              Field("name", LISTED[1], "table"), Field("char", b"d", "identity"),
              Field("count16", len(columns), "columns")]
    for i, (column, kind) in enumerate(columns):
        fields += [Field("u8", i == 0, f"flags {i}"), Field("name", column, f"name {i}"), Field("u32", kind, f"type {i}"),
                   Field("u32", 0xFFFFFFFF, f"modifier {i}")]
    return data(name, start, *fields)


def begin(name, commit):
    return data(name, commit - 0x80, Field("char", b"B", "type"), Field("lsn", commit, "final"), Field("time", 1, "time"),
                Field("u32", commit, "xid"))


def commit(name, lsn):
    return data(name, lsn, Field("char", b"C", "type"), Field("u8", 0, "flags"), Field("lsn", lsn, "commit"),
                Field("lsn", lsn + 0x30, "end"), Field("time", 1, "time"))


def change(name, start, kind, *fields):
    return data(name, start, Field("char", kind.encode(), "type"), Field("u32", OID, "relation"), *fields)


def tag(letter):
    return Field("char", letter.encode(), "tuple")


def small(prefix, commit_lsn, number_of_row):
    """A transaction of one row."""
    at = commit_lsn - 0x40
    return commit_lsn + 0x30, [
        begin(f"{prefix} begin", commit_lsn), relation(f"{prefix} relation", at, [("id", 20), ("name", TEXT)]),
        change(f"{prefix} insert", at, "I", tag("N"), *row(str(number_of_row), f"row-{number_of_row}")),
        commit(f"{prefix} commit", commit_lsn)]


def wide(commit_lsn):
    """A transaction with each message of protocol version 1."""
    at = commit_lsn - 0x40
    columns = [("id", 20), ("name", TEXT), ("number", 1700), ("large", TEXT)]
    return commit_lsn + 0x30, [
        begin("begin", commit_lsn),
        data("origin", at, Field("char", b"O", "type"), Field("lsn", at, "origin's"), Field("name", "elsewhere", "name")),
        relation("relation", at, columns),
        data("type", at, Field("char", b"Y", "type"), Field("u32", 50000, "oid"), Field("name", "public", "schema"),
             Field("name", "mood", "name")),
        change("insert", at, "I", tag("N"), *row("2", "row-2", "1.5", None)),
        change("update", at, "U", tag("N"), *row("2", "changed", "2.5", ...)),
        change("update of key", at, "U", tag("K"), *row("2", None, None, None), tag("N"), *row("22", "x", "3", "l")),
        change("update of all", at, "U", tag("O"), *row("22", "x", "3", "l"), tag("N"), *row("22", "y", "NaN", "l")),
        change("delete by key", at, "D", tag("K"), *row("22", None, None, None)),
        change("delete of all", at, "D", tag("O"), *row("23", "x", "-4", None)),
        data("message inside", at, Field("char", b"M", "type"), Field("u8", 1, "flags"), Field("lsn", at, "lsn"),
             Field("name", "prefix", "prefix"), Field("length", 7, "length"), Field("bytes", b"content", "content")),
        data("truncate", at, Field("char", b"T", "type"), Field("count", 1, "relations"), Field("u8", 0, "flags"),
             Field("u32", OID, "relation")),
        commit("commit", commit_lsn)]


# A row of the table of signals, in Debezium's form.
SIGNAL_OID = 16390
WANTED = '{"data-collections": ["public.t*"], "type": "incremental"}'
DEEP = 30_000


def signal(data_of):
    return "execute-snapshot", data_of


SIGNALS = {
    "no object": signal("[1]"), "no JSON": signal('{"'), "nothing": signal(""), "deep lists": signal("[" * DEEP + "]" * DEEP),
    "deep objects": signal('{"a":' * DEEP + "1" + "}" * DEEP), "a deep member": signal('{"data-collections":' + "[" * 900 + "]" * 900 + "}"),
    "other types": signal('{"data-collections": [1, null, {}], "type": 5}'), "many tables": signal(
        '{"data-collections": [' + ",".join(['"public.t"'] * 200) + "]}"),
    "many expressions": signal('{"data-collections": [' + ",".join(['".*"'] * 200) + "]}"),
    "too many tables": signal('{"data-collections": [' + ",".join(['"a.b"'] * 5000) + "]}"),
    "large expression": signal('{"data-collections": ["' + "(a|b)*" * 5000 + '"]}'),
    "repeats": signal('{"data-collections": ["((a{1,99}){1,99}){1,99}"]}'), "open bracket": signal('{"data-collections": ["public.[t"]}'),
    "many conditions": signal('{"data-collections": ["public.t"], "additional-conditions": [' + ",".join(
        ['{"data-collection": "public.t", "filter": "true"}'] * 200) + "]}"),
    "condition that comments": signal('{"data-collections": ["public.t"], "additional-condition": "true --"}'),
    "conditions of other types": signal('{"data-collections": ["public.t"], "additional-conditions": [1, [], {"data-collection": 1}]}'),
    "another key": signal('{"data-collections": ["public.t"], "surrogate-key": "name"}'),
    "many keys": signal('{"data-collections": ["public.t"], "surrogate-key": "' + "id," * 10_000 + '"}'),
    "a key of commas": signal('{"data-collections": ["public.t"], "surrogate-key": "' + "," * 2000 + '"}'),
    "a long name": signal('{"data-collections": ["public.' + "x" * 60_000 + '"]}'), "quotes": signal(
        '{"data-collections": ["\\"public\\".\\"t\\"; DROP TABLE t"]}'),
    "a zero": signal('{"data-collections": ["public.t\\u0000x"], "type": "incremental\\u0000"}'),
    "half a pair": signal('{"data-collections": ["public.\\ud800"]}'), "64 KB": signal('{"a": "' + "x" * 65_500 + '"}'),
    "stop all": ("stop-snapshot", ""), "stop": ("stop-snapshot", WANTED), "pause": ("pause-snapshot", "{}"),
    "resume": ("resume-snapshot", "{}"), "blocking": signal('{"data-collections": ["public.t"], "type": "BLOCKING"}'),
    "log": ("log", '{"message": "' + "\\u001b[31m\\n" * 3000 + '"}'), "log of nothing": ("log", "{}"), "no type": ("", WANTED),
    "a long type": ("x" * 60_000, WANTED),
}


def signal_row(kind, data_of):
    told = change("signal insert", 0x27C0, "I", tag("N"), *row("1", kind, data_of))
    told.fields[5].value = SIGNAL_OID
    return told


def signalled(commit_lsn):
    """A transaction with a signal that asks for a table's rows."""
    at = commit_lsn - 0x40
    insert = signal_row("execute-snapshot", WANTED)
    insert.bodies = {how: signal_row(*what).body() for how, what in SIGNALS.items()}
    columns = relation("signal relation", at, [("id", TEXT), ("type", TEXT), ("data", TEXT)])
    columns.fields[5].value, columns.fields[7].value = SIGNAL_OID, "signals"
    return commit_lsn + 0x30, [begin("signal begin", commit_lsn), columns, insert, commit("signal commit", commit_lsn)]


def detached(commit_lsn):
    """A transaction with a row of a table that was a partition then."""
    end, messages = small("detached", commit_lsn, 2)
    of_table, insert = messages[1:3]
    of_table.fields[5].value, of_table.fields[7].value, insert.fields[5].value = SIGNAL_OID, "part", SIGNAL_OID
    return end, messages


FIRST, WIDE, LAST = small("first", 0x3000, 1), wide(0x4000), small("last", 0x6000, 3)
ALONE = 0x5000
# Each piece of the stream, and where it ends: one that ends at or before the start is not sent again.
STREAM = (FIRST, WIDE,
          (ALONE, [data("message alone", ALONE, Field("char", b"M", "type"), Field("u8", 0, "flags"),
                        Field("lsn", ALONE, "lsn"), Field("name", "prefix", "prefix"), Field("length", 7, "length"),
                        Field("bytes", b"content", "content")),
                   keepalive("keepalive", 0x5100, 0), keepalive("keepalive that asks", 0x5200, 1)]),
          LAST)
END = LAST[0]
SIGNAL_STREAM = (signalled(0x2800), FIRST)
STREAMS = {"signals": SIGNAL_STREAM, "detached": (detached(0x2800), FIRST)}


def greeting():
    return [of("authenticated", "R", Field("u32", 0, "kind")),
            *(of(f"parameter {name}", "S", Field("name", name, "name"), Field("name", value, "value"))
              for name, value in PARAMETERS.items()),
            of("cancel key", "K", Field("u32", 4711, "process"), Field("u32", 1, "key")), ready("greeting")]


def login(how):
    return {"cleartext": [of("ask cleartext", "R", Field("u32", 3, "kind"))],
            "md5": [of("ask md5", "R", Field("u32", 5, "kind"), Field("bytes", b"salt", "salt"))],
            "scram": [of("ask scram", "R", Field("u32", 10, "kind"), Field("name", "SCRAM-SHA-256", "mechanism"),
                         Field("bytes", b"\0", "end"))]}.get(how, [])


def done(name):
    """What a command gets that answers no rows."""
    return [of(f"{name} end", "C", Field("name", "DONE", "tag")), ready(name)]


ENDING = [of("stream done", "c"), of("stream end", "C", Field("name", "COPY 0", "tag")), ready("stream")]
COPY_BOTH = of("copy both", "W", Field("u8", 0, "format"), Field("count16", 0, "columns"))
SSL = Message("ssl", [Field("char", b"N", "answer")], lambda body, length=None: body)


# What COPY gets, asked by the extended protocol: of a copy at the beginning each row tells its place, of a chunk it does not.
def copy_out(name, columns, copied):
    return [of(f"{name}parsed", "1"), of(f"{name}bound", "2"), of(f"{name}no data", "n"),
            of(f"{name}copy out", "H", Field("u8", 0, "format"), Field("count16", columns, "columns"),
               *(Field("u16", 0, f"format {i}") for i in range(columns))), *copied,
            of(f"{name}copy done", "c"), of(f"{name}copy end", "C", Field("name", f"COPY {len(copied)}", "tag")), ready(f"{name}copy")]


COPY_OUT = copy_out("", 3, [of(f"copied row {n}", "d", Field("char", b"(", "open"), Field("bytes", f"0,{n})", "place"),
                               Field("bytes", b"\t", "tab"), Field("bytes", f"{n}\trow-{n}", "values"), Field("bytes", b"\n", "end"))
                            for n in (1, 2)])
NAMES_OUT = copy_out("names ", 1, [of("names row", "d", Field("bytes", b"f\n", "have changed"))])


def chunk_row(n):
    told = of(f"chunk row {n}", "d", Field("bytes", f"{n}", "key"), Field("bytes", b"\t", "tab"), Field("bytes", f"row-{n}", "value"),
              Field("bytes", b"\n", "end"))
    told.texts = CHUNK_ROWS
    return told


# What a row of a chunk may be otherwise.
CHUNK_ROWS = {"null key": b"\\N\trow\n", "empty key": b"\trow\n", "large key": b"9" * 100_000 + b"\trow\n",
              "key below": b"-5\trow\n", "no number": b"x\trow\n", "one column": b"1\n", "three columns": b"1\trow\tmore\n",
              "only tabs": b"\t" * 5000 + b"\n", "open escape": b"1\trow\\\n", "no such escape": b"1\t\\q\n", "no text": b"1\t\xff\xfe\n",
              "a zero": b"1\0\tr\0ow\n", "no end": b"1\trow", "two lines": b"1\trow\n2\trow\n", "3 MB": b"1\t" + b"x" * 3_000_000 + b"\n"}
CHUNK_OUT = copy_out("chunk ", 2, [chunk_row(1), chunk_row(2)])


def scram_messages(nonce, salt, signature):
    return (of("scram challenge", "R", Field("u32", 11, "kind"), Field("bytes", f"r={nonce}", "nonce"),
               Field("bytes", f",s={salt}", "salt"), Field("bytes", ",i=4096", "iterations")),
            of("scram proof", "R", Field("u32", 12, "kind"), Field("bytes", f"v={signature}", "signature")))


def all_messages():
    """Every message there is, with the login and the state of the server that it takes: [(message, login, state)]; a state
    is "", "fresh" (no slot and no publication yet), "copy" (likewise, and existing rows are copied), "copy again" (such a
    copy was broken off), "check" (`millrace check` asks), "resumed" (a position is stored), "signals" (a table of signals is read),
    "drafted" (the publication is to have a filter), "heartbeat" (queries are run), or "detached" (a table was a partition)."""
    found = [(SSL, "trust", "")]
    for how in ("cleartext", "md5", "scram"):
        found += [(message, how, "") for message in login(how)]
    found += [(message, "scram", "") for message in scram_messages("nonce", "c2FsdA==", "c2lnbmF0dXJl")]
    found += [(message, "trust", "") for message in greeting()]
    for name, (_, rows) in QUESTIONS.items():
        found += [(message, "trust", "") for message in answer(name, rows, len(rows[0]))]
    for name, (_, rows) in MADE.items():
        found += [(message, "trust", "fresh") for message in answer(name, rows, len(rows[0]))]
    for name in COMMANDS:
        found += [(message, "trust", "fresh") for message in done(name)]
    for name, (_, rows, columns) in COPIED.items():
        found += [(message, "trust", "copy") for message in answer(name, rows, columns)]
    found += [(message, "trust", "copy") for message in [*NAMES_OUT, *COPY_OUT]]
    found += [(message, "trust", "copy again") for message in answer("copies", BROKEN_OFF, 4)]
    for name, (_, rows) in CHECKED.items():
        found += [(message, "trust", "check") for message in answer(name, rows, len(rows[0]))]
    for name, (_, rows) in BACK.items():
        found += [(message, "trust", "resumed") for message in answer(name, rows, len(rows[0]))]
    for state, questions in BESIDE.items():
        for name, (_, rows) in questions.items():
            found += [(message, "trust", state) for message in answer(name, rows, len(rows[0]))]
        for name in MORE_COMMANDS[state]:
            found += [(message, "trust", state) for message in done(name)]
    found += [(message, "trust", "signals") for message in CHUNK_OUT]
    found += [(message, "trust", "signals") for message in SIGNAL_STREAM[0][1]]
    found.append((COPY_BOTH, "trust", ""))
    for _, messages in STREAM:
        found += [(message, "trust", "") for message in messages]
    return found + [(message, "trust", "") for message in ENDING]


# ---- lies about a message as a whole ----

def errors():
    yield "an error", error("XX000", "no")
    yield "an error that repeats", error("57P01", "no") * 50
    yield "an error without text", framed(b"E")(b"\0")
    yield "an error without end", framed(b"E")(b"SFATAL\0C57P01\0Mno")
    yield "a large error", error("XX000", "x" * 1_000_000)
    yield "an error of no text", framed(b"E")(b"S\xff\xfe\0C\xff\xff\0M\xff\x80\n\x01\0\0")


def length_lies(message):
    body = message.body()
    whole = len(body) + 4
    for how, length in (("0", 0), ("3", 3), ("4", 4), ("1 more", whole + 1), ("1 less", whole - 1), ("huge", 0x3FFFFFFE),
                        ("highest", 0x7FFFFFFF), ("lowest", 0x80000000), ("minus 1", 0xFFFFFFFF), ("30 MB", 30_000_000)):
        yield f"length: {how}", lambda length=length: message.frame(body, length)


def kind_lies(message):
    data_of = message.encode()
    for kind in b"\0\xff123AcCdDEGHIKnNRsStTvVWZ":
        if kind != data_of[0]:
            yield f"another type {chr(kind)!r}", lambda kind=kind: bytes([kind]) + data_of[1:]


def whole_lies(message):
    """What is sent instead. A text at the end is what becomes of the connection: closed, or silent."""
    data_of = message.encode()
    half = len(data_of) // 2
    yield "half, closed", lambda: (data_of[:half], "close")
    yield "half, silence", lambda: (data_of[:half], "silence")
    yield "closed", lambda: (b"", "close")
    yield "withheld, silence", lambda: (b"", "silence")
    yield "withheld, goes on", lambda: b""
    yield "late", lambda: "late"
    yield "twice", lambda: data_of * 2
    yield "2,000 times", lambda: data_of * 2000
    yield "garbage", lambda: garbage(50_000)
    yield "garbage before", lambda: garbage(64) + data_of
    yield "garbage behind", lambda: data_of + garbage(64)
    yield "10 MB of garbage", lambda: garbage(10_000_000)
    yield "zeros", lambda: bytes(10_000)
    yield "notices before", lambda: framed(b"N")(NOTICE) * 1000 + data_of
    yield "notifications before", lambda: framed(b"A")(NOTIFICATION) * 1000 + data_of
    yield "parameters before", lambda: framed(b"S")(b"name\0" + b"v" * 4000 + b"\0") * 200 + data_of
    for how, text in errors():
        yield how, lambda text=text: text
        yield how + ", closed", lambda text=text: (text, "close")


def value_lies(message):
    """Of a row: each value another one, and rows without end."""
    values = getattr(message, "values", [])
    for i in range(len(values)):
        for how, value in VALUES.items():
            if value != values[i]:
                yield f"column {i}: {how}", lambda i=i, value=value: data_row([*values[:i], value, *values[i + 1:]])
    if values and "MILLRACE_TEST_SANITIZED" not in os.environ:  # gigabytes, where nobody counts what is allocated
        yield "parameters described without end", lambda: (repeated(DESCRIBED), "flood")
    if values:
        yield "rows without end", lambda: (repeated(data_row(values)), "flood")
        yield "rows of nulls without end", lambda: (repeated(data_row([None] * len(values))), "flood")
        yield "rows forward without end", lambda: (counted(values, 1), "flood")
        yield "rows backward without end", lambda: (counted(values, -1), "flood")
    for how, body in getattr(message, "texts", {}).items():
        yield how, lambda body=body: message.frame(body)
    if hasattr(message, "texts"):
        yield "rows without end", lambda: ((b"".join(message.frame(b"%d\trow\n" % n) for n in range(at, at + 1000))
                                            for at in range(0, FLOOD // 20, 1000)), "flood")
        yield "rows that end late", lambda: b"".join(message.frame(b"%d\trow\n" % n) for n in range(100_000)) + message.encode()
    for how, body in getattr(message, "bodies", {}).items():
        yield f"signal: {how}", lambda body=body: message.frame(body)


VALUES = {"null": None, "empty": "", "0": "0", "minus 1": "-1", "highest": "9223372036854775807", "beyond": "9999999999999999999",
          "an OID": "4294967295", "letter": "x", "true": "t", "false": "f", "quotes": "a'b\"c\\d\n; --", "no text": b"\xff\xfe",
          "100 KB": "x" * 100_000, "commas": "1:1:" + "1," * 500_000 + "1", "a position": "FFFFFFFF/FFFFFFFF"}
FLOOD = 60_000_000
DESCRIBED = b"t" + struct.pack("!IHI", 10, 1, TEXT)


def repeated(data_of):
    piece = data_of * (65536 // len(data_of) + 1)
    return (piece for _ in range(FLOOD // len(piece)))


def counted(values, step):
    """Rows whose numbers grow, or fall."""
    numbered = [isinstance(value, str) and value.isdigit() for value in values]
    form = data_row(["%%010d" if number_of else value for value, number_of in zip(values, numbered)])
    form = form.replace(b"%", b"%%").replace(b"%%%%010d", b"%010d")
    begin_at = 2_000_000_000 if step < 0 else 20_000
    for at in range(0, FLOOD // 2 // len(form), 1000):
        yield b"".join(form % ((begin_at + step * n,) * sum(numbered)) for n in range(at, at + 1000))


def lies_of(message):
    if message.name == "ssl":
        for byte in (b"S", b"E", b"G", b"\0", b"\xff", b"NN", b"N" + garbage(100), b"S" + garbage(100), b"S" * 10_000):
            yield f"{byte[:4]!r} and {len(byte) - 1}", lambda byte=byte: byte
        yield "S and silence", lambda: (b"S", "silence")
        yield from whole_lies(message)
        return
    for lies in (message.field_lies(), message.body_lies(), length_lies(message), kind_lies(message), whole_lies(message),
                 value_lies(message)):
        yield from lies


# ---- the server ----

class Lie:
    def __init__(self, target, how, make, way_in="trust", state="", always=False, skip=0):
        self.target, self.how, self.make = target, how, make
        self.login, self.state, self.always, self.skip = way_in, state, always, skip
        self.name = f"{target} | {how}" + (" | number 2" if skip else "") + (" | always" if always else "")


def all_lies():
    """Every lie there is. A message that is sent to every connection of a process is now and then spoilt in all; what is asked
    before a table is copied, and again for its first chunk, half of the times in the second answer."""
    for message, way_in, state in all_messages():
        twice = message.name.startswith(("chunk table", "chunk columns", "chunk order"))
        for i, (how, make) in enumerate(lies_of(message)):
            yield Lie(message.name, how, make, way_in, state, always=i % 5 == 4, skip=twice and i % 2)


class LyingPostgres(Listener):
    """`lie` None: an honest one. `told`: that it was told. `confirmed`: the highest position that the other side says is
    safe; `faults`: what it may not have said."""

    def __init__(self, lie=None, stream=STREAM, patience_s=0, state="", host="127.0.0.1"):
        self.lie, self.state = lie, lie.state if lie else state
        self.stream = stream = STREAMS.get(self.state, stream)
        self.patience_s = patience_s  # how long it waits for each transaction's confirmation before it sends the next
        self.end = stream[-1][0]
        self.told = threading.Event()
        self.skipped = 0
        self.finished = threading.Event()  # everything was confirmed
        self.gone = threading.Event()      # behind the lie, the other side closed a connection or asked anew
        self.confirmed = 0
        self.positions = {0, SLOT_AT}
        self.faults = []
        self.on_confirm = None
        self.connections = 0
        self.copied = False  # the stream's slot was made of the copy's
        self.asked, self.asked_of_sender = [], []  # in all sessions; in the one that streams
        self.start_up, self.passwords = [], []
        self.host = host
        self.listen(backlog=16, host=host)

    def dsn(self):
        return f"postgresql://someone:{PASSWORD}@{self.host}:{self.ports[0]}/shop?connect_timeout=3"

    def _accepted(self):
        if self.told.is_set():
            self.gone.set()
        self.connections += 1

    def _serve(self, connection):
        try:
            with connection:
                Session(self, connection).run()
        except (OSError, EOFError):
            pass
        if self.told.is_set():
            self.gone.set()

    def note(self, data_of):
        """Positions in what is about to be sent, wherever a reader may find them: at its beginning, or behind what a lie
        put before it."""
        for part in (data_of[:4096], data_of[-4096:]):
            for high, low in re.findall(rb"([0-9A-F]{1,8})/([0-9A-F]{1,8})", part):
                self.positions.add(int(high, 16) << 32 | int(low, 16))
            at = -1
            while (at := part.find(b"d", at + 1)) >= 0:
                for place in (6, 14, 31, 32, 40):
                    if at + place + 8 <= len(part):
                        self.positions.add(int.from_bytes(part[at + place:at + place + 8], "big"))

    def take_status(self, flushed):
        if flushed not in self.positions:
            self.faults.append(f"confirmed {flushed:X}, which was never told")
        if self.on_confirm is not None:
            self.on_confirm(flushed)
        self.confirmed = max(self.confirmed, flushed)
        if flushed >= self.end:
            self.finished.set()


class Session:
    def __init__(self, server, connection):
        self.server, self.connection = server, connection
        self.received = b""
        self.late = b""
        self.asked = []

    # ---- bytes ----

    def say(self, *messages):
        for message in messages:
            lie = self.server.lie
            if lie is None or lie.target != message.name or (self.server.told.is_set() and not lie.always):
                self.send(message.encode())
                continue
            self.server.skipped += 1
            if self.server.skipped <= lie.skip:
                self.send(message.encode())
                continue
            spoilt = lie.make() if message.name not in ("scram challenge", "scram proof") else self.spoil_scram(message)
            if spoilt == "late":
                self.late = message.encode()
                self.server.told.set()
                continue
            spoilt, then = spoilt if isinstance(spoilt, tuple) else (spoilt, None)
            if then == "flood":
                self.flood(spoilt)
                continue
            self.server.told.set()
            self.send(spoilt)
            if then == "close":
                self.connection.shutdown(socket.SHUT_RDWR)
                raise EOFError
            while then == "silence":
                self.pull()

    def flood(self, pieces):
        """Until the other side has had enough, or there are no more."""
        try:
            for piece in pieces:
                self.connection.sendall(piece)
        finally:
            self.server.told.set()

    def spoil_scram(self, message):
        """These differ each time: the same lie about this one. What is no lie of the list is told of what would be true."""
        return next((make for how, make in lies_of(message) if how == self.server.lie.how), lambda: self.server.lie.make(message))()

    def send(self, data_of):
        self.server.note(data_of)
        late, self.late = self.late, b""
        self.connection.sendall(data_of + late)

    def pull(self):
        more = self.connection.recv(65536)
        if not more:
            raise EOFError
        self.received += more

    def take(self, count):
        while len(self.received) < count:
            self.pull()
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def take_message(self):
        kind, length = struct.unpack("!cI", self.take(5))
        return kind, self.take(length - 4)

    # ---- a session ----

    def run(self):
        while True:
            length, code = struct.unpack("!II", self.take(8))
            parameters = self.take(length - 8)
            if code == 80877103:  # SSLRequest
                self.say(SSL)
            elif code == 196608:
                break
            else:
                return
        self.server.start_up.append(parameters.decode().split("\0"))
        way_in = self.server.lie.login if self.server.lie else "trust"
        self.say(*login(way_in))
        if way_in in ("cleartext", "md5"):
            self.server.passwords.append(self.take_message()[1].rstrip(b"\0").decode())
        elif way_in == "scram":
            self.scram()
        self.say(*greeting())
        while True:
            kind, body = self.take_message()
            if kind == b"X":
                return
            if kind == b"Q":
                self.answer(body[:-1].decode(errors="replace"))
            elif kind == b"P":
                asked = body.split(b"\0")[1]
                assert asked.startswith(b"COPY"), body
            elif kind == b"S":
                self.say(*(CHUNK_OUT if self.server.state == "signals" else NAMES_OUT if b"WITH locked" in asked else COPY_OUT))

    def scram(self):
        """RFC 5802."""
        _, first = self.take_message()
        bare = re.search(rb"n=[^,]*,r=[ -+\--~]+", first).group()
        nonce = bare.split(b"r=")[1].decode() + "server"
        challenge, _ = scram_messages(nonce, "c2FsdA==", "")
        self.say(challenge)
        _, last = self.take_message()
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"salt", 4096)
        key = hmac.digest(salted, b"Server Key", "sha256")
        heard = challenge.body()[4:]
        signed = hmac.digest(key, bare + b"," + heard + b"," + last.rsplit(b",p=", 1)[0], "sha256")
        self.say(scram_messages(nonce, "", base64.b64encode(signed).decode())[1])

    def answer(self, text):
        state = self.server.state
        other = {"signals": TWO_TABLES if self.server.stream is SIGNAL_STREAM else {}, "fresh": FRESH, "copy": {} if self.server.copied else FRESH,
                 "copy again": {} if self.server.copied else FRESH, "resumed": RESUMED}.get(state, {})
        other = {**other, "client's port": [[str(self.connection.getpeername()[1])]]}
        self.asked.append(text)
        self.server.asked.append(text)
        if text.startswith("START_REPLICATION"):
            self.server.asked_of_sender = self.asked
            self.replicate(text)
            return
        for name, (pattern, rows, columns) in COPIED.items() if state.startswith("copy") else ():
            if re.search(pattern, text):
                rows = BROKEN_OFF if name == "copies" and state == "copy again" else rows
                self.server.copied = self.server.copied or name == "slot of stream"
                self.say(*answer(name, rows, columns))
                return
        for name, (pattern, rows) in BESIDE.get(state, {}).items():
            if re.search(pattern, text):
                self.say(*answer(name, rows, len(rows[0])))
                return
        for name, pattern in {**MORE_COMMANDS.get(state, {}), **COMMANDS}.items():
            if re.search(pattern, text):
                self.say(*done(name))
                return
        for name, (pattern, rows) in {**QUESTIONS, **CHECKED, **ORDERED, **BACK, **MADE}.items():
            if re.search(pattern, text):
                self.tell(name, other.get(name, rows), len(rows[0]))
                return
        self.send(framed(b"C")(b"SET\0") + framed(b"Z")(b"I"))

    def tell(self, name, rows, columns):
        """An answer; a lie may be about its rows."""
        if self.server.lie is not None and self.server.lie.target == f"{name} rows":
            rows = self.server.lie.make(rows)
            columns = len(rows[0]) if rows else columns
            self.server.told.set()
        self.say(*answer(name, rows, columns))

    def replicate(self, text):
        high, low = re.search(r"LOGICAL (\w+)/(\w+)", text).groups()
        start = int(high, 16) << 32 | int(low, 16)
        self.say(COPY_BOTH)
        for end, messages in self.server.stream:
            if end > start:
                for message in messages:
                    self.say(message)
                    self.hear(0)
                until = time.monotonic() + self.server.patience_s
                while self.server.confirmed < end and time.monotonic() < until:
                    self.hear(0.01)
        asks = 1  # once: who asks again and again, and is answered, shuts down
        while self.hear(0.02):
            self.send(keepalive("end", self.server.end, asks).encode())
            asks = 0

    def hear(self, limit_s):
        """What the other side says meanwhile. False once the stream has ended."""
        while len(self.received) >= 5 or select.select([self.connection], [], [], limit_s)[0]:
            if len(self.received) < 5:
                self.pull()
                continue
            kind, body = self.take_message()
            if kind == b"d" and body[:1] == b"r":
                self.server.take_status(struct.unpack_from("!Q", body, 9)[0])
            elif kind == b"c":
                self.say(*ENDING)
                return False
            elif kind == b"X":
                raise EOFError
            limit_s = 0
        return True
