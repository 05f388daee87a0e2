#!/usr/bin/env bash
# Usage: benchmarks/witnesses.sh BASE HEAD --out DIR [--pairs N] [--rows N] [--option K=V]
#                                [--head-env NAME=VALUE] [--no-instructions]
#
# What two builds of millrace cost an event: instructions and allocations (callgrind), CPU by thread,
# system calls, wake-ups, bytes and memory of drains that take turns. Writes DIR/witnesses.json and
# DIR/verdict.md: same, different (and where), or inconclusive and how many more pairs it takes.
#
#   --pairs N          drains of each (default 12: with fewer, no time is told to differ)
#   --rows N           rows of the backlog (default 100000)
#   --option K=V       a line of millrace's configuration
#   --head-env N=V     a variable for HEAD alone, e.g. LD_PRELOAD=libjemalloc.so.2
#   --no-instructions  leave callgrind out (a minute)
#   -h, --help         this text
#
# Exit code: 0 same, 3 different, 4 inconclusive, other: it could not compare.
set -euo pipefail
MILLRACE_BIN=${MILLRACE_BIN:-${1:-}}
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/bench.sh"
here=$REPO_ROOT/benchmarks
case "${2:--}" in -*) die "which two programs? try --help" ;; esac
out=""
previous=""
for word; do
    [ "$previous" != --out ] || out=$word
    previous=$word
done
[ -n "$out" ] || die "--out DIR is missing"
"$MILLRACE_PYTHON" "$here/witnesses.py" "$@"
code=0
"$MILLRACE_PYTHON" "$here/profile_tools.py" verdict "$out" >"$out/verdict.md" || code=$?
cat "$out/verdict.md"
exit "$code"
