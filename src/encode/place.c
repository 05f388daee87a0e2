/* Rows of ordinary tables that go to topics which a column's value names. A row is in one of them at a time: an update that
 * changes the value is a delete where the row was and an insert where it is, as with a key that changes. So the topic may hang on
 * the value alone, never on what other values came before it, or a row would be ended where it never was. */
#include <stdlib.h>

#include "base/log.h"
#include "encode/values/row.h"

/* Operations whose events go where the row was. */
#define NEEDS_OLD (1u << MR_OP_UPDATE | 1u << MR_OP_DELETE)

const struct mr_column_route *mr_column_route_of(const struct mr_encode_options *options,
                                                 const char *schema, const char *table)
{
    const struct mr_routing *routing = options->routing;
    for (uint32_t i = 0; routing != NULL && i < routing->by_column_count; i++) {
        if (mr_table_pattern_matches(&routing->by_column[i].table, mr_slice_of(schema),
                                     mr_slice_of(table))) {
            return &routing->by_column[i];
        }
    }
    return NULL;
}

/* ---- the plan ---- */

static mr_status find_column(const struct mr_encode_options *options, const struct mr_plan *plan,
                             const struct mr_column_route *rule, uint32_t *ret_column,
                             struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    uint32_t i = 0;
    while (i < relation->column_count && strcmp(relation->columns[i].name, rule->column) != 0) {
        i++;
    }
    if (i == relation->column_count) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "routing.by_column: column \"%s\" of table %s.%s is not there or not "
                       "published; name one that is",
                       rule->column, relation->schema, relation->table);
    }
    if (plan->columns[i].writer == MR_WRITE_ABSENT || mr_shape_names(options, plan, rule->column)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "routing.by_column: column \"%s\" of table %s.%s is one that columns.* "
                       "leaves out, masks, cuts or hashes, and names of topics would tell its "
                       "values; route by another",
                       rule->column, relation->schema, relation->table);
    }
    *ret_column = i;
    return MR_OK;
}

/* The names around the value: what `rule` has there, and the table's own topic for "{topic}". */
static void make_names(struct mr_place *place, const struct mr_column_route *rule,
                       const char *topic)
{
    static const char topic_word[] = "{topic}";
    static const char value_word[] = "{value}";
    size_t topics = 0;
    for (const char *at = rule->topic; (at = strstr(at, topic_word)) != NULL; at++) {
        topics++;
    }
    size_t size = strlen(rule->topic) + topics * strlen(topic) + 1;
    place->memory = MR_ALLOC(size);
    struct mr_buffer out = mr_buffer_init((uint8_t *)place->memory, size);
    place->route.before.data = out.at;
    for (const char *at = rule->topic; *at != '\0';) {
        if (strncmp(at, topic_word, sizeof(topic_word) - 1) == 0) {
            mr_buffer_append(&out, topic, strlen(topic));
            at += sizeof(topic_word) - 1;
        } else if (strncmp(at, value_word, sizeof(value_word) - 1) == 0) {
            place->route.before.len = (size_t)(out.at - place->route.before.data);
            place->route.behind.data = out.at;
            at += sizeof(value_word) - 1;
        } else {
            mr_buffer_append(&out, at++, 1);
        }
    }
    MR_ASSERT(!out.full && place->route.behind.data != NULL);
    place->route.behind.len = (size_t)(out.at - place->route.behind.data);
}

/* The identity's values alone tell where a row was. Copies and inserts need none, so this is told and no more. */
static void warn_of_identity(const struct mr_relation *relation, const struct mr_column_route *rule)
{
    mr_log(MR_LOG_WARN, "route_identity",
           "the replica identity does not hold the column that names the topics of this table's "
           "rows: an update or delete will end the stream; run ALTER TABLE … REPLICA IDENTITY FULL",
           MR_LOG_STR("schema", relation->schema), MR_LOG_STR("table", relation->table),
           MR_LOG_STR("column", rule->column));
}

mr_status mr_place_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                        struct mr_error *ret_error)
{
    const struct mr_column_route *rule =
        mr_column_route_of(options, plan->relation->schema, plan->relation->table);
    if (rule == NULL || (plan->route != NULL && plan->route->topic != NULL)) {
        return MR_OK;
    }
    uint32_t column;
    MR_TRY(find_column(options, plan, rule, &column, ret_error));
    struct mr_place *place =
        MR_ALLOC(sizeof(*place) + (plan->key.count + 1) * sizeof(place->columns[0]));
    *place = (struct mr_place){
        .column = column,
        .is_held = plan->relation->columns[column].in_identity,
        .route = {.owner = options->routing->sharing == MR_SHARING_REFUSED
                               ? plan->topic->table
                               : "tables that share topics",
                  .fallback_topic = options->routing->falls_back ? plan->topic->name : NULL,
                  .falls_back_by_name = true,
                  .topics_max = options->routing->topics_max},
    };
    make_names(place, rule, plan->topic->name);
    plan->mover.place = place;
    /* In the flat form a changed key is an update all the same. */
    uint32_t count = options->format == MR_FORMAT_FLAT ? 0 : plan->key.count;
    for (uint32_t i = 0; i < count; i++) {
        place->columns[i] = plan->key.columns[i];
    }
    place->columns[count] = column;
    plan->mover.columns = place->columns;
    plan->mover.count = count + place->is_held;
    if (!place->is_held && (plan->operations & NEEDS_OLD) != 0 &&
        plan->relation->identity != MR_IDENTITY_NOTHING) {
        warn_of_identity(plan->relation, rule);
    }
    return MR_OK;
}

