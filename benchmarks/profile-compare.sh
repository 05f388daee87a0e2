#!/usr/bin/env bash
# Usage: benchmarks/profile-compare.sh BEFORE AFTER [--out DIR]
#
# Compares two results of profile-run.sh, or of pr-check.sh: in the first line a verdict (same, different and
# where, or inconclusive and how many more pairs it takes), then what each witness says, costs of an event by stage
# and function, load figures, the differential flame graph (red: a row costs more, blue: less; also with the widths of
# BEFORE, where what vanished shows) and perf's own diff. One run of each can tell what is far beyond what one run varies
# by (its bursts, or pieces of its time); for what is smaller pr-check.sh makes runs that take turns, and
# witnesses.sh takes any two programs.
#
# Results of other scenarios, machines or lengths are refused; other builds (flags, allocator, libraries) are
# said in red.
#
#   --out DIR    where comparison.md, diff-flame.svg, diff-flame-before.svg and perf-diff.txt go
#                (default: AFTER/compare)
#   -h, --help   this text
#
# Exit code: 0 same, 3 different, 4 inconclusive, other: it could not compare.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/load.sh"

out="" results=()
while [ $# -gt 0 ]; do
    case $1 in
        --out) need_value "$@" && out=$(absolute_path "$2") && shift ;;
        -h | --help) print_help "$0" && exit 0 ;;
        -*) die "unknown option $1; try --help" ;;
        *) results+=("${1%/}") ;;
    esac
    shift
done
[ ${#results[@]} = 2 ] || die "two results are compared; try --help"
for result in "${results[@]}"; do
    [ -e "$result/folded.txt" ] || die "$result holds no folded.txt: is it a folder that profile-run.sh made?"
done
flame=$(built_program millrace-flame)
python=$(tools_python)
out=${out:-${results[1]}/compare}
mkdir -p "$out"

before=${results[0]} after=${results[1]}
title="$(basename "$before") → $(basename "$after")"
# What a row costs is compared: a share moves whenever anything else does.
rows=$("$python" "$here/profile_tools.py" rows "$before" "$after")
"$flame" svg ${rows:+--rows "$rows"} --title "$title" "$before/folded.txt" "$after/folded.txt" >"$out/diff-flame.svg"
"$flame" svg ${rows:+--rows "$rows"} --negate --title "$title (widths of before)" "$before/folded.txt" "$after/folded.txt" \
    >"$out/diff-flame-before.svg"
if [ -e "$before/perf.data" ] && [ -e "$after/perf.data" ] && have perf; then
    perf diff -f "$before/perf.data" "$after/perf.data" >"$out/perf-diff.txt" 2>/dev/null ||
        echo "perf diff could not read the profiles" >"$out/perf-diff.txt"
fi
code=0
"$python" "$here/profile_tools.py" compare "$before" "$after" >"$out/comparison.md" || code=$?
cat "$out/comparison.md"
say "comparison: $out"
exit "$code"
