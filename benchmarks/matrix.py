"""The work behind matrix.sh: loads, programs and rounds, each run into one file of figures."""

import argparse
import atexit
import contextlib
import functools
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

import psycopg

from bench_stand import Stand, counted, dsn, obey_sigterm, rotated, writable
from builds import describe, getppid_ns, machine
from figures import Figures, tables
from mixes import MIXES, Two
from open_loop import WARM_UP_S, Arrivals, percentiles_ms
from peers import HERE, Failed, Peer, Topics, Waits, at_rate, check, drained, streaming
from processes import Account, Watch, broker_pid, threads

ROOT = os.path.dirname(HERE)
FLOORS = ("librdkafka", "librdkafka-exactly-once")  # they have nothing to do but to send
ALL = ("pg_recvlogical", "millrace", "millrace-exactly-once", "debezium", "debezium-tuned")
TRANSACTIONS_PER_S = 100
FIRST_RATE = 10000
DRAIN_S, PILOT_ROWS = 15, 200000  # a backlog lasts at least so long for the fastest reader; what says how many rows that are
RATES = (0, 100, 1000, 5000, 10000, 20000, 40000)


# ---- loads ----

class Backlog:
    """Changes that wait behind a slot; each program reads a copy of it."""

    programs, copies, variables = ALL, False, {}

    def __init__(self, mix, rows):
        self.make_mix = MIXES[mix]
        self.size(rows or PILOT_ROWS)

    def size(self, rows):
        self.mix = self.make_mix(rows)
        self.settings = {"rows": self.mix.rows}

    def size_for(self, seconds):
        """As many rows as the program under test takes so long for, by a short drain."""
        self.size(PILOT_ROWS)
        with self.opened() as bench:
            rate = self.run(bench, Peer("millrace"))["rows_per_s"]
        self.size(int(round(rate * seconds * 1.3 * PILOT_ROWS / self.mix.rows, -4)))

    @contextlib.contextmanager
    def opened(self):
        bench, self.expected = Stand(self.mix), {}
        try:
            self.make(bench)
            yield bench
        finally:
            bench.close()

    def make(self, bench):
        bench.make_backlog()

    def slot(self, bench, tail):
        return bench.copy_slot(tail)

    def run(self, bench, peer):
        watch = Watch()
        tail, rows, after = bench.tail if peer.takes_the_tail and bench.tail else (None, self.mix.rows, 0)
        slot = self.slot(bench, tail)
        topic = bench.make_topic(slot)
        topics = None if peer.writes_no_topic else Topics(slot, self.mix)
        records = self.mix.records(rows) if peer.tombstones else rows
        with peer.running(bench, slot, **self.variables) as process:
            figures = drained(process, topics, rows, records, watch, Waits(bench), self.copies)
            if topics:
                self.judge(bench, topics, records, after)
        # While rows are copied a slot has another name: the last of them may be with Kafka before the copy has ended.
        for (name,) in bench.sql("SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s)", [slot]):
            bench.drop_slot(name)
        bench.drop_topic(topic)
        return figures

    def judge(self, bench, topics, records, after):
        if after not in self.expected:
            with bench.connected() as connection:
                self.expected[after] = self.mix.there(connection, after)
        check(topics, records, self.expected[after])


class Socket(Backlog):
    """The same by the server's Unix socket, which holds less than TCP's. (Java's driver knows none.)"""

    programs = ALL[:3]

    def make(self, bench):
        super().make(bench)
        self.variables = {"PEER_PG_URL": bench.socket_url()}


class Copy(Backlog):
    """Rows that are there before the program is. The floor is psql's COPY to /dev/null."""

    programs = ("pg_recvlogical", "librdkafka", "millrace", "millrace-4-threads", "debezium", "debezium-tuned")
    copies, variables = True, {"PEER_SNAPSHOT_MODE": "initial"}

    def make(self, bench):
        bench.make_table()
        with bench.connected() as connection:
            for _ in self.mix.fill(connection):
                pass
        bench.sql("VACUUM ANALYZE benchmark_records")

    def slot(self, bench, tail):
        return f"{bench.name}_{time.monotonic_ns() % 10**9}"


