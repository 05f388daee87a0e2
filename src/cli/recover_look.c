#include "cli/recover.h"

#include <sys/wait.h>
#include <time.h>

#include "cli/show.h"
#include "event/lsn.h"
#include "kafka/kafka_check.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_setup.h"
#include "terminal/runbook.h"
#include "terminal/terminal.h"

enum { NAMED_MAX = 10, NAME_WIDTH = 12 };

const char *const mr_ways[MR_WAYS] = {
    [MR_WAY_DIFFERING] = "differing", [MR_WAY_EVERYTHING] = "everything", [MR_WAY_GAP] = "gap"};

/* The first finding of a check that matters. */
struct found {
    bool history_alone; /* only what keeps the stream from going on */
    bool warnings_too;
    mr_status status; /* MR_OK: there is none */
    char text[MR_ERROR_TEXT_MAX];
    char steps[MR_ERROR_TEXT_MAX]; /* its remedy; "": it has none */
};

/* mr_finding_fn */
static void recover_look_take_finding(void *context, enum mr_finding_level level, mr_status status,
                                      const char *subject, const char *finding, const char *remedy)
{
    struct found *found = context;
    (void)remedy;
    bool counts = level == MR_FINDING_ERROR || (found->warnings_too && level != MR_FINDING_OK);
    if (!counts || status == MR_OK || found->status != MR_OK ||
        (found->history_alone && status != MR_ERR_HISTORY)) {
        return;
    }
    bool is_verb = strncmp(finding, "is ", 3) == 0 || strncmp(finding, "does ", 5) == 0;
    found->status = status;
    snprintf(found->text, sizeof(found->text), "%s%s%s", is_verb ? subject : "", is_verb ? " " : "",
             finding);
    /* What to do about it is said here otherwise. */
    char *lead = strstr(found->text, MR_RECIPE_LEAD);
    char *steps = strstr(found->text, "1. ");
    snprintf(found->steps, sizeof(found->steps), "%s", steps == NULL ? "" : steps);
    if (lead != NULL) {
        *lead = '\0';
    } else if (steps != NULL) {
        *steps = '\0';
        char *end = strrchr(found->text, ';');
        *(end == NULL ? steps : end) = '\0';
    }
}

/* What a start with that snapshot.mode would find. */
static struct found check_start(const struct mr_recover *recover, enum mr_pg_copies copies,
                                bool history_alone)
{
    struct mr_pg_source_options source = recover->config->source;
    struct found found = {.history_alone = history_alone};
    source.copies = copies;
    mr_pg_check(&source, recover->is_found ? &recover->stored : NULL, recover_look_take_finding,
                &found);
    return found;
}

static mr_status read_stored(struct mr_recover *recover, struct mr_error *ret_error)
{
    const struct mr_kafka_options *options = &recover->config->kafka;
    if (recover->config->sink_kind != MR_SINK_KAFKA || options->state_topic == NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "recover goes by the stored position, and none is stored without "
                       "sink.kafka.state_topic; docs/runbook.md, E-exit-10, says what to do");
    }
    struct mr_kafka_stored stored = {0};
    struct found found = {.warnings_too = true};
    mr_kafka_check(options, NULL, 0, recover_look_take_finding, &found, &stored);
    if (found.status != MR_OK) {
        return mr_fail(ret_error, found.status, "%s", found.text);
    }
    recover->is_found = stored.found;
    mr_lsn_shift = stored.found ? stored.state.identity.moved.shift : 0;
    recover->stored = stored.state;
    recover->gap = mr_gap_stored(&stored.state);
    return MR_OK;
}

static mr_status refuse_owner(const struct mr_recover *recover, struct mr_error *ret_error)
{
    struct mr_pg_owner owner;
    MR_TRY(mr_pg_find_owner(recover->conn, &recover->config->source, &owner, ret_error));
    return !owner.exists || !owner.may_replicate
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "a millrace streams from slot \"%s\" (%s): the stream goes on, or goes on "
                         "again; stop it first, or ask it (millrace verify --repair)",
                         recover->config->source.slot, owner.who);
}

