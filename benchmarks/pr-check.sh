#!/usr/bin/env bash
# Usage: benchmarks/pr-check.sh [BASE] [--out DIR] [--rounds N] [options of millrace-load]
#
# What .github/workflows/pr-checks.yml runs: the burst profile on the base revision and on the working
# tree, on one machine, and their comparison. Leaves DIR/{base,head}/ (flame.svg, perf-report.txt, …) and
# DIR/compare/ (comparison.md, diff-flame.svg, perf-diff.txt).
#
#   BASE         revision to compare with (default: where this branch left origin/main or main)
#   --out DIR    default results/<timestamp>-pr
#   --rounds N   profiles of each, alternating, added up (default 1)
#   -h, --help   this text
#
# Exit code: 0 whether or not there is a difference (comparison.md says which); other: it could not compare.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib.sh"
. "$here/../load/common.sh"

base="" out="" rounds=1 arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$(absolute_path "$2") && shift ;;
        --rounds) rounds=$2 && shift ;;
        -h | --help) print_help "$0" && exit 0 ;;
        --seconds | --rate | --burst-events | --row-bytes | --transaction | --mix) arguments+=("$1" "$2") && shift ;;
        --quiet) arguments+=("$1") ;;
        -*) die "unknown option $1; try --help" ;;
        *) base=$1 ;;
    esac
    shift
done
cd "$REPO_ROOT"
[ -n "$base" ] || base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main) ||
    die "no main to compare with; name a revision"
base=$(git rev-parse --verify -q "$base^{commit}") || die "there is no such revision"
out=${out:-$REPO_ROOT/results/$(date +%Y%m%d-%H%M%S)-pr}
mkdir -p "$out"
tree=$out/base-tree
trap 'git worktree remove --force "$tree" >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

# Built alike, with librdkafka's names. Base may be older than the preset: the flags are given one by one.
build() {
    progress "building $2 ($(git -C "$1" describe --always --dirty))"
    if ! { cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMILLRACE_STATIC_RDKAFKA=ON \
        -DMILLRACE_TESTS=OFF && cmake --build "$2"; } >"$out/build.log"; then
        tail -n 30 "$out/build.log" >&2
        die "$1 does not build"
    fi
}

git worktree add -q --detach "$tree" "$base"
build "$tree" "$out/base-build"
build "$REPO_ROOT" "$REPO_ROOT/build/profile"
export MILLRACE_BUILD_DIR=$REPO_ROOT/build/profile
for round in $(seq "$rounds"); do
    for side in base head; do
        progress "round $round: $side"
        binary=$MILLRACE_BUILD_DIR/millrace
        [ $side = head ] || binary=$out/base-build/millrace
        MILLRACE_BIN=$binary "$here/profile-run.sh" burst --out "$out/$side$round" "${arguments[@]}" >/dev/null
    done
done
# Several rounds become one: their stacks are added up, the load figures are the last round's.
for side in base head; do
    mkdir -p "$out/$side"
    cp -r "$out/$side$rounds/." "$out/$side/"
    cat "$out/$side"[0-9]*/folded.txt >"$out/$side/all.txt"
    "$(built_program millrace-flame)" folded "$out/$side/all.txt" >"$out/$side/folded.txt"
    "$(built_program millrace-flame)" json "$out/$side/folded.txt" >"$out/$side/profile.json"
    rm -r "$out/$side/all.txt" "$out/$side"[0-9]*
done
rm -rf "$out/base-build" "$out/build.log"
code=0
"$here/profile-compare.sh" "$out/base" "$out/head" --out "$out/compare" || code=$?
[ "$code" = 0 ] || [ "$code" = 3 ] || exit "$code"
say "results: $out"
