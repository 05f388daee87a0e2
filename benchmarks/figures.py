#!/usr/bin/env python3
"""Puts the figures of figures/, of each load those of the newest file that has it, into the pages that state them, where they are marked:

    <!-- figures: table LOAD,... / PROGRAM,... / FIGURE,... -->
    what stands here is written again
    <!-- /figures -->

  benchmarks/figures.py             writes the pages
  benchmarks/figures.py FILE        prints all tables of that file

Needs nothing but Python. tests/test_docs.py holds the pages against it."""

import glob
import json
import os
import re
import statistics
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLOOR = "pg_recvlogical"
PAGES = ("README.md", "docs/comparison.md", "docs/sizing.md", "benchmarks/results.md")
BACKLOGS = ("insert", "mixed", "wide", "partitions", "small", "tables", "transaction")
LOADS = {"insert": "{rows} inserts of 7 columns", "mixed": "{rows} inserts, updates and deletes",
         "wide": "{rows} inserts with 4 KiB of text",
         "partitions": "{rows} inserts into 12 partitions", "small": "{rows} inserts, 10 a transaction",
         "tables": "{rows} inserts into 100 tables", "transaction": "{rows} inserts in one transaction",
         "copy": "{rows} existing rows", "slots-1": "{rows} inserts into 2 tables, one slot",
         "slots-2": "{rows} inserts into 2 tables, a slot for each", "sustained": "a flat lag for {seconds} s"}
PROGRAMS = {"millrace": "at least once", "millrace-exactly-once": "exactly once", "millrace-4-threads": "4 threads",
            "librdkafka": "librdkafka alone", "librdkafka-exactly-once": "librdkafka alone, exactly once", "debezium": "Debezium", "debezium-tuned": "Debezium, tuned"}
CALLED = {"copy": {FLOOR: "psql, COPY", "librdkafka": "COPY to librdkafka", "millrace": "1 thread"}}
TITLES = {"rows_per_s": "rows/s", "cpu_us": "own CPU, µs/row", "sender_us": "walsender, µs/row", "broker_us": "broker, µs/row",
          "server_us": "server, µs/row",
          "cpu_share": "of a core", "machine_busy": "machine busy", "rss_mb": "peak memory, MB", "start_s": "start to first record, s",
          "p50_ms": "p50, ms", "p90_ms": "p90, ms", "p99_ms": "p99, ms", "p99.9_ms": "p99.9, ms", "max_ms": "longest, ms",
          "wakes_per_s": "wake-ups/s", "rate": "rows/s, flat lag", "half_rate": "rows/s, half",
          "half_p99.9_ms": "p99.9 at half, broker restarted, ms"}
