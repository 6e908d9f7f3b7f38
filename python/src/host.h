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
    EXT_TRIAL, /* only the types of the given objects matter */
    EXT_LOOK   /* the arguments are described, and no kernel runs */
};

enum ext_outcome {
    EXT_OK = 0,
    EXT_SLOW = 1,    /* not plain: the call is made by slow() */
    EXT_LATER = 2,   /* the conversion may run Python code: it is done after those of other arguments */
    EXT_FAILED = -1, /* an exception is set; a framework that dispatches is called anyway */
    EXT_MIXED = -2   /* an exception is set, and the framework is not called */
};

/* The role of a framework's object as an argument. */
enum ext_kind { EXT_NOTHING, EXT_TENSOR, EXT_NUMBER };

/* The entries marked with a default may be NULL. All need the GIL, except those that a kernel may call (in dv_host). */
typedef struct ext_host {
    const char *name;                           /* the framework's module; its objects exist only where that is imported */
    const char *tensor_title, *generator_title; /* the names of a Tensor and a Generator in messages. Default: none */

    /* Once in each interpreter: space is the module _core.<name>, for what the framework's Python side needs. 0, or -1 with an
     * exception. Default: nothing. */
    int (*setup)(PyObject *space);
    /* Does an object of this type belong to this framework? A positive answer is cached. NOTHING with an exception: the framework
     * cannot be used. */
    enum ext_kind (*kind)(PyTypeObject *type);

    /* ---- a call, in this order ---- */

    /* Make c->host: what dv_call asks (new, view and copy of tensors, stream, random numbers, threads). It is the first member
     * of what the framework keeps for the call, in c->state. SLOW: this call cannot be plain. */
    enum ext_outcome (*begin)(ext_call *c);
    /* Describe a tensor; element is its index in a list, or -1. Pass an object that is not a tensor of this host to
     * ext_other_tensor(). Set c->way to make the call by slow() once all arguments are converted. For EXT_TRIAL only the type
     * matters, and *out may be left unset; for EXT_LOOK nothing is SLOW that can be described. */
    enum ext_outcome (*tensor)(
        ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out);
    /* Checks a tensor that tensor() described, after Python code ran that may have changed the object. Sets *t to another
     * description if that one no longer holds. Default: tensor() again. */
    enum ext_outcome (*recheck)(
        ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **t);
    /* May this object, given for an argument that is not a tensor, be converted here? Default: yes. */
    bool (*plain)(const ext_slot *slot, PyObject *o);
    /* Called just before the kernel writes given tensors (ext_each_written()). Default: nothing. */
    void (*writes)(ext_call *c);
    /* Make an object for a tensor from new_tensor or new_view. Owns the tensor, also on failure. */
    PyObject *(*wrap)(ext_call *c, dv_tensor *take);
    /* The call failed without an exception: raise the framework's exception, or return SLOW. Default: dovetail's errors. */
    enum ext_outcome (*failed)(ext_call *c, int status);
    /* Called after a successful begin(): release the call's resources. c->ran: dv_call was called. Default: nothing. */
    void (*end)(ext_call *c);
    /* Make the call in the framework's way; begin() was not called, or end() was. NULL only if no function returns SLOW. */
    PyObject *(*slow)(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames);
    /* slow() is the framework's own dispatch: it also takes arguments that cannot be converted here, reports errors, and selects
     * overloads. */
    bool dispatches;

    /* Make a tensor of this host from an object of no host that has __dlpack__, or from a number of this host. One host has this
     * function; it also makes the calls without tensors. NULL with an exception. */
    PyObject *(*adopt)(PyObject *o);

    /* ---- objects that stand for something else than a tensor; each has a default ---- */

    /* Each of these sets only exceptions that the caller must see, such as KeyboardInterrupt. */
    PyObject *(*describe)(PyObject *o); /* for messages: "an array of float32 with shape (2,)". Default: its type */
    char (*number)(PyObject
            *o); /* the element kind of this host's number or tensor: 'b', 'i', 'u', 'f', 'c' or another letter; 0: it has dims */
    PyObject *(*items)(PyObject *o);          /* as a Python number, or a tensor of one dim as a list; NULL: it has more */
    int (*dtype)(PyObject *o, dv_dtype *out); /* 0; -1 with or without an exception */
    PyObject *(*dtype_object)(dv_dtype dtype);
    int (*seed)(PyObject *o, uint64_t *out); /* draw from a generator of this host: 1; 0: it is not one; -1 with an exception */

    /* ---- operators ---- */

    /* Make the host's data for an operator, kept in f->of_host. NULL with an exception. Default: nothing. */
    void *(*attach)(const ext_operator *f);
    void (*detach)(void *kept);
} ext_host;

enum ext_host_number {
#define HOST(name) EXT_HOST_##name,
#include "hosts.inc"
#undef HOST
    EXT_HOSTS
};

extern const ext_host *const ext_hosts[EXT_HOSTS];

/* The host that an object belongs to, and its role there. NULL: none, or with an exception, a framework that cannot be used. */
const ext_host *ext_host_of(PyObject *o, enum ext_kind *kind);
const ext_host *ext_adopter(void); /* the one with adopt() */
/* The host that objects of this module belong to, by name: a dtype, a device. NULL: none. */
const ext_host *ext_host_of_module(PyObject *o);
int ext_hosts_setup(PyObject *module);

#endif
