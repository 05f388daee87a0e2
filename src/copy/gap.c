/* Where the stream went on last without what was in between: a section of the stored record, which
 * stays there (docs/reliability.md). Whoever finds rows missing later sees when, between which
 * positions, of which tables, and what was done about it. */
#include "base/clock.h"
#include "base/object.h"
#include "base/thread.h"
#include "copy/copies_internal.h"
#include "event/lsn.h"
#include "flow/port.h"

bool mr_gap_rank(const char *json, struct mr_section_rank *ret_rank)
{
    MR_OBJECT cJSON *gap = cJSON_Parse(json);
    *ret_rank = (struct mr_section_rank){0};
    return cJSON_IsObject(gap);
}

static void add_now(cJSON *gap, const char *name)
{
    int64_t ms = mr_wall_ns() / 1000000;
    cJSON_AddNumberToObject(gap, name, (double)ms);
}

static mr_lsn gap_lsn_of(const cJSON *gap, const char *name)
{
    mr_lsn lsn = 0;
    return mr_lsn_parse(mr_object_string(gap, name), &lsn, NULL) ? lsn : 0;
}

static int64_t ms_of(const cJSON *gap, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(gap, name);
    return cJSON_IsNumber(item) ? (int64_t)item->valuedouble : 0;
}

static bool gap_is_open(const cJSON *gap)
{
    return gap != NULL && cJSON_GetObjectItemCaseSensitive(gap, "settled") == NULL;
}

static struct mr_gap gap_view_of(const cJSON *gap)
{
    return (struct mr_gap){.is_open = gap_is_open(gap),
                           .from = gap_lsn_of(gap, "from"),
                           .to = gap_lsn_of(gap, "to"),
                           .from_ms = ms_of(gap, "from_ms"),
                           .at_ms = ms_of(gap, "at_ms")};
}

struct mr_gap mr_gap_stored(const struct mr_checkpoint *stored)
{
    const struct mr_section *section = mr_checkpoint_section(stored, MR_SECTION_GAP);
    MR_OBJECT cJSON *gap = section == NULL ? NULL : cJSON_Parse(section->json);
    return gap_view_of(gap);
}

struct mr_gap mr_copies_gap(struct mr_copies *copies)
{
    struct mr_chunk_requests *requests = copies->requests;
    MR_HOLD(&requests->lock);
    return gap_view_of(requests->gap);
}

static void gap_settle(cJSON *gap, const char *how)
{
    cJSON_DeleteItemFromObjectCaseSensitive(gap, "settled");
    cJSON_DeleteItemFromObjectCaseSensitive(gap, "settled_ms");
    cJSON_AddStringToObject(gap, "settled", how);
    add_now(gap, "settled_ms");
}

static cJSON *gap_new(const struct mr_checkpoint *known, mr_lsn from, mr_lsn to)
{
    cJSON *gap = cJSON_CreateObject();
    mr_lsn_add(gap, "from", from);
    mr_lsn_add(gap, "to", to);
    int64_t from_ms = known == NULL ? 0 : known->last.time_us / 1000;
    if (from_ms != 0) {
        cJSON_AddNumberToObject(gap, "from_ms", (double)from_ms);
    }
    add_now(gap, "at_ms");
    cJSON_AddObjectToObject(gap, "tables");
    return gap;
}

/* One before it that is open becomes a part of it. */
static void gap_join(cJSON *gap, cJSON *former)
{
    static const char *const parts[] = {"from", "from_ms", "tables", "others"};
    for (size_t i = 0; i < MR_ARRAY_LEN(parts); i++) {
        cJSON *part = cJSON_DetachItemFromObjectCaseSensitive(former, parts[i]);
        cJSON_DeleteItemFromObjectCaseSensitive(gap, parts[i]);
        if (part != NULL) {
            cJSON_AddItemToObject(gap, parts[i], part);
        }
    }
}

void mr_chunk_requests_note_gap(struct mr_chunk_requests *requests,
                                const struct mr_checkpoint *known, mr_lsn from, mr_lsn to,
                                bool is_new, bool is_copied)
{
    MR_HOLD(&requests->lock);
    cJSON *former = requests->gap;
    bool is_same = gap_lsn_of(former, "to") == to; /* another attempt at it */
    if (!is_same && !is_new) {
        return;
    }
    if (!is_same) {
        requests->gap = gap_new(known, from, to);
        if (gap_is_open(former)) {
            gap_join(requests->gap, former);
        }
        cJSON_Delete(former);
    }
    requests->gap_is_copied = is_copied;
}

mr_lsn mr_chunk_requests_gap_stored(struct mr_chunk_requests *requests)
{
    MR_HOLD(&requests->lock);
    return requests->gap_safe;
}

bool mr_chunk_requests_gap_is_safe(struct mr_chunk_requests *requests, mr_lsn to)
{
    MR_HOLD(&requests->lock);
    return !requests->stores || requests->gap_safe == to || gap_lsn_of(requests->gap, "to") != to;
}

