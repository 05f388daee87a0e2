"""Bugs to be caught: each is one change of a source file, built in a copy. Run by tests/mutants.sh."""

import dataclasses
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COPY = os.path.join(ROOT, "build", "mutants")

# What must catch a mutant: the ledger under a short storm, system tests by name, or a unit test.
STORM = "storm"
STORMS = 5  # at most: whether a short one meets the bug is up to chance


@dataclasses.dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str
    check: str = STORM


INTAKE, EVENTS = "src/flow/intake.c", "src/flow/intake_events.c"
CONFIRM, SESSION = "src/flow/intake_confirm.c", "src/flow/intake_session.c"
DELIVERY, CHECKPOINT = "src/flow/delivery.c", "src/event/checkpoint.c"
KAFKA, REFUSAL = "src/sink/kafka/kafka.c", "src/sink/kafka/kafka_refusal.c"
VERIFY = "src/verify/"
RESELECTED = "src/postgres/server/pg_reselect.c"
RESOLVED, MARKER = "src/resolved/resolved.c", "    mr_lsn lsn = mr_port_published(resolved->base.port);"
FORMS = "src/encode/forms/"
CONDITION = "src/postgres/conn/condition.c"
MUTANTS = [
    Mutant("exact values of any transaction", RESELECTED, "bool is_same = pg_reselect_number_of(row[ROW_XMIN]) == question->xid ||", "bool is_same = true ||",
           "test_reselect.py::test_row_that_was_changed_or_deleted_since"),
    Mutant("exact values of columns that were altered", "src/postgres/server/pg_reselect_columns.c", "!question_has_values(one) || are[i] == COLUMNS_UNALTERED",
           "!question_has_values(one) || are[i] >= COLUMNS_IN_DOUBT",
           "test_reselect.py::test_columns_that_were_altered_and_kept_their_names"),
    Mutant("later values of another column, which may be a hidden one", "src/postgres/server/pg_reselect_columns.c",
           "are[i] == COLUMNS_THE_SAME ? MR_RESELECTED_LATER : MR_RESELECTED_GONE", "MR_RESELECTED_LATER", "test_reselect.py::test_hidden_column_has_the_name_by_now"),
    Mutant("exact values of a later change in the transaction", "src/stream/reselect.c",
           "question->outcome == MR_RESELECTED_EXACT && !held->is_spoiled &&", "question->outcome == MR_RESELECTED_EXACT &&", "unit reselect_test"),
    Mutant("exact values before the transaction has ended", "src/stream/reselect.c", "        return held->is_spoiled || held->transaction <= reselect->ended ||",
           "        return true || held->is_spoiled || held->transaction <= reselect->ended ||", "unit reselect_test"),
    Mutant("asks for what is left out", "src/stream/reselect.c", "wiring->shows(wiring->shows_context, relation, i);", "true;",
           "test_reselect.py::test_columns_that_are_hidden"),
    Mutant("masked values in the clear", "src/encode/shape.c", "    shape(form, options, rule);\n", "", "test_reselect.py::test_columns_that_are_hidden"),
    Mutant("of several that a table may be of, one counts", "src/postgres/catalog/pg_captured.c", "i < mr_pg_result_rows(result); i++) {\n        const struct mr_origin",
           "i < mr_pg_result_rows(result) && i < 0; i++) {\n        const struct mr_origin", "test_tables.py::test_a_table_with_the_columns_of_two_stops_nothing"),
    Mutant("a table that was never attached may have been", "src/postgres/catalog/pg_sql.c", '" bool_or(" IS_AS_MADE " OR " IS_TABLE_AS_MADE " OR " IS_BEFORE_SLOT(',
           '" bool_or(" IS_AS_MADE " OR " IS_BEFORE_SLOT(', "test_tables.py::test_a_table_with_the_columns_of_two_stops_nothing"),
    Mutant("the file says whether rows come by the root", "src/daemon/run.c", "app->kept.kin = mr_kin_new();",
           "app->kept.kin = app->config->source.via_root ? mr_kin_new() : NULL;", "test_tables.py::test_the_publication_says_that_rows_come_by_the_root"),
    Mutant("a partition's columns are known by name", "src/encode/hidden/hidden.c",
           "    if (places != NULL && mr_seen_numbers_tell(seen, origin)) {", "    if (hides == NULL && mr_seen_numbers_tell(seen, origin)) {",
           "test_tables.py::test_a_column_of_a_partition_is_hidden_by_its_number"),
    Mutant("of a table that is gone the order of names says nothing", "src/encode/hidden/hidden.c", "            !may_be_after(seen, i, now, at, hides)) {", "            (true || !may_be_after(seen, i, now, at, hides))) {",
           "test_tables.py::test_a_column_of_a_partition_is_hidden_by_its_number"),
    Mutant("what the stream shows of a partition is not heeded", "src/stream/pg_source.c", "    mr_kin_note(context, partition->oid, &origin);", "    mr_kin_note(NULL, partition->oid, &origin);",
           "test_tables.py::test_the_stream_shows_a_partition_whose_table_is_gone"),
    Mutant("a first copy begins before it is stored what is hidden", "src/copy/snapshot.c", "    MR_TRY(store_beginning(copying, ret_error));\n", "",
           "test_snapshot.py::test_what_is_hidden_is_stored_before_the_first_row"),
    Mutant("what is owed is stored before the server has said whose it is", DELIVERY, "    if (delivery->stream->ack.acknowledged == 0 ||\n",
           "    if (delivery->stream->ack.acknowledged == 0 &&\n", "test_tables.py::test_what_was_hidden_stays_known_when_rules_change"),
    Mutant("a hidden column that may have one of several numbers has none", "src/encode/hidden/seen.c",
           "return !places->is_open && count <= MR_COLUMNS_MAX;", "return !places->is_open && count == 0;",
           "test_tables.py::test_a_hidden_column_that_may_have_been_another"),
    Mutant("a hidden column that is not sent is not known", "src/encode/hidden/seen.c",
           "    number_unsent(tables, places, topic, &made);\n", "",
           "test_tables.py::test_a_hidden_column_that_was_never_sent_stays_hidden"),
    Mutant("a first copy does not ask what a table was", "src/copy/pg_copy.c", "    MR_TRY(mr_pg_captured_guess(keeper, reading->catalog->options, 0, ret_error));\n", "",
           "test_tables.py::test_a_copy_at_the_beginning_hides_what_a_former_partition_did"),
    Mutant("a copy does not ask what a table was", "src/copy/pg_chunks.c", "        MR_TRY(mr_pg_captured_guess(reader->conn, &reader->options, table->oid, ret_error));\n", "        origins->count = 0;\n",
           "test_tables.py::test_a_copy_hides_what_a_former_partition_did"),
    Mutant("what is in a detached partition has its rules alone", "src/event/kin.c", "root == 0 ? 0 : entries_at(kin, above, above_oid);", "0 * above;", "unit kin_test"),
    Mutant("a partition of a partition has the outermost's rules alone", "src/event/kin.c", "    kin_add(kin, &(struct part){.oid = oid, .root = root, .numbers = numbers});\n", "",
           "test_tables.py::test_a_partition_of_a_former_partition_hides_what_that_does"),
    Mutant("a hidden column is known in one stream", "src/encode/hidden/hidden.c", "    mr_seen_adopt(&hidden->seen, relation->oid, name.data, topic);\n", "",
           "test_tables.py::test_a_hidden_column_is_shown_in_no_other_stream"),
    Mutant("what a stream's rule hides is not known from the start", "src/encode/hidden/hidden.c",
           "        learn_stream(hidden, relation, topic);\n", "        learn_stream(hidden, relation, topic);\n        break;\n",
           "test_tables.py::test_a_hidden_column_is_shown_in_no_other_stream"),
    Mutant("whose partition a table was is not stored", "src/flow/kept.c", "        mr_kin_take(keeper->of.kin, json);\n", "",
           "test_tables.py::test_a_partition_that_was_detached_while_it_was_stopped"),
    Mutant("what became unlogged while it was stopped", "src/copy/added.c", "        take_silence(added);\n", "",
           "test_tables.py::test_a_table_that_becomes_unlogged_while_it_is_stopped_is_said"),
    Mutant("a membership that is new is the old one", "src/copy/members.c", "        mr_search(&hash, known->names,", "        false && mr_search(&hash, known->names,",
           "test_tables.py::test_what_is_published_again_by_other_ways_is_said[named-stopped]"),
    Mutant("a schema's membership that is new is the old one", "src/copy/members.c", "if (asking->was_there && is_listed && !asking->is_named) {",
           "if (false) {", "test_tables.py::test_what_is_published_again_by_other_ways_is_said[schema-stopped]"),
    Mutant("what millrace sets anew is forgiven though somebody did before", "src/copy/members.c",
           "replaced != 0 && replaced <= asking->tables.known->last", "replaced != 0",
           "test_tables.py::test_what_is_published_again_by_other_ways_is_said[alter, with a list-stopped]"),
    Mutant("a filter is not known by the name of its table", "src/postgres/server/pg_form.c",
           "return part != NULL ? part\n                        : part_named(form->parts, form->part_count, table->schema, table->table);", "(void)table;\n    return part;",
           "test_tables.py::test_a_swapped_table_keeps_its_filter_and_its_list[running]"),
    Mutant("a filter that is stored is not remembered", "src/postgres/server/pg_form.c",
           "add_before(form, part_text(part, 0), part_text(part, 1), part_text(part, 2));", "",
           "test_tables.py::test_a_swapped_table_keeps_its_filter_and_its_list[stopped]"),
    Mutant("a publication that is gone is printed without what it hid", "src/postgres/server/pg_rules.c",
           "options, rules->facts->version, sent);", "options, rules->facts->version, NULL);",
           "test_tables.py::test_a_publication_that_is_gone_is_printed_whole"),
    Mutant("a value that no event has stays unknown", "src/verify/verify.c", "counts.differences[MR_DIFFERENCE_UNKNOWN] > 0", "counts.differences[MR_DIFFERENCE_UNKNOWN] > 1000000",
           "test_repair.py::test_a_large_value_that_no_event_has_is_sent"),
    Mutant("hidden columns in one case of letters only", "src/convert/patterns.c", 'is_name || is_any ? "" : ANY_CASE);', '"");', "unit convert_test"),
    Mutant("a class of anyone's is Kafka's", "src/convert/transforms.c", "|| !is_of_theirs(java);", ";", "unit convert_test"),
    Mutant("a list from a provider is empty", "src/convert/source.c", "        if (!good[i]) {\n            mr_cv_hold(", "        if (false) {\n            mr_cv_hold(", "unit convert_test"),
    Mutant("excluded messages in one case of letters only", "src/encode/encode.c", "strncasecmp(listed + 4,", "strncmp(listed + 4,", "unit encode_test"),
    Mutant("a condition gets out of its parentheses", CONDITION,
           "scan->depth == 0 || scan->closing[--scan->depth] != c", "scan->depth > 0 && scan->closing[--scan->depth] != c", "unit condition_test"),
    Mutant("a text in pieces without its escapes", CONDITION, "bool follows_escape_text = scan->was_escape_text;",
           "bool follows_escape_text = false;", "unit condition_test"),
    Mutant("a schema in which a key may be null", FORMS + "connect.c",
           "    return plan->key.may_be_null || !mr_plan_is_key(plan, column) || !is_held;", "    (void)is_held;\n    return true;",
           "unit wrapped_test"),
    Mutant("lists in lists beside a schema of one", "src/encode/values/convert_list.c", "depth == 1 || !out->is_typed", "true",
           "unit wrapped_test"),
    Mutant("sends a key that its schema can't hold", "src/encode/values/row.c",
           "    if (out->is_typed) {\n        latch(encoder, column, FAULT_KEY);\n    }\n", "", "unit wrapped_test"),
    Mutant("proves a schema, not what is in it", VERIFY + "event.c", "is_wrapped ? payload.text : text", "is_wrapped ? schema.text : text",
           "unit event_test"),
    Mutant("raises the slot's limit below what it keeps", "src/postgres/server/pg_slot.c",
           "        (uint64_t)limit_bytes / MB + (kept", "        0 * (kept_mb + 1) + (kept", "unit pg_slot_test"),
    Mutant("a context gives rows other places", "src/stream/pgoutput.c",
           "    if (decoder->passes_messages) {\n        message->position = next_position(decoder);",
           "    if (decoder->passes_messages || message->is_context) {\n        message->position = next_position(decoder);", "unit pgoutput_test"),
    Mutant("a context that outlives its transaction", "src/stream/pgoutput.c", "        .xid = xid,\n    };",
           "        .xid = xid,\n        .headers = decoder->transaction.headers,\n    };", "unit pgoutput_test"),
    Mutant("a context with line breaks", "src/event/context.c", "    return !has_control(text, len);", "    return !has_control(text, 0);",
           "unit context_test"),
    Mutant("a context that makes rows too large", "src/encode/oversize_policy.c", "oversize_policy_has_context(item) ? MR_ITEM_BARE : MR_ITEM_PLACED",
           "MR_ITEM_PLACED", "unit encode_test"),
    Mutant("forgets to say that a request is complete", "src/kafka/kafka_now.c",
           "    (void)rd_kafka_topic_send_now(topic, partition);", "", "unit kafka_now_test"),
    Mutant("an age that never falls", "src/flow/backlog.h",
           "    atomic_store_explicit(&backlog->is_there, is_old, memory_order_relaxed);",
           "    if (is_old)\n        atomic_store_explicit(&backlog->is_there, true, memory_order_relaxed);", "unit backlog_test"),
    Mutant("pauses over a stop", "src/flow/gulp.c", "{.fd = stop_fd, .events = POLLIN}", "{.fd = -1}", "unit gulp_test"),
    Mutant("leaves the low-water mark", "src/flow/gulp.c",
           "    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &some, sizeof(some));\n", "", "unit gulp_test"),
    Mutant("a pool that never shrinks", "src/event/batch.c", "!most_are_free && lent <= atomic_load(&pool->lends)", "!most_are_free",
           "unit batch_test"),
    Mutant("a transaction that stays open while nothing is old", "src/flow/pace.h",
           "is_backlog ? most_ns : mr_pace_live_ns(ending_ns)", "most_ns", "unit pace_test"),
    Mutant("confirms what it received", CONFIRM,
           "    mr_lsn lsn = mr_intake_published(intake);\n    MR_ASSERT(lsn >= intake->feedback.confirmed);",
           "    mr_lsn lsn = atomic_load(&pipeline->by_source.received);"),
    Mutant("confirms what it handed to librdkafka", DELIVERY,
           "            mr_ack_add(&lane->ack, batch->sequence, batch->confirm_lsn, &batch->last, batch->step);\n",
           "            mr_ack_add(&lane->ack, batch->sequence, 0, &batch->last, batch->step);\n            if (batch->confirm_lsn != 0)\n"
           "                atomic_store(&delivery->pipeline->published, batch->confirm_lsn);\n"),
    Mutant("confirms what is reported inside an open transaction", DELIVERY,
           "        *mark_of(lane_of(delivery, batch), mark.sequence) = mark;\n",
           "        *mark_of(lane_of(delivery, batch), mark.sequence) = mark;\n        if (batch->confirm_lsn != 0)\n"
           "            atomic_store(&delivery->pipeline->published, batch->confirm_lsn);\n",
           "unit stored_position_test"),
    Mutant("confirms a transaction at its begin", EVENTS,
           "    intake->running = (struct mr_running){.state = MR_RUNNING_BEGUN,",
           "    mr_intake_mark(intake, transaction->commit_lsn + 1);\n"
           "    intake->running = (struct mr_running){.state = MR_RUNNING_BEGUN,",
           "test_state.py::test_exactly_once_inside_a_large_transaction"),
    Mutant("confirms the newest acknowledged batch", "src/flow/ack.c",
           "    entry->done = true;\n    bool moved = false;\n    while (ack->oldest < ack->next && "
           "ack_entry(ack, ack->oldest)->done) {",
           "    entry->done = true;\n    bool moved = true;\n    if (entry->confirm_lsn > ack->acknowledged)\n"
           "        ack->acknowledged = entry->confirm_lsn;\n"
           "    while (ack->oldest < ack->next && ack_entry(ack, ack->oldest)->done) {", "unit ack_test"),
    Mutant("goes on without a look at what comes again", "src/stream/rejoin.c",
           "    if (!has_last || server->slot_confirmed == 0 ||", "    if (true ||", "unit rejoin_test"),
    Mutant("confirms before what comes again is compared", "src/stream/rejoin.c",
           "? flushed : rejoin->slot_confirmed;", "? flushed : rejoin->end;", "unit rejoin_test"),
    Mutant("keeps pointers into a reload that is over", "src/stream/pg_source.c",
           "    mr_counted_pass(&source->options.captured.memory, wanted->captured.memory);\n", "",
           "test_reload.py::test_every_order_of_reloads"),
    Mutant("compares no ids of topics", "src/event/known_topics.c", "bool is_another = one->id != 0;", "bool is_another = false;",
           "unit known_topics_test"),
    Mutant("uses added partitions at once", "src/event/placing.c", "partitions > placing->count && !placings->is_stored",
           "partitions > placing->count", "test_topics.py::test_partitions_are_added_and_what_was_sent_comes_again"),
    Mutant("uses added partitions before that is stored", "src/event/placing.h",
           "placing->state == MR_PLACING_CHANGED ? placing->count : 0", "placing->count", "unit placing_test"),
    Mutant("forgets at a start by how many partitions records were placed", "src/flow/kept.c",
           "mr_placings_take(keeper->of.placings, json);", "mr_placings_take(keeper->of.placings, NULL);",
           "test_topics.py::test_partitions_are_added_and_what_was_sent_comes_again"),
    Mutant("hands on what was delivered before", "src/stream/rejoin.c",
           "    return compares(rejoin) ? MR_OK\n", "    return compares(rejoin) && change == NULL ? MR_OK\n", "unit rejoin_test"),
    Mutant("takes another transaction at the same place for the last one", "src/stream/rejoin.c",
           "bool is_other = is_last && (", "bool is_other = false && (", "unit rejoin_test"),
    Mutant("takes rows that come again for rows that were delivered", "src/stream/rejoin.c",
           "    if (transaction->has_rows && transaction->commit_lsn != rejoin->last.lsn) {", "    if (false) {", "unit rejoin_test"),
    Mutant("goes on where the last transaction does not come", "src/stream/rejoin.c",
           "rejoin->state = rejoin->has_last ? MR_REJOIN_NONE : MR_REJOIN_REFUSED;", "rejoin->state = MR_REJOIN_NONE;",
           "unit rejoin_test"),
    Mutant("stores an older transaction as the last one", "src/flow/ack.c",
           "            ack->last = entry->last;\n", "            if (ack->last.lsn == 0)\n                ack->last = entry->last;\n",
           "unit ack_test"),
    Mutant("confirms a keepalive inside a transaction", EVENTS,
           "    if (!mr_intake_in_transaction(intake)) {\n        mr_intake_mark(intake, server_end);",
           "    if (true) {\n        mr_intake_mark(intake, server_end);", "unit pipeline_test"),
    Mutant("positions without ordinals", "src/sink/record_headers.c",
           "headers->position + 17, 10, record->position.ordinal", "headers->position + 17, 10, 1"),
    Mutant("skips by LSN alone", EVENTS,
           "!(mr_position_compare(position, intake->carry.appended) <= 0)",
           "position.commit_lsn > intake->carry.appended.commit_lsn"),
    Mutant("skips no repeated changes", EVENTS,
           "!(mr_position_compare(position, intake->carry.appended) <= 0)", "(position.ordinal != 0 || true)",
           "unit pipeline_test"),
    Mutant("leaves without waiting for delivery", INTAKE,
           "    while (!mr_lane_all_published(intake->lane) || mr_intake_position_waits(intake)) {\n        bool sink_lost",
           "    while (false) {\n        bool sink_lost",
           "test_delivery.py::test_sigterm_under_load_loses_and_repeats_nothing"),
    Mutant("a batch that was full does not count at a stop", "src/flow/lane.c",
           "    if (mr_lane_has_records(lane)) {\n        mr_lane_hand_over(lane);\n        return MR_OK;",
           "    if (mr_lane_has_records(lane)) {\n        uint64_t needed = lane->handed.needed;\n        mr_lane_hand_over(lane);\n"
           "        lane->handed.needed = needed;\n        return MR_OK;", "unit pipeline_test"),
    Mutant("leaves without the last confirmation", INTAKE,
           "        mr_status status = mr_intake_confirm(intake, mr_monotonic_ns(), ret_error);\n        mr_intake_disconnect",
           "        mr_status status = MR_OK;\n        (void)ret_error;\n        mr_intake_disconnect",
           "unit pipeline_test"),
    Mutant("goes on behind a lost sink session", SESSION,
           "    close_source(intake, 0); /* with the claim that an earlier session had */\n", "", "unit pipeline_test"),
    Mutant("a message confirms the transaction behind it", EVENTS, "        mr_intake_mark(intake, message->lsn);\n",
           "        mr_intake_mark(intake, message->lsn + 1);\n", "unit pipeline_test"),
    Mutant("a broken copy's progress counts in the next one", "src/copy/copy_plan.c",
           "    while (safe < lane->note_count && lane->notes[safe].step <= step) {",
           "    (void)step;\n    while (safe < lane->note_count) {", "unit copy_plan_test"),
    Mutant("a copied table whose file is new is gone on with", "src/copy/copy_plan.c",
           "part->filenode == of->filenode && ", "", "unit copy_plan_test"),
    Mutant("what was stored last counts, not the furthest", "src/kafka/kafka_state.c",
           "(!loader->found || !mr_checkpoint_is_behind(&state, &loader->state))", "(true)",
           "test_state.py::test_older_position_behind_the_newest_does_not_count"),
    Mutant("a server that asks is taken for one that stops", EVENTS,
           "intake->lane->round.ns - intake->feedback.asked_ns < MR_INSISTENCE_NS;", "true;",
           "test_faults.py::test_short_wal_sender_timeout_while_kafka_stands_still"),
    Mutant("says nothing while it has no room", CONFIRM, "reads || idle_ns < UNREAD_NS ? idle_ns", "true ? idle_ns",
           "test_faults.py::test_short_wal_sender_timeout_while_kafka_stands_still"),
    Mutant("a quiet server is taken for dead", INTAKE, "        intake->feedback.question_ns = 0;\n", "",
           "unit pipeline_test"),
    Mutant("another hash of keys", "src/sink/kafka/kafka_place.c",
           "rd_kafka_msg_partitioner_murmur2(handle, record->key,",
           "rd_kafka_msg_partitioner_consistent(handle, record->key,"),
    Mutant("no tombstones", "src/encode/forms/skeleton.h", "    wanted.has_tombstone &= key.data != NULL;",
           "    wanted.has_tombstone = false;"),
    Mutant("an untouched large value is null", "src/encode/values/row.c",
           "mr_type_unavailable(out, planned, encoder->options.unavailable_value);",
           'MR_BUFFER_LITERAL(out, "null");'),
    Mutant("a changed key leaves the old row", "src/encode/forms/skeleton.h",
           "if (event.op == MR_OP_UPDATE && mr_key_changed(encoder, plan, change)) {",
           "if (event.op == MR_OP_UPDATE && mr_key_changed(encoder, plan, change) && false) {"),
    Mutant("a copied CloudEvent keeps the id that another may have", "src/encode/oversize.c",
           "mr_cloud_set_position(record);", "(void)mr_cloud_set_position;",
           "test_formats.py::test_cloudevents_are_read_by_their_sdk"),
    Mutant("the primary key although the identity is another", "src/event/relation.c",
           "        if (view->columns[i].in_identity) {\n            view->key_columns[view->key_count++] = i;",
           "        if (view->columns[i].in_identity && view->identity != MR_IDENTITY_INDEX) {\n"
           "            view->key_columns[view->key_count++] = i;", "test_keys.py::test_one_key_in_insert_update_and_delete"),
    Mutant("the columns of a key in another order", "src/event/relation.c",
           "            view->key_columns[view->key_count++] = i;\n",
           "            memmove(view->key_columns + 1, view->key_columns, view->key_count++ * sizeof(uint32_t));\n"
           "            view->key_columns[0] = i;\n", "test_keys.py::test_columns_of_a_key_keep_their_order"),
    Mutant("a large key is the placeholder", "src/encode/values/row.c",
           "(old->kind == MR_TUPLE_KEY && plan->relation->columns[column].in_identity));",
           "false);", "test_keys.py::test_large_key_is_never_the_placeholder"),
    Mutant("takes a slot that was made again", CHECKPOINT, "stored->end_lsn != 0 && server->slot_confirmed > stored->end_lsn", "false",
           "faults/test_slot.py::test_slot_made_again"),
    Mutant("makes a lost slot anew", CHECKPOINT,
           "    if (!server->slot_exists) {\n        return mr_fail(ret_error, MR_ERR_HISTORY,\n                       \"slot \\\"%s\\\" is gone",
           "    if (false) {\n        return mr_fail(ret_error, MR_ERR_HISTORY,\n                       \"slot \\\"%s\\\" is gone",
           "faults/test_slot.py::test_slot_dropped"),
    Mutant("believes a restored server", CHECKPOINT, "ended > server->flushed || begun > server->flushed",
           "false",
           "unit checkpoint_test"),
    Mutant("goes on behind the end of a timeline", CHECKPOINT, "then->timeline < now->timeline &&", "false &&",
           "unit checkpoint_test"),
    Mutant("forgets what it handed over at a switch of timeline", CHECKPOINT,
           "(begun != 0 && server->switched_at <= begun)", "false", "unit checkpoint_test"),
    Mutant("adopts any slot", "src/postgres/server/pg_setup.c", "        !options->adopt_slot) {", "        false) {",
           "test_state.py::test_slot_without_a_position_is_adopted_only_if_told_so"),
    Mutant("believes another cluster", CHECKPOINT, "strcmp(stored->identity.system_id, server->identity.system_id) != 0", "false",
           "unit checkpoint_test"),
    Mutant("publishes before it is stored", DELIVERY, "if (moved && pipeline->sink->storage == MR_STORES_NOTHING) {",
           "if (moved) {", "unit stored_position_test"),
    Mutant("ignores what is stored", DELIVERY,
           "    MR_TRY(pipeline->sink->ops->load(pipeline->sink, &found, &state, ret_error));\n",
           "    MR_TRY(pipeline->sink->ops->load(pipeline->sink, &found, &state, ret_error));\n    found = false;\n",
           "unit stored_position_test"),
    Mutant("loads before the stream is its own", DELIVERY,
           "        do {\n            MR_TRY(wait_for_claim(delivery, true, ret_error));\n"
           "            delivery_step(delivery, MR_HANDSHAKE_LOAD);\n        } while (!is_loading(delivery));\n",
           "        (void)is_loading(delivery);\n", "unit stored_position_test"),
    Mutant("a batch carries too much", CONFIRM, "        intake->lane->filling->confirm_lsn = intake->carry.marked;\n",
           "        intake->lane->filling->confirm_lsn = intake->carry.marked + 64;\n", "unit stored_position_test"),
    Mutant("a keepalive takes the position back", SESSION, "if (intake->carry.marked <= published) {", "if (false) {",
           "unit stored_position_test"),
    Mutant("keeps a claim whose connection has ended", SESSION, "= has_claim ? source->ops->descriptor(source) : -1;",
           "= has_claim ? -1 : -2;", "unit stored_position_test"),
    Mutant("takes another's progress for a gap", SESSION,
           "        intake->state == MR_HANDSHAKE_RECLAIMED) {", "        intake->state == MR_HANDSHAKE_STATES) {",
           "unit stored_position_test"),
    Mutant("stores a position behind its events", DELIVERY,
           ".end_lsn = delivery->sent_lsn, .last", ".end_lsn = delivery->stream->ack.acknowledged, .last",
           "unit stored_position_test"),
    Mutant("commits the events without the position", "src/sink/kafka/kafka_send.c", "    MR_TRY(produce_state(kafka, ret_error));\n",
           "    if (kafka->options.exactly_once && kafka->reports.awaited > 0) {\n        free(kafka->state);\n        kafka->state = NULL;\n"
           "        kafka->store = MR_KAFKA_STORE_REPORTED;\n        return MR_OK;\n    }\n    MR_TRY(produce_state(kafka, ret_error));\n",
           "test_delivery.py::test_kill_under_load_loses_nothing[exactly-once]"),
    Mutant("the events are delivered before their commit", DELIVERY,
           "    if (is_transactional(delivery)) {\n        *mark_of(", "    if (false) {\n        *mark_of(",
           "unit stored_position_test"),
    Mutant("aborted transactions are read", "src/kafka/kafka_state.c", 'consumer_new(&loader, "read_committed"',
           'consumer_new(&loader, "read_uncommitted"', "test_state.py::test_position_behind_an_open_transaction"),
    Mutant("leaves open what Kafka has left open", KAFKA, "    if (hanging.found) {\n", "    if (false) {\n",
           "faults/test_hanging.py"),
    Mutant("leaves open what Kafka has left open in topics of rows", KAFKA, "    kafka->base.half_ended = up_to;\n", "    (void)up_to;\n",
           "faults/test_hanging.py"),
    Mutant("confirms what Kafka has not ended everywhere", DELIVERY, "    delivery->committed = delivery->sent;\n", "    delivery->committed = delivery->sent;\n    delivery_publish(delivery, delivery_acknowledged(delivery));\n",
           "unit stored_position_test"),
    Mutant("takes a commit for its own proof", "src/sink/kafka/kafka_transaction.c", "                partition->offset > kafka->transaction.asked_offset;",
           "                true;", "faults/test_hanging.py"),
    Mutant("gives up before all that was half ended is sent again", DELIVERY, "mr_position_compare(up_to, delivery->sent) <= 0 ||", "true ||", "unit stored_position_test"),
    Mutant("what was committed and went is not given up first", DELIVERY, "        sink->half_ended = delivery->committed;\n", "        sink->is_half_ended = false;\n",
           "unit stored_position_test"),
    Mutant("any refused message without a key makes its topic a compacted one", REFUSAL, "refusal->said != NULL &&", "true ||", "unit kafka_session_test"),
    Mutant("what a topic takes is not learned", REFUSAL, "    return most != 0 &&", "    return false &&", "test_refused.py::test_many_messages_larger_than_their_topic_takes"),
    Mutant("requests are larger than their topic takes", "src/sink/kafka/kafka_send.c", "taken <= REQUEST_HEAD_BYTES || taken > most ? most", "true ? most",
           "test_refused.py::test_many_messages_larger_than_their_topic_takes"),
    Mutant("messages that fit once they are compressed are dropped", "src/sink/kafka/kafka_size.c", 'strcmp(own->compression, "none") == 0 ||', "true ||",
           "test_refused.py::test_many_messages_larger_than_their_topic_takes"),
    Mutant("LZ4 stands in for Snappy", "src/sink/kafka/kafka_size.c", "rd_kafka_snappy_size(bytes.to, bytes.len);", "squeeze_lz4(0, bytes);",
           "test_refused.py::test_a_message_that_fits_compressed_comes"),
    Mutant("a message that its topic just takes is dropped", "src/sink/kafka/kafka_size.c", "mr_kafka_plain_size(options, record) <= bytes_max", "mr_kafka_plain_size(options, record) < bytes_max",
           "test_refused.py::test_a_message_as_large_as_its_topic_takes"),
    Mutant("goes away inside a transaction", "src/sink/kafka/kafka_transaction.c", "rd_kafka_abort_transaction(kafka->producer, ABANDON_MS)", "NULL",
           "unit kafka_session_test"),
    Mutant("looks for the position among what is committed", "src/kafka/kafka_conf.c",
           '{"isolation.level", "read_uncommitted"}', '{"isolation.level", "read_committed"}',
           "test_state.py::test_position_behind_an_open_transaction"),
    Mutant("asks SQL_ASCII for UTF-8", "src/postgres/conn/pg_conn_open.c", 'strcmp(encoding, "SQL_ASCII") == 0',
           'strcmp(encoding, "") == 0', "faults/test_values.py::test_bytes_that_are_no_utf8"),
    Mutant("drops the old slot before it is stored that there is a gap", "src/copy/gap.c",
           "    return !requests->stores || requests->gap_safe == to || ", "    return true || ",
           "test_left_out.py::test_a_gap_outlives_the_process_that_made_it[when_needed-exactly-once-gone]"),
    Mutant("takes what was a partition of a streamed table for another's", "src/postgres/catalog/pg_captured.c",
           "look.exists && look.is_settled &&", "look.exists &&", "test_left_out.py::test_what_may_have_been_streamed_is_a_gap[partition]"),
    Mutant("a copy at each start drops a slot that holds changes, and no gap says so", "src/postgres/server/pg_left.c",
           "    bool holds = status != MR_OK || holding.is_ours || ", "    bool holds = false && ",
           "test_recover.py::test_a_new_slot_leaves_out_what_waited_in_the_old_one"),
    Mutant("calls a copy done that has not begun", "src/cli/recover.c",
           'mr_show_is(status, "source.connected") && strcmp(copy, "running") != 0;', "status != NULL;",
           "test_recover.py::test_a_look_at_the_old_slot_is_no_stream_yet"),
    Mutant("a stream that goes on counts as a copy", "src/cli/recover.c", "way != MR_WAY_EVERYTHING || is_copied", "way < MR_WAYS || is_copied",
           "test_recover.py::test_the_stream_goes_on_while_the_person_thinks"),
    Mutant("a copy that leaves rows out closes a gap", "src/copy/snapshot.c", "!accepts && !snapshot->options.leaves_rows_out);", "!accepts);",
           "test_recover.py::test_a_copy_that_leaves_rows_out_closes_no_gap"),
    Mutant("rows from before the publication was gone hide those from then", "src/postgres/server/pg_identity.c",
           "enum { PEEKED_CHANGES = 100000 };", "enum { PEEKED_CHANGES = 1 };",
           "test_recover.py::test_a_publication_that_was_made_again"),
    Mutant("copies rows over what the stream has had since", "src/copy/chunk_rows.c",
           "        if (is_sent && mr_chunk_window_goes_out(chunks->window, chunks->out.at)) {",
           "        if (is_sent) {", "test_incremental.py::test_rows_come_in_their_newest_form"),
    Mutant("copies rows over those of a table that has the name since", "src/copy/chunk_stream.c",
           "        look_at_another(chunks, change->relation);\n", "        (void)look_at_another;\n", "unit chunks_test"),
    Mutant("takes a column that was withheld for one that came later", VERIFY + "fold.c",
           "(!entry->is_copied && entry->row_xid == entry->record.xid && is_since);", "(entry->is_copied && false && is_since);",
           "unit fold_test"),
    Mutant("does not see that updates are no longer sent", "src/postgres/server/pg_form.c", "if (was->sends[i] && !now->sends[i]) {", "if (false) {",
           "test_publication.py::test_a_publication_that_is_altered_meanwhile_is_said[publish]"),
    Mutant("does not see a filter that is set by hand", "src/postgres/server/pg_form.c", "digest == (was == NULL ? 0 : was->digest)", "true",
           "test_publication.py::test_a_publication_that_is_altered_meanwhile_is_said[filter]"),
    Mutant("takes a publication that was altered for the one of before", "src/postgres/server/pg_form.c", "    if (known) {", "    if (known && false) {",
           "test_publication.py::test_a_publication_that_is_altered_meanwhile_is_said[list]"),
    Mutant("a table that is not published holds all copies up", "src/copy/pg_chunks.c", "if (reader->gone != table->oid) {", "if (true) {",
           "test_incremental.py::test_a_table_that_leaves_the_publication_meanwhile"),
    Mutant("a stop waits for the next status update", "src/flow/pipeline.c",
           "    mr_wake(pipeline->wakes.sink); /* what waits for pipeline.status_interval is stored now */\n", "",
           "test_delivery.py::test_a_stop_does_not_wait_for_the_next_status_update[at-least-once]"),
    Mutant("a repair deletes what is there", "src/copy/chunk_rows.c",
           "is_absent(&chunks->thread.chunk, chunks->out.at) == ", "true || ",
           "test_repair.py::test_what_changes_after_it_was_named"),
    Mutant("a repair's key is where the next number is not", "src/copy/chunks.c", "chunk->keys_from + rows;", "rows;",
           "unit chunks_test"),
    Mutant("forgets the keys that the stream brings while a chunk is read", "src/copy/chunk_stream.c",
           "        mr_chunk_window_change(chunks->window, key, lacks);\n", "        (void)key;\n        (void)lacks;\n",
           "test_incremental.py::test_rows_come_in_their_newest_form"),
    Mutant("a marker promises the next transaction", RESOLVED, MARKER, MARKER.replace("published", "place").replace(";", " + 512;"),
           "test_resolved.py::test_no_marker_promises_what_is_not_above_it[at-least-once]"),
    Mutant("a ledger counts what is not stored", "src/ledger/sums.c", "segment->sequence <= reach->sequences[segment->lane]", "segment->sequence > 0",
           "unit sums_test"),
    Mutant("a ledger counts what is sent again", "src/ledger/sums.c", "sums_is_before(segment->last, reach->end_lsn)", "segment->last.commit_lsn > 0",
           "unit sums_test"),
    Mutant("a range is sent before it is stored", "src/ledger/ledger.c", "ledger->owed[i].is_stored && ", "", "unit ledger_test"),
    Mutant("a session forgets the range of the one before", "src/ledger/ledger.c", "cJSON_GetArraySize(parts) > 0", "parts == NULL", "unit ledger_test"),
    Mutant("a marker promises what is not acknowledged", RESOLVED, MARKER, MARKER.replace("published", "place"), "unit resolved_test"),
    Mutant("a topic without rows has no marker", RESOLVED, "return partitions == 0 && is_expected ? 1 : partitions;",
           "return is_expected ? partitions : partitions;", "unit resolved_test"),
    Mutant("markers that were lost are not said again", RESOLVED, "        resolved->last.lsn = 0;\n", "", "unit resolved_test"),
    Mutant("markers are for a topic's first partition", RESOLVED, "MR_PARTITION_IF_THERE(resolved->round.partition)",
           "MR_PARTITION_IF_THERE(0)", "test_resolved.py::test_no_marker_promises_what_is_not_above_it[at-least-once]"),
    Mutant("verify takes a transaction that runs for one that its snapshot sees", f"{VERIFY}cut.c", "(full < cut->xmax && mr_search(",
           "(full < cut->xmax || mr_search(", "unit cut_test"),
    Mutant("verify compares each chunk with the last one's snapshot", f"{VERIFY}fold.c", "is_shown ? entry->chunk :",
           "is_shown && false ? entry->chunk :", "unit fold_test"),
    Mutant("verify names no phantom", f"{VERIFY}fold.c", "} else if (entry->state == IS_THERE) {", "} else if (entry->times > 0) {",
           "unit fold_test"),
    Mutant("verify takes an earlier event of another partition for the last one", f"{VERIFY}fold.c",
           "mr_place_compare(stored->record.place, entry->record.place) < 0", "false", "unit fold_test"),
    Mutant("verify believes a repeat with other values", f"{VERIFY}order.c",
           "!mr_digest_equal(before->digest, digest)", "digest.low == 0 && digest.high == 0", "unit order_test"),
    Mutant("verify believes a run of repeats with a hole", f"{VERIFY}order.c",
           "leave_out(order, partition, record, partition->due, number);", "", "unit order_test"),
    Mutant("verify counts repeats as rows", f"{VERIFY}fold.c", "    if (number != MR_INDEX_NONE) {\n        return; /* at least",
           "    if (false) {\n        return; /* at least", "unit fold_test"),
    Mutant("verify believes any value of a late column", f"{VERIFY}fold.c", "            !mr_digest_equal(of_row->digest, *had)) {",
           "            false) {", "unit fold_test"),
    Mutant("verify takes what copies lack for what came later", f"{VERIFY}fold.c", "was_there = is_dated &&", "was_there = false && is_dated &&",
           "unit fold_test"),
    Mutant("verify takes what an earlier event has for what came later", f"{VERIFY}fold.c", "(has_come && !stored->is_older)",
           "(has_come && stored->is_older && false)", "unit fold_test"),
    Mutant("verify takes another cluster's numbers for this one's", f"{VERIFY}fold.c", "record->place.commit_lsn >= fold->options.entered", "true",
           "unit fold_test"),
    Mutant("verify takes any value for a default", f"{VERIFY}fold.c", "return absent->has_default ||", "return absent->has_default || true ||",
           "unit fold_test"),
    Mutant("verify takes a column before a later one for one that came later", f"{VERIFY}table.c", "is_withheld = has_later && !has_foreign;",
           "is_withheld = has_later && !has_foreign && false;",
           "test_verify.py::test_a_column_that_copies_lack_is_no_late_one[before a later one-keyed]"),
    Mutant("verify believes the constant that a column was added with, whenever an event came", f"{VERIFY}table.c",
           "(may_be && !column->is_absent_null)", "(may_be && !column->is_absent_null && false)",
           "test_verify.py::test_a_column_that_copies_lack_is_no_late_one[known-keyed]"),
    Mutant("verify forgets when a column got its default", f"{VERIFY}pg_describe.c", "age(e.xmin) > age(h.xmin)", "age(e.xmin) < age(h.xmin)",
           "test_verify.py::test_a_column_that_copies_lack_is_no_late_one[with a default, and written again-keyed]"),
    Mutant("verify misses no tombstone", f"{VERIFY}fold.c", "(is_bare && !is_early)", "(is_bare && false)", "unit fold_test"),
    Mutant("verify takes any tombstone for that of the delete", f"{VERIFY}fold.c", "is_deleted && is_of_last(entry, stored)", "is_deleted",
           "unit fold_test"),
    Mutant("verify takes null for an empty text", f"{VERIFY}value.c", "    key.high ^= text.data == NULL;\n", "", "unit table_test"),
    Mutant("verify does not wait for the stream", f"{VERIFY}proof.c", "*ret_has_come = confirmed >= end;", "*ret_has_come = true;",
           "test_verify.py::test_a_stream_that_does_not_run_gives_no_verdict"),
    Mutant("verify reads no more of the topic than it had at first", f"{VERIFY}records.c", "if (is_ahead && topic->cause == NULL) {",
           "if (false) {", "test_verify.py::test_a_large_table_is_read_in_chunks_while_it_is_written"),
    Mutant("verify lets records come twice under exactly-once", f"{VERIFY}judge.c", "kafka.exactly_once && order.repeats > 0",
           "kafka.exactly_once && order.repeats > 1000", "test_verify.py::test_a_repeat_under_exactly_once_is_one_too_many"),
    Mutant("verify excuses what came after records with another key", f"{VERIFY}judge.c",
           "(strange->other_keys > 0 && strange->hard == 0)", "(strange->other_keys > 0)",
           "test_verify.py::test_records_with_another_key_count_for_no_row"),
    Mutant("drops the rows of a partition that is gone", "src/postgres/catalog/pg_captured.c",
           ".is_kin = root != NULL || gone != NULL,", ".is_kin = root == NULL && root != NULL && gone != NULL,",
           "test_tables.py::test_a_partition_that_is_gone_at_the_next_start"),
    Mutant("drops the rows of a partition whose table was detached", "src/postgres/catalog/pg_sql.c",
           "coalesce(bool_and(x.is_settled), false)", "coalesce(bool_or(x.is_settled), false)",
           "test_tables.py::test_what_a_partition_belongs_to_is_another_at_the_next_start"),
    Mutant("drops the rows of a partition whose table is renamed", "src/postgres/catalog/pg_captured.c",
           "(was_attached || look.is_renamed)", "was_attached", "test_tables.py::test_what_a_partition_belongs_to_is_another_at_the_next_start"),
    Mutant("what was hidden is forgotten in another cluster", "src/encode/hidden/seen.c", "    mr_seen_put(there, &made);\n", "    mr_seen_free(&made);\n",
           "faults/test_move.py::test_what_is_hidden_is_known_by_names_in_another_cluster"),
    Mutant("what was a partition is none in another cluster", "src/encode/hidden/seen.c", "        mr_kin_moved(there->kin, now->oid, here->kin, seen->oid);\n", "",
           "faults/test_move.py::test_what_is_hidden_is_known_by_names_in_another_cluster"),
    Mutant("tables of another cluster are known by the numbers of the old one", "src/cli/move.c", "    MR_TRY(move_hidden(move, ret_error));\n", "    (void)move_hidden;\n",
           "faults/test_move.py::test_what_is_hidden_is_known_by_names_in_another_cluster"),
    Mutant("a stream leaves a cluster with a hidden column under another name", "src/encode/hidden/hidden.c",
           "        MR_TRY(leave_stream(hidden, now, topic, ret_error));\n", "        MR_TRY(topic == NULL ? MR_OK : leave_stream(hidden, now, topic, ret_error));\n",
           "faults/test_move.py::test_what_is_hidden_has_its_name_when_the_stream_leaves"),
    Mutant("what was a partition has no name when the stream leaves", "src/encode/hidden/hidden.c", "    mr_hidden_learn(hidden, now);\n    return MR_OK;\n", "    return MR_OK;\n",
           "faults/test_move.py::test_what_is_hidden_has_its_name_when_the_stream_leaves"),
    Mutant("shows a column that was hidden under another name", "src/encode/hidden/hidden.c",
           "column == NULL ? MR_OK : unmatched(hidden, relation, before, column, ret_error);", "MR_OK;",
           "test_tables.py::test_a_hidden_column_is_never_shown"),
    Mutant("knows hidden columns by their names alone", "src/postgres/catalog/describe.c",
           "    if (!catalog->options->hides_columns) {\n        return MR_OK;\n    }\n    if (view", "    if (view != NULL) {\n        return MR_OK;\n    }\n    if (view",
           "test_tables.py::test_a_hidden_column_is_never_shown"),
    Mutant("takes the columns of today for those of the rows", "src/postgres/catalog/pg_attributes.c",
           "written == 0 || (int32_t)(written - xid) < 0", "xid != 0 || written == 0",
           "test_tables.py::test_a_hidden_column_of_a_backlog"),
    Mutant("a partition's rows have no rules but those of its name", "src/encode/column_rules.c", "i < relation->origin_count && !is_about", "false && !is_about",
           "test_tables.py::test_a_partition_hides_what_its_table_does"),
    Mutant("a partition's rows come as its table's, whatever its rules hide", "src/encode/hidden/hidden.c",
           "        if (!hides[c] && mr_column_rules_hide(", "        if (column == NULL && mr_column_rules_hide(",
           "test_tables.py::test_a_table_that_becomes_a_partition_hides_what_it_did"),
    Mutant("forgets hidden columns once rules change", "src/encode/hidden/seen_stored.c", "        if (is_hidden_now(tables, seen, seen->numbers[i].name)) {", "        if (kept > seen->number_count) {",
           "unit hidden_test"),
    Mutant("keeps what was hidden by a rule that somebody took out", "src/encode/hidden/seen_stored.c", "        if (is_hidden_now(tables, seen, seen->numbers[i].name)) {",
           "        if (kept <= i) {", "unit hidden_test"),
    Mutant("what was not stored was not hidden", "src/encode/hidden/hidden.c", "    return is_about && !is_named(hidden, now);", "    return is_about && is_named(hidden, now);",
           "unit hidden_test"),
    Mutant("stores hidden columns of few tables", "src/encode/hidden/seen_stored.c", "        end = is_partial ? (uint32_t)(fits - fits / 16) : end;", "        end = (uint32_t)(fits - fits / 16);",
           "test_tables.py::test_hidden_columns_of_many_tables_are_known_at_the_next_start"),
    Mutant("a column that may have been renamed was dropped", "src/encode/hidden/hidden.c", "            is_there |= now->attributes[a].number == hidden->number;", "            is_there |= now->attributes[a].number == hidden->number && now->attributes[a].name != NULL;",
           "unit hidden_test"),
    Mutant("what was hidden of a partition counts for rows of its name alone", "src/encode/hidden/hidden.c", "column = judge_hidden(hidden, part, places, name.data, topic, hides, &before);", "column = NULL;",
           "test_tables.py::test_a_partition_hides_what_it_did_before_it_was_one"),
    Mutant("rows of a partition that come as its table's are the table's", "src/flow/intake_events.c", "return mr_encoder_part(intake->lane->encoder, root, part, ret_error);", "return intake == NULL ? mr_encoder_part(NULL, root, part, ret_error) : MR_OK;",
           "test_tables.py::test_a_table_that_becomes_a_partition_hides_what_it_did"),
    Mutant("a copy's rows are its table's, whatever its partitions were", "src/encode/hidden/hidden.c", "i < root->part_count; i++", "i < root->part_count && made == NULL; i++",
           "test_tables.py::test_a_copy_hides_what_a_partition_did_before_it_was_one"),
    Mutant("learns hidden columns from rows alone", "src/postgres/catalog/pg_attributes.c", "options->columns_at_start.take == NULL || ",
           "options->columns_at_start.take != NULL || ", "test_tables.py::test_a_column_that_is_renamed_before_any_row_is_never_shown"),
    Mutant("takes what was altered since for what the stream has first", "src/postgres/catalog/pg_attributes.c",
           "        mr_pg_result_true(row, 0, FIRST_CERTAIN) && ", "        (mr_pg_result_true(row, 0, FIRST_CERTAIN) || true) && ",
           "test_tables.py::test_a_hidden_column_of_a_backlog"),
    Mutant("says what the server says of a value", "src/postgres/conn/pg_conn.c", "    if (instead != NULL) {", "    if (instead != NULL && is_of_rows && !is_of_rows) {",
           "test_incremental.py::test_what_the_server_says_of_a_value_is_not_said"),
    Mutant("forgets at a start which columns were hidden", "src/flow/kept.c",
           "        mr_hidden_take(keeper->of.hidden, json);\n", "",
           "test_tables.py::test_a_hidden_column_is_never_shown"),
    Mutant("a table without a verdict is not tried again", f"{VERIFY}every.c", "rounds->is_whole || is_void(every_known_of(rounds, listed))", "rounds->is_whole",
           "test_every.py::test_what_came_to_nothing_is_tried_again_and_a_connection_may_be_lost"),
]


