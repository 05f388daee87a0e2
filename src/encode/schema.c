/* Events that tell the form of a table: `{"schema":…,"table":…,"identity":…,"key":[…],"columns":[…],"source":{…}}`. */
#include "encode/values/put.h"
#include "encode/values/row.h"
#include "encode/values/types.h"

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
        MR_BUFFER_LITERAL(out, ",\"type_oid\":");
        mr_json_u64(out, column->type_oid);
        MR_BUFFER_LITERAL(out, ",\"type_modifier\":");
        mr_json_i64(out, column->type_modifier);
        mr_buffer_slice(out, column->in_identity ? MR_SLICE(",\"in_identity\":true}")
                                                 : MR_SLICE(",\"in_identity\":false}"));
        separator = ",{\"name\":";
    }
}

static void write_source(struct mr_buffer *out, const struct mr_change *change)
{
    const struct mr_transaction *transaction = change->transaction;
    MR_BUFFER_LITERAL(out, "],\"source\":{\"ts_us\":");
    mr_json_i64(out, transaction->commit_time_us);
    MR_BUFFER_LITERAL(out, ",\"txId\":");
    mr_json_u64(out, transaction->xid);
    MR_BUFFER_LITERAL(out, ",\"lsn\":");
    mr_json_u64(out, change->lsn);
    MR_BUFFER_LITERAL(out, "}}");
}

void mr_schema_event(struct mr_encoder *encoder, const struct mr_plan *plan,
                     const struct mr_change *change, struct mr_buffer *out,
                     struct mr_record *ret_record)
{
    const struct mr_relation *relation = plan->relation;
    const uint8_t *key = out->at;
    write_table(out, relation);
    MR_BUFFER_LITERAL(out, "}");
    const uint8_t *value = out->at;
    write_table(out, relation);
    MR_BUFFER_LITERAL(out, ",\"identity\":");
    mr_put_slice(out, mr_slice_of(identity_name(relation->identity)));
    MR_BUFFER_LITERAL(out, ",\"key\":[");
    for (uint32_t i = 0; i < plan->key.count; i++) {
        mr_buffer_append(out, ",", i > 0);
        mr_put_slice(out, mr_slice_of(relation->columns[plan->key.columns[i]].name));
    }
    MR_BUFFER_LITERAL(out, "],\"columns\":[");
    write_columns(out, plan);
    write_source(out, change);
    *ret_record = mr_record_of(plan, change, MR_PART_SCHEMA);
    ret_record->topic = encoder->names.schema;
    mr_record_set_key(ret_record, (mr_slice){.data = key, .len = (size_t)(value - key)});
    mr_record_set_value(ret_record, mr_text_since(out, value));
    ret_record->kind = MR_RECORD_SCHEMA;
}
