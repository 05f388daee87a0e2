#include "stream/pgoutput.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/reader.h"
#include "event/context.h"
#include "event/lsn.h"

enum {
    ORIGIN_MAX = 512, /* bytes of a replication origin's name, where PostgreSQL has its limit too */
    COLUMN_IN_IDENTITY = 1,
    TRUNCATE_OPTIONS = 1 | 2,
    MESSAGE_TRANSACTIONAL = 1,
    /* Three times this is what a table takes without its columns: flow/memory.c counts three bytes
     * for one of a description. */
    PLAN_BYTES = 256,
};

/* A record begins after LSN 0. */
#define NOTHING_YET ((struct mr_position){.ordinal = UINT64_MAX})

/* Of the Type messages since the last Relation. */
struct type_name {
    uint32_t oid;
    uint32_t name_at, len;
    uint8_t text[2 * MR_IDENTIFIER_MAX + 4];
};

struct type_names {
    struct type_name *items; /* NULL: none came yet */
    uint32_t count;
};

struct mr_pgoutput {
    struct type_names type_names;
    struct mr_relation_cache relations;
    /* Of the Relation messages that came last, with no other since: that one, and the one before
     * it. 0: none. */
    uint32_t announced, announced_before;
    mr_pgoutput_describe_fn describe; /* NULL: by the flags alone */
    void *describe_context;
    mr_pgoutput_parted_fn parted; /* NULL: nobody wants to know */
    void *parted_context;
    size_t relation_bytes_max;
    bool in_transaction;
    uint64_t ordinal;     /* of the last change that the handler took, */
    uint64_t messages;    /* and how many of them were messages */
    bool passes_messages; /* they have places among changes */
    mr_counter *contexts;
    struct mr_context context;
    struct mr_position last; /* the end of what came last; positions only grow */
    mr_lsn last_commit_lsn;  /* end LSN of the last transaction that ended */
    struct mr_transaction transaction;
    mr_lsn delist_at; /* the first place where a relation is not listed any more */
    char origin[ORIGIN_MAX];
    struct mr_datum before[MR_COLUMNS_MAX];
    struct mr_datum after[MR_COLUMNS_MAX];
    struct mr_column columns[MR_COLUMNS_MAX]; /* of the Relation message at hand */
    uint32_t key_columns[MR_COLUMNS_MAX];
};

/* What a message is decoded with: where it came from and where it goes. */
struct decoding {
    struct mr_pgoutput *decoder;
    struct mr_reader reader;
    const char *wrong; /* what a check of ours, not the reader, found first; else NULL */
    mr_lsn lsn;
    uint8_t type;
    const struct mr_source_handler *handler;
    struct mr_error *ret_error;
};

struct mr_pgoutput *mr_pgoutput_new(void)
{
    struct mr_pgoutput *decoder = MR_NEW(struct mr_pgoutput);
    decoder->last = NOTHING_YET;
    decoder->passes_messages = true;
    decoder->relation_bytes_max = SIZE_MAX;
    decoder->delist_at = UINT64_MAX;
    return decoder;
}

void mr_pgoutput_set_describe(struct mr_pgoutput *decoder, mr_pgoutput_describe_fn describe,
                              void *context)
{
    decoder->describe = describe;
    decoder->describe_context = context;
}

void mr_pgoutput_set_parted(struct mr_pgoutput *decoder, mr_pgoutput_parted_fn parted,
                            void *context)
{
    decoder->parted = parted;
    decoder->parted_context = context;
}

void mr_pgoutput_limit_relations(struct mr_pgoutput *decoder, size_t bytes_max)
{
    decoder->relation_bytes_max = bytes_max;
}

void mr_pgoutput_set_messages(struct mr_pgoutput *decoder,
                              const struct mr_pgoutput_messages *messages)
{
    MR_ASSERT(!decoder->in_transaction);
    decoder->passes_messages = messages->are_passed_on;
    decoder->context.names = messages->context_names;
    decoder->context.name_count = messages->context_count;
    decoder->contexts = messages->contexts;
}

void mr_pgoutput_free(struct mr_pgoutput *decoder)
{
    if (decoder != NULL) {
        mr_relation_cache_done(&decoder->relations);
        free(decoder->type_names.items);
        free(decoder);
    }
}

void mr_pgoutput_reset(struct mr_pgoutput *decoder, const struct mr_source_handler *handler)
{
    struct mr_relation_cache *cache = &decoder->relations;
    for (uint32_t i = 0; i < cache->by_oid.count; i++) {
        handler->relation_end(handler->context, cache->relations[i]);
    }
    mr_relation_cache_done(cache);
    decoder->in_transaction = false;
    decoder->ordinal = 0;
    decoder->last = NOTHING_YET;
    decoder->last_commit_lsn = 0;
    decoder->type_names.count = 0;
    decoder->announced = decoder->announced_before = 0;
    decoder->delist_at = UINT64_MAX;
    decoder->transaction = (struct mr_transaction){0};
}

