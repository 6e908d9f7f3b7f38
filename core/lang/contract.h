/* Contracts: the arguments and results of an operator (docs/contract.md describes the language).
 *
 * A contract is parsed, resolved against the schema and proved once, when a library is loaded. Every call then evaluates it,
 * without allocating. A slot is an argument's index in the schema, or nargs + a return's index. */
#ifndef DV_LANG_CONTRACT_H
#define DV_LANG_CONTRACT_H

#include "base/strbuf.h"
#include "lang/expr.h"
#include "lang/schema.h"

typedef struct dv__contract dv__contract;

enum {
    DV__MAX_DIM_VARS = 64,
    DV__MAX_VARIADIC_VARS = 16,
    DV__MAX_DTYPE_VARS = 16,
    DV__MAX_CASE_GROUPS = 8,
    DV__SHAPE_POOL_SIZE = 512,
    DV__MAX_REGISTERS = 1024
};

/* The value of a register of a contract's program (contract_program.h). */
typedef struct dv__reg {
    union {
        int64_t i;            /* int; bool */
        double f;             /* real; a number that is real */
        const int64_t *sizes; /* DIMS: an array of n sizes */
        const char *s;        /* STRING: n bytes; NULL: None */
        const dv_tensor *tensor;
        dv_dtype dtype;
        dv_device device;
    };
    int32_t n;
    uint32_t is_real; /* NUMBER: true if f holds the value, false if i does */
} dv__reg;

/* The solution of a contract for one call: the values of its variables. It is on the caller's stack, need not be initialised,
 * and is valid as long as the call's arguments are. */
typedef struct dv__solution {
    int32_t selected_cases[DV__MAX_CASE_GROUPS]; /* by group: the index of the selected case */
    dv_device device;                            /* the device of all tensors without @; {DV_CPU, 0} if there are none */
    uint64_t bound_dims; /* a bit for each bound size, by its index; the next two fields: bound variadics and dtype variables */
    uint32_t bound_variadics, bound_dtypes;
    int32_t pool_count;
    dv__reg registers[DV__MAX_REGISTERS +
        1]; /* the first registers are the variables; the last one receives values that nothing reads */
    int64_t
        pool[DV__SHAPE_POOL_SIZE + DV_MAX_NDIM]; /* computed dims, shapes and strides of results; pool_count entries are used */
} dv__solution;

/* The expected metadata of a result, or of one tensor of a returned list. */
typedef struct dv__result_metadata {
    dv_dtype dtype;
    dv_device device;
    int32_t ndim;           /* number of dims; -1: the result is absent in the selected case */
    bool is_unbacked;       /* the sizes are upper bounds; the kernel gives the sizes by dv_set_output() */
    int32_t viewed_slot;    /* the argument of which the result is a view or which it is itself; -1: a new tensor */
    int64_t offset;         /* offset of a view in its argument, in elements */
    const int64_t *shape;   /* ndim sizes, in the solution's pool or borrowed from an argument */
    const int64_t *strides; /* ndim strides, never NULL; contiguous unless the contract says like() or view() */
} dv__result_metadata;

/* Parses, resolves and proves a contract. The schema is borrowed and must outlive the contract; name ("ns::op") is copied, for
 * messages. Fails with DV_ESYNTAX or DV_ECONTRACT. */
int dv__contract_parse(const char *text, const char *name, const dv__schema *schema, dv__contract **out);
void dv__contract_free(dv__contract *c);

bool dv__contract_needs_shape_function(
    const dv__contract *c); /* true if some result is [...], so that the operator needs a C shape function */
bool dv__contract_has_unbacked_size(
    const dv__contract *c); /* true if the contract has an unbacked size, which only the kernel knows */
/* Solves the contract for a call: checks the arguments, all nargs with defaults filled in, and binds all variables.
 * check_values: conditions on elements of CPU tensors (`ids.values < e`) are tested too. Fails with DV_ESHAPE, DV_EDTYPE,
 * DV_EDEVICE or DV_EINVAL. The message begins with the operator's name, and has the argument, the expected and the found
 * value. */
int dv__contract_solve(const dv__contract *c, const dv_value *args, dv__solution *s, bool check_values);
/* Computes the expected metadata of a return. Fails with DV_ENOTSUP if the contract leaves it to a C shape function ([...]). */
int dv__contract_eval_result(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, dv__result_metadata *out);
/* For a return that is a list: compute its number of tensors (-1: not a list, or absent in this case), and the metadata of
 * the tensor at an index. Shapes and strides lie in the solution's pool: a caller that describes many tensors resets pool_count
 * in between. */
int dv__contract_eval_list_length(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, int64_t *count);
int64_t dv__contract_const_list_length(
    const dv__contract *c, size_t return_index); /* returns the number of tensors of a return if it is the same in every call; -1:
                                                    not a list, or not known */
int dv__contract_eval_list_result(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, int64_t index, dv__result_metadata *out);
/* True if a tensor passed for a return matches, decided without a full description. Returns false if undecided: the caller then
 * uses dv__contract_eval_result(). */
