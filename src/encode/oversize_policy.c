/* When an item is too large for the sink or for any block, and how that is counted and logged. */
#include "encode/oversize.h"

#include "base/clock.h"

enum {
    /* What takes a change's place is at most three records, each with its value twice while it is
     * made. Where a table has several streams that fit no block together, each gets its part of
     * that. */
    PLACED_PARTS = 8,
    LOG_INTERVAL_S = 1,
};

/* Its index; `count` when it is not there. */
static uint32_t oversize_policy_find_refusal(const struct mr_refused_list *list,
                                             struct mr_position position)
{
    uint32_t i = 0;
    while (i < list->count && mr_position_compare(list->items[i].position, position) != 0) {
        i++;
    }
    return i;
}

static void forget_confirmed(struct mr_refused_list *list, mr_lsn confirmed)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->items[i].position.commit_lsn >= confirmed) {
            list->items[kept++] = list->items[i];
        }
    }
    list->count = kept;
    if (list->until < confirmed) {
        list->all_from = 0;
    }
}

/* Sizes may come down byte by byte, and each step costs a session. */
static size_t lowered(size_t from, size_t bytes)
{
    return from == 0 ? bytes : bytes / 4 * 3;
}

bool mr_refused_add(struct mr_refused_list *list, struct mr_refused refused, mr_lsn confirmed)
{
    forget_confirmed(list, confirmed);
    if (mr_position_is_copied(refused.position)) {
        bool is_first = list->copied_from == 0;
        list->copied_from = lowered(list->copied_from, refused.bytes);
        return is_first;
    }
    if (refused.position.commit_lsn > list->until) {
        list->until = refused.position.commit_lsn;
    }
    uint32_t at = oversize_policy_find_refusal(list, refused.position);
    if (at < list->count) {
        bool smaller = refused.bytes < list->items[at].bytes;
        list->items[at] = refused;
        return smaller;
    }
    if (list->count < MR_REFUSED_MAX) {
        list->items[list->count++] = refused;
        return true;
    }
    size_t all_from = lowered(list->all_from, refused.bytes);
    for (uint32_t i = 0; i < list->count; i++) {
        all_from = list->items[i].bytes < all_from ? list->items[i].bytes : all_from;
    }
    list->all_from = all_from;
    return false;
}

void mr_oversizer_init(struct mr_oversizer *oversizer, struct mr_encoder *encoder,
                       size_t change_bytes_max, _Atomic uint64_t *counts)
{
    const struct mr_encode_options *options = mr_encoder_options(encoder);
    size_t limit = options->record_bytes_max == 0 ? SIZE_MAX : options->record_bytes_max;
    size_t placed = change_bytes_max / PLACED_PARTS;
    *oversizer = (struct mr_oversizer){.encoder = encoder,
                                       .limit = limit,
                                       .placed_limit = limit < placed ? limit : placed,
                                       .counts = counts};
}

static struct mr_position item_position(const struct mr_item *item)
{
    switch (item->kind) {
    case MR_ITEM_CHANGE:
        return item->change->position;
    case MR_ITEM_MESSAGE:
        return item->message->position;
    case MR_ITEM_END:
        return item->end->position;
    case MR_ITEM_RECORD:
        break;
    }
    return item->record->position;
}

const char *mr_item_name(const struct mr_item *item, char ret[MR_ITEM_NAME_MAX])
{
    static const char *const names[] = {[MR_ITEM_MESSAGE] = "logical message",
                                        [MR_ITEM_END] = "end of a transaction",
                                        [MR_ITEM_RECORD] = "heartbeat or marker"};
    if (item->kind == MR_ITEM_CHANGE) {
        const struct mr_relation *relation = item->change->relation;
        snprintf(ret, MR_ITEM_NAME_MAX, "%s.%s", relation->schema, relation->table);
    } else {
        snprintf(ret, MR_ITEM_NAME_MAX, "%s", names[item->kind]);
    }
    return ret;
}

