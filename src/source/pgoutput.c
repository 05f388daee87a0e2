#include "source/pgoutput.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/reader.h"
#include "source/relation_cache.h"

enum { ORIGIN_MAX = 512 };

struct mr_pgoutput {
    struct mr_relation_cache relations;
    bool in_transaction;
    uint64_t ordinal; /* of the last change that the handler took */
    struct mr_transaction transaction;
    char origin[ORIGIN_MAX];
    struct mr_datum before[MR_COLUMNS_MAX];
    struct mr_datum after[MR_COLUMNS_MAX];
};

/* What a message is decoded with: where it came from and where it goes. */
struct decoding {
    struct mr_pgoutput *decoder;
    struct mr_reader reader;
    mr_lsn lsn;
    uint8_t type;
    const struct mr_source_handler *handler;
    struct mr_error *ret_error;
};

struct mr_pgoutput *mr_pgoutput_new(void)
{
    return MR_NEW(struct mr_pgoutput);
}

void mr_pgoutput_free(struct mr_pgoutput *decoder)
{
    if (decoder != NULL) {
        mr_relation_cache_done(&decoder->relations);
        free(decoder);
    }
}

void mr_pgoutput_reset(struct mr_pgoutput *decoder, const struct mr_source_handler *handler)
{
    struct mr_relation_cache *relations = &decoder->relations;
    for (uint32_t i = 0; i < relations->capacity; i++) {
        if (relations->slots[i] != NULL) {
            handler->relation_end(handler->context, relations->slots[i]);
        }
    }
    mr_relation_cache_done(relations);
    decoder->in_transaction = false;
    decoder->ordinal = 0;
    decoder->transaction = (struct mr_transaction){0};
}

bool mr_pgoutput_in_transaction(const struct mr_pgoutput *decoder)
{
    return decoder->in_transaction;
}

static mr_status malformed(const struct decoding *decoding, const char *what)
{
    return mr_fail(decoding->ret_error, MR_ERR_PROTOCOL,
                   "pgoutput message '%c' at " MR_LSN_FORMAT " is not as the protocol has it: %s",
                   decoding->type >= 0x20 && decoding->type < 0x7f ? decoding->type : '?',
                   MR_LSN_ARGS(decoding->lsn), what);
}

/* Every message must be used up to its last byte. */
static mr_status expect_end(const struct decoding *decoding)
{
    if (decoding->reader.failed) {
        return malformed(decoding, "it ends too early");
    }
    if (mr_reader_left(&decoding->reader) != 0) {
        return malformed(decoding, "bytes are left over");
    }
    return MR_OK;
}

static struct mr_position next_position(const struct mr_pgoutput *decoder)
{
    return (struct mr_position){
        .commit_lsn = decoder->transaction.commit_lsn,
        .ordinal = decoder->ordinal + 1,
    };
}

/* Begin: Byte1('B') Int64(final LSN) Int64(commit time, µs since 2000) Int32(xid) */
static mr_status decode_begin(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    mr_lsn commit_lsn = mr_reader_u64(&decoding->reader);
    int64_t commit_time = (int64_t)mr_reader_u64(&decoding->reader);
    uint32_t xid = mr_reader_u32(&decoding->reader);
    MR_TRY(expect_end(decoding));
    if (decoder->in_transaction) {
        return malformed(decoding, "a transaction is open already");
    }
    mr_lsn last = decoder->transaction.commit_lsn;
    if (commit_lsn == 0 || commit_lsn <= last) {
        return malformed(decoding, "commit positions do not increase");
    }
    decoder->transaction = (struct mr_transaction){
        .commit_lsn = commit_lsn,
        .last_commit_lsn = last,
        .commit_time_us = (int64_t)((uint64_t)commit_time + (uint64_t)MR_PG_EPOCH_US),
        .xid = xid,
    };
    decoder->in_transaction = true;
    decoder->ordinal = 0;
    decoding->handler->begin(decoding->handler->context, &decoder->transaction);
    return MR_OK;
}

/* Commit: Byte1('C') Int8(flags, 0) Int64(commit LSN) Int64(end LSN) Int64(commit time) */
static mr_status decode_commit(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    uint8_t flags = mr_reader_u8(&decoding->reader);
    mr_lsn commit_lsn = mr_reader_u64(&decoding->reader);
    mr_lsn end_lsn = mr_reader_u64(&decoding->reader);
    mr_reader_u64(&decoding->reader);
    MR_TRY(expect_end(decoding));
    if (!decoder->in_transaction) {
        return malformed(decoding, "no transaction is open");
    }
    if (flags != 0) {
        return malformed(decoding, "unknown flags");
    }
    if (commit_lsn != decoder->transaction.commit_lsn || end_lsn <= commit_lsn) {
        return malformed(decoding, "its positions do not fit the transaction's beginning");
    }
    decoder->transaction.end_lsn = end_lsn;
    decoder->in_transaction = false;
    decoding->handler->commit(decoding->handler->context, &decoder->transaction);
    return MR_OK;
}

