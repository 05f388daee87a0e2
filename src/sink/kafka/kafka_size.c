#include "sink/kafka/kafka_size.h"

#include "sink/kafka/kafka.h"
#include "sink/record_headers.h"

#ifdef MILLRACE_CODECS
#include <librdkafka/rdkafka.h>
#include <lz4frame.h>
#include <zlib.h>
#include <zstd.h>
#endif

enum {
    BATCH_HEAD_BYTES = 61, /* org.apache.kafka.common.record.DefaultRecordBatch */
    VARINT_MAX = 5,
};

/* Where the record is written, or its bytes are counted, when `to` is NULL. */
struct wire {
    uint8_t *to;
    size_t len;
};

static void wire_bytes_add(struct wire *wire, const void *data, size_t len)
{
    if (wire->to != NULL && len > 0) {
        memcpy(wire->to + wire->len, data, len);
    }
    wire->len += len;
}

static void wire_byte(struct wire *wire, uint8_t byte)
{
    wire_bytes_add(wire, &byte, 1);
}

/* Zigzag, as each number in a record is. */
static void wire_number(struct wire *wire, int64_t number)
{
    uint64_t left = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; left > 0x7F; left >>= 7) {
        wire_byte(wire, (uint8_t)(left | 0x80));
    }
    wire_byte(wire, (uint8_t)left);
}

/* `data` NULL: null. */
static void wire_field(struct wire *wire, const void *data, size_t len)
{
    wire_number(wire, data == NULL ? -1 : (int64_t)len);
    wire_bytes_add(wire, data, data == NULL ? 0 : len);
}

static uint32_t own_count(const struct mr_record *record)
{
    uint32_t count = 0;
    struct mr_header own;
    for (size_t at = 0; mr_header_next(mr_record_headers(record), &at, &own);) {
        count++;
    }
    return count;
}

/* All that kafka_send.c gives librdkafka. */
static void wire_headers(struct wire *wire, const struct mr_kafka_options *options,
                         const struct mr_record *record)
{
    enum { OURS = 3 };
    wire_number(wire, own_count(record) + (options->headers ? OURS : 0));
    struct mr_header own;
    for (size_t at = 0; mr_header_next(mr_record_headers(record), &at, &own);) {
        wire_field(wire, own.name.data, own.name.len);
        wire_field(wire, own.value.data, own.value.len);
    }
    if (!options->headers) {
        return;
    }
    struct mr_record_headers text = {0};
    mr_record_headers_format(record, &text);
    wire_field(wire, MR_HEADER_POSITION, sizeof(MR_HEADER_POSITION) - 1);
    wire_field(wire, text.position, MR_POSITION_TEXT_LEN);
    wire_field(wire, MR_HEADER_XID, sizeof(MR_HEADER_XID) - 1);
    wire_field(wire, text.xid, text.xid_len);
    wire_field(wire, MR_HEADER_COMMIT_TIME, sizeof(MR_HEADER_COMMIT_TIME) - 1);
    wire_field(wire, text.commit_time, text.commit_time_len);
}

/* Without its length, which comes first. */
static void wire_record(struct wire *wire, const struct mr_kafka_options *options,
                        const struct mr_record *record)
{
    wire_byte(wire, 0);   /* attributes */
    wire_number(wire, 0); /* time and offset, from those of the batch */
    wire_number(wire, 0);
    wire_field(wire, record->key, record->key_len);
    wire_field(wire, record->value, record->value_len);
    wire_headers(wire, options, record);
}

static size_t record_len(const struct mr_kafka_options *options, const struct mr_record *record)
{
    struct wire counted = {0};
    wire_record(&counted, options, record);
    return counted.len;
}

static size_t plain_of(size_t len)
{
    struct wire counted = {.len = BATCH_HEAD_BYTES + len};
    wire_number(&counted, (int64_t)len);
    return counted.len;
}

size_t mr_kafka_plain_size(const struct mr_kafka_options *options, const struct mr_record *record)
{
    return plain_of(record_len(options, record));
}

#ifdef MILLRACE_CODECS

