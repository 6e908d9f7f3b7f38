/* Calls a function whose parameter types are known only at run time, without libffi.
 *
 * Every parameter of an aclnn function is a pointer, an integer, a bool, a float or a double. The calling conventions of x86-64
 * (System V) and of aarch64 (AAPCS64 on Linux) treat these in the same way: integers and pointers take the next of 6 or 8 integer
 * registers; floats and doubles take the next of 8 vector registers; the two kinds are counted separately. An argument that finds
 * no register goes onto the stack, in the order of the parameters, 8 bytes each. So the order in which integers and floats
 * alternate has no effect on registers, and one prototype serves for every mixture:
 *
 *     f(the integers that get registers, the floats that get registers, all other arguments in their order)
 *
 * All registers are filled, so that the other arguments go onto the stack. A function ignores registers that it does not expect,
 * and stack words above its own, which the caller removes. On the stack a double is passed as its bits in an integer. A float is
 * the low half of a register or of a word. An integer narrower than 64 bits is the low part of an int64_t; its sign extension
 * also suits compilers that rely on extension to 32 bits. tests/ascend/test_invoke.py compares 400 signatures with the compiler's
 * own calls.
 */
#include <string.h>

#include "ascend.h"

#if defined(__x86_64__)
enum { INTEGER_REGISTERS = 6 };
#define INTEGER_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define INTEGER_WORDS(w) w[0], w[1], w[2], w[3], w[4], w[5]
#elif defined(__aarch64__) && !defined(__APPLE__)
enum { INTEGER_REGISTERS = 8 };
#define INTEGER_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define INTEGER_WORDS(w) w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
#else
#error "invoke.c knows the calling conventions of x86-64 and aarch64 on Linux"
#endif
enum { FLOAT_REGISTERS = 8, FEW_STACK_WORDS = 8 };

#define FLOAT_TYPES double, double, double, double, double, double, double, double
#define FLOAT_WORDS(w) w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
#define EIGHT_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define EIGHT(w, i) w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
#define ALL_PARAMETER_TYPES                                                                                              \
    EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, \
        EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES
#define ALL_ARGUMENTS(w)                                                                                                        \
    EIGHT(w, 0), EIGHT(w, 8), EIGHT(w, 16), EIGHT(w, 24), EIGHT(w, 32), EIGHT(w, 40), EIGHT(w, 48), EIGHT(w, 56), EIGHT(w, 64), \
        EIGHT(w, 72), EIGHT(w, 80), EIGHT(w, 88), EIGHT(w, 96), EIGHT(w, 104), EIGHT(w, 112), EIGHT(w, 120), EIGHT(w, 128)
enum { MAX_STACK_WORDS = 136 };
_Static_assert((int)MAX_STACK_WORDS >= (int)DV__MAX_ARGUMENT_WORDS, "every word must find a place on the stack");

int32_t dv__invoke_function(dv__any_function f, const dv__argument_word *words, size_t nwords)
{
    int64_t integers[INTEGER_REGISTERS] = { 0 }, stack[MAX_STACK_WORDS];
    double floats[FLOAT_REGISTERS] = { 0 };
    size_t ni = 0, nf = 0, ns = 0;
    for (size_t i = 0; i < nwords; i++)
        if (words[i].is_floating && nf < FLOAT_REGISTERS)
            memcpy(&floats[nf++], &words[i].bits, sizeof words[i].bits);
        else if (!words[i].is_floating && ni < INTEGER_REGISTERS)
            integers[ni++] = (int64_t)words[i].bits;
        else
            stack[ns++] = (int64_t)words[i].bits;
    memset(stack + ns, 0, ((ns > FEW_STACK_WORDS ? MAX_STACK_WORDS : FEW_STACK_WORDS) - ns) * sizeof *stack);
    if (ns <= FEW_STACK_WORDS)
        return ((int32_t (*)(INTEGER_TYPES, FLOAT_TYPES, EIGHT_TYPES))f)(
            INTEGER_WORDS(integers), FLOAT_WORDS(floats), EIGHT(stack, 0));
    return ((int32_t (*)(INTEGER_TYPES, FLOAT_TYPES, ALL_PARAMETER_TYPES))f)(
        INTEGER_WORDS(integers), FLOAT_WORDS(floats), ALL_ARGUMENTS(stack));
}
