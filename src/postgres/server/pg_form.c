#include "postgres/server/pg_form.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "postgres/catalog/pg_sql.h"
#include "postgres/server/pg_rules.h"

enum { TEXT_MAX = 300, NAMED_MAX = 5, STORED_PARTS_MAX = 100 };
#define PUBLICATION "publication"

/* A filter or a list of a table. */
struct part {
    int64_t oid;
    char *schema, *table; /* as it was called then */
    int64_t digest; /* of its meaning: neither renamed columns nor blanks change it; 0: neither */
    char text[TEXT_MAX];
    char sql[TEXT_MAX]; /* behind the table's name; "": neither, or too long */
};

enum { INSERT, UPDATE, DELETE, TRUNCATE, OPERATIONS };
static const char *const operation_names[] = {"INSERT", "UPDATE", "DELETE", "TRUNCATE"};

struct publication {
    bool sends[OPERATIONS];
    bool via_root, generated;
};

struct mr_pg_form {
    pthread_mutex_t lock;
    bool known;
    uint32_t times; /* that it was read or forgotten */
    struct publication publication;
    struct part *parts;
    uint32_t part_count;
    struct part *before; /* of an earlier process, or before a reload; oid 0 */
    uint32_t before_count, before_room;
    bool knows_before; /* they are all that there were */
    uint64_t refused;  /* of the difference at the last look, what a start refuses; 0: nothing */
    uint64_t left_for; /* the one that the stream was left for */
    _Atomic int64_t left_ns;
};

enum column { OID, SCHEMA, TABLE, DIGEST, TEXT, SQL, IS_NAMED, SENDS_INSERT };
static const struct mr_pg_shape shape = {"what the publication sends", "nSSnSSBBBBBBB", 0,
                                         UINT32_MAX};
enum { VIA_ROOT = SENDS_INSERT + OPERATIONS, GENERATED };

struct mr_pg_form *mr_pg_form_new(void)
{
    struct mr_pg_form *form = MR_NEW(struct mr_pg_form);
    pthread_mutex_init(&form->lock, NULL);
    return form;
}

static void pg_form_free_parts(struct part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(parts[i].schema);
        free(parts[i].table);
    }
    free(parts);
}

void mr_pg_form_free(struct mr_pg_form *form)
{
    if (form != NULL) {
        pg_form_free_parts(form->parts, form->part_count);
        pg_form_free_parts(form->before, form->before_count);
        pthread_mutex_destroy(&form->lock);
        free(form);
    }
}

/* Of tables that nobody filtered it would be a row each, at each look; so of those it asks that
 * have a filter or a list, or had. The tree of a condition has the places of its words
 * (src/backend/nodes/outfuncs.c), which mean nothing. */
static void add_parts(struct mr_text *sql, const struct mr_pg_form *form, const char *publication)
{
    mr_sql_format(
        sql,
        " UNION ALL SELECT c.oid::bigint, n.nspname, c.relname,"
        " CASE WHEN r.prattrs IS NULL AND r.prqual IS NULL THEN 0 ELSE hashtextextended(("
        "coalesce(r.prattrs::text, '') || '|' || coalesce(regexp_replace(r.prqual::text,"
        " ' :location -?[0-9]+', '', 'g'), '')) COLLATE \"C\", 0) END,"
        " left(coalesce('only rows with ' || pg_get_expr(r.prqual, r.prrelid), 'all rows'), 140) ||"
        " left(coalesce(' and only the columns ' || (SELECT string_agg(quote_ident(a.attname), ', '"
        " ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = r.prrelid"
        " AND a.attnum = ANY (r.prattrs::int2[])), ' and all columns'), 140),"
        " coalesce(' (' || (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)"
        " FROM pg_attribute a WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[]))"
        " || ')', '') || coalesce(' WHERE (' || pg_get_expr(r.prqual, r.prrelid) || ')', ''),"
        " r.prrelid IS NOT NULL,"
        " NULL, NULL, NULL, NULL, NULL, NULL"
        " FROM pg_publication p CROSS JOIN pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid"
        " WHERE p.pubname = %L AND (c.oid IN (SELECT f.prrelid FROM pg_publication_rel f WHERE"
        " f.prpubid = p.oid AND (f.prqual IS NOT NULL OR f.prattrs IS NOT NULL))",
        publication);
    for (uint32_t i = 0; i < form->part_count; i++) {
        mr_text_format(sql, i == 0 ? " OR c.oid IN (%lld" : ", %lld",
                       (long long)form->parts[i].oid);
    }
    /* What was swapped for one of them has its name. */
    for (uint32_t i = 0; i < form->part_count; i++) {
        mr_sql_format(sql, i == 0 ? ") OR (n.nspname, c.relname) IN ((%L, %L)" : ", (%L, %L)",
                      form->parts[i].schema, form->parts[i].table);
    }
    mr_text_string(sql, form->part_count == 0 ? ")" : "))");
    mr_text_string(sql, " AND (r.prrelid IS NOT NULL OR p.puballtables OR EXISTS (SELECT FROM"
                        " pg_publication_namespace s WHERE s.pnpubid = p.oid"
                        " AND s.pnnspid = c.relnamespace)) ORDER BY 1");
}

