#include "stream/reselect.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/index.h"
#include "base/reader.h"
#include "base/wake.h"
#include "stream/pgoutput.h"

enum {
    WINDOW_BYTES = 4 << 20, /* 20,000 updates of 200 bytes */
    HELD_MAX = 1 << 15,
    COPIED_MAX =
        WINDOW_BYTES / 4, /* a larger message waits where it is, until the window is empty */
    ROUNDS = 2,           /* one is asked while the other's answers are handed out */
    REDEFINED_MAX = 16,
    KNOWN_MAX = 64,
    HEAD = 1 + 3 * 8, /* of XLogData: pg_payload.c */
    REST_MS = 1000,
    REST_MS_MAX = 30000,
};

enum held_state {
    HELD_PLAIN,
    HELD_UNSEEN, /* an update of a table whose description is not decoded yet */
    HELD_WAITS,
    HELD_ASKED,
    HELD_ANSWERED,
};

struct held {
    size_t at;
    uint32_t len;
    enum held_state state;
    bool is_description; /* that differs from the one before */
    bool is_spoiled;     /* a later change of its transaction has touched the row */
    bool has_origin;
    uint8_t round, question;
    uint32_t xid;
    int64_t commit_us;
    uint64_t transaction;
    uint64_t lacks;   /* columns, by their places modulo 64 */
    uint64_t earlier; /* of the same key: its number + 1; 0: none */
};

/* The transaction that is coming. */
struct running {
    uint64_t number;
    uint32_t xid;
    int64_t commit_us;
    bool has_origin, is_open;
};

struct row {
    uint8_t type;
    uint32_t oid;
    uint8_t old_kind; /* 0: there is no old row */
    uint32_t before_count, after_count;
    size_t after_at; /* where the new row's values begin, in the payload */
};

/* A table: its last description, and which of its columns are to be read again. */
struct known {
    uint32_t oid;
    uint64_t description; /* its hash */
    bool *wants;          /* NULL: nobody has asked */
    bool any;
};

/* The last update with a key; those before it are linked. */
struct keyed {
    uint64_t hash, number;
};

struct mr_reselect {
    struct mr_reselect_wiring wiring;
    uint8_t *bytes;
    size_t begin, end; /* of what is held in it */
    struct held *held; /* by number modulo HELD_MAX */
    uint64_t first, next, ask_from;
    struct running running;
    uint64_t ended; /* transactions up to this number have come to their end */
    mr_slice large; /* the message that was received last, if it is too large to be copied */
    uint32_t redefined[REDEFINED_MAX]; /* tables whose description is held */
    uint32_t redefined_count;          /* more than that: any table's may be */
    uint32_t descriptions;             /* that are held */
    struct known known[KNOWN_MAX];
    uint32_t known_next;
    struct mr_index by_key;
    struct keyed *keyed;
    uint32_t keyed_room;
    struct mr_reselect_round *rounds[ROUNDS];
    uint32_t left[ROUNDS]; /* of its questions, that are held */
    int asked;             /* the round that is asked; -1: none */
    int64_t rest_until_ns;
    uint32_t rest_ms;
    int64_t blocked_ns; /* since when the first one waits; 0: it does not */
    struct mr_text rewritten;
    struct mr_later later; /* of the one at hand */
    bool is_at_hand;
    enum mr_reselected outcome; /* of the one at hand, if it lacks values */
    bool has_outcome;
    int epoll_fd, timer_fd;
    int socket; /* that is watched; -1: none */
    struct mr_datum before[MR_COLUMNS_MAX], after[MR_COLUMNS_MAX];
};

static struct held *held_at(const struct mr_reselect *reselect, uint64_t number)
{
    return &reselect->held[number % HELD_MAX];
}

static bool reselect_is_empty(const struct mr_reselect *reselect)
{
    return reselect->first == reselect->next;
}

static mr_slice reselect_payload_of(const struct mr_reselect *reselect, const struct held *held)
{
    return (mr_slice){.data = reselect->bytes + held->at, .len = held->len};
}

static int watch(const struct mr_reselect *reselect, int operation, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(reselect->epoll_fd, operation, fd, &event);
}

struct mr_reselect *mr_reselect_new(const struct mr_reselect_wiring *wiring)
{
    struct mr_reselect *reselect = MR_NEW(struct mr_reselect);
    reselect->wiring = *wiring;
    reselect->asked = -1;
    reselect->socket = -1;
    reselect->bytes = MR_ALLOC(WINDOW_BYTES);
    reselect->held = MR_NEW_ARRAY(struct held, HELD_MAX);
    for (int i = 0; i < ROUNDS; i++) {
        reselect->rounds[i] = MR_NEW(struct mr_reselect_round);
    }
    reselect->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    reselect->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    MR_ASSERT(reselect->epoll_fd >= 0 && reselect->timer_fd >= 0);
    watch(reselect, EPOLL_CTL_ADD, reselect->timer_fd);
    watch(reselect, EPOLL_CTL_ADD, wiring->asker->done_fd);
    return reselect;
}

