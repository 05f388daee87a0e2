#include "encode/plan.h"

#include "encode/forms/form.h"
#include "encode/hidden/hidden.h"
#include "encode/values/put.h"
#include "event/relation.h"

struct mr_buffer mr_text_begin(struct mr_bytes *text, size_t size)
{
    if (text->capacity < size) {
        text->data = MR_REALLOC(text->data, size);
        text->capacity = size;
    }
    return mr_buffer_init(text->data, text->capacity);
}

/* The first one after `last` (NULL: of all). */
static const struct mr_route *plan_find_route(const struct mr_encode_options *options,
                                              const struct mr_relation *relation,
                                              const struct mr_route *last)
{
    uint32_t i = last == NULL ? 0 : (uint32_t)(last - options->routes) + 1;
    for (; i < options->route_count; i++) {
        const struct mr_route *route = &options->routes[i];
        if (strcmp(route->schema, relation->schema) == 0 &&
            strcmp(route->table, relation->table) == 0) {
            return route;
        }
    }
    return NULL;
}

uint32_t mr_table_topics(const struct mr_encode_options *options, const char *schema,
                         const char *table, char *ret_names[MR_STREAMS_PER_TABLE_MAX])
{
    const struct mr_relation relation = {.schema = schema, .table = table};
    const struct mr_route *route = plan_find_route(options, &relation, NULL);
    uint32_t count = 0;
    if (mr_is_outbox(options, schema, table) || (route == NULL && options->routes_only)) {
        return 0;
    }
    do {
        bool is_named = route != NULL && route->topic != NULL;
        ret_names[count++] =
            is_named ? MR_STRDUP(route->topic) : mr_table_topic(options, schema, table);
        route = route == NULL ? NULL : plan_find_route(options, &relation, route);
    } while (route != NULL && count < MR_STREAMS_PER_TABLE_MAX);
    return count;
}

static mr_status plan_keys(struct mr_plan *plan, const struct mr_encode_options *options,
                           struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    plan->key.columns = relation->key_columns;
    plan->key.count = relation->key_count;
    plan->key.may_be_null = relation->key_is_chosen;
    if (plan->route != NULL && plan->route->key_column != NULL) {
        if (!mr_relation_find_column(relation, mr_slice_of(plan->route->key_column),
                                     &plan->key.routing_column)) {
            return mr_fail(ret_error, MR_ERR_CONFIG,
                           "routing key \"%s\" is not a published column of table %s.%s; set "
                           "streams.sink.routing_key to one that is",
                           plan->route->key_column, relation->schema, relation->table);
        }
        plan->key.columns = &plan->key.routing_column;
        plan->key.count = 1;
        plan->key.may_be_null = true;
    }
    plan->key.is_text = options->format == MR_FORMAT_FLAT && plan->key.count == 1;
    return MR_OK;
}

/* `{"name":` or `,"name":` */
static mr_slice render_prefix(struct mr_buffer *out, const char *name, bool first)
{
    const uint8_t *begin = out->at;
    mr_buffer_append(out, first ? "{" : ",", 1);
    mr_json_string(out, (const uint8_t *)name, strlen(name));
    MR_BUFFER_LITERAL(out, ":");
    MR_ASSERT(!out->full);
    return mr_text_since(out, begin);
}

/* The most that a text in JSON takes: an escaped byte takes six (\u00XX), and one that is no ASCII
 * may. */
static size_t json_bytes(const char *text)
{
    size_t bytes = 0;
    for (const uint8_t *c = (const uint8_t *)text; *c != '\0'; c++) {
        bytes += *c >= ' ' && *c < 0x7F && *c != '"' && *c != '\\' ? 1 : 6;
    }
    return bytes;
}

/* How the values of each column are written. Only what needs a conversion has one: most columns
 * don't. */
static mr_status layout_forms(struct mr_plan_layout *layout, const struct mr_plan *plan,
                              const struct mr_encode_options *options, struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    layout->columns = MR_NEW_ARRAY(struct mr_plan_column, relation->column_count);
    MR_FREED struct mr_type_form *forms = MR_NEW_ARRAY(struct mr_type_form, relation->column_count);
    uint32_t count = 0;
    mr_status status = MR_OK;
    for (uint32_t i = 0; i < relation->column_count && status == MR_OK; i++) {
        forms[i] = mr_type_form(options, &relation->columns[i]);
        status = mr_shape_column(options, plan, i, &forms[i], ret_error);
        layout->columns[i].writer = forms[i].writer;
        layout->columns[i].rule = forms[i].conversion.rule;
        count += forms[i].writer == MR_WRITE_CONVERT;
    }
    layout->type_forms = MR_NEW_ARRAY(struct mr_type_form, count);
    struct mr_type_form *form = layout->type_forms;
    for (uint32_t i = 0; i < relation->column_count && status == MR_OK; i++) {
        if (layout->columns[i].writer == MR_WRITE_CONVERT) {
            *form = forms[i];
            form->conversion.element = &form->element;
            layout->columns[i].form = form++;
        }
    }
    return status;
}

