#include "verify/proof_internal.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "verify/repair.h"

enum { LOOK_MS = 100, VOID_TRIES = 5 /* moments of a table that is truncated again and again */ };
#define PATIENCE_NS (INT64_C(60) * 1000000000)

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
        free(proof->named[i].asked);
    }
    free(proof->named);
    mr_text_done(&proof->reasons);
}

mr_status mr_work_wait(const struct mr_work *work, int64_t ms, struct mr_error *ret_error)
{
    struct pollfd fd = {.fd = work->tools->stop_fd, .events = POLLIN};
    return poll(&fd, 1, (int)ms) > 0 ? mr_fail(ret_error, MR_AGAIN, "interrupted") : MR_OK;
}

mr_status mr_work_keep_rate(const struct mr_work *work, uint64_t done, struct mr_error *ret_error)
{
    enum { LOOK_EVERY = 64 };
    uint32_t rate = work->tools->options->rate;
    if (rate == 0 || done % LOOK_EVERY != 0) {
        return MR_OK;
    }
    int64_t ahead_ms =
        (int64_t)(done * 1000 / rate) - (mr_monotonic_ns() - work->begun_ns) / 1000000;
    return ahead_ms > 0 ? mr_work_wait(work, ahead_ms, ret_error) : MR_OK;
}

void mr_work_show(const struct mr_work *work, const char *what, uint64_t done, uint64_t all)
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

bool mr_patience_ends(struct mr_patience *patience, uint64_t now)
{
    int64_t now_ns = mr_monotonic_ns();
    if (patience->since_ns == 0 || patience->seen != now) {
        *patience = (struct mr_patience){.seen = now, .since_ns = now_ns};
    }
    return now_ns - patience->since_ns > PATIENCE_NS;
}

bool mr_work_is_sampled(const struct mr_work *work, struct mr_digest key,
                        const struct mr_verify_row *row)
{
    double sample = work->tools->options->sample;
    uint64_t high = work->table.key_count > 0 ? key.high : row->sum.high;
    return sample == 0 || (double)(high >> 32) < sample / 100 * 4294967296.0;
}

void mr_work_reset(struct mr_work *work)
{
    mr_work_topic_leave(work);
    mr_verify_table_done(&work->table);
    for (uint32_t i = 0; i < work->cut_count; i++) {
        mr_cut_done(&work->cuts[i]);
    }
    free(work->cuts);
    mr_fold_free(work->fold);
    mr_order_free(work->order);
    free(work->after);
    free(work->row.large);
    *work = (struct mr_work){.tools = work->tools,
                             .proof = work->proof,
                             .late = work->late,
                             .late_form = work->late_form};
}

/* `*ret_has_come`: all that the snapshots see is delivered. */
static mr_status wait_for_stream(struct mr_work *work, bool *ret_has_come,
                                 struct mr_error *ret_error)
{
    const char *slot = work->tools->config->source.slot;
    mr_lsn end = work->proof->moment;
    struct mr_patience patience = {0};
    for (;;) {
        mr_lsn confirmed;
        bool is_active;
        MR_TRY(mr_verify_confirmed(work->tools->conn, slot, &confirmed, &is_active, ret_error));
        *ret_has_come = confirmed >= end;
        if (*ret_has_come) {
            return MR_OK;
        }
        if (mr_patience_ends(&patience, confirmed)) {
            MR_PROOF_VOID(work->proof, MR_VERIFY_NONE, "stream",
                          "the stream has not come to " MR_LSN_FORMAT " within a minute (%s)",
                          MR_LSN_ARGS(end),
                          is_active ? "millrace status says why" : "no millrace reads the slot");
            return MR_OK;
        }
        mr_work_show(work, "waiting for the stream, bytes", end - confirmed, 0);
        MR_TRY(mr_work_wait(work, LOOK_MS, ret_error));
    }
}

/* Where those begin that are named last, and that make room for others. */
static uint32_t named_unknown(const struct mr_proof *proof)
{
    uint32_t low = 0;
    uint32_t high = proof->named_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool is_other = proof->named[middle].difference.kind != MR_DIFFERENCE_UNKNOWN;
        *(is_other ? &low : &high) = is_other ? middle + 1 : middle;
    }
    return low;
}

