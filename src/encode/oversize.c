/* What takes the place of a change with a record that is too large: the event without its large values, or a letter
 * in another topic that tells where it is to be found. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "encode/values/row.h"

enum {
    CUT_FACTOR = 4,    /* from one try at how long values may be to the next */
    CUT_LAST = 64,     /* below this, all go */
    LETTER_HEAD = 1024 /* of the letter's own text, names aside */
};

/* The first of an item's own records: the beginning of its transaction and its table's form may come before. */
static uint32_t own_records(const struct mr_record *records, uint32_t count)
{
    uint32_t i = 0;
    while (i < count &&
           (records[i].kind == MR_RECORD_TRANSACTION || records[i].kind == MR_RECORD_SCHEMA)) {
        i++;
    }
    return i;
}

size_t mr_item_bytes(const struct mr_item *item)
{
    if (item->end != NULL) {
        return 0;
    }
    if (item->message != NULL) {
        return item->message->prefix.len + item->message->content.len;
    }
    const struct mr_change *change = item->change;
    const struct mr_tuple *const tuples[] = {&change->before, &change->after};
    size_t bytes = 0;
    for (size_t t = 0; t < MR_ARRAY_LEN(tuples); t++) {
        for (uint32_t i = 0; tuples[t]->kind != MR_TUPLE_NONE && i < change->relation->column_count;
             i++) {
            if (tuples[t]->values[i].kind == MR_DATUM_TEXT) {
                bytes += tuples[t]->values[i].len;
            }
        }
    }
    return bytes;
}

/* ---- a change without its large values ---- */

struct cut {
    struct mr_change change; /* as the original, but for its tuples */
    struct mr_datum *before; /* of all columns; the originals or cut ones */
    struct mr_datum *after;
};

static bool may_cut(const struct mr_encoder *encoder, const struct mr_plan *plan, uint32_t column)
{
    return !mr_plan_is_key(plan, column) &&
           (plan->place == NULL || plan->place->column != column) &&
           (plan->outbox == NULL || mr_outbox_may_cut(encoder->options.outbox, plan, column));
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
    uint32_t count = change->relation->column_count;
    return (struct cut){.change = *change,
                        .before = MR_NEW_ARRAY(struct mr_datum, count + 1),
                        .after = MR_NEW_ARRAY(struct mr_datum, count + 1)};
}

static void cut_done(struct cut *cut)
{
    free(cut->before);
    free(cut->after);
}

/* Encodes the change with no value longer than `longest`, keys aside. */
static mr_status encode_cut(struct mr_encoder *encoder, struct cut *cut,
                            const struct mr_change *change, size_t longest,
                            struct mr_buffer *buffer, struct mr_record *ret_records,
                            uint32_t *ret_count, struct mr_error *ret_error)
{
    struct mr_plan *first;
    MR_TRY(mr_plan_for(encoder, change->relation, &first, ret_error));
    const struct mr_plan *plan = encoder->only != NULL ? encoder->only : first;
    cut->change.before = cut_tuple(encoder, plan, &change->before, longest, cut->before);
    cut->change.after = cut_tuple(encoder, plan, &change->after, longest, cut->after);
    return mr_encode_change(encoder, &cut->change, buffer, ret_records, ret_count, ret_error);
}

static bool fits(const struct mr_record *records, uint32_t count, size_t limit)
{
    for (uint32_t i = 0; i < count; i++) {
        if (mr_record_bytes(&records[i]) > limit) {
            return false;
        }
    }
    return true;
}

static mr_status fail_still(const struct mr_item *item, const struct mr_oversize_case *oversize,
                            struct mr_error *ret_error)
{
    const struct mr_relation *relation = item->change == NULL ? NULL : item->change->relation;
    return mr_fail(ret_error, MR_ERR_POISON,
                   "a change of %s%s%s is too large even without its large values: key and names "
                   "alone take more than %zu bytes; raise sink.kafka.message_max, or take the "
                   "table out",
                   relation != NULL        ? relation->schema
                   : item->message != NULL ? "a logical message"
                                           : "the end of a transaction",
                   relation == NULL ? "" : ".", relation == NULL ? "" : relation->table,
                   oversize->limit);
}

/* ---- the placeholder ---- */

static bool is_cut(const struct mr_tuple *tuple, uint32_t column)
{
    return tuple->kind != MR_TUPLE_NONE && tuple->values[column].kind == MR_DATUM_CUT;
}

