#!/usr/bin/env bash
# Usage: scripts/release.sh STEP [ARGUMENT...]
#
# The steps of a release (docs/dev/releasing.md). .github/workflows/release.yml runs them when a tag is pushed; all but push, index,
# publish and fetch run on any machine, too. Folders are relative to the repository.
#
#   prepare VERSION [DATE]   by hand, before the tag: the version and the date (default: today) into the files that have them; the first
#                            time also the repository, GITHUB_REPOSITORY=OWNER/NAME, in place of OWNER/millrace
#   check TAG                the tag is the version, CHANGELOG.md has its date, no page says that nothing is released
#   packages OUT [BUILD]     this system's .deb, .rpm and SBOM into OUT; BUILD: of that build, else a new one after the unit tests
#   source OUT               the sources as a tarball
#   apt OUT SITE URL         a signed apt repository of OUT's .deb files in the folder SITE, to be served at URL; into OUT as a tarball
#   sums OUT                 SHA256SUMS and its signature
#   notes TAG                prints the version's section of CHANGELOG.md
#   image ARCH               builds the image and runs it
#   push ARCH                pushes the image
#   index                    one image name for all machines; its name and digest go to GITHUB_OUTPUT
#   publish TAG OUT          the GitHub release, with OUT's files
#   fetch SITE               the apt repository of the newest release into SITE/apt, for the site (site.yml)
#
# apt and sums sign with MILLRACE_SIGNING_KEY, a secret OpenPGP key without a passphrase (gpg --armor --export-secret-keys).
# image, push and index take the image's name from GITHUB_REPOSITORY; push and index log in as GITHUB_ACTOR with TOKEN.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"
cd "$REPO_ROOT"

ARCHITECTURES=(amd64 arm64)
ADDRESSED=(docs/*.md docs/dev/*.md docs/deploy mkdocs.yml) # pages and files with addresses of the repository

version() { sed -n 's/^project(millrace VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt; }

prepare() {
    local version=$1 date=${2:-$(date -u +%F)}
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "a version is X.Y.Z, not \"$version\""
    grep -q '^## Unreleased$' CHANGELOG.md || die 'CHANGELOG.md has no section "## Unreleased"'
    sed -i "s/^project(millrace VERSION [0-9.]* /project(millrace VERSION $version /" CMakeLists.txt
    sed -i "s/^## Unreleased\$/## $version - $date/" CHANGELOG.md
    sed -i "s/^#define MR_MAN_DATE .*/#define MR_MAN_DATE \"$date\"/" src/cli/reference.c
    addresses
    say "now: git commit -am 'Version $version' && git tag -s v$version && git push origin main v$version"
}

