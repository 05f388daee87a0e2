#include "postgres/server/pg_form.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "postgres/catalog/pg_sql.h"
#include "postgres/server/pg_rules.h"

enum { TEXT_MAX = 300, NAMED_MAX = 5 };

/* A filter or a list of a table. */
struct part {
    int64_t oid;
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

void mr_pg_form_free(struct mr_pg_form *form)
{
    if (form != NULL) {
        free(form->parts);
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

void mr_pg_form_forget(struct mr_pg_form *form)
{
    MR_HOLD(&form->lock);
    free(form->parts);
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

static const struct part *pg_form_part_of(const struct mr_pg_form *form, int64_t oid)
{
    for (uint32_t i = 0; i < form->part_count; i++) {
        if (form->parts[i].oid == oid) {
            return &form->parts[i];
        }
    }
    return NULL;
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
        const struct part *was = pg_form_part_of(form, mr_pg_result_number(rows, row, OID));
        int64_t digest = mr_pg_result_number(rows, row, DIGEST);
        if (digest == (was == NULL ? 0 : was->digest) ||
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

int64_t mr_pg_form_refused_ns(const struct mr_pg_form *form)
{
    return atomic_load(&form->left_ns);
}
