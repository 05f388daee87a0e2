/* The ledger (docs/dev/proofs.md): what was delivered, in a topic of its own, so that a reader who
 * knows only the topics finds what is missing, changed or twice. A companion of the flow
 * (ports/companion.h).
 *
 * The sink thread sums what is sent (sums.h), and seals a range of it when a position is stored:
 * once a second, or after 64 MiB. The stored position's section has the range at hand, and each
 * sealed range until its record is safe. The source thread appends that record to the stream's
 * lane, between two transactions, after the position is stored.
 *
 *   a range: at hand -> sealed -> stored -> appended -> safe, and no longer in the section */
#pragma once

#include "ledger/entry.h"

struct mr_ledger_options {
    struct mr_topics *topics;     /* all that there are; the caller's, and outlive the ledger */
    const struct mr_topic *topic; /* the ledger's own, of which it keeps no account */
    const char *pipeline;         /* what tells it from others in that topic; the caller's */
    uint32_t interval_ms;
};

struct mr_ledger;

struct mr_ledger *mr_ledger_new(const struct mr_ledger_options *options);
void mr_ledger_free(struct mr_ledger *ledger); /* after the flow; takes NULL */

struct mr_companion *mr_ledger_companion(struct mr_ledger *ledger);
