
#include "base/clock.h"
#include "sink/kafka/kafka_internal.h"

enum {
    CALL_TIMEOUT_MS = 1000, /* of one try of a transactional call */
    ABANDON_MS = 100,       /* the end of one that is given up is not waited for */
    HELD_MS = 75000,        /* no transaction of millrace's is open for so long */
    COMMIT_MS = 10000,      /* then its outcome counts as unknown */
    FENCE_MS = 10000,       /* then brokers that answer do not let one begin */
    /* The broker answers a commit before it has written its markers, and refuses partitions of the
     * next transaction until it has (CONCURRENT_TRANSACTIONS); librdkafka then asks again, a
     * distribution's only after 20 ms (rd_kafka_txn_handle_AddPartitionsToTxn,
     * scripts/librdkafka.patch). Waiting a little costs less. */
    SETTLE_MS = 2,
    UNSETTLED_MS = 30000, /* after a commit: until then its markers may not be written */
};

/* What an error of a transactional call means: MR_OK to call again. */
static mr_status transaction_failed(struct mr_kafka_sink *kafka, rd_kafka_error_t *error,
                                    struct mr_error *ret_error)
{
    if (!rd_kafka_error_is_retriable(error)) {
        mr_kafka_session_fail(kafka, rd_kafka_error_code(error), NULL,
                              rd_kafka_error_string(error));
    }
    rd_kafka_error_destroy(error);
    return mr_kafka_take_events(kafka, ret_error); /* they may know the cause */
}

/* Brokers that answer other questions still begin no transaction. An outage is told of elsewhere,
 * this is not: librdkafka only asks again where no broker coordinates the id (rdkafka_txnmgr.c,
 * rd_kafka_txn_handle_FindCoordinator). */
static mr_status told_to_wait(struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err,
                              struct mr_error *ret_error)
{
    if (mr_kafka_state_find(kafka->producer, &kafka->options) < RD_KAFKA_RESP_ERR__END) {
        return MR_OK;
    }
    err = err == RD_KAFKA_RESP_ERR__TIMED_OUT ? RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE : err;
    char text[256];
    snprintf(text, sizeof(text), "no broker lets a transaction of \"%.128s\" begin: %s",
             kafka->options.state_name, rd_kafka_err2str(err));
    mr_kafka_session_fail(kafka, err, NULL, text);
    return mr_kafka_session_status(kafka, ret_error);
}

mr_status mr_kafka_transaction_fence(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    /* The first answer comes over a connection to an address of the configuration, which ends with
     * it; the second over one that stays. Whatever they say, the calls below say it, too. */
    (void)mr_kafka_state_find(kafka->producer, &kafka->options);
    (void)mr_kafka_state_find(kafka->producer, &kafka->options);
    int64_t begun_ns = mr_monotonic_ns();
    rd_kafka_error_t *error;
    while ((error = rd_kafka_init_transactions(kafka->producer, CALL_TIMEOUT_MS)) != NULL) {
        rd_kafka_resp_err_t err = rd_kafka_error_code(error);
        MR_TRY(transaction_failed(kafka, error, ret_error));
        MR_TRY(mr_kafka_serve(kafka, ret_error));
        if (mr_monotonic_ns() - begun_ns > FENCE_MS * INT64_C(1000000)) {
            MR_TRY(told_to_wait(kafka, err, ret_error));
        }
    }
    return MR_OK;
}

mr_status mr_kafka_transaction_begin(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    if (kafka->transaction.state != MR_KAFKA_TRANSACTION_NONE) {
        return MR_OK;
    }
    MR_ASSERT(kafka->store == MR_KAFKA_STORE_NONE); /* the one before has ended */
    rd_kafka_error_t *error = rd_kafka_begin_transaction(kafka->producer);
    if (error != NULL) {
        MR_TRY(transaction_failed(kafka, error, ret_error));
        return MR_FULL;
    }
    kafka->transaction.state = MR_KAFKA_TRANSACTION_OPEN;
    return MR_OK;
}

mr_status mr_kafka_transaction_end(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    struct mr_kafka_transaction *transaction = &kafka->transaction;
    MR_ASSERT(kafka->store == MR_KAFKA_STORE_REPORTED && kafka->reports.awaited == 0);
    MR_ASSERT(transaction->state == MR_KAFKA_TRANSACTION_BEGUN);
    if (MR_UNLIKELY(kafka->base.is_half_ended)) {
        /* It has a record in each partition in which the half-ended one has any, and takes those
         * along. */
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "what Kafka had left half ended is given up in every topic; it comes again");
    }
    int64_t now_ns = mr_monotonic_ns();
    transaction->commit_ns = transaction->commit_ns == 0 ? now_ns : transaction->commit_ns;
    rd_kafka_error_t *error = rd_kafka_commit_transaction(kafka->producer, CALL_TIMEOUT_MS);
    if (error != NULL) {
        if (now_ns - transaction->commit_ns > COMMIT_MS * INT64_C(1000000)) {
            mr_kafka_session_fail(
                kafka, rd_kafka_error_code(error), NULL,
                "a transaction's commit is not answered; reading what became of it");
        }
        return transaction_failed(kafka, error, ret_error);
    }
    transaction->state = MR_KAFKA_TRANSACTION_NONE;
    transaction->commit_ns = 0;
    transaction->committed_ns = mr_monotonic_ns();
    transaction->committed_offset = transaction->offset;
    kafka->store = MR_KAFKA_STORE_NONE;
    return MR_OK;
}

