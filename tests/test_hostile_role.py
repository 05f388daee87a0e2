"""A database role that means harm: without superuser, and with no more than SQL. docs/security.md says what it may achieve."""

import subprocess
import uuid

import psycopg
import pytest

from kit import check, connect, dsn, eventually, expect
from test_incremental import command, copies, is_done

PASSWORD = "millrace-stand"


class Roles:
    """`owner` has schema s, `stranger` may connect, `reader` is millrace's, made as scripts/role.sql does."""

    def __init__(self):
        name = uuid.uuid4().hex[:8]
        self.owner, self.stranger, self.reader = f"owner_{name}", f"stranger_{name}", f"reader_{name}"
        with connect("postgres") as server:
            server.execute(f"CREATE ROLE {self.owner} LOGIN PASSWORD '{PASSWORD}'; CREATE ROLE {self.stranger} LOGIN PASSWORD '{PASSWORD}';"
                           f"CREATE ROLE {self.reader} LOGIN REPLICATION NOINHERIT PASSWORD '{PASSWORD}'")

    def drop(self):
        with connect("postgres") as server:
            server.execute(f"DROP ROLE {self.owner}, {self.stranger}, {self.reader}")


@pytest.fixture(name="roles")
def fixture_roles():
    roles = Roles()
    yield roles
    roles.drop()


class Scene:
    """Tables s.t, which `owner` has, and public.secret, which it may not read; `reader` may read both."""

    def __init__(self, roles, database, millrace):
        self.roles, self.database, self.millrace = roles, database, millrace
        database.run(f"CREATE SCHEMA s AUTHORIZATION {roles.owner}; GRANT USAGE ON SCHEMA s TO {roles.reader};"
                     "CREATE TABLE secret (id int PRIMARY KEY, v text); INSERT INTO secret VALUES (1, 'canary');"
                     f"GRANT SELECT ON secret TO {roles.reader}")
        self.by_owner("CREATE TABLE s.t (id int PRIMARY KEY, v text); INSERT INTO s.t SELECT i, 'x' FROM generate_series(1, 5000) i;"
                      f"GRANT SELECT ON s.t TO {roles.reader}")
        # Tells with whose rights it runs, and what they let it read.
        self.by_owner("CREATE FUNCTION s.spy(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN"
                      " PERFORM pg_notify('heard', current_user || ': ' || (SELECT v FROM public.secret)); RETURN i;"
                      " EXCEPTION WHEN insufficient_privilege THEN RETURN i; END $$")
        database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE s.t, secret")
        self.listener = connect(database.name)
        self.listener.execute("LISTEN heard")

    def connect_as(self, role):
        return psycopg.connect(dsn(self.database.name).replace("postgres:" + PASSWORD, f"{role}:{PASSWORD}"), autocommit=True)

    def by_owner(self, text):
        with self.connect_as(self.roles.owner) as owner:
            owner.execute(text)

    def process(self, tables=("public.secret", "s.t"), **options):
        process = self.millrace(tables, source__postgres__create_publication="false", **options)
        process.environment["TEST_URL"] = dsn(self.database.name).replace("postgres:" + PASSWORD, f"{self.roles.reader}:{PASSWORD}")
        return process

    def heard(self):
        """What the function could tell. Notifications come in the order of their transactions."""
        self.database.run("NOTIFY heard, 'end'")
        said = []
        for notification in self.listener.notifies(timeout=30):
            if notification.payload == "end":
                return said
            said.append(notification.payload)
        raise AssertionError("no end")


@pytest.fixture(name="scene")
def fixture_scene(roles, database, millrace):
    scene = Scene(roles, database, millrace)
    yield scene
    scene.listener.close()


VIEW = "ALTER TABLE s.t RENAME TO was_t; CREATE VIEW s.t AS SELECT '(0,1)'::tid AS ctid, s.spy(1) AS id, 'forged' AS v; GRANT SELECT ON s.t TO "
TABLE = ("ALTER TABLE s.t RENAME TO was_t; CREATE TABLE s.t (id int PRIMARY KEY, v text); INSERT INTO s.t VALUES (1, 'forged');"
         "GRANT SELECT ON s.t TO ")


@pytest.mark.parametrize("instead", [VIEW, TABLE], ids=["view", "table"])
def test_another_relation_comes_to_have_the_name_between_two_chunks(scene, topic, instead):
    """A view calls its functions with the rights of whoever reads it; another table has rows that no event ever changes."""
    process = scene.process().start().streaming()
    assert command(process, "--pause")[0] == 0
    assert command(process, "s.t")[0] == 0
    scene.by_owner(instead + scene.roles.reader)
    assert command(process, "--resume")[0] == 0
    eventually(lambda: copies(process)["s.t"]["state"] == "failed", 60, "the copy's end")
    assert "was dropped, renamed" in copies(process)["s.t"]["error"]
    assert scene.heard() == []
    scene.database.run("UPDATE secret SET v = 'other'")
    topic(scene.database.topic("secret")).take(1)
    assert scene.database.topic("t", "s") not in scene.database.topics()
    assert process.stop() == 0


