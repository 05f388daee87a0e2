# Shared by the benchmark scripts: --help, the stand, the binary under test.
case "${1:-}" in -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;; esac
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/../scripts" && pwd)
"$scripts/stand.sh" status > /dev/null 2>&1 || "$scripts/stand.sh" up
eval "$("$scripts/stand.sh" env)"
: "${MILLRACE_BIN:=$scripts/../build/release/millrace}"
[ -x "$MILLRACE_BIN" ] || {
    echo "${0##*/}: $MILLRACE_BIN is missing; build it with: cmake --preset release && cmake --build --preset release" >&2
    exit 1
}
export MILLRACE_BIN
