"""What the system tests stand on: the servers, one database a test, a millrace process, a topic reader.

Shares no code with the product. Every wait is for something to happen, with a limit."""

import base64
import collections
import contextlib
import functools
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import uuid

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from consume import up_to_now

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP"]
BINARY = os.environ["MILLRACE_BIN"]
GO = shutil.which("go") or "/usr/local/go/bin/go"
STAND = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scripts", "stand.sh")


# Kafka's clients of the tests: quick to come back to a broker that was away, quiet about it.
CLIENT = {"bootstrap.servers": BOOTSTRAP, "log_level": 0, "reconnect.backoff.ms": 50,
          "reconnect.backoff.max.ms": 500}

# A reader that begins at a topic's beginning has nothing to commit: a coordinator, a connection to it, a record and its tombstone less.
READER = {**CLIENT, "fetch.wait.max.ms": 250, "enable.auto.commit": False}

# What a server that was just killed, or is just starting, answers.
NOT_YET = (KafkaException, psycopg.OperationalError)


CANNOT_TRY = "can't be tried here: "


def cannot_try(reason):
    """Ends a test that needs what this machine refuses (a mount, a network of its own); conftest.py tells of all of
    them at the end of the run."""
    pytest.skip(CANNOT_TRY + str(reason))


def stand(*command):
    """A command of scripts/stand.sh; what it said comes with the failure."""
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run([STAND, *command], stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=280)
        said.seek(0)
        assert done.returncode == 0, f"stand.sh {' '.join(command)}: {said.read()}"


def dsn(database, port=None):
    """The stand's server, or another one like it that listens on `port`."""
    server = os.environ["MILLRACE_PG_URL"].rsplit("/", 1)[0]
    if port is not None:
        server = server.rsplit(":", 1)[0] + f":{port}"
    return server + "/" + database


def eventually(check, limit_s=60, what="the condition", not_yet=NOT_YET):
    """Answers check() as soon as it is true. An exception of not_yet counts as not true yet."""
    begun = time.monotonic()
    while True:
        reason = None
        try:
            result = check()
            if result:
                return result
        except not_yet as error:
            reason = error
        waited = time.monotonic() - begun
        if waited >= limit_s:
            raise AssertionError(f"{what} did not come true within {limit_s} s"
                                 + (f": {reason}" if reason else "")) from reason
        # A look is mostly a new connection, whose password costs both sides milliseconds of a processor.
        time.sleep(min(max(0.02, 0.05 * waited), 0.1))


def connect(database, limit_s=60, port=None):
    """A connection as superuser; waits for a server that is away."""
    return eventually(lambda: psycopg.connect(dsn(database, port), autocommit=True, connect_timeout=10), limit_s,
                      f"a connection to {database}")


def swapped(table, one, other):
    """Two columns take each other's name."""
    return f"ALTER TABLE {table} RENAME {other} TO x; ALTER TABLE {table} RENAME {one} TO {other}; ALTER TABLE {table} RENAME x TO {one}"


