"""The work behind compare-peers.sh: the same backlog and the same rate for each program, in turn."""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench_stand import dsn, peak_rss
from drain import Bench
from latency import WARM_UP_S, ROWS_PER_TRANSACTION, Writer, percentile

HERE = os.path.dirname(os.path.abspath(__file__))
KNOWN = ("millrace", "debezium", "pg_recvlogical")
LIMIT_S = 600
ID = re.compile(rb'"id"\s*:\s*(\d+)')


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watermark:
    """How many records a topic holds."""

    def __init__(self, topic):
        self.partition = TopicPartition(topic, 0)
        self.consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": topic})

    def count(self):
        try:
            return self.consumer.get_watermark_offsets(self.partition, timeout=5)[1]
        except KafkaException:
            return 0  # a topic this young is not known everywhere yet

    def close(self):
        self.consumer.close()


class Peer:
    def __init__(self, text):
        self.name, _, script = text.partition("=")
        if not script and self.name not in KNOWN:
            raise SystemExit(f"--peer {self.name}: not one of {', '.join(KNOWN)}; "
                             f"for a program of your own say --peer {self.name}=SCRIPT")
        self.script = os.path.abspath(script) if script else os.path.join(HERE, f"start-{self.name}.sh")
        self.drains, self.latencies = [], []

    @contextlib.contextmanager
    def running(self, bench, slot):
        """The program, on that slot, until the end of the block."""
        folder = tempfile.mkdtemp(prefix=f"peer-{self.name}-")
        environment = {**os.environ, "PEER_PG_URL": dsn(bench.name), "PEER_SLOT": slot,
                       "PEER_PUBLICATION": "bench", "PEER_TABLE": "public.benchmark_records",
                       "PEER_BOOTSTRAP": os.environ["KAFKA_BOOTSTRAP"], "PEER_TOPIC_PREFIX": slot,
                       "PEER_FOLDER": folder, "PEER_END_LSN": bench.end_lsn}
        with open(os.path.join(folder, "log"), "wb") as log:
            process = subprocess.Popen([self.script], env=environment, stdout=log, stderr=log)
        try:
            yield process
        except RuntimeError as error:
            raise SystemExit(f"{self.name}: {error}; what it said is in {folder}/log") from None
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def writes_no_topic(self):
        return self.name == "pg_recvlogical"


def wait_for_records(process, watermark, count):
    deadline = time.monotonic() + LIMIT_S
    while watermark.count() < count:
        if process.poll() is not None:
            raise RuntimeError(f"it ended with {process.returncode} before {count} records were there")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} records were not there within {LIMIT_S} s")
        time.sleep(0.01)


def drain_to_topic(process, watermark, rows):
    """Throughput and CPU are those between the first and the last record: the start is told apart."""
    begin = time.monotonic()
    wait_for_records(process, watermark, 1)
    first, cpu_first, early = time.monotonic(), cpu_seconds(process.pid), watermark.count()
    wait_for_records(process, watermark, rows)
    seconds = time.monotonic() - first
    return {"start_s": first - begin, "rows_per_s": (rows - early) / seconds,
            "cpu_us": (cpu_seconds(process.pid) - cpu_first) / (rows - early) * 1e6,
            "rss_mb": peak_rss(process.pid) / 1e6}


def drain(bench, peer, rows):
    slot = bench.copy_slot()
    topic = bench.make_topic(slot)
    watermark = Watermark(topic)
    if peer.writes_no_topic:
        result = bench.run_pg_recvlogical()
        result = {"rows_per_s": rows / result["wall"], "cpu_us": result["cpu"] / rows * 1e6,
                  "rss_mb": result["rss"] / 1e6}
    else:
        with peer.running(bench, slot) as process:
            result = drain_to_topic(process, watermark, rows)
    watermark.close()
    bench.drop_slot(slot)
    bench.drop_topic(topic)
    return result


def follow_ids(topic, after, last, limit_s):
    """Arrival time of each row behind `after`, by its id."""
    consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": topic,
                         "fetch.wait.max.ms": 5, "fetch.min.bytes": 1})
    consumer.assign([TopicPartition(topic, 0, 0)])
    arrivals = {}
    deadline = time.monotonic() + limit_s
    while last not in arrivals and time.monotonic() < deadline:
        messages = consumer.consume(500, timeout=0.002)
        now = time.time()
        for message in messages:
            found = ID.search(message.key() or b"") or ID.search(message.value() or b"")
            if message.error() is None and found and int(found[1]) > after:
                arrivals.setdefault(int(found[1]), now)
    consumer.close()
    return arrivals


