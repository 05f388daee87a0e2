"""The work behind drain.sh: one backlog, several readers, rounds in rotation, ratios."""

import argparse
import os
import re
import statistics
import time
import uuid

from bench_stand import Stand, counted, dsn, obey_sigterm, program, rotated, scatter, writable, write_json
from consume import as_they_come, consumer_of
from mixes import MIXES

FLOOR = "pg_recvlogical"


class Bench(Stand):
    def make_backlog(self):
        self.make_table()
        self.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])
        self.fill()
        self.end_lsn = self.sql("SELECT pg_current_wal_insert_lsn()")[0][0]
        # pg_recvlogical stops when it sees something at or behind the end.
        self.sql("SELECT txid_current()")
        self.sql("CHECKPOINT")

    def fill(self):
        self.add_rows(0, self.arguments.rows)

    def copy_slot(self):
        slot = f"{self.name}_{uuid.uuid4().hex[:6]}"
        self.sql("SELECT pg_copy_logical_replication_slot(%s, %s)", [self.name, slot])
        return slot

    def run_pg_recvlogical(self):
        slot = self.copy_slot()
        result = self.timed([os.environ["MILLRACE_PG_BIN"] + "/pg_recvlogical", "-d", dsn(self.name),
                             "--slot", slot, "--start", "-f", "/dev/null", "--no-loop",
                             "-o", "proto_version=1", "-o", "publication_names=bench",
                             "--endpos", self.end_lsn])
        self.drop_slot(slot)
        return result


class DrainBench(Bench):
    """Readers by name: the floor, millrace, and builds beside it."""

    def __init__(self, arguments):
        super().__init__(arguments, MIXES[arguments.mix](arguments.rows))
        self.binaries = {"millrace": os.environ["MILLRACE_BIN"]}
        for text in arguments.beside:
            name, _, path = text.rpartition("=")
            self.binaries[name or "beside"] = program(path)
        self.deliveries = dict.fromkeys(self.binaries, "exactly-once" if arguments.delivery == "exactly-once"
                                        else "at-least-once")
        if arguments.delivery == "both":
            self.binaries["exactly-once"] = self.binaries["millrace"]
            self.deliveries["exactly-once"] = "exactly-once"
        self.verified = set()

    def fill(self):
        with self.connected() as connection:
            self.mix.fill(connection)

    def run(self, reader):
        return self.run_pg_recvlogical() if reader == FLOOR else self.run_millrace(reader)

    def run_millrace(self, reader):
        slot = self.copy_slot()
        topic = self.make_topic(slot)
        environment = dict(line.split("=", 1) for line in self.arguments.env)
        config = self.write_config(slot, slot, **{"sink.kafka.delivery": f'"{self.deliveries[reader]}"'})
        result = self.timed([self.binaries[reader], "--config", config, "--stop-after", str(self.mix.records)],
                            environment)
        self.drop_slot(slot)
        if reader not in self.verified and "discard" not in str(self.arguments.option):
            self.verify(slot, result)
            self.verified.add(reader)
        self.drop_topic(topic)
        return result

    def verify(self, slot, result):
        """Once a reader: every record is there, each once. What a reader loses makes it fast."""
        records, positions = self.positions(slot)
        if records != self.mix.records or positions != records:
            raise SystemExit(f"{records} records at {positions} positions arrived instead of {self.mix.records}:\n"
                             f"{result['log']}")

    def first_event(self):
        """Seconds from the start of the process to the first record at a consumer."""
        slot = self.make_slot()
        topic = self.make_topic(slot)
        with self.connected() as connection:
            type(self.mix)(1).fill(connection)
        consumer = consumer_of([(topic, number) for number in range(self.mix.partitions)])
        for _ in as_they_come(consumer, 1):
            raise SystemExit("a record is there before its program")
        begin = time.monotonic()
        process = self.launch([os.environ["MILLRACE_BIN"], "--config", self.write_config(slot, slot), "--stop-after", "1"])
        message = next(as_they_come(consumer, 20), None)
        seconds = time.monotonic() - begin
        process.wait(20)
        consumer.close()
        self.drop_slot(slot)
        if message is None:
            raise SystemExit("no first event within 20 s")
        return seconds


def allocations(log):
    """Own allocations of the run; those of start-up and per relation are all there should be."""
    found = re.findall(r'"allocations":(\d+)', log)
    return int(found[-1]) if found else -1


# ---- the table ----

