/* How a contract is stored: shared by the contract_*.c files only.
 *
 * parse (text to patterns and trees) -> resolve and type (names get meanings, trees get types) -> prove (every combination of
 * cases binds what it uses). A call goes through solve (patterns), settle (what had to wait), output; eval and dtype walk trees,
 * message says what failed. row: what kernel rows say. print: words and JSON. All of it lives in the contract's arena and never
 * changes after parsing. */
#ifndef DV_LANG_CONTRACT_INTERNAL_H
#define DV_LANG_CONTRACT_INTERNAL_H

#include "base/error.h"
#include "lang/contract.h"
#include "lang/contract_program.h"

/* dv__expr.type */
enum dv__ctype {
    DV__CTYPE_NONE,
    DV__CTYPE_INT,
    DV__CTYPE_NUMBER, /* a float or a Scalar: only compared and used in flops and bytes */
    DV__CTYPE_BOOL,
    DV__CTYPE_STRING,
    DV__CTYPE_DTYPE,
    DV__CTYPE_RUN,  /* several dims */
    DV__CTYPE_INTS, /* an int[] argument */
    DV__CTYPE_TENSOR,
    DV__CTYPE_TENSORS,
    DV__CTYPE_OTHER, /* an argument that only present() can ask about */
};

/* X(id, name, result, operands). Operands, a letter each: i int, n number, b bool, d dtype, D dtype or number argument, r run,
 * t tensor, R tensor, list of tensors or run, L anything with a length, I int[] argument, x int or int[], e element variable,
 * o optional argument, * any. '+' after the last one: one or more of it. `if` has rules of its own. */
/* clang-format off */
#define DV__FUNCTIONS(X)                                                                                                      \
    X(MIN, "min", INT, "ii+") X(MAX, "max", INT, "ii+") X(ABS, "abs", INT, "i") X(CEILDIV, "ceildiv", INT, "ii")               \
    X(IF, "if", NONE, "b**") X(LEN, "len", INT, "L") X(RANK, "rank", INT, "R") X(NUMEL, "numel", INT, "R")                     \
    X(SIZE, "size", INT, "Ri") X(STRIDE, "stride", INT, "ti") X(TOTAL, "total", INT, "e") X(AXIS, "axis", INT, "iR")           \
    X(PRESENT, "present", BOOL, "o") X(ABSENT, "absent", BOOL, "o") X(DTYPE, "dtype", DTYPE, "t")                              \
    X(ITEMSIZE, "itemsize", INT, "d") X(SHAPE, "shape", RUN, "t") X(BROADCAST, "broadcast", RUN, "r+")                         \
    X(REDUCED, "reduced", RUN, "rxb") X(SWAP, "swap", RUN, "rii") X(PERMUTE, "permute", RUN, "rI")                             \
    X(PROMOTE, "promote", DTYPE, "D+") X(ACCUMULATE, "accumulate", DTYPE, "d")
/* clang-format on */

enum dv__function {
#define DV__FUNCTION(id, name, result, operands) DV__FN_##id,
    DV__FUNCTIONS(DV__FUNCTION)
#undef DV__FUNCTION
        DV__FN_COUNT
};

enum { DV__MAX_ASIDES = 64, DV__MAX_CASES = 16 };

/* The variables that something speaks of: bits by variable. */
typedef struct dv__needs {
    uint64_t dims;
    uint32_t runs, dtypes;
} dv__needs;

/* When something holds: always (group -1), or when case `index` of `group` was taken. */
typedef struct dv__when { int8_t group, index; } dv__when;

enum dv__item_kind {
    DV__ITEM_VAR,     /* a variable that stands alone: binds or checks */
    DV__ITEM_INT,     /* a literal, or an expression without variables and arguments */
    DV__ITEM_EXPR,    /* one dim, computed */
    DV__ITEM_ELEMENT, /* n{i}: sums up over the list */
    DV__ITEM_RUN,     /* *s: binds or checks */
    DV__ITEM_RUNS,    /* several dims, computed: broadcast(...), *size */
};

