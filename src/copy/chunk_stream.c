/* What the stream brings, while a table is copied. */

#include "copy/chunks_internal.h"

bool mr_chunks_same_shape(const struct mr_relation *a, const struct mr_relation *b)
{
    bool same = a->column_count == b->column_count && a->key_count == b->key_count &&
                strcmp(a->schema, b->schema) == 0 && strcmp(a->table, b->table) == 0;
    for (uint32_t i = 0; same && i < a->column_count; i++) {
        const struct mr_column *x = &a->columns[i];
        const struct mr_column *y = &b->columns[i];
        same = strcmp(x->name, y->name) == 0 && x->type_oid == y->type_oid &&
               x->type_modifier == y->type_modifier;
    }
    for (uint32_t i = 0; same && i < a->key_count; i++) {
        same = a->key_columns[i] == b->key_columns[i];
    }
    return same;
}

bool mr_chunks_key(struct mr_chunks *chunks, const struct mr_relation *relation,
                   const struct mr_datum *values, const struct mr_tuple *old, mr_slice *ret_key)
{
    chunks->key.len = 0;
    for (uint32_t i = 0; i < relation->key_count; i++) {
        uint32_t column = relation->key_columns[i];
        const struct mr_datum *value = &values[column];
        if (value->kind == MR_DATUM_UNCHANGED && old != NULL && old->kind != MR_TUPLE_NONE) {
            value = &old->values[column];
        }
        if (value->kind != MR_DATUM_TEXT) {
            return false;
        }
        mr_text_add(&chunks->key, &value->len, sizeof(value->len));
        mr_text_add(&chunks->key, value->data, value->len);
    }
    *ret_key = (mr_slice){.data = (const uint8_t *)chunks->key.data, .len = chunks->key.len};
    return relation->key_count > 0;
}

static void note_row(struct mr_chunks *chunks, const struct mr_relation *relation,
                     const struct mr_tuple *row, const struct mr_tuple *old, bool lacks)
{
    mr_slice key;
    if (row->kind == MR_TUPLE_NONE) {
        return;
    }
    if (mr_chunks_key(chunks, relation, row->values, old, &key)) {
        mr_chunk_window_change(chunks->window, key, lacks);
    } else {
        mr_chunk_window_reshape(chunks->window); /* then nothing is known */
    }
}

/* A large value that the update did not touch, and that no old row tells. An update that takes a
 * row into a row filter comes as an insert (pgoutput.c, pgoutput_row_filter). */
static bool lacks_value(const struct mr_change *change)
{
    bool has_row = change->after.kind != MR_TUPLE_NONE;
    for (uint32_t i = 0; has_row && i < change->relation->column_count; i++) {
        if (change->after.values[i].kind == MR_DATUM_UNCHANGED &&
            (change->before.kind != MR_TUPLE_FULL ||
             change->before.values[i].kind == MR_DATUM_UNCHANGED)) {
            return true;
        }
    }
    return false;
}

/* A table that was made anew under the copied one's name, or has taken it, is in its topic now:
 * rows of the former one that were read before and go out after would take the place of its. */
static void look_at_another(struct mr_chunks *chunks, const struct mr_relation *relation)
{
    const struct mr_chunk_table *table = mr_chunks_table(chunks);
    if (strcmp(relation->table, table->table) == 0 &&
        strcmp(relation->schema, table->schema) == 0) {
        mr_chunk_window_reshape(chunks->window);
    }
}

void mr_chunks_change(struct mr_companion *companion, const struct mr_change *change, bool is_new)
{
    struct mr_chunks *chunks = (struct mr_chunks *)companion;
    if (chunks->window == NULL) {
        return;
    }
    if (change->relation->oid != mr_chunks_table(chunks)->oid) {
        look_at_another(chunks, change->relation);
        return;
    }
    chunks->changed = true;
    bool is_open = chunks->phase == MR_CHUNKS_READS || chunks->phase == MR_CHUNKS_WAITS ||
                   chunks->phase == MR_CHUNKS_SENDS;
    if (change->op == MR_OP_TRUNCATE) {
        mr_chunk_window_truncate(chunks->window);
        return;
    }
    if (is_open && chunks->form.streamed != change->relation) {
        bool is_other = chunks->form.streamed != NULL ||
                        (chunks->phase != MR_CHUNKS_READS &&
                         !mr_chunks_same_shape(change->relation, chunks->thread.chunk.relation));
        chunks->form.streamed = change->relation;
        if (is_other) {
            mr_chunk_window_reshape(chunks->window);
        }
    }
    /* What makes no record leaves the topic as it is, so the row may be wanted; and by another of
     * the table's streams, too. */
    if (is_new) {
        struct mr_encoder *encoder = chunks->base.port->stream->encoder;
        bool lacks = lacks_value(change) || mr_encoder_passes_by(encoder, change);
        note_row(chunks, change->relation, &change->after, &change->before, lacks);
        note_row(chunks, change->relation, &change->before, NULL, lacks); /* mostly the same key */
    }
}

void mr_chunks_commit(struct mr_companion *companion, const struct mr_transaction *transaction)
{
    struct mr_chunks *chunks = (struct mr_chunks *)companion;
    if (chunks->changed && chunks->window != NULL) {
        mr_chunk_window_commit(chunks->window, transaction->xid);
    }
    chunks->changed = false;
}

void mr_chunks_relation_end(struct mr_companion *companion, const struct mr_relation *relation)
{
    struct mr_chunks *chunks = (struct mr_chunks *)companion;
    if (chunks->form.streamed == relation && chunks->window != NULL) {
        chunks->form.streamed = NULL;
        mr_chunk_window_reshape(chunks->window);
    }
}
