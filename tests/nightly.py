"""What a run of each push leaves out, and why: the one place that says so.

A line holds tests (a file, `file::test` for one function with all its parameters, or `file::test[parameter]`), the places whose change brings
them back, the seconds that they take together beside others, by durations.txt (three times those of what runs alone), and the reason. MILLRACE_TEST_NIGHTLY says what a run does with them: without it every
chosen test runs; "changed", as scripts/test.sh has it, leaves out those whose places have not changed; "no" leaves out all. A change of
everything would bring everything back: a push takes, from the top, each line that still fits into COME_BACK_S, first of
all those whose own test has changed, and the end of the run names the others.
scripts/test.sh --full runs all of them, each night in CI.

What keeps the promise (delivery, kills, exactly-once, copies, keys, memory, equality with Debezium, proof) has a test that does not stand here, and that runs
each time; what stands here of it is a twin: the other delivery, the other budget, the other way of a cut. Not on each push: three
brokers, and copied rows beside Debezium's."""

import os
import subprocess
import sys
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COME_BACK_S = 300


class Nightly(NamedTuple):
    tests: tuple
    places: tuple
    seconds: int
    why: str


PROFILER = ("src/profiler/", "src/daemon/profile_routes.c", "src/daemon/profiling.c", "src/cli/profile.c", "tests/pprof_file.py")
CLUSTER = ("src/kafka/", "src/sink/", "src/flow/", "src/ports/", "tests/faults/")
COPIES = ("src/copy/", "src/flow/", "src/ports/")
EVENTS = ("src/encode/", "src/stream/", "src/event/", "tests/debezium/")
DESCRIBED = tuple(f"described{what}" for what in ("text", "double", "columns", "keys", "nulls"))


def at_least_once(path, *functions):
    return tuple(f"{path}::{function}[at-least-once]" for function in functions)


