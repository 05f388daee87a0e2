/* The Kafka sink inside: one producer session, and what outlives it. Only sink/kafka/ includes it.
 * Everything is the sink thread's, except for what is atomic.
 *
 *   kafka.c              sessions, the stored position, what the sink tells of itself
 *   kafka_send.c         records on their way to librdkafka
 *   kafka_events.c       what librdkafka answers: reports, errors, statistics, or nothing
 *   kafka_refusal.c      a record that was refused: why, and what follows
 *   kafka_size.c         what a record takes, as a broker counts it
 *   kafka_ids.c          whether topics are still those that were sent to
 *   kafka_transaction.c  exactly once: begin, commit, and what a broker leaves half ended
 *
 * A record waits in its partition's queue (kafka_topics.h). A queue with records of which none is
 * with librdkafka is ready. mr_kafka_hand_over gives librdkafka as much of a ready queue as one
 * request takes, once that is a full one or the request before set out long enough ago; when all of
 * that is reported, the queue is ready again, or empty. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "kafka/kafka_state.h"
#include "kafka/kafka_topic.h"
#include "sink/kafka/kafka.h"
#include "sink/kafka/kafka_far.h"
#include "sink/kafka/kafka_topics.h"
#include "sink/record_headers.h"
#include "sink/sink_counts.h"

enum {
    MR_KAFKA_RETRY_MS = 20,
    MR_KAFKA_REQUEST_RECORDS = 10000, /* at most, of one request to one partition */
};

enum mr_kafka_session {
    MR_KAFKA_SERVES,
    MR_KAFKA_FAILED,  /* a later error that no new session mends may take the place of this one */
    MR_KAFKA_REFUSED, /* a record was refused; what that means is settled */
};

/* The position's record: MR_STORES_WITH passes all four, MR_STORES_AFTER the first three. */
enum mr_kafka_store {
    MR_KAFKA_STORE_NONE,
    MR_KAFKA_STORE_WAITS, /* for room in librdkafka */
    MR_KAFKA_STORE_SENT,  /* librdkafka has it */
    /* exactly once: the broker has it; the transaction's commit makes it safe */
    MR_KAFKA_STORE_REPORTED,
};

enum mr_kafka_open {
    MR_KAFKA_TRANSACTION_NONE,
    MR_KAFKA_TRANSACTION_OPEN,  /* librdkafka has nothing of it */
    MR_KAFKA_TRANSACTION_BEGUN, /* records of it are handed over */
};

/* Exactly once. Monotonic times. */
struct mr_kafka_transaction {
    enum mr_kafka_open state;
    int64_t commit_ns;        /* since when its commit is tried; 0: it is not */
    int64_t committed_ns;     /* when the one before was; 0: none of this session */
    int64_t offset;           /* of its position's record in the state topic, */
    int64_t committed_offset; /* of that of the last one that was committed, */
    /* and of the last one of which it was asked whether it is there for good */
    int64_t asked_offset;
    int64_t lacks_ns; /* since when that lacks, or when it was logged; 0: it does not */
};

/* Delivery reports. Monotonic times. */
struct mr_kafka_reports {
    uint64_t awaited;    /* of records that librdkafka or a queue has, the position's included */
    int64_t silent_ns;   /* since when none of them has come; 0: one just has */
    int64_t looked_ns;   /* when it was last asked what became of them */
    uint32_t unanswered; /* looks since then that no broker answered */
};

/* The look at topics' ids. Monotonic times. */
struct mr_kafka_ids {
    bool asked;     /* an answer is on its way */
    bool lacks;     /* brokers have none */
    int64_t due_ns; /* all are asked for then; 0: at once */
};

/* Whether brokers can be reached. */
struct mr_kafka_reach {
    _Atomic bool connected;   /* a session is open */
    bool ever;                /* something was delivered once */
    bool logged;              /* that they can't; until something is delivered again */
    bool far;                 /* it was logged that they are far away */
    _Atomic bool hung_up;     /* a thread of librdkafka logged it: mr_kafka_is_hung_up */
    _Atomic int64_t since_ns; /* since when they can't, monotonic; 0: they can */
};

/* librdkafka's statistics. The latest report waits here until it is looked at; who takes it frees
 * it. */
struct mr_kafka_figures {
    _Atomic(char *) report;
    _Atomic bool session_is_new;
    struct mr_sink_client client; /* the viewer's */
};