# Names of images and sites have no capitals.
addresses() {
    local repository=${GITHUB_REPOSITORY:-} owner name
    grep -qrw OWNER "${ADDRESSED[@]}" || return 0
    [[ $repository == */* ]] || die "set GITHUB_REPOSITORY=OWNER/NAME: these have addresses without an owner:" "$(grep -lrw OWNER "${ADDRESSED[@]}")"
    owner=${repository%%/*} name=${repository#*/}
    grep -lrw OWNER "${ADDRESSED[@]}" | xargs sed -i -e "s|ghcr\.io/OWNER/millrace|ghcr.io/${repository,,}|g" \
        -e "s|OWNER\.github\.io/millrace|${owner,,}.github.io/$name|g" -e "s|OWNER/millrace|$repository|g"
}

check() {
    local version pages
    version=$(version)
    [ "$1" = "v$version" ] || die "the tag is $1, CMakeLists.txt has version $version"
    grep -qE "^## ${version//./\\.} - [0-9]{4}-[0-9]{2}-[0-9]{2}\$" CHANGELOG.md || die "CHANGELOG.md has no section \"## $version - DATE\""
    pages=$(grep -lr --include='*.md' '<!-- until the first release' . || true)
    [ -z "$pages" ] || die "these pages have a text for the time before the first release:" "$pages"
    pages=$(grep -lrw OWNER "${ADDRESSED[@]}" || true)
    [ -z "$pages" ] || die "these have no owner's name yet:" "$pages"
}

packages() {
    local out system build=${2:-}
    out=$(absolute_path "$1")
    export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    if [ -z "$build" ]; then
        build=build/package
        cmake --preset ci
        cmake --build --preset ci
        ctest --preset ci --no-tests=error
        cmake --preset package
        cmake --build --preset package
    fi
    mkdir -p "$out"
    (cd "$build" && cpack -G DEB -B "$out" && cpack -G RPM -B "$out")
    rm -rf "$out/_CPack_Packages"
    # shellcheck source=/dev/null
    system=$(. /etc/os-release && echo "$ID${VERSION_ID:-}")
    scripts/sbom.py "$build/millrace" >"$out/millrace_$(version)+${system}_$(dpkg --print-architecture).cdx.json"
}

source_tarball() {
    local name
    name=millrace-$(version)
    mkdir -p "$1"
    git archive --format tar --prefix "$name/" HEAD | gzip -9n >"$1/$name.tar.gz"
}

# A key ring for this step alone, in GNUPGHOME; a short path, for the agent's socket is in it.
with_signing_key() {
    [ -n "${MILLRACE_SIGNING_KEY:-}" ] || die "MILLRACE_SIGNING_KEY is not set: docs/dev/releasing.md says how to make the key"
    GNUPGHOME=$(mktemp -d /tmp/release.XXXXXX)
    export GNUPGHOME
    trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
    gpg --batch --quiet --import <<<"$MILLRACE_SIGNING_KEY"
}

sign() { gpg --batch --yes --quiet --digest-algo SHA512 "$@"; }

# apt's index of one system: what its Release file needs, and not more.
apt_suite() {
    local suite=$1 arch file date
    for arch in "${ARCHITECTURES[@]}"; do
        mkdir -p "dists/$suite/main/binary-$arch"
        dpkg-scanpackages --multiversion --arch "$arch" "pool/$suite" >"dists/$suite/main/binary-$arch/Packages" 2>/dev/null
        gzip -9nkf "dists/$suite/main/binary-$arch/Packages"
    done
    date=$(date -Ru -d "@${SOURCE_DATE_EPOCH:-$(git -C "$REPO_ROOT" log -1 --format=%ct)}")
    cd "dists/$suite"
    {
        printf '%s\n' "Origin: millrace" "Label: millrace" "Suite: $suite" "Codename: $suite" "Date: $date" \
            "Architectures: ${ARCHITECTURES[*]}" "Components: main" "SHA256:"
        for file in main/*/*; do printf ' %s %s %s\n' "$(sha256sum <"$file" | cut -d' ' -f1)" "$(stat -c %s "$file")" "$file"; done
    } >Release
    sign --armor --detach-sign --output Release.gpg Release
    sign --clearsign --output InRelease Release
    cd ../..
}

# What a user puts into /etc/apt/sources.list.d; the key is part of it.
apt_sources() {
    printf '%s\n' "Types: deb" "URIs: $2" "Suites: $1" "Components: main" "Signed-By:"
    gpg --batch --armor --export | sed 's/^$/./; s/^/ /'
}

apt() {
    local out site url=$3 deb suite suites=()
    out=$(absolute_path "$1") site=$(absolute_path "$2")
    mkdir -p "$site"
    for deb in "$out"/*.deb; do
        suite=$(dpkg-deb -f "$deb" Version)
        suite=${suite##*+}
        suites+=("$suite")
        install -D -m 644 "$deb" "$site/pool/$suite/${deb##*/}"
    done
    with_signing_key
    cd "$site"
    for suite in $(printf '%s\n' "${suites[@]}" | sort -u); do
        apt_suite "$suite"
        apt_sources "$suite" "$url" >"$suite.sources"
    done
    tar -czf "$out/millrace-$(cd "$REPO_ROOT" && version)-apt.tar.gz" --owner=0 --group=0 --sort=name -- *
}

sums() {
    with_signing_key
    cd "$1"
    rm -f SHA256SUMS*
    gpg --batch --armor --export >millrace.asc
    sha256sum -- * >SHA256SUMS
    sign --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS
}

notes() { awk -v heading="## ${1#v} - " 'index($0, heading) == 1 { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md; }

# Registries take lower case only.
image_name() {
    local repository=${GITHUB_REPOSITORY:?is set by GitHub: OWNER/NAME}
    printf 'ghcr.io/%s\n' "${repository,,}"
}

image() {
    local name
    name=$(image_name):$(version)-$1
    docker build -t "$name" .
    docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges "$name" --version | grep -qx "millrace $(version)" ||
        die "the image says another version than $(version)"
}

log_in() { docker login ghcr.io -u "$GITHUB_ACTOR" --password-stdin <<<"$TOKEN"; }

push() {
    log_in
    docker push "$(image_name):$(version)-$1"
}

index() {
    local name version digest
    name=$(image_name) version=$(version)
    log_in
    docker buildx imagetools create -t "$name:$version" -t "$name:latest" "${ARCHITECTURES[@]/#/$name:$version-}"
    digest=$(docker buildx imagetools inspect "$name:$version" --format '{{.Manifest.Digest}}')
    printf '%s\n' "name=$name" "digest=$digest" >>"$GITHUB_OUTPUT"
}

publish() { notes "$1" | gh release create "$1" --repo "$GITHUB_REPOSITORY" --verify-tag --title "millrace ${1#v}" --notes-file - "$2"/*; }

# A tag may have no release yet (404): then the one before counts. Any other answer is an error: an older repository must not take
# the place of the newest.
fetch() {
    local tag code from=${GITHUB_SERVER_URL:-https://github.com}/$GITHUB_REPOSITORY/releases/download tags
    tags=$(git tag --list 'v[0-9]*' --sort -version:refname)
    [ -n "$tags" ] || { say "there is no release yet, and no apt repository" && return; }
    FETCHED=$(mktemp)
    trap 'rm -f "$FETCHED"' EXIT
    for tag in $tags; do
        code=$(curl -sSL --retry 3 -o "$FETCHED" -w '%{http_code}' "$from/$tag/millrace-${tag#v}-apt.tar.gz")
        case $code in
            200)
                mkdir -p "$1/apt"
                tar -xzf "$FETCHED" -C "$1/apt"
                return
                ;;
            404) ;;
            *) die "the apt repository of $tag can't be fetched: HTTP status $code" ;;
        esac
    done
    die "no release of these tags has an apt repository:" "$tags"
}

# run NUMBER FUNCTION [ARGUMENT...]: with that many arguments at least.
run() {
    [ $# -ge $(($1 + 2)) ] || die "a step lacks an argument; try --help"
    "${@:2}"
}

case "${1:-}" in
    prepare | check | packages | sums | notes | image | push | fetch) run 1 "$@" ;;
    source) run 1 source_tarball "${@:2}" ;;
    apt) run 3 "$@" ;;
    index) run 0 "$@" ;;
    publish) run 2 "$@" ;;
    -h | --help) print_help "$0" ;;
    *) die "unknown step \"${1:-}\"; try --help" ;;
esac
