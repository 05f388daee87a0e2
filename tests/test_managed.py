"""A managed service, simulated: a master role with what Amazon RDS gives its own and no more, and millrace's role by scripts/role.sql.

RDS: the master is NOSUPERUSER NOREPLICATION CREATEDB CREATEROLE and a member of rds_superuser ("Understanding the rds_superuser role" in its
User Guide); who is a member of rds_replication may replicate, because its server is patched. Stock PostgreSQL asks for the attribute
(InitPostgres in utils/init/postinit.c), so a superuser's function gives it to the members, and pg_roles is replaced by a view that does not show it.
So what is proved is: each statement and each question of millrace's works with these rights, and millrace goes by the membership. Not proved: what
else RDS has patched or hidden, its parameter groups, its proxy, its certificates, its failover."""

import os
import re
import subprocess

import psycopg
import pytest

from kit import check, dsn, expect
from test_incremental import copy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECRET = "managed-secret"
GIVE = "SELECT rdsadmin.replication_to_members()"


class Service:
    """`master` owns the database; `role` is what scripts/role.sql makes as the master."""

    def __init__(self, database):
        self.database, self.master, self.role = database, "master_" + database.name, "role_" + database.name
        database.run(
            "CREATE ROLE rds_replication; CREATE ROLE rds_superuser;"
            "GRANT rds_replication TO rds_superuser WITH ADMIN OPTION; GRANT pg_monitor, pg_signal_backend TO rds_superuser WITH ADMIN OPTION;"
            f"CREATE ROLE {self.master} LOGIN NOSUPERUSER INHERIT CREATEDB CREATEROLE NOREPLICATION PASSWORD '{SECRET}';"
            f"GRANT rds_superuser TO {self.master}; ALTER DATABASE {database.name} OWNER TO {self.master};"
            "CREATE SCHEMA rdsadmin; CREATE FUNCTION rdsadmin.replication_to_members() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$"
            " DECLARE name text; BEGIN FOR name IN SELECT rolname FROM pg_authid WHERE rolcanlogin AND NOT rolsuper"
            " AND pg_has_role(oid, 'rds_replication', 'MEMBER') LOOP EXECUTE format('ALTER ROLE %I REPLICATION', name); END LOOP; END $$")
        view = database.run("SELECT pg_get_viewdef('pg_roles'::regclass)")[0][0]
        hidden, count = re.subn(r"(\w+\.)?rolreplication", r"(\1rolreplication AND NOT pg_has_role(\1oid, 'rds_replication', 'MEMBER')) AS rolreplication",
                                view)
        assert count == 1, view
        database.run(f"SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_roles AS {hidden}")

    def url(self, role):
        return dsn(self.database.name).replace("postgres:millrace-stand", f"{role}:{SECRET}")

    def by_master(self, text):
        with psycopg.connect(self.url(self.master), autocommit=True) as connection:
            connection.execute(text)

    def make_role(self, *variables):
        return subprocess.run(
            ["psql", "-X", "-q", "-d", self.url(self.master), "-v", f"role={self.role}", "-v", f"publication={self.database.publication}",
             "-v", f"password={SECRET}", "-v", "tables=public.orders, shop.items", *(word for one in variables for word in ("-v", one)),
             "-f", os.path.join(ROOT, "scripts", "role.sql")], capture_output=True, text=True, check=False)

    def drop(self):
        run = self.database.run
        run(f"ALTER DATABASE {self.database.name} OWNER TO postgres")
        for role in (self.role, self.master, "rds_superuser", "rds_replication"):
            if run(f"SELECT FROM pg_authid WHERE rolname = '{role}'"):
                run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@pytest.fixture
def service(database):
    made = Service(database)
    yield made
    made.drop()


def test_a_role_without_superuser_and_replication(service, database, millrace, topic):
    service.by_master("CREATE SCHEMA shop; CREATE TABLE orders (id int PRIMARY KEY, v text); CREATE TABLE shop.items (id int PRIMARY KEY, v text);"
                      "INSERT INTO orders SELECT i, 'before' FROM generate_series(1, 500) i; INSERT INTO shop.items VALUES (1, 'before')")
    for refused in ("CREATE PUBLICATION every FOR ALL TABLES", "CREATE ROLE replicates REPLICATION"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            service.by_master(refused)
    assert service.make_role().returncode != 0  # it would give an attribute
    done = service.make_role("replication_role=rds_replication")
    assert done.returncode == 0, done.stderr
    process = millrace(tables=("orders", "shop.items"), snapshot__mode='"initial"')
    process.environment["TEST_URL"] = service.url(service.role)
    expect(check(process), 77, f'"{service.role}" may replicate', "replication connection")
    database.run(GIVE)
    assert database.run(f"SELECT a.rolreplication, r.rolreplication FROM pg_authid a JOIN pg_roles r USING (oid) WHERE a.rolname = '{service.role}'") == [
        (True, False)]
    code, text = check(process)
    assert code == 0 and "ERROR" not in text.upper().split("0 ERRORS")[0], text
    process.start().streaming()
    service.by_master("UPDATE orders SET v = 'after' WHERE id = 7; INSERT INTO shop.items VALUES (2, 'after')")
    orders = topic(database.topic("orders")).take(501)
    assert sorted(record.json["op"] for record in orders).count("r") == 500 and orders[-1].json["after"] == {"id": 7, "v": "after"}
    assert [record.json["op"] for record in topic(database.topic("items", "shop")).take(2)] == ["r", "c"]
    assert copy(process, "orders")["rows"] == 500
    expect(check(process), 0, "is in use by this pipeline")
    assert not process.log("claim_held_up") and process.stop() == 0


def test_a_master_that_left_out_the_membership(service, database, millrace):
    """The attribute can't be given at such a service: the remedy is the membership."""
    service.by_master("CREATE TABLE orders (id int PRIMARY KEY); CREATE SCHEMA shop; CREATE TABLE shop.items (id int PRIMARY KEY)")
    done = service.make_role("replication_role=pg_monitor")
    assert done.returncode == 0, done.stderr
    process = millrace(tables=("orders", "shop.items"))
    process.environment["TEST_URL"] = service.url(service.role)
    expect(check(process), 77, f'"{service.role}" may not replicate', f'GRANT rds_replication TO "{service.role}"')
    service.by_master(f"GRANT rds_replication TO {service.role}")
    database.run(GIVE)
    expect(check(process), 0)