def copy_sources():
    """The files that git knows, kept between runs so that little is built again."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.split("\0")[:-1]
    for name in files:
        source, target = os.path.join(ROOT, name), os.path.join(COPY, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as file:
            text = file.read()
        if not os.path.exists(target) or open(target, "rb").read() != text:  # keeps the time of what is unchanged
            shutil.copy(source, target)
    kept = {os.path.join(COPY, name) for name in files}
    for folder, _, names in os.walk(os.path.join(COPY, "src")):
        for path in (os.path.join(folder, name) for name in names):
            if path not in kept:  # of before
                os.remove(path)


def quietly(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)


def build(*targets):
    result = quietly("ninja", "-j2", *targets, cwd=os.path.join(COPY, "build"))
    assert result.returncode == 0, result.stdout[-3000:]


def set_up():
    copy_sources()
    result = quietly("cmake", "-S", COPY, "-B", os.path.join(COPY, "build"), "-G", "Ninja",
                     "-DCMAKE_BUILD_TYPE=Release")
    assert result.returncode == 0, result.stdout


def run_check(check):
    """Exit code and what was said by the check that must fail; the binary is the copy's."""
    if check.startswith("unit "):
        return quietly(os.path.join(COPY, "build", "unit-tests"), check.split()[1], timeout=120)
    environment = {**os.environ, "MILLRACE_BIN": os.path.join(COPY, "build", "millrace"), "MILLRACE_TEST_CYCLES": "6"}
    tests = os.path.dirname(HERE)
    if check == STORM:
        check = "faults/test_storm.py::test_kills_behind_cuts[at-least-once]"
    return quietly(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", check, cwd=tests,
                   env=environment, timeout=400)


