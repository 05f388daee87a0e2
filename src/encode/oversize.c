/* What takes the place of a change with a record that is too large: the event without its large
 * values, or a letter in another topic that tells where it is to be found. */
#include <inttypes.h>

#include "encode/forms/form.h"
#include "encode/oversize.h"
#include "encode/values/put.h"

enum {
    CUT_FACTOR = 4, /* from one try at how long values may be to the next */
    CUT_LAST = 64,  /* below this, all go */
};

/* The first of an item's own records: the beginning of its transaction and its table's form may
 * come before. */
static uint32_t own_records(const struct mr_record *records, uint32_t count)
{
    uint32_t i = 0;
    while (i < count &&
           (records[i].kind == MR_RECORD_TRANSACTION || records[i].kind == MR_RECORD_SCHEMA)) {
        i++;
    }
    return i;
}

static size_t tuple_bytes(const struct mr_tuple *tuple, uint32_t column_count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; tuple->kind != MR_TUPLE_NONE && i < column_count; i++) {
        bytes += tuple->values[i].kind == MR_DATUM_TEXT ? tuple->values[i].len : 0;
    }
    return bytes;
}

size_t mr_item_bytes(const struct mr_item *item)
{
    if (item->kind == MR_ITEM_CHANGE) {
        const struct mr_change *change = item->change;
        return tuple_bytes(&change->before, change->relation->column_count) +
               tuple_bytes(&change->after, change->relation->column_count);
    }
    return item->kind == MR_ITEM_MESSAGE ? item->message->prefix.len + item->message->content.len
                                         : 0;
}

/* What is to be placed, and where it goes. */
struct placing {
    struct mr_encoder *encoder;
    const struct mr_item *item;
    struct mr_oversize_case oversize;
    struct mr_buffer *out;
    struct mr_record *records;
    uint32_t count;
    struct mr_error *error;
};

static mr_status oversize_encode_into(struct placing *placing, const struct mr_item *item,
                                      struct mr_buffer *out)
{
    return mr_encode(placing->encoder, item, out, placing->records, &placing->count,
                     placing->error);
}

struct cut {
    struct mr_change change; /* as the original, but for its tuples */
    struct mr_datum *values; /* of all columns of both; the originals or cut ones */
};

static bool may_cut(const struct mr_encoder *encoder, const struct mr_plan *plan, uint32_t column)
{
    return !mr_plan_is_key(plan, column) &&
           (!mr_plan_is_outbox(plan) || mr_outbox_may_cut(encoder->options.outbox, plan, column));
}

static struct mr_tuple cut_tuple(const struct mr_encoder *encoder, const struct mr_plan *plan,
                                 const struct mr_tuple *tuple, size_t longest,
                                 struct mr_datum *values)
{
    if (tuple->kind == MR_TUPLE_NONE) {
        return *tuple;
    }
    for (uint32_t i = 0; i < plan->relation->column_count; i++) {
        values[i] = tuple->values[i];
        if (values[i].kind == MR_DATUM_TEXT && values[i].len > longest &&
            may_cut(encoder, plan, i)) {
            values[i].kind = MR_DATUM_CUT;
        }
    }
    return (struct mr_tuple){.kind = tuple->kind, .values = values};
}

static struct cut cut_new(const struct mr_change *change)
{
    return (struct cut){.change = *change,
                        .values =
                            MR_NEW_ARRAY(struct mr_datum, 2 * change->relation->column_count + 1)};
}

/* Encodes the change with no value longer than `longest`, keys aside. */
static mr_status encode_cut(struct placing *placing, struct cut *cut, size_t longest,
                            struct mr_buffer *out)
{
    const struct mr_encoder *encoder = placing->encoder;
    const struct mr_change *change = placing->item->change;
    struct mr_plan *first;
    MR_TRY(mr_plan_for(placing->encoder, change->relation, &first, placing->error));
    const struct mr_plan *plan = encoder->placing.only != NULL ? encoder->placing.only : first;
    struct mr_datum *after = cut->values + change->relation->column_count;
    cut->change.before = cut_tuple(encoder, plan, &change->before, longest, cut->values);
    cut->change.after = cut_tuple(encoder, plan, &change->after, longest, after);
    return oversize_encode_into(placing, &(struct mr_item){.change = &cut->change}, out);
}

static bool oversize_fits(const struct placing *placing)
{
    for (uint32_t i = 0; i < placing->count; i++) {
        if (mr_record_bytes(&placing->records[i]) > placing->oversize.limit) {
            return false;
        }
    }
    return true;
}