/* To empty a large index takes longer than to make a small one. */
static void forget_keys(struct mr_reselect *reselect)
{
    enum { SLOTS_KEPT = 1024 };
    if (reselect->by_key.size > SLOTS_KEPT) {
        mr_index_done(&reselect->by_key);
    } else if (reselect->by_key.count > 0) {
        mr_index_clear(&reselect->by_key);
    }
}

/* Of a table; one that is not known yet takes the place of another. */
static struct known *known_at(struct mr_reselect *reselect, uint32_t oid)
{
    for (uint32_t i = 0; i < KNOWN_MAX; i++) {
        if (reselect->known[i].oid == oid) {
            return &reselect->known[i];
        }
    }
    struct known *known = &reselect->known[reselect->known_next++ % KNOWN_MAX];
    free(known->wants);
    *known = (struct known){.oid = oid};
    return known;
}

static void forget_wants(struct known *known)
{
    free(known->wants);
    known->wants = NULL;
}

void mr_reselect_reset(struct mr_reselect *reselect)
{
    reselect->wiring.asker->end(reselect->wiring.asker);
    reselect->asked = -1;
    reselect->left[0] = reselect->left[1] = 0;
    reselect->begin = reselect->end = 0;
    reselect->first = reselect->next = reselect->ask_from = 0;
    reselect->running = (struct running){0};
    reselect->ended = 0;
    reselect->large = (mr_slice){0};
    reselect->redefined_count = reselect->descriptions = 0;
    reselect->blocked_ns = 0;
    reselect->is_at_hand = reselect->has_outcome = false;
    reselect->socket = -1; /* it is closed, and with it gone from the set */
    forget_keys(reselect);
    for (uint32_t i = 0; i < KNOWN_MAX; i++) {
        forget_wants(&reselect->known[i]);
        reselect->known[i] = (struct known){0};
    }
}

void mr_reselect_free(struct mr_reselect *reselect)
{
    if (reselect == NULL) {
        return;
    }
    mr_reselect_reset(reselect);
    for (int i = 0; i < ROUNDS; i++) {
        for (uint32_t k = 0; k < MR_RESELECT_QUESTIONS; k++) {
            mr_reselect_question_done(&reselect->rounds[i]->questions[k]);
        }
        free(reselect->rounds[i]);
    }
    close(reselect->epoll_fd);
    close(reselect->timer_fd);
    mr_index_done(&reselect->by_key);
    mr_text_done(&reselect->rewritten);
    free(reselect->keyed);
    free(reselect->held);
    free(reselect->bytes);
    free(reselect);
}

/* ---- rows, as the stream has them: pgoutput.c says how they lie ---- */

static uint32_t read_values(struct mr_reader *reader, struct mr_datum *values)
{
    uint32_t count = mr_reader_u16(reader);
    reader->failed = reader->failed || count > MR_COLUMNS_MAX;
    for (uint32_t i = 0; i < count && !reader->failed; i++) {
        uint8_t kind = mr_reader_u8(reader);
        bool has_bytes = kind == MR_DATUM_TEXT || kind == MR_DATUM_BINARY;
        reader->failed = !has_bytes && kind != MR_DATUM_NULL && kind != MR_DATUM_UNCHANGED;
        values[i].kind = (enum mr_datum_kind)kind;
        values[i].len = has_bytes ? mr_reader_u32(reader) : 0;
        values[i].data = has_bytes ? mr_reader_take(reader, values[i].len) : reader->at;
    }
    return count;
}

/* The values go into before and after. False: it is no row, or none that the decoder takes. */
static bool read_row(struct mr_reselect *reselect, mr_slice payload, struct row *ret)
{
    if (payload.len <= HEAD || payload.data[0] != 'w') {
        return false;
    }
    struct mr_reader reader =
        mr_reader_init((mr_slice){.data = payload.data + HEAD, .len = payload.len - HEAD});
    *ret = (struct row){.type = mr_reader_u8(&reader)};
    if (ret->type != 'I' && ret->type != 'U' && ret->type != 'D') {
        return false;
    }
    ret->oid = mr_reader_u32(&reader);
    uint8_t kind = mr_reader_u8(&reader);
    if (kind != MR_TUPLE_NEW) {
        ret->old_kind = kind;
        ret->before_count = read_values(&reader, reselect->before);
        kind = ret->type == 'D' ? MR_TUPLE_NEW : mr_reader_u8(&reader);
    }
    if (ret->type != 'D') {
        ret->after_at = (size_t)(reader.at - payload.data) + sizeof(uint16_t);
        ret->after_count = read_values(&reader, reselect->after);
    }
    return !reader.failed && kind == MR_TUPLE_NEW && mr_reader_left(&reader) == 0;
}

