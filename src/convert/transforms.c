/* Transformations: routers as [routing], EventRouter as [outbox], ExtractNewRecordState as format =
 * "row". debezium.def has their options that only have another name. */

#include "convert/convert_internal.h"

static const struct mr_cv_line *transforms_option_of(struct mr_convert *c, const char *alias,
                                                     const char *option)
{
    return mr_cv_take(c, mr_cv_text(c, "transforms.%s.%s", alias, option));
}

static bool is_not(const struct mr_cv_line *line, const char *word)
{
    return line == NULL || strcasecmp(line->value, word) != 0;
}

/* Debezium's ByLogicalTableRouter adds a field to keys unless an option says not to. */
static void convert_uniqueness(struct mr_convert *c, const char *alias, const char *given)
{
    bool enforces = is_not(transforms_option_of(c, alias, "key.enforce.uniqueness"), "false");
    const struct mr_cv_line *regex = transforms_option_of(c, alias, "key.field.regex");
    const struct mr_cv_line *value = transforms_option_of(c, alias, "key.field.replacement");
    const struct mr_cv_line *either = regex != NULL ? regex : value;
    mr_cv_set(c, "routing.sharing", enforces ? "key" : "allow");
    if (either != NULL && (!enforces || regex == NULL || value == NULL)) {
        IDLE(c, either->given, "has no effect without the other, and key.enforce.uniqueness");
    } else if (either != NULL &&
               !mr_cv_rewrite(c, regex->value, value->value, "routing.key_value")) {
        TO_DO(c, given,
              "key.field.regex and key.field.replacement have what only Java knows; write "
              "routing.key_value");
    }
}

static void convert_router(struct mr_convert *c, const char *alias, const char *given, bool logical)
{
    const struct mr_cv_line *regex =
        transforms_option_of(c, alias, logical ? "topic.regex" : "regex");
    const struct mr_cv_line *replacement =
        transforms_option_of(c, alias, logical ? "topic.replacement" : "replacement");
    if (regex == NULL || replacement == NULL) {
        LOST(c, given, "has no regular expression or no replacement");
    } else if (c->has_router) {
        LOST(c, given, "there is one routing.topic: write what both do as one");
    } else if (!mr_cv_rewrite(c, regex->value, replacement->value, "routing.topic")) {
        TO_DO(c, given,
              "its regular expression or replacement has what only Java knows; write "
              "routing.topic (docs/configuration.md)");
    } else {
        c->has_router = true;
    }
    if (logical && c->has_router) {
        convert_uniqueness(c, alias, given);
    }
}

/* Where tables may lack a column, ours has a ? after it. */
static void convert_outbox_fields(struct mr_convert *c, const char *alias)
{
    static const char given[] = "transforms.%s.table.fields.additional.placement";
    struct mr_cv_list fields = mr_cv_split(c, mr_cv_value(c, mr_cv_text(c, given, alias)), ',');
    bool may_lack =
        !is_not(transforms_option_of(c, alias, "table.field.additional.missing"), "ignore");
    for (uint32_t i = 0; i < fields.count && may_lack; i++) {
        int len = (int)strcspn(fields.items[i], ":");
        fields.items[i] = mr_cv_text(c, "%.*s?%s", len, fields.items[i], fields.items[i] + len);
    }
    if (fields.count > 0) {
        mr_cv_set_list(c, "outbox.fields", &fields);
    }
}

/* Another prefix of the names than ours comes before them. */
static void convert_added(struct mr_convert *c, const char *alias, const char *given,
                          const char *option)
{
    const char *fields = mr_cv_value(c, mr_cv_text(c, "transforms.%s.%s", alias, given));
    const char *prefix = mr_cv_value(c, mr_cv_text(c, "transforms.%s.%s.prefix", alias, given));
    bool is_ours = prefix == NULL || strcmp(prefix, "__") == 0;
    if (fields != NULL) {
        struct mr_cv_list list =
            mr_cv_split(c, is_ours ? fields : mr_cv_text(c, "=%s,%s", prefix, fields), ',');
        mr_cv_set_list(c, option, &list);
    }
}

