"""The work behind snapshot.sh: one table, copied by each program in turn."""

import argparse
import os
import statistics
import subprocess
import time

from bench_stand import Stand, dsn, write_json
from peers import Peer, Watermark, machine, wait_for_records
from processes import cpu_seconds, machine_ticks, peak_rss

TABLE = "benchmark_records"


def drop_slots(stand, slot):
    """While rows are copied it has another name: the last of them may be with Kafka before the copy has ended."""
    for (name,) in stand.sql("SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s)", [slot]):
        stand.drop_slot(name)


def busy_since(before):
    """Share of the machine that all programs together kept busy: a copy can't be faster where it is all."""
    ticks, idle = (now - then for now, then in zip(machine_ticks(), before))
    return 1 - idle / max(ticks, 1)


def by_copy(stand, rows):
    """PostgreSQL's own: text to /dev/null."""
    begin, ticks = time.monotonic(), machine_ticks()
    stand.timed(["psql", "-q", "-X", dsn(stand.name), "-c", f"COPY {TABLE} TO STDOUT"])
    return {"rows_per_s": rows / (time.monotonic() - begin), "machine_busy": busy_since(ticks)}


def followed(process, watermark, rows):
    """Between the first and the last record: the start is told apart. A first look that is late sees more than one row."""
    wait_for_records(process, watermark, 1)
    first, cpu_first, early = time.monotonic(), cpu_seconds(process.pid), watermark.count()
    ticks = machine_ticks()
    wait_for_records(process, watermark, rows)
    seconds, copied = time.monotonic() - first, max(rows - early, 1)
    return {"rows_per_s": copied / seconds, "cpu_us": (cpu_seconds(process.pid) - cpu_first) / copied * 1e6,
            "rss_mb": peak_rss(process.pid) / 1e6, "machine_busy": busy_since(ticks)}


def by_millrace(stand, rows, threads):
    slot = f"{stand.name}_{time.monotonic_ns() % 10**9}"
    topic = stand.make_topic(slot)
    watermark = Watermark(topic)
    config = stand.write_config(slot, slot, **{"snapshot.mode": '"initial"', "snapshot.max.threads": threads})
    process = subprocess.Popen([os.environ["MILLRACE_BIN"], "--config", config], stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, env={**os.environ, "BENCH_URL": dsn(stand.name)})
    try:
        result = followed(process, watermark, rows)
    finally:
        process.terminate()
        process.wait(60)
        watermark.close()
    drop_slots(stand, slot)
    stand.drop_topic(topic)
    return result


def streaming_peak(stand):
    """Peak memory in MB of a millrace that has streamed a burst and copied nothing."""
    slot = stand.make_slot()
    topic = stand.make_topic(slot)
    watermark = Watermark(topic)
    process = subprocess.Popen([os.environ["MILLRACE_BIN"], "--config", stand.write_config(slot, slot)],
                               stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               env={**os.environ, "BENCH_URL": dsn(stand.name)})
    try:
        top = stand.sql(f"SELECT max(id) FROM {TABLE}")[0][0]
        stand.add_rows(top, 50000)
        wait_for_records(process, watermark, 50000)
        peak = peak_rss(process.pid) / 1e6
        stand.sql(f"DELETE FROM {TABLE} WHERE id > {top}")
    finally:
        process.terminate()
        process.wait(60)
        watermark.close()
    drop_slots(stand, slot)
    stand.drop_topic(topic)
    return peak


def by_debezium(stand, rows):
    slot = f"{stand.name}_{time.monotonic_ns() % 10**9}"
    topic = stand.make_topic(slot)
    watermark = Watermark(topic)
    peer = Peer("debezium")
    peer.environment["PEER_SNAPSHOT_MODE"] = "initial"
    with peer.running(stand, slot) as process:
        result = followed(process, watermark, rows)
    watermark.close()
    drop_slots(stand, slot)
    stand.drop_topic(topic)
    return result


def cell(results, key, base, form):
    found = [one[key] for one in results if key in one]
    if not found:
        return "–"
    value = statistics.median(found)
    return form.format(value) + (f" (×{value / base:.2f})" if base else "")


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/snapshot.sh", add_help=False)
    parser.add_argument("--rows", type=int, default=500000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="1,4")
    parser.add_argument("--debezium", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    arguments.option = []
    stand = Stand(arguments)
    programs = {"COPY": lambda: by_copy(stand, arguments.rows)}
    for threads in arguments.threads.split(","):
        programs[f"millrace, {threads} threads"] = lambda threads=int(threads): by_millrace(stand, arguments.rows, threads)
    if arguments.debezium:
        programs["Debezium"] = lambda: by_debezium(stand, arguments.rows)
    results = {name: [] for name in programs}
    try:
        stand.make_table()
        print(f"making a table of {arguments.rows} rows …", flush=True)
        stand.add_rows(0, arguments.rows)
        stand.sql(f"VACUUM ANALYZE {TABLE}")
        described = machine(stand)
        streaming = streaming_peak(stand)
        for number in range(1, arguments.rounds + 1):
            for name, run in programs.items():
                results[name].append(run())
                print(f"round {number}: {name} {results[name][-1]['rows_per_s']:.0f} rows/s", flush=True)
    finally:
        stand.close()
    base = statistics.median(one["rows_per_s"] for one in results["COPY"])
    print(f"\nMachine: {described}.\nPeak memory of a millrace that streams: {streaming:.0f} MB.\n\n"
          "| median | rows/s (of COPY) | CPU µs/row | peak memory MB | machine busy |\n|---|---:|---:|---:|---:|")
    for name, found in results.items():
        print(f"| {name} | {cell(found, 'rows_per_s', base, '{:.0f}')} | {cell(found, 'cpu_us', None, '{:.2f}')} | "
              f"{cell(found, 'rss_mb', None, '{:.0f}')} | {cell(found, 'machine_busy', None, '{:.0%}')} |")
    write_json(arguments.json, {"streaming_rss_mb": streaming, "programs": results})


if __name__ == "__main__":
    main()
