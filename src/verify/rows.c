#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "verify/proof_internal.h"

enum {
    CHUNK_ROWS = 100000, /* of a chunk, which has a snapshot of its own … */
    CHUNK_SECONDS = 5,   /* … and takes about so long with a limited rate */
    STANDBY_LOOK_MS = 10,
};

static mr_status verify_rows_take_row(void *context, uint32_t xid, const mr_slice *values,
                                      struct mr_error *ret_error)
{
    struct mr_work *work = context;
    struct mr_digest key;
    mr_verify_server_row(&work->table, values, &work->row, &key);
    if (work->proof->rows++ % MR_PROGRESS_EVERY == 0) {
        mr_work_show(work, "rows of the table", work->proof->rows, work->proof->listed->rows);
        MR_TRY(mr_work_wait(work, 0, ret_error));
    }
    MR_TRY(mr_work_keep_rate(work, work->proof->rows, ret_error));
    if (++work->chunk_rows == work->chunk_max) {
        free(work->after);
        work->after = mr_verify_after(&work->table, values);
    }
    return mr_work_is_sampled(work, key, &work->row)
               ? mr_fold_add_row(work->fold, key, work->cut_count, xid, &work->row, ret_error)
               : MR_OK;
}

static void verify_rows_begin(struct mr_work *work, const struct mr_verify_table *table)
{
    uint32_t rate = work->tools->options->rate;
    const struct mr_encode_options *encode = &work->tools->config->encode;
    const struct mr_fold_options options = {
        .has_key = table->key_count > 0,
        .entered = work->tools->options->entered,
        .has_tombstones = encode->format == MR_FORMAT_ROW
                              ? encode->bare.deletes == MR_DELETE_REWRITE_WITH_TOMBSTONE
                              : encode->tombstones};
    work->table = *table;
    work->fold = mr_fold_new(&options);
    bool is_same = mr_digest_equal(table->form, work->late_form);
    for (uint32_t i = 0; is_same && i < table->column_count; i++) {
        work->table.columns[i].is_late = work->late[i];
    }
    work->row.large = MR_NEW_ARRAY(struct mr_verify_large, table->column_count + 1);
    if (table->key_count > 0 && table->is_ordered) {
        work->chunk_max =
            rate > 0 && rate < CHUNK_ROWS / CHUNK_SECONDS ? rate * CHUNK_SECONDS : CHUNK_ROWS;
    }
}

/* Whether the table is as it was described; the first time it is described. */
static mr_status verify_rows_describe(struct mr_work *work, bool *ret_is_same,
                                      struct mr_error *ret_error)
{
    const struct mr_verify_tools *tools = work->tools;
    struct mr_verify_table table;
    MR_TRY(mr_verify_describe(tools->rows, tools->config, work->proof->listed, tools->key, &table,
                              ret_error));
    if (work->fold == NULL) {
        verify_rows_begin(work, &table);
        *ret_is_same = true;
        return MR_OK;
    }
    *ret_is_same = mr_digest_equal(table.form, work->table.form);
    mr_verify_table_done(&table);
    return MR_OK;
}

/* Avro's names have letters, digits and _ alone; others are changed (docs/formats.md). */
static bool is_avro_name(const char *name)
{
    static const char letters[] = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return strspn(name, letters) == strlen(name) && !(name[0] >= '0' && name[0] <= '9');
}

/* Why its rows can't be told apart; NULL: they can. */
static const char *unprovable(const struct mr_work *work)
{
    const struct mr_verify_table *table = &work->table;
    if (table->key_count == 0 && work->tools->config->encode.format == MR_FORMAT_ROW) {
        return "it has no key, and bare rows do not say what was before";
    }
    if (table->key_count == 0 && !work->proof->listed->is_full) {
        return "it has no key, and no REPLICA IDENTITY FULL";
    }
    if (!table->is_unique) {
        return "several rows may have a key (key_columns without a unique index)";
    }
    if (MR_ANY(key, table->key, table->key_count,
               table->columns[*key].treatment == MR_TREAT_UNKNOWN)) {
        return "its key has a type whose values are not compared";
    }
    return work->tools->avro == NULL ||
                   MR_ALL(column, table->columns, table->column_count, is_avro_name(column->name))
               ? NULL
               : "a column has a name that Avro does not take";
}

