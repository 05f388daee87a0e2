#include "encode/encode.h"

#include <inttypes.h>

#include "encode/forms/connect.h"
#include "encode/forms/form.h"
#include "encode/values/put.h"

static const struct mr_form_ops *const forms[] = {
    [MR_FORMAT_DEBEZIUM] = &mr_form_debezium, [MR_FORMAT_AVRO] = &mr_form_avro,
    [MR_FORMAT_FLAT] = &mr_form_flat,         [MR_FORMAT_CLOUDEVENTS] = &mr_form_cloudevents,
    [MR_FORMAT_ROW] = &mr_form_row,
};

bool mr_tally(struct mr_tally *tally, int64_t now_ns)
{
    tally->count++;
    if (tally->logged_ns != 0 && now_ns - tally->logged_ns < INT64_C(1000000000)) {
        return false;
    }
    tally->logged_ns = now_ns;
    return true;
}

/* NULL: it is not wanted. */
static const struct mr_topic *intern(struct mr_topics *topics, const char *name)
{
    return name == NULL ? NULL : mr_topics_intern(topics, name);
}

static void name_dead_letter(struct mr_encoder *encoder)
{
    const struct mr_encode_options *options = &encoder->options;
    bool is_wanted = options->oversize == MR_OVERSIZE_DEAD_LETTER;
    encoder->names.dead_letter =
        intern(encoder->topics, is_wanted ? options->dead_letter_topic : NULL);
}

struct mr_encoder *mr_encoder_new(const struct mr_encode_options *options, struct mr_topics *topics)
{
    struct mr_encoder *encoder = MR_NEW(struct mr_encoder);
    encoder->options = *options;
    mr_counted_hold(options->memory);
    encoder->topics = topics;
    encoder->form = forms[options->format];
    if (options->json_schemas != MR_JSON_BARE) {
        bool is_row = options->format == MR_FORMAT_ROW;
        MR_ASSERT(is_row || options->format == MR_FORMAT_DEBEZIUM);
        MR_ASSERT(options->types == MR_TYPES_DEBEZIUM);
        encoder->form = is_row ? &mr_form_row : &mr_form_wrapped;
        encoder->around = mr_connect_around();
    }
    encoder->message_avro.value = MR_NO_SCHEMA;
    if (options->counts != NULL) {
        encoder->messages = mr_table_counts_messages(options->counts);
    }
    encoder->missing.columns = MR_NEW_ARRAY(uint32_t, MR_COLUMNS_MAX);
    MR_FREED char *message_topic = mr_topic_name(options->topic_prefix, NULL, "", "message");
    encoder->names.message = mr_topics_intern(topics, message_topic);
    encoder->names.schema = intern(topics, options->schema_topic);
    encoder->names.heartbeat = intern(topics, options->heartbeat_topic);
    mr_transaction_init(&encoder->transaction, intern(topics, options->transaction_topic),
                        options->json_schemas);
    if (options->outbox != NULL && options->outbox->messages != NULL) {
        encoder->outbox_message = mr_outbox_message_new(options->outbox);
    }
    intern(topics, options->kept_topic);
    name_dead_letter(encoder);
    mr_encoder_set_database(encoder, "");
    mr_encoder_set_clock(encoder, 0);
    return encoder;
}

static void forget_plans(struct mr_encoder *encoder)
{
    for (uint32_t i = 0; i < encoder->plans.index.count; i++) {
        mr_plan_free(encoder, encoder->plans.items[i]);
    }
    mr_index_clear(&encoder->plans.index);
    encoder->last_plan = NULL;
}

void mr_encoder_free(struct mr_encoder *encoder)
{
    if (encoder == NULL) {
        return;
    }
    forget_plans(encoder);
    free(encoder->plans.items);
    free(encoder->plans.layouts);
    mr_index_done(&encoder->plans.index);
    mr_index_done(&encoder->plans.layout_index);
    free(encoder->database);
    free(encoder->missing.columns);
    mr_value_topics_done(&encoder->value_topics);
    mr_transaction_done(&encoder->transaction);
    mr_outbox_message_free(encoder->outbox_message);
    mr_scratch_done(&encoder->scratch);
    free(encoder->stamp.clock.data);
    free(encoder->around.data);
    mr_counted_release(encoder->options.memory);
    free(encoder);
}

