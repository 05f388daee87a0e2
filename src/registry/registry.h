/* A client of a schema registry with Confluent's API (its documentation, "Schema Registry API
 * Reference"), on a thread of its own: it registers what mr_schemas has without an id, one after
 * the other. A registry that is away is asked again, with pauses that grow to `backoff_max_ms`; the
 * stream waits before the sink meanwhile. */
#pragma once

#include "base/finding.h"
#include "base/secret.h"
#include "base/standstill.h"
#include "event/schemas.h"

/* Strings are the caller's and outlive it. */
struct mr_registry_options {
    const char *const *urls; /* asked in turn */
    uint32_t url_count;
    const char *username; /* NULL: none is told */
    struct mr_secret *password;
    const char *authority; /* certificates (PEM) to trust in place of the system's; NULL */
    uint32_t backoff_max_ms;
    bool registers; /* else schemas must be there */
};

struct mr_registry;

/* `schemas` outlives it, and so does the `standstill` that it is started with. */
struct mr_registry *mr_registry_new(const struct mr_registry_options *options,
                                    struct mr_schemas *schemas);
mr_status mr_registry_start(struct mr_registry *registry, struct mr_standstill *standstill,
                            struct mr_error *ret_error);

/* Ends its thread, in the middle of a question too, and frees it. NULL is fine. */
void mr_registry_free(struct mr_registry *registry);

/* Reports of each address whether it answers, and takes the login. Waits; registers nothing. */
void mr_registry_check(const struct mr_registry_options *options, mr_finding_fn report,
                       void *context);

/* The text of the schema with that number, which the caller frees. Waits; asks each address once.
 * MR_ERR_AUTH: the login is refused; MR_ERR_PROTOCOL: there is no such schema; MR_ERR_TRANSIENT:
 * none answers. */
mr_status mr_registry_schema(const struct mr_registry_options *options, uint32_t id,
                             char **ret_text, struct mr_error *ret_error);