/* With the lock. */
static void pg_form_add_question(struct mr_text *sql, const struct mr_pg_form *form, int version,
                                 const struct mr_pg_source_options *options)
{
    mr_sql_format(sql,
                  "SELECT 0::bigint AS oid, NULL::name, NULL::name, 0::bigint, NULL::text,"
                  " NULL::text, NULL::boolean,"
                  " pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,"
                  /* Only PostgreSQL 18 and later have it. */
                  " coalesce(to_jsonb(pg_publication)->>'pubgencols', 'n') <> 'n'"
                  " FROM pg_publication WHERE pubname = %L",
                  options->publication);
    if (version >= MR_PG_SHAPED_VERSION_MIN) {
        add_parts(sql, form, options->publication);
    }
}

/* The first row; false: there is no publication, which the stream meets itself. */
static bool take_publication(const struct mr_pg_result *rows, struct publication *ret)
{
    if (mr_pg_result_rows(rows) == 0 || mr_pg_result_number(rows, 0, OID) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        ret->sends[i] = mr_pg_result_true(rows, 0, SENDS_INSERT + i);
    }
    ret->via_root = mr_pg_result_true(rows, 0, VIA_ROOT);
    ret->generated = mr_pg_result_true(rows, 0, GENERATED);
    return true;
}

static const char *pg_form_text_at(const struct mr_pg_result *rows, uint32_t row, uint32_t column)
{
    const char *text = mr_pg_result_value(rows, row, column);
    return text == NULL ? "" : text;
}

/* With the lock. */
static void pg_form_keep(struct mr_pg_form *form, const struct mr_pg_result *rows)
{
    form->parts = MR_NEW_ARRAY(struct part, mr_pg_result_rows(rows));
    for (uint32_t row = 1; row < mr_pg_result_rows(rows); row++) {
        struct part *part = &form->parts[form->part_count++];
        part->oid = mr_pg_result_number(rows, row, OID);
        part->schema = MR_STRDUP(pg_form_text_at(rows, row, SCHEMA));
        part->table = MR_STRDUP(pg_form_text_at(rows, row, TABLE));
        part->digest = mr_pg_result_number(rows, row, DIGEST);
        snprintf(part->text, sizeof(part->text), "%s", pg_form_text_at(rows, row, TEXT));
        const char *form_sql = pg_form_text_at(rows, row, SQL);
        snprintf(part->sql, sizeof(part->sql), "%s", strlen(form_sql) < TEXT_MAX ? form_sql : "");
    }
    form->known = true;
    form->times++;
}

mr_status mr_pg_form_open(struct mr_pg_form *form, struct mr_pg_conn *conn,
                          const struct mr_pg_source_options *options, struct mr_error *ret_error)
{
    const struct mr_pg_result *rows;
    struct mr_text sql = {0};
    pthread_mutex_lock(&form->lock);
    bool known = form->known;
    pg_form_add_question(&sql, form, mr_pg_server_version(conn), options);
    pthread_mutex_unlock(&form->lock);
    if (known) {
        mr_text_done(&sql);
        return MR_OK;
    }
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &rows, ret_error));
    MR_HOLD(&form->lock);
    if (take_publication(rows, &form->publication)) {
        pg_form_keep(form, rows);
    }
    return MR_OK;
}

static struct part *part_named(struct part *parts, uint32_t count, const char *schema,
                               const char *table)
{
    return MR_FIND(one, parts, count,
                   strcmp(one->schema, schema) == 0 && strcmp(one->table, table) == 0);
}

/* The newest counts. With the lock. */
static void add_before(struct mr_pg_form *form, const char *schema, const char *table,
                       const char *sql)
{
    struct part *part = part_named(form->before, form->before_count, schema, table);
    if (part == NULL) {
        MR_GROW(form->before, form->before_room, (size_t)form->before_count + 1);
        part = &form->before[form->before_count++];
        *part = (struct part){.digest = 1, .schema = MR_STRDUP(schema), .table = MR_STRDUP(table)};
    }
    snprintf(part->sql, sizeof(part->sql), "%s", strlen(sql) < TEXT_MAX ? sql : "");
}

