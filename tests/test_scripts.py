"""The scripts that build and test: ports of a stand, flaky tests, what a machine can't try, no git."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import modules
import nightly
from faults.servers import port_open
from kit import STAND, expect
from prometheus import ROOT

ASKED = re.compile("MILLRACE_STAND_.*_PORT")


class Side:
    """A stand beside the one of the tests, for which no variable names a port."""

    def __init__(self, name):
        self.folder = f"{os.environ['MILLRACE_STAND_DIR']}-{name}"
        self.environment = {key: value for key, value in os.environ.items() if not ASKED.fullmatch(key)}
        self.environment["MILLRACE_STAND_DIR"] = self.folder

    def run(self, command, ok=True):
        done = subprocess.run([STAND, command], env=self.environment, capture_output=True, text=True, timeout=280,
                              check=False)
        assert not ok or done.returncode == 0, done.stderr
        return done

    def ports(self):
        with open(os.path.join(self.folder, "stand.conf"), encoding="utf-8") as file:
            return {name: int(value) for name, value in re.findall(r"^(\w*PORT\w*)=(\d+)$", file.read(), re.MULTILINE)}


@pytest.fixture
def sides():
    made = [Side("side-a"), Side("side-b")]
    yield made
    for side in made:
        side.run("wipe", ok=False)
        shutil.rmtree(side.folder, ignore_errors=True)


def test_stands_find_ports_of_their_own(sides):
    """Two that start at the same moment, each with six ports that nobody else has, and keep them."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda side: side.run("pg-start"), sides))
    ports = [side.ports() for side in sides]
    numbers = [port for side in ports for port in side.values()]
    assert len(set(numbers)) == len(numbers) == 12 and max(numbers) < 32768
    assert "PGPORT=%d" % ports[0]["PG_PORT_15"] in sides[0].run("env").stdout
    for side in sides:
        side.run("pg-stop")
    # Down, it keeps them, also from one that starts meanwhile.
    sides[1].run("wipe")
    sides[1].run("pg-start")
    assert not set(sides[1].ports().values()) & set(ports[0].values())
    sides[0].run("pg-start")
    assert sides[0].ports() == ports[0] and port_open(ports[0]["PG_PORT_15"])


def test_a_broker_alone(sides, tmp_path):
    """`scripts/stand.sh kafka-start` is the broker of README's reader: without PostgreSQL and its user."""
    without = tmp_path / "id"
    without.write_text('#!/bin/sh\ncase "$*" in *postgres*) exit 1 ;; esac\nexec /usr/bin/id "$@"\n')
    without.chmod(0o755)
    side = sides[0]
    side.environment["PATH"] = f"{tmp_path}:{side.environment['PATH']}"
    said = side.run("kafka-start").stderr
    port = side.ports()["KAFKA_PORT"]
    assert f"up: Kafka on port {port}" in said
    listed = subprocess.run(["kcat", "-b", f"localhost:{port}", "-L"], capture_output=True, text=True, timeout=60, check=True)
    assert "1 brokers:" in listed.stdout
    assert not os.path.exists(os.path.join(side.folder, "data", "pg15"))


def test_a_stand_that_never_started_names_no_ports(sides):
    assert sides[0].run("env", ok=False).returncode != 0
    assert "not chosen yet" in sides[0].run("status", ok=False).stdout


@pytest.mark.parametrize("name,count,code", [("test_{}", 0, 0), ("test_{}", 1, 0), ("test_{}", 2, 0), ("test_{}", 3, 1),
                                             ("test[{}]", 3, 0)])  # one function with three parameters
