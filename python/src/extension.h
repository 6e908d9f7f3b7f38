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

/* ---- What a call needs to know of an operator, made once ----------------------------------------------------------------- */

struct ext_slot {
    PyObject *name;     /* interned; NULL for an unnamed result */
    const char *text;   /* the same, "" when unnamed */
    char type_text[48]; /* "Tensor?", for messages */
    uint32_t type;      /* enum dv_field_type, as dv_operator_slot() gives it */
    uint32_t flags;     /* enum dv_slot_flags */
    int32_t alias;
    bool has_default;
    int64_t fixed_size;
};

struct ext_operator {
    PyObject ob_base;
    ext_vectorcall vectorcall;
    PyObject *weakrefs;
    dv_operator *op;     /* NULL for a packet */
    const char *name;    /* "ns::name.overload", of op; for a packet "ns::name", of packet_name */
    PyObject *full_name; /* the same as a str */
    size_t nargs, npositional, nresults;
    ext_slot *slots;     /* arguments, then results */
    PyObject *overloads; /* a packet's: a tuple of operators, tried in order */
    size_t first_tensor; /* the first slot that takes a tensor or a list of tensors; without one, nargs + nresults */
    bool mutates;
    void *of_host[EXT_HOSTS];  /* each host's data for it; not for packets */
    struct ext_memory *memory; /* a packet's: what was learned (packet.c) */
    PyObject *cache;           /* a dict for what Python code computes once (signature, doc); may be NULL */
    /* Time and size of the last call, for the decision about the GIL (call.c). Written with the GIL held. */
    uint64_t last_ticks;
    int64_t last_elements;
};

extern PyTypeObject *ext_operator_type; /* one for the process */
int ext_operator_setup(PyObject *module);
PyObject *ext_operator_new(dv_operator *op); /* takes its own reference */
PyObject *ext_packet_new(PyObject *name, PyObject *overloads);

/* ---- One call ------------------------------------------------------------------------------------------------------------ */

enum { EXT_MEMORY = 3072, EXT_STATE = 512 };

typedef struct ext_keep {
    PyObject *object;
    struct ext_keep *next;
} ext_keep;
typedef struct ext_block { struct ext_block *next; } ext_block;
typedef struct ext_list { /* argument that is a list of tensors */
    size_t slot;
    PyObject *items; /* a tuple of its elements when it was converted; borrowed from the call's references */
    struct ext_list *next;
} ext_list;

struct ext_call {
    union {
        dv_host host; /* first: dv_host's entries get a pointer to it */
        _Alignas(16) char state[EXT_STATE];
    };
    const ext_host *of; /* whose tensors they are */
    bool begun;         /* of->begin() succeeded, of->end() must be called */
    bool ran, writes;   /* dv_call was called; the host must be notified of writes when the kernel begins */
    enum ext_purpose purpose;
    int way; /* of->tensor()'s note; not 0: the call is not plain. -1: not all arguments were converted */
    ext_operator *f;
    PyObject **given; /* for each slot: what the caller passed (borrowed), or NULL */
    dv_value *args, *results;
    PyObject **made; /* for each result: the object that new_tensor made for it already, or NULL (owned) */
    dv_tensor *made_tensors;
    ext_keep *keep; /* references that live as long as the call */
    ext_list *lists;
    bool late;        /* true in the second pass, for arguments whose conversion may run Python code */
    int64_t elements; /* of all tensors that were given */
    uint64_t started;
    PyThreadState *released; /* not NULL while the GIL is released */
    unsigned long thread;    /* that let it go */
    int depth;               /* of before_kernel calls */
    ext_block *blocks;       /* memory beyond what follows */
    size_t used;
    _Alignas(16) char memory[EXT_MEMORY];
};

/* Memory of the call; NULL with MemoryError. */
void *ext_alloc(ext_call *c, size_t size);
int ext_keep_object(ext_call *c, PyObject *take); /* also on failure */

