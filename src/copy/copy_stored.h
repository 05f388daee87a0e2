/* How far a copy of existing rows is, as a sink stores it with the events, and as text. Values
 * only. Any thread.
 *
 * Tables are known by their OIDs. One whose rows moved since, because its file was written again,
 * has another file node, and what is said of its places means nothing any more. */
#pragma once

#include "base/base.h"
#include "event/checkpoint.h"

/* Where a row is in its table: page and number in the page, so that places grow in the order in
 * which rows are read. */
static inline uint64_t mr_copy_place(uint32_t page, uint16_t number)
{
    return (uint64_t)page << 16 | number;
}

/* Rows after the place `after`, on pages below `end`. */
enum { MR_COPY_NO_END = 0 };
struct mr_copy_range {
    uint64_t after; /* 0: from the first on */
    uint32_t end;
};

/* A table of which some rows are with the sink, and what is left of it. */
struct mr_copy_part {
    uint32_t oid;
    uint32_t filenode;
    struct mr_copy_range *ranges;
    uint32_t range_count;
};

struct mr_copy_stored {
    mr_lsn lsn; /* where the stream begins; it says which copy this is */
    uint32_t attempt;
    uint64_t step;  /* grows within an attempt */
    uint64_t rows;  /* that were handed over, in all attempts */
    uint32_t *done; /* tables, by OID, ascending */
    uint32_t done_count;
    struct mr_copy_part *parts;
    uint32_t part_count;
};

void mr_copy_stored_free(struct mr_copy_stored *state); /* NULL is fine */

/* The text, a JSON string; the caller frees it. */
char *mr_copy_stored_format(const struct mr_copy_stored *state);

/* NULL when the text is not of that form; else the caller's to free. */
struct mr_copy_stored *mr_copy_stored_parse(const char *text);

#define MR_SECTION_COPY      "copy"
#define MR_SECTION_COPY_ONLY "copy_only"
enum { MR_COPY_STORED_VERSION = 2 };

/* As in mr_section_kind. */
bool mr_copy_stored_rank(const char *json, struct mr_section_rank *ret_rank);
bool mr_copy_only_rank(const char *json, struct mr_section_rank *ret_rank);

/* `only`: no stream is to begin after the copy. */
void mr_copy_stored_add(const struct mr_copy_stored *state, bool only,
                        struct mr_checkpoint *checkpoint);

/* What the checkpoint says of a copy, the caller's; NULL: nothing. */
struct mr_copy_stored *mr_copy_stored_of(const struct mr_checkpoint *checkpoint);

/* The part of that table, NULL: there is none. */
const struct mr_copy_part *mr_copy_stored_part(const struct mr_copy_stored *state, uint32_t oid);
bool mr_copy_stored_is_done(const struct mr_copy_stored *state, uint32_t oid);
