"""Starts programs from a process that is small: the kernel counts a child's largest size from its parent's on (exec
keeps signal->maxrss), and the one that lies has megabytes at hand, a whole test run hundreds. So it is an interpreter of
its own, not a fork."""

import json
import os
import socket
import subprocess
import sys


def serve(control):
    children = {}
    for line in control.makefile():
        asked = json.loads(line)
        if "command" in asked:
            with open(asked["stdout"], "wb") as stdout, open(asked["stderr"], "wb") as stderr:
                child = subprocess.Popen(asked["command"], env=asked["environment"], stdin=subprocess.DEVNULL,
                                         stdout=stdout, stderr=stderr)
            children[child.pid] = child
            said = {"pid": child.pid}
        else:
            pid, status, used = os.wait4(asked["pid"], os.WNOHANG)
            said = {"code": None}
            if pid:
                children.pop(pid).returncode = code = os.waitstatus_to_exitcode(status)
                said = {"code": code, "peak_kib": used.ru_maxrss}
        control.sendall(json.dumps(said).encode() + b"\n")


class Launcher:
    def __init__(self):
        self.control, other = socket.socketpair()
        with other:
            self.process = subprocess.Popen([sys.executable, __file__], stdin=other)
        self.said = self.control.makefile()

    def ask(self, **what):
        self.control.sendall(json.dumps(what).encode() + b"\n")
        return json.loads(self.said.readline())

    def start(self, command, environment, stdout, stderr):
        return self.ask(command=command, environment=environment, stdout=stdout, stderr=stderr)["pid"]

    def ended(self, pid):
        """None, or the exit code (minus the signal) and the largest size in KiB. Once."""
        said = self.ask(pid=pid)
        return None if said["code"] is None else (said["code"], said["peak_kib"])


if __name__ == "__main__":
    serve(socket.socket(fileno=sys.stdin.fileno()))
