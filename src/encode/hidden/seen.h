/* What was seen of tables of which rules for columns hide something: the columns of each one's last
 * version, which of them are hidden, and by which numbers those are known.
 *
 * It may be stored as JSON and read again, so that it holds for the next process, too. Who calls
 * holds a lock. */
#pragma once

#include "base/index.h"
#include "base/text.h"
#include "encode/column_rules.h"
#include "event/kin.h"
#include "event/places.h"

/* A column that was hidden once, by the number that only it has, and the name that it had last; of
 * several numbers that it may have had, each. */
struct mr_seen_number {
    uint32_t number;
    bool is_doubtful; /* of the last version: a column may have it for which names decide */
    char *name;
};

struct mr_seen {
    uint32_t oid;
    char *name, *topic; /* "schema.table"; "": all its streams */
    char **columns;     /* all of them, or those that are hidden (is_partial), */
    bool *hides;        /* and whether that one is hidden */
    uint32_t count;
    struct mr_seen_number *numbers; /* of all that ever were */
    uint32_t number_count, number_room;
    uint64_t order;   /* of the last versions */
    bool is_numbered; /* those that are hidden are all among them */
    bool is_partial;
    bool is_learned; /* from the catalog: the stream has brought nothing of it */
};

struct mr_seen_tables {
    struct mr_column_rules rules;
    struct mr_kin *kin; /* the caller's; NULL: none */
    struct mr_seen *items;
    uint32_t count, room;
    struct mr_index by_oid, by_name;
    uint64_t last_order;
    char *stored;              /* as it is stored, unless */
    _Atomic bool is_formatted; /* it has changed */
    bool was_too_much;
    struct mr_text shown; /* "schema.table.column", …: those that were hidden in what was taken, and
                             that no rule hides now */
    uint32_t shown_count;
    bool has_told_shown;
    uint32_t cut; /* tables up to this OID may have been seen, and not been stored; 0: none */
};

void mr_seen_init(struct mr_seen_tables *tables, const struct mr_column_rules *rules,
                  struct mr_kin *kin);
void mr_seen_done(struct mr_seen_tables *tables);

bool mr_seen_hides_any(const bool *hides, uint32_t count);

/* By its OID, or by its name (NULL: not) the one that was seen last; NULL: none. */
struct mr_seen *mr_seen_find(const struct mr_seen_tables *tables, uint32_t oid, const char *name,
                             const char *topic);

/* One that was learned, of that stream, or of whichever; NULL: none. */
const struct mr_seen *mr_seen_learned(const struct mr_seen_tables *tables, uint32_t oid,
                                      const char *topic);

/* The table goes to a stream that had nothing of it: what was hidden in another one, and the rules
 * hide in this one, too, counts here. */
void mr_seen_adopt(struct mr_seen_tables *tables, uint32_t oid, const char *name,
                   const char *topic);

/* What was seen of that table, or learned; NULL: nothing. */
const struct mr_seen *mr_seen_origin(const struct mr_seen_tables *tables,
                                     const struct mr_origin *origin, const char *topic);

/* Which number a partition's column has that is that one of its table (`numbers`: of mr_origin); 0:
 * it has none; UINT32_MAX: that is not known. */
uint32_t mr_seen_number_in_part(const char *numbers, uint32_t number);

/* Whether numbers tell which columns are those that were hidden of that table, of which this was
 * seen. */
bool mr_seen_numbers_tell(const struct mr_seen *seen, const struct mr_origin *origin);

/* A version of a table that goes out. NULL: nothing of it matters, else what is kept. */
struct mr_seen *mr_seen_keep(struct mr_seen_tables *tables, const struct mr_relation *now,
                             const struct mr_places *places, const char *name, const char *topic,
                             const bool *hides);

/* The stream goes on in another cluster (`there`), where the table of that name is `now`, whose
 * columns have numbers: it has what was seen of it here, and whose partition it was. */
void mr_seen_moved(struct mr_seen_tables *there, const struct mr_seen_tables *here,
                   const struct mr_relation *now);

/* Forgets columns that are not hidden: by names alone less can be told then. */
void mr_seen_reduce(struct mr_seen *seen);

/* ---- of the stored form (seen_stored.c) ---- */

/* As mr_seen_put, but for what no rule hides any more: that somebody has decided to show. */
void mr_seen_put_undecided(struct mr_seen_tables *tables, struct mr_seen *seen);

/* Unless it is there, under that name. */
void mr_seen_add_number(struct mr_seen *seen, uint32_t number, const char *name, bool is_doubtful);

/* Takes over what it is made of. */
struct mr_seen *mr_seen_put(struct mr_seen_tables *tables, const struct mr_seen *seen);
void mr_seen_free(struct mr_seen *seen);
void mr_seen_forget(struct mr_seen_tables *tables); /* all */

/* As mr_hidden_format and mr_hidden_take. */
char *mr_seen_format(struct mr_seen_tables *tables);
void mr_seen_take(struct mr_seen_tables *tables, const char *json);
