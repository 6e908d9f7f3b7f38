/* The stored form of a contract, shared by the contract_*.c files only.
 *
 * parse (text to patterns and trees) -> resolve and type (names get meanings, trees get types) -> prove (every combination of
 * cases binds what it uses) -> build (the program) -> fuse (steps for calls). A call uses solve and result, which evaluate the
 * program's sections; message makes the text of a failed check. kernel: the dtypes, layouts and predicates of kernels.
 * print: text and JSON. All data is in the contract's arena and never changes after parsing. */
#ifndef DV_LANG_CONTRACT_INTERNAL_H
#define DV_LANG_CONTRACT_INTERNAL_H

#include "base/error.h"
#include "lang/contract.h"
#include "lang/contract_program.h"

/* X(id, name, result, operands): the functions of contracts. Each operand is a letter: i int, n number, b bool, d dtype, D
 * dtype or number argument, r variadic dims, t tensor, s tensor whose sizes or strides are read, S tensor, list of tensors or
 * variadic dims whose sizes are read, R as S but only the number of dims is read, L list, I int[] argument, x int or int[], e
 * size n of n{i}, o optional argument, * any. A '+' after the last letter: one or more such operands. `if` has separate rules.
 * Messages print what s, S and L read; the JSON's "asked" depends on s, S and R. */
/* clang-format off */
#define DV__CONTRACT_FUNCTIONS(X)                                                                                              \
    X(MIN, "min", INT, "ii+") X(MAX, "max", INT, "ii+") X(ABS, "abs", INT, "i") X(CEILDIV, "ceildiv", INT, "ii")               \
    X(IF, "if", NONE, "b**") X(LEN, "len", INT, "L") X(RANK, "rank", INT, "R") X(NUMEL, "numel", INT, "S")                     \
    X(SIZE, "size", INT, "Si") X(STRIDE, "stride", INT, "si") X(TOTAL, "total", INT, "e") X(AXIS, "axis", INT, "iR")           \
    X(PRESENT, "present", BOOL, "o") X(ABSENT, "absent", BOOL, "o") X(DTYPE, "dtype", DTYPE, "t")                              \
    X(ITEMSIZE, "itemsize", INT, "d") X(SHAPE, "shape", DIMS, "s") X(BROADCAST, "broadcast", DIMS, "r+")                       \
    X(REDUCED, "reduced", DIMS, "rxb") X(SWAP, "swap", DIMS, "rii") X(PERMUTE, "permute", DIMS, "rI")                          \
    X(PROMOTE, "promote", DTYPE, "D+") X(ACCUMULATE, "accumulate", DTYPE, "d") X(SORTED, "sorted", BOOL, "t")
/* clang-format on */

enum dv__contract_function {
#define DV__CONTRACT_FUNCTION_ID(id, name, result, operands) DV__FN_##id,
    DV__CONTRACT_FUNCTIONS(DV__CONTRACT_FUNCTION_ID)
#undef DV__CONTRACT_FUNCTION_ID
        DV__FN_COUNT
};

/* X(id, name, number of operands): the transforms of view(x, ...). PERMUTE takes an int[] argument, the others take
 * integers. */
#define DV__VIEW_TRANSFORMS(X) X(SWAP, "swap", 2) X(PERMUTE, "permute", 1) X(NARROW, "narrow", 3) X(SELECT, "select", 2)
#define DV__VIEW_ID(id, name, operands) DV__VIEW_##id,
enum dv__view_transform { DV__VIEW_TRANSFORMS(DV__VIEW_ID) DV__VIEW_COUNT };
#undef DV__VIEW_ID

enum { DV__MAX_DEFERRED = 64, DV__MAX_CASES = 16 };

/* The case that a pattern or fact belongs to: it holds only if case `index` of `group` is selected; group -1: in every case. */
typedef struct dv__case_ref { int8_t group, index; } dv__case_ref;

