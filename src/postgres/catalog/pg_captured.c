#include "postgres/catalog/pg_captured.h"

#include "event/kin.h"
#include "postgres/catalog/pg_sql.h"

/* Of one publication: 8 MB. */
enum { TABLES_MAX = 1000 * 1000 };

struct reading {
    struct mr_pg_captured now;
    struct mr_kin *kin;
    uint32_t last;
};

static struct mr_captured_table *table_of(const struct mr_pg_captured *captured, uint32_t oid)
{
    return mr_by_oid_find(&captured->tables, sizeof(struct mr_captured_table), oid);
}

static bool was_partition(const struct mr_captured_table *table)
{
    return table != NULL && (table->kind == MR_PG_PARTITION || table->kind == MR_PG_FORMER);
}

/* A partitioned table is a root of its own. */
static bool has_other_root(const struct mr_captured_table *table)
{
    return table->root != 0 && table->root != table->oid;
}

/* One that is there stays as it is. */
static void keep_root(struct mr_pg_captured *captured, uint32_t oid, const char *schema,
                      const char *table)
{
    struct mr_captured_root *root = mr_by_oid_make(&captured->roots, sizeof(*root), oid);
    if (root->table == NULL) {
        root->schema = MR_STRDUP(schema);
        root->table = MR_STRDUP(table);
    }
}

static mr_status pg_captured_take_table(void *context, const struct mr_pg_result *row,
                                        struct mr_error *ret_error)
{
    struct reading *reading = context;
    uint32_t oid = (uint32_t)mr_pg_result_number(row, 0, 0);
    if (oid < reading->last || reading->now.tables.count == TABLES_MAX) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the published tables and answers in another "
                       "order, or with more tables than there can be");
    }
    reading->last = oid;
    struct mr_captured_table *table = mr_by_oid_make(&reading->now.tables, sizeof(*table), oid);
    table->kind = (enum mr_pg_capture)mr_pg_result_number(row, 0, 1);
    table->is_alone = mr_pg_result_true(row, 0, 2);
    table->root = (uint32_t)mr_pg_result_number(row, 0, 3); /* of its rows the last, the topmost */
    if (table->root != 0) {
        const struct mr_origin origin = {.oid = table->root,
                                         .schema = mr_pg_result_value(row, 0, 4),
                                         .table = mr_pg_result_value(row, 0, 5),
                                         .numbers = mr_pg_result_value(row, 0, 6)};
        keep_root(&reading->now, origin.oid, origin.schema, origin.table);
        mr_kin_note(reading->kin, oid, &origin);
    }
    return MR_OK;
}

/* What this process has seen as a partition, and is none now. */
static void keep_former(struct mr_pg_captured *now, const struct mr_pg_captured *before)
{
    const struct mr_captured_root *roots = before->roots.items;
    for (uint32_t i = 0; i < before->roots.count; i++) {
        keep_root(now, roots[i].oid, roots[i].schema, roots[i].table);
    }
    const struct mr_captured_table *tables = before->tables.items;
    for (uint32_t i = 0; i < before->tables.count && now->tables.count < TABLES_MAX; i++) {
        struct mr_captured_table *listed = table_of(now, tables[i].oid);
        if (listed != NULL && !has_other_root(listed)) {
            listed->root = tables[i].root; /* a pattern lists it, too */
        }
        if (!was_partition(&tables[i])) {
            continue;
        }
        struct mr_captured_table *table =
            mr_by_oid_make(&now->tables, sizeof(*table), tables[i].oid);
        if (table->kind == MR_PG_UNLISTED || table->kind == MR_PG_FORMER) {
            bool is_alone = table->is_alone;
            *table = tables[i];
            table->kind = MR_PG_FORMER;
            table->is_alone = is_alone;
        }
    }
}

