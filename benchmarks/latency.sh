#!/usr/bin/env bash
# Usage: benchmarks/latency.sh [--rate N] [--seconds N] [--copy ROWS] [--json FILE]
#
# Rows written at a fixed rate (open loop), followed to a Kafka consumer: the time
# from commit in PostgreSQL to the consumer, as percentiles; and for the slowest 1 % which
# stage was long meanwhile, and who waited for a CPU.
#
#   --rate N     rows a second (default 10000), in transactions of 10 rows
#   --seconds N  how long (default 15; the first two seconds don't count)
#   --copy ROWS  twice: without copies of existing rows, and while a table of so many is copied
#                beside the stream, again and again; and the ratio of the two p99
#   --json FILE  also write the figures as JSON
#
#   PEER_OPTIONS more lines of millrace's configuration
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
exec "$MILLRACE_PYTHON" "$here/latency.py" "$@"
