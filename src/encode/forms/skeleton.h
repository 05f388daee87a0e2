/* What the forms that follow Debezium make of a change: one event; of a delete its tombstone too;
 * of a changed key a delete, a tombstone and a create. Each form calls mr_skeleton_change with a
 * constant table of its own writers, so that all of it is compiled for that form and calls none of
 * them through a pointer. Inside forms/ only. */
#pragma once

#include "encode/forms/form.h"

/* One record of a change. */
struct mr_event {
    enum mr_op op;
    uint32_t part;
    const struct mr_tuple *before, *after;
    /* A header of its own: the key that the row has elsewhere. NULL: it has none. */
    const char *own_name;
    mr_slice own_value;
    bool is_tombstone; /* that follows its delete */
};

/* What a delete becomes. */
struct mr_delete_form {
    bool has_value;
    bool has_tombstone;
};

struct mr_skeleton {
    /* Writes the key of a row that has one. */
    void (*key)(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                const struct mr_tuple *row, const struct mr_tuple *old);
    void (*value)(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                  const struct mr_change *change, const struct mr_event *event);
    /* Appends the form's own headers to a block, among them the other key, and sets the record's
     * kind. NULL: it has none. */
    void (*headers)(struct mr_buffer *out, const struct mr_encoder *encoder,
                    const struct mr_change *change, const struct mr_event *event,
                    struct mr_record *record);
    /* Whether there are any, even without another key to say. */
    bool (*has_headers)(const struct mr_encoder *encoder, const struct mr_record *record);
    /* NULL: a value, and a tombstone where the options want one. */
    struct mr_delete_form (*deletes)(const struct mr_encode_options *options);
    enum mr_content content; /* of keys and values */
};

#define MR_SKELETON static inline __attribute__((always_inline))

/* The key of the row, in the form's own writing or in JSON. */
MR_SKELETON mr_slice mr_skeleton_key(const struct mr_skeleton *form, struct mr_buffer *out,
                                     struct mr_encoder *encoder, const struct mr_plan *plan,
                                     const struct mr_change *change, bool old)
{
    const struct mr_tuple *row = old ? &change->before : &change->after;
    if (plan->key.count == 0 || row->kind == MR_TUPLE_NONE) {
        return (mr_slice){0};
    }
    const uint8_t *begin = out->at;
    form->key(out, encoder, plan, row, old ? NULL : &change->before);
    return mr_text_since(out, begin);
}

/* The same for a header. */
__attribute__((cold, unused)) static mr_slice mr_other_key(struct mr_buffer *out,
                                                           struct mr_encoder *encoder,
                                                           const struct mr_plan *plan,
                                                           const struct mr_change *change, bool old)
{
    static const struct mr_skeleton json = {.key = mr_row_key_object};
    bool is_avro = out->is_avro;
    out->is_avro = false;
    mr_slice key = mr_skeleton_key(&json, out, encoder, plan, change, old);
    out->is_avro = is_avro;
    return key;
}

MR_SKELETON struct mr_record mr_skeleton_record(const struct mr_skeleton *form,
                                                const struct mr_plan *plan,
                                                const struct mr_change *change, uint32_t part,
                                                mr_slice key)
{
    struct mr_record record = mr_record_of(plan, change, part);
    mr_record_set_key(&record, key);
    record.key_content = form->content & 0xF;
    record.value_content = form->content & 0xF;
    return record;
}

/* In the place of a header's name: mr_append_later writes all. */
static const char mr_told_by_later[] = MR_HEADER_RESELECTED;

static inline void mr_append_own(struct mr_buffer *out, const struct mr_change *change,
                                 const struct mr_event *event)
{
    if (event->own_name != NULL && event->own_name != mr_told_by_later) {
        mr_header_append(out, event->own_name, event->own_value);
    }
    if (change->transaction->later != NULL && event->after == &change->after) {
        mr_append_later(out, change);
    }
}

MR_SKELETON void mr_skeleton_headers(const struct mr_skeleton *form,
                                     const struct mr_encoder *encoder,
                                     const struct mr_change *change, const struct mr_event *event,
                                     struct mr_buffer *out, struct mr_record *record)
{
    bool has_own = form->headers != NULL && form->has_headers(encoder, record);
    if (MR_LIKELY(!has_own && event->own_name == NULL && change->transaction->headers.len == 0)) {
        return;
    }
    uint8_t *block = mr_headers_begin(out, NULL);
    if (form->headers != NULL) {
        form->headers(out, encoder, change, event, record);
    } else {
        mr_append_own(out, change, event);
    }
    mr_buffer_slice(out, change->transaction->headers);
    mr_headers_end(out, block);
    record->has_headers = true;
}