/* Whether the column was left out of the old row or the new one, which may have it from the old one. */
static bool lacks(const struct mr_change *change, uint32_t column, bool before, bool after)
{
    bool old = is_cut(&change->before, column);
    bool taken = old && change->after.kind != MR_TUPLE_NONE &&
                 change->after.values[column].kind == MR_DATUM_UNCHANGED;
    return (before && old) || (after && (taken || is_cut(&change->after, column)));
}

static void append_columns(struct mr_buffer *out, const struct mr_change *change, bool before,
                           bool after)
{
    bool first = true;
    MR_BUFFER_LITERAL(out, "[");
    for (uint32_t i = 0; i < change->relation->column_count; i++) {
        if (lacks(change, i, before, after)) {
            const char *name = change->relation->columns[i].name;
            mr_buffer_append(out, ",", first ? 0 : 1);
            mr_json_string(out, (const uint8_t *)name, strlen(name));
            first = false;
        }
    }
    MR_BUFFER_LITERAL(out, "]");
}

static bool has_cut(const struct mr_change *change, bool before, bool after)
{
    for (uint32_t i = 0; i < change->relation->column_count; i++) {
        if (lacks(change, i, before, after)) {
            return true;
        }
    }
    return false;
}

/* Tells in the record's headers that it stands for one of `bytes`, without these columns (none: no word of them). The
 * value moves to the end of what is written, for they follow it. */
static void note(struct mr_buffer *out, struct mr_record *record, size_t bytes, mr_slice columns)
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
static void note_change(struct mr_buffer *out, const struct mr_change *change,
                        struct mr_record *records, uint32_t count, size_t bytes)
{
    uint32_t others = own_records(records, count);
    records += others;
    count -= others;
    for (uint32_t i = 0; i < count; i++) {
        bool last = i + 1 == count;
        bool before = change->op != MR_OP_UPDATE || count == 1 || !last;
        bool after = change->op != MR_OP_UPDATE || last;
        if (records[i].value != NULL && has_cut(change, before, after)) {
            const uint8_t *columns = out->at;
            append_columns(out, change, before, after);
            note(out, &records[i], bytes,
                 (mr_slice){.data = columns, .len = (size_t)(out->at - columns)});
        }
    }
}

/* Leaves out as little as it can: values longer than half the limit, then than an eighth, and so on. */
static mr_status place_change(struct mr_encoder *encoder, const struct mr_item *item,
                              const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                              struct mr_record *ret_records, uint32_t *ret_count,
                              struct mr_error *ret_error)
{
    struct cut cut = cut_new(item->change);
    mr_status status;
    size_t longest = oversize->limit / 2;
    for (;; longest = longest > CUT_LAST ? longest / CUT_FACTOR : 0) {
        struct mr_buffer out = *buffer;
        status = encode_cut(encoder, &cut, item->change, longest, &out, ret_records, ret_count,
                            ret_error);
        if (status != MR_OK) {
            break;
        }
        if (fits(ret_records, *ret_count, oversize->limit)) {
            note_change(&out, &cut.change, ret_records, *ret_count, oversize->bytes);
            status = out.full ? MR_FULL : MR_OK;
            *buffer = out;
            break;
        }
        if (longest == 0) {
            status = fail_still(item, oversize, ret_error);
            break;
        }
    }
    cut_done(&cut);
    return status;
}

static mr_status place_message(struct mr_encoder *encoder, const struct mr_item *item,
                               const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                               struct mr_record *ret_records, uint32_t *ret_count,
                               struct mr_error *ret_error)
{
    struct mr_message_event message = *item->message;
    message.content = (mr_slice){0};
    MR_TRY(mr_encode_message(encoder, &message, buffer, ret_records, ret_count, ret_error));
    if (!fits(ret_records, *ret_count, oversize->limit)) {
        return fail_still(item, oversize, ret_error);
    }
    note(buffer, &ret_records[own_records(ret_records, *ret_count)], oversize->bytes,
         MR_SLICE("[\"content\"]"));
    return buffer->full ? MR_FULL : MR_OK;
}

/* ---- the letter ---- */

