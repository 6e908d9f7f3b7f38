/* How a contract is stored: shared by the contract_*.c files only.
 *
 * parse (text to patterns and trees) -> resolve and type (names get meanings, trees get types) -> prove (every combination of
 * cases binds what it uses) -> build (the program) -> quick (its steps as calls run them). A call uses solve and output, which
 * run the program's sections; message makes the text of a failed check. row: the dtypes, layouts and predicates of kernel rows.
 * print: text and JSON. All data is in the contract's arena and never changes after parsing. */
#ifndef DV_LANG_CONTRACT_INTERNAL_H
#define DV_LANG_CONTRACT_INTERNAL_H

#include "base/error.h"
#include "lang/contract.h"
#include "lang/contract_program.h"

/* dv__expr.type */
enum dv__ctype {
    DV__CTYPE_NONE,
    DV__CTYPE_INT,
    DV__CTYPE_NUMBER, /* a float or a Scalar: only for comparisons, flops and bytes */
    DV__CTYPE_BOOL,
    DV__CTYPE_STRING,
    DV__CTYPE_DTYPE,
    DV__CTYPE_RUN,  /* several dims */
    DV__CTYPE_INTS, /* an int[] argument */
    DV__CTYPE_LIST, /* another list that holds no tensors: only its length is used */
    DV__CTYPE_TENSOR,
    DV__CTYPE_TENSORS,
    DV__CTYPE_OTHER, /* an argument that may only be used in present() and absent() */
};

/* X(id, name, result, operands). Operands, a letter each: i int, n number, b bool, d dtype, D dtype or number argument, r run,
 * t tensor, R tensor, list of tensors or run, L anything with a length, I int[] argument, x int or int[], e element variable,
 * o optional argument, * any. '+' after the last one: one or more of it. `if` has separate rules. */
/* clang-format off */
#define DV__FUNCTIONS(X)                                                                                                      \
    X(MIN, "min", INT, "ii+") X(MAX, "max", INT, "ii+") X(ABS, "abs", INT, "i") X(CEILDIV, "ceildiv", INT, "ii")               \
    X(IF, "if", NONE, "b**") X(LEN, "len", INT, "L") X(RANK, "rank", INT, "R") X(NUMEL, "numel", INT, "R")                     \
    X(SIZE, "size", INT, "Ri") X(STRIDE, "stride", INT, "ti") X(TOTAL, "total", INT, "e") X(AXIS, "axis", INT, "iR")           \
    X(PRESENT, "present", BOOL, "o") X(ABSENT, "absent", BOOL, "o") X(DTYPE, "dtype", DTYPE, "t")                              \
    X(ITEMSIZE, "itemsize", INT, "d") X(SHAPE, "shape", RUN, "t") X(BROADCAST, "broadcast", RUN, "r+")                         \
    X(REDUCED, "reduced", RUN, "rxb") X(SWAP, "swap", RUN, "rii") X(PERMUTE, "permute", RUN, "rI")                             \
    X(PROMOTE, "promote", DTYPE, "D+") X(ACCUMULATE, "accumulate", DTYPE, "d") X(SORTED, "sorted", BOOL, "t")
/* clang-format on */

enum dv__function {
#define DV__FUNCTION(id, name, result, operands) DV__FN_##id,
    DV__FUNCTIONS(DV__FUNCTION)
#undef DV__FUNCTION
        DV__FN_COUNT
};

enum { DV__MAX_ASIDES = 64, DV__MAX_CASES = 16 };

/* Where an item applies: always (group -1), or when case `index` of `group` was taken. */
typedef struct dv__when { int8_t group, index; } dv__when;

enum dv__item_kind {
    DV__ITEM_VAR,         /* a variable that stands alone: binds or checks */
    DV__ITEM_INT,         /* a literal, or an expression without variables and arguments */
    DV__ITEM_EXPR,        /* one dim, computed */
    DV__ITEM_ELEMENT,     /* n{i}: a size of each tensor's own; sums up over the list */
    DV__ITEM_ELEMENT_RUN, /* *s{i}: a run of each tensor's own */
    DV__ITEM_RUN,         /* *s: binds or checks */
    DV__ITEM_RUNS,        /* several dims, computed: broadcast(...), *size */
};

typedef struct dv__item {
    uint8_t kind;
    int8_t aside;  /* EXPR of an input: its bit among the items that may be put aside; else -1 */
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
    bool may_be_empty; /* a Tensor?[], or xs{i}[...]: it may hold no tensor */
    bool plain; /* plain: a tensor on the common device, with names, literals and at most one run as dims, and a dtype that is not
                   computed */
    int16_t on_slot; /* ON_ARGUMENT: the Device argument */
    dv__dims dims;
    dv__dtype_spec dtype;
    const char *name, *at, *text; /* argument's name; place; "x[m k]:T" */
    const char *index;            /* of a list: its i; NULL: not a list */
    dv__token word;               /* its name in the text, empty for an unnamed output */
    /* of outputs */
    int32_t like, view_of, is_argument; /* slots, or -1 */
    dv__expr *transform, *offset;
    dv__dims strides; /* n 0 and transform NULL: the argument's strides */
    bool has_strides, unbacked;
    dv__expr *count; /* of a list {i < count}; NULL: as many as the arguments with its index have */
    dv__needs count_needs;
} dv__pattern;

