#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1024 * 1024 };

char *mr_file_read(const char *path, size_t *ret_len, const char **ret_reason)
{
    FILE *from = path == NULL ? stdin : fopen(path, "re");
    if (from == NULL) {
        *ret_reason = strerror(errno);
        return NULL;
    }
    char *text = MR_ALLOC(FILE_BYTES_MAX + 1);
    *ret_len = fread(text, 1, FILE_BYTES_MAX + 1, from);
    bool good = !ferror(from) && *ret_len <= FILE_BYTES_MAX;
    *ret_reason = ferror(from) ? strerror(errno) : "it is larger than 1 MiB";
    if (path != NULL) {
        fclose(from);
    }
    if (good) {
        return text;
    }
    free(text);
    return NULL;
}
