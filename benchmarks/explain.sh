#!/usr/bin/env bash
# Usage: benchmarks/explain.sh RESULT
#
# Says in words which stage dominates a result of profile-run.sh, and what to try. Thresholds: receive
# 40 %, serialize (encode) 20 %, malloc 10 %, flush 15 %.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/base.sh"
case "${1:-}" in
    -h | --help) print_help "$0" && exit 0 ;;
    "") die "which result? try --help" ;;
esac
python=$(tools_python)
exec "$python" "$here/profile_tools.py" explain "$1"
