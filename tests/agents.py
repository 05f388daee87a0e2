"""A fleet of real pipelines: databases with writers, agents on made-up hosts, and whether each row arrived, once."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid

import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kit import BINARY, BOOTSTRAP, READER, connect, dsn, eventually, http_get

SESSION_S = 4
PARTITIONS = 64  # of the definitions: one of them is not for pipelines


def read_topic(bootstrap, topics):
    """(topic, partition, key, value) of all committed records of topics, {name: number of partitions}."""
    left = {(topic, partition) for topic, count in topics.items() for partition in range(count)}
    consumer = Consumer({**READER, "bootstrap.servers": bootstrap, "group.id": "agents", "enable.partition.eof": True, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(*place, 0) for place in left])
    records, deadline = [], time.monotonic() + 60
    while left:
        assert time.monotonic() < deadline, f"{left} have no end"
        for message in consumer.consume(5000, timeout=0.2):
            place = message.topic(), message.partition()
            if message.error() is None:
                records.append((*place, message.key() and message.key().decode(), message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:  # pylint: disable=protected-access
                left.discard(place)
    consumer.close()
    return records


class Agent:
    """`millrace fleet run` of one host: a folder and a file of its own. `inside`: what its command is prefixed with; `node`: its name, if it is
    another than the host's."""

    def __init__(self, fleet, host, inside=(), node=None, limits=""):
        self.fleet, self.node, self.inside = fleet, node or host, list(inside)
        self.folder = os.path.join(fleet.folder, host)
        self.path = self.folder + ".toml"
        self.process, self.lines = None, []
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(f'[fleet]\nname = "{fleet.name}"\nsession_timeout = "{fleet.session_s}s"\nfolder = "{self.folder}"\n'
                       f'sink.kafka.brokers = ["{fleet.inner}"]\nhttp.address = "127.0.0.1:0"\nlog.format = "json"\n{limits}')

    def start(self):
        self.process = subprocess.Popen([*self.inside, BINARY, "fleet", "run", "--node", self.node, "--config", self.path],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.lines = []
        threading.Thread(target=self._collect, args=(self.process,), daemon=True).start()
        return self

    def _collect(self, process):
        for line in process.stderr:
            self.lines.append(line)

    def log(self, event, pipeline=None):
        """Records of that event so far; of a pipeline, those that name it, its own process' too."""
        found = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [one for one in found if one["event"] == event and pipeline in (None, one.get("pipeline"))]

    def wait_for(self, event, limit_s=60, times=1, pipeline=None):
        eventually(lambda: len(self.log(event, pipeline)) >= times, limit_s, f"log event {event} of {self.node}")
        return self.log(event, pipeline)[-1]

    def get(self, path):
        """From its own server, not a pipeline's."""
        own = eventually(lambda: [said for said in self.log("http_listening") if "pipeline" not in said], 60, "the agent's server")
        return http_get(own[0]["address"], path)

    def children(self):
        """Process ids of its pipelines."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def send(self, number):
        self.process.send_signal(number)

    def left(self):
        """Process ids of its pipelines, whoever has them now."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                found += [int(pid)] if f"--config\0{self.folder}/" in file.read() else []
        return found

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, limit_s=60):
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return self.process.wait(limit_s)


class Source:
    """A database with one table; `write` inserts 1, 2, 3 … on a connection of its own."""

    def __init__(self, name, port=None):
        self.name, self.port, self.rows = name, port, 0
        self.url = re.fullmatch(r"\w+://(?P<user>[^:]+):(?P<password>[^@]+)@(?P<host>[^:]+):(?P<port>\d+)/.*", dsn(name, port))
        self.connection = None
        self.run(f"CREATE DATABASE {name} STRATEGY file_copy", "postgres")
        self.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)")

    def run(self, text, database=None):
        with connect(database or self.name, port=self.port) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.rownumber is not None else None

    def write(self, count=1):
        self.connection = self.connection or connect(self.name, port=self.port)
        self.connection.execute("INSERT INTO t SELECT g, 'row' FROM generate_series(%s::bigint, %s::bigint) g", [self.rows + 1, self.rows + count])
        self.rows += count

    def drop(self):
        if self.connection is not None:
            self.connection.close()
        slots = f"FROM pg_replication_slots WHERE database = '{self.name}'"

        def dropped():
            self.run(f"SELECT pg_terminate_backend(active_pid) {slots} AND active", "postgres")
            self.run(f"SELECT pg_drop_replication_slot(slot_name) {slots}", "postgres")
            self.run(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)", "postgres")
            return True
        eventually(dropped, 60, f"dropping {self.name}", (psycopg.Error,))