const struct mr_relation *mr_pgoutput_relation(const struct mr_pgoutput *decoder, uint32_t oid)
{
    return mr_relation_cache_find(&decoder->relations, oid);
}

void mr_pgoutput_set_later(struct mr_pgoutput *decoder, const struct mr_later *later)
{
    decoder->transaction.later = later;
}

bool mr_pgoutput_in_transaction(const struct mr_pgoutput *decoder)
{
    return decoder->in_transaction;
}

mr_lsn mr_pgoutput_last_commit(const struct mr_pgoutput *decoder)
{
    return decoder->last_commit_lsn;
}

/* The server announces a table right before it makes a row of it ready (pgoutput.c,
 * pgoutput_change). */
struct mr_failed_place mr_pgoutput_place(const struct mr_pgoutput *decoder)
{
    const struct mr_relation *announced =
        mr_relation_cache_find(&decoder->relations, decoder->announced);
    if (announced != NULL) {
        return (struct mr_failed_place){.table = announced};
    }
    bool has_rows = decoder->in_transaction && decoder->ordinal > 0;
    return (struct mr_failed_place){.table = has_rows ? decoder->relations.last : NULL,
                                    .is_behind = true};
}

static const char *const type_names[UINT8_MAX + 1] = {
    ['B'] = "Begin",          ['C'] = "Commit",          ['D'] = "Delete",
    ['I'] = "Insert",         ['M'] = "Message",         ['O'] = "Origin",
    ['R'] = "Relation",       ['T'] = "Truncate",        ['U'] = "Update",
    ['Y'] = "Type",           ['S'] = "Stream Start",    ['E'] = "Stream Stop",
    ['c'] = "Stream Commit",  ['A'] = "Stream Abort",    ['b'] = "Begin Prepare",
    ['P'] = "Prepare",        ['K'] = "Commit Prepared", ['r'] = "Rollback Prepared",
    ['p'] = "Stream Prepare",
};

/* The text holds names of the protocol, numbers and positions, nothing of a row. */
__attribute__((cold)) MR_PRINTF(2, 3) static mr_status
    malformed(const struct decoding *decoding, const char *format, ...)
{
    char what[MR_ERROR_TEXT_MAX / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    const char *name = type_names[decoding->type];
    return mr_fail(decoding->ret_error, MR_ERR_PROTOCOL,
                   "pgoutput message 0x%02X (%s) at " MR_LSN_FORMAT ": %s", decoding->type,
                   name == NULL ? "unknown" : name, MR_LSN_ARGS(decoding->lsn), what);
}

/* Checks a field as it is read. The first that is wrong stops the reader, as a message's end
 * does. */
static void require(struct decoding *decoding, bool condition, const char *what)
{
    if (!condition && !decoding->reader.failed) {
        decoding->wrong = what;
        decoding->reader.failed = true;
    }
}

/* After the last field: all of them could be read, and they are all there is. */
static mr_status expect_end(const struct decoding *decoding)
{
    if (MR_UNLIKELY(decoding->reader.failed)) {
        return malformed(decoding, "%s",
                         decoding->wrong == NULL ? "it ends too early" : decoding->wrong);
    }
    if (MR_UNLIKELY(mr_reader_left(&decoding->reader) != 0)) {
        return malformed(decoding, "bytes are left over at its end");
    }
    return MR_OK;
}

static mr_status expect_transaction(const struct decoding *decoding)
{
    if (MR_UNLIKELY(!decoding->decoder->in_transaction)) {
        return malformed(decoding, "no transaction is open");
    }
    return MR_OK;
}

static mr_slice read_identifier(struct decoding *decoding)
{
    mr_slice text = mr_reader_string(&decoding->reader);
    require(decoding, text.len <= MR_IDENTIFIER_MAX, "an identifier is too long");
    return text;
}

/* In the message, which has its NUL; "" after an error. */
static const char *read_name(struct decoding *decoding)
{
    mr_slice text = read_identifier(decoding);
    return text.len == 0 ? "" : (const char *)text.data;
}

/* Microseconds since 1970, kept within what events can tell in nanoseconds since 1970: the years
 * 1678 to 2262. A commit time is the clock's, unless pg_replication_origin_xact_setup set it, which
 * takes any timestamp and the infinities (the ends of int64, DT_NOBEGIN and DT_NOEND of
 * utils/timestamp.h). */
static int64_t commit_time_of(int64_t since_2000_us, mr_lsn commit_lsn)
{
    const int64_t most = MR_EVENT_TIME_US_MAX;
    if (MR_LIKELY(since_2000_us >= -most - MR_PG_EPOCH_US &&
                  since_2000_us <= most - MR_PG_EPOCH_US)) {
        return since_2000_us + MR_PG_EPOCH_US;
    }
    mr_log(MR_LOG_WARN, "commit_time_out_of_range",
           "a transaction's commit time is before the year 1678 or after 2262, which events can't "
           "tell; they have the nearest time that they can",
           MR_LOG_LSN("commit_lsn", commit_lsn));
    return since_2000_us < 0 ? -most : most;
}

static bool is_behind_last(const struct mr_pgoutput *decoder, struct mr_position position)
{
    return mr_position_compare(position, decoder->last) > 0;
}

/* A place in the server's WAL; an origin's is another server's, and stays. */
static mr_lsn read_lsn(struct mr_reader *reader)
{
    return mr_lsn_of_server(mr_reader_u64(reader));
}

static void replace_relation(struct decoding *decoding, struct mr_relation *relation)
{
    struct mr_relation *replaced = mr_relation_cache_put(&decoding->decoder->relations, relation);
    if (replaced != NULL) {
        decoding->handler->relation_end(decoding->handler->context, replaced);
        mr_relation_free(&decoding->decoder->relations.layouts, replaced);
    }
}

/* What was a partition is none any more; the server does not describe it again for that. */
__attribute__((cold, noinline)) static void delist(struct decoding *decoding, mr_lsn commit_lsn)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    struct mr_relation_cache *cache = &decoder->relations;
    decoder->delist_at = UINT64_MAX;
    for (uint32_t i = 0; i < cache->by_oid.count; i++) {
        struct mr_relation view = *cache->relations[i];
        if (view.listed_until == 0) {
            continue;
        }
        if (view.listed_until <= commit_lsn) {
            view.is_unlisted = true;
            view.listed_until = 0;
            replace_relation(decoding, mr_relation_new(&cache->layouts, &view));
        } else if (view.listed_until < decoder->delist_at) {
            decoder->delist_at = view.listed_until;
        }
    }
}

