/* The lowering of a contract to a program, shared by the contract_build*.c files only. */
#ifndef DV_LANG_CONTRACT_BUILD_H
#define DV_LANG_CONTRACT_BUILD_H

#include "lang/contract_internal.h"

/* The position of a pattern's item in a tensor's shape. An item that is one dim uses `at`, a variadic item start and length. */
typedef struct dv__shape_position {
    dv__operand at;            /* an item that is one dim: its index, a literal (negative: from the end) or a register */
    dv__operand start, length; /* a variadic item: its first dim and its number of dims */
} dv__shape_position;

/* Deferred check: a computed dim or a definition whose sizes are not bound yet. */
typedef struct dv__deferred_check {
    dv__operand is_pending;        /* condition: the item applies and is not checked yet */
    dv__operand bound_at_last_try; /* condition: the item's sizes were bound when the builder last tried to check it */
    dv__operand found_size_reg;    /* the size at the item's position (in a list: of the first tensor) */
    dv__operand pattern_applies;   /* condition under which the item's pattern applies */
    dv__shape_position position;
} dv__deferred_check;

/* Conditions that select the case of a group. */
typedef struct dv__case_choice {
    dv__operand *case_conditions; /* by case: its condition; DV__ALWAYS: the case `else` */
    dv__operand switch_value;     /* register of the string, rank or dtype that the cases compare; DV__ALWAYS: none */
} dv__case_choice;

/* Proof obligation: where the premise holds, the conclusion does too. The prover proves it for every call, or fails with the
 * message. An obligation without a message is a fact that each call checks, on which the prover relies. */
typedef struct dv__obligation {
    dv__operand premise, conclusion;
    const char *at;                  /* position in the contract's text, for the message */
    const dv__message_part *message; /* NULL: a fact that each call checks */
} dv__obligation;

/* State of the lowering. After the first error no step is added, and the program is never evaluated. */
typedef struct dv__builder {
    const dv__contract *c;
    dv__program *p;
    dv__arena *arena;
    int status;                   /* the first error, or DV_OK */
    uint32_t reusable_begin_step; /* index of the first step whose result may be reused: a call may begin with this step */
    int32_t *writer_step; /* by register: the index of the step that writes it; -1: a variable, or a register of a block */
    dv__operand dim_bound[DV__MAX_DIM_VARS], variadic_bound[DV__MAX_VARIADIC_VARS], dtype_bound[DV__MAX_DTYPE_VARS],
        device_bound; /* conditions under which each variable is bound */
    const char *message_argument,
        *message_text; /* for messages: the argument whose pattern is lowered, or NULL; the text of the current item */
    const dv__step_error *overflow_error;          /* the last overflow error that was made, for reuse */
    const char *overflow_argument, *overflow_text; /* the message_argument and message_text for which overflow_error was made */
    dv__strbuf text;                               /* scratch: the text of the part that dv__message() builds */
    bool is_in_message;                            /* true while steps of a message are emitted, which cannot fail */
    dv__operand message_values_exist;              /* condition under which the message's values exist */
    dv__operand element;                           /* in a fact on elements: register of the element that x.values stands for */
    dv__operand previous_element_reg; /* of sorted(x): the preceding element; DV__ALWAYS: no fact of the block uses it yet */
    const dv__pattern *list_pattern;  /* the returned list whose pattern is lowered; NULL: none */
    dv__operand list_index_reg;       /* register of the current tensor's index in that list */
    dv__deferred_check deferred[DV__MAX_DEFERRED]; /* by deferred_bit */
    dv__case_choice choices[DV__MAX_CASE_GROUPS];  /* by group of cases */
    dv__obligation *obligations;
    uint32_t nobligations;
} dv__builder;

static inline dv__operand dv__dim_register(int dim_var) { return (dv__operand)dim_var; }

