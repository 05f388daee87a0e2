/* A configuration of Debezium's PostgreSQL connector as ours: `millrace
 * convert`. Main thread.
 *
 * What becomes of each option is declared in debezium.def. Nothing of it is
 * ever read as a program: Java classes, expressions of a config provider and
 * the like are named, not followed. */
#pragma once

#include "flow/pipeline.h"

/* Writes TOML to `to` and names on `notes` each option that it could not carry over, with what to
 * do; `name` is the file's. Takes what Connect's REST interface takes, with or without the wrapper
 * around "config", and .properties; also those of Debezium Server. Passwords and what else an
 * option that is not carried holds come into neither. MR_ERR_CONFIG, told on `notes`: it is no such
 * file, or another connector's. */
mr_status mr_convert(const char *name, const char *text, size_t len, FILE *to, FILE *notes);

/* Reads a connector's offset: what Connect answers to GET /connectors/NAME/offsets, or the value of
 * a record of its offsets topic. On failure answers false and fills `ret_reason`. */
bool mr_convert_offset(const char *text, size_t len, struct mr_handed_over *ret, char *ret_reason,
                       size_t reason_size);

/* The table of docs/debezium-options.md. */
void mr_convert_print_reference(FILE *to);
