#!/usr/bin/env bash
# Usage: tests/profiler_soak.sh --minutes N --seed S [--chapter MINUTES] | --self-test
#
# Load, and the profiler switched on and off at random for N minutes: clients ask for CPU
# profiles at up to 1000 Hz, heap profiles and the last minute, and some leave
# early; the continuous profiler and the recorder change with each start; SIGTERM
# comes at any moment, connections to PostgreSQL and Kafka break in every second part. Then
# everything in the topics is compared with the tables. Prints one line: events, lost, repeats
# (none is right in orderly parts), order violations, profiles, stops, progress, memory. The
# exit code is 0 when nothing is wrong. A chapter (default 10 minutes) ends with a comparison.
#
#   --self-test         shows that a frozen process, repeats and broken profiles are noticed
#
#   MILLRACE_BIN        binary under test (default build/ci/millrace, which has heap profiles)
#   MILLRACE_TEST_PORT  take the stand's ports from the twenty that begin here (default: free ones)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/servers.sh"
case "${1:-}" in -h | --help) print_help "$0" && exit 0 ;; esac
export MILLRACE_BIN=${MILLRACE_BIN:-$REPO_ROOT/build/ci/millrace}
. "$REPO_ROOT/tests/faults/stand.sh"
"$MILLRACE_PYTHON" "$REPO_ROOT/tests/faults/profiler_soak.py" "$@"
