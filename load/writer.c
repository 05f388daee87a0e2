/* One statement a transaction: it inserts new rows, updates some and deletes the oldest of this writer's own, and
 * answers how many of each there were, so that the number of events is known exactly. */
#include "writer.h"

#include <libpq-fe.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/clock.h"

enum { LATE_NS = 100 * 1000 * 1000, PARAMETERS = 8 };

/* The rows of one table that are this writer's: ids first + i * stride for i in [deleted, inserted). */
struct rows {
    uint64_t first;
    uint64_t inserted;
    uint64_t deleted;
};

struct writer {
    const struct load_options *options;
    struct load_counters *counters;
    pthread_t thread;
    PGconn *connection;
    struct rows rows[LOAD_TABLES_MAX];
    struct load_histogram *times;
    uint64_t random;
    uint64_t quota; /* events left, UINT64_MAX: no end */
    unsigned number;
    unsigned writers;
    bool burst;
    atomic_bool ended;
};

struct load_writers {
    struct writer *writer;
    unsigned count;
};

/* xorshift64*, 0 … 1. */
static double random_share(struct writer *writer)
{
    writer->random ^= writer->random >> 12;
    writer->random ^= writer->random << 25;
    writer->random ^= writer->random >> 27;
    return (double)((writer->random * UINT64_C(2685821657736338717)) >> 11) * 0x1p-53;
}

static void prepare(struct writer *writer, unsigned table)
{
    static const char text[] =
        "WITH i AS (INSERT INTO public.%1$s_%2$u (id, account_id, amount, due_us, payload) "
        "SELECT $1::bigint + g * $2::bigint, ($1::bigint + g * 7919) %% 100000, (g %% 1000000) / "
        "100.0, $3::bigint, left(repeat(md5(($1::bigint + g)::text), 1 + $4::int / 32), $4::int) "
        "FROM generate_series(0, $5::bigint - 1) g RETURNING 1), "
        "u AS (UPDATE public.%1$s_%2$u SET amount = amount + 1, due_us = $3::bigint, updated_at = "
        "now() WHERE id = ANY ($6::bigint[]) RETURNING 1), "
        "d AS (DELETE FROM public.%1$s_%2$u WHERE id >= $7::bigint AND id < $8::bigint AND (id - "
        "$7::bigint) %% $2::bigint = 0 RETURNING 1) "
        "SELECT (SELECT count(*) FROM i) + (SELECT count(*) FROM u) + (SELECT count(*) FROM d)";
    char sql[2048], name[16];
    snprintf(sql, sizeof(sql), text, writer->options->table, table + 1);
    snprintf(name, sizeof(name), "w%u", table);
    PQclear(PQprepare(writer->connection, name, sql, PARAMETERS, NULL));
}

static bool reconnect(struct writer *writer)
{
    PQfinish(writer->connection);
    writer->connection = PQconnectdb(writer->options->url);
    if (PQstatus(writer->connection) != CONNECTION_OK) {
        load_say("a writer cannot connect: %s", PQerrorMessage(writer->connection));
        return false;
    }
    for (unsigned i = 0; i < writer->options->tables; i++) {
        prepare(writer, i);
    }
    return true;
}

/* How many of `rows` are of each kind; whole numbers on average in the proportion of the mix. */
static void split(struct writer *writer, unsigned rows, const struct rows *own,
                  unsigned ret_kinds[3])
{
    double share = random_share(writer);
    ret_kinds[1] = (unsigned)(rows * writer->options->mix[1] / 100.0 + share);
    ret_kinds[2] = (unsigned)(rows * writer->options->mix[2] / 100.0 + share);
    uint64_t live = own->inserted - own->deleted;
    if (writer->burst || live < 4ULL * rows || ret_kinds[1] + ret_kinds[2] > rows) {
        ret_kinds[1] = ret_kinds[2] = 0;
    }
    ret_kinds[0] = rows - ret_kinds[1] - ret_kinds[2];
}

