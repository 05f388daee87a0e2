"""PgBouncer between millrace and PostgreSQL: it passes replication connections, and leaves out what millrace asks of a connection, so it is
recognized and refused."""

import contextlib
import os
import subprocess

import psycopg
import pytest

from faults.servers import end_with_parent, free_port, port_open
from kit import check, dsn, eventually, expect

pytestmark = pytest.mark.skipif("MILLRACE_TEST_PGBOUNCER" not in os.environ, reason="MILLRACE_TEST_PGBOUNCER is not set (tests/run.sh)")
IGNORING = {"ignore_startup_parameters": "extra_float_digits, options"}


def program():
    folder = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "pgbouncer")
    libraries = os.path.join(folder, "usr/lib/x86_64-linux-gnu")
    return [os.path.join(libraries, "ld-linux-x86-64.so.2"), "--library-path", libraries, os.path.join(folder, "usr/sbin/pgbouncer")]


@contextlib.contextmanager
def pgbouncer(folder, **settings):
    """One with that configuration, before the stand's server; its port."""
    port = free_port()
    values = {"listen_addr": "127.0.0.1", "listen_port": port, "auth_type": "trust", "auth_file": folder / "users", "unix_socket_dir": "",
              "pool_mode": "session", **settings}
    (folder / "users").write_text('"postgres" ""\n', encoding="ascii")
    (folder / "pgbouncer.ini").write_text(f"[databases]\n* = host=127.0.0.1 port={os.environ['PGPORT']}\n[pgbouncer]\n"
                                          + "".join(f"{name} = {value}\n" for name, value in values.items()), encoding="ascii")
    os.chmod(folder, 0o755)
    for name in ("users", "pgbouncer.ini"):
        os.chmod(folder / name, 0o644)
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    with open(folder / "pgbouncer.log", "wb") as log, \
            subprocess.Popen([*program(), str(folder / "pgbouncer.ini")], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                             preexec_fn=end_with_parent, **user) as process:
        try:
            eventually(lambda: port_open(port), what="PgBouncer")
            yield port
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path_factory):
    """Which its user can reach."""
    made = tmp_path_factory.mktemp("pgbouncer")
    for above in (made.parent, made.parent.parent):
        os.chmod(above, 0o755)
    return made


def through(process, database, port):
    process.environment["TEST_URL"] = dsn(database.name, port)
    return process


def test_as_it_is_installed(database, millrace, folder):
    """It refuses settings that it does not track; that would be tried again for ever."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    with pgbouncer(folder) as port:
        process = through(millrace(), database, port)
        for code, text in (check(process), process.run_to_end()):
            assert code == 78 and "unsupported startup parameter" in text and "connect to PostgreSQL itself" in text, text
        assert "millrace help E-pooler" in text, text


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_one_that_leaves_out_settings(database, millrace, folder, mode):
    """Rows would be written by other settings: nothing is made."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    with pgbouncer(folder, pool_mode=mode, **IGNORING) as port:
        process = through(millrace(), database, port)
        for code, text in (check(process), process.run_to_end()):
            assert code == 78 and "goes through a pooler that leaves out its settings" in text, text
        code, text = check(process)
        assert "goes through a pooler or a proxy: the login named another process" in text, text
        assert not database.run("SELECT FROM pg_replication_slots WHERE slot_name = %s", [database.slot])
    process.environment["TEST_URL"] = dsn(database.name)
    expect(check(process), 0, without="pooler")


def test_what_the_page_says_of_it(database, folder):
    """A replication connection has one of the server's for itself: an advisory lock lasts, server_lifetime ends nothing, query_timeout does."""
    form = {"dbname": database.name, "user": "postgres", "host": "127.0.0.1", "autocommit": True}
    with pgbouncer(folder, server_lifetime=1, server_idle_timeout=1, **IGNORING) as port:
        with psycopg.connect(port=port, replication="database", cursor_factory=psycopg.ClientCursor, **form) as stream:
            assert stream.execute("IDENTIFY_SYSTEM").fetchone()[3] == database.name
            pid = stream.execute("SELECT pg_backend_pid(), pg_advisory_lock(4711)").fetchone()[0]
            assert stream.info.backend_pid != pid
            locked = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND locktype = 'advisory')"
            stream.execute("SELECT pg_sleep(4)")  # beyond both times
            assert database.run(locked, [pid])[0][0]
        eventually(lambda: not database.run(locked, [pid])[0][0], 30, "the end of the server's connection")
    with pgbouncer(folder, query_timeout=1, **IGNORING) as port, \
            psycopg.connect(port=port, replication="database", cursor_factory=psycopg.ClientCursor, **form) as stream:
        with pytest.raises(psycopg.OperationalError, match="query timeout"):
            stream.execute("SELECT pg_sleep(30)")
