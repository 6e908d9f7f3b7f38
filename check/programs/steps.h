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

#else

enum { CAN_STEP = 0 };
static inline bool steps_begin(bool (*before)(const uint8_t *instruction)) { return before && false; }
static inline void steps_end(void) {}

#endif

#endif
