#include "copy/members.h"

#include "base/hash.h"
#include "event/checkpoint.h"
#include "postgres/catalog/pg_sql.h"

enum { OID, SCHEMA, TABLE };

struct asking {
    struct mr_members *members;
    const struct mr_pg_source_options *options;
    uint32_t sorted, last;
    struct mr_text again;
};

static mr_status members_take(void *context, const struct mr_pg_result *row,
                              struct mr_error *ret_error)
{
    struct asking *asking = context;
    struct mr_members *members = asking->members;
    (void)ret_error;
    const char *schema = mr_pg_result_value(row, 0, SCHEMA);
    const char *table = mr_pg_result_value(row, 0, TABLE);
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, OID);
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", schema, table);
    /* 32 bits of it: so many are stored. */
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, name.data, name.len) & UINT32_MAX;
    bool was_there = asking->sorted > 0 && bsearch(&hash, members->names, asking->sorted,
                                                   sizeof(hash), mr_u64_compare) != NULL;
    asking->last = oid > asking->last ? oid : asking->last;
    if (!was_there) {
        MR_GROW(members->names, members->room, members->count + 1);
        members->names[members->count++] = hash;
    } else if (mr_pg_table_listed(asking->options, mr_slice_of(schema), mr_slice_of(table))) {
        mr_text_format(&asking->again, "%s%s", asking->again.len == 0 ? "" : ", ", name.data);
    }
    return MR_OK;
}

mr_status mr_members_look(struct mr_members *members, struct mr_pg_conn *conn,
                          const struct mr_pg_source_options *options, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"members of the publication", "nss", 0, UINT32_MAX};
    struct mr_text sql = {0};
    struct asking asking = {
        .members = members, .options = options, .sorted = members->count, .last = members->last};
    mr_sql_format(&sql,
                  "SELECT r.oid::bigint, n.nspname, c.relname FROM pg_publication_rel r"
                  " JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid"
                  " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %L",
                  options->publication);
    mr_text_format(&sql, " AND r.oid > %u", members->last);
    mr_status status = mr_pg_ask_rows(conn, &sql, &shape, members_take, &asking, ret_error);
    if (status == MR_OK) {
        members->last = asking.last;
    } else {
        members->count = asking.sorted; /* what it has said comes again */
    }
    mr_sort(members->names, members->count, sizeof(uint64_t), mr_u64_compare);
    bool is_told = status == MR_OK && asking.again.len > 0 && !members->forgives;
    members->forgives = members->forgives && status != MR_OK;
    if (is_told) {
        mr_log(MR_LOG_WARN, "table_published_again",
               "tables were taken out of the publication and added again, or set again: what was "
               "written to them while they were not in it is not in the stream",
               MR_LOG_STR("tables", asking.again.data),
               MR_LOG_STR("remedy", "send what differs, deletes too: " MR_REPAIR_COMMAND
                                    " (millrace snapshot TABLE sends the rows alone)"));
    }
    mr_text_done(&asking.again);
    return status;
}

void mr_members_done(struct mr_members *members)
{
    free(members->names);
    *members = (struct mr_members){0};
}
