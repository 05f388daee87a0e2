"""A machine that has nothing: README's two commands, and the way from source, in a Debian as debootstrap makes it, with this machine's settings of
packages, certificates and proxies, and nothing else of it. Only with MILLRACE_TEST_FRESH=1, as scripts/test.sh --full has it.
MILLRACE_TEST_FRESH=trixie is Debian 13, for the demo.

What the demo leaves running goes away with the namespaces."""

import glob
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

import pytest

from kit import cannot_try
from prometheus import ROOT

FRESH = os.environ.get("MILLRACE_TEST_FRESH", "")
DEMO_MB = 1400  # README's figure, and apt's lists and caches
# Of pip, npm, Maven, Go and whatever fetches; not those that name files, which a bare machine has not.
SETTINGS = re.compile(r"(https?|ftp|no|all)_proxy|PIP_(?!CERT|FIND_LINKS|CONFIG)\w+|npm_config_\w+|MAVEN_(ARGS|OPTS)|GO(PROXY|NOSUMDB|SUMDB|PRIVATE|FLAGS)", re.I)
KEPT = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/npmrc", "/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/auth.conf.d",
        "/etc/apt/keyrings", "/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d", "/usr/share/keyrings",
        "~/.config/pip", "~/.pip", "~/.npmrc", "~/.m2/settings.xml", "~/.config/go/env", "~/.netrc")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
# Process 1 asks for what the servers' starts leave behind.
FIRST = r"""
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
exec chroot "$1" bash -c 'sleep infinity & wait'
"""

pytestmark = pytest.mark.skipif(not FRESH, reason="MILLRACE_TEST_FRESH is not set")


def certificates(path):
    return ["".join(found.split()) for found in CERTIFICATE.findall(pathlib.Path(path).read_text(encoding="utf-8"))]


def release():
    return dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text(encoding="utf-8").split("\n") if "=" in line)


