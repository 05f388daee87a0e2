# shellcheck shell=bash
# Certificates of the stand, made once with openssl. Sourced by stand.sh.
#
#   ca.pem                  the authority that signs all of them
#   other-ca.pem            an authority that signs none
#   good.pem, .key          a server named localhost (not 127.0.0.1)
#   good-with-key.pem       both in one file, as Kafka reads them
#   expired.pem, .key       the same, no longer valid
#   wrong-host.pem, .key    a server of another name

# new_authority NAME
new_authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
        -subj "/CN=millrace stand $1" -keyout "$1.key" -out "$1.pem"
}

# new_certificate NAME HOST DAYS
new_certificate() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
        -subj "/CN=$2" -keyout "$1.key" -out "$1.csr" &&
        openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days "$3" \
            -extfile <(echo "subjectAltName=DNS:$2") -out "$1.pem" &&
        rm "$1.csr"
}

certificates_fill() (
    cd "$1" && new_authority ca && new_authority other-ca &&
        new_certificate good localhost 3650 &&
        new_certificate expired localhost -1 &&
        new_certificate wrong-host elsewhere.example 3650 &&
        cat good.key good.pem >good-with-key.pem &&
        chmod 600 ./*.key good-with-key.pem || exit
    if is_root; then chown "$(server_user):" ./*; fi
)

# In a folder beside first: a folder that is there is complete.
make_certificates() {
    [ ! -d "$1" ] || return 0
    rm -rf "$1.new"
    make_server_dir "$1.new"
    quietly certificates_fill "$1.new" || die "the stand's certificates can't be made: see above"
    mv "$1.new" "$1"
}