struct mr_encoder *mr_encoder_clone(const struct mr_encoder *encoder)
{
    return mr_encoder_new(&encoder->options, encoder->topics);
}

void mr_encoder_change(struct mr_encoder *encoder, const struct mr_encode_options *options)
{
    forget_plans(encoder);
    mr_counted_pass(&encoder->options.memory, options->memory);
    encoder->options.routes = options->routes;
    encoder->options.route_count = options->route_count;
    encoder->options.routes_only = options->routes_only;
    encoder->options.skipped_operations = options->skipped_operations;
    encoder->options.tombstones = options->tombstones;
    encoder->options.oversize = options->oversize;
    encoder->options.dead_letter_topic = options->dead_letter_topic;
    name_dead_letter(encoder);
}

mr_status mr_encoder_topic(struct mr_encoder *encoder, const struct mr_relation *relation,
                           enum mr_op op, const struct mr_topic **ret_topic,
                           struct mr_error *ret_error)
{
    struct mr_plan *plan;
    MR_TRY(mr_plan_for(encoder, relation, &plan, ret_error));
    while (plan->next != NULL && (plan->operations & (1u << op)) == 0) {
        plan = plan->next;
    }
    *ret_topic = (plan->operations & (1u << op)) == 0 ? NULL : plan->topic;
    return MR_OK;
}

const struct mr_encode_options *mr_encoder_options(const struct mr_encoder *encoder)
{
    return &encoder->options;
}

void mr_encoder_set_database(struct mr_encoder *encoder, const char *database)
{
    free(encoder->database);
    encoder->database = MR_STRDUP(database);
    for (uint32_t i = 0; i < encoder->plans.index.count; i++) {
        for (struct mr_plan *plan = encoder->plans.items[i]; plan != NULL; plan = plan->next) {
            plan->rendered.commit_lsn = 0; /* it holds the old name */
        }
    }
}

static void render_clock(struct mr_encoder *encoder)
{
    struct mr_stamp *stamp = &encoder->stamp;
    int64_t time_ns = stamp->now_ns > stamp->commit_ns ? stamp->now_ns : stamp->commit_ns;
    struct mr_buffer out = mr_text_begin(&stamp->clock, 128);
    out.is_avro = encoder->options.format == MR_FORMAT_AVRO;
    mr_put_field(&out, MR_SLICE("\"ts_ms\":"), true);
    mr_put_long(&out, time_ns / 1000000);
    mr_put_field(&out, MR_SLICE(",\"ts_us\":"), true);
    mr_put_long(&out, time_ns / 1000);
    mr_put_field(&out, MR_SLICE(",\"ts_ns\":"), true);
    mr_put_long(&out, time_ns);
    mr_put_json(&out, MR_SLICE("}"));
    MR_ASSERT(!out.full);
    stamp->clock.len = (size_t)(out.at - stamp->clock.data);
}

void mr_encoder_set_clock(struct mr_encoder *encoder, int64_t now_ns)
{
    encoder->stamp.now_ns = now_ns;
    render_clock(encoder);
}

void mr_encoder_set_commit_time(struct mr_encoder *encoder, int64_t commit_time_us)
{
    bool was_ahead = encoder->stamp.commit_ns > encoder->stamp.now_ns;
    encoder->stamp.commit_ns = commit_time_us * 1000;
    if (MR_UNLIKELY(was_ahead || encoder->stamp.commit_ns > encoder->stamp.now_ns)) {
        render_clock(encoder);
    }
}

static uint64_t plan_hash(const struct mr_relation *relation)
{
    return (uint64_t)(uintptr_t)relation;
}

