#include "kafka/kafka_state.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/object.h"
#include "event/lsn.h"
#include "kafka/kafka_conf.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_threads.h"
#include "kafka/kafka_topic.h"

enum {
    STATE_VERSION = 1,
    /* whoever does not know of a shift would ask the server for places that it does not have */
    SHIFTED_VERSION = 4,
    STATE_VERSION_MAX = SHIFTED_VERSION, /* sections have those between */
    ANSWER_TIMEOUT_MS = 1000,
    POLL_MS = 50,
    TAIL_FIRST = 64,  /* records from the end that are looked through first, */
    TAIL_FACTOR = 32, /* and by how much more each time */
};

/* A client that does not learn the topic's ends for so long may never do: another session begins
 * with a new one. */
#define ENDS_NS (INT64_C(60) * 1000000000)
/* A transaction of millrace's lasts a minute at most. */
#define OPEN_TRANSACTION_NS (INT64_C(75) * 1000000000)

static uint32_t version_of(const struct mr_checkpoint *state)
{
    uint32_t version = state->identity.moved.shift != 0 ? SHIFTED_VERSION : STATE_VERSION;
    for (uint32_t i = 0; i < state->section_count; i++) {
        uint32_t needed = state->sections[i].rank.version;
        version = needed > version ? needed : version;
    }
    return version;
}

static void add_moved(cJSON *json, const struct mr_cluster_move *moved)
{
    if (moved->left == 0 && moved->shift == 0) {
        return;
    }
    cJSON *item = cJSON_AddObjectToObject(json, "moved");
    cJSON_AddStringToObject(item, "from", moved->from);
    mr_lsn_add(item, "left", moved->left);
    mr_lsn_add(item, "entered", moved->entered);
    mr_lsn_add(item, "shift", moved->shift);
    char xid[24]; /* a number of cJSON's has 15 digits that one can rely on */
    snprintf(xid, sizeof(xid), "%" PRIu64, moved->xid);
    cJSON_AddStringToObject(item, "xid", xid);
    cJSON_AddNumberToObject(item, "at_ms", (double)moved->at_ms);
}

char *mr_state_format(const struct mr_checkpoint *state)
{
    MR_OBJECT cJSON *json = cJSON_CreateObject();
    char lsn[32];
    char position[64];
    char last[96];
    cJSON_AddNumberToObject(json, "version", version_of(state));
    cJSON_AddStringToObject(json, "system_id", state->identity.system_id);
    cJSON_AddNumberToObject(json, "timeline", state->identity.timeline);
    if (state->identity.is_standby) {
        cJSON_AddTrueToObject(json, "standby");
    }
    cJSON_AddStringToObject(json, "slot", state->identity.slot);
    cJSON_AddStringToObject(json, "publication", state->identity.publication);
    snprintf(lsn, sizeof(lsn), "%016" PRIx64, state->identity.tables);
    cJSON_AddStringToObject(json, "tables", lsn);
    mr_lsn_add(json, "end_lsn", state->end_lsn);
    if (state->position.commit_lsn != 0) {
        snprintf(position, sizeof(position), MR_LSN_FORMAT ":%" PRIu64,
                 MR_LSN_ARGS(state->position.commit_lsn), state->position.ordinal);
        cJSON_AddStringToObject(json, "position", position);
    }
    if (state->last.lsn != 0) {
        snprintf(last, sizeof(last), MR_LSN_FORMAT ":%" PRIu32 ":%" PRId64 ":%016" PRIx64,
                 MR_LSN_ARGS(state->last.lsn), state->last.xid, state->last.time_us,
                 state->last.asked);
        cJSON_AddStringToObject(json, "last", last);
    }
    add_moved(json, &state->identity.moved);
    for (uint32_t i = 0; i < state->section_count; i++) {
        cJSON_AddRawToObject(json, state->sections[i].name, state->sections[i].json);
    }
    return mr_object_text(json);
}

static bool kafka_state_take_text(const cJSON *json, const char *name, char *out, size_t size)
{
    const char *text = mr_object_string(json, name);
    return text != NULL && snprintf(out, size, "%s", text) < (int)size;
}