@functools.cache
def proxy():
    """In front of the broker: it holds each piece of data back for half of a round trip."""
    if "KAFKA_PROXY_PORT" not in os.environ:
        raise SystemExit("far: this stand has no listener for a proxy: scripts/stand.sh wipe lets the next run make one that has")
    sys.path += [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "faults")]
    from servers import Proxy  # pylint: disable=import-outside-toplevel
    made = Proxy(int(os.environ["KAFKA_PROXIED_PORT"]), int(os.environ["KAFKA_PROXY_PORT"]))
    atexit.register(made.close)
    return made


class Far(Backlog):
    """A backlog to a broker that is far away."""

    programs = ("millrace", "millrace-exactly-once")

    def __init__(self, mix, rows, delay_ms):
        super().__init__(mix, rows)
        self.delay_ms = delay_ms

    def make(self, bench):
        proxy().set(f"delay {self.delay_ms / 2}")
        self.variables = {"PEER_BOOTSTRAP": f"127.0.0.1:{proxy().port}"}
        super().make(bench)


class Slots(Backlog):
    """Two tables behind one slot, or behind two whose publications share them. The floor alone: what the server can give."""

    programs = ("pg_recvlogical",)

    def __init__(self, rows, count):
        self.make_mix, self.count = Two, count
        self.size(rows or PILOT_ROWS)

    def run(self, bench, peer):
        watch = Watch()
        slots = [bench.copy_slot() for _ in range(self.count)]
        begin = None
        with contextlib.ExitStack() as stack:
            publications = self.mix.tables if self.count > 1 else ("bench",)
            readers = [stack.enter_context(peer.running(bench, slot, PEER_PUBLICATION=publication))
                       for slot, publication in zip(slots, publications)]
            while any(reader.poll() is None for reader in readers):
                now = Account(readers[0].pid, watch)
                begin = begin or (now if watch.sent else None)
                time.sleep(0.01)
            end = Account(readers[0].pid, watch)
        if begin is None or any(reader.returncode for reader in readers):
            raise Failed(f"{peer.name}: it ended with {[reader.returncode for reader in readers]}")
        for slot in slots:
            bench.drop_slot(slot)
        figures = begin.until(end, self.mix.rows)
        return {key: figures[key] for key in ("rows_per_s", "seconds", "sender_us", "server_us", "machine_idle")}


