/* Which tables' existing rows are asked for while the stream runs, and how far each is, as a sink stores it with the events.
 * Values only. Any thread. */
#ifndef MR_COPY_ASKED_STORED_H
#define MR_COPY_ASKED_STORED_H

#include "event/checkpoint.h"

/* Rows of one of the tables that a request means, up to a key: these are with the sink. */
struct mr_asked_place {
    uint32_t oid;  /* of the table; tables are taken by these, ascending. 0: none has begun */
    uint64_t form; /* what the key was made of when it was read; another form, another order */
    char **after;  /* the key, as texts; NULL: no row yet */
    uint32_t after_count;
    uint64_t rows, passed_over; /* that went out, and did not, up to there */
    bool settled;               /* all of the request is with the sink */
};

void mr_asked_place_done(struct mr_asked_place *place);
struct mr_asked_place mr_asked_place_copy(const struct mr_asked_place *place);

struct mr_asked_table {
    uint64_t id;
    char *schema, *table;
    char *where, *key; /* NULL: all rows; by the key of events */
    struct mr_asked_place place;
};

void mr_asked_table_done(struct mr_asked_table *table);

/* At that place. */
struct mr_asked_table mr_asked_table_copy(const struct mr_asked_table *table,
                                          const struct mr_asked_place *place);

struct mr_asked_stored {
    uint64_t step;    /* grows with whatever is asked or done */
    uint64_t last_id; /* that was given to a request */
    bool paused;
    struct mr_asked_table *tables; /* that are not at their ends, in order of asking */
    uint32_t count;
    /* Tables that are streamed, and partitions, that need no copy, by OID, ascending; only where those that come are copied: of which
     * kinds these are (mr_copies_follow); 0: none are followed. */
    uint32_t known_kinds;
    uint32_t *known;
    uint32_t known_count;
};

void mr_asked_stored_free(struct mr_asked_stored *state); /* NULL is fine */

/* The text, a JSON object; the caller frees it. */
char *mr_asked_stored_format(const struct mr_asked_stored *state);

/* NULL when the text is not of that form; else the caller's to free. */
struct mr_asked_stored *mr_asked_stored_parse(const char *text);

#define MR_SECTION_ASKED "asked"
enum { MR_ASKED_STORED_VERSION = 3 };

/* As in mr_section_kind. */
bool mr_asked_stored_rank(const char *json, struct mr_section_rank *ret_rank);

void mr_asked_stored_add(const struct mr_asked_stored *state, struct mr_checkpoint *checkpoint);

/* What the checkpoint says, the caller's; NULL: nothing. */
struct mr_asked_stored *mr_asked_stored_of(const struct mr_checkpoint *checkpoint);

#endif
