/* Sampling, unwinding, folding and the pprof file, on threads that do a known amount of work. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/sanitized.h"
#include "profiler/draw/flame.h"
#include "profiler/profiler.h"
#include "testing/test.h"

enum { WORK_MS = 1500, FREQUENCY = 200 };

static _Atomic uint64_t sink;

/* Named, not inlined, not a tail call: they are looked for in the result. */
__attribute__((noinline)) static uint64_t prof_test_leaf(uint64_t seed)
{
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
    }
    return seed;
}

__attribute__((noinline)) static void prof_test_middle(int64_t cpu_ms)
{
    while (mr_clock_ns(CLOCK_THREAD_CPUTIME_ID) < cpu_ms * 1000000) {
        sink += prof_test_leaf(sink);
    }
}

struct worker {
    pthread_t thread;
    const char *name;
    enum mr_thread_role role;
    int64_t cpu_ms;
    uint64_t cpu_ns; /* out */
};

static void *prof_test_worker_main(void *context)
{
    struct worker *worker = context;
    mr_thread_begin(worker->role, worker->name);
    mr_thread_table("public", "orders");
    prof_test_middle(worker->cpu_ms);
    mr_thread_table(NULL, NULL);
    worker->cpu_ns = (uint64_t)mr_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    mr_thread_end();
    return NULL;
}

static void start_profiler(void)
{
    struct mr_profiler_options options = {.path = "", .frequency_hz = 200, .interval_s = 60};
    struct mr_error error;
    assert_int_equal(mr_profiler_start(&options, &error), MR_OK);
}

static void run_workers(struct worker *workers, int count, uint32_t hz, struct mr_profile *ret)
{
    start_profiler();
    assert_int_equal(mr_profiler_session_begin(hz), MR_OK);
    /* timers of threads that begin later are armed at once; this is for the first round */
    usleep(200000);
    for (int i = 0; i < count; i++) {
        pthread_create(&workers[i].thread, NULL, prof_test_worker_main, &workers[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    mr_profiler_session_end(ret);
}

static uint64_t thread_cpu_ns(const struct mr_profile *profile, const char *name)
{
    uint64_t cpu_ns = 0;
    for (uint32_t i = 0; i < profile->count; i++) {
        mr_symbols_lock();
        if (strcmp(mr_symbols_text(profile->entries[i].thread), name) == 0) {
            cpu_ns += (uint64_t)profile->entries[i].values[1];
        }
        mr_symbols_unlock();
    }
    return cpu_ns;
}

static uint8_t *prof_test_expand(const uint8_t *packed, size_t len, size_t *ret_len)
{
    enum { PLAIN_MAX = 16 << 20 };
    uint8_t *plain = MR_NEW_ARRAY(uint8_t, PLAIN_MAX);
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)packed,
                       .avail_in = (uInt)len,
                       .next_out = plain,
                       .avail_out = PLAIN_MAX};
    assert_int_equal(inflateInit2(&stream, 15 + 16), Z_OK);
    assert_int_equal(inflate(&stream, Z_FINISH), Z_STREAM_END);
    inflateEnd(&stream);
    *ret_len = stream.total_out;
    return plain;
}

/* A message's fields one by one, by the rules of protobuf and nothing of the product's; false at
 * its end. */
struct field {
    unsigned number;
    uint64_t value;
    mr_slice bytes;
};

static uint64_t take_varint(mr_slice *rest)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(rest->len > 0 && shift < 64);
        uint8_t byte = *rest->data++;
        rest->len--;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return value;
        }
    }
}

static bool prof_test_take_field(mr_slice *rest, struct field *ret)
{
    if (rest->len == 0) {
        return false;
    }
    uint64_t key = take_varint(rest);
    *ret = (struct field){.number = (unsigned)(key >> 3), .value = take_varint(rest)};
    if ((key & 7) == 2) {
        assert_true(ret->value <= rest->len);
        ret->bytes = (mr_slice){.data = rest->data, .len = ret->value};
        rest->data += ret->value;
        rest->len -= ret->value;
    } else {
        assert_int_equal(key & 7, 0);
    }
    return true;
}

