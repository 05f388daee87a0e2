/* A sequence of payloads as PostgreSQL might send them, through the decoder and an encoder of each
 * form, against a model of the stream: transactions nest rightly, positions only grow, what was
 * refused for want of room comes again as it was, values lie inside their payload, and records are
 * strict JSON inside the buffer. */
#include <stdlib.h>
#include <string.h>

#include "encode/encode.h"
#include "fuzz.h"
#include "stream/pg_payload.h"
#include "strict_json.h"
#include "testing/recording.h"

enum { BUFFER_BYTES = 1 << 20, TYPE_TEXT = 25, FULL_EVERY = 5 };

unsigned fuzz_stream_refused;

struct model {
    struct mr_source_handler handler;
    struct mr_encoder *encoders[7];
    struct mr_topics topics;
    mr_slice payload;
    bool in_transaction;
    struct mr_position last; /* taken */
    struct mr_position full; /* refused; must come next */
    unsigned calls;
    uint8_t *buffer;
};

static bool inside(mr_slice outer, const uint8_t *data, size_t len)
{
    return len == 0 || (data >= outer.data && len <= outer.len &&
                        (size_t)(data - outer.data) <= outer.len - len);
}

/* MR_FULL now and then. Part of a message with several changes may come a second time after it. */
static mr_status fuzz_stream_take(struct model *model, struct mr_position position)
{
    if (mr_position_compare(position, model->last) <= 0) {
        MR_ASSERT(model->full.commit_lsn != 0);
        return MR_OK;
    }
    if (model->full.commit_lsn != 0) {
        MR_ASSERT(mr_position_compare(position, model->full) == 0);
        model->full = (struct mr_position){0};
    } else if (++model->calls % FULL_EVERY == 0) {
        model->full = position;
        return MR_FULL;
    }
    model->last = position;
    return MR_AGAIN; /* new: look at it */
}

/* Text of other types is the server's, and goes out as it comes. */
static bool is_all_text(const struct mr_relation *relation)
{
    for (uint32_t i = 0; i < relation->column_count; i++) {
        if (relation->columns[i].type_oid != TYPE_TEXT) {
            return false;
        }
    }
    return true;
}

static void check_records(const struct model *model, const struct mr_buffer *buffer,
                          const struct mr_record *records, uint32_t count, bool key_is_json,
                          bool strict)
{
    mr_slice all = {.data = model->buffer, .len = (size_t)(buffer->at - model->buffer)};
    MR_ASSERT(count <= MR_RECORDS_PER_CHANGE_MAX);
    for (uint32_t i = 0; i < count; i++) {
        mr_slice key = {.data = records[i].key, .len = records[i].key_len};
        mr_slice value = {.data = records[i].value, .len = records[i].value_len};
        MR_ASSERT(inside(all, key.data, key.len) && inside(all, value.data, value.len));
        MR_ASSERT(!strict || value.data == NULL || strict_json_valid(value));
        MR_ASSERT(!strict || !key_is_json || key.data == NULL || strict_json_valid(key));
        const uint8_t *headers = mr_record_headers(&records[i]);
        struct mr_header header;
        for (size_t at = 0; mr_header_next(headers, &at, &header);) {
            MR_ASSERT(header.name.len > 0 && inside(all, header.name.data, header.name.len));
            MR_ASSERT(inside(all, header.value.data, header.value.len));
        }
    }
}

static void check_tuple(const struct model *model, const struct mr_tuple *tuple, uint32_t count)
{
    for (uint32_t i = 0; tuple->kind != MR_TUPLE_NONE && i < count; i++) {
        MR_ASSERT(inside(model->payload, tuple->values[i].data, tuple->values[i].len));
    }
}

static mr_status fuzz_stream_on_change(void *context, const struct mr_change *change,
                                       struct mr_error *ret_error)
{
    struct model *model = context;
    MR_ASSERT(model->in_transaction);
    MR_ASSERT(change->position.commit_lsn == change->transaction->commit_lsn);
    mr_status status = fuzz_stream_take(model, change->position);
    if (status != MR_AGAIN) {
        return status;
    }
    check_tuple(model, &change->before, change->relation->column_count);
    check_tuple(model, &change->after, change->relation->column_count);
    for (size_t i = 0; i < MR_ARRAY_LEN(model->encoders); i++) {
        struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
        struct mr_buffer buffer = mr_buffer_init(model->buffer, BUFFER_BYTES);
        uint32_t count = 0;
        if (mr_encode_change(model->encoders[i], change, &buffer, records, &count, ret_error) ==
            MR_OK) {
            check_records(model, &buffer, records, count, i != 1, is_all_text(change->relation));
        }
    }
    return MR_OK;
}

