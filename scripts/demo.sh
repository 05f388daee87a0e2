#!/usr/bin/env bash
# Usage: scripts/demo.sh [--rows N] [--events N] [--remove]
#
# From nothing to a running stream: installs what is missing (Debian's packages, Kafka's
# jars, a Python environment), builds millrace, starts a private PostgreSQL and a private
# single-node Kafka, fills a table, has its rows copied, and then runs a burst of changes
# through all three. Prints what came out: rows copied and rows/s,
# events, events/s, latency from commit to Kafka, CPU per event, peak memory, and a few
# events as a consumer sees them. Everything lives in one folder, which
# `scripts/stand.sh status` names: .stand, unless other users can't reach that.
#
#   --rows N    rows that are in the table at the beginning (default 50000)
#   --events N  changes in the burst (default 100000)
#   --remove    stop both servers and remove their data at the end; without it they stay
#               up for a look around (scripts/stand.sh status | down | wipe)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
cd "$REPO_ROOT"

EVENTS=100000
ROWS=50000
REMOVE=no
while [ $# -gt 0 ]; do
    case $1 in
        --events) EVENTS=${2:?--events needs a number}; shift ;;
        --rows) ROWS=${2:?--rows needs a number}; shift ;;
        --remove) REMOVE=yes ;;
        -h | --help) print_help "$0"; exit 0 ;;
        *) die "unknown option $1; try --help" ;;
    esac
    shift
done

scripts/setup.sh --all
say "building"
cmake --preset release > /dev/null
cmake --build --preset release --target millrace > /dev/null
scripts/stand.sh up
eval "$(scripts/stand.sh env)"
MILLRACE_BIN=$REPO_ROOT/build/release/millrace \
    "$MILLRACE_PYTHON" benchmarks/demo.py --rows "$ROWS" --events "$EVENTS"
if [ "$REMOVE" = yes ]; then
    scripts/stand.sh wipe
else
    say "PostgreSQL and Kafka stay up: scripts/stand.sh status | down | wipe"
fi
