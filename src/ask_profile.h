/* `millrace profile`: takes a profile of a running millrace, or compares two that were taken, and draws. */
#ifndef MR_ASK_PROFILE_H
#define MR_ASK_PROFILE_H

#include "admin/http.h"

enum mr_ask_profile_kind { MR_ASK_PROFILE_CPU, MR_ASK_PROFILE_HEAP, MR_ASK_PROFILE_OFFCPU };

struct mr_ask_profile {
    enum mr_ask_profile_kind kind;
    uint32_t seconds;   /* 0: 10; of a heap profile: what is there now, in place of a difference */
    uint32_t frequency; /* 0: the server's default */
    const char *out; /* file name, its ending is added; NULL: one with the time, in this folder */
};

/* Writes <out>.pb.gz and <out>.svg, prints the stages, and shows the picture where there is a display.
 * MR_ERR_TRANSIENT: nobody answers. */
mr_status mr_ask_profile(const struct mr_http_options *server, const struct mr_ask_profile *wish,
                         FILE *to, struct mr_error *ret_error);

/* The same of two files, each pprof or folded text: writes <out>.svg, coloured by what changed. */
mr_status mr_ask_profile_diff(const char *before, const char *after, const char *out, FILE *to,
                              struct mr_error *ret_error);

#endif
