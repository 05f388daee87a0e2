#!/usr/bin/env bash
# Usage: benchmarks/profile.sh TOOL [options] [options of millrace-load]
#        benchmarks/profile.sh stop|restore
#
# Runs millrace on the private stand under one tool with a small load, and writes
# results/<timestamp>-<tool>/. Each ends by itself.
#
#   flamegraph  perf for a steady load: flame.svg, folded.txt, perf-report.txt
#   strace      every system call: strace.log, strace-summary.txt
#   valgrind    massif, memory over time: massif.out, memory-profile.txt (ms_print)
#   callgrind   instructions by function: callgrind.out (for KCachegrind), callgrind.txt
#               (callgrind_annotate), instructions.json (profile-compare.sh reads it)
#   bpftrace    on-CPU stacks, allocations and system calls by eBPF: bpftrace-*.txt (root)
#   offcpu      where threads wait, weighed by how long: offcpu.svg, offcpu-folded.txt (root, tracefs)
#   heap        heaptrack: who asks for memory: heaptrack.zst, heap.txt, heap.svg
#
#   stop        ends a profile that runs, in order: its files are written
#   restore     takes away what a profile left that was killed (millrace, slot, database, topics)
#
#   --docker    the same in a container (Linux or macOS with Docker): nothing is installed on this machine. The first
#               time it builds there for some minutes; what it built stays in the volume millrace-profile
#   --out DIR   folder of the results      --seconds N, --rate N, --num-events N …: of the load
#   -h, --help  this text
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib/perf.sh"

RUNNING=$REPO_ROOT/results/.running
tool=${1:-}
[ $# -eq 0 ] || shift
case $tool in
    flamegraph | strace | valgrind | callgrind | bpftrace | offcpu | heap | stop | restore) ;;
    -h | --help) print_help "$0" && exit 0 ;;
    *) die "the first word is a tool; try --help" ;;
esac
out="" docker=no arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --out) need_value "$@" && out=$(absolute_path "$2") && shift ;;
        --docker) docker=yes ;;
        -h | --help) print_help "$0" && exit 0 ;;
        *) arguments+=("$1") ;;
    esac
    shift
done

# .running holds what stop and restore need: this script's process, millrace's, and the name of all it made.
running() { sed -n "s/^$1=//p" "$RUNNING" 2>/dev/null; }
is_ours() { [ -n "$1" ] && { tr '\0' ' ' <"/proc/$1/cmdline" | grep -q "$2"; } 2>/dev/null; }
gone() { ! is_ours "$1" "$2"; }

stop_running() {
    local script
    script=$(running script)
    is_ours "$script" profile.sh || { say "no profile runs" && return; }
    kill -TERM "$script"
    wait_for 300 gone "$script" profile.sh || die "it does not end; try: benchmarks/profile.sh restore"
    say "stopped"
}

restore() {
    [ -e "$RUNNING" ] || { say "nothing to restore" && return; }
    local script
    script=$(running script)
    ! is_ours "$script" profile.sh || die "a profile runs (process $script); end it with: benchmarks/profile.sh stop"
    stand_up
    LOAD_NAME=$(running name) LOAD_CHILD=$(running child) LOAD_PID=$(running pid)
    is_ours "$LOAD_CHILD" millrace || LOAD_CHILD=""
    ! is_ours "$(running load)" "$LOAD_NAME" || kill -KILL "$(running load)"
    daemon_remove
    rm -f "$RUNNING"
    say "restored"
}

# A container of its own, with its own PostgreSQL, Kafka and build: the daemon under a tool is started by that tool, which a
# container that runs already can't do. Sources are copied, so that nothing of this machine's build is touched.
in_docker() {
    need_command docker "install Docker, or leave --docker out: the private stand needs none"
    mkdir -p "$out"
    exec docker run --rm --init --cap-add PERFMON --cap-add SYS_PTRACE --security-opt seccomp=unconfined \
        -v "$REPO_ROOT:/millrace:ro" -v millrace-profile:/work -v "$out:/results" -w /work "${MILLRACE_PROFILE_IMAGE:-debian:12}" \
        bash -euc '
            tar -C /millrace --exclude=./build --exclude=./results --exclude="./.stand*" -c . | tar -x
            scripts/setup.sh --all
            cmake --preset release && cmake --build --preset release
            exec benchmarks/profile.sh "$@" --out /results' profile.sh "$tool" "${arguments[@]}"
}

