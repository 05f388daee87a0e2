"""The work behind profile-run.sh, profile-compare.sh and explain.sh: results to words and tables.

  metrics                 Prometheus text from standard input to JSON
  summary RESULT          summary.md of a result
  window RESULT PART      when the burst of load<PART>.json was, for perf
  bursts RESULT           adds up load.json, load-2.json, ...; which perf.data holds each burst, and when it was
  pieces RESULT           the same of a run without bursts: WINDOWS pieces of its time
  watch RESULT PART PID METRICS  into watch<part>.txt until it is ended: the CPU seconds of that walsender, backpressure
  waits RESULT            lines of env.txt: the walsender's CPU seconds; of the time that the profile is of, its CPU and backpressure
  explain RESULT          which stage dominates, and what to try
  add RESULT ROUND...     the rounds' runs and events into a result that has all their stacks
  run RESULT              what one run has for a comparison, as JSON (runs.json)
  instructions RESULT     instructions of encoder and decoder by function, of callgrind.out
  rows A B                how many rows each profile is of, as millrace-flame wants it; of B at A's samples a second
  compare A B             the comparison as Markdown; exit code 3 when they differ, 4 when more runs are needed
  verdict FOLDER          of FOLDER/witnesses.json, as Markdown; exit codes as for compare
"""

import contextlib
import json
import math
import os
import re
import statistics
import sys
import time
import urllib.request

import advice
import verdict
from stacks import STAGES, plain
from verdict import DIFFERENT, INCONCLUSIVE, SAME, Witness

# Fewer samples than this say nothing of shares: at 2,000, one of 5 % is known to a tenth of itself (one sigma).
SAMPLES_FEWEST = 2000
# What tells how much one run varies: its bursts, or pieces of its time.
WINDOWS = 5


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


def watch(folder, part, pid, metrics_url):
    """A line each quarter of a second: seconds of CLOCK_MONOTONIC, of the walsender's CPU, of backpressure."""
    row = [0.0, 0.0, 0.0]
    with open(os.path.join(folder, f"watch{part}.txt"), "w", encoding="utf-8", buffering=1) as file:
        while True:
            row[0] = time.monotonic()
            with contextlib.suppress(OSError, ValueError):  # of another machine, or gone: what was last known
                with open(f"/proc/{pid}/schedstat", encoding="ascii") as schedstat:
                    row[1] = int(schedstat.read().split()[0]) / 1e9
            with contextlib.suppress(OSError, TypeError), urllib.request.urlopen(metrics_url, timeout=1) as answer:
                row[2] = float(re.search(rb"^millrace_backpressure_seconds_total (\S+)", answer.read(), re.M)[1])
            file.write("{:.6f} {:.6f} {:.6f}\n".format(*row))
            time.sleep(0.25)


def watched(folder, part):
    return [[float(word) for word in line.split()] for line in read(folder, f"watch{part}.txt", "").splitlines()]


def value_at(rows, column, second):
    """Between two lines, in proportion."""
    after = next((i for i, row in enumerate(rows) if row[0] >= second), len(rows) - 1)
    one, two = rows[max(after - 1, 0)], rows[after]
    part = (second - one[0]) / (two[0] - one[0]) if two[0] > one[0] else 0.0
    return one[column] + min(max(part, 0.0), 1.0) * (two[column] - one[column])


def waits(folder):
    """Lines of env.txt: what the walsender used in all; and, while the burst was under way (or else in the whole run), how much
    of a core that was, and for how much of the time every batch was in flight."""
    parts = ["", *(f"-{number}" for number in range(2, 100) if os.path.exists(os.path.join(folder, f"watch-{number}.txt")))]
    spans = [(rows, rows[0][0], rows[-1][0]) for rows in (watched(folder, part) for part in parts) if len(rows) > 1]
    print(f"walsender_cpu_s={sum(rows[-1][1] - rows[0][1] for rows, *_ in spans):.6f}")
    windows = read(folder, "load.json", {}).get("windows", [])
    if len(windows) == len(spans):
        spans = [(rows, *window) for (rows, *_), window in zip(spans, windows)]
    seconds = sum(last - first for _, first, last in spans)
    for name, column in (("walsender_busy", 1), ("backpressure", 2)) if seconds else ():
        grown = sum(value_at(rows, column, last) - value_at(rows, column, first) for rows, first, last in spans)
        print(f"{name}={grown / seconds:.3f}")


