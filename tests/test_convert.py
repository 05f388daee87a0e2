"""`millrace convert`: what the command does around the conversion, which convert_test.c looks at; and that its result runs."""

import json
import os
import subprocess

from kit import BINARY, BOOTSTRAP, check, dsn, expect

CONNECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "connectors")


def convert(path, text=None):
    return subprocess.run([BINARY, "convert", str(path)], input=text, capture_output=True, text=True, check=False)


def test_convert_command(tmp_path):
    path = os.path.join(CONNECTORS, "cloud-kafka.json")
    done = convert(path)
    assert done.returncode == 0 and "MILLRACE_KAFKA_PASSWORD" in done.stderr, done.stderr
    with open(path, encoding="utf-8") as file:
        assert convert("-", file.read()).stdout == done.stdout
    assert convert(tmp_path / "absent").returncode == 64
    other = convert("-", '{"connector.class": "io.debezium.connector.mysql.MySqlConnector"}')
    assert other.returncode == 78 and other.stdout == "" and "PostgreSQL" in other.stderr
    large = convert("-", "a=" + "x" * (1 << 20))
    assert large.returncode == 64 and "1 MiB" in large.stderr


def test_convert_result_is_checked(database, millrace):
    """A connector of this very database: `millrace check` finds nothing."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    server = dsn(database.name).split("//")[1]
    login, place = server.split("@")
    user, password = login.split(":")
    host, port = place.split("/")[0].split(":")
    done = convert("-", json.dumps({"name": "c", "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
        "database.hostname": host, "database.port": port, "database.user": user, "database.password": password,
        "database.dbname": database.name, "topic.prefix": database.prefix, "slot.name": database.slot,
        "publication.name": database.publication, "publication.autocreate.mode": "filtered",
        "table.include.list": r"public\.(t|u)", "producer.override.bootstrap.servers": BOOTSTRAP}}))
    assert password not in done.stdout + done.stderr
    process = millrace(text=done.stdout)
    process.environment["MILLRACE_PG_PASSWORD"] = password
    expect(check(process), 0, "0 errors")
