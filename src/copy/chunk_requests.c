#include "copy/chunk_requests.h"

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/thread.h"
#include "copy/copies_internal.h"
#include "flow/port.h"
#include "postgres/conn/condition.h"

enum {
    ENDED_KEPT = 32, /* that are at their ends */
    TOLD_INTERVAL_S = 10,
    KEYS_MAX = 256 * 1024, /* bytes of keys to repair, of all that are open */
};

const char *mr_copy_request_state_name(enum mr_copy_request_state state)
{
    static const char *const names[] = {
        [MR_REQUEST_CHECKED] = "checked", [MR_REQUEST_WAITING] = "waiting",
        [MR_REQUEST_COPIED] = "copied",   [MR_REQUEST_SETTLED] = "settled",
        [MR_REQUEST_DONE] = "done",       [MR_REQUEST_STOPPED] = "stopped",
        [MR_REQUEST_FAILED] = "failed",
    };
    return names[state];
}

static bool chunk_requests_is_open(const struct mr_chunk_request *request)
{
    return request->state <= MR_REQUEST_SETTLED;
}

struct mr_chunk_note {
    struct mr_chunk_note *next;
    uint64_t step, revision;
    uint64_t request; /* 0: none */
    struct mr_asked_place place;
};

static void request_free(struct mr_chunk_request *request)
{
    mr_asked_table_done(&request->asked);
    mr_chunk_keys_free(request->keys);
    free(request->parts);
    free(request);
}

void mr_chunk_requests_init(struct mr_chunk_requests *requests, struct mr_companion *owner)
{
    *requests = (struct mr_chunk_requests){.owner = owner};
    requests->last_note = &requests->notes;
    pthread_mutex_init(&requests->lock, NULL);
}

void mr_chunk_requests_attach(struct mr_chunk_requests *requests, bool stores, size_t stored_max)
{
    requests->stored_max = stored_max == 0 ? UINT32_MAX : stored_max;
    requests->stores = stores;
    atomic_store(&requests->adopted, !stores);
}

static void forget_note(struct mr_chunk_requests *requests)
{
    struct mr_chunk_note *note = requests->notes;
    requests->notes = note->next;
    if (requests->notes == NULL) {
        requests->last_note = &requests->notes;
    }
    mr_asked_place_done(&note->place);
    free(note);
}

static void forget_known(struct mr_chunk_requests *requests)
{
    for (uint32_t i = 0; i < MR_KNOWN_KINDS; i++) {
        free(requests->known.texts[i]);
        requests->known.texts[i] = NULL;
    }
    free(requests->known.ids);
    requests->known.ids = NULL;
    requests->known.count = 0;
    requests->known.kinds = 0;
}

void mr_chunk_requests_done(struct mr_chunk_requests *requests)
{
    while (requests->notes != NULL) {
        forget_note(requests);
    }
    while (requests->first != NULL) {
        struct mr_chunk_request *next = requests->first->next;
        request_free(requests->first);
        requests->first = next;
    }
    forget_known(requests);
    cJSON_Delete(requests->gap);
    pthread_mutex_destroy(&requests->lock);
}