dv__operand dv__builder_add_register(dv__builder *b, enum dv__type_kind type);
enum dv__type_kind dv__builder_operand_type(const dv__builder *b, dv__operand operand);
dv__operand dv__builder_add_literal(dv__builder *b, enum dv__type_kind type, dv__reg value);
dv__operand dv__builder_int_literal(dv__builder *b, int64_t i);
dv__operand dv__builder_dtype_literal(dv__builder *b, uint32_t key);
/* Emits a pure operation: reuses the register of an equal step, or adds a step. Returns the result's register. */
dv__operand dv__emit_op(dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, uint32_t n,
    const dv__operand *in, int32_t slot, const dv__step_error *error);
dv__step *dv__emit_step(dv__builder *b, enum dv__opcode op, dv__operand guard); /* adds any step; NULL: an error, in
                                                                                 * b->status */
void dv__emit_copy(dv__builder *b, dv__operand to, dv__operand from, dv__operand guard);
dv__operand dv__emit_op1(dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, dv__operand x);
dv__operand dv__emit_op2(
    dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, dv__operand x, dv__operand y);
dv__operand dv__emit_op3(
    dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, dv__operand x, dv__operand y, dv__operand z);
dv__operand dv__emit_load(dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, int32_t slot);

/* Functions that emit conditions. They simplify: guards stay small, and constant conditions are recognised. */
dv__operand dv__emit_and(dv__builder *b, dv__operand x, dv__operand y); /* emits x and y; y may be undefined where x is false */
dv__operand dv__emit_or(dv__builder *b, dv__operand x, dv__operand y);
dv__operand dv__emit_and_under(dv__builder *b, dv__operand guard, dv__operand x,
    dv__operand y); /* emits x and y for conditions that are defined only where the guard holds */
dv__operand dv__emit_or_under(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y);
dv__operand dv__emit_not(dv__builder *b, dv__operand x, dv__operand guard);
bool dv__condition_implies(const dv__builder *b, dv__operand x, dv__operand y, int depth);
dv__operand dv__emit_select(dv__builder *b, dv__operand guard, dv__operand condition, dv__operand x, dv__operand y);
dv__operand dv__emit_add(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y); /* literals are added up */
dv__operand dv__emit_all_bound(dv__builder *b, dv__var_set vars); /* returns the condition that all variables are bound */
typedef struct dv__var_binding {
    const char *name;  /* name of the variable */
    dv__operand bound; /* condition under which the variable is bound */
} dv__var_binding;
bool dv__var_set_try_take_next(const dv__builder *b, dv__var_set *left,
    dv__var_binding *out); /* moves one variable from *left to *out; returns false if *left is empty */
void dv__obligation_add(
    dv__builder *b, dv__operand premise, dv__operand conclusion, const char *position_in_text, const dv__message_part *message);

const dv__operand *dv__builder_copy_operands(
    dv__builder *b, const dv__operand *in, uint32_t n); /* returns a copy in the arena; NULL: an error, which is in b->status */

/* Messages. A message is a list of parts; dv__message_append() links them. A function returns the first part. */
dv__message_part *dv__message_part_new(dv__builder *b, enum dv__message_part_kind kind);
/* Returns the parts of a format: %s a string, %d an int, %r the value of a register or literal, %m other parts (used once; may
 * be NULL). */
dv__message_part *dv__message(dv__builder *b, const char *format, ...);
dv__message_part *dv__message_if(dv__builder *b, dv__operand condition, dv__message_part *then, dv__message_part *other);
dv__message_part *dv__message_append(
    dv__message_part *first, dv__message_part *next); /* appends `next` and returns the first part; either may be NULL */
dv__message_part *dv__message_join_new(dv__builder *b, const char *open, const char *close);
void dv__message_join_add(dv__builder *b, dv__message_part *join, dv__message_part *part);
const dv__step_error *dv__step_error_new(dv__builder *b, int status, dv__message_part *message);
dv__message_part *dv__message_make_item_prefix(
    dv__builder *b); /* returns "argument 'w': 2*n: ", from b->message_argument and b->message_text */
