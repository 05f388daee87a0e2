#!/usr/bin/env bash
# Usage: scripts/fuzz.sh [--seconds N] [TARGET...]
#
# Runs the libFuzzer targets of fuzz/ (all, or those named), built with Clang and the address
# and undefined-behaviour sanitizers. They begin with a seed corpus made from the unit tests'
# streams, with what longer runs have left (fuzz/corpus/TARGET) and with every input that once failed
# (fuzz/regressions/TARGET); what they find on the way is kept in build/fuzz/corpus, so that the next
# run goes on from there.
#
#   --seconds N  how long each target runs (default 60)
#
# A failing input is left in build/fuzz/artifacts and named. Run it again with
#   build/fuzz/fuzz/TARGET FILE
# and, once mended, keep it in fuzz/regressions/TARGET.
set -euo pipefail
# shellcheck source=scripts/lib/base.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
cd "$REPO_ROOT"

SECONDS_EACH=60
TARGETS=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) SECONDS_EACH=${2:?--seconds needs a number}; shift ;;
        -h | --help) print_help "$0"; exit 0 ;;
        fuzz_*) TARGETS+=("$1") ;;
        *) die "unknown argument $1; try --help" ;;
    esac
    shift
done
progress "building"
{ cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers; } >build-fuzz.log 2>&1 ||
    { tail -n 40 build-fuzz.log >&2 && die "the build with preset fuzz failed"; }
rm -f build-fuzz.log
[ ${#TARGETS[@]} -gt 0 ] || mapfile -t TARGETS < <(cd build/fuzz/fuzz && find . -maxdepth 1 -type f -name 'fuzz_*' ! -name fuzz_seeds -perm -u+x -printf '%f\n' | sort)

seeds=build/fuzz/seeds corpus=build/fuzz/corpus artifacts=build/fuzz/artifacts
mkdir -p "$artifacts"
build/fuzz/fuzz/fuzz_seeds "$seeds"

# run_target TARGET: its folders are the corpus that grows, then those that are only read.
run_target() {
    local target=$1 folder options=()
    local folders=("$corpus/$target")
    mkdir -p "$corpus/$target"
    for folder in "$seeds/$target" "fuzz/corpus/$target" "fuzz/regressions/$target"; do
        [ ! -d "$folder" ] || folders+=("$folder")
    done
    [ ! -e "$seeds/$target.dict" ] || options+=(-dict="$seeds/$target.dict")
    "build/fuzz/fuzz/$target" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=2048 \
        -max_len=8192 -print_final_stats=1 -verbosity=1 -artifact_prefix="$artifacts/$target-" \
        "${options[@]}" "${folders[@]}" </dev/null >"$artifacts/$target.log" 2>&1
}

# judge TARGET: runs it and says what came of it.
judge() {
    local target=$1
    if run_target "$target"; then
        say "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$artifacts/$target.log") inputs, no failure"
    else
        tail -n 60 "$artifacts/$target.log" >&2
        say "$target FAILED; its input is $artifacts/$target-*, all it said is $artifacts/$target.log"
        return 1
    fi
}

# As many side by side as there are processors.
failed=0 running=0
for target in "${TARGETS[@]}"; do
    if [ "$running" -eq "$(nproc)" ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    judge "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