mr_status mr_pg_captured_read(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                              const struct mr_pg_source_options *options,
                              const struct mr_pg_horizon *horizon, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "nnbnSSS", 0, UINT32_MAX};
    struct reading reading = {.now = {.horizon = *horizon}, .kin = options->kin};
    struct mr_text sql = {0};
    mr_sql_add_captured(&sql, options, mr_pg_server_version(conn));
    mr_status status =
        mr_pg_ask_rows(conn, &sql, &shape, pg_captured_take_table, &reading, ret_error);
    if (status == MR_OK) {
        keep_former(&reading.now, captured);
    }
    mr_pg_captured_done(status == MR_OK ? captured : &reading.now);
    if (status == MR_OK) {
        *captured = reading.now;
    }
    return status;
}

void mr_pg_captured_add_oids(const struct mr_pg_captured *captured, struct mr_text *text)
{
    const struct mr_captured_table *tables = captured->tables.items;
    for (uint32_t i = 0; i < captured->tables.count; i++) {
        mr_text_format(text, i == 0 ? "%u" : ",%u", tables[i].oid);
    }
}

/* Rows that came into a table after its ATTACH waited for its lock: a list that knows their
 * transaction knows the one that made it a partition. So a stream that falls behind asks less, and
 * a backlog seldom. ATTACH and DETACH write the table's row in pg_class (StorePartitionBound,
 * heap.c; DetachPartitionFinalize, tablecmds.c), which ends all that is cached of it
 * (CacheInvalidateHeapTuple, inval.c), and pgoutput describes it again before its next row
 * (rel_sync_cache_relation_cb, pgoutput.c). A partition that is sent for its table's sake alone is
 * not sent once it is none. */
bool mr_pg_captured_is_stale(const struct mr_pg_captured *captured, uint32_t oid,
                             const struct mr_transaction *transaction)
{
    const struct mr_captured_table *table = table_of(captured, oid);
    bool covers = mr_pg_horizon_covers(&captured->horizon, transaction);
    if (table == NULL) {
        return true;
    }
    switch (table->kind) {
    case MR_PG_PARTITION:
        return table->is_alone && !covers;
    case MR_PG_FORMER:
        return table->until == 0 || (transaction->commit_lsn >= table->until && !covers);
    default: /* a pattern may list partitions, too */
        return !covers || !(table->is_settled || has_other_root(table));
    }
}

bool mr_pg_captured_takes(const struct mr_pg_captured *captured, uint32_t oid,
                          const struct mr_transaction *transaction, mr_lsn *ret_until)
{
    const struct mr_captured_table *table = table_of(captured, oid);
    bool is_former = table != NULL && table->kind == MR_PG_FORMER;
    *ret_until = is_former && table->until != UINT64_MAX ? table->until : 0;
    return table != NULL && (table->kind == MR_PG_PARTITION ||
                             (is_former && transaction->commit_lsn < table->until));
}

void mr_pg_captured_add_columns(const struct mr_relation *view, struct mr_text *text)
{
    for (uint32_t i = 0; i < view->column_count; i++) {
        const struct mr_column *column = &view->columns[i];
        mr_sql_format(text, i == 0 ? "(%L, %u::oid, " : ", (%L, %u::oid, ", column->name,
                      column->type_oid);
        mr_text_format(text, "%d)", column->type_modifier);
    }
}

struct look {
    bool exists, is_partition;
    /* neither it nor what it is a partition of was attached or detached since the slot's place */
    bool is_settled;
    bool is_renamed; /* what it is a partition of may have another name since */
    bool is_as_made; /* a column is: it was neither attached nor detached, ever */
    uint32_t written;
    mr_lsn at; /* what commits there or later commits after all that the look saw */
};

static mr_status look_at(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         uint32_t oid, struct look *ret_look, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a table of the stream", "lbbbbNb", 1, 1};
    const struct mr_pg_result *result;
    struct mr_text sql = {0};
    mr_sql_add_look(&sql, options, oid);
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    *ret_look = (struct look){.at = mr_pg_result_lsn(result, 0, 0),
                              .exists = mr_pg_result_true(result, 0, 1),
                              .is_partition = mr_pg_result_true(result, 0, 2),
                              .is_settled = mr_pg_result_true(result, 0, 3),
                              .is_renamed = mr_pg_result_true(result, 0, 4),
                              .written = (uint32_t)mr_pg_result_number(result, 0, 5),
                              .is_as_made = mr_pg_result_true(result, 0, 6)};
    return MR_OK;
}

