/* Direct calls of a torch operator whose kernels are Python functions. dovetail.torch implements custom_op and the like by
 *
 *     _core.torch.kernel(fallback, arguments, returns, below, results_must_be_new, replay) -> PythonKernel, which is callable
 *
 * - fallback: the operator's call in torch, for calls in which the dispatcher runs more than the kernel.
 * - arguments: for each argument ("Tensor", has a default, is written, is keyword-only), with the type as torch prints it.
 * - returns: the types of the results.
 * - below: the dispatch keys of the thread while the kernel runs. 0: unchanged. 1: as below an Autograd kernel, where new tensors
 *   have no history. 2: as below ADInplaceOrView too, where writes are not counted.
 * - results_must_be_new: results must share no memory with arguments or with each other.
 * - replay: a function (fallback, args, result). It is called with a result that torch would not pass on unchanged, because the
 * result shares memory or has another type than declared. The function returns the call's value, or raises torch's exception.
 *
 * The attribute `kernels` is a tuple of the functions for (CPU, CUDA, PrivateUse1), with None for a function that does not exist.
 * At first all three are None.
 *
 * The kernel is called directly, with the caller's positional arguments (copies of lists), if all conditions hold: the thread
 * and every tensor are plain, all tensors are on one device, and no gradient is wanted (guard.h); numbers and strings have
 * exactly the type of their argument; lists are lists or tuples; no argument is passed by name. Before the kernel runs, the
 * version counters of written tensors are raised. The object hashes and compares as its fallback, and has the fallback's
 * attributes. */
#include "tensor.h"

#include <stddef.h>
#include <structmember.h>

enum { MAX_SLOTS = 64 }; /* the most arguments, and the most results, of a direct call */

/* Returns the type of an argument or result, or of the elements of a list (enum dv_field_type); 0: unknown. */
static uint32_t slot_get_element_type(const dv_slot_info *s) { return dv_field_at(s->type)->of; }
static bool slot_is_list(const dv_slot_info *s) { return dv_field_at(s->type)->form == DV_FORM_LIST; }

typedef struct python_kernel {
    PyObject ob_base;
    ext_vectorcall vectorcall;
    PyObject *fallback, *replay;
    PyObject *kernels[DV__TORCH_DEVICES];
    int excluded_below; /* 0: the kernel runs with unchanged dispatch keys; else 1 more than the level for
                           dvt_exclude_thread_keys_below() */
    bool results_must_be_new, has_list_argument; /* _core.torch.kernel()'s argument; some argument is a list */
    bool has_known_results; /* all results are of types that kernel_result_fits() can test, and there are at most MAX_SLOTS slots
                             */
    Py_ssize_t nargs, nresults;
    dv_slot_info *slots; /* arguments, then results: type, flags, and default_text "" if there is a default */
} python_kernel;

/* The kind of device (dv__torch_get_device_kind()) of all tensors of one call; -1: no tensor seen yet. */
typedef struct call_devices { int device; } call_devices;

static PyTypeObject *kernel_type;

/* Returns the struct of a PythonKernel object. */
static python_kernel *kernel_from_object(PyObject *self) { return (python_kernel *)(void *)self; }

/* ---- Conditions of a direct call ----------------------------------------------------------------------------------------- */

/* True if o is a plain tensor that needs no gradient, on the device of the call's other tensors. The first tensor sets
 * devices->device. */
static bool kernel_try_fit_tensor(PyObject *o, bool is_written, call_devices *devices)
{
    if (dvt_choose_path(o, is_written) != DV__TORCH_PATH_KERNEL)
        return false;
    const int device = dvt->get_device_kind(dvt_get_handle(o));
    if (devices->device < 0)
        devices->device = device;
    return devices->device == device;
}

/* True if o is exactly an int of Python that fits into 64 bits. */
static bool kernel_is_int64(PyObject *o)
{
    int overflow = 0;
    return PyLong_CheckExact(o) && (PyLong_AsLongLongAndOverflow(o, &overflow), !overflow);
}

/* True if the kernel may be called directly with o as a value, or list element, of this argument. None does not fit. */
static bool kernel_try_fit_element(const dv_slot_info *slot_of_argument, PyObject *o, call_devices *devices)
{
    switch (slot_get_element_type(slot_of_argument)) {
    case DV_FIELD_TENSOR: return kernel_try_fit_tensor(o, slot_of_argument->flags & DV_SLOT_WRITES, devices);
    case DV_FIELD_INT: return kernel_is_int64(o);
    case DV_FIELD_FLOAT: return PyFloat_CheckExact(o);
    case DV_FIELD_BOOL: return PyBool_Check(o);
    case DV_FIELD_STRING: return PyUnicode_CheckExact(o);
    case DV_FIELD_SCALAR: return kernel_is_int64(o) || PyFloat_CheckExact(o);
    default: return false;
    }
}

