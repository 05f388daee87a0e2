#include "encode/encode.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "encode/forms/avro.h"
#include "encode/values/row.h"

enum { PLANS_MIN = 64 };

/* Messages that are dropped are told of once a second. */
#define DROPPED_TELL_NS INT64_C(1000000000)

static void text_set_escaped(struct mr_encoder *encoder, struct mr_text *text, const char *value)
{
    size_t len = strlen(value);
    struct mr_buffer out = mr_text_begin(text, 6 * len + 2);
    out.splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    mr_json_escaped(&out, (const uint8_t *)value, len);
    MR_ASSERT(!out.full);
    text->len = (size_t)(out.at - text->data);
}

static void name_dead_letter(struct mr_encoder *encoder)
{
    const struct mr_encode_options *options = &encoder->options;
    encoder->dead_letter_topic = options->oversize == MR_OVERSIZE_DEAD_LETTER
                                     ? mr_topics_intern(encoder->topics, options->dead_letter_topic)
                                     : NULL;
}

struct mr_encoder *mr_encoder_new(const struct mr_encode_options *options, struct mr_topics *topics)
{
    struct mr_encoder *encoder = MR_NEW(struct mr_encoder);
    encoder->options = *options;
    encoder->topics = topics;
    if (options->counts != NULL) {
        encoder->messages = mr_table_counts_messages(options->counts);
    }
    encoder->plan_capacity = PLANS_MIN;
    encoder->plans = MR_NEW_ARRAY(struct mr_plan *, encoder->plan_capacity);
    text_set_escaped(encoder, &encoder->prefix, options->topic_prefix);
    encoder->missing = MR_NEW_ARRAY(uint32_t, MR_COLUMNS_MAX);
    char *message_topic = mr_topic_name(options->topic_prefix, NULL, "", "message");
    encoder->message_topic = mr_topics_intern(topics, message_topic);
    free(message_topic);
    encoder->schema_topic =
        options->schema_topic == NULL ? NULL : mr_topics_intern(topics, options->schema_topic);
    encoder->heartbeat_topic = options->heartbeat_topic == NULL
                                   ? NULL
                                   : mr_topics_intern(topics, options->heartbeat_topic);
    mr_transaction_init(&encoder->transaction,
                        options->transaction_topic == NULL
                            ? NULL
                            : mr_topics_intern(topics, options->transaction_topic));
    if (options->outbox != NULL && options->outbox->messages != NULL) {
        encoder->outbox_message = mr_outbox_message_new(options->outbox);
    }
    if (options->kept_topic != NULL) {
        mr_topics_intern(topics, options->kept_topic);
    }
    name_dead_letter(encoder);
    mr_encoder_set_database(encoder, "");
    mr_encoder_set_clock(encoder, 0);
    return encoder;
}

static void forget_plans(struct mr_encoder *encoder)
{
    for (uint32_t i = 0; i < encoder->plan_capacity; i++) {
        mr_plan_free(encoder->plans[i]);
        encoder->plans[i] = NULL;
    }
    encoder->plan_count = 0;
    encoder->last_plan = NULL;
}

void mr_encoder_free(struct mr_encoder *encoder)
{
    if (encoder == NULL) {
        return;
    }
    forget_plans(encoder);
    free(encoder->plans);
    mr_avro_pair_done(&encoder->message_avro);
    free(encoder->database_name);
    free(encoder->database.data);
    free(encoder->prefix.data);
    free(encoder->missing);
    mr_value_topics_done(&encoder->value_topics);
    mr_transaction_done(&encoder->transaction);
    mr_outbox_message_free(encoder->outbox_message);
    mr_scratch_done(&encoder->scratch);
    free(encoder->clock.data);
    free(encoder);
}

struct mr_encoder *mr_encoder_clone(const struct mr_encoder *encoder)
{
    return mr_encoder_new(&encoder->options, encoder->topics);
}

