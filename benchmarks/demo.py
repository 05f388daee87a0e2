"""The work behind scripts/demo.sh: existing rows and then a burst through millrace, followed to a consumer."""

import argparse
import json
import os
import socket
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


def rate(count, seconds):
    """A second's; few records may come in one answer of the broker, between whose first and last no time is measured."""
    return f"{count / seconds:.0f}" if seconds > 0 else "–"


def show(messages):
    for message in messages:
        headers = {name: value.decode() for name, value in message.headers()}
        value = json.loads(message.value())
        print(f"  key {message.key().decode()}  headers {headers}")
        print(f"  op {value['op']}  after {json.dumps(value['after'])[:150]} …")


def wanted_address():
    """The usual one of the live page, unless another program has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 9464))
        except OSError:
            return "127.0.0.1:0"
    return "127.0.0.1:9464"


class Millrace:
    """Copies the table, then streams it, and goes on when this program has ended. What it says is in `log`."""

    def __init__(self, stand):
        self.topic = stand.make_topic(stand.name)
        self.log = os.path.join(stand.folder, "millrace.log")
        config = stand.write_config(stand.name, stand.name, **{"snapshot.mode": '"initial"', "snapshot.max.threads": 2,
                                                               "http.address": f'"{wanted_address()}"'})
        with open(self.log, "wb") as log:
            # pylint: disable-next=consider-using-with # outlives this program
            self.process = subprocess.Popen([os.environ["MILLRACE_BIN"], "--config", config], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=log, env={**os.environ, "BENCH_URL": dsn(stand.name)}, start_new_session=True)
        with open(os.path.join(stand.folder, "millrace.pid"), "w", encoding="ascii") as file:
            file.write(f"{self.process.pid}\n")

    def address(self):
        """Of its live page, as it says itself."""
        with open(self.log, encoding="utf-8") as log:
            said = [json.loads(line) for line in log if '"http_listening"' in line]
        return said[-1]["address"]

    def fail(self):
        """With its own last words."""
        self.process.terminate()
        with open(self.log, encoding="utf-8") as log:
            sys.stderr.writelines(log.readlines()[-5:])


def run(stand, millrace, rows, events):
    consumer = consumer_of([(millrace.topic, 0)])
    print(f"{rows} rows are in the table before millrace starts:", flush=True)
    _, copied, copy_seconds = follow(consumer, rows, "rows")
    print(f"then a burst of {events} changes:", flush=True)
    burst = threading.Thread(target=stand.add_rows, args=(rows, events))
    burst.start()
    latencies, shown, seconds = follow(consumer, events, "events")
    consumer.close()
    burst.join()
    latencies.sort()
    print("\nthe first rows and the first changes, as a consumer sees them:")
    show(copied[:1] + shown[:SAMPLES - 1])
    print(f"\n  rows copied              {rows} in {copy_seconds:.1f} s, {rate(rows, copy_seconds)} rows/s"
          f"\n  events                   {len(latencies)}"
          f"\n  events/s                 {rate(len(latencies), seconds)}"
          f"\n  commit to consumer       p50 {latencies[len(latencies) // 2] * 1e3:.1f} ms,"
          f" p99 {latencies[int(len(latencies) * .99)] * 1e3:.1f} ms"
          f"\n  CPU of millrace          {cpu_seconds(millrace.process.pid) / (events + rows) * 1e6:.1f} µs/event"
          f"\n  peak memory of millrace  {peak_rss(millrace.process.pid) / 1e6:.1f} MB\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100000)
    parser.add_argument("--rows", type=int, default=50000)
    parser.add_argument("--folder", required=True, help="of millrace's configuration, log and process number")
    arguments = parser.parse_args()
    stand = Stand(keep=True)
    stand.name, stand.folder = "demo", arguments.folder
    stand.make_table()
    stand.add_rows(0, arguments.rows)
    millrace = Millrace(stand)
    try:
        run(stand, millrace, arguments.rows, arguments.events)
    except BaseException:
        millrace.fail()
        raise
    print("millrace, PostgreSQL and Kafka go on:\n"
          f"\n  look   http://{millrace.address()}"
          f"\n  write  {os.environ['MILLRACE_PG_BIN']}/psql {dsn(stand.name)} \\"
          f"\n           -c \"INSERT INTO {stand.mix.tables[0]} (account_id, amount, payload, attributes) VALUES (1, 9.5, 'hello', '{{}}')\""
          f"\n  read   kcat -C -q -e -o -3 -b {os.environ['KAFKA_BOOTSTRAP']} -t {millrace.topic}"
          "\n  end    scripts/demo.sh --end\n")


main()
