"""What the system tests stand on: the servers, one database a test, a millrace process, a topic reader.

Shares no code with the product. Every wait is for something to happen, with a limit."""

import json
import os
import signal
import subprocess
import threading
import time
import uuid

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP"]
BINARY = os.environ["MILLRACE_BIN"]
STAND = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scripts", "stand.sh")


def stand(*command):
    subprocess.run([STAND, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def dsn(database):
    return os.environ["MILLRACE_PG_URL"].rsplit("/", 1)[0] + "/" + database


def eventually(check, limit_s=30, what="the condition"):
    """Answers check() as soon as it is true."""
    deadline = time.monotonic() + limit_s
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"{what} did not come true within {limit_s} s"
        time.sleep(0.02)


class Database:
    """One test's database with its slot, publication and topics."""

    def __init__(self):
        self.name = "t_" + uuid.uuid4().hex[:10]
        self.slot = self.publication = self.prefix = self.name
        self.admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
        self.run(f"CREATE DATABASE {self.name}", database="postgres")

    def run(self, text, parameters=None, database=None):
        """Rows of one statement; several, without parameters, are separated by semicolons."""
        with psycopg.connect(dsn(database or self.name), autocommit=True) as connection:
            cursor = connection.execute(text, parameters)
            return cursor.fetchall() if cursor.description else None

    def slot_row(self, column):
        rows = self.run(f"SELECT {column} FROM pg_replication_slots WHERE slot_name = %s", [self.slot],
                        database="postgres")
        return rows[0][0] if rows else None

    def topic(self, table, schema="public"):
        return f"{self.prefix}.{schema}.{table}"

    def make_topic(self, table, partitions=1):
        topic = self.topic(table)
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
        return topic

    def produce(self, topic, key, value):
        """One record, put there by somebody else."""
        producer = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def drop(self):
        self.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s "
                 "AND active", [self.name], database="postgres")

        def dropped():
            try:
                self.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                         "WHERE database = %s", [self.name], database="postgres")
                return True
            except psycopg.errors.ObjectInUse:
                return False
        eventually(dropped)
        self.run(f"DROP DATABASE {self.name} WITH (FORCE)", database="postgres")


class Millrace:
    """The binary under test with one configuration."""

    def __init__(self, database, folder, tables=("t",), text="", **options):
        self.database = database
        self.folder = str(folder)
        self.path = os.path.join(self.folder, "config.toml")
        if not text:
            text = self.native(tables, options)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)
        self.environment = {**os.environ, "TEST_URL": dsn(database.name)}
        self.process = self.collector = None
        self.lines = []

    def native(self, tables, options):
        database = self.database
        values = {
            "tables": json.dumps(list(tables)), "topic_prefix": json.dumps(database.prefix),
            "log.format": '"json"', "source.postgres.connection_env": '"TEST_URL"',
            "source.postgres.slot_name": json.dumps(database.slot),
            "source.postgres.publication_name": json.dumps(database.publication),
            "sink.kafka.brokers": json.dumps([BOOTSTRAP]),
        }
        values.update({key.replace("__", "."): value for key, value in options.items()})
        return "".join(f"{key} = {value}\n" for key, value in values.items() if value is not None)

    def start(self, *arguments, stdout=subprocess.DEVNULL):
        self.process = subprocess.Popen([BINARY, *arguments, "--config", self.path], env=self.environment,
                                        stdout=stdout, stderr=subprocess.PIPE, text=True)
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

    def wait_for(self, event, limit_s=30, times=1):
        def there():
            assert self.process.poll() is None or len(self.log(event)) >= times, "".join(self.lines)
            return len(self.log(event)) >= times
        eventually(there, limit_s, f"log event {event}")
        return self.log(event)[-1]

    def streaming(self):
        self.wait_for("source_connected")
        return self

    def stop(self, limit_s=60):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(limit_s)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def run_to_end(self, limit_s=30):
        """Exit code and everything it said."""
        code = self.start().ended(limit_s)
        return code, "".join(self.lines)


class Record:
    def __init__(self, message):
        self.key = None if message.key() is None else message.key().decode()
        self.value = None if message.value() is None else message.value().decode()
        self.partition = message.partition()
        self.timestamp_ms = message.timestamp()[1]
        self.headers = {name: value.decode() for name, value in message.headers() or []}
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
        self.consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": name, "log_level": 0,
                                  "fetch.wait.max.ms": 20})
        partitions = eventually(self._partitions, what=f"topic {name}")
        self.consumer.assign([TopicPartition(name, p, 0) for p in partitions])

    def _partitions(self):
        metadata = self.consumer.list_topics(self.name, timeout=10).topics[self.name]
        return list(metadata.partitions) if metadata.error is None else None

    def read(self, limit_s=0.5):
        """What is there now."""
        return [Record(m) for m in self.consumer.consume(5000, timeout=limit_s) if m.error() is None]

    def take(self, count, limit_s=60):
        """The next `count` records, no fewer."""
        records = []
        deadline = time.monotonic() + limit_s
        while len(records) < count:
            assert time.monotonic() < deadline, f"{len(records)} of {count} records in {limit_s} s"
            records += [Record(m) for m in self.consumer.consume(min(5000, count - len(records)), timeout=0.2)
                        if m.error() is None]
        return records

    def close(self):
        self.consumer.close()
