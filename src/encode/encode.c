#include "encode/encode.h"

#include <stdlib.h>

#include "base/json.h"
#include "encode/row.h"

enum { PLANS_MIN = 64 };

static void text_set_escaped(struct mr_text *text, const char *value, bool quoted)
{
    size_t len = strlen(value);
    struct mr_buffer out = mr_text_begin(text, 6 * len + 2);
    if (quoted) {
        mr_json_string(&out, (const uint8_t *)value, len);
    } else {
        mr_json_escaped(&out, (const uint8_t *)value, len);
    }
    MR_ASSERT(!out.full);
    text->len = (size_t)(out.at - text->data);
}

struct mr_encoder *mr_encoder_new(const struct mr_encode_options *options, struct mr_topics *topics,
                                  mr_encode_keys_fn keys, void *keys_context)
{
    struct mr_encoder *encoder = MR_NEW(struct mr_encoder);
    encoder->options = *options;
    encoder->topics = topics;
    encoder->keys = keys;
    encoder->keys_context = keys_context;
    if (options->counts != NULL) {
        encoder->messages = mr_table_counts_messages(options->counts);
    }
    encoder->plan_capacity = PLANS_MIN;
    encoder->plans = MR_NEW_ARRAY(struct mr_plan *, encoder->plan_capacity);
    text_set_escaped(&encoder->prefix, options->topic_prefix, false);
    text_set_escaped(&encoder->unavailable, options->unavailable_value, true);
    char *message_topic = mr_topic_name(options->topic_prefix, "", "message");
    encoder->message_topic = mr_topics_intern(topics, message_topic);
    free(message_topic);
    if (options->oversize == MR_OVERSIZE_DEAD_LETTER) {
        encoder->dead_letter_topic = mr_topics_intern(topics, options->dead_letter_topic);
    }
    mr_encoder_set_database(encoder, "");
    mr_encoder_set_clock(encoder, 0);
    return encoder;
}

void mr_encoder_free(struct mr_encoder *encoder)
{
    if (encoder == NULL) {
        return;
    }
    for (uint32_t i = 0; i < encoder->plan_capacity; i++) {
        mr_plan_free(encoder->plans[i]);
    }
    free(encoder->plans);
    free(encoder->database.data);
    free(encoder->prefix.data);
    free(encoder->unavailable.data);
    free(encoder->clock.data);
    free(encoder);
}

const struct mr_encode_options *mr_encoder_options(const struct mr_encoder *encoder)
{
    return &encoder->options;
}

void mr_encoder_set_database(struct mr_encoder *encoder, const char *database)
{
    text_set_escaped(&encoder->database, database, false);
    for (uint32_t i = 0; i < encoder->plan_capacity; i++) {
        if (encoder->plans[i] != NULL) {
            encoder->plans[i]->rendered_commit_lsn = 0; /* it holds the old name */
        }
    }
}

void mr_encoder_set_clock(struct mr_encoder *encoder, int64_t now_ns)
{
    encoder->now_ns = now_ns;
    struct mr_buffer out = mr_text_begin(&encoder->clock, 128);
    MR_BUFFER_LITERAL(&out, "\"ts_ms\":");
    mr_json_i64(&out, now_ns / 1000000);
    MR_BUFFER_LITERAL(&out, ",\"ts_us\":");
    mr_json_i64(&out, now_ns / 1000);
    MR_BUFFER_LITERAL(&out, ",\"ts_ns\":");
    mr_json_i64(&out, now_ns);
    MR_BUFFER_LITERAL(&out, "}");
    MR_ASSERT(!out.full);
    encoder->clock.len = (size_t)(out.at - encoder->clock.data);
}

/* Where the relation's plan is, or would go. */
static struct mr_plan **plan_slot(const struct mr_encoder *encoder,
                                  const struct mr_relation *relation)
{
    uint32_t mask = encoder->plan_capacity - 1;
    uint32_t i = (uint32_t)(((uintptr_t)relation >> 4) * 2654435761u) & mask;
    while (encoder->plans[i] != NULL && encoder->plans[i]->relation != relation) {
        i = (i + 1) & mask;
    }
    return &encoder->plans[i];
}

static void plans_rehash(struct mr_encoder *encoder, uint32_t capacity)
{
    struct mr_plan **old = encoder->plans;
    uint32_t old_capacity = encoder->plan_capacity;
    encoder->plans = MR_NEW_ARRAY(struct mr_plan *, capacity);
    encoder->plan_capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++) {
        if (old[i] != NULL) {
            *plan_slot(encoder, old[i]->relation) = old[i];
        }
    }
    free(old);
}

