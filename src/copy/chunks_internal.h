/* What the files of chunks.c do for each other. The source thread's; inside copy/chunk*.c only.
 *
 *   chunks.c        the table at hand, and the steps it takes
 *   chunk_jobs.c    what the reader is asked, and what comes of it
 *   chunk_stream.c  what the stream brings meanwhile
 *   chunk_rows.c    rows go out */
#pragma once

#include "copy/chunk_requests.h"
#include "copy/chunk_thread.h"
#include "copy/chunk_window.h"
#include "flow/port.h"

/* The fewest rows of a chunk. */
enum { MR_CHUNKS_ROWS_MIN = 16 };

/* The stream has not come to the chunk's place: a transaction number makes the server write WAL,
 * and flush it. */
#define MR_CHUNKS_QUIET_NS (INT64_C(100) * 1000000)
#define MR_CHUNKS_AGAIN_NS (INT64_C(100) * 1000000)

/* Of the table at hand. */
enum mr_chunks_phase {
    MR_CHUNKS_NONE,     /* there is none */
    MR_CHUNKS_NUMBER,   /* a transaction number is wanted, */
    MR_CHUNKS_NUMBERED, /* and asked for */
    MR_CHUNKS_READ,     /* a chunk is wanted, */
    MR_CHUNKS_READS,    /* and being read */
    MR_CHUNKS_HELD, /* no chunk would be good before a transaction has ended, which is looked for */
    MR_CHUNKS_WAITS, /* for the stream to come to its place */
    MR_CHUNKS_SENDS,
};

/* Forms of the table at hand; the encoder has a plan of each. */
struct mr_chunk_forms {
    const struct mr_relation *copied;   /* of chunks */
    const struct mr_relation *streamed; /* since the chunk was asked for; NULL: not seen */
    /* Chunks in a row whose form was not the stream's: both forms, how many, where the WAL ended
     * after the first. */
    const struct mr_relation *differed_stream, *differed_copied;
    uint32_t differed;
    mr_lsn differed_from;
};

/* A chunk's rows on their way out. */
struct mr_chunk_out {
    uint32_t at;       /* the row that is next */
    uint32_t xid;      /* the number in the chunk's snapshot */
    uint32_t lacked;   /* times in a row that the first one was read again for its values */
    bool lacks_logged; /* of the table: that it was too often */
    bool appends;      /* the row is being appended */
    struct mr_chunks_done done; /* rows since the request's were counted */
};

/* No chunk would be good before a transaction has ended. */
struct mr_chunk_held {
    struct mr_chunk_holder holder; /* as it was looked for last */
    int64_t since_ns, logged_ns;   /* 0: not yet */
};

struct mr_chunks {
    struct mr_companion base;
    struct mr_copies_options options;
    struct mr_chunk_requests requests;
    uint64_t noted; /* the requests' revision of the lane's last step, in this session */

    struct mr_chunk_thread thread;
    struct mr_chunk_job asked; /* by us last */
    bool stale;                /* what it brings is of no use */
    enum mr_chunks_phase phase;
    int64_t since_ns; /* the phase began, or the last slice went out */
    int64_t due_ns;   /* of what is to be tried again */
    uint32_t attempt;

    struct mr_chunk_request *current;
    struct mr_asked_place place; /* after which the next chunk begins */
    uint32_t first_number; /* of the transactions that were taken since the table at hand is */
    struct {
        uint32_t rows;
        size_t bytes;
    } room; /* of a chunk, at most */
    struct mr_chunk_window *window;
    bool changed; /* the running transaction has changed the table */
    struct mr_chunk_forms form;
    struct mr_chunk_out out;
    struct mr_chunk_held held;
    struct mr_transaction transaction; /* that copied rows seem to be of */
    uint64_t ordinal;
    struct mr_text key; /* scratch */
};

void mr_chunks_set_phase(struct mr_chunks *chunks, enum mr_chunks_phase phase);
void mr_chunks_close_window(struct mr_chunks *chunks);
void mr_chunks_forget_relation(struct mr_chunks *chunks);

/* A part of a request is the table at hand from now on / none is / the request at hand has
 * failed. */
void mr_chunks_begin(struct mr_chunks *chunks, struct mr_chunk_request *request);
void mr_chunks_leave(struct mr_chunks *chunks);
void mr_chunks_fail(struct mr_chunks *chunks, const struct mr_error *error);
const struct mr_chunk_table *mr_chunks_table(const struct mr_chunks *chunks);

/* The request has the rows that went out, or did not, since the last call. */
void mr_chunks_count_rows(struct mr_chunks *chunks);

/* So many of the chunk's rows are dealt with: they are counted, and the place is after them. */
void mr_chunks_keep_place(struct mr_chunks *chunks, uint32_t rows);

/* The next batches carry what is known of the place. */
void mr_chunks_note_place(struct mr_chunks *chunks);

/* The next chunk is read / the same one again, in a while. */
void mr_chunks_read_next(struct mr_chunks *chunks);
void mr_chunks_read_again(struct mr_chunks *chunks, int64_t wait_ns);
int64_t mr_chunks_backoff_ns(struct mr_chunks *chunks);

/* The chunk's form is not the stream's. True: that has been so for long, and the request has
 * failed. */
bool mr_chunks_differs(struct mr_chunks *chunks);
bool mr_chunks_same_shape(const struct mr_relation *a, const struct mr_relation *b);

/* Takes what the reader has done / gives it the next job, if it is free; what is due later than
 * `now_ns` waits. */
void mr_chunks_take_job(struct mr_chunks *chunks);
void mr_chunks_give_job(struct mr_chunks *chunks, int64_t now_ns);

void mr_chunks_change(struct mr_companion *companion, const struct mr_change *change, bool is_new);
void mr_chunks_commit(struct mr_companion *companion, const struct mr_transaction *transaction);
void mr_chunks_relation_end(struct mr_companion *companion, const struct mr_relation *relation);

/* The key of a row as the window has it; what `values` lacks, `old` (may be NULL) may have. False:
 * a value of it is not known. */
bool mr_chunks_key(struct mr_chunks *chunks, const struct mr_relation *relation,
                   const struct mr_datum *values, const struct mr_tuple *old, mr_slice *ret_key);

/* Sends a few rows. MR_FULL: there is no room for one. */
mr_status mr_chunks_send_rows(struct mr_chunks *chunks);

/* The stream is to have what is left of the pool. */
bool mr_chunks_yield(const struct mr_chunks *chunks, int64_t now_ns);
