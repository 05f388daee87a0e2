#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

static const char usage[] =
    "Usage: millrace-load steady|ramp|burst|prepare [options]\n"
    "\n"
    "Writes rows to PostgreSQL at a given rate and follows the events to Kafka. Rates are "
    "open-loop: a\n"
    "transaction has its moment, and one that comes late is counted from that moment.\n"
    "\n"
    "  steady   --rate events/s for --seconds\n"
    "  ramp     rates that grow step by step until delivery no longer keeps up; reports where that "
    "is\n"
    "  burst    --burst-events at once, over a floor of --rate\n"
    "  prepare  makes the tables (and --publication) and ends\n"
    "\n"
    "  --url URL            PostgreSQL (default $MILLRACE_PG_URL)\n"
    "  --brokers LIST       Kafka (default $KAFKA_BOOTSTRAP); \"none\": follow the slot, without "
    "latencies\n"
    "  --topic-prefix TEXT  topics are TEXT.public.<table> (default load)\n"
    "  --table NAME         tables are NAME_1 … NAME_N (default load)   --tables N  (default 1)\n"
    "  --identity WORD      their replica identity, default or full (default default)\n"
    "  --publication NAME   make it for the tables when it is missing\n"
    "  --slot NAME          watch its lag and its disk budget\n"
    "  --slot-budget BYTES  its budget (default: the server's max_slot_wal_keep_size)\n"
    "  --ignore-budget      go on where the budget would be passed\n"
    "  --pid PID            millrace's process, for its memory\n"
    "  --connections N      writers (default: one a core)\n"
    "  --rate N             events a second (default 10000; ramp: where it begins, default 1000;\n"
    "                       0: as fast as the database takes them)\n"
    "  --seconds N          length (default 10)\n"
    "  --num-events N       exactly so many events instead\n"
    "  --mix I,U,D          percent of inserts, updates, deletes (default 80,15,5)\n"
    "  --row-bytes N        payload (default 128)     --transaction N  rows (default 10)\n"
    "  --skew N             updates: 0 all rows alike, larger: the newest more often (default 0)\n"
    "  --seed N             of the choices (default 1)\n"
    "  --burst-events N     (default 100000)          --burst-transaction N  rows (default 10000)\n"
    "  --rate-max N         end of the ramp (default 200000)\n"
    "  --step-factor N      (default 1.5)             --step-seconds N (default 4)\n"
    "  --latency-limit MS   p99 that a step must hold (default 1000)\n"
    "  --drain-limit S      give up after so long without an event (default 30)\n"
    "  --json FILE          the report as JSON too\n"
    "  --quiet              no progress\n"
    "  --help               this text\n";

static double number(const char *text, const char *option, double low, double high)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(value) || value < low ||
        value > high) {
        fprintf(stderr, "millrace-load: --%s wants a number from %.0f to %.0f, not \"%s\"\n",
                option, low, high, text);
        exit(64);
    }
    return value;
}

static void read_mix(const char *text, unsigned mix[3])
{
    char rest;
    if (sscanf(text, "%u,%u,%u%c", &mix[0], &mix[1], &mix[2], &rest) != 3 || mix[0] == 0 ||
        mix[0] > 100 || mix[1] > 100 || mix[2] > mix[0] || mix[0] + mix[1] + mix[2] != 100) {
        fprintf(stderr,
                "millrace-load: --mix wants three percentages that make 100, with some inserts and "
                "no more deletes than inserts (80,15,5), not \"%s\"\n",
                text);
        exit(64);
    }
}

/* It becomes part of statements and of topic names. */
static const char *read_name(const char *text, const char *option)
{
    size_t len = strlen(text);
    if (len == 0 || len > 40 || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") != len) {
        fprintf(stderr, "millrace-load: --%s wants a-z, 0-9 and _, 40 at most, not \"%s\"\n",
                option, text);
        exit(64);
    }
    return text;
}

enum {
    URL = 256,
    BROKERS,
    PREFIX,
    TABLE,
    TABLES,
    IDENTITY,
    PUBLICATION,
    SLOT,
    BUDGET,
    IGNORE,
    PID,
    CONNECTIONS,
    RATE,
    SECONDS,
    EVENTS,
    MIX,
    ROW,
    TRANSACTION,
    SKEW,
    SEED,
    BURST,
    BURST_TX,
    RATE_MAX,
    FACTOR,
    STEP,
    LIMIT,
    DRAIN,
    JSON,
    QUIET
};

static const struct option known[] = {
    {"url", 1, NULL, URL},
    {"brokers", 1, NULL, BROKERS},
    {"topic-prefix", 1, NULL, PREFIX},
    {"table", 1, NULL, TABLE},
    {"tables", 1, NULL, TABLES},
    {"identity", 1, NULL, IDENTITY},
    {"publication", 1, NULL, PUBLICATION},
    {"slot", 1, NULL, SLOT},
    {"slot-budget", 1, NULL, BUDGET},
    {"ignore-budget", 0, NULL, IGNORE},
    {"pid", 1, NULL, PID},
    {"connections", 1, NULL, CONNECTIONS},
    {"rate", 1, NULL, RATE},
    {"seconds", 1, NULL, SECONDS},
    {"num-events", 1, NULL, EVENTS},
    {"mix", 1, NULL, MIX},
    {"row-bytes", 1, NULL, ROW},
    {"transaction", 1, NULL, TRANSACTION},
    {"skew", 1, NULL, SKEW},
    {"seed", 1, NULL, SEED},
    {"burst-events", 1, NULL, BURST},
    {"burst-transaction", 1, NULL, BURST_TX},
    {"rate-max", 1, NULL, RATE_MAX},
    {"step-factor", 1, NULL, FACTOR},
    {"step-seconds", 1, NULL, STEP},
    {"latency-limit", 1, NULL, LIMIT},
    {"drain-limit", 1, NULL, DRAIN},
    {"json", 1, NULL, JSON},
    {"quiet", 0, NULL, QUIET},
    {"help", 0, NULL, 'h'},
    {0},
};

