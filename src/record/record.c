#include "record/record.h"

#include <fcntl.h>
#include <poll.h>

#include "base/clock.h"
#include "base/reader.h"
#include "record/blank.h"
#include "record/stream_file.h"

/* With nothing to answer, so often the server hears of us, and is asked to answer. */
#define STATUS_NS (INT64_C(10) * 1000000000)

enum {
    XLOG_DATA_HEAD = 1 + 8 + 8 + 8,
    SHARE = 256, /* messages, after which a stop and the clock get their turn */
    NAME_SIZE = 64
};

struct recorder {
    const struct mr_record_options *options;
    const struct mr_pg_source_options *source;
    struct mr_pg_conn *conn;
    FILE *file;
    FILE *to;
    int stop_fd;
    struct mr_blanker blanker;
    uint8_t *copy; /* of a payload that is blanked */
    size_t copy_size;
    int64_t begin_ns;
    int64_t sent_ns;
    mr_lsn received; /* the furthest position that the server has named */
    bool in_transaction;
    bool stopped; /* by the user */
    uint64_t messages;
    uint64_t bytes;
    char slot[NAME_SIZE];
};

static mr_status fail_file(const struct recorder *recorder, struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_SYSTEM, "the recording \"%s\" can't be written: %s",
                   recorder->options->path, strerror(errno));
}

static mr_status record_open_file(struct recorder *recorder, struct mr_error *ret_error)
{
    const char *path = recorder->options->path;
    /* It holds rows: nobody else's to read. */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) {
        return mr_fail(ret_error, MR_ERR_USAGE,
                       "\"%s\" exists already; choose another name, or remove it", path);
    }
    recorder->file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (recorder->file == NULL || mr_stream_file_begin(recorder->file) != MR_OK) {
        return fail_file(recorder, ret_error);
    }
    return MR_OK;
}

static mr_status record_write_frame(struct recorder *recorder, enum mr_stream_frame_kind kind,
                                    mr_slice bytes, struct mr_error *ret_error)
{
    struct mr_stream_frame frame = {
        .kind = kind,
        .time_us = (uint64_t)(mr_monotonic_ns() - recorder->begin_ns) / 1000,
        .bytes = bytes,
    };
    recorder->bytes += MR_STREAM_FRAME_HEAD + bytes.len + MR_STREAM_FRAME_TAIL;
    return mr_stream_file_write(recorder->file, &frame) == MR_OK ? MR_OK
                                                                 : fail_file(recorder, ret_error);
}

static mr_status record_write_text(struct recorder *recorder, enum mr_stream_frame_kind kind,
                                   struct mr_text *text, struct mr_error *ret_error)
{
    mr_slice bytes = {.data = (const uint8_t *)text->data, .len = text->len};
    mr_status status = record_write_frame(recorder, kind, bytes, ret_error);
    mr_text_done(text);
    return status;
}

static void record_add_name(struct recorder *recorder, struct mr_text *text, const char *key,
                            const char *name)
{
    MR_FREED char *blanked = MR_STRDUP(name);
    mr_blank_name(&recorder->blanker, (uint8_t *)blanked, strlen(blanked));
    mr_text_format(text, "%s=%s\n", key, blanked);
}

static mr_status record_write_header(struct recorder *recorder, struct mr_error *ret_error)
{
    const struct mr_record_options *options = recorder->options;
    struct mr_text text = {0};
    mr_text_format(&text, "millrace=%s\nserver_version=%d\n", MR_VERSION,
                   mr_pg_server_version(recorder->conn));
    record_add_name(recorder, &text, "slot", recorder->slot);
    record_add_name(recorder, &text, "publication", recorder->source->publication);
    mr_text_format(&text, "temporary=%s\nstart=" MR_LSN_FORMAT "\nblank=%s\n",
                   options->slot == NULL ? "yes" : "no", MR_LSN_ARGS(options->start),
                   !options->blank        ? "no"
                   : options->blank_names ? "names"
                                          : "values");
    return record_write_text(recorder, MR_STREAM_HEADER, &text, ret_error);
}

static mr_status write_received(struct recorder *recorder, mr_slice payload,
                                struct mr_error *ret_error)
{
    recorder->messages++;
    if (!recorder->options->blank) {
        return record_write_frame(recorder, MR_STREAM_RECEIVED, payload, ret_error);
    }
    if (recorder->copy_size < payload.len) {
        recorder->copy_size = 2 * payload.len;
        recorder->copy = MR_REALLOC(recorder->copy, recorder->copy_size);
    }
    memcpy(recorder->copy, payload.data, payload.len);
    mr_blank_payload(&recorder->blanker, recorder->copy, payload.len);
    payload.data = recorder->copy;
    return record_write_frame(recorder, MR_STREAM_RECEIVED, payload, ret_error);
}

