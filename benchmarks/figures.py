#!/usr/bin/env python3
"""Puts the figures of figures/, which holds one file of one build, into the pages that state them, where they are marked:

    <!-- figures: table LOAD,... / PROGRAM,... / FIGURE,... -->
    what stands here is written again
    <!-- /figures -->

  benchmarks/figures.py             writes the pages, and the chart (chart.py)
  benchmarks/figures.py FILE        prints all tables of that file

Needs nothing but Python. tests/test_docs.py holds the pages against it."""

import glob
import json
import os
import re
import statistics
import sys
import textwrap

from chart import draw

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLOOR = "pg_recvlogical"
PAGES = ("README.md", "docs/comparison.md", "docs/sizing.md", "benchmarks/results.md")
CHART = "docs/images/speed.svg"
BACKLOGS = ("insert", "mixed", "wide", "partitions", "small", "pgbench", "pgbench-n", "tables", "transaction", "socket")
AT_RATES = ("steady-1000", "steady-5000", "steady-10000", "steady-20000")
LOADS = {"insert": "{rows} inserts of 7 columns", "mixed": "{rows} inserts, updates and deletes",
         "wide": "{rows} inserts with 4 KiB of text",
         "partitions": "{rows} inserts into 12 partitions", "small": "{rows} inserts, 10 a transaction",
         "tables": "{rows} inserts into 100 tables", "socket": "{rows} inserts, by a Unix socket",
         "pgbench": "{rows} changes of pgbench's TPC-B", "pgbench-n": "{rows} changes of pgbench -N",
         "pgbench-at": "pgbench's TPC-B, {rate} transactions/s", "pgbench-n-at": "pgbench -N, {rate} transactions/s",
         "transaction": "{rows} inserts in one transaction",
         "copy": "{rows} existing rows", "slots-1": "{rows} inserts into 2 tables, one slot",
         "slots-2": "{rows} inserts into 2 tables, a slot for each", "sustained": "a flat lag for {seconds} s"}
PROGRAMS = {"millrace": "at least once", "millrace-exactly-once": "exactly once", "millrace-typed": "with Debezium's types",
            "millrace-4-threads": "4 threads",
            "librdkafka": "librdkafka alone", "librdkafka-exactly-once": "librdkafka alone, exactly once", "debezium": "Debezium", "debezium-tuned": "Debezium, tuned"}
CALLED = {"copy": {FLOOR: "psql, COPY", "librdkafka": "COPY to librdkafka", "millrace": "1 thread"}}
TITLES = {"rows_per_s": "rows/s", "seconds": "lasted, s", "sender_waits": "walsender waits for it", "machine_idle": "machine idle",
          "all_us": "all processes, µs/row", "lag_mb": "behind, MB", "lag_most_mb": "behind at most, MB",
          "cpu_us": "own CPU, µs/row", "sender_us": "walsender, µs/row", "broker_us": "broker, µs/row",
          "server_us": "server, µs/row",
          "cpu_share": "of a core", "rss_mb": "peak memory, MB", "start_s": "start to first record, s",
          "p50_ms": "p50, ms", "p90_ms": "p90, ms", "p99_ms": "p99, ms", "p99.9_ms": "p99.9, ms", "max_ms": "longest, ms",
          "wakes_per_s": "wake-ups/s", "rate": "rows/s, flat lag", "half_rate": "rows/s, half",
          "half_p99.9_ms": "p99.9 at half, broker restarted, ms"}
