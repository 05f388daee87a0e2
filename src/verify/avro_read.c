#include "verify/avro_read.h"

#include <math.h>

#include "base/object.h"

enum { PARTS_MAX = 2048, FULL_MAX = 512, DEPTH_MAX = 64, HEAD = 5 };
/* What JSON of a value may take: names of fields, and many times the value's bytes. What takes no
 * bytes could be told without end. */
enum { JSON_LEAST = 1 << 20, JSON_TIMES = 64 };

enum kind {
    KIND_NULL,
    KIND_BOOLEAN,
    KIND_INT,
    KIND_LONG,
    KIND_FLOAT,
    KIND_DOUBLE,
    KIND_BYTES,
    KIND_STRING,
    KIND_RECORD,
    KIND_ARRAY,
    KIND_MAP,
    KIND_UNION,
};

/* A type. A record may be used again by its name. */
struct node {
    struct node *next; /* of all that are made for a schema */
    enum kind kind;
    char *name;          /* of a record, in full; NULL: it has none */
    struct node **parts; /* fields of a record, items of an array or map, kinds of a union */
    char **names;        /* of fields */
    uint32_t count;
};

struct schema {
    int64_t id;
    bool is_missing; /* in the registry */
    struct node *nodes;
    struct node *root; /* NULL: it has what events have not */
};

struct mr_avro {
    const struct mr_registry_options *registry;
    struct schema *schemas;
    uint32_t count, room;
    struct mr_text key, value;
    char fault[64];
};

/* ---- schemas ---- */

static struct node *node_new(struct schema *schema, enum kind kind, uint32_t count)
{
    struct node *node = MR_NEW(struct node);
    node->kind = kind;
    node->next = schema->nodes;
    node->parts = MR_NEW_ARRAY(struct node *, count + 1);
    node->names = MR_NEW_ARRAY(char *, count + 1);
    node->count = count;
    schema->nodes = node;
    return node;
}

static void schema_done(struct schema *schema)
{
    while (schema->nodes != NULL) {
        struct node *node = schema->nodes;
        schema->nodes = node->next;
        mr_free_all(node->names, node->count);
        free(node->parts);
        free(node->name);
        free(node);
    }
}

static struct node *find_record(const struct schema *schema, const char *name)
{
    struct node *node = schema->nodes;
    while (node != NULL && (node->name == NULL || strcmp(node->name, name) != 0)) {
        node = node->next;
    }
    return node;
}

/* "name", in a namespace unless it says its own. */
static void full_name(const char *name, const char *space, char ret[FULL_MAX])
{
    bool is_full = strchr(name, '.') != NULL || space[0] == '\0';
    snprintf(ret, FULL_MAX, "%s%s%s", is_full ? "" : space, is_full ? "" : ".", name);
}

static struct node *take_type(struct schema *schema, const cJSON *json, const char *space,
                              int depth);

static struct node *avro_read_take_word(struct schema *schema, const char *word, const char *space)
{
    static const char *const words[] = {
        [KIND_NULL] = "null",   [KIND_BOOLEAN] = "boolean", [KIND_INT] = "int",
        [KIND_LONG] = "long",   [KIND_FLOAT] = "float",     [KIND_DOUBLE] = "double",
        [KIND_BYTES] = "bytes", [KIND_STRING] = "string"};
    for (size_t i = 0; i < MR_ARRAY_LEN(words); i++) {
        if (strcmp(words[i], word) == 0) {
            return node_new(schema, (enum kind)i, 0);
        }
    }
    char name[FULL_MAX];
    full_name(word, space, name);
    return find_record(schema, name);
}

static struct node *avro_read_take_record(struct schema *schema, const cJSON *json,
                                          const char *space, int depth)
{
    const char *name = mr_object_string(json, "name");
    const char *own = mr_object_string(json, "namespace");
    const cJSON *fields = cJSON_GetObjectItemCaseSensitive(json, "fields");
    if (name == NULL || !cJSON_IsArray(fields) || cJSON_GetArraySize(fields) > PARTS_MAX) {
        return NULL;
    }
    char full[FULL_MAX], inner[FULL_MAX];
    full_name(name, own == NULL ? space : own, full);
    snprintf(inner, sizeof(inner), "%s", full);
    char *dot = strrchr(inner, '.');
    inner[dot == NULL ? 0 : dot - inner] = '\0';
    struct node *node = node_new(schema, KIND_RECORD, (uint32_t)cJSON_GetArraySize(fields));
    node->name = MR_STRDUP(full);
    uint32_t i = 0;
    const cJSON *field;
    cJSON_ArrayForEach(field, fields)
    {
        const char *called = mr_object_string(field, "name");
        node->parts[i] =
            take_type(schema, cJSON_GetObjectItemCaseSensitive(field, "type"), inner, depth + 1);
        if (called == NULL || node->parts[i] == NULL) {
            return NULL;
        }
        node->names[i++] = MR_STRDUP(called);
    }
    return node;
}

