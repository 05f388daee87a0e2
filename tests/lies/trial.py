"""One millrace against one lie, and the verdict.

It may end by itself with a documented exit code, or go on; then it gets SIGTERM. It may not die of a signal, report a
sanitizer's finding, take more memory than its budget, outlive its deadline, tell a secret, pass on what is no JSON, or
claim as safe what is not."""

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field

BINARY = os.environ.get("MILLRACE_BIN", "")
SANITIZED = "MILLRACE_TEST_SANITIZED" in os.environ
SECRET = "fake-secret"
MEMORY_MIB = 64
DEADLINE_MS = 300
LEAVE_MS = 5000  # src/daemon/run.c: after its deadline a stop waits so long for a thread
# What a busy machine adds. It separates "obeys" from "never", no more; `run.py` prints the longest stop.
SLACK_S = 60
CODES = (0, 3, 10, 65, 69, 70, 71, 77, 78)  # docs/runbook.md
QUIET_S = 0.25  # after a lie that brings about nothing, a stop comes; no verdict depends on it
WAIT_S = 60  # for the lie to be told
COMMON = {
    "tables": '["public.t"]', "log.format": '"json"', "log.level": '"debug"', "http.address": '""',
    "source.postgres.connection": '"env:TEST_URL"', "source.postgres.slot_name": '"shop"',
    "source.postgres.publication_name": '"shop"',
    "metrics.interval": '"0ms"', "messages.prefixes": '["prefix"]', "skipped_operations": '[]',
    "pipeline.shutdown_deadline": f'"{DEADLINE_MS}ms"', "pipeline.reconnect_max": '"100ms"',
    "pipeline.status_interval": '"10ms"', "pipeline.memory": f'"{MEMORY_MIB}MiB"',
}
IGNORED, LEFT = "SIGTERM is not obeyed", "a thread did not end"
LATE = (IGNORED, LEFT, "ended by signal 15")
OF_LIBRARY = ("ended by signal", "says ", "exit code")
LAUNCHER = None  # launcher.Launcher, set by whoever runs trials


if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)  # a number of many digits is JSON, too


@dataclass
class Verdict:
    lie: str
    code: int = None
    stop_s: float = 0
    peak_kib: int = 0
    told: bool = False
    finished: bool = False  # everything was confirmed
    of_library: bool = False  # a library's fault is known to end it, or hold it up
    faults: list = field(default_factory=list)
    said: str = ""

    @property
    def good(self):
        return not self.faults or self.of_library and all(fault in LATE or fault.startswith(OF_LIBRARY) for fault in self.faults)


def wait_until(done, limit_s):
    deadline = time.monotonic() + limit_s
    while not done() and time.monotonic() < deadline:
        time.sleep(0.003)


class Trial:
    def __init__(self, name, dsn, options, command=(), leaks=True):
        self.verdict = Verdict(name)
        self.is_check = "check" in command
        self.folder = tempfile.TemporaryDirectory(prefix="lie-")
        path = os.path.join(self.folder.name, "config.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{key} = {value}\n" for key, value in {**COMMON, **options}.items())
        self.said, self.passed_on = (os.path.join(self.folder.name, name) for name in ("said", "passed-on"))
        environment = {**os.environ, "TEST_URL": dsn, "KAFKA_PASSWORD": SECRET}
        if not leaks:
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.pid = LAUNCHER.start([BINARY, *command, "--config", path], environment, self.passed_on, self.said)
        self.code = None

    def ended(self):
        if self.code is None and (end := LAUNCHER.ended(self.pid)):
            self.code, self.verdict.peak_kib = end
        return self.code is not None

    def stop(self):
        """SIGTERM, unless it has ended by itself."""
        began = time.monotonic()
        if not self.ended():
            os.kill(self.pid, signal.SIGTERM)
        wait_until(self.ended, (DEADLINE_MS + LEAVE_MS) / 1000 + SLACK_S)
        self.verdict.stop_s = time.monotonic() - began
        if not self.ended():
            self.verdict.faults.append(IGNORED)
            os.kill(self.pid, signal.SIGKILL)
            wait_until(self.ended, WAIT_S)

    @staticmethod
    def text(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def judge(self):
        verdict = self.verdict
        verdict.code, verdict.said = self.code, self.text(self.said)
        said = verdict.said.lower()
        if self.is_check and self.code == -signal.SIGTERM:
            pass  # a command, which a person may end
        elif self.code is None or self.code < 0:
            verdict.faults.append(f"ended by signal {-(self.code or 0)}")
        elif self.code not in CODES:
            verdict.faults.append(f"exit code {self.code}")
        for word in ("sanitizer", "runtime error", "assertion", " assert", "corrupt"):
            if word in said:
                verdict.faults.append(f"says {word!r}")
        if not SANITIZED and verdict.peak_kib > MEMORY_MIB * 1024:
            verdict.faults.append(f"took {verdict.peak_kib >> 10} MiB of {MEMORY_MIB}")
        if "left behind" in said:
            verdict.faults.append(LEFT)
        if SECRET in verdict.said:
            verdict.faults.append("tells a secret")
        self.folder.cleanup()
        return verdict

    def events(self):
        """What went to standard output: each line is JSON."""
        found = []
        for line in self.text(self.passed_on).splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                self.verdict.faults.append(f"passed on what is no JSON: {line[:200]!r}")
        return found
