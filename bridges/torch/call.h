/* One operator as torch sees it (dv__torch_op), and the state of one call (dv__torch_call). */
#ifndef DV_TORCH_CALL_H
#define DV_TORCH_CALL_H

#include "guard.h"

#include <stdatomic.h>

/* One argument or result of an operator, as torch's stack carries it. */
struct dv__torch_slot {
    dv_slot_info info; /* its strings belong to the operator; results have DV_SLOT_WRITES, since out= can pass them */
    uint8_t field; /* enum dv_field_type by which the stack carries the value; of an optional, the type inside. It differs from
                    * info.type if a packed operator (packed.c) passes the argument encoded */
};

/* An operator in torch. It is immutable once it is published to a trampoline. It is freed only when another operator takes its
 * trampoline, since a call may be running when its library is unregistered. */
struct dv__torch_op {
    const struct dv__torch_shims *t;
    dv_operator *op; /* an owned reference */
    const char *name;
    const char *overload; /* the part of `name` after the dot; "": the name has no dot */
    bool mutates, views;  /* the operator writes to an argument; a result is a view of an argument */
    bool returns_list;    /* a result is a list of tensors; the out= overload then returns nothing, as ATen's overloads do */
    /* Python objects that the Autograd kernel calls (python.c): `gradient` for calls that are plain except that they need a
     * gradient, `python` for all other calls that are not plain. NULL: none. Both are read and set under the GIL. */
    _Atomic(void *) python, gradient;
    _Atomic(void *) decomposition; /* the Python object that runs the decomposition; NULL: the operator has none */
    atomic_bool
        overridden; /* the program has registered kernels of its own for the operator, which only torch's dispatcher knows */
    size_t nargs, nresults;
    struct dv__torch_slot slots[]; /* arguments, then results: in this order they are the arguments of the out= overload */
};

/* Returns the reason, as text for a message, why the shims cannot carry an argument or result; NULL: they can. */
const char *dv__torch_get_unsupported_reason(const struct dv__torch_shims *t, const dv_slot_info *info, bool is_result);
/* Returns the enum dv_field_type by which a packed operator passes an argument of schema_type (python/packed.py encodes the
 * argument). 0: a packed operator cannot pass this type. */
uint8_t dv__torch_get_packed_type(uint8_t schema_type);

/* Returns the schema of a packed operator, or of its out= overload, as text with the name local_name (without namespace). The
 * caller frees the text. NULL: memory is out, and no error is set. */
char *dv__torch_make_packed_schema(const struct dv__torch_op *o, const char *local_name, bool is_out_overload);

/* Releases what one stack cell owns: slot_index is the cell's argument, or nargs plus the cell's result. */
void dv__torch_release_cell(const struct dv__torch_op *op, size_t slot_index, uint64_t cell);
void dv__torch_release_arguments(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs);

/* Moves a cell's value into a new optional, whose pointer becomes the cell's value. Returns a status. */
int dv__torch_box_optional(const struct dv__torch_op *op, uint64_t *cell);

/* Runs one call: takes the stack's nargs arguments and leaves the results, or throws a c10::Error with Dovetail's message. If
 * nargs exceeds the operator's number of arguments, the out= overload was called. */
void dv__torch_call(const struct dv__torch_op *op, uint64_t *stack, uint64_t nargs);

/* Calls an operator's Python object: `gradient` for the path AUTOGRAD, `decomposition` for DECOMPOSITION, else `python`. Takes
 * the stack's nargs arguments and leaves the results on the stack, or throws the Python exception. */
typedef void (*dv__torch_python_fn)(const struct dv__torch_op *op, enum dv__torch_path way, uint64_t *stack, size_t nargs);

/* Returns the function that calls Python, as the Python extension has set it; NULL: this process has no Python. */
dv__torch_python_fn dv__torch_get_python_fn(void);
void dv__torch_set_python_fn(dv__torch_python_fn fn);

/* ---- State of one call of dv_call() with torch's tensors. Torch's dispatcher and the Python extension make such calls ---- */

struct dv__torch_block { struct dv__torch_block *next; };

/* A tensor that the call was passed or has made, with its handle. */
struct dv__torch_tensor {
    dv_tensor t; /* must be the first member: core passes back a pointer to it */
    void *handle;
};

struct dv__torch_call {
    dv_host host; /* first */
    const struct dv__torch_shims *t;
    const struct dv__torch_op *op;
    uint64_t *stack; /* the cells of torch's dispatcher; NULL: none, or their arguments are released */
    size_t nargs;    /* number of arguments on the stack, those of out= included */
    dv_value
        *temporary_results; /* results to be copied to the tensors of out=; the call owns the first ntemporary_results of them */
    size_t ntemporary_results;
    bool needs_decomposition; /* a tensor is on a device for which the operator has no kernels: torch runs the decomposition */
    void *device_guard;    /* libtorch's guard that makes the device of the first tensor that is not on the CPU current; NULL: all
                       are on the CPU */
    char *next_free, *end; /* the unused part of the caller's buffer or of the last block */
    struct dv__torch_block *blocks;
};

/* Begins a call: fills all fields of c, and its dv_host. buffer: memory for small allocations, used until
 * dv__torch_call_free_memory(); further memory is allocated. The function reads no argument and raises no version counter: its
 * caller does both. */
void dv__torch_call_begin(struct dv__torch_call *c, const struct dv__torch_op *op, char *buffer, size_t buffer_size);
/* Frees the call's memory and device guard. Arguments and results are not released. */
void dv__torch_call_free_memory(struct dv__torch_call *c);

/* Describes the tensor of x->handle in x->t. is_written: the address must be writable. If the operator has no kernels for the
 * tensor's device, c->needs_decomposition is set in place of x->t. The device of a call's first tensor that is not on the CPU
 * becomes the current device until dv__torch_call_free_memory(). Returns a status. */
int dv__torch_describe_tensor(
    struct dv__torch_call *c, struct dv__torch_tensor *x, bool is_written, const struct dv__torch_slot *slot_for_message);

/* Returns the schema of the out= overload that Python must define for the operator `name`, which has a packed operator. reg owns
 * the text. NULL: no packed operator, or no out= overload. */
DV_API const char *dv_torch_get_out_schema(const dv_torch_library *reg, const char *name);

/* Writes a schema that torch has printed to `to`, in a form that torch can parse: the default of a Device gets quotes, "0.+2.j"
 * becomes "2.j", and "($0! -> )" becomes "!". to: memory for 2 * strlen(schema) + 1 bytes. */
DV_API void dv_torch_print_parsable_schema(const char *schema, char *to);

/* Returns a registered operator by "ns::name.overload", for calls that bypass torch's dispatcher. NULL: reg has registered no
 * operator of this name. The operator is never freed while its library is registered. */
DV_API const struct dv__torch_op *dv_torch_find_operator(const dv_torch_library *reg, const char *name);

#endif
