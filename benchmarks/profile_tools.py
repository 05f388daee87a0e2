"""The work behind profile-run.sh, profile-compare.sh and explain.sh: results to words and tables.

  metrics                 Prometheus text from standard input to JSON
  summary RESULT          summary.md of a result
  explain RESULT          which stage dominates, and what to try
  instructions RESULT     instructions of encoder and decoder by function, of callgrind.out
  compare A B             the comparison as Markdown; exit code 3 when they differ
"""

import json
import math
import os
import re
import sys

STAGES = ("receive", "decode", "encode", "produce", "flush", "ack", "malloc", "other")
# A function that moved less than this share of all is not worth a row.
ROW_POINTS = 0.5
# What is called a difference: beyond 99.9 % of what chance does, and at least this much.
SIGMAS, LEAST_POINTS = 3.3, 2.0

ADVICE = {
    "receive": (40, "PostgreSQL's side or the socket dominates: many small messages cost the most. Try a larger "
                    "`pipeline.coalesce` (fewer wake-ups), fewer columns in the publication (column lists), replica "
                    "identity DEFAULT instead of FULL, larger transactions at the writer; look at the walsender with "
                    "`perf top -p <its pid>`: it decodes on one core."),
    "encode": (20, "Serialization dominates. Try the flat format (`format = \"flat\"`) where consumers don't need the "
                   "envelope, fewer or narrower columns, replica identity DEFAULT (no `before` image), and look in the "
                   "flame graph which type's writer is wide."),
    "malloc": (10, "The allocator is busy, though the flow asks for no memory of its own. See whose frames are below "
                   "malloc: librdkafka's messages are the usual ones. Larger `sink.kafka.batch_size`, jemalloc "
                   "(`-DMILLRACE_JEMALLOC=ON`, the default), and `benchmarks/profile.sh heap` to see who asks."),
    "flush": (15, "Sending dominates: compression, checksums and requests of librdkafka's broker threads. Try another "
                  "`sink.kafka.compression`, a larger `sink.kafka.batch_size`, a `sink.kafka.linger` of some ms; look "
                  "at the broker if p99 is high while this is low."),
}


def read(folder, name, missing=None):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return missing
    with open(path, encoding="utf-8") as file:
        return json.load(file) if name.endswith(".json") else file.read()


def result(folder):
    profile = read(folder, "profile.json")
    if profile is None:
        raise SystemExit(f"profile_tools: error: {folder} holds no profile.json: is it a folder that profile-run.sh made?")
    return {"folder": folder, "profile": profile, "load": read(folder, "load.json", {}),
            "env": dict(line.split("=", 1) for line in read(folder, "env.txt", "").splitlines())}


def percent(value, total):
    return 100.0 * value / total if total else 0.0


def metrics():
    """{name: {labels: value}} of Prometheus text."""
    found = {}
    for line in sys.stdin:
        parts = re.match(r"([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)", line)
        if parts:
            value = float(parts[3])
            found.setdefault(parts[1], {})[parts[2] or ""] = value if math.isfinite(value) else str(value)
    json.dump(found, sys.stdout, indent=1)


def stage_rows(profile):
    return [(stage, percent(profile["stages"][stage], profile["total"])) for stage in STAGES]


def load_lines(load):
    latency = load.get("latency_ms", {})
    yield "events", f"{load.get('events', 0)}", ""
    yield "delivered", f"{load.get('delivered', 0)}", ""
    yield "duration", f"{load.get('duration_s', 0):.2f}", "s"
    yield "events/s", f"{load.get('events_per_s', 0):.0f}", ""
    for name in ("p50", "p90", "p99", "p99.9", "max"):
        yield f"commit to Kafka {name}", f"{latency.get(name, 0):.1f}", "ms"
    yield "peak in flight", f"{load.get('in_flight_peak', 0)}", "events"
    yield "peak memory", f"{load.get('memory_peak_bytes', 0) / 1e6:.1f}", "MB"
    yield "time to drain", f"{load.get('drain_s', 0):.2f}", "s"


def cpu_us_per_event(found):
    """CPU of millrace by samples."""
    events = found["load"].get("delivered", 0)
    frequency = float(found["env"].get("perf_frequency", 0) or 0)
    if not events or not frequency:
        return 0.0
    return found["profile"]["total"] / frequency / events * 1e6


def findings(found):
    """(stage, share, threshold, advice) of the stages beyond their thresholds, largest first."""
    beyond = [(stage, share, *ADVICE[stage]) for stage, share in stage_rows(found["profile"])
              if stage in ADVICE and share >= ADVICE[stage][0]]
    return sorted(beyond, key=lambda row: row[1] / row[2], reverse=True)


