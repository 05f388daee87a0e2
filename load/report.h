/* What a run showed, as text for people and as JSON. */
#ifndef LOAD_REPORT_H
#define LOAD_REPORT_H

#include <stdio.h>

#include "load.h"

struct load_step {
    double offered, written, delivered; /* events a second */
    double p99_ms;                      /* due to arrival */
    uint64_t in_flight;                 /* at its end */
    bool held;
};

struct load_sample {
    double at_s;
    uint64_t committed, delivered, retained;
    uint64_t memory;
};

struct load_report {
    const struct load_options *options;
    uint64_t committed, delivered, failed, repeated, late_transactions;
    double write_s;  /* first transaction due to last commit */
    double total_s;  /* first transaction due to last arrival */
    double drain_s;  /* last commit to last arrival */
    double absorb_s; /* burst: from its begin until the backlog was gone, 0: not seen */
    uint64_t in_flight_peak, memory_peak, retained_peak;
    struct load_histogram commit, latency, response;
    struct load_step steps[LOAD_STEPS_MAX];
    int step_count;
    const char *limit; /* ramp: what broke, NULL: nothing did */
    /* burst: from its first row due until its last event arrived, since the begin; 0: it did not */
    double burst_from_s, burst_to_s;
    int64_t begin_ns;   /* CLOCK_MONOTONIC, as perf's samples are stamped with -k CLOCK_MONOTONIC */
    const char *broken; /* what kept the load from being what was asked for; NULL: nothing */
    bool complete, interrupted;
    struct load_sample *samples;
    size_t sample_count;
};

void load_report_text(const struct load_report *report, FILE *out);
void load_report_json(const struct load_report *report, FILE *out);

#endif
