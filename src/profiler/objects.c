/* libdw's view of the program and the libraries of this process. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "profiler/symbols_internal.h"

enum { REPORT_PAUSE_NS = 1000000000 };

static Dwfl *dwfl;
/* Says what machine this is. Of a module libdw would take that by a pointer, which dangles as soon as a later report
 * drops the module (dwfl_attach_state, libdwfl/dwfl_frame.c). NULL: it can't be read. Never closed. */
static Elf *own_elf;
static int64_t reported_ns;

static struct {
    uint64_t start, end;
} vdso;

/* The vDSO has no file; its image is in our memory. /proc/self/mem would be closed to us, since the process
 * can't be dumped. */
static int find_elf(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
                    char **ret_name, Elf **ret_elf)
{
    (void)module;
    (void)userdata;
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

static bool report(void)
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

Dwfl *mr_objects_dwfl(void)
{
    static char where[] = ":.debug:/usr/lib/debug", *path = where;
    static const Dwfl_Callbacks callbacks = {
        .find_elf = find_elf,
        .find_debuginfo = dwfl_standard_find_debuginfo,
        .debuginfo_path = &path,
    };
    if (dwfl != NULL) {
        return dwfl;
    }
    elf_version(EV_CURRENT);
    dwfl = dwfl_begin(&callbacks);
    if (dwfl == NULL) {
        return NULL;
    }
    reported_ns = mr_monotonic_ns();
    if (own_elf == NULL) {
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        own_elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    }
    if (!report() || !dwfl_attach_state(dwfl, own_elf, getpid(), &mr_unwind_callbacks, &dwfl)) {
        dwfl_end(dwfl);
        dwfl = NULL;
    }
    return dwfl;
}

/* Objects may be loaded at any time (SASL plug-ins): an address of none is a reason to look again, once a second. */
Dwfl_Module *mr_objects_find(uint64_t address)
{
    if (mr_objects_dwfl() == NULL) {
        return NULL;
    }
    Dwfl_Module *module = dwfl_addrmodule(dwfl, address);
    if (module == NULL && mr_monotonic_ns() - reported_ns > REPORT_PAUSE_NS) {
        reported_ns = mr_monotonic_ns();
        report();
        module = dwfl_addrmodule(dwfl, address);
    }
    return module;
}
