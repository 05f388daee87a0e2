#!/usr/bin/env bash
# Usage: benchmarks/micro.sh [--check | --accept | --self-test]
#
# Instructions per event of the flow's parts (decode, encode, batch, ring, acknowledgement
# window, headers, escapes), counted by callgrind on one thread. The count is exact: the same
# build gives the same number on any machine, so a change of the code shows to a tenth of a
# percent. Without an option: prints the figures beside the committed ones.
#
#   --check      fails when one costs over 1 % more instructions than the committed baseline
#   --accept     writes the figures into the baseline, benchmarks/micro/baseline.txt: say in the
#                commit why an event may cost more
#   --self-test  shows that --check fails for an encoder with a few instructions more an event
#
# A baseline holds for one compiler and one C library; figures of another pair are kept beside
# it. Everything is built with the preset bench, or that of MILLRACE_PRESET (ci: the same code, which
# scripts/test.sh has built already).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/base.sh"
cd "$REPO_ROOT"

BASELINE=benchmarks/micro/baseline.txt
EVENTS=2000
# Relative, so that the length of the folder's name is in no argument.
PRESET=${MILLRACE_PRESET:-bench}
BUILD=build/$PRESET/benchmarks/micro

build() {
    have valgrind || die "valgrind is missing: scripts/setup.sh installs it"
    progress "building"
    { cmake --preset "$PRESET" && cmake --build --preset "$PRESET" --target millrace-micro millrace-micro-slowed; } \
        >build-micro.log 2>&1 || { tail -n 40 build-micro.log >&2 && die "the build failed"; }
    rm -f build-micro.log
}

# What the generated code depends on.
platform() {
    local compiler name=gcc
    compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "build/$PRESET/CMakeCache.txt")
    case $("$compiler" --version) in *clang*) name=clang ;; esac
    printf '%s-%s-%s-%s\n' "$name" "$("$compiler" -dumpfullversion -dumpversion)" \
        "$(getconf GNU_LIBC_VERSION | tr ' ' '-')" "$(uname -m)"
}

# count PROGRAM BENCH: instructions of the measured part. Nothing of the environment comes in, and
# the C library's copies are those for plain x86-64, whatever processor this is.
count() {
    env -i PATH="$PATH" GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-ERMS,-FSRM,-RTM,-BMI2,-SSSE3,-SSE4_1,-SSE4_2 \
        valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=micro_measured \
        "$BUILD/$1" "$2" "$EVENTS" 2>&1 >/dev/null |
        sed -n 's/^==[0-9]*== Collected : \([0-9]*\)$/\1/p'
}

# measure PROGRAM [BENCH...]: one line a benchmark (default all), name and instructions per event.
measure() {
    local program=$1 name names instructions
    shift
    if [ $# -eq 0 ]; then mapfile -t names < <("$BUILD/$program") && set -- "${names[@]}"; fi
    for name; do
        instructions=$(count "$program" "$name")
        [ -n "$instructions" ] || die "callgrind counted nothing in $name"
        awk -v name="$name" -v all="$instructions" -v events="$EVENTS" \
            'BEGIN { printf "%s %.2f\n", name, all / events }'
    done
}

committed() { awk -v platform="$(platform)" '$1 == platform { print $2, $3 }' "$BASELINE" 2>/dev/null || true; }

# compare FIGURES: a table; false when one passes the limit or has no baseline.
compare() {
    { committed; echo "--"; printf '%s\n' "$1"; } | awk -v limit=1.0 '
        $1 == "--" { now = 1; printf "%-18s %12s %12s %9s\n", "instructions/event", "baseline", "now", "change"; next }
        !now { base[$1] = $2; next }
        !($1 in base) { printf "%-18s %12s %12.2f %9s  no baseline\n", $1, "", $2, ""; bad = 1; next }
        {
            change = 100 * ($2 - base[$1]) / base[$1]
            note = ""
            if (change > limit) { note = "  FAIL: over " limit " % more"; bad = 1 }
            if (change < -limit) { note = "  better: --accept keeps it" }
            printf "%-18s %12.2f %12.2f %+8.2f%%%s\n", $1, base[$1], $2, change, note
        }
        END { exit bad }'
}

accept() {
    local figures=$1 others=""
    if [ -e "$BASELINE" ]; then
        others=$(grep -v -e '^#' -e "^$(platform) " "$BASELINE" || true)
    fi
    {
        echo "# Instructions per event; written by benchmarks/micro.sh --accept. compiler-libc-machine, benchmark, figure"
        [ -z "$others" ] || printf '%s\n' "$others"
        printf '%s\n' "$figures" | sed "s/^/$(platform) /"
    } >"$BASELINE.new"
    mv "$BASELINE.new" "$BASELINE"
    say "accepted for $(platform); commit $BASELINE"
}

# A baseline made from this very build, then the slowed encoder against it: whatever the committed
# one says, the gate itself is what is tested.
self_test() {
    local figures slowed some=(encode_debezium encode_flat escape)
    BASELINE=$(mktemp)
    trap 'rm -f "$BASELINE" "$BASELINE.new"' EXIT
    figures=$(measure millrace-micro "${some[@]}")
    accept "$figures" 2>/dev/null
    [ "$(measure millrace-micro "${some[@]}")" = "$figures" ] || die "two counts of one build differ"
    compare "$figures" >/dev/null || die "the gate fails for the build that made the baseline"
    slowed=$(measure millrace-micro-slowed "${some[@]}")
    if compare "$slowed" >"$BASELINE.new"; then die "the gate lets a slowed encoder pass"; fi
    [ "$(awk '/FAIL/ { print $1 }' "$BASELINE.new" | tr '\n' ' ')" = "encode_debezium encode_flat " ] ||
        die "the gate does not name what was slowed: $(cat "$BASELINE.new")"
    say "the gate passes an unchanged build, counts it twice alike, and fails a slowed encoder"
}

main() {
    local mode=${1:-print} figures
    case $mode in
        print | --check | --accept | --self-test) ;;
        -h | --help) print_help "$0" && exit 0 ;;
        *) die "unknown option $mode; try --help" ;;
    esac
    build
    if [ "$mode" = --self-test ]; then self_test && exit 0; fi
    progress "counting"
    figures=$(measure millrace-micro)
    case $mode in
        print) compare "$figures" || true ;;
        --accept) accept "$figures" ;;
        --check)
            compare "$figures" || die "an event costs more than the baseline for $(platform) says. \
Find out why (benchmarks/README.md); when it is worth it: benchmarks/micro.sh --accept, and commit $BASELINE"
            ;;
    esac
}

main "$@"
