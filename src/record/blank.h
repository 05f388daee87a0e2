/* Takes the data out of a recorded payload and leaves its structure: lengths, kinds, positions and
 * numbers of the protocol.
 *
 * Reads the bytes by itself, not with the decoder: what the decoder refuses is what gets recorded.
 * One thread. */
#pragma once

#include "base/base.h"

struct mr_blank_name;

/* All zero: values only. */
struct mr_blanker {
    bool names; /* of schemas, tables, columns, types, origins and messages' prefixes, too */
    struct mr_blank_name *known;
    uint32_t known_count;
};

void mr_blanker_done(struct mr_blanker *blanker);

/* Overwrites what is data in a CopyData payload of the server. A number becomes a number, a letter
 * t or f a t, everything else letters x, each of the same length; so do the bytes from the first
 * one on that the protocol does not explain. */
void mr_blank_payload(struct mr_blanker *blanker, uint8_t *payload, size_t len);

/* Overwrites a name: the same name always by the same one, and another by another while the length
 * has enough of them. */
void mr_blank_name(struct mr_blanker *blanker, uint8_t *name, size_t len);
