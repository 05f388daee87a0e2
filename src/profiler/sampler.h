/* The sampler: a CPU timer a thread, whose signal handler copies registers and the used stack into
 * the thread's ring. It takes no lock, allocates nothing and calls no library; a full ring drops
 * the sample and counts it. The thread that drains unwinds. */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "base/thread.h"

enum {
    MR_SAMPLE_REGISTERS = 33, /* as DWARF numbers them; the program counter last */
    MR_SAMPLE_STACK_MAX = 32768,
    MR_SAMPLE_TABLE_MAX = 64,
    MR_SAMPLER_HZ_MAX = 1000,
};

/* One sample, valid during the call of the drain. */
struct mr_sample {
    uint32_t size;  /* in the ring, with its stack; 0: go on at the ring's beginning */
    bool truncated; /* the stack was longer than what is copied */
    const char *thread;
    char table[MR_SAMPLE_TABLE_MAX]; /* "" when none is known */
    uint64_t count;                  /* periods of CPU time that it stands for */
    uint64_t cpu_ns;                 /* the same in time */
    uint64_t registers[MR_SAMPLE_REGISTERS];
    uint64_t signature; /* bits of a return address that may hold one */
    uint64_t stack_address;
    const uint8_t *stack;
    size_t stack_len;
};

typedef void (*mr_sample_fn)(void *context, const struct mr_sample *sample);

/* Threads that begin from now on are known, by base/thread's hook; others are never interrupted,
 * and their CPU time shows as "[unsampled]". Not sampled, a thread costs a lock and a few hundred
 * bytes. Before they start. */
void mr_sampler_watch(void);

/* Samples every registered thread, now and later, `hz` times (1…1000) a second of its CPU time; 0
 * stops. Any thread. */
void mr_sampler_set(uint32_t hz);

/* Hands over what the rings hold and forgets threads that have ended. `renames`: reads the names of
 * librdkafka's threads again, which change when they learn their broker's number. One thread at a
 * time. */
void mr_sampler_drain(mr_sample_fn fn, void *context, bool renames);

/* CPU time that threads which never registered have used since the last call; the first answers for
 * all before. */
uint64_t mr_sampler_unsampled(void);

/* Since the start of the process, over all threads. */
struct mr_sampler_stats {
    uint64_t samples;
    uint64_t lost; /* dropped because a ring was full */
    uint64_t truncated;
    uint64_t handler_ns; /* spent in the handler */
    uint64_t handler_p50_ns, handler_p99_ns;
};
struct mr_sampler_stats mr_sampler_stats(void);
