/* The tables, the slot and its disk budget, over one connection. */
#ifndef LOAD_DATABASE_H
#define LOAD_DATABASE_H

#include <libpq-fe.h>

#include "load.h"

struct load_database;

/* Connects and makes the tables that are missing; NULL after a message. */
struct load_database *load_database_open(const struct load_options *options);
void load_database_close(struct load_database *database);

/* The next free id of each table. */
bool load_database_next_ids(struct load_database *database, uint64_t ret_ids[LOAD_TABLES_MAX]);

struct load_slot {
    uint64_t retained; /* bytes of WAL that the slot holds */
    uint64_t budget;   /* bytes it may hold, 0: unlimited */
    bool known;
};

/* Asks for the slot; `known` is false when none was named or it is not there. */
struct load_slot load_database_slot(struct load_database *database);

/* True once the slot has confirmed everything that was written when `mark` was taken. */
bool load_database_mark(struct load_database *database, char ret_mark[32]);
bool load_database_confirmed(struct load_database *database, const char *mark);

#endif
