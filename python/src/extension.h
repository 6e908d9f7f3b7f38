/* dovetail._core: operators as Python callables. abi3 C for Python 3.11 and later.
 *
 * The way of a call, each step in its own file: bind.c (positions and names to slots), convert.c (Python objects to dv_values),
 * call.c (dv_call with a host that allocates arrays and lets the GIL go; results to Python objects). operator.c is the callable.
 */
#ifndef DOVETAIL_EXTENSION_H
#define DOVETAIL_EXTENSION_H

#include "numpy/array.h"
#include "torch/tensor.h"

/* In the stable ABI by name only since 3.12; the numbers and their meaning are those of 3.9 and later. */
#define EXT_HAVE_VECTORCALL (1UL << 11)
#define EXT_NARGS(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))
typedef PyObject *(*ext_vectorcall)(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* ---- What a call needs to know of an operator, made once ----------------------------------------------------------------- */

typedef struct ext_slot {
    PyObject *name;     /* interned; NULL for an unnamed result */
    const char *text;   /* the same, "" when unnamed */
    char type_text[48]; /* "Tensor?", for messages */
    uint32_t type;      /* enum dv_field_type, as dv_operator_slot() gives it */
    uint32_t flags;     /* enum dv_slot_flags */
    int32_t alias;
    bool has_default;
    int64_t fixed_size;
} ext_slot;

/* What torch knows of an operator, one for each dv_operator. */
typedef struct ext_torch {
    struct ext_torch *next;
    const dv_operator *op;
    size_t users;
    const struct dv__torch_op *torch; /* NULL: not registered there, and the rest is not set */
    PyObject *overload;               /* what torch.ops has */
    PyObject *defaults;               /* a tuple of the arguments' defaults, in order */
    PyObject *gradient; /* called with all arguments, by position, when nothing but a gradient is wanted besides; or NULL */
    uint64_t taken[3];  /* calls that went each way, by enum dv__torch_way */
} ext_torch;

typedef struct ext_operator {
    PyObject ob_base;
    ext_vectorcall vectorcall;
    PyObject *weakrefs;
    dv_operator *op;     /* NULL for a packet */
    const char *name;    /* "ns::name.overload", of op; for a packet "ns::name", of packet_name */
    PyObject *full_name; /* the same as a str */
    size_t nargs, npositional, nresults;
    ext_slot *slots;     /* arguments, then results */
    PyObject *overloads; /* a packet's: a tuple of operators, tried in order */
    ext_torch *torch;    /* NULL for a packet */
    bool torch_possible, mutates;
    PyObject *cache; /* a dict for what Python code computes once (signature, doc); may be NULL */
    /* How the last call went, for the decision about the GIL (call.c). Written with the GIL held. */
    uint64_t last_ticks;
    int64_t last_elements;
} ext_operator;

extern PyTypeObject *ext_operator_type; /* one for the process */
int ext_operator_setup(PyObject *module);
PyObject *ext_operator_new(dv_operator *op); /* takes its own reference */
PyObject *ext_packet_new(PyObject *name, PyObject *overloads);

/* ---- One call ------------------------------------------------------------------------------------------------------------ */

enum { EXT_MEMORY = 3072 };
enum ext_outcome { EXT_OK = 0, EXT_FAILED = -1 /* an exception is set */, EXT_BRIDGE = 1 /* tensors of another framework */ };

typedef struct ext_keep {
    PyObject *object;
    struct ext_keep *next;
} ext_keep;
typedef struct ext_block { struct ext_block *next; } ext_block;

typedef struct ext_call {
    union {
        dv_host host; /* first: entries get a pointer to it */
        struct dv__torch_call torch;
    };
    bool by_torch; /* tensors are torch's, and so is the host */
    bool writes;   /* of them, some are written: to be counted when the kernel begins */
    ext_operator *f;
    PyObject **given; /* for each slot: what the caller passed (borrowed), or NULL */
    dv_value *args, *results;
    PyObject **made; /* for each result: the array that new_tensor made, or NULL (owned) */
    dv_tensor *made_tensors;
    ext_keep *keep;   /* references that live as long as the call */
    int64_t elements; /* of all tensors that were given */
    uint64_t started;
    PyThreadState *released; /* not NULL while the GIL is let go */
    unsigned long thread;    /* that let it go */
    int depth;               /* of before_kernel calls */
    ext_block *blocks;       /* memory beyond what follows */
    size_t used;
    _Alignas(16) char memory[EXT_MEMORY];
} ext_call;

/* Memory of the call; NULL with MemoryError. */
void *ext_alloc(ext_call *c, size_t size);
int ext_keep_object(ext_call *c, PyObject *take); /* also on failure */

/* Fill c->given from a call's arguments, as Python binds a function's: TypeError else. */
int ext_bind(ext_call *c, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* Convert one given object. The error names operator, argument, expected and found. */
enum ext_outcome ext_convert(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out);
/* A tensor that a result is written to. */
enum ext_outcome ext_convert_result(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out);
enum ext_outcome ext_convert_all(ext_call *c); /* everything in c->given, to c->args and c->results */
/* Is this an object of a framework that has its own bridge (torch)? */
bool ext_is_foreign(PyObject *o);

PyObject *ext_call_operator(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *ext_call_packet(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Convert as a call would, for dv_explain and dv_infer; to be ended with ext_call_end in every case. */
enum ext_outcome ext_call_begin(ext_call *c, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
void ext_call_end(ext_call *c);

/* A host's before_kernel and after_kernel: the GIL, and what is to be counted. */
void ext_before_kernel(const dv_host *host);
void ext_after_kernel(const dv_host *host);

PyObject *ext_results(ext_call *c); /* as Python gets them; takes what the call made */

/* dovetail.torch._call("ns::name.overload", args, kwargs): there, PyTorch dispatches. */
PyObject *ext_call_bridge(const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* Raise what a status of dv_... says, with dv_last_error(); an exception that is set already stays. NULL. */
PyObject *ext_raise(int status);

/* ---- Calls with torch's tensors: torch.c --------------------------------------------------------------------------------- */

ext_torch *ext_torch_of(const dv_operator *op); /* to be released; NULL with an exception */
void ext_torch_release(ext_torch *t);           /* NULL is fine */
/* torch_operator(dv_operator *, dv_torch_operator() or None when it is gone, overload, defaults, gradient or None) */
PyObject *ext_torch_set(PyObject *args);
bool ext_torch_possible(const ext_operator *f); /* is there a short way at all? */
/* A call that ext_call_begin() gave EXT_BRIDGE for. */
PyObject *ext_torch_call(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *ext_torch_pick(PyObject *overloads, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames); /* borrowed */
enum ext_outcome ext_torch_view(ext_call *c, const ext_slot *slot, PyObject *o, bool write, const dv_tensor **out);
PyObject *ext_torch_wrap(dv_tensor *take);
void ext_torch_count_writes(ext_call *c);

/* PyObject_Vectorcall, which is in the stable ABI only since 3.12: it is looked up, and where it is not exported, this is slower.
 */
PyObject *ext_call_python(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Call by vectorcall what was called with a tuple and a dict. */
PyObject *ext_vectorcall_of(ext_vectorcall call, PyObject *self, PyObject *args, PyObject *kwargs);

/* ---- Python kernels of torch operators: kernel.c says what it takes ------------------------------------------------------ */

int ext_torch_kernel_setup(void);
PyObject *ext_torch_kernel(PyObject *args);

/* ---- Randomness: dovetail.Generator -------------------------------------------------------------------------------------- */

int ext_random_setup(PyObject *module);
/* A state for the call from a dovetail.Generator or a numpy.random.Generator. */
enum ext_outcome ext_generator(ext_call *c, const ext_slot *slot, PyObject *o, const dv_generator **out);
extern int32_t ext_row; /* dv_host.row of every call on arrays: set_row() */
int ext_random(const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset);

#endif
