/* What is learnt while the stream runs, in the stored position, so that the next process knows it:
 * which columns are hidden (encode/hidden/hidden.h), which tables were partitions of which
 * (event/kin.h), by how many partitions topics are filled (event/placing.h), their ids
 * (event/known_topics.h), and of which tables nothing may come (event/silence.h).
 * Companions of the flow (ports/companion.h). */
#pragma once

#include "encode/hidden/hidden.h"
#include "event/kin.h"
#include "event/known_topics.h"
#include "event/placing.h"
#include "event/silence.h"
#include "ports/companion.h"

struct mr_keeper {
    struct mr_companion base;
    void *what; /* the caller's */
};

extern const struct mr_section_kind mr_kept_columns_kind, mr_kept_kin_kind, mr_kept_placings_kind,
    mr_kept_topics_kind, mr_kept_silence_kind;

void mr_kept_columns_init(struct mr_keeper *kept, struct mr_hidden *hidden);
void mr_kept_kin_init(struct mr_keeper *kept, struct mr_kin *kin);
void mr_kept_placings_init(struct mr_keeper *kept, struct mr_placings *placings);
void mr_kept_topics_init(struct mr_keeper *kept, struct mr_known_topics *known);
void mr_kept_silence_init(struct mr_keeper *kept, struct mr_silence *silence);
