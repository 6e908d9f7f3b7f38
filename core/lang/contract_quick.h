/* Quick steps: the form of a program that calls run, made once when the contract is loaded (contract_quick.c). They only decide
 * that a call is right. Steps that only messages read are left out, common sequences in patterns are one step, and steps with the
 * same guard share one test. When a quick step finds anything unusual, the section's plain steps run from the beginning; they
 * decide and make the message. */
#ifndef DV_LANG_CONTRACT_QUICK_H
#define DV_LANG_CONTRACT_QUICK_H

#include "lang/contract_program.h"

/* X(id, operator): comparisons of integers; each is also a check. */
#define DV__QUICK_COMPARISONS(X) X(EQ, ==) X(NE, !=) X(LT, <) X(LE, <=) X(GT, >) X(GE, >=)

/* X(id, statement): operations that are done alike by both evaluators, contract_run.c and contract_quick_run.c: from the operands
 * A, B and C to the register TO. */
#define DV__SIMPLE_OPS(X)                       \
    X(RANK, TO->i = A->n)                       \
    X(SLICE, dv__slice(A, B->i, C->i, TO))      \
    X(NEGATIVE, TO->i = dv__negative(A))        \
    X(IS_AXIS, TO->i = dv__is_axis(A->i, B->i)) \
    X(AXIS, TO->i = dv__axis_from(A->i, B->i))  \
    X(NOT, TO->i = !A->i)                       \
    X(AND, TO->i = A->i && B->i)                \
    X(OR, TO->i = A->i || B->i)                 \
    X(SELECT, *TO = *(A->i ? B : C))
/* X(id, test): of integers, where the result fits. */
#define DV__INT_OPS(X)                                  \
    X(ADD, !__builtin_add_overflow(A->i, B->i, &TO->i)) \
    X(SUB, !__builtin_sub_overflow(A->i, B->i, &TO->i)) \
    X(MUL, !__builtin_mul_overflow(A->i, B->i, &TO->i)) \
    X(NEG, !__builtin_sub_overflow(0, A->i, &TO->i))    \
    X(MIN, (TO->i = A->i < B->i ? A->i : B->i, true))   \
    X(MAX, (TO->i = A->i > B->i ? A->i : B->i, true))

enum dv__quick_op {
    DV__QUICK_UNLESS,       /* a is false: skip `slot` steps */
    DV__QUICK_ARGUMENT_HAS, /* for the tensor in slot: itself, its device, dtype and shape */
    DV__QUICK_TENSOR_HAS,   /* of the tensor a */
    DV__QUICK_AT,           /* the size of a at `slot`, counted from the end if negative */
    DV__QUICK_AT_IS,        /* the same, checked against b */
    DV__QUICK_AT_ANY,       /* the size of a at b */
    DV__QUICK_STRIDES,
    DV__QUICK_SIZES_CHECK, /* none of a is negative */
    DV__QUICK_INT,         /* the int argument in slot */
    DV__QUICK_PRESENT,
    DV__QUICK_COPY,
    DV__QUICK_BOUND, /* a variable of the solution is bound: `to` */
    DV__QUICK_CHECK,
#define DV__QUICK_ID(id, does) DV__QUICK_##id,
    DV__SIMPLE_OPS(DV__QUICK_ID) DV__INT_OPS(DV__QUICK_ID)
#undef DV__QUICK_ID
#define DV__QUICK_ID(id, operator) DV__QUICK_##id, DV__QUICK_##id##_CHECK,
        DV__QUICK_COMPARISONS(DV__QUICK_ID)
#undef DV__QUICK_ID
            DV__QUICK_SAME_DTYPE,
    DV__QUICK_SAME_DTYPE_CHECK,
    DV__QUICK_SAME_DIMS,
    DV__QUICK_SAME_DIMS_CHECK,
    DV__QUICK_SAME_DEVICE,
    DV__QUICK_SAME_DEVICE_CHECK,
    DV__QUICK_DIMS, /* one that makes new dims: `step` */
    DV__QUICK_STEP, /* any other: `step` */
    DV__QUICK_EACH, /* a block: `slot` steps follow that are its body */
};

typedef struct dv__quick {
    uint8_t op;
    dv__operand to, a, b, c;
    dv__operand device, dtype, shape,
        rank; /* of *_HAS: the destination registers; values that nothing reads go to a spare register */
    int32_t slot;
    const dv__step *step;
} dv__quick;

#endif
