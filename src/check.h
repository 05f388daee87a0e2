/* `millrace check`: every finding at once, with its remedy, and nothing changed. */
#ifndef MR_CHECK_H
#define MR_CHECK_H

#include "config/config.h"

/* Prints the findings and answers the status of the worst: MR_OK when the stream could start. */
mr_status mr_check(const struct mr_config *config, FILE *to);

#endif
