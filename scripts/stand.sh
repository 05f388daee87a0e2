#!/usr/bin/env bash
# Usage: scripts/stand.sh COMMAND [--pg 15|16|17|18] [--dir DIR]
#
# A private PostgreSQL and a private Kafka, for tests and for trying millrace.
# They listen on 127.0.0.1 only and keep everything in one folder.
#
#   up        make and start both, wait until both answer; what runs stays
#   down      stop both
#   wipe      stop both, remove their data, logs and settings (not the programs)
#   status    say what runs; exit code 0 only when both are up
#   env       print export lines: eval "$(scripts/stand.sh env)"
#   pg-start | pg-stop [fast|immediate|kill] | pg-restart [fast|immediate|kill]
#   kafka-start | kafka-stop [TERM|KILL]
#             a stop returns when the process is gone, a start when it serves
#
#   --pg N    PostgreSQL's major version (default: that of the last up, at first 15)
#   --dir D   the folder of this stand (default MILLRACE_STAND_DIR, or else
#             <repo>/.stand); another stand needs another folder and other ports
#
# Environment, read by the commands that start a server and remembered in
# DIR/stand.conf until wipe:
#   MILLRACE_STAND_PG_PORT          default 54600 + N, so 54615
#   MILLRACE_STAND_KAFKA_PORT       default 19092
#   MILLRACE_STAND_CONTROLLER_PORT  default 19093
#   MILLRACE_STAND_FSYNC            PostgreSQL's fsync, default off
#   MILLRACE_STAND_AUTO_CREATE      Kafka makes topics by itself, default false
# And: MILLRACE_TOOLS_DIR, the programs (default MILLRACE_STAND_DIR, or else
# <repo>/.stand), which scripts/setup.sh fills; up calls it when they are missing.
set -euo pipefail
# shellcheck source=scripts/lib.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PG_PASSWORD=millrace-stand
KAFKA_CLUSTER_ID=bWlsbHJhY2Utc3RhbmQtMQ
# Measured here against G1 with 1.2 million messages: a sixth less processor
# time, 40 MB less memory, six threads fewer.
KAFKA_JVM=(-Xms256m -Xmx512m -XX:+UseSerialGC)

# ---- settings -------------------------------------------------------------

saved() {
    [ ! -r "$STAND_DIR/stand.conf" ] || sed -n "s/^$1=//p" "$STAND_DIR/stand.conf"
}

# setting NAME ENVIRONMENT_VALUE DEFAULT
setting() {
    local value=${2:-$(saved "$1")}
    printf '%s\n' "${value:-$3}"
}

load_settings() {
    PG_MAJOR=${PG_ASKED:-$(saved PG_MAJOR)}
    PG_MAJOR=${PG_MAJOR:-15}
    PG_PORT=$(setting "PG_PORT_$PG_MAJOR" "${MILLRACE_STAND_PG_PORT:-}" $((54600 + PG_MAJOR)))
    KAFKA_PORT=$(setting KAFKA_PORT "${MILLRACE_STAND_KAFKA_PORT:-}" 19092)
    CONTROLLER_PORT=$(setting CONTROLLER_PORT "${MILLRACE_STAND_CONTROLLER_PORT:-}" 19093)
    FSYNC=$(setting FSYNC "${MILLRACE_STAND_FSYNC:-}" off)
    AUTO_CREATE=$(setting AUTO_CREATE "${MILLRACE_STAND_AUTO_CREATE:-}" false)
    PG_DATA=$STAND_DIR/data/pg$PG_MAJOR
    PG_LOG=$STAND_DIR/logs/pg$PG_MAJOR.log
    KAFKA_DATA=$STAND_DIR/data/kafka
    KAFKA_CONF=$KAFKA_DATA/server.properties
    KAFKA_PID=$KAFKA_DATA/kafka.pid
    KAFKA_LOG=$STAND_DIR/logs/kafka.log
    PG_BIN=$(pg_bin "$PG_MAJOR")
}

