/* Logical messages as events of an outbox: the fields of a JSON object stand for the columns of a
 * row, as text. */

#include "base/json.h"
#include "encode/forms/form.h"
#include "event/relation.h"

enum { TEXT_OID = 25, TIMESTAMPTZ_OID = 1184, FIXED_COLUMNS = 5 };

/* A table that is none, and the row that a message is. */
struct mr_outbox_message {
    struct mr_relation relation;
    struct mr_column *columns;
    struct mr_datum *values;
    struct mr_bytes bytes;             /* of values */
    struct mr_transaction transaction; /* of a message that has none */
    struct mr_change change;
    struct mr_tally dropped;
};

bool mr_is_message(const struct mr_relation *relation)
{
    return relation->schema[0] == '\0'; /* no table's is */
}

static void outbox_message_add_column(struct mr_outbox_message *row, const char *name,
                                      uint32_t type_oid)
{
    uint32_t i;
    if (name == NULL || mr_relation_find_column(&row->relation, mr_slice_of(name), &i)) {
        return;
    }
    row->columns[i] = (struct mr_column){
        .name = name,
        .type_oid = type_oid,
        .type_modifier = -1,
        .type = {.oid = type_oid, .modifier = -1, .kind = MR_TYPE_BUILT_IN},
    };
    row->relation.column_count++;
}

struct mr_outbox_message *mr_outbox_message_new(const struct mr_outbox_options *outbox)
{
    struct mr_outbox_message *row = MR_NEW(struct mr_outbox_message);
    row->columns = MR_NEW_ARRAY(struct mr_column, FIXED_COLUMNS + outbox->field_count);
    row->relation = (struct mr_relation){.schema = "",
                                         .table = "logical message",
                                         .identity = MR_IDENTITY_NOTHING,
                                         .columns = row->columns};
    outbox_message_add_column(row, outbox->timestamp, TIMESTAMPTZ_OID);
    const char *const names[] = {outbox->id, outbox->key, outbox->payload, outbox->route_by};
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        outbox_message_add_column(row, names[i], TEXT_OID);
    }
    for (uint32_t i = 0; i < outbox->field_count; i++) {
        outbox_message_add_column(row, outbox->fields[i].column, TEXT_OID);
    }
    row->values = MR_NEW_ARRAY(struct mr_datum, row->relation.column_count);
    return row;
}

void mr_outbox_message_free(struct mr_outbox_message *row)
{
    if (row == NULL) {
        return;
    }
    free(row->columns);
    free(row->values);
    free(row->bytes.data);
    free(row);
}

/* "2026-11-23T01:02:03Z" as PostgreSQL prints it. */
static size_t plain_time(uint8_t *text, size_t len)
{
    static const char *const zones[] = {"Z", "+00:00", "+00"};
    enum { DATE_LEN = 10 };
    if (len > DATE_LEN && text[DATE_LEN] == 'T') {
        text[DATE_LEN] = ' ';
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(zones); i++) {
        size_t zone = strlen(zones[i]);
        if (len > zone && memcmp(text + len - zone, zones[i], zone) == 0) {
            return len - zone;
        }
    }
    return len;
}

/* A member of the object; of several with one name the last counts, as in jsonb. */
static void take_member(void *context, mr_slice key, mr_slice value)
{
    struct mr_outbox_message *row = context;
    uint8_t *to = row->bytes.data + row->bytes.len; /* texts are no longer than their JSON */
    uint32_t i;
    size_t name_len = mr_json_unescape(to, key.data + 1, key.len - 2);
    if (!mr_relation_find_column(&row->relation, (mr_slice){.data = to, .len = name_len}, &i)) {
        return;
    }
    size_t len = value.len;
    if (value.data[0] == '"') {
        len = mr_json_unescape(to, value.data + 1, value.len - 2);
    } else {
        memcpy(to, value.data, value.len);
    }
    if (row->columns[i].type_oid == TIMESTAMPTZ_OID) {
        len = plain_time(to, len);
    }
    bool is_null = value.data[0] == 'n';
    row->values[i] = (struct mr_datum){
        .kind = is_null ? MR_DATUM_NULL : MR_DATUM_TEXT, .data = to, .len = (uint32_t)len};
    row->bytes.len += len;
}

bool mr_is_outbox_message(const struct mr_encode_options *options,
                          const struct mr_message_event *message)
{
    return options->outbox != NULL && options->outbox->messages != NULL &&
           mr_slice_equal(mr_slice_of(options->outbox->messages), message->prefix);
}

__attribute__((cold)) static void
log_dropped(struct mr_encoder *encoder, const struct mr_message_event *message, const char *reason)
{
    struct mr_outbox_message *row = encoder->outbox_message;
    if (mr_tally(&row->dropped, encoder->stamp.now_ns)) {
        mr_log(
            MR_LOG_WARN, "outbox_message_dropped",
            "a logical message with the prefix of outbox.messages is no event, and is not passed "
            "on",
            MR_LOG_STR("reason", reason), MR_LOG_LSN("lsn", message->lsn),
            MR_LOG_INT("count", row->dropped.count));
    }
}

const struct mr_change *mr_outbox_message_row(struct mr_encoder *encoder,
                                              const struct mr_message_event *message)
{
    struct mr_outbox_message *row = encoder->outbox_message;
    mr_text_begin(&row->bytes, 2 * message->content.len + 1); /* values, and the key at hand */
    row->bytes.len = 0;
    for (uint32_t i = 0; i < row->relation.column_count; i++) {
        row->values[i] = (struct mr_datum){.kind = MR_DATUM_NULL};
    }
    if (!mr_json_members(message->content, &encoder->scratch, take_member, row)) {
        return NULL;
    }
    row->transaction = (struct mr_transaction){.commit_lsn = message->position.commit_lsn,
                                               .commit_time_us = encoder->stamp.now_ns / 1000};
    row->change = (struct mr_change){
        .op = MR_OP_INSERT,
        .lsn = message->lsn,
        .position = message->position,
        .transaction = message->transaction != NULL ? message->transaction : &row->transaction,
        .relation = &row->relation,
        .after = {.kind = MR_TUPLE_NEW, .values = row->values},
    };
    return &row->change;
}

mr_status mr_encode_outbox_message(struct mr_encoder *encoder,
                                   const struct mr_message_event *message, struct mr_buffer *buffer,
                                   struct mr_record *ret_records, uint32_t *ret_count)
{
    struct mr_error error;
    const struct mr_change *change = mr_outbox_message_row(encoder, message);
    mr_status status = MR_OK;
    *ret_count = 0;
    if (change == NULL) {
        log_dropped(encoder, message, "its content is not a JSON object");
    } else {
        status = mr_encode_change(encoder, change, buffer, ret_records, ret_count, &error);
    }
    if (status != MR_OK && status != MR_FULL) { /* any role that connects can write one */
        log_dropped(encoder, message, error.text);
        *ret_count = 0;
        return MR_OK;
    }
    return status;
}