static void layout_names(struct mr_plan_layout *layout, const struct mr_plan *plan,
                         const struct mr_encode_options *options)
{
    enum { AROUND = 4 }; /* {"": */
    const struct mr_relation *relation = plan->relation;
    size_t size = 0;
    for (uint32_t i = 0; i < relation->column_count; i++) {
        size += AROUND + json_bytes(relation->columns[i].name);
    }
    for (uint32_t i = 0; i < plan->key.count; i++) {
        size += AROUND + json_bytes(relation->columns[plan->key.columns[i]].name);
    }
    layout->names = MR_ALLOC(size);
    struct mr_buffer names = mr_buffer_init(layout->names, size);
    names.splits_astral = options->types == MR_TYPES_DEBEZIUM;
    for (uint32_t i = 0; i < relation->column_count; i++) {
        layout->columns[i].prefix = layout->columns[i].writer == MR_WRITE_ABSENT
                                        ? MR_SLICE("") /* not NULL, which memcpy may not be given */
                                        : render_prefix(&names, relation->columns[i].name, i == 0);
    }
    layout->key_prefixes = MR_NEW_ARRAY(mr_slice, plan->key.count);
    for (uint32_t i = 0; i < plan->key.count; i++) {
        const char *name = relation->columns[plan->key.columns[i]].name;
        layout->key_prefixes[i] = render_prefix(&names, name, i == 0);
    }
}

static void layout_free(struct mr_plan_layout *layout)
{
    free(layout->columns);
    free(layout->type_forms);
    free(layout->key_prefixes);
    free(layout->names);
    free(layout);
}

/* The place of the layout of that number, or MR_INDEX_NONE. */
static uint32_t find_layout(const struct mr_plans *plans, uint64_t number)
{
    uint32_t place;
    MR_INDEX_FIND(place, &plans->layout_index, number, plans->layouts[place]->number == number);
    return place;
}

static mr_status layout_make(struct mr_encoder *encoder, const struct mr_plan *plan,
                             uint64_t number, struct mr_plan_layout **ret_layout,
                             struct mr_error *ret_error)
{
    struct mr_plans *plans = &encoder->plans;
    struct mr_plan_layout *layout = MR_NEW(struct mr_plan_layout);
    layout->number = number;
    mr_status status = layout_forms(layout, plan, &encoder->options, ret_error);
    if (status != MR_OK) {
        layout_free(layout);
        return status;
    }
    layout_names(layout, plan, &encoder->options);
    if (number != 0) {
        MR_GROW(plans->layouts, plans->layout_room, plans->layout_index.count + 1);
        plans->layouts[mr_index_add(&plans->layout_index, number)] = layout;
    }
    *ret_layout = layout;
    return MR_OK;
}

static void plan_layout_release(struct mr_plans *plans, struct mr_plan_layout *layout)
{
    MR_ASSERT(layout->uses > 0);
    if (--layout->uses > 0) {
        return;
    }
    if (layout->number != 0) {
        struct mr_plan_layout *last = plans->layouts[plans->layout_index.count - 1];
        uint32_t place = find_layout(plans, layout->number);
        mr_index_remove(&plans->layout_index, place, layout->number, last->number);
        plans->layouts[place] = last;
    }
    layout_free(layout);
}

/* Rules know columns by the table's name too, and a routing key is another key. */
static mr_status plan_columns(struct mr_encoder *encoder, struct mr_plan *plan,
                              struct mr_error *ret_error)
{
    struct mr_plans *plans = &encoder->plans;
    bool is_shared = encoder->options.column_rules.count == 0 &&
                     plan->key.columns == plan->relation->key_columns;
    uint64_t number = is_shared ? mr_relation_layout_number(plan->relation) : 0;
    uint32_t place = number == 0 ? MR_INDEX_NONE : find_layout(plans, number);
    if (place != MR_INDEX_NONE) {
        plan->layout = plans->layouts[place];
    } else {
        MR_TRY(layout_make(encoder, plan, number, &plan->layout, ret_error));
    }
    plan->layout->uses++;
    plan->columns = plan->layout->columns;
    plan->key.prefixes = plan->layout->key_prefixes;
    return MR_OK;
}

