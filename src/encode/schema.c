/* Events that tell the form of a table:
 * `{"schema":…,"table":…,"identity":…,"key":[…],"columns":[…],"source":{…}}`. */
#include <inttypes.h>

#include "encode/values/put.h"
#include "encode/values/row.h"

static const char *identity_name(enum mr_replica_identity identity)
{
    return identity == MR_IDENTITY_DEFAULT   ? "default"
           : identity == MR_IDENTITY_NOTHING ? "nothing"
           : identity == MR_IDENTITY_FULL    ? "full"
           : identity == MR_IDENTITY_INDEX   ? "index"
                                             : "unknown";
}

static void write_table(struct mr_buffer *out, const struct mr_relation *relation)
{
    MR_BUFFER_LITERAL(out, "{\"schema\":");
    mr_put_slice(out, mr_slice_of(relation->schema));
    MR_BUFFER_LITERAL(out, ",\"table\":");
    mr_put_slice(out, mr_slice_of(relation->table));
}

static void write_columns(struct mr_buffer *out, const struct mr_plan *plan)
{
    const struct mr_relation *relation = plan->relation;
    const char *separator = "{\"name\":";
    for (uint32_t i = 0; i < relation->column_count; i++) {
        const struct mr_column *column = &relation->columns[i];
        if (plan->columns[i].writer == MR_WRITE_ABSENT) {
            continue;
        }
        mr_buffer_slice(out, mr_slice_of(separator));
        mr_put_slice(out, mr_slice_of(column->name));
        MR_BUFFER_LITERAL(out, ",\"type\":");
        if (column->type_name != NULL) {
            mr_put_slice(out, mr_slice_of(column->type_name));
        } else {
            mr_type_name(out, column->type_oid);
        }
        mr_buffer_format(
            out, ",\"type_oid\":%" PRIu32 ",\"type_modifier\":%" PRId32 ",\"in_identity\":%s}",
            column->type_oid, column->type_modifier, column->in_identity ? "true" : "false");
        separator = ",{\"name\":";
    }
}

void mr_schema_event(struct mr_encoder *encoder, const struct mr_plan *plan,
                     const struct mr_change *change, struct mr_buffer *out,
                     struct mr_record *ret_record)
{
    const struct mr_relation *relation = plan->relation;
    const struct mr_transaction *transaction = change->transaction;
    const uint8_t *key = out->at;
    write_table(out, relation);
    MR_BUFFER_LITERAL(out, "}");
    const uint8_t *value = out->at;
    write_table(out, relation);
    mr_buffer_format(out, ",\"identity\":\"%s\",\"key\":[", identity_name(relation->identity));
    for (uint32_t i = 0; i < plan->key.count; i++) {
        mr_buffer_append(out, ",", i > 0);
        mr_put_slice(out, mr_slice_of(relation->columns[plan->key.columns[i]].name));
    }
    MR_BUFFER_LITERAL(out, "],\"columns\":[");
    write_columns(out, plan);
    mr_buffer_format(
        out, "],\"source\":{\"ts_us\":%" PRId64 ",\"txId\":%" PRIu32 ",\"lsn\":%" PRIu64 "}}",
        transaction->commit_time_us, transaction->xid, change->lsn);
    *ret_record = mr_record_of(plan, change, MR_PART_SCHEMA);
    ret_record->topic = encoder->names.schema;
    mr_record_set_key(ret_record, (mr_slice){.data = key, .len = (size_t)(value - key)});
    mr_record_set_value(ret_record, mr_text_since(out, value));
    ret_record->kind = MR_RECORD_SCHEMA;
}
