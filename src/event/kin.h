/* Whose partition a table is, or was: what a rule says of a partitioned table counts for rows of
 * its partitions, too, after they were detached, renamed, or altered. The catalog forgets a
 * partition that is none any more; so each one that was seen is kept here, for as long as the table
 * exists, and stored with the position.
 *
 * All who describe tables share one: the stream, copies, and the looks at the server. Any thread; a
 * lock is held for a moment. */
#pragma once

#include "base/text.h"
#include "event/event.h"

struct mr_kin;

/* The strings last as long as the mr_kin. */
enum { MR_ORIGINS_MAX = 32 };
struct mr_origins {
    uint32_t count; /* 0: it is not known of which table */
    struct mr_origin items[MR_ORIGINS_MAX];
};

/* So many are stored. What is beyond them the next process does not know: mr_kin_is_cut. */
enum { MR_KIN_STORED_MAX = 5000 };

struct mr_kin *mr_kin_new(void);
void mr_kin_free(struct mr_kin *kin); /* takes NULL, as all others do */

/* The table is, was, or may have been, a partition of `of`, the outermost; `table` NULL: of one
 * that is not known. If it was another one's before, it is both's from now on. */
void mr_kin_note(struct mr_kin *kin, uint32_t oid, const struct mr_origin *of);

/* False: it was not seen as a partition. */
bool mr_kin_find(struct mr_kin *kin, uint32_t oid, struct mr_origins *ret_origins);

/* There were more than could be stored when this process began: one that is not known may have been
 * a partition. */
bool mr_kin_is_cut(struct mr_kin *kin);

/* Adds those that are known, as numbers with commas before them; their count. */
uint32_t mr_kin_add_oids(struct mr_kin *kin, struct mr_text *text);

/* The table does not exist any more, as seen at `now`: once all before that is `confirmed`, at this
 * call or a later one, it is forgotten, for its OID may be another's then. */
void mr_kin_note_gone(struct mr_kin *kin, uint32_t oid, mr_lsn now, mr_lsn confirmed);

/* The stream goes on in another cluster, where table `oid` is what `here` has as `was`: of its
 * origins the names alone count there. */
void mr_kin_moved(struct mr_kin *there, uint32_t oid, struct mr_kin *here, uint32_t was);

/* All, as JSON, the caller's; NULL: there are none. */
char *mr_kin_format(struct mr_kin *kin);

/* Takes what `format` said, besides what is known. */
void mr_kin_take(struct mr_kin *kin, const char *json);
