#include "profiler/sampler.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/file.h"
#include "profiler/heap.h"
#include "profiler/registers.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
    /* At 250 signals a second (the kernel's tick bounds them) and 2.5 KB each, most of a second. */
    RING_BYTES = 512 * 1024,
    SAMPLE_ALIGN = 16,
    /* Frames above the registering call: the thread's entry and what the C library puts before
     * it. */
    TOP_MARGIN = 4096,
    HANDLER_BUCKETS = 128,
    HANDLER_BUCKET_NS = 250,
};

/* Made by the thread itself, listed under `lock`; the handler alone writes tail. */
struct thread {
    struct thread *next;
    pid_t tid;
    enum mr_thread_role role;
    char name[16];
    uintptr_t stack_top;
    _Atomic bool ended;
    bool armed;
    timer_t timer;
    _Atomic uint64_t period_ns;  /* 0: not sampled */
    _Atomic uint64_t counted_ns; /* of the thread's CPU clock: samples stand for all before */
    uint8_t *ring;
    _Atomic uint64_t head; /* the drain's */
    _Atomic uint64_t tail;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct thread *threads;
static uint32_t current_hz;
static bool draining;         /* somebody walks the list without the lock */
static uint64_t ended_cpu_ns; /* of threads that have ended */

/* Of all threads; handlers add to them. */
static struct {
    _Atomic uint64_t samples, lost, truncated, handler_ns;
    _Atomic uint64_t handler_times[HANDLER_BUCKETS];
} totals;

static _Thread_local struct thread *self __attribute__((tls_model("initial-exec")));

static void sampler_count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* Room for a sample and its stack in one piece, or NULL. `ret_end` is the tail that publishes
 * it. */
static struct mr_sample *reserve(struct thread *thread, size_t size, uint64_t *ret_end)
{
    uint64_t tail = atomic_load_explicit(&thread->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&thread->head, memory_order_acquire);
    size_t at = tail % RING_BYTES;
    size_t skip = at + size > RING_BYTES ? RING_BYTES - at : 0;
    if (tail + skip + size - head > RING_BYTES) {
        return NULL;
    }
    if (skip > 0) {
        ((struct mr_sample *)(void *)(thread->ring + at))->size = 0;
        at = 0;
    }
    *ret_end = tail + skip + size;
    return (struct mr_sample *)(void *)(thread->ring + at);
}

static size_t copy_text(char *to, size_t at, const char *text)
{
    for (; at < MR_SAMPLE_TABLE_MAX - 1 && *text != '\0'; text++) {
        to[at++] = *text;
    }
    return at;
}

static void copy_table(char *to)
{
    size_t len = 0;
    if (mr_thread_work.table != NULL) {
        len = copy_text(to, len, mr_thread_work.schema);
        len = copy_text(to, len, ".");
        len = copy_text(to, len, mr_thread_work.table);
    }
    to[len] = '\0';
}

static void take_sample(struct thread *thread, const ucontext_t *context, uint64_t period_ns)
{
    uint64_t registers[MR_SAMPLE_REGISTERS];
    mr_registers_read(context, registers);
    uint64_t sp = registers[MR_DWARF_SP];
    size_t used = sp < thread->stack_top ? thread->stack_top - sp : 0;
    size_t copied = used < MR_SAMPLE_STACK_MAX ? used : MR_SAMPLE_STACK_MAX;
    size_t size =
        (sizeof(struct mr_sample) + copied + SAMPLE_ALIGN - 1) & ~(size_t)(SAMPLE_ALIGN - 1);
    uint64_t end;
    struct mr_sample *sample = reserve(thread, size, &end);
    if (sample == NULL) {
        sampler_count(&totals.lost, 1);
        return;
    }
    /* Not si_overrun: the clock also tells of periods whose signal never came. */
    uint64_t cpu_ns = (uint64_t)mr_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t counted_ns = atomic_load_explicit(&thread->counted_ns, memory_order_relaxed);
    uint64_t due = cpu_ns > counted_ns ? (cpu_ns - counted_ns) / period_ns : 0;
    if (due == 0) {
        return; /* a signal from before the timer was set again */
    }
    atomic_store_explicit(&thread->counted_ns, counted_ns + due * period_ns, memory_order_relaxed);
    sample->size = (uint32_t)size;
    sample->truncated = used > copied;
    sample->thread = thread->name;
    copy_table(sample->table);
    sample->count = due;
    sample->cpu_ns = due * period_ns;
    mr_copy_raw(sample->registers, registers, sizeof(registers));
    sample->signature = mr_signature_bits();
    sample->stack_address = sp;
    sample->stack = (const uint8_t *)(sample + 1);
    sample->stack_len = copied;
    mr_copy_raw(sample + 1, (const void *)(uintptr_t)sp, copied); /* NOLINT */
    atomic_store_explicit(&thread->tail, end, memory_order_release);
    sampler_count(&totals.samples, 1);
    sampler_count(&totals.truncated, used > copied);
}

static void on_signal(int signal_number, siginfo_t *info, void *context)
{
    struct thread *thread = self;
    uint64_t period_ns =
        thread == NULL ? 0 : atomic_load_explicit(&thread->period_ns, memory_order_acquire);
    if (period_ns == 0 || info->si_code != SI_TIMER) {
        return;
    }
    int saved_errno = errno;
    int64_t start_ns = mr_monotonic_ns();
    take_sample(thread, context, period_ns);
    uint64_t took_ns = (uint64_t)(mr_monotonic_ns() - start_ns);
    sampler_count(&totals.handler_ns, took_ns);
    uint64_t bucket = took_ns / HANDLER_BUCKET_NS;
    sampler_count(&totals.handler_times[bucket < HANDLER_BUCKETS ? bucket : HANDLER_BUCKETS - 1],
                  1);
    errno = saved_errno;
}

/* The kernel's name for another thread's CPU clock (clock_gettime(2), pthread_getcpuclockid(3)). */
static clockid_t thread_clock(pid_t tid)
{
    return (clockid_t)(~(unsigned)tid << 3 | 6);
}

static void disarm(struct thread *thread)
{
    atomic_store_explicit(&thread->period_ns, 0, memory_order_release);
    if (thread->armed) {
        timer_delete(thread->timer);
        thread->armed = false;
    }
}

static void arm(struct thread *thread, uint32_t hz)
{
    bool was_armed = thread->armed;
    disarm(thread);
    if (thread->ring == NULL) {
        void *ring =
            mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0); /* no faults in the handler */
        if (ring == MAP_FAILED) {
            return;
        }
        thread->ring = ring;
    }
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    event.sigev_notify_thread_id = thread->tid;
    struct timespec now;
    if (clock_gettime(thread_clock(thread->tid), &now) != 0 ||
        timer_create(thread_clock(thread->tid), &event, &thread->timer) != 0) {
        return;
    }
    thread->armed = true;
    uint64_t period_ns = 1000000000 / hz;
    if (!was_armed) {
        atomic_store_explicit(&thread->counted_ns,
                              (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec,
                              memory_order_relaxed);
    }
    atomic_store_explicit(&thread->period_ns, period_ns, memory_order_release);
    struct itimerspec spec = {
        .it_interval = {.tv_sec = (time_t)(period_ns / 1000000000),
                        .tv_nsec = (long)(period_ns % 1000000000)},
    };
    spec.it_value = spec.it_interval;
    timer_settime(thread->timer, 0, &spec, NULL);
}

void mr_sampler_set(uint32_t hz)
{
    MR_ASSERT(hz <= MR_SAMPLER_HZ_MAX);
    MR_HOLD(&lock);
    if (hz != current_hz) {
        /* Stays for good: a signal that is still on its way must find it. */
        struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(SIGPROF, &action, NULL);
        for (struct thread *thread = threads; thread != NULL; thread = thread->next) {
            if (hz == 0) {
                disarm(thread);
            } else if (!atomic_load(&thread->ended)) {
                arm(thread, hz);
            }
        }
        current_hz = hz;
    }
}

/* Under the lock, and while nobody walks the list. */
static void sampler_forget_ended(void)
{
    for (struct thread **link = &threads; *link != NULL;) {
        struct thread *thread = *link;
        bool drained = thread->head == thread->tail;
        if (atomic_load(&thread->ended) && drained) {
            *link = thread->next;
            if (thread->ring != NULL) {
                munmap(thread->ring, RING_BYTES);
            }
            free(thread);
        } else {
            link = &thread->next;
        }
    }
}

static uintptr_t stack_top(uintptr_t frame)
{
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return frame;
    }
    void *base;
    size_t size;
    pthread_attr_getstack(&attributes, &base, &size);
    pthread_attr_destroy(&attributes);
    uintptr_t end = (uintptr_t)base + size;
    return end - frame > TOP_MARGIN ? frame + TOP_MARGIN : end;
}

