/* Linked over mr_encode_change (--wrap): the same result after needless work, as many turns a change as
 * MILLRACE_SLOWDOWN says. tests/test_profiling.py must find and name it in millrace-slow, and the gate of
 * benchmarks/micro.sh must refuse it in millrace-micro-slowed. */
#include <stdlib.h>

#include "encode/encode.h"

#ifndef SLOWDOWN_TURNS /* without the variable */
#define SLOWDOWN_TURNS 0
#endif

mr_status __real_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error);
mr_status __wrap_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error);

mr_status __wrap_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error)
{
    static int turns = -1;
    if (turns < 0) {
        const char *text = getenv("MILLRACE_SLOWDOWN");
        turns = text == NULL ? SLOWDOWN_TURNS : atoi(text);
    }
    for (volatile int i = 0; i < turns; i++) {
    }
    return __real_mr_encode_change(encoder, change, buffer, ret_records, ret_count, ret_error);
}
