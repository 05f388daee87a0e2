/* What a fleet keeps in Kafka: two compacted topics, and the records in them (docs/fleet.md). Only src/fleet and src/agent include it. One thread.
 *
 *   __millrace_fleet.NAME         256 partitions (or fewer, where somebody else has made it). `apply` and its like write it, under the transactional id "millrace-fleet/NAME", all of a
 *                                 change in one transaction; agents read it, committed only
 *       partition 0               `_revision`; `node/NODE`
 *       the others                pipelines, by their names; which partition is apply's to choose. A pipeline that moves has its tombstone
 *                                 and its record in one transaction
 *   __millrace_fleet.NAME.status  1 partition. Agents write it, on change and every 30 s: pipelines by their names, and `node/NODE`. A tombstone for a
 *                                 pipeline whose definition is gone and whose child has ended
 *
 * Values are JSON; keys that are not known are passed over, and "version" above FLEET_RECORD_VERSION is refused. */
#pragma once

#include <cjson/cJSON.h>

#include "base/sha256.h"
#include "fleet/fleet_internal.h"
#include "kafka/kafka_reader.h"

enum {
    FLEET_PARTITIONS = 256, /* of a topic that apply makes, and at most */
    FLEET_RECORD_VERSION = 1,
    FLEET_UNKNOWN_MS = 90000, /* a status that is older tells nothing */
    FLEET_STATUS_MS = 30000,  /* written anew */
    FLEET_WEIGHT_MAX = 1000,
    FLEET_CPU_WEIGHT_MAX = 10000, /* as cgroups have it (the kernel's cgroup-v2.rst, cpu.weight) */
};

/* ---- records ---- */

struct fleet_revision {
    /* 0: there is none. Each write of definitions has a greater one, `drain` and its like included. */
    uint64_t number;
    uint64_t count; /* of pipelines */
    char *sha256;   /* of all definitions, names and values in the order of the names */
    char *by, *at;  /* "user@host", "2026-11-26T22:51:03Z" */
};

struct fleet_node {
    char *name;
    bool drains;
};

/* The definition of a pipeline. */
struct fleet_definition {
    char *name;
    int32_t partition;
    uint64_t revision; /* in which it last changed */
    /* Grows with `run`, `config`, `weight` or a limit. An agent takes it up: by a reload, else by a restart. */
    uint64_t generation;
    /* Grows where a start is asked for: of one that is held or in backoff at once; one that runs ends in order, and starts anew. */
    uint64_t retry;
    char *config; /* the file's text; text and file are 0600 */
    struct fleet_terms terms;
};

enum fleet_state {
    FLEET_WAITING, /* for a start to be free, or for room on the host */
    FLEET_STARTING,
    FLEET_STANDBY,
    FLEET_STREAMING,
    FLEET_BACKOFF,
    FLEET_HELD,
    FLEET_ENDING,
    FLEET_STOPPED,
    FLEET_STATES,
};
/* "waiting", …: in JSON and in labels. */
extern const char *const mr_fleet_states[FLEET_STATES];

/* What an agent says of a pipeline. Numbers below 0: not known. */
struct fleet_status {
    char *name;
    int64_t at_ms; /* since 1970, when it was said */
    char *node;
    int64_t pid;
    uint64_t generation, retry; /* the child was forked with, or has taken up */
    enum fleet_state state;
    bool is_surplus;   /* not started, for its host's limits are reached */
    int64_t since_ms;  /* since 1970: in this state */
    int64_t exit_code; /* the last end's; a signal is 128 and its number */
    char *error;       /* of the last end, or what is waited for; "": none */
    char *program;     /* the child's version; "": not known */
    char *slot;        /* PostgreSQL's wal_status, "reserved", "unreserved", …; "": not known */
    double lag_seconds, lag_bytes;
    double retained_wal_bytes;
    double rss_bytes;
    double cpu_seconds, rows, bytes, starts; /* across restarts, as the metrics */
};

/* What an agent says of itself. */
struct fleet_node_status {
    char *name;
    int64_t at_ms;
    char *program;      /* the agent's version */
    uint64_t revision;  /* the last one it has read */
    uint64_t processes; /* of pipelines */
    char *owned;        /* its partitions: a character each, '0' or '1' */
    bool is_drained;    /* asked to, and no child of it is left */
    bool is_ready;
};

enum fleet_record_kind {
    FLEET_RECORD_REVISION,
    FLEET_RECORD_NODE,
    FLEET_RECORD_DEFINITION,
    FLEET_RECORD_STATUS,
    FLEET_RECORD_NODE_STATUS,
    FLEET_RECORD_OTHER, /* a key of nobody's that is known here, such as `_…` of a later millrace; pass over it */
};

/* One of either topic. The name is set even if the value is a tombstone, or can't be read. */
struct fleet_record {
    enum fleet_record_kind kind;
    bool is_gone; /* a tombstone */
    union {
        struct fleet_revision revision;
        struct fleet_node node;
        struct fleet_definition definition;
        struct fleet_status status;
        struct fleet_node_status node_status;
    };
};

