/* dv_call for Python: a host that makes arrays, and the decision about the GIL.
 *
 * The GIL is let go around the kernel unless the operator's last call was short (SHORT_TICKS of the processor's clock, a few
 * microseconds) and this one has at most twice as many elements. So the first call of an operator and every long one let it go,
 * and a kernel that was short and is long now holds it once. Letting go and taking it back costs about 50 ns; looking at the
 * clock 10.
 */
#include "extension.h"

#include <pthread.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
enum { SHORT_TICKS = 10000 }; /* 2 to 5 us at 2 to 5 GHz */
static uint64_t ticks(void) { return __rdtsc(); }
#else
enum { SHORT_TICKS = 3000 };
static uint64_t ticks(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

/* ---- Memory of a call ---------------------------------------------------------------------------------------------------- */

void *ext_alloc(ext_call *c, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size <= EXT_MEMORY - c->used) {
        void *p = c->memory + c->used;
        c->used += size;
        return p;
    }
    ext_block *block = PyMem_Malloc(16 + size);
    if (!block) {
        PyErr_NoMemory();
        return NULL;
    }
    block->next = c->blocks;
    c->blocks = block;
    return (char *)block + 16;
}

int ext_keep_object(ext_call *c, PyObject *take)
{
    ext_keep *k = ext_alloc(c, sizeof *k);
    if (!k) {
        Py_DECREF(take);
        return -1;
    }
    k->object = take;
    k->next = c->keep;
    c->keep = k;
    return 0;
}

/* ---- The host ------------------------------------------------------------------------------------------------------------ */

static ext_call *call_of(const dv_host *host) { return (ext_call *)(uintptr_t)(const void *)host; }

void ext_before_kernel(const dv_host *host)
{
    ext_call *c = call_of(host);
    if (c->depth++)
        return;
    if (c->writes)
        ext_torch_count_writes(c);
    const ext_operator *f = c->f;
    if (f->last_ticks > SHORT_TICKS || c->elements > 2 * f->last_elements) {
        c->thread = (unsigned long)pthread_self();
        c->released = PyEval_SaveThread();
    }
    c->started = ticks();
}

void ext_after_kernel(const dv_host *host)
{
    ext_call *c = call_of(host);
    if (--c->depth)
        return;
    const uint64_t took = ticks() - c->started;
    if (c->released) {
        PyThreadState *state = c->released;
        c->released = NULL;
        PyEval_RestoreThread(state);
    }
    c->f->last_ticks = took;
    c->f->last_elements = c->elements;
}

/* Entries that need Python may be called by a kernel, without the GIL, from its own thread or another. */
typedef struct gil {
    PyThreadState *own;
    PyGILState_STATE other;
    bool has_other;
} gil;
static gil take_gil(ext_call *c)
{
    gil g = { NULL, PyGILState_LOCKED, false };
    if (c->released && c->thread == (unsigned long)pthread_self()) {
        g.own = c->released;
        PyEval_RestoreThread(g.own);
    } else if (c->released) {
        g.other = PyGILState_Ensure();
        g.has_other = true;
    }
    return g;
}
static void give_gil(gil g)
{
    if (g.own)
        PyEval_SaveThread();
    else if (g.has_other)
        PyGILState_Release(g.other);
}

static int new_array(
    ext_call *c, int index, dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    if (dvnp_setup(true) < 0)
        return DV_EHOST;
    PyObject *array = dvnp_new(dtype, ndim, shape, strides);
    if (!array)
        return PyErr_ExceptionMatches(PyExc_MemoryError) ? DV_ENOMEM : DV_EHOST;
    dv_tensor *t = &c->made_tensors[index];
    int64_t *own = ext_alloc(c, (size_t)(ndim ? ndim : 1) * sizeof *own);
    const char *why = own ? dvnp_view(array, true, own, t) : "out of memory";
    if (why) {
        Py_DECREF(array);
        return DV_EHOST;
    }
    Py_XDECREF(c->made[index]);
    c->made[index] = array;
    *out = t;
    return DV_OK;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    ext_call *c = call_of(host);
    *out = NULL;
    if (device.type != DV_CPU)
        return dv_fail(DV_EDEVICE, "%s: a result on %s cannot be an array", c->f->name, dv_device_name(device.type));
    if (index < 0 || (size_t)index >= c->f->nresults || c->f->slots[c->f->nargs + (size_t)index].type != DV_FIELD_TENSOR)
        return dv_tensor_new(dtype, ndim, shape, out);
    gil g = take_gil(c);
    const int status = new_array(c, index, dtype, ndim, shape, strides, out);
    give_gil(g);
    return status;
}