/* Those at their ends go, the oldest first, when there are more than are kept. With the lock. */
static void chunk_requests_forget_ended(struct mr_chunk_requests *requests)
{
    uint32_t ended = 0;
    for (const struct mr_chunk_request *one = requests->first; one != NULL; one = one->next) {
        ended += !chunk_requests_is_open(one);
    }
    for (struct mr_chunk_request **at = &requests->first; *at != NULL && ended > ENDED_KEPT;) {
        struct mr_chunk_request *one = *at;
        if (chunk_requests_is_open(one)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        request_free(one);
        ended--;
    }
}

static void chunk_requests_append(struct mr_chunk_requests *requests,
                                  struct mr_chunk_request *request)
{
    chunk_requests_forget_ended(requests);
    struct mr_chunk_request **last = &requests->first;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = request;
    atomic_fetch_add(&requests->open, 1);
}

void mr_chunk_requests_note_wish(struct mr_chunk_requests *requests)
{
    atomic_fetch_add(&requests->revision, 1);
    requests->wish = MR_WISH_NEW;
}

static char *chunk_requests_text_of(const char *text)
{
    return text == NULL || text[0] == '\0' ? NULL : MR_STRDUP(text);
}

/* With the lock. Whether it fits beside all that are open: the stored record has what they ask, but
 * for keys. */
static const char *room_fault(const struct mr_chunk_requests *requests,
                              const struct mr_chunk_request *request)
{
    size_t stored = mr_asked_table_size(&request->asked);
    size_t keys = request->keys == NULL ? 0 : request->keys->bytes;
    for (const struct mr_chunk_request *one = requests->first; one != NULL; one = one->next) {
        stored += chunk_requests_is_open(one) ? mr_asked_table_size(&one->asked) : 0;
        keys += chunk_requests_is_open(one) && one->keys != NULL ? one->keys->bytes : 0;
    }
    return atomic_load(&requests->open) >= MR_COPY_REQUESTS_MAX - ENDED_KEPT || keys > KEYS_MAX
               ? "too many tables wait for their copies; ask again later"
           : stored > requests->stored_max
               ? "the conditions and keys of all tables that wait for their copies would take too "
                 "much of the stored position; ask again later, or with a shorter condition"
               : NULL;
}

static bool chunk_requests_is_named(const struct mr_chunk_request *request, const char *schema,
                                    const char *table)
{
    return strcmp(request->asked.schema, schema) == 0 && strcmp(request->asked.table, table) == 0;
}

/* With the lock. One that is to stop does not bring all rows any more, and one that repairs never
 * does. */
static bool chunk_requests_is_asked(const struct mr_chunk_requests *requests, const char *schema,
                                    const char *table)
{
    const struct mr_chunk_request *one = requests->first;
    while (one != NULL && !(chunk_requests_is_open(one) && !one->stops && one->repairs == NULL &&
                            chunk_requests_is_named(one, schema, table))) {
        one = one->next;
    }
    return one != NULL;
}

/* With the lock. What is in the way; NULL: the request is in the list. */
static const char *chunk_requests_add(struct mr_chunk_requests *requests,
                                      const struct mr_copy_wish *wish, uint64_t *ret_id)
{
    struct mr_chunk_request *request = MR_NEW(struct mr_chunk_request);
    bool fits =
        strlen(wish->schema) <= MR_IDENTIFIER_MAX && strlen(wish->table) <= MR_IDENTIFIER_MAX;
    request->asked = (struct mr_asked_table){.schema = MR_STRDUP(wish->schema),
                                             .table = MR_STRDUP(wish->table),
                                             .where = chunk_requests_text_of(wish->where),
                                             .key = chunk_requests_text_of(wish->key),
                                             .is_signal = wish->is_signal};
    request->keys = wish->keys;
    request->repairs = wish->keys == NULL ? NULL : wish->keys->why;
    const char *fault =
        !fits ? "no table has so long a name"
        : request->repairs == NULL && chunk_requests_is_asked(requests, wish->schema, wish->table)
            ? "its rows are being copied, or wait for it, already"
            : room_fault(requests, request);
    if (fault != NULL) {
        request_free(request);
        return fault;
    }
    request->asked.id = ++requests->last_id;
    *ret_id = request->asked.id;
    chunk_requests_append(requests, request);
    mr_chunk_requests_note_wish(requests);
    return NULL;
}

static void log_repair(const struct mr_copy_wish *wish, uint32_t keys, const char *why)
{
    mr_log(MR_LOG_INFO, "repair_asked",
           "rows of a table are to be sent once more, or deleted from its topic, because they "
           "differ there",
           MR_LOG_STR("schema", wish->schema), MR_LOG_STR("table", wish->table),
           MR_LOG_STR("why", why), MR_LOG_INT("keys", keys));
}

mr_status mr_chunk_requests_ask(struct mr_chunk_requests *requests, const struct mr_copy_wish *wish,
                                uint64_t *ret_id, struct mr_error *ret_error)
{
    if (wish->keys != NULL) {
        log_repair(wish, wish->keys->count, wish->keys->why);
    }
    const char *wrong = mr_sql_condition_fault(wish->where);
    pthread_mutex_lock(&requests->lock);
    const char *fault = wrong == NULL ? chunk_requests_add(requests, wish, ret_id) : NULL;
    pthread_mutex_unlock(&requests->lock);
    if (fault != NULL || wrong != NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG, "table %.255s.%.255s: %s%s", wish->schema,
                       wish->table, wrong == NULL ? "" : MR_SQL_CONDITION_REFUSED,
                       wrong == NULL ? fault : wrong);
    }
    mr_port_want(requests->owner);
    return MR_OK;
}

