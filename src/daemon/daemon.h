/* The daemon: a configuration with what its modules need besides, and the run that wires them. Main
 * thread, unless said otherwise. */
#pragma once

#include "config/config.h"
#include "copy/copies.h"
#include "flow/pipeline.h"

/* Made of a configuration's values; the configuration's. */
struct mr_daemon_options {
    struct mr_pipeline_options pipeline;
    struct mr_copies_options copies; /* without their server, and who hears signals */
    bool profiles;                   /* may be taken: some option of [profiling] asks for it */
};

/* Reads a file; NULL path: the environment alone. As mr_config_read. */
mr_status mr_daemon_load(const char *path, struct mr_config **ret_config);

/* The same, with that snapshot.mode (MR_MODE_…), to close a gap. */
mr_status mr_daemon_load_mending(const char *path, int64_t snapshot_mode,
                                 struct mr_config **ret_config);

/* The same from a text; `name` stands in messages. `elsewhere`: one that another machine will
 * read. */
mr_status mr_daemon_load_text(const char *name, const char *text, size_t len,
                              struct mr_config **ret_config);
mr_status mr_daemon_load_elsewhere(const char *name, const char *text, size_t len,
                                   struct mr_config **ret_config);

/* Reads `running`'s file again, but none of its secrets, which are those of the start. Any
 * thread. */
mr_status mr_daemon_reload(const struct mr_config *running, struct mr_config **ret_config);

/* Has the sink know the sections of the stored position; `kinds`: MR_DAEMON_SECTIONS, the caller's,
 * who keeps them. */
enum { MR_DAEMON_SECTIONS = 11 };
void mr_daemon_know_sections(struct mr_config *config, struct mr_section_kind *kinds);

/* Streams until SIGTERM, or until all has failed that is tried again. */
mr_status mr_daemon_run(struct mr_config *config, struct mr_error *ret_error);
