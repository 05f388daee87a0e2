"""What a program was built with and runs on: two that differ in it are not compared without a word.

  python builds.py PROGRAM     as lines of NAME=value"""

import ctypes
import os
import re
import subprocess
import sys
import time


# ---- builds ----

def describe(binary):
    """Compiler, flags and libraries of a build, from the program itself."""
    def said(*command):
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    version = said(binary, "--version")
    libraries = dict(re.findall(r"^(libpq|librdkafka|allocator):? +(.*)$", version, re.M))
    units = said("readelf", "--debug-dump=info", "--dwarf-depth=1", binary)
    # The program's own first unit, without what only says where it was built.
    producer = re.search(r"DW_AT_producer.*?(GNU C\d\d|clang)\D* ([\d.]+)(.*)", units)
    flags = " ".join(sorted(set(re.findall(r"\s(-O\w*|-f\S+|-m\S+|-D\S+)", producer[3])))) if producer else ""
    if "librdkafka" not in said("ldd", binary):
        libraries["librdkafka"] = libraries.get("librdkafka", "") + " (static)"
    return {"compiler": " ".join(producer.groups()[:2]) if producer else "unknown", "flags": flags, **libraries}


def getppid_ns():
    """What the cheapest system call takes: getppid by the C library, less a function of it that calls nothing."""
    library = ctypes.CDLL(None)

    def each(function, count=100000):
        begin = time.perf_counter_ns()
        for _ in range(count):
            function()
        return (time.perf_counter_ns() - begin) / count
    return max(0, round(min(each(library.getppid) for _ in range(9)) - min(each(library.getpagesize) for _ in range(9))))


def machine():
    """What it is, by lscpu and the kernel."""
    said = dict(re.findall(r"^(.*?):\s+(.*)$", subprocess.run(["lscpu"], capture_output=True, text=True, check=True,
                                                             env={**os.environ, "LC_ALL": "C"}).stdout, re.M))
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(file.readline().split()[1]) // 1024
    return {"cpu": said.get("Model name", os.uname().machine), "cores": os.cpu_count(), "memory_mb": memory,
            "kernel": f"{os.uname().sysname} {os.uname().release}",
            "family": f"{said.get('Vendor ID', '?')} {said.get('CPU family', '?')}/{said.get('Model', '?')}",
            "virtual": said.get("Hypervisor vendor", "no"), "l3": said.get("L3 cache", "?").partition(" (")[0]}


def main():
    for name, value in {**describe(sys.argv[1]), **machine()}.items():
        print(f"{name}={value}")


if __name__ == "__main__":
    main()
