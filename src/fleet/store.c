/* The fleet's topics: read, and written in one transaction. */
#include "fleet/store.h"

#include <inttypes.h>
#include <limits.h>
#include <pwd.h>

#include "base/clock.h"
#include "kafka/kafka_writer.h"

enum {
    SILENCE_MAX = 90, /* half seconds: longer than a transaction whose writer was killed */
    AGAIN_US = 100000,
};
/* Until the partitions of a new topic have leaders; a broker that is away takes longer, and is asked once. */
#define AGAIN_NS (INT64_C(29) * 1000000000)

char *mr_fleet_topic(const char *name, bool is_status)
{
    return mr_formatted("__millrace_fleet.%s%s", name, is_status ? ".status" : "");
}

void mr_fleet_store_close(struct fleet_store *store)
{
    mr_kafka_reader_free(store->reader);
    mr_kafka_writer_free(store->writer);
    free(store->transactional_id);
    *store = (struct fleet_store){.own = store->own};
}

static mr_status need_writer(struct fleet_store *store, struct mr_error *ret_error)
{
    return store->writer != NULL
               ? MR_OK
               : mr_kafka_writer_new(&store->own->config->kafka, store->transactional_id,
                                     &store->writer, ret_error);
}

static mr_status create(struct fleet_store *store, bool is_status, struct mr_error *ret_error)
{
    MR_FREED char *topic = mr_fleet_topic(store->own->name, is_status);
    return mr_kafka_writer_create(store->writer, topic, is_status ? 1 : FLEET_PARTITIONS,
                                  ret_error);
}

mr_status mr_fleet_store_tell(struct fleet_store *store, const struct fleet_record *record,
                              struct mr_error *ret_error)
{
    MR_TRY(need_writer(store, ret_error));
    MR_FREED char *topic = mr_fleet_topic(store->own->name, true);
    MR_FREED char *key = mr_fleet_record_key(record);
    MR_FREED char *value = mr_fleet_record_value(record);
    const struct mr_kafka_written written = {
        .key = mr_slice_of(key), .value = value == NULL ? (mr_slice){0} : mr_slice_of(value)};
    mr_kafka_writer_send(store->writer, topic, &written, 1);
    return MR_OK;
}

/* ---- all of it ---- */

static int compare_items(const void *a, const void *b)
{
    const struct fleet_record *one = &((const struct fleet_stored_item *)a)->record;
    const struct fleet_record *other = &((const struct fleet_stored_item *)b)->record;
    int order = (int)one->kind - (int)other->kind;
    order = order != 0 ? order : strcmp(one->definition.name, other->definition.name);
    return order != 0 ? order
                      : ((const struct fleet_stored_item *)a)->from -
                            ((const struct fleet_stored_item *)b)->from;
}

static void sort(struct fleet_stored *stored)
{
    if (stored->count > 0) {
        qsort(stored->items, stored->count, sizeof(*stored->items), compare_items);
    }
}

/* Of a partition; -1: of any. A node's name is where a definition's is. */
static struct fleet_stored_item *find(const struct fleet_stored *stored,
                                      enum fleet_record_kind kind, const char *name, int32_t from)
{
    for (uint32_t i = 0; i < stored->count; i++) {
        struct fleet_stored_item *item = &stored->items[i];
        if (item->record.kind == kind && (from < 0 || item->from == from) &&
            strcmp(item->record.definition.name, name) == 0) {
            return item;
        }
    }
    return NULL;
}

struct fleet_stored_item *mr_fleet_stored_find(const struct fleet_stored *stored,
                                               enum fleet_record_kind kind, const char *name)
{
    return find(stored, kind, name, -1);
}

static struct fleet_stored_item *append(struct fleet_stored *stored,
                                        const struct fleet_stored_item *item)
{
    MR_GROW(stored->items, stored->room, stored->count + 1);
    stored->items[stored->count] = *item;
    return &stored->items[stored->count++];
}

struct fleet_stored_item *mr_fleet_stored_change(struct fleet_stored *stored,
                                                 enum fleet_record_kind kind, const char *name)
{
    struct fleet_stored_item *item = find(stored, kind, name, -1);
    if (item == NULL) {
        item = append(stored, &(struct fleet_stored_item){.record.kind = kind, .from = -1});
        item->record.definition.name = MR_STRDUP(name);
    }
    item->is_changed = true;
    return item;
}

void mr_fleet_stored_done(struct fleet_stored *stored)
{
    struct fleet_record revision = {.kind = FLEET_RECORD_REVISION, .revision = stored->revision};
    mr_fleet_record_done(&revision);
    for (uint32_t i = 0; i < stored->count; i++) {
        mr_fleet_record_done(&stored->items[i].record);
    }
    free(stored->items);
    *stored = (struct fleet_stored){0};
}

