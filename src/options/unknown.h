/* Names that are not known: what is said of them, and what may have been meant. */
#pragma once

#include "options/values.h"

/* Adds the problem of a key or section that no option has. */
void mr_config_unknown(const char *path, const struct mr_toml_node *node,
                       struct mr_problems *problems);

/* The option that `path` may have meant; NULL: none is near. */
const char *mr_option_nearest(const char *path);

/* Whether `word` is one of the words of an option's path: "slot" of source.postgres.slot_name. */
bool mr_option_has_word(const char *path, const char *word);

/* Adds that the text is not TOML; when it is JSON or a connector's properties, what makes a file of
 * it. */
void mr_config_not_toml(const char *text, size_t len, uint32_t line, const char *reason,
                        struct mr_problems *problems);
