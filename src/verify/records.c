#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "verify/event.h"
#include "verify/proof_internal.h"

#define LOOK_NS (INT64_C(100) * 1000000)

/* A record that is no event of the table: the first one is named, and all are counted. */
static void refuse_record(struct mr_work *work, const struct mr_kafka_read *read, const char *what)
{
    struct mr_strange *strange = &work->strange;
    if (strange->unreadable++ == 0) {
        snprintf(strange->first_unreadable, sizeof(strange->first_unreadable),
                 "topic \"%s\", partition %d, offset %lld: %s", work->table.topic, read->partition,
                 (long long)read->offset, what);
    }
}

/* Folds what is left of the event after the key and the rows are read. */
static mr_status records_fold(struct mr_work *work, struct mr_fold_event *event, bool is_gone,
                              const struct mr_verify_row *row, struct mr_error *ret_error)
{
    event->is_gone = is_gone;
    event->row = row;
    return mr_work_is_sampled(work, event->key, row)
               ? mr_fold_add_event(work->fold, event, ret_error)
               : MR_OK;
}

static mr_status fold_event(struct mr_work *work, const struct mr_event *event,
                            struct mr_fold_event *folded, struct mr_error *ret_error)
{
    if (work->table.key_count > 0) {
        bool is_gone = event->kind == MR_EVENT_GONE || event->kind == MR_EVENT_TOMBSTONE;
        return records_fold(work, folded, is_gone, is_gone ? NULL : &work->topic.row, ret_error);
    }
    if (event->before.data != NULL) {
        MR_TRY(records_fold(work, folded, true, &work->topic.before, ret_error));
    }
    return event->after.data == NULL
               ? MR_OK
               : records_fold(work, folded, false, &work->topic.row, ret_error);
}

/* Reads key and rows of an event; false: they are none, and that is said. */
static bool read_event(struct mr_work *work, const struct mr_kafka_read *read,
                       const struct mr_event *event, struct mr_digest *ret_key)
{
    const struct mr_verify_table *table = &work->table;
    enum mr_verify_key_kind kind = mr_verify_event_key(table, read->key, ret_key);
    if (event->kind != MR_EVENT_TRUNCATE && kind == MR_VERIFY_KEY_NONE) {
        refuse_record(work, read, "its key is none");
        return false;
    }
    if (event->kind != MR_EVENT_TRUNCATE && kind == MR_VERIFY_KEY_OTHER) {
        work->strange.other_keys++;
        if (mr_place_compare(event->place, work->strange.other_last) > 0) {
            work->strange.other_last = event->place;
        }
        return false;
    }
    mr_fold_expect_event(work->fold, *ret_key);
    work->topic.row.later = read->later;
    work->topic.row.xid = work->topic.before.xid = event->xid;
    bool good =
        (event->after.data == NULL || mr_verify_event_row(table, event->after, &work->topic.row)) &&
        (event->before.data == NULL || table->key_count > 0 ||
         mr_verify_event_row(table, event->before, &work->topic.before));
    if (!good) {
        refuse_record(work, read, "its row can't be read");
    } else if (read->oversize.data != NULL) {
        work->strange.lossy += table->key_count == 0;
        for (uint32_t i = 0; event->after.data != NULL && i < work->topic.row.large_count; i++) {
            work->topic.row.large[i].is_lost = true;
        }
    }
    return good;
}

/* A row alone does not say that it was copied, nor a delete that a repair sent it. The place
 * does. */
static bool is_copy(const struct mr_event *event)
{
    bool is_of_row = event->kind != MR_EVENT_PASSED && event->kind != MR_EVENT_TRUNCATE;
    return event->kind == MR_EVENT_COPIED || (is_of_row && mr_place_is_copied(event->place));
}

