/* One CopyData payload of the replication stream: data for the decoder, or a keepalive. Apart from
 * the connection, so that a test or a fuzzer plays payloads without a server. Source thread. */
#pragma once

#include "stream/pgoutput.h"

/* Answers as mr_pgoutput_decode does; after MR_FULL the same payload comes again. */
mr_status mr_pg_payload_take(struct mr_pgoutput *decoder, mr_slice payload,
                             const struct mr_source_handler *handler, struct mr_error *ret_error);
