#include "event/schemas.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "base/wake.h"

enum { UNKNOWN_MARK = 0xFF };

struct mr_schemas {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct mr_schema **items; /* each stays where it is */
    struct mr_index by_text;  /* and subject; and how many */
    uint32_t capacity;
    uint32_t pending; /* none before it waits for an id */
    int wake;
    bool ended;
};

struct mr_schemas *mr_schemas_new(void)
{
    struct mr_schemas *schemas = MR_NEW(struct mr_schemas);
    pthread_mutex_init(&schemas->lock, NULL);
    mr_cond_init(&schemas->change);
    schemas->wake = -1;
    return schemas;
}

void mr_schemas_free(struct mr_schemas *schemas)
{
    if (schemas == NULL) {
        return;
    }
    for (uint32_t i = 0; i < schemas->by_text.count; i++) {
        free(schemas->items[i]->subject);
        free(schemas->items[i]->text);
        free(schemas->items[i]->fault);
        free(schemas->items[i]);
    }
    free(schemas->items);
    mr_index_done(&schemas->by_text);
    pthread_cond_destroy(&schemas->change);
    pthread_mutex_destroy(&schemas->lock);
    free(schemas);
}

void mr_schemas_set_wake(struct mr_schemas *schemas, int wake)
{
    MR_HOLD(&schemas->lock);
    schemas->wake = wake;
}

/* MR_INDEX_NONE: it is not there. */
static uint32_t schemas_find(const struct mr_schemas *schemas, uint64_t hash, const char *subject,
                             mr_slice text)
{
    uint32_t number;
    MR_INDEX_FIND(number, &schemas->by_text, hash,
                  strcmp(schemas->items[number]->subject, subject) == 0 &&
                      mr_slice_equal(mr_slice_of(schemas->items[number]->text), text));
    return number;
}

uint32_t mr_schemas_intern(struct mr_schemas *schemas, const char *subject, mr_slice text)
{
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, subject, strlen(subject));
    hash = mr_hash_add(hash, text.data, text.len);
    MR_HOLD(&schemas->lock);
    uint32_t index = schemas_find(schemas, hash, subject, text);
    if (index == MR_INDEX_NONE) {
        index = schemas->by_text.count;
        MR_GROW(schemas->items, schemas->capacity, index + 1);
        struct mr_schema *item = MR_NEW(struct mr_schema);
        *item = (struct mr_schema){.subject = MR_STRDUP(subject),
                                   .text = MR_STRNDUP((const char *)text.data, text.len),
                                   .index = mr_index_add(&schemas->by_text, hash),
                                   .id = -1};
        schemas->items[index] = item;
        pthread_cond_signal(&schemas->change);
    }
    return index;
}

static void put_number(uint8_t *to, uint8_t mark, uint32_t number)
{
    to[0] = mark;
    for (int i = 0; i < 4; i++) {
        to[1 + i] = (uint8_t)(number >> (24 - 8 * i));
    }
}

void mr_schema_frame(struct mr_buffer *out, uint32_t index)
{
    uint8_t bytes[MR_SCHEMA_FRAME_LEN];
    put_number(bytes, UNKNOWN_MARK, index);
    mr_buffer_append(out, bytes, sizeof(bytes));
}

/* The schema of a frame without an id; NULL: it has one, or is none. */
static const struct mr_schema *schemas_unknown(const struct mr_schemas *schemas,
                                               const uint8_t *bytes, unsigned content)
{
    if (content != MR_CONTENT_FRAMED || bytes == NULL || bytes[0] != UNKNOWN_MARK) {
        return NULL;
    }
    uint32_t index = 0;
    for (int i = 0; i < 4; i++) {
        index = index << 8 | bytes[1 + i];
    }
    MR_ASSERT(index < schemas->by_text.count);
    return schemas->items[index];
}

static mr_status schemas_look(const struct mr_schema *schema, struct mr_error *ret_error)
{
    if (schema == NULL || schema->id >= 0) {
        return MR_OK;
    }
    return schema->fault == NULL ? MR_FULL : mr_fail(ret_error, MR_ERR_CONFIG, "%s", schema->fault);
}

static void resolve(const struct mr_schema *schema, const uint8_t *bytes)
{
    if (schema != NULL) {
        put_number((uint8_t *)(uintptr_t)bytes, 0, (uint32_t)schema->id);
    }
}

