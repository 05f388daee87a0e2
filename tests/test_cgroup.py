"""What an agent does with cgroups (src/base/cgroup.c) on a real kernel, with a real limit of memory: src/base/cgroup_test.c, in a kernel of user mode (Debian's
user-mode-linux) whose root is this machine's files, read only. So it is tried the same wherever tests run, also where memory is a matter of version 1. Needs `unit-tests`
of a build without sanitizers, which take more memory than that kernel has."""

import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A command alone in a cgroup that is delegated as systemd does it, and then the end of the kernel.
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t cgroup2 none /sys/fs/cgroup || {{ mount -t sysfs sys /sys; mount -t cgroup2 none /sys/fs/cgroup; }}
echo "+memory +cpu" > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/unit
{python} -c 'import os; os.setxattr("/sys/fs/cgroup/unit", "user.delegate", b"1")'
{before}
sh -c 'echo $$ > /sys/fs/cgroup/unit/cgroup.procs; exec "$@"' sh "$@"
echo o > /proc/sysrq-trigger
sleep 60
"""


def kernel(folder, before, *options):
    """What a command is prefixed with to run in a kernel of its own. `before`: lines of a script. Root and console, left out, would come behind the command."""
    program = shutil.which("linux.uml")
    assert program, "no kernel of user mode: apt-get install user-mode-linux (scripts/setup.sh)"
    init = folder / "init"
    init.write_text(INIT.format(before=before, python=shutil.which("python3")), encoding="ascii")
    init.chmod(0o755)
    return [program, "root=98:0", "console=tty0", "rootfstype=hostfs", "rootflags=/", "ro", "mem=512M", f"init={init}", "con=null", *options, "--"]


def test_one_that_needs_too_much_ends_alone(tmp_path):
    program = pathlib.Path(os.environ.get("MILLRACE_BIN", ROOT / "build/ci/millrace")).parent / "unit-tests"
    assert program.exists(), f"no {program}: cmake --build --preset ci --target unit-tests"
    done = subprocess.run([*kernel(tmp_path, "export MILLRACE_TEST_CGROUP=1", "con0=null,fd:1"), program, "cgroup_test"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120, check=False)
    assert "[  PASSED  ] 1 test(s)" in done.stdout and "limit 16384kB" in done.stdout, done.stdout