/* Origin: Byte1('O') Int64(commit LSN on the origin) String(name) */
static mr_status decode_origin(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    mr_lsn origin_lsn = mr_reader_u64(&decoding->reader);
    mr_slice name = mr_reader_string(&decoding->reader);
    MR_TRY(expect_end(decoding));
    if (!decoder->in_transaction) {
        return malformed(decoding, "no transaction is open");
    }
    if (name.len > ORIGIN_MAX) {
        return malformed(decoding, "the origin's name is too long");
    }
    if (name.len > 0) {
        memcpy(decoder->origin, name.data, name.len);
    }
    decoder->transaction.origin =
        (mr_slice){.data = (const uint8_t *)decoder->origin, .len = name.len};
    decoder->transaction.origin_lsn = origin_lsn;
    return MR_OK;
}

static char *take_identifier(struct decoding *decoding)
{
    mr_slice text = mr_reader_string(&decoding->reader);
    if (text.len > MR_IDENTIFIER_MAX) {
        decoding->reader.failed = true;
    }
    return decoding->reader.failed ? MR_STRDUP("") : MR_STRNDUP((const char *)text.data, text.len);
}

static bool identity_known(uint8_t identity)
{
    return identity == MR_IDENTITY_DEFAULT || identity == MR_IDENTITY_NOTHING ||
           identity == MR_IDENTITY_FULL || identity == MR_IDENTITY_INDEX;
}

/* Relation: Byte1('R') Int32(OID) String(namespace) String(name) Int8(replica identity) Int16(columns),
 * each: Int8(flags, 1 = in the identity) String(name) Int32(type OID) Int32(type modifier).
 * An empty namespace stands for pg_catalog. */
static mr_status read_relation(struct decoding *decoding, struct mr_relation *relation)
{
    struct mr_reader *reader = &decoding->reader;
    relation->oid = mr_reader_u32(reader);
    relation->schema = take_identifier(decoding);
    relation->table = take_identifier(decoding);
    uint8_t identity = mr_reader_u8(reader);
    uint16_t count = mr_reader_u16(reader);
    if (!reader->failed && !identity_known(identity)) {
        return malformed(decoding, "unknown replica identity");
    }
    if (count > MR_COLUMNS_MAX) {
        return malformed(decoding, "too many columns");
    }
    relation->identity = (enum mr_replica_identity)identity;
    relation->columns = MR_NEW_ARRAY(struct mr_column, count);
    for (uint16_t i = 0; i < count && !reader->failed; i++) {
        struct mr_column *column = &relation->columns[i];
        uint8_t flags = mr_reader_u8(reader);
        column->name = take_identifier(decoding);
        column->type_oid = mr_reader_u32(reader);
        column->type_modifier = (int32_t)mr_reader_u32(reader);
        column->in_identity = flags == 1;
        relation->column_count = i + 1u;
        if (flags > 1) {
            return malformed(decoding, "unknown column flags");
        }
    }
    return expect_end(decoding);
}

static mr_status decode_relation(struct decoding *decoding)
{
    struct mr_relation_cache *cache = &decoding->decoder->relations;
    struct mr_relation *relation = MR_NEW(struct mr_relation);
    mr_status status = read_relation(decoding, relation);
    if (status != MR_OK) {
        mr_relation_free(relation);
        return status;
    }
    struct mr_relation *old = mr_relation_cache_find(cache, relation->oid);
    if (old != NULL && mr_relation_equal(old, relation)) {
        mr_relation_free(relation); /* announced anew, as after each reset of the server's cache */
        return MR_OK;
    }
    if (!mr_relation_cache_put(cache, relation)) {
        mr_relation_free(relation);
        return malformed(decoding, "more relations than the cache may hold");
    }
    if (old != NULL) {
        decoding->handler->relation_end(decoding->handler->context, old);
        mr_relation_free(old);
    }
    return MR_OK;
}

/* Type: Byte1('Y') Int32(OID) String(namespace) String(name). Types are known by OID; others are text. */
static mr_status decode_type(struct decoding *decoding)
{
    mr_reader_u32(&decoding->reader);
    mr_reader_string(&decoding->reader);
    mr_reader_string(&decoding->reader);
    return expect_end(decoding);
}

