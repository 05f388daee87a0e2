/* Where secrets come from: an environment variable, which is emptied after reading, or a file that only its
 * owner may read. */
#ifndef MR_CONFIG_SECRETS_H
#define MR_CONFIG_SECRETS_H

#include "config/config.h"

enum { MR_NO_OPTION = MR_OPTION_COUNT };

/* The secret that two options say, `env` by the name of a variable and `file` by a path; MR_NO_OPTION: there is no such
 * option. NULL when neither is set or something is wrong, which is added to the problems. The configuration's. */
const char *mr_config_secret(struct mr_config *config, const char *what, uint32_t env,
                             uint32_t file);

/* The same of a file that everybody may read: a certificate. */
const char *mr_config_public_file(struct mr_config *config, const char *what, uint32_t file);

/* True when a connection string holds a password, which a file must not. */
bool mr_secret_in_conninfo(const char *conninfo);

/* True for a librdkafka property that is a secret. */
bool mr_secret_property(const char *name);

#endif
