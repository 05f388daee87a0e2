/* What a relation is beyond its message: whether it is one of ours, its key, the order of the key's
 * columns, its columns' types.
 *
 * One lookup for all who need it, the stream and the copies. It asks nobody: what is known of the
 * published tables, and of all types, is read before (mr_pg_catalog_read), and where that does not
 * cover the transaction at hand, the lookup leaves a question and answers MR_FULL. The caller then
 * has the question answered on a connection (mr_pg_catalog_ask), and looks up again. The catalog
 * tells of now and rows are of then: pg_keys.h, pg_captured.h and pg_types.h say what that means
 * for each. One thread. */
#pragma once

#include "event/kin.h"
#include "postgres/catalog/pg_attributes.h"
#include "postgres/catalog/pg_captured.h"
#include "postgres/catalog/pg_key_order.h"
#include "postgres/catalog/pg_parts.h"
#include "postgres/catalog/pg_types.h"

enum mr_pg_question_kind {
    MR_PG_ASK_NOTHING,
    MR_PG_ASK_PARENT, /* whether it is a partition of a table of ours */
    MR_PG_ASK_KEY,    /* and the order of the key, where that matters */
    MR_PG_ASK_ORDER,
    MR_PG_ASK_TYPE,
    MR_PG_ASK_COLUMNS, /* which they are, where rules hide some */
};

struct mr_pg_question {
    enum mr_pg_question_kind kind;
    struct mr_transaction transaction; /* of the rows; numbers only */
    uint32_t oid, type_oid;
    char table[2 * MR_IDENTIFIER_MAX + 2]; /* schema.table */
    uint32_t schema_len;                   /* of it */
    char column[MR_IDENTIFIER_MAX + 1];
    int64_t deadline_ns; /* 0: not asked yet */
};

/* All zero, but for the options, is one that knows nothing. */
struct mr_pg_catalog {
    const struct mr_pg_source_options *options; /* the caller's */
    struct mr_pg_keys keys;
    struct mr_pg_key_order order;
    struct mr_pg_captured captured;
    struct mr_by_oid types;                /* pg_types.h */
    struct mr_pg_attributes attributes[2]; /* of tables that were asked for last: of each partition
                                              the stream describes its root first, too */
    uint32_t attributes_last;              /* which of them was needed last */
    struct mr_pg_parts parts;              /* of one that is copied, or of all */
    struct mr_origins origins;             /* of the table at hand */
    struct mr_pg_question question;
    /* Whose parent was asked for last, and for which transaction. */
    uint32_t parent_oid;
    mr_lsn parent_lsn;
    struct mr_text parent_columns; /* what the stream says of it */
};

/* Reads all that is known of the published tables. `is_of_rows`: as for mr_pg_horizon_read. */
mr_status mr_pg_catalog_read(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                             bool is_of_rows, struct mr_error *ret_error);
void mr_pg_catalog_done(struct mr_pg_catalog *catalog);

/* Describes a relation of that transaction: sets the view's flags, the types of its columns, and
 * its key, for which there is room for column_count. MR_FULL: a question is open. MR_ERR_POISON:
 * the key can't be known at this place of the stream, or is configured as what it can't be. */
mr_status mr_pg_catalog_describe(struct mr_pg_catalog *catalog,
                                 const struct mr_transaction *transaction, struct mr_relation *view,
                                 struct mr_error *ret_error);

/* Describes one of our tables as the connection sees it now, and asks for all that is needed. */
mr_status mr_pg_catalog_describe_now(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                                     struct mr_relation *view, struct mr_error *ret_error);

static inline bool mr_pg_catalog_asks(const struct mr_pg_catalog *catalog)
{
    return catalog->question.kind != MR_PG_ASK_NOTHING;
}

/* Looks once for the answer to the open question. MR_FULL: the server's sessions do not see the end
 * of the transaction yet; ask again in MR_PG_ASK_AGAIN_MS. MR_ERR_TRANSIENT: they have not for ten
 * seconds, or it could not be asked. But for MR_OK and MR_FULL the connection is of no use, and the
 * question is dropped. */
mr_status mr_pg_catalog_ask(struct mr_pg_catalog *catalog, struct mr_pg_conn *conn,
                            struct mr_error *ret_error);
enum { MR_PG_ASK_AGAIN_MS = 10 };

/* The question could not be asked, for the reason in `ret_error`, which gets the table's name.
 * Answers MR_ERR_TRANSIENT, or MR_AGAIN where that was the reason. */
mr_status mr_pg_catalog_drop(struct mr_pg_catalog *catalog, mr_status status,
                             struct mr_error *ret_error);