/* The object whose memory this tensor is: an argument. */
static PyObject *owner_of(const ext_call *c, const dv_tensor *t)
{
    for (size_t i = 0; i < c->f->nargs; i++)
        if (c->args[i].type == DV_VALUE_TENSOR && c->args[i].as.tensor == t)
            return c->given[i];
    return NULL;
}

static int view_array(ext_call *c, int index, const dv_tensor *base, dv_tensor *t)
{
    PyObject *owner = owner_of(c, base);
    if (!owner || !dvnp_is_array(owner))
        return dv_fail(DV_ENOTSUP, "%s: result %d is a view of what is not an array", c->f->name, index);
    PyObject *array = dvnp_wrap(t, owner, dvnp_is_writeable(owner));
    if (!array)
        return DV_EHOST;
    Py_XDECREF(c->made[index]);
    c->made[index] = array;
    return DV_OK;
}

static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    ext_call *c = call_of(host);
    *out = NULL;
    if (index < 0 || (size_t)index >= c->f->nresults || c->f->slots[c->f->nargs + (size_t)index].type != DV_FIELD_TENSOR)
        return dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    gil g = take_gil(c);
    int status = DV_ENOMEM;
    int64_t *own = ext_alloc(c, (size_t)(ndim ? 2 * ndim : 2) * sizeof *own);
    if (own) {
        dv_tensor *t = &c->made_tensors[index];
        *t = *base;
        t->data = (char *)base->data + offset * (base->dtype.bits / 8);
        t->ndim = ndim;
        t->shape = memcpy(own, shape, (size_t)ndim * sizeof *own);
        t->strides = memcpy(own + ndim, strides, (size_t)ndim * sizeof *own);
        if (!(status = view_array(c, index, base, t)))
            *out = t;
    }
    give_gil(g);
    return status;
}

static void free_tensor(const dv_host *host, dv_tensor *t)
{
    ext_call *c = call_of(host);
    for (size_t i = 0; i < c->f->nresults; i++)
        if (t == &c->made_tensors[i]) {
            gil g = take_gil(c);
            Py_CLEAR(c->made[i]);
            give_gil(g);
            return;
        }
    dv_tensor_unref(t);
}

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

static void drop_tensor(PyObject *capsule) { dv_tensor_unref(PyCapsule_GetPointer(capsule, NULL)); }

/* A tensor that the library made: the array keeps it. */
static PyObject *from_owned_tensor(dv_tensor *take)
{
    PyObject *capsule = PyCapsule_New(take, NULL, drop_tensor);
    if (!capsule) {
        dv_tensor_unref(take);
        return NULL;
    }
    PyObject *array = dvnp_setup(true) < 0 ? NULL : dvnp_wrap(take, capsule, true);
    Py_DECREF(capsule);
    return array;
}

static PyObject *from_made(const ext_call *c, dv_tensor *take)
{
    return c->by_torch ? ext_torch_wrap(take) : from_owned_tensor(take);
}

static PyObject *from_tensors(const ext_call *c, const dv_tensors *list)
{
    PyObject *out = PyList_New((Py_ssize_t)list->size);
    for (size_t i = 0; i < list->size; i++) { /* all are taken, whatever happens */
        dv_tensor *t = (dv_tensor *)(uintptr_t)(const void *)list->data[i];
        PyObject *array = !t ? Py_NewRef(Py_None) : from_made(c, t);
        if (!array)
            Py_CLEAR(out);
        else if (out)
            PyList_SetItem(out, (Py_ssize_t)i, array);
        else
            Py_DECREF(array);
    }
    dv_free((void *)(uintptr_t)(const void *)list->data);
    return out;
}

static PyObject *from_tensor(ext_call *c, size_t i, const ext_slot *slot, const dv_value *v)
{
    if (c->given[slot - c->f->slots])
        return Py_NewRef(c->given[slot - c->f->slots]);
    if (slot->alias >= 0 && c->given[slot->alias] && (c->f->slots[slot->alias].flags & DV_SLOT_WRITES))
        return Py_NewRef(c->given[slot->alias]);
    if (c->made[i]) {
        PyObject *array = c->made[i];
        c->made[i] = NULL;
        return array;
    }
    dv_tensor *t = (dv_tensor *)(uintptr_t)(const void *)v->as.tensor;
    return from_made(c, t);
}

