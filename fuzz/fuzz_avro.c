/* A type and any bytes as the text of its value, in a row: in Avro it is refused where it is in
 * JSON, and else says the same, by a reader that shares no code, in the bytes of the transcoder
 * that made Avro of JSON before. */
#include <stdlib.h>
#include <string.h>

#include "encode/encode.h"
#include "encode/plan.h"
#include "encode/values/types.h"
#include "fuzz.h"
#include "strict_json.h"
#include "testing/avro_oracle.h"
#include "testing/strict_avro.h"

enum { HEADER = 6, OUT_BYTES = 1 << 18, COLUMNS = 3, SCHEMAS_MAX = 2, FRAME = MR_SCHEMA_FRAME_LEN };

static const char unavailable[] = "__unavailable";

/* A table's records in one format. */
struct side {
    struct mr_topics topics;
    struct mr_schemas *schemas;
    struct mr_encoder *encoder;
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint32_t count;
    mr_status status;
};

static uint8_t blocks[2][OUT_BYTES];

static void side_encode(struct side *side, enum mr_format format, uint8_t mode,
                        const struct mr_change *change, uint8_t *block)
{
    side->schemas = mr_schemas_new();
    const struct mr_encode_options options = {
        .format = format,
        .types = MR_TYPES_DEBEZIUM,
        .schemas = format == MR_FORMAT_AVRO ? side->schemas : NULL,
        .modes = {.decimal = (enum mr_decimal_mode)(mode % 3),
                  .time = (enum mr_time_mode)(mode / 3 % 6),
                  .binary = (enum mr_binary_mode)(mode / 3 % 4),
                  .interval = (enum mr_interval_mode)(mode / 3 % 2),
                  .hstore = (enum mr_hstore_mode)(mode / 3 % 2)},
        .topic_prefix = "fuzz-1",
        .unavailable_value = unavailable,
        .tombstones = true,
    };
    side->encoder = mr_encoder_new(&options, &side->topics);
    mr_encoder_set_database(side->encoder, "db");
    mr_encoder_set_clock(side->encoder, INT64_C(1700000001234567890));
    struct mr_buffer buffer = mr_buffer_init(block, OUT_BYTES);
    struct mr_error error = {0};
    side->status =
        mr_encode_change(side->encoder, change, &buffer, side->records, &side->count, &error);
    MR_ASSERT(side->status == MR_OK || side->status == MR_FULL || error.text[0] != '\0');
}

static void side_done(struct side *side)
{
    mr_encoder_free(side->encoder);
    mr_topics_done(&side->topics);
    mr_schemas_free(side->schemas);
}

/* The texts of all schemas, by their indexes. */
static uint32_t collect(struct mr_schemas *schemas, mr_slice *ret_texts)
{
    uint32_t count = 0;
    const struct mr_schema *schema;
    while ((schema = mr_schemas_wait(schemas, 0)) != NULL) {
        MR_ASSERT(schema->index == count && count < SCHEMAS_MAX);
        ret_texts[count] = mr_slice_of(schema->text);
        MR_ASSERT(strict_json_valid(ret_texts[count++]));
        mr_schemas_set_id(schemas, schema->index, 1);
    }
    return count;
}

static void compare(const mr_slice *schemas, uint32_t count, const uint8_t *avro, size_t avro_len,
                    const uint8_t *json, size_t json_len)
{
    MR_ASSERT((avro == NULL) == (json == NULL));
    if (avro == NULL) {
        return;
    }
    mr_slice told = {.data = json, .len = json_len};
    MR_ASSERT(avro_len > FRAME);
    mr_slice bytes = {.data = avro + FRAME, .len = avro_len - FRAME};
    MR_ASSERT(avro[0] == 0xFF && avro[1] == 0 && avro[2] == 0 && avro[3] == 0 && avro[4] < count);
    MR_ASSERT(mr_strict_avro(schemas[avro[4]], bytes, told, unavailable));
    static uint8_t room[OUT_BYTES];
    struct mr_buffer out = mr_buffer_init(room, sizeof(room));
    if (mr_avro_oracle(schemas[avro[4]], told, unavailable,
                       &out)) { /* which knew no lists of empty lists */
        MR_ASSERT(mr_slice_equal(bytes, (mr_slice){.data = room, .len = (size_t)(out.at - room)}));
    } else {
        MR_ASSERT(memmem(told.data, told.len, "[[", 2) != NULL);
    }
}