void mr_copies_follow(struct mr_copies *copies, uint32_t kinds)
{
    struct mr_chunk_requests *requests = copies->requests;
    MR_HOLD(&requests->lock);
    requests->follows = kinds;
    if (kinds == 0) {
        forget_known(requests);
    }
}

static bool was_known(const struct mr_chunk_requests *requests, uint64_t id)
{
    return mr_search(&id, requests->known.ids, requests->known.count, sizeof(*requests->known.ids),
                     mr_u64_compare) != NULL;
}

/* With the lock. The partitions of a root that is new itself come with it, or as somebody asks. */
static bool chunk_requests_lacks(const struct mr_chunk_requests *requests,
                                 const struct mr_streamed_table *table)
{
    bool is_leaf = table->root != 0;
    uint32_t kind = is_leaf ? MR_FOLLOW_LEAVES : MR_FOLLOW_TABLES;
    bool may = !is_leaf || (table->root != table->id && was_known(requests, table->root));
    return may && (requests->known.kinds & kind) != 0 && !was_known(requests, table->id);
}

bool mr_copies_lacks(struct mr_copies *copies, const struct mr_streamed_table *table)
{
    struct mr_chunk_requests *requests = copies->requests;
    MR_HOLD(&requests->lock);
    return chunk_requests_lacks(requests, table);
}

/* A table is known from the moment on when it is asked for: both are stored in one. With the lock.
 * A copy of its root that is under way may have passed a partition's rows, so that waits for its
 * own. */
static bool chunk_requests_is_known(struct mr_chunk_requests *requests,
                                    const struct mr_streamed_table *table)
{
    if (!chunk_requests_lacks(requests, table)) {
        return true;
    }
    bool is_leaf = table->root != 0;
    struct mr_copy_wish wish = {
        .schema = table->schema, .table = table->table, .where = table->where};
    uint64_t id;
    return (!is_leaf || table->where != NULL) &&
           (chunk_requests_add(requests, &wish, &id) == NULL ||
            (!is_leaf && chunk_requests_is_asked(requests, table->schema, table->table)));
}

/* With the lock; takes the ids over. */
static void set_known(struct mr_chunk_requests *requests, uint32_t kinds, uint64_t *known,
                      uint32_t count)
{
    forget_known(requests);
    requests->known.kinds = kinds;
    requests->known.ids = known;
    requests->known.count = count;
    for (uint32_t i = 0; i < MR_KNOWN_KINDS; i++) {
        requests->known.texts[i] =
            (kinds & 1U << i) == 0
                ? NULL
                : mr_asked_known_format(known, count, i, requests->stored_max * 3 / 2);
    }
}

/* With the lock. */
static bool leaves_out(const struct mr_chunk_requests *requests)
{
    bool leaves_out = false;
    for (uint32_t i = 0; i < MR_KNOWN_KINDS; i++) {
        leaves_out |= (requests->known.kinds & 1U << i) != 0 && requests->known.texts[i] == NULL;
    }
    return leaves_out;
}

void mr_copies_streamed(struct mr_copies *copies, const struct mr_streamed_table *tables,
                        uint32_t count)
{
    struct mr_chunk_requests *requests = copies->requests;
    uint64_t *known = MR_NEW_ARRAY(uint64_t, count + 1);
    uint32_t known_count = 0;
    pthread_mutex_lock(&requests->lock);
    bool does = requests->follows != 0 && requests->adopted;
    for (uint32_t i = 0; does && i < count; i++) {
        known[known_count] = tables[i].id;
        known_count += chunk_requests_is_known(requests, &tables[i]);
    }
    bool changes = does && (requests->known.kinds != requests->follows ||
                            known_count != requests->known.count ||
                            (known_count > 0 && memcmp(known, requests->known.ids,
                                                       known_count * sizeof(*known)) != 0));
    bool left_out = leaves_out(requests);
    if (changes) {
        set_known(requests, requests->follows, known, known_count);
        mr_chunk_requests_note_wish(requests);
    } else {
        free(known);
    }
    bool is_new = !left_out && leaves_out(requests);
    pthread_mutex_unlock(&requests->lock);
    if (is_new) {
        mr_log(MR_LOG_WARN, "partitions_not_stored",
               "there are more tables or partitions than are stored: those that join while "
               "millrace does not run are not copied",
               MR_LOG_INT("most_partitions", MR_KNOWN_LEAVES_MAX),
               MR_LOG_STR("remedy", "after a restart have their tables copied: millrace snapshot"));
    }
    mr_port_want(requests->owner);
}