/* The number of the relation's plan, or MR_INDEX_NONE. */
static uint32_t find_plan(const struct mr_encoder *encoder, const struct mr_relation *relation)
{
    uint32_t number;
    MR_INDEX_FIND(number, &encoder->plans.index, plan_hash(relation),
                  encoder->plans.items[number]->relation == relation);
    return number;
}

static struct mr_plan *known_plan(const struct mr_encoder *encoder,
                                  const struct mr_relation *relation)
{
    struct mr_plan *last = encoder->last_plan;
    if (MR_LIKELY(last != NULL && last->relation == relation)) {
        return last;
    }
    uint32_t number = find_plan(encoder, relation);
    return number == MR_INDEX_NONE ? NULL : encoder->plans.items[number];
}

static mr_status encode_make_plan(struct mr_encoder *encoder, const struct mr_relation *relation,
                                  struct mr_plan **ret_plan, struct mr_error *ret_error)
{
    struct mr_plans *plans = &encoder->plans;
    struct mr_plan *plan = mr_plan_new(encoder, relation, ret_error);
    if (plan == NULL) {
        return ret_error->status;
    }
    if (encoder->options.counts != NULL && plan->topic != NULL && !mr_is_message(relation)) {
        plan->line =
            mr_table_counts_line(encoder->options.counts, relation->schema, relation->table);
    }
    MR_GROW(plans->items, plans->capacity, plans->index.count + 1);
    plans->items[mr_index_add(&plans->index, plan_hash(relation))] = plan;
    *ret_plan = plan;
    return MR_OK;
}

mr_status mr_plan_for(struct mr_encoder *encoder, const struct mr_relation *relation,
                      struct mr_plan **ret_plan, struct mr_error *ret_error)
{
    struct mr_plan *plan = known_plan(encoder, relation);
    if (MR_UNLIKELY(plan == NULL)) {
        MR_TRY(encode_make_plan(encoder, relation, &plan, ret_error));
    }
    encoder->last_plan = plan;
    *ret_plan = plan;
    return MR_OK;
}

void mr_encoder_forget(struct mr_encoder *encoder, const struct mr_relation *relation)
{
    struct mr_plans *plans = &encoder->plans;
    uint32_t number = find_plan(encoder, relation);
    if (number == MR_INDEX_NONE) {
        return;
    }
    if (encoder->last_plan == plans->items[number]) {
        encoder->last_plan = NULL;
    }
    mr_plan_free(encoder, plans->items[number]);
    struct mr_plan *last = plans->items[plans->index.count - 1];
    uint64_t last_hash =
        number + 1 == plans->index.count ? plan_hash(relation) : plan_hash(last->relation);
    mr_index_remove(&plans->index, number, plan_hash(relation), last_hash);
    plans->items[number] = last;
}

/* Of several records the last that has a value: not the tombstone. */
__attribute__((cold)) static void keep_last(const struct mr_encoder *encoder,
                                            struct mr_table_line *line,
                                            const struct mr_record *records, uint32_t count)
{
    while (count > 1 && records[count - 1].value == NULL) {
        count--;
    }
    const struct mr_record *last = &records[count - 1];
    mr_table_line_keep(line, encoder->stamp.now_ns,
                       (mr_slice){.data = last->key, .len = last->key_len},
                       (mr_slice){.data = last->value, .len = last->value_len});
}

/* Of the records that come before an item's own: they are kept; what is encoded may be thrown
 * away. */
__attribute__((cold)) static void note_told(struct mr_encoder *encoder, struct mr_plan *plan,
                                            const struct mr_record *records, uint32_t count)
{
    if (count > 0 && records->kind == MR_RECORD_TRANSACTION) {
        encoder->transaction.begin_waits = false;
        records++;
        count--;
    }
    if (plan != NULL && count > 0 && records->kind == MR_RECORD_SCHEMA) {
        plan->tells_schema = false;
        plan->is_unusual = mr_plan_is_unusual(plan);
    }
}