void mr_encoder_change(struct mr_encoder *encoder, const struct mr_encode_options *options)
{
    forget_plans(encoder);
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
    free(encoder->database_name);
    encoder->database_name = MR_STRDUP(database);
    text_set_escaped(encoder, &encoder->database, database);
    for (uint32_t i = 0; i < encoder->plan_capacity; i++) {
        for (struct mr_plan *plan = encoder->plans[i]; plan != NULL; plan = plan->next) {
            plan->rendered_commit_lsn = 0; /* it holds the old name */
        }
    }
}

static void render_clock(struct mr_encoder *encoder)
{
    int64_t time_ns = encoder->now_ns > encoder->commit_ns ? encoder->now_ns : encoder->commit_ns;
    struct mr_buffer out = mr_text_begin(&encoder->clock, 128);
    MR_BUFFER_LITERAL(&out, "\"ts_ms\":");
    mr_json_i64(&out, time_ns / 1000000);
    MR_BUFFER_LITERAL(&out, ",\"ts_us\":");
    mr_json_i64(&out, time_ns / 1000);
    MR_BUFFER_LITERAL(&out, ",\"ts_ns\":");
    mr_json_i64(&out, time_ns);
    MR_BUFFER_LITERAL(&out, "}");
    MR_ASSERT(!out.full);
    encoder->clock.len = (size_t)(out.at - encoder->clock.data);
}

void mr_encoder_set_clock(struct mr_encoder *encoder, int64_t now_ns)
{
    encoder->now_ns = now_ns;
    render_clock(encoder);
}

void mr_encoder_set_commit_time(struct mr_encoder *encoder, int64_t commit_time_us)
{
    bool was_ahead = encoder->commit_ns > encoder->now_ns;
    encoder->commit_ns = commit_time_us * 1000;
    if (MR_UNLIKELY(was_ahead || encoder->commit_ns > encoder->now_ns)) {
        render_clock(encoder);
    }
}

/* Where a search for the relation's plan begins. */
static uint32_t plan_home(const struct mr_encoder *encoder, const struct mr_relation *relation)
{
    return (uint32_t)(((uintptr_t)relation >> 4) * 2654435761u) & (encoder->plan_capacity - 1);
}

/* Where the relation's plan is, or would go. */
static struct mr_plan **plan_slot(const struct mr_encoder *encoder,
                                  const struct mr_relation *relation)
{
    uint32_t mask = encoder->plan_capacity - 1;
    uint32_t i = plan_home(encoder, relation);
    while (encoder->plans[i] != NULL && encoder->plans[i]->relation != relation) {
        i = (i + 1) & mask;
    }
    return &encoder->plans[i];
}

static void plans_rehash(struct mr_encoder *encoder, uint32_t capacity)
{
    struct mr_plan **old = encoder->plans;
    uint32_t old_capacity = encoder->plan_capacity;
    encoder->plans = MR_NEW_ARRAY(struct mr_plan *, capacity);
    encoder->plan_capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++) {
        if (old[i] != NULL) {
            *plan_slot(encoder, old[i]->relation) = old[i];
        }
    }
    free(old);
}

static mr_status plan_make(struct mr_encoder *encoder, const struct mr_relation *relation,
                           struct mr_plan **ret_plan, struct mr_error *ret_error)
{
    struct mr_plan *plan = mr_plan_new(&encoder->options, encoder->topics, relation, ret_error);
    if (plan == NULL) {
        return ret_error->status;
    }
    if (2 * (encoder->plan_count + 1) > encoder->plan_capacity) {
        plans_rehash(encoder, 2 * encoder->plan_capacity);
    }
    if (encoder->options.counts != NULL && plan->topic != NULL && !mr_is_message(relation)) {
        plan->line =
            mr_table_counts_line(encoder->options.counts, relation->schema, relation->table);
    }
    if (plan->place != NULL) {
        mr_value_topics_forget(&encoder->value_topics); /* of an older plan at the same address */
    }
    *plan_slot(encoder, relation) = plan;
    encoder->plan_count++;
    *ret_plan = plan;
    return MR_OK;
}

