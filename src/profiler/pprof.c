/* A profile as pprof reads it: profile.proto by protobuf-c, compressed by zlib. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/output.h"
#include "profiler/profile.h"
#include "profiler/profile.pb-c.h"

/* Numbers of the file by numbers of ours, given out as they are met; 0: not met yet. */
struct numbering {
    uint32_t *of;
    uint32_t room;
    uint32_t *list; /* ours, in the file's order; list[0] is not used */
    uint32_t count, list_room;
};

static uint32_t number_of(struct numbering *numbering, uint32_t ours)
{
    if (ours >= numbering->room) {
        uint32_t room = ours * 2 + 256;
        numbering->of = MR_REALLOC(numbering->of, sizeof(uint32_t) * room);
        memset(numbering->of + numbering->room, 0, sizeof(uint32_t) * (room - numbering->room));
        numbering->room = room;
    }
    if (numbering->of[ours] != 0) {
        return numbering->of[ours];
    }
    if (numbering->count + 1 >= numbering->list_room) {
        numbering->list_room = numbering->list_room * 2 + 64;
        numbering->list = MR_REALLOC(numbering->list, sizeof(uint32_t) * numbering->list_room);
    }
    numbering->list[++numbering->count] = ours;
    numbering->of[ours] = numbering->count;
    return numbering->count;
}

static void numbering_done(struct numbering *numbering)
{
    free(numbering->of);
    free(numbering->list);
}

/* Everything a file is made of lives until it is packed. */
struct writer {
    const struct mr_profile *profile;
    struct numbering texts, locations, mappings;
    struct numbering functions;       /* by the text "name file": statics of one name are several */
    struct mr_frame *function_frames; /* one frame of each, by its number in the file */
    uint32_t function_frames_room;
    void **memory;
    size_t memory_count, memory_room;
};

static void *keep(struct writer *writer, size_t size)
{
    if (writer->memory_count == writer->memory_room) {
        writer->memory_room = writer->memory_room * 2 + 256;
        writer->memory = MR_REALLOC(writer->memory, sizeof(void *) * writer->memory_room);
    }
    void *memory = MR_NEW_ARRAY(char, size);
    writer->memory[writer->memory_count++] = memory;
    return memory;
}

/* The string table's number 0 is "", so it isn't in the numbering. */
static int64_t text(struct writer *writer, uint32_t id)
{
    return id == 0 ? 0 : (int64_t)number_of(&writer->texts, id);
}

static int64_t text_of(struct writer *writer, const char *string)
{
    return text(writer, mr_symbols_intern(string));
}

static Pprof__ValueType *value_type(struct writer *writer, uint32_t value)
{
    Pprof__ValueType *type = keep(writer, sizeof(*type));
    pprof__value_type__init(type);
    type->type = text_of(writer, mr_profile_value_name(writer->profile->kind, value));
    type->unit = text_of(writer, mr_profile_value_unit(writer->profile->kind, value));
    return type;
}

/* ---- samples ---- */

static void add_label(struct writer *writer, Pprof__Sample *sample, const char *key, uint32_t value)
{
    if (value == 0) {
        return;
    }
    Pprof__Label *label = keep(writer, sizeof(*label));
    pprof__label__init(label);
    label->key = text_of(writer, key);
    label->str = text(writer, value);
    sample->label[sample->n_label++] = label;
}

static Pprof__Sample *make_sample(struct writer *writer, const struct mr_profile_entry *entry)
{
    Pprof__Sample *sample = keep(writer, sizeof(*sample));
    pprof__sample__init(sample);
    sample->n_location_id = entry->stack_count;
    sample->location_id = keep(writer, sizeof(uint64_t) * (entry->stack_count + 1));
    for (uint32_t i = 0; i < entry->stack_count; i++) {
        sample->location_id[i] =
            number_of(&writer->locations, writer->profile->stacks[entry->stack_first + i]);
    }
    sample->n_value = mr_profile_value_count(writer->profile->kind);
    sample->value = keep(writer, sizeof(int64_t) * sample->n_value);
    memcpy(sample->value, entry->values, sizeof(int64_t) * sample->n_value);
    sample->label = keep(writer, sizeof(Pprof__Label *) * 3);
    add_label(writer, sample, "thread", entry->thread);
    add_label(writer, sample, "stage",
              mr_symbols_intern(mr_stage_name(mr_profile_stage(writer->profile, entry))));
    add_label(writer, sample, "table", entry->table);
    return sample;
}