static PyObject *to_python(ext_call *c, size_t i)
{
    const ext_slot *slot = &c->f->slots[c->f->nargs + i];
    const dv_value *v = &c->results[i];
    switch (v->type) {
    case DV_VALUE_TENSOR: return from_tensor(c, i, slot, v);
    case DV_VALUE_TENSORS:
        return slot->alias >= 0 && c->given[slot->alias] ? Py_NewRef(c->given[slot->alias]) : from_tensors(c, &v->as.tensors);
    case DV_VALUE_INT: return PyLong_FromLongLong(v->as.i);
    case DV_VALUE_FLOAT: return PyFloat_FromDouble(v->as.f);
    case DV_VALUE_BOOL: return PyBool_FromLong(v->as.b);
    case DV_VALUE_COMPLEX: return PyComplex_FromDoubles(v->as.c.re, v->as.c.im);
    case DV_VALUE_STRING: return PyUnicode_FromStringAndSize(v->as.s.data, (Py_ssize_t)v->as.s.size);
    case DV_VALUE_DTYPE: return dvnp_setup(true) < 0 ? NULL : dvnp_dtype_object(v->as.dtype);
    case DV_VALUE_NONE: Py_RETURN_NONE;
    default:
        if (slot->alias >= 0 && c->given[slot->alias])
            return Py_NewRef(c->given[slot->alias]);
        PyErr_Format(PyExc_TypeError, "%s: result %zu of type %s cannot be given to Python", c->f->name, i, slot->type_text);
        return NULL;
    }
}

PyObject *ext_results(ext_call *c)
{
    const size_t n = c->f->nresults;
    if (n == 1)
        return to_python(c, 0);
    if (!n)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; i < n; i++) { /* all of them: each may own something */
        PyObject *o = to_python(c, i);
        if (!o)
            Py_CLEAR(tuple);
        else if (tuple)
            PyTuple_SetItem(tuple, (Py_ssize_t)i, o);
        else
            Py_DECREF(o);
    }
    return tuple;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

enum ext_outcome ext_convert_all(ext_call *c)
{
    const ext_operator *f = c->f;
    for (size_t i = 0; i < f->nargs + f->nresults; i++) {
        if (!c->given[i]) {
            c->args[i].type = DV_VALUE_DEFAULT;
            continue;
        }
        enum ext_outcome outcome = i < f->nargs ? ext_convert(c, &f->slots[i], c->given[i], &c->args[i])
                                                : ext_convert_result(c, &f->slots[i], c->given[i], &c->args[i]);
        if (outcome)
            return outcome;
    }
    return EXT_OK;
}

static const dv_host arrays = { .size = sizeof(dv_host),
    .name = "numpy",
    .new_tensor = new_tensor,
    .new_view = new_view,
    .free_tensor = free_tensor,
    .random = ext_random,
    .before_kernel = ext_before_kernel,
    .after_kernel = ext_after_kernel };

enum ext_outcome ext_call_begin(ext_call *c, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const size_t n = f->nargs + f->nresults;
    c->by_torch = c->writes = false;
    c->f = f;
    c->keep = NULL;
    c->elements = 0;
    c->released = NULL;
    c->depth = 0;
    c->blocks = NULL;
    c->used = 0;
    c->made = NULL;
    char *p = ext_alloc(c, n * (sizeof *c->args + sizeof *c->given) + f->nresults * (sizeof *c->made_tensors + sizeof *c->made));
    if (!p)
        return EXT_FAILED;
    c->args = (dv_value *)(void *)p;
    c->results = c->args + f->nargs;
    c->made_tensors = (dv_tensor *)(void *)(c->args + n);
    c->given = (PyObject **)(void *)(c->made_tensors + f->nresults);
    c->made = c->given + n;
    memset(c->given, 0, (n + f->nresults) * sizeof *c->given);
    if (ext_bind(c, args, nargs, kwnames))
        return EXT_FAILED;
    if (nargs && f->nargs && f->slots[0].type == DV_FIELD_TENSOR && dvt_is_exact(args[0])) /* as the first conversion would say */
        return EXT_BRIDGE;
    c->host = arrays;
    c->host.row = ext_row;
    return ext_convert_all(c);
}

