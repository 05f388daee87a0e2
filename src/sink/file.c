/* JSON lines on standard output or in a file: `{"topic":…,"key":…,"value":…}`.
 *
 * JSON is written as it is, text as a string, other bytes in base64. A batch is done once its lines
 * are on disk (on standard output: with the kernel). Writing waits for a slow reader; the pool
 * fills up meanwhile. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>

#include "base/json.h"
#include "sink/file.h"

enum { WRITE_BYTES = 64 * 1024 };

struct file_sink {
    struct mr_sink base;
    const char *path;
    int fd;
    bool is_pipe;
    bool torn; /* the last line has no end: a write failed, or the process was killed at it */
    uint8_t bytes[WRITE_BYTES];
    size_t used;
    uint8_t *scratch; /* a string being escaped */
    size_t scratch_size;
};

static struct file_sink *file_of(struct mr_sink *sink)
{
    return (struct file_sink *)sink;
}

static bool is_stdout(const struct file_sink *file)
{
    return file->path == NULL || strcmp(file->path, "-") == 0;
}

/* A line of ours without its end is of no batch that counts as written, and comes again: it is cut
 * off. One that is somebody else's is left. */
static mr_status mend_end(struct file_sink *file, off_t size, struct mr_error *ret_error)
{
    static const char begin[] = "{\"topic\":";
    const char *path = file->path;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return MR_OK; /* write only */
    }
    off_t line = size;
    char byte = '\0';
    while (line > 0 && pread(fd, &byte, 1, line - 1) == 1 && byte != '\n') {
        line--;
    }
    char text[sizeof(begin) - 1];
    ssize_t len = pread(fd, text, sizeof(text), line);
    close(fd);
    file->torn = line < size;
    if (len <= 0 || memcmp(text, begin, (size_t)len) != 0) {
        return MR_OK;
    }
    if (ftruncate(file->fd, line) != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "file \"%s\" can't be shortened: %s", path,
                       strerror(errno));
    }
    file->torn = false;
    return MR_OK;
}

static mr_status file_open(struct mr_sink *sink, struct mr_error *ret_error)
{
    struct file_sink *file = file_of(sink);
    file->used = 0;
    file->fd = is_stdout(file) ? STDOUT_FILENO
                               : open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file->fd < 0) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "file \"%s\" can't be opened: %s; set sink.file.path", file->path,
                       strerror(errno));
    }
    struct stat kind;
    bool known = fstat(file->fd, &kind) == 0;
    file->is_pipe = known && !S_ISREG(kind.st_mode);
    if (known && S_ISREG(kind.st_mode) && !is_stdout(file)) {
        MR_TRY(mend_end(file, kind.st_size, ret_error));
    }
    if (file->torn) {
        file->bytes[file->used++] = '\n';
    }
    return MR_OK;
}

static mr_status write_failed(const struct file_sink *file, struct mr_error *ret_error)
{
    const char *name = is_stdout(file) ? "standard output" : file->path;
    if (errno == EPIPE) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "%s: the reader has gone", name);
    }
    bool is_full = errno == ENOSPC || errno == EDQUOT;
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "%s can't be written: %s; %s; rows wait in PostgreSQL until it can", name,
                   strerror(errno),
                   is_full ? "make room on its disk, or set sink.file.path to another one"
                           : "see that its disk is well, or set sink.file.path to another one");
}

/* Waits until the reader takes more; MR_AGAIN when the thread is to leave. */
static mr_status wait_for_reader(const struct file_sink *file)
{
    struct pollfd fds[2] = {
        {.fd = file->fd, .events = POLLOUT},
        {.fd = file->base.owner.stop_fd, .events = POLLIN},
    };
    while (poll(fds, 2, -1) < 0) {
    }
    return fds[0].revents != 0 ? MR_OK : MR_AGAIN;
}

/* A pipe takes PIPE_BUF bytes without waiting once it is writable. More at a time could wait for
 * ever for a reader that stands still, and a non-blocking standard output would be so for others
 * too. */
static mr_status file_flush(struct file_sink *file, struct mr_error *ret_error)
{
    size_t written = 0;
    while (written < file->used) {
        size_t part = file->used - written;
        if (file->is_pipe) {
            MR_TRY(wait_for_reader(file));
            part = part < PIPE_BUF ? part : PIPE_BUF;
        }
        ssize_t count = write(file->fd, file->bytes + written, part);
        if (count > 0) {
            written += (size_t)count;
            file->torn = file->bytes[written - 1] != '\n';
        } else if (errno != EINTR && errno != EAGAIN) {
            return write_failed(file, ret_error);
        }
    }
    file->used = 0;
    return MR_OK;
}