COSTS = ("rows_per_s", "cpu_us", "sender_us", "broker_us", "rss_mb", "start_s", "machine_busy")
SHARES = ("cpu_share", "machine_busy")
SPREAD = ("rows_per_s", "start_s", "p50_ms", "p99_ms", "p99.9_ms", "cpu_us", "rate")  # these are shown with the spread of their rounds
MARK = re.compile(r"(<!-- figures: (\S+)(.*?) -->\n)(.*?)(<!-- /figures -->)", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
UNIT = r"(?:(?:rows|events|records)(?:/s| a second)|µs|ms\b)"
# Figures that no mark surrounds, and why.
ELSEWHERE = {
    "benchmarks/results.md": {r"were not kept, had": "sessions before this script"},
    "docs/comparison.md": {r"\| (Outboxx|Sequin) \|": "what others publish of their own machines"},
    "docs/sizing.md": {r"\| up to [\d,]+ rows/s": "a load to choose by", r"1,000th topic": "a setting",
                       r"took 8 ms; for each 4 ms|from 64 ms on|^\| (a request to a partition|all that is in flight) \|": "a rule of kafka_far.h", r"on two busy cores|^\|  (\(default\) )?\| \d\.\d µs \|": "pipeline.latency, by hand"}}


def number(value, key=""):
    if key in SHARES:
        return f"{value * 100:.{1 if value < 0.1 else 0}f} %"
    digits = next((digits for bound, digits in ((10, 2), (100, 1)) if abs(value) < bound), 0)
    return f"{value:,.{digits}f}"


def around(values, key=""):
    return f" ({number(min(values), key)}–{number(max(values), key)})" if len(values) > 1 else ""


class Figures:
    """What one run of matrix.sh has found, round by round."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.about = json.load(file)
        self.runs = self.about.pop("runs")

    def rounds(self, load, program, key):
        return {run["round"]: run[key] for run in self.runs if (run["load"], run["program"]) == (load, program) and key in run}

    def median(self, load, program, key):
        return statistics.median(self.rounds(load, program, key).values() or [0])

    def ratios(self, load, program, base, key):
        ours, others = self.rounds(load, program, key), self.rounds(load, base, key)
        return [ours[at] / others[at] for at in ours if others.get(at)]

    def cell(self, load, program, key, base=None, spread=False):
        """The median, the least and the most; and the ratio to that of `base`, with the least and the most of the rounds' ratios, which
        a slow moment of the machine meets on both sides."""
        values = list(self.rounds(load, program, key).values())
        if not values:
            return "failed" if self.rounds(load, program, "failed") else "–"
        if spread and key == "start_s":  # a start that waits for a timer now and then has no median worth naming
            return ", ".join(number(value) for value in values)
        text = number(statistics.median(values), key)
        if spread and key in SPREAD:
            text += around(values, key)
        to = self.median(load, base, key) if base and base != program and key not in SHARES else 0
        if to:
            text += f" ×{statistics.median(values) / to:.2f}"
        return text + (around(self.ratios(load, program, base, key)) if to and spread and key in SPREAD else "")

    def programs(self, loads):
        return list(dict.fromkeys(run["program"] for run in self.runs if run["load"] in loads))

    def title(self, load):
        word, *rest = load.split("-")
        if word == "steady":
            return f"{int(rest[0]):,} rows/s"
        if word == "far":
            return f"{rest[0]} partition{'s' * (rest[0] != '1')}, {rest[1]} ms"
        settings = next((run["settings"] for run in self.runs if run["load"] == load), {})
        return LOADS[load].format(**{"rows": "–", "seconds": "–"} | {key: f"{value:,.0f}" for key, value in settings.items()})


def table(figures, loads, programs, keys, spread=False):
    """One figure: loads by programs. One load: figures by programs. Else each load and program by figures."""
    called = PROGRAMS | CALLED.get(loads[0].split("-")[0], {})
    names = [called.get(program, program) for program in programs]

    def cells(load, key):
        return [figures.cell(load, program, key, programs[0], spread) for program in programs]
    if len(keys) == 1:
        head, lines = [TITLES[keys[0]], *names], [[figures.title(load), *cells(load, keys[0])] for load in loads]
    elif len(loads) == 1:
        head, lines = [figures.title(loads[0]), *names], [[TITLES[key], *cells(loads[0], key)] for key in keys]
    else:
        head = ["load", "program", *(TITLES[key] for key in keys)]
        lines = [[figures.title(load), name, *(figures.cell(load, program, key, None, spread) for key in keys)]
                 for load in loads for program, name in zip(programs, names)]
    words = 2 if head[0] == "load" else 1
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "".join("| " + " | ".join(line) + " |\n" for line in (head, rule, *lines))


# ---- what a mark stands for ----

def paragraph(text):
    return textwrap.fill(" ".join(text.split()), 140, break_long_words=False, break_on_hyphens=False) + "\n"


def span(values, form="{:.2f}"):
    low, high = (form.format(value) for value in (min(values or [0]), max(values or [0])))
    return low if low == high else f"{low} to {high}"


def about(figures):
    """Where and with what the figures were made."""
    facts, m = figures.about, figures.about["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return paragraph(f"""Of {facts['begun'][:10]}: {m['cores']} cores ({m['cpu']}), {m['memory_mb'] // 1024} GiB, {m['kernel']},
        {facts['system_call_ns']} ns for a system call; {versions}, librdkafka {facts['millrace'].get('librdkafka', '–')}. PostgreSQL,
        Kafka, the program, the load and the consumer share the machine. Load average before a run:
        {span([run['machine_load'] for run in figures.runs], '{:.1f}')}.""")


def headline(figures):
    """Three figures with their ranges, and what limits the first."""
    loads, latencies = BACKLOGS[:4], ("p50_ms", "p99_ms")
    programs = ("millrace", "millrace-exactly-once", "debezium", "debezium-tuned")

    def against(program):
        return span([figures.median(load, program, "rows_per_s") / figures.median(load, FLOOR, "rows_per_s") for load in loads
                     if figures.rounds(load, program, "rows_per_s") and figures.rounds(load, FLOOR, "rows_per_s")])

    def latency(program):
        rounds = [figures.rounds("steady-10000", program, key).values() for key in latencies]
        return f"{span(rounds[0], '{:.1f}')} (p99 {span(rounds[1], '{:.0f}')})" if rounds[0] else "–"

    def memory_of(program):
        return span([value for load in loads for value in figures.rounds(load, program, "rss_mb").values()], "{:,.0f}")

    def of_inserts(key):
        return figures.median("insert", "millrace", key)
    share, busy = of_inserts("sender_us") * of_inserts("rows_per_s") / 1e6, number(of_inserts("machine_busy"), "machine_busy")
    limit = f"PostgreSQL's walsender, which kept {share:.0%} of a core busy" if share > 0.85 else f"the machine, which was {busy} busy"
    load, cores = statistics.median(run["machine_load"] for run in figures.runs), figures.about["machine"]["cores"]
    beside = f"Other work ran beside, with a load average of {load:.0f} before a run: take it as a trial." if load > 2 * cores else ""
    rates = [rate for load in loads for program in programs[:2] for rate in figures.rounds(load, program, "rows_per_s").values()]
    machines = [rate for one in recorded() if (rate := one.median("insert", "millrace", "rows_per_s"))]
    others = f"; inserts over {len(machines)} runs {span(machines, '{:,.0f}')}" if machines[1:] else ""
    lines = [["", *(PROGRAMS[program] for program in programs)], ["---"] + ["---:"] * len(programs),
             [f"backlog, × `{FLOOR}`", *map(against, programs)],
             ["COMMIT to consumer at 10,000 rows/s, median, ms", *map(latency, programs)],
             ["peak memory in a backlog, MB", *map(memory_of, programs)]]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines) + "\n" + paragraph(f"""One run, all programs in turns, on
        {cores} cores that they share with PostgreSQL, Kafka and the consumer. Ranges are of loads and rounds; – was not measured. For
        millrace a backlog is {span(rates, '{:,.0f}')} rows/s{others}. What limits it: {limit}. {beside}""")


def walsender(figures):
    cost = figures.median("insert", "millrace", "sender_us")
    return paragraph(f"""PostgreSQL's walsender decodes the WAL for the slot: {number(cost)} µs a row in a backlog of inserts, so at most
        {1e6 / max(cost, 0.01):,.0f} rows/s of one core.""")


def memory(figures):
    peaks = [max([0, *(value for load in BACKLOGS for value in figures.rounds(load, program, "rss_mb").values())])
             for program in ("millrace", "millrace-exactly-once")]
    return paragraph(f"The highest peak of all backlogs was {peaks[0]:.0f} MB, exactly once {peaks[1]:.0f} MB.")


def quiet(figures):
    """What of a quiet day's cost is librdkafka's."""
    def cost(program):
        return figures.median("steady-1000", program, "cpu_us")
    floor, alone, both = cost(FLOOR), cost("librdkafka"), cost("librdkafka-exactly-once")
    return paragraph(f"""librdkafka alone takes {alone / max(floor, 0.01):.1f} times what `{FLOOR}` takes for a row, exactly once
        {both / max(floor, 0.01):.1f} times. millrace does the work of both programs: {number(cost("millrace"))} µs, where the two take
        {number(floor + alone)}; exactly once {number(cost("millrace-exactly-once"))}, where they take {number(floor + both)}.""")


def settings(figures, program):
    lines = "\n".join(figures.about["settings"].get(program, ["–"]))
    return f"```properties\n{lines}\n```\n"


def tables(figures, loads=None):
    """Everything that the file has, with the spread of the rounds."""
    found = [load for load in dict.fromkeys(run["load"] for run in figures.runs) if loads is None or load in loads]
    parts = [about(figures)]
    for load in (load for load in found if load in BACKLOGS):
        parts.append(table(figures, [load], figures.programs([load]), COSTS, True))
    if "copy" in found:
        parts.append(table(figures, ["copy"], figures.programs(["copy"]), [key.replace("sender", "server") for key in COSTS], True))
    for word, keys in (("steady", ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms", *COSTS[1:5], "cpu_share", "wakes_per_s")),
                       ("far", ("rows_per_s",)), ("slots", ("rows_per_s", "sender_us", "machine_busy")),
                       ("sustained", ("rate", "p50_ms", "p99.9_ms", "half_rate", "half_p99.9_ms"))):
        of_word = [load for load in found if load.split("-")[0] == word]
        if of_word:
            parts.append(table(figures, of_word, figures.programs(of_word), keys, True))
    parts += sorted({f"Failed with {figures.title(run['load'])}: {run['failed']}\n" for run in figures.runs if "failed" in run})
    return "\n".join(parts)


def newest(files, *loads):
    """The newest file that has the loads, each whole or its word."""
    def has(one, load):
        return any(load in (run["load"], run["load"].split("-")[0]) for run in one.runs)
    return next((one for one in reversed(files) if all(has(one, load) for load in loads)), files[-1])


def all_tables(files):
    """Of the newest run of backlogs, and after it of each that is the newest of a load."""
    main = newest(files, "insert")
    parts = [tables(main)]
    for one in reversed(files):
        loads = [load for load in dict.fromkeys(run["load"] for run in one.runs) if newest(files, load) is one]
        parts += [tables(one, loads)] if loads and one is not main else []
    return "\n".join(parts)


def written(text, files):
    """The page with what its marks ask for."""
    def fill(mark):
        kind, words = mark[2], mark[3]
        if kind == "table":
            loads, *others = (part.strip().split(",") for part in words.split("/"))
            content = table(newest(files, *loads), loads, *others)
        elif kind == "tables":
            content = all_tables(files)
        else:
            kinds = {"headline": headline, "walsender": walsender, "memory": memory, "about": about, "quiet": quiet, "settings": settings}
            content = kinds[kind](newest(files, "steady-1000" if kind == "quiet" else "insert"), *words.split())
        return mark[1] + content + mark[5]
    return MARK.sub(fill, text)


def unmarked(page, text):
    """Lines with rates, CPU or latencies that no mark surrounds."""
    found, units = [], []
    lines = re.sub(r"`[^`\n]*`", "", FENCE.sub("", MARK.sub("", text))).splitlines()
    for at, line in enumerate(lines):
        cells = line.strip("|").split("|") if line.startswith("|") else []
        heads = re.match(r"\|[-:| ]+\|$", "".join(lines[at + 1:at + 2]))
        if heads or not cells:
            units = [re.search(UNIT, cell) for cell in cells]
        figure = re.search(rf"\d\s*{UNIT}", line) or not heads and any(unit and re.search(r"\d", cell) for unit, cell in zip(units, cells))
        if figure and not any(re.search(pattern, line) for pattern in ELSEWHERE.get(page, ())):
            found.append(line)
    return found


def recorded():
    """All files, the newest last."""
    found = [Figures(path) for path in glob.glob(os.path.join(ROOT, "benchmarks", "figures", "*.json"))]
    return sorted(found, key=lambda figures: figures.about["begun"])


def main():
    if sys.argv[1:]:
        return print(__doc__ if sys.argv[1] in ("-h", "--help") else tables(Figures(sys.argv[1])))
    files = recorded()
    for page in PAGES:
        path = os.path.join(ROOT, page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(written(text, files))
    return None


if __name__ == "__main__":
    main()
