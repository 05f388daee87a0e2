/* Updates that lack values (pg_reselect.h), held back until these were read again, and with them
 * all that comes after: the stream stays in its order. Messages are held as they came, before they
 * are decoded; an update whose values are known then has them as if the server had sent them. While
 * nothing is held, a message passes and is not copied.
 *
 * What the table has now is exact only if no later change of the same transaction has touched the
 * row, so an update is held until its transaction has come to its end, too, and each change is
 * compared with those that are held, by its key. A transaction that is larger than the window is
 * not known to its end, and its first values count as later ones.
 *
 *     received -> waits -> asked -> answered -> handed out
 *
 * Bounded: what is held by WINDOW_BYTES, and by wait_ms how long the first one holds up the others;
 * then it goes as it came, and nothing is asked for a while. Source thread, but for the asker. */
#pragma once

#include "ports/source.h"
#include "postgres/server/pg_reselect.h"

enum { MR_RESELECT_QUESTIONS = 128 };

/* Asked together. The asker's from `ask` until `is_done`. */
struct mr_reselect_round {
    struct mr_reselect_question questions[MR_RESELECT_QUESTIONS];
    uint32_t count;
    int64_t deadline_ns;
    _Atomic bool is_done;
};

/* Who asks, one round at a time. */
struct mr_reselect_asker {
    /* False: it can't, now. */
    bool (*ask)(struct mr_reselect_asker *asker, struct mr_reselect_round *round);
    /* Breaks off what it does; the round is the caller's. */
    void (*end)(struct mr_reselect_asker *asker);
    int done_fd; /* readable once a round is done */
};

/* On a thread of its own. All that it is given outlives it. */
struct mr_reselect_asker *mr_reselect_thread_new(const struct mr_pg_source_options *options,
                                                 struct mr_pg_home *home);
void mr_reselect_thread_free(struct mr_reselect_asker *asker);

struct mr_reselect_wiring {
    const struct mr_pg_reselect_options *options;
    struct mr_source *source; /* counts */
    struct mr_reselect_asker *asker;
    /* The relation as the stream has announced it; NULL: it has not. */
    const struct mr_relation *(*relation)(void *context, uint32_t oid);
    void *relation_context;
    /* Whether events show the column. */
    bool (*shows)(void *context, const struct mr_relation *relation, uint32_t column);
    void *shows_context;
};

struct mr_reselect;

struct mr_reselect *mr_reselect_new(const struct mr_reselect_wiring *wiring);
void mr_reselect_free(struct mr_reselect *reselect); /* takes NULL */

/* The stream has ended: nothing is held any more, and what is asked is broken off. */
void mr_reselect_reset(struct mr_reselect *reselect);

/* Whether there is room for one more message. */
bool mr_reselect_has_room(const struct mr_reselect *reselect);

/* A payload of the stream has come, which lives until the next one is received. False: nothing is
 * held, and it passes. */
bool mr_reselect_put(struct mr_reselect *reselect, mr_slice payload);

/* The first that is held, if it may be handed out: it lives until mr_reselect_taken. */
bool mr_reselect_next(struct mr_reselect *reselect, mr_slice *ret_payload);
void mr_reselect_taken(struct mr_reselect *reselect);

/* Of that one: values that were put in, and that a later change may have made; NULL: none. */
const struct mr_later *mr_reselect_later(const struct mr_reselect *reselect);

/* A descriptor that gets readable when there is something to do: `socket` while nothing is held. */
int mr_reselect_descriptor(struct mr_reselect *reselect, int socket);

/* The message that was received last is held where it lies. */
bool mr_reselect_holds_message(const struct mr_reselect *reselect);
