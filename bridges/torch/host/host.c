/* torch's table of the Python extension (ext_host). A call with torch's tensors takes one of three paths:
 *
 * - Kernel: if torch's dispatcher would run the kernel and nothing else (guard.h), the kernel is called directly, by the same
 *   steps as a call with arrays, with the dv_host of calls by torch's dispatcher.
 * - Autograd: if a gradient is needed too, the operator's autograd function is called.
 * - Dispatcher: every other call goes to torch's dispatcher, which also reports arguments that this file does not convert. Only
 *   objects of exactly the usual types (torch.Tensor, torch.nn.Parameter, int, float, ...) take the first two paths. */
#include "tensor.h"

/* ---- torch's data of an operator ----------------------------------------------------------------------------------------- */

/* torch's data of one dv_operator, shared by its Python objects and its registration in torch. The registration may begin before
 * an operator has a Python object, and may outlive all of them. */
typedef struct torch_operator {
    struct torch_operator *next;
    const dv_operator *op;
    size_t users;
    const struct dv__torch_op *torch; /* NULL: the operator is not registered in torch, and the next three fields are NULL */
    PyObject *overload;               /* the operator's object in torch.ops */
    PyObject *defaults;               /* a tuple of the arguments' defaults, in order */
    PyObject *gradient;               /* the function for the Autograd path, called with all arguments by position; NULL: none */
    uint64_t call_counts[3];          /* number of calls by each path, indexed by enum dv__torch_path */
    bool can_bypass;                  /* the types of all arguments and results allow calls that bypass torch's dispatcher */
} torch_operator;

/* Returns torch's data of an operator object of the extension. */
static torch_operator *torch_operator_from_ext(const ext_operator *f) { return f->host_data[EXT_HOST_torch]; }

enum { TORCH_OPERATOR_BUCKETS = 512 };
static torch_operator *torch_operators[TORCH_OPERATOR_BUCKETS];

/* Returns the address of the pointer to the operator's entry in its hash bucket; the pointer is NULL if there is no entry. */
static torch_operator **torch_operator_find_pointer_in_bucket(const dv_operator *op)
{
    torch_operator **at = &torch_operators[((uintptr_t)op >> 6 ^ (uintptr_t)op >> 15) % TORCH_OPERATOR_BUCKETS];
    while (*at && (*at)->op != op)
        at = &(*at)->next;
    return at;
}

/* Returns torch's data of an operator, with one more user; the first user makes the entry. NULL with MemoryError. */
static torch_operator *torch_operator_find_and_ref(const dv_operator *op)
{
    torch_operator **at = torch_operator_find_pointer_in_bucket(op);
    if (!*at && (*at = PyMem_Calloc(1, sizeof **at)))
        (*at)->op = op;
    if (*at)
        (*at)->users++;
    else
        PyErr_NoMemory();
    return *at;
}

/* Removes one user; without users the entry is freed. */
static void torch_operator_unref(torch_operator *t)
{
    if (--t->users)
        return;
    *torch_operator_find_pointer_in_bucket(t->op) = t->next;
    PyMem_Free(t);
}

/* True if a call may bypass torch's dispatcher, as far as types decide: no Generator and no device among the arguments, no view
 * and only tensors and numbers among the results. */
static bool torch_types_allow_bypass(const ext_operator *f)
{
    for (size_t i = 0; i < f->nargs; i++)
        if (f->slots[i].info.type == DV_FIELD_GENERATOR || f->slots[i].info.type == DV_FIELD_DEVICE ||
            f->slots[i].info.type == DV_FIELD_DEVICES)
            return false;
    for (size_t i = f->nargs; i < f->nargs + f->nresults; i++) {
        const ext_slot *s = &f->slots[i];
        if (s->info.alias >= 0 && !(f->slots[s->info.alias].info.flags & DV_SLOT_WRITES)) /* a view */
            return false;
        if (s->info.type != DV_FIELD_TENSOR && s->info.type != DV_FIELD_TENSORS && s->info.type != DV_FIELD_INT &&
            s->info.type != DV_FIELD_FLOAT && s->info.type != DV_FIELD_BOOL)
            return false;
    }
    return true;
}

/* ---- Arguments that are not tensors -------------------------------------------------------------------------------------- */

/* True if o is exactly an int, float, complex or bool of Python. */
static bool torch_is_builtin_number(PyObject *o)
{
    return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyComplex_CheckExact(o);
}

/* ext_host.can_convert: true if torch may accept this object for an argument that is not a Tensor. The conversion then decides.
 */