void mr_encoder_count(struct mr_encoder *encoder, const struct mr_item *item,
                      const struct mr_record *records, uint32_t count)
{
    struct mr_table_line *line = NULL;
    enum mr_op op = MR_OP_MESSAGE;
    if (MR_LIKELY(item->kind == MR_ITEM_CHANGE)) {
        struct mr_plan *plan = known_plan(encoder, item->change->relation);
        line = plan->line;
        op = item->change->op;
        if (MR_UNLIKELY(plan->is_unusual)) {
            note_told(encoder, plan, records, count);
        }
    } else {
        note_told(encoder, NULL, records, count);
        line = item->kind == MR_ITEM_MESSAGE ? encoder->messages : NULL;
    }
    if (line != NULL) {
        mr_table_line_count(line, op);
        if (MR_UNLIKELY(line->last != NULL)) {
            keep_last(encoder, line, records, count);
        }
    }
}

/* What was found wrong while the change was written. The text holds names, nothing of the row. */
__attribute__((cold)) static mr_status fail_change(const struct mr_encoder *encoder,
                                                   const struct mr_relation *relation,
                                                   struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_POISON, "column \"%s\" of table %s.%s: %s",
                   relation->columns[encoder->fault.column].name, relation->schema, relation->table,
                   encoder->fault.what);
}

/* The first column of a row whose text is not UTF-8; false: none is, so that it was a name. */
static bool find_bytes(const struct mr_plan *plan, const struct mr_tuple *row, uint32_t *ret_column)
{
    for (uint32_t i = 0; row->kind != MR_TUPLE_NONE && i < plan->relation->column_count; i++) {
        const struct mr_datum *value = &row->values[i];
        if (value->kind == MR_DATUM_TEXT && !mr_is_utf8(value->data, value->len)) {
            *ret_column = i;
            return true;
        }
    }
    return false;
}

/* Text that is not UTF-8 was written in some form; whether it may be. */
__attribute__((cold)) static mr_status check_bytes(struct mr_encoder *encoder,
                                                   const struct mr_plan *plan,
                                                   const struct mr_change *change,
                                                   struct mr_error *ret_error)
{
    uint32_t *column = &encoder->fault.column;
    if (encoder->options.invalid_utf8 != MR_INVALID_REFUSED ||
        !(find_bytes(plan, &change->after, column) || find_bytes(plan, &change->before, column))) {
        return MR_OK;
    }
    encoder->fault.what =
        "its text is not UTF-8, which only a SQL_ASCII database allows; correct the "
        "row, or set invalid_utf8 to base64 or replace";
    return fail_change(encoder, change->relation, ret_error);
}

/* Whether an update has the row as it was, in all columns that are passed on. Without the whole old
 * row nobody can tell. */
static bool leaves_all(struct mr_encoder *encoder, const struct mr_plan *plan,
                       const struct mr_change *change)
{
    if (change->op != MR_OP_UPDATE || change->before.kind != MR_TUPLE_FULL) {
        return false;
    }
    for (uint32_t i = 0; i < plan->relation->column_count; i++) {
        if (plan->columns[i].writer != MR_WRITE_ABSENT &&
            !mr_value_equal(encoder, plan, i, &change->before.values[i],
                            &change->after.values[i])) {
            return false;
        }
    }
    return true;
}

/* An update that gives a row another key is a delete and an insert, and skipped as these are, as
 * Debezium does (its EventDispatcher). */
static bool moves_row(struct mr_encoder *encoder, const struct mr_plan *plan,
                      const struct mr_change *change)
{
    const uint32_t parts = 1u << MR_OP_DELETE | 1u << MR_OP_INSERT;
    return change->op == MR_OP_UPDATE && plan->topic != NULL && (plan->operations & parts) != 0 &&
           plan->form->ends_rows && mr_key_changed(encoder, plan, change);
}

/* Whether nothing of the change goes into the plan's stream. */
static bool is_left_out(struct mr_encoder *encoder, const struct mr_plan *plan,
                        const struct mr_change *change)
{
    return MR_UNLIKELY(plan->topic == NULL || (plan->operations & (1u << change->op)) == 0) &&
           !moves_row(encoder, plan, change);
}