enum dv__dim_item_kind {
    DV__DIM_VAR,                 /* n, a size's name alone: binds the size or is compared */
    DV__DIM_LITERAL,             /* a literal, or an expression without variables and arguments */
    DV__DIM_COMPUTED,            /* an expression that is one dim */
    DV__DIM_PER_TENSOR,          /* n{i}: a size with a value for each tensor of a list; total(n) is the sum */
    DV__DIM_PER_TENSOR_VARIADIC, /* *s{i}: separate variadic dims of each tensor */
    DV__DIM_VARIADIC,            /* *s: binds variadic dims or is compared */
    DV__DIM_COMPUTED_VARIADIC,   /* several dims, computed: broadcast(...), *size */
};

typedef struct dv__dim_item {
    uint8_t kind;        /* enum dv__dim_item_kind */
    int8_t deferred_bit; /* COMPUTED, in an argument's pattern: index in dv__contract.deferred; else -1 */
    int16_t ref;         /* index of the size variable or variadic */
    int64_t value;       /* LITERAL: the size */
    dv__expr *e;
    const char *text; /* the item as printed, for messages */
    dv__var_set vars; /* the variables in e */
} dv__dim_item;

typedef struct dv__dims {
    dv__dim_item *items;
    uint32_t n;
    uint32_t nsingle_dims; /* the number of items that are one dim each; the others are variadic */
    bool is_any_shape;     /* [...]: any shape */
    bool is_written;       /* true if the contract's text has [dims]; a result like(x) may leave them out */
} dv__dims;

enum dv__dtype_spec_kind {
    DV__DTYPE_SPEC_ANY,
    DV__DTYPE_SPEC_VAR,
    DV__DTYPE_SPEC_LITERAL,
    DV__DTYPE_SPEC_SET,
    DV__DTYPE_SPEC_EXPR
};
typedef struct dv__dtype_spec {
    uint8_t kind;            /* enum dv__dtype_spec_kind */
    int16_t ref;             /* VAR: index of the dtype variable */
    uint32_t key;            /* LITERAL: the dtype's key */
    uint32_t n;              /* the number of alternatives; 1 unless SET, 0 for ANY */
    dv__expr **alternatives; /* the dtypes as written, f32|bf16 */
} dv__dtype_spec;

enum dv__pattern_kind { DV__PATTERN_TENSOR, DV__PATTERN_LIST, DV__PATTERN_LIST_LENGTH };
enum dv__presence { DV__PRESENCE_REQUIRED, DV__PRESENCE_OPTIONAL, DV__PRESENCE_PRESENT, DV__PRESENCE_ABSENT };
enum dv__device_spec { DV__DEVICE_SPEC_COMMON, DV__DEVICE_SPEC_CPU, DV__DEVICE_SPEC_ANY, DV__DEVICE_SPEC_ARGUMENT };

typedef struct dv__pattern {
    int32_t slot;
    dv__case_ref when;
    uint8_t kind, presence, device_spec;
    bool can_be_empty; /* true for Tensor?[] and xs{i}[...]: the list may have no tensor */
    bool is_simple; /* a tensor on the common device, with names, literals and at most one variadic as dims, and a dtype that is
                   not computed */
    int16_t device_slot; /* the slot of the Device argument, for DEVICE_SPEC_ARGUMENT */
    dv__dims dims;
    dv__dtype_spec dtype;
    const char *name, *at, *text; /* the argument's or return's name; position in the contract's text; the pattern as written */
    const char *index_name;       /* the name i of the index in xs{i}; NULL: not a list */
    dv__token name_token;         /* the name as a token of the contract's text; empty for an unnamed result */
    /* the following fields are for patterns of results only */
    int32_t like_slot, viewed_slot,
        aliased_slot; /* the arguments of like() and view(), and the argument that the return is; -1: none */
    dv__expr *view_transform, *offset;
    dv__dims strides; /* strides[...] of a view; if it has none and no transform, the view has the argument's strides */
    bool has_strides, is_unbacked;
    dv__expr
        *list_count; /* count of a returned list {i < count}; NULL: the list is as long as the arguments' lists with its index */
    dv__var_set list_count_vars;
} dv__pattern;

/* A condition among the facts, which every call checks. */
typedef struct dv__constraint {
    dv__case_ref when;
    dv__expr *e;
    dv__var_set vars;
    const char *text, *at;
    int32_t values_slot; /* slot of the tensor whose elements the condition tests; -1: none */
} dv__constraint;

