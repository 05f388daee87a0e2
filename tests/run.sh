#!/usr/bin/env bash
# Usage: tests/run.sh [pytest's arguments]
#
# System tests: the built binary against a real PostgreSQL and a real Kafka, which get a
# stand of their own, which goes away afterwards; several runs go side by side.
# For example: tests/run.sh -k sigterm
#
#   MILLRACE_BIN           binary under test (default build/release/millrace)
#   MILLRACE_TEST_PORT     take the stand's six ports from the twenty that begin here (default:
#                          free ones between 15000 and 19999)
#   MILLRACE_TEST_WORKERS  stands side by side that the tests are spread over, longest first (default 1); those
#                          that conftest.py marks "alone" follow on the first one
#   MILLRACE_TEST_BESIDE   file that whoever works beside the tests holds a lock on (scripts/test.sh): those that are
#                          "alone" wait for it
#   MILLRACE_TEST_PG       PostgreSQL's major version: 15 (default), 16, 17 or 18
#   MILLRACE_TEST_RERUN    1: tests that fail run once more; passed then, they are reported as
#                          flaky, and three of them fail the run (tests/README.md)
#   MILLRACE_TEST_FLAKY    file that the names of flaky tests are added to
#   MILLRACE_TEST_NIGHTLY  what is done with the tests of tests/nightly.py: unset: they run as any other; changed: those whose
#                          places have changed; no: none
#   MILLRACE_TEST_SINCE    the commit that "changed" compares with (default: where the branch left origin/main)
#   MILLRACE_TEST_CHANGES  changes of the concurrent writers (default 100000)
#   MILLRACE_TEST_PACE     rows a second that each endless writer writes beside a fault (default 400; 0: all it can)
#   MILLRACE_TEST_CYCLES   kills and stops under load (default 6)
#   MILLRACE_TEST_BIGTX    rows of the large transaction (default 300000)
#   MILLRACE_TEST_LARGE_ROWS  rows of 1 MB in one transaction (default 60)
#   MILLRACE_TEST_HUGE     1: rows that as text are larger than the server can send, which take it 3 GB and minutes
#   MILLRACE_TEST_TABLES   tables of 50 columns (default 60)
#   MILLRACE_TEST_EMPTY_TABLES  empty tables that are copied (default 150)
#   MILLRACE_TEST_IDLE     idle pipelines at once (default 200)
#   MILLRACE_TEST_MEMORY   file that gets a line of figures from each test of memory
#   MILLRACE_TEST_LIES     lies that each lying server tells, one a millrace (default 500, or all)
#   MILLRACE_TEST_TIMEOUT  seconds that one test may take (default 300)
#   MILLRACE_TEST_SANITIZED  set: the binary is built with sanitizers, memory is not judged
#   MILLRACE_TEST_NETWORK  1: fail, not skip, where no network namespace can be made
#   MILLRACE_TEST_EXTENSIONS  extensions that are installed, of "postgis" and "vector"; types of the others are stood in
#                          for by types of the same name and text (scripts/setup.sh --postgis)
#   MILLRACE_TEST_PGBOUNCER  1: PgBouncer between millrace and PostgreSQL, too (scripts/setup.sh --pgbouncer)
#   MILLRACE_TEST_APICURIO  1: Avro beside Apicurio's registry, too (scripts/setup.sh --apicurio)
#   MILLRACE_TEST_HELM      1: the Helm chart, too (scripts/setup.sh --helm)
#   MILLRACE_TEST_KUBERNETES  1: it on Kubernetes' control plane, too (scripts/setup.sh --kubernetes)
#   MILLRACE_TEST_FRESH    1, or the name of another Debian: README's commands on a bare machine, too (minutes, 4 GB)
#   MILLRACE_TEST_OUTAGE   seconds that Kafka is away (default 8)
#
# After a failure the servers' logs are in build/test-logs. How long each test took is in build/test-durations.txt.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/servers.sh"
. "$REPO_ROOT/scripts/lib/flaky.sh"
case "${1:-}" in --help) print_help "$0"; exit 0 ;; esac

export MILLRACE_TEST_PG=${MILLRACE_TEST_PG:-15}
binary_under_test
export MILLRACE_STAND_SECURE=1 MILLRACE_STAND_PROXIED=1 MILLRACE_STAND_QUICK=1
own_stand stand-test
cache=$MILLRACE_STAND_DIR/pytest-cache
logs=$REPO_ROOT/build/test-logs
# What Python makes of a module once is kept: every process would make it again.
unset PYTHONDONTWRITEBYTECODE
workers=${MILLRACE_TEST_WORKERS:-1}

