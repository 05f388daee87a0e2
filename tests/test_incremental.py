"""Existing rows copied while the stream runs: whoever folds the topic by key has the table, whatever others write meanwhile."""

import itertools
import json
import subprocess
import threading
import urllib.parse

import psycopg
import pytest
from psycopg import sql

from endless import Endless
from kit import BINARY, connect, dsn, eventually, expect, stand
from test_reload import reload, with_tables
from test_snapshot import as_rows, folded, read_until, table_rows

MODES = {"at-least-once": {}, "exactly-once": {"sink__kafka__delivery": '"exactly-once"'}}
LAST = 2000000000  # a key that is written last


def command(process, *arguments):
    """Exit code and what `millrace snapshot` said."""
    done = subprocess.run([BINARY, "snapshot", *arguments, "--config", process.path, "--address", process.address()],
                          capture_output=True, text=True, timeout=120, env=process.environment, check=False)
    return done.returncode, done.stdout + done.stderr


def copies(process):
    return {one["table"]: one for one in process.get("/api/snapshot/outcome").json["tables"]}


def is_done(process, table):
    state = copies(process).get(table, {"state": "unseen"})
    assert state["state"] != "failed", state
    return state["state"] == "done" and state


def copy(process, table, *arguments):
    expect(command(process, table, *arguments), 0)
    return eventually(lambda: is_done(process, f"public.{table}"), 120, f"the copy of {table}")


def test_names_as_options_have_them(database, millrace):
    """A command finds what `tables` names, written the same way; a publication, a role and an application may have any name."""
    names = {'public."a:b"': 'public."a:b"', "Mixed": 'public."Mixed"', '"s.1"."A""\\b\'"': '"s.1"."A""\\b\'"', "s_2.t": "s_2.t"}
    database.run('CREATE SCHEMA "s.1"; CREATE SCHEMA s_2;' + "".join(
        f"CREATE TABLE {table} (id int PRIMARY KEY); INSERT INTO {table} VALUES (1), (2);" for table in names.values()))
    role = f"{database.name} r'o\"l\\e"
    database.run(f"CREATE ROLE {sql.Identifier(role).as_string()} SUPERUSER LOGIN PASSWORD 'pw'")
    process = millrace(tables=tuple(names), snapshot__mode='"initial"',
                       source__postgres__publication_name=json.dumps(f'{database.name}\\"x\' \\'))
    process.environment["TEST_URL"] = dsn(database.name).replace("postgres:millrace-stand", f"{urllib.parse.quote(role)}:pw") \
        + "?application_name=" + urllib.parse.quote("a'b\\\"c")
    process.start().streaming()
    for number, (name, table) in enumerate(names.items(), 1):
        database.run(f"INSERT INTO {table} VALUES (3)")
        code, said = command(process, name)
        assert code == 0 and "failed" not in said, (name, said)
        eventually(lambda wanted=number: [one["state"] for one in copies(process).values()] == ["done"] * wanted, what="the copy")
        proof = subprocess.run([BINARY, "verify", name, "--config", process.path], capture_output=True, text=True, timeout=120,
                               env=process.environment, check=False)
        assert proof.returncode == 0, (name, proof.stdout, proof.stderr)


def writers_of(database, table, extra=None):
    """Rows whose n grows, all the time: inserts, updates of every 97th row, moves of keys, deletes."""
    def write(connection, _):
        for n in itertools.count(1):
            connection.execute(
                f"INSERT INTO {table} (id, n) VALUES ({1000000 + n}, {n});"
                f"UPDATE {table} SET n = {n} WHERE id % 97 = {n % 97};"
                f"DELETE FROM {table} WHERE id % 4999 = {n % 4999};"
                f"UPDATE {table} SET id = id + 5000000, n = {n} WHERE id = {n % 20000 + 1}")
            if extra and n in extra:
                connection.execute(extra[n])
            yield 0.002
    return Endless(database, write)


def check(database, topic, table, mode="at-least-once", added=None):
    """Folding the topic gives the table, and no key's n ever goes back; the records. `added`: columns whose defaults PostgreSQL gives
    to rows that are there already, without an event."""
    database.run(f"INSERT INTO {table} (id, n) VALUES ({LAST}, 0)")
    records = read_until(topic(database.topic(table)), f'{{"id":{LAST}}}', 120)
    rows, kept = folded(records)
    newest = {}
    for record in kept:
        after = record.json["after"] if record.value is not None else None
        if after is None:
            newest.pop(record.key, None)
        else:
            assert after["n"] >= newest.get(record.key, -1), (record.key, record.json)
            newest[record.key] = after["n"]
    assert as_rows({key: {**(added or {}), **row} for key, row in rows.items()}) == table_rows(database, table), table
    positions = [(r.partition, r.position) for r in records]
    assert len(kept) == len(records) or mode == "at-least-once"
    assert mode == "at-least-once" or len(positions) == len(set(positions))
    return records


