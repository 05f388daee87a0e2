/* Who asked for which tables' existing rows, and how far each is. Any thread asks and looks; the
 * source thread does what is asked for (chunks.c). Inside copy/ only.
 *
 * Where the sink stores positions, it stores this, too, as a section of the record. Each change of
 * it is a revision. What the stream's batch at hand brings is a note: of the step that the batch
 * carries (ports/companion.h), the revision, and the place that a request has come to. Once the
 * step is safe, the place is the request's own, and the revision with it.
 *
 * What is asked by keys is not stored, because these are values of rows: it ends with the process,
 * or with the sink's session. */
#pragma once

#include <pthread.h>

#include "copy/asked_stored.h"
#include "copy/copies.h"

/* How far the end of a request is with the sink. */
enum mr_request_end {
    MR_REQUEST_END_OPEN,
    MR_REQUEST_END_TOLD,   /* the sink is storing that all of it is safe, */
    MR_REQUEST_END_STORED, /* or has stored that, or stores nothing */
};

enum mr_wish_state { MR_WISH_STORED, MR_WISH_NEW, MR_WISH_TOLD };

/* Rows that went out, or not, because the stream had them newer; chunks that were good, or read in
 * vain. */
struct mr_chunks_done {
    uint64_t rows, passed_over, chunks, repeated;
};

struct mr_chunk_request {
    struct mr_chunk_request *next;
    struct mr_asked_table asked; /* at the place where it begins, or goes on after a loss */
    struct mr_chunk_keys *keys;  /* NULL: it copies rows. Until its end */
    const char *repairs; /* mr_chunk_keys.why; NULL: it copies rows. Nothing stores one that does */
    enum mr_copy_request_state state;
    bool stops; /* somebody wants its end */
    struct mr_chunks_done done;
    uint64_t rows_estimated;
    bool told; /* the sink may have stored it */
    enum mr_request_end end;
    int64_t begun_ns, ended_ns;
    char error[sizeof(((struct mr_copy_request *)0)->error)];
    /* Source thread. */
    struct mr_chunk_table *parts;
    uint32_t part, part_count;
    uint32_t key; /* the next one */
    int64_t told_ns;
};

struct mr_chunk_requests {
    pthread_mutex_t lock;           /* of all but what is the source thread's alone */
    struct mr_chunk_request *first; /* in order of asking */
    uint64_t last_id;
    _Atomic bool paused;
    _Atomic uint32_t open;      /* that are not at their ends */
    struct mr_held_up held;     /* the one that is copied */
    struct mr_companion *owner; /* that is to know of what is asked */
    bool stores;                /* the sink does */
    size_t stored_max;          /* bytes of what is asked; of the rest in proportion */
    _Atomic uint64_t revision;
    uint64_t safe; /* the revision that is with the sink */
    enum mr_wish_state wish;
    uint64_t told_id; /* the last one of ours that the sink may have stored */
    struct mr_chunk_note *notes, **last_note; /* by their steps */
    uint32_t follows;                         /* kinds that are to be asked for once they come */
    _Atomic bool adopted;                     /* what is stored is known */
    struct {
        uint32_t kinds; /* of those that need no copy, */
        uint64_t *ids;  /* by their ids, ascending */
        uint32_t count;
        char *texts[MR_KNOWN_KINDS]; /* as they are stored */
    } known;
    uint64_t moved[MR_MOVED_COUNT];
    struct mr_chunks_done done; /* of all requests */
    struct cJSON *gap;  /* the section of that name; NULL: the stream has left nothing out */
    bool gap_is_copied; /* it is settled once the stream is stored as begun */
    mr_lsn gap_told;    /* the end of the one that was logged, */
    mr_lsn gap_given;   /* that the record has which is being stored, */
    mr_lsn gap_safe;    /* and that is stored; 0: none */
};

/* Where the stream went on last without what was in between (gap.c):
 * {"from":"16/B374D848","to":"16/B3801A28","from_ms":…,"at_ms":…,
 * "tables":{"public.orders":7},"settled":"differing","settled_ms":…}; of tables the rows that were
 * mended. */
#define MR_SECTION_GAP "gap"
bool mr_gap_rank(const char *json, struct mr_section_rank *ret_rank);

/* `known` (NULL: nothing) was delivered, up to `from` all that the server has; the stream begins at
 * `to`. `is_new`: else it only counts where it is noted. `is_copied`: it ends once all rows are
 * copied. What is open joins it. */
