/* A pause in which a socket fills. */
#pragma once

#include "base/base.h"

/* Until `bytes` can be read from `fd` or it has ended, another descriptor of the two is readable,
 * or `most_ns` are over, which are less than a second. The low-water mark is TCP's (tcp(7),
 * socket(7), SO_RCVLOWAT); anything else ends the pause with its first byte. True: `wake_fd` is
 * readable. */
bool mr_gulp(int fd, int bytes, int stop_fd, int wake_fd, int64_t most_ns);
