/* A record that Kafka refused: what that says of it, of its topic, and for the next session. */

#include "base/clock.h"
#include "base/sha256.h"
#include "sink/kafka/kafka_internal.h"
#include "sink/kafka/kafka_size.h"

enum { BATCH_BYTES_MIN = 1024 };

/* 0: it has none. */
static int64_t own_time_ms(const struct mr_record *record)
{
    return mr_headers_place(mr_record_headers(record)).time_ms;
}

/* How far that is from its commit's, where it is why the record was refused; 0: it is not. */
static int64_t time_off_ms(rd_kafka_resp_err_t err, const struct mr_record *record)
{
    int64_t own_ms = own_time_ms(record);
    bool is_why = err == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP && own_ms != 0;
    return is_why ? llabs(own_ms - record->commit_time_us / 1000) : 0;
}

/* One of the past is told apart from one of the future, which a wrong clock makes. */
static void explain_age(struct mr_kafka_sink *kafka, const struct mr_record *record)
{
    int64_t own_ms = own_time_ms(record);
    int64_t at_ms = own_ms != 0 ? own_ms : record->commit_time_us / 1000;
    int64_t age_s = (mr_wall_ns() / 1000000 - at_ms) / 1000;
    if (age_s > 0) {
        mr_error_set(&kafka->failure, MR_ERR_TRANSIENT,
                     "Kafka topic \"%s\" takes no record that is %lld s old; raise its "
                     "message.timestamp.before.max.ms (25 hours are always enough), or set its "
                     "message.timestamp.type to LogAppendTime",
                     record->topic->name, (long long)age_s);
    }
}

mr_status mr_kafka_refuse_record(struct mr_kafka_sink *kafka, const char *why,
                                 const struct mr_record *record, const char *besides,
                                 struct mr_error *ret_error)
{
    kafka->base.refusal =
        (struct mr_sink_refusal){.position = record->position,
                                 .bytes = (size_t)record->key_len + record->value_len,
                                 .yields = record->yields};
    mr_slice key = {.data = record->key, .len = record->key_len};
    char of[96] = "a row that is copied";
    char past[256] =
        "--skip-commit-lsn skips no such row: leave it out by snapshot.where, or, of a copy while "
        "the stream runs, end that by millrace snapshot --stop --config FILE";
    struct mr_position at = record->position;
    bool is_copied = mr_position_is_copied(at);
    const char *table = is_copied ? record->topic->table : NULL;
    if (!is_copied) {
        snprintf(of, sizeof(of), "change %llu of the transaction that commits at " MR_LSN_FORMAT,
                 (unsigned long long)at.ordinal, MR_LSN_ARGS(at.commit_lsn));
        snprintf(past, sizeof(past), "--skip-commit-lsn " MR_LSN_FORMAT " skips that transaction",
                 MR_LSN_ARGS(at.commit_lsn));
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "%s; a record of %zu bytes, whose key has SHA-256 %s…, of %s%s%s%s (%s)", why,
                   kafka->base.refusal.bytes, mr_sha256_short(key).text, of,
                   table == NULL ? "" : ", of ", table == NULL ? "" : table, besides, past);
}

/* As the topic's configuration says now; once a session is enough, for it is about to end. */
static const struct mr_kafka_bounds *bounds_of(struct mr_kafka_sink *kafka,
                                               const struct mr_topic *topic)
{
    if (kafka->asked != topic) {
        kafka->bounds = mr_kafka_topic_bounds(kafka->producer, topic->name);
        kafka->asked = topic;
    }
    return &kafka->bounds;
}

/* Of a user that may not read topics' configuration, the broker's words count
 * (storage/internals/log/LogValidator.java, validateKey). */
static bool is_for_its_key(struct mr_kafka_sink *kafka, const struct mr_kafka_refusal *refusal)
{
    if (refusal->err != RD_KAFKA_RESP_ERR_INVALID_RECORD || refusal->record->key != NULL) {
        return false;
    }
    const struct mr_kafka_bounds *bounds = bounds_of(kafka, refusal->record->topic);
    return bounds->is_known
               ? bounds->is_compacted
               : refusal->said != NULL &&
                     strstr(refusal->said, "cannot accept message without key") != NULL;
}

/* The code of a record of several is INVALID_RECORD, whatever is wrong with it (code_of). */
static bool is_for_its_time(struct mr_kafka_sink *kafka, const struct mr_kafka_refusal *refusal)
{
    const struct mr_record *record = refusal->record;
    if (refusal->err != RD_KAFKA_RESP_ERR_INVALID_RECORD || own_time_ms(record) == 0) {
        return refusal->err == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
    }
    const struct mr_kafka_bounds *bounds = bounds_of(kafka, record->topic);
    int64_t age_ms = mr_wall_ns() / 1000000 - mr_kafka_time_ms(record);
    return bounds->is_known && !(bounds->is_compacted && record->key == NULL) &&
           (age_ms > bounds->past_ms || -age_ms > bounds->ahead_ms);
}

