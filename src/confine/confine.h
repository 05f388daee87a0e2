/* What the process gives up for good: system calls that it never makes, and files that are not its
 * own. So a hole in a library lets nobody start programs, look into other processes, or open ports.
 *
 * The kernel binds the calling thread and all threads that it starts. A kernel without it is no
 * failure: the answer says so. A refused call answers EPERM (files: EACCES) and does not kill the
 * process, because a new version of a library may try something and do without (io_uring, another
 * socket family). Needs no privilege. */
#pragma once

#include "base/base.h"

typedef enum mr_confined {
    MR_CONFINED,             /* from now on */
    MR_CONFINE_NOT_HERE,     /* the kernel, or what already confines us, has no such thing */
    MR_CONFINE_NOT_COMPILED, /* a build for coverage, which writes where it was built */
} mr_confined;

/* Which processes it may start. */
enum mr_confine_processes {
    MR_CONFINE_NO_PROCESSES,
    MR_CONFINE_PROGRAMS, /* any: Kerberos calls kinit */
};

/* No other processes than these, no look into others, no mounts, modules, keys, BPF, clocks, users,
 * io_uring, no socket families but IP, unix and netlink, no memory that is written and run. The
 * list is in syscalls.c. Before the first thread. */
mr_confined mr_confine_syscalls(enum mr_confine_processes processes);

/* For all threads: no new bind and listen; the resolver's netlink sockets excepted. Any thread,
 * after mr_confine_syscalls. */
mr_confined mr_confine_listeners(void);

enum mr_confine_access {
    MR_CONFINE_READ = 1,    /* files, and folders' lists */
    MR_CONFINE_WRITE = 2,   /* make, write, cut, rename and remove files */
    MR_CONFINE_SOCKET = 4,  /* make and remove unix sockets */
    MR_CONFINE_EXECUTE = 8, /* start programs */
};

/* A file, or a folder with all that is below it. One that does not exist is passed over. */
struct mr_confine_path {
    const char *path;
    unsigned access; /* of enum mr_confine_access */
};

/* Landlock: nothing but these may be opened any more; what is open stays open. Before the first
 * thread. */
mr_confined mr_confine_files(const struct mr_confine_path *paths, size_t count);