/* Begin: Byte1('B') Int64(commit LSN) Int64(commit time, µs since 2000) Int32(xid) Transactions
 * come whole, in the order of their commit records (reorderbuffer.c, ReorderBufferCommit), whose
 * beginnings are the commit LSNs (decode.c, DecodeCommit: buf->origptr). */
static mr_status decode_begin(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    mr_lsn commit_lsn = read_lsn(&decoding->reader);
    int64_t commit_time = (int64_t)mr_reader_u64(&decoding->reader);
    uint32_t xid = mr_reader_u32(&decoding->reader);
    MR_TRY(expect_end(decoding));
    if (decoder->in_transaction) {
        return malformed(decoding, "a transaction is open already");
    }
    if (!is_behind_last(decoder, (struct mr_position){commit_lsn, 1})) {
        return malformed(decoding, "its commit LSN " MR_LSN_FORMAT " is not after " MR_LSN_FORMAT,
                         MR_LSN_ARGS(commit_lsn), MR_LSN_ARGS(decoder->last.commit_lsn));
    }
    decoder->transaction = (struct mr_transaction){
        .begin_lsn = decoding->lsn,
        .commit_lsn = commit_lsn,
        .last_commit_lsn = decoder->last_commit_lsn,
        .commit_time_us = commit_time_of(commit_time, commit_lsn),
        .xid = xid,
    };
    const struct mr_source_handler *handler = decoding->handler;
    MR_TRY(handler->begin(handler->context, &decoder->transaction, decoding->ret_error));
    decoder->last = (struct mr_position){commit_lsn, UINT64_MAX};
    decoder->ordinal = 0;
    decoder->messages = 0;
    decoder->in_transaction = true;
    if (MR_UNLIKELY(commit_lsn >= decoder->delist_at)) {
        delist(decoding, commit_lsn);
    }
    return MR_OK;
}

/* Commit: Byte1('C') Int8(flags, 0) Int64(commit LSN) Int64(end LSN) Int64(commit time)
 * The end LSN is the commit record's (DecodeCommit: buf->endptr). */
static mr_status decode_commit(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    uint8_t flags = mr_reader_u8(&decoding->reader);
    mr_lsn commit_lsn = read_lsn(&decoding->reader);
    mr_lsn end_lsn = read_lsn(&decoding->reader);
    mr_reader_u64(&decoding->reader); /* the time, as in Begin */
    require(decoding, flags == 0, "unknown flags");
    require(decoding, end_lsn > commit_lsn, "its end LSN is not after its commit LSN");
    MR_TRY(expect_end(decoding));
    MR_TRY(expect_transaction(decoding));
    if (commit_lsn != decoder->transaction.commit_lsn) {
        return malformed(decoding, "its commit LSN " MR_LSN_FORMAT " is not Begin's " MR_LSN_FORMAT,
                         MR_LSN_ARGS(commit_lsn), MR_LSN_ARGS(decoder->transaction.commit_lsn));
    }
    decoder->transaction.end_lsn = end_lsn;
    decoder->transaction.has_rows = decoder->ordinal > decoder->messages;
    const struct mr_source_handler *handler = decoding->handler;
    MR_TRY(handler->commit(handler->context, &decoder->transaction, decoding->ret_error));
    decoder->last_commit_lsn = end_lsn;
    decoder->in_transaction = false;
    return MR_OK;
}

/* Origin: Byte1('O') Int64(commit LSN on the origin) String(name); right after Begin (pgoutput.c,
 * send_repl_origin) */
