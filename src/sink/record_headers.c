#include "sink/record_headers.h"

static void format_hex(char *to, unsigned width, uint64_t value)
{
    static const char digits[] = "0123456789ABCDEF";
    for (unsigned i = width; i-- > 0;) {
        to[i] = digits[value & 0xF];
        value >>= 4;
    }
}

/* Writes from the front and answers the length. `to` has room for 20 digits at the most. */
static size_t format_decimal(char *to, uint64_t value)
{
    char reversed[20];
    size_t len = 0;
    do {
        reversed[len++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    for (size_t i = 0; i < len; i++) {
        to[i] = reversed[len - 1 - i];
    }
    return len;
}

/* Rows of one transaction follow each other: what they share is written once. */
static void format_transaction(const struct mr_record *record, struct mr_record_headers *headers)
{
    headers->commit_lsn = record->position.commit_lsn;
    headers->commit_time_us = record->commit_time_us;
    headers->of_xid = record->xid;
    format_hex(headers->position, 16, record->position.commit_lsn);
    headers->position[16] = '-';
    headers->position[27] = '-';
    headers->xid_len = format_decimal(headers->xid, record->xid);
    /* Commit times before 1970 don't occur; clocks that far off are clamped rather than written
     * signed. */
    uint64_t time_us = record->commit_time_us < 0 ? 0 : (uint64_t)record->commit_time_us;
    headers->commit_time_len = format_decimal(headers->commit_time, time_us);
}

void mr_record_headers_format(const struct mr_record *record, struct mr_record_headers *headers)
{
    MR_ASSERT(record->part < 10);
    if (record->position.commit_lsn != headers->commit_lsn || record->xid != headers->of_xid ||
        record->commit_time_us != headers->commit_time_us || headers->xid_len == 0) {
        format_transaction(record, headers);
    }
    format_hex(headers->position + 17, 10, record->position.ordinal);
    headers->position[28] = (char)('0' + record->part);
}