static bool torch_can_convert(const ext_slot *slot, PyObject *o)
{
    switch (slot->info.type) {
    case DV_FIELD_STRING: return PyUnicode_CheckExact(o);
    case DV_FIELD_DTYPE:
    case DV_FIELD_LAYOUT:
    case DV_FIELD_MEMORY_FORMAT: return !PyUnicode_Check(o);
    case DV_FIELD_TENSORS: return PyList_CheckExact(o) || PyTuple_Check(o);
    default: break;
    }
    if (!PyList_CheckExact(o) && !PyTuple_Check(o))
        return torch_is_builtin_number(o);
    for (Py_ssize_t i = 0, n = PyList_Check(o) ? PyList_Size(o) : PyTuple_Size(o); i < n; i++) {
        PyObject *item = PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
        if (slot->info.type == DV_FIELD_STRINGS      ? !PyUnicode_CheckExact(item)
                : slot->info.type == DV_FIELD_DTYPES ? PyUnicode_Check(item)
                                                     : !torch_is_builtin_number(item))
            return false;
    }
    return true;
}

/* ext_host.attach: returns torch's data of the operator, with one more user; NULL with an exception. */
static void *torch_attach(const ext_operator *f)
{
    torch_operator *t = torch_operator_find_and_ref(f->op);
    if (t)
        t->can_bypass = torch_types_allow_bypass(f);
    return t;
}

static void torch_detach(void *operator_data) { torch_operator_unref(operator_data); }

/* ---- The kernel path ----------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(struct dv__torch_call) <= EXT_CALL_STATE_SIZE, "a call's state has room for torch's");

/* Returns torch's part of a call's state, which begins with the call's dv_host. */
static struct dv__torch_call *torch_call_get_state(ext_call *c) { return (struct dv__torch_call *)(void *)c->state; }

/* ext_host.begin_call. EXT_DISPATCH if the call cannot bypass torch's dispatcher, whatever its arguments. */
static enum ext_outcome torch_begin_call(ext_call *c)
{
    enum { BUFFER_SIZE = 1024 };
    const torch_operator *t = torch_operator_from_ext(c->f);
    if (!t->torch || !t->can_bypass || !dvt_try_setup() || !dvt->is_python_thread_plain())
        return PyErr_Occurred() ? EXT_ABORT : EXT_DISPATCH;
    char *buffer = ext_call_alloc(c, BUFFER_SIZE);
    if (!buffer)
        return EXT_ABORT;
    dvt->call_begin(torch_call_get_state(c), t->torch, buffer, BUFFER_SIZE);
    if (c->purpose == EXT_DESCRIBE)
        c->host.flags &= ~(uint32_t)DV_HOST_RUNS_NATIVE;
    c->host.before_kernel = ext_before_kernel;
    c->host.after_kernel = ext_after_kernel;
    return EXT_OK;
}

/* ext_host.describe_tensor: describes a plain tensor in *out. Sets c->path to AUTOGRAD if the tensor needs a gradient.
 * EXT_DISPATCH: the call must go to torch's dispatcher. */
static enum ext_outcome torch_describe_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool is_written, const dv_tensor **out)
{
    if (!dvt_is_exact_tensor(o))
        return ext_convert_foreign(c, slot, element, o, is_written, out);
    if (c->purpose == EXT_MATCH_TYPES)
        return EXT_OK;
    const enum dv__torch_path path = dvt_choose_path(o, is_written);
    if (path == DV__TORCH_PATH_DISPATCHER && c->purpose != EXT_DESCRIBE)
        return EXT_DISPATCH;
    if (path == DV__TORCH_PATH_AUTOGRAD)
        c->path = DV__TORCH_PATH_AUTOGRAD;
    struct dv__torch_tensor *x = ext_call_alloc(c, sizeof *x);
    if (!x)
        return EXT_FAILED;
    x->handle = dvt_get_handle(o);
    struct dv__torch_call *state = torch_call_get_state(c);
    const int status = dvt_try_read_tensor(x->handle, &x->t)
        ? DV_OK
        : dvt->describe_tensor(state, x, is_written, &state->op->slots[slot - c->f->slots]);
    if (status)
        return ext_raise_status(status), EXT_FAILED;
    if (state->needs_decomposition)
        return EXT_DISPATCH;
    c->passed_numel += dv_numel(&x->t);
    *out = &x->t;
    return EXT_OK;
}

