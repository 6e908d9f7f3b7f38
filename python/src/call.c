/* dv_call for Python: the decision about the GIL, and results as Python objects.
 *
 * The GIL is released around the kernel unless the operator's last call was short (MAX_SHORT_TICKS of the processor's clock, a
 * few microseconds) and this one has at most twice as many elements. So the first call of an operator and every long one release
 * it, and a kernel that becomes long keeps it for one call. Releasing and reacquiring it costs about 50 ns; reading the clock 10.
 */
#include "extension.h"

#include <pthread.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
enum { MAX_SHORT_TICKS = 10000 }; /* 2 to 5 us at 2 to 5 GHz */
static uint64_t read_ticks(void) { return __rdtsc(); }
#else
enum { MAX_SHORT_TICKS = 3000 };
static uint64_t read_ticks(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

/* ---- The GIL ------------------------------------------------------------------------------------------------------------- */

void ext_before_kernel(const dv_host *host)
{
    ext_call *c = ext_call_of(host);
    if (c->kernel_depth++)
        return;
    if (c->must_notify_writes) {
        c->must_notify_writes = false;
        c->host_table->notify_writes(c);
    }
    const ext_operator *f = c->f;
    if (f->last_ticks > MAX_SHORT_TICKS || c->passed_numel > 2 * f->last_numel) {
        c->releasing_thread = (unsigned long)pthread_self();
        c->released_state = PyEval_SaveThread();
    }
    c->kernel_start_ticks = read_ticks();
}

void ext_after_kernel(const dv_host *host)
{
    ext_call *c = ext_call_of(host);
    if (--c->kernel_depth)
        return;
    const uint64_t took = read_ticks() - c->kernel_start_ticks;
    if (c->released_state) {
        PyThreadState *state = c->released_state;
        c->released_state = NULL;
        PyEval_RestoreThread(state);
    }
    c->f->last_ticks = took;
    c->f->last_numel = c->passed_numel;
}

ext_gil ext_acquire_gil(ext_call *c)
{
    ext_gil g = { NULL, PyGILState_LOCKED, false };
    if (c->released_state && c->releasing_thread == (unsigned long)pthread_self()) {
        g.thread_state = c->released_state;
        PyEval_RestoreThread(g.thread_state);
    } else if (c->released_state) {
        g.gil_state = PyGILState_Ensure();
        g.has_gil_state = true;
    }
    return g;
}

void ext_release_gil(ext_gil g)
{
    if (g.thread_state)
        PyEval_SaveThread();
    else if (g.has_gil_state)
        PyGILState_Release(g.gil_state);
}

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

/* Returns a Python list of the host's objects for the tensors of a result. Takes the tensors and frees their array, also on
 * failure. NULL with an exception. */
static PyObject *result_tensors_to_python(ext_call *c, const dv_tensors *list)
{
    PyObject *out = PyList_New((Py_ssize_t)list->size);
    for (size_t i = 0; i < list->size; i++) { /* all tensors are wrapped or freed, also after a failure */
        dv_tensor *t = (dv_tensor *)(uintptr_t)(const void *)list->data[i];
        PyObject *array = !t ? Py_NewRef(Py_None) : c->host_table->wrap_tensor(c, t);
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

/* Returns the Python object of a result that is a tensor: the object that the caller passed for it, or for the written argument
 * that it is, or a new one. NULL with an exception. */
static PyObject *result_tensor_to_python(ext_call *c, size_t result_index, const ext_slot *slot, const dv_value *v)
{
    if (c->passed[slot - c->f->slots])
        return Py_NewRef(c->passed[slot - c->f->slots]);
    if (slot->info.alias >= 0 && c->passed[slot->info.alias] && (c->f->slots[slot->info.alias].info.flags & DV_SLOT_WRITES))
        return Py_NewRef(c->passed[slot->info.alias]);
    if (c->result_objects[result_index]) {
        PyObject *array = c->result_objects[result_index];
        c->result_objects[result_index] = NULL;
        return array;
    }
    dv_tensor *t = (dv_tensor *)(uintptr_t)(const void *)v->as.tensor;
    return c->host_table->wrap_tensor(c, t);
}

static PyObject *complex_to_python(dv_complex z) { return PyComplex_FromDoubles(z.re, z.im); }

/* Returns the object for a dtype of the call's host, or of the host with import_object(). NULL with an exception. */
static PyObject *dtype_to_python(const ext_call *c, dv_dtype d)
{
    return (c->host_table->make_dtype_object ? c->host_table : ext_find_importer())->make_dtype_object(d);
}

/* Returns the Python object of a value of a type other than Tensor and lists. NULL without an exception: Python has no object for
 * it. */
static PyObject *value_to_python(const ext_call *c, const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_INT: return PyLong_FromLongLong(v->as.i);
    case DV_VALUE_FLOAT: return PyFloat_FromDouble(v->as.f);
    case DV_VALUE_BOOL: return PyBool_FromLong(v->as.b);
    case DV_VALUE_COMPLEX: return complex_to_python(v->as.c);
    case DV_VALUE_STRING: return PyUnicode_FromStringAndSize(v->as.s.data, (Py_ssize_t)v->as.s.size);
    case DV_VALUE_DTYPE: return dtype_to_python(c, v->as.dtype);
    case DV_VALUE_NONE: Py_RETURN_NONE;
    default: return NULL;
    }
}

/* Returns the Python object of a result. NULL with an exception. */
static PyObject *result_to_python(ext_call *c, size_t result_index)
{
    const ext_slot *slot = &c->f->slots[c->f->nargs + result_index];
    const dv_value *v = &c->results[result_index];
    switch (v->type) {
    case DV_VALUE_TENSOR: return result_tensor_to_python(c, result_index, slot, v);
    case DV_VALUE_TENSORS: {
        PyObject *given = c->passed[slot - c->f->slots];
        return given ? Py_NewRef(given) : result_tensors_to_python(c, &v->as.tensors);
    }
    default: break;
    }
    PyObject *o = value_to_python(c, v);
    if (!o && !PyErr_Occurred() && slot->info.alias >= 0 && c->passed[slot->info.alias])
        return Py_NewRef(c->passed[slot->info.alias]);
    if (!o && !PyErr_Occurred())
        PyErr_Format(
            PyExc_TypeError, "%s: result %zu of type %s cannot be given to Python", c->f->name, result_index, slot->type_text);
    return o;
}

/* Returns the results of a call as Python gets them: None, one object, or a tuple. NULL with an exception. */
static PyObject *call_make_results(ext_call *c)
{
    const size_t n = c->f->nresults;
    if (n == 1)
        return result_to_python(c, 0);
    if (!n)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; i < n; i++) { /* every result is converted, also after a failure: each may own something */
        PyObject *o = result_to_python(c, i);
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

/* Returns the host's object for a tensor of a call site, of which the site keeps a reference. NULL with an exception. */
static PyObject *site_tensor_to_python(ext_call *c, const dv_tensor *t)
{
    return c->host_table->wrap_tensor(c, dv_tensor_ref((dv_tensor *)(uintptr_t)(const void *)t));
}

/* Returns the Python object of an argument of a call site. Devices, layouts and memory formats become the words that a call
 * accepts. NULL without an exception: Python has no object for it. */
static PyObject *site_value_to_python(ext_call *c, const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_TENSOR: return site_tensor_to_python(c, v->as.tensor);
    case DV_VALUE_DEVICE: return PyUnicode_FromFormat("%s:%d", dv_device_name(v->as.device.type), (int)v->as.device.id);
    case DV_VALUE_LAYOUT: return ext_make_word(ext_layouts, v->as.layout.value);
    case DV_VALUE_MEMORY_FORMAT: return ext_make_word(ext_memory_formats, v->as.memory_format.value);
    default: break;
    }
    if (dv_field_of_value(v->type)->form != DV_FORM_LIST)
        return value_to_python(c, v);
    PyObject *list = PyList_New((Py_ssize_t)v->as.ints.size), *item; /* all lists have one layout */
    for (size_t i = 0; list && i < v->as.ints.size; i++) {
        const dv_value element = dv_value_element(v, i);
        if (!(item = site_value_to_python(c, &element)) || PyList_SetItem(list, (Py_ssize_t)i, item))
            Py_CLEAR(list);
    }
    return list;
}

/* Returns a dict of a call site's arguments by name. NULL with an exception. */
static PyObject *site_arguments_to_python(ext_call *c, const dv_site *site)
{
    PyObject *args = PyDict_New();
    /* no arguments: so no tensor of the site counts as a view of one */
    c->args = ext_call_alloc(c, c->f->nargs * sizeof *c->args);
    if (c->args)
        memset(c->args, 0, c->f->nargs * sizeof *c->args);
    for (size_t i = 0; c->args && args && i < c->f->nargs; i++) {
        PyObject *o = site_value_to_python(c, &dv_site_args(site)[i]);
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

PyObject *ext_site_arguments(ext_operator *f, const dv_site *site)
{
    ext_call c;
    memset(&c, 0, sizeof c);
    c.host_table = ext_find_importer();
    c.f = f;
    PyObject *args = site_arguments_to_python(&c, site);
    ext_call_end(&c);
    return args;
}

bool ext_is_result_tensor(const ext_call *c, int index)
{
    return index >= 0 && (size_t)index < c->f->nresults && c->f->slots[c->f->nargs + (size_t)index].info.type == DV_FIELD_TENSOR;
}

void ext_free_tensor(const dv_host *host, dv_tensor *t)
{
    ext_call *c = ext_call_of(host);
    for (size_t i = 0; i < c->f->nresults; i++)
        if (t == &c->result_tensors[i]) {
            const ext_gil g = ext_acquire_gil(c);
            Py_CLEAR(c->result_objects[i]);
            ext_release_gil(g);
            return;
        }
    dv_tensor_unref(t);
}

/* True if an address lies between the lowest and the highest element of a tensor, both included. */
static bool tensor_range_contains(const dv_tensor *t, const void *address)
{
    int64_t low = 0, high = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        *(t->strides[i] < 0 ? &low : &high) += t->strides[i] * (t->shape[i] - 1);
    const char *data = t->data, *at = address;
    return dv_numel(t) && at >= data + low * (t->dtype.bits / 8) && at <= data + high * (t->dtype.bits / 8);
}

PyObject *ext_find_owner(const ext_call *c, const dv_tensor *t, const void *address, const dv_tensor **found)
{
    for (size_t i = 0; i < c->f->nargs; i++) {
        const dv_value *v = &c->args[i];
        const bool list = v->type == DV_VALUE_TENSORS;
        const size_t n = list ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n; k++) {
            const dv_tensor *x = list ? v->as.tensors.data[k] : v->as.tensor;
            if (!x || !(t ? x == t : tensor_range_contains(x, address)))
                continue;
            if (found)
                *found = x;
            return list ? PyTuple_GetItem(ext_find_list_items(c, i), (Py_ssize_t)k) : c->passed[i];
        }
    }
    return NULL;
}

static void tensor_capsule_free(PyObject *capsule) { dv_tensor_unref(PyCapsule_GetPointer(capsule, NULL)); }

PyObject *ext_make_tensor_capsule(dv_tensor *take) { return PyCapsule_New(take, NULL, tensor_capsule_free); }

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

static dv_test_hooks hooks; /* read by every call */

void ext_set_row(int32_t row) { hooks.kernel_number = row; }

const dv_test_hooks *ext_get_test_hooks(void) { return hooks.kernel_number ? &hooks : NULL; }

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

bool ext_has_given_result(const ext_call *c)
{
    for (size_t i = c->f->nargs; i < c->f->nargs + c->f->nresults; i++)
        if (c->passed[i])
            return true;
    return false;
}

void ext_for_each_written(const ext_call *c, void (*fn)(PyObject *o))
{
    const ext_operator *f = c->f;
    for (size_t i = 0; i < f->nargs + f->nresults; i++) {
        PyObject *o = c->passed[i];
        if (!o || Py_IsNone(o) || (i < f->nargs && !(f->slots[i].info.flags & DV_SLOT_WRITES)))
            continue;
        PyObject *items = f->slots[i].info.type == DV_FIELD_TENSOR ? NULL : ext_find_list_items(c, i);
        for (Py_ssize_t k = 0, n = items ? PyTuple_Size(items) : 1; k < n; k++) {
            PyObject *x = items ? PyTuple_GetItem(items, k) : o;
            if (!Py_IsNone(x))
                fn(x);
        }
    }
}

/* Returns the host of the first tensor in a list, tuple or other sequence. NULL: there is no tensor, or an exception is set. */
static const ext_host *call_find_host_of_elements(PyObject *sequence)
{
    const bool list = PyList_Check(sequence), other = !list && !PyTuple_Check(sequence);
    PyObject *items = !other ? Py_NewRef(sequence) : ext_is_sequence(sequence) ? PySequence_Tuple(sequence) : NULL;
    const ext_host *found = NULL;
    enum ext_kind kind = EXT_KIND_NONE;
    for (Py_ssize_t k = 0,
                    n = !items ? 0
            : list             ? PyList_Size(items)
                               : PyTuple_Size(items);
        k < n && kind != EXT_KIND_TENSOR; k++)
        found = ext_find_host(list ? PyList_GetItem(items, k) : PyTuple_GetItem(items, k), &kind);
    Py_XDECREF(items);
    return kind == EXT_KIND_TENSOR ? found : NULL;
}

/* Finds the host of a call: the host of its first tensor, also in a list. Without tensors it is the host with import_object().
 * Returns NULL with an exception. */
static const ext_host *call_find_host(const ext_call *c)
{
    const ext_operator *f = c->f;
    const ext_host *found;
    enum ext_kind kind;
    for (size_t i = f->first_tensor_slot; i < f->nargs + f->nresults; i++) {
        PyObject *o = c->passed[i];
        if (!o || (f->slots[i].info.type != DV_FIELD_TENSOR && f->slots[i].info.type != DV_FIELD_TENSORS))
            continue;
        if ((found = ext_find_host(o, &kind)) && kind == EXT_KIND_TENSOR)
            return found;
        if ((found = call_find_host_of_elements(o)))
            return found;
        /* the exception of a framework that cannot be used is dropped here: a use of the framework raises it again */
        if (!ext_try_clear_error())
            return NULL;
    }
    return ext_find_importer();
}

/* Finds the host of a call, begins the call in the host, and converts the arguments. Returns the outcome. */
static enum ext_outcome call_begin_host(ext_call *c)
{
    c->host_table = call_find_host(c);
    if (!c->host_table)
        return EXT_ABORT;
    const enum ext_outcome outcome = c->purpose == EXT_MATCH_TYPES ? EXT_OK : c->host_table->begin_call(c);
    if (outcome)
        return c->path = -1, outcome;
    c->host_has_begun = c->purpose != EXT_MATCH_TYPES;
    return ext_call_convert(c);
}

enum ext_outcome ext_call_begin(
    ext_call *c, ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, enum ext_purpose purpose)
{
    const size_t n = f->nargs + f->nresults;
    c->host_table = NULL;
    c->host_has_begun = c->has_run = c->must_notify_writes = false;
    c->purpose = purpose;
    c->path = 0;
    c->f = f;
    c->references = NULL;
    c->lists = NULL;
    c->is_second_conversion_pass = false;
    c->passed_numel = 0;
    c->released_state = NULL;
    c->kernel_depth = 0;
    c->blocks = NULL;
    c->memory_used = 0;
    c->result_objects = NULL;
    char *p = ext_call_alloc(
        c, n * (sizeof *c->args + sizeof *c->passed) + f->nresults * (sizeof *c->result_tensors + sizeof *c->result_objects));
    if (!p)
        return EXT_ABORT;
    c->args = (dv_value *)(void *)p;
    c->results = c->args + f->nargs;
    c->result_tensors = (dv_tensor *)(void *)(c->args + n);
    c->passed = (PyObject **)(void *)(c->result_tensors + f->nresults);
    c->result_objects = c->passed + n;
    memset(c->passed, 0, (n + f->nresults) * sizeof *c->passed);
    return ext_call_bind(c, args, nargs, kwnames) ? EXT_ABORT : call_begin_host(c);
}

/* Ends the call in its host, if the call was begun there. */
static void call_end_host(ext_call *c)
{
    if (c->host_has_begun && c->host_table->end_call)
        c->host_table->end_call(c);
    c->host_has_begun = false;
}

void ext_call_end(ext_call *c)
{
    call_end_host(c);
    for (size_t i = 0; c->result_objects && i < c->f->nresults; i++)
        Py_XDECREF(c->result_objects[i]);
    for (ext_reference *k = c->references; k; k = k->next)
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
    c->has_run = true;
    c->must_notify_writes = c->host_table->notify_writes && (f->writes_argument || ext_has_given_result(c));
    if (ext_trace_calls)
        ext_trace_call(c);
    const int status = dv_call(f->op, c->args, f->nargs, c->results, f->nresults, &c->host);
    if (!status) {
        if (c->must_notify_writes) /* there was no kernel */
            c->host_table->notify_writes(c);
        *result = call_make_results(c);
        return *result ? EXT_OK : EXT_FAILED;
    }
    if (!PyErr_Occurred() && c->host_table->handle_failure)
        return c->host_table->handle_failure(c, status);
    ext_raise_status(status);
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
    if (outcome == EXT_DISPATCH) {
        call_end_host(c);
        result = c->host_table->call_dispatcher(c, args, nargsf, kwnames);
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
