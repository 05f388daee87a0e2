#!/usr/bin/env bash
# Usage: scripts/librdkafka.sh [--where|--version]
#
# Fetches the sources of the librdkafka that millrace links, patches them (librdkafka.patch) and
# builds them once: a static library with names and debug information, and a shared one for the
# thread sanitizer. scripts/setup.sh calls it.
#
#   --where    only print the folder they go to, which holds include/ and lib/
#   --version  only print the version
#
# To follow a release of librdkafka, change RELEASE; tests/test_supply_chain.py says whether
# the program holds what it names. The sources come whole within an npm package of the same
# project, whose hash npm's registry publishes (npm view PACKAGE dist.integrity).
set -euo pipefail
# shellcheck source=scripts/lib/base.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"

# Its version, the package that holds it, and the package's SHA-512.
RELEASE="2.15.1 @confluentinc/kafka-javascript@1.10.1
29578f5019f6d44a8254ff667f1cc4b8cdd26091c7105ed7fa2882d9ee374108034b211a92c2279821a8a13df0e6af9c340764482acaef58f42027eaa12a992f"
read -r VERSION PACKAGE SHA512 <<<"${RELEASE//$'\n'/ }"

# Frame pointers are for the profiler; the rest hardens it as millrace itself (src/cmake/Options.cmake).
FLAGS="-fno-omit-frame-pointer -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"
case $(uname -m) in
    x86_64) FLAGS+=" -fcf-protection=full" ;;
    aarch64) FLAGS+=" -mbranch-protection=standard" ;;
esac

# One function more; the file says why.
PATCH=$REPO_ROOT/scripts/librdkafka.patch

# Another version, patch or recipe is another folder, so several checkouts can share the tools. The set-up may have
# run as root, whose tools may be elsewhere: whoever builds takes what is there.
where() {
    local name place home=${MILLRACE_TOOLS_DIR:-$REPO_ROOT/.stand}
    name=librdkafka-$VERSION-$({ printf '%s' "$SHA512 $FLAGS" && cat "$PATCH"; } | cksum | cut -d' ' -f1)
    for place in "$TOOLS_DIR" "$REPO_ROOT/.stand"; do
        if [ -d "$place/$name" ]; then home=$place; fi
    done
    printf '%s\n' "$home/$name"
}

fetch() { # FOLDER
    progress "fetching the sources of librdkafka $VERSION"
    quietly npm pack --silent --pack-destination "$1" "$PACKAGE" ||
        die "$PACKAGE can't be fetched: see above"
    local archives=("$1"/*.tgz)
    printf '%s  %s\n' "$SHA512" "${archives[0]}" | sha512sum --check --status ||
        die "$PACKAGE is not what it was: its SHA-512 is another one than in $0"
    tar -xzf "${archives[0]}" -C "$1" --no-same-owner package/deps/librdkafka package/package.json
    grep -q "\"librdkafka\": \"$VERSION\"" "$1/package/package.json" ||
        die "$PACKAGE does not hold librdkafka $VERSION, which $0 names"
    quietly patch -d "$1/package/deps/librdkafka" -p1 -i "$PATCH" || die "$PATCH does not fit: see above"
}

# build SOURCES FOLDER
build() {
    local compiler="gcc"
    if have ccache; then compiler="ccache gcc"; fi
    progress "building librdkafka $VERSION"
    (
        cd "$1"
        CC=$compiler CFLAGS=$FLAGS quietly ./configure --prefix=/ --disable-c11threads
        quietly make -s -j"$(nproc)" -C src librdkafka.a librdkafka.so.1
    ) || die "librdkafka can't be built: see above"
    mkdir -p "$2/include/librdkafka" "$2/lib"
    cp "$1"/src/rdkafka.h "$1"/src/rdkafka_mock.h "$2/include/librdkafka/"
    cp "$1"/src/librdkafka.a "$1"/src/librdkafka.so.1 "$2/lib/"
    ln -s librdkafka.so.1 "$2/lib/librdkafka.so"
    cp "$1"/LICENSES.txt "$2/"
}

main() {
    local folder work
    folder=$(where)
    case "${1:-}" in
        "") ;;
        --where) echo "$folder" && return ;;
        --version) echo "$VERSION" && return ;;
        -h | --help) print_help "$0" && return ;;
        *) die "unknown argument: $1 (see --help)" ;;
    esac
    if [ -d "$folder" ]; then return 0; fi
    mkdir -p "${folder%/*}"
    work=$(mktemp -d "${folder%/*}/librdkafka.XXXXXX")
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$work'" EXIT
    fetch "$work"
    build "$work/package/deps/librdkafka" "$work/built"
    chmod -R a+rX "$work/built"
    # Another run may have been first: its result is the same.
    mv -T "$work/built" "$folder" 2>/dev/null || [ -d "$folder" ]
}

main "$@"
