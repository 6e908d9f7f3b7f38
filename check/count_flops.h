/* Counts floating-point operations without hardware counters: the next instruction is decoded before it runs (single_step.h).
 * Vector operations count their lanes, also those that a mask leaves out; fused ones count twice. Sources: Intel SDM volume 2,
 * chapters 2 (prefixes, VEX, EVEX) and appendix A (opcode maps). */
#ifndef DV_CHECK_COUNT_FLOPS_H
#define DV_CHECK_COUNT_FLOPS_H

#include "single_step.h"

enum { MAX_COUNTED_INSTRUCTIONS = 20000 };
static struct {
    int64_t operations, integers, steps;
} counted_instructions; /* operations: floating-point operations; integers: integer operations, at least; steps: instructions */

/* True for opcodes of map 0F that compute with floats: sqrt, add, mul, sub, min, div, max, comparisons and horizontal sums. */
static bool is_float_arithmetic_opcode(unsigned opcode)
{
    return opcode == 0x51 || opcode == 0x58 || opcode == 0x59 || (opcode >= 0x5c && opcode <= 0x5f) || opcode == 0xc2 ||
        opcode == 0x7c || opcode == 0x7d || opcode == 0xd0;
}

/* True for the opcodes of fused multiply-adds (map 0F38). */
static bool is_fused_multiply_add_opcode(unsigned opcode) { return opcode >= 0x96 && opcode <= 0xbf && (opcode & 15) >= 6; }

/* Returns the number of lanes that a float instruction of opcode map 0F computes; 0 if it computes none. prefix: the pp field, 0
 * for packed singles, 1 for packed doubles, 2 and 3 for scalars. register_bits: size of the vector register. */
static int64_t count_arithmetic_lanes(unsigned opcode, unsigned prefix, int64_t register_bits)
{
    return !is_float_arithmetic_opcode(opcode) ? 0 : prefix >= 2 ? 1 : register_bits / (prefix ? 64 : 32);
}

/* Returns the operations of a fused multiply-add instruction, two for each lane; 0 for other opcodes. */
static int64_t count_fused_multiply_add_operations(unsigned opcode, bool is_double, int64_t register_bits)
{
    const bool scalar = (opcode & 1) && (opcode & 15) >= 9;
    return !is_fused_multiply_add_opcode(opcode) ? 0 : scalar ? 2 : 2 * register_bits / (is_double ? 64 : 32);
}

/* Returns the number of floating-point operations of the instruction at an address. */
static int64_t count_float_operations(const uint8_t *instruction)
{
    unsigned pp = 0;
    if (instruction[0] == 0xc5)
        return count_arithmetic_lanes(instruction[2], instruction[1] & 3, instruction[1] & 4 ? 256 : 128);
    if (instruction[0] == 0xc4) {
        const int64_t bits = instruction[2] & 4 ? 256 : 128;
        return (instruction[1] & 31) == 1 ? count_arithmetic_lanes(instruction[3], instruction[2] & 3, bits)
            : (instruction[1] & 31) == 2  ? count_fused_multiply_add_operations(instruction[3], instruction[2] & 0x80, bits)
                                          : 0;
    }
    if (instruction[0] == 0x62) {
        const int64_t bits = (int64_t)128 << (instruction[3] >> 5 & 3);
        return (instruction[1] & 7) == 1 ? count_arithmetic_lanes(instruction[4], instruction[2] & 3, bits)
            : (instruction[1] & 7) == 2  ? count_fused_multiply_add_operations(instruction[4], instruction[2] & 0x80, bits)
                                         : 0;
    }
    for (; *instruction == 0x66 || *instruction == 0xf2 || *instruction == 0xf3; instruction++)
        pp = *instruction == 0x66 ? 1 : *instruction == 0xf3 ? 2 : 3;
    instruction += (*instruction & 0xf0) == 0x40; /* REX */
    return instruction[0] == 0x0f ? count_arithmetic_lanes(instruction[1], pp, 128) : 0;
}

