#include "ledger/entry.h"

#include <inttypes.h>

#include "base/object.h"

#define SECTION "ledger"
enum { PLACE_TEXT_SIZE = 28 };
void mr_sum_text(struct mr_sum digest, char ret_text[MR_SUM_TEXT_SIZE])
{
    snprintf(ret_text, MR_SUM_TEXT_SIZE, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
}

cJSON *mr_entry_parts(const struct mr_parts *parts, struct mr_topics *topics)
{
    cJSON *json = cJSON_CreateArray();
    for (uint32_t i = 0; i < parts->index.count; i++) {
        const struct mr_part *part = &parts->items[i];
        bool is_of_others = part->topic == MR_TOPIC_OTHERS;
        char sum[MR_SUM_TEXT_SIZE];
        mr_sum_text(part->sum, sum);
        cJSON *one = cJSON_CreateArray();
        cJSON_AddItemToArray(json, one);
        cJSON_AddItemToArray(
            one, cJSON_CreateString(is_of_others ? "" : mr_topics_at(topics, part->topic)->name));
        cJSON_AddItemToArray(one, cJSON_CreateNumber(part->partition));
        cJSON_AddItemToArray(one, cJSON_CreateNumber((double)part->records));
        cJSON_AddItemToArray(one, cJSON_CreateString(sum));
    }
    return json;
}

/* As the beginning of mr-pos. */
static void add_place(cJSON *json, const char *name, struct mr_position place)
{
    char text[PLACE_TEXT_SIZE];
    snprintf(text, sizeof(text), "%016" PRIX64 "-%010" PRIX64, place.commit_lsn, place.ordinal);
    cJSON_AddStringToObject(json, name, text);
}

static void add_entry(cJSON *json, const struct mr_entry *entry, cJSON *parts)
{
    cJSON_AddNumberToObject(json, "n", (double)entry->number);
    cJSON_AddStringToObject(json, "prev", entry->prev);
    add_place(json, "from", entry->from);
    add_place(json, "to", entry->to);
    cJSON_AddItemToObject(json, "parts", parts);
}

char *mr_entry_format(const struct mr_entry *entry, const char *pipeline, cJSON *parts)
{
    MR_OBJECT cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "pipeline", pipeline);
    add_entry(json, entry, parts);
    return mr_object_text(json);
}

void mr_entry_store(const struct mr_entry *entry, cJSON *parts, cJSON *owed,
                    struct mr_checkpoint *checkpoint)
{
    MR_OBJECT cJSON *json = cJSON_CreateObject();
    add_entry(json, entry, parts);
    cJSON_AddItemToObject(json, "owed", owed);
    mr_checkpoint_add(checkpoint, SECTION, mr_object_text(json),
                      &(struct mr_section_rank){.minor = entry->number});
}

static bool entry_take_place(const cJSON *json, const char *name, struct mr_position *ret_place)
{
    const char *text = mr_object_string(json, name);
    int used = 0;
    return text != NULL && strlen(text) == PLACE_TEXT_SIZE - 1 &&
           sscanf(text, "%16" SCNx64 "-%10" SCNx64 "%n", &ret_place->commit_lsn,
                  &ret_place->ordinal, &used) == 2 &&
           used == PLACE_TEXT_SIZE - 1;
}

/* Each item of the array is one of the kind. */
static bool are(const cJSON *array, cJSON_bool (*is)(const cJSON *item))
{
    bool good = cJSON_IsArray(array);
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        good = good && is(item);
    }
    return good;
}

static bool entry_take(const cJSON *json, struct mr_entry *entry)
{
    const char *prev = mr_object_string(json, "prev");
    if (!mr_object_whole(json, "n", MR_OBJECT_WHOLE_MAX, &entry->number) || entry->number == 0 ||
        prev == NULL || strlen(prev) != MR_SUM_TEXT_SIZE - 1) {
        return false;
    }
    memcpy(entry->prev, prev, MR_SUM_TEXT_SIZE);
    return entry_take_place(json, "from", &entry->from) &&
           entry_take_place(json, "to", &entry->to) &&
           are(cJSON_GetObjectItemCaseSensitive(json, "parts"), cJSON_IsArray) &&
           are(cJSON_GetObjectItemCaseSensitive(json, "owed"), cJSON_IsString);
}

bool mr_entry_stored(const struct mr_checkpoint *checkpoint, struct mr_entry *ret_entry,
                     cJSON **ret_parts, cJSON **ret_owed)
{
    const struct mr_section *section = mr_checkpoint_section(checkpoint, SECTION);
    if (section == NULL) {
        return false;
    }
    MR_OBJECT cJSON *json = cJSON_Parse(section->json);
    MR_ASSERT(entry_take(json, ret_entry)); /* `rank` has read it */
    *ret_parts = cJSON_DetachItemFromObjectCaseSensitive(json, "parts");
    *ret_owed = cJSON_DetachItemFromObjectCaseSensitive(json, "owed");
    return true;
}

static bool rank(const char *json, struct mr_section_rank *ret_rank)
{
    MR_OBJECT cJSON *read = cJSON_Parse(json);
    struct mr_entry entry;
    bool good = entry_take(read, &entry);
    if (good) {
        *ret_rank = (struct mr_section_rank){.minor = entry.number};
    }
    return good;
}

const struct mr_section_kind mr_ledger_section_kind = {SECTION, 0, rank};
