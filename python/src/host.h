/* The interface for frameworks: a table of functions that dovetail._core calls. A framework is a folder bridges/<name>/. The C
 * files in its folder host/ are compiled into the extension, and define `const ext_host ext_host_<name>`. CMake finds the
 * folders.
 *
 * The host of a call is that of its first tensor. Tensors of two hosts in one call are an error that names both.
 */
#ifndef DOVETAIL_HOST_H
#define DOVETAIL_HOST_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "dovetail.h"

#include <stdbool.h>

typedef struct ext_call ext_call;
typedef struct ext_slot ext_slot;
typedef struct ext_operator ext_operator;

enum ext_purpose {
    EXT_CALL,
    EXT_MATCH_TYPES, /* the call is not made: the types of the passed objects are tested, whatever their values */
    EXT_DESCRIBE     /* the call is not made: its arguments are described for dv_explain() */
};

enum ext_outcome {
    EXT_OK = 0,
    EXT_DISPATCH = 1, /* the extension cannot make the call itself: the host's call_dispatcher() makes it */
    EXT_DEFER = 2,    /* the conversion may run Python code, so it is done after the conversions of other arguments */
    EXT_FAILED = -1,  /* an exception is set; a framework with a dispatcher is called anyway, and reports the error */
    EXT_ABORT = -2    /* an exception is set, and the framework is not called */
};

/* The role of a framework's object as an argument. */
enum ext_kind { EXT_KIND_NONE, EXT_KIND_TENSOR, EXT_KIND_NUMBER };

/* The functions of a framework. Entries whose comment names a default may be NULL. All are called with the GIL held, except those
 * in dv_host, which a kernel may call. */
typedef struct ext_host {
    /* name of the framework's Python module. Before this module is imported, no object belongs to the framework */
    const char *name;
    /* what messages call a Tensor and a Generator of the framework. Default: no name */
    const char *tensor_noun, *generator_noun;

    /* Sets up the framework once in each interpreter. space: the module _core.<name>, for functions that the bridge's Python code
     * calls. Returns 0, or -1 with an exception. Default: does nothing. */
    int (*setup)(PyObject *space);
    /* Returns the role of objects of a type in this framework; roles other than NONE are cached. EXT_KIND_NONE with an
     * exception: the framework cannot be used. */
    enum ext_kind (*classify_type)(PyTypeObject *type);

    /* ---- a call, in this order ---- */

    /* Begins a call: fills c->host, the dv_host of the call, with functions for new tensors, views, copies, streams, random
     * numbers and threads. In c->state the framework's own data of the call follows c->host. EXT_DISPATCH: the extension cannot
     * make this call itself. */
    enum ext_outcome (*begin_call)(ext_call *c);
    /* Describes a tensor. element: the index in a list, or -1. An object that is not a tensor of this host must be passed to
     * ext_convert_foreign(). A non-zero c->path makes call_dispatcher() run the call once all arguments are converted. For
     * EXT_MATCH_TYPES only the type matters, and *out may stay unset. For EXT_DESCRIBE a tensor that can be described must not
     * give EXT_DISPATCH. */
    enum ext_outcome (*describe_tensor)(
        ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out);
    /* Checks a tensor that describe_tensor() described, after Python code ran that may have changed the object. Sets *t to a
     * new description if the old one no longer holds. Default: describe_tensor() again. */
    enum ext_outcome (*revalidate_tensor)(
        ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **t);
    /* True if the extension may convert this object, which is passed for an argument of another type than Tensor. False:
     * call_dispatcher() makes the call. Default: true. */
    bool (*can_convert)(const ext_slot *slot, PyObject *o);
    /* Tells the framework, just before the kernel runs, that it writes passed tensors (ext_for_each_written()). Default: does
     * nothing. */
    void (*notify_writes)(ext_call *c);
    /* Returns a new Python object for a tensor that new_tensor() or new_view() made; NULL with an exception. Takes ownership of
     * the tensor, also on failure. */
    PyObject *(*wrap_tensor)(ext_call *c, dv_tensor *take);
    /* Handles a call that failed without an exception: raises the framework's exception, or returns EXT_DISPATCH. Default:
     * raises dovetail's exception. */
    enum ext_outcome (*handle_failure)(ext_call *c, int status);
    /* Releases the call's resources, after a successful begin_call(). c->has_run: dv_call() was called. Default: nothing. */
    void (*end_call)(ext_call *c);
    /* Makes the whole call by the framework, and returns the result; NULL with an exception. begin_call() was not called, or
     * end_call() was. The pointer may be NULL only if no function of the host returns EXT_DISPATCH. */
    PyObject *(*call_dispatcher)(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames);
    /* True if call_dispatcher() is the framework's own dispatcher, which also accepts arguments that the extension cannot
     * convert, reports errors, and selects overloads. */
    bool has_dispatcher;

    /* Makes a tensor of this host from an object of no host that has __dlpack__, or from a number of this host. Returns NULL
     * with an exception. One host has this function; that host also makes the calls without tensors. */
    PyObject *(*import_object)(PyObject *o);

    /* ---- objects that stand for something else than a tensor; each has a default ---- */

    /* These functions set an exception only if the caller must see it, such as KeyboardInterrupt. */
    /* describes an object for messages: "an array of float32 with shape (2,)". Default: the name of its type */
    PyObject *(*describe)(PyObject *o);
    /* Returns the element kind of this host's number or 0-d tensor: 'b', 'i', 'u', 'f', 'c' or another letter. 0: o has
     * dims. */
    char (*get_number_kind)(PyObject *o);
    /* Returns a 0-d tensor as a Python number, a tensor of one dim as a list. NULL: the tensor has more dims. */
    PyObject *(*get_items)(PyObject *o);
    /* reads a dtype object of the host. Returns 0, or -1 if o is no dtype, with or without an exception */
    int (*read_dtype)(PyObject *o, dv_dtype *out);
    PyObject *(*make_dtype_object)(dv_dtype dtype);
    /* Draws a seed from a generator of this host. Returns 1; 0: o is no generator of this host; -1 with an exception. */
    int (*draw_seed)(PyObject *o, uint64_t *out);

    /* ---- operators ---- */

    /* Returns the host's data for an operator, stored in f->host_data; NULL with an exception. Default: no data. */
    void *(*attach)(const ext_operator *f);
    void (*detach)(void *kept);
} ext_host;

enum ext_host_number {
#define HOST(name) EXT_HOST_##name,
#include "hosts.inc"
#undef HOST
    EXT_HOSTS
};

extern const ext_host *ext_hosts[EXT_HOSTS]; /* by enum ext_host_number */

/* Returns the host to which an object belongs. *kind: the object's role in that host. NULL: no host; with an exception, a host
 * that cannot be used. */
const ext_host *ext_find_host(PyObject *o, enum ext_kind *kind);
const ext_host *ext_find_importer(void); /* returns the host that has import_object() */
/* Sets ext_hosts, and adds to the module a module _core.<host> for each host, with functions for the bridge's Python code.
 * Returns 0, or -1 with an exception. */
int ext_hosts_setup(PyObject *module, const ext_host *const *hosts);

#endif
