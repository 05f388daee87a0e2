/* What a transaction says of itself: it becomes headers of the records that come after it in that
 * transaction.
 *
 * The application says it with pg_logical_emit_message(true, 'millrace.context',
 * '{"traceparent":"00-…","user":"u-17"}'). The content is one object of strings, or nulls, which
 * count as not there; members that are not named are passed over. Any role that may connect can
 * write such a message, so one that is anything else is dropped whole, and changes nothing. The
 * decoder's thread. */
#pragma once

#include "event/headers.h"

#define MR_CONTEXT_PREFIX "millrace.context"

enum {
    MR_CONTEXT_NAMES_MAX = 16,
    MR_CONTEXT_NAME_MAX = 64,
    MR_CONTEXT_BYTES_MAX = 4096, /* of a content; each record of the transaction has it */
};

/* What became of a message with that prefix. */
enum mr_context_outcome {
    MR_CONTEXT_TAKEN,
    MR_CONTEXT_ALONE, /* not transactional: it belongs to no rows */
    MR_CONTEXT_TOO_LARGE,
    MR_CONTEXT_MALFORMED,
    MR_CONTEXT_OUTCOMES
};

struct mr_context {
    const char *const *names; /* that are let through, the caller's; each is a header's */
    uint32_t name_count;      /* 0: nothing is a context */
    uint8_t room[2][MR_CONTEXT_BYTES_MAX]; /* what counts, and what comes to be */
    unsigned at;
};

/* Reads a content: taken, too large or malformed. Only if it is taken, `*ret_headers` is what each
 * record has, as event/headers.h writes headers: the context's, and good until another one is
 * taken. No allocation. */
enum mr_context_outcome mr_context_read(struct mr_context *context, mr_slice content,
                                        mr_slice *ret_headers);