/* START_REPLICATION would speak of lost rows where the slot is only misspelt. */
static mr_status record_check_names(struct recorder *recorder, struct mr_error *ret_error)
{
    const char *slot = recorder->options->slot;
    static const struct mr_pg_shape shape = {"publication and slot", "bbbb", 1, 1};
    const char *database = mr_pg_database(recorder->conn);
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(recorder->conn, &shape, &result, ret_error,
                      "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %L),"
                      " s.slot_name IS NOT NULL, s.plugin IS DISTINCT FROM 'pgoutput' OR"
                      " s.database IS DISTINCT FROM current_database(), s.active IS TRUE"
                      " FROM (SELECT) one LEFT JOIN pg_replication_slots s ON slot_name = %L",
                      recorder->source->publication, slot == NULL ? "" : slot));
    if (!mr_pg_result_true(result, 0, 0)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "publication \"%s\" does not exist in database \"%s\", and a recording "
                       "makes none; name one that exists, or start millrace first",
                       recorder->source->publication, database);
    }
    if (slot != NULL && !mr_pg_result_true(result, 0, 1)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "slot \"%s\" does not exist; without --slot a temporary one is made", slot);
    }
    if (slot != NULL && mr_pg_result_true(result, 0, 2)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "slot \"%s\" does not read database \"%s\" with pgoutput; name another",
                       slot, database);
    }
    if (slot != NULL && mr_pg_result_true(result, 0, 3)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "slot \"%s\" is being read; stop its reader first (nothing is confirmed "
                       "for it), or leave --slot out and record a temporary one",
                       slot);
    }
    return MR_OK;
}

static mr_status find_slot(struct recorder *recorder, struct mr_error *ret_error)
{
    if (recorder->options->slot != NULL) {
        snprintf(recorder->slot, sizeof(recorder->slot), "%s", recorder->options->slot);
        return MR_OK;
    }
    snprintf(recorder->slot, sizeof(recorder->slot), "millrace_record_%d", (int)getpid());
    return mr_pg_commandf(recorder->conn, MR_PG_CHANGE_MS, ret_error,
                          "CREATE_REPLICATION_SLOT %I TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT",
                          recorder->slot);
}

/* Sent as written, and never as flushed: the server moves a slot by the flushed position alone, and
 * takes 0 for none (walsender.c, ProcessStandbyReplyMessage); a receiver without one is no
 * synchronous standby either (syncrep.c, SyncRepGetCandidateStandbys). With what is written the
 * server can end its shutdown (walsender.c, WalSndDone). */
static mr_status send_status(struct recorder *recorder, bool ping, struct mr_error *ret_error)
{
    uint8_t sent[MR_PG_STATUS_LEN];
    MR_TRY(mr_pg_send_status(recorder->conn, recorder->received, 0, ping, sent, ret_error));
    recorder->sent_ns = mr_monotonic_ns();
    return record_write_frame(recorder, MR_STREAM_SENT,
                              (mr_slice){.data = sent, .len = sizeof(sent)}, ret_error);
}

/* What the payload says of the stream's position; whether the server wants an answer. */
static bool record_follow(struct recorder *recorder, mr_slice payload)
{
    struct mr_reader reader = mr_reader_init(payload);
    uint8_t kind = mr_reader_u8(&reader);
    mr_lsn lsn = mr_reader_u64(&reader);
    bool asks = false;
    if (kind == 'w') {
        mr_reader_take(&reader, XLOG_DATA_HEAD - 1 - 8);
        uint8_t type = mr_reader_u8(&reader);
        recorder->in_transaction = type == 'B' || (recorder->in_transaction && type != 'C');
    } else if (kind == 'k') {
        mr_reader_take(&reader, 8);
        asks = mr_reader_u8(&reader) != 0;
    }
    if (!reader.failed && lsn > recorder->received) {
        recorder->received = lsn;
    }
    return asks;
}

/* A reason to stop, or NULL. */
static const char *record_is_over(const struct recorder *recorder)
{
    const struct mr_record_options *options = recorder->options;
    uint32_t megabytes = options->megabytes == 0 ? MR_RECORD_MEGABYTES : options->megabytes;
    if (recorder->stopped) {
        return "stopped";
    }
    if (options->end != 0 && recorder->received >= options->end && !recorder->in_transaction) {
        return "the end was reached";
    }
    if (recorder->bytes >> 20 >= megabytes) {
        return "the file is as large as --megabytes allows";
    }
    if (options->seconds != 0 &&
        mr_monotonic_ns() - recorder->begin_ns >= (int64_t)options->seconds * 1000000000) {
        return "the time of --seconds is over";
    }
    return NULL;
}

/* What is there now; MR_AGAIN: no more. */
static mr_status receive_some(struct recorder *recorder, const char **ret_reason,
                              struct mr_error *ret_error)
{
    for (int i = 0; i < SHARE && *ret_reason == NULL; i++) {
        mr_slice payload;
        MR_TRY(mr_pg_receive(recorder->conn, &payload, NULL, ret_error));
        bool asks = record_follow(recorder, payload);
        MR_TRY(write_received(recorder, payload, ret_error));
        if (asks) {
            MR_TRY(send_status(recorder, false, ret_error));
        }
        *ret_reason = record_is_over(recorder);
    }
    return MR_OK;
}

