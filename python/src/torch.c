/* Calls with torch's tensors, three ways:
 *
 * - When nothing but the kernel would run (bridges/torch/guard.h), straight to it: the same steps as with arrays, with the host
 * that calls by torch's dispatcher have too.
 * - When only a gradient that is wanted stands in between, to the operator's autograd function.
 * - Else by torch's dispatcher, which also says what is wrong with arguments that we do not convert: only objects of exactly the
 *   types that a program has in its hands every day take the first two ways.
 */
#include "extension.h"

/* ---- What torch knows of an operator ------------------------------------------------------------------------------------- */

enum { BUCKETS = 512 };
static ext_torch *buckets[BUCKETS];

static ext_torch **place_of(const dv_operator *op)
{
    ext_torch **at = &buckets[((uintptr_t)op >> 6 ^ (uintptr_t)op >> 15) % BUCKETS];
    while (*at && (*at)->op != op)
        at = &(*at)->next;
    return at;
}

ext_torch *ext_torch_of(const dv_operator *op)
{
    ext_torch **at = place_of(op);
    if (!*at && (*at = PyMem_Calloc(1, sizeof **at)))
        (*at)->op = op;
    if (*at)
        (*at)->users++;
    else
        PyErr_NoMemory();
    return *at;
}

void ext_torch_release(ext_torch *t)
{
    if (!t || --t->users)
        return;
    *place_of(t->op) = t->next;
    PyMem_Free(t);
}

PyObject *ext_torch_set(PyObject *args)
{
    PyObject *pointer, *entry, *overload, *defaults, *gradient;
    if (!PyArg_ParseTuple(args, "OOOO!O", &pointer, &entry, &overload, &PyTuple_Type, &defaults, &gradient))
        return NULL;
    const dv_operator *op = PyLong_AsVoidPtr(pointer);
    const struct dv__torch_op *torch = PyErr_Occurred() || Py_IsNone(entry) ? NULL : PyLong_AsVoidPtr(entry);
    ext_torch *t = PyErr_Occurred() ? NULL : ext_torch_of(op);
    if (!t)
        return NULL;
    PyObject *old[] = { t->overload, t->defaults, t->gradient };
    const bool was_there = t->torch;
    t->torch = torch;
    t->overload = torch ? Py_NewRef(overload) : NULL;
    t->defaults = torch ? Py_NewRef(defaults) : NULL;
    t->gradient = torch && !Py_IsNone(gradient) ? Py_NewRef(gradient) : NULL;
    if (was_there) /* what is registered is a user; so is this function, until here */
        ext_torch_release(t);
    if (!torch)
        ext_torch_release(t);
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        Py_XDECREF(old[i]);
    Py_RETURN_NONE;
}

bool ext_torch_possible(const ext_operator *f)
{
    for (size_t i = 0; i < f->nargs; i++)
        if (f->slots[i].type == DV_FIELD_GENERATOR || f->slots[i].type == DV_FIELD_DEVICE || f->slots[i].type == DV_FIELD_DEVICES)
            return false;
    for (size_t i = f->nargs; i < f->nargs + f->nresults; i++) {
        const ext_slot *s = &f->slots[i];
        if (s->alias >= 0 && !(f->slots[s->alias].flags & DV_SLOT_WRITES)) /* a view */
            return false;
        if (s->type != DV_FIELD_TENSOR && s->type != DV_FIELD_TENSORS && s->type != DV_FIELD_INT && s->type != DV_FIELD_FLOAT &&
            s->type != DV_FIELD_BOOL)
            return false;
    }
    return true;
}

/* ---- Which way ----------------------------------------------------------------------------------------------------------- */

static bool is_number(PyObject *o)
{
    return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyComplex_CheckExact(o);
}

/* Would torch take this as it is, for what is no tensor? Whether it fits is seen when it is converted. */
static bool is_everyday(const ext_slot *slot, PyObject *o)
{
    switch (slot->type) {
    case DV_FIELD_STRING: return PyUnicode_CheckExact(o);
    case DV_FIELD_DTYPE:
    case DV_FIELD_LAYOUT:
    case DV_FIELD_MEMORY_FORMAT: return !PyUnicode_Check(o);
    default: break;
    }
    if (!PyList_CheckExact(o) && !PyTuple_Check(o))
        return is_number(o);
    for (Py_ssize_t i = 0, n = PyList_Check(o) ? PyList_Size(o) : PyTuple_Size(o); i < n; i++) {
        PyObject *item = PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
        if (slot->type == DV_FIELD_STRINGS      ? !PyUnicode_CheckExact(item)
                : slot->type == DV_FIELD_DTYPES ? PyUnicode_Check(item)
                                                : !is_number(item))
            return false;
    }
    return true;
}

