"""Kafka Connect, standalone, with Debezium's PostgreSQL connector: the judge of `types = "debezium"`."""

import glob
import http.client
import os
import re
import subprocess

from kit import BOOTSTRAP, dsn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def jars():
    """The class path; scripts/setup.sh --all fetches what benchmarks/debezium/pom.xml lists."""
    libs = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "debezium", "libs")
    assert glob.glob(os.path.join(libs, "debezium-connector-postgres-*.jar")), f"no jars in {libs}: scripts/setup.sh --all"
    return os.path.join(libs, "*")


class Connect:
    """A worker with a connector, and more: a list of prefix and options each. They read from now on: their slots are made when
    they start."""

    def __init__(self, database, folder, prefix, options=None, more=()):
        self.database, self.folder = database, str(folder)
        self.slot = database.name + "_dbz"
        self.log_path = os.path.join(self.folder, "connect.log")
        self.process = None
        server = re.fullmatch(r"postgres(?:ql)?://([^:@]+):([^@]*)@([^:/]+):(\d+)/.*", dsn("postgres"))
        self._write("worker.properties", {
            "bootstrap.servers": BOOTSTRAP, "listeners": "HTTP://127.0.0.1:0", "plugin.discovery": "service_load",
            "key.converter": CONVERTER, "key.converter.schemas.enable": "false",
            "value.converter": CONVERTER, "value.converter.schemas.enable": "false",
            "header.converter": CONVERTER, "header.converter.schemas.enable": "false",
            "offset.storage.file.filename": os.path.join(self.folder, "offsets"), "offset.flush.interval.ms": 1000,
            "task.shutdown.graceful.timeout.ms": 60000, "offset.flush.timeout.ms": 2000,
        })
        self.slots = [self.slot, *(f"{self.slot}{nth}" for nth in range(len(more)))]
        for slot, (of, changed) in zip(self.slots, [(prefix, options), *more]):
            self._connector(server, slot, of, changed)

    def _connector(self, server, slot, prefix, options):
        database = self.database
        self._write(f"{slot}.properties", {
            "name": slot, "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": 1,
            "database.hostname": server[3], "database.port": server[4], "database.user": server[1],
            "database.password": server[2], "database.dbname": database.name, "plugin.name": "pgoutput",
            "slot.name": slot, "publication.name": database.publication, "publication.autocreate.mode": "disabled",
            "topic.prefix": prefix, "snapshot.mode": "no_data", "poll.interval.ms": 20,
            "topic.creation.default.partitions": 1, "topic.creation.default.replication.factor": 1,
            **(options or {}),
        })

    def _write(self, name, values):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.writelines(f"{key}={value}\n" for key, value in values.items())

    def start(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ["java", "-Xms128M", "-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                 f"-Dlog4j2.configurationFile={ROOT}/scripts/kafka/log4j2.properties", "-cp", jars(),
                 "org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", *(f"{slot}.properties" for slot in self.slots)],
                cwd=self.folder, stdout=log, stderr=log)

    def streams(self):
        """Whether each connector reads from its slot by now."""
        assert self.process.poll() is None, self.said()
        return self.database.is_streamed(*self.slots)

    def said(self, most=4000):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()[-most:]

    def ask(self, method, path, body=None):
        """Connect's REST interface: status and text of an answer."""
        address = re.search(r"REST server listening at http://([^:/]+):(\d+)", self.said(1 << 20))
        asked = http.client.HTTPConnection(address[1], int(address[2]), timeout=180)
        asked.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = asked.getresponse()
        return answer.status, answer.read().decode()

    def kept_offset(self):
        """The last offset that the worker has written to its file: a map of Java's, whose values are JSON."""
        with open(os.path.join(self.folder, "offsets"), "rb") as file:
            return re.findall(rb'\{"[^{}]*"lsn"[^{}]*\}', file.read())[-1].decode()

    def finish(self):
        """Ends it in order, so that what its producers still hold is in Kafka: a partition's records don't wait for another's."""
        self.process.terminate()
        self.process.wait(120)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def both(run):
    """For a fixture: yields what `run.go` finds; both programs and their database are gone behind it. `run` has `connect`, `ours` (a
    list or a dict of millraces) and `database`."""
    ours = list(run.ours.values() if isinstance(run.ours, dict) else run.ours)
    try:
        yield run.go()
    except BaseException:
        print(run.connect.said())
        for millrace in ours:
            print("".join(millrace.lines[-20:]))
        raise
    finally:
        run.connect.stop()
        for millrace in ours:
            if millrace.process is not None and millrace.process.poll() is None:
                millrace.kill()
        run.database.drop()
