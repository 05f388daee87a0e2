"""What a profile says, in words. Each rule looks at one thing, and test_advice.py has a profile that fires it and one that
does not.

Where the limits come from: docs/dev/profiling.md, the table "when all is well". A share of a stage counts without
the time that a thread only polled, for that is as much as there was time."""

import re

WAIT = re.compile(r"^(__)?(poll|ppoll|poll_schedule_timeout|do_sys_poll|do_poll|(do_)?epoll_wait|__x64_sys_epoll_wait|"
                  r"ep_(poll|item_poll|send_events|done_scan)\w*|__x64_sys_p?poll|sock_poll|tcp_poll|udp_poll|"
                  r"datagram_poll|pipe_poll|eventfd_poll|fdget|__fget_light|__fdget|clock_gettime|__vdso_clock_gettime|vdso_clock_gettime|"
                  r"__cvdso_clock_gettime|pvclock_\w+|rd_clock|entry_SYSCALL_64\w*|syscall_\w+|do_syscall_64|__x64_sys_clock_gettime|"
                  r"finish_task_switch|schedule|__schedule|rd_kafka_transport_poll|rd_kafka_broker_ops_io_serve)(\.\w+)*( \[.*\])?$")
# What else librdkafka's threads do in such a turn; other threads have reasons of their own for these.
TURN = re.compile(r"^((__)?(GI_)?_*pthread_(mutex_(un)?lock\w*|(en|dis)able_asynccancel|rwlock_\w+)(@\S+)?|mtx_(un)?lock|fput\w*|"
                  r"rd_kafka_(transport_io_serve|broker_serve\w*|toppar_producer_serve|broker_producer_serve|q_len|timers_run)|"
                  r"rd_kafka_broker_(bufq|weighted)\w*|__sysvec_apic\w*|asm_sysvec_apic\w*)(\.\w+)*( \[.*\])?$")
LOCK = re.compile(r"^(futex\w*|__futex\w*|do_futex|__x64_sys_futex|native_queued_spin_lock_slowpath|\w*lll_lock_wait\w*|"
                  r"hash_futex|osq_lock)(\.\w+)*( \[.*\])?$")
FAULT = re.compile(r"^(asm_exc_page_fault|exc_page_fault|handle_mm_fault|__handle_mm_fault|do_user_addr_fault|do_anonymous_page|"
                   r"clear_page\w*|get_page_from_freelist|error_entry|sync_regs|unmap_page_range|zap_\w+)(\.\w+)*( \[.*\])?$")
CODEC = re.compile(r"^(LZ4|ZSTD|HUF_|FSE_|snappy|rd_kafka_snappy|deflate|longest_match|fill_window|compress_block)")
COPY = re.compile(r"^(_*mem(cpy|move)\w*|copy_user\w*|_copy_(from|to)_(iter|user)|rep_movs\w*|rd_buf_write)( \[.*\])?$")
CHECK = re.compile(r"^(rd_)?crc32c?\w*|^crc32_\w+")


def is_polling(row):
    return bool(WAIT.match(row["name"]) or (row["stage"] == "flush" and TURN.match(row["name"])))


def matching(profile, pattern):
    """Rows of these functions; None: of polling."""
    return [row for row in profile["functions"] if (is_polling(row) if pattern is None else pattern.match(row["name"]))]


def share(profile, pattern):
    """The part of all samples whose function on top is one of these."""
    found = sum(row["self"] for row in matching(profile, pattern))
    return 100.0 * found / profile["total"] if profile["total"] else 0.0


def widest(rows):
    return ", ".join(f"`{row['name']}`" for row in sorted(rows, key=lambda row: -row["self"])[:3] if row["self"])


def work_share(profile, stage):
    """A stage's share of what is no polling."""
    polling = {}
    for row in matching(profile, None):
        polling[row["stage"]] = polling.get(row["stage"], 0) + row["self"]
    work = profile["total"] - sum(polling.values())
    return 100.0 * (profile["stages"][stage] - polling.get(stage, 0)) / work if work > 0 else 0.0


# By function: (name, functions, limit in percent of all samples, what to do).
BY_FUNCTION = (
    ("spinning", None, 25, "A thread polls without waiting: it asks for the time and for news as often as it can. Its share is no "
     "work, and grows with whatever time there is. The usual one is librdkafka's (`rdk:broker…` in the flame graph) while it "
     "holds records back for a larger request; judge by what an event costs, not by shares."),
    ("locks", LOCK, 5, "Threads wait for each other's locks. Look in the flame graph who is below: librdkafka's queues are shared by "
     "the sink thread and the brokers' threads."),
    ("page faults", FAULT, 5, "Memory is given back and asked for again: page faults. {trim} is too small for this load, or "
     "the pool grows; see `profile.sh heap`."),
    ("compression", CODEC, 15, "Compression is wide. Try another `sink.kafka.compression` (lz4 costs the least, zstd packs best, none "
     "where the network is free)."),
    ("copying", COPY, 12, "Copying is wide: rows are large, or requests are put together from many small records. Fewer columns, "
     "`pipeline.latency`, or replica identity DEFAULT in place of FULL."),
    ("checksums", CHECK, 5, "Checksums are wide: librdkafka computes CRC32C in software. A processor with SSE4.2, or a librdkafka "
     "that uses it, makes it a tenth."),
)