static mr_status records_take_record(struct mr_work *work, struct mr_kafka_read *read,
                                     struct mr_error *ret_error)
{
    struct mr_event event;
    if (mr_event_is_marker(read)) {
        return MR_OK;
    }
    if (read->position.data == NULL && !mr_order_has_begun(work->order, read->partition)) {
        work->strange.foreign++;
        return MR_OK;
    }
    const char *what;
    mr_status status = mr_avro_read(work->tools->avro, read, &what, ret_error);
    if (status != MR_OK) { /* the other tables may have a verdict nevertheless */
        work->topic.cause = "registry";
        return MR_OK;
    }
    const struct mr_encode_options *encode = &work->tools->config->encode;
    if (encode->json_schemas != MR_JSON_BARE) {
        read->key = mr_event_payload(read->key);
        read->value = mr_event_payload(read->value);
    }
    what = what == NULL ? mr_event_read(encode->format, read, &event) : what;
    if (what != NULL) {
        refuse_record(work, read, what);
        return MR_OK;
    }
    /* The first one that retention has left may be the tombstone of a delete that it has taken. */
    bool is_cut = event.kind == MR_EVENT_TOMBSTONE && work->extent.cut > 0 &&
                  !mr_order_has_begun(work->order, read->partition);
    struct mr_fold_event folded = {.record = {.place = event.place,
                                              .offset = read->offset,
                                              .partition = read->partition,
                                              .xid = event.xid},
                                   .is_tombstone = event.kind == MR_EVENT_TOMBSTONE && !is_cut,
                                   .is_whole = event.is_whole || is_cut,
                                   .is_copied = is_copy(&event)};
    if (event.kind != MR_EVENT_PASSED && !read_event(work, read, &event, &folded.key)) {
        return MR_OK;
    }
    struct mr_digest digest = mr_digest_add(folded.key, (struct mr_digest){.low = event.kind});
    if (event.after.data != NULL) {
        digest = mr_digest_add(digest, work->topic.row.sum);
    }
    /* Of a delete, what it says of the row. */
    if (event.after.data == NULL && event.before.data != NULL) {
        digest = mr_digest_add(digest, mr_digest_of(work->tools->key, event.before));
    }
    /* What is read again may be another value the next time, or none. */
    bool has_reselected = work->tools->config->source.reselect.column_count > 0;
    for (uint32_t i = 0; has_reselected && i < work->topic.row.large_count; i++) {
        const struct mr_verify_large *large = &work->topic.row.large[i];
        bool is_in_sum = event.after.data != NULL && !large->is_unknown;
        digest = is_in_sum ? mr_digest_subtract(digest, large->digest) : digest;
    }
    mr_order_take(work->order, &folded.record, digest);
    if (folded.is_copied && event.place.commit_lsn > work->topic.copied) {
        work->topic.copied = event.place.commit_lsn;
        work->topic.copied_partition = read->partition;
        work->topic.copied_offset = read->offset;
    }
    if (event.kind == MR_EVENT_PASSED) {
        return MR_OK;
    }
    if (event.kind == MR_EVENT_TRUNCATE) {
        mr_fold_truncate(work->fold, &folded.record);
        return MR_OK;
    }
    return fold_event(work, &event, &folded, ret_error);
}

/* What main wants now; it learns how far the topic is read. */
static int records_look_up(struct mr_reading *topic, uint64_t records, uint64_t all)
{
    pthread_mutex_lock(&topic->lock);
    topic->records = records;
    topic->all = all;
    int wanted = topic->wanted;
    pthread_mutex_unlock(&topic->lock);
    return wanted;
}

/* MR_AGAIN: it is not wanted any more. */
static mr_status wait_for_last(struct mr_reading *topic)
{
    pthread_mutex_lock(&topic->lock);
    while (topic->wanted == MR_TOPIC_AHEAD) {
        pthread_cond_wait(&topic->turned, &topic->lock);
    }
    int wanted = topic->wanted;
    pthread_mutex_unlock(&topic->lock);
    return wanted == MR_TOPIC_LEFT ? MR_AGAIN : MR_OK;
}

/* To the end that the reader knows. MR_AGAIN: it is not wanted any more. */
static mr_status read_on(struct mr_work *work, uint64_t *records, struct mr_error *ret_error)
{
    struct mr_kafka_reader *reader = work->tools->reader;
    struct mr_patience patience = {0};
    struct mr_kafka_read read;
    mr_status status;
    while ((status = mr_kafka_reader_next(reader, &read, ret_error)) == MR_OK ||
           status == MR_AGAIN) {
        if (status == MR_AGAIN || *records % MR_PROGRESS_EVERY == 0) {
            if (records_look_up(&work->topic, *records, work->extent.records) == MR_TOPIC_LEFT) {
                return MR_AGAIN;
            }
        }
        if (status == MR_OK) {
            ++*records;
            MR_TRY(records_take_record(work, &read, ret_error));
            if (work->topic.cause != NULL) {
                return MR_OK;
            }
        } else if (mr_patience_ends(&patience, *records)) {
            status = mr_fail(ret_error, MR_ERR_TRANSIENT,
                             "the topic's end does not come: for a minute Kafka has not answered, "
                             "or another producer's transaction is open");
            break;
        }
    }
    if (status == MR_ERR_TRANSIENT) { /* the other tables may have a verdict nevertheless */
        work->topic.cause = "topic";
    }
    return status == MR_END || status == MR_ERR_TRANSIENT ? MR_OK : status;
}

