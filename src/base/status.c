#include "base/status.h"

static const struct {
    const char *name;
    int exit_code;
} statuses[] = {
    [MR_OK] = {"ok", 0},
    [MR_AGAIN] = {"again", 0},
    [MR_END] = {"end", 0},
    [MR_FULL] = {"full", 0},
    [MR_ERR_USAGE] = {"usage", 64},
    [MR_ERR_CONFIG] = {"config", 78},
    [MR_ERR_AUTH] = {"auth", 77},
    [MR_ERR_TRANSIENT] = {"transient", 69},
    [MR_ERR_HISTORY] = {"history", 10},
    [MR_ERR_POISON] = {"poison", 65},
    [MR_ERR_PROTOCOL] = {"protocol", 70},
    [MR_ERR_SYSTEM] = {"system", 71},
    [MR_ERR_DEADLINE] = {"deadline", 3},
};

int mr_status_exit_code(mr_status status)
{
    MR_ASSERT((size_t)status < MR_ARRAY_LEN(statuses));
    return statuses[status].exit_code;
}

const char *mr_status_name(mr_status status)
{
    MR_ASSERT((size_t)status < MR_ARRAY_LEN(statuses));
    return statuses[status].name;
}

MR_PRINTF(4, 0)
static void error_fill(struct mr_error *error, mr_status status, const char *sqlstate,
                       const char *format, va_list args)
{
    /* A text that is too long is cut; vsnprintf always terminates it. */
    vsnprintf(error->text, sizeof(error->text), format, args);
    snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate);
    error->status = status;
}

void mr_error_set(struct mr_error *ret_error, mr_status status, const char *format, ...)
{
    if (ret_error == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    error_fill(ret_error, status, "", format, args);
    va_end(args);
}

void mr_error_refused(struct mr_error *ret_error, mr_status status, const char *sqlstate,
                      const char *format, ...)
{
    if (ret_error == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    error_fill(ret_error, status, sqlstate, format, args);
    va_end(args);
}

bool mr_error_is(const struct mr_error *error, const char *sqlstates)
{
    return error->sqlstate[0] != '\0' && mr_is_among(sqlstates, mr_slice_of(error->sqlstate));
}
