"""Stacks as text: perf's to folded ones, several to one, and what a flame graph's tree says in numbers.

  perf               perf script -F comm,tid,ip,sym,symoff,dso --no-inline (standard input) to folded text
  sum FILE...        folded texts to one, equal stacks added up
  json               millrace-flame tree (standard input) to totals, how many samples have a named function and reach their
                     root, and the values of stages and functions, as JSON

Folded text is a line for each stack, "thread;outer;inner 12". A frame is "function" of millrace itself, "function [library]"
else, and "[library]" where only that is known."""

import json
import os
import re
import sys

PROGRAM = "millrace"
FRAME = re.compile(r"\s*\S+ +(.*?) *\(([^()]*)\)$")
THREAD = re.compile(r" +[0-9/]+ *:? *$")
ENTRY = re.compile(r"(start_thread|_*clone3?|_start|ret_from_fork(_asm)?|__libc_start_main)(@.*)?( \[.*)?$")

# What GCC calls copies and parts of a function. millrace-flame leaves it out, too (mr_flame_function); this is for callgrind's names.
SUFFIX = re.compile(r"(?<=.)(\.(isra|part|constprop|lto_priv)\.\d+|\.cold(\.\d+)?)+$")


def plain(function):
    """Without what the compiler added; callgrind's 'N, of a recursion, comes last."""
    return SUFFIX.sub("", re.sub(r"('\d+)+$", "", function))


def frame(line):
    """The frame of a line of perf script; None: it is none."""
    parts = FRAME.match(line)
    if parts is None:
        return None
    name, library = re.sub(r"\+0x[0-9a-f]+$", "", parts[1]), os.path.basename(parts[2])
    if parts[2].startswith("[kernel") or re.match(r"\[(?!vdso|unknown)", library):
        library = "kernel"
    library = library.strip("[]")
    if name in ("", "[unknown]"):
        # Debian strips the allocator: to a reader its inner functions are one.
        return f"jemalloc [{library}]" if library.startswith("libjemalloc.so") else f"[{library}]"
    return name if library == PROGRAM else f"{name} [{library}]"


def stack_of(thread, frames):
    return ";".join(name.replace(";", ":") for name in (thread, *reversed(frames)))


def fold_perf(lines):
    """{stack: samples}. A sample is a line with the thread's name and number, then its frames, leaf first, then an empty line."""
    found, thread, frames = {}, None, []

    def close():
        if thread is not None:
            stack = stack_of(thread, frames)
            found[stack] = found.get(stack, 0) + 1

    for line in lines:
        line = line.rstrip("\n")
        if not line.strip():
            close()
            thread = None
        elif line.startswith("\t") or (thread is not None and line.startswith(" ")):
            named = frame(line)
            frames += [named] if named else []
        elif not line.startswith("#"):
            close()
            thread, frames = THREAD.sub("", line).strip(), []
    close()
    return found


def add_up(lines, found):
    for line in lines:
        stack, _, value = line.rstrip("\n").rpartition(" ")
        if stack:
            found[stack] = found.get(stack, 0) + int(value)


def numbers_of(lines):
    """Of a tree from its root up. A function that recurs is on a stack several times and counts once; its stage is the one it was
    in most often."""
    about = {"total": 0, "named": 0, "rooted": 0, "stages": {}}
    functions, path = {}, []
    for line in lines:
        depth, stage, top, value, name = line.rstrip("\n").split(" ", 4)
        depth, top, value = int(depth), int(top), int(value)
        if depth == 0:
            about["total"], path = value, []
        about["stages"][stage] = about["stages"].get(stage, 0) + top
        path[depth:] = [name]
        if depth == 0:
            continue
        # The thread's name comes first, then its first function.
        about["named"] += 0 if re.match(r"\[|0x|$", name) else top
        about["rooted"] += top if any(ENTRY.match(below) for below in path[1:3]) else 0
        row = functions.setdefault(name, {"name": name, "stage": stage, "self": 0, "total": 0, "most": 0})
        row["self"] += top
        row["total"] += 0 if name in path[1:depth] else value
        if value > row["most"]:
            row.update(stage=stage, most=value)
    rows = sorted(functions.values(), key=lambda row: (-row["self"], -row["total"], row["name"]))
    return {**about, "functions": [{key: row[key] for key in ("name", "stage", "self", "total")} for row in rows]}


STAGES = ("receive", "decode", "encode", "produce", "flush", "acknowledge", "malloc", "http", "profiler", "other")


def main():
    command, *files = sys.argv[1:] or [""]
    sys.stdin.reconfigure(errors="replace")
    if command == "json":
        found = numbers_of(sys.stdin)
        found["stages"] = {stage: found["stages"].get(stage, 0) for stage in STAGES}
        json.dump(found, sys.stdout)
        return
    if command == "perf":
        found = fold_perf(sys.stdin)
    elif command == "sum":
        found = {}
        for path in files:
            with open(path, encoding="utf-8", errors="replace") as file:
                add_up(file, found)
    else:
        raise SystemExit(__doc__)
    for stack, value in sorted(found.items()):
        print(stack, value)


if __name__ == "__main__":
    main()
