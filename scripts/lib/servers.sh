# shellcheck shell=bash
# For scripts that start servers: the user they run as, and a stand of the caller's own.
. "$(dirname "${BASH_SOURCE[0]}")/base.sh"

# PostgreSQL refuses to run as root. Without PostgreSQL, for Kafka alone, there is no user postgres.
server_user() { id -un postgres 2>/dev/null || echo nobody; }

# Start in /, because the server user may
# not be allowed into the caller's working directory. A program that stays
# must put itself in the background: runuser waits for its child.
as_server_user() {
    if is_root; then
        (cd / && exec runuser -u "$(server_user)" -- "$@")
    else
        (cd / && exec "$@")
    fi
}

# A folder that the server user owns. Its parents are the caller's.
make_server_dir() {
    mkdir -p "$1"
    if is_root && [ "$(stat -c %U "$1")" != "$(server_user)" ]; then chown -R "$(server_user):" "$1"; fi
    chmod 700 "$1"
    as_server_user test -w "$1" ||
        die "the user $(server_user) cannot reach $1: set MILLRACE_STAND_DIR to a folder it can reach"
}

# own_stand NAME: a stand of the caller's own: the first folder NAME-1, NAME-2, ... that no other run has, for as long
# as the caller lives. A run that was killed leaves its servers behind; the next one in the folder stops them.
own_stand() {
    local number
    export MILLRACE_TOOLS_DIR=$TOOLS_DIR MILLRACE_STAND_DIR
    for ((number = 1; ; number++)); do
        MILLRACE_STAND_DIR=$(stand_home "$1-$number")
        mkdir -p "$MILLRACE_STAND_DIR"
        exec 7>"$MILLRACE_STAND_DIR/run.lock"
        if flock -n 7; then break; fi
    done
    if [ -n "${MILLRACE_TEST_PORT:-}" ]; then
        export MILLRACE_STAND_PORTS=$MILLRACE_TEST_PORT-$((MILLRACE_TEST_PORT + 19))
    fi
    # These would be another stand's, from `eval "$(scripts/stand.sh env)"` and the like.
    unset MILLRACE_STAND_{PG,KAFKA,CONTROLLER,SECURE,PROXIED,PROXY}_PORT
    stand wipe >/dev/null 2>&1 || true
}

# stand COMMAND: scripts/stand.sh, whose servers must not inherit the lock of own_stand.
stand() { "$REPO_ROOT/scripts/stand.sh" "$@" 7>&-; }