static size_t largest(const struct mr_record *records, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t one = mr_record_bytes(&records[i]);
        bytes = one > bytes ? one : bytes;
    }
    return bytes;
}

/* What the item's record is known to be too large with; 0: nothing of the kind. */
static size_t refused_bytes(const struct mr_oversizer *oversizer, struct mr_position position,
                            size_t bytes)
{
    const struct mr_refused_list *list = &oversizer->refused;
    if (oversizer->copies || mr_position_is_copied(position)) {
        return list->copied_from != 0 && bytes >= list->copied_from ? list->copied_from : 0;
    }
    uint32_t at = oversize_policy_find_refusal(list, position);
    if (at < list->count) {
        return list->items[at].bytes;
    }
    return list->all_from != 0 && bytes >= list->all_from ? list->all_from : 0;
}

/* Whether the sink refused these records in an earlier session. Forgets the refusals once all of
 * them lie before. */
static bool were_refused(struct mr_oversizer *oversizer, const struct mr_record *records,
                         uint32_t count)
{
    struct mr_refused_list *list = &oversizer->refused;
    if (!oversizer->copies && !mr_position_is_copied(records[0].position) &&
        records[0].position.commit_lsn > list->until) {
        list->count = 0;
        list->all_from = 0; /* copied rows may come for as long as this session lasts */
        return false;
    }
    return refused_bytes(oversizer, records[0].position, largest(records, count)) != 0;
}

/* Whether the topic has refused such records. Those that do not yield are looked at one by one
 * (were_refused), for a person has to decide about them. */
static bool is_more_than_topic_takes(struct mr_oversizer *oversizer, const struct mr_record *record)
{
    const struct mr_encode_options *options = mr_encoder_options(oversizer->encoder);
    size_t sent = mr_topic_refuses_sent(record->topic, record->position.commit_lsn, mr_wall_ns());
    size_t most = atomic_load(&record->topic->bytes_max);
    if (sent == 0 || options->is_more == NULL ||
        !options->is_more(options->sink, record, most, sent)) {
        return false;
    }
    oversizer->topic_takes = most;
    return true;
}

/* Whether the policy is for this item. One comparison a record, and another one an item; as long as
 * refused records come again, a search. A record of our own may have the position of a record that
 * was refused. */
static bool applies(struct mr_oversizer *oversizer, const struct mr_item *item,
                    const struct mr_record *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (MR_UNLIKELY(mr_record_bytes(&records[i]) > oversizer->limit)) {
            return item->kind != MR_ITEM_RECORD;
        }
        if (MR_UNLIKELY(records[i].yields) && is_more_than_topic_takes(oversizer, &records[i])) {
            return true;
        }
    }
    return MR_UNLIKELY(oversizer->refused.count + oversizer->refused.copied_from > 0) &&
           count > 0 && item->kind != MR_ITEM_RECORD && were_refused(oversizer, records, count);
}

static struct mr_oversize_case case_of(const struct mr_oversizer *oversizer,
                                       const struct mr_item *item, const struct mr_record *records,
                                       uint32_t count)
{
    struct mr_oversize_case made = {.limit = oversizer->placed_limit, .reason = "change_max"};
    made.is_shared = count == 0;
    made.bytes = count == 0 ? mr_item_bytes(item) : largest(records, count);
    if (made.bytes > oversizer->limit) {
        made.reason = "message_max";
    }
    size_t refused = oversizer->topic_takes != 0
                         ? oversizer->topic_takes
                         : refused_bytes(oversizer, item_position(item), made.bytes);
    if (refused != 0) {
        made.reason = "refused";
        made.limit = refused / 2 < made.limit ? refused / 2 : made.limit;
    }
    return made;
}

