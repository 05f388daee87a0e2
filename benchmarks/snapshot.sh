#!/usr/bin/env bash
# Usage: benchmarks/snapshot.sh [--rows N] [--rounds N] [--threads LIST] [--debezium] [--json FILE] [--keep]
#
# The same table of seven columns copied by psql -c "COPY t TO STDOUT" >/dev/null and by millrace
# (snapshot.mode = initial) to a real Kafka broker, in rotation, in one run; prints medians and
# ratios: rows/s between the first and the last row, CPU, peak memory, and how much that is above
# the peak of a millrace that only streams. Works on the private stand (scripts/stand.sh), which it
# starts when it is not up.
#
#   --rows N       rows of the table (default 500000)
#   --rounds N     rounds of all programs (default 3)
#   --threads LIST snapshot.max.threads, one column each (default 1,4)
#   --debezium     Debezium's initial snapshot beside them (fetches its jars at the first use)
#   --json FILE    also write the figures as JSON
#   --keep         leave database and topics for a look
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
exec "$MILLRACE_PYTHON" "$here/snapshot.py" "$@"