@pytest.mark.parametrize("instead", [VIEW, TABLE], ids=["view", "table"])
def test_another_relation_comes_to_have_the_name_during_the_first_copy(scene, instead):
    """The copy stands still at the table before, because nobody reads what it writes."""
    scene.database.run("INSERT INTO secret SELECT i, repeat('x', 1000) FROM generate_series(2, 20000) i")
    process = scene.process(sink__kafka__brokers=None, snapshot__mode='"initial"')
    process.start(stdout=subprocess.PIPE)
    lines = [process.process.stdout.readline()]
    assert '"secret"' in lines[0]
    scene.by_owner(instead + scene.roles.reader)
    lines += process.process.stdout
    assert process.ended(60) == 78, "".join(process.lines)
    assert scene.heard() == []
    assert len(lines) > 10000 and not [line for line in lines if "forged" in line]


def test_check_constraints_are_not_called(scene):
    """With constraint_exclusion the planner calls what a CHECK has with constant arguments."""
    scene.by_owner("ALTER TABLE s.t ADD CHECK (id + s.spy(1) > 0)")
    scene.database.run(f"ALTER DATABASE {scene.database.name} SET constraint_exclusion = on")
    process = scene.process().start().streaming()
    scene.heard()
    assert command(process, "s.t")[0] == 0
    eventually(lambda: is_done(process, "s.t"), 60, "the copy")
    assert scene.heard() == []
    assert process.stop() == 0


def test_partitions_of_partitions_of_others(scene):
    """Each the only partition of the one before: their ancestors grow as the square of their number."""
    scene.database.run(f"CREATE SCHEMA junk AUTHORIZATION {scene.roles.stranger}")
    with scene.connect_as(scene.roles.stranger) as stranger:
        stranger.execute("CREATE TABLE junk.p0 (a int) PARTITION BY RANGE (a)")
        for number in range(1, 2500):
            stranger.execute(f"CREATE TABLE junk.p{number} PARTITION OF junk.p{number - 1} DEFAULT PARTITION BY RANGE (a)")
    process = scene.process().start().streaming()
    assert check(process)[0] == 0
    assert process.stop() == 0


@pytest.mark.parametrize("way", ["pg_advisory_lock", "pg_advisory_lock_shared"])
def test_a_stranger_takes_the_lock(scene, topic, way):
    """Every role may take an advisory lock. It holds the stream up, not without a word, and does not end it."""
    process = scene.process().start().streaming()
    with scene.connect_as(scene.roles.stranger) as stranger:
        # Both of them: the one that says who streams, and the one that says which pipeline it is.
        locks = stranger.execute("SELECT mode, (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted"
                                 " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").fetchall()
        assert len(locks) == 2
        stranger.execute("SELECT pg_advisory_lock_shared(%s)", [next(key for mode, key in locks if mode == "ShareLock")])
        assert process.stop() == 0
        stranger.execute(f"SELECT {way}(%s)", [next(key for mode, key in locks if mode == "ExclusiveLock")])
        process.start()
        told = process.wait_for("claim_held_up")
        assert told["role"] == scene.roles.stranger and str(stranger.info.backend_pid) in told["remedy"], told
        assert process.get("/readyz").status == 503
        expect(check(process), 0, f"pg_terminate_backend({stranger.info.backend_pid})")
    process.streaming()
    scene.database.run("UPDATE secret SET v = 'other'")
    topic(scene.database.topic("secret")).take(1)
    assert process.stop() == 0


def test_check_constraints_of_partitions_are_not_called(roles, scene):
    """A partition is planned as the member of a set, whose constraints are looked at with constraint_exclusion = partition, too."""
    scene.by_owner("CREATE TABLE s.p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE s.p1 PARTITION OF s.p DEFAULT;"
                   "ALTER TABLE s.p1 ADD CHECK (id + s.spy(1) > 0); INSERT INTO s.p SELECT i, 'x' FROM generate_series(1, 20000) i;"
                   f"GRANT SELECT ON s.p, s.p1 TO {roles.reader}")
    scene.database.run(f"ALTER PUBLICATION {scene.database.publication} ADD TABLE s.p;"
                       f"ALTER PUBLICATION {scene.database.publication} SET (publish_via_partition_root = true)")
    process = scene.process(tables=("public.secret", "s.t", "s.p")).start().streaming()
    scene.heard()
    assert command(process, "s.p")[0] == 0
    eventually(lambda: is_done(process, "s.p"), 60, "the copy")
    assert copies(process)["s.p"]["chunks"] > 1
    assert scene.heard() == []
    assert process.stop() == 0


