#include "flow/kept.h"

#include "flow/port.h"

#define COLUMNS  "columns"
#define KIN      "kin"
#define PLACINGS "partitions"
#define TOPICS   "topics"
#define SILENCE  MR_SECTION_SILENCE

static bool rank_kept(const char *json, struct mr_section_rank *ret_rank)
{
    (void)json;
    *ret_rank = (struct mr_section_rank){0};
    return true;
}

const struct mr_section_kind mr_kept_columns_kind = {COLUMNS, 0, rank_kept};
const struct mr_section_kind mr_kept_kin_kind = {KIN, 0, rank_kept};
const struct mr_section_kind mr_kept_placings_kind = {PLACINGS, 0, rank_kept};
const struct mr_section_kind mr_kept_topics_kind = {TOPICS, 0, rank_kept};
const struct mr_section_kind mr_kept_silence_kind = {SILENCE, 0, rank_kept};

static void *what_of(const struct mr_companion *companion)
{
    return ((const struct mr_keeper *)companion)->what;
}

static const char *kept_json(const struct mr_companion *companion,
                             const struct mr_checkpoint *stored)
{
    const struct mr_section *section = mr_checkpoint_section(stored, companion->ops->name);
    return section == NULL ? NULL : section->json;
}

static void add_kept(const struct mr_companion *companion, struct mr_checkpoint *checkpoint,
                     char *json)
{
    if (json != NULL) {
        mr_checkpoint_add(checkpoint, companion->ops->name, json, &(struct mr_section_rank){0});
    }
}

/* A transaction of its own takes it along. */
static mr_status note_kept(struct mr_companion *companion)
{
    atomic_store_explicit(&companion->wants, false, memory_order_relaxed);
    (void)mr_port_note(companion->port->stream);
    return MR_OK;
}

static void adopt_columns(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    const char *json = kept_json(companion, stored);
    if (json != NULL) {
        mr_hidden_take(what_of(companion), json);
    }
}

static void kept_add_columns(struct mr_companion *companion, const struct mr_reach *reach,
                             struct mr_checkpoint *checkpoint)
{
    (void)reach;
    add_kept(companion, checkpoint, mr_hidden_format(what_of(companion)));
}

static bool columns_owe(const struct mr_companion *companion)
{
    return mr_hidden_owes(what_of(companion));
}

void mr_kept_columns_init(struct mr_keeper *kept, struct mr_hidden *hidden)
{
    static const struct mr_companion_ops ops = {.name = COLUMNS,
                                                .adopt = adopt_columns,
                                                .owes = columns_owe,
                                                .between = note_kept,
                                                .section = kept_add_columns};
    *kept = (struct mr_keeper){.base.ops = &ops, .what = hidden};
}

static void adopt_kin(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    const char *json = kept_json(companion, stored);
    if (json != NULL) {
        mr_kin_take(what_of(companion), json);
    }
}

static void add_kin(struct mr_companion *companion, const struct mr_reach *reach,
                    struct mr_checkpoint *checkpoint)
{
    (void)reach;
    add_kept(companion, checkpoint, mr_kin_format(what_of(companion)));
}

void mr_kept_kin_init(struct mr_keeper *kept, struct mr_kin *kin)
{
    static const struct mr_companion_ops ops = {
        .name = KIN, .adopt = adopt_kin, .section = add_kin};
    *kept = (struct mr_keeper){.base.ops = &ops, .what = kin};
}

static void adopt_placings(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    mr_placings_take(what_of(companion), kept_json(companion, stored));
}

static bool placings_owe(const struct mr_companion *companion)
{
    return ((const struct mr_placings *)what_of(companion))->owes;
}

static void add_placings(struct mr_companion *companion, const struct mr_reach *reach,
                         struct mr_checkpoint *checkpoint)
{
    add_kept(companion, checkpoint,
             mr_placings_format(what_of(companion), reach->end_lsn, reach->server_end));
}

static void placings_stored(struct mr_companion *companion)
{
    mr_placings_settle(what_of(companion));
}

void mr_kept_placings_init(struct mr_keeper *kept, struct mr_placings *placings)
{
    static const struct mr_companion_ops ops = {.name = PLACINGS,
                                                .adopt = adopt_placings,
                                                .owes = placings_owe,
                                                .section = add_placings,
                                                .stored = placings_stored};
    *kept = (struct mr_keeper){.base.ops = &ops, .what = placings};
}

static void adopt_silence(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    const char *json = kept_json(companion, stored);
    if (json != NULL) {
        mr_silence_take(what_of(companion), json);
    }
}

static void add_silence(struct mr_companion *companion, const struct mr_reach *reach,
                        struct mr_checkpoint *checkpoint)
{
    (void)reach;
    add_kept(companion, checkpoint, mr_silence_text(what_of(companion)));
}

static bool silence_owes(const struct mr_companion *companion)
{
    return mr_silence_owes(what_of(companion));
}

void mr_kept_silence_init(struct mr_keeper *kept, struct mr_silence *silence)
{
    static const struct mr_companion_ops ops = {.name = SILENCE,
                                                .adopt = adopt_silence,
                                                .owes = silence_owes,
                                                .between = note_kept,
                                                .section = add_silence};
    *kept = (struct mr_keeper){.base.ops = &ops, .what = silence};
}

static void adopt_topics(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    const char *json = kept_json(companion, stored);
    if (json != NULL) {
        mr_known_topics_take(what_of(companion), json);
    }
}

static bool topics_owe(const struct mr_companion *companion)
{
    return ((const struct mr_known_topics *)what_of(companion))->owes;
}

static void kept_add_topics(struct mr_companion *companion, const struct mr_reach *reach,
                            struct mr_checkpoint *checkpoint)
{
    (void)reach;
    add_kept(companion, checkpoint, mr_known_topics_format(what_of(companion)));
}

void mr_kept_topics_init(struct mr_keeper *kept, struct mr_known_topics *known)
{
    static const struct mr_companion_ops ops = {.name = TOPICS,
                                                .adopt = adopt_topics,
                                                .owes = topics_owe,
                                                .between = note_kept,
                                                .section = kept_add_topics};
    *kept = (struct mr_keeper){.base.ops = &ops, .what = known};
}
