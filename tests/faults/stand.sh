#!/usr/bin/env bash
# A stand for the storms, own folder and own ports, that goes away with the script, so that storms can run side by side.
# Source it behind scripts/lib.sh.
# STORM_SERVERS=pg-start: PostgreSQL only, for what has brokers of its own. MILLRACE_TEST_PORT is the first of three ports; the default lies below those of outgoing connections.

binary_under_test
soak_port=${MILLRACE_TEST_PORT:-21715}
own_stand "stand-soak-$soak_port" "$soak_port"
trap '"$REPO_ROOT/scripts/stand.sh" wipe > /dev/null 2>&1 || true' EXIT
"$REPO_ROOT/scripts/stand.sh" wipe > /dev/null 2>&1 || true
"$REPO_ROOT/scripts/stand.sh" "${STORM_SERVERS:-up}"
eval "$("$REPO_ROOT/scripts/stand.sh" env)"
