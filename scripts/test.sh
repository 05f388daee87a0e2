#!/usr/bin/env bash
# Usage: scripts/test.sh [--quick] [--full]
#
# Installs what is missing, builds, and runs all tests: unit tests with GCC under the
# address and undefined-behaviour sanitizers, unit tests under the thread sanitizer, a
# build with Clang, the checks of style (clang-format, clang-tidy, shellcheck, the direction
# of the includes), and the system tests on a private PostgreSQL and a private Kafka. Warnings
# are errors. A system test that fails is run once more and, if it passes then, reported as flaky
# (tests/README.md; MILLRACE_TEST_RERUN=0 fails at once).
#
#   --quick   unit tests under the sanitizers only
#   --full    system tests at full length: a million changes, 30 kills, 30 stops,
#             a transaction of two million rows (about 15 minutes more)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$REPO_ROOT"

MODE=normal

build() {
    say "build: $1"
    if ! { cmake --preset "$1" && cmake --build --preset "$1"; } > "build-$1.log" 2>&1; then
        tail -n 60 "build-$1.log" >&2
        die "the build with preset $1 failed"
    fi
    rm -f "build-$1.log"
}

unit_tests() {
    build "$1"
    ctest --preset "$1" --no-tests=error
}

main() {
    case "${1:-}" in
        "") ;;
        --quick) MODE=quick ;;
        --full) MODE=full ;;
        -h | --help)
            print_help "$0"
            return
            ;;
        *) die "unknown option $1; try --help" ;;
    esac
    scripts/setup.sh --all
    unit_tests dev
    [ "$MODE" = quick ] && return
    unit_tests tsan
    build clang
    scripts/style.sh
    build ci
    if [ "$MODE" = full ]; then
        export MILLRACE_TEST_CHANGES=1000000 MILLRACE_TEST_CYCLES=30 MILLRACE_TEST_BIGTX=2000000
        export MILLRACE_TEST_OUTAGE=30 MILLRACE_TEST_TIMEOUT=1200
    fi
    MILLRACE_TEST_RERUN=${MILLRACE_TEST_RERUN:-1} MILLRACE_BIN=$REPO_ROOT/build/ci/millrace tests/run.sh
}

main "$@"
