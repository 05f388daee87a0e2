#!/usr/bin/env bash
# Usage: tests/takeover.sh [--rounds N] [--delivery at-least-once|exactly-once] [--end kill|term|freeze]
#
# How long a standby takes to take over: two instances with one configuration, rows written
# all the time, and the one that streams is ended N times (default 20), with SIGKILL, with
# SIGTERM, or by SIGSTOP for ten seconds, with a wal_sender_timeout of two. Prints, for each
# delivery (default both) and end (default kill), the times in seconds from the signal until
# the other one has the stream, until it streams, and until the first row that was committed
# afterwards is with a consumer; then what else the consumer saw. The exit code is 0 when no row is lost or out of
# order and, with exactly-once, none came twice.
#
#   MILLRACE_BIN        binary under test (default build/release/millrace)
#   MILLRACE_TEST_PORT  take the stand's ports from the twenty that begin here (default: free ones)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/servers.sh"
case "${1:-}" in -h | --help) print_help "$0" && exit 0 ;; esac
. "$REPO_ROOT/tests/faults/stand.sh"
"$MILLRACE_PYTHON" "$REPO_ROOT/tests/faults/takeover.py" "$@"
