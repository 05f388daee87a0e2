#include "verify/proof.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "verify/event.h"

enum {
    LOOK_MS = 100,
    VOID_TRIES = 5, /* moments of a table that is truncated again and again */
    PROGRESS_ROWS = 16384,
    CHUNK_ROWS = 100000, /* of a chunk, which has a snapshot of its own … */
    CHUNK_SECONDS = 5,   /* … and takes about so long with a limited rate */
    RATE_ROWS = 64,
};
/* A stream that does not move for so long does not run, or stands still; so does Kafka. */
#define PATIENCE_NS (INT64_C(60) * 1000000000)

/* Records that are not as the table's events are. */
struct strange {
    uint64_t unreadable;
    uint64_t other_keys;
    struct mr_place other_last; /* of these the last one */
    uint64_t foreign;           /* before the first one of millrace */
    uint64_t lossy;             /* too large, of a table without a key */
    uint64_t hard;              /* differences whose last event is after `other_last` */
};

/* A table at hand. */
struct work {
    const struct mr_verify_tools *tools;
    struct mr_proof *proof;
    struct mr_verify_table table;
    struct mr_fold *fold;
    struct mr_order *order;
    struct mr_cut *cuts; /* of the chunks */
    uint32_t cut_count, cut_room;
    uint32_t chunk_rows, chunk_max; /* of the chunk at hand; max 0: it is the whole table */
    char *after;                    /* where the next one begins */
    struct mr_verify_row row, before;
    struct mr_kafka_extent extent;
    int64_t begun_ns; /* what is being read */
    struct strange strange;
    bool is_copied; /* rows that were there before come in just now */
};

void mr_proof_conclude(struct mr_proof *proof, enum mr_verify_verdict verdict, const char *format,
                       ...)
{
    proof->verdict = verdict > proof->verdict ? verdict : proof->verdict;
    va_list arguments;
    va_start(arguments, format);
    if (proof->reasons.len > 0) {
        mr_text_string(&proof->reasons, "; ");
    }
    mr_text_vformat(&proof->reasons, format, arguments);
    va_end(arguments);
}

void mr_proof_done(struct mr_proof *proof)
{
    for (uint32_t i = 0; i < proof->named_count; i++) {
        free(proof->named[i].key);
    }
    mr_text_done(&proof->reasons);
}

/* Waits; MR_AGAIN: it is to end. */
static mr_status wait_ms(const struct mr_verify_tools *tools, int64_t ms,
                         struct mr_error *ret_error)
{
    struct pollfd fd = {.fd = tools->stop_fd, .events = POLLIN};
    return poll(&fd, 1, (int)ms) > 0 ? mr_fail(ret_error, MR_AGAIN, "interrupted") : MR_OK;
}

/* `all` 0: it is not known how much there is. */
static void show(const struct work *work, const char *what, uint64_t done, uint64_t all)
{
    const struct mr_verify_listed *listed = work->proof->listed;
    if (!work->tools->shows_progress) {
        return;
    }
    fprintf(stderr, "\r\033[K%s.%s: %s, %llu", listed->schema, listed->table, what,
            (unsigned long long)done);
    double seconds = (double)(mr_monotonic_ns() - work->begun_ns) / 1e9;
    if (all > 0 && done > 0) {
        double left = done < all ? seconds * (double)(all - done) / (double)done : 0;
        fprintf(stderr, " of %llu, %.0f a second, %.0f s left", (unsigned long long)all,
                (double)done / (seconds + 0.001), left);
    }
    fflush(stderr);
}

/* As many rows as `rate` says are taken. */
static mr_status keep_rate(const struct work *work, struct mr_error *ret_error)
{
    uint32_t rate = work->tools->options->rate;
    if (rate == 0 || work->proof->rows % RATE_ROWS != 0) {
        return MR_OK;
    }
    int64_t ahead_ms =
        (int64_t)(work->proof->rows * 1000 / rate) - (mr_monotonic_ns() - work->begun_ns) / 1000000;
    return ahead_ms > 0 ? wait_ms(work->tools, ahead_ms, ret_error) : MR_OK;
}

