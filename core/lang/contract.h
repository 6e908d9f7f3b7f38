/* Contracts: the inputs and outputs of an operator (docs/contract.md describes the language).
 *
 * Parsed, resolved against the schema and proved once, when a library is loaded; then evaluated in every call, without
 * allocating. A slot is an argument's index in the schema, or nargs + a return's index. */
#ifndef DV_LANG_CONTRACT_H
#define DV_LANG_CONTRACT_H

#include "base/text.h"
#include "lang/expr.h"
#include "lang/schema.h"

typedef struct dv__contract dv__contract;

enum {
    DV__MAX_DIM_VARS = 64,
    DV__MAX_RUNS = 16,
    DV__MAX_DTYPE_VARS = 16,
    DV__MAX_CASE_GROUPS = 8,
    DV__SHAPE_POOL = 512,
    DV__MAX_REGISTERS = 1024
};

/* The value of a register of a contract's program (contract_program.h). */
typedef struct dv__reg {
    union {
        int64_t i;            /* int; bool */
        double f;             /* real; a number that is real */
        const int64_t *sizes; /* n of them */
        const char *s;        /* n bytes; NULL: None */
        const dv_tensor *tensor;
        dv_dtype dtype;
        dv_device device;
    };
    int32_t n;
    uint32_t real; /* of a number */
} dv__reg;

/* The solution for one call's arguments. It is on the caller's stack, uninitialised; valid as long as the arguments are. */
typedef struct dv__solution {
    int32_t cases[DV__MAX_CASE_GROUPS]; /* the case taken in each group */
    dv_device device;                   /* of the tensors that are not @cpu; {DV_CPU, 0} without such tensors */
    uint64_t bound_dims;                /* which of the variables are bound: bits by index */
    uint32_t bound_runs, bound_dtypes;
    int32_t pool_used;
    dv__reg registers[DV__MAX_REGISTERS + 1]; /* the first ones are the variables; the last one gets values that nothing reads */
    int64_t pool[DV__SHAPE_POOL + DV_MAX_NDIM]; /* computed runs of dims, shapes and strides of outputs; and room for one more */
} dv__solution;

typedef struct dv__output {
    dv_dtype dtype;
    dv_device device;
    int32_t ndim;           /* -1: absent in this case */
    bool unbacked;          /* sizes are upper bounds: the kernel calls dv_set_output() */
    int32_t view_of;        /* slot that it is a view of, or -1 */
    int64_t offset;         /* of a view, in elements */
    const int64_t *shape;   /* into the solution's pool, or borrowed from an argument */
    const int64_t *strides; /* never NULL; contiguous unless the contract says like() or view() */
} dv__output;

/* schema is borrowed and must outlive the contract; name ("ns::op") is copied, for messages. DV_ESYNTAX, DV_ECONTRACT. */
int dv__contract_parse(const char *text, const char *name, const dv__schema *schema, dv__contract **out);
void dv__contract_free(dv__contract *c);

bool dv__contract_needs_shape(const dv__contract *c); /* some output is written [...]: the operator needs a C shape function */
bool dv__contract_is_unbacked(const dv__contract *c); /* some size is known to the kernel only */
/* Check the arguments (all nargs of them, defaults filled in) and bind everything. Messages begin with the operator's name and
 * name the argument, what was expected and what was found: DV_ESHAPE, DV_EDTYPE, DV_EDEVICE, DV_EINVAL. check_values: also test
 * values inside CPU tensors (`ids.values < e`). */
int dv__contract_solve(const dv__contract *c, const dv_value *args, dv__solution *s, bool check_values);
/* The expected shape, dtype and device of return i. DV_ENOTSUP when the contract leaves it to a C shape function ([...]). */
int dv__contract_output(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, dv__output *out);
/* Of a return that is a list: how many tensors (-1: it is not a list, or absent in this case), and what the one at `place` must
 * be. Shapes and strides lie in the solution's pool: whoever asks about many puts pool_used back in between. */
int dv__contract_count(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, int64_t *count);
int64_t dv__contract_length(
    const dv__contract *c, size_t i); /* how many, if every call gives as many; -1: not a list, or not known */
