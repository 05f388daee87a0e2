"""A systemd of its own, booted as process 1 of new namespaces over this machine's files: what it writes is in memory and gone with it. It shares the
network, so that a unit reaches the stand's servers. Needs root with CAP_SYS_ADMIN, as mounts do."""

import json
import os
import shutil
import signal
import subprocess
import tempfile

from kit import BINARY, eventually
from prometheus import ROOT

# As systemd-nspawn: /sys and /proc/sys are read only, /dev has what each container has. Nothing of the machine is enabled, and what would look after its
# hardware is masked. A cgroup of its own, which is gone at the end.
BOOT = r"""
set -eu
folder=$1 binary=$2 units=$3
mount --make-rprivate /
mount -t tmpfs tmpfs "$folder"
mkdir "$folder"/up "$folder"/work "$folder"/root "$folder"/cgroup
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/up,workdir=$folder/work" "$folder/root"
mount -t cgroup2 cgroup2 "$folder/cgroup"
before=$folder/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/cgroup.procs
own=$folder/cgroup/millrace-test-$$
mkdir "$own"
echo $$ >"$own/cgroup.procs"
cd "$folder/root"
echo host-1 >etc/hostname
rm -rf etc/systemd/system/*.wants etc/fstab etc/millrace
for name in sysctl binfmt modules-load udevd udev-trigger update-utmp timesyncd logind networkd; do ln -s /dev/null "etc/systemd/system/systemd-$name.service"; done
for name in timers.target dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount \
    proc-sys-fs-binfmt_misc.automount; do ln -s /dev/null "etc/systemd/system/$name"; done
rm -f usr/bin/millrace usr/bin/millrace-verify
cp "$binary" usr/bin/millrace
cp "$binary-verify" usr/bin/millrace-verify
chmod 755 usr/bin/millrace usr/bin/millrace-verify
cp "$units"/* lib/systemd/system
mkdir -p etc/millrace/secrets was
for place in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs $place; done
chmod 1777 tmp
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
unshare --pid --fork --kill-child --mount --uts --ipc --cgroup bash -euc '
    hostname host-1
    mount -t proc proc proc
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    pivot_root . was
    exec chroot . /bin/sh -c "umount -l /was; mount --make-rshared /; exec env -i container=other PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --unit=basic.target --show-status=no"
' &
echo $! >"$folder.pid"
wait || true
cd /
echo $$ >"$before"
for _ in $(seq 100); do find "$own" -depth -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.1; done
"""


class Booted:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="mr-systemd-")
        self.said = open(self.folder + ".log", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.outer = subprocess.Popen(["unshare", "--mount", "bash", "-c", BOOT, "boot", self.folder, BINARY, os.path.join(ROOT, "docs", "deploy")],
                                      stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said)
        try:
            self.first = eventually(self._first, 30, "process 1")
            eventually(lambda: self.run("systemctl", "is-system-running", codes=None).stdout.strip() in ("running", "degraded"), 60, "systemd's boot")
        except BaseException:
            self.end()
            raise

    def _first(self):
        """Its number on this side."""
        self.said.seek(0)
        assert self.outer.poll() is None, self.said.read()
        try:
            with open(self.folder + ".pid", encoding="ascii") as file:
                parent = file.read().strip()
            with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
                first = int(file.read())
            with open(f"/proc/{first}/comm", encoding="ascii") as file:
                return first if file.read().strip() == "systemd" else None
        except (OSError, ValueError):
            return None

    def run(self, *command, codes=(0,)):
        done = subprocess.run(["nsenter", "-t", str(self.first), "-a", *command], capture_output=True, text=True, timeout=120, check=False)
        assert codes is None or done.returncode in codes, (command, done.returncode, done.stdout, done.stderr)
        return done

    def systemctl(self, *words, codes=(0,)):
        return self.run("systemctl", "--no-pager", *words, codes=codes).stdout.strip()

    def write(self, path, text, mode=0o644):
        full = f"/proc/{self.first}/root{path}"
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(text)

    def shown(self, unit, name):
        return self.systemctl("show", "-P", name, unit)

    def wait_for(self, unit, limit_s=60, **wanted):
        """Properties of it, as systemctl show has them."""
        eventually(lambda: {name: self.shown(unit, name) for name in wanted} == wanted, limit_s, f"{unit}: {wanted}")

    def journal(self, unit, **match):
        """Its records."""
        said = self.run("journalctl", "-u", unit, "-o", "json", "--no-pager", codes=(0, 1)).stdout
        found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        return [one for one in found if all(one.get(name) == value for name, value in match.items())]

    def events(self, unit, event):
        """Of millrace's own log, by the event's name."""
        said = [one["MESSAGE"] for one in self.journal(unit) if isinstance(one["MESSAGE"], str) and one["MESSAGE"].startswith("{")]
        return [one for one in map(json.loads, said) if one["event"] == event]

    def end(self):
        if getattr(self, "first", None):
            os.kill(self.first, signal.SIGKILL)
        else:
            self.outer.kill()
        self.outer.wait(60)
        self.said.close()
        for path in (self.folder + ".log", self.folder + ".pid"):
            if os.path.exists(path):
                os.unlink(path)
        shutil.rmtree(self.folder, ignore_errors=True)
