# shellcheck shell=bash
# Shared by the benchmark scripts: --help, the stand, the binary under test.
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
case "${1:-}" in -h | --help) print_help "$0"; exit 0 ;; esac
"$REPO_ROOT/scripts/stand.sh" status > /dev/null 2>&1 || "$REPO_ROOT/scripts/stand.sh" up
eval "$("$REPO_ROOT/scripts/stand.sh" env)"
export MILLRACE_BIN=${MILLRACE_BIN:-$REPO_ROOT/build/release/millrace}
[ -x "$MILLRACE_BIN" ] ||
    die "$MILLRACE_BIN is missing; build it with: cmake --preset release && cmake --build --preset release"
