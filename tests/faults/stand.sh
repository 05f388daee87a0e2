#!/usr/bin/env bash
# A stand for the storms, own folder and own ports, that goes away with the script. Source it behind scripts/lib.sh.
# MILLRACE_TEST_PORT is the first of three ports; the default lies below those of outgoing connections.

export MILLRACE_TOOLS_DIR=$TOOLS_DIR
export MILLRACE_STAND_DIR=$REPO_ROOT/.stand-soak
storm_port=${MILLRACE_TEST_PORT:-21715}
export MILLRACE_STAND_PG_PORT=$storm_port MILLRACE_STAND_KAFKA_PORT=$((storm_port + 1))
export MILLRACE_STAND_CONTROLLER_PORT=$((storm_port + 2))
export MILLRACE_BIN=${MILLRACE_BIN:-$REPO_ROOT/build/release/millrace}
[ -x "$MILLRACE_BIN" ] || die "$MILLRACE_BIN is missing; cmake --preset release && cmake --build --preset release"
trap '"$REPO_ROOT/scripts/stand.sh" wipe > /dev/null 2>&1 || true' EXIT
"$REPO_ROOT/scripts/stand.sh" wipe > /dev/null 2>&1 || true
"$REPO_ROOT/scripts/stand.sh" up
eval "$("$REPO_ROOT/scripts/stand.sh" env)"