@pytest.mark.parametrize("mode", MODES)
def test_rows_come_in_their_newest_form(database, millrace, topic, mode):
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i;"
                 "ANALYZE t")
    process = millrace(tables=("t",), **MODES[mode]).start().streaming()
    writers = writers_of(database, "t", {40: "ALTER TABLE t ADD COLUMN more int DEFAULT 7"})
    writers.more(6)
    done = copy(process, "t")
    writers.end(more=60)
    records = check(database, topic, "t", mode, {"more": 7})
    reads = [r.json for r in records if r.value is not None and r.json["op"] == "r"]
    assert len(reads) == done["rows"] and done["rows"] + done["passed_over"] > 15000 and done["chunks"] > 1
    assert {r["source"]["snapshot"] for r in reads} == {"incremental"} and all(r["before"] is None for r in reads)
    assert process.log("incremental_done")[0]["rows"] == done["rows"]
    status = process.get("/status").json["incremental"]
    assert (status["tables"], status["rows"], status["passed_over"]) == (0, done["rows"], done["passed_over"])
    assert process.figure("millrace_incremental_rows_total") == done["rows"]


def test_large_values_that_updates_leave_alone_come_too(database, millrace, topic):
    """An update's event lacks them; so the copied row is wanted all the same, and the topic has each value in the end."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, large text); ALTER TABLE t ALTER large SET STORAGE EXTERNAL;"
                 "INSERT INTO t SELECT i, 0, repeat(md5(i::text), 100) FROM generate_series(1, 3000) i")
    process = millrace(tables=("t",)).start().streaming()

    def write(connection, _):
        for number in itertools.count():
            connection.execute(f"UPDATE t SET n = n + 1 WHERE id % 7 = {number % 7}")
            yield 0.05

    with Endless(database, write) as writer:
        writer.more(21)
        done = copy(process, "t")
    database.run(f"INSERT INTO t VALUES ({LAST}, 0, 'x')")
    records = read_until(topic(database.topic("t")), f'{{"id":{LAST}}}', 280)
    large = {}
    for record in records:
        after = record.json["after"]
        if after["large"] != "__debezium_unavailable_value":
            large[after["id"]] = after["large"]
    # On a busy machine a row may be updated within each of its readings: then it is told.
    told = done["passed_over"] if process.log("incremental_lacks") else 0
    wanted = dict(database.run("SELECT id, large FROM t"))
    assert large.items() <= wanted.items() and len(wanted) - len(large) <= told < 100
    assert done["repeated"] > 0


def test_a_truncate_and_a_form_meanwhile(database, millrace, topic):
    """Of a table that is emptied under the copy nothing older comes behind the TRUNCATE."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i")
    process = millrace(tables=("t",), skipped_operations="[]").start().streaming()
    writers = writers_of(database, "t", {30: "TRUNCATE t", 45: "ALTER TABLE t ALTER n TYPE bigint"})
    copy(process, "t")
    writers.end(more=60)
    check(database, topic, "t")


def test_pause_resume_and_stop(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 3000) i;"
                 "CREATE TABLE u (id int PRIMARY KEY, n int); INSERT INTO u VALUES (1, 1)")
    process = millrace(tables=("t", "u")).start().streaming()
    assert command(process, "--pause") == (0, "paused: millrace snapshot --resume goes on\nnothing is copied\n")
    assert command(process, "t")[0] == 0 and command(process, "public.u")[0] == 0
    assert {name: one["state"] for name, one in copies(process).items()} == {"public.t": "waiting", "public.u": "waiting"}
    expect(command(process, "t"), 78, "already")
    code, said = command(process, "--stop", "u")
    eventually(lambda: copies(process)["public.u"]["state"] == "stopped", what="the end of u's copy")
    assert code == 0 and copies(process)["public.t"]["state"] == "waiting"
    assert command(process, "--resume")[0] == 0
    assert eventually(lambda: is_done(process, "public.t"), 60)["rows"] == 3000
    assert copy(process, "u")["rows"] == 1
    assert copies(process)["public.u"]["rows"] == 1
    check(database, topic, "t")


