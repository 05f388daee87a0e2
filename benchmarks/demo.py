"""The work behind scripts/demo.sh: existing rows and then a burst through millrace, followed to a consumer."""

import argparse
import json
import os
import subprocess
import sys
import threading

from bench_stand import Stand, dsn
from consume import as_they_come, consumer_of
from processes import cpu_seconds, peak_rss

SAMPLES = 3
LIMIT_S = 120


def follow(consumer, count, what):
    """The next `count` records: how long each took from its commit, a few of them, and the seconds between the first and the
    last. Says every half second how many came."""
    waits, shown, first, told = [], [], None, 0.0
    for message, now in as_they_come(consumer, LIMIT_S):
        first = first or now
        waits.append(now - int(dict(message.headers())["mr-ts"]) / 1e6)
        if len(shown) < SAMPLES:
            shown.append(message)
        if now - told > 0.5 or len(waits) == count:
            told = now
            print(f"  {len(waits)} of {count} {what} at the consumer", flush=True)
        if len(waits) == count:
            return waits, shown, now - first
    sys.exit(f"only {len(waits)} of {count} {what} arrived")


def show(messages):
    for message in messages:
        headers = {name: value.decode() for name, value in message.headers()}
        value = json.loads(message.value())
        print(f"  key {message.key().decode()}  headers {headers}")
        print(f"  op {value['op']}  after {json.dumps(value['after'])[:150]} …")


def copy_and_stream(stand):
    """A millrace that copies the table, then streams it: its process and the topic."""
    topic = stand.make_topic(stand.name)
    config = stand.write_config(stand.name, stand.name, **{"snapshot.mode": '"initial"', "snapshot.max.threads": 2})
    process = subprocess.Popen([os.environ["MILLRACE_BIN"], "--config", config], stderr=subprocess.DEVNULL,
                               env={**os.environ, "BENCH_URL": dsn(stand.name)})
    return process, topic


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100000)
    parser.add_argument("--rows", type=int, default=50000)
    arguments = parser.parse_args()
    stand = Stand()
    try:
        stand.make_table()
        stand.add_rows(0, arguments.rows)
        millrace, topic = copy_and_stream(stand)
        consumer = consumer_of([(topic, 0)])
        print(f"{arguments.rows} rows are in the table before millrace starts:", flush=True)
        _, copied, copy_seconds = follow(consumer, arguments.rows, "rows")
        print(f"then a burst of {arguments.events} changes:", flush=True)
        burst = threading.Thread(target=stand.add_rows, args=(arguments.rows, arguments.events))
        burst.start()
        latencies, shown, seconds = follow(consumer, arguments.events, "events")
        consumer.close()
        burst.join()
        cpu, peak = cpu_seconds(millrace.pid), peak_rss(millrace.pid)
        millrace.terminate()
        exit_code = millrace.wait(60)
    finally:
        stand.close()
    if exit_code != 0:
        sys.exit(f"millrace ended with {exit_code}")
    latencies.sort()
    print("\nthe first rows and the first changes, as a consumer sees them:")
    show(copied[:1] + shown[:SAMPLES - 1])
    print(f"\n  rows copied              {arguments.rows} in {copy_seconds:.1f} s, {arguments.rows / copy_seconds:.0f} rows/s"
          f"\n  events                   {len(latencies)}"
          f"\n  events/s                 {len(latencies) / seconds:.0f}"
          f"\n  commit to consumer       p50 {latencies[len(latencies) // 2] * 1e3:.1f} ms,"
          f" p99 {latencies[int(len(latencies) * .99)] * 1e3:.1f} ms"
          f"\n  CPU of millrace          {cpu / (len(latencies) + arguments.rows) * 1e6:.1f} µs/event"
          f"\n  peak memory of millrace  {peak / 1e6:.1f} MB\n")


main()
