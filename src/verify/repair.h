/* Has the running millrace repair what a proof has named: rows are sent once more, and phantoms
 * deleted, beside the stream and never over what is newer (copy/chunk_keys.h says how). Nothing is
 * asked for that was not printed before. Main thread. */
#pragma once

#include "verify/proof.h"

/* What came of it. */
struct mr_repair {
    uint32_t asked;             /* keys that it was asked for */
    uint64_t sent, passed_over; /* of them; the others are newer in the stream, or right by now */
    struct mr_error fault;      /* why that is not all; MR_OK: it is */
};

/* Why no key of the table can be asked for, in parts; the first is NULL: each can. */
const char *mr_repair_refusal(const struct mr_verify_table *table, const char **ret_column);

/* Says in the proof whether the table's keys can be asked for, and how. */
void mr_repair_judge(const struct mr_verify_table *table, const struct mr_encode_options *encode,
                     struct mr_proof *proof);

/* Of what counts as different, or, where nothing does, of rows with values that no event has.
 * Without options->yes it only says what it would do. MR_AGAIN: interrupted; another error: there
 * is no millrace that takes it. */
mr_status mr_repair(const struct mr_verify_tools *tools, const struct mr_proof *proof,
                    struct mr_repair *ret, struct mr_error *ret_error);

void mr_repair_print(const struct mr_verify_tools *tools, const struct mr_proof *proof,
                     const struct mr_repair *repair, FILE *to);
