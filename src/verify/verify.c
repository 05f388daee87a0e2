#include "verify/verify.h"

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/pattern.h"
#include "postgres/server/pg_copying.h"
#include "terminal/terminal.h"
#include "verify/repair.h"

enum { CONFLICTS_MAX = 5 };

int mr_verify_exit_code(enum mr_verify_verdict verdict)
{
    static const enum mr_verify_code codes[] = {[MR_VERIFY_EQUAL] = MR_VERIFY_CODE_EQUAL,
                                                [MR_VERIFY_IN_PART] = MR_VERIFY_CODE_IN_PART,
                                                [MR_VERIFY_UNPROVABLE] = MR_VERIFY_CODE_IN_PART,
                                                [MR_VERIFY_NONE] = MR_VERIFY_CODE_NONE,
                                                [MR_VERIFY_DIFFERENT] = MR_VERIFY_CODE_DIFFERENT};
    return (int)codes[verdict];
}

/* As every command has it, or as a report writes it, where either part may have dots. */
static bool verify_is_named(const struct mr_verify_listed *listed, const char *name)
{
    MR_FREED char *split = MR_STRDUP(name);
    const char *schema, *table;
    size_t len = strlen(listed->schema);
    return (strncmp(listed->schema, name, len) == 0 && name[len] == '.' &&
            strcmp(name + len + 1, listed->table) == 0) ||
           (mr_table_name_split(split, &schema, &table) && strcmp(schema, listed->schema) == 0 &&
            strcmp(table, listed->table) == 0);
}

static mr_status refuse_unknown(const struct mr_verify_tools *tools,
                                const struct mr_verify_list *list, struct mr_error *ret_error)
{
    const struct mr_verify_options *options = tools->options;
    for (uint32_t i = 0; i < options->table_count; i++) {
        if (!MR_ANY(table, list->tables, list->count, verify_is_named(table, options->tables[i]))) {
            return mr_fail(ret_error, MR_ERR_CONFIG,
                           "table \"%s\" is not streamed; the publication \"%s\" and \"tables\" "
                           "say what is",
                           options->tables[i], tools->config->source.publication);
        }
    }
    return list->count > 0 ? MR_OK
                           : mr_fail(ret_error, MR_ERR_CONFIG,
                                     "no table is streamed; the publication \"%s\" and \"tables\" "
                                     "say what is",
                                     tools->config->source.publication);
}

static bool is_wanted(const struct mr_verify_options *options,
                      const struct mr_verify_listed *listed)
{
    bool is_named = options->table_count == 0 || MR_ANY(name, options->tables, options->table_count,
                                                        verify_is_named(listed, *name));
    return is_named && (options->wants == NULL || options->wants(options->context, listed));
}

/* A standby may be behind, but not of another cluster. */
static bool is_standby_of(struct mr_pg_conn *conn, const struct mr_pg_place *primary)
{
    struct mr_pg_place place;
    return mr_pg_place_read(conn, &place, NULL) == MR_OK && place.is_standby &&
           strcmp(place.system_id, primary->system_id) == 0 &&
           strcmp(place.database, primary->database) == 0;
}

static void disconnect(struct mr_verify_tools *tools)
{
    if (tools->rows != tools->conn) {
        mr_pg_close(tools->rows);
    }
    mr_pg_close(tools->conn);
    tools->rows = tools->conn = NULL;
}

static mr_status connect_to_both(struct mr_verify_tools *tools, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *source = &tools->config->source;
    const struct mr_pg_options *connection =
        mr_pg_copies_apart(source) ? &source->copying : &source->connection;
    MR_TRY(mr_pg_connect(connection, false, tools->stop_fd, &tools->conn, ret_error));
    tools->rows = tools->conn;
    if (!tools->config->values.verify_standby || mr_pg_is_standby(tools->conn)) {
        return MR_OK;
    }
    struct mr_pg_place primary;
    MR_TRY(mr_pg_place_read(tools->conn, &primary, ret_error));
    char *name;
    for (uint32_t i = 0; (name = mr_pg_host_name(connection, i)) != NULL; i++) {
        free(name);
        struct mr_pg_conn *conn;
        if (mr_pg_connect_to(connection, i, tools->stop_fd, &conn, NULL) == MR_OK) {
            if (is_standby_of(conn, &primary)) {
                tools->rows = conn;
                return MR_OK;
            }
            mr_pg_close(conn);
        }
    }
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "verify.standby is set, and none of the connection string's hosts is a standby "
                   "of this cluster that answers; start one, or unset it");
}

