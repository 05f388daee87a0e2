/* libdw's view of this process: the program and its libraries, and stacks of samples, which it
 * follows in their copy by the objects' unwinding tables. */
#include <elfutils/libdwfl.h>
#include <fcntl.h>

#include "base/clock.h"
#include "profiler/registers.h"
#include "profiler/symbols.h"

enum { REPORT_PAUSE_NS = 1000000000 };

static Dwfl *dwfl;
/* Says what machine this is. Of a module libdw would take that by a pointer, which dangles as soon
 * as a later report drops the module (dwfl_attach_state, libdwfl/dwfl_frame.c). NULL: it can't be
 * read. Never closed. */
static Elf *own_elf;
static int64_t reported_ns;

static struct {
    uint64_t start, end;
} vdso;

/* The vDSO has no file; its image is in our memory. /proc/self/mem would be closed to us, since the
 * process can't be dumped. */
static int find_elf(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
                    char **ret_name, Elf **ret_elf)
{
    if (base == vdso.start) {
        *ret_elf = elf_memory((char *)(uintptr_t)vdso.start, vdso.end - vdso.start); /* NOLINT */
        *ret_name = strdup(name);
        return -1;
    }
    int fd = name[0] == '/' ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        *ret_name = strdup(name);
    }
    return fd;
}

/* libdw passes over the one mapping that is code without a file. */
static void report_vdso(FILE *maps)
{
    char line[512];
    rewind(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "[vdso]") != NULL) {
            char *end;
            vdso.start = strtoull(line, &end, 16);
            vdso.end = strtoull(end + 1, NULL, 16);
            dwfl_report_module(dwfl, "linux-vdso.so.1", vdso.start, vdso.end);
        }
    }
}

static bool objects_report(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) {
        return false;
    }
    dwfl_report_begin(dwfl);
    bool good = dwfl_linux_proc_maps_report(dwfl, maps) == 0;
    report_vdso(maps);
    fclose(maps);
    return dwfl_report_end(dwfl, NULL, NULL) == 0 && good;
}

static const struct mr_sample *unwound; /* what libdw's callbacks look at */

static pid_t objects_next_thread(Dwfl *of, void *argument, void **thread_argument)
{
    bool is_first = *thread_argument == NULL;
    *thread_argument = argument;
    return is_first ? getpid() : 0;
}

static bool get_thread(Dwfl *of, pid_t tid, void *argument, void **thread_argument)
{
    *thread_argument = argument;
    return true;
}

/* A return address without its signature; any other word as it is. */
static Dwarf_Word bare(Dwarf_Word word)
{
    Dwarf_Word address = word & ~unwound->signature;
    bool signed_code = address != word && dwfl_addrmodule(dwfl, address) != NULL;
    return signed_code ? address : word;
}

/* Only the copy is read: the thread has gone on. libdw knows nothing of signatures unless a
 * tracer tells it their bits, and then not in each version. */
static bool memory_read(Dwfl *of, Dwarf_Addr address, Dwarf_Word *ret, void *argument)
{
    uint64_t offset = address - unwound->stack_address;
    if (address < unwound->stack_address || unwound->stack_len < sizeof(*ret) ||
        offset > unwound->stack_len - sizeof(*ret)) {
        return false;
    }
    memcpy(ret, unwound->stack + offset, sizeof(*ret));
    *ret = bare(*ret);
    return true;
}

static bool set_registers(Dwfl_Thread *thread, void *argument)
{
    Dwarf_Word words[MR_DWARF_REGISTERS + 1];
    for (int i = 0; i <= MR_DWARF_REGISTERS; i++) {
        words[i] = bare(unwound->registers[i]);
    }
#if defined(__x86_64__)
    return dwfl_thread_state_registers(thread, 0, MR_DWARF_REGISTERS + 1, words);
#else
    dwfl_thread_state_register_pc(thread, words[MR_DWARF_REGISTERS]);
    return dwfl_thread_state_registers(thread, 0, MR_DWARF_REGISTERS, words);
#endif
}

static const Dwfl_Thread_Callbacks unwinding = {
    .next_thread = objects_next_thread,
    .get_thread = get_thread,
    .memory_read = memory_read,
    .set_initial_registers = set_registers,
};

static bool find_objects(void)
{
    static char where[] = ":.debug:/usr/lib/debug", *path = where;
    static const Dwfl_Callbacks callbacks = {
        .find_elf = find_elf,
        .find_debuginfo = dwfl_standard_find_debuginfo,
        .debuginfo_path = &path,
    };
    if (dwfl != NULL) {
        return true;
    }
    elf_version(EV_CURRENT);
    dwfl = dwfl_begin(&callbacks);
    if (dwfl == NULL) {
        return false;
    }
    reported_ns = mr_monotonic_ns();
    if (own_elf == NULL) {
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        own_elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    }
    if (!objects_report() || !dwfl_attach_state(dwfl, own_elf, getpid(), &unwinding, &dwfl)) {
        dwfl_end(dwfl);
        dwfl = NULL;
    }
    return dwfl != NULL;
}

/* Objects may be loaded at any time (SASL plug-ins): an address of none is a reason to look again,
 * once a second. */
Dwfl_Module *mr_objects_find(uint64_t address)
{
    if (!find_objects()) {
        return NULL;
    }
    Dwfl_Module *module = dwfl_addrmodule(dwfl, address);
    if (module == NULL && mr_monotonic_ns() - reported_ns > REPORT_PAUSE_NS) {
        reported_ns = mr_monotonic_ns();
        objects_report();
        module = dwfl_addrmodule(dwfl, address);
    }
    return module;
}

static int on_frame(Dwfl_Frame *frame, void *context)
{
    struct mr_stack *stack = context;
    Dwarf_Addr address;
    bool is_activation;
    if (stack->count == MR_STACK_FRAMES_MAX || !dwfl_frame_pc(frame, &address, &is_activation)) {
        return DWARF_CB_ABORT;
    }
    stack->locations[stack->count++] = mr_symbols_location(address, !is_activation);
    return DWARF_CB_OK;
}

void mr_symbols_unwind(const struct mr_sample *sample, struct mr_stack *ret)
{
    ret->count = 0;
    ret->rooted = false;
    unwound = sample;
    uint64_t address = sample->registers[MR_DWARF_REGISTERS];
    if (mr_objects_find(address) != NULL) {
        ret->rooted = dwfl_getthread_frames(dwfl, getpid(), on_frame, ret) == 0;
    }
    if (ret->count == 0) {
        ret->locations[ret->count++] = mr_symbols_location(address, false);
    }
}
