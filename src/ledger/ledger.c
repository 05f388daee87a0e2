#include "ledger/ledger.h"

#include "base/clock.h"
#include "flow/port.h"

enum {
    /* A range with so many parts is sealed at once: the stored record stays small, and ranges name
     * their partitions. */
    PARTS_ENOUGH = MR_RANGE_PARTS_MAX / 2,
    /* While so many are owed none is sealed, and the range at hand grows: during a long transaction
     * none can be appended. */
    OWED_MAX = 4,
};
#define RANGE_BYTES (UINT64_C(64) * 1024 * 1024)
/* A place for a record, or the end of a transaction, is looked for so often. */
#define LOOK_AGAIN_NS (INT64_C(50) * 1000000)

/* The record of a sealed range that is not safe yet. */
struct owed {
    char *value;
    bool is_stored;
    uint64_t step; /* of the stream's lane, with which it is safe; 0: it is not appended */
};

struct mr_ledger {
    struct mr_companion base;
    struct mr_ledger_options options;

    /* ---- sink thread ---- */
    struct mr_sums sums;
    struct mr_entry at_hand; /* the range that is not sealed */
    uint64_t told_step;      /* the section that was made last leaves out what is safe with it */

    /* ---- source thread ---- */
    int64_t look_ns;

    /* ---- both, with the lock ---- */
    pthread_mutex_t lock;
    struct owed *owed; /* in order, without gaps */
    uint32_t owed_count, owed_room;
    int64_t due_ns; /* when the range at hand is to be sealed, monotonic; 0: it is empty */
};

static struct mr_ledger *ledger_of(struct mr_companion *companion)
{
    return (struct mr_ledger *)companion;
}

static void owe(struct mr_ledger *ledger, char *value, bool is_stored)
{
    MR_GROW(ledger->owed, ledger->owed_room, ledger->owed_count + 1);
    ledger->owed[ledger->owed_count++] = (struct owed){.value = value, .is_stored = is_stored};
}

/* The first `count` are owed no longer. */
static void ledger_settle(struct mr_ledger *ledger, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(ledger->owed[i].value);
    }
    ledger->owed_count -= count;
    if (ledger->owed_count > 0) {
        memmove(ledger->owed, ledger->owed + count, ledger->owed_count * sizeof(*ledger->owed));
    }
}

/* A process that begins with the same stored position makes the same record. */
static void seal(struct mr_ledger *ledger, cJSON *parts, bool is_stored)
{
    struct mr_entry *entry = &ledger->at_hand;
    char *value = mr_entry_format(entry, ledger->options.pipeline, parts);
    owe(ledger, value, is_stored);
    entry->number++;
    entry->from = entry->to;
    mr_sum_text(mr_sum_of(value, strlen(value)), entry->prev);
}

static void sent(struct mr_companion *companion, const struct mr_record *record, int32_t partition)
{
    struct mr_ledger *ledger = ledger_of(companion);
    if (MR_LIKELY(record->topic != ledger->options.topic)) {
        mr_sums_add(&ledger->sums, record, partition);
    }
}

/* Nothing is known of what was delivered before. */
static void begin_chain(struct mr_ledger *ledger, const struct mr_checkpoint *stored)
{
    mr_lsn begins = mr_port_published(ledger->base.port);
    ledger->at_hand = (struct mr_entry){.number = 1, .to = stored->position};
    if (stored->position.commit_lsn == 0 && begins != 0) {
        ledger->at_hand.to.commit_lsn = begins - 1; /* copied rows and markers lie there */
    }
    mr_sum_text((struct mr_sum){0}, ledger->at_hand.prev);
}

/* The range at hand is sealed: each is of one session, so that a reader who finds records twice has
 * all of a range from one of them. */
static void ledger_go_on(struct mr_ledger *ledger, cJSON *parts, cJSON *owed)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, owed)
    {
        owe(ledger, MR_STRDUP(item->valuestring), true);
    }
    cJSON_Delete(owed);
    if (cJSON_GetArraySize(parts) > 0) {
        if (ledger->owed_count >= OWED_MAX) { /* the section must fit: this range says nothing */
            cJSON_Delete(parts);
            parts = cJSON_CreateArray();
        }
        seal(ledger, parts, true);
    } else {
        cJSON_Delete(parts);
    }
}

static void ledger_adopt(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    struct mr_ledger *ledger = ledger_of(companion);
    cJSON *parts, *owed;
    pthread_mutex_lock(&ledger->lock);
    ledger_settle(ledger, ledger->owed_count);
    if (mr_entry_stored(stored, &ledger->at_hand, &parts, &owed)) {
        ledger_go_on(ledger, parts, owed);
    } else {
        begin_chain(ledger, stored);
    }
    ledger->at_hand.from = ledger->at_hand.to;
    ledger->due_ns = 0;
    pthread_mutex_unlock(&ledger->lock);
    mr_sums_begin(&ledger->sums, ledger->at_hand.from);
    mr_port_want(companion);
}

/* A range begins, or is sealed. */
static void take_range(struct mr_ledger *ledger, int64_t now_ns)
{
    const struct mr_range *range = &ledger->sums.range;
    ledger->at_hand.from = range->from;
    ledger->at_hand.to = range->to;
    if (ledger->due_ns == 0 && range->parts.index.count > 0) {
        ledger->due_ns = now_ns + (int64_t)ledger->options.interval_ms * 1000000;
        mr_port_want(&ledger->base); /* it is sealed though nothing more comes */
    }
    bool is_enough = now_ns >= ledger->due_ns || range->bytes >= RANGE_BYTES ||
                     range->parts.index.count >= PARTS_ENOUGH;
    if (ledger->due_ns != 0 && is_enough && ledger->owed_count < OWED_MAX) {
        seal(ledger, mr_entry_parts(&range->parts, ledger->options.topics), false);
        mr_sums_next_range(&ledger->sums);
        ledger->due_ns = 0;
    }
}

