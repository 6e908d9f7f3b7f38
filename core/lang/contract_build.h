/* How a contract becomes a program: shared by the contract_build*.c files only. */
#ifndef DV_LANG_CONTRACT_BUILD_H
#define DV_LANG_CONTRACT_BUILD_H

#include "lang/contract_internal.h"

/* The position in a shape of an item of a pattern. AT: the dim `at`. SLICE: `length` dims from `start` on. */
typedef struct dv__shape_position {
    dv__operand at;            /* of AT: a literal, counted from the end if negative, or a register */
    dv__operand start, length; /* of SLICE */
} dv__shape_position;

/* A computed dim or a definition that waits until its sizes are bound. */
typedef struct dv__put_aside {
    dv__operand pending; /* when it is still to be settled */
    dv__operand tested;  /* the condition under which its sizes were bound when it was last checked */
    dv__operand found;   /* the size at its position (in a list: of the first tensor) */
    dv__operand took;    /* when its pattern took part */
    dv__shape_position position;
} dv__put_aside;

/* How the case of a group is chosen. */
typedef struct dv__choice {
    dv__operand *holds; /* the condition of each case by itself; DV__ALWAYS: else */
    dv__operand subject;
} dv__choice;

/* Where `given` holds, `holds` does too. The prover shows it for every call, or says the message. Without a message it is a fact:
 * a call checks it. */
typedef struct dv__claim {
    dv__operand given, holds;
    const char *at;
    const dv__part *message;
} dv__claim;

/* After the first error nothing is added, and the results are never run. */
typedef struct dv__builder {
    const dv__contract *c;
    dv__program *p;
    dv__arena *arena;
    int status;
    uint32_t fresh;   /* results of steps before this one are not reused: a call may begin after them */
    int32_t *made_by; /* for each register its step; -1: a variable, or a register of a block */
    dv__operand dims[DV__MAX_DIM_VARS], runs[DV__MAX_RUNS], dtypes[DV__MAX_DTYPE_VARS], device; /* when each is bound */
    const char *who, *where;  /* for messages: the argument whose pattern contains it, or NULL; the text */
    const dv__fault *too_big; /* the message of the last who and where */
    const char *big_who, *big_where;
    bool quiet;              /* building a message: its steps cannot fail, */
    dv__operand valid;       /* and has a value when this holds */
    dv__operand values;      /* the element that x.values stands for */
    dv__operand before;      /* of sorted(x): the preceding element; DV__ALWAYS: no fact of the block uses it yet */
    const dv__pattern *list; /* the returned list that is described, */
    dv__operand index;       /* and which of its tensors */
    dv__put_aside asides[DV__MAX_ASIDES];
    dv__choice choices[DV__MAX_CASE_GROUPS];
    dv__claim *claims;
    uint32_t nclaims;
} dv__builder;

static inline dv__operand dv__dim_register(int ref) { return (dv__operand)ref; }

dv__operand dv__new_register(dv__builder *b, enum dv__rtype type);
enum dv__rtype dv__type_of(const dv__builder *b, dv__operand x);
dv__operand dv__literal(dv__builder *b, enum dv__rtype type, dv__reg value);
dv__operand dv__int(dv__builder *b, int64_t i);
dv__operand dv__dtype_literal(dv__builder *b, uint32_t key);
/* A pure operation: reuses the register of an equal step, or adds a new step. */
dv__operand dv__emit(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, uint32_t n, const dv__operand *in,
    int32_t slot, const dv__fault *fault);
dv__step *dv__append(dv__builder *b, enum dv__op op, dv__operand guard); /* any step; NULL: an error */
void dv__assign(dv__builder *b, dv__operand to, dv__operand from, dv__operand guard);
dv__operand dv__op1(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, dv__operand x);
dv__operand dv__op2(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, dv__operand x, dv__operand y);
dv__operand dv__op3(
    dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, dv__operand x, dv__operand y, dv__operand z);
dv__operand dv__load(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, int32_t slot);

/* Conditions, simplified: guards stay small, and constant conditions are recognised. */
dv__operand dv__and(dv__builder *b, dv__operand x, dv__operand y); /* y need not be defined where x is false */
dv__operand dv__or(dv__builder *b, dv__operand x, dv__operand y);
dv__operand dv__both(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y); /* of what is defined under a guard */
dv__operand dv__either(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y);
dv__operand dv__not(dv__builder *b, dv__operand x, dv__operand guard);
bool dv__implies(const dv__builder *b, dv__operand x, dv__operand y, int depth);
dv__operand dv__select(dv__builder *b, dv__operand guard, dv__operand c, dv__operand x, dv__operand y);
dv__operand dv__add_ints(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y); /* literals are added up */
dv__operand dv__bound(dv__builder *b, dv__needs needs);                                    /* when all of them are bound */
typedef struct dv__variable {
    const char *name;
    dv__operand bound;
} dv__variable;
bool dv__next_variable(const dv__builder *b, dv__needs *left, dv__variable *out); /* false: none is left */
void dv__claim_that(dv__builder *b, dv__operand given, dv__operand holds, const char *at, const dv__part *message);

