#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1024 * 1024 };

static void text_reserve(struct mr_text *text, size_t more)
{
    if (text->len + more + 1 <= text->size) {
        return;
    }
    text->size = (text->len + more + 1) * 2;
    text->data = MR_REALLOC(text->data, text->size);
}

void mr_text_add(struct mr_text *text, const void *bytes, size_t len)
{
    text_reserve(text, len);
    if (len > 0) {
        memcpy(text->data + text->len, bytes, len);
    }
    text->len += len;
    text->data[text->len] = '\0';
}

void mr_text_string(struct mr_text *text, const char *string)
{
    mr_text_add(text, string, strlen(string));
}

void mr_text_vformat(struct mr_text *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int len = vsnprintf(NULL, 0, format, arguments);
    MR_ASSERT(len >= 0);
    text_reserve(text, (size_t)len);
    vsnprintf(text->data + text->len, (size_t)len + 1, format, again);
    text->len += (size_t)len;
    va_end(again);
}

void mr_text_format(struct mr_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    mr_text_vformat(text, format, arguments);
    va_end(arguments);
}

void mr_text_done(struct mr_text *text)
{
    free(text->data);
    *text = (struct mr_text){0};
}

void mr_text_print_markdown(const char *text, FILE *to)
{
    for (; *text != '\0'; text++) {
        const char *end = strncmp(text, "docs/", 5) == 0 ? strstr(text, ".md") : NULL;
        if (end != NULL) {
            int len = (int)(end - text) - 2; /* of what is between docs/ and the end of .md */
            fprintf(to, "[%.*s](%.*s)", len, text + 5, len, text + 5);
            text = end + 2;
        } else {
            fprintf(to, "%s%c", *text == '*' || *text == '<' ? "\\" : "", *text);
        }
    }
}

char *mr_text_read(FILE *from, size_t *ret_len, const char **ret_reason)
{
    if (from == NULL) {
        *ret_reason = strerror(errno);
        return NULL;
    }
    char *text = MR_ALLOC(FILE_BYTES_MAX + 1);
    *ret_len = fread(text, 1, FILE_BYTES_MAX + 1, from);
    bool good = !ferror(from) && *ret_len <= FILE_BYTES_MAX;
    *ret_reason = ferror(from) ? strerror(errno) : "it is larger than 1 MiB";
    if (from != stdin) {
        fclose(from);
    }
    if (good) {
        return text;
    }
    free(text);
    return NULL;
}
