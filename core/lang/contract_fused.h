/* Fused program: the form of a program that calls evaluate, made once when the contract is loaded (contract_fuse.c). The fused
 * program can only find that a call is right. It has no steps that only messages read. Common sequences in patterns are one
 * fused step, and steps with the same guard share one test. If a fused step fails, the section's unfused steps are evaluated
 * from the beginning; these decide and make the message. */
#ifndef DV_LANG_CONTRACT_FUSED_H
#define DV_LANG_CONTRACT_FUSED_H

#include "lang/contract_program.h"

typedef struct dv__fused_step {
    uint8_t op; /* enum dv__opcode */
    dv__operand to, a, b, c;
    dv__operand device, dtype, shape, rank; /* LOAD_ARGUMENT, LOAD_TENSOR: the registers for these properties of the tensor; a
                                               spare register if nothing reads one */
    int32_t
        slot; /* the argument; SIZE_AT: the index; SKIP_UNLESS and blocks: the number of fused steps to skip, or of the body */
    const dv__step *step; /* the step from which it was made; NULL: none */
} dv__fused_step;

#endif