/* Reads a record; `is_status`: of which topic. MR_ERR_PROTOCOL: this one can't be read, kind and name are set nevertheless (an agent holds that
 * pipeline, and lets others be); MR_ERR_CONFIG: likewise, a later millrace has written it. To be ended by mr_fleet_record_done in any case. */
mr_status mr_fleet_record_read(bool is_status, const struct mr_kafka_read *read,
                               struct fleet_record *ret, struct mr_error *ret_error);
void mr_fleet_record_done(struct fleet_record *record); /* zeroes it; a zeroed one is fine */

/* Its key, and its value (NULL: it is gone), which the caller frees. */
char *mr_fleet_record_key(const struct fleet_record *record);
char *mr_fleet_record_value(const struct fleet_record *record);

/* The value as an object, the caller's. */
cJSON *mr_fleet_record_json(const struct fleet_record *record);

/* ---- the two topics ---- */

/* The fleet's topics, by its own Kafka options (own.c). Zeroed but for `own`, it is open; mr_fleet_store_close ends all but `own`. */
struct fleet_store {
    const struct fleet_own *own;
    struct mr_kafka_reader *reader; /* NULL: not needed yet */
    struct mr_kafka_writer *writer; /* likewise */
    char *transactional_id;         /* of the writer; NULL: without */
};

/* Of the fleet of that name; the caller frees it. */
char *mr_fleet_topic(const char *name, bool is_status);

void mr_fleet_store_close(struct fleet_store *store);

/* For agents: writes a record to the status topic, by a producer without transactions; returns at once. What Kafka does not take within
 * 25 s is dropped; the next one says it again. MR_ERR_…: no producer can be made. */
mr_status mr_fleet_store_tell(struct fleet_store *store, const struct fleet_record *record,
                              struct mr_error *ret_error);

/* ---- all of it, for those who look and those who change it ---- */

struct fleet_stored {
    struct fleet_revision revision;
    struct fleet_stored_item {
        struct fleet_record record;    /* a definition or a node; `is_gone`: it is to go */
        int32_t from;                  /* the partition it was read from; -1: it is new */
        bool is_changed;               /* it is to be written */
        bool is_wrong;                 /* it can't be read */
        struct mr_sha256_short digest; /* of its value */
    } * items;                         /* by kind and name */
    uint32_t count, room;
    int32_t partitions; /* of the topic; 0: there is none */
    bool is_whole;      /* what was read is what `revision` tells of */
    uint64_t next;      /* revision: above all that an agent has seen, of whatever topic */
};

/* Reads a topic to the end that it has now, committed records only: of each key the last one, unless it is a tombstone. MR_ERR_CONFIG: a record of a
 * later millrace; MR_ERR_PROTOCOL: two records of a pipeline. No topic: an empty one. */
mr_status mr_fleet_stored_read(struct fleet_store *store, bool is_status, struct fleet_stored *ret,
                               struct mr_error *ret_error);
void mr_fleet_stored_done(struct fleet_stored *stored);

/* NULL: there is none. */
struct fleet_stored_item *mr_fleet_stored_find(const struct fleet_stored *stored,
                                               enum fleet_record_kind kind, const char *name);

/* The one of that name, made if there is none; it is to be written. */
struct fleet_stored_item *mr_fleet_stored_change(struct fleet_stored *stored,
                                                 enum fleet_record_kind kind, const char *name);

/* The partition with the least weight, of those that are allowed (NULL: all but the first, which is `_revision`'s): one pipeline each while they
 * last. */
int32_t mr_fleet_place(const struct fleet_stored *stored, const bool *allowed);

/* For who changes definitions: makes the topics that are missing, ends the right to write of whoever has begun before, and reads all. */
mr_status mr_fleet_change_begin(struct fleet_store *store, struct fleet_stored *ret,
                                struct mr_error *ret_error);

/* Writes what is changed, and the next revision, in one transaction, and says so on standard error; new definitions get a partition. MR_AGAIN: another has begun since;
 * nothing was written. */
mr_status mr_fleet_change_commit(struct fleet_store *store, struct fleet_stored *stored,
                                 struct mr_error *ret_error);

/* ---- a command ---- */

struct fleet_work {
    const struct mr_fleet_options *options;
    struct fleet_own own;
    struct fleet_store store;
    struct fleet_stored stored;
    FILE *to;
};

/* To be ended in any case. */
mr_status mr_fleet_work_begin(struct fleet_work *work, const struct mr_fleet_options *options,
                              FILE *to, struct mr_error *ret_error);
void mr_fleet_work_done(struct fleet_work *work);

/* What another has done meanwhile is an exit code, not an error. */
mr_status mr_fleet_outcome(mr_status status, const struct mr_error *error, int *ret_code);
