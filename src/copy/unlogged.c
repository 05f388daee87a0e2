#include "copy/unlogged.h"

#include "base/hash.h"
#include "event/checkpoint.h"
#include "postgres/catalog/pg_sql.h"

/* A pattern may fit a million tables that are unlogged; of so many each is known. */
enum { TABLES_MAX = 1000, NAMED_MAX = 5 };

enum column { OID, NAME, IS_UNLOGGED, IS_NAMED };

struct looking {
    struct mr_unlogged *was;
    struct mr_unlogged now;
    uint32_t sorted;      /* of the hashes */
    struct mr_text again; /* names of those that are logged again */
};

static uint64_t hash_of_name(const char *name)
{
    return mr_hash_add(MR_HASH_BEGIN, name, strlen(name)) & UINT32_MAX; /* so many are stored */
}

static bool was_logged(const struct looking *looking, uint64_t hash)
{
    return mr_search(&hash, looking->now.logged, looking->sorted, sizeof(hash), mr_u64_compare) !=
           NULL;
}

static const struct mr_unlogged_table *unlogged_find(const struct mr_unlogged *unlogged,
                                                     uint32_t oid, const char *name)
{
    return MR_FIND(table, unlogged->tables, unlogged->count,
                   table->oid == oid || strcmp(table->name, name) == 0);
}

static mr_status take_logging(void *context, const struct mr_pg_result *row,
                              struct mr_error *ret_error)
{
    struct looking *looking = context;
    struct mr_unlogged *now = &looking->now;
    (void)ret_error;
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, OID);
    const char *name = mr_pg_result_value(row, 0, NAME);
    uint64_t hash = hash_of_name(name);
    const struct mr_unlogged_table *before = unlogged_find(looking->was, oid, name);
    now->last = oid > now->last ? oid : now->last;
    if (!mr_pg_result_true(row, 0, IS_UNLOGGED)) {
        if (before != NULL) {
            mr_text_format(&looking->again, "%s%s", looking->again.len == 0 ? "" : ", ", name);
        }
        if (!was_logged(looking, hash)) {
            MR_GROW(now->logged, now->logged_room, now->logged_count + 1);
            now->logged[now->logged_count++] = hash;
        }
        return MR_OK;
    }
    bool is_missed =
        before != NULL || mr_pg_result_true(row, 0, IS_NAMED) || was_logged(looking, hash);
    if (is_missed && now->count < TABLES_MAX) {
        MR_GROW(now->tables, now->room, now->count + 1);
        now->tables[now->count++] = (struct mr_unlogged_table){.oid = oid, .name = MR_STRDUP(name)};
    }
    return MR_OK;
}

static void log_again(const struct mr_text *names)
{
    if (names->len > 0) {
        mr_log(MR_LOG_WARN, "table_logged_again",
               "tables were unlogged and are logged again: what was written to them meanwhile is "
               "not in the stream",
               MR_LOG_STR("tables", names->data),
               MR_LOG_STR("remedy", "send what differs: " MR_REPAIR_COMMAND));
    }
}

static void unlogged_say(const struct mr_unlogged *unlogged, struct mr_text *text)
{
    const char *them = unlogged->count == 1 ? "it" : "them";
    if (unlogged->count == 0) {
        return;
    }
    mr_text_format(text, "%u streamed %s unlogged, so nothing comes of what is written to %s: ",
                   unlogged->count, unlogged->count == 1 ? "table became" : "tables became", them);
    for (uint32_t i = 0; i < unlogged->count && i < NAMED_MAX; i++) {
        mr_text_format(text, "%s%s", i == 0 ? "" : ", ", unlogged->tables[i].name);
    }
    mr_text_format(text,
                   "%s; run ALTER TABLE … SET LOGGED (and add it to the publication again), or "
                   "take %s out of \"tables\"; then send what differs: " MR_REPAIR_COMMAND,
                   unlogged->count > NAMED_MAX ? ", …" : "", them);
}

static void forget_tables(struct mr_unlogged *unlogged)
{
    for (uint32_t i = 0; i < unlogged->count; i++) {
        free(unlogged->tables[i].name);
    }
    free(unlogged->tables);
    unlogged->tables = NULL;
    unlogged->count = unlogged->room = 0;
}

mr_status mr_unlogged_look(struct mr_unlogged *unlogged, struct mr_pg_conn *conn,
                           const struct mr_pg_source_options *options, struct mr_text *ret_text,
                           struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"unlogged tables", "nsbb", 0, UINT32_MAX};
    struct mr_text sql = {0};
    MR_TEXT(oids);
    for (uint32_t i = 0; i < unlogged->count; i++) {
        mr_text_format(&oids, ", %u", unlogged->tables[i].oid);
    }
    mr_sql_add_logging(&sql, options, unlogged->last, oids.len == 0 ? "" : oids.data,
                       mr_pg_server_version(conn));
    struct looking looking = {.was = unlogged, .now = *unlogged, .sorted = unlogged->logged_count};
    looking.now.tables = NULL;
    looking.now.count = looking.now.room = 0;
    mr_status status = mr_pg_ask_rows(conn, &sql, &shape, take_logging, &looking, ret_error);
    if (status == MR_OK) {
        log_again(&looking.again);
        unlogged_say(&looking.now, ret_text);
        mr_sort(looking.now.logged, looking.now.logged_count, sizeof(uint64_t), mr_u64_compare);
        forget_tables(unlogged);
        *unlogged = looking.now;
    } else {
        /* The hashes may have moved, and their end is not in order. */
        unlogged->logged = looking.now.logged;
        unlogged->logged_room = looking.now.logged_room;
        forget_tables(&looking.now);
    }
    mr_text_done(&looking.again);
    return status;
}

void mr_unlogged_add(struct mr_unlogged *unlogged, const char *name)
{
    if (unlogged->count < TABLES_MAX) {
        MR_GROW(unlogged->tables, unlogged->room, unlogged->count + 1);
        unlogged->tables[unlogged->count++] = (struct mr_unlogged_table){.name = MR_STRDUP(name)};
    }
}

void mr_unlogged_change(struct mr_unlogged *unlogged)
{
    unlogged->last = 0;
}

void mr_unlogged_done(struct mr_unlogged *unlogged)
{
    forget_tables(unlogged);
    free(unlogged->logged);
    *unlogged = (struct mr_unlogged){0};
}
