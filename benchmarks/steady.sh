#!/usr/bin/env bash
# Usage: benchmarks/steady.sh [--rates N,N…] [--rounds N] [--seconds N] [--peer NAME]... [--peer NAME=SCRIPT]...
#                             [--beside [NAME=]BINARY]... [--out FILE] [--json FILE]
#
# What an ordinary day costs: rows at a fixed rate (open loop, 100 transactions a second), followed to a consumer. For
# each rate and program: CPU per row of the program, of its walsender and of the broker, wake-ups a second by
# thread, and the time from COMMIT to the consumer as percentiles.
#
#   --rates N,N  rows a second (default 0,100,1000,10000,40000; 0 is a table that nobody writes to)
#   --rounds N   rounds of all programs, in rotation (default 3)
#   --seconds N  of each run, behind a warm-up of two seconds (default 10)
#   --peer P     pg_recvlogical, which writes to no topic: the floor; millrace, millrace-exactly-once (the default is these
#                three); debezium, or NAME=SCRIPT for a program of your own (benchmarks/README.md)
#   --beside B   another build of millrace
#   --out FILE   the table (Markdown)
#   --json FILE  all figures of all rounds
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
case " $* " in *" --peer debezium "*) "$here/start-debezium.sh" --fetch ;; esac
exec "$MILLRACE_PYTHON" "$here/steady.py" "$@"