/* A fact name = expression, which defines a size. */
typedef struct dv__definition {
    dv__case_ref when;
    int16_t var_index;   /* index of the size variable */
    int8_t deferred_bit; /* index in dv__contract.deferred */
    dv__expr *e;
    dv__var_set vars;
    const char *name, *text, *at;
} dv__definition;

/* A fact `u unbacked in min..max`: a size that only the kernel knows. */
typedef struct dv__unbacked_size {
    int16_t var_index; /* index of the size variable */
    dv__expr *min, *max;
    const char *name, *at;
} dv__unbacked_size;

typedef struct dv__case {
    dv__expr *e;
    const char *text, *at;
} dv__case; /* a case of a group; e NULL: `else` */
typedef struct dv__case_group {
    dv__case cases[DV__MAX_CASES];
    uint32_t n;
    dv__expr *switch_value; /* the subject of `when subject == A: ... / B: ...`; NULL: the cases have other conditions */
} dv__case_group;

typedef struct dv__variadic_rank {
    dv__expr *e;
    const char *text;
    dv__var_set vars;
} dv__variadic_rank; /* e of a fact rank(*a) == e; e NULL: there is no such fact */
typedef struct dv__dtype_var {
    const char *name, *at;
    const uint32_t *allowed; /* keys of the dtypes that the variable may be; NULL: every dtype */
    uint32_t nallowed;
} dv__dtype_var;
typedef struct dv__dim_var {
    const char *name, *at;
    const char *index_name;    /* the name i of the index in n{i}; NULL: one size for all tensors */
    bool is_unbacked, defined; /* true if a fact `unbacked`, or a definition, gives the size */
} dv__dim_var;
typedef struct dv__variadic_var {
    const char *name, *index_name;
} dv__variadic_var; /* a variadic *s or *s{i}; index_name: i, or NULL for *s */
/* An item whose check may be deferred: dim `item` of the argument pattern with index `pattern`, or, if that is -1, the
 * definition with index `item`. */
typedef struct dv__deferred_item { int16_t pattern, item; } dv__deferred_item;
/* One name in a fact parallel(...) or sum(...). */
typedef struct dv__dim_fact {
    dv__case_ref when;
    const char *name, *at;
    bool is_variadic;
    int16_t ref; /* index of the size variable or variadic */
} dv__dim_fact;

struct dv__predicate {
    dv__program program;
    dv__section section;
    dv__var_set vars;
};

struct dv__contract {
    dv__arena arena;
    const char *name, *text;
    const dv__schema *schema;
    dv__dim_var dims[DV__MAX_DIM_VARS];
    dv__variadic_var variadics[DV__MAX_VARIADIC_VARS];
    dv__variadic_rank variadic_ranks[DV__MAX_VARIADIC_VARS];
    dv__dtype_var dtypes[DV__MAX_DTYPE_VARS];
    dv__deferred_item deferred[DV__MAX_DEFERRED];
    uint32_t ndims, nvariadics, ndtypes, ndeferred;
    dv__pattern *patterns, *result_patterns;
    dv__constraint *constraints;
    dv__definition *definitions;
    dv__unbacked_size *unbacked;
    dv__case_group *groups;
    uint32_t npatterns, nresult_patterns, nconstraints, ndefinitions, nunbacked, ngroups;
    dv__dim_fact *parallel_dims, *summed_dims;
    uint32_t nparallel_dims, nsummed_dims;
    dv__expr *workspace, *flops, *bytes;
    dv__expr *rtol, *atol, *rounded;       /* the literals of the facts rtol, atol and rounded; NULL: not declared */
    dv__accepted_layout *accepted_layouts; /* by slot: the layouts that kernels accept */
    bool *is_argument_unused;              /* by argument: declared unused, so that no result depends on its value or elements */
    int16_t *result_pattern_index;         /* by return: the index of its only pattern; -1: none; -2: the case decides */
    int16_t *case_only_slots; /* slots of optional tensors with patterns only in some cases; in other cases they must be None */
    uint32_t ncase_only_slots;
    uint32_t nsimple_patterns; /* the number of simple patterns at the beginning; 0 if there are cases */
    dv__program *program;
    bool
        is_match_only; /* true without computed dims, definitions, unbacked sizes and conditions: solving only matches patterns */
    /* The dims along which calls are split, if they do not depend on cases. */
    int8_t nsplit_dims; /* number of leading items of dims along which calls may be split; 0: none; -1: the case decides */
    const dv__dim_item *split_dims; /* the leading items along which calls may be split, in the first written tensor's pattern */
    uint8_t *is_slot_split;         /* by slot: true if each slice gets a part of the slot's tensor */
};

