"""The work behind compare-peers.sh: the same backlog and the same rate for each program, in turn."""

import argparse
import datetime
import json
import os
import statistics
import sys

from bench_stand import counted, obey_sigterm, rotated, scatter, writable
from drain import Bench
from open_loop import ROWS_PER_TRANSACTION, WARM_UP_S, percentile
from peers import HERE, KNOWN, Failed, Peer, Watermark, at_rate, followed, machine, wait_for_rows

DEFAULT = tuple(name for name in KNOWN if name != "millrace-exactly-once")


def drain(bench, peer, rows):
    slot = bench.copy_slot()
    topic = bench.make_topic(slot)
    watermark = Watermark(topic)
    if peer.writes_no_topic:
        result = bench.run_pg_recvlogical()
        result = {"rows_per_s": rows / result["streaming"], "cpu_us": result["cpu"] / rows * 1e6,
                  "rss_mb": result["rss"] / 1e6}
    else:
        with peer.running(bench, slot) as process:
            result = followed(process, watermark, rows)
            wait_for_rows(topic, rows)
    watermark.close()
    bench.drop_slot(slot)
    bench.drop_topic(topic)
    return result


def latency(bench, peer, rate, seconds):
    waits, _ = at_rate(bench, peer, rate, seconds, ROWS_PER_TRANSACTION)
    return {f"p{share}_ms": percentile(waits, share / 100) for share in (50, 99)}


# ---- the table ----

FIGURES = (("rows_per_s", "rows/s", "{:.0f}"), ("cpu_us", "CPU µs/row", "{:.2f}"),
           ("rss_mb", "peak memory MB", "{:.0f}"), ("start_s", "start to first record s, each run", "{:.2f}"),
           ("p50_ms", "latency p50 ms", "{:.1f}"), ("p99_ms", "latency p99 ms", "{:.1f}"))


def rounds(peer, key):
    return [result[key] for result in (*peer.drains, *peer.latencies) if key in result]


def cell(peer, first, key, form):
    """The median, the least and the most, and how often the median is that of the first program."""
    if peer.failed:
        return "failed"
    values, base = rounds(peer, key), rounds(first, key)
    if not values:
        return "–"
    # A start that waits for a timer now and then has no median worth naming: each run.
    text = ", ".join(map(form.format, values)) if key == "start_s" else scatter(values, form)
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
    lines += ["", f"In brackets: the least and the most of all rounds. ×: the ratio to the figure of {first.name}. pg_recvlogical "
              "writes the undecoded stream to /dev/null; the others write JSON to Kafka.", "",
              *(f"Failed: {peer.failed}\n" for peer in peers if peer.failed)]
    return "\n".join(lines)


def in_rounds(peers, count, name, run, figure):
    """Each that has not failed, in rotation; what `run` gives goes into that list of the peer's."""
    for number in range(count):
        for peer in rotated(peers, number):
            if peer.failed:
                continue
            try:
                getattr(peer, name).append(run(peer))
                print(f"round {number + 1}: {peer.name} {figure(getattr(peer, name)[-1])}", flush=True)
            except Failed as error:
                peer.failed = str(error)
                print(f"round {number + 1}: {peer.failed}", flush=True)


def measure(bench, peers, arguments):
    in_rounds(peers, arguments.rounds, "drains", lambda peer: drain(bench, peer, arguments.rows),
              lambda result: f"{result['rows_per_s']:.0f} rows/s")
    if arguments.seconds > 0:
        in_rounds([peer for peer in peers if not peer.writes_no_topic], arguments.rounds, "latencies",
                  lambda peer: latency(bench, peer, arguments.rate, arguments.seconds), lambda result: f"p50 {result['p50_ms']:.1f} ms")


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/compare-peers.sh", add_help=False)
    parser.add_argument("--rows", type=counted, default=500000)
    parser.add_argument("--rounds", type=counted, default=3)
    parser.add_argument("--rate", type=counted, default=2000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--peer", action="append")
    parser.add_argument("--out", type=writable, default=os.path.join(HERE, "results.md"))
    parser.add_argument("--json", type=writable)
    arguments = parser.parse_args()
    if 0 < arguments.seconds <= WARM_UP_S:
        raise SystemExit(f"--seconds: the first {WARM_UP_S} don't count")
    arguments.keep = False
    obey_sigterm()
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
            json.dump({peer.name: {"drains": peer.drains, "latencies": peer.latencies, "failed": peer.failed} for peer in peers},
                      file, indent=2)
    return 1 if any(peer.failed for peer in peers) else 0


if __name__ == "__main__":
    sys.exit(main())
