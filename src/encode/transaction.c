#include "encode/transaction.h"

#include <stdlib.h>

#include "encode/forms/form.h"
#include "encode/values/convert.h"
#include "encode/values/put.h"

/* Of positions: several records may have one. Those of the topic of transactions grow there too. */
enum { PART_BEGIN = 8, PART_END = 9 };

struct mr_transaction_table {
    size_t name_at; /* in `names` */
    size_t name_len;
    uint64_t events;
    uint32_t hash;
    uint32_t next; /* of its bucket: 1 + its index; 0: none */
};

enum { TABLES_MIN = 16, NAMES_MIN = 1024 };

void mr_transaction_init(struct mr_transaction_counts *counts, const struct mr_topic *topic)
{
    *counts = (struct mr_transaction_counts){.topic = topic, .number = 1};
}

void mr_transaction_done(struct mr_transaction_counts *counts)
{
    free(counts->tables);
    free(counts->heads);
    free(counts->tails);
    free(counts->names.data);
}

void mr_transaction_reset(struct mr_transaction_counts *counts,
                          const struct mr_transaction *transaction)
{
    counts->last = (struct mr_position){.commit_lsn = transaction->commit_lsn};
    counts->begin_lsn = transaction->begin_lsn;
    counts->number++;
    counts->total = 0;
    counts->table_count = 0;
    counts->names.len = 0;
    if (counts->heads != NULL) {
        memset(counts->heads, 0, counts->bucket_count * sizeof(*counts->heads));
    }
}

/* ---- tables, as the HashMap<String, Long> that Debezium has of them ---- */

static void link_table(struct mr_transaction_counts *counts, uint32_t i)
{
    uint32_t bucket = counts->tables[i].hash & (counts->bucket_count - 1);
    counts->tables[i].next = 0;
    if (counts->heads[bucket] == 0) {
        counts->heads[bucket] = i + 1;
    } else {
        counts->tables[counts->tails[bucket] - 1].next = i + 1;
    }
    counts->tails[bucket] = i + 1;
}

/* Tables of one bucket keep their order when a HashMap grows (HashMap.resize). */
static void make_room(struct mr_transaction_counts *counts)
{
    uint32_t buckets = mr_java_buckets(counts->table_count + 1);
    if (buckets > counts->bucket_count) {
        counts->heads = MR_REALLOC(counts->heads, buckets * sizeof(*counts->heads));
        counts->tails = MR_REALLOC(counts->tails, buckets * sizeof(*counts->tails));
        counts->bucket_count = buckets;
        memset(counts->heads, 0, buckets * sizeof(*counts->heads));
        for (uint32_t i = 0; i < counts->table_count; i++) {
            link_table(counts, i);
        }
    }
    if (counts->table_count == counts->table_capacity) {
        counts->table_capacity =
            counts->table_capacity == 0 ? TABLES_MIN : 2 * counts->table_capacity;
        counts->tables =
            MR_REALLOC(counts->tables, counts->table_capacity * sizeof(*counts->tables));
    }
}

