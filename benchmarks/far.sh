#!/usr/bin/env bash
# Usage: benchmarks/far.sh [--rows N] [--rounds N] [--delays MS,...] [--json FILE]
#
# A backlog drained to a broker that is far away: a proxy holds each piece of data back for half of
# the round trip, both ways. One partition and twelve, with the defaults and with larger requests
# and a larger pool, each in turn; rows a second, and the ratio to the same without a delay.
#
#   --rows N       rows of the backlog (default 100000)
#   --rounds N     rounds (default 3)
#   --delays D     round trips in milliseconds (default 0,2,20,100); the first is what the others are
#                  compared with
#   --json FILE    also write the figures as JSON
#
# The stand needs a listener for the proxy: MILLRACE_STAND_PROXIED=1 scripts/stand.sh up.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
[ -n "${KAFKA_PROXY_PORT:-}" ] || die "this stand has no listener for a proxy (see --help)"
exec "$MILLRACE_PYTHON" "$here/far.py" "$@"
