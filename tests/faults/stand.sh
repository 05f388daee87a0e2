#!/usr/bin/env bash
# A stand for the storms, own folder and own ports, that goes away with the script, so that storms can run side by side.
# Source it behind scripts/lib/servers.sh.
# STORM_SERVERS=pg-start: PostgreSQL only, for what has brokers of its own.

binary_under_test
own_stand stand-soak
trap 'stand wipe > /dev/null 2>&1 || true' EXIT
stand "${STORM_SERVERS:-up}"
eval "$(stand env)"
