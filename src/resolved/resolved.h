/* Resolved markers: records in every partition that say up to which LSN all commits are above them
 * (docs/consumers.md has the argument). A companion of the flow (ports/companion.h), which appends
 * them to the stream's lane, between two transactions.
 *
 * What a marker says is published when it is appended: each record of it is acknowledged, so it
 * lies above, whatever becomes of the session. Nothing is stored, for that is true again of what is
 * stored when a process begins.
 *
 * Markers go to the topics that the sink has sent to in this session, and to those of the tables
 * that are streamed. */
#pragma once

#include "copy/copies.h"
#include "event/batch.h"

/* Of a marker, and of nothing else. The LSN is in 16 hexadecimal digits, as the first part of
 * mr-pos. */
#define MR_HEADER_RESOLVED   "mr-resolved"
#define MR_HEADER_PARTITIONS "mr-partitions" /* of the topic; 0: not known yet */

struct mr_resolved;

/* `topics` are all that there are; the caller's, and outlive it. */
struct mr_resolved *mr_resolved_new(struct mr_topics *topics, uint32_t interval_ms);
void mr_resolved_free(struct mr_resolved *resolved); /* after the flow; takes NULL */

struct mr_companion *mr_resolved_companion(struct mr_resolved *resolved);

/* mr_streamed_fn: these are all the tables that are streamed. Any thread. */
void mr_resolved_take_tables(void *resolved, const struct mr_streamed_table *tables,
                             uint32_t count);
