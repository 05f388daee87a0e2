"""What millrace gives up for itself, tried from inside: a preloaded library does what an intruder would."""

import errno
import os
import signal
import subprocess

import pytest

from kit import eventually
from ledger import TABLE

DENIED_CALLS = {"bind": errno.EPERM, "listen": errno.EPERM, "another process": errno.EPERM, "keyctl": errno.EPERM,
                "writable code": errno.EPERM, "exec": errno.EPERM}
DENIED_FILES = {"secret": errno.EACCES, "overwrite": errno.EACCES, "plant": errno.EACCES}

pytestmark = pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ,
                                reason="the sanitizers start programs themselves")


@pytest.fixture
def intruder(tmp_path_factory):
    """Environment with the library, and what makes it try and returns what it was answered."""
    folder = tmp_path_factory.mktemp("secrets")
    library, result, secret = tmp_path_factory.mktemp("intruder") / "break_out.so", folder / "result", folder / "secret"
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "break_out.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=60)
    secret.write_text("x")

    def attempt(process):
        process.process.send_signal(signal.SIGUSR2)
        lines = eventually(lambda: result.exists() and (text := result.read_text()).endswith("end 0\n") and text, 30,
                           "the attempts being made").splitlines()
        return {name: int(number) for name, number in (line.rsplit(" ", 1) for line in lines)}
    return {"LD_PRELOAD": str(library), "BREAK_OUT_RESULT": str(result), "BREAK_OUT_SECRET": str(secret),
            "BREAK_OUT_PLANT": str(folder / "plant"), "HOME": str(folder)}, attempt


def confined(process):
    return eventually(lambda: process.log("started"), 30, "the line about confinement")[0]


def kernel_status(path):
    with open(f"{path}/status", encoding="ascii") as file:
        return {name: value.strip() for name, value in (line.split(":", 1) for line in file)}


def seccomp_filters(process):
    """Filters of each thread, which /proc counts from Linux 5.9 on, without those of the place that the tests run in."""
    tasks = f"/proc/{process.process.pid}/task"
    here = int(kernel_status("/proc/self").get("Seccomp_filters", 0))
    counts = []
    for task in os.listdir(tasks):
        fields = kernel_status(f"{tasks}/{task}")
        assert fields["NoNewPrivs"] == "1"
        counts.append(int(fields.get("Seccomp_filters", here + 2)) - here)
    return counts


def test_an_intruder_gets_nowhere(database, millrace, topic, intruder):
    environment, attempt = intruder
    database.run(TABLE)
    process = millrace()
    process.environment.update(environment)
    process.start().streaming()
    line = confined(process)
    if line["confined_syscalls"] != "yes":
        pytest.skip("this kernel, or what runs this test, has no seccomp")
    answers = attempt(process)
    assert {name: answers[name] for name in DENIED_CALLS} == DENIED_CALLS
    assert answers["system file"] == 0
    if line["confined_files"] == "yes":
        assert {name: answers[name] for name in DENIED_FILES} == DENIED_FILES
    assert set(seccomp_filters(process)) == {2}
    database.run("INSERT INTO t (writer, n) VALUES (1, 1)")
    assert topic(database.topic("t")).take(1)


def test_switched_off_it_would(database, millrace, intruder):
    environment, attempt = intruder
    database.run(TABLE)
    process = millrace(hardening__files="false", hardening__syscalls="false")
    process.environment.update(environment)
    process.start().streaming()
    line = confined(process)
    assert (line["confined_syscalls"], line["confined_files"]) == ("off", "off")
    process.process.send_signal(signal.SIGUSR2)
    process.process.wait(30)  # it has become another program
    with open(environment["BREAK_OUT_RESULT"], encoding="ascii") as file:
        answers = dict(line.rstrip().rsplit(" ", 1) for line in file)
    assert "exec" not in answers and "end" not in answers
    assert {answers[name] for name in ("bind", "listen", "secret", "overwrite", "plant", "writable code")} == {"0"}


def test_more_may_be_read(database, millrace, intruder):
    environment, attempt = intruder
    database.run(TABLE)
    process = millrace(hardening__readable=f'["{environment["BREAK_OUT_SECRET"]}"]')
    process.environment.update(environment)
    process.start().streaming()
    if (line := confined(process))["confined_syscalls"] != "yes" or line["confined_files"] != "yes":
        pytest.skip("this kernel has no seccomp or no Landlock")
    answers = attempt(process)
    assert (answers["secret"], answers["overwrite"]) == (0, errno.EACCES)
