"""The work behind scripts/demo.sh: existing rows and then a burst through millrace, followed to a consumer."""

import argparse
import json
import os
import subprocess
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

    def __init__(self, stand, first, events):
        super().__init__()
        self.stand, self.first, self.events, self.made = stand, first, events, 0

    def run(self):
        with psycopg.connect(dsn(self.stand.name), autocommit=True) as connection:
            while self.made < self.events:
                rows = min(ROWS_PER_TRANSACTION, self.events - self.made)
                connection.execute(INSERT_SEVEN_COLUMNS, [self.first + self.made + 1, self.first + self.made + rows])
                self.made += rows


def follow_copy(consumer, rows, limit_s):
    """The rows that were there, which come first; a few of them, and how long they took."""
    copied, shown, begin, told = 0, [], None, 0.0
    deadline = time.monotonic() + limit_s
    while copied < rows and time.monotonic() < deadline:
        messages = [message for message in consumer.consume(min(1000, rows - copied), timeout=0.1)
                    if message.error() is None]
        now = time.monotonic()
        begin = begin or (now if messages else None)
        copied += len(messages)
        shown += messages[:SAMPLES - len(shown)]
        if now - told > 0.5:
            told = now
            print(f"  {copied} of {rows} rows at the consumer", flush=True)
    if copied < rows or any(json.loads(message.value())["op"] != "r" for message in shown):
        sys.exit(f"only {copied} of {rows} existing rows arrived")
    return shown, time.monotonic() - begin


def follow(consumer, burst, limit_s):
    """Latency of each event as the consumer gets it; shows progress on a terminal."""
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
    return latencies, shown, (last or 0) - (first or 0)


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
    arguments.option, arguments.keep = [], False
    stand = Stand(arguments)
    try:
        stand.make_table()
        stand.add_rows(0, arguments.rows)
        millrace, topic = copy_and_stream(stand)
        consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": topic,
                             "fetch.wait.max.ms": 5})
        consumer.assign([TopicPartition(topic, 0, 0)])
        print(f"{arguments.rows} rows are in the table before millrace starts:", flush=True)
        copied, copy_seconds = follow_copy(consumer, arguments.rows, 120)
        print(f"then a burst of {arguments.events} changes:", flush=True)
        burst = Burst(stand, arguments.rows, arguments.events)
        burst.start()
        latencies, shown, seconds = follow(consumer, burst, 120)
        consumer.close()
        burst.join()
        cpu, peak = cpu_seconds(millrace.pid), peak_rss(millrace.pid)
        millrace.terminate()
        exit_code = millrace.wait(60)
    finally:
        stand.close()
    if len(latencies) < arguments.events or exit_code != 0:
        sys.exit(f"only {len(latencies)} of {arguments.events} events arrived, exit code {exit_code}")
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
