/* The domain: positions, relations and row changes, as every stage understands them.
 *
 * Values only; no libpq, no librdkafka. Slices in a change point into the message it was decoded
 * from and live exactly as long as the callback that gets it. */
#pragma once

#include "base/base.h"

/* A place in PostgreSQL's write-ahead log; 0 is "none". */
typedef uint64_t mr_lsn;

#define MR_LSN_FORMAT    "%X/%X"
#define MR_LSN_ARGS(lsn) (unsigned)((lsn) >> 32), (unsigned)(lsn)

/* Where a change stands in the stream: order of positions is order of emission. A change's own LSN
 * would not do: several rows of one COPY share one, and it interleaves between transactions. */
struct mr_position {
    /* Of the change's transaction: where its commit record begins. Of a message outside
     * transactions: where its own record ends. */
    mr_lsn commit_lsn;
    uint64_t ordinal; /* 1, 2, 3 … over all changes of the transaction; 0 for such a message */
};

/* Negative, zero or positive as `a` stands before, at or after `b`. */
static inline int mr_position_compare(struct mr_position a, struct mr_position b)
{
    if (a.commit_lsn != b.commit_lsn) {
        return a.commit_lsn < b.commit_lsn ? -1 : 1;
    }
    return (a.ordinal > b.ordinal) - (a.ordinal < b.ordinal);
}

/* Tells a transaction from every other, also from one at its place in another history of the same
 * server. */
struct mr_commit {
    mr_lsn lsn;      /* where its commit record begins; 0: none is known */
    int64_t time_us; /* since 1970 */
    uint32_t xid;
    uint64_t asked; /* what it was asked for with: mr_identity_asked */
};

enum mr_op {
    MR_OP_INSERT,
    MR_OP_UPDATE,
    MR_OP_DELETE,
    MR_OP_TRUNCATE,
    MR_OP_MESSAGE,
    MR_OP_READ, /* a row that was there before the stream began */
};
enum { MR_OP_COUNT = MR_OP_READ + 1 };

/* As configurations, metrics and pages call it. */
static inline const char *mr_op_name(enum mr_op op)
{
    static const char *const names[] = {
        [MR_OP_INSERT] = "insert",     [MR_OP_UPDATE] = "update",   [MR_OP_DELETE] = "delete",
        [MR_OP_TRUNCATE] = "truncate", [MR_OP_MESSAGE] = "message", [MR_OP_READ] = "read",
    };
    return names[op];
}

/* Which of the copied rows it is, in Debezium's words (its SnapshotRecord). */
enum mr_copy_mark {
    MR_COPY_NONE, /* no copied row */
    MR_COPY_FIRST,
    MR_COPY_FIRST_IN_TABLE,
    MR_COPY_ROW,
    MR_COPY_LAST_IN_TABLE,
    MR_COPY_LAST,
    MR_COPY_INCREMENTAL, /* copied while the stream runs */
};

enum {
    /* Copied rows have positions right below the stream's: the ordinal's upper bits tell the
     * attempt, the others count the rows of a lane. The ordinal is shown with 40 bits. */
    MR_COPY_ROW_BITS = 34,
    MR_COPY_ATTEMPTS_MAX = (1 << (40 - MR_COPY_ROW_BITS)) - 1,
    MR_COPY_LANES_MAX = 16,  /* workers that copy existing rows */
    MR_COLUMNS_MAX = 1664,   /* MaxTupleAttributeNumber of PostgreSQL */
    MR_IDENTIFIER_MAX = 255, /* 63 in a stock build; longer ones in special builds */
};

/* A copied row's. */
static inline bool mr_position_is_copied(struct mr_position position)
{
    return position.ordinal >> MR_COPY_ROW_BITS != 0;
}

/* Events tell times in nanoseconds since 1970, so these are the last that they can tell, and with a
 * minus the first. */
#define MR_EVENT_TIME_US_MAX (INT64_MAX / 1000)

/* Columns of a new row whose values were read later, so that a later change may have made them. */
struct mr_later {
    uint32_t count;
    uint32_t columns[MR_COLUMNS_MAX];
};

/* The transaction a change belongs to. */
struct mr_transaction {
    mr_lsn begin_lsn;       /* of the Begin message itself */
    mr_lsn commit_lsn;      /* from Begin: the commit record's LSN */
    mr_lsn end_lsn;         /* from Commit: where the next record begins; 0 before it is known */
    mr_lsn last_commit_lsn; /* end LSN of the transaction before; 0 when none was seen yet */
    int64_t commit_time_us; /* since 1970, at most MR_EVENT_TIME_US_MAX on either side */
    uint32_t xid;
    bool has_rows;   /* at Commit: more came of it than messages */
    mr_slice origin; /* replication origin's name; empty for a local transaction */
    mr_lsn origin_lsn;
    /* What each record of it has besides its own headers, as event/headers.h writes them: of the
     * stream what the transaction has said so far (event/context.h), of copied rows why they are
     * sent again. Good for the call. */
    mr_slice headers;
    const struct mr_later *later; /* of the change at hand; NULL: all of it is as it was then */
};

/* FirstNormalObjectId (access/transam.h): types from here on are not built in. */
#define MR_FIRST_USER_OID UINT32_C(16384)

enum mr_type_kind {
    MR_TYPE_UNKNOWN,  /* nobody looked it up */
    MR_TYPE_BUILT_IN, /* `oid` says it */
    MR_TYPE_TEXT,     /* enums, and types of extensions that are text */
    MR_TYPE_HSTORE,
    MR_TYPE_GEOMETRY, /* PostGIS */
    MR_TYPE_GEOGRAPHY,
    MR_TYPE_VECTOR, /* pgvector */
    MR_TYPE_HALFVEC,
    MR_TYPE_SPARSEVEC,
    MR_TYPE_OPAQUE, /* composites, and what else has a text that only PostgreSQL reads */
};