static bool take_position(const char *text, struct mr_position *ret_position)
{
    const char *rest;
    int used = 0;
    return mr_lsn_parse(text, &ret_position->commit_lsn, &rest) &&
           sscanf(rest, ":%" SCNu64 "%n", &ret_position->ordinal, &used) == 1 && rest[used] == '\0';
}

/* One that does not end at or before `end` is not of this record: somebody has changed that. */
static bool take_last(const char *text, mr_lsn end, struct mr_commit *ret_last)
{
    struct mr_commit last = {0};
    const char *rest;
    int used = 0;
    bool good = mr_lsn_parse(text, &last.lsn, &rest) && last.lsn != 0 &&
                sscanf(rest, ":%" SCNu32 ":%" SCNd64 ":%" SCNx64 "%n", &last.xid, &last.time_us,
                       &last.asked, &used) == 3 &&
                rest[used] == '\0';
    if (good && last.lsn < end) {
        *ret_last = last;
    }
    return good;
}

/* Older versions do not say it. */
static uint64_t kafka_state_take_tables(const cJSON *json)
{
    const char *text = mr_object_string(json, "tables");
    return text == NULL ? 0 : strtoull(text, NULL, 16);
}

static bool take_lsn(const cJSON *json, const char *name, mr_lsn *ret_lsn)
{
    return mr_lsn_parse(mr_object_string(json, name), ret_lsn, NULL);
}

/* False: it is there and can't be read. */
static bool take_moved(const cJSON *json, struct mr_cluster_move *ret_moved)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "moved");
    struct mr_cluster_move moved = {0};
    uint64_t at_ms;
    if (item == NULL) {
        return true;
    }
    const char *xid = mr_object_string(item, "xid");
    (void)mr_object_whole(item, "xid", MR_OBJECT_WHOLE_MAX, &moved.xid);
    moved.xid = xid == NULL ? moved.xid : strtoull(xid, NULL, 10);
    (void)mr_object_whole(item, "at_ms", MR_OBJECT_WHOLE_MAX, &at_ms);
    moved.at_ms = (int64_t)at_ms;
    bool good = kafka_state_take_text(item, "from", moved.from, sizeof(moved.from)) &&
                take_lsn(item, "left", &moved.left) && take_lsn(item, "entered", &moved.entered) &&
                take_lsn(item, "shift", &moved.shift);
    if (good) {
        *ret_moved = moved;
    }
    return good;
}

/* A number that is none of them must not be converted to one: C leaves open what comes of it. */
static bool is_timeline(const cJSON *json)
{
    return cJSON_IsNumber(json) && json->valuedouble >= 0 && json->valuedouble <= UINT32_MAX;
}

/* False: it can't be read, or is not there in a record whose version says that it is. */
static bool take_section(const cJSON *json, int version, const struct mr_section_kind *kind,
                         struct mr_checkpoint *state)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, kind->name);
    if (item == NULL) {
        return kind->version == 0 || version != (int)kind->version;
    }
    char *text = cJSON_PrintUnformatted(item);
    struct mr_section_rank rank;
    MR_ASSERT(text != NULL);
    if (!kind->rank(text, &rank)) {
        free(text);
        return false;
    }
    mr_checkpoint_add(state, kind->name, text, &rank);
    return true;
}

static bool take_sections(const cJSON *json, int version, const struct mr_section_kind *kinds,
                          struct mr_checkpoint *state)
{
    bool good = true;
    for (; good && kinds != NULL && kinds->name != NULL; kinds++) {
        good = take_section(json, version, kinds, state);
    }
    return good;
}

