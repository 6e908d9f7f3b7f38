/* Single-stepping: calls a function before each instruction of this thread. The processor traps after each one (the flag TF of
 * x86-64). Elsewhere single_step_try_begin() returns false. */
#ifndef DV_CHECK_SINGLE_STEP_H
#define DV_CHECK_SINGLE_STEP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <ucontext.h>

enum { CAN_SINGLE_STEP = 1, TRAP_FLAG = 0x100 };

static struct {
    bool (*before)(const uint8_t *instruction); /* called before each instruction; returns false to end stepping */
    bool on;
    struct sigaction earlier;
    const greg_t *registers; /* registers before the current instruction */
} single_step;

/* Changes the flags register through the stack, 128 bytes below the stack pointer, because a leaf function may use the memory
 * above that (red zone). */
#define SINGLE_STEP_CHANGE_FLAGS(how, with)                                                                      \
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" how " %0, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" \
        :                                                                                                        \
        : "i"(with)                                                                                              \
        : "memory", "cc")

/* Handler of SIGTRAP: calls single_step.before() with the next instruction, and ends stepping if it returns false. */
static void single_step_on_trap(int number, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    (void)number;
    (void)info;
    single_step.registers = u->uc_mcontext.gregs;
    if (!single_step.before((const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP]))
        u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

/* Begins to call before() before each instruction of this thread, in a signal handler. Returns false if this processor cannot do
 * it. */
static inline bool single_step_try_begin(bool (*before)(const uint8_t *instruction))
{
    const struct sigaction action = { .sa_sigaction = single_step_on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    single_step.before = before;
    single_step.on = !sigaction(SIGTRAP, &action, &single_step.earlier);
    if (single_step.on)
        SINGLE_STEP_CHANGE_FLAGS("orq", TRAP_FLAG);
    return single_step.on;
}

static inline void single_step_end(void)
{
    if (!single_step.on)
        return;
    SINGLE_STEP_CHANGE_FLAGS("andq", ~TRAP_FLAG);
    single_step.on = false;
    sigaction(SIGTRAP, &single_step.earlier, NULL);
}

/* Returns the value of a general register, by its number in instruction encodings. */
static inline uintptr_t single_step_get_register(unsigned number)
{
    static const int order[] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10,
        REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
    return (uintptr_t)single_step.registers[order[number]];
}

/* Returns the memory address of an operand. modrm: its ModRM byte; rex: the REX prefix or 0; bytes_after_operand: number of
 * instruction bytes after the operand. */
static inline uintptr_t single_step_get_operand_address(const uint8_t *modrm, unsigned rex, size_t bytes_after_operand)
{
    const unsigned mod = *modrm >> 6, rm = *modrm & 7, sib = modrm[1];
    const bool has_sib = rm == 4, no_base = !mod && (has_sib ? sib & 7 : rm) == 5;
    const uint8_t *by = modrm + 1 + has_sib;
    int32_t offset = mod == 1 ? (int8_t)*by : 0;
    uintptr_t at = 0;
    if (mod == 2 || no_base)
        __builtin_memcpy(&offset, by, sizeof offset);
    if (!no_base)
        at = single_step_get_register((has_sib ? sib & 7 : rm) | (rex & 1) << 3);
    else if (!has_sib)
        at = (uintptr_t)by + sizeof offset + bytes_after_operand;
    if (has_sib && ((sib >> 3 & 7) | (rex & 2) << 2) != 4)
        at += single_step_get_register((sib >> 3 & 7) | (rex & 2) << 2) << (sib >> 6);
    return at + (uintptr_t)(intptr_t)offset;
}

/* Returns the address of memory that the instruction at p reads, changes and writes without a lock, as `add [x], 1` does; 0 for
 * other instructions. Another thread may write between its read and its write. *size: bytes of the memory. Source: Intel SDM
 * volume 2, chapter 2 and appendix A. */
static inline uintptr_t single_step_get_changed_memory(const uint8_t *instruction, size_t *size)
{
    const bool half = *instruction == 0x66;
    instruction += half;
    const unsigned rex = (*instruction & 0xf0) == 0x40 ? *instruction++ : 0, op = *instruction++, reg = *instruction >> 3 & 7;
    const bool by_register = op < 0x38 && (op & 7) < 2, by_number = (op == 0x80 || op == 0x81 || op == 0x83) && reg != 7,
               shift = op == 0xc0 || op == 0xc1 || (op >= 0xd0 && op <= 0xd3), negation = (op & 0xfe) == 0xf6 && (reg & 6) == 2,
               count = (op & 0xfe) == 0xfe && reg < 2;
    *size = !(op & 1) ? 1 : rex & 8 ? 8 : half ? 2 : 4;
    if (*instruction >> 6 == 3 || !(by_register || by_number || shift || negation || count))
        return 0;
    return single_step_get_operand_address(instruction, rex, op == 0x81 ? half ? 2 : 4 : by_number || op == 0xc0 || op == 0xc1);
}

/* Returns the address of memory that the instruction at p writes without reading it first, or exchanges; 0 for other
 * instructions. Source: Intel SDM volume 2, chapter 2, appendix A, and 2.3 and 2.7 for the forms of vectors. */
static inline uintptr_t single_step_get_stored_memory(const uint8_t *instruction)
{
    unsigned rex = 0, kind = 0; /* kind: opcode prefix, 1 for 0x66, 2 for 0xf3, 3 for 0xf2; 0: none */
    bool vectors = false;
    for (; *instruction == 0x66 || *instruction == 0xf2 || *instruction == 0xf3; instruction++)
        kind = *instruction == 0x66 ? 1 : *instruction == 0xf3 ? 2 : 3;
    if ((*instruction & 0xf0) == 0x40)
        rex = *instruction++;
    if (*instruction == 0xc5) {
        vectors = true, kind = instruction[1] & 3, instruction += 2;
    } else if (*instruction == 0xc4 || *instruction == 0x62) {
        const bool long_form = *instruction == 0x62;
        vectors = (instruction[1] & 7) == 1, kind = instruction[2] & 3, rex = (~instruction[1] >> 5 & 3),
        instruction += long_form ? 4 : 3;
        if (!vectors)
            return 0;
    } else if (*instruction == 0x0f) {
        vectors = true, instruction++;
    }
    const unsigned op = *instruction++, reg = *instruction >> 3 & 7;
    const bool whole = op == 0x88 || op == 0x89 || op == 0x86 || op == 0x87, number = (op == 0xc6 || op == 0xc7) && !reg;
    const bool vector = op == 0x11 || op == 0x13 || op == 0x17 || op == 0x29 || op == 0x2b || op == 0x7f || op == 0xc3 ||
        op == 0xd6 || op == 0xe7 || (op == 0x7e && kind != 2);
    if (*instruction >> 6 == 3 || !(vectors ? vector : whole || number))
        return 0;
    return single_step_get_operand_address(instruction, rex, !number ? 0 : op == 0xc6 ? 1 : kind == 1 ? 2 : 4);
}

/* True if an address is in the stack frames of the running functions, below `top`. */
static inline bool single_step_is_in_stack_frames(uintptr_t address, uintptr_t top)
{
    enum { RED_ZONE_BYTES = 128 };
    return address >= single_step_get_register(4) - RED_ZONE_BYTES && address < top;
}

#else

enum { CAN_SINGLE_STEP = 0 };
static inline uintptr_t single_step_get_changed_memory(const uint8_t *p, size_t *size) { return (void)p, (void)size, 0; }
static inline uintptr_t single_step_get_stored_memory(const uint8_t *p) { return (void)p, 0; }
static inline bool single_step_is_in_stack_frames(uintptr_t at, uintptr_t top) { return (void)at, (void)top, false; }
static inline bool single_step_try_begin(bool (*before)(const uint8_t *instruction)) { return before && false; }
static inline void single_step_end(void) {}

#endif

#endif
