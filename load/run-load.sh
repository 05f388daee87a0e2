#!/usr/bin/env bash
# Usage: load/run-load.sh ramp|burst|steady [options] [options of millrace-load]
#
# Starts millrace on the private stand (scripts/stand.sh) with a database, a slot and topics of its
# own, writes rows at a rate, follows them to Kafka, and reports. Everything it made goes afterwards;
# the results stay.
#
#   --out DIR        folder of the results (default results/<timestamp>-load-<scenario>)
#   --docker         on the compose stack (docker-compose.yml) instead
#   --tables N       tables of the load (default 1)
#   --option K=V     a line of millrace's configuration, e.g. pipeline.latency='"0us"'
#   -h, --help       this text
#
# All other options go to millrace-load (build/release/millrace-load --help): --rate, --seconds, --num-events,
# --mix, --row-bytes, --transaction, --skew, --seed, --connections, --burst-events …
#
#   GRAFANA_URL        http://127.0.0.1:3000: begin and end become annotations there
#   GRAFANA_AUTH       user:password (default admin:admin)
#   MILLRACE_BIN       the millrace to run (default build/release/millrace)
#   MILLRACE_BUILD_DIR where millrace-load is (default build/release)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/load.sh"

case "${1:-}" in
    ramp | burst | steady) scenario=$1 && shift ;;
    -h | --help) print_help "$0" && exit 0 ;;
    *) die "the first word is ramp, burst or steady; try --help" ;;
esac
out="" docker=no tables=1 options=() arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --out) need_value "$@" && out=$(absolute_path "$2") && shift ;;
        --docker) docker=yes ;;
        --tables) need_number "$@" && tables=$2 && shift ;;
        --option) need_value "$@" && options+=("$2") && shift ;;
        -h | --help) print_help "$0" && exit 0 ;;
        *) arguments+=("$1") ;;
    esac
    shift
done

LOAD_PROGRAM=$(built_program millrace-load)
MILLRACE_BIN=${MILLRACE_BIN:-$(built_program millrace)}
LOAD_COMMAND=()
out=${out:-$(results_folder "load-$scenario")}
mkdir -p "$out"
need_disk 1000 "$out"

load=""
# shellcheck disable=SC2317 # the trap calls it
finish() {
    trap - EXIT INT TERM
    interrupt_and_wait "$load"
    either_remove
    say "results: $out"
}
trap finish EXIT
trap 'say "interrupted"; exit 130' INT TERM

either_start "$docker" "$out" "$tables" "${options[@]}"
annotate "load $scenario begins"
# In the background: a signal reaches this script at once, and millrace-load through it.
"$LOAD_PROGRAM" "$scenario" "${LOAD_ARGUMENTS[@]}" "${arguments[@]}" --json "$out/load.json" >"$out/load.txt" &
load=$!
code=0
wait "$load" || code=$?
load=""
annotate "load $scenario ends"
cat "$out/load.txt"
exit "$code"
