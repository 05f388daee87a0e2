#!/usr/bin/env bash
# Usage: benchmarks/pr-check.sh [BASE] [--out DIR] [--rounds N] [options of millrace-load]
#
# What .github/workflows/pr-checks.yml runs: base revision and working tree, built alike, on one machine: the
# witnesses of witnesses.sh (instructions, drains that take turns), burst profiles that take turns, and one
# verdict. Leaves DIR/witnesses.json, DIR/verdict.md (of the witnesses alone), DIR/{base,head}/ (flame.svg,
# flame-floor.svg, runs.json, …) and DIR/compare/ (comparison.md with the verdict, diff-flame.svg, perf-diff.txt).
#
#   BASE         revision to compare with (default: where this branch left origin/main or main)
#   --out DIR    default results/<timestamp>-pr
#   --rounds N   burst profiles of each (default 2)
#   --pairs N    drains of each (default 12: with fewer, no time is told to differ)
#   --rows N     rows of a drain (default 100000)
#   --head-env NAME=VALUE  a variable for the drains of HEAD
#   --built DIR  builds nothing: DIR/base and DIR/head are two build folders (with millrace, millrace-load, millrace-flame)
#   -h, --help   this text
#
# Exit code: 0 whatever the verdict is (comparison.md says it); other: it could not compare.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/perf.sh"

base="" out="" built="" rounds=2 drains=() arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --out) need_value "$@" && out=$(absolute_path "$2") && shift ;;
        --rounds) need_number "$@" && rounds=$2 && shift ;;
        --built) need_value "$@" && built=$(absolute_path "$2") && shift ;;
        --pairs | --rows | --head-env) need_value "$@" && drains+=("$1" "$2") && shift ;;
        -h | --help) print_help "$0" && exit 0 ;;
        --bursts | --frequency | --seconds | --rate | --burst-events | --row-bytes | --transaction | --mix) need_value "$@" && arguments+=("$1" "$2") && shift ;;
        --quiet) arguments+=("$1") ;;
        -*) die "unknown option $1; try --help" ;;
        *) base=$1 ;;
    esac
    shift
done
cd "$REPO_ROOT"
if [ -z "$built" ]; then
    [ -n "$base" ] || base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main) ||
        die "no main to compare with; name a revision"
    base=$(git rev-parse --verify -q "$base^{commit}") || die "there is no such revision"
fi
out=${out:-$(results_folder "pr")}
mkdir -p "$out"
tree=$out/base-tree
trap 'git worktree remove --force "$tree" >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

# Built alike, in folders made for it: a preset's cache may hold other options than those it says now. Base may be older
# than an option: the flags are given one by one, and one that it does not know changes nothing. Base may link another
# librdkafka, which is built with the tools of this tree.
build() {
    progress "building $2 ($(git -C "$1" describe --always --dirty))"
    if ! { MILLRACE_TOOLS_DIR=$TOOLS_DIR "$1/scripts/librdkafka.sh" && MILLRACE_TOOLS_DIR=$TOOLS_DIR cmake -S "$1" \
        -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMILLRACE_JEMALLOC=ON -DMILLRACE_PROFILING=ON \
        -DMILLRACE_TESTS=OFF && cmake --build "$2"; } >"$out/build.log"; then
        tail -n 30 "$out/build.log" >&2
        die "$1 does not build"
    fi
}

if [ -n "$built" ]; then
    for side in base head; do ln -sfn "$built/$side" "$out/$side-build"; done
else
    if [ -d "$REPO_ROOT/.git" ] || [ -f "$REPO_ROOT/.git" ]; then git worktree prune; fi
    git worktree add -q --detach "$tree" "$base"
    build "$tree" "$out/base-build"
    build "$REPO_ROOT" "$out/head-build"
    rm -f "$out/build.log"
fi
export MILLRACE_BUILD_DIR=$out/head-build
code=0
"$here/witnesses.sh" "$out/base-build/millrace" "$out/head-build/millrace" --out "$out" "${drains[@]}" >/dev/null || code=$?
case $code in 0 | 3 | 4) ;; *) exit "$code" ;; esac
# Who goes first alternates too.
order=(base head head base)
for ((turn = 0; turn < 2 * rounds; turn++)); do
    side=${order[turn % 4]}
    progress "burst $((turn / 2 + 1)) of $rounds: $side"
    MILLRACE_BIN=$out/$side-build/millrace "$here/profile-run.sh" burst --out "$out/$side$turn" "${arguments[@]}" >/dev/null
done
# Several rounds become one: stacks and events are added up, each round stays a run of its own.
for side in base head; do
    runs=("$out/$side"[0-9]*)
    mkdir -p "$out/$side"
    cp -r "${runs[-1]}/." "$out/$side/"
    for part in "" -floor; do
        stacks sum "${runs[@]/%//folded$part.txt}" >"$out/$side/folded$part.txt"
        stacks_json "$out/$side/folded$part.txt" >"$out/$side/profile$part.json"
        "$(built_program millrace-flame)" svg --title "$side: the ${part:+floor around the }burst, $rounds rounds" \
            "$out/$side/folded$part.txt" >"$out/$side/flame$part.svg"
    done
    "$(tools_python)" "$here/profile_tools.py" add "$out/$side" "${runs[@]}"
    "$(tools_python)" "$here/profile_tools.py" summary "$out/$side" >"$out/$side/summary.md"
    rm -r "${runs[@]}"
done
rm -rf "$out/base-build"
code=0
"$here/profile-compare.sh" "$out/base" "$out/head" --out "$out/compare" || code=$?
case $code in 0 | 3 | 4) ;; *) exit "$code" ;; esac
rm -rf "$out/head-build"
say "results: $out"