class Database:
    """One test's database with its slot, publication and topics."""

    def __init__(self, form="", port=None):
        """`form`: what CREATE DATABASE is to say besides the name; `port`: see dsn."""
        self.port = port
        self.name = "t_" + uuid.uuid4().hex[:10]
        self.slot = self.publication = self.prefix = self.name
        self.admin = AdminClient(CLIENT)
        self._server, self._lock = None, threading.Lock()
        # By files and not by the WAL: half the work.
        self.run(f"CREATE DATABASE {self.name} STRATEGY file_copy {form}", database="postgres")

    def run(self, text, parameters=None, database=None):
        """Rows of one statement; several, without parameters, are separated by semicolons."""
        if database == "postgres":
            return self._of_server(text, parameters)
        with connect(database or self.name, port=self.port) as connection:
            return self._rows(connection, text, parameters)

    def serve_at(self, port):
        """The same database is on another server now, or on a new one at the same port."""
        self.port = port
        if self._server is not None:
            self._server.close()

    @staticmethod
    def _rows(connection, text, parameters):
        cursor = connection.execute(text, parameters)
        return cursor.fetchall() if cursor.rownumber is not None else None  # also rows without columns

    def _of_server(self, text, parameters):
        """By a connection that stays: looks at the slot are most of what tests ask, and a login costs many times a look."""
        with self._lock:
            try:
                if self._server and not self._server.closed:
                    return self._rows(self._server, text, parameters)
            except psycopg.OperationalError:
                if not self._server.closed:
                    raise
            self._server = connect("postgres", port=self.port)
            return self._rows(self._server, text, parameters)

    def slot_row(self, column):
        rows = self.run(f"SELECT {column} FROM pg_replication_slots WHERE slot_name = %s", [self.slot],
                        database="postgres")
        return rows[0][0] if rows else None

    def all_confirmed(self, limit_s=60):
        """The slot has been confirmed up to all that is written by now."""
        end = self.run("SELECT pg_current_wal_lsn()")[0][0]
        eventually(lambda: self.slot_row(f"confirmed_flush_lsn >= '{end}'"), limit_s, f"confirmation of {end}")

    @contextlib.contextmanager
    def setting(self, name, value):
        """The server has that setting within the block; one that a reload takes in."""
        self.run(f"ALTER SYSTEM SET {name} = {value}", database="postgres")
        self.run("SELECT pg_reload_conf()", database="postgres")
        try:
            yield
        finally:
            self.run(f"ALTER SYSTEM RESET {name}", database="postgres")
            self.run("SELECT pg_reload_conf()", database="postgres")

    def lose_slot(self):
        """More is written than the server keeps for it."""
        def lost():
            self.run("CREATE TABLE IF NOT EXISTS filler (v text)")
            self.run("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
            self.run("SELECT pg_switch_wal()")
            self.run("CHECKPOINT")
            return self.slot_row("wal_status") == "lost"
        with self.setting("max_slot_wal_keep_size", "'1MB'"):
            eventually(lost, 60, "the loss of the slot")

    def is_streamed(self, *slots):
        """Whether each of these slots is read from, and so whatever is written from now on. While a slot is being made it is active, too, but has no
        position, and what is written meanwhile is in no stream (CreateReplicationSlot, SnapBuildFindSnapshot)."""
        streamed = self.run("SELECT FROM pg_replication_slots WHERE slot_name = ANY(%s) AND active AND confirmed_flush_lsn IS NOT NULL",
                            [list(slots)], database="postgres")
        return len(streamed) == len(slots)

    def topic(self, table, schema="public"):
        return f"{self.prefix}.{schema}.{table}"

    def topics(self):
        """Names of all topics of the broker."""
        return sorted(eventually(lambda: self.admin.list_topics(timeout=5), 60, "the list of topics").topics)

    def make_topic(self, table, partitions=1, config=None):
        return self.create_topic(self.topic(table), partitions, config)

    def create_topic(self, topic, partitions=1, config=None):

        def made():
            try:
                self.admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})],
                                         request_timeout=10)[topic].result(15)
            except KafkaException as error:
                # The answer to an earlier try was lost.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            return True
        eventually(made, 60, f"making topic {topic}", (KafkaException, TimeoutError))
        return topic

    def produce(self, topic, key, value):
        """One record, put there by somebody else."""
        producer = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def drop(self):
        def dropped():
            self.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s "
                     "AND active", [self.name], database="postgres")
            self.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                     "WHERE database = %s", [self.name], database="postgres")
            return True
        eventually(dropped, what=f"dropping the slots of {self.name}")
        self.run(f"DROP DATABASE {self.name} WITH (FORCE)", database="postgres")
        self._server.close()
        self._delete_topics()

    def _delete_topics(self):
        """A broker that is killed reads every partition at its next start: with 1,500 of ended tests, half a minute."""
        try:
            ours = [topic for topic in self.admin.list_topics(timeout=5).topics if self.name in topic]
            for deleted in self.admin.delete_topics(ours).values() if ours else ():
                deleted.result(10)
        except (KafkaException, TimeoutError):
            pass  # the test has left no broker behind that could answer


