"""What docs/postgresql.md says to do, done: the role with the least rights."""

import os
import subprocess

import psycopg
import pytest

from kit import dsn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROLE = os.path.join(ROOT, "scripts", "role.sql")


@pytest.fixture
def role(database):
    """The role of scripts/role.sql, made by that script."""
    database.run('CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Orders" (id int PRIMARY KEY); '
                 "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE secret (id int PRIMARY KEY)")
    name = "r" + database.name
    result = subprocess.run(
        ["psql", "-X", "-q", "-d", dsn(database.name),
         "-v", f"role={name}", "-v", "password=role-secret", "-v", f"publication={database.publication}",
         "-v", 'tables=public.t, "Shop"."Orders"', "-f", ROLE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
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
