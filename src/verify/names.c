#include "verify/proof_internal.h"

/* Gives those that have no event their names: mr_verify_row_fn of a second look at the table, at its keys. */
static mr_status name_row(void *context, uint32_t xid, const mr_slice *values,
                          struct mr_error *ret_error)
{
    (void)xid;
    (void)ret_error;
    struct mr_work *work = context;
    struct mr_digest key;
    bool good = mr_verify_server_key(&work->table, values[0], &key);
    for (uint32_t i = 0; good && i < work->proof->named_count; i++) {
        struct mr_verify_named *named = &work->proof->named[i];
        if (named->key == NULL && mr_digest_equal(named->difference.key, key)) {
            named->key = MR_STRNDUP((const char *)values[0].data, values[0].len);
        }
    }
    return MR_OK;
}

static void name_eventless(struct mr_work *work)
{
    struct mr_pg_conn *conn = work->tools->conn;
    const struct mr_verify_range keys = {.keys_alone = true};
    struct mr_cut unused;
    if (mr_verify_begin(conn, &unused, NULL) == MR_OK) {
        mr_cut_done(&unused);
        (void)mr_verify_rows(conn, work->proof->listed, &work->table, &keys, name_row, work, NULL);
        (void)mr_pg_command(conn, "COMMIT", MR_PG_ANSWER_MS, NULL);
    }
}

/* By the record of the key's last event. */
static mr_status name_by_record(struct mr_work *work, struct mr_verify_named *named)
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

void mr_work_name(struct mr_work *work)
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