static bool kafka_state_take_state(const cJSON *json, const struct mr_section_kind *kinds,
                                   struct mr_checkpoint *state)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(json, "version");
    const cJSON *timeline = cJSON_GetObjectItemCaseSensitive(json, "timeline");
    const char *end = mr_object_string(json, "end_lsn");
    const cJSON *position = cJSON_GetObjectItemCaseSensitive(json, "position");
    const cJSON *last = cJSON_GetObjectItemCaseSensitive(json, "last");
    if (!cJSON_IsNumber(version) || version->valueint < STATE_VERSION ||
        version->valueint > STATE_VERSION_MAX || !is_timeline(timeline) ||
        !mr_lsn_parse(end, &state->end_lsn, NULL)) {
        return false;
    }
    state->identity.timeline = (uint32_t)timeline->valuedouble;
    state->identity.is_standby = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "standby"));
    state->identity.tables = kafka_state_take_tables(json);
    struct mr_identity *identity = &state->identity;
    return kafka_state_take_text(json, "system_id", identity->system_id,
                                 sizeof(identity->system_id)) &&
           take_moved(json, &identity->moved) &&
           kafka_state_take_text(json, "slot", identity->slot, sizeof(identity->slot)) &&
           kafka_state_take_text(json, "publication", identity->publication,
                                 sizeof(identity->publication)) &&
           (position == NULL || take_position(cJSON_GetStringValue(position), &state->position)) &&
           (last == NULL || take_last(cJSON_GetStringValue(last), state->end_lsn, &state->last)) &&
           take_sections(json, version->valueint, kinds, state);
}

bool mr_state_parse(const void *text, size_t len, const struct mr_section_kind *kinds,
                    struct mr_checkpoint *ret_state)
{
    MR_OBJECT cJSON *json = cJSON_ParseWithLength(text, len);
    struct mr_checkpoint state = {0};
    bool good = json != NULL && kafka_state_take_state(json, kinds, &state);
    if (good) {
        *ret_state = state;
    } else {
        mr_checkpoint_done(&state);
    }
    return good;
}

struct loader {
    const struct mr_kafka_options *options;
    rd_kafka_t *producer;
    rd_kafka_t *consumer;
    mr_kafka_serve_fn serve;
    void *context;
    bool found;
    int64_t waiting_ns; /* monotonic; since when an open transaction is waited for, 0: none is */
    int64_t looked_at;  /* where the one begins of which it was found out whose it is */
    bool unreadable;    /* the newest record is of a form that is not known */
    struct mr_kafka_hanging hanging;
    struct mr_checkpoint state;
};

static mr_status consumer_new(const struct loader *loader, const char *isolation,
                              rd_kafka_t **ret_consumer, struct mr_error *ret_error)
{
    const struct mr_kafka_property properties[] = {
        {"isolation.level", isolation},         {"fetch.wait.max.ms", "10"},
        {"queued.max.messages.kbytes", "1024"}, {"fetch.message.max.bytes", "65536"},
        {"message.max.bytes", "1000000"}, /* what is fetched may be as large */
    };
    return mr_kafka_consumer_new(loader->options, properties, MR_ARRAY_LEN(properties), 0,
                                 ret_consumer, ret_error);
}

static void kafka_state_assign(const struct loader *loader, rd_kafka_t *consumer, int64_t offset)
{
    rd_kafka_topic_partition_list_t *part = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(part, loader->options->state_topic, 0)->offset = offset;
    rd_kafka_resp_err_t err = rd_kafka_assign(consumer, part);
    rd_kafka_topic_partition_list_destroy(part);
    MR_ASSERT(err == RD_KAFKA_RESP_ERR_NO_ERROR);
}

static mr_status kafka_state_refused(const struct loader *loader, const char *reason,
                                     struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_AUTH,
                   "Kafka topic \"%s\", which keeps the position: %s; grant the user Describe, "
                   "Read, Write and Create on it",
                   loader->options->state_topic, reason);
}

/* MR_OK: it may be there now. A broker that is only slow to answer is asked again; whatever else it
 * says ends the session, so that it is logged, and logged again with a growing pause while it
 * stays. */