static mr_status plan_make(struct mr_encoder *encoder, const struct mr_relation *relation,
                           struct mr_plan **ret_plan, struct mr_error *ret_error)
{
    struct mr_key_columns keys = encoder->keys(encoder->keys_context, relation);
    struct mr_plan *plan =
        mr_plan_new(&encoder->options, encoder->topics, relation, keys, ret_error);
    if (plan == NULL) {
        return ret_error->status;
    }
    if (2 * (encoder->plan_count + 1) > encoder->plan_capacity) {
        plans_rehash(encoder, 2 * encoder->plan_capacity);
    }
    if (encoder->options.counts != NULL && plan->topic != NULL) {
        plan->line =
            mr_table_counts_line(encoder->options.counts, relation->schema, relation->table);
    }
    *plan_slot(encoder, relation) = plan;
    encoder->plan_count++;
    *ret_plan = plan;
    return MR_OK;
}

static mr_status plan_for(struct mr_encoder *encoder, const struct mr_relation *relation,
                          struct mr_plan **ret_plan, struct mr_error *ret_error)
{
    struct mr_plan *plan = encoder->last_plan;
    if (MR_UNLIKELY(plan == NULL || plan->relation != relation)) {
        plan = *plan_slot(encoder, relation);
        if (plan == NULL) {
            MR_TRY(plan_make(encoder, relation, &plan, ret_error));
        }
        encoder->last_plan = plan;
    }
    *ret_plan = plan;
    return MR_OK;
}

void mr_encoder_forget(struct mr_encoder *encoder, const struct mr_relation *relation)
{
    struct mr_plan **slot = plan_slot(encoder, relation);
    if (*slot == NULL) {
        return;
    }
    if (encoder->last_plan == *slot) {
        encoder->last_plan = NULL;
    }
    mr_plan_free(*slot);
    *slot = NULL;
    encoder->plan_count--;
    /* Whatever was pushed aside by the freed place must be found again. */
    plans_rehash(encoder, encoder->plan_capacity);
}

void mr_encoder_count(struct mr_encoder *encoder, enum mr_op op)
{
    struct mr_table_line *line = op == MR_OP_MESSAGE ? encoder->messages : encoder->last_plan->line;
    if (line != NULL) {
        mr_table_line_count(line, op);
    }
}

static bool tuple_has_binary(const struct mr_tuple *tuple, uint32_t count)
{
    for (uint32_t i = 0; tuple->kind != MR_TUPLE_NONE && i < count; i++) {
        if (MR_UNLIKELY(tuple->values[i].kind == MR_DATUM_BINARY)) {
            return true;
        }
    }
    return false;
}

static mr_status reject_binary(const struct mr_change *change, struct mr_error *ret_error)
{
    uint32_t count = change->relation->column_count;
    if (tuple_has_binary(&change->before, count) || tuple_has_binary(&change->after, count)) {
        return mr_fail(
            ret_error, MR_ERR_PROTOCOL,
            "table %s.%s: the server sent a value in binary form, which was not asked for",
            change->relation->schema, change->relation->table);
    }
    return MR_OK;
}

mr_status mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                           struct mr_buffer *buffer, struct mr_record *ret_records,
                           uint32_t *ret_count, struct mr_error *ret_error)
{
    struct mr_plan *plan;
    MR_TRY(plan_for(encoder, change->relation, &plan, ret_error));
    if (plan->topic == NULL || (plan->operations & (1u << change->op)) == 0) {
        *ret_count = 0;
        return MR_OK;
    }
    MR_TRY(reject_binary(change, ret_error));
    uint32_t count = encoder->options.format == MR_FORMAT_FLAT
                         ? mr_flat_change(encoder, plan, change, buffer, ret_records)
                         : mr_debezium_change(encoder, plan, change, buffer, ret_records);
    if (buffer->full) {
        return MR_FULL;
    }
    *ret_count = count;
    return MR_OK;
}

mr_status mr_encode_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                            struct mr_buffer *buffer, struct mr_record *ret_records,
                            uint32_t *ret_count, struct mr_error *ret_error)
{
    (void)ret_error;
    uint32_t skipped = encoder->options.skipped_operations;
    if (encoder->options.format == MR_FORMAT_FLAT || (skipped & (1u << MR_OP_MESSAGE)) != 0) {
        *ret_count = 0;
        return MR_OK;
    }
    uint32_t count = mr_debezium_message(encoder, message, buffer, ret_records);
    if (buffer->full) {
        return MR_FULL;
    }
    *ret_count = count;
    return MR_OK;
}
