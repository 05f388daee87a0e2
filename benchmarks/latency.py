"""The work behind latency.sh: an open-loop writer, a consumer, percentiles."""

import argparse
import json
import socket
import threading
import time
import urllib.request

from bench_stand import Stand, counted, obey_sigterm, writable, write_json
from consume import as_they_come, consumer_of
from open_loop import WARM_UP_S, Writer, percentile
from processes import Watch
from tail import Sampler, explain, told


def follow(topic, count, limit_s):
    """Arrival and commit time of each record."""
    consumer = consumer_of([(topic, 0)])
    arrivals = []
    for message, now in as_they_come(consumer, limit_s):
        arrivals.append((int(dict(message.headers())["mr-ts"]) / 1e6, now))
        if len(arrivals) == count:
            break
    consumer.close()
    return arrivals


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Copies(threading.Thread):
    """Copies another table beside the stream, again and again."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.ends, self.copied = address, threading.Event(), 0

    def ask(self, path, wish=None):
        with urllib.request.urlopen(f"http://{self.address}/api/snapshot{path}", json.dumps(wish).encode() if wish else None, 10) as answer:
            return json.load(answer)

    def run(self):
        give_up = time.monotonic() + 60
        while not self.ends.wait(0.05) or self.copied == 0 and time.monotonic() < give_up:
            try:
                tables = self.ask("/outcome")["tables"]
                self.copied = sum(table["rows"] for table in tables)
                if all(table["state"] in ("done", "stopped", "failed") for table in tables):
                    self.ask("", {"type": "start", "tables": ["public.copied"]})
            except OSError:
                pass  # not there yet

    def stop(self):
        self.ends.set()
        self.join()


def with_copied(mix, rows):
    """The mix, and beside its tables one of so many rows, which nobody changes."""
    make = mix.make

    def made(connection):
        make(connection)
        mix.tables = [*mix.tables, "copied"]
        connection.execute("CREATE TABLE copied (id bigint PRIMARY KEY, a int, b text)")
        connection.execute("INSERT INTO copied SELECT i, i, repeat('x', 80) FROM generate_series(1, %s) i", [rows])
    mix.make = made


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/latency.sh", add_help=False)
    parser.add_argument("--rate", type=counted, default=10000)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--copy", type=int, default=0)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--json", type=writable)
    arguments = parser.parse_args()
    arguments.keep = False
    if arguments.seconds <= WARM_UP_S:
        raise SystemExit(f"--seconds: the first {WARM_UP_S} don't count")
    obey_sigterm()
    if arguments.copy > 0:
        return compare(arguments)
    figures = measure(arguments)
    tell(figures)
    write_json(arguments.json, figures)
    return None


def compare(arguments):
    """Without copies, and beside them."""
    without = measure(argparse.Namespace(**{**vars(arguments), "copy": 0, "option": list(arguments.option)}))
    tell(without)
    beside = measure(arguments)
    tell(beside)
    ratio = beside["p99_ms"] / without["p99_ms"]
    print(f"p99 beside copies of {arguments.copy} rows ({beside['copied']} copied meanwhile): {ratio:.2f} of that without")
    write_json(arguments.json, {"without": without, "beside": beside, "ratio": ratio})


def tell(figures):
    print(f"{figures['records']} records at {figures['rate']}/s, commit to consumer: "
          + ", ".join(f"{key[:-3]} {value:.1f} ms" for key, value in figures.items() if key.endswith("_ms")))
    print(told(figures["tail"]))


def measure(arguments):
    address = free_address()
    arguments.option.append(f'http.address="{address}"')
    stand = Stand(arguments)
    copies = Copies(address)
    if arguments.copy > 0:
        with_copied(stand.mix, arguments.copy)
    watch = Watch(time.monotonic())
    try:
        millrace, topic = stand.stream()
        sampler = Sampler(millrace.pid, watch, address)
        sampler.start()
        if arguments.copy > 0:
            copies.start()
        writer = Writer(stand, arguments.rate, arguments.seconds)
        writer.start()
        count = writer.rows
        arrivals = follow(topic, count, arguments.seconds + 30)
        writer.join()
        sampler.stop()
        if arguments.copy > 0:
            copies.stop()
        millrace.terminate()
        millrace.wait(60)
    finally:
        stand.close()
    if len(arrivals) < count:
        raise SystemExit(f"only {len(arrivals)} of {count} records arrived")
    start = arrivals[0][0] + WARM_UP_S
    rows = sorted((row for row in arrivals if row[0] >= start), key=lambda row: row[1] - row[0])
    waits = [arrival - commit for commit, arrival in rows]
    return {"rate": arguments.rate, "records": len(waits), "late_transactions": writer.late, "copied": copies.copied,
            **{f"p{name}_ms": percentile(waits, share) * 1000
               for name, share in (("50", .5), ("90", .9), ("99", .99), ("99.9", .999))},
            "max_ms": waits[-1] * 1000, "tail": explain(sampler, rows)}


if __name__ == "__main__":
    main()
