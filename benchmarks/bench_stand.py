"""A database, topics and configurations on the stand, for the benchmarks."""

import argparse
import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic

from mixes import INSERT_SEVEN_COLUMNS, ROWS_PER_TRANSACTION, Inserts, blocks


def dsn(database):
    return os.environ["MILLRACE_PG_URL"].rsplit("/", 1)[0] + "/" + database


def rotated(items, number):
    """Who goes first in round `number`: each in its turn."""
    items = list(items)
    return items[number % len(items):] + items[:number % len(items)]


# ---- options: what is wrong is said before anything is measured ----

def counted(text):
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 on")
    return int(text)


def writable(path):
    """A file for the figures, in a folder that is there."""
    if os.path.isdir(path) or not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} can't be written")
    return path


def program(path):
    """Its whole path."""
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        raise SystemExit(f"{path} is not a program")
    return os.path.abspath(path)


def obey_sigterm():
    """So that a SIGTERM, too, ends the program that is being measured, and takes away what was made for it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def end(process):
    """In order where it can, within a minute."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def write_json(path, figures):
    """What --json asks for; nothing without a path."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


class Stand:
    def __init__(self, mix=None, options=(), keep=False):
        """`options`: lines of millrace's configuration, KEY=VALUE. `keep`: what was made stays, for a look."""
        self.options, self.keep = options, keep
        self.mix = mix or Inserts(0)
        self.name = "bench_" + uuid.uuid4().hex[:8]
        self.folder = tempfile.mkdtemp(prefix="millrace-drain-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.kafka = AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"]})
        self.topics, self.processes = [], []
        self.end_lsn = ""
        self.tail = None  # a slot before the last of a backlog, how many changes those are, and the mix's id before them

    def launch(self, command, stderr=subprocess.DEVNULL, **environment):
        """A program on this database that `close` ends, if it has not ended by then."""
        environment = {**os.environ, "BENCH_URL": dsn(self.name) + "?connect_timeout=120",  # Valgrind is slow
                       **environment}
        self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, text=True, env=environment))
        return self.processes[-1]

    def sql(self, text, parameters=None, database=None):
        with psycopg.connect(dsn(database or self.name), autocommit=True) as connection:
            cursor = connection.execute(text, parameters)
            return cursor.fetchall() if cursor.description else None

    def connected(self):
        return psycopg.connect(dsn(self.name), autocommit=True)

    def make_table(self):
        self.sql(f"CREATE DATABASE {self.name}", database="postgres")
        with self.connected() as connection:
            self.mix.make(connection)
            self.mix.prepare(connection)
            connection.execute("CREATE PUBLICATION bench FOR TABLE " + ", ".join(self.mix.tables))

    def add_rows(self, first, count):
        """Rows of the seven-column table, numbered from `first` + 1 on."""
        with self.connected() as connection:
            for begin, end in blocks(count, ROWS_PER_TRANSACTION):
                connection.execute(INSERT_SEVEN_COLUMNS, [first + begin, first + end])

    def touch(self):
        """A first change."""
        with self.connected() as connection:
            self.mix.touch(connection)

    def make_backlog(self):
        """The mix behind a slot, which is copied for each reader; and behind another its last tenth, for those that are slower by as much."""
        self.make_table()
        self.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])
        before = None
        with self.connected() as connection:
            for done, last in self.mix.fill(connection):
                if before is None and self.mix.rows * 9 // 10 <= done < self.mix.rows:
                    # What a slot begins to decode at is where all running transactions were last told of: a checkpoint tells of them.
                    connection.execute("CHECKPOINT")
                    before = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0], self.mix.rows - done, last
        self.end_lsn = self.sql("SELECT pg_current_wal_insert_lsn()")[0][0]
        # pg_recvlogical stops when it sees something at or behind the end.
        self.sql("SELECT txid_current()")
        self.sql("CHECKPOINT")
        if before:
            self.tail = self.copy_slot(), *before[1:]
            self.sql("SELECT pg_replication_slot_advance(%s, %s)", [self.tail[0], before[0]])

    def copy_slot(self, of=None):
        slot = f"{self.name}_{uuid.uuid4().hex[:6]}"
        self.sql("SELECT pg_copy_logical_replication_slot(%s, %s)", [of or self.name, slot])
        return slot

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

    def write_config(self, slot, prefix, **more):
        tables = ", ".join(f'"public.{table}"' for table in self.mix.tables)
        options = {"tables": f"[{tables}]", "topic_prefix": f'"{prefix}"',
                   "log.format": '"json"',
                   "source.postgres.connection": '"env:BENCH_URL"',
                   "source.postgres.slot_name": f'"{slot}"',
                   "source.postgres.publication_name": '"bench"',
                   "sink.kafka.brokers": f'["{os.environ["KAFKA_BOOTSTRAP"]}"]',
                   "http.address": '"127.0.0.1:0"'}  # a free port: another millrace may run
        options.update(line.split("=", 1) for line in self.options)
        options.update(more)
        path = os.path.join(self.folder, slot + ".toml")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{key} = {value}\n" for key, value in options.items())
        return path

    def socket_url(self):
        """The server by its Unix socket."""
        (folder,), = self.sql("SHOW unix_socket_directories")
        if not folder:
            raise SystemExit("this stand has no Unix socket: the path of its folder is too long")
        server, _, _ = dsn(self.name).partition("://")[2].rpartition("/")
        return (f"postgresql://{server.rpartition('@')[0]}@/{self.name}?host={urllib.parse.quote(folder, safe='')}"
                f"&port={server.rpartition(':')[2]}")

    def make_topic(self, prefix):
        """The topic of the mix's first table; those of the others are made too."""
        names = [f"{prefix}.public.{table}" for table in self.mix.tables]
        for made in self.kafka.create_topics([NewTopic(name, self.mix.partitions, 1) for name in names]).values():
            made.result()
        self.topics += names
        return names[0]

    def drop_topic(self, topic):
        prefix = topic[:topic.index(".") + 1]
        names = [name for name in self.topics if name.startswith(prefix)]
        for dropped in self.kafka.delete_topics(names).values():
            dropped.result()
        self.topics = [name for name in self.topics if name not in names]

    def close(self):
        for process in self.processes:
            end(process)
        if self.keep:
            return
        self.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s AND active",
                 [self.name], database="postgres")
        for (slot,) in self.sql("SELECT slot_name FROM pg_replication_slots WHERE database = %s",
                                [self.name], database="postgres"):
            self.drop_slot(slot)
        if self.topics:
            self.kafka.delete_topics(self.topics)
        self.sql(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)", database="postgres")
