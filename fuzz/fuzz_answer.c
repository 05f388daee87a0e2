/* What a server answers to our own questions, through libpq, the check of an answer's shape and its
 * reader. The first byte says which question is asked, the rest is what a server on the other end
 * of a socket says, an answer after the other after 0x1D: lines of values with tabs between them
 * (0x1E alone is a null), or, after 0x1B, bytes of the protocol as they are. After those, and after
 * the last answer, the server hangs up: a silent one ends with a time limit, which is not for a
 * fuzzer to wait for.
 *
 * An answer is taken or refused with a text, and what is taken is what its shape says. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "event/checkpoint.h"
#include "fuzz.h"
#include "postgres/catalog/pg_captured.h"
#include "postgres/catalog/pg_keys.h"
#include "postgres/catalog/pg_options.h"
#include "postgres/catalog/pg_types.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_setup.h"

enum { NEXT_ANSWER = 0x1D, NULL_VALUE = 0x1E, AS_IT_IS = 0x1B, TYPE_TEXT = 25, PORT = 5432 };

/* A connection of ours: the questions' own, and a set-up's second one. */
struct client {
    int fd; /* -1: none yet */
    bool greeted;
};

static struct {
    int listener;
    struct client clients[2];
    char folder[64];
    mr_slice answers; /* to whichever asks next */
} server = {.clients = {{.fd = -1}, {.fd = -1}}};

static void add_u16(struct mr_text *to, uint16_t value)
{
    uint8_t bytes[2] = {(uint8_t)(value >> 8), (uint8_t)value};
    mr_text_add(to, bytes, sizeof(bytes));
}

static void add_u32(struct mr_text *to, uint32_t value)
{
    add_u16(to, (uint16_t)(value >> 16));
    add_u16(to, (uint16_t)value);
}

static void add_message(struct mr_text *to, char kind, struct mr_text *body)
{
    mr_text_add(to, &kind, 1);
    add_u32(to, (uint32_t)(body->len + 4));
    mr_text_add(to, body->data, body->len);
    mr_text_done(body);
}

static void add_ready(struct mr_text *to)
{
    struct mr_text body = {0};
    mr_text_string(&body, "I");
    add_message(to, 'Z', &body);
}

static void add_parameter(struct mr_text *to, const char *name, const char *value)
{
    struct mr_text body = {0};
    mr_text_add(&body, name, strlen(name) + 1);
    mr_text_add(&body, value, strlen(value) + 1);
    add_message(to, 'S', &body);
}

static void add_greeting(struct mr_text *to)
{
    struct mr_text body = {0};
    add_u32(&body, 0); /* AuthenticationOk */
    add_message(to, 'R', &body);
    add_parameter(to, "server_version", "16.1");
    add_parameter(to, "server_encoding", "UTF8");
    add_parameter(to, "client_encoding", "UTF8");
    add_ready(to);
}

/* The part of `rest` up to a byte, which goes too; false: there is none. */
static bool part(mr_slice *rest, char end, mr_slice *ret_part)
{
    if (rest->data == NULL) {
        return false;
    }
    const uint8_t *at = memchr(rest->data, end, rest->len);
    *ret_part =
        (mr_slice){.data = rest->data, .len = at == NULL ? rest->len : (size_t)(at - rest->data)};
    *rest = at == NULL ? (mr_slice){0}
                       : (mr_slice){.data = at + 1, .len = rest->len - ret_part->len - 1};
    return true;
}

static uint16_t values_of(mr_slice line)
{
    uint16_t count = 1;
    for (size_t i = 0; i < line.len; i++) {
        count += line.data[i] == '\t';
    }
    return count;
}

static void add_columns(struct mr_text *to, uint16_t count)
{
    /* Name and NUL, table 4 bytes, its column 2, type 4, size 2, modifier 4, format 2. */
    static const uint8_t column[20] = {'c',  0,   [11] = TYPE_TEXT, [12] = 0xFF, 0xFF, 0xFF, 0xFF,
                                       0xFF, 0xFF};
    struct mr_text body = {0};
    add_u16(&body, count);
    for (uint16_t i = 0; i < count; i++) {
        mr_text_add(&body, column, sizeof(column));
    }
    add_message(to, 'T', &body);
}

