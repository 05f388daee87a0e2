# shellcheck shell=bash
# The stand's Kafka: configured, started until it serves, stopped. Sourced by stand.sh, whose settings it reads.

KAFKA_CLUSTER_ID=bWlsbHJhY2Utc3RhbmQtMQ
KAFKA_HEAP=(-Xms256m -Xmx512m)

kafka_pid() { cat "$KAFKA_PID" 2>/dev/null; }

kafka_running() {
    local pid
    pid=$(kafka_pid) && [ -n "$pid" ] &&
        tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$KAFKA_CONF"
}

# Another Kafka there would answer in this one's place.
need_free_port() {
    local fixed=MILLRACE_STAND_$2_PORT
    if ! port_open "$1"; then return 0; fi
    [ -z "${!fixed:-}" ] || die "port $1 is taken by another program: set $fixed to another, or not at all"
    die "port $1 is taken by another program: scripts/stand.sh up chooses another"
}

# An archive of loaded classes saves a broker half of the processor time of its start, and formatted storage another Java before it.
# scripts/setup.sh makes both (`stand.sh archive`); Java ignores an archive that no longer fits.
KAFKA_ARCHIVE=$TOOLS_DIR/cds/kafka.jsa
KAFKA_STORAGE=$TOOLS_DIR/cds/storage

kafka_options() {
    # Measured against G1 with 1.2 million messages: a sixth less processor time, 40 MB less memory, six threads fewer.
    echo "-XX:+UseSerialGC"
    # Tests: what lives for minutes is compiled quickly rather than well.
    [ "${MILLRACE_STAND_QUICK:-0}" = 0 ] || echo "-XX:TieredStopAtLevel=1"
    if [ -n "${KAFKA_ARCHIVE_NEW:-}" ]; then
        echo "-XX:ArchiveClassesAtExit=$KAFKA_ARCHIVE_NEW"
    elif [ -r "$KAFKA_ARCHIVE" ]; then
        echo "-XX:SharedArchiveFile=$KAFKA_ARCHIVE"
    fi
}

# A broker that serves, takes a record in a topic that it makes, and ends in order: what it has loaded by then is the archive.
do_archive() {
    local folder
    folder=$STAND_DIR/archive
    rm -rf "$folder" "$KAFKA_DATA" # of one that was interrupted
    make_server_dir "$folder"
    KAFKA_ARCHIVE_NEW=$folder/kafka.jsa AUTO_CREATE=true
    kafka_start
    echo x | kcat -b "127.0.0.1:$KAFKA_PORT" -P -t archived || true
    kafka_stop TERM 300
    [ -s "$KAFKA_ARCHIVE_NEW" ] || die "Java has made no archive: see $KAFKA_LOG"
    mkdir -p "${KAFKA_ARCHIVE%/*}"
    rm -rf "$KAFKA_STORAGE"
    mv "$folder/storage" "$KAFKA_STORAGE"
    mv "$KAFKA_ARCHIVE_NEW" "$KAFKA_ARCHIVE"
    chmod -R a+rX "${KAFKA_ARCHIVE%/*}"
}

# True when the broker knows itself and leads every partition: it lets clients in before the
# controller has let it in, and would then answer them with errors. kcat takes seconds to give
# up on a closed port; the shell knows at once.
listener_serves() {
    local port=$1 said
    shift
    port_open "$port" || return 1
    said=$(kcat -b "localhost:$port" -X broker.address.family=v4 "$@" -L -m 5 2>/dev/null) || return 1
    case $said in *"leader -1"*) return 1 ;; *" 1 brokers:"*) ;; *) return 1 ;; esac
}

kafka_answers() {
    listener_serves "$KAFKA_PORT" || return 1
    if [ "$SECURE" = 1 ]; then
        listener_serves "$SECURE_PORT" -X security.protocol=SASL_SSL -X sasl.mechanisms=PLAIN \
            -X sasl.username="$KAFKA_USER" -X sasl.password="$KAFKA_PASSWORD" \
            -X ssl.ca.location="$CERTIFICATES/ca.pem" || return 1
    fi
    if [ "$PROXIED" = 1 ]; then listener_serves "$PROXIED_PORT" || return 1; fi
}

kafka_answers_or_died() { kafka_answers || ! kafka_running; }

kafka_conf() {
    local listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT
    local advertised=$listeners
    if [ "$SECURE" = 1 ]; then
        listeners+=,SECURE://127.0.0.1:$SECURE_PORT
        advertised+=,SECURE://localhost:$SECURE_PORT
        kafka_conf_secure
    fi
    if [ "$PROXIED" = 1 ]; then
        listeners+=,PROXIED://127.0.0.1:$PROXIED_PORT
        advertised+=,PROXIED://127.0.0.1:$PROXY_PORT
    fi
    cat <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$CONTROLLER_PORT
listeners=$listeners,CONTROLLER://127.0.0.1:$CONTROLLER_PORT
advertised.listeners=$advertised
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT,SECURE:SASL_SSL
log.dirs=$KAFKA_DATA/logs
auto.create.topics.enable=$AUTO_CREATE
group.initial.rebalance.delay.ms=0
# After a kill the controller holds the old registration this long before it
# lets the broker in again: with the default, 9 s, that start takes 11 s.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=5
# Files of deleted topics stay for a minute by default, and a start has to look at them.
log.segment.delete.delay.ms=1000
# The default, 128 MB, is a quarter of this heap.
log.cleaner.dedupe.buffer.size=16777216
END
    # By default there are 32 for four listeners, and each wakes up three times a second: KafkaRequestHandler.run and Processor.poll
    # wait for 300 ms.
    # And a controller writes a record into the cluster's log twice a second that says nothing (KIP-835).
    [ "${MILLRACE_STAND_QUICK:-0}" = 0 ] || printf '%s\n' num.network.threads=1 num.io.threads=3 metadata.max.idle.interval.ms=0
}