static enum dv__torch_way way_of_list(PyObject *o, bool writes)
{
    enum dv__torch_way way = DV__TORCH_PLAIN;
    const bool list = PyList_CheckExact(o);
    if (!list && !PyTuple_Check(o))
        return DV__TORCH_OTHER;
    for (Py_ssize_t i = 0, n = list ? PyList_Size(o) : PyTuple_Size(o); i < n; i++) {
        PyObject *item = list ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
        const enum dv__torch_way one = Py_IsNone(item) ? DV__TORCH_PLAIN : dvt_way_of(item, writes);
        if (one == DV__TORCH_OTHER)
            return one;
        if (one == DV__TORCH_GRADIENT)
            way = one;
    }
    return way;
}

static enum dv__torch_way way_of_argument(const ext_slot *slot, PyObject *o, bool writes)
{
    if (slot->type == DV_FIELD_TENSOR)
        return Py_IsNone(o) ? DV__TORCH_PLAIN : dvt_way_of(o, writes);
    if (Py_IsNone(o))
        return DV__TORCH_PLAIN;
    if (slot->type == DV_FIELD_TENSORS)
        return way_of_list(o, writes);
    return is_everyday(slot, o) ? DV__TORCH_PLAIN : DV__TORCH_OTHER;
}

static enum dv__torch_way way_of_call(const ext_call *c)
{
    const ext_operator *f = c->f;
    enum dv__torch_way way = DV__TORCH_PLAIN;
    if (!f->torch->torch || !f->torch_possible || !dvt_setup() || !dvt->python_is_plain())
        return DV__TORCH_OTHER;
    for (size_t i = 0; i < f->nargs + f->nresults; i++) {
        if (!c->given[i])
            continue;
        const enum dv__torch_way one = way_of_argument(
            &f->slots[i], c->given[i], i >= f->nargs || f->slots[i].flags & DV_SLOT_WRITES);
        if (one == DV__TORCH_OTHER)
            return one;
        if (one == DV__TORCH_GRADIENT)
            way = one;
    }
    return way;
}

/* ---- The short way ------------------------------------------------------------------------------------------------------- */

enum ext_outcome ext_torch_view(ext_call *c, const ext_slot *slot, PyObject *o, bool write, const dv_tensor **out)
{
    struct dv__torch_tensor *x = dvt_is_exact(o) ? ext_alloc(c, sizeof *x) : NULL;
    if (!x) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "not a tensor");
        return EXT_FAILED;
    }
    x->handle = dvt_handle(o);
    const int status = dvt_read(x->handle, &x->t) ? DV_OK
                                                  : dvt->view(&c->torch, x, write, &c->torch.op->slots[slot - c->f->slots]);
    if (status)
        return ext_raise(status), EXT_FAILED;
    c->elements += dv_numel(&x->t);
    *out = &x->t;
    return EXT_OK;
}

PyObject *ext_torch_wrap(dv_tensor *take) { return dvt_wrap_taken(((struct dv__torch_tensor *)(void *)take)->handle); }

void ext_torch_count_writes(ext_call *c)
{
    const ext_operator *f = c->f;
    c->writes = false;
    for (size_t i = 0; i < f->nargs + f->nresults; i++) {
        PyObject *o = c->given[i];
        if (!o || Py_IsNone(o) || (i < f->nargs && !(f->slots[i].flags & DV_SLOT_WRITES)))
            continue;
        const bool one = f->slots[i].type == DV_FIELD_TENSOR, list = !one && PyList_Check(o);
        for (Py_ssize_t k = 0, n = one ? 1 : list ? PyList_Size(o) : PyTuple_Size(o); k < n; k++) {
            PyObject *x = one ? o : list ? PyList_GetItem(o, k) : PyTuple_GetItem(o, k);
            if (!Py_IsNone(x))
                dvt->count_write(dvt_handle(x));
        }
    }
}

