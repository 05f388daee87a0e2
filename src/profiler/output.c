#include "profiler/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "profiler/draw/flame.h"

static double seconds_of(int64_t ns)
{
    return (double)ns / 1e9;
}

uint8_t *mr_output_pprof(const struct mr_profile *profile, size_t *ret_len)
{
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    char origin[160];
    snprintf(origin, sizeof(origin), "millrace %s, process %d on %s", MR_VERSION, (int)getpid(),
             host);
    char quality[200];
    snprintf(quality, sizeof(quality),
             "samples %" PRIu64 ", rooted %" PRIu64 ", truncated %" PRIu64 ", lost %" PRIu64
             ", left out %" PRIu64,
             profile->samples, profile->rooted, profile->truncated, profile->lost,
             profile->dropped);
    const char *comments[] = {origin, quality};
    mr_symbols_lock();
    uint8_t *packed = mr_profile_pprof(profile, comments, MR_ARRAY_LEN(comments), ret_len);
    mr_symbols_unlock();
    return packed;
}

uint8_t *mr_output_gzip(const uint8_t *bytes, size_t len, size_t *ret_len)
{
    z_stream stream = {0};
    /* 16: a gzip header around it. Level 3: a third of the time of 6 for a tenth more bytes. */
    int made = deflateInit2(&stream, 3, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    MR_ASSERT(made == Z_OK);
    size_t room = deflateBound(&stream, len);
    uint8_t *to = MR_NEW_ARRAY(uint8_t, room);
    stream.next_in = (Bytef *)(uintptr_t)bytes;
    stream.avail_in = (uInt)len;
    stream.next_out = to;
    stream.avail_out = (uInt)room;
    int ended = deflate(&stream, Z_FINISH);
    MR_ASSERT(ended == Z_STREAM_END);
    *ret_len = stream.total_out;
    deflateEnd(&stream);
    return to;
}

static struct mr_flame *flame_of(const struct mr_profile *profile, uint32_t value,
                                 enum mr_profile_root root)
{
    mr_symbols_lock();
    struct mr_flame *flame = mr_profile_flame(profile, value, root);
    mr_symbols_unlock();
    return flame;
}

char *mr_output_flamegraph(const struct mr_profile *profile, uint32_t value,
                           enum mr_profile_root root, const struct mr_flame_drawing *drawing,
                           size_t *ret_len)
{
    struct mr_flame *flame = flame_of(profile, value, root);
    char subtitle[200];
    snprintf(subtitle, sizeof(subtitle), "%s, %s; %.1f s, %" PRIu64 " samples, %" PRIu64 " lost",
             mr_profile_value_name(profile->kind, value),
             mr_profile_value_unit(profile->kind, value), seconds_of(profile->duration_ns),
             profile->samples, profile->lost);
    struct mr_flame_drawing with = *drawing;
    with.subtitle = subtitle;
    with.unit = mr_profile_value_unit(profile->kind, value);
    char *picture = mr_flame_svg(flame, &with, ret_len);
    mr_flame_free(flame);
    return picture;
}

char *mr_output_folded(const struct mr_profile *profile, uint32_t value, enum mr_profile_root root,
                       size_t *ret_len)
{
    struct mr_flame *flame = flame_of(profile, value, root);
    char *text = mr_flame_folded(flame, MR_FLAME_BEFORE, ret_len);
    mr_flame_free(flame);
    return text;
}
