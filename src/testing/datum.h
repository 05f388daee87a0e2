/* A column's value as pgoutput brings it, of a test's text. */
#pragma once

#include "event/event.h"

/* `text`: a literal, or what lives as long as the value; NULL: a null. */
static inline struct mr_datum mr_test_datum(const char *text)
{
    if (text == NULL) {
        return (struct mr_datum){.kind = MR_DATUM_NULL};
    }
    return (struct mr_datum){
        .kind = MR_DATUM_TEXT, .data = (const uint8_t *)text, .len = (uint32_t)strlen(text)};
}
