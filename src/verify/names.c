#include "verify/proof_internal.h"

/* Named keys whose records are asked for one by one: a topic may be much larger. */
enum { FETCHED_MAX = 100 };

/* What is named, found by the place of the last event, then by the key. */
struct naming {
    struct mr_work *work;
    struct mr_index index;
};

/* Gives those that have no event their names: mr_verify_row_fn of a second look at the table, at
 * its keys. */
static mr_status verify_name_row(void *context, uint32_t xid, const mr_slice *values,
                                 struct mr_error *ret_error)
{
    const struct naming *naming = context;
    struct mr_verify_named *named = naming->work->proof->named;
    struct mr_digest key;
    uint32_t number = MR_INDEX_NONE;
    if (mr_verify_server_key(&naming->work->table, values[0], &key)) {
        MR_INDEX_FIND(number, &naming->index, key.low,
                      named[number].key == NULL &&
                          mr_digest_equal(named[number].difference.key, key));
    }
    if (number != MR_INDEX_NONE) {
        named[number].key = MR_STRNDUP((const char *)values[0].data, values[0].len);
        named[number].asked = MR_STRNDUP((const char *)values[1].data, values[1].len);
    }
    return MR_OK;
}

static void name_eventless(struct naming *naming)
{
    const struct mr_work *work = naming->work;
    struct mr_pg_conn *conn = work->tools->rows;
    const struct mr_verify_range keys = {.keys_alone = true};
    struct mr_cut unused;
    struct mr_error error = {0}; /* what has no name then is told by its hash */
    bool is_known;
    mr_index_clear(&naming->index);
    for (uint32_t i = 0; i < work->proof->named_count; i++) {
        mr_index_add(&naming->index, work->proof->named[i].difference.key.low);
    }
    if (mr_verify_begin(conn, &unused, &is_known, &error) == MR_OK) {
        mr_cut_done(&unused);
        (void)mr_verify_rows(conn, work->proof->listed, &work->table, &keys, verify_name_row,
                             naming, &error);
        (void)mr_pg_command(conn, "COMMIT", MR_PG_ANSWER_MS, &error);
    }
}

static uint64_t place_hash(int32_t partition, int64_t offset)
{
    return (uint64_t)partition << 48 ^ (uint64_t)offset;
}

/* By the records of the keys' last events, each asked for. */
static void name_by_fetching(struct mr_work *work)
{
    mr_status status = MR_OK;
    for (uint32_t i = 0; i < work->proof->named_count && status == MR_OK; i++) {
        struct mr_verify_named *named = &work->proof->named[i];
        const struct mr_fold_record *last = &named->difference.last;
        struct mr_kafka_read read;
        if (last->offset < 0) {
            continue;
        }
        status = mr_kafka_reader_fetch(work->tools->reader, work->table.topic, last->partition,
                                       last->offset, &read, NULL);
        const char *fault = NULL;
        status = status == MR_OK ? mr_avro_read(work->tools->avro, &read, &fault, NULL) : status;
        if (status == MR_OK && fault == NULL && read.key.data != NULL) {
            named->key = MR_STRNDUP((const char *)read.key.data, read.key.len);
        }
        status = status == MR_END ? MR_OK : status;
    }
}

/* Where so many are named, the topic is read once more. */
static void name_by_reading(struct naming *naming, uint32_t count)
{
    struct mr_work *work = naming->work;
    struct mr_verify_named *named = work->proof->named;
    struct mr_kafka_reader *reader = work->tools->reader;
    struct mr_kafka_read read;
    struct mr_patience patience = {0};
    uint64_t records = 0;
    mr_status status = mr_kafka_reader_open(reader, work->table.topic, &work->extent, NULL);
    while (count > 0 && (status == MR_OK || status == MR_AGAIN) &&
           mr_work_wait(work, 0, NULL) == MR_OK && !mr_patience_ends(&patience, records)) {
        uint32_t number = MR_INDEX_NONE;
        status = mr_kafka_reader_next(reader, &read, NULL);
        if (status == MR_OK) {
            records++;
            MR_INDEX_FIND(number, &naming->index, place_hash(read.partition, read.offset),
                          named[number].difference.last.partition == read.partition &&
                              named[number].difference.last.offset == read.offset);
        }
        const char *fault;
        if (number != MR_INDEX_NONE &&
            mr_avro_read(work->tools->avro, &read, &fault, NULL) == MR_OK && fault == NULL) {
            named[number].key = MR_STRNDUP((const char *)read.key.data, read.key.len);
            count--;
        }
    }
}

void mr_work_name(struct mr_work *work)
{
    const struct mr_proof *proof = work->proof;
    struct naming naming = {.work = work};
    uint32_t with_event = 0;
    for (uint32_t i = 0; i < proof->named_count && work->table.key_count > 0; i++) {
        const struct mr_fold_record *last = &proof->named[i].difference.last;
        with_event += last->offset >= 0;
        mr_index_add(&naming.index, place_hash(last->partition, last->offset));
    }
    if (with_event <= FETCHED_MAX) {
        name_by_fetching(work);
    } else {
        name_by_reading(&naming, with_event);
    }
    if (naming.index.count > with_event) {
        name_eventless(&naming);
    }
    mr_index_done(&naming.index);
    if (work->tools->options->repairs && proof->converts && proof->unrepairable[0] == '\0') {
        mr_work_turn_back(work);
    }
}
