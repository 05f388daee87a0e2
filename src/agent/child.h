/* The state of one pipeline on an agent: whether its process is to be started, awaited or left alone. Values only: who calls it has the
 * process and the clock (milliseconds that never jump). One thread at a time.
 *
 *                 started                 seen                     seen
 *     WAITING ─────────────▶ STARTING ─────────▶ STANDBY ◀──────▶ STREAMING
 *        ▲                      │ its end, in any of the three, or asked for
 *        ├── the pause is over ─┼─▶ BACKOFF     an end that a restart may mend
 *        ├── renewed ───────────┼─▶ HELD        an end that needs a person: nothing is started
 *        └── ended, and wanted ─┴─▶ ENDING ───▶ STOPPED   not wanted; wanted again: WAITING */
#pragma once

#include "fleet/store.h"

enum {
    FLEET_PAUSE_MS = 1000, /* before a restart; doubles up to the next */
    FLEET_PAUSE_MS_MAX = 60000,
    FLEET_GOOD_MS = 300000, /* who has run so long begins with the shortest pause */
    FLEET_START_MS = 15000, /* a start that takes longer does not hold up others */
    FLEET_SIGNALLED = 128,  /* exit codes from here on are signals */
};

struct fleet_child_state {
    enum fleet_state state;
    bool is_wanted;     /* is started again when it has ended */
    bool has_process;   /* in STARTING, STANDBY, STREAMING and ENDING */
    int64_t since_ms;   /* in this state */
    int64_t told_ms;    /* when others were told of it; 0: they are to be, for it has changed */
    int64_t started_ms; /* of the last process */
    int64_t limit_ms;   /* BACKOFF: when it is over. ENDING: when patience is */
    uint32_t pause_ms;  /* the next one */
    int32_t exit_code;  /* of the last process; FLEET_SIGNALLED and a signal's number */
    uint64_t starts;
};

struct fleet_child_state mr_child_new(int64_t now_ms); /* not wanted: STOPPED */

/* Whether it is to run. One that is not any more and has a process is to be ended by mr_child_end. */
void mr_child_want(struct fleet_child_state *child, bool is_wanted, int64_t now_ms);

/* It may work now: its definition is another one, or somebody asks for a start. HELD and BACKOFF are over. */
void mr_child_renew(struct fleet_child_state *child, int64_t now_ms);

bool mr_child_may_start(const struct fleet_child_state *child, int64_t now_ms);
bool mr_child_is_being_started(const struct fleet_child_state *child, int64_t now_ms);
void mr_child_started(struct fleet_child_state *child, int64_t now_ms);

/* What the process says of itself: STARTING, STANDBY or STREAMING. Of one that is being ended it counts no more. */
void mr_child_seen(struct fleet_child_state *child, enum fleet_state seen, int64_t now_ms);

/* The process is to end, in `patience_ms`. True: SIGTERM is to be sent. */
bool mr_child_end(struct fleet_child_state *child, int64_t patience_ms, int64_t now_ms);
bool mr_child_is_overdue(const struct fleet_child_state *child, int64_t now_ms); /* SIGKILL is */

void mr_child_ended(struct fleet_child_state *child, int32_t exit_code, int64_t now_ms);
