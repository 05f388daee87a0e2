/* millrace-load: the conductor. It starts writers and reader, looks at them ten times a second, and ends the run. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/clock.h"
#include "database.h"
#include "reader.h"
#include "report.h"
#include "writer.h"

enum { TICK_MS = 100, BURST_IDS = 1000000000 };

volatile int load_interrupted;

struct run {
    const struct load_options *options;
    struct load_counters counters;
    struct load_database *database;
    struct load_reader *reader;
    struct load_writers *writers;
    struct load_writers *burst;
    struct load_report report;
    int64_t begin_ns;
    int64_t burst_ns; /* when it began */
    uint64_t budget_warned;
    bool budget_passed;
};

void load_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("millrace-load: ", stderr);
    char text[1024];
    vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\n")] = '\0';
    fprintf(stderr, "%s\n", text);
    va_end(arguments);
}

static void interrupt(int number)
{
    (void)number;
    load_interrupted = 1;
}

static double seconds_since(int64_t begin_ns)
{
    return (double)(mr_monotonic_ns() - begin_ns) / 1e9;
}

static uint64_t memory_peak(int pid)
{
    char path[64], line[256];
    unsigned long long kilobytes = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = pid == 0 ? NULL : fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmHWM: %llu", &kilobytes) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kilobytes * 1024;
}

static uint64_t in_flight(const struct run *run)
{
    uint64_t delivered = atomic_load(&run->counters.delivered);
    uint64_t committed = atomic_load(&run->counters.committed);
    return committed > delivered ? committed - delivered : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Each further tenth of the budget above 70 % is said once; at 95 % the load ends. */
static void watch_budget(struct run *run, struct load_slot slot)
{
    if (!slot.known || slot.budget == 0) {
        return;
    }
    uint64_t percent = slot.retained * 100 / slot.budget;
    if (percent >= 70 && percent / 10 > run->budget_warned) {
        run->budget_warned = percent / 10;
        load_say("warning: slot %s holds %.0f MB of WAL, %" PRIu64 " %% of its budget of %.0f MB",
                 run->options->slot, (double)slot.retained / 1e6, percent,
                 (double)slot.budget / 1e6);
    }
    if (percent >= 95 && !run->options->ignore_budget && !run->budget_passed) {
        run->budget_passed = true;
        load_say("the load ends before the slot is lost (--ignore-budget goes on)");
    }
}

static void look(struct run *run)
{
    struct load_report *report = &run->report;
    struct load_slot slot = load_database_slot(run->database);
    watch_budget(run, slot);
    uint64_t memory = memory_peak(run->options->pid);
    report->memory_peak = larger(report->memory_peak, memory);
    report->retained_peak = larger(report->retained_peak, slot.retained);
    report->samples =
        MR_REALLOC(report->samples, (report->sample_count + 1) * sizeof(*report->samples));
    report->samples[report->sample_count++] = (struct load_sample){
        .at_s = seconds_since(run->begin_ns),
        .committed = atomic_load(&run->counters.committed),
        .delivered = atomic_load(&run->counters.delivered),
        .retained = slot.retained,
        .memory = memory,
    };
    if (!run->options->quiet && report->sample_count % (1000 / TICK_MS) == 0) {
        load_say("... %.0f s: %" PRIu64 " committed, %" PRIu64 " in flight",
                 seconds_since(run->begin_ns), atomic_load(&run->counters.committed),
                 in_flight(run));
    }
}

static bool is_over(const struct run *run)
{
    return load_interrupted || run->budget_passed;
}

/* Looks until `seconds` are over or the writers have ended. */
static void run_for(struct run *run, double seconds)
{
    int64_t begin = mr_monotonic_ns();
    while (!is_over(run) && seconds_since(begin) < seconds && !load_writers_ended(run->writers)) {
        nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000L}, NULL);
        look(run);
    }
}

static bool start_writers(struct run *run, uint64_t quota)
{
    uint64_t ids[LOAD_TABLES_MAX];
    if (!load_database_next_ids(run->database, ids)) {
        return false;
    }
    run->begin_ns = mr_monotonic_ns();
    run->writers = load_writers_start(run->options, &run->counters, run->options->connections,
                                      quota, false, ids);
    return run->writers != NULL;
}

static void run_steady(struct run *run)
{
    run_for(run, run->options->num_events != 0 ? 1e9 : run->options->seconds);
}