/* contract_parse.c */
int dv__arena_reserve_next(dv__arena *arena, void *array, uint32_t n, size_t element_size);
int dv__contract_reserve_next(dv__contract *c, void *array, uint32_t n,
    size_t element_size); /* grows *(void **)array of n elements so that one more fits; DV_OK or DV_ENOMEM */
/* contract_kernel.c */
bool dv__is_at_accepted_layout(const dv__lexer *lx); /* true at the words strided, align... */
int dv__accepted_layout_parse(
    dv__lexer *lx, const dv__schema *schema, dv__accepted_layout *layouts); /* parses "align(x, 64)" into layouts[slot of x] */
/* contract_resolve.c */
int dv__contract_resolve(dv__contract *c);
/* contract_resolve_expr.c */
int dv__contract_find_dim_index(const dv__contract *c, const char *name); /* returns an index; -1: unknown name, also below */
int dv__contract_find_variadic_index(const dv__contract *c, const char *name);
int dv__contract_find_dtype_var_index(const dv__contract *c, const char *name);
enum dv__type_kind dv__type_get_contract_kind(
    const dv__type *t); /* the kind that an argument of this type has in contracts; of an optional type, the kind without None */
/* True if a contract compares values of this kind, and if() selects between them. */
static inline bool dv__type_kind_is_scalar(unsigned kind)
{
    return kind == DV__TYPE_INT || kind == DV__TYPE_NUMBER || kind == DV__TYPE_BOOL || kind == DV__TYPE_STRING ||
        kind == DV__TYPE_DTYPE;
}
const char *dv__contract_get_function_name(enum dv__contract_function fn);
char dv__expr_get_operand_letter(
    const dv__expr *e, uint32_t operand); /* returns the letter in DV__CONTRACT_FUNCTIONS of a call's operand; 0: e is no call */
int dv__resolve_expr(const dv__contract *c, dv__expr *e,
    const dv__pattern *returned_list); /* returned_list: the returned list in whose pattern e stands; NULL: none */
int dv__resolve_constraint(const dv__contract *c, dv__expr *e);
int dv__resolve_expr_as(const dv__contract *c, dv__expr *e, enum dv__type_kind wanted, const dv__pattern *returned_list);
int dv__resolve_expr_in_text_as(
    const dv__contract *c, const char *text, dv__expr *e, enum dv__type_kind wanted, const char *purpose);
dv__var_set dv__expr_collect_vars(const dv__contract *c, const dv__expr *e);
bool dv__expr_try_fold_constant(
    const dv__expr *e, int64_t *out); /* false unless e has only integers and + - *, and the result fits 64 bits */
const char *dv__contract_copy_expr_text(
    dv__contract *c, const dv__expr *e); /* returns the printed expression in the arena; NULL: out of memory */
/* contract_prove.c */
int dv__contract_analyze(dv__contract *c); /* checks what needs no program, and fills tables for calls */
/* contract_result.c */
int dv__contract_analyze_split(dv__contract *c);
/* contract_build_results.c */
int dv__contract_build(dv__contract *c);
int dv__predicate_build(const dv__contract *c, dv__predicate *p, const dv__expr *e, dv__arena *arena);
/* contract_program_json.c */
void dv__program_json(const dv__contract *c, dv__strbuf *to);

/* ---- Evaluation: one call ------------------------------------------------------------------------------------------------ */

