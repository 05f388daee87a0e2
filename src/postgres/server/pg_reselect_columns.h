/* Whether the columns that were read again, by their names, are those that the stream named. */
#pragma once

#include "postgres/server/pg_reselect.h"

/* Of the questions that were asked and have values, in the transaction that has read them. Where a
 * name may mean another column by now, nothing that was read by it goes out: rules for columns
 * (columns.mask and others) know the names of then, and it may be one that they hide. The outcome
 * is then MR_RESELECTED_GONE, or MR_RESELECTED_LATER where only that is known. */
mr_status mr_reselect_check_columns(struct mr_pg_conn *conn, const char *slot,
                                    struct mr_reselect_question *questions, const uint32_t *asked,
                                    uint32_t count, struct mr_error *ret_error);
