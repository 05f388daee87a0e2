/* A whole pipeline for unit tests: a source that plays a script from the position it is opened at,
 * and a sink that answers when it is told to. What is between them is the real one, with its
 * threads. */
#ifndef MR_TESTING_STAGE_H
#define MR_TESTING_STAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "flow/pipeline.h"

enum mr_step_kind {
    MR_STEP_ROW,
    MR_STEP_BEGIN,
    MR_STEP_COMMIT,
    MR_STEP_MESSAGE,
    MR_STEP_KEEPALIVE, /* asks for an answer */
    MR_STEP_PASSED,    /* a keepalive that asks nothing */
    MR_STEP_TOLD,      /* nothing comes until the server was told */
    MR_STEP_GATE,      /* nothing comes until the test opens it */
    MR_STEP_LOST,
    MR_STEP_UNSENT, /* the server can't send a transaction */
};

struct mr_step {
    enum mr_step_kind kind;
    /* begin: where the commit record begins; commit: where it ends; message outside transactions:
     * where its record ends; keepalive: where the server stands; told: of that or more; gate: its
     * number; unsent: as begin */
    mr_lsn lsn;
    const char *v; /* row: its value; a second column's is not sent */
};

enum { MR_STAGE_RECORDS_MAX = 256, MR_STAGE_WAIT_S = 20 };

/* A test sets what it wants otherwise before it starts the pipeline; what is atomic, at any
 * time. */
struct mr_stage {
    struct mr_source source;
    struct mr_sink sink;

    /* Where the script is, and what the source saw. */
    const struct mr_step *steps;
    int step_count;
    int at; /* of the steps */
    bool in_transaction;
    struct mr_transaction transaction;
    uint64_t ordinal;
    struct mr_column column;
    struct mr_relation relation;
    bool lost_once;   /* MR_STEP_LOST happens at the first pass only */
    bool connected;   /* from the claim to the close */
    bool silent;      /* questions are not answered */
    bool asked;       /* and one waits for its answer */
    mr_lsn server_at; /* end of what was sent */
    _Atomic int gates_open;
    _Atomic int receives;
    _Atomic int answers; /* to questions */
    _Atomic int confirms;
    _Atomic int closes;
    _Atomic mr_lsn told;
    _Atomic int opens;

    /* What the sink has, and what it is told to do. */
    struct mr_batch *held[MR_STAGE_RECORDS_MAX];
    int held_count;
    _Atomic int received; /* batches the sink has */
    _Atomic int polls;
    /* holds batches until told: -1 keeps all, n gives back the n-th and later */
    _Atomic int release_from;
    size_t refuse_from_bytes; /* a record of so many bytes is refused; 0: none is */
    _Atomic int fail_after;   /* the session fails when so many batches have come; 0: never */
    _Atomic int sessions;
    pthread_mutex_t lock;
    char values[MR_STAGE_RECORDS_MAX][16]; /* delivered, in order of sending */
    _Atomic int value_count;

    /* Of a sink that stores the position; under `lock`. */
    struct mr_checkpoint stored;
    bool stored_found;
    bool stored_went_back;
    struct mr_checkpoint known; /* what the source was opened with last */
    _Atomic int stores;
    _Atomic bool hold_store;     /* what is stored is not safe yet */
    _Atomic bool hold_proof;     /* nothing that is stored is there for good, */
    bool unsettles;              /* and a session that fails takes it along, */
    struct mr_checkpoint proved; /* back to what was */
    _Atomic int claims;
    /* what LOST has ended is not claimed again before that gate is open; 0: it is */
    int claim_gate;
    bool stands_by;             /* claims wait for a stop */
    bool sink_is_refused;       /* its session can't begin, for good */
    int dead_sessions;          /* so many of them fail at once */
    int dying_claims;           /* the connections of so many end at once, */
    int dead_fd;                /* as this descriptor tells */
    _Atomic int load_at_closes; /* the position is read only after so many connections have ended */
    _Atomic int open_at_claims; /* the sink's session begins only after so many */
    bool loaded_unclaimed;      /* what a stranger goes on storing says nothing */
    /* from this open on the source speaks of a gap, until `refuse_to`; 0: never */
    _Atomic int refuse_from;
    _Atomic int refuse_to;

