#include "event/kin.h"

#include "base/object.h"
#include "base/thread.h"

/* Names can be long; the record that they are stored in must fit. */
enum { KIN_BYTES_MAX = 96 * 1024 };

/* The first stands for one of several. */
struct root {
    uint32_t oid;
    char *schema, *table;
};

struct part {
    uint32_t oid;
    uint32_t root;
    mr_lsn gone; /* seen so then; 0: it exists */
};

struct mr_kin {
    pthread_mutex_t lock;
    struct root *roots;
    uint32_t root_count, root_room;
    struct part *parts; /* in the order of their OIDs */
    uint32_t count, room;
    bool is_cut;     /* what was stored did not have all */
    bool was_logged; /* that it does not */
    char *stored;    /* NULL: it has changed since */
};

struct mr_kin *mr_kin_new(void)
{
    struct mr_kin *kin = MR_NEW(struct mr_kin);
    pthread_mutex_init(&kin->lock, NULL);
    MR_GROW(kin->roots, kin->root_room, 1);
    kin->roots[kin->root_count++] = (struct root){0};
    return kin;
}

void mr_kin_free(struct mr_kin *kin)
{
    if (kin == NULL) {
        return;
    }
    for (uint32_t i = 0; i < kin->root_count; i++) {
        free(kin->roots[i].schema);
        free(kin->roots[i].table);
    }
    free(kin->roots);
    free(kin->parts);
    free(kin->stored);
    pthread_mutex_destroy(&kin->lock);
    free(kin);
}

static struct part *part_of(const struct mr_kin *kin, uint32_t oid)
{
    return kin->count == 0
               ? NULL
               : bsearch(&oid, kin->parts, kin->count, sizeof(*kin->parts), mr_u32_compare);
}

static void kin_change(struct mr_kin *kin)
{
    free(kin->stored);
    kin->stored = NULL;
}

static uint32_t root_number(struct mr_kin *kin, uint32_t oid, const char *schema, const char *table)
{
    for (uint32_t i = 1; i < kin->root_count; i++) {
        const struct root *root = &kin->roots[i];
        if (root->oid == oid && strcmp(root->schema, schema) == 0 &&
            strcmp(root->table, table) == 0) {
            return i;
        }
    }
    MR_GROW(kin->roots, kin->root_room, kin->root_count + 1);
    kin->roots[kin->root_count] =
        (struct root){.oid = oid, .schema = MR_STRDUP(schema), .table = MR_STRDUP(table)};
    return kin->root_count++;
}

static void add_part(struct mr_kin *kin, uint32_t oid, uint32_t root)
{
    MR_GROW(kin->parts, kin->room, kin->count + 1);
    uint32_t at = kin->count++;
    for (; at > 0 && kin->parts[at - 1].oid > oid; at--) {
        kin->parts[at] = kin->parts[at - 1];
    }
    kin->parts[at] = (struct part){.oid = oid, .root = root};
    kin_change(kin);
}

/* A table of the same name was put in the place of the other, or it was renamed. */
static bool is_same_root(const struct root *a, const struct root *b)
{
    return a->table != NULL && b->table != NULL &&
           (a->oid == b->oid ||
            (strcmp(a->table, b->table) == 0 && strcmp(a->schema, b->schema) == 0));
}

/* What was taken out of the outermost table, with all that is in it, stays that one's. */
static void note_part(struct mr_kin *kin, uint32_t oid, uint32_t root)
{
    struct part *known = part_of(kin, oid);
    const struct part *above = root == 0 ? NULL : part_of(kin, kin->roots[root].oid);
    uint32_t outermost = above == NULL ? root : above->root;
    if (known == NULL) {
        add_part(kin, oid, outermost);
        return;
    }
    if (known->root == outermost || known->root == 0) {
        return;
    }
    known->root = is_same_root(&kin->roots[known->root], &kin->roots[outermost]) ? outermost : 0;
    kin_change(kin);
}

void mr_kin_note(struct mr_kin *kin, uint32_t oid, uint32_t root_oid, const char *schema,
                 const char *table)
{
    if (kin == NULL || oid == root_oid) {
        return;
    }
    MR_HOLD(&kin->lock);
    note_part(kin, oid, table == NULL ? 0 : root_number(kin, root_oid, schema, table));
}

bool mr_kin_find(struct mr_kin *kin, uint32_t oid, struct mr_kin_root *ret_root)
{
    if (kin == NULL) {
        return false;
    }
    MR_HOLD(&kin->lock);
    const struct part *part = part_of(kin, oid);
    if (part == NULL) {
        return false;
    }
    const struct root *root = &kin->roots[part->root];
    *ret_root = (struct mr_kin_root){.schema = root->schema, .table = root->table};
    return true;
}

bool mr_kin_is_cut(struct mr_kin *kin)
{
    if (kin == NULL) {
        return false;
    }
    MR_HOLD(&kin->lock);
    return kin->is_cut;
}