static void append_name(struct mr_buffer *out, const char *field, const char *value)
{
    mr_buffer_append(out, field, strlen(field));
    mr_json_string(out, (const uint8_t *)value, strlen(value));
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

static void append_letter(struct mr_buffer *out, const struct mr_item *item,
                          const struct mr_record *record, mr_slice key,
                          const struct mr_oversize_case *oversize)
{
    const struct mr_change *change = item->change;
    char numbers[LETTER_HEAD];
    append_name(out, "{\"topic\":", record->topic->name);
    append_key(out, record, key);
    snprintf(numbers, sizeof(numbers),
             ",\"position\":\"%016" PRIX64 "-%010" PRIX64 "-0\",\"commit_lsn\":\"" MR_LSN_FORMAT
             "\",\"lsn\":\"" MR_LSN_FORMAT "\",\"xid\":%" PRIu32 ",\"ts_us\":%" PRId64,
             record->position.commit_lsn, record->position.ordinal,
             MR_LSN_ARGS(record->position.commit_lsn),
             MR_LSN_ARGS(change == NULL ? item->message->lsn : change->lsn), record->xid,
             record->commit_time_us);
    mr_buffer_append(out, numbers, strlen(numbers));
    if (change != NULL) {
        append_name(out, ",\"schema\":", change->relation->schema);
        append_name(out, ",\"table\":", change->relation->table);
    }
    append_name(out, ",\"operation\":", mr_op_name(change == NULL ? MR_OP_MESSAGE : change->op));
    append_name(out, ",\"reason\":", oversize->reason);
    snprintf(numbers, sizeof(numbers), ",\"bytes\":%zu,\"limit\":%zu}", oversize->bytes,
             oversize->limit);
    mr_buffer_append(out, numbers, strlen(numbers));
}

static void letter_set_position(struct mr_record *record)
{
    static const char field[] = ",\"position\":\"";
    enum { FIELD_LEN = sizeof(field) - 1, WIDTH = 16 + 1 + 10 };
    uint8_t *text = (uint8_t *)(uintptr_t)record->value;
    /* The last one that looks like it: what comes behind are strings and numbers; a key may look like anything. */
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

/* The key of the record that holds the new state: that of a delete, else the last one. */
static const struct mr_record *chief_record(const struct mr_item *item,
                                            const struct mr_record *records, uint32_t count)
{
    bool deletes = item->change != NULL && item->change->op == MR_OP_DELETE;
    return deletes ? &records[own_records(records, count)] : &records[count - 1];
}

static mr_status encode_small(struct mr_encoder *encoder, const struct mr_item *item,
                              struct mr_buffer *buffer, struct mr_record *ret_records,
                              uint32_t *ret_count, struct mr_error *ret_error)
{
    if (item->message != NULL) {
        struct mr_message_event message = *item->message;
        message.content = (mr_slice){0};
        return mr_encode_message(encoder, &message, buffer, ret_records, ret_count, ret_error);
    }
    struct cut cut = cut_new(item->change);
    mr_status status =
        encode_cut(encoder, &cut, item->change, 0, buffer, ret_records, ret_count, ret_error);
    cut_done(&cut);
    return status;
}

/* The whole change goes, whichever of its records is too large: half of it would be a lie. */
static mr_status write_letter(struct mr_encoder *encoder, const struct mr_item *item,
                              const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                              struct mr_record *ret_records, uint32_t *ret_count,
                              struct mr_error *ret_error)
{
    struct mr_buffer out = *buffer;
    encoder->writes_letter = true;
    mr_status status = encode_small(encoder, item, &out, ret_records, ret_count, ret_error);
    encoder->writes_letter = false;
    if (status != MR_OK) {
        return status;
    }
    if (*ret_count == 0) {
        return MR_OK; /* filtered */
    }
    struct mr_record letter = *chief_record(item, ret_records, *ret_count);
    uint8_t *begin = buffer->at;
    mr_slice key = {.data = letter.key == NULL ? NULL : begin, .len = letter.key_len};
    if (letter.key != NULL) {
        memmove(begin, letter.key, letter.key_len);
    }
    buffer->at = begin + letter.key_len;
    letter.value = buffer->at;
    append_letter(buffer, item, &letter, key, oversize);
    letter.key = key.data;
    letter.value_len = (uint32_t)(buffer->at - letter.value);
    letter.topic = encoder->dead_letter_topic;
    letter.part = 0;
    letter.kind = MR_RECORD_LETTER;
    letter.value_content = MR_CONTENT_JSON;
    letter.has_headers = false;
    note(buffer, &letter, oversize->bytes, (mr_slice){0});
    ret_records[0] = letter;
    *ret_count = 1;
    if (buffer->full) {
        return MR_FULL;
    }
    return fits(ret_records, 1, oversize->limit) ? MR_OK : fail_still(item, oversize, ret_error);
}

/* What a message that is an outbox's event stands for; else the item itself. */
static struct mr_item stand_in(struct mr_encoder *encoder, const struct mr_item *item)
{
    if (item->message == NULL || !mr_is_outbox_message(&encoder->options, item->message)) {
        return *item;
    }
    const struct mr_change *change = mr_outbox_message_row(encoder, item->message);
    return change == NULL ? *item : (struct mr_item){.change = change};
}

static mr_status place_item(struct mr_encoder *encoder, const struct mr_item *item,
                            const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                            struct mr_record *ret_records, uint32_t *ret_count,
                            struct mr_error *ret_error)
{
    if (encoder->options.oversize == MR_OVERSIZE_DEAD_LETTER) {
        return write_letter(encoder, item, oversize, buffer, ret_records, ret_count, ret_error);
    }
    return item->message == NULL
               ? place_change(encoder, item, oversize, buffer, ret_records, ret_count, ret_error)
               : place_message(encoder, item, oversize, buffer, ret_records, ret_count, ret_error);
}

/* What the change makes in one stream of several: as it is where that fits. */
static mr_status place_stream(struct mr_encoder *encoder, const struct mr_item *item,
                              const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                              struct mr_record *ret_records, uint32_t *ret_count,
                              struct mr_error *ret_error)
{
    struct mr_buffer out = *buffer;
    mr_status status =
        mr_encode_change(encoder, item->change, &out, ret_records, ret_count, ret_error);
    if (status == MR_OK && fits(ret_records, *ret_count, oversize->limit)) {
        *buffer = out;
        return MR_OK;
    }
    return status == MR_OK || status == MR_FULL
               ? place_item(encoder, item, oversize, buffer, ret_records, ret_count, ret_error)
               : status;
}

static mr_status place_streams(struct mr_encoder *encoder, const struct mr_plan *first,
                               const struct mr_item *item, const struct mr_oversize_case *oversize,
                               struct mr_buffer *buffer, struct mr_record *ret_records,
                               uint32_t *ret_count, struct mr_error *ret_error)
{
    uint32_t total = 0;
    uint8_t number = 0;
    mr_status status = MR_OK;
    struct mr_oversize_case each = *oversize;
    size_t streams = 0;
    for (const struct mr_plan *plan = first; plan != NULL; plan = plan->next) {
        streams++;
    }
    each.limit /= oversize->is_shared ? streams : 1;
    for (const struct mr_plan *plan = first; plan != NULL && status == MR_OK; plan = plan->next) {
        uint32_t count = 0;
        struct mr_record *records = ret_records + total;
        encoder->only = plan;
        encoder->has_told = own_records(ret_records, total) > 0;
        status = place_stream(encoder, item, &each, buffer, records, &count, ret_error);
        if (count > 0 && records[0].kind == MR_RECORD_LETTER) {
            records[0].part = number; /* all letters have one topic */
        }
        total += count;
        number++;
    }
    encoder->only = NULL;
    encoder->has_told = false;
    *ret_count = total;
    return status;
}

mr_status mr_encode_oversize(struct mr_encoder *encoder, const struct mr_item *of_stream,
                             const struct mr_oversize_case *oversize, struct mr_buffer *buffer,
                             struct mr_record *ret_records, uint32_t *ret_count,
                             struct mr_error *ret_error)
{
    const struct mr_item stands = stand_in(encoder, of_stream);
    const struct mr_item *item = &stands;
    MR_ASSERT(encoder->options.oversize != MR_OVERSIZE_FAIL);
    if (item->end != NULL) { /* of very many tables */
        MR_TRY(mr_encode_end_as(encoder, item->end, false, buffer, ret_records, ret_count));
        return fits(ret_records, *ret_count, oversize->limit)
                   ? MR_OK
                   : fail_still(item, oversize, ret_error);
    }
    if (item->change != NULL) {
        struct mr_plan *plan;
        MR_TRY(mr_plan_for(encoder, item->change->relation, &plan, ret_error));
        if (plan->next != NULL) {
            return place_streams(encoder, plan, item, oversize, buffer, ret_records, ret_count,
                                 ret_error);
        }
    }
    return place_item(encoder, item, oversize, buffer, ret_records, ret_count, ret_error);
}