int dv__contract_element(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, int64_t place, dv__output *out);
/* Does a tensor given for return i match at first sight? False: dv__contract_output() decides. */
bool dv__contract_fits(const dv__contract *c, dv__solution *s, size_t i, const dv_tensor *given);
bool dv__contract_gives_view(const dv__contract *c, const dv__solution *s, size_t i); /* return i is a view, or a list of views */
/* A given tensor for return i (of a list: for its element `place`, else -1) must match (shape, dtype, device); reports like
 * solve. */
int dv__contract_check_given(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, int64_t place, const dv_tensor *given);
int dv__contract_workspace(
    const dv__contract *c, const dv_value *args, dv__solution *s, int64_t *bytes);                   /* 0 when none is declared */
int dv__contract_flops(const dv__contract *c, const dv_value *args, dv__solution *s, double *flops); /* -1 when not declared */
int dv__contract_bytes(
    const dv__contract *c, const dv_value *args, dv__solution *s, double *bytes); /* default: all tensors once */

/* dv_partial_...(): all nargs arguments, defaults filled in, what is unknown as dovetail.h says. */
typedef struct dv__partial dv__partial;
int dv__partial_new(const dv__contract *c, const dv_value *args, dv__partial **out);
int dv__partial_get(const dv__partial *p, enum dv_partial_of of, size_t index, size_t element, dv_known *out);
int dv__partial_set(dv__partial *p, enum dv_partial_of of, size_t index, size_t element, const dv_known *known);
void dv__partial_free(dv__partial *p);

/* How many leading dims of the tensor in this slot are the parallel ones that a row may be split along; 0: the tensor is passed
 * whole to every slice. All slots that are cut have the same leading sizes. False: this operator cannot be split. */
bool dv__contract_split(const dv__contract *c, const dv__solution *s, size_t slot, int32_t *leading);
bool dv__contract_may_split(const dv__contract *c); /* in some case */
/* True when the leading dims come from one run (*s): they may be flattened into one dim, since no kernel can know their number.
 */
bool dv__contract_split_flattens(const dv__contract *c, const dv__solution *s);

/* How a row takes the tensor in a slot. */
enum dv__takes_kind { DV__TAKES_CONTIGUOUS, DV__TAKES_LAST_CONTIGUOUS, DV__TAKES_STRIDED };
typedef struct dv__takes {
    uint8_t kind;
    uint8_t align_log2;
} dv__takes;
/* One entry for each slot (nargs + nreturns) from "strided(x), align(y, 64)"; text NULL: the contract's own facts. */
int dv__contract_takes(const dv__contract *c, const char *text, dv__takes *out);
/* For operators without a contract: only the schema is known. */
int dv__schema_takes(const char *text, const dv__schema *schema, dv__takes *out);

/* A row's predicate, in the contract's language, over the contract's variables and the arguments. Allocated in arena. */
typedef struct dv__predicate dv__predicate;
int dv__predicate_parse(const char *text, const dv__contract *c, dv__arena *arena, dv__predicate **out);
int dv__predicate_eval(const dv__contract *c, const dv__predicate *p, const dv_value *args, dv__solution *s, bool *out);

/* A row's dtypes, "f32 bf16" or "T=f32, U=i32 i64", against the contract's dtype variables. */
typedef struct dv__dtype_sets dv__dtype_sets;
int dv__dtype_sets_parse(const char *text, const dv__contract *c, dv__arena *arena, dv__dtype_sets **out); /* NULL text: NULL */
bool dv__dtype_sets_match(const dv__dtype_sets *sets, const dv__solution *s);
/* Prints why sets do not match: "argument 'x' is f64", or for a computed dtype "T is f64". Returns buffer. */
const char *dv__dtype_sets_reason(
    const dv__dtype_sets *sets, const dv__contract *c, const dv_value *args, const dv__solution *s, char *buffer, size_t size);

void dv__contract_describe(const dv__contract *c, dv__text *to); /* in words, with the order of solving */
void dv__contract_json(const dv__contract *c, dv__text *to);
/* The contract's text without the patterns of returns that are arguments. */
void dv__contract_own_outputs(const dv__contract *c, dv__text *to);
/* "{i}" for the list of tensors in this slot, nothing for other arguments. */
void dv__contract_index(const dv__contract *c, size_t slot, dv__text *to);

#endif