NIGHTLY = (
    Nightly(("faults/test_storm.py::test_producer_sessions_lost", "faults/test_storm.py::test_kills_behind_cuts[at-least-once]"), CLUSTER, 150,
            "every fault once runs each time, at least once, and kills after cuts, exactly once"),
    Nightly(at_least_once("test_snapshot.py", "test_killed_again_and_again_within_a_table", "test_killed_and_started_again_while_others_write",
                          "test_always_copies_at_each_start"), COPIES, 85, "exactly once runs each time"),
    Nightly(at_least_once("test_incremental.py", "test_goes_on_after_kills", "test_connections_that_are_cut",
                          "test_rows_come_in_their_newest_form", "test_tables_that_come"), COPIES, 75, "exactly once runs each time"),
    Nightly(("test_debezium_rows.py",), ("src/copy/", *EVENTS), 110, "existing rows in Debezium's form; test_debezium.py runs each time"),
    Nightly(("test_outbox.py::test_outbox_equal",), EVENTS, 150, "a Kafka Connect of its own; what a page promises of outboxes runs each time"),
    Nightly(tuple(f"test_debezium.py::test_connect_reads_what_has_schemas[{variant}]" for variant in DESCRIBED), EVENTS, 20,
            "JSON with schemas in each mode; the default and both forms run each time"),
    Nightly(tuple(f"test_debezium.py::test_debezium_equal[{variant}]" for variant in
                  ("double", "micro", "micros", "nanos", "headed", "transactions", *DESCRIBED)), EVENTS, 120,
            "more ways to write times, numbers, bytes and headers, and counts of transactions; the default, and each form, run each time"),
    Nightly(at_least_once("test_topics.py", "test_a_topic_is_deleted_under_load",
                          "test_the_state_topic_is_deleted_under_load", "test_topics_that_others_make_again_are_noticed",
                          "test_a_topic_that_was_missing_and_is_made_again_is_noticed"), CLUSTER, 75, "exactly once runs each time"),
    Nightly(("test_refused.py::test_a_topic_that_takes_more_again",), ("src/kafka/", "src/sink/"), 150, "a topic is asked again after a minute"),
    Nightly(("faults/test_cluster.py::test_brokers_lost[exactly-once]",), CLUSTER, 150,
            "three brokers on two processors; one that is killed, restarted and away runs each time"),
    Nightly(tuple(f"test_memory.py::{test}[256MiB]" for test in ("test_long_transaction", "test_many_large_rows", "test_burst_while_kafka_is_away")),
            ("src/flow/", "src/base/", "src/sink/", "tests/test_memory.py"), 40, "a quarter of this memory runs each time"),
    Nightly((*(f"test_moved.py::{test}" for test in ("test_attached_ones_are_copied", "test_attached_between_two_starts",
                                                     "test_bounds_that_are_too_long")),
             "test_managed.py::test_a_master_that_left_out_the_membership"), ("src/copy/", "src/postgres/catalog/pg_leaves.c"), 50,
            "what is seen of partitions, and the role of a managed service, run each time"),
    Nightly(("test_security.py::test_kafka_password_that_changes[None]", "test_passwords.py::test_a_file_that_changes[None]",
             "test_passwords.py::test_a_file_that_is_no_secret_any_more"), ("src/options/secrets_watch.c", "src/options/secrets.c", "src/base/secret.c", "src/kafka/kafka_conf.c"),
            8, "that a file is not read again unless it is asked for, and files at fault; a new password runs each time"),
    Nightly(("test_hostile_settings.py::test_no_setting_changes_an_event",), ("src/postgres/", "src/copy/", "src/encode/values/"), 100,
            "tries each setting of the server"),
    Nightly(tuple(f"faults/test_network.py::test_black_hole_to_{who}[{way}-exactly-once]" for who, ways in
                  (("postgres", ("both", "in")), ("kafka", ("both", "out"))) for way in ways), ("src/postgres/conn/", "src/sink/", "src/flow/"), 65,
            "both ways, at least once, and one way, exactly once, run each time"),
    Nightly(tuple(f"lies/test_lying_postgres.py::test_floods_stay_within_the_budget[keys-{what}]" for what in ("notices", "notifications")),
            ("src/postgres/conn/", "tests/lies/"), 60, "the same in the answer to another question runs each time"),
    Nightly(("faults/test_failover.py::test_promotion_under_load[at-least-once]",
             "faults/test_failover.py::test_promotion_of_a_standby_that_was_behind[exactly-once]"), ("src/postgres/server/", "src/flow/"), 35,
            "each has its other delivery each time"),
    Nightly(("faults/test_standby_source.py::test_promotion_under_load[at-least-once]", "faults/test_standby_source.py::test_standby_restarts_under_load",
             "faults/test_standby_source.py::test_copies_beside_the_stream", "faults/test_standby_source.py::test_check_names_each_condition",
             "faults/test_standby_source.py::test_killed_before_the_promotion_was_seen", "faults/test_standby_source.py::test_standby_of_15",
             "faults/test_standby_source.py::test_promotion_while_the_source_has_no_moment"), ("src/postgres/", "src/stream/", "src/copy/", "src/event/checkpoint.c"), 95,
            "a standby that is read from: a promotion, exactly once, runs each time"),
    Nightly(("faults/test_standby_verify.py",), ("src/verify/",), 190,
            "a proof on a standby, for a minute beside writers; test_verify.py proves on a primary each time, and cut_test.c has a standby's rule"),
    Nightly(("test_migrating.py::test_millrace_goes_on_where_debezium_stopped[stopped]",
             "test_migrating.py::test_millrace_goes_on_where_debezium_stopped[own-slot]"), ("src/convert/", "src/cli/", "src/daemon/"), 80,
            "a Kafka Connect of its own; the killed one runs each time"),
    Nightly(("test_memory.py::test_large_rows_that_are_copied[384MiB-50-2-70000000]", "test_memory.py::test_value_of_a_hundred_megabytes",
             "test_memory.py::test_many_tables[256MiB]"), ("src/copy/", "src/flow/", "src/base/"), 30, "smaller rows and less memory run each time"),
    Nightly(("faults/test_broker.py::test_broker_away_within_a_copy_beside_the_stream", "faults/test_hanging.py"), ("src/copy/", "src/sink/kafka/", "src/flow/delivery.c"), 95,
            "brokers of their own; one that dies within a copy runs each time"),
    Nightly((*(f"test_wide.py::test_what_the_topics_make_of_the_tables[{seed}-{delivery}]" for seed in (4, 5, 6)
               for delivery in ("at-least-once", "exactly-once")),
             *at_least_once("test_wide.py", "test_copies_beside_a_wide_workload", "test_a_first_copy_that_is_killed_under_a_wide_workload",
                            "test_a_first_copy_under_a_wide_workload")), ("tests/wide/", *EVENTS), 50, "other seeds, and exactly once, run each time"),
    Nightly(tuple(f"test_faults.py::test_a_server_that_has_crashed_forgets_what_it_was_told[{how}]" for how in
                  ("no state-2", "no state, saved-2", "state-1")), ("src/postgres/server/", "src/flow/"), 30, "the other number of crashes runs each time"),
    Nightly(tuple(f"test_logical_messages.py::test_a_large_message_costs_nothing[5000000-{how}]" for how in ("true", "false")), ("src/stream/",), 12,
            "a larger one costs nothing each time"),
    Nightly((*(f"faults/test_restored_source.py::{test}" for test in
               ("test_a_restored_server_is_refused_and_the_steps_help", "test_a_volume_that_was_put_back_is_refused_at_once",
                "test_a_volume_that_is_put_back_under_a_running_millrace_is_refused", "test_one_row_written_at_the_same_place_is_told_apart",
                "test_a_server_whose_slot_is_behind_goes_on")),
             *at_least_once("faults/test_restored_source.py", "test_a_volume_that_was_put_back_and_written_to_is_refused")),
            ("src/event/checkpoint.c", "src/postgres/server/pg_identity.c", "src/stream/rejoin.c"), 130,
            "more ways to restore; a volume that was written to runs each time"),
    Nightly(at_least_once("test_moving.py", "test_a_cluster_is_left_at_a_fence_and_gone_back_to"), ("src/cli/move.c", "src/postgres/server/pg_move.c"), 7,
            "exactly once runs each time"),
    Nightly(("test_passwords.py::test_a_program_at_fault_later[hangs]", "test_passwords.py::test_a_program_at_fault_later[prints nothing]"),
            ("src/base/program.c", "src/base/secret.c", "src/postgres/conn/"), 20, "one that fails, or prints two lines, runs each time"),
    Nightly(("test_moving.py::test_verify_by_a_user_who_may_not_see_the_position",), ("src/cli/move.c", "src/kafka/kafka_check.c", "src/verify/main.c"), 20,
            "a broker of its own; test_verify.py reads the position each time"),
    Nightly(("test_slot_cost.py::test_rest_ends_when_the_stream_moves_or_breaks", "test_slot_cost.py::test_a_slow_consumer_and_a_hot_table"),
            ("src/postgres/server/pg_slot.c", "src/base/ticker.c", "src/control/monitor.c", "src/control/monitor_why.c"), 45,
            "pg_slot_test and monitor_why_test run each time, and a slow broker and a server at its limit"),
    Nightly(("faults/test_move.py",), ("src/cli/move.c", "src/postgres/server/pg_move.c", "src/event/lsn.h", "docs/upgrading-postgresql.md"), 150,
            "runs pg_upgrade three times, and restores; test_moving.py leaves a cluster each time, test_slot.py meets another"),
    Nightly(("test_context.py::test_a_consumer_goes_on_with_the_trace", "test_context.py::test_the_example_in_java",
             *(f"test_context.py::test_killed_in_the_middle_and_switched[messages-{messages}-at-least-once]" for messages in ("on", "off"))),
            ("docs/examples/context/", "src/event/context.c", "tests/telemetry/"), 100,
            "a venv of its own, and Java; each form's headers, and kills of exactly-once, run each time"),
    Nightly(("test_shadow_run.py",), ("docs/examples/", "docs/migrating-from-debezium.md"), 120, "compares topics with Debezium's; test_debezium.py does so each time"),
    Nightly(tuple(f"test_consumers.py::test_a_consumer_counts_each_change_once_though_it_is_killed[{language}]" for language in ("java", "go")),
            ("docs/examples/", "src/sink/kafka/"), 90,
            "the one in Python runs each time"),
    Nightly((*(f"test_verify.py::{test}" for test in (
                 "test_a_stream_that_does_not_run_gives_no_verdict", "test_another_value_is_altered", "test_a_large_table_is_read_in_chunks_while_it_is_written",
                 "test_a_repeat_with_an_old_value_is_out_of_order",
                 "test_what_is_written_is_proved_while_it_is_written[row-at-least-once]", "test_what_is_written_is_proved_while_it_is_written[row-exactly-once]",
                 "test_what_is_written_is_proved_while_it_is_written[debezium-at-least-once]")),),
            ("src/verify/", "src/kafka/kafka_reader.c"), 170, "the other planted faults, and a proof beside writers, run each time"),
    Nightly((*(f"test_verify_values.py::test_each_type_in_each_mode_is_proved[{mode}]" for mode in ("strings", "doubles", "iso", "micros", "nanos")),
             *(f"test_verify_values.py::test_a_fault_in_a_value_of_each_type_is_found[{mode}]" for mode in ("strings", "doubles", "iso", "micros", "nanos")),
             "test_verify_values.py::test_keys_that_have_no_form_stay_apart", "test_wide.py::test_a_wide_workload_is_proved[text]"),
            ("src/verify/", "src/encode/values/"), 90, "other modes, and faults in them, run each time"),
    Nightly((*at_least_once("test_repair.py", "test_a_kill_in_the_middle_leaves_nothing_wrong", "test_what_changes_after_it_was_named",
                            "test_writers_to_the_same_keys_are_never_overwritten"),
             *(f"test_repair.py::test_each_planted_difference_is_named_and_repaired[{how}]" for how in ("row-exactly-once", "debezium-at-least-once")),
             "test_repair.py::test_after_a_lost_slot_only_what_differs_is_sent[at-least-once-gone]"),
            ("src/copy/", "src/verify/repair.c"), 65, "the other deliveries and forms run each time"),
    Nightly(("test_resolved.py::test_a_view_across_topics_is_that_of_one_moment[java]",
             *at_least_once("test_resolved.py", "test_no_marker_promises_what_is_not_above_it")),
            ("src/resolved/", "docs/examples/"), 113, "exactly once, and the view in Python, run each time"),
    Nightly(at_least_once("test_ledger.py", "test_all_that_was_delivered_is_proved", "test_a_first_copy_that_is_killed"), ("src/ledger/",), 120,
            "exactly once runs each time"),
    Nightly(("faults/test_failover.py::test_promotion_of_a_standby_that_was_behind[at-least-once]", "faults/test_failover.py::test_backlog_of_tables_that_were_altered",
             "faults/test_failover.py::test_promotion_within_a_copy_beside_the_stream", "faults/test_failover.py::test_standby_that_has_no_copy",
             "faults/test_failover.py::test_copies_while_the_primary_is_away"),
            ("src/postgres/server/", "src/copy/"), 100, "more about a promotion; one under load, exactly once, runs each time"),
    Nightly(tuple(f"lies/test_lying_postgres.py::test_floods_stay_within_the_budget[{what}]" for what in ("identity-notices", "identity-notifications")),
            ("src/postgres/conn/", "tests/lies/"), 60, "rows without an end in the answer to another question run each time"),
    Nightly(("faults/test_network.py::test_server_believes_in_a_dead_connection",
             *(f"faults/test_network.py::test_black_hole_to_{one}-exactly-once]" for one in ("kafka[in", "postgres[out"))),
            ("src/postgres/conn/", "src/sink/", "src/flow/"), 60, "both ways, at least once, run each time"),
    Nightly(("test_snapshot.py::test_a_partition_with_less_of_an_identity_begins_anew[FULL]", "test_snapshot.py::test_a_snapshot_that_goes_before_it_is_taken",
             *at_least_once("test_snapshot.py", "test_a_connection_that_is_cut_within_a_copy"), "test_snapshot.py::test_a_table_whose_file_is_new_begins_anew"),
            ("src/copy/", "src/postgres/catalog/"), 70, "other reasons to begin a table anew; kills and cuts, exactly once, run each time"),
    Nightly(("test_incremental.py::test_by_another_key", "test_incremental.py::test_large_values_that_updates_leave_alone_come_too",
             "test_incremental.py::test_a_reload_that_changes_tables"), ("src/copy/", "src/encode/"), 55, "kills, cuts, writers and tables that come run each time"),
    Nightly(("test_faults.py::test_short_wal_sender_timeout_while_kafka_stands_still[idle]", "test_faults.py::test_postgresql_restarted_under_load[immediate]"),
            ("src/postgres/", "src/stream/", "src/flow/"), 70, "no room, and the fast restart, run each time"),
    Nightly((*at_least_once("test_beginning.py", "test_an_unfinished_repair_opens_no_gap", "test_a_row_too_large_breaks_the_repair_off",
                            "test_a_first_copy_that_was_broken_off"),), ("src/copy/", "src/flow/"), 45, "exactly once runs each time"),
    Nightly(("test_hostile_role.py::test_an_open_transaction_holds_up_the_slot_not_in_silence[initial]", "test_hostile_role.py::test_partitions_of_partitions_of_others",
             "test_hostile_role.py::test_a_prepared_transaction_holds_up_the_slot_not_in_silence"), ("src/postgres/", "src/copy/"), 40,
            "an open transaction without a copy, and the other relations of others, run each time"),
    Nightly((*at_least_once("test_state.py", "test_shutdown_of_the_server_is_not_held_up"), "test_state.py::test_shutdown_of_the_server_is_not_held_up_by_a_backlog"),
            ("src/postgres/", "src/flow/"), 40, "exactly once, without a backlog, runs each time"),
    Nightly(("test_logical_messages.py::test_a_large_message_costs_nothing[400000000-true]",), ("src/stream/",), 23, "the other one that is as large runs each time"),
    Nightly(("test_limits.py::test_full_disk_under_the_log", "test_limits.py::test_stop_while_nobody_reads_the_log"), ("src/base/",), 34,
            "a log that nobody reads runs each time"),
    Nightly(("faults/test_standstill.py::test_kafka_away_once_more", "faults/test_standstill.py::test_the_end_of_the_slot_is_forecast",
             "faults/test_standstill.py::test_file_on_a_full_disk"), ("src/sink/", "src/flow/", "src/metrics/"), 45, "Kafka away and then PostgreSQL runs each time"),
    Nightly(("faults/test_broker.py::test_broker_with_a_full_disk", "faults/test_broker.py::test_acknowledgements_cut_off"), ("src/sink/", "src/flow/", "src/ports/"), 67,
            "brokers of their own; one that dies within a copy runs each time"),
    Nightly(("test_resolved.py::test_no_marker_promises_what_is_not_above_it",), ("src/resolved/", "src/flow/"), 33, "a view across topics runs each time"),
    Nightly((*(f"test_resolved.py::test_a_stream_that_is_split_between_two_slots_is_one_view[{one}]" for one in ("at-least-once", "exactly-once")),
             "test_check.py::test_a_slot_that_takes_a_whole_core_is_named_with_the_tables_that_write"), ("src/resolved/", "src/postgres/server/pg_walsender.c"), 35,
            "a view across topics, and the other findings of check, run each time"),
    Nightly(("test_deploy.py::test_the_image_gets_all_that_its_build_needs",), ("Dockerfile", ".dockerignore", "scripts/setup.sh", "src/cmake/", "CMakeLists.txt"), 17,
            "builds from what the image's context holds"),
    Nightly(("test_hardening.py::test_every_unit_is_compiled_with_the_flags",), ("CMakeLists.txt", "CMakePresets.json", "src/cmake/"), 20, "reads the commands of the build"),
    Nightly(("test_migrating.py::test_millrace_goes_on_where_debezium_stopped[killed]",), ("src/convert/", "src/cli/", "src/daemon/", "src/postgres/server/"), 47,
            "a Kafka Connect of its own; what pages promise of the way in runs each time"),
    Nightly((*(f"test_tables.py::test_a_hidden_column_is_never_shown[{how}-lives]" for how in (
                 "column", "table", "swapped", "swapped-columns", "name-taken", "takes-another-name", "excluded", "of-a-pattern", "made-again", "dropped-beside")),
             *(f"test_tables.py::test_a_column_of_a_partition_is_hidden_by_its_number[{how}-{when}]" for when in ("running", "listed-alone") for how in (
                 "swapped", "turned-round", "turned-round-to-the-table's", "swapped-and-gone", "others-swapped", "as-they-are", "one-dropped")),
             *(f"test_tables.py::test_a_partition_hides_what_it_did_before_it_was_one[{how}-True]" for how in (
                 "other-order", "at-once", "other-schema", "renamed", "renamed-later", "of-another", "renamed-column")),
             *(f"test_tables.py::test_a_table_that_becomes_a_partition_hides_what_it_did[{how}-True]" for how in (
                 "within-another", "under-its-name", "with-its-rows", "attached")),
             *(f"test_tables.py::test_a_partition_of_a_partition_hides_what_the_outermost_does[{how}-running]" for how in (
                 "unseen-inner-leaf", "unseen", "inner-leaf", "branch", "branch-then-leaf", "leaf"))),
            ("src/encode/hidden/", "src/event/kin.c", "src/event/places.c", "src/postgres/catalog/"), 160,
            "a stream that runs meanwhile; one that is stopped, which has to know it from what is stored, runs each time"),
    Nightly((*(f"test_tables.py::test_what_is_published_again_by_other_ways_is_said[{how}-running]" for how in (
                 "named", "schema", "another schema meanwhile", "alter", "alter, with a list", "alter, which adds it", "made again")),
             *(f"test_tables.py::test_a_table_that_becomes_unlogged_while_it_is_stopped_is_said[{tables}-at-least-once]" for tables in (
                 "tables0-t", "tables1-p_1", "tables2-p_1")),
             *(f"test_tables.py::test_a_partition_that_is_gone_at_the_next_start[{how}-at-least-once]" for how in (
                 "killed", "altered", "dropped", "detached", "all"))), ("src/postgres/", "src/stream/"), 70,
            "the other delivery, or the one that is stopped, runs each time"),
    Nightly(tuple(f"test_refused.py::test_many_messages_larger_than_their_topic_takes[{codec}-{when}-{delivery}]" for codec in ("gzip", "snappy", "lz4")
                  for when in ("backlog", "streaming") for delivery in ("at-least-once", "exactly-once")), ("src/kafka/", "src/sink/"), 45,
            "none and zstd run each time"),
    Nightly((*(f"test_verify.py::test_a_column_that_copies_lack_is_no_late_one[{how}-{table}]" for table in ("keyless", "partitioned") for how in (
                 "as old as the table", "known", "with a default, and written again", "before a later one", "written again")),
             *(f"test_left_out.py::test_a_gap_outlives_the_process_that_made_it[{mode}-at-least-once-{how}]" for mode in ("always", "when_needed")
               for how in ("gone", "made"))), ("src/verify/", "src/copy/gap.c", "src/postgres/server/"), 65,
            "a table with a key, and exactly once, run each time"),
    Nightly(("test_tables.py::test_a_partition_that_no_session_sees_yet",), ("src/postgres/", "src/stream/"), 13, "waits for a session that is held"),
    Nightly(("test_verify.py::test_columns_that_come_go_and_are_renamed", "test_verify.py::test_partitions_of_a_configured_table_have_a_line_each",
             "test_verify.py::test_a_record_that_is_none_is_named_by_its_offset", "test_verify.py::test_a_value_of_an_event_that_was_too_large_is_unknown",
             "test_verify.py::test_two_rows_that_changed_places_are_named", "test_verify.py::test_a_text_that_comes_as_a_number_is_altered",
             "test_verify.py::test_a_repeat_under_exactly_once_is_one_too_many", "test_verify.py::test_columns_that_the_configuration_changes",
             "test_verify.py::test_records_from_before_millrace_count_for_no_row", "test_verify.py::test_records_with_another_key_count_for_no_row",
             "test_verify.py::test_a_commit_that_no_session_sees_yet", "test_verify.py::test_what_is_written_is_proved_while_it_is_written[debezium-exactly-once]",
             "test_verify.py::test_what_can_not_be_proved_is_said", "test_verify.py::test_a_sample_of_the_keys_at_a_rate"),
            ("src/verify/", "src/kafka/kafka_reader.c"), 100, "missing, phantom, stale, void, and a lost slot run each time; a wide workload is proved each time"),
    Nightly((*(f"test_verify_values.py::{test}" for test in ("test_placeholders_of_large_values", "test_keys_of_converted_types",
                                                             "test_keyless_tables_and_columns_that_come_later")),),
            ("src/verify/", "src/encode/values/"), 30, "each type, and a fault in each, run each time"),
    Nightly((*(f"test_repair.py::{test}" for test in (
                 "test_after_a_lost_slot_only_what_differs_is_sent[at-least-once-moved]", "test_keys_of_all_kinds_and_none_of_them_is_kept",
                 "test_many_rows_in_several_slices", "test_what_changes_after_it_was_named[exactly-once]")),),
            ("src/copy/", "src/verify/repair.c"), 45, "planted differences, writers to the same keys, a kill, and a lost slot run each time"),
    Nightly((*(f"test_ledger.py::{test}" for test in ("test_a_reload_in_the_middle", "test_a_first_copy_that_is_killed",
                                                      "test_a_ledger_begins_where_the_stored_position_is")),), ("src/ledger/", "src/flow/"), 60,
            "all that was delivered over kills, and what a person cut, run each time"),
    Nightly((*(f"test_security.py::{test}" for test in ("test_kafka_tls_to_a_port_without", "test_kafka_certificate_not_trusted",
                                                        "test_kafka_wrong_login[None-nobody-SCRAM-SHA-512]", "test_kafka_wrong_login[None-nobody-PLAIN]")),),
            ("src/sink/kafka/",), 32, "wrong passwords run each time"),
    Nightly((*(f"test_keys.py::{test}" for test in ("test_columns_of_a_key_keep_their_order[table]", "test_column_of_a_chosen_key_renamed",
                                                    "test_chosen_key_that_does_not_fit", "test_lookup_that_fails_is_made_again")),),
            ("src/stream/", "src/postgres/catalog/", "src/config/"), 45, "the order of an index, and keys that move, run each time"),
    Nightly(("test_http_oddities.py::test_each_address_is_asked_in_each_odd_way[open]",), ("src/control/",), 16, "by TLS it runs each time"),
    Nightly(("test_passwords.py::test_a_program_at_fault", "test_passwords.py::test_copies_with_a_password_of_their_own", "test_tokens.py::test_a_program_prints_something_else"),
            ("src/base/program.c", "src/postgres/conn/", "src/kafka/kafka_token.c"), 40, "a password that expires, faults later, and a hanging program run each time"),
    Nightly((*(f"test_slot_cost.py::{test}" for test in ("test_a_large_transaction_is_spilled", "test_a_slow_broker", "test_a_server_that_decodes_no_faster")),),
            ("src/postgres/server/", "src/flow/", "src/metrics/"), 40, "positions, and an open transaction, run each time"),
    Nightly(("faults/test_far_broker.py",), CLUSTER, 40, "waits for a broker 30 ms away"),
    Nightly(tuple(f"test_http_oddities.py::test_each_address_is_asked_in_each_odd_way[{way}]" for way in ("password", "socket")), ("src/control/",), 20,
            "open and by TLS it runs each time"),
    Nightly(("test_memory.py::test_everything_of_the_profiler",), PROFILER, 25, "the profiler's memory"),
    Nightly(("test_wide.py::test_the_judge_finds_what_is_wrong",), ("tests/wide/",), 25, "judges the judge"),
    Nightly(("test_scripts.py::test_stands_find_ports_of_their_own",), ("scripts/stand.sh", "scripts/stand/", "scripts/lib/"), 16,
            "starts stands, as each run does"),
    Nightly(("faults/test_cluster.py::test_rolling_restart[exactly-once]",), CLUSTER, 145, "three brokers, each restarted"),
    Nightly(at_least_once("faults/test_cluster.py", "test_rolling_restart", "test_brokers_lost"), ("src/sink/kafka/",), 235, "three brokers"),
    Nightly(("test_profiler.py",), PROFILER, 3 * 36, "the profiler looks at the flow and is no part of it"),
    Nightly(("test_profile_command.py",), PROFILER, 12, "draws and compares profiles that are there"),
    Nightly(("test_there_and_back.py",), ("src/convert/", "src/encode/", "src/stream/", "src/copy/", "src/sink/kafka/kafka_place.c", "tests/debezium/"), 60,
            "test_migrating.py takes over each time, and test_debezium.py compares each kind of record"),
    Nightly(("test_grafana.py",), ("grafana/", "src/metrics/", "src/control/"), 60, "dashboards and alerts in a Prometheus; test_metrics.py runs each time"),
    Nightly(("test_systemd.py",), ("docs/deploy/", "packaging/", "tests/booted.py"), 120,
            "boots a systemd of its own; test_deploy.py has the units looked at each time"),
    Nightly(("test_live_page.py",), ("src/control/", "tests/browser.py"), 80, "figures in a Chromium; test_admin.py runs each time"),
    Nightly(tuple(f"test_packages.py::{test}" for test in (
             "test_the_deb_package",
             "test_everything_of_a_system_is_named_after_it",
             "test_deb_installs_keeps_the_configuration_and_purges",
             "test_the_rpm_package",
             "test_apt_installs_from_the_repository",
             "test_apt_refuses_a_repository_that_was_changed",
             "test_sums_are_signed_and_hold",
             "test_without_a_key_nothing_is_signed")),
            ("packaging/", "src/cmake/Packaging.cmake", "scripts/release.sh", "scripts/sbom.py"), 60, "builds the packages; manual pages and completions run each time"),
    Nightly(("test_site.py",), ("docs/", "mkdocs.yml", "scripts/site", "tests/browser.py"), 45, "builds the site of the documents and opens it in a Chromium"),
    Nightly(("test_load.py",), ("load/", "scripts/lib/"), 3 * 25, "judges the load generator, alone on the machine"),
    Nightly((*(f"test_repair.py::test_keys_in_debeziums_form_are_repaired[{kind}]" for kind in
               ("iso", "micros", "millis", "nanos", "zoned", "string", "bytes", "url", "bit", "real", "interval", "domain", "uuid")),
             *(f"test_repair.py::test_keys_that_events_do_not_say_whole_are_refused[{kind}]" for kind in ("timetz", "int[]", "varbit(9)", "timestamp"))),
            ("src/verify/", "src/copy/"), 60, "keys of two types, which the server turns back, and one that it can't, run each time"),
    Nightly(("test_verify_values.py::test_avro_is_proved",), ("src/verify/", "src/encode/"), 50,
            "each type in each mode; faults in Avro, and each mode in JSON, run each time"),
    Nightly((*(f"test_recover.py::test_each_way_after_each_loss[{which}]" for which in
               ("gone-everything", "moved-gap", "gone-differing", "moved-everything", "lost-gap")), "test_recover.py::test_a_kill_in_the_middle",
             "test_recover.py::test_an_interrupt_says_so_and_stops_in_order", "test_recover.py::test_another_cluster",
             "test_recover.py::test_a_gap_that_is_open_is_said_until_all_of_it_is_settled"),
            ("src/cli/recover.c", "src/cli/recover_look.c", "src/copy/", "src/verify/"), 75, "a lost slot of which what differs is sent, and refusals, run each time"),
    Nightly(("test_tokens.py::test_the_provider_is_away", "test_tokens.py::test_a_program_that_gives_none[sleep 600]",
             "test_tokens.py::test_a_stop_does_not_wait_for_the_program"),
            ("src/kafka/kafka_token.c", "src/kafka/kafka_threads.c", "src/base/program.c"), 90, "wait for limits of time"),
    Nightly(("test_tables.py::test_thousands_of_tables[5000 by name]",), ("src/stream/", "src/postgres/", "src/encode/", "src/copy/"), 60,
            "starts with 5,000 tables, and judges their memory"),
    Nightly(("test_tables.py::test_thousands_of_tables[50000 by a pattern]",), ("src/flow/memory.c",), 120, "starts with 50,000 tables"),
    Nightly(("test_tables.py::test_thousands_of_topics",), ("src/sink/kafka/kafka_topics.c",), 120, "has 5,000 topics made"),
    Nightly(("test_profile_readers.py",), PROFILER, 3 * 48, "other programs read profiles; the format's unit tests run each time"),
    Nightly(("test_idle.py",), ("src/kafka/kafka_conf.c",), 300, "two hundred pipelines, alone on the machine; a change of it alone brings it back"),
    Nightly(("test_benchmarks.py",), ("benchmarks/", "scripts/lib/", "load/"), 3 * 100, "the benchmarks in short, alone on the machine"),
    Nightly(("test_profiling.py",), (*PROFILER, "benchmarks/"), 3 * 100, "builds and measures several times, alone on the machine"),
    Nightly(("test_pr_check.py",), ("benchmarks/", ".github/workflows/pr-checks.yml"), 3 * 100, "measures two builds, alone on the machine"),
    Nightly(("test_verdict.py",), ("benchmarks/", "tests/placed_faults.c"), 3 * 70, "judges measurements, not millrace"),
    Nightly(("test_kubernetes_plane.py",), ("packaging/helm/", "docs/deploy/kubernetes.yaml", "docs/deploy/recover.yaml"), 150, "a control plane of its own; test_helm.py renders the chart in seconds"),
)


