/* A row as COPY … TO STDOUT writes it in text form (the manual's page of COPY, "Text Format"):
 * values between tabs, \N for null, and a backslash before what would be taken for something else.
 * Inside source/ only; any thread. */
#pragma once

#include "event/event.h"

/* Takes the row apart into `count` values, in place: what had a backslash gets shorter. `len` may
 * hold the newline at its end. The values point into `row`. False when the row does not have that
 * many values, or is of no such form; both are spoilt then. */
MR_MUST_USE bool mr_copy_text_decode(uint8_t *row, size_t len, struct mr_datum *values,
                                     uint32_t count);
