#include "verify/every.h"

#include <poll.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "metrics/metrics.h"
#include "verify/proof.h"

enum {
    TRIES = 24, /* within the interval, of what came to nothing */
    LINE_BYTES = 2048,
};

/* What is known of a table. */
struct known {
    char *name;
    /* when its last verdict's proof began; of one without, since when it is known */
    int64_t proved_ns;
    mr_lsn proved_lsn; /* 0: there was none */
    uint64_t rows, differences;
    const char *cause; /* why its last try came to nothing; NULL: it did not */
    bool is_listed;    /* in the round at hand */
};

struct rounds {
    const struct mr_config *config;
    const struct mr_verify_options *options;
    const struct mr_every_options *every;
    struct known *tables;
    uint32_t count, room;
    bool is_whole; /* the round at hand is of all of them */
};

static struct known *every_known_of(struct rounds *rounds, const struct mr_verify_listed *listed)
{
    MR_FREED char *name = mr_formatted("%s.%s", listed->schema, listed->table);
    for (uint32_t i = 0; i < rounds->count; i++) {
        if (strcmp(rounds->tables[i].name, name) == 0) {
            return &rounds->tables[i];
        }
    }
    MR_GROW(rounds->tables, rounds->room, (size_t)rounds->count + 1);
    struct known *known = &rounds->tables[rounds->count++];
    *known = (struct known){.name = MR_STRDUP(name), .proved_ns = mr_wall_ns()};
    return known;
}

static bool is_void(const struct known *known)
{
    return known->cause != NULL && strcmp(known->cause, "unprovable") != 0;
}

static void every_expose_tables(const struct rounds *rounds, struct mr_exposition *exposition,
                                enum mr_metric_id id)
{
    mr_expose_begin(exposition, id);
    for (uint32_t i = 0; i < rounds->count; i++) {
        const struct known *known = &rounds->tables[i];
        const char *labels[] = {rounds->config->source.slot, known->name, known->cause};
        if (id == MR_METRIC_VERIFY_PROVED) {
            mr_expose_ns(exposition, labels, (uint64_t)known->proved_ns);
        } else if (id != MR_METRIC_VERIFY_VOID) {
            mr_expose_u64(exposition, labels,
                          id == MR_METRIC_VERIFY_LSN    ? known->proved_lsn
                          : id == MR_METRIC_VERIFY_ROWS ? known->rows
                                                        : known->differences);
        } else if (known->cause != NULL) {
            mr_expose_u64(exposition, labels, 1);
        }
    }
}

static void expose(const struct rounds *rounds, struct mr_buffer *out)
{
    static const enum mr_metric_id of_tables[] = {
        MR_METRIC_VERIFY_PROVED, MR_METRIC_VERIFY_LSN, MR_METRIC_VERIFY_ROWS,
        MR_METRIC_VERIFY_DIFFERENCES, MR_METRIC_VERIFY_VOID};
    struct mr_exposition exposition = {.out = out};
    const char *labels[] = {rounds->config->source.slot};
    mr_expose_begin(&exposition, MR_METRIC_VERIFY_INTERVAL);
    mr_expose_f64(&exposition, labels, (double)rounds->every->interval_ms / 1000);
    mr_expose_begin(&exposition, MR_METRIC_VERIFY_ALIVE);
    mr_expose_ns(&exposition, labels, (uint64_t)mr_wall_ns());
    for (size_t i = 0; i < MR_ARRAY_LEN(of_tables); i++) {
        every_expose_tables(rounds, &exposition, of_tables[i]);
    }
}

static bool write_all(const char *path, const uint8_t *bytes, size_t len)
{
    FILE *file = fopen(path, "we");
    bool good = file != NULL && fwrite(bytes, 1, len, file) == len && fflush(file) == 0 &&
                fchmod(fileno(file), 0644) == 0; /* another user reads it */
    return file == NULL ? false : fclose(file) == 0 && good;
}

/* Whole, or as it was: who reads it must not see a part. Its other name does not end with .prom,
 * which is what is read. */