static mr_status read_topic(struct mr_work *work, struct mr_error *ret_error)
{
    struct mr_reading *topic = &work->topic;
    struct mr_kafka_reader *reader = work->tools->reader;
    const char *name = work->table.topic;
    bool is_ahead = records_look_up(topic, 0, 0) == MR_TOPIC_AHEAD;
    uint64_t records = 0;
    mr_status status = mr_kafka_reader_open(reader, name, &work->extent, ret_error);
    if (status != MR_OK && is_ahead) { /* it may be one that is just being made */
        is_ahead = false;
        MR_TRY(wait_for_last(topic));
        status = mr_kafka_reader_open(reader, name, &work->extent, ret_error);
    }
    MR_TRY(status);
    uint32_t partitions = work->extent.partitions;
    work->order = mr_order_new(partitions);
    MR_TRY(read_on(work, &records, ret_error));
    if (is_ahead && topic->cause == NULL) {
        MR_TRY(wait_for_last(topic));
        MR_TRY(mr_kafka_reader_extend(reader, name, &work->extent, ret_error));
        if (work->extent.partitions != partitions) {
            topic->has_grown = true;
            return MR_OK;
        }
        MR_TRY(read_on(work, &records, ret_error));
    }
    records_look_up(topic, records, work->extent.records);
    return MR_OK;
}

static void *topic_main(void *context)
{
    struct mr_work *work = context;
    struct mr_reading *topic = &work->topic;
    topic->status = read_topic(work, &topic->error);
    pthread_mutex_lock(&topic->lock);
    topic->is_ended = true;
    pthread_cond_signal(&topic->turned);
    pthread_mutex_unlock(&topic->lock);
    return NULL;
}

mr_status mr_work_topic_begin(struct mr_work *work, struct mr_error *ret_error)
{
    struct mr_reading *topic = &work->topic;
    MR_ASSERT(!topic->is_begun && work->fold != NULL);
    topic->row.large = MR_NEW_ARRAY(struct mr_verify_large, work->table.column_count + 1);
    topic->before.large = MR_NEW_ARRAY(struct mr_verify_large, work->table.column_count + 1);
    pthread_mutex_init(&topic->lock, NULL);
    mr_cond_init(&topic->turned);
    mr_status status = mr_thread_create(&topic->thread, topic_main, work, ret_error);
    topic->is_begun = status == MR_OK;
    if (!topic->is_begun) {
        free(topic->row.large);
        free(topic->before.large);
    }
    return status;
}

static void want(struct mr_reading *topic, int wanted)
{
    pthread_mutex_lock(&topic->lock);
    topic->wanted = wanted;
    pthread_cond_signal(&topic->turned);
    pthread_mutex_unlock(&topic->lock);
}

static void records_join(struct mr_reading *topic)
{
    pthread_join(topic->thread, NULL);
    pthread_cond_destroy(&topic->turned);
    pthread_mutex_destroy(&topic->lock);
    free(topic->row.large);
    free(topic->before.large);
    topic->is_begun = false;
}

void mr_work_topic_leave(struct mr_work *work)
{
    if (work->topic.is_begun) {
        want(&work->topic, MR_TOPIC_LEFT);
        records_join(&work->topic);
    }
}

/* Until the thread ends. */
static mr_status records_wait_for_end(struct mr_work *work, struct mr_error *ret_error)
{
    struct mr_reading *topic = &work->topic;
    bool is_ended = false;
    mr_status status = MR_OK;
    while (!is_ended && status == MR_OK) {
        pthread_mutex_lock(&topic->lock);
        if (!topic->is_ended) {
            (void)mr_cond_wait_until(&topic->turned, &topic->lock, mr_monotonic_ns() + LOOK_NS);
        }
        is_ended = topic->is_ended;
        uint64_t records = topic->records;
        uint64_t all = topic->all;
        pthread_mutex_unlock(&topic->lock);
        mr_work_show(work, "records of the topic", records, all);
        status = is_ended ? MR_OK : mr_work_wait(work, 0, ret_error);
    }
    return status;
}

mr_status mr_work_topic_end(struct mr_work *work, bool *ret_is_whole, bool *ret_is_void,
                            struct mr_error *ret_error)
{
    struct mr_reading *topic = &work->topic;
    struct mr_proof *proof = work->proof;
    work->begun_ns = mr_monotonic_ns();
    if (!topic->is_begun) {
        topic->wanted = MR_TOPIC_LAST;
        MR_TRY(mr_work_topic_begin(work, ret_error));
    } else {
        want(topic, MR_TOPIC_LAST);
    }
    MR_TRY(records_wait_for_end(work, ret_error));
    records_join(topic);
    if (topic->status != MR_OK) {
        return topic->status == MR_AGAIN
                   ? mr_fail(ret_error, MR_AGAIN, "interrupted")
                   : mr_fail(ret_error, topic->status, "%s", topic->error.text);
    }
    proof->records = topic->records;
    *ret_is_void = topic->has_grown;
    *ret_is_whole = topic->cause == NULL && !topic->has_grown;
    if (work->strange.unreadable > 0) {
        mr_proof_conclude(proof, MR_VERIFY_DIFFERENT, "%s", work->strange.first_unreadable);
    }
    if (topic->cause != NULL) {
        MR_PROOF_VOID(proof, MR_VERIFY_NONE, topic->cause, "%s", topic->error.text);
    }
    return MR_OK;
}
