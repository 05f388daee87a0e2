/* The proof of one table, and how it is printed. Main thread. */
#ifndef MR_VERIFY_PROOF_H
#define MR_VERIFY_PROOF_H

#include "kafka/kafka_reader.h"
#include "verify/avro_read.h"
#include "verify/pg_side.h"
#include "verify/verify.h"

enum {
    MR_VERIFY_NAMED_MAX = 100,
    MR_VERIFY_REPAIRED_MAX = 10000, /* where they are to be repaired, in rounds, */
    MR_VERIFY_AGAIN_MAX = 10        /* and of these printed after the first round */
};

/* What all tables are proved with. */
struct mr_verify_tools {
    const struct mr_config *config;
    const struct mr_verify_options *options;
    struct mr_pg_conn *conn; /* to the server that is streamed from */
    struct mr_pg_conn *rows; /* to the one whose rows are read, which may be the same */
    struct mr_kafka_reader *reader;
    struct mr_avro *avro; /* NULL: records are JSON */
    struct mr_digest key; /* of this run's digests */
    uint32_t named_max;   /* differences of a table that are named */
    int stop_fd;
    bool shows_progress;
};

/* A difference that is named. */
struct mr_verify_named {
    struct mr_difference difference;
    /* JSON, as the record of the last event has it, or the server if there is no event; NULL: a row
     * without a key, or one that is gone meanwhile */
    char *key;
    /* the same with the server's texts; NULL: as it is in `key`, or (mr_proof.converts) not
     * known */
    char *asked;
};

struct mr_proof {
    const struct mr_verify_listed *listed;
    enum mr_verify_verdict verdict;
    struct mr_text reasons; /* why it is no better; `data` NULL: it is good */
    const char *cause; /* of no verdict, and of one that nothing can be proved, in a word; NULL */
    mr_lsn moment;     /* the end of the WAL when the table was read */
    uint64_t rows, records;
    struct mr_fold_counts counts;
    struct mr_verify_named *named;
    uint32_t named_count, named_room;
    bool is_again;          /* after a repair */
    bool converts;          /* events have keys in other forms than the server */
    char unrepairable[384]; /* why nothing of the table can be repaired; "": it can */
};

/* Why nothing of the table can be proved with this configuration; NULL: something can. */
const char *mr_unprovable(const struct mr_config *config, const struct mr_verify_listed *listed);

/* Fills `ret`, which is the caller's, to be ended by mr_proof_done in any case. */
mr_status mr_prove(const struct mr_verify_tools *tools, const struct mr_verify_listed *listed,
                   struct mr_proof *ret, struct mr_error *ret_error);
void mr_proof_done(struct mr_proof *proof);

/* The verdict becomes at least as bad, and says why. */
void mr_proof_conclude(struct mr_proof *proof, enum mr_verify_verdict verdict, const char *format,
                       ...) MR_PRINTF(3, 4);

/* There is none; the cause is one of docs/verify.md. */
#define MR_PROOF_VOID(proof, verdict, cause_, ...)                                                 \
    ((proof)->cause = (cause_), mr_proof_conclude((proof), (verdict), __VA_ARGS__))

/* Of a table whose changes were left out for a while, and a topic that is no longer whole. */
#define MR_PROOF_HEAD_IS_GONE                                                                      \
    "the first records of its topic are gone (retention), so deletes of their rows in the gap "    \
    "can't "                                                                                       \
    "be found; only everything, with its rule for consumers, is certain"

extern const char *const mr_difference_names[]; /* by kind */

/* For people, who get the first differences; JSON has all that are named. */
void mr_proof_print(const struct mr_proof *proof, FILE *to);
void mr_proof_print_json(const struct mr_proof *proof, FILE *to);

/* Writes the object as a line, and frees it. */
void mr_said_print(struct cJSON *object, FILE *to);

/* A member of what was read of a line; "" and 0: it has none. */
const char *mr_said_word(const struct cJSON *object, const char *name);
uint64_t mr_said_number(const struct cJSON *object, const char *name);

#endif
