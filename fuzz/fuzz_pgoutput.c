/* One message of pgoutput against a decoder that knows two relations, in a transaction or outside
 * one (first byte). A message is taken whole or refused with a text, and then nothing of it was
 * handed over. */
#include <string.h>

#include "fuzz.h"
#include "stream/pgoutput.h"
#include "testing/pgoutput_builder.h"

enum { COMMIT_LSN = 0x2000, RECORD_LSN = 0x1000 };

struct seen {
    unsigned calls;
    unsigned bytes; /* summed, so that each byte of a value is read */
};

static void read_all(struct seen *seen, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        seen->bytes += data[i];
    }
}

static void read_tuple(struct seen *seen, const struct mr_tuple *tuple, uint32_t count)
{
    for (uint32_t i = 0; tuple->kind != MR_TUPLE_NONE && i < count; i++) {
        read_all(seen, tuple->values[i].data, tuple->values[i].len);
    }
}

static mr_status on_change(void *context, const struct mr_change *change, struct mr_error *error)
{
    (void)error;
    struct seen *seen = context;
    seen->calls++;
    read_tuple(seen, &change->before, change->relation->column_count);
    read_tuple(seen, &change->after, change->relation->column_count);
    return MR_OK;
}

static mr_status on_message(void *context, const struct mr_message_event *message,
                            struct mr_error *error)
{
    (void)error;
    struct seen *seen = context;
    seen->calls++;
    read_all(seen, message->prefix.data, message->prefix.len);
    read_all(seen, message->content.data, message->content.len);
    return MR_OK;
}

static mr_status on_transaction(void *context, const struct mr_transaction *transaction,
                                struct mr_error *ret_error)
{
    (void)ret_error;
    struct seen *seen = context;
    seen->calls++;
    read_all(seen, transaction->origin.data, transaction->origin.len);
    return MR_OK;
}

static void on_relation_end(void *context, const struct mr_relation *relation)
{
    struct seen *seen = context;
    seen->bytes += relation->oid + (unsigned)strlen(relation->table);
}

static void prepare(struct mr_pgoutput *decoder, const struct mr_source_handler *handler,
                    bool in_transaction)
{
    static const char *const columns[] = {"id", "v", "w"};
    static struct mr_wire wire;
    for (uint16_t count = 2; count <= 3; count++) {
        mr_wire_relation(&wire, count - 1, 'd', "t", columns, count);
        MR_ASSERT(mr_pgoutput_decode(decoder, RECORD_LSN, mr_wire_slice(&wire), handler, NULL) ==
                  MR_OK);
    }
    if (in_transaction) {
        mr_wire_begin(&wire, COMMIT_LSN, 1);
        MR_ASSERT(mr_pgoutput_decode(decoder, RECORD_LSN, mr_wire_slice(&wire), handler, NULL) ==
                  MR_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct seen seen = {0};
    const struct mr_source_handler handler = {
        .context = &seen,
        .change = on_change,
        .message = on_message,
        .begin = on_transaction,
        .commit = on_transaction,
        .relation_end = on_relation_end,
    };
    struct mr_pgoutput *decoder = mr_pgoutput_new();
    prepare(decoder, &handler, data[0] % 2 != 0);
    seen.calls = 0;
    struct mr_error error = {0};
    mr_slice message = {.data = data + 1, .len = size - 1};
    mr_status status = mr_pgoutput_decode(decoder, RECORD_LSN + 1, message, &handler, &error);
    MR_ASSERT(status == MR_OK ||
              (status == MR_ERR_PROTOCOL && error.text[0] != 0 && seen.calls == 0));
    mr_pgoutput_free(decoder);
    return 0;
}
