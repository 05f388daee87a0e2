"""Existing rows are read by a role of their own, which may SELECT and no more (snapshot.connection)."""

import uuid

import pytest

from kit import check, connect, dsn, eventually, expect
from test_hostile_role import PASSWORD, Scene, fixture_roles  # noqa: F401 (a fixture)
from test_incremental import command, copies, is_done

MODES = ["at-least-once", "exactly-once"]
BESIDE = {"source__postgres__create_publication": "false", "snapshot__connection": '"env:COPY_URL"'}


class Copies(Scene):
    """`copier` may read s.t and public.secret; `reader`, which streams, may replicate and read nothing."""

    def __init__(self, roles, database, millrace):
        super().__init__(roles, database, millrace)
        self.slot = f"stolen_{uuid.uuid4().hex[:8]}"
        self.copier = f"copier_{uuid.uuid4().hex[:8]}"
        database.run(f"CREATE ROLE {self.copier} LOGIN PASSWORD '{PASSWORD}';"
                     f"GRANT USAGE ON SCHEMA s TO {self.copier}; GRANT SELECT ON secret TO {self.copier};"
                     f"REVOKE SELECT ON secret, s.t FROM {roles.reader}; REVOKE USAGE ON SCHEMA s FROM {roles.reader}")
        self.by_owner(f"GRANT SELECT ON s.t TO {self.copier}")

    def calls(self, body):
        """The planner calls it for each query on s.t: a predicate with constant arguments. So does an autovacuum, as the owner."""
        self.by_owner(f"ALTER TABLE s.t SET (autovacuum_enabled = off);"
                      f"CREATE FUNCTION s.called(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$;"
                      "CREATE INDEX ON s.t (v) WHERE s.called(1) = 1;"
                      f"CREATE OR REPLACE FUNCTION s.called(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ {body} $$")

    def steals(self):
        self.calls("BEGIN PERFORM pg_notify('heard', current_user);"
                   f" BEGIN PERFORM pg_create_physical_replication_slot('{self.slot}');"
                   " EXCEPTION WHEN insufficient_privilege OR duplicate_object THEN NULL; END; RETURN i; END")

    def has_stolen(self):
        return self.database.run("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", [self.slot])[0][0] == 1

    def process(self, tables=("public.secret", "s.t"), **options):
        options = {"snapshot__connection": '"env:COPY_URL"', **options}
        process = super().process(tables, **options)
        process.environment["COPY_URL"] = self.url(self.copier)
        return process

    def url(self, role, database=None):
        return dsn(database or self.database.name).replace("postgres:" + PASSWORD, f"{role}:{PASSWORD}")

    def drop(self):
        self.listener.close()
        self.database.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [self.slot])
        self.database.run(f"DROP OWNED BY {self.copier}; DROP ROLE {self.copier}")


@pytest.fixture(name="scene")
def fixture_scene(roles, database, millrace):
    scene = Copies(roles, database, millrace)
    yield scene
    scene.drop()


def ids(records):
    return sorted(record.json["after"]["id"] for record in records if record.json["op"] == "r")


@pytest.mark.parametrize("delivery", MODES)
def test_first_copy(scene, topic, delivery):
    """The stream's role may not read, and what the planner calls can't make a slot."""
    scene.steals()
    process = scene.process(snapshot__mode='"initial"', snapshot__max__threads="2", sink__kafka__delivery=f'"{delivery}"')
    text = expect(check(process), 0, f'read by role "{scene.copier}", which may only read')
    assert "warning  table" not in text and f's.called of role {scene.roles.owner}' in text, text
    process.start().streaming()
    assert not [line for line in process.log("setup_warning") if "s.called" in line["message"]]
    assert ids(topic(scene.database.topic("t", "s")).take(5000)) == list(range(1, 5001))
    assert len(topic(scene.database.topic("secret")).take(1)) == 1
    assert not scene.has_stolen()
    assert process.stop() == 0


