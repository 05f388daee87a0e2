"""Pipelines of one definition on three hosts, as docs/fleet.md says for systemd: each host runs all of them, one of each streams. A host is killed."""

import os
import re
import signal
import subprocess
import threading
import time

import pytest
from confluent_kafka.admin import AdminClient

from kit import BINARY, BOOTSTRAP, READER, Database, dsn, eventually, read_whole

HOSTS = 3
PIPELINES = 6


class Pipeline(Database):
    def __init__(self):
        super().__init__()
        self.rows = 0
        self.run("CREATE TABLE t (id bigint PRIMARY KEY)")
        self.make_topic("t")

    def write(self, count):
        self.run("INSERT INTO t SELECT generate_series(%s::bigint, %s::bigint)", [self.rows + 1, self.rows + count])
        self.rows += count


@pytest.fixture
def pipelines():
    made = {pipeline.name: pipeline for pipeline in (Pipeline() for _ in range(PIPELINES))}
    yield made
    for pipeline in made.values():
        pipeline.drop()


def rendered(folder, pipelines):
    """/etc/millrace of each host: one folder, made by `millrace fleet apply`, which says what systemd is to start."""
    url = re.fullmatch(r"\w+://(?P<user>[^:]+):(?P<password>[^@]+)@(?P<host>[^:]+):(?P<port>\d+)/x", dsn("x"))
    secret = folder / "postgres"
    secret.write_text(url["password"])
    secret.chmod(0o600)
    (folder / "fleet.toml").write_text(
        '[fleet]\nname = "hosts"\n[template]\ntopic_prefix = "{name}"\ntables = ["public.t"]\nhttp.address = ""\n'
        f'source.postgres.connection = "host={url["host"]} port={url["port"]} user={url["user"]} dbname={{name}}"\n'
        f'source.postgres.password = "file:{secret}"\nsource.postgres.slot_name = "{{name}}"\n'
        f'sink.kafka.brokers = ["{BOOTSTRAP}"]\nsink.kafka.delivery = "exactly-once"\nsink.kafka.state_topic = "__state.{{name}}"\n'
        + "".join(f"[pipeline.{name}]\n" for name in pipelines))
    done = subprocess.run([BINARY, "fleet", "apply", str(folder / "etc"), "--config", str(folder / "fleet.toml"), "--check"],
                          capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [f"systemctl enable --now millrace@{name}" for name in sorted(pipelines)], done.stderr
    return folder / "etc"


class Host:
    """Its instances; each pipeline's is started once the one before stands or streams, as `systemctl start` waits."""

    def __init__(self, folder, etc, number):
        self.folder, self.etc, self.number, self.processes = folder, etc, number, {}

    def start(self, name):
        with open(self.folder / f"{name}.{self.number}.log", "wb") as log:
            self.processes[name] = subprocess.Popen([BINARY, "--config", str(self.etc / f"{name}.toml")], stdout=subprocess.DEVNULL, stderr=log)

    def end(self, number):
        for process in self.processes.values():
            process.send_signal(number)
        for process in self.processes.values():
            process.wait(60)


def streamed(pipelines):
    """Names of those whose slot is read."""
    one = next(iter(pipelines.values()))
    rows = one.run("SELECT slot_name FROM pg_replication_slots WHERE active AND slot_name = ANY(%s)", [list(pipelines)], database="postgres")
    return {row[0] for row in rows}


def arrived(pipelines):
    """{pipeline: ids in its topic, in order}; committed ones."""
    topics = read_whole(AdminClient({**READER, "bootstrap.servers": BOOTSTRAP}), [f"{name}.public.t" for name in pipelines])
    return {name: [record.json["after"]["id"] for record in topics[f"{name}.public.t"]] for name in pipelines}


def test_a_host_is_killed(pipelines, tmp_path):
    """Its third of the pipelines streams elsewhere; each row of all is in its topic, once."""
    os.chmod(tmp_path, 0o755)
    etc = rendered(tmp_path, pipelines)
    hosts = [Host(tmp_path, etc, number) for number in range(HOSTS)]
    ended = threading.Event()

    def write():
        while not ended.wait(0.02):
            for pipeline in pipelines.values():
                pipeline.write(3)
    writer = threading.Thread(target=write)
    try:
        for number, name in enumerate(pipelines):
            hosts[number % HOSTS].start(name)
        eventually(lambda: streamed(pipelines) == set(pipelines), what="a stream of each pipeline, on its first host")
        for host in hosts:
            for name in pipelines:
                if name not in host.processes:
                    host.start(name)
        writer.start()
        eventually(lambda: all(arrived(pipelines).values()), what="rows of each pipeline")
        lost = set(list(pipelines)[::HOSTS])
        begin = time.monotonic()
        hosts[0].end(signal.SIGKILL)
        before = {name: pipelines[name].rows for name in lost}
        eventually(lambda: all(arrived(pipelines)[name][-1] > before[name] for name in lost), what="rows written after the host was killed")
        print(f"{len(lost)} pipelines go on elsewhere {time.monotonic() - begin:.1f} s after their host was killed")
        ended.set()
        writer.join()
        eventually(lambda: all(len(ids) >= pipelines[name].rows for name, ids in arrived(pipelines).items()), what="all rows")
        for name, ids in arrived(pipelines).items():
            assert ids == list(range(1, pipelines[name].rows + 1)), f"{name}: {len(ids)} of {pipelines[name].rows}"
    finally:
        ended.set()
        for host in hosts:
            host.end(signal.SIGKILL)
