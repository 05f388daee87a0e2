#include "verify/spill.h"

#include <fcntl.h>
#include <limits.h>

/* Bytes of a bucket in the file. */
struct piece {
    uint64_t at;
    uint32_t len;
};

struct bucket {
    uint8_t *bytes;
    uint32_t used, room;
    struct piece *pieces;
    uint32_t piece_count, piece_room;
};

struct mr_spill {
    struct bucket *buckets;
    uint32_t bucket_count;
    uint32_t piece_bytes;
    int fd; /* -1: there is no file yet */
    uint64_t end;
};

struct mr_spill *mr_spill_new(uint32_t buckets, uint32_t piece_bytes)
{
    struct mr_spill *spill = MR_NEW(struct mr_spill);
    *spill = (struct mr_spill){.buckets = MR_NEW_ARRAY(struct bucket, buckets),
                               .bucket_count = buckets,
                               .piece_bytes = piece_bytes,
                               .fd = -1};
    memset(spill->buckets, 0, sizeof(*spill->buckets) * buckets);
    return spill;
}

void mr_spill_free(struct mr_spill *spill)
{
    if (spill == NULL) {
        return;
    }
    for (uint32_t i = 0; i < spill->bucket_count; i++) {
        free(spill->buckets[i].bytes);
        free(spill->buckets[i].pieces);
    }
    if (spill->fd >= 0) {
        close(spill->fd);
    }
    free(spill->buckets);
    free(spill);
}

const char *mr_spill_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder == NULL || folder[0] == '\0' ? "/var/tmp" : folder;
}

static mr_status spill_open_file(struct mr_spill *spill, struct mr_error *ret_error)
{
    const char *folder = mr_spill_folder();
    spill->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (spill->fd < 0) { /* a file system that has no such files */
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/millrace-verify-XXXXXX", folder);
        spill->fd = mkostemp(path, O_CLOEXEC);
        if (spill->fd >= 0) {
            unlink(path);
        }
    }
    if (spill->fd < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "a temporary file can't be made in \"%s\": %s; set TMPDIR to a folder that "
                       "can be written, on a disk with room",
                       folder, strerror(errno));
    }
    return MR_OK;
}

/* Writes what the bucket has in memory. */
static mr_status spill_flush(struct mr_spill *spill, struct bucket *bucket,
                             struct mr_error *ret_error)
{
    if (spill->fd < 0) {
        MR_TRY(spill_open_file(spill, ret_error));
    }
    for (uint32_t done = 0; done < bucket->used;) {
        ssize_t written = pwrite(spill->fd, bucket->bytes + done, bucket->used - done,
                                 (off_t)(spill->end + done));
        if (written < 0 && errno != EINTR) {
            return mr_fail(ret_error, MR_ERR_SYSTEM,
                           "the temporary file can't be written: %s; set TMPDIR to a folder on a "
                           "disk with room",
                           strerror(errno));
        }
        done += written > 0 ? (uint32_t)written : 0;
    }
    MR_GROW(bucket->pieces, bucket->piece_room, bucket->piece_count + 1);
    bucket->pieces[bucket->piece_count++] = (struct piece){.at = spill->end, .len = bucket->used};
    spill->end += bucket->used;
    bucket->used = 0;
    return MR_OK;
}

void mr_spill_expect(const struct mr_spill *spill, uint32_t number)
{
    const struct bucket *bucket = &spill->buckets[number];
    __builtin_prefetch(bucket->bytes + bucket->used, 1);
}

mr_status mr_spill_add(struct mr_spill *spill, uint32_t number, mr_slice head, mr_slice rest,
                       struct mr_error *ret_error)
{
    struct bucket *bucket = &spill->buckets[number];
    size_t len = head.len + rest.len;
    if (bucket->used > 0 && bucket->used + len > spill->piece_bytes) {
        MR_TRY(spill_flush(spill, bucket, ret_error));
    }
    MR_GROW(bucket->bytes, bucket->room, bucket->used + len);
    memcpy(bucket->bytes + bucket->used, head.data, head.len);
    if (rest.len > 0) {
        memcpy(bucket->bytes + bucket->used + head.len, rest.data, rest.len);
    }
    bucket->used += (uint32_t)len;
    return MR_OK;
}

static mr_status spill_read_piece(const struct mr_spill *spill, const struct piece *piece,
                                  uint8_t *to, struct mr_error *ret_error)
{
    for (uint32_t done = 0; done < piece->len;) {
        ssize_t got = pread(spill->fd, to + done, piece->len - done, (off_t)(piece->at + done));
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return mr_fail(ret_error, MR_ERR_SYSTEM, "the temporary file can't be read: %s",
                           got == 0 ? "it is too short" : strerror(errno));
        }
        done += got > 0 ? (uint32_t)got : 0;
    }
    return MR_OK;
}

mr_status mr_spill_read(const struct mr_spill *spill, uint32_t number, mr_spill_fn take,
                        void *context, struct mr_error *ret_error)
{
    const struct bucket *bucket = &spill->buckets[number];
    MR_FREED uint8_t *bytes = NULL;
    uint32_t room = 0;
    mr_status status = MR_OK;
    for (uint32_t i = 0; i < bucket->piece_count && status == MR_OK; i++) {
        const struct piece *piece = &bucket->pieces[i];
        MR_GROW(bytes, room, (size_t)piece->len);
        status = spill_read_piece(spill, piece, bytes, ret_error);
        if (status == MR_OK) {
            take(context, bytes, piece->len);
        }
    }
    if (status == MR_OK && bucket->used > 0) {
        take(context, bucket->bytes, bucket->used);
    }
    return status;
}