def test_conditions_keys_and_partitions(database, millrace, topic):
    """A part of a table; keys of several columns, of other types and operator classes; partitions by leaf, and by root."""
    database.run("CREATE TABLE c (b text, a int, n int, PRIMARY KEY (a, b)); INSERT INTO c SELECT 'b' || i % 7, i / 7, i"
                 " FROM generate_series(1, 2000) i; ALTER TABLE c REPLICA IDENTITY FULL;"
                 "CREATE TYPE mood AS ENUM ('z', 'y', 'x'); CREATE TABLE e (id mood PRIMARY KEY); INSERT INTO e VALUES ('x'), ('z');"
                 "CREATE TABLE q (id text, n int); CREATE UNIQUE INDEX ON q (id text_pattern_ops);"
                 "ALTER TABLE q ALTER id SET NOT NULL; ALTER TABLE q REPLICA IDENTITY FULL; INSERT INTO q SELECT E'\\\\ '' ' || i, i FROM generate_series(1, 300) i;"
                 "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
                 "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); INSERT INTO p VALUES (1), (11);"
                 "CREATE TABLE empty (id int PRIMARY KEY)")
    process = millrace(tables=("c", "e", "q", "p", "empty"), key_columns='["q:id"]').start().streaming()
    assert copy(process, "c", "--where", "a >= 100 -- and no more")["rows"] == 2000 - 699
    assert copy(process, "e")["rows"] == 2
    assert copy(process, "q")["rows"] == 300
    assert copy(process, "p")["rows"] == 2
    assert copy(process, "empty")["rows"] == 0
    keys = [tuple(json.loads(r.key).values()) for r in topic(database.topic("c")).take(1301)]
    assert sorted(map(str, keys)) == sorted(str((f"b{i % 7}", i // 7)) for i in range(700, 2001))
    assert [r.json["after"] for r in topic(database.topic("p2")).take(1)] == [{"id": 11}]
    assert [json.loads(r.key)["id"] for r in topic(database.topic("e")).take(2)] == ["z", "x"]


def test_by_root(database, millrace, topic):
    database.run("CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);"
                 "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000);"
                 "CREATE TABLE p2 (n int, id int NOT NULL); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (1000) TO (MAXVALUE);"
                 "INSERT INTO p SELECT i, 0 FROM generate_series(1, 2000) i;"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE p WITH (publish_via_partition_root = true)")
    process = millrace(tables=("p",)).start().streaming()
    assert copy(process, "p")["rows"] == 2000
    check(database, topic, "p")
    expect(command(process, "p1"), 78, "name the root")


def test_requests_that_are_refused(database, millrace):
    """Each refusal names the table, the reason and what to do; the stream goes on."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1); CREATE TABLE keyless (id int);"
                 "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED); CREATE TABLE other (id int PRIMARY KEY);"
                 "ALTER TABLE keyless REPLICA IDENTITY FULL; ALTER TABLE late REPLICA IDENTITY FULL")
    process = millrace(tables=("t", "keyless", "late")).start().streaming()
    for table, reason in (("keyless", "no key by which"), ("late", "not deferrable"), ("other", "not one of this stream's"),
                          ("nowhere.t", "not one of this stream's")):
        expect(command(process, table), 78, reason, table.split(".")[-1])
    for condition in ("nonsense", "true) TO STDOUT; DELETE FROM t; --", "1 = 1) ORDER BY 1) TO STDOUT; COMMIT; DELETE FROM t; --"):
        assert command(process, "t", "--where", condition)[0] in (0, 78)
        failed = eventually(lambda: [r for r in process.log("incremental_failed") if r["table"] == "public.t"], what="a refusal")
        assert "public.t" in failed[-1]["message"]
        eventually(lambda: all(one["state"] in ("failed", "done") for one in copies(process).values()), what="the ends")
    assert database.run("SELECT count(*) FROM t") == [(1,)]
    assert copy(process, "t")["rows"] == 1
    assert process.get("/api/snapshot").status == 405


def test_what_the_server_says_of_a_value_is_not_said(database, millrace):
    """A cast, a name that is looked up, a function: the text would quote the row, in the log and in answers."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, s text); INSERT INTO t VALUES (1, 'secret-1');"
                 "CREATE FUNCTION said(s text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE '%', s USING ERRCODE = '57014'; END $$")
    process = millrace(tables=("t",), columns__mask='["public.t:s=3"]').start().streaming()
    for number, (condition, code) in enumerate((("s::int > 0", "22P02"), ("s::regclass > 0", "42P01"), ("public.said(s)", "57014")), 1):
        said = command(process, "t", "--where", condition)
        failed = eventually(lambda at=number: (lines := process.log("incremental_failed")) and len(lines) == at and lines[-1], what="the failure")
        assert code in failed["message"] and "public.t" in failed["message"], failed
        assert "secret-1" not in f"{said} {process.get('/api/snapshot/outcome').json}"
    assert process.stop() == 0
    assert not any("secret-1" in line for line in process.lines)


def test_keys_by_whose_texts_no_row_is_found_again(database, millrace, topic):
    """Refused before a row is out, each by its reason; others whose operators are those of another type are read to their ends."""
    database.run("CREATE EXTENSION citext; CREATE TYPE pair AS (x int, y text); CREATE TYPE mood AS ENUM ('a', 'b'); CREATE DOMAIN small AS int;"
                 "CREATE DOMAIN pairs AS pair[]; CREATE TABLE mixed (a int, b citext, PRIMARY KEY (a, b)); CREATE TABLE nulls (id int UNIQUE);"
                 "ALTER TABLE nulls REPLICA IDENTITY FULL; CREATE TABLE composite (id pair PRIMARY KEY); CREATE TABLE name (id regclass PRIMARY KEY);"
                 "CREATE TABLE names (id regclass[] PRIMARY KEY); CREATE TABLE c (id citext PRIMARY KEY); INSERT INTO c SELECT 'k' || i FROM generate_series(1, 300) i;"
                 "CREATE TABLE many (v varchar, c cidr, m mood[], s small, r int4range, p pairs, PRIMARY KEY (v, c, m, s, r, p)); INSERT INTO many SELECT 'k',"
                 " '10.0.0.0/8', ARRAY['b']::mood[], i, int4range(i, i + 1), ARRAY[(i, 'x')::pair] FROM generate_series(1, 300) i")
    tables = ("mixed", "nulls", "composite", "name", "names", "c", "many")
    process = millrace(tables=tables, key_columns='["nulls:id"]').start().streaming()
    for table, reason in (("mixed", '"pg_catalog.<" and "public.<"'), ("nulls", 'column "id", by which its rows would be read, can hold nulls'),
                          ("composite", "composite type"), ("name", "name of something in the catalog"), ("names", "name of something in the catalog")):
        expect(command(process, table), 78, reason, f"public.{table}", without="domain")
        assert copies(process)[f"public.{table}"]["rows"] == 0
    assert copy(process, "c")["rows"] == 300 and copy(process, "many")["rows"] == 300


def test_a_condition_that_ends_its_own_backend(database, millrace):
    """After a few tries the copy has failed, and says why; the stream and others' copies go on."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 1000) i")
    process = millrace(tables=("t",), pipeline__reconnect_max='"100ms"').start().streaming()
    assert command(process, "t", "--where", "id < 500 OR pg_terminate_backend(pg_backend_pid())")[0] == 0
    eventually(lambda: copies(process)["public.t"]["state"] == "failed", what="the end of the copy")
    error = copies(process)["public.t"]["error"]
    assert "public.t" in error and "ended 3 connections" in error and "check the condition" in error, error
    assert copy(process, "t", "--where", "id < 500")["rows"] == 499


def test_a_transaction_that_holds_it_up(database, millrace, topic):
    """In another database; one of a process, then a prepared one that was there before, too. Whose it is is told, and nothing is read for nothing."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 1000) i")
    process = millrace(tables=("t",)).start().streaming()
    gid = f"holds up {database.name}"
    with connect("postgres") as holder:
        holder.execute(f"BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION '{gid}'")
        try:
            with connect("postgres") as other:
                other.execute("BEGIN; SELECT pg_current_xact_id()")
                assert command(process, "t")[0] == 0
                told = process.wait_for("incremental_held_up")
                assert "prepared transaction of role postgres in database postgres" in told["holder"] and gid in told["remedy"], told
                holder.execute(f"ROLLBACK PREPARED '{gid}'")
                told = process.wait_for("incremental_held_up", times=2)
                who = f"the transaction of role postgres in database postgres, process {other.info.backend_pid}"
                assert told["holder"] == who and told["since"] and f"pg_terminate_backend({other.info.backend_pid})" in told["remedy"], told
                status = process.get("/status").json["incremental"]
                assert status["held_by"] == who and status["rows"] == 0 and status["repeated"] == 1, status
                assert who in subprocess.run([BINARY, "status", "--address", process.address()], capture_output=True, text=True, check=True).stdout
                other.execute("COMMIT")
        finally:
            holder.execute(f"SELECT 1 FROM pg_prepared_xacts WHERE gid = '{gid}'").fetchone() and holder.execute(f"ROLLBACK PREPARED '{gid}'")
    done = eventually(lambda: is_done(process, "public.t"), 60, "the copy")
    assert done["rows"] == 1000 and done["repeated"] == 1
    assert "held_by" not in process.get("/status").json["incremental"]
    check(database, topic, "t")


def test_a_table_that_goes_away(database, millrace):
    """Locked when its copy is asked for, dropped when that could begin."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(tables=("t", "u")).start().streaming()
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        assert command(process, "t")[0] == 0
        eventually(lambda: database.run("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted"
                                        )[0][0] == 1, what="the reader at the lock")
        holder.execute("DROP TABLE t")
        holder.commit()
    eventually(lambda: copies(process)["public.t"]["state"] == "failed", what="the end of the copy")
    assert "public.t" in copies(process)["public.t"]["error"] or "dropped" in copies(process)["public.t"]["error"]
    assert copy(process, "u")["rows"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_connections_that_are_cut(database, millrace, topic, mode):
    """The stream's and the reader's, again and again: the chunk at hand is read anew, and nothing older comes behind."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i")
    process = millrace(tables=("t",), pipeline__reconnect_max='"100ms"', **MODES[mode]).start().streaming()
    writers = writers_of(database, "t")
    assert command(process, "--pause")[0] == 0 and command(process, "t")[0] == 0
    command(process, "--resume")
    for cut in range(4):
        eventually(lambda: copies(process)["public.t"]["chunks"] >= cut, what="another chunk")
        database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                     " AND pid <> pg_backend_pid() AND application_name LIKE 'millrace%'")
        process.wait_for("source_connected", times=cut + 2)
    eventually(lambda: is_done(process, "public.t"), 120, "the copy")
    writers.end(5)
    check(database, topic, "t", mode)


