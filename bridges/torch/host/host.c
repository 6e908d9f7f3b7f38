/* torch's table. A call with torch's tensors goes one of three ways:
 *
 * - If nothing but the kernel would run (guard.h), it goes straight to the kernel, by the same steps as a call with arrays. Its
 *   dv_host is that of calls by torch's dispatcher.
 * - If only a gradient is needed besides, it goes to the operator's autograd function.
 * - Every other call goes to torch's dispatcher, which also reports arguments that are not converted here. Only objects of
 *   exactly the usual types (torch.Tensor, torch.nn.Parameter, int, float, ...) take the first two ways.
 */
#include "tensor.h"
#include "../autograd.h"

/* ---- What torch knows of an operator ------------------------------------------------------------------------------------- */

/* One for each dv_operator: its registration in torch may begin before and end after the operator's Python objects. */
typedef struct known {
    struct known *next;
    const dv_operator *op;
    size_t users;
    const struct dv__torch_op *torch; /* NULL: not registered in torch, and the following fields are not set */
    PyObject *overload;               /* the object in torch.ops */
    PyObject *defaults;               /* a tuple of the arguments' defaults, in order */
    PyObject *gradient;               /* called with all arguments by position when only a gradient is needed besides; or NULL */
    uint64_t taken[3];                /* number of calls of each kind, by enum dv__torch_way */
    bool carried;                     /* its arguments and results can bypass the dispatcher */
} known;

static known *known_of(const ext_operator *f) { return f->of_host[EXT_HOST_torch]; }

enum { BUCKETS = 512 };
static known *buckets[BUCKETS];

static known **place_of(const dv_operator *op)
{
    known **at = &buckets[((uintptr_t)op >> 6 ^ (uintptr_t)op >> 15) % BUCKETS];
    while (*at && (*at)->op != op)
        at = &(*at)->next;
    return at;
}

static known *take_known(const dv_operator *op)
{
    known **at = place_of(op);
    if (!*at && (*at = PyMem_Calloc(1, sizeof **at)))
        (*at)->op = op;
    if (*at)
        (*at)->users++;
    else
        PyErr_NoMemory();
    return *at;
}

static void release_known(known *t)
{
    if (--t->users)
        return;
    *place_of(t->op) = t->next;
    PyMem_Free(t);
}

static bool is_carried(const ext_operator *f)
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

/* ---- Which objects -----------------------------------------------------------------------------------------------------------
 */

static bool is_number(PyObject *o)
{
    return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyComplex_CheckExact(o);
}