mr_status mr_plan_for(struct mr_encoder *encoder, const struct mr_relation *relation,
                      struct mr_plan **ret_plan, struct mr_error *ret_error)
{
    struct mr_plan *plan = encoder->last_plan;
    if (MR_UNLIKELY(plan == NULL || plan->relation != relation)) {
        plan = *plan_slot(encoder, relation);
        if (plan == NULL) {
            MR_TRY(plan_make(encoder, relation, &plan, ret_error));
        }
        encoder->last_plan = plan;
    }
    *ret_plan = plan;
    return MR_OK;
}

/* Moves into the freed place what was pushed aside by it, and so on: a search ends at the first free place. */
static void plans_close_gap(struct mr_encoder *encoder, uint32_t gap)
{
    uint32_t mask = encoder->plan_capacity - 1;
    for (uint32_t i = (gap + 1) & mask; encoder->plans[i] != NULL; i = (i + 1) & mask) {
        uint32_t home = plan_home(encoder, encoder->plans[i]->relation);
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            encoder->plans[gap] = encoder->plans[i];
            gap = i;
        }
    }
    encoder->plans[gap] = NULL;
}

void mr_encoder_forget(struct mr_encoder *encoder, const struct mr_relation *relation)
{
    struct mr_plan **slot = plan_slot(encoder, relation);
    if (*slot == NULL) {
        return;
    }
    if (encoder->last_plan == *slot) {
        encoder->last_plan = NULL;
    }
    mr_plan_free(*slot);
    encoder->plan_count--;
    plans_close_gap(encoder, (uint32_t)(slot - encoder->plans));
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
    mr_table_line_keep(line, encoder->now_ns, (mr_slice){.data = last->key, .len = last->key_len},
                       (mr_slice){.data = last->value, .len = last->value_len});
}

/* Of the records that come before an item's own: they are kept; what is encoded may be thrown away. */
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
    bool is_change = MR_LIKELY(item->kind == MR_ITEM_CHANGE);
    if (!is_change) {
        note_told(encoder, NULL, records, count);
        if (item->kind != MR_ITEM_MESSAGE) {
            return;
        }
    }
    struct mr_table_line *line = encoder->messages;
    if (is_change) {
        struct mr_plan *last = encoder->last_plan;
        bool is_last = last != NULL && last->relation == item->change->relation;
        struct mr_plan *plan = is_last ? last : *plan_slot(encoder, item->change->relation);
        line = plan->line;
        if (MR_UNLIKELY(plan->is_unusual)) {
            note_told(encoder, plan, records, count);
        }
    }
    if (line != NULL) {
        mr_table_line_count(line, is_change ? item->change->op : MR_OP_MESSAGE);
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
                   relation->columns[encoder->wrong_column].name, relation->schema, relation->table,
                   encoder->wrong);
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
    uint32_t *column = &encoder->wrong_column;
    if (encoder->options.invalid_utf8 != MR_INVALID_REFUSED ||
        !(find_bytes(plan, &change->after, column) || find_bytes(plan, &change->before, column))) {
        return MR_OK;
    }
    encoder->wrong = "its text is not UTF-8, which only a SQL_ASCII database allows; correct the "
                     "row, or set invalid_utf8 to base64 or replace";
    return fail_change(encoder, change->relation, ret_error);
}