/* ext_host.wrap_tensor: returns the Python object of a new tensor, and takes the tensor's handle. */
static PyObject *torch_wrap_tensor(ext_call *c, dv_tensor *take)
{
    (void)c;
    return dvt_wrap_and_take_handle(((struct dv__torch_tensor *)(void *)take)->handle);
}

static void torch_bump_object_version(PyObject *o) { dvt->bump_version(dvt_get_handle(o)); }

static void torch_notify_writes(ext_call *c) { ext_for_each_written(c, torch_bump_object_version); }

/* ext_host.handle_failure: raises the exception of a failed call. EXT_DISPATCH: torch's dispatcher must repeat the call, to
 * resize a passed result or to run the decomposition (DV_ENATIVE). */
static enum ext_outcome torch_handle_failure(ext_call *c, int status)
{
    if (status == DV_ENATIVE || (status == DV_ESHAPE && ext_has_given_result(c))) {
        c->has_run = false;
        return EXT_DISPATCH;
    }
    ext_raise_status(status);
    return EXT_FAILED;
}

/* ext_host.end_call: counts a call that ran its kernel directly, and frees the call's resources. */
static void torch_end_call(ext_call *c)
{
    if (c->has_run)
        torch_operator_from_ext(c->f)->call_counts[DV__TORCH_PATH_KERNEL]++;
    dvt->call_end(torch_call_get_state(c));
}

/* ---- The other paths ----------------------------------------------------------------------------------------------------- */

/* Calls the operator's autograd function with all arguments by position, defaults included. Returns the call's result; NULL with
 * an exception. */
static PyObject *torch_call_autograd_function(ext_call *c)
{
    const ext_operator *f = c->f;
    PyObject *function = Py_NewRef(torch_operator_from_ext(f)->gradient),
             *defaults = Py_NewRef(torch_operator_from_ext(f)->defaults), *result = NULL;
    PyObject **all = ext_call_alloc(c, (f->nargs + 1) * sizeof *all);
    for (size_t i = 0; all && i < f->nargs; i++)
        all[i] = c->passed[i] ? c->passed[i] : PyTuple_GetItem(defaults, (Py_ssize_t)i);
    if (all && !PyErr_Occurred())
        result = ext_call_python(function, all, f->nargs, NULL);
    Py_DECREF(function);
    Py_DECREF(defaults);
    return result;
}

/* ext_host.call_dispatcher: calls the autograd function if only a gradient stands in the way of the kernel, else the operator in
 * torch.ops. Returns the call's result; NULL with an exception. */
static PyObject *torch_call_dispatcher(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    torch_operator *t = torch_operator_from_ext(c->f);
    if (c->path == DV__TORCH_PATH_AUTOGRAD && t->gradient && !ext_has_given_result(c)) {
        t->call_counts[DV__TORCH_PATH_AUTOGRAD]++;
        return torch_call_autograd_function(c);
    }
    t->call_counts[DV__TORCH_PATH_DISPATCHER]++;
    if (!t->torch || kwnames || ext_has_given_result(c))
        return ext_call_bridge(c->host_table, c->f, args, EXT_NARGS(nargsf), kwnames);
    PyObject *overload = Py_NewRef(t->overload);
    PyObject *result = ext_call_python(overload, args, (size_t)EXT_NARGS(nargsf), NULL);
    Py_DECREF(overload);
    return result;
}

/* ---- The module _core.torch, for dovetail.torch -------------------------------------------------------------------------- */

/* Python: attach(address of dv_torch_get_functions()). Connects the extension with libdovetail_torch, after torch is imported. */
static PyObject *core_attach(PyObject *m, PyObject *address)
{
    (void)m;
    const void *functions = PyLong_AsVoidPtr(address);
    return PyErr_Occurred() || dvt_set_functions_once(functions) ? NULL : Py_NewRef(Py_None);
}

/* Python: set_from_number(function). Stores dovetail.torch.types.from_number; attach() must have been called. */
static PyObject *core_set_from_number(PyObject *m, PyObject *function)
{
    (void)m;
    dvt_set_from_number_function(function);
    return Py_NewRef(Py_None);
}

/* Python: learn(*the values of probe.run()). Finds the layout of tensors and turns the fast path on; raises an exception if that
 * fails. */
static PyObject *core_find_layout(PyObject *m, PyObject *args)
{
    (void)m;
    return dvt_find_layout(args) ? NULL : Py_NewRef(Py_None);
}

