/* Floating-point operations counted without hardware counters: the processor traps after each instruction (the flag TF of
 * x86-64), and the handler looks at the next one. Vector operations count their lanes, also those that a mask leaves out; fused
 * ones count twice. (A header without others of the checker: a program that shows a failure has its text, see CMakeLists.txt.)
 * -1: it cannot be said. Sources: Intel SDM volume 2, chapters 2 (prefixes, VEX, EVEX) and appendix A (opcode maps). */
#ifndef DV_CHECK_STEPS_H
#define DV_CHECK_STEPS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <ucontext.h>

enum { MOST_STEPS = 20000, TRAP_FLAG = 0x100 };

static struct {
    int64_t operations, steps;
    bool on;
    struct sigaction before;
} counted;

/* Of the map 0F: sqrt, add, mul, sub, min, div, max; comparisons and horizontal sums. */
static bool is_arithmetic(unsigned op)
{
    return op == 0x51 || op == 0x58 || op == 0x59 || (op >= 0x5c && op <= 0x5f) || op == 0xc2 || op == 0x7c || op == 0x7d ||
        op == 0xd0;
}

static bool is_fused(unsigned op) { return op >= 0x96 && op <= 0xbf && (op & 15) >= 6; }

/* pp: 0 and 1 are packed singles and doubles, 2 and 3 scalars. bits: of the register. */
static int64_t arithmetic(unsigned op, unsigned pp, int64_t bits)
{
    return !is_arithmetic(op) ? 0 : pp >= 2 ? 1 : bits / (pp ? 64 : 32);
}

static int64_t fused(unsigned op, bool wide, int64_t bits)
{
    const bool scalar = (op & 1) && (op & 15) >= 9;
    return !is_fused(op) ? 0 : scalar ? 2 : 2 * bits / (wide ? 64 : 32);
}

static int64_t operations_of(const uint8_t *p)
{
    unsigned pp = 0;
    if (p[0] == 0xc5)
        return arithmetic(p[2], p[1] & 3, p[1] & 4 ? 256 : 128);
    if (p[0] == 0xc4) {
        const int64_t bits = p[2] & 4 ? 256 : 128;
        return (p[1] & 31) == 1 ? arithmetic(p[3], p[2] & 3, bits) : (p[1] & 31) == 2 ? fused(p[3], p[2] & 0x80, bits) : 0;
    }
    if (p[0] == 0x62) {
        const int64_t bits = (int64_t)128 << (p[3] >> 5 & 3);
        return (p[1] & 7) == 1 ? arithmetic(p[4], p[2] & 3, bits) : (p[1] & 7) == 2 ? fused(p[4], p[2] & 0x80, bits) : 0;
    }
    for (; *p == 0x66 || *p == 0xf2 || *p == 0xf3; p++)
        pp = *p == 0x66 ? 1 : *p == 0xf3 ? 2 : 3;
    p += (*p & 0xf0) == 0x40; /* REX */
    return p[0] == 0x0f ? arithmetic(p[1], pp, 128) : 0;
}

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
    counted.operations += operations_of((const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP]);
    if (++counted.steps >= MOST_STEPS)
        u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static bool steps_begin(void)
{
    const struct sigaction action = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    counted.operations = counted.steps = 0;
    counted.on = !sigaction(SIGTRAP, &action, &counted.before);
    if (counted.on)
        CHANGE_FLAGS("orq", TRAP_FLAG);
    return counted.on;
}

static int64_t steps_end(void)
{
    if (!counted.on)
        return -1;
    CHANGE_FLAGS("andq", ~TRAP_FLAG);
    counted.on = false;
    sigaction(SIGTRAP, &counted.before, NULL);
    return counted.steps && counted.steps < MOST_STEPS ? counted.operations : -1;
}

#else

static bool steps_begin(void) { return false; }
static int64_t steps_end(void) { return -1; }

#endif

#endif
