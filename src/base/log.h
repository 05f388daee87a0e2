/* Levelled, structured logging: one line a record on stderr, as text or JSON.
 *
 * A record has an event name ("source_connected"), a sentence, and typed fields. Fields never hold
 * row data or secrets. The caller never waits for stderr, at most for another thread's copy of a
 * line: a thread writes it, and what a stalled reader does not take is dropped, counted and
 * reported later. Any thread. */
#pragma once

#include "base/base.h"

enum mr_log_level { MR_LOG_DEBUG, MR_LOG_INFO, MR_LOG_WARN, MR_LOG_ERROR };
enum mr_log_format { MR_LOG_TEXT, MR_LOG_JSON };

const char *mr_log_level_name(enum mr_log_level level); /* "debug", "info", "warn", "error" */

/* Before the first thread. The defaults are INFO and TEXT. */
void mr_log_configure(enum mr_log_level level, enum mr_log_format form);

/* Any time. */
void mr_log_set_level(enum mr_log_level level);

/* Starts the thread that writes / lets it write what is there, for a second at most. In between a
 * record costs its caller a copy; without the thread it is written directly, or dropped. Main
 * thread. */
void mr_log_start(void);
void mr_log_stop(void);

struct mr_log_field;

/* Gets each record of level info or above, whatever the configured level; on the thread that logs,
 * so it must not wait and must not log. Before the first thread; NULL takes it away again after the
 * last. */
typedef void (*mr_log_observer_fn)(void *context, enum mr_log_level level, const char *event,
                                   const char *sentence, const struct mr_log_field *fields);
void mr_log_observe(mr_log_observer_fn observer, void *context);

/* Fills the field `see` of warnings and errors; "": nothing. On the thread that logs. Set before
 * the first thread. */
enum { MR_LOG_SEE_MAX = 64 };
extern void (*mr_log_see)(mr_slice said, char ret_see[MR_LOG_SEE_MAX]);

/* Records dropped because stderr did not take them. */
uint64_t mr_log_dropped(void);

struct mr_log_field {
    const char *name;
    enum { MR_LOG_FIELD_END, MR_LOG_FIELD_STRING, MR_LOG_FIELD_INT, MR_LOG_FIELD_LSN } kind;
    union {
        const char *string;
        int64_t number;
        uint64_t lsn;
    };
};

#define MR_LOG_STR(field_name, value)                                                              \
    ((struct mr_log_field){.name = (field_name), .kind = MR_LOG_FIELD_STRING, .string = (value)})
#define MR_LOG_INT(field_name, value)                                                              \
    ((struct mr_log_field){                                                                        \
        .name = (field_name), .kind = MR_LOG_FIELD_INT, .number = (int64_t)(value)})
/* Printed as PostgreSQL prints it, 16/B374D848. */
#define MR_LOG_LSN(field_name, value)                                                              \
    ((struct mr_log_field){.name = (field_name), .kind = MR_LOG_FIELD_LSN, .lsn = (value)})

/* Writes fields for people, "topic shop.public.orders, partitions 3", as far as they fit; "" when
 * there are none. */
void mr_log_fields_text(const struct mr_log_field *fields, char *ret_text, size_t size);

/* `fields` ends with a record of kind MR_LOG_FIELD_END, or is NULL. */
void mr_log_write(enum mr_log_level level, const char *event, const char *sentence,
                  const struct mr_log_field *fields);

/* mr_log(MR_LOG_INFO, "started", "millrace runs", MR_LOG_STR("slot", name)); */
#define mr_log(level, event, sentence, ...)                                                        \
    mr_log_write((level), (event), (sentence),                                                     \
                 (const struct mr_log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}})
