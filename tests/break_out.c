/* Preloaded into millrace: on SIGUSR2 it tries, from inside the process, what an intruder would,
 * and writes one line per attempt, "name errno", to the file that BREAK_OUT_RESULT names, which it
 * opened at the start. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int result = -1;

static void tell(const char *name, long answer)
{
    dprintf(result, "%s %d\n", name, answer >= 0 ? 0 : errno);
}

static void try_all(int signal_number)
{
    (void)signal_number;
    char name[] = "/bin/true";
    char *arguments[] = {name, NULL};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int saved = errno;
    tell("bind", bind(fd, (struct sockaddr *)&at, sizeof(at)));
    tell("listen", listen(fd, 1));
    close(fd);
    tell("secret", open(getenv("BREAK_OUT_SECRET"), O_RDONLY));
    tell("overwrite", open(getenv("BREAK_OUT_SECRET"), O_WRONLY | O_TRUNC));
    tell("plant", open(getenv("BREAK_OUT_PLANT"), O_WRONLY | O_CREAT, 0755));
    tell("system file", open("/etc/hostname", O_RDONLY));
    tell("another process", syscall(SYS_process_vm_readv, getppid(), NULL, 0UL, NULL, 0UL, 0UL));
    tell("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    void *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tell("writable code", code == MAP_FAILED ? -1 : 0);
    tell("exec", execv(name, arguments));
    tell("end", 0);
    errno = saved;
}

__attribute__((constructor)) static void prepare(void)
{
    struct sigaction action = {.sa_handler = try_all};
    result = open(getenv("BREAK_OUT_RESULT"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    sigaction(SIGUSR2, &action, NULL);
}
