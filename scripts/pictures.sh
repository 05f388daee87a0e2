#!/usr/bin/env bash
# Usage: scripts/pictures.sh [FOLDER]
#        scripts/pictures.sh --run NAME [FOLDER]
#
# Makes the pictures of the documents: docs/images/NAME.svg, or FOLDER/NAME.svg, from each docs/images/NAME.dot. Graphviz
# (scripts/setup.sh) draws them. What is the same in all is in pictures.gv; pictures.css has the colours, for light and dark.
#
#   --run NAME  a picture of a real run on the private stand, by the programs of the preset release:
#               live    live-page.png: the live page, a minute of 3,000 rows/s (Chromium: scripts/setup.sh --all)
#               flame   live-page-flame.png: that minute's flame graph on the page, at 5,000 rows/s
#               burst   burst.svg: a burst of 400,000 rows, by the queries of the dashboard Burst in a Prometheus (--all, too)
#               verify  verify.svg: the screen of `millrace verify` that finds faults in a topic, and repairs them
#               change  flame-difference.svg, flame-difference-before.svg: the commit that writes Avro directly, and the one before
#                       it, both built (minutes), under the same load
#               all     each of these
#   -h, --help  this text
set -euo pipefail
# shellcheck source=scripts/lib/load.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/load.sh"
IMAGES=$REPO_ROOT/docs/images
PICTURES=$REPO_ROOT/scripts/pictures
# The first commit whose Avro is written directly; the one before writes JSON and makes Avro of that.
DIRECT_AVRO=986063ed379b5b76d7f1e65ab3cea69ea87f5ec6

# ---- drawings ----

# From Graphviz' SVG: its size in pixels, a card below it, the colours; without the page that Graphviz paints and its comments.
styled() {
    sed -e '/^<!DOCTYPE/,/>$/d; /^<!--.*-->$/d; /^<!--/,/-->$/d' \
        -e '/^<svg /s/\([0-9.]*\)pt"/\1"/g' \
        -e '/^<polygon fill="white"/d' |
        awk -v css="$IMAGES/pictures.css" '
            { print }
            /xmlns:xlink/ {
                print "<style>"
                while ((getline line <css) > 0) print line
                print "</style>"
                print "<rect class=\"card\" width=\"100%\" height=\"100%\" rx=\"10\"/>"
            }'
}

