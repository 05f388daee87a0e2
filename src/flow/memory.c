#include "flow/memory.h"

/* All measured by tests/test_memory.py. */
enum {
    OWN_BYTES = 24 * 1024 * 1024, /* 20 MiB without a pool */
    TABLE_BYTES =
        48 * 1024, /* that sends: 22 MiB for 500 of 50 columns, more than half the Kafka client's */
    IDLE_TABLE_BYTES = 1024, /* that sends nothing */
    TABLES_SHARE = 4,        /* of the budget, for tables as if all sent */
    /* A ring of 512 KiB for each thread, names from debug information, the last minute, one profile
     * being made. */
    PROFILER_BYTES = 28 * 1024 * 1024,
    /* Bytes for each byte of the pool. With Kafka away and the smallest records it is 3.0 to 3.5:
     * what librdkafka keeps of a record and its three headers is more than the record. */
    POOL_FACTOR = 4,
    /* Of the budget, for descriptions of tables: at most, and at least, where a pattern says which
     * tables or not. */
    RELATIONS_SHARE = 8,
    RELATIONS_SHARE_PATTERN = 16,
    RELATIONS_SHARE_LEAST = 64,
    INPUT_BYTES_MIN = 16 * 1024, /* libpq's buffer at first */
    /* Around a row in the stream: headers of the message, of the replication protocol and of the
     * tuple. */
    MESSAGE_ROOM = 1024,
    /* Of a change: a chunk of existing rows. And bytes for each byte of a chunk: rows, where their
     * values are, keys of the stream and of the chunk with their index, a buffer that doubles. */
    CHUNK_PART = 16,
    CHUNK_FACTOR = 8,
    CHUNK_BYTES_MIN = 64 * 1024,
    CHUNK_BYTES_MAX = 1024 * 1024,
    /* What is held back and read again (stream/reselect.c, pg_reselect.h): the window, two rounds
     * of questions with their values, a row that libpq holds, a message that is written anew. */
    RESELECT_BYTES = 32 * 1024 * 1024,
    CHANGE_BYTES_MIN = 64 * 1024,
    CHANGE_BYTES_DEFAULT = 64 * 1024 * 1024,
};

uint64_t mr_memory_input(uint64_t message_bytes)
{
    uint64_t size = INPUT_BYTES_MIN;
    while (size < message_bytes) {
        size *= 2;
    }
    return size;
}

size_t mr_memory_chunk(uint64_t change_bytes_max)
{
    uint64_t bytes = change_bytes_max / CHUNK_PART;
    return bytes < CHUNK_BYTES_MIN   ? CHUNK_BYTES_MIN
           : bytes > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX
                                     : (size_t)bytes;
}

static uint64_t tables_bytes(const struct mr_memory_needs *needs)
{
    uint64_t all = needs->tables * TABLE_BYTES;
    uint64_t idle = needs->tables * IDLE_TABLE_BYTES;
    uint64_t share = needs->limit / TABLES_SHARE;
    return all < share ? all : idle > share ? idle : share;
}

struct mr_memory mr_memory_of(const struct mr_memory_needs *needs, uint64_t change_bytes_max)
{
    /* Records are larger than the row they are of by more than a message is. */
    uint64_t message = change_bytes_max - MESSAGE_ROOM;
    return (struct mr_memory){
        .own = OWN_BYTES + tables_bytes(needs) + (needs->reselects ? RESELECT_BYTES : 0),
        .profiler = needs->profiles ? PROFILER_BYTES : 0,
        .pool = needs->batches * needs->batch_bytes * POOL_FACTOR,
        .input = needs->readers == 0 ? mr_memory_input(message)
                                     : needs->readers * (mr_memory_input(message) + 2 * message),
        .copied = CHUNK_FACTOR * mr_memory_chunk(change_bytes_max),
        .relations =
            needs->limit / (needs->patterns ? RELATIONS_SHARE_PATTERN : RELATIONS_SHARE_LEAST),
        .large = 2 * change_bytes_max,
    };
}

uint64_t mr_memory_sum(const struct mr_memory *memory)
{
    return memory->own + memory->profiler + memory->pool + memory->input + memory->copied +
           memory->relations + memory->large;
}

size_t mr_memory_take_row(struct mr_memory *memory, const struct mr_memory_needs *needs,
                          uint64_t change_bytes_max)
{
    if (needs->patterns) {
        mr_memory_take_relations(memory, needs);
    }
    uint64_t least = mr_memory_chunk(change_bytes_max);
    uint64_t row = CHANGE_BYTES_MIN;
    while (2 * row <= change_bytes_max) {
        row *= 2;
    }
    /* Who copies at the beginning has ended by then, and had more. */
    bool is_free = needs->readers > 0;
    while (!is_free && row > least && mr_memory_sum(memory) + 2 * row > needs->limit) {
        row /= 2;
    }
    if (row <= least) {
        return least; /* it is a chunk's */
    }
    memory->copied += is_free ? 0 : 2 * row;
    return row;
}

size_t mr_memory_take_relations(struct mr_memory *memory, const struct mr_memory_needs *needs)
{
    uint64_t sum = mr_memory_sum(memory);
    uint64_t left = sum < needs->limit ? needs->limit - sum : 0;
    uint64_t more = needs->limit / RELATIONS_SHARE - memory->relations;
    memory->relations += more < left ? more : left;
    return (size_t)(tables_bytes(needs) + memory->relations);
}

uint64_t mr_memory_large(const struct mr_memory *memory, uint64_t limit)
{
    uint64_t others = mr_memory_sum(memory) - memory->large;
    return limit < others + memory->large ? memory->large : limit - others;
}

uint64_t mr_memory_change_max(const struct mr_memory_needs *needs)
{
    uint64_t change = CHANGE_BYTES_DEFAULT;
    for (; change > CHANGE_BYTES_MIN; change /= 2) {
        struct mr_memory memory = mr_memory_of(needs, change);
        if (mr_memory_sum(&memory) <= needs->limit) {
            break;
        }
    }
    return change;
}
