#include "verify/repair.h"

#include <poll.h>

#include "ask/client.h"
#include "base/clock.h"
#include "base/object.h"

/* Of a request's keys: no more than POST /api/snapshot takes (MR_CHUNK_KEYS_MAX in
 * copy/chunk_keys.h). */
enum { LOOK_MS = 50, KEYS_MAX = 1000, BYTES_MAX = 128 * 1024 };
/* A request that does not move for so long waits for somebody. */
#define PATIENCE_NS (INT64_C(60) * 1000000000)

const char *mr_repair_refusal(const struct mr_verify_table *table, const char **ret_column)
{
    const char *why = table->key_count == 0 ? "it has no key" : NULL;
    *ret_column = "";
    for (uint32_t i = 0; i < table->key_count && why == NULL; i++) {
        const struct mr_verify_column *column = &table->columns[table->key[i]];
        why = column->treatment != MR_TREAT_NOT
                  ? "its key is masked, cut, hashed or left out: column "
              : column->form.back == NULL
                  ? "its key's events do not say the server's value (docs/verify.md): column "
                  : NULL;
        *ret_column = why == NULL ? "" : column->name;
    }
    return why;
}

void mr_repair_judge(const struct mr_verify_table *table, const struct mr_encode_options *encode,
                     struct mr_proof *proof)
{
    const char *column;
    const char *why = mr_repair_refusal(table, &column);
    proof->converts = encode->types != MR_TYPES_TEXT;
    snprintf(proof->unrepairable, sizeof(proof->unrepairable), "%s%s", why == NULL ? "" : why,
             column);
}

static void add_text(cJSON *list, const struct mr_scanned *value)
{
    MR_FREED char *text = MR_STRNDUP((const char *)value->text.data, value->text.len);
    if (value->kind == MR_SCAN_STRING) {
        text[mr_scan_unescape(value, (uint8_t *)text)] = '\0';
    } else if (value->kind != MR_SCAN_NUMBER) {
        text[1] = '\0'; /* a boolean is "t" or "f" */
    }
    cJSON_AddItemToArray(list, cJSON_CreateString(text));
}

/* A key as PostgreSQL's texts. False: a value of it has none. */
static bool split_key(const char *key, cJSON *names, cJSON *texts)
{
    struct mr_scan scan = mr_scan_members(mr_slice_of(key));
    struct mr_scanned name, value;
    while (mr_scan_member(&scan, &name, &value)) {
        if (value.kind == MR_SCAN_NULL || value.kind >= MR_SCAN_OBJECT) {
            return false;
        }
        add_text(names, &name);
        add_text(texts, &value);
    }
    return !scan.failed;
}

/* The keys of a request. */
struct wish {
    cJSON *columns, *keys;
    uint32_t count;
    size_t bytes;
};

/* False: there is no room, or its columns are written in another order, so it goes into another
 * request. */
static bool repair_take_key(struct wish *wish, const char *key)
{
    cJSON *names = cJSON_CreateArray();
    cJSON *texts = cJSON_CreateArray();
    size_t len = strlen(key);
    bool is_good = split_key(key, names, texts) && len <= BYTES_MAX;
    bool fits = wish->count == 0 || (wish->count < KEYS_MAX && wish->bytes + len <= BYTES_MAX &&
                                     cJSON_Compare(wish->columns, names, true));
    if (is_good && fits) {
        cJSON_Delete(wish->columns);
        wish->columns = names;
        cJSON_AddItemToArray(wish->keys, texts);
        wish->bytes += len;
        wish->count++;
    } else {
        cJSON_Delete(names);
        cJSON_Delete(texts);
    }
    return fits || !is_good;
}

static struct wish next_wish(const struct mr_proof *proof, enum mr_difference_kind kind,
                             uint32_t *at)
{
    struct wish wish = {.keys = cJSON_CreateArray()};
    for (; *at < proof->named_count; ++*at) {
        const struct mr_verify_named *named = &proof->named[*at];
        const char *key = proof->converts ? named->asked : named->key;
        if (named->difference.kind == kind && key != NULL && !repair_take_key(&wish, key)) {
            break;
        }
    }
    return wish;
}

static const cJSON *find_request(const cJSON *state, uint64_t id, const char *why)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(state, "tables"))
    {
        if (mr_said_number(one, "request") == id &&
            strcmp(mr_said_word(one, "repairs"), why) == 0) {
            return one;
        }
    }
    return NULL;
}

/* Why a request (NULL: it is not there any more) did not come to its end, or does not for now;
 * NULL: it did, or may still. */
static const char *fault_of(const cJSON *state, const cJSON *request, bool is_over)
{
    const char *error = mr_said_word(request, "error");
    if (is_over && strcmp(mr_said_word(request, "state"), "done") == 0) {
        return NULL;
    }
    if (is_over) {
        return error[0] != '\0' ? error
                                : "millrace was started again, or its connection to Kafka, or "
                                  "somebody has stopped it (millrace snapshot --stop)";
    }
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(state, "paused"))
               ? "copies are paused, and it waits for millrace snapshot --resume"
               : NULL;
}

/* Looks at the request once. True: there is nothing to wait for. */
static bool repair_look(const struct mr_http_options *server, uint64_t id, const char *why,
                        struct mr_repair *repair, uint64_t *ret_moved)
{
    MR_OBJECT cJSON *state = NULL;
    if (mr_client_object(server, "/api/snapshot/outcome", NULL, &state, &repair->fault) != MR_OK) {
        return true; /* the next proof says how far it came */
    }
    const cJSON *request = find_request(state, id, why);
    const char *word = mr_said_word(request, "state");
    bool is_over = request == NULL || strcmp(word, "done") == 0 || strcmp(word, "failed") == 0 ||
                   strcmp(word, "stopped") == 0;
    const char *fault = fault_of(state, request, is_over);
    *ret_moved = mr_said_number(request, "rows") + mr_said_number(request, "passed_over");
    if (is_over) {
        repair->sent += mr_said_number(request, "rows");
        repair->passed_over += mr_said_number(request, "passed_over");
    }
    if (fault != NULL) {
        mr_error_set(&repair->fault, MR_ERR_TRANSIENT, "%s", fault);
    }
    return is_over || fault != NULL;
}

