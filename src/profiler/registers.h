/* The interrupted thread's registers, by DWARF's numbers. Inside profiler/ only. */
#pragma once

#include <ucontext.h>

#include "base/base.h"

#if defined(__x86_64__)
enum { MR_DWARF_REGISTERS = 16, MR_DWARF_SP = 7 };
#elif defined(__aarch64__)
enum { MR_DWARF_REGISTERS = 32, MR_DWARF_SP = 31 };
#else
#error "the profiler knows x86_64 and aarch64; build with -DMILLRACE_PROFILING=OFF"
#endif

/* `to[0 … MR_DWARF_REGISTERS - 1]`, then the program counter. Signal handler. */
static inline void mr_registers_read(const ucontext_t *context, uint64_t *to)
{
#if defined(__x86_64__)
    static const uint8_t order[MR_DWARF_REGISTERS] = {
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
        REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    };
    for (int i = 0; i < MR_DWARF_REGISTERS; i++) {
        to[i] = (uint64_t)context->uc_mcontext.gregs[order[i]];
    }
    to[MR_DWARF_REGISTERS] = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
#else
    for (int i = 0; i < 31; i++) {
        to[i] = context->uc_mcontext.regs[i];
    }
    to[31] = context->uc_mcontext.sp;
    to[32] = context->uc_mcontext.pc;
#endif
}

/* The bits in which pointer authentication keeps its signature of a return address (Arm's
 * architecture manual, "PACIASP"; kernel's documentation, arch/arm64/pointer-authentication.rst).
 * They depend on how wide addresses are, so the processor is asked: XPACLRI clears them in register
 * 30. Without pointer authentication it does nothing. */
static inline uint64_t mr_signature_bits(void)
{
#if defined(__aarch64__)
    uint64_t all = (UINT64_C(1) << 55) - 1; /* bit 55 says that the address is not the kernel's */
    register uint64_t link __asm__("x30") = all;
    __asm__("hint #7"
            : "+r"(link)); /* by its number: assemblers for older processors don't know the name */
    return all & ~link;
#else
    return 0;
#endif
}

/* memcpy that no sanitizer looks into and that calls nothing. Signal handler. */
static inline void mr_copy_raw(void *to, const void *from, size_t len)
{
#if defined(__x86_64__)
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
#else
    volatile uint8_t *out = to;
    const volatile uint8_t *in = from;
    for (size_t i = 0; i < len; i++) {
        out[i] = in[i];
    }
#endif
}