static mr_status decode_origin(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    mr_lsn origin_lsn = mr_reader_u64(&decoding->reader);
    mr_slice name = mr_reader_string(&decoding->reader);
    require(decoding, name.len <= ORIGIN_MAX, "the origin's name is too long");
    MR_TRY(expect_end(decoding));
    MR_TRY(expect_transaction(decoding));
    memcpy(decoder->origin, name.data, name.len);
    decoder->transaction.origin =
        (mr_slice){.data = (const uint8_t *)decoder->origin, .len = name.len};
    decoder->transaction.origin_lsn = origin_lsn;
    return MR_OK;
}

static bool identity_known(uint8_t identity)
{
    return identity == MR_IDENTITY_DEFAULT || identity == MR_IDENTITY_NOTHING ||
           identity == MR_IDENTITY_FULL || identity == MR_IDENTITY_INDEX;
}

/* Int8(flags, 1 = in the identity) String(name) Int32(type OID) Int32(type modifier) */
static struct mr_column read_column(struct decoding *decoding)
{
    struct mr_reader *reader = &decoding->reader;
    struct mr_column column = {0};
    uint8_t flags = mr_reader_u8(reader);
    column.name = read_name(decoding);
    column.type_oid = mr_reader_u32(reader);
    column.type_modifier = (int32_t)mr_reader_u32(reader);
    column.in_identity = column.is_flagged = flags == COLUMN_IN_IDENTITY;
    require(decoding, flags <= COLUMN_IN_IDENTITY, "unknown flags of a column");
    return column;
}

/* Relation: Byte1('R') Int32(OID) String(schema, empty for pg_catalog) String(table)
 * Int8(replica identity) Int16(columns) and the columns */
static struct mr_relation read_relation(struct decoding *decoding)
{
    struct mr_reader *reader = &decoding->reader;
    struct mr_relation view = {.columns = decoding->decoder->columns,
                               .key_columns = decoding->decoder->key_columns};
    view.oid = mr_reader_u32(reader);
    view.schema = read_name(decoding);
    if (view.schema[0] == '\0') {
        view.schema = "pg_catalog";
    }
    view.table = read_name(decoding);
    uint8_t identity = mr_reader_u8(reader);
    view.identity = view.told_identity = (enum mr_replica_identity)identity;
    require(decoding, identity_known(identity), "unknown replica identity");
    view.column_count = mr_reader_u16(reader);
    require(decoding, view.column_count <= MR_COLUMNS_MAX, "too many columns");
    for (uint32_t i = 0; i < view.column_count && !reader->failed; i++) {
        view.columns[i] = read_column(decoding);
    }
    return view;
}

static mr_status describe(struct decoding *decoding, struct mr_relation *view)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    if (decoder->describe == NULL) {
        mr_relation_flagged_key(view);
        return MR_OK;
    }
    return decoder->describe(decoder->describe_context, &decoder->transaction, view,
                             decoding->ret_error);
}

static struct type_name *find_type_name(struct type_names *names, uint32_t oid)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (names->items[i].oid == oid) {
            return &names->items[i];
        }
    }
    return NULL;
}

static void keep_type_name(struct type_names *names, uint32_t oid, mr_slice schema, mr_slice name)
{
    if (names->count == MR_COLUMNS_MAX || find_type_name(names, oid) != NULL) {
        return;
    }
    if (names->items == NULL) {
        names->items = MR_NEW_ARRAY(struct type_name, MR_COLUMNS_MAX);
    }
    struct type_name *item = &names->items[names->count++];
    struct mr_buffer text = mr_buffer_init(item->text, sizeof(item->text));
    mr_buffer_slice(&text, schema);
    mr_buffer_append(&text, ".", schema.len > 0);
    item->oid = oid;
    item->name_at = (uint32_t)(text.at - item->text);
    mr_buffer_slice(&text, name);
    item->len = (uint32_t)(text.at - item->text);
    mr_buffer_append(&text, "", 1);
    MR_ASSERT(!text.full);
}

/* "public._mood" is "public.mood[]". */
static const char *array_name(struct type_name *item)
{
    uint8_t *name = item->text + item->name_at;
    if (item->len > item->name_at && *name == '_') {
        memmove(name, name + 1, item->len - item->name_at - 1);
        memcpy(item->text + item->len - 1, "[]", sizeof("[]"));
        item->len++;
        item->name_at = item->len; /* for the next column of that type */
    }
    return (const char *)item->text;
}

static void name_types(struct type_names *names, const struct mr_relation *view)
{
    for (uint32_t i = 0; i < view->column_count && names->count > 0; i++) {
        struct mr_column *column = &view->columns[i];
        struct type_name *item = find_type_name(names, column->type_oid);
        if (item != NULL) {
            column->type_name = column->type.is_array ? array_name(item) : (const char *)item->text;
        }
    }
    names->count = 0;
}

static void narrow(const struct mr_relation_cache *cache, struct mr_relation *view)
{
    for (uint32_t i = 0; i < cache->by_oid.count; i++) {
        if (cache->relations[i]->narrows == view->oid) {
            mr_relation_narrow(view, cache->relations[i]);
        }
    }
}

