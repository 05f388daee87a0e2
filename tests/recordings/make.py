"""Makes the recordings of one PostgreSQL server anew; make.sh calls it.

    python make.py PORT FOLDER STOP...

The workload runs once. Then the same WAL is recorded again and again, as a whole and from positions inside it, for a recorder
confirms nothing. What was recorded is compared with what two others say of the same WAL: pg_logical_slot_peek_binary_changes
(the same bytes by another way) and test_decoding (the same rows by another plugin). The expectations are written by
recording.py. STOP is a command that stops the server."""

import os
import re
import subprocess
import sys
import time

import psycopg

from recording import Decoder, events, frames, lines, lsn_of, lsn_text, properties
from workload import SCHEMA, Workload

BINARY = os.environ["MILLRACE_BIN"]
PORT, FOLDER, STOP = sys.argv[1], sys.argv[2], sys.argv[3:]
SLOT = "recorded"
LIMIT_S = 60


def url(options=""):
    return f"postgres://postgres:millrace-stand@127.0.0.1:{PORT}/recorded{options}"


def connect():
    return psycopg.connect(url(), autocommit=True)


def configuration(publication):
    path = os.path.join(FOLDER, "config.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write('tables = ["plain"]\ntopic_prefix = "x"\nmessages.prefixes = ["*"]\n'
                   'source.postgres.connection = "env:RECORD_URL"\n'
                   f'source.postgres.publication_name = "{publication}"\nsink.kafka.brokers = ["127.0.0.1:1"]\n')
    return path


def recorder(name, publication, *arguments, options=""):
    path = os.path.join(FOLDER, name + ".rec")
    if os.path.exists(path):
        os.remove(path)
    return path, subprocess.Popen([BINARY, "record", path, "--config", configuration(publication), *arguments],
                                  env={**os.environ, "RECORD_URL": url(options)}, stderr=subprocess.PIPE, text=True)


def finish(path, process):
    said = process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 0, said
    with open(path, "rb") as file:
        return file.read()


def record(name, publication, start=None, end=None):
    """From `start` to `end`, both positions."""
    arguments = ["--slot", SLOT, "--end", lsn_text(end)] + (["--start", lsn_text(start)] if start else [])
    data = finish(*recorder(name, publication, *arguments))
    write_expectation(name, data)
    return events(data)


def write_expectation(name, data):
    with open(os.path.join(FOLDER, name + ".txt"), "w", encoding="ascii") as file:
        file.write("".join(line + "\n" for line in lines(events(data))))


def position(connection):
    return int(connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()[0])


# ---- the witnesses ----

def check_bytes(connection, name, publication, recorded):
    """The SQL function sends the same messages; keepalives are the sender's own. It says 0/0 where XLogData does not."""
    rows = connection.execute("SELECT lsn - '0/0', data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, "
                              "'proto_version', '1', 'publication_names', %s, 'messages', 'true')",
                              [SLOT, publication]).fetchall()
    with open(os.path.join(FOLDER, name + ".rec"), "rb") as file:
        sent = [frame.data for frame in frames(file.read()) if frame.kind == "R" and frame.data[:1] == b"w"]
    assert [bytes(data) for _, data in rows] == [data[25:] for data in sent], "other bytes"
    starts = [int.from_bytes(data[1:9], "big") for data in sent]
    for (lsn, data), start in zip(rows, starts, strict=True):
        # A part that is not the last of what is written together has no position in XLogData (WalSndPrepareWrite).
        assert start in (0, int(lsn)), (lsn, start, data)
    assert len(sent) == len([event for event in recorded if event.kind != "keepalive"])


def test_decoding_text(event):
    """A row of ours as a list of what test_decoding prints of it: names and values."""
    def tuple_of(values, key_only):
        named = []
        for column, (kind, value) in zip(event.relation.columns, values, strict=True):
            if key_only and kind == "n":
                continue  # the identity alone, without nulls
            named.append((column.name.decode(), {"n": "null", "u": "unchanged-toast-datum"}.get(kind, value.decode())))
        return named
    table = f"{event.relation.schema.decode()}.{event.relation.table.decode()}"
    old = tuple_of(event.old, True) if event.old is not None else None
    new = tuple_of(event.new, False) if event.new is not None else None
    return (event.kind, table, old, new)


VALUE = re.compile(r"""((?:"(?:[^"]|"")*"|[^\s\["])+)\[((?:[^\[\]"]|\[\]|"(?:[^"]|"")*")*)\]:('(?:[^']|'')*'|\S+) ?""", re.S)
ROW = re.compile(r"""table ((?:"(?:[^"]|"")*"|[^"\s.])+)\.((?:"(?:[^"]|"")*"|[^"\s:])+): (INSERT|UPDATE|DELETE):(.*)""", re.S)


def plain_name(text):
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def parse_tuple(text, key_only):
    named, at = [], 0
    while at < len(text):
        found = VALUE.match(text, at)
        assert found, text[at:]
        value = found.group(3)
        quoted = value.startswith("'")
        value = value[1:-1].replace("''", "'") if quoted else value
        if not quoted and found.group(2) == "boolean":
            value = value[0] if value != "null" else value
        # pgoutput leaves generated columns out.
        if not (key_only and value == "null" and not quoted) and found.group(1) != "twice":
            named.append((plain_name(found.group(1)), value))
        at = found.end()
    return named


