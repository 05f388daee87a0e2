#include "verify/proof_internal.h"

/* The first record that is out of order, and how many there are of each kind. */
static void judge_order(const struct mr_work *work)
{
    const struct mr_order_counts order = mr_order_end(work->order, work->proof->moment);
    const struct mr_order_fault fault = mr_order_first_fault(work->order);
    bool is_twice = work->tools->config->kafka.exactly_once && order.repeats > 0;
    if (fault.what != NULL) {
        mr_proof_conclude(work->proof, MR_VERIFY_DIFFERENT,
                          "records out of order: partition %d, offset %lld %s; of %llu repeats "
                          "%llu unlike the first, %llu other records backwards, %llu runs of "
                          "repeats that break off",
                          fault.record.partition, (long long)fault.record.offset, fault.what,
                          (unsigned long long)order.repeats, (unsigned long long)order.unlike,
                          (unsigned long long)order.backwards, (unsigned long long)order.broken);
    } else if (is_twice) {
        const struct mr_fold_record first = mr_order_first_repeat(work->order);
        mr_proof_conclude(work->proof, MR_VERIFY_DIFFERENT,
                          "%llu records come twice, under exactly-once, the first at partition %d, "
                          "offset %lld",
                          (unsigned long long)order.repeats, first.partition,
                          (long long)first.offset);
    }
}

static void judge_differences(const struct mr_work *work)
{
    struct mr_proof *proof = work->proof;
    const struct mr_config *config = work->tools->config;
    const uint64_t *found = proof->counts.differences;
    uint64_t missing = found[MR_DIFFERENCE_MISSING];
    uint64_t torn = found[MR_DIFFERENCE_TORN];
    uint64_t others = found[MR_DIFFERENCE_PHANTOM] + found[MR_DIFFERENCE_STALE] +
                      found[MR_DIFFERENCE_ALTERED] + torn;
    if (missing + others == 0) {
        return;
    }
    const struct mr_strange *strange = &work->strange;
    if (work->table.key_count == 0 && strange->other_keys > 0) {
        /* Such a record's row is not among those that the others add and take away. */
        proof->named_count = 0;
        memset(proof->counts.differences, 0, sizeof(proof->counts.differences));
        mr_proof_conclude(proof, MR_VERIFY_IN_PART,
                          "what differs can't be counted: the table has no key, and had one when "
                          "some of the records were written");
        return;
    }
    bool has_begun_later = work->extent.cut > 0 || strange->foreign > 0;
    /* Without a key a change takes away what a record said that may be gone; so more is missing,
     * and nothing is too much. */
    bool is_cut = work->table.key_count == 0 && work->extent.cut > 0 && others == 0;
    bool has_excuse = is_cut || (strange->other_keys > 0 && strange->hard == 0) ||
                      strange->lossy > 0 ||
                      (others == 0 && missing == proof->counts.eventless && has_begun_later);
    mr_proof_conclude(proof, has_excuse ? MR_VERIFY_IN_PART : MR_VERIFY_DIFFERENT,
                      "%llu missing, %llu phantom, %llu stale, %llu altered",
                      (unsigned long long)missing, (unsigned long long)found[MR_DIFFERENCE_PHANTOM],
                      (unsigned long long)found[MR_DIFFERENCE_STALE],
                      (unsigned long long)found[MR_DIFFERENCE_ALTERED]);
    if (torn > 0) {
        mr_text_format(&proof->reasons, ", %llu torn", (unsigned long long)torn);
    }
    if (is_cut) {
        mr_proof_conclude(proof, MR_VERIFY_IN_PART,
                          "the first records of %u of %u partitions are gone (retention.ms)",
                          work->extent.cut, work->extent.partitions);
    } else if (proof->counts.eventless > 0 && work->extent.cut > 0) {
        mr_proof_conclude(proof, MR_VERIFY_IN_PART,
                          "%llu rows may have had events: the first records of %u of %u partitions "
                          "are gone (retention.ms)",
                          (unsigned long long)proof->counts.eventless, work->extent.cut,
                          work->extent.partitions);
    } else if (proof->counts.eventless > 0 && config->source.copies == MR_COPIES_NOTHING) {
        mr_text_string(
            &proof->reasons,
            " (rows from before the stream, or that the publication did not send: millrace "
            "snapshot copies them)");
    }
    if (found[MR_DIFFERENCE_PHANTOM] > 0 &&
        (config->encode.skipped_operations & (1u << MR_OP_TRUNCATE)) != 0) {
        mr_text_string(&proof->reasons, " (truncates are not sent: skipped_operations)");
    }
}

