#include "event/kin.h"

#include "base/object.h"
#include "base/thread.h"

/* Names can be long; the record that they are stored in must fit. */
enum { KIN_BYTES_MAX = 96 * 1024 };

/* The first stands for one that is not known. */
struct root {
    uint32_t oid;
    char *schema, *table;
};

/* One that may be of several has an entry for each. */
struct part {
    uint32_t oid;
    uint32_t root, numbers; /* by their places among those */
    mr_lsn gone;            /* seen so then; 0: it exists */
};

struct mr_kin {
    pthread_mutex_t lock;
    struct root *roots;
    uint32_t root_count, root_room;
    char **numbers; /* as those of mr_origin, each once; the first is NULL */
    uint32_t number_count, number_room;
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
    MR_GROW(kin->numbers, kin->number_room, 1);
    kin->numbers[kin->number_count++] = NULL;
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
    mr_free_all(kin->numbers, kin->number_count);
    free(kin->roots);
    free(kin->parts);
    free(kin->stored);
    pthread_mutex_destroy(&kin->lock);
    free(kin);
}

/* The place of its first entry, or where that would be. */
static uint32_t kin_place(const struct mr_kin *kin, uint32_t oid)
{
    uint32_t begin = 0, end = kin->count;
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (kin->parts[middle].oid < oid) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

static uint32_t entries_at(const struct mr_kin *kin, uint32_t place, uint32_t oid)
{
    uint32_t count = 0;
    while (place + count < kin->count && kin->parts[place + count].oid == oid) {
        count++;
    }
    return count;
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

static uint32_t numbers_place(struct mr_kin *kin, const char *numbers)
{
    for (uint32_t i = 1; numbers != NULL && i < kin->number_count; i++) {
        if (strcmp(kin->numbers[i], numbers) == 0) {
            return i;
        }
    }
    if (numbers == NULL) {
        return 0;
    }
    MR_GROW(kin->numbers, kin->number_room, kin->number_count + 1);
    kin->numbers[kin->number_count] = MR_STRDUP(numbers);
    return kin->number_count++;
}

static void kin_insert(struct mr_kin *kin, uint32_t place, const struct part *part)
{
    MR_GROW(kin->parts, kin->room, kin->count + 1);
    memmove(&kin->parts[place + 1], &kin->parts[place], (kin->count - place) * sizeof(*kin->parts));
    kin->parts[place] = *part;
    kin->count++;
    kin_change(kin);
}

static void kin_remove(struct mr_kin *kin, uint32_t place, uint32_t count)
{
    if (count == 0) {
        return;
    }
    kin->count -= count;
    memmove(&kin->parts[place], &kin->parts[place + count],
            (kin->count - place) * sizeof(*kin->parts));
    kin_change(kin);
}

/* A table of the same name was put in the place of the other, or it was renamed. */
static bool is_same_root(const struct root *a, const struct root *b)
{
    return a->table != NULL && b->table != NULL &&
           ((a->oid == b->oid && a->oid != 0) ||
            (strcmp(a->table, b->table) == 0 && strcmp(a->schema, b->schema) == 0));
}

/* Of more than can be told of it is not known any more. */
static void kin_add(struct mr_kin *kin, const struct part *part)
{
    uint32_t place = kin_place(kin, part->oid);
    uint32_t count = entries_at(kin, place, part->oid);
    for (uint32_t i = place; i < place + count; i++) {
        struct part *known = &kin->parts[i];
        if (known->root == 0) {
            return;
        }
        if (is_same_root(&kin->roots[known->root], &kin->roots[part->root])) {
            uint32_t numbers =
                part->numbers == 0 && known->root == part->root ? known->numbers : part->numbers;
            if (known->root != part->root || known->numbers != numbers) {
                known->root = part->root;
                known->numbers = numbers;
                kin_change(kin);
            }
            return;
        }
    }
    if (part->root == 0 || count == MR_ORIGINS_MAX) {
        kin_remove(kin, place, count);
        kin_insert(kin, place, &(struct part){.oid = part->oid});
        return;
    }
    kin_insert(kin, place + count, part);
}

static bool is_same_numbers(const struct mr_kin *kin, uint32_t numbers)
{
    return numbers != 0 && kin->numbers[numbers][0] == '\0';
}

/* What was taken out of the outermost table, with all that is in it, stays that one's, too. The
 * numbers of the two are not put together, unless they are the same everywhere. */
static void note_part(struct mr_kin *kin, uint32_t oid, uint32_t root, uint32_t numbers)
{
    uint32_t above_oid = kin->roots[root].oid;
    uint32_t above = kin_place(kin, above_oid);
    uint32_t count = root == 0 ? 0 : entries_at(kin, above, above_oid);
    struct part part = {.oid = oid, .root = root, .numbers = numbers};
    if (count == 0) {
        kin_add(kin, &part);
        return;
    }
    struct part origins[MR_ORIGINS_MAX];
    memcpy(origins, &kin->parts[above], count * sizeof(*origins));
    for (uint32_t i = 0; i < count; i++) {
        part.root = origins[i].root;
        part.numbers =
            is_same_numbers(kin, numbers) && is_same_numbers(kin, origins[i].numbers) ? numbers : 0;
        kin_add(kin, &part);
    }
    /* Rows come by its name once it is the outermost, and rules may name it. */
    kin_add(kin, &(struct part){.oid = oid, .root = root, .numbers = numbers});
}

void mr_kin_note(struct mr_kin *kin, uint32_t oid, const struct mr_origin *of)
{
    if (kin == NULL || oid == of->oid) {
        return;
    }
    MR_HOLD(&kin->lock);
    note_part(kin, oid, of->table == NULL ? 0 : root_number(kin, of->oid, of->schema, of->table),
              numbers_place(kin, of->numbers));
}

bool mr_kin_find(struct mr_kin *kin, uint32_t oid, struct mr_origins *ret_origins)
{
    if (kin == NULL) {
        return false;
    }
    MR_HOLD(&kin->lock);
    uint32_t place = kin_place(kin, oid);
    uint32_t count = entries_at(kin, place, oid);
    if (count == 0) {
        return false;
    }
    ret_origins->count = 0;
    for (uint32_t i = place; i < place + count && kin->parts[i].root != 0; i++) {
        const struct root *root = &kin->roots[kin->parts[i].root];
        ret_origins->items[ret_origins->count++] =
            (struct mr_origin){.oid = root->oid,
                               .schema = root->schema,
                               .table = root->table,
                               .numbers = kin->numbers[kin->parts[i].numbers]};
    }
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
    uint32_t count = 0;
    for (uint32_t i = 0; i < kin->count; i++) {
        if (i == 0 || kin->parts[i].oid != kin->parts[i - 1].oid) {
            mr_text_format(text, ",%u", kin->parts[i].oid);
            count++;
        }
    }
    return count;
}

void mr_kin_note_gone(struct mr_kin *kin, uint32_t oid, mr_lsn now, mr_lsn confirmed)
{
    MR_HOLD(&kin->lock);
    uint32_t place = kin_place(kin, oid);
    uint32_t count = entries_at(kin, place, oid);
    if (count == 0) {
        return;
    }
    struct part *part = &kin->parts[place];
    part->gone = part->gone == 0 ? now : part->gone;
    if (confirmed > part->gone) {
        kin_remove(kin, place, count);
    }
}

void mr_kin_moved(struct mr_kin *there, uint32_t oid, struct mr_kin *here, uint32_t was)
{
    struct mr_origins origins;
    if (!mr_kin_find(here, was, &origins)) {
        return;
    }
    for (uint32_t i = 0; i < origins.count; i++) {
        const struct mr_origin *of = &origins.items[i];
        mr_kin_note(there, oid, &(struct mr_origin){.schema = of->schema, .table = of->table});
    }
    if (origins.count == 0) {
        mr_kin_note(there, oid, &(struct mr_origin){0});
    }
}

static cJSON *group_new(const struct root *root)
{
    cJSON *group = cJSON_CreateArray();
    cJSON_AddItemToArray(group, cJSON_CreateNumber(root->oid));
    cJSON_AddItemToArray(group, cJSON_CreateString(root->table == NULL ? "" : root->schema));
    cJSON_AddItemToArray(group, cJSON_CreateString(root->table == NULL ? "" : root->table));
    return group;
}

/* A group has a root and partitions with the same numbers; these are apart, so that an older
 * millrace reads the groups. */
static void add_groups(const struct mr_kin *kin, cJSON *roots, cJSON *numbers, uint32_t end)
{
    MR_FREED cJSON **groups = MR_NEW_ARRAY(cJSON *, (size_t)kin->root_count * kin->number_count);
    for (uint32_t i = 0; i < end; i++) {
        const struct part *part = &kin->parts[i];
        cJSON **group = &groups[(size_t)part->root * kin->number_count + part->numbers];
        if (*group == NULL) {
            const char *text = kin->numbers[part->numbers];
            *group = group_new(&kin->roots[part->root]);
            cJSON_AddItemToArray(roots, *group);
            cJSON_AddItemToArray(numbers,
                                 text == NULL ? cJSON_CreateNull() : cJSON_CreateString(text));
        }
        cJSON_AddItemToArray(*group, cJSON_CreateNumber(part->oid));
    }
}

static char *format_parts(const struct mr_kin *kin, uint32_t end, bool is_cut)
{
    MR_OBJECT cJSON *json = cJSON_CreateObject();
    cJSON_AddBoolToObject(json, "cut", is_cut);
    cJSON *roots = cJSON_AddArrayToObject(json, "roots");
    cJSON *numbers = cJSON_AddArrayToObject(json, "numbers");
    add_groups(kin, roots, numbers, end);
    return cJSON_PrintUnformatted(json);
}

/* How many entries those that are stored have. */
static uint32_t stored_end(const struct mr_kin *kin)
{
    uint32_t tables = 0, end = 0;
    for (; end < kin->count; end++) {
        tables += end == 0 || kin->parts[end].oid != kin->parts[end - 1].oid;
        if (tables > MR_KIN_STORED_MAX) {
            break;
        }
    }
    return end;
}

char *mr_kin_format(struct mr_kin *kin)
{
    MR_HOLD(&kin->lock);
    if (kin->count == 0 && !kin->is_cut) {
        return NULL;
    }
    if (kin->stored == NULL) {
        uint32_t end = stored_end(kin);
        bool is_more = end < kin->count;
        kin->stored = format_parts(kin, end, kin->is_cut || is_more);
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

static void take_group(struct mr_kin *kin, const cJSON *stored, const char *numbers)
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
            note_part(kin, (uint32_t)part->valuedouble, root, numbers_place(kin, numbers));
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
    const cJSON *numbers = cJSON_GetObjectItemCaseSensitive(object, "numbers");
    numbers = numbers == NULL ? NULL : numbers->child; /* an older millrace has none */
    cJSON_ArrayForEach(stored, cJSON_GetObjectItemCaseSensitive(object, "roots"))
    {
        take_group(kin, stored, cJSON_IsString(numbers) ? numbers->valuestring : NULL);
        numbers = numbers == NULL ? NULL : numbers->next;
    }
    for (uint32_t i = 0; i < count; i++) {
        note_part(kin, seen[i].oid, seen[i].root, seen[i].numbers);
    }
    free(seen);
    kin_change(kin);
    cJSON_Delete(object);
}
