#include "copy/members.h"

#include "base/hash.h"
#include "event/checkpoint.h"
#include "postgres/catalog/pg_sql.h"
#include "postgres/server/pg_altered.h"
#include "postgres/server/pg_rules.h"

enum { OID, SCHEMA, TABLE, IS_SCHEMA, IS_MADE };

/* Of the tables, or of the schemas. */
struct asking_of {
    struct mr_members_known *known;
    uint32_t sorted, last;
};

struct asking {
    const struct mr_pg_source_options *options;
    struct asking_of tables, schemas;
    uint32_t schema;      /* the number at hand, … */
    bool was_there;       /* … of a schema that was a member, … */
    bool is_named;        /* … and is said */
    struct mr_text again; /* "a, b" */
    struct mr_text made;  /* those that are other tables now */
};

/* Whether it was a member at an earlier look; it is one now. */
static bool note_member(struct asking_of *asking, uint32_t oid, const struct mr_text *name)
{
    struct mr_members_known *known = asking->known;
    /* 32 bits of it: so many are stored. */
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, name->data, name->len) & UINT32_MAX;
    bool was_there =
        mr_search(&hash, known->names, asking->sorted, sizeof(hash), mr_u64_compare) != NULL;
    asking->last = oid > asking->last ? oid : asking->last;
    if (!was_there) {
        MR_GROW(known->names, known->room, known->count + 1);
        known->names[known->count++] = hash;
    }
    return was_there;
}

static void add_name(struct mr_text *names, const struct mr_text *name)
{
    mr_text_format(names, "%s%s", names->len == 0 ? "" : ", ", name->data);
}

/* A row for each of its tables, one after the other. */
static void members_take_schema(struct asking *asking, uint32_t oid, const char *schema,
                                bool is_listed)
{
    MR_TEXT(name);
    if (oid != asking->schema) {
        mr_text_string(&name, schema);
        asking->schema = oid;
        asking->was_there = note_member(&asking->schemas, oid, &name);
        asking->is_named = false;
        mr_text_done(&name);
    }
    if (asking->was_there && is_listed && !asking->is_named) {
        mr_text_format(&name, "%s.*", schema);
        add_name(&asking->again, &name);
        asking->is_named = true;
    }
}

static mr_status members_take(void *context, const struct mr_pg_result *row,
                              struct mr_error *ret_error)
{
    struct asking *asking = context;
    (void)ret_error;
    const char *schema = mr_pg_result_value(row, 0, SCHEMA);
    const char *table = mr_pg_result_value(row, 0, TABLE);
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, OID);
    bool is_listed = table != NULL &&
                     mr_pg_table_listed(asking->options, mr_slice_of(schema), mr_slice_of(table));
    if (mr_pg_result_true(row, 0, IS_SCHEMA)) {
        members_take_schema(asking, oid, schema, is_listed);
        return MR_OK;
    }
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", schema, table);
    uint32_t replaced = mr_pg_altered_take(schema, table);
    bool is_own = replaced != 0 && replaced <= asking->tables.known->last;
    if (note_member(&asking->tables, oid, &name) && is_listed && !is_own) {
        add_name(mr_pg_result_true(row, 0, IS_MADE) ? &asking->made : &asking->again, &name);
    }
    return MR_OK;
}

static void add_question(struct mr_text *sql, const struct mr_members *members, int version,
                         const char *publication)
{
    mr_sql_format(sql,
                  /* A table that is younger than all members has another number than before. */
                  "SELECT r.oid::bigint, n.nspname, c.relname, false, c.oid > %u"
                  " FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid"
                  " JOIN pg_class c ON c.oid = r.prrelid"
                  " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %L"
                  " AND r.oid > %u",
                  members->tables.last, publication, members->tables.last);
    if (version >= MR_PG_SHAPED_VERSION_MIN) {
        mr_sql_format(sql,
                      " UNION ALL SELECT s.oid::bigint, n.nspname, c.relname, true, false"
                      " FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid"
                      " JOIN pg_namespace n ON n.oid = s.pnnspid LEFT JOIN pg_class c"
                      " ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p')"
                      " WHERE p.pubname = %L AND s.oid > %u ORDER BY 4, 1",
                      publication, members->schemas.last);
    }
}

static void members_settle(struct asking_of *asking, mr_status status)
{
    struct mr_members_known *known = asking->known;
    if (status == MR_OK) {
        known->last = asking->last;
    } else {
        known->count = asking->sorted; /* what it has said comes again */
    }
    mr_sort(known->names, known->count, sizeof(uint64_t), mr_u64_compare);
}

static void members_tell(const char *what, const struct mr_text *tables)
{
    if (tables->len > 0) {
        mr_log(MR_LOG_WARN, "table_published_again", what, MR_LOG_STR("tables", tables->data),
               MR_LOG_STR("remedy", "once the publication sends of them what it did before, and no "
                                    "more, send what differs, deletes too: " MR_REPAIR_COMMAND
                                    " (millrace snapshot TABLE sends the rows alone)"));
    }
}

mr_status mr_members_look(struct mr_members *members, struct mr_pg_conn *conn,
                          const struct mr_pg_source_options *options, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"members of the publication", "nsSbb", 0, UINT32_MAX};
    struct mr_text sql = {0};
    struct asking asking = {
        .options = options,
        .tables = {&members->tables, members->tables.count, members->tables.last},
        .schemas = {&members->schemas, members->schemas.count, members->schemas.last}};
    add_question(&sql, members, mr_pg_server_version(conn), options->publication);
    mr_status status = mr_pg_ask_rows(conn, &sql, &shape, members_take, &asking, ret_error);
    members_settle(&asking.tables, status);
    members_settle(&asking.schemas, status);
    if (status == MR_OK) {
        members_tell("tables were taken out of the publication and added again, or set again: what "
                     "was written to them while they were not in it is not in the stream",
                     &asking.again);
        members_tell(
            "tables were dropped, made again and added to the publication: the rows of the "
            "dropped ones are still in the topics, and what was written to the new ones "
            "before they were in it is not in the stream",
            &asking.made);
    }
    mr_text_done(&asking.again);
    mr_text_done(&asking.made);
    return status;
}

void mr_members_done(struct mr_members *members)
{
    free(members->tables.names);
    free(members->schemas.names);
    *members = (struct mr_members){0};
}