save_settings() {
    local others=""
    if [ -r "$STAND_DIR/stand.conf" ]; then
        others=$(grep '^PG_PORT_' "$STAND_DIR/stand.conf" | grep -v "^PG_PORT_$PG_MAJOR=" || true)
    fi
    cat >"$STAND_DIR/stand.conf" <<END
PG_MAJOR=$PG_MAJOR
PG_PORT_$PG_MAJOR=$PG_PORT
KAFKA_PORT=$KAFKA_PORT
CONTROLLER_PORT=$CONTROLLER_PORT
FSYNC=$FSYNC
AUTO_CREATE=$AUTO_CREATE
$others
END
}

# One command at a time on one stand. The servers must not inherit the lock
# (9>&-), or it would be held as long as they run.
lock_stand() {
    mkdir -p "$STAND_DIR"
    exec 9>"$STAND_DIR/lock"
    flock -w 180 9 || die "another stand.sh works on $STAND_DIR"
}

make_dirs() {
    make_server_dir "$STAND_DIR/data"
    make_server_dir "$STAND_DIR/logs"
}

# A file that the server user can read, written only when it changes.
# True when it did change. Text on standard input.
write_conf() {
    local text
    text=$(cat)
    if [ -e "$1" ] && [ "$(cat "$1")" = "$text" ]; then return 1; fi
    printf '%s\n' "$text" >"$1"
    if is_root; then chown postgres: "$1"; fi
}

# Ended and its files closed. The first thread may be a zombie while others still end, and
# a zombie stays when nobody asks for it.
process_gone() {
    local state
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) || return 0
    case $state in
        "") return 0 ;;
        Z | X) [ "$(compgen -G "/proc/$1/task/*" | wc -l)" -le 1 ] ;;
        *) return 1 ;;
    esac
}

last_lines() { tail -n 15 "$1" >&2 2>/dev/null || true; }

# ---- PostgreSQL -----------------------------------------------------------

pg_bin() {
    if [ "$1" = 15 ]; then
        echo /usr/lib/postgresql/15/bin
    else
        echo "$TOOLS_DIR/pg-$1/native/bin"
    fi
}

pg_pid() { head -n 1 "$PG_DATA/postmaster.pid" 2>/dev/null; }

# A process number alone may since belong to someone else.
pg_running() {
    local pid
    pid=$(pg_pid) && [ -n "$pid" ] && ! process_gone "$pid" &&
        [ "/proc/$pid/cwd" -ef "$PG_DATA" ]
}

pg_ctl() { as_server_user "$PG_BIN/pg_ctl" -D "$PG_DATA" "$@" 9>&-; }
# The npm packages have no client programs: Debian's speak to every version.
pg_answers() { /usr/lib/postgresql/15/bin/pg_isready -q -h 127.0.0.1 -p "$PG_PORT"; }

pg_init() {
    local pwfile=$STAND_DIR/data/pwfile
    [ ! -e "$PG_DATA/millrace.conf" ] || return 0
    progress "making the PostgreSQL $PG_MAJOR cluster"
    # Left by an initdb that was interrupted.
    rm -rf "$PG_DATA"
    write_conf "$pwfile" <<<"$PG_PASSWORD" || true
    # No sync: a stand lost with the machine is made anew.
    as_server_user "$PG_BIN/initdb" -D "$PG_DATA" -U postgres -E UTF8 --locale=C \
        --auth=scram-sha-256 --pwfile="$pwfile" --no-sync >"$STAND_DIR/logs/initdb.log" 2>&1 9>&- ||
        { last_lines "$STAND_DIR/logs/initdb.log" && die "initdb failed"; }
    rm -f "$pwfile"
    echo "include_if_exists = 'millrace.conf'" >>"$PG_DATA/postgresql.conf"
}

pg_conf() {
    local sockets=$PG_DATA
    # The path of a unix socket has at most 107 bytes: go without one rather than fail.
    if [ ${#sockets} -gt 90 ]; then sockets=; fi
    cat <<END
listen_addresses = '127.0.0.1'
port = $PG_PORT
unix_socket_directories = '$sockets'
max_connections = 200
wal_level = logical
max_wal_senders = 20
max_replication_slots = 20
max_prepared_transactions = 20
max_wal_size = 4GB
fsync = $FSYNC
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d '
log_replication_commands = on
END
}

pg_start() {
    make_dirs
    pg_init
    if pg_conf | write_conf "$PG_DATA/millrace.conf" && pg_running; then pg_stop fast; fi
    if pg_running; then return 0; fi
    progress "starting PostgreSQL $PG_MAJOR on port $PG_PORT"
    pg_ctl start -s -w -t 120 -l "$PG_LOG" </dev/null >/dev/null ||
        { last_lines "$PG_LOG" && die "PostgreSQL does not start: see $PG_LOG"; }
    wait_for 60 pg_answers || die "PostgreSQL does not answer on port $PG_PORT: see $PG_LOG"
}

# The server and all its children, as a machine that loses power does.
pg_kill() {
    local pid=$1 all
    all="$pid $(pgrep -P "$pid" | tr '\n' ' ')"
    # shellcheck disable=SC2086 # a list of numbers
    as_server_user kill -s KILL $all 2>/dev/null || true
    for pid in $all; do
        wait_for 30 process_gone "$pid" || die "PostgreSQL's process $pid does not end"
    done
}

pg_stop() {
    local pid
    pg_running || return 0
    pid=$(pg_pid)
    progress "stopping PostgreSQL $PG_MAJOR"
    if [ "$1" = kill ]; then
        pg_kill "$pid"
        return
    fi
    pg_ctl stop -s -w -t 120 -m "$1" || die "PostgreSQL does not stop: see $PG_LOG"
    wait_for 30 process_gone "$pid" || die "PostgreSQL's process $pid does not end"
}

# Every version that has data in this stand, for down and wipe.
pg_stop_all() {
    local PG_MAJOR PG_DATA PG_BIN dir
    for dir in "$STAND_DIR"/data/pg*; do
        [ -e "$dir/millrace.conf" ] || continue
        PG_DATA=$dir PG_MAJOR=${dir##*/pg}
        PG_BIN=$(pg_bin "$PG_MAJOR")
        pg_stop fast
    done
}

