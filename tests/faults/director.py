"""The fault director: load, faults by a seed, and the verdict of the checker.

    python director.py --minutes N --seed S [--delivery exactly-once] [--profiler]   (tests/soak.sh makes the servers)

The seed fixes workload and schedule. Real processes are not deterministic, so it does not fix how they interleave."""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

# pylint: disable=wrong-import-position
import psycopg
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from checker import Checker
from kit import Database, Millrace, dsn, eventually, is_linked_with, stand
from profiler_clients import Clients
from servers import Broker, Proxy, free_port
from workload import SCHEMA, TABLES, Workload

PARTITIONS = 3
# What may end a millrace that nobody killed: an orderly stop, and one that could not wait for everything.
ORDERLY = (0, 3)


def show_stacks(pid):
    """What all threads do, into the log; the process is about to be given up."""
    done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"], capture_output=True,
                          text=True, timeout=120, check=False)
    print(done.stdout, file=sys.stderr, flush=True)


class Sampler(threading.Thread):
    """Notes what the slot has confirmed, and then how far the topics go. It reaches both servers directly."""

    def __init__(self, database, broker, topics):
        super().__init__(daemon=True)
        self.database, self.broker, self.topics = database, broker, topics
        self.stopping = threading.Event()
        self.samples = []

    def run(self):
        connection = client = None
        while not self.stopping.wait(0.1):
            try:
                if connection is None:
                    connection = psycopg.connect(dsn("postgres"), autocommit=True, connect_timeout=5)
                row = connection.execute("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots "
                                         "WHERE slot_name = %s", [self.database.slot]).fetchone()
                started = self.broker.started
                client = client or self.broker.client()
                if row is not None and row[0] is not None:
                    ends = self._ends(client)
                    # A broker that just started may answer with ends older than its log.
                    if started == self.broker.started and time.monotonic() - started > 2:
                        self.samples.append((int(row[0]), ends))
            except psycopg.OperationalError:
                connection = None
            except KafkaException:
                client = None  # it would keep the leader epochs of before a broker's restart

    def _ends(self, client):
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for topic in self.topics for p in range(PARTITIONS)}
        # Also where it is told apart: the ends of committed records come a moment after the commit's answer.
        answers = client.list_offsets(asked, request_timeout=5, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return {(where.topic, where.partition): answer.result().offset for where, answer in answers.items()}

    def finish(self):
        self.stopping.set()
        self.join(30)
        return self.samples


class Scene:
    """PostgreSQL of the stand, a broker of its own, proxies in front of both, millrace between them, and load."""

    def __init__(self, seed, writers=4, delivery="at-least-once", profiler=False, end_limit_s=60, **options):
        self.chance = random.Random(seed)
        self.seed = seed
        self.delivery = delivery
        self.end_limit_s = end_limit_s  # for a millrace that was told to end
        self.counts = Counter()
        self.folder = tempfile.mkdtemp(prefix="millrace-faults-")
        self.broker = self.pg_proxy = self.database = self.millrace = self.workload = self.sampler = None
        self.clients = None
        self.log = []  # lines of millraces that have ended
        self.codes = []
        self.altered = 0
        try:
            self._build(writers, {**(self.profiling() if profiler else {}), **options})
            if profiler:
                self.clients = Clients(lambda: self.millrace.process, self.http, seed).start()
        except BaseException:
            self.close()
            raise

    def _build(self, writers, options):
        self.broker = Broker()
        self.pg_proxy = Proxy(int(os.environ["PGPORT"]))
        self.database = Database()
        self.database.run(SCHEMA)
        self.topics = [self.database.topic(table) for table in TABLES]
        made = self.broker.admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in self.topics])
        for answer in made.values():
            answer.result()
        self.values = {"sink__kafka__brokers": f'["{self.broker.proxied}"]', "pipeline__reconnect_max": '"1s"',
                       "pipeline__shutdown_deadline": '"5s"', "pipeline__batches": "8",
                       "pipeline__batch_size": '"32KiB"', "log__level": '"debug"',
                       "sink__kafka__delivery": f'"{self.delivery}"', **options}
        self.millrace = Millrace(self.database, self.folder, ("ledger", "acct", "churn"), **self.values)
        self.millrace.environment["TEST_URL"] = dsn(self.database.name, self.pg_proxy.port)
        self.millrace.start()
        eventually(lambda: self.database.slot_row("slot_name"), 60, "the slot")
        self.accounts = self.rows("acct")
        self.workload = Workload(dsn(self.database.name), self.seed, writers).start()
        self.sampler = Sampler(self.database, self.broker, self.topics)
        self.sampler.start()

    def profiling(self):
        """Options of a millrace whose profiler does all it can, on a port that stays the same."""
        self.http = f"127.0.0.1:{free_port()}"
        return {"http__address": f'"{self.http}"', "profiling__endpoints": "true", "profiling__frequency": "1000",
                "profiling__recorder": "true", "profiling__interval": '"2s"', "profiling__keep_intervals": "20",
                "profiling__path": f'"{os.path.join(self.folder, "profiles")}"',
                **({"profiling__heap": "true"} if is_linked_with("jemalloc") else {})}

    def rows(self, table):
        """The table's rows as {column: text}; what is null is left out."""
        found = self.database.run(f"SELECT to_jsonb(t) FROM {table} t")
        return [{name: str(value) for name, value in row.items() if value is not None} for (row,) in found]

    # ---- millrace ----

    def ended(self):
        """Notes how a millrace ended; a bug that ends it is found here."""
        code = self.millrace.ended(self.end_limit_s)
        self.log += self.millrace.lines
        self.codes.append(code)
        return code

    def revive(self):
        """Starts millrace when it does not run, as a supervisor would."""
        if self.millrace.process.poll() is not None:
            code = self.ended()
            assert code in ORDERLY, f"millrace ended with {code}:\n{''.join(self.millrace.lines[-5:])}"
            self.millrace.start()

    def kill(self):
        self.revive()
        self.millrace.process.kill()
        self.ended()
        self.counts["kills"] += 1
        self.millrace.start()

    def terminate(self):
        """SIGTERM, and what it promises: an end in time, with one of two codes."""
        self.revive()
        self.millrace.wait_for("started", 60)  # from then on it listens to signals
        self.millrace.process.send_signal(signal.SIGTERM)
        code = self.ended()
        assert code in ORDERLY, f"SIGTERM ended with {code}:\n{''.join(self.millrace.lines[-5:])}"
        self.counts["stops"] += 1
        self.millrace.start()

    def freeze(self):
        self.revive()
        self.millrace.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(self.chance.uniform(0.2, 3))
        finally:
            self.millrace.process.send_signal(signal.SIGCONT)
        self.counts["freezes"] += 1

    # ---- Kafka ----

    def broker_kill(self):
        self.broker.stop(signal.SIGKILL)
        time.sleep(self.chance.uniform(0, 1))
        self.broker.start()
        self.counts["broker crashes"] += 1

    def broker_restart(self):
        self.broker.stop(signal.SIGTERM)
        self.broker.start()
        self.counts["broker restarts"] += 1

    def broker_freeze(self):
        self.broker.send(signal.SIGSTOP)
        try:
            time.sleep(self.chance.uniform(0.5, 4))
        finally:
            self.broker.send(signal.SIGCONT)
        self.counts["freezes"] += 1

    # ---- PostgreSQL ----

    def pg_crash(self):
        stand("pg-stop", "immediate")
        stand("pg-start")
        self.counts["server crashes"] += 1

    def pg_restart(self):
        stand("pg-stop", "fast")
        stand("pg-start")
        self.counts["server restarts"] += 1

    def backend_terminated(self):
        self.database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s "
                          "AND active_pid IS NOT NULL", [self.database.slot], database="postgres")
        self.counts["backends terminated"] += 1

    def publication_altered(self):
        """Table `extra` joins and leaves; it is written all the time."""
        publication = self.database.publication
        listed = self.database.run("SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND tablename = 'extra'",
                                   [publication])
        self.database.run("INSERT INTO extra (v) SELECT 'before' FROM generate_series(1, 5)")
        self.database.run(f"ALTER PUBLICATION {publication} {'DROP' if listed else 'ADD'} TABLE extra")
        self.database.run("INSERT INTO extra (v) SELECT 'behind' FROM generate_series(1, 5)")
        self.counts["publication altered"] += 1

    def table_altered(self):
        """Columns come and go; in one transaction with changes before and behind."""
        self.altered += 1
        new, old = f"c{self.altered}", f"c{self.altered - 1}"
        self.database.run(f"""
            BEGIN; SET LOCAL lock_timeout = '5s';
            INSERT INTO churn (k, v) VALUES (-{self.altered}, 'before');
            ALTER TABLE churn ADD COLUMN {new} text; ALTER TABLE churn DROP COLUMN IF EXISTS {old};
            INSERT INTO churn (k, v, {new}) VALUES (-{self.altered} - 100000, 'behind', 'new');
            COMMIT""")
        self.counts["tables altered"] += 1

    # ---- the network ----

    def _cut(self, proxy, mode, low_s, high_s):
        proxy.set(mode)
        try:
            time.sleep(self.chance.uniform(low_s, high_s))
        finally:
            proxy.set(self.chance.choice(["pass", "reset"]))
        self.counts["cuts"] += 1

    def cut_kafka(self):
        self._cut(self.broker.proxy, "hold", 0.5, 4)

    def cut_kafka_answers(self):
        """Records arrive, acknowledgements do not; often they are lost altogether."""
        self._cut(self.broker.proxy, "hold-down", 0.5, 4)

    def cut_pg(self):
        self._cut(self.pg_proxy, "hold", 0.2, 3)

    def cut_pg_answers(self):
        self._cut(self.pg_proxy, "hold-down", 0.2, 3)

    def cut_and_kill(self):
        """What millrace was told, and what not, differs most when it dies behind a cut."""
        self.broker.proxy.set(self.chance.choice(["hold", "hold-down"]))
        try:
            time.sleep(self.chance.uniform(1, 2.5))
            self.kill()
        finally:
            self.broker.proxy.set("reset")
        self.counts["cuts"] += 1

    def reset(self):
        self.chance.choice([self.broker.proxy, self.pg_proxy]).set("reset")
        self.counts["cuts"] += 1

    # ---- the storm ----

    def faults(self):
        """(weight, fault): the quick ones more often."""
        return [(9, self.kill), (4, self.terminate), (2, self.freeze), (1, self.broker_kill), (1, self.broker_restart),
                (2, self.broker_freeze), (2, self.pg_crash), (1, self.pg_restart), (3, self.backend_terminated),
                (1, self.publication_altered), (1, self.table_altered), (2, self.cut_kafka),
                (2, self.cut_kafka_answers), (1, self.cut_pg), (1, self.cut_pg_answers), (3, self.cut_and_kill),
                (3, self.reset)]

    def run_fault(self, fault):
        try:
            fault()
        except psycopg.errors.LockNotAvailable:
            pass  # a long transaction held the table
        finally:
            self.revive()

    def mix(self):
        """Every fault once, in an order that the seed gives."""
        faults = [fault for _, fault in self.faults()]
        self.chance.shuffle(faults)
        for fault in faults:
            time.sleep(self.chance.uniform(0.1, 0.6))
            self.run_fault(fault)

    def storm(self, seconds):
        weights, faults = zip(*self.faults())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.chance.uniform(0.1, 2))
            self.run_fault(self.chance.choices(faults, weights)[0])

    # ---- the end ----

    def settle(self, limit_s=180):
        """Ends the load, lets millrace deliver everything, and stops it in order."""
        self.workload.finish()
        self.revive()
        end = self.database.run("SELECT pg_current_wal_insert_lsn()")[0][0]
        try:
            eventually(lambda: self.revive() or self.database.slot_row(f"confirmed_flush_lsn >= '{end}'"), limit_s,
                       "delivery of everything")
        except AssertionError:
            print(f"up to {end}:", self.database.run("SELECT * FROM pg_replication_slots"), file=sys.stderr)
            print("".join(self.millrace.lines[-20:]), file=sys.stderr)
            show_stacks(self.millrace.process.pid)
            raise
        assert self.millrace.stop(self.end_limit_s) == 0, "".join(self.millrace.lines[-5:])
        self.log += self.millrace.lines
        return self.sampler.finish()

    def check(self):
        """Settles, reads everything and answers the checker's report."""
        if self.clients is not None:
            self.clients.finish()
        samples = self.settle()
        checker = Checker(self.broker.direct, self.database.prefix, TABLES)
        rows = {(writer, txno): count for writer, txno, count in self.database.run(
            "SELECT writer, txno, count(*) FROM ledger GROUP BY 1, 2")}
        checker.check_rows(rows, self.workload.journals())
        checker.check_transactions()
        checker.check_parts()
        checker.check_versions()
        checker.check_fold("acct", "id", self.rows("acct"), self.accounts)
        checker.check_fold("churn", "k", self.rows("churn"))
        checker.check_samples(samples)
        if self.delivery == "exactly-once" and checker.report.duplicates:
            checker.report.wrong("repeats", "of committed records", checker.report.duplicates)
        for problem in self.clients.problems if self.clients is not None else ():
            checker.report.wrong("profile", problem)
        for line in self.log:
            for canary in ("rolled back", "xxxxxxxx", "millrace-stand"):
                if canary in line:
                    checker.report.wrong("row or secret in the log", line[:200])
        return checker.report

    def summary(self, report):
        c = self.counts
        others = ", ".join(f"{count} {name}" for name, count in sorted(c.items()) if name not in ("kills", "cuts"))
        profiles = f"; {self.clients.line()}" if self.clients is not None else ""
        return f"{report.line()}; {c['kills']} kills, {c['cuts']} cuts, {others}{profiles}"

    def close(self):
        """Leaves the stand as it was, whatever happened."""
        for busy in (self.workload, self.clients):
            if busy is not None:
                busy.stopping.set()
        if self.sampler is not None:
            self.sampler.finish()
        if self.millrace is not None and self.millrace.process is not None and self.millrace.process.poll() is None:
            self.millrace.kill()
        if self.broker is not None:
            self.broker.close()
        if self.pg_proxy is not None:
            self.pg_proxy.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        stand("pg-start")
        if self.database is not None:
            self.database.drop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--delivery", choices=["at-least-once", "exactly-once"], default="at-least-once")
    parser.add_argument("--profiler", action="store_true")
    arguments = parser.parse_args()
    scene = Scene(arguments.seed, arguments.writers, arguments.delivery, arguments.profiler)
    try:
        scene.storm(arguments.minutes * 60)
        report = scene.check()
    finally:
        scene.close()
    profiled = ", profiler at 1000 Hz" if arguments.profiler else ""
    print(f"storm {arguments.delivery}{profiled}, seed {arguments.seed}, {arguments.minutes:g} min: "
          f"{scene.summary(report)}", flush=True)
    for kind, count in report.problems.items():
        print(f"  {kind}: {count}, for example {report.examples[kind]}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
