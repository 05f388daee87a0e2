/* What the looks at the server know of tables of which nothing may come (copy/unlogged.h,
 * copy/members.h), for the stored position: the next process compares with it. A text of theirs,
 * and a lock that is held for a moment, for a look may take long. Any thread. */
#pragma once

#include "base/base.h"

#define MR_SECTION_SILENCE "silence" /* its name there (checkpoint.h) */

struct mr_silence;

struct mr_silence *mr_silence_new(void);
void mr_silence_free(struct mr_silence *silence); /* takes NULL, as all others do */

/* A look's own, which it takes. */
void mr_silence_set(struct mr_silence *silence, char *json);

/* The stored one, unless there is one already. */
void mr_silence_take(struct mr_silence *silence, const char *json);

/* Whether it has changed since it was last asked for. */
bool mr_silence_owes(const struct mr_silence *silence);

/* A copy, the caller's; NULL: there is none. */
char *mr_silence_text(struct mr_silence *silence);
