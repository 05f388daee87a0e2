/* What must be true of server, publication, tables and slot before the stream starts: each rule
 * once. A finding begins with a verb, so that it reads as a sentence after its subject. Inside
 * postgres/ only. */
#pragma once

#include "base/finding.h"
#include "base/object.h"
#include "postgres/catalog/pg_options.h"
#include "postgres/catalog/pg_sql.h"

/* What the server says of itself, read with a few queries, however many tables there are. */
struct mr_pg_facts {
    const struct mr_pg_source_options *options;
    int version;
    bool is_standby;
    int64_t process;       /* of the server, as the login told it */
    bool slot_is_replaced; /* one that is lost, by a copy of existing rows */
    bool is_reload;        /* the user can ask again */
    bool tables_are_known; /* an earlier start had these names, and found them */
    bool slot_is_judged;   /* whether one is made where none is, somebody else says */
    char *database;
    struct mr_pg_result *server;         /* enum mr_server_column */
    struct mr_pg_result *tables;         /* enum mr_table_column */
    struct mr_pg_result *keys;           /* enum mr_key_column; NULL: none is configured */
    struct mr_pg_result *rules;          /* enum mr_rule_column; NULL: none is configured */
    struct mr_pg_result *meant;          /* enum mr_meant_column */
    struct mr_pg_result *unlogged_parts; /* the same of partitions of configured tables */
    cJSON *sent;                   /* stored with the position (pg_form.h); NULL: nothing is */
    struct mr_pg_result *unlogged; /* their count, and names of five; NULL: there are no patterns */
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

/* Who reports, and of what: the subject holds until it is set again, a remedy for the next finding
 * alone. One thread. */
struct mr_pg_reporter {
    mr_finding_fn report;
    void *context;
    uint32_t errors;       /* that were reported */
    struct mr_text remedy; /* no data: none */
    char subject[600];
};

/* Both as mr_sql_format; a remedy is added to what is there. */
void mr_pg_about(struct mr_pg_reporter *to, const char *format, ...);
void mr_pg_remedy(struct mr_pg_reporter *to, const char *format, ...);
void mr_pg_found(struct mr_pg_reporter *to, enum mr_finding_level level, mr_status status,
                 const char *format, ...) MR_PRINTF(4, 5);

#define MR_FOUND_OK(to, ...)            mr_pg_found((to), MR_FINDING_OK, MR_OK, __VA_ARGS__)
#define MR_FOUND_WARNING(to, ...)       mr_pg_found((to), MR_FINDING_WARNING, MR_OK, __VA_ARGS__)
#define MR_FOUND_ERROR(to, status, ...) mr_pg_found((to), MR_FINDING_ERROR, (status), __VA_ARGS__)

/* Goes through all rules, in the order in which things are made. */
void mr_pg_rules(const struct mr_pg_facts *facts, struct mr_pg_reporter *to);

/* The rules of a stream that goes on with other tables: of the `added` ones as at a start, of all
 * what options say of columns. */
void mr_pg_rules_of_change(const struct mr_pg_facts *facts, const struct mr_table_name *added,
                           uint32_t added_count, struct mr_pg_reporter *to);

/* Before existing rows are copied: whether they may be read, and the conditions on them, asked over
 * the connection that copies; `conn` is one of the stream's role. An error is one of the asking. */
mr_status mr_pg_rules_of_copy(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error);

/* Names the published tables whose records have another key than Debezium's connector gives them
 * (docs/keys.md): as a warning where the keys are meant to be Debezium's, and where only the order
 * of the columns differs as something to know. */
mr_status mr_pg_rules_of_keys(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error);

/* Whether PostgreSQL decodes the slot, which somebody reads now, as fast as it is written.
 * pg_walsender.c. */
mr_status mr_pg_rules_of_load(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error);

/* The rules of a standby (PostgreSQL 16 and later); nothing where the server is none.
 * pg_standby.c. */
mr_status mr_pg_rules_of_standby(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                 struct mr_pg_reporter *to, struct mr_error *ret_error);

/* The publication: row filters and column lists (PostgreSQL 15 and later) are PostgreSQL's to
 * judge: what is configured becomes a draft, a publication in a transaction that is rolled back. So
 * its rules are the server's own (CREATE PUBLICATION), and two filters are compared in the server's
 * spelling. pg_publication.c. */

/* Adds what follows "CREATE PUBLICATION name", for a person: of very many tables the first. `sent`:
 * what the one before had, as it is stored; NULL: nothing is. */
void mr_pg_publication_add_rest(struct mr_text *sql, const struct mr_pg_source_options *options,
                                int version, const cJSON *sent);

/* Adds statements that have the publication send the table as configured: whole, where nothing
 * is. */
void mr_pg_publication_add_change(struct mr_text *sql, const struct mr_pg_source_options *options,
                                  const struct mr_table_name *table, bool is_named);

/* Makes it for the configured tables, with their filters and lists. */
mr_status mr_pg_publication_create(struct mr_pg_conn *conn,
                                   const struct mr_pg_source_options *options, int version,
                                   struct mr_error *ret_error);

/* Reports what is wrong with the configured filters and lists, and how an existing publication
 * differs. With `change` one that may be altered (options->alter_publication) is altered, in one
 * transaction, unless something is wrong. An error is one of the asking, or of the altering. */
mr_status mr_pg_publication_follow(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                   bool change, struct mr_pg_reporter *to,
                                   struct mr_error *ret_error);

/* Reports as good which filters and lists the existing publication has. */
mr_status mr_pg_publication_describe(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                     struct mr_pg_reporter *to, struct mr_error *ret_error);
