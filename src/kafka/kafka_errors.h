/* What each librdkafka error means and how it is mended. For kafka/ and sink/kafka only; any
 * thread. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "kafka/options.h"

enum { MR_KAFKA_REMEDY_MAX = 256 };

/* Sorts an error by its code and librdkafka's text. A fatal or permanent one ends the producer's
 * session; the pipeline then opens the next and rewinds, so MR_ERR_TRANSIENT is "a new session may
 * well do". The remedy is empty where there is nothing to say. */
mr_status mr_kafka_error_classify(rd_kafka_resp_err_t err, const char *text,
                                  const struct mr_kafka_options *options,
                                  char ret_remedy[MR_KAFKA_REMEDY_MAX]);

/* The user may not do that, or did not log in. */
static inline bool mr_kafka_is_refusal(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
           err == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED ||
           err == RD_KAFKA_RESP_ERR__AUTHENTICATION ||
           err == RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED;
}

/* No matter for who reads a topic: it passes by itself, or is about the group, which the library
 * looks up and nobody is a member of (mr_kafka_consumer_new). */
bool mr_kafka_is_passing(const rd_kafka_message_t *failed);

/* There is no such topic. */
static inline bool mr_kafka_is_missing(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
}

/* The text of an error for a broker that closes each connection at the first request. */
#define MR_KAFKA_HUNG_UP "the broker closes the connection at the first request"

/* Whether a line of librdkafka's log says so. A port that speaks TLS does this to a client that
 * does not, and librdkafka 2.15 reports it in its log alone: rd_kafka_broker_conn_closed
 * (rdkafka_broker.c) makes it information, not an error. */
bool mr_kafka_is_hung_up(const char *facility, const char *text);
