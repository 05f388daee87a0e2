/* Small files as a whole. Any thread. */
#pragma once

#include "base/base.h"

/* What a file has (NULL: standard input), at most 1 MiB; the caller frees it. NULL: `ret_reason`
 * says why it can't be read. */
char *mr_file_read(const char *path, size_t *ret_len, const char **ret_reason);

/* The beginning of a small one, such as those of /proc, as text; false: it can't be read, or is
 * empty. */
bool mr_file_read_head(const char *path, char *text, size_t size);
