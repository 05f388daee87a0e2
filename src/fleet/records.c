/* The records of a fleet's topics, from and to JSON: a table of fields for each kind. */
#include <math.h>

#include "base/object.h"
#include "fleet/store.h"

#define NUMBER_MAX ((double)(UINT64_C(1) << 53))

#define REVISION_KEY "_revision"
#define NODE_KEY     "node/"

const char *const mr_fleet_states[FLEET_STATES] = {
    [FLEET_WAITING] = "waiting",     [FLEET_STARTING] = "starting", [FLEET_STANDBY] = "standby",
    [FLEET_STREAMING] = "streaming", [FLEET_BACKOFF] = "backoff",   [FLEET_HELD] = "held",
    [FLEET_ENDING] = "ending",       [FLEET_STOPPED] = "stopped",
};

struct field {
    const char *name;
    enum { IS_TEXT, IS_BOOL, IS_WHOLE, IS_REAL, IS_STATE } kind;
    bool is_needed;
    size_t at;   /* in struct fleet_record */
    double most; /* of a whole number; 0: as many as a double counts one by one */
};

#define FIELD(member, kind, needed, name, most)                                                    \
    {                                                                                              \
        name, kind, needed, offsetof(struct fleet_record, member), most                            \
    }
static const struct field of_revision[] = {
    FIELD(revision.number, IS_WHOLE, true, "revision", 0),
    FIELD(revision.count, IS_WHOLE, true, "count", 0),
    FIELD(revision.sha256, IS_TEXT, true, "sha256", 0),
    FIELD(revision.by, IS_TEXT, false, "by", 0),
    FIELD(revision.at, IS_TEXT, false, "at", 0),
};
static const struct field of_node[] = {
    FIELD(node.drains, IS_BOOL, true, "drain", 0),
};
static const struct field of_definition[] = {
    FIELD(definition.revision, IS_WHOLE, true, "revision", 0),
    FIELD(definition.generation, IS_WHOLE, true, "generation", 0),
    FIELD(definition.retry, IS_WHOLE, false, "retry", 0),
    FIELD(definition.terms.run, IS_BOOL, true, "run", 0),
    FIELD(definition.config, IS_TEXT, true, "config", 0),
    FIELD(definition.terms.weight, IS_WHOLE, false, "weight", FLEET_WEIGHT_MAX),
    FIELD(definition.terms.memory_max, IS_WHOLE, false, "memory_max", 0),
    FIELD(definition.terms.cpu_weight, IS_WHOLE, false, "cpu_weight", FLEET_CPU_WEIGHT_MAX),
};
static const struct field of_status[] = {
    FIELD(status.at_ms, IS_WHOLE, true, "at_ms", 0),
    FIELD(status.node, IS_TEXT, true, "node", 0),
    FIELD(status.pid, IS_WHOLE, false, "pid", 0),
    FIELD(status.generation, IS_WHOLE, true, "generation", 0),
    FIELD(status.retry, IS_WHOLE, false, "retry", 0),
    FIELD(status.state, IS_STATE, true, "state", 0),
    FIELD(status.is_surplus, IS_BOOL, false, "surplus", 0),
    FIELD(status.since_ms, IS_WHOLE, false, "since_ms", 0),
    FIELD(status.exit_code, IS_WHOLE, false, "exit_code", 0),
    FIELD(status.error, IS_TEXT, false, "error", 0),
    FIELD(status.program, IS_TEXT, false, "program", 0),
    FIELD(status.slot, IS_TEXT, false, "slot", 0),
    FIELD(status.lag_seconds, IS_REAL, false, "lag_seconds", 0),
    FIELD(status.lag_bytes, IS_REAL, false, "lag_bytes", 0),
    FIELD(status.retained_wal_bytes, IS_REAL, false, "retained_wal_bytes", 0),
    FIELD(status.rss_bytes, IS_REAL, false, "rss_bytes", 0),
    FIELD(status.cpu_seconds, IS_REAL, false, "cpu_seconds", 0),
    FIELD(status.rows, IS_REAL, false, "rows", 0),
    FIELD(status.bytes, IS_REAL, false, "bytes", 0),
    FIELD(status.starts, IS_REAL, false, "starts", 0),
};
static const struct field of_node_status[] = {
    FIELD(node_status.at_ms, IS_WHOLE, true, "at_ms", 0),
    FIELD(node_status.program, IS_TEXT, false, "program", 0),
    FIELD(node_status.revision, IS_WHOLE, true, "revision", 0),
    FIELD(node_status.processes, IS_WHOLE, false, "processes", 0),
    FIELD(node_status.owned, IS_TEXT, false, "partitions", 0),
    FIELD(node_status.is_drained, IS_BOOL, false, "drained", 0),
    FIELD(node_status.is_ready, IS_BOOL, false, "ready", 0),
};

