/* The forms of a range: its record in the ledger's topic, and the section of the stored position
 * while it is not sealed. Values only; any thread. docs/dev/proofs.md tells of the record.
 *
 * The section also holds the records of sealed ranges until they are safe in the ledger's topic
 * ("owed"), so that none is lost with the process, and each has the same bytes, whichever process
 * sends it. */
#pragma once

#include <cjson/cJSON.h>

#include "ledger/sums.h"

enum { MR_SUM_TEXT_SIZE = 33 };

/* A range and its place in the chain. */
struct mr_entry {
    uint64_t number;             /* 1, 2, 3 … */
    char prev[MR_SUM_TEXT_SIZE]; /* digest of the record before; of zeros: there is none */
    struct mr_position from, to;
};

void mr_sum_text(struct mr_sum digest, char ret_text[MR_SUM_TEXT_SIZE]);

/* A range's parts; the caller's. */
cJSON *mr_entry_parts(const struct mr_parts *parts, struct mr_topics *topics);

/* The record's value. Takes `parts`; the caller frees the text. */
char *mr_entry_format(const struct mr_entry *entry, const char *pipeline, cJSON *parts);

/* Adds the section: the range at hand, and what is owed, an array of texts. Takes both arrays. */
void mr_entry_store(const struct mr_entry *entry, cJSON *parts, cJSON *owed,
                    struct mr_checkpoint *checkpoint);

/* What the section says, the arrays the caller's. False: there is none. */
bool mr_entry_stored(const struct mr_checkpoint *checkpoint, struct mr_entry *ret_entry,
                     cJSON **ret_parts, cJSON **ret_owed);

extern const struct mr_section_kind mr_ledger_section_kind;
