/* An encoder that costs a few instructions more an event, put in the place of the real one by the linker: what
 * the gate's own test wants caught. */
#include "encode/encode.h"

enum { EXTRA_STEPS = 20 };

/* Names that the linker's --wrap gives. */
mr_status __wrap_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error);
mr_status __real_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error);

mr_status __wrap_mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count, struct mr_error *ret_error)
{
    for (volatile int i = 0; i < EXTRA_STEPS; i++) {
    }
    return __real_mr_encode_change(encoder, change, buffer, ret_records, ret_count, ret_error);
}
