"""The fault director: load, faults by a seed, and the verdict of the checker.

    python director.py --minutes N --seed S     (tests/soak.sh makes the servers for it, and tells of the other options)

The seed fixes workload and schedule. Real processes are not deterministic, so it does not fix how they interleave."""

import argparse
import glob
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "wide")]

# pylint: disable=wrong-import-position
import psycopg
from confluent_kafka.admin import NewTopic

from checker import Checker
from cluster import Cluster
from kafka_faults import KafkaFaults
from kit import Database, dsn, eventually, stand
from network_faults import NetworkFaults
from postgres_faults import PostgresFaults
from profiler_clients import Clients, check_folder
from recovery import Recovery
from sampler import Sampler
from servers import Broker, Proxy
from storm import WideLoad
from subjects import STREAMED, SUBJECTS, show_stacks
from workload import SCHEMA, TABLES, Workload

PARTITIONS = 3


class Scene(KafkaFaults, PostgresFaults, NetworkFaults):
    """PostgreSQL of the stand, a broker of its own, proxies in front of both, and load. Between them `subject`, which
    is millrace or, to compare, another of subjects.py; the faults speak of millrace and mean it.

    `broker`: another one, or a cluster, that the caller closes. `profiler`: millrace's does all it can, or less
    from one start to the next, and clients ask for profiles."""

    def __init__(self, seed, writers=4, delivery="at-least-once", peer="millrace", broker=None, profiler=False, **options):
        self.chance = random.Random(seed)
        self.seed = seed
        self.delivery = delivery
        self.profiler = profiler
        self.counts = Counter()
        self.folder = tempfile.mkdtemp(prefix="millrace-faults-")
        self.broker, self.own_broker = broker, broker is None
        self.pg_proxy = self.database = self.subject = self.workload = self.sampler = None
        self.recovery = self.clients = self.wide = None
        self.partitions = PARTITIONS
        self.altered = 0
        try:
            self._build(writers, SUBJECTS[peer], options)
        except BaseException:
            self.close()
            raise

    def _build(self, writers, subject, options):
        self.broker = self.broker or Broker()
        self.pg_proxy = Proxy(int(os.environ["PGPORT"]))
        self.database = Database()
        self.database.run(SCHEMA)
        if subject.is_millrace:
            self.wide = WideLoad(self.database, self.seed, lambda: self.workload.resting)
            self.wide.prepare(STREAMED)
        self.topics = [self.database.topic(table) for table in TABLES]
        made = self.broker.admin.create_topics([NewTopic(topic, PARTITIONS) for topic in self.topics])
        for answer in made.values():
            answer.result()
        self.subject = subject(self, options)
        self.subject.start()
        begun = str(eventually(lambda: self.database.slot_row("confirmed_flush_lsn"), 600, "a slot that has been made"))
        self.accounts = self.rows("acct")
        self.workload = Workload(dsn(self.database.name), self.seed, writers).start()
        if self.wide is not None:
            # The names in "tables" must have been there once, for a start that has stored nothing refuses those that are not.
            eventually(lambda: self.database.slot_row("confirmed_flush_lsn > %s::pg_lsn" % repr(begun)), 600, "a stored position")
            self.wide.start()
        self.sampler = Sampler(self.database, self.broker, self.topics, PARTITIONS, self.workload)
        self.sampler.start()
        self.recovery = Recovery(self.broker.direct, self.topics[0], PARTITIONS)
        self.recovery.start()
        if self.profiler:
            self.clients = Clients(lambda: self.subject.process, self.subject.http, self.seed).start()

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

    # ---- the storm ----

    def common_faults(self):
        """(weight, fault): the quick ones more often. What any subject must stand."""
        faults = [(9, self.kill), (4, self.terminate), (2, self.freeze), (2, self.broker_kill),
                  (1, self.broker_restart), (2, self.broker_freeze), (3, self.pg_crash), (1, self.pg_restart),
                  (3, self.backend_terminated), (1, self.publication_altered), (1, self.table_altered),
                  (2, self.cut_kafka), (2, self.cut_kafka_answers), (1, self.cut_pg), (1, self.cut_pg_answers),
                  (3, self.cut_and_kill), (3, self.reset)]
        if self.clustered():
            faults += [(1, self.rolling_restart), (1, self.leader_kill), (1, self.two_brokers_away)]
            if self.delivery == "exactly-once": # else there are no transactions
                faults.append((1, self.coordinator_kill))
        return faults

    def faults(self):
        """With those that are about millrace's own ways."""
        faults = self.common_faults()
        if self.subject.is_millrace:
            faults.append((1, self.record_refused))
        if self.subject.is_millrace and self.delivery == "exactly-once":
            faults.append((2, self.fenced))
        return faults

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

    def storm(self, seconds, every=None, kills=0):
        """`every`: a fault each so many seconds, of those that are common to all, so that the same seed gives the same
        faults whoever is judged; otherwise one soon after the other. `kills`: so many at least, spread over the whole;
        while there are fewer than that asks for, each second fault is one."""
        weights, faults = zip(*(self.common_faults() if every else self.faults()))
        begin, number = time.monotonic(), 0
        while time.monotonic() < begin + seconds and (every is None or number < seconds // every):
            self._pause(begin + number * every if every else 0)
            time.sleep(self.chance.uniform(0.1, 2))
            drawn = self.chance.choices(faults, weights)[0]
            behind = self.counts["kills"] * seconds < kills * (time.monotonic() - begin)
            self.run_fault(self.kill if behind and number % 2 else drawn)
            number += 1
        self.counts["faults"] = number

    def _pause(self, until):
        while time.monotonic() < until:
            self.revive()
            time.sleep(0.1)

    # ---- the end ----

    def _confirmed_past(self, before):
        """What the slot has confirmed, once it is more than that; None until then."""
        self.revive()
        confirmed = self.database.slot_row("confirmed_flush_lsn - '0/0'")
        return confirmed if confirmed is not None and confirmed > before else None

    def settle(self):
        """Ends the load, lets millrace deliver everything, and stops it in order. What is left may be a lot on a busy
        machine: the limit is for the time without any progress."""
        self.workload.finish()
        if self.wide is not None:
            self.wide.finish()
        self.revive()
        end = self.database.run("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0]
        confirmed = -1
        try:
            while confirmed < end:
                confirmed = eventually(lambda seen=confirmed: self._confirmed_past(seen), self.subject.settle_limit_s,
                                       "progress towards delivery of everything")
        except AssertionError as error:
            slots = self.database.run("SELECT slot_name, active, confirmed_flush_lsn - '0/0' FROM pg_replication_slots")
            show_stacks(self.subject.process.pid)
            raise AssertionError(f"{error}\nthe log ends at {end}, slots: {slots}\n{self.subject.said()}") from None
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
        if self.wide is not None:
            problems, judge = self.wide.judge(self.broker.direct, self.topics, self.delivery == "exactly-once")
            for kind, text in problems:
                checker.report.wrong(f"wide: {kind}", text)
            self.counts["wide events"], self.counts["wide transactions"] = len(judge.events), self.wide.units
        for problem in self.clients.problems if self.clients is not None else ():
            checker.report.wrong("profile", problem)
        if self.clients is not None:
            self.counts["files of the profiler"] = check_folder(os.path.join(self.folder, "profiles"))
        for line in self.subject.log:
            for canary in ("rolled back", "xxxxxxxx", "millrace-stand"):
                if canary in line:
                    checker.report.wrong("row or secret in the log", line[:200])
        return checker.report

    def summary(self, report):
        c = self.counts
        crashes = c["broker crashes"] + c["server crashes"]
        others = ", ".join(f"{count} {name}" for name, count in sorted(c.items()) if name not in ("kills", "cuts"))
        longest, fault = self.recovery.finish()
        profiles = f"; {self.clients.line()}" if self.clients is not None else ""
        return (f"{report.line()}; {c['kills']} kills, {crashes} crashes of broker or server, {c['cuts']} cuts "
                f"({others}); longest recovery {longest:.1f} s ({fault}){profiles}")

    def tell_what_was_said(self, lines=60):
        """For whoever looks why a storm broke off: the logs are gone with the stand."""
        for path in glob.glob(os.path.join(os.environ["MILLRACE_STAND_DIR"], "logs", "pg*.log")):
            with open(path, encoding="utf-8", errors="replace") as file:
                print(f"--- PostgreSQL's last lines\n{''.join(file.readlines()[-lines:])}", file=sys.stderr)
        if self.subject is not None:
            print(f"--- the subject's last lines\n{self.subject.said(lines)}", file=sys.stderr)

    def keep(self, folder):
        """For whoever looks what went wrong: all that millrace said, and the brokers' files once they are closed."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        with open(os.path.join(folder, "millrace.log"), "w", encoding="utf-8") as file:
            file.writelines(self.subject.log)
        for broker in self.broker.nodes if self.clustered() else [self.broker]:
            broker.keep_in = folder
        print(f"logs and brokers' files: {folder}", file=sys.stderr)

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
        if self.own_broker and self.broker is not None:
            self.broker.close()
        if self.pg_proxy is not None:
            self.pg_proxy.close()
        if self.wide is not None:
            self.wide.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        stand("pg-start")
        if self.database is not None:
            self.database.drop()
            self.database.run(f"DROP ROLE IF EXISTS {self.database.name}_guest", database="postgres")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--delivery", choices=["at-least-once", "exactly-once"], default="at-least-once")
    parser.add_argument("--peer", choices=list(SUBJECTS), default="millrace")
    parser.add_argument("--every", type=float)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--profiler", action="store_true")
    arguments = parser.parse_args()
    if arguments.peer != "millrace" and (arguments.profiler or arguments.brokers > 1):
        parser.error("--profiler and --brokers 3 are for millrace only")
    return run(arguments)


def run(arguments):
    cluster = scene = None
    try:
        cluster = Cluster() if arguments.brokers > 1 else None
        scene = Scene(arguments.seed, arguments.writers, arguments.delivery, arguments.peer, cluster,
                      arguments.profiler)
        scene.storm(arguments.minutes * 60, arguments.every, arguments.kills)
        report = scene.check()
        if report.problems:
            scene.keep(os.path.join(ROOT, "build", f"storm-{arguments.seed}"))
    except BaseException:
        if scene is not None:
            scene.tell_what_was_said()
        raise
    finally:
        for made in (scene, cluster):
            if made is not None:
                made.close()
    also = ", 3 brokers" if arguments.brokers > 1 else ""
    also += ", profiler at 1000 Hz" if arguments.profiler else ""
    print(f"storm {arguments.peer} {arguments.delivery}{also}, seed {arguments.seed}, {arguments.minutes:g} min: "
          f"{scene.summary(report)}", flush=True)
    for kind, count in report.problems.items():
        print(f"  {kind}: {count}, for example {report.examples[kind]}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
