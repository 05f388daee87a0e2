#!/usr/bin/env bash
# Usage: scripts/site.sh [--out DIR] [--serve | --versions]
#
# Builds the site of docs/ (mkdocs.yml) into build/site, strictly: a link that leads nowhere is an error. Needs no network once
# scripts/setup.sh --site, which this calls, has fetched MkDocs.
#
#   --out DIR   another folder
#   --serve     serves it at http://127.0.0.1:8000 and builds again when a page changes
#   --versions  a folder for each release (tag vX.Y.Z) that has a site, and one, dev, for what is here; the newest release
#               opens first
set -euo pipefail
# shellcheck source=scripts/lib/base.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"

CHECKOUT= # of releases; until the end

# build FOLDER OUT: the site of a checkout.
build() { NO_MKDOCS_2_WARNING=1 "$MKDOCS" build --quiet --strict -f "$1/mkdocs.yml" -d "$2"; }

build_versions() {
    local out=$1 tag version list newest=dev
    export MILLRACE_SITE_VERSIONS=mike # the form of versions.json, which the theme's menu reads
    CHECKOUT=$(mktemp -d)
    trap 'rm -rf "$CHECKOUT"' EXIT
    build "$REPO_ROOT" "$out/dev"
    list='{"version": "dev", "title": "dev", "aliases": []}'
    while read -r tag; do
        version=${tag#v}
        git -C "$REPO_ROOT" cat-file -e "$tag:mkdocs.yml" 2>/dev/null || continue
        mkdir "$CHECKOUT/$version"
        git -C "$REPO_ROOT" archive "$tag" | tar -x -C "$CHECKOUT/$version"
        build "$CHECKOUT/$version" "$out/$version"
        list+=", {\"version\": \"$version\", \"title\": \"$version\", \"aliases\": []}"
        newest=$version
    done < <(git -C "$REPO_ROOT" tag --list 'v[0-9]*' --sort version:refname)
    printf '[%s]\n' "$list" >"$out/versions.json"
    printf '<!doctype html><meta http-equiv="refresh" content="0; url=%s/">\n' "$newest" >"$out/index.html"
}

main() {
    local what=build out=$REPO_ROOT/build/site tools
    while [ $# -gt 0 ]; do
        case $1 in
            --serve | --versions) what=${1#--} ;;
            --out) need_value "$@" && out=$(absolute_path "$2") && shift ;;
            -h | --help) print_help "$0" && exit 0 ;;
            *) die "unknown argument: $1 (see --help)" ;;
        esac
        shift
    done
    tools=$("$REPO_ROOT/scripts/setup.sh" --site)
    MKDOCS=$tools/bin/mkdocs
    case $what in
        build) build "$REPO_ROOT" "$out" ;;
        versions) rm -rf "$out" && mkdir -p "$out" && build_versions "$out" ;;
        serve) exec "$MKDOCS" serve --strict -f "$REPO_ROOT/mkdocs.yml" ;;
    esac
}

main "$@"
