/* A contract as a program, which every evaluator runs (docs/json.md, "program", defines each operation).
 *
 * It is straight-line and total: numbered registers, one operation per step, an optional guard for each step. A variable of the
 * contract is a register that several steps may write; the guard of exactly one of them holds. Every other register is written by
 * one step. */
#ifndef DV_LANG_CONTRACT_PROGRAM_H
#define DV_LANG_CONTRACT_PROGRAM_H

#include "base/memory.h"
#include "base/text.h"
#include "lang/contract.h"

/* X(id, name in JSON): what a register holds. */
/* clang-format off */
#define DV__RTYPES(X)                                                                                                         \
    X(BOOL, "bool") X(INT, "int") X(NUMBER, "number") X(REAL, "real") X(STRING, "str") X(DTYPE, "dtype")                       \
    X(DEVICE, "device") X(DIMS, "dims") X(TENSOR, "tensor")
/* clang-format on */

/* X(id, name in JSON): what a step does. */
/* clang-format off */
#define DV__OPS(X)                                                                                                            \
    X(PRESENT, "present") X(HOLDS, "holds_tensor") X(TENSOR, "tensor") X(ARGUMENT, "argument") X(LEN, "len")                   \
    X(ELEMENT, "element")                                                                                                     \
    X(NUMBER_DTYPE, "number_dtype") X(SHAPE, "shape") X(STRIDES, "strides") X(DTYPE_OF, "dtype_of") X(DEVICE_OF, "device_of")  \
    X(RANK, "rank") X(NUMEL, "numel") X(AT, "at") X(SLICE, "slice") X(PACK, "pack") X(BROADCASTS, "broadcasts")                \
    X(BROADCAST, "broadcast") X(REDUCED, "reduced") X(SWAP, "swap") X(PERMUTE, "permute") X(REPLACE, "replace")                \
    X(DROP, "drop") X(NEGATIVE, "negative") X(IS_AXIS, "is_axis") X(AXIS, "axis") X(ARE_AXES, "are_axes")                      \
    X(DISTINCT_AXES, "distinct_axes") X(ADD, "add") X(SUB, "sub") X(MUL, "mul") X(DIV, "div") X(FLOORDIV, "floordiv")          \
    X(MOD, "mod") X(MIN, "min") X(MAX, "max") X(ABS, "abs") X(NEG, "neg") X(CEILDIV, "ceildiv") X(TO_NUMBER, "to_number")      \
    X(TO_REAL, "to_real") X(NOT, "not") X(AND, "and") X(OR, "or") X(SELECT, "select") X(EQ, "eq") X(NE, "ne") X(LT, "lt")      \
    X(LE, "le") X(GT, "gt") X(GE, "ge") X(ONE_OF, "one_of") X(ON_CPU, "on_cpu") X(SAME_DEVICE, "same_device")                  \
    X(PROMOTES, "promotes") X(PROMOTE, "promote") X(ACCUMULATE, "accumulate") X(ITEMSIZE, "itemsize") X(COPY, "copy")          \
    X(UNBACKED, "unbacked") X(CHECK, "check") X(EACH, "each") X(EACH_VALUE, "each_value")
/* clang-format on */

#define DV__ROW_ID(id, name) DV__RTYPE_##id,
enum dv__rtype { DV__RTYPES(DV__ROW_ID) };
#undef DV__ROW_ID
#define DV__ROW_ID(id, name) DV__OP_##id,
enum dv__op { DV__OPS(DV__ROW_ID) DV__OP_COUNT };
#undef DV__ROW_ID

/* An operand: a register, or a literal if it is negative. A guard DV__ALWAYS means no guard; DV__NEVER does not occur in a
 * finished program. */
typedef int16_t dv__operand;
enum { DV__ALWAYS = -1, DV__NEVER = -2, DV__MAX_STEPS = 8192 };