void mr_kafka_transaction_prove(struct mr_sink *sink)
{
    struct mr_kafka_sink *kafka = (struct mr_kafka_sink *)sink;
    MR_ASSERT(sink->proof != MR_PROOF_ASKED && kafka->transaction.committed_ns != 0);
    rd_kafka_topic_partition_list_t *partition = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(partition, kafka->options.state_topic, 0)->offset =
        RD_KAFKA_OFFSET_SPEC_LATEST;
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(kafka->producer, RD_KAFKA_ADMIN_OP_LISTOFFSETS);
    rd_kafka_error_destroy(rd_kafka_AdminOptions_set_isolation_level(
        options, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED));
    rd_kafka_ListOffsets(kafka->producer, partition, options, kafka->events);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_topic_partition_list_destroy(partition);
    kafka->transaction.asked_offset = kafka->transaction.committed_offset;
    sink->proof = MR_PROOF_ASKED;
}

/* Of a transaction that hides the ends of ours for so long, nobody is left to end it. */
static void note_proof(struct mr_kafka_sink *kafka, bool given)
{
    int64_t now_ns = mr_monotonic_ns();
    int64_t *lacks_ns = &kafka->transaction.lacks_ns;
    if (given) {
        *lacks_ns = 0;
    } else if (*lacks_ns == 0) {
        *lacks_ns = now_ns;
    } else if (now_ns - *lacks_ns > HELD_MS * INT64_C(1000000)) {
        *lacks_ns = now_ns; /* and again while it stays */
        mr_log(MR_LOG_WARN, "state_held",
               "a transaction that hangs in the topic that keeps the position hides the end of "
               "what is committed there: rows go on to Kafka, but nothing is confirmed, and "
               "PostgreSQL keeps its WAL; \"kafka-transactions.sh find-hanging\" shows it, and "
               "\"abort\" ends it",
               MR_LOG_STR("topic", kafka->options.state_topic));
    }
}

void mr_kafka_transaction_take_proof(struct mr_kafka_sink *kafka, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_ListOffsets_result_t *result = rd_kafka_event_ListOffsets_result(event);
    const rd_kafka_ListOffsetsResultInfo_t **infos =
        result == NULL ? NULL : rd_kafka_ListOffsets_result_infos(result, &count);
    bool given = false;
    if (rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR && count == 1) {
        const rd_kafka_topic_partition_t *partition =
            rd_kafka_ListOffsetsResultInfo_topic_partition(infos[0]);
        given = partition->err == RD_KAFKA_RESP_ERR_NO_ERROR &&
                partition->offset > kafka->transaction.asked_offset;
    }
    kafka->base.proof = given ? MR_PROOF_GIVEN : MR_PROOF_LACKS;
    note_proof(kafka, given);
}

int64_t mr_kafka_transaction_settles_in_ns(const struct mr_kafka_sink *kafka)
{
    if (kafka->transaction.committed_ns == 0) {
        return 0;
    }
    int64_t settled_ns = kafka->transaction.committed_ns + SETTLE_MS * INT64_C(1000000);
    return settled_ns - mr_monotonic_ns();
}

void mr_kafka_transaction_abandon(struct mr_kafka_sink *kafka)
{
    /* A client that is about to add a partition to its transaction while it goes away aborts the
     * process (rdkafka_txnmgr.c, to 2.8: its request may be answered, as destroyed, before it is
     * counted); one that has given the transaction up adds none. Its thread needs a moment to hear
     * of that. */
    if (kafka->transaction.state != MR_KAFKA_TRANSACTION_NONE) {
        rd_kafka_error_t *error = rd_kafka_abort_transaction(kafka->producer, ABANDON_MS);
        if (error != NULL) {
            rd_kafka_error_destroy(error);
        }
    }
}

bool mr_kafka_transaction_is_unsettled(const struct mr_kafka_sink *kafka)
{
    return kafka->transaction.state != MR_KAFKA_TRANSACTION_NONE ||
           (kafka->transaction.committed_ns != 0 &&
            mr_monotonic_ns() - kafka->transaction.committed_ns < UNSETTLED_MS * INT64_C(1000000));
}
