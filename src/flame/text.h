/* Text that grows, for the writers of this folder. One thread. */
#ifndef MR_FLAME_TEXT_H
#define MR_FLAME_TEXT_H

#include "base/base.h"

/* Zeroed to begin with; the owner frees `data`. */
struct mr_flame_text {
    char *data; /* always ended by a NUL once something was added */
    size_t len;
    size_t size;
};

void mr_flame_text_add(struct mr_flame_text *text, const void *bytes, size_t len);
void mr_flame_text_string(struct mr_flame_text *text, const char *string);
void mr_flame_text_format(struct mr_flame_text *text, const char *format, ...) MR_PRINTF(2, 3);

/* The bytes as content of XML: markup escaped, what is no UTF-8 or no XML character replaced by U+FFFD. */
void mr_flame_text_xml(struct mr_flame_text *text, mr_slice bytes);

#endif
