/* `millrace verify`: proves that the topics equal the tables.
 *
 * For each table: its rows are read under a snapshot, then the stream is waited for until it has
 * passed that moment, and the topic is read to the end that it has then, by a second thread, and
 * folded by key. An event counts if the snapshot sees its transaction (cut.h), so both sides are of
 * one moment, without a tolerance. The room shares no code with what streams: it reads JSON,
 * positions and COPY by its own. Main thread. */
#pragma once

#include "config/config.h"

struct mr_proof;
struct mr_verify_listed;

struct mr_verify_options {
    const char *const
        *tables; /* "schema.table", or "table" in public; none: all that are streamed */
    uint32_t table_count;
    double sample;  /* percent of the keys; 0: all */
    uint32_t rate;  /* rows of tables a second; 0: as fast as they come */
    bool json;      /* a JSON object a table */
    bool repairs;   /* what is named is to be repaired, … */
    bool yes;       /* … and not only said */
    mr_lsn entered; /* where the stream went on when it moved to this cluster; 0: it has not */
    bool gap;       /* changes were left out: who started us asks what can be known of them */
    /* Told of each table's proof, and when it began; NULL: nobody is. */
    void (*taken)(void *context, const struct mr_proof *proof, int64_t begun_ns);
    /* Whether it is to be proved; NULL: each is. */
    bool (*wants)(void *context, const struct mr_verify_listed *listed);
    void *context;
};

/* From good to bad. Of several tables the worst holds: a difference stays true, whatever could not
 * be proved besides. */
enum mr_verify_verdict {
    MR_VERIFY_EQUAL,
    MR_VERIFY_IN_PART,    /* nothing differs, but not all can be proved */
    MR_VERIFY_UNPROVABLE, /* nothing of the table can be proved, with this configuration */
    /* no verdict now: the stream does not come, the table is being truncated or copied */
    MR_VERIFY_NONE,
    MR_VERIFY_DIFFERENT,
};

/* The documented exit code (docs/verify.md). */
int mr_verify_exit_code(enum mr_verify_verdict verdict);

/* Prints a line for each table and each difference to `to`; progress to standard error, if that is
 * a terminal. `*ret_verdict`: the worst, also with an error, of the tables before it. MR_AGAIN:
 * interrupted, since `stop_fd` became readable. */
mr_status mr_verify(const struct mr_config *config, const struct mr_verify_options *options,
                    int stop_fd, FILE *to, enum mr_verify_verdict *ret_verdict,
                    struct mr_error *ret_error);

/* Prints the tables that would be proved, and why one can't be: a line each, or (`json`) an object
 * with schema, table, published and unprovable (null: it can be proved). */
mr_status mr_verify_print_list(const struct mr_config *config,
                               const struct mr_verify_options *options, int stop_fd, FILE *to,
                               struct mr_error *ret_error);