static bool is_sampled(const struct work *work, struct mr_digest key)
{
    double sample = work->tools->options->sample;
    return sample == 0 || (double)(key.high >> 32) < sample / 100 * 4294967296.0;
}

static mr_status take_row(void *context, uint32_t xid, const mr_slice *values,
                          struct mr_error *ret_error)
{
    struct work *work = context;
    struct mr_digest key;
    mr_verify_table_row(&work->table, values, &work->row, &key);
    if (work->proof->rows++ % PROGRESS_ROWS == 0) {
        show(work, "rows of the table", work->proof->rows, work->proof->listed->rows);
        MR_TRY(wait_ms(work->tools, 0, ret_error));
    }
    MR_TRY(keep_rate(work, ret_error));
    if (++work->chunk_rows == work->chunk_max) {
        free(work->after);
        work->after = mr_verify_after(&work->table, values);
    }
    return is_sampled(work, work->table.key_count > 0 ? key : work->row.sum)
               ? mr_fold_add_row(work->fold, key, work->cut_count, xid, &work->row, ret_error)
               : MR_OK;
}

static void forget(struct work *work)
{
    mr_verify_table_done(&work->table);
    for (uint32_t i = 0; i < work->cut_count; i++) {
        mr_cut_done(&work->cuts[i]);
    }
    free(work->cuts);
    mr_fold_free(work->fold);
    mr_order_free(work->order);
    free(work->after);
    free(work->row.large);
    free(work->before.large);
    *work = (struct work){.tools = work->tools, .proof = work->proof};
}

/* Whether the table is as it was described; the first time it is described. */
static mr_status describe(struct work *work, bool *ret_is_same, struct mr_error *ret_error)
{
    const struct mr_verify_tools *tools = work->tools;
    struct mr_verify_table table;
    MR_TRY(mr_verify_describe(tools->conn, tools->config, work->proof->listed, tools->key, &table,
                              ret_error));
    *ret_is_same = work->fold == NULL || mr_digest_equal(table.form, work->table.form);
    if (work->fold != NULL) {
        mr_verify_table_done(&table);
        return MR_OK;
    }
    uint32_t rate = tools->options->rate;
    work->table = table;
    work->fold = mr_fold_new(table.key_count > 0);
    work->row.large = MR_NEW_ARRAY(struct mr_verify_large, table.column_count + 1);
    work->before.large = MR_NEW_ARRAY(struct mr_verify_large, table.column_count + 1);
    if (table.key_count > 0 && table.is_ordered) {
        work->chunk_max =
            rate > 0 && rate < CHUNK_ROWS / CHUNK_SECONDS ? rate * CHUNK_SECONDS : CHUNK_ROWS;
    }
    return MR_OK;
}

/* Within a transaction. */
static mr_status read_chunk_rows(struct work *work, bool *ret_is_void, struct mr_error *ret_error)
{
    struct mr_pg_conn *conn = work->tools->conn;
    const struct mr_verify_listed *listed = work->proof->listed;
    bool is_same;
    MR_TRY(describe(work, &is_same, ret_error));
    bool is_bare = work->tools->config->encode.format == MR_FORMAT_ROW;
    if (work->table.key_count == 0 && (is_bare || !listed->is_full)) {
        mr_proof_conclude(work->proof, MR_VERIFY_UNPROVABLE, "it has no key, and %s",
                          is_bare ? "bare rows do not say what was before"
                                  : "no REPLICA IDENTITY FULL");
        return MR_OK;
    }
    if (!work->table.is_unique) {
        mr_proof_conclude(work->proof, MR_VERIFY_UNPROVABLE,
                          "several rows may have a key (key_columns without a unique index)");
        return MR_OK;
    }
    *ret_is_void = !is_same;
    if (!is_same) {
        return MR_OK;
    }
    work->chunk_rows = 0;
    const struct mr_verify_range range = {.after = work->after, .rows_max = work->chunk_max};
    MR_TRY(mr_verify_rows(conn, listed, &work->table, &range, take_row, work, ret_error));
    return mr_verify_is_void(conn, listed->oid, ret_is_void, ret_error);
}

