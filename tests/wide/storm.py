"""The wide workload as part of a storm: written all the time beside the ledger, while servers, connections and millrace go
away; judged at the end. What a transaction became that was being committed as the server went, its marker tells."""

import copy
import threading
import time

import psycopg

from execute import Executor, connection_lost, quote
from judge import Judge
from kit import eventually
from plan import Generator, Plan
from topics import read

# What would end millrace at its next start, which says so ("nothing", "publication-ddl"); keys that nobody can know ("key-ddl",
# "drop-full"); and what is left to the runs of tests/wide.sh.
WITHOUT = ("nothing", "publication-ddl", "key-ddl", "drop-full", "encoding", "settings", "messages", "origin", "no-key", "schemas")


class WideLoad:
    """`resting`: called before each transaction; true while there is to be none."""

    def __init__(self, database, seed, resting=lambda: False):
        self.database, self.resting = database, resting
        self.generator = Generator(seed, without=WITHOUT)
        self.generator.prepare_plan()
        self.generator.publication_kind = "tables"  # a table made anew joins it
        plan = Plan(seed, {**self.generator.options, "name_roots": False}, self.generator.setup, "", [], threads=True)
        self.executor = Executor(database, plan, 0.15)
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.threads, self.failures = [], []
        self.units = 0

    def prepare(self, others):
        """Tables, and the publication with them and `others`."""
        tables = [table.sql for found in self.generator.tables.values() for table in found] + [self.generator.shared.sql, "w.marker"]
        self.executor.plan.publication = (f"CREATE PUBLICATION {{publication}} FOR TABLE {', '.join([*others, *tables])}"
                                          f"{self.generator.publication_options()}")
        self.executor.foreign = {("public", table) for table in others}
        self.executor.prepare()

    def configured(self):
        return [f"{quote(schema)}.{quote(name)}" for schema, name in self.names()]

    def names(self):
        return self.executor.configured()

    def start(self):
        for writer in self.generator.tables:
            self.threads.append(threading.Thread(target=self.write, args=(writer,), daemon=True))
            self.threads[-1].start()
        return self

    def write(self, writer):
        try:
            while not self.stopping.is_set():
                if self.resting():
                    time.sleep(0.1)
                else:
                    self.unit(writer)
        except Exception as error:  # pylint: disable=broad-except # told by finish
            self.failures.append(error)

    def unit(self, writer):
        """One transaction; when it comes to nothing the generator forgets what it did to the tables."""
        with self.lock:
            before = copy.deepcopy(self.generator.tables[writer])
            steps = self.generator.unit_of(writer)
            steps += [self.generator.steps(writer)(text) for owner, text in self.generator.open_prepared if owner == writer]
            self.generator.open_prepared = [held for held in self.generator.open_prepared if held[0] != writer]
            self.units += 1
        try:
            for step in steps:
                self.executor.step(step)
        except psycopg.OperationalError as error:
            if not connection_lost(error):
                raise
            self.executor.connections.pop(writer).close()
            eventually(lambda: self.executor.connection(writer), 300, "the server")
            self.end_prepared(writer, steps)
            self.executor.skipped[writer] = steps[0].unit
        if self.executor.skipped.get(writer) == steps[0].unit:
            with self.lock:
                self.generator.tables[writer] = before

    def end_prepared(self, writer, steps):
        """What the server may have kept of a transaction that was being prepared as it went."""
        name = f"{self.database.name} {steps[0].unit}"
        connection = self.executor.connection(writer)
        if connection.execute("SELECT 1 FROM pg_prepared_xacts WHERE gid = %s", [name]).fetchone():
            connection.execute(f"ROLLBACK PREPARED '{name}'")

    def finish(self):
        """Ends the load, with a picture of everything."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a wide writer does not end"
        if self.failures:
            raise self.failures[0]
        main = self.executor.connections.pop("main", None)  # maybe of before a crash
        if main is not None:
            main.close()
        self.executor.end_transactions()
        self.executor.end_prepared()
        self.executor.picture_of_all()

    def judge(self, bootstrap, others, exactly_once):
        """(problems, events). `others`: topics that are not of this."""
        capture = read(bootstrap, self.database.prefix + ".", without=others)
        promise = {"exactly_once": exactly_once, "reselects": False, "replaced_bytes": False, "keys_unknown": set(), "taken_for_partitions": set(), "database": self.database.name, "times_ms": (0, 1 << 62),
                   "origin": False, "parents": self.executor.parents, "roots": {}, "tables": set(self.names()), "prefixes": []}
        judge = Judge(capture, self.executor.moments, self.executor.marker_rows(), [], promise)
        return judge.judge(), judge

    def close(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        self.executor.close()