/* A third of the time the floor alone, then the burst, then the floor for the rest, and for as long as the burst takes. */
static void run_burst(struct run *run)
{
    double seconds = run->options->seconds;
    run_for(run, seconds / 3);
    uint64_t before = in_flight(run) + (uint64_t)(run->options->rate / 10);
    uint64_t ids[LOAD_TABLES_MAX];
    if (is_over(run)) {
        return;
    }
    if (!load_database_next_ids(run->database, ids)) {
        run->report.broken = "NO burst: PostgreSQL did not answer";
        return;
    }
    for (unsigned i = 0; i < run->options->tables; i++) {
        ids[i] += BURST_IDS;
    }
    load_say("... burst of %" PRIu64 " events", run->options->burst_events);
    run->burst_ns = mr_monotonic_ns();
    run->report.burst_from_s = (double)(run->burst_ns - run->begin_ns) / 1e9;
    run->burst =
        load_writers_start(run->options, &run->counters, 1, run->options->burst_events, true, ids);
    if (run->burst == NULL) {
        run->report.broken = "NO burst: its writer could not connect";
    }
    while (run->burst != NULL && !is_over(run) &&
           (seconds_since(run->burst_ns) < seconds * 2 / 3 || !load_writers_ended(run->burst))) {
        nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000L}, NULL);
        look(run);
        if (run->report.absorb_s == 0 && run->reader != NULL && load_writers_ended(run->burst) &&
            in_flight(run) <= before) {
            run->report.absorb_s = seconds_since(run->burst_ns);
            run->report.burst_to_s = seconds_since(run->begin_ns);
        }
    }
}

/* One rate for a while; answers whether it was held. */
static bool run_step(struct run *run, int number, double rate)
{
    struct load_step *step = &run->report.steps[number];
    uint64_t committed = atomic_load(&run->counters.committed);
    uint64_t delivered = atomic_load(&run->counters.delivered);
    atomic_store(&run->counters.rate, rate);
    atomic_store(&run->counters.step, number);
    int64_t begin = mr_monotonic_ns();
    run_for(run, run->options->step_seconds);
    double seconds = seconds_since(begin);
    step->offered = rate;
    step->written = (double)(atomic_load(&run->counters.committed) - committed) / seconds;
    step->delivered = (double)(atomic_load(&run->counters.delivered) - delivered) / seconds;
    step->in_flight = in_flight(run);
    run->report.step_count = number + 1;
    double limit_ms = run->options->latency_limit_ms;
    const char *limit = NULL;
    if (run->reader != NULL) {
        step->p99_ms =
            (double)load_histogram_quantile(load_reader_response(run->reader, number), .99) / 1e3;
    }
    if (step->written < 0.93 * rate) {
        limit = "PostgreSQL or the writers could not take the rate";
    } else if (run->reader != NULL && step->delivered < 0.93 * rate &&
               (double)step->in_flight > rate * limit_ms / 1000) {
        limit = "delivery did not keep up";
    } else if (step->p99_ms > limit_ms) {
        limit = "the 99th percentile passed the limit";
    }
    step->held = limit == NULL;
    run->report.limit = limit;
    if (!run->options->quiet) {
        load_say("... step of %.0f/s: %.0f/s written, %.0f/s delivered, p99 %.1f ms%s", rate,
                 step->written, step->delivered, step->p99_ms, step->held ? "" : ": breaks");
    }
    return step->held;
}

static void run_ramp(struct run *run)
{
    double rate = run->options->rate;
    for (int i = 0; i < LOAD_STEPS_MAX && rate <= run->options->rate_max && !is_over(run); i++) {
        if (!run_step(run, i, rate)) {
            break;
        }
        rate *= run->options->step_factor;
    }
}

/* What the load will write, roughly: the log of a row is the row, its index entries and headers. */
static void warn_of_budget(struct run *run)
{
    const struct load_options *options = run->options;
    struct load_slot slot = load_database_slot(run->database);
    if (options->slot != NULL && !slot.known) {
        load_say("warning: there is no slot %s; its budget is not watched", options->slot);
    }
    if (!slot.known || slot.budget == 0) {
        return;
    }
    double events =
        options->num_events != 0 ? (double)options->num_events : options->rate * options->seconds;
    events += options->scenario == LOAD_BURST ? (double)options->burst_events : 0;
    double bytes = events * (options->row_bytes + 300.0) + (double)slot.retained;
    if (bytes > 0.8 * (double)slot.budget) {
        load_say(
            "warning: about %.0f MB of WAL would stay if millrace stood still, and slot %s may "
            "hold %.0f MB; the load ends when 95 %% are reached%s",
            bytes / 1e6, options->slot, (double)slot.budget / 1e6,
            options->ignore_budget ? ", but for --ignore-budget" : "");
    }
}