/* True if the kernel may be called directly with o for this argument: None, a value or a list of values. */
static bool kernel_try_fit_argument(const dv_slot_info *slot_of_argument, PyObject *o, call_devices *devices)
{
    if (Py_IsNone(o))
        return slot_of_argument->flags & DV_SLOT_OPTIONAL;
    if (!slot_is_list(slot_of_argument))
        return kernel_try_fit_element(slot_of_argument, o, devices);
    if (!PyList_CheckExact(o))
        return false;
    for (Py_ssize_t i = 0, n = PyList_Size(o); i < n; i++) {
        PyObject *item = PyList_GetItem(o, i);
        if (Py_IsNone(item) ? !(slot_of_argument->flags & DV_SLOT_ELEMENT_OPTIONAL)
                            : !kernel_try_fit_element(slot_of_argument, item, devices))
            return false;
    }
    return true;
}

/* Returns the function to call directly with these arguments, borrowed; NULL without an exception: the call must go through
 * torch. */
static PyObject *kernel_choose_function(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs)
{
    call_devices s = { -1 };
    for (Py_ssize_t i = 0; i < k->nargs; i++)
        if (i < nargs ? k->slots[i].flags & DV_SLOT_KWARG_ONLY || !kernel_try_fit_argument(&k->slots[i], args[i], &s)
                      : !k->slots[i].default_text)
            return NULL;
    return s.device < 0 ? NULL : k->kernels[s.device];
}

/* ---- Arguments and results ----------------------------------------------------------------------------------------------- */

/* Raises the version counters of the tensors that the kernel writes. */
static void kernel_bump_written_versions(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs)
{
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!(k->slots[i].flags & DV_SLOT_WRITES) || Py_IsNone(args[i]))
            continue;
        const bool list = slot_is_list(&k->slots[i]);
        for (Py_ssize_t j = 0, n = list ? PyList_Size(args[i]) : 1; j < n; j++) {
            PyObject *o = list ? PyList_GetItem(args[i], j) : args[i];
            if (!Py_IsNone(o))
                dvt->bump_version(dvt_get_handle(o));
        }
    }
}

/* Returns true if predicate() does so for some tensor among the items or in a list among them. Later tensors are then skipped. */
static bool kernel_has_tensor_where(PyObject *const *items, Py_ssize_t n, bool (*predicate)(PyObject *o, void *user), void *user)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (dvt_is_tensor(items[i])) {
            if (predicate(items[i], user))
                return true;
        } else if (PyList_Check(items[i])) {
            for (Py_ssize_t j = 0; j < PyList_Size(items[i]); j++) {
                PyObject *o = PyList_GetItem(items[i], j);
                if (dvt_is_tensor(o) && predicate(o, user))
                    return true;
            }
        }
    }
    return false;
}

typedef struct sharing_query {
    PyObject *result;
    const void *storage;
    bool itself;
} sharing_query;

/* True if tensor o has the storage of the query's result. The first entry that is the result itself is skipped, unless `itself`
 * is set already. */
static bool tensor_shares_storage(PyObject *o, void *query)
{
    sharing_query *q = query;
    if (o == q->result && !q->itself)
        return q->itself = true, false;
    return o == q->result || dvt->get_storage(dvt_get_handle(o)) == q->storage;
}

typedef struct call_values {
    PyObject *const *args, *const *results;
    Py_ssize_t nargs, nresults;
} call_values;

/* True if this result may share memory with an argument or with another result. A result that is not plain counts as sharing. */
static bool result_may_share_memory(PyObject *result, void *values)
{
    const call_values *all = values;
    if (dvt_choose_path(result, false) == DV__TORCH_PATH_DISPATCHER)
        return true;
    sharing_query c = { result, dvt->get_storage(dvt_get_handle(result)), true };
    if (kernel_has_tensor_where(all->args, all->nargs, tensor_shares_storage, &c))
        return true;
    c.itself = false;
    return kernel_has_tensor_where(all->results, all->nresults, tensor_shares_storage, &c);
}

