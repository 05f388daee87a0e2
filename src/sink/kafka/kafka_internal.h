/* What the files of the Kafka sink share: one producer session, and what survives it. Inside sink/ only; sink thread,
 * but for what is atomic.
 *
 *   kafka.c              sessions, records and their reports, the state record
 *   kafka_transaction.c  exactly once: begin, commit, and what a broker leaves half ended */
#ifndef MR_SINK_KAFKA_INTERNAL_H
#define MR_SINK_KAFKA_INTERNAL_H

#include <librdkafka/rdkafka.h>

#include "sink/kafka/kafka.h"
#include "sink/kafka/kafka_state.h"
#include "sink/kafka/kafka_topics.h"
#include "sink/record_headers.h"
#include "sink/sink_counts.h"

enum {
    MR_KAFKA_RETRY_MS = 20,
    MR_KAFKA_REQUEST_RECORDS = 10000, /* at most, of one request to one partition */
};

/* The open transaction (exactly once). */
struct mr_kafka_transaction {
    bool open;
    bool begun;           /* records of it are handed over */
    bool ending;          /* its state record is sent; it ends once all is reported */
    int64_t commit_ns;    /* since when its commit is tried; 0: it is not */
    int64_t committed_ns; /* when the one before was; 0: none of this session */
};

struct mr_kafka_sink {
    struct mr_sink base;
    struct mr_kafka_options options;
    rd_kafka_t *producer;
    rd_kafka_queue_t *events;
    struct mr_kafka_topics topics;
    mr_sink_done_fn done;
    void *done_context;
    uint32_t send_at;      /* records of the batch at hand that are produced already */
    bool reached;          /* something was delivered once */
    bool told_unreachable; /* said once, until something is delivered again */
    bool failed;
    bool judged; /* it failed because of a refused record, and what that means is settled */
    struct mr_error failure; /* the first of this session, or the one that no new session mends */

    /* For `view`. The latest report waits there until somebody looks; who takes it frees it. */
    struct mr_sink_counts counts;
    _Atomic bool connected;
    _Atomic bool hung_up;           /* a thread of librdkafka's logged it: mr_kafka_is_hung_up */
    _Atomic int64_t unreachable_ns; /* since when, by the monotonic clock; 0: reachable */
    _Atomic(char *) statistics;
    _Atomic bool session_is_new;
    struct mr_sink_client client; /* the viewer's */

    int stop_fd;
    struct mr_record_headers headers;

    bool storing; /* a state record is on its way, */
    char *state;  /* or waits here; NULL: none does */

    uint64_t unreported; /* records that are not safe yet, the state's included */
    int64_t silent_ns;   /* monotonic; since when none of them was reported, 0: one just was */
    int64_t looked_ns;   /* and when it was last asked what became of them */
    struct mr_kafka_queue *ready; /* with records that wait, and none in flight */
    struct mr_kafka_queue **ready_last;
    struct mr_kafka_transaction transaction;
};

/* Whether this is now what the session ended with. */
bool mr_kafka_session_fail(struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err, const char *topic,
                           const char *text);

/* MR_OK while the session lasts; else what it ended with. */
mr_status mr_kafka_session_status(const struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* While a call of librdkafka is tried again: errors are told, and a stop is heard (MR_AGAIN). `context` is the sink. */
mr_status mr_kafka_serve(void *context, struct mr_error *ret_error);

/* Sends a record to the state topic. */
mr_status mr_kafka_produce_state(struct mr_kafka_sink *kafka, const char *key, const char *value,
                                 size_t value_len, struct mr_error *ret_error);

/* ---- kafka_transaction.c ---- */

/* Ends what an earlier process or session of the same name has open, and keeps it from writing on. */
mr_status mr_kafka_transaction_fence(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* Opens a transaction unless one is open. MR_FULL: not now. */
mr_status mr_kafka_transaction_begin(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* All of the transaction is with the broker: makes it and its state visible. An outcome that is not known ends the
 * session; the next one reads what became of it. */
mr_status mr_kafka_transaction_end(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* Gives the state topic a record of ours, and the end of a transaction that is given up. It ends whatever the brokers
 * have left open there of an earlier session: they think it has ended, so nothing else will. What that held comes
 * again. */
mr_status mr_kafka_transaction_end_hanging(struct mr_kafka_sink *kafka, struct mr_error *ret_error);

/* Milliseconds until records of the next transaction may be handed over; 0: now. */
int mr_kafka_transaction_settles_in_ms(const struct mr_kafka_sink *kafka);

/* Before the producer goes away; nobody waits for the end of what is open. */
void mr_kafka_transaction_abandon(struct mr_kafka_sink *kafka);

/* Whether a broker that goes away now may leave a transaction half ended: it has answered the commit before it writes
 * the markers, and brokers of 4.3 skip those of partitions that have no leader at that moment (KAFKA-20734). The next
 * transaction of a partition then decides, and one that is given up takes the other with it. So no more are committed
 * in this session; the next one reads how far the position has come, and begins there. */
bool mr_kafka_transaction_is_unsettled(const struct mr_kafka_sink *kafka);

#endif
