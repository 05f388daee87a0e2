/* Where threads are while they do not run: looked at from outside, without a signal. Any thread. */
#ifndef MR_PROF_OFFCPU_H
#define MR_PROF_OFFCPU_H

#include "prof/profile.h"

/* Looks at every thread of the process once and adds `wall_ns` to what each does: its state, the system call
 * it is in, and the function that called it. The file under /proc that tells the call may be closed to an
 * unprivileged process that can't be dumped; the state is then all there is. */
void mr_offcpu_look(struct mr_profile *profile, uint64_t wall_ns);

#endif