run_pytest() {
    "$MILLRACE_PYTHON" -m pytest -q -rs -o cache_dir="$cache" \
        --timeout "${MILLRACE_TEST_TIMEOUT:-300}" "$@"
}

# Reading the tests for the first time, and rewriting their assertions, takes many times the second time. So one process does it,
# while the stands start, and not each worker. Without servers it finds no test; what it reads is kept all the same.
read_tests() {
    cd "$REPO_ROOT/tests"
    KAFKA_BOOTSTRAP=none:1 MILLRACE_PG_URL=none/none run_pytest --collect-only "$@" >/dev/null 2>&1 || true
}

# Spread over the workers, then those that want the machine for themselves. 5: no test was chosen.
run_tests() {
    local spread=0 alone=0
    if [ "$workers" -eq 1 ]; then
        run_pytest "$@"
        return
    fi
    run_pytest -n "$workers" --dist loadscope -m "not alone" "$@" || spread=$?
    [ "$spread" -le 1 ] || [ "$spread" -eq 5 ] || return "$spread"
    [ -z "${MILLRACE_TEST_BESIDE:-}" ] || flock "$MILLRACE_TEST_BESIDE" true
    run_pytest -m alone "$@" || alone=$?
    [ "$alone" -ne 5 ] || alone=$spread
    [ "$spread" -ne 5 ] || spread=$alone
    return $((spread > alone ? spread : alone))
}

# with_stand_of WORKER COMMAND...: worker gw0 has the run's own stand.
with_stand_of() {
    local folder=$MILLRACE_STAND_DIR-gw$1
    [ "$1" -gt 0 ] || folder=$MILLRACE_STAND_DIR
    shift
    MILLRACE_STAND_DIR=$folder "$@"
}

# Of a stand's environment what is its own.
note_stand() { (eval "$(stand env)" && env -0 | grep -zE '^(KAFKA|MILLRACE|PG)[A-Z_]*='); }

start_stand() {
    with_stand_of "$1" stand up --pg "$MILLRACE_TEST_PG"
    with_stand_of "$1" note_stand >"$MILLRACE_TEST_STANDS/gw$1"
}

start_stands() {
    local worker job jobs=()
    export MILLRACE_TEST_STANDS=$MILLRACE_STAND_DIR/workers
    mkdir -p "$MILLRACE_TEST_STANDS"
    for ((worker = 0; worker < workers; worker++)); do
        start_stand "$worker" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
}

wipe_stands() {
    local worker
    for ((worker = 0; worker < workers; worker++)); do
        with_stand_of "$worker" stand wipe >/dev/null 2>&1 || true
    done
}

failed_tests() {
    "$MILLRACE_PYTHON" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' \
        "$cache/v/cache/lastfailed"
}

copy_logs() { cp -r "$MILLRACE_STAND_DIR/logs" "$1" || true; }

keep_logs() {
    local worker
    rm -rf "$logs"
    mkdir -p "$logs"
    for ((worker = 0; worker < workers; worker++)); do
        with_stand_of "$worker" copy_logs "$logs/gw$worker"
    done
    say "the servers' logs are in $logs"
}

main() {
    local code=0 names=()
    trap wipe_stands EXIT
    rm -rf "$cache"
    [ "$workers" -eq 1 ] || read_tests "$@" &
    start_stands
    wait
    eval "$(stand env)"
    cd "$REPO_ROOT/tests"
    run_tests "$@" || code=$?
    [ "$code" -eq 0 ] || keep_logs
    # 1 is "some tests failed"; everything else is no matter of a second try.
    if [ "$code" -eq 1 ] && [ "${MILLRACE_TEST_RERUN:-0}" = 1 ]; then
        mapfile -t names < <(failed_tests)
        say "once more: ${names[*]}"
        stand up
        code=0
        run_pytest --last-failed --last-failed-no-failures none "$@" || code=$?
        if [ "$code" -eq 0 ]; then
            printf '%s\n' "${names[@]}" >>"${MILLRACE_TEST_FLAKY:-/dev/null}"
            flaky_report "${names[@]}" || code=1
        fi
    fi
    return "$code"
}

main "$@"
