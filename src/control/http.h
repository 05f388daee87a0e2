/* The HTTP server (libmicrohttpd's only user) and what a handler sees of a request.
 *
 * One thread at low priority accepts, reads requests and runs quick handlers; a slow handler (a
 * profile of 30 seconds) gets a thread of its own. The server never waits for the flow, nor the
 * flow for the server. docs/dev/architecture.md says why there is more here than libmicrohttpd
 * has. */
#pragma once

#include "ask/http_options.h"

struct cJSON;
struct mr_http;
struct mr_http_request;

/* Fills the answer. Quick handlers run on the server's thread and must not block. */
typedef void (*mr_http_handler_fn)(void *context, struct mr_http_request *request);

struct mr_http_route {
    const char *path;  /* "/metrics"; "/pprof/" at its end means all that begins so */
    const char *title; /* of its link on the live page; NULL: not there */
    mr_http_handler_fn handler;
    void *context;
    /* MR_HTTP_SLOW_MAX run at once, one less of over a minute (?seconds=); others get status
     * 429. */
    bool slow;
    bool open;     /* answered without a password too: probes */
    bool post;     /* POST instead of GET; not slow */
    bool commands; /* of commands: refused where other machines reach a server without a password */
};

enum { MR_HTTP_ROUTES_MAX = 48, MR_HTTP_SLOW_MAX = 3, MR_HTTP_UPLOAD_MAX = 256 * 1024 };

struct mr_http *mr_http_new(const struct mr_http_options *options);

/* Before the start. All: with the same context. */
void mr_http_add(struct mr_http *http, const struct mr_http_route *route);
void mr_http_add_all(struct mr_http *http, const struct mr_http_route *routes, size_t count,
                     void *context);

/* Listens and starts the thread. MR_ERR_SYSTEM: not able to listen, and that was required. */
mr_status mr_http_start(struct mr_http *http, struct mr_error *ret_error);

/* Ends slow handlers (mr_http_wait answers false), the thread, and every connection. Takes NULL. */
void mr_http_free(struct mr_http *http);

/* The route at `index`, in order of mr_http_add, or NULL. Any thread after the start. */
const struct mr_http_route *mr_http_route_at(const struct mr_http *http, size_t index);

/* The whole path: "/pprof/heap". */
const char *mr_http_path(const struct mr_http_request *request);

/* A parameter of the query ("": its name alone), or NULL; valid until the handler returns. Upper
 * and lower case are the same. More than eight are refused before the handler; the request's head
 * bounds their length. */
const char *mr_http_parameter(const struct mr_http_request *request, const char *name);

/* The first parameter of the query that is not one of `known` (ends with NULL), or NULL. */
const char *mr_http_parameter_beyond(const struct mr_http_request *request,
                                     const char *const *known);

/* A whole number of the query from `low` to `high`, `fallback` when it is not there. False: it is
 * something else; the request has status 400 and the handler returns. */
bool mr_http_number(struct mr_http_request *request, const char *name, int64_t fallback,
                    int64_t low, int64_t high, int64_t *ret);

/* What a POST brought, at most MR_HTTP_UPLOAD_MAX bytes; "" if nothing. */
mr_slice mr_http_upload(const struct mr_http_request *request);

/* Whether the client takes an answer with Content-Encoding: gzip. */
bool mr_http_takes_gzip(const struct mr_http_request *request);

/* The stream that the answer is written to; `type` is its Content-Type (a literal). */
FILE *mr_http_body(struct mr_http_request *request, const char *type);

/* Writes a JSON string. */
void mr_http_print_string(FILE *to, const char *text, size_t len);

/* In place of mr_http_body: a malloc'ed answer, which is freed here. */
void mr_http_take(struct mr_http_request *request, const char *type, void *bytes, size_t len);

/* Likewise an object, which is deleted here. */
void mr_http_json(struct mr_http_request *request, struct cJSON *object);

/* 200 unless set. */
void mr_http_status(struct mr_http_request *request, unsigned status);

/* One more header, in place of a default one of that name. Both literals; at most four. */
void mr_http_header(struct mr_http_request *request, const char *name, const char *value);

/* An error in place of what was written: {"error":"sentence"}. The sentence says what to do. */
void mr_http_fail(struct mr_http_request *request, unsigned status, const char *format, ...)
    MR_PRINTF(3, 4);

/* The error of requests that the end of the server cuts short. */
void mr_http_fail_ending(struct mr_http_request *request);

/* Slow handlers: waits `ms` and answers true, or answers false at once when the client has left or
 * the server ends; the handler then returns. */
bool mr_http_wait(struct mr_http_request *request, uint32_t ms);
