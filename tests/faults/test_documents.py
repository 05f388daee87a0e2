"""What docs/postgresql.md says to do, done: the role with the least rights."""

import os
import subprocess

import psycopg
import pytest

from kit import Database, dsn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROLE = os.path.join(ROOT, "scripts", "role.sql")


def make_role(database, name, *variables, tables="public.t"):
    done = subprocess.run(
        ["psql", "-X", "-q", "-d", dsn(database.name), "-v", f"role={name}", "-v", f"publication={database.publication}",
         "-v", f"tables={tables}", *(word for variable in variables for word in ("-v", variable)), "-f", ROLE],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def role(database):
    """The role of scripts/role.sql, made by that script."""
    database.run('CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Orders" (id int PRIMARY KEY); '
                 "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE secret (id int PRIMARY KEY)")
    name = "r" + database.name
    make_role(database, name, "password=role-secret", tables='public.t, "Shop"."Orders"')
    yield name
    database.run(f"DROP OWNED BY {name}")
    database.run(f"DROP ROLE {name}")


def test_least_role(database, role, millrace, topic):
    process = millrace(tables=("t", "Shop.Orders"))
    process.environment["TEST_URL"] = dsn(database.name).replace("postgres:millrace-stand", f"{role}:role-secret")
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    database.run('INSERT INTO "Shop"."Orders" VALUES (2)')
    assert topic(database.topic("t")).take(1)[0].json_key == {"id": 1}
    assert topic(database.topic("Orders", "Shop")).take(1)[0].json_key == {"id": 2}
    assert process.stop() == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        psycopg.connect(process.environment["TEST_URL"]).execute("SELECT * FROM secret")


def test_the_role_of_a_managed_service_and_of_another_database(database):
    name, other = "r" + database.name, Database()
    try:
        for one, variables in ((database, ("password=role-secret", "replication_role=pg_monitor")), (other, ())):
            one.run("CREATE TABLE t (id int PRIMARY KEY)")
            assert ("exists" in make_role(one, name, *variables)) == (one is other)
            one.run("CREATE TABLE more (id int PRIMARY KEY)")  # the publication is there, and gets what it lacks
            assert "the publication exists" in make_role(one, name, *variables, tables="public.t, public.more")
            assert one.run("SELECT count(*) FROM pg_publication_tables") == [(2,)]
            assert one.run(f"SELECT has_table_privilege('{name}', 't', 'SELECT'), count(*) FROM pg_publication") == [(True, 1)]
        assert database.run(f"SELECT rolreplication, pg_has_role('{name}', 'pg_monitor', 'USAGE') FROM pg_roles WHERE rolname = '{name}'") == [
            (False, True)]
    finally:
        for one in (other, database):
            one.run(f"DROP OWNED BY {name}")
        database.run(f"DROP ROLE {name}")
        other.drop()
