"""Clients that ask a millrace for profiles all the time, at random, and judge each answer.

Some leave early. What a millrace that ends or has just begun does not answer is no fault; a refusal has to be one of
those that docs/built-in-profiler.md names."""

import http.client
import os
import random
import re
import tempfile
import threading
import time
import xml.etree.ElementTree
from collections import Counter

from pprof_file import Profile, go_pprof

# A session's time and what a busy machine adds; whoever waits longer waits in vain.
ANSWER_LIMIT_S = 90
STAGES = {"receive", "decode", "encode", "produce", "flush", "acknowledge", "http", "profiler", "other"}


def check_report(body):
    """A profile that holds together; the exceptions say what does not."""
    profile = Profile(body)
    for locations, values, labels in profile.samples:
        assert all(location in profile.locations for location in locations), "a location that is not in the file"
        assert len(values) == len(profile.types), "a sample without all values"
        assert labels.get("stage", "other") in STAGES, f"stage {labels['stage']}"
    return profile


def check_with_go(body):
    with tempfile.NamedTemporaryFile(suffix=".pb.gz") as file:
        file.write(body)
        file.flush()
        go_pprof("-top", file.name)


def check_answer(path, body):
    form = path.split("?")[0].rsplit("/", 1)[1]
    if form == "flamegraph":
        assert xml.etree.ElementTree.fromstring(body).tag.endswith("svg"), "no picture"
    elif form == "folded":
        assert re.fullmatch(r"(.+ \d+\n)*", body.decode()), "no folded text"
    elif form in ("report", "profile", "heap", "allocs"):
        check_report(body)
    else:
        assert body, "nothing"


class Clients:
    """`process()` is the millrace that should answer at `address`; it may be another at any time."""

    def __init__(self, process, address, seed, count=4, go_every=40):
        self.process, self.address, self.go_every = process, address, go_every
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.counts = Counter()
        self.problems = []
        self.answered = None  # the process that has answered last
        self.threads = [threading.Thread(target=self._run, args=(random.Random(f"{seed} client {n}"),), daemon=True)
                        for n in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def finish(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(2 * ANSWER_LIMIT_S)
            if thread.is_alive():
                self._problem("a client that does not end", "")

    def line(self):
        c = self.counts
        return (f"{c['valid']} valid profiles ({c['go']} read by go tool pprof), {len(self.problems)} invalid, "
                f"{c['refused']} refused in order, {c['left']} clients left early, {c['cut']} cut by an end")

    def _run(self, chance):
        while not self.stopping.wait(chance.uniform(0, 2)):
            try:
                self._ask(chance)
            except Exception as error:  # pylint: disable=broad-except # told in the result
                self._problem("asking", repr(error))

    @staticmethod
    def draw(chance):
        """A path to ask for."""
        seconds = chance.choice([1, 1, 2, 3, 5, chance.randint(1, 15)])
        frequency = chance.choice([1000, 1000, 1000, 1000, chance.randint(1, 1000)])
        form = chance.choice(["report", "report", "flamegraph", "folded"])
        return chance.choice([
            f"/pprof/profile/{form}?seconds={seconds}&frequency={frequency}",
            f"/pprof/profile/{form}?seconds={seconds}&frequency={frequency}",
            f"/pprof/profile/{form}?seconds={seconds}&frequency={frequency}",
            f"/debug/pprof/profile?seconds={seconds}",
            f"/pprof/heap/{form}", f"/pprof/heap/{form}?seconds={seconds}", "/debug/pprof/heap",
            "/debug/pprof/allocs",
            f"/pprof/last-minute/{form}", "/debug/pprof/", "/metrics"])

    def _ask(self, chance):
        path = self.draw(chance)
        leaves_after = chance.uniform(0, 3) if chance.random() < 0.25 else None
        process = self.process()
        connection = http.client.HTTPConnection(self.address, timeout=ANSWER_LIMIT_S)
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            if leaves_after is not None:
                self.stopping.wait(leaves_after)
                self._count("left")
                return
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._no_answer(process, path, error)
            return
        finally:
            connection.close()
        self.answered = process
        self._judge(process, path, status, body)

    def _judge(self, process, path, status, body):
        if status == 200:
            try:
                check_answer(path, body)
                self._count("valid")
                if path.split("?")[0].endswith("/report") and self._count("reports") % self.go_every == 1:
                    check_with_go(body)
                    self._count("go")
            except Exception as error:  # pylint: disable=broad-except # any flaw of the file
                self._problem(path, repr(error))
        elif (status == 429 or status == 403 and b"not activated" in body
              or status == 404 and b"no samples of the last minute" in body):
            self._count("refused")
        else:
            self._no_answer(process, path, f"{status} {body[:200]}")

    def _no_answer(self, process, path, reason):
        """Nobody answers while a millrace begins or ends; one that goes on owes an answer."""
        if self.answered is process:
            end = time.monotonic() + ANSWER_LIMIT_S
            while self.process() is process and process.poll() is None:
                if time.monotonic() > end:
                    self._problem(path, f"no answer: {reason}")
                    return
                time.sleep(0.1)
        self._count("cut")

    def _count(self, name):
        with self.lock:
            self.counts[name] += 1
            return self.counts[name]

    def _problem(self, path, text):
        with self.lock:
            self.problems.append(f"{path}: {text}")


def check_folder(folder):
    """The continuous profiler's files, once nobody writes them: each holds together, but for those that a kill left half-written. How many."""
    names = [name for name in os.listdir(folder) if not name.startswith(".")]
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            body = file.read()
        check_answer("/flamegraph" if name.endswith(".svg") else "/report", body)
    return len(names)
