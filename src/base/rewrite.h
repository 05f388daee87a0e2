/* Names made of other names: an expression for the whole name (base/pattern.h), and what takes its
 * place, in which $1 to $9 and ${name} are the expression's groups and $0 is all of it. A name that
 * does not match stays as it is. That is how RegexRouter of Kafka Connect makes topics
 * (org.apache.kafka.connect.transforms.RegexRouter). Made with the configuration, read by any
 * thread. */
#pragma once

#include "base/buffer.h"
#include "base/pattern.h"

struct mr_rewrite {
    struct mr_regex *regex;
    const char *replacement; /* the caller's */
};

enum { MR_REWRITE_BYTES_MAX = 1023 };

/* False, with `reason` filled: one of the two texts is wrong. */
MR_MUST_USE bool mr_rewrite_init(struct mr_rewrite *rewrite, const char *expression,
                                 const char *replacement, char *reason, size_t size);
void mr_rewrite_done(struct mr_rewrite *rewrite);

/* Appends what becomes of `name`. False: it has more than MR_REWRITE_BYTES_MAX bytes or a NUL,
 * takes the expression too many steps, or the result does not fit. Asks for memory. */
MR_MUST_USE bool mr_rewrite_apply(const struct mr_rewrite *rewrite, mr_slice name,
                                  struct mr_buffer *out);
