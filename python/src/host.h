/* The seam for frameworks: what dovetail._core asks of one, as a table. A framework is a folder bridges/<name>/. The C files in
 * its folder host/ are compiled into the extension, and define `const ext_host ext_host_<name>`. CMake finds the folders.
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

typedef struct ext_call ext_call;
typedef struct ext_slot ext_slot;
typedef struct ext_operator ext_operator;

enum ext_outcome {
    EXT_OK = 0,
    EXT_SLOW = 1,    /* not plain: the call goes the framework's own way, which also says what is wrong */
    EXT_FAILED = -1, /* an exception is set; a framework with a way of its own is asked all the same */
    EXT_MIXED = -2   /* the same, and the framework is not asked */
};

/* What an object of a framework is to an operator. */
enum ext_kind { EXT_NOTHING, EXT_TENSOR, EXT_NUMBER };

/* The entries marked with a default may be NULL. All need the GIL, except those that a kernel may call (in dv_host). */
typedef struct ext_host {
    const char *name;                           /* the framework's module; its objects exist only where that is imported */
    const char *tensor_title, *generator_title; /* what a Tensor and a Generator is here, for messages. Default: no words */

    /* Once in each interpreter: space is the module _core.<name>, for what the framework's Python side needs. 0, or -1 with an
     * exception. Default: nothing. */
    int (*setup)(PyObject *space);
    /* Is an object of this type mine? The answer is kept when it is. NOTHING with an exception: the framework cannot be used. */
    enum ext_kind (*kind)(PyTypeObject *type);

    /* ---- a call, in this order ---- */

    /* Make c->host: what dv_call asks (new, view and copy of tensors, stream, random numbers, threads). It is the first member
     * of what the framework keeps for the call, in c->state. SLOW: this call cannot be plain. */
    enum ext_outcome (*begin)(ext_call *c);
    /* Describe a tensor; element is its place in a list, or -1. An object that is not a tensor of this host goes to
     * ext_other_tensor(). c->way may be set: then the call goes slow(), once all arguments are converted. While c->trial is set,
     * only the type counts, and *out may stay as it is. */
    enum ext_outcome (*tensor)(
        ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out);
    /* May this object, which is given for something else than a tensor, be converted here? Default: all may. */
    bool (*plain)(const ext_slot *slot, PyObject *o);
    /* Just before the kernel: what is given to be written is about to be (ext_each_written()). Default: nothing. */
    void (*writes)(ext_call *c);
    /* An object for a tensor that new_tensor or new_view made: takes it, also on failure. */
    PyObject *(*wrap)(ext_call *c, dv_tensor *take);
    /* The call failed, no exception is set: raise the framework's, or SLOW. Default: dovetail's errors. */
    enum ext_outcome (*failed)(ext_call *c, int status);
    /* After begin() went well: release what the call holds. c->ran: dv_call was called. Default: nothing. */
    void (*end)(ext_call *c);
    /* The framework's own way; begin() was not called, or end() was. Only NULL where nothing is ever SLOW. */
    PyObject *(*slow)(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames);

    /* A tensor of mine for an object of no host that has __dlpack__, or for a number of mine. One host has this: calls without
     * tensors are its, too. NULL with an exception. */
    PyObject *(*adopt)(PyObject *o);

    /* ---- objects that stand for something else than a tensor; each has a default ---- */

    PyObject *(*describe)(PyObject *o); /* for messages: "an array of float32 with shape (2,)". Default: its type */
    char (*number)(PyObject *o);     /* of mine: its element's kind, 'b', 'i', 'u', 'f', 'c' or another letter; 0: it has dims */
    PyObject *(*items)(PyObject *o); /* as a Python number, or a tensor of one dim as a list; NULL: it has more */
    int (*dtype)(PyObject *o, dv_dtype *out); /* 0; -1 with or without an exception */
    PyObject *(*dtype_object)(dv_dtype dtype);
    int (*seed)(PyObject *o, uint64_t *out); /* draw from a generator of mine: 1; 0: it is not one; -1 with an exception */

    /* ---- operators ---- */

    /* What the host keeps for an operator: in f->of_host. NULL with an exception. Default: nothing. */
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

/* The host that an object belongs to, and what it is there. NULL: none, or with an exception, a framework that cannot be used. */
const ext_host *ext_host_of(PyObject *o, enum ext_kind *kind);
const ext_host *ext_adopter(void); /* the one with adopt() */
/* The host that objects of this module belong to, by name: a dtype, a device. NULL: none. */
const ext_host *ext_host_of_module(PyObject *o);
int ext_hosts_setup(PyObject *module);

#endif