/* Fill c->given from a call's arguments, as Python binds a function's: TypeError else. */
int ext_bind(ext_call *c, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* Convert everything in c->given to c->args and c->results, in one pass. */
enum ext_outcome ext_convert_all(ext_call *c);

/* The words for layouts and memory formats, by their numbers, to a NULL; a word as a str, NULL without an exception: none. */
extern const char *const ext_layouts[], *const ext_memory_formats[];
PyObject *ext_word(const char *const *words, int32_t number);

/* Returns a borrowed tuple of the elements that a list of tensors had when it was converted; the list may have changed. NULL: the
 * slot has no list. */
PyObject *ext_list_items(const ext_call *c, size_t slot);

/* True if the conversion of o runs no Python code: None, or exactly an int, float, bool, complex or str. */
static inline bool ext_is_builtin(PyObject *o)
{
    return Py_IsNone(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyUnicode_CheckExact(o) ||
        PyComplex_CheckExact(o);
}

/* Clears an ordinary exception, if one is set. False: the exception stays set, since the caller must see it: KeyboardInterrupt,
 * SystemExit, MemoryError and the like. */
bool ext_clear_error(void);
/* Returns o.name, or NULL. After NULL an exception is set only if it is no AttributeError. */
PyObject *ext_optional_attribute(PyObject *o, const char *name);

/* Is it a sequence, set or dict view that counts as a list? */
bool ext_is_sequence(PyObject *o);

/* For hosts: handle an object that is not a tensor of c->of: an error that names both hosts or the object's type, or SLOW; or it
 * is converted as an array. */
enum ext_outcome ext_other_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out);
/* FAILED with "f: argument 'x': expected Tensor (expected), found ...". expected: what the schema's type means in Python, or NULL
 * when its name says it. found_text takes the words, found the object. element: its index in a list, or -1. A TypeError that is
 * set becomes the cause of the new one; any other exception stays as it is, and the outcome is MIXED. */
enum ext_outcome ext_wrong(ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *found);
enum ext_outcome ext_wrong_text(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, const char *found_text);

PyObject *ext_call_operator(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Convert as a call would; always followed by ext_call_end. */
enum ext_outcome ext_call_begin(
    ext_call *c, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, enum ext_purpose purpose);
/* Run the call that ext_call_begin prepared. SLOW: call c->of->slow(). */
enum ext_outcome ext_call_run(ext_call *c, PyObject **result);
/* End a call that was begun, with this outcome. */
PyObject *ext_call_finish(ext_call *c, enum ext_outcome outcome, PyObject *const *args, size_t nargsf, PyObject *kwnames);
void ext_call_end(ext_call *c);

/* (operator, {argument's name: value}) of a call site's text, with new tensors of the host with adopt(). */
PyObject *ext_site(const char *text);

/* For a host's before_kernel and after_kernel: release and take the GIL, and notify the host of writes. */
void ext_before_kernel(const dv_host *host);
void ext_after_kernel(const dv_host *host);
static inline ext_call *ext_call_of(const dv_host *host) { return (ext_call *)(uintptr_t)(const void *)host; }

/* For entries of dv_host that need Python: a kernel may call them without the GIL, from its own thread or another. */
typedef struct ext_gil {
    PyThreadState *own;
    PyGILState_STATE other;
    bool has_other;
} ext_gil;
ext_gil ext_take_gil(ext_call *c);
void ext_give_gil(ext_gil g);

/* For hosts that make an object for each result that is a tensor, in c->made, described in c->made_tensors; all other tensors of
 * the call are the library's. Is this result one of them? */
bool ext_is_tensor(const ext_call *c, int index);
/* The argument's object, or the list's, that this tensor is; t NULL: with an element at this place. found: its tensor, or NULL.
 * NULL: none. Borrowed. */
PyObject *ext_owner(const ext_call *c, const dv_tensor *t, const void *place, const dv_tensor **found);
void ext_free_tensor(const dv_host *host, dv_tensor *t); /* dv_host.free_tensor of such a host */
/* An object that owns a tensor of the library; NULL with an exception: the caller still owns it. */
PyObject *ext_keep_tensor(dv_tensor *take);
/* The library's tensor, with dense strides in any order, for what a host does not make itself. */
int ext_tensor_new(dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out);

bool ext_any_given(const ext_call *c); /* was a result given, to be written to? */
/* Call fn for every given tensor that is written. */
void ext_each_written(const ext_call *c, void (*fn)(PyObject *o));

/* dovetail.<host>._call(operator, args, kwargs): there, the framework dispatches. */
PyObject *ext_call_bridge(const ext_host *host, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* Raise the exception for a status, with dv_last_error() as message; keeps an exception that is already set. Returns NULL. */
PyObject *ext_raise(int status);

/* ---- Packets: packet.c --------------------------------------------------------------------------------------------------- */

PyObject *ext_call_packet(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *ext_accepts(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames); /* may the types fit? */
void ext_packet_forget(ext_operator *packet);

/* ---- Python -------------------------------------------------------------------------------------------------------------- */

/* PyObject_Vectorcall, which is in the stable ABI only since 3.12: it is looked up; if it is missing, a slower call is used.
 */
PyObject *ext_call_python(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Make a vectorcall from a call with a tuple and a dict. */
PyObject *ext_vectorcall_of(ext_vectorcall call, PyObject *self, PyObject *args, PyObject *kwargs);

/* ---- DOVETAIL_DEBUG=4 (debug.c) ------------------------------------------------------------------------------------------ */

extern bool ext_shows_calls;
void ext_debug_setup(void);
void ext_show_call(const ext_call *c);

/* ---- Randomness: dovetail.Generator -------------------------------------------------------------------------------------- */

int ext_random_setup(PyObject *module);
/* A state for the call from a dovetail.Generator, or from one of the host's. */
enum ext_outcome ext_generator(ext_call *c, const ext_slot *slot, PyObject *o, const dv_generator **out);
/* For dv_host.test of the host with adopt(): the row of set_row(); NULL: none was set. */
const dv_test_hooks *ext_hooks(void);
int ext_random(const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset);

#endif