if [ "$docker" = yes ]; then
    case $tool in stop | restore) die "end it with Ctrl-C: a container leaves nothing behind" ;; esac
    out=${out:-$(results_folder "$tool")}
    in_docker
fi

case $tool in
    stop) stop_running && exit 0 ;;
    restore) restore && exit 0 ;;
esac

LOAD_PROGRAM=$(built_program millrace-load)
MILLRACE_BIN=${MILLRACE_BIN:-$(built_program millrace)}
LOAD_COMMAND=()
TRACE_PID="" load=""
case $tool in
    flamegraph | offcpu) need_perf ;;
    valgrind | callgrind) need_command valgrind ;;
    strace) need_command strace ;;
    bpftrace) need_command bpftrace "apt-get install bpftrace" ;;
    heap) need_command heaptrack "apt-get install heaptrack" ;;
esac
case $tool in
    offcpu | bpftrace) is_root || die "$tool reads the kernel's events: run it as root" ;;
esac
[ "$tool" != offcpu ] || [ -e /sys/kernel/tracing/events/sched ] || mount -t tracefs tracefs /sys/kernel/tracing ||
    die "the kernel's events are not mounted: mount -t tracefs tracefs /sys/kernel/tracing"
if [ -e "$RUNNING" ]; then
    is_ours "$(running script)" profile.sh && die "a profile runs already; end it with: benchmarks/profile.sh stop"
    restore
fi
out=${out:-$(results_folder "$tool")}
mkdir -p "$out" "$REPO_ROOT/results"
need_disk 2000 "$out"

# shellcheck disable=SC2317 # the trap calls it
finish() {
    trap - EXIT INT TERM
    interrupt_and_wait "$load"
    perf_detach
    interrupt_and_wait "$TRACE_PID"
    daemon_remove
    rm -f "$RUNNING"
}
trap finish EXIT
trap 'say "interrupted: ending the load"; [ -z "$load" ] || kill -INT "$load" 2>/dev/null || true' INT TERM

start() {
    daemon_start "$out" 1
    printf 'script=%s\nchild=%s\npid=%s\nname=%s\n' $$ "$LOAD_CHILD" "$LOAD_PID" "$LOAD_NAME" >"$RUNNING"
    describe_environment >"$out/env.txt"
}

# put_load DEFAULTS...: what the user gave comes last and counts.
put_load() {
    # Under valgrind the program is sixty times slower.
    setsid "$LOAD_PROGRAM" steady "${LOAD_ARGUMENTS[@]}" --drain-limit 120 "$@" "${arguments[@]}" \
        --json "$out/load.json" >"$out/load.txt" &
    load=$!
    echo "load=$load" >>"$RUNNING"
    while kill -0 "$load" 2>/dev/null; do wait "$load" || true; done
    load=""
    cat "$out/load.txt"
}

run_flamegraph() {
    start
    perf_attach "$out/perf.data" "$LOAD_PID"
    put_load --seconds 15
    perf_detach
    daemon_remove
    perf_results "$out" "millrace, steady"
}

run_strace() {
    LOAD_COMMAND=(strace -f -tt -T -e trace=all -s 256 -o "$out/strace.log")
    start
    put_load --rate 1000 --seconds 5
    daemon_stop
    # Calls and errors by name, from the log.
    sed -n -e 's/^[0-9]* *[0-9:.]* \([a-z_0-9]*\)(.*<\([0-9.]*\)>$/\1 \2/p' \
        -e 's/^[0-9]* *[0-9:.]* <\.\.\. \([a-z_0-9]*\) resumed>.*<\([0-9.]*\)>$/\1 \2/p' "$out/strace.log" |
        awk '{ n[$1]++; t[$1] += $2 } END { for (i in n) printf "%12.6f s %9d %s\n", t[i], n[i], i }' |
        sort -rn >"$out/strace-summary.txt"
    head -12 "$out/strace-summary.txt"
}

