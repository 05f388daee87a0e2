#!/usr/bin/env bash
# Usage: benchmarks/compare-peers.sh [--rows N] [--rounds N] [--rate N] [--seconds N]
#                                    [--peer NAME]... [--peer NAME=SCRIPT]... [--out FILE] [--json FILE]
#
# millrace beside other programs on the same slot and broker: one backlog, drained by each in
# turn, round after round, in one run; then rows at a fixed rate, followed to a consumer. Writes
# one table (Markdown) of throughput, CPU per event, memory, latency and start, as medians with
# the ratio to millrace, and the machine it ran on.
#
#   --rows N     rows of the backlog (default 500000)
#   --rounds N   rounds of all programs (default 3)
#   --rate N     rows a second of the latency part (default 2000), in transactions of 10 rows
#   --seconds N  how long (default 10; the first two seconds don't count); 0 leaves it out
#   --peer P     millrace, debezium, pg_recvlogical, or NAME=SCRIPT for a program of your own
#                (benchmarks/README.md); default: the three
#   --out FILE   the table (default benchmarks/results.md)
#   --json FILE  also all figures as JSON
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
case " $* " in
    *" --peer "*) case " $* " in *" --peer debezium "*) "$here/start-debezium.sh" --fetch ;; esac ;;
    *) "$here/start-debezium.sh" --fetch ;;
esac
exec "$MILLRACE_PYTHON" "$here/compare_peers.py" "$@"
