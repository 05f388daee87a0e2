#include "copy/signals.h"

#include <ctype.h>
#include <strings.h>

#include "base/clock.h"
#include "base/object.h"
#include "base/pattern.h"
#include "stream/pg_source.h"

enum {
    DATA_MAX = 64 * 1024,
    COLLECTIONS_MAX = 200,
    WHERE_MAX = 4096,
    TOLD_MAX = 10, /* lines of the log about one signal */
};

/* CPU time that the expressions of one signal may take: the stream waits meanwhile. */
#define MATCHING_NS (INT64_C(2000) * 1000000)

/* What makes a name an expression (regcomp's REG_EXTENDED). A dot alone does not: Debezium's users
 * write names as they are. */
#define EXPRESSION_SIGNS "*+?[({|\\^$"

/* Ids, types and names are somebody's texts: a line has the beginning. */
enum { SHOWN_MAX = 160 };

struct signal {
    struct mr_copies *copies;
    struct mr_source *source;
    char id[SHOWN_MAX], type[SHOWN_MAX];
    const cJSON *data; /* an object */
    mr_lsn lsn;        /* of its row; 0: it has none */
    int64_t cpu_end_ns;
    uint32_t told; /* lines */
};

static void ignored(struct signal *signal, const char *reason)
{
    if (signal->told > TOLD_MAX) {
        return;
    }
    mr_log(MR_LOG_WARN, "signal_ignored",
           signal->told < TOLD_MAX ? reason : "what else is wrong with it is not logged",
           MR_LOG_STR("channel", "source"), MR_LOG_STR("id", signal->id),
           MR_LOG_STR("type", signal->type));
    signal->told++;
}

typedef void (*table_fn)(struct signal *signal, const char *schema, const char *table);

static bool takes_too_long(const struct signal *signal)
{
    return mr_clock_ns(CLOCK_THREAD_CPUTIME_ID) > signal->cpu_end_ns;
}

static enum mr_regex_result signals_matches(const struct mr_regex *regex, const char *schema,
                                            const char *table)
{
    MR_TEXT(name);
    mr_text_format(&name, "%s.%s", schema, table);
    return mr_regex_match(regex, mr_slice_of(name.data), NULL);
}

/* An expression stands for the tables of the stream whose names, schema included, it matches as a
 * whole. */
static void each_match(struct signal *signal, const char *text, const struct mr_pg_tables *tables,
                       table_fn act)
{
    char reason[256];
    char told[512];
    struct mr_regex *regex = mr_regex_new(text, reason, sizeof(reason));
    uint32_t found = 0;
    bool in_time = true;
    for (uint32_t i = 0; regex != NULL && i < tables->count && in_time; i++) {
        const char *schema = tables->names[2 * i];
        const char *table = tables->names[2 * i + 1];
        enum mr_regex_result result = signals_matches(regex, schema, table);
        if (result == MR_REGEX_YES) {
            act(signal, schema, table);
            found++;
        }
        in_time = result != MR_REGEX_TOO_LONG && !takes_too_long(signal);
    }
    if (!in_time) {
        ignored(signal, "data-collections has expressions that take too long, and some tables were "
                        "not compared with them");
    } else if (regex == NULL) {
        snprintf(told, sizeof(told),
                 "data-collections: \"%.100s\" is no regular expression: %.200s", text, reason);
        ignored(signal, told);
    } else if (found == 0) {
        snprintf(told, sizeof(told), "data-collections: \"%.100s\" matches no table of this stream",
                 text);
        ignored(signal, told);
    }
    mr_regex_free(regex);
}

static char *trimmed(const char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    char *copy = MR_STRDUP(text);
    size_t len = strlen(copy);
    while (len > 0 && isspace((unsigned char)copy[len - 1])) {
        copy[--len] = '\0';
    }
    return copy;
}

static void each_table(struct signal *signal, const char *entry, const struct mr_pg_tables *tables,
                       table_fn act)
{
    MR_FREED char *text = trimmed(entry);
    const char *schema;
    const char *table;
    if (strpbrk(text, EXPRESSION_SIGNS) != NULL) {
        each_match(signal, text, tables, act);
    } else if (mr_table_name_split(text, &schema, &table)) {
        act(signal, schema, table);
    } else {
        ignored(signal, "data-collections has a name that is none; write \"schema.table\"");
    }
}

