/* What companions (ports/companion.h) may ask of the flow. Source thread, where nothing else is
 * said. */
#pragma once

#include "encode/encode.h"
#include "flow/lane.h"
#include "ports/companion.h"

/* What never changes: any thread reads it. */
struct mr_port {
    struct mr_lane *stream; /* the stream's lane */
    uint32_t lanes;         /* how many: the stream's, 0, and those for threads of a companion */
    bool stores;            /* the sink stores positions, and so sections */
    bool takes_over;        /* another program has delivered what is before the stream */
    int stop_fd;            /* readable: the flow is asked to stop */
    mr_lsn skip;            /* commit of the transaction that is passed over; 0: none */
};

/* The companion has something to do: its `between` is called soon. Takes a companion that has no
 * port yet. Any thread. */
void mr_port_want(struct mr_companion *companion);

/* Wakes the source thread. Any thread. */
void mr_port_wake(struct mr_port *port);

/* Records that other lanes than the stream's have handed over since the start. Any thread. */
uint64_t mr_port_records_beside(const struct mr_port *port);

/* A step for the lane's batch at hand, or its next one: the same until a batch has carried it. The
 * lane's thread. */
uint64_t mr_port_note(struct mr_lane *lane);

/* A lane for a thread of the companion `owner`, whose `sealed` is called for it. */
struct mr_lane *mr_port_lane(struct mr_port *port, uint32_t index, struct mr_companion *owner);

/* From now on, or no longer, the companion gets `change`, `commit` and `sealed` of the stream.
 * Between two rounds. */
void mr_port_watch(struct mr_companion *companion, bool watches);

/* All that ends at or before it is appended; 0: nothing is known yet. */
mr_lsn mr_port_place(const struct mr_port *port);

/* Whether `position` is above all that is appended. */
bool mr_port_is_above(const struct mr_port *port, struct mr_position position);

/* Appends a change between two transactions; its position is above all that is appended. MR_FULL:
 * there is no room. */
mr_status mr_port_append(struct mr_port *port, const struct mr_change *change,
                         struct mr_error *ret_error);

/* Appends a record that is made already, between two transactions; its position, above all that is
 * appended, is set here, its bytes stay the caller's. MR_FULL: there is no room; MR_AGAIN: no
 * place, until the stream goes on. */
mr_status mr_port_append_record(struct mr_port *port, struct mr_record *record,
                                struct mr_error *ret_error);

/* All that ends at or before it is acknowledged, and will never be sent for the first time again.
 * Never goes back. Any thread. */
mr_lsn mr_port_published(const struct mr_port *port);

/* What is appended next was received now. */
void mr_port_set_clock(struct mr_port *port, int64_t now_ns, int64_t wall_ns);

/* Half of all batches are in flight. */
bool mr_port_is_crowded(const struct mr_port *port);

/* As mr_backoff_ms, up to the configured maximum. */
uint32_t mr_port_backoff_ms(const struct mr_port *port, uint32_t attempt);

/* The flow is to stop, or the sink's session is over: nothing that is not safe counts any more. */
bool mr_port_is_over(const struct mr_port *port);

/* Serves what else there is for the thread to do, and waits, for `wait_ms` at most. MR_AGAIN:
 * mr_port_is_over; MR_ERR_TRANSIENT: the source's connection was closed. */
mr_status mr_port_look_around(struct mr_port *port, int wait_ms, struct mr_error *ret_error);

/* Where the stream must go on; false: that is not known. Its sections stay the flow's. */
bool mr_port_known(const struct mr_port *port, struct mr_checkpoint *ret_known);

/* That is the stored position from now on, whatever was before; the flow's. Only where the sink
 * stores positions. */
void mr_port_set_known(struct mr_port *port, const struct mr_checkpoint *known);

/* This `prepare` is to mend what the stream could not be opened for. */
bool mr_port_is_mending(const struct mr_port *port);

/* The source has answered; whose stream it is, what is stored from now on says. */
void mr_port_begins(struct mr_port *port, const struct mr_identity *identity);

/* What other lanes than the stream's append gets ordinals above that of `first`. False: they have
 * handed over what is above. */
MR_MUST_USE bool mr_port_begin_lanes(struct mr_port *port, struct mr_position first);

/* All before `lsn` is appended; returns once that is stored, if the sink stores anything. As
 * mr_port_look_around. */
mr_status mr_port_begin_at(struct mr_port *port, mr_lsn lsn, int wait_ms,
                           struct mr_error *ret_error);
