/* What the parts of millrace-load share: the options, and the counters that writers, reader and conductor
 * read of each other.
 */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"

enum { LOAD_TABLES_MAX = 64, LOAD_WRITERS_MAX = 256, LOAD_STEPS_MAX = 64 };

enum load_scenario { LOAD_STEADY, LOAD_RAMP, LOAD_BURST, LOAD_PREPARE };

struct load_options {
    enum load_scenario scenario;
    const char *url;         /* PostgreSQL */
    const char *brokers;     /* NULL: the slot is followed instead of the topics */
    const char *prefix;      /* topics are <prefix>.<schema>.<table> */
    const char *slot;        /* NULL: not watched */
    const char *table;       /* tables are <table>_1 … <table>_N */
    const char *identity;    /* default or full */
    const char *publication; /* made when it is missing; NULL: none */
    const char *json;        /* file, NULL: none */
    int pid;                 /* of millrace, 0: none */
    unsigned connections;
    unsigned tables;
    unsigned transaction_rows;
    unsigned row_bytes;
    unsigned mix[3]; /* insert, update, delete in percent */
    double skew;
    uint64_t seed;
    double rate; /* events a second; 0: as fast as the database takes them */
    double seconds;
    uint64_t num_events; /* 0: as many as the seconds give */
    uint64_t burst_events;
    unsigned burst_transaction_rows;
    double rate_max, step_factor, step_seconds;
    double latency_limit_ms;
    double drain_limit_s; /* without progress */
    uint64_t slot_budget; /* bytes, 0: what the server says */
    bool ignore_budget;
    bool quiet;
};

/* Answers false after a message, or after --help with *ret_exit 0. */
bool load_options_read(int argc, char **argv, struct load_options *ret_options, int *ret_exit);

const char *load_scenario_name(enum load_scenario scenario);

/* Counters of the whole run. Each is written by one kind of thread and read by all. */
struct load_counters {
    _Atomic uint64_t committed; /* events, by writers */
    _Atomic uint64_t failed;
    _Atomic uint64_t late_transactions; /* begun more than 100 ms after they were due */
    _Atomic uint64_t delivered;         /* by the reader */
    _Atomic uint64_t repeated;
    _Atomic uint64_t in_flight_peak; /* committed and not delivered, seen after each commit */
    _Atomic int64_t first_due_ns;    /* monotonic */
    _Atomic int64_t last_commit_ns;
    _Atomic int64_t last_arrival_ns;
    _Atomic double rate;  /* events a second that the writers aim at now */
    _Atomic int step;     /* of a ramp, else 0 */
    atomic_bool stop;     /* writers end after their transaction */
    atomic_bool finished; /* the reader ends */
};

extern volatile int load_interrupted; /* set by SIGINT and SIGTERM */

void load_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