static const cJSON *signals_member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static int count_expressions(const cJSON *list)
{
    int count = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, list)
    {
        if (!cJSON_IsString(one)) {
            return -1;
        }
        count += strpbrk(one->valuestring, EXPRESSION_SIGNS) != NULL;
    }
    return cJSON_IsArray(list) && cJSON_GetArraySize(list) <= COLLECTIONS_MAX ? count : -1;
}

/* All tables that "data-collections" names. The server is asked for names before anything is done:
 * what fails then leaves nothing half done. */
static mr_status each_collection(struct signal *signal, table_fn act, struct mr_error *ret_error)
{
    const cJSON *list = signals_member(signal->data, "data-collections");
    struct mr_pg_tables tables = {0};
    if (count_expressions(list) > 0) {
        MR_TRY(mr_pg_source_tables(signal->source, &tables, ret_error));
    }
    const cJSON *one;
    cJSON_ArrayForEach(one, list)
    {
        each_table(signal, one->valuestring, &tables, act);
    }
    mr_pg_tables_done(&tables);
    return MR_OK;
}

/* The filter of the first condition whose expression matches the table (Debezium's
 * AdditionalCondition); NULL: none does. They are compiled one at a time: what one takes, two
 * hundred would take together. */
static const char *filter_of(const struct signal *signal, const char *schema, const char *table)
{
    const cJSON *old =
        signals_member(signal->data, "additional-condition"); /* before Debezium 2.5 */
    const cJSON *one;
    cJSON_ArrayForEach(one, signals_member(signal->data, "additional-conditions"))
    {
        char reason[256];
        const char *name = signals_member(one, "data-collection")->valuestring;
        struct mr_regex *regex = mr_regex_new(name, reason, sizeof(reason));
        MR_ASSERT(regex != NULL);
        bool found = signals_matches(regex, schema, table) == MR_REGEX_YES;
        mr_regex_free(regex);
        if (found) {
            return signals_member(one, "filter")->valuestring;
        }
    }
    return cJSON_GetStringValue(old);
}

/* What is wrong with the conditions; NULL: nothing. */
static const char *conditions_fault(const struct signal *signal)
{
    const cJSON *list = signals_member(signal->data, "additional-conditions");
    const cJSON *old = signals_member(signal->data, "additional-condition");
    if ((list != NULL && !cJSON_IsArray(list)) || cJSON_GetArraySize(list) > COLLECTIONS_MAX ||
        (old != NULL && !cJSON_IsString(old))) {
        return "additional-conditions is no list of conditions";
    }
    const cJSON *one;
    cJSON_ArrayForEach(one, list)
    {
        const char *name = cJSON_GetStringValue(signals_member(one, "data-collection"));
        const char *filter = cJSON_GetStringValue(signals_member(one, "filter"));
        char reason[256];
        struct mr_regex *regex = name == NULL ? NULL : mr_regex_new(name, reason, sizeof(reason));
        bool good = regex != NULL && filter != NULL && strlen(filter) <= WHERE_MAX;
        mr_regex_free(regex);
        if (!good || takes_too_long(signal)) {
            return good ? "additional-conditions has expressions that take too long"
                        : "additional-conditions: each needs \"data-collection\", an expression, "
                          "and "
                          "\"filter\", a condition in SQL";
        }
    }
    return NULL;
}

static void start_table(struct signal *signal, const char *schema, const char *table)
{
    struct mr_copy_wish wish = {
        .schema = schema,
        .table = table,
        .where = filter_of(signal, schema, table),
        .is_signal = true,
        .key = cJSON_GetStringValue(signals_member(signal->data, "surrogate-key")),
    };
    uint64_t id;
    struct mr_error error;
    if (mr_copies_ask(signal->copies, &wish, &id, &error) != MR_OK) {
        ignored(signal, error.text);
    }
}

static void stop_table(struct signal *signal, const char *schema, const char *table)
{
    if (mr_copies_stop(signal->copies, schema, table) == 0) {
        ignored(signal, "no copy of that table is under way");
    }
}

/* "incremental" where nothing is said, in any case (Debezium's AbstractSnapshotSignal). */
static bool type_is(const cJSON *data, const char *wanted)
{
    const cJSON *type = signals_member(data, "type");
    const char *word = cJSON_GetStringValue(type);
    return type == NULL ? strcmp(wanted, "incremental") == 0
                        : word != NULL && strcasecmp(word, wanted) == 0;
}

