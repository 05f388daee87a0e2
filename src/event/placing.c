#include "event/placing.h"

#include <inttypes.h>

#include "base/hash.h"
#include "event/lsn.h"

/* The stored record must fit; a topic takes some twenty bytes. */
enum { STORED_BYTES_MAX = 64 * 1024 };

struct mr_placings *mr_placings_new(bool is_stored)
{
    struct mr_placings *placings = MR_NEW(struct mr_placings);
    placings->is_stored = is_stored;
    return placings;
}

void mr_placings_free(struct mr_placings *placings)
{
    if (placings != NULL) {
        mr_free_all(placings->items, placings->by_hash.count);
        mr_index_done(&placings->by_hash);
        free(placings);
    }
}

static struct mr_placing *placing_find_or_make(struct mr_placings *placings, uint64_t hash)
{
    uint32_t number;
    MR_INDEX_FIND(number, &placings->by_hash, hash, placings->items[number]->hash == hash);
    if (number == MR_INDEX_NONE) {
        MR_GROW(placings->items, placings->capacity, placings->by_hash.count + 1);
        number = mr_index_add(&placings->by_hash, hash);
        placings->items[number] = MR_NEW(struct mr_placing);
        placings->items[number]->hash = hash;
    }
    return placings->items[number];
}

/* Markers go to as many partitions as records do (resolved/). */
static void tell_topic(const struct mr_placing *placing)
{
    if (placing->topic != NULL) {
        bool is_asked = placing->state == MR_PLACING_ASKED;
        mr_topic_set_partitions(placing->topic, is_asked ? placing->before : placing->count);
    }
}

static void change(struct mr_placing *placing, struct mr_position until,
                   enum mr_placing_state state)
{
    placing->before = placing->count;
    placing->count = placing->present;
    placing->until = until;
    placing->state = state;
    mr_log(MR_LOG_INFO, "partitions_added",
           "the topic has more partitions; records after the position are placed by their number",
           MR_LOG_STR("topic", placing->topic->name), MR_LOG_INT("partitions", placing->count),
           MR_LOG_INT("before", placing->before), MR_LOG_LSN("position", until.commit_lsn));
}

const struct mr_placing *mr_placings_see(struct mr_placings *placings, const struct mr_topic *topic,
                                         int32_t partitions)
{
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, topic->name, strlen(topic->name));
    struct mr_placing *placing = placing_find_or_make(placings, hash);
    placings->owes |= placing->topic == NULL || partitions != placing->present;
    placing->topic = topic;
    placing->present = partitions;
    if (placing->count == 0 || partitions < placing->count) { /* fewer: it was made anew */
        placing->count = partitions;
        placing->state = MR_PLACING_SETTLED;
    }
    if (partitions > placing->count && !placings->is_stored) {
        change(placing, placings->sent, MR_PLACING_CHANGED);
    }
    tell_topic(placing);
    return placing;
}

void mr_placings_note_sent(struct mr_placings *placings, struct mr_position position)
{
    if (mr_position_compare(placings->sent, position) < 0) {
        placings->sent = position;
    }
}

static void add_placing(struct mr_text *text, const struct mr_placing *placing)
{
    mr_text_format(text, "%s%" PRIx64 ".%" PRId32, text->len == 1 ? "" : " ", placing->hash,
                   placing->count);
    if (placing->state != MR_PLACING_SETTLED) {
        mr_text_format(text, ".%" PRId32 "." MR_LSN_FORMAT ":%" PRIu64, placing->before,
                       MR_LSN_ARGS(placing->until.commit_lsn), placing->until.ordinal);
    }
}

/* What can't be stored is this process's alone from now on. */
static void give_up_storing(struct mr_placings *placings)
{
    placings->is_stored = false;
    mr_log(MR_LOG_WARN, "topics_not_stored",
           "there are so many topics that their numbers of partitions are not stored: where "
           "partitions are added, repeats after a kill -9 may go to others than before",
           MR_LOG_INT("topics", placings->by_hash.count));
    mr_placings_settle(placings);
}

char *mr_placings_format(struct mr_placings *placings, mr_lsn end_lsn, mr_lsn server_end)
{
    struct mr_text text = {0};
    struct mr_position until = placings->sent;
    if (mr_position_compare(until, (struct mr_position){.commit_lsn = server_end}) < 0) {
        until = (struct mr_position){.commit_lsn = server_end};
    }
    if (!placings->is_stored) {
        return NULL;
    }
    mr_text_string(&text, "\"");
    for (uint32_t i = 0; i < placings->by_hash.count; i++) {
        struct mr_placing *placing = placings->items[i];
        if (placing->state == MR_PLACING_CHANGED && end_lsn > placing->until.commit_lsn) {
            placing->state = MR_PLACING_SETTLED;
        }
        if (placing->state == MR_PLACING_SETTLED && placing->present > placing->count) {
            change(placing, until, MR_PLACING_ASKED);
        }
        /* What other processes have sent came again by then. */
        bool is_over = placing->topic == NULL && server_end != 0 && end_lsn > server_end;
        if (!is_over) {
            add_placing(&text, placing);
        }
    }
    mr_text_string(&text, "\"");
    placings->owes = false;
    if (text.len > STORED_BYTES_MAX) {
        mr_text_done(&text);
        give_up_storing(placings);
    }
    return text.data;
}

void mr_placings_settle(struct mr_placings *placings)
{
    for (uint32_t i = 0; i < placings->by_hash.count; i++) {
        struct mr_placing *placing = placings->items[i];
        if (placing->state == MR_PLACING_ASKED) {
            placing->state = MR_PLACING_CHANGED;
            tell_topic(placing);
        }
    }
}

/* One of "1f3a77c0.6" and "1f3a77c0.6.2.0/1A2B3C:5"; NULL: it is of another form. */
static const char *take_placing(struct mr_placings *placings, const char *text)
{
    struct mr_placing found = {.state = MR_PLACING_SETTLED};
    char lsn[24];
    int used = 0, more = 0;
    if (sscanf(text, "%16" SCNx64 ".%9" SCNd32 "%n", &found.hash, &found.count, &used) != 2 ||
        found.count <= 0) {
        return NULL;
    }
    if (text[used] == '.') {
        if (sscanf(text + used, ".%9" SCNd32 ".%17[0-9A-F/]:%" SCNu64 "%n", &found.before, lsn,
                   &found.until.ordinal, &more) != 3 ||
            found.before <= 0 || !mr_lsn_parse(lsn, &found.until.commit_lsn, NULL)) {
            return NULL;
        }
        found.state = MR_PLACING_CHANGED;
    }
    struct mr_placing *placing = placing_find_or_make(placings, found.hash);
    found.topic = placing->topic;
    found.present =
        found.topic != NULL && placing->present > found.count ? placing->present : found.count;
    *placing = found;
    return text + used + more;
}

void mr_placings_take(struct mr_placings *placings, const char *json)
{
    for (uint32_t i = 0; i < placings->by_hash.count; i++) {
        struct mr_placing *placing = placings->items[i];
        if (placing->state == MR_PLACING_ASKED) {
            placing->count = placing->before;
            placing->state = MR_PLACING_SETTLED;
        }
    }
    const char *at = json;
    while (at != NULL && (*at == '"' || *at == ' ') && at[1] != '\0' && at[1] != '"') {
        at = take_placing(placings, at + 1);
    }
}