static mr_status wait_for(const struct mr_verify_tools *tools, uint64_t id, const char *why,
                          struct mr_repair *repair, struct mr_error *ret_error)
{
    struct pollfd fd = {.fd = tools->stop_fd, .events = POLLIN};
    int64_t moved_ns = mr_monotonic_ns();
    uint64_t last = 0;
    uint64_t now = 0;
    while (!repair_look(&tools->config->http, id, why, repair, &now)) {
        moved_ns = now == last ? moved_ns : mr_monotonic_ns();
        last = now;
        if (mr_monotonic_ns() - moved_ns > PATIENCE_NS) {
            mr_error_set(&repair->fault, MR_ERR_TRANSIENT,
                         "it has not moved for a minute (millrace status says for what copies "
                         "wait), and goes on once it can");
            return MR_OK;
        }
        if (poll(&fd, 1, LOOK_MS) > 0) {
            return mr_fail(ret_error, MR_AGAIN, "interrupted");
        }
    }
    return MR_OK;
}

/* The keys of the wish are gone then. */
static mr_status repair_ask(const struct mr_verify_tools *tools, const struct mr_proof *proof,
                            const char *why, struct wish *wish, struct mr_repair *repair,
                            struct mr_error *ret_error)
{
    MR_OBJECT cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "type", "repair");
    cJSON_AddStringToObject(object, "schema", proof->listed->schema);
    cJSON_AddStringToObject(object, "table", proof->listed->table);
    cJSON_AddStringToObject(object, "why", why);
    cJSON_AddItemToObject(object, "columns", wish->columns);
    cJSON_AddItemToObject(object, "keys", wish->keys);
    MR_FREED char *text = cJSON_PrintUnformatted(object);
    MR_OBJECT cJSON *answer = NULL;
    MR_TRY(mr_client_object(&tools->config->http, "/api/snapshot", text, &answer, ret_error));
    const cJSON *number =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(answer, "requests"), 0);
    const char *error = cJSON_GetStringValue(
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(answer, "errors"), 0));
    if (cJSON_IsNumber(number)) {
        return wait_for(tools, (uint64_t)number->valuedouble, why, repair, ret_error);
    }
    mr_error_set(&repair->fault, MR_ERR_CONFIG, "%s", error == NULL ? "it is refused" : error);
    return MR_OK;
}

mr_status mr_repair(const struct mr_verify_tools *tools, const struct mr_proof *proof,
                    struct mr_repair *ret, struct mr_error *ret_error)
{
    *ret = (struct mr_repair){0};
    if (proof->unrepairable[0] != '\0') {
        mr_error_set(&ret->fault, MR_ERR_CONFIG, "%s", proof->unrepairable);
        return MR_OK;
    }
    for (int kind = proof->verdict == MR_VERIFY_DIFFERENT ? 0 : MR_DIFFERENCE_UNKNOWN;
         kind < MR_DIFFERENCE_COUNT; kind++) {
        for (uint32_t at = 0; at < proof->named_count && ret->fault.status == MR_OK;) {
            struct wish wish = next_wish(proof, (enum mr_difference_kind)kind, &at);
            ret->asked += wish.count;
            if (wish.count > 0 && tools->options->yes) {
                MR_TRY(repair_ask(tools, proof, mr_difference_names[kind], &wish, ret, ret_error));
            } else {
                cJSON_Delete(wish.columns);
                cJSON_Delete(wish.keys);
            }
        }
    }
    uint32_t unknown = 0;
    for (uint32_t i = 0; proof->converts && i < proof->named_count; i++) {
        unknown += proof->named[i].key != NULL && proof->named[i].asked == NULL;
    }
    if (unknown > 0 && ret->fault.status == MR_OK) {
        mr_error_set(&ret->fault, MR_ERR_CONFIG,
                     "of %u keys the server makes no value whose event has that key", unknown);
    }
    return MR_OK;
}

void mr_repair_print(const struct mr_verify_tools *tools, const struct mr_proof *proof,
                     const struct mr_repair *repair, FILE *to)
{
    const struct mr_verify_options *options = tools->options;
    const char *fault = repair->fault.status == MR_OK ? "" : repair->fault.text;
    if (options->json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "schema", proof->listed->schema);
        cJSON_AddStringToObject(object, "table", proof->listed->table);
        cJSON_AddStringToObject(object, "repair", options->yes ? "done" : "dry run");
        cJSON_AddNumberToObject(object, "keys", repair->asked);
        cJSON_AddNumberToObject(object, "sent", (double)repair->sent);
        cJSON_AddNumberToObject(object, "passed_over", (double)repair->passed_over);
        cJSON_AddStringToObject(object, "fault", fault);
        mr_said_print(object, to);
    } else if (options->yes) {
        fprintf(to, "  repair of %u keys: %llu sent again or deleted, %llu right by now%s%s\n",
                repair->asked, (unsigned long long)repair->sent,
                (unsigned long long)repair->passed_over, fault[0] == '\0' ? "" : "; ", fault);
    } else {
        fprintf(to, "  %u keys would be sent again or deleted: --yes does it%s%s\n", repair->asked,
                fault[0] == '\0' ? "" : "; ", fault);
    }
    fflush(to);
}
