/* What must be true of a server that is a standby (PostgreSQL 16 and later), and the state of the slot's copies on standbys. */
#pragma once

#include "postgres/server/pg_rules.h"
#include "postgres/server/pg_slot.h"

/* Goes through the rules of a standby; nothing where the server is none. An error is one of the asking. */
mr_status mr_pg_rules_of_standby(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                 struct mr_pg_reporter *to, struct mr_error *ret_error);

/* Looks at the hosts of a connection string that names several: a copy for each that is a standby, or does not answer; at most
 * MR_SLOT_COPIES_MAX. MR_AGAIN: a stop. Any thread. */
mr_status mr_pg_look_at_copies(const struct mr_pg_options *connection, const char *slot,
                               int stop_fd, struct mr_slot_copy *ret_copies, uint32_t *ret_count);

/* For the one who makes a slot on a standby: what that waits for, and what ends it. */
#define MR_STANDBY_SLOT_WAITS                                                                      \
    "the primary, which is quiet: a standby makes a slot at its next record of running "           \
    "transactions"
#define MR_STANDBY_SLOT_REMEDY "SELECT pg_log_standby_snapshot() on the primary"
