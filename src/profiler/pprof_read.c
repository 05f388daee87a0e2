#include "profiler/pprof_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "profiler/profile.h"
#include "profiler/profile.pb-c.h"

enum { PLAIN_MAX = 256 * 1024 * 1024, PLAIN_FIRST = 1024 * 1024 };

/* ---- bytes ---- */

static bool is_gzip(const uint8_t *bytes, size_t len)
{
    return len > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

/* NULL: it is damaged, or too long. The caller frees it. */
static uint8_t *expand(const uint8_t *bytes, size_t len, size_t *ret_len)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)len};
    int made = inflateInit2(&stream, 15 + 16); /* 16: gzip */
    MR_ASSERT(made == Z_OK);
    uint8_t *plain = NULL;
    size_t room = PLAIN_FIRST;
    int result = Z_OK;
    while (result == Z_OK && room <= PLAIN_MAX) {
        plain = MR_REALLOC(plain, room);
        stream.next_out = plain + stream.total_out;
        stream.avail_out = (uInt)(room - stream.total_out);
        result = inflate(&stream, Z_NO_FLUSH);
        room *= 2;
    }
    *ret_len = stream.total_out;
    inflateEnd(&stream);
    if (result != Z_STREAM_END) {
        free(plain);
        return NULL;
    }
    return plain;
}

/* ---- things by their number ---- */

struct numbered {
    uint64_t id;
    const void *item;
};

struct index {
    struct numbered *rows;
    size_t count;
};

static int by_id(const void *left, const void *right)
{
    const struct numbered *a = left;
    const struct numbered *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

/* NULL: the file names something that it does not hold. */
static const void *find(const struct index *index, uint64_t id)
{
    struct numbered wanted = {.id = id};
    const struct numbered *row =
        index->count == 0 ? NULL
                          : bsearch(&wanted, index->rows, index->count, sizeof(wanted), by_id);
    return row == NULL ? NULL : row->item;
}

#define MAKE_INDEX(ret, items, items_count)                                                        \
    do {                                                                                           \
        (ret)->rows = MR_NEW_ARRAY(struct numbered, (items_count) + 1);                            \
        (ret)->count = (items_count);                                                              \
        for (size_t at = 0; at < (items_count); at++) {                                            \
            (ret)->rows[at] = (struct numbered){.id = (items)[at]->id, .item = (items)[at]};       \
        }                                                                                          \
        qsort((ret)->rows, (ret)->count, sizeof(struct numbered), by_id);                          \
    } while (0)

struct reader {
    const Pprof__Profile *file;
    struct index locations, functions, mappings;
};

static const char *text(const struct reader *reader, int64_t number)
{
    return number >= 0 && (uint64_t)number < reader->file->n_string_table
               ? reader->file->string_table[number]
               : "";
}

/* ---- stacks ---- */

struct frame_name {
    char text[MR_FLAME_NAME_MAX];
};

static void name_frame(const struct reader *reader, const Pprof__Location *location, size_t line,
                       struct frame_name *to)
{
    const Pprof__Mapping *mapping = find(&reader->mappings, location->mapping_id);
    const char *path = mapping == NULL ? "" : text(reader, mapping->filename);
    const char *slash = strrchr(path, '/');
    const char *object = slash == NULL ? path : slash + 1;
    const Pprof__Function *function =
        line < location->n_line ? find(&reader->functions, location->line[line]->function_id)
                                : NULL;
    const char *name = function == NULL ? "" : text(reader, function->name);
    mr_profile_name(name, object, to->text, sizeof(to->text));
}

static const char *thread_of(const struct reader *reader, const Pprof__Sample *sample)
{
    for (size_t i = 0; i < sample->n_label; i++) {
        if (strcmp(text(reader, sample->label[i]->key), "thread") == 0) {
            return text(reader, sample->label[i]->str);
        }
    }
    return "all";
}

static void add_sample(const struct reader *reader, const Pprof__Sample *sample, size_t value,
                       struct mr_flame *flame, mr_flame_side side, struct frame_name *names)
{
    if (value >= sample->n_value || sample->value[value] <= 0) {
        return; /* differences may be negative; a width can't be */
    }
    mr_slice slices[MR_FLAME_DEPTH_MAX];
    size_t count = 0;
    slices[count++] = mr_slice_of(thread_of(reader, sample));
    for (size_t i = sample->n_location_id; i-- > 0;) {
        const Pprof__Location *location = find(&reader->locations, sample->location_id[i]);
        if (location == NULL) {
            continue;
        }
        size_t lines = location->n_line == 0 ? 1 : location->n_line;
        for (size_t line = lines; line-- > 0 && count < MR_FLAME_DEPTH_MAX;) {
            name_frame(reader, location, line, &names[count]);
            slices[count] = mr_slice_of(names[count].text);
            count++;
        }
    }
    mr_flame_add(flame, side, slices, count, (uint64_t)sample->value[value]);
}

static size_t default_value(const Pprof__Profile *file)
{
    for (size_t i = 0; i < file->n_sample_type; i++) {
        if (file->default_sample_type != 0 &&
            file->sample_type[i]->type == file->default_sample_type) {
            return i;
        }
    }
    return file->n_sample_type - 1;
}

static void add_all(const Pprof__Profile *file, struct mr_flame *flame, mr_flame_side side,
                    struct mr_pprof_about *ret)
{
    struct reader reader = {.file = file};
    MAKE_INDEX(&reader.locations, file->location, file->n_location);
    MAKE_INDEX(&reader.functions, file->function, file->n_function);
    MAKE_INDEX(&reader.mappings, file->mapping, file->n_mapping);
    struct frame_name *names = MR_NEW_ARRAY(struct frame_name, MR_FLAME_DEPTH_MAX);
    size_t value = default_value(file);
    for (size_t i = 0; i < file->n_sample; i++) {
        add_sample(&reader, file->sample[i], value, flame, side, names);
    }
    const Pprof__ValueType *type = file->sample_type[value];
    snprintf(ret->value, sizeof(ret->value), "%s", text(&reader, type->type));
    snprintf(ret->unit, sizeof(ret->unit), "%s", text(&reader, type->unit));
    ret->duration_ns = file->duration_nanos;
    ret->samples = file->n_sample;
    free(names);
    free(reader.locations.rows);
    free(reader.functions.rows);
    free(reader.mappings.rows);
}

mr_status mr_pprof_read(const void *bytes, size_t len, struct mr_flame *flame, mr_flame_side side,
                        struct mr_pprof_about *ret, struct mr_error *ret_error)
{
    uint8_t *expanded = NULL;
    const uint8_t *plain = bytes;
    if (is_gzip(bytes, len)) {
        plain = expanded = expand(bytes, len, &len);
    }
    Pprof__Profile *file = plain == NULL ? NULL : pprof__profile__unpack(NULL, len, plain);
    free(expanded);
    bool good = file != NULL && file->n_sample_type > 0;
    if (good) {
        add_all(file, flame, side, ret);
    }
    if (file != NULL) {
        pprof__profile__free_unpacked(file, NULL);
    }
    return good ? MR_OK
                : mr_fail(ret_error, MR_ERR_USAGE,
                          "this is no pprof profile, or it is damaged; the reports of /pprof/ and "
                          "the continuous profiler's .pb.gz files are such profiles");
}