typedef struct dv__item {
    uint8_t kind;
    int8_t aside;  /* EXPR of an input: its bit among those that may be put aside; else -1 */
    int16_t ref;   /* variable or run */
    int64_t value; /* INT */
    dv__expr *e;
    const char *text;
    dv__needs needs;
} dv__item;

typedef struct dv__dims {
    dv__item *items;
    uint32_t n;
    uint32_t singles; /* items that are one dim each */
    bool any;         /* [...] */
    bool given;       /* written: [] is given, with no items */
} dv__dims;

enum dv__dtype_kind { DV__DTYPE_ANY, DV__DTYPE_VAR, DV__DTYPE_ONE, DV__DTYPE_SET, DV__DTYPE_EXPR };
typedef struct dv__dtype_spec {
    uint8_t kind; /* enum dv__dtype_kind */
    int16_t ref;  /* VAR */
    uint32_t one; /* ONE: its key */
    uint32_t n;
    dv__expr **alternatives; /* as written; one unless SET */
} dv__dtype_spec;

enum dv__pattern_kind { DV__PATTERN_TENSOR, DV__PATTERN_LIST, DV__PATTERN_INTS };
enum dv__presence { DV__REQUIRED, DV__OPTIONAL, DV__PRESENT, DV__ABSENT };
enum dv__on { DV__ON_SAME, DV__ON_CPU, DV__ON_ANY, DV__ON_ARGUMENT };

typedef struct dv__pattern {
    int32_t slot;
    dv__when when;
    uint8_t kind, presence, on;
    bool may_be_empty; /* a Tensor?[]: it may hold nothing but None */
    bool plain;        /* a tensor on the common device: names, literals and at most one run, a dtype that needs no computing */
    int16_t on_slot;   /* ON_ARGUMENT: the Device argument */
    dv__dims dims;
    dv__dtype_spec dtype;
    const char *name, *at, *text; /* argument's name; place; "x[m k]:T" */
    dv__token word;               /* its name in the text, empty for an unnamed output */
    /* of outputs */
    int32_t like, view_of, is_argument; /* slots, or -1 */
    dv__expr *transform, *offset;
    dv__dims strides; /* n 0 and transform NULL: as the argument's */
    bool has_strides, unbacked;
} dv__pattern;

typedef struct dv__constraint {
    dv__when when;
    dv__expr *e;
    dv__needs needs;
    const char *text, *at;
    int32_t values; /* slot of the tensor whose elements it speaks of, or -1 */
} dv__constraint;

typedef struct dv__definition {
    dv__when when;
    int16_t var;
    int8_t aside;
    dv__expr *e;
    dv__needs needs;
    const char *name, *text, *at;
} dv__definition;

typedef struct dv__unbacked {
    int16_t var;
    dv__expr *min, *max;
    const char *name, *at;
} dv__unbacked;

typedef struct dv__case {
    dv__expr *e;
    const char *text, *at;
} dv__case; /* e NULL: else */
typedef struct dv__group {
    dv__case cases[DV__MAX_CASES];
    uint32_t n;
    dv__expr *subject; /* of `when subject == A: ... / B: ...`: values that no case names are refused; NULL: conditions */
} dv__group;

typedef struct dv__run_rank {
    dv__expr *e;
    const char *text;
    dv__needs needs;
} dv__run_rank; /* of run i; e NULL: not said */
typedef struct dv__dtype_var {
    const char *name, *at;
    const uint32_t *allowed;
    uint32_t nallowed;
} dv__dtype_var;
typedef struct dv__dim_var {
    const char *name, *at;
    bool element, unbacked, defined;
} dv__dim_var;
/* What a bit among those put aside means: item `item` of pattern `pattern`, or definition `item` when pattern is -1. */
typedef struct dv__aside { int16_t pattern, item; } dv__aside;
typedef struct dv__named {
    const char *name, *at;
    bool run;
    int16_t ref;
} dv__named;