# ---- Kafka ----------------------------------------------------------------

kafka_pid() { cat "$KAFKA_PID" 2>/dev/null; }

kafka_running() {
    local pid
    pid=$(kafka_pid) && [ -n "$pid" ] &&
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$KAFKA_CONF"
}

# Another Kafka there would answer in this one's place.
need_free_port() {
    if port_open "$1"; then die "port $1 is taken by another program: set MILLRACE_STAND_$2_PORT"; fi
}

# An archive of loaded classes takes a second off every start (2 s to 1.1 s).
# The first orderly stop writes it; Java ignores one that no longer fits.
kafka_archive_option() {
    local archive=$STAND_DIR/cds/kafka.jsa
    make_server_dir "$STAND_DIR/cds"
    if [ "$archive" -nt "$TOOLS_DIR/stamps/kafka" ]; then
        echo "-XX:SharedArchiveFile=$archive"
    else
        rm -f "$archive"
        echo "-XX:ArchiveClassesAtExit=$archive"
    fi
}

port_open() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# True when the broker knows itself and leads every partition: it lets clients in before the
# controller has let it in, and would then answer them with errors. kcat takes seconds to give
# up on a closed port; the shell knows at once.
listener_serves() {
    local port=$1 said
    shift
    port_open "$port" || return 1
    said=$(kcat -b "127.0.0.1:$port" "$@" -L -m 5 2>/dev/null) || return 1
    case $said in *"leader -1"*) return 1 ;; *" 1 brokers:"*) ;; *) return 1 ;; esac
}

