#!/usr/bin/env bash
# Usage: benchmarks/start-debezium.sh [--fetch]
#
# One of the programs that matrix.sh compares: Debezium's PostgreSQL connector in Kafka
# Connect (standalone), with the connector's defaults, JSON without schemas, and lz4 as millrace
# has it. The jars come from Maven Central (benchmarks/debezium/pom.xml) at the first use.
# Variables: see benchmarks/start-millrace.sh; and PEER_JAVA_OPTS, default Kafka Connect's own
# heap (-Xms256M -Xmx2G); and PEER_OPTIONS, more lines of the connector's properties.
#
#   --fetch  only get the jars
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/base.sh"
case "${1:-}" in -h | --help) print_help "$0"; exit 0 ;; esac

pom=$REPO_ROOT/benchmarks/debezium/pom.xml libs=$TOOLS_DIR/debezium/libs
key=$(sha256sum <"$pom")
if [ "$(cat "$TOOLS_DIR/debezium/key" 2>/dev/null)" != "$key" ]; then
    have mvn || die "Maven is missing: scripts/setup.sh installs it"
    progress "fetching Debezium's jars"
    rm -rf "$TOOLS_DIR/debezium"
    mkdir -p "$libs"
    mvn -B -q -f "$pom" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$libs" >&2
    printf '%s\n' "$key" >"$TOOLS_DIR/debezium/key"
fi
[ "${1:-}" != --fetch ] || exit 0

[[ $PEER_PG_URL =~ ^postgres(ql)?://([^:@]+):([^@]*)@([^:/]+):([0-9]+)/([^?]+) ]] ||
    die "PEER_PG_URL wants the form postgresql://user:password@host:port/database"
cat >"$PEER_FOLDER/worker.properties" <<END
bootstrap.servers=$PEER_BOOTSTRAP
key.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename=$PEER_FOLDER/offsets
listeners=HTTP://127.0.0.1:0
producer.compression.type=lz4
END
cat >"$PEER_FOLDER/connector.properties" <<END
name=$PEER_SLOT
connector.class=io.debezium.connector.postgresql.PostgresConnector
tasks.max=1
database.hostname=${BASH_REMATCH[4]}
database.port=${BASH_REMATCH[5]}
database.user=${BASH_REMATCH[2]}
database.password=${BASH_REMATCH[3]}
database.dbname=${BASH_REMATCH[6]}
plugin.name=pgoutput
slot.name=$PEER_SLOT
publication.name=$PEER_PUBLICATION
publication.autocreate.mode=disabled
table.include.list=$PEER_TABLE
topic.prefix=$PEER_TOPIC_PREFIX
snapshot.mode=${PEER_SNAPSHOT_MODE:-no_data}
${PEER_OPTIONS:-}
END
read -r -a java_options <<<"${PEER_JAVA_OPTS:--Xms256M -Xmx2G}"
exec java "${java_options[@]}" -Dlog4j2.configurationFile="$REPO_ROOT/scripts/kafka/log4j2.properties" \
    -cp "$libs/*" org.apache.kafka.connect.cli.ConnectStandalone \
    "$PEER_FOLDER/worker.properties" "$PEER_FOLDER/connector.properties"