COSTS = ("rows_per_s", "seconds", "cpu_us", "sender_us", "sender_waits", "broker_us", "rss_mb", "start_s", "machine_idle")
COPY_COSTS = [key.replace("sender_us", "server_us") for key in COSTS if key != "sender_waits"]
SHARES = ("cpu_share", "machine_idle", "sender_waits")
PLAIN = (*SHARES, "seconds", "start_s")  # a ratio says nothing
SPREAD = ("rows_per_s", "start_s", "p50_ms", "p99_ms", "p99.9_ms", "cpu_us", "rate")  # these are shown with the spread of their rounds
MARK = re.compile(r"(<!-- figures: (\S+)(.*?) -->\n)(.*?)(<!-- /figures -->)", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
UNIT = r"(?:(?:rows|events|records)(?:/s| a second)|µs|ms\b)"
# Figures that no mark surrounds, and why.
ELSEWHERE = {
    "README.md": {r"^\|  \| \d+ minutes": "what the two commands take, by hand"},
    "docs/comparison.md": {r"\| (Outboxx|Sequin) \|": "what others publish of their own machines"},
    "docs/sizing.md": {r"\| up to [\d,]+ rows/s": "a load to choose by", r"1,000th topic": "a setting", r"rows/s write 0.9 MB/s": "docs/dev/evidence.md, a recovery, timed",
                       r"took 8 ms or more|from 64 ms on|^\| (a request to a partition|all that is in flight) \|": "a rule of kafka_far.h", r"on two busy cores|^\|  (\(default\) )?\| \d\.\d µs \|": "pipeline.latency, by hand"}}


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
        to = self.median(load, base, key) if base and base != program and key not in PLAIN else 0
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
        word = load.partition("-at-")[0] + "-at" if "-at-" in load else load
        settings = next((run["settings"] for run in self.runs if run["load"] == load), {})
        return LOADS[word].format(**{"rows": "–", "seconds": "–", "rate": "–"} | {key: f"{value:,.0f}" for key, value in settings.items()})


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


def svg(figures):
    """The chart."""
    lines = {f"{name}, {key[:3]}": [(load, figures.median(load, program, key)) for load in AT_RATES if figures.rounds(load, program, key)]
             for program, name in (("millrace", "millrace"), ("debezium-tuned", "Debezium, tuned")) for key in ("p50_ms", "p99_ms")}
    return draw({name: [(int(load.partition("-")[2]), ms) for load, ms in points] for name, points in lines.items()}, four(figures))


def about(figures):
    """Where and with what the figures were made."""
    facts, m, servers = figures.about, figures.about["machine"], dict(figures.about["servers"])
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    kafka, debezium = servers.pop("Kafka"), servers.pop("Debezium")
    lasted = {load: min(run["seconds"] for run in figures.runs if run["load"] == load and "seconds" in run)
              for load in BACKLOGS if any(run["load"] == load and "seconds" in run for run in figures.runs)}
    tail = "Debezium drains the last tenth of a backlog." if any("rows" in run for run in figures.runs if "debezium" in run["program"]) else ""
    short = f"The shortest drain lasted {number(min(lasted.values()))} s ({min(lasted, key=lasted.get)})." if lasted else ""
    return paragraph(f"""Of {facts['begun'][:10]}: {m['cores']} cores ({m['cpu']}, {m.get('family', '–')}, L3 {m.get('l3', '–')}, virtual: {m.get('virtual', '–')}),
        {m['memory_mb'] // 1024} GiB, {m['kernel']}, {facts.get('getppid_ns', '–')} ns for a getppid; {versions}, librdkafka
        {facts['millrace'].get('librdkafka', '–')}, {facts['millrace'].get('allocator', '–').partition('-')[0]}. PostgreSQL:
        {', '.join(f'`{name} = {value}`' for name, value in servers.items())}; heaps of Kafka `{kafka}`, of Kafka Connect `{debezium}`.
        PostgreSQL, Kafka, the program, the load and the consumer share the machine. Load average before a run:
        {span([run['machine_load'] for run in figures.runs], '{:.1f}')}. {short} {tail}""")


def of_both(figures, key, load="insert"):
    """Of millrace and of tuned Debezium, "–" where there is none."""
    medians = [figures.median(load, program, key) for program in ("millrace", "debezium-tuned")]
    return [number(value, key) if value else "–" for value in medians]


def four(figures):
    """(what, of millrace, of tuned Debezium)."""
    return [("rows/s, sustained", *of_both(figures, "rate", "sustained")), ("MB of memory", *of_both(figures, "rss_mb")),
            ("s to the first record", *of_both(figures, "start_s")), ("µs of own CPU a row", *of_both(figures, "cpu_us"))]


def ratios_to(figures, program, base, loads=BACKLOGS):
    """{load: rows/s of one to rows/s of the other}."""
    return {load: figures.median(load, program, "rows_per_s") / figures.median(load, base, "rows_per_s") for load in loads
            if figures.rounds(load, program, "rows_per_s") and figures.rounds(load, base, "rows_per_s")}


BETTER = {"rows_per_s": ("is faster", -1), "cpu_us": ("takes less CPU a row", 1), "rss_mb": ("takes less memory", 1),
          "p50_ms": ("has the lower p50", 1), "p99_ms": ("has the lower p99", 1)}


def losses(figures):
    """Where another program is better than millrace, of the loads that both have."""
    for other in (FLOOR, "debezium", "debezium-tuned"):
        for key, (words, sign) in BETTER.items():
            beaten = [load for load in dict.fromkeys(run["load"] for run in figures.runs)
                      if load != "copy" and (load in BACKLOGS or key != "rows_per_s") and figures.rounds(load, "millrace", key) and figures.rounds(load, other, key) and
                      sign * figures.median(load, "millrace", key) > sign * figures.median(load, other, key)]
            if beaten:
                yield f"{PROGRAMS.get(other, other)} {words} ({', '.join(beaten)})"


def result(figures):
    """Three sentences: a backlog, latency, losses."""
    floor, other = ratios_to(figures, "millrace", FLOOR), ratios_to(figures, "millrace", "debezium-tuned")
    waits = [100 * figures.median(load, "millrace", "sender_waits") for load in floor if figures.rounds(load, "millrace", "sender_waits")]
    exact = ratios_to(figures, "millrace-exactly-once", FLOOR)
    ours, theirs = ([figures.median(load, program, "p99_ms") for load in AT_RATES if figures.rounds(load, program, "p99_ms")]
                    for program in ("millrace", "debezium-tuned"))
    held = f"; the server was seen waiting for it in {span(waits, '{:.0f}')} % of samples" if waits else ""
    beside = f", with tuned Debezium within {span(theirs, '{:,.0f}')} ms" if theirs else ""
    return paragraph(f"""Of a backlog millrace delivers {span(floor.values())} times as many rows a second as `pg_recvlogical` reads, exactly
        once {span(exact.values())} times, and {span(other.values(), '{:.0f}')} times as many as tuned Debezium{held}.""") + "\n" + paragraph(
        f"""At equal load, 1,000 to 20,000 rows/s, 99 of 100 rows reach a consumer within {span(ours, '{:,.0f}')} ms of their
        COMMIT{beside}.""") + "\n" + paragraph(f"What it loses: {'; '.join(losses(figures)) or 'nothing that was measured'}.")


def chart(_, above=""):
    return f"![p50 and p99 from COMMIT to a consumer over the offered rate, millrace and tuned Debezium]({above}{CHART})\n"


def headline(figures):
    """The chart, the four figures beside it once more as text, and what limits a backlog."""
    floor = ratios_to(figures, "millrace", FLOOR)

    def of_inserts(key):
        return figures.median("insert", "millrace", key)
    share, idle = of_inserts("sender_us") * of_inserts("rows_per_s") / 1e6, number(of_inserts("machine_idle"), "machine_idle")
    limit = (f"PostgreSQL's walsender, which kept {share:.0%} of a core busy" if share > 0.85 else f"the machine, which was {idle} idle")
    load, cores = statistics.median(run["machine_load"] for run in figures.runs), figures.about["machine"]["cores"]
    beside = f"Other work ran beside, with a load average of {load:.0f} before a run: take it as a trial." if load > 2 * cores else ""
    lines = [["", "millrace", "Debezium, tuned"], ["---", "---:", "---:"], *(list(row) for row in four(figures) if row[1] != "–")]
    drawn = chart(figures) + "\n" if figures.rounds(AT_RATES[0], "debezium-tuned", "p99_ms") else ""
    return drawn + "".join("| " + " | ".join(line) + " |\n" for line in lines) + "\n" + paragraph(f"""One run, all programs
        in turns, on {cores} cores that they share with PostgreSQL, Kafka and the consumer. A backlog is {span(floor.values())} times as many
        rows a second as `{FLOOR}` reads; of inserts {number(of_inserts("rows_per_s"))} rows/s. What limits it: {limit}. {beside}""")


def walsender(figures):
    cost = figures.median("insert", "millrace", "sender_us")
    return paragraph(f"""PostgreSQL's walsender decodes the WAL for the slot: {number(cost)} µs a row in a backlog of inserts, so at most
        {1e6 / max(cost, 0.01):,.0f} rows/s of one core.""")


def cores(figures):
    """A rate to choose by that was not measured exactly once: its neighbours were."""
    def of(rate, program="millrace", key="cpu_us"):
        return f"{figures.median(f'steady-{rate}', program, key) * rate / 1e6:.2f}"
    exactly = [[of(rate, "millrace-exactly-once", key) for rate in (1000, 10000)] for key in ("cpu_us", "broker_us")]
    return paragraph(f"""5,000 rows/s at least once take {of(5000)} of a core for millrace, {of(5000, key="sender_us")} for the walsender, and
        {of(5000, key="broker_us")} for the broker. Exactly once (measured at 1,000 and at 10,000 rows/s):
        {exactly[0][0]} to {exactly[0][1]} for millrace, {exactly[1][1]} to {exactly[1][0]} for the broker.""")


def memory(figures):
    peaks = [max([0, *(value for load in BACKLOGS for value in figures.rounds(load, program, "rss_mb").values())])
             for program in ("millrace", "millrace-exactly-once")]
    return paragraph(f"The highest peak of all backlogs was {peaks[0]:.0f} MB, exactly once {peaks[1]:.0f} MB.")


def settings(figures, program):
    lines = "\n".join(figures.about["settings"].get(program, ["–"]))
    return f"```properties\n{lines}\n```\n"


def tables(figures, loads=None):
    """Everything that the file has, with the spread of the rounds."""
    found = [load for load in dict.fromkeys(run["load"] for run in figures.runs) if loads is None or load in loads]
    parts = [about(figures)] if "servers" in figures.about else []
    for load in (load for load in found if load in BACKLOGS):
        parts.append(table(figures, [load], figures.programs([load]), COSTS, True))
    if "copy" in found:
        parts.append(table(figures, ["copy"], figures.programs(["copy"]), COPY_COSTS, True))
    delays = ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms")
    for word, keys in (("steady", (*delays, "cpu_us", "sender_us", "broker_us", "rss_mb", "cpu_share", "wakes_per_s")),
                       ("pgbench-at", (*delays, "cpu_us", "all_us", "lag_mb", "lag_most_mb")),
                       ("pgbench-n-at", (*delays, "cpu_us", "all_us", "lag_mb", "lag_most_mb")),
                       ("far", ("rows_per_s",)), ("slots", ("rows_per_s", "sender_us", "machine_idle")),
                       ("sustained", ("rate", "p50_ms", "p99.9_ms", "half_rate", "half_p99.9_ms"))):
        of_word = [load for load in found if re.fullmatch(word + r"(-\d+)*", load)]
        if of_word:
            parts.append(table(figures, of_word, figures.programs(of_word), keys, True))
    parts += sorted({f"Failed with {figures.title(run['load'])}: {run['failed']}\n" for run in figures.runs if "failed" in run})
    return "\n".join(parts)


KINDS = {"headline": headline, "chart": chart, "result": result, "walsender": walsender, "cores": cores, "memory": memory, "settings": settings,
         "tables": tables}


def written(text, figures):
    """The page with what its marks ask for."""
    def fill(mark):
        kind, words = mark[2], mark[3]
        if kind == "table":
            loads, *others = (part.strip().split(",") for part in words.split("/"))
            content = table(figures, loads, *others)
        else:
            content = KINDS[kind](figures, *words.split())
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
    """The one file. What an older build did is in the history."""
    path, *others = glob.glob(os.path.join(ROOT, "benchmarks", "figures", "*.json"))
    if others:
        raise SystemExit(f"figures.py: benchmarks/figures has {1 + len(others)} files: keep the one of this build")
    return Figures(path)


def main():
    if sys.argv[1:]:
        return print(__doc__ if sys.argv[1] in ("-h", "--help") else tables(Figures(sys.argv[1])))
    figures = recorded()
    for page in PAGES:
        path = os.path.join(ROOT, page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(written(text, figures))
    with open(os.path.join(ROOT, CHART), "w", encoding="utf-8") as file:
        file.write(svg(figures))
    return None


if __name__ == "__main__":
    main()