static struct node *take_union(struct schema *schema, const cJSON *json, const char *space,
                               int depth)
{
    if (cJSON_GetArraySize(json) > PARTS_MAX) {
        return NULL;
    }
    struct node *node = node_new(schema, KIND_UNION, (uint32_t)cJSON_GetArraySize(json));
    uint32_t i = 0;
    const cJSON *part;
    cJSON_ArrayForEach(part, json)
    {
        node->parts[i] = take_type(schema, part, space, depth + 1);
        if (node->parts[i++] == NULL) {
            return NULL;
        }
    }
    return node;
}

/* NULL: it is none, or of a kind that no event has. */
static struct node *take_type(struct schema *schema, const cJSON *json, const char *space,
                              int depth)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(json, "type");
    const char *word = cJSON_GetStringValue(type);
    if (depth > DEPTH_MAX || json == NULL) {
        return NULL;
    }
    if (cJSON_IsString(json)) {
        return avro_read_take_word(schema, json->valuestring, space);
    }
    if (cJSON_IsArray(json)) {
        return take_union(schema, json, space, depth);
    }
    if (word == NULL) {
        return take_type(schema, type, space, depth + 1);
    }
    if (strcmp(word, "record") == 0) {
        return avro_read_take_record(schema, json, space, depth);
    }
    bool is_map = strcmp(word, "map") == 0;
    if (is_map || strcmp(word, "array") == 0) {
        struct node *node = node_new(schema, is_map ? KIND_MAP : KIND_ARRAY, 1);
        node->parts[0] =
            take_type(schema, cJSON_GetObjectItemCaseSensitive(json, is_map ? "values" : "items"),
                      space, depth + 1);
        return node->parts[0] == NULL ? NULL : node;
    }
    return avro_read_take_word(schema, word, space);
}

static struct schema schema_of(int64_t id, const char *text)
{
    struct schema schema = {.id = id};
    MR_OBJECT cJSON *json = cJSON_Parse(text);
    schema.root = take_type(&schema, json, "", 0);
    return schema;
}

/* ---- values ---- */

struct bytes {
    const uint8_t *at, *end;
    int depth; /* of records in records, which may take no bytes */
    size_t json_max;
};

/* A number of a variable length, with its sign in the lowest bit. */
static bool avro_read_take_long(struct bytes *bytes, int64_t *ret)
{
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 64 && bytes->at < bytes->end; shift += 7) {
        uint8_t byte = *bytes->at++;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret = (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
            return true;
        }
    }
    return false;
}

static bool take_slice(struct bytes *bytes, mr_slice *ret)
{
    int64_t len;
    if (!avro_read_take_long(bytes, &len) || len < 0 || len > bytes->end - bytes->at) {
        return false;
    }
    *ret = (mr_slice){.data = bytes->at, .len = (size_t)len};
    bytes->at += len;
    return true;
}

static bool avro_read_write_text(struct bytes *bytes, struct mr_text *to)
{
    mr_slice text;
    if (!take_slice(bytes, &text)) {
        return false;
    }
    mr_text_string(to, "\"");
    for (size_t i = 0, from = 0; i <= text.len; i++) {
        bool is_end = i == text.len;
        if (!is_end && text.data[i] >= 0x20 && text.data[i] != '"' && text.data[i] != '\\') {
            continue;
        }
        mr_text_add(to, text.data + from, i - from);
        if (!is_end) {
            mr_text_format(to, "\\u%04x", text.data[i]);
        }
        from = i + 1;
    }
    mr_text_string(to, "\"");
    return true;
}

