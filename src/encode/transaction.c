#include "encode/transaction.h"

#include "encode/forms/connect.h"
#include "encode/forms/form.h"
#include "encode/values/put.h"

/* Of positions: several records may have one. Those of the topic of transactions grow there too. */
enum { PART_BEGIN = 8, PART_END = 9 };

struct mr_transaction_table {
    size_t name_at; /* in `names` */
    size_t name_len;
    uint64_t events;
    uint32_t hash; /* Java's */
};

enum { NAMES_MIN = 1024 };

void mr_transaction_init(struct mr_transaction_counts *counts, const struct mr_topic *topic,
                         enum mr_json_schemas schemas)
{
    *counts = (struct mr_transaction_counts){.topic = topic, .schemas = schemas, .number = 1};
}

void mr_transaction_done(struct mr_transaction_counts *counts)
{
    free(counts->tables);
    mr_index_done(&counts->index);
    free(counts->names.data);
    free(counts->order.data);
}

void mr_transaction_reset(struct mr_transaction_counts *counts,
                          const struct mr_transaction *transaction)
{
    counts->last = (struct mr_position){.commit_lsn = transaction->commit_lsn};
    counts->begin_lsn = transaction->begin_lsn;
    counts->number++;
    counts->total = 0;
    mr_index_clear(&counts->index);
    counts->names.len = 0;
}

/* The name of a table after the others', as TableId.toString has it. */
static mr_slice transaction_append_name(struct mr_transaction_counts *counts, const char *schema,
                                        const char *table)
{
    static const char messages[] = "LOGICAL_DECODING_MESSAGE"; /* LogicalDecodingMessageId */
    schema = table == NULL ? "" : schema;
    size_t schema_len = strlen(schema);
    table = table == NULL ? messages : table;
    size_t len = schema_len + (schema_len > 0) + strlen(table);
    struct mr_bytes *names = &counts->names;
    if (names->len + len > names->capacity) {
        names->capacity = 2 * (names->capacity + len) + NAMES_MIN;
        names->data = MR_REALLOC(names->data, names->capacity);
    }
    struct mr_buffer out = mr_buffer_init(names->data + names->len, len);
    mr_buffer_append(&out, schema, schema_len);
    mr_buffer_append(&out, ".", schema_len > 0);
    mr_buffer_append(&out, table, strlen(table));
    MR_ASSERT(!out.full);
    return (mr_slice){.data = names->data + names->len, .len = len};
}

static uint32_t find_table(struct mr_transaction_counts *counts, const char *schema,
                           const char *table)
{
    mr_slice name = transaction_append_name(counts, schema, table);
    uint32_t hash = mr_java_hash(name);
    uint32_t at = 0;
    uint32_t i;
    while ((i = mr_index_next(&counts->index, hash, &at)) != MR_INDEX_NONE) {
        const struct mr_transaction_table *known = &counts->tables[i];
        if (mr_slice_equal(name, (mr_slice){.data = counts->names.data + known->name_at,
                                            .len = known->name_len})) {
            return i;
        }
    }
    MR_GROW(counts->tables, counts->table_capacity, counts->index.count + 1);
    i = mr_index_add(&counts->index, hash);
    counts->tables[i] = (struct mr_transaction_table){
        .name_at = counts->names.len, .name_len = name.len, .hash = hash};
    counts->names.len += name.len;
    return i;
}

void mr_transaction_add(struct mr_transaction_counts *counts, struct mr_transaction_slot *slot,
                        const char *schema, const char *table, uint32_t events)
{
    if (slot->number != counts->number) {
        slot->table = find_table(counts, schema, table);
        slot->number = counts->number;
    }
    counts->tables[slot->table].events += events;
    counts->total += events;
}

/* `733:22305072` as a string. */
static void put_id(struct mr_buffer *out, uint32_t xid, mr_lsn lsn)
{
    uint8_t room[40];
    struct mr_buffer id = mr_buffer_init(room, sizeof(room));
    mr_json_u64(&id, xid);
    MR_BUFFER_LITERAL(&id, ":");
    mr_json_u64(&id, lsn);
    mr_put_string(out, room, (size_t)(id.at - room));
}

