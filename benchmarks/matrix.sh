#!/usr/bin/env bash
# Usage: benchmarks/matrix.sh [--only LOAD,...] [--programs NAME,...] [--peer NAME=SCRIPT | NAME=BINARY,TEMPLATE]...
#                             [--beside NAME=BINARY]... [--rounds N] [--rows N] [--seconds N] [--minutes N] [--into FILE]
#
# All figures in one run: each load, in rounds of all programs in turns; what a program wrote is checked before its figure
# counts. FILE (JSON) grows by one run after another; the same command goes on where it ended, with more loads or
# rounds too. Prints tables of FILE at the end, as benchmarks/figures.py FILE does. Exit code 1: a program failed. One load takes
# about ten minutes: --only insert.
#
#   --only L       backlogs: insert, mixed, wide (4 KiB), partitions (12), small (10 rows a transaction), tables (100),
#                  transaction (one), pgbench (TPC-B) and pgbench-n (pgbench -N), socket (by a Unix socket); copy (existing rows);
#                  steady (an open loop) or steady-RATE of 0, 100, 1000, 5000, 10000, 20000 and 40000; pgbench-at-500 and
#                  pgbench-n-at-1000 (pgbench at so many transactions a second).
#                  The default is all these. Besides: far (a broker behind a proxy that delays) or far-PARTITIONS-MS; sustained
#                  (the highest rate with a flat lag, and half of it with a restart of the broker); or slots (the floor on two tables,
#                  behind one slot and behind two)
#   --programs P   of pg_recvlogical (the floor), millrace, millrace-exactly-once, debezium, debezium-tuned,
#                  millrace-typed (with Debezium's values: insert), millrace-4-threads (copy), millrace-profiled (with the continuous
#                  profiler); librdkafka and librdkafka-exactly-once (librdkafka with nothing to do but to send: copy, steady);
#                  the default depends on the load
#   --peer N=S     also a program of yours, which the script S starts, or a program and its configuration (benchmarks/README.md)
#   --beside N=B   also another build of millrace
#   --rounds N     default 3
#   --rows N       rows of a backlog (wide a tenth); by default a short drain by millrace says how many it takes 15 s for
#   --seconds N    of a steady rate, after a warm-up of two (default 10)
#   --minutes N    that a rate is held in "sustained" (default 10); the search before takes half as long again
#   --into FILE    default results/DATE-matrix/figures.json; what is in benchmarks/figures is put into pages by benchmarks/figures.py
#
#   PEER_OPTIONS   more lines of millrace's configuration
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export MILLRACE_STAND_PROXIED=1
. "$here/../scripts/lib/bench.sh"
case " $* " in *" --into "* | *" --into="*) ;; *) set -- "$@" --into "$(results_folder matrix)/figures.json" ;; esac
exec "$MILLRACE_PYTHON" "$here/matrix.py" "$@"
