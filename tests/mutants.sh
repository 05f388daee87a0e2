#!/usr/bin/env bash
# Usage: tests/mutants.sh [NAME...]
#
# Proves that the tests can fail: builds millrace with one bug at a time (the list is
# tests/faults/mutants.py), in a copy of the sources, and runs the check that must catch it.
# Prints a table; the exit code is 0 when all are caught. Takes some minutes.
#
#   MILLRACE_TEST_PORT  take the stand's ports from the twenty that begin here (default: free ones)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/servers.sh"
case "${1:-}" in -h | --help) print_help "$0" && exit 0 ;; esac
. "$REPO_ROOT/tests/faults/stand.sh"
"$MILLRACE_PYTHON" "$REPO_ROOT/tests/faults/mutants.py" "$@"