def explain_text(found):
    profile = found["profile"]
    if profile["total"] < 200:
        yield f"Only {profile['total']} samples: profile longer or with a larger `--frequency` before believing this."
    largest = max(stage_rows(profile), key=lambda row: row[1])
    yield f"The largest stage is **{largest[0]}** with {largest[1]:.1f} % of {profile['total']} samples."
    beyond = findings(found)
    for stage, share, threshold, advice in beyond:
        top = [f["name"] for f in profile["functions"] if f["stage"] == stage and f["self"]][:3]
        yield f"- **{stage}** takes {share:.1f} % (threshold {threshold} %). {advice} Widest there: {', '.join(f'`{n}`' for n in top)}."
    if not beyond:
        yield "- No stage passes its threshold (receive 40 %, encode 20 %, malloc 10 %, flush 15 %): the work is spread out."
    cores = int(found["env"].get("cores", 1) or 1)
    duration = found["load"].get("duration_s", 0)
    frequency = float(found["env"].get("perf_frequency", 0) or 0)
    if duration and frequency:
        busy = profile["total"] / frequency / duration
        yield (f"- millrace used {busy:.2f} of {cores} cores ({cpu_us_per_event(found):.2f} µs of CPU an event). "
               + ("It mostly waited: look at PostgreSQL, Kafka and off-CPU time (`benchmarks/profile.sh offcpu`) before "
                  "tuning its code." if busy < 0.5 else "It was busy: what is wide in the flame graph is what costs."))


def summary(folder):
    found = result(folder)
    profile = found["profile"]
    name = os.path.basename(os.path.abspath(folder))
    print(f"# {name}\n")
    print(f"{found['env'].get('commit', '')} on {found['env'].get('cpu', '')}, {found['env'].get('cores', '')} cores, "
          f"{found['env'].get('kernel', '')}\n")
    print("| load | |\n|---|---:|")
    for what, value, unit in load_lines(found["load"]):
        print(f"| {what} | {value} {unit} |")
    print(f"| CPU an event | {cpu_us_per_event(found):.2f} µs |")
    print(f"\n{profile['total']} samples, {percent(profile['named'], profile['total']):.1f} % with a named function, "
          f"{percent(profile['rooted'], profile['total']):.1f} % of stacks reach their thread's entry.\n")
    print("| stage | share |\n|---|---:|")
    for stage, share in stage_rows(profile):
        print(f"| {stage} | {share:.1f} % |")
    print("\n| function | stage | itself | with callees |\n|---|---|---:|---:|")
    for row in profile["functions"][:15]:
        print(f"| `{row['name']}` | {row['stage']} | {percent(row['self'], profile['total']):.1f} % "
              f"| {percent(row['total'], profile['total']):.1f} % |")
    print("\n## What it says\n")
    print("\n".join(explain_text(found)))


# ---- comparison ----

def changed(before, after, total_before, total_after):
    """Points of share gained, what chance does (one sigma), and whether it is more than chance.

    Samples of one stack come in clusters (a burst of alike work), so the variance is taken as twice the
    binomial one."""
    a, b = before / total_before, after / total_after
    pooled = (before + after) / (total_before + total_after)
    sigma = math.sqrt(2 * pooled * (1 - pooled) * (1 / total_before + 1 / total_after)) * 100
    points = (b - a) * 100
    return points, sigma, abs(points) > max(SIGMAS * sigma, LEAST_POINTS)


def compare(folder_a, folder_b):
    a, b = result(folder_a), result(folder_b)
    total = [a["profile"]["total"], b["profile"]["total"]]
    if min(total) == 0:
        raise SystemExit("one of the profiles has no samples")
    for found in (a, b):
        found["functions"] = {row["name"]: row for row in found["profile"]["functions"]}
    differences = []
    print(f"# {os.path.basename(os.path.abspath(folder_a))} → {os.path.basename(os.path.abspath(folder_b))}\n")
    print("| load | before | after |\n|---|---:|---:|")
    for (what, value, unit), (_, other, _) in zip(load_lines(a["load"]), load_lines(b["load"])):
        print(f"| {what} | {value} {unit} | {other} {unit} |")
    print(f"| CPU an event (samples) | {cpu_us_per_event(a):.2f} µs | {cpu_us_per_event(b):.2f} µs |")
    print("\n| stage | before | after | change | by chance ± |\n|---|---:|---:|---:|---:|")
    for stage in STAGES:
        values = [found["profile"]["stages"][stage] for found in (a, b)]
        points, sigma, real = changed(*values, *total)
        print(f"| {stage}{' **←**' if real else ''} | {percent(values[0], total[0]):.1f} % "
              f"| {percent(values[1], total[1]):.1f} % | {points:+.1f} | {SIGMAS * sigma:.1f} |")
        if real:
            differences.append((abs(points), f"stage {stage} {points:+.1f} points"))
    print("\n| function | stage | before | after | change | µs an event | by chance ± |\n|---|---|---:|---:|---:|---:|---:|")
    rows = []
    for name in {*a["functions"], *b["functions"]}:
        values = [found["functions"].get(name, {}).get("self", 0) for found in (a, b)]
        points, sigma, real = changed(*values, *total)
        row = (b["functions"].get(name) or a["functions"][name])
        rows.append((abs(points), name, row["stage"], values, points, sigma, real))
        if real:
            differences.append((abs(points), f"`{name}` ({row['stage']}) {points:+.1f} points"))
    for size, name, stage, values, points, sigma, real in sorted(rows, reverse=True)[:20]:
        if size >= ROW_POINTS or real:
            cost = [cpu_us_per_event(found) * value / whole
                    for found, value, whole in zip((a, b), values, total)]
            print(f"| `{name}`{' **←**' if real else ''} | {stage} | {percent(values[0], total[0]):.1f} % "
                  f"| {percent(values[1], total[1]):.1f} % | {points:+.1f} | {cost[1] - cost[0]:+.2f} | {SIGMAS * sigma:.1f} |")
    counted = compare_instructions(a, b)
    differences += counted
    print("\n## Verdict\n")
    if differences:
        print("**Different**: " + "; ".join(text for _, text in sorted(differences, reverse=True)[:8]) + ".")
    else:
        print("**No difference** beyond chance.")
    print(f"\nShares of {total[0]} and {total[1]} samples. A change counts when it is beyond {SIGMAS} standard deviations "
          f"(once in a thousand by chance) and {LEAST_POINTS:.0f} points; instructions count beyond 1 %.")
    return 3 if differences else 0


