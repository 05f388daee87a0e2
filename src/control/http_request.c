#include <cjson/cJSON.h>
#include <poll.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "control/http_internal.h"

struct mr_http_request *mr_http_request_new(const char *path)
{
    struct mr_http_request *request = MR_NEW(struct mr_http_request);
    size_t len = strlen(path);
    request->status = MHD_HTTP_OK;
    request->type = "text/plain; charset=utf-8";
    memcpy(request->path, path, len > PATH_MAX_BYTES ? PATH_MAX_BYTES : len);
    return request;
}

/* No user name, which RFC 9110, 4.2.4 has one distrust, and no escapes, which another would read in
 * another way. */
static bool is_authority(const char *text, size_t len)
{
    static const char taken[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._:[]";
    return len > 0 && len <= AUTHORITY_MAX && strspn(text, taken) >= len;
}

void mr_http_target_parse(const char *uri, struct mr_http_target *ret)
{
    *ret = (struct mr_http_target){.is_secure = strncasecmp(uri, "https://", 8) == 0};
    if (!ret->is_secure && strncasecmp(uri, "http://", 7) != 0) {
        return;
    }
    const char *authority = &uri[ret->is_secure ? 8 : 7];
    size_t len = strcspn(authority, "/?");
    ret->len = (size_t)(authority - uri) + len;
    ret->is_malformed = !is_authority(authority, len);
    if (!ret->is_malformed) {
        memcpy(ret->authority, authority, len);
    }
}

static void body_drop(struct mr_http_request *request)
{
    if (request->body != NULL) {
        fclose(request->body);
        request->body = NULL;
    }
    free(request->bytes);
    request->bytes = NULL;
    request->len = 0;
}

void mr_http_request_free(struct mr_http_request *request)
{
    if (request != NULL) {
        body_drop(request);
        free(request->upload);
        free(request);
    }
}

bool mr_http_request_upload(struct mr_http_request *request, const char *bytes, size_t len)
{
    if (len > MR_HTTP_UPLOAD_MAX - request->upload_len) {
        return false;
    }
    if (request->upload == NULL) {
        request->upload = MR_NEW_ARRAY(char, MR_HTTP_UPLOAD_MAX);
    }
    memcpy(request->upload + request->upload_len, bytes, len);
    request->upload_len += len;
    return true;
}

mr_slice mr_http_upload(const struct mr_http_request *request)
{
    return (mr_slice){.data = (const uint8_t *)request->upload, .len = request->upload_len};
}

bool mr_http_takes_gzip(const struct mr_http_request *request)
{
    const char *accepted = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
                                                       MHD_HTTP_HEADER_ACCEPT_ENCODING);
    const char *gzip = accepted == NULL ? NULL : strcasestr(accepted, "gzip");
    /* "gzip;q=0" forbids it. */
    return gzip != NULL && strncmp(gzip + 4, ";q=0,", 5) != 0 && strcmp(gzip + 4, ";q=0") != 0;
}

const char *mr_http_path(const struct mr_http_request *request)
{
    return request->path;
}

const char *mr_http_parameter(const struct mr_http_request *request, const char *name)
{
    const char *value = NULL;
    size_t len;
    if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, name,
                                      strlen(name), &value, &len) != MHD_YES) {
        return NULL;
    }
    return value == NULL ? "" : value;
}

struct known_names {
    const char *const *known;
    const char *beyond;
};

static enum MHD_Result http_request_look_up(void *context, enum MHD_ValueKind kind,
                                            const char *name, const char *value)
{
    struct known_names *names = context;
    const char *const *known = names->known;
    while (*known != NULL && strcasecmp(*known, name) != 0) {
        known++;
    }
    names->beyond = *known == NULL ? name : NULL;
    return *known == NULL ? MHD_NO : MHD_YES;
}

const char *mr_http_parameter_beyond(const struct mr_http_request *request,
                                     const char *const *known)
{
    struct known_names names = {.known = known};
    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, http_request_look_up,
                              &names);
    return names.beyond;
}

bool mr_http_parse_number(const char *text, int64_t low, int64_t high, int64_t *ret)
{
    const char *digits = text + (*text == '-');
    size_t len = strlen(digits);
    if (len == 0 || strspn(digits, "0123456789") != len) {
        return false;
    }
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno != 0 || value < low || value > high) {
        return false;
    }
    *ret = value;
    return true;
}

bool mr_http_number(struct mr_http_request *request, const char *name, int64_t fallback,
                    int64_t low, int64_t high, int64_t *ret)
{
    const char *text = mr_http_parameter(request, name);
    if (text == NULL) {
        *ret = fallback;
        return true;
    }
    if (!mr_http_parse_number(text, low, high, ret)) {
        mr_http_fail(request, MHD_HTTP_BAD_REQUEST,
                     "parameter %s must be a whole number from %lld to %lld", name, (long long)low,
                     (long long)high);
        return false;
    }
    return true;
}

