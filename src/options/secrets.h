/* Secrets of options: an environment variable or a file says them, never the file of options
 * itself. Before the first thread, unless said otherwise. */
#pragma once

#include <stdatomic.h>

#include "base/secret.h"
#include "options/values.h"

/* The secret that an option says, by the name of an environment variable, or by the path of a file
 * that only its owner may read; a STRING without a prefix is such a path. NULL when it is not set,
 * names a program, or something is wrong, which is added to the problems. The caller's, for
 * mr_secret_forget. */
char *mr_secret_read(const struct mr_config_values *values, struct mr_problems *problems,
                     const char *what, uint32_t option);

/* Once all secrets are read, several of which may be in one variable: later readers of the process'
 * environment find none. */
void mr_secrets_empty_variables(const struct mr_config_values *values);

/* The same of a file that everybody may read: a certificate. */
char *mr_secret_public_read(const struct mr_config_values *values, struct mr_problems *problems,
                            const char *what, uint32_t file);

/* What a file holds, the caller's, for mr_secret_forget. NULL: why not. `is_secret`: others must
 * not be able to read it. Any thread. */
char *mr_secret_file_read(const char *path, const char *what, bool is_secret,
                          struct mr_error *ret_error);

/* Secrets that may become others while millrace runs: the file of each is read again whenever its
 * secret is asked for. It stays where it is, for the secrets point into it. */
struct mr_secret_files {
    struct mr_secret_file {
        struct mr_secret *secret;
        char *path;             /* NULL: a variable has said it, and it stays as it is */
        const char *what;       /* "Kafka password" */
        _Atomic bool is_faulty; /* it could not be read at the last look, which was said */
    } items[6];                 /* an option each */
    uint32_t count;
};

/* As mr_secret_read; the secret belongs to `files`. */
struct mr_secret *mr_secret_files_add(struct mr_secret_files *files,
                                      const struct mr_config_values *values,
                                      struct mr_problems *problems, const char *what,
                                      uint32_t option);
void mr_secret_files_done(struct mr_secret_files *files);

/* Looks at the files every so many milliseconds too (0: never), so that the log says early that a
 * new secret was taken, on a thread of its own until it is stopped; `files` outlive it. `*ret`:
 * NULL where nothing is to be watched, which stop takes. */
struct mr_secrets_watch;
mr_status mr_secrets_watch_start(const struct mr_secret_files *files, uint32_t interval_ms,
                                 struct mr_secrets_watch **ret, struct mr_error *ret_error);
void mr_secrets_watch_stop(struct mr_secrets_watch *watch);

/* Whether a connection string holds a password, which a file must not; whether a property of
 * librdkafka is a secret. */
bool mr_secret_in_conninfo(const char *conninfo);
bool mr_secret_property(const char *name);