class Machine:
    def __init__(self, folder, suite):
        self.folder, self.suite, self.first = folder, suite, None
        own = release()["VERSION_CODENAME"]
        said = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(CODENAME)", "Created-By: Packages"],
                              capture_output=True, text=True, check=True).stdout.splitlines()
        mirror = next(words[0] for words in map(str.split, said) if own in words)
        made = subprocess.run(["debootstrap", "--variant=minbase", suite, folder, mirror], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            cannot_try("debootstrap: " + (made.stdout + made.stderr).strip().splitlines()[-1])
        self.settings(own)
        os.makedirs(self.path("/src/millrace"))
        copy = "tar -C $0 --exclude=./build --exclude='./.*' --exclude=./results --exclude=__pycache__ -c . | tar -x --no-same-owner -C $1"
        subprocess.run(["bash", "-euo", "pipefail", "-c", copy, ROOT, self.path("/src/millrace")], check=True)
        for name in (".clang-format", ".clang-tidy", ".dockerignore"):
            if os.path.exists(os.path.join(ROOT, name)):
                shutil.copy(os.path.join(ROOT, name), self.path("/src/millrace"))

    def path(self, name):
        return self.folder + name

    def settings(self, own):
        os.remove(self.path("/etc/apt/sources.list"))
        for name in KEPT:
            source, target = os.path.expanduser(name), self.path(name.replace("~", "/root"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif os.path.exists(source):
                shutil.copy(source, target)
        # Not what runs programs of this machine.
        for conf in glob.glob("/etc/apt/apt.conf.d/*"):
            if "Invoke" not in pathlib.Path(conf).read_text(encoding="utf-8"):
                shutil.copy(conf, self.path("/etc/apt/apt.conf.d"))
        for sources in glob.glob(self.path("/etc/apt/sources.list*/**"), recursive=True):
            if os.path.isfile(sources):
                text = pathlib.Path(sources).read_text(encoding="utf-8")
                pathlib.Path(sources).write_text(text.replace(own, self.suite), encoding="utf-8")
        # Whom this machine trusts and Debian does not.
        debian = {one for name in glob.glob("/usr/share/ca-certificates/**/*.crt", recursive=True) for one in certificates(name)}
        trusted = self.path("/usr/local/share/ca-certificates")
        os.makedirs(trusted, exist_ok=True)
        text = pathlib.Path("/etc/ssl/certs/ca-certificates.crt").read_text(encoding="utf-8")
        for number, found in enumerate(one for one in CERTIFICATE.findall(text) if "".join(one.split()) not in debian):
            pathlib.Path(trusted, f"machine-{number}.crt").write_text(found + "\n", encoding="utf-8")
        # No crash of this machine is to be survived.
        pathlib.Path(self.path("/etc/dpkg/dpkg.cfg.d/unsafe")).write_text("force-unsafe-io\n", encoding="ascii")

    def start(self):
        # pylint: disable-next=consider-using-with # ended by stop
        outer = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-euc", FIRST, "bash", self.folder],
                                 stdin=subprocess.DEVNULL)
        self.first = outer
        children = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        deadline = time.monotonic() + 30
        while not (found := children.read_text(encoding="ascii").split()) or os.readlink(f"/proc/{found[0]}/root") != self.folder:
            assert outer.poll() is None and time.monotonic() < deadline, "the machine does not start"
            time.sleep(0.05)
        self.inside = ["nsenter", "--target", found[0], "--mount", "--pid", "--root", "--wdns=/src/millrace"]

    def run(self, command, code=0):
        """As root, in the copy of the tree, with nothing of this environment but settings."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **{name: value for name, value in os.environ.items() if SETTINGS.fullmatch(name)}}
        begin = time.monotonic()
        # Into a file: servers that go on would hold a pipe open.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run([*self.inside, "bash", "-c", command], env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False)
            said.seek(0)
            text = said.read()
        print(f"{time.monotonic() - begin:.0f} s, {self.megabytes()} MB: {command}\n{text}", flush=True)
        assert done.returncode == code, f"{command}: {done.returncode}\n{text[-5000:]}"
        return text

    def megabytes(self):
        return int(subprocess.run(["du", "-sxm", self.folder], capture_output=True, text=True, check=True).stdout.split()[0])

    def end(self):
        if self.first is not None:
            self.first.kill()
            self.first.wait()
        subprocess.run(["rm", "-rf", "--one-file-system", self.folder], check=False)


@pytest.fixture(scope="module")
def machine():
    if os.geteuid() != 0:
        cannot_try("debootstrap wants root")
    folder = tempfile.mkdtemp(prefix="mr-fresh-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    made = None
    try:
        made = Machine(folder, FRESH if FRESH.isalpha() else release()["VERSION_CODENAME"])
        made.start()
        yield made
    finally:
        if made is not None:
            made.end()
        shutil.rmtree(folder, ignore_errors=True)


def blocks(heading):
    with open(os.path.join(ROOT, "docs", "quick-start.md"), encoding="utf-8") as file:
        return re.findall(r"^```sh\n(.*?)^```", file.read().split(heading)[1], re.MULTILINE | re.DOTALL)


def test_the_demo(machine):
    """To its end; then each line that it prints is run as it stands."""
    assert not os.path.exists(machine.path("/usr/bin/python3")), "a bare machine has none"
    before = machine.megabytes()
    said = machine.run("scripts/demo.sh")
    assert machine.megabytes() - before < DEMO_MB
    assert re.search(r"rows copied +50000 ", said) and re.search(r"events +100000\n", said)
    told = dict(re.findall(r"^  (look|write|read|end)  +((?:.*\\\n)*.*)$", said, re.MULTILINE))
    assert set(told) == {"look", "write", "read", "end"}, said
    page = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"
    assert "<html" in machine.run(f"python3 -c {shlex.quote(page)} {told['look']}")
    machine.run(told["write"])
    deadline = time.monotonic() + 60
    while "hello" not in machine.run(told["read"]):
        assert time.monotonic() < deadline, "the row that was written does not arrive"
        time.sleep(0.5)
    machine.run(told["end"])
    running = machine.run("cat /proc/[0-9]*/comm")
    assert not re.search("java|postgres|millrace", running), running
    # Once more nothing is installed, and begun anew.
    again = machine.run("scripts/demo.sh --rows 100 --events 100")
    assert "installing" not in again and "fetching" not in again and re.search(r"rows copied +100 ", again)
    machine.run(told["end"])


def test_the_way_from_source(machine):
    """The lines of docs/quick-start.md, of which the last one needs a server: the program that they name is on PATH then."""
    lines = blocks("\n## From source\n")[1].splitlines()  # the first makes a user and a table
    assert "MILLRACE_TABLES=" in lines[-1] and lines[-1].endswith(" millrace")
    said = machine.run("set -e\n" + "\n".join([*lines[:-1], "millrace --version"]))
    assert re.search(r"^millrace \d", said, re.MULTILINE)


@pytest.mark.skipif(FRESH.isalpha(), reason="all tests are for this machine's release")
def test_the_tests(machine):
    """Their whole set-up, and one test on servers of its own."""
    said = machine.run("scripts/test.sh --try")
    assert re.search(r"^1 passed", said, re.MULTILINE), said[-3000:]