GATE = 7  # an advisory lock: rows behind a certain one are read when nobody has it


def behind_gate(row):
    """A condition of all rows that waits for the gate at that row."""
    return f"CASE WHEN id > {row} THEN (SELECT true FROM pg_advisory_xact_lock_shared({GATE})) ELSE true END"


class Gate:
    """Closed as long as it is held."""

    def __init__(self, database):
        self.database, self.connection = database, connect(database.name)
        self.connection.execute(f"SELECT pg_advisory_lock({GATE})")

    def reached(self, count=1):
        """So many readers wait; of a process that was killed the server does not know yet."""
        eventually(lambda: self.database.run("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
                                             " (SELECT oid FROM pg_database WHERE datname = current_database())") == [(count,)],
                   120, "the reader at the gate")

    def open(self):
        self.connection.close()


def test_a_stream_that_begins_anew_has_its_copies_read_anew(database, millrace):
    """It may have followed another server: a reader whose connection is older reads nothing more by it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i;"
                 "CREATE TABLE readers (pid int)")
    process = millrace(tables=("t",)).start().streaming()
    gate = Gate(database)
    old = " AND pg_backend_pid() NOT IN (SELECT pid FROM public.readers) ELSE"
    assert command(process, "t", "--where", behind_gate(5000).replace(" ELSE", old))[0] == 0
    gate.reached()
    database.run("INSERT INTO readers SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [database.slot])
    process.wait_for("source_connected", times=2)
    gate.open()
    done = eventually(lambda: is_done(process, "public.t"), 120, "the copy")
    assert done["rows"] == 20000


def test_a_table_that_is_renamed_for_a_moment(database, millrace, topic):
    """Its copy goes on once the name is its again; the row that was written meanwhile is there."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 3000) i")
    process = millrace(tables=("t",)).start().streaming()
    gate = Gate(database)
    assert command(process, "t", "--where", behind_gate(1000))[0] == 0
    gate.reached()
    with connect(database.name) as other:
        renamed = threading.Thread(target=lambda: other.execute("ALTER TABLE t RENAME TO away"))
        renamed.start()
        eventually(lambda: database.run("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted") == [(1,)], what="the other at the lock")
        gate.open()
        renamed.join()
        process.wait_for("incremental_waits")
        other.execute("UPDATE away SET n = 1 WHERE id = 2500; ALTER TABLE away RENAME TO t")
    assert eventually(lambda: is_done(process, "public.t"), 60)["rows"] >= 2999
    check(database, topic, "t")