def test_flaky_tests_are_told_in_red_and_three_fail(name, count, code):
    names = [name.format(number) for number in range(count)]
    done = subprocess.run(["bash", "-c", '. "$1/scripts/lib/flaky.sh"; shift; flaky_report "$@"', "run.sh", ROOT, *names],
                          env={**os.environ, "CI": "1"}, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == code
    assert all(name in done.stderr for name in names)
    assert ("\033[1;31m" in done.stderr and f"{count} passed only the second time" in done.stderr) == (count > 0)


def of_no_worker():
    """The environment without what makes pytest a worker: a worker's stand has what the run does with tests of the night."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_XDIST", "MILLRACE_TEST_STANDS"))}


def test_what_this_machine_cannot_try_is_told_once(tmp_path):
    """Where nothing can be mounted no test fails: the end of the run says what was not tried, and why."""
    refuses = tmp_path / "unshare"
    refuses.write_text("#!/bin/sh\necho unshare: Operation not permitted >&2\nexit 1\n")
    refuses.chmod(0o755)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                           "test_limits.py", "faults/test_broker.py", "-k", "full_disk"],
                          cwd=os.path.join(ROOT, "tests"), capture_output=True, text=True, timeout=200, check=False,
                          env={**of_no_worker(), "MILLRACE_TEST_NIGHTLY": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout
    told = done.stdout.split("not tried on this machine")[1]
    assert "no file system can be mounted here: unshare: Operation not permitted: 2 tests" in told
    assert "test_full_disk_under_the_log" in told and "test_broker_with_a_full_disk" in told


def test_nightly_tests_exist():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"], cwd=os.path.join(ROOT, "tests"),
                          capture_output=True, text=True, timeout=200, check=True, env={**of_no_worker(), "MILLRACE_TEST_NIGHTLY": ""})
    there = done.stdout.splitlines()
    assert len(there) > 1000
    for test in (test for one in nightly.NIGHTLY for test in one.tests):
        assert any(name == test or name.startswith((test + "::", test + "[")) for name in there), test


@pytest.mark.parametrize("one", nightly.NIGHTLY, ids=lambda one: one.tests[0])
def test_nightly_tests_come_back_when_their_places_change(one, monkeypatch):
    most = nightly.COME_BACK_S
    monkeypatch.setattr(nightly, "COME_BACK_S", 10000)
    for test in one.tests:
        path, _, function = test.partition("::")
        assert nightly.due(["tests/" + path])[0].count(one) == 1
        assert nightly.of(path, function.partition("[")[0], function) == one
    for place in one.places:
        assert os.path.exists(os.path.join(ROOT, place)), place
        assert one in nightly.due(["README.md", place + "x" * place.endswith("/")])[0]
    assert one not in nightly.due(["README.md"])[0] and one not in nightly.due(None)[0]
    assert one in nightly.left_out("no") and one not in nightly.left_out("")
    assert one.seconds <= most


def test_what_comes_back_is_bounded():
    """However much has changed, a push takes no more of the nightly tests than it has time for; the others are named."""
    everything = [place + "x" for one in nightly.NIGHTLY for place in one.places]
    back, night = nightly.due(everything)
    assert back and night and len(back) + len(night) == len(nightly.NIGHTLY)
    assert sum(one.seconds for one in back) <= nightly.COME_BACK_S


@pytest.mark.parametrize("script", ["scripts/test.sh", "scripts/setup.sh", "scripts/style.sh", "scripts/fuzz.sh",
                                    "scripts/lib/base.sh", "tests/run.sh", "benchmarks/micro.sh"])
def test_tests_need_no_git(script):
    with open(os.path.join(ROOT, script), encoding="utf-8") as file:
        for line in file:
            assert not re.match(r"[^#]*\bgit ", line), line


OFFERED = {  # what is looked at, as Ubuntu names its versions
    "24.04": {"cmake": "3.28.3-1build7", "libpq-dev": "16.10-0ubuntu0.24.04.1", "libpcre2-dev": "10.42-4ubuntu2", "libmicrohttpd-dev": "1.0.1-2",
              "libcurl4-openssl-dev": "8.5.0-2ubuntu10.6", "libseccomp-dev": "2.5.5-1ubuntu3", "libdw-dev": "0.190-1.1", "default-jre-headless": "2:1.21-75+exp1"},
    "22.04": {"cmake": "3.22.1-1ubuntu1.22.04.2", "libpq-dev": "14.19-0ubuntu0.22.04.1", "libpcre2-dev": "10.39-3ubuntu0.1",
              "libmicrohttpd-dev": "0.9.75-3", "libcurl4-openssl-dev": "7.81.0-1ubuntu1.20", "libseccomp-dev": "2.5.3-2ubuntu2", "libdw-dev": "0.186-1",
              "default-jre-headless": "2:1.11-72build2"}}


def set_up(tmp_path, offered, *arguments):
    """scripts/setup.sh on a machine that has no package, and whose apt offers these: what it says, and what apt-get is asked for."""
    programs = {"dpkg-query": "echo unknown", "apt-get": f'echo "$*" >>{tmp_path}/asked',
                "apt-cache": 'case $2 in\n' + "".join(f"{name}) echo '  Candidate: {version}' ;;\n" for name, version in offered.items()) + "esac"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([os.path.join(ROOT, "scripts/setup.sh"), *arguments], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    asked = tmp_path / "asked"
    return done, asked.read_text() if asked.exists() else ""


def test_what_a_system_offers_is_looked_at_and_not_its_name(tmp_path):
    done, asked = set_up(tmp_path, OFFERED["24.04"], "--build-only")
    assert done.returncode == 0 and re.search(r"install .* cmake ", asked), done.stderr
    (tmp_path / "asked").unlink()
    done, asked = set_up(tmp_path, OFFERED["22.04"], "--build-only")
    told = re.findall(r"^  (\S+) (\S+), and (\S+) or later is needed$", done.stderr, re.MULTILINE)
    assert done.returncode == 1 and "install" not in asked, "nothing is installed"
    assert [name for name, _, _ in told] == ["cmake", "libpq-dev", "libpcre2-dev", "libcurl4-openssl-dev", "libseccomp-dev", "libdw-dev"], done.stderr
    assert ("cmake", "3.22.1-1ubuntu1.22.04.2", "3.25") in told
    # What it says is what the build says.
    text = "".join(modules.read(os.path.join(ROOT, name)) for name in ("CMakeLists.txt", "src/cmake/Profiler.cmake"))
    names = {"libpq": "libpq-dev", "libpcre2-8": "libpcre2-dev", "libmicrohttpd": "libmicrohttpd-dev", "libcurl": "libcurl4-openssl-dev",
             "libseccomp": "libseccomp-dev", "libdw": "libdw-dev"}
    wanted = {("cmake", re.search(r"cmake_minimum_required\(VERSION (\S+)\)", text)[1]),
              *((names[name], least) for name, least in re.findall(r"IMPORTED_TARGET ([\w-]+)>=([\d.]+)", text))}
    kept = re.search(r'^NEEDED="(.*?)"', modules.read(os.path.join(ROOT, "scripts/setup.sh")), re.MULTILINE | re.DOTALL)[1].split()
    assert set(zip(kept[::2], kept[1::2])) - {("default-jre-headless", "2:1.17")} == wanted


@pytest.mark.parametrize("system,fetched,found", [((13, 15, 17), (), "17"), ((13,), (), ""), ((9, 14), (18,), "14"), ((13,), (18,), "18"), ((), (), "")])
def test_the_newest_postgresql_from_14_on(tmp_path, system, fetched, found):
    for major, folder in [*((one, f"system/{one}/bin") for one in system), *((one, f"tools/pg-{one}/native/bin") for one in fetched)]:
        program = tmp_path / folder / "postgres"
        program.parent.mkdir(parents=True)
        program.touch(0o755)
    (tmp_path / "system/99/bin").mkdir(parents=True)  # of a client
    done = subprocess.run(["bash", "-euc", '. "$1/scripts/stand/postgres.sh"; PG_SYSTEM=$2/system TOOLS_DIR=$2/tools; pg_newest', "x", ROOT, tmp_path],
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


def test_the_table_of_modules_is_that_of_the_sources():
    """`python3 tests/modules.py --write` makes it again; each room and each file of system tests has a line there."""
    rooms, _ = modules.sources()
    assert set(modules.SYSTEM) == set(rooms)
    named = {name for names in modules.SYSTEM.values() for name in names.split()} | set(modules.OF_NO_MODULE)
    there = {path.relative_to(modules.TESTS).with_suffix("").as_posix()
             for folder in ("", "faults", "lies") for path in pathlib.Path(modules.TESTS, folder).glob("test_*.py")}
    assert there <= named, there - named
    text = modules.read(modules.README)
    assert modules.written(text) == text


def test_a_replaced_symbol_and_a_call_upward_are_found(tmp_path):
    """Faults placed in a tree of two folders: `low` calls `high`, and has a `recv` of its own, as libc does."""
    objects = tmp_path / "build" / "CMakeFiles" / "mr_low.dir" / "src"
    texts = {"low/low.c": "void mr_high(void); int recv(int a, void *b, unsigned long c, int d) { (void)a; (void)b; (void)c;"
                          " mr_high(); return d; }", "high/high.c": "void mr_high(void) {}"}
    for name, text in texts.items():
        source, made = tmp_path / "src" / name, objects / (name + ".o")
        source.parent.mkdir(parents=True)
        made.parent.mkdir(parents=True)
        source.write_text(text, encoding="utf-8")
        subprocess.run(["cc", "-c", "-o", made, source], check=True)
    shutil.copy(shutil.which("cat"), tmp_path / "build" / "millrace")  # links libc

    def verdict(low, high):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts/lib/symbols.py"), "build", f"low={low}", f"high={high}"],
                              cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout

    expect(verdict("", "low"), 1, "src/low/low.c calls mr_high of src/high/high.c", "src/low/low.c defines recv")
    expect(verdict("high", ""), 1, "defines recv", without="calls")
    (tmp_path / "src/low/low.c").unlink()  # its object is an old one's then
    assert verdict("", "low") == (0, "")
