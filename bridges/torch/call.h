/* One operator in torch, and one call of it. */
#ifndef DV_TORCH_CALL_H
#define DV_TORCH_CALL_H

#include "shims.h"

#include <stdatomic.h>

/* One argument or result, as the stack carries it. */
struct dv__torch_slot {
    const char *name; /* borrowed from the operator */
    uint8_t field;    /* enum dv_field_type of the plain input, as the stack carries it */
    uint8_t packed;   /* of a twin: the type that it replaces (a Scalar passed as numbers); 0: none */
    bool optional, element_optional;
    bool writes;   /* the tensor passed here may be written: an argument, or any result given as out= */
    int32_t alias; /* of a result: the argument that it aliases, or -1 */
};

/* Immutable once published to a trampoline, and never freed: a call may be running when the library is unregistered. */
struct dv__torch_op {
    const struct dv__torch_shims *t;
    dv_operator *op; /* a reference */
    const char *name;
    const char *overload; /* of the name; "" where there is none */
    bool mutates, views;  /* writes to arguments; returns a view of one */
    bool lists;           /* a result is a list: the out= overload returns nothing, as ATen's do */
    /* Python objects that the Autograd kernel calls (python.c): one for every call; one for calls that are plain except that they
     * need a gradient. NULL: none. Read and set under the GIL. */
    _Atomic(void *) python, gradient;
    _Atomic(void *) native; /* a Python object that runs the native form; NULL: none */
    atomic_bool overridden; /* the program has registered kernels for it, which only the dispatcher knows */
    size_t nargs, nresults;
    struct dv__torch_slot slots[]; /* arguments, then results: in this order they are the arguments of the out= overload */
};

/* NULL if the shims can carry this slot; otherwise why they cannot, for the message. */
const char *dv__torch_cannot_carry(const struct dv__torch_shims *t, const dv_slot_info *info, bool result);
/* The type that a twin's argument has instead, as python/twin.py packs it; 0: nothing can replace this type. */
uint8_t dv__torch_packs_as(uint8_t field);

/* The schema of a twin, or of its out= overload, for this name; the caller frees it. NULL: out of memory, no error set. */
char *dv__torch_twin_schema(const struct dv__torch_op *o, const char *local, bool out);

/* Release what stack cells hold: one cell, given the slot of its argument or result; or the cells of all arguments. */
void dv__torch_release(const struct dv__torch_op *op, size_t slot, uint64_t cell);
void dv__torch_release_arguments(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs);

/* Replace a cell's value by an optional that holds it. */
int dv__torch_box(const struct dv__torch_op *op, uint64_t *cell);

/* Run one call: takes the stack's nargs arguments and leaves its results, or throws a c10::Error with our message. More arguments
 * than the operator has: it was called by its out= overload. */
void dv__torch_call(const struct dv__torch_op *op, uint64_t *stack, uint64_t nargs);

/* ---- One call on its way: what dv_call's host needs. python/'s extension has such calls too ---- */

struct dv__torch_block { struct dv__torch_block *next; };

/* A tensor that we made or were given, with its handle. */
struct dv__torch_tensor {
    dv_tensor t; /* must be first: core passes this pointer back */
    void *handle;
};

struct dv__torch_call {
    dv_host host; /* first */
    const struct dv__torch_shims *t;
    const struct dv__torch_op *op;
    uint64_t *stack; /* NULL once its arguments are released */
    size_t nargs;    /* how many are on it: also those of out= */
    dv_value *spare; /* results to be copied to what out= gave; nspare of them are ours */
    size_t nspare;
    bool elsewhere; /* a tensor is on a device for which the operator has no rows: torch runs the native form */
    void *guard;    /* sets the device of the first tensor that is not on the CPU */
    char *at, *end; /* room for small things */
    struct dv__torch_block *blocks;
};

/* room: memory for what the call needs; more is allocated. The host is set up; the caller handles writes and results. */
void dv__torch_call_begin(struct dv__torch_call *c, const struct dv__torch_op *op, char *room, size_t size);
void dv__torch_call_end(struct dv__torch_call *c);

/* Describe the tensor that x->handle holds. The device of the first one that is not on the CPU becomes the current one until the
 * end. */
int dv__torch_view(struct dv__torch_call *c, struct dv__torch_tensor *x, bool writes, const struct dv__torch_slot *s);

/* The schema of the out= overload that Python must define for an operator with a twin. The twin has such an overload too.
 * NULL: there is no overload. */
DV_API const char *dv_torch_out_schema(const dv_torch_library *reg, const char *name);

/* A schema as torch prints it, some of which torch cannot parse, in a form that it can: the default of a Device gets quotes,
 * "0.+2.j" becomes "2.j", and "($0! -> )" becomes "!". to: room for twice as many bytes, and the end. */
DV_API void dv_torch_readable_schema(const char *schema, char *to);

/* A registered operator, for calls that bypass torch; NULL: no operator of this name. Never freed. */
DV_API const struct dv__torch_op *dv_torch_operator(const dv_torch_library *reg, const char *name);

#endif