@pytest.mark.parametrize("key", ["array", "range"])
def test_domains_in_keys_are_not_asked(roles, scene, key):
    """Where the next chunk begins is said by a literal of the key's type, and to read an array of a domain is to call its checks."""
    kind, value = {"array": ("s.d[]", "ARRAY[i]::s.d[]"), "range": ("s.r", "s.r(i, i + 1)")}[key]
    scene.by_owner("CREATE DOMAIN s.d AS int; CREATE TYPE s.r AS RANGE (SUBTYPE = s.d);"
                   f"CREATE TABLE s.k (id {kind} PRIMARY KEY, v text); INSERT INTO s.k SELECT {value}, 'x' FROM generate_series(1, 20000) i;"
                   "ALTER DOMAIN s.d ADD CHECK (s.spy(VALUE) > 0) NOT VALID;"
                   f"GRANT SELECT ON s.k TO {roles.reader}")
    scene.database.run(f"ALTER PUBLICATION {scene.database.publication} ADD TABLE s.k")
    process = scene.process(tables=("public.secret", "s.t", "s.k")).start().streaming()
    scene.heard()
    code, said = command(process, "s.k")
    if code == 0:
        eventually(lambda: copies(process)["s.k"]["state"] in ("done", "failed"), 60, "the copy")
        said = copies(process)["s.k"].get("error") or ""
    assert scene.heard() == []
    assert "domain" in said
    assert process.stop() == 0


CALLED = {"index": "CREATE INDEX ON s.t ((s.spy(id)))", "predicate": "CREATE INDEX ON s.t (id) WHERE s.spy(1) = 1",
          "statistics": "CREATE STATISTICS s.x ON (s.spy(id)) FROM s.t",
          "operator": "CREATE OPERATOR s.### (FUNCTION = s.spy, RIGHTARG = int); CREATE INDEX ON s.t ((OPERATOR(s.###) id))"}


@pytest.mark.parametrize("by", CALLED)
def test_functions_of_others_that_a_copy_calls_are_told(roles, scene, by):
    """No setting keeps the planner from calling them. So whoever has a table copied is told whose they are."""
    scene.by_owner(CALLED[by])
    process = scene.process().start().streaming()
    expect(check(process), 0, f"s.spy of role {roles.owner}")
    assert command(process, "s.t")[0] == 0
    told = process.wait_for("copy_calls_functions")
    assert (told["schema"], told["table"], told["role"], told["functions"]) == ("s", "t", roles.reader, f"s.spy of role {roles.owner}")
    eventually(lambda: is_done(process, "s.t"), 60, "the copy")
    assert process.stop() == 0
    # Nobody but a superuser can give it another text.
    scene.database.run("ALTER FUNCTION s.spy OWNER TO postgres")
    process.start().streaming()
    expect(check(process), 0, without="s.spy")
    assert command(process, "s.t")[0] == 0
    eventually(lambda: is_done(process, "s.t"), 60, "the copy")
    assert not process.log("copy_calls_functions")
    assert process.stop() == 0


def test_functions_of_others_are_told_before_the_first_copy(roles, scene):
    scene.by_owner(CALLED["index"])
    process = scene.process(sink__kafka__brokers=None, snapshot__mode='"initial"').start()
    told = process.wait_for("setup_warning")
    assert f"s.spy of role {roles.owner}" in told["message"] and told["subject"] == 'table "s"."t"', told
    process.streaming()
    assert process.stop() == 0


@pytest.mark.parametrize("mode", ["no_data", "initial"])
def test_an_open_transaction_holds_up_the_slot_not_in_silence(roles, scene, mode):
    """PostgreSQL makes a slot only once all transactions have ended that were open then, in any database, whoever has them."""
    process = scene.process(snapshot__mode=f'"{mode}"')
    with scene.connect_as(roles.stranger) as stranger:
        stranger.execute("BEGIN; SELECT pg_current_xact_id()")
        process.start()
        told = process.wait_for("slot_held_up", 40)
        holder = f"the transaction of role {roles.stranger} in database {stranger.info.dbname}, process {stranger.info.backend_pid}"
        assert told["holder"] == holder and f"pg_terminate_backend({stranger.info.backend_pid})" in told["remedy"], told
        answer = eventually(lambda: (lambda r: holder in r.json["reason"] and r)(process.get("/readyz")), 10, "the reason")
        assert answer.status == 503
        assert process.get("/status").json["slot"]["held_by"] == holder
        stranger.execute("COMMIT")
    process.streaming()
    eventually(lambda: "held_by" not in process.get("/status").json["slot"], 30, "the end of it")
    assert len(process.log("slot_held_up")) == 1
    assert process.stop() == 0


def test_a_prepared_transaction_holds_up_the_slot_not_in_silence(scene):
    scene.database.run("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'it''s \\ here'")
    try:
        process = scene.process().start()
        told = process.wait_for("slot_held_up", 40)
        assert "prepared" in told["holder"] and "ROLLBACK PREPARED  E'it''s \\\\ here'" in told["remedy"], told
    finally:
        scene.database.run("ROLLBACK PREPARED 'it''s \\ here'")
    process.streaming()
    assert process.stop() == 0