kafka_answers() { listener_serves "$KAFKA_PORT"; }

kafka_answers_or_died() { kafka_answers || ! kafka_running; }

kafka_conf() {
    cat <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$CONTROLLER_PORT
listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT,CONTROLLER://127.0.0.1:$CONTROLLER_PORT
advertised.listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
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
# The default, 128 MB, is a quarter of this heap.
log.cleaner.dedupe.buffer.size=16777216
END
}

kafka_format() {
    [ ! -e "$KAFKA_DATA/logs/meta.properties" ] || return 0
    progress "formatting Kafka's storage"
    as_server_user java -Xmx128m -XX:TieredStopAtLevel=1 -cp "$TOOLS_DIR/kafka/libs/*" \
        -Dlog4j2.configurationFile="$KAFKA_DATA/log4j2.properties" \
        kafka.tools.StorageTool format -t "$KAFKA_CLUSTER_ID" -c "$KAFKA_CONF" \
        >"$STAND_DIR/logs/kafka-format.log" 2>&1 9>&- ||
        { last_lines "$STAND_DIR/logs/kafka-format.log" && die "formatting Kafka's storage failed"; }
}

# In the background, in a session of its own; the shell between takes the
# process number to the file and ends, which runuser waits for.
kafka_launch() {
    local archive
    archive=$(kafka_archive_option)
    # shellcheck disable=SC2016 # for the inner shell
    as_server_user sh -c 'log=$1 pid=$2; shift 2
        setsid "$@" </dev/null >>"$log" 2>&1 & echo $! >"$pid"' \
        sh "$KAFKA_LOG" "$KAFKA_PID" java "${KAFKA_JVM[@]}" "$archive" \
        -Dlog4j2.configurationFile="$KAFKA_DATA/log4j2.properties" \
        -cp "$TOOLS_DIR/kafka/libs/*" kafka.Kafka "$KAFKA_CONF" 9>&-
}

kafka_start() {
    make_dirs
    make_server_dir "$KAFKA_DATA"
    write_conf "$KAFKA_DATA/log4j2.properties" <"$REPO_ROOT/scripts/kafka/log4j2.properties" || true
    if kafka_conf | write_conf "$KAFKA_CONF" && kafka_running; then kafka_stop TERM; fi
    if ! kafka_running; then
        need_free_port "$KAFKA_PORT" KAFKA
        need_free_port "$CONTROLLER_PORT" CONTROLLER
        kafka_format
        progress "starting Kafka on port $KAFKA_PORT"
        kafka_launch
    fi
    if ! wait_for 90 kafka_answers_or_died || ! kafka_running; then
        last_lines "$KAFKA_LOG"
        die "Kafka does not start on port $KAFKA_PORT: see $KAFKA_LOG"
    fi
}

kafka_stop() {
    local pid
    kafka_running || return 0
    pid=$(kafka_pid)
    progress "stopping Kafka"
    as_server_user kill -s "$1" "$pid"
    if ! wait_for 30 process_gone "$pid"; then
        say "Kafka did not stop in 30 seconds: killing it"
        as_server_user kill -s KILL "$pid"
        wait_for 30 process_gone "$pid" || die "Kafka does not stop"
    fi
    rm -f "$KAFKA_PID"
}

# ---- commands -------------------------------------------------------------

need_programs() {
    local missing=""
    [ -x "$PG_BIN/postgres" ] && compgen -G "$TOOLS_DIR/kafka/libs/kafka_2.13-*.jar" >/dev/null &&
        have java && have kcat || missing=yes
    [ -z "$missing" ] || "$REPO_ROOT/scripts/setup.sh" --all --pg "$PG_MAJOR"
}

do_up() {
    # The slow one in the background, the quick one beside it.
    kafka_start &
    local kafka_job=$!
    pg_start
    wait "$kafka_job" || die "Kafka is not up"
    say "up: PostgreSQL $PG_MAJOR on port $PG_PORT, Kafka on port $KAFKA_PORT"
}

