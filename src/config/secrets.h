/* Where secrets come from: an environment variable, which is emptied after reading, or a file that only its
 * owner may read. */
#ifndef MR_CONFIG_SECRETS_H
#define MR_CONFIG_SECRETS_H

#include "config/values.h"

/* The secret that `env` (name of a variable) or `file` (path) holds, for the option of that line; NULL when
 * neither is set or something is wrong (told). The caller wipes and frees it. */
char *mr_secret_read(const char *what, const char *env, const char *file, uint32_t line,
                     struct mr_problems *problems);

/* The same for a file that everybody may read: a certificate. */
char *mr_public_file_read(const char *what, const char *file, uint32_t line,
                          struct mr_problems *problems);

/* True when a connection string holds a password, which a file must not. */
bool mr_secret_in_conninfo(const char *conninfo);

/* True for a librdkafka property that is a secret. */
bool mr_secret_property(const char *name);

#endif
