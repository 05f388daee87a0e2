#include "convert/convert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { FILE_BYTES_MAX = 1024 * 1024 };

mr_status mr_cli_convert(const char *path, FILE *to)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    FILE *file = is_stdin ? stdin : fopen(path, "re");
    if (file == NULL) {
        fprintf(stderr, "millrace: %s can't be read: %s\n", name, strerror(errno));
        return MR_ERR_USAGE;
    }
    char *text = MR_ALLOC(FILE_BYTES_MAX + 1);
    size_t len = fread(text, 1, FILE_BYTES_MAX + 1, file);
    mr_status status = MR_ERR_USAGE;
    if (ferror(file)) {
        fprintf(stderr, "millrace: %s can't be read: %s\n", name, strerror(errno));
    } else if (len > FILE_BYTES_MAX) {
        fprintf(stderr, "millrace: %s is larger than 1 MiB\n", name);
    } else {
        status = mr_convert(name, text, len, to, stderr);
    }
    if (!is_stdin) {
        fclose(file);
    }
    explicit_bzero(text, FILE_BYTES_MAX + 1);
    free(text);
    return status;
}