def check_rows(connection, recorded):
    """test_decoding tells of every table, in the same order; rows are compared, tables that aren't published left out."""
    rows = connection.execute("SELECT data FROM pg_logical_slot_peek_changes('witness', NULL, NULL, 'include-xids', '1', "
                              "'skip-empty-xacts', '0')").fetchall()
    published = {(event.relation.schema.decode(), event.relation.table.decode())
                 for event in recorded if event.kind == "relation"}
    theirs, ours, xids = [], [], []
    for (text,) in rows:
        row = ROW.match(text)
        if text.startswith("BEGIN"):
            xids.append(int(text.split()[1]))
        if row is None or (plain_name(row.group(1)), plain_name(row.group(2))) not in published:
            continue
        kind, rest = row.group(3).lower(), row.group(4).strip()
        old = new = None
        if rest.startswith("old-key: "):
            old, rest = rest[9:].split(" new-tuple: ", 1)
            old = parse_tuple(old, True)
        if rest == "(no-tuple-data)":
            rest = ""
        if kind == "delete":
            old = parse_tuple(rest, True)
        else:
            new = parse_tuple(rest, False)
        theirs.append((kind, f"{plain_name(row.group(1))}.{plain_name(row.group(2))}", old, new))
    for event in recorded:
        if event.kind in ("insert", "update", "delete"):
            ours.append(test_decoding_text(event))
        if event.kind == "begin":
            assert event.xid in xids, event
    # Rows of a table before it joined the publication and behind: test_decoding has more.
    at = 0
    for mine in ours:
        while at < len(theirs) and theirs[at] != mine:
            assert theirs[at][1] == "public.joined", (mine, theirs[at])
            at += 1
        assert at < len(theirs), mine
        at += 1
    messages = [text for (text,) in rows if text.startswith("message:")]
    assert len(messages) == sum(event.kind == "message" for event in recorded)


# ---- what is recorded ----

def restarts(recorded):
    """Where to start again: (name, position), by what stands there."""
    def first(condition):
        return next(i for i, event in enumerate(recorded) if condition(event))

    found = {}
    commits = [event for event in recorded if event.kind == "commit"]
    found["commit-end"] = commits[len(commits) // 2].end_lsn
    found["commit-record"] = commits[len(commits) // 2].commit_lsn
    at = first(lambda event: event.kind == "message" and not event.flags and b"end is where" in event.content)
    assert recorded[at + 1].kind in ("begin", "keepalive")
    begin = next(event for event in recorded[at:] if event.kind == "begin")
    assert begin.commit_lsn == recorded[at].end_lsn, "the commit record does not begin where the message ends"
    found["message-end"] = recorded[at].end_lsn
    at = first(lambda event: event.kind == "message" and event.content == b"while two are open")
    found["message-while-open"] = recorded[at].end_lsn
    ends = [event.end_lsn for event in recorded if event.kind in ("commit", "message") and event.end_lsn % 8192 == 0]
    assert len(ends) >= 2, "no record ends at the end of a page"
    found["page-end"] = ends[-1]
    return found


def behind(recorded, start, transactions):
    """The end of the so many-th transaction that commits behind `start`."""
    ends = sorted(event.end_lsn for event in recorded if event.kind == "commit" and event.commit_lsn >= start)
    return ends[min(transactions, len(ends)) - 1]


def received(path):
    with open(path, "rb") as file:
        return events(file.read())


def wait_for(path, process, condition):
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = os.path.exists(path) and [event for event in received(path) if condition(event)]
        if found:
            return found
        assert process.poll() is None and time.monotonic() < deadline, "what is waited for was not sent"
        time.sleep(0.05)


def live(connection):
    """A stream while it is written to: keepalives that ask, and the end of the server."""
    path, process = recorder("live", "wide", options="?options=-c%20wal_sender_timeout%3D2s")
    try:
        wait_for(path, process, lambda event: event.kind == "keepalive")
        connection.execute("INSERT INTO full_key VALUES (100, 'live')")
        wait_for(path, process, lambda event: event.kind == "commit")
        wait_for(path, process, lambda event: event.kind == "keepalive" and event.asks)
        connection.execute("INSERT INTO hidden VALUES (300)")
        connection.execute("SELECT pg_logical_emit_message(false, 'outside', 'live')")
        wait_for(path, process, lambda event: event.kind == "message")
        connection.execute("DELETE FROM full_key WHERE id = 100")
        wait_for(path, process, lambda event: event.kind == "delete")
        connection.close()
        subprocess.run(STOP, check=True)
        data = finish(path, process)
    finally:
        process.kill()
    write_expectation("live", data)
    assert properties(list(frames(data))[-1])["reason"] == "the server ended the stream"


def main():
    with psycopg.connect(url().replace("/recorded", "/postgres"), autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        connection.execute("DROP DATABASE IF EXISTS recorded WITH (FORCE)")
        connection.execute("SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin")
        connection.execute("CREATE DATABASE recorded")
    connection = connect()
    connection.execute(SCHEMA)
    for slot, plugin in ((SLOT, "pgoutput"), ("witness", "test_decoding")):
        connection.execute("SELECT pg_create_logical_replication_slot(%s, %s)", [slot, plugin])
    Workload(connect).all()
    end = position(connection)
    wide = record("wide", "wide", end=end)
    check_bytes(connection, "wide", "wide", wide)
    check_rows(connection, wide)
    rooted = record("rooted", "rooted", end=end)
    check_bytes(connection, "rooted", "rooted", rooted)
    for name, start in restarts(wide).items():
        record("from-" + name, "wide", start, behind(wide, start, 10))
    live(connection)
    os.remove(os.path.join(FOLDER, "config.toml"))


if __name__ == "__main__":
    main()