struct mr_kafka_sink {
    struct mr_sink base;
    struct mr_kafka_options options;
    rd_kafka_t *producer; /* NULL: no session is open */
    rd_kafka_queue_t *events;
    enum mr_kafka_session session;
    struct mr_error failure; /* of a session that serves no more */
    bool failure_follows;    /* from another, which is not known yet */
    int64_t cause_by_ns; /* until then (monotonic) a refused record's report is waited for; or 0 */
    const struct mr_topic *asked;  /* what a refusal of this session was about; NULL: none yet */
    struct mr_kafka_bounds bounds; /* of that topic */
    struct mr_kafka_topics topics;
    struct mr_kafka_ready ready;
    uint32_t send_at; /* records of the batch at hand that are in queues already */
    enum mr_kafka_store store;
    char *state; /* the position's record, while it waits */
    struct mr_kafka_transaction transaction;
    struct mr_kafka_reports reports;
    struct mr_kafka_reach reach;
    struct mr_kafka_ids ids; /* of the session */
    struct mr_far far;
    /* bytes of the largest request with records since it was looked at, by librdkafka's threads */
    _Atomic size_t sent;
    struct mr_sink_counts counts;
    struct mr_kafka_figures figures;
    struct mr_record_headers headers;
};

/* Whether this is now what the session ended with. `topic`: NULL where it is not about one. */
bool mr_kafka_session_fail(struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err, const char *topic,
                           const char *text);

/* A record that can't be sent as it is, and why: names it, and its transaction, which may be
 * skipped. MR_ERR_POISON. */
mr_status mr_kafka_refuse_record(struct mr_kafka_sink *kafka, const char *why,
                                 const struct mr_record *record, const char *besides,
                                 struct mr_error *ret_error);

/* A record that Kafka refused. */
struct mr_kafka_refusal {
    const struct mr_record *record;
    rd_kafka_resp_err_t err;
    const char *text; /* librdkafka's, of that code */
    const char *said; /* the broker's; NULL: nothing */
    bool alone;       /* its request held no other */
};

/* What that means for the next session. */
void mr_kafka_session_refuse(struct mr_kafka_sink *kafka, struct mr_kafka_refusal refusal);

/* A further refused record of a session that has ended with another one: what its topic takes is
 * learned, too, lest each topic cost a session. */
void mr_kafka_refuse_also(struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err,
                          const struct mr_record *record, bool alone);

/* The time that the record is sent with, in milliseconds since 1970. */
int64_t mr_kafka_time_ms(const struct mr_record *record);

/* MR_OK while the session serves; else what it ended with. */
mr_status mr_kafka_session_status(const struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* The status and the whole text of an error; `topic` may be NULL. */
mr_status mr_kafka_explain(const struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err,
                           const char *topic, const char *text, struct mr_error *ret_error);

/* While a call of librdkafka is tried again: reports and errors are taken, and a stop is heard
 * (MR_AGAIN). `context` is the sink. */
mr_status mr_kafka_serve(void *context, struct mr_error *ret_error);

/* Takes a batch: its records go into queues. MR_FULL: a topic is not known yet. */
mr_status mr_kafka_send(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *ret_error);

/* Gives librdkafka what is ready, and the position's record. */
mr_status mr_kafka_hand_over(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* Takes all that librdkafka reports; where what follows from a refused record has come before its
 * own report, waits for that. */
mr_status mr_kafka_take_events(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* Asks now and then what became of records of which none is reported. */
void mr_kafka_watch_reports(struct mr_kafka_sink *kafka);

/* Asks for the ids of topics: of new ones at once, of all every 30 s. */
void mr_kafka_watch_topics(struct mr_kafka_sink *kafka);
void mr_kafka_take_topics(struct mr_kafka_sink *kafka, rd_kafka_event_t *event);

/* Nanoseconds until that is due; INT64_MAX: it is not. */
int64_t mr_kafka_topics_due_in_ns(const struct mr_kafka_sink *kafka);

/* Ends what an earlier process or session of the same name has open, and keeps it from writing
 * on. */
mr_status mr_kafka_transaction_fence(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* Opens a transaction unless one is open. MR_FULL: not now. */
mr_status mr_kafka_transaction_begin(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* All of the transaction is with the broker: makes it and its state visible. An outcome that is not
 * known ends the session; the next one reads what became of it. */
mr_status mr_kafka_transaction_end(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* `prove` of mr_sink_ops: committed records of the state topic end behind that of the last
 * transaction only once this one has its marker there (ListOffsets, isolation_level 1). Its answer
 * comes as an event. */
void mr_kafka_transaction_prove(struct mr_sink *sink);
void mr_kafka_transaction_take_proof(struct mr_kafka_sink *kafka, rd_kafka_event_t *event);

/* Nanoseconds until records of the next transaction may be handed over; 0 or less: now. */
int64_t mr_kafka_transaction_settles_in_ns(const struct mr_kafka_sink *kafka);

/* Before the producer goes away; the end of what is open is not waited for. */
void mr_kafka_transaction_abandon(struct mr_kafka_sink *kafka);

/* Whether a broker that goes away now may leave a transaction half ended: it has answered the
 * commit before it writes the markers, and brokers of 4.3 skip those of partitions that have no
 * leader at that moment (KAFKA-20734). The next transaction of a partition then decides, and one
 * that is given up takes the other with it. So no more are committed in this session; the next one
 * reads how far the position has come, and begins there. */
bool mr_kafka_transaction_is_unsettled(const struct mr_kafka_sink *kafka);