static bool is_redefined(const struct mr_reselect *reselect, uint32_t oid)
{
    for (uint32_t i = 0; i < reselect->redefined_count && i < REDEFINED_MAX; i++) {
        if (reselect->redefined[i] == oid) {
            return true;
        }
    }
    return reselect->redefined_count > REDEFINED_MAX;
}

/* NULL: its description is not decoded yet. */
static const struct mr_relation *reselect_relation_of(const struct mr_reselect *reselect,
                                                      uint32_t oid)
{
    return is_redefined(reselect, oid)
               ? NULL
               : reselect->wiring.relation(reselect->wiring.relation_context, oid);
}

static bool reselect_fits(const struct mr_pg_reselect_options *options,
                          const struct mr_relation *relation, uint32_t column)
{
    for (uint32_t i = 0; i < options->column_count; i++) {
        const struct mr_column_pattern *pattern = &options->columns[i];
        if (mr_table_pattern_matches(&pattern->table, mr_slice_of(relation->schema),
                                     mr_slice_of(relation->table)) &&
            mr_pattern_matches(&pattern->column, mr_slice_of(relation->columns[column].name))) {
            return true;
        }
    }
    return false;
}

/* The texts of labels and of composite types change without a change of the row. */
static bool has_lasting_text(const struct mr_column *column)
{
    const struct mr_type *type = &column->type;
    return type->kind != MR_TYPE_OPAQUE && !(type->is_array && type->kind == MR_TYPE_TEXT);
}

/* A row is read by the columns that the server flags, which are those of a unique index; FULL sends
 * the old row, and has its values. */
static bool has_index(const struct mr_relation *relation)
{
    bool is_by_index = relation->told_identity == MR_IDENTITY_DEFAULT ||
                       relation->told_identity == MR_IDENTITY_INDEX;
    return is_by_index && !relation->is_narrowed && relation->narrows == 0 &&
           !relation->is_unlisted && !relation->is_signal;
}

static const struct known *reselect_known_of(struct mr_reselect *reselect,
                                             const struct mr_relation *relation)
{
    struct known *known = known_at(reselect, relation->oid);
    if (known->wants != NULL) {
        return known;
    }
    known->wants = MR_NEW_ARRAY(bool, relation->column_count + 1);
    known->any = false;
    const struct mr_reselect_wiring *wiring = &reselect->wiring;
    for (uint32_t i = 0; i < relation->column_count; i++) {
        known->wants[i] = !relation->columns[i].is_flagged &&
                          reselect_fits(wiring->options, relation, i) &&
                          wiring->shows(wiring->shows_context, relation, i);
        known->any = known->any || known->wants[i];
    }
    return known;
}

/* Columns that the update lacks, and are wanted; 0: none, or it can't be asked for. */
static uint64_t lacking(struct mr_reselect *reselect, const struct mr_relation *relation,
                        const struct row *row)
{
    uint64_t lacks = 0;
    if (row->type != 'U' || row->old_kind == MR_TUPLE_FULL ||
        row->after_count != relation->column_count || !has_index(relation)) {
        return 0;
    }
    const struct known *known = reselect_known_of(reselect, relation);
    uint32_t keys = 0;
    for (uint32_t i = 0; known->any && i < row->after_count; i++) {
        if (relation->columns[i].is_flagged) {
            if (reselect->after[i].kind != MR_DATUM_TEXT) {
                return 0;
            }
            keys++;
        } else if (reselect->after[i].kind == MR_DATUM_UNCHANGED && known->wants[i]) {
            lacks |= UINT64_C(1) << i % 64;
        }
    }
    return keys == 0 ? 0 : lacks;
}

/* ---- what a transaction does to a row after an update that is held ---- */

static void spoil(struct mr_reselect *reselect, uint64_t number, uint64_t has)
{
    while (number > reselect->first) { /* number + 1 of one that is held */
        struct held *held = held_at(reselect, number - 1);
        held->is_spoiled = held->is_spoiled || (held->lacks & has) != 0;
        number = held->earlier;
    }
}

static void spoil_transaction(struct mr_reselect *reselect, uint64_t transaction)
{
    for (uint64_t i = reselect->first; i < reselect->next; i++) {
        struct held *held = held_at(reselect, i);
        held->is_spoiled = held->is_spoiled || held->transaction == transaction;
    }
}

static uint64_t hash_key(const struct mr_relation *relation, const struct mr_datum *values)
{
    uint64_t hash = mr_hash_number(MR_HASH_BEGIN, relation->oid);
    for (uint32_t i = 0; i < relation->column_count; i++) {
        if (relation->columns[i].is_flagged) {
            hash = mr_hash_number(hash, values[i].len);
            hash = mr_hash_add(hash, values[i].data, values[i].len);
        }
    }
    return hash;
}

