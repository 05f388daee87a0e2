/* How large a request may be: by how far away brokers are, and by what they take. Pure; the sink
 * thread's.
 *
 * A partition has one request on its way at a time (kafka_send.c). Near by it is answered within
 * some milliseconds, and the usual size keeps up with all that a stream can send. From there on it
 * may be larger in the measure of the distance: what a round trip takes is made good by what sets
 * out in it. Of the answers of late the fastest counts, for a slow one tells of a busy machine.
 *
 * Brokers bound a request by what is left of it once it is compressed. So the size is doubled while
 * the largest request that was sent of late would be within that, were it twice as large. */
#pragma once

#include "ports/sink.h"

enum {
    MR_FAR_MS = 8,         /* from here on a broker is far away, */
    MR_FAR_MS_FOR_ONE = 4, /* and for each of these as much again is on its way */
    MR_FAR_WINDOW_MS = 10000,
    MR_FAR_SETTLED_MS = 250, /* the first answers wait for what a broker makes */
};

/* 0: nothing is known. */
struct mr_far_window {
    int64_t fastest_ns; /* answer */
    size_t sent;        /* of the largest request, as it was sent */
};

struct mr_far {
    size_t near;    /* bytes of a request, before compression: at first and near by, */
    size_t most;    /* wherever brokers are; `near`, or less: there is no more, */
    size_t allowed; /* now, for all that is known of compression, */
    size_t taken;   /* and what brokers take, after it */
    int64_t since_ns;
    bool settled;
    struct mr_far_window window, before;
};

static inline void mr_far_init(struct mr_far *far, size_t near, size_t most, size_t taken)
{
    *far = (struct mr_far){.near = near, .most = most, .allowed = near, .taken = taken};
}

static inline int64_t mr_far_ms(const struct mr_far *far)
{
    int64_t before_ns = far->before.fastest_ns == 0 ? INT64_MAX : far->before.fastest_ns;
    int64_t ns = far->window.fastest_ns;
    return (ns < before_ns ? ns : before_ns) / 1000000;
}

/* What near by is one. */
static inline uint32_t mr_far_times(const struct mr_far *far)
{
    int64_t ms = mr_far_ms(far);
    int64_t times = ms < MR_FAR_MS || !far->settled ? 1 : ms / MR_FAR_MS_FOR_ONE;
    return times < MR_SINK_TIMES_MAX ? (uint32_t)times : MR_SINK_TIMES_MAX;
}

/* Bytes of a request, before compression. */
static inline size_t mr_far_bytes(const struct mr_far *far)
{
    size_t bytes = far->near * mr_far_times(far);
    return bytes < far->allowed ? bytes : far->allowed;
}

/* A request was answered at `now_ns`, after `took_ns`; `full`: it was as large as it might be.
 * `sent`: the largest since the last time, as it was sent; 0: none was. */
static inline void mr_far_note(struct mr_far *far, int64_t now_ns, int64_t took_ns, size_t sent,
                               bool full)
{
    struct mr_far_window *window = &far->window;
    if (now_ns - far->since_ns > MR_FAR_WINDOW_MS * INT64_C(1000000)) {
        far->before = *window;
        *window = (struct mr_far_window){0};
        far->since_ns = now_ns;
    }
    window->fastest_ns =
        window->fastest_ns == 0 || took_ns < window->fastest_ns ? took_ns : window->fastest_ns;
    far->settled |= now_ns - far->since_ns > MR_FAR_SETTLED_MS * INT64_C(1000000);
    window->sent = sent > window->sent ? sent : window->sent;
    size_t largest = window->sent > far->before.sent ? window->sent : far->before.sent;
    if (largest > far->taken && far->allowed > far->near) {
        far->allowed /= 2;
        window->sent = far->before.sent = far->taken / 2;
    } else if (full && largest > 0 && largest <= far->taken / 2 && 2 * far->allowed <= far->most &&
               far->allowed < far->near * mr_far_times(far)) {
        far->allowed *= 2;
        window->sent = 2 * largest;
    }
}

/* A broker takes no requests as large as they are. */
static inline void mr_far_refused(struct mr_far *far)
{
    size_t bytes = mr_far_bytes(far);
    if (bytes > far->near) {
        far->most = bytes / 2;
    } else {
        far->most = far->near /= 2;
    }
    far->allowed = far->near;
}
