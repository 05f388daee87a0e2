/* How a thread makes itself known to the profiler: one call when it begins, one before it ends.
 *
 * A thread that never calls is never interrupted; its CPU time shows as "[unsampled]". Without a profiler
 * running, both calls cost a lock and a few hundred bytes. In a build without profiling they are empty.
 */
#ifndef MR_PROF_THREADS_H
#define MR_PROF_THREADS_H

/* What the thread is for; decides the stage of samples whose frames don't tell. */
enum mr_prof_role {
    MR_PROF_MAIN,
    MR_PROF_SOURCE,
    MR_PROF_SINK,
    MR_PROF_KAFKA, /* librdkafka's own */
    MR_PROF_HTTP,
    MR_PROF_MONITOR,
    MR_PROF_PROFILER,
    MR_PROF_ROLES
};

#ifdef MR_PROFILING

/* The calling thread may be sampled from now on. `name` is copied (15 bytes). Call it near the thread's
 * first function: stacks are followed up to this call's frame and a little beyond. Again: no effect. */
void mr_prof_thread_start(enum mr_prof_role role, const char *name);

/* No sample of the calling thread is taken after this. Without a start before: no effect. */
void mr_prof_thread_end(void);

/* What the calling thread works for; its signal handler alone reads it. */
struct mr_prof_work {
    const char *schema;
    const char *table; /* NULL: nothing in particular */
};
extern _Thread_local volatile struct mr_prof_work mr_prof_work
    __attribute__((tls_model("initial-exec")));

/* The table that the calling thread works for, until the next call; the texts must live until then. NULL:
 * none. Three stores. */
static inline void mr_prof_thread_table(const char *schema, const char *table)
{
    mr_prof_work.table = NULL; /* the handler may come in between */
    mr_prof_work.schema = schema;
    mr_prof_work.table = table;
}

#else

static inline void mr_prof_thread_start(enum mr_prof_role role, const char *name)
{
    (void)role;
    (void)name;
}

static inline void mr_prof_thread_end(void)
{
}

static inline void mr_prof_thread_table(const char *schema, const char *table)
{
    (void)schema;
    (void)table;
}

#endif
#endif