/* Within a transaction. */
static mr_status read_chunk_rows(struct mr_work *work, bool *ret_is_void,
                                 struct mr_error *ret_error)
{
    struct mr_pg_conn *conn = work->tools->rows;
    const struct mr_verify_listed *listed = work->proof->listed;
    bool is_same;
    MR_TRY(verify_rows_describe(work, &is_same, ret_error));
    const char *why = unprovable(work);
    if (why != NULL) {
        MR_PROOF_VOID(work->proof, MR_VERIFY_UNPROVABLE, "unprovable", "%s", why);
        return MR_OK;
    }
    *ret_is_void = !is_same;
    if (!is_same) {
        return MR_OK;
    }
    if (!work->topic.is_begun) { /* it is read beside the rows */
        MR_TRY(mr_work_topic_begin(work, ret_error));
    }
    work->chunk_rows = 0;
    const struct mr_verify_range range = {.after = work->after, .rows_max = work->chunk_max};
    MR_TRY(
        mr_verify_rows(conn, listed, &work->table, &range, verify_rows_take_row, work, ret_error));
    return mr_verify_is_void(conn, listed->oid, ret_is_void, ret_error);
}

/* `*ret_is_begun` false: the verdict is that it can't be. */
static mr_status verify_rows_begin_chunk(struct mr_work *work, struct mr_cut *ret_cut,
                                         bool *ret_is_begun, struct mr_error *ret_error)
{
    struct mr_pg_conn *conn = work->tools->rows;
    struct mr_patience patience = {0};
    MR_TRY(mr_verify_begin(conn, ret_cut, ret_is_begun, ret_error));
    while (!*ret_is_begun && !mr_patience_ends(&patience, 0)) {
        MR_TRY(mr_pg_command(conn, "ROLLBACK", MR_PG_ANSWER_MS, ret_error));
        MR_TRY(mr_work_wait(work, STANDBY_LOOK_MS, ret_error));
        MR_TRY(mr_verify_begin(conn, ret_cut, ret_is_begun, ret_error));
    }
    if (!*ret_is_begun) {
        MR_PROOF_VOID(work->proof, MR_VERIFY_NONE, "standby",
                      "for a minute the standby has never replayed all that it has received (it is "
                      "behind, paused, or has no stream from its primary)");
        return mr_pg_command(conn, "ROLLBACK", MR_PG_ANSWER_MS, ret_error);
    }
    return MR_OK;
}

static mr_status verify_rows_read_chunk(struct mr_work *work, bool *ret_is_void,
                                        struct mr_error *ret_error)
{
    struct mr_cut cut;
    bool is_begun;
    *ret_is_void = false;
    MR_TRY(verify_rows_begin_chunk(work, &cut, &is_begun, ret_error));
    if (!is_begun) {
        return MR_OK;
    }
    mr_status status = read_chunk_rows(work, ret_is_void, ret_error);
    if (status == MR_OK) {
        status = mr_verify_end(work->tools->rows, &cut, ret_error);
    }
    MR_GROW(work->cuts, work->cut_room, (size_t)work->cut_count + 1);
    work->cuts[work->cut_count++] = cut;
    return status;
}

mr_status mr_work_read_rows(struct mr_work *work, bool *ret_is_void, struct mr_error *ret_error)
{
    mr_work_reset(work);
    work->proof->rows = 0;
    work->begun_ns = mr_monotonic_ns();
    do {
        MR_TRY(verify_rows_read_chunk(work, ret_is_void, ret_error));
    } while (!*ret_is_void && work->proof->cause == NULL && work->chunk_max > 0 &&
             work->chunk_rows == work->chunk_max);
    return MR_OK;
}
