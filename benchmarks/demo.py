"""The work behind scripts/demo.sh: a burst through millrace, followed to a consumer."""

import argparse
import json
import os
import sys
import threading
import time

import psycopg
from confluent_kafka import Consumer, TopicPartition

from bench_stand import Stand, dsn
from mixes import INSERT_SEVEN_COLUMNS
from processes import cpu_seconds, peak_rss

ROWS_PER_TRANSACTION = 1000
SAMPLES = 3


class Burst(threading.Thread):
    """Inserts as fast as one session goes."""

    def __init__(self, stand, events):
        super().__init__()
        self.stand, self.events, self.made = stand, events, 0

    def run(self):
        with psycopg.connect(dsn(self.stand.name), autocommit=True) as connection:
            while self.made < self.events:
                rows = min(ROWS_PER_TRANSACTION, self.events - self.made)
                connection.execute(INSERT_SEVEN_COLUMNS, [self.made + 1, self.made + rows])
                self.made += rows


def follow(topic, burst, limit_s):
    """Latency of each event as the consumer gets it; shows progress on a terminal."""
    consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": topic,
                         "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(topic, 0, 0)])
    latencies, shown, told = [], [], 0.0
    deadline = time.monotonic() + limit_s
    first = last = None
    while len(latencies) < burst.events and time.monotonic() < deadline:
        messages = consumer.consume(1000, timeout=0.1)
        now = time.time()
        for message in messages:
            if message.error() is not None:
                continue
            commit = int(dict(message.headers())["mr-ts"]) / 1e6
            latencies.append(now - commit)
            if len(shown) < SAMPLES:
                shown.append(message)
        if messages:
            first, last = first or now, now
        if now - told > 0.5:
            told = now
            print(f"  {burst.made} rows written, {len(latencies)} events at the consumer", flush=True)
    consumer.close()
    return latencies, shown, (last or 0) - (first or 0)


def show(messages):
    print("\nthe first events, as a consumer sees them:")
    for message in messages:
        headers = {name: value.decode() for name, value in message.headers()}
        value = json.loads(message.value())
        print(f"  key {message.key().decode()}  headers {headers}")
        print(f"  op {value['op']}  after {json.dumps(value['after'])[:150]} …")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100000)
    arguments = parser.parse_args()
    arguments.option, arguments.keep = [], False
    stand = Stand(arguments)
    try:
        millrace, topic = stand.stream()
        print(f"a burst of {arguments.events} changes:", flush=True)
        burst = Burst(stand, arguments.events)
        burst.start()
        latencies, shown, seconds = follow(topic, burst, 120)
        burst.join()
        cpu, peak = cpu_seconds(millrace.pid), peak_rss(millrace.pid)
        millrace.terminate()
        exit_code = millrace.wait(60)
    finally:
        stand.close()
    if len(latencies) < arguments.events or exit_code != 0:
        sys.exit(f"only {len(latencies)} of {arguments.events} events arrived, exit code {exit_code}")
    latencies.sort()
    show(shown)
    print(f"\n  events                   {len(latencies)}"
          f"\n  events/s                 {len(latencies) / seconds:.0f}"
          f"\n  commit to consumer       p50 {latencies[len(latencies) // 2] * 1e3:.1f} ms,"
          f" p99 {latencies[int(len(latencies) * .99)] * 1e3:.1f} ms"
          f"\n  CPU of millrace          {cpu / len(latencies) * 1e6:.1f} µs/event"
          f"\n  peak memory of millrace  {peak / 1e6:.1f} MB\n")


main()