struct dv__contract {
    dv__arena arena;
    const char *name, *text;
    const dv__schema *schema;
    dv__dim_var dims[DV__MAX_DIM_VARS];
    const char *runs[DV__MAX_RUNS];
    dv__run_rank run_ranks[DV__MAX_RUNS];
    dv__dtype_var dtypes[DV__MAX_DTYPE_VARS];
    dv__aside asides[DV__MAX_ASIDES];
    uint32_t ndims, nruns, ndtypes, nasides;
    dv__pattern *patterns, *outputs;
    dv__constraint *constraints;
    dv__definition *definitions;
    dv__unbacked *unbacked;
    dv__group *groups;
    uint32_t npatterns, noutputs, nconstraints, ndefinitions, nunbacked, ngroups;
    dv__named *parallel, *sums;
    uint32_t nparallel, nsums;
    dv__expr *workspace, *flops, *bytes;
    dv__takes *takes;   /* nargs + nreturns */
    int16_t *output_of; /* of return i: the only pattern, -1: none, -2: depends on the case */
    int16_t *case_only; /* optional tensors with patterns only in some cases: they must be None in the others */
    uint32_t ncase_only;
    dv__needs always; /* bound in every combination of cases, all optional arguments absent */
    uint32_t nplain;  /* how many patterns at the beginning are plain; 0 when there are cases */
    dv__program *program;
    bool matching_only; /* nothing is computed, defined or constrained: solving is matching */
    /* Splitting, when it does not depend on cases. */
    int8_t split_items;         /* leading items that are cut; 0: cannot be split; -1: depends on the case */
    const dv__item *split_lead; /* the items */
    uint8_t *split_slots;       /* per slot: is it cut */
};

/* contract_parse.c */
int dv__contract_grow(dv__contract *c, void *array, uint32_t n, size_t size); /* *(void **)array gets room for one more */
/* contract_row.c */
bool dv__at_takes(const dv__lexer *lx);                                         /* strided, align... */
int dv__takes_parse(dv__lexer *lx, const dv__schema *schema, dv__takes *takes); /* "align(x, 64)": from that word on */
/* contract_resolve.c */
int dv__contract_resolve(dv__contract *c);
/* contract_type.c */
int dv__find_dim(const dv__contract *c, const char *name); /* -1: there is none */
int dv__find_run(const dv__contract *c, const char *name);
int dv__find_dtype_var(const dv__contract *c, const char *name);
enum dv__ctype dv__type_of_argument(const dv__type *t); /* of optional ones, the type without None */
const char *dv__ctype_text(unsigned type);              /* "an integer" */
const char *dv__function_name(enum dv__function fn);
int dv__resolve(const dv__contract *c, dv__expr *e);
int dv__resolve_constraint(const dv__contract *c, dv__expr *e);
int dv__resolve_as(const dv__contract *c, dv__expr *e, enum dv__ctype wanted);
int dv__contract_resolve_expr(const dv__contract *c, const char *text, dv__expr *e, enum dv__ctype wanted, const char *what);
dv__needs dv__contract_needs(const dv__contract *c, const dv__expr *e);
const char *dv__contract_text_of(dv__contract *c, const dv__expr *e); /* printed, in the arena; NULL: out of memory */
bool dv__dtype_lookup(const char *name, uint32_t *key);
/* contract_prove.c */
int dv__contract_prove(dv__contract *c);
/* contract_output.c */
int dv__contract_prepare_split(dv__contract *c);
/* contract_build_results.c */
int dv__contract_build(dv__contract *c);
/* contract_program_json.c */
void dv__program_json(const dv__contract *c, dv__text *to);

/* ---- Evaluation: one call ---------------------------------------------------------------------------------------------- */

typedef struct dv__env {
    const dv__contract *c;
    const dv_value *args;
    dv__solution *s;
    const char *where; /* for messages: the text being evaluated, */
    const char *who;   /* and the argument in whose pattern it stands, or NULL */
    /* The element that x.values stands for, while a constraint goes through a tensor. */
    bool element_real;
    int64_t element_i;
    double element_f;
} dv__env;