do_down() {
    kafka_stop TERM
    pg_stop_all
    say "down"
}

do_wipe() {
    # The data goes away: no need to wait for Kafka's orderly end.
    kafka_stop KILL
    pg_stop_all
    rm -rf "$STAND_DIR/data" "$STAND_DIR/logs" "$STAND_DIR/stand.conf"
    say "wiped $STAND_DIR"
}

kafka_version() {
    local jar
    jar=$(compgen -G "$TOOLS_DIR/kafka/libs/kafka_2.13-*.jar") || { echo "not installed" && return; }
    jar=${jar##*/kafka_2.13-}
    echo "${jar%.jar}"
}

do_status() {
    local code=0
    if pg_running && pg_answers; then
        echo "PostgreSQL up    pid $(head -n 1 "$PG_DATA/postmaster.pid")  port $PG_PORT  $("$PG_BIN/postgres" --version)"
    else
        echo "PostgreSQL down  port $PG_PORT  version $PG_MAJOR"
        code=1
    fi
    if kafka_running && kafka_answers; then
        echo "Kafka      up    pid $(cat "$KAFKA_PID")  port $KAFKA_PORT  controller $CONTROLLER_PORT  version $(kafka_version)"
    else
        echo "Kafka      down  port $KAFKA_PORT  version $(kafka_version)"
        code=1
    fi
    echo "folder     $STAND_DIR"
    return $code
}

do_env() {
    cat <<END
export MILLRACE_PG_URL='postgresql://postgres:$PG_PASSWORD@127.0.0.1:$PG_PORT/postgres'
export PGHOST=127.0.0.1 PGPORT=$PG_PORT PGUSER=postgres PGPASSWORD='$PG_PASSWORD' PGDATABASE=postgres
export KAFKA_BOOTSTRAP=127.0.0.1:$KAFKA_PORT
export MILLRACE_PG_BIN='$PG_BIN'
export MILLRACE_STAND_DIR='$STAND_DIR'
export MILLRACE_TOOLS_DIR='$TOOLS_DIR'
export MILLRACE_PYTHON='$TOOLS_DIR/venv/bin/python'
END
}

STAND_DIR=$DEFAULT_STAND_DIR
PG_ASKED=
COMMAND=
HOW=

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
            --pg) PG_ASKED=${2:-} && shift ;;
            --dir) STAND_DIR=${2:-} && shift ;;
            -h | --help) print_help "$0" && exit 0 ;;
            -*) die "unknown option: $1 (see --help)" ;;
            *) if [ -z "$COMMAND" ]; then COMMAND=$1; else HOW=$1; fi ;;
        esac
        shift || die "an option lacks its value (see --help)"
    done
    case $PG_ASKED in "" | 15 | 16 | 17 | 18) ;; *) die "--pg wants 15, 16, 17 or 18" ;; esac
    [ -n "$STAND_DIR" ] || die "--dir wants a folder"
    STAND_DIR=$(absolute_path "$STAND_DIR")
}

main() {
    parse "$@"
    case $COMMAND in
        env | status) ;;
        up | down | wipe | pg-start | pg-stop | pg-restart | kafka-start | kafka-stop) lock_stand ;;
        "") die "no command (see --help)" ;;
        *) die "unknown command: $COMMAND (see --help)" ;;
    esac
    load_settings
    case $COMMAND in
        up | pg-start | pg-restart | kafka-start)
            need_programs
            save_settings
            ;;
    esac
    case $COMMAND in
        up) do_up ;;
        down) do_down ;;
        wipe) do_wipe ;;
        status) do_status ;;
        env) do_env ;;
        pg-start) pg_start ;;
        pg-stop) pg_stop "${HOW:-fast}" ;;
        pg-restart) pg_stop "${HOW:-fast}" && pg_start ;;
        kafka-start) kafka_start ;;
        kafka-stop) kafka_stop "${HOW:-TERM}" ;;
    esac
}

main "$@"