static void ledger_section(struct mr_companion *companion, const struct mr_reach *reach,
                           struct mr_checkpoint *checkpoint)
{
    struct mr_ledger *ledger = ledger_of(companion);
    cJSON *owed = cJSON_CreateArray();
    mr_sums_fold(&ledger->sums, reach);
    ledger->told_step = reach->steps[MR_LANE_STREAM];
    pthread_mutex_lock(&ledger->lock);
    take_range(ledger, mr_monotonic_ns());
    for (uint32_t i = 0; i < ledger->owed_count; i++) {
        const struct owed *one = &ledger->owed[i];
        if (one->step == 0 || one->step > ledger->told_step) {
            cJSON_AddItemToArray(owed, cJSON_CreateString(one->value));
        }
    }
    pthread_mutex_unlock(&ledger->lock);
    mr_entry_store(&ledger->at_hand,
                   mr_entry_parts(&ledger->sums.range.parts, ledger->options.topics), owed,
                   checkpoint);
}

static void ledger_stored(struct mr_companion *companion)
{
    struct mr_ledger *ledger = ledger_of(companion);
    uint32_t safe = 0;
    pthread_mutex_lock(&ledger->lock);
    for (uint32_t i = 0; i < ledger->owed_count; i++) {
        ledger->owed[i].is_stored = true;
        safe += ledger->owed[i].step != 0 && ledger->owed[i].step <= ledger->told_step;
    }
    ledger_settle(ledger, safe); /* they were appended in order */
    bool any = ledger->owed_count > 0;
    pthread_mutex_unlock(&ledger->lock);
    if (any) {
        mr_port_want(companion);
    }
}

/* The key is the beginning of the value. */
static mr_status ledger_append(struct mr_ledger *ledger, struct owed *owed)
{
    const char *end = strstr(owed->value, ",\"prev\":");
    struct mr_port *port = ledger->base.port;
    struct mr_error error;
    MR_TEXT(key);
    struct mr_record record = {.topic = ledger->options.topic,
                               .commit_time_us = mr_wall_ns() / 1000};
    mr_text_format(&key, "%.*s}", end == NULL ? 0 : (int)(end - owed->value), owed->value);
    mr_record_set_key(&record, mr_slice_of(key.data));
    mr_record_set_value(&record, mr_slice_of(owed->value));
    mr_status status = mr_port_append_record(port, &record, &error);
    MR_ASSERT(status == MR_OK || status == MR_FULL || status == MR_AGAIN);
    owed->step = status == MR_OK ? mr_port_note(port->stream) : 0;
    return status;
}

/* A range that is due is sealed with the next position: a step brings one where nothing else
 * does. */
static mr_status ledger_between(struct mr_companion *companion)
{
    struct mr_ledger *ledger = ledger_of(companion);
    int64_t now_ns = mr_monotonic_ns();
    mr_status status = MR_OK;
    pthread_mutex_lock(&ledger->lock);
    for (uint32_t i = 0; i < ledger->owed_count && status == MR_OK; i++) {
        if (ledger->owed[i].is_stored && ledger->owed[i].step == 0) {
            status = ledger_append(ledger, &ledger->owed[i]);
        }
    }
    if (ledger->due_ns != 0 && now_ns >= ledger->due_ns) {
        mr_port_note(companion->port->stream);
    }
    ledger->look_ns = status == MR_OK ? ledger->due_ns : now_ns + LOOK_AGAIN_NS;
    if (ledger->look_ns == 0) {
        atomic_store(&companion->wants, false); /* the sink thread says when there is more */
    }
    pthread_mutex_unlock(&ledger->lock);
    return status == MR_FULL ? MR_FULL : MR_OK;
}

static int64_t ledger_due_in(const struct mr_companion *companion, int64_t now_ns)
{
    int64_t left_ns = ((const struct mr_ledger *)companion)->look_ns - now_ns;
    return left_ns > LOOK_AGAIN_NS ? left_ns : LOOK_AGAIN_NS;
}

struct mr_ledger *mr_ledger_new(const struct mr_ledger_options *options)
{
    static const struct mr_companion_ops ops = {.name = "ledger",
                                                .between = ledger_between,
                                                .due_in = ledger_due_in,
                                                .sent = sent,
                                                .adopt = ledger_adopt,
                                                .section = ledger_section,
                                                .stored = ledger_stored};
    struct mr_ledger *ledger = MR_NEW(struct mr_ledger);
    ledger->base.ops = &ops;
    ledger->options = *options;
    pthread_mutex_init(&ledger->lock, NULL);
    return ledger;
}

void mr_ledger_free(struct mr_ledger *ledger)
{
    if (ledger != NULL) {
        ledger_settle(ledger, ledger->owed_count);
        free(ledger->owed);
        mr_sums_done(&ledger->sums);
        pthread_mutex_destroy(&ledger->lock);
        free(ledger);
    }
}

struct mr_companion *mr_ledger_companion(struct mr_ledger *ledger)
{
    return &ledger->base;
}
