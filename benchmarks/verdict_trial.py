"""Holds the verdict of witnesses.sh against builds whose difference is known: none, or a fault placed on purpose.

  python verdict_trial.py collect FILE --binary millrace-faulty [--cycles N] [--faults N]   exact witnesses
  python verdict_trial.py drain FILE --binary millrace-faulty [--seconds N]                 drains that take turns
  python verdict_trial.py judge FILE...    what was claimed and found, as Markdown; --json FILE: every judgement

`collect` counts the sound build four times a cycle: a comparison with itself (base, head, head, base). In the first cycles one
of the six slow-downs, in turn, is counted twice and compared with the two counts of base, in every third another fault too. No
run is in two comparisons of a build with itself.

`drain` measures the sound build again and again; disjoint stretches of that one series become comparisons of a build with
itself, of 2 x 12 drains. With --fault, all drains with it are compared with those beside them: for what only time shows. Every line of FILE is one run, so that several calls at several times add up."""

import argparse
import json
import statistics
import sys
import time

import profile_tools
import verdict
import witnesses
from builds import describe, machine

TURN = 6  # instructions of one turn of placed_faults.c's loop
# What 3 % are of: of a stage, or of all that a thread does.
SHARE = {"decode": ("decode",), "encode": ("encode",), "produce": ("produce",), "acknowledge": ("acknowledge",),
         "source": ("receive", "decode", "encode", "source thread"), "sink": ("produce", "acknowledge", "sink thread")}
NAMED = {"source": "source thread", "sink": "sink thread"}
OTHERS = {"allocation": ("allocation:1", "allocations +"), "wake-up": ("wake:2", "wake-ups asked for +"),
          "sleep": ("sleep:1000", "sleeps asked for +")}
SIDES = ("base", "head", "head", "base")
DRAINS = 12


# ---- collecting ----

class Log:
    def __init__(self, path, binary):
        self.path = path
        self.about = {**describe(binary), **machine()}

    def add(self, **run):
        with open(self.path, "a", encoding="utf-8") as file:
            json.dump({"about": self.about, **run}, file)
            file.write("\n")


def turns_of(kind, counted):
    """How many turns make 3 %, by a count of the sound build; those of the sink thread are of a batch."""
    sums = profile_tools.sums_by_place([counted])[0]
    events = witnesses.EVENTS_COUNTED / counted["batches"] if kind == "sink" else 1
    return max(1, round(0.03 * sum(sums[place] for place in SHARE[kind]) * events / TURN))