class Millrace:
    """The binary under test with one configuration."""

    def __init__(self, database, folder, tables=("t",), text="", **options):
        self.database = database
        self.folder = str(folder)
        self.path = os.path.join(self.folder, "config.toml")
        self.tables = tables
        self.write(text or self.native(tables, options))
        self.environment = {**os.environ, "TEST_URL": dsn(database.name, database.port)}
        self.inside = []  # what its command is prefixed with
        self.process = self.collector = None
        self.lines = []

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def configure(self, **options):
        """Other options for the next start."""
        self.write(self.native(self.tables, options))
        return self

    def native(self, tables, options):
        database = self.database
        values = {
            # One a line: toml11 3.7 goes through the whole line for each name.
            "tables": json.dumps(list(tables), ensure_ascii=False, indent=0 if len(tables) > 1000 else None),
            "topic_prefix": json.dumps(database.prefix),
            "log.format": '"json"', "source.postgres.connection": '"env:TEST_URL"',
            "source.postgres.slot_name": json.dumps(database.slot),
            "source.postgres.publication_name": json.dumps(database.publication),
            "sink.kafka.brokers": json.dumps([BOOTSTRAP]),
            "http.address": '"127.0.0.1:0"',  # a free port: several run at once
        }
        values.update({key.replace("__", "."): value for key, value in options.items()})
        return "".join(f"{key} = {value}\n" for key, value in values.items() if value is not None)

    def start(self, *arguments, stdout=subprocess.DEVNULL, **options):
        """`options`: what Popen takes besides, for instance a user."""
        self.process = subprocess.Popen([*self.inside, BINARY, *arguments, "--config", self.path],
                                        env=self.environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
                                        **options)
        self.lines = []
        self.collector = threading.Thread(target=self._collect, args=(self.process,), daemon=True)
        self.collector.start()
        return self

    def ended(self, limit_s):
        """Exit code, once the process has ended and everything it said is there."""
        code = self.process.wait(limit_s)
        self.collector.join(10)
        return code

    def _collect(self, process):
        for line in process.stderr:
            self.lines.append(line)

    def log(self, event):
        """Records of that event so far."""
        found = []
        for line in list(self.lines):
            if line.startswith("{"):
                record = json.loads(line)
                if record["event"] == event:
                    found.append(record)
        return found

    def wait_for(self, event, limit_s=60, times=1):
        def there():
            assert self.process.poll() is None or len(self.log(event)) >= times, "".join(self.lines)
            return len(self.log(event)) >= times
        eventually(there, limit_s, f"log event {event}")
        return self.log(event)[-1]

    def standstill(self, cause):
        """The last one of that cause; others come and go, where a session begins slowly, say."""
        return eventually(lambda: [line for line in self.log("standstill") if line["cause"] == cause], 60, f"a standstill: {cause}")[-1]

    def streaming(self):
        self.wait_for("source_connected", limit_s=120)  # another test's transaction may be open for a minute
        return self

    def address(self):
        """Where its HTTP server listens: "127.0.0.1:40123" or "unix:/path"."""
        return self.wait_for("http_listening")["address"]

    def get(self, path, **options):
        return http_get(self.address(), path, **options)

    def figure(self, name):
        """One value of /metrics, labels included in the name."""
        return figures(self.get("/metrics").body)[name]

    def stop(self, limit_s=60):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(limit_s)

    def kill(self):
        self.process.kill()
        self.process.wait()
        return self

    def run_to_end(self, limit_s=60):
        """Exit code and everything it said."""
        code = self.start().ended(limit_s)
        return code, "".join(self.lines)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.bytes = response.read()

    @property
    def body(self):
        return self.bytes.decode()

    @property
    def json(self):
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def http_get(address, path, method="GET", user=None, headers=None, tls=None, limit_s=60, body=None):
    """One request on a connection of its own; `user` is "name:password", `tls` an ssl context."""
    if address.startswith("unix:"):
        connection = UnixConnection(address.removeprefix("unix:"), limit_s)
    elif tls is not None:
        connection = http.client.HTTPSConnection(address, timeout=limit_s, context=tls)
    else:
        connection = http.client.HTTPConnection(address, timeout=limit_s)
    headers = {"Connection": "close", **(headers or {})}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    try:
        connection.request(method, path, body=body, headers=headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


@contextlib.contextmanager
def served(folder):
    """The address of an HTTP server with the files of a folder."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def figures(text):
    """The samples of a text of /metrics: {"name{labels}": value}."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def is_linked_with(library):
    """Whether the binary under test loads a library with this in its name."""
    done = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True, timeout=60)
    return library in done.stdout


