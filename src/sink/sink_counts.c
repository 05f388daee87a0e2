#include "sink/sink_counts.h"

enum { TOPICS_MIN = 16 };

static int64_t add_i64(_Atomic int64_t *counter, int64_t by)
{
    int64_t now = atomic_load_explicit(counter, memory_order_relaxed) + by;
    atomic_store_explicit(counter, now, memory_order_relaxed);
    return now;
}

void mr_sink_counts_done(struct mr_sink_counts *counts)
{
    free(counts->topics);
}

/* Lines for all partitions of a topic, or as many as there is room for. */
static void make_lines(struct mr_sink_counts *counts, struct mr_flight_topic *lines,
                       const struct mr_topic *topic, int32_t partition_count)
{
    uint32_t first = atomic_load_explicit(&counts->line_count, memory_order_relaxed);
    uint32_t room = MR_SINK_PARTITIONS_MAX - first;
    lines->first = first;
    lines->count = (uint32_t)partition_count < room ? (uint32_t)partition_count : room;
    for (uint32_t i = 0; i < lines->count; i++) {
        counts->lines[first + i].topic = topic->name;
        counts->lines[first + i].partition = (int32_t)i;
    }
    atomic_store_explicit(&counts->line_count, first + lines->count, memory_order_release);
}

static struct mr_flight_topic *topic_lines(struct mr_sink_counts *counts,
                                           const struct mr_topic *topic)
{
    if (MR_UNLIKELY(topic->index >= counts->topic_capacity)) {
        uint32_t capacity = topic->index + TOPICS_MIN;
        counts->topics = MR_REALLOC(counts->topics, capacity * sizeof(*counts->topics));
        memset(counts->topics + counts->topic_capacity, 0,
               (capacity - counts->topic_capacity) * sizeof(*counts->topics));
        counts->topic_capacity = capacity;
    }
    return &counts->topics[topic->index];
}

static struct mr_flight_line *sink_counts_line_of(struct mr_sink_counts *counts,
                                                  const struct mr_flight_topic *lines,
                                                  int32_t partition)
{
    bool counted_apart = partition >= 0 && (uint32_t)partition < lines->count;
    return counted_apart ? &counts->lines[lines->first + (uint32_t)partition] : &counts->other;
}

void mr_sink_counts_sent(struct mr_sink_counts *counts, const struct mr_topic *topic,
                         int32_t partition, int32_t partition_count, size_t bytes)
{
    struct mr_flight_topic *lines = topic_lines(counts, topic);
    if (MR_UNLIKELY(lines->count == 0 && partition >= 0)) {
        make_lines(counts, lines, topic, partition_count);
    }
    struct mr_flight_line *line = sink_counts_line_of(counts, lines, partition);
    add_i64(&line->records, 1);
    add_i64(&line->bytes, (int64_t)bytes);
    mr_counter_add(&counts->records_sent, 1);
    mr_counter_add(&counts->bytes_sent, bytes);
}

void mr_sink_counts_acked(struct mr_sink_counts *counts, const struct mr_topic *topic,
                          int32_t partition, size_t bytes)
{
    struct mr_flight_line *line =
        sink_counts_line_of(counts, topic_lines(counts, topic), partition);
    if (MR_UNLIKELY(atomic_load_explicit(&line->records, memory_order_relaxed) == 0)) {
        line = &counts->other; /* its partition was not known when it set out */
    }
    MR_ASSERT(counts->records_acked < counts->records_sent);
    int64_t left = add_i64(&line->bytes, -(int64_t)bytes);
    if (add_i64(&line->records, -1) == 0 && left != 0) {
        /* Records of both kinds have changed places; the totals tell the truth. */
        add_i64(&line->bytes, -left);
    }
    mr_counter_add(&counts->records_acked, 1);
    mr_counter_add(&counts->bytes_acked, bytes);
}

static void line_reset(struct mr_flight_line *line)
{
    atomic_store_explicit(&line->records, 0, memory_order_relaxed);
    atomic_store_explicit(&line->bytes, 0, memory_order_relaxed);
}

void mr_sink_counts_reset(struct mr_sink_counts *counts)
{
    uint32_t count = atomic_load_explicit(&counts->line_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        line_reset(&counts->lines[i]);
    }
    line_reset(&counts->other);
    atomic_store_explicit(&counts->records_sent, counts->records_acked, memory_order_relaxed);
    atomic_store_explicit(&counts->bytes_sent, counts->bytes_acked, memory_order_relaxed);
}

void mr_sink_counts_errors(struct mr_sink_counts *counts, const char *code, uint64_t by)
{
    uint32_t count = atomic_load_explicit(&counts->error_count, memory_order_relaxed);
    uint32_t i = 0;
    while (i < count && strcmp(counts->errors[i].code, code) != 0) {
        i++;
    }
    if (i > MR_SINK_ERRORS_MAX) {
        i = MR_SINK_ERRORS_MAX; /* others */
    } else if (i == count) {
        counts->errors[i].code = i == MR_SINK_ERRORS_MAX ? "other" : code; /* not published yet */
    }
    mr_counter_add(&counts->errors[i].count, by);
    if (i == count) {
        atomic_store_explicit(&counts->error_count, count + 1, memory_order_release);
    }
}

static void read_line(const struct mr_flight_line *line, struct mr_sink_partition *ret)
{
    *ret = (struct mr_sink_partition){
        .topic = line->topic,
        .partition = line->partition,
        .records = atomic_load_explicit(&line->records, memory_order_relaxed),
        .bytes = atomic_load_explicit(&line->bytes, memory_order_relaxed),
    };
}

static void read_errors(const struct mr_sink_counts *counts, struct mr_sink_view *ret_view)
{
    uint32_t count = atomic_load_explicit(&counts->error_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        ret_view->errors[i] = (struct mr_sink_error){
            .code = counts->errors[i].code,
            .count = atomic_load_explicit(&counts->errors[i].count, memory_order_relaxed)};
    }
    ret_view->error_count = count;
}

void mr_sink_counts_read(const struct mr_sink_counts *counts, struct mr_sink_view *ret_view)
{
    /* Acknowledgements first: a record that sets out meanwhile makes a difference that is true a
     * moment later, one that comes home none. */
    ret_view->records_acked = atomic_load(&counts->records_acked);
    ret_view->bytes_acked = atomic_load(&counts->bytes_acked);
    ret_view->records_in_flight = atomic_load(&counts->records_sent) - ret_view->records_acked;
    ret_view->bytes_in_flight = atomic_load(&counts->bytes_sent) - ret_view->bytes_acked;
    uint32_t count = atomic_load_explicit(&counts->line_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        read_line(&counts->lines[i], &ret_view->partitions[i]);
    }
    read_line(&counts->other, &ret_view->partitions[count]);
    ret_view->partitions[count].topic = "other";
    ret_view->partitions[count].partition = -1;
    ret_view->partition_count = count + (ret_view->partitions[count].records != 0);
    read_errors(counts, ret_view);
}
