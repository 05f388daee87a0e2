/* Stacks of samples: libdw follows the copy of a stack by the objects' unwinding tables. */
#include <string.h>
#include <unistd.h>

#include "profiler/registers.h"
#include "profiler/symbols_internal.h"

static const struct mr_sample *unwound; /* what libdw's callbacks look at */

static pid_t next_thread(Dwfl *of, void *argument, void **thread_argument)
{
    (void)of;
    bool is_first = *thread_argument == NULL;
    *thread_argument = argument;
    return is_first ? getpid() : 0;
}

static bool get_thread(Dwfl *of, pid_t tid, void *argument, void **thread_argument)
{
    (void)of;
    (void)tid;
    *thread_argument = argument;
    return true;
}

/* A return address without its signature; any other word as it is. */
static Dwarf_Word bare(Dwarf_Word word)
{
    Dwarf_Word address = word & ~unwound->signature;
    bool signed_code = address != word && dwfl_addrmodule(mr_objects_dwfl(), address) != NULL;
    return signed_code ? address : word;
}

/* Only the copy is read: the thread has gone on. libdw knows nothing of signatures unless a
 * tracer tells it their bits, and then not in each version. */
static bool memory_read(Dwfl *of, Dwarf_Addr address, Dwarf_Word *ret, void *argument)
{
    (void)of;
    (void)argument;
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
    (void)argument;
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

const Dwfl_Thread_Callbacks mr_unwind_callbacks = {
    .next_thread = next_thread,
    .get_thread = get_thread,
    .memory_read = memory_read,
    .set_initial_registers = set_registers,
};

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
        ret->rooted = dwfl_getthread_frames(mr_objects_dwfl(), getpid(), on_frame, ret) == 0;
    }
    if (ret->count == 0) {
        ret->locations[ret->count++] = mr_symbols_location(address, false);
    }
}
