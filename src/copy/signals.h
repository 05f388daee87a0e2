/* Signals in Debezium's form: what is inserted into the table of signals. Each row has an id, a
 * type and data, a JSON object:
 *
 *   execute-snapshot   {"data-collections": ["schema.table" or an expression, …],
 *                       "type": "incremental",
 *                       "additional-conditions": [{"data-collection": …, "filter": SQL}, …],
 *                       "surrogate-key": column}
 *   stop-snapshot      {"data-collections": […]}, or all
 *   pause-snapshot, resume-snapshot
 *   log                {"message": …}
 *
 * Anything else is logged and ignored. */
#pragma once

#include "copy/copies.h"
#include "ports/source.h"

/* A row of the table of signals. After an error it was not acted on, and must come again. Source
 * thread. */
mr_status mr_signals_take_row(struct mr_copies *copies, struct mr_source *source,
                              const struct mr_change *change, struct mr_error *ret_error);