/* Pieces of a message. */
enum dv__part_kind {
    DV__PART_TEXT,       /* text */
    DV__PART_SHOW,       /* a register: dims without brackets, strings in quotes */
    DV__PART_IF,         /* a, then, other */
    DV__PART_JOIN,       /* the parts of `then` that are not empty, with text around and ", " between */
    DV__PART_ALL,        /* then, as one part (in a JOIN) */
    DV__PART_ARGUMENT,   /* "n = 3" of a slot */
    DV__PART_WRONG_AXIS, /* the first of the ints `a` that is not a dim of rank `b` */
    DV__PART_TWICE,      /* the first of the ints `a` (rank `b`) that repeats an earlier dim */
    DV__PART_CONFLICT,   /* "4 and 3 at dim -1": where the shapes `many` do not broadcast */
    DV__PART_DTYPES,     /* the dtypes `many` (with their sorts) up to the one that does not promote */
    DV__PART_POSITION,   /* "[0, 1]": the index of the element in EACH_VALUE */
};
typedef struct dv__part {
    uint8_t kind, nmany;
    dv__operand a, b;
    const dv__operand *many;
    int32_t slot;
    const char *text, *close;
    struct dv__part *then, *other, *next;
} dv__part;
typedef struct dv__fault {
    int status;
    dv__part *message;
} dv__fault;

/* One carried register of EACH: `to` starts as `from`, and is set to `next` after each element. */
typedef struct dv__carry { dv__operand to, from, next; } dv__carry;

enum { DV__STEP_SAY = 1, DV__STEP_DEAD = 2 }; /* only messages read it; its register has changed (end of a block) */
typedef struct dv__step {
    uint8_t op, type, flags, nin; /* type: of the result; of comparisons: of the operands */
    dv__operand to, guard;
    dv__operand in[4];
    const dv__operand *many;  /* all operands, if there can be more than 4 */
    int32_t slot;             /* of operations that read arguments; of EACH: the list */
    int32_t body;             /* of EACH and EACH_VALUE: the number of following steps that form the body */
    dv__operand index, first; /* of EACH; EACH_VALUE: index is the element before along the last dim; the first: itself */
    const dv__carry *carry;
    uint32_t ncarry;
    const dv__fault *fault; /* of CHECK: for a false in[0]; of others: for a result that does not fit, or a missing value */
} dv__step;

typedef struct dv__section {
    uint32_t begin, end;
    dv__operand value; /* of costs */
} dv__section;

enum dv__result_kind {
    DV__RESULT_NEW,
    DV__RESULT_LIKE,
    DV__RESULT_VIEW,
    DV__RESULT_ARGUMENT,
    DV__RESULT_ABSENT,
    DV__RESULT_FUNCTION /* a C shape function says it */
};
typedef struct dv__result {
    uint8_t kind;
    dv__operand guard, dtype, device, shape, strides, offset;
    int32_t slot, of;
    const struct dv__pattern *pattern;
    dv__operand transform[3]; /* operands of the view's transform */
    dv__section section;
    dv__section count; /* of a list: how many tensors; value DV__NEVER: not a list */
    dv__operand index; /* of a list: the register that says which one the section is about */
} dv__result;

/* A set of variables, one bit for each. */
typedef struct dv__needs {
    uint64_t dims;
    uint32_t runs, dtypes;
} dv__needs;

typedef struct dv__program {
    dv__step *steps;
    uint32_t nsteps;
    uint8_t *types; /* of registers */
    uint32_t nregisters;
    struct dv__reg *constants;
    uint8_t *constant_types;
    uint32_t nconstants;
    uint32_t choose_end;          /* solve: [0, choose_end) chooses cases, */
    uint32_t after_plain, nplain; /* and this begins after the first nplain patterns, which are plain and required */
    uint32_t solve_end;
    dv__result *results;
    uint32_t nresults;
    dv__section workspace, flops, bytes;
    dv__operand *taken[DV__MAX_CASE_GROUPS]; /* which case holds */
    struct dv__quick *quick;                 /* the quick steps, which calls run (contract_quick.h), */
    uint16_t *quick_at;                      /* and where each step is in it */
    dv__needs binds;                         /* what solving binds in every call */
} dv__program;

const char *dv__op_name(enum dv__op op);
const char *dv__rtype_name(enum dv__rtype type);

#endif
