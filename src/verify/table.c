#include "verify/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"

void mr_verify_table_done(struct mr_verify_table *table)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        free(table->columns[i].name);
    }
    free(table->columns);
    free(table->key);
    free(table->topic);
    *table = (struct mr_verify_table){0};
}

struct mr_verify_column *mr_verify_column_add(struct mr_verify_table *table, struct mr_digest key,
                                              const char *name)
{
    MR_GROW(table->columns, table->column_room, (size_t)table->column_count + 1);
    struct mr_verify_column *column = &table->columns[table->column_count++];
    *column = (struct mr_verify_column){.name = MR_STRDUP(name), .name_len = strlen(name)};
    column->key = mr_digest_of(key, mr_slice_of(name));
    return column;
}

/* A null's digest is no text's: it is made under another key. */
struct mr_digest mr_verify_value_digest(const struct mr_verify_column *column, mr_slice text)
{
    struct mr_digest key = column->key;
    key.high ^= text.data == NULL;
    return mr_digest_of(key, text);
}

/* Of an event's value, which PostgreSQL has as `text`. One of a type that the column's values have not in JSON equals none of them. */
static struct mr_digest scanned_digest(const struct mr_verify_column *column,
                                       const struct mr_scanned *value, mr_slice text)
{
    struct mr_digest digest = mr_verify_value_digest(column, text);
    bool is_text = value->kind == MR_SCAN_STRING || value->kind == MR_SCAN_NULL;
    digest.high ^= !is_text && !column->is_bare;
    return digest;
}

void mr_verify_column_mask(struct mr_verify_column *column, uint32_t length)
{
    uint8_t *asterisks = MR_ALLOC((size_t)length + 1);
    memset(asterisks, '*', length);
    column->treatment = MR_TREAT_MASKED;
    column->mask = mr_verify_value_digest(column, (mr_slice){.data = asterisks, .len = length});
    free(asterisks);
}

static struct mr_digest hashed(const struct mr_verify_table *table,
                               const struct mr_verify_column *column, mr_slice text)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[MR_SHA256_BYTES];
    uint8_t written[2 * MR_SHA256_BYTES];
    mr_sha256(mr_slice_of(table->salt), text, bytes);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        written[2 * i] = (uint8_t)digits[bytes[i] >> 4];
        written[2 * i + 1] = (uint8_t)digits[bytes[i] & 15];
    }
    return mr_verify_value_digest(column, (mr_slice){.data = written, .len = sizeof(written)});
}

/* So many characters of UTF-8 are so many first bytes. */
static mr_slice cut(mr_slice text, uint32_t length)
{
    size_t at = 0;
    for (uint32_t count = 0; at < text.len; at++) {
        if ((text.data[at] & 0xc0) != 0x80 && count++ == length) {
            break;
        }
    }
    return (mr_slice){.data = text.data, .len = at};
}

static struct mr_digest treated(const struct mr_verify_table *table,
                                const struct mr_verify_column *column, mr_slice text)
{
    if (text.data == NULL) {
        return mr_verify_value_digest(column, text);
    }
    switch (column->treatment) {
    case MR_TREAT_MASKED:
        return column->mask;
    case MR_TREAT_CUT:
        return mr_verify_value_digest(column, cut(text, column->length));
    case MR_TREAT_HASHED:
        return hashed(table, column, text);
    default:
        return mr_verify_value_digest(column, text);
    }
}

void mr_verify_column_absent(const struct mr_verify_table *table, struct mr_verify_column *column,
                             mr_slice text)
{
    column->absent = treated(table, column, text);
}

static bool is_large(const struct mr_verify_column *column, mr_slice text)
{
    return column->is_toastable && text.data != NULL && text.len >= column->large_min;
}

static void add_large(struct mr_verify_row *row, uint32_t column, struct mr_digest digest,
                      bool is_unknown)
{
    row->large[row->large_count++] =
        (struct mr_verify_large){.column = column, .is_unknown = is_unknown, .digest = digest};
}

void mr_verify_table_row(const struct mr_verify_table *table, const mr_slice *values,
                         struct mr_verify_row *ret_row, struct mr_digest *ret_key)
{
    struct mr_verify_row row = {.large = ret_row->large};
    for (uint32_t i = 0; i < table->column_count; i++) {
        const struct mr_verify_column *column = &table->columns[i];
        if (column->treatment == MR_TREAT_LEFT_OUT) {
            continue;
        }
        struct mr_digest value = treated(table, column, values[i]);
        row.sum = mr_digest_add(row.sum, value);
        if (is_large(column, values[i])) {
            add_large(&row, i, value, false);
        }
    }
    struct mr_digest key = {0};
    for (uint32_t i = 0; i < table->key_count; i++) {
        const struct mr_verify_column *column = &table->columns[table->key[i]];
        key = mr_digest_add(key, treated(table, column, values[table->key[i]]));
    }
    *ret_row = row;
    *ret_key = key;
}

/* The column of a member; the next one most often has the next name. */
static uint32_t column_of(const struct mr_verify_table *table, const struct mr_scanned *name,
                          uint32_t hint)
{
    uint8_t plain[4 * MR_IDENTIFIER_MAX + 1];
    mr_slice text = name->text;
    if (name->is_escaped) {
        if (text.len > 6 * MR_IDENTIFIER_MAX) {
            return UINT32_MAX;
        }
        uint8_t buffer[6 * MR_IDENTIFIER_MAX];
        size_t len = mr_scan_unescape(name, buffer);
        if (len > sizeof(plain)) {
            return UINT32_MAX;
        }
        memcpy(plain, buffer, len);
        text = (mr_slice){.data = plain, .len = len};
    }
    for (uint32_t i = 0; i < table->column_count; i++) {
        uint32_t at = (hint + i) % table->column_count;
        const struct mr_verify_column *column = &table->columns[at];
        if (column->name_len == text.len && memcmp(column->name, text.data, text.len) == 0) {
            return at;
        }
    }
    return UINT32_MAX;
}