static mr_status oversize_policy_fail(const struct mr_oversizer *oversizer,
                                      const struct mr_item *item,
                                      const struct mr_oversize_case *oversize,
                                      struct mr_error *ret_error)
{
    char name[MR_ITEM_NAME_MAX];
    struct mr_position position = item_position(item);
    char what[96] = "a row that is copied";
    if (item->kind != MR_ITEM_CHANGE || item->change->op != MR_OP_READ) {
        snprintf(what, sizeof(what),
                 "change %llu of the transaction that commits at " MR_LSN_FORMAT,
                 (unsigned long long)position.ordinal, MR_LSN_ARGS(position.commit_lsn));
    }
    return mr_fail(ret_error, MR_ERR_POISON,
                   "%s: %s makes a record of %zu bytes, more than the %zu of "
                   "sink.kafka.message_max; raise that, the broker's message.max.bytes and the "
                   "topic's max.message.bytes, or set sink.kafka.oversize",
                   mr_item_name(item, name), what, oversize->bytes, oversizer->limit);
}

static enum mr_oversize policy_of(const struct mr_oversizer *oversizer)
{
    return mr_encoder_options(oversizer->encoder)->oversize;
}

/* `ret_records` and `ret_count` hold the records that are too large when it begins; none: the item
 * fits no block. */
__attribute__((cold)) static mr_status
oversize_policy_encode_placed(struct mr_oversizer *oversizer, const struct mr_item *item,
                              struct mr_buffer *buffer, struct mr_record *ret_records,
                              uint32_t *ret_count, struct mr_error *ret_error)
{
    struct mr_oversize_case oversize = case_of(oversizer, item, ret_records, *ret_count);
    if (policy_of(oversizer) == MR_OVERSIZE_FAIL && item->kind == MR_ITEM_MESSAGE) {
        mr_oversizer_log(oversizer, item); /* there will be no batch with it */
        *ret_count = 0;                    /* any role that connects can write one */
        return MR_OK;
    }
    if (policy_of(oversizer) == MR_OVERSIZE_FAIL) {
        atomic_fetch_add_explicit(&oversizer->counts[MR_OVERSIZE_FAIL], 1, memory_order_relaxed);
        return oversize_policy_fail(oversizer, item, &oversize, ret_error);
    }
    return mr_encode_oversize(oversizer->encoder, item, &oversize, buffer, ret_records, ret_count,
                              ret_error);
}

/* What the item's transaction says of itself. */
static bool oversize_policy_has_context(const struct mr_item *item)
{
    const struct mr_transaction *transaction = NULL;
    if (item->kind == MR_ITEM_CHANGE && item->change->copy_mark == MR_COPY_NONE) {
        transaction = item->change->transaction;
    } else if (item->kind == MR_ITEM_MESSAGE) {
        transaction = item->message->transaction;
    }
    return transaction != NULL && transaction->headers.len > 0;
}

/* An item without its context. */
struct bare {
    struct mr_transaction transaction;
    union {
        struct mr_change change;
        struct mr_message_event message;
    };
    struct mr_item item;
};

static const struct mr_item *bare_item(const struct mr_item *item, struct bare *ret)
{
    if (!oversize_policy_has_context(item)) {
        return item;
    }
    ret->item.kind = item->kind;
    if (item->kind == MR_ITEM_CHANGE) {
        ret->change = *item->change;
        ret->transaction = *item->change->transaction;
        ret->change.transaction = &ret->transaction;
        ret->item.change = &ret->change;
    } else {
        ret->message = *item->message;
        ret->transaction = *item->message->transaction;
        ret->message.transaction = &ret->transaction;
        ret->item.message = &ret->message;
    }
    ret->transaction.headers = (mr_slice){0};
    return &ret->item;
}

