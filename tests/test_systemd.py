"""The units of docs/deploy on a real systemd (booted.py), with real servers: instances and their target, reload, stop, a crash, exit codes, credentials,
the journal, what the sandbox leaves, and the scripts of the package."""

import os
import re

import pytest

from booted import Booted
from kit import BOOTSTRAP, Database, cannot_try, dsn, eventually
from prometheus import ROOT, free_port
from test_docs import read

PERSON = (10, 64, 65, 77, 78)  # what a restart does not mend: docs/runbook.md


@pytest.fixture(scope="module")
def system():
    if os.geteuid() != 0:
        cannot_try("only root may boot a systemd")
    try:
        booted = Booted()
    except AssertionError as error:
        if re.search("not permitted|denied", str(error)):
            cannot_try(error)
        raise
    yield booted
    booted.end()


def url(database):
    return re.fullmatch(r"\w+://(?P<user>[^:]+):(?P<password>[^@]+)@(?P<host>[^:]+):(?P<port>\d+)/.*", dsn(database))


def configure(system, name, database, **options):
    """/etc/millrace/NAME.toml, and its secret, as docs/fleet.md says."""
    at = url(database.name)
    values = {"tables": '["public.t"]', "topic_prefix": f'"{database.prefix}"', "log.format": '"json"', "sink.kafka.brokers": f'["{BOOTSTRAP}"]',
              "source.postgres.connection": f'"host={at["host"]} port={at["port"]} user={at["user"]} dbname={database.name}"',
              "source.postgres.password": f'"file:/run/credentials/millrace@{name}.service/secrets_postgres"',
              "source.postgres.slot_name": f'"{database.slot}"', "source.postgres.publication_name": f'"{database.publication}"',
              "http.address": f'"unix:/run/millrace/{name}/http.sock"'}
    values.update({key.replace("__", "."): value for key, value in options.items()})
    system.write(f"/etc/millrace/{name}.toml", "".join(f"{key} = {value}\n" for key, value in values.items()))
    system.write(f"/etc/millrace/secrets/{name}/postgres", at["password"], 0o600)