typedef struct dv__constraint {
    dv__when when;
    dv__expr *e;
    dv__needs needs;
    const char *text, *at;
    int32_t values; /* slot of the tensor whose elements it constrains, or -1 */
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
    const char *index; /* of n{i}: i; NULL: one size for all */
    bool unbacked, defined;
} dv__dim_var;
typedef struct dv__run_var { const char *name, *index; } dv__run_var; /* index: of *s{i} */
/* The item that a bit stands for: item `item` of pattern `pattern`, or definition `item` when pattern is -1. */
typedef struct dv__aside { int16_t pattern, item; } dv__aside;
typedef struct dv__named {
    dv__when when;
    const char *name, *at;
    bool run;
    int16_t ref;
} dv__named;

struct dv__predicate {
    dv__program program;
    dv__section section;
    dv__needs needs;
};

struct dv__contract {
    dv__arena arena;
    const char *name, *text;
    const dv__schema *schema;
    dv__dim_var dims[DV__MAX_DIM_VARS];
    dv__run_var runs[DV__MAX_RUNS];
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
    dv__expr *rtol, *atol, *rounded; /* literals */
    dv__takes *takes;                /* nargs + nreturns */
    bool *unused;                    /* by argument: no result depends on it (for a tensor: on its elements) */
    int16_t *output_of;              /* for return i its only pattern; -1: none; -2: depends on the case */
    int16_t *case_only;              /* optional tensors with patterns only in some cases: they must be None in the others */
    uint32_t ncase_only;
    uint32_t nplain; /* the number of plain patterns at the beginning; 0 when there are cases */
    dv__program *program;
    bool matching_only; /* no computed dims, definitions or constraints: solving is only matching */
    /* How calls are split, if that does not depend on cases. */
    int8_t split_items;         /* leading items that are cut; 0: cannot be split; -1: depends on the case */
    const dv__item *split_lead; /* the items */
    uint8_t *split_slots;       /* per slot: is it cut */
};

/* contract_parse.c */
int dv__arena_grow(dv__arena *arena, void *array, uint32_t n, size_t size);
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
int dv__resolve(
    const dv__contract *c, dv__expr *e, const dv__pattern *list); /* list: the returned list whose pattern has it; or NULL */
int dv__resolve_constraint(const dv__contract *c, dv__expr *e);
int dv__resolve_as(const dv__contract *c, dv__expr *e, enum dv__ctype wanted, const dv__pattern *list);
int dv__contract_resolve_expr(const dv__contract *c, const char *text, dv__expr *e, enum dv__ctype wanted, const char *what);
dv__needs dv__contract_needs(const dv__contract *c, const dv__expr *e);
bool dv__constant(const dv__expr *e, int64_t *out);                   /* made of integers alone, with + - *, and fits 64 bits */
const char *dv__contract_text_of(dv__contract *c, const dv__expr *e); /* printed, in the arena; NULL: out of memory */
/* contract_prove.c */
int dv__contract_prepare(dv__contract *c); /* what can be said before the program is built */
/* contract_output.c */
int dv__contract_prepare_split(dv__contract *c);
/* contract_build_results.c */
int dv__contract_build(dv__contract *c);
int dv__predicate_build(const dv__contract *c, dv__predicate *p, const dv__expr *e, dv__arena *arena);
/* contract_program_json.c */
void dv__program_json(const dv__contract *c, dv__text *to);

/* ---- Evaluation: one call ---------------------------------------------------------------------------------------------- */

/* A program under way. */
typedef struct dv__run {
    const dv__contract *c;
    const dv__program *program; /* the contract's, or a predicate's */
    const dv_value *args;
    dv__solution *s;
    bool values;       /* look into tensors, too */
    bool plainly;      /* step by step, for the message */
    uint32_t begin;    /* of the running section: where the values that only messages read begin */
    int status;        /* of an operation that is wrong by itself */
    const bool *shown; /* which registers messages show; "?" for the others. NULL: all */
    const int64_t *position;
    int32_t position_rank; /* where the element of EACH_VALUE is */
} dv__run;

/* Text for a message, in place: failing never allocates. */
typedef struct dv__words {
    size_t n;
    char data[1600];
} dv__words;
DV__PRINTF(2, 3) void dv__say(dv__words *w, const char *format, ...);
void dv__say_sizes(dv__words *w, const int64_t *sizes, int32_t n); /* "[3, 4]" */

