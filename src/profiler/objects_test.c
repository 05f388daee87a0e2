/* Stacks whose return addresses are signed (pointer authentication), with signatures made up. */
#include <string.h>
#include <ucontext.h>

#include "profiler/registers.h"
#include "profiler/sampler.h"
#include "profiler/symbols.h"
#include "testing/test.h"

enum { COPIED_MAX = 16384, DEPTH = 5 };

static const uint64_t made_up = UINT64_C(0x7F) << 48; /* where they are with addresses of 48 bits */

static struct {
    uint64_t registers[MR_SAMPLE_REGISTERS];
    _Alignas(16) uint8_t stack[COPIED_MAX];
    uint64_t stack_address;
    uint64_t returns[DEPTH + 1];
} seen;

/* The C library notes the registers; the stack is copied while its functions have not returned. */
__attribute__((noinline)) static void objects_test_look(uint64_t top)
{
    ucontext_t context;
    assert_int_equal(getcontext(&context), 0);
    mr_registers_read(&context, seen.registers);
    seen.stack_address = seen.registers[MR_DWARF_SP];
    uint64_t len = top - seen.stack_address;
    mr_copy_raw(seen.stack, (const void *)(uintptr_t)seen.stack_address, /* NOLINT */
                len < COPIED_MAX ? len : COPIED_MAX);
}

/* Each depth has a frame, and its return address lies in the stack: what follows the calls keeps
 * them calls. */
__attribute__((noinline)) static void descend(int depth, uint64_t top)
{
    seen.returns[depth] =
        (uint64_t)(uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)) &
        ~mr_signature_bits();
    if (depth == 0) {
        objects_test_look(top);
    } else {
        descend(depth - 1, top);
    }
    __asm__ volatile("");
}

static struct mr_stack unwind(uint64_t signature)
{
    struct mr_sample sample = {.signature = signature,
                               .stack_address = seen.stack_address,
                               .stack = seen.stack,
                               .stack_len = sizeof(seen.stack)};
    struct mr_stack stack;
    mr_symbols_lock();
    memcpy(sample.registers, seen.registers, sizeof(seen.registers));
    mr_symbols_unwind(&sample, &stack);
    mr_symbols_unlock();
    return stack;
}

/* Signs each return address of descend() that lies in the copy. */
static int sign(uint64_t bits)
{
    int found = 0;
    for (size_t at = 0; at < sizeof(seen.stack); at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, seen.stack + at, sizeof(word));
        for (int i = 0; i <= DEPTH; i++) {
            if ((word & ~mr_signature_bits()) == seen.returns[i]) {
                word |= bits;
                memcpy(seen.stack + at, &word, sizeof(word));
                found++;
                break;
            }
        }
    }
    return found;
}

static void test_signed_return_addresses_are_followed(void **state)
{
    (void)state;
    descend(DEPTH, (uint64_t)(uintptr_t)__builtin_frame_address(0));
    struct mr_stack plain = unwind(mr_signature_bits());
    assert_true(plain.count > DEPTH + 1);
    assert_true(sign(made_up) > DEPTH);
    struct mr_stack stripped = unwind(made_up | mr_signature_bits());
    assert_int_equal(stripped.count, plain.count);
    assert_memory_equal(stripped.locations, plain.locations,
                        plain.count * sizeof(plain.locations[0]));
    struct mr_stack lost = unwind(0);
    assert_memory_not_equal(lost.locations, plain.locations,
                            plain.count * sizeof(plain.locations[0]));
}

/* Whatever the processor, code and stacks of this process have none of these bits. */
static void test_signature_bits_are_beyond_addresses(void **state)
{
    (void)state;
    uint64_t bits = mr_signature_bits();
    assert_int_equal(bits & (uint64_t)(uintptr_t)test_signed_return_addresses_are_followed, 0);
    assert_int_equal(bits & (uint64_t)(uintptr_t)&bits, 0);
    assert_int_equal(bits >> 55, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signed_return_addresses_are_followed),
        cmocka_unit_test(test_signature_bits_are_beyond_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
