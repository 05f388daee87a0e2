#include "sink/kafka/kafka_stats.h"

#include "base/object.h"

static double kafka_stats_number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static uint64_t kafka_stats_count(const cJSON *object, const char *name)
{
    double value = kafka_stats_number(object, name);
    return value > 0 ? (uint64_t)value : 0;
}

/* A window of microseconds in seconds. */
static double window(const cJSON *broker, const char *name, const char *field)
{
    return kafka_stats_number(cJSON_GetObjectItemCaseSensitive(broker, name), field) / 1e6;
}

static void parse_broker(const cJSON *item, struct mr_sink_broker *ret)
{
    *ret = (struct mr_sink_broker){
        .id = (int32_t)kafka_stats_number(item, "nodeid"),
        .rtt_avg = window(item, "rtt", "avg"),
        .rtt_p99 = window(item, "rtt", "p99"),
        .queue_avg = window(item, "outbuf_latency", "avg"),
        .queue_p99 = window(item, "outbuf_latency", "p99"),
        .throttle_avg = window(item, "throttle", "avg") * 1e3, /* in milliseconds there */
        .throttle_p99 = window(item, "throttle", "p99") * 1e3,
        .requests_in_flight = kafka_stats_count(item, "waitresp_cnt"),
        .requests = kafka_stats_count(item, "tx"),
        .retries = kafka_stats_count(item, "txretries"),
        .timeouts = kafka_stats_count(item, "req_timeouts"),
        .errors = kafka_stats_count(item, "txerrs") + kafka_stats_count(item, "rxerrs"),
        .connects = kafka_stats_count(item, "connects"),
    };
    const char *state = mr_object_string(item, "state");
    ret->up = state != NULL && strcmp(state, "UP") == 0;
    const char *name = mr_object_string(item, "nodename");
    snprintf(ret->name, sizeof(ret->name), "%s", name == NULL ? "" : name);
}

static void parse_brokers(const cJSON *brokers, struct mr_sink_client *ret)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, brokers)
    {
        /* Bootstrap addresses and the group coordinator have numbers below 0. */
        if (kafka_stats_number(item, "nodeid") >= 0 && ret->broker_count < MR_SINK_BROKERS_MAX) {
            parse_broker(item, &ret->brokers[ret->broker_count++]);
        }
    }
}

/* The topics come after the brokers and before the totals, of which "tx" is the first
 * (rd_kafka_stats_emit_all). */
char *mr_kafka_stats_keep(const char *json)
{
    const char *topics = strstr(json, "\"topics\":");
    const char *totals = NULL;
    for (const char *at = topics; at != NULL && (at = strstr(at + 1, "\"tx\":")) != NULL;) {
        totals = at;
    }
    if (totals == NULL) {
        return strdup(json);
    }
    size_t head = (size_t)(topics - json);
    size_t tail = strlen(totals) + 1;
    char *kept = malloc(head + tail);
    if (kept != NULL) {
        memcpy(kept, json, head);
        memcpy(kept + head, totals, tail);
    }
    return kept;
}

bool mr_kafka_stats_parse(const char *json, struct mr_sink_client *ret)
{
    MR_OBJECT cJSON *root = cJSON_Parse(json);
    if (!cJSON_IsObject(root) || !cJSON_HasObjectItem(root, "brokers")) {
        return false;
    }
    *ret = (struct mr_sink_client){
        .known = true,
        .time_ns = (int64_t)kafka_stats_number(root, "ts") * 1000,
        .queue_messages = kafka_stats_count(root, "msg_cnt"),
        .queue_bytes = kafka_stats_count(root, "msg_size"),
        .pending_events = kafka_stats_count(root, "replyq"),
        .sent_messages = kafka_stats_count(root, "txmsgs"),
        .sent_bytes = kafka_stats_count(root, "tx_bytes"),
        .requests = kafka_stats_count(root, "tx"),
    };
    parse_brokers(cJSON_GetObjectItemCaseSensitive(root, "brokers"), ret);
    return true;
}
