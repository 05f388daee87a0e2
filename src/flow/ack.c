#include "flow/ack.h"

void mr_ack_init(struct mr_ack *ack, uint32_t capacity)
{
    *ack = (struct mr_ack){
        .entries = MR_NEW_ARRAY(struct mr_ack_entry, capacity),
        .capacity = capacity,
        .next = 1,
        .oldest = 1,
    };
}

void mr_ack_done(struct mr_ack *ack)
{
    free(ack->entries);
    ack->entries = NULL;
}

void mr_ack_reset(struct mr_ack *ack, uint64_t first)
{
    MR_ASSERT(first > 0);
    ack->next = first;
    ack->oldest = first;
    ack->step = 0;
    ack->step_sent = 0;
}

static struct mr_ack_entry *ack_entry(struct mr_ack *ack, uint64_t sequence)
{
    return &ack->entries[sequence % ack->capacity];
}

bool mr_ack_full(const struct mr_ack *ack)
{
    return ack->next - ack->oldest >= ack->capacity;
}

void mr_ack_add(struct mr_ack *ack, uint64_t sequence, mr_lsn confirm_lsn,
                const struct mr_commit *last, uint64_t step)
{
    MR_ASSERT(sequence == ack->next);
    MR_ASSERT(!mr_ack_full(ack));
    MR_ASSERT(step >= ack->step_sent);
    struct mr_ack_entry *entry = ack_entry(ack, sequence);
    entry->confirm_lsn = confirm_lsn;
    if (confirm_lsn != 0) {
        entry->last = *last;
    }
    entry->step = step;
    entry->done = false;
    ack->step_sent = step;
    ack->next++;
}

bool mr_ack_complete(struct mr_ack *ack, uint64_t sequence)
{
    MR_ASSERT(sequence >= ack->oldest);
    MR_ASSERT(sequence < ack->next);
    struct mr_ack_entry *entry = ack_entry(ack, sequence);
    MR_ASSERT(!entry->done);
    entry->done = true;
    bool moved = false;
    while (ack->oldest < ack->next && ack_entry(ack, ack->oldest)->done) {
        entry = ack_entry(ack, ack->oldest);
        ack->step = entry->step;
        if (entry->confirm_lsn != 0) {
            MR_ASSERT(entry->confirm_lsn >= ack->acknowledged);
            MR_ASSERT(entry->last.lsn < entry->confirm_lsn);
            ack->acknowledged = entry->confirm_lsn;
            ack->last = entry->last;
        }
        ack->oldest++;
        moved = true;
    }
    return moved;
}