static bool avro_read_write_bytes(struct bytes *bytes, struct mr_text *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    mr_slice slice;
    if (!take_slice(bytes, &slice)) {
        return false;
    }
    mr_text_string(to, "\"");
    for (size_t i = 0; i < slice.len; i += 3) {
        size_t left = slice.len - i;
        uint32_t group = (uint32_t)slice.data[i] << 16 |
                         (left > 1 ? (uint32_t)slice.data[i + 1] << 8 : 0) |
                         (left > 2 ? (uint32_t)slice.data[i + 2] : 0);
        const char four[] = {digits[group >> 18], digits[group >> 12 & 63],
                             left > 1 ? digits[group >> 6 & 63] : '=',
                             left > 2 ? digits[group & 63] : '='};
        mr_text_add(to, four, sizeof(four));
    }
    mr_text_string(to, "\"");
    return true;
}

/* What is no number is a string in JSON. */
static bool write_real(struct bytes *bytes, bool is_float, struct mr_text *to)
{
    size_t size = is_float ? sizeof(float) : sizeof(double);
    float small = 0;
    double number = 0;
    if ((size_t)(bytes->end - bytes->at) < size) {
        return false;
    }
    memcpy(is_float ? (void *)&small : (void *)&number, bytes->at,
           size); /* little-endian, as we are */
    bytes->at += size;
    number = is_float ? (double)small : number;
    if (isfinite(number)) {
        mr_text_format(to, "%.*g", is_float ? 9 : 17, number);
    } else {
        mr_text_string(to, isnan(number) ? "\"NaN\""
                           : number > 0  ? "\"Infinity\""
                                         : "\"-Infinity\"");
    }
    return true;
}

static bool avro_read_write_value(const struct node *node, struct bytes *bytes, struct mr_text *to);

static bool avro_read_write_record(const struct node *node, struct bytes *bytes, struct mr_text *to)
{
    if (++bytes->depth > DEPTH_MAX) {
        return false;
    }
    mr_text_string(to, "{");
    for (uint32_t i = 0; i < node->count; i++) {
        mr_text_format(to, "%s\"%s\":", i == 0 ? "" : ",", node->names[i]);
        if (!avro_read_write_value(node->parts[i], bytes, to)) {
            return false;
        }
    }
    bytes->depth--;
    mr_text_string(to, "}");
    return true;
}

/* Blocks of items, each with their number, or its negative and the block's size; the last has
 * none. */
static bool write_items(const struct node *node, struct bytes *bytes, struct mr_text *to)
{
    bool is_map = node->kind == KIND_MAP;
    bool is_first = true;
    int64_t count, size;
    mr_text_string(to, is_map ? "{" : "[");
    while (avro_read_take_long(bytes, &count)) {
        if (count == 0) {
            mr_text_string(to, is_map ? "}" : "]");
            return true;
        }
        if (count < 0 && !avro_read_take_long(bytes, &size)) {
            return false;
        }
        count = count == INT64_MIN ? 0 : count < 0 ? -count : count;
        for (; count > 0; count--, is_first = false) {
            mr_text_string(to, is_first ? "" : ",");
            bool good = !is_map || avro_read_write_text(bytes, to);
            mr_text_string(to, is_map ? ":" : "");
            if (!good || !avro_read_write_value(node->parts[0], bytes, to)) {
                return false;
            }
        }
    }
    return false;
}

static bool avro_read_write_value(const struct node *node, struct bytes *bytes, struct mr_text *to)
{
    int64_t number;
    if (to->len > bytes->json_max) {
        return false;
    }
    switch (node->kind) {
    case KIND_NULL:
        mr_text_string(to, "null");
        return true;
    case KIND_BOOLEAN:
        if (bytes->at == bytes->end || *bytes->at > 1) {
            return false;
        }
        mr_text_string(to, *bytes->at++ != 0 ? "true" : "false");
        return true;
    case KIND_INT:
    case KIND_LONG:
        if (!avro_read_take_long(bytes, &number)) {
            return false;
        }
        mr_text_format(to, "%lld", (long long)number);
        return true;
    case KIND_FLOAT:
    case KIND_DOUBLE:
        return write_real(bytes, node->kind == KIND_FLOAT, to);
    case KIND_BYTES:
        return avro_read_write_bytes(bytes, to);
    case KIND_STRING:
        return avro_read_write_text(bytes, to);
    case KIND_RECORD:
        return avro_read_write_record(node, bytes, to);
    case KIND_ARRAY:
    case KIND_MAP:
        return write_items(node, bytes, to);
    case KIND_UNION:
        return avro_read_take_long(bytes, &number) && number >= 0 && number < node->count &&
               avro_read_write_value(node->parts[number], bytes, to);
    }
    return false;
}

