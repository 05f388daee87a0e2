#!/usr/bin/env bash
# Usage: benchmarks/start-millrace.sh
#
# One of the programs that matrix.sh compares: streams one table from a slot to Kafka
# until SIGTERM, in the foreground, as the process that is measured (exec). Any program can
# be compared by a script that does the same with these variables (benchmarks/README.md):
#
#   PEER_PG_URL        postgresql://user:password@host:port/database
#   PEER_SLOT          an existing pgoutput slot: start where it stands
#   PEER_PUBLICATION   an existing publication with the table
#   PEER_TABLE         schema.table, or several with commas
#   PEER_BOOTSTRAP     host:port of the broker
#   PEER_TOPIC_PREFIX  the topic is PREFIX.schema.table; it exists, with one partition
#   PEER_FOLDER        an empty folder for files
#   PEER_SNAPSHOT_MODE "initial" where existing rows are to be copied; there is no slot then
#   PEER_END_LSN       end of the backlog, for programs that write to no topic
#   MILLRACE_BIN       (here) the binary, default build/release/millrace
#   PEER_DELIVERY      (here) at-least-once (default) or exactly-once
#   PEER_PROFILED      (here) "yes": with the continuous profiler
#   PEER_OPTIONS       (here) more lines of the configuration
#   PEER_HTTP          (here) where it serves its metrics, default a free port
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case "${1:-}" in
    -h | --help) awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0" && exit 0 ;;
esac
cat >"$PEER_FOLDER/config.toml" <<END
tables = ["${PEER_TABLE//,/\", \"}"]
topic_prefix = "$PEER_TOPIC_PREFIX"
source.postgres.connection = "env:PEER_PG_URL"
source.postgres.slot_name = "$PEER_SLOT"
source.postgres.publication_name = "$PEER_PUBLICATION"
sink.type = "kafka"
sink.kafka.brokers = ["$PEER_BOOTSTRAP"]
sink.kafka.delivery = "${PEER_DELIVERY:-at-least-once}"
http.address = "${PEER_HTTP:-127.0.0.1:0}"
${PEER_PROFILED:+profiling.path = \"$PEER_FOLDER/profiles\"}
${PEER_SNAPSHOT_MODE:+snapshot.mode = \"$PEER_SNAPSHOT_MODE\"}
${PEER_OPTIONS:-}
END
exec "${MILLRACE_BIN:-$here/../build/release/millrace}" --config "$PEER_FOLDER/config.toml"
