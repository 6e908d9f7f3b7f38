/* Calls a function whose parameter types are known only at run time, without libffi.
 *
 * Every parameter of an aclnn function is a pointer, an integer, a bool, a float or a double. The calling conventions of x86-64
 * (System V) and of aarch64 (AAPCS64 as Linux has it) treat these in the same way: integers and pointers take the next integer
 * register, 6 or 8 of them; floats and doubles take the next vector register, 8 of them; the two are counted separately. What
 * finds no register goes onto the stack, in the order of the parameters, 8 bytes each. So the order in which integers and floats
 * alternate is of no effect on registers, and this one prototype places every mixture:
 *
 *     f(the integers that get registers, the floats that get registers, everything that is left in its order)
 *
 * if all registers are filled, so that what is left goes onto the stack: registers that f does not expect are ignored, and so are
 * stack words above its own, which the caller removes. On the stack a double is its bits in an integer. A float is the low half
 * of a register or of a word. Integers narrower than 64 bits are the low part, and the sign-extended int64_t is also right for
 * compilers that rely on extension to 32 bits. tests/ascend/test_invoke.py compares 400 signatures with what the compiler does.
 */
#include <string.h>

#include "ascend.h"

#if defined(__x86_64__)
enum { INTEGERS = 6 };
#define INTEGER_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define INTEGER_WORDS(w) w[0], w[1], w[2], w[3], w[4], w[5]
#elif defined(__aarch64__) && !defined(__APPLE__)
enum { INTEGERS = 8 };
#define INTEGER_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define INTEGER_WORDS(w) w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
#else
#error "invoke.c knows the calling conventions of x86-64 and aarch64 on Linux"
#endif
enum { FLOATS = 8, FEW = 8 };

#define FLOAT_TYPES double, double, double, double, double, double, double, double
#define FLOAT_WORDS(w) w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
#define EIGHT_TYPES int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define EIGHT(w, i) w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
#define ALL_TYPES                                                                                                        \
    EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, \
        EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES, EIGHT_TYPES
#define ALL(w)                                                                                                                  \
    EIGHT(w, 0), EIGHT(w, 8), EIGHT(w, 16), EIGHT(w, 24), EIGHT(w, 32), EIGHT(w, 40), EIGHT(w, 48), EIGHT(w, 56), EIGHT(w, 64), \
        EIGHT(w, 72), EIGHT(w, 80), EIGHT(w, 88), EIGHT(w, 96), EIGHT(w, 104), EIGHT(w, 112), EIGHT(w, 120), EIGHT(w, 128)
enum { STACK = 136 };
_Static_assert((int)STACK >= (int)DV__MAX_WORDS, "every word must find a place on the stack");

int32_t dv__invoke(dv__function f, const dv__word *words, size_t n)
{
    int64_t integers[INTEGERS] = { 0 }, stack[STACK];
    double floats[FLOATS] = { 0 };
    size_t ni = 0, nf = 0, ns = 0;
    for (size_t i = 0; i < n; i++)
        if (words[i].fp && nf < FLOATS)
            memcpy(&floats[nf++], &words[i].bits, sizeof words[i].bits);
        else if (!words[i].fp && ni < INTEGERS)
            integers[ni++] = (int64_t)words[i].bits;
        else
            stack[ns++] = (int64_t)words[i].bits;
    memset(stack + ns, 0, ((ns > FEW ? STACK : FEW) - ns) * sizeof *stack);
    if (ns <= FEW)
        return ((int32_t (*)(INTEGER_TYPES, FLOAT_TYPES, EIGHT_TYPES))f)(
            INTEGER_WORDS(integers), FLOAT_WORDS(floats), EIGHT(stack, 0));
    return ((int32_t (*)(INTEGER_TYPES, FLOAT_TYPES, ALL_TYPES))f)(INTEGER_WORDS(integers), FLOAT_WORDS(floats), ALL(stack));
}