static mr_status fuzz_stream_on_message(void *context, const struct mr_message_event *message,
                                        struct mr_error *ret_error)
{
    struct model *model = context;
    MR_ASSERT(model->in_transaction == (message->transaction != NULL));
    mr_status status = fuzz_stream_take(model, message->position);
    if (status != MR_AGAIN) {
        return status;
    }
    MR_ASSERT(inside(model->payload, message->prefix.data, message->prefix.len));
    MR_ASSERT(inside(model->payload, message->content.data, message->content.len));
    for (size_t i = 0; i < MR_ARRAY_LEN(model->encoders); i++) {
        struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
        struct mr_buffer buffer = mr_buffer_init(model->buffer, BUFFER_BYTES);
        uint32_t count = 0;
        if (mr_encode_message(model->encoders[i], message, &buffer, records, &count, ret_error) ==
            MR_OK) {
            check_records(model, &buffer, records, count, true, true);
        }
    }
    return MR_OK;
}

static mr_status fuzz_stream_on_begin(void *context, const struct mr_transaction *transaction,
                                      struct mr_error *ret_error)
{
    (void)ret_error;
    struct model *model = context;
    MR_ASSERT(!model->in_transaction);
    /* A message outside transactions may end where the commit record begins. */
    struct mr_position first = {.commit_lsn = transaction->commit_lsn, .ordinal = 1};
    MR_ASSERT(mr_position_compare(first, model->last) > 0);
    model->in_transaction = true;
    return MR_OK;
}

static mr_status fuzz_stream_on_commit(void *context, const struct mr_transaction *transaction,
                                       struct mr_error *ret_error)
{
    (void)ret_error;
    struct model *model = context;
    MR_ASSERT(model->in_transaction);
    MR_ASSERT(transaction->end_lsn > transaction->commit_lsn);
    model->in_transaction = false;
    return MR_OK;
}

static void fuzz_stream_on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    (void)context;
    (void)server_end;
    (void)reply_requested;
}

static void fuzz_stream_on_relation_end(void *context, const struct mr_relation *relation)
{
    struct model *model = context;
    for (size_t i = 0; i < MR_ARRAY_LEN(model->encoders); i++) {
        mr_encoder_forget(model->encoders[i], relation);
    }
}

static void model_open(struct model *model)
{
    static uint8_t buffer[BUFFER_BYTES];
    *model = (struct model){.buffer = buffer};
    model->handler = (struct mr_source_handler){
        .context = model,
        .change = fuzz_stream_on_change,
        .message = fuzz_stream_on_message,
        .begin = fuzz_stream_on_begin,
        .commit = fuzz_stream_on_commit,
        .keepalive = fuzz_stream_on_keepalive,
        .relation_end = fuzz_stream_on_relation_end,
    };
    static const struct mr_added_field added = {MR_FIELD_SOURCE_ORIGIN, "__origin"};
    for (size_t i = 0; i < MR_ARRAY_LEN(model->encoders); i++) {
        static const char *const all_messages[] = {"*"};
        const struct mr_encode_options options = {
            .message_prefixes = all_messages,
            .message_prefix_count = 1,
            .message_bytes_max = SIZE_MAX,
            .format = i == 0 || i == 5   ? MR_FORMAT_DEBEZIUM
                      : i == 1           ? MR_FORMAT_FLAT
                      : i == 4 || i == 6 ? MR_FORMAT_ROW
                                         : MR_FORMAT_CLOUDEVENTS,
            .types = i >= 5 ? MR_TYPES_DEBEZIUM : MR_TYPES_TEXT,
            .json_schemas = i >= 5 ? MR_JSON_SCHEMAS : MR_JSON_BARE,
            .cloud_mode = i == 2 ? MR_CLOUD_STRUCTURED : MR_CLOUD_BINARY,
            .bare = {.deletes = MR_DELETE_REWRITE,
                     .fields = &added,
                     .headers = &added,
                     .field_count = 1,
                     .header_count = i == 4},
            .topic_prefix = "fuzz",
            .unavailable_value = "?",
            .tombstones = true,
        };
        model->encoders[i] = mr_encoder_new(&options, &model->topics);
    }
}

static void model_close(struct model *model)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(model->encoders); i++) {
        mr_encoder_free(model->encoders[i]);
    }
    mr_topics_done(&model->topics);
}

/* Like the pipeline: a payload that met MR_FULL comes again; an error ends the connection, and what
 * comes next begins again. */
static void fuzz_stream_play(struct model *model, struct mr_pgoutput *decoder)
{
    struct mr_error error = {0};
    mr_status status;
    do {
        status = mr_pg_payload_take(decoder, model->payload, &model->handler, &error);
    } while (status == MR_FULL);
    MR_ASSERT(status == MR_OK || error.text[0] != 0);
    MR_ASSERT(mr_pgoutput_in_transaction(decoder) == model->in_transaction);
    if (status != MR_OK) {
        fuzz_stream_refused++;
        mr_pgoutput_reset(decoder, &model->handler);
        model->in_transaction = false;
        model->last = model->full = (struct mr_position){0};
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model model;
    model_open(&model);
    struct mr_pgoutput *decoder = mr_pgoutput_new();
    mr_slice recording = {.data = data, .len = size};
    for (size_t at = 0; mr_recording_next(recording, &at, &model.payload);) {
        fuzz_stream_play(&model, decoder);
    }
    mr_pgoutput_free(decoder);
    model_close(&model);
    return 0;
}