/* Debezium's ToLogicalTopicRouter adds the field after the others, to the keys of what it
 * routes. */
static void plan_key_end(struct mr_plan *plan, const struct mr_encode_options *options)
{
    const struct mr_routing *routing = options->routing;
    plan->key.end = MR_SLICE("}");
    if (routing == NULL || routing->sharing != MR_SHARING_IN_KEY) {
        return;
    }
    MR_FREED char *topic = mr_topic_name(options->topic_prefix, options->topic_delimiter,
                                         plan->relation->schema, plan->relation->table);
    if (mr_regex_match(routing->topic.regex, mr_slice_of(topic), NULL) == MR_REGEX_YES) {
        char *value =
            routing->key.regex == NULL ? MR_STRDUP(topic) : mr_name_rewritten(&routing->key, topic);
        enum { AROUND = 32 };
        size_t size = json_bytes(routing->key_field) + json_bytes(value) + strlen(value) + AROUND;
        plan->key.tail = MR_ALLOC(size);
        struct mr_buffer out = mr_buffer_init(plan->key.tail, size);
        out.splits_astral = options->types == MR_TYPES_DEBEZIUM;
        MR_BUFFER_LITERAL(&out, ",");
        mr_json_string(&out, (const uint8_t *)routing->key_field, strlen(routing->key_field));
        MR_BUFFER_LITERAL(&out, ":");
        mr_json_string(&out, (const uint8_t *)value, strlen(value));
        MR_BUFFER_LITERAL(&out, "}");
        plan->key.end =
            (mr_slice){.data = plan->key.tail, .len = (size_t)(out.at - plan->key.tail)};
        plan->key.avro_end.data = out.at;
        mr_avro_string(&out, (const uint8_t *)value, strlen(value));
        plan->key.avro_end.len = (size_t)(out.at - plan->key.avro_end.data);
        MR_ASSERT(!out.full);
        free(value);
    }
}

/* A topic that is not one table's alone. */
static mr_status plan_shared_topic(struct mr_plan *plan, struct mr_topics *topics, const char *name,
                                   struct mr_error *ret_error)
{
    plan->topic = mr_topics_intern(topics, name);
    if (!plan->topic->by_value) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_CONFIG,
                   "the topic of table %s.%s, \"%s\", is one that a value of a column names; set "
                   "another, or another template in outbox.topic",
                   plan->relation->schema, plan->relation->table, name);
}

/* A topic that no other table may have. */
static mr_status claim_topic(struct mr_plan *plan, struct mr_topics *topics, const char *name,
                             struct mr_error *ret_error)
{
    char table[2 * MR_IDENTIFIER_MAX + 8];
    const char *other;
    snprintf(table, sizeof(table), "\"%s\".\"%s\"", plan->relation->schema, plan->relation->table);
    plan->topic = mr_topics_claim(topics, name, table, &other);
    return other == NULL
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "tables %s and %s would share topic \"%s\", where rows of the one could "
                         "pass for the other's; rename one of them, take it out of \"tables\", or "
                         "allow it with routing.sharing",
                         other, table, plan->topic->name);
}

static mr_status plan_topic(struct mr_plan *plan, const struct mr_encode_options *options,
                            struct mr_topics *topics, struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    if (mr_plan_is_outbox(plan)) {
        return MR_OK;
    }
    if (mr_plan_named_topic(plan) != NULL) {
        return plan_shared_topic(plan, topics, plan->route->topic, ret_error);
    }
    MR_FREED char *name = mr_table_topic(options, relation->schema, relation->table);
    const char *fault = mr_topic_fault(name);
    mr_status status = MR_OK;
    if (fault != NULL) {
        status = mr_fail(ret_error, MR_ERR_CONFIG,
                         "the topic of table %s.%s, \"%s\", %s; set another topic_prefix, "
                         "routing.topic, or a destination for this table",
                         relation->schema, relation->table, name, fault);
    } else if (options->routing != NULL && options->routing->sharing != MR_SHARING_REFUSED) {
        status = plan_shared_topic(plan, topics, name, ret_error);
    } else {
        status = claim_topic(plan, topics, name, ret_error);
    }
    return status;
}

static bool holds_key(const struct mr_plan *plan)
{
    for (uint32_t i = 0; i < plan->key.count; i++) {
        if (!plan->relation->columns[plan->key.columns[i]].in_identity) {
            return false;
        }
    }
    return true;
}

/* No value goes out of a column that was hidden under another name; nor of that partition (NULL:
 * none), of which it is. */
