#!/usr/bin/env bash
# Usage: tests/soak.sh --minutes N --seed S [--writers W] [--delivery exactly-once]
#                      [--brokers 3] [--profiler] [--kills N] [--every SECONDS] [--peer debezium]
#
# The storm: load and every fault of tests/faults/director.py, drawn by the seed, for N
# minutes; then everything in the topics is compared with the tables. Beside the rows that are
# counted, the wide workload (tests/wide/storm.py) is written and judged. Prints one line:
# events, lost, phantom, duplicates, order violations, early confirms, kills, cuts. The
# exit code is 0 when nothing is wrong. With exactly-once the topics are read as a reader
# of committed records does, and a repeat is wrong, too. With three brokers, each record on
# all of them, there are rolling restarts, kills of leaders, and two of them away at once.
# With --profiler millrace is sampled at 1000 Hz all the time, writes profiles every 2 s, and
# clients ask for more; each is read.
#
# --kills: at least so many of millrace (as many as the seed draws if not given), spread over the
# whole. More writers make more events: 6 write some two thousand a second on two cores.
#
# --every: a fault each so many seconds, of those that any program must stand, instead of one
# soon after the other. --peer debezium: the
# same for Debezium in Kafka Connect (docs/dev/evidence.md, "Beside Debezium"); its log stays in
# build/peer-logs. With --every, one seed gives both the same faults.
#
#   MILLRACE_BIN        binary under test (default build/release/millrace)
#   MILLRACE_TEST_PORT  take the stand's ports from the twenty that begin here (default: free ones)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/servers.sh"
case "${1:-}" in -h | --help) print_help "$0" && exit 0 ;; esac
case " $* " in *" --peer debezium "*)
    export MILLRACE_PEER_LOGS=$REPO_ROOT/build/peer-logs
    mkdir -p "$MILLRACE_PEER_LOGS"
    "$REPO_ROOT/benchmarks/start-debezium.sh" --fetch
    ;;
esac
export MILLRACE_TEST_PACE=${MILLRACE_TEST_PACE:-0}
STORM_SERVERS=pg-start # the director makes its own brokers
. "$REPO_ROOT/tests/faults/stand.sh"
"$MILLRACE_PYTHON" "$REPO_ROOT/tests/faults/director.py" "$@"