void mr_chunk_requests_note_gap(struct mr_chunk_requests *requests,
                                const struct mr_checkpoint *known, mr_lsn from, mr_lsn to,
                                bool is_new, bool is_copied);

/* The end of the gap that is stored; 0: none is. */
mr_lsn mr_chunk_requests_gap_stored(struct mr_chunk_requests *requests);

/* No gap that ends there would be lost with this process: it is stored, or there is none, or
 * nothing is stored at all. */
bool mr_chunk_requests_gap_is_safe(struct mr_chunk_requests *requests, mr_lsn to);

/* With the lock: so many rows of the table were mended. */
void mr_gap_count(struct mr_chunk_requests *requests, const char *table, uint64_t rows);
void mr_chunk_requests_add_gap(struct mr_chunk_requests *requests,
                               struct mr_checkpoint *checkpoint);
void mr_chunk_requests_adopt_gap(struct mr_chunk_requests *requests,
                                 const struct mr_checkpoint *stored);

void mr_chunk_requests_init(struct mr_chunk_requests *requests, struct mr_companion *owner);
void mr_chunk_requests_done(struct mr_chunk_requests *requests);

void mr_chunk_requests_attach(struct mr_chunk_requests *requests, bool stores, size_t stored_max);

/* With the lock: what is to be stored has changed. The owner is to be told. */
void mr_chunk_requests_note_wish(struct mr_chunk_requests *requests);

/* As mr_copies_ask. */
mr_status mr_chunk_requests_ask(struct mr_chunk_requests *requests, const struct mr_copy_wish *wish,
                                uint64_t *ret_id, struct mr_error *ret_error);

/* The first one of that state, or the one of that number; NULL: there is none. It stays until the
 * source thread has ended it. */
struct mr_chunk_request *mr_chunk_requests_first(struct mr_chunk_requests *requests,
                                                 enum mr_copy_request_state state);
struct mr_chunk_request *mr_chunk_requests_of(struct mr_chunk_requests *requests, uint64_t id);

/* One that is at its end: somebody wants that, or it is stored that all of it is safe; NULL: there
 * is none. */
struct mr_chunk_request *mr_chunk_requests_over(struct mr_chunk_requests *requests);

/* An end is logged. */
void mr_chunk_request_set(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                          enum mr_copy_request_state state);
void mr_chunk_request_fail(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                           const struct mr_error *error);

/* The rows of its part are read from now on, after the place that is returned, the caller's. */
struct mr_asked_place mr_chunk_request_begin(struct mr_chunk_requests *requests,
                                             struct mr_chunk_request *request);

/* The parts that it is made of, the request's from now on. */
void mr_chunk_request_found(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                            struct mr_chunk_table *parts, uint32_t count);

/* Counts what was done of it since the last call. */
void mr_chunk_request_did(struct mr_chunk_requests *requests, struct mr_chunk_request *request,
                          const struct mr_chunks_done *more);

/* The request that is copied waits for that transaction; NULL: for none. True: it is another one
 * than before. */
bool mr_chunk_requests_hold(struct mr_chunk_requests *requests,
                            const struct mr_chunk_holder *holder);

/* The stream's batch that carries `step` brings all that was asked or done so far; and the request
 * (NULL: none) to that place. */
void mr_chunk_requests_note(struct mr_chunk_requests *requests, uint64_t step,
                            const struct mr_chunk_request *request,
                            const struct mr_asked_place *place);

/* What was on its way is lost: what is not at its end goes on where it is safe. */
void mr_chunk_requests_begin_anew(struct mr_chunk_requests *requests);

/* All batches up to one that carries the step are with the sink. */
void mr_chunk_requests_safe(struct mr_chunk_requests *requests, uint64_t step);

/* How far it is where all up to that step is with the sink; the caller's. NULL: nobody has asked
 * for anything yet. */
struct mr_asked_stored *mr_chunk_requests_state(struct mr_chunk_requests *requests, uint64_t step);

/* What mr_chunk_requests_state said last is stored; where the sink stores nothing: what is safe
 * counts as that. */
void mr_chunk_requests_stored(struct mr_chunk_requests *requests);

/* A session begins, and this was stored (NULL: nothing): what it knows and we don't, because the
 * process or another instance has stored it, counts. While nothing is copied. */
void mr_chunk_requests_adopt(struct mr_chunk_requests *requests,
                             const struct mr_asked_stored *stored);
