#!/usr/bin/env bash
# Usage: benchmarks/start-floor.sh
#
# One of the programs that matrix.sh compares: librdkafka with nothing to do but send (benchmarks/floor/floor.c). With
# PEER_SNAPSHOT_MODE it sends the lines of COPY, else records by the clock. Variables: those of benchmarks/start-millrace.sh, and
#
#   PEER_RATE       records a second, 100 transactions of them
#   MILLRACE_FLOOR  the program, default millrace-floor beside MILLRACE_BIN
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case "${1:-}" in
    -h | --help) awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0" && exit 0 ;;
esac
[ -z "${PEER_SNAPSHOT_MODE:-}" ] || unset PEER_RATE
export PEER_DELIVERY=${PEER_DELIVERY:-at-least-once}
binary=${MILLRACE_BIN:-$here/../build/release/millrace}
exec "${MILLRACE_FLOOR:-$(dirname "$binary")/millrace-floor}"