/* `context`: schema and table that are meant; NULL: all. */
static bool keeps_others(void *context, const char *schema, const char *table)
{
    const char *const *meant = context;
    return meant[1] != NULL && (strcmp(meant[0], schema) != 0 || strcmp(meant[1], table) != 0);
}

uint32_t mr_copies_stop(struct mr_copies *copies, const char *schema, const char *table)
{
    const char *meant[] = {schema, table};
    return mr_copies_keep(copies, keeps_others, meant);
}

uint32_t mr_copies_keep(struct mr_copies *copies, mr_copy_keeps_fn keeps, void *context)
{
    struct mr_chunk_requests *requests = copies->requests;
    uint32_t count = 0;
    pthread_mutex_lock(&requests->lock);
    for (struct mr_chunk_request *one = requests->first; one != NULL; one = one->next) {
        if (chunk_requests_is_open(one) && !keeps(context, one->asked.schema, one->asked.table)) {
            one->stops = true;
            count++;
        }
    }
    if (count > 0) {
        mr_chunk_requests_note_wish(requests);
    }
    pthread_mutex_unlock(&requests->lock);
    mr_port_want(requests->owner);
    return count;
}

void mr_copies_pause(struct mr_copies *copies, bool pauses)
{
    struct mr_chunk_requests *requests = copies->requests;
    pthread_mutex_lock(&requests->lock);
    bool is_new = atomic_exchange(&requests->paused, pauses) != pauses;
    if (is_new) {
        mr_chunk_requests_note_wish(requests);
    }
    pthread_mutex_unlock(&requests->lock);
    if (is_new) {
        mr_log(MR_LOG_INFO, pauses ? "incremental_paused" : "incremental_resumed",
               pauses ? "no further existing rows are copied until that is asked for"
                      : "copying existing rows goes on");
    }
    mr_port_want(requests->owner);
}

uint32_t mr_copies_requests(struct mr_copies *copies, struct mr_copy_request *ret, uint32_t max,
                            bool *ret_paused)
{
    struct mr_chunk_requests *requests = copies->requests;
    uint32_t count = 0;
    *ret_paused = atomic_load(&requests->paused);
    int64_t now_ns = mr_monotonic_ns();
    MR_HOLD(&requests->lock);
    for (const struct mr_chunk_request *one = requests->first; one != NULL && count < max;
         one = one->next) {
        struct mr_copy_request *to = &ret[count++];
        int64_t end_ns = one->ended_ns != 0 ? one->ended_ns : now_ns;
        *to = (struct mr_copy_request){
            .id = one->asked.id,
            .state = one->state,
            .repairs = one->repairs,
            .rows = one->done.rows,
            .rows_estimated = one->rows_estimated,
            .passed_over = one->done.passed_over,
            .chunks = one->done.chunks,
            .repeated = one->done.repeated,
            .seconds = one->begun_ns == 0 ? 0 : (double)(end_ns - one->begun_ns) / 1e9,
        };
        snprintf(to->table, sizeof(to->table), "%s.%s", one->asked.schema, one->asked.table);
        memcpy(to->error, one->error, sizeof(to->error));
    }
    return count;
}

bool mr_copies_is_stored(struct mr_copies *copies)
{
    struct mr_chunk_requests *requests = copies->requests;
    MR_HOLD(&requests->lock);
    return !requests->stores || requests->wish == MR_WISH_STORED;
}

const char *mr_moved_name(enum mr_moved_how how)
{
    static const char *const names[] = {[MR_MOVED_ATTACHED] = "attached",
                                        [MR_MOVED_DETACHED] = "detached",
                                        [MR_MOVED_DROPPED] = "dropped",
                                        [MR_MOVED_TRUNCATED] = "truncated"};
    return names[how];
}

void mr_copies_count_moved(struct mr_copies *copies, enum mr_moved_how how, uint32_t partitions)
{
    MR_HOLD(&copies->requests->lock);
    copies->requests->moved[how] += partitions;
}

struct mr_incremental_stats mr_copies_incremental(struct mr_copies *copies)
{
    struct mr_chunk_requests *requests = copies->requests;
    MR_HOLD(&requests->lock);
    struct mr_incremental_stats stats = {
        .held = requests->held,
        .paused = atomic_load(&requests->paused),
        .tables = atomic_load(&requests->open),
        .rows = requests->done.rows,
        .passed_over = requests->done.passed_over,
        .chunks = requests->done.chunks,
        .repeated = requests->done.repeated,
    };
    memcpy(stats.moved, requests->moved, sizeof(stats.moved));
    return stats;
}

