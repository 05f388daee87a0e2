#!/usr/bin/env bash
# Usage: scripts/test.sh [--quick] [--full] [--sanitized]
#
# Installs what is missing, builds, and runs all tests: unit tests with GCC under the
# address and undefined-behaviour sanitizers, unit tests under the thread sanitizer, a
# build with Clang, the checks of style (clang-format, clang-tidy, shellcheck, the direction
# of the includes), instructions per event against the committed baseline, a short run of
# the fuzzers, and the system tests on a private PostgreSQL 15 and
# a private Kafka, some of them on PostgreSQL 18, too. Warnings are errors. A test
# that fails is run once more; one that passes then is named in red at the end as flaky, and three of those fail the run (tests/README.md;
# MILLRACE_TEST_RERUN=0 fails at once).
#
#   --quick   unit tests under the sanitizers only
#   --full    also what a run of each push leaves out (tests/nightly.py says what, and why), and system tests at
#             full length: a million changes, 30 kills, 30 stops, a transaction of two million rows
#   --sanitized  only the system tests, with the binary built with the address and
#             undefined-behaviour sanitizers, and again with the thread sanitizer
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
. "$REPO_ROOT/scripts/lib/flaky.sh"
cd "$REPO_ROOT"

MODE=normal
NEWEST_PG=

build() {
    say "build: $1"
    if ! { cmake --preset "$1" && cmake --build --preset "$1"; } > "build-$1.log" 2>&1; then
        tail -n 60 "build-$1.log" >&2
        die "the build with preset $1 failed"
    fi
    rm -f "build-$1.log"
}

unit_tests() {
    local failed=()
    build "$1"
    if ctest --preset "$1" --no-tests=error; then return 0; fi
    [ "$MILLRACE_TEST_RERUN" = 1 ] || return 1
    mapfile -t failed < <(cut -d: -f2 "build/$1/Testing/Temporary/LastTestsFailed.log")
    say "once more: ${failed[*]}"
    ctest --preset "$1" --rerun-failed || return 1
    printf "%s (preset $1)\n" "${failed[@]}" >> "$MILLRACE_TEST_FLAKY"
}

# On the newest PostgreSQL: what only it has, what the server does otherwise there, and a workload that is as wide as its SQL.
newest_postgres() {
    [ -n "$NEWEST_PG" ] || return 0
    say "system tests with PostgreSQL $NEWEST_PG"
    MILLRACE_TEST_PG=$NEWEST_PG tests/run.sh test_version_18.py test_publication.py test_schema_changes.py \
        test_keys.py::test_stop_while_a_key_is_asked_for \
        test_wide.py::test_what_the_topics_make_of_the_tables test_wide.py::test_kills_under_a_wide_workload
}

# The last word of a run that is good but for these.
report() {
    local names
    mapfile -t names < "$MILLRACE_TEST_FLAKY"
    flaky_report "${names[@]}"
}

# system_tests_sanitized PRESET: a report ends the process with an exit code that no test expects.
# Suppressions name third-party libraries only.
system_tests_sanitized() {
    build "$1"
    say "system tests with preset $1"
    ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
        TSAN_OPTIONS=exitcode=66:suppressions=$REPO_ROOT/tests/tsan.supp \
        MILLRACE_BIN=$REPO_ROOT/build/$1/millrace MILLRACE_TEST_SANITIZED=1 tests/run.sh
}

main() {
    case "${1:-}" in
        "") ;;
        --quick) MODE=quick ;;
        --full) MODE=full ;;
        --sanitized) MODE=sanitized ;;
        -h | --help)
            print_help "$0"
            return
            ;;
        *) die "unknown option $1; try --help" ;;
    esac
    export MILLRACE_TEST_RERUN=${MILLRACE_TEST_RERUN:-1} MILLRACE_TEST_FLAKY=$REPO_ROOT/build/flaky.txt
    # It comes as a package for this machine only.
    case "$MODE $(uname -m)" in normal\ x86_64 | full\ x86_64) NEWEST_PG=18 ;; esac
    scripts/setup.sh --all ${NEWEST_PG:+--pg "$NEWEST_PG"}
    mkdir -p build
    : > "$MILLRACE_TEST_FLAKY"
    if [ "$MODE" = sanitized ]; then
        system_tests_sanitized dev
        system_tests_sanitized tsan
        report
        return
    fi
    unit_tests dev
    if [ "$MODE" = quick ]; then
        report
        return
    fi
    unit_tests tsan
    build clang
    scripts/style.sh
    benchmarks/micro.sh --check
    benchmarks/micro.sh --self-test
    scripts/fuzz.sh --seconds 5
    build ci
    if [ "$MODE" = full ]; then
        export MILLRACE_TEST_CHANGES=1000000 MILLRACE_TEST_CYCLES=30 MILLRACE_TEST_BIGTX=2000000
        export MILLRACE_TEST_LARGE_ROWS=1000 MILLRACE_TEST_TABLES=500
        export MILLRACE_TEST_OUTAGE=30 MILLRACE_TEST_TIMEOUT=1200
    fi
    [ "$MODE" = full ] || export MILLRACE_TEST_NIGHTLY=${MILLRACE_TEST_NIGHTLY-changed}
    export MILLRACE_TEST_WORKERS=${MILLRACE_TEST_WORKERS:-3} MILLRACE_BIN=$REPO_ROOT/build/ci/millrace
    tests/run.sh
    newest_postgres
    report
}

main "$@"