class Steady:
    """Rows at a fixed rate, from COMMIT to a consumer. Rate 0 is a table that nobody writes to."""

    programs = ALL + FLOORS

    def __init__(self, rate, seconds):
        self.rate, self.seconds = rate, seconds
        self.settings = {"rate": rate, "seconds": seconds}

    @contextlib.contextmanager
    def opened(self):
        bench = Stand()
        try:
            bench.make_table()
            yield bench
        finally:
            bench.close()

    def run(self, bench, peer):
        watch = Watch()
        bench.sql("TRUNCATE benchmark_records")
        with streaming(bench, peer, PEER_RATE=str(self.rate)) as running:
            look = functools.partial(self.look, running[0].pid, watch)
            pairs, seen = ([], look(None)) if self.rate == 0 else at_rate(
                bench, running, self.rate, self.seconds + WARM_UP_S, max(1, self.rate // TRANSACTIONS_PER_S), look)
            if running[0].poll() is not None:
                raise Failed(f"it ended with {running[0].returncode}")
        return {**seen, **(percentiles_ms(pairs) if pairs else {})}

    def look(self, pid, watch, writer):
        time.sleep(WARM_UP_S)
        begin, before, first = Account(pid, watch), threads(pid), len(writer.commits) if writer else 0
        if writer:
            writer.join()
        else:
            time.sleep(self.seconds)
        end, after = Account(pid, watch), threads(pid)
        rows = (len(writer.commits) - first) * writer.size if writer else 0
        more = {name: {key: max(0, thread[key] - before.get(name, thread)[key]) for key in thread} for name, thread in after.items()}
        wakes = {name: round(thread["wakes"] / (end.time - begin.time), 1) for name, thread in more.items()}
        return {**begin.until(end, rows), "rss_mb": end.rss / 1e6,
                "wakes_per_s": sum(wakes.values()), "wakes": {name: rate for name, rate in wakes.items() if rate > 0},
                "threads_us": {name: thread["cpu"] / 1000 / rows for name, thread in more.items() if rows and thread["cpu"]},
                "late_transactions": writer.late if writer else 0}


class Sustained(Steady):
    """The highest rate at which the lag is flat for so long; and half of it for as long, with one restart of the broker."""

    programs = ("millrace", "millrace-exactly-once", "debezium", "debezium-tuned")

    def __init__(self, minutes):
        super().__init__(0, 60 * minutes)

    def run(self, bench, peer):
        probes, low, high, rate = [], 0, None, FIRST_RATE

        def flat(seconds):
            probes.append(self.at(bench, peer, rate, seconds))
            return probes[-1]["flat"]

        while high is None or high - low > max(100, low // 20):
            low, high = (rate, high) if flat(min(self.seconds, max(10, self.seconds / 20))) else (low, rate)
            rate = low * 2 if high is None else (low + high) // 200 * 100 or 100
        rate = low
        while rate and not flat(self.seconds):
            rate = rate * 9 // 1000 * 100
        if not rate:
            raise Failed(f"{peer.name}: its lag grows at every rate")
        half = self.at(bench, peer, rate // 2, self.seconds, ("kafka-stop", "kafka-start"))
        return {**probes[-1], **{f"half_{key}": value for key, value in half.items()}, "probes": probes}

    @staticmethod
    def at(bench, peer, rate, seconds, restart=()):
        """Flat: the waits of the last quarter are those of the first, and rows were written when they were due."""

        def watch(writer):
            if restart:
                time.sleep(seconds / 2)
            for command in restart:
                subprocess.run([os.path.join(ROOT, "scripts", "stand.sh"), command], check=True, capture_output=True)
            writer.join()
            return writer.late / writer.transactions

        bench.sql("TRUNCATE benchmark_records")
        figures = {"rate": rate, "flat": False}
        try:
            with streaming(bench, peer) as running:
                pairs, late = at_rate(bench, running, rate, seconds + WARM_UP_S, max(1, rate // TRANSACTIONS_PER_S), watch)
        except Failed as error:
            return {**figures, "failed": str(error)}
        first, last = (statistics.median(arrival - commit for commit, arrival in quarter)
                       for quarter in (pairs[:len(pairs) // 4 + 1], pairs[-len(pairs) // 4:]))
        figures |= {"late": late, "first_quarter_ms": first * 1000, "last_quarter_ms": last * 1000, **percentiles_ms(pairs)}
        return {**figures, "flat": late < 0.01 and last <= 2 * first + 0.02}


class Lag(threading.Thread):
    """How much WAL the server has that a slot's reader has not confirmed, from now on."""

    def __init__(self, bench, slot):
        super().__init__(daemon=True)
        self.bench, self.slot, self.seen, self.ends = bench, slot, [], threading.Event()
        self.start()

    def run(self):
        with self.bench.connected() as connection:
            while not self.ends.wait(0.1):
                self.seen += connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint "
                                                "FROM pg_replication_slots WHERE slot_name = %s", [self.slot]).fetchone() or ()

    def stop(self):
        self.ends.set()
        self.join()
        return {"lag_mb": statistics.median(self.seen) / 1e6, "lag_most_mb": max(self.seen) / 1e6} if self.seen else {}


class AtRate(Steady):
    """pgbench at a fixed rate of transactions. A row is followed from its transaction's begin, which is in the line of history, so the
    transaction itself counts, too; CPU is for each change."""

    programs = ALL

    def __init__(self, mix, rate, seconds):
        super().__init__(rate, seconds)
        self.mix = MIXES[mix](0)
        self.settings |= {"clients": self.mix.clients, "scale": self.mix.scale}

    @contextlib.contextmanager
    def opened(self):
        bench = Stand(self.mix)
        try:
            bench.make_table()
            yield bench
        finally:
            bench.close()

    def run(self, bench, peer):
        watch, mix = Watch(), self.mix
        bench.sql("TRUNCATE pgbench_history")
        with streaming(bench, peer) as (process, topic), bench.connected() as connection:
            def lines():
                return connection.execute("SELECT count(*) FROM pgbench_history").fetchone()[0]
            (slot,), = bench.sql("SELECT slot_name FROM pg_replication_slots WHERE active AND database = %s", [bench.name])
            arrivals = topic and Arrivals(topic.rpartition(".")[0] + ".pgbench_history")
            writer = mix.pgbench(connection, "-n", "-M", "prepared", "-b", mix.script, "-c", mix.clients, "-R", self.rate,
                                 "-T", self.seconds + WARM_UP_S)
            time.sleep(WARM_UP_S)
            warm, begin, first, lag = time.time(), Account(process.pid, watch), lines(), Lag(bench, slot)
            mix.ended(writer)
            seen, last = Account(process.pid, watch), lines()
            figures = {**begin.until(seen, (last - first) * len(mix.changed)), "transactions_per_s": (last - first) / (seen.time - begin.time),
                       "rss_mb": seen.rss / 1e6, **lag.stop()}
            pairs = arrivals.all(last, 60) if arrivals else []
            if arrivals and len(pairs) < last:
                raise Failed(f"only {len(pairs)} of {last} lines of history arrived")
            if process.poll() is not None:
                raise Failed(f"it ended with {process.returncode}")
        return {**figures, **(percentiles_ms([pair for pair in pairs if pair[0] >= warm]) if pairs else {})}


def loads(arguments):
    """By name, those of --only; the last ones only where they are asked for."""
    rows = arguments.rows
    found = {mix: Backlog(mix, rows) for mix in MIXES}
    found["insert"].programs = (*ALL[:3], "millrace-typed", *ALL[3:])  # beside Debezium, with its values
    found["socket"] = Socket("insert", rows)
    found["copy"] = Copy("insert", rows)
    found |= {f"steady-{rate}": Steady(rate, arguments.seconds) for rate in RATES}
    found |= {f"{mix}-at-{rate}": AtRate(mix, rate, arguments.seconds) for mix, rate in (("pgbench", 500), ("pgbench-n", 1000))}
    usual = list(found)
    found |= {f"far-{MIXES[mix].partitions}-{delay}": Far(mix, rows, delay)
              for mix in ("insert", "partitions") for delay in (0, 2, 20, 100)}
    found["sustained"] = Sustained(arguments.minutes)
    found |= {f"slots-{count}": Slots(rows, count) for count in (1, 2)}
    asked = arguments.only.split(",") if arguments.only else usual
    for word in asked:
        if not any(re.fullmatch(word + "(-.*)?", name) for name in found):
            raise SystemExit(f"--only {word}: not one of {', '.join(found)}")
    return {name: load for name, load in found.items() if any(re.fullmatch(word + "(-.*)?", name) for word in asked)}


# ---- the file ----

def surroundings(programs):
    """What a figure holds for. What differs can't go into one file."""
    status = subprocess.run([os.path.join(ROOT, "scripts", "stand.sh"), "status"], check=True, capture_output=True, text=True).stdout
    versions = dict(re.findall(r"^(\w+) .*(?:version|\(PostgreSQL\)) (\S+)", status, re.M))
    with open(os.path.join(HERE, "debezium", "pom.xml"), encoding="utf-8") as file:
        versions["Debezium"] = re.search(r"connector-postgres</artifactId>\s*<version>(.*?)<", file.read())[1]
    with open(os.environ["MILLRACE_BIN"], "rb") as file:
        build = hashlib.sha256(file.read()).hexdigest()[:12]
    here = machine()
    return {"machine": {**here, "kernel": here["kernel"].partition("-")[0]}, "versions": versions,
            "millrace": {"build": build, **describe(os.environ["MILLRACE_BIN"])}, "servers": servers(),
            "settings": {name: list(peer.environment.values()) for name, peer in programs.items() if peer.environment}}


def servers():
    """How PostgreSQL is set where that is not its default or costs; and the heaps of what runs in Java."""
    with psycopg.connect(dsn("postgres")) as connection:
        found = dict(connection.execute("SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', "
                                        "'full_page_writes', 'shared_buffers', 'max_wal_size', 'logical_decoding_work_mem') ORDER BY 1"))
    with open(f"/proc/{broker_pid()}/cmdline", encoding="utf-8") as file:
        found["Kafka"] = " ".join(re.findall(r"-Xm[sx]\w+", file.read()))
    return {**found, "Debezium": os.environ.get("PEER_JAVA_OPTS", "-Xms256M -Xmx2G")}


class File:
    """A file of figures that grows by one run after another, and can be gone on with."""

    def __init__(self, path, about):
        self.path, self.runs = path, []
        self.about = {"begun": time.strftime("%Y-%m-%dT%H:%M:%S"), "getppid_ns": getppid_ns(), **about}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                old = json.load(file)
            self.runs = old.pop("runs")
            other = [key for key in about if key != "settings" and old[key] != about[key]]
            if other:
                raise SystemExit(f"{path} is of another {' and '.join(other)}: {[old[key] for key in other]}; name another file")
            self.about = {**old, "settings": {**old["settings"], **about["settings"]}}

    def has(self, load, program, number=None):
        """That run, or without a number: has it failed there?"""
        return any(run["load"] == load and run["program"] == program and (run["round"] == number if number else "failed" in run)
                   for run in self.runs)

    def add(self, run):
        self.runs.append(rounded(run))
        text = json.dumps(self.about, indent=1)[:-2] + ',\n "runs": [\n' + ",\n".join(map(json.dumps, self.runs)) + "\n]}\n"
        with open(self.path + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(self.path + ".part", self.path)


def rounded(value):
    """Five digits say more than a run can."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def measure(name, load, peers, arguments, file):
    """The rounds of one load that the file lacks. Each that has not failed, in rotation."""
    same = next((run["settings"] for run in file.runs if run["load"] == name), None)
    if isinstance(load, Backlog) and arguments.rows is None and same:
        load.size(same["rows"])
    if same not in (None, load.settings):
        raise SystemExit(f"{file.path} has {name} with {same}; name another file, or the same sizes")
    todo = [(number, peer) for number in range(1, arguments.rounds + 1) for peer in rotated(peers, number - 1)
            if not file.has(name, peer.name, number)]
    if not todo:
        return
    if isinstance(load, Backlog) and arguments.rows is None and not same:
        print(f"{name}: how many rows?", flush=True)
        load.size_for(DRAIN_S)
    print(f"{name}: {load.settings}", flush=True)
    with load.opened() as bench:
        for number, peer in todo:
            if file.has(name, peer.name):
                continue
            busy = os.getloadavg()[0]
            try:
                figures = load.run(bench, peer)
            except Failed as error:
                figures = {"failed": str(error)}
            file.add({"load": name, "program": peer.name, "round": number, "settings": load.settings, "machine_load": busy, **figures})
            print(f"  round {number}: {peer.name} " + (figures.get("failed") or ", ".join(
                f"{key} {value:.5g}" for key, value in figures.items() if isinstance(value, (int, float)))), flush=True)


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/matrix.sh", add_help=False)
    parser.add_argument("--only")
    parser.add_argument("--programs")
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--rounds", type=counted, default=3)
    parser.add_argument("--rows", type=counted)
    parser.add_argument("--seconds", type=counted, default=10)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--into", type=writable, required=True)
    arguments = parser.parse_args()
    obey_sigterm()
    named = arguments.programs.split(",") if arguments.programs else None
    more = [Peer(text) for text in arguments.peer] + [Peer(*text.rsplit("=", 1)) for text in arguments.beside]
    todo = {name: (load, [Peer(program) for program in named or load.programs] + more) for name, load in loads(arguments).items()}
    programs = {peer.name: peer for _, peers in todo.values() for peer in peers}
    if any(name.startswith("debezium") for name in programs):
        subprocess.run([os.path.join(HERE, "start-debezium.sh"), "--fetch"], check=True)
    file = File(arguments.into, surroundings(programs))
    for name, (load, peers) in todo.items():
        measure(name, load, peers, arguments, file)
    print(tables(Figures(arguments.into), list(todo)))
    return 1 if any("failed" in run for run in file.runs) else 0


if __name__ == "__main__":
    sys.exit(main())
