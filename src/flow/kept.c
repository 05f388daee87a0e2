#include "flow/kept.h"

#include "flow/port.h"

static bool rank_kept(const char *json, struct mr_section_rank *ret_rank)
{
    (void)json;
    *ret_rank = (struct mr_section_rank){0};
    return true;
}

const struct mr_section_kind mr_kept_kinds[MR_KEPT_COUNT] = {
    [MR_KEPT_KIN] = {"kin", 0, rank_kept},
    [MR_KEPT_COLUMNS] = {"columns", 0, rank_kept},
    [MR_KEPT_PLACINGS] = {"partitions", 0, rank_kept},
    [MR_KEPT_TOPICS] = {"topics", 0, rank_kept},
    [MR_KEPT_SILENCE] = {MR_SECTION_SILENCE, 0, rank_kept},
};

static const struct mr_keeper *keeper_of(const struct mr_companion *companion)
{
    return (const struct mr_keeper *)companion;
}

static void kept_adopt(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    const struct mr_keeper *keeper = keeper_of(companion);
    const struct mr_section *section =
        mr_checkpoint_section(stored, mr_kept_kinds[keeper->kind].name);
    const char *json = section == NULL ? NULL : section->json;
    if (json == NULL && keeper->kind != MR_KEPT_PLACINGS) { /* which take back what is not stored */
        return;
    }
    switch (keeper->kind) {
    case MR_KEPT_KIN:
        mr_kin_take(keeper->of.kin, json);
        break;
    case MR_KEPT_COLUMNS:
        mr_hidden_take(keeper->of.hidden, json);
        break;
    case MR_KEPT_PLACINGS:
        mr_placings_take(keeper->of.placings, json);
        break;
    case MR_KEPT_TOPICS:
        mr_known_topics_take(keeper->of.topics, json);
        break;
    default:
        mr_silence_take(keeper->of.silence, json);
    }
}

static bool kept_owes(const struct mr_companion *companion)
{
    const struct mr_keeper *keeper = keeper_of(companion);
    switch (keeper->kind) {
    case MR_KEPT_COLUMNS:
        return mr_hidden_owes(keeper->of.hidden);
    case MR_KEPT_PLACINGS:
        return keeper->of.placings->owes;
    case MR_KEPT_TOPICS:
        return keeper->of.topics->owes;
    case MR_KEPT_SILENCE:
        return mr_silence_owes(keeper->of.silence);
    default:
        return false;
    }
}

/* A transaction of its own takes it along. */
static mr_status kept_between(struct mr_companion *companion)
{
    atomic_store_explicit(&companion->wants, false, memory_order_relaxed);
    (void)mr_port_note(companion->port->stream);
    return MR_OK;
}

static char *kept_text(const struct mr_keeper *keeper, const struct mr_reach *reach)
{
    switch (keeper->kind) {
    case MR_KEPT_KIN:
        return mr_kin_format(keeper->of.kin);
    case MR_KEPT_COLUMNS:
        return mr_hidden_format(keeper->of.hidden);
    case MR_KEPT_PLACINGS:
        return mr_placings_format(keeper->of.placings, reach->end_lsn, reach->server_end);
    case MR_KEPT_TOPICS:
        return mr_known_topics_format(keeper->of.topics);
    default:
        return mr_silence_text(keeper->of.silence);
    }
}

static void kept_section(struct mr_companion *companion, const struct mr_reach *reach,
                         struct mr_checkpoint *checkpoint)
{
    const struct mr_keeper *keeper = keeper_of(companion);
    char *json = kept_text(keeper, reach);
    if (json != NULL) {
        mr_checkpoint_add(checkpoint, mr_kept_kinds[keeper->kind].name, json,
                          &(struct mr_section_rank){0});
    }
}

static void kept_stored(struct mr_companion *companion)
{
    const struct mr_keeper *keeper = keeper_of(companion);
    if (keeper->kind == MR_KEPT_PLACINGS) {
        mr_placings_settle(keeper->of.placings);
    }
}

void mr_keeper_init(struct mr_keeper *keeper, enum mr_kept_kind kind, union mr_kept_object of)
{
    static const struct mr_companion_ops ops = {.name = "kept",
                                                .adopt = kept_adopt,
                                                .owes = kept_owes,
                                                .between = kept_between,
                                                .section = kept_section,
                                                .stored = kept_stored};
    *keeper = (struct mr_keeper){.base.ops = &ops, .kind = kind, .of = of};
}
