/* What is learnt while the stream runs, in the stored position, so that the next process knows it.
 * Companions of the flow (ports/companion.h), one a kind. */
#pragma once

#include "encode/hidden/hidden.h"
#include "event/kin.h"
#include "event/known_topics.h"
#include "event/placing.h"
#include "event/silence.h"
#include "ports/companion.h"

enum mr_kept_kind {
    MR_KEPT_KIN,      /* which tables were partitions of which */
    MR_KEPT_COLUMNS,  /* which columns are hidden */
    MR_KEPT_PLACINGS, /* by how many partitions topics are filled */
    MR_KEPT_TOPICS,   /* their ids */
    MR_KEPT_SILENCE,  /* of which tables nothing may come */
    MR_KEPT_COUNT,
};

extern const struct mr_section_kind mr_kept_kinds[MR_KEPT_COUNT];

/* The member of its kind; all are the caller's. */
union mr_kept_object {
    void *any;
    struct mr_kin *kin;
    struct mr_hidden *hidden;
    struct mr_placings *placings;
    struct mr_known_topics *topics;
    struct mr_silence *silence;
};

struct mr_keeper {
    struct mr_companion base;
    enum mr_kept_kind kind;
    union mr_kept_object of;
};

void mr_keeper_init(struct mr_keeper *keeper, enum mr_kept_kind kind, union mr_kept_object of);