static mr_status plan_hidden(const struct mr_plan *plan, const struct mr_encode_options *options,
                             const struct mr_relation *part, struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    if (options->hidden == NULL || options->column_rules.count == 0 || mr_is_message(relation)) {
        return MR_OK;
    }
    MR_FREED bool *hides = MR_NEW_ARRAY(bool, relation->column_count);
    for (uint32_t i = 0; i < relation->column_count; i++) {
        hides[i] = plan->columns[i].writer == MR_WRITE_ABSENT ||
                   mr_shape_names(options, plan, relation->columns[i].name);
    }
    const char *topic = mr_plan_named_topic(plan);
    struct mr_hidden *hidden = options->hidden;
    return part == NULL ? mr_hidden_look(hidden, relation, topic, hides, ret_error)
                        : mr_hidden_look_part(hidden, relation, part, topic, hides, ret_error);
}

mr_status mr_plan_part(const struct mr_plan *plan, const struct mr_encode_options *options,
                       const struct mr_relation *part, struct mr_error *ret_error)
{
    return plan->operations == 0 ? MR_OK : plan_hidden(plan, options, part, ret_error);
}

static mr_status fill_plan(struct mr_encoder *encoder, struct mr_plan *plan,
                           struct mr_error *ret_error)
{
    const struct mr_encode_options *options = &encoder->options;
    MR_TRY(plan_keys(plan, options, ret_error));
    MR_TRY(plan_columns(encoder, plan, ret_error));
    MR_TRY(plan_hidden(plan, options, NULL, ret_error));
    plan_key_end(plan, options);
    MR_TRY(plan_topic(plan, options, encoder->topics, ret_error));
    if (!mr_plan_is_outbox(plan)) {
        plan->key.is_unheld = options->format != MR_FORMAT_FLAT && !holds_key(plan);
    }
    return plan->form->plan == NULL ? MR_OK : plan->form->plan(encoder, plan, ret_error);
}

static struct mr_plan *stream_plan_new(struct mr_encoder *encoder,
                                       const struct mr_relation *relation,
                                       const struct mr_route *route, struct mr_error *ret_error)
{
    const struct mr_encode_options *options = &encoder->options;
    struct mr_plan *plan = MR_NEW(struct mr_plan);
    bool is_message = mr_is_message(relation);
    bool is_outbox = is_message || mr_is_outbox(options, relation->schema, relation->table);
    plan->relation = relation;
    plan->route = route;
    plan->form = is_outbox ? &mr_form_outbox : encoder->form;
    if (relation->is_unlisted || (plan->route == NULL && options->routes_only && !is_message)) {
        return plan; /* no topic: nothing is passed on */
    }
    plan->operations = plan->route == NULL ? MR_OPERATIONS_ALL : plan->route->operations;
    plan->operations &= ~(is_message ? 0 : options->skipped_operations);
    plan->skips_unchanged = options->skip_unchanged;
    plan->tells_schema = options->schema_topic != NULL && !is_message;
    plan->tells_transaction = options->transaction_topic != NULL;
    plan->rendered.names_bytes = json_bytes(options->topic_prefix) + json_bytes(relation->schema) +
                                 json_bytes(relation->table);
    if (fill_plan(encoder, plan, ret_error) != MR_OK) {
        mr_plan_free(encoder, plan);
        return NULL;
    }
    plan->is_unusual = mr_plan_is_unusual(plan);
    return plan;
}

struct mr_plan *mr_plan_new(struct mr_encoder *encoder, const struct mr_relation *relation,
                            struct mr_error *ret_error)
{
    const struct mr_encode_options *options = &encoder->options;
    const struct mr_route *route = plan_find_route(options, relation, NULL);
    struct mr_plan *first = NULL;
    struct mr_plan **link = &first;
    do {
        *link = stream_plan_new(encoder, relation, route, ret_error);
        if (*link == NULL) {
            mr_plan_free(encoder, first);
            return NULL;
        }
        link = &(*link)->next;
        route = route == NULL ? NULL : plan_find_route(options, relation, route);
    } while (route != NULL);
    first->is_unusual = mr_plan_is_unusual(first);
    return first;
}

void mr_plan_free(struct mr_encoder *encoder, struct mr_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    if (plan->form->forget != NULL) {
        plan->form->forget(plan);
    }
    if (plan->layout != NULL) {
        plan_layout_release(&encoder->plans, plan->layout);
    }
    free(plan->key.tail);
    free(plan->rendered.text.data);
    mr_plan_free(encoder, plan->next);
    free(plan);
}