uint32_t mr_kin_add_oids(struct mr_kin *kin, struct mr_text *text)
{
    if (kin == NULL) {
        return 0;
    }
    MR_HOLD(&kin->lock);
    for (uint32_t i = 0; i < kin->count; i++) {
        mr_text_format(text, ",%u", kin->parts[i].oid);
    }
    return kin->count;
}

void mr_kin_note_gone(struct mr_kin *kin, uint32_t oid, mr_lsn now, mr_lsn confirmed)
{
    MR_HOLD(&kin->lock);
    struct part *part = part_of(kin, oid);
    if (part == NULL) {
        return;
    }
    part->gone = part->gone == 0 ? now : part->gone;
    if (confirmed > part->gone) {
        size_t after = (size_t)(kin->parts + kin->count - (part + 1));
        memmove(part, part + 1, after * sizeof(*part));
        kin->count--;
        kin_change(kin);
    }
}

static void add_root_parts(const struct mr_kin *kin, cJSON *roots, uint32_t root, uint32_t end)
{
    cJSON *one = NULL;
    for (uint32_t i = 0; i < end; i++) {
        if (kin->parts[i].root != root) {
            continue;
        }
        if (one == NULL) {
            one = cJSON_CreateArray();
            cJSON_AddItemToArray(roots, one);
            cJSON_AddItemToArray(one, cJSON_CreateNumber(kin->roots[root].oid));
            cJSON_AddItemToArray(one, cJSON_CreateString(root == 0 ? "" : kin->roots[root].schema));
            cJSON_AddItemToArray(one, cJSON_CreateString(root == 0 ? "" : kin->roots[root].table));
        }
        cJSON_AddItemToArray(one, cJSON_CreateNumber(kin->parts[i].oid));
    }
}

static char *format_parts(const struct mr_kin *kin, uint32_t end, bool is_cut)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddBoolToObject(json, "cut", is_cut);
    cJSON *roots = cJSON_AddArrayToObject(json, "roots");
    for (uint32_t root = 0; root < kin->root_count; root++) {
        add_root_parts(kin, roots, root, end);
    }
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

char *mr_kin_format(struct mr_kin *kin)
{
    MR_HOLD(&kin->lock);
    if (kin->count == 0 && !kin->is_cut) {
        return NULL;
    }
    if (kin->stored == NULL) {
        bool is_more = kin->count > MR_KIN_STORED_MAX;
        kin->stored =
            format_parts(kin, is_more ? MR_KIN_STORED_MAX : kin->count, kin->is_cut || is_more);
        if (strlen(kin->stored) > KIN_BYTES_MAX) {
            is_more = true;
            free(kin->stored);
            kin->stored = format_parts(kin, 0, true);
        }
        if (is_more && !kin->was_logged) {
            kin->was_logged = true;
            mr_log(MR_LOG_WARN, "columns_not_stored",
                   "rules for columns hide columns of more partitions than the stored position "
                   "names: at the next start nothing goes out of a table that may have been one of "
                   "the others",
                   MR_LOG_INT("partitions", kin->count));
        }
    }
    return MR_STRDUP(kin->stored);
}

static void take_root_parts(struct mr_kin *kin, const cJSON *stored)
{
    const cJSON *oid = cJSON_GetArrayItem(stored, 0);
    const cJSON *schema = cJSON_GetArrayItem(stored, 1);
    const cJSON *table = cJSON_GetArrayItem(stored, 2);
    if (!cJSON_IsNumber(oid) || !cJSON_IsString(schema) || !cJSON_IsString(table)) {
        return;
    }
    uint32_t root =
        table->valuestring[0] == '\0'
            ? 0
            : root_number(kin, (uint32_t)oid->valuedouble, schema->valuestring, table->valuestring);
    for (const cJSON *part = table->next; part != NULL; part = part->next) {
        if (cJSON_IsNumber(part) && part->valuedouble >= 1 && part->valuedouble <= UINT32_MAX) {
            note_part(kin, (uint32_t)part->valuedouble, root);
        }
    }
}

/* What is stored was known before what this process has seen, and comes first: what a table was a
 * partition of decides where that went since. */
void mr_kin_take(struct mr_kin *kin, const char *json)
{
    cJSON *object = cJSON_Parse(json);
    const cJSON *stored;
    MR_HOLD(&kin->lock);
    struct part *seen = kin->parts;
    uint32_t count = kin->count;
    kin->parts = NULL;
    kin->count = kin->room = 0;
    /* This process' own says nothing new. */
    kin->is_cut |=
        !kin->was_logged && cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "cut"));
    cJSON_ArrayForEach(stored, cJSON_GetObjectItemCaseSensitive(object, "roots"))
    {
        take_root_parts(kin, stored);
    }
    for (uint32_t i = 0; i < count; i++) {
        note_part(kin, seen[i].oid, seen[i].root);
    }
    free(seen);
    kin_change(kin);
    cJSON_Delete(object);
}
