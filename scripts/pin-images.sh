#!/usr/bin/env bash
# Usage: scripts/pin-images.sh [--check]
#
# Writes the digest behind each image's version, into Dockerfile, docker-compose.yml and the workflows
# (postgres:17.10@sha256:…), as the registries name it today. It needs Docker with buildx and the registries. Run it before
# a release: Debian's security updates come with newer digests of the same versions. Dependabot asks for them, too, but not
# for the images that workflows run in.
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
files=(Dockerfile docker-compose.yml .github/workflows/*.yml)
images() {
    sed -nE 's/^(FROM| +image:| +container:) ([a-z0-9./-]+:[^ @]+(@sha256:[0-9a-f]+)?)( .*)?$/\2/p' "${files[@]}" | grep -v '^millrace:'
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
        sed -i -E "s#^(FROM| +image:| +container:) ${version//./\\.}(@sha256:[0-9a-f]+)?( |\$)#\1 $version@$digest\3#" "${files[@]}"
    fi
done < <(images | sort -u)
exit "$status"