static mr_status check_fits(struct placing *placing)
{
    char name[MR_ITEM_NAME_MAX];
    if (oversize_fits(placing)) {
        return MR_OK;
    }
    return mr_fail(placing->error, MR_ERR_POISON,
                   "%s: a change is too large even without its large values: key and names alone "
                   "take more than %zu bytes; raise sink.kafka.message_max, or take the table out",
                   mr_item_name(placing->item, name), placing->oversize.limit);
}

static bool is_cut(const struct mr_tuple *tuple, uint32_t column)
{
    return tuple->kind != MR_TUPLE_NONE && tuple->values[column].kind == MR_DATUM_CUT;
}

/* Whether the column was left out of the old row or the new one, which may have it from the old
 * one. */
static bool oversize_lacks(const struct mr_change *change, uint32_t column, bool before, bool after)
{
    bool old = is_cut(&change->before, column);
    bool taken = old && change->after.kind != MR_TUPLE_NONE &&
                 change->after.values[column].kind == MR_DATUM_UNCHANGED;
    return (before && old) || (after && (taken || is_cut(&change->after, column)));
}

/* The names of the columns that are left out; false: there are none. */
static bool append_columns(struct mr_buffer *out, const struct mr_change *change, bool before,
                           bool after)
{
    bool found = false;
    for (uint32_t i = 0; i < change->relation->column_count; i++) {
        if (oversize_lacks(change, i, before, after)) {
            mr_buffer_append(out, found ? "," : "[", 1);
            mr_put_slice(out, mr_slice_of(change->relation->columns[i].name));
            found = true;
        }
    }
    mr_buffer_append(out, "]", found);
    return found;
}

/* Tells in the record's headers that it stands for one of `bytes`, without these columns (none: no
 * word of them). The value moves to the end of what is written, for they follow it. */
static void oversize_note(struct mr_buffer *out, struct mr_record *record, size_t bytes,
                          mr_slice columns)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%zu", bytes);
    const uint8_t *more = mr_record_headers(record);
    const uint8_t *value = out->at;
    mr_buffer_append(out, record->value, record->value_len);
    uint8_t *block = mr_headers_begin(out, more);
    mr_header_append(out, MR_HEADER_OVERSIZE, mr_slice_of(digits));
    if (columns.len > 0) {
        mr_header_append(out, MR_HEADER_OVERSIZE_COLUMNS, columns);
    }
    mr_headers_end(out, block);
    record->value = value;
    record->has_headers = true;
}

/* A changed key makes a delete with the old row, a tombstone, and a create with the new one. */
static void note_change(struct placing *placing, const struct mr_change *change,
                        struct mr_buffer *out)
{
    uint32_t others = own_records(placing->records, placing->count);
    struct mr_record *records = placing->records + others;
    uint32_t count = placing->count - others;
    for (uint32_t i = 0; i < count; i++) {
        bool last = i + 1 == count;
        bool before = change->op != MR_OP_UPDATE || count == 1 || !last;
        bool after = change->op != MR_OP_UPDATE || last;
        const uint8_t *columns = out->at;
        if (records[i].value != NULL && append_columns(out, change, before, after)) {
            oversize_note(out, &records[i], placing->oversize.bytes, mr_text_since(out, columns));
        }
    }
}

/* Leaves out as little as it can: values longer than half the limit, then than an eighth, and so
 * on. */
static mr_status place_change(struct placing *placing)
{
    struct cut cut = cut_new(placing->item->change);
    mr_status status;
    size_t longest = placing->oversize.limit / 2;
    struct mr_buffer out = *placing->out;
    while ((status = encode_cut(placing, &cut, longest, &out)) == MR_OK &&
           !oversize_fits(placing) && longest > 0) {
        longest = longest > CUT_LAST ? longest / CUT_FACTOR : 0;
        out = *placing->out;
    }
    status = MR_THEN(status, check_fits(placing));
    if (status == MR_OK) {
        note_change(placing, &cut.change, &out);
        status = out.full ? MR_FULL : MR_OK;
        *placing->out = out;
    }
    free(cut.values);
    return status;
}

static mr_status encode_empty_message(struct placing *placing, struct mr_buffer *out)
{
    struct mr_message_event message = *placing->item->message;
    message.content = (mr_slice){0};
    return oversize_encode_into(
        placing, &(struct mr_item){.kind = MR_ITEM_MESSAGE, .message = &message}, out);
}

static mr_status place_message(struct placing *placing)
{
    MR_TRY(encode_empty_message(placing, placing->out));
    MR_TRY(check_fits(placing));
    oversize_note(placing->out, &placing->records[own_records(placing->records, placing->count)],
                  placing->oversize.bytes, MR_SLICE("[\"content\"]"));
    return placing->out->full ? MR_FULL : MR_OK;
}

