# shellcheck shell=bash
# Of tests that pass the second time.

# flaky_report NAME...: says at the end of a run which tests passed only the second time. False from three on: then it is
# no longer a busy machine (tests/README.md). A function counts once, whatever its parameters: they share what is set up.
flaky_report() {
    local red="" plain="" functions
    [ $# -gt 0 ] || return 0
    if [ -t 2 ] || [ -n "${CI:-}" ]; then red=$'\033[1;31m' plain=$'\033[0m'; fi
    printf '%s%s: flaky: %d passed only the second time:\n' "$red" "${0##*/}" $# >&2
    printf '    %s\n' "$@" >&2
    functions=$(printf '%s\n' "${@%%[*}" | sort -u | wc -l)
    [ "$functions" -lt 3 ] || printf 'Three flaky tests fail the run.\n' >&2
    printf '%s' "$plain" >&2
    [ "$functions" -lt 3 ]
}
