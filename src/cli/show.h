/* What a running millrace says of itself, and figures as people read them; for `millrace status` and `top`. */
#ifndef MR_CLI_SHOW_H
#define MR_CLI_SHOW_H

#include <cjson/cJSON.h>

#include "control/http.h"

/* Asks for a path of the server that answers with a JSON object; the caller deletes it. */
mr_status mr_show_ask(const struct mr_http_options *server, const char *path, cJSON **ret_object,
                      struct mr_error *ret_error);

/* The same as the text that came, to be freed. */
mr_status mr_show_ask_text(const struct mr_http_options *server, const char *path, char **ret_text,
                           struct mr_error *ret_error);

/* The same with POST, and `text` in it: it changes something. */
mr_status mr_show_post(const struct mr_http_options *server, const char *path, const char *text,
                       cJSON **ret_object, struct mr_error *ret_error);

/* The member at a path of names ("lag", "bytes"), or NULL; the second name may be NULL. */
const cJSON *mr_show_at(const cJSON *object, const char *first, const char *second);

double mr_show_number(const cJSON *item); /* NaN: there is none */
const char *mr_show_word(const cJSON *item);

struct mr_show_text {
    char bytes[48];
};

/* The state and, if something stands still, why: "waiting_for_sink (kafka_away)". */
struct mr_show_text mr_show_state(const cJSON *status);

/* A percentile of times: the histograms end at 100 s, and what took longer is ">100 s". */
struct mr_show_text mr_show_percentile(double seconds);

/* "-" for what is not known. */
struct mr_show_text mr_show_count(double value);     /* "1,234,567" */
struct mr_show_text mr_show_bytes(double value);     /* "1.2 MiB" */
struct mr_show_text mr_show_seconds(double seconds); /* "2.5 ms" */

/* "14:03:22", local. */
struct mr_show_text mr_show_clock(double time_ms);

#endif
