#include "profiler/profiler.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "profiler/files.h"
#include "profiler/heap.h"

enum {
    DRAIN_INTERVAL_MS = 50,
    BUCKET_S = 5,
    BUCKETS = MR_PROFILER_MINUTE_S / BUCKET_S + 1, /* the last is being filled */
    NAMES_A_ROUND = 8,
    START_DELAY_S = 10, /* of the continuous profiler: start-up is not what a service does */
    NICE = 10,
    LOOK_INTERVAL_NS = 1000000000,
    HEAP_BUCKETS = 6, /* heap profiles are looked at every so many */
};

/* All under `lock`, which is taken before the symbols' lock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;    /* the profiler's thread */
    pthread_cond_t drained; /* a round is over */
    pthread_t thread;
    bool running;
    bool stop;
    struct mr_profiler_options options;
    uint64_t rounds;

    uint32_t hz;         /* of the sampler */
    uint32_t session_hz; /* 0: nobody asks for one; it is open once samples come so often */
    bool session_open;
    struct mr_profile session;
    int64_t session_start_ns;

    struct mr_profile buckets[BUCKETS];
    uint32_t bucket; /* being filled */
    int64_t bucket_start_ns;

    struct mr_profile interval;
    int64_t interval_start_ns; /* in the future until the start delay is over */

    int64_t looked_ns; /* at threads that are not sampled */
    uint64_t lost_before;
    struct mr_profiler_stats stats;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_continuous(void)
{
    return state.options.path[0] != '\0';
}

static bool interval_is_open(void)
{
    return is_continuous() && mr_monotonic_ns() >= state.interval_start_ns;
}

static uint32_t open_profiles(struct mr_profile *ret[3])
{
    uint32_t count = 0;
    ret[count++] = &state.buckets[state.bucket];
    if (state.session_open) {
        ret[count++] = &state.session;
    }
    if (interval_is_open()) {
        ret[count++] = &state.interval;
    }
    return count;
}

static void add_to_all(const struct mr_stack *stack, const struct mr_profile_entry *entry,
                       bool truncated)
{
    struct mr_profile *profiles[3];
    uint32_t count = open_profiles(profiles);
    for (uint32_t i = 0; i < count; i++) {
        mr_profile_add(profiles[i], stack->locations, entry);
        profiles[i]->samples++;
        profiles[i]->rooted += stack->rooted;
        profiles[i]->truncated += truncated;
        profiles[i]->period = 1000000000 / state.hz;
    }
}

static void on_sample(void *context, const struct mr_sample *sample)
{
    static struct mr_stack stack; /* large; the profiler's thread alone */
    mr_symbols_unwind(sample, &stack);
    struct mr_profile_entry entry = {
        .stack_count = stack.count,
        .thread = mr_symbols_intern(sample->thread),
        .table = mr_symbols_intern(sample->table),
        .values = {(int64_t)sample->count, (int64_t)sample->cpu_ns},
    };
    add_to_all(&stack, &entry, sample->truncated);
}

/* What threads have used that never registered. */
static void add_unsampled(void)
{
    static int64_t cpu_ns; /* since the last sample of it */
    int64_t period_ns = 1000000000 / state.hz;
    cpu_ns += (int64_t)mr_sampler_unsampled();
    if (cpu_ns < period_ns) {
        return;
    }
    struct mr_stack stack = {.count = 1, .rooted = true};
    stack.locations[0] = mr_symbols_pseudo("[unsampled]");
    struct mr_profile_entry entry = {
        .stack_count = 1,
        .thread = mr_symbols_intern("other"),
        .values = {cpu_ns / period_ns, cpu_ns},
    };
    add_to_all(&stack, &entry, false);
    cpu_ns = 0;
}

/* What rings could not take goes to the account of every open profile. */
static void note_lost(void)
{
    uint64_t lost = mr_sampler_stats().lost;
    struct mr_profile *profiles[3];
    uint32_t count = open_profiles(profiles);
    for (uint32_t i = 0; i < count; i++) {
        profiles[i]->lost += lost - state.lost_before;
    }
    state.lost_before = lost;
}

/* A bucket is over: its time goes to the accounts of stages and tables. */
static void attribute(const struct mr_profile *profile)
{
    for (uint32_t i = 0; i < profile->count; i++) {
        const struct mr_profile_entry *entry = &profile->entries[i];
        uint64_t cpu_ns = (uint64_t)entry->values[1];
        state.stats.stage_cpu_ns[mr_profile_stage(profile, entry)] += cpu_ns;
        if (entry->table != 0) {
            mr_table_times_add(&state.stats.table_times, mr_symbols_text(entry->table), cpu_ns);
        }
    }
}

