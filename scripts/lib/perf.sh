# shellcheck shell=bash
# What the profiling scripts share: checks, the event that perf counts, perf.data to text and pictures.
. "$(dirname "${BASH_SOURCE[0]}")/load.sh"

PERF_PID="" TOUCH_PID=""

# The reason why perf can't attach to a process of ours, or nothing.
perf_obstacle() {
    if ! have perf; then
        echo "perf is missing; do: scripts/setup.sh (Debian: apt-get install linux-perf)"
    elif ! perf stat -e task-clock true >/dev/null 2>&1; then
        echo "perf may not count here: kernel.perf_event_paranoid is $(cat /proc/sys/kernel/perf_event_paranoid);" \
            "do: sudo sysctl kernel.perf_event_paranoid=2 (in a container: --cap-add PERFMON --security-opt seccomp=unconfined)"
    fi
}

need_perf() {
    local obstacle
    obstacle=$(perf_obstacle)
    [ -z "$obstacle" ] || die "$obstacle"
}

# cycles where the machine counts them, else the clock.
perf_event() {
    if perf stat -x, -e cycles true 2>&1 | grep -q '^[0-9]'; then echo cycles; else echo cpu-clock; fi
}

# Says what there is and what is missing, with the remedy; false when something needed is missing.
doctor() {
    local obstacle tool wrong=0 value
    obstacle=$(perf_obstacle)
    if [ -n "$obstacle" ]; then
        echo "perf               NO: $obstacle"
        wrong=1
    else
        echo "perf               $(perf --version | cut -d' ' -f3), event $(perf_event)"
    fi
    value=$(cat /proc/sys/kernel/perf_event_paranoid)
    echo "perf_event_paranoid $value$([ "$value" -le 1 ] || is_root || echo " (no kernel frames; sudo sysctl kernel.perf_event_paranoid=1 gives them)")"
    value=$(cat /proc/sys/kernel/kptr_restrict)
    echo "kptr_restrict      $value$([ "$value" = 0 ] || echo " (kernel functions stay unnamed; sudo sysctl kernel.kptr_restrict=0)")"
    for tool in strace valgrind bpftrace heaptrack; do
        value=${tool/heaptrack/heap}
        echo "$tool$(printf '%*s' $((19 - ${#tool})) '')$(command -v "$tool" || echo "missing (only profile.sh $value needs it): apt-get install $tool")"
    done
    if [ -e /sys/kernel/tracing/events ]; then
        echo "tracefs            mounted"
    else
        echo "tracefs            not mounted (off-CPU profiles need it): mount -t tracefs tracefs /sys/kernel/tracing"
    fi
    for tool in millrace millrace-load millrace-flame; do
        if value=$(built_program "$tool" 2>/dev/null); then
            echo "$tool$(printf '%*s' $((19 - ${#tool})) '')$value"
        else
            echo "$tool$(printf '%*s' $((19 - ${#tool})) '')NO: cmake --preset release && cmake --build --preset release"
            wrong=1
        fi
    done
    [ -e /usr/lib/debug/.build-id ] || echo "libc6-dbg          missing: libc's inner functions have no names; apt-get install libc6-dbg"
    echo "disk               $(df -Pm . | awk 'NR == 2 { print $4 }') MB free (a minute of perf.data is about 400 MB)"
    return "$wrong"
}

# With --call-graph dwarf,16384, 7 % of the stacks have no root: one frame of librdkafka's (sendmsg with its
# iovecs) takes 16.1 KiB. With twice that, and touch_stacks.py, all do.
# perf_attach FILE PID: sets PERF_PID once samples are being taken.
perf_attach() {
    local file=$1 pid=$2 fifo=$1.control answer how=(-F "${PERF_FREQUENCY:-199}")
    # Events of the kernel are all taken.
    case ${PERF_EVENT:-} in *:*) how=(-c 1 --switch-events) ;; esac
    mkfifo "$fifo" "$fifo.ack"
    # perf says on the second fifo when it has attached: no sleep, no sample lost.
    perf record -q -e "${PERF_EVENT:-$(perf_event)}" "${how[@]}" --call-graph dwarf,32768 \
        -k CLOCK_MONOTONIC -D -1 --control "fifo:$fifo,$fifo.ack" -p "$pid" -o "$file" >"$file.log" 2>&1 &
    PERF_PID=$!
    exec 7<>"$fifo" 8<>"$fifo.ack"
    echo enable >&7
    read -r -t 60 answer <&8 || die "perf does not attach to $pid: $(tail -n 3 "$file.log")"
    rm -f "$fifo" "$fifo.ack"
    [ -n "$answer" ] || true
    "$MILLRACE_PYTHON" "$REPO_ROOT/benchmarks/touch_stacks.py" "$pid" &
    TOUCH_PID=$!
}

# SIGINT, and the wait until perf.data is closed.
perf_detach() {
    [ -n "$PERF_PID" ] || return 0
    interrupt_and_wait "$PERF_PID"
    [ -z "$TOUCH_PID" ] || { kill "$TOUCH_PID" && wait "$TOUCH_PID"; } 2>/dev/null || true
    PERF_PID="" TOUCH_PID=""
    exec 7>&- 8>&-
}

