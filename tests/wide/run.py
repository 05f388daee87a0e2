"""One run: a database with its slot, publication and topics, a millrace, a plan, and the judge."""

import collections
import copy
import dataclasses
import http.client
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import psycopg
from confluent_kafka import KafkaException

import initial
from execute import Executor, quote
from judge import Judge
from kit import BINARY, BOOTSTRAP, Database, Millrace, dsn, eventually, http_get
from topics import read

ORDERLY = (0, 3)


@dataclasses.dataclass
class Result:
    problems: list        # (kind, text)
    events: int = 0
    pictures: int = 0
    repeats: int = 0
    reads: int = 0        # rows of copies
    kills: int = 0
    statements: int = 0
    errors: object = None
    seconds: float = 0.0
    attempts: int = 0     # of the first copy
    verdicts: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # of tables, by millrace verify
    judged: object = None  # what the judge was given, to be judged again (self_test.py)

    def kinds(self):
        return {kind for kind, _ in self.problems}


class Chaos(threading.Thread):
    """Kills and stops millrace, cuts its connections, all the time; by the seed, as far as threads go."""

    def __init__(self, run, seed, opening=None):
        super().__init__(daemon=True)
        self.run_, self.chance, self.opening = run, random.Random(f"chaos {seed}"), opening
        self.stopping = threading.Event()
        self.count = 0
        self.failure = None
        self.begun = opening or self.confirmed()

    def confirmed(self):
        return self.run_.database.slot_row("confirmed_flush_lsn")

    def run(self):
        try:
            if self.opening:
                self.opening.begun.wait(120)
            # A start that has stored nothing refuses a table of "tables" that was renamed or dropped meanwhile.
            while not self.opening and self.confirmed() == self.begun and not self.stopping.wait(0.05):
                pass
            while not self.stopping.wait(self.chance.uniform(0.1, 0.7)):
                self.chance.choice([self.run_.kill, self.run_.kill, self.run_.stop_and_start, self.stay_down, self.run_.cut_backend, *self.run_.cuts()])()
                self.count += 1
        except Exception as error:  # pylint: disable=broad-except # told by Run
            self.failure = error

    def stay_down(self):
        """Killed, and away while the workload goes on: tables, partitions and schemas come and go meanwhile."""
        with self.run_.lock:
            self.run_.end(signal.SIGKILL)
            until, limit = len(self.run_.executor.done) + self.chance.randint(5, 40), time.monotonic() + 2
            while len(self.run_.executor.done) < until and time.monotonic() < limit and not self.stopping.wait(0.02):
                pass
            self.run_.millrace.start()

    def finish(self):
        self.stopping.set()
        self.join(120)


class Copies(threading.Thread):
    """Asks for copies of tables while the stream runs, all the time; pauses and stops some. What millrace refuses it refuses."""

    def __init__(self, run, seed):
        super().__init__(daemon=True)
        self.run_, self.chance = run, random.Random(f"copies {seed}")
        self.stopping = threading.Event()
        self.failure = None

    def run(self):
        try:
            while not self.stopping.wait(self.chance.uniform(0, 0.05)):
                self.ask()
        except Exception as error:  # pylint: disable=broad-except # told by Run
            self.failure = error

    def ask(self):
        names = [name for name in self.run_.tables if name[0] != "w"]
        wish = self.chance.choices(["start", "stop", "pause", "resume"], [20, 1, 1, 6])[0]
        tables = [".".join(self.chance.choice(names))] if wish == "start" else []
        self.post({"type": wish, "tables": tables})

    def post(self, wish):
        """millrace may be just being killed."""
        try:
            http_get(self.run_.millrace.address(), "/api/snapshot", "POST", limit_s=10, body=json.dumps(wish))
        except (OSError, http.client.HTTPException, AssertionError, IndexError):
            pass

    def open(self):
        return [one for one in self.run_.millrace.get("/api/snapshot/outcome").json["tables"] if one["state"] not in ("done", "stopped", "failed")]

    def finish(self):
        self.stopping.set()
        self.join(120)

    def settled(self, limit_s):
        """All tables once more, as they are at the end, and until none is under way: what they sent is in the topics then."""
        self.post({"type": "resume"})
        self.post({"type": "start", "tables": [".".join(name) for name in self.run_.tables if name[0] != "w"][:100]})
        eventually(lambda: not self.open(), limit_s, "the ends of the copies")