/* True if a condition can be false where the guard holds, so that a check is needed. The caller then makes the message and
 * calls dv__emit_check(). While a message is built, the condition is only added to b->message_values_exist. */
bool dv__condition_can_fail(dv__builder *b, dv__operand condition, dv__operand guard);
void dv__emit_check(dv__builder *b, dv__operand condition, dv__operand guard, int status, dv__message_part *message);

/* Expressions. Each function emits the steps that compute an expression where the guard holds, and returns the result's
 * register. */
dv__operand dv__emit_expr(dv__builder *b, const dv__expr *e, dv__operand guard);
dv__operand dv__emit_real_expr(dv__builder *b, const dv__expr *e, dv__operand guard);
dv__operand dv__emit_present(
    dv__builder *b, int32_t slot); /* returns the condition that the argument is given; DV__ALWAYS for a required argument */
dv__operand dv__emit_axis(dv__builder *b, dv__operand dim, dv__operand rank, dv__operand guard,
    dv__message_part *subject); /* subject: the words with which a failure's message begins */

/* The state that dv__message_scope_begin() saves. Steps that are emitted in a scope cannot fail, and only messages read their
 * results. */
typedef struct dv__message_scope {
    bool is_in_message;
    dv__operand message_values_exist;
} dv__message_scope;
static inline dv__message_scope dv__message_scope_begin(dv__builder *b)
{
    const dv__message_scope before = { b->is_in_message, b->message_values_exist };
    b->is_in_message = true;
    b->message_values_exist = DV__ALWAYS;
    return before;
}
static inline void dv__message_scope_end(dv__builder *b, dv__message_scope scope)
{
    b->is_in_message = scope.is_in_message;
    b->message_values_exist = scope.message_values_exist;
}

/* contract_build_match.c */
dv__operand dv__emit_pattern_applies(dv__builder *b, const dv__pattern *pattern);
/* For the current tensor of the returned list b->list_pattern: the value of n{i} or *s{i}, and the tensor of an argument's list
 * at the same index; and the returned list's length. Each function returns a register. */
dv__operand dv__emit_list_result_variable(dv__builder *b, const dv__expr *e, dv__operand guard);
dv__operand dv__emit_list_result_input(dv__builder *b, int32_t slot, dv__operand guard);
dv__operand dv__emit_list_result_length(dv__builder *b, const dv__pattern *returned_list);
dv__operand dv__case_get_condition(const dv__builder *b, dv__case_ref when);
dv__message_part *dv__message_make_binder(
    dv__builder *b, bool is_variadic, int variable, const char *before, const char *after); /* returns "'n' is bound by 'x'" */
dv__message_part *dv__message_make_binders(
    dv__builder *b, dv__var_set vars); /* returns " ('n' is bound by 'x', '*s' is bound by 'y')", or NULL */
dv__message_part *dv__message_add_variables(dv__builder *b, dv__var_set vars,
    dv__message_part *join); /* adds "n = 3" for each bound variable to join; returns join, or NULL if it is empty */
dv__message_part *dv__message_make_bound_by(dv__builder *b,
    int dim_variable); /* returns " (bound by 'x')"; in a message it is empty where no argument binds the variable */
void dv__build_patterns(dv__builder *b);
void dv__build_deferred_dim(dv__builder *b, const dv__pattern *t, uint32_t item_index, dv__operand guard);
void dv__builder_close_block(dv__builder *b, uint32_t block_step); /* all steps after the block's step become its body */
dv__message_part *dv__message_make_case(
    dv__builder *b, dv__case_ref when); /* returns " when layout == "A"", or NULL outside of cases */
/* contract_build_facts.c */
void dv__build_deferred_checks(dv__builder *b);
void dv__build_facts(dv__builder *b);
/* contract_build_results.c */
void dv__build_results(dv__builder *b);
/* contract_prove.c */
int dv__contract_prove(dv__builder *b);

#endif