static mr_status take_relation(struct decoding *decoding, struct mr_relation *view)
{
    struct mr_relation_cache *cache = &decoding->decoder->relations;
    MR_TRY(expect_end(decoding));
    MR_TRY(describe(decoding, view));
    name_types(&decoding->decoder->type_names, view);
    const struct mr_relation *known = mr_relation_cache_find(cache, view->oid);
    if (known != NULL && known->is_narrowed) {
        narrow(cache, view);
    }
    if (known != NULL && mr_relation_matches(known, view)) {
        return MR_OK; /* announced again, as after each invalidation of the server's cache */
    }
    if (known == NULL && cache->by_oid.count == MR_RELATIONS_MAX) {
        return malformed(decoding, "more than %d relations", MR_RELATIONS_MAX);
    }
    struct mr_relation *relation = mr_relation_new(&cache->layouts, view);
    size_t freed = known == NULL ? 0 : mr_relation_own_bytes(known) + PLAN_BYTES;
    size_t bytes = cache->bytes + cache->layouts.bytes + cache->by_oid.count * PLAN_BYTES +
                   relation->bytes + PLAN_BYTES - freed;
    if (bytes > decoding->decoder->relation_bytes_max) {
        mr_relation_free(&cache->layouts, relation);
        return mr_fail(
            decoding->ret_error, MR_ERR_CONFIG,
            "the descriptions of the tables that the server sends take more than %zu "
            "bytes of memory (%u tables so far); raise pipeline.memory, or publish fewer "
            "tables",
            decoding->decoder->relation_bytes_max, cache->by_oid.count);
    }
    replace_relation(decoding, relation);
    if (view->listed_until != 0 && view->listed_until < decoding->decoder->delist_at) {
        decoding->decoder->delist_at = view->listed_until;
    }
    return MR_OK;
}

static mr_status decode_relation(struct decoding *decoding)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    struct mr_relation view = read_relation(decoding);
    MR_TRY(take_relation(decoding, &view));
    decoder->announced_before = decoder->announced;
    decoder->announced = view.oid;
    return MR_OK;
}

/* As the server says, but for the partitions that have less. */
static struct mr_relation view_anew(const struct mr_relation_cache *cache,
                                    const struct mr_relation *root, struct mr_column *columns)
{
    struct mr_relation view = *root;
    view.columns = memcpy(columns, root->columns, root->column_count * sizeof(*columns));
    view.identity = root->told_identity;
    view.is_narrowed = false;
    for (uint32_t i = 0; i < view.column_count; i++) {
        columns[i].in_identity = columns[i].is_flagged;
    }
    narrow(cache, &view);
    return view;
}

static void log_narrowed(const struct mr_relation *root, const struct mr_relation *leaf)
{
    mr_log(
        MR_LOG_WARN, "partition_identity",
        "the replica identity of a partition lacks columns that are in that of the table by which "
        "it is published: what it does not hold is not known of old rows; run ALTER TABLE … "
        "REPLICA IDENTITY FULL for each partition",
        MR_LOG_STR("schema", leaf->schema), MR_LOG_STR("partition", leaf->table),
        MR_LOG_STR("table", root->table));
}

/* Answers its version from now on. */
static const struct mr_relation *narrow_anew(struct decoding *decoding,
                                             const struct mr_relation *root,
                                             const struct mr_relation *leaf)
{
    struct mr_relation_cache *cache = &decoding->decoder->relations;
    struct mr_relation view = view_anew(cache, root, decoding->decoder->columns);
    if (mr_relation_matches(root, &view)) {
        return root;
    }
    if (leaf->narrows != 0) {
        log_narrowed(root, leaf);
    }
    struct mr_relation *narrowed = mr_relation_new(&cache->layouts, &view);
    replace_relation(decoding, narrowed);
    return narrowed;
}

/* A row right after Relation messages. With publish_via_partition_root the root's comes, then the
 * partition's, then the row, which names the root (pgoutput.c, maybe_send_schema). Of an old row
 * the partition's identity decides what is in the WAL (ExtractReplicaIdentity, heapam.c), and the
 * root's whether the message calls it whole (logicalrep_write_update and -_delete, proto.c):
 * columns that are not there come as nulls, and an update has no old row where the partition's
 * identity stays as it was. Later rows don't say which partition they are of. */
__attribute__((cold, noinline)) static mr_status follow_partition(struct decoding *decoding,
                                                                  uint32_t oid)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    struct mr_relation_cache *cache = &decoder->relations;
    const struct mr_relation *root = mr_relation_cache_find(cache, decoder->announced_before);
    struct mr_relation *leaf = mr_relation_cache_find(cache, decoder->announced);
    decoder->announced = decoder->announced_before = 0;
    if (root == NULL || leaf == NULL || root == leaf || root->oid != oid) {
        return MR_OK;
    }
    if (decoder->parted != NULL && !root->is_unlisted) {
        decoder->parted(decoder->parted_context, leaf, root);
    }
    leaf->narrows = mr_relation_is_less(leaf, root) ? oid : 0;
    if (leaf->narrows != 0 || root->is_narrowed) {
        root = narrow_anew(decoding, root, leaf);
    }
    const struct mr_source_handler *handler = decoding->handler;
    return handler->part == NULL || root->is_unlisted
               ? MR_OK
               : handler->part(handler->context, root, leaf, decoding->ret_error);
}