/* On a standby, what is replayed goes before who reads: a statement that is in the way is
 * cancelled, and a connection that waits within its transaction is ended (manual, "Handling Query
 * Conflicts"; ProcessRecoveryConflictInterrupt in tcop/postgres.c). */
static mr_status prove_through_conflicts(struct mr_verify_tools *tools, struct mr_proof *proof,
                                         struct mr_error *ret_error)
{
    const struct mr_verify_listed *listed = proof->listed;
    mr_status status = mr_prove(tools, listed, proof, ret_error);
    for (int i = 1; i < CONFLICTS_MAX && status == MR_ERR_TRANSIENT && tools->rows != NULL &&
                    mr_pg_is_standby(tools->rows);
         i++) {
        bool is_again = proof->is_again;
        mr_proof_done(proof);
        *proof = (struct mr_proof){.listed = listed, .is_again = is_again};
        disconnect(tools);
        status = connect_to_both(tools, ret_error);
        status = MR_THEN(status, mr_prove(tools, listed, proof, ret_error));
    }
    return status;
}

static mr_status verify_prove(struct mr_verify_tools *tools, FILE *to, struct mr_proof *proof,
                              struct mr_error *ret_error)
{
    const struct mr_verify_options *options = tools->options;
    int64_t begun_ns = mr_wall_ns();
    MR_TRY(prove_through_conflicts(tools, proof, ret_error));
    if (options->taken != NULL) {
        options->taken(options->context, proof, begun_ns);
    }
    if (tools->shows_progress) {
        fputs("\r\033[K", stderr);
    }
    (tools->options->json ? mr_proof_print_json : mr_proof_print)(proof, to);
    fflush(to);
    return MR_OK;
}

static uint64_t differences_of(const struct mr_proof *proof)
{
    uint64_t all = 0;
    for (int kind = 0; kind < MR_DIFFERENCE_COUNT; kind++) {
        all += proof->counts.differences[kind];
    }
    return all;
}

static bool is_repairable(const struct mr_proof *proof)
{
    return proof->verdict == MR_VERIFY_DIFFERENT ||
           (proof->verdict == MR_VERIFY_IN_PART &&
            proof->counts.differences[MR_DIFFERENCE_UNKNOWN] > 0);
}

/* In rounds: so many differences are named at once. One that mends nothing is the last. */
static mr_status verify_repair(struct mr_verify_tools *tools, FILE *to, struct mr_proof *proof,
                               struct mr_error *ret_error)
{
    uint64_t left = differences_of(proof);
    uint64_t before;
    do {
        struct mr_repair done;
        before = left;
        MR_TRY(mr_repair(tools, proof, &done, ret_error));
        mr_repair_print(tools, proof, &done, to);
        if (!tools->options->yes || done.asked == 0) {
            return MR_OK;
        }
        bool is_all = done.fault.status != MR_OK || proof->named_count == before;
        const struct mr_verify_listed *listed = proof->listed;
        mr_proof_done(proof);
        *proof = (struct mr_proof){.listed = listed, .is_again = true};
        MR_TRY(verify_prove(tools, to, proof, ret_error));
        left = is_all ? before : differences_of(proof);
    } while (left < before && is_repairable(proof));
    return MR_OK;
}

static mr_status verify_tables(struct mr_verify_tools *tools, const struct mr_verify_list *list,
                               FILE *to, enum mr_verify_verdict *ret_verdict,
                               struct mr_error *ret_error)
{
    MR_TRY(refuse_unknown(tools, list, ret_error));
    mr_status status = MR_OK;
    for (uint32_t i = 0; i < list->count && status == MR_OK; i++) {
        if (!is_wanted(tools->options, &list->tables[i])) {
            continue;
        }
        struct mr_proof proof = {.listed = &list->tables[i]};
        status = verify_prove(tools, to, &proof, ret_error);
        bool repairs = status == MR_OK && tools->options->repairs;
        if (repairs && is_repairable(&proof)) {
            status = verify_repair(tools, to, &proof, ret_error);
        }
        if (status == MR_OK || repairs) {
            *ret_verdict = proof.verdict > *ret_verdict ? proof.verdict : *ret_verdict;
        }
        mr_proof_done(&proof);
    }
    return status;
}

