#include "resolved/resolved.h"

#include "base/thread.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/hash.h"
#include "flow/port.h"

enum {
    SLICE = 256, /* markers between two transactions, */
    /* and how many of them to topics that the sink has to look up first, one after the other */
    NEW_TOPICS = 16,
    MARKER_BYTES = 256,
};
/* A place for the rest of a round, or the end of a transaction, is looked for so often. */
#define LOOK_AGAIN_NS (INT64_C(5) * 1000000)
/* The sink looks up new topics while rows wait, so they come with pauses. */
#define NEW_TOPICS_NS (INT64_C(100) * 1000000)

struct name {
    char *schema, *table;
};

/* One LSN, to every partition. */
struct round {
    bool runs;
    mr_lsn lsn;
    uint32_t topic;    /* that comes next, */
    int32_t partition; /* and its partition */
    uint32_t fresh;    /* of this slice, to topics that are new */
};

struct mr_resolved {
    struct mr_companion base;
    struct mr_topics *topics;
    int64_t interval_ns;

    /* ---- source thread ---- */
    struct round round;
    int64_t due_ns; /* when there is something to do */
    struct {
        mr_lsn lsn; /* of the last round; 0: none in this session */
        uint64_t partitions;
    } last;
    bool *expected; /* by mr_topic.index: rows of a table that is streamed go there */
    uint32_t expected_room;

    /* ---- any thread, with the lock ---- */
    pthread_mutex_t lock;
    struct name *names; /* of tables, whose topics are not expected yet */
    uint32_t name_count;
    uint64_t names_hash; /* of those that were taken last */
};

static struct mr_resolved *resolved_of(struct mr_companion *companion)
{
    return (struct mr_resolved *)companion;
}

static void free_names(struct name *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(names[i].schema);
        free(names[i].table);
    }
    free(names);
}

void mr_resolved_take_tables(void *context, const struct mr_streamed_table *tables, uint32_t count)
{
    struct mr_resolved *resolved = context;
    uint64_t hash = MR_HASH_BEGIN;
    for (uint32_t i = 0; i < count; i++) {
        hash = mr_hash_add(hash, tables[i].schema, strlen(tables[i].schema) + 1);
        hash = mr_hash_add(hash, tables[i].table, strlen(tables[i].table) + 1);
    }
    MR_HOLD(&resolved->lock);
    if (hash != resolved->names_hash) {
        free_names(resolved->names, resolved->name_count);
        resolved->names = MR_NEW_ARRAY(struct name, count + 1);
        resolved->name_count = count;
        resolved->names_hash = hash;
        for (uint32_t i = 0; i < count; i++) {
            resolved->names[i] = (struct name){.schema = MR_STRDUP(tables[i].schema),
                                               .table = MR_STRDUP(tables[i].table)};
        }
    }
}

static void resolved_expect(struct mr_resolved *resolved, const char *topic)
{
    if (mr_topic_fault(topic) != NULL) {
        return; /* its first row is an error */
    }
    uint32_t index = mr_topics_intern(resolved->topics, topic)->index;
    uint32_t room = resolved->expected_room;
    if (index >= room) {
        MR_GROW(resolved->expected, resolved->expected_room, index + 1);
        memset(resolved->expected + room, 0,
               (resolved->expected_room - room) * sizeof(*resolved->expected));
    }
    resolved->expected[index] = true;
}

/* Those of the tables that were taken, if any were since the last time. */
static void expect_topics(struct mr_resolved *resolved)
{
    const struct mr_encode_options *options =
        mr_encoder_options(resolved->base.port->stream->encoder);
    pthread_mutex_lock(&resolved->lock);
    struct name *names = resolved->names;
    uint32_t name_count = resolved->name_count;
    resolved->names = NULL;
    resolved->name_count = 0;
    pthread_mutex_unlock(&resolved->lock);
    if (names == NULL) {
        return;
    }
    for (uint32_t i = 0; i < resolved->expected_room; i++) {
        resolved->expected[i] = false;
    }
    for (uint32_t i = 0; i < name_count; i++) {
        char *topics[MR_STREAMS_PER_TABLE_MAX];
        uint32_t count = mr_table_topics(options, names[i].schema, names[i].table, topics);
        while (count > 0) {
            count--;
            resolved_expect(resolved, topics[count]);
            free(topics[count]);
        }
    }
    free_names(names, name_count);
}

/* To how many of a topic's partitions markers go. One that the sink has not sent to yet has one, at
 * least. */
static int32_t markers_of(const struct mr_resolved *resolved, const struct mr_topic *topic)
{
    int32_t partitions = atomic_load(&topic->partitions);
    bool is_expected = topic->index < resolved->expected_room && resolved->expected[topic->index];
    return partitions == 0 && is_expected ? 1 : partitions;
}

static uint64_t count_markers(const struct mr_resolved *resolved)
{
    const struct mr_topic *topic;
    uint64_t count = 0;
    for (uint32_t i = 0; (topic = mr_topics_at(resolved->topics, i)) != NULL; i++) {
        count += (uint64_t)markers_of(resolved, topic);
    }
    return count;
}

