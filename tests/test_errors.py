"""What a person meets: thing, reason, remedy, exit code; and no row or secret in any line."""

import json
import os
import re

import pytest

from kit import Database, check, dsn, eventually, expect, stand


def lacks(process, code, *parts):
    """What its end should say and does not; nothing where all is as it should be."""
    exit_code, text = process.run_to_end()
    absent = [part for part in parts if part not in text]
    return [exit_code, *absent, text] if exit_code != code or absent else []


def test_wrong_password(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    role = f"{database.name}_r"
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD 'right'")
    process = millrace()
    process.environment["TEST_URL"] = dsn(database.name).replace("postgres:millrace-stand", f"{role}:canary-secret")
    text = expect(process.run_to_end(), 77, "password authentication failed", "check user and password")
    assert "canary-secret" not in text
    database.run(f"DROP ROLE {role}")


def test_the_error_of_a_failed_start_is_not_buried(database, millrace):
    """A line says what was started, then comes why it failed, once; nothing was done, so nothing is counted.

    The HTTP server opens beside it: its line may come before the end, or not at all."""
    process = millrace(tables=("absent",))
    for change in (lambda url: url.replace("millrace-stand", "wrong"), lambda url: url.replace(database.name, "absent_database"),
                   lambda url: url):
        process.environment["TEST_URL"] = change(dsn(database.name))
        code, text = process.run_to_end()
        lines = [line for line in text.splitlines() if "warning:" not in line]
        events = [json.loads(line)["event"] for line in lines if "topic_created" not in line]
        assert code in (77, 78) and [event for event in events if event != "http_listening"] == ["started", "stopped"], text


def test_unknown_database(database, millrace):
    process = millrace()
    process.environment["TEST_URL"] = dsn("no_such_database")
    assert not lacks(process, 78, "no_such_database", "check the database name")


def test_missing_table(database, millrace):
    assert not lacks(millrace(tables=("absent",)), 78, '\\"public\\".\\"absent\\" does not exist', 'correct')
    assert database.slot_row("slot_name") is None, "nothing is made when something is wrong"


def test_table_without_identity(database, millrace):
    database.run("CREATE TABLE t (id int)")
    assert not lacks(millrace(), 78, "no replica identity", "REPLICA IDENTITY FULL")
    database.run("INSERT INTO t VALUES (1)")
    database.run("UPDATE t SET id = 2")


def test_a_view_is_no_table(database, millrace):
    database.run("CREATE VIEW t AS SELECT 1 AS id")
    assert not lacks(millrace(), 78, "is not a table")


def test_missing_publication(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert not lacks(millrace(source__postgres__create_publication="false"), 78, "does not exist",
                     f'CREATE PUBLICATION \\"{database.publication}\\" FOR TABLE ONLY \\"public\\".\\"t\\"', "create_publication = true")


def test_publication_without_the_table(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE u")
    assert not lacks(millrace(), 78, "is not in publication", "ALTER PUBLICATION")


def test_publication_lost_behind_the_slot(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    assert process.stop() == 0
    database.run(f"DROP PUBLICATION {database.publication}")
    assert not lacks(process, 10, "younger than the slot", "row filter or a list of columns", "WITH (publish_via_partition_root = true)",
                     'FOR TABLE ONLY \\"public\\".\\"t\\"', "millrace recover")


@pytest.mark.parametrize("running", [True, False])
def test_publication_dropped_and_made_again(database, millrace, running):
    """A row that was written in between can't be sent. PostgreSQL 18 goes on without it and only warns."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.run(f"ALTER DATABASE {database.name} SET client_min_messages = error")
    process = millrace().start().streaming()
    if not running:
        assert process.stop() == 0
    for statement in (f"DROP PUBLICATION {database.publication}", "INSERT INTO t VALUES (1)",
                      f"CREATE PUBLICATION {database.publication} FOR TABLE t", "INSERT INTO t VALUES (2)"):
        database.run(statement)
    code, said = (process.ended(30), "".join(process.lines)) if running else process.run_to_end()
    assert code == 10 and "younger than the slot" in said, said


def test_missing_slot(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert not lacks(millrace(source__postgres__create_slot="false"), 78, "does not exist",
          "pg_create_logical_replication_slot", "create_slot = true")


def test_slot_of_another_plugin(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.run("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [database.slot])
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t")
    assert not lacks(millrace(), 78, "test_decoding", "choose another slot_name, or drop it, if no other program reads it")


def test_lost_slot(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    assert process.stop() == 0
    database.lose_slot()
    assert not lacks(process, 10, "is lost", "rows since then are missing", "millrace recover")


def test_wal_level(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    try:
        database.run("ALTER SYSTEM SET wal_level = 'replica'")
        stand("pg-restart")
        assert not lacks(millrace(), 78, "wal_level is replica", "ALTER SYSTEM SET wal_level")
    finally:
        database.run("ALTER SYSTEM RESET wal_level")
        stand("pg-restart")


def test_plugin_not_allowed(database, millrace):
    """The newest minor versions restrict output plugins."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    if not database.run("SELECT 1 FROM pg_settings WHERE name = 'output_plugin_libraries'"):
        pytest.skip("this server allows every plugin")
    try:
        database.run("ALTER SYSTEM SET output_plugin_libraries = 'test_decoding'")
        database.run("SELECT pg_reload_conf()")
        eventually(lambda: database.run("SHOW output_plugin_libraries")[0][0] == "test_decoding", what="the setting")
        assert not lacks(millrace(), 78, "pgoutput", "add pgoutput to output_plugin_libraries")
    finally:
        database.run("ALTER SYSTEM RESET output_plugin_libraries")
        database.run("SELECT pg_reload_conf()")


def test_slot_of_two_phases(database, millrace):
    """Its transactions come when they are prepared, whatever is asked for; refused before the first one."""
    database.run(f"CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION {database.publication} FOR TABLE t")
    database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", [database.slot])
    process = millrace(source__postgres__adopt_slot="true")
    assert not lacks(process, 78, "was made with two_phase", "choose another slot_name, or drop this one")
    expect(check(process), 78, "was made with two_phase")
    process.configure(snapshot__mode='"always"')  # makes the slot anew
    assert process.start().streaming().stop() == 0


def test_role_without_replication(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    role = "r" + database.name
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    process = millrace()
    process.environment["TEST_URL"] = dsn(database.name).replace("postgres:millrace-stand", f"{role}:x")
    try:
        assert not lacks(process, 77, "REPLICATION")
    finally:
        database.run(f"DROP ROLE {role}")


@pytest.mark.parametrize("text,line,parts", [
    ('tabels = ["t"]\n', 1, ['unknown key "tabels"', 'did you mean "tables"']),
    ('tables = ["t"]\n[sink.kafka]\nbrokers = "x"\n', 3, ["sink.kafka.brokers must be a list of strings"]),
    ('tables = ["t"]\n[sink.kafka]\nbrokers = ["x"]\n[sink.kafka.properties]\nacks = "1"\n', 5,
     ['"acks" can\'t be set']),
    ('tables = ["t"]\n[source.postgres]\nconnection = "host=x password=canary"\n', 3,
     ["holds a password", "set password"]),
    ('tables = ["t"]\nformat debezium\n', 2, ["not valid TOML"]),
    ('tables = ["t"]\n[outbox]\ntopics_max = 0\n', 3, ["out of range"]),
])
def test_a_wrong_configuration_names_file_and_line(database, millrace, text, line, parts):
    process = millrace(text=text)
    said = expect(process.run_to_end(), 78)
    assert f"config.toml:{line}:" in said, said
    for part in parts:
        assert part in said, said
    assert "canary" not in said


def test_unknown_kafka_property(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert not lacks(millrace(**{'sink__kafka__properties."no.such"': '"x"'}), 78, "no.such", "is not accepted",
          "docs/configuration.md")


def test_all_problems_at_once(database, millrace):
    _, said = millrace(text='tabels = []\nformat = "xml"\n[log]\nlevel = 3\n').run_to_end()
    assert said.count("config.toml:") == 3


def test_no_text_of_a_server_steers_the_terminal(database, millrace):
    """DEL, C1 controls and escapes in a name that the log shows as text."""
    process = millrace(log__format='"text"')
    process.write(process.native((), {"log.format": '"text"'}).replace(
        "tables = []", 'tables = ["\\"a\\u009b31m\\u007f\\u001b[2J\\""]'))
    said = expect(process.run_to_end(), 78, "does not exist")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", said), repr(said)


def test_wrong_arguments_are_a_usage_error(database, millrace):
    process = millrace()
    process.start("--no-such-option")
    assert process.process.wait(10) == 64


def test_no_row_data_in_logs(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(log__level='"debug"').start().streaming()
    database.run("INSERT INTO t VALUES (1, 'canary-row')")
    database.run("UPDATE t SET v = 'canary-row-2'")
    database.run("SELECT pg_terminate_backend(%s)", [database.slot_row("active_pid")])
    process.wait_for("source_connected", times=2)
    database.run("DELETE FROM t")
    topic(database.topic("t")).take(4)
    assert process.stop() == 0
    text = "".join(process.lines)
    assert "canary" not in text and "millrace-stand" not in text
    for line in process.lines:
        json.loads(line)
    assert not os.path.exists("core")


@pytest.mark.parametrize("has_publication", [True, False], ids=["publication", "none-yet"])
@pytest.mark.parametrize("mode", ["no_data", "when_needed", "always"])
def test_slot_of_another_database_is_left_alone(database, millrace, mode, has_publication):
    """docs/fleet.md: a second millrace with the default name. No remedy may drop the other pipeline's slot."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    if has_publication:
        database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t")
    other = Database()
    try:
        other.run(f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')")
        process = millrace(snapshot__mode=f'"{mode}"')
        for code, said in (check(process), process.run_to_end()):
            assert code == 78 and f"belongs to database {other.name}" in said and "choose another slot_name" in said, said
            assert "pg_drop_replication_slot" not in said, said
        assert database.run("SELECT database FROM pg_replication_slots WHERE slot_name = %s", [database.slot])[0][0] == other.name
    finally:
        other.drop()


def test_a_slot_that_another_database_has_by_now_is_left_alone(database, millrace):
    """A position is stored, and the slot of then is gone: what says so, and how to go on, does not take the other's for it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    end = database.run("SELECT pg_logical_emit_message(true, 'other', 'x')")[0][0]
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), what="the confirmation")
    assert process.stop() == 0
    other = Database()
    try:
        database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
        other.run(f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')")
        for code, said in (check(process), process.run_to_end()):
            assert code in (10, 78) and "pg_drop_replication_slot" not in said, said
        assert database.run("SELECT database FROM pg_replication_slots WHERE slot_name = %s", [database.slot])[0][0] == other.name
    finally:
        other.drop()


@pytest.mark.parametrize("mode", ["no_data", "initial", "when_needed", "always"])
def test_the_slot_of_a_copy_of_another_database_is_left_alone(database, millrace, mode):
    """The copy of another pipeline with the same slot_name was begun there, or goes on; its own slot is not made yet."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    other = Database()
    try:
        name = f"{database.slot}_snapshot_1"
        other.run(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
        process = millrace(snapshot__mode=f'"{mode}"')
        if mode == "no_data":
            process.start().streaming()
            assert process.stop() == 0
        else:
            expect(process.run_to_end(), 78, name, "choose another slot_name", without="pg_drop_replication_slot")
        assert database.run("SELECT database FROM pg_replication_slots WHERE slot_name = %s", [name])[0][0] == other.name
    finally:
        other.drop()