/* The last one of a partition counts. Partitions come in any order: of a pipeline that was moved, the tombstone may come last. */
static void take_item(struct fleet_stored *stored, struct fleet_record *record, bool is_wrong,
                      const struct mr_kafka_read *read)
{
    const struct fleet_stored_item new = {.record = *record,
                                          .from = read->partition,
                                          .is_wrong = is_wrong,
                                          .digest = mr_sha256_short(read->value)};
    struct fleet_stored_item *item =
        find(stored, record->kind, record->definition.name, read->partition);
    if (item == NULL) {
        append(stored, &new);
    } else {
        mr_fleet_record_done(&item->record);
        *item = new;
    }
    *record = (struct fleet_record){.kind = FLEET_RECORD_OTHER};
}

static mr_status take_record(struct fleet_stored *stored, bool is_status,
                             const struct mr_kafka_read *read, struct mr_error *ret_error)
{
    struct fleet_record record;
    mr_status status = mr_fleet_record_read(is_status, read, &record, ret_error);
    bool is_wrong = status == MR_ERR_PROTOCOL;
    if (record.kind == FLEET_RECORD_REVISION && status == MR_OK && !record.is_gone) {
        struct fleet_record before = {.kind = FLEET_RECORD_REVISION, .revision = stored->revision};
        stored->revision = record.revision;
        record = before;
    } else if (record.kind != FLEET_RECORD_REVISION && record.kind != FLEET_RECORD_OTHER &&
               (status == MR_OK || is_wrong)) {
        take_item(stored, &record, is_wrong, read);
    }
    mr_fleet_record_done(&record);
    return is_wrong ? MR_OK : status;
}

/* A partition that has no leader yet, or another one, says so. */
static mr_status open_topic(struct fleet_store *store, const char *topic,
                            struct mr_kafka_extent *ret_extent, struct mr_error *ret_error)
{
    int64_t end_ns = mr_monotonic_ns() + AGAIN_NS;
    mr_status status;
    while ((status = mr_kafka_reader_open(store->reader, topic, ret_extent, ret_error)) ==
               MR_ERR_TRANSIENT &&
           mr_monotonic_ns() < end_ns) {
        usleep(AGAIN_US);
    }
    return status;
}

/* Calls take_record for each record up to the end that the topic has now. */
static mr_status read_topic(struct fleet_store *store, bool is_status, struct fleet_stored *to,
                            struct mr_error *ret_error)
{
    struct mr_kafka_extent extent = {0};
    struct mr_kafka_read read;
    uint32_t silent = 0;
    if (store->reader == NULL) {
        MR_TRY(mr_kafka_reader_new(&store->own->config->kafka, &store->reader, ret_error));
    }
    MR_FREED char *topic = mr_fleet_topic(store->own->name, is_status);
    mr_status status = open_topic(store, topic, &extent, ret_error);
    to->partitions = (int32_t)extent.partitions;
    if (status == MR_OK && !is_status &&
        (extent.partitions == 1 || extent.partitions > FLEET_PARTITIONS)) {
        status = mr_fail(ret_error, MR_ERR_CONFIG,
                         "Kafka topic \"%s\" has %u partitions, and must have from 2 to %d; delete "
                         "it, and run millrace fleet apply",
                         topic, extent.partitions, FLEET_PARTITIONS);
    }
    while (status == MR_OK) {
        status = mr_kafka_reader_next(store->reader, &read, ret_error);
        silent = status == MR_AGAIN ? silent + 1 : 0;
        if (status == MR_OK) {
            status = take_record(to, is_status, &read, ret_error);
        } else if (status == MR_AGAIN && silent == SILENCE_MAX) {
            status = mr_fail(ret_error, MR_ERR_TRANSIENT,
                             "Kafka topic \"%s\" can't be read: nothing comes, although there is "
                             "more",
                             topic);
        } else if (status == MR_AGAIN) {
            status = MR_OK;
        }
    }
    return status == MR_END ? MR_OK : status;
}

/* Of names and values, in the order of the names. */
static struct mr_sha256_short digest_of(const struct fleet_stored *stored, uint64_t *ret_count)
{
    MR_TEXT(all);
    *ret_count = 0;
    mr_text_string(&all, "");
    for (uint32_t i = 0; i < stored->count; i++) {
        const struct fleet_stored_item *item = &stored->items[i];
        if (item->record.kind == FLEET_RECORD_DEFINITION && !item->record.is_gone) {
            mr_text_format(&all, "%s %s\n", item->record.definition.name, item->digest.text);
            ++*ret_count;
        }
    }
    return mr_sha256_short(mr_slice_of(all.data));
}

