#include "stream/pg_payload.h"

#include "base/clock.h"
#include "base/reader.h"
#include "event/lsn.h"

/* XLogData: Byte1('w') Int64(start of the data) Int64(end of WAL) Int64(time) Bytes
 * Primary keepalive: Byte1('k') Int64(end of WAL) Int64(time) Byte1(reply requested)
 * PostgreSQL documentation, "Streaming Replication Protocol". */
mr_status mr_pg_payload_take(struct mr_pgoutput *decoder, mr_slice payload,
                             const struct mr_source_handler *handler, struct mr_error *ret_error)
{
    struct mr_reader reader = mr_reader_init(payload);
    uint8_t type = mr_reader_u8(&reader);
    if (MR_LIKELY(type == 'w')) {
        const uint8_t *start = mr_reader_take(&reader, 3 * sizeof(uint64_t));
        mr_slice message = {.data = reader.at, .len = mr_reader_left(&reader)};
        if (!reader.failed) {
            uint64_t place, sent;
            memcpy(&place, start, sizeof(place));
            if (MR_LIKELY(handler->sent_us != NULL)) {
                memcpy(&sent, start + 2 * sizeof(place), sizeof(sent));
                *handler->sent_us = (int64_t)(__builtin_bswap64(sent) + MR_PG_EPOCH_US);
            }
            mr_lsn lsn = mr_lsn_of_server(__builtin_bswap64(place));
            return mr_pgoutput_decode(decoder, lsn, message, handler, ret_error);
        }
    } else if (type == 'k') {
        mr_lsn server_end = mr_lsn_of_server(mr_reader_u64(&reader));
        mr_reader_take(&reader, 8);
        bool reply = mr_reader_u8(&reader) != 0;
        if (!reader.failed) {
            handler->keepalive(handler->context, server_end, reply);
            return MR_OK;
        }
    }
    return mr_fail(ret_error, MR_ERR_PROTOCOL,
                   "the replication stream holds a message that is neither data nor keepalive");
}