/* The place of the key's updates; `makes`: it is made if there is none. */
static struct keyed *reselect_find_key(struct mr_reselect *reselect, uint64_t hash, bool makes)
{
    uint32_t number;
    MR_INDEX_FIND(number, &reselect->by_key, hash, reselect->keyed[number].hash == hash);
    if (number == MR_INDEX_NONE && !makes) {
        return NULL;
    }
    if (number == MR_INDEX_NONE) {
        number = mr_index_add(&reselect->by_key, hash);
        MR_GROW(reselect->keyed, reselect->keyed_room, number + 1);
        reselect->keyed[number] = (struct keyed){.hash = hash};
    }
    return &reselect->keyed[number];
}

/* The row of that key is another one from here on. */
static void end_key(struct mr_reselect *reselect, uint64_t hash)
{
    struct keyed *keyed = reselect_find_key(reselect, hash, false);
    if (keyed != NULL) {
        spoil(reselect, keyed->number, UINT64_MAX);
        keyed->number = 0;
    }
}

/* `held`: what came, if it lacks values, and its number. */
static void follow_row(struct mr_reselect *reselect, const struct row *row, struct held *held,
                       uint64_t number, uint64_t transaction)
{
    const struct mr_relation *relation = reselect_relation_of(reselect, row->oid);
    if (relation == NULL) {
        return; /* all of the table was spoilt with its description */
    }
    bool is_of_shape =
        (row->type == 'I' || row->old_kind == 0 || row->before_count == relation->column_count) &&
        (row->type == 'D' || row->after_count == relation->column_count);
    bool has_keys = is_of_shape;
    for (uint32_t i = 0; has_keys && i < relation->column_count; i++) {
        has_keys = !relation->columns[i].is_flagged || row->type == 'D' ||
                   reselect->after[i].kind != MR_DATUM_UNCHANGED;
    }
    if (!has_keys) {
        spoil_transaction(reselect, transaction);
        return;
    }
    if (row->old_kind != 0) {
        end_key(reselect, hash_key(relation, reselect->before));
    }
    if (row->type == 'D') {
        return;
    }
    uint64_t hash = hash_key(relation, reselect->after);
    if (row->type == 'I' || row->old_kind != 0) {
        end_key(reselect, hash);
    }
    struct keyed *keyed = reselect_find_key(reselect, hash, held != NULL);
    if (keyed == NULL) {
        return;
    }
    uint64_t has = 0;
    for (uint32_t i = 0; i < row->after_count; i++) {
        has |= reselect->after[i].kind == MR_DATUM_UNCHANGED ? 0 : UINT64_C(1) << i % 64;
    }
    spoil(reselect, keyed->number, has);
    if (held != NULL) {
        held->earlier = keyed->number;
        keyed->number = number + 1;
    }
}

/* Takes what is held at `number` into account, for what came before it in its transaction. */
static void reselect_follow(struct mr_reselect *reselect, uint64_t number)
{
    struct held *held = held_at(reselect, number);
    mr_slice payload = reselect_payload_of(reselect, held);
    struct row row;
    uint8_t type = payload.len > HEAD && payload.data[0] == 'w' ? payload.data[HEAD] : 0;
    if (type == 'T') {
        spoil_transaction(reselect, held->transaction);
    }
    if (!read_row(reselect, payload, &row)) {
        return;
    }
    const struct mr_relation *relation = reselect_relation_of(reselect, row.oid);
    if (held->state == HELD_PLAIN && row.type == 'U' && relation == NULL) {
        held->state = HELD_UNSEEN;
    } else if (held->state == HELD_UNSEEN && relation != NULL) {
        held->state = HELD_PLAIN;
    }
    if (held->state == HELD_PLAIN && relation != NULL) {
        held->lacks = lacking(reselect, relation, &row);
        held->state = held->lacks != 0 ? HELD_WAITS : HELD_PLAIN;
        reselect->ask_from =
            held->state == HELD_WAITS && number < reselect->ask_from ? number : reselect->ask_from;
    }
    follow_row(reselect, &row, held->lacks != 0 ? held : NULL, number, held->transaction);
}

/* A description was decoded: what waited for it is looked at, and what came after it in its
 * transaction once more. */
static void follow_again(struct mr_reselect *reselect)
{
    uint64_t transaction = 0;
    for (uint64_t i = reselect->first; i < reselect->next; i++) {
        struct held *held = held_at(reselect, i);
        if (held->transaction != transaction) {
            forget_keys(reselect);
            transaction = held->transaction;
        }
        held->earlier = 0;
        reselect_follow(reselect, i);
    }
}

