/* Decoding and encoding of the rows that drain.sh drains, and both together into batches. */
#include <stdlib.h>
#include <string.h>

#include "encode/encode.h"
#include "micro.h"
#include "stream/pg_payload.h"
#include "testing/recording.h"

enum {
    ROWS = 1000,
    ROWS_PER_TRANSACTION = 100,
    COLUMNS = 7,
    BUFFER_BYTES = 64 * 1024,
    BATCH_BYTES = 256 * 1024,
};

/* A change with its values, kept beyond the callback; the bytes stay in the recording. */
struct kept {
    struct mr_change change;
    struct mr_transaction transaction;
    struct mr_datum values[COLUMNS];
};

struct rows {
    struct mr_recording recording;
    struct mr_pgoutput *decoder;
    struct mr_source_handler handler;
    size_t at;       /* in the recording */
    uint32_t wanted; /* changes of this run still to come */
    uint64_t hash;
    struct kept *kept; /* NULL: nothing is kept */
    uint32_t kept_count;
    struct mr_encoder *encoder;
    struct mr_topics topics;
    struct mr_schemas *schemas; /* of Avro; else NULL */
    struct mr_pool pool;
    struct mr_batch *batch;
    struct mr_error error;
    uint8_t buffer[BUFFER_BYTES];
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
}

static mr_status micro_rows_on_change(void *context, const struct mr_change *change,
                                      struct mr_error *ret_error)
{
    (void)ret_error;
    struct rows *rows = context;
    rows->wanted--;
    rows->hash = mix(rows->hash, change->after.values[COLUMNS - 1].len);
    return MR_OK;
}

static mr_status micro_rows_on_message(void *context, const struct mr_message_event *message,
                                       struct mr_error *ret_error)
{
    (void)context;
    (void)message;
    (void)ret_error;
    return MR_OK;
}

static mr_status on_transaction(void *context, const struct mr_transaction *transaction,
                                struct mr_error *ret_error)
{
    (void)ret_error;
    struct rows *rows = context;
    rows->hash = mix(rows->hash, transaction->commit_lsn);
    return MR_OK;
}

static void micro_rows_on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    (void)context;
    (void)server_end;
    (void)reply_requested;
}

static void micro_rows_on_relation_end(void *context, const struct mr_relation *relation)
{
    struct rows *rows = context;
    if (rows->encoder != NULL) {
        mr_encoder_forget(rows->encoder, relation);
    }
}

/* Plays the recording, over and over, until `count` changes have been handed over. */
static void micro_rows_play(struct rows *rows, uint32_t count)
{
    mr_slice payload;
    rows->wanted = count;
    while (rows->wanted > 0) {
        if (!mr_recording_next(mr_recording_slice(&rows->recording), &rows->at, &payload)) {
            rows->at = 0;
            mr_pgoutput_reset(rows->decoder, &rows->handler);
            continue;
        }
        MR_ASSERT(mr_pg_payload_take(rows->decoder, payload, &rows->handler, &rows->error) ==
                  MR_OK);
    }
}

static struct rows *rows_new(void)
{
    struct rows *rows = MR_NEW(struct rows);
    rows->handler = (struct mr_source_handler){
        .context = rows,
        .change = micro_rows_on_change,
        .message = micro_rows_on_message,
        .begin = on_transaction,
        .commit = on_transaction,
        .keepalive = micro_rows_on_keepalive,
        .relation_end = micro_rows_on_relation_end,
    };
    mr_recording_rows(&rows->recording, ROWS, ROWS_PER_TRANSACTION);
    rows->decoder = mr_pgoutput_new();
    return rows;
}

static void rows_close(void *state)
{
    struct rows *rows = state;
    mr_encoder_free(rows->encoder);
    mr_topics_done(&rows->topics);
    mr_schemas_free(rows->schemas);
    mr_pgoutput_free(rows->decoder);
    mr_recording_done(&rows->recording);
    if (rows->batch != NULL) {
        mr_pool_release(&rows->pool, rows->batch);
        mr_pool_done(&rows->pool);
    }
    free(rows->kept);
    free(rows);
}

static void *decode_open(void)
{
    return rows_new();
}

static uint64_t decode_run(void *state, uint32_t count)
{
    struct rows *rows = state;
    micro_rows_play(rows, count);
    return rows->hash;
}

const struct micro_bench micro_decode = {
    .name = "decode", .event = "row", .open = decode_open, .run = decode_run, .close = rows_close};

static mr_status keep_change(void *context, const struct mr_change *change,
                             struct mr_error *ret_error)
{
    struct rows *rows = context;
    struct kept *kept = &rows->kept[rows->kept_count++];
    kept->change = *change;
    kept->transaction = *change->transaction;
    memcpy(kept->values, change->after.values, sizeof(kept->values));
    kept->change.transaction = &kept->transaction;
    kept->change.after.values = kept->values;
    return micro_rows_on_change(context, change, ret_error);
}

