#!/usr/bin/env bash
# Functions shared by the scripts of this folder. Source it, do not run it:
#   . "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

REPO_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# Messages go to stderr: the standard output of a script is for its result
# (`stand.sh env` is read by eval).
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
progress() { printf '%s: ... %s\n' "${0##*/}" "$*" >&2; }
die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# The help of a script is the comment at its top, so there is one text only.
print_help() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$1"; }

is_root() { [ "$(id -u)" -eq 0 ]; }

# PostgreSQL refuses to run as root. Start in /, because the server user may
# not be allowed into the caller's working directory. A program that stays
# must put itself in the background: runuser waits for its child.
as_server_user() {
    if is_root; then
        (cd / && exec runuser -u postgres -- "$@")
    else
        (cd / && exec "$@")
    fi
}

# A folder that the server user owns. Its parents are the caller's.
make_server_dir() {
    mkdir -p "$1"
    if is_root; then chown postgres: "$1"; fi
    chmod 700 "$1"
    as_server_user test -w "$1" ||
        die "the user postgres cannot reach $1: set MILLRACE_STAND_DIR to a folder it can reach"
}

# wait_for SECONDS COMMAND...: true as soon as COMMAND is, false after SECONDS.
wait_for() {
    local limit=$1 start=$SECONDS
    shift
    until "$@"; do
        [ $((SECONDS - start)) -lt "$limit" ] || return 1
        sleep 0.1
    done
}

# Sets AS_ROOT, the prefix for commands that change the system.
need_root_or_sudo() {
    # shellcheck disable=SC2034 # for the scripts that source this file
    AS_ROOT=()
    is_root && return 0
    have sudo || die "this step installs system packages: run it as root or install sudo"
    # shellcheck disable=SC2034
    AS_ROOT=(sudo)
}

absolute_path() {
    case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$PWD/$1" ;; esac
}

# Others may pass through this folder and all above it (no private home).
open_to_all() {
    local dir=$1
    until [ "$dir" = / ]; do
        case $(stat -c %A "$dir") in *[xt]) ;; *) return 1 ;; esac
        dir=$(dirname "$dir")
    done
}

# Where the files of a stand go by default: into the repository, unless the servers, which run
# as another user when the caller is root, could not reach it there.
stand_home() {
    if ! is_root || open_to_all "$REPO_ROOT"; then
        echo "$REPO_ROOT/.$1"
    else
        echo "/var/lib/millrace-$1-$(printf %s "$REPO_ROOT" | cksum | cut -d' ' -f1)"
    fi
}

# The stand's Python where there is one, else the machine's.
tools_python() {
    if [ -x "$TOOLS_DIR/venv/bin/python" ]; then
        echo "$TOOLS_DIR/venv/bin/python"
    else
        command -v python3 || die "python3 is missing: scripts/setup.sh installs it"
    fi
}

# MILLRACE_BIN: the caller's, or what the preset release makes.
binary_under_test() {
    export MILLRACE_BIN=${MILLRACE_BIN:-$REPO_ROOT/build/release/millrace}
    [ -x "$MILLRACE_BIN" ] ||
        die "$MILLRACE_BIN is missing; build it with: cmake --preset release && cmake --build --preset release"
    MILLRACE_BIN=$(realpath "$MILLRACE_BIN")
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

# flaky_report NAME...: says at the end of a run which tests passed only the second time. False from three on: then it is
# no longer a busy machine (tests/README.md).
flaky_report() {
    local red="" plain=""
    [ $# -gt 0 ] || return 0
    if [ -t 2 ] || [ -n "${CI:-}" ]; then red=$'\033[1;31m' plain=$'\033[0m'; fi
    printf '%s%s: flaky: %d passed only the second time:\n' "$red" "${0##*/}" $# >&2
    printf '    %s\n' "$@" >&2
    [ $# -lt 3 ] || printf 'Three flaky tests fail the run.\n' >&2
    printf '%s' "$plain" >&2
    [ $# -lt 3 ]
}

# Runs a command in silence; what it said is shown when it fails.
quietly() {
    local log code=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || code=$?
    [ "$code" -eq 0 ] || cat "$log" >&2
    rm -f "$log"
    return "$code"
}

# The server user reads what is made here, whatever the caller's mask.
umask 022

# Programs and jars (big, the same for every stand) live apart from the data of
# one stand, so that several stands (--dir) share one set.
# shellcheck disable=SC2034 # for the scripts that source this file
{
    DEFAULT_STAND_DIR=$(absolute_path "${MILLRACE_STAND_DIR:-$(stand_home stand)}")
    TOOLS_DIR=$(absolute_path "${MILLRACE_TOOLS_DIR:-$DEFAULT_STAND_DIR}")
}