/* The name of a table behind the others', as TableId.toString has it. */
static mr_slice append_name(struct mr_transaction_counts *counts, const char *schema,
                            const char *table)
{
    static const char messages[] = "LOGICAL_DECODING_MESSAGE"; /* LogicalDecodingMessageId */
    schema = table == NULL ? "" : schema;
    size_t schema_len = strlen(schema);
    table = table == NULL ? messages : table;
    size_t len = schema_len + (schema_len > 0) + strlen(table);
    struct mr_text *names = &counts->names;
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
    mr_slice name = append_name(counts, schema, table);
    uint32_t hash = mr_java_hash(name);
    uint32_t at = counts->heads == NULL ? 0 : counts->heads[hash & (counts->bucket_count - 1)];
    for (; at != 0; at = counts->tables[at - 1].next) {
        const struct mr_transaction_table *known = &counts->tables[at - 1];
        mr_slice other = {.data = counts->names.data + known->name_at, .len = known->name_len};
        if (known->hash == hash && mr_slice_equal(name, other)) {
            return at - 1;
        }
    }
    make_room(counts);
    uint32_t i = counts->table_count++;
    counts->tables[i] = (struct mr_transaction_table){
        .name_at = counts->names.len, .name_len = name.len, .hash = hash};
    counts->names.len += name.len;
    link_table(counts, i);
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

/* ---- what is told ---- */

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

/* Key and beginning of the value, up to what BEGIN does not have. */
static struct mr_record begin_record(struct mr_buffer *out,
                                     const struct mr_transaction_counts *counts,
                                     const struct mr_transaction *transaction,
                                     struct mr_position position, bool ends)
{
    mr_lsn lsn = ends ? transaction->end_lsn : counts->begin_lsn;
    struct mr_record record = {
        .topic = counts->topic,
        .key = out->at,
        .position = position,
        .commit_time_us = transaction->commit_time_us,
        .xid = transaction->xid,
        .part = ends ? PART_END : PART_BEGIN,
        .kind = MR_RECORD_TRANSACTION,
    };
    MR_BUFFER_LITERAL(out, "{\"id\":");
    put_id(out, transaction->xid, lsn);
    MR_BUFFER_LITERAL(out, "}");
    record.value = out->at;
    record.key_len = (uint32_t)(record.value - record.key);
    mr_buffer_slice(out, ends ? MR_SLICE("{\"status\":\"END\",\"id\":")
                              : MR_SLICE("{\"status\":\"BEGIN\",\"id\":"));
    put_id(out, transaction->xid, lsn);
    return record;
}

static void end_record(struct mr_buffer *out, const struct mr_transaction *transaction,
                       struct mr_record *record)
{
    MR_BUFFER_LITERAL(out, ",\"ts_ms\":");
    mr_json_i64(out, mr_floor_div(transaction->commit_time_us, 1000));
    MR_BUFFER_LITERAL(out, "}");
    record->value_len = (uint32_t)(out->at - record->value);
}

void mr_transaction_begin(struct mr_buffer *out, const struct mr_transaction_counts *counts,
                          const struct mr_transaction *transaction, struct mr_position position,
                          struct mr_record *ret_record)
{
    *ret_record = begin_record(out, counts, transaction, position, false);
    MR_BUFFER_LITERAL(out, ",\"event_count\":null,\"data_collections\":null");
    end_record(out, transaction, ret_record);
}

static void append_tables(struct mr_buffer *out, const struct mr_transaction_counts *counts)
{
    const char *separator = "{\"data_collection\":";
    for (uint32_t bucket = 0; counts->table_count > 0 && bucket < counts->bucket_count; bucket++) {
        for (uint32_t at = counts->heads[bucket]; at != 0; at = counts->tables[at - 1].next) {
            const struct mr_transaction_table *table = &counts->tables[at - 1];
            mr_buffer_slice(out, mr_slice_of(separator));
            mr_json_string(out, counts->names.data + table->name_at, table->name_len);
            MR_BUFFER_LITERAL(out, ",\"event_count\":");
            mr_json_u64(out, table->events);
            MR_BUFFER_LITERAL(out, "}");
            separator = ",{\"data_collection\":";
        }
    }
}

void mr_transaction_end(struct mr_buffer *out, const struct mr_transaction_counts *counts,
                        const struct mr_transaction_end *end, bool tables,
                        struct mr_record *ret_record)
{
    *ret_record = begin_record(out, counts, end->transaction, end->position, true);
    MR_BUFFER_LITERAL(out, ",\"event_count\":");
    mr_json_u64(out, counts->total);
    MR_BUFFER_LITERAL(out, ",\"data_collections\":");
    if (tables) {
        MR_BUFFER_LITERAL(out, "[");
        append_tables(out, counts);
        MR_BUFFER_LITERAL(out, "]");
    } else {
        MR_BUFFER_LITERAL(out, "null");
    }
    end_record(out, end->transaction, ret_record);
}