/* Type: Byte1('Y') Int32(OID) String(schema, empty for pg_catalog) String(name). Those of a
 * relation come right before it (pgoutput.c, send_relation_and_attrs); of a domain it is the name
 * of what that is over (proto.c, logicalrep_write_typ). */
static mr_status decode_type(struct decoding *decoding)
{
    uint32_t oid = mr_reader_u32(&decoding->reader);
    mr_slice schema = read_identifier(decoding);
    mr_slice name = read_identifier(decoding);
    MR_TRY(expect_end(decoding));
    keep_type_name(&decoding->decoder->type_names, oid, schema, name);
    return MR_OK;
}

/* TupleData: Int16(columns), each Byte1('n' | 'u' | 't' | 'b'), the last two with Int32(length)
 * Bytes
 *
 * The server counts the same columns here and in Relation (logicalrep_write_tuple, -_write_attrs),
 * so the counts are equal. The reader is copied so that it lives in registers, away from the stores
 * to `values`: 395 instead of 490 instructions for an Insert of seven columns. */
static void read_tuple(struct decoding *decoding, uint32_t column_count, struct mr_datum *values)
{
    struct mr_reader reader = decoding->reader;
    const char *wrong = NULL;
    if (MR_UNLIKELY(mr_reader_u16(&reader) != column_count)) {
        wrong = "a row has not as many values as its relation has columns";
        column_count = 0;
    }
    for (uint32_t i = 0; i < column_count; i++) {
        uint8_t kind = mr_reader_u8(&reader);
        uint32_t len = 0;
        const uint8_t *data = NULL;
        if (MR_LIKELY(kind == MR_DATUM_TEXT || kind == MR_DATUM_BINARY)) {
            len = mr_reader_u32(&reader);
            data = mr_reader_take(&reader, len);
        } else if (MR_UNLIKELY(kind != MR_DATUM_NULL && kind != MR_DATUM_UNCHANGED)) {
            wrong = "a value is of an unknown kind";
            break;
        }
        values[i] = (struct mr_datum){.data = data, .len = len, .kind = (enum mr_datum_kind)kind};
    }
    decoding->reader = reader;
    require(decoding, wrong == NULL, wrong);
}

static mr_status read_row_relation(struct decoding *decoding,
                                   const struct mr_relation **ret_relation)
{
    uint32_t oid = mr_reader_u32(&decoding->reader);
    MR_TRY(expect_transaction(decoding));
    if (MR_UNLIKELY(decoding->decoder->announced != 0)) {
        MR_TRY(follow_partition(decoding, oid));
    }
    const struct mr_relation *relation = mr_relation_cache_get(&decoding->decoder->relations, oid);
    if (MR_UNLIKELY(relation == NULL)) {
        return decoding->reader.failed ? expect_end(decoding)
                                       : malformed(decoding, "relation %u was not announced", oid);
    }
    *ret_relation = relation;
    return MR_OK;
}

/* Whole only where the relation at hand says FULL, too: an ALTER TABLE of the root alone has its
 * rows called otherwise, and does not have it announced again (rel_sync_cache_relation_cb,
 * pgoutput.c: by OID, and rows go by the partition's entry). */
static struct mr_tuple old_row(const struct mr_relation *relation, uint8_t kind,
                               const struct mr_datum *values)
{
    return (struct mr_tuple){
        .kind = relation->identity == MR_IDENTITY_FULL ? (enum mr_tuple_kind)kind : MR_TUPLE_KEY,
        .values = values};
}

static struct mr_position next_position(const struct mr_pgoutput *decoder)
{
    return (struct mr_position){
        .commit_lsn = decoder->transaction.commit_lsn,
        .ordinal = decoder->ordinal + 1,
    };
}