@pytest.fixture
def two(system):
    """Databases of instances a and b, which are set up and not started."""
    databases = {}
    for name in "ab":
        databases[name] = Database()
        databases[name].run("CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
        configure(system, name, databases[name])
    yield databases
    system.systemctl("stop", "millrace@*")
    system.systemctl("disable", "millrace@.service")
    system.systemctl("reset-failed")
    for database in databases.values():
        database.drop()


def streams(database):
    eventually(lambda: database.is_streamed(database.slot), 60, "the stream")


def test_instances_of_one_target(system, two, topic):
    """Two are enabled and started; their rows arrive; the target stops and starts both; a stop is in order, and nothing comes twice."""
    assert system.systemctl("is-enabled", "millrace@a", codes=(1,)) == "disabled"
    system.systemctl("enable", "--now", "millrace@a", "millrace@b")
    for name, database in two.items():
        streams(database)
        database.run("INSERT INTO t (v) VALUES ('first')")
        reader = topic(database.topic("t"))
        assert reader.take(1)[0].json["after"]["v"] == "first"
        said = system.run("millrace", "status", "--config", f"/etc/millrace/{name}.toml").stdout
        assert "streaming" in said, said
        assert system.shown(f"millrace@{name}", "Slice") == "millrace.slice"
    assert system.systemctl("is-enabled", "millrace@a") == "enabled"
    # Its log is in the journal under the unit, and no secret is.
    a = "millrace@a.service"
    assert system.events(a, "source_connected") and system.events(a, "http_listening")
    everything = system.run("journalctl", "--no-pager", "-o", "json").stdout
    assert url("x")["password"] not in re.sub(r'"[A-Z_]+":"[^"]*(?:user|dbname)=[^"]*"', "", everything) or len(url("x")["password"]) < 8
    # A reload, by the unit's ExecReload, changes what it may.
    first = system.shown(a, "MainPID")
    configure(system, "a", two["a"], log__level='"debug"')
    system.systemctl("reload", a)
    eventually(lambda: system.events(a, "reloaded"), 20, "the reload")
    assert system.shown(a, "MainPID") == first
    system.systemctl("stop", "millrace.target")
    for name in two:
        assert system.shown(f"millrace@{name}", "ActiveState") == "inactive"
        assert (system.shown(f"millrace@{name}", "ExecMainStatus"), system.shown(f"millrace@{name}", "Result")) == ("0", "success")
    for database in two.values():
        database.run("INSERT INTO t (v) VALUES ('second')")
    system.systemctl("start", "millrace.target")
    for database in two.values():
        streams(database)
        assert [record.json["after"]["v"] for record in topic(database.topic("t")).take(2)] == ["first", "second"]
    second = system.shown(a, "MainPID")
    system.systemctl("try-restart", "millrace@*")
    streams(two["a"])
    assert system.shown(a, "MainPID") not in (first, second)


def test_a_crash(system, two):
    """A process that is killed comes back, and streams."""
    system.systemctl("start", "millrace@a")
    streams(two["a"])
    system.systemctl("kill", "-s", "KILL", "millrace@a")
    system.wait_for("millrace@a", NRestarts="1", ActiveState="active")
    streams(two["a"])
    # One that a deadlock would have stopped (a frozen one) ends by SIGKILL at TimeoutStopSec; so long nobody waits here.
    system.systemctl("kill", "-s", "ABRT", "millrace@a")
    system.wait_for("millrace@a", NRestarts="2", ActiveState="active")
    streams(two["a"])


def test_a_transaction_is_skipped_as_the_runbook_says(system, two):
    """Its block, for an instance, with a drop-in of the administrator's own; and taken out again."""
    block = re.search(r"With systemd, as root.*?```sh\n(.*?)```", read("docs/runbook.md"), re.DOTALL).group(1)
    for was, now in (("millrace.service.d", "millrace@a.service.d"), ("/etc/millrace/config.toml", "/etc/millrace/a.toml"), ("restart millrace\n", "restart millrace@a\n"),
                     ("16/B374D848", "0/1")):
        assert was in block
        block = block.replace(was, now)
    now, later = block.split("# later\n")
    own = "/etc/systemd/system/millrace@a.service.d/override.conf"
    system.write(own, "[Service]\nMemoryMax=1G\n")
    try:
        system.run("sh", "-euc", now)
        streams(two["a"])
        assert "--skip-commit-lsn 0/1" in system.shown("millrace@a", "ExecStart") and system.shown("millrace@a", "MemoryMax") == str(1 << 30)
        two["a"].run("INSERT INTO t (v) VALUES ('x')")
        eventually(lambda: system.events("millrace@a", "skip_ignored"), 20, "the skip")
        system.run("sh", "-euc", later)
        assert "skip" not in system.shown("millrace@a", "ExecStart")
    finally:
        system.run("rm", "-r", os.path.dirname(own))
        system.systemctl("daemon-reload")


def test_tables_are_proved_beside_it(system, two):
    """By the secrets of the instance, at the same paths."""
    system.systemctl("start", "millrace@a")
    streams(two["a"])
    try:
        system.systemctl("start", "millrace-verify@a")
        figure = f'millrace_verify_proved_lsn{{slot="{two["a"].slot}",table="public.t"}}'
        path = "/var/lib/millrace-verify-a/millrace.prom"
        eventually(lambda: system.run("grep", "-F", figure, path, codes=None).returncode == 0, 60, "a proof")
        assert float(system.run("grep", "-F", figure, path).stdout.split()[-1]) > 0
        assert system.run("grep", "-F", "millrace_verify_void{", path, codes=(1,)).stdout == ""
    finally:
        system.systemctl("stop", "millrace-verify@a")


@pytest.mark.parametrize("unit", ["millrace.service", "millrace@code.service"])
def test_exit_codes(system, unit):
    """What a restart does not mend is left alone; after others it starts again."""
    system.write("/etc/millrace/secrets/code/x", "x", 0o600)
    system.write("/etc/millrace/postgres.password", "x", 0o600)
    try:
        for code in (*PERSON, 0, 3, 69, 70, 71):
            system.write(f"/run/systemd/system/{unit}.d/code.conf",
                         f"[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit {code}'\nNoExecPaths=\nRestartSec=300ms\n")
            system.systemctl("daemon-reload")
            system.systemctl("reset-failed", unit, codes=None)  # one that is not loaded has none
            system.systemctl("start", unit, codes=None)  # it may have ended before that is told
            if code in PERSON:
                system.wait_for(unit, 30, ActiveState="failed", Result="exit-code", ExecMainStatus=str(code), NRestarts="0")
            else:
                eventually(lambda: int(system.shown(unit, "NRestarts")) >= 1, 30, f"a restart after {code}")
                system.systemctl("stop", unit)
    finally:
        system.run("rm", "-r", f"/run/systemd/system/{unit}.d")
        system.systemctl("daemon-reload")
        system.systemctl("reset-failed", unit, codes=None)


@pytest.mark.parametrize("code", [77, 78])
def test_what_needs_a_person_is_not_started_again(system, two, code):
    """A role that is not there, and an option that is not there."""
    at = url("x")
    wrong = {77: {"source__postgres__connection": f'"host={at["host"]} port={at["port"]} user=nobody_here dbname={two["a"].name}"'}, 78: {"tabels": "[]"}}
    configure(system, "a", two["a"], **wrong[code])
    system.systemctl("start", "millrace@a", codes=None)
    system.wait_for("millrace@a", ActiveState="failed", ExecMainStatus=str(code), NRestarts="0")
    configure(system, "a", two["a"])
    system.systemctl("reset-failed", "millrace@a")
    system.systemctl("start", "millrace@a")
    streams(two["a"])


def of_process(system, unit):
    """Lines of its /proc/PID/status, seen from outside."""
    with open(f"/proc/{system.first}/root/proc/{system.shown(unit, 'MainPID')}/status", encoding="ascii") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def test_the_sandbox(system, two):
    """What the unit promises holds for the process, and millrace's own sandbox stands inside it."""
    system.systemctl("start", "millrace@a")
    streams(two["a"])
    seen = of_process(system, "millrace@a")
    assert {seen[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
    assert seen["NoNewPrivs"] == "1" and seen["Seccomp"] == "2" and int(seen["Uid"].split()[0]) > 60000
    pid = system.shown("millrace@a", "MainPID")
    mounts = system.run("cat", f"/proc/{pid}/mountinfo").stdout.splitlines()
    options = {line.split()[4]: line.split()[5].split(",") for line in mounts}
    assert "ro" in options["/"] and "noexec" in options["/"] and "rw" in options["/var/lib/private/millrace-a"]
    score = system.run("systemd-analyze", "security", "--no-pager", "millrace@a.service").stdout
    assert float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", score)[1]) <= 1.5
    verified = system.run("systemd-analyze", "verify", "--man=no", "millrace@a.service", "millrace.service")
    assert "millrace" not in verified.stderr, verified.stderr
    group = f"/proc/{system.first}/root/sys/fs/cgroup{system.shown('millrace@a', 'ControlGroup')}"
    if os.path.exists(f"{group}/memory.max"):
        with open(f"{group}/memory.max", encoding="ascii") as file:
            assert file.read().strip() == str(512 << 20)


def test_the_unit_of_one(system, two):
    """millrace.service of the package, with its configuration's places; the package's scripts restart it, and stop it."""
    database = two["a"]
    configure(system, "config", database, source__postgres__password='"file:/run/credentials/millrace.service/postgres"', http__address='"127.0.0.1:0"')
    system.write("/etc/millrace/postgres.password", url("x")["password"], 0o600)
    system.systemctl("enable", "--now", "millrace")
    streams(database)
    first = system.shown("millrace", "MainPID")
    system.systemctl("reload", "millrace")
    eventually(lambda: system.events("millrace.service", "reloaded"), 20, "the reload")
    for script in ("postinst", "prerm"):
        with open(os.path.join(ROOT, "packaging", script), encoding="utf-8") as file:
            system.write(f"/tmp/{script}", file.read())
    system.systemctl("start", "millrace@b")
    streams(two["b"])
    system.run("sh", "/tmp/postinst", "configure", "0.1.0")
    streams(database)
    assert system.shown("millrace", "MainPID") not in ("0", first)
    assert system.systemctl("is-active", "millrace@b") == "active"
    system.run("sh", "/tmp/prerm", "remove")
    for unit in ("millrace", "millrace@b"):
        assert (system.shown(unit, "ActiveState"), system.shown(unit, "Result")) == ("inactive", "success")
    assert system.systemctl("is-enabled", "millrace", codes=(1,)) == "disabled"


@pytest.mark.parametrize("unit, name", [("millrace", "config"), ("millrace@a", "a")])
def test_commands_while_the_unit_is_down(system, two, unit, name):
    """Its credentials are gone, and each command's error says how it gets them; so a lost slot is recovered, and the unit streams again."""
    database, path = two["a"], f"/etc/millrace/{name}.toml"
    if name == "config":
        configure(system, name, database, source__postgres__password='"file:/run/credentials/millrace.service/postgres"',
                  http__address=f'":{free_port()}"')
        system.write("/etc/millrace/postgres.password", url("x")["password"], 0o600)
    system.systemctl("start", unit)
    streams(database)
    database.run("INSERT INTO t (v) VALUES ('kept'), ('deleted')")
    database.all_confirmed()
    system.systemctl("stop", unit)
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.run("DELETE FROM t WHERE v = 'deleted'; INSERT INTO t (v) VALUES ('missed')")
    system.systemctl("start", unit, codes=None)
    system.wait_for(unit, ActiveState="failed", ExecMainStatus="10")

    refused = system.run("millrace", "recover", "--config", path, codes=(78,)).stderr
    lead = re.search(r"put before the command sudo (systemd-run .*)", refused)[1]
    assert "see millrace help E-credentials" in refused
    page = " ".join(read("docs/runbook.md").replace("\\\n", "").split()).replace("secrets/shop", "secrets/a").replace("millrace/shop", "millrace/a")
    assert f"sudo {lead} millrace recover --config " in page

    def run(command, codes=(0,)):
        return system.run("sh", "-c", f"{lead} millrace {command} --config {path}", codes=codes)
    for command in ("check", "verify", "move"):
        done = run(command, codes=None)
        assert done.returncode != 78, (command, done)
    said = run("recover", codes=(10,)).stdout
    assert "Nothing was changed." in said and "E-slot-gone" in said, said
    said = run("recover --choose differing --yes").stdout
    assert "Done, and kept in the state topic" in said, said
    system.systemctl("reset-failed", unit)
    system.systemctl("start", unit)
    streams(database)
    assert "public.t: equal" in system.run("millrace", "verify", "--config", path).stdout