# By stage: limit in percent of the work, and what to do.
BY_STAGE = {
    "receive": (30, "The socket and libpq: many small messages cost the most. Fewer columns in the publication (column lists), "
                    "replica identity DEFAULT in place of FULL, larger transactions at the writer, a larger `pipeline.latency`."),
    "decode": (8, "Decoding pgoutput: many columns, or relations that change all the time. Publish fewer columns."),
    "encode": (20, "Encoding: see in the flame graph which type's writer is wide. Fewer or narrower columns, replica identity "
                   "DEFAULT (no `before` image)."),
    "produce": (40, "Handing over to librdkafka: headers, its queue, its locks. Many small records cost the most; more rows a "
                    "transaction do not help here, larger ones do."),
    "flush": (65, "librdkafka's threads: requests, compression, checksums, the socket. A larger `pipeline.latency`, another "
                  "compression where a codec's functions are wide."),
    "acknowledge": (25, "Delivery reports and the window. Larger batches make fewer; see which function is wide."),
    "malloc": (10, "The allocator is busy, though the flow asks for no memory of its own: see whose frames are below it. "
                   "librdkafka's messages are the usual ones; {other}"),
}

# By what is linked (env.txt): what to try against it.
ALLOCATORS = {"jemalloc": "the C library's allocator may cost less (`-DMILLRACE_JEMALLOC=OFF`).",
              "libc": "try jemalloc (`-DMILLRACE_JEMALLOC=ON`) against the C library's.",
              "": "try jemalloc against the C library's allocator, whichever it is not."}
FAULTS = {"jemalloc": "jemalloc's `dirty_decay_ms`", "libc": "`M_TRIM_THRESHOLD`",
          "": "`M_TRIM_THRESHOLD` or jemalloc's `dirty_decay_ms`"}

# Where millrace waits for somebody: (name, figure of env.txt or metrics, limit, sentence).
WALSENDER_BUSY, BACKPRESSURE = 0.80, 0.20


def by_wait(found):
    env, busy = found["env"], None
    if float(env.get("walsender_busy", 0) or 0) >= WALSENDER_BUSY:
        busy = float(env["walsender_busy"])
        yield ("walsender", f"- **PostgreSQL is the wall**: the walsender used {busy:.0%} of a core, and decodes a slot on one. "
               "Fewer published tables and columns, or two slots with a millrace each.")
    held = float(env.get("backpressure", 0) or 0)
    if held >= BACKPRESSURE and busy is None:
        yield ("broker", f"- **The brokers are the wall**: for {held:.0%} of the time every batch was in flight. Look at the brokers' "
               "disks, network and replication; more partitions; a larger `pipeline.batch_size` where the round trip is long.")


def allocator_of(found):
    """The first word of "jemalloc 5.3.0" or "libc"; "": not known."""
    word = found["env"].get("allocator", "").partition(" ")[0]
    return word if word in ALLOCATORS else ""


def rules(found):
    """(name, sentence) of every rule that fires."""
    profile, allocator = found["profile"], allocator_of(found)
    for name, pattern, limit, text in BY_FUNCTION:
        part = share(profile, pattern)
        if part >= limit:
            text = text.replace("{trim}", FAULTS[allocator])
            yield name, f"- **{name}**: {part:.1f} % of all samples (limit {limit} %). {text} Widest: {widest(matching(profile, pattern))}."
    for stage, (limit, text) in BY_STAGE.items():
        part = work_share(profile, stage)
        if part >= limit:
            text = text.replace("{other}", ALLOCATORS[allocator])
            yield stage, (f"- **{stage}** is {part:.1f} % of the work (limit {limit} %). {text} Widest there: "
                          f"{widest(row for row in profile['functions'] if row['stage'] == stage and not is_polling(row))}.")
    yield from by_wait(found)


def largest_stage(profile):
    """By the share that the table of stages has; where that is polling, the largest of the work is another."""
    shares = {stage: 100.0 * samples / profile["total"] for stage, samples in profile["stages"].items()}
    largest, worker = max(shares, key=shares.get), max(BY_STAGE, key=lambda stage: work_share(profile, stage))
    said = f"The largest stage is **{largest}** with {shares[largest]:.1f} % of {profile['total']} samples"
    if worker == largest or largest not in BY_STAGE:
        return f"{said}."
    polled = 100.0 * sum(row["self"] for row in matching(profile, None) if row["stage"] == largest) / profile["total"]
    return (f"{said}, {polled:.1f} % of them polling for news; of the work without polling it is **{worker}** with "
            f"{work_share(profile, worker):.1f} %.")


def advise(found):
    """The sentences."""
    profile = found["profile"]
    if not profile["total"]:
        yield "- There is no sample, so nothing can be said."
        return
    yield largest_stage(profile)
    fired = [sentence for _, sentence in rules(found)]
    yield from fired or ["- Nothing passes its limit: the work is spread as it is when all is well."]