static void add_row(struct mr_text *to, mr_slice line)
{
    struct mr_text body = {0};
    add_u16(&body, values_of(line));
    for (mr_slice value; part(&line, '\t', &value);) {
        bool null = value.len == 1 && value.data[0] == NULL_VALUE;
        add_u32(&body, null ? UINT32_MAX : (uint32_t)value.len);
        mr_text_add(&body, value.data, null ? 0 : value.len);
    }
    add_message(to, 'D', &body);
}

/* False: it is the last. */
static bool add_answer(struct mr_text *to, mr_slice answer)
{
    if (answer.len > 0 && answer.data[0] == AS_IT_IS) {
        mr_text_add(to, answer.data + 1, answer.len - 1);
        return false;
    }
    mr_slice line;
    uint16_t columns = 0;
    while (answer.len > 0 && part(&answer, '\n', &line)) {
        if (columns == 0) {
            columns = values_of(line);
            add_columns(to, columns);
        }
        add_row(to, line);
    }
    struct mr_text body = {0};
    mr_text_add(&body, "SELECT 1", sizeof("SELECT 1"));
    add_message(to, 'C', &body);
    add_ready(to);
    return true;
}

/* Sends all of it and forgets it; it fits into the socket's buffer. */
static void say(const struct client *client, struct mr_text *text)
{
    ssize_t sent = send(client->fd, text->data, text->len, MSG_NOSIGNAL);
    MR_ASSERT(sent < 0 || (size_t)sent == text->len);
    mr_text_done(text);
}

static void hang_up(struct client *client)
{
    shutdown(client->fd, SHUT_WR);
    client->greeted = false;
}

/* One message of the client, which is well-formed. */
static void answer_message(struct client *client, char kind)
{
    struct mr_text text = {0};
    mr_slice answer;
    if (!client->greeted) {
        add_greeting(&text);
        say(client, &text);
        client->greeted = true;
        return;
    }
    bool goes_on =
        kind == 'Q' && part(&server.answers, NEXT_ANSWER, &answer) && add_answer(&text, answer);
    if (text.len > 0) {
        say(client, &text);
    }
    mr_text_done(&text);
    if (!goes_on) {
        hang_up(client);
    }
}

/* What the client has sent by now: libpq sends a message at a time, and waits for what it is
 * answered. */
static void serve(void)
{
    static char message[1 << 16];
    for (size_t i = 0; i < MR_ARRAY_LEN(server.clients); i++) {
        struct client *client = &server.clients[i];
        if (client->fd < 0) {
            client->fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
        }
        if (client->fd >= 0 && recv(client->fd, message, sizeof(message), MSG_DONTWAIT) > 0) {
            answer_message(client, message[0]);
        }
    }
}

/* The server takes its turn where the client waits: one thread, so that a run can be repeated. */
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    serve();
    return __real_poll(fds, count, timeout_ms);
}

static struct sockaddr_un socket_address(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/.s.PGSQL.%d", server.folder, PORT);
    return address;
}

static void remove_socket(void)
{
    unlink(socket_address().sun_path);
    rmdir(server.folder);
}