bool mr_chunk_requests_hold(struct mr_chunk_requests *requests,
                            const struct mr_chunk_holder *holder)
{
    struct mr_held_up held = {0};
    if (holder != NULL) {
        snprintf(held.by, sizeof(held.by), "%s", holder->by.who);
        snprintf(held.since, sizeof(held.since), "%s", holder->by.since);
    }
    MR_HOLD(&requests->lock);
    bool is_other = strcmp(requests->held.by, held.by) != 0;
    requests->held = held;
    return is_other;
}

static void chunk_requests_name_of(const struct mr_chunk_request *request, char *name, size_t size)
{
    snprintf(name, size, "%s.%s", request->asked.schema, request->asked.table);
}

static void chunk_requests_tell_end(const struct mr_chunk_request *request)
{
    char name[2 * MR_IDENTIFIER_MAX + 2];
    chunk_requests_name_of(request, name, sizeof(name));
    if (request->state == MR_REQUEST_FAILED) {
        mr_log(MR_LOG_ERROR, "incremental_failed", request->error, MR_LOG_STR("table", name),
               MR_LOG_INT("rows", request->done.rows));
        return;
    }
    int64_t ns = request->begun_ns == 0 ? 0 : request->ended_ns - request->begun_ns;
    mr_log(MR_LOG_INFO,
           request->state == MR_REQUEST_DONE ? "incremental_done" : "incremental_stopped",
           request->state == MR_REQUEST_DONE ? "the existing rows of a table are copied"
                                             : "the copy of a table's existing rows was ended",
           MR_LOG_STR("table", name), MR_LOG_INT("rows", request->done.rows),
           MR_LOG_INT("passed_over", request->done.passed_over),
           MR_LOG_INT("chunks", request->done.chunks),
           MR_LOG_INT("repeated", request->done.repeated), MR_LOG_INT("ms", ns / 1000000));
}

void mr_chunk_request_set(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                          enum mr_copy_request_state state)
{
    pthread_mutex_lock(&requests->lock);
    bool was_open = chunk_requests_is_open(request);
    request->state = state;
    bool ends = was_open && !chunk_requests_is_open(request);
    if (ends) {
        request->ended_ns = mr_monotonic_ns();
        if (state == MR_REQUEST_DONE && request->repairs != NULL) {
            char name[2 * MR_IDENTIFIER_MAX + 2];
            chunk_requests_name_of(request, name, sizeof(name));
            mr_gap_count(requests, name, request->done.rows);
        }
        mr_chunk_keys_free(request->keys);
        request->keys = NULL;
        atomic_fetch_sub(&requests->open, 1);
        atomic_fetch_add(&requests->revision, !request->asked.place.settled);
    }
    pthread_mutex_unlock(&requests->lock);
    if (ends) {
        chunk_requests_tell_end(request);
    }
}

void mr_chunk_request_fail(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                           const struct mr_error *error)
{
    pthread_mutex_lock(&requests->lock);
    snprintf(request->error, sizeof(request->error), "%.511s", error->text);
    pthread_mutex_unlock(&requests->lock);
    mr_chunk_request_set(requests, request, MR_REQUEST_FAILED);
}

struct mr_chunk_request *mr_chunk_requests_first(struct mr_chunk_requests *requests,
                                                 enum mr_copy_request_state state)
{
    MR_HOLD(&requests->lock);
    struct mr_chunk_request *one = requests->first;
    while (one != NULL && one->state != state) {
        one = one->next;
    }
    return one;
}

static struct mr_chunk_request *chunk_requests_find(const struct mr_chunk_requests *requests,
                                                    uint64_t id)
{
    struct mr_chunk_request *one = requests->first;
    while (one != NULL && one->asked.id != id) {
        one = one->next;
    }
    return one;
}

struct mr_chunk_request *mr_chunk_requests_of(struct mr_chunk_requests *requests, uint64_t id)
{
    MR_HOLD(&requests->lock);
    return chunk_requests_find(requests, id);
}

struct mr_chunk_request *mr_chunk_requests_over(struct mr_chunk_requests *requests)
{
    MR_HOLD(&requests->lock);
    struct mr_chunk_request *one = requests->first;
    while (one != NULL &&
           !(chunk_requests_is_open(one) && (one->stops || (one->state == MR_REQUEST_SETTLED &&
                                                            one->end == MR_REQUEST_END_STORED)))) {
        one = one->next;
    }
    return one;
}

