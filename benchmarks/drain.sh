#!/usr/bin/env bash
# Usage: benchmarks/drain.sh [--rows N] [--rounds N] [--option KEY=VALUE]... [--json FILE] [--keep]
#
# The same backlog drained by pg_recvlogical -f /dev/null and by millrace to a real
# Kafka broker, alternating, in one run; prints medians and ratios. Works on the
# private stand (scripts/stand.sh), which it starts when it is not up.
#
#   --rows N     rows of the backlog (default 500000)
#   --rounds N   rounds of both programs (default 5)
#   --option K=V a line for millrace's configuration, e.g. pipeline.coalesce='"0us"'
#   --env K=V    a variable of millrace's environment, e.g. LD_PRELOAD=libjemalloc.so.2
#   --json FILE  also write the figures as JSON
#   --keep       leave database and topics for a look
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh"
exec "$MILLRACE_PYTHON" "$here/drain.py" "$@"
