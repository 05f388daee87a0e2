/* Which tables' existing rows are asked for while the stream runs, and how far each is, as a sink
 * stores it with the events. Values only. Any thread. */
#pragma once

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
    bool is_signal;    /* a signal asks for it */
    struct mr_asked_place place;
};

/* What it takes of the record: each character of a condition may take six. */
size_t mr_asked_table_size(const struct mr_asked_table *table);

void mr_asked_table_done(struct mr_asked_table *table);

/* At that place. */
struct mr_asked_table mr_asked_table_copy(const struct mr_asked_table *table,
                                          const struct mr_asked_place *place);

/* Tables that are streamed, or partitions and their roots: in a record, as bits of mr_copies_follow
 * one of each. */
enum mr_known_kind { MR_KNOWN_TABLES, MR_KNOWN_LEAVES, MR_KNOWN_KINDS };

enum { MR_KNOWN_LEAVES_MAX = 5000 }; /* in a record: these are some 55 kB in each */

struct mr_asked_stored {
    uint64_t step;    /* grows with whatever is asked or done */
    uint64_t last_id; /* that was given to a request */
    bool paused;
    struct mr_asked_table *tables; /* that are not at their ends, in order of asking */
    uint32_t count;
    /* Those that need no copy, where those that come are copied (mr_copies_follow), as
     * mr_asked_known_format writes them; NULL: that kind is not followed, or has too many. */
    char *known[MR_KNOWN_KINDS];
};

/* Of ids (mr_streamed_id), ascending, those of that kind: each OID as what it is above the one
 * before, in hexadecimal, of partitions with the mark: "4021,6,6,1f", "4027.8c1f03a2,6.7d". The
 * caller's; NULL: there are too many, or they take more than `bytes_max`. */
char *mr_asked_known_format(const uint64_t *ids, uint32_t count, enum mr_known_kind kind,
                            size_t bytes_max);

/* Adds them to the caller's array. False: the text is not of that form. */
bool mr_asked_known_parse(const char *text, enum mr_known_kind kind, uint64_t **ids,
                          uint32_t *count);

void mr_asked_stored_free(struct mr_asked_stored *state); /* NULL is fine */
void mr_asked_stored_forget_known(struct mr_asked_stored *state);

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