/* After ExtractNewRecordState no event has the envelope that EventRouter looks for (both:
 * SmtManager.isValidEnvelope). */
static void convert_event_router(struct mr_convert *c, const char *alias, const char *given)
{
    if (c->unwraps_outboxes) {
        LOST(c, given, "after ExtractNewRecordState it finds no events to route; put it before");
        return;
    }
    if (c->has_outbox) {
        LOST(c, given, "there is one [outbox]; another pipeline has another");
        return;
    }
    c->has_outbox = true;
    const struct mr_cv_line *regex = transforms_option_of(c, alias, "route.topic.regex");
    const struct mr_cv_line *replacement =
        transforms_option_of(c, alias, "route.topic.replacement");
    if (!mr_cv_rewrite(c, regex == NULL ? "(?<routedByValue>.*)" : regex->value,
                       replacement == NULL ? "outbox.event.${routedByValue}" : replacement->value,
                       "outbox.topic")) {
        TO_DO(c, (regex != NULL ? regex : replacement)->given,
              "expression or replacement has what only Java knows; write outbox.topic "
              "(docs/outbox.md)");
    }
    convert_outbox_fields(c, alias);
    bool nulls = !is_not(transforms_option_of(c, alias, "table.json.payload.null.behavior"),
                         "optional_bytes");
    bool empty = !is_not(transforms_option_of(c, alias, "table.json.payload.empty.array.behavior"),
                         "optional_string");
    if (nulls || empty) {
        mr_cv_set(c, "outbox.expand_keeps", !empty ? "nulls" : nulls ? "both" : "empty_arrays");
    }
}

/* What the older two options come to (LegacyDeleteHandlingStrategy of Debezium 2.5 to 3.0). */
static const char *legacy_mode(bool drops, const struct mr_cv_line *deletes)
{
    if (!is_not(deletes, "rewrite")) {
        return drops ? "rewrite" : "rewrite-with-tombstone";
    }
    if (!is_not(deletes, "none")) {
        return "tombstone";
    }
    return drops ? "drop" : "delete-to-tombstone"; /* of a delete and its tombstone the
                                           latter stays */
}

static void convert_deletes(struct mr_convert *c, const char *alias)
{
    static const char option[] = "row.delete_tombstone_handling_mode";
    const struct mr_cv_line *mode =
        transforms_option_of(c, alias, "delete.tombstone.handling.mode");
    const struct mr_cv_line *drops = transforms_option_of(c, alias, "drop.tombstones");
    const struct mr_cv_line *deletes = transforms_option_of(c, alias, "delete.handling.mode");
    if (mode != NULL && mode->value[0] != '\0') {
        if (!mr_cv_set(c, option, mode->value)) {
            LOST(c, mode->given, "%s does not take its value", option);
        }
    } else if (drops != NULL || deletes != NULL) {
        mr_cv_set(c, option, legacy_mode(is_not(drops, "false"), deletes));
    } else {
        mr_cv_set(c, option, "tombstone"); /* Debezium's default */
    }
}

/* The tables whose topics an EventRouter's predicate names (Kafka Connect: TopicNameMatches, whose
 * pattern fits the whole name). False: they can't be told from it. */