/* PostgreSQL's text of a value; `*ret_memory` is to be freed. */
static mr_slice text_of(const struct mr_scanned *value, uint8_t **ret_memory)
{
    *ret_memory = NULL;
    switch (value->kind) {
    case MR_SCAN_NULL:
        return (mr_slice){0};
    case MR_SCAN_TRUE:
        return mr_slice_of("t");
    case MR_SCAN_FALSE:
        return mr_slice_of("f");
    default:
        if (!value->is_escaped) {
            return value->text;
        }
        *ret_memory = MR_ALLOC(value->text.len + 1);
        return (mr_slice){.data = *ret_memory, .len = mr_scan_unescape(value, *ret_memory)};
    }
}

static bool is_unavailable(const struct mr_verify_table *table,
                           const struct mr_verify_column *column, mr_slice text)
{
    return column->is_toastable && text.data != NULL &&
           mr_slice_equal(text, mr_slice_of(table->unavailable));
}

static void take_value(const struct mr_verify_table *table, uint32_t at,
                       const struct mr_scanned *value, struct mr_verify_row *row)
{
    const struct mr_verify_column *column = &table->columns[at];
    uint8_t *memory;
    mr_slice text = text_of(value, &memory);
    if (is_unavailable(table, column, text)) {
        add_large(row, at, (struct mr_digest){0}, true);
    } else {
        struct mr_digest digest = scanned_digest(column, value, text);
        row->sum = mr_digest_add(row->sum, digest);
        if (is_large(column, text)) {
            add_large(row, at, digest, false);
        }
    }
    free(memory);
}

static void take_absent(const struct mr_verify_table *table, const uint8_t *seen, bool has_foreign,
                        struct mr_verify_row *row)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        const struct mr_verify_column *column = &table->columns[i];
        if (seen[i] == 0 && column->treatment != MR_TREAT_LEFT_OUT) {
            row->sum = mr_digest_add(row->sum, column->absent);
            row->is_older = has_foreign;
        }
    }
}

bool mr_verify_event_row(const struct mr_verify_table *table, mr_slice object,
                         struct mr_verify_row *ret_row)
{
    struct mr_verify_row row = {.large = ret_row->large};
    uint8_t seen[MR_COLUMNS_MAX] = {0};
    bool has_foreign = false;
    uint32_t hint = 0;
    struct mr_scan scan = mr_scan_members(object);
    struct mr_scanned name;
    struct mr_scanned value;
    while (mr_scan_member(&scan, &name, &value)) {
        uint32_t at = column_of(table, &name, hint);
        if (at == UINT32_MAX) {
            /* Fields that the configuration adds to rows (row.add_fields). */
            bool is_added = name.text.len > 2 && memcmp(name.text.data, "__", 2) == 0;
            has_foreign = has_foreign || !is_added;
        } else if (seen[at]++ > 0) {
            return false;
        } else {
            take_value(table, at, &value, &row);
        }
        hint = at == UINT32_MAX ? hint : at + 1;
    }
    if (scan.failed) {
        return false;
    }
    take_absent(table, seen, has_foreign, &row);
    *ret_row = row;
    return true;
}

/* The place of a column among those of the key; key_count: it is none of them. */
static uint32_t key_place(const struct mr_verify_table *table, uint32_t column)
{
    uint32_t i = 0;
    while (i < table->key_count && table->key[i] != column) {
        i++;
    }
    return i;
}

static enum mr_verify_key_kind read_key(const struct mr_verify_table *table, mr_slice object,
                                        struct mr_digest *ret_key)
{
    uint8_t seen[MR_COLUMNS_MAX] = {0};
    struct mr_digest key = {0};
    uint32_t count = 0;
    bool has_other = false;
    struct mr_scan scan = mr_scan_members(object);
    struct mr_scanned name;
    struct mr_scanned value;
    while (mr_scan_member(&scan, &name, &value)) {
        uint32_t at = column_of(table, &name, count < table->key_count ? table->key[count] : 0);
        uint32_t place = at == UINT32_MAX ? table->key_count : key_place(table, at);
        if (place == table->key_count) {
            has_other = true;
            continue;
        }
        if (seen[place]++ > 0) {
            return MR_VERIFY_KEY_NONE;
        }
        uint8_t *memory;
        mr_slice text = text_of(&value, &memory);
        key = mr_digest_add(key, scanned_digest(&table->columns[at], &value, text));
        free(memory);
        count++;
    }
    *ret_key = key;
    return scan.failed                             ? MR_VERIFY_KEY_NONE
           : has_other || count < table->key_count ? MR_VERIFY_KEY_OTHER
                                                   : MR_VERIFY_KEY_GOOD;
}

enum mr_verify_key_kind mr_verify_event_key(const struct mr_verify_table *table, mr_slice object,
                                            struct mr_digest *ret_key)
{
    if (table->key_count == 0) {
        return object.data == NULL ? MR_VERIFY_KEY_GOOD : MR_VERIFY_KEY_OTHER;
    }
    return object.data == NULL ? MR_VERIFY_KEY_NONE : read_key(table, object, ret_key);
}
