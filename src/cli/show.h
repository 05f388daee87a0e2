/* What a running millrace says of itself, and figures as people read them; for `millrace status`
 * and `top`. */
#pragma once

#include "base/object.h"

/* What is at a path of names (base/object.h). */
const char *mr_show_word(const cJSON *object, const char *path);
bool mr_show_is(const cJSON *object, const char *path);

struct mr_show_text {
    char bytes[48];
};

/* A percentile of times: the histograms end at 100 s, and what took longer is ">100 s". */
struct mr_show_text mr_show_percentile(double seconds);

/* "-" for what is not known. */
struct mr_show_text mr_show_count(double value);     /* "1,234,567" */
struct mr_show_text mr_show_bytes(double value);     /* "1.2 MiB" */
struct mr_show_text mr_show_seconds(double seconds); /* "2.5 ms" */

/* The same of a number at a path, as text. */
#define MR_SHOW_COUNT(object, path)      mr_show_count(mr_object_number(object, path)).bytes
#define MR_SHOW_BYTES(object, path)      mr_show_bytes(mr_object_number(object, path)).bytes
#define MR_SHOW_SECONDS(object, path)    mr_show_seconds(mr_object_number(object, path)).bytes
#define MR_SHOW_PERCENTILE(object, path) mr_show_percentile(mr_object_number(object, path)).bytes

/* A word of a command that is printed to be copied, quoted for a shell where it has to be. The
 * caller frees it. */
char *mr_show_argument(const char *word);

/* How long it has been in its state. */
struct mr_show_text mr_show_since(const cJSON *status);

/* The line about the slot; a line for each of the newest `shown` events. */
void mr_show_slot(const cJSON *status, FILE *to);
void mr_show_events(const cJSON *status, int shown, FILE *to);
