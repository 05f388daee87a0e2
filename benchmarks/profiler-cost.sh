#!/usr/bin/env bash
# Usage: benchmarks/profiler-cost.sh [--rows N] [--pairs N] [--frequency HZ] [--heap] [--option KEY=VALUE]...
#                                      [--json FILE] [--keep]
#
# What the continuous profiler costs: the same backlog drained by millrace without it and with it,
# in pairs, the order within a pair changing; prints the median ratio of the rates with an interval,
# and the profiler's own account of the CPU time it took. Works on the private stand
# (scripts/stand.sh), which it starts when it is not up. docs/built-in-profiler.md has figures.
#
#   --rows N        rows of the backlog (default 1000000: functions are named once a process, which
#                   weighs more in a short run)
#   --pairs N       pairs of drains (default 15)
#   --frequency HZ  samples a second of each thread (default 150)
#   --heap          sample allocations, too (needs a binary with jemalloc, e.g. of the preset ci)
#   --option K=V    a line for millrace's configuration in both, e.g. pipeline.latency='"0us"'
#   --json FILE     also write the figures as JSON
#   --keep          leave database and topics for a look
#
#   MILLRACE_BIN    binary under test (default build/release/millrace)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
exec "$MILLRACE_PYTHON" "$here/profiler_cost.py" "$@"