/* The key of a dead letter stays JSON. The error's text holds names, nothing of the row. */
static mr_status encode_avro(struct mr_encoder *encoder, struct mr_plan *plan,
                             const struct mr_change *change, struct mr_buffer *buffer,
                             struct mr_record *ret_records, uint32_t *ret_count,
                             struct mr_error *ret_error)
{
    uint8_t *begin = buffer->at;
    mr_slice wrong = {0};
    *ret_count = mr_debezium_change(encoder, plan, change, buffer, ret_records);
    if (encoder->writes_letter || encoder->wrong != NULL || buffer->full ||
        mr_avro_records(&plan->avro, encoder->options.unavailable_value, begin, buffer, ret_records,
                        *ret_count, &wrong)) {
        return MR_OK;
    }
    return mr_fail(
        ret_error, MR_ERR_POISON,
        "column \"%.*s\" of table %s.%s has a value that does not fit its Avro schema (a "
        "key that is not UTF-8, or is NaN or infinite, has none); leave the column out with "
        "columns.exclude, or "
        "out of the key with key_columns",
        (int)wrong.len, (const char *)wrong.data, change->relation->schema,
        change->relation->table);
}

/* Whether an update has the row as it was, in all columns that are passed on. Without the whole old row nobody can tell. */
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

/* An update that gives a row another key is a delete and an insert, and skipped as these are, as Debezium does (its
 * EventDispatcher). */
static bool moves_row(struct mr_encoder *encoder, const struct mr_plan *plan,
                      const struct mr_change *change)
{
    const uint32_t parts = 1u << MR_OP_DELETE | 1u << MR_OP_INSERT;
    return change->op == MR_OP_UPDATE && plan->topic != NULL && (plan->operations & parts) != 0 &&
           (encoder->options.format != MR_FORMAT_FLAT || plan->place != NULL) &&
           mr_key_changed(encoder, plan, change);
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
    const struct mr_plan *plan = *plan_slot(encoder, change->relation);
    while (plan != NULL &&
           ((plan->operations & (1u << MR_OP_READ)) == 0 || !passes_by(encoder, plan, change))) {
        plan = plan->next;
    }
    return plan != NULL;
}

static uint32_t encode_json(struct mr_encoder *encoder, struct mr_plan *plan,
                            const struct mr_change *change, struct mr_buffer *buffer,
                            struct mr_record *ret_records)
{
    return encoder->options.format == MR_FORMAT_FLAT
               ? mr_flat_change(encoder, plan, change, buffer, ret_records)
               : mr_debezium_change(encoder, plan, change, buffer, ret_records);
}

/* What comes before a change's first record: `first` is the plan of its table's first stream. */
static uint32_t tell_before(struct mr_encoder *encoder, const struct mr_plan *first,
                            const struct mr_change *change, struct mr_buffer *buffer,
                            struct mr_record *ret_records)
{
    uint32_t told = 0;
    if (change->op == MR_OP_READ) {
        return told;
    }
    if (encoder->transaction.begin_waits && change->transaction->xid != 0) {
        mr_transaction_begin(buffer, &encoder->transaction, change->transaction, change->position,
                             &ret_records[told++]);
    }
    if (first->tells_schema) {
        mr_schema_event(encoder, first, change, buffer, &ret_records[told++]);
    }
    return told;
}

/* The server tells what a row was where its identity changed: whether another column did nobody knows, and the row with the
 * key that it had would stay in the topic for good. */
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

/* One stream's records of a change. */
static mr_status encode_stream(struct mr_encoder *encoder, struct mr_plan *plan,
                               const struct mr_change *change, struct mr_buffer *buffer,
                               struct mr_record *ret_records, uint32_t *ret_count,
                               struct mr_error *ret_error)
{
    encoder->missing_count = 0;
    if (plan->outbox != NULL) {
        return mr_outbox_change(encoder, plan, change, buffer, ret_records, ret_count, ret_error);
    }
    if (MR_UNLIKELY(plan->key_is_unheld) && change->op == MR_OP_UPDATE &&
        change->before.kind == MR_TUPLE_NONE) {
        return fail_unheld_key(change->relation, ret_error);
    }
    if (plan->avro.value != NULL) {
        MR_TRY(encode_avro(encoder, plan, change, buffer, ret_records, ret_count, ret_error));
    } else {
        *ret_count = encode_json(encoder, plan, change, buffer, ret_records);
    }
    return plan->place == NULL
               ? MR_OK
               : mr_place_records(encoder, plan, change, ret_records, *ret_count, ret_error);
}

