#!/usr/bin/env bash
# Usage: scripts/stand.sh COMMAND [--pg N] [--dir DIR]
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
#   archive   make the archive of classes with which every Kafka starts in half the time, in a stand of its own
#             that goes away (scripts/setup.sh calls it)
#
#   --pg N    PostgreSQL's major version, from 14 on (default: that of the last up, at first 15 or else the newest that is installed)
#   --dir D   the folder of this stand (default MILLRACE_STAND_DIR, or else <repo>/.stand, or,
#             for root in a repository that others can't reach, a folder in /var/lib that
#             `status` names); another stand needs another folder
#
# The first start chooses free ports, which no other stand has, and `status` and `env` name them.
# Environment, read by the commands that start a server and remembered in
# DIR/stand.conf until wipe:
#   MILLRACE_STAND_PORTS            the range that ports are chosen from, default 15000-19999;
#                                   below 32768: above, any connection may hold one just then
#   MILLRACE_STAND_PG_PORT          these two and the controller's, where they must be certain ones
#   MILLRACE_STAND_KAFKA_PORT
#   MILLRACE_STAND_CONTROLLER_PORT
#   MILLRACE_STAND_FSYNC            PostgreSQL's fsync, default off
#   MILLRACE_STAND_QUICK            1: Kafka is compiled quickly rather than well, for tests; it is remembered nowhere
#   MILLRACE_STAND_AUTO_CREATE      Kafka makes topics by itself, default false
#   MILLRACE_STAND_SECURE           1: a second listener with TLS and SASL (PLAIN,
#                                   SCRAM-SHA-256 and -512), and certificates, good and bad,
#                                   for it and for PostgreSQL, in DIR/data/certificates
#   MILLRACE_STAND_SECURE_PORT      its port; its name is localhost
#   MILLRACE_STAND_PROXIED          1: a listener that sends clients to PROXY_PORT, where a test
#                                   puts a proxy that it can cut
#   MILLRACE_STAND_PROXIED_PORT     its port
#   MILLRACE_STAND_PROXY_PORT       where it says it is
# And: MILLRACE_TOOLS_DIR, the programs (default: the default folder above), which
# scripts/setup.sh fills; up calls it when they are missing.
set -euo pipefail
# shellcheck source=scripts/lib/servers.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/servers.sh"
# shellcheck source=scripts/stand/ports.sh
. "$REPO_ROOT/scripts/stand/ports.sh"
# shellcheck source=scripts/stand/certificates.sh
. "$REPO_ROOT/scripts/stand/certificates.sh"
# shellcheck source=scripts/stand/postgres.sh
. "$REPO_ROOT/scripts/stand/postgres.sh"
# shellcheck source=scripts/stand/kafka.sh
. "$REPO_ROOT/scripts/stand/kafka.sh"

PG_PASSWORD=millrace-stand
KAFKA_USER=millrace
KAFKA_PASSWORD=millrace-stand

# ---- settings -------------------------------------------------------------

saved() {
    [ ! -r "$STAND_DIR/stand.conf" ] || sed -n "s/^$1=//p" "$STAND_DIR/stand.conf"
}

# setting NAME ENVIRONMENT_VALUE [DEFAULT]
setting() {
    local value=${2:-$(saved "$1")}
    printf '%s\n' "${value:-${3:-}}"
}

load_settings() {
    PG_MAJOR=${PG_ASKED:-$(saved PG_MAJOR)}
    if [ -z "$PG_MAJOR" ]; then
        PG_MAJOR=15
        [ -x "$(pg_bin 15)/postgres" ] || PG_MAJOR=$(pg_newest)
    fi
    PG_PORT=$(setting "PG_PORT_$PG_MAJOR" "${MILLRACE_STAND_PG_PORT:-}")
    KAFKA_PORT=$(setting KAFKA_PORT "${MILLRACE_STAND_KAFKA_PORT:-}")
    CONTROLLER_PORT=$(setting CONTROLLER_PORT "${MILLRACE_STAND_CONTROLLER_PORT:-}")
    FSYNC=$(setting FSYNC "${MILLRACE_STAND_FSYNC:-}" off)
    AUTO_CREATE=$(setting AUTO_CREATE "${MILLRACE_STAND_AUTO_CREATE:-}" false)
    SECURE=$(setting SECURE "${MILLRACE_STAND_SECURE:-}" 0)
    SECURE_PORT=$(setting SECURE_PORT "${MILLRACE_STAND_SECURE_PORT:-}")
    PROXIED=$(setting PROXIED "${MILLRACE_STAND_PROXIED:-}" 0)
    PROXIED_PORT=$(setting PROXIED_PORT "${MILLRACE_STAND_PROXIED_PORT:-}")
    PROXY_PORT=$(setting PROXY_PORT "${MILLRACE_STAND_PROXY_PORT:-}")
    CERTIFICATES=$STAND_DIR/data/certificates
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
SECURE=$SECURE
SECURE_PORT=$SECURE_PORT
PROXIED=$PROXIED
PROXIED_PORT=$PROXIED_PORT
PROXY_PORT=$PROXY_PORT
$others
END
}