/* True if o is of the type that is declared for this result. */
static bool kernel_result_fits(const dv_slot_info *slot_of_result, PyObject *o)
{
    call_devices unused = { -1 };
    if (slot_get_element_type(slot_of_result) != DV_FIELD_TENSOR)
        return kernel_try_fit_argument(slot_of_result, o, &unused);
    if (!slot_is_list(slot_of_result) || Py_IsNone(o))
        return dvt_is_tensor(o) || (Py_IsNone(o) && (slot_of_result->flags & DV_SLOT_OPTIONAL));
    bool all = PyList_CheckExact(o);
    for (Py_ssize_t i = 0; all && i < PyList_Size(o); i++)
        all = dvt_is_tensor(PyList_GetItem(o, i));
    return all;
}

/* True if all results are of their declared types and, where k->results_must_be_new, share no memory with arguments or each
 * other. */
static bool kernel_results_fit(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject *const *results)
{
    for (Py_ssize_t i = 0; i < k->nresults; i++)
        if (!kernel_result_fits(&k->slots[k->nargs + i], results[i]))
            return false;
    call_values all = { args, results, nargs, k->nresults };
    return !k->results_must_be_new || !kernel_has_tensor_where(results, k->nresults, result_may_share_memory, &all);
}

/* True if torch would pass the kernel's return value on unchanged: None for no result, one result, or a tuple of the results. */
static bool kernel_is_return_value_valid(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject *return_value)
{
    PyObject *results[MAX_SLOTS];
    if (k->nresults == 0)
        return Py_IsNone(return_value);
    if (k->nresults == 1)
        return kernel_results_fit(k, args, nargs, &return_value);
    if (!PyTuple_CheckExact(return_value) || PyTuple_Size(return_value) != k->nresults)
        return false;
    for (Py_ssize_t i = 0; i < k->nresults; i++)
        results[i] = PyTuple_GetItem(return_value, i);
    return kernel_results_fit(k, args, nargs, results);
}

/* Passes the arguments and a return value of the kernel, which torch would not pass on unchanged, to k->replay. The kernel is not
 * called again. Takes ownership of take_invalid_result. Returns the call's value; NULL with an exception. */
static PyObject *kernel_pass_invalid_result_to_replay(
    const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject *take_invalid_result)
{
    PyObject *tuple = PyTuple_New(nargs), *answer = NULL;
    for (Py_ssize_t i = 0; tuple && i < nargs; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    if (tuple)
        answer = PyObject_CallFunctionObjArgs(k->replay, k->fallback, tuple, take_invalid_result, NULL);
    Py_XDECREF(tuple);
    Py_DECREF(take_invalid_result);
    return answer;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

/* Calls the kernel's Python function directly, with the thread's dispatch keys as k->excluded_below requires. Returns the call's
 * value; NULL with an exception. */
static PyObject *kernel_run_function(const python_kernel *k, PyObject *function, PyObject *const *args, Py_ssize_t nargs)
{
    kernel_bump_written_versions(k, args, nargs);
    Py_INCREF(function); /* the function may replace itself in `kernels` while it runs */
    uint64_t *keys = k->excluded_below ? dvt->get_thread_keys() : NULL;
    const uint64_t before = keys ? dvt_exclude_thread_keys_below(keys, k->excluded_below - 1) : 0;
    PyObject *result = ext_call_python(function, args, (size_t)nargs, NULL);
    if (keys)
        keys[1] = before;
    Py_DECREF(function);
    return !result || kernel_is_return_value_valid(k, args, nargs, result)
        ? result
        : kernel_pass_invalid_result_to_replay(k, args, nargs, result);
}

/* Copies lists and tuples among the arguments to new lists for the kernel, as torch's dispatcher does. Other arguments are
 * borrowed. Returns the number of processed arguments: fewer than nargs with an exception. */
static Py_ssize_t kernel_copy_list_arguments(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject **copies)
{
    Py_ssize_t i = 0;
    for (; i < nargs; i++) {
        copies[i] = args[i];
        if (slot_is_list(&k->slots[i]) && (PyList_CheckExact(args[i]) || PyTuple_Check(args[i])) &&
            !(copies[i] = PySequence_List(args[i])))
            break;
    }
    return i;
}

/* The vectorcall of a PythonKernel: calls a kernel's function directly if it may, else the fallback. Returns the call's value;
 * NULL with an exception. */
static PyObject *kernel_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const python_kernel *k = kernel_from_object(self);
    const Py_ssize_t nargs = EXT_NARGS(nargsf);
    PyObject *copies[MAX_SLOTS], *const *passed_args = args, *answer = NULL;
    const bool possible = k->has_known_results && nargs <= k->nargs && !(kwnames && PyTuple_Size(kwnames)) && dvt_try_setup() &&
        dvt->is_python_thread_plain();
    Py_ssize_t copied = 0;
    if (possible && k->has_list_argument) {
        copied = kernel_copy_list_arguments(k, args, nargs, copies);
        passed_args = copies;
    }
    if (PyErr_Occurred())
        goto done;
    PyObject *kernel = possible ? kernel_choose_function(k, passed_args, nargs) : NULL;
    Py_INCREF(self); /* the call may drop the last other reference to this object */
    answer = kernel ? kernel_run_function(k, kernel, passed_args, nargs) : ext_call_python(k->fallback, args, nargsf, kwnames);
    Py_DECREF(self);
done:
    for (Py_ssize_t i = 0; i < copied; i++)
        if (copies[i] != args[i])
            Py_DECREF(copies[i]);
    return answer;
}

/* ---- The type PythonKernel ----------------------------------------------------------------------------------------------- */

/* Returns the slot for a type as torch prints it: "Tensor", "Tensor?", "List[int]", "List[Optional[Tensor]]", "Optional[float]".
 * The type of an unknown word is 0. */
static dv_slot_info kernel_parse_type(const char *text)
{
    static const struct {
        const char *name;
        uint32_t type;
    } names[] = { { "Tensor", DV_FIELD_TENSOR }, { "int", DV_FIELD_INT }, { "SymInt", DV_FIELD_INT }, { "float", DV_FIELD_FLOAT },
        { "bool", DV_FIELD_BOOL }, { "str", DV_FIELD_STRING }, { "number", DV_FIELD_SCALAR } };
    dv_slot_info t = { .type = 0 };
    const size_t size = strlen(text);
    t.flags = size && text[size - 1] == '?' ? DV_SLOT_OPTIONAL : 0;
    if (!strncmp(text, "Optional[", 9))
        t.flags = DV_SLOT_OPTIONAL, text += 9;
    const bool list = !strncmp(text, "List[", 5);
    text += list ? 5 : 0;
    if (list && !strncmp(text, "Optional[", 9))
        t.flags |= DV_SLOT_ELEMENT_OPTIONAL, text += 9;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == strcspn(text, "]?") && !strncmp(text, names[i].name, strlen(names[i].name)))
            t.type = list ? dv_field_with_form(names[i].type, DV_FORM_LIST) : names[i].type;
    return t;
}