mr_status mr_schemas_resolve(struct mr_schemas *schemas, struct mr_batch *batch,
                             struct mr_error *ret_error)
{
    MR_HOLD(&schemas->lock);
    for (uint32_t i = 0; i < batch->record_count; i++) {
        const struct mr_record *record = mr_batch_record(batch, i);
        MR_TRY(schemas_look(schemas_unknown(schemas, record->key, record->key_content), ret_error));
        MR_TRY(schemas_look(schemas_unknown(schemas, record->value, record->value_content),
                            ret_error));
    }
    for (uint32_t i = 0; i < batch->record_count; i++) {
        const struct mr_record *record = mr_batch_record(batch, i);
        resolve(schemas_unknown(schemas, record->key, record->key_content), record->key);
        resolve(schemas_unknown(schemas, record->value, record->value_content), record->value);
    }
    return MR_OK;
}

/* Waits with the lock held; false once the time is over, or waits are ended. */
static bool schemas_wait_until(struct mr_schemas *schemas, int64_t end_ns)
{
    return !schemas->ended && mr_cond_wait_until(&schemas->change, &schemas->lock, end_ns);
}

static int64_t in_ms(uint32_t ms)
{
    return mr_monotonic_ns() + (int64_t)ms * 1000000;
}

static struct mr_schema *next_pending(struct mr_schemas *schemas)
{
    while (schemas->pending < schemas->by_text.count) {
        struct mr_schema *item = schemas->items[schemas->pending];
        if (item->id < 0 && item->fault == NULL) {
            return item;
        }
        schemas->pending++;
    }
    return NULL;
}

const struct mr_schema *mr_schemas_wait(struct mr_schemas *schemas, uint32_t limit_ms)
{
    int64_t end_ns = in_ms(limit_ms);
    MR_HOLD(&schemas->lock);
    const struct mr_schema *found = next_pending(schemas);
    while (found == NULL && schemas_wait_until(schemas, end_ns)) {
        found = next_pending(schemas);
    }
    return schemas->ended ? NULL : found;
}

void mr_schemas_pause(struct mr_schemas *schemas, uint32_t ms)
{
    int64_t end_ns = in_ms(ms);
    MR_HOLD(&schemas->lock);
    while (schemas_wait_until(schemas, end_ns)) {
    }
}

void mr_schemas_end(struct mr_schemas *schemas)
{
    MR_HOLD(&schemas->lock);
    schemas->ended = true;
    pthread_cond_broadcast(&schemas->change);
}

bool mr_schemas_ended(struct mr_schemas *schemas)
{
    MR_HOLD(&schemas->lock);
    return schemas->ended;
}

static void schemas_tell(struct mr_schemas *schemas)
{
    if (schemas->wake >= 0) {
        mr_wake(schemas->wake);
    }
}

static const struct mr_schema *other_with(const struct mr_schemas *schemas, int32_t id,
                                          const char *text)
{
    for (uint32_t i = 0; i < schemas->by_text.count; i++) {
        const struct mr_schema *item = schemas->items[i];
        if (item->id == id && strcmp(item->text, text) != 0) {
            return item;
        }
    }
    return NULL;
}

bool mr_schemas_set_id(struct mr_schemas *schemas, uint32_t index, int32_t id)
{
    MR_HOLD(&schemas->lock);
    struct mr_schema *item = schemas->items[index];
    const struct mr_schema *other = other_with(schemas, id, item->text);
    if (other == NULL) {
        item->id = id;
    } else {
        struct mr_text fault = {0};
        mr_text_format(&fault,
                       "the schema registry gives subject \"%s\" the id %d, which another schema "
                       "has, of subject \"%s\": readers would take one for the other. Was it "
                       "emptied? See to it that it has its schemas again, and start millrace again",
                       item->subject, id, other->subject);
        item->fault = fault.data;
    }
    schemas_tell(schemas);
    return other == NULL;
}

void mr_schemas_set_fault(struct mr_schemas *schemas, uint32_t index, const char *fault)
{
    MR_HOLD(&schemas->lock);
    schemas->items[index]->fault = MR_STRDUP(fault);
    schemas_tell(schemas);
}
