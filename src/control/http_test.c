#include "control/http.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/http_internal.h"
#include "testing/test.h"

static void test_address_parse_good(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *host;
        uint16_t port;
        bool local;
    } cases[] = {
        {"127.0.0.1:9464", "127.0.0.1", 9464, true},
        {"127.8.0.1:1", "127.8.0.1", 1, true},
        {"localhost:0", "localhost", 0, true},
        {"[::1]:65535", "::1", 65535, true},
        {":9464", "", 9464, false},
        {"0.0.0.0:9464", "0.0.0.0", 9464, false},
        {"[::]:9464", "::", 9464, false},
        {"127.evil.net:80", "127.evil.net", 80, false},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_address address;
        assert_int_equal(mr_address_parse(cases[i].text, &address, NULL), MR_OK);
        assert_string_equal(address.host, cases[i].host);
        assert_int_equal(address.port, cases[i].port);
        assert_int_equal(mr_address_is_local(&address), cases[i].local);
    }
    struct mr_address address;
    assert_int_equal(mr_address_parse("unix:/run/a.sock", &address, NULL), MR_OK);
    assert_true(address.is_unix && mr_address_is_local(&address));
    assert_string_equal(address.path, "/run/a.sock");
}

static void test_address_parse_bad(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",        "9464",     "host",          "host:",       "host:65536", "host:-1",
        "host:1x", "::1:9464", "[::1]",         "[::1:9464",   "[",          "]:1",
        "[:1",     "unix:",    "unix:relative", "host:123456", "a:b:1",      "host: 1",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_address address = {.port = 7};
        struct mr_error error = {0};
        assert_int_equal(mr_address_parse(cases[i], &address, &error), MR_ERR_CONFIG);
        assert_true(strlen(error.text) > 0);
        assert_int_equal(address.port, 7);
    }
    char longest[MR_ADDRESS_PATH_MAX + 8] = "unix:/";
    memset(longest + 6, 'x', MR_ADDRESS_PATH_MAX);
    struct mr_address address;
    assert_int_equal(mr_address_parse(longest, &address, NULL), MR_ERR_CONFIG);
    longest[5 + MR_ADDRESS_PATH_MAX] = '\0';
    assert_int_equal(mr_address_parse(longest, &address, NULL), MR_OK);
}

static void test_hosts_that_are_ours(void **state)
{
    (void)state;
    static const char *const names[] = {"cdc.example.org"};
    struct mr_http_options open = {.host_names = names, .host_name_count = 1};
    struct mr_http_options local = {0};
    assert_int_equal(mr_address_parse(":9464", &open.address, NULL), MR_OK);
    assert_int_equal(mr_address_parse("127.0.0.1:9464", &local.address, NULL), MR_OK);
    static const struct {
        const char *host;
        bool open;
        bool local;
    } cases[] = {
        {"10.1.2.3:9464", true, false},
        {"10.1.2.3", true, false},
        {"[fd00::1]:9464", true, false},
        {"millrace:9464", true, false},
        {"m.ns.svc.cluster.local", true, false},
        {"host.docker.internal:9464", true, false},
        {"localhost:9464", true, true},
        {"LOCALHOST", true, true},
        {"127.0.0.1", true, true},
        {"CDC.example.org:9464", true, false},
        {"evil.example", false, false},
        {"evil.example:9464", false, false},
        {"10.1.2.3.evil.example", false, false},
        {"127.0.0.1.nip.io", false, false},
        {"facade.de", false, false},
        {"bad.cafe:9464", false, false},
        {"[dead.be]", false, false},
        {"2001:db8::1.evil", false, false},
        {"localhost.:9464", true, true},
        {"millrace.ns.svc.cluster.local.:9464", true, false},
        {"evil.example.", false, false},
        {"ai.", false, false},
        {"unix:/x", false, false},
        {"a b", false, false},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        assert_int_equal(mr_http_host_is_ours(&open, cases[i].host), cases[i].open);
        assert_int_equal(mr_http_host_is_ours(&local, cases[i].host), cases[i].local);
    }
}

