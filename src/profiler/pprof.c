/* A profile as pprof reads it: profile.proto of google/pprof, in which a message is a row of fields, each with a number, and
 * names are numbers of the string table; compressed by zlib. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/hash.h"
#include "base/text.h"
#include "profiler/profile.h"

/* ---- fields ---- */

enum { SAMPLE_TYPE = 1, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING };
enum { TIME = 9, DURATION, PERIOD_TYPE, PERIOD, COMMENT, DEFAULT_TYPE };
enum { TYPE_TYPE = 1, TYPE_UNIT };
enum { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_TEXT };
enum { ID = 1 }; /* of mappings, locations, functions */
enum { MAPPING_START = 2, MAPPING_LIMIT, MAPPING_OFFSET, MAPPING_FILE, MAPPING_BUILD_ID };
enum { MAPPING_HAS_FUNCTIONS = 7, MAPPING_HAS_FILES, MAPPING_HAS_LINES, MAPPING_HAS_INLINED };
enum { LOCATION_MAPPING = 2, LOCATION_ADDRESS, LOCATION_LINE };
enum { LINE_FUNCTION = 1, LINE_NUMBER };
enum { FUNCTION_NAME = 2, FUNCTION_SYSTEM_NAME, FUNCTION_FILE };
enum { WIRE_NUMBER = 0, WIRE_BYTES = 2 };

static void put_varint(struct mr_text *out, uint64_t value)
{
    uint8_t bytes[10];
    size_t len = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[len++] = (uint8_t)(value | 0x80);
    }
    bytes[len++] = (uint8_t)value;
    mr_text_add(out, bytes, len);
}

static void put_number(struct mr_text *out, unsigned field, uint64_t value)
{
    if (value != 0) {
        put_varint(out, field << 3 | WIRE_NUMBER);
        put_varint(out, value);
    }
}

static void put_bytes(struct mr_text *out, unsigned field, const void *bytes, size_t len)
{
    put_varint(out, field << 3 | WIRE_BYTES);
    put_varint(out, len);
    mr_text_add(out, bytes, len);
}

/* Moves a message, or packed numbers, into the message around it. */
static void put_part(struct mr_text *out, unsigned field, struct mr_text *part)
{
    put_bytes(out, field, part->data, part->len);
    part->len = 0;
}

/* ---- numbers of the file ---- */

struct item {
    uint32_t a, b;
};

/* Numbers from 1 for items as they are met. */
struct numbering {
    struct mr_index index;
    struct item *items;
    uint32_t room;
};

