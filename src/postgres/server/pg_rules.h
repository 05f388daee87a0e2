/* What must be true of server, publication, tables and slot before the stream starts: each rule once.
 *
 * `millrace check` prints every finding; the start stops at the first error and logs the warnings. A finding begins with
 * a verb, so that it reads as a sentence after its subject. Inside postgres/ only.
 */
#ifndef MR_POSTGRES_PG_RULES_H
#define MR_POSTGRES_PG_RULES_H

#include "base/finding.h"
#include "postgres/catalog/pg_options.h"
#include "postgres/catalog/pg_sql.h"

/* What the server says of itself, read with a few queries, however many tables there are. */
struct mr_pg_facts {
    const struct mr_pg_source_options *options;
    int version;
    bool slot_is_replaced; /* one that is lost, by a copy of existing rows */
    bool is_reload;        /* the user can ask again */
    bool tables_are_known; /* an earlier start had these names, and found them */
    bool slot_is_judged;   /* whether one is made where none is, somebody else says */
    char *database;
    struct mr_pg_result *server;   /* enum mr_server_column */
    struct mr_pg_result *tables;   /* enum mr_table_column */
    struct mr_pg_result *keys;     /* enum mr_key_column; NULL: none is configured */
    struct mr_pg_result *rules;    /* enum mr_rule_column; NULL: none is configured */
    struct mr_pg_result *unlisted; /* enum mr_unlisted_column */
};

mr_status mr_pg_facts_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           struct mr_pg_facts *ret_facts, struct mr_error *ret_error);
void mr_pg_facts_done(struct mr_pg_facts *facts);

static inline const char *mr_pg_fact(const struct mr_pg_facts *facts, enum mr_server_column column)
{
    return mr_pg_result_value(facts->server, 0, column);
}

static inline bool mr_pg_slot_exists(const struct mr_pg_facts *facts)
{
    return mr_pg_fact(facts, MR_SLOT_TYPE) != NULL;
}

static inline bool mr_pg_publication_exists(const struct mr_pg_facts *facts)
{
    return mr_pg_fact(facts, MR_PUBLICATION_UPDATE) != NULL;
}

/* It exists, and can't be read any more. */
bool mr_pg_slot_is_lost(const struct mr_pg_facts *facts);

/* Goes through all rules, in the order in which things are made. */
void mr_pg_rules(const struct mr_pg_facts *facts, mr_finding_fn report, void *context);

/* The rules of a stream that goes on with other tables: those of tables for the `added` ones, as for a stream that is to begin, and
 * for all what options say of their columns. */
void mr_pg_rules_of_change(const struct mr_pg_facts *facts, const struct mr_table_name *added,
                           uint32_t added_count, mr_finding_fn report, void *context);

/* What patterns in "tables" mean now. An error is one of the asking. */
mr_status mr_pg_rules_of_patterns(struct mr_pg_conn *conn,
                                  const struct mr_pg_source_options *options, mr_finding_fn report,
                                  void *context, struct mr_error *ret_error);

/* Before existing rows are copied: whether they may be read, and the conditions on them, asked over the connection that copies;
 * `conn` is one of the stream's role. An error is one of the asking. */
mr_status mr_pg_rules_of_copy(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              mr_finding_fn report, void *context, struct mr_error *ret_error);

/* Who reports. `remedy` may be NULL. */
struct mr_pg_reporter {
    mr_finding_fn report;
    void *context;
};
void mr_pg_found(const struct mr_pg_reporter *reporter, enum mr_finding_level level,
                 mr_status status, const char *subject, const char *remedy, const char *format, ...)
    MR_PRINTF(6, 7);

#define MR_FOUND_OK(reporter, subject, ...)                                                        \
    mr_pg_found((reporter), MR_FINDING_OK, MR_OK, (subject), NULL, __VA_ARGS__)
#define MR_FOUND_WARNING(reporter, subject, remedy, ...)                                           \
    mr_pg_found((reporter), MR_FINDING_WARNING, MR_OK, (subject), (remedy), __VA_ARGS__)
#define MR_FOUND_ERROR(reporter, status, subject, remedy, ...)                                     \
    mr_pg_found((reporter), MR_FINDING_ERROR, (status), (subject), (remedy), __VA_ARGS__)

#endif