/* Fills k->slots and what depends on them, from the tuples that _core.torch.kernel() is called with. Returns 0, or -1 with an
 * exception. */
static int kernel_fill_slots(python_kernel *k, PyObject *arguments, PyObject *returns)
{
    k->nargs = PyTuple_Size(arguments);
    k->nresults = PyTuple_Size(returns);
    if (!(k->slots = PyMem_Calloc((size_t)(k->nargs + k->nresults) + 1, sizeof *k->slots)))
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < k->nargs; i++) {
        const char *text;
        int has_default, written, keyword;
        if (!PyArg_ParseTuple(PyTuple_GetItem(arguments, i), "sppp", &text, &has_default, &written, &keyword))
            return -1;
        k->slots[i] = kernel_parse_type(text);
        k->slots[i].default_text = has_default ? "" : NULL;
        k->slots[i].flags |= (written ? DV_SLOT_WRITES : 0) | (keyword ? DV_SLOT_KWARG_ONLY : 0);
        k->has_list_argument |= slot_is_list(&k->slots[i]);
    }
    k->has_known_results = k->nargs <= MAX_SLOTS && k->nresults <= MAX_SLOTS;
    for (Py_ssize_t i = 0; i < k->nresults; i++) {
        const char *text = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(returns, i), NULL);
        if (!text)
            return -1;
        k->slots[k->nargs + i] = kernel_parse_type(text);
        k->has_known_results &= k->slots[k->nargs + i].type != 0;
    }
    return 0;
}

PyObject *dvt_new_python_kernel(PyObject *m, PyObject *args)
{
    (void)m;
    PyObject *fallback, *arguments, *returns, *replay;
    int below, results_must_be_new;
    if (!PyArg_ParseTuple(args, "OO!O!ipO", &fallback, &PyTuple_Type, &arguments, &PyTuple_Type, &returns, &below,
            &results_must_be_new, &replay))
        return NULL;
    python_kernel *k = (python_kernel *)(void *)PyType_GenericAlloc(kernel_type, 0);
    if (!k)
        return NULL;
    k->vectorcall = kernel_vectorcall;
    k->fallback = Py_NewRef(fallback);
    k->replay = Py_NewRef(replay);
    k->results_must_be_new = results_must_be_new;
    k->excluded_below = below;
    if (kernel_fill_slots(k, arguments, returns)) {
        Py_DECREF((PyObject *)k);
        return NULL;
    }
    return (PyObject *)k;
}