void mr_transaction_block(struct mr_buffer *out, const struct mr_transaction_counts *counts,
                          const struct mr_transaction_slot *slot, uint32_t xid, mr_lsn lsn,
                          uint32_t ahead)
{
    MR_ASSERT(slot->number == counts->number);
    mr_put_field(out, MR_SLICE(",\"transaction\":"), true);
    mr_put_record(out, MR_SLICE("{\"id\":"), false);
    put_id(out, xid, lsn);
    mr_put_field(out, MR_SLICE(",\"total_order\":"), false);
    mr_put_long(out, (int64_t)counts->total + 1 + ahead);
    mr_put_field(out, MR_SLICE(",\"data_collection_order\":"), false);
    mr_put_long(out, (int64_t)counts->tables[slot->table].events + 1 + ahead);
    mr_put_json(out, MR_SLICE("}"));
}

/* In the order of the HashMap<String, Long> that Debezium has of them. */
static void append_tables(struct mr_buffer *out, struct mr_transaction_counts *counts)
{
    uint32_t count = counts->index.count;
    uint32_t buckets = mr_java_buckets(count);
    mr_text_begin(&counts->order, mr_java_order_bytes(count, buckets));
    uint32_t *hashes = (uint32_t *)(void *)counts->order.data;
    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = counts->tables[i].hash;
    }
    const uint32_t *order = mr_java_order(hashes, count, buckets);
    MR_BUFFER_LITERAL(out, "[");
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_transaction_table *table = &counts->tables[order[i]];
        mr_buffer_slice(out, i == 0 ? MR_SLICE("{\"data_collection\":")
                                    : MR_SLICE(",{\"data_collection\":"));
        mr_json_string(out, counts->names.data + table->name_at, table->name_len);
        MR_BUFFER_LITERAL(out, ",\"event_count\":");
        mr_json_u64(out, table->events);
        MR_BUFFER_LITERAL(out, "}");
    }
    MR_BUFFER_LITERAL(out, "]");
}

static void append_counts(struct mr_buffer *out, struct mr_transaction_counts *counts, bool tables)
{
    MR_BUFFER_LITERAL(out, ",\"event_count\":");
    mr_json_u64(out, counts->total);
    MR_BUFFER_LITERAL(out, ",\"data_collections\":");
    if (tables) {
        append_tables(out, counts);
    } else {
        MR_BUFFER_LITERAL(out, "null");
    }
}

void mr_transaction_record(struct mr_buffer *out, struct mr_transaction_counts *counts,
                           const struct mr_transaction *transaction, struct mr_position position,
                           enum mr_transaction_part part, struct mr_record *ret_record)
{
    bool ends = part != MR_TRANSACTION_BEGIN;
    mr_lsn lsn = ends ? transaction->end_lsn : counts->begin_lsn;
    struct mr_record record = {
        .topic = counts->topic,
        .position = position,
        .commit_time_us = transaction->commit_time_us,
        .xid = transaction->xid,
        .part = ends ? PART_END : PART_BEGIN,
        .kind = MR_RECORD_TRANSACTION,
    };
    bool wraps_key = (counts->schemas & MR_JSON_KEY_SCHEMA) != 0;
    bool wraps_value = (counts->schemas & MR_JSON_VALUE_SCHEMA) != 0;
    const uint8_t *begin = out->at;
    mr_connect_begin(out, wraps_key, mr_connect_transaction(true));
    MR_BUFFER_LITERAL(out, "{\"id\":");
    put_id(out, transaction->xid, lsn);
    MR_BUFFER_LITERAL(out, "}");
    mr_connect_end(out, wraps_key);
    mr_record_set_key(&record, mr_text_since(out, begin));
    begin = out->at;
    mr_connect_begin(out, wraps_value, mr_connect_transaction(false));
    mr_buffer_slice(out, ends ? MR_SLICE("{\"status\":\"END\",\"id\":")
                              : MR_SLICE("{\"status\":\"BEGIN\",\"id\":"));
    put_id(out, transaction->xid, lsn);
    if (ends) {
        append_counts(out, counts, part == MR_TRANSACTION_END);
    } else {
        MR_BUFFER_LITERAL(out, ",\"event_count\":null,\"data_collections\":null");
    }
    MR_BUFFER_LITERAL(out, ",\"ts_ms\":");
    mr_json_i64(out, mr_floor_div(transaction->commit_time_us, 1000));
    MR_BUFFER_LITERAL(out, "}");
    mr_connect_end(out, wraps_value);
    mr_record_set_value(&record, mr_text_since(out, begin));
    *ret_record = record;
}