/* ---- asking ---- */

static void reselect_add_name(struct mr_text *text, const char *name)
{
    mr_text_add(text, name, strlen(name) + 1);
}

static void fill_question(struct mr_reselect *reselect, const struct held *held,
                          struct mr_reselect_question *question)
{
    struct row row;
    bool is_row = read_row(reselect, reselect_payload_of(reselect, held), &row);
    const struct mr_relation *relation =
        reselect->wiring.relation(reselect->wiring.relation_context, row.oid);
    MR_ASSERT(is_row && relation != NULL && relation->column_count == row.after_count);
    const struct known *known = reselect_known_of(reselect, relation);
    question->oid = relation->oid;
    question->xid = held->xid;
    question->commit_us = held->commit_us;
    question->has_origin = held->has_origin;
    question->is_answered = question->is_read = false;
    question->names.len = question->version.len = 0;
    question->keys.len = question->values.len = 0;
    question->key_count = question->column_count = 0;
    reselect_add_name(&question->names, relation->schema);
    reselect_add_name(&question->names, relation->table);
    for (uint32_t i = 0; i < row.after_count; i++) {
        reselect_add_name(&question->version, relation->columns[i].name);
        if (relation->columns[i].is_flagged) {
            reselect_add_name(&question->names, relation->columns[i].name);
            mr_text_add(&question->keys, reselect->after[i].data, reselect->after[i].len);
            mr_text_add(&question->keys, "", 1);
            question->key_count++;
        }
    }
    for (uint32_t i = 0; i < row.after_count; i++) {
        if (known->wants[i] && reselect->after[i].kind == MR_DATUM_UNCHANGED) {
            reselect_add_name(&question->names, relation->columns[i].name);
            MR_GROW(question->parts, question->part_room, question->column_count + 1);
            question->parts[question->column_count++] = (struct mr_reselect_part){.column = i};
        }
    }
}

/* The round that was asked is done: its answers are those of what is held still. */
static void take_round(struct mr_reselect *reselect)
{
    if (reselect->asked < 0 || !atomic_load(&reselect->rounds[reselect->asked]->is_done)) {
        return;
    }
    int asked = reselect->asked;
    const struct mr_reselect_round *round = reselect->rounds[asked];
    reselect->asked = -1;
    mr_wake_clear(reselect->wiring.asker->done_fd);
    bool was_good = false;
    uint32_t open = reselect->left[asked];
    for (uint64_t i = reselect->first; i < reselect->next && open > 0; i++) {
        struct held *held = held_at(reselect, i);
        if (held->state != HELD_ASKED || held->round != asked) {
            continue;
        }
        open--;
        const struct mr_reselect_question *question = &round->questions[held->question];
        held->state = question->is_answered ? HELD_ANSWERED : HELD_WAITS;
        if (!question->is_answered) { /* there was no room for all */
            reselect->left[asked]--;
            reselect->ask_from = i < reselect->ask_from ? i : reselect->ask_from;
        }
        was_good = was_good || question->outcome <= MR_RESELECTED_LARGE;
    }
    reselect->rest_ms = was_good ? 0 : reselect->rest_ms;
}

static void reselect_ask(struct mr_reselect *reselect)
{
    if (reselect->asked >= 0 || reselect->rest_until_ns > mr_monotonic_ns()) {
        return;
    }
    int free_one = reselect->left[0] == 0 ? 0 : reselect->left[1] == 0 ? 1 : -1;
    if (free_one < 0) {
        return;
    }
    struct mr_reselect_round *round = reselect->rounds[free_one];
    round->count = 0;
    uint64_t i = reselect->ask_from > reselect->first ? reselect->ask_from : reselect->first;
    for (; i < reselect->next && round->count < MR_RESELECT_QUESTIONS; i++) {
        struct held *held = held_at(reselect, i);
        if (held->state == HELD_WAITS) {
            held->state = HELD_ASKED;
            held->round = (uint8_t)free_one;
            held->question = (uint8_t)round->count;
            fill_question(reselect, held, &round->questions[round->count++]);
        }
    }
    reselect->ask_from = i;
    if (round->count == 0) {
        return;
    }
    reselect->left[free_one] = round->count;
    round->deadline_ns = mr_monotonic_ns() + (int64_t)reselect->wiring.options->wait_ms * 1000000;
    atomic_store(&round->is_done, false);
    if (reselect->wiring.asker->ask(reselect->wiring.asker, round)) {
        reselect->asked = free_one;
        return;
    }
    for (uint32_t k = 0; k < round->count; k++) { /* no thread could be made */
        round->questions[k].is_answered = true;
        round->questions[k].outcome = MR_RESELECTED_REFUSED;
    }
    atomic_store(&round->is_done, true);
    reselect->asked = free_one;
    take_round(reselect);
}