static void block_signal(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPROF);
    pthread_sigmask(how, &set, NULL);
}

/* Not inlined: its own frame is what the stack's top is measured from. */
__attribute__((noinline)) static void thread_begin(enum mr_thread_role role, const char *name)
{
    if (self != NULL) {
        return;
    }
    struct thread *thread = MR_NEW(struct thread);
    thread->tid = (pid_t)syscall(SYS_gettid);
    thread->role = role;
    snprintf(thread->name, sizeof(thread->name), "%s", name);
    thread->stack_top = stack_top((uintptr_t)__builtin_frame_address(0));
    self = thread;
    pthread_mutex_lock(&lock);
    if (!draining) {
        sampler_forget_ended();
    }
    thread->next = threads;
    threads = thread;
    if (current_hz != 0) {
        arm(thread, current_hz);
    }
    pthread_mutex_unlock(&lock);
    mr_heap_name_thread(name);
    /* librdkafka blocks every signal in its threads; only the thread itself can open this one. */
    block_signal(SIG_UNBLOCK);
}

static void sampler_thread_end(void)
{
    struct thread *thread = self;
    if (thread == NULL) {
        return;
    }
    block_signal(SIG_BLOCK);
    self = NULL;
    MR_HOLD(&lock);
    disarm(thread);
    ended_cpu_ns += (uint64_t)mr_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    atomic_store(&thread->ended, true);
}

