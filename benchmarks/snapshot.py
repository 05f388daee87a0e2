"""The work behind snapshot.sh: one table, copied by each program in turn."""

import argparse
import os
import statistics
import time

from bench_stand import Stand, counted, dsn, end, obey_sigterm, rotated, writable, write_json
from peers import Peer, Watermark, busy_since, followed, machine, wait_for_records, wait_for_rows
from processes import family_cpu, machine_ticks, peak_rss, postmaster

TABLE = "benchmark_records"


def drop_slots(stand, slot):
    """While rows are copied it has another name: the last of them may be with Kafka before the copy has ended."""
    for (name,) in stand.sql("SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s)", [slot]):
        stand.drop_slot(name)


def by_copy(stand, rows):
    """PostgreSQL's own: text to /dev/null."""
    begin, ticks, server = time.monotonic(), machine_ticks(), family_cpu(postmaster())
    psql = stand.timed(["psql", "-q", "-X", dsn(stand.name), "-c", f"COPY {TABLE} TO STDOUT"])
    return {"rows_per_s": rows / (time.monotonic() - begin), "machine_busy": busy_since(ticks), "cpu_us": psql["cpu"] / rows * 1e6,
            "server_us": (family_cpu(postmaster()) - server) / rows * 1e6}


def by_millrace(stand, rows, threads):
    slot = f"{stand.name}_{time.monotonic_ns() % 10**9}"
    topic = stand.make_topic(slot)
    watermark = Watermark(topic)
    config = stand.write_config(slot, slot, **{"snapshot.mode": '"initial"', "snapshot.max.threads": threads})
    process = stand.launch([os.environ["MILLRACE_BIN"], "--config", config])
    try:
        result = followed(process, watermark, rows)
        wait_for_rows(topic, rows)
    except RuntimeError as error:
        raise SystemExit(f"millrace, {threads} threads: {error}") from None
    end(process)
    watermark.close()
    drop_slots(stand, slot)
    stand.drop_topic(topic)
    return result


def streaming_peak(stand):
    """Peak memory in MB of a millrace that has streamed a burst and copied nothing."""
    slot = stand.make_slot()
    topic = stand.make_topic(slot)
    watermark = Watermark(topic)
    process = stand.launch([os.environ["MILLRACE_BIN"], "--config", stand.write_config(slot, slot)])
    top = stand.sql(f"SELECT max(id) FROM {TABLE}")[0][0]
    stand.add_rows(top, 50000)
    wait_for_records(process, watermark, 50000)
    peak = peak_rss(process.pid) / 1e6
    stand.sql(f"DELETE FROM {TABLE} WHERE id > {top}")
    end(process)
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
        wait_for_rows(topic, rows)
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
    parser.add_argument("--rows", type=counted, default=500000)
    parser.add_argument("--rounds", type=counted, default=3)
    parser.add_argument("--threads", default="1,4")
    parser.add_argument("--debezium", action="store_true")
    parser.add_argument("--json", type=writable)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    arguments.option = []
    obey_sigterm()
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
            for name, run in rotated(programs.items(), number - 1):
                results[name].append(run())
                print(f"round {number}: {name} {results[name][-1]['rows_per_s']:.0f} rows/s", flush=True)
    finally:
        stand.close()
    base = statistics.median(one["rows_per_s"] for one in results["COPY"])
    print(f"\nMachine: {described}.\nPeak memory of a millrace that streams: {streaming:.0f} MB.\n\n"
          "| median | rows/s (of COPY) | server CPU µs/row | its own | broker | benchmark | peak memory MB | machine busy |\n"
          "|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, found in results.items():
        cells = [cell(found, key, None, "{:.2f}") for key in ("server_us", "cpu_us", "broker_us", "benchmark_us")]
        print(f"| {name} | {cell(found, 'rows_per_s', base, '{:.0f}')} | {' | '.join(cells)} | "
              f"{cell(found, 'rss_mb', None, '{:.0f}')} | {cell(found, 'machine_busy', None, '{:.0%}')} |")
    print("\nCPU µs/row of threads:")
    for name, found in results.items():
        parts = sorted({thread for one in found for thread in one.get("threads_us", ())})
        told = {part: statistics.median(one["threads_us"].get(part, 0) for one in found) for part in parts}
        if told:
            print(f"{name}: " + ", ".join(f"{part} {us:.2f}" for part, us in told.items() if us >= 0.01))
    write_json(arguments.json, {"streaming_rss_mb": streaming, "programs": results})


if __name__ == "__main__":
    main()