/* The same of a plan that is unusual. */
static bool passes_by(struct mr_encoder *encoder, const struct mr_plan *plan,
                      const struct mr_change *change)
{
    return is_left_out(encoder, plan, change) ||
           (plan->skips_unchanged && leaves_all(encoder, plan, change));
}

bool mr_encoder_passes_by(struct mr_encoder *encoder, const struct mr_change *change)
{
    const struct mr_plan *plan = known_plan(encoder, change->relation);
    while (plan != NULL &&
           ((plan->operations & (1u << MR_OP_READ)) == 0 || !passes_by(encoder, plan, change))) {
        plan = plan->next;
    }
    return plan != NULL;
}

bool mr_encoder_shows(struct mr_encoder *encoder, const struct mr_relation *relation,
                      uint32_t column)
{
    struct mr_plan *plan = NULL;
    struct mr_error unused = {0}; /* who encodes it says why */
    if (mr_plan_for(encoder, relation, &plan, &unused) != MR_OK) {
        return false;
    }
    while (plan != NULL &&
           (plan->topic == NULL || plan->columns[column].writer == MR_WRITE_ABSENT)) {
        plan = plan->next;
    }
    return plan != NULL;
}

mr_status mr_encoder_part(struct mr_encoder *encoder, const struct mr_relation *root,
                          const struct mr_relation *part, struct mr_error *ret_error)
{
    struct mr_plan *plan = NULL;
    if (encoder->options.hidden == NULL) {
        return MR_OK;
    }
    MR_TRY(mr_plan_for(encoder, root, &plan, ret_error));
    for (; plan != NULL; plan = plan->next) {
        MR_TRY(mr_plan_part(plan, &encoder->options, part, ret_error));
    }
    return MR_OK;
}

/* What comes before a change's first record: `first` is the plan of its table's first stream. */
static uint32_t tell_before(struct mr_encoder *encoder, const struct mr_plan *first,
                            const struct mr_change *change, struct mr_buffer *buffer,
                            struct mr_record *ret_records)
{
    uint32_t told = 0;
    if (change->op == MR_OP_READ || change->copy_mark != MR_COPY_NONE) {
        return told;
    }
    if (encoder->transaction.begin_waits && change->transaction->xid != 0) {
        mr_transaction_record(buffer, &encoder->transaction, change->transaction, change->position,
                              MR_TRANSACTION_BEGIN, &ret_records[told++]);
    }
    if (first->tells_schema) {
        mr_schema_event(encoder, first, change, buffer, &ret_records[told++]);
    }
    return told;
}

/* The server tells what a row was where its identity changed: whether another column did nobody
 * knows, and the row with the key that it had would stay in the topic for good. */
__attribute__((cold)) static mr_status fail_unheld_key(const struct mr_relation *relation,
                                                       struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_POISON,
                   "an update of table %s.%s does not tell the key that the row had: the replica "
                   "identity, of the table or of one of its partitions, does not hold it; run "
                   "ALTER TABLE … REPLICA IDENTITY FULL. What was written before that lacks these "
                   "values: it takes a new slot and a copy of the rows (snapshot.mode)",
                   relation->schema, relation->table);
}

static mr_status encode_stream(struct mr_encoder *encoder, struct mr_plan *plan,
                               const struct mr_change *change, struct mr_buffer *buffer,
                               struct mr_record *ret_records, uint32_t *ret_count,
                               struct mr_error *ret_error)
{
    encoder->missing.count = 0;
    if (MR_UNLIKELY(plan->key.is_unheld) && change->op == MR_OP_UPDATE &&
        change->before.kind == MR_TUPLE_NONE) {
        return fail_unheld_key(change->relation, ret_error);
    }
    return plan->form->change(encoder, plan, change, buffer, ret_records, ret_count, ret_error);
}