static void set_option(struct load_options *options, int option, const char *name,
                       const char *value)
{
    switch (option) {
    case URL:
        options->url = value;
        break;
    case BROKERS:
        options->brokers = strcmp(value, "none") == 0 ? NULL : value;
        break;
    case PREFIX:
        options->prefix = value;
        break;
    case TABLE:
        options->table = read_name(value, name);
        break;
    case TABLES:
        options->tables = (unsigned)number(value, name, 1, LOAD_TABLES_MAX);
        break;
    case IDENTITY:
        if (strcmp(value, "default") != 0 && strcmp(value, "full") != 0) {
            fprintf(stderr, "millrace-load: --identity is default or full, not \"%s\"\n", value);
            exit(64);
        }
        options->identity = value;
        break;
    case PUBLICATION:
        options->publication = read_name(value, name);
        break;
    case SLOT:
        options->slot = value;
        break;
    case BUDGET:
        options->slot_budget = (uint64_t)number(value, name, 1, 1e15);
        break;
    case IGNORE:
        options->ignore_budget = true;
        break;
    case PID:
        options->pid = (int)number(value, name, 1, 1 << 30);
        break;
    case CONNECTIONS:
        options->connections = (unsigned)number(value, name, 1, LOAD_WRITERS_MAX - 1);
        break;
    case RATE:
        options->rate = number(value, name, 0, 1e8);
        break;
    case SECONDS:
        options->seconds = number(value, name, 0.1, 1e7);
        break;
    case EVENTS:
        options->num_events = (uint64_t)number(value, name, 1, 1e12);
        break;
    case MIX:
        read_mix(value, options->mix);
        break;
    case ROW:
        options->row_bytes = (unsigned)number(value, name, 1, 100000000);
        break;
    case TRANSACTION:
        options->transaction_rows = (unsigned)number(value, name, 1, 1000000);
        break;
    case SKEW:
        options->skew = number(value, name, 0, 100);
        break;
    case SEED:
        options->seed = (uint64_t)number(value, name, 0, 1e15);
        break;
    case BURST:
        options->burst_events = (uint64_t)number(value, name, 1, 1e10);
        break;
    case BURST_TX:
        options->burst_transaction_rows = (unsigned)number(value, name, 1, 10000000);
        break;
    case RATE_MAX:
        options->rate_max = number(value, name, 1, 1e8);
        break;
    case FACTOR:
        options->step_factor = number(value, name, 1.01, 100);
        break;
    case STEP:
        options->step_seconds = number(value, name, 0.5, 3600);
        break;
    case LIMIT:
        options->latency_limit_ms = number(value, name, 1, 1e7);
        break;
    case DRAIN:
        options->drain_limit_s = number(value, name, 1, 1e6);
        break;
    case JSON:
        options->json = value;
        break;
    default:
        options->quiet = true;
    }
}

const char *load_scenario_name(enum load_scenario scenario)
{
    static const char *const names[] = {"steady", "ramp", "burst", "prepare"};
    return names[scenario];
}

static bool read_scenario(const char *word, enum load_scenario *ret_scenario)
{
    for (int i = LOAD_STEADY; i <= LOAD_PREPARE; i++) {
        if (word != NULL && strcmp(word, load_scenario_name(i)) == 0) {
            *ret_scenario = i;
            return true;
        }
    }
    return false;
}

bool load_options_read(int argc, char **argv, struct load_options *ret_options, int *ret_exit)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *ret_options = (struct load_options){
        .url = getenv("MILLRACE_PG_URL"),
        .brokers = getenv("KAFKA_BOOTSTRAP"),
        .prefix = "load",
        .table = "load",
        .identity = "default",
        .connections = cores > 0 ? (unsigned)cores : 1,
        .tables = 1,
        .transaction_rows = 10,
        .row_bytes = 128,
        .mix = {80, 15, 5},
        .seed = 1,
        .rate = -1,
        .seconds = 10,
        .burst_events = 100000,
        .burst_transaction_rows = 10000,
        .rate_max = 200000,
        .step_factor = 1.5,
        .step_seconds = 4,
        .latency_limit_ms = 1000,
        .drain_limit_s = 30,
    };
    *ret_exit = 64;
    int option, which = 0;
    while ((option = getopt_long(argc, argv, "h", known, &which)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            *ret_exit = 0;
            return false;
        }
        if (option == '?') {
            return false;
        }
        set_option(ret_options, option, known[which].name, optarg);
    }
    if (argc - optind != 1 || !read_scenario(argv[optind], &ret_options->scenario)) {
        fputs(usage, stderr);
        return false;
    }
    if (ret_options->rate < 0) {
        ret_options->rate = ret_options->scenario == LOAD_RAMP ? 1000 : 10000;
    }
    if (ret_options->url == NULL) {
        fputs("millrace-load: no database: give --url or set MILLRACE_PG_URL\n", stderr);
        return false;
    }
    if (ret_options->brokers == NULL && ret_options->slot == NULL &&
        ret_options->scenario != LOAD_PREPARE) {
        fputs("millrace-load: nothing to follow: give --brokers (or KAFKA_BOOTSTRAP), or --slot\n",
              stderr);
        return false;
    }
    if (ret_options->scenario == LOAD_RAMP && ret_options->rate == 0) {
        fputs("millrace-load: a ramp begins with a rate above 0\n", stderr);
        return false;
    }
    return true;
}