# perf_samples FILE FROM TO: how many samples lie between.
perf_samples() { perf script -f -i "$1" --time "$2,$3" -F time -G 2>/dev/null | grep -c .; }

# perf_results FOLDER TITLE [NAME FROM TO]...: perf-report.txt, folded.txt, flame.svg and profile.json of FOLDER/perf.data. With
# windows (seconds of CLOCK_MONOTONIC) in FOLDER/NAME these are of them, window-1.json and so on are of each, and what lies around
# them is in folded-floor.txt, flame-floor.svg and profile-floor.json, unless they are PIECES=yes of one whole.
perf_results() {
    local folder=$1 title=$2 inside=() around=() bursts="the burst"
    shift 2
    progress "reading perf.data ($(du -cm "$folder"/perf*.data | tail -n 1 | cut -f1) MB)"
    [ $# -le 3 ] || bursts="$(($# / 3)) bursts"
    while [ $# -gt 0 ]; do
        inside+=("$folder/$1" "$2,$3") around+=("$folder/$1" ",$2" "$folder/$1" "$3,")
        shift 3
    done
    if [ ${#inside[@]} -gt 0 ] && [ "${PIECES:-no}" = no ]; then
        perf_part "$folder" "$title: $bursts" "" "${inside[@]}"
        perf_part "$folder" "$title: the floor around $bursts" -floor "${around[@]}"
    else
        [ ${#inside[@]} -gt 0 ] || inside=("$folder/perf.data" "")
        perf_part "$folder" "$title" "" "${inside[@]}"
    fi
    set -- "${inside[@]}"
    while [ $# -gt 0 ]; do
        perf report -f -i "$1" ${2:+--time "$2"} --stdio --no-inline --no-children -g none --percent-limit 0.1 \
            --sort comm,dso,symbol 2>/dev/null
        shift 2
        [ "${PIECES:-no}" = no ] || break
    done >"$folder/perf-report.txt"
    rm -f "$folder"/perf*.data.log "$folder"/perf*.data.old
}

# perf_part FOLDER TITLE SUFFIX [FILE TIME]...: TIME may be empty: all.
perf_part() {
    local folder=$1 title=$2 suffix=$3 flame number=0
    shift 3
    flame=$(built_program millrace-flame)
    : >"$folder/parts.txt"
    # Each part is read by itself: perf takes several in one call only as parts of a hundred.
    while [ $# -gt 0 ]; do
        perf_text "$1" ${2:+--time "$2"} | stacks perf >"$folder/part.txt"
        cat "$folder/part.txt" >>"$folder/parts.txt"
        number=$((number + 1))
        if [ -n "$2" ] && [ -z "$suffix" ]; then stacks_json "$folder/part.txt" >"$folder/window-$number.json"; fi
        shift 2
    done
    stacks sum "$folder/parts.txt" >"$folder/folded$suffix.txt"
    rm -f "$folder/part.txt" "$folder/parts.txt"
    "$flame" svg --title "$title" --subtitle "$(flame_subtitle)" "$folder/folded$suffix.txt" >"$folder/flame$suffix.svg"
    stacks_json "$folder/folded$suffix.txt" >"$folder/profile$suffix.json"
}

stacks() { "$(tools_python)" "$REPO_ROOT/benchmarks/stacks.py" "$@"; }

# stacks_json FILE: what folded text says in numbers.
stacks_json() { "$(built_program millrace-flame)" tree "$1" | stacks json; }

# Inline frames would need addr2line for each address: minutes for a long profile.
perf_text() {
    local file=$1
    shift
    perf script -f -i "$file" "$@" --no-inline -F comm,tid,ip,sym,symoff,dso --show-kernel-path 2>/dev/null
}

flame_subtitle() {
    echo "$(git -C "$REPO_ROOT" describe --always --dirty 2>/dev/null || echo unknown), ${PERF_EVENT:-$(perf_event)} ${PERF_FREQUENCY:-199} Hz"
}

# The machine and the build, as lines of NAME=value. Of a container's process that is what runs in there.
describe_environment() {
    local program=$MILLRACE_BIN
    [ -z "${LOAD_COMPOSE:-}" ] || program=/proc/$LOAD_PID/exe
    echo "date=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo "commit=$(git -C "$REPO_ROOT" describe --always --dirty 2>/dev/null || echo unknown)"
    echo "binary=$program"
    echo "build_id=$(file -bL "$program" 2>/dev/null | sed -n 's/.*BuildID\[sha1\]=\([0-9a-f]*\).*/\1/p')"
    "$MILLRACE_PYTHON" "$REPO_ROOT/benchmarks/builds.py" "$program"
    echo "load_average=$(cut -d' ' -f1-3 /proc/loadavg)"
    echo "perf_event=${PERF_EVENT:-}"
    echo "perf_frequency=${PERF_FREQUENCY:-199}"
    echo "perf_event_paranoid=$(cat /proc/sys/kernel/perf_event_paranoid)"
    echo "kptr_restrict=$(cat /proc/sys/kernel/kptr_restrict)"
}

# The process of the slot's walsender; "none" where it can't be seen.
walsender_process() {
    local pid
    pid=$(pg -c "SELECT active_pid FROM pg_replication_slots WHERE slot_name = '${LOAD_NAME:-}'" 2>/dev/null || true)
    echo "${pid:-none}"
}