static mr_status send_marker(struct mr_resolved *resolved, const struct mr_topic *topic,
                             struct mr_error *ret_error)
{
    uint8_t bytes[MARKER_BYTES];
    char lsn[17], partitions[12];
    int32_t known =
        atomic_load(&topic->partitions); /* after the LSN was read: of all that is below */
    resolved->round.fresh += known == 0;
    snprintf(lsn, sizeof(lsn), "%016" PRIX64, resolved->round.lsn);
    snprintf(partitions, sizeof(partitions), "%" PRId32, known);
    struct mr_record record = {
        .topic = topic, .commit_time_us = mr_wall_ns() / 1000, .has_headers = true};
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    mr_record_set_key(&record, MR_SLICE("{\"mr-resolved\":true}"));
    mr_buffer_format(&out, "{\"resolved\":\"%s\",\"partitions\":%s}", lsn, partitions);
    mr_record_set_value(&record, (mr_slice){.data = bytes, .len = (size_t)(out.at - bytes)});
    uint8_t *block = mr_headers_begin(&out, NULL);
    mr_header_append(&out, MR_HEADER_RESOLVED, mr_slice_of(lsn));
    mr_header_append(&out, MR_HEADER_PARTITIONS, mr_slice_of(partitions));
    mr_headers_end(&out, block);
    MR_ASSERT(!out.full);
    mr_headers_set_place(block, (struct mr_record_place){
                                    .partition = MR_PARTITION_IF_THERE(resolved->round.partition)});
    return mr_port_append_record(resolved->base.port, &record, ret_error);
}

/* False: there is nothing new to say. */
static bool begin_round(struct mr_resolved *resolved)
{
    mr_lsn lsn = mr_port_published(resolved->base.port);
    expect_topics(resolved);
    uint64_t partitions = count_markers(resolved);
    if (lsn == 0 || (lsn == resolved->last.lsn && partitions == resolved->last.partitions)) {
        return false;
    }
    MR_ASSERT(lsn >= resolved->last.lsn);
    resolved->last.lsn = lsn;
    resolved->last.partitions = partitions;
    resolved->round = (struct round){.runs = true, .lsn = lsn};
    return true;
}

/* The next marker of the round. MR_END: there is none. */
static mr_status step_round(struct mr_resolved *resolved, struct mr_error *ret_error)
{
    struct round *round = &resolved->round;
    const struct mr_topic *topic;
    while ((topic = mr_topics_at(resolved->topics, round->topic)) != NULL) {
        if (round->partition < markers_of(resolved, topic)) {
            MR_TRY(send_marker(resolved, topic, ret_error));
            round->partition++;
            return MR_OK;
        }
        round->topic++;
        round->partition = 0;
    }
    return MR_END;
}

static mr_status resolved_between(struct mr_companion *companion)
{
    struct mr_resolved *resolved = resolved_of(companion);
    int64_t now_ns = mr_monotonic_ns();
    if (now_ns < resolved->due_ns) {
        return MR_OK;
    }
    if (!resolved->round.runs && !begin_round(resolved)) {
        resolved->due_ns = now_ns + resolved->interval_ns;
        return MR_OK;
    }
    struct mr_error error;
    mr_status status = MR_OK;
    resolved->round.fresh = 0;
    for (uint32_t i = 0; i < SLICE && resolved->round.fresh < NEW_TOPICS && status == MR_OK; i++) {
        status = step_round(resolved, &error);
    }
    if (status == MR_FULL) {
        return MR_FULL;
    }
    MR_ASSERT(status == MR_OK || status == MR_AGAIN || status == MR_END);
    resolved->round.runs = status != MR_END;
    resolved->due_ns = status == MR_END            ? now_ns + resolved->interval_ns
                       : status == MR_AGAIN        ? now_ns + LOOK_AGAIN_NS
                       : resolved->round.fresh > 0 ? now_ns + NEW_TOPICS_NS
                                                   : now_ns;
    return MR_OK;
}

/* While a transaction comes in, what is due waits for its end. */
static int64_t resolved_due_in(const struct mr_companion *companion, int64_t now_ns)
{
    int64_t left_ns = ((const struct mr_resolved *)companion)->due_ns - now_ns;
    return left_ns > LOOK_AGAIN_NS ? left_ns : LOOK_AGAIN_NS;
}

/* Markers in flight are lost, and topics unknown. */
static void resolved_lost(struct mr_companion *companion, enum mr_loss loss)
{
    struct mr_resolved *resolved = resolved_of(companion);
    if (loss == MR_LOST_SESSION) {
        resolved->round.runs = false;
        resolved->last.lsn = 0;
    }
}

/* It watches to be asked between any two transactions, however fast they come. */
static void resolved_attach(struct mr_companion *companion)
{
    mr_port_watch(companion, true);
    mr_port_want(companion);
}

struct mr_resolved *mr_resolved_new(struct mr_topics *topics, uint32_t interval_ms)
{
    static const struct mr_companion_ops ops = {.name = "resolved",
                                                .attach = resolved_attach,
                                                .between = resolved_between,
                                                .due_in = resolved_due_in,
                                                .lost = resolved_lost};
    struct mr_resolved *resolved = MR_NEW(struct mr_resolved);
    resolved->base.ops = &ops;
    resolved->topics = topics;
    resolved->interval_ns = (int64_t)interval_ms * 1000000;
    pthread_mutex_init(&resolved->lock, NULL);
    return resolved;
}

void mr_resolved_free(struct mr_resolved *resolved)
{
    if (resolved == NULL) {
        return;
    }
    free_names(resolved->names, resolved->name_count);
    free(resolved->expected);
    pthread_mutex_destroy(&resolved->lock);
    free(resolved);
}

struct mr_companion *mr_resolved_companion(struct mr_resolved *resolved)
{
    return &resolved->base;
}
