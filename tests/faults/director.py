"""The fault director: load, faults by a seed, and the verdict of the checker.

    python director.py --minutes N --seed S     (tests/soak.sh makes the servers for it, and tells of the rest)

The seed fixes workload and schedule. Real processes are not deterministic, so it does not fix how they interleave."""

import argparse
import os
import random
import shutil
import signal
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
from kit import Database, dsn, eventually, is_linked_with, stand
from profiler_clients import Clients
from recovery import Recovery
from servers import Broker, Proxy, free_port
from subjects import SUBJECTS
from workload import SCHEMA, TABLES, Workload

PARTITIONS = 3


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
    """PostgreSQL of the stand, a broker of its own, proxies in front of both, and load. Between them `subject`, which is
    millrace or, to compare, another of subjects.py; the faults speak of millrace and mean it."""

    def __init__(self, seed, writers=4, delivery="at-least-once", peer="millrace", subject=None, profiler=False,
                 **options):
        """`subject`: a class in place of the one that `peer` names. `profiler`: millrace is sampled all the time, and
        clients ask for profiles."""
        self.chance = random.Random(seed)
        self.seed = seed
        self.delivery = delivery
        self.counts = Counter()
        self.folder = tempfile.mkdtemp(prefix="millrace-faults-")
        self.broker = self.pg_proxy = self.database = self.subject = self.workload = self.sampler = None
        self.recovery = self.clients = None
        self.altered = 0
        try:
            self._build(writers, subject or SUBJECTS[peer], {**(self.profiling() if profiler else {}), **options})
            if profiler:
                self.clients = Clients(lambda: self.subject.millrace.process, self.http, seed).start()
        except BaseException:
            self.close()
            raise

    def _build(self, writers, subject, options):
        self.broker = Broker()
        self.pg_proxy = Proxy(int(os.environ["PGPORT"]))
        self.database = Database()
        self.database.run(SCHEMA)
        self.topics = [self.database.topic(table) for table in TABLES]
        made = self.broker.admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in self.topics])
        for answer in made.values():
            answer.result()
        self.subject = subject(self, options)
        self.subject.start()
        eventually(lambda: self.database.slot_row("slot_name"), 600, "the slot")
        self.accounts = self.rows("acct")
        self.workload = Workload(dsn(self.database.name), self.seed, writers).start()
        self.sampler = Sampler(self.database, self.broker, self.topics)
        self.sampler.start()
        self.recovery = Recovery(self.broker.direct, self.topics[0], PARTITIONS)
        self.recovery.start()

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

    def revive(self):
        """As a supervisor would."""
        self.subject.revive()

    def kill(self):
        self.revive()
        self.subject.kill()
        self.counts["kills"] += 1

    def terminate(self):
        self.revive()
        self.subject.terminate()
        self.counts["stops"] += 1

    def freeze(self):
        self.revive()
        self.subject.signal(signal.SIGSTOP)
        try:
            time.sleep(self.chance.uniform(0.2, 3))
        finally:
            self.subject.signal(signal.SIGCONT)
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
        self.recovery.fault_ended(fault.__name__)

    def mix(self):
        """Every fault once, in an order that the seed gives."""
        faults = [fault for _, fault in self.faults()]
        self.chance.shuffle(faults)
        for fault in faults:
            time.sleep(self.chance.uniform(0.1, 0.6))
            self.run_fault(fault)

    def storm(self, seconds, every=None):
        """`every`: a fault each so many seconds, so that the same seed gives the same faults whoever is judged;
        otherwise one soon after the other."""
        weights, faults = zip(*self.faults())
        begin, number = time.monotonic(), 0
        while time.monotonic() < begin + seconds and (every is None or number < seconds // every):
            self._pause(begin + number * every if every else 0)
            time.sleep(self.chance.uniform(0.1, 2))
            self.run_fault(self.chance.choices(faults, weights)[0])
            number += 1
        self.counts["faults"] = number

    def _pause(self, until):
        while time.monotonic() < until:
            self.revive()
            time.sleep(0.1)

    # ---- the end ----

    def settle(self):
        """Ends the load, lets millrace deliver everything, and stops it in order."""
        self.workload.finish()
        self.revive()
        end = self.database.run("SELECT pg_current_wal_insert_lsn()")[0][0]
        try:
            eventually(lambda: self.revive() or self.database.slot_row(f"confirmed_flush_lsn >= '{end}'"),
                       self.subject.settle_limit_s, "delivery of everything")
        except AssertionError:
            print(f"up to {end}:", self.database.run("SELECT * FROM pg_replication_slots"), file=sys.stderr)
            self.subject.show()
            raise
        self.subject.finish()
        return self.sampler.finish()

    def check(self):
        """Settles, reads everything and answers the checker's report."""
        if self.clients is not None:
            self.clients.finish()
        samples = self.settle()
        checker = Checker(self.broker.direct, self.database.prefix, TABLES, self.subject.form())
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
        for line in self.subject.log:
            for canary in ("rolled back", "xxxxxxxx", "millrace-stand"):
                if canary in line:
                    checker.report.wrong("row or secret in the log", line[:200])
        return checker.report

    def summary(self, report):
        c = self.counts
        others = ", ".join(f"{count} {name}" for name, count in sorted(c.items()) if name not in ("kills", "cuts"))
        longest, fault = self.recovery.finish()
        profiles = f"; {self.clients.line()}" if self.clients is not None else ""
        return (f"{report.line()}; {c['kills']} kills, {c['cuts']} cuts, {others}; "
                f"longest recovery {longest:.1f} s ({fault}){profiles}")

    def close(self):
        """Leaves the stand as it was, whatever happened."""
        for busy in (self.workload, self.clients):
            if busy is not None:
                busy.stopping.set()
        if self.sampler is not None:
            self.sampler.finish()
        if self.recovery is not None:
            self.recovery.finish()
        if self.subject is not None:
            self.subject.close()
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
    parser.add_argument("--peer", choices=list(SUBJECTS), default="millrace")
    parser.add_argument("--every", type=float)
    parser.add_argument("--profiler", action="store_true")
    arguments = parser.parse_args()
    scene = Scene(arguments.seed, arguments.writers, arguments.delivery, arguments.peer, profiler=arguments.profiler)
    try:
        scene.storm(arguments.minutes * 60, arguments.every)
        report = scene.check()
    finally:
        scene.close()
    profiled = ", profiler at 1000 Hz" if arguments.profiler else ""
    print(f"storm {arguments.peer} {arguments.delivery}{profiled}, seed {arguments.seed}, {arguments.minutes:g} min: "
          f"{scene.summary(report)}", flush=True)
    for kind, count in report.problems.items():
        print(f"  {kind}: {count}, for example {report.examples[kind]}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