/* TupleData: Int16(columns), each Byte1('n' | 'u' | 't' | 'b'), the last two with Int32(length) Bytes */
static bool read_tuple(struct mr_reader *reader, uint32_t column_count, struct mr_datum *values)
{
    if (mr_reader_u16(reader) != column_count) {
        return false;
    }
    for (uint32_t i = 0; i < column_count; i++) {
        uint8_t kind = mr_reader_u8(reader);
        values[i] = (struct mr_datum){.kind = (enum mr_datum_kind)kind};
        if (MR_LIKELY(kind == MR_DATUM_TEXT || kind == MR_DATUM_BINARY)) {
            uint32_t len = mr_reader_u32(reader);
            values[i].data = mr_reader_take(reader, len);
            values[i].len = len;
        } else if (kind != MR_DATUM_NULL && kind != MR_DATUM_UNCHANGED) {
            return false;
        }
    }
    return !reader->failed;
}

static mr_status read_row_relation(struct decoding *decoding, struct mr_relation **ret_relation)
{
    uint32_t oid = mr_reader_u32(&decoding->reader);
    if (!decoding->decoder->in_transaction) {
        return malformed(decoding, "no transaction is open");
    }
    struct mr_relation *relation = mr_relation_cache_get(&decoding->decoder->relations, oid);
    if (relation == NULL) {
        return malformed(decoding, decoding->reader.failed ? "it ends too early"
                                                           : "its relation was not announced");
    }
    *ret_relation = relation;
    return MR_OK;
}

static mr_status hand_over(struct decoding *decoding, const struct mr_change *change)
{
    MR_TRY(expect_end(decoding));
    const struct mr_source_handler *handler = decoding->handler;
    MR_TRY(handler->change(handler->context, change, decoding->ret_error));
    decoding->decoder->ordinal++;
    return MR_OK;
}

static struct mr_change change_of(const struct decoding *decoding, enum mr_op op,
                                  const struct mr_relation *relation)
{
    return (struct mr_change){
        .op = op,
        .lsn = decoding->lsn,
        .position = next_position(decoding->decoder),
        .transaction = &decoding->decoder->transaction,
        .relation = relation,
    };
}

/* Insert: Byte1('I') Int32(relation OID) Byte1('N') TupleData */
static mr_status decode_insert(struct decoding *decoding)
{
    struct mr_relation *relation;
    MR_TRY(read_row_relation(decoding, &relation));
    struct mr_datum *after = decoding->decoder->after;
    if (mr_reader_u8(&decoding->reader) != MR_TUPLE_NEW ||
        !read_tuple(&decoding->reader, relation->column_count, after)) {
        return malformed(decoding, "bad new row");
    }
    struct mr_change change = change_of(decoding, MR_OP_INSERT, relation);
    change.after = (struct mr_tuple){.kind = MR_TUPLE_NEW, .values = after};
    return hand_over(decoding, &change);
}

/* Update: Byte1('U') Int32(relation OID) [Byte1('K' | 'O') TupleData] Byte1('N') TupleData */
static mr_status decode_update(struct decoding *decoding)
{
    struct mr_relation *relation;
    MR_TRY(read_row_relation(decoding, &relation));
    struct mr_pgoutput *decoder = decoding->decoder;
    struct mr_change change = change_of(decoding, MR_OP_UPDATE, relation);
    uint8_t kind = mr_reader_u8(&decoding->reader);
    if (kind == MR_TUPLE_KEY || kind == MR_TUPLE_FULL) {
        if (!read_tuple(&decoding->reader, relation->column_count, decoder->before)) {
            return malformed(decoding, "bad old row");
        }
        change.before =
            (struct mr_tuple){.kind = (enum mr_tuple_kind)kind, .values = decoder->before};
        kind = mr_reader_u8(&decoding->reader);
    }
    if (kind != MR_TUPLE_NEW ||
        !read_tuple(&decoding->reader, relation->column_count, decoder->after)) {
        return malformed(decoding, "bad new row");
    }
    change.after = (struct mr_tuple){.kind = MR_TUPLE_NEW, .values = decoder->after};
    return hand_over(decoding, &change);
}