static void oversize_append_name(struct mr_buffer *out, const char *field, const char *value)
{
    mr_buffer_append(out, field, strlen(field));
    mr_put_slice(out, mr_slice_of(value));
}

static void append_key(struct mr_buffer *out, const struct mr_record *record, mr_slice key)
{
    MR_BUFFER_LITERAL(out, ",\"key\":");
    if (key.data == NULL) {
        MR_BUFFER_LITERAL(out, "null");
    } else if (record->key_content == MR_CONTENT_TEXT) {
        mr_json_string(out, key.data, key.len);
    } else if (record->key_content == MR_CONTENT_BINARY) {
        mr_json_base64(out, key.data, key.len);
    } else {
        mr_buffer_slice(out, key);
    }
}

static void append_letter(const struct placing *placing, const struct mr_record *record,
                          mr_slice key)
{
    const struct mr_item *item = placing->item;
    const struct mr_change *change = item->kind == MR_ITEM_CHANGE ? item->change : NULL;
    struct mr_buffer *out = placing->out;
    oversize_append_name(out, "{\"topic\":", record->topic->name);
    append_key(out, record, key);
    mr_buffer_format(out,
                     ",\"position\":\"%016" PRIX64 "-%010" PRIX64
                     "-0\",\"commit_lsn\":\"" MR_LSN_FORMAT "\",\"lsn\":\"" MR_LSN_FORMAT
                     "\",\"xid\":%" PRIu32 ",\"ts_us\":%" PRId64,
                     record->position.commit_lsn, record->position.ordinal,
                     MR_LSN_ARGS(record->position.commit_lsn),
                     MR_LSN_ARGS(change == NULL ? item->message->lsn : change->lsn), record->xid,
                     record->commit_time_us);
    if (change != NULL) {
        oversize_append_name(out, ",\"schema\":", change->relation->schema);
        oversize_append_name(out, ",\"table\":", change->relation->table);
    }
    oversize_append_name(
        out, ",\"operation\":", mr_op_name(change == NULL ? MR_OP_MESSAGE : change->op));
    oversize_append_name(out, ",\"reason\":", placing->oversize.reason);
    mr_buffer_format(out, ",\"bytes\":%zu,\"limit\":%zu}", placing->oversize.bytes,
                     placing->oversize.limit);
}

static void letter_set_position(struct mr_record *record)
{
    static const char field[] = ",\"position\":\"";
    enum { FIELD_LEN = sizeof(field) - 1, WIDTH = 16 + 1 + 10 };
    uint8_t *text = (uint8_t *)(uintptr_t)record->value;
    /* The last one that looks like it: what comes after it are strings and numbers; a key may look
     * like anything. */
    uint32_t at = record->value_len - FIELD_LEN - WIDTH;
    while (memcmp(text + at, field, FIELD_LEN) != 0) {
        MR_ASSERT(at > 0);
        at--;
    }
    char digits[WIDTH + 1];
    snprintf(digits, sizeof(digits), "%016" PRIX64 "-%010" PRIX64, record->position.commit_lsn,
             record->position.ordinal);
    memcpy(text + at + FIELD_LEN, digits, WIDTH);
}

void mr_record_set_position(struct mr_record *record)
{
    if (record->kind == MR_RECORD_LETTER) {
        letter_set_position(record);
    } else if (record->kind == MR_RECORD_CLOUD) {
        mr_cloud_set_position(record);
    }
}

/* The record that holds the new state: that of a delete, else the last one. */
static struct mr_record chief_record(const struct placing *placing)
{
    const struct mr_item *item = placing->item;
    bool deletes = item->kind == MR_ITEM_CHANGE && item->change->op == MR_OP_DELETE;
    return placing
        ->records[deletes ? own_records(placing->records, placing->count) : placing->count - 1];
}

static mr_status encode_small(struct placing *placing, struct mr_buffer *out)
{
    if (placing->item->kind == MR_ITEM_MESSAGE) {
        return encode_empty_message(placing, out);
    }
    struct cut cut = cut_new(placing->item->change);
    mr_status status = encode_cut(placing, &cut, 0, out);
    free(cut.values);
    return status;
}