static bool find_outboxes(struct mr_convert *c, const char *alias, const char *predicate)
{
    struct mr_cv_line *type = mr_cv_find(c, mr_cv_text(c, "predicates.%s.type", predicate));
    struct mr_cv_line *pattern = mr_cv_find(c, mr_cv_text(c, "predicates.%s.pattern", predicate));
    const struct mr_cv_line *prefix = mr_cv_find(c, "topic.prefix");
    const struct mr_cv_line *delimiter = mr_cv_find(c, "topic.delimiter");
    const struct mr_cv_line *negate = mr_cv_find(c, mr_cv_text(c, "transforms.%s.negate", alias));
    const struct mr_cv_line *listed = mr_cv_find(c, "predicates"); /* Connect knows those */
    struct mr_cv_list names = mr_cv_split(c, listed == NULL ? NULL : listed->value, ',');
    char reason[128];
    if (!mr_cv_holds(&names, predicate) || (negate != NULL && is_not(negate, "false")) ||
        c->has_outbox || c->has_router || !c->tables_known || prefix == NULL ||
        mr_cv_is_expression(prefix->value) || type == NULL || pattern == NULL ||
        !mr_cv_is_class(type->value, "TopicNameMatches") || !mr_cv_same_regex(pattern->value)) {
        return false;
    }
    struct mr_regex *regex = mr_regex_new(pattern->value, reason, sizeof(reason));
    for (uint32_t i = 0; i < c->tables.count; i++) {
        const char *table = c->tables.items[i];
        const char *dot = strchr(table, '.');
        char *topic = mr_topic_name(prefix->value, delimiter == NULL ? NULL : delimiter->value,
                                    mr_cv_part(c, table, (size_t)(dot - table)), dot + 1);
        if (mr_regex_match(regex, mr_slice_of(topic), NULL) == MR_REGEX_YES) {
            mr_cv_add(c, &c->outboxes, table);
        }
        free(topic);
    }
    mr_slice messages = mr_slice_of(mr_cv_text(c, "%s.message", prefix->value));
    bool good = c->outboxes.count > 0 && mr_regex_match(regex, messages, NULL) != MR_REGEX_YES;
    mr_regex_free(regex);
    if (good) {
        transforms_option_of(c, alias, "negate");
        mr_cv_take(c, "predicates");
        type->done = pattern->done = true;
    } else {
        c->outboxes.count = 0;
    }
    return good;
}

/* The predicate by which an EventRouter knows its tables; "": there is none. */
static const char *outbox_predicate(struct mr_convert *c)
{
    for (uint32_t i = 0; i < c->line_count; i++) {
        const char *name = c->lines[i].name;
        if (strncmp(name, "transforms.", 11) == 0 &&
            mr_cv_is_class(c->lines[i].value, "EventRouter")) {
            const char *alias = mr_cv_part(c, name + 11, strcspn(name + 11, "."));
            const struct mr_cv_line *line =
                mr_cv_find(c, mr_cv_text(c, "transforms.%s.predicate", alias));
            return line == NULL ? "" : line->value;
        }
    }
    return "";
}

/* A class of Kafka's or Debezium's own; a name alone is Connect's alias of one. */
static bool is_of_theirs(const char *java)
{
    static const char *const packages[] = {"org.apache.kafka.connect.transforms.",
                                           "io.debezium.transforms.",
                                           "io.debezium.connector.postgresql.transforms."};
    return strchr(java, '.') == NULL || MR_ANY(package, packages, MR_ARRAY_LEN(packages),
                                               strncmp(java, *package, strlen(*package)) == 0);
}

/* Whether a transformation may leave out or change a value, or leave out a record: all but those
 * that are known not to. */
static bool may_hide(const char *java)
{
    static const char *const known[] = {
        "ByLogicalTableRouter",
        "ExtractNewRecordState",
        "EventRouter",
        "RegexRouter",
        "TimestampRouter",
        "InsertField",
        "InsertHeader",
        "HoistField",
        "Flatten",
        "Cast",
        "TimestampConverter",
        "TimezoneConverter",
        "SetSchemaMetadata",
        "ValueToKey",
        "DropHeaders",
        "ContentBasedRouter",
        "PartitionRouting",
        "ExtractChangedRecordState",
        "ActivateTracingSpan",
        "SwapGeometryCoordinates",
        "DecodeLogicalDecodingMessageContent",
    };
    size_t i = 0;
    while (i < MR_ARRAY_LEN(known) && !mr_cv_is_class(java, known[i])) {
        i++;
    }
    return i == MR_ARRAY_LEN(known) || !is_of_theirs(java);
}

static void hold_dropped_fields(struct mr_convert *c, const char *alias)
{
    const struct mr_cv_line *line = transforms_option_of(c, alias, "drop.fields.header.name");
    if (line != NULL && line->value[0] != '\0') {
        mr_cv_hold(c, line->given, "columns.exclude",
                   "names a header of an earlier transformation, which says what columns are left "
                   "out");
    }
}