# Whose source file says the stage. These two work row by row on one thread, so their counts repeat.
SOURCES = (("encode", r"/src/(encode/|base/json)|_encoder\.c"), ("decode", r"/src/source/(pgoutput|relation_cache)"))


def count_instructions(folder):
    """Instructions without callees, by function, of those of SOURCES; from a callgrind.out with
    --compress-strings=no."""
    stages = {stage: {} for stage, _ in SOURCES}
    functions, name, is_call = {}, None, False
    with open(os.path.join(folder, "callgrind.out"), encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("fl="):
                functions = next((stages[stage] for stage, source in SOURCES if re.search(source, line)), None)
            elif line.startswith("fn="):
                name = re.sub(r"('\d+|\.constprop\.\d+|\.isra\.\d+|\.part\.\d+)+$", "", line[3:].strip())
            elif line.startswith("calls="):
                is_call = True
            elif name and (line[0] in "+-*" or line[0].isdigit()):
                # Address and line, then the counts; the line after calls= is the callee's.
                words = line.split()
                if functions is not None and not is_call and len(words) > 2:
                    functions[name] = functions.get(name, 0) + int(words[2])
                is_call = False
    return {"events": read(folder, "load.json", {}).get("delivered", 0) or 1, "stages": stages}


def compare_instructions(a, b):
    """Instructions an event where both results have them; these repeat, so 1 % is a difference."""
    counts = [read(found["folder"], "instructions.json") for found in (a, b)]
    if None in counts:
        return []
    found = []
    print("\n| instructions an event | before | after | change |\n|---|---:|---:|---:|")
    for stage, _ in SOURCES:
        before, after = ({name: value / count["events"] for name, value in count["stages"][stage].items()}
                         for count in counts)
        whole, now = max(sum(before.values()), 1), sum(after.values())
        moved = sorted(((after.get(name, 0) - before.get(name, 0), name) for name in {*before, *after}),
                       key=lambda row: abs(row[0]), reverse=True)
        change = 100 * (now - whole) / whole
        print(f"| {stage}{' **←**' if abs(change) > 1 else ''} | {whole:.1f} | {now:.1f} | {change:+.2f} % |")
        for gain, name in moved[:5]:
            if abs(gain) > 0.001 * whole:
                print(f"| – `{name}` | {before.get(name, 0):.1f} | {after.get(name, 0):.1f} | {gain:+.1f} |")
        if abs(change) > 1:
            named = ", ".join(f"`{name}` {gain:+.1f}" for gain, name in moved[:3] if abs(gain) > 0.1)
            found.append((100 + abs(change), f"{stage} {change:+.1f} % instructions an event ({named})"))
    return found


def main():
    words = sys.argv[1:]
    commands = {"metrics": 0, "summary": 1, "explain": 1, "instructions": 1, "compare": 2}
    if not words or len(words) != 1 + commands.get(words[0], -1):
        raise SystemExit(__doc__)
    if words[0] == "metrics":
        metrics()
    elif words[0] == "summary":
        summary(words[1])
    elif words[0] == "explain":
        print("\n".join(explain_text(result(words[1]))))
    elif words[0] == "instructions":
        json.dump(count_instructions(words[1]), sys.stdout, indent=1)
    else:
        sys.exit(compare(words[1], words[2]))


if __name__ == "__main__":
    main()