def changed_places():
    """Paths that differ from where the change began: MILLRACE_TEST_SINCE, if it is a commit that is here, else where the branch left origin/main, else the
    commit before. None where no git says so."""
    def git(*arguments):
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
        return done.stdout.split("\n") if done.returncode == 0 else None
    try:
        head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
        since = os.environ.get("MILLRACE_TEST_SINCE")
        if not since or git("rev-parse", "--verify", "--quiet", since + "^{commit}") is None:
            since = base[0] if base and base != head else "HEAD~1"
        changed, new = git("diff", "--name-only", since), git("ls-files", "--others", "--exclude-standard")
    except OSError:
        return None
    return None if changed is None else [*changed, *(new or [])]


def is_due(changed, *places):
    """Whether one of the places has changed."""
    return any(path.startswith(places) for path in changed or ())


def of(path, function, name):
    """The line for a test, if it has one; `name`: the function's with the parameters."""
    return next((one for one in NIGHTLY if any(test in (path, f"{path}::{function}", f"{path}::{name}") for test in one.tests)), None)


def due(changed):
    """The lines of which a place, or the file of a test, has changed, as far as a push runs them; and those that it leaves to the night."""
    def is_edited(one):
        return is_due(changed, *(f"tests/{test.split('::')[0]}" for test in one.tests))
    back, night, seconds = [], [], 0
    for one in sorted(NIGHTLY, key=lambda one: not is_edited(one)):
        if is_edited(one) or is_due(changed, *one.places):
            fits = seconds + one.seconds <= COME_BACK_S
            seconds += one.seconds * fits
            (back if fits else night).append(one)
    return back, night


def left_out(mode):
    """The lines whose tests a run leaves out."""
    if mode == "changed":
        back, _ = due(changed_places())
        return [one for one in NIGHTLY if one not in back]
    return list(NIGHTLY) if mode == "no" else []


def main(command, *places):
    """changed: prints the changed paths, and fails where nobody knows them. due PLACE...: whether one of these has changed."""
    changed = changed_places()
    if command == "due":
        return 0 if is_due(changed, *places) else 1
    print(*filter(None, changed or ()), sep="\n")
    return 0 if changed is not None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
