#include "postgres/server/pg_setup.h"

#include "event/silence.h"
#include "postgres/server/pg_left.h"
#include "postgres/server/pg_rules.h"

enum {
    FAILOVER_VERSION_MIN = 170000,
    WARNINGS_MAX = 20, /* that are logged one by one */
};

struct setup {
    struct mr_pg_conn *conn;
    struct mr_pg_conn *desk;
    const struct mr_pg_source_options *options;
    const struct mr_pg_facts *facts;
    struct mr_pg_stream_state stream;
    bool adopted;
    struct mr_pg_copy_slot *copy; /* NULL: the stream is to begin */
    struct mr_pg_reporter to;
    uint32_t warnings;
    mr_status status; /* of the first rule that is broken */
    struct mr_error *ret_error;
};

static void pg_setup_take_finding(void *context, enum mr_finding_level level, mr_status status,
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

static void warn_of_failover(const struct setup *setup)
{
    mr_log(
        MR_LOG_WARN, "failover_unsupported",
        "source.postgres.failover needs PostgreSQL 17 or later: after a promotion the slot is gone",
        MR_LOG_STR("slot", setup->options->slot));
}

/* A slot that was made without FAILOVER gets it. One that has it keeps it, whatever is
 * configured. */
static mr_status set_failover(struct setup *setup)
{
    if (!setup->options->failover || setup->facts->is_standby) {
        return MR_OK; /* pg_standby.c has said that a standby's slot has none */
    }
    if (mr_pg_fact(setup->facts, MR_SLOT_FAILOVER) == NULL) {
        warn_of_failover(setup);
        return MR_OK;
    }
    if (mr_pg_result_true(setup->facts->server, 0, MR_SLOT_FAILOVER)) {
        return MR_OK;
    }
    MR_TRY(mr_pg_commandf(setup->conn, MR_PG_CHANGE_MS, setup->ret_error,
                          "ALTER_REPLICATION_SLOT %I (FAILOVER true)", setup->options->slot));
    mr_log(MR_LOG_INFO, "slot_failover_set",
           "the slot was made without FAILOVER and has it now: standbys may keep a copy of it",
           MR_LOG_STR("slot", setup->options->slot));
    return MR_OK;
}

/* A slot without a stored position: made by hand for this start, or what was stored is lost, and
 * nobody can say any more whether the slot is still the one that was read from. */
mr_status mr_pg_may_adopt(const struct mr_pg_facts *facts, const struct mr_pg_stream_state *state,
                          struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = facts->options;
    if (mr_pg_slot_exists(facts) && !state->is_known && options->position_is_stored &&
        !options->adopt_slot) {
        const char *confirmed = mr_pg_fact(facts, MR_SLOT_CONFIRMED);
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "slot \"%s\" exists and is at %s, but no position is stored for it: if one was, "
            "it is lost, and rows before the slot's position may be missing; look at "
            "sink.kafka.state_topic and state_name, or set source.postgres.adopt_slot = true for "
            "one start to go on from the slot",
            options->slot, confirmed == NULL ? "an unknown position" : confirmed);
    }
    return MR_OK;
}