/* "{1,2,3}": different rows, none of those that are deleted now. */
static char *choose(struct writer *writer, const struct rows *own, unsigned updates,
                    unsigned deletes)
{
    char *text = MR_ALLOC(3 + (size_t)updates * 21);
    size_t len = (size_t)sprintf(text, "{");
    uint64_t low = own->deleted + deletes;
    uint64_t span = own->inserted - low;
    uint64_t at =
        updates == 0
            ? 0
            : (uint64_t)((double)span * pow(random_share(writer), 1 + writer->options->skew));
    for (unsigned i = 0; i < updates; i++) {
        /* From the newest back; a row each. */
        uint64_t index = own->inserted - 1 - (at + i) % span;
        len += (size_t)sprintf(text + len, "%s%llu", i == 0 ? "" : ",",
                               (unsigned long long)(own->first + index * writer->writers));
    }
    sprintf(text + len, "}");
    return text;
}

static int64_t wall_us(int64_t monotonic_ns)
{
    return (mr_wall_ns() - mr_monotonic_ns() + monotonic_ns) / 1000;
}

/* The peak is right after a commit: looks at intervals miss a burst that is absorbed between two of them. */
static void count_committed(struct load_counters *counters, uint64_t events)
{
    uint64_t committed = atomic_fetch_add(&counters->committed, events) + events;
    uint64_t delivered = atomic_load(&counters->delivered);
    uint64_t in_flight = committed > delivered ? committed - delivered : 0;
    uint64_t peak = atomic_load(&counters->in_flight_peak);
    while (in_flight > peak &&
           !atomic_compare_exchange_weak(&counters->in_flight_peak, &peak, in_flight)) {
    }
}

/* True when it was committed. */
static bool transact(struct writer *writer, unsigned table, unsigned rows, int64_t due_ns)
{
    struct rows *own = &writer->rows[table];
    unsigned kinds[3];
    split(writer, rows, own, kinds);
    uint64_t from = own->first + own->deleted * writer->writers;
    unsigned long long numbers[PARAMETERS] = {
        own->first + own->inserted * writer->writers,
        writer->writers,
        (unsigned long long)wall_us(due_ns),
        writer->options->row_bytes,
        kinds[0],
        0,
        from,
        from + (unsigned long long)kinds[2] * writer->writers,
    };
    char texts[PARAMETERS][24], name[16];
    const char *values[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%llu", numbers[i]);
        values[i] = texts[i];
    }
    char *chosen = choose(writer, own, kinds[1], kinds[2]);
    values[5] = chosen;
    snprintf(name, sizeof(name), "w%u", table);
    PGresult *result = PQexecPrepared(writer->connection, name, PARAMETERS, values, NULL, NULL, 0);
    free(chosen);
    bool fine = PQresultStatus(result) == PGRES_TUPLES_OK;
    int64_t now = mr_monotonic_ns();
    if (fine) {
        own->inserted += kinds[0];
        own->deleted += kinds[2];
        uint64_t events = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
        count_committed(writer->counters, events);
        atomic_store(&writer->counters->last_commit_ns, now);
        load_histogram_add(writer->times, (now - due_ns) / 1000, events);
    } else {
        /* What it inserted may or may not be there: go on after it. */
        own->inserted += kinds[0];
        own->deleted += kinds[2];
        if (atomic_fetch_add(&writer->counters->failed, rows) == 0) {
            load_say("a transaction failed: %s", PQresultErrorMessage(result));
        }
    }
    PQclear(result);
    return fine;
}

/* False when it is time to stop. */
static bool wait_until(const struct load_counters *counters, int64_t due_ns)
{
    enum { SLICE_NS = 50 * 1000 * 1000 };
    while (!atomic_load(&counters->stop)) {
        int64_t wait = due_ns - mr_monotonic_ns();
        if (wait <= 0) {
            return true;
        }
        wait = wait > SLICE_NS ? SLICE_NS : wait;
        nanosleep(&(struct timespec){.tv_nsec = wait}, NULL);
    }
    return false;
}

