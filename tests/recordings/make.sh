#!/usr/bin/env bash
# Usage: tests/recordings/make.sh [15|16|17|18]...
#
# Makes the recordings of tests/recordings anew (all versions without an argument), each with a PostgreSQL of its own that is
# removed afterwards. Positions, transaction numbers and times change with each run: commit them when the workload changes.
#
#   MILLRACE_BIN        the recorder (default build/release/millrace)
#   MILLRACE_TEST_PORT  port of the server (default 19190)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/servers.sh"
case "${1:-}" in -h | --help) print_help "$0"; exit 0 ;; esac

binary_under_test
own_stand "stand-recordings" "${MILLRACE_TEST_PORT:-19190}"
stand=$REPO_ROOT/scripts/stand.sh
[ $# -gt 0 ] || set -- 15 16 17 18
trap '"$stand" wipe > /dev/null 2>&1 || true' EXIT
for major in "$@"; do
    "$stand" wipe > /dev/null 2>&1 || true
    "$REPO_ROOT/scripts/setup.sh" --all --pg "$major"
    "$stand" pg-start --pg "$major"
    folder=$REPO_ROOT/tests/recordings/pg$major
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd "$REPO_ROOT/tests/recordings" && "$TOOLS_DIR/venv/bin/python" make.py "$MILLRACE_STAND_PG_PORT" "$folder" \
        "$stand" pg-stop fast --pg "$major")
    chmod 644 "$folder"/*
    say "$folder: $(du -sb "$folder" | cut -f1) bytes"
done
