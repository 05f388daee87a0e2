# shellcheck shell=bash
# For the scripts that need a running millrace under load: a database, a slot and topics of
# its own on the private stand (or the compose stack), a millrace, and what takes them away.
# Sets LOAD_* variables; see daemon_start.
. "$(dirname "${BASH_SOURCE[0]}")/base.sh"

# On the compose stack no private stand names one.
MILLRACE_PYTHON=${MILLRACE_PYTHON:-$(tools_python)}

# millrace-load ends with it when it does not know what to do.
# shellcheck disable=SC2034 # for the scripts that source this file
LOAD_USAGE=64

# The program FILE: from MILLRACE_BUILD_DIR, else of the preset release, else ci.
built_program() {
    local dir
    for dir in ${MILLRACE_BUILD_DIR:+"$MILLRACE_BUILD_DIR"} "$REPO_ROOT/build/release" "$REPO_ROOT/build/ci"; do
        if [ -x "$dir/$1" ]; then
            echo "$dir/$1"
            return
        fi
    done
    die "$1 is not built; do: cmake --preset release && cmake --build --preset release"
}

# need_disk MEGABYTES FOLDER
need_disk() {
    local free
    free=$(df -Pm "$2" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$1" ] ||
        die "$2 has $free MB free and this run wants $1 MB; free some or give --out on another disk"
}

interrupt_and_wait() {
    [ -n "$1" ] || return 0
    kill -INT "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

need_command() { have "$1" || die "$1 is missing: ${2:-scripts/setup.sh installs it}"; }

# A line in Grafana's graphs. GRAFANA_URL switches it on; GRAFANA_AUTH is user:password.
annotate() {
    [ -n "${GRAFANA_URL:-}" ] || return 0
    curl -fsS -m 5 -u "${GRAFANA_AUTH:-admin:admin}" -H 'Content-Type: application/json' \
        -d "{\"text\": \"$1\", \"tags\": [\"millrace-load\"]}" "$GRAFANA_URL/api/annotations" >/dev/null ||
        say "warning: no annotation in Grafana at $GRAFANA_URL (GRAFANA_AUTH=user:password?)"
}

stand_up() {
    "$REPO_ROOT/scripts/stand.sh" status >/dev/null 2>&1 || "$REPO_ROOT/scripts/stand.sh" up
    eval "$("$REPO_ROOT/scripts/stand.sh" env)"
}

# Debian's client, which speaks to every version; the servers 16 to 18 of the stand come without one.
pg() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

# daemon_start FOLDER TABLES [KEY=VALUE]...: millrace on the stand, its configuration and log in FOLDER.
# LOAD_COMMAND, an array, stands before the program (valgrind …). LOAD_NAME, where it is set, is the slot's and the database's name. Sets LOAD_PID, LOAD_URL, LOAD_METRICS, LOAD_ARGUMENTS.
daemon_start() {
    local folder=$1 tables=$2 line i list=""
    shift 2
    stand_up
    LOAD_NAME=${LOAD_NAME:-load_$(date +%H%M%S)_$$}
    LOAD_FOLDER=$folder
    pg -c "CREATE DATABASE $LOAD_NAME"
    LOAD_URL=${MILLRACE_PG_URL%/*}/$LOAD_NAME
    for i in $(seq "$tables"); do list+="\"public.load_$i\", "; done
    {
        cat <<END
tables = [${list%, }]
topic_prefix = "$LOAD_NAME"
log.format = "json"
source.postgres.connection = "env:MILLRACE_LOAD_URL"
source.postgres.slot_name = "$LOAD_NAME"
source.postgres.publication_name = "$LOAD_NAME"
sink.kafka.brokers = ["$KAFKA_BOOTSTRAP"]
http.address = "127.0.0.1:0"
END
        for line in "$@"; do printf '%s\n' "${line/=/ = }"; done
    } >"$folder/config.toml"
    # Tables first: a publication names them.
    "$LOAD_PROGRAM" prepare --url "$LOAD_URL" --tables "$tables" || die "no tables in PostgreSQL"
    # Under valgrind everything takes longer, a handshake with TLS too.
    MILLRACE_LOAD_URL="$LOAD_URL?connect_timeout=120" MILLRACE_DUMPABLE=1 "${LOAD_COMMAND[@]}" "$MILLRACE_BIN" \
        --config "$folder/config.toml" >/dev/null 2>"$folder/millrace.log" &
    LOAD_CHILD=$!
    wait_for "${LOAD_START_LIMIT:-60}" daemon_streams || {
        tail -n 5 "$folder/millrace.log" >&2
        die "millrace does not stream: see $folder/millrace.log"
    }
    # A free port, which the log names.
    LOAD_METRICS=http://$(sed -n 's/.*"http_listening".*"address":"\([^"]*\)".*/\1/p' "$folder/millrace.log")/metrics
    # Under strace the program is a child.
    LOAD_PID=$(daemon_process "$LOAD_CHILD")
    LOAD_ARGUMENTS=(--url "$LOAD_URL" --brokers "$KAFKA_BOOTSTRAP" --topic-prefix "$LOAD_NAME"
        --slot "$LOAD_NAME" --tables "$tables" --pid "$LOAD_PID")
}

daemon_streams() {
    kill -0 "$LOAD_CHILD" 2>/dev/null || die "millrace ended: $(tail -n 3 "$LOAD_FOLDER/millrace.log")"
    grep -q '"source_connected"' "$LOAD_FOLDER/millrace.log"
}

# The process, or its child that is millrace.
daemon_process() {
    local child
    local children
    read -r -a children <"/proc/$1/task/$1/children" || true
    for child in "${children[@]}"; do
        if [ "$(readlink "/proc/$child/exe")" = "$(readlink -f "$MILLRACE_BIN")" ]; then
            echo "$child"
            return
        fi
    done
    echo "$1"
}

# SIGTERM and the wait for an orderly end, so that tools write their files.
daemon_stop() {
    [ -n "${LOAD_CHILD:-}" ] || return 0
    kill -TERM "${LOAD_PID:-$LOAD_CHILD}" 2>/dev/null || true
    wait_for "${LOAD_STOP_LIMIT:-60}" daemon_gone || {
        say "warning: millrace does not end; killing it"
        kill -KILL "$LOAD_CHILD" 2>/dev/null || true
    }
    wait "$LOAD_CHILD" 2>/dev/null || true
    LOAD_CHILD="" LOAD_PID=""
}

daemon_gone() { ! kill -0 "$LOAD_CHILD" 2>/dev/null; }

# Stops it and takes database, slot and topics away.
daemon_remove() {
    daemon_stop
    [ -n "${LOAD_NAME:-}" ] || return 0
    pg -c "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '$LOAD_NAME' AND active" \
        >/dev/null 2>&1 || true
    wait_for 15 drop_slot || say "warning: slot $LOAD_NAME stays; drop it with pg_drop_replication_slot"
    pg -c "DROP DATABASE IF EXISTS $LOAD_NAME WITH (FORCE)" || true
    "$MILLRACE_PYTHON" - "$LOAD_NAME" <<'PY' || say "warning: topics $LOAD_NAME.* stay in Kafka"
import os, sys
from confluent_kafka.admin import AdminClient
admin = AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "log_level": 0})
topics = [name for name in admin.list_topics(timeout=10).topics if name.startswith(sys.argv[1] + ".")]
for future in (admin.delete_topics(topics) if topics else {}).values():
    future.result()
PY
    LOAD_NAME=""
}

drop_slot() {
    pg -c "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '$LOAD_NAME'" \
        >/dev/null 2>&1
}

compose() { docker compose -f "$REPO_ROOT/docker-compose.yml" "$@"; }

# The same on the compose stack: its millrace gets the tables of the load (load/compose.yml) until
# compose_remove. FOLDER and TABLES as for daemon_start.
compose_start() {
    local folder=$1 tables=$2
    need_command docker "install Docker, or leave --docker out: the private stand needs none"
    docker compose version >/dev/null 2>&1 || die "docker compose does not work; is the daemon running?"
    compose ps --status running --services | grep -qx millrace ||
        die "the stack does not run; do: docker compose up -d --build"
    [ "$tables" = 1 ] || die "with --docker there is one table (load/millrace.toml)"
    LOAD_URL=${LOAD_DOCKER_URL:-postgresql://postgres:${POSTGRES_PASSWORD:-postgres}@127.0.0.1:5432/shop}
    "$LOAD_PROGRAM" prepare --url "$LOAD_URL" --publication load || die "no tables in PostgreSQL"
    docker compose -f "$REPO_ROOT/docker-compose.yml" -f "$REPO_ROOT/load/compose.yml" up -d --wait millrace
    LOAD_COMPOSE=yes
    LOAD_PID=$(docker inspect -f '{{.State.Pid}}' "$(compose ps -q millrace)")
    cp "$REPO_ROOT/load/millrace.toml" "$folder/config.toml"
    # shellcheck disable=SC2034 # for the scripts that source this file
    {
        LOAD_METRICS=http://127.0.0.1:9464/metrics
        LOAD_ARGUMENTS=(--url "$LOAD_URL" --brokers "${LOAD_DOCKER_BROKERS:-127.0.0.1:29092}" --topic-prefix load
            --slot load --pid "$LOAD_PID")
    }
}

# The millrace of the stack gets its own configuration back; the slot of the load goes.
compose_remove() {
    [ -n "${LOAD_COMPOSE:-}" ] || return 0
    compose up -d millrace
    compose exec -T postgres psql -U postgres -d shop -qc \
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'load'" >/dev/null ||
        say "warning: slot load stays in the stack's PostgreSQL"
    LOAD_COMPOSE=""
}

# either_start DOCKER? FOLDER TABLES [KEY=VALUE]...
either_start() {
    local docker=$1
    shift
    if [ "$docker" = yes ]; then compose_start "$@"; else daemon_start "$@"; fi
}

either_remove() {
    compose_remove
    daemon_remove
}