# A port that was chosen, and that another program has taken while this stand was down, is given up.
give_up_taken_ports() {
    local name fixed
    if ! pg_running && [ -z "${MILLRACE_STAND_PG_PORT:-}" ] && [ -n "$PG_PORT" ] && port_open "$PG_PORT"; then PG_PORT=; fi
    if kafka_running; then return 0; fi
    for name in KAFKA_PORT CONTROLLER_PORT SECURE_PORT PROXIED_PORT PROXY_PORT; do
        fixed=MILLRACE_STAND_$name
        if [ -z "${!fixed:-}" ] && [ -n "${!name}" ] && port_open "${!name}"; then printf -v "$name" %s ""; fi
    done
}

find_ports() {
    local ports=(PG_PORT KAFKA_PORT CONTROLLER_PORT SECURE_PORT PROXIED_PORT PROXY_PORT)
    lock_ports
    choose_ports "${ports[@]}"
    save_settings
    note_ports "$PG_PORT" "$KAFKA_PORT" "$CONTROLLER_PORT" "$SECURE_PORT" "$PROXIED_PORT" "$PROXY_PORT"
    unlock_ports
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
    if is_root; then chown "$(server_user):" "$1"; fi
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

# ---- commands -------------------------------------------------------------

need_programs() {
    if [ -x "$PG_BIN/postgres" ] && have_kafka; then return 0; fi
    if [ -n "$PG_ASKED" ]; then
        "$REPO_ROOT/scripts/setup.sh" --all --pg "$PG_ASKED"
    else
        "$REPO_ROOT/scripts/setup.sh" --demo
        load_settings
    fi
    [ -x "$PG_BIN/postgres" ] || die "PostgreSQL $PG_MAJOR is missing: there is no $PG_BIN/postgres"
}

have_kafka() { compgen -G "$TOOLS_DIR/kafka/libs/kafka_2.13-*.jar" >/dev/null && have java && have kcat; }

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
    forget_ports
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
        echo "PostgreSQL down  port ${PG_PORT:-not chosen yet}  version $PG_MAJOR"
        code=1
    fi
    if kafka_running && kafka_answers; then
        echo "Kafka      up    pid $(cat "$KAFKA_PID")  port $KAFKA_PORT  controller $CONTROLLER_PORT  version $(kafka_version)"
    else
        echo "Kafka      down  port ${KAFKA_PORT:-not chosen yet}  version $(kafka_version)"
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
export MILLRACE_PYTHON='$(tools_python 2>/dev/null)'
END
    if [ "$SECURE" = 1 ]; then
        cat <<END
export KAFKA_SECURE_BOOTSTRAP=localhost:$SECURE_PORT
export KAFKA_USER=$KAFKA_USER KAFKA_PASSWORD=$KAFKA_PASSWORD
export MILLRACE_CERTIFICATES='$CERTIFICATES'
END
    fi
    if [ "$PROXIED" = 1 ]; then
        echo "export KAFKA_PROXIED_PORT=$PROXIED_PORT KAFKA_PROXY_PORT=$PROXY_PORT"
    fi
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
    case $PG_ASKED in "" | 1[4-9] | [2-9][0-9]) ;; *) die "--pg wants a major version, from 14 on" ;; esac
    [ -n "$STAND_DIR" ] || die "--dir wants a folder"
    STAND_DIR=$(absolute_path "$STAND_DIR")
}

main() {
    parse "$@"
    case $COMMAND in
        env | status) ;;
        up | down | wipe | pg-start | pg-stop | pg-restart | kafka-start | kafka-stop | archive) lock_stand ;;
        "") die "no command (see --help)" ;;
        *) die "unknown command: $COMMAND (see --help)" ;;
    esac
    load_settings
    case $COMMAND in
        up | pg-start | pg-restart | kafka-start | archive)
            case $COMMAND in
                archive) ;;
                kafka-start) have_kafka || "$REPO_ROOT/scripts/setup.sh" --kafka ;;
                *) need_programs ;;
            esac
            if [ "$COMMAND" = up ]; then give_up_taken_ports; fi
            find_ports
            ;;
        env) [ -n "$PG_PORT$KAFKA_PORT" ] || die "this stand was never started: scripts/stand.sh up" ;;
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
        kafka-start) kafka_start && say "up: Kafka on port $KAFKA_PORT" ;;
        kafka-stop) kafka_stop "${HOW:-TERM}" ;;
        archive) do_archive && do_wipe ;;
    esac
}

main "$@"
