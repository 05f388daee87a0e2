#!/usr/bin/env bash
# Usage: scripts/demo.sh [--rows N] [--events N] [--end]
#
# From a bare Debian to a running stream: installs what is missing (scripts/setup.sh --demo: compilers and libraries,
# Java, Kafka's jars, a small Python environment, PostgreSQL where none from 14 on is
# installed), builds millrace, starts a private PostgreSQL and a private single-node Kafka, fills a table, has its rows
# copied, and then runs a burst of changes through all three. Prints what came out: rows copied and rows/s, events, events/s,
# latency from commit to Kafka, CPU per event, peak memory, and a few events as a consumer sees them. Then all three go
# on, and it says how to look, to write, to read, and to end it. Everything lives in one folder, .stand, or, for root
# in a repository that other users can't reach, a folder in /var/lib. Another run begins anew.
#
#   --rows N    rows that are in the table at the beginning (default 50000)
#   --events N  changes in the burst (default 100000)
#   --end       stop millrace and both servers and remove their data; nothing else. The programs stay for the next run
set -euo pipefail
# shellcheck source=scripts/lib/base.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
cd "$REPO_ROOT"

OTHER_FOLDER=${MILLRACE_STAND_DIR:-}
# A stand of its own: beginning anew touches no other one's data.
export MILLRACE_TOOLS_DIR=$TOOLS_DIR MILLRACE_STAND_DIR=$DEFAULT_STAND_DIR/demo
PID=$MILLRACE_STAND_DIR/millrace.pid

stream_ended() { ! grep -qsF "$MILLRACE_STAND_DIR/demo.toml" "/proc/$(cat "$PID")/cmdline"; }

end() {
    if [ -s "$PID" ] && ! stream_ended; then
        kill -TERM "$(cat "$PID")"
        wait_for 30 stream_ended || kill -KILL "$(cat "$PID")"
    fi
    if [ -d "$MILLRACE_STAND_DIR" ]; then scripts/stand.sh wipe; fi
    rm -rf "$MILLRACE_STAND_DIR"
}

build() {
    say "building millrace"
    quietly cmake --preset release || die "millrace can't be configured: see above"
    quietly cmake --build --preset release --target millrace || die "millrace can't be built: see above"
}

main() {
    local events=100000 rows=50000 servers
    while [ $# -gt 0 ]; do
        case $1 in
            --events) need_number "$@" && events=$2 && shift ;;
            --rows) need_number "$@" && rows=$2 && shift ;;
            --end)
                [ -d "$MILLRACE_STAND_DIR" ] ||
                    say "there is no demo in $MILLRACE_STAND_DIR${OTHER_FOLDER:+; MILLRACE_STAND_DIR is set, so perhaps another folder has it}"
                end
                return
                ;;
            -h | --help) print_help "$0" && return ;;
            *) die "unknown option $1; try --help" ;;
        esac
        shift
    done
    end
    scripts/setup.sh --demo
    scripts/stand.sh up &
    servers=$!
    build
    wait "$servers"
    eval "$(scripts/stand.sh env)"
    MILLRACE_BIN=$REPO_ROOT/build/release/millrace \
        "$MILLRACE_PYTHON" benchmarks/demo.py --rows "$rows" --events "$events" --folder "$MILLRACE_STAND_DIR"
}

main "$@"