/* Would torch accept this object for a type other than Tensor? Conversion checks whether it fits. */
static bool plain(const ext_slot *slot, PyObject *o)
{
    switch (slot->type) {
    case DV_FIELD_STRING: return PyUnicode_CheckExact(o);
    case DV_FIELD_DTYPE:
    case DV_FIELD_LAYOUT:
    case DV_FIELD_MEMORY_FORMAT: return !PyUnicode_Check(o);
    case DV_FIELD_TENSORS: return PyList_CheckExact(o) || PyTuple_Check(o);
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

static void *attach(const ext_operator *f)
{
    known *t = take_known(f->op);
    if (t)
        t->carried = is_carried(f);
    return t;
}

static void detach(void *kept) { release_known(kept); }

/* ---- The short way ------------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(struct dv__torch_call) <= EXT_STATE, "a call's state has room for torch's");

static struct dv__torch_call *state_of(ext_call *c) { return (struct dv__torch_call *)(void *)c->state; }

static enum ext_outcome begin(ext_call *c)
{
    enum { ROOM = 1024 };
    const known *t = known_of(c->f);
    if (!t->torch || !t->carried || !dvt_setup() || !dvt->python_is_plain())
        return PyErr_Occurred() ? EXT_MIXED : EXT_SLOW;
    char *room = ext_alloc(c, ROOM);
    if (!room)
        return EXT_MIXED;
    dvt->call_begin(state_of(c), t->torch, room, ROOM);
    if (c->purpose == EXT_LOOK)
        c->host.flags &= ~(uint32_t)DV_HOST_OWN_NATIVE;
    c->host.before_kernel = ext_before_kernel;
    c->host.after_kernel = ext_after_kernel;
    return EXT_OK;
}

/* Describe a tensor if it is plain. A needed gradient is noted, and handled after all arguments. */
static enum ext_outcome tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    if (!dvt_is_exact(o))
        return ext_other_tensor(c, slot, element, o, write, out);
    if (c->purpose == EXT_TRIAL)
        return EXT_OK;
    const enum dv__torch_way way = dvt_way_of(o, write);
    if (way == DV__TORCH_OTHER && c->purpose != EXT_LOOK)
        return EXT_SLOW;
    if (way == DV__TORCH_GRADIENT)
        c->way = DV__TORCH_GRADIENT;
    struct dv__torch_tensor *x = ext_alloc(c, sizeof *x);
    if (!x)
        return EXT_FAILED;
    x->handle = dvt_handle(o);
    struct dv__torch_call *t = state_of(c);
    const int status = dvt_read(x->handle, &x->t) ? DV_OK : dvt->view(t, x, write, &t->op->slots[slot - c->f->slots]);
    if (status)
        return ext_raise(status), EXT_FAILED;
    if (t->elsewhere)
        return EXT_SLOW;
    c->elements += dv_numel(&x->t);
    *out = &x->t;
    return EXT_OK;
}

static PyObject *wrap(ext_call *c, dv_tensor *take)
{
    (void)c;
    return dvt_wrap_taken(((struct dv__torch_tensor *)(void *)take)->handle);
}

static void count_write(PyObject *o) { dvt->count_write(dvt_handle(o)); }

static void writes(ext_call *c) { ext_each_written(c, count_write); }

/* Given results follow torch's rules: they are resized. torch also runs native forms on accelerators. */
static enum ext_outcome failed(ext_call *c, int status)
{
    if (status == DV_ENATIVE || (status == DV_ESHAPE && ext_any_given(c))) {
        c->ran = false;
        return EXT_SLOW;
    }
    ext_raise(status);
    return EXT_FAILED;
}

static void end(ext_call *c)
{
    if (c->ran)
        known_of(c->f)->taken[DV__TORCH_PLAIN]++;
    dvt->call_end(state_of(c));
}

/* ---- The other ways ------------------------------------------------------------------------------------------------------ */

static PyObject *call_gradient(ext_call *c)
{
    const ext_operator *f = c->f;
    PyObject *function = Py_NewRef(known_of(f)->gradient), *defaults = Py_NewRef(known_of(f)->defaults), *result = NULL;
    PyObject **all = ext_alloc(c, (f->nargs + 1) * sizeof *all);
    for (size_t i = 0; all && i < f->nargs; i++)
        all[i] = c->given[i] ? c->given[i] : PyTuple_GetItem(defaults, (Py_ssize_t)i);
    if (all && !PyErr_Occurred())
        result = ext_call_python(function, all, f->nargs, NULL);
    Py_DECREF(function);
    Py_DECREF(defaults);
    return result;
}

static PyObject *slow(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    known *t = known_of(c->f);
    if (c->way == DV__TORCH_GRADIENT && t->gradient && !ext_any_given(c)) {
        t->taken[DV__TORCH_GRADIENT]++;
        return call_gradient(c);
    }
    t->taken[DV__TORCH_OTHER]++;
    if (!t->torch || kwnames || ext_any_given(c))
        return ext_call_bridge(c->of, c->f, args, EXT_NARGS(nargsf), kwnames);
    PyObject *overload = Py_NewRef(t->overload);
    PyObject *result = ext_call_python(overload, args, (size_t)EXT_NARGS(nargsf), NULL);
    Py_DECREF(overload);
    return result;
}

/* ---- For dovetail.torch: _core.torch ------------------------------------------------------------------------------------- */

/* attach(address of dv_torch_inside()): called once torch is imported. */
static PyObject *attach_torch(PyObject *m, PyObject *address)
{
    (void)m;
    const void *inside = PyLong_AsVoidPtr(address);
    return PyErr_Occurred() || dvt_attach(inside) ? NULL : Py_NewRef(Py_None);
}

/* exchange(address of dv_exchange(), function): dovetail.torch.types.from_number. */
static PyObject *exchange(PyObject *m, PyObject *args)
{
    PyObject *address, *numbers;
    (void)m;
    if (!PyArg_ParseTuple(args, "OO", &address, &numbers))
        return NULL;
    const void *exchange = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    dvt_set_exchange(exchange, numbers);
    return Py_NewRef(Py_None);
}

static PyObject *learn(PyObject *m, PyObject *args)
{
    (void)m;
    return dvt_learn(args) ? NULL : Py_NewRef(Py_None);
}

static PyObject *thread_keys(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    const uint64_t *keys = dvt ? dvt->thread_keys() : NULL;
    return keys ? Py_BuildValue("(KK)", (unsigned long long)keys[0], (unsigned long long)keys[1])
                : Py_BuildValue("(KK)", 0ULL, 0ULL);
}

/* taken(operator): how many calls with tensors went straight to the kernel, to the autograd function, to torch's
 * dispatcher. */
static PyObject *taken(PyObject *m, PyObject *o)
{
    (void)m;
    const known *t = Py_IS_TYPE(o, ext_operator_type) ? known_of((ext_operator *)(void *)o) : NULL;
    if (!t) {
        PyErr_SetString(PyExc_TypeError, "expected one overload of an operator");
        return NULL;
    }
    return Py_BuildValue("(KKK)", (unsigned long long)t->taken[DV__TORCH_PLAIN], (unsigned long long)t->taken[DV__TORCH_GRADIENT],
        (unsigned long long)t->taken[DV__TORCH_OTHER]);
}

/* Why calls do not bypass the dispatcher. "": they do. */
static PyObject *why(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    const bool on = dvt_setup();
    return PyErr_Occurred() ? NULL : PyUnicode_FromString(on ? "" : *dvt_why() ? dvt_why() : "not looked at yet");
}

/* operator(dv_operator *, dv_torch_operator() or None when it is gone, overload, defaults, gradient or None) */
static PyObject *set_operator(PyObject *m, PyObject *args)
{
    (void)m;
    PyObject *pointer, *entry, *overload, *defaults, *gradient;
    if (!PyArg_ParseTuple(args, "OOOO!O", &pointer, &entry, &overload, &PyTuple_Type, &defaults, &gradient))
        return NULL;
    const dv_operator *op = PyLong_AsVoidPtr(pointer);
    const struct dv__torch_op *torch = PyErr_Occurred() || Py_IsNone(entry) ? NULL : PyLong_AsVoidPtr(entry);
    known *t = PyErr_Occurred() ? NULL : take_known(op);
    if (!t)
        return NULL;
    PyObject *old[] = { t->overload, t->defaults, t->gradient };
    const bool was_there = t->torch;
    t->torch = torch;
    t->overload = torch ? Py_NewRef(overload) : NULL;
    t->defaults = torch ? Py_NewRef(defaults) : NULL;
    t->gradient = torch && !Py_IsNone(gradient) ? Py_NewRef(gradient) : NULL;
    if (was_there) /* the registration holds a reference; so did this function until here */
        release_known(t);
    if (!torch)
        release_known(t);
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        Py_XDECREF(old[i]);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    { "attach", attach_torch, METH_O, NULL },
    { "exchange", exchange, METH_VARARGS, NULL },
    { "learn", learn, METH_VARARGS, NULL },
    { "thread_keys", thread_keys, METH_NOARGS, NULL },
    { "taken", taken, METH_O, NULL },
    { "why", why, METH_NOARGS, NULL },
    { "operator", set_operator, METH_VARARGS, NULL },
    { "kernel", dvt_python_kernel, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static int setup(PyObject *space) { return dvt_python_kernel_setup() || PyModule_AddFunctions(space, methods) ? -1 : 0; }

const ext_host ext_host_torch = { .name = "torch",
    .setup = setup,
    .kind = dvt_kind,
    .begin = begin,
    .tensor = tensor,
    .plain = plain,
    .writes = writes,
    .wrap = wrap,
    .failed = failed,
    .end = end,
    .dispatches = true,
    .slow = slow,
    .attach = attach,
    .detach = detach };