def test_a_table_that_leaves_the_publication_meanwhile(database, millrace):
    """Its copy fails after some seconds, and no other waits behind it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 3000) i;"
                 "CREATE TABLE u (a int PRIMARY KEY)")
    process = millrace(tables=("t", "u")).start().streaming()
    gate = Gate(database)
    assert command(process, "t", "--where", behind_gate(1000))[0] == 0 and command(process, "u")[0] == 0
    gate.reached()
    database.run(f"ALTER PUBLICATION {database.publication} DROP TABLE t")
    gate.open()
    process.wait_for("incremental_waits")
    assert "taken out of the publication" in process.wait_for("incremental_failed", 30)["message"]
    eventually(lambda: is_done(process, "public.u"), 60, "the copy of u")


@pytest.mark.parametrize("by", ["leaf", "root"])
def test_a_partition_that_is_attached_meanwhile(database, millrace, by):
    """Of its rows nobody tells: it is named. One that is made as a partition has none that the stream does not have."""
    database.run("CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1000) TO (5000);"
                 "INSERT INTO p SELECT i, 0 FROM generate_series(1000, 3999) i; CREATE TABLE before PARTITION OF p FOR VALUES FROM (5000) TO (6000);"
                 "CREATE TABLE late (id int PRIMARY KEY, n int); INSERT INTO late SELECT i, 0 FROM generate_series(1, 900) i;"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE p WITH (publish_via_partition_root = {by == 'root'})")
    process = millrace(tables=("p",)).start().streaming()
    gate = Gate(database)
    assert command(process, "p", "--where", behind_gate(2000))[0] == 0
    gate.reached()
    if by == "leaf":  # it waits for whoever reads the root
        database.run("CREATE TABLE born PARTITION OF p FOR VALUES FROM (6000) TO (7000)")
    database.run("ALTER TABLE p ATTACH PARTITION late FOR VALUES FROM (1) TO (1000)")
    gate.open()
    assert eventually(lambda: is_done(process, "public.p"), 60)["rows"] == 3000
    told = process.log("partition_attached")
    assert [one["partitions"] for one in told] == ["public.late"] and f"millrace snapshot public.{'p' if by == 'root' else 'late'}" in told[0]["remedy"], told
    assert copy(process, "p" if by == "root" else "late")["rows"] == (3900 if by == "root" else 900)
    assert len(process.log("partition_attached")) == 1


class States:
    """What is stored of copies, from a state topic of the test's own."""

    def __init__(self, database, topic):
        self.name = database.create_topic(f"{database.prefix}.state", config={"cleanup.policy": "compact"})
        self.topic, self.last, self.paused, self.known = topic(self.name), [], False, None

    def options(self, mode):
        return {"sink__kafka__state_topic": f'"{self.name}"', "pipeline__status_interval": '"100ms"', **MODES[mode]}

    def tables(self):
        """The last state's."""
        for record in self.topic.read():
            asked = record.json.get("asked", {})
            self.last, self.paused = asked.get("tables", []), asked.get("paused", False)
            kinds = [asked[kind] for kind in ("known", "known_partitions") if kind in asked]
            self.known = [one for kind in kinds for one in kind.split(",") if one] if kinds else None
        return self.last

    def knows(self, count):
        """So many tables are known, as far as it is stored."""
        return self.tables() is not None and self.known is not None and len(self.known) == count

    def safe(self, process, table):
        """Waits until all that went out is stored; how many rows."""
        def is_stored():
            rows = copies(process)[table]["rows"]
            return rows > 0 and [one.get("rows") for one in self.tables()][:1] == [rows] and rows
        return eventually(is_stored, 120, "the stored place")