static void start_server(void)
{
    strcpy(server.folder, "/tmp/fuzz_answer-XXXXXX");
    MR_ASSERT(mkdtemp(server.folder) != NULL);
    struct sockaddr_un address = socket_address();
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    MR_ASSERT(server.listener >= 0);
    MR_ASSERT(bind(server.listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    MR_ASSERT(listen(server.listener, 8) == 0);
    atexit(remove_socket);
}

static const struct mr_table_name tables[] = {{"public", "orders"}, {"app", "Users"}};

static struct mr_pg_source_options options_now(const char *conninfo)
{
    return (struct mr_pg_source_options){
        .connection = {.conninfo = conninfo},
        .slot = "millrace",
        .publication = "millrace",
        .captured = {.pipeline = "0123456789abcdef",
                     .tables = tables,
                     .table_count = MR_ARRAY_LEN(tables)},
        .create_slot = true,
        .create_publication = true,
    };
}

struct asked {
    struct mr_pg_conn *conn;
    struct mr_pg_conn *desk; /* of a set-up */
    const struct mr_pg_source_options *options;
    struct mr_error error;
};

/* Nothing between what is written and what is read but the shape. */
static bool fits(char kind, const char *value)
{
    static const char hexadecimal[] = "0123456789ABCDEFabcdef";
    size_t digits;
    switch (kind | 0x20) {
    case 'b':
        return strcmp(value, "t") == 0 || strcmp(value, "f") == 0;
    case 'n':
        value += value[0] == '-';
        digits = strlen(value);
        return digits > 0 && digits < 20 && strspn(value, "0123456789") == digits;
    case 'l':
        digits = strspn(value, hexadecimal);
        value += digits;
        return digits > 0 && value[0] == '/' && value[1] != '\0' &&
               strspn(value + 1, hexadecimal) == strlen(value + 1);
    case 'i':
        return value[0] != '\0' && strlen(value) <= MR_IDENTIFIER_MAX;
    default:
        return true;
    }
}

static mr_status ask_shape(struct asked *asked)
{
    static const struct mr_pg_shape shape = {"everything", "ibnlIBNL", 1, 3};
    struct mr_text sql = {0};
    mr_text_string(&sql, "SELECT");
    struct mr_pg_result *result;
    MR_TRY(mr_pg_query(asked->conn, &sql, &shape, &result, &asked->error));
    uint32_t rows = mr_pg_result_rows(result);
    MR_ASSERT(rows >= shape.rows_min && rows <= shape.rows_max);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t column = 0; shape.columns[column] != '\0'; column++) {
            const char *value = mr_pg_result_value(result, row, column);
            char kind = shape.columns[column];
            MR_ASSERT(value == NULL ? kind < 'a' : fits(kind, value));
            mr_pg_result_true(result, row, column);
            mr_pg_result_number(result, row, column);
            mr_pg_result_lsn(result, row, column);
        }
    }
    mr_pg_result_free(result);
    return MR_OK;
}

static mr_status ask_owner(struct asked *asked)
{
    struct mr_pg_owner owner;
    MR_TRY(mr_pg_find_owner(asked->conn, asked->options, &owner, &asked->error));
    MR_ASSERT(memchr(owner.who, '\0', sizeof(owner.who)) != NULL);
    return MR_OK;
}

static mr_status identify(struct asked *asked, const struct mr_checkpoint *stored)
{
    struct mr_server_position there;
    MR_TRY(mr_pg_identify(asked->conn, asked->options, stored, 0, &there, &asked->error));
    MR_ASSERT(memchr(there.identity.system_id, '\0', sizeof(there.identity.system_id)) != NULL);
    MR_ASSERT(strcmp(there.identity.slot, "millrace") == 0);
    return MR_OK;
}

static mr_status ask_identity(struct asked *asked)
{
    return identify(asked, NULL);
}

static mr_status ask_history(struct asked *asked)
{
    static const struct mr_checkpoint stored = {.identity = {.system_id = "7000000000000000001",
                                                             .timeline = 1,
                                                             .slot = "millrace",
                                                             .publication = "millrace"},
                                                .end_lsn = 0x1000};
    return identify(asked, &stored);
}

static mr_status ask_setup(struct asked *asked)
{
    static const struct mr_pg_stream_state state = {.is_known = true};
    return mr_pg_setup(asked->conn, asked->desk, asked->options, &state, NULL, NULL, &asked->error);
}