/* What the publication withholds though the file does not say so: somebody may have altered it. */
static void judge_unsent(const struct mr_work *work)
{
    const struct mr_verify_listed *listed = work->proof->listed;
    const struct mr_table_name name = {.schema = listed->schema, .table = listed->table};
    const struct mr_published *published = mr_pg_published_of(&work->tools->config->source, &name);
    if (work->table.unsent.len > 0) {
        mr_proof_conclude(work->proof, MR_VERIFY_EQUAL,
                          "without what a column list of the publication withholds, which "
                          "publication.columns does not name: %s",
                          work->table.unsent.data);
    }
    if (listed->filter != NULL && (published == NULL || published->where == NULL)) {
        mr_proof_conclude(work->proof, MR_VERIFY_EQUAL,
                          "of the rows that a filter of the publication lets through, which "
                          "publication.where does not name: %s",
                          listed->filter);
    }
}

static void judge_rest(const struct mr_work *work)
{
    for (uint32_t i = 0; i < work->table.column_count; i++) {
        if (work->table.columns[i].treatment == MR_TREAT_UNKNOWN) {
            mr_proof_conclude(work->proof, MR_VERIFY_IN_PART,
                              "column \"%s\" has a type whose values are not compared",
                              work->table.columns[i].name);
        }
    }
    judge_unsent(work);
    const struct mr_fold_counts *counts = &work->proof->counts;
    const struct mr_strange *strange = &work->strange;
    bool has_key = work->table.key_count > 0;
    const struct mr_order_counts order = mr_order_end(work->order, work->proof->moment);
    const struct {
        uint64_t count;
        const char *what;
    } rest[] = {
        {order.forgotten, "records repeat one of long ago, and are not compared with it"},
        {order.elsewhere, "records repeat one of another partition"},
        {strange->other_keys,
         "records have the key of another form of the table, or none, and count for no row"},
        {strange->foreign, "records are from before millrace, and count for no row"},
        {strange->lossy, "records were too large to be whole"},
        {counts->buried, "rows have a tombstone and no delete, which compaction has taken"},
        {counts->unsettled, "rows came while the table was read, after their part of it; the next "
                            "run proves them"},
        {counts->differences[MR_DIFFERENCE_UNKNOWN] - (has_key ? counts->undefaulted : 0),
         "rows have a large value that no event of their key has; --repair sends them"},
        {counts->older, "rows have a last event of an older form of the table"},
        {counts->twice, "rows share a key with another one"},
        {counts->undefaulted, has_key
                                  ? "rows have a value in a column that their last event lacks, "
                                    "and the column has no default; --repair sends them"
                                  : "records lack a column that their rows have a value in, and "
                                    "the column has no default"},
        {counts->alone, "rows are the only ones older than a column, and nothing says what its "
                        "default was"},
    };
    if (counts->bare > 0) {
        mr_proof_conclude(work->proof, MR_VERIFY_IN_PART,
                          "%llu deletes are from before the first tombstone, and have none: one at "
                          "partition %d, offset %lld",
                          (unsigned long long)counts->bare, counts->first_bare.partition,
                          (long long)counts->first_bare.offset);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(rest); i++) {
        if (rest[i].count > 0) {
            mr_proof_conclude(work->proof, MR_VERIFY_IN_PART, "%llu %s",
                              (unsigned long long)rest[i].count, rest[i].what);
        }
    }
}

void mr_work_judge(const struct mr_work *work)
{
    struct mr_proof *proof = work->proof;
    if (work->strange.unreadable > 1) {
        mr_proof_conclude(proof, MR_VERIFY_DIFFERENT, "%llu such records in all",
                          (unsigned long long)work->strange.unreadable);
    }
    judge_differences(work);
    if (work->tools->options->gap && work->extent.cut > 0) {
        mr_proof_conclude(proof, MR_VERIFY_IN_PART, "%s", MR_PROOF_HEAD_IS_GONE);
    }
    judge_order(work);
    judge_rest(work);
    if (work->tools->options->sample > 0) {
        mr_proof_conclude(proof, MR_VERIFY_EQUAL, "a sample of %g %%",
                          work->tools->options->sample);
    }
}
