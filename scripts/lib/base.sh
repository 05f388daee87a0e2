# shellcheck shell=bash
# What every script needs: messages, help, waiting, folders, the binary under test. Sourced, not run. A library of this
# folder sources those that it needs, so a script sources the one of its topic alone.

REPO_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)

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

# need_value OPTION [VALUE]...: what stands at an option in "$@"; dies when nothing comes after it.
need_value() { [ $# -ge 2 ] || die "$1 wants a value; try --help"; }
need_number() {
    need_value "$@"
    case $2 in "" | *[!0-9]*) die "$1 wants a number, not \"$2\"" ;; esac
}

# results_folder WHAT: makes a new folder in results/ and prints its name; two that begin in one second get two.
results_folder() {
    local name folder number=1
    name=$REPO_ROOT/results/$(date +%Y%m%d-%H%M%S)-$1
    folder=$name
    mkdir -p "$REPO_ROOT/results"
    until mkdir "$folder" 2>/dev/null; do
        [ -e "$folder" ] || die "$folder can't be made; give --out"
        number=$((number + 1)) folder=$name-$number
    done
    printf '%s\n' "$folder"
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
    local name
    for name in venv venv-demo; do
        if [ -x "$TOOLS_DIR/$name/bin/python" ]; then echo "$TOOLS_DIR/$name/bin/python" && return; fi
    done
    command -v python3 || die "python3 is missing: scripts/setup.sh installs it"
}

# MILLRACE_BIN: the caller's, or what the preset release makes.
binary_under_test() {
    export MILLRACE_BIN=${MILLRACE_BIN:-$REPO_ROOT/build/release/millrace}
    [ -x "$MILLRACE_BIN" ] ||
        die "$MILLRACE_BIN is missing; build it with: cmake --preset release && cmake --build --preset release"
    MILLRACE_BIN=$(realpath "$MILLRACE_BIN")
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

# What benchmarks and tests share in Python lies here too.
export PYTHONPATH=$REPO_ROOT/scripts/lib${PYTHONPATH:+:$PYTHONPATH}

# The user that servers run as reads what is made here, whatever the caller's mask.
umask 022

# Programs and jars (big, the same for every stand) live apart from the data of
# one stand, so that several stands (--dir) share one set.
# shellcheck disable=SC2034 # for the scripts that source this file
{
    DEFAULT_STAND_DIR=$(absolute_path "${MILLRACE_STAND_DIR:-$(stand_home stand)}")
    TOOLS_DIR=$(absolute_path "${MILLRACE_TOOLS_DIR:-$DEFAULT_STAND_DIR}")
}