static mr_status create_topic(struct loader *loader, struct mr_error *ret_error)
{
    const char *name = loader->options->state_topic;
    char reason[256];
    rd_kafka_NewTopic_t *topic =
        rd_kafka_NewTopic_new(name, 1, loader->options->replication, reason, sizeof(reason));
    /* Small segments: compaction never touches the one that is being written. */
    rd_kafka_NewTopic_set_config(topic, "cleanup.policy", "compact");
    rd_kafka_NewTopic_set_config(topic, "segment.bytes", "16777216");
    /* Else Kafka 4 refuses what a machine writes whose clock is an hour ahead. */
    rd_kafka_NewTopic_set_config(topic, "message.timestamp.type", "LogAppendTime");
    /* The broker then expands what comes, and refuses a record that is small only as long as it is
     * compressed. librdkafka would take memory for all of it (rd_gz_decompress). */
    rd_kafka_NewTopic_set_config(topic, "compression.type", "uncompressed");
    rd_kafka_queue_t *answer = mr_kafka_create_topics(loader->producer, &topic, 1);
    rd_kafka_event_t *event;
    mr_status status = MR_OK;
    while ((event = rd_kafka_queue_poll(answer, 0)) == NULL && status == MR_OK) {
        status = loader->serve(loader->context, ret_error);
    }
    if (event != NULL) {
        rd_kafka_resp_err_t err = mr_kafka_create_result(event, name, 1, reason, sizeof(reason));
        rd_kafka_event_destroy(event);
        if (mr_kafka_is_refusal(err)) {
            status = kafka_state_refused(loader, reason, ret_error);
        } else if (err != RD_KAFKA_RESP_ERR_NO_ERROR && err != RD_KAFKA_RESP_ERR__TIMED_OUT) {
            status = mr_fail(ret_error, MR_ERR_TRANSIENT,
                             "Kafka topic \"%s\", which keeps the position, can't be created: %s; "
                             "set sink.kafka.replication_factor, or create it (one partition, "
                             "cleanup.policy=compact)",
                             name, reason);
        }
    }
    rd_kafka_queue_destroy(answer);
    return status;
}

rd_kafka_resp_err_t mr_kafka_state_find(rd_kafka_t *client, const struct mr_kafka_options *options)
{
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options->state_topic, NULL);
    if (topic == NULL) {
        return rd_kafka_last_error();
    }
    const struct rd_kafka_metadata *found;
    rd_kafka_resp_err_t err = rd_kafka_metadata(client, 0, topic, &found, ANSWER_TIMEOUT_MS);
    rd_kafka_topic_destroy(topic);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        err =
            found->topic_cnt == 1 ? found->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        rd_kafka_metadata_destroy(found);
    }
    return err;
}

/* One end of the topic; an error is what is in the way now. (rd_kafka_query_watermark_offsets would
 * wait for a silent broker beyond its limit.) */
static rd_kafka_resp_err_t ask_end(const struct loader *loader, rd_kafka_t *client, int64_t which,
                                   int64_t *ret_offset)
{
    rd_kafka_topic_partition_list_t *part = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(part, loader->options->state_topic, 0)->offset = which;
    rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(client, part, ANSWER_TIMEOUT_MS);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        err = part->elems[0].err;
        *ret_offset = part->elems[0].offset;
    }
    /* No place in a topic; librdkafka would refuse to read there. */
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR && *ret_offset < 0) {
        err = RD_KAFKA_RESP_ERR__BAD_MSG;
    }
    rd_kafka_topic_partition_list_destroy(part);
    return err;
}

struct ends {
    int64_t low;
    int64_t high;
    int64_t committed; /* where the oldest open transaction begins, or `high` */
};

/* The producer learns the real end: our newest record may lie after the oldest open transaction,
 * which is another pipeline's. From behind that one on, a reader of committed records gets nothing,
 * not even the word that there is nothing. */
static rd_kafka_resp_err_t kafka_state_ask_ends(const struct loader *loader, struct ends *ret_ends)
{
    const struct {
        rd_kafka_t *client;
        int64_t which;
        int64_t *offset;
    } asked[] = {
        {loader->producer, RD_KAFKA_OFFSET_BEGINNING, &ret_ends->low},
        {loader->producer, RD_KAFKA_OFFSET_END, &ret_ends->high},
        {loader->consumer, RD_KAFKA_OFFSET_END, &ret_ends->committed},
    };
    rd_kafka_resp_err_t err = mr_kafka_state_find(loader->producer, loader->options);
    for (size_t i = 0; i < MR_ARRAY_LEN(asked) && err == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        err = ask_end(loader, asked[i].client, asked[i].which, asked[i].offset);
    }
    return err;
}

