/* A call of a function before each instruction of this thread: the processor traps after each one (the flag TF of x86-64). */
#ifndef DV_CHECK_STEPS_H
#define DV_CHECK_STEPS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <ucontext.h>

enum { CAN_STEP = 1, TRAP_FLAG = 0x100 };

static struct {
    bool (*before)(const uint8_t *instruction); /* false: no more of them */
    bool on;
    struct sigaction earlier;
    const greg_t *registers; /* at the instruction */
} stepping;

/* Below what a leaf function may keep under its stack pointer. */
#define CHANGE_FLAGS(how, with)                                                                                  \
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" how " %0, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" \
        :                                                                                                        \
        : "i"(with)                                                                                              \
        : "memory", "cc")

static void on_step(int number, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    (void)number;
    (void)info;
    stepping.registers = u->uc_mcontext.gregs;
    if (!stepping.before((const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP]))
        u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

/* before() runs in a signal handler. False: this processor cannot do it. */
static inline bool steps_begin(bool (*before)(const uint8_t *instruction))
{
    const struct sigaction action = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    stepping.before = before;
    stepping.on = !sigaction(SIGTRAP, &action, &stepping.earlier);
    if (stepping.on)
        CHANGE_FLAGS("orq", TRAP_FLAG);
    return stepping.on;
}

static inline void steps_end(void)
{
    if (!stepping.on)
        return;
    CHANGE_FLAGS("andq", ~TRAP_FLAG);
    stepping.on = false;
    sigaction(SIGTRAP, &stepping.earlier, NULL);
}

static inline uintptr_t register_at(unsigned number)
{
    static const int order[] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10,
        REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
    return (uintptr_t)stepping.registers[order[number]];
}

/* The address in an operand: p is its ModRM byte, `more` the bytes of the instruction behind the operand. */
static inline uintptr_t operand_address(const uint8_t *p, unsigned rex, size_t more)
{
    const unsigned mod = *p >> 6, rm = *p & 7, sib = p[1];
    const bool has_sib = rm == 4, no_base = !mod && (has_sib ? sib & 7 : rm) == 5;
    const uint8_t *by = p + 1 + has_sib;
    int32_t offset = mod == 1 ? (int8_t)*by : 0;
    uintptr_t at = 0;
    if (mod == 2 || no_base)
        __builtin_memcpy(&offset, by, sizeof offset);
    if (!no_base)
        at = register_at((has_sib ? sib & 7 : rm) | (rex & 1) << 3);
    else if (!has_sib)
        at = (uintptr_t)by + sizeof offset + more;
    if (has_sib && ((sib >> 3 & 7) | (rex & 2) << 2) != 4)
        at += register_at((sib >> 3 & 7) | (rex & 2) << 2) << (sib >> 6);
    return at + (uintptr_t)(intptr_t)offset;
}

/* The memory that the next instruction reads, changes and writes without a lock, as `add [x], 1` does: between its read and its
 * write another thread may write there. 0: it is not one of these. Source: Intel SDM volume 2, chapter 2 and appendix A. */
static inline uintptr_t changed_in_place(const uint8_t *p, size_t *size)
{
    const bool half = *p == 0x66;
    p += half;
    const unsigned rex = (*p & 0xf0) == 0x40 ? *p++ : 0, op = *p++, reg = *p >> 3 & 7;
    const bool by_register = op < 0x38 && (op & 7) < 2, by_number = (op == 0x80 || op == 0x81 || op == 0x83) && reg != 7,
               shift = op == 0xc0 || op == 0xc1 || (op >= 0xd0 && op <= 0xd3), negation = (op & 0xfe) == 0xf6 && (reg & 6) == 2,
               count = (op & 0xfe) == 0xfe && reg < 2;
    *size = !(op & 1) ? 1 : rex & 8 ? 8 : half ? 2 : 4;
    if (*p >> 6 == 3 || !(by_register || by_number || shift || negation || count))
        return 0;
    return operand_address(p, rex, op == 0x81 ? half ? 2 : 4 : by_number || op == 0xc0 || op == 0xc1);
}

/* The memory that the next instruction writes without reading it first, or exchanges: what it writes may be computed from what
 * was there before. 0: it is not one of these. Source: as above; volume 2, 2.3 and 2.7 for the forms of vectors. */
static inline uintptr_t stored_to(const uint8_t *p)
{
    unsigned rex = 0, kind = 0; /* kind: 1 after a prefix of 0x66, 2 of 0xf3, 3 of 0xf2 */
    bool vectors = false;
    for (; *p == 0x66 || *p == 0xf2 || *p == 0xf3; p++)
        kind = *p == 0x66 ? 1 : *p == 0xf3 ? 2 : 3;
    if ((*p & 0xf0) == 0x40)
        rex = *p++;
    if (*p == 0xc5) {
        vectors = true, kind = p[1] & 3, p += 2;
    } else if (*p == 0xc4 || *p == 0x62) {
        const bool long_form = *p == 0x62;
        vectors = (p[1] & 7) == 1, kind = p[2] & 3, rex = (~p[1] >> 5 & 3), p += long_form ? 4 : 3;
        if (!vectors)
            return 0;
    } else if (*p == 0x0f) {
        vectors = true, p++;
    }
    const unsigned op = *p++, reg = *p >> 3 & 7;
    const bool whole = op == 0x88 || op == 0x89 || op == 0x86 || op == 0x87, number = (op == 0xc6 || op == 0xc7) && !reg;
    const bool vector = op == 0x11 || op == 0x13 || op == 0x17 || op == 0x29 || op == 0x2b || op == 0x7f || op == 0xc3 ||
        op == 0xd6 || op == 0xe7 || (op == 0x7e && kind != 2);
    if (*p >> 6 == 3 || !(vectors ? vector : whole || number))
        return 0;
    return operand_address(p, rex, !number ? 0 : op == 0xc6 ? 1 : kind == 1 ? 2 : 4);
}

/* Is it memory of the functions that run, on the stack up to `top`? */
static inline bool is_own_stack(uintptr_t at, uintptr_t top)
{
    enum { BELOW = 128 };
    return at >= register_at(4) - BELOW && at < top;
}

#else

enum { CAN_STEP = 0 };
static inline uintptr_t changed_in_place(const uint8_t *p, size_t *size) { return (void)p, (void)size, 0; }
static inline uintptr_t stored_to(const uint8_t *p) { return (void)p, 0; }
static inline bool is_own_stack(uintptr_t at, uintptr_t top) { return (void)at, (void)top, false; }
static inline bool steps_begin(bool (*before)(const uint8_t *instruction)) { return before && false; }
static inline void steps_end(void) {}

#endif

#endif
