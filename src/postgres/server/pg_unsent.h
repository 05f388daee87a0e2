/* Where a transaction commits that the server can't send and whose Begin it did not send either.
 *
 * From 15 on pgoutput sends Begin right before the first change that it has made ready (pgoutput.c,
 * pgoutput_change): one that fails before, in a row filter, ends the stream without it. The error's
 * context tells where that change begins, not where its transaction commits, which is what
 * --skip-commit-lsn wants. A stream that begins after that commit does not fail any more, because
 * what commits before the start is left out (snapbuild.c, SnapBuildXactNeedsSkip); so the place is
 * found by streams that begin here and there, on connections of their own. They confirm nothing.
 * Source thread. */
#pragma once

#include "postgres/catalog/pg_options.h"

/* `change`: as mr_pg_failed_change has it. `from`: all that the publication sends and that commits
 * before it has come. The slot must be free. MR_ERR_TRANSIENT: not found within 30 s. */
mr_status mr_pg_unsent_find(const struct mr_pg_source_options *options, mr_lsn change, mr_lsn from,
                            int stop_fd, mr_lsn *ret_commit_lsn, struct mr_error *ret_error);
