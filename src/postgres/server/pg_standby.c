/* What must be true of a server that is a standby, and the state of the slot's copies on
 * standbys. */
#include "postgres/server/pg_rules.h"
#include "postgres/server/pg_slot.h"

enum { DECODING_VERSION_MIN = 160000 }; /* release notes of 16: logical decoding on standbys */

enum standby_column { FEEDBACK, FEEDBACK_SECONDS, PRIMARY_SLOT };

/* Without them the primary's vacuum removes rows of the catalog that the slot needs, and the slot
 * is invalidated as that is replayed (manual, "Logical Decoding Concepts", Replication Slots;
 * walreceiver.c, XLogWalRcvSendHSFeedback). */
static void rule_feedback(struct mr_pg_reporter *to, const struct mr_pg_result *settings)
{
    static const char invalidates[] =
        "the primary removes rows of the catalog that the slot needs, and the slot is lost";
    bool feeds = mr_pg_result_true(settings, 0, FEEDBACK);
    mr_pg_about(to, "hot_standby_feedback");
    if (!feeds) {
        mr_pg_remedy(to, "on the standby run ALTER SYSTEM SET hot_standby_feedback = on; SELECT "
                         "pg_reload_conf()");
        MR_FOUND_WARNING(to, "is off on this standby: %s", invalidates);
    } else if (mr_pg_result_number(settings, 0, FEEDBACK_SECONDS) == 0) {
        mr_pg_remedy(to, "on the standby run ALTER SYSTEM RESET wal_receiver_status_interval; "
                         "SELECT pg_reload_conf()");
        MR_FOUND_WARNING(to, "is not sent, as wal_receiver_status_interval is 0: %s", invalidates);
    } else {
        MR_FOUND_OK(to, "is on");
    }
    if (!mr_pg_result_true(settings, 0, PRIMARY_SLOT)) {
        mr_pg_about(to, "primary_slot_name");
        mr_pg_remedy(to, "on the primary run SELECT pg_create_physical_replication_slot('standby'),"
                         " on the standby ALTER SYSTEM SET primary_slot_name = 'standby'; SELECT "
                         "pg_reload_conf()");
        MR_FOUND_WARNING(to, "is empty on this standby: while it is away from the primary, %s",
                         invalidates);
    }
}

/* What would write: the manual, "Hot Standby", User's Overview. */
static void rule_writes(const struct mr_pg_facts *facts, struct mr_pg_reporter *to)
{
    if (facts->options->captured.alter_publication) {
        mr_pg_about(to, "publication.alter");
        mr_pg_remedy(to, "alter the publication on the primary, and set publication.alter = false");
        MR_FOUND_ERROR(to, MR_ERR_CONFIG, "is set, but a standby can't alter a publication");
    }
    if (facts->options->captured.published_count > 0) {
        mr_pg_about(to, "publication.where, publication.columns");
        mr_pg_remedy(to, "run millrace check with a connection to the primary");
        MR_FOUND_WARNING(to, "can't be compared with the publication on a standby");
    }
    /* ReplicationSlotCreate and ReplicationSlotAlter in replication/slot.c. */
    if (facts->options->failover) {
        mr_pg_about(to, "source.postgres.failover");
        mr_pg_remedy(to, "set it to false; to follow a promotion, see docs/high-availability.md");
        MR_FOUND_WARNING(to, "is set, but a slot of a standby can't have FAILOVER");
    }
}

mr_status mr_pg_rules_of_standby(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                 struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"its settings as a standby", "bnb", 1, 1};
    const struct mr_pg_result *settings;
    if (!facts->is_standby) {
        return MR_OK;
    }
    mr_pg_about(to, "server");
    if (facts->version < DECODING_VERSION_MIN) {
        mr_pg_remedy(to, "connect to the primary, or upgrade both to PostgreSQL 16 or later");
        MR_FOUND_ERROR(to, MR_ERR_CONFIG,
                       "is a standby, which sends no logical stream before PostgreSQL 16 (this is "
                       "%d)",
                       facts->version / 10000);
        return MR_OK;
    }
    MR_FOUND_OK(to, "is a standby: the slot is made here, the publication on the primary");
    MR_TRY(mr_pg_askf(conn, &shape, &settings, ret_error,
                      "SELECT current_setting('hot_standby_feedback')::boolean,"
                      " (SELECT setting FROM pg_settings WHERE name ="
                      " 'wal_receiver_status_interval'),"
                      " current_setting('primary_slot_name') <> ''"));
    rule_feedback(to, settings);
    rule_writes(facts, to);
    return MR_OK;
}

const char *mr_slot_copy_state_name(enum mr_slot_copy_state state)
{
    static const char *const names[] = {"ready", "absent", "unfinished", "invalid", "unreached"};
    return names[state];
}

enum copy_column { COPY_NAME, COPY_LASTS, COPY_INVALIDATION, COPY_SKIPPED };

/* A slot of the same name that is no copy would be somebody else's. Columns that 17 and 19 added
 * are null before. */
static mr_status read_copy(struct mr_pg_conn *conn, const char *slot, struct mr_slot_copy *copy,
                           struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the copy of the slot", "SBSS", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT s.slot_name, NOT s.temporary,"
                      " to_jsonb(s)->>'invalidation_reason', to_jsonb(s)->>'slotsync_skip_reason'"
                      " FROM (VALUES (1)) one LEFT JOIN pg_replication_slots s"
                      " ON s.slot_name = %L AND to_jsonb(s)->>'synced' = 'true'",
                      slot));
    const char *invalidation = mr_pg_result_value(result, 0, COPY_INVALIDATION);
    const char *skipped = mr_pg_result_value(result, 0, COPY_SKIPPED);
    copy->state = mr_pg_result_value(result, 0, COPY_NAME) == NULL ? MR_SLOT_COPY_ABSENT
                  : invalidation != NULL                           ? MR_SLOT_COPY_INVALID
                  : mr_pg_result_true(result, 0, COPY_LASTS)       ? MR_SLOT_COPY_READY
                                                                   : MR_SLOT_COPY_UNFINISHED;
    snprintf(copy->reason, sizeof(copy->reason), "%s",
             invalidation != NULL ? invalidation
             : skipped != NULL    ? skipped
                                  : "");
    return MR_OK;
}

mr_status mr_pg_look_at_copies(const struct mr_pg_options *connection, const char *slot,
                               int stop_fd, struct mr_slot_copy *ret_copies, uint32_t *ret_count)
{
    uint32_t count = 0;
    char *name;
    for (uint32_t i = 0; (name = mr_pg_host_name(connection, i)) != NULL; i++) {
        struct mr_slot_copy copy = {.state = MR_SLOT_COPY_UNREACHED};
        snprintf(copy.host, sizeof(copy.host), "%s", name);
        free(name);
        MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
        mr_status status = mr_pg_connect_to(connection, i, stop_fd, &conn, NULL);
        bool is_one = status != MR_OK || mr_pg_is_standby(conn);
        if (status == MR_OK && is_one) {
            status = read_copy(conn, slot, &copy, NULL);
        }
        if (status == MR_AGAIN) {
            return MR_AGAIN;
        }
        if (is_one && count < MR_SLOT_COPIES_MAX) {
            ret_copies[count++] = copy;
        }
    }
    *ret_count = count;
    return MR_OK;
}