static mr_lsn delivered_up_to(const struct mr_recover *recover)
{
    return mr_pg_stream_state_of(&recover->stored, &recover->config->source).delivered;
}

static void recover_look_refuse(struct mr_recover *recover, enum mr_way way, const char *why)
{
    if (recover->refusals[way][0] == '\0') {
        snprintf(recover->refusals[way], sizeof(recover->refusals[way]), "%s", why);
    }
}

static void find_ways(struct mr_recover *recover)
{
    enum mr_pg_copies copies = recover->loss[0] == '\0' ? MR_COPIES_ALWAYS : MR_COPIES_WHEN_NEEDED;
    recover_look_refuse(recover, MR_WAY_GAP,
                        check_start(recover, MR_COPIES_ACCEPT_GAP, false).text);
    recover_look_refuse(recover, MR_WAY_DIFFERING, recover->refusals[MR_WAY_GAP]);
    recover_look_refuse(recover, MR_WAY_EVERYTHING, check_start(recover, copies, false).text);
    if (recover->config->source.where_count > 0) {
        recover_look_refuse(recover, MR_WAY_EVERYTHING,
                            "snapshot.where leaves rows out, which may have changed in the gap: "
                            "take it out of the file for this");
    }
    uint32_t proved = 0;
    const char *why = NULL;
    for (uint32_t i = 0; i < recover->tables.count; i++) {
        const char *fault = recover->tables.items[i].unprovable;
        proved += fault == NULL;
        why = fault == NULL ? why : fault;
    }
    if (proved == 0) {
        recover_look_refuse(recover, MR_WAY_DIFFERING, why == NULL ? "no table is streamed" : why);
    }
    if (!mr_recover_has_gap(recover)) {
        recover_look_refuse(recover, MR_WAY_EVERYTHING,
                            "the stream can go on, so millrace snapshot copies tables beside it");
    }
}

/* False: the line is none of millrace-verify's. */
static bool recover_look_take_table(struct mr_recover_tables *tables, const char *line)
{
    MR_OBJECT cJSON *object = cJSON_Parse(line);
    struct mr_recover_table table = {.schema = mr_object_copy(object, "schema"),
                                     .table = mr_object_copy(object, "table"),
                                     .is_published =
                                         cJSON_IsTrue(mr_object_at(object, "published")),
                                     .unprovable = mr_object_copy(object, "unprovable"),
                                     .uncertain = mr_object_copy(object, "uncertain")};
    MR_GROW(tables->items, tables->room, tables->count + 1);
    tables->items[tables->count++] = table;
    return table.schema != NULL && table.table != NULL;
}

/* What it prints on standard error is for the person. */
static mr_status list_tables(struct mr_recover *recover, char *const *environment,
                             struct mr_error *ret_error)
{
    const char *const arguments[] = {"millrace-verify",     "--list", "--gap", "--json", "--config",
                                     recover->config->path, NULL};
    int pid;
    int out;
    int wait_status;
    MR_TRY(mr_cli_verify_start(arguments, environment, &pid, &out, ret_error));
    FILE *lines = fdopen(out, "r");
    MR_FREED char *line = NULL;
    size_t size = 0;
    bool good = lines != NULL;
    while (good && getline(&line, &size, lines) > 0) {
        good = recover_look_take_table(&recover->tables, line);
    }
    if (lines != NULL) {
        fclose(lines);
    }
    good = waitpid(pid, &wait_status, 0) == pid && good && WIFEXITED(wait_status) &&
           WEXITSTATUS(wait_status) == 0;
    return good ? MR_OK
                : mr_fail(ret_error, MR_ERR_TRANSIENT,
                          "millrace-verify --list has failed, so the tables are not known; run it "
                          "by hand, and then this again");
}

/* By a connection of its own, on which a timeline's history can be asked for. */
static mr_status find_left(struct mr_recover *recover, int stop_fd, bool *ret_is_same_cluster,
                           struct mr_error *ret_error)
{
    struct mr_identity now;
    *ret_is_same_cluster = true;
    const struct mr_pg_source_options *source = &recover->config->source;
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    if (recover->loss[0] == '\0' || !recover->is_found) {
        return MR_OK;
    }
    MR_TRY(mr_pg_connect(&source->connection, true, stop_fd, &conn, ret_error));
    MR_TRY(mr_pg_identity(conn, source, &now, ret_error));
    *ret_is_same_cluster = strcmp(now.system_id, recover->stored.identity.system_id) == 0;
    return mr_pg_left_at(conn, source, &recover->stored, &recover->left_at, ret_error);
}

