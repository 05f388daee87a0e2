/* Debezium's events with their schemas, `{"schema":{…},"payload":…}`: keys, values, or both. The
 * schemas are connect.c's. Rows without an envelope are bare.c's. Keys and values are alike,
 * whichever of them has its schema. */
#include "encode/forms/connect.h"
#include "encode/forms/skeleton.h"
#include "encode/values/put.h"

static bool wrapped_has(const struct mr_encoder *encoder, enum mr_json_schemas part)
{
    return (encoder->options.json_schemas & part) != 0;
}

void mr_wrapped_key(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_tuple *row, const struct mr_tuple *old)
{
    if (MR_UNLIKELY(encoder->placing.writes_letter)) {
        mr_row_key_object(out, encoder, plan, row, old);
        return;
    }
    bool wraps = wrapped_has(encoder, MR_JSON_KEY_SCHEMA);
    mr_connect_begin(out, wraps, plan->connect->key);
    out->is_typed = true;
    mr_row_key_object(out, encoder, plan, row, old);
    out->is_typed = false;
    mr_connect_end(out, wraps);
}

static void wrapped_put_value(struct mr_buffer *out, struct mr_encoder *encoder,
                              struct mr_plan *plan, const struct mr_change *change,
                              const struct mr_event *event)
{
    const struct mr_connect *connect = plan->connect;
    bool wraps = wrapped_has(encoder, MR_JSON_VALUE_SCHEMA);
    if (wraps) {
        MR_BUFFER_LITERAL(out, "{\"schema\":{\"type\":\"struct\",\"fields\":[");
        mr_buffer_slice(out, connect->row);
        MR_BUFFER_LITERAL(out, "before\"},");
        mr_buffer_slice(out, connect->row);
        MR_BUFFER_LITERAL(out, "after\"},");
        mr_buffer_append(out, encoder->around.data, encoder->around.len);
        mr_buffer_slice(out, connect->end);
    }
    out->is_typed = true;
    mr_debezium_envelope(out, encoder, plan, change, event);
    out->is_typed = false;
    mr_connect_end(out, wraps);
}

MR_SKELETON_CHANGE(wrapped_change, .key = mr_wrapped_key, .value = wrapped_put_value)

static mr_status wrapped_plan(struct mr_encoder *encoder, struct mr_plan *plan,
                              __attribute__((unused)) struct mr_error *ret_error)
{
    plan->connect = mr_connect_new(&encoder->options, plan);
    return MR_OK;
}

void mr_wrapped_forget(struct mr_plan *plan)
{
    free(plan->connect);
}

bool mr_wrapped_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                        struct mr_buffer *out, struct mr_record *ret_record)
{
    bool wraps_key = wrapped_has(encoder, MR_JSON_KEY_SCHEMA) && !encoder->placing.writes_letter;
    bool wraps_value = wrapped_has(encoder, MR_JSON_VALUE_SCHEMA);
    struct mr_record record = mr_message_record(encoder, message);
    const uint8_t *begin = out->at;
    if (wraps_key) {
        mr_connect_message(out, &encoder->options, true);
    }
    MR_BUFFER_LITERAL(out, "{\"prefix\":");
    mr_put_slice(out, message->prefix); /* what is not UTF-8 is U+FFFD, and no object */
    MR_BUFFER_LITERAL(out, "}");
    mr_connect_end(out, wraps_key);
    mr_record_set_key(&record, mr_text_since(out, begin));
    begin = out->at;
    if (wraps_value) {
        mr_connect_message(out, &encoder->options, false);
    }
    mr_message_envelope(out, encoder, message);
    mr_connect_end(out, wraps_value);
    mr_record_set_value(&record, mr_text_since(out, begin));
    mr_transaction_headers(out, message->transaction, &record);
    *ret_record = record;
    return true;
}

const struct mr_form_ops mr_form_wrapped = {.ends_rows = true,
                                            .plan = wrapped_plan,
                                            .forget = mr_wrapped_forget,
                                            .change = wrapped_change,
                                            .message = mr_wrapped_message};