void mr_pg_form_forget(struct mr_pg_form *form)
{
    MR_HOLD(&form->lock);
    for (uint32_t i = 0; i < form->part_count; i++) {
        add_before(form, form->parts[i].schema, form->parts[i].table, form->parts[i].sql);
    }
    pg_form_free_parts(form->parts, form->part_count);
    form->parts = NULL;
    form->part_count = 0;
    form->known = false;
    form->times++;
    form->refused = form->left_for = 0;
}

static void pg_form_add_change(struct mr_text *changes, const char *format, ...) MR_PRINTF(2, 3);
static void pg_form_add_change(struct mr_text *changes, const char *format, ...)
{
    char text[3 * TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    mr_text_format(changes, "%s%s", changes->len == 0 ? "" : "; ", text);
}

/* All of its operations in one statement, as PostgreSQL takes them. */
static void add_way_back(const struct publication *was, const struct publication *now,
                         const char *name, struct mr_text *back)
{
    static const char *const words[] = {"insert", "update", "delete", "truncate"};
    bool lacks = false;
    MR_TEXT(list);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        lacks = lacks || (was->sends[i] && !now->sends[i]);
        if (was->sends[i]) {
            mr_text_format(&list, "%s%s", list.len == 0 ? "" : ", ", words[i]);
        }
    }
    if (lacks) {
        mr_sql_format(back, "ALTER PUBLICATION %I SET (publish = '%s'); ", name, list.data);
    }
    if (was->via_root != now->via_root) {
        mr_sql_format(back, "ALTER PUBLICATION %I SET (publish_via_partition_root = %s); ", name,
                      was->via_root ? "true" : "false");
    }
    if (was->generated && !now->generated) {
        mr_sql_format(back, "ALTER PUBLICATION %I SET (publish_generated_columns = stored); ",
                      name);
    }
}

/* What more is sent now keeps nothing back. */
static void compare_publication(const struct mr_pg_form *form, const struct publication *now,
                                struct mr_text *changes)
{
    const struct publication *was = &form->publication;
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        if (was->sends[i] && !now->sends[i]) {
            pg_form_add_change(changes, "no %s is sent any more", operation_names[i]);
        }
    }
    if (was->via_root != now->via_root) {
        pg_form_add_change(changes, "partitions' rows come %s",
                           now->via_root ? "by the root's name, and no more by their own"
                                         : "by their own names, and no more by the root's");
    }
    if (was->generated && !now->generated) {
        pg_form_add_change(changes, "no generated columns are sent any more");
    }
}

/* Of the table, or of another one that had its name. */
static const struct part *pg_form_part_of(const struct mr_pg_form *form, int64_t oid,
                                          const struct mr_table_name *table)
{
    const struct part *part = MR_FIND(one, form->parts, form->part_count, one->oid == oid);
    return part != NULL ? part
                        : part_named(form->parts, form->part_count, table->schema, table->table);
}

/* Columns of a table that was swapped for another one may have other numbers. */
static bool is_as_it_was(const struct part *was, int64_t digest, int64_t oid, const char *sql)
{
    bool is_other = was != NULL && was->oid != oid;
    return digest == (was == NULL ? 0 : was->digest) ||
           (is_other && was->sql[0] != '\0' && strcmp(was->sql, sql) == 0);
}

/* Of a table that is in the publication by its name; false: not known. */
static bool add_table_back(const struct part *was, const struct mr_pg_source_options *options,
                           const struct mr_table_name *table, struct mr_text *back)
{
    bool was_whole = was == NULL || was->digest == 0;
    if (mr_pg_published_of(options, table) != NULL || was_whole) {
        mr_pg_publication_add_change(back, options, table, true);
        return true;
    }
    mr_sql_format(back,
                  "ALTER PUBLICATION %I DROP TABLE ONLY %T; ALTER PUBLICATION %I ADD TABLE ONLY %T",
                  options->publication, table, options->publication, table);
    mr_text_format(back, "%s; ", was->sql);
    return was->sql[0] != '\0';
}