/* As librdkafka does (rdkafka_topic.c, rd_kafka_topic_new0), unless the level is set. */
static int level_of(const struct mr_kafka_options *options, int usual, int most)
{
    int level = usual;
    for (uint32_t i = 0; i < options->property_count; i++) {
        if (strcmp(options->properties[i].name, "compression.level") == 0) {
            int set = (int)strtol(options->properties[i].value, NULL, 10);
            level = set == -1 ? usual : set > most ? most : set;
        }
    }
    return level;
}

static size_t squeeze_gzip(const struct mr_kafka_options *options, struct wire bytes)
{
    enum { GZIP_BITS = 15 + 16, MEMORY_LEVEL = 8 };
    z_stream stream = {.next_in = bytes.to, .avail_in = (uInt)bytes.len};
    if (deflateInit2(&stream, level_of(options, Z_DEFAULT_COMPRESSION, Z_BEST_COMPRESSION),
                     Z_DEFLATED, GZIP_BITS, MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK) {
        return 0;
    }
    size_t room = deflateBound(&stream, bytes.len);
    MR_FREED uint8_t *out = MR_ALLOC(room);
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    size_t len = deflate(&stream, Z_FINISH) == Z_STREAM_END ? stream.total_out : 0;
    deflateEnd(&stream);
    return len;
}

static size_t squeeze_zstd(const struct mr_kafka_options *options, struct wire bytes)
{
    enum { USUAL = 3, MOST = 22 };
    size_t room = ZSTD_compressBound(bytes.len);
    MR_FREED void *out = MR_ALLOC(room);
    size_t len = ZSTD_compress(out, room, bytes.to, bytes.len, level_of(options, USUAL, MOST));
    return ZSTD_isError(len) ? 0 : len;
}

static size_t squeeze_lz4(int level, struct wire bytes)
{
    const LZ4F_preferences_t how = {.frameInfo = {.blockMode = LZ4F_blockIndependent},
                                    .compressionLevel = level};
    size_t room = LZ4F_compressFrameBound(bytes.len, &how);
    MR_FREED void *out = MR_ALLOC(room);
    size_t len = LZ4F_compressFrame(out, room, bytes.to, bytes.len, &how);
    return LZ4F_isError(len) ? 0 : len;
}

/* librdkafka's own. LZ4 does not stand in for it: of four letters at random that makes half as much
 * again. */
static size_t squeeze_snappy(struct wire bytes)
{
#ifdef MILLRACE_RDKAFKA_SEND_NOW
    return rd_kafka_snappy_size(bytes.to, bytes.len);
#else
    return 0;
#endif
}

/* 0: it can't be told. */
static size_t squeezed(const struct mr_kafka_options *options, struct wire bytes)
{
    enum { LZ4_MOST = 12 };
    switch (options->compression[0]) {
    case 'g':
        return squeeze_gzip(options, bytes);
    case 'z':
        return squeeze_zstd(options, bytes);
    case 'l':
        return squeeze_lz4(level_of(options, 0, LZ4_MOST), bytes);
    default:
        return squeeze_snappy(bytes);
    }
}

#else

static size_t squeezed(const struct mr_kafka_options *options, struct wire bytes)
{
    return 0;
}

#endif

struct mr_kafka_size mr_kafka_size_of(const struct mr_kafka_options *options,
                                      const struct mr_record *record)
{
    size_t len = record_len(options, record);
    struct mr_kafka_size size = {.plain = plain_of(len), .sent = plain_of(len)};
    if (strcmp(options->compression, "none") == 0) {
        return size;
    }
    struct wire bytes = {.to = MR_ALLOC(VARINT_MAX + len)};
    wire_number(&bytes, (int64_t)len);
    wire_record(&bytes, options, record);
    size_t sent = squeezed(options, bytes);
    free(bytes.to);
    /* What grows by it is sent as it is. */
    if (sent == 0 || BATCH_HEAD_BYTES + sent < size.plain) {
        size.sent = sent == 0 ? 0 : BATCH_HEAD_BYTES + sent;
    }
    return size;
}

bool mr_kafka_is_more(const void *options, const struct mr_record *record, size_t bytes_max,
                      size_t sent)
{
    if (mr_kafka_plain_size(options, record) <= bytes_max) {
        return false;
    }
    const struct mr_kafka_options *own = options;
    return strcmp(own->compression, "none") == 0 || mr_kafka_size_of(own, record).sent >= sent;
}