@pytest.mark.parametrize("delivery", MODES)
def test_beside_the_stream(scene, topic, delivery):
    scene.steals()
    process = scene.process(sink__kafka__delivery=f'"{delivery}"').start().streaming()
    scene.heard()
    assert command(process, "s.t")[0] == 0
    eventually(lambda: is_done(process, "s.t"), 60, "the copy")
    assert set(scene.heard()) == {scene.copier}
    assert not scene.has_stolen() and not process.log("copy_calls_functions")
    assert ids(topic(scene.database.topic("t", "s")).take(5000)) == list(range(1, 5001))
    assert process.stop() == 0


@pytest.mark.parametrize("mode", ["no_data", "initial"])
def test_without_it_the_slot_is_made(scene, mode):
    """What the others rest on: that which is called may do what the stream's role may. The warning names the remedy."""
    scene.by_owner(f"GRANT USAGE ON SCHEMA s TO {scene.roles.reader}; GRANT SELECT ON s.t TO {scene.roles.reader}")
    scene.database.run(f"GRANT SELECT ON secret TO {scene.roles.reader}")
    scene.steals()
    process = scene.process(snapshot__mode=f'"{mode}"', snapshot__connection=None)
    expect(check(process), 0, "CREATE ROLE copier", "snapshot.connection")
    process.start().streaming()
    if mode == "no_data":
        assert command(process, "s.t")[0] == 0
        eventually(lambda: is_done(process, "s.t"), 60, "the copy")
        assert process.log("copy_calls_functions")
    assert scene.has_stolen()
    assert process.stop() == 0


def test_the_first_copy_is_read_as_that_role(scene):
    """Its transaction is not committed, so only an error tells, and of that the code alone is said."""
    scene.calls(f"BEGIN RAISE EXCEPTION 'called' USING ERRCODE = CASE current_user WHEN '{scene.copier}' THEN 'MR001' ELSE 'MR002' END; END")
    process = scene.process(snapshot__mode='"initial"').start()
    assert process.ended(60) == 78
    assert "(MR001)" in "".join(process.lines), process.lines


@pytest.mark.parametrize("mode", ["no_data", "initial"])
def test_settings_do_not_outlast_the_table(scene, topic, mode):
    """What one table's owner has the planner call may set what the next table's rows are written by, and what names mean."""
    scene.database.run(f"CREATE TABLE dated (id int PRIMARY KEY, d date); INSERT INTO dated VALUES (1, '2026-11-23');"
                       f"GRANT SELECT ON dated TO {scene.copier}; ALTER PUBLICATION {scene.database.publication} ADD TABLE dated")
    scene.by_owner(f"CREATE TABLE s.seen (v text); GRANT INSERT ON s.seen TO {scene.copier};"
                   "CREATE FUNCTION s.pg_current_xact_id() RETURNS xid8 LANGUAGE plpgsql AS $$ BEGIN"
                   " INSERT INTO s.seen VALUES (current_user); RETURN pg_catalog.pg_current_xact_id(); END $$")
    scene.calls("BEGIN PERFORM set_config('datestyle', 'SQL, DMY', false), set_config('search_path', 's, pg_catalog', false); RETURN i; END")
    process = scene.process(tables=("s.t", "public.dated"), snapshot__mode=f'"{mode}"').start().streaming()
    if mode == "no_data":
        for table in ("s.t", "public.dated"):
            assert command(process, table)[0] == 0
            eventually(lambda: is_done(process, table), 60, "the copy")  # pylint: disable=cell-var-from-loop
    record, = topic(scene.database.topic("dated")).take(1)
    assert record.json["after"]["d"] == "2026-11-23"
    assert scene.database.run("SELECT * FROM s.seen") == []
    assert process.stop() == 0


def test_conditions_are_planned_in_a_transaction_that_only_reads(scene):
    """Whichever role plans them. What is immutable may not write, but may call what does."""
    scene.by_owner(f"CREATE TABLE s.seen (v text); GRANT USAGE ON SCHEMA s TO {scene.roles.reader};"
                   f"GRANT SELECT ON s.t TO {scene.roles.reader}; GRANT INSERT ON s.seen TO {scene.roles.reader};"
                   "CREATE FUNCTION s.writes() RETURNS void LANGUAGE plpgsql AS"
                   " $$ BEGIN INSERT INTO s.seen VALUES (current_user); EXCEPTION WHEN read_only_sql_transaction THEN NULL; END $$")
    scene.database.run(f"GRANT SELECT ON secret TO {scene.roles.reader}")
    scene.calls("BEGIN PERFORM s.writes(); RETURN i; END")
    scene.database.run("TRUNCATE s.seen")
    process = scene.process(snapshot__mode='"initial"', snapshot__where='["s.t: id > 10"]', snapshot__connection=None)
    code, text = check(process)
    assert code == 0 and scene.database.run("SELECT * FROM s.seen") == [], text
    process.start().streaming()
    assert scene.database.run("SELECT * FROM s.seen") == []
    assert process.stop() == 0


