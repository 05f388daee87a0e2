#!/usr/bin/env bash
# Usage: docker/rootfs.sh ROOT DEBUG PROGRAM...
#
# Lays out ROOT as a root file system that holds each PROGRAM, the shared libraries they link and the
# few files they read, and DEBUG with the programs' debug symbols. For the Dockerfile.
set -euo pipefail
root=$1 debug=$2
programs=("${@:3}")

copy() { # FILE: to the same place in ROOT, links followed
    mkdir -p "$root${1%/*}"
    cp -L "$1" "$root$1"
}

libraries() { for program in "${programs[@]}"; do ldd "$program"; done | grep -o '/[^ ]*' | sort -u; }

# dpkg knows a library by its place before or after the merge of /lib into /usr/lib.
package_of() {
    { dpkg-query -S "$1" "/usr$1" "${1#/usr}" 2>/dev/null || true; } | sed -n '1s/:.*//p'
}

mkdir -p "$root/usr/bin" "$root/etc" "$root/var/lib/dpkg/status.d"
install -d -m 1777 "$root/tmp" "$root/var/tmp"

# The symbol table stays in the programs: profiles name functions by it.
for program in "${programs[@]}"; do
    id=$(readelf -n "$program" | sed -n 's/.*Build ID: //p')
    symbols=$debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "${symbols%/*}"
    objcopy --only-keep-debug "$program" "$symbols"
    objcopy --strip-debug "$program" "$root/usr/bin/${program##*/}"
done

for library in $(libraries); do
    copy "$library"
    package=$(package_of "$library")
    [ -n "$package" ] || { echo "rootfs.sh: no package owns $library" >&2 && exit 1; }
    # Where image scanners look for what is inside; and the licence that must go along.
    dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/$package"
    if [ -e "/usr/share/doc/$package/copyright" ]; then copy "/usr/share/doc/$package/copyright"; fi
done

if ! libraries | grep -q librdkafka; then # it is part of the program
    mkdir -p "$root/usr/share/doc/millrace"
    cp "$(scripts/librdkafka.sh --where)/LICENSES.txt" "$root/usr/share/doc/millrace/librdkafka-licenses.txt"
fi
copy /etc/ssl/certs/ca-certificates.crt
copy /etc/ssl/openssl.cnf
mkdir -p "$root/usr/lib/ssl"
ln -s /etc/ssl/openssl.cnf "$root/usr/lib/ssl/openssl.cnf"
ln -s /etc/ssl/certs "$root/usr/lib/ssl/certs"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
echo 'millrace:x:65532:65532::/nonexistent:/nonexistent' >"$root/etc/passwd"
echo 'millrace:x:65532:' >"$root/etc/group"