struct mr_asked_place mr_chunk_request_begin(struct mr_chunk_requests *requests,
                                             struct mr_chunk_request *request)
{
    uint32_t oid = request->parts[request->part].oid;
    pthread_mutex_lock(&requests->lock);
    bool goes_on = request->asked.place.oid != 0;
    struct mr_asked_place place = {0};
    if (request->asked.place.oid == oid) {
        place = mr_asked_place_copy(&request->asked.place);
    }
    pthread_mutex_unlock(&requests->lock);
    place.oid = oid;
    if (request->begun_ns == 0) {
        char name[2 * MR_IDENTIFIER_MAX + 2];
        chunk_requests_name_of(request, name, sizeof(name));
        mr_log(MR_LOG_INFO, goes_on ? "incremental_continued" : "incremental_begun",
               goes_on ? "goes on copying the existing rows of a table, while the stream runs"
                       : "copying the existing rows of a table, while the stream runs",
               MR_LOG_STR("table", name), MR_LOG_INT("rows", request->done.rows),
               MR_LOG_INT("parts", request->part_count),
               MR_LOG_INT("rows_estimated", request->rows_estimated));
        pthread_mutex_lock(&requests->lock);
        request->begun_ns = mr_monotonic_ns();
        pthread_mutex_unlock(&requests->lock);
        request->told_ns = request->begun_ns;
    }
    mr_chunk_request_set(requests, request, MR_REQUEST_COPIED);
    return place;
}

/* The part that is next. Parts come by their OIDs; a table by itself may be another one of that
 * name by now. */
static uint32_t chunk_requests_part_of(const struct mr_chunk_request *request)
{
    uint32_t part = 0;
    while (part < request->part_count && request->parts[part].oid < request->asked.place.oid) {
        part++;
    }
    return request->part_count == 1 ? 0 : part;
}

void mr_chunk_request_found(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                            struct mr_chunk_table *parts, uint32_t count)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        rows += parts[i].rows;
    }
    rows = request->keys == NULL ? rows : request->keys->count;
    free(request->parts);
    request->parts = parts;
    request->part_count = count;
    pthread_mutex_lock(&requests->lock);
    request->rows_estimated = rows;
    request->part = chunk_requests_part_of(request);
    request->end = request->part < count ? MR_REQUEST_END_OPEN : MR_REQUEST_END_STORED;
    pthread_mutex_unlock(&requests->lock);
    mr_chunk_request_set(requests, request,
                         request->part < count ? MR_REQUEST_WAITING : MR_REQUEST_SETTLED);
}

static void chunk_requests_tell_progress(struct mr_chunk_request *request, int64_t now_ns)
{
    if (now_ns - request->told_ns < TOLD_INTERVAL_S * INT64_C(1000000000)) {
        return;
    }
    request->told_ns = now_ns;
    char name[2 * MR_IDENTIFIER_MAX + 2];
    chunk_requests_name_of(request, name, sizeof(name));
    mr_log(MR_LOG_INFO, "incremental_progress", "copying existing rows, while the stream runs",
           MR_LOG_STR("table", name), MR_LOG_INT("rows", request->done.rows),
           MR_LOG_INT("rows_estimated", request->rows_estimated),
           MR_LOG_INT("chunks", request->done.chunks),
           MR_LOG_INT("repeated", request->done.repeated),
           MR_LOG_INT("seconds", (now_ns - request->begun_ns) / 1000000000));
}

static void add_done(struct mr_chunks_done *to, const struct mr_chunks_done *more)
{
    to->rows += more->rows;
    to->passed_over += more->passed_over;
    to->chunks += more->chunks;
    to->repeated += more->repeated;
}

void mr_chunk_request_did(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                          const struct mr_chunks_done *more)
{
    pthread_mutex_lock(&requests->lock);
    add_done(&requests->done, more);
    add_done(&request->done, more);
    pthread_mutex_unlock(&requests->lock);
    if (more->chunks > 0) {
        chunk_requests_tell_progress(request, mr_monotonic_ns());
    }
}

/* With the lock. The step's note of that request, which may be there already: no batch has carried
 * it yet. */