/* Counters never go back, though the estimates may. */
static void raise_to(uint64_t *counter, uint64_t estimate)
{
    *counter = estimate > *counter ? estimate : *counter;
}

/* What was allocated since the start, as far as jemalloc's samples tell; the newest look counts. */
static void attribute_heap(void)
{
    struct mr_profile profile;
    struct mr_error error;
    if (!mr_heap_is_active() || mr_heap_profile(&profile, &error) != MR_OK) {
        return;
    }
    uint64_t objects[MR_STAGES] = {0};
    uint64_t bytes[MR_STAGES] = {0};
    mr_symbols_lock();
    for (uint32_t i = 0; i < profile.count; i++) {
        enum mr_stage stage = mr_profile_stage(&profile, &profile.entries[i]);
        objects[stage] += (uint64_t)profile.entries[i].values[0];
        bytes[stage] += (uint64_t)profile.entries[i].values[1];
    }
    mr_symbols_unlock();
    for (int i = 0; i < MR_STAGES; i++) {
        raise_to(&state.stats.stage_alloc_objects[i], objects[i]);
        raise_to(&state.stats.stage_alloc_bytes[i], bytes[i]);
    }
    mr_profile_done(&profile);
}

static void turn_bucket(int64_t now_ns)
{
    struct mr_profile *full = &state.buckets[state.bucket];
    full->duration_ns = now_ns - state.bucket_start_ns;
    attribute(full);
    state.bucket = (state.bucket + 1) % BUCKETS;
    mr_profile_done(&state.buckets[state.bucket]);
    state.bucket_start_ns = now_ns;
}

static void set_frequency(void)
{
    bool always = is_continuous() || state.options.recorder;
    uint32_t hz = always ? state.options.frequency_hz : 0;
    if (state.session_hz > hz) {
        hz = state.session_hz;
    }
    if (hz != state.hz) {
        if (state.hz == 0) {
            (void)mr_sampler_unsampled(); /* of the time before */
        }
        state.hz = state.stats.frequency_hz = hz;
        mr_sampler_set(hz);
    }
}

static void profiler_drain(void)
{
    if (state.hz == 0) {
        return;
    }
    int64_t now_ns = mr_monotonic_ns();
    bool looks = now_ns - state.looked_ns >= LOOK_INTERVAL_NS;
    mr_symbols_lock();
    mr_sampler_drain(on_sample, NULL, looks);
    if (looks) {
        state.looked_ns = now_ns;
        add_unsampled();
    }
    note_lost();
    mr_symbols_name_some(NAMES_A_ROUND);
    bool turned = now_ns - state.bucket_start_ns >= BUCKET_S * INT64_C(1000000000);
    if (turned) {
        turn_bucket(now_ns);
    }
    mr_symbols_unlock();
    if (turned && state.bucket % HEAP_BUCKETS == 0) {
        attribute_heap();
    }
}

/* Writes the interval's files with the lock given back: rings hold what comes meanwhile. */
static void end_interval(void)
{
    struct mr_profile full = state.interval;
    int64_t now_ns = mr_monotonic_ns();
    full.duration_ns = now_ns - state.interval_start_ns;
    mr_profile_init(&state.interval, MR_PROFILE_CPU);
    state.interval_start_ns = now_ns;
    pthread_mutex_unlock(&state.lock);
    mr_status status = mr_files_add(&state.options, &full);
    mr_profile_done(&full);
    pthread_mutex_lock(&state.lock);
    state.stats.files += status == MR_OK;
    state.stats.file_errors += status != MR_OK;
}

static bool interval_is_over(void)
{
    return interval_is_open() && mr_monotonic_ns() - state.interval_start_ns >=
                                     state.options.interval_s * INT64_C(1000000000);
}

static void wait_a_round(void)
{
    int64_t until_ns = mr_monotonic_ns() + DRAIN_INTERVAL_MS * INT64_C(1000000);
    if (state.hz == 0) {
        pthread_cond_wait(&state.wake, &state.lock);
    } else {
        mr_cond_wait_until(&state.wake, &state.lock, until_ns);
    }
}

static void *profiler_main(void *context)
{
    prctl(PR_SET_NAME, "mr-profiler");
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    mr_thread_begin(MR_THREAD_PROFILER, "mr-profiler");
    pthread_mutex_lock(&state.lock);
    while (!state.stop) {
        set_frequency();
        profiler_drain();
        state.rounds++;
        pthread_cond_broadcast(&state.drained);
        state.stats.thread_ns = (uint64_t)mr_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        if (interval_is_over()) {
            end_interval();
        } else {
            wait_a_round();
        }
    }
    profiler_drain();
    state.session_open = false;
    if (interval_is_open()) {
        end_interval();
    }
    mr_sampler_set(0);
    pthread_cond_broadcast(&state.drained);
    pthread_mutex_unlock(&state.lock);
    mr_thread_end();
    return NULL;
}