static bool is_empty(const struct mr_profile_entry *entry)
{
    for (int i = 0; i < MR_PROFILE_VALUES; i++) {
        if (entry->values[i] != 0) {
            return false;
        }
    }
    return true;
}

static void make_samples(struct writer *writer, Pprof__Profile *file)
{
    const struct mr_profile *profile = writer->profile;
    file->sample = keep(writer, sizeof(Pprof__Sample *) * (profile->count + 1));
    for (uint32_t i = 0; i < profile->count; i++) {
        if (!is_empty(&profile->entries[i])) {
            file->sample[file->n_sample++] = make_sample(writer, &profile->entries[i]);
        }
    }
}

/* ---- what samples refer to ---- */

static uint64_t function_number(struct writer *writer, const struct mr_frame *frame)
{
    char key[1024];
    snprintf(key, sizeof(key), "%s %s", mr_symbols_text(frame->function),
             mr_symbols_text(frame->file));
    uint32_t number = number_of(&writer->functions, mr_symbols_intern(key));
    if (number >= writer->function_frames_room) {
        uint32_t room = number * 2 + 64;
        writer->function_frames =
            MR_REALLOC(writer->function_frames, sizeof(struct mr_frame) * room);
        writer->function_frames_room = room;
    }
    writer->function_frames[number] = *frame;
    return number;
}

static Pprof__Location *make_location(struct writer *writer, uint32_t number)
{
    const struct mr_location *location = mr_symbols_get(writer->locations.list[number]);
    Pprof__Location *made = keep(writer, sizeof(*made));
    pprof__location__init(made);
    made->id = number;
    made->address = location->mapping == 0 ? 0 : location->address;
    made->mapping_id = location->mapping == 0 ? 0 : number_of(&writer->mappings, location->mapping);
    made->line = keep(writer, sizeof(Pprof__Line *) * (location->frame_count + 1));
    for (uint32_t i = 0; i < location->frame_count; i++) {
        if (location->frames[i].function == 0) {
            continue; /* pprof shows object and address then */
        }
        Pprof__Line *line = keep(writer, sizeof(*line));
        pprof__line__init(line);
        line->function_id = function_number(writer, &location->frames[i]);
        line->line = location->frames[i].line;
        made->line[made->n_line++] = line;
    }
    return made;
}

/* Whether all functions of the object that the profile met have their names. */
static bool is_named(const struct writer *writer, uint32_t mapping)
{
    for (uint32_t i = 1; i <= writer->locations.count; i++) {
        const struct mr_location *location = mr_symbols_get(writer->locations.list[i]);
        if (location->mapping == mapping && location->unnamed) {
            return false;
        }
    }
    return true;
}

static Pprof__Mapping *make_mapping(struct writer *writer, uint32_t number)
{
    const struct mr_mapping *mapping = mr_symbols_mapping(writer->mappings.list[number]);
    Pprof__Mapping *made = keep(writer, sizeof(*made));
    pprof__mapping__init(made);
    made->id = number;
    made->memory_start = mapping->code_start;
    made->memory_limit = mapping->code_end;
    made->file_offset = mapping->code_offset;
    made->filename = text(writer, mapping->file);
    made->build_id = text(writer, mapping->build_id);
    /* False as soon as one function has no name: readers then look for the object by its build id, and `go tool
     * pprof http://…` asks /debug/pprof/symbol. */
    made->has_functions = is_named(writer, writer->mappings.list[number]);
    made->has_filenames = mapping->has_lines;
    made->has_line_numbers = mapping->has_lines;
    made->has_inline_frames = mapping->has_lines;
    return made;
}