def check(process):
    """Exit code and output of `millrace check` with that configuration."""
    done = subprocess.run([BINARY, "check", "--config", process.path], env=process.environment, text=True,
                          capture_output=True, timeout=60)
    return done.returncode, done.stdout


def expect(answer, code, *said, without="\0"):
    """`answer`, an exit code and what was said, has that code and these words, and not the words `without`; answers what was said."""
    assert answer[0] == code and all(words in answer[1] for words in said) and without not in answer[1], answer
    return answer[1]


def profile_command(*arguments, folder, environment=None):
    """`millrace profile …`; without a display, unless `environment` has one."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run([BINARY, "profile", *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
                          check=False, env={**inherited, **(environment or {})})


class Record:
    def __init__(self, message):
        self.key = None if message.key() is None else message.key().decode()
        # Bytes that are no UTF-8 come back by the same word.
        self.value = None if message.value() is None else message.value().decode(errors="surrogateescape")
        self.partition = message.partition()
        self.timestamp_ms = message.timestamp()[1]
        self.headers = {name: None if value is None else value.decode() for name, value in message.headers() or []}
        self.position = self.headers.get("mr-pos")

    @property
    def json(self):
        return json.loads(self.value)

    @property
    def json_key(self):
        return json.loads(self.key)


class Topic:
    """Reads a topic from its beginning, all partitions."""

    def __init__(self, name):
        self.name = name
        self.consumer = Consumer({**READER, "group.id": name})
        partitions = eventually(self._partitions, 60, f"topic {name}")
        self.consumer.assign([TopicPartition(name, p, 0) for p in partitions])

    def _partitions(self):
        metadata = self.consumer.list_topics(self.name, timeout=5).topics[self.name]
        return list(metadata.partitions) if metadata.error is None else None

    def _consume(self, count, limit_s):
        """Up to count records; a broker that is away has none for now."""
        try:
            return [Record(m) for m in self.consumer.consume(count, timeout=limit_s) if m.error() is None]
        except KafkaException:
            return []

    def read(self, limit_s=0.5):
        """What is there now."""
        return self._consume(5000, limit_s)

    def take(self, count, limit_s=60):
        """The next `count` records, no fewer."""
        records = []
        deadline = time.monotonic() + limit_s
        while len(records) < count:
            assert time.monotonic() < deadline, f"{len(records)} of {count} records in {limit_s} s"
            records += self._consume(min(5000, count - len(records)), 0.2)
        return records

    def close(self):
        self.consumer.close()


Batch = collections.namedtuple("Batch", "bytes codec is_control records")


def batches_on_disk(topic):
    """Of partition 0, in the broker's file (DefaultRecordBatch.java): a batch's length, without the 12 bytes up to its end, stands at byte 8,
    its attributes at 21, the number of its records at 57."""
    folder = os.path.join(os.environ["MILLRACE_STAND_DIR"], "data", "kafka", "logs", f"{topic}-0")
    with open(os.path.join(folder, "00000000000000000000.log"), "rb") as file:
        log = file.read()
    at, batches = 0, []
    while at < len(log):
        size, attributes = 12 + struct.unpack_from(">i", log, at + 8)[0], struct.unpack_from(">h", log, at + 21)[0]
        batches.append(Batch(size, attributes & 7, bool(attributes & 0x20), struct.unpack_from(">i", log, at + 57)[0]))
        at += size
    return batches


def set_topic(admin, name, option, value):
    """A topic's configuration, until the broker says it."""
    entry = ConfigEntry(option, str(value), incremental_operation=AlterConfigOpType.SET)
    admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])])
    asked = ConfigResource(ConfigResource.Type.TOPIC, name)
    eventually(lambda: admin.describe_configs([asked])[asked].result(30)[option].value == str(value), what=f"{option} of {name}")


def read_whole(admin, names):
    """{topic: its records, partition by partition}, of topics that nobody writes to: one reader for each of hundreds costs both sides more than
    the records do."""
    metadata = admin.list_topics(timeout=10).topics
    whole = {name: [] for name in names}
    for message in up_to_now([(name, partition) for name in names for partition in metadata[name].partitions], BOOTSTRAP):
        whole[message.topic()].append(Record(message))
    return {name: sorted(records, key=lambda record: record.partition) for name, records in whole.items()}
