#include "base/file.h"

#include <fcntl.h>

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

bool mr_file_read_head(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t len = read(fd, text, size - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    return len > 0;
}
