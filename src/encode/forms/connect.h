/* Schemas in JSON, as Kafka Connect's JsonConverter puts them before a payload with schemas.enable
 * (org.apache.kafka.connect.json.JsonConverter, asJsonSchema): `{"schema":{…},"payload":…}`. Their
 * names and types are those of Debezium 3.7 (TableSchemaBuilder, SchemaFactory,
 * PostgresValueConverter). Inside encode/ only; the encoder's thread. */
#pragma once

#include "encode/encoder.h"

/* A plan's own parts of what comes before its payloads. It is freed at once. */
struct mr_connect {
    mr_slice key; /* all of it, up to the payload */
    /* The schema of a row, up to the name of the field that has it: `{…,"field":"`. Without an
     * envelope (MR_FORMAT_ROW) all of it, with the added fields, up to the payload. */
    mr_slice row;
    mr_slice end; /* of an envelope's, up to the payload; else what tells a delete, if null does */
    uint8_t text[];
};

struct mr_connect *mr_connect_new(const struct mr_encode_options *options,
                                  const struct mr_plan *plan);

/* What all envelopes have between the rows and the name, from `source` on. The caller frees it. */
struct mr_bytes mr_connect_around(void);

/* What stands around a payload: `schema` is all that comes before it. */
static inline void mr_connect_begin(struct mr_buffer *out, bool wraps, mr_slice schema)
{
    if (wraps) {
        mr_buffer_slice(out, schema);
    }
}

static inline void mr_connect_end(struct mr_buffer *out, bool wraps)
{
    mr_buffer_append(out, "}", wraps);
}

/* What comes before the payload of a record that belongs to no table. */
mr_slice mr_connect_transaction(bool is_key);
mr_slice mr_connect_heartbeat(bool is_key);

void mr_connect_message(struct mr_buffer *out, const struct mr_encode_options *options,
                        bool is_key);

/* Of the forms that have schemas: the key, with its schema where the options want one; a plan's
 * end; a message. */
void mr_wrapped_key(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_tuple *row, const struct mr_tuple *old);
void mr_wrapped_forget(struct mr_plan *plan);
bool mr_wrapped_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                        struct mr_buffer *out, struct mr_record *ret_record);
