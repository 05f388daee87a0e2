/* An agent inside. Only src/fleet includes it.
 *
 *   agent.c    the loop: what is to run here, starts and ends
 *   news.c     what Kafka says: definitions, and whose they are
 *   child.c    the state of a pipeline
 *   process.c  its process
 *   look.c     asks the processes how they are, and has them reload; a thread of its own
 *   tell.c     status records
 *   pages.c    what the agent serves by HTTP
 *
 * The main thread holds the lock while it works, and not while it waits; the others take it for a copy. */
#pragma once

#include <pthread.h>

#include "base/ticker.h"
#include "fleet/child.h"
#include "fleet/fleet_internal.h"
#include "fleet/process.h"
#include "fleet/store.h"
#include "kafka/kafka_group.h"

/* What this agent has to do with a partition. */
enum fleet_hold {
    HOLD_NONE,
    HOLD_UNREAD, /* given to it, but not read to its end: nothing starts */
    HOLD_READ,
    HOLD_LEAVING, /* revoked; given to others once its processes have ended */
    HOLD_KEPT,    /* lost, or left by a drain: its processes go on until it is known who has it */
};

enum fleet_reload {
    RELOAD_NONE,
    RELOAD_WANTED,
    RELOAD_ASKED,
    RELOAD_DONE,
    RELOAD_RESTART,
    RELOAD_REFUSED
};

/* What a process says of itself; numbers below 0: it has not said. */
struct fleet_seen {
    int64_t at_ms; /* when it was asked; 0: not yet */
    enum fleet_state state;
    bool is_ready;
    double lag_seconds, lag_bytes, retained_wal_bytes, rss_bytes, cpu_seconds, rows, bytes;
    char program[32], slot[16], reason[256];
};

struct fleet_child {
    struct fleet_definition definition;
    bool is_defined;     /* its record is there, */
    bool is_read;        /* and was since its partition is read anew */
    bool is_taken_over;  /* another agent's process stands by for it, or has its stream */
    char *unreadable;    /* why its record can't be acted on; NULL: it can */
    int64_t patience_ms; /* from SIGTERM to SIGKILL */
    uint64_t memory;     /* what it counts for in the host's max_memory */
    bool has_place;      /* on the host: it was started, and is to go on */
    bool is_surplus;     /* it would start, but for the host's limits */
    struct fleet_child_state state;
    struct fleet_process process;
    uint64_t generation, retry; /* in effect */
    struct fleet_seen seen;
    enum fleet_reload reload;
    uint64_t refused_generation; /* the process goes on with the one before; 0: none is */
    uint64_t reload_generation, reload_number; /* that it is for; the process's number of it */
    struct fleet_totals {
        double cpu_seconds, rows, bytes; /* of processes that have ended */
    } before;
    uint64_t exits[FLEET_SIGNALLED + 1]; /* by code; the last one: signals */
    char *error;                         /* of the last end; NULL: none */
    struct fleet_told {
        int64_t at_ms;
        struct fleet_child_state state;
        uint64_t generation, retry;
        bool is_surplus;
    } told; /* in the last status record */
};

struct fleet_agent {
    const struct fleet_own *own;
    const char *node;
    struct fleet_home home;
    struct fleet_store store; /* status records go out by it */
    int wake_fd, signal_fd;
    struct mr_kafka_group *member;  /* NULL: not in the group */
    struct mr_kafka_group *watcher; /* of partition 0 of the definitions, and of the status topic */
    char *topic, *status_topic;
    enum fleet_hold holds[FLEET_PARTITIONS];
    struct fleet_reading {
        bool is_read;       /* the first partition of the definitions is */
        uint64_t revision;  /* the last one, */
        uint64_t newest;    /* and the highest ever: a lower one changes nothing */
        bool is_back;       /* it is lower, or the topic is gone */
        bool drains;        /* this node is to */
        int64_t refused_ms; /* when that was logged last */
        int64_t lost_ms;    /* when the group gave this agent up last; 0: it did not */
        int64_t follow_ms;  /* when what was gone is looked for again; 0: nothing was */
    } reading;
    bool has_group; /* it has an assignment, be it of nothing */
    bool is_ending, is_fenced;
    bool has_killed; /* a process that did not end in time */
    int64_t node_told_ms;

    pthread_mutex_t lock;
    struct fleet_children {
        struct fleet_child **items;
        uint32_t count, room;
    } children;
    struct mr_ticker looker;
    struct mr_http *http;
    struct mr_fleet_view *view; /* of the whole fleet, for pages; NULL: there are none */
    pthread_mutex_t view_lock;
};

/* Whether it takes part: it reads the definitions, and the revision has not gone back. */
bool mr_agent_is_ready(const struct fleet_agent *agent);

/* news.c: takes what there is; `ret_error` is set where the agent is to end. */
mr_status mr_agent_news(struct fleet_agent *agent, int64_t now_ms, struct mr_error *ret_error);

void mr_agent_child_free(struct fleet_child *child);

/* look.c: the thread; each look takes the lock for copies. */
mr_status mr_look_start(struct fleet_agent *agent, struct mr_error *ret_error);
void mr_look_stop(struct fleet_agent *agent);

/* The text that a process answers with, to be freed; NULL: none. Any thread. */
char *mr_look_ask(const char *socket_path, const char *path, const char *post);

/* tell.c: records of what has changed, and of all every 30 s; with the lock. */
void mr_tell(struct fleet_agent *agent, int64_t now_ms);
void mr_tell_gone(struct fleet_agent *agent, const char *pipeline); /* its definition is */
void mr_tell_end(struct fleet_agent *agent);                        /* the agent ends */
struct fleet_status mr_tell_status(const struct fleet_agent *agent, const struct fleet_child *child,
                                   int64_t now_ms); /* its texts are the agent's */

/* pages.c */
mr_status mr_agent_pages_start(struct fleet_agent *agent, struct mr_error *ret_error);
