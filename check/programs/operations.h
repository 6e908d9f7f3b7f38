/* Floating-point operations, counted without hardware counters: the next instruction is looked at before it runs (steps.h).
 * Vector operations count their lanes, also those that a mask leaves out; fused ones count twice. Sources: Intel SDM volume 2,
 * chapters 2 (prefixes, VEX, EVEX) and appendix A (opcode maps). */
#ifndef DV_CHECK_OPERATIONS_H
#define DV_CHECK_OPERATIONS_H

#include "steps.h"

enum { MOST_COUNTED = 20000 };
static struct { int64_t operations, integers, steps; } counted; /* integers: integer multiplications and additions, at least */

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

/* Returns the number of elements of 8, 16 or 32 bits that a vector integer instruction multiplies; 0: it multiplies none. The
 * same instruction or a later one adds the products. */
static int64_t integer_lanes(unsigned map, unsigned op, int64_t bits)
{
    if (map == 1 && (op == 0xf5 || op == 0xd5 || op == 0xe4 || op == 0xe5)) /* pmaddwd, pmullw, pmulhuw, pmulhw */
        return bits / 16;
    if (map == 1 && op == 0xf4) /* pmuludq */
        return bits / 64;
    if (map == 2 && (op == 0x40 || op == 0x28)) /* pmulld, pmuldq */
        return bits / 32;
    if (map == 2 && (op == 0x04 || op == 0x50 || op == 0x51)) /* pmaddubsw, vpdpbusd */
        return bits / 8;
    if (map == 2 && (op == 0x52 || op == 0x53)) /* vpdpwssd */
        return bits / 16;
    return 0;
}

/* Returns the integer operations of the instruction at p: two for each multiplication, since an addition follows it. */
static int64_t integers_of(const uint8_t *p)
{
    if (p[0] == 0xc5)
        return 2 * integer_lanes(1, p[2], p[1] & 4 ? 256 : 128);
    if (p[0] == 0xc4)
        return 2 * integer_lanes(p[1] & 31, p[3], p[2] & 4 ? 256 : 128);
    if (p[0] == 0x62)
        return 2 * integer_lanes(p[1] & 7, p[4], (int64_t)128 << (p[3] >> 5 & 3));
    for (; *p == 0x66 || *p == 0xf2 || *p == 0xf3; p++)
        continue;
    p += (*p & 0xf0) == 0x40; /* REX */
    if (p[0] == 0x69 || p[0] == 0x6b || ((p[0] == 0xf6 || p[0] == 0xf7) && ((p[1] >> 3 & 7) == 4 || (p[1] >> 3 & 7) == 5)))
        return 2;                     /* imul by a constant; mul, imul of one operand */
    if (p[0] == 0x0f && p[1] == 0xaf) /* imul */
        return 2;
    return p[0] != 0x0f ? 0 : p[1] == 0x38 ? 2 * integer_lanes(2, p[2], 128) : 2 * integer_lanes(1, p[1], 128);
}

static bool count_instruction(const uint8_t *instruction)
{
    counted.operations += operations_of(instruction);
    counted.integers += integers_of(instruction);
    return ++counted.steps < MOST_COUNTED;
}

static bool operations_begin(void)
{
    counted.operations = counted.integers = counted.steps = 0;
    return steps_begin(count_instruction);
}

/* Returns the integer operations of the last count, two for each multiplication. Multiplications of indices are included. */
static inline int64_t operations_of_integers(void) { return counted.integers; }

/* -1: not known, or there were too many instructions. */
static int64_t operations_end(void)
{
    steps_end();
    return counted.steps && counted.steps < MOST_COUNTED ? counted.operations : -1;
}

#endif
