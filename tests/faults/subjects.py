"""What the director breaks: a program between the proxies, and what a supervisor does for it.

Each has start, revive (starts it when it does not run), kill, terminate, signal, finish (an end in order) and close,
`process`, said (its last lines), and after `finish` the whole `log`. `counts` are the director's."""

import glob
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from confluent_kafka.admin import NewTopic

from forms import DebeziumForm, MillraceForm
from kit import Millrace, dsn, eventually, is_linked_with
from servers import LOG4J, end_with_parent, free_port

STREAMED = ("ledger", "acct", "churn")
# What may end a millrace that nobody killed: an orderly stop, and one that could not wait for everything.
ORDERLY = (0, 3)
END_LIMIT_S = 60  # for one that was told to end


def show_stacks(pid):
    """What all threads do, into the log; the process is about to be given up."""
    if shutil.which("gdb") is None:
        return
    done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"], capture_output=True,
                          text=True, timeout=120, check=False)
    print(done.stdout, file=sys.stderr, flush=True)


class MillraceSubject:
    is_millrace = True
    settle_limit_s = 180

    def __init__(self, scene, options):
        self.scene, self.counts = scene, scene.counts
        self.log = []    # lines of millraces that have ended
        self.codes = []  # and how they did, but for the last one
        self.http = f"127.0.0.1:{free_port()}" if scene.profiler else None
        self.values = {"sink__kafka__brokers": json.dumps(scene.broker.proxied.split(",")),
                       "pipeline__reconnect_max": '"1s"', "pipeline__shutdown_deadline": '"5s"',
                       "pipeline__batch_size": '"16KiB"', "log__level": '"debug"',
                       "skipped_operations": "[]", "sink__kafka__delivery": f'"{scene.delivery}"',
                       **(self._profiling() if scene.profiler else {}), **options}
        self.millrace = Millrace(scene.database, scene.folder, [*STREAMED, *scene.wide.configured()], **self.values)
        self.millrace.environment["TEST_URL"] = dsn(scene.database.name, scene.pg_proxy.port)

    def _profiling(self):
        """Options of a millrace whose profiler does all it can, on a port that stays the same."""
        return {"http__address": f'"{self.http}"', "profiling__endpoints": "true", "profiling__frequency": "1000",
                "profiling__recorder": "true", "profiling__interval": '"2s"',
                "profiling__path": f'"{os.path.join(self.scene.folder, "profiles")}"',
                **({"profiling__heap": "true"} if is_linked_with("jemalloc") else {})}

    @property
    def process(self):
        return self.millrace.process

    def start(self):
        if self.http is not None:  # another part of the profiler is off each time
            off = ("profiling__recorder", "profiling__path", "profiling__heap", "nothing")
            self.millrace.configure(**{**self.values, off[len(self.codes) % len(off)]: None})
        self.millrace.start()

    def said(self, lines=12):
        """Last lines, librdkafka's chatter left out."""
        return "".join([line for line in self.millrace.lines if '"kafka_client"' not in line][-lines:])

    def ended(self, limit_s=None):
        """Notes how a millrace ended."""
        limit_s = limit_s or END_LIMIT_S
        try:
            code = self.millrace.ended(limit_s)
        except subprocess.TimeoutExpired:
            show_stacks(self.process.pid)
            raise AssertionError(f"millrace did not end within {limit_s} s:\n{self.said()}") from None
        self.log += self.millrace.lines
        self.codes.append(code)
        return code

    def revive(self):
        """A bug that ends millrace is found here."""
        if self.millrace.process.poll() is not None:
            code = self.ended()
            assert code in ORDERLY, f"millrace ended with {code}:\n{self.said()}"
            self.counts["ends of its own"] += 1
            self.start()

    def kill(self):
        self.millrace.process.kill()
        self.ended()
        self.start()

    def terminate(self):
        """SIGTERM, and what it promises: an end in time, with one of two codes."""
        self.millrace.wait_for("started", 60)  # from then on it listens to signals
        self.millrace.process.send_signal(signal.SIGTERM)
        code = self.ended()
        assert code in ORDERLY, f"SIGTERM ended with {code}:\n{self.said()}"
        self.start()

    def signal(self, number):
        self.millrace.process.send_signal(number)

    def finish(self):
        assert self.millrace.stop(END_LIMIT_S) == 0, self.said()
        self.log += self.millrace.lines

    def form(self):
        return MillraceForm()

    def close(self):
        if self.millrace.process is not None and self.millrace.process.poll() is None:
            self.millrace.kill()


