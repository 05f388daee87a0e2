"""Where the time of the slowest rows went: the stages' histograms and who waited for a CPU, sampled while they were under
way."""

import os
import re
import threading
import time
import urllib.request

from processes import walsenders

INTERVAL_S = 0.05
STAGES = {"receive": "commit to millrace (WAL flush, walsender)", "decode": "decoded", "encode": "encoded",
          "produce": "handed to the sink (rows gather, others are on their way)", "flush": "Kafka's answer"}
BUCKET = re.compile(r'millrace_stage_seconds_bucket\{stage="(\w+)",le="([^"]+)"\} (\d+)')


def cpu_waits_ns(pid):
    """How long the threads of a process were ready to run and had no CPU."""
    waited = 0
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return waited
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                waited += int(file.read().split()[1])
        except OSError:
            continue  # it has just ended
    return waited


def longest_ms(before, now):
    """Of each stage, the bound of the highest bucket that something fell into."""
    longest = {}
    for stage, bounds in now.items():
        below = 0
        for bound, count in bounds:
            new = count - before.get(stage, {}).get(bound, 0)
            if new > below:
                longest[stage] = bound * 1000
            below = max(below, new)
    return longest


class Sampler(threading.Thread):
    """Looks at millrace and at the processes around it until `stop`."""

    def __init__(self, millrace, watch, address):
        super().__init__(daemon=True)
        self.url, self.millrace, self.watch = f"http://{address}/metrics", millrace, watch
        self.stopped = threading.Event()
        self.windows = []  # (begin, end, longest of each stage in ms, CPU waits in ms)

    def _histograms(self):
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            text = answer.read().decode()
        stages = {}
        for stage, bound, count in BUCKET.findall(text):
            if stage in STAGES and bound != "+Inf":
                stages.setdefault(stage, []).append((float(bound), int(count)))
        return stages

    def _waits(self):
        senders = [pid for pid in walsenders(self.watch.server) if pid not in self.watch.before]
        return {"millrace": cpu_waits_ns(self.millrace), "walsender": sum(map(cpu_waits_ns, senders)),
                "broker": cpu_waits_ns(self.watch.broker)}

    def run(self):
        counts, waits, begin, last = {}, {}, time.time(), False
        while not last:
            last = self.stopped.wait(INTERVAL_S)  # and one more look: the last rows' batch is counted behind their arrival
            try:
                now = self._histograms()
            except OSError:
                continue  # not up yet, or no longer
            waited, end = self._waits(), time.time()
            if counts:
                self.windows.append((begin, end, longest_ms(counts, now),
                                     {who: max(0, waited[who] - waits[who]) / 1e6 for who in waited}))
            counts = {stage: dict(bounds) for stage, bounds in now.items()}
            waits, begin = waited, end

    def stop(self):
        self.stopped.set()
        self.join()

    def around(self, commit, arrival):
        """The longest of each stage, and the CPU waits, while one row was under way. A batch is counted as it is done, which
        millrace may hear of behind the consumer."""
        stages, waits = dict.fromkeys(STAGES, 0.0), {}
        for begin, end, longest, waited in self.windows:
            if end >= commit and (begin <= arrival + INTERVAL_S or stages["flush"] == 0):
                stages = {stage: max(stages[stage], longest.get(stage, 0.0)) for stage in stages}
                waits = {who: waits.get(who, 0.0) + ms for who, ms in waited.items()}
        return stages, waits


def explain(sampler, rows):
    """`rows`: (commit, arrival), the slowest last. What was long for the slowest hundredth, beside the same of a typical
    row: medians in ms."""
    slow, typical = rows[-max(1, len(rows) // 100):], rows[len(rows) // 4: len(rows) * 3 // 4]
    step = max(1, len(typical) // 500)

    def medians(some):
        seen = [sampler.around(*row) for row in some]
        middle = lambda values: sorted(values)[len(values) // 2]
        stages = {stage: middle([stages[stage] for stages, _ in seen]) for stage in STAGES}
        waits = {who: middle([waits.get(who, 0.0) for _, waits in seen]) for who in ("millrace", "walsender", "broker")}
        return stages, waits, [max(stages, key=stages.get) for stages, _ in seen]

    stages, waits, longest = medians(slow[::max(1, len(slow) // 500)])
    usual, usual_waits, _ = medians(typical[::step])
    return {"rows": len(slow), "from_ms": (slow[0][1] - slow[0][0]) * 1000, "stages_ms": stages, "usual_ms": usual,
            "cpu_waits_ms": waits, "usual_cpu_waits_ms": usual_waits,
            "longest": {stage: longest.count(stage) / len(longest) for stage in STAGES}}


def told(tail):
    lines = [f"the slowest 1 % ({tail['rows']} rows, {tail['from_ms']:.1f} ms and more), the longest of each stage while "
             "they were under way, median in ms (beside a typical row's):"]
    for stage, text in STAGES.items():
        lines.append(f"  {stage:8} {tail['stages_ms'][stage]:8.1f} ({tail['usual_ms'][stage]:.1f})  longest in "
                     f"{tail['longest'][stage]:4.0%}  {text}")
    lines.append("ready to run, but without a CPU, in the same time, all threads, ms: " + ", ".join(
        f"{who} {ms:.1f} ({tail['usual_cpu_waits_ms'][who]:.1f})" for who, ms in tail["cpu_waits_ms"].items()))
    return "\n".join(lines)