    /* What the pipeline is made of. */
    int fd; /* always readable: the script never waits */
    struct mr_topics topics;
    struct mr_encode_options encode_options;
    struct mr_encoder *encoder;
    struct mr_pipeline_options options;
    struct mr_pipeline *pipeline;
    int done_fd;
    struct mr_error error;
};

/* cmocka's set-up and teardown of a test whose state is a stage. */
int mr_stage_setup(void **state);
int mr_stage_teardown(void **state);

/* Makes the encoder again, after a change of `encode_options`. */
void mr_stage_renew_encoder(struct mr_stage *stage);

/* Makes the pipeline with `options` as they are now, and starts it. The steps are the caller's, and
 * stay. */
void mr_stage_start(struct mr_stage *stage, const struct mr_step *steps, int count);

/* Waits until `condition` holds for `value`; fails the test after MR_STAGE_WAIT_S. */
void mr_stage_wait(const struct mr_stage *stage,
                   bool (*condition)(const struct mr_stage *stage, long value), long value);

/* Conditions: PostgreSQL was told of `lsn` or more; the sink has got `count` rows or more. */
bool mr_stage_told(const struct mr_stage *stage, long lsn);
bool mr_stage_delivered(const struct mr_stage *stage, long count);

/* Waits for what proves that the pipeline had its chance to do otherwise: it told the server where
 * delivery is so many times more; it waited in vain for a batch for so many milliseconds more; its
 * sink thread came round so often. */
void mr_stage_wait_confirms(const struct mr_stage *stage, int more);
void mr_stage_wait_held_back(const struct mr_stage *stage, int more_ms);
void mr_stage_wait_polls(const struct mr_stage *stage, int more);

/* Fails the test unless exactly these were delivered, in this order. */
void mr_stage_assert_values(const struct mr_stage *stage, const char *const *want, int count);

/* Steps of a script. A row and the commit after it come in one round; each row is a batch of its
 * own. */
#define BEGIN(lsn_)                                                                                \
    {                                                                                              \
        .kind = MR_STEP_BEGIN, .lsn = (lsn_)                                                       \
    }
#define ROW(value)                                                                                 \
    {                                                                                              \
        .kind = MR_STEP_ROW, .v = (value)                                                          \
    }
#define COMMIT(lsn_)                                                                               \
    {                                                                                              \
        .kind = MR_STEP_COMMIT, .lsn = (lsn_)                                                      \
    }
#define MESSAGE(lsn_)                                                                              \
    {                                                                                              \
        .kind = MR_STEP_MESSAGE, .lsn = (lsn_)                                                     \
    }
#define KEEPALIVE(lsn_)                                                                            \
    {                                                                                              \
        .kind = MR_STEP_KEEPALIVE, .lsn = (lsn_)                                                   \
    }
#define PASSED(lsn_)                                                                               \
    {                                                                                              \
        .kind = MR_STEP_PASSED, .lsn = (lsn_)                                                      \
    }
#define GATE(number)                                                                               \
    {                                                                                              \
        .kind = MR_STEP_GATE, .lsn = (number)                                                      \
    }
#define TOLD(lsn_)                                                                                 \
    {                                                                                              \
        .kind = MR_STEP_TOLD, .lsn = (lsn_)                                                        \
    }
#define LOST                                                                                       \
    {                                                                                              \
        .kind = MR_STEP_LOST                                                                       \
    }
#define UNSENT(lsn_)                                                                               \
    {                                                                                              \
        .kind = MR_STEP_UNSENT, .lsn = (lsn_)                                                      \
    }

#endif
