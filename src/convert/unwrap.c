/* ExtractNewRecordState: rows without an envelope. */
#include <string.h>

#include "convert/convert_internal.h"
#include "encode/encode.h"

/* The older two options, and what they come to (LegacyDeleteHandlingStrategy of Debezium 2.5 to 3.0). */
static const char *legacy_mode(bool drops, const char *deletes)
{
    if (strcasecmp(deletes, "rewrite") == 0) {
        return drops ? "rewrite" : "rewrite-with-tombstone";
    }
    if (strcasecmp(deletes, "none") == 0) {
        return "tombstone";
    }
    return drops ? "drop"
                 : "delete-to-tombstone"; /* of a delete and its tombstone the latter stays */
}

static void convert_deletes(struct mr_convert *convert, const char *alias)
{
    static const char option[] = "row.delete_tombstone_handling_mode";
    const struct mr_convert_line *mode =
        mr_convert_take_option(convert, alias, "delete.tombstone.handling.mode");
    const struct mr_convert_line *drops = mr_convert_take_option(convert, alias, "drop.tombstones");
    const struct mr_convert_line *deletes =
        mr_convert_take_option(convert, alias, "delete.handling.mode");
    if (mode != NULL && mode->value[0] != '\0') {
        if (!mr_convert_set(convert, option, mode->value)) {
            mr_convert_note(convert, MR_NOTE_LOST, mode->given, "%s does not take its value",
                            option);
        }
    } else if (drops != NULL || deletes != NULL) {
        mr_convert_set(convert, option,
                       legacy_mode(drops == NULL || strcasecmp(drops->value, "false") != 0,
                                   deletes == NULL ? "drop" : deletes->value));
    } else {
        mr_convert_set(convert, option, "tombstone"); /* Debezium's default */
    }
}

/* "op,source.ts_ms:when". A field that events don't have is none in Debezium's, either; one that millrace's don't have is told. */
static void convert_fields(struct mr_convert *convert, const char *alias, const char *name,
                           const char *option)
{
    const struct mr_convert_line *line = mr_convert_take_option(convert, alias, name);
    struct mr_convert_list given = {0};
    struct mr_convert_list fields = {0};
    mr_convert_split(line == NULL ? "" : line->value, ',', &given);
    for (uint32_t i = 0; i < given.count; i++) {
        enum mr_event_field field;
        bool has_part;
        mr_slice text = {.data = (const uint8_t *)given.items[i],
                         .len = strcspn(given.items[i], ":")};
        if (mr_event_field_find(text, &field, &has_part)) {
            mr_convert_list_add(&fields, MR_STRDUP(given.items[i]));
        } else {
            mr_convert_note(convert, MR_NOTE_LOST, line->given,
                            "part %u is not a field that millrace's events have (docs/events.md)",
                            i + 1);
        }
    }
    if (fields.count > 0) {
        mr_convert_set_list(convert, option, &fields);
    }
    mr_convert_list_done(&given);
    mr_convert_list_done(&fields);
}

static void convert_prefix(struct mr_convert *convert, const char *alias, const char *name,
                           const char *option)
{
    const struct mr_convert_line *line = mr_convert_take_option(convert, alias, name);
    if (line != NULL) {
        mr_convert_set(convert, option, line->value);
    }
}

void mr_convert_unwrap(struct mr_convert *convert, const char *alias)
{
    mr_convert_set(convert, "format", "row");
    convert_deletes(convert, alias);
    convert_fields(convert, alias, "add.fields", "row.add_fields");
    convert_fields(convert, alias, "add.headers", "row.add_headers");
    convert_prefix(convert, alias, "add.fields.prefix", "row.add_fields_prefix");
    convert_prefix(convert, alias, "add.headers.prefix", "row.add_headers_prefix");
}
