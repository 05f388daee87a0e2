#!/usr/bin/env bash
# Usage: benchmarks/drain.sh [--mix NAME] [--delivery MODE] [--rows N] [--rounds N] [--beside [NAME=]BINARY]...
#                            [--option KEY=VALUE]... [--env K=V]... [--json FILE] [--keep]
#
# The same backlog drained by pg_recvlogical -f /dev/null and by millrace to a real
# Kafka broker, in rotation, in one run; prints medians and ratios. Works on the
# private stand (scripts/stand.sh), which it starts when it is not up.
#
#   --mix NAME   insert (default): inserts, 10,000 a transaction; mixed: 50 % inserts, 40 % updates, 10 % deletes;
#                small: inserts, 10 a transaction; wide: rows of 4 KiB; tables: 100 tables; partitions: a topic of 12
#   --delivery M at-least-once (default), exactly-once, or both: exactly-once beside at-least-once in the same rounds
#   --rows N     rows of the backlog (default 500000; wide: a tenth)
#   --rounds N   rounds of all programs (default 5)
#   --beside B   another build of millrace in the same rounds, for a change before and after
#   --option K=V a line for millrace's configuration, e.g. sink.kafka.linger='"1ms"'
#   --env K=V    a variable of millrace's environment, e.g. LD_PRELOAD=libjemalloc.so.2
#   --json FILE  also write the figures as JSON
#   --keep       leave database and topics for a look
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
exec "$MILLRACE_PYTHON" "$here/drain.py" "$@"