struct looked_for {
    const char *text;
    bool ends; /* a text that ends so will do */
    bool seen;
};

static void look_at_text(mr_slice text, struct looked_for *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(wanted[i].text);
        wanted[i].seen |= (text.len == len || (wanted[i].ends && text.len > len)) &&
                          memcmp(text.data + text.len - len, wanted[i].text, len) == 0;
    }
}

/* Sanitizers make unwinding so slow that the profiler's thread falls behind, and deliver signals
 * late. */
#define SANITIZED (MR_ADDRESS_SANITIZER || MR_THREAD_SANITIZER)
#define SLACK     (MR_ADDRESS_SANITIZER ? 0.2 : MR_THREAD_SANITIZER ? 0.6 : 0.05)

/* The account of each thread holds, whatever else the machine does, because it is compared with the
 * thread's own clock. Of a lost sample nobody knows whose it was. */
static void test_sampler_is_fair(void **state)
{
    (void)state;
    struct worker workers[] = {
        {.name = "busy-a", .role = MR_THREAD_SOURCE, .cpu_ms = WORK_MS},
        {.name = "busy-b", .role = MR_THREAD_SINK, .cpu_ms = WORK_MS / 2},
    };
    struct mr_profile profile;
    run_workers(workers, 2, FREQUENCY, &profile);
    mr_profiler_stop();
    double lost_ns = (double)profile.lost * 1e9 / FREQUENCY;
    for (int i = 0; i < 2; i++) {
        double due_ns = (double)workers[i].cpu_ns;
        double part = (double)thread_cpu_ns(&profile, workers[i].name) / due_ns;
        if (part + lost_ns / due_ns < 1 - SLACK || part > 1 + SLACK) {
            fail_msg("thread %s got %.3f of what is due", workers[i].name, part);
        }
    }
    /* A machine that leaves the profiler's thread waiting for a second costs samples; they are
     * counted. */
    assert_true(profile.lost <= profile.samples / (SANITIZED ? 2 : 20));
    assert_true(SANITIZED || (double)profile.rooted >= 0.99 * (double)profile.samples);
    mr_profile_done(&profile);
}

static void test_folded_names_frames_and_thread(void **state)
{
    (void)state;
    struct worker worker = {.name = "busy-c", .role = MR_THREAD_SOURCE, .cpu_ms = 600};
    struct mr_profile profile;
    run_workers(&worker, 1, 1000, &profile);
    mr_profiler_stop();
    size_t len;
    char *text = mr_profile_folded(&profile, 1, MR_PROFILE_ROOT_THREAD, &len);
    assert_non_null(strstr(text, "busy-c;"));
    assert_non_null(strstr(text, "worker_main;prof_test_middle;prof_test_leaf "));
    free(text);
    mr_profile_done(&profile);
}

static void test_pprof_is_complete(void **state)
{
    (void)state;
    struct worker worker = {.name = "busy-d", .role = MR_THREAD_SOURCE, .cpu_ms = 600};
    struct mr_profile profile;
    run_workers(&worker, 1, 100, &profile);
    mr_profiler_stop();
    size_t len;
    size_t plain_len;
    uint8_t *packed = mr_profile_pprof(&profile, &len);
    uint8_t *plain = prof_test_expand(packed, len, &plain_len);
    struct looked_for wanted[] = {
        {.text = "cpu"},
        {.text = "nanoseconds"},
        {.text = "thread"},
        {.text = "table"},
        {.text = "public.orders"},
        {.text = "prof_test_leaf"},
        {.text = "prof_test.c", .ends = true},
        {.text = "unit-tests", .ends = true},
    };
    mr_slice rest = {.data = plain, .len = plain_len};
    struct field field;
    unsigned counts[15] = {0};
    uint64_t period = 0;
    while (prof_test_take_field(&rest, &field)) {
        assert_in_range(field.number, 1, 14);
        counts[field.number]++;
        period = field.number == 12 ? field.value : period;
        if (field.number == 6) {
            assert_true(counts[6] > 1 || field.bytes.len == 0); /* the first text is "" */
            look_at_text(field.bytes, wanted, MR_ARRAY_LEN(wanted));
        } else if (field.number == 13) { /* numbers of texts, packed */
            for (counts[13] = 0; field.bytes.len > 0; counts[13]++) {
                assert_in_range(take_varint(&field.bytes), 1, counts[6] - 1);
            }
        } else if (field.number < 6) { /* a message, whole */
            mr_slice inside = field.bytes;
            while (prof_test_take_field(&inside, &field)) {
                assert_in_range(field.number, 1, 10);
            }
        }
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(wanted); i++) {
        if (!wanted[i].seen) {
            fail_msg("no text \"%s\"", wanted[i].text);
        }
    }
    assert_int_equal(period, 10000000);
    assert_int_equal(counts[1], 2);  /* types of values */
    assert_int_equal(counts[13], 2); /* comments */
    for (int number = 2; number <= 5; number++) {
        assert_true(counts[number] > 0);
    }
    free(plain);
    free(packed);
    mr_profile_done(&profile);
}

