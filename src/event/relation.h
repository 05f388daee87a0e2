/* A relation: what the stream or the catalog says of a table, first as a view, then as a copy.
 *
 * A view is a relation whose texts, columns and key are its maker's: parts of a Relation message,
 * of an answer of the catalog, or of another relation. mr_relation_new copies all of it. Relations
 * with equal columns and an equal key share these: a layout, which their owner keeps in one struct
 * mr_layouts, and which goes with the last relation that has it. Neither ever changes. Any thread
 * reads; the owner's makes and frees. */
#pragma once

#include "base/index.h"
#include "event/event.h"

/* The key that the stream itself tells: the flagged columns in the table's order, unless all are
 * flagged because the identity is FULL. Sets the view's key fields; its key_columns have room for
 * column_count. */
void mr_relation_flagged_key(struct mr_relation *view);

/* False: the relation has no column of that name; then `ret_column` is after its last one. */
bool mr_relation_find_column(const struct mr_relation *view, mr_slice name, uint32_t *ret_column);

/* Whether rows of the partition lack, as old ones, what the identity of `root` has as the server
 * tells it. Where that is FULL they do unless the partition's is. A partition without any has no
 * old rows. */
bool mr_relation_is_less(const struct mr_relation *partition, const struct mr_relation *root);

/* Of the columns in the view's identity those stay that have the name of one in `by`'s, whose kind
 * of identity it has then. */
void mr_relation_narrow(struct mr_relation *view, const struct mr_relation *by);

/* Bytes of memory for each byte of a description: the encoder's plan has about as many. */
enum { MR_RELATION_FACTOR = 3 };

/* All zero is empty. */
struct mr_layouts {
    struct mr_layout **items;
    struct mr_index by_content;
    uint32_t room;
    size_t bytes; /* of memory, of all of them */
};

/* A relation with everything copied. It is freed with the same `layouts`, before these are done. */
struct mr_relation *mr_relation_new(struct mr_layouts *layouts, const struct mr_relation *view);
void mr_relation_free(struct mr_layouts *layouts, struct mr_relation *relation);
void mr_layouts_done(struct mr_layouts *layouts);

/* What freeing it would give back: the layout, too, where no other relation has that. */
size_t mr_relation_own_bytes(const struct mr_relation *relation);

/* A number of the relation's layout, which no other ever has; 0: it has none. */
uint64_t mr_relation_layout_number(const struct mr_relation *relation);

/* True when the relation, found by the view's OID, is what the view says, to the last column. */
bool mr_relation_matches(const struct mr_relation *relation, const struct mr_relation *view);
