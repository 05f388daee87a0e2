#include "control/snapshot.h"

#include "base/object.h"
#include "base/pattern.h"
#include "postgres/conn/condition.h"

enum { TABLES_MAX = 100, WHERE_MAX = 4096 };

static bool are_names(const cJSON *tables)
{
    const cJSON *one;
    const char *schema, *table;
    cJSON_ArrayForEach(one, tables)
    {
        MR_FREED char *name = cJSON_IsString(one) ? MR_STRDUP(one->valuestring) : NULL;
        if (name == NULL || !mr_table_name_split(name, &schema, &table)) {
            return false;
        }
    }
    return (tables == NULL || cJSON_IsArray(tables)) && cJSON_GetArraySize(tables) <= TABLES_MAX;
}

static void control_snapshot_ask(const struct mr_snapshot_routes *routes,
                                 const struct mr_copy_wish *wish, cJSON *answer)
{
    uint64_t id;
    struct mr_error error;
    mr_status status = MR_OK;
    if (mr_pipeline_stats(routes->pipeline).source.stands_by) { /* it may do so for months */
        mr_chunk_keys_free(wish->keys);
        status = mr_fail(&error, MR_ERR_CONFIG,
                         "this instance stands by: ask the one that streams from the slot "
                         "(\"millrace status\" says \"streaming\" there)");
    }
    if (MR_THEN(status, mr_copies_ask(routes->copies, wish, &id, &error)) == MR_OK) {
        cJSON_AddItemToArray(cJSON_GetObjectItem(answer, "requests"),
                             cJSON_CreateNumber((double)id));
    } else {
        cJSON_AddItemToArray(cJSON_GetObjectItem(answer, "errors"), cJSON_CreateString(error.text));
    }
}

static void control_snapshot_start(const struct mr_snapshot_routes *routes, const cJSON *tables,
                                   const char *where, const char *key, cJSON *answer)
{
    cJSON_AddArrayToObject(answer, "requests");
    cJSON_AddArrayToObject(answer, "errors");
    const cJSON *one;
    cJSON_ArrayForEach(one, tables)
    {
        struct mr_copy_wish wish = {.where = where, .key = key};
        (void)mr_table_name_split(one->valuestring, &wish.schema, &wish.table);
        control_snapshot_ask(routes, &wish, answer);
    }
}

/* Names are in two parts here: what a verifier has compared is asked for, and no other table. */
static bool control_snapshot_repair(const struct mr_snapshot_routes *routes, const cJSON *object,
                                    cJSON *answer)
{
    struct mr_copy_wish wish = {.schema = mr_object_string(object, "schema"),
                                .table = mr_object_string(object, "table"),
                                .keys = mr_chunk_keys_parse(object)};
    if (wish.schema == NULL || wish.table == NULL || wish.keys == NULL) {
        mr_chunk_keys_free(wish.keys);
        return false;
    }
    cJSON_AddArrayToObject(answer, "requests");
    cJSON_AddArrayToObject(answer, "errors");
    control_snapshot_ask(routes, &wish, answer);
    return true;
}

/* What `millrace recover` knows of the gap that it closes. */
static bool describe_gap(const struct mr_snapshot_routes *routes, const cJSON *wish, cJSON *answer)
{
    static const char *const ways[] = {"differing", "everything", "gap"};
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(wish, "settled");
    const char *settled = cJSON_GetStringValue(item);
    size_t way = 0;
    while (settled != NULL && way < MR_ARRAY_LEN(ways) && strcmp(ways[way], settled) != 0) {
        way++;
    }
    if ((item != NULL && settled == NULL) || way == MR_ARRAY_LEN(ways)) {
        return false;
    }
    const cJSON *tables = cJSON_GetObjectItemCaseSensitive(wish, "tables");
    cJSON_AddBoolToObject(answer, "noted", mr_copies_describe_gap(routes->copies, tables, settled));
    return true;
}

static void control_snapshot_stop(const struct mr_snapshot_routes *routes, const cJSON *tables,
                                  cJSON *answer)
{
    uint32_t count = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, tables)
    {
        const char *schema, *table;
        (void)mr_table_name_split(one->valuestring, &schema, &table);
        count += mr_copies_stop(routes->copies, schema, table);
    }
    if (cJSON_GetArraySize(tables) == 0) {
        count = mr_copies_stop(routes->copies, NULL, NULL);
    }
    cJSON_AddNumberToObject(answer, "stopped", count);
}

/* NULL: there is none. */
static bool control_snapshot_take_text(const cJSON *wish, const char *name, const char **ret)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(wish, name);
    *ret = cJSON_GetStringValue(item);
    return item == NULL || (*ret != NULL && strlen(*ret) <= WHERE_MAX);
}