# (key, title, format, of one result and the number of rows; None: no ratio)
FIGURES = (
    ("rows_per_s", "rows/s, streaming", "{:.0f}", lambda r, rows: rows / r["streaming"]),
    ("rows_per_s_whole", "rows/s, whole run", "{:.0f}", lambda r, rows: rows / r["wall"]),
    ("cpu_us", "own CPU µs/row", "{:.2f}", lambda r, rows: r["cpu"] / rows * 1e6),
    ("walsender_us", "walsender CPU µs/row", "{:.2f}", lambda r, rows: r["walsender_cpu"] / rows * 1e6),
    ("broker_us", "broker CPU µs/row", "{:.2f}", lambda r, rows: r["broker_cpu"] / rows * 1e6),
)


def ratios(pairs):
    """Round by round; none where a round's figure was below what the kernel counts."""
    return [ours / others for ours, others in pairs] if all(o for _, o in pairs) else []


def summary(bench, results, first):
    """Each reader's figures of all rounds with their medians; and its ratios to the others round by round, so that a slow
    moment meets both."""
    rows, median = bench.mix.rows, statistics.median
    readers = {}
    for reader, rounds in results.items():
        found = {key: [of(r, rows) for r in rounds] for key, _, _, of in FIGURES}
        readers[reader] = {**{key: median(values) for key, values in found.items()}, "rounds": found,
                           "rss_mb": max(r["rss"] for r in rounds) / 1e6}
        for other, others in results.items():
            if other != reader:
                by_round = {key: ratios([(of(r, rows), of(o, rows)) for r, o in zip(rounds, others)])
                            for key, _, _, of in FIGURES}
                readers[reader][f"to_{other}"] = {key: median(values) if values else None for key, values in by_round.items()}
                readers[reader]["rounds"][f"to_{other}"] = by_round
        if reader != FLOOR:
            readers[reader]["allocations"] = max(allocations(r["log"]) for r in rounds)
    return {"mix": bench.arguments.mix, "delivery": bench.arguments.delivery, "rows": rows,
            "rounds": bench.arguments.rounds, "load": os.getloadavg()[0], "readers": readers, "first_event_s": first}


def print_summary(figures):
    readers = figures["readers"]
    others = [name for name in readers if name != "millrace"]
    print(f"\n{figures['rows']} rows of {figures['mix']}, {figures['delivery']}, medians of {figures['rounds']} rounds (least–most); "
          f"load at the end {figures['load']:.1f}")
    print(f"{'':24}" + "".join(f"{name:>28}" for name in readers) + "".join(f"{'to ' + name:>24}" for name in others))
    for key, title, form, _ in FIGURES:
        ratio = [readers["millrace"]["rounds"][f"to_{name}"][key] for name in others]
        print(f"{title:24}" + "".join(f"{scatter(reader['rounds'][key], form):>28}" for reader in readers.values())
              + "".join(f"{scatter(values, '{:.2f}') if values else '–':>24}" for values in ratio))
    print(f"{'peak RSS MB':24}" + "".join(f"{readers[name]['rss_mb']:28.1f}" for name in readers))
    print(f"{'own allocations in all':24}" + "".join(f"{str(readers[name].get('allocations', '')):>28}" for name in readers))
    print("start to first event, each run: " + ", ".join(f"{seconds:.3f} s" for seconds in figures["first_event_s"]))


def parse():
    parser = argparse.ArgumentParser(prog="benchmarks/drain.sh", add_help=False)
    parser.add_argument("--rows", type=counted, default=500000)
    parser.add_argument("--rounds", type=counted, default=5)
    parser.add_argument("--mix", choices=MIXES, default="insert")
    parser.add_argument("--delivery", choices=("at-least-once", "exactly-once", "both"),
                        default="at-least-once")
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--json", type=writable)
    parser.add_argument("--keep", action="store_true")
    return parser.parse_args()


def main():
    arguments = parse()
    obey_sigterm()
    bench = DrainBench(arguments)
    order = [FLOOR, *bench.binaries]
    results = {reader: [] for reader in order}
    try:
        print(f"making a backlog of {bench.mix.rows} rows of {arguments.mix} …", flush=True)
        bench.make_backlog()
        for number in range(arguments.rounds):
            for reader in rotated(order, number):
                results[reader].append(bench.run(reader))
            print(f"round {number + 1}: " + "; ".join(
                f"{reader} {results[reader][-1]['streaming']:.2f} s, {results[reader][-1]['cpu']:.2f} s CPU"
                for reader in order), flush=True)
        first = [bench.first_event() for _ in range(3)]
    finally:
        bench.close()
    figures = summary(bench, results, first)
    print_summary(figures)
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
