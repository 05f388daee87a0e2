# shellcheck shell=bash
# The stand's PostgreSQL: made, started, stopped, killed. Sourced by stand.sh, whose settings it reads; and by setup.sh, for which ones are there.

# The system's, or what scripts/setup.sh has fetched.
PG_SYSTEM=/usr/lib/postgresql
pg_bin() {
    if [ "$1" = 15 ] || [ -x "$PG_SYSTEM/$1/bin/postgres" ]; then
        echo "$PG_SYSTEM/$1/bin"
    else
        echo "$TOOLS_DIR/pg-$1/native/bin"
    fi
}

# The newest major version from 14 on that is here, the system's before others; nothing where none is.
pg_newest() {
    local major
    for major in $(find "$PG_SYSTEM" -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' 2>/dev/null | sort -rn) 18 17 16; do
        if [ "$major" -ge 14 ] && [ -x "$(pg_bin "$major")/postgres" ]; then echo "$major" && return; fi
    done
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
pg_answers() { PATH=$PG_BIN:$PG_SYSTEM/15/bin:$PATH pg_isready -q -h 127.0.0.1 -p "$PG_PORT"; }

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
    [ "${MILLRACE_STAND_QUICK:-0}" = 0 ] || pg_let_superuser_in
}

# Tests log in very often, and the client's share of a login by password was three times that without one (6.3 and 2.1 ms, means of 100).
# Over TLS, and of other roles, the password is still asked for.
pg_let_superuser_in() {
    local rules=$PG_DATA/pg_hba.conf all
    all=$(cat "$rules")
    write_conf "$rules" <<END
hostnossl all postgres 127.0.0.1/32 trust
hostnossl replication postgres 127.0.0.1/32 trust
$all
END
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
max_replication_slots = 40
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
    # All of it is gone; a zombie would still look alive to the next server.
    rm -f "$PG_DATA/postmaster.pid" "$PG_DATA"/.s.PGSQL.*
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