/* A change for which more is to be done than to write its events, or its events more than once. */
static mr_status encode_unusual(struct mr_encoder *encoder, struct mr_plan *first,
                                const struct mr_change *change, struct mr_buffer *buffer,
                                struct mr_record *ret_records, uint32_t *ret_count,
                                struct mr_error *ret_error)
{
    uint32_t total = 0;
    for (struct mr_plan *plan = first; plan != NULL; plan = plan->next) {
        if ((encoder->placing.only != NULL && encoder->placing.only != plan) ||
            passes_by(encoder, plan, change)) {
            continue;
        }
        bool tells = total == 0 && !encoder->placing.has_told;
        uint32_t told = tells ? tell_before(encoder, first, change, buffer, ret_records) : 0;
        uint32_t count;
        MR_TRY(encode_stream(encoder, plan, change, buffer, ret_records + total + told, &count,
                             ret_error));
        total += count > 0 ? told + count : 0;
    }
    *ret_count = total;
    return MR_OK;
}

mr_status mr_encode_change(struct mr_encoder *encoder, const struct mr_change *change,
                           struct mr_buffer *buffer, struct mr_record *ret_records,
                           uint32_t *ret_count, struct mr_error *ret_error)
{
    struct mr_plan *plan;
    MR_TRY(mr_plan_for(encoder, change->relation, &plan, ret_error));
    encoder->fault.what = NULL;
    encoder->missing.count = 0;
    buffer->splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    buffer->bytes_as_base64 = encoder->options.invalid_utf8 == MR_INVALID_BASE64;
    buffer->met_bytes = false;
    uint32_t count = 0;
    if (MR_UNLIKELY(plan->is_unusual)) {
        MR_TRY(encode_unusual(encoder, plan, change, buffer, ret_records, &count, ret_error));
    } else if (!is_left_out(encoder, plan, change)) {
        MR_TRY(plan->form->change(encoder, plan, change, buffer, ret_records, &count, ret_error));
    }
    if (MR_UNLIKELY(encoder->fault.what != NULL)) {
        return fail_change(encoder, change->relation, ret_error);
    }
    if (MR_UNLIKELY(buffer->met_bytes)) {
        MR_TRY(check_bytes(encoder, plan, change, ret_error));
    }
    if (buffer->full) {
        return MR_FULL;
    }
    *ret_count = count;
    return MR_OK;
}

/* "(?i)" before a prefix: in any case of its letters, of ASCII's as Java has it. */
static bool prefix_fits(const char *listed, mr_slice prefix)
{
    if (strncmp(listed, "(?i)", 4) == 0) {
        return strlen(listed + 4) == prefix.len &&
               strncasecmp(listed + 4, (const char *)prefix.data, prefix.len) == 0;
    }
    return strcmp(listed, "*") == 0 || mr_slice_equal(mr_slice_of(listed), prefix);
}

/* "!" before a prefix leaves it out, of the others or, in a list that begins with one, of all. */
static bool prefix_wanted(const struct mr_encode_options *options, mr_slice prefix)
{
    const char *const *listed = options->message_prefixes;
    bool wanted = options->message_prefix_count > 0 && listed[0][0] == '!';
    for (uint32_t i = 0; i < options->message_prefix_count; i++) {
        bool is_left_out = listed[i][0] == '!';
        if (prefix_fits(listed[i] + is_left_out, prefix)) {
            wanted = !is_left_out;
            if (is_left_out) {
                break;
            }
        }
    }
    return wanted;
}

static bool message_wanted(const struct mr_encoder *encoder, const struct mr_message_event *message)
{
    const struct mr_encode_options *options = &encoder->options;
    if (message->is_context) {
        return false;
    }
    if (mr_is_outbox_message(options, message)) {
        return true;
    }
    if (encoder->form->message == NULL ||
        (options->skipped_operations & (1u << MR_OP_MESSAGE)) != 0) {
        return false;
    }
    return prefix_wanted(options, message->prefix);
}

static bool message_sized(const struct mr_encode_options *options,
                          const struct mr_message_event *message)
{
    return message->prefix.len <= MR_MESSAGE_PREFIX_MAX &&
           message->prefix.len + message->content.len <= options->message_bytes_max;
}