static bool control_snapshot_run(const struct mr_snapshot_routes *routes, const cJSON *wish,
                                 cJSON *answer)
{
    const char *type = mr_object_string(wish, "type");
    const cJSON *tables = cJSON_GetObjectItemCaseSensitive(wish, "tables");
    const char *where, *key;
    if (type == NULL || !are_names(tables) || !control_snapshot_take_text(wish, "where", &where) ||
        !control_snapshot_take_text(wish, "key", &key)) {
        return false;
    }
    if (strcmp(type, "start") == 0 && cJSON_GetArraySize(tables) > 0) {
        control_snapshot_start(routes, tables, where, key, answer);
    } else if (strcmp(type, "stop") == 0) {
        control_snapshot_stop(routes, tables, answer);
    } else if (strcmp(type, "pause") == 0 || strcmp(type, "resume") == 0) {
        mr_copies_pause(routes->copies, type[0] == 'p');
    } else if (strcmp(type, "gap") == 0) {
        return describe_gap(routes, wish, answer);
    } else {
        return strcmp(type, "repair") == 0 && control_snapshot_repair(routes, wish, answer);
    }
    return true;
}

/* No thread would look at the wish (pipeline.stay_up). */
static bool refuses_ended(const struct mr_snapshot_routes *routes, cJSON *answer)
{
    bool has_ended = mr_standstill_has(mr_pipeline_standstill(routes->pipeline), MR_CAUSE_ENDED);
    if (has_ended) {
        cJSON_AddItemToArray(cJSON_AddArrayToObject(answer, "errors"),
                             cJSON_CreateString("millrace has ended, and only stays up for people "
                                                "to look (millrace status says why)"));
    }
    return has_ended;
}

static void post_snapshot(void *context, struct mr_http_request *request)
{
    const struct mr_snapshot_routes *routes = context;
    mr_slice upload = mr_http_upload(request);
    MR_OBJECT cJSON *wish = cJSON_ParseWithLength((const char *)upload.data, upload.len);
    cJSON *answer = cJSON_CreateObject();
    const char *where = mr_object_string(wish, "where");
    const char *fault =
        where != NULL && where[0] == '\0' ? MR_SQL_CONDITION_EMPTY : mr_sql_condition_fault(where);
    if (fault != NULL) {
        cJSON_Delete(answer);
        mr_http_fail(request, 400, MR_SQL_CONDITION_REFUSED "%s", fault);
    } else if (refuses_ended(routes, answer) || control_snapshot_run(routes, wish, answer)) {
        mr_http_json(request, answer);
    } else {
        cJSON_Delete(answer);
        mr_http_fail(request, 400,
                     "this takes {\"type\":\"start\",\"tables\":[\"public.orders\"],\"where\":\"id "
                     "> 5\",\"key\":\"seq\"}, or "
                     "type stop (tables, or all), pause, resume; at most %d tables; or "
                     "{\"type\":\"repair\",\"schema\":\"public\",\"table\":\"orders\",\"why\":"
                     "\"missing\",\"columns\":[\"id\"],\"keys\":[[\"7\"]]}, at most %d keys",
                     TABLES_MAX, MR_CHUNK_KEYS_MAX);
    }
}

static void control_snapshot_get_outcome(void *context, struct mr_http_request *request)
{
    const struct mr_snapshot_routes *routes = context;
    MR_FREED struct mr_copy_request *requests =
        MR_NEW_ARRAY(struct mr_copy_request, MR_COPY_REQUESTS_MAX);
    bool paused;
    uint32_t count = mr_copies_requests(routes->copies, requests, MR_COPY_REQUESTS_MAX, &paused);
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddBoolToObject(answer, "paused", paused);
    cJSON_AddBoolToObject(answer, "stored", mr_copies_is_stored(routes->copies));
    cJSON *list = cJSON_AddArrayToObject(answer, "tables");
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_copy_request *one = &requests[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "request", (double)one->id);
        cJSON_AddStringToObject(item, "table", one->table);
        cJSON_AddStringToObject(item, "state", mr_copy_request_state_name(one->state));
        mr_object_add(item, "repairs", one->repairs);
        cJSON_AddNumberToObject(item, "rows", (double)one->rows);
        cJSON_AddNumberToObject(item, "rows_estimated", (double)one->rows_estimated);
        cJSON_AddNumberToObject(item, "passed_over", (double)one->passed_over);
        cJSON_AddNumberToObject(item, "chunks", (double)one->chunks);
        cJSON_AddNumberToObject(item, "repeated", (double)one->repeated);
        cJSON_AddNumberToObject(item, "seconds", one->seconds);
        cJSON_AddStringToObject(item, "error", one->error);
        cJSON_AddItemToArray(list, item);
    }
    mr_http_json(request, answer);
}

void mr_snapshot_routes_add(struct mr_http *http, struct mr_snapshot_routes *context)
{
    static const struct mr_http_route routes[] = {
        {.path = "/api/snapshot", .handler = post_snapshot, .post = true, .commands = true},
        {.path = "/api/snapshot/outcome",
         .handler = control_snapshot_get_outcome,
         .commands = true},
    };
    mr_http_add_all(http, routes, MR_ARRAY_LEN(routes), context);
}