def keys_read(records):
    """Of copied rows."""
    return [r.key for r in records if r.value is not None and r.json["op"] == "r"]


@pytest.mark.parametrize("mode", MODES)
def test_what_was_answered_outlives_a_kill(database, millrace, mode):
    """A start, a pause and a stop are stored by the time that the command ends."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i;"
                 "CREATE TABLE u (id int PRIMARY KEY, n int)")
    process = millrace(tables=("t", "u"), **MODES[mode]).start().streaming()
    for arguments, left in [(("--pause",), []), (("t", "u"), ["public.t", "public.u"]), (("--stop", "t"), ["public.u"]), (("--stop",), [])]:
        code, said = command(process, *arguments)
        process.kill()
        assert code == 0, said
        process.start().streaming()
        state = process.get("/api/snapshot/outcome").json
        assert (state["paused"], sorted(one["table"] for one in state["tables"])) == (True, left), arguments


@pytest.mark.parametrize("mode", MODES)
def test_goes_on_after_kills(database, millrace, topic, mode):
    """Killed where all is stored, and anywhere: nobody asks again, and what was stored does not come twice."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 12000) i")
    states = States(database, topic)
    process = millrace(tables=("t",), **states.options(mode)).start().streaming()
    writers = writers_of(database, "t")
    gate = Gate(database)
    assert command(process, "t", "--where", behind_gate(4000))[0] == 0
    gate.reached()
    rows = states.safe(process, "public.t")
    process.kill().start().streaming()
    assert process.wait_for("incremental_continued")["rows"] == rows > 1000
    gate.reached(2)
    gate.open()
    eventually(lambda: copies(process)["public.t"]["rows"] > rows, 120, "more rows")
    process.kill().start().streaming()
    eventually(lambda: process.log("incremental_done") or states.tables() == [], 120, "the end of the copy")
    writers.end(5)
    records = check(database, topic, "t", mode)
    read = keys_read(records)
    assert len(read) > 8000 and (mode == "at-least-once" or len(read) == len(set(read)))
    assert process.stop() == 0
    process.start().streaming()
    assert states.tables() == [] and not process.log("incremental_continued")