def collect(arguments):
    stand = witnesses.Drains(0)
    log = Log(arguments.file, arguments.binary)

    def count(fault):
        counted = stand.instructions(arguments.binary, stand.folder, {"MILLRACE_FAULT": fault})
        # What costs less than a tenth of an instruction an event is never named.
        counted["functions"] = [row for row in counted["functions"] if row[0] != "other" and row[2] >= 0.1]
        return counted

    def record(number, comparison, base, head):
        log.add(cycle=number, comparison=comparison, base=base, head=head)

    try:
        stand.make_table()
        stand.backlog("counted", witnesses.EVENTS_COUNTED)
        for number in range(arguments.cycles):
            runs = [count("") for _ in SIDES]
            base = [run for run, side in zip(runs, SIDES) if side == "base"]
            record(number, "none", base, [run for run, side in zip(runs, SIDES) if side == "head"])
            if number < arguments.faults:
                kind = list(SHARE)[number % len(SHARE)]
                faults = [(kind, f"{kind}:{turns_of(kind, base[0])}")]
                if number % 3 == 0:
                    kind = list(OTHERS)[number // 3 % len(OTHERS)]
                    faults.append((kind, OTHERS[kind][0]))
                for kind, fault in faults:
                    record(number, kind, base, [count(fault) for _ in range(2)])
            print(f"verdict_trial: ... cycle {number + 1} of {arguments.cycles}", file=sys.stderr, flush=True)
    finally:
        stand.close()


def drain(arguments):
    stand = witnesses.Drains(arguments.rows)
    log = Log(arguments.file, arguments.binary)
    end = time.monotonic() + arguments.seconds

    def record(fault, against):
        log.add(comparison="drain", fault=fault, against=against, rows=arguments.rows,
                run=stand.drain(arguments.binary, {"MILLRACE_FAULT": fault}))

    try:
        stand.make_table()
        stand.backlog("drained", arguments.rows)
        stand.drain(arguments.binary, {"MILLRACE_FAULT": arguments.sound})  # the first one warms caches
        while time.monotonic() < end:
            for side in SIDES if arguments.fault else ("base",):
                record(arguments.sound if side == "base" else arguments.fault, arguments.fault or None)
    finally:
        stand.close()


# ---- judging ----

def said_of(instructions, runs):
    """(verdict, words before the table) of two sides."""
    found = {"instructions": instructions, "runs": runs}
    judgements = verdict.judge(list(profile_tools.witnesses_of_drains(found)))
    profile_tools.name_functions(judgements, found)
    return verdict.overall(judgements)[0], profile_tools.verdict_lines(judgements, [])[0][0]


def is_named(kind, said, text):
    """The stage or the thread, and the kind, without another stage."""
    if kind in OTHERS:
        return said == verdict.DIFFERENT and OTHERS[kind][1] in text
    place = NAMED.get(kind, kind)
    others = [other for other in profile_tools.ROW_BY_ROW if other != place and f"instructions in {other} " in text]
    return said == verdict.DIFFERENT and f"instructions in {place} +" in text and "`__wrap_" in text and not others


def judge_drains(kind, runs, is_good):
    said, text = said_of({"base": [], "head": []}, runs)
    medians = [statistics.median(run["threads"]["mr-source"]["cpu_us"] for run in runs[side]) for side in ("base", "head")]
    return {"comparison": kind, "verdict": said, "good": is_good(said, text), "grown": round(medians[1] / medians[0] - 1, 4),
            "words": text}


def judge_placed(fault, lines):
    """All drains with the fault against those beside them; what is slower is the source thread."""
    runs = {"base": [], "head": []}
    for line in lines:
        runs["head" if line["fault"] == fault else "base"].append(line["run"])
    pairs = min(map(len, runs.values()))
    runs = {side: some[:pairs] for side, some in runs.items()}
    return judge_drains(f"{fault}, {pairs} pairs", runs,
                        lambda said, text: said == verdict.DIFFERENT and "CPU of both our threads +" in text)


def judge(arguments):
    lines = []
    for path in arguments.files:
        with open(path, encoding="utf-8") as file:
            lines += [json.loads(line) for line in file]
    found = []
    for line in (line for line in lines if line["comparison"] != "drain"):
        kind = line["comparison"]
        said, text = said_of({"base": line["base"], "head": line["head"]}, {"base": [], "head": []})
        grown = 0.0
        if kind in SHARE:
            sums = [[sum(run.get(place, 0) for place in SHARE[kind]) for run in profile_tools.sums_by_place(line[side])]
                    for side in ("base", "head")]
            grown = statistics.median(sums[1]) / statistics.median(sums[0]) - 1
        good = said != verdict.DIFFERENT if kind == "none" else is_named(kind, said, text)
        found.append({"comparison": kind, "verdict": said, "good": good, "grown": round(grown, 4), "words": text})
    drains = [line for line in lines if line["comparison"] == "drain" and not line.get("against") and not line["fault"]]
    for at in range(0, len(drains) - 2 * DRAINS + 1, 2 * DRAINS):
        runs = {"base": [], "head": []}
        for number, line in enumerate(drains[at:at + 2 * DRAINS]):
            runs[SIDES[number % 4]].append(line["run"])
        found.append(judge_drains("none, drains", runs, lambda said, _: said != verdict.DIFFERENT))
    for fault in dict.fromkeys(line["against"] for line in lines if line.get("against")):
        found.append(judge_placed(fault, [line for line in lines if line.get("against") == fault]))
    print("| placed | comparisons | right | slower by, median |\n|---|---:|---:|---:|")
    for kind in dict.fromkeys(one["comparison"] for one in found):
        of_kind = [one for one in found if one["comparison"] == kind]
        grown = statistics.median(one["grown"] for one in of_kind)
        print(f"| {kind} | {len(of_kind)} | {sum(one['good'] for one in of_kind)} | {f'{grown:.1%}' if kind in SHARE or ':' in kind else '–'} |")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"about": lines[0]["about"], "judgements": found}, file, indent=1)
    for one in found:
        if not one["good"]:
            print(f"\nwrong: {one['comparison']}: {one['words']}")


def main():
    parser = argparse.ArgumentParser(prog="verdict_trial.py")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("collect")
    one.add_argument("file")
    one.add_argument("--binary", required=True)
    one.add_argument("--cycles", type=int, default=100)
    one.add_argument("--faults", type=int, default=20)
    one = commands.add_parser("drain")
    one.add_argument("file")
    one.add_argument("--binary", required=True)
    one.add_argument("--rows", type=int, default=30000)
    one.add_argument("--seconds", type=float, default=200)
    one.add_argument("--fault", default="", help="as placed_faults.c has them; the drains take turns")
    one.add_argument("--sound", default="", help="what it is compared with, e.g. near:50 with far:50")
    one = commands.add_parser("judge")
    one.add_argument("files", nargs="+")
    one.add_argument("--json")
    arguments = parser.parse_args()
    {"collect": collect, "drain": drain, "judge": judge}[arguments.command](arguments)


if __name__ == "__main__":
    main()