static void *writer_main(void *context)
{
    struct writer *writer = context;
    struct load_counters *counters = writer->counters;
    unsigned rows_max =
        writer->burst ? writer->options->burst_transaction_rows : writer->options->transaction_rows;
    int64_t begin = mr_monotonic_ns();
    /* Writers begin one after the other within an interval. */
    double rate = atomic_load(&counters->rate) / writer->writers;
    double next =
        (double)begin +
        (rate > 0 && !writer->burst ? 1e9 * rows_max / rate * writer->number / writer->writers : 0);
    for (unsigned table = writer->number; writer->quota > 0; table++) {
        rate = atomic_load(&counters->rate) / writer->writers;
        bool paced = rate > 0 && !writer->burst;
        int64_t due = paced ? (int64_t)next : mr_monotonic_ns();
        if (!wait_until(counters, due)) {
            break;
        }
        atomic_fetch_add(&counters->late_transactions, mr_monotonic_ns() - due > LATE_NS);
        unsigned rows = rows_max < writer->quota ? rows_max : (unsigned)writer->quota;
        bool fine = transact(writer, table % writer->options->tables, rows, due);
        writer->quota -= writer->quota == UINT64_MAX ? 0 : rows;
        next += paced ? 1e9 * rows / rate : 0;
        while (!fine && PQstatus(writer->connection) != CONNECTION_OK && !reconnect(writer) &&
               wait_until(counters, mr_monotonic_ns() + 200 * 1000 * 1000)) {
        }
    }
    atomic_store(&writer->ended, true);
    return NULL;
}

struct load_writers *load_writers_start(const struct load_options *options,
                                        struct load_counters *counters, unsigned count,
                                        uint64_t quota, bool burst,
                                        uint64_t first_ids[LOAD_TABLES_MAX])
{
    struct load_writers *writers = MR_NEW(struct load_writers);
    writers->writer = MR_NEW_ARRAY(struct writer, count);
    writers->count = count;
    bool fine = true;
    for (unsigned i = 0; i < count; i++) {
        struct writer *writer = &writers->writer[i];
        writer->options = options;
        writer->counters = counters;
        writer->times = MR_NEW(struct load_histogram);
        writer->random = (options->seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        writer->quota = quota == 0 ? UINT64_MAX : quota / count + (i < quota % count);
        writer->number = i;
        writer->writers = count;
        writer->burst = burst;
        for (unsigned t = 0; t < options->tables; t++) {
            writer->rows[t].first = first_ids[t] + i;
        }
        fine = fine && reconnect(writer);
    }
    for (unsigned i = 0; i < count; i++) {
        struct writer *writer = &writers->writer[i];
        atomic_store(&writer->ended, !fine);
        MR_ASSERT(!fine || pthread_create(&writer->thread, NULL, writer_main, writer) == 0);
    }
    if (!fine) {
        for (unsigned i = 0; i < count; i++) {
            PQfinish(writers->writer[i].connection);
            free(writers->writer[i].times);
        }
        free(writers->writer);
        free(writers);
        return NULL;
    }
    return writers;
}

bool load_writers_ended(const struct load_writers *writers)
{
    for (unsigned i = 0; i < writers->count; i++) {
        if (!atomic_load(&writers->writer[i].ended)) {
            return false;
        }
    }
    return true;
}

void load_writers_join(struct load_writers *writers, struct load_histogram *into)
{
    for (unsigned i = 0; i < writers->count; i++) {
        struct writer *writer = &writers->writer[i];
        pthread_join(writer->thread, NULL);
        load_histogram_merge(into, writer->times);
        PQfinish(writer->connection);
        free(writer->times);
    }
    free(writers->writer);
    free(writers);
}