/* Python: thread_keys() -> (included, excluded). Returns the dispatch keys of this thread; zeros before attach(). */
static PyObject *core_get_thread_keys(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    const uint64_t *keys = dvt ? dvt->get_thread_keys() : NULL;
    return keys ? Py_BuildValue("(KK)", (unsigned long long)keys[0], (unsigned long long)keys[1])
                : Py_BuildValue("(KK)", 0ULL, 0ULL);
}

/* Python: taken(operator) -> (kernel, autograd, dispatcher). Returns how many calls from Python took each path. */
static PyObject *core_get_call_counts(PyObject *m, PyObject *operator)
{
    (void)m;
    const torch_operator *t = Py_IS_TYPE(operator, ext_operator_type) ? torch_operator_from_ext((ext_operator *)(void *)operator)
                                                                      : NULL;
    if (!t) {
        PyErr_SetString(PyExc_TypeError, "expected one overload of an operator");
        return NULL;
    }
    return Py_BuildValue("(KKK)", (unsigned long long)t->call_counts[DV__TORCH_PATH_KERNEL],
        (unsigned long long)t->call_counts[DV__TORCH_PATH_AUTOGRAD],
        (unsigned long long)t->call_counts[DV__TORCH_PATH_DISPATCHER]);
}

/* Python: why() -> str. Returns the reason why no call of this process bypasses torch's dispatcher; "": calls may. */
static PyObject *core_get_fast_path_off_reason(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    const bool on = dvt_try_setup();
    return PyErr_Occurred() ? NULL
                            : PyUnicode_FromString(on                   ? ""
                                      : *dvt_get_fast_path_off_reason() ? dvt_get_fast_path_off_reason()
                                                                        : "not looked at yet");
}

/* Python: operator(address of the dv_operator, dv_torch_find_operator() or None, overload, defaults, gradient or None). Stores
 * what torch's registration of the operator has. None as the second argument: the operator was unregistered, and the other values
 * are dropped. */
static PyObject *core_set_operator(PyObject *m, PyObject *args)
{
    (void)m;
    PyObject *pointer, *entry, *overload, *defaults, *gradient;
    if (!PyArg_ParseTuple(args, "OOOO!O", &pointer, &entry, &overload, &PyTuple_Type, &defaults, &gradient))
        return NULL;
    const dv_operator *op = PyLong_AsVoidPtr(pointer);
    const struct dv__torch_op *torch = PyErr_Occurred() || Py_IsNone(entry) ? NULL : PyLong_AsVoidPtr(entry);
    torch_operator *t = PyErr_Occurred() ? NULL : torch_operator_find_and_ref(op);
    if (!t)
        return NULL;
    PyObject *old[] = { t->overload, t->defaults, t->gradient };
    const bool was_there = t->torch;
    t->torch = torch;
    t->overload = torch ? Py_NewRef(overload) : NULL;
    t->defaults = torch ? Py_NewRef(defaults) : NULL;
    t->gradient = torch && !Py_IsNone(gradient) ? Py_NewRef(gradient) : NULL;
    if (was_there) /* the registration counts as one user, and did so before: the user added above is removed */
        torch_operator_unref(t);
    if (!torch)
        torch_operator_unref(t);
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        Py_XDECREF(old[i]);
    Py_RETURN_NONE;
}

static PyMethodDef torch_methods[] = {
    { "attach", core_attach, METH_O, NULL },
    { "set_from_number", core_set_from_number, METH_O, NULL },
    { "learn", core_find_layout, METH_VARARGS, NULL },
    { "thread_keys", core_get_thread_keys, METH_NOARGS, NULL },
    { "taken", core_get_call_counts, METH_O, NULL },
    { "why", core_get_fast_path_off_reason, METH_NOARGS, NULL },
    { "operator", core_set_operator, METH_VARARGS, NULL },
    { "kernel", dvt_new_python_kernel, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static int torch_setup(PyObject *space)
{
    return dvt_make_python_kernel_type() || PyModule_AddFunctions(space, torch_methods) ? -1 : 0;
}

const ext_host ext_host_torch = { .name = "torch",
    .setup = torch_setup,
    .classify_type = dvt_classify_type,
    .begin_call = torch_begin_call,
    .describe_tensor = torch_describe_tensor,
    .can_convert = torch_can_convert,
    .notify_writes = torch_notify_writes,
    .wrap_tensor = torch_wrap_tensor,
    .handle_failure = torch_handle_failure,
    .end_call = torch_end_call,
    .has_dispatcher = true,
    .call_dispatcher = torch_call_dispatcher,
    .attach = torch_attach,
    .detach = torch_detach };