/* What a column's type is in the end: a domain is what it is over. */
struct mr_type {
    uint32_t oid; /* of an array that is not built in: its elements' */
    int32_t modifier;
    enum mr_type_kind kind;
    bool is_array;     /* of an array that is not built in */
    bool is_of_domain; /* its elements are of a domain */
};

struct mr_column {
    const char *name;
    uint32_t type_oid;
    int32_t type_modifier;
    struct mr_type type;
    const char *type_name; /* with its schema; NULL: of a built-in type, or a copied row */
    bool in_identity; /* part of the replica identity, as the server says; but see is_narrowed */
    bool is_flagged;  /* what the server says of it, whatever partitions have */
};

enum mr_replica_identity {
    MR_IDENTITY_DEFAULT = 'd',
    MR_IDENTITY_NOTHING = 'n',
    MR_IDENTITY_FULL = 'f',
    MR_IDENTITY_INDEX = 'i',
};

struct mr_layout;

/* One version of a table's shape, as the stream describes it. Immutable; a change of the table
 * makes a new one. Owned by the decoder's cache, valid until the cache announces its end. */
/* A column as the catalog knows it, by the number that it keeps whatever its name
 * (pg_attribute.attnum), and no other ever gets. */
struct mr_attribute {
    uint32_t number;
    const char *name; /* NULL: it may have had any at that place of the stream, or not have been */
    bool is_there;    /* the table has it still, or who dropped it came later */
};

struct mr_table_part {
    uint32_t oid;
    const char *schema, *table;
};

/* What a table is a partition of, or was. `numbers`: which column is which, NULL: not known; "":
 * they have the same numbers; else pairs of the other table's and this one's, "1:1,4:3". */
struct mr_origin {
    uint32_t oid;
    const char *schema, *table, *numbers;
};

struct mr_relation {
    uint32_t oid;
    const char *schema;
    const char *table;
    enum mr_replica_identity identity;
    uint32_t column_count;
    struct mr_column *columns;
    /* What tells its rows apart, as indexes of columns, in the order in which a key is written;
     * none: it has no key. Found by the source, and the same for insert, update and delete:
     * docs/keys.md. */
    uint32_t key_count;
    uint32_t *key_columns;
    bool key_is_chosen; /* by the configuration, and may hold nulls */
    bool is_unlisted;   /* published, but not configured: none of its changes is passed on */
    /* what commits there or later is not passed on; 0: there is no such place */
    mr_lsn listed_until;
    bool is_signal;   /* what is inserted into it asks for something */
    bool is_narrowed; /* its identity is what all its partitions' have of it; */
    uint32_t narrows; /* of a partition that has less of it the table's OID, else 0 */
    enum mr_replica_identity told_identity; /* the server's word, whatever partitions have */
    /* It is passed on as a partition's, though by its own name. */
    bool is_part;
    /* Of which table, by the name that it had, or of which it may be: what is said of one of them
     * is said of this one. A partition without any is of one that is not known. */
    uint32_t origin_count;
    const struct mr_origin *origins;
    /* Which of the table's columns these are, by number: all that it may have had. None: not asked
     * (no rules for columns), or the catalog does not know the table any more. */
    uint32_t attribute_count;
    const struct mr_attribute *attributes;
    /* All its partitions, whose rows come as its own, by their names now; of a copy alone, where
     * rules hide columns. The stream shows each before its first row. */
    uint32_t part_count;
    const struct mr_table_part *parts;
    struct mr_layout *layout; /* columns and key, shared with others; NULL: they are its own */
    size_t bytes;             /* of memory, without the layout */
};

enum mr_datum_kind {
    MR_DATUM_NULL = 'n',
    MR_DATUM_UNCHANGED = 'u', /* TOASTed: the update did not touch it, the server did not send it */
    MR_DATUM_TEXT = 't',
    MR_DATUM_BINARY = 'b', /* not asked for; a value of this kind is an error upstream */
    MR_DATUM_CUT = 'c',    /* left out by the encoder, because the record would be too large */
};

struct mr_datum {
    const uint8_t *data;
    uint32_t len;
    enum mr_datum_kind kind;
};

enum mr_tuple_kind {
    MR_TUPLE_NONE = 0,
    MR_TUPLE_KEY = 'K',  /* identity columns only; the rest are nulls that mean nothing */
    MR_TUPLE_FULL = 'O', /* the whole old row */
    MR_TUPLE_NEW = 'N',
};

/* `count` values, one a column of the relation; none when `kind` is MR_TUPLE_NONE. */
struct mr_tuple {
    enum mr_tuple_kind kind;
    const struct mr_datum *values;
};

/* One row change (or one table of a TRUNCATE). */
struct mr_change {
    enum mr_op op;
    enum mr_copy_mark copy_mark;
    mr_lsn lsn; /* of the change's own record; not a position */
    struct mr_position position;
    const struct mr_transaction *transaction;
    const struct mr_relation *relation;
    struct mr_tuple before;
    struct mr_tuple after;
};

/* A message written with pg_logical_emit_message. */
struct mr_message_event {
    mr_lsn lsn;
    struct mr_position position;
    const struct mr_transaction *transaction; /* NULL for a non-transactional message */
    mr_slice prefix;
    mr_slice content;
    bool is_context; /* it was heard (event/context.h), and is not passed on */
};