/* State of the evaluation of a program for one call. */
typedef struct dv__evaluator {
    const dv__contract *c;
    const dv__program *program; /* the contract's program, or that of a kernel's predicate */
    const dv_value *args;
    dv__solution *s;
    bool check_values;           /* check mode: conditions on elements of tensors are tested too */
    bool is_unfused;             /* the unfused steps are evaluated, to find the message of a failure */
    uint32_t section_begin_step; /* index of the running section's first step: from here a message evaluates the steps it needs */
    int status;                  /* DV_ELIMIT if a step's shape does not fit into the solution's memory, else DV_OK */
    const bool
        *is_register_known;       /* by register: true if messages print its value, false for "?"; NULL: all values are printed */
    const int64_t *element_index; /* in a block EACH_VALUE: the current element's index in each dim of its tensor */
    int32_t element_ndim;         /* number of entries of element_index */
} dv__evaluator;

/* Text of a message in a fixed buffer, so that a failure never allocates. */
typedef struct dv__fixed_text {
    size_t n;
    char data[1600];
} dv__fixed_text;
DV__PRINTF(2, 3) void dv__fixed_text_add(dv__fixed_text *w, const char *format, ...);
void dv__fixed_text_add_sizes(dv__fixed_text *w, const int64_t *sizes, int32_t n); /* "[3, 4]" */

/* contract_eval.c */
int dv__eval_steps(dv__evaluator *r, uint32_t begin, uint32_t end);
int dv__eval_section(dv__evaluator *r, const dv__section *section);
void dv__solution_set_bound(
    const dv__evaluator *r, dv__operand reg); /* marks a variable as bound; does nothing for another register */
/* Evaluates the fused form of the steps from begin to end. Returns false if some check fails: the unfused steps must then be
 * evaluated, for the message. */
bool dv__try_eval_fused(dv__evaluator *r, uint32_t begin, uint32_t end);
/* Evaluates one step that is no block. Returns false if the step fails, as defined in ops.def. r->status: an error that the
 * step's own message does not describe, such as too many dims. */
bool dv__try_eval_step(dv__evaluator *r, const dv__step *s);
bool dv__eval_comparison(const dv__step *s, const dv__reg *a, const dv__reg *b); /* returns the result of a comparison step */
bool dv__dims_are_equal(const dv__reg *a, const dv__reg *b);
void dv__dims_slice(const dv__reg *from, int64_t start, int64_t n, dv__reg *out);
static inline const dv__reg *dv__eval_get_operand(const dv__evaluator *r, dv__operand operand)
{
    return operand >= 0 ? &r->s->registers[operand] : &r->program->constants[-1 - operand];
}
static inline int64_t dv__dims_get_size(
    const dv__reg *dims, int64_t index) /* a negative index counts from the end; returns 0 for a dim that does not exist */
{
    const int64_t from_start = index < 0 ? index + dims->n : index;
    return from_start >= 0 && from_start < dims->n ? dims->sizes[from_start] : 0;
}
static inline int64_t dv__dims_first_negative(const dv__reg *dims) /* returns the first negative size; 0: there is none */
{
    for (int32_t i = 0; i < dims->n; i++)
        if (dims->sizes[i] < 0)
            return dims->sizes[i];
    return 0;
}
/* True for Tensor, Tensor? and Tensor[]. */
static inline bool dv__type_is_tensor_or_list(const dv__type *t)
{
    return t->kind == DV__TYPE_TENSOR ||
        ((t->kind == DV__TYPE_LIST || t->kind == DV__TYPE_OPTIONAL) && t->elems[0]->kind == DV__TYPE_TENSOR);
}
/* True for n{i} and *s{i}, which have a value for each tensor of a list. */
static inline bool dv__dim_item_is_per_tensor(const dv__dim_item *item)
{
    return item->kind == DV__DIM_PER_TENSOR || item->kind == DV__DIM_PER_TENSOR_VARIADIC;
}
/* True if two devices are the same. All CPUs are one device, whatever their numbers. */
static inline bool dv__devices_are_same(dv_device a, dv_device b)
{
    return a.type == b.type && (a.id == b.id || b.type == DV_CPU);
}
/* contract_fuse.c */
int dv__program_fuse(const dv__contract *c, dv__program *p, dv__arena *arena);
int64_t *dv__solution_reserve_sizes(
    const dv__evaluator *r, int32_t n); /* returns n sizes in the solution's pool; NULL: the pool is full */