/* Any way but as it is. Once an item is placed it stays so when it comes again for want of room. */
__attribute__((cold)) static mr_status
encode_otherwise(struct mr_oversizer *oversizer, const struct mr_item *item,
                 struct mr_buffer *buffer, struct mr_record *ret_records, uint32_t *ret_count,
                 struct mr_error *ret_error)
{
    struct bare room;
    const struct mr_item *bare = bare_item(item, &room);
    if (oversizer->way != MR_ITEM_TOO_LARGE) {
        struct mr_buffer begin = *buffer;
        mr_status status =
            mr_encode(oversizer->encoder, bare, buffer, ret_records, ret_count, ret_error);
        if (status != MR_OK || !applies(oversizer, bare, ret_records, *ret_count)) {
            return status;
        }
        *buffer = begin;
        oversizer->way = MR_ITEM_PLACED;
    }
    return oversize_policy_encode_placed(oversizer, bare, buffer, ret_records, ret_count,
                                         ret_error);
}

mr_status mr_oversizer_encode(struct mr_oversizer *oversizer, const struct mr_item *item,
                              struct mr_buffer *buffer, struct mr_record *ret_records,
                              uint32_t *ret_count, struct mr_error *ret_error)
{
    if (MR_LIKELY(oversizer->way == MR_ITEM_AS_IT_IS)) {
        struct mr_buffer begin = *buffer;
        mr_status status =
            mr_encode(oversizer->encoder, item, buffer, ret_records, ret_count, ret_error);
        if (status != MR_OK || MR_LIKELY(!applies(oversizer, item, ret_records, *ret_count))) {
            return status;
        }
        *buffer = begin;
        oversizer->way = oversize_policy_has_context(item) ? MR_ITEM_BARE : MR_ITEM_PLACED;
    }
    return encode_otherwise(oversizer, item, buffer, ret_records, ret_count, ret_error);
}

bool mr_oversizer_no_block(struct mr_oversizer *oversizer, const struct mr_item *item)
{
    if (oversizer->way == MR_ITEM_AS_IT_IS && oversize_policy_has_context(item)) {
        oversizer->way = MR_ITEM_BARE;
        return true;
    }
    if (policy_of(oversizer) == MR_OVERSIZE_FAIL || oversizer->way == MR_ITEM_TOO_LARGE) {
        return false;
    }
    oversizer->way = MR_ITEM_TOO_LARGE;
    return true;
}

void mr_oversizer_log(struct mr_oversizer *oversizer, const struct mr_item *item)
{
    enum mr_oversize policy =
        oversizer->way == MR_ITEM_BARE ? MR_OVERSIZE_BARE : policy_of(oversizer);
    atomic_fetch_add_explicit(&oversizer->counts[policy], 1, memory_order_relaxed);
    oversizer->unlogged++;
    int64_t now_ns = mr_monotonic_ns();
    if (oversizer->logged_ns != 0 &&
        now_ns - oversizer->logged_ns < (int64_t)LOG_INTERVAL_S * 1000000000) {
        return;
    }
    char name[MR_ITEM_NAME_MAX];
    struct mr_position position = item_position(item);
    mr_log(MR_LOG_WARN, policy == MR_OVERSIZE_FAIL ? "message_dropped" : "record_oversize",
           policy == MR_OVERSIZE_FAIL
               ? "a logical message is larger than its topic takes, and is not passed on"
           : policy == MR_OVERSIZE_BARE
               ? "a change was too large with the context of its transaction and is passed on "
                 "without it"
           : policy == MR_OVERSIZE_PLACEHOLDER
               ? "a change was too large and is passed on without its large values"
               : "a change was too large and is reported in the dead-letter topic only",
           MR_LOG_STR("table", mr_item_name(item, name)),
           MR_LOG_LSN("commit_lsn", position.commit_lsn), MR_LOG_INT("ordinal", position.ordinal),
           MR_LOG_INT("value_bytes", mr_item_bytes(item)),
           MR_LOG_INT("count", oversizer->unlogged));
    oversizer->logged_ns = now_ns;
    oversizer->unlogged = 0;
}