/* Waits for what is under way, as long as something moves. */
static void drain(struct run *run)
{
    char mark[32] = "";
    bool marked = run->reader == NULL && load_database_mark(run->database, mark);
    uint64_t last = UINT64_MAX;
    int64_t moved = mr_monotonic_ns();
    while (!load_interrupted && seconds_since(moved) < run->options->drain_limit_s) {
        uint64_t delivered = atomic_load(&run->counters.delivered);
        if (marked && load_database_confirmed(run->database, mark)) {
            atomic_store(&run->counters.last_arrival_ns, mr_monotonic_ns());
            atomic_store(&run->counters.delivered, atomic_load(&run->counters.committed));
        }
        if (atomic_load(&run->counters.delivered) >= atomic_load(&run->counters.committed)) {
            run->report.complete = true;
            break;
        }
        if (delivered != last) {
            last = delivered;
            moved = mr_monotonic_ns();
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000L}, NULL);
        if (run->report.sample_count == 0 ||
            seconds_since(run->begin_ns) - run->report.samples[run->report.sample_count - 1].at_s >=
                TICK_MS / 1e3) {
            look(run);
        }
    }
}

static void finish(struct run *run)
{
    struct load_report *report = &run->report;
    atomic_store(&run->counters.stop, true);
    load_writers_join(run->writers, &report->commit);
    if (run->burst != NULL) {
        load_writers_join(run->burst, &report->commit);
    }
    report->interrupted = load_interrupted;
    load_interrupted = 0; /* a second one ends the wait */
    drain(run);
    look(run);
    atomic_store(&run->counters.finished, true);
    if (run->reader != NULL) {
        load_reader_join(run->reader);
        for (int i = 0; i < LOAD_STEPS_MAX; i++) {
            load_histogram_merge(&report->latency, load_reader_latency(run->reader, i));
            load_histogram_merge(&report->response, load_reader_response(run->reader, i));
        }
        load_reader_free(run->reader);
    }
    int64_t commit = atomic_load(&run->counters.last_commit_ns);
    int64_t arrival = atomic_load(&run->counters.last_arrival_ns);
    report->begin_ns = run->begin_ns;
    if (run->burst_ns != 0 && report->burst_to_s == 0) {
        report->burst_to_s = (double)(arrival - run->begin_ns) / 1e9;
    }
    report->committed = atomic_load(&run->counters.committed);
    report->in_flight_peak = run->reader == NULL ? 0 : atomic_load(&run->counters.in_flight_peak);
    report->delivered = atomic_load(&run->counters.delivered);
    report->failed = atomic_load(&run->counters.failed);
    report->repeated = atomic_load(&run->counters.repeated);
    report->late_transactions = atomic_load(&run->counters.late_transactions);
    report->write_s = commit > 0 ? (double)(commit - run->begin_ns) / 1e9 : 0;
    report->total_s = arrival > 0 ? (double)(arrival - run->begin_ns) / 1e9 : 0;
    report->drain_s = arrival > commit ? (double)(arrival - commit) / 1e9 : 0;
}

static bool write_json(const struct load_report *report)
{
    FILE *file = fopen(report->options->json, "w");
    if (file == NULL) {
        load_say("cannot write %s", report->options->json);
        return false;
    }
    load_report_json(report, file);
    return fclose(file) == 0;
}

static bool begin(struct run *run)
{
    const struct load_options *options = run->options;
    run->database = load_database_open(options);
    if (run->database == NULL) {
        return false;
    }
    if (options->scenario == LOAD_PREPARE) {
        return true;
    }
    warn_of_budget(run);
    if (options->brokers != NULL) {
        run->reader = load_reader_start(options, &run->counters);
        if (run->reader == NULL) {
            return false;
        }
    }
    atomic_store(&run->counters.rate, options->rate);
    return start_writers(run, options->scenario == LOAD_STEADY ? options->num_events : 0);
}

int main(int argc, char **argv)
{
    static struct load_options options;
    static struct run run = {.options = &options};
    int code;
    if (!load_options_read(argc, argv, &options, &code)) {
        return code;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = interrupt}, NULL);
    run.report.options = &options;
    if (!begin(&run)) {
        return 69;
    }
    switch (options.scenario) {
    case LOAD_PREPARE:
        load_database_close(run.database);
        return 0;
    case LOAD_STEADY:
        run_steady(&run);
        break;
    case LOAD_RAMP:
        run_ramp(&run);
        break;
    case LOAD_BURST:
        run_burst(&run);
        break;
    }
    finish(&run);
    load_database_close(run.database);
    load_report_text(&run.report, stdout);
    bool written = options.json == NULL || write_json(&run.report);
    free(run.report.samples);
    return run.report.complete && run.report.failed == 0 && run.report.broken == NULL && written
               ? 0
               : 1;
}
