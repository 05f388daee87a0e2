#!/usr/bin/env bash
# Usage: tests/wide.sh [--seed N | --seeds A..B | --minutes M [--seed N]] [--kills] [--copies] [--initial] [--verify] [--reloads] [--reselect] [--types text|debezium|schemas]
#                      [--delivery exactly-once] [--pg 15|16|17|18] [--units N] [--jobs N]
#                      [--without FEATURES] [--ignore KINDS] [--replay FILE] [--self-test]
#
# A workload as wide as the SQL that users write, from a seed (tests/wide/plan.py), and a
# judge that shares nothing with millrace but docs/events.md (tests/wide/judge.py). A seed takes
# a second or two. Prints a line for each; one that fails is shrunk to a short list of
# statements. Its log, its topics' contents and its plan stay in build/wide/seed-N. The
# exit code is 0 when nothing is wrong.
#
# --kills: millrace is killed and stopped, and its connections are cut, all the time.
# --copies: existing rows are asked for beside the stream, all the time.
# --initial: existing rows are copied first; millrace starts when a third of the workload is done, and the copy is held
# up until two thirds are. Tables are not altered meanwhile. With --kills only what is left of each key at the end counts.
# --reloads: the file is reloaded two to five times in a row, all the time, not beside --initial.
# --reselect: values that updates did not touch are read again; those that are not marked must be the row's.
# --verify: at the end `millrace verify` must find no difference. --types debezium: values in Debezium's form, which it alone judges;
# schemas: with their schemas.
# --units: transactions of a writer in a phase, at most (default 14). --without leaves out
# parts of the workload, --ignore kinds of deviations (both comma-separated), for looking at
# the rest. With --kills, --without key-ddl,identity-ddl,swap leaves out what docs/keys.md has limits
# for. --replay: plan.pickle or shrunk.pickle of a failed run.
# --self-test: a clean run's records, altered in one place each time, must be found wrong.
#
#   MILLRACE_BIN        binary under test (default build/release/millrace)
#   MILLRACE_TEST_PORT  first of the five ports of the stand (default 21715), and what its folder
#                       is called after
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib/servers.sh"
case "${1:-}" in -h | --help) print_help "$0" && exit 0 ;; esac

pg=15
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --pg) pg=${2:?--pg wants a version} && shift ;;
        *) arguments+=("$1") ;;
    esac
    shift
done
binary_under_test
port=${MILLRACE_TEST_PORT:-21715}
own_stand "stand-wide-$port" "$port"
export MILLRACE_STAND_PROXIED=1 MILLRACE_STAND_PROXIED_PORT=$((port + 3)) MILLRACE_STAND_PROXY_PORT=$((port + 4))
trap '"$REPO_ROOT/scripts/stand.sh" wipe > /dev/null 2>&1 || true' EXIT
"$REPO_ROOT/scripts/stand.sh" wipe > /dev/null 2>&1 || true
"$REPO_ROOT/scripts/stand.sh" up --pg "$pg"
export MILLRACE_TEST_PG=$pg
eval "$("$REPO_ROOT/scripts/stand.sh" env)"
"$MILLRACE_PYTHON" "$REPO_ROOT/tests/wide/wide.py" "${arguments[@]}"