/* The whole change goes, whichever of its records is too large: half of it would be a lie. */
static mr_status write_letter(struct placing *placing)
{
    struct mr_buffer small = *placing->out;
    struct mr_buffer *out = placing->out;
    placing->encoder->placing.writes_letter = true;
    mr_status status = encode_small(placing, &small);
    placing->encoder->placing.writes_letter = false;
    if (status != MR_OK || placing->count == 0) {
        return status; /* 0: it is filtered */
    }
    struct mr_record letter = chief_record(placing);
    uint8_t *begin = out->at;
    mr_slice key = {.data = letter.key == NULL ? NULL : begin, .len = letter.key_len};
    if (letter.key != NULL) {
        memmove(begin, letter.key, letter.key_len);
    }
    out->at = begin + letter.key_len;
    letter.value = out->at;
    append_letter(placing, &letter, key);
    letter.key = key.data;
    letter.value_len = (uint32_t)(out->at - letter.value);
    letter.topic = placing->encoder->names.dead_letter;
    letter.part = 0;
    letter.kind = MR_RECORD_LETTER;
    letter.value_content = MR_CONTENT_JSON;
    letter.has_headers = false;
    oversize_note(out, &letter, placing->oversize.bytes, (mr_slice){0});
    placing->records[0] = letter;
    placing->count = 1;
    return out->full ? MR_FULL : check_fits(placing);
}

static mr_status place_item(struct placing *placing)
{
    if (placing->encoder->options.oversize == MR_OVERSIZE_DEAD_LETTER) {
        return write_letter(placing);
    }
    return placing->item->kind == MR_ITEM_MESSAGE ? place_message(placing) : place_change(placing);
}

/* What the change makes in one stream of several: as it is where that fits. */
static mr_status place_stream(struct placing *placing)
{
    struct mr_buffer out = *placing->out;
    mr_status status = oversize_encode_into(placing, placing->item, &out);
    if (status == MR_OK && oversize_fits(placing)) {
        *placing->out = out;
        return MR_OK;
    }
    return status == MR_OK || status == MR_FULL ? place_item(placing) : status;
}

static mr_status place_streams(struct placing *placing, const struct mr_plan *first)
{
    struct mr_encoder *encoder = placing->encoder;
    struct placing each = *placing;
    uint32_t total = 0;
    uint8_t number = 0;
    mr_status status = MR_OK;
    size_t streams = 0;
    for (const struct mr_plan *plan = first; plan != NULL; plan = plan->next) {
        streams++;
    }
    each.oversize.limit /= placing->oversize.is_shared ? streams : 1;
    for (const struct mr_plan *plan = first; plan != NULL && status == MR_OK; plan = plan->next) {
        each.records = placing->records + total;
        each.count = 0;
        encoder->placing.only = plan;
        encoder->placing.has_told = own_records(placing->records, total) > 0;
        status = place_stream(&each);
        if (each.count > 0 && each.records[0].kind == MR_RECORD_LETTER) {
            each.records[0].part = number; /* all letters have one topic */
        }
        total += each.count;
        number++;
    }
    encoder->placing.only = NULL;
    encoder->placing.has_told = false;
    placing->count = total;
    return status;
}

/* The end of a transaction of very many tables. */
static mr_status place_end(struct placing *placing)
{
    MR_TRY(mr_encode_end_as(placing->encoder, placing->item->end, MR_TRANSACTION_SHORT_END,
                            placing->out, placing->records, &placing->count));
    return check_fits(placing);
}

static mr_status oversize_place(struct placing *placing)
{
    const struct mr_item *item = placing->item;
    struct mr_plan *plan;
    switch (item->kind) {
    case MR_ITEM_CHANGE:
        MR_TRY(mr_plan_for(placing->encoder, item->change->relation, &plan, placing->error));
        return plan->next != NULL ? place_streams(placing, plan) : place_item(placing);
    case MR_ITEM_MESSAGE:
        return place_item(placing);
    case MR_ITEM_END:
        return place_end(placing);
    case MR_ITEM_RECORD:
        break;
    }
    return oversize_encode_into(placing, item, placing->out);
}

/* What a message that is an outbox's event stands for; else the item itself. */
static struct mr_item stand_in(struct mr_encoder *encoder, const struct mr_item *item)
{
    const struct mr_change *change = NULL;
    if (item->kind == MR_ITEM_MESSAGE && mr_is_outbox_message(&encoder->options, item->message)) {
        change = mr_outbox_message_row(encoder, item->message);
    }
    return change == NULL ? *item : (struct mr_item){.change = change};
}

mr_status mr_encode_oversize(struct mr_encoder *encoder, const struct mr_item *item,
                             const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                             struct mr_record *ret_records, uint32_t *ret_count,
                             struct mr_error *ret_error)
{
    const struct mr_item stands = stand_in(encoder, item);
    struct placing placing = {.encoder = encoder,
                              .item = &stands,
                              .oversize = *oversize,
                              .out = buffer,
                              .records = ret_records,
                              .error = ret_error};
    MR_ASSERT(encoder->options.oversize != MR_OVERSIZE_FAIL);
    mr_status status = oversize_place(&placing);
    *ret_count = placing.count;
    return status;
}
