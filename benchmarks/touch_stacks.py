"""touch_stacks.py PID: reads the stacks of a process every half second, until it is gone or this is ended.

perf copies the stack of a sample up to the first page that was never touched. librdkafka's sendmsg has 16 KiB of
iovecs on its frame and uses the first few: behind that hole 7 % of all stacks had no root. Reading a page from
outside maps it (to the kernel's page of zeros), and all have one."""

import os
import sys
import time

# Below the stack pointer, where calls go next.
BELOW = 128 * 1024


def stacks(pid):
    """(from, to) of the used part of each thread's stack."""
    maps = []
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
        for line in file:
            first, last = line.split()[0].split("-")
            maps.append((int(first, 16), int(last, 16)))
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as file:
                words = file.read().split()
        except OSError:
            continue
        if len(words) < 3:
            continue  # running just now: the next time
        pointer = int(words[-2], 16)
        for first, last in maps:
            if first <= pointer < last:
                yield max(first, pointer - BELOW), min(last, pointer + 4 * BELOW)


def main():
    pid = int(sys.argv[1])
    try:
        while True:
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                for first, last in stacks(pid):
                    memory.seek(first)
                    memory.read(last - first)
            time.sleep(0.5)
    except (FileNotFoundError, ProcessLookupError, KeyboardInterrupt):
        pass
    except PermissionError:
        print("profile: warning: the stacks of another user's process can't be read; some will lack their root",
              file=sys.stderr)


main()
