#include "base/json.h"
#include "base/object.h"
#include "event/lsn.h"
#include "verify/proof.h"

static const char *const verdict_words[] = {[MR_VERIFY_EQUAL] = "equal",
                                            [MR_VERIFY_IN_PART] = "equal in part",
                                            [MR_VERIFY_UNPROVABLE] = "cannot be proved",
                                            [MR_VERIFY_NONE] = "no verdict",
                                            [MR_VERIFY_DIFFERENT] = "different"};

const char *const mr_difference_names[] = {
    [MR_DIFFERENCE_MISSING] = "missing", [MR_DIFFERENCE_PHANTOM] = "phantom",
    [MR_DIFFERENCE_STALE] = "stale",     [MR_DIFFERENCE_ALTERED] = "altered",
    [MR_DIFFERENCE_TORN] = "torn",       [MR_DIFFERENCE_UNKNOWN] = "unknown"};

enum { PLACE_MAX = 48 };

/* As the record's header mr-pos has it. */
static void write_place(struct mr_place place, char ret[PLACE_MAX])
{
    snprintf(ret, PLACE_MAX, "%016llX-%010llX-%llX", (unsigned long long)place.commit_lsn,
             (unsigned long long)place.order >> 4, (unsigned long long)place.order & 15);
}

static void print_named(const struct mr_verify_named *named, FILE *to)
{
    const struct mr_difference *one = &named->difference;
    fprintf(to, "  %-8s %s", mr_difference_names[one->kind],
            named->key == NULL ? "a row" : named->key);
    if (one->times > 1) {
        fprintf(to, ", %llu times", (unsigned long long)one->times);
    }
    if (one->last.offset < 0) {
        fputs("  no event\n", to);
        return;
    }
    char place[PLACE_MAX];
    write_place(one->last.place, place);
    fprintf(to, "  last event %s, partition %d offset %lld\n", place, one->last.partition,
            (long long)one->last.offset);
}

void mr_proof_print(const struct mr_proof *proof, FILE *to)
{
    fprintf(to, "%s.%s: %s", proof->listed->schema, proof->listed->table,
            verdict_words[proof->verdict]);
    if (proof->verdict != MR_VERIFY_UNPROVABLE) {
        fprintf(to, ", %llu rows, %llu records, at " MR_LSN_FORMAT,
                (unsigned long long)proof->counts.rows, (unsigned long long)proof->records,
                MR_LSN_ARGS(proof->moment));
    }
    fprintf(to, "%s%s\n", proof->reasons.data == NULL ? "" : ": ",
            proof->reasons.data == NULL ? "" : proof->reasons.data);
    uint64_t all = 0;
    for (int i = 0; i < MR_DIFFERENCE_COUNT; i++) {
        all += proof->counts.differences[i];
    }
    uint32_t most = proof->is_again ? MR_VERIFY_AGAIN_MAX : MR_VERIFY_NAMED_MAX;
    for (uint32_t i = 0; i < proof->named_count && i < most; i++) {
        print_named(&proof->named[i], to);
    }
    if (proof->named_count >= most && all > most) {
        fprintf(to, "  and others: %llu in all\n", (unsigned long long)all);
    }
}

static cJSON *named_json(const struct mr_verify_named *named)
{
    const struct mr_difference *one = &named->difference;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "kind", mr_difference_names[one->kind]);
    cJSON_AddItemToObject(object, "key",
                          named->key == NULL ? cJSON_CreateNull() : cJSON_CreateString(named->key));
    cJSON_AddNumberToObject(object, "times", (double)one->times);
    if (one->last.offset >= 0) {
        char place[PLACE_MAX];
        write_place(one->last.place, place);
        cJSON_AddStringToObject(object, "position", place);
        cJSON_AddNumberToObject(object, "partition", one->last.partition);
        cJSON_AddNumberToObject(object, "offset", (double)one->last.offset);
    }
    return object;
}

const char *mr_said_word(const cJSON *object, const char *name)
{
    const char *word = mr_object_string(object, name);
    return word == NULL ? "" : word;
}

uint64_t mr_said_number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) && item->valuedouble > 0 ? (uint64_t)item->valuedouble : 0;
}

void mr_said_print(cJSON *object, FILE *to)
{
    MR_FREED char *text = cJSON_PrintUnformatted(object);
    size_t len = strlen(text);
    /* A key may have bytes that are no UTF-8, and cJSON leaves them: they become what base/json.h
     * makes of them. */
    for (size_t i = 0, step; i < len; i += step) {
        step = mr_utf8_sequence((const uint8_t *)text + i, len - i);
        fwrite(step == 0 ? "\uFFFD" : text + i, step == 0 ? strlen("\uFFFD") : step, 1, to);
        step += step == 0;
    }
    fputc('\n', to);
    fflush(to);
    cJSON_Delete(object);
}

void mr_proof_print_json(const struct mr_proof *proof, FILE *to)
{
    const struct mr_fold_counts *counts = &proof->counts;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "schema", proof->listed->schema);
    cJSON_AddStringToObject(object, "table", proof->listed->table);
    cJSON_AddStringToObject(object, "verdict", verdict_words[proof->verdict]);
    cJSON_AddStringToObject(object, "reason",
                            proof->reasons.data == NULL ? "" : proof->reasons.data);
    cJSON_AddStringToObject(object, "cause", proof->cause == NULL ? "" : proof->cause);
    mr_lsn_add(object, "lsn", proof->moment);
    cJSON_AddNumberToObject(object, "rows", (double)counts->rows);
    cJSON_AddNumberToObject(object, "records", (double)proof->records);
    for (int i = 0; i < MR_DIFFERENCE_COUNT; i++) {
        cJSON_AddNumberToObject(object, mr_difference_names[i], (double)counts->differences[i]);
    }
    cJSON *named = cJSON_AddArrayToObject(object, "differences");
    for (uint32_t i = 0; i < proof->named_count; i++) {
        cJSON_AddItemToArray(named, named_json(&proof->named[i]));
    }
    mr_said_print(object, to);
}