bool dv__contract_has_fast_match(const dv__contract *c, dv__solution *s, size_t return_index, const dv_tensor *given);
bool dv__contract_is_view(const dv__contract *c, const dv__solution *s,
    size_t return_index); /* true if a return is view(x), or a list of such views, in the selected case */
/* Checks the shape, dtype and device of a tensor given for a return; index: its position in a returned list, else -1. Reports
 * errors like dv__contract_solve(). */
int dv__contract_check_out(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, int64_t index, const dv_tensor *given);
int dv__contract_eval_workspace(const dv__contract *c, const dv_value *args, dv__solution *s,
    int64_t *bytes); /* computes the bytes of workspace; 0 if none is declared */
int dv__contract_eval_flops(const dv__contract *c, const dv_value *args, dv__solution *s,
    double *flops); /* computes the operations of a call; -1 if the contract declares none */
int dv__contract_eval_bytes(const dv__contract *c, const dv_value *args, dv__solution *s,
    double *bytes); /* computes the bytes that a call moves; by default all tensors once, written arguments twice */

/* Partial inference, dv_partial_...() of dovetail.h, which says how unknown values are passed. args: all nargs arguments with
 * defaults filled in. */
typedef struct dv__partial dv__partial;
int dv__partial_new(const dv__contract *c, const dv_value *args, dv__partial **out);
int dv__partial_get(const dv__partial *p, enum dv_partial_of kind, size_t index, size_t element, dv_partial_spec *out);
int dv__partial_set(dv__partial *p, enum dv_partial_of kind, size_t index, size_t element, const dv_partial_spec *known);
void dv__partial_free(dv__partial *p);

/* Stores the number of leading dims of the slot's tensor along which a kernel may be split; 0: every slice gets the whole tensor.
 * All sliced slots have the same leading sizes. Returns false if the operator cannot be split. */
bool dv__contract_try_get_split_dims(const dv__contract *c, const dv__solution *s, size_t slot, int32_t *nleading);
bool dv__contract_can_split(const dv__contract *c); /* true if calls can be split in some combination of cases */
/* True if the leading dims are one variadic (*s): they may be flattened into one dim, since no kernel can know their number. */
bool dv__contract_can_flatten_split(const dv__contract *c, const dv__solution *s);

/* The layout of a tensor that a kernel accepts in a slot. */
enum dv__accepted_layout_kind { DV__ACCEPT_CONTIGUOUS, DV__ACCEPT_LAST_CONTIGUOUS, DV__ACCEPT_STRIDED };
typedef struct dv__accepted_layout {
    uint8_t kind;       /* enum dv__accepted_layout_kind */
    uint8_t align_log2; /* the data is aligned to 1 << align_log2 bytes */
} dv__accepted_layout;
/* Parses "strided(x), align(y, 64)" into an entry for each slot (nargs + nreturns). Slots that the text does not name get the
 * contract's facts; text NULL: all do. */
int dv__contract_parse_accepted(const dv__contract *c, const char *text, dv__accepted_layout *out);
/* Parses accepted layouts for an operator without a contract: slots that the text does not name are contiguous. */
int dv__schema_parse_accepted(const char *text, const dv__schema *schema, dv__accepted_layout *out);

/* A kernel's predicate: a condition in the contract's language, over the contract's variables and the arguments. It lives in
 * the arena. */
typedef struct dv__predicate dv__predicate;
int dv__predicate_parse(const char *text, const dv__contract *c, dv__arena *arena, dv__predicate **out);
int dv__predicate_eval(const dv__contract *c, const dv__predicate *p, const dv_value *args, dv__solution *s, bool *out);

/* The dtypes of a kernel, "f32 bf16" or "T=f32, U=i32 i64", for the contract's dtype variables. */
typedef struct dv__dtype_sets dv__dtype_sets;
int dv__dtype_sets_parse(const char *text, const dv__contract *c, dv__arena *arena,
    dv__dtype_sets **out); /* text NULL gives *out NULL, which matches every call */
bool dv__dtype_sets_match(const dv__dtype_sets *sets, const dv__solution *s);
/* Prints why sets do not match: "argument 'x' is f64", or for a computed dtype "T is f64". Returns buffer. */
const char *dv__dtype_sets_print_mismatch(
    const dv__dtype_sets *sets, const dv__contract *c, const dv_value *args, const dv__solution *s, char *buffer, size_t size);

void dv__contract_describe(
    const dv__contract *c, dv__strbuf *to); /* prints the contract in words, with the order of solving, for `dovetail info` */
void dv__contract_json(const dv__contract *c, dv__strbuf *to);
/* Prints the contract's text without the patterns of returns that are arguments. */
void dv__contract_print_new_results(const dv__contract *c, dv__strbuf *to);
/* Prints "{i}", the index in the pattern of an argument that is a list of tensors; nothing for other arguments. */
void dv__contract_print_list_index(const dv__contract *c, size_t slot, dv__strbuf *to);

#endif
