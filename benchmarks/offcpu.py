"""offcpu.py: from perf script's switches (standard input) to folded stacks weighed by the microseconds off the processor.

perf script -F comm,tid,time,event,ip,sym,dso --show-switch-events, of sched:sched_switch with --switch-events: a sample with a
stack where a thread gives the processor up, and a line "PERF_RECORD_SWITCH IN" where it gets it back. One that waits to the
end waits until the last line. A thread that waits for 10 s once weighs as much as one that waits for 1 ms ten thousand times."""

import re
import sys

from stacks import frame, stack_of

HEAD = re.compile(r"\s*(\S.*?)\s+(\d+)\s+(\d+\.\d+):\s+(.*)$")


def fold(lines):
    """{stack: µs}."""
    found, waiting, thread, frames, last = {}, {}, None, [], 0.0

    def came_back(tid, at):
        if tid in waiting:
            stack, since = waiting.pop(tid)
            found[stack] = found.get(stack, 0) + round((at - since) * 1e6)

    for line in lines:
        line = line.rstrip("\n")
        head = HEAD.match(line) if not line.startswith("\t") else None
        if head:
            name, tid, at, event = head[1], head[2], float(head[3]), head[4]
            last = max(last, at)
            thread = None
            if "sched_switch" in event:
                thread, frames = (name, tid, at), []
            elif "PERF_RECORD_SWITCH" in event and " IN" in event:
                came_back(tid, at)
        elif thread and line.strip():
            named = frame(line)
            frames += [named] if named else []
        elif thread:
            name, tid, at = thread
            waiting[tid] = (stack_of(name, frames), at)
            thread = None
    for tid in list(waiting):
        came_back(tid, last)
    return found


if __name__ == "__main__":
    for stack, us in sorted(fold(sys.stdin).items()):
        if us:
            print(stack, us)
