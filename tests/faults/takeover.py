"""How long a standby takes to take over; tests/takeover.sh has the words for it."""

import argparse
import itertools
import os
import signal
import statistics
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

# pylint: disable=wrong-import-position
from endless import Endless  # noqa: E402
from kit import Database, Millrace, Topic, eventually  # noqa: E402

PAUSE_S = 0.002   # between two rows
FREEZE_S = 10
SENDER_TIMEOUT = "2s"
LIMIT_S = 60


def write(connection, _):
    """Rows 1, 2, 3 … one a transaction."""
    for row in itertools.count(1):
        connection.execute("INSERT INTO t VALUES (%s)", [row])
        yield PAUSE_S


class Consumer:
    """Reads on a thread of its own: the highest row so far, repeats, and whether one was left out."""

    def __init__(self, name):
        self.topic = Topic(name)
        self.highest, self.repeats, self.wrong = 0, 0, 0
        self.arrived = threading.Condition()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while not self.stopping.is_set():
            for record in self.topic.read(0.02):
                row = record.json_key["id"]
                with self.arrived:
                    self.repeats += row <= self.highest
                    self.wrong += row > self.highest + 1
                    self.highest = max(self.highest, row)
                    self.arrived.notify_all()

    def wait_for(self, row):
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.highest >= row, LIMIT_S), f"row {row} does not arrive"

    def close(self):
        self.stopping.set()
        self.thread.join(LIMIT_S)
        self.topic.close()


class Instances:
    """The one that streams and the one that stands by."""

    def __init__(self, database, folder, delivery):
        self.made = []
        for name in ("a", "b"):
            os.mkdir(os.path.join(folder, name))
            self.made.append(Millrace(database, os.path.join(folder, name), sink__kafka__delivery=f'"{delivery}"'))
        self.active, self.standby = self.made
        self.active.start().streaming()
        self.standby.start().wait_for("standby")

    def end(self, how):
        """Ends the active one; answers the moment."""
        began = time.monotonic()
        self.active.process.send_signal({"kill": signal.SIGKILL, "term": signal.SIGTERM, "freeze": signal.SIGSTOP}[how])
        return began

    def swap(self, how, began):
        """After the standby has taken over: the other one stands by."""
        if how == "freeze":
            time.sleep(max(0, began + FREEZE_S - time.monotonic()))
            stood_by = len(self.active.log("standby"))
            self.active.process.send_signal(signal.SIGCONT)
            self.active.wait_for("standby", LIMIT_S, stood_by + 1)
        else:
            code = self.active.ended(LIMIT_S)
            assert code == (0 if how == "term" else -signal.SIGKILL), f"exit code {code}"
            self.active.start().wait_for("standby")
        self.active, self.standby = self.standby, self.active

    def close(self):
        for one in self.made:
            if one.process is not None and one.process.poll() is None:
                one.kill()


def round_of(instances, how, load, consumer):
    """Seconds until the standby had the stream, until it streamed, and until the first row committed after the signal
    was there."""
    consumer.wait_for(load.rounds)
    taken = len(instances.standby.log("takeover"))
    streams = len(instances.standby.log("source_connected"))
    began = instances.end(how)
    row = load.rounds + 2  # the next one may be under way
    instances.standby.wait_for("takeover", LIMIT_S, taken + 1)
    free = time.monotonic() - began
    instances.standby.wait_for("source_connected", LIMIT_S, streams + 1)
    streaming = time.monotonic() - began
    consumer.wait_for(row)
    first = time.monotonic() - began
    instances.swap(how, began)
    return free, streaming, first


def figures(times):
    return f"median {statistics.median(times):.2f}, most {max(times):.2f}"


def measure(delivery, how, rounds):
    database = Database()
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.make_topic("t")
    load = consumer = instances = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            instances = Instances(database, folder, delivery)
            load = Endless(database, write)
            consumer = Consumer(database.topic("t"))
            times = [round_of(instances, how, load, consumer) for _ in range(rounds)]
            load.end()
            consumer.wait_for(load.rounds)
            instances.close()
            good = consumer.wrong == 0 and (delivery == "at-least-once" or consumer.repeats == 0)
            free, streaming, first = zip(*times)
            print(f"takeover {delivery}, {how}, {rounds} rounds: has the stream after {figures(free)} s; "
                  f"streams after {figures(streaming)} s; "
                  f"first new row after {figures(first)} s; {consumer.highest} rows, {consumer.repeats} repeats, "
                  f"{consumer.wrong} left out", flush=True)
            return good
        finally:
            if instances is not None:
                instances.close()
            if load is not None:
                load.ends.set()
            if consumer is not None:
                consumer.close()
            database.drop()


def set_sender_timeout(value):
    database = Database()
    try:
        database.run(f"ALTER SYSTEM SET wal_sender_timeout = '{value}'")
        database.run("SELECT pg_reload_conf()")
        eventually(lambda: database.run("SHOW wal_sender_timeout")[0][0] == value, what="the setting")
    finally:
        database.drop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--delivery", choices=["at-least-once", "exactly-once"])
    parser.add_argument("--end", choices=["kill", "term", "freeze"], default="kill")
    arguments = parser.parse_args()
    if arguments.end == "freeze":
        set_sender_timeout(SENDER_TIMEOUT)
    deliveries = [arguments.delivery] if arguments.delivery else ["at-least-once", "exactly-once"]
    results = [measure(delivery, arguments.end, arguments.rounds) for delivery in deliveries]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
