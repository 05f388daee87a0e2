"""Passwords that a program prints, for each connection: one that expires in the middle of a stream, and what a program may do wrong."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from psycopg import sql

from kit import BINARY, check, eventually, expect

SECRET = "canary \\'\"$HOME secret"


class Login:
    """A role of its own whose password is in a file, and a program that prints it and notes that it was asked."""

    def __init__(self, database, folder, name="r"):
        self.database, self.folder, self.role = database, folder, f"{database.name}_{name}"
        self.asked, self.secret, self.program = (str(folder / f"{name}-{what}") for what in ("asked", "secret", "program"))
        database.run(f"CREATE ROLE {self.role} LOGIN SUPERUSER REPLICATION")
        self.change(SECRET)
        self.write('cat "$1"')

    def write(self, body):
        new = f"{self.program}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$@" >> {self.asked}\n{body}\n')
        os.chmod(new, 0o755)
        os.rename(new, self.program)

    def change(self, password, server=True, program=True):
        if program:
            with open(self.secret, "w", encoding="utf-8") as file:
                file.write(password + "\n")
        if server:
            self.database.run(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(self.role), password))

    def times(self):
        if not os.path.exists(self.asked):
            return 0
        with open(self.asked, encoding="utf-8") as file:
            return len(file.readlines())

    def words(self):
        return json.dumps([self.program, self.secret, "; echo $HOME *"])

    def connection(self):
        return f"host=127.0.0.1 port={os.environ['PGPORT']} user={self.role} dbname={self.database.name}"


@pytest.fixture
def login(database, tmp_path):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    made = Login(database, tmp_path)
    yield made
    database.run(f"DROP OWNED BY {made.role}")
    database.run(f"DROP ROLE {made.role}")


@pytest.fixture
def asking(millrace, login):
    """A millrace that logs in so."""
    def make(**options):
        process = millrace(source__postgres__password=login.words(), **options)
        process.environment["TEST_URL"] = login.connection()
        return process
    return make


def said(process):
    return "".join(process.lines)


def write_secret(path, text, mode=0o600):
    """In one step, as Kubernetes does it."""
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(new, mode)
    os.rename(new, path)


@pytest.mark.parametrize("watch", ["100ms", None])
def test_a_file_that_changes(database, login, millrace, topic, tmp_path, watch):
    """Passwords of the stream and of HTTP: the next login has the new one; with reload.watch it is said before."""
    (tmp_path / "secrets").mkdir()
    files = [str(tmp_path / "secrets" / name) for name in ("postgres", "http")]
    for path in files:
        write_secret(path, SECRET + "\n")
    process = millrace(source__postgres__connection=json.dumps(login.connection()),
                       source__postgres__password=json.dumps(f"file:{files[0]}"), http__username='"u"', http__password=json.dumps(f"file:{files[1]}"),
                       reload__watch=watch and json.dumps(watch)).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    assert reader.take(1) and process.get("/status", user=f"u:{SECRET}").status == 200
    for path in files:
        write_secret(path, "canary two\n")
    login.change("canary two", program=False)
    if watch:
        process.wait_for("secret_changed", times=2)
        assert {line["secret"] for line in process.log("secret_changed")} == {"PostgreSQL password", "HTTP password"}
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [login.role])
    database.run("INSERT INTO t VALUES (2)")
    assert reader.take(1)[0].json["after"]["id"] == 2
    assert (process.get("/status", user=f"u:{SECRET}").status, process.get("/status", user="u:canary two").status) == (401, 200)
    assert len(process.log("secret_changed")) == 2
    process.stop()
    assert "canary" not in said(process) and "password authentication failed" not in said(process)


@pytest.mark.parametrize("file_first", [True, False])
def test_a_password_file_that_is_late(database, login, millrace, topic, tmp_path, file_first):
    """Whichever is changed first: refused logins are tried again with what the file holds then. A reload says that it found a new one."""
    path = str(tmp_path / "password")
    write_secret(path, SECRET)
    process = millrace(source__postgres__connection=json.dumps(login.connection()),
                       source__postgres__password=json.dumps(f"file:{path}"), metrics__interval='"0s"').start().streaming()
    if file_first:
        write_secret(path, "canary two")
        done = subprocess.run([BINARY, "reload", "--config", process.path, "--address", process.address()], env=process.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 and "applied" in done.stdout and "PostgreSQL password" in done.stdout, done.stdout + done.stderr
    login.change("canary two", program=False)
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [login.role])
    if not file_first:
        eventually(lambda: "password authentication failed" in said(process), what="a refusal")
        assert process.log("source_lost")[-1]["see"] == "millrace help E-password"
        write_secret(path, "canary two")
    database.run("INSERT INTO t VALUES (1)")
    assert topic(database.topic("t")).take(1)
    assert process.stop() == 0 and "canary" not in said(process)


def test_a_file_that_is_no_secret_any_more(database, login, millrace, topic, tmp_path):
    """Away, empty, or open to others: the one before is used on, and that is said once for each."""
    (tmp_path / "secrets").mkdir()
    path = str(tmp_path / "secrets" / "postgres")
    write_secret(path, SECRET)
    process = millrace(source__postgres__connection=json.dumps(login.connection()),
                       source__postgres__password=json.dumps(f"file:{path}"), reload__watch='"100ms"').start().streaming()
    for number, (text, mode, fault) in enumerate(((None, 0, "can't be read"), ("", 0o600, "is empty"), ("x", 0o644, "chmod 600"), ("x\0y", 0o600, "zero byte")), 1):
        if text is None:
            os.remove(path)
        else:
            write_secret(path, text, mode)
        assert fault in process.wait_for("secret_unreadable", times=number)["message"]
        write_secret(path, SECRET)
        time.sleep(0.4)  # looks that find nothing to say
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [login.role])
    database.run("INSERT INTO t VALUES (1)")
    assert topic(database.topic("t")).take(1)
    assert process.stop() == 0 and process.log("secret_changed") == []


def test_each_connection_asks(database, asking, login, topic):
    """check, copies, the stream, looks at the slot and verify; arguments come as they stand there, and no shell sees them."""
    database.run("INSERT INTO t SELECT n, 'copied' FROM generate_series(1, 100) n")
    process = asking(snapshot__mode='"initial"', metrics__interval='"200ms"')
    text = expect(check(process), 0)
    before = login.times()
    assert before >= 2
    process.start().streaming()
    eventually(lambda: login.times() >= before + 6, what="several connections")
    database.run("INSERT INTO t VALUES (101, 'streamed')")
    assert len(topic(database.topic("t")).take(101)) == 101
    assert process.log("started")[0]["confined_syscalls"] in ("yes", "not possible here")
    done = subprocess.run([BINARY, "verify", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert process.stop() == 0
    assert "canary" not in said(process) + text + done.stdout + done.stderr
    with open(login.asked, encoding="utf-8") as file:
        assert set(file) == {f"{login.secret} ; echo $HOME *\n"}


@pytest.mark.parametrize("server_first", [False, True])
def test_a_password_that_expires_in_the_middle(database, asking, login, topic, server_first):
    """The server ends the connection and takes the old password no more. Where the program knows the new one only later, millrace
    tries until then."""
    process = asking().start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    login.change("canary two", program=not server_first)
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [login.role])
    database.run("INSERT INTO t VALUES (2)")
    if server_first:
        eventually(lambda: "password authentication failed" in said(process), what="a refusal")
        login.change("canary two", server=False)
    assert [record.json["after"]["id"] for record in topic(database.topic("t")).take(2)] == [1, 2]
    assert process.stop() == 0
    assert len(process.log("source_connected")) == 2 and "canary" not in said(process)


FAULTS = {
    "fails": ("echo canary; echo canary >&2; exit 3", 69, "ended with exit code 3; run it as millrace's user to see why"),
    "is killed": ("kill -9 $$", 69, "was ended by signal 9"),
    "hangs": ("echo canary; sleep 600", 69, "did not end within 10 s and was killed"),
    "prints nothing": (":", 77, "printed nothing; it must print one line"),
    "prints two lines": ("echo canary; echo canary", 77, "printed more than one line"),
    "prints too much": ("yes canary", 77, "printed more than 16384 bytes"),
    "is no program": (None, 77, "can't be started: Exec format error; name a program"),
    "prints another": ("echo canary wrong", 77, "password authentication failed"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_program_at_fault(database, asking, login, fault):
    body, code, text = FAULTS[fault]
    if body is None:
        with open(login.program, "w", encoding="ascii") as file:
            file.write("\0")
    else:
        login.write(body)
    process = asking()
    got, output = check(process)
    assert got == code and text in output and "canary" not in output, output
    assert ("see: millrace help E-secret-program" in output) == (fault != "prints another"), output
    if code == 77:
        expect(process.run_to_end(), code, text, without="canary")
        return
    process.start()
    eventually(lambda: text in said(process), what="the warning")
    login.write('cat "$1"')
    process.streaming()
    assert process.stop() == 0 and "canary" not in said(process)


@pytest.mark.parametrize("fault", ["fails", "hangs", "prints nothing", "prints two lines", "is gone"])
def test_a_program_at_fault_later(database, asking, login, topic, fault):
    """Once the stream has run, millrace tries again whatever it was."""
    process = asking().start().streaming()
    if fault == "is gone":
        os.remove(login.program)
    else:
        login.write(FAULTS[fault][0])
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [login.role])
    eventually(lambda: "source.postgres.password" in said(process), what="the warning")
    login.write('cat "$1"')
    database.run("INSERT INTO t VALUES (1)")
    assert topic(database.topic("t")).take(1)
    assert process.stop() == 0


def test_a_hanging_program_holds_up_no_stop(asking, login):
    login.write("sleep 600")
    process = asking().start()
    eventually(login.times, what="the program")
    begun = time.monotonic()
    process.stop()
    assert time.monotonic() - begun < 8


def helper_of(process):
    found = [child for child in psutil.Process(process.process.pid).children() if child.name() == "mr-programs"]
    return found[0] if found else None


def test_without_its_helper(database, asking, login):
    """What ran the programs is gone, and millrace can start no other: a restart is what helps."""
    process = asking().start().streaming()
    helper_of(process).kill()
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [login.role])
    assert process.ended(60) == 71 and "the helper process is gone; start millrace again" in said(process)
    process.start().streaming()
    assert process.stop() == 0


def test_the_helper_and_the_program_end_with_millrace(asking, login):
    login.write("sleep 600")
    process = asking().start()
    eventually(login.times, what="the program")
    left = eventually(lambda: [child for child in psutil.Process(process.process.pid).children(recursive=True)
                               if child.name() == "sleep"] and psutil.Process(process.process.pid).children(recursive=True))
    process.kill()
    eventually(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in left), 20,
               "the end of all")


def test_no_helper_without_a_program(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    assert psutil.Process(process.process.pid).children() == []


def test_copies_with_a_password_of_their_own(database, asking, login, tmp_path, topic):
    copier = Login(database, tmp_path, "copier")
    database.run("INSERT INTO t VALUES (1)")
    process = asking(snapshot__mode='"initial"', snapshot__connection=json.dumps(copier.connection()),
                     snapshot__password=copier.words()).start().streaming()
    assert topic(database.topic("t")).take(1)
    assert copier.times() >= 1
    assert process.stop() == 0
    database.run(f"DROP OWNED BY {copier.role}")
    database.run(f"DROP ROLE {copier.role}")


def test_a_reload_asks_the_program_of_the_start(database, asking, login, topic):
    """A new table is looked up on a connection of its own; another program needs a restart."""
    database.run("CREATE TABLE u (id int PRIMARY KEY)")
    process = asking(publication__alter="true").start().streaming()
    before = login.times()
    process.tables = ("t", "u")
    process.configure(publication__alter="true", source__postgres__password='["/bin/false"]')
    process.process.send_signal(signal.SIGHUP)
    line = process.wait_for("reloaded")
    assert line["needs_restart"] == "source.postgres.password" and line["tables_added"] == "public.u", line
    assert login.times() > before
    database.run("INSERT INTO u VALUES (1)")
    assert topic(database.topic("u")).take(1)
    assert process.stop() == 0
