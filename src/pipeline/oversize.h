/* The policy for changes that are too large, as the source thread applies it: when it holds, what is put in their
 * place, and how that is told. Inside pipeline/ only; source thread. */
#ifndef MR_PIPELINE_OVERSIZE_H
#define MR_PIPELINE_OVERSIZE_H

#include <stdatomic.h>

#include "encode/encode.h"
#include "sink/sink.h"

enum { MR_REFUSED_MAX = 64 };

/* Records that the sink refused as too large although they were within the limit. Filled by the sink thread; the
 * source thread copies it when it follows to the next session. */
struct mr_refused_list {
    struct mr_sink_refusal items[MR_REFUSED_MAX];
    uint32_t count; /* ever; the latest MR_REFUSED_MAX are kept */
};

/* Adds one, or lowers what it is known to be too large with. Sink thread. */
void mr_refused_add(struct mr_refused_list *list, const struct mr_sink_refusal *refusal);

struct mr_oversizer {
    struct mr_encoder *encoder;
    enum mr_oversize policy;
    size_t limit;                   /* of a record as it comes; SIZE_MAX: none */
    size_t placed_limit;            /* of one that takes its place */
    struct mr_refused_list refused; /* of the sessions before */
    _Atomic uint64_t *counts;       /* by policy; the pipeline's */
    int64_t told_ns;                /* when the log was told last, */
    uint64_t untold;                /* and how many there were since */
};

void mr_oversizer_init(struct mr_oversizer *oversizer, struct mr_encoder *encoder,
                       size_t change_bytes_max, _Atomic uint64_t *counts);

/* Whether the policy is for this item. One comparison a record. */
bool mr_oversizer_refused(const struct mr_oversizer *oversizer, struct mr_position position);
static inline bool mr_oversizer_applies(const struct mr_oversizer *oversizer,
                                        const struct mr_record *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (MR_UNLIKELY((size_t)records[i].key_len + records[i].value_len > oversizer->limit)) {
            return true;
        }
    }
    return MR_UNLIKELY(oversizer->refused.count > 0) && count > 0 &&
           mr_oversizer_refused(oversizer, records[0].position);
}

/* Encodes what the policy puts in the item's place. `ret_records` and `ret_count` hold the records that are too large
 * when it begins; none: it fits no block. As mr_encode_oversize; MR_ERR_POISON if the policy is to fail. */
mr_status mr_oversizer_encode(struct mr_oversizer *oversizer, const struct mr_item *item,
                              struct mr_buffer *buffer, struct mr_record *ret_records,
                              uint32_t *ret_count, struct mr_error *ret_error);

/* The item was put into a batch in another form: counted, and told once a second at most. */
void mr_oversizer_note(struct mr_oversizer *oversizer, const struct mr_item *item);

#endif
