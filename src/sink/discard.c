/* Counts and drops: what a benchmark of everything before the sink wants. */
#include <stdlib.h>

#include "sink/file.h"

struct discard_sink {
    struct mr_sink base;
    mr_sink_done_fn done;
    void *done_context;
};

static mr_status discard_open(struct mr_sink *sink, mr_sink_done_fn done, void *context,
                              int wake_fd, int stop_fd, struct mr_error *ret_error)
{
    (void)wake_fd;
    (void)stop_fd;
    (void)ret_error;
    struct discard_sink *discard = (struct discard_sink *)sink;
    discard->done = done;
    discard->done_context = context;
    return MR_OK;
}

static mr_status discard_send(struct mr_sink *sink, struct mr_batch *batch,
                              struct mr_error *ret_error)
{
    (void)ret_error;
    struct discard_sink *discard = (struct discard_sink *)sink;
    discard->done(discard->done_context, batch);
    return MR_OK;
}

static mr_status discard_poll(struct mr_sink *sink, struct mr_error *ret_error)
{
    (void)sink;
    (void)ret_error;
    return MR_OK;
}

static int discard_timeout_ms(const struct mr_sink *sink)
{
    (void)sink;
    return -1;
}

static void discard_close(struct mr_sink *sink)
{
    (void)sink;
}

static void discard_free(struct mr_sink *sink)
{
    free(sink);
}

struct mr_sink *mr_discard_sink_new(void)
{
    static const struct mr_sink_ops ops = {
        .name = "discard",
        .open = discard_open,
        .send = discard_send,
        .poll = discard_poll,
        .timeout_ms = discard_timeout_ms,
        .close = discard_close,
        .free = discard_free,
    };
    struct discard_sink *discard = MR_NEW(struct discard_sink);
    discard->base.ops = &ops;
    return &discard->base;
}