def failed(process, table):
    """Why the copy that is asked for failed."""
    code, text = command(process, table)
    if code == 0:
        eventually(lambda: copies(process)[table]["state"] == "failed", 60, "the copy's end")
        text = copies(process)[table]["error"]
    return text


def test_a_table_that_the_role_may_not_read(scene):
    scene.by_owner(f"REVOKE SELECT ON s.t FROM {scene.copier}")
    process = scene.process(snapshot__mode='"initial"')
    remedy = f'GRANT SELECT ON "s"."t" TO "{scene.copier}"'
    expect(check(process), 77, remedy)
    process.start()
    assert process.ended(60) == 77 and remedy in "".join(process.lines).replace('\\"', '"')
    process.configure(**BESIDE)
    expect(check(process), 0, "warning  table", remedy)
    process.start().streaming()
    assert remedy in failed(process, "s.t")
    # Granted, it can be asked for again.
    scene.by_owner(f"GRANT SELECT ON s.t TO {scene.copier}; REVOKE USAGE ON SCHEMA s FROM {scene.copier}")
    assert f'GRANT USAGE ON SCHEMA "s" TO "{scene.copier}"' in failed(process, "s.t")
    scene.by_owner(f"GRANT USAGE ON SCHEMA s TO {scene.copier}")
    assert command(process, "s.t")[0] == 0
    eventually(lambda: is_done(process, "s.t"), 60, "the copy")
    assert process.stop() == 0


def test_rows_that_policies_hide_are_not_left_out(scene):
    scene.by_owner("ALTER TABLE s.t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON s.t USING (id < 10)")
    scene.database.run(f"ALTER ROLE {scene.roles.reader} BYPASSRLS")
    process = scene.process(snapshot__mode='"initial"')
    expect(check(process), 77, f'hide rows from "{scene.copier}"')
    process.start()
    assert process.ended(60) == 77
    process.configure(**BESIDE).start().streaming()
    assert "its policies would hide rows" in failed(process, "s.t")
    assert process.stop() == 0


@pytest.mark.parametrize("mode", ["no_data", "initial"])
def test_another_database(scene, mode):
    process = scene.process(snapshot__mode=f'"{mode}"')
    process.environment["COPY_URL"] = scene.url(scene.copier, "postgres")
    said = f'leads to database "postgres", and the stream is of "{scene.database.name}"'
    expect(check(process), 78, said)
    process.start()
    if mode == "initial":
        assert process.ended(60) == 78 and said in "".join(process.lines).replace('\\"', '"')
        assert not scene.database.run("SELECT FROM pg_replication_slots WHERE slot_name LIKE %s", [scene.database.slot + "%"])
        return
    process.streaming()
    assert said in failed(process, "s.t")
    assert process.stop() == 0


def test_a_role_that_may_replicate_is_told(scene):
    scene.steals()
    scene.database.run(f"ALTER ROLE {scene.copier} REPLICATION")
    process = scene.process()
    text = expect(check(process), 0, f'read by role "{scene.copier}", which may do more than read')
    assert f'ALTER ROLE "{scene.copier}" NOSUPERUSER' in text, text
    process.start().streaming()
    assert command(process, "s.t")[0] == 0
    assert process.wait_for("copy_calls_functions")["role"] == scene.copier
    assert process.stop() == 0


def test_a_wrong_password(scene):
    process = scene.process(snapshot__mode='"initial"')
    process.environment["COPY_URL"] = scene.url(scene.copier).replace(PASSWORD, "not-it")
    process.start()
    assert process.ended(60) == 77
    said = "".join(process.lines)
    assert "snapshot.connection" in said and "not-it" not in said