mr_status mr_profiler_start(const struct mr_profiler_options *options, struct mr_error *ret_error)
{
    MR_ASSERT(!state.running);
    if (options->path[0] != '\0') {
        MR_TRY(mr_files_begin(options->path, ret_error));
    }
    state.options = *options;
    state.stop = false;
    mr_cond_init(&state.wake);
    mr_cond_init(&state.drained);
    int64_t now_ns = mr_monotonic_ns();
    state.bucket_start_ns = now_ns;
    uint32_t delay_s = options->interval_s > 2 * START_DELAY_S ? START_DELAY_S : 0;
    mr_profile_init(&state.interval, MR_PROFILE_CPU);
    state.interval_start_ns = now_ns + delay_s * INT64_C(1000000000);
    MR_TRY(mr_thread_create(&state.thread, profiler_main, NULL, ret_error));
    state.running = true;
    return MR_OK;
}

void mr_profiler_stop(void)
{
    if (!state.running) {
        return;
    }
    pthread_mutex_lock(&state.lock);
    state.stop = true;
    pthread_cond_broadcast(&state.wake);
    pthread_mutex_unlock(&state.lock);
    pthread_join(state.thread, NULL);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        mr_profile_done(&state.buckets[i]);
    }
    mr_profile_done(&state.interval);
    mr_profile_done(&state.session);
    state.running = false;
}

mr_status mr_profiler_session_begin(uint32_t frequency_hz)
{
    MR_ASSERT(frequency_hz > 0 && frequency_hz <= MR_SAMPLER_HZ_MAX);
    if (!state.running) {
        return MR_ERR_USAGE;
    }
    pthread_mutex_lock(&state.lock);
    bool busy = state.session_hz != 0 || state.stop;
    if (busy) {
        pthread_mutex_unlock(&state.lock);
        return MR_FULL;
    }
    state.session_hz = frequency_hz;
    /* It begins when the timers run: on a busy machine the thread that sets them may come late. */
    while (!state.stop && state.hz < frequency_hz) {
        pthread_cond_signal(&state.wake);
        pthread_cond_wait(&state.drained, &state.lock);
    }
    mr_profile_init(&state.session, MR_PROFILE_CPU);
    state.session_start_ns = mr_monotonic_ns();
    state.session_open = !state.stop;
    state.session_hz = state.session_open ? frequency_hz : 0;
    bool is_open = state.session_open;
    pthread_mutex_unlock(&state.lock);
    return is_open ? MR_OK : MR_ERR_USAGE;
}

void mr_profiler_session_end(struct mr_profile *ret)
{
    pthread_mutex_lock(&state.lock);
    /* A whole round after this moment has seen all samples before it. */
    uint64_t until = state.rounds + 2;
    while (state.session_open && !state.stop && state.rounds < until) {
        pthread_cond_signal(&state.wake);
        pthread_cond_wait(&state.drained, &state.lock);
    }
    *ret = state.session;
    ret->duration_ns = mr_monotonic_ns() - state.session_start_ns;
    mr_profile_init(&state.session, MR_PROFILE_CPU);
    state.session_open = false;
    state.session_hz = 0;
    pthread_cond_signal(&state.wake);
    pthread_mutex_unlock(&state.lock);
}

void mr_profiler_last_minute(struct mr_profile *ret)
{
    mr_profile_init(ret, MR_PROFILE_CPU);
    if (!state.running) {
        return;
    }
    MR_HOLD(&state.lock);
    ret->start_wall_ns = mr_wall_ns();
    for (uint32_t i = 1; i <= BUCKETS; i++) {
        uint32_t number = (state.bucket + i) % BUCKETS;
        struct mr_profile *bucket = &state.buckets[number];
        bool is_current = number == state.bucket;
        ret->duration_ns +=
            is_current ? mr_monotonic_ns() - state.bucket_start_ns : bucket->duration_ns;
        mr_profile_merge(ret, bucket, 1);
    }
    ret->start_wall_ns -= ret->duration_ns;
}

void mr_profiler_name_all(void)
{
    bool more = true;
    while (more) {
        mr_symbols_lock();
        more = mr_symbols_name_some(NAMES_A_ROUND);
        mr_symbols_unlock();
    }
}

void mr_profiler_stats(struct mr_profiler_stats *ret)
{
    pthread_mutex_lock(&state.lock);
    *ret = state.stats;
    pthread_mutex_unlock(&state.lock);
    ret->sampler = mr_sampler_stats();
}
