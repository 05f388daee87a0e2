#include "verify/schedule.h"

#include <cjson/cJSON.h>
#include <sys/random.h>

#include "base/hash.h"
#include "event/lsn.h"
#include "verify/proof.h"

#define SECOND_NS INT64_C(1000000000)

static uint64_t hash_of(const char *name)
{
    return mr_hash_add(MR_HASH_BEGIN, name, strlen(name));
}

void mr_schedule_done(struct mr_schedule *schedule)
{
    for (uint32_t i = 0; i < schedule->count; i++) {
        free(schedule->items[i].name);
    }
    free(schedule->items);
    mr_index_done(&schedule->by_name);
}

struct mr_scheduled *mr_schedule_find(struct mr_schedule *schedule, const char *name)
{
    uint32_t number;
    MR_INDEX_FIND(number, &schedule->by_name, hash_of(name),
                  strcmp(schedule->items[number].name, name) == 0);
    return number == MR_INDEX_NONE ? NULL : &schedule->items[number];
}

void mr_schedule_list_begin(struct mr_schedule *schedule)
{
    for (uint32_t i = 0; i < schedule->count; i++) {
        schedule->items[i].is_listed = false;
    }
}

/* A moment within the first nanoseconds of the clock: it is due at once, and in a drawn order. */
static int64_t draw_moment(void)
{
    uint32_t drawn = 0;
    MR_ASSERT(getrandom(&drawn, sizeof(drawn), 0) == sizeof(drawn));
    return -(int64_t)drawn;
}

void mr_schedule_list(struct mr_schedule *schedule, const char *name, uint64_t rows)
{
    struct mr_scheduled *table = mr_schedule_find(schedule, name);
    if (table == NULL) {
        MR_GROW(schedule->items, schedule->room, (size_t)schedule->count + 1);
        table = &schedule->items[schedule->count++];
        *table = (struct mr_scheduled){.name = MR_STRDUP(name), .due_ns = draw_moment()};
        mr_index_add(&schedule->by_name, hash_of(name));
    }
    table->is_listed = true;
    table->rows = table->proved_ns == 0 ? rows : table->rows;
}

void mr_schedule_list_end(struct mr_schedule *schedule)
{
    uint32_t kept = 0;
    mr_index_clear(&schedule->by_name);
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (schedule->items[i].is_listed) {
            mr_index_add(&schedule->by_name, hash_of(schedule->items[i].name));
            schedule->items[kept++] = schedule->items[i];
        } else {
            free(schedule->items[i].name);
        }
    }
    schedule->count = kept;
}

uint32_t mr_schedule_due(const struct mr_schedule *schedule, int64_t now_ns, uint32_t *ret,
                         uint32_t max)
{
    const struct mr_scheduled *items = schedule->items;
    uint32_t count = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (items[i].due_ns > now_ns) {
            continue;
        }
        uint32_t at = count;
        for (; at > 0 && items[ret[at - 1]].due_ns > items[i].due_ns; at--) {
            if (at < max) {
                ret[at] = ret[at - 1];
            }
        }
        if (at < max) {
            ret[at] = i;
            count += count < max;
        }
    }
    return count;
}

struct mr_scheduled mr_scheduled_read(const cJSON *said)
{
    struct mr_scheduled proof = {.rows = mr_said_number(said, "rows")};
    for (int i = 0; i < MR_DIFFERENCE_COUNT; i++) {
        proof.differences += mr_said_number(said, mr_difference_names[i]);
    }
    proof.unproved = proof.differences + mr_said_number(said, "unknown");
    (void)mr_lsn_parse(mr_said_word(said, "lsn"), &proof.lsn, NULL);
    if (strcmp(mr_said_word(said, "verdict"), mr_verdict_words[MR_VERIFY_DIFFERENT]) != 0) {
        proof.differences = 0; /* excused: it is equal in part */
        snprintf(proof.cause, sizeof(proof.cause), "%s", mr_said_word(said, "cause"));
    } else if (proof.differences == 0) {
        proof.differences = 1; /* of the records alone: out of order, or none of the table's */
    }
    return proof;
}

int64_t mr_schedule_retry_ns(const struct mr_schedule *schedule)
{
    int64_t part_ns = schedule->interval_ns / 24;
    return part_ns < SECOND_NS ? SECOND_NS : part_ns;
}

void mr_schedule_take(const struct mr_schedule *schedule, struct mr_scheduled *table,
                      const struct mr_scheduled *proof, int64_t begun_ns, int64_t now_ns)
{
    int64_t early_ns = schedule->interval_ns / 10 + 2 * (now_ns - begun_ns);
    int64_t half_ns = schedule->interval_ns / 2;
    bool is_hopeless =
        strcmp(proof->cause, "unprovable") == 0; /* until it is altered, or the file is */
    memcpy(table->cause, proof->cause, sizeof(table->cause));
    if (proof->cause[0] == '\0') {
        table->rows = proof->rows;
        table->differences = proof->differences;
        table->unproved = proof->unproved;
        table->lsn = proof->lsn;
        table->proved_ns = begun_ns;
    }
    if (proof->cause[0] == '\0' || is_hopeless) {
        table->due_ns =
            begun_ns + schedule->interval_ns - (early_ns < half_ns ? early_ns : half_ns);
    } else {
        table->due_ns = now_ns + mr_schedule_retry_ns(schedule);
    }
}

struct mr_schedule_sum mr_schedule_sum(const struct mr_schedule *schedule, int64_t now_ns)
{
    struct mr_schedule_sum sum = {.tables = schedule->count,
                                  .oldest_ns = schedule->count > 0 ? INT64_MAX : 0};
    for (uint32_t i = 0; i < schedule->count; i++) {
        const struct mr_scheduled *table = &schedule->items[i];
        bool is_proved =
            table->proved_ns != 0 && now_ns - table->proved_ns <= schedule->interval_ns;
        uint64_t unproved = table->unproved < table->rows ? table->unproved : table->rows;
        sum.proved += is_proved;
        sum.different += table->differences > 0;
        sum.void_now += table->cause[0] != '\0';
        sum.rows += table->rows;
        sum.rows_proved += is_proved ? table->rows - unproved : 0;
        sum.differences += table->differences;
        sum.oldest_ns = table->proved_ns < sum.oldest_ns ? table->proved_ns : sum.oldest_ns;
    }
    return sum;
}

double mr_schedule_percent(const struct mr_schedule_sum *sum)
{
    double all = sum->rows > 0 ? (double)sum->rows : (double)sum->tables;
    double proved = sum->rows > 0 ? (double)sum->rows_proved : (double)sum->proved;
    return all > 0 ? 100 * proved / all : 0;
}
