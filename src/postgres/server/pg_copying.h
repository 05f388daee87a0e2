/* Which connection existing rows are read by: the stream's, or one of its own, whose role needs to
 * read them and no more (docs/security.md, "Owners of copied tables"). Whatever plans a query on a
 * captured table goes over it. */
#pragma once

#include <pthread.h>

#include "postgres/catalog/pg_options.h"

/* Which server and database a connection has come to. */
struct mr_pg_place {
    char system_id[24];
    char database[256];
    char started[48];  /* when the server was */
    uint32_t timeline; /* 0: a standby's */
    bool is_standby;
    bool may_move; /* it is the stream's, which may be about to follow another server */
};

mr_status mr_pg_place_read(struct mr_pg_conn *conn, struct mr_pg_place *ret_place,
                           struct mr_error *ret_error);

/* The stream's, for readers of rows beside it. Any thread. */
struct mr_pg_home {
    pthread_mutex_t lock;
    struct mr_pg_place place;
    uint64_t streams; /* how often one was begun */
    uint32_t ended;   /* how often in a row the server has ended who read rows by a condition, */
    uint32_t ended_table; /* of that table the last time */
};
void mr_pg_home_init(struct mr_pg_home *home);
void mr_pg_home_done(struct mr_pg_home *home);

/* Notes where `conn`, the stream's, has come to. Asks nothing where copies use the same connection
 * string, but counts. */
mr_status mr_pg_home_read(struct mr_pg_home *home, struct mr_pg_conn *conn,
                          const struct mr_pg_source_options *options, struct mr_error *ret_error);

/* How often the stream has begun: a connection that was made before the last time may be one to a
 * server that it has left. */
uint64_t mr_pg_home_streams(struct mr_pg_home *home);

/* After so many it is not tried again. */
enum { MR_PG_ENDED_MAX = 3 };

/* The connection has failed while it read rows of the table by a condition. True: the server has
 * ended it (57P01), though it takes others, and that MR_PG_ENDED_MAX times in a row: so the
 * condition does it. Any thread. */
bool mr_pg_copying_is_ended(const struct mr_pg_source_options *options, struct mr_pg_home *home,
                            const struct mr_pg_conn *conn, uint32_t table);

/* Rows of the table have come. Any thread. */
void mr_pg_home_came(struct mr_pg_home *home, uint32_t table);

/* Copies have a connection string of their own. */
static inline bool mr_pg_copies_apart(const struct mr_pg_source_options *options)
{
    return options->copying.conninfo != NULL;
}

/* Connects. MR_ERR_CONFIG: to another cluster, database or timeline than `beside`, or to another
 * server's standby; what may come right by itself once the stream has followed is MR_ERR_TRANSIENT
 * where `beside` may move. */
mr_status mr_pg_copying_connect(const struct mr_pg_source_options *options,
                                const struct mr_pg_place *beside, int stop_fd,
                                struct mr_pg_conn **ret_conn, struct mr_error *ret_error);

/* The same, beside the stream. */
mr_status mr_pg_copying_connect_home(const struct mr_pg_source_options *options,
                                     struct mr_pg_home *home, int stop_fd,
                                     struct mr_pg_conn **ret_conn, struct mr_error *ret_error);
