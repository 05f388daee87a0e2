#include "flow/kept_columns.h"

#define SECTION "columns"

static bool rank_columns(const char *json, struct mr_section_rank *ret_rank)
{
    (void)json;
    *ret_rank = (struct mr_section_rank){0};
    return true;
}

const struct mr_section_kind mr_kept_columns_section_kind = {SECTION, 0, rank_columns};

static void adopt_columns(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    const struct mr_section *section = mr_checkpoint_section(stored, SECTION);
    if (section != NULL) {
        mr_hidden_take(((struct mr_kept_columns *)companion)->hidden, section->json);
    }
}

static void add_columns(struct mr_companion *companion, const struct mr_reach *reach,
                        struct mr_checkpoint *checkpoint)
{
    (void)reach;
    char *json = mr_hidden_format(((struct mr_kept_columns *)companion)->hidden);
    if (json != NULL) {
        mr_checkpoint_add(checkpoint, SECTION, json, &(struct mr_section_rank){0});
    }
}

void mr_kept_columns_init(struct mr_kept_columns *kept, struct mr_hidden *hidden)
{
    static const struct mr_companion_ops ops = {
        .name = "columns", .adopt = adopt_columns, .section = add_columns};
    *kept = (struct mr_kept_columns){.base.ops = &ops, .hidden = hidden};
}
