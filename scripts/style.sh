#!/usr/bin/env bash
# Usage: scripts/style.sh [--changed]
#
# clang-format, clang-tidy, shellcheck, long lines, shared names, and the direction of includes and calls; changes nothing.
#
#   --changed  clang-tidy, which takes minutes, looks only at what has changed (tests/nightly.py): at a header through the source of
#              its name, or the first that includes it; of more than MILLRACE_TIDY_MOST sources (default 60) at so many
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
SCOPE=all
case "${1:-}" in
    "") ;;
    --changed) SCOPE=changed ;;
    -h | --help) print_help "$0" && exit 0 ;;
    *) die "unknown option $1; try --help" ;;
esac
cd "$REPO_ROOT"

# What a folder of src may include, besides itself.
declare -A MAY_INCLUDE=(
    [base]=""
    [confine]="base"
    [metrics]="base"
    [event]="base"
    [ports]="base event"
    [postgres/conn]="base event"
    [postgres/catalog]="base event postgres/conn"
    [postgres/server]="base event postgres/conn postgres/catalog"
    [stream]="base event ports postgres/conn postgres/catalog postgres/server"
    [record]="base event postgres/conn postgres/catalog postgres/server stream"
    [encode/values]="base event encode"
    [encode/forms]="base event encode encode/values"
    [encode/hidden]="base event encode"
    [encode]="base event encode/values encode/forms encode/hidden"
    [registry]="base event"
    [kafka]="base event"
    [sink]="base event ports"
    [sink/kafka]="base event ports kafka sink"
    [flow]="base event metrics ports encode encode/hidden"
    [copy]="base event metrics ports postgres/conn postgres/catalog postgres/server encode stream flow"
    [resolved]="base event ports encode flow copy"
    [ledger]="base event ports flow"
    [control]="base event metrics ports postgres/conn postgres/catalog postgres/server stream encode flow copy ask"
    [ask]="base"
    [options]="base event"
    [config]="base confine event options ask postgres/conn postgres/catalog encode encode/values encode/forms registry kafka"
    [terminal]="base event postgres/conn kafka"
    [convert]="base encode flow options"
    [verify]="base event metrics encode registry postgres/conn postgres/server kafka ask options config terminal"
    [fleet]="base postgres/conn options config"
    [profiler/draw]="base"
    [profiler]="base profiler/draw"
    [daemon]="base event ports metrics registry kafka sink sink/kafka postgres/conn postgres/catalog postgres/server stream encode encode/hidden flow copy resolved ledger control ask options config profiler terminal"
    [cli]="base convert fleet event registry ports kafka sink sink/kafka postgres/conn postgres/catalog postgres/server stream copy resolved ledger record metrics flow control ask options config profiler daemon terminal"
)

# sources FOLDER SUFFIX...: files there, by find, for a source archive has no git.
sources() {
    local folder=$1 suffix names=()
    shift
    for suffix in "$@"; do names+=(-o -name "*.$suffix"); done
    find "$folder" -type f '(' "${names[@]:1}" ')' | sort
}

# included HEADER ALLOWED: a library's header is included only by files whose path begins so.
included() {
    local files
    files=$(grep -rl "^#include <$1" src | grep -v "^$2") || return 0
    say "$1 is included outside $2*:" "$files"
    return 1
}

check_includes() {
    local folder file target wrong=0
    for folder in "${!MAY_INCLUDE[@]}"; do
        while IFS=: read -r file target; do
            case " $folder ${MAY_INCLUDE[$folder]} " in
                *" $target "*) ;;
                *)
                    say "$file includes $target/, which src/$folder must not know"
                    wrong=1
                    ;;
            esac
        done < <(sources "src/$folder" c h | grep "^src/$folder/[^/]*$" | grep -v '_test\.c$' |
            xargs sed -n 's|^#include "\([a-z_/]*\)/[^/]*"|\1|;T;F;p' | paste -d: - -)
    done
    included libpq-fe src/postgres/conn/pg_conn || wrong=1
    included librdkafka 'src/\(sink/\)\?kafka/kafka' || wrong=1
    included microhttpd 'src/\(control/http\|profiler/example\)' || wrong=1
    included xxhash src/ledger/sums || wrong=1
    if grep -rn '^#include "profiler/' src | grep -v -e '^src/profiler/' -e '"profiler/profiler\.h"'; then
        say "the profiler's door is profiler/profiler.h"
        wrong=1
    fi
    return "$wrong"
}