def test_a_standby_goes_on(database, millrace, topic):
    """It has what was asked of the other one, also what was not begun; what is paused stays so."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 3000) i;"
                 "CREATE TABLE u (a int PRIMARY KEY, b int); INSERT INTO u SELECT i, i FROM generate_series(1, 5) i")
    states = States(database, topic)
    first = millrace(tables=("t", "u"), **states.options("at-least-once")).start().streaming()
    second = millrace(tables=("t", "u"), **states.options("at-least-once")).start()
    second.wait_for("standby")
    gate = Gate(database)
    assert command(first, "t", "--where", behind_gate(1000))[0] == 0
    assert command(first, "u", "--where", "b > 2 -- no more")[0] == 0
    gate.reached()
    assert command(first, "--pause")[0] == 0
    eventually(lambda: [one["table"] for one in states.tables()] == ["t", "u"] and states.paused, 60, "what is stored")
    rows = copies(first)["public.t"]["rows"]
    first.kill()
    second.streaming()
    eventually(lambda: {name: one["state"] for name, one in copies(second).items()} == {"public.t": "waiting", "public.u": "waiting"},
               60, "both tables")
    gate.open()
    assert copies(second)["public.t"]["rows"] == rows and second.get("/status").json["incremental"]["paused"]
    assert command(second, "--resume")[0] == 0
    eventually(lambda: is_done(second, "public.t") and is_done(second, "public.u"), 60, "the copies")
    assert len(keys_read(check(database, topic, "t"))) == 3000
    assert len(keys_read(read_until(topic(database.topic("u")), '{"a":5}'))) == 3


def test_tables_altered_between_two_starts(database, millrace, topic):
    """A key of another type begins anew; a table that is gone fails, and is told; one that was made anew is another one."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 3000) i;"
                 "CREATE TABLE u (a int PRIMARY KEY)")
    states = States(database, topic)
    process = millrace(tables=("t", "u"), **states.options("at-least-once")).start().streaming()
    gate = Gate(database)
    assert command(process, "t", "--where", behind_gate(1000))[0] == 0 and command(process, "u")[0] == 0
    gate.reached()
    rows = states.safe(process, "public.t")
    assert process.stop() == 0
    gate.open()
    database.run("ALTER TABLE t ALTER id TYPE bigint; DROP TABLE u")
    process.start().streaming()
    assert process.wait_for("incremental_anew")["table"] == "t"
    assert eventually(lambda: is_done(process, "public.t"), 60)["rows"] == rows + 3000
    eventually(lambda: copies(process)["public.u"]["state"] == "failed", 60, "the end of u's copy")
    assert [one["table"] for one in process.log("incremental_failed")] == ["public.u"]
    check(database, topic, "t")
    eventually(lambda: states.tables() == [], 60, "nothing to be stored")


def test_by_another_key(database, millrace, topic):
    """Rows are read in the order of a column that is not the key of events, and that may change under the copy."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, seq bigserial UNIQUE, loose int UNIQUE, plain int NOT NULL DEFAULT 0);"
                 "INSERT INTO t (id, n) SELECT 20001 - i, 0 FROM generate_series(1, 20000) i")
    process = millrace(tables=("t",), skipped_operations="[]").start().streaming()
    for key, reason in (("loose", "can hold nulls"), ("plain", "no unique B-tree index"), ("seq, n", "can hold nulls"),
                        ("gone", 'no column "gone"'), ("seq,", 'no column ""')):
        expect(command(process, "t", "--key", key), 78, reason, "public.t")
    writers = writers_of(database, "t", {20: "UPDATE t SET seq = seq + 1000000 WHERE id % 89 = 0",
                                      30: "UPDATE t SET seq = -seq WHERE id % 83 = 0", 40: "TRUNCATE t"})
    done = copy(process, "t", "--key", " seq ")
    writers.end(more=30)
    records = check(database, topic, "t")
    order = [r.json["after"]["seq"] for r in records if r.value is not None and r.json["op"] == "r"]
    assert order == sorted(order) and len(order) == done["rows"]


def test_a_reload_that_changes_tables(database, millrace, topic):
    """The chunk at hand is read again behind it; nothing is lost, nothing comes twice, and the new table is streamed."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 3000) i;"
                 "CREATE TABLE u (id int PRIMARY KEY, n int); INSERT INTO u VALUES (1, 1), (2, 2);"
                 "CREATE TABLE v (id int PRIMARY KEY, n int); INSERT INTO v VALUES (1, 1)")
    process = millrace(tables=("t",)).start().streaming()
    gate = Gate(database)
    assert command(process, "t", "--where", behind_gate(1000))[0] == 0
    gate.reached()
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE u, v")
    with_tables(process, "t", "u", snapshot__added_tables="true")
    expect(reload(process), 0, "u")
    process.wait_for("source_connected", times=2)
    gate.open()
    assert eventually(lambda: is_done(process, "public.t"), 60)["rows"] == 3000
    assert eventually(lambda: is_done(process, "public.u"), 60)["rows"] == 2  # nobody has asked
    with_tables(process, "t", "u", "v", snapshot__added_tables="false")
    assert reload(process)[0] == 0
    process.wait_for("source_connected", times=3)
    read = keys_read(check(database, topic, "t"))
    assert len(read) == len(set(read)) == 3000
    assert len(keys_read(check(database, topic, "u"))) == 2 and "public.v" not in copies(process)


