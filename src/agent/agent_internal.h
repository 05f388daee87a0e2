/* An agent inside. Only src/agent includes it; docs/architecture.md says what each file has.
 * The main thread holds the lock while it works, and not while it waits; the others take it for what they read or write. */
#pragma once

#include "agent/child.h"
#include "agent/process.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/ticker.h"
#include "kafka/kafka_group.h"

/* What this agent has to do with a partition; from HOLD_UNREAD on it is its own. */
enum fleet_hold {
    HOLD_NONE,
    HOLD_KEPT,   /* lost, or left by a drain: its processes go on until it is known who has it */
    HOLD_UNREAD, /* given to it, but not read to its end: nothing starts */
    HOLD_READ,
    HOLD_LEAVING, /* revoked; given to others once its processes have ended */
};

struct fleet_child {
    struct fleet_child *next;
    struct fleet_definition definition;
    struct fleet_status status; /* what is told of it; its generation and retry are in effect */
    bool is_defined;            /* its record is there, */
    bool is_read;               /* and was since its partition is read anew */
    bool is_taken_over;         /* another agent's process stands by for it, or has its stream */
    bool has_place;             /* on the host: it was started, and is to go on */
    char *unreadable;           /* why its record can't be acted on; NULL: it can */
    uint64_t memory;            /* what it counts for in the host's max_memory */
    int64_t patience_ms;        /* from SIGTERM to SIGKILL */
    struct fleet_child_state state;
    struct fleet_process process;
    uint32_t askers; /* of its process: it is not started anew, and not freed */
    struct fleet_totals {
        double cpu_seconds, rows, bytes;
    } before;                            /* of processes that have ended */
    uint64_t exits[FLEET_SIGNALLED + 1]; /* by code; the last one: signals */
    char *error;                         /* of the last end, or of a refused reload; NULL: none */
    int64_t looked_ms;                   /* when the process was asked last */
    struct fleet_said {
        bool is_ready;
        char reason[256], program[32], slot[16];
    } said;
    struct fleet_reload {
        uint64_t generation; /* that the process is to take up; 0: none */
        uint64_t number;     /* the process's, of that request; 0: not asked yet */
        uint64_t refused;    /* the process goes on with the one before; 0: none is */
    } reload;
};

struct fleet_agent {
    const struct fleet_own *own;
    const char *node;
    struct fleet_home home;
    struct fleet_store store; /* status records go out by it */
    int wake_fd, signal_fd, wait_fd;
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
    bool has_killed;       /* a process that did not end in time */
    _Atomic bool is_ready; /* as of the last turn, for a probe, which never waits */
    int64_t node_told_ms;

    pthread_mutex_t lock;
    struct fleet_child *children;
    struct mr_ticker looker;
    struct mr_http *http;
    struct mr_fleet_view *view; /* of the whole fleet, for pages; NULL: there are none */
};

static inline int64_t mr_agent_now_ms(void)
{
    return mr_monotonic_ns() / 1000000;
}

/* agent.c: whether it takes part: it reads the definitions, and the revision has not gone back. */
bool mr_agent_is_ready(const struct fleet_agent *agent);

uint32_t mr_agent_count(const struct fleet_agent *agent, enum fleet_hold hold); /* partitions */
void mr_agent_end(struct fleet_child *child, int64_t now_ms); /* its process, in order */
void mr_agent_child_free(struct fleet_child *child);

/* news.c: takes what there is; `ret_error` is set where the agent is to end. */
mr_status mr_agent_news(struct fleet_agent *agent, int64_t now_ms, struct mr_error *ret_error);

/* look.c: asks all processes, on a thread of its own; the agent's. */
int mr_look(void *agent);
void mr_look_forget(struct fleet_child *child); /* what its process has said: it has none */

/* A reload is over. `refusal`: why the process goes on with the definition before; NULL: it has taken up the new one, or needs a restart. */
void mr_look_reloaded(struct fleet_child *child, bool is_taken_up, const char *refusal);

/* The text that a process answers with, to be freed; NULL: none. With the lock, which is not held meanwhile: the child stays. */
char *mr_look_ask(struct fleet_agent *agent, struct fleet_child *child, const char *path,
                  const char *post);

/* tell.c: records of what has changed, and of all every 30 s; with the lock. */
void mr_tell(struct fleet_agent *agent, int64_t now_ms);
void mr_tell_gone(struct fleet_agent *agent, char *pipeline); /* its definition is */
void mr_tell_node(struct fleet_agent *agent, bool is_gone);   /* the agent; `is_gone`: it ends */
const struct fleet_status *mr_tell_status(const struct fleet_agent *agent,
                                          struct fleet_child *child);

/* pages/pages.c */
mr_status mr_agent_pages_start(struct fleet_agent *agent, struct mr_error *ret_error);