/* The next session has the record in another form, or does not have it. */
static void refuse_known(struct mr_kafka_sink *kafka, const struct mr_record *record)
{
    kafka->session = MR_KAFKA_REFUSED;
    kafka->failure.status = MR_ERR_POISON;
    kafka->base.refusal = (struct mr_sink_refusal){.position = record->position, .is_known = true};
}

/* How much the topic takes is asked for, and what is more is not sent any more: messages that
 * anybody may have written are dropped, and requests are within it. A record of a table that is too
 * large alone is looked at one by one (mr_refused_add). 0: that was known, or is not known now. */
static size_t learn_bytes(struct mr_kafka_sink *kafka, const struct mr_record *record, bool alone)
{
    bool is_message = alone && record->yields;
    if (alone && !is_message) {
        return 0;
    }
    size_t most = bounds_of(kafka, record->topic)->bytes_max;
    size_t sent = is_message ? mr_kafka_size_of(&kafka->options, record).sent : 0;
    return most != 0 && mr_topic_refuse_bytes(record->topic, record->position.commit_lsn, most,
                                              sent, mr_wall_ns())
               ? most
               : 0;
}

static bool refuse_bytes(struct mr_kafka_sink *kafka, const struct mr_record *record, bool alone)
{
    size_t most = learn_bytes(kafka, record, alone);
    if (most == 0) {
        return false;
    }
    refuse_known(kafka, record);
    mr_error_set(&kafka->failure, MR_ERR_POISON,
                 "Kafka topic \"%s\" takes no more than %zu bytes at once (compressed, by its "
                 "max.message.bytes); %sits requests are smaller from now on",
                 record->topic->name, most,
                 record->yields ? "messages that are larger are dropped, and " : "");
    return true;
}

void mr_kafka_refuse_also(struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err,
                          const struct mr_record *record, bool alone)
{
    if (err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE && record->topic != kafka->asked &&
        kafka->bounds.bytes_max != 0) {
        (void)learn_bytes(kafka, record, alone);
    }
}

/* One of several records of a request is too large, or they are together, in a topic of which
 * nothing else is known. */
static void send_less(struct mr_kafka_sink *kafka, const struct mr_topic *topic)
{
    mr_far_refused(&kafka->far);
    mr_error_set(&kafka->failure, MR_ERR_TRANSIENT,
                 "Kafka topic \"%s\" takes no requests as large as they are (compressed, by its "
                 "max.message.bytes); going on with %zu bytes before compression; raise that, "
                 "or lower sink.kafka.message_max",
                 topic->name, kafka->far.near);
}

void mr_kafka_session_refuse(struct mr_kafka_sink *kafka, struct mr_kafka_refusal refusal)
{
    const struct mr_record *record = refusal.record;
    if (is_for_its_time(kafka, &refusal) && refusal.err != RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP) {
        refusal.err = RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
        refusal.text = rd_kafka_err2str(refusal.err);
    }
    rd_kafka_resp_err_t err = refusal.err;
    int64_t off_ms = time_off_ms(err, record);
    bool is_cause = mr_kafka_session_fail(kafka, err, record->topic->name, refusal.text);
    /* A transaction that fails with such a record may have said so before it. */
    bool is_time = off_ms != 0 && kafka->session == MR_KAFKA_FAILED &&
                   kafka->failure.status == MR_ERR_TRANSIENT;
    if (!is_cause && !is_time) {
        return;
    }
    if (err == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP) {
        explain_age(kafka, record);
    }
    if (is_time &&
        mr_topic_refuse(record->topic, record->position.commit_lsn, off_ms, mr_wall_ns())) {
        refuse_known(kafka, record);
        return;
    }
    if (kafka->failure.status != MR_ERR_POISON) {
        return;
    }
    kafka->session = MR_KAFKA_REFUSED;
    bool too_large = err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    if (too_large && refuse_bytes(kafka, record, refusal.alone)) {
        return;
    }
    if (too_large && !refusal.alone && kafka->far.near > BATCH_BYTES_MIN) {
        send_less(kafka, record->topic);
        return;
    }
    struct mr_error plain = kafka->failure;
    mr_kafka_refuse_record(kafka, plain.text, record, refusal.alone ? "" : " or one sent with it",
                           &kafka->failure);
    kafka->base.refusal.too_large = too_large;
    kafka->base.refusal.is_known =
        record->yields && is_for_its_key(kafka, &refusal) &&
        mr_topic_refuse(record->topic, record->position.commit_lsn, 0, mr_wall_ns());
}