/* int2, int4, int8, date, time and their arrays: JSON takes digits that the type would not. */
static bool is_narrow(uint32_t oid)
{
    static const uint32_t oids[] = {20, 21, 23, 1005, 1007, 1016, 1082, 1182, 1083, 1183};
    for (size_t i = 0; i < MR_ARRAY_LEN(oids); i++) {
        if (oids[i] == oid) {
            return true;
        }
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEADER || memchr(data + HEADER, 0, size - HEADER) != NULL) {
        return 0; /* PostgreSQL's text has no such byte */
    }
    bool is_user = (data[3] & 0x80) != 0;
    uint32_t oid = (uint32_t)data[0] | (uint32_t)data[1] << 8;
    bool is_numeric = oid == 1700 || oid == 1231; /* whose precision is in the upper half */
    int32_t modifier = data[2] == 0xFF ? -1 : data[2] + (is_numeric ? data[2] % 16 << 16 : 0);
    static const char *const names[] = {"v", "1 v", "\xC3\xA9", "x.y"};
    struct mr_column columns[COLUMNS] = {
        {.name = (char *)(uintptr_t) "id", .type_oid = 23, .in_identity = true},
        {.name = (char *)(uintptr_t)names[data[5] % 4],
         .type_oid = oid,
         .type_modifier = modifier,
         .type = {.oid = oid,
                  .modifier = modifier,
                  .kind = is_user ? (enum mr_type_kind)(data[3] % (MR_TYPE_OPAQUE + 1))
                                  : MR_TYPE_UNKNOWN,
                  .is_array = (data[3] & 0x40) != 0,
                  .is_of_domain = (data[3] & 0x20) != 0}},
        {.name = (char *)(uintptr_t) "last", .type_oid = 20},
    };
    const struct mr_encode_options types = {.types = MR_TYPES_DEBEZIUM};
    if (mr_type_form(&types, &columns[1]).writer == MR_WRITE_PLAIN) {
        return 0; /* goes out as it comes: its type's text has nothing to escape */
    }
    uint32_t key_columns[] = {0, 2};
    struct mr_relation relation = {.oid = 1,
                                   .schema = (char *)(uintptr_t) "public",
                                   .table = (char *)(uintptr_t) "t-",
                                   .identity = MR_IDENTITY_FULL,
                                   .column_count = COLUMNS,
                                   .columns = columns,
                                   .key_count = data[5] % 2 + 1u,
                                   .key_columns = key_columns};
    struct mr_transaction transaction = {
        .commit_lsn = 0x2000, .commit_time_us = INT64_C(1700000000000001), .xid = 555};
    struct mr_datum value = {
        .kind = MR_DATUM_TEXT, .data = data + HEADER, .len = (uint32_t)(size - HEADER)};
    struct mr_datum unchanged = {.kind = MR_DATUM_UNCHANGED};
    struct mr_datum number = {.kind = MR_DATUM_TEXT, .data = (const uint8_t *)"-42", .len = 3};
    struct mr_datum old[COLUMNS] = {number, value, number};
    struct mr_datum new[COLUMNS] = {number, (data[5] & 4) != 0 ? unchanged : value, number};
    bool is_delete = (data[5] & 8) != 0;
    bool has_old = is_delete || (data[5] & 16) != 0;
    struct mr_change change = {
        .op = is_delete ? MR_OP_DELETE : MR_OP_UPDATE,
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x2000, .ordinal = 3},
        .transaction = &transaction,
        .relation = &relation,
        .before = {.kind = has_old ? MR_TUPLE_FULL : MR_TUPLE_NONE, .values = has_old ? old : NULL},
        .after = {.kind = is_delete ? MR_TUPLE_NONE : MR_TUPLE_NEW,
                  .values = is_delete ? NULL : new}};
    struct side json = {0};
    struct side avro = {0};
    side_encode(&json, MR_FORMAT_DEBEZIUM, data[4], &change, blocks[0]);
    side_encode(&avro, MR_FORMAT_AVRO, data[4], &change, blocks[1]);
    MR_ASSERT(json.status == avro.status || avro.status == MR_FULL ||
              (avro.status == MR_ERR_POISON && is_narrow(oid)));
    mr_slice schemas[SCHEMAS_MAX];
    uint32_t count = collect(avro.schemas, schemas);
    for (uint32_t i = 0; avro.status == MR_OK && i < avro.count; i++) {
        const struct mr_record *told = &json.records[i];
        const struct mr_record *read = &avro.records[i];
        MR_ASSERT(json.count == avro.count);
        compare(schemas, count, read->key, read->key_len, told->key, told->key_len);
        compare(schemas, count, read->value, read->value_len, told->value, told->value_len);
    }
    side_done(&json);
    side_done(&avro);
    return 0;
}
