/* A hostile record, as `millrace verify` reads it: any bytes as value, key and headers. Its scanner
 * takes what strict JSON is and nothing else; whatever an event's row comes to, the same bytes come
 * to it again. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "strict_json.h"
#include "verify/event.h"

enum { COLUMNS = 3 };

static bool is_utf8(mr_slice text)
{
    for (size_t at = 0; at < text.len;) {
        size_t len = strict_utf8_length(text.data + at, text.len - at);
        if (len == 0) {
            return false;
        }
        at += len;
    }
    return true;
}

static void check_scan(mr_slice text)
{
    struct mr_scanned scanned;
    bool good = mr_scan_value(text, &scanned);
    MR_ASSERT(!good || !is_utf8(text) || strict_json_valid(text));
    MR_ASSERT(good || text.len > 1000 ||
              !strict_json_valid(text)); /* shorter ones are not too deep */
    if (good && scanned.kind == MR_SCAN_STRING) {
        uint8_t *to = malloc(scanned.text.len + 1);
        MR_ASSERT(mr_scan_unescape(&scanned, to) <= scanned.text.len);
        free(to);
    }
}

/* Who passes over objects sees the same members, where it is JSON. */
static void check_shallow(mr_slice text)
{
    struct mr_scan deep = mr_scan_members(text);
    struct mr_scan shallow = mr_scan_shallow(text);
    struct mr_scanned names[2] = {0};
    struct mr_scanned values[2] = {0};
    while (mr_scan_member(&deep, &names[0], &values[0])) {
        MR_ASSERT(mr_scan_member(&shallow, &names[1], &values[1]));
        MR_ASSERT(values[0].kind == values[1].kind &&
                  mr_slice_equal(values[0].text, values[1].text));
    }
    MR_ASSERT(deep.failed || !mr_scan_member(&shallow, &names[1], &values[1]));
}

/* A value of the server, which may be any text. */
static void check_value(const struct mr_verify_table *table, mr_slice text)
{
    struct mr_verify_column column = table->columns[0];
    for (int leaf = MR_LEAF_TEXT; leaf <= MR_LEAF_DECIMAL; leaf++) {
        for (int shape = MR_SHAPE_LEAF; shape <= MR_SHAPE_INNER; shape++) {
            column.form = (struct mr_verify_form){.leaf = (enum mr_verify_leaf)leaf,
                                                  .shape = (enum mr_verify_shape)shape};
            struct mr_digest first = mr_verify_server_value(&column, text, false);
            MR_ASSERT(mr_digest_equal(first, mr_verify_server_value(&column, text, false)));
        }
    }
}

static void check_rows(const struct mr_verify_table *table, mr_slice object)
{
    struct mr_verify_large large[2 * COLUMNS];
    struct mr_verify_row first = {.large = large};
    struct mr_verify_row second = {.large = large + COLUMNS};
    bool good = mr_verify_event_row(table, object, &first);
    MR_ASSERT(good == mr_verify_event_row(table, object, &second));
    MR_ASSERT(!good || (mr_digest_equal(first.sum, second.sum) && first.large_count <= COLUMNS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mr_digest key = {.low = 1, .high = 2};
    struct mr_verify_table table = {.key = MR_NEW_ARRAY(uint32_t, COLUMNS), .key_count = 2};
    mr_verify_table_placeholder(&table, "u");
    mr_verify_column_add(&table, key, "a")->form.leaf = MR_LEAF_DECIMAL;
    mr_verify_column_add(&table, key, "b")->is_toastable = true;
    mr_verify_column_add(&table, key, "after")->form =
        (struct mr_verify_form){.leaf = MR_LEAF_REAL8, .shape = MR_SHAPE_INNER};
    table.key[0] = 0;
    table.key[1] = 1;
    mr_slice text = {.data = data, .len = size};
    check_scan(text);
    check_value(&table, text);
    check_shallow(text);
    check_rows(&table, text);
    struct mr_digest digest;
    (void)mr_verify_event_key(&table, text, &digest);
    static const char position[] = "00000000015B6A38-0000000001-0";
    size_t head = size < sizeof(position) - 1 ? size : sizeof(position) - 1;
    const struct mr_kafka_read records[] = {
        {.value = text, .position = mr_slice_of(position), .xid = mr_slice_of("7")},
        {.value = {.data = data + head, .len = size - head},
         .position = {.data = data, .len = head},
         .xid = {.data = data + head, .len = size - head}},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(records); i++) {
        for (int form = 0; form < 2; form++) {
            struct mr_event event;
            if (mr_event_read(form == 0 ? MR_FORMAT_DEBEZIUM : MR_FORMAT_ROW, &records[i],
                              &event) == NULL &&
                event.after.data != NULL) {
                check_rows(&table, event.after);
            }
        }
    }
    mr_verify_table_done(&table);
    return 0;
}