static void write_figures(const struct rounds *rounds)
{
    const char *path = rounds->every->figures;
    if (path == NULL) {
        return;
    }
    size_t room = (size_t)LINE_BYTES * 16 + (size_t)LINE_BYTES * 5 * rounds->count;
    MR_FREED uint8_t *bytes = MR_ALLOC(room);
    struct mr_buffer out = mr_buffer_init(bytes, room);
    expose(rounds, &out);
    MR_FREED char *other = mr_formatted("%s.new", path);
    if (!write_all(other, bytes, (size_t)(out.at - bytes)) || rename(other, path) != 0) {
        fprintf(stderr, "millrace: \"%s\" can't be written: %s\n", path, strerror(errno));
        (void)unlink(other);
    }
}

static void every_take_proof(void *context, const struct mr_proof *proof, int64_t begun_ns)
{
    struct rounds *rounds = context;
    struct known *known = every_known_of(rounds, proof->listed);
    known->is_listed = true;
    known->cause = proof->cause;
    if (proof->cause == NULL) {
        uint64_t differences = 0;
        for (int i = 0; i < MR_DIFFERENCE_UNKNOWN; i++) {
            differences += proof->counts.differences[i];
        }
        bool is_other = differences == 0 && proof->verdict == MR_VERIFY_DIFFERENT;
        known->differences = proof->verdict == MR_VERIFY_DIFFERENT ? differences + is_other : 0;
        known->rows = proof->counts.rows;
        known->proved_lsn = proof->moment;
        known->proved_ns = begun_ns;
    }
    write_figures(rounds);
}

/* Tables that are proved no more have no figures. */
static void forget_others(struct rounds *rounds)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rounds->count; i++) {
        if (rounds->tables[i].is_listed) {
            rounds->tables[kept++] = rounds->tables[i];
        } else {
            free(rounds->tables[i].name);
        }
    }
    rounds->count = kept;
}

/* All tables, or those alone that have come to nothing. */
static bool wants(void *context, const struct mr_verify_listed *listed)
{
    struct rounds *rounds = context;
    return rounds->is_whole || is_void(every_known_of(rounds, listed));
}

static mr_status prove_round(struct rounds *rounds, int stop_fd, FILE *to,
                             struct mr_error *ret_error)
{
    struct mr_verify_options options = *rounds->options;
    options.taken = every_take_proof;
    options.wants = wants;
    options.context = rounds;
    bool is_any = rounds->is_whole;
    for (uint32_t i = 0; i < rounds->count; i++) {
        rounds->tables[i].is_listed = rounds->tables[i].is_listed && !rounds->is_whole;
        is_any = is_any || is_void(&rounds->tables[i]);
    }
    enum mr_verify_verdict unused;
    mr_status status =
        is_any ? mr_verify(rounds->config, &options, stop_fd, to, &unused, ret_error) : MR_OK;
    if (rounds->is_whole && status == MR_OK) {
        forget_others(rounds);
    }
    write_figures(rounds);
    return status;
}

mr_status mr_verify_every(const struct mr_config *config, const struct mr_verify_options *options,
                          const struct mr_every_options *every, int stop_fd, FILE *to,
                          struct mr_error *ret_error)
{
    struct rounds rounds = {.config = config, .options = options, .every = every};
    struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
    int64_t step_ms = every->interval_ms / TRIES + 1;
    int64_t whole_ns = 0; /* when the last round of all tables began; 0: none has come to its end */
    mr_status status;
    bool passes;
    do {
        int64_t begun_ns = mr_monotonic_ns();
        rounds.is_whole = whole_ns == 0 || begun_ns - whole_ns >= every->interval_ms * 1000000;
        status = prove_round(&rounds, stop_fd, to, ret_error);
        /* A server is away; or what has worked before. */
        passes =
            status == MR_ERR_TRANSIENT || (status != MR_OK && status != MR_AGAIN && whole_ns != 0);
        if (passes) {
            fprintf(stderr, "millrace: %s\n", ret_error->text);
        } else if (rounds.is_whole) {
            whole_ns = begun_ns;
        }
    } while ((status == MR_OK || passes) && poll(&stop, 1, (int)step_ms) == 0);
    for (uint32_t i = 0; i < rounds.count; i++) {
        free(rounds.tables[i].name);
    }
    free(rounds.tables);
    return status == MR_OK || passes ? MR_AGAIN : status;
}