/* Writes the value, and after it the headers if there are any. */
MR_SKELETON void mr_skeleton_event(const struct mr_skeleton *form, struct mr_encoder *encoder,
                                   struct mr_plan *plan, const struct mr_change *change,
                                   const struct mr_event *event, struct mr_buffer *out,
                                   struct mr_record *record)
{
    const uint8_t *begin = out->at;
    form->value(out, encoder, plan, change, event);
    mr_record_set_value(record, mr_text_since(out, begin));
    mr_skeleton_headers(form, encoder, change, event, out, record);
}

static const struct mr_tuple mr_no_tuple = {.kind = MR_TUPLE_NONE, .values = NULL};

/* A delete and, if wanted, its tombstone. `moved`: the row goes on under another key, which a
 * header says. */
MR_SKELETON uint32_t mr_skeleton_delete(const struct mr_skeleton *form, struct mr_encoder *encoder,
                                        struct mr_plan *plan, const struct mr_change *change,
                                        bool moved, struct mr_buffer *out,
                                        struct mr_record *ret_records)
{
    struct mr_delete_form wanted = {.has_value = true,
                                    .has_tombstone = encoder->options.tombstones};
    if (form->deletes != NULL) {
        wanted = form->deletes(&encoder->options);
    }
    if (!wanted.has_value && !wanted.has_tombstone) {
        return 0;
    }
    struct mr_event event = {.op = MR_OP_DELETE, .before = &change->before, .after = &mr_no_tuple};
    if (moved) {
        event.own_name = MR_HEADER_NEW_KEY;
        event.own_value = mr_other_key(out, encoder, plan, change, false);
    }
    mr_slice key = mr_skeleton_key(form, out, encoder, plan, change, true);
    /* A tombstone without a key means nothing, and a compacted topic refuses it. */
    wanted.has_tombstone &= key.data != NULL;
    if (wanted.has_tombstone) {
        struct mr_record *tombstone = &ret_records[wanted.has_value];
        *tombstone = mr_skeleton_record(form, plan, change, wanted.has_value, key);
        event.is_tombstone = wanted.has_value;
        mr_skeleton_headers(form, encoder, change, &event, out, tombstone);
        event.is_tombstone = false;
    }
    if (wanted.has_value) {
        ret_records[0] = mr_skeleton_record(form, plan, change, 0, key);
        mr_skeleton_event(form, encoder, plan, change, &event, out, &ret_records[0]);
    }
    return (uint32_t)wanted.has_value + wanted.has_tombstone;
}

MR_SKELETON uint32_t mr_skeleton_change(const struct mr_skeleton *form, struct mr_encoder *encoder,
                                        struct mr_plan *plan, const struct mr_change *change,
                                        struct mr_buffer *out, struct mr_record *ret_records)
{
    if (plan->rendered.commit_lsn != change->transaction->commit_lsn ||
        MR_UNLIKELY(plan->rendered.mark != change->copy_mark)) {
        mr_render_transaction(encoder, plan, change);
    }
    if (change->op == MR_OP_DELETE) {
        return mr_skeleton_delete(form, encoder, plan, change, false, out, ret_records);
    }
    struct mr_event event = {.op = change->op, .before = &change->before, .after = &change->after};
    if (event.op == MR_OP_UPDATE && mr_key_changed(encoder, plan, change)) {
        /* A new key is a new entity to a consumer that folds the topic: the old one ends, the new
         * one begins. */
        bool moved = encoder->options.types == MR_TYPES_DEBEZIUM;
        if ((plan->operations & (1u << MR_OP_DELETE)) != 0) {
            event.part = mr_skeleton_delete(form, encoder, plan, change, moved, out, ret_records);
        }
        if ((plan->operations & (1u << MR_OP_INSERT)) == 0) {
            return event.part;
        }
        event.op = MR_OP_INSERT;
        event.before = &mr_no_tuple;
        if (moved) {
            event.own_name = MR_HEADER_OLD_KEY;
            event.own_value = mr_other_key(out, encoder, plan, change, true);
        }
    }
    if (MR_UNLIKELY(change->transaction->later != NULL) && event.own_name == NULL) {
        event.own_name = mr_told_by_later;
    }
    mr_slice key = mr_skeleton_key(form, out, encoder, plan, change, false);
    struct mr_record *record = &ret_records[event.part];
    *record = mr_skeleton_record(form, plan, change, event.part, key);
    mr_skeleton_event(form, encoder, plan, change, &event, out, record);
    return event.part + 1;
}

/* The function `change` of a form (mr_form_ops) that is a skeleton, with the members that
 * follow. */
#define MR_SKELETON_CHANGE(name, ...)                                                              \
    static mr_status name(struct mr_encoder *encoder, struct mr_plan *plan,                        \
                          const struct mr_change *change, struct mr_buffer *out,                   \
                          struct mr_record *ret_records, uint32_t *ret_count,                      \
                          __attribute__((unused)) struct mr_error *ret_error)                      \
    {                                                                                              \
        static const struct mr_skeleton form = {__VA_ARGS__};                                      \
        *ret_count = mr_skeleton_change(&form, encoder, plan, change, out, ret_records);           \
        return MR_OK;                                                                              \
    }