static struct mr_chunk_note *note_of(struct mr_chunk_requests *requests, uint64_t step, uint64_t id)
{
    for (struct mr_chunk_note *note = requests->notes; note != NULL; note = note->next) {
        MR_ASSERT(note->step <= step);
        if (note->step == step && note->request == id) {
            return note;
        }
    }
    struct mr_chunk_note *note = MR_NEW(struct mr_chunk_note);
    note->step = step;
    note->request = id;
    *requests->last_note = note;
    requests->last_note = &note->next;
    return note;
}

void mr_chunk_requests_note(struct mr_chunk_requests *requests, uint64_t step,
                            const struct mr_chunk_request *request,
                            const struct mr_asked_place *place)
{
    MR_HOLD(&requests->lock);
    struct mr_chunk_note *note = note_of(requests, step, request == NULL ? 0 : request->asked.id);
    if (request != NULL) {
        mr_asked_place_done(&note->place);
        note->place = mr_asked_place_copy(place);
        note->place.rows = request->done.rows;
        note->place.passed_over = request->done.passed_over;
        atomic_fetch_add(&requests->revision, 1);
    }
    note->revision = atomic_load(&requests->revision);
}

void mr_chunk_requests_begin_anew(struct mr_chunk_requests *requests)
{
    MR_HOLD(&requests->lock);
    while (requests->notes != NULL) {
        forget_note(requests);
    }
    for (struct mr_chunk_request *one = requests->first; one != NULL; one = one->next) {
        one->end = one->asked.place.settled ? MR_REQUEST_END_STORED : MR_REQUEST_END_OPEN;
        one->stops = one->stops || (one->keys != NULL && !one->asked.place.settled);
        if ((one->state == MR_REQUEST_COPIED || one->state == MR_REQUEST_SETTLED ||
             one->state == MR_REQUEST_WAITING) &&
            !one->asked.place.settled) {
            one->state = MR_REQUEST_CHECKED;
            one->done.rows = one->asked.place.rows;
            one->done.passed_over = one->asked.place.passed_over;
        }
    }
}

void mr_chunk_requests_safe(struct mr_chunk_requests *requests, uint64_t step)
{
    MR_HOLD(&requests->lock);
    while (requests->notes != NULL && requests->notes->step <= step) {
        struct mr_chunk_note *note = requests->notes;
        struct mr_chunk_request *request =
            note->request == 0 ? NULL : chunk_requests_find(requests, note->request);
        if (request != NULL) {
            struct mr_asked_place former = request->asked.place;
            request->asked.place = note->place;
            note->place = former;
        }
        requests->safe = note->revision > requests->safe ? note->revision : requests->safe;
        forget_note(requests);
    }
}

/* With the lock: the revision that is safe with that step. */
static uint64_t revision_of(const struct mr_chunk_requests *requests, uint64_t step)
{
    uint64_t revision = requests->safe;
    for (const struct mr_chunk_note *note = requests->notes; note != NULL && note->step <= step;
         note = note->next) {
        revision = note->revision > revision ? note->revision : revision;
    }
    return revision;
}

static void chunk_requests_tell_table(const struct mr_chunk_requests *requests,
                                      struct mr_chunk_request *request, uint64_t step,
                                      struct mr_asked_stored *state)
{
    const struct mr_asked_place *place = &request->asked.place;
    for (const struct mr_chunk_note *note = requests->notes; note != NULL && note->step <= step;
         note = note->next) {
        place = note->request == request->asked.id ? &note->place : place;
    }
    request->told = request->repairs == NULL;
    if (place->settled && request->end == MR_REQUEST_END_OPEN) {
        request->end = MR_REQUEST_END_TOLD;
    }
    if (place->settled || request->stops || request->repairs != NULL) {
        return;
    }
    state->tables[state->count++] = mr_asked_table_copy(&request->asked, place);
}

struct mr_asked_stored *mr_chunk_requests_state(struct mr_chunk_requests *requests, uint64_t step)
{
    struct mr_asked_stored *state = NULL;
    MR_HOLD(&requests->lock);
    bool paused = atomic_load(&requests->paused);
    requests->wish = requests->wish == MR_WISH_STORED ? MR_WISH_STORED : MR_WISH_TOLD;
    if (requests->last_id > 0 || paused || requests->known.kinds != 0) {
        state = MR_NEW(struct mr_asked_stored);
        *state = (struct mr_asked_stored){
            .step = revision_of(requests, step),
            .last_id = requests->last_id,
            .paused = paused,
            .tables = MR_NEW_ARRAY(struct mr_asked_table, atomic_load(&requests->open) + 1),
        };
        for (uint32_t i = 0; i < MR_KNOWN_KINDS; i++) {
            const char *text = requests->known.texts[i];
            state->known[i] = text == NULL ? NULL : MR_STRDUP(text);
        }
        for (struct mr_chunk_request *one = requests->first; one != NULL; one = one->next) {
            if (chunk_requests_is_open(one)) {
                chunk_requests_tell_table(requests, one, step, state);
            }
        }
        requests->told_id = requests->last_id;
    }
    return state;
}

