/* What a file that is read again would change, and what of that may change while the stream
 * runs. */

#include "config/build.h"

/* An option that neither file sets may have been worked out from others. */
static bool values_equal(const struct mr_config_values *a, const struct mr_config_values *b,
                         uint32_t index)
{
    if (a->lines[index] == 0 && b->lines[index] == 0) {
        return true;
    }
    const void *one = mr_value_of(a, index);
    const void *other = mr_value_of(b, index);
    enum mr_option_kind kind = mr_option_at(index)->kind;
    if (mr_kind_is_list(kind)) {
        return mr_strings_equal(one, other);
    }
    switch (kind) {
    case MR_KIND_STRING:
    case MR_KIND_TOPIC:
        return strcmp(*(char *const *)one, *(char *const *)other) == 0;
    default:
        return *(const int64_t *)one == *(const int64_t *)other;
    }
}

static bool have_columns(const struct mr_config_values *values)
{
    for (uint32_t i = 0; i < values->stream_count * MR_STREAM_COLUMNS; i++) {
        if (values->streams[i / MR_STREAM_COLUMNS].columns[i % MR_STREAM_COLUMNS].count > 0) {
            return true;
        }
    }
    return false;
}

static bool properties_equal(const struct mr_config_values *a, const struct mr_config_values *b)
{
    bool equal = a->property_count == b->property_count;
    for (uint32_t i = 0; i < a->property_count && equal; i++) {
        equal = strcmp(a->properties[i].name, b->properties[i].name) == 0 &&
                strcmp(a->properties[i].value, b->properties[i].value) == 0;
    }
    return equal;
}

/* Rules for columns stay as they are, and a stream's are known by its topic. */
static bool stream_columns_stay(const struct mr_config_values *a, const struct mr_config_values *b)
{
    return (!have_columns(a) && !have_columns(b)) || mr_streams_equal(a, b);
}

const char *mr_config_reload_fault(const struct mr_config *running, const struct mr_config *wanted)
{
    if (running->encode.format != wanted->encode.format) {
        return "the form of events (format, metadata.version, [[streams]]) needs a restart";
    }
    if (!stream_columns_stay(&running->values, &wanted->values)) {
        return "streams with rules for columns ([streams.columns]) need a restart to change";
    }
    if (running->source.messages != wanted->source.messages) {
        return "whether logical messages are passed on (messages.prefixes, outbox.messages, "
               "skipped_operations) needs a restart";
    }
    return NULL;
}

/* Not in the table, for they are not plain options. */
static const struct mr_option streams = {
    .path = "streams", .reload = MR_RELOAD_BETWEEN, .part = MR_PART_CAPTURE};
static const struct mr_option properties = {.path = "sink.kafka.properties", .part = MR_PART_SINK};

void mr_config_differences(const struct mr_config *running, const struct mr_config *reloaded,
                           const struct mr_config *wanted, mr_config_difference_fn take,
                           void *context)
{
    const struct mr_config *newest = reloaded == NULL ? running : reloaded;
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        const struct mr_config *in_effect = mr_option_is_live(option) ? newest : running;
        if (!values_equal(&in_effect->values, &wanted->values, i)) {
            take(context, option);
        }
    }
    if (!mr_streams_equal(&newest->values, &wanted->values)) {
        take(context, &streams);
    }
    if (!properties_equal(&running->values, &wanted->values)) {
        take(context, &properties);
    }
}