const dv__operand *dv__keep(dv__builder *b, const dv__operand *in, uint32_t n); /* in the arena */

/* Messages. Parts are linked with dv__then(). */
dv__part *dv__part_new(dv__builder *b, enum dv__part_kind kind);
DV__PRINTF(2, 3) dv__part *dv__part_text(dv__builder *b, const char *format, ...);
dv__part *dv__show(dv__builder *b, dv__operand x);
dv__part *dv__if_part(dv__builder *b, dv__operand condition, dv__part *then, dv__part *other);
dv__part *dv__then(dv__part *first, dv__part *next); /* appended; either may be NULL */
dv__part *dv__join(dv__builder *b, const char *open, const char *close);
void dv__join_add(dv__builder *b, dv__part *join, dv__part *part);
const dv__fault *dv__fault_new(dv__builder *b, int status, dv__part *message);
dv__part *dv__part_place(dv__builder *b); /* "argument 'w': 2*n: " */
/* Is a check needed for this condition? If so, make the message, then call dv__check(). In quiet mode the condition is only
 * noted. */
bool dv__may_fail(dv__builder *b, dv__operand condition, dv__operand guard);
void dv__check(dv__builder *b, dv__operand condition, dv__operand guard, int status, dv__part *message);

/* Expressions, under a guard. */
dv__operand dv__value(dv__builder *b, const dv__expr *e, dv__operand guard);
dv__operand dv__real_value(dv__builder *b, const dv__expr *e, dv__operand guard);
dv__operand dv__present(dv__builder *b, int32_t slot); /* always true for what is not optional */
dv__operand dv__axis(dv__builder *b, dv__operand dim, dv__operand rank, dv__operand guard, dv__part *who); /* who: its place */

/* Begin and end steps for a message: they cannot fail, and only messages read their results. */
typedef struct dv__hush {
    bool quiet;
    dv__operand valid;
} dv__hush;
static inline dv__hush dv__quietly(dv__builder *b)
{
    const dv__hush before = { b->quiet, b->valid };
    b->quiet = true;
    b->valid = DV__ALWAYS;
    return before;
}
static inline void dv__aloud(dv__builder *b, dv__hush before)
{
    b->quiet = before.quiet;
    b->valid = before.valid;
}

/* contract_build_match.c */
dv__operand dv__took_part(dv__builder *b, const dv__pattern *t);
/* For the tensor that is described of a list that is returned: n{i} or *s{i}; the tensor of an argument; how many there are. */
dv__operand dv__own_value(dv__builder *b, const dv__expr *e, dv__operand guard);
dv__operand dv__own_tensor(dv__builder *b, int32_t slot, dv__operand guard);
dv__operand dv__own_count(dv__builder *b, const dv__pattern *t);
dv__operand dv__case_taken(const dv__builder *b, dv__when when);
dv__part *dv__binder(dv__builder *b, bool run, int ref, const char *before, const char *after); /* "'n' is bound by 'x'" */
dv__part *dv__binders(dv__builder *b, dv__needs needs); /* " ('n' is bound by 'x', '*s' is bound by 'y')", or nothing */
dv__part *dv__variables(dv__builder *b, dv__needs needs, dv__part *join); /* "n = 3" each, added to join */
dv__part *dv__bound_by(dv__builder *b, int ref);                          /* " (bound by 'x')", or nothing */
void dv__build_patterns(dv__builder *b);
void dv__check_aside(dv__builder *b, const dv__pattern *t, uint32_t item, dv__operand guard);
void dv__close_block(dv__builder *b, uint32_t at);      /* the steps after the block's step are its body */
dv__part *dv__case_text(dv__builder *b, dv__when when); /* " when layout == "A"", or nothing */
/* contract_build_facts.c */
void dv__build_settle(dv__builder *b);
void dv__build_constraints(dv__builder *b);
/* contract_build_results.c */
void dv__build_results(dv__builder *b);
/* contract_prove.c */
int dv__contract_prove(dv__builder *b);

#endif
