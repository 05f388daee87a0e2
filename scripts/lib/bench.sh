# shellcheck shell=bash
# How a benchmark begins: --help, the binary under test, the stand.
. "$(dirname "${BASH_SOURCE[0]}")/base.sh"
case "${1:-}" in -h | --help) print_help "$0"; exit 0 ;; esac
binary_under_test
"$REPO_ROOT/scripts/stand.sh" status > /dev/null 2>&1 || "$REPO_ROOT/scripts/stand.sh" up
eval "$("$REPO_ROOT/scripts/stand.sh" env)"