static bool avro_read_write_whole(const struct schema *schema, mr_slice value, struct mr_text *to)
{
    struct bytes bytes = {.at = value.data,
                          .end = value.data + value.len,
                          .json_max = JSON_LEAST + JSON_TIMES * value.len};
    to->len = 0;
    mr_text_string(to, "");
    return schema->root != NULL && avro_read_write_value(schema->root, &bytes, to) &&
           bytes.at == bytes.end;
}

bool mr_avro_text(const char *text, mr_slice bytes, struct mr_text *to)
{
    struct schema schema = schema_of(0, text);
    bool good = avro_read_write_whole(&schema, bytes, to);
    schema_done(&schema);
    return good;
}

/* ---- records ---- */

struct mr_avro *mr_avro_new(const struct mr_registry_options *registry)
{
    struct mr_avro *avro = MR_NEW(struct mr_avro);
    avro->registry = registry;
    return avro;
}

void mr_avro_free(struct mr_avro *avro)
{
    if (avro == NULL) {
        return;
    }
    for (uint32_t i = 0; i < avro->count; i++) {
        schema_done(&avro->schemas[i]);
    }
    free(avro->schemas);
    mr_text_done(&avro->key);
    mr_text_done(&avro->value);
    free(avro);
}

static mr_status find_schema(struct mr_avro *avro, int64_t id, const struct schema **ret,
                             struct mr_error *ret_error)
{
    uint32_t at = 0;
    while (at < avro->count && avro->schemas[at].id != id) {
        at++;
    }
    if (at == avro->count) {
        char *text = NULL;
        mr_status status = mr_registry_schema(avro->registry, (uint32_t)id, &text, ret_error);
        if (status != MR_OK && status != MR_ERR_PROTOCOL) {
            return status;
        }
        MR_GROW(avro->schemas, avro->room, (size_t)avro->count + 1);
        avro->schemas[avro->count] = schema_of(id, text);
        avro->schemas[avro->count++].is_missing = status != MR_OK;
        free(text);
    }
    *ret = &avro->schemas[at];
    return MR_OK;
}

static mr_status avro_read_part(struct mr_avro *avro, const char *called, mr_slice *part,
                                struct mr_text *to, struct mr_error *ret_error)
{
    const uint8_t *head = part->data;
    if (head == NULL || avro->fault[0] != '\0') {
        return MR_OK;
    }
    const struct schema *schema = NULL;
    if (part->len >= HEAD && head[0] == 0) {
        int64_t id = (int64_t)head[1] << 24 | head[2] << 16 | head[3] << 8 | head[4];
        MR_TRY(find_schema(avro, id, &schema, ret_error));
    }
    if (schema != NULL && schema->is_missing) {
        snprintf(avro->fault, sizeof(avro->fault),
                 "its %s is of schema %lld, which is in no registry", called,
                 (long long)schema->id);
    } else if (schema == NULL ||
               !avro_read_write_whole(
                   schema, (mr_slice){.data = head + HEAD, .len = part->len - HEAD}, to)) {
        snprintf(avro->fault, sizeof(avro->fault), "its %s is no Avro%s", called,
                 schema == NULL ? "" : " of its schema");
    } else {
        *part = (mr_slice){.data = (const uint8_t *)to->data, .len = to->len};
    }
    return MR_OK;
}

mr_status mr_avro_read(struct mr_avro *avro, struct mr_kafka_read *read, const char **ret_fault,
                       struct mr_error *ret_error)
{
    *ret_fault = NULL;
    if (avro == NULL) {
        return MR_OK;
    }
    avro->fault[0] = '\0';
    MR_TRY(avro_read_part(avro, "key", &read->key, &avro->key, ret_error));
    MR_TRY(avro_read_part(avro, "value", &read->value, &avro->value, ret_error));
    *ret_fault = avro->fault[0] == '\0' ? NULL : avro->fault;
    return MR_OK;
}