FILE *mr_http_body(struct mr_http_request *request, const char *type)
{
    request->type = type;
    if (request->body == NULL) {
        body_drop(request);
        request->body = open_memstream(&request->bytes, &request->len);
        MR_ASSERT(request->body != NULL);
    }
    return request->body;
}

void mr_http_take(struct mr_http_request *request, const char *type, void *bytes, size_t len)
{
    body_drop(request);
    request->type = type;
    request->bytes = bytes;
    request->len = len;
}

void mr_http_json(struct mr_http_request *request, cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    MR_ASSERT(text != NULL);
    cJSON_Delete(object);
    mr_http_take(request, "application/json", text, strlen(text));
}

void mr_http_status(struct mr_http_request *request, unsigned status)
{
    request->status = status;
}

void mr_http_header(struct mr_http_request *request, const char *name, const char *value)
{
    MR_ASSERT(request->header_count < HEADERS_MAX);
    request->headers[request->header_count].name = name;
    request->headers[request->header_count++].value = value;
}

void mr_http_print_string(FILE *to, const char *text, size_t len)
{
    size_t size = len * 6 + 2;
    MR_FREED uint8_t *quoted = MR_ALLOC(size);
    struct mr_buffer out = mr_buffer_init(quoted, size);
    mr_json_string(&out, (const uint8_t *)text, len);
    fwrite(quoted, 1, (size_t)(out.at - quoted), to);
}

void mr_http_fail(struct mr_http_request *request, unsigned status, const char *format, ...)
{
    char text[MR_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    body_drop(request);
    request->status = status;
    FILE *to = mr_http_body(request, "application/json");
    fputs("{\"error\":", to);
    mr_http_print_string(to, text, strlen(text));
    fputs("}\n", to);
}

void mr_http_fail_ending(struct mr_http_request *request)
{
    mr_http_fail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
                 "millrace is being stopped; ask again when it is back");
}

bool mr_http_wait(struct mr_http_request *request, uint32_t ms)
{
    struct pollfd fds[2] = {
        {.fd = request->slow.client_fd, .events = POLLRDHUP},
        {.fd = request->slow.stop_fd, .events = POLLIN},
    };
    /* The profiler's signals may interrupt it at any rate. */
    int64_t deadline_ns = mr_monotonic_ns() + (int64_t)ms * 1000000;
    int ready;
    do {
        int64_t left_ms = (deadline_ns - mr_monotonic_ns()) / 1000000;
        ready = poll(fds, 2, left_ms > 0 ? (int)left_ms : 0);
    } while (ready < 0 && errno == EINTR);
    return ready == 0;
}

struct held_body {
    char *bytes;
    size_t len;
    _Atomic size_t *held;
};

static void held_body_free(void *context)
{
    struct held_body *body = context;
    atomic_fetch_sub(body->held, body->len);
    free(body->bytes);
    free(body);
}

static struct MHD_Response *response_of_bytes(struct mr_http_request *request, _Atomic size_t *held,
                                              size_t held_max)
{
    bool written = request->body == NULL || fclose(request->body) == 0;
    request->body = NULL;
    if (!written || atomic_fetch_add(held, request->len) + request->len > held_max) {
        if (written) {
            atomic_fetch_sub(held, request->len);
        }
        return NULL;
    }
    struct held_body *body = MR_NEW(struct held_body);
    *body = (struct held_body){.bytes = request->bytes, .len = request->len, .held = held};
    request->bytes = NULL;
    return MHD_create_response_from_buffer_with_free_callback_cls(body->len, body->bytes,
                                                                  held_body_free, body);
}

/* Browsers keep nothing, guess nothing, load nothing and show it in no frame. */
static const struct {
    const char *name;
    const char *value;
} default_headers[] = {
    {"Cache-Control", "no-store"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
};

static bool has_header(const struct mr_http_request *request, const char *name)
{
    return MR_ANY(header, request->headers, request->header_count,
                  strcasecmp(header->name, name) == 0);
}

struct MHD_Response *mr_http_response(struct mr_http_request *request, _Atomic size_t *held,
                                      size_t held_max)
{
    struct MHD_Response *response = response_of_bytes(request, held, held_max);
    if (response == NULL) {
        return NULL;
    }
    MHD_add_response_header(response, "Content-Type", request->type);
    for (size_t i = 0; i < MR_ARRAY_LEN(default_headers); i++) {
        if (!has_header(request, default_headers[i].name)) {
            MHD_add_response_header(response, default_headers[i].name, default_headers[i].value);
        }
    }
    for (uint32_t i = 0; i < request->header_count; i++) {
        MHD_add_response_header(response, request->headers[i].name, request->headers[i].value);
    }
    return response;
}