static void test_one_session_at_a_time(void **state)
{
    (void)state;
    struct mr_profile profile;
    assert_int_equal(mr_profiler_session_begin(100), MR_ERR_USAGE);
    start_profiler();
    assert_int_equal(mr_profiler_session_begin(100), MR_OK);
    assert_int_equal(mr_profiler_session_begin(100), MR_FULL);
    mr_profiler_session_end(&profile);
    mr_profile_done(&profile);
    assert_int_equal(mr_profiler_session_begin(100), MR_OK);
    mr_profiler_session_end(&profile);
    mr_profile_done(&profile);
    mr_profiler_stop();
}

static void test_profile_merge_and_difference(void **state)
{
    (void)state;
    struct mr_profile a;
    struct mr_profile b;
    mr_profile_init(&a, MR_PROFILE_CPU);
    mr_profile_init(&b, MR_PROFILE_CPU);
    static const uint32_t stack[] = {3, 2, 1};
    struct mr_profile_entry entry = {.stack_count = 3, .thread = 1, .values = {1, 10}};
    mr_profile_add(&a, stack, &entry);
    mr_profile_add(&a, stack, &entry);
    entry.stack_count = 2;
    mr_profile_add(&a, stack, &entry);
    entry.table = 5;
    mr_profile_add(&a, stack, &entry);
    assert_int_equal(a.count, 3);
    assert_int_equal(a.entries[0].values[1], 20);
    mr_profile_merge(&b, &a, 1);
    mr_profile_merge(&b, &a, 1);
    assert_int_equal(b.count, 3);
    assert_int_equal(b.entries[0].values[1], 40);
    mr_profile_merge(&b, &a, -1);
    mr_profile_merge(&b, &a, -1);
    assert_int_equal(b.entries[0].values[1], 0);
    mr_profile_done(&a);
    mr_profile_done(&b);
}

static void test_what_is_beyond_the_room_goes_to_other(void **state)
{
    (void)state;
    struct mr_table_times times = {0};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) {
            char name[32];
            snprintf(name, sizeof(name), "public.t_%d", i);
            mr_table_times_add(&times, name, 10);
        }
    }
    assert_int_equal(times.count, MR_TABLE_TIMES_MAX);
    assert_string_equal(times.tables[0].name, "public.t_0");
    assert_int_equal(times.tables[0].cpu_ns, 30);
    assert_string_equal(times.tables[MR_TABLE_TIMES_MAX - 1].name, "other");
    assert_int_equal(times.tables[MR_TABLE_TIMES_MAX - 1].cpu_ns, 30 * (100 - 63));
}

int main(void)
{
    mr_sampler_watch();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile_merge_and_difference),
        cmocka_unit_test(test_sampler_is_fair),
        cmocka_unit_test(test_folded_names_frames_and_thread),
        cmocka_unit_test(test_pprof_is_complete),
        cmocka_unit_test(test_one_session_at_a_time),
        cmocka_unit_test(test_what_is_beyond_the_room_goes_to_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
