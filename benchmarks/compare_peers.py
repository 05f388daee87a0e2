"""The work behind compare-peers.sh: the same backlog and the same rate for each program, in turn."""

import argparse
import datetime
import json
import os
import signal
import statistics
import sys
import time

from bench_stand import scatter
from drain import Bench
from open_loop import ROWS_PER_TRANSACTION, WARM_UP_S, percentile
from peers import HERE, KNOWN, Peer, Watermark, at_rate, machine, wait_for_records
from processes import cpu_seconds, peak_rss

DEFAULT = tuple(name for name in KNOWN if name != "millrace-exactly-once")


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


def latency(bench, peer, rate, seconds):
    waits, _ = at_rate(bench, peer, rate, seconds, ROWS_PER_TRANSACTION)
    return {f"p{share}_ms": percentile(waits, share / 100) for share in (50, 99)}


# ---- the table ----

FIGURES = (("rows_per_s", "rows/s", "{:.0f}"), ("cpu_us", "CPU µs/row", "{:.2f}"),
           ("rss_mb", "peak memory MB", "{:.0f}"), ("start_s", "start to first record s", "{:.2f}"),
           ("p50_ms", "latency p50 ms", "{:.1f}"), ("p99_ms", "latency p99 ms", "{:.1f}"))


def rounds(peer, key):
    return [result[key] for result in (*peer.drains, *peer.latencies) if key in result]


def cell(peer, first, key, form):
    """The median, the least and the most, and how often the median is that of the first program."""
    values, base = rounds(peer, key), rounds(first, key)
    if not values:
        return "–"
    text = scatter(values, form)
    if peer is first or not base or not statistics.median(base):
        return text
    return f"{text} ×{statistics.median(values) / statistics.median(base):.2f}"


def table(bench, peers, arguments, described):
    first = peers[0]
    lines = [f"# millrace and its peers, {datetime.date.today()}", "",
             f"Written by `benchmarks/compare-peers.sh --rows {arguments.rows} --rounds {arguments.rounds} "
             f"--rate {arguments.rate} --seconds {arguments.seconds}`; README.md says what each figure is.", "",
             f"Machine: {described}.", "",
             "| median (least–most) | " + " | ".join(peer.name for peer in peers) + " |",
             "|---|" + "---:|" * len(peers)]
    for key, name, form in FIGURES:
        lines.append(f"| {name} | " + " | ".join(cell(peer, first, key, form) for peer in peers) + " |")
    lines += ["", f"In brackets: the least and the most of all rounds. ×: the ratio to the figure of {first.name}. pg_recvlogical writes the undecoded stream "
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
    peers = [Peer(text) for text in arguments.peer or DEFAULT]
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