def test_a_table_that_leaves_within_its_copy(database, millrace, topic):
    """A reload takes it out: its copy ends, also that of a partition; and it is copied anew when it comes back."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 3000) i;"
                 "CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);"
                 "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9999999); INSERT INTO p VALUES (1, 1), (2, 2);"
                 "CREATE TABLE u (id int PRIMARY KEY, n int); INSERT INTO u VALUES (1, 1), (2, 2)")
    states = States(database, topic)
    options = {"snapshot__added_tables": "true", **states.options("at-least-once")}
    process = millrace(tables=("t", "u", "p"), **options).start().streaming()
    eventually(lambda: states.knows(3), 60, "what is known")
    gate = Gate(database)
    assert (asked := command(process, "t", "--where", behind_gate(1000)))[0] == 0, asked
    gate.reached()
    # `millrace snapshot` would wait until they are looked at, which the reader at the gate does not do.
    assert process.get("/api/snapshot", method="POST", body='{"type":"start","tables":["p1","u"]}').status == 200
    with_tables(process, "u", **options)
    assert reload(process)[0] == 0
    gate.open()
    assert eventually(lambda: is_done(process, "public.u"), 60)["rows"] == 2
    for table in ("public.t", "public.p1"):
        # "failed": looked at for the first time behind the reload
        assert eventually(lambda name=table: copies(process)[name]["state"] in ("stopped", "failed"), 60)
    assert copies(process)["public.t"]["rows"] < 3000
    database.run("UPDATE t SET n = 1; UPDATE p SET n = 5")  # which nobody follows
    with_tables(process, "t", "u", "p", **options)
    assert reload(process)[0] == 0
    assert eventually(lambda: is_done(process, "public.t"), 60)["rows"] == 3000
    assert eventually(lambda: is_done(process, "public.p1"), 60)["rows"] == 2
    check(database, topic, "t")


@pytest.mark.parametrize("mode", MODES)
def test_tables_that_come(database, millrace, topic, mode):
    """By a pattern, while it runs and between two starts, killed meanwhile: each is copied once; those that were there before are not."""
    def table(name, rows):
        database.run(f"CREATE TABLE {name} (id int PRIMARY KEY, n int); INSERT INTO {name} SELECT i, 0 FROM generate_series(1, {rows}) i")

    def read(name):
        """Keys of the rows that were copied, once a row behind them has come."""
        return keys_read(check(database, topic, name, mode))
    table("t_first", 3)
    table("other", 3)
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t_first, other")
    states = States(database, topic)
    process = millrace(tables=("public.t_.*",), **states.options(mode)).start().streaming()
    table("t_before", 3)
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE t_before")
    assert process.stop() == 0
    # From here on it is wanted; what was there before is known.
    process.configure(snapshot__added_tables="true", **states.options(mode)).start().streaming()
    eventually(lambda: states.knows(2), 60, "what is known")
    table("t_second", 2000)
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE t_second")
    eventually(lambda: copies(process).get("public.t_second"), 60, "the request")
    process.kill()  # asked for, and perhaps nothing of it is stored, or all
    process.start().streaming()
    eventually(lambda: states.knows(3) and not states.tables(), 60, "the end of the copy")
    process.kill()
    table("t_third", 5)
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE t_third; DROP TABLE t_before; CREATE TABLE t_none (id int, n int);"
                 f"ALTER PUBLICATION {database.publication} ADD TABLE t_none")
    process.start().streaming()
    eventually(lambda: states.knows(4) and not states.tables(), 60, "the end of both")
    eventually(lambda: is_done(process, "public.t_third"), 60, "the end of the third's copy")
    assert "no key" in copies(process)["public.t_none"]["error"]
    assert process.stop() == 0
    table("t_last", 1)
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE t_last")
    process.start().streaming()
    eventually(lambda: states.knows(5) and not states.tables(), 60, "the end of the last")
    assert list(copies(process)) == ["public.t_last"]
    seconds, thirds = read("t_second"), read("t_third")
    assert len(set(seconds)) == 2000 and (mode == "at-least-once" or len(seconds) == 2000)
    assert len(thirds) == 5
    database.run(f"INSERT INTO t_first VALUES ({LAST}, 0)")
    assert keys_read(read_until(topic(database.topic("t_first")), f'{{"id":{LAST}}}')) == []


def test_a_request_that_a_kill_would_forget_is_said(database, millrace):
    """While Kafka is away nothing is stored: the command does not end as if all were well."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    state = database.create_topic(f"{database.name}-state", config={"cleanup.policy": "compact"})
    process = millrace(sink__kafka__state_topic=json.dumps(state)).start().streaming()
    database.run("INSERT INTO t VALUES (2)")
    database.all_confirmed()
    stand("kafka-stop", "KILL")
    try:
        assert "a kill of millrace would forget it" in expect(command(process, "public.t"), 69, "not done yet")
        process.kill()
    finally:
        stand("kafka-start")
    process.start().streaming()
    expect(command(process), 0, "nothing is copied")