mr_status mr_verify(const struct mr_config *config, const struct mr_verify_options *options,
                    int stop_fd, FILE *to, enum mr_verify_verdict *ret_verdict,
                    struct mr_error *ret_error)
{
    *ret_verdict = MR_VERIFY_EQUAL;
    if (config->sink_kind != MR_SINK_KAFKA) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "verify compares with Kafka's topics, and sink.type is not \"kafka\"");
    }
    if (options->yes && !config->http.enabled) {
        return mr_fail(
            ret_error, MR_ERR_CONFIG,
            "http is off (http.address is empty), and a repair asks the running millrace by it");
    }
    struct mr_verify_tools tools = {.config = config,
                                    .options = options,
                                    .key = mr_digest_draw_key(),
                                    .named_max = options->repairs ? MR_VERIFY_REPAIRED_MAX
                                                                  : MR_VERIFY_NAMED_MAX,
                                    .stop_fd = stop_fd,
                                    .shows_progress = isatty(STDERR_FILENO) != 0};
    tools.avro = config->encode.format == MR_FORMAT_AVRO ? mr_avro_new(&config->registry) : NULL;
    mr_status status = connect_to_both(&tools, ret_error);
    status = MR_THEN(status, mr_kafka_reader_new(&config->kafka, &tools.reader, ret_error));
    struct mr_verify_list list = {0};
    status = MR_THEN(status, mr_verify_list(tools.conn, config, &list, ret_error));
    status = MR_THEN(status, verify_tables(&tools, &list, to, ret_verdict, ret_error));
    mr_verify_list_free(&list);
    mr_kafka_reader_free(tools.reader);
    mr_avro_free(tools.avro);
    disconnect(&tools);
    return status;
}

/* Why the table's changes of a gap can't be found, or not sent; what can't be looked at, the proof
 * says later. The caller frees it. */
static char *find_uncertain(const struct mr_verify_tools *tools,
                            const struct mr_verify_listed *listed)
{
    struct mr_verify_table table;
    const char *column;
    struct mr_kafka_extent extent = {0};
    if (tools->reader == NULL ||
        mr_verify_describe(tools->rows, tools->config, listed, tools->key, &table, NULL) != MR_OK) {
        return NULL;
    }
    const char *why = mr_repair_refusal(&table, &column);
    char *text = why == NULL ? NULL : mr_formatted("%s%s", why, column);
    if (text == NULL && mr_kafka_reader_open(tools->reader, table.topic, &extent, NULL) == MR_OK &&
        extent.cut > 0) {
        text = MR_STRDUP(MR_PROOF_HEAD_IS_GONE);
    }
    mr_verify_table_done(&table);
    return text;
}

static void print_listed(const struct mr_verify_tools *tools, const struct mr_verify_listed *listed,
                         FILE *to)
{
    const char *why = mr_unprovable(tools->config, listed);
    MR_FREED char *uncertain =
        listed->is_published && why == NULL ? find_uncertain(tools, listed) : NULL;
    if (tools->options->json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "schema", listed->schema);
        cJSON_AddStringToObject(object, "table", listed->table);
        cJSON_AddBoolToObject(object, "published", listed->is_published);
        cJSON_AddItemToObject(object, "unprovable",
                              why == NULL ? cJSON_CreateNull() : cJSON_CreateString(why));
        if (uncertain != NULL) {
            cJSON_AddStringToObject(object, "uncertain", uncertain);
        }
        mr_said_print(object, to);
    } else {
        why = why == NULL && !listed->is_published ? "it is not in the publication" : why;
        why = why == NULL ? uncertain : why;
        fprintf(to, "%s.%s%s%s\n", listed->schema, listed->table,
                why == NULL ? "" : ": cannot be proved: ", why == NULL ? "" : why);
    }
}

mr_status mr_verify_print_list(const struct mr_config *config,
                               const struct mr_verify_options *options, int stop_fd, FILE *to,
                               struct mr_error *ret_error)
{
    struct mr_verify_tools tools = {.config = config, .options = options, .stop_fd = stop_fd};
    struct mr_verify_list list = {0};
    mr_status status = connect_to_both(&tools, ret_error);
    status = MR_THEN(status, mr_verify_list(tools.conn, config, &list, ret_error));
    if (status == MR_OK && options->gap) {
        status = mr_kafka_reader_new(&config->kafka, &tools.reader, ret_error);
    }
    for (uint32_t i = 0; i < list.count && status == MR_OK; i++) {
        if (is_wanted(options, &list.tables[i])) {
            print_listed(&tools, &list.tables[i], to);
        }
    }
    mr_verify_list_free(&list);
    mr_kafka_reader_free(tools.reader);
    disconnect(&tools);
    return status;
}