static mr_status find_ends(struct loader *loader, struct ends *ret_ends, struct mr_error *ret_error)
{
    int64_t begin_ns = mr_monotonic_ns();
    for (;;) {
        rd_kafka_resp_err_t err = kafka_state_ask_ends(loader, ret_ends);
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            return MR_OK;
        }
        if (mr_kafka_is_refusal(err)) {
            return kafka_state_refused(loader, rd_kafka_err2str(err), ret_error);
        }
        if (err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION || mr_kafka_is_missing(err)) {
            MR_TRY(create_topic(loader, ret_error));
        }
        MR_TRY(loader->serve(loader->context, ret_error));
        if (mr_monotonic_ns() - begin_ns > ENDS_NS) {
            return mr_fail(ret_error, MR_ERR_TRANSIENT,
                           "Kafka topic \"%s\", which keeps the position: no broker says where it "
                           "ends (%s); trying again",
                           loader->options->state_topic, rd_kafka_err2str(err));
        }
    }
}

static bool is_of_pipeline(const struct loader *loader, const rd_kafka_message_t *message)
{
    size_t len = strlen(loader->options->state_name);
    return message->key_len == len && memcmp(message->key, loader->options->state_name, len) == 0;
}

static void kafka_state_take_record(struct loader *loader, const rd_kafka_message_t *message)
{
    if (!is_of_pipeline(loader, message) || message->payload == NULL) {
        return;
    }
    struct mr_checkpoint state;
    loader->unreadable =
        !mr_state_parse(message->payload, message->len, loader->options->sections, &state);
    if (loader->unreadable) {
        loader->found = true;
        return;
    }
    if (!loader->found || !mr_checkpoint_is_behind(&state, &loader->state)) {
        mr_checkpoint_done(&loader->state);
        loader->state = state;
    } else {
        mr_checkpoint_done(&state);
    }
    loader->found = true;
}

static void take_hanging(struct loader *loader, const rd_kafka_message_t *message)
{
    struct mr_checkpoint state = {0};
    loader->hanging.found = true;
    if (mr_state_parse(message->payload, message->len, loader->options->sections, &state)) {
        loader->hanging.up_to = state.position;
        mr_checkpoint_done(&state);
    }
}

/* Whether the transaction that is open from `offset` on is this pipeline's own. Then it hangs: the
 * producer that began it was fenced, which ended all it had open. */
static mr_status look_whose(struct loader *loader, int64_t offset, struct mr_error *ret_error)
{
    rd_kafka_t *reader;
    MR_TRY(consumer_new(loader, "read_uncommitted", &reader, ret_error));
    kafka_state_assign(loader, reader, offset);
    mr_status status = MR_OK;
    for (bool known = false; !known && status == MR_OK;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, POLL_MS);
        if (message == NULL) {
            status = loader->serve(loader->context, ret_error);
            continue;
        }
        known = message->err == RD_KAFKA_RESP_ERR_NO_ERROR ||
                message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR && is_of_pipeline(loader, message)) {
            take_hanging(loader, message);
        }
        rd_kafka_message_destroy(message);
    }
    mr_kafka_client_end(reader, MR_KAFKA_END_MS);
    loader->looked_at = offset;
    return status;
}

static mr_status hanging(const struct loader *loader, struct mr_error *ret_error)
{
    return mr_fail(
        ret_error, MR_ERR_TRANSIENT,
        "Kafka topic \"%s\", which keeps the position, can't be read to its end: a "
        "transaction in it has been open for longer than one of millrace's may last; trying again, "
        "and if it stays, \"kafka-transactions.sh find-hanging\" shows it and \"abort\" ends it",
        loader->options->state_topic);
}

/* Logged once, and given up after the time that a transaction may last: then it hangs, or our
 * reader does. */
static mr_status wait_for_open_transaction(struct loader *loader, struct mr_error *ret_error)
{
    int64_t now_ns = mr_monotonic_ns();
    if (loader->waiting_ns == 0) {
        loader->waiting_ns = now_ns;
        mr_log(MR_LOG_INFO, "state_wait",
               "another pipeline's transaction is open; waiting for its end (a minute at most) to "
               "read the position after it",
               MR_LOG_STR("topic", loader->options->state_topic));
    }
    if (now_ns - loader->waiting_ns < OPEN_TRANSACTION_NS) {
        return MR_OK;
    }
    return hanging(loader, ret_error);
}