static mr_status file_append(struct file_sink *file, mr_slice bytes, struct mr_error *ret_error)
{
    while (bytes.len > 0) {
        if (file->used == WRITE_BYTES) {
            MR_TRY(file_flush(file, ret_error));
        }
        size_t room = WRITE_BYTES - file->used;
        size_t part = bytes.len < room ? bytes.len : room;
        memcpy(file->bytes + file->used, bytes.data, part);
        file->used += part;
        bytes.data += part;
        bytes.len -= part;
    }
    return MR_OK;
}

/* `bytes` as a JSON string. */
static mr_status append_string(struct file_sink *file, mr_slice bytes, enum mr_content content,
                               struct mr_error *ret_error)
{
    size_t size = 6 * bytes.len + 2; /* base64 takes less */
    if (file->scratch_size < size) {
        file->scratch = MR_REALLOC(file->scratch, size);
        file->scratch_size = size;
    }
    struct mr_buffer out = mr_buffer_init(file->scratch, file->scratch_size);
    if (content != MR_CONTENT_TEXT) {
        mr_json_base64(&out, bytes.data, bytes.len);
    } else {
        mr_json_string(&out, bytes.data, bytes.len);
    }
    mr_slice quoted = {.data = file->scratch, .len = (size_t)(out.at - file->scratch)};
    return file_append(file, quoted, ret_error);
}

/* A key or value; `data` NULL is null. */
static mr_status append_content(struct file_sink *file, mr_slice bytes, enum mr_content content,
                                struct mr_error *ret_error)
{
    if (bytes.data == NULL) {
        return file_append(file, MR_SLICE("null"), ret_error);
    }
    return content == MR_CONTENT_JSON ? file_append(file, bytes, ret_error)
                                      : append_string(file, bytes, content, ret_error);
}

static mr_status sink_file_write_record(struct file_sink *file, const struct mr_record *record,
                                        struct mr_error *ret_error)
{
    mr_slice key = {.data = record->key, .len = record->key_len};
    mr_slice value = {.data = record->value, .len = record->value_len};
    MR_TRY(file_append(file, MR_SLICE("{\"topic\":"), ret_error));
    MR_TRY(append_string(file, mr_slice_of(record->topic->name), MR_CONTENT_TEXT, ret_error));
    MR_TRY(file_append(file, MR_SLICE(",\"key\":"), ret_error));
    MR_TRY(append_content(file, key, (enum mr_content)record->key_content, ret_error));
    MR_TRY(file_append(file, MR_SLICE(",\"value\":"), ret_error));
    MR_TRY(append_content(file, value, (enum mr_content)record->value_content, ret_error));
    return file_append(file, MR_SLICE("}\n"), ret_error);
}

static mr_status file_send(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *ret_error)
{
    struct file_sink *file = file_of(sink);
    MR_ASSERT(batch->state == MR_BATCH_SEALED);
    for (uint32_t i = 0; i < batch->record_count; i++) {
        MR_TRY(sink_file_write_record(file, mr_batch_record(batch, i), ret_error));
    }
    MR_TRY(file_flush(file, ret_error));
    MR_ASSERT(file->used == 0);
    if (!is_stdout(file) && fdatasync(file->fd) != 0 && errno != EINVAL) {
        return write_failed(file, ret_error);
    }
    mr_sink_done(sink, batch);
    return MR_OK;
}

static void file_close(struct mr_sink *sink)
{
    struct file_sink *file = file_of(sink);
    if (file->fd >= 0 && !is_stdout(file)) {
        close(file->fd);
    }
    file->fd = -1;
}

static void file_free(struct mr_sink *sink)
{
    file_close(sink);
    free(file_of(sink)->scratch);
    free(sink);
}

struct mr_sink *mr_file_sink_new(const char *path)
{
    static const struct mr_sink_ops ops = {
        .name = "file",
        .open = file_open,
        .send = file_send,
        .close = file_close,
        .free = file_free,
    };
    struct file_sink *file = MR_NEW(struct file_sink);
    file->base.ops = &ops;
    file->path = path;
    file->fd = -1;
    return &file->base;
}

static mr_status discard_open(struct mr_sink *sink, struct mr_error *ret_error)
{
    return MR_OK;
}

static mr_status discard_send(struct mr_sink *sink, struct mr_batch *batch,
                              struct mr_error *ret_error)
{
    mr_sink_done(sink, batch);
    return MR_OK;
}

static void discard_close(struct mr_sink *sink)
{
}

static void discard_free(struct mr_sink *sink)
{
    free(sink);
}

struct mr_sink *mr_discard_sink_new(void)
{
    static const struct mr_sink_ops ops = {
        .name = "discard",
        .open = discard_open,
        .send = discard_send,
        .close = discard_close,
        .free = discard_free,
    };
    struct mr_sink *sink = MR_NEW(struct mr_sink);
    sink->ops = &ops;
    return sink;
}
