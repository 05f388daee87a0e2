/* Seccomp, by libseccomp. A list of what is denied and not of what is allowed: libpq, librdkafka,
 * OpenSSL, libcurl, libdw and two allocators make some 120 different calls together, another set in
 * each version of each distribution. What such a list would add over this one is mostly harmless;
 * what it would break is a stream at night. systemd's unit and container runtimes have lists of the
 * other kind, made for all programs. */
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>

#include "base/sanitized.h"
#include "confine/confine.h"

/* The sanitizers start llvm-symbolizer, and a process of their own that attaches to ours and looks
 * for leaks. */
enum { IS_SANITIZED = MR_ADDRESS_SANITIZER || MR_THREAD_SANITIZER };

/* The length of a struct sockaddr_nl: the resolver binds one to learn which kinds of addresses this
 * machine has. */
enum { NETLINK_ADDRESS_BYTES = 12 };

static const char denied[] =
    /* other processes */
    "process_vm_readv|process_vm_writev|process_madvise|kcmp|pidfd_open|pidfd_getfd|"
    "pidfd_send_signal|kill|"
    /* namespaces and mounts */
    "unshare|setns|mount|umount2|pivot_root|chroot|fsopen|fsconfig|fsmount|fspick|move_mount|"
    "open_tree|mount_setattr|name_to_handle_at|open_by_handle_at|mknod|mknodat|"
    /* users and rights */
    "setuid|setgid|setreuid|setregid|setresuid|setresgid|setfsuid|setfsgid|setgroups|capset|"
    "add_key|request_key|keyctl|"
    /* the kernel itself, and parts of it that had many faults */
    "bpf|userfaultfd|io_uring_setup|io_uring_enter|io_uring_register|init_module|finit_module|"
    "delete_module|kexec_load|kexec_file_load|reboot|swapon|swapoff|acct|quotactl|syslog|iopl|"
    "ioperm|modify_ldt|vhangup|settimeofday|clock_settime|adjtimex|clock_adjtime|sethostname|"
    "setdomainname|vmsplice|migrate_pages|move_pages|lookup_dcookie|nfsservctl|remap_file_pages";

/* libseccomp's own macros leave a field out, which Clang warns of. */
static struct scmp_arg_cmp compared(unsigned argument, enum scmp_compare how, scmp_datum_t with)
{
    return (struct scmp_arg_cmp){.arg = argument, .op = how, .datum_a = with};
}

/* The bits of `mask` are `bits`. */
static struct scmp_arg_cmp masked(unsigned argument, scmp_datum_t mask, scmp_datum_t bits)
{
    return (struct scmp_arg_cmp){
        .arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = bits};
}

static bool deny(scmp_filter_ctx filter, int call)
{
    /* A call that this processor does not have needs no rule. */
    int failed = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0);
    return failed == 0 || failed == -EDOM;
}

/* A name that libseccomp does not know ends the start: CMakeLists.txt asks for a version that knows
 * all. */
static bool deny_all(scmp_filter_ctx filter, const char *calls)
{
    mr_slice one;
    bool good = true;
    while (mr_next_word(&calls, &one)) {
        char name[32];
        snprintf(name, sizeof(name), "%.*s", MR_SLICE_ARGS(one));
        int call = seccomp_syscall_resolve_name(name);
        good = call != __NR_SCMP_ERROR && deny(filter, call) && good;
    }
    return good;
}

static bool deny_if(scmp_filter_ctx filter, int call, struct scmp_arg_cmp condition)
{
    int failed = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), call, 1, &condition);
    return failed == 0 || failed == -EDOM;
}

/* What clone3 is asked for lies in memory, where a filter can't look: it is "not there", and the C
 * library takes clone (as with every container runtime). */
static bool deny_processes(scmp_filter_ctx filter, enum mr_confine_processes processes)
{
    if (processes == MR_CONFINE_PROGRAMS || IS_SANITIZED) {
        return true;
    }
    bool good = deny_all(filter, "execve|execveat|ptrace");
    good = deny_all(filter, "fork|vfork") && good;
    good = deny_if(filter, SCMP_SYS(clone), masked(0, CLONE_THREAD, 0)) && good;
    return seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0 && good;
}

/* Memory is written or run, never both, neither at once nor one after the other. Libraries that are
 * loaded later (the resolver's, OpenSSL's) are mapped so from the start. */
static bool deny_writable_code(scmp_filter_ctx filter)
{
    scmp_datum_t both = PROT_WRITE | PROT_EXEC;
    bool good = deny_if(filter, SCMP_SYS(mmap), masked(2, both, both));
    good = deny_if(filter, SCMP_SYS(mprotect), masked(2, PROT_EXEC, PROT_EXEC)) && good;
    good = deny_if(filter, SCMP_SYS(pkey_mprotect), masked(2, PROT_EXEC, PROT_EXEC)) && good;
    return deny_if(filter, SCMP_SYS(shmat), masked(2, SHM_EXEC, SHM_EXEC)) && good;
}

static bool deny_other_sockets(scmp_filter_ctx filter)
{
    bool good = deny_if(filter, SCMP_SYS(socket), compared(0, SCMP_CMP_GT, AF_NETLINK));
    for (int family = AF_INET + 1; family < AF_NETLINK; family++) {
        if (family != AF_INET6) {
            good =
                deny_if(filter, SCMP_SYS(socket), compared(0, SCMP_CMP_EQ, (scmp_datum_t)family)) &&
                good;
        }
    }
    return good;
}

static scmp_filter_ctx filter_new(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    MR_ASSERT(filter != NULL);
    /* Another processor's numbers (32-bit programs) would go past the list. */
    seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    /* Kernels before 5.16 would slow down every load after a store, against code that is not
     * trusted from the start. */
    seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
    seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree in place of a list */
    return filter;
}

static mr_confined filter_load(scmp_filter_ctx filter)
{
    bool loaded = seccomp_load(filter) == 0;
    seccomp_release(filter);
    return loaded ? MR_CONFINED : MR_CONFINE_NOT_HERE;
}

/* It makes code in this very process and runs it; the filter would end that. */
static bool under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded != NULL && strstr(preloaded, "/vgpreload_") != NULL;
}

mr_confined mr_confine_syscalls(enum mr_confine_processes processes)
{
    if (under_valgrind()) {
        return MR_CONFINE_NOT_HERE;
    }
    scmp_filter_ctx filter = filter_new();
    bool good = deny_all(filter, denied);
    good = deny_processes(filter, processes) && good;
    good = deny_writable_code(filter) && good;
    good = deny_other_sockets(filter) && good;
    /* Puts characters into a terminal's input, where a shell would read them. */
    good = deny_if(filter, SCMP_SYS(ioctl), masked(1, UINT32_MAX, TIOCSTI)) && good;
    MR_ASSERT(good);
    return filter_load(filter);
}

mr_confined mr_confine_listeners(void)
{
    scmp_filter_ctx filter = filter_new();
    seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    bool good = deny(filter, SCMP_SYS(listen)) &&
                deny_if(filter, SCMP_SYS(bind), compared(2, SCMP_CMP_NE, NETLINK_ADDRESS_BYTES));
    MR_ASSERT(good);
    return filter_load(filter);
}
