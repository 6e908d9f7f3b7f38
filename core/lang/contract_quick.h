/* Quick steps: the form of a program that calls run, made once when the contract is loaded (contract_quick.c). They only decide
 * that a call is right. Steps that only messages read are left out, common sequences in patterns are one step, and steps with the
 * same guard share one test. When a quick step finds anything unusual, the section's plain steps run from the beginning; they
 * decide and make the message. */
#ifndef DV_LANG_CONTRACT_QUICK_H
#define DV_LANG_CONTRACT_QUICK_H

#include "lang/contract_program.h"

/* X(id, operator): comparisons of integers; each is also a check. */
#define DV__QUICK_COMPARISONS(X) X(EQ, ==) X(NE, !=) X(LT, <) X(LE, <=) X(GT, >) X(GE, >=)

enum dv__quick_op {
    DV__QUICK_UNLESS,       /* a is false: skip `slot` steps */
    DV__QUICK_ARGUMENT_HAS, /* for the tensor in slot: itself, its device, dtype and shape */
    DV__QUICK_TENSOR_HAS,   /* of the tensor a */
    DV__QUICK_AT,           /* the size of a at `slot`, counted from the end if negative */
    DV__QUICK_AT_IS,        /* the same, checked against b */
    DV__QUICK_AT_ANY,       /* the size of a at b */
    DV__QUICK_STRIDES,
    DV__QUICK_SLICE,
    DV__QUICK_RANK,
    DV__QUICK_NEGATIVE,
    DV__QUICK_IS_AXIS,
    DV__QUICK_AXIS,
    DV__QUICK_SIZES_CHECK, /* none of a is negative */
    DV__QUICK_INT,         /* the int argument in slot */
    DV__QUICK_PRESENT,
    DV__QUICK_ADD,
    DV__QUICK_SUB,
    DV__QUICK_MUL,
    DV__QUICK_NEG,
    DV__QUICK_MIN,
    DV__QUICK_MAX,
    DV__QUICK_NOT,
    DV__QUICK_AND,
    DV__QUICK_OR,
    DV__QUICK_SELECT,
    DV__QUICK_COPY,
    DV__QUICK_BOUND, /* a variable of the solution is bound: `to` */
    DV__QUICK_CHECK,
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
