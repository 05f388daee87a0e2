/* Shared by the files of src/config that turn values into option structs. */
#ifndef MR_CONFIG_CONFIG_INTERNAL_H
#define MR_CONFIG_CONFIG_INTERNAL_H

#include "config/config.h"

#define PROBLEM(config, line, ...) mr_problem_add(&(config)->problems, true, (line), __VA_ARGS__)
#define WARNING(config, line, ...) mr_problem_add(&(config)->problems, false, (line), __VA_ARGS__)
#define LINE(config, field)        MR_VALUE_LINE(&(config)->values, field)

/* Memory that lives as long as the configuration; answers it. */
void *mr_config_keep(struct mr_config *config, void *memory);

/* The same for a secret, which is wiped before it is freed. NULL is fine. */
char *mr_config_keep_secret(struct mr_config *config, char *secret);

/* Fills in config->http. */
void mr_config_build_http(struct mr_config *config);

#endif