/* A change for which more is to be done than to write its events, or its events more than once. */
static mr_status encode_unusual(struct mr_encoder *encoder, struct mr_plan *first,
                                const struct mr_change *change, struct mr_buffer *buffer,
                                struct mr_record *ret_records, uint32_t *ret_count,
                                struct mr_error *ret_error)
{
    uint32_t total = 0;
    for (struct mr_plan *plan = first; plan != NULL; plan = plan->next) {
        if ((encoder->only != NULL && encoder->only != plan) || passes_by(encoder, plan, change)) {
            continue;
        }
        bool tells = total == 0 && !encoder->has_told;
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
    encoder->wrong = NULL;
    encoder->missing_count = 0;
    buffer->splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    buffer->bytes_as_base64 = encoder->options.invalid_utf8 == MR_INVALID_BASE64;
    buffer->met_bytes = false;
    uint32_t count = 0;
    if (MR_UNLIKELY(plan->is_unusual)) {
        MR_TRY(encode_unusual(encoder, plan, change, buffer, ret_records, &count, ret_error));
    } else if (!is_left_out(encoder, plan, change)) {
        count = encode_json(encoder, plan, change, buffer, ret_records);
    }
    if (MR_UNLIKELY(encoder->wrong != NULL)) {
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

static bool prefix_listed(const char *const *prefixes, uint32_t count, mr_slice prefix)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(prefixes[i], "*") == 0 || mr_slice_equal(mr_slice_of(prefixes[i]), prefix)) {
            return true;
        }
    }
    return false;
}

static bool message_wanted(const struct mr_encode_options *options,
                           const struct mr_message_event *message)
{
    if (mr_is_outbox_message(options, message)) {
        return true;
    }
    if (options->format == MR_FORMAT_FLAT ||
        (options->skipped_operations & (1u << MR_OP_MESSAGE)) != 0) {
        return false;
    }
    return prefix_listed(options->message_prefixes, options->message_prefix_count,
                         message->prefix) &&
           !prefix_listed(options->message_excluded, options->message_excluded_count,
                          message->prefix);
}

static bool message_sized(const struct mr_encode_options *options,
                          const struct mr_message_event *message)
{
    return message->prefix.len <= MR_MESSAGE_PREFIX_MAX &&
           message->prefix.len + message->content.len <= options->message_bytes_max;
}

/* Any role that may connect can write a message, so one that is too large must not stop the stream. */
static bool message_too_large(struct mr_encoder *encoder, const struct mr_message_event *message)
{
    if (message_sized(&encoder->options, message)) {
        return false;
    }
    encoder->messages_dropped++;
    if (encoder->now_ns - encoder->dropped_told_ns >= DROPPED_TELL_NS) {
        encoder->dropped_told_ns = encoder->now_ns;
        mr_log(MR_LOG_WARN, "message_dropped",
               "a logical message is larger than messages.max_size, or its prefix than 255 bytes, "
               "and is not passed on",
               MR_LOG_LSN("lsn", message->lsn),
               MR_LOG_INT("bytes", message->prefix.len + message->content.len),
               MR_LOG_INT("count", encoder->messages_dropped));
    }
    return true;
}

