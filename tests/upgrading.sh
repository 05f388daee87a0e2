#!/usr/bin/env bash
# MILLRACE_BIN=tests/upgrading.sh MILLRACE_OLD=PROGRAM MILLRACE_NEW=PROGRAM tests/run.sh -k kill
#
# An upgrade in the middle of whatever a test kills or stops: the first MILLRACE_OLD_STARTS (default 1) starts with a
# configuration are the old program's, all others, and the other commands, the new one's.
set -euo pipefail
program=$MILLRACE_NEW
if [ "${1:-}" = --config ]; then
    starts=${2%/*}/starts
    echo >>"$starts"
    [ "$(wc -l <"$starts")" -gt "${MILLRACE_OLD_STARTS:-1}" ] || program=$MILLRACE_OLD
fi
exec "$program" "$@"