struct form {
    const struct field *fields;
    size_t count;
};
#define FORM(fields)                                                                               \
    {                                                                                              \
        fields, MR_ARRAY_LEN(fields)                                                               \
    }
static const struct form forms[] = {
    [FLEET_RECORD_REVISION] = FORM(of_revision),       [FLEET_RECORD_NODE] = FORM(of_node),
    [FLEET_RECORD_DEFINITION] = FORM(of_definition),   [FLEET_RECORD_STATUS] = FORM(of_status),
    [FLEET_RECORD_NODE_STATUS] = FORM(of_node_status), [FLEET_RECORD_OTHER] = {NULL, 0},
};

/* Where its name is, the first of each kind; NULL: it has none. */
static char **name_of(struct fleet_record *record)
{
    bool has_name = record->kind != FLEET_RECORD_REVISION && record->kind != FLEET_RECORD_OTHER;
    return has_name ? &record->definition.name : NULL;
}

void mr_fleet_record_done(struct fleet_record *record)
{
    const struct form *form = &forms[record->kind];
    char **name = name_of(record);
    for (size_t i = 0; i < form->count; i++) {
        if (form->fields[i].kind == IS_TEXT) {
            free(*(char **)((char *)record + form->fields[i].at));
        }
    }
    if (name != NULL) {
        free(*name);
    }
    *record = (struct fleet_record){0};
}

static bool take_whole(const struct field *field, const cJSON *item, int64_t *to)
{
    double value = cJSON_GetNumberValue(item); /* NaN: it is not one */
    if (!(value >= 0 && value <= (field->most > 0 ? field->most : NUMBER_MAX)) ||
        value != floor(value)) {
        return false;
    }
    *to = (int64_t)value;
    return true;
}

static bool take_state(const char *word, enum fleet_state *to)
{
    for (int i = 0; word != NULL && i < FLEET_STATES; i++) {
        if (strcmp(word, mr_fleet_states[i]) == 0) {
            *to = (enum fleet_state)i;
            return true;
        }
    }
    return false;
}

static bool take_field(const struct field *field, const cJSON *json, struct fleet_record *record)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, field->name);
    const char *text = cJSON_GetStringValue(item);
    void *to = (char *)record + field->at;
    if (item == NULL) {
        if (field->kind == IS_TEXT) {
            *(char **)to = MR_STRDUP("");
        } else if (field->kind == IS_REAL) {
            *(double *)to = -1;
        }
        return !field->is_needed;
    }
    switch (field->kind) {
    case IS_TEXT:
        *(char **)to = MR_STRDUP(text == NULL ? "" : text);
        return text != NULL;
    case IS_BOOL:
        *(bool *)to = cJSON_IsTrue(item);
        return cJSON_IsBool(item);
    case IS_REAL:
        *(double *)to = cJSON_IsNumber(item) ? item->valuedouble : -1;
        return cJSON_IsNumber(item) || cJSON_IsNull(item);
    case IS_STATE:
        return take_state(text, to);
    case IS_WHOLE:
        break;
    }
    return take_whole(field, item, to);
}

static mr_status take_value(const char *what, const cJSON *json, struct fleet_record *record,
                            struct mr_error *ret_error)
{
    const struct form *form = &forms[record->kind];
    double version = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(json, "version"));
    const char *wrong = !(version >= 1) ? "version" : NULL;
    if (version > FLEET_RECORD_VERSION) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the fleet's record of %s was written by a later millrace; take that one",
                       what);
    }
    for (size_t i = 0; i < form->count; i++) {
        if (!take_field(&form->fields[i], json, record)) {
            wrong = form->fields[i].name;
        }
    }
    return wrong == NULL ? MR_OK
                         : mr_fail(ret_error, MR_ERR_PROTOCOL,
                                   "the fleet's record of %s can't be read: \"%s\" is missing or "
                                   "wrong; millrace fleet apply writes it again",
                                   what, wrong);
}

