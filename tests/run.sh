#!/usr/bin/env bash
# Usage: tests/run.sh [pytest's arguments]
#
# System tests: the built binary against a real PostgreSQL and a real Kafka, which get a
# stand of their own (folder .stand-test, own ports) and are removed afterwards.
# For example: tests/run.sh -k sigterm
#
#   MILLRACE_BIN           binary under test (default build/release/millrace)
#   MILLRACE_TEST_CHANGES  changes of the concurrent writers (default 100000)
#   MILLRACE_TEST_CYCLES   kills and stops under load (default 6)
#   MILLRACE_TEST_BIGTX    rows of the large transaction (default 300000)
#   MILLRACE_TEST_SANITIZED  set: the binary is built with sanitizers, memory is not judged
#   MILLRACE_TEST_OUTAGE   seconds that Kafka is away (default 8)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
case "${1:-}" in --help) print_help "$0"; exit 0 ;; esac

export MILLRACE_TOOLS_DIR=$TOOLS_DIR
export MILLRACE_STAND_DIR=$REPO_ROOT/.stand-test
export MILLRACE_STAND_PG_PORT=54715 MILLRACE_STAND_KAFKA_PORT=19192 MILLRACE_STAND_CONTROLLER_PORT=19193
export MILLRACE_BIN=${MILLRACE_BIN:-$REPO_ROOT/build/release/millrace}
[ -x "$MILLRACE_BIN" ] || die "$MILLRACE_BIN is missing; scripts/test.sh builds it"
stand=$REPO_ROOT/scripts/stand.sh
trap '"$stand" wipe > /dev/null 2>&1 || true' EXIT
"$stand" wipe > /dev/null 2>&1 || true
"$stand" up
eval "$("$stand" env)"
cd "$REPO_ROOT/tests"
"$MILLRACE_PYTHON" -m pytest -q -p no:cacheprovider "$@"
