/* What a person finds a row by whose change can't be passed on: errors and logs hold no values of
 * rows unless they may. */

#include "base/sha256.h"
#include "encode/values/row.h"

enum { KEY_BYTES_MAX = 64 * 1024, PLAIN_BYTES_MAX = 200 };

/* The key as an object; false where it is not known. */
static bool row_name_write_key(struct mr_encoder *encoder, const struct mr_change *change,
                               struct mr_buffer *out)
{
    struct mr_plan *plan;
    struct mr_error ignored;
    bool ends = change->after.kind == MR_TUPLE_NONE;
    const struct mr_tuple *row = ends ? &change->before : &change->after;
    if (row->kind == MR_TUPLE_NONE ||
        mr_plan_for(encoder, change->relation, &plan, &ignored) != MR_OK || plan->key.count == 0) {
        return false;
    }
    encoder->fault.what = NULL;
    mr_row_key_object(out, encoder, plan, row, ends ? NULL : &change->before);
    bool known = encoder->fault.what == NULL && !out->full;
    encoder->fault.what = NULL;
    return known;
}

void mr_encode_row_name(struct mr_encoder *encoder, const struct mr_change *change,
                        char ret[MR_ROW_NAME_MAX])
{
    MR_FREED uint8_t *bytes = MR_ALLOC(KEY_BYTES_MAX);
    struct mr_buffer out = mr_buffer_init(bytes, KEY_BYTES_MAX);
    ret[0] = '\0';
    if (row_name_write_key(encoder, change, &out)) {
        mr_slice key = {.data = bytes, .len = (size_t)(out.at - bytes)};
        if (encoder->options.tells_keys && key.len <= PLAIN_BYTES_MAX) {
            snprintf(ret, MR_ROW_NAME_MAX, "with key %.*s", (int)key.len, (const char *)key.data);
        } else {
            snprintf(ret, MR_ROW_NAME_MAX, "whose key has SHA-256 %s…", mr_sha256_short(key).text);
        }
    }
}