kafka_conf_secure() {
    local sasl=listener.name.secure module=org.apache.kafka.common.security
    cat <<END
$sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
$sasl.plain.sasl.jaas.config=$module.plain.PlainLoginModule required user_$KAFKA_USER="$KAFKA_PASSWORD";
$sasl.scram-sha-256.sasl.jaas.config=$module.scram.ScramLoginModule required;
$sasl.scram-sha-512.sasl.jaas.config=$module.scram.ScramLoginModule required;
$sasl.ssl.keystore.type=PEM
$sasl.ssl.keystore.location=$CERTIFICATES/good-with-key.pem
END
}

kafka_format() {
    local options
    [ ! -e "$KAFKA_DATA/logs/meta.properties" ] || return 0
    if [ -z "${KAFKA_ARCHIVE_NEW:-}" ] && grep -qsFx "cluster.id=$KAFKA_CLUSTER_ID" "$KAFKA_STORAGE/meta.properties"; then
        as_server_user cp -r "$KAFKA_STORAGE" "$KAFKA_DATA/logs"
        return
    fi
    progress "formatting Kafka's storage"
    mapfile -t options < <(MILLRACE_STAND_QUICK=1 KAFKA_ARCHIVE_NEW='' kafka_options)
    as_server_user java "${options[@]}" -Xmx128m -cp "$TOOLS_DIR/kafka/libs/*" \
        -Dlog4j2.configurationFile="$KAFKA_DATA/log4j2.properties" \
        kafka.tools.StorageTool format -t "$KAFKA_CLUSTER_ID" -c "$KAFKA_CONF" \
        --add-scram "SCRAM-SHA-256=[name=$KAFKA_USER,password=$KAFKA_PASSWORD]" \
        --add-scram "SCRAM-SHA-512=[name=$KAFKA_USER,password=$KAFKA_PASSWORD]" \
        >"$STAND_DIR/logs/kafka-format.log" 2>&1 9>&- ||
        { last_lines "$STAND_DIR/logs/kafka-format.log" && die "formatting Kafka's storage failed"; }
    [ -z "${KAFKA_ARCHIVE_NEW:-}" ] || cp -r "$KAFKA_DATA/logs" "${KAFKA_ARCHIVE_NEW%/*}/storage"
}

# In the background, in a session of its own; the shell between takes the
# process number to the file and ends, which runuser waits for.
kafka_launch() {
    local options
    mapfile -t options < <(kafka_options)
    # shellcheck disable=SC2016 # for the inner shell
    as_server_user sh -c 'log=$1 pid=$2; shift 2
        setsid "$@" </dev/null >>"$log" 2>&1 & echo $! >"$pid"' \
        sh "$KAFKA_LOG" "$KAFKA_PID" java "${KAFKA_HEAP[@]}" "${options[@]}" \
        -Dlog4j2.configurationFile="$KAFKA_DATA/log4j2.properties" \
        -cp "$TOOLS_DIR/kafka/libs/*" kafka.Kafka "$KAFKA_CONF" 9>&-
}

kafka_start() {
    make_dirs
    make_server_dir "$KAFKA_DATA"
    if [ "$SECURE" = 1 ]; then make_certificates "$CERTIFICATES"; fi
    write_conf "$KAFKA_DATA/log4j2.properties" <"$REPO_ROOT/scripts/kafka/log4j2.properties" || true
    if kafka_conf | write_conf "$KAFKA_CONF" && kafka_running; then kafka_stop TERM; fi
    if ! kafka_running; then
        need_free_port "$KAFKA_PORT" KAFKA
        need_free_port "$CONTROLLER_PORT" CONTROLLER
        if [ "$SECURE" = 1 ]; then need_free_port "$SECURE_PORT" SECURE; fi
        if [ "$PROXIED" = 1 ]; then need_free_port "$PROXIED_PORT" PROXIED; fi
        kafka_format
        progress "starting Kafka on port $KAFKA_PORT"
        kafka_launch
    fi
    if ! wait_for 150 kafka_answers_or_died || ! kafka_running; then
        last_lines "$KAFKA_LOG"
        die "Kafka does not start on port $KAFKA_PORT: see $KAFKA_LOG"
    fi
}

# kafka_stop SIGNAL [SECONDS]: killed where it takes longer than these.
kafka_stop() {
    local pid limit=${2:-60}
    kafka_running || return 0
    pid=$(kafka_pid)
    progress "stopping Kafka"
    kill -s "$1" "$pid"
    if ! wait_for "$limit" process_gone "$pid"; then
        say "Kafka did not stop in $limit seconds: killing it"
        kill -s KILL "$pid"
        wait_for 30 process_gone "$pid" || die "Kafka does not stop"
    fi
    rm -f "$KAFKA_PID"
}