void mr_place_free(struct mr_place *place)
{
    if (place != NULL) {
        free(place->memory);
        free(place);
    }
}

/* ---- changes ---- */

__attribute__((cold)) static void log_fallback(struct mr_encoder *encoder,
                                               const struct mr_relation *relation)
{
    if (!mr_tally(&encoder->placed_back, encoder->stamp.now_ns)) {
        return;
    }
    mr_log(MR_LOG_WARN, "route_fallback",
           "a value can't be part of a topic's name; its rows go to the table's own topic",
           MR_LOG_STR("schema", relation->schema), MR_LOG_STR("table", relation->table),
           MR_LOG_INT("count", encoder->placed_back.count));
}

static mr_status topic_of(struct mr_encoder *encoder, const struct mr_plan *plan,
                          const struct mr_datum *value, const struct mr_topic **ret_topic,
                          struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    const struct mr_place *place = plan->mover.place;
    const struct mr_topic *topic = NULL;
    const char *fault = NULL;
    if (MR_LIKELY(value->kind == MR_DATUM_TEXT)) {
        topic = mr_value_topics_find(&encoder->value_topics, encoder->topics, &place->route,
                                     (mr_slice){.data = value->data, .len = value->len}, &fault);
    } else if (value->kind == MR_DATUM_NULL) {
        fault = "is not there: the value is null";
        topic = place->route.fallback_topic == NULL ? NULL : plan->topic;
    } else {
        fault = "is not known: the server did not send the value, which is large and was left "
                "alone";
    }
    if (topic == NULL) {
        return mr_fail(ret_error, MR_ERR_POISON,
                       "the topic that column \"%s\" of table %s.%s names %s; mend the value, or "
                       "see routing.by_column_fallback and routing.topics_max",
                       relation->columns[place->column].name, relation->schema, relation->table,
                       fault);
    }
    if (MR_UNLIKELY(fault != NULL && value->kind == MR_DATUM_TEXT)) {
        log_fallback(encoder, relation);
    }
    *ret_topic = topic;
    return MR_OK;
}

static mr_status fail_unheld(const struct mr_plan *plan, const struct mr_change *change,
                             struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    return mr_fail(
        ret_error, MR_ERR_POISON,
        "%s of table %s.%s: the row was in the topic that its column \"%s\" named, and "
        "the replica identity does not hold that; run ALTER TABLE %s.%s REPLICA "
        "IDENTITY FULL%s. What was written before that lacks these values: it takes a new "
        "slot and a copy of the rows (snapshot.mode)",
        change->op == MR_OP_UPDATE ? "an update" : "a delete", relation->schema, relation->table,
        relation->columns[plan->mover.place->column].name, relation->schema, relation->table,
        relation->is_narrowed ? ", and the same of each partition" : "");
}

mr_status mr_place_records(struct mr_encoder *encoder, const struct mr_plan *plan,
                           const struct mr_change *change, struct mr_record *records,
                           uint32_t count, struct mr_error *ret_error)
{
    const struct mr_place *place = plan->mover.place;
    if (change->op == MR_OP_TRUNCATE || count == 0) {
        return MR_OK; /* a truncate tells of all its rows, wherever they are: in the table's own topic */
    }
    if (!place->is_held && (1u << change->op & NEEDS_OLD) != 0) {
        return fail_unheld(plan, change, ret_error);
    }
    uint32_t ends = 0; /* records that end the row where it was */
    if (change->op == MR_OP_DELETE) {
        ends = count;
    } else if (change->op == MR_OP_UPDATE && mr_key_changed(encoder, plan, change)) {
        ends = count - (plan->operations >> MR_OP_INSERT & 1);
    }
    const struct mr_topic *topic = NULL;
    if (ends > 0) {
        MR_TRY(topic_of(encoder, plan, &change->before.values[place->column], &topic, ret_error));
    }
    for (uint32_t i = 0; i < ends; i++) {
        records[i].topic = topic;
    }
    if (ends < count) {
        MR_TRY(topic_of(encoder, plan,
                        mr_row_datum(plan, place->column, &change->after, &change->before), &topic,
                        ret_error));
    }
    for (uint32_t i = ends; i < count; i++) {
        records[i].topic = topic;
    }
    return MR_OK;
}
