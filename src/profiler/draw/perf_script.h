/* Reads what `perf script -F comm,tid,ip,sym,dso --no-inline` prints and adds it to a flame graph.
 *
 * Lines may come one by one, so that a large profile need not be in memory. One thread.
 */
#ifndef MR_FLAME_PERF_SCRIPT_H
#define MR_FLAME_PERF_SCRIPT_H

#include "profiler/draw/flame.h"

struct mr_perf_script;

/* `program` is the file name whose functions stand without "[library]" (for instance "millrace"). */
struct mr_perf_script *mr_perf_script_new(struct mr_flame *flame, mr_flame_side side,
                                          const char *program);

/* One line without its end. */
void mr_perf_script_line(struct mr_perf_script *script, const char *line, size_t len);

/* Adds the last stack and answers how many were read. Frees `script`. */
size_t mr_perf_script_done(struct mr_perf_script *script);

#endif
