/* dv_call for Python: the decision about the GIL, and results as Python objects.
 *
 * The GIL is released around the kernel unless the operator's last call was short (SHORT_TICKS of the processor's clock, a few
 * microseconds) and this one has at most twice as many elements. So the first call of an operator and every long one release it,
 * and a kernel that becomes long keeps it for one call. Releasing and reacquiring it costs about 50 ns; reading the clock 10.
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

/* ---- The GIL ------------------------------------------------------------------------------------------------------------- */

void ext_before_kernel(const dv_host *host)
{
    ext_call *c = ext_call_of(host);
    if (c->depth++)
        return;
    if (c->writes) {
        c->writes = false;
        c->of->writes(c);
    }
    const ext_operator *f = c->f;
    if (f->last_ticks > SHORT_TICKS || c->elements > 2 * f->last_elements) {
        c->thread = (unsigned long)pthread_self();
        c->released = PyEval_SaveThread();
    }
    c->started = ticks();
}

void ext_after_kernel(const dv_host *host)
{
    ext_call *c = ext_call_of(host);
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

ext_gil ext_take_gil(ext_call *c)
{
    ext_gil g = { NULL, PyGILState_LOCKED, false };
    if (c->released && c->thread == (unsigned long)pthread_self()) {
        g.own = c->released;
        PyEval_RestoreThread(g.own);
    } else if (c->released) {
        g.other = PyGILState_Ensure();
        g.has_other = true;
    }
    return g;
}

void ext_give_gil(ext_gil g)
{
    if (g.own)
        PyEval_SaveThread();
    else if (g.has_other)
        PyGILState_Release(g.other);
}

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

static PyObject *from_tensors(ext_call *c, const dv_tensors *list)
{
    PyObject *out = PyList_New((Py_ssize_t)list->size);
    for (size_t i = 0; i < list->size; i++) { /* all tensors are taken, also after a failure */
        dv_tensor *t = (dv_tensor *)(uintptr_t)(const void *)list->data[i];
        PyObject *array = !t ? Py_NewRef(Py_None) : c->of->wrap(c, t);
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
    return c->of->wrap(c, t);
}

static PyObject *from_complex(dv_complex z) { return PyComplex_FromDoubles(z.re, z.im); }

static PyObject *from_dtype(const ext_call *c, dv_dtype d)
{
    return (c->of->dtype_object ? c->of : ext_adopter())->dtype_object(d);
}

/* NULL without an exception: Python has no object for it. */
static PyObject *plain(const ext_call *c, const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_INT: return PyLong_FromLongLong(v->as.i);
    case DV_VALUE_FLOAT: return PyFloat_FromDouble(v->as.f);
    case DV_VALUE_BOOL: return PyBool_FromLong(v->as.b);
    case DV_VALUE_COMPLEX: return from_complex(v->as.c);
    case DV_VALUE_STRING: return PyUnicode_FromStringAndSize(v->as.s.data, (Py_ssize_t)v->as.s.size);
    case DV_VALUE_DTYPE: return from_dtype(c, v->as.dtype);
    case DV_VALUE_NONE: Py_RETURN_NONE;
    default: return NULL;
    }
}

static PyObject *to_python(ext_call *c, size_t i)
{
    const ext_slot *slot = &c->f->slots[c->f->nargs + i];
    const dv_value *v = &c->results[i];
    switch (v->type) {
    case DV_VALUE_TENSOR: return from_tensor(c, i, slot, v);
    case DV_VALUE_TENSORS: {
        PyObject *given = c->given[slot - c->f->slots];
        return given ? Py_NewRef(given) : from_tensors(c, &v->as.tensors);
    }
    default: break;
    }
    PyObject *o = plain(c, v);
    if (!o && !PyErr_Occurred() && slot->alias >= 0 && c->given[slot->alias])
        return Py_NewRef(c->given[slot->alias]);
    if (!o && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s: result %zu of type %s cannot be given to Python", c->f->name, i, slot->type_text);
    return o;
}

static PyObject *ext_results(ext_call *c)
{
    const size_t n = c->f->nresults;
    if (n == 1)
        return to_python(c, 0);
    if (!n)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; i < n; i++) { /* all of them, also after a failure: each may own something */
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

/* ---- Call sites ---------------------------------------------------------------------------------------------------------- */

static PyObject *site_tensor(ext_call *c, const dv_tensor *t)
{
    return t ? c->of->wrap(c, dv_tensor_ref((dv_tensor *)(uintptr_t)(const void *)t)) : Py_NewRef(Py_None);
}

static PyObject *site_scalar(const dv_scalar *s)
{
    return s->kind == DV_SCALAR_INT  ? PyLong_FromLongLong(s->as.i)
        : s->kind == DV_SCALAR_BOOL  ? PyBool_FromLong(s->as.b)
        : s->kind == DV_SCALAR_FLOAT ? PyFloat_FromDouble(s->as.f)
                                     : from_complex(s->as.c);
}

static PyObject *site_device(dv_device d) { return PyUnicode_FromFormat("%s:%d", dv_device_name(d.type), (int)d.id); }

/* Devices, layouts and memory formats become the words that a call takes. NULL without an exception: there is none. */
static PyObject *site_value(ext_call *c, const dv_value *v)
{
    PyObject *list = NULL, *item;
    switch (v->type) {
    case DV_VALUE_TENSOR: return site_tensor(c, v->as.tensor);
#define LIST(TYPE, member, make)                                             \
    case DV_VALUE_##TYPE:                                                    \
        list = PyList_New((Py_ssize_t)v->as.member.size);                    \
        for (size_t i = 0; list && i < v->as.member.size; i++)               \
            if (!(item = make) || PyList_SetItem(list, (Py_ssize_t)i, item)) \
                Py_CLEAR(list);                                              \
        return list;
        LIST(TENSORS, tensors, site_tensor(c, v->as.tensors.data[i]))
        LIST(INTS, ints, PyLong_FromLongLong(v->as.ints.data[i]))
        LIST(FLOATS, floats, PyFloat_FromDouble(v->as.floats.data[i]))
        LIST(BOOLS, bools, PyBool_FromLong(v->as.bools.data[i]))
        LIST(STRINGS, strings, PyUnicode_FromStringAndSize(v->as.strings.data[i].data, (Py_ssize_t)v->as.strings.data[i].size))
        LIST(SCALARS, scalars, site_scalar(&v->as.scalars.data[i]))
        LIST(COMPLEXES, complexes, from_complex(v->as.complexes.data[i]))
        LIST(DTYPES, dtypes, from_dtype(c, v->as.dtypes.data[i]))
        LIST(DEVICES, devices, site_device(v->as.devices.data[i]))
#undef LIST
    case DV_VALUE_DEVICE: return site_device(v->as.device);
    case DV_VALUE_LAYOUT: return ext_word(ext_layouts, v->as.layout.value);
    case DV_VALUE_MEMORY_FORMAT: return ext_word(ext_memory_formats, v->as.memory_format.value);
    default: return plain(c, v);
    }
}

static PyObject *site_arguments(ext_call *c, const dv_site *site)
{
    PyObject *args = PyDict_New();
    c->args = ext_alloc(c, c->f->nargs * sizeof *c->args); /* empty: no tensor is a view of an argument */
    if (c->args)
        memset(c->args, 0, c->f->nargs * sizeof *c->args);
    for (size_t i = 0; c->args && args && i < c->f->nargs; i++) {
        PyObject *o = site_value(c, &dv_site_args(site)[i]);
        if (!o && !PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s: argument '%U' of type %s cannot be given to Python", c->f->name,
                c->f->slots[i].name, c->f->slots[i].type_text);
        if (!o || PyDict_SetItem(args, c->f->slots[i].name, o))
            Py_CLEAR(args);
        Py_XDECREF(o);
    }
    if (!c->args)
        Py_CLEAR(args);
    return args;
}

PyObject *ext_site(const char *text)
{
    dv_site *site;
    int status = dv_site_parse(text, &site);
    if (!status && (status = dv_site_alloc(site)))
        dv_site_free(site);
    if (status)
        return ext_raise(status);
    ext_call c;
    memset(&c, 0, sizeof c);
    c.of = ext_adopter();
    c.f = (ext_operator *)(void *)ext_operator_new(dv_site_operator(site));
    PyObject *args = c.f ? site_arguments(&c, site) : NULL;
    PyObject *both = args ? PyTuple_Pack(2, (PyObject *)c.f, args) : NULL;
    Py_XDECREF(args);
    Py_XDECREF((PyObject *)c.f);
    dv_site_free(site);
    ext_call_end(&c);
    return both;
}

bool ext_is_tensor(const ext_call *c, int index)
{
    return index >= 0 && (size_t)index < c->f->nresults && c->f->slots[c->f->nargs + (size_t)index].type == DV_FIELD_TENSOR;
}

void ext_free_tensor(const dv_host *host, dv_tensor *t)
{
    ext_call *c = ext_call_of(host);
    for (size_t i = 0; i < c->f->nresults; i++)
        if (t == &c->made_tensors[i]) {
            const ext_gil g = ext_take_gil(c);
            Py_CLEAR(c->made[i]);
            ext_give_gil(g);
            return;
        }
    dv_tensor_unref(t);
}

/* Does an element of the tensor lie there? */
static bool holds(const dv_tensor *t, const void *place)
{
    int64_t low = 0, high = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        *(t->strides[i] < 0 ? &low : &high) += t->strides[i] * (t->shape[i] - 1);
    const char *data = t->data, *at = place;
    return dv_numel(t) && at >= data + low * (t->dtype.bits / 8) && at <= data + high * (t->dtype.bits / 8);
}

PyObject *ext_owner(const ext_call *c, const dv_tensor *t, const void *place, const dv_tensor **found)
{
    for (size_t i = 0; i < c->f->nargs; i++) {
        const dv_value *v = &c->args[i];
        const bool list = v->type == DV_VALUE_TENSORS;
        const size_t n = list ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n; k++) {
            const dv_tensor *x = list ? v->as.tensors.data[k] : v->as.tensor;
            if (!x || !(t ? x == t : holds(x, place)))
                continue;
            if (found)
                *found = x;
            return list ? PyTuple_GetItem(ext_list_items(c, i), (Py_ssize_t)k) : c->given[i];
        }
    }
    return NULL;
}

static void drop_tensor(PyObject *capsule) { dv_tensor_unref(PyCapsule_GetPointer(capsule, NULL)); }

PyObject *ext_keep_tensor(dv_tensor *take) { return PyCapsule_New(take, NULL, drop_tensor); }

int ext_tensor_new(dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    const dv_tensor dense = { .ndim = ndim, .shape = shape, .strides = strides };
    dv_tensor *memory = NULL;
    if (!strides || dv_tensor_is_contiguous(&dense))
        return dv_tensor_new(dtype, ndim, shape, out);
    const int64_t n = dv_numel(&dense);
    int status = dv_tensor_new(dtype, 1, &n, &memory);
    if (!status)
        status = dv_tensor_view(memory, ndim, shape, strides, 0, out);
    dv_tensor_unref(memory);
    return status;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

bool ext_any_given(const ext_call *c)
{
    for (size_t i = c->f->nargs; i < c->f->nargs + c->f->nresults; i++)
        if (c->given[i])
            return true;
    return false;
}

void ext_each_written(const ext_call *c, void (*fn)(PyObject *o))
{
    const ext_operator *f = c->f;
    for (size_t i = 0; i < f->nargs + f->nresults; i++) {
        PyObject *o = c->given[i];
        if (!o || Py_IsNone(o) || (i < f->nargs && !(f->slots[i].flags & DV_SLOT_WRITES)))
            continue;
        PyObject *items = f->slots[i].type == DV_FIELD_TENSOR ? NULL : ext_list_items(c, i);
        for (Py_ssize_t k = 0, n = items ? PyTuple_Size(items) : 1; k < n; k++) {
            PyObject *x = items ? PyTuple_GetItem(items, k) : o;
            if (!Py_IsNone(x))
                fn(x);
        }
    }
}

static const ext_host *host_of_elements(PyObject *o)
{
    const bool list = PyList_Check(o), other = !list && !PyTuple_Check(o);
    PyObject *items = !other ? Py_NewRef(o) : ext_is_sequence(o) ? PySequence_Tuple(o) : NULL;
    const ext_host *found = NULL;
    enum ext_kind kind = EXT_NOTHING;
    for (Py_ssize_t k = 0, n = !items ? 0 : list ? PyList_Size(items) : PyTuple_Size(items); k < n && kind != EXT_TENSOR; k++)
        found = ext_host_of(list ? PyList_GetItem(items, k) : PyTuple_GetItem(items, k), &kind);
    Py_XDECREF(items);
    return kind == EXT_TENSOR ? found : NULL;
}

/* Finds the host of a call: the host of its first tensor, also in a list. Without tensors it is the host with adopt(). Returns
 * NULL with an exception. */
static const ext_host *find_host(const ext_call *c)
{
    const ext_operator *f = c->f;
    const ext_host *found;
    enum ext_kind kind;
    for (size_t i = f->first_tensor; i < f->nargs + f->nresults; i++) {
        PyObject *o = c->given[i];
        if (!o || (f->slots[i].type != DV_FIELD_TENSOR && f->slots[i].type != DV_FIELD_TENSORS))
            continue;
        if ((found = ext_host_of(o, &kind)) && kind == EXT_TENSOR)
            return found;
        if ((found = host_of_elements(o)))
            return found;
        if (!ext_clear_error()) /* a framework that cannot be used reports that when it is used */
            return NULL;
    }
    return ext_adopter();
}

static enum ext_outcome begin(ext_call *c)
{
    c->of = find_host(c);
    if (!c->of)
        return EXT_MIXED;
    const enum ext_outcome outcome = c->purpose == EXT_TRIAL ? EXT_OK : c->of->begin(c);
    if (outcome)
        return c->way = -1, outcome;
    c->begun = c->purpose != EXT_TRIAL;
    return ext_convert_all(c);
}

enum ext_outcome ext_call_begin(
    ext_call *c, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, enum ext_purpose purpose)
{
    const size_t n = f->nargs + f->nresults;
    c->of = NULL;
    c->begun = c->ran = c->writes = false;
    c->purpose = purpose;
    c->way = 0;
    c->f = f;
    c->keep = NULL;
    c->lists = NULL;
    c->late = false;
    c->elements = 0;
    c->released = NULL;
    c->depth = 0;
    c->blocks = NULL;
    c->used = 0;
    c->made = NULL;
    char *p = ext_alloc(c, n * (sizeof *c->args + sizeof *c->given) + f->nresults * (sizeof *c->made_tensors + sizeof *c->made));
    if (!p)
        return EXT_MIXED;
    c->args = (dv_value *)(void *)p;
    c->results = c->args + f->nargs;
    c->made_tensors = (dv_tensor *)(void *)(c->args + n);
    c->given = (PyObject **)(void *)(c->made_tensors + f->nresults);
    c->made = c->given + n;
    memset(c->given, 0, (n + f->nresults) * sizeof *c->given);
    return ext_bind(c, args, nargs, kwnames) ? EXT_MIXED : begin(c);
}

static void close_host(ext_call *c)
{
    if (c->begun && c->of->end)
        c->of->end(c);
    c->begun = false;
}

void ext_call_end(ext_call *c)
{
    close_host(c);
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

enum ext_outcome ext_call_run(ext_call *c, PyObject **result)
{
    const ext_operator *f = c->f;
    c->ran = true;
    c->writes = c->of->writes && (f->mutates || ext_any_given(c));
    if (ext_shows_calls)
        ext_show_call(c);
    const int status = dv_call(f->op, c->args, f->nargs, c->results, f->nresults, &c->host);
    if (!status) {
        if (c->writes) /* there was no kernel */
            c->of->writes(c);
        *result = ext_results(c);
        return *result ? EXT_OK : EXT_FAILED;
    }
    if (!PyErr_Occurred() && c->of->failed)
        return c->of->failed(c, status);
    ext_raise(status);
    return EXT_FAILED;
}

PyObject *ext_call_bridge(const ext_host *host, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *path = PyUnicode_FromFormat("dovetail.%s", host->name), *module = path ? PyImport_Import(path) : NULL;
    PyObject *tuple = PyTuple_New(nargs), *dict = PyDict_New(), *result = NULL;
    if (!module || !tuple || !dict)
        goto done;
    for (Py_ssize_t i = 0; i < nargs; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0, n = kwnames ? PyTuple_Size(kwnames) : 0; i < n; i++)
        if (PyDict_SetItem(dict, PyTuple_GetItem(kwnames, i), args[nargs + i]))
            goto done;
    result = PyObject_CallMethod(module, "_call", "OOO", (PyObject *)f, tuple, dict);
done:
    Py_XDECREF(path);
    Py_XDECREF(module);
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return result;
}

PyObject *ext_call_finish(ext_call *c, enum ext_outcome outcome, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *result = NULL;
    if (!outcome)
        outcome = ext_call_run(c, &result);
    if (outcome == EXT_SLOW) {
        close_host(c);
        result = c->of->slow(c, args, nargsf, kwnames);
    }
    ext_call_end(c);
    return result;
}

PyObject *ext_call_operator(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_call c;
    ext_operator *f = (ext_operator *)(void *)self;
    const enum ext_outcome outcome = ext_call_begin(&c, f, args, EXT_NARGS(nargsf), kwnames, EXT_CALL);
    return ext_call_finish(&c, outcome, args, nargsf, kwnames);
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
