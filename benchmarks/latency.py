"""The work behind latency.sh: an open-loop writer, a consumer, percentiles."""

import argparse
import socket
import time

from bench_stand import Stand, write_json
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


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/latency.sh", add_help=False)
    parser.add_argument("--rate", type=int, default=10000)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    arguments.keep = False
    address = free_address()
    arguments.option.append(f'http.address="{address}"')
    stand = Stand(arguments)
    watch = Watch(time.monotonic())
    try:
        millrace, topic = stand.stream()
        sampler = Sampler(millrace.pid, watch, address)
        sampler.start()
        writer = Writer(stand, arguments.rate, arguments.seconds)
        writer.start()
        count = writer.rows
        arrivals = follow(topic, count, arguments.seconds + 30)
        writer.join()
        sampler.stop()
        millrace.terminate()
        millrace.wait(60)
    finally:
        stand.close()
    if len(arrivals) < count:
        raise SystemExit(f"only {len(arrivals)} of {count} records arrived")
    start = arrivals[0][0] + WARM_UP_S
    rows = sorted((row for row in arrivals if row[0] >= start), key=lambda row: row[1] - row[0])
    waits = [arrival - commit for commit, arrival in rows]
    figures = {"rate": arguments.rate, "records": len(waits), "late_transactions": writer.late,
               **{f"p{name}_ms": percentile(waits, share) * 1000
                  for name, share in (("50", .5), ("90", .9), ("99", .99), ("99.9", .999))},
               "max_ms": waits[-1] * 1000, "tail": explain(sampler, rows)}
    print(f"{figures['records']} records at {figures['rate']}/s, commit to consumer: "
          + ", ".join(f"{key[:-3]} {value:.1f} ms" for key, value in figures.items() if key.endswith("_ms")))
    print(told(figures["tail"]))
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