/* Any role that may connect can write a message, so one that is too large must not stop the
 * stream. */
static bool message_too_large(struct mr_encoder *encoder, const struct mr_message_event *message)
{
    if (message_sized(&encoder->options, message)) {
        return false;
    }
    if (mr_tally(&encoder->dropped, encoder->stamp.now_ns)) {
        mr_log(MR_LOG_WARN, "message_dropped",
               "a logical message is larger than sink.kafka.message_max allows, or its prefix than "
               "255 bytes, and is not passed on",
               MR_LOG_LSN("lsn", message->lsn),
               MR_LOG_INT("bytes", message->prefix.len + message->content.len),
               MR_LOG_INT("count", encoder->dropped.count));
    }
    return true;
}

mr_status mr_encode_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                            struct mr_buffer *buffer, struct mr_record *ret_records,
                            uint32_t *ret_count, struct mr_error *ret_error)
{
    if (!message_wanted(encoder, message) || message_too_large(encoder, message)) {
        *ret_count = 0;
        return MR_OK;
    }
    buffer->bytes_as_base64 = false; /* any role that may connect can send any bytes */
    if (mr_is_outbox_message(&encoder->options, message)) {
        return mr_encode_outbox_message(encoder, message, buffer, ret_records, ret_count);
    }
    buffer->splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    uint32_t told = 0;
    if (message->transaction != NULL && encoder->transaction.begin_waits) {
        mr_transaction_record(buffer, &encoder->transaction, message->transaction,
                              message->position, MR_TRANSACTION_BEGIN, &ret_records[told++]);
    }
    if (!encoder->form->message(encoder, message, buffer, &ret_records[told])) {
        return mr_fail(ret_error, MR_ERR_POISON, /* no text makes it so */
                       "a logical message does not fit its Avro schema");
    }
    if (buffer->full) {
        return MR_FULL;
    }
    ret_records[told].yields = true;
    *ret_count = told + 1;
    return MR_OK;
}

void mr_encoder_begin(struct mr_encoder *encoder, const struct mr_transaction *transaction,
                      bool is_told)
{
    mr_transaction_reset(&encoder->transaction, transaction);
    encoder->transaction.begin_waits = !is_told;
}

/* The events that Debezium makes of a change. Of an outbox's rows it counts them all, whatever
 * becomes of them. */
static uint32_t events_of(struct mr_encoder *encoder, const struct mr_plan *plan,
                          const struct mr_change *change)
{
    uint32_t operations = plan->operations;
    if (plan->topic == NULL) {
        return 0;
    }
    if (change->op == MR_OP_UPDATE && mr_key_changed(encoder, plan, change)) {
        return (operations >> MR_OP_DELETE & 1) + (operations >> MR_OP_INSERT & 1);
    }
    return (operations & (1u << change->op)) != 0 &&
           !(plan->skips_unchanged && leaves_all(encoder, plan, change));
}

mr_status mr_encoder_pass(struct mr_encoder *encoder, const struct mr_item *item,
                          struct mr_error *ret_error)
{
    struct mr_transaction_counts *counts = &encoder->transaction;
    bool is_change = item->kind == MR_ITEM_CHANGE;
    MR_ASSERT(is_change || item->kind == MR_ITEM_MESSAGE);
    struct mr_position position = is_change ? item->change->position : item->message->position;
    if (mr_position_compare(position, counts->last) <= 0) {
        return MR_OK;
    }
    if (is_change) {
        const struct mr_change *change = item->change;
        struct mr_plan *plan;
        MR_TRY(mr_plan_for(encoder, change->relation, &plan, ret_error));
        uint32_t events = events_of(encoder, plan, change);
        if (events > 0) {
            mr_transaction_add(counts, &plan->slot, change->relation->schema,
                               change->relation->table, events);
        }
    } else if (item->message->transaction != NULL && message_wanted(encoder, item->message) &&
               message_sized(&encoder->options, item->message)) {
        mr_transaction_add(counts, &counts->messages, NULL, NULL, 1);
    }
    counts->last = position;
    return MR_OK;
}

