"""The work behind far.sh: one backlog of each number of partitions, drained through a proxy that delays."""

import argparse
import os
import statistics
import sys

from bench_stand import counted, obey_sigterm, scatter, writable, write_json
from drain import DrainBench

TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests")
sys.path += [TESTS, os.path.join(TESTS, "faults")]
from servers import Proxy

MIXES = {1: "insert", 12: "partitions"}
SETTINGS = {"defaults": [],
            "large": ['sink.kafka.batch_size="4MiB"', 'sink.kafka.message_max="4MiB"', "pipeline.batches=128"]}


def delays(text):
    return [int(part) for part in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(prog="benchmarks/far.sh", add_help=False)
    parser.add_argument("--rows", type=counted, default=100000)
    parser.add_argument("--rounds", type=counted, default=3)
    parser.add_argument("--delays", type=delays, default=[0, 2, 20, 100])
    parser.add_argument("--json", type=writable)
    arguments = parser.parse_args()
    # What drain.py's bench asks for besides.
    vars(arguments).update(beside=[], env=[], keep=False, delivery="at-least-once", option=[])
    return arguments


def measure(arguments, proxy, partitions):
    """Rows a second of each round, by setting and delay."""
    arguments.mix = MIXES[partitions]
    bench = DrainBench(arguments)
    found = {(name, delay): [] for name in SETTINGS for delay in arguments.delays}
    try:
        bench.make_backlog()
        for _ in range(arguments.rounds):
            for name, delay in found:
                proxy.set(f"delay {delay / 2}")
                arguments.option = [f'sink.kafka.brokers=["127.0.0.1:{proxy.port}"]', *SETTINGS[name]]
                found[name, delay].append(bench.mix.rows / bench.run("millrace")["streaming"])
                print(f"{partitions} partitions, {name}, {delay} ms: {found[name, delay][-1]:.0f} rows/s", flush=True)
    finally:
        bench.close()
    return found


def main():
    arguments = parse()
    obey_sigterm()
    proxy = Proxy(int(os.environ["KAFKA_PROXIED_PORT"]), int(os.environ["KAFKA_PROXY_PORT"]))
    try:
        figures = {partitions: measure(arguments, proxy, partitions) for partitions in MIXES}
    finally:
        proxy.close()
    print(f"\n{arguments.rows} rows, load at the end {os.getloadavg()[0]:.1f}; rows/s, and the ratio to a round trip of "
          f"{arguments.delays[0]} ms")
    print("| partitions, settings | " + " | ".join(f"{delay} ms" for delay in arguments.delays) + " |")
    print("|---|" + "---:|" * len(arguments.delays))
    for partitions, found in figures.items():
        for name in SETTINGS:
            near = statistics.median(found[name, arguments.delays[0]])
            print(f"| {partitions}, {name} | " + " | ".join(
                f"{scatter(values, '{:.0f}')}, {statistics.median(values) / near:.2f}"
                for values in (found[name, delay] for delay in arguments.delays)) + " |")
    write_json(arguments.json, {partitions: {f"{name}, {delay} ms": values for (name, delay), values in found.items()}
                                for partitions, found in figures.items()})


if __name__ == "__main__":
    main()
