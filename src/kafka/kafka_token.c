#include "kafka/kafka_token.h"

#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/object.h"
#include "base/thread.h"
#include "base/wake.h"

/* Clients whose program runs just now, and what ends it. */
enum { RUNNING_MAX = 8 };
static struct {
    pthread_mutex_t lock;
    struct {
        rd_kafka_t *client; /* NULL: none */
        int stop_fd;
    } items[RUNNING_MAX];
} running = {.lock = PTHREAD_MUTEX_INITIALIZER};

void mr_kafka_token_want(rd_kafka_conf_t *conf, const struct mr_kafka_options *options,
                         mr_kafka_token_fn give)
{
    if (options->token_program != NULL) {
        rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, give);
        rd_kafka_conf_enable_sasl_queue(conf, 1);
    }
}

void mr_kafka_token_begin(rd_kafka_t *client, const struct mr_kafka_options *options)
{
    if (options->token_program != NULL) {
        rd_kafka_error_t *error = rd_kafka_sasl_background_callbacks_enable(client);
        if (error != NULL) {
            mr_give_up("Kafka: no thread to ask for tokens: %s", rd_kafka_error_string(error));
        }
    }
}

/* librdkafka's own reasons would quote the token. */
static bool set_token(rd_kafka_t *client, const cJSON *json)
{
    char *token = cJSON_GetStringValue(mr_object_at(json, "token"));
    const cJSON *expires = cJSON_GetObjectItemCaseSensitive(json, "expires_ms");
    if (token == NULL || token[0] == '\0' || !cJSON_IsNumber(expires) || expires->valuedouble < 0 ||
        expires->valuedouble > (double)INT64_MAX / 2000) {
        return false;
    }
    char reason[8];
    rd_kafka_resp_err_t err = rd_kafka_oauthbearer_set_token(
        client, token, (int64_t)expires->valuedouble, "millrace", NULL, 0, reason, sizeof(reason));
    explicit_bzero(token, strlen(token));
    return err == RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* The place of a client whose program is to run; RUNNING_MAX: there is none, and nothing ends
 * it. */
static size_t begin_running(rd_kafka_t *client, int *ret_stop_fd)
{
    size_t at = 0;
    *ret_stop_fd = eventfd(0, EFD_CLOEXEC);
    MR_HOLD(&running.lock);
    while (at < RUNNING_MAX && running.items[at].client != NULL) {
        at++;
    }
    if (at < RUNNING_MAX) {
        running.items[at].client = client;
        running.items[at].stop_fd = *ret_stop_fd;
    }
    return at;
}

static void end_running(size_t at, int stop_fd)
{
    pthread_mutex_lock(&running.lock);
    if (at < RUNNING_MAX) {
        running.items[at].client = NULL;
    }
    pthread_mutex_unlock(&running.lock);
    if (stop_fd >= 0) {
        close(stop_fd);
    }
}

void mr_kafka_token_stop(const rd_kafka_t *client)
{
    MR_HOLD(&running.lock);
    for (size_t i = 0; i < RUNNING_MAX; i++) {
        if (running.items[i].client == client && running.items[i].stop_fd >= 0) {
            mr_wake(running.items[i].stop_fd);
        }
    }
}

void mr_kafka_token_give(rd_kafka_t *client, const struct mr_program *program)
{
    char *line = NULL;
    struct mr_error error = {0};
    int stop_fd;
    size_t place = begin_running(client, &stop_fd);
    mr_status status = mr_program_run(program, stop_fd, &line, &error);
    end_running(place, stop_fd);
    if (status == MR_OK) {
        MR_OBJECT cJSON *json = cJSON_Parse(line);
        if (!set_token(client, json)) {
            status = mr_fail(&error, MR_ERR_AUTH,
                             "%s: %s printed no token that is good now; it must print "
                             "{\"token\":\"…\",\"expires_ms\":N}, N in the future, in "
                             "milliseconds since 1970",
                             program->option, program->arguments[0]);
        }
    }
    if (status != MR_OK) {
        rd_kafka_oauthbearer_set_token_failure(client,
                                               status == MR_AGAIN ? "the client ends" : error.text);
    }
    mr_secret_forget(line);
}

/* librdkafka has what the endpoint answered with an error, without its number; or libcurl's text.
 * An answer names its error as in RFC 6749, 5.2. */
mr_status mr_kafka_token_classify(const char *text, const char **ret_remedy)
{
    static const char *const refusals[] = {"invalid_client", "unauthorized_client", "invalid_scope",
                                           "invalid_request", "unsupported_grant_type"};
    *ret_remedy = "";
    if (strstr(text, MR_PROGRAM_HELPER_GONE) != NULL) {
        return MR_ERR_SYSTEM;
    }
    if (strstr(text, "token_command") != NULL) {
        return strstr(text, MR_PROGRAM_REMEDY) != NULL ? MR_ERR_TRANSIENT : MR_ERR_AUTH;
    }
    if (strstr(text, "certificate") != NULL) {
        *ret_remedy = "check that the Kafka property https.ca.location holds the CA of the token "
                      "endpoint's certificate";
        return MR_ERR_AUTH;
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(refusals); i++) {
        if (strstr(text, refusals[i]) != NULL) {
            *ret_remedy = "check the client secret, and the Kafka properties "
                          "sasl.oauthbearer.client.id and scope";
            return MR_ERR_AUTH;
        }
    }
    *ret_remedy =
        "see that the token endpoint (Kafka property sasl.oauthbearer.token.endpoint.url) "
        "is reached from here";
    return MR_ERR_TRANSIENT;
}