def latency(bench, peer, rate, seconds):
    """Commit, as the writer saw it return, to the consumer; the row's id joins the two."""
    slot = bench.make_slot()
    topic = bench.make_topic(slot)
    watermark = Watermark(topic)
    with peer.running(bench, slot) as process:
        bench.add_rows(0, 1)
        wait_for_records(process, watermark, 1)
        before = bench.sql("SELECT max(id) FROM benchmark_records")[0][0]
        writer = Writer(bench, rate, seconds)
        writer.start()
        last = before + writer.transactions * ROWS_PER_TRANSACTION
        arrivals = follow_ids(topic, before, last, seconds + 60)
        writer.join()
        if len(arrivals) < writer.transactions * ROWS_PER_TRANSACTION:
            raise RuntimeError(f"only {len(arrivals)} of the rows arrived")
    watermark.close()
    bench.drop_slot(slot)
    bench.drop_topic(topic)
    start = writer.commits[0] + WARM_UP_S
    waits = []
    for row, arrival in arrivals.items():
        commit = writer.commits[(row - before - 1) // ROWS_PER_TRANSACTION]
        if commit >= start:
            waits.append(max(0.0, arrival - commit) * 1000)
    waits.sort()
    return {f"p{share}_ms": percentile(waits, share / 100) for share in (50, 99)}


# ---- the table ----

FIGURES = (("rows_per_s", "rows/s", "{:.0f}"), ("cpu_us", "CPU µs/row", "{:.2f}"),
           ("rss_mb", "peak memory MB", "{:.0f}"), ("start_s", "start to first record s", "{:.2f}"),
           ("p50_ms", "latency p50 ms", "{:.1f}"), ("p99_ms", "latency p99 ms", "{:.1f}"))


def median(peer, key):
    found = [result[key] for result in (*peer.drains, *peer.latencies) if key in result]
    return statistics.median(found) if found else None


def cell(peer, first, key, form):
    """The median, and how often it is that of the first program."""
    value, base = median(peer, key), median(first, key)
    if value is None:
        return "–"
    text = form.format(value)
    return text if peer is first or not base else f"{text} (×{value / base:.2f})"


def machine(bench):
    with open("/proc/cpuinfo", encoding="ascii") as file:
        model = re.search(r"model name\s*:\s*(.*)", file.read())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    server = bench.sql("SHOW server_version")[0][0].split()[0]
    return (f"{os.cpu_count()} cores ({model[1].strip() if model else platform.machine()}), {memory:.0f} GiB, "
            f"Linux {platform.release().split('-')[0]}, PostgreSQL {server}; server, broker, programs and "
            f"consumer share it; load when the run began: {os.getloadavg()[0]:.1f}")


def table(bench, peers, arguments, described):
    first = peers[0]
    lines = [f"# millrace and its peers, {datetime.date.today()}", "",
             f"Written by `benchmarks/compare-peers.sh --rows {arguments.rows} --rounds {arguments.rounds} "
             f"--rate {arguments.rate} --seconds {arguments.seconds}`; what each figure is, is told in README.md.", "",
             f"Machine: {described}.", "",
             "| median | " + " | ".join(peer.name for peer in peers) + " |",
             "|---|" + "---:|" * len(peers)]
    for key, name, form in FIGURES:
        lines.append(f"| {name} | " + " | ".join(cell(peer, first, key, form) for peer in peers) + " |")
    lines += ["", f"In brackets: how often it is the figure of {first.name}. pg_recvlogical writes the undecoded stream "
              "to /dev/null; the others write JSON to Kafka.", ""]
    return "\n".join(lines)


def measure(bench, peers, arguments):
    for number in range(1, arguments.rounds + 1):
        for peer in peers:
            peer.drains.append(drain(bench, peer, arguments.rows))
            print(f"round {number}: {peer.name} {peer.drains[-1]['rows_per_s']:.0f} rows/s", flush=True)
    for number in range(1, arguments.rounds + 1 if arguments.seconds > 0 else 1):
        for peer in peers:
            if not peer.writes_no_topic:
                peer.latencies.append(latency(bench, peer, arguments.rate, arguments.seconds))
                print(f"round {number}: {peer.name} p50 {peer.latencies[-1]['p50_ms']:.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/compare-peers.sh", add_help=False)
    parser.add_argument("--rows", type=int, default=500000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--peer", action="append")
    parser.add_argument("--out", default=os.path.join(HERE, "results.md"))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if 0 < arguments.seconds <= WARM_UP_S:
        raise SystemExit(f"--seconds: the first {WARM_UP_S} don't count")
    arguments.keep = False
    # So that a SIGTERM too ends the program that is being measured and removes the database.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    peers = [Peer(text) for text in arguments.peer or KNOWN]
    bench = Bench(arguments)
    try:
        print(f"making a backlog of {arguments.rows} rows …", flush=True)
        bench.make_backlog()
        described = machine(bench)
        measure(bench, peers, arguments)
    finally:
        bench.close()
    text = table(bench, peers, arguments, described)
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(text)
    print(text)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({peer.name: {"drains": peer.drains, "latencies": peer.latencies} for peer in peers},
                      file, indent=2)


if __name__ == "__main__":
    main()