/* ---- in and out ---- */

bool mr_reselect_has_room(const struct mr_reselect *reselect)
{
    return reselect->large.data == NULL && reselect->next - reselect->first < HELD_MAX &&
           reselect->end - reselect->begin <= WINDOW_BYTES - COPIED_MAX;
}

bool mr_reselect_holds_message(const struct mr_reselect *reselect)
{
    return reselect->large.data != NULL;
}

/* A table is described again: with publish_via_partition_root the root is with the first row of
 * each partition, and so is every table after the server has forgotten that it was. Only what
 * differs makes a difference. */
static bool reselect_is_news(struct mr_reselect *reselect, mr_slice message, uint32_t oid)
{
    struct known *known = known_at(reselect, oid);
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, message.data, message.len);
    bool is_same = known->description == hash;
    known->description = hash;
    if (!is_same) {
        forget_wants(known);
    }
    return !is_same;
}

static void note_description(struct mr_reselect *reselect, uint32_t oid, bool is_held)
{
    for (uint64_t i = reselect->first; i < reselect->next; i++) {
        struct held *held = held_at(reselect, i);
        struct row row;
        held->is_spoiled =
            held->is_spoiled ||
            (held->lacks != 0 && held->transaction == reselect->running.number &&
             read_row(reselect, reselect_payload_of(reselect, held), &row) && row.oid == oid);
    }
    if (!is_held) {
        return;
    }
    reselect->descriptions++;
    if (reselect->redefined_count < REDEFINED_MAX) {
        reselect->redefined[reselect->redefined_count] = oid;
    }
    reselect->redefined_count += reselect->redefined_count <= REDEFINED_MAX;
}

/* Begin, Origin, Commit: pgoutput.c. */
static void follow_transaction(struct mr_reselect *reselect, uint8_t type, mr_slice message)
{
    struct running *running = &reselect->running;
    struct mr_reader reader = mr_reader_init(message);
    mr_reader_u8(&reader);
    if (type == 'B') {
        mr_reader_u64(&reader);
        *running = (struct running){.number = running->number + 1, .is_open = true};
        running->commit_us = (int64_t)mr_reader_u64(&reader);
        running->xid = mr_reader_u32(&reader);
        forget_keys(reselect);
    } else if (type == 'O') {
        running->has_origin = true;
    } else if (type == 'C') {
        reselect->ended = running->number;
        running->is_open = false;
    }
}

static void reselect_append(struct mr_reselect *reselect, mr_slice payload)
{
    if (reselect->end + payload.len > WINDOW_BYTES) {
        size_t used = reselect->end - reselect->begin;
        memmove(reselect->bytes, reselect->bytes + reselect->begin, used);
        for (uint64_t i = reselect->first; i < reselect->next; i++) {
            held_at(reselect, i)->at -= reselect->begin;
        }
        reselect->begin = 0;
        reselect->end = used;
    }
    const struct running *running = &reselect->running;
    *held_at(reselect, reselect->next) = (struct held){.at = reselect->end,
                                                       .len = (uint32_t)payload.len,
                                                       .has_origin = running->has_origin,
                                                       .xid = running->xid,
                                                       .commit_us = running->commit_us,
                                                       .transaction = running->number};
    memcpy(reselect->bytes + reselect->end, payload.data, payload.len);
    reselect->end += payload.len;
    reselect->next++;
}

static bool lacks_values(struct mr_reselect *reselect, mr_slice payload)
{
    struct row row;
    const struct mr_relation *relation =
        read_row(reselect, payload, &row) ? reselect_relation_of(reselect, row.oid) : NULL;
    return relation != NULL && lacking(reselect, relation, &row) != 0;
}

static void count(struct mr_reselect *reselect, enum mr_reselected outcome)
{
    mr_counter_add(&reselect->wiring.source->reselected[outcome], 1);
}

bool mr_reselect_put(struct mr_reselect *reselect, mr_slice payload)
{
    uint8_t type = payload.len > HEAD && payload.data[0] == 'w' ? payload.data[HEAD] : 0;
    mr_slice message = {.data = payload.data + HEAD, .len = payload.len - HEAD};
    bool was_empty = reselect_is_empty(reselect);
    bool is_description = false;
    MR_ASSERT(mr_reselect_has_room(reselect) && !reselect->is_at_hand);
    if (type == 'B' || type == 'O' || type == 'C') {
        follow_transaction(reselect, type, message);
    } else if (type == 'R') {
        struct mr_reader reader = mr_reader_init(message);
        mr_reader_u8(&reader);
        uint32_t oid = mr_reader_u32(&reader);
        is_description = reselect_is_news(reselect, message, oid);
        if (is_description) {
            note_description(reselect, oid, !was_empty);
        }
    }
    if (was_empty && (type != 'U' || !lacks_values(reselect, payload))) {
        return false;
    }
    if (payload.len > COPIED_MAX) { /* goes as it came, and nothing is known of what follows it */
        spoil_transaction(reselect, reselect->running.number);
        reselect->large = was_empty ? (mr_slice){0} : payload;
        if (was_empty) {
            count(reselect, MR_RESELECTED_LARGE);
        }
        return !was_empty;
    }
    if (was_empty && reselect->rest_until_ns > mr_monotonic_ns()) {
        count(reselect, MR_RESELECTED_PASSED);
        return false;
    }
    reselect_append(reselect, payload);
    held_at(reselect, reselect->next - 1)->is_description = is_description;
    reselect_follow(reselect, reselect->next - 1);
    reselect_ask(reselect);
    return true;
}