/* Whether the record has room for one more name. */
static bool has_room(const struct mr_chunk_requests *requests, const cJSON *tables,
                     const char *table)
{
    enum { NUMBER = sizeof(",\"\":1000000000000000") }; /* and in a name a character may take six */
    size_t size = strlen(table) * 6 + NUMBER;
    const cJSON *one;
    cJSON_ArrayForEach(one, tables)
    {
        size += strlen(one->string) * 6 + NUMBER;
    }
    return size <= requests->stored_max / 4;
}

/* With the lock. */
static void gap_add_rows(const struct mr_chunk_requests *requests, const char *table, double rows)
{
    cJSON *gap = requests->gap;
    cJSON *tables = cJSON_GetObjectItemCaseSensitive(gap, "tables");
    cJSON *item = cJSON_GetObjectItemCaseSensitive(tables, table);
    cJSON *others = cJSON_GetObjectItemCaseSensitive(gap, "others");
    if (item == NULL && others == NULL) {
        bool fits = has_room(requests, tables, table);
        item = cJSON_AddNumberToObject(fits ? tables : gap, fits ? table : "others", 0);
    } else if (item == NULL) {
        item = others;
    }
    if (cJSON_IsNumber(item)) {
        cJSON_SetNumberValue(item, item->valuedouble + rows);
    }
}

void mr_gap_count(struct mr_chunk_requests *requests, const char *table, uint64_t rows)
{
    if (gap_is_open(requests->gap)) {
        gap_add_rows(requests, table, (double)rows);
    }
}

void mr_chunk_requests_add_gap(struct mr_chunk_requests *requests, struct mr_checkpoint *checkpoint)
{
    pthread_mutex_lock(&requests->lock);
    struct mr_gap gap = gap_view_of(requests->gap);
    bool is_copied = requests->gap_is_copied && checkpoint->end_lsn >= gap.to;
    if (is_copied) {
        gap_settle(requests->gap, "everything"); /* the record that says so ends the copy, too */
        requests->gap_is_copied = false;
    }
    requests->gap_given = gap.to;
    char *text = requests->gap == NULL ? NULL : cJSON_PrintUnformatted(requests->gap);
    pthread_mutex_unlock(&requests->lock);
    if (is_copied) {
        mr_log(MR_LOG_WARN, "gap_copied",
               "all rows were copied over a gap, without the deletes in it: rows that were deleted "
               "there are still in the topics until " MR_REPAIR_COMMAND " sends their deletes",
               MR_LOG_LSN("from", gap.from), MR_LOG_LSN("to", gap.to));
    }
    if (text != NULL) {
        mr_checkpoint_add(checkpoint, MR_SECTION_GAP, text, &(struct mr_section_rank){0});
    }
}

/* What is stored counts, unless something here is not stored yet. */
void mr_chunk_requests_adopt_gap(struct mr_chunk_requests *requests,
                                 const struct mr_checkpoint *stored)
{
    const struct mr_section *section = mr_checkpoint_section(stored, MR_SECTION_GAP);
    cJSON *gap = section == NULL ? NULL : cJSON_Parse(section->json);
    pthread_mutex_lock(&requests->lock);
    requests->gap_safe = gap_lsn_of(gap, "to");
    bool is_stored = requests->wish == MR_WISH_STORED &&
                     gap_lsn_of(gap, "to") == gap_lsn_of(requests->gap, "to");
    if (gap != NULL && (is_stored || gap_lsn_of(gap, "to") > gap_lsn_of(requests->gap, "to"))) {
        cJSON *former = requests->gap;
        requests->gap = gap;
        gap = former;
        requests->gap_is_copied = false; /* until somebody says so again */
    }
    struct mr_gap view = gap_view_of(requests->gap);
    bool tells = view.is_open && view.to != requests->gap_told;
    requests->gap_told = view.to;
    pthread_mutex_unlock(&requests->lock);
    cJSON_Delete(gap);
    if (tells) {
        mr_log(MR_LOG_WARN, "gap_open",
               "the stream went on without what committed in between: it is in no topic until a "
               "copy of all rows ends, or millrace recover has sent what differs",
               MR_LOG_LSN("from", view.from), MR_LOG_LSN("to", view.to));
    }
}

bool mr_copies_describe_gap(struct mr_copies *copies, const cJSON *tables, const char *settled)
{
    struct mr_chunk_requests *requests = copies->requests;
    pthread_mutex_lock(&requests->lock);
    cJSON *gap = requests->gap;
    const cJSON *table;
    cJSON_ArrayForEach(table, tables)
    {
        if (gap != NULL && cJSON_IsString(table)) {
            gap_add_rows(requests, table->valuestring, 0);
        }
    }
    if (gap != NULL && settled != NULL) {
        gap_settle(gap, settled);
    }
    mr_chunk_requests_note_wish(requests);
    pthread_mutex_unlock(&requests->lock);
    mr_port_want(requests->owner);
    return gap != NULL;
}
