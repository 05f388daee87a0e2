/* A configuration's memory: what is read or made for it, and freed with it. */

#include <sys/stat.h>

#include "config/build.h"

static void end_config(struct mr_counted *counted)
{
    struct mr_config *config = (struct mr_config *)counted;
    for (uint32_t i = 0; i < config->kept.count; i++) {
        config->kept.items[i].free(config->kept.items[i].item);
    }
    free(config->kept.items);
    mr_secret_files_done(&config->secrets);
    mr_index_done(&config->tables_by_name);
    mr_rewrite_done(&config->outbox.route.rewrite);
    mr_rewrite_done(&config->routing.topic);
    mr_rewrite_done(&config->routing.key);
    mr_values_done(&config->values);
    mr_problems_done(&config->problems);
    free(config);
}

struct mr_config *mr_config_new(const char *name)
{
    struct mr_config *config = MR_NEW(struct mr_config);
    config->counted = (struct mr_counted){.holders = 1, .free = end_config};
    config->source.captured.memory = config->encode.memory = &config->counted;
    config->problems.name = MR_STRDUP(name);
    return config;
}

void *mr_config_keep_until(struct mr_config *config, void *item, void (*end)(void *item))
{
    struct mr_kept *kept = &config->kept;
    MR_GROW(kept->items, kept->room, kept->count + 1);
    kept->items[kept->count++] = (struct mr_kept_item){.item = item, .free = end};
    return item;
}

void *mr_config_keep(struct mr_config *config, void *memory)
{
    return mr_config_keep_until(config, memory, free);
}

char *mr_config_text(struct mr_config *config, const char *format, ...)
{
    struct mr_text text = {0};
    va_list arguments;
    va_start(arguments, format);
    mr_text_vformat(&text, format, arguments);
    va_end(arguments);
    return mr_config_keep(config, text.data);
}

/* Room is for a power of two of items; it is used up when the count is such a power, or 0. */
void *mr_config_grow(struct mr_config *config, const void *items, uint32_t count, size_t size)
{
    void *grown = (void *)(uintptr_t)items; /* made here, below */
    if ((count & (count - 1)) == 0) {
        grown = mr_config_keep(config, MR_ALLOC((count == 0 ? 1 : 2 * (size_t)count) * size));
        if (count > 0) {
            memcpy(grown, items, count * size);
        }
    }
    memset((char *)grown + count * size, 0, size);
    return grown;
}

bool mr_config_pair(struct mr_config *config, uint32_t one, uint32_t other)
{
    bool has_one = mr_value_is_set(&config->values, one);
    if (has_one != mr_value_is_set(&config->values, other)) {
        REFUSE_AT(config, has_one ? one : other, " needs %s; set both or none",
                  mr_option_at(has_one ? other : one)->path);
        return false;
    }
    return has_one;
}

static void keep_forget(void *text)
{
    mr_secret_forget(text);
}

const char *mr_config_secret(struct mr_config *config, const char *what, uint32_t option)
{
    char *text = mr_secret_read(&config->values, &config->problems, what, option);
    return mr_config_keep_until(config, text, keep_forget);
}

struct mr_secret *mr_config_watched(struct mr_config *config, const char *what, uint32_t option)
{
    return mr_secret_files_add(&config->secrets, &config->values, &config->problems, what, option);
}

const char *mr_config_public_file(struct mr_config *config, const char *what, uint32_t file)
{
    return mr_config_keep(config,
                          mr_secret_public_read(&config->values, &config->problems, what, file));
}

/* Named by its path, because a PATH could lead to another program. */
const struct mr_program *mr_config_program(struct mr_config *config, uint32_t option)
{
    const struct mr_strings *words = mr_value_of(&config->values, option);
    const char *path = words->count == 0 ? "" : words->items[0];
    struct stat about;
    if (words->count == 0 || mr_text_is_reference(path)) {
        return NULL;
    }
    if (path[0] != '/') {
        REFUSE_AT(config, option,
                  ": \"%s\" is not the absolute path of a program; no shell runs it, so each "
                  "argument is an item of the list",
                  path);
        return NULL;
    }
    bool is_here = !config->problems.elsewhere;
    if (is_here &&
        (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || access(path, X_OK) != 0)) {
        REFUSE_AT(config, option, ": %s is not a program that millrace's user may run", path);
        return NULL;
    }
    const char **arguments = KEPT_ARRAY(config, const char *, words->count + 1);
    memcpy(arguments, words->items, words->count * sizeof(*arguments));
    uint8_t number = config->programs.count++;
    MR_ASSERT(number < MR_PROGRAMS_MAX);
    struct mr_program *program = &config->programs.items[number];
    *program = (struct mr_program){mr_option_at(option)->path, arguments, -1, number};
    return program;
}

const char *mr_config_or_null(const char *text)
{
    return text[0] == '\0' ? NULL : text;
}

void mr_config_free(struct mr_config *config)
{
    if (config != NULL) {
        mr_counted_release(&config->counted);
    }
}
