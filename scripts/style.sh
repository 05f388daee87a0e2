#!/usr/bin/env bash
# Usage: scripts/style.sh
#
# clang-format, clang-tidy, shellcheck and the direction of the includes; changes nothing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case "${1:-}" in -h | --help) print_help "$0"; exit 0 ;; esac
cd "$REPO_ROOT"

# What a folder of src may include, besides itself.
declare -A MAY_INCLUDE=(
    [base]=""
    [event]="base"
    [metrics]="base"
    [flame]="base"
    [tools]="base flame"
    [source]="base event"
    [encode]="base event"
    [prof]="base flame"
    [pprof]="base flame prof admin"
    [sink]="base event prof"
    [pipeline]="base event metrics prof source encode sink"
    [admin]="base event metrics prof source encode sink pipeline"
    [config]="base event source encode sink pipeline admin"
)

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
        done < <(git ls-files "src/$folder/*.[ch]" | grep -v '_test\.c$' |
            xargs sed -n 's|^#include "\([a-z_]*\)/.*|\1|;T;F;p' | paste -d: - -)
    done
    if git grep -l '^#include <libpq-fe' -- src | grep -qv '^src/source/pg_conn'; then
        say "libpq is included outside src/source/pg_conn*"
        wrong=1
    fi
    if git grep -l '^#include <librdkafka' -- src | grep -qv '^src/sink/kafka'; then
        say "librdkafka is included outside src/sink/kafka*"
        wrong=1
    fi
    if git grep -l '^#include <microhttpd' -- src | grep -qv '^src/admin/http'; then
        say "libmicrohttpd is included outside src/admin/http*"
        wrong=1
    fi
    return "$wrong"
}

say "includes"
check_includes
say "clang-format"
git ls-files 'src/*.c' 'src/*.h' 'fuzz/*.c' 'fuzz/*.h' 'benchmarks/*.c' 'benchmarks/*.h' \
    'load/*.c' 'load/*.h' | xargs clang-format --dry-run --Werror
say "shellcheck"
git ls-files '*.sh' .ci/run | xargs shellcheck -x -P SCRIPTDIR -P scripts -e SC1091
say "clang-tidy"
cmake --preset clang > /dev/null
git ls-files 'src/*.c' | grep -v -e '_test\.c$' -e '^src/testing/' |
    xargs -P "$(nproc)" -n 4 clang-tidy -p build/clang --quiet
say "clean"
