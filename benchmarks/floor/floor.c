/* What librdkafka takes by itself: a program that has nothing to do but to give it records, with
 * the settings that millrace has. Started by start-floor.sh, which says what the variables are.
 *
 * With PEER_SNAPSHOT_MODE it reads a table by COPY, and each line becomes the end of a record as
 * long as millrace's: nothing is decoded, nothing escaped, no header added, no place in the table
 * kept. With PEER_RATE it writes records of that length by the clock, in transactions: nothing is
 * read. */
#include <inttypes.h>
#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TRANSACTIONS_PER_S = 100,
    RECORD_BYTES = 1024,
    ANSWER_MS = 30000,
};

/* About what Debezium's envelope adds to a row of the benchmark, by length and by how it
 * compresses. */
static const char envelope[] =
    "{\"before\":null,\"after\":{\"id\":,\"account_id\":,\"amount\":\"\",\"payload\":\"\","
    "\"attributes\":\"{}\","
    "\"created_at\":\"\",\"updated_at\":\"\"},\"source\":{\"version\":\"0.1.0\",\"connector\":"
    "\"postgresql\",\"name\":\"bench\","
    "\"ts_ms\":1780000000000,\"snapshot\":\"true\",\"db\":\"bench_00000000\",\"sequence\":\"[null,"
    "\\\"123456789\\\"]\","
    "\"ts_us\":1780000000000000,\"ts_ns\":1780000000000000000,\"schema\":\"public\",\"table\":"
    "\"benchmark_records\",\"txId\":12345,"
    "\"lsn\":1234567890,\"xmin\":null},\"op\":\"r\",\"ts_ms\":1780000000000,\"ts_us\":"
    "1780000000000000,\"transaction\":null} ";

static const char *floor_variable(const char *name)
{
    const char *value = getenv(name);
    if (value == NULL) {
        fprintf(stderr, "%s is not set\n", name);
        exit(64);
    }
    return value;
}

static void floor_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void must(const char *what, rd_kafka_error_t *error)
{
    if (error != NULL) {
        floor_fail(what, rd_kafka_error_string(error));
    }
}

static void floor_set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char reason[256];
    if (rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)) != RD_KAFKA_CONF_OK) {
        floor_fail(name, reason);
    }
}

/* The program ends with the first record that is not delivered. */
static void on_report(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque)
{
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        floor_fail("a record", rd_kafka_err2str(message->err));
    }
}

static rd_kafka_t *floor_producer_new(bool exactly_once)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    floor_set(conf, "bootstrap.servers", floor_variable("PEER_BOOTSTRAP"));
    floor_set(conf, "acks", "all");
    floor_set(conf, "enable.idempotence", "true");
    floor_set(conf, "compression.codec", "lz4");
    floor_set(conf, "linger.ms", "5");
    floor_set(conf, "batch.size", "524288");
    floor_set(conf, "batch.num.messages", "1000000");
    floor_set(conf, "queue.buffering.max.messages", "4096"); /* as millrace's pool bounds them */
    if (exactly_once) {
        floor_set(conf, "transactional.id", floor_variable("PEER_SLOT"));
    }
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    char reason[256];
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
    if (producer == NULL) {
        floor_fail("a producer", reason);
    }
    if (exactly_once) {
        must("init_transactions", rd_kafka_init_transactions(producer, ANSWER_MS));
    }
    return producer;
}

/* Waits where librdkafka has as much as it may have. */
static void floor_produce(rd_kafka_t *producer, rd_kafka_topic_t *topic, const char *id,
                          size_t id_len, char *value, size_t len)
{
    char key[64];
    int key_len = snprintf(key, sizeof(key), "{\"id\":%.*s}", (int)id_len, id);
    while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, value, len, key,
                            (size_t)key_len, NULL) != 0) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            floor_fail("a record", rd_kafka_err2str(rd_kafka_last_error()));
        }
        rd_kafka_poll(producer, 1);
    }
}

static void floor_flush(rd_kafka_t *producer)
{
    rd_kafka_resp_err_t err = rd_kafka_flush(producer, ANSWER_MS);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        floor_fail("flush", rd_kafka_err2str(err));
    }
}

static void floor_copy(rd_kafka_t *producer, rd_kafka_topic_t *topic)
{
    char command[256], value[8192], *row;
    PGconn *server = PQconnectdb(floor_variable("PEER_PG_URL"));
    snprintf(command, sizeof(command), "COPY %s TO STDOUT", floor_variable("PEER_TABLE"));
    PGresult *result = PQexec(server, command);
    if (PQresultStatus(result) != PGRES_COPY_OUT) {
        floor_fail(command, PQerrorMessage(server));
    }
    PQclear(result);
    const size_t head = sizeof(envelope) - 1;
    memcpy(value, envelope, head);
    for (int len; (len = PQgetCopyData(server, &row, 0)) > 0; PQfreemem(row)) {
        if ((size_t)len > sizeof(value) - head) {
            floor_fail(command, "a row is too long for this program");
        }
        memcpy(value + head, row, (size_t)len);
        floor_produce(producer, topic, row, strcspn(row, "\t"), value, head + (size_t)len);
    }
    result = PQgetResult(server);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        floor_fail(command, PQerrorMessage(server));
    }
    PQclear(result);
    PQfinish(server);
    floor_flush(producer);
}

/* Whatever is due is one transaction, so a late one doesn't lower the rate. */
static void write_by_clock(rd_kafka_t *producer, rd_kafka_topic_t *topic, int64_t rate,
                           bool exactly_once)
{
    char value[RECORD_BYTES], id[24];
    memset(value, '.', sizeof(value));
    memcpy(value, envelope, sizeof(envelope) - 1);
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    int64_t written = -1; /* one record sets out first */
    for (int64_t tick = 0;; tick++) {
        if (written < tick * rate / TRANSACTIONS_PER_S) {
            if (exactly_once) {
                must("begin_transaction", rd_kafka_begin_transaction(producer));
            }
            for (; written < tick * rate / TRANSACTIONS_PER_S; written++) {
                int len = snprintf(id, sizeof(id), "%" PRId64, written + 1);
                floor_produce(producer, topic, id, (size_t)len, value, sizeof(value));
            }
            if (exactly_once) {
                must("commit_transaction", rd_kafka_commit_transaction(producer, ANSWER_MS));
            } else {
                floor_flush(producer);
            }
        }
        due.tv_nsec += 1000000000 / TRANSACTIONS_PER_S;
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
    }
}

int main(void)
{
    char name[512];
    const char *rate = getenv("PEER_RATE");
    bool exactly_once = strcmp(floor_variable("PEER_DELIVERY"), "exactly-once") == 0;
    rd_kafka_t *producer = floor_producer_new(exactly_once);
    snprintf(name, sizeof(name), "%s.%s", floor_variable("PEER_TOPIC_PREFIX"),
             floor_variable("PEER_TABLE"));
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, name, NULL);
    if (rate != NULL) {
        write_by_clock(producer, topic, atoi(rate), exactly_once);
    }
    if (exactly_once) {
        floor_fail("PEER_DELIVERY", "it copies at least once");
    }
    floor_copy(producer, topic);
    pause(); /* until it is ended */
    return 0;
}
