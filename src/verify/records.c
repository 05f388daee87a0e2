#include "base/clock.h"
#include "verify/event.h"
#include "verify/proof_internal.h"

/* A record that is no event of the table: the first one is named, and all are counted. */
static void refuse_record(struct mr_work *work, const struct mr_kafka_read *read, const char *what)
{
    if (work->strange.unreadable++ == 0) {
        mr_proof_conclude(work->proof, MR_VERIFY_DIFFERENT,
                          "topic \"%s\", partition %d, offset %lld: %s", work->table.topic,
                          read->partition, (long long)read->offset, what);
    }
}

/* Folds what is left of the event after the key and the rows are read. */
static mr_status fold(struct mr_work *work, struct mr_fold_event *event, bool is_gone,
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
        return fold(work, folded, is_gone, is_gone ? NULL : &work->row, ret_error);
    }
    if (event->before.data != NULL) {
        MR_TRY(fold(work, folded, true, &work->before, ret_error));
    }
    return event->after.data == NULL ? MR_OK : fold(work, folded, false, &work->row, ret_error);
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
    bool good =
        (event->after.data == NULL || mr_verify_event_row(table, event->after, &work->row)) &&
        (event->before.data == NULL || table->key_count > 0 ||
         mr_verify_event_row(table, event->before, &work->before));
    if (!good) {
        refuse_record(work, read, "its row can't be read");
    } else if (read->oversize.data != NULL) {
        work->strange.lossy += table->key_count == 0;
        for (uint32_t i = 0; event->after.data != NULL && i < work->row.large_count; i++) {
            work->row.large[i].is_lost = true;
        }
    }
    return good;
}

/* A row alone does not say that it was copied, nor a delete that a repair sent it. The place does: no commit is there, because
 * those are at multiples of eight. */
static bool is_copy(const struct mr_event *event)
{
    bool is_of_row = event->kind != MR_EVENT_PASSED && event->kind != MR_EVENT_TRUNCATE;
    return event->kind == MR_EVENT_COPIED || (is_of_row && event->place.commit_lsn % 8 != 0);
}

static mr_status take_record(struct mr_work *work, struct mr_kafka_read *read,
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
        MR_PROOF_VOID(work->proof, MR_VERIFY_NONE, "registry", "%s", ret_error->text);
        return MR_OK;
    }
    what = what == NULL ? mr_event_read(work->tools->config->encode.format, read, &event) : what;
    if (what != NULL) {
        refuse_record(work, read, what);
        return MR_OK;
    }
    struct mr_fold_event folded = {.record = {.place = event.place,
                                              .offset = read->offset,
                                              .partition = read->partition,
                                              .xid = event.xid},
                                   .is_tombstone = event.kind == MR_EVENT_TOMBSTONE,
                                   .is_copied = is_copy(&event)};
    if (event.kind != MR_EVENT_PASSED && !read_event(work, read, &event, &folded.key)) {
        return MR_OK;
    }
    struct mr_digest digest = mr_digest_add(folded.key, (struct mr_digest){.low = event.kind});
    if (event.after.data != NULL) {
        digest = mr_digest_add(digest, work->row.sum);
    }
    mr_order_take(work->order, &folded.record, digest);
    /* Whether a row that is copied later than the first snapshot is from before the others, nobody can tell. */
    work->is_copied =
        work->is_copied || (folded.is_copied && event.place.commit_lsn > work->cuts[0].before);
    if (event.kind == MR_EVENT_PASSED) {
        return MR_OK;
    }
    if (event.kind == MR_EVENT_TRUNCATE) {
        mr_fold_truncate(work->fold, &folded.record);
        return MR_OK;
    }
    return fold_event(work, &event, &folded, ret_error);
}

mr_status mr_work_read_topic(struct mr_work *work, bool *ret_is_whole, struct mr_error *ret_error)
{
    struct mr_kafka_reader *reader = work->tools->reader;
    struct mr_proof *proof = work->proof;
    MR_TRY(mr_kafka_reader_open(reader, work->table.topic, &work->extent, ret_error));
    work->order = mr_order_new(work->extent.partitions);
    work->begun_ns = mr_monotonic_ns();
    struct mr_patience patience = {0};
    struct mr_kafka_read read;
    mr_status status;
    *ret_is_whole = false;
    while ((status = mr_kafka_reader_next(reader, &read, ret_error)) == MR_OK ||
           status == MR_AGAIN) {
        if (status == MR_AGAIN || proof->records % MR_PROGRESS_EVERY == 0) {
            mr_work_show(work, "records of the topic", proof->records, work->extent.records);
            MR_TRY(mr_work_wait(work, 0, ret_error));
            MR_TRY(mr_work_pause(work, ret_error));
        }
        if (status == MR_OK) {
            proof->records++;
            MR_TRY(take_record(work, &read, ret_error));
            if (proof->cause != NULL) {
                return MR_OK;
            }
            if (work->tools->options->paused != NULL) {
                MR_TRY(mr_work_keep_rate(work, proof->records, ret_error));
            }
        } else if (mr_patience_ends(&patience, proof->records)) {
            status = mr_fail(ret_error, MR_ERR_TRANSIENT,
                             "the topic's end does not come: for a minute Kafka has not answered, "
                             "or another producer's transaction is open");
            break;
        }
    }
    *ret_is_whole = status == MR_END;
    if (status == MR_ERR_TRANSIENT) {
        MR_PROOF_VOID(proof, MR_VERIFY_NONE, "topic", "%s", ret_error->text);
    }
    return status == MR_END || status == MR_ERR_TRANSIENT ? MR_OK : status;
}
