/* The process that proves tables for the daemon, beside it: a helper that is forked before the first thread and before millrace gives up
 * to start processes, and a child of it for each request, which proves and ends. So the memory of a proof is given back, an error in one
 * does not touch the stream, and where memory runs out it is the child that the kernel ends, or its own limit. It is no program that is
 * started: secrets that came by the environment are not there any more. Between millrace and the helper is a keeper, which does nothing but
 * fork another helper after one that was killed. All three are confined as millrace is, but that the first two may fork, have nothing open
 * that millrace had, and end with it.
 *
 * mr_prover_start is called once, before the first thread; all else on one thread. */
#pragma once

#include "config/config.h"

struct cJSON;
struct mr_prover;

enum { MR_PROVER_TABLES_MAX = 64 };

/* Called in the keeper, whose helpers fork, and in each child, which may only prove from then on. */
typedef void (*mr_prover_confine_fn)(struct mr_config *config, bool forks);

/* `config` outlives the prover. */
mr_status mr_prover_start(struct mr_config *config, mr_prover_confine_fn confine,
                          struct mr_prover **ret_prover, struct mr_error *ret_error);
void mr_prover_free(struct mr_prover *prover); /* ends what it does; NULL is fine */

/* Asks for a proof of these tables ("schema.table"), or, of none, for the list of all, while the one before has ended. `digest`: of the file
 * whose tables count, as a reload has read it; "": the one of the start. False: the keeper is gone. */
bool mr_prover_ask(struct mr_prover *prover, const char *digest, const char *const *tables,
                   uint32_t count);

/* While it is set, the proof goes no further than to the end of a chunk. */
void mr_prover_pause(struct mr_prover *prover, bool paused);

/* Waits so long for the next object, which the caller deletes: that of a table as `verify --json` has it, {"error":…}, and the last one of a
 * request, {"ended":…} with the status that waitpid answered, or {"lost":…} with that of the helper, which another one replaces. MR_AGAIN:
 * none has come, or `stop_fd` is readable. MR_END: the keeper is gone, and nobody proves any more. */
mr_status mr_prover_next(struct mr_prover *prover, int stop_fd, int ms, struct cJSON **ret_object);