static void test_number(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        {"1", true, 1},    {"60", true, 60},  {"0", false, 0},  {"61", false, 0},
        {"", false, 0},    {"-", false, 0},   {"-1", false, 0}, {"+5", false, 0},
        {" 5", false, 0},  {"5 ", false, 0},  {"5s", false, 0}, {"0x5", false, 0},
        {"1e9", false, 0}, {"5\n", false, 0}, {"007", true, 7}, {"9223372036854775808", false, 0},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        int64_t value = -5;
        assert_int_equal(mr_http_parse_number(cases[i].text, 1, 60, &value), cases[i].good);
        assert_int_equal(value, cases[i].good ? cases[i].value : -5);
    }
}

enum { CONNECTIONS = 4 };

struct served {
    struct mr_http *http;
    struct mr_address address;
    char folder[32];
    struct mr_secret *password;
    _Atomic int left; /* slow handlers whose client went away */
    _Atomic int begun;
    _Atomic int late_fd; /* a slow handler that ends completes the request there */
};

static void http_test_send_all(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void hello(void *context, struct mr_http_request *request)
{
    (void)context;
    int64_t count;
    if (mr_http_number(request, "count", 1, 1, 100, &count)) {
        fprintf(mr_http_body(request, "text/plain"), "hello %" PRId64 "\n", count);
    }
}

static void slow(void *context, struct mr_http_request *request)
{
    struct served *served = context;
    atomic_fetch_add(&served->begun, 1);
    int64_t ms = 60000;
    if (mr_http_number(request, "ms", 60000, 0, 60000, &ms) &&
        !mr_http_wait(request, (uint32_t)ms)) {
        atomic_fetch_add(&served->left, 1);
        if (served->late_fd > 0) {
            http_test_send_all(served->late_fd, "Connection: close\r\n\r\n");
        }
    }
    fprintf(mr_http_body(request, "text/plain"), "slept\n");
}

static void fixed(void *context, struct mr_http_request *request)
{
    (void)context;
    mr_http_header(request, "Content-Security-Policy", "default-src 'self'");
    fputs("<p>", mr_http_body(request, "text/html"));
}

/* What came, and whether the answer may be compressed. */
static void echo(void *context, struct mr_http_request *request)
{
    (void)context;
    mr_slice upload = mr_http_upload(request);
    fprintf(mr_http_body(request, "text/plain"), "%.*s%s", (int)upload.len,
            upload.len == 0 ? "" : (const char *)upload.data,
            mr_http_takes_gzip(request) ? " gzip" : "");
}

static int http_test_setup(void **state)
{
    struct served *served = calloc(1, sizeof(*served));
    strcpy(served->folder, "/tmp/mr-http-XXXXXX");
    assert_non_null(mkdtemp(served->folder));
    served->address.is_unix = true;
    served->password = mr_secret_new(strdup("secret"));
    snprintf(served->address.path, sizeof(served->address.path), "%s/s", served->folder);
    struct mr_http_options options = {
        .required = true,
        .address = served->address,
        .username = "ann",
        .password = served->password,
        .connections = CONNECTIONS,
    };
    served->http = mr_http_new(&options);
    mr_http_add(served->http,
                &(struct mr_http_route){
                    .path = "/hello", .title = "Hello", .handler = hello, .open = true});
    mr_http_add(served->http, &(struct mr_http_route){.path = "/locked", .handler = hello});
    mr_http_add(
        served->http,
        &(struct mr_http_route){
            .path = "/slow/", .handler = slow, .context = served, .slow = true, .open = true});
    mr_http_add(served->http,
                &(struct mr_http_route){.path = "/fixed", .handler = fixed, .open = true});
    mr_http_add(served->http, &(struct mr_http_route){
                                  .path = "/echo", .handler = echo, .open = true, .post = true});
    struct mr_error error = {0};
    assert_int_equal(mr_http_start(served->http, &error), MR_OK);
    *state = served;
    return 0;
}

static int http_test_teardown(void **state)
{
    struct served *served = *state;
    mr_http_free(served->http);
    assert_int_not_equal(access(served->address.path, F_OK), 0);
    rmdir(served->folder);
    mr_secret_free(served->password);
    free(served);
    return 0;
}

static int dial(const struct served *served)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, served->address.path, sizeof(served->address.path));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    struct timeval limit = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

