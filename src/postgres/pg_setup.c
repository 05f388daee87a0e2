#include "postgres/pg_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "postgres/pg_rules.h"

enum {
    FAILOVER_VERSION_MIN = 170000,
    WARNINGS_MAX = 20, /* that are logged one by one */
};

/* What every step needs. */
struct setup {
    struct mr_pg_conn *conn;
    const struct mr_pg_source_options *options;
    const struct mr_pg_facts *facts;
    bool is_known;
    bool adopted;
    int stop_fd;
    uint32_t warnings;
    mr_status status; /* of the first rule that is broken */
    struct mr_error *ret_error;
};

static mr_status setup_run(struct setup *setup, struct mr_text *sql)
{
    mr_status status =
        mr_pg_command(setup->conn, setup->stop_fd, sql->data, MR_PG_CHANGE_MS, setup->ret_error);
    mr_text_done(sql);
    return status;
}

/* mr_finding_fn: the first error is the answer, warnings are logged. */
static void take_finding(void *context, enum mr_finding_level level, mr_status status,
                         const char *subject, const char *finding, const char *remedy)
{
    struct setup *setup = context;
    if (level == MR_FINDING_ERROR && setup->status == MR_OK) {
        setup->status = mr_fail(setup->ret_error, status, "%s %s%s%s", subject, finding,
                                remedy == NULL ? "" : "; ", remedy == NULL ? "" : remedy);
    }
    if (level == MR_FINDING_WARNING && ++setup->warnings <= WARNINGS_MAX) {
        mr_log(MR_LOG_WARN, "setup_warning", finding, MR_LOG_STR("subject", subject),
               MR_LOG_STR("remedy", remedy));
    }
}

/* ---- publication ---- */

static mr_status create_publication(struct setup *setup)
{
    struct mr_text sql = {0};
    mr_text_string(&sql, "CREATE PUBLICATION ");
    mr_sql_add_identifier(&sql, setup->options->publication);
    for (uint32_t i = 0; i < setup->options->table_count; i++) {
        mr_text_string(&sql, i == 0 ? " FOR TABLE " : ", ");
        mr_sql_add_table(&sql, &setup->options->tables[i]);
    }
    MR_TRY(setup_run(setup, &sql));
    mr_log(MR_LOG_INFO, "publication_created", "the publication did not exist and was created",
           MR_LOG_STR("publication", setup->options->publication),
           MR_LOG_INT("tables", setup->options->table_count));
    return MR_OK;
}

/* ---- slot ---- */

static void warn_of_failover(const struct setup *setup)
{
    mr_log(
        MR_LOG_WARN, "failover_unsupported",
        "source.postgres.failover needs PostgreSQL 17 or later: after a promotion the slot is gone",
        MR_LOG_STR("slot", setup->options->slot));
}

/* A slot that was made without FAILOVER gets it. One that has it keeps it, whatever is configured. */
static mr_status set_failover(struct setup *setup)
{
    if (!setup->options->failover) {
        return MR_OK;
    }
    if (mr_pg_fact(setup->facts, MR_SLOT_FAILOVER) == NULL) {
        warn_of_failover(setup);
        return MR_OK;
    }
    if (mr_pg_result_true(setup->facts->server, 0, MR_SLOT_FAILOVER)) {
        return MR_OK;
    }
    struct mr_text sql = {0};
    mr_text_format(&sql, "ALTER_REPLICATION_SLOT ");
    mr_sql_add_identifier(&sql, setup->options->slot);
    mr_text_format(&sql, " (FAILOVER true)");
    MR_TRY(setup_run(setup, &sql));
    mr_log(MR_LOG_INFO, "slot_failover_set",
           "the slot was made without FAILOVER and has it now: standbys may keep a copy of it",
           MR_LOG_STR("slot", setup->options->slot));
    return MR_OK;
}

/* A slot without a stored position: made by hand for this start, or what was stored is lost, and nobody can say any
 * more whether the slot is still the one that was read from. */
