#!/usr/bin/env bash
# Usage: benchmarks/profile-run.sh [burst|ramp|steady] [options] [options of millrace-load]
#        benchmarks/profile-run.sh --doctor
#
# Starts millrace on the private stand, attaches perf to it, puts load on it until everything has
# arrived in Kafka, and writes results/<timestamp>-<scenario>/:
#   perf.data  perf-report.txt  folded.txt  flame.svg  profile.json   (perf-2.data and load-2.json are a second burst's)
#   load.json  load.txt  metrics.json  env.txt  summary.md  runs.json
# Of a burst, these are of the burst alone, from its first row due to its last record acknowledged; the floor
# around it is in folded-floor.txt, flame-floor.svg and profile-floor.json.
#
#   --out DIR        folder of the results
#   --docker         on the compose stack (docker-compose.yml) instead
#   --bursts N       a burst is repeated until there are 2,000 samples and five bursts, which tell how much one run varies,
#                    or N bursts (8); the load's options are of each
#   --frequency N    samples a second of CPU time (default: burst 1999, else 199)
#   --tables N       tables of the load (default 1)
#   --option K=V     a line of millrace's configuration
#   --doctor         say what this machine has and lacks for profiling, with remedies
#   -h, --help       this text
#
# Other options go to millrace-load, e.g. --rate, --seconds, --burst-events, --num-events. Ctrl-C ends the load;
# what was measured until then is written. GRAFANA_URL, MILLRACE_BIN, MILLRACE_BUILD_DIR: see load/run-load.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/perf.sh"

case "${1:-}" in
    ramp | burst | steady) scenario=$1 && shift ;;
    -* | "") scenario=burst ;;
    *) die "the first word is burst, ramp or steady; try --help" ;;
esac
# A few more than SAMPLES_FEWEST of profile_tools.py: a sample without a stack is not drawn.
SAMPLES_WANTED=2100
# As WINDOWS of profile_tools.py.
BURSTS_WANTED=5
out="" docker=no tables=1 bursts=8 options=() arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --out) need_value "$@" && out=$(absolute_path "$2") && shift ;;
        --docker) docker=yes ;;
        --bursts) need_number "$@" && bursts=$2 && shift ;;
        --frequency) need_number "$@" && PERF_FREQUENCY=$2 && shift ;;
        --tables) need_number "$@" && tables=$2 && shift ;;
        --option) need_value "$@" && options+=("$2") && shift ;;
        --doctor) doctor && exit 0 || exit 1 ;;
        -h | --help) print_help "$0" && exit 0 ;;
        --nonsense) die "unknown option $1; try --help" ;;
        *) arguments+=("$1") ;;
    esac
    shift
done

# A burst is over in seconds, and wants thousands of samples.
[ "$scenario" != burst ] || PERF_FREQUENCY=${PERF_FREQUENCY:-1999}
need_perf
need_command curl
LOAD_PROGRAM=$(built_program millrace-load)
MILLRACE_BIN=${MILLRACE_BIN:-$(built_program millrace)}
built_program millrace-flame >/dev/null
LOAD_COMMAND=()
PERF_EVENT=$(perf_event)
out=${out:-$(results_folder "$scenario")}
mkdir -p "$out"
need_disk 2000 "$out"

load="" watch=""
watch_end() {
    [ -z "$watch" ] || { kill "$watch" && wait "$watch"; } 2>/dev/null || true
    watch=""
}

# shellcheck disable=SC2317 # the trap calls it
finish() {
    trap - EXIT INT TERM
    interrupt_and_wait "$load"
    watch_end
    perf_detach
    either_remove
}
trap finish EXIT
interrupted=no
# The load ends in order and says what there was; then everything goes on as usual.
trap 'interrupted=yes; say "interrupted: ending the load"; [ -z "$load" ] || kill -INT "$load" 2>/dev/null || true' INT TERM

wait_for_load() {
    local code=0
    wait "$load" || code=$?
    # A signal ends the wait, not the load.
    while kill -0 "$load" 2>/dev/null; do wait "$load" && code=0 || code=$?; done
    load=""
    return "$code"
}

either_start "$docker" "$out" "$tables" "${options[@]}"
describe_environment >"$out/env.txt"
walsender=$(walsender_process)
annotate "profile $scenario begins"
code=0 samples=0 number=1 part=""
while :; do
    progress "perf attaches to process $LOAD_PID ($PERF_EVENT, ${PERF_FREQUENCY:-199} Hz)"
    perf_attach "$out/perf$part.data" "$LOAD_PID"
    "$MILLRACE_PYTHON" "$here/profile_tools.py" watch "$out" "$part" "$walsender" "$LOAD_METRICS" &
    watch=$!
    # In a process group of its own: Ctrl-C reaches this script, which ends the load first and perf then.
    setsid "$LOAD_PROGRAM" "$scenario" "${LOAD_ARGUMENTS[@]}" "${arguments[@]}" --json "$out/load$part.json" >"$out/load$part.txt" &
    load=$!
    wait_for_load || code=$?
    [ "$code" != "$LOAD_USAGE" ] || die "the load was not begun; its options are those of: $LOAD_PROGRAM --help"
    perf_detach
    watch_end
    if [ "$scenario" != burst ] || [ "$code" != 0 ] || [ "$interrupted" = yes ]; then break; fi
    read -r -a window < <("$MILLRACE_PYTHON" "$here/profile_tools.py" window "$out" "$part")
    samples=$((samples + $(perf_samples "$out/perf$part.data" "${window[@]}")))
    if { [ "$samples" -ge "$SAMPLES_WANTED" ] && [ "$number" -ge "$BURSTS_WANTED" ]; } || [ "$number" -ge "$bursts" ]; then break; fi
    number=$((number + 1)) part=-$number
    progress "$samples samples of $SAMPLES_WANTED: burst $number"
done
annotate "profile $scenario ends"
curl -fsS -m 5 "$LOAD_METRICS" | "$MILLRACE_PYTHON" "$here/profile_tools.py" metrics >"$out/metrics.json" ||
    say "warning: $LOAD_METRICS does not answer: metrics.json is empty"
either_remove
window=() PIECES=no cut=bursts
if [ "$scenario" != burst ]; then PIECES=yes cut=pieces; fi
read -r -d '' -a window < <("$MILLRACE_PYTHON" "$here/profile_tools.py" "$cut" "$out") || true
"$MILLRACE_PYTHON" "$here/profile_tools.py" waits "$out" >>"$out/env.txt"
perf_results "$out" "millrace, $scenario" "${window[@]}"
"$MILLRACE_PYTHON" "$here/profile_tools.py" run "$out" >"$out/runs.json"
rm -f "$out"/watch*.txt "$out"/window-*.json
"$MILLRACE_PYTHON" "$here/profile_tools.py" summary "$out" >"$out/summary.md"
cat "$out/summary.md"
say "results: $out"
[ "$interrupted" = no ] || exit 130
exit "$code"