static void log_former(const struct mr_pg_described *described, const char *of)
{
    char table[2 * MR_IDENTIFIER_MAX + 2];
    snprintf(table, sizeof(table), "%s.%s", described->schema, described->table);
    mr_log(MR_LOG_WARN, "partition_gone",
           "a table was a partition of one of \"tables\", as far as the catalog tells, and is none "
           "any "
           "more: its rows of before are passed on as a partition's",
           MR_LOG_STR("table", table), MR_LOG_STR("partitioned", of));
}

/* What a table may have been a partition of. */
struct guess {
    bool is_kin;
    uint32_t root; /* 0: it is not known, or there are several */
};

/* Of each that it may be of; what was seen counts before that. */
static void note_guess(struct mr_kin *kin, uint32_t oid, const struct mr_pg_result *result)
{
    struct mr_origins seen;
    if (mr_kin_find(kin, oid, &seen)) {
        return;
    }
    for (uint32_t i = 0; i < mr_pg_result_rows(result); i++) {
        const struct mr_origin origin = {.oid = (uint32_t)mr_pg_result_number(result, i, 3),
                                         .schema = mr_pg_result_value(result, i, 4),
                                         .table = mr_pg_result_value(result, i, 5)};
        mr_kin_note(kin, oid, &origin);
    }
}

/* Whether it may have been a partition of one of ours. Where no table of ours has its columns, the
 * publication can tell, as long as it sends nothing else, or has what it is a partition of by
 * another name: then it has sent this one for the sake of a table that is gone. */
static mr_status look_for_kin(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_pg_described *described, bool was_attached,
                              struct guess *ret_guess, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a partition's table", "SbSnSS", 1, UINT32_MAX};
    const struct mr_pg_result *result;
    struct mr_text sql = {0};
    mr_sql_add_kin(&sql, options, described->schema, described->oid, described->columns,
                   was_attached, mr_pg_server_version(conn));
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    const char *root = mr_pg_result_value(result, 0, 0);
    const char *gone = mr_pg_result_true(result, 0, 1) ? mr_pg_result_value(result, 0, 2) : NULL;
    bool is_one = mr_pg_result_rows(result) == 1;
    *ret_guess = (struct guess){
        .is_kin = root != NULL || gone != NULL,
        .root = root != NULL && is_one ? (uint32_t)mr_pg_result_number(result, 0, 3) : 0};
    if (ret_guess->is_kin) {
        log_former(described, root != NULL ? root : gone);
        note_guess(options->kin, described->oid, result);
    }
    return MR_OK;
}

mr_status mr_pg_captured_ask(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options,
                             const struct mr_pg_described *described, struct mr_error *ret_error)
{
    struct look look;
    MR_TRY(look_at(conn, options, described->oid, &look, ret_error));
    if (look.is_partition) {
        struct mr_pg_horizon horizon;
        MR_TRY(mr_pg_horizon_read(conn, false, &horizon, ret_error));
        MR_TRY(mr_pg_captured_read(captured, conn, options, &horizon, ret_error));
    }
    const struct mr_captured_table *known = table_of(captured, described->oid);
    if (look.is_partition && known != NULL && known->kind == MR_PG_PARTITION) {
        return MR_OK;
    }
    struct guess guess = {
        .is_kin = was_partition(known),
        .root = known == NULL || !has_other_root(known) ? 0 : known->root,
    };
    bool was_attached = !look.exists || !look.is_settled;
    if (!guess.is_kin && guess.root == 0 && (was_attached || look.is_renamed)) {
        MR_TRY(look_for_kin(conn, options, described, was_attached, &guess, ret_error));
    }
    struct mr_origins seen;
    if (guess.root == 0 && !look.is_as_made && mr_kin_is_cut(options->kin) &&
        !mr_kin_find(options->kin, described->oid, &seen)) {
        mr_kin_note(options->kin, described->oid, &(struct mr_origin){0});
    }
    struct mr_captured_table *table =
        mr_by_oid_make(&captured->tables, sizeof(*table), described->oid);
    /* One that was seen before, and was not attached and detached again since, stays none. */
    bool is_as_seen =
        table->kind == MR_PG_FORMER && table->until != 0 && table->written == look.written;
    table->until = is_as_seen ? table->until : look.exists ? look.at : UINT64_MAX;
    table->kind = guess.is_kin ? MR_PG_FORMER : table->kind;
    table->root = guess.root;
    table->is_settled = true;
    table->written = look.written;
    return MR_OK;
}

