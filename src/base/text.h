/* Text that grows. One thread. */
#pragma once

#include <stdarg.h>

#include "base/base.h"

/* Zeroed to begin with; mr_text_done, or the owner's free of `data`, ends it. */
struct mr_text {
    char *data; /* always ended by a NUL once something was added */
    size_t len;
    size_t size;
};

void mr_text_add(struct mr_text *text, const void *bytes, size_t len);
void mr_text_string(struct mr_text *text, const char *string);
void mr_text_format(struct mr_text *text, const char *format, ...) MR_PRINTF(2, 3);
void mr_text_vformat(struct mr_text *text, const char *format, va_list arguments) MR_PRINTF(2, 0);
void mr_text_done(struct mr_text *text);

/* A text of its own; the caller frees it. */
char *mr_formatted(const char *format, ...) MR_PRINTF(1, 2);

/* One that ends with its block. */
#define MR_TEXT(name) struct mr_text name __attribute__((cleanup(mr_text_done))) = {0}
