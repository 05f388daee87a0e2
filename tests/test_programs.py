"""No program has another's objects: the archives on each link line, and what the linker took of them (its map). And one finds the other."""

import os
import re
import shutil
import subprocess
import urllib.request

import pytest

from kit import BINARY, cannot_try, eventually
from prometheus import free_port

BUILD = os.path.dirname(BINARY)
LIBRARY = {"base", "ask", "confine", "config", "encode", "event", "kafka", "metrics", "options", "postgres", "registry", "terminal"}
DAEMON = {"stream", "flow", "copy", "sink", "resolved", "ledger", "control", "record", "daemon", "cli", "convert", "fleet"}
PROFILER = {"profiler", "draw", "profile_proto"}
MAY_HAVE = {"millrace": LIBRARY | DAEMON | PROFILER, "millrace-verify": LIBRARY | {"verify"}, "profiler-example": {"base"} | PROFILER}


def link_command(target):
    """As Ninja runs it."""
    lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True, check=True).stdout.splitlines()
    return re.search(rf"&& (.* -o {target} .*) && :$", next(line for line in lines if f" -o {target} " in line))[1]


def modules_linked(command):
    return set(re.findall(r"\blibmr_(\w+)\.a\b", command))


def modules_taken(path):
    """Of which archives the map has members, and of which folders objects of the program's own."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    own = set(re.findall(r"^LOAD CMakeFiles/[\w-]+\.dir/src/(\S+)\.o$", text, re.MULTILINE))
    return set(re.findall(r"^libmr_(\w+)\.a\(", text, re.MULTILINE)), own


def strangers(target, linked, taken):
    return (linked | taken) - MAY_HAVE[target]


def test_each_program_has_its_own_objects_alone():
    for target, own_sources in (("millrace", {"main.c", "profiler/heap_conf.c"}), ("millrace-verify", {"verify/main.c"})):
        taken, own = modules_taken(os.path.join(BUILD, f"{target}.map"))
        assert strangers(target, modules_linked(link_command(target)), taken) == set() and own <= own_sources, own
        assert {"base", "config", "postgres"} <= taken  # the map is read
    assert strangers("profiler-example", modules_linked(link_command("profiler-example")), set()) == set()


def test_the_profiler_serves_another_program():
    """src/profiler/example.c, which has nothing else of ours in it."""
    port = free_port()
    process = subprocess.Popen([os.path.join(BUILD, "profiler-example"), str(port)])
    try:
        picture = eventually(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60).read().decode(), not_yet=OSError)
        shares = re.findall(r"<title>burn \(\d+ nanoseconds, ([0-9.]+) %", picture)
        assert len(shares) == 1 and float(shares[0]) > 90
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("hides", ["", "mount -t tmpfs none /proc && "])
def test_a_proof_that_is_not_there_is_missed(tmp_path, hides):
    """Beside a program that is alone in its folder, or does not know its folder; the current one is anybody's, and nothing of it is run."""
    alone, planted = tmp_path / "millrace", tmp_path / "here" / "millrace-verify"
    shutil.copy(BINARY, alone)
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    inside = ["unshare", "--mount", "--propagation", "private", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])] if hides else []
    done = subprocess.run([*inside, "sh", "-c", f'{hides}exec "$0" verify', BINARY if hides else alone], cwd=planted.parent,
                          env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, capture_output=True, text=True, timeout=60)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        cannot_try(done.stderr)
    folder = "millrace's folder" if hides else str(tmp_path)
    assert done.returncode == 71 and f"millrace-verify is neither in {folder} nor in PATH" in done.stderr, done
    assert done.stdout == ""


def test_the_proof_reads_rows_by_code_of_its_own():
    """Of the encoder it has what options say of names, and nothing that writes a value."""
    with open(os.path.join(BUILD, "millrace-verify.map"), encoding="utf-8", errors="replace") as file:
        assert set(re.findall(r"^libmr_encode\.a\(([\w.]+)\)", file.read(), re.MULTILINE)) == {"names.c.o"}


def test_an_object_of_the_flow_in_the_proof_is_seen(tmp_path):
    """A fault placed on purpose: the program linked once more, with one function of the flow."""
    command = link_command("millrace-verify").replace(" -o millrace-verify ", f" -o {tmp_path}/faulty ")
    command = re.sub(r"-Map=\S+", f"-Map={tmp_path}/faulty.map", command)
    subprocess.run(f"{command} -Wl,-u,mr_memory_sum libmr_flow.a", shell=True, check=True, cwd=BUILD)
    taken, _ = modules_taken(tmp_path / "faulty.map")
    assert strangers("millrace-verify", modules_linked(command), taken) == {"flow"}
    assert strangers("millrace-verify", modules_linked(command + " libmr_copy.a"), taken) == {"flow", "copy"}
