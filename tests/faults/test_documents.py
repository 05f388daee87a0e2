"""What docs/consumers.md and docs/postgresql.md say to do, done: the example consumer, and the role with the least rights."""

import os
import sqlite3
import subprocess
import sys

import psycopg
import pytest

from kit import BOOTSTRAP, dsn, eventually

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONSUMER = os.path.join(ROOT, "docs", "examples", "consume_once.py")
ROLE = os.path.join(ROOT, "scripts", "role.sql")


def consume_once(topic, store, *more):
    return subprocess.Popen([sys.executable, CONSUMER, "--brokers", BOOTSTRAP, "--topic", topic, "--store", store,
                             *more], stdout=subprocess.PIPE, text=True)


def count(store):
    if not os.path.exists(store):
        return 0
    connection = sqlite3.connect(store)
    try:
        return connection.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.OperationalError:
        return 0  # not made yet
    finally:
        connection.close()


def test_example_consumer_counts_each_change_once(database, millrace, tmp_path):
    """The same rows twice in the topic: the slot is set back by a copy of it. And the consumer is killed."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    topic = database.make_topic("t", partitions=3)
    # With a stored position nothing would come twice.
    process = millrace(sink__kafka__state_topic='""').start().streaming()
    database.run("SELECT pg_copy_logical_replication_slot(%s, %s)", [database.slot, database.slot + "_copy"])
    database.run("INSERT INTO t SELECT generate_series(1, 5000)")
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), what="delivery")
    process.stop()
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.run("SELECT pg_copy_logical_replication_slot(%s, %s)", [database.slot + "_copy", database.slot])
    process.start().streaming()
    store = str(tmp_path / "results.db")
    consumer = consume_once(topic, store)
    try:
        eventually(lambda: count(store) > 0, 60, "results")
    finally:
        consumer.kill()
        consumer.wait()
        consumer.stdout.close()
    database.run("INSERT INTO t SELECT generate_series(5001, 6000)")
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), what="delivery")
    assert process.stop() == 0
    consumer = consume_once(topic, store, "--idle", "5")
    said = consumer.communicate(timeout=120)[0]
    assert consumer.returncode == 0 and "repeats dropped" in said, said
    connection = sqlite3.connect(store)
    rows, keys = connection.execute("SELECT count(*), count(DISTINCT key) FROM results").fetchone()
    connection.close()
    assert rows == keys == 6000


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
