/* The policy for changes that are too large, as the source thread applies it: when it holds, what is put in their
 * place, and how that is told. Inside pipeline/ only; source thread. */
#ifndef MR_PIPELINE_OVERSIZE_H
#define MR_PIPELINE_OVERSIZE_H

#include <stdatomic.h>

#include "encode/encode.h"
#include "sink/sink.h"

enum { MR_REFUSED_MAX = 64 };

/* Records that the sink refused as too large although they were within the limit, and that are to come again. One
 * by one; where that are too many, every record of some size counts as one of them. Filled by the sink thread; the
 * source thread copies it when it follows to the next session. */
struct mr_refused_list {
    struct mr_sink_refusal items[MR_REFUSED_MAX];
    uint32_t count;
    size_t all_from;    /* the size, in bytes; 0: only the items count */
    size_t copied_from; /* the same for copied rows, whose positions are others in each attempt */
    mr_lsn until;       /* the last transaction that has one */
};

/* Adds one, or lowers what it is known to be too large with, and forgets what is behind `confirmed`. False when that
 * was not the next step of few: who comes again is to wait longer. Sink thread. */
bool mr_refused_add(struct mr_refused_list *list, const struct mr_sink_refusal *refusal,
                    mr_lsn confirmed);

struct mr_oversizer {
    struct mr_encoder *encoder;
    bool copies; /* existing rows */
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

/* The sink refused these records in an earlier session. Forgets the refusals once all of them are behind. */
bool mr_oversizer_refused(struct mr_oversizer *oversizer, const struct mr_record *records,
                          uint32_t count);

/* Whether the policy is for this item. One comparison a record, and another one an item; as long as refused records
 * are to come again, a search. */
static inline bool mr_oversizer_applies(struct mr_oversizer *oversizer,
                                        const struct mr_record *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (MR_UNLIKELY(mr_record_bytes(&records[i]) > oversizer->limit)) {
            return true;
        }
    }
    return MR_UNLIKELY(oversizer->refused.count + oversizer->refused.copied_from > 0) &&
           count > 0 && mr_oversizer_refused(oversizer, records, count);
}

/* Encodes what the policy puts in the item's place. `ret_records` and `ret_count` hold the records that are too large
 * when it begins; none: it fits no block. As mr_encode_oversize; MR_ERR_POISON if the policy is to fail. */
mr_status mr_oversizer_encode(struct mr_oversizer *oversizer, const struct mr_item *item,
                              struct mr_buffer *buffer, struct mr_record *ret_records,
                              uint32_t *ret_count, struct mr_error *ret_error);

/* The item was put into a batch in another form: counted, and told once a second at most. */
void mr_oversizer_note(struct mr_oversizer *oversizer, const struct mr_item *item);

#endif