/* Everything up to the end of the connection, in a buffer of the callee's. */
static const char *http_test_take_answer(int fd)
{
    static char answer[64 * 1024];
    size_t len = 0;
    ssize_t count;
    while ((count = recv(fd, answer + len, sizeof(answer) - 1 - len, 0)) > 0) {
        len += (size_t)count;
    }
    answer[len] = '\0';
    close(fd);
    return answer;
}

static const char *http_test_ask(const struct served *served, const char *text, size_t len)
{
    int fd = dial(served);
    assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), len);
    return http_test_take_answer(fd);
}

static const char *get(const struct served *served, const char *target)
{
    char text[4096];
    int len = snprintf(text, sizeof(text),
                       "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target);
    return http_test_ask(served, text, (size_t)len);
}

static bool answers(const char *answer, const char *status, const char *piece)
{
    return strncmp(answer, "HTTP/1.", 7) == 0 && strncmp(answer + 9, status, 3) == 0 &&
           strstr(answer, piece) != NULL;
}

static void test_get(void **state)
{
    struct served *served = *state;
    assert_true(answers(get(served, "/hello"), "200", "\r\n\r\nhello 1\n"));
    assert_true(answers(get(served, "/hello?count=3"), "200", "\r\n\r\nhello 3\n"));
    assert_true(answers(get(served, "/hello?count=101"), "400", "whole number from 1 to 100"));
    assert_true(answers(get(served, "/hello/"), "401", "{\"error\":"));
    assert_true(answers(get(served, "/"), "401", "nosniff"));
    assert_true(answers(get(served, "/slow/a/b?ms=0"), "200", "slept"));
    assert_true(answers(get(served, "/hello?count"), "400", "whole number from 1 to 100"));
    assert_true(answers(get(served, "/hello?a&b&c&d&e&f&g&h"), "200", "hello 1"));
    assert_true(answers(get(served, "/hello?a&b&c&d&e&f&g&h&i"), "400", "at most 8"));
    const char *page = get(served, "/fixed");
    assert_true(answers(page, "200", "default-src 'self'"));
    assert_null(strstr(page, "'none'"));
}

static const char *http_test_post(const struct served *served, const char *target,
                                  const char *headers, const char *text)
{
    char request[4096];
    int len = snprintf(request, sizeof(request),
                       "POST %s HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n%sContent-Length: "
                       "%zu\r\n\r\n%s",
                       target, headers, strlen(text), text);
    return http_test_ask(served, request, (size_t)len);
}

static void test_post(void **state)
{
    struct served *served = *state;
    assert_true(answers(http_test_post(served, "/echo", "", "0x1+0x2"), "200", "\r\n\r\n0x1+0x2"));
    assert_true(answers(http_test_post(served, "/echo", "", ""), "200", "\r\n\r\n"));
    assert_true(answers(http_test_post(served, "/echo", "Accept-Encoding: deflate, gzip\r\n", "a"),
                        "200", "\r\n\r\na gzip"));
    assert_true(answers(http_test_post(served, "/echo", "Accept-Encoding: gzip;q=0\r\n", "a"),
                        "200", "\r\n\r\na"));
    assert_true(answers(get(served, "/echo"), "405", "ask with POST"));
    assert_true(answers(http_test_post(served, "/hello", "", ""), "405", "only GET and HEAD"));
    assert_true(answers(http_test_post(served, "/echo", "Origin: http://x:1\r\n", "a"), "200",
                        "\r\n\r\na"));
    assert_true(
        answers(http_test_post(served, "/echo", "Origin: http://evil\r\n", "a"), "403", "another"));
    assert_true(
        answers(http_test_post(served, "/echo", "Origin: null\r\n", "a"), "403", "another"));
}

static void test_post_too_long(void **state)
{
    struct served *served = *state;
    int fd = dial(served);
    static char text[MR_HTTP_UPLOAD_MAX + 4096];
    memset(text, 'a', sizeof(text));
    int len =
        snprintf(text, sizeof(text), "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
                 MR_HTTP_UPLOAD_MAX + 1);
    text[len] = 'a';
    /* The server may end the connection before all is sent. */
    ssize_t sent = 0;
    for (size_t at = 0; sent >= 0 && at < (size_t)len + MR_HTTP_UPLOAD_MAX + 1;
         at += (size_t)sent) {
        sent = send(fd, text + at, (size_t)len + MR_HTTP_UPLOAD_MAX + 1 - at, MSG_NOSIGNAL);
    }
    assert_false(answers(http_test_take_answer(fd), "200", ""));
    assert_true(answers(get(served, "/hello"), "200", "hello 1"));
}

static void test_password(void **state)
{
    struct served *served = *state;
    assert_true(answers(get(served, "/locked"), "401", "WWW-Authenticate: Basic"));
    static const struct {
        const char *base64;
        const char *status;
    } cases[] = {
        {"YW5uOnNlY3JldA==", "200"}, /* ann:secret */
        {"YW5uOnNlY3JlZA==", "401"}, /* ann:secred */
        {"YW5uOg==", "401"},         /* ann: */
        {"YW5u", "401"},             /* ann */
        {"Ym9iOnNlY3JldA==", "401"}, /* bob:secret */
        {"!!!", "401"},
        {"", "401"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        char text[256];
        int len = snprintf(text, sizeof(text),
                           "GET /locked HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                           "Authorization: Basic %s\r\n\r\n",
                           cases[i].base64);
        assert_true(answers(http_test_ask(served, text, (size_t)len), cases[i].status, ""));
    }
}

/* What is no request for us ends in an error and a closed connection, and the next one is
 * served. */
static void test_malformed(void **state)
{
    struct served *served = *state;
    static const struct {
        const char *text;
        size_t len;
        const char *status; /* NULL: anything but 200 */
    } cases[] = {
#define CASE(literal, status) {literal, sizeof(literal) - 1, status}
        CASE("POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "405"),
        CASE("PUT /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
             "405"),
        CASE("DELETE /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "405"),
        CASE("BREW /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "405"),
        CASE("GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n", "400"),
        CASE("GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "401"),
        CASE("GET http://x/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200"),
        CASE("GET http://x%2f/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "400"),
        CASE("GET /hello%00x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "401"),
        CASE("GET /hello HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", "400"),
        CASE("GET /hello HTTP/1.1\r\nHost: x\r\nHost : y\r\n\r\n", "400"),
        CASE("POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 0\r\n\r\nabc",
             "400"),
        CASE("GET /hel\0lo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", NULL),
        CASE("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", NULL),
        CASE("GET /hello\r\n\r\n", NULL),
        CASE("\r\n\r\n\r\n\r\nHTTP/1.1\r\n\r\n", NULL),
#undef CASE
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        int fd = dial(served);
        assert_int_equal(send(fd, cases[i].text, cases[i].len, MSG_NOSIGNAL), cases[i].len);
        shutdown(fd, SHUT_WR);
        const char *answer = http_test_take_answer(fd);
        if (cases[i].status != NULL) {
            assert_true(answers(answer, cases[i].status, ""));
        } else {
            assert_false(answers(answer, "200", "hello 1"));
        }
    }
    assert_true(answers(get(served, "/hello"), "200", "hello 1"));
}

static void test_head_too_large(void **state)
{
    struct served *served = *state;
    enum { SIZE = 64 * 1024 };
    char *text = malloc(SIZE + 1);
    size_t len = (size_t)snprintf(text, SIZE, "GET /hello HTTP/1.1\r\nHost: x\r\nA: ");
    memset(text + len, 'a', SIZE - len);
    int fd = dial(served);
    /* The server may close before all is sent. */
    ssize_t sent = send(fd, text, SIZE, MSG_NOSIGNAL);
    (void)sent;
    const char *answer = http_test_take_answer(fd);
    assert_true(answer[0] == '\0' || answers(answer, "431", "") || answers(answer, "413", ""));
    memcpy(text, "GET /", 5);
    memset(text + 5, 'a', SIZE - 5);
    fd = dial(served);
    sent = send(fd, text, SIZE, MSG_NOSIGNAL);
    answer = http_test_take_answer(fd);
    assert_true(answer[0] == '\0' || answers(answer, "414", ""));
    free(text);
    assert_true(answers(get(served, "/hello"), "200", "hello 1"));
}

static void http_test_wait_until(_Atomic int *value, int wanted)
{
    for (int i = 0; i < 2000 && atomic_load(value) != wanted; i++) {
        poll(NULL, 0, 10);
    }
    assert_int_equal(atomic_load(value), wanted);
}

static int begin_slow(struct served *served, int running)
{
    static const char text[] = "GET /slow/x HTTP/1.1\r\nHost: x\r\n\r\n";
    int fd = dial(served);
    assert_int_equal(send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL), sizeof(text) - 1);
    http_test_wait_until(&served->begun, running);
    return fd;
}

static void test_slow_handlers_are_few_and_end_with_their_client(void **state)
{
    struct served *served = *state;
    int first = begin_slow(served, 1);
    int second = begin_slow(served, 2);
    int third = begin_slow(served, 3);
    assert_true(answers(get(served, "/slow/y"), "429", "Retry-After"));
    assert_true(answers(get(served, "/hello"), "200", "hello 1")); /* meanwhile */
    close(first);
    http_test_wait_until(&served->left, 1);
    close(second);
    close(third);
    http_test_wait_until(&served->left, 3);
    const char *answer;
    do { /* its place is free a moment after the handler has ended */
        answer = get(served, "/slow/z?ms=1");
    } while (answers(answer, "429", ""));
    assert_true(answers(answer, "200", "slept"));
}

/* The server goes on with a request when its handler is done, and not with the next second. */
static void test_slow_handler_is_answered_at_once(void **state)
{
    struct served *served = *state;
    int64_t begin_ns = mr_monotonic_ns();
    for (int i = 0; i < 5; i++) {
        assert_true(answers(get(served, "/slow/x?ms=1"), "200", "slept"));
    }
    assert_true(mr_monotonic_ns() - begin_ns < INT64_C(3000000000));
}

static void test_end_ends_slow_handlers(void **state)
{
    struct served *served = *state;
    int fd = begin_slow(served, 1);
    mr_http_free(served->http);
    served->http = NULL;
    assert_int_equal(atomic_load(&served->left), 1);
    assert_true(answers(http_test_take_answer(fd), "200", "slept"));
}

/* The server is still there while it says farewell; what comes then must not run on when it is
 * gone. */
static void test_end_begins_no_slow_handler(void **state)
{
    struct served *served = *state;
    int late = dial(served); /* accepted before the next one is */
    http_test_send_all(late, "GET /slow/late HTTP/1.1\r\nHost: x\r\n");
    int fd = begin_slow(served, 1);
    atomic_store(&served->late_fd, late);
    mr_http_free(served->http);
    served->http = NULL;
    assert_int_equal(atomic_load(&served->begun), 1);
    assert_true(answers(http_test_take_answer(fd), "200", "slept"));
    assert_true(answers(http_test_take_answer(late), "503", "being stopped"));
}

/* Connections without a request give way to one that has one, and end by themselves. */
static void test_silent_connections_make_room(void **state)
{
    struct served *served = *state;
    int silent[CONNECTIONS * 10];
    for (size_t i = 0; i < MR_ARRAY_LEN(silent); i++) {
        silent[i] = dial(served);
        assert_int_equal(send(silent[i], "G", 1, MSG_NOSIGNAL), 1);
    }
    int64_t begin_ns = mr_monotonic_ns();
    assert_true(answers(get(served, "/hello"), "200", "hello 1"));
    assert_true(mr_monotonic_ns() - begin_ns < INT64_C(4000000000)); /* before any deadline */
    for (size_t i = 0; i < MR_ARRAY_LEN(silent); i++) {
        char byte;
        ssize_t count = recv(silent[i], &byte, 1, 0); /* ended by the server within 20 s */
        assert_true(count == 0 || (count < 0 && errno == ECONNRESET) || byte == 'H');
        close(silent[i]);
    }
}

static void test_address_taken(void **state)
{
    struct served *served = *state;
    struct mr_http_options options = {
        .required = true, .address = served->address, .connections = CONNECTIONS};
    struct mr_http *second = mr_http_new(&options);
    struct mr_error error = {0};
    assert_int_equal(mr_http_start(second, &error), MR_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "http.address"));
    mr_http_free(second);

    /* Not required: it waits, and serves once the address is free. */
    options.required = false;
    second = mr_http_new(&options);
    mr_http_add(second, &(struct mr_http_route){.path = "/hello", .handler = hello, .open = true});
    assert_int_equal(mr_http_start(second, &error), MR_OK);
    assert_true(answers(get(served, "/hello"), "200", "hello 1"));
    mr_http_free(served->http);
    served->http = second;
    for (int i = 0; i < 2000 && access(served->address.path, F_OK) != 0; i++) {
        poll(NULL, 0, 10);
    }
    poll(NULL, 0, 50);
    assert_true(answers(get(served, "/hello"), "200", "hello 1"));
}

static void test_http_target_parse(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *authority;
        size_t len;
        bool is_secure, is_malformed;
    } cases[] = {
        {"/metrics", "", 0, false, false},
        {"*", "", 0, false, false},
        {"", "", 0, false, false},
        {"http:/a/b", "", 0, false, false},
        {"/http://a/b", "", 0, false, false},
        {"http://a", "a", 8, false, false},
        {"http://a/b", "a", 8, false, false},
        {"http://a?b", "a", 8, false, false},
        {"HtTpS://[::1]:80/b", "[::1]:80", 16, true, false},
        {"http://", "", 7, false, true},
        {"http:///b", "", 7, false, true},
        {"http://a@b/c", "", 10, false, true},
        {"http://a%2fb/c", "", 12, false, true},
        {"http://a#b/c", "", 10, false, true},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_http_target target;
        mr_http_target_parse(cases[i].uri, &target);
        assert_string_equal(target.authority, cases[i].authority);
        assert_int_equal(target.len, cases[i].len);
        assert_int_equal(target.is_secure, cases[i].is_secure);
        assert_int_equal(target.is_malformed, cases[i].is_malformed);
    }
    for (size_t len = AUTHORITY_MAX; len <= AUTHORITY_MAX + 1; len++) {
        char uri[AUTHORITY_MAX + 16] = "http://";
        memset(&uri[7], 'a', len);
        struct mr_http_target target;
        mr_http_target_parse(uri, &target);
        assert_int_equal(target.is_malformed, len > AUTHORITY_MAX);
    }
}

int main(void)
{
#define SERVED(test) cmocka_unit_test_setup_teardown(test, http_test_setup, http_test_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address_parse_good),
        cmocka_unit_test(test_address_parse_bad),
        cmocka_unit_test(test_hosts_that_are_ours),
        cmocka_unit_test(test_http_target_parse),
        cmocka_unit_test(test_number),
        SERVED(test_get),
        SERVED(test_post),
        SERVED(test_post_too_long),
        SERVED(test_password),
        SERVED(test_malformed),
        SERVED(test_head_too_large),
        SERVED(test_slow_handlers_are_few_and_end_with_their_client),
        SERVED(test_slow_handler_is_answered_at_once),
        SERVED(test_end_ends_slow_handlers),
        SERVED(test_end_begins_no_slow_handler),
        SERVED(test_silent_connections_make_room),
        SERVED(test_address_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
