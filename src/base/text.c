#include "base/text.h"

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

char *mr_formatted(const char *format, ...)
{
    struct mr_text text = {0};
    va_list arguments;
    va_start(arguments, format);
    mr_text_vformat(&text, format, arguments);
    va_end(arguments);
    return text.data;
}

void mr_text_done(struct mr_text *text)
{
    free(text->data);
    *text = (struct mr_text){0};
}