/* Adds what a start would refuse, or set right, to `refused`. */
static void pg_form_compare_tables(const struct mr_pg_form *form, const struct mr_pg_result *rows,
                                   const struct mr_pg_source_options *options,
                                   struct mr_text *changes, struct mr_text *back,
                                   struct mr_text *refused)
{
    uint32_t named = 0;
    bool is_known = true;
    for (uint32_t row = 1; row < mr_pg_result_rows(rows); row++) {
        const struct mr_table_name table = {.schema = pg_form_text_at(rows, row, SCHEMA),
                                            .table = pg_form_text_at(rows, row, TABLE)};
        int64_t oid = mr_pg_result_number(rows, row, OID);
        const struct part *was = pg_form_part_of(form, oid, &table);
        int64_t digest = mr_pg_result_number(rows, row, DIGEST);
        if (is_as_it_was(was, digest, oid, pg_form_text_at(rows, row, SQL)) ||
            !mr_pg_table_listed(options, mr_slice_of(table.schema), mr_slice_of(table.table))) {
            continue;
        }
        if (named++ < NAMED_MAX) {
            pg_form_add_change(changes, "table %s.%s is sent with %s, and was with %s",
                               table.schema, table.table, pg_form_text_at(rows, row, TEXT),
                               was == NULL ? "all rows and all columns" : was->text);
        }
        bool is_configured = mr_pg_published_of(options, &table) != NULL;
        is_known = add_table_back(was, options, &table, back) &&
                   mr_pg_result_true(rows, row, IS_NAMED) && is_known;
        if (options->captured.alter_publication || is_configured) {
            mr_text_format(refused, "%s.%s %lld ", table.schema, table.table, (long long)digest);
        }
    }
    if (!is_known) {
        mr_text_done(back);
    }
}

/* A start that alters sets it right at once. Else the stream is left at the second look that sees
 * it, for the start's refusal: who runs the start's statements by hand and then reloads the file
 * has that time. Once for each difference: where a start may not compare (pg_publication.c), it
 * goes on. With the lock. */
static void leave_for(struct mr_pg_form *form, const struct mr_text *refused, bool alters,
                      int64_t now_ns)
{
    uint64_t difference =
        refused->len == 0 ? 0 : mr_hash_add(MR_HASH_BEGIN, refused->data, refused->len) | 1;
    bool again = difference == form->refused;
    form->refused = difference;
    if (difference != 0 && (again || alters) && difference != form->left_for) {
        form->left_for = difference;
        atomic_store(&form->left_ns, now_ns);
    }
}

mr_status mr_pg_form_compare(struct mr_pg_form *form, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options,
                             struct mr_text *ret_changes, struct mr_text *ret_back,
                             struct mr_error *ret_error)
{
    const struct mr_pg_result *rows;
    struct publication now;
    struct mr_text sql = {0};
    MR_TEXT(refused);
    pthread_mutex_lock(&form->lock);
    uint32_t times = form->times;
    pg_form_add_question(&sql, form, mr_pg_server_version(conn), options);
    pthread_mutex_unlock(&form->lock);
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &rows, ret_error));
    MR_HOLD(&form->lock);
    if (!form->known || form->times != times || !take_publication(rows, &now)) {
        return MR_OK;
    }
    compare_publication(form, &now, ret_changes);
    add_way_back(&form->publication, &now, options->publication, ret_back);
    pg_form_compare_tables(form, rows, options, ret_changes, ret_back, &refused);
    if (options->via_root && !now.via_root) {
        mr_text_string(&refused, "via_root");
    }
    if (!mr_pg_is_standby(conn)) { /* where no start compares */
        leave_for(form, &refused, options->captured.alter_publication, mr_monotonic_ns());
    }
    return MR_OK;
}

static void add_part(cJSON *tables, const struct part *part)
{
    cJSON *one = cJSON_CreateArray();
    cJSON_AddItemToArray(one, cJSON_CreateString(part->schema));
    cJSON_AddItemToArray(one, cJSON_CreateString(part->table));
    cJSON_AddItemToArray(one, cJSON_CreateString(part->sql));
    cJSON_AddItemToArray(tables, one);
}

static void add_options(const struct publication *publication, struct mr_text *options)
{
    static const char *const words[] = {"insert", "update", "delete", "truncate"};
    uint32_t sent = 0;
    MR_TEXT(list);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        if (publication->sends[i]) {
            mr_text_format(&list, "%s%s", sent++ == 0 ? "" : ", ", words[i]);
        }
    }
    if (sent < OPERATIONS) {
        mr_sql_format(options, "publish = %L", list.data == NULL ? "" : list.data);
    }
    if (publication->via_root) {
        mr_text_format(options, "%spublish_via_partition_root = true",
                       options->len == 0 ? "" : ", ");
    }
    if (publication->generated) {
        mr_text_format(options, "%spublish_generated_columns = stored",
                       options->len == 0 ? "" : ", ");
    }
}

