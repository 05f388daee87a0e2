#include "flow/gulp.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

bool mr_gulp(int fd, int bytes, int stop_fd, int wake_fd, int64_t most_ns)
{
    static const int some = 1;
    struct pollfd fds[3] = {{.fd = fd, .events = POLLIN},
                            {.fd = stop_fd, .events = POLLIN},
                            {.fd = wake_fd, .events = POLLIN}};
    MR_ASSERT(most_ns < INT64_C(1000000000));
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
    ppoll(fds, 3, &(struct timespec){.tv_nsec = (long)most_ns}, NULL);
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &some, sizeof(some));
    return fds[2].revents != 0;
}