static struct rows *encode_open(enum mr_format format, enum mr_types types,
                                enum mr_json_schemas json_schemas)
{
    struct rows *rows = rows_new();
    rows->schemas = format == MR_FORMAT_AVRO ? mr_schemas_new() : NULL;
    const struct mr_encode_options options = {
        .format = format,
        .types = types,
        .json_schemas = json_schemas,
        .schemas = rows->schemas,
        .topic_prefix = "bench",
        .unavailable_value = "__debezium_unavailable_value",
        .tombstones = true,
    };
    rows->encoder = mr_encoder_new(&options, &rows->topics);
    mr_encoder_set_database(rows->encoder, "bench");
    mr_encoder_set_clock(rows->encoder, INT64_C(1767323045000000000));
    return rows;
}

static void *encode_kept_open(enum mr_format format, enum mr_types types,
                              enum mr_json_schemas json_schemas)
{
    struct rows *rows = encode_open(format, types, json_schemas);
    rows->kept = MR_NEW_ARRAY(struct kept, ROWS);
    rows->handler.change = keep_change;
    micro_rows_play(rows, ROWS);
    return rows;
}

static void *encode_debezium_open(void)
{
    return encode_kept_open(MR_FORMAT_DEBEZIUM, MR_TYPES_TEXT, MR_JSON_BARE);
}

static void *encode_flat_open(void)
{
    return encode_kept_open(MR_FORMAT_FLAT, MR_TYPES_TEXT, MR_JSON_BARE);
}

static void *encode_typed_open(void)
{
    return encode_kept_open(MR_FORMAT_DEBEZIUM, MR_TYPES_DEBEZIUM, MR_JSON_BARE);
}

static void *encode_schemas_open(void)
{
    return encode_kept_open(MR_FORMAT_DEBEZIUM, MR_TYPES_DEBEZIUM, MR_JSON_SCHEMAS);
}

static void *encode_avro_open(void)
{
    return encode_kept_open(MR_FORMAT_AVRO, MR_TYPES_DEBEZIUM, MR_JSON_BARE);
}

/* The hash takes length and ends of the value; going over all of it would drown what is
 * measured. */
static uint64_t encode_run(void *state, uint32_t count)
{
    struct rows *rows = state;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
        uint32_t record_count = 0;
        struct mr_buffer buffer = mr_buffer_init(rows->buffer, sizeof(rows->buffer));
        const struct mr_change *change = &rows->kept[i % rows->kept_count].change;
        MR_ASSERT(mr_encode_change(rows->encoder, change, &buffer, records, &record_count,
                                   &rows->error) == MR_OK);
        rows->hash = mix(rows->hash, records[0].value_len + records[0].value[1]);
    }
    return rows->hash;
}

const struct micro_bench micro_encode_debezium = {.name = "encode_debezium",
                                                  .event = "row",
                                                  .open = encode_debezium_open,
                                                  .run = encode_run,
                                                  .close = rows_close};
const struct micro_bench micro_encode_flat = {.name = "encode_flat",
                                              .event = "row",
                                              .open = encode_flat_open,
                                              .run = encode_run,
                                              .close = rows_close};
/* The same values in JSON, in JSON with schemas, and in Avro. */
const struct micro_bench micro_encode_typed = {.name = "encode_typed",
                                               .event = "row",
                                               .open = encode_typed_open,
                                               .run = encode_run,
                                               .close = rows_close};
const struct micro_bench micro_encode_schemas = {.name = "encode_schemas",
                                                 .event = "row",
                                                 .open = encode_schemas_open,
                                                 .run = encode_run,
                                                 .close = rows_close};
const struct micro_bench micro_encode_avro = {.name = "encode_avro",
                                              .event = "row",
                                              .open = encode_avro_open,
                                              .run = encode_run,
                                              .close = rows_close};

static mr_status flow_change(void *context, const struct mr_change *change,
                             struct mr_error *ret_error)
{
    struct rows *rows = context;
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint32_t count = 0;
    struct mr_buffer buffer = mr_batch_buffer(rows->batch);
    mr_status status = mr_encode_change(rows->encoder, change, &buffer, records, &count, ret_error);
    if (status == MR_OK && mr_batch_commit(rows->batch, buffer.at, records, count)) {
        rows->wanted--;
        return MR_OK;
    }
    rows->hash = mix(rows->hash, mr_batch_used(rows->batch));
    mr_pool_release(&rows->pool, rows->batch);
    rows->batch = mr_pool_acquire(&rows->pool);
    return flow_change(context, change, ret_error);
}

static void *flow_open(void)
{
    struct rows *rows = encode_open(MR_FORMAT_DEBEZIUM, MR_TYPES_TEXT, MR_JSON_BARE);
    mr_pool_init(&rows->pool, 2, 2, BATCH_BYTES, BATCH_BYTES);
    rows->batch = mr_pool_acquire(&rows->pool);
    rows->handler.change = flow_change;
    return rows;
}

const struct micro_bench micro_flow = {
    .name = "flow", .event = "row", .open = flow_open, .run = decode_run, .close = rows_close};