static enum fleet_record_kind kind_of(bool is_status, int32_t partition, const char *name,
                                      bool is_node)
{
    bool is_first = is_status || partition == 0;
    if (!is_status && is_first && !is_node && strcmp(name, REVISION_KEY) == 0) {
        return FLEET_RECORD_REVISION;
    }
    if (!mr_fleet_is_name(name) || (!is_status && is_first != is_node)) {
        return FLEET_RECORD_OTHER;
    }
    return is_status ? is_node ? FLEET_RECORD_NODE_STATUS : FLEET_RECORD_STATUS
           : is_node ? FLEET_RECORD_NODE
                     : FLEET_RECORD_DEFINITION;
}

mr_status mr_fleet_record_read(bool is_status, const struct mr_kafka_read *read,
                               struct fleet_record *ret, struct mr_error *ret_error)
{
    MR_FREED char *key =
        MR_STRNDUP(read->key.data == NULL ? "" : (const char *)read->key.data, read->key.len);
    bool is_node = strncmp(key, NODE_KEY, strlen(NODE_KEY)) == 0;
    const char *name = strlen(key) < read->key.len ? "" /* it has a NUL */
                                                   : key + (is_node ? strlen(NODE_KEY) : 0);
    *ret = (struct fleet_record){.kind = kind_of(is_status, read->partition, name, is_node),
                                 .is_gone = read->value.data == NULL};
    if (name_of(ret) != NULL) {
        *name_of(ret) = MR_STRDUP(name);
    }
    if (ret->kind == FLEET_RECORD_DEFINITION) {
        ret->definition.partition = read->partition;
        ret->definition.terms.weight = 1;
    }
    if (ret->is_gone || ret->kind == FLEET_RECORD_OTHER) {
        return MR_OK;
    }
    MR_OBJECT cJSON *json = cJSON_ParseWithLength((const char *)read->value.data, read->value.len);
    return take_value(key, json, ret, ret_error);
}

char *mr_fleet_record_key(const struct fleet_record *record)
{
    struct fleet_record copy = *record;
    char **name = name_of(&copy);
    bool is_node = record->kind == FLEET_RECORD_NODE || record->kind == FLEET_RECORD_NODE_STATUS;
    return mr_formatted("%s%s", is_node ? NODE_KEY : "", name == NULL ? REVISION_KEY : *name);
}

static void add_field(cJSON *json, const struct field *field, const void *from)
{
    switch (field->kind) {
    case IS_TEXT: {
        const char *text = *(char *const *)from;
        if (text != NULL && (text[0] != '\0' || field->is_needed)) {
            cJSON_AddStringToObject(json, field->name, text);
        }
        break;
    }
    case IS_BOOL:
        cJSON_AddBoolToObject(json, field->name, *(const bool *)from);
        break;
    case IS_WHOLE:
        if (*(const int64_t *)from >= 0) {
            cJSON_AddNumberToObject(json, field->name, (double)*(const int64_t *)from);
        }
        break;
    case IS_REAL:
        if (*(const double *)from >= 0 && isfinite(*(const double *)from)) {
            cJSON_AddNumberToObject(json, field->name, *(const double *)from);
        }
        break;
    case IS_STATE:
        cJSON_AddStringToObject(json, field->name,
                                mr_fleet_states[*(const enum fleet_state *)from]);
        break;
    }
}

cJSON *mr_fleet_record_json(const struct fleet_record *record)
{
    const struct form *form = &forms[record->kind];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "version", FLEET_RECORD_VERSION);
    for (size_t i = 0; i < form->count; i++) {
        add_field(json, &form->fields[i], (const char *)record + form->fields[i].at);
    }
    return json;
}

char *mr_fleet_record_value(const struct fleet_record *record)
{
    if (record->is_gone) {
        return NULL;
    }
    MR_OBJECT cJSON *json = mr_fleet_record_json(record);
    return mr_object_text(json);
}
