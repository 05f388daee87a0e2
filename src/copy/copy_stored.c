#include "copy/copy_stored.h"

#include <inttypes.h>

/* Everything in hexadecimal: lsn attempt step rows, the tables that are done as differences, and
 * those that are not:
 *
 *   '"' lsn " " attempt " " step " " rows " d" {difference ","} {"t" oid "," filenode {";" after
 *   "-" end}} '"' */
void mr_copy_stored_free(struct mr_copy_stored *state)
{
    if (state == NULL) {
        return;
    }
    for (uint32_t i = 0; i < state->part_count; i++) {
        free(state->parts[i].ranges);
    }
    free(state->parts);
    free(state->done);
    free(state);
}

char *mr_copy_stored_format(const struct mr_copy_stored *state)
{
    struct mr_text text = {0};
    mr_text_format(&text, "\"%" PRIx64 " %" PRIx32 " %" PRIx64 " %" PRIx64 " d", state->lsn,
                   state->attempt, state->step, state->rows);
    uint32_t before = 0;
    for (uint32_t i = 0; i < state->done_count; i++) {
        mr_text_format(&text, "%" PRIx32 ",", state->done[i] - before);
        before = state->done[i];
    }
    for (uint32_t i = 0; i < state->part_count; i++) {
        const struct mr_copy_part *part = &state->parts[i];
        mr_text_format(&text, "t%" PRIx32 ",%" PRIx32, part->oid, part->filenode);
        for (uint32_t r = 0; r < part->range_count; r++) {
            mr_text_format(&text, ";%" PRIx64 "-%" PRIx32, part->ranges[r].after,
                           part->ranges[r].end);
        }
    }
    mr_text_string(&text, "\"");
    return text.data;
}

struct cursor {
    const char *at;
    bool failed;
};

static uint64_t copy_stored_take_number(struct cursor *cursor, uint64_t most)
{
    uint64_t value = 0;
    uint32_t digits = 0;
    for (;; digits++, cursor->at++) {
        char c = *cursor->at;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                                                : 16;
        if (digit == 16) {
            break;
        }
        if (value > (most - digit) / 16) {
            cursor->failed = true;
            return 0;
        }
        value = value * 16 + digit;
    }
    cursor->failed = cursor->failed || digits == 0;
    return value;
}

static bool take_letter(struct cursor *cursor, char letter)
{
    if (cursor->failed || *cursor->at != letter) {
        return false;
    }
    cursor->at++;
    return true;
}

static void need(struct cursor *cursor, char letter)
{
    cursor->failed = !take_letter(cursor, letter);
}

static uint32_t count_letters(const char *text, char letter)
{
    uint32_t count = 0;
    for (; *text != '\0'; text++) {
        count += *text == letter;
    }
    return count;
}

static void take_done(struct cursor *cursor, struct mr_copy_stored *state)
{
    state->done = MR_NEW_ARRAY(uint32_t, count_letters(cursor->at, ',') + 1);
    uint32_t before = 0;
    while (!cursor->failed && *cursor->at != '\0' && *cursor->at != 't' && *cursor->at != '"') {
        before += (uint32_t)copy_stored_take_number(cursor, UINT32_MAX - before);
        need(cursor, ',');
        state->done[state->done_count++] = before;
    }
}

static void copy_stored_take_part(struct cursor *cursor, struct mr_copy_part *part)
{
    part->oid = (uint32_t)copy_stored_take_number(cursor, UINT32_MAX);
    need(cursor, ',');
    part->filenode = (uint32_t)copy_stored_take_number(cursor, UINT32_MAX);
    part->ranges = MR_NEW_ARRAY(struct mr_copy_range, count_letters(cursor->at, ';') + 1);
    while (take_letter(cursor, ';')) {
        struct mr_copy_range *range = &part->ranges[part->range_count++];
        range->after = copy_stored_take_number(cursor, UINT64_MAX >> 16);
        need(cursor, '-');
        range->end = (uint32_t)copy_stored_take_number(cursor, UINT32_MAX);
    }
}

struct mr_copy_stored *mr_copy_stored_parse(const char *text)
{
    struct cursor cursor = {.at = text};
    struct mr_copy_stored *state = MR_NEW(struct mr_copy_stored);
    need(&cursor, '"');
    state->lsn = copy_stored_take_number(&cursor, UINT64_MAX);
    need(&cursor, ' ');
    state->attempt = (uint32_t)copy_stored_take_number(&cursor, UINT32_MAX);
    need(&cursor, ' ');
    state->step = copy_stored_take_number(&cursor, UINT64_MAX);
    need(&cursor, ' ');
    state->rows = copy_stored_take_number(&cursor, UINT64_MAX);
    need(&cursor, ' ');
    need(&cursor, 'd');
    take_done(&cursor, state);
    state->parts = MR_NEW_ARRAY(struct mr_copy_part, count_letters(cursor.at, 't') + 1);
    while (take_letter(&cursor, 't')) {
        copy_stored_take_part(&cursor, &state->parts[state->part_count++]);
    }
    need(&cursor, '"');
    if (cursor.failed || *cursor.at != '\0') {
        mr_copy_stored_free(state);
        return NULL;
    }
    return state;
}

static struct mr_section_rank copy_stored_rank_of(const struct mr_copy_stored *state)
{
    return (struct mr_section_rank){.begins = state->lsn,
                                    .major = state->attempt,
                                    .minor = state->step,
                                    .version = MR_COPY_STORED_VERSION};
}

const struct mr_copy_part *mr_copy_stored_part(const struct mr_copy_stored *state, uint32_t oid)
{
    return MR_FIND(part, state->parts, state->part_count, part->oid == oid);
}

bool mr_copy_stored_is_done(const struct mr_copy_stored *state, uint32_t oid)
{
    return mr_search(&oid, state->done, state->done_count, sizeof(oid), mr_u32_compare) != NULL;
}

struct mr_copy_stored *mr_copy_stored_of(const struct mr_checkpoint *checkpoint)
{
    const struct mr_section *section = mr_checkpoint_section(checkpoint, MR_SECTION_COPY);
    return section == NULL ? NULL : mr_copy_stored_parse(section->json);
}

bool mr_copy_stored_rank(const char *json, struct mr_section_rank *ret_rank)
{
    struct mr_copy_stored *state = mr_copy_stored_parse(json);
    if (state == NULL) {
        return false;
    }
    *ret_rank = copy_stored_rank_of(state);
    mr_copy_stored_free(state);
    return true;
}

bool mr_copy_only_rank(const char *json, struct mr_section_rank *ret_rank)
{
    *ret_rank = (struct mr_section_rank){.no_stream = strcmp(json, "true") == 0};
    return true;
}

void mr_copy_stored_add(const struct mr_copy_stored *state, bool only,
                        struct mr_checkpoint *checkpoint)
{
    struct mr_section_rank rank = copy_stored_rank_of(state);
    mr_checkpoint_add(checkpoint, MR_SECTION_COPY, mr_copy_stored_format(state), &rank);
    if (only) {
        rank = (struct mr_section_rank){.no_stream = true};
        mr_checkpoint_add(checkpoint, MR_SECTION_COPY_ONLY, MR_STRDUP("true"), &rank);
    }
}