/* contract_run.c */
int dv__run_steps(dv__run *r, uint32_t begin, uint32_t end);
int dv__run_section(dv__run *r, const dv__section *section);
int dv__run_block(dv__run *r, const dv__step *s);
void dv__note_bound(const dv__run *r, dv__operand to); /* a variable, or any other register */
bool dv__operate(dv__run *r, const dv__step *s);
bool dv__compare(const dv__step *s, const dv__reg *a, const dv__reg *b); /* of EQ to GE */
bool dv__make_dims(dv__run *r, const dv__step *s);                       /* those of them that make new dims */
bool dv__same_dims(const dv__reg *a, const dv__reg *b);
void dv__slice(const dv__reg *from, int64_t start, int64_t n, dv__reg *out);
static inline const dv__reg *dv__read(const dv__run *r, dv__operand x)
{
    return x >= 0 ? &r->s->registers[x] : &r->program->constants[-1 - x];
}
static inline int64_t dv__size_at(
    const dv__reg *dims, int64_t i) /* counted from the end if i is negative; 0 if it does not exist */
{
    const int64_t at = i < 0 ? i + dims->n : i;
    return at >= 0 && at < dims->n ? dims->sizes[at] : 0;
}
static inline int64_t dv__negative(const dv__reg *dims) /* the first size below 0, or 0 */
{
    for (int32_t i = 0; i < dims->n; i++)
        if (dims->sizes[i] < 0)
            return dims->sizes[i];
    return 0;
}
static inline bool dv__is_tensors(const dv__type *t) /* Tensor, Tensor?, Tensor[] */
{
    return t->kind == DV__TYPE_TENSOR ||
        ((t->kind == DV__TYPE_LIST || t->kind == DV__TYPE_OPTIONAL) && t->elems[0]->kind == DV__TYPE_TENSOR);
}
static inline bool dv__of_each(const dv__item *item) /* n{i}, *s{i} */
{
    return item->kind == DV__ITEM_ELEMENT || item->kind == DV__ITEM_ELEMENT_RUN;
}
static inline bool dv__same_device(dv_device a, dv_device b) /* CPUs are all one */
{
    return a.type == b.type && (a.id == b.id || b.type == DV_CPU);
}
/* contract_quick.c, contract_quick_run.c */
int dv__quicken(const dv__contract *c, dv__program *p, dv__arena *arena);
bool dv__run_quick(dv__run *r, uint32_t begin, uint32_t end); /* false: the plain steps tell */
int64_t *dv__reserve(const dv__run *r, int32_t n);            /* in the solution's pool; NULL: an error */
bool dv__is_present(const dv_value *value);
const dv_tensor *dv__first_tensor(const dv_value *value); /* NULL: None; of a list: its first tensor */
/* to: room for DV_MAX_NDIM. conflict: two sizes and the dim from the end, where the shapes do not broadcast. */
bool dv__broadcast(const dv__reg *const *shapes, uint32_t n, dv__reg *out, int64_t *to, int64_t conflict[3]);
bool dv__is_axis(int64_t dim, int64_t rank);
int64_t dv__axis_from(int64_t dim, int64_t rank); /* counted from 0; 0 where it is not one */
/* contract_message.c */
int dv__fault_raise(const dv__run *r, const dv__fault *fault);
/* contract_dtype.c */
bool dv__dtype_lookup(const char *name, uint32_t *key);
bool dv__looks_like_dtype(const char *name); /* f31, float32: too much for the name of a variable */
const char *dv__dtype_hint(
    const char *name, char *buffer, size_t size); /* "; did you mean 'f32'?"; "": it is one, or unlike one */
/* torch.result_type; 0: the operands do not promote. tried: how many operands were visited. */
uint32_t dv__promote(const uint32_t *keys, const int64_t *sorts, uint32_t n, uint32_t *tried);
uint32_t dv__accumulate(uint32_t key);

/* Registers of the contract's variables. */
static inline dv__operand dv__run_register(const dv__contract *c, int ref) { return (dv__operand)(c->ndims + (uint32_t)ref); }
static inline dv__operand dv__dtype_register(const dv__contract *c, int ref)
{
    return (dv__operand)(c->ndims + c->nruns + (uint32_t)ref);
}
static inline dv__operand dv__device_register(const dv__contract *c) { return (dv__operand)(c->ndims + c->nruns + c->ndtypes); }
static inline enum dv__rtype dv__operand_type(const dv__run *r, dv__operand x)
{
    return (enum dv__rtype)(x < 0 ? r->program->constant_types[-1 - x] : r->program->types[x]);
}

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
/* Can both hold in one call? */
static inline bool dv__when_meet(dv__when a, dv__when b) { return a.group < 0 || a.group != b.group || a.index == b.index; }
static inline bool dv__when_holds(dv__when w, const dv__solution *s) { return w.group < 0 || s->cases[w.group] == w.index; }

#endif
