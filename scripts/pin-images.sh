#!/usr/bin/env bash
# Usage: scripts/pin-images.sh [--check]
#
# Writes the digest behind each image's version, into Dockerfile and docker-compose.yml (postgres:17.10@sha256:…), as
# the registries name it today. For whoever makes a release; it needs Docker with buildx and the registries. Run it again
# for newer digests of the same versions: Debian's security updates come that way, and by no other while a digest stands.
#
#   --check  changes nothing; exit status 1 names images whose digest is missing or no longer the registry's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in
    "") check=no ;;
    --check) check=yes ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    *) echo "unknown argument: $1 (see --help)" >&2 && exit 64 ;;
esac

# Of others, with a version: neither our own (millrace:…), nor stages of the Dockerfile, nor "scratch".
images() {
    sed -nE 's/^FROM ([a-z0-9./-]+:[^ @]+)(@sha256:[0-9a-f]+)?( .*)?$/\1\2/p' Dockerfile
    sed -nE 's/^ +image: ([a-z0-9./-]+:[^ @]+(@sha256:[0-9a-f]+)?)$/\1/p' docker-compose.yml | grep -v '^millrace:'
}

status=0
while read -r image; do
    version=${image%@*}
    digest=$(docker buildx imagetools inspect "$version" --format '{{.Manifest.Digest}}')
    [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "$version: the registry names no digest: $digest" >&2 && exit 1; }
    [ "$image" != "$version@$digest" ] || continue
    echo "$version is $digest"
    if [ "$check" = yes ]; then
        status=1
    else
        sed -i -E "s#^(FROM| +image:) ${version//./\\.}(@sha256:[0-9a-f]+)?( |\$)#\1 $version@$digest\3#" Dockerfile docker-compose.yml
    fi
done < <(images | sort -u)
exit "$status"