/* Of too many tables it says that it does not know all ("more"). */
void mr_pg_form_keep(struct mr_pg_form *form, cJSON *stored)
{
    MR_TEXT(options);
    MR_HOLD(&form->lock);
    if (!form->known) {
        return;
    }
    add_options(&form->publication, &options);
    cJSON *object = cJSON_AddObjectToObject(stored, PUBLICATION);
    cJSON_AddStringToObject(object, "options", options.data == NULL ? "" : options.data);
    cJSON_AddBoolToObject(object, "more", form->part_count + form->before_count > STORED_PARTS_MAX);
    cJSON *tables = cJSON_AddArrayToObject(object, "tables");
    for (uint32_t i = 0; i < form->part_count && i < STORED_PARTS_MAX; i++) {
        add_part(tables, &form->parts[i]);
    }
    for (uint32_t i = 0; i < form->before_count && i + form->part_count < STORED_PARTS_MAX; i++) {
        const struct part *part = &form->before[i];
        if (part_named(form->parts, form->part_count, part->schema, part->table) == NULL) {
            add_part(tables, part);
        }
    }
}

static const cJSON *stored_tables(const cJSON *stored)
{
    return mr_object_at(stored, PUBLICATION ".tables");
}

/* Text of a stored part: 0 its schema, 1 its name, 2 what is behind it; "" where it is none. */
static const char *part_text(const cJSON *part, int at)
{
    const cJSON *text = cJSON_GetArrayItem(part, at);
    return cJSON_IsString(text) ? text->valuestring : "";
}

void mr_pg_form_remember(struct mr_pg_form *form, const cJSON *stored)
{
    const cJSON *part;
    MR_HOLD(&form->lock);
    form->knows_before = cJSON_IsFalse(mr_object_at(stored, PUBLICATION ".more"));
    cJSON_ArrayForEach(part, stored_tables(stored))
    {
        add_before(form, part_text(part, 0), part_text(part, 1), part_text(part, 2));
    }
}

bool mr_pg_form_add_back(struct mr_pg_form *form, const struct mr_pg_source_options *options,
                         const struct mr_table_name *table, struct mr_text *sql)
{
    MR_HOLD(&form->lock);
    const struct part *was = part_named(form->parts, form->part_count, table->schema, table->table);
    was = was != NULL ? was
                      : part_named(form->before, form->before_count, table->schema, table->table);
    bool is_configured = mr_pg_published_of(options, table) != NULL;
    if (was == NULL || is_configured) {
        mr_pg_publication_add_change(sql, options, table, false);
        return is_configured || form->knows_before;
    }
    mr_sql_format(sql, "ALTER PUBLICATION %I ADD TABLE ONLY %T", options->publication, table);
    mr_text_format(sql, "%s; ", was->sql[0] == '\0' ? " …" : was->sql);
    return was->sql[0] != '\0';
}

void mr_pg_form_settle(struct mr_pg_form *form, const struct mr_table_name *unpublished,
                       uint32_t count)
{
    uint32_t kept = 0;
    MR_HOLD(&form->lock);
    for (uint32_t i = 0; i < form->before_count; i++) {
        struct part part = form->before[i];
        const struct mr_table_name name = {.schema = part.schema, .table = part.table};
        if (MR_ANY(awaited, unpublished, count, mr_table_name_equal(awaited, &name))) {
            form->before[kept++] = part;
        } else {
            free(part.schema);
            free(part.table);
        }
    }
    form->before_count = kept;
}

const char *mr_pg_sent_options(const cJSON *stored)
{
    const cJSON *options = mr_object_at(stored, PUBLICATION ".options");
    return cJSON_IsString(options) ? options->valuestring : NULL;
}

const char *mr_pg_sent_of_table(const cJSON *stored, const struct mr_table_name *table)
{
    const cJSON *part;
    cJSON_ArrayForEach(part, stored_tables(stored))
    {
        if (strcmp(part_text(part, 0), table->schema) == 0 &&
            strcmp(part_text(part, 1), table->table) == 0) {
            const char *sql = part_text(part, 2);
            return sql[0] == '\0' ? NULL : sql;
        }
    }
    bool is_whole = cJSON_IsFalse(mr_object_at(stored, PUBLICATION ".more"));
    return is_whole ? "" : NULL;
}

int64_t mr_pg_form_refused_ns(const struct mr_pg_form *form)
{
    return atomic_load(&form->left_ns);
}
