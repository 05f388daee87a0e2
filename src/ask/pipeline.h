/* Whose millrace is asked: two that have one http.address by mistake must not take each other's
 * commands. Values only. */
#pragma once

#include "base/sha256.h"

/* The header of a request that says whose answer is wanted. */
#define MR_PIPELINE_HEADER "Millrace-Pipeline"

/* Strings are the caller's. */
struct mr_pipeline_name {
    const char *path;              /* of the configuration file; NULL: there is none */
    const char *words;             /* for people */
    struct mr_sha256_short stream; /* of what no other stream has, and an edit seldom changes */
};

/* What the header has: the file's content as it is now, and the stream. */
struct mr_pipeline_mark {
    char text[2 * sizeof(struct mr_sha256_short)];
};
struct mr_pipeline_mark mr_pipeline_mark(const struct mr_pipeline_name *name);

/* True: the mark (NULL: the one who asks has no file) means this pipeline. One of the two is
 * enough: a copy of the file may be edited for another program, and one that was edited in place is
 * the running one's for as long. */
bool mr_pipeline_is_meant(const struct mr_pipeline_name *name, const char *mark);

/* Of a file as it is now; "": it can't be read. */
struct mr_sha256_short mr_file_digest(const char *path);
