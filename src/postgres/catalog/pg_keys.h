/* The key of a relation whose own flags do not tell it: what the catalog knows of it, and for which
 * rows that holds. Source thread.
 *
 * The stream flags the columns of the replica identity, which is the key wherever there is one but
 * FULL. For the others the catalog is asked, and it tells of now, while the rows are of then. Each
 * catalog row says which transaction wrote it (xmin):
 *
 *   the primary key is older than the row's transaction    the catalog is right
 *   it is as old as the table                              the same, whatever the transaction
 *   a column of it was changed since (perhaps renamed)     the column at the same place, if none
 *                                                          was dropped since
 *   it is younger, or gone                                 what this process knew of it before;
 *                                                          else nobody can know
 *   the table is gone                                      the same; else none, with a warning:
 *                                                          there is nobody left who could say, and
 *                                                          the stream must not stop for that
 *
 * An ALTER TABLE and the writers of the table lock each other out until they end, so their commits
 * are in order; but a transaction has its number from its first change of any table. Where that
 * order and the numbers' differ, the times of commits tell it, if the server keeps them, or a look
 * at the catalog that came before the row's commit. */
#pragma once

#include "event/relation.h"
#include "postgres/catalog/by_oid.h"
#include "postgres/conn/pg_conn.h"

/* All zero is one that knows nothing. */
struct mr_pg_keys {
    struct mr_by_oid tables;
    size_t bytes; /* that the last reading of all took */
};

/* What the answers to later questions surely know: the transactions whose commit begins before
 * `end`, and whose numbers are below `next`. The place alone does not tell. A commit is in the
 * stream as soon as its record is written, but others see it later, with synchronous replication
 * when the standby has it (xact.c, CommitTransaction: RecordTransactionCommit, which calls
 * SyncRepWaitForLSN, and only then ProcArrayEndTransaction). */
struct mr_pg_horizon {
    mr_lsn end;
    uint32_t next;
};

/* The horizon of questions on that connection: the end of the WAL, and the lowest number that is
 * still in use (manual, functions-info, pg_snapshot_xmin). With `is_of_rows` the connection keeps
 * the snapshot that the rows themselves are of, which knows all that they do. */
mr_status mr_pg_horizon_read(struct mr_pg_conn *conn, bool is_of_rows,
                             struct mr_pg_horizon *ret_horizon, struct mr_error *ret_error);

bool mr_pg_horizon_covers(const struct mr_pg_horizon *horizon,
                          const struct mr_transaction *transaction);

/* Of a question that sees the end of the transaction. */
static inline struct mr_pg_horizon mr_pg_horizon_of(const struct mr_transaction *transaction)
{
    return (struct mr_pg_horizon){.end = transaction->commit_lsn + 1, .next = transaction->xid + 1};
}

/* Reads of those tables (OIDs, with commas between) that need it. MR_ERR_CONFIG: they take more
 * than `bytes_max` (0: no limit). */
mr_status mr_pg_keys_read(struct mr_pg_keys *keys, struct mr_pg_conn *conn, const char *oids,
                          const struct mr_pg_horizon *horizon, size_t bytes_max,
                          struct mr_error *ret_error);

/* True when what was read of the table covers the transaction; else it is to be asked for. */
bool mr_pg_keys_cover(const struct mr_pg_keys *keys, uint32_t oid,
                      const struct mr_transaction *transaction);

/* True when the stream's flags may not be the whole key: a column of the replica identity is
 * generated, which the server does not send (pgoutput.c, send_relation_and_attrs; manual,
 * "Generated Columns"). mr_pg_keys_find says which. */
bool mr_pg_keys_lack(const struct mr_pg_keys *keys, uint32_t oid);

/* The table was asked for, and is not there. */
bool mr_pg_keys_is_gone(const struct mr_pg_keys *keys, uint32_t oid);

/* Reads of one table, so that it covers the transaction, whose end the connection sees. */
mr_status mr_pg_keys_ask(struct mr_pg_keys *keys, struct mr_pg_conn *conn, uint32_t oid,
                         const struct mr_transaction *transaction, struct mr_error *ret_error);

/* Whether questions see what the transaction did: it may be in the stream before that, for long
 * where a synchronous standby is away. */
mr_status mr_pg_sees_end(struct mr_pg_conn *conn, uint32_t xid, bool *ret_sees,
                         struct mr_error *ret_error);

/* The key of the table, covered, for rows of that transaction, into the view's key fields, which
 * have room. A key that the view has by the stream's flags stays. MR_ERR_POISON: it can't be known,
 * or the stream does not have it. */
mr_status mr_pg_keys_find(struct mr_pg_keys *keys, const struct mr_transaction *transaction,
                          struct mr_relation *view, struct mr_error *ret_error);

/* Remembers the key that the stream flags under REPLICA IDENTITY DEFAULT, for rows that come under
 * another one. */
void mr_pg_keys_note(struct mr_pg_keys *keys, const struct mr_relation *view);

void mr_pg_keys_done(struct mr_pg_keys *keys);