/* The call's values once more, now of torch. Nothing is left of an exception: then torch may say what is wrong. */
static bool convert(ext_call *c)
{
    enum { ROOM = 1024 };
    char *room = ext_alloc(c, ROOM);
    if (!room)
        return PyErr_Clear(), false;
    dvt->call_begin(&c->torch, c->f->torch->torch, room, ROOM);
    c->host.before_kernel = ext_before_kernel;
    c->host.after_kernel = ext_after_kernel;
    c->by_torch = true;
    c->elements = 0;
    if (!ext_convert_all(c))
        return true;
    dvt->call_end(&c->torch);
    c->by_torch = false;
    PyErr_Clear();
    return false;
}

static bool any_given(const ext_call *c)
{
    for (size_t i = c->f->nargs; i < c->f->nargs + c->f->nresults; i++)
        if (c->given[i])
            return true;
    return false;
}

enum { AGAIN = 1 }; /* results that were given need torch's own rules: they are resized */

static int run(ext_call *c, PyObject **result)
{
    const ext_operator *f = c->f;
    const bool given = any_given(c);
    c->writes = given || f->mutates;
    const int status = dv_call(f->op, c->args, f->nargs, c->results, f->nresults, &c->host);
    if (!status && c->writes) /* there was no kernel */
        ext_torch_count_writes(c);
    if (status != DV_ESHAPE || !given || PyErr_Occurred())
        *result = status ? ext_raise(status) : ext_results(c);
    dvt->call_end(&c->torch);
    return status == DV_ESHAPE && given && !PyErr_Occurred() ? AGAIN : 0;
}

/* ---- The other ways ------------------------------------------------------------------------------------------------------ */

static PyObject *call_gradient(ext_call *c)
{
    const ext_operator *f = c->f;
    PyObject *function = Py_NewRef(f->torch->gradient), *defaults = Py_NewRef(f->torch->defaults), *result = NULL;
    PyObject **all = ext_alloc(c, (f->nargs + 1) * sizeof *all);
    for (size_t i = 0; all && i < f->nargs; i++)
        all[i] = c->given[i] ? c->given[i] : PyTuple_GetItem(defaults, (Py_ssize_t)i);
    if (all && !PyErr_Occurred())
        result = ext_call_python(function, all, f->nargs, NULL);
    Py_DECREF(function);
    Py_DECREF(defaults);
    return result;
}

PyObject *ext_torch_call(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_torch *t = c->f->torch;
    const enum dv__torch_way way = way_of_call(c);
    PyObject *result = NULL;
    if (PyErr_Occurred())
        return NULL;
    if (way == DV__TORCH_GRADIENT && t->gradient && !any_given(c)) {
        t->taken[DV__TORCH_GRADIENT]++;
        return call_gradient(c);
    }
    if (way == DV__TORCH_PLAIN && convert(c) && run(c, &result) != AGAIN) {
        t->taken[DV__TORCH_PLAIN]++;
        return result;
    }
    t->taken[DV__TORCH_OTHER]++;
    if (!t->torch || kwnames || any_given(c))
        return ext_call_bridge(c->f->name, args, EXT_NARGS(nargsf), kwnames);
    PyObject *overload = Py_NewRef(t->overload);
    result = ext_call_python(overload, args, (size_t)EXT_NARGS(nargsf), NULL);
    Py_DECREF(overload);
    return result;
}

/* The only overload that these arguments fit, to be called the short way; NULL: torch picks. */
PyObject *ext_torch_pick(PyObject *overloads, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *found = NULL;
    for (Py_ssize_t i = 0, n = PyTuple_Size(overloads); i < n; i++) {
        ext_operator *f = (ext_operator *)(void *)PyTuple_GetItem(overloads, i);
        ext_call c;
        const bool fits = ext_call_begin(&c, f, args, nargs, kwnames) == EXT_BRIDGE && way_of_call(&c) == DV__TORCH_PLAIN &&
            convert(&c);
        if (fits)
            dvt->call_end(&c.torch);
        ext_call_end(&c);
        PyErr_Clear();
        if (fits && found)
            return NULL;
        if (fits)
            found = (PyObject *)f;
    }
    return found;
}
