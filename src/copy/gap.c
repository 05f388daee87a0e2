/* Where the stream went on last without what was in between: a section of the stored record, which stays there (docs/position.md).
 * Whoever finds rows missing later sees when, between which positions, of which tables, and what was done about it. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "base/clock.h"
#include "copy/copies_internal.h"
#include "event/lsn.h"
#include "flow/port.h"

enum { TABLES_MAX = 500 }; /* that are named */

bool mr_gap_rank(const char *json, struct mr_section_rank *ret_rank)
{
    cJSON *gap = cJSON_Parse(json);
    bool is_good = cJSON_IsObject(gap);
    *ret_rank = (struct mr_section_rank){0};
    cJSON_Delete(gap);
    return is_good;
}

static void add_lsn(cJSON *gap, const char *name, mr_lsn lsn)
{
    char text[32];
    snprintf(text, sizeof(text), MR_LSN_FORMAT, MR_LSN_ARGS(lsn));
    cJSON_AddStringToObject(gap, name, text);
}

static void add_now(cJSON *gap, const char *name)
{
    int64_t ms = mr_wall_ns() / 1000000;
    cJSON_AddNumberToObject(gap, name, (double)ms);
}

static mr_lsn end_of(const cJSON *gap)
{
    mr_lsn end = 0;
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(gap, "to"));
    return mr_lsn_parse(text, &end, NULL) ? end : 0;
}

static void settle(cJSON *gap, const char *how)
{
    cJSON_DeleteItemFromObjectCaseSensitive(gap, "settled");
    cJSON_DeleteItemFromObjectCaseSensitive(gap, "settled_ms");
    cJSON_AddStringToObject(gap, "settled", how);
    add_now(gap, "settled_ms");
}

static cJSON *gap_new(const struct mr_checkpoint *known, mr_lsn to)
{
    cJSON *gap = cJSON_CreateObject();
    add_lsn(gap, "from", known == NULL ? 0 : known->end_lsn);
    add_lsn(gap, "to", to);
    int64_t from_ms = known == NULL ? 0 : known->last.time_us / 1000;
    if (from_ms != 0) {
        cJSON_AddNumberToObject(gap, "from_ms", (double)from_ms);
    }
    add_now(gap, "at_ms");
    cJSON_AddObjectToObject(gap, "tables");
    return gap;
}

void mr_chunk_requests_note_gap(struct mr_chunk_requests *requests,
                                const struct mr_checkpoint *known, mr_lsn to, bool is_copied)
{
    pthread_mutex_lock(&requests->lock);
    if (end_of(requests->gap) != to) { /* else it is another attempt at the same */
        cJSON_Delete(requests->gap);
        requests->gap = gap_new(known, to);
    }
    if (is_copied) {
        settle(requests->gap, "everything");
    }
    pthread_mutex_unlock(&requests->lock);
}

/* With the lock. */
static void add_rows(cJSON *gap, const char *table, double rows)
{
    cJSON *tables = cJSON_GetObjectItemCaseSensitive(gap, "tables");
    cJSON *item = cJSON_GetObjectItemCaseSensitive(tables, table);
    if (item == NULL && cJSON_GetArraySize(tables) < TABLES_MAX) {
        item = cJSON_AddNumberToObject(tables, table, 0);
    } else if (item == NULL) { /* for all others */
        item = cJSON_GetObjectItemCaseSensitive(gap, "others");
        item = item == NULL ? cJSON_AddNumberToObject(gap, "others", 0) : item;
    }
    if (cJSON_IsNumber(item)) {
        cJSON_SetNumberValue(item, item->valuedouble + rows);
    }
}

void mr_gap_count(struct cJSON *gap, const char *table, uint64_t rows)
{
    if (gap != NULL && cJSON_GetObjectItemCaseSensitive(gap, "settled") == NULL) {
        add_rows(gap, table, (double)rows);
    }
}

void mr_chunk_requests_add_gap(struct mr_chunk_requests *requests, struct mr_checkpoint *checkpoint)
{
    pthread_mutex_lock(&requests->lock);
    char *text = requests->gap == NULL ? NULL : cJSON_PrintUnformatted(requests->gap);
    pthread_mutex_unlock(&requests->lock);
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
    bool is_stored = requests->wish == MR_WISH_STORED && end_of(gap) == end_of(requests->gap);
    if (gap != NULL && (is_stored || end_of(gap) > end_of(requests->gap))) {
        cJSON *former = requests->gap;
        requests->gap = gap;
        gap = former;
    }
    pthread_mutex_unlock(&requests->lock);
    cJSON_Delete(gap);
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
            add_rows(gap, table->valuestring, 0);
        }
    }
    if (gap != NULL && settled != NULL) {
        settle(gap, settled);
    }
    mr_chunk_requests_note_wish(requests);
    pthread_mutex_unlock(&requests->lock);
    mr_port_want(requests->owner);
    return gap != NULL;
}