static void proof_take_difference(void *context, const struct mr_difference *difference)
{
    struct mr_work *work = context;
    struct mr_proof *proof = work->proof;
    bool is_later = difference->last.offset >= 0 &&
                    mr_place_compare(difference->last.place, work->strange.other_last) > 0;
    bool is_unknown = difference->kind == MR_DIFFERENCE_UNKNOWN;
    const struct mr_verify_named named = {.difference = *difference};
    work->strange.hard += work->table.key_count > 0 && is_later && !is_unknown;
    uint32_t unknown = named_unknown(proof);
    if (proof->named_count < work->tools->named_max) {
        MR_GROW(proof->named, proof->named_room, (size_t)proof->named_count + 1);
        proof->named[proof->named_count++] = named;
        if (!is_unknown && unknown < proof->named_count - 1) { /* before those */
            proof->named[proof->named_count - 1] = proof->named[unknown];
            proof->named[unknown] = named;
        }
    } else if (!is_unknown && unknown < proof->named_count) {
        proof->named[unknown] = named;
    }
}

/* The table, and the topic up to what the table's snapshots see. `*ret_is_whole`: both are read; or
 * the verdict is that they can't be, or (`*ret_void` not NULL) they are to be read again, because
 * of that. */
static mr_status read_both(struct mr_work *work, bool *ret_is_whole, const char **ret_void,
                           struct mr_error *ret_error)
{
    struct mr_proof *proof = work->proof;
    bool is_void;
    *ret_is_whole = false;
    *ret_void = NULL;
    MR_TRY(mr_work_read_rows(work, &is_void, ret_error));
    if (proof->cause != NULL) {
        return MR_OK;
    }
    if (is_void) {
        *ret_void = "it was truncated or rewritten while it was read";
        return MR_OK;
    }
    proof->moment = work->cuts[work->cut_count - 1].after;
    bool has_come;
    MR_TRY(wait_for_stream(work, &has_come, ret_error));
    if (!has_come) {
        return MR_OK;
    }
    MR_TRY(mr_work_topic_end(work, ret_is_whole, &is_void, ret_error));
    *ret_void = is_void ? "its topic got more partitions while it was read" : NULL;
    return MR_OK;
}

/* A copy is under way; or a record claims a place that the server has not come to, which no copy
 * has given it. */
static mr_status explain_copied(struct mr_work *work, struct mr_error *ret_error)
{
    const struct mr_reading *topic = &work->topic;
    int64_t end;
    MR_TRY(mr_pg_ask_number(work->tools->conn, "the end of its WAL", 'l', &end, ret_error,
                            "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
                            " ELSE pg_current_wal_insert_lsn() END"));
    if (topic->copied <= (mr_lsn)end) {
        MR_PROOF_VOID(work->proof, MR_VERIFY_NONE, "copied",
                      "existing rows of it are being copied");
        return MR_OK;
    }
    MR_PROOF_VOID(
        work->proof, MR_VERIFY_NONE, "future",
        "the record at offset %lld of partition %d of its topic has a position " MR_LSN_FORMAT
        ", and the server's WAL ends at " MR_LSN_FORMAT
        ": this server's millrace has not written it",
        (long long)topic->copied_offset, topic->copied_partition, MR_LSN_ARGS(topic->copied),
        MR_LSN_ARGS((mr_lsn)end));
    return MR_OK;
}