static mr_status read_chunk(struct work *work, bool *ret_is_void, struct mr_error *ret_error)
{
    struct mr_cut cut;
    MR_TRY(mr_verify_begin(work->tools->conn, &cut, ret_error));
    *ret_is_void = false;
    mr_status status = read_chunk_rows(work, ret_is_void, ret_error);
    if (status == MR_OK) {
        status = mr_verify_end(work->tools->conn, &cut, ret_error);
    }
    MR_GROW(work->cuts, work->cut_room, (size_t)work->cut_count + 1);
    work->cuts[work->cut_count++] = cut;
    return status;
}

static mr_status read_rows(struct work *work, bool *ret_is_void, struct mr_error *ret_error)
{
    forget(work);
    work->proof->rows = 0;
    work->begun_ns = mr_monotonic_ns();
    do {
        MR_TRY(read_chunk(work, ret_is_void, ret_error));
    } while (!*ret_is_void && work->chunk_max > 0 && work->chunk_rows == work->chunk_max);
    return MR_OK;
}

/* `*ret_has_come`: all that the snapshot sees is delivered. */
static mr_status wait_for_stream(struct work *work, bool *ret_has_come, struct mr_error *ret_error)
{
    const char *slot = work->tools->config->source.slot;
    mr_lsn end = work->proof->moment;
    mr_lsn last = 0;
    int64_t moved_ns = mr_monotonic_ns();
    for (;;) {
        mr_lsn confirmed;
        bool is_active;
        MR_TRY(mr_verify_confirmed(work->tools->conn, slot, &confirmed, &is_active, ret_error));
        *ret_has_come = confirmed >= end;
        if (*ret_has_come) {
            return MR_OK;
        }
        if (confirmed != last) {
            last = confirmed;
            moved_ns = mr_monotonic_ns();
        } else if (mr_monotonic_ns() - moved_ns > PATIENCE_NS) {
            mr_proof_conclude(work->proof, MR_VERIFY_NONE,
                              "the stream has not come to " MR_LSN_FORMAT " within a minute (%s)",
                              MR_LSN_ARGS(end),
                              is_active ? "millrace status says why"
                                        : "no millrace reads the slot");
            return MR_OK;
        }
        show(work, "waiting for the stream, bytes", end - confirmed, 0);
        MR_TRY(wait_ms(work->tools, LOOK_MS, ret_error));
    }
}

/* A record that is no event of the table: the first one is named, and all are counted. */
static void refuse_record(struct work *work, const struct mr_kafka_read *read, const char *what)
{
    if (work->strange.unreadable++ == 0) {
        mr_proof_conclude(work->proof, MR_VERIFY_DIFFERENT,
                          "topic \"%s\", partition %d, offset %lld: %s", work->table.topic,
                          read->partition, (long long)read->offset, what);
    }
}

/* Folds what is left of the event after the key and the rows are read. */
static mr_status fold(struct work *work, struct mr_fold_event *event, bool is_gone,
                      const struct mr_verify_row *row, struct mr_error *ret_error)
{
    event->is_gone = is_gone;
    event->row = row;
    return is_sampled(work, work->table.key_count > 0 ? event->key : row->sum)
               ? mr_fold_add_event(work->fold, event, ret_error)
               : MR_OK;
}