/* Returns the number of elements of 8, 16 or 32 bits that a vector integer instruction multiplies; 0 if it multiplies none.
 * Additions of the products, in the same or a later instruction, are not counted here. */
static int64_t count_integer_multiply_lanes(unsigned opcode_map, unsigned opcode, int64_t register_bits)
{
    if (opcode_map == 1 &&
        (opcode == 0xf5 || opcode == 0xd5 || opcode == 0xe4 || opcode == 0xe5)) /* pmaddwd, pmullw, pmulhuw, pmulhw */
        return register_bits / 16;
    if (opcode_map == 1 && opcode == 0xf4) /* pmuludq */
        return register_bits / 64;
    if (opcode_map == 2 && (opcode == 0x40 || opcode == 0x28)) /* pmulld, pmuldq */
        return register_bits / 32;
    if (opcode_map == 2 && (opcode == 0x04 || opcode == 0x50 || opcode == 0x51)) /* pmaddubsw, vpdpbusd */
        return register_bits / 8;
    if (opcode_map == 2 && (opcode == 0x52 || opcode == 0x53)) /* vpdpwssd */
        return register_bits / 16;
    return 0;
}

/* Returns two for each integer multiplication of the instruction at an address, since an addition follows it. Returns 0 for other
 * instructions, additions too. */
static int64_t count_integer_operations(const uint8_t *instruction)
{
    if (instruction[0] == 0xc5)
        return 2 * count_integer_multiply_lanes(1, instruction[2], instruction[1] & 4 ? 256 : 128);
    if (instruction[0] == 0xc4)
        return 2 * count_integer_multiply_lanes(instruction[1] & 31, instruction[3], instruction[2] & 4 ? 256 : 128);
    if (instruction[0] == 0x62)
        return 2 * count_integer_multiply_lanes(instruction[1] & 7, instruction[4], (int64_t)128 << (instruction[3] >> 5 & 3));
    for (; *instruction == 0x66 || *instruction == 0xf2 || *instruction == 0xf3; instruction++)
        continue;
    instruction += (*instruction & 0xf0) == 0x40; /* REX */
    if (instruction[0] == 0x69 || instruction[0] == 0x6b ||
        ((instruction[0] == 0xf6 || instruction[0] == 0xf7) &&
            ((instruction[1] >> 3 & 7) == 4 || (instruction[1] >> 3 & 7) == 5)))
        return 2;                                         /* imul by a constant; or mul or imul with one operand */
    if (instruction[0] == 0x0f && instruction[1] == 0xaf) /* imul */
        return 2;
    return instruction[0] != 0x0f ? 0
        : instruction[1] == 0x38  ? 2 * count_integer_multiply_lanes(2, instruction[2], 128)
                                  : 2 * count_integer_multiply_lanes(1, instruction[1], 128);
}

/* Callback before each instruction: adds its operations to counted_instructions. Returns false, which ends stepping, at
 * MAX_COUNTED_INSTRUCTIONS. */
static bool operations_count_instruction_and_may_continue(const uint8_t *instruction)
{
    counted_instructions.operations += count_float_operations(instruction);
    counted_instructions.integers += count_integer_operations(instruction);
    return ++counted_instructions.steps < MAX_COUNTED_INSTRUCTIONS;
}

/* Begins to count operations of this thread. Returns false if this processor cannot single-step. */
static bool operations_try_begin_count(void)
{
    counted_instructions.operations = counted_instructions.integers = counted_instructions.steps = 0;
    return single_step_try_begin(operations_count_instruction_and_may_continue);
}

/* Returns the integer operations of the last count, two for each multiplication. Multiplications that compute indices are
 * included. */
static inline int64_t operations_get_integer_count(void) { return counted_instructions.integers; }

/* Ends the count and returns the number of floating-point operations; -1 if nothing was counted or there were too many
 * instructions. */
static int64_t operations_end_count(void)
{
    single_step_end();
    return counted_instructions.steps && counted_instructions.steps < MAX_COUNTED_INSTRUCTIONS ? counted_instructions.operations
                                                                                               : -1;
}

#endif
