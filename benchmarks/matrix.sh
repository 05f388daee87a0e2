#!/usr/bin/env bash
# Usage: benchmarks/matrix.sh [--rounds N] [--quick] [--beside [NAME=]BINARY] [--without-peers] [--out FOLDER]
#
# All figures of millrace in one run: each mix of drain.sh in both deliveries, steady.sh at each rate, and its peers.
# Writes results.md (the tables) and one JSON file for each part. About an hour; on a machine with nothing else on it.
#
#   --rounds N       rounds of each part (default 5)
#   --quick          one round of a tenth of the rows: to see that it works
#   --beside B       another build of millrace in each part but that of the peers
#   --without-peers  no Debezium
#   --out FOLDER     default benchmarks, where results.md is
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/bench.sh"
rounds=5 rows=500000 rates=0,100,1000,10000,40000 seconds=10 peers=yes out=$here beside=()
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) need_number "$@" && rounds=$2 && shift ;;
        --quick) rounds=1 rows=50000 rates=0,1000 seconds=3 ;;
        --beside) need_value "$@" && beside=(--beside "$2") && shift ;;
        --without-peers) peers=no ;;
        --out) need_value "$@" && out=$(absolute_path "$2") && shift ;;
        *) die "unknown option $1; try --help" ;;
    esac
    shift
done
mkdir -p "$out/figures"
results=$out/results.md
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

cat >"$parts/head" <<END
# Figures of millrace, $(date -I)

Written by \`benchmarks/matrix.sh --rounds $rounds\`. [README.md](README.md) says what each figure is, [RULES.md](RULES.md) what
they are held to; the raw figures are in [figures](figures). All parts ran on one machine, one after another.

END
drains() {
    local mix delivery
    printf '## One backlog of %s rows, by mix and delivery\n\n' "$rows"
    for mix in insert mixed small wide tables partitions; do
        for delivery in at-least-once exactly-once; do
            say "drain: $mix, $delivery"
            printf '```\n'
            "$here/drain.sh" --mix "$mix" --delivery "$delivery" --rows "$rows" --rounds "$rounds" \
                --json "$out/figures/drain-$mix-$delivery.json" "${beside[@]}" |
                sed '1,/^round '"$rounds"':/d; /^$/d'
            printf '```\n\n'
        done
    done
}
drains >"$parts/drain"
# What has failed stands in the tables.
failed=0
say "steady"
"$here/steady.sh" --rates "$rates" --rounds "$rounds" --seconds "$seconds" --out "$parts/steady" \
    --json "$out/figures/steady.json" "${beside[@]}" >&2 || failed=1
if [ "$peers" = yes ]; then
    say "peers"
    "$here/compare-peers.sh" --rows "$((rows * 2 / 5))" --rounds "$(((rounds + 1) / 2))" --out "$parts/peers" \
        --json "$out/figures/peers.json" >&2 || failed=1
fi
{
    cat "$parts/head" "$parts/drain"
    for part in steady peers; do
        [ ! -e "$parts/$part" ] || sed 's/^# /## /' "$parts/$part"
        echo
    done
} >"$results"
say "$results"
exit "$failed"