mr_status mr_encode_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                            struct mr_buffer *buffer, struct mr_record *ret_records,
                            uint32_t *ret_count, struct mr_error *ret_error)
{
    if (!message_wanted(&encoder->options, message) || message_too_large(encoder, message)) {
        *ret_count = 0;
        return MR_OK;
    }
    buffer->bytes_as_base64 = false; /* whoever may connect can send any bytes */
    if (mr_is_outbox_message(&encoder->options, message)) {
        return mr_encode_outbox_message(encoder, message, buffer, ret_records, ret_count);
    }
    buffer->splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    uint32_t told = 0;
    if (message->transaction != NULL && encoder->transaction.begin_waits) {
        mr_transaction_begin(buffer, &encoder->transaction, message->transaction, message->position,
                             &ret_records[told++]);
    }
    uint8_t *begin = buffer->at;
    uint32_t count = mr_debezium_message(encoder, message, buffer, ret_records + told);
    if (MR_UNLIKELY(encoder->options.format == MR_FORMAT_AVRO) && !encoder->writes_letter &&
        !buffer->full) {
        if (encoder->message_avro.value == NULL) {
            encoder->message_avro = mr_avro_messages(&encoder->options, encoder->message_topic);
        }
        mr_slice wrong = {0};
        bool good = mr_avro_records(&encoder->message_avro, encoder->options.unavailable_value,
                                    begin, buffer, ret_records + told, count, &wrong);
        if (!good) { /* no text makes it so */
            return mr_fail(ret_error, MR_ERR_POISON,
                           "a logical message does not fit its Avro schema");
        }
    }
    if (buffer->full) {
        return MR_FULL;
    }
    *ret_count = told + count;
    return MR_OK;
}

/* ---- transactions ---- */

void mr_encoder_begin(struct mr_encoder *encoder, const struct mr_transaction *transaction,
                      bool is_told)
{
    mr_transaction_reset(&encoder->transaction, transaction);
    encoder->transaction.begin_waits = !is_told;
}

/* The events that Debezium makes of a change. Of an outbox's rows it counts them all, whatever becomes of them. */
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
    } else if (item->message->transaction != NULL &&
               message_wanted(&encoder->options, item->message) &&
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

/* `tables`: with the counts of each. */
mr_status mr_encode_end_as(struct mr_encoder *encoder, const struct mr_transaction_end *end,
                           bool tables, struct mr_buffer *buffer, struct mr_record *ret_records,
                           uint32_t *ret_count)
{
    uint32_t told = 0;
    buffer->splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    if (encoder->transaction.begin_waits) {
        mr_transaction_begin(buffer, &encoder->transaction, end->transaction, end->position,
                             &ret_records[told++]);
    }
    mr_transaction_end(buffer, &encoder->transaction, end, tables, &ret_records[told++]);
    if (buffer->full) {
        return MR_FULL;
    }
    *ret_count = told;
    return MR_OK;
}

/* ---- heartbeats ---- */

/* As Debezium's HeartbeatImpl (debezium-core, io.debezium.heartbeat) with JsonConverter has it. */
static mr_status encode_heartbeat(struct mr_encoder *encoder, const struct mr_heartbeat *heartbeat,
                                  struct mr_buffer *buffer, struct mr_record *ret_records,
                                  uint32_t *ret_count)
{
    struct mr_record record = {
        .topic = encoder->heartbeat_topic,
        .key = buffer->at,
        .position = heartbeat->position,
        .commit_time_us = heartbeat->wall_ns / 1000,
    };
    MR_BUFFER_LITERAL(buffer, "{\"serverName\":");
    mr_slice server = mr_slice_of(encoder->options.topic_prefix);
    mr_json_string(buffer, server.data, server.len);
    MR_BUFFER_LITERAL(buffer, "}");
    record.value = buffer->at;
    record.key_len = (uint32_t)(record.value - record.key);
    MR_BUFFER_LITERAL(buffer, "{\"ts_ms\":");
    mr_json_i64(buffer, heartbeat->wall_ns / 1000000);
    MR_BUFFER_LITERAL(buffer, "}");
    record.value_len = (uint32_t)(buffer->at - record.value);
    if (buffer->full) {
        return MR_FULL;
    }
    ret_records[0] = record;
    *ret_count = 1;
    return MR_OK;
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
        return mr_encode_end_as(encoder, item->end, true, buffer, ret_records, ret_count);
    case MR_ITEM_HEARTBEAT:
        return encode_heartbeat(encoder, item->heartbeat, buffer, ret_records, ret_count);
    }
    return mr_encode_change(encoder, item->change, buffer, ret_records, ret_count, ret_error);
}