def cause(text):
    """The line of the output that says what was found."""
    for line in text.splitlines():
        if line.startswith("E  ") or "[  FAILED  ]" in line or "invariant broken" in line or "ERROR" in line:
            return " ".join(line.split())[:90]
    return "failed"


def misplaced():
    """Mutants whose text is not, or not once, in the sources as they are now: they would prove nothing."""
    names = []
    for mutant in MUTANTS:
        with open(os.path.join(ROOT, mutant.file), encoding="utf-8") as file:
            if file.read().count(mutant.old) != 1:
                names.append(f"{mutant.name} ({mutant.file})")
    return names


def try_mutant(mutant):
    """What caught it, or None."""
    path = os.path.join(COPY, mutant.file)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(mutant.old, mutant.new))
    try:
        build("millrace", *(["unit-tests"] if mutant.check.startswith("unit") else []))
        for _ in range(STORMS if mutant.check == STORM else 1):
            try:
                result = run_check(mutant.check)
            except subprocess.TimeoutExpired:
                return "it never ends"
            if result.returncode != 0:
                return cause(result.stdout)
        return None
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def main():
    assert not misplaced(), f"their places have changed, adapt mutants.py: {misplaced()}"
    wanted = [m for m in MUTANTS if not sys.argv[1:] or any(word in m.name for word in sys.argv[1:])]
    set_up()
    build("millrace", "unit-tests")
    for check in sorted({m.check for m in wanted}):
        result = run_check(check)
        assert result.returncode == 0, f"{check} fails without a mutant:\n{result.stdout[-3000:]}"
    caught = 0
    for mutant in wanted:
        began = time.monotonic()
        found = try_mutant(mutant)
        caught += found is not None
        check = mutant.check.split("::")[-1]
        print(f"{'caught' if found else 'MISSED'}  {mutant.name:45} {check:50} {time.monotonic() - began:4.0f} s  "
              f"{found or ''}", flush=True)
    print(f"mutants: {caught} of {len(wanted)} caught")
    return 0 if caught == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