class Fleet:
    """Pipelines by name, each of a database of that name. `ports`: of the servers that they are spread over. `inner`, `host`: where millrace reaches
    Kafka and the servers, if that is elsewhere than for the test."""

    def __init__(self, count, ports=(None,), bootstrap=BOOTSTRAP, inner=None, host=None, session_s=SESSION_S, options=""):
        self.name = "f" + uuid.uuid4().hex[:6]
        self.bootstrap, self.inner, self.host = bootstrap, inner or bootstrap, host
        self.session_s, self.options = session_s, options
        self.folder = tempfile.mkdtemp(prefix="mr-", dir="/tmp")  # short: there are sockets in it
        self.config = os.path.join(self.folder, "fleet.toml")
        self.admin = AdminClient({**READER, "bootstrap.servers": bootstrap})
        self.agents, self.sources, self.own = {}, {}, {}
        self.writing = threading.Event()
        self.writer = None
        for number in range(count):
            name = f"{self.name}_{number}"
            self.sources[name] = Source(name, ports[number % len(ports)])
        self._make_topics()
        self.secret = os.path.join(self.folder, "password")
        with open(self.secret, "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(next(iter(self.sources.values())).url["password"])
        self.define()

    def topic(self, name):
        return f"{name}.public.t"

    def _make_topics(self):
        """Of the rows; and, with fewer partitions than the default, which take a broker here 10 s to make, the fleet's."""
        compacted = {"cleanup.policy": "compact"}
        own = [NewTopic(f"__millrace_fleet.{self.name}", PARTITIONS, config=compacted), NewTopic(f"__millrace_fleet.{self.name}.status", 1, config=compacted)]
        made = self.admin.create_topics([*own, *(NewTopic(self.topic(name), 1) for name in self.sources)], request_timeout=30)
        for future in made.values():
            future.result(60)

    def define(self, **own):
        """`own`: lines of a pipeline's own, by its number."""
        self.own.update(own)
        lines = [f'[fleet]\nname = "{self.name}"\nmax_per_server = 100\n[template]\ntopic_prefix = "{{name}}"\ntables = ["public.t"]\nlog.format = "json"\n'
                 f'source.postgres.slot_name = "{{name}}"\nsource.postgres.password_file = "{self.secret}"\n'
                 f'sink.kafka.brokers = ["{self.inner}"]\nsink.kafka.delivery = "exactly-once"\nsink.kafka.state_topic = "__state.{{name}}"\n'
                 f'pipeline.reconnect_max = "1s"\n{self.options}']
        for number, (name, source) in enumerate(self.sources.items()):
            url = source.url
            lines.append(f'[pipeline.{name}]\ndatabase = "{name}"\nserver = "s{source.port or 0}"\n'
                         f'source.postgres.connection = "host={self.host or url["host"]} port={url["port"]} user={url["user"]} dbname={name}"\n'
                         + self.own.get(f"p{number}", ""))
        with open(self.config, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))

    def command(self, *words, codes=(0,)):
        done = subprocess.run([BINARY, "fleet", *words, "--config", self.config], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in codes, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def apply(self, *words):
        return self.command("apply", *words)

    def status(self):
        """{pipeline: what is said of it}"""
        return {one["name"]: one for one in json.loads(self.command("status", "--json", codes=(0, 1)))["pipelines"]}

    def above_limits(self, count):
        """What is said of the pipelines, once that many come first, which no host has room for."""
        def right():
            said = list(self.status().values())
            return said if [one.get("surplus") for one in said] == [True] * count + [False] * (len(said) - count) else None
        return eventually(right, 60, f"{count} pipelines above their hosts' limits")

    def agent(self, host, **options):
        self.agents[host] = Agent(self, host, **options)
        return self.agents[host]

    def served(self, names=None):
        """Those of the names (all) whose slot is read from."""
        served = set()
        for source in {source.port: source for source in self.sources.values()}.values():
            served |= {row[0] for row in source.run("SELECT slot_name FROM pg_replication_slots WHERE active AND confirmed_flush_lsn IS NOT NULL",
                                                    "postgres")}
        return set(names or self.sources) & served

    def all_served(self, limit_s=60):
        eventually(lambda: len(self.served()) == len(self.sources), limit_s, "a stream of each pipeline")
        return self

    def shared(self, *agents, limit_s=60):
        """Each agent has a share, all of them everything."""
        def right():
            shares = [len(agent.children()) for agent in agents]
            return min(shares) > 0 and sum(shares) == len(self.sources)
        eventually(right, limit_s, "a share for each")
        return self.all_served(limit_s)

    def write(self, count=1):
        for source in self.sources.values():
            source.write(count)

    @contextlib.contextmanager
    def load(self, pause_s=0.02):
        """Rows in each database, all the time."""
        def run():
            while not self.writing.is_set():
                self.write(3)
                time.sleep(pause_s)
        self.writing.clear()
        self.writer = threading.Thread(target=run, daemon=True)
        self.writer.start()
        try:
            yield
        finally:
            self.writing.set()
            self.writer.join(60)

    def arrived(self):
        """{pipeline: ids in its topic, in order}"""
        found = {name: [] for name in self.sources}
        for topic, _, _, value in read_topic(self.bootstrap, {self.topic(name): 1 for name in self.sources}):
            found[topic.split(".")[0]].append(json.loads(value)["after"]["id"])
        return found

    def all_arrived(self, limit_s=60):
        """Nothing is lost, repeated, or out of order."""
        wanted = {name: source.rows for name, source in self.sources.items()}

        def missing():
            return {name: wanted[name] - len(ids) for name, ids in self.arrived().items() if len(ids) < wanted[name]}
        try:
            eventually(lambda: not missing(), limit_s, "all rows")
        except AssertionError:
            self.show(missing())
            raise
        for name, ids in self.arrived().items():
            twice = sorted({one for one in ids if ids.count(one) > 1}) if len(ids) > len(set(ids)) else []
            if ids != list(range(1, wanted[name] + 1)):
                self.show({name: twice})
            assert ids == list(range(1, wanted[name] + 1)), f"{name}: {len(ids)} of {wanted[name]}, twice {twice}"

    def show(self, wrong):
        """What agents have of the logs of pipelines, {name: what is wrong with it}."""
        for name, what in wrong.items():
            print(name, what, *(line for agent in self.agents.values() for line in agent.lines if f'"{name}"' in line))

    def close(self):
        for agent in self.agents.values():
            if agent.process is not None and agent.process.poll() is None:
                agent.send(signal.SIGCONT)
                agent.send(signal.SIGTERM)
        for agent in self.agents.values():
            if agent.process is not None:
                try:
                    agent.process.wait(60)
                except subprocess.TimeoutExpired:
                    agent.kill()
            for pid in agent.left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            reports = [line for line in agent.lines if "Sanitizer: " in line]
            assert not reports, reports
            print(agent.node, *(line for line in agent.lines if not line.startswith('{"pipeline"') and "warning: " not in line))  # where the test failed
        for source in self.sources.values():
            source.drop()
        topics = [name for name in self.admin.list_topics(timeout=10).topics if self.name in name]
        for deleted in self.admin.delete_topics(topics).values():
            deleted.result(30)
        shutil.rmtree(self.folder, ignore_errors=True)