static void reselect_put_value(struct mr_text *text, uint8_t kind, const void *data, uint32_t len)
{
    uint32_t wire = __builtin_bswap32(len);
    mr_text_add(text, &kind, 1);
    mr_text_add(text, &wire, sizeof(wire));
    mr_text_add(text, data, len);
}

/* The message with the values in their places; those that are not exact are told apart. */
static mr_slice rewrite(struct mr_reselect *reselect, const struct held *held,
                        const struct mr_reselect_question *question, bool is_exact)
{
    struct mr_text *text = &reselect->rewritten;
    mr_slice payload = reselect_payload_of(reselect, held);
    struct row row;
    bool is_row = read_row(reselect, payload, &row);
    const struct mr_relation *relation =
        reselect->wiring.relation(reselect->wiring.relation_context, row.oid);
    MR_ASSERT(is_row && relation != NULL);
    text->len = 0;
    mr_text_add(text, payload.data, row.after_at);
    uint32_t part = 0;
    for (uint32_t i = 0; i < row.after_count; i++) {
        const struct mr_datum *value = &reselect->after[i];
        const struct mr_reselect_part *read_part = NULL;
        if (part < question->column_count && question->parts[part].column == i) {
            read_part = &question->parts[part++];
        }
        if (read_part != NULL && read_part->at != SIZE_MAX) {
            reselect_put_value(text, MR_DATUM_TEXT, question->values.data + read_part->at,
                               (uint32_t)read_part->len);
            if (!is_exact || !has_lasting_text(&relation->columns[i])) {
                reselect->later.columns[reselect->later.count++] = i;
            }
        } else if (value->kind == MR_DATUM_TEXT || value->kind == MR_DATUM_BINARY) {
            reselect_put_value(text, (uint8_t)value->kind, value->data, value->len);
        } else {
            mr_text_add(text, &(uint8_t){(uint8_t)value->kind}, 1);
        }
    }
    return (mr_slice){.data = (const uint8_t *)text->data, .len = text->len};
}

static int64_t wait_ns(const struct mr_reselect *reselect)
{
    return (int64_t)reselect->wiring.options->wait_ms * 1000000;
}

/* The first one holds up the stream for too long. */
static bool reselect_is_over(const struct mr_reselect *reselect)
{
    return reselect->blocked_ns != 0 &&
           mr_monotonic_ns() - reselect->blocked_ns >= wait_ns(reselect);
}

/* Whether the first one may go: it lacks nothing, or its answer is there and so is its transaction,
 * or there is no more waiting. */
static bool may_go(struct mr_reselect *reselect, const struct held *held)
{
    switch (held->state) {
    case HELD_PLAIN:
        return true;
    case HELD_ANSWERED:
        return held->is_spoiled || held->transaction <= reselect->ended ||
               reselect->rounds[held->round]->questions[held->question].outcome !=
                   MR_RESELECTED_EXACT ||
               !mr_reselect_has_room(reselect) || reselect_is_over(reselect);
    case HELD_UNSEEN: /* its description was decoded before it came to be the first */
        return false;
    case HELD_WAITS:
    case HELD_ASKED:
        break;
    }
    if (reselect->rest_until_ns > mr_monotonic_ns()) {
        return true;
    }
    if (!reselect_is_over(reselect)) {
        return false;
    }
    uint32_t ms = reselect->rest_ms;
    reselect->rest_ms = ms == 0 ? REST_MS : ms < REST_MS_MAX / 2 ? 2 * ms : REST_MS_MAX;
    reselect->rest_until_ns = mr_monotonic_ns() + (int64_t)reselect->rest_ms * 1000000;
    if (ms == 0) {
        mr_log(MR_LOG_WARN, "reselect_late",
               "values that updates did not touch were not read again within a second; events have "
               "the placeholder for a while");
    }
    return true;
}