/* Delete: Byte1('D') Int32(relation OID) Byte1('K' | 'O') TupleData */
static mr_status decode_delete(struct decoding *decoding)
{
    struct mr_relation *relation;
    MR_TRY(read_row_relation(decoding, &relation));
    struct mr_datum *before = decoding->decoder->before;
    uint8_t kind = mr_reader_u8(&decoding->reader);
    if ((kind != MR_TUPLE_KEY && kind != MR_TUPLE_FULL) ||
        !read_tuple(&decoding->reader, relation->column_count, before)) {
        return malformed(decoding, "bad old row");
    }
    struct mr_change change = change_of(decoding, MR_OP_DELETE, relation);
    change.before = (struct mr_tuple){.kind = (enum mr_tuple_kind)kind, .values = before};
    return hand_over(decoding, &change);
}

/* Truncate: Byte1('T') Int32(relations) Int8(1 = CASCADE, 2 = RESTART IDENTITY) Int32(OID)…
 * One change a relation. The whole message is checked before the first is handed over. */
static mr_status decode_truncate(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    uint32_t count = mr_reader_u32(&decoding->reader);
    uint8_t options = mr_reader_u8(&decoding->reader);
    if (decoding->reader.failed || (size_t)count * 4 != mr_reader_left(&decoding->reader)) {
        return malformed(decoding, "its length does not fit its count of relations");
    }
    if (!decoder->in_transaction) {
        return malformed(decoding, "no transaction is open");
    }
    if (options > 3) {
        return malformed(decoding, "unknown options");
    }
    struct mr_reader first = decoding->reader;
    for (uint32_t i = 0; i < count; i++) {
        if (mr_relation_cache_get(&decoder->relations, mr_reader_u32(&first)) == NULL) {
            return malformed(decoding, "a relation was not announced");
        }
    }
    struct mr_change change = change_of(decoding, MR_OP_TRUNCATE, NULL);
    const struct mr_source_handler *handler = decoding->handler;
    for (uint32_t i = 0; i < count; i++) {
        change.relation =
            mr_relation_cache_get(&decoder->relations, mr_reader_u32(&decoding->reader));
        MR_TRY(handler->change(handler->context, &change, decoding->ret_error));
        change.position.ordinal++;
    }
    decoder->ordinal += count;
    return MR_OK;
}

/* Message: Byte1('M') Int8(1 = transactional) Int64(LSN) String(prefix) Int32(length) Bytes
 * A non-transactional one is sent when its record is decoded, hence between transactions, because protocol
 * version 1 sends each transaction as a whole at its commit. */
static mr_status decode_message(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    uint8_t flags = mr_reader_u8(&decoding->reader);
    mr_lsn lsn = mr_reader_u64(&decoding->reader);
    mr_slice prefix = mr_reader_string(&decoding->reader);
    uint32_t len = mr_reader_u32(&decoding->reader);
    mr_slice content = mr_reader_slice(&decoding->reader, len);
    MR_TRY(expect_end(decoding));
    if (flags > 1) {
        return malformed(decoding, "unknown flags");
    }
    bool transactional = flags == 1;
    if (transactional != decoder->in_transaction) {
        return malformed(decoding,
                         transactional ? "no transaction is open" : "a transaction is open");
    }
    struct mr_message_event message = {
        .lsn = lsn,
        .position = transactional ? next_position(decoder)
                                  : (struct mr_position){.commit_lsn = lsn, .ordinal = 0},
        .transaction = transactional ? &decoder->transaction : NULL,
        .prefix = prefix,
        .content = content,
    };
    const struct mr_source_handler *handler = decoding->handler;
    MR_TRY(handler->message(handler->context, &message, decoding->ret_error));
    decoder->ordinal += transactional;
    return MR_OK;
}

mr_status mr_pgoutput_decode(struct mr_pgoutput *decoder, mr_lsn lsn, mr_slice message,
                             const struct mr_source_handler *handler, struct mr_error *ret_error)
{
    struct decoding decoding = {
        .decoder = decoder,
        .reader = mr_reader_init(message),
        .lsn = lsn,
        .handler = handler,
        .ret_error = ret_error,
    };
    decoding.type = mr_reader_u8(&decoding.reader);
    switch (decoding.type) {
    case 'I':
        return decode_insert(&decoding);
    case 'U':
        return decode_update(&decoding);
    case 'D':
        return decode_delete(&decoding);
    case 'B':
        return decode_begin(&decoding);
    case 'C':
        return decode_commit(&decoding);
    case 'R':
        return decode_relation(&decoding);
    case 'Y':
        return decode_type(&decoding);
    case 'O':
        return decode_origin(&decoding);
    case 'T':
        return decode_truncate(&decoding);
    case 'M':
        return decode_message(&decoding);
    default:
        /* Streamed (S E c A) and prepared (b P K r p) transactions are not asked for. */
        return malformed(&decoding, "a message of this type was not asked for");
    }
}