static mr_status adopt(struct setup *setup)
{
    const struct mr_pg_source_options *options = setup->options;
    if (setup->is_known || !options->position_is_stored) {
        return MR_OK;
    }
    const char *confirmed = mr_pg_fact(setup->facts, MR_SLOT_CONFIRMED);
    confirmed = confirmed == NULL ? "an unknown position" : confirmed;
    if (!options->adopt_slot) {
        return mr_fail(
            setup->ret_error, MR_ERR_HISTORY,
            "slot \"%s\" exists and stands at %s, but no position is stored for it: if one was, "
            "it is lost, and rows before the slot's position may be missing; look at "
            "sink.kafka.state_topic and state_name, or set source.postgres.adopt_slot = true for "
            "one start to go on from the slot",
            options->slot, confirmed);
    }
    setup->adopted = true;
    mr_log(MR_LOG_WARN, "slot_adopted",
           "the slot exists, but no position is stored for it; starting where the slot stands. "
           "Right for a "
           "slot that was made for this start; if a position was stored before, rows may be "
           "missing or come "
           "twice",
           MR_LOG_STR("slot", options->slot), MR_LOG_STR("start", confirmed));
    return MR_OK;
}

static mr_status use_slot(struct setup *setup)
{
    const char *pid = mr_pg_fact(setup->facts, MR_SLOT_PID);
    if (pid != NULL) {
        return mr_fail(setup->ret_error, MR_ERR_TRANSIENT,
                       "slot \"%s\" is held by process %s of the server", setup->options->slot,
                       pid);
    }
    MR_TRY(adopt(setup));
    return set_failover(setup);
}

static mr_status create_slot(struct setup *setup)
{
    const struct mr_pg_source_options *options = setup->options;
    int version = setup->facts->version;
    struct mr_text sql = {0};
    mr_text_format(&sql, "CREATE_REPLICATION_SLOT ");
    mr_sql_add_identifier(&sql, options->slot);
    mr_text_format(&sql, " LOGICAL pgoutput");
    if (version < FAILOVER_VERSION_MIN && options->failover) {
        warn_of_failover(setup);
    }
    if (version >= FAILOVER_VERSION_MIN && options->failover) {
        mr_text_format(&sql, " (SNAPSHOT 'nothing', FAILOVER)");
    } else {
        mr_text_format(&sql, version >= 150000 ? " (SNAPSHOT 'nothing')" : " NOEXPORT_SNAPSHOT");
    }
    MR_TRY(setup_run(setup, &sql));
    mr_log(MR_LOG_WARN, "slot_created",
           "the slot did not exist and was created: the stream begins here, rows that are in the "
           "tables "
           "already are not copied",
           MR_LOG_STR("slot", options->slot));
    return MR_OK;
}

/* ---- all of it ---- */

static mr_status setup_all(struct setup *setup)
{
    mr_pg_rules(setup->facts, take_finding, setup);
    MR_TRY(setup->status);
    if (setup->warnings > WARNINGS_MAX) {
        mr_log(MR_LOG_WARN, "setup_warning", "there are more warnings; millrace check lists them",
               MR_LOG_INT("count", setup->warnings));
    }
    if (!mr_pg_publication_exists(setup->facts)) {
        MR_TRY(create_publication(setup));
    }
    return mr_pg_slot_exists(setup->facts) ? use_slot(setup) : create_slot(setup);
}

mr_status mr_pg_setup(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      bool is_known, int stop_fd, bool *ret_adopted, struct mr_error *ret_error)
{
    struct mr_pg_facts facts;
    MR_TRY(mr_pg_facts_read(conn, options, stop_fd, &facts, ret_error));
    struct setup setup = {.conn = conn,
                          .options = options,
                          .facts = &facts,
                          .is_known = is_known,
                          .stop_fd = stop_fd,
                          .ret_error = ret_error};
    mr_status status = setup_all(&setup);
    mr_pg_facts_done(&facts);
    if (status == MR_OK) {
        *ret_adopted = setup.adopted;
    }
    return status;
}
