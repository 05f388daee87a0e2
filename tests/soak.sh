#!/usr/bin/env bash
# Usage: tests/soak.sh --minutes N --seed S [--writers W] [--delivery exactly-once]
#                      [--every SECONDS] [--peer debezium] [--profiler]
#
# The storm: load and every fault of tests/faults/director.py, drawn by the seed, for N
# minutes; then everything in the topics is compared with the tables. Prints one line:
# events, lost, phantom, duplicates, order violations, early confirms, kills, cuts. The
# exit code is 0 when nothing is wrong. With exactly-once the topics are read as a reader
# of committed records does, and a repeat is wrong, too.
#
# --every: a fault each so many seconds, instead of one soon after the other. --peer debezium: the
# same for Debezium in Kafka Connect (docs/reliability.md, "Beside Debezium"); its log stays in
# build/peer-logs. With --every, one seed gives both the same faults.
#
# --profiler: millrace is sampled at 1000 Hz all the time, writes profiles every 2 s, and clients ask
# for more; each is read.
#
#   MILLRACE_BIN        binary under test (default build/release/millrace)
#   MILLRACE_TEST_PORT  first of the ports of the stand (default 21715)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
case "${1:-}" in -h | --help) print_help "$0" && exit 0 ;; esac
case " $* " in *" --peer debezium "*)
    export MILLRACE_PEER_LOGS=$REPO_ROOT/build/peer-logs
    mkdir -p "$MILLRACE_PEER_LOGS"
    "$REPO_ROOT/benchmarks/start-debezium.sh" --fetch
    ;;
esac
. "$REPO_ROOT/tests/faults/stand.sh"
"$MILLRACE_PYTHON" "$REPO_ROOT/tests/faults/director.py" "$@"