bool mr_pg_captured_is_foreign(const struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                               const struct mr_pg_source_options *options, uint32_t oid)
{
    enum mr_pg_capture kind = mr_pg_captured_find(captured, oid);
    struct look look;
    return (kind == MR_PG_UNLISTED || kind == MR_PG_UNKNOWN) &&
           look_at(conn, options, oid, &look, NULL) == MR_OK && look.exists && look.is_settled &&
           !look.is_renamed;
}

struct unsettled {
    struct mr_pg_described *tables; /* with strings of their own */
    uint32_t count, room;
};

static mr_status take_unsettled(void *context, const struct mr_pg_result *row,
                                struct mr_error *ret_error)
{
    struct unsettled *unsettled = context;
    (void)ret_error;
    MR_GROW(unsettled->tables, unsettled->room, unsettled->count + 1);
    unsettled->tables[unsettled->count++] =
        (struct mr_pg_described){.oid = (uint32_t)mr_pg_result_number(row, 0, 0),
                                 .schema = MR_STRDUP(mr_pg_result_value(row, 0, 1)),
                                 .table = MR_STRDUP(mr_pg_result_value(row, 0, 2)),
                                 .columns = MR_STRDUP(mr_pg_result_value(row, 0, 3))};
    return MR_OK;
}

static void unsettled_done(struct unsettled *unsettled)
{
    for (uint32_t i = 0; i < unsettled->count; i++) {
        free((char *)unsettled->tables[i].schema);
        free((char *)unsettled->tables[i].table);
        free((char *)unsettled->tables[i].columns);
    }
    free(unsettled->tables);
}

mr_status mr_pg_captured_guess(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                               uint32_t oid, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"tables that may have been attached", "nsss", 0,
                                             UINT32_MAX};
    struct unsettled unsettled = {0};
    struct mr_text sql = {0};
    if (options->kin == NULL) {
        return MR_OK;
    }
    mr_sql_add_unsettled(&sql, options, oid, mr_pg_server_version(conn));
    mr_status status = mr_pg_ask_rows(conn, &sql, &shape, take_unsettled, &unsettled, ret_error);
    for (uint32_t i = 0; i < unsettled.count && status == MR_OK; i++) {
        struct mr_origins seen;
        struct guess guess;
        if (!mr_kin_find(options->kin, unsettled.tables[i].oid, &seen)) {
            status = look_for_kin(conn, options, &unsettled.tables[i], true, &guess, ret_error);
        }
    }
    unsettled_done(&unsettled);
    return status;
}

void mr_pg_captured_done(struct mr_pg_captured *captured)
{
    mr_by_oid_done(&captured->tables);
    const struct mr_captured_root *roots = captured->roots.items;
    for (uint32_t i = 0; i < captured->roots.count; i++) {
        free(roots[i].schema);
        free(roots[i].table);
    }
    mr_by_oid_done(&captured->roots);
    captured->horizon = (struct mr_pg_horizon){0};
}

enum mr_pg_capture mr_pg_captured_find(const struct mr_pg_captured *captured, uint32_t oid)
{
    const struct mr_captured_table *found = table_of(captured, oid);
    return found == NULL ? MR_PG_UNKNOWN : found->kind;
}
