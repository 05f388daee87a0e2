/* Decoder for pgoutput, protocol version 1: the payload of one XLogData message to handler calls.
 * Layouts: PostgreSQL documentation, "Logical Replication Message Formats". The decoder owns the
 * relation cache and the state of the running transaction; it knows nothing of connections. One
 * thread. */
#pragma once

#include "ports/source.h"
#include "stream/relation_cache.h"

struct mr_pgoutput;

struct mr_pgoutput *mr_pgoutput_new(void);

/* Describes a relation that the stream announces, beyond what the message holds: sets the view's
 * flags, the types of its columns, and its key, for which there is room for column_count. Any
 * status but MR_OK is what decoding the message then answers; after MR_FULL it comes again. */
typedef mr_status (*mr_pgoutput_describe_fn)(void *context,
                                             const struct mr_transaction *transaction,
                                             struct mr_relation *view, struct mr_error *ret_error);

/* Without one, the key is what the relation's own flags say (mr_relation_flagged_key), and types
 * stay unknown. */
void mr_pgoutput_set_describe(struct mr_pgoutput *decoder, mr_pgoutput_describe_fn describe,
                              void *context);

/* Is told that the stream has shown one to be a partition, whose rows come as those of the root. */
typedef void (*mr_pgoutput_parted_fn)(void *context, const struct mr_relation *partition,
                                      const struct mr_relation *root);
void mr_pgoutput_set_parted(struct mr_pgoutput *decoder, mr_pgoutput_parted_fn parted,
                            void *context);

/* Relations may take so many bytes of memory; without it there is no limit but their number. */
void mr_pgoutput_limit_relations(struct mr_pgoutput *decoder, size_t bytes_max);

/* What becomes of logical messages. */
struct mr_pgoutput_messages {
    bool are_passed_on; /* each has a place among the changes of its transaction */
    const char *const
        *context_names;     /* of members of contexts (event/context.h), the caller's; … */
    uint32_t context_count; /* … 0: none is one */
    mr_counter *contexts;   /* counted there, by their outcome; NULL: nowhere */
};

/* Outside a transaction. Without it all are passed on, and none is a context. */
void mr_pgoutput_set_messages(struct mr_pgoutput *decoder,
                              const struct mr_pgoutput_messages *messages);

/* Frees relations without a word to anyone. Takes NULL. */
void mr_pgoutput_free(struct mr_pgoutput *decoder);

/* Forgets transaction, positions and relations, as after a reconnect, with a relation_end for each
 * relation. */
void mr_pgoutput_reset(struct mr_pgoutput *decoder, const struct mr_source_handler *handler);

/* Decodes one message (without the XLogData header) whose record begins at `lsn`. MR_FULL: the
 * handler had no room; call again with the same message, for which all positions are the same
 * again. MR_ERR_PROTOCOL: not what the manual allows; nothing of the message was handed over, and
 * the text names its type and LSN and holds no row data. Whatever the handler answers otherwise is
 * passed on.
 *
 * Values that the handler gets are slices of `message`; the transaction is the decoder's and stays
 * as it is until the next Begin; a relation stays until relation_end. No allocation but for
 * Relation messages that bring a new shape. */
mr_status mr_pgoutput_decode(struct mr_pgoutput *decoder, mr_lsn lsn, mr_slice message,
                             const struct mr_source_handler *handler, struct mr_error *ret_error);

/* The relation as the stream has announced it last; NULL: it has not. */
const struct mr_relation *mr_pgoutput_relation(const struct mr_pgoutput *decoder, uint32_t oid);

/* What the next message, an update, says of values that were put into its message
 * (stream/reselect.h); NULL: nothing. The caller's until then. */
void mr_pgoutput_set_later(struct mr_pgoutput *decoder, const struct mr_later *later);

/* True between Begin and Commit. */
bool mr_pgoutput_in_transaction(const struct mr_pgoutput *decoder);

/* Where the stream has come to, after it failed. */
struct mr_failed_place mr_pgoutput_place(const struct mr_pgoutput *decoder);

/* End LSN of the last transaction of this connection; 0: none has come. */
mr_lsn mr_pgoutput_last_commit(const struct mr_pgoutput *decoder);
