#include "verify/table.h"

#include "base/json.h"

void mr_verify_table_done(struct mr_verify_table *table)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        free(table->columns[i].name);
    }
    for (size_t i = 0; i < MR_PLACEHOLDERS; i++) {
        free((void *)(uintptr_t)table->placeholders[i].data);
    }
    mr_text_done(&table->unsent);
    free(table->columns);
    free(table->key);
    free(table->topic);
    *table = (struct mr_verify_table){0};
}

/* What one of base/json writes of a text, without its quotes. */
static char *table_written(void (*write)(struct mr_buffer *out, const uint8_t *text, size_t len),
                           const char *text)
{
    size_t len = strlen(text);
    size_t room = 6 * len + 8;
    MR_FREED uint8_t *bytes = MR_ALLOC(room);
    struct mr_buffer out = mr_buffer_init(bytes, room);
    write(&out, (const uint8_t *)text, len);
    return MR_STRNDUP((const char *)bytes + 1, (size_t)(out.at - bytes) - 2);
}

void mr_verify_table_placeholder(struct mr_verify_table *table, const char *text)
{
    struct mr_text numbers = {0};
    for (size_t i = 0; text[i] != '\0'; i++) {
        mr_text_format(&numbers, "%s%u", i == 0 ? "[" : ",", (uint8_t)text[i]);
    }
    mr_text_string(&numbers, "]");
    char *forms[MR_PLACEHOLDERS] = {table_written(mr_json_string, text),
                                    table_written(mr_json_base64, text),
                                    table_written(mr_json_base64, text)};
    for (char *at = forms[2]; *at != '\0'; at++) { /* RFC 4648, section 5 */
        *at = *at == '+' ? '-' : *at == '/' ? '_' : *at;
    }
    for (size_t i = 0; i < MR_PLACEHOLDER_STRINGS; i++) {
        forms[MR_PLACEHOLDER_STRINGS + i] = mr_formatted("[\"%s\"]", forms[i]);
    }
    forms[MR_PLACEHOLDERS - 1] = numbers.data;
    for (size_t i = 0; i < MR_PLACEHOLDERS; i++) {
        table->placeholders[i] = mr_slice_of(forms[i]);
    }
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

/* Whether the value, or the column's null, may be one that an update left alone. Without a key
 * there is none, for the identity is FULL. */
static bool may_be_left_alone(const struct mr_verify_table *table,
                              const struct mr_verify_column *column, mr_slice text)
{
    return table->key_count > 0 && column->is_toastable &&
           (text.data == NULL ? column->form.is_hidden : text.len >= column->large_min);
}

static void add_large(struct mr_verify_row *row, uint32_t column, struct mr_digest digest)
{
    row->large[row->large_count++] = (struct mr_verify_large){.column = column, .digest = digest};
}

void mr_verify_server_row(const struct mr_verify_table *table, const mr_slice *values,
                          struct mr_verify_row *ret_row, struct mr_digest *ret_key)
{
    struct mr_verify_row row = {.large = ret_row->large};
    for (uint32_t i = 0; i < table->column_count; i++) {
        const struct mr_verify_column *column = &table->columns[i];
        if (!mr_verify_is_compared(column)) {
            continue;
        }
        struct mr_digest value = mr_verify_server_value(column, values[i], false);
        row.sum = mr_digest_add(row.sum, value);
        if (column->is_late || may_be_left_alone(table, column, values[i])) {
            add_large(&row, i, value);
        }
    }
    struct mr_digest key = {0};
    for (uint32_t i = 0; i < table->key_count; i++) {
        const struct mr_verify_column *column = &table->columns[table->key[i]];
        mr_slice value = values[table->key[i]];
        bool has_form = value.data != NULL || !table->has_key_twice;
        key = mr_digest_add(key, has_form
                                     ? mr_verify_server_value(column, value, true)
                                     : mr_verify_key_text(column, values[table->column_count + i]));
    }
    *ret_row = row;
    *ret_key = key;
}

/* The column of a member; the next one most often has the next name. */
static uint32_t table_column_of(const struct mr_verify_table *table, const struct mr_scanned *name,
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
    uint32_t at = hint;
    for (uint32_t i = 0; i < table->column_count; i++, at++) {
        at = at < table->column_count ? at : 0;
        const struct mr_verify_column *column = &table->columns[at];
        if (column->name_len == text.len && memcmp(column->name, text.data, text.len) == 0) {
            return at;
        }
    }
    return UINT32_MAX;
}

/* Of a type that holds no text the placeholder is null. */
static bool is_left_alone(const struct mr_verify_table *table,
                          const struct mr_verify_column *column, const struct mr_scanned *value)
{
    if (!column->is_toastable || value->kind == MR_SCAN_NULL) {
        return column->is_toastable && column->form.is_hidden;
    }
    for (size_t i = 0; i < MR_PLACEHOLDERS; i++) {
        mr_slice placeholder = table->placeholders[i];
        bool is_string = i < MR_PLACEHOLDER_STRINGS;
        if (value->text.len == placeholder.len && placeholder.data != NULL &&
            (value->kind == MR_SCAN_STRING) == is_string &&
            memcmp(value->text.data, placeholder.data, placeholder.len) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_named_in(mr_slice list, const struct mr_verify_column *column)
{
    struct mr_scan scan = mr_scan_members(list);
    struct mr_scanned name;
    uint8_t text[6 * MR_IDENTIFIER_MAX + 1];
    while (list.data != NULL && mr_scan_element(&scan, &name)) {
        if (name.kind == MR_SCAN_STRING && name.text.len < sizeof(text) &&
            mr_scan_unescape(&name, text) == column->name_len &&
            memcmp(text, column->name, column->name_len) == 0) {
            return true;
        }
    }
    return false;
}

static void table_take_value(const struct mr_verify_table *table, uint32_t at,
                             const struct mr_scanned *value, struct mr_verify_row *row)
{
    const struct mr_verify_column *column = &table->columns[at];
    bool is_later = is_named_in(row->later, column);
    if (is_later || is_left_alone(table, column, value)) {
        add_large(row, at, (struct mr_digest){0});
        struct mr_verify_large *large = &row->large[row->large_count - 1];
        large->is_unknown = true;
        large->is_lost = value->kind == MR_SCAN_NULL && !is_later; /* it may be null in truth */
        return;
    }
    struct mr_digest digest = mr_verify_event_value(column, value, false);
    row->sum = mr_digest_add(row->sum, digest);
    bool may_be_large =
        value->kind != MR_SCAN_NULL && may_be_left_alone(table, column, value->text);
    if (column->is_late || may_be_large) {
        add_large(row, at, digest);
    }
}

/* Columns are in the order in which the table got them: who has a later one was there before, and
 * somebody withheld it (a list of the publication, which was altered and altered back). Where
 * columns were renamed, nobody knows. */
static void take_absent(const struct mr_verify_table *table, const uint8_t *seen, bool has_foreign,
                        struct mr_verify_row *row)
{
    bool has_later = false;
    for (uint32_t i = table->column_count; i-- > 0;) {
        struct mr_verify_column *column = &table->columns[i];
        if (seen[i] != 0 || !mr_verify_is_compared(column)) {
            has_later = has_later || seen[i] != 0;
            continue;
        }
        row->is_older = has_foreign;
        bool is_withheld = has_later && !has_foreign;
        if (column->is_late) {
            add_large(row, i, (struct mr_digest){0});
            struct mr_verify_large *large = &row->large[row->large_count - 1];
            *large = (struct mr_verify_large){.column = i,
                                              .is_unknown = true,
                                              .is_lost = true,
                                              .is_absent = true,
                                              .is_withheld = is_withheld,
                                              .is_known = column->is_absent_known,
                                              .has_default = column->has_default,
                                              .since = column->since,
                                              .created = column->created,
                                              .digest = column->absent};
            continue;
        }
        row->sum = mr_digest_add(row->sum, column->absent);
        column->is_lacked = true;
        bool may_be = is_withheld || mr_verify_was_there(column->since, column->created, row->xid);
        column->is_doubted = column->is_doubted || (may_be && !column->is_absent_null);
        row->lacks = row->lacks || !column->is_absent_known;
    }
}

bool mr_verify_event_row(const struct mr_verify_table *table, mr_slice object,
                         struct mr_verify_row *ret_row)
{
    struct mr_verify_row row = {
        .large = ret_row->large, .later = ret_row->later, .xid = ret_row->xid};
    uint8_t seen[MR_COLUMNS_MAX];
    memset(seen, 0, table->column_count);
    bool has_foreign = false;
    uint32_t hint = 0;
    struct mr_scan scan = mr_scan_members(object);
    struct mr_scanned name;
    struct mr_scanned value;
    while (mr_scan_member(&scan, &name, &value)) {
        uint32_t at = table_column_of(table, &name, hint);
        if (at == UINT32_MAX) {
            /* Fields that the configuration adds to rows (row.add_fields). */
            bool is_added = name.text.len > 2 && memcmp(name.text.data, "__", 2) == 0;
            has_foreign = has_foreign || !is_added;
        } else if (seen[at]++ > 0) {
            return false;
        } else if (table->columns[at].treatment != MR_TREAT_UNKNOWN) {
            table_take_value(table, at, &value, &row);
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

static struct mr_digest key_digest(const struct mr_verify_column *column,
                                   const struct mr_scanned *value, bool is_event)
{
    mr_slice text;
    if (is_event) {
        return mr_verify_event_value(column, value, true);
    }
    if (mr_verify_is_key_text(column, value, &text)) {
        return mr_verify_key_text(column, text);
    }
    MR_FREED uint8_t *memory = NULL;
    return mr_verify_server_value(column, mr_verify_text_of(value, &memory), true);
}

static enum mr_verify_key_kind table_read_key(const struct mr_verify_table *table, mr_slice object,
                                              bool is_event, struct mr_digest *ret_key)
{
    uint8_t seen[MR_COLUMNS_MAX];
    memset(seen, 0, table->key_count);
    struct mr_digest key = {0};
    uint32_t count = 0;
    bool has_other = false;
    struct mr_scan scan = mr_scan_members(object);
    struct mr_scanned name;
    struct mr_scanned value;
    while (mr_scan_member(&scan, &name, &value)) {
        uint32_t at =
            table_column_of(table, &name, count < table->key_count ? table->key[count] : 0);
        uint32_t place = at == UINT32_MAX ? table->key_count : key_place(table, at);
        if (place == table->key_count) {
            has_other = true;
            continue;
        }
        if (seen[place]++ > 0) {
            return MR_VERIFY_KEY_NONE;
        }
        key = mr_digest_add(key, key_digest(&table->columns[at], &value, is_event));
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
    /* Without one: from when the table had none, as pg_restore makes tables. */
    return object.data == NULL ? MR_VERIFY_KEY_OTHER : table_read_key(table, object, true, ret_key);
}

bool mr_verify_server_key(const struct mr_verify_table *table, mr_slice object,
                          struct mr_digest *ret_key)
{
    return table_read_key(table, object, false, ret_key) == MR_VERIFY_KEY_GOOD;
}