static void convert_transform(struct mr_convert *c, const char *alias)
{
    const struct mr_cv_line *type = transforms_option_of(c, alias, "type");
    const struct mr_cv_line *predicate = transforms_option_of(c, alias, "predicate");
    if (type == NULL) {
        mr_cv_hold(c, "transforms", "columns.exclude",
                   "names a transformation whose type is not there");
        return;
    }
    const char *given = type->given;
    bool logical = mr_cv_is_class(type->value, "ByLogicalTableRouter");
    bool unwraps = mr_cv_is_class(type->value, "ExtractNewRecordState");
    bool is_outbox = mr_cv_is_class(type->value, "EventRouter");
    /* For all but the outbox, which `format` and the like never are for. */
    const struct mr_cv_line *negate = mr_cv_find(c, mr_cv_text(c, "transforms.%s.negate", alias));
    bool is_for_others = !is_outbox && predicate != NULL && negate != NULL &&
                         !is_not(negate, "true") &&
                         strcmp(predicate->value, outbox_predicate(c)) == 0;
    if (is_for_others) {
        transforms_option_of(c, alias, "negate");
    }
    if (unwraps) {
        hold_dropped_fields(c, alias);
    }
    if (may_hide(type->value)) {
        mr_cv_hold(c, given, "columns.exclude",
                   mr_cv_text(c, "%.*s is a Java class, which is not loaded",
                              MR_SLICE_ARGS(mr_cv_class(type->value))));
    } else if (predicate != NULL && !is_for_others &&
               (!is_outbox || !find_outboxes(c, alias, predicate->value))) {
        LOST(c, given, "see its predicate");
        LOST(
            c, predicate->given,
            "what it means can't be told from it, so the transformation is left out; outbox.tables "
            "and outbox.messages say which rows and messages are events of an outbox; what else it "
            "does would hold for all tables: make it a pipeline of its own");
    } else if (is_outbox) {
        convert_event_router(c, alias, given);
    } else if (c->has_outbox && unwraps && c->outboxes.count == 0) {
        IDLE(c, given, "events of an outbox have no envelope");
    } else if (c->has_outbox && !unwraps) {
        LOST(c, given, "it works on the topics that values name; say it in outbox.topic");
    } else if (logical || mr_cv_is_class(type->value, "RegexRouter")) {
        convert_router(c, alias, given, logical);
    } else if (unwraps) {
        c->unwraps = given;
        c->unwraps_outboxes = !is_for_others;
        mr_cv_set(c, "format", "row");
        convert_deletes(c, alias);
        convert_added(c, alias, "add.fields", "row.add_fields");
        convert_added(c, alias, "add.headers", "row.add_headers");
    } else {
        LOST(c, given,
             "%.*s is a Java class, which is not loaded; do what it does where events are read",
             MR_SLICE_ARGS(mr_cv_class(type->value)));
    }
}

static void set_tables(struct mr_convert *c)
{
    for (uint32_t i = 0; i < c->patterns.count; i++) {
        mr_cv_add(c, &c->tables, c->patterns.items[i]);
    }
    if (c->tables.count == 0) {
        mr_cv_add(c, &c->tables, MR_CONVERT_TABLE);
    }
    mr_cv_set_list(c, "tables", &c->tables);
    if (c->has_outbox) {
        mr_cv_set_list(c, "outbox.tables", c->outboxes.count > 0 ? &c->outboxes : &c->tables);
    }
}

void mr_cv_transforms(struct mr_convert *c)
{
    const struct mr_cv_line *line = mr_cv_take(c, "transforms");
    struct mr_cv_list aliases = mr_cv_split(c, line == NULL ? NULL : line->value, ',');
    for (uint32_t i = 0; i < aliases.count; i++) {
        convert_transform(c, aliases.items[i]);
    }
    set_tables(c);
    if (mr_cv_find(c, "topic.prefix") == NULL) {
        TO_DO(c, "topic.prefix", "is not there, and the connector must have one; set topic_prefix");
    }
}
