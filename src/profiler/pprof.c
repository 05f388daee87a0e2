/* A profile as pprof reads it: profile.proto of google/pprof by protobuf-c, in which names are
 * numbers of the string table; compressed by zlib. */
#include <inttypes.h>
#include <zlib.h>

#include "base/hash.h"
#include "profiler/profile.h"
#include "profiler/profile.pb-c.h"

struct item {
    uint32_t a, b;
};

/* Numbers from 1 for items as they are met. */
struct numbering {
    struct mr_index index;
    struct item *items;
    uint32_t room;
};

static uint32_t pprof_number_of(struct numbering *numbering, struct item item)
{
    uint64_t hash = mr_hash_number(mr_hash_number(MR_HASH_BEGIN, item.a), item.b);
    uint32_t found;
    MR_INDEX_FIND(found, &numbering->index, hash,
                  numbering->items[found].a == item.a && numbering->items[found].b == item.b);
    if (found == MR_INDEX_NONE) {
        found = mr_index_add(&numbering->index, hash);
        MR_GROW(numbering->items, numbering->room, numbering->index.count);
        numbering->items[found] = item;
    }
    return found + 1;
}

static void numbering_done(struct numbering *numbering)
{
    mr_index_done(&numbering->index);
    free(numbering->items);
}

/* What the file is made of is its own, down to the texts (protobuf_c_message_free_unpacked). */
struct writer {
    const struct mr_profile *profile;
    Pprof__Profile *file;
    struct numbering texts, locations, mappings; /* of our numbers */
    struct numbering functions; /* of name and file: statics of one name are several */
};

static int64_t pprof_text(struct writer *writer, uint32_t id)
{
    return id == 0 ? 0 : (int64_t)pprof_number_of(&writer->texts, (struct item){.a = id});
}

static int64_t pprof_text_of(struct writer *writer, const char *string)
{
    return pprof_text(writer, mr_symbols_intern(string));
}

static void add_label(struct writer *writer, Pprof__Sample *sample, const char *key, uint32_t value)
{
    if (value != 0) {
        Pprof__Label *label = MR_NEW(Pprof__Label);
        pprof__label__init(label);
        label->key = pprof_text_of(writer, key);
        label->str = pprof_text(writer, value);
        sample->label[sample->n_label++] = label;
    }
}

static Pprof__Sample *make_sample(struct writer *writer, const struct mr_profile_entry *entry)
{
    const struct mr_profile *profile = writer->profile;
    Pprof__Sample *sample = MR_NEW(Pprof__Sample);
    pprof__sample__init(sample);
    sample->n_location_id = entry->stack_count;
    sample->location_id = MR_NEW_ARRAY(uint64_t, entry->stack_count + 1);
    for (uint32_t i = 0; i < entry->stack_count; i++) {
        struct item location = {.a = profile->stacks[entry->stack_first + i]};
        sample->location_id[i] = pprof_number_of(&writer->locations, location);
    }
    sample->n_value = mr_profile_values[profile->kind].count;
    sample->value = MR_NEW_ARRAY(int64_t, sample->n_value);
    memcpy(sample->value, entry->values, sizeof(int64_t) * sample->n_value);
    sample->label = MR_NEW_ARRAY(Pprof__Label *, 3);
    add_label(writer, sample, "thread", entry->thread);
    add_label(writer, sample, "stage",
              mr_symbols_intern(mr_stage_name(mr_profile_stage(profile, entry))));
    add_label(writer, sample, "table", entry->table);
    return sample;
}

static void make_samples(struct writer *writer)
{
    const struct mr_profile *profile = writer->profile;
    writer->file->sample = MR_NEW_ARRAY(Pprof__Sample *, profile->count + 1);
    for (uint32_t i = 0; i < profile->count; i++) {
        const struct mr_profile_entry *entry = &profile->entries[i];
        bool is_empty = true;
        for (int v = 0; v < MR_PROFILE_VALUES; v++) {
            is_empty &= entry->values[v] == 0;
        }
        if (!is_empty) {
            writer->file->sample[writer->file->n_sample++] = make_sample(writer, entry);
        }
    }
}

static void pprof_add_line(struct writer *writer, Pprof__Location *location,
                           const struct mr_frame *frame)
{
    if (frame->function != 0) { /* else pprof shows object and address */
        struct item function = {.a = frame->function, .b = frame->file};
        Pprof__Line *line = MR_NEW(Pprof__Line);
        pprof__line__init(line);
        line->function_id = pprof_number_of(&writer->functions, function);
        line->line = frame->line;
        location->line[location->n_line++] = line;
    }
}

static void *make_location(struct writer *writer, uint32_t id, struct item ours)
{
    const struct mr_location *location = mr_symbols_get(ours.a);
    Pprof__Location *made = MR_NEW(Pprof__Location);
    pprof__location__init(made);
    made->id = id;
    if (location->mapping != 0) {
        struct item mapping = {.a = location->mapping};
        made->mapping_id = pprof_number_of(&writer->mappings, mapping);
        made->address = location->address;
    }
    made->line = MR_NEW_ARRAY(Pprof__Line *, location->frame_count + 1);
    for (uint32_t i = 0; i < location->frame_count; i++) {
        pprof_add_line(writer, made, &location->frames[i]);
    }
    return made;
}