static mr_status recover_look_look(struct mr_recover *recover, char *const *environment,
                                   int stop_fd, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *source = &recover->config->source;
    int64_t end;
    MR_TRY(mr_pg_connect(&source->connection, false, stop_fd, &recover->conn, ret_error));
    MR_TRY(refuse_owner(recover, ret_error));
    MR_TRY(read_stored(recover, ret_error));
    MR_TRY(list_tables(recover, environment, ret_error));
    MR_TRY(mr_pg_ask_number(recover->conn, "the end of its WAL", 'l', &end, ret_error,
                            "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
                            " ELSE pg_current_wal_insert_lsn() END"));
    recover->server_end = (mr_lsn)end;
    bool mends = mr_pg_mends_gap(source->copies) || source->copies == MR_COPIES_ALWAYS;
    struct found found = check_start(recover, mends ? MR_COPIES_NOTHING : source->copies, true);
    snprintf(recover->loss, sizeof(recover->loss), "%s", found.text);
    bool is_same_cluster;
    MR_TRY(find_left(recover, stop_fd, &is_same_cluster, ret_error));
    find_ways(recover);
    bool is_below =
        recover->is_found && is_same_cluster && recover->server_end < delivered_up_to(recover);
    if (is_below && recover->refusals[MR_WAY_GAP][0] != '\0') {
        snprintf(recover->steps, sizeof(recover->steps), "%s", found.steps);
    }
    return MR_OK;
}

mr_status mr_recover_look(const struct mr_config *config, char *const *environment, int stop_fd,
                          struct mr_recover *ret, struct mr_error *ret_error)
{
    *ret = (struct mr_recover){.config = config};
    return recover_look_look(ret, environment, stop_fd, ret_error);
}

void mr_recover_done(struct mr_recover *recover)
{
    mr_checkpoint_done(&recover->stored);
    for (uint32_t i = 0; i < recover->tables.count; i++) {
        free(recover->tables.items[i].schema);
        free(recover->tables.items[i].table);
        free(recover->tables.items[i].unprovable);
        free(recover->tables.items[i].uncertain);
    }
    free(recover->tables.items);
    mr_pg_close(recover->conn);
}

/* ---- what is said ---- */

struct moment {
    char text[48];
};

static struct moment moment_of(int64_t ms)
{
    struct moment moment = {"an unknown time"};
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    if (ms != 0 && gmtime_r(&seconds, &parts) != NULL) {
        strftime(moment.text, sizeof(moment.text), "%Y-%m-%d %H:%M:%S UTC", &parts);
    }
    return moment;
}

static MR_PRINTF(3, 4) void recover_look_say(FILE *to, const char *name, const char *format, ...)
{
    MR_TEXT(text);
    va_list arguments;
    va_start(arguments, format);
    mr_text_vformat(&text, format, arguments);
    va_end(arguments);
    fprintf(to, "%-*s", NAME_WIDTH, name);
    mr_terminal_wrap(to, text.data, NAME_WIDTH, NAME_WIDTH);
}

static void say_tables(const struct mr_recover *recover, FILE *to)
{
    MR_TEXT(names);
    uint32_t count = 0;
    for (uint32_t i = 0; i < recover->tables.count; i++) {
        const struct mr_recover_table *one = &recover->tables.items[i];
        if (one->is_published && count++ < NAMED_MAX) {
            mr_text_format(&names, "%s%s.%s", count > 1 ? ", " : "", one->schema, one->table);
        }
    }
    recover_look_say(to, "tables", "%u that are streamed%s%s%s", count, count == 0 ? "" : ": ",
                     count == 0 ? "" : names.data, count > NAMED_MAX ? ", and others" : "");
}

