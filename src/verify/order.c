#include "verify/order.h"

/* Records that a repeat is compared with: of each partition, and of all. What is longer ago is not compared. */
enum { WINDOW_MAX = 8192, WINDOW_MIN = 64, WINDOWS = 262144 };

struct seen {
    struct mr_place place;
    struct mr_digest digest;
};

struct partition {
    struct mr_place highest;
    struct seen *window; /* the last records, in the order of their places; the oldest give way */
    uint64_t count;      /* of all that were in it */
    bool repeats;        /* the last record was a repeat, and not that of the highest */
};

struct mr_order {
    struct partition *partitions;
    uint32_t count;
    uint32_t window; /* of a partition */
    struct mr_order_counts counts;
};

struct mr_order *mr_order_new(uint32_t partitions)
{
    struct mr_order *order = MR_NEW(struct mr_order);
    uint32_t window = WINDOWS / (partitions + 1);
    *order = (struct mr_order){.partitions = MR_NEW_ARRAY(struct partition, partitions + 1),
                               .count = partitions,
                               .window = window > WINDOW_MAX   ? WINDOW_MAX
                                         : window < WINDOW_MIN ? WINDOW_MIN
                                                               : window};
    memset(order->partitions, 0, sizeof(*order->partitions) * (partitions + 1));
    return order;
}

void mr_order_free(struct mr_order *order)
{
    for (uint32_t i = 0; order != NULL && i < order->count; i++) {
        free(order->partitions[i].window);
    }
    if (order != NULL) {
        free(order->partitions);
        free(order);
    }
}

static void remember(const struct mr_order *order, struct partition *partition,
                     struct mr_place place, struct mr_digest digest)
{
    if (partition->window == NULL) {
        partition->window = MR_NEW_ARRAY(struct seen, order->window);
    }
    partition->window[partition->count++ % order->window] =
        (struct seen){.place = place, .digest = digest};
}

/* The record of that place among those that are remembered, which are in order: a search by halves. `*ret_forgotten`: it may be one that is
 * remembered no more. */
static const struct seen *find(const struct mr_order *order, const struct partition *partition,
                               struct mr_place place, bool *ret_forgotten)
{
    uint64_t first = partition->count <= order->window ? 0 : partition->count - order->window;
    uint64_t low = first;
    uint64_t high = partition->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct seen *seen = &partition->window[middle % order->window];
        int compared = mr_place_compare(seen->place, place);
        if (compared == 0) {
            return seen;
        }
        if (compared < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *ret_forgotten = first > 0 && low == first;
    return NULL;
}

static const struct seen *find_elsewhere(const struct mr_order *order, struct mr_place place)
{
    const struct seen *found = NULL;
    for (uint32_t i = 0; i < order->count && found == NULL; i++) {
        bool unused;
        found = find(order, &order->partitions[i], place, &unused);
    }
    return found;
}

void mr_order_take(struct mr_order *order, const struct mr_fold_record *record,
                   struct mr_digest digest)
{
    struct partition *partition = &order->partitions[record->partition];
    int compared = mr_place_compare(record->place, partition->highest);
    if (compared > 0) {
        order->counts.broken += partition->repeats;
        partition->highest = record->place;
        partition->repeats = false;
        remember(order, partition, record->place, digest);
        return;
    }
    bool is_forgotten = false;
    const struct seen *before = find(order, partition, record->place, &is_forgotten);
    order->counts.repeats++;
    partition->repeats = compared < 0;
    if (before == NULL && is_forgotten) {
        order->counts.forgotten++;
        return;
    }
    if (before == NULL) {
        before = find_elsewhere(order, record->place);
        order->counts.elsewhere += before != NULL;
        order->counts.backwards += before == NULL;
    }
    order->counts.unlike += before != NULL && !mr_digest_equal(before->digest, digest);
}

bool mr_order_has_begun(const struct mr_order *order, int32_t partition)
{
    return order->partitions[partition].count > 0;
}

struct mr_order_counts mr_order_counts(const struct mr_order *order, mr_lsn moment)
{
    struct mr_order_counts counts = order->counts;
    for (uint32_t i = 0; i < order->count; i++) {
        const struct partition *partition = &order->partitions[i];
        counts.broken += partition->repeats && partition->highest.commit_lsn <= moment;
    }
    return counts;
}