void mr_sampler_watch(void)
{
    static const struct mr_thread_hooks hooks = {.begin = thread_begin, .end = sampler_thread_end};
    mr_thread_hook(&hooks);
}

static void drain_ring(struct thread *thread, mr_sample_fn fn, void *context)
{
    uint64_t head = atomic_load_explicit(&thread->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&thread->tail, memory_order_acquire);
    while (head < tail) {
        size_t at = head % RING_BYTES;
        const struct mr_sample *sample = (const void *)(thread->ring + at);
        if (sample->size == 0) {
            head += RING_BYTES - at;
        } else {
            fn(context, sample);
            head += sample->size;
        }
        atomic_store_explicit(&thread->head, head, memory_order_release);
    }
}

/* The next thread in the list after `thread` (NULL: the first). While draining none leaves the
 * list. */
static struct thread *sampler_next_thread(struct thread *thread)
{
    MR_HOLD(&lock);
    return thread == NULL ? threads : thread->next;
}

static void set_draining(bool now)
{
    MR_HOLD(&lock);
    MR_ASSERT(draining != now);
    draining = now;
    if (!now) {
        sampler_forget_ended();
    }
}

static void read_thread_name(pid_t tid, char *to, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)tid);
    if (!mr_file_read_head(path, to, size)) {
        snprintf(to, size, "thread");
    }
    to[strcspn(to, "\n")] = '\0';
}

void mr_sampler_drain(mr_sample_fn fn, void *context, bool renames)
{
    set_draining(true);
    for (struct thread *thread = sampler_next_thread(NULL); thread != NULL;
         thread = sampler_next_thread(thread)) {
        if (renames && thread->role == MR_THREAD_KAFKA && !atomic_load(&thread->ended)) {
            read_thread_name(thread->tid, thread->name, sizeof(thread->name));
        }
        if (thread->ring != NULL) {
            drain_ring(thread, fn, context);
        }
    }
    set_draining(false);
}

uint64_t mr_sampler_unsampled(void)
{
    static uint64_t reported_ns;
    pthread_mutex_lock(&lock);
    /* The process first: what a thread uses after that look is not missing from its own clock. */
    uint64_t process_ns = (uint64_t)mr_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t registered_ns = ended_cpu_ns;
    for (const struct thread *thread = threads; thread != NULL; thread = thread->next) {
        struct timespec used;
        if (!atomic_load(&thread->ended) && clock_gettime(thread_clock(thread->tid), &used) == 0) {
            registered_ns += (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
        }
    }
    pthread_mutex_unlock(&lock);
    uint64_t left_ns = process_ns > registered_ns ? process_ns - registered_ns : 0;
    uint64_t since_ns = left_ns > reported_ns ? left_ns - reported_ns : 0;
    reported_ns += since_ns;
    return since_ns;
}

/* The time that this part of the handler's runs took at most. */
static uint64_t quantile(double part)
{
    uint64_t calls = 0; /* the buckets only grow after they are added up */
    for (int i = 0; i < HANDLER_BUCKETS; i++) {
        calls += totals.handler_times[i];
    }
    uint64_t seen = 0;
    for (int i = 0; i < HANDLER_BUCKETS; i++) {
        seen += totals.handler_times[i];
        if (seen > 0 && (double)seen >= part * (double)calls) {
            return (uint64_t)(i + 1) * HANDLER_BUCKET_NS;
        }
    }
    return 0;
}

struct mr_sampler_stats mr_sampler_stats(void)
{
    return (struct mr_sampler_stats){
        .samples = totals.samples,
        .lost = totals.lost,
        .truncated = totals.truncated,
        .handler_ns = totals.handler_ns,
        .handler_p50_ns = quantile(0.50),
        .handler_p99_ns = quantile(0.99),
    };
}