/* Without tombstones, in order. */
static mr_status tidy(struct fleet_stored *stored, struct mr_error *ret_error)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < stored->count; i++) {
        if (stored->items[i].record.is_gone) {
            mr_fleet_record_done(&stored->items[i].record);
        } else {
            stored->items[kept++] = stored->items[i];
        }
    }
    stored->count = kept;
    sort(stored);
    for (uint32_t i = 1; i < kept; i++) {
        const struct fleet_stored_item *item = &stored->items[i];
        if (item[-1].record.kind == item->record.kind &&
            strcmp(item[-1].record.definition.name, item->record.definition.name) == 0) {
            return mr_fail(ret_error, MR_ERR_PROTOCOL,
                           "the fleet's topic has pipeline %s in partitions %d and %d; write a "
                           "record without value for it to one of them",
                           item->record.definition.name, item[-1].from, item->from);
        }
    }
    return MR_OK;
}

mr_status mr_fleet_stored_read(struct fleet_store *store, bool is_status, struct fleet_stored *ret,
                               struct mr_error *ret_error)
{
    *ret = (struct fleet_stored){0};
    mr_status status = read_topic(store, is_status, ret, ret_error);
    status = MR_THEN(status, tidy(ret, ret_error));
    if (status != MR_OK) {
        mr_fleet_stored_done(ret);
        return status;
    }
    uint64_t count;
    const struct mr_sha256_short digest = digest_of(ret, &count);
    ret->is_whole = count == ret->revision.count &&
                    (count == 0 || strcmp(digest.text, ret->revision.sha256) == 0);
    ret->next = ret->revision.number + 1;
    return MR_OK;
}