void ext_call_end(ext_call *c)
{
    for (size_t i = 0; c->made && i < c->f->nresults; i++)
        Py_XDECREF(c->made[i]);
    for (ext_keep *k = c->keep; k; k = k->next)
        Py_DECREF(k->object);
    while (c->blocks) {
        ext_block *next = c->blocks->next;
        PyMem_Free(c->blocks);
        c->blocks = next;
    }
}

PyObject *ext_call_bridge(const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *module = PyImport_ImportModule("dovetail.torch"), *result = NULL;
    PyObject *tuple = PyTuple_New(nargs), *dict = PyDict_New();
    if (!module || !tuple || !dict)
        goto done;
    for (Py_ssize_t i = 0; i < nargs; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0, n = kwnames ? PyTuple_Size(kwnames) : 0; i < n; i++)
        if (PyDict_SetItem(dict, PyTuple_GetItem(kwnames, i), args[nargs + i]))
            goto done;
    result = PyObject_CallMethod(module, "_call", "sOO", name, tuple, dict);
done:
    Py_XDECREF(module);
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return result;
}

PyObject *ext_call_operator(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_operator *f = (ext_operator *)(void *)self;
    const Py_ssize_t nargs = EXT_NARGS(nargsf);
    PyObject *result = NULL;
    ext_call c;
    const enum ext_outcome outcome = ext_call_begin(&c, f, args, nargs, kwnames);
    if (outcome == EXT_BRIDGE) {
        result = ext_torch_call(&c, args, nargsf, kwnames);
    } else if (!outcome) {
        const int status = dv_call(f->op, c.args, f->nargs, c.results, f->nresults, &c.host);
        result = status ? ext_raise(status) : ext_results(&c);
    }
    ext_call_end(&c);
    return result;
}

/* The overloads in order, until the arguments fit one: as PyTorch's packets do. */
PyObject *ext_call_packet(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_operator *packet = (ext_operator *)(void *)self;
    const Py_ssize_t nargs = EXT_NARGS(nargsf), n = PyTuple_Size(packet->overloads);
    PyObject *why = PyUnicode_FromString(""), *result = NULL;
    for (Py_ssize_t i = 0; i < nargs + (kwnames ? PyTuple_Size(kwnames) : 0); i++)
        if (ext_is_foreign(args[i])) {
            Py_XDECREF(why);
            PyObject *only = ext_torch_pick(packet->overloads, args, nargs, kwnames);
            return only ? ext_call_operator(only, args, nargsf, kwnames) : ext_call_bridge(packet->name, args, nargs, kwnames);
        }
    for (Py_ssize_t i = 0; i < n && why; i++) {
        ext_operator *f = (ext_operator *)(void *)PyTuple_GetItem(packet->overloads, i);
        ext_call c;
        const enum ext_outcome outcome = ext_call_begin(&c, f, args, nargs, kwnames);
        bool done = true;
        if (!outcome) {
            const int status = dv_call(f->op, c.args, f->nargs, c.results, f->nresults, &c.host);
            result = status ? ext_raise(status) : ext_results(&c);
        } else if (outcome == EXT_BRIDGE) {
            result = ext_call_bridge(packet->name, args, nargs, kwnames);
        } else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyObject *type, *value, *trace;
            PyErr_Fetch(&type, &value, &trace);
            PyObject *longer = PyUnicode_FromFormat("%U\n  %S", why, value ? value : Py_None);
            Py_DECREF(why);
            why = longer;
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(trace);
            done = false;
        }
        ext_call_end(&c);
        if (done) {
            Py_XDECREF(why);
            return result;
        }
    }
    if (why)
        PyErr_Format(PyExc_TypeError, "%s: no overload takes these arguments:%U", packet->name, why);
    Py_XDECREF(why);
    return NULL;
}

PyObject *ext_raise(int status)
{
    if (PyErr_Occurred())
        return NULL;
    PyObject *module = PyImport_ImportModule("dovetail._errors");
    PyObject *error = module ? PyObject_CallMethod(module, "make", "ss", dv_status_name(status), dv_last_error()) : NULL;
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(module);
    return NULL;
}