static struct mr_change pgoutput_change_of(const struct decoding *decoding, enum mr_op op,
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

static mr_status pgoutput_hand_over(struct decoding *decoding, const struct mr_change *change)
{
    MR_TRY(expect_end(decoding));
    const struct mr_source_handler *handler = decoding->handler;
    MR_TRY(handler->change(handler->context, change, decoding->ret_error));
    decoding->decoder->ordinal++;
    return MR_OK;
}

/* Insert: Byte1('I') Int32(relation OID) Byte1('N') TupleData */
static mr_status decode_insert(struct decoding *decoding)
{
    const struct mr_relation *relation;
    MR_TRY(read_row_relation(decoding, &relation));
    struct mr_datum *after = decoding->decoder->after;
    uint8_t kind = mr_reader_u8(&decoding->reader);
    require(decoding, kind == MR_TUPLE_NEW, "no new row where one must be");
    read_tuple(decoding, relation->column_count, after);
    struct mr_change change = pgoutput_change_of(decoding, MR_OP_INSERT, relation);
    change.after = (struct mr_tuple){.kind = MR_TUPLE_NEW, .values = after};
    return pgoutput_hand_over(decoding, &change);
}

/* Update: Byte1('U') Int32(relation OID) [Byte1('K' | 'O') TupleData] Byte1('N') TupleData */
static mr_status decode_update(struct decoding *decoding)
{
    const struct mr_relation *relation;
    MR_TRY(read_row_relation(decoding, &relation));
    struct mr_pgoutput *decoder = decoding->decoder;
    struct mr_change change = pgoutput_change_of(decoding, MR_OP_UPDATE, relation);
    uint8_t kind = mr_reader_u8(&decoding->reader);
    if (kind == MR_TUPLE_KEY || kind == MR_TUPLE_FULL) {
        read_tuple(decoding, relation->column_count, decoder->before);
        change.before = old_row(relation, kind, decoder->before);
        kind = mr_reader_u8(&decoding->reader);
    }
    require(decoding, kind == MR_TUPLE_NEW, "no new row where one must be");
    read_tuple(decoding, relation->column_count, decoder->after);
    change.after = (struct mr_tuple){.kind = MR_TUPLE_NEW, .values = decoder->after};
    return pgoutput_hand_over(decoding, &change);
}

/* Delete: Byte1('D') Int32(relation OID) Byte1('K' | 'O') TupleData */
static mr_status decode_delete(struct decoding *decoding)
{
    const struct mr_relation *relation;
    MR_TRY(read_row_relation(decoding, &relation));
    struct mr_datum *before = decoding->decoder->before;
    uint8_t kind = mr_reader_u8(&decoding->reader);
    require(decoding, kind == MR_TUPLE_KEY || kind == MR_TUPLE_FULL,
            "no old row where one must be");
    read_tuple(decoding, relation->column_count, before);
    struct mr_change change = pgoutput_change_of(decoding, MR_OP_DELETE, relation);
    change.before = old_row(relation, kind, before);
    return pgoutput_hand_over(decoding, &change);
}

static mr_status expect_announced(const struct decoding *decoding, mr_slice oids)
{
    struct mr_reader reader = mr_reader_init(oids);
    while (mr_reader_left(&reader) > 0) {
        uint32_t oid = mr_reader_u32(&reader);
        if (mr_relation_cache_get(&decoding->decoder->relations, oid) == NULL) {
            return malformed(decoding, "relation %u was not announced", oid);
        }
    }
    return MR_OK;
}

/* One change a relation. The ordinal moves when all are taken, so that after MR_FULL in the middle
 * the first ones come again at the positions they had. */
static mr_status hand_over_truncate(struct decoding *decoding, mr_slice oids)
{
    const struct mr_source_handler *handler = decoding->handler;
    struct mr_change change = pgoutput_change_of(decoding, MR_OP_TRUNCATE, NULL);
    struct mr_reader reader = mr_reader_init(oids);
    while (mr_reader_left(&reader) > 0) {
        change.relation =
            mr_relation_cache_get(&decoding->decoder->relations, mr_reader_u32(&reader));
        MR_TRY(handler->change(handler->context, &change, decoding->ret_error));
        change.position.ordinal++;
    }
    decoding->decoder->ordinal = change.position.ordinal - 1;
    return MR_OK;
}

/* Truncate: Byte1('T') Int32(relations) Int8(1 = CASCADE, 2 = RESTART IDENTITY) Int32(OID)…
 * The whole message is checked before the first relation is handed over. */
static mr_status decode_truncate(struct decoding *decoding)
{
    uint32_t count = mr_reader_u32(&decoding->reader);
    uint8_t options = mr_reader_u8(&decoding->reader);
    require(decoding, count >= 1 && count <= MR_RELATIONS_MAX, "no relation, or too many");
    require(decoding, (options & ~TRUNCATE_OPTIONS) == 0, "unknown options");
    mr_slice oids = mr_reader_slice(&decoding->reader, count * sizeof(uint32_t));
    decoding->decoder->announced = decoding->decoder->announced_before = 0;
    MR_TRY(expect_end(decoding));
    MR_TRY(expect_transaction(decoding));
    MR_TRY(expect_announced(decoding, oids));
    return hand_over_truncate(decoding, oids);
}

static void count_context(const struct mr_pgoutput *decoder, enum mr_context_outcome outcome)
{
    if (decoder->contexts != NULL) {
        mr_counter_add(&decoder->contexts[outcome], 1);
    }
}

/* Takes its place among the transaction's changes, unless messages have none: then rows have the
 * places that they have where the server does not send any, so a stream can go on in a transaction
 * whichever it was before. A context is heard again with the rest of its transaction, however much
 * of that was delivered. */
static mr_status hand_over_in_transaction(struct decoding *decoding,
                                          struct mr_message_event *message)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    MR_TRY(expect_transaction(decoding));
    enum mr_context_outcome outcome = MR_CONTEXT_TAKEN;
    if (message->is_context) {
        outcome =
            mr_context_read(&decoder->context, message->content, &decoder->transaction.headers);
    }
    if (decoder->passes_messages) {
        message->position = next_position(decoder);
        message->transaction = &decoder->transaction;
        const struct mr_source_handler *handler = decoding->handler;
        MR_TRY(handler->message(handler->context, message, decoding->ret_error));
        decoder->ordinal++;
        decoder->messages++;
    }
    if (message->is_context) {
        count_context(decoder, outcome);
    }
    return MR_OK;
}

