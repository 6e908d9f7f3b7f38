/* dovetail._core: operators as Python callables. abi3 C for Python 3.11 and later.
 *
 * The steps of a call, each in its own file: bind.c (positions and names to slots), host.c (whose tensors they are), convert.c
 * (Python objects to dv_values, one walk), call.c (dv_call, the GIL, results to Python objects). operator.c is the callable,
 * packet.c one of several overloads. No file here names a framework: each one fills the table in host.h.
 */
#ifndef DOVETAIL_EXTENSION_H
#define DOVETAIL_EXTENSION_H

#include "dovetail_test.h"
#include "host.h"

#include <stdbool.h>
#include <string.h>

/* The stable ABI has these names only since 3.12; the numbers and their meaning are valid from 3.9 on. */
#define EXT_HAVE_VECTORCALL (1UL << 11)
#define EXT_NARGS(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))
typedef PyObject *(*ext_vectorcall)(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* ---- Operators, in the form for calls ------------------------------------------------------------------------------------ */

struct ext_slot {
    dv_slot_info info;  /* its strings belong to the operator */
    PyObject *name;     /* info.name, interned; NULL for an unnamed result */
    char type_text[48]; /* "Tensor?", for messages */
};

struct ext_operator {
    PyObject ob_base;
    ext_vectorcall vectorcall;
    PyObject *weakrefs;
    dv_operator *op;     /* NULL for a packet */
    const char *name;    /* "ns::name.overload"; for a packet "ns::name" */
    PyObject *full_name; /* `name` as a str */
    size_t nargs, npositional, nresults;
    ext_slot *slots;     /* arguments, then results */
    PyObject *overloads; /* in a packet: a tuple of its operators in the order in which they are tried; else NULL */
    /* index of the first slot of type Tensor or Tensor[]; nargs + nresults if the operator has no such slot */
    size_t first_tensor_slot;
    bool writes_argument;                  /* true if the schema declares an argument as written */
    void *host_data[EXT_HOSTS];            /* by host: the host's data for the operator (ext_host.attach); not in packets */
    struct ext_packet_cache *packet_cache; /* in a packet: the cached overloads by the types of arguments (packet.c) */
    /* a dict of what Python code computes once for the operator (signature, doc); NULL: nothing was computed */
    PyObject *cache;
    /* Clock ticks and number of elements of the operator's last call, for the decision whether to release the GIL (call.c). Both
     * are written with the GIL held. */
    uint64_t last_ticks;
    int64_t last_numel;
};

extern PyTypeObject *ext_operator_type; /* one for the process */
int ext_operator_setup(PyObject *module);
PyObject *ext_operator_new(dv_operator *op); /* the new object takes a reference of its own to op */
PyObject *ext_packet_new(PyObject *name, PyObject *overloads);

/* ---- One call ------------------------------------------------------------------------------------------------------------ */

enum { EXT_CALL_MEMORY_SIZE = 3072, EXT_CALL_STATE_SIZE = 512 };

typedef struct ext_reference {
    PyObject *object;
    struct ext_reference *next;
} ext_reference;
typedef struct ext_block { struct ext_block *next; } ext_block;
typedef struct ext_list { /* an argument of a call that is a list of tensors */
    size_t slot;
    PyObject *items; /* a tuple of the list's elements when it was converted; borrowed from the call's references */
    struct ext_list *next;
} ext_list;

struct ext_call {
    union {
        dv_host host; /* the first member, since the entries of dv_host get a pointer to `host` */
        _Alignas(16) char state[EXT_CALL_STATE_SIZE];
    };
    const ext_host *host_table; /* the host of the call's tensors */
    bool host_has_begun;        /* true if host_table->begin_call() succeeded, so that end_call() must be called */
    /* has_run: dv_call() was called. must_notify_writes: the host must be notified of writes when the kernel begins */
    bool has_run, must_notify_writes;
    enum ext_purpose purpose;
    /* how to make the call: 0: run the kernel directly; -1: not all arguments were converted; others by an enum of the host, set
     * by its describe_tensor() */
    int path;
    ext_operator *f;
    PyObject **passed; /* by slot: the object that the caller passed, borrowed; NULL: the caller passed none */
    dv_value *args, *results;
    PyObject **result_objects; /* by result: the owned object that the host's new_tensor() made; NULL: not made yet */
    dv_tensor *result_tensors;
    ext_reference *references; /* references to objects that the call releases when it ends */
    ext_list *lists;
    bool is_second_conversion_pass; /* true in the second pass, for arguments whose conversion may run Python code */
    int64_t passed_numel;           /* total number of elements of all passed tensors */
    uint64_t kernel_start_ticks;    /* clock ticks when the kernel began */
    PyThreadState *released_state;  /* not NULL while the GIL is released */
    unsigned long releasing_thread; /* the thread that released the GIL */
    int kernel_depth;               /* nesting depth of before_kernel() calls */
    ext_block *blocks;              /* further blocks of memory, allocated if `memory` is too small */
    size_t memory_used;             /* bytes of `memory` that are in use */
    _Alignas(16) char memory[EXT_CALL_MEMORY_SIZE];
};

/* Returns memory that is freed with the call; NULL with MemoryError. */
void *ext_call_alloc(ext_call *c, size_t size);
/* takes the reference, also on failure. Returns 0, or -1 with MemoryError */
int ext_call_add_reference(ext_call *c, PyObject *take);

/* Fills c->passed from a call's arguments, as Python binds the arguments of a function. Returns 0, or -1 with a TypeError. */
int ext_call_bind(ext_call *c, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* Converts all objects in c->passed to values in c->args and c->results. Returns the outcome. */
enum ext_outcome ext_call_convert(ext_call *c);

/* The words for layouts and memory formats, by number, with a NULL at the end. ext_make_word() returns a word as a str; NULL
 * without an exception: no word has this number. */
extern const char *const ext_layouts[], *const ext_memory_formats[];
PyObject *ext_make_word(const char *const *words, int32_t number);

/* Returns a borrowed tuple of the elements that a list of tensors had when it was converted; the list may have changed. NULL: the
 * slot has no list. */
PyObject *ext_find_list_items(const ext_call *c, size_t slot);

/* True if the conversion of o runs no Python code: None, or exactly an int, float, bool, complex or str. */
static inline bool ext_is_builtin(PyObject *o)
{
    return Py_IsNone(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyUnicode_CheckExact(o) ||
        PyComplex_CheckExact(o);
}

/* Clears an ordinary exception, if one is set. Returns false for an exception that stays set, since the caller must see it:
 * KeyboardInterrupt, SystemExit, MemoryError and the like. */
bool ext_try_clear_error(void);
/* Returns o.name, or NULL. After NULL an exception is set only if it is no AttributeError. */
PyObject *ext_get_optional_attribute(PyObject *o, const char *name);

/* True if an object is a sequence, set or dict view that counts as a list. */
bool ext_is_sequence(PyObject *o);

/* For hosts: handles an object that is not a tensor of c->host_table. A tensor of another host fails with a message that names
 * both hosts. EXT_DISPATCH: the host's dispatcher decides. Other objects are converted as arrays, or fail with their type in
 * the message. */
enum ext_outcome ext_convert_foreign(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out);
/* Fail with the TypeError "f: argument 'x': expected Tensor (expected), found ...", and return EXT_FAILED. expected: the
 * meaning of the schema's type in Python; NULL: the type's name suffices. found, found_text: the object, or words for it.
 * element: the index in a list, or -1. A TypeError that is set becomes the cause of the new one. Any other exception stays set,
 * and EXT_ABORT is returned. */
enum ext_outcome ext_fail_argument(ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *found);
enum ext_outcome ext_fail_argument_text(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, const char *found_text);
/* Fails for a number that is too large for a type: replaces the OverflowError by a message with argument and type. */
enum ext_outcome ext_too_large(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, const char *type);
/* Fails for a tensor of another host than that of the call's first tensor. */
enum ext_outcome ext_mixed(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, const ext_host *other);

PyObject *ext_call_operator(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Begins a call: binds and converts the arguments. ext_call_end() must be called after it, whatever the outcome. */
enum ext_outcome ext_call_begin(
    ext_call *c, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, enum ext_purpose purpose);
/* Runs the call that ext_call_begin() prepared. EXT_DISPATCH: the caller must call c->host_table->call_dispatcher(). */
enum ext_outcome ext_call_run(ext_call *c, PyObject **result);
/* Ends a call that was begun with this outcome, by the dispatcher if necessary. Returns the result; NULL with an exception. */
PyObject *ext_call_finish(ext_call *c, enum ext_outcome outcome, PyObject *const *args, size_t nargsf, PyObject *kwnames);
void ext_call_end(ext_call *c);

/* Returns a dict of a call site's arguments by name, with new tensors of the host that has import_object(). NULL with an
 * exception. */
PyObject *ext_site_arguments(ext_operator *f, const dv_site *site);

/* Functions for a host's dv_host.before_kernel and after_kernel: release and take the GIL, and notify the host of writes. */
void ext_before_kernel(const dv_host *host);
void ext_after_kernel(const dv_host *host);
static inline ext_call *ext_call_of(const dv_host *host) { return (ext_call *)(uintptr_t)(const void *)host; }

/* State of the GIL for entries of dv_host that need Python: a kernel may call them without the GIL, from its own thread or
 * another. */
typedef struct ext_gil {
    PyThreadState *thread_state;
    PyGILState_STATE gil_state;
    bool has_gil_state;
} ext_gil;
ext_gil ext_acquire_gil(ext_call *c);
void ext_release_gil(ext_gil g);

/* True if a host must make an object for this result, which is a tensor: the object is in c->result_objects, its description in
 * c->result_tensors. All other new tensors of a call belong to this library. */
bool ext_is_result_tensor(const ext_call *c, int index);
/* Returns the passed object of tensor t, borrowed; NULL: no argument is this tensor. t NULL: the object of a tensor with an
 * element at `address`. found (or NULL): receives that tensor. */
PyObject *ext_find_owner(const ext_call *c, const dv_tensor *t, const void *address, const dv_tensor **found);
/* Frees a tensor of a result or of the library: function for dv_host.free_tensor of such a host */
void ext_free_tensor(const dv_host *host, dv_tensor *t);
/* Returns a new capsule that owns a tensor of the library. NULL with an exception: the caller still owns the tensor. */
PyObject *ext_make_tensor_capsule(dv_tensor *take);
/* Makes a tensor that the library owns, with strides without gaps in any order (NULL: contiguous), for tensors that a host does
 * not make itself. Returns a status. */
int ext_tensor_new(dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out);

bool ext_has_given_result(const ext_call *c); /* true if the caller passed an object for some result */
/* Calls fn for every passed tensor that the call writes. */
void ext_for_each_written(const ext_call *c, void (*fn)(PyObject *o));

/* Calls the Python function dovetail.<host>._call(operator, args, kwargs), which makes the call by the framework's dispatcher.
 * Returns its result; NULL with an exception. */
PyObject *ext_call_bridge(const ext_host *host, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* Returns the hooks for dv_host.test that select the kernel of ext_set_row(), for the host with import_object(); NULL: none is
 * set. */
const dv_test_hooks *ext_get_test_hooks(void);
void ext_set_row(int32_t row); /* selects a kernel by its number for all later calls, for tests (dv_test_hooks.kernel_number) */

/* Raises the exception for a status, with dv_last_error() as message. An exception that is already set stays. Returns NULL. */
PyObject *ext_raise_status(int status);

/* ---- Packets: packet.c --------------------------------------------------------------------------------------------------- */

PyObject *ext_call_packet(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* returns a bool: whether the overload may accept arguments of these types */
PyObject *ext_can_accept(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
void ext_packet_reset_cache(ext_operator *packet);

/* ---- Python -------------------------------------------------------------------------------------------------------------- */

/* Calls a Python object by PyObject_Vectorcall(), which is looked up, since the stable ABI has it only since 3.12; if it is
 * missing, by PyObject_Call(). */
PyObject *ext_call_python(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Makes a vectorcall with the arguments of a tuple and a dict (NULL: none). Returns its result; NULL with an exception. */
PyObject *ext_vectorcall_from_tuple(ext_vectorcall call, PyObject *self, PyObject *args, PyObject *kwargs);

/* ---- DOVETAIL_DEBUG=4 (debug.c) ------------------------------------------------------------------------------------------ */

extern bool ext_trace_calls;
void ext_debug_setup(void);
void ext_trace_call(const ext_call *c);

/* ---- Randomness: dovetail.Generator -------------------------------------------------------------------------------------- */

int ext_random_setup(PyObject *module);
/* Sets *out to the random state of a dovetail.Generator, or to a new state from a generator of the call's host. Fails with a
 * TypeError for other objects. */
enum ext_outcome ext_convert_generator(ext_call *c, const ext_slot *slot, PyObject *o, const dv_generator **out);
int ext_draw_random(const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset);

#endif