static int kernel_traverse(PyObject *self, visitproc visit, void *arg)
{
    const python_kernel *k = kernel_from_object(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(k->fallback);
    Py_VISIT(k->replay);
    for (int d = 0; d < DV__TORCH_DEVICES; d++)
        Py_VISIT(k->kernels[d]);
    return 0;
}

static int kernel_clear(PyObject *self)
{
    python_kernel *k = kernel_from_object(self);
    for (int d = 0; d < DV__TORCH_DEVICES; d++)
        Py_CLEAR(k->kernels[d]);
    return 0;
}

static void kernel_dealloc(PyObject *self)
{
    python_kernel *k = kernel_from_object(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    kernel_clear(self);
    Py_XDECREF(k->fallback);
    Py_XDECREF(k->replay);
    PyMem_Free(k->slots);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *kernel_get_kernels(PyObject *self, void *unused)
{
    (void)unused;
    const python_kernel *k = kernel_from_object(self);
    PyObject *all = PyTuple_New(DV__TORCH_DEVICES);
    for (int d = 0; all && d < DV__TORCH_DEVICES; d++)
        PyTuple_SetItem(all, d, Py_NewRef(k->kernels[d] ? k->kernels[d] : Py_None));
    return all;
}

/* Sets the attribute `kernels`: a tuple with one function, or None, for each kind of device. Returns 0, or -1 with an exception.
 */
static int kernel_set_kernels(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    python_kernel *k = kernel_from_object(self);
    if (!value || !PyTuple_Check(value) || PyTuple_Size(value) != DV__TORCH_DEVICES) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of %d", DV__TORCH_DEVICES);
        return -1;
    }
    for (int d = 0; d < DV__TORCH_DEVICES; d++) {
        PyObject *new_one = PyTuple_GetItem(value, d), *old = k->kernels[d];
        k->kernels[d] = Py_IsNone(new_one) ? NULL : Py_NewRef(new_one);
        Py_XDECREF(old);
    }
    return 0;
}

static PyObject *kernel_call_tuple(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ext_vectorcall_from_tuple(kernel_vectorcall, self, args, kwargs);
}

/* Returns an attribute of the PythonKernel, or else of its fallback; NULL with an exception. */
static PyObject *kernel_getattro(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(kernel_from_object(self)->fallback, name);
}

static Py_hash_t kernel_hash(PyObject *self) { return PyObject_Hash(kernel_from_object(self)->fallback); }

/* Compares the fallbacks, so that a PythonKernel equals its operator in torch. */
static PyObject *kernel_compare(PyObject *self, PyObject *other, int op)
{
    if (Py_IS_TYPE(other, kernel_type))
        other = kernel_from_object(other)->fallback;
    return PyObject_RichCompare(kernel_from_object(self)->fallback, other, op);
}

static PyObject *kernel_repr(PyObject *self) { return PyObject_Repr(kernel_from_object(self)->fallback); }

static PyGetSetDef kernel_getset[] = { { "kernels", kernel_get_kernels, kernel_set_kernels, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL } };
static PyMemberDef kernel_members[] = { { "fallback", T_OBJECT_EX, offsetof(python_kernel, fallback), READONLY, NULL },
    { "__vectorcalloffset__", T_PYSSIZET, offsetof(python_kernel, vectorcall), READONLY, NULL }, { NULL, 0, 0, 0, NULL } };
static PyType_Slot kernel_type_slots[] = { { Py_tp_dealloc, (void *)kernel_dealloc }, { Py_tp_call, (void *)kernel_call_tuple },
    { Py_tp_traverse, (void *)kernel_traverse }, { Py_tp_clear, (void *)kernel_clear },
    { Py_tp_getattro, (void *)kernel_getattro }, { Py_tp_hash, (void *)kernel_hash },
    { Py_tp_richcompare, (void *)kernel_compare }, { Py_tp_repr, (void *)kernel_repr }, { Py_tp_getset, kernel_getset },
    { Py_tp_members, kernel_members }, { 0, NULL } };
static PyType_Spec kernel_type_spec = { "dovetail._core.PythonKernel", sizeof(python_kernel), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | EXT_HAVE_VECTORCALL, kernel_type_slots };

int dvt_make_python_kernel_type(void)
{
    return kernel_type || (kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_type_spec)) ? 0 : -1;
}