bool mr_encoder_has_begun(const struct mr_encoder *encoder)
{
    return !encoder->transaction.begin_waits;
}

struct mr_position mr_encoder_end_position(const struct mr_encoder *encoder)
{
    struct mr_position position = encoder->transaction.last;
    position.ordinal++;
    return position;
}

mr_status mr_encode_end_as(struct mr_encoder *encoder, const struct mr_transaction_end *end,
                           enum mr_transaction_part part, struct mr_buffer *buffer,
                           struct mr_record *ret_records, uint32_t *ret_count)
{
    uint32_t count = 0;
    buffer->splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    if (encoder->transaction.begin_waits) {
        mr_transaction_record(buffer, &encoder->transaction, end->transaction, end->position,
                              MR_TRANSACTION_BEGIN, &ret_records[count++]);
    }
    mr_transaction_record(buffer, &encoder->transaction, end->transaction, end->position, part,
                          &ret_records[count++]);
    *ret_count = count;
    return buffer->full ? MR_FULL : MR_OK;
}

/* As Debezium's HeartbeatImpl (debezium-core, io.debezium.heartbeat) with JsonConverter has it. */
struct mr_record mr_encoder_heartbeat(const struct mr_encoder *encoder, int64_t wall_ns,
                                      struct mr_buffer *buffer)
{
    struct mr_record record = {.topic = encoder->names.heartbeat, .commit_time_us = wall_ns / 1000};
    enum mr_json_schemas schemas = encoder->options.json_schemas;
    const uint8_t *begin = buffer->at;
    mr_connect_begin(buffer, schemas & MR_JSON_KEY_SCHEMA, mr_connect_heartbeat(true));
    MR_BUFFER_LITERAL(buffer, "{\"serverName\":");
    mr_put_slice(buffer, mr_slice_of(encoder->options.topic_prefix));
    MR_BUFFER_LITERAL(buffer, "}");
    mr_connect_end(buffer, schemas & MR_JSON_KEY_SCHEMA);
    mr_record_set_key(&record, mr_text_since(buffer, begin));
    begin = buffer->at;
    mr_connect_begin(buffer, schemas & MR_JSON_VALUE_SCHEMA, mr_connect_heartbeat(false));
    mr_buffer_format(buffer, "{\"ts_ms\":%" PRId64 "}", wall_ns / 1000000);
    mr_connect_end(buffer, schemas & MR_JSON_VALUE_SCHEMA);
    mr_record_set_value(&record, mr_text_since(buffer, begin));
    return record;
}

static mr_status copy_record(const struct mr_record *record, struct mr_buffer *buffer,
                             struct mr_record *ret_record)
{
    *ret_record = *record;
    ret_record->key = buffer->at;
    mr_buffer_append(buffer, record->key, record->key_len);
    ret_record->value = buffer->at;
    mr_buffer_append(buffer, record->value, record->value_len);
    if (record->has_headers) {
        mr_headers_end(buffer, mr_headers_begin(buffer, mr_record_headers(record)));
    }
    return buffer->full ? MR_FULL : MR_OK;
}

mr_status mr_encode_other(struct mr_encoder *encoder, const struct mr_item *item,
                          struct mr_buffer *buffer, struct mr_record *ret_records,
                          uint32_t *ret_count, struct mr_error *ret_error)
{
    switch (item->kind) {
    case MR_ITEM_CHANGE:
        break;
    case MR_ITEM_MESSAGE:
        return mr_encode_message(encoder, item->message, buffer, ret_records, ret_count, ret_error);
    case MR_ITEM_END:
        return mr_encode_end_as(encoder, item->end, MR_TRANSACTION_END, buffer, ret_records,
                                ret_count);
    case MR_ITEM_RECORD:
        *ret_count = 1;
        return copy_record(item->record, buffer, ret_records);
    }
    return mr_encode_change(encoder, item->change, buffer, ret_records, ret_count, ret_error);
}