static uint32_t number_of(struct numbering *numbering, struct item item)
{
    uint64_t hash = mr_hash_number(mr_hash_number(MR_HASH_BEGIN, item.a), item.b);
    uint32_t at = 0;
    uint32_t found;
    do {
        found = mr_index_next(&numbering->index, hash, &at);
    } while (found != MR_INDEX_NONE &&
             (numbering->items[found].a != item.a || numbering->items[found].b != item.b));
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

struct writer {
    const struct mr_profile *profile;
    struct mr_text out, part, inner; /* the file, a message of it, what is inside that */
    struct numbering texts, locations, mappings; /* of our numbers */
    struct numbering functions; /* of name and file: statics of one name are several */
};

static uint64_t text(struct writer *writer, uint32_t id)
{
    return id == 0 ? 0 : number_of(&writer->texts, (struct item){.a = id});
}

static uint64_t text_of(struct writer *writer, const char *string)
{
    return text(writer, mr_symbols_intern(string));
}

/* ---- samples ---- */

static void put_label(struct writer *writer, const char *key, uint32_t value)
{
    if (value != 0) {
        put_number(&writer->inner, LABEL_KEY, text_of(writer, key));
        put_number(&writer->inner, LABEL_TEXT, text(writer, value));
        put_part(&writer->part, SAMPLE_LABEL, &writer->inner);
    }
}

static void put_sample(struct writer *writer, const struct mr_profile_entry *entry)
{
    const struct mr_profile *profile = writer->profile;
    for (uint32_t i = 0; i < entry->stack_count; i++) {
        struct item location = {.a = profile->stacks[entry->stack_first + i]};
        put_varint(&writer->inner, number_of(&writer->locations, location));
    }
    put_part(&writer->part, SAMPLE_LOCATIONS, &writer->inner);
    for (uint32_t i = 0; i < mr_profile_value_count(profile->kind); i++) {
        put_varint(&writer->inner, (uint64_t)entry->values[i]);
    }
    put_part(&writer->part, SAMPLE_VALUES, &writer->inner);
    put_label(writer, "thread", entry->thread);
    put_label(writer, "stage", mr_symbols_intern(mr_stage_name(mr_profile_stage(profile, entry))));
    put_label(writer, "table", entry->table);
    put_part(&writer->out, SAMPLE, &writer->part);
}

static void put_samples(struct writer *writer)
{
    for (uint32_t i = 0; i < writer->profile->count; i++) {
        const struct mr_profile_entry *entry = &writer->profile->entries[i];
        bool is_empty = true;
        for (int v = 0; v < MR_PROFILE_VALUES; v++) {
            is_empty &= entry->values[v] == 0;
        }
        if (!is_empty) {
            put_sample(writer, entry);
        }
    }
}

/* ---- what samples refer to ---- */

static void put_location(struct writer *writer, uint32_t id, uint32_t ours)
{
    const struct mr_location *location = mr_symbols_get(ours);
    put_number(&writer->part, ID, id);
    if (location->mapping != 0) {
        struct item mapping = {.a = location->mapping};
        put_number(&writer->part, LOCATION_MAPPING, number_of(&writer->mappings, mapping));
        put_number(&writer->part, LOCATION_ADDRESS, location->address);
    }
    for (uint32_t i = 0; i < location->frame_count; i++) {
        const struct mr_frame *frame = &location->frames[i];
        if (frame->function != 0) { /* else pprof shows object and address */
            struct item function = {.a = frame->function, .b = frame->file};
            put_number(&writer->inner, LINE_FUNCTION, number_of(&writer->functions, function));
            put_number(&writer->inner, LINE_NUMBER, frame->line);
            put_part(&writer->part, LOCATION_LINE, &writer->inner);
        }
    }
    put_part(&writer->out, LOCATION, &writer->part);
}

/* Functions without a name show as "libpq.so.5!0x3c1a0"; readers that are to look for others are told so (`-symbolize=force`). */
static void put_mapping(struct writer *writer, uint32_t id, uint32_t ours)
{
    const struct mr_mapping *mapping = mr_symbols_mapping(ours);
    struct mr_text *part = &writer->part;
    put_number(part, ID, id);
    put_number(part, MAPPING_START, mapping->code_start);
    put_number(part, MAPPING_LIMIT, mapping->code_end);
    put_number(part, MAPPING_OFFSET, mapping->code_offset);
    put_number(part, MAPPING_FILE, text(writer, mapping->file));
    put_number(part, MAPPING_BUILD_ID, text(writer, mapping->build_id));
    put_number(part, MAPPING_HAS_FUNCTIONS, true);
    put_number(part, MAPPING_HAS_FILES, mapping->has_lines);
    put_number(part, MAPPING_HAS_LINES, mapping->has_lines);
    put_number(part, MAPPING_HAS_INLINED, mapping->has_lines);
    put_part(&writer->out, MAPPING, part);
}

static void put_function(struct writer *writer, uint32_t id, struct item function)
{
    put_number(&writer->part, ID, id);
    put_number(&writer->part, FUNCTION_NAME, text(writer, function.a));
    put_number(&writer->part, FUNCTION_SYSTEM_NAME, text(writer, function.a));
    put_number(&writer->part, FUNCTION_FILE, text(writer, function.b));
    put_part(&writer->out, FUNCTION, &writer->part);
}

static void put_tables(struct writer *writer)
{
    /* Readers that are given a program take it for the first mapping. */
    if (mr_symbols_program() != 0) {
        number_of(&writer->mappings, (struct item){.a = mr_symbols_program()});
    }
    for (uint32_t i = 0; i < writer->locations.index.count; i++) {
        put_location(writer, i + 1, writer->locations.items[i].a);
    }
    for (uint32_t i = 0; i < writer->mappings.index.count; i++) {
        put_mapping(writer, i + 1, writer->mappings.items[i].a);
    }
    for (uint32_t i = 0; i < writer->functions.index.count; i++) {
        put_function(writer, i + 1, writer->functions.items[i]);
    }
}

static void put_comment(struct writer *writer, uint32_t number, const char *comment)
{
    put_bytes(&writer->out, STRING, comment, strlen(comment));
    put_number(&writer->out, COMMENT, number);
}

/* Last, when every text has its number. Comments are not kept with the shared texts: each is another one. */
static void put_texts(struct writer *writer)
{
    const struct mr_profile *profile = writer->profile;
    uint32_t count = writer->texts.index.count;
    put_bytes(&writer->out, STRING, "", 0);
    for (uint32_t i = 0; i < count; i++) {
        const char *string = mr_symbols_text(writer->texts.items[i].a);
        put_bytes(&writer->out, STRING, string, strlen(string));
    }
    char host[64] = "";
    char comment[200];
    gethostname(host, sizeof(host) - 1);
    snprintf(comment, sizeof(comment), "millrace %s, process %d on %s", MR_VERSION, (int)getpid(),
             host);
    put_comment(writer, count + 1, comment);
    snprintf(comment, sizeof(comment),
             "samples %" PRIu64 ", rooted %" PRIu64 ", truncated %" PRIu64 ", lost %" PRIu64
             ", left out %" PRIu64,
             profile->samples, profile->rooted, profile->truncated, profile->lost,
             profile->dropped);
    put_comment(writer, count + 2, comment);
}

/* ---- the file ---- */

static void put_type(struct writer *writer, unsigned field, uint32_t value)
{
    enum mr_profile_kind kind = writer->profile->kind;
    put_number(&writer->part, TYPE_TYPE, text_of(writer, mr_profile_value_name(kind, value)));
    put_number(&writer->part, TYPE_UNIT, text_of(writer, mr_profile_value_unit(kind, value)));
    put_part(&writer->out, field, &writer->part);
}

static void put_head(struct writer *writer)
{
    const struct mr_profile *profile = writer->profile;
    uint32_t last = mr_profile_value_count(profile->kind) - 1;
    for (uint32_t i = 0; i <= last; i++) {
        put_type(writer, SAMPLE_TYPE, i);
    }
    put_type(writer, PERIOD_TYPE, last);
    put_number(&writer->out, DEFAULT_TYPE,
               text_of(writer, mr_profile_value_name(profile->kind, last)));
    put_number(&writer->out, PERIOD, (uint64_t)profile->period);
    put_number(&writer->out, TIME, (uint64_t)profile->start_wall_ns);
    put_number(&writer->out, DURATION, (uint64_t)profile->duration_ns);
}

uint8_t *mr_profile_pprof(const struct mr_profile *profile, size_t *ret_len)
{
    struct writer writer = {.profile = profile};
    mr_symbols_lock();
    put_head(&writer);
    put_samples(&writer);
    put_tables(&writer);
    put_texts(&writer);
    mr_symbols_unlock();
    uint8_t *packed = mr_profile_gzip(writer.out.data, writer.out.len, ret_len);
    mr_text_done(&writer.out);
    mr_text_done(&writer.part);
    mr_text_done(&writer.inner);
    numbering_done(&writer.texts);
    numbering_done(&writer.locations);
    numbering_done(&writer.mappings);
    numbering_done(&writer.functions);
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
