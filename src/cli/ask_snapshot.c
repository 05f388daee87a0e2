/* `millrace snapshot`: asks a running one for copies of existing rows, and prints how far they
 * are. */
#include <poll.h>

#include "ask/client.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "postgres/conn/condition.h"

enum { LOOK_MS = 50 };
#define PATIENCE_NS (INT64_C(45) * 1000000000) /* longer than a question to PostgreSQL may take */

static char *make_wish(const struct mr_ask_snapshot *wish)
{
    MR_OBJECT cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "type",
                            wish->pauses    ? "pause"
                            : wish->resumes ? "resume"
                            : wish->stops   ? "stop"
                                            : "start");
    cJSON *tables = cJSON_AddArrayToObject(object, "tables");
    for (uint32_t i = 0; i < wish->table_count; i++) {
        cJSON_AddItemToArray(tables, cJSON_CreateString(wish->tables[i]));
    }
    mr_object_add(object, "where", wish->where);
    mr_object_add(object, "key", wish->key);
    return mr_object_text(object);
}

static bool is_among(const cJSON *numbers, double number)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, numbers)
    {
        if (one->valuedouble == number) {
            return true;
        }
    }
    return false;
}

/* Of those that were asked for: true when all were looked at, and what was asked is stored; what is
 * wrong with the first that was refused. */
static bool all_checked(const cJSON *state, const cJSON *numbers, struct mr_error *ret_error)
{
    bool checked = !cJSON_IsFalse(mr_object_at(state, "stored"));
    const cJSON *one;
    cJSON_ArrayForEach(one, mr_object_at(state, "tables"))
    {
        if (is_among(numbers, mr_object_number(one, "request"))) {
            const char *word = mr_show_word(one, "state");
            checked = checked && strcmp(word, "checked") != 0;
            if (strcmp(word, "failed") == 0) {
                mr_error_set(ret_error, MR_ERR_CONFIG, "%s", mr_show_word(one, "error"));
            }
        }
    }
    return checked;
}

static void print_state(const cJSON *state, FILE *to)
{
    const cJSON *tables = mr_object_at(state, "tables");
    if (mr_show_is(state, "paused")) {
        fputs("paused: millrace snapshot --resume goes on\n", to);
    }
    if (cJSON_GetArraySize(tables) == 0) {
        fputs("nothing is copied\n", to);
    }
    bool is_running = false;
    const cJSON *one;
    cJSON_ArrayForEach(one, tables)
    {
        const char *word = mr_show_word(one, "state");
        bool is_over = strcmp(word, "done") == 0 || strcmp(word, "failed") == 0 ||
                       strcmp(word, "stopped") == 0;
        is_running = is_running || !is_over;
        double seconds = mr_object_number(one, "seconds");
        double rows = mr_object_number(one, "rows");
        fprintf(to, "%-40s %-8s %12s rows, about %s in all, %s%s\n", mr_show_word(one, "table"),
                strcmp(word, "copied") == 0 ? "copying" : word, mr_show_count(rows).bytes,
                MR_SHOW_COUNT(one, "rows_estimated"), mr_show_seconds(seconds).bytes,
                mr_show_word(one, "error")[0] == '\0' ? "" : ": it failed");
    }
    if (is_running) {
        fputs("not done yet; millrace snapshot says when it is\n", to);
    }
}

mr_status mr_ask_snapshots(const struct mr_http_options *server, const struct mr_ask_snapshot *wish,
                           FILE *to, struct mr_error *ret_error)
{
    const char *fault = wish->where != NULL && wish->where[0] == '\0'
                            ? MR_SQL_CONDITION_EMPTY
                            : mr_sql_condition_fault(wish->where);
    if (fault != NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG, MR_SQL_CONDITION_REFUSED "%s", fault);
    }
    MR_OBJECT cJSON *taken = NULL;
    bool asks = wish->pauses || wish->resumes || wish->stops || wish->table_count > 0;
    if (asks) {
        MR_FREED char *text = make_wish(wish);
        MR_TRY(mr_client_object(server, "/api/snapshot", text, &taken, ret_error));
    }
    struct mr_error refused = {0};
    const cJSON *first = cJSON_GetArrayItem(mr_object_at(taken, "errors"), 0);
    if (first != NULL) {
        mr_error_set(&refused, MR_ERR_CONFIG, "%s", mr_show_word(first, ""));
    }
    const cJSON *numbers = mr_object_at(taken, "requests");
    cJSON *state = NULL;
    int64_t end_ns = mr_monotonic_ns() + PATIENCE_NS;
    mr_status status;
    while ((status = mr_client_object(server, "/api/snapshot/outcome", NULL, &state, ret_error)) ==
               MR_OK &&
           !all_checked(state, numbers, &refused) && asks && mr_monotonic_ns() < end_ns) {
        cJSON_Delete(state);
        poll(NULL, 0, LOOK_MS);
    }
    bool is_stored = status != MR_OK || !cJSON_IsFalse(mr_object_at(state, "stored"));
    if (status == MR_OK) {
        print_state(state, to);
        fflush(to);
        cJSON_Delete(state);
    }
    if (status == MR_OK && refused.text[0] != '\0') {
        *ret_error = refused;
        return refused.status;
    }
    return is_stored || !asks
               ? status
               : mr_fail(ret_error, MR_ERR_TRANSIENT,
                         "what was asked for could not be stored yet, and a kill of millrace would "
                         "forget it; see what keeps Kafka or the stream (millrace status), and "
                         "look again once it goes on (millrace snapshot)");
}
