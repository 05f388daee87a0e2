# shellcheck shell=bash
# Free ports for a stand. Sourced by stand.sh.
#
# Which stand has which port is noted in a folder of the user's, a file for each port that names the stand's folder, so
# that a stand that is down, or just starting, keeps its ports. A note counts as long as that stand.conf names the port.

PORT_NOTES=${TMPDIR:-/tmp}/millrace-stand-ports-$(id -u)

port_open() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The port belongs to another stand, running or not.
port_noted() {
    local owner
    owner=$(cat "$PORT_NOTES/$1" 2>/dev/null) || return 1
    [ "$owner" != "$STAND_DIR" ] && grep -qs "=$1\$" "$owner/stand.conf"
}

port_range() {
    local low=15000 high=19999
    if [ -n "${MILLRACE_STAND_PORTS:-}" ]; then
        low=${MILLRACE_STAND_PORTS%-*} high=${MILLRACE_STAND_PORTS#*-}
        case $low$high in *[!0-9]* | "") die "MILLRACE_STAND_PORTS wants LOW-HIGH, such as 15000-15099" ;; esac
        if [ "$low" -ge "$high" ] || [ "$high" -ge 32768 ]; then
            die "MILLRACE_STAND_PORTS wants LOW-HIGH below 32768: above, any connection may hold a port just then"
        fi
    fi
    echo "$low $high"
}

# Sets each variable named that is empty to a port of its own. The search begins at a place made from the folder's name,
# so that stands of several users rarely look at the same ports at the same moment.
choose_ports() {
    local low high count start name port i=0
    read -r low high <<<"$(port_range)"
    count=$((high - low + 1))
    start=$(printf %s "$STAND_DIR" | cksum | cut -d' ' -f1)
    local taken=" "
    for name in "$@"; do taken+="${!name} "; done
    for name in "$@"; do
        [ -z "${!name}" ] || continue
        while :; do
            [ "$i" -lt "$count" ] || die "no free port between $low and $high; MILLRACE_STAND_PORTS names another range"
            port=$((low + (start + i) % count))
            i=$((i + 1))
            case $taken in *" $port "*) continue ;; esac
            if port_noted "$port" || port_open "$port"; then continue; fi
            break
        done
        printf -v "$name" %s "$port"
        taken+="$port "
    done
}

# note_ports PORT...: they are this stand's from now on.
note_ports() {
    local port
    for port in "$@"; do printf '%s\n' "$STAND_DIR" >"$PORT_NOTES/$port"; done
}

forget_ports() { grep -lsxF "$STAND_DIR" "$PORT_NOTES"/* 2>/dev/null | xargs -r rm -f; }

# One stand at a time chooses.
lock_ports() {
    mkdir -p "$PORT_NOTES"
    [ -O "$PORT_NOTES" ] || die "$PORT_NOTES is somebody else's: set TMPDIR to a folder of your own"
    exec 8>"$PORT_NOTES/lock"
    flock -w 60 8 || die "another stand.sh holds $PORT_NOTES/lock"
}
unlock_ports() { exec 8>&-; }