drawings() {
    local source name
    have dot || die "dot is missing: scripts/setup.sh installs Graphviz"
    for source in "$IMAGES"/*.dot; do
        name=$(basename "$source" .dot)
        sed "/^digraph/r $IMAGES/pictures.gv" "$source" | dot -Tsvg | styled >"$FOLDER/$name.svg.new"
        mv "$FOLDER/$name.svg.new" "$FOLDER/$name.svg"
    done
}

# ---- runs ----

# What the tests share, too: servers, a browser, a Prometheus.
python() { PYTHONPATH=$REPO_ROOT/tests:$PYTHONPATH "$MILLRACE_PYTHON" "$@"; }

# begin TABLES [KEY=VALUE]...: a stand, and on it a millrace that streams.
begin() {
    LOAD_PROGRAM=$(built_program millrace-load)
    LOAD_COMMAND=()
    daemon_start "$WORK" "$@"
    ADDRESS=${LOAD_METRICS#http://}
    ADDRESS=${ADDRESS%/metrics}
}

live() {
    LOAD_NAME=shop
    # A position kept from the last one would look like lost rows.
    begin 3 'sink.kafka.state_topic=""'
    # Longer than the page is looked at: it is ended.
    "$LOAD_PROGRAM" steady "${LOAD_ARGUMENTS[@]}" --rate 3000 --seconds 600 --quiet >"$WORK/load.txt" &
    LOAD=$!
    python "$PICTURES/live_page.py" "$ADDRESS" "$FOLDER/live-page.png"
    finish
}

flame() {
    LOAD_NAME=shop
    begin 3 'sink.kafka.state_topic=""' profiling.endpoints=true profiling.recorder=true
    "$LOAD_PROGRAM" steady "${LOAD_ARGUMENTS[@]}" --rate 5000 --seconds 600 --quiet >"$WORK/load.txt" &
    LOAD=$!
    python "$PICTURES/live_page.py" "$ADDRESS" "$FOLDER/live-page-flame.png" flame
    finish
}

burst() {
    begin 1 'metrics.interval="1s"'
    python "$PICTURES/dashboard.py" "$ADDRESS" "$FOLDER/burst.svg" "$LOAD_PROGRAM" burst "${LOAD_ARGUMENTS[@]}" \
        --rate 2000 --seconds 45 --burst-events 400000 --quiet
    finish
}

verify() {
    stand_up
    python "$PICTURES/verify.py" "$FOLDER/verify.svg"
}

# build REVISION FOLDER: its millrace alone. It may link another librdkafka.
build() {
    progress "building $1"
    git -C "$REPO_ROOT" worktree add -q --detach "$2-tree" "$1" || die "revision $1 is not there: this wants the whole history"
    TREES+=("$2-tree")
    { "$2-tree/scripts/librdkafka.sh" && cmake -S "$2-tree" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMILLRACE_JEMALLOC=ON \
        -DMILLRACE_PROFILING=ON -DMILLRACE_TESTS=OFF && cmake --build "$2" --target millrace; } >"$2.log" 2>&1 ||
        die "revision $1 does not build: $(tail -n 5 "$2.log")"
}

# difference NAME [OPTION]...: as profile-compare.sh draws it, of the thread that has changed.
difference() {
    local name=$1 rows widths=after
    shift
    [ $# = 0 ] || widths=before
    rows=$("$MILLRACE_PYTHON" "$REPO_ROOT/benchmarks/profile_tools.py" rows "$before" "$after")
    "$MILLRACE_PYTHON" "$PICTURES/prune.py" mr-source "$before/folded.txt" "$after/folded.txt" "$WORK"
    "$(built_program millrace-flame)" svg --width 960 --rows "$rows" "$@" "$WORK/before.folded" "$WORK/after.folded" \
        --title "Avro made of JSON → written directly: thread mr-source, widths of $widths" >"$FOLDER/$name.svg"
}

change() {
    local before="$WORK/Avro made of JSON" after="$WORK/Avro written directly" side code=0
    export MILLRACE_TOOLS_DIR=$TOOLS_DIR
    build "$DIRECT_AVRO^" "$WORK/before"
    build "$DIRECT_AVRO" "$WORK/after"
    # Not by the function: a shell in the background would take the signal for it, and ignore it.
    PYTHONPATH=$REPO_ROOT/tests:$PYTHONPATH "$MILLRACE_PYTHON" "$PICTURES/registry_alone.py" >"$WORK/registry" &
    LOAD=$!
    wait_for 20 test -s "$WORK/registry" || die "no schema registry"
    for side in before after; do
        MILLRACE_BIN=$WORK/$side/millrace "$REPO_ROOT/benchmarks/profile-run.sh" burst --out "${!side}" --option 'format="avro"' \
            --option 'types="debezium"' --option "schema_registry.url=[\"$(cat "$WORK/registry")\"]" --quiet >"$WORK/$side.txt"
    done
    "$REPO_ROOT/benchmarks/profile-compare.sh" "$before" "$after" --out "$WORK/compare" || code=$?
    case $code in 0 | 3 | 4) ;; *) die "the two can't be compared" ;; esac
    difference flame-difference
    difference flame-difference-before --negate
    finish
}

LOAD="" TREES=()
finish() {
    local tree
    interrupt_and_wait "$LOAD"
    LOAD=""
    daemon_remove
    for tree in "${TREES[@]}"; do git -C "$REPO_ROOT" worktree remove --force "$tree"; done
    TREES=()
}

run() {
    case $1 in
        live | flame | burst | verify | change) ;;
        *) die "there is no picture $1; try --help" ;;
    esac
    binary_under_test
    WORK=$(results_folder "picture-$1")
    trap finish EXIT
    trap 'exit 130' INT TERM
    "$1"
    say "made in $FOLDER; the run is in $WORK"
}

RUNS=()
case "${1:-}" in
    -h | --help) print_help "$0" && exit 0 ;;
    --run) need_value "$@" && RUNS=("$2") && shift 2 ;;
    -*) die "unknown option $1; try --help" ;;
esac
[ "${RUNS[*]}" != all ] || RUNS=(live flame burst verify change)
FOLDER=$(absolute_path "${1:-$IMAGES}")
if [ ${#RUNS[@]} = 0 ]; then drawings; fi
for name in "${RUNS[@]}"; do run "$name"; done