static mr_status fold_event(struct work *work, const struct mr_event *event,
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
static bool read_event(struct work *work, const struct mr_kafka_read *read,
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

/* A row alone does not say that it was copied. Its place does: no commit is there, because those are at multiples of eight. */
static bool is_copy(const struct mr_event *event)
{
    return event->kind == MR_EVENT_COPIED ||
           (event->kind == MR_EVENT_ROW && event->place.commit_lsn % 8 != 0);
}

static mr_status take_record(struct work *work, const struct mr_kafka_read *read,
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
    const char *what = mr_event_read(work->tools->config->encode.format, read, &event);
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

/* `*ret_is_whole`: it was read to its end. */
static mr_status read_topic(struct work *work, bool *ret_is_whole, struct mr_error *ret_error)
{
    struct mr_kafka_reader *reader = work->tools->reader;
    struct mr_proof *proof = work->proof;
    MR_TRY(mr_kafka_reader_open(reader, work->table.topic, &work->extent, ret_error));
    work->order = mr_order_new(work->extent.partitions);
    work->begun_ns = mr_monotonic_ns();
    int64_t silent_since_ns = work->begun_ns;
    struct mr_kafka_read read;
    mr_status status;
    while ((status = mr_kafka_reader_next(reader, &read, ret_error)) == MR_OK ||
           status == MR_AGAIN) {
        if (status == MR_AGAIN || proof->records % PROGRESS_ROWS == 0) {
            show(work, "records of the topic", proof->records, work->extent.records);
            MR_TRY(wait_ms(work->tools, 0, ret_error));
        }
        if (status == MR_OK) {
            proof->records++;
            silent_since_ns = 0;
            MR_TRY(take_record(work, &read, ret_error));
        } else if (silent_since_ns == 0) {
            silent_since_ns = mr_monotonic_ns();
        } else if (mr_monotonic_ns() - silent_since_ns > PATIENCE_NS) {
            status = mr_fail(ret_error, MR_ERR_TRANSIENT,
                             "the topic's end does not come: for a minute Kafka has not answered, "
                             "or another producer's transaction is open");
            break;
        }
    }
    *ret_is_whole = status == MR_END;
    if (status == MR_ERR_TRANSIENT) { /* the other tables may have a verdict nevertheless */
        mr_proof_conclude(proof, MR_VERIFY_NONE, "%s", ret_error->text);
    }
    return status == MR_END || status == MR_ERR_TRANSIENT ? MR_OK : status;
}

static void take_difference(void *context, const struct mr_difference *difference)
{
    struct work *work = context;
    struct mr_proof *proof = work->proof;
    bool is_later = difference->last.offset >= 0 &&
                    mr_place_compare(difference->last.place, work->strange.other_last) > 0;
    work->strange.hard += work->table.key_count > 0 && is_later;
    if (proof->named_count < MR_VERIFY_NAMED_MAX) {
        proof->named[proof->named_count++] = (struct mr_verify_named){.difference = *difference};
    }
}

static void add_string(struct mr_text *text, mr_slice value)
{
    size_t room = 6 * value.len + 2;
    uint8_t *bytes = MR_ALLOC(room);
    struct mr_buffer buffer = mr_buffer_init(bytes, room);
    mr_json_string(&buffer, value.data, value.len);
    mr_text_add(text, bytes, (size_t)(buffer.at - bytes));
    free(bytes);
}

/* The key of a row of the table, as an event has it. */
static char *key_text(const struct mr_verify_table *table, const mr_slice *values)
{
    struct mr_text text = {0};
    for (uint32_t i = 0; i < table->key_count; i++) {
        const struct mr_verify_column *column = &table->columns[table->key[i]];
        mr_slice value = values[table->key[i]];
        struct mr_scanned scanned;
        mr_text_string(&text, i == 0 ? "{" : ",");
        add_string(&text, mr_slice_of(column->name));
        mr_text_string(&text, ":");
        if (value.data == NULL) {
            mr_text_string(&text, "null");
        } else if (column->is_bare && mr_scan_value(value, &scanned) &&
                   scanned.kind == MR_SCAN_NUMBER) {
            mr_text_add(&text, value.data, value.len);
        } else {
            add_string(&text, value);
        }
    }
    mr_text_string(&text, "}");
    return text.data;
}

/* Names those that have no event: mr_verify_row_fn of a second look at the table. */
static mr_status name_row(void *context, uint32_t xid, const mr_slice *values,
                          struct mr_error *ret_error)
{
    (void)xid;
    (void)ret_error;
    struct work *work = context;
    struct mr_digest key;
    mr_verify_table_row(&work->table, values, &work->row, &key);
    for (uint32_t i = 0; i < work->proof->named_count; i++) {
        struct mr_verify_named *named = &work->proof->named[i];
        if (named->key == NULL && mr_digest_equal(named->difference.key, key)) {
            named->key = key_text(&work->table, values);
        }
    }
    return MR_OK;
}

/* By the record of the key's last event. */
static mr_status name_by_record(struct work *work, struct mr_verify_named *named)
{
    const struct mr_fold_record *last = &named->difference.last;
    struct mr_kafka_read read;
    mr_status status = mr_kafka_reader_fetch(work->tools->reader, work->table.topic,
                                             last->partition, last->offset, &read, NULL);
    if (status == MR_OK && read.key.data != NULL) {
        named->key = MR_STRNDUP((const char *)read.key.data, read.key.len);
    }
    return status == MR_END ? MR_OK : status;
}

static void name_eventless(struct work *work)
{
    struct mr_pg_conn *conn = work->tools->conn;
    const struct mr_verify_range all = {0};
    struct mr_cut unused;
    if (mr_verify_begin(conn, &unused, NULL) == MR_OK) {
        mr_cut_done(&unused);
        (void)mr_verify_rows(conn, work->proof->listed, &work->table, &all, name_row, work, NULL);
        (void)mr_pg_command(conn, "COMMIT", MR_PG_ANSWER_MS, NULL);
    }
}

/* As far as Kafka and the server answer: the verdict holds without names. */
static void name_differences(struct work *work)
{
    struct mr_proof *proof = work->proof;
    bool has_eventless = false;
    mr_status status = MR_OK;
    for (uint32_t i = 0; i < proof->named_count && work->table.key_count > 0; i++) {
        if (proof->named[i].difference.last.offset < 0) {
            has_eventless = true;
        } else if (status == MR_OK) {
            status = name_by_record(work, &proof->named[i]);
        }
    }
    if (has_eventless) {
        name_eventless(work);
    }
}

static void judge_order(const struct work *work)
{
    struct mr_order_counts order = mr_order_counts(work->order, work->proof->moment);
    if (order.unlike + order.backwards + order.broken > 0) {
        mr_proof_conclude(work->proof, MR_VERIFY_DIFFERENT,
                          "records out of order: of %llu repeats %llu unlike the first, %llu other "
                          "records backwards, %llu runs of repeats that break off",
                          (unsigned long long)order.repeats, (unsigned long long)order.unlike,
                          (unsigned long long)order.backwards, (unsigned long long)order.broken);
    } else if (work->tools->config->kafka.exactly_once && order.repeats > 0) {
        mr_proof_conclude(work->proof, MR_VERIFY_DIFFERENT,
                          "%llu records come twice, under exactly-once",
                          (unsigned long long)order.repeats);
    }
}

static void judge_differences(const struct work *work)
{
    struct mr_proof *proof = work->proof;
    const struct mr_config *config = work->tools->config;
    const uint64_t *found = proof->counts.differences;
    uint64_t missing = found[MR_DIFFERENCE_MISSING];
    uint64_t others =
        found[MR_DIFFERENCE_PHANTOM] + found[MR_DIFFERENCE_STALE] + found[MR_DIFFERENCE_ALTERED];
    if (missing + others == 0) {
        return;
    }
    const struct strange *strange = &work->strange;
    bool has_begun_later = work->extent.cut > 0 || strange->foreign > 0;
    bool has_excuse = (strange->other_keys > 0 && strange->hard == 0) || strange->lossy > 0 ||
                      (others == 0 && missing == proof->counts.eventless && has_begun_later);
    mr_proof_conclude(proof, has_excuse ? MR_VERIFY_IN_PART : MR_VERIFY_DIFFERENT,
                      "%llu missing, %llu phantom, %llu stale, %llu altered",
                      (unsigned long long)missing, (unsigned long long)found[MR_DIFFERENCE_PHANTOM],
                      (unsigned long long)found[MR_DIFFERENCE_STALE],
                      (unsigned long long)found[MR_DIFFERENCE_ALTERED]);
    if (proof->counts.eventless > 0 && work->extent.cut > 0) {
        mr_proof_conclude(proof, MR_VERIFY_IN_PART,
                          "%llu rows may have had events: the first records of %u of %u partitions "
                          "are gone (retention.ms)",
                          (unsigned long long)proof->counts.eventless, work->extent.cut,
                          work->extent.partitions);
    } else if (proof->counts.eventless > 0 && config->source.copies == MR_COPIES_NOTHING) {
        mr_text_string(&proof->reasons,
                       " (rows that were there before the stream: millrace snapshot copies them)");
    }
    if (found[MR_DIFFERENCE_PHANTOM] > 0 &&
        (config->encode.skipped_operations & (1u << MR_OP_TRUNCATE)) != 0) {
        mr_text_string(&proof->reasons, " (truncates are not sent: skipped_operations)");
    }
}

/* What was not compared. */
static void judge_rest(const struct work *work)
{
    const struct mr_fold_counts *counts = &work->proof->counts;
    const struct strange *strange = &work->strange;
    const struct mr_order_counts order = mr_order_counts(work->order, work->proof->moment);
    const struct {
        uint64_t count;
        const char *what;
    } rest[] = {
        {order.forgotten, "records repeat one of long ago, and are not compared with it"},
        {order.elsewhere, "records repeat one of another partition"},
        {strange->other_keys,
         "records have the key of another form of the table, and count for no row"},
        {strange->foreign, "records are from before millrace, and count for no row"},
        {strange->lossy, "records were too large to be whole"},
        {counts->buried, "rows have a tombstone and no delete, which compaction has taken"},
        {counts->unsettled, "rows came while the table was read, after their part of it; the next "
                            "run proves them"},
        {counts->unknown, "rows have a large value that no event of their key has"},
        {counts->older, "rows have a last event of an older form of the table"},
        {counts->twice, "rows share a key with another one"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rest); i++) {
        if (rest[i].count > 0) {
            mr_proof_conclude(work->proof, MR_VERIFY_IN_PART, "%llu %s",
                              (unsigned long long)rest[i].count, rest[i].what);
        }
    }
}

static void judge(const struct work *work)
{
    struct mr_proof *proof = work->proof;
    if (work->strange.unreadable > 1) {
        mr_proof_conclude(proof, MR_VERIFY_DIFFERENT, "%llu such records in all",
                          (unsigned long long)work->strange.unreadable);
    }
    judge_differences(work);
    judge_order(work);
    judge_rest(work);
    if (work->tools->options->sample > 0) {
        mr_proof_conclude(proof, MR_VERIFY_EQUAL, "a sample of %g %%",
                          work->tools->options->sample);
    }
}

static mr_status prove(struct work *work, struct mr_error *ret_error)
{
    struct mr_proof *proof = work->proof;
    const struct mr_verify_tools *tools = work->tools;
    const char *slot = tools->config->source.slot;
    mr_lsn confirmed;
    bool is_active;
    /* Before the snapshot: a slot that is there then begins after the first copy's rows. */
    MR_TRY(mr_verify_confirmed(tools->conn, slot, &confirmed, &is_active, ret_error));
    if (confirmed == 0) {
        mr_proof_conclude(proof, MR_VERIFY_NONE, "there is no slot \"%s\"", slot);
        return MR_OK;
    }
    bool is_void = true;
    for (int i = 0; i < VOID_TRIES && is_void; i++) {
        MR_TRY(read_rows(work, &is_void, ret_error));
    }
    if (proof->verdict == MR_VERIFY_UNPROVABLE) {
        return MR_OK;
    }
    if (is_void) {
        mr_proof_conclude(proof, MR_VERIFY_NONE, "it was truncated or rewritten while it was read");
        return MR_OK;
    }
    proof->moment = work->cuts[work->cut_count - 1].after;
    bool has_come;
    MR_TRY(wait_for_stream(work, &has_come, ret_error));
    if (!has_come) {
        return MR_OK;
    }
    bool is_whole;
    MR_TRY(read_topic(work, &is_whole, ret_error));
    if (!is_whole) {
        return MR_OK;
    }
    if (work->is_copied) {
        mr_proof_conclude(proof, MR_VERIFY_NONE, "existing rows of it are being copied");
        return MR_OK;
    }
    MR_TRY(mr_fold_compare(work->fold, work->cuts, work->cut_count, take_difference, work,
                           &proof->counts, ret_error));
    judge(work);
    name_differences(work);
    return MR_OK;
}

static bool has_own_stream(const struct mr_encode_options *encode,
                           const struct mr_verify_listed *listed)
{
    uint32_t streams = 0;
    for (uint32_t i = 0; i < encode->route_count; i++) {
        const struct mr_route *route = &encode->routes[i];
        if (strcmp(route->schema, listed->schema) == 0 &&
            strcmp(route->table, listed->table) == 0) {
            bool is_own = route->topic != NULL || route->operations != MR_OPERATIONS_ALL;
            streams += is_own ? 2 : 1;
        }
    }
    return streams > 1;
}

/* Why nothing of the table can be proved; NULL: something can. */
static const char *unprovable(const struct mr_config *config, const struct mr_verify_listed *listed)
{
    const struct mr_encode_options *encode = &config->encode;
    const uint32_t needed = 1u << MR_OP_INSERT | 1u << MR_OP_UPDATE | 1u << MR_OP_DELETE;
    if (has_own_stream(encode, listed)) {
        return "it is a stream with a topic or operations of its own";
    }
    if (mr_is_outbox(encode, listed->schema, listed->table)) {
        return "it is an outbox, whose rows are events";
    }
    if (encode->routing != NULL && encode->routing->sharing != MR_SHARING_REFUSED) {
        return "tables may share a topic (routing.sharing)";
    }
    if (encode->format != MR_FORMAT_DEBEZIUM && encode->format != MR_FORMAT_ROW) {
        return "its format is neither \"debezium\" nor \"row\"";
    }
    if (encode->format == MR_FORMAT_ROW && encode->bare.deletes == MR_DELETE_DROP) {
        return "deletes are not sent (row.delete_tombstone_handling_mode)";
    }
    if (encode->types != MR_TYPES_TEXT) {
        return "its values are not of types = \"text\"";
    }
    if (!config->kafka.headers) {
        return "its records have no headers (sink.kafka.headers)";
    }
    if ((encode->skipped_operations & needed) != 0 || listed->lacks_operations) {
        return "inserts, updates or deletes are not sent (skipped_operations, or the publication)";
    }
    return NULL;
}

mr_status mr_prove(const struct mr_verify_tools *tools, const struct mr_verify_listed *listed,
                   struct mr_proof *ret, struct mr_error *ret_error)
{
    if (!listed->is_published) {
        mr_proof_conclude(ret, MR_VERIFY_NONE, "it is not in the publication \"%s\"",
                          tools->config->source.publication);
        return MR_OK;
    }
    const char *why = unprovable(tools->config, listed);
    if (why != NULL) {
        mr_proof_conclude(ret, MR_VERIFY_UNPROVABLE, "%s", why);
        return MR_OK;
    }
    struct work work = {.tools = tools, .proof = ret};
    mr_status status = prove(&work, ret_error);
    forget(&work);
    return status;
}