/* A gap that is there already has its own bounds. */
static void say_missing(const struct mr_recover *recover, FILE *to)
{
    int64_t last_ms = recover->stored.last.time_us / 1000;
    bool is_left = recover->left_at != 0 && recover->left_at < recover->stored.end_lsn;
    mr_lsn from = is_left ? recover->left_at : recover->stored.end_lsn;
    const struct mr_gap *gap = &recover->gap;
    if (gap->is_open) {
        recover_look_say(to, "gap",
                         "changes that committed between " MR_LSN_FORMAT " and " MR_LSN_FORMAT
                         ", from %s to %s; nothing was done about it yet",
                         MR_LSN_ARGS(gap->from), MR_LSN_ARGS(gap->to), moment_of(gap->from_ms).text,
                         moment_of(gap->at_ms).text);
    }
    if (recover->loss[0] != '\0' && recover->is_found && recover->server_end >= from) {
        recover_look_say(to, "missing",
                         "perhaps changes that committed after " MR_LSN_FORMAT
                         " (%s), up to " MR_LSN_FORMAT
                         " (now): %s of WAL, of all databases and tables",
                         MR_LSN_ARGS(from),
                         is_left ? "where the server left the timeline of what was delivered"
                                 : moment_of(last_ms).text,
                         MR_LSN_ARGS(recover->server_end),
                         mr_show_bytes((double)(recover->server_end - from)).bytes);
    }
}

static void say_server(const struct mr_recover *recover, FILE *to)
{
    char see[MR_LOG_SEE_MAX];
    if (recover->loss[0] == '\0') {
        recover_look_say(to, "server", "nothing that keeps the stream from going on");
        return;
    }
    recover_look_say(to, "server", "%s", recover->loss);
    mr_runbook_see(mr_slice_of(recover->loss), see);
    const char *section = strrchr(see, ' ');
    MR_FREED char *meaning = section == NULL ? NULL : mr_runbook_item(section + 1, NULL);
    if (meaning != NULL) {
        recover_look_say(to, "", "%s", meaning);
        recover_look_say(to, "", "See %s.", see);
    }
}

/* Before somebody chooses it. */
static void say_uncertain(const struct mr_recover *recover, FILE *to)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < recover->tables.count; i++) {
        const struct mr_recover_table *one = &recover->tables.items[i];
        const char *why = one->unprovable != NULL ? one->unprovable : one->uncertain;
        if (one->is_published && why != NULL && count++ < NAMED_MAX) {
            recover_look_say(to, "", "Not for %s.%s: %s.", one->schema, one->table, why);
        }
    }
    if (count > NAMED_MAX) {
        recover_look_say(to, "", "Nor for %u others.", count - NAMED_MAX);
    }
}

static void say_ways(const struct mr_recover *recover, FILE *to)
{
    fputs("\nWhat can be done:\n", to);
    if (recover->steps[0] != '\0') {
        fputc('\n', to);
        recover_look_say(to, "new topics", "%s.", recover->steps);
        fputc('\n', to);
        return;
    }
    for (int way = 0; way < MR_WAYS; way++) {
        MR_FREED char *text = mr_runbook_item("E-exit-10", mr_ways[way]);
        const char *refusal = recover->refusals[way];
        fputc('\n', to);
        if (refusal[0] == '\0') {
            recover_look_say(to, mr_ways[way], "%s", text == NULL ? "" : text);
            if (way == MR_WAY_DIFFERING) {
                say_uncertain(recover, to);
            }
        } else {
            recover_look_say(to, mr_ways[way], "Not now: %s.", refusal);
        }
    }
    fputc('\n', to);
}

void mr_recover_print(const struct mr_recover *recover, FILE *to)
{
    if (recover->is_found) {
        recover_look_say(to, "delivered",
                         "all that ends at or before " MR_LSN_FORMAT
                         "; the last rows committed at %s",
                         MR_LSN_ARGS(recover->stored.end_lsn),
                         moment_of(recover->stored.last.time_us / 1000).text);
    } else {
        recover_look_say(to, "delivered",
                         "not known: under sink.kafka.state_name no position is stored");
    }
    say_server(recover, to);
    say_missing(recover, to);
    say_tables(recover, to);
    say_ways(recover, to);
}
