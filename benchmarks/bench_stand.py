"""A database, topics and configurations on the stand, for the benchmarks."""

import json
import os
import re
import subprocess
import tempfile
import time
import uuid

import psycopg
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

# The seven-column table of Outboxx's own benchmark.
TABLE = """
CREATE TABLE benchmark_records (
    id bigserial PRIMARY KEY,
    account_id bigint NOT NULL,
    amount numeric(20,6) NOT NULL,
    payload text NOT NULL,
    attributes jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now());
ALTER TABLE benchmark_records REPLICA IDENTITY FULL;
CREATE INDEX ON benchmark_records (account_id);
CREATE INDEX ON benchmark_records (created_at)"""

INSERT = """
INSERT INTO benchmark_records (account_id, amount, payload, attributes)
SELECT (g * 7919) %% 100000, (g %% 1000000) / 100.0, rpad(md5(g::text), 128, md5((g + 1)::text)),
       jsonb_build_object('n', g, 'kind', 'bench')
FROM generate_series(%s::bigint, %s::bigint) g"""

ROWS_PER_TRANSACTION = 10000


def dsn(database):
    return os.environ["MILLRACE_PG_URL"].rsplit("/", 1)[0] + "/" + database


def write_json(path, figures):
    """What --json asks for; nothing without a path."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


def peak_rss(pid):
    """Bytes, of a running process. The rusage of a child won't do: it counts the parent's before exec."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


class Stand:
    def __init__(self, arguments):
        self.arguments = arguments
        self.name = "bench_" + uuid.uuid4().hex[:8]
        self.folder = tempfile.mkdtemp(prefix="millrace-drain-")
        self.kafka = AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"]})
        self.topics = []

    def sql(self, text, parameters=None, database=None):
        with psycopg.connect(dsn(database or self.name), autocommit=True) as connection:
            cursor = connection.execute(text, parameters)
            return cursor.fetchall() if cursor.description else None

    def make_table(self):
        self.sql(f"CREATE DATABASE {self.name}", database="postgres")
        self.sql(TABLE)
        self.sql("CREATE PUBLICATION bench FOR TABLE benchmark_records")

    def add_rows(self, first, count):
        with psycopg.connect(dsn(self.name), autocommit=True) as connection:
            for begin in range(first, first + count, ROWS_PER_TRANSACTION):
                end = min(begin + ROWS_PER_TRANSACTION, first + count)
                connection.execute(INSERT, [begin + 1, end])

    def make_slot(self):
        slot = f"{self.name}_{uuid.uuid4().hex[:6]}"
        self.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        return slot

    def drop_slot(self, slot):
        deadline = time.monotonic() + 10
        while True:
            try:
                self.sql("SELECT pg_drop_replication_slot(%s)", [slot])
                return
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def timed(self, command, environment=None):
        """Wall seconds, CPU seconds, peak RSS in bytes and standard error of one program."""
        with tempfile.TemporaryFile() as errors:
            begin = time.monotonic()
            process = subprocess.Popen(command, stderr=errors, stdout=subprocess.DEVNULL,
                                       env={**os.environ, **(environment or {})})
            peak = 0
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid != 0:
                    break
                peak = max(peak, peak_rss(process.pid))
                time.sleep(0.02)
            wall = time.monotonic() - begin
            process.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            text = errors.read().decode()
        if process.returncode != 0:
            raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{text}")
        return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime,
                "rss": peak, "log": text}

    def write_config(self, slot, prefix):
        options = {"tables": '["public.benchmark_records"]', "topic_prefix": f'"{prefix}"',
                   "log.format": '"json"',
                   "source.postgres.connection_env": '"BENCH_URL"',
                   "source.postgres.slot_name": f'"{slot}"',
                   "source.postgres.publication_name": '"bench"',
                   "sink.kafka.brokers": f'["{os.environ["KAFKA_BOOTSTRAP"]}"]',
                   "http.address": '"127.0.0.1:0"'}  # a free port: another millrace may run
        options.update(line.split("=", 1) for line in self.arguments.option)
        path = os.path.join(self.folder, slot + ".toml")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{key} = {value}\n" for key, value in options.items())
        return path

    def make_topic(self, prefix):
        topic = f"{prefix}.public.benchmark_records"
        self.kafka.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        self.topics.append(topic)
        return topic

    def drop_topic(self, topic):
        self.kafka.delete_topics([topic])[topic].result()
        self.topics.remove(topic)

    def stream(self):
        """Table, slot and topic, and a millrace that streams them: its process and the topic."""
        self.make_table()
        slot = self.make_slot()
        topic = self.make_topic(slot)
        process = subprocess.Popen([os.environ["MILLRACE_BIN"], "--config", self.write_config(slot, slot)],
                                   stderr=subprocess.DEVNULL, env={**os.environ, "BENCH_URL": dsn(self.name)})
        return process, topic

    def count(self, topic):
        consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": "none"})
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.close()
        return high - low

    def close(self):
        if self.arguments.keep:
            return
        for (slot,) in self.sql("SELECT slot_name FROM pg_replication_slots WHERE database = %s",
                                [self.name], database="postgres"):
            self.drop_slot(slot)
        if self.topics:
            self.kafka.delete_topics(self.topics)
        self.sql(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)", database="postgres")
