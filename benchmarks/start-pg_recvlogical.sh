#!/usr/bin/env bash
# Usage: benchmarks/start-pg_recvlogical.sh
#
# One of the programs that matrix.sh compares: PostgreSQL's own reader of a slot, which
# writes the undecoded stream to /dev/null: as little work as a reader can do. It writes to no
# topic and ends by itself at PEER_END_LSN, if that is given. With PEER_SNAPSHOT_MODE it is COPY to /dev/null. Variables: see benchmarks/start-millrace.sh.
set -euo pipefail
case "${1:-}" in
    -h | --help) awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0" && exit 0 ;;
esac
[ -z "${PEER_SNAPSHOT_MODE:-}" ] || exec psql -q -X "$PEER_PG_URL" -c "COPY $PEER_TABLE TO STDOUT" >/dev/null
exec "${MILLRACE_PG_BIN:?}/pg_recvlogical" -d "$PEER_PG_URL" --slot "$PEER_SLOT" --start -f /dev/null \
    --no-loop -o proto_version=1 -o publication_names="$PEER_PUBLICATION" ${PEER_END_LSN:+--endpos "$PEER_END_LSN"}
