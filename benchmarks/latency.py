"""The work behind latency.sh: an open-loop writer, a consumer, percentiles."""

import argparse
import json
import socket
import threading
import time
import urllib.request

from bench_stand import Stand, counted, obey_sigterm, writable, write_json
from mixes import Inserts
from open_loop import ROWS_PER_TRANSACTION, WARM_UP_S, percentiles_ms
from peers import Failed, Peer, at_rate, streaming
from processes import Watch
from tail import Sampler, explain, told


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Copies(threading.Thread):
    """Copies another table beside the stream, again and again."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.ends, self.copied = address, threading.Event(), 0

    def ask(self, path, wish=None):
        with urllib.request.urlopen(f"http://{self.address}/api/snapshot{path}", json.dumps(wish).encode() if wish else None, 10) as answer:
            return json.load(answer)

    def run(self):
        give_up = time.monotonic() + 60
        while not self.ends.wait(0.05) or self.copied == 0 and time.monotonic() < give_up:
            try:
                tables = self.ask("/outcome")["tables"]
                self.copied = sum(table["rows"] for table in tables)
                if all(table["state"] in ("done", "stopped", "failed") for table in tables):
                    self.ask("", {"type": "start", "tables": ["public.copied"]})
            except OSError:
                pass  # not there yet

    def stop(self):
        self.ends.set()
        self.join()


class BesideCopied(Inserts):
    """The table, and beside it one of so many rows, which nobody changes."""

    tables = ("benchmark_records", "copied")

    def make(self, connection):
        Inserts(0).make(connection)
        connection.execute("CREATE TABLE copied (id bigint PRIMARY KEY, a int, b text)")
        connection.execute("INSERT INTO copied SELECT i, i, repeat('x', 80) FROM generate_series(1, %s) i", [self.rows])


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/latency.sh", add_help=False)
    parser.add_argument("--rate", type=counted, default=10000)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--copy", type=int, default=0)
    parser.add_argument("--json", type=writable)
    arguments = parser.parse_args()
    if arguments.seconds <= WARM_UP_S:
        raise SystemExit(f"--seconds: the first {WARM_UP_S} don't count")
    obey_sigterm()
    if arguments.copy > 0:
        return compare(arguments)
    figures = measure(arguments)
    tell(figures)
    write_json(arguments.json, figures)
    return None


def compare(arguments):
    """Without copies, and beside them."""
    without = measure(argparse.Namespace(**{**vars(arguments), "copy": 0}))
    tell(without)
    beside = measure(arguments)
    tell(beside)
    ratio = beside["p99_ms"] / without["p99_ms"]
    print(f"p99 beside copies of {arguments.copy} rows ({beside['copied']} copied meanwhile): {ratio:.2f} of that without")
    write_json(arguments.json, {"without": without, "beside": beside, "ratio": ratio})


def tell(figures):
    print(f"{figures['records']} records at {figures['rate']}/s, commit to consumer: "
          + ", ".join(f"{key[:-3]} {value:.1f} ms" for key, value in figures.items() if key.endswith("_ms")))
    print(told(figures["tail"]))


def measure(arguments):
    address = free_address()
    stand = Stand(BesideCopied(arguments.copy) if arguments.copy else None)
    copies = Copies(address)
    watch = Watch()
    try:
        stand.make_table()
        with streaming(stand, Peer("millrace"), PEER_HTTP=address) as running:
            sampler = Sampler(running[0].pid, watch, address)
            sampler.start()
            if arguments.copy > 0:
                copies.start()
            pairs, late = at_rate(stand, running, arguments.rate, arguments.seconds, ROWS_PER_TRANSACTION,
                                  lambda writer: writer.join() or writer.late)
            sampler.stop()
            if arguments.copy > 0:
                copies.stop()
    except Failed as error:
        raise SystemExit(str(error)) from None
    finally:
        stand.close()
    pairs.sort(key=lambda pair: pair[1] - pair[0])
    return {"rate": arguments.rate, "records": len(pairs), "late_transactions": late, "copied": copies.copied, **percentiles_ms(pairs),
            "tail": explain(sampler, pairs)}


if __name__ == "__main__":
    main()