/* What is in the file then outlives the recorder. */
static mr_status wait_for_more(struct recorder *recorder, bool idle, struct mr_error *ret_error)
{
    if (idle && fflush(recorder->file) != 0) {
        return fail_file(recorder, ret_error);
    }
    int64_t until_ns = recorder->sent_ns + STATUS_NS;
    if (recorder->options->seconds != 0) {
        int64_t end_ns = recorder->begin_ns + (int64_t)recorder->options->seconds * 1000000000;
        until_ns = end_ns < until_ns ? end_ns : until_ns;
    }
    int64_t wait_ns = until_ns - mr_monotonic_ns();
    int timeout_ms = idle ? mr_timeout_ms(wait_ns) : 0;
    struct pollfd fds[2] = {
        {.fd = recorder->stop_fd, .events = POLLIN},
        {.fd = idle ? mr_pg_socket(recorder->conn) : -1, .events = POLLIN},
    };
    recorder->stopped = poll(fds, 2, timeout_ms) > 0 && fds[0].revents != 0;
    return MR_OK;
}

static mr_status record_record(struct recorder *recorder, const char **ret_reason,
                               struct mr_error *ret_error)
{
    while (*ret_reason == NULL) {
        mr_status status = receive_some(recorder, ret_reason, ret_error);
        if (status != MR_OK && status != MR_AGAIN) {
            return status;
        }
        if (mr_monotonic_ns() - recorder->sent_ns >= STATUS_NS) {
            MR_TRY(send_status(recorder, true, ret_error));
        }
        if (*ret_reason == NULL) {
            MR_TRY(wait_for_more(recorder, status == MR_AGAIN, ret_error));
            *ret_reason = record_is_over(recorder);
        }
    }
    return MR_OK;
}

static mr_status record_begin(struct recorder *recorder, struct mr_error *ret_error)
{
    MR_TRY(mr_pg_connect(&recorder->source->connection, true, recorder->stop_fd, &recorder->conn,
                         ret_error));
    MR_TRY(record_check_names(recorder, ret_error));
    MR_TRY(find_slot(recorder, ret_error));
    MR_TRY(mr_pg_start_replication(recorder->conn, recorder->slot, recorder->source->publication,
                                   true, recorder->options->start, ret_error));
    recorder->begin_ns = recorder->sent_ns = mr_monotonic_ns();
    MR_TRY(record_open_file(recorder, ret_error));
    MR_TRY(record_write_header(recorder, ret_error));
    fprintf(recorder->to, "recording slot \"%s\" to %s until Ctrl-C\n", recorder->slot,
            recorder->options->path);
    fflush(recorder->to);
    return MR_OK;
}

/* The last frame says why; a recording that ends with a failure is as good as any. */
static mr_status record_end(struct recorder *recorder, mr_status status, const char *reason,
                            struct mr_error *ret_error)
{
    const char *why = status == MR_OK    ? reason
                      : status == MR_END ? "the server ended the stream"
                                         : ret_error->text;
    struct mr_text text = {0};
    mr_text_format(&text, "status=%s\nreason=%s\n", mr_status_name(status), why);
    struct mr_error error = {0};
    mr_status written = record_write_text(recorder, MR_STREAM_END, &text, &error);
    if (fclose(recorder->file) != 0 && written == MR_OK) {
        written = fail_file(recorder, &error);
    }
    if (written != MR_OK && (status == MR_OK || status == MR_END)) {
        *ret_error = error;
        return written;
    }
    fprintf(recorder->to, "%llu messages, %llu bytes, up to " MR_LSN_FORMAT ": %s\n",
            (unsigned long long)recorder->messages, (unsigned long long)recorder->bytes,
            MR_LSN_ARGS(recorder->received), why);
    return status == MR_END ? MR_OK : status;
}

mr_status mr_record_stream(const struct mr_pg_source_options *source,
                           const struct mr_record_options *options, int stop_fd, FILE *to,
                           struct mr_error *ret_error)
{
    struct recorder recorder = {
        .options = options,
        .source = source,
        .to = to,
        .stop_fd = stop_fd,
        .blanker = {.names = options->blank_names},
    };
    const char *reason = NULL;
    mr_status status = record_begin(&recorder, ret_error);
    status = MR_THEN(status, record_record(&recorder, &reason, ret_error));
    if (status == MR_AGAIN) { /* asked to stop before the stream began */
        status = MR_OK;
        reason = "stopped";
    }
    if (recorder.file != NULL) {
        status = record_end(&recorder, status, reason, ret_error);
    }
    mr_pg_close(recorder.conn);
    mr_blanker_done(&recorder.blanker);
    free(recorder.copy);
    return status;
}
