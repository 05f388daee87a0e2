#include "cli/reloaded.h"

#include <stdlib.h>

static void take_difference(void *context, const struct mr_option *option)
{
    struct mr_reading *reading = context;
    mr_reading_name(reading,
                    mr_option_is_live(option) ? MR_READING_CHANGED : MR_READING_NEEDS_RESTART,
                    option->path);
    if (option->reload == MR_RELOAD_RULE) {
        mr_text_string(&reading->rules, reading->rules.data == NULL ? "" : ", ");
        mr_text_string(&reading->rules, option->path);
    }
    reading->patterns |= option->part == MR_PART_CAPTURE && option->reload == MR_RELOAD_BETWEEN;
    reading->publication |= option->reload == MR_RELOAD_PUBLICATION;
}

static void take_problems(struct mr_reading *reading, const struct mr_problems *problems)
{
    for (uint32_t i = 0; i < problems->count; i++) {
        const struct mr_problem *problem = &problems->items[i];
        mr_reading_problem(reading, "%s:%u: %s%s", problems->name, problem->line,
                           problem->is_error ? "" : "warning: ", problem->text);
        if (problem->is_error && reading->error.text[0] == '\0') {
            mr_error_set(&reading->error, MR_ERR_CONFIG, "%s:%u: %s", problems->name, problem->line,
                         problem->text);
        }
    }
}

static mr_status read_again(void *context, struct mr_reading *reading)
{
    struct mr_reloaded *reloaded = context;
    const struct mr_config *started = reloaded->started;
    mr_status status = mr_config_reload(started, &reloaded->wanted);
    struct mr_config *wanted = reloaded->wanted;
    take_problems(reading, &wanted->problems);
    MR_TRY(status);
    const char *fault = mr_config_reload_fault(started, wanted);
    if (fault != NULL) {
        return mr_fail(&reading->error, MR_ERR_CONFIG, "%s; nothing was changed", fault);
    }
    mr_config_differences(started, reloaded->newest, wanted, take_difference, reading);
    mr_config_name_reloaded(started, wanted);
    reading->started = &started->source;
    reading->running = reloaded->newest == NULL ? &started->source : &reloaded->newest->source;
    reading->wanted = &wanted->source;
    reading->patterns &=
        reading->running->captured.pattern_count + reading->wanted->captured.pattern_count > 0;
    reading->pipeline = &wanted->pipeline;
    reading->encode = &wanted->encode;
    reading->log_level = wanted->log_level;
    reading->copies_added = wanted->values.snapshot_added;
    return MR_OK;
}

static void show(struct mr_reloaded *reloaded)
{
    if (reloaded->pages == NULL) {
        return;
    }
    char *configuration = mr_config_json(reloaded->started, reloaded->newest);
    char *origins = mr_config_origins_json(reloaded->started, reloaded->newest);
    pthread_mutex_lock(reloaded->pages->lock);
    reloaded->pages->configuration = configuration;
    reloaded->pages->origins = origins;
    pthread_mutex_unlock(reloaded->pages->lock);
    free(reloaded->configuration);
    free(reloaded->origins);
    reloaded->configuration = configuration;
    reloaded->origins = origins;
}

static void settle(void *context, bool in_effect)
{
    struct mr_reloaded *reloaded = context;
    mr_config_free(in_effect ? reloaded->newest : reloaded->wanted);
    reloaded->newest = in_effect ? reloaded->wanted : reloaded->newest;
    reloaded->wanted = NULL;
    if (in_effect) {
        show(reloaded);
    }
}

static struct mr_sha256_short digest(void *context)
{
    return mr_config_digest(((struct mr_reloaded *)context)->started->path);
}

const struct mr_reload_ops mr_reloaded_ops = {
    .read = read_again, .settle = settle, .digest = digest};

void mr_reloaded_done(struct mr_reloaded *reloaded)
{
    mr_config_free(reloaded->newest);
    free(reloaded->configuration);
    free(reloaded->origins);
}
