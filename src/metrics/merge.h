/* Prometheus' texts of several processes as one, which has each family once. Any thread. */
#pragma once

#include <stdio.h>

#include "base/base.h"

/* Of a millrace; its samples get the label `name` with that value, which has nothing to escape. */
struct mr_exposed {
    char *value;
    char *text; /* NULL: it has none */
};

/* `only`: the families that are wanted, "a|b"; NULL: all of metrics.def. */
void mr_metrics_print_merged(FILE *to, const char *name, const struct mr_exposed *exposed,
                             uint32_t count, const char *only);