/* The end of what is committed is at `offset`. */
static mr_status kafka_state_open_transaction(struct loader *loader, int64_t offset,
                                              struct mr_error *ret_error)
{
    if (loader->options->exactly_once && loader->looked_at != offset) {
        MR_TRY(look_whose(loader, offset, ret_error));
    }
    return loader->hanging.found ? MR_OK : wait_for_open_transaction(loader, ret_error);
}

static mr_status unreadable(const struct loader *loader, const rd_kafka_message_t *message,
                            struct mr_error *ret_error)
{
    const char *text = rd_kafka_message_errstr(message);
    char remedy[MR_KAFKA_REMEDY_MAX];
    bool is_refusal =
        mr_kafka_error_classify(message->err, text, loader->options, remedy) == MR_ERR_AUTH;
    return mr_fail(ret_error, is_refusal ? MR_ERR_AUTH : MR_ERR_TRANSIENT,
                   "Kafka topic \"%s\", which keeps the position, can't be read: %s",
                   loader->options->state_topic, text);
}

/* Reads from `from` until the end that was there before, `high`, is passed. Records of a
 * transaction of another pipeline that is still open hold the end back: it is waited for. One that
 * hangs is the end. */
static mr_status read_from(struct loader *loader, int64_t from, int64_t high,
                           struct mr_error *ret_error)
{
    kafka_state_assign(loader, loader->consumer, from);
    mr_status status = MR_OK;
    for (bool at_end = false; !at_end && status == MR_OK;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(loader->consumer, POLL_MS);
        if (message == NULL) {
            status = loader->serve(loader->context, ret_error);
            if (status == MR_OK && loader->waiting_ns != 0) {
                status = wait_for_open_transaction(loader, ret_error);
            }
            continue;
        }
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            at_end = message->offset >= high;
            if (!at_end) {
                status = kafka_state_open_transaction(loader, message->offset, ret_error);
                at_end = loader->hanging.found;
            }
        } else if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            kafka_state_take_record(loader, message);
            at_end = message->offset + 1 >= high;
        } else if (!mr_kafka_is_passing(message)) {
            status = unreadable(loader, message, ret_error);
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_assign(loader->consumer, NULL);
    return status;
}

/* The newest record is near the end: most often it is the last. */
static mr_status read_newest(struct loader *loader, struct mr_error *ret_error)
{
    struct ends ends;
    MR_TRY(find_ends(loader, &ends, ret_error));
    int64_t tail = TAIL_FIRST;
    for (int64_t from = ends.high; !loader->found && from > ends.low; tail *= TAIL_FACTOR) {
        from = ends.committed - tail > ends.low ? ends.committed - tail : ends.low;
        MR_TRY(read_from(loader, from, ends.high, ret_error));
    }
    return MR_OK;
}

mr_status mr_kafka_state_load(rd_kafka_t *producer, const struct mr_kafka_options *options,
                              mr_kafka_serve_fn serve, void *context,
                              struct mr_kafka_stored *ret_stored,
                              struct mr_kafka_hanging *ret_hanging, struct mr_error *ret_error)
{
    struct loader loader = {.options = options,
                            .producer = producer,
                            .serve = serve,
                            .context = context,
                            .looked_at = -1};
    *ret_hanging = (struct mr_kafka_hanging){0};
    MR_TRY(consumer_new(&loader, "read_committed", &loader.consumer, ret_error));
    mr_status status = read_newest(&loader, ret_error);
    mr_kafka_client_end(loader.consumer, MR_KAFKA_END_MS);
    *ret_hanging = loader.hanging;
    if (status == MR_OK && loader.unreadable) {
        status = mr_fail(
            ret_error, MR_ERR_HISTORY,
            "the state of \"%s\" in Kafka topic \"%s\" is of a form that this version does not "
            "know; use the version that wrote it, or another sink.kafka.state_name",
            options->state_name, options->state_topic);
    }
    if (status != MR_OK) {
        mr_checkpoint_done(&loader.state);
        return status;
    }
    *ret_stored = (struct mr_kafka_stored){.found = loader.found, .state = loader.state};
    return MR_OK;
}
