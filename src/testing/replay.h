/* Recordings of real servers (tests/recordings), for unit tests. */
#ifndef MR_TESTING_REPLAY_H
#define MR_TESTING_REPLAY_H

#include "testing/stream_reader.h"

/* PostgreSQL's versions that there are recordings of, and what was recorded of each: the stream as
 * a whole and through another publication; live, up to the server's end; the same stream begun
 * again at places inside it. */
enum { MR_REPLAY_VERSIONS = 4, MR_REPLAY_RESTARTS = 5 };
extern const char *const mr_replay_versions[MR_REPLAY_VERSIONS];
extern const char *const mr_replay_restarts[MR_REPLAY_RESTARTS];

/* Calls it for each recording that there is. */
void mr_replay_each(void (*check)(const char *version, const char *name));

struct mr_replay {
    char path[512]; /* without its ending */
    uint8_t *bytes;
    size_t len;
    size_t at;
};

/* Loads tests/recordings/VERSION/NAME.rec; the test fails if it can't be read. */
void mr_replay_open(struct mr_replay *replay, const char *version, const char *name);
void mr_replay_done(struct mr_replay *replay);

/* The next frame; false at the end. A damaged recording fails the test. */
bool mr_replay_frame(struct mr_replay *replay, struct mr_stream_frame *ret_frame);

/* The next payload from the server. */
bool mr_replay_next(struct mr_replay *replay, mr_slice *ret_payload);

/* Where the stream was asked to begin; 0: where the slot stood. */
uint64_t mr_replay_start(const struct mr_replay *replay);

/* The whole of a file, with a NUL after it; the caller's. */
char *mr_replay_read_file(const char *path, size_t *ret_len);

#endif
