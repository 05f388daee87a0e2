/* `millrace check`: whether keys are those of Debezium's connector (docs/events.md, "The key"). */
#ifndef MR_POSTGRES_PG_CHECK_KEYS_H
#define MR_POSTGRES_PG_CHECK_KEYS_H

#include "base/finding.h"
#include "postgres/catalog/pg_options.h"

/* Names the published tables whose records have another key than Debezium's: as a warning where the keys are meant to be
 * Debezium's, and where only the order of the columns differs as something to know. */
mr_status mr_pg_check_keys(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           mr_finding_fn report, void *context, struct mr_error *ret_error);

#endif
