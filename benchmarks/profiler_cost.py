"""The work behind profiler-cost.sh: one backlog drained without and with the continuous profiler, in pairs."""

import argparse
import os
import random
import re
import shutil
import statistics
import tempfile
import time
import urllib.request

from bench_stand import Stand, end, obey_sigterm, write_json
from mixes import Inserts
from peers import Topics
from processes import peak_rss

ACCOUNT = ("millrace_profiler_samples_total", "millrace_profiler_lost_samples_total",
           "millrace_profiler_handler_seconds_total", "millrace_profiler_thread_seconds_total",
           "process_cpu_seconds_total", 'millrace_profiler_handler_seconds{percentile="50"}')


def interval_of_median(values, resamples=4000):
    """95 % of the medians of samples drawn from these values lie within."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(resamples))
    return medians[int(resamples * 0.025)], medians[int(resamples * 0.975) - 1]


class CostBench(Stand):
    def __init__(self, arguments):
        super().__init__(Inserts(arguments.rows), arguments.option, arguments.keep)
        self.arguments = arguments

    def drain(self, profiled):
        """Seconds of wall and CPU of one drain; with the profiler also its own account."""
        options = {}
        folder = tempfile.mkdtemp(prefix="millrace-profiles-")
        if profiled:
            options = {"profiling.path": f'"{folder}"', "profiling.frequency": self.arguments.frequency,
                       "profiling.interval": '"20s"'}  # no delay at the start: a drain is short
            if self.arguments.heap:
                options["profiling.heap"] = "true"
        slot = self.copy_slot()
        topic = self.make_topic(slot)
        path = self.write_config(slot, slot, **options)
        try:
            result = self.run(path)
            self.drop_slot(slot)
            if Topics([topic]).count() < self.arguments.rows:
                raise SystemExit("not all records arrived")
        finally:
            shutil.rmtree(folder)
        self.drop_topic(topic)
        return result

    def run(self, config):
        """Until all is acknowledged; then the account is read, and millrace is asked to stop."""
        with tempfile.TemporaryFile("w+") as log:
            begin = time.monotonic()
            process = self.launch([os.environ["MILLRACE_BIN"], "--config", config], log)
            try:
                address = self.wait_for_line(process, log, r'"http_listening".*"address":"([^"]*)"')
                figures = self.wait_for_rows(process, address)
                wall = time.monotonic() - begin
                rss = peak_rss(process.pid)
            finally:
                end(process)
        return {"wall": wall, "rss": rss, "cpu": figures["process_cpu_seconds_total"],
                "account": [figures.get(name, 0.0) for name in ACCOUNT]}

    @staticmethod
    def wait_for_line(process, log, pattern):
        while process.poll() is None:
            log.seek(0)
            found = re.search(pattern, log.read())
            if found:
                return found[1]
            time.sleep(0.01)
        raise SystemExit("millrace ended")

    def wait_for_rows(self, process, address):
        while process.poll() is None:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#"]
            figures = {name: float(value) for name, value in lines}
            if figures["millrace_records_acknowledged_total"] >= self.arguments.rows:
                return figures
            time.sleep(0.02)
        raise SystemExit("millrace ended")


def summary(arguments, plain, profiled):
    median = statistics.median
    ratios = [without["wall"] / with_it["wall"] for without, with_it in zip(plain, profiled)]
    cpu = [with_it["cpu"] / without["cpu"] for without, with_it in zip(plain, profiled)]
    samples, lost, handler, thread, process, p50 = (median(r["account"][i] for r in profiled)
                                                    for i in range(len(ACCOUNT)))
    return {"rows": arguments.rows, "pairs": arguments.pairs, "frequency": arguments.frequency,
            "rate_ratio": median(ratios), "rate_interval": interval_of_median(ratios),
            "cpu_ratio": median(cpu), "cpu_interval": interval_of_median(cpu),
            "rows_per_s": [arguments.rows / median(r["wall"] for r in side) for side in (plain, profiled)],
            "rss_mb": [max(r["rss"] for r in side) / 1e6 for side in (plain, profiled)],
            "samples": samples, "lost": lost, "handler_share": handler / process, "thread_share": thread / process,
            "handler_p50_us": p50 * 1e6}


def print_summary(f):
    low, high = f["rate_interval"]
    cpu_low, cpu_high = f["cpu_interval"]
    print(f"\n{f['rows']} rows, {f['pairs']} pairs, continuous profiler at {f['frequency']} Hz")
    print(f"rows/s without, with:            {f['rows_per_s'][0]:.0f}, {f['rows_per_s'][1]:.0f}")
    print(f"rate with / without:             {f['rate_ratio']:.4f}, 95 % of medians in {low:.4f} … {high:.4f}")
    print(f"CPU with / without:              {f['cpu_ratio']:.4f}, 95 % of medians in {cpu_low:.4f} … {cpu_high:.4f}")
    print(f"peak RSS without, with, MB:      {f['rss_mb'][0]:.1f}, {f['rss_mb'][1]:.1f}")
    print(f"own account, of the CPU time:    handler {100 * f['handler_share']:.3f} % "
          f"(median {f['handler_p50_us']:.2f} µs), thread {100 * f['thread_share']:.2f} %; "
          f"{f['samples']:.0f} samples, {f['lost']:.0f} dropped")
    print(f"target (rate within 1 %):        {'reached' if f['rate_ratio'] >= 0.99 else 'NOT reached'}")


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/profiler-cost.sh", add_help=False)
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--frequency", type=int, default=150)
    parser.add_argument("--heap", action="store_true")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--json")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    obey_sigterm()
    bench = CostBench(arguments)
    plain, profiled = [], []
    try:
        print(f"making a backlog of {arguments.rows} rows …", flush=True)
        bench.make_backlog()
        bench.drain(False)  # the first has a cold cache
        for i in range(arguments.pairs):
            for with_it in ((False, True), (True, False))[i % 2]:
                (profiled if with_it else plain).append(bench.drain(with_it))
            print(f"pair {i + 1}: {plain[-1]['wall']:.2f} s without, {profiled[-1]['wall']:.2f} s with", flush=True)
    finally:
        bench.close()
    figures = summary(arguments, plain, profiled)
    print_summary(figures)
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