static mr_status ask_setup_copy(struct asked *asked)
{
    struct mr_pg_copy_slot slot;
    MR_TRY(mr_pg_setup(asked->conn, asked->desk, asked->options, &(struct mr_pg_stream_state){0},
                       &slot, NULL, &asked->error));
    MR_ASSERT(memchr(slot.name, '\0', sizeof(slot.name)) != NULL);
    MR_ASSERT(memchr(slot.snapshot, '\0', sizeof(slot.snapshot)) != NULL);
    return MR_OK;
}

static const struct mr_transaction transaction = {.xid = 700, .commit_lsn = 0x2000};

static mr_status ask_keys(struct asked *asked)
{
    struct mr_pg_keys keys = {0};
    struct mr_pg_horizon horizon;
    MR_TRY(mr_pg_horizon_read(asked->conn, true, &horizon, &asked->error));
    mr_status status =
        mr_pg_keys_read(&keys, asked->conn, "16384,16385", &horizon, 0, &asked->error);
    if (status == MR_OK) {
        status = mr_pg_keys_ask(&keys, asked->conn, 16385, &transaction, &asked->error);
    }
    for (uint32_t oid = 16384; oid < 16388; oid++) {
        mr_pg_keys_cover(&keys, oid, &transaction);
    }
    mr_pg_keys_done(&keys);
    return status;
}

static mr_status ask_types(struct asked *asked)
{
    struct mr_by_oid types = {0};
    mr_status status = mr_pg_types_read(&types, asked->conn, &asked->error);
    if (status == MR_OK) {
        status = mr_pg_types_ask(&types, asked->conn, 50000, &asked->error);
    }
    struct mr_type type;
    for (uint32_t i = 0; i < types.count; i++) {
        mr_pg_types_find(&types, 49998 + i, -1, &type);
    }
    mr_by_oid_done(&types);
    return status;
}

static mr_status ask_captured(struct asked *asked)
{
    struct mr_pg_captured captured = {0};
    struct mr_pg_horizon horizon;
    MR_TRY(mr_pg_horizon_read(asked->conn, false, &horizon, &asked->error));
    mr_status status =
        mr_pg_captured_read(&captured, asked->conn, asked->options, &horizon, &asked->error);
    if (status == MR_OK) {
        const struct mr_pg_described described = {
            .oid = 16385, .schema = "s", .table = "t", .columns = "('c', 25, -1)"};
        status =
            mr_pg_captured_ask(&captured, asked->conn, asked->options, &described, &asked->error);
    }
    for (uint32_t oid = 16384; oid < 16388; oid++) {
        mr_pg_captured_is_stale(&captured, oid, &transaction);
        mr_pg_captured_find(&captured, oid);
    }
    mr_pg_captured_done(&captured);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mr_status (*const questions[])(struct asked *) = {
        ask_shape,      ask_owner, ask_identity, ask_history,  ask_setup,
        ask_setup_copy, ask_keys,  ask_types,    ask_captured,
    };
    if (size == 0) {
        return 0;
    }
    if (server.folder[0] == '\0') {
        start_server();
    }
    server.answers = (mr_slice){.data = data + 1, .len = size - 1};
    char conninfo[128];
    snprintf(conninfo, sizeof(conninfo), "host=%s port=%d user=u dbname=d", server.folder, PORT);
    struct mr_pg_source_options options = options_now(conninfo);
    struct asked asked = {.options = &options};
    mr_status status = mr_pg_connect(&options.connection, true, -1, &asked.conn, &asked.error);
    MR_ASSERT(status == MR_OK);
    status = mr_pg_connect(&options.connection, false, -1, &asked.desk, &asked.error);
    MR_ASSERT(status == MR_OK);
    status = questions[data[0] % MR_ARRAY_LEN(questions)](&asked);
    MR_ASSERT(status != MR_AGAIN && status != MR_END && status != MR_FULL);
    MR_ASSERT(status == MR_OK || asked.error.text[0] != '\0');
    mr_pg_close(asked.desk);
    mr_pg_close(asked.conn);
    for (size_t i = 0; i < MR_ARRAY_LEN(server.clients); i++) {
        close(server.clients[i].fd);
        server.clients[i] = (struct client){.fd = -1};
    }
    return 0;
}
