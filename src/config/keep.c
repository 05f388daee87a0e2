/* A configuration's memory. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/build.h"

struct mr_config *mr_config_new(const char *name)
{
    struct mr_config *config = MR_NEW(struct mr_config);
    config->problems.name = MR_STRDUP(name);
    return config;
}

static void add(struct mr_kept *kept, void *item)
{
    kept->items = MR_REALLOC(kept->items, (kept->count + 1) * sizeof(*kept->items));
    kept->items[kept->count++] = item;
}

void *mr_config_keep(struct mr_config *config, void *memory)
{
    add(&config->memory, memory);
    return memory;
}

char *mr_config_text(struct mr_config *config, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int len = vasprintf(&text, format, arguments);
    va_end(arguments);
    MR_ASSERT(len >= 0);
    return mr_config_keep(config, text);
}

char *mr_config_keep_secret(struct mr_config *config, char *secret)
{
    if (secret != NULL) {
        add(&config->secrets, secret);
    }
    return secret;
}

struct mr_regex *mr_config_keep_regex(struct mr_config *config, struct mr_regex *regex)
{
    if (regex != NULL) {
        add(&config->regexes, regex);
    }
    return regex;
}

void *mr_config_grow(struct mr_config *config, const void *items, uint32_t count, size_t size)
{
    void *grown = mr_config_keep(config, MR_ALLOC((count + 1) * size));
    if (count > 0) {
        memcpy(grown, items, count * size);
    }
    memset((char *)grown + count * size, 0, size);
    return grown;
}

const char *mr_config_or_null(const char *text)
{
    return text[0] == '\0' ? NULL : text;
}

void mr_config_free(struct mr_config *config)
{
    if (config == NULL) {
        return;
    }
    for (uint32_t i = 0; i < config->secrets.count; i++) {
        explicit_bzero(config->secrets.items[i], strlen(config->secrets.items[i]));
        free(config->secrets.items[i]);
    }
    for (uint32_t i = 0; i < config->regexes.count; i++) {
        mr_regex_free(config->regexes.items[i]);
    }
    for (uint32_t i = 0; i < config->memory.count; i++) {
        free(config->memory.items[i]);
    }
    free(config->secrets.items);
    free(config->regexes.items);
    free(config->memory.items);
    mr_rewrite_done(&config->outbox.route.rewrite);
    mr_rewrite_done(&config->routing.topic);
    mr_rewrite_done(&config->routing.key);
    mr_values_done(&config->values);
    mr_problems_done(&config->problems);
    free(config);
}