/* Readers that are to look for other names are told so (`-symbolize=force`). */
static void *make_mapping(struct writer *writer, uint32_t id, struct item ours)
{
    const struct mr_mapping *mapping = mr_symbols_mapping(ours.a);
    Pprof__Mapping *made = MR_NEW(Pprof__Mapping);
    pprof__mapping__init(made);
    made->id = id;
    made->memory_start = mapping->code_start;
    made->memory_limit = mapping->code_end;
    made->file_offset = mapping->code_offset;
    made->filename = pprof_text(writer, mapping->file);
    made->build_id = pprof_text(writer, mapping->build_id);
    made->has_functions = true;
    made->has_filenames = mapping->has_lines;
    made->has_line_numbers = mapping->has_lines;
    made->has_inline_frames = mapping->has_lines;
    return made;
}

static void *make_function(struct writer *writer, uint32_t id, struct item function)
{
    Pprof__Function *made = MR_NEW(Pprof__Function);
    pprof__function__init(made);
    made->id = id;
    made->name = pprof_text(writer, function.a);
    made->system_name = made->name;
    made->filename = pprof_text(writer, function.b);
    return made;
}

static void *pprof_make_all(struct writer *writer, const struct numbering *of, size_t *ret_count,
                            void *(*make)(struct writer *writer, uint32_t id, struct item item))
{
    void **list = MR_NEW_ARRAY(void *, of->index.count + 1);
    for (uint32_t i = 0; i < of->index.count; i++) {
        list[i] = make(writer, i + 1, of->items[i]);
    }
    *ret_count = of->index.count;
    return list;
}

static void make_tables(struct writer *writer)
{
    Pprof__Profile *file = writer->file;
    /* Readers that are given a program take it for the first mapping. */
    if (mr_symbols_program() != 0) {
        pprof_number_of(&writer->mappings, (struct item){.a = mr_symbols_program()});
    }
    file->location = pprof_make_all(writer, &writer->locations, &file->n_location, make_location);
    file->mapping = pprof_make_all(writer, &writer->mappings, &file->n_mapping, make_mapping);
    file->function = pprof_make_all(writer, &writer->functions, &file->n_function, make_function);
}

enum { COMMENTS = 2, COMMENT_ROOM = 200 };

static char *add_comment(struct writer *writer)
{
    Pprof__Profile *file = writer->file;
    file->comment[file->n_comment++] = (int64_t)file->n_string_table;
    return file->string_table[file->n_string_table++] = MR_NEW_ARRAY(char, COMMENT_ROOM);
}

/* Last, when every text has its number. Comments are not kept with the shared texts: each is
 * another one. */
static void make_texts(struct writer *writer)
{
    const struct mr_profile *profile = writer->profile;
    Pprof__Profile *file = writer->file;
    uint32_t count = writer->texts.index.count;
    file->string_table = MR_NEW_ARRAY(char *, count + 1 + COMMENTS);
    file->comment = MR_NEW_ARRAY(int64_t, COMMENTS);
    file->string_table[file->n_string_table++] = MR_STRDUP("");
    for (uint32_t i = 0; i < count; i++) {
        file->string_table[file->n_string_table++] =
            MR_STRDUP(mr_symbols_text(writer->texts.items[i].a));
    }
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    snprintf(add_comment(writer), COMMENT_ROOM, "millrace %s, process %d on %s", MR_VERSION,
             (int)getpid(), host);
    snprintf(add_comment(writer), COMMENT_ROOM,
             "samples %" PRIu64 ", rooted %" PRIu64 ", truncated %" PRIu64 ", lost %" PRIu64
             ", left out %" PRIu64,
             profile->samples, profile->rooted, profile->truncated, profile->lost,
             profile->dropped);
}

static Pprof__ValueType *make_type(struct writer *writer, uint32_t value)
{
    enum mr_profile_kind kind = writer->profile->kind;
    Pprof__ValueType *type = MR_NEW(Pprof__ValueType);
    pprof__value_type__init(type);
    type->type = pprof_text_of(writer, mr_profile_values[kind].types[value].name);
    type->unit = pprof_text_of(writer, mr_profile_values[kind].types[value].unit);
    return type;
}

static void make_head(struct writer *writer)
{
    const struct mr_profile *profile = writer->profile;
    Pprof__Profile *file = writer->file;
    uint32_t values = mr_profile_values[profile->kind].count;
    file->sample_type = MR_NEW_ARRAY(Pprof__ValueType *, values);
    for (uint32_t i = 0; i < values; i++) {
        file->sample_type[file->n_sample_type++] = make_type(writer, i);
    }
    file->period_type = make_type(writer, values - 1);
    file->default_sample_type = file->period_type->type;
    file->period = profile->period;
    file->time_nanos = profile->start_wall_ns;
    file->duration_nanos = profile->duration_ns;
}

static void writer_done(struct writer *writer)
{
    numbering_done(&writer->texts);
    numbering_done(&writer->locations);
    numbering_done(&writer->mappings);
    numbering_done(&writer->functions);
    pprof__profile__free_unpacked(writer->file, NULL);
}

uint8_t *mr_profile_pprof(const struct mr_profile *profile, size_t *ret_len)
{
    struct writer writer = {.profile = profile, .file = MR_NEW(Pprof__Profile)};
    pprof__profile__init(writer.file);
    mr_symbols_lock();
    make_head(&writer);
    make_samples(&writer);
    make_tables(&writer);
    make_texts(&writer);
    size_t len = pprof__profile__get_packed_size(writer.file);
    MR_FREED uint8_t *bytes = MR_NEW_ARRAY(uint8_t, len);
    pprof__profile__pack(writer.file, bytes);
    mr_symbols_unlock();
    uint8_t *packed = mr_profile_gzip(bytes, len, ret_len);
    writer_done(&writer);
    return packed;
}

uint8_t *mr_profile_gzip(const void *bytes, size_t len, size_t *ret_len)
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
