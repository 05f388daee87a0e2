"""The work behind drain.sh: one backlog, two readers, alternating rounds, ratios."""

import argparse
import os
import re
import statistics
import subprocess
import time
import uuid

from confluent_kafka import Consumer, TopicPartition

from bench_stand import Stand, dsn, write_json


class Bench(Stand):
    def make_backlog(self):
        self.make_table()
        self.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])
        self.add_rows(0, self.arguments.rows)
        self.end_lsn = self.sql("SELECT pg_current_wal_insert_lsn()")[0][0]
        # pg_recvlogical stops when it sees something at or behind the end.
        self.sql("SELECT txid_current()")
        self.sql("CHECKPOINT")

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

    def run_millrace(self):
        slot = self.copy_slot()
        topic = self.make_topic(slot)
        environment = {"BENCH_URL": dsn(self.name)}
        environment.update(line.split("=", 1) for line in self.arguments.env)
        result = self.timed([*os.environ.get("BENCH_WRAP","").split(), os.environ["MILLRACE_BIN"], "--config", self.write_config(slot, slot),
                             "--stop-after", str(self.arguments.rows)], environment)
        self.drop_slot(slot)
        result["records"] = self.count(topic)
        if result["records"] < self.arguments.rows and "discard" not in str(self.arguments.option):
            raise SystemExit(f"only {result['records']} records arrived:\n{result['log']}")
        self.drop_topic(topic)
        return result

    def first_event(self):
        """Seconds from the start of the process to the first record at a consumer."""
        slot = self.make_slot()
        topic = self.make_topic(slot)
        self.add_rows(self.arguments.rows, 1)
        consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": slot,
                             "fetch.wait.max.ms": 10, "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.poll(1)
        begin = time.monotonic()
        process = subprocess.Popen([os.environ["MILLRACE_BIN"], "--config", self.write_config(slot, slot),
                                    "--stop-after", "1"], stderr=subprocess.DEVNULL,
                                   env={**os.environ, "BENCH_URL": dsn(self.name)})
        message = consumer.poll(20)
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


def summary(arguments, peers, ours, first):
    rows = arguments.rows
    median = statistics.median
    peer_wall, our_wall = median(r["wall"] for r in peers), median(r["wall"] for r in ours)
    peer_cpu, our_cpu = median(r["cpu"] for r in peers), median(r["cpu"] for r in ours)
    return {
        "rows": rows, "rounds": arguments.rounds,
        "pg_recvlogical": {"rows_per_s": rows / peer_wall, "cpu_us_per_row": peer_cpu / rows * 1e6,
                           "rss_mb": max(r["rss"] for r in peers) / 1e6},
        "millrace": {"rows_per_s": rows / our_wall, "cpu_us_per_row": our_cpu / rows * 1e6,
                     "rss_mb": max(r["rss"] for r in ours) / 1e6,
                     "allocations": max(allocations(r["log"]) for r in ours),
                     "first_event_s": first},
        # Paired: each round runs both, so a slow moment of the machine meets both.
        "rate_ratio": median(p["wall"] / o["wall"] for p, o in zip(peers, ours)),
        "cpu_ratio": median(o["cpu"] / p["cpu"] for p, o in zip(peers, ours)),
    }


def print_summary(figures):
    ours, peer = figures["millrace"], figures["pg_recvlogical"]
    print(f"\n{figures['rows']} rows, medians of {figures['rounds']} rounds")
    print(f"{'':24}{'pg_recvlogical':>16}{'millrace':>12}{'ratio':>8}")
    print(f"{'rows/s':24}{peer['rows_per_s']:16.0f}{ours['rows_per_s']:12.0f}{figures['rate_ratio']:8.2f}")
    print(f"{'own CPU µs/row':24}{peer['cpu_us_per_row']:16.2f}{ours['cpu_us_per_row']:12.2f}"
          f"{figures['cpu_ratio']:8.2f}")
    print(f"{'peak RSS MB':24}{peer['rss_mb']:16.1f}{ours['rss_mb']:12.1f}")
    print(f"{'start to first event s':24}{'':16}{ours['first_event_s']:12.3f}")
    print(f"{'own allocations in all':24}{'':16}{ours['allocations']:12d}")


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/drain.sh", add_help=False)
    parser.add_argument("--rows", type=int, default=500000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--json")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    peers, ours = [], []
    try:
        print(f"making a backlog of {arguments.rows} rows …", flush=True)
        bench.make_backlog()
        for i in range(arguments.rounds):
            peers.append(bench.run_pg_recvlogical())
            ours.append(bench.run_millrace())
            print(f"round {i + 1}: pg_recvlogical {peers[-1]['wall']:.2f} s, {peers[-1]['cpu']:.2f} s CPU; "
                  f"millrace {ours[-1]['wall']:.2f} s, {ours[-1]['cpu']:.2f} s CPU", flush=True)
        first = statistics.median(bench.first_event() for _ in range(3))
    finally:
        bench.close()
    figures = summary(arguments, peers, ours, first)
    print_summary(figures)
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
