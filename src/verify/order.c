#include "verify/order.h"

/* Records that a repeat is compared with: of each partition, and of all. What is longer ago is not
 * compared. */
enum { WINDOW_MAX = 8192, WINDOW_MIN = 64, WINDOWS = 262144 };

enum { GAPS_MAX = 4096 }; /* what is beyond is judged at once */

struct seen {
    struct mr_place place;
    struct mr_digest digest;
};

struct partition {
    struct mr_place highest;
    struct seen *window; /* the last records, in the order of their places; the oldest give way */
    uint64_t count;      /* of all that were in it */
    uint64_t due;        /* the record that comes next at the latest, of all; `count`: a new one */
    struct mr_fold_record last;
};

/* A record that a run of repeats left out, and the one that came in its place. After partitions
 * were added the repeat may be in another one, which is read in its own time: that is seen at the
 * end. */
struct gap {
    struct mr_fold_record record;
    struct mr_place place;
};

struct mr_order {
    struct partition *partitions;
    uint32_t count;
    uint32_t window; /* of a partition */
    struct mr_order_counts counts;
    struct mr_order_fault fault;
    struct mr_fold_record first_repeat;
    struct mr_fold_record broken_at; /* where the last run that is counted breaks off */
    struct gap *gaps;
    uint32_t gap_count, gap_room;
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
        free(order->gaps);
        free(order);
    }
}

static void order_remember(const struct mr_order *order, struct partition *partition,
                           struct mr_place place, struct mr_digest digest)
{
    if (partition->window == NULL) {
        partition->window = MR_NEW_ARRAY(struct seen, order->window);
    }
    partition->window[partition->count++ % order->window] =
        (struct seen){.place = place, .digest = digest};
}

/* The first record that is remembered. */
static uint64_t first_of(const struct mr_order *order, const struct partition *partition)
{
    return partition->count <= order->window ? 0 : partition->count - order->window;
}

/* The number of the first remembered record that is not before the place, among all; they are in
 * order: a search by halves. `*ret_is_it`: it is of that place. */
static uint64_t order_find(const struct mr_order *order, const struct partition *partition,
                           struct mr_place place, bool *ret_is_it)
{
    uint64_t low = first_of(order, partition);
    uint64_t high = partition->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (mr_place_compare(partition->window[middle % order->window].place, place) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *ret_is_it = low < partition->count &&
                 mr_place_compare(partition->window[low % order->window].place, place) == 0;
    return low;
}

static const struct seen *find_elsewhere(const struct mr_order *order,
                                         const struct partition *besides, struct mr_place place)
{
    for (uint32_t i = 0; i < order->count; i++) {
        const struct partition *partition = &order->partitions[i];
        bool is_it = false;
        uint64_t number = partition == besides ? 0 : order_find(order, partition, place, &is_it);
        if (is_it) {
            return &partition->window[number % order->window];
        }
    }
    return NULL;
}

/* The first of a partition: what a run has left out is known at the end alone. */
static void order_find_fault(struct mr_order *order, const struct mr_fold_record *record,
                             const char *what)
{
    const struct mr_fold_record *known = &order->fault.record;
    if (order->fault.what == NULL ||
        (known->partition == record->partition && known->offset > record->offset)) {
        order->fault = (struct mr_order_fault){.what = what, .record = *record};
    }
}

static bool is_elsewhere(const struct mr_order *order, const struct gap *gap)
{
    const struct partition *besides = &order->partitions[gap->record.partition];
    return find_elsewhere(order, besides, gap->place) != NULL;
}

static void judge_gap(struct mr_order *order, const struct gap *gap)
{
    static const char what[] = "comes where a repeat is due, of a run that leaves it out";
    bool is_same_run = order->broken_at.partition == gap->record.partition &&
                       order->broken_at.offset == gap->record.offset;
    if (is_elsewhere(order, gap)) {
        order->counts.elsewhere++;
    } else if (!is_same_run || order->counts.broken == 0) {
        order->counts.broken++;
        order->broken_at = gap->record;
        order_find_fault(order, &gap->record, what);
    }
}

/* The records of these numbers were due, and `record` came. What is forgotten nobody can tell, and
 * a copied row is not due. */
static void leave_out(struct mr_order *order, const struct partition *partition,
                      const struct mr_fold_record *record, uint64_t from, uint64_t to)
{
    uint64_t first = first_of(order, partition);
    for (uint64_t i = from > first ? from : first; i < to; i++) {
        const struct gap gap = {.record = *record,
                                .place = partition->window[i % order->window].place};
        if (mr_place_is_copied(gap.place)) {
            continue;
        }
        if (order->gap_count == GAPS_MAX) {
            judge_gap(order, &gap);
        } else {
            MR_GROW(order->gaps, order->gap_room, (size_t)order->gap_count + 1);
            order->gaps[order->gap_count++] = gap;
        }
    }
}

static void take_repeat(struct mr_order *order, struct partition *partition,
                        const struct mr_fold_record *record, struct mr_digest digest)
{
    bool is_it;
    uint64_t number = order_find(order, partition, record->place, &is_it);
    const struct seen *before = is_it ? &partition->window[number % order->window] : NULL;
    order->first_repeat = order->counts.repeats++ == 0 ? *record : order->first_repeat;
    leave_out(order, partition, record, partition->due, number);
    partition->due = number + is_it;
    if (before == NULL && number > 0 && number == first_of(order, partition)) {
        order->counts.forgotten++;
        return;
    }
    if (before == NULL) {
        before = find_elsewhere(order, partition, record->place);
        order->counts.elsewhere += before != NULL;
        order->counts.backwards += before == NULL;
    }
    if (before == NULL) {
        order_find_fault(order, record, "comes after higher ones and repeats none");
    } else if (!mr_digest_equal(before->digest, digest)) {
        order->counts.unlike++;
        order_find_fault(order, record, "repeats another one with other content");
    }
}

void mr_order_take(struct mr_order *order, const struct mr_fold_record *record,
                   struct mr_digest digest)
{
    struct partition *partition = &order->partitions[record->partition];
    if (mr_place_compare(record->place, partition->highest) > 0) {
        leave_out(order, partition, record, partition->due, partition->count);
        partition->highest = record->place;
        order_remember(order, partition, record->place, digest);
        partition->due = partition->count;
    } else {
        take_repeat(order, partition, record, digest);
    }
    partition->last = *record;
}

bool mr_order_has_begun(const struct mr_order *order, int32_t partition)
{
    return order->partitions[partition].count > 0;
}

struct mr_order_counts mr_order_end(struct mr_order *order, mr_lsn moment)
{
    for (uint32_t i = 0; i < order->count; i++) {
        struct partition *partition = &order->partitions[i];
        if (partition->highest.commit_lsn <= moment) {
            leave_out(order, partition, &partition->last, partition->due, partition->count);
            partition->due = partition->count;
        }
    }
    for (uint32_t i = 0; i < order->gap_count; i++) {
        judge_gap(order, &order->gaps[i]);
    }
    order->gap_count = 0;
    return order->counts;
}

struct mr_order_fault mr_order_first_fault(const struct mr_order *order)
{
    return order->fault;
}

struct mr_fold_record mr_order_first_repeat(const struct mr_order *order)
{
    return order->first_repeat;
}