class DebeziumSubject:
    """Debezium's connector in a worker of Kafka Connect (distributed, one worker). The jars: start-debezium.sh --fetch.

    Its settings are its defaults but for those in `_worker` and `_connector`; docs/dev/evidence.md says why."""

    is_millrace = False
    settle_limit_s = 420  # offsets are stored each minute, and the slot is confirmed behind that

    def __init__(self, scene, options):
        self.scene, self.counts, self.options = scene, scene.counts, options
        self.database = scene.database
        self.exactly_once = scene.delivery == "exactly-once"
        self.port = free_port()
        self.process = None
        self.looked = 0.0  # at the tasks, monotonic
        self.log_path = os.path.join(os.environ.get("MILLRACE_PEER_LOGS", scene.folder),
                                     f"debezium-{scene.seed}-{scene.delivery}.log")
        self._prepare()

    def _prepare(self):
        """What whoever runs it makes beforehand: publication, table and topics of the heartbeat; and the slot that
        tells the kit the commits' LSNs."""
        database, broker = self.database, self.scene.broker
        self.witness = database.name + "_witness"
        database.run("CREATE TABLE beat (id int PRIMARY KEY, at timestamptz)")
        database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE {', '.join(STREAMED)}, beat")
        database.run("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [self.witness])
        topics = [database.topic("beat"), "__debezium-heartbeat." + database.prefix]
        for answer in broker.admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            answer.result()

    def _worker(self):
        values = {
            "bootstrap.servers": self.scene.broker.proxied, "group.id": "connect",
            "listeners": f"HTTP://127.0.0.1:{self.port}",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.partitions": 1, "status.storage.partitions": 1,
            # As its log recommends: to look through all classes by reflection is most of the time it takes to start.
            "plugin.discovery": "service_load",
        }
        for topic in ("config", "offset", "status"):
            values[f"{topic}.storage.topic"] = "connect-" + topic
            values[f"{topic}.storage.replication.factor"] = 1
        if self.exactly_once:
            values["exactly.once.source.support"] = "enabled"
        return values

    def _connector(self):
        server = re.fullmatch(r"postgres(?:ql)?://([^:@]+):([^@]*)@([^:/]+):\d+/.*", dsn("postgres"))
        values = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": 1,
            "database.hostname": server[3], "database.port": self.scene.pg_proxy.port, "database.user": server[1],
            "database.password": server[2], "database.dbname": self.database.name, "plugin.name": "pgoutput",
            "slot.name": self.database.slot, "publication.name": self.database.publication,
            "publication.autocreate.mode": "disabled",  # it is made, and altered, by the director
            "schema.include.list": "public", "topic.prefix": self.database.prefix, "snapshot.mode": "no_data",
            # So that the slot moves on though the tables rest.
            "heartbeat.interval.ms": 5000,
            "heartbeat.action.query": "INSERT INTO beat VALUES (1, now()) ON CONFLICT (id) DO UPDATE SET at = now()",
            # Try again each second, as millrace does here. Default 10 s.
            "retriable.restart.connector.wait.ms": 1000, "slot.retry.delay.ms": 1000, "slot.max.retries": 60,
        }
        if self.exactly_once:
            values["exactly.once.support"] = "required"
        return {**{name: str(value) for name, value in values.items()}, **self.options}

    # ---- the worker ----

    def start(self):
        first = self.process is None
        properties = os.path.join(self.scene.folder, "worker.properties")
        with open(properties, "w", encoding="ascii") as file:
            file.writelines(f"{name}={value}\n" for name, value in self._worker().items())
        libs = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "debezium", "libs")
        assert glob.glob(os.path.join(libs, "*.jar")), "no jars: benchmarks/start-debezium.sh --fetch gets them"
        with open(self.log_path, "ab") as log:
            # pylint: disable-next=consider-using-with # outlives this function
            self.process = subprocess.Popen(
                ["java", "-Xms256M", "-Xmx2G", "-XX:TieredStopAtLevel=1",  # as the brokers: starts in less time
                 f"-Dlog4j2.configurationFile={os.path.abspath(LOG4J)}", "-cp",
                 os.path.join(libs, "*"), "org.apache.kafka.connect.cli.ConnectDistributed", properties],
                stdout=log, stderr=log, start_new_session=True, preexec_fn=end_with_parent)
        if first:
            path = f"/connectors/{self.database.name}/config"
            eventually(lambda: self._rest("PUT", path, self._connector()) is not None, 600, "Kafka Connect")

    def _rest(self, method, path, body=None):
        """The answer, or None while there is none: no worker yet, or one that is busy with its group."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            return (json.loads(text) if text else {}) if answer.status < 300 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def revive(self):
        """What an operator does: starts a worker that has ended, and restarts what stands as FAILED."""
        if self.process.poll() is not None:
            self.counts["ends of its own"] += 1
            self.start()
        if time.monotonic() - self.looked < 1:
            return
        self.looked = time.monotonic()
        path = f"/connectors/{self.database.name}"
        status = self._rest("GET", path + "/status")
        if status is None:
            return
        failed = [f"{path}/tasks/{task['id']}/restart" for task in status["tasks"] if task["state"] == "FAILED"]
        if status["connector"]["state"] == "FAILED":
            failed.append(path + "/restart")
        for restart in failed:
            if self._rest("POST", restart) is not None:
                self.counts["operator actions"] += 1

    def kill(self):
        self.process.kill()
        self.process.wait(60)
        self.start()

    def _stop(self):
        """SIGTERM, and what systemd does after its 90 seconds."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.counts["stops that took 90 s"] += 1
            self.process.kill()
            self.process.wait(60)

    def terminate(self):
        self._stop()
        self.start()

    def signal(self, number):
        self.process.send_signal(number)

    def finish(self):
        self._stop()

    def form(self):
        """With the commits that the kit's own slot saw; reads them all."""
        found = self.database.run("SELECT xid::text::bigint, lsn - '0/0' FROM pg_logical_slot_get_changes(%s, NULL, "
                                  "NULL) WHERE data LIKE 'COMMIT%%'", [self.witness])
        return DebeziumForm({xid: int(lsn) for xid, lsn in found})

    log = ()  # not searched for rows

    def said(self, lines=12):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)


SUBJECTS = {"millrace": MillraceSubject, "debezium": DebeziumSubject}