# Of the build that was made last; without one it is made.
check_symbols() {
    local folder newest arguments=()
    newest=$(find build -maxdepth 2 -type f -name millrace -printf '%T@ %h\n' 2> /dev/null | sort -rn | sed -n '1s/^[^ ]* //p')
    if [ -z "$newest" ]; then
        newest=build/clang
        cmake --preset clang > /dev/null
        cmake --build --preset clang --target millrace > /dev/null
    fi
    for folder in "${!MAY_INCLUDE[@]}"; do arguments+=("$folder=${MAY_INCLUDE[$folder]}"); done
    python3 scripts/lib/symbols.py "$newest" "${arguments[@]}"
}

# What clang-tidy looks at. Everything where it is not known what has changed.
tidy_sources() {
    local changed path all
    all=$(sources src c | grep -v -e '_test\.c$' -e '^src/testing/')
    if [ "$SCOPE" = changed ] && changed=$(python3 tests/nightly.py changed); then
        for path in $changed; do
            case $path in
                .clang-tidy) printf '%s\n' "$all" ;;
                src/*.c) printf '%s\n' "$path" ;;
                src/*.h | src/*.def) { printf '%s\n' "$all" | grep -Fx "${path%.*}.c" || printf '%s\n' "$all" | xargs grep -lF "\"${path#src/}\"" || true; } | head -n 1 ;;
            esac
        done | { grep -Fx "$all" || true; } | sort -u # nothing of it may have changed
        return 0
    fi
    printf '%s\n' "$all"
}

# A line of C has at most 100 columns, comments too.
check_lines() {
    local long
    long=$(for folder in src fuzz benchmarks tests; do sources "$folder" c h; done |
        LC_ALL=C.UTF-8 xargs grep -nE '^.{101,}' || true)
    [ -z "$long" ] || die "longer than 100 columns: $long"
}

# No two static functions share a name: a frame of a profile, and a search, say whose function it is.
check_names() {
    local shared
    # shellcheck disable=SC2016 # the program's own variables
    shared=$(sources src c | xargs perl -0ne \
        'while (/^static (?:[\w*]+\s+)*?\*?([a-z]\w+)\(/gm) { push @{$of{$1}}, $ARGV }
         END { for (sort keys %of) { print "$_: @{$of{$_}}\n" if @{$of{$_}} > 1 && uniq(@{$of{$_}}) > 1 } }
         sub uniq { my %seen; scalar grep { !$seen{$_}++ } @_ }')
    [ -z "$shared" ] || die "static functions that share a name: $shared"
}

say "includes"
check_includes
say "lines and names"
check_lines
check_names
say "symbols"
check_symbols
say "clang-format"
for folder in src fuzz benchmarks load; do sources "$folder" c h; done |
    xargs -P "$(nproc)" -n 50 clang-format --dry-run --Werror
say "shellcheck"
{
    for folder in scripts tests benchmarks load docker; do sources "$folder" sh; done
    find .ci -maxdepth 1 -name run -type f 2> /dev/null
} | xargs -P "$(nproc)" -n 8 shellcheck -x -P SCRIPTDIR -P scripts/lib -e SC1091
say "clang-tidy"
tidied=$(tidy_sources)
if [ "$SCOPE" = changed ] && [ "$(wc -l <<< "$tidied")" -gt "${MILLRACE_TIDY_MOST:=60}" ]; then
    say "$MILLRACE_TIDY_MOST of $(wc -l <<< "$tidied") sources; the others are left to the night"
    tidied=$(shuf -n "$MILLRACE_TIDY_MOST" --random-source=<(yes) <<< "$tidied") # the same each time
fi
if [ -n "$tidied" ]; then
    # Some headers are made.
    { cmake --preset clang && cmake --build --preset clang --target mr_profile_proto; } > /dev/null
    printf '%s\n' "$tidied" | xargs -P "$(nproc)" -n 4 clang-tidy -p build/clang --quiet
fi
say "clean"