/* The server sends such a message when it comes upon its record (ReorderBufferQueueMessage), and a
 * transaction as a whole when it comes upon the commit record; hence it stands between
 * transactions, never inside one. Its LSN is where its record ends (decode.c, logicalmsg_decode:
 * buf->endptr), a transaction's where the commit record begins (DecodeCommit: buf->origptr). So it
 * is after the commit LSN before it, and the next one may be equal to it; ordinal 0 stands before
 * that transaction's changes. */
static mr_status hand_over_alone(struct decoding *decoding, struct mr_message_event *message)
{
    struct mr_pgoutput *decoder = decoding->decoder;
    if (decoder->in_transaction) {
        return malformed(decoding, "it is not transactional, but a transaction is open");
    }
    message->position = (struct mr_position){.commit_lsn = message->lsn, .ordinal = 0};
    if (!is_behind_last(decoder, message->position)) {
        return malformed(decoding, "its LSN " MR_LSN_FORMAT " is not after " MR_LSN_FORMAT,
                         MR_LSN_ARGS(message->lsn), MR_LSN_ARGS(decoder->last.commit_lsn));
    }
    const struct mr_source_handler *handler = decoding->handler;
    if (decoder->passes_messages) {
        MR_TRY(handler->message(handler->context, message, decoding->ret_error));
        decoder->last = message->position;
    } else {
        handler->keepalive(handler->context, message->lsn, false); /* all before it was sent */
    }
    if (message->is_context) {
        count_context(decoder, MR_CONTEXT_ALONE);
    }
    return MR_OK;
}

/* Message: Byte1('M') Int8(1 = transactional) Int64(LSN) String(prefix) Int32(length) Bytes */
static mr_status decode_message(struct decoding *decoding)
{
    struct mr_reader *reader = &decoding->reader;
    struct mr_message_event message = {0};
    uint8_t flags = mr_reader_u8(reader);
    message.lsn = read_lsn(reader);
    message.prefix = mr_reader_string(reader);
    message.content = mr_reader_slice(reader, mr_reader_u32(reader));
    message.is_context = decoding->decoder->context.name_count > 0 &&
                         mr_slice_equal(message.prefix, MR_SLICE(MR_CONTEXT_PREFIX));
    require(decoding, flags <= MESSAGE_TRANSACTIONAL, "unknown flags");
    MR_TRY(expect_end(decoding));
    return flags == MESSAGE_TRANSACTIONAL ? hand_over_in_transaction(decoding, &message)
                                          : hand_over_alone(decoding, &message);
}

static mr_status decode_other(const struct decoding *decoding)
{
    static const uint8_t of_streaming[] = {'S', 'E', 'c', 'A'};
    static const uint8_t of_two_phase[] = {'b', 'P', 'K', 'r', 'p'};
    bool streams = memchr(of_streaming, decoding->type, sizeof(of_streaming)) != NULL;
    bool two_phase = memchr(of_two_phase, decoding->type, sizeof(of_two_phase)) != NULL;
    return malformed(decoding, "%s",
                     streams     ? "streaming of running transactions was not enabled"
                     : two_phase ? "two-phase commit was not enabled"
                                 : "protocol version 1 has no message of this type");
}

static mr_status decode_typed(struct decoding *decoding)
{
    switch (decoding->type) {
    case 'I':
        return decode_insert(decoding);
    case 'U':
        return decode_update(decoding);
    case 'D':
        return decode_delete(decoding);
    case 'B':
        return decode_begin(decoding);
    case 'C':
        return decode_commit(decoding);
    case 'R':
        return decode_relation(decoding);
    case 'Y':
        return decode_type(decoding);
    case 'O':
        return decode_origin(decoding);
    case 'T':
        return decode_truncate(decoding);
    case 'M':
        return decode_message(decoding);
    default:
        return decode_other(decoding);
    }
}

mr_status mr_pgoutput_decode(struct mr_pgoutput *decoder, mr_lsn lsn, mr_slice message,
                             const struct mr_source_handler *handler, struct mr_error *ret_error)
{
    if (MR_UNLIKELY(message.len == 0)) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "pgoutput message at " MR_LSN_FORMAT ": it is empty", MR_LSN_ARGS(lsn));
    }
    struct decoding decoding = {
        .decoder = decoder,
        .reader = mr_reader_init(message),
        .lsn = lsn,
        .handler = handler,
        .ret_error = ret_error,
    };
    decoding.type = mr_reader_u8(&decoding.reader);
    return decode_typed(&decoding);
}