/* Both sides, read and compared. `*ret_is_done` false: there is no verdict, or why is said. */
static mr_status compare_both(struct mr_work *work, bool *ret_is_done, struct mr_error *ret_error)
{
    struct mr_proof *proof = work->proof;
    const struct mr_verify_tools *tools = work->tools;
    bool is_whole = false;
    const char *why = "";
    *ret_is_done = false;
    for (int i = 0; i < VOID_TRIES && why != NULL; i++) {
        MR_TRY(read_both(work, &is_whole, &why, ret_error));
    }
    if (why != NULL) {
        MR_PROOF_VOID(proof, MR_VERIFY_NONE, "truncated", "%s", why);
    }
    if (!is_whole) {
        return MR_OK;
    }
    /* Whether a row that is copied later than the first snapshot is from before the others, nobody
     * can tell. */
    if (work->topic.copied > work->cuts[0].before) {
        return explain_copied(work, ret_error);
    }
    bool is_compacted;
    bool is_known = mr_kafka_reader_is_compacted(tools->reader, work->table.topic, &is_compacted);
    if (is_known && !is_compacted) {
        mr_fold_keep_all(work->fold);
    }
    *ret_is_done = true;
    return mr_fold_compare(work->fold, work->cuts, work->cut_count, proof_take_difference, work,
                           &proof->counts, ret_error);
}

/* Whether what differs may be no more than a default that the catalog has forgotten
 * (describe_absent), or what is equal may lack a value that had its column then. The columns that
 * events lack are late ones then, and all is to be read again. */
static bool find_late(struct mr_work *work)
{
    const struct mr_fold_counts *counts = &work->proof->counts;
    uint64_t differences = counts->differences[MR_DIFFERENCE_MISSING];
    bool may_be = work->table.key_count > 0 ? counts->lacking > 0 : differences > 0;
    bool is_any = false;
    if (work->late != NULL) {
        return false;
    }
    work->late = MR_NEW_ARRAY(bool, work->table.column_count);
    work->late_form = work->table.form;
    for (uint32_t i = 0; i < work->table.column_count; i++) {
        const struct mr_verify_column *column = &work->table.columns[i];
        work->late[i] =
            column->is_doubted || (may_be && column->is_lacked && !column->is_absent_known);
        is_any = is_any || work->late[i];
    }
    return is_any;
}

static mr_status proof_prove(struct mr_work *work, struct mr_error *ret_error)
{
    struct mr_proof *proof = work->proof;
    const struct mr_verify_tools *tools = work->tools;
    const char *slot = tools->config->source.slot;
    mr_lsn confirmed;
    bool is_active;
    /* Before the snapshot: a slot that is there then begins after the first copy's rows. */
    MR_TRY(mr_verify_confirmed(tools->conn, slot, &confirmed, &is_active, ret_error));
    if (confirmed == 0) {
        MR_PROOF_VOID(proof, MR_VERIFY_NONE, "slot", "there is no slot \"%s\"", slot);
        return MR_OK;
    }
    bool is_done;
    MR_TRY(compare_both(work, &is_done, ret_error));
    if (is_done && find_late(work)) {
        const struct mr_proof again = {.listed = proof->listed, .is_again = proof->is_again};
        mr_proof_done(proof);
        *proof = again;
        MR_TRY(compare_both(work, &is_done, ret_error));
    }
    if (!is_done) {
        return MR_OK;
    }
    mr_work_judge(work);
    mr_repair_judge(&work->table, &tools->config->encode, proof);
    mr_work_name(work);
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

const char *mr_unprovable(const struct mr_config *config, const struct mr_verify_listed *listed)
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
    if (encode->format != MR_FORMAT_DEBEZIUM && encode->format != MR_FORMAT_ROW &&
        encode->format != MR_FORMAT_AVRO) {
        return "its format is none of \"debezium\", \"row\" and \"avro\"";
    }
    if (encode->format == MR_FORMAT_ROW && encode->bare.deletes == MR_DELETE_DROP) {
        return "deletes are not sent (row.delete_tombstone_handling_mode)";
    }
    if (encode->types == MR_TYPES_PLAIN) {
        return "its values are of types = \"plain\"";
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
        MR_PROOF_VOID(ret, MR_VERIFY_NONE, "unpublished", "it is not in the publication \"%s\"",
                      tools->config->source.publication);
        return MR_OK;
    }
    const char *why = mr_unprovable(tools->config, listed);
    if (why != NULL) {
        MR_PROOF_VOID(ret, MR_VERIFY_UNPROVABLE, "unprovable", "%s", why);
        return MR_OK;
    }
    struct mr_work work = {.tools = tools, .proof = ret};
    mr_status status = proof_prove(&work, ret_error);
    mr_work_reset(&work);
    free(work.late);
    return status;
}