void mr_chunk_requests_stored(struct mr_chunk_requests *requests)
{
    MR_HOLD(&requests->lock);
    requests->wish = requests->wish == MR_WISH_TOLD ? MR_WISH_STORED : requests->wish;
    requests->gap_safe = requests->gap_given;
    for (struct mr_chunk_request *one = requests->first; one != NULL; one = one->next) {
        bool ends =
            one->end == MR_REQUEST_END_TOLD || (!requests->stores && one->asked.place.settled);
        one->end = ends ? MR_REQUEST_END_STORED : one->end;
    }
}

static const struct mr_asked_table *stored_of(const struct mr_asked_stored *stored,
                                              const struct mr_chunk_request *request)
{
    for (uint32_t i = 0; i < stored->count; i++) {
        const struct mr_asked_table *one = &stored->tables[i];
        if (one->id == request->asked.id &&
            chunk_requests_is_named(request, one->schema, one->table)) {
            return one;
        }
    }
    return NULL;
}

/* What was stored without one that the sink has been told of was stored when that was at its
 * end. */
static void adopt_ours(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                       const struct mr_asked_stored *stored)
{
    const struct mr_asked_table *known = request->told ? stored_of(stored, request) : NULL;
    if (known != NULL) {
        mr_asked_place_done(&request->asked.place);
        request->asked.place = mr_asked_place_copy(&known->place);
        request->done.rows = known->place.rows;
        request->done.passed_over = known->place.passed_over;
    } else if (!request->told && request->asked.id <= stored->last_id) {
        request->asked.id = ++requests->last_id;
    } else if (request->asked.id <= stored->last_id) {
        request->asked.place.settled = true;
        request->state = MR_REQUEST_SETTLED;
        request->end = MR_REQUEST_END_STORED;
    }
}

static void adopt_theirs(struct mr_chunk_requests *requests, const struct mr_asked_table *table)
{
    struct mr_chunk_request *request = MR_NEW(struct mr_chunk_request);
    *request = (struct mr_chunk_request){
        .asked = mr_asked_table_copy(table, &table->place),
        .done = {.rows = table->place.rows, .passed_over = table->place.passed_over},
        .told = true,
    };
    chunk_requests_append(requests, request);
}

static void adopt_known(struct mr_chunk_requests *requests, const struct mr_asked_stored *stored)
{
    uint64_t *known = NULL;
    uint32_t count = 0, kinds = 0;
    for (uint32_t i = 0; requests->follows != 0 && i < MR_KNOWN_KINDS; i++) {
        bool has =
            stored->known[i] != NULL && mr_asked_known_parse(stored->known[i], i, &known, &count);
        kinds |= has ? 1U << i : 0;
    }
    mr_sort(known, count, sizeof(*known), mr_u64_compare);
    set_known(requests, kinds, known, count);
}

void mr_chunk_requests_adopt(struct mr_chunk_requests *requests,
                             const struct mr_asked_stored *stored)
{
    MR_HOLD(&requests->lock);
    if (stored != NULL && stored->step > requests->safe) {
        uint64_t ours = requests->told_id;
        if (atomic_load(&requests->revision) < stored->step) {
            atomic_store(&requests->revision, stored->step);
            atomic_store(&requests->paused, stored->paused);
            adopt_known(requests, stored);
        }
        if (requests->last_id < stored->last_id) {
            requests->last_id = stored->last_id;
        }
        for (struct mr_chunk_request *one = requests->first; one != NULL; one = one->next) {
            if (chunk_requests_is_open(one)) {
                adopt_ours(requests, one, stored);
            }
        }
        for (uint32_t i = 0; i < stored->count; i++) {
            if (stored->tables[i].id > ours &&
                chunk_requests_find(requests, stored->tables[i].id) == NULL) {
                adopt_theirs(requests, &stored->tables[i]);
            }
        }
        requests->safe = stored->step;
    }
    atomic_store(&requests->adopted, true);
}