static mr_status pg_setup_adopt(struct setup *setup)
{
    const struct mr_pg_source_options *options = setup->options;
    if (setup->stream.is_known || !options->position_is_stored) {
        return MR_OK;
    }
    MR_TRY(mr_pg_may_adopt(setup->facts, &setup->stream, setup->ret_error));
    const char *confirmed = mr_pg_fact(setup->facts, MR_SLOT_CONFIRMED);
    confirmed = confirmed == NULL ? "an unknown position" : confirmed;
    setup->adopted = true;
    mr_log(MR_LOG_WARN, "slot_adopted",
           "the slot exists, but no position is stored for it; starting where the slot is. "
           "Right for a slot that was made for this start; if a position was stored before, rows "
           "may be missing or come twice",
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
    MR_TRY(pg_setup_adopt(setup));
    return set_failover(setup);
}

static const char *slot_options(const struct setup *setup, bool exports)
{
    bool has_failover = setup->options->failover && !setup->facts->is_standby;
    if (setup->facts->version >= FAILOVER_VERSION_MIN && has_failover) {
        return exports ? "(SNAPSHOT 'export', FAILOVER)" : "(SNAPSHOT 'nothing', FAILOVER)";
    }
    if (setup->facts->version >= 150000) {
        return exports ? "(SNAPSHOT 'export')" : "(SNAPSHOT 'nothing')";
    }
    return exports ? "EXPORT_SNAPSHOT" : "NOEXPORT_SNAPSHOT";
}

static mr_status create_slot(struct setup *setup)
{
    const struct mr_pg_source_options *options = setup->options;
    /* Whether one may begin here, mr_checkpoint_verify said; this is the look after it. */
    if (setup->stream.is_known || options->slot_must_exist) {
        return mr_fail(setup->ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" is gone, and with it the rows since its position" MR_RECIPE_LEAD
                           MR_RECIPE_OF_COPY,
                       options->slot);
    }
    if (setup->facts->version < FAILOVER_VERSION_MIN && options->failover) {
        warn_of_failover(setup);
    }
    MR_TRY(mr_pg_commandf(setup->conn, MR_PG_CHANGE_MS, setup->ret_error,
                          "CREATE_REPLICATION_SLOT %I LOGICAL pgoutput %s", options->slot,
                          slot_options(setup, false)));
    mr_log(MR_LOG_WARN, "slot_created",
           "the slot did not exist and was created: the stream begins here, rows that are in the "
           "tables already are not copied",
           MR_LOG_STR("slot", options->slot));
    return MR_OK;
}

static mr_status drop_slot(const struct setup *setup, const char *name)
{
    return mr_pg_commandf(setup->conn, MR_PG_CHANGE_MS, setup->ret_error,
                          "SELECT pg_drop_replication_slot(%L)", name);
}

/* The new one stands where the old one does (slotfuncs.c, copy_replication_slot: restart_lsn,
 * confirmed_flush and catalog_xmin are the source's). If the old one stays because we die in
 * between, the next start drops it. */
static mr_status rename_slot(const struct setup *setup, const char *from, const char *to)
{
    MR_TRY(mr_pg_commandf(setup->conn, MR_PG_CHANGE_MS, setup->ret_error,
                          "SELECT pg_copy_logical_replication_slot(%L, %L)", from, to));
    return drop_slot(setup, from);
}

enum copy_slot_column { COPY_NAME, COPY_LSN, COPY_PID, COPY_USABLE };

/* The copies' slots, the newest first, and those that are lost last. */
static mr_status find_copy_slots(const struct setup *setup, const struct mr_pg_result **ret_found)
{
    static const struct mr_pg_shape shape = {"the slots of snapshots", "slNb", 0, UINT32_MAX};
    return mr_pg_askf(setup->conn, &shape, ret_found, setup->ret_error,
                      "SELECT slot_name, coalesce(confirmed_flush_lsn, '0/0'), active_pid,"
                      " true" MR_SQL_SLOT_IS_USABLE
                      " FROM pg_replication_slots WHERE " MR_SQL_IS_COPY_SLOT
                      " ORDER BY 4 DESC, length(slot_name) DESC, slot_name DESC",
                      setup->options->slot);
}

/* The attempt that a copy's slot is of; 0: the server was not asked for a slot of that name. */
static uint32_t copy_attempt(const struct setup *setup, const char *name)
{
    size_t len = strlen(setup->options->slot);
    static const char middle[] = "_snapshot_";
    if (strncmp(name, setup->options->slot, len) != 0 ||
        strncmp(name + len, middle, strlen(middle)) != 0) {
        return 0;
    }
    const char *digits = name + len + strlen(middle);
    bool good = digits[strspn(digits, "0123456789")] == '\0' && strlen(digits) <= 9;
    return good ? (uint32_t)strtoul(digits, NULL, 10) : 0;
}

static void name_copy_slot(const struct setup *setup, uint32_t attempt)
{
    struct mr_pg_copy_slot *slot = setup->copy;
    slot->attempt = attempt;
    snprintf(slot->name, sizeof(slot->name), "%s_snapshot_%u", setup->options->slot, attempt);
}

static mr_status check_copy(struct setup *setup)
{
    MR_TRY(mr_pg_rules_of_copy(setup->desk, setup->facts, &setup->to, setup->ret_error));
    return setup->status;
}

static mr_status create_copy_slot(struct setup *setup)
{
    static const struct mr_pg_shape shape = {"a slot", "slss", 1, 1};
    struct mr_pg_copy_slot *slot = setup->copy;
    MR_TRY(check_copy(setup));
    name_copy_slot(setup, 1);
    struct mr_text sql = {0};
    mr_sql_format(&sql, "CREATE_REPLICATION_SLOT %I LOGICAL pgoutput %s", slot->name,
                  slot_options(setup, true));
    struct mr_pg_result *result;
    MR_TRY(
        mr_pg_query_within(setup->conn, &sql, &shape, MR_PG_CHANGE_MS, &result, setup->ret_error));
    slot->lsn = mr_pg_result_lsn(result, 0, 1);
    snprintf(slot->snapshot, sizeof(slot->snapshot), "%s", mr_pg_result_value(result, 0, 2));
    mr_pg_result_free(result);
    return MR_OK;
}

static mr_status drop_copy_slots(const struct setup *setup, const struct mr_pg_result *found,
                                 uint32_t first)
{
    for (uint32_t row = first; row < mr_pg_result_rows(found); row++) {
        MR_TRY(drop_slot(setup, mr_pg_result_value(found, row, COPY_NAME)));
    }
    return MR_OK;
}

/* Broken off before: the slot is older than what is read now, so the stream begins before, and
 * brings what was changed meanwhile. */
static mr_status resume_copy_slot(struct setup *setup, const struct mr_pg_result *found)
{
    struct mr_pg_copy_slot *slot = setup->copy;
    const char *last = mr_pg_result_value(found, 0, COPY_NAME);
    MR_TRY(check_copy(setup));
    /* The server may still be at what a process asked for that is gone by now. */
    if (mr_pg_result_value(found, 0, COPY_PID) != NULL) {
        return mr_fail(setup->ret_error, MR_ERR_TRANSIENT,
                       "slot \"%s\" is held by process %s of the server", last,
                       mr_pg_result_value(found, 0, COPY_PID));
    }
    uint32_t attempt = copy_attempt(setup, last);
    if (attempt == 0) {
        return mr_fail(setup->ret_error, MR_ERR_PROTOCOL,
                       "the server was asked for the slots of snapshots and names \"%s\"; this is "
                       "no PostgreSQL, or one that this version does not know",
                       last);
    }
    MR_TRY(drop_copy_slots(setup, found, 1));
    if (attempt >= MR_COPY_ATTEMPTS_MAX) {
        return mr_fail(setup->ret_error, MR_ERR_CONFIG,
                       "the copy of existing rows was interrupted %u times, as often as positions "
                       "can tell apart; drop slot \"%s\", empty the topics, and start again",
                       attempt, last);
    }
    name_copy_slot(setup, attempt + 1);
    slot->lsn = mr_pg_result_lsn(found, 0, COPY_LSN);
    return rename_slot(setup, last, slot->name);
}

/* It died between the last row's safety and the slot's name. */
static bool copy_is_complete(const struct setup *setup, const struct mr_pg_result *found)
{
    mr_lsn lsn = mr_pg_result_lsn(found, 0, COPY_LSN);
    return setup->stream.is_known && lsn != 0 && setup->stream.delivered >= lsn &&
           mr_pg_result_value(found, 0, COPY_PID) == NULL;
}

/* To drop what is not above would drop the rows. */
static mr_status refuse_below(struct setup *setup)
{
    const struct mr_pg_copy_slot *slot = setup->copy;
    if (slot->lsn > setup->stream.delivered) {
        return MR_OK;
    }
    MR_TRY(drop_slot(setup, slot->name));
    return mr_fail(setup->ret_error, MR_ERR_HISTORY,
                   "%s; existing rows can't be copied again either: the server's WAL ends "
                   "before what was delivered, up to " MR_LSN_FORMAT
                   ", and so would their positions; choose other topics (topic_prefix) and another "
                   "sink.kafka.state_name",
                   setup->stream.gap == NULL ? "the server is another one than before"
                                             : setup->stream.gap,
                   MR_LSN_ARGS(setup->stream.delivered));
}

/* Whether one is there that still retains WAL. */
static bool can_resume(const struct mr_pg_result *found)
{
    return mr_pg_result_rows(found) > 0 && mr_pg_result_true(found, 0, COPY_USABLE);
}

/* Before the old slot goes, and once the place of the new one is known. */
static void look_at_what_is_left(struct setup *setup)
{
    bool exists = mr_pg_slot_exists(setup->facts);
    if (setup->options->copies == MR_COPIES_ONLY) {
        return; /* the slot stays, and may be in use */
    }
    if (exists && mr_pg_fact(setup->facts, MR_SLOT_CONFIRMED) != NULL) {
        setup->copy->confirmed = mr_pg_result_lsn(setup->facts->server, 0, MR_SLOT_CONFIRMED);
    }
    setup->copy->leaves_out =
        exists ? setup->stream.gap != NULL || mr_pg_slot_is_lost(setup->facts) ||
                     mr_pg_slot_holds_changes(setup->desk, setup->options, &setup->stream.known,
                                              setup->copy->confirmed, setup->copy->lsn)
               : setup->stream.is_known;
}

/* A copy begins or goes on, whatever slot is there. The new one is made first: there is always one
 * that retains WAL. The old one stays until it is stored what is left out with it, or the next
 * start would find nothing to tell that by. */
static mr_status copy_anyway(struct setup *setup, const struct mr_pg_result *found)
{
    const struct mr_pg_source_options *options = setup->options;
    bool drops = mr_pg_slot_exists(setup->facts) && options->copies != MR_COPIES_ONLY;
    if (can_resume(found)) {
        setup->copy->lsn = mr_pg_result_lsn(found, 0, COPY_LSN);
        look_at_what_is_left(setup);
        bool waits = setup->copy->leaves_out && options->position_is_stored &&
                     setup->stream.gap_stored != setup->copy->lsn;
        setup->copy->replaces = drops && waits;
        MR_TRY(drops && !waits ? drop_slot(setup, options->slot) : MR_OK);
        return resume_copy_slot(setup, found);
    }
    MR_TRY(drop_copy_slots(setup, found, 0)); /* lost, as if they were not there */
    MR_TRY(create_copy_slot(setup));
    setup->copy->replaces = drops;
    look_at_what_is_left(setup);
    return refuse_below(setup);
}

struct mr_pg_stream_state mr_pg_stream_state_of(const struct mr_checkpoint *stored,
                                                const struct mr_pg_source_options *options)
{
    struct mr_pg_stream_state state = {.is_known =
                                           stored != NULL && mr_checkpoint_has_stream(stored)};
    if (state.is_known) {
        mr_lsn place = stored->position.commit_lsn;
        uint64_t tables = stored->identity.tables;
        state.delivered = place > stored->end_lsn ? place : stored->end_lsn;
        state.known = (struct mr_pg_delivered){.end = stored->end_lsn, .last = stored->last};
        state.tables_are_known = tables == 0 || tables == mr_pg_tables_mark(options);
        const struct mr_section *section = mr_checkpoint_section(stored, MR_SECTION_SILENCE);
        state.silence = section == NULL ? NULL : section->json;
    }
    state.begins = stored == NULL ? 0 : mr_checkpoint_begins(stored);
    return state;
}

bool mr_pg_copies_now(const struct mr_pg_facts *facts, const struct mr_pg_stream_state *state,
                      bool was_begun)
{
    bool exists = mr_pg_slot_exists(facts);
    /* The gap that the copy mends is not seen any more once it is stored as begun. */
    bool goes_on = was_begun && (!exists || state->begins != 0);
    switch (facts->options->copies) {
    case MR_COPIES_NOTHING:
        return false;
    case MR_COPIES_INITIALLY:
        /* A slot that is not where an offset says is a wrong name, or a gap: not a reason to send
         * all rows again. */
        return !exists && (was_begun || (!state->is_known && !facts->options->slot_must_exist));
    case MR_COPIES_ONLY:
    case MR_COPIES_ALWAYS:
        return true;
    case MR_COPIES_WHEN_NEEDED:
        return state->gap != NULL || mr_pg_slot_is_lost(facts) || goes_on ||
               (!state->is_known && (!exists || facts->options->position_is_stored));
    case MR_COPIES_ACCEPT_GAP:
        return (state->is_known && state->gap != NULL) || mr_pg_slot_is_lost(facts) ||
               (exists && goes_on);
    }
    return false;
}

static mr_status make_copy_slot(struct setup *setup)
{
    const struct mr_pg_result *found;
    MR_TRY(find_copy_slots(setup, &found));
    bool exists = mr_pg_slot_exists(setup->facts);
    bool was_begun = can_resume(found);
    enum mr_pg_copies copies = setup->options->copies;
    bool in_any_case = copies == MR_COPIES_ONLY || copies == MR_COPIES_ALWAYS;
    if (!exists && was_begun && !in_any_case && copy_is_complete(setup, found)) {
        return rename_slot(setup, mr_pg_result_value(found, 0, COPY_NAME), setup->options->slot);
    }
    if (mr_pg_copies_now(setup->facts, &setup->stream, was_begun)) {
        return copy_anyway(setup, found);
    }
    /* Left over where the slot has its own name. */
    return exists ? drop_copy_slots(setup, found, 0) : MR_OK;
}

static mr_status setup_all(struct setup *setup)
{
    MR_TRY(mr_pg_rules_of_standby(setup->desk, setup->facts, &setup->to, setup->ret_error));
    MR_TRY(setup->status);
    mr_pg_rules(setup->facts, &setup->to);
    MR_TRY(setup->status);
    MR_TRY(mr_pg_publication_describe(setup->desk, setup->facts, &setup->to, setup->ret_error));
    if (setup->warnings > WARNINGS_MAX) {
        mr_log(MR_LOG_WARN, "setup_warning", "there are more warnings; millrace check lists them",
               MR_LOG_INT("count", setup->warnings));
    }
    MR_TRY(mr_pg_publication_follow(setup->desk, setup->facts, true, &setup->to, setup->ret_error));
    MR_TRY(setup->status);
    if (!mr_pg_publication_exists(setup->facts)) {
        MR_TRY(mr_pg_publication_create(setup->desk, setup->options, setup->facts->version,
                                        setup->ret_error));
    }
    if (setup->copy != NULL) {
        return make_copy_slot(setup);
    }
    return mr_pg_slot_exists(setup->facts) ? use_slot(setup) : create_slot(setup);
}

mr_status mr_pg_drop_replaced(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_pg_copy_slot *slot, struct mr_error *ret_error)
{
    struct setup setup = {.conn = conn, .options = options, .ret_error = ret_error};
    return slot->replaces ? drop_slot(&setup, options->slot) : MR_OK;
}

mr_status mr_pg_look_at_copy(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             const struct mr_pg_copy_slot *slot, struct mr_error *ret_error)
{
    int64_t usable;
    if (options->copies == MR_COPIES_ONLY) {
        return MR_OK; /* nobody reads what changes meanwhile */
    }
    MR_TRY(mr_pg_ask_number(conn, "the slot of the copy", 'n', &usable, ret_error,
                            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = "
                            "%L" MR_SQL_SLOT_IS_USABLE,
                            slot->name));
    if (usable == 1) {
        return MR_OK;
    }
    bool again = mr_pg_replaces_slot(options->copies);
    return mr_fail(ret_error, again ? MR_ERR_TRANSIENT : MR_ERR_HISTORY,
                   "slot \"%s\" was lost or dropped while existing rows were copied, so what has "
                   "changed since can't be read%s: 1. raise max_slot_wal_keep_size "
                   "(docs/sizing.md, \"Space for the slot\")%s",
                   slot->name, again ? "; the copy begins again" : "",
                   again ? "" : "; 2. start millrace: it copies all rows again");
}

mr_status mr_pg_end_copy(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         const struct mr_pg_copy_slot *slot, struct mr_error *ret_error)
{
    struct setup setup = {.conn = conn, .options = options, .ret_error = ret_error};
    if (options->copies != MR_COPIES_ONLY) {
        return rename_slot(&setup, slot->name, options->slot);
    }
    const struct mr_pg_result *found;
    MR_TRY(find_copy_slots(&setup, &found)); /* it may be lost, or gone: all rows are there */
    return drop_copy_slots(&setup, found, 0);
}

mr_status mr_pg_setup(struct mr_pg_conn *conn, struct mr_pg_conn *desk,
                      const struct mr_pg_source_options *options,
                      const struct mr_pg_stream_state *state, struct mr_pg_copy_slot *ret_copy,
                      bool *ret_adopted, struct mr_error *ret_error)
{
    struct mr_pg_facts facts;
    struct mr_pg_copy_slot copy = {.attempt = 0};
    struct setup setup = {.conn = conn,
                          .desk = desk,
                          .options = options,
                          .facts = &facts,
                          .stream = *state,
                          .copy = ret_copy == NULL ? NULL : &copy,
                          .ret_error = ret_error};
    setup.to = (struct mr_pg_reporter){.report = pg_setup_take_finding, .context = &setup};
    MR_ASSERT(conn != desk); /* one is read while the other is asked */
    MR_TRY(mr_pg_facts_read(desk, options, &facts, ret_error));
    facts.tables_are_known = state->tables_are_known;
    facts.sent = cJSON_Parse(state->silence == NULL ? "" : state->silence);
    facts.slot_is_replaced = ret_copy != NULL && mr_pg_replaces_slot(options->copies);
    mr_status status = setup_all(&setup);
    mr_pg_facts_done(&facts);
    if (status == MR_OK && ret_copy != NULL) {
        *ret_copy = copy;
    }
    if (status == MR_OK && ret_adopted != NULL) {
        *ret_adopted = setup.adopted;
    }
    return status;
}