static mr_status execute(struct signal *signal, struct mr_error *ret_error)
{
    const cJSON *data = signal->data;
    const char *fault = conditions_fault(signal);
    if (count_expressions(signals_member(data, "data-collections")) < 0 ||
        cJSON_GetArraySize(signals_member(data, "data-collections")) == 0) {
        fault = "data-collections must be a list of 1 to 200 names of tables or expressions";
    } else if (!type_is(data, "incremental") && !type_is(data, "blocking")) {
        fault = "the type of a snapshot is incremental or blocking";
    }
    if (fault != NULL) {
        ignored(signal, fault);
        return MR_OK;
    }
    if (type_is(data, "blocking")) {
        mr_log(MR_LOG_WARN, "signal_blocking",
               "a blocking snapshot was asked for; the rows are copied while the stream "
               "goes on");
    }
    return each_collection(signal, start_table, ret_error);
}

static mr_status signals_stop(struct signal *signal, struct mr_error *ret_error)
{
    const cJSON *list = signals_member(signal->data, "data-collections");
    if (!type_is(signal->data, "incremental") || (list != NULL && count_expressions(list) < 0)) {
        ignored(signal, "it has another form than {\"data-collections\": […], \"type\": "
                        "\"incremental\"}");
        return MR_OK;
    }
    if (cJSON_GetArraySize(list) > 0) {
        return each_collection(signal, stop_table, ret_error);
    }
    mr_copies_stop(signal->copies, NULL, NULL);
    return MR_OK;
}

static mr_status pause_or_resume(struct signal *signal, struct mr_error *ret_error)
{
    if (type_is(signal->data, "incremental")) {
        mr_copies_pause(signal->copies, signal->type[0] == 'p');
    } else {
        ignored(signal, "only incremental snapshots can be paused");
    }
    return MR_OK;
}

static mr_status log_message(struct signal *signal, struct mr_error *ret_error)
{
    const char *message = cJSON_GetStringValue(signals_member(signal->data, "message"));
    if (message == NULL) {
        ignored(signal, "it has no \"message\"");
        return MR_OK;
    }
    mr_log(MR_LOG_INFO, "signal_log", message, MR_LOG_LSN("lsn", signal->lsn));
    return MR_OK;
}

static mr_status act(struct signal *signal, struct mr_error *ret_error)
{
    signal->cpu_end_ns = mr_clock_ns(CLOCK_THREAD_CPUTIME_ID) + MATCHING_NS;
    static const struct {
        const char *type;
        mr_status (*act)(struct signal *signal, struct mr_error *ret_error);
    } kinds[] = {
        {"execute-snapshot", execute},
        {"stop-snapshot", signals_stop},
        {"pause-snapshot", pause_or_resume},
        {"resume-snapshot", pause_or_resume},
        {"log", log_message},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(kinds); i++) {
        if (strcmp(signal->type, kinds[i].type) == 0) {
            MR_TRY(kinds[i].act(signal, ret_error));
            mr_log(MR_LOG_INFO, "signal_taken", "a signal came", MR_LOG_STR("channel", "source"),
                   MR_LOG_STR("id", signal->id), MR_LOG_STR("type", signal->type));
            return MR_OK;
        }
    }
    ignored(signal, "signals of that type are not known");
    return MR_OK;
}

static void take_beginning(const struct mr_datum *value, char ret[SHOWN_MAX])
{
    bool is_text = value->kind == MR_DATUM_TEXT;
    snprintf(ret, SHOWN_MAX, "%.*s", is_text ? (int)value->len : 0,
             is_text ? (const char *)value->data : "");
}

/* The first three columns, whatever their names (Debezium's SourceSignalChannel). */
mr_status mr_signals_take_row(struct mr_copies *copies, struct mr_source *source,
                              const struct mr_change *change, struct mr_error *ret_error)
{
    struct signal signal = {.copies = copies, .source = source, .lsn = change->lsn};
    if (change->relation->column_count < 3) {
        ignored(&signal, "the table of signals must have three columns: id, type and data");
        return MR_OK;
    }
    const struct mr_datum *values = change->after.values;
    if (values[0].len + values[1].len > DATA_MAX || values[2].len > DATA_MAX) {
        ignored(&signal, "it is larger than 64 KiB");
        return MR_OK;
    }
    take_beginning(&values[0], signal.id);
    take_beginning(&values[1], signal.type);
    MR_OBJECT cJSON *data =
        values[2].kind != MR_DATUM_TEXT || values[2].len == 0
            ? cJSON_CreateObject()
            : cJSON_ParseWithLength((const char *)values[2].data, values[2].len);
    signal.data = data;
    if (cJSON_IsObject(data)) {
        return act(&signal, ret_error);
    }
    ignored(&signal, "its data is no JSON object");
    return MR_OK;
}
