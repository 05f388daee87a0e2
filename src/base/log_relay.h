/* The log of another millrace, passed on line by line with the name of whose it is; and what it said last of an error. One thread. */
#pragma once

#include "base/base.h"

/* Zeroed but for `fd` to begin with. */
struct mr_log_relay {
    int fd;               /* a pipe's end that does not block; 0: none */
    struct mr_text line;  /* its beginning */
    struct mr_text error; /* "": none */
};

/* Takes what there is. `is_end`: a line without an end is one, too. */
void mr_log_relay_read(struct mr_log_relay *relay, const char *name, bool is_end);

void mr_log_relay_done(struct mr_log_relay *relay);