run_valgrind() {
    LOAD_COMMAND=(valgrind --quiet --tool=massif "--massif-out-file=$out/massif.out" --time-unit=B
        --detailed-freq=10 --max-snapshots=100 --threshold=0.5)
    start
    put_load --rate 500 --num-events 5000
    daemon_stop
    ms_print "$out/massif.out" >"$out/memory-profile.txt"
    sed -n 1,35p "$out/memory-profile.txt"
}

run_callgrind() {
    LOAD_COMMAND=(valgrind --quiet --tool=callgrind "--callgrind-out-file=$out/callgrind.out" --dump-instr=yes
        --dump-line=yes --collect-jumps=yes --cache-sim=yes --branch-sim=yes --compress-strings=no
        --fair-sched=yes)
    start
    put_load --rate 500 --num-events 5000 --mix 100,0,0
    daemon_stop
    callgrind_annotate --auto=no --threshold=99 "$out/callgrind.out" >"$out/callgrind.txt"
    "$MILLRACE_PYTHON" "$here/profile_tools.py" instructions "$out" >"$out/instructions.json"
    sed -n '/Ir /,$p' "$out/callgrind.txt" | cut -c1-20,140- | sed -n 1,25p
}

run_bpftrace() {
    start
    local libc
    libc=$(ldd "$MILLRACE_BIN" | awk '/libc\.so/ { print $3 }')
    bpftrace -e "profile:hz:99 /pid == $LOAD_PID/ { @oncpu[comm, ustack(8)] = count(); }
        uprobe:$libc:malloc /pid == $LOAD_PID/ { @mallocs[comm] = count(); @bytes[comm] = hist(arg0); }
        tracepoint:raw_syscalls:sys_enter /pid == $LOAD_PID/ { @syscalls[comm, args->id] = count(); }" \
        >"$out/bpftrace.txt" 2>"$out/bpftrace.log" &
    TRACE_PID=$!
    wait_for 30 grep -q Attaching "$out/bpftrace.txt" "$out/bpftrace.log" ||
        die "bpftrace does not attach: $(tail -n 3 "$out/bpftrace.log")"
    put_load --seconds 10
    kill -INT "$TRACE_PID"
    wait "$TRACE_PID" || true
    TRACE_PID=""
    echo "(stacks follow frame pointers: ours are whole, libraries' end early)" >>"$out/bpftrace.txt"
    tail -n 30 "$out/bpftrace.txt"
}

run_offcpu() {
    start
    PERF_EVENT=sched:sched_switch
    perf_attach "$out/perf.data" "$LOAD_PID"
    put_load --rate 1000 --seconds 5
    perf_detach
    daemon_remove
    perf script -f -i "$out/perf.data" --no-inline -F comm,tid,time,event,ip,sym,symoff,dso --show-kernel-path \
        --show-switch-events 2>/dev/null | "$MILLRACE_PYTHON" "$here/offcpu.py" >"$out/offcpu-folded.txt"
    "$(built_program millrace-flame)" svg --unit µs --title "millrace, where threads wait, by time" \
        --subtitle "$(flame_subtitle)" "$out/offcpu-folded.txt" >"$out/offcpu.svg"
    sort -t ' ' -k 1 "$out/offcpu-folded.txt" | awk '{ split($0, at, ";"); waits[at[1]] += $NF }
        END { for (thread in waits) printf "%10.3f s  %s\n", waits[thread] / 1e6, thread }' | sort -rn
}

run_heap() {
    LOAD_COMMAND=(heaptrack -o "$out/heaptrack")
    start
    put_load --rate 2000 --seconds 5
    daemon_stop
    local data
    data=$(compgen -G "$out/heaptrack*.*st" || compgen -G "$out/heaptrack*.gz") || die "heaptrack wrote nothing"
    heaptrack_print -f "$data" -F "$out/heap-folded.txt" >"$out/heap.txt"
    "$(built_program millrace-flame)" svg --unit allocations --title "millrace, who asks for memory" \
        "$out/heap-folded.txt" >"$out/heap.svg"
    tail -n 12 "$out/heap.txt"
}

"run_$tool"
say "results: $out"