class Reloads(threading.Thread):
    """Reloads the file two to five times in a row, all the time: with a pattern of tables more or less (none has such a name), a number, the
    level, a file that is refused, an option that needs a restart."""

    def __init__(self, run, seed):
        super().__init__(daemon=True)
        self.run_, self.chance = run, random.Random(f"reloads {seed}")
        self.stopping = threading.Event()
        self.failure = None
        with open(run.millrace.path, encoding="utf-8") as file:
            self.good = self.with_pattern = file.read()
        self.with_pattern = self.good.replace("tables = [", 'tables = ["nowhere.t_[0-9]+", ', 1)

    def run(self):
        try:
            while not self.stopping.wait(self.chance.uniform(0.05, 0.4)):
                with self.run_.lock:
                    if not self.run_.millrace.log("started"):
                        continue  # it reads the file
                    for _ in range(self.chance.randint(2, 5)):
                        self.reload(self.chance.choice([self.good, self.with_pattern]) + self.chance.choice(
                            ["", f'pipeline.latency = "{self.chance.randint(100, 900)}us"\n', 'log.level = "debug"\n', "nonsense = 1\n",
                             'sink.kafka.compression = "none"\n']))
                    self.reload(self.good)
        except Exception as error:  # pylint: disable=broad-except # told by Run
            self.failure = error

    def reload(self, text):
        with open(self.run_.millrace.path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(self.run_.millrace.path + ".new", self.run_.millrace.path)
        if self.run_.millrace.process.poll() is None:
            self.run_.millrace.process.send_signal(signal.SIGHUP)
        self.stopping.wait(self.chance.choice([0, 0.01, 0.05]))

    def finish(self):
        self.stopping.set()
        self.join(120)


class Ended(Exception):
    """millrace did, and should not have."""


class Run:
    """`delivery`, `kills`, `copies`, `initially`: as the options of tests/wide.sh. `proxies`: (to PostgreSQL, to Kafka), for cuts. `more`: options of
    millrace besides."""

    def __init__(self, plan, delivery="at-least-once", kills=False, proxies=None, keep=None, ignore=(), limit_s=60,
                 copies=False, initially=False, verifies=False, reloads=False, **more):
        self.initially, self.verifies, self.reloads = initially, verifies, reloads
        self.plan, self.delivery, self.kills, self.proxies, self.copies = plan, delivery, kills, proxies, copies
        self.keep, self.ignore, self.limit_s = keep, ignore, limit_s
        self.more = more
        self.folder = tempfile.mkdtemp(prefix="millrace-wide-")
        self.lock = threading.RLock()
        self.lines, self.codes = [], []
        self.tables = []  # (schema, name), as configured
        self.database = self.executor = self.millrace = None
        self.problems = []
        self.verdicts = collections.Counter()  # of tables, by millrace verify

    # ---- millrace ----

    def start_millrace(self):
        options = {"sink__kafka__delivery": f'"{self.delivery}"', "sink__kafka__partitions": str(self.plan.options["partitions"]),
                   "skipped_operations": "[]", "pipeline__reconnect_max": '"200ms"', **self.more}
        if self.plan.options["prefixes"]:
            options["messages__prefixes"] = json.dumps(self.plan.options["prefixes"], ensure_ascii=False)
        if self.plan.options["small_batches"]:
            options.update(pipeline__batch_size='"16KiB"')
        if self.plan.options.get("encoding"):
            options["invalid_utf8"] = '"replace"'
        if self.proxies:
            options["sink__kafka__brokers"] = f'["127.0.0.1:{os.environ["KAFKA_PROXY_PORT"]}"]'
        self.tables = self.executor.configured()
        if self.initially:
            # Some tables are copied when the gate is met, and some are not.
            chance = random.Random(f"initial {self.plan.seed}")
            self.tables = [name for name in self.tables if name != initial.HELD]
            self.tables.insert(chance.randint(0, len(self.tables)), initial.HELD)
            options.update(snapshot__mode='"initial"', snapshot__max__threads=str(chance.choice([1, 1, 2])),
                           snapshot__where=json.dumps(initial.WHERE))
        self.millrace = Millrace(self.database, self.folder, [f"{quote(schema)}.{quote(name)}" for schema, name in self.tables], **options)
        if self.proxies:
            self.millrace.environment["TEST_URL"] = dsn(self.database.name, self.proxies[0].port)
        self.millrace.start()
        if not self.initially:
            self.millrace.streaming()

    def ended(self, expected=ORDERLY):
        """Notes how millrace ended; an end that nobody asked for is a fault."""
        code = self.millrace.ended(60)
        self.lines += self.millrace.lines
        self.codes.append(code)
        if code not in expected:
            raise Ended(f"exit code {code}: {self.said()}")

    def said(self):
        """Its last errors, or whatever it said last."""
        lines = [line for line in self.millrace.lines if '"level":"error"' in line] or self.millrace.lines
        return "".join(lines[-2:])[-800:]

    def revive(self):
        with self.lock:
            if self.millrace.process.poll() is not None:
                self.ended()
                self.millrace.start()

    def end(self, number):
        self.revive()
        self.millrace.process.send_signal(number)
        self.ended((-signal.SIGKILL,) if number == signal.SIGKILL else ORDERLY)

    def kill(self):
        with self.lock:
            self.end(signal.SIGKILL)
            self.millrace.start()

    def stop_and_start(self):
        with self.lock:
            self.revive()
            self.millrace.wait_for("started", 60)
            self.millrace.process.send_signal(signal.SIGTERM)
            self.ended()
            self.millrace.start()

    def cut_backend(self):
        if self.initially:  # whatever of it is connected: its slot may have another name
            self.database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                              " AND application_name LIKE 'millrace%'")
            return
        self.database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid IS NOT NULL",
                          [self.database.slot], database="postgres")

    def cuts(self):
        """Those of the connections; what millrace was told, and what not, differs most when it dies behind a cut."""
        if not self.proxies:
            return []
        postgres, kafka = self.proxies

        def cut(proxy, mode, then=lambda: None):
            proxy.set(mode)
            try:
                time.sleep(0.3)
                then()
            finally:
                proxy.set("reset")
        return [lambda: postgres.set("reset"), lambda: kafka.set("reset"), lambda: cut(kafka, "hold-down"), lambda: cut(postgres, "hold-down"),
                lambda: cut(kafka, "hold"), lambda: cut(kafka, "hold-down", self.kill)]

    # ---- the whole ----

    def run(self):
        began = time.monotonic()
        result = None
        try:
            result = self.go()
            result.problems = [problem for problem in result.problems if problem[0] not in self.ignore]
        finally:
            try:
                self.close(result)
            except (psycopg.Error, KafkaException, AssertionError) as error:
                print(f"not cleaned up: {error}")
        result.seconds = time.monotonic() - began
        result.verdicts = self.verdicts
        return result

    def go(self):
        encoding = self.plan.options.get("encoding")
        form = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0" if encoding else ""
        self.began_ms = int(time.time() * 1000) - 60000
        self.database = Database(form)
        if self.initially:
            self.plan = dataclasses.replace(self.plan, setup=[*self.plan.setup, initial.SETUP])
        self.executor = Executor(self.database, self.plan, 0.05 if self.kills else 0.01 if self.copies or self.initially else 0.0)
        self.executor.prepare()
        # It waits for other databases' transactions; the database may be set to less patience.
        self.database.run(f"SET lock_timeout = 0; SELECT pg_create_logical_replication_slot('{self.database.name}_w', 'test_decoding')")
        chaos, copies, opening, reloads, final = None, None, None, None, None
        try:
            if self.initially:
                initial.publish(self.database)
                opening = initial.Opening(self)
                opening.start()
            else:
                self.start_millrace()
            if self.kills:
                chaos = Chaos(self, self.plan.seed, opening)
                chaos.start()
            if self.copies:
                copies = Copies(self, self.plan.seed)
                copies.start()
            if self.reloads:
                reloads = Reloads(self, self.plan.seed)
                reloads.start()
            final = self.executor.run()
            for thread in filter(None, (opening, copies, reloads, chaos)):
                thread.finish()
                if thread.failure:
                    raise thread.failure
            self.delivered()
            if copies:
                copies.settled(self.limit_s)
            if self.verifies:
                self.verified()
            self.millrace.process.send_signal(signal.SIGTERM)
            self.ended((0,))
        except Ended as error:
            self.problems.append(("millrace ended", str(error)))
        except AssertionError as error:
            if self.millrace and self.millrace.process.poll() is not None and self.millrace.process.returncode not in ORDERLY:
                error = f"exit code {self.millrace.process.returncode}: {self.said()}"
            self.problems.append(("millrace does not run", str(error)[-1200:]))
        finally:
            for thread in filter(None, (opening, copies, reloads, chaos)):
                thread.finish()
        if self.problems or "types" in self.more:  # the judge knows the texts of PostgreSQL alone
            return Result(self.problems, statements=len(self.executor.done), errors=self.executor.errors)
        return self.judged(final, chaos)

    def delivered(self):
        """Until the slot has confirmed all there is."""
        end = self.database.run("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")[0][0]

        def confirmed():
            self.revive()
            return self.database.slot_row(f"confirmed_flush_lsn - '0/0' >= {end}")
        eventually(confirmed, self.limit_s, "delivery of everything")

    def verified(self):
        """`millrace verify` finds no difference."""
        done = subprocess.run([BINARY, "verify", "--json", "--config", self.millrace.path], env=self.millrace.environment,
                              capture_output=True, text=True, errors="replace", timeout=300, check=False)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        for table in said:
            self.verdicts[table["verdict"]] += 1
            if table["verdict"] in ("different", "no verdict") and "not in the publication" not in table["reason"]:
                self.problems.append(("verify", json.dumps(table, ensure_ascii=False)[:1500]))
        if done.returncode not in (0, 4, 5, 6):
            self.problems.append(("verify", f"exit code {done.returncode}: {done.stderr[-500:]}"))

    def judged(self, final, chaos):
        capture = read(BOOTSTRAP, self.database.prefix + ".")
        encoding = {"client_encoding": "SQL_ASCII"} if self.plan.options.get("encoding") else {}
        with psycopg.connect(dsn(self.database.name), autocommit=True, **encoding) as connection:
            found = connection.execute("SELECT xid::text::bigint, left(data, 600) FROM pg_logical_slot_get_changes(%s, NULL, NULL, 'skip-empty-xacts', '1')",
                                       [self.database.name + "_w"]).fetchall()
        witness = [(int(xid), text.decode("utf-8", "replace") if isinstance(text, bytes) else text) for xid, text in found]
        parents = self.executor.parents
        promise = {"exactly_once": self.delivery == "exactly-once", "reselects": "columns__reselect" in self.more, "replaced_bytes": bool(self.plan.options.get("encoding")),
                   "database": self.database.name, "times_ms": (self.began_ms, int(time.time() * 1000) + 1000),
                   "origin": self.plan.options["origin"], "parents": parents,
                   "roots": parents if self.plan.options["via_root"] else {}, "tables": set(self.tables),
                   "keys_unknown": {(line["schema"], line["table"]) for line in
                                    (json.loads(text) for text in self.lines if '"event":"key_unknown"' in text)},
                   "taken_for_partitions": {tuple(json.loads(text)["table"].rsplit(".", 1)) for text in self.lines
                                            if '"event":"partition_gone"' in text},
                   "prefixes": self.plan.options["prefixes"]}
        given = capture, self.executor.moments, self.executor.marker_rows(), self.executor.messages, promise, witness
        attempts = 0
        if self.initially:
            # What is killed may not have told that it began.
            attempts = 0 if self.kills else sum('"snapshot_begun"' in line for line in self.lines)
            judge = initial.InitialJudge(*copy.deepcopy(given), attempts=attempts)
            problems = judge.judge()
            judge.compare_last(self.executor.moments[final])
        else:
            judge = Judge(*given)
            problems = judge.judge()
        if not problems and not self.plan.options.get("encoding"):
            problems += self.typed(judge, final)
        return Result(problems, len(judge.events), judge.pictures, judge.repeats, judge.reads, chaos.count if chaos else 0,
                      len(self.executor.done), self.executor.errors, attempts=attempts, judged=given)

    def typed(self, judge, final):
        found = []
        for info in self.executor.moments[final].infos:
            if info.names and info.published and judge.listed(info) and (judge.is_strict or judge.wanted_keys(info)):
                missing, more = self.executor.typed_differences(info, judge.final_rows(info))
                if missing or more:
                    found.append(("rows differ", f"{info.schema}.{info.name} by SQL: {missing} of the table's are missing, {more} more"))
        return found

    def keep_all(self, result):
        """Logs, the topics' contents, and what was executed."""
        shutil.rmtree(self.keep, ignore_errors=True)
        os.makedirs(self.keep)
        if self.millrace:
            with open(os.path.join(self.keep, "millrace.log"), "w", encoding="utf-8") as file:
                file.writelines(self.lines or self.millrace.lines)
        with open(os.path.join(self.keep, "statements.sql"), "w", encoding="utf-8") as file:
            file.writelines(f"{statement};\n" for statement in self.plan.setup + [self.plan.publication])
            file.writelines(f"/* {session} */ {sql};\n" for session, sql in self.executor.done)
        with open(os.path.join(self.keep, "problems.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{kind}: {text}\n" for kind, text in result.problems)
        with open(os.path.join(self.keep, "plan.pickle"), "wb") as file:
            pickle.dump(self.plan, file)
        if result.judged:
            with open(os.path.join(self.keep, "records.txt"), "w", encoding="utf-8") as file:
                for r in result.judged[0].records:
                    file.write(f"{r.topic}[{r.partition}]@{r.offset} {r.headers} key {r.key} value {r.value}\n")
            with open(os.path.join(self.keep, "judged.pickle"), "wb") as file:
                pickle.dump(result.judged, file)

    def close(self, result):
        if self.keep and result and result.problems:
            self.keep_all(result)
        if self.millrace and self.millrace.process and self.millrace.process.poll() is None:
            self.millrace.kill()
        if self.executor:
            if "main" in self.executor.connections:
                try:
                    self.executor.end_transactions()
                    self.executor.end_prepared()
                except psycopg.Error:
                    pass
            self.executor.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.database:
            self.database.drop()
            self.database.run(f"DROP ROLE IF EXISTS {self.database.name}_guest", database="postgres")
            if self.plan.options.get("origin"):
                self.database.run("SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname = %s",
                                  [self.database.name], database="postgres")
            topics = [name for name in self.database.topics() if name.startswith(self.database.prefix + ".")]
            if topics:
                self.database.admin.delete_topics(topics)  # answers nobody waits for