static mr_slice hand_out(struct mr_reselect *reselect, const struct held *held)
{
    mr_slice payload = reselect_payload_of(reselect, held);
    reselect->has_outcome = held->state != HELD_PLAIN;
    reselect->later.count = 0;
    if (held->state == HELD_WAITS || held->state == HELD_ASKED) {
        reselect->outcome = reselect_is_over(reselect) ? MR_RESELECTED_LATE : MR_RESELECTED_PASSED;
    }
    if (held->state != HELD_ANSWERED) {
        return payload;
    }
    const struct mr_reselect_question *question =
        &reselect->rounds[held->round]->questions[held->question];
    bool is_exact = question->outcome == MR_RESELECTED_EXACT && !held->is_spoiled &&
                    held->transaction <= reselect->ended;
    reselect->outcome = question->outcome == MR_RESELECTED_EXACT && !is_exact ? MR_RESELECTED_LATER
                                                                              : question->outcome;
    bool has_values =
        question->outcome == MR_RESELECTED_EXACT || question->outcome == MR_RESELECTED_LATER;
    return has_values && (is_exact || !reselect->wiring.options->keeps_placeholder)
               ? rewrite(reselect, held, question, is_exact)
               : payload;
}

static void set_timer(const struct mr_reselect *reselect, int64_t at_ns)
{
    struct itimerspec at = {
        .it_value = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000}};
    timerfd_settime(reselect->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

const struct mr_later *mr_reselect_later(const struct mr_reselect *reselect)
{
    return reselect->later.count > 0 ? &reselect->later : NULL;
}

bool mr_reselect_next(struct mr_reselect *reselect, mr_slice *ret_payload)
{
    MR_ASSERT(!reselect->is_at_hand);
    take_round(reselect);
    if (reselect_is_empty(reselect)) {
        *ret_payload = reselect->large;
        return reselect->large.data != NULL;
    }
    struct held *held = held_at(reselect, reselect->first);
    if (held->state == HELD_UNSEEN) {
        follow_again(reselect);
        held->state = held->state == HELD_UNSEEN ? HELD_PLAIN : held->state; /* it has none */
    }
    reselect_ask(reselect);
    if (!may_go(reselect, held)) {
        if (reselect->blocked_ns == 0) {
            reselect->blocked_ns = mr_monotonic_ns();
            set_timer(reselect, reselect->blocked_ns + wait_ns(reselect));
        }
        return false;
    }
    *ret_payload = hand_out(reselect, held);
    if (reselect->blocked_ns != 0) {
        mr_counter_add(&reselect->wiring.source->reselect_wait_ns,
                       (uint64_t)(mr_monotonic_ns() - reselect->blocked_ns));
        reselect->blocked_ns = 0;
        set_timer(reselect, 0);
    }
    reselect->is_at_hand = true;
    return true;
}

/* Decoded, or passed over. */
static void description_taken(struct mr_reselect *reselect, uint32_t oid)
{
    forget_wants(known_at(reselect, oid));
    uint32_t count = reselect->redefined_count;
    uint32_t i = 0;
    while (i < count && i < REDEFINED_MAX && reselect->redefined[i] != oid) {
        i++;
    }
    if (count <= REDEFINED_MAX && i < count) {
        reselect->redefined[i] = reselect->redefined[count - 1];
        reselect->redefined_count--;
    }
    if (--reselect->descriptions == 0) {
        reselect->redefined_count = 0;
    }
}

void mr_reselect_taken(struct mr_reselect *reselect)
{
    if (reselect_is_empty(reselect)) {
        reselect->large = (mr_slice){0};
        return;
    }
    struct held *held = held_at(reselect, reselect->first);
    mr_slice payload = reselect_payload_of(reselect, held);
    MR_ASSERT(reselect->is_at_hand);
    reselect->is_at_hand = false;
    if (held->is_description) {
        uint32_t oid;
        memcpy(&oid, payload.data + HEAD + 1, sizeof(oid));
        description_taken(reselect, __builtin_bswap32(oid));
    }
    if (reselect->has_outcome) {
        count(reselect, reselect->outcome);
        reselect->has_outcome = false;
    }
    if (held->state == HELD_ASKED || held->state == HELD_ANSWERED) {
        reselect->left[held->round]--;
    }
    reselect->begin += held->len;
    reselect->first++;
    if (reselect_is_empty(reselect)) {
        reselect->begin = reselect->end = 0;
    }
}

int mr_reselect_descriptor(struct mr_reselect *reselect, int socket)
{
    if (reselect_is_empty(reselect)) {
        return socket;
    }
    int wanted = mr_reselect_has_room(reselect) ? socket : -1;
    if (wanted != reselect->socket) {
        if (reselect->socket >= 0) {
            watch(reselect, EPOLL_CTL_DEL, reselect->socket);
        }
        if (wanted >= 0) {
            watch(reselect, EPOLL_CTL_ADD, wanted);
        }
        reselect->socket = wanted;
    }
    return reselect->epoll_fd;
}
