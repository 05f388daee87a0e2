/* What is added to rows without an envelope. */
#include <stdio.h>
#include <string.h>

#include "config/build.h"

/* "source.ts_ms", "lsn" or "lsn:name": the field is called "<prefix>source_ts_ms", "<prefix>lsn" or "<prefix>name"
 * (AbstractExtractNewRecordState.FieldReference). */
static bool take_field(struct mr_config *config, const char *text, const char *prefix,
                       struct mr_added_field *ret)
{
    size_t len = strcspn(text, ":");
    const char *alias = text[len] == ':' ? text + len + 1 : NULL;
    bool has_part;
    if (!mr_event_field_find((mr_slice){.data = (const uint8_t *)text, .len = len}, &ret->field,
                             &has_part) ||
        (alias != NULL && (alias[0] == '\0' || strchr(alias, ':') != NULL))) {
        return false;
    }
    char *name = mr_config_text(config, "%s%s", prefix, alias == NULL ? text : alias);
    if (alias == NULL && has_part) {
        *strchr(name + strlen(prefix), '.') = '_';
    }
    ret->name = name;
    return true;
}

static const struct mr_added_field *build_fields(struct mr_config *config, uint32_t option,
                                                 const char *prefix, uint32_t *ret_count)
{
    const struct mr_strings *texts = mr_value_of(&config->values, option);
    struct mr_added_field *fields =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_added_field, texts->count));
    for (uint32_t i = 0; i < texts->count; i++) {
        if (!take_field(config, texts->items[i], prefix, &fields[*ret_count])) {
            REFUSE_AT(config, option,
                      ": \"%s\" is not a field of the envelope; write \"op\", \"ts_ms\", "
                      "\"source.lsn\" or another of docs/events.md, with a name of its own behind "
                      "a colon",
                      texts->items[i]);
            return fields;
        }
        const char *name = fields[*ret_count].name;
        for (uint32_t k = 0; k < *ret_count; k++) {
            if (strcmp(fields[k].name, name) == 0) {
                REFUSE_AT(config, option, ": \"%s\" is there twice; give one a name of its own",
                          name);
            }
        }
        (*ret_count)++;
    }
    return fields;
}

void mr_config_build_bare(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_bare_options *bare = &config->encode.bare;
    bare->deletes = (enum mr_delete_mode)values->row_deletes;
    bare->fields =
        build_fields(config, MR_INDEX_row_fields, values->row_fields_prefix, &bare->field_count);
    bare->headers =
        build_fields(config, MR_INDEX_row_headers, values->row_headers_prefix, &bare->header_count);
}
