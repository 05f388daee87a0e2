"""The work behind steady.sh: what each program costs at each rate, and how long rows wait."""

import argparse
import datetime
import os
import sys
import time

from bench_stand import Stand, counted, obey_sigterm, program, rotated, scatter, writable, write_json
from open_loop import WARM_UP_S, percentile
from peers import Failed, Peer, at_rate, machine, streaming
from processes import Watch, cpu_seconds, peak_rss, threads, walsenders

SHARES = (("50", .5), ("90", .9), ("99", .99), ("99.9", .999))
TRANSACTIONS_PER_S = 100


class Account:
    """What a moment of the run has cost so far: the program, its walsender, the broker."""

    def __init__(self, process, watch):
        self.time = time.monotonic()
        self.cpu = cpu_seconds(process.pid)
        self.wakes = {name: thread["wakes"] for name, thread in threads(process.pid).items()}
        self.sender = sum(cpu_seconds(pid) for pid in walsenders(watch.server) if pid not in watch.before)
        self.broker = cpu_seconds(watch.broker)


def cost(begin, end, rows):
    """Per row, in µs; wake-ups a second, by thread. A thread that ended meanwhile is left out."""
    seconds = end.time - begin.time
    wakes = {name: max(0, count - begin.wakes.get(name, 0)) / seconds for name, count in end.wakes.items()}
    figures = {"cpu_share": (end.cpu - begin.cpu) / seconds, "wakes_per_s": sum(wakes.values()),
               "wakes": {name: round(rate, 1) for name, rate in wakes.items() if rate > 0}}
    if rows > 0:
        figures["cpu_us"] = (end.cpu - begin.cpu) / rows * 1e6
        figures["walsender_us"] = (end.sender - begin.sender) / rows * 1e6
        figures["broker_us"] = (end.broker - begin.broker) / rows * 1e6
    return figures


def measure(bench, peer, rate, seconds):
    """One run. Rate 0 is a table that nobody writes to."""
    watch = Watch(time.monotonic())
    if rate == 0:
        return idle(bench, peer, seconds, watch)

    def look(process, writer):
        time.sleep(WARM_UP_S)
        begin, first = Account(process, watch), len(writer.commits)
        writer.join()
        rows = (len(writer.commits) - first) * writer.size
        return {**cost(begin, Account(process, watch), rows), "rss_mb": peak_rss(process.pid) / 1e6,
                "late_transactions": writer.late}

    waits, seen = at_rate(bench, peer, rate, seconds + WARM_UP_S, max(1, rate // TRANSACTIONS_PER_S), look)
    if not waits:
        return seen
    return {**seen, **{f"p{name}_ms": percentile(waits, share) for name, share in SHARES}, "max_ms": waits[-1]}


def idle(bench, peer, seconds, watch):
    with streaming(bench, peer) as (process, _):
        time.sleep(WARM_UP_S)
        begin = Account(process, watch)
        time.sleep(seconds)
        return {**cost(begin, Account(process, watch), 0), "rss_mb": peak_rss(process.pid) / 1e6}


# ---- the table ----

COLUMNS = (("p50_ms", "p50 ms", "{:.1f}"), ("p90_ms", "p90", "{:.1f}"), ("p99_ms", "p99", "{:.1f}"),
           ("p99.9_ms", "p99.9", "{:.1f}"), ("cpu_us", "own CPU µs/row", "{:.1f}"),
           ("cpu_share", "of a core", "{:.1%}"), ("walsender_us", "walsender µs/row", "{:.1f}"),
           ("broker_us", "broker µs/row", "{:.1f}"), ("wakes_per_s", "wake-ups/s", "{:.0f}"),
           ("rss_mb", "peak MB", "{:.0f}"))


def told(result):
    """One run in a line, as it goes."""
    texts = [f"{title} {form.format(result[key])}" for key, title, form in COLUMNS if key in result]
    wakes = ", ".join(f"{name} {rate:.0f}" for name, rate in result["wakes"].items())
    return ", ".join(texts) + f"; wake-ups/s: {wakes}"


def cell(rounds, key, form):
    found = [result[key] for result in rounds if key in result]
    return scatter(found, form) if found else "–"


def table(results, failed, peers, arguments, described):
    lines = [f"# millrace at a steady rate, {datetime.date.today()}", "",
             f"Written by `benchmarks/steady.sh --rounds {arguments.rounds} --seconds {arguments.seconds}`; medians of the "
             f"rounds (least–most). Transactions: {TRANSACTIONS_PER_S} a second. README.md says what each figure is.", "",
             f"Machine: {described}.", "",
             "| rows/s | program | " + " | ".join(title for _, title, _ in COLUMNS) + " |",
             "|---:|---|" + "---:|" * len(COLUMNS)]
    for rate in arguments.rates:
        for peer in peers:
            cells = [cell(results[rate, peer.name], key, form) if (rate, peer.name) not in failed else "failed"
                     for key, _, form in COLUMNS]
            lines.append(f"| {rate if rate else 'none'} | {peer.name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *(f"\nFailed at {rate} rows/s: {error}" for (rate, _), error in failed.items())]) + "\n"


def parse():
    parser = argparse.ArgumentParser(prog="benchmarks/steady.sh", add_help=False)
    parser.add_argument("--rates", default="0,100,1000,10000,40000",
                        type=lambda text: [int(rate) for rate in text.split(",")])
    parser.add_argument("--rounds", type=counted, default=3)
    parser.add_argument("--seconds", type=counted, default=10)
    parser.add_argument("--peer", action="append")
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--out", type=writable)
    parser.add_argument("--json", type=writable)
    arguments = parser.parse_args()
    arguments.keep, arguments.option = False, []
    return arguments


def main():
    arguments = parse()
    obey_sigterm()
    peers = [Peer(text) for text in arguments.peer or ("pg_recvlogical", "millrace", "millrace-exactly-once")]
    for text in arguments.beside:
        name, _, path = text.rpartition("=")
        peers.append(Peer(name or "beside", program(path)))
    failed = {}
    results = {(rate, peer.name): [] for rate in arguments.rates for peer in peers}
    bench = Stand(arguments)
    try:
        bench.make_table()
        described = machine(bench)
        for number in range(arguments.rounds):
            for rate in arguments.rates:
                for peer in rotated(peers, number):
                    try:
                        result = measure(bench, peer, rate, arguments.seconds)
                    except Failed as error:
                        failed[rate, peer.name] = str(error)
                        print(f"round {number + 1}, {rate} rows/s, {error}", flush=True)
                        continue
                    results[rate, peer.name].append(result)
                    print(f"round {number + 1}, {rate} rows/s, {peer.name}: {told(result)}", flush=True)
    finally:
        bench.close()
    text = table(results, failed, peers, arguments, described)
    print(text)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(text)
    write_json(arguments.json, [{"rate": rate, "peer": name, "rounds": rounds, "failed": failed.get((rate, name))}
                                for (rate, name), rounds in results.items()])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