mr_status mr_fleet_change_begin(struct fleet_store *store, struct fleet_stored *ret,
                                struct mr_error *ret_error)
{
    struct fleet_stored seen;
    *ret = (struct fleet_stored){0};
    store->transactional_id = mr_formatted("millrace-fleet/%s", store->own->name);
    MR_TRY(need_writer(store, ret_error));
    MR_TRY(mr_kafka_writer_fence(store->writer, ret_error));
    MR_TRY(mr_fleet_stored_read(store, true, &seen, ret_error));
    mr_status status = mr_fleet_stored_read(store, false, ret, ret_error);
    status = MR_THEN(status, seen.partitions > 0 ? MR_OK : create(store, true, ret_error));
    status = MR_THEN(status, ret->partitions > 0 ? MR_OK : create(store, false, ret_error));
    /* Read once more, until it is seen, and its partitions have leaders: a commit would wait longer for them. Another may have made it just now,
     * with fewer partitions. */
    int64_t end_ns = mr_monotonic_ns() + AGAIN_NS;
    while (status == MR_OK && ret->partitions == 0 && mr_monotonic_ns() < end_ns) {
        status = mr_fleet_stored_read(store, false, ret, ret_error);
        usleep(ret->partitions == 0 ? AGAIN_US : 0);
    }
    for (uint32_t i = 0; i < seen.count && status == MR_OK; i++) {
        const struct fleet_record *record = &seen.items[i].record;
        bool is_agent = record->kind == FLEET_RECORD_NODE_STATUS && !seen.items[i].is_wrong;
        ret->next = is_agent && record->node_status.revision >= ret->next
                        ? record->node_status.revision + 1
                        : ret->next;
    }
    mr_fleet_stored_done(&seen);
    return status;
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* The step from place to place of `n`, by the golden section, so that the first ones are spread whether a group's members have ranges of
 * partitions or each so-manieth. In order, 60 pipelines came to one of three agents. */
static int32_t step_of(int32_t n)
{
    int32_t step = (n * 618 + 500) / 1000;
    while (common_divisor(step, n) != 1) {
        step++;
    }
    return step;
}

int32_t mr_fleet_place(const struct fleet_stored *stored, const bool *allowed)
{
    uint64_t weights[FLEET_PARTITIONS] = {0};
    int32_t best = 0;
    int32_t places = (stored->partitions == 0 ? FLEET_PARTITIONS : stored->partitions) - 1;
    for (uint32_t i = 0; i < stored->count; i++) {
        const struct fleet_record *record = &stored->items[i].record;
        if (record->kind == FLEET_RECORD_DEFINITION && !record->is_gone &&
            record->definition.partition < FLEET_PARTITIONS) {
            weights[record->definition.partition] +=
                record->definition.terms.weight == 0 ? 1 : record->definition.terms.weight;
        }
    }
    for (int32_t i = 0, step = step_of(places); i < places; i++) {
        int32_t at = 1 + i * step % places;
        if (allowed == NULL || allowed[at]) {
            best = best == 0 || weights[at] < weights[best] ? at : best;
        }
    }
    return best;
}

static struct fleet_revision next_revision(const struct fleet_stored *stored)
{
    char host[HOST_NAME_MAX + 1] = "?";
    char at[32];
    time_t now = (time_t)(mr_wall_ns() / 1000000000);
    struct tm utc;
    const struct passwd *user = getpwuid(getuid());
    gethostname(host, sizeof(host) - 1);
    strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    struct fleet_revision next = {.number = stored->next, .at = MR_STRDUP(at)};
    next.by = mr_formatted("%s@%s", user == NULL ? "?" : user->pw_name, host);
    const struct mr_sha256_short digest = digest_of(stored, &next.count);
    next.sha256 = MR_STRDUP(digest.text);
    return next;
}

/* What is to be written, with texts of its own. */
struct written {
    struct mr_kafka_written *items;
    uint32_t count, room;
};

static void write_record(struct written *written, int32_t partition,
                         const struct fleet_record *record, char *value)
{
    MR_GROW(written->items, written->room, written->count + 1);
    written->items[written->count++] =
        (struct mr_kafka_written){.partition = partition,
                                  .key = mr_slice_of(mr_fleet_record_key(record)),
                                  .value = value == NULL ? (mr_slice){0} : mr_slice_of(value)};
}

static void write_item(struct written *written, struct fleet_stored *stored,
                       struct fleet_stored_item *item)
{
    struct fleet_record *record = &item->record;
    struct fleet_definition *definition = &record->definition;
    bool is_definition = record->kind == FLEET_RECORD_DEFINITION;
    if (is_definition && !record->is_gone) {
        definition->revision = stored->next;
        definition->partition =
            definition->partition == 0 ? mr_fleet_place(stored, NULL) : definition->partition;
    }
    int32_t partition = is_definition ? definition->partition : 0;
    if (item->from >= 0 && (record->is_gone || item->from != partition)) {
        write_record(written, item->from, record, NULL);
    }
    if (!record->is_gone && !item->is_wrong) {
        char *value = mr_fleet_record_value(record);
        item->digest = mr_sha256_short(mr_slice_of(value));
        write_record(written, partition, record, value);
    }
}

mr_status mr_fleet_change_commit(struct fleet_store *store, struct fleet_stored *stored,
                                 struct mr_error *ret_error)
{
    struct written written = {0};
    struct fleet_record revision = {.kind = FLEET_RECORD_REVISION};
    for (uint32_t i = 0; i < stored->count; i++) {
        if (stored->items[i].is_changed) {
            write_item(&written, stored, &stored->items[i]);
        }
    }
    sort(stored);
    revision.revision = next_revision(stored);
    write_record(&written, 0, &revision, mr_fleet_record_value(&revision));
    MR_FREED char *topic = mr_fleet_topic(store->own->name, false);
    mr_status status =
        mr_kafka_writer_commit(store->writer, topic, written.items, written.count, ret_error);
    for (uint32_t i = 0; i < written.count; i++) {
        free((void *)(uintptr_t)written.items[i].key.data);
        free((void *)(uintptr_t)written.items[i].value.data);
    }
    free(written.items);
    mr_fleet_record_done(&revision);
    if (status == MR_OK) {
        fprintf(stderr, "fleet %s: revision %" PRIu64 "\n", store->own->name, stored->next);
    }
    return status;
}

mr_status mr_fleet_work_begin(struct fleet_work *work, const struct mr_fleet_options *options,
                              FILE *to, struct mr_error *ret_error)
{
    *work = (struct fleet_work){.options = options, .to = to};
    work->store.own = &work->own;
    MR_TRY(mr_fleet_own_read(options->path, &work->own, ret_error));
    return mr_programs_start(&work->own.config->programs, ret_error);
}

void mr_fleet_work_done(struct fleet_work *work)
{
    mr_fleet_stored_done(&work->stored);
    mr_fleet_store_close(&work->store);
    mr_fleet_own_done(&work->own);
}

mr_status mr_fleet_outcome(mr_status status, const struct mr_error *error, int *ret_code)
{
    if (status != MR_AGAIN) {
        return status;
    }
    fprintf(stderr, "millrace: nothing was written: %s; plan again\n", error->text);
    *ret_code = FLEET_CHANGES;
    return MR_OK;
}