static Pprof__Function *make_function(struct writer *writer, uint32_t number)
{
    Pprof__Function *made = keep(writer, sizeof(*made));
    pprof__function__init(made);
    made->id = number;
    made->name = text(writer, writer->function_frames[number].function);
    made->system_name = made->name;
    made->filename = text(writer, writer->function_frames[number].file);
    return made;
}

static void make_tables(struct writer *writer, Pprof__Profile *file)
{
    /* Readers that are given a program take it for the first mapping. */
    if (mr_symbols_program() != 0) {
        number_of(&writer->mappings, mr_symbols_program());
    }
    file->location = keep(writer, sizeof(Pprof__Location *) * (writer->locations.count + 1));
    for (uint32_t i = 1; i <= writer->locations.count; i++) {
        file->location[file->n_location++] = make_location(writer, i);
    }
    file->mapping = keep(writer, sizeof(Pprof__Mapping *) * (writer->mappings.count + 1));
    for (uint32_t i = 1; i <= writer->mappings.count; i++) {
        file->mapping[file->n_mapping++] = make_mapping(writer, i);
    }
    file->function = keep(writer, sizeof(Pprof__Function *) * (writer->functions.count + 1));
    for (uint32_t i = 1; i <= writer->functions.count; i++) {
        file->function[file->n_function++] = make_function(writer, i);
    }
}

/* Last, when every text has its number. Comments stand after the texts that are shared. */
static void make_texts(struct writer *writer, Pprof__Profile *file, const char *const *comments,
                       size_t comment_count)
{
    file->string_table = keep(writer, sizeof(char *) * (writer->texts.count + 1 + comment_count));
    file->comment = keep(writer, sizeof(int64_t) * (comment_count + 1));
    file->string_table[file->n_string_table++] = (char *)(uintptr_t) "";
    for (uint32_t i = 1; i <= writer->texts.count; i++) {
        file->string_table[file->n_string_table++] =
            (char *)(uintptr_t)mr_symbols_text(writer->texts.list[i]);
    }
    for (size_t i = 0; i < comment_count; i++) {
        if (comments[i] != NULL) {
            file->comment[file->n_comment++] = (int64_t)file->n_string_table;
            file->string_table[file->n_string_table++] = (char *)(uintptr_t)comments[i];
        }
    }
}

static void make_head(struct writer *writer, Pprof__Profile *file)
{
    const struct mr_profile *profile = writer->profile;
    uint32_t values = mr_profile_value_count(profile->kind);
    file->sample_type = keep(writer, sizeof(Pprof__ValueType *) * values);
    for (uint32_t i = 0; i < values; i++) {
        file->sample_type[file->n_sample_type++] = value_type(writer, i);
    }
    file->default_sample_type = file->sample_type[values - 1]->type;
    file->period_type = value_type(writer, values - 1);
    file->period = profile->period;
    file->time_nanos = profile->start_wall_ns;
    file->duration_nanos = profile->duration_ns;
}

/* ---- bytes ---- */

static void writer_done(struct writer *writer)
{
    numbering_done(&writer->texts);
    numbering_done(&writer->locations);
    numbering_done(&writer->mappings);
    numbering_done(&writer->functions);
    free(writer->function_frames);
    for (size_t i = 0; i < writer->memory_count; i++) {
        free(writer->memory[i]);
    }
    free(writer->memory);
}

uint8_t *mr_profile_pprof(const struct mr_profile *profile, const char *const *comments,
                          size_t comment_count, size_t *ret_len)
{
    struct writer writer = {.profile = profile};
    Pprof__Profile file = PPROF__PROFILE__INIT;
    make_head(&writer, &file);
    make_samples(&writer, &file);
    make_tables(&writer, &file);
    make_texts(&writer, &file, comments, comment_count);
    size_t len = pprof__profile__get_packed_size(&file);
    uint8_t *packed = MR_NEW_ARRAY(uint8_t, len);
    pprof__profile__pack(&file, packed);
    uint8_t *compressed = mr_output_gzip(packed, len, ret_len);
    free(packed);
    writer_done(&writer);
    return compressed;
}