typedef struct dv__scalar {
    bool real;
    int64_t i;
    double f;
} dv__scalar; /* i or f */
typedef struct dv__sizes {
    const int64_t *data;
    int32_t n;
    int64_t room[DV_MAX_NDIM];
} dv__sizes;

/* Text for a message, in place: failing never allocates. */
typedef struct dv__words {
    size_t n;
    char data[1600];
} dv__words;
DV__PRINTF(2, 3) void dv__say(dv__words *w, const char *format, ...);
void dv__say_sizes(dv__words *w, const int64_t *sizes, int32_t n); /* "[3, 4]" */
/* "my::f: argument 'w': 2*n: what", with v's where and who; returns status. */
DV__PRINTF(3, 4) int dv__wrong(const dv__env *v, int status, const char *format, ...);
void dv__say_variables(dv__words *w, const dv__env *v, dv__needs needs); /* "n = 3 ('n' is bound by 'x'), ..." */

/* contract_eval.c: by the tree's type; statuses with messages. */
int dv__eval_int(const dv__env *v, const dv__expr *e, int64_t *out);
int dv__eval_scalar(const dv__env *v, const dv__expr *e, dv__scalar *out); /* INT or NUMBER */
int dv__eval_real(const dv__env *v, const dv__expr *e, double *out);       /* in real arithmetic: cannot overflow */
int dv__eval_bool(const dv__env *v, const dv__expr *e, bool *out);
int dv__eval_sizes(const dv__env *v, const dv__expr *e, dv__sizes *out); /* a run */
const dv_tensor *dv__tensor_of(const dv__env *v, int32_t slot);          /* NULL: None; of a list: its first tensor */
bool dv__is_present(const dv_value *value);
/* contract_dtype.c */
int dv__eval_dtype(const dv__env *v, const dv__expr *e, dv_dtype *out);
/* contract_settle.c */
int dv__settle(dv__env *v, uint64_t aside);
int dv__check_constraints(dv__env *v, bool values);
/* The only unknown variable of a computed dim, if the dim can be solved for it; else -1. */
int dv__solvable_for(const dv__item *item, dv__needs bound);
/* contract_message.c: all return a status. element: index in a list, or -1. item NULL: the number of dims is wrong. */
const char *dv__binder_of(const dv__env *v, bool run, int ref); /* the argument that binds it in this call, or NULL */
int dv__wrong_shape(const dv__env *v, const dv__pattern *t, int element, const dv__item *item, const dv_tensor *x);
int dv__wrong_dtype(const dv__env *v, const dv__pattern *t, int element, const dv_tensor *x);
int dv__wrong_device(const dv__env *v, const dv__pattern *t, int element, dv_device expected, const dv_tensor *x);
int dv__wrong_presence(const dv__env *v, const dv__pattern *t, const char *expected, const char *found);
int dv__wrong_length(const dv__env *v, const dv__pattern *t, const dv__item *item, int64_t found);
int dv__wrong_case(const dv__env *v, const dv__pattern *other);
int dv__wrong_constraint(const dv__env *v, const dv__constraint *k);
int dv__no_case(const dv__env *v, const dv__group *g);
void dv__say_items(dv__words *w, const dv__env *v, const dv__dims *dims); /* "[4, 2*n]": sizes as far as they are known */

static inline dv__needs dv__needs_or(dv__needs a, dv__needs b)
{
    a.dims |= b.dims, a.runs |= b.runs, a.dtypes |= b.dtypes;
    return a;
}
static inline bool dv__needs_within(dv__needs a, dv__needs b)
{
    return !(a.dims & ~b.dims) && !(a.runs & ~b.runs) && !(a.dtypes & ~b.dtypes);
}
static inline dv__needs dv__solution_bound(const dv__solution *s)
{
    dv__needs n;
    n.dims = s->bound_dims, n.runs = s->bound_runs, n.dtypes = s->bound_dtypes;
    return n;
}
static inline bool dv__when_holds(dv__when w, const dv__solution *s) { return w.group < 0 || s->cases[w.group] == w.index; }

#endif