def window(folder, part):
    """From when to when the burst of load<part>.json was under way, in seconds of CLOCK_MONOTONIC."""
    load = read(folder, f"load{part}.json", {})
    if not load.get("burst_s") or load["burst_s"][1] <= load["burst_s"][0]:
        raise SystemExit("profile_tools: error: there was no burst")
    return [load["begin_ns"] / 1e9 + second for second in load["burst_s"]]


def add_bursts(folder):
    """Bursts one after another (load.json, load-2.json, ...) become one in load.json; says for each its perf.data and when it
    was."""
    parts = ["", *(f"-{number}" for number in range(2, 100) if os.path.exists(os.path.join(folder, f"load-{number}.json")))]
    loads, windows = [read(folder, f"load{part}.json", {}) for part in parts], [window(folder, part) for part in parts]
    each = [{"events": window_of({"load": load})[1], "latency_ms": {name: load["latency_ms"][name] for name in ("p50", "p99")}}
            for load in loads]
    spans = [window_of({"load": load}) for load in loads]
    whole = {**loads[0], "bursts": len(loads), "windows": windows, "each": each,
             "window": [sum(span[1] for span in spans), sum(span[2] for span in spans)],
             **{name: sum(load.get(name, 0) for load in loads) for name in ("events", "delivered", "failed", "repeated", "duration_s")},
             **{name: max(load.get(name, 0) for load in loads) for name in ("in_flight_peak", "memory_peak_bytes")},
             "latency_ms": {name: statistics.median(load["latency_ms"][name] for load in loads) for name in loads[0]["latency_ms"]}}
    with open(os.path.join(folder, "load.json"), "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
    for part, (first, last) in zip(parts, windows):
        print(f"perf{part}.data {first:.6f} {last:.6f}")


def add_pieces(folder):
    """The same of a run without bursts. What lies before the load and behind it belongs to the first and the last."""
    load = read(folder, "load.json", {})
    begin, length = load["begin_ns"] / 1e9, load["duration_s"] / WINDOWS
    cuts = [length * number for number in range(WINDOWS + 1)]
    arrived = [delivered_at(load, cut) for cut in cuts]
    load.update(windows=[[begin + one, begin + two] for one, two in zip(cuts, cuts[1:])],
                each=[{"events": two - one} for one, two in zip(arrived, arrived[1:])])
    with open(os.path.join(folder, "load.json"), "w", encoding="utf-8") as file:
        json.dump(load, file, indent=1)
    for number, (first, last) in enumerate(load["windows"]):
        print(f"perf.data {first if number else 0:.6f} {last if number < WINDOWS - 1 else last + 3600:.6f}")


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
    if "breaking_point" in load:
        broke = load["breaking_point"]
        limit = broke["limit"] if broke["reached"] else "not reached: the ramp ended first"
        yield "breaking point", f"{broke['held_events_per_s']:.0f}", f"events/s held; {limit}"


def delivered_at(load, seconds):
    """How many events had arrived then, from the timeline."""
    before = [0.0, 0]
    for at, _, delivered, *_ in load.get("timeline", []):
        if at >= seconds:
            part = (seconds - before[0]) / (at - before[0]) if at > before[0] else 1
            return before[1] + part * (delivered - before[1])
        before = [at, delivered]
    return load.get("delivered", 0)


def window_of(found):
    """What the profile is of: its name, its events, its seconds."""
    load = found["load"]
    if "window" in load:  # of several rounds
        return ("burst" if "burst_s" in load else "whole run"), *load["window"]
    if "burst_s" in load:
        first, last = load["burst_s"]
        return "burst", delivered_at(load, last) - delivered_at(load, first), last - first
    return "whole run", load.get("delivered", 0), load.get("duration_s", 0)


def cpu_us_per_event(found, samples=None):
    """CPU of millrace by samples, in what the profile is of."""
    _, events, _ = window_of(found)
    frequency = float(found["env"].get("perf_frequency", 0) or 0)
    if events <= 0 or not frequency:
        return 0.0
    return (found["profile"]["total"] if samples is None else samples) / frequency / events * 1e6


def windows_of(folder, load, frequency):
    """What a run's parts cost an event, and the walsender in the same time: how much one run varies."""
    pieces = "burst_s" not in load
    found = []
    for number, (part, (first, last)) in enumerate(zip(load.get("each", []), load.get("windows", [])), 1):
        profile = read(folder, f"window-{number}.json")
        rows = watched(folder, "" if pieces or number == 1 else f"-{number}")
        if profile is None or part["events"] <= 0 or not frequency:
            return []
        sent = value_at(rows, 1, last) - value_at(rows, 1, first) if len(rows) > 1 else 0.0
        found.append({**part, "walsender_us": sent / part["events"] * 1e6,
                      "cpu_us": {stage: samples / frequency / part["events"] * 1e6
                                 for stage, samples in profile["stages"].items()}})
    return found


def run_of(folder):
    """What one run has for the comparison, and how it may be compared at all."""
    found = result(folder)
    load, env, profile = found["load"], found["env"], found["profile"]
    part, events, _ = window_of(found)
    latency = load.get("latency_ms", {})
    return {"about": {**env, "scenario": load.get("scenario"), "options": load.get("options"), "window": part},
            "events": events,
            "cpu_us": {stage: cpu_us_per_event(found, samples) for stage, samples in profile["stages"].items()},
            "latency_ms": {name: latency.get(name, 0) for name in ("p50", "p99")},
            "in_flight": load.get("in_flight_peak", 0), "memory": load.get("memory_peak_bytes", 0),
            "windows": windows_of(folder, load, float(env.get("perf_frequency", 0) or 0)),
            "walsender_us": float(env.get("walsender_cpu_s", 0) or 0) / max(load.get("delivered", 0), 1) * 1e6}


def too_thin(found):
    """Why the profile says nothing; "" if it has enough samples."""
    total = found["profile"]["total"]
    return "" if total >= SAMPLES_FEWEST else (f"**Too thin to judge**: {total} samples in {os.path.basename(os.path.abspath(found['folder']))}, and "
                                               f"{SAMPLES_FEWEST} are wanted. Raise `--bursts`, `--frequency` or the load's length.")


def explain_text(found):
    profile = found["profile"]
    if too_thin(found):
        yield too_thin(found)
        return
    for line in advice.advise(found):
        yield line
    cores = int(found["env"].get("cores", 1) or 1)
    seconds = window_of(found)[2]
    frequency = float(found["env"].get("perf_frequency", 0) or 0)
    if seconds and frequency:
        yield (f"- millrace used {profile['total'] / frequency / seconds:.2f} of {cores} cores "
               f"({cpu_us_per_event(found):.2f} µs of CPU an event).")


def summary(folder):
    found = result(folder)
    profile = found["profile"]
    name = os.path.basename(os.path.abspath(folder))
    part, _, seconds = window_of(found)
    print(f"# {name}: {part}\n")
    print(f"{found['env'].get('commit', '')} on {found['env'].get('cpu', '')}, {found['env'].get('cores', '')} cores, "
          f"{found['env'].get('kernel', '')}\n")
    print("| load | |\n|---|---:|")
    for what, value, unit in load_lines(found["load"]):
        print(f"| {what} | {value} {unit} |")
    print(f"| CPU an event | {cpu_us_per_event(found):.2f} µs |")
    bursts = found["load"].get("bursts", 1)
    print(f"\nThe profile is of {'the ' + part if bursts == 1 else f'{bursts} bursts'} ({seconds:.2f} s)"
          + (", from the first row due to the last record acknowledged; `flame-floor.svg` is the time around it.\n"
             if part == "burst" else ".\n"))
    if too_thin(found):
        print("\n".join(red([too_thin(found)])))
    print(f"{profile['total']} samples, {percent(profile['named'], profile['total']):.1f} % with a named function, "
          f"{percent(profile['rooted'], profile['total']):.1f} % of stacks reach their thread's entry.\n")
    print("| stage | share |\n|---|---:|")
    for stage, share in stage_rows(profile):
        print(f"| {stage} | {share:.1f} % |")
    print("\n| function | stage | itself | with callees |\n|---|---|---:|---:|")
    for row in profile["functions"][:15]:
        print(f"| `{row['name']}` | {row['stage']} | {percent(row['self'], profile['total']):.1f} % "
              f"| {percent(row['total'], profile['total']):.1f} % |")
    if not too_thin(found):
        print("\n## What it says\n")
        print("\n".join(explain_text(found)))


# ---- verdict ----

EXIT_CODES = {SAME: 0, DIFFERENT: 3, INCONCLUSIVE: 4}
# Parts of the flow that run row by row: their instructions repeat. What runs batch by batch, or when something came, does not.
ROW_BY_ROW = ("decode", "encode", "produce", "acknowledge", "source thread")
# Instructions an event: what runs by the batch or by the wake-up takes a few, and how many depends on how busy the machine is.
BESIDE_FLOOR = 5.0
# A batch: how often a sleeping thread has to be woken depends on the machine, by two or three in five batches; that nothing sleeps
# does not.
A_BATCH = {"wake-ups": 0.9, "sleeps": 0.1}
THREADS = ("mr-source", "mr-sink", "rdk")


def sums_by_place(counted):
    """[{place: instructions an event}] of the runs of one side."""
    found = []
    for run in counted:
        sums = {}
        for place, _, cost in run["functions"]:
            sums[place] = sums.get(place, 0) + cost
        found.append(sums)
    return found


def witnesses_of_drains(found):
    """The witnesses of witnesses.json."""
    sides = [found["instructions"][side] for side in ("base", "head")]
    if all(sides):
        sums = [sums_by_place(side) for side in sides]
        for place in (*ROW_BY_ROW, "receive", "sink thread", "librdkafka"):
            exact = place in ROW_BY_ROW
            yield Witness(f"instructions in {place}", "instructions", *([run.get(place, 0) for run in side] for side in sums),
                          unit="an event", exact=True, decides=exact, margin=verdict.MARGIN if exact else 0.10,
                          least=verdict.EXACT_LEAST if exact else 0.05, floor=0.0 if exact else BESIDE_FLOOR)
        yield Witness("allocations", "allocations", *([run["allocations"] for run in side] for side in sides),
                      unit="an event", exact=True, least=0.03)
        for kind, floor in A_BATCH.items():
            if all(run.get("batches") for side in sides for run in side):
                yield Witness(f"{kind} asked for", kind, *([run[kind] for run in side] for side in sides), unit="a batch",
                              exact=True, decides=False, least=0.0, floor=floor, spreads=1)
    runs = [found["runs"][side] for side in ("base", "head")]

    def each(of):
        return [[of(run) for run in side] for side in runs]

    def cpu(*names):
        return each(lambda run: sum(t["cpu_us"] for n, t in run["threads"].items() if not names or n in names)
                    / (run["walsender_us"] or 1))

    # librdkafka's threads fill waiting time with polls: they are a witness, and not one to wait for.
    yield Witness("CPU of both our threads", "CPU", *cpu(*THREADS[:2]), unit="of the walsender's")
    for name in THREADS:
        yield Witness(f"CPU of {name}", "CPU", *cpu(name), unit="of the walsender's", decides=False)
    for name in THREADS:
        yield Witness(f"wake-ups of {name}", "wake-ups", *each(lambda run, n=name: run["threads"].get(n, {}).get("wakes", 0)),
                      unit="an event", margin=0.10, decides=False)
    # Pairs of which perf counted both; it may come too late to one.
    heard = [[run["calls"] for run in side] for side in runs]
    heard = list(zip(*((b, a) for b, a in zip(*heard) if sum(b.values()) and sum(a.values())))) or [(), ()]
    for name in sorted({call for side in heard for calls in side for call in calls}):
        counts = [[calls.get(name, 0) for calls in side] for side in heard]
        if sum(map(sum, counts)) > 0:
            yield Witness(f"system calls ({name})", "system calls", *counts, unit="an event", margin=0.10, decides=False)
    yield Witness("bytes written", "bytes", *each(lambda run: run["written"]), unit="an event", decides=False)
    yield Witness("memory", "memory", *each(lambda run: run["memory"]), unit="bytes at most", margin=0.05, decides=False)
    yield Witness("time of a drain", "time", *each(lambda run: run["wall_us"]), unit="µs an event", margin=0.05, decides=False)


def name_functions(judgements, found):
    """What moved inside the parts whose instructions differ."""
    sides = []
    for side in ("base", "head"):
        runs = found["instructions"][side]
        sides.append({(place, name): cost for place, name, cost in runs[0]["functions"]} if runs else {})
    groups = verdict.moved(*sides, verdict.EXACT_LEAST)
    for judgement in judgements:
        place = judgement.witness.name.removeprefix("instructions in ")
        if judgement.verdict == DIFFERENT and place in groups:
            judgement.why = [f"`{name}` {gain:+.1f}" for gain, name in groups[place][2][:3]]


def red(lines):
    """GitHub draws a caution in red; a terminal shows the word."""
    return ["> [!CAUTION]", *(f"> {line}" for line in lines), ""] if lines else []


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def judgement_table(judgements):
    yield "| witness | before | after | change | 90 % interval | p | says |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for j in judgements:
        pairs = min(len(j.witness.before), len(j.witness.after))
        interval = f"{j.low:+.1%} … {j.high:+.1%}" if pairs > 1 or j.witness.exact or j.varies > 0 else ""
        says = f"**{j.verdict}**" if j.verdict == DIFFERENT else j.verdict
        yield (f"| {j.witness.name}, {j.witness.unit} | {number(j.before)} | {number(j.after)} | {j.change:+.1%} | {interval} "
               f"| {'exact' if j.witness.exact else f'{j.p:.4f}'} | {says} |")


def odds(chance):
    """How often that is, for people."""
    return "less than once in 10,000" if chance < 1e-4 else f"once in {1 / chance:,.0f}"


def pairs_words(more):
    return f"{more} more pair{'s' if more > 1 else ''}"


def few_runs_lines(judgements):
    """What can be said of too few runs to exchange: what the windows within them tell, how sure, and what is missing."""
    known = [j for j in judgements if j.varies > 0]
    beyond = [j for j in known if j.verdict == DIFFERENT]
    likely = verdict.likely(judgements)
    if beyond:
        most = max(beyond, key=lambda j: j.p)
        yield (f"Beyond what one run varies by (by its windows ±{max(j.varies for j in beyond):.0%}): by chance {odds(most.p)}.")
    if likely:
        yield "Not sure yet: " + "; ".join(
            f"{j.words()}, by chance {odds(j.p)}, one run varies by ±{j.varies:.0%}, {pairs_words(j.more)} would settle it"
            for j in likely[:4]) + "."
    rest = [j for j in known if j.verdict == INCONCLUSIVE and j not in likely]
    if rest:
        yield "Within what one run varies by: " + "; ".join(
            f"{j.words()} (±{j.varies:.0%}, {pairs_words(j.more)})" for j in rest) + "."


def verdict_lines(judgements, builds):
    """The words, and the exit code."""
    said, who, more = verdict.overall(judgements)
    few = list(few_runs_lines(judgements))
    flow = next((j for j in judgements if j.varies > 0 and j.witness.decides), None)
    likely = verdict.likely(judgements)
    far = any(j.varies > 0 and j.verdict == DIFFERENT for j in judgements)
    if builds:
        kinds = "; ".join(builds)
        said = DIFFERENT
        what = (f": {'; '.join(j.words() for j in who[:8])}" if who and who[0].verdict == DIFFERENT else
                f", probably: {likely[0].words()}, by chance {odds(likely[0].p)}" if likely else "")
        lines = [f"**Different** builds ({kinds}){what}" + (", far beyond what one run varies by." if far else "."), "",
                 "What differs above may be theirs and not the change's: build both with the same options."]
    elif said == DIFFERENT:
        lines = ["**Different**: " + "; ".join(j.words() for j in who[:8])
                 + (", far beyond what one run varies by." if far else ".")]
    elif said == SAME:
        lines = ["**Same**: " + ", ".join(j.witness.name for j in who) + f" within ±{verdict.MARGIN:.0%}."]
    elif likely:
        lines = [f"**Inconclusive**, probably different: {likely[0].words()}, by chance {odds(likely[0].p)}; "
                 f"{pairs_words(likely[0].more)} would settle it."]
    elif flow is not None:
        lines = [f"**Inconclusive**: {pairs_words(more)} needed; {flow.words()}, and one run varies by ±{flow.varies:.0%}. More than "
                 f"{max(abs(flow.low), abs(flow.high)):.0%} is unlikely."]
    else:
        open_ones = ", ".join(j.witness.name for j in who) or "no witness was heard"
        lines = [f"**Inconclusive**: {more} more pairs needed ({open_ones})."]
    return [*lines, *(line for sentence in few for line in ("", sentence))], EXIT_CODES[said]


def print_verdict(folder):
    found = read(folder, "witnesses.json")
    if found is None:
        raise SystemExit(f"profile_tools: error: {folder} holds no witnesses.json")
    sides = found["sides"]["base"], found["sides"]["head"]
    refused = verdict.refusals(*sides)
    if refused:
        raise SystemExit("profile_tools: error: these can't be compared: " + "; ".join(refused))
    judgements = verdict.judge(list(witnesses_of_drains(found)))
    name_functions(judgements, found)
    builds = verdict.build_differences(*sides)
    lines, code = verdict_lines(judgements, builds)
    print("# Verdict\n")
    print("\n".join(red(["**Different builds**: " + "; ".join(builds)] if builds else [])))
    print("\n".join(lines) + "\n")
    print("\n".join(judgement_table(judgements)))
    print(f"\n{len(found['runs']['base'])} pairs of drains that took turns. Same: the interval lies within the margin; different: "
          f"by a permutation of the runs, {verdict.ALPHA:.1%} in all witnesses together, and by more than {verdict.LEAST:.0%}.")
    return code


# ---- comparison ----

def add(folder, rounds):
    """Several rounds become one result: events and times are added up, so that samples of all rounds have the events of all."""
    runs, window_events, window_s = [], 0, 0.0
    for one in rounds:
        runs += read(one, "runs.json")
        _, events, seconds = window_of(result(one))
        window_events, window_s = window_events + events, window_s + seconds
    load = {**read(folder, "load.json"), "window": [window_events, window_s],
            "bursts": sum(read(one, "load.json").get("bursts", 1) for one in rounds)}
    for name, found in (("runs.json", runs), ("load.json", load)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


FLOW = ("receive", "decode", "encode", "produce", "acknowledge", "malloc")


def witnesses_of_runs(before, after):
    """Of profiles: CPU an event by stage, latencies, peaks. Where the windows of runs are known, they tell how much one varies."""
    sides = before, after

    def each(of):
        return [[of(run) for run in side] for side in sides]

    # Where the walsender's CPU is known in every run, a neighbour that slows both is divided out.
    def is_known(parts):
        return all(part.get("walsender_us") for part in parts)

    runs = [run for side in sides for run in side]
    known = is_known(runs) and is_known(window for run in runs for window in run.get("windows", []))

    def cpu(*stages):
        def of(run):
            return sum(run["cpu_us"].get(stage, 0) for stage in stages) / (run["walsender_us"] if known else 1)
        before, after = each(of)
        return {"before": before, "after": after,
                "windows": tuple([[of(window) for window in run.get("windows", [])] for run in side] for side in sides)}

    unit = "of the walsender's" if known else "µs an event"
    yield Witness("CPU in the flow", "CPU", unit=unit, **cpu(*FLOW))
    for stage in STAGES[:7]:
        yield Witness(f"CPU in {stage}", "CPU", unit=unit, decides=False, **cpu(stage))
    for name in ("p50", "p99"):
        # How long a burst takes to arrive depends on who else is there, for all bursts of a run alike: windows say nothing.
        yield Witness(f"commit to Kafka {name}", "latency", *each(lambda run, n=name: run["latency_ms"][n]), unit="ms",
                      margin=0.10, decides=False)
    yield Witness("peak in flight", "in flight", *each(lambda run: run["in_flight"]), unit="events", margin=0.10, decides=False)
    yield Witness("peak memory", "memory", *each(lambda run: run["memory"]), unit="bytes", margin=0.05, decides=False)


def function_table(a, b, differing):
    """Cost of an event by function, grouped by stage; what moved within a stage whose sum stayed is no change."""
    sides = [{(row["stage"], row["name"]): cpu_us_per_event(found, row["self"]) for row in found["profile"]["functions"]}
             for found in (a, b)]
    yield "| stage | µs an event before | after | functions with the most of it |"
    yield "|---|---:|---:|---|"
    for stage, (before, after, rows) in verdict.moved(*sides, verdict.MARGIN).items():
        named = ", ".join(f"`{name}` {gain:+.2f}" for gain, name in rows[:4]) if rows else "(moved within the stage at most)"
        mark = " **←**" if f"CPU in {stage}" in differing else ""
        yield f"| {stage}{mark} | {before:.2f} | {after:.2f} | {named} |"


def rows_of(a, b):
    """"": not known."""
    events, frequencies = zip(*((window_of(found)[1], float(found["env"].get("perf_frequency", 0) or 0)) for found in (a, b)))
    return f"{events[0]:.0f},{events[1] * frequencies[1] / frequencies[0]:.0f}" if min(*events, *frequencies) > 0 else ""


def compare(folder_a, folder_b):
    a, b = result(folder_a), result(folder_b)
    if min(found["profile"]["total"] for found in (a, b)) == 0:
        raise SystemExit("profile_tools: error: one of the profiles has no samples")
    runs = [read(folder, "runs.json") or [run_of(folder)] for folder in (folder_a, folder_b)]
    sides = runs[0][0]["about"], runs[1][0]["about"]
    refused = verdict.refusals(*sides)
    if refused:
        raise SystemExit("profile_tools: error: these can't be compared: " + "; ".join(refused))
    witnesses = list(witnesses_of_runs(*runs))
    drains = read(folder_b, "witnesses.json") or read(os.path.dirname(os.path.abspath(folder_b)), "witnesses.json")
    thin = [sentence for sentence in map(too_thin, (a, b)) if sentence]
    if thin:
        witnesses = [one for one in witnesses if one.kind != "CPU"]
    if drains is not None:
        for one in witnesses:
            one.decides = False  # the drains do, whose noise is a tenth
        witnesses = [*witnesses_of_drains(drains), *witnesses]
    witnesses += witnesses_of_instructions(a, b)
    judgements = verdict.judge(witnesses)
    if drains is not None:
        name_functions(judgements, drains)
    builds = verdict.build_differences(*(drains["sides"][side] for side in ("base", "head")) if drains else sides)
    lines, code = verdict_lines(judgements, builds)
    if thin and not builds and not any(one.decides for one in witnesses):
        lines, code = [f"**Inconclusive**: {thin[0]}"], EXIT_CODES[INCONCLUSIVE]
    print(f"{lines[0]}\n")
    print(f"# {os.path.basename(os.path.abspath(folder_a))} → {os.path.basename(os.path.abspath(folder_b))}: "
          f"{window_of(b)[0]}\n")
    cautions = ["**Different builds**: " + "; ".join(builds)] if builds else []
    print("\n".join(red(cautions + thin)))
    print("## Verdict\n")
    print("\n".join(lines) + "\n")
    print("\n".join(judgement_table(judgements)))
    differing = {j.witness.name for j in judgements if j.verdict == DIFFERENT}
    if not thin:
        print("\n## Where\n")
        print("\n".join(function_table(a, b, differing)))
    print("\n| load | before | after |\n|---|---:|---:|")
    for (what, value, unit), (_, other, _) in zip(load_lines(a["load"]), load_lines(b["load"])):
        print(f"| {what} | {value} {unit} | {other} {unit} |")
    print(f"\n{len(runs[0])} run{'s' if len(runs[0]) > 1 else ''} of each. Costs are absolute, of an event; shares would hide what slows everything.")
    return code


# Whose source file says the stage. These two work row by row on one thread, so their counts repeat.
SOURCES = (("encode", r"/src/(encode/|base/json)|/placed_faults\.c"), ("decode", r"/src/(stream/(pgoutput|relation_cache)|event/relation)"))


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
                name = plain(line[3:].strip())
            elif line.startswith("calls="):
                is_call = True
            elif name and (line[0] in "+-*" or line[0].isdigit()):
                # Address and line, then the counts; the line after calls= is the callee's.
                words = line.split()
                if functions is not None and not is_call and len(words) > 2:
                    functions[name] = functions.get(name, 0) + int(words[2])
                is_call = False
    return {"events": read(folder, "load.json", {}).get("delivered", 0) or 1, "stages": stages}


def witnesses_of_instructions(a, b):
    """Of instructions.json, where both results have one (profile.sh callgrind)."""
    counts = [read(found["folder"], "instructions.json") for found in (a, b)]
    if None not in counts:
        for stage, _ in SOURCES:
            yield Witness(f"instructions in {stage}", "instructions",
                          *([sum(count["stages"][stage].values()) / count["events"]] for count in counts),
                          unit="an event", exact=True, least=verdict.LEAST)


def main():
    words = sys.argv[1:]
    commands = {"metrics": 0, "summary": 1, "explain": 1, "run": 1, "window": 2, "bursts": 1, "pieces": 1, "waits": 1, "watch": 4, "instructions": 1, "verdict": 1, "rows": 2, "compare": 2}
    if words and words[0] == "add":
        return add(words[1], words[2:])
    if not words or len(words) != 1 + commands.get(words[0], -1):
        raise SystemExit(__doc__)
    if words[0] == "metrics":
        metrics()
    elif words[0] == "summary":
        summary(words[1])
    elif words[0] == "explain":
        print("\n".join(explain_text(result(words[1]))))
    elif words[0] == "window":
        print(*(f"{second:.6f}" for second in window(words[1], words[2])))
    elif words[0] == "bursts":
        add_bursts(words[1])
    elif words[0] == "pieces":
        add_pieces(words[1])
    elif words[0] == "watch":
        watch(*words[1:])
    elif words[0] == "waits":
        waits(*words[1:])
    elif words[0] == "run":
        json.dump([run_of(words[1])], sys.stdout, indent=1)
    elif words[0] == "instructions":
        json.dump(count_instructions(words[1]), sys.stdout, indent=1)
    elif words[0] == "rows":
        print(rows_of(*map(result, words[1:])))
    elif words[0] == "verdict":
        sys.exit(print_verdict(words[1]))
    else:
        sys.exit(compare(words[1], words[2]))
    return None


if __name__ == "__main__":
    main()