bool dv__value_is_present(const dv_value *value);
const dv_tensor *dv__value_find_first_tensor(
    const dv_value *value); /* returns the tensor, or a list's first one; NULL: None, or an empty list */
/* Broadcasts n shapes into sizes (DV_MAX_NDIM entries). Returns false if they do not broadcast. conflict: two sizes and the
 * dim, counted from the end from 1. */
bool dv__dims_try_broadcast(const dv__reg *const *shapes, uint32_t n, dv__reg *out, int64_t *sizes, int64_t conflict[3]);
bool dv__axis_is_valid(int64_t dim, int64_t rank);
int64_t dv__axis_normalize(int64_t dim, int64_t rank); /* returns the dim counted from 0; 0 for a number that is no dim */
/* contract_message.c */
int dv__step_error_raise(const dv__evaluator *r, const dv__step_error *error);
/* contract_dtype.c */
bool dv__try_find_dtype_key(const char *name, uint32_t *key);
bool dv__name_looks_like_dtype(const char *name); /* true for f31 and float32: too like a dtype for a variable's name */
const char *dv__dtype_print_hint(const char *name, char *buffer,
    size_t size); /* returns "; did you mean 'f32'?", or "" for a dtype's name and for a name like no dtype's */
/* Priority of an operand of promote(): a tensor with dims comes before a 0-d tensor, and a 0-d tensor before a number. ABSENT
 * operands are ignored. */
enum dv__promote_priority { DV__PRIORITY_DIMENSIONED, DV__PRIORITY_ZERO_DIM, DV__PRIORITY_NUMBER, DV__PRIORITY_ABSENT };
/* Returns the dtype's key by torch.result_type's rules; 0: the operands do not promote. *nvisited: the number of operands up to
 * the one that failed. */
uint32_t dv__dtype_promoted_key(const uint32_t *keys, const int64_t *priorities, uint32_t n, uint32_t *nvisited);
uint32_t dv__dtype_key_of_sum(uint32_t key);

/* Return the register of a variable, by its index, and that of the inputs' common device. */
static inline dv__operand dv__variadic_register(const dv__contract *c, int variadic)
{
    return (dv__operand)(c->ndims + (uint32_t)variadic);
}
static inline dv__operand dv__dtype_register(const dv__contract *c, int dtype_var)
{
    return (dv__operand)(c->ndims + c->nvariadics + (uint32_t)dtype_var);
}
static inline dv__operand dv__device_register(const dv__contract *c)
{
    return (dv__operand)(c->ndims + c->nvariadics + c->ndtypes);
}
static inline enum dv__type_kind dv__eval_get_operand_type(const dv__evaluator *r, dv__operand operand)
{
    return (enum dv__type_kind)(operand < 0 ? r->program->constant_types[-1 - operand] : r->program->types[operand]);
}

static inline dv__var_set dv__var_set_union(dv__var_set a, dv__var_set b)
{
    a.dims |= b.dims, a.variadics |= b.variadics, a.dtypes |= b.dtypes;
    return a;
}
static inline bool dv__var_set_is_subset(dv__var_set a, dv__var_set b)
{
    return !(a.dims & ~b.dims) && !(a.variadics & ~b.variadics) && !(a.dtypes & ~b.dtypes);
}
static inline dv__var_set dv__solution_get_bound_vars(const dv__solution *s)
{
    dv__var_set n;
    n.dims = s->bound_dims, n.variadics = s->bound_variadics, n.dtypes = s->bound_dtypes;
    return n;
}
/* True if both cases may be selected in one call: they are of different groups, or the same case. */
static inline bool dv__case_refs_can_both_hold(dv__case_ref a, dv__case_ref b)
{
    return a.group < 0 || a.group != b.group || a.index == b.index;
}
static inline bool dv__case_ref_is_selected(dv__case_ref when, const dv__solution *s)
{
    return when.group < 0 || s->selected_cases[when.group] == when.index;
}

#endif
