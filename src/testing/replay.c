#include "testing/replay.h"

#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

const char *const mr_replay_versions[MR_REPLAY_VERSIONS] = {"pg15", "pg16", "pg17", "pg18"};
const char *const mr_replay_restarts[MR_REPLAY_RESTARTS] = {
    "from-commit-end",         "from-commit-record", "from-message-end",
    "from-message-while-open", "from-page-end",
};

char *mr_replay_read_file(const char *path, size_t *ret_len)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("%s can't be opened; tests/recordings/make.sh makes it", path);
    }
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t len = (size_t)ftell(file);
    rewind(file);
    char *bytes = MR_ALLOC(len + 1);
    assert_int_equal(fread(bytes, 1, len, file), len);
    bytes[len] = 0;
    fclose(file);
    *ret_len = len;
    return bytes;
}

void mr_replay_each(void (*check)(const char *version, const char *name))
{
    for (int i = 0; i < MR_REPLAY_VERSIONS; i++) {
        check(mr_replay_versions[i], "wide");
        check(mr_replay_versions[i], "rooted");
        check(mr_replay_versions[i], "live");
        for (int j = 0; j < MR_REPLAY_RESTARTS; j++) {
            check(mr_replay_versions[i], mr_replay_restarts[j]);
        }
    }
}

void mr_replay_open(struct mr_replay *replay, const char *version, const char *name)
{
    *replay = (struct mr_replay){0};
    snprintf(replay->path, sizeof(replay->path), MR_SOURCE_DIR "/tests/recordings/%s/%s", version,
             name);
    char path[sizeof(replay->path) + 8];
    snprintf(path, sizeof(path), "%s.rec", replay->path);
    replay->bytes = (uint8_t *)mr_replay_read_file(path, &replay->len);
}

void mr_replay_done(struct mr_replay *replay)
{
    free(replay->bytes);
    replay->bytes = NULL;
}

bool mr_replay_frame(struct mr_replay *replay, struct mr_stream_frame *ret_frame)
{
    mr_slice file = {.data = replay->bytes, .len = replay->len};
    struct mr_error error = {0};
    mr_status status = mr_stream_file_next(file, &replay->at, ret_frame, &error);
    if (status != MR_OK && status != MR_END) {
        fail_msg("%s.rec: %s", replay->path, error.text);
    }
    return status == MR_OK;
}

bool mr_replay_next(struct mr_replay *replay, mr_slice *ret_payload)
{
    struct mr_stream_frame frame;
    while (mr_replay_frame(replay, &frame)) {
        if (frame.kind == MR_STREAM_RECEIVED) {
            *ret_payload = frame.bytes;
            return true;
        }
    }
    return false;
}

uint64_t mr_replay_start(const struct mr_replay *replay)
{
    struct mr_replay begin = *replay;
    begin.at = 0;
    struct mr_stream_frame header;
    assert_true(mr_replay_frame(&begin, &header));
    char *text = MR_STRNDUP((const char *)header.bytes.data, header.bytes.len);
    const char *start = strstr(text, "\nstart=");
    unsigned high, low;
    assert_non_null(start);
    assert_int_equal(sscanf(start, "\nstart=%X/%X", &high, &low), 2);
    free(text);
    return (uint64_t)high << 32 | low;
}
