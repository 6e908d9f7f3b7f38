/* A contract as a program, which every evaluator evaluates (docs/json.md, "program", defines each operation).
 * A program is straight-line and total: numbered registers, one operation per step, an optional guard for each step. A variable
 * of the contract is a register that several steps may write; the guard of exactly one of them holds. Every other register is
 * written by one step. */
#ifndef DV_LANG_CONTRACT_PROGRAM_H
#define DV_LANG_CONTRACT_PROGRAM_H

#include "base/memory.h"
#include "base/strbuf.h"
#include "lang/contract.h"

/* The operations of steps; ops.def defines them. The numbers from DV__OP_COUNT on are of the fused program only. */
enum dv__opcode {
#define OP(id, ...) DV__OP_##id,
#include "lang/ops.def"
    DV__OP_COUNT,
    DV__FUSED_BEGIN = DV__OP_COUNT - 1,
#define FUSED(id, does) DV__FUSED_##id,
#define ARITHMETIC(id, ...) DV__FUSED_##id, /* of integers */
#include "lang/ops.def"
};

/* An operand: a register, or a literal if it is negative. A guard DV__ALWAYS means no guard; DV__NEVER does not occur in a
 * finished program. */
typedef int16_t dv__operand;
enum { DV__ALWAYS = -1, DV__NEVER = -2, DV__MAX_STEPS = 8192 };

/* The kinds of parts of a message. a, b, then, other: fields of dv__message_part. */
enum dv__message_part_kind {
    DV__PART_TEXT,       /* the text in `text` */
    DV__PART_REGISTER,   /* the value of register `a`: dims without brackets, strings in quotes */
    DV__PART_IF,         /* `then` if the condition in register `a` holds, else `other` */
    DV__PART_JOIN,       /* the parts of `then` that are not empty, with ", " between them, and `text` and `close` around them */
    DV__PART_GROUP,      /* all parts of `then` as one part of a JOIN */
    DV__PART_ARGUMENT,   /* "n = 3": name and value of the argument in `slot` */
    DV__PART_WRONG_AXIS, /* the first integer of the int[] in register `a` that is not a dim of the rank in register `b` */
    DV__PART_REPEATED_AXIS, /* the first integer of the int[] in register `a` that repeats an earlier dim; rank: register `b` */
    DV__PART_BROADCAST_CONFLICT, /* "4 and 3 at dim -1": where the shapes `operands` do not broadcast */
    DV__PART_DTYPES,             /* the dtypes in `operands` (dtype and priority in turn) up to the one that does not promote */
    DV__PART_ELEMENT_INDEX,      /* "[0, 1]": the index of the failing element, in a block EACH_VALUE */
};
typedef struct dv__message_part {
    uint8_t kind, noperands;
    dv__operand a, b;
    const dv__operand *operands;
    int32_t slot;
    const char *text, *close;
    struct dv__message_part *then, *other, *next;
} dv__message_part;
/* The error of a call that fails at a step. */
typedef struct dv__step_error {
    int status;
    dv__message_part *message;
} dv__step_error;

/* A register that a block EACH carries from tensor to tensor: `to` starts with the value of `from`, and gets that of `next`
 * after each tensor. */
typedef struct dv__carry { dv__operand to, from, next; } dv__carry;

/* Flags of a step. MESSAGE_ONLY: only messages read its result. IN_BLOCK: the step is in a block's body. */
enum { DV__STEP_MESSAGE_ONLY = 1, DV__STEP_IN_BLOCK = 2 };
typedef struct dv__step {
    uint8_t op, type, flags, ninputs; /* enum dv__opcode; enum dv__type_kind of the result, for comparisons of the operands */
    dv__operand to, guard;
    dv__operand in[4];
    const dv__operand *operands; /* the operands if there are more than 4; else NULL */
    int32_t slot;                /* the argument that the operation reads; EACH: the list */
    int32_t body_size;           /* blocks EACH and EACH_VALUE: the number of steps of the body, which follow; else 0 */
    dv__operand index,
        first; /* EACH: registers with the tensor's index, and with 1 for the first tensor. EACH_VALUE: `index` is the register
                  with the preceding element in the last dim; for the first element, with that element */
    const dv__carry *carry;
    uint32_t ncarry;
    const dv__step_error
        *error; /* CHECK: the error if in[0] is false; other steps: if the result does not fit or there is no value */
} dv__step;

static inline const dv__operand *dv__step_get_operands(const dv__step *s) { return s->operands ? s->operands : s->in; }
static inline bool dv__step_is_block(const dv__step *s) { return s->op == DV__OP_EACH_TENSOR || s->op == DV__OP_EACH_VALUE; }

/* A part of the program that is evaluated alone: the steps from begin to end. */
typedef struct dv__section {
    uint32_t begin, end;
    dv__operand value; /* the value of a cost or of a list's length; DV__ALWAYS or DV__NEVER: there is none */
} dv__section;

enum dv__program_result_kind {
    DV__PROGRAM_RESULT_NEW,
    DV__PROGRAM_RESULT_LIKE,
    DV__PROGRAM_RESULT_VIEW,
    DV__PROGRAM_RESULT_ALIAS,
    DV__PROGRAM_RESULT_ABSENT,
    DV__PROGRAM_RESULT_SHAPE_FN /* a C shape function computes it */
};
/* The description of a return in one case. Operands that the kind does not need are DV__NEVER. */
typedef struct dv__program_result {
    uint8_t kind;
    dv__operand guard, dtype, device, shape, strides, offset;
    int32_t slot, source_slot;
    const struct dv__pattern *pattern;
    dv__operand transform[3]; /* the operands of the transform in view(x, ...) */
    dv__section section;
    dv__section list_count; /* its value is the number of tensors of a returned list; value DV__NEVER: not a list */
    dv__operand index;      /* a returned list: the register of the index of the tensor that `section` describes */
} dv__program_result;

/* A set of variables, one bit for each. */
typedef struct dv__var_set {
    uint64_t dims;
    uint32_t variadics, dtypes;
} dv__var_set;

typedef struct dv__program {
    dv__step *steps;
    uint32_t nsteps;
    uint8_t *types; /* by register: enum dv__type_kind */
    uint32_t nregisters;
    struct dv__reg *constants;
    uint8_t *constant_types;
    uint32_t nconstants;
    uint32_t cases_end_step; /* steps [0, cases_end_step) select cases; solving is [0, solve_end_step) */
    uint32_t after_simple,
        nsimple_patterns; /* the step after the first nsimple_patterns patterns, which are simple and required */
    uint32_t solve_end_step;
    dv__program_result *results;
    uint32_t nresults;
    dv__section workspace, flops, bytes;
    dv__operand *is_selected[DV__MAX_CASE_GROUPS]; /* by group, by case: the condition that the case is selected */
    struct dv__fused_step *fused;                  /* the fused program, which calls evaluate (contract_fused.h) */
    uint16_t *fused_step_index;                    /* by step: index of its first fused step */
    dv__var_set always_bound;                      /* the variables that solving binds in every call */
} dv__program;

/* What readers of programs need of an operation's row in ops.def: its name, and what its step reads. */
typedef struct dv__opcode_row {
    const char *name; /* the operation's name in JSON */
    bool reads_slot;  /* true if it reads the argument in the step's slot */
} dv__opcode_row;
extern const dv__opcode_row dv__operation_rows[];

#endif
