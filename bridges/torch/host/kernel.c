/* Direct calls of a torch operator whose kernels are Python functions. dovetail.torch makes custom_op and its like with
 *
 *     _core.torch.kernel(fallback, arguments, returns, below, fresh, again) -> callable
 *
 * - fallback: the operator's own call in torch, for calls in which anything but the kernel would run.
 * - arguments: ("Tensor", has a default, is written, is keyword-only) of each, with the type as torch prints it.
 * - returns: the types.
 * - below: the dispatch keys of the thread while the kernel runs. 0: unchanged. 1: as below an Autograd kernel, where new tensors
 *   have no history. 2: as below ADInplaceOrView too, where writes are not counted.
 * - fresh: results must share no memory with arguments or with each other.
 * - again: a function (fallback, args, result). It is called with a result that torch would not pass on unchanged, because it
 *   shares memory or has another type than declared. It returns what the call returns, or raises what torch raises.
 *
 * The attribute `kernels` is a tuple of the functions for (CPU, CUDA, PrivateUse1), with None for a function that does not exist.
 * At first the tuple is empty.
 *
 * The kernel is called directly, with the caller's positional arguments (copies of lists), when all of this holds: the thread and
 * every tensor are plain, all tensors are on one device, and no gradient is wanted (guard.h); numbers and strings have exactly
 * the type of their argument; lists are lists or tuples; nothing is given by name. Afterwards the writes are counted. The object
 * hashes and compares as its fallback, and has its attributes.
 */
#include "tensor.h"

#include <stddef.h>
#include <structmember.h>

enum { MOST = 64 }; /* of arguments, and of results, in a direct call */
enum type { UNKNOWN, TENSOR, INT, FLOAT, BOOL, STRING, NUMBER, NOTHING };

typedef struct slot {
    enum type type;
    bool list, optional, element_optional, has_default, writes, keyword;
} slot;

typedef struct python_kernel {
    PyObject ob_base;
    ext_vectorcall vectorcall;
    PyObject *fallback, *again;
    PyObject *kernels[DV__TORCH_DEVICES];
    int below;         /* 0, or 1 more than the second argument of dvt_below() */
    bool fresh, lists; /* lists: an argument is a list */
    bool usable;       /* all results are of types that we check */
    Py_ssize_t nargs, nresults;
    slot *slots; /* arguments, then results */
} python_kernel;

/* Properties of all arguments of one call. */
typedef struct seen { int device; } seen;

static PyTypeObject *kernel_type;

static python_kernel *kernel_of(PyObject *self) { return (python_kernel *)(void *)self; }

/* ---- May it be called directly? ------------------------------------------------------------------------------------------ */

static bool tensor_fits(PyObject *o, bool writes, seen *s)
{
    if (dvt_way_of(o, writes) != DV__TORCH_PLAIN)
        return false;
    const int device = dvt->device_of(dvt_handle(o));
    if (s->device < 0)
        s->device = device;
    return s->device == device;
}

static bool is_int64(PyObject *o)
{
    int overflow = 0;
    return PyLong_CheckExact(o) && (PyLong_AsLongLongAndOverflow(o, &overflow), !overflow);
}

static bool one_fits(const slot *t, PyObject *o, seen *s)
{
    switch (t->type) {
    case TENSOR: return tensor_fits(o, t->writes, s);
    case INT: return is_int64(o);
    case FLOAT: return PyFloat_CheckExact(o);
    case BOOL: return PyBool_Check(o);
    case STRING: return PyUnicode_CheckExact(o);
    case NUMBER: return is_int64(o) || PyFloat_CheckExact(o);
    case UNKNOWN:
    case NOTHING: break;
    }
    return false;
}

static bool fits(const slot *t, PyObject *o, seen *s)
{
    if (Py_IsNone(o))
        return t->optional;
    if (!t->list)
        return one_fits(t, o, s);
    if (!PyList_CheckExact(o))
        return false;
    for (Py_ssize_t i = 0, n = PyList_Size(o); i < n; i++) {
        PyObject *item = PyList_GetItem(o, i);
        if (Py_IsNone(item) ? !t->element_optional : !one_fits(t, item, s))
            return false;
    }
    return true;
}

/* The kernel for this call, or NULL: call through torch. */
static PyObject *kernel_for(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs)
{
    seen s = { -1 };
    for (Py_ssize_t i = 0; i < k->nargs; i++)
        if (i < nargs ? k->slots[i].keyword || !fits(&k->slots[i], args[i], &s) : !k->slots[i].has_default)
            return NULL;
    return s.device < 0 ? NULL : k->kernels[s.device];
}

/* ---- Arguments and results ----------------------------------------------------------------------------------------------- */

static void count_writes(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs)
{
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!k->slots[i].writes || Py_IsNone(args[i]))
            continue;
        for (Py_ssize_t j = 0, n = k->slots[i].list ? PyList_Size(args[i]) : 1; j < n; j++) {
            PyObject *o = k->slots[i].list ? PyList_GetItem(args[i], j) : args[i];
            if (!Py_IsNone(o))
                dvt->count_write(dvt_handle(o));
        }
    }
}

/* Call fn for every tensor in args or results, also in lists, until it returns true. */
static bool each_tensor(PyObject *const *items, Py_ssize_t n, bool (*fn)(PyObject *o, void *user), void *user)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (dvt_is_tensor(items[i])) {
            if (fn(items[i], user))
                return true;
        } else if (PyList_Check(items[i])) {
            for (Py_ssize_t j = 0; j < PyList_Size(items[i]); j++) {
                PyObject *o = PyList_GetItem(items[i], j);
                if (dvt_is_tensor(o) && fn(o, user))
                    return true;
            }
        }
    }
    return false;
}

typedef struct compared {
    PyObject *result;
    const void *storage;
    bool itself;
} compared;

/* The result itself is one entry among the results; that entry does not count. */
static bool shares(PyObject *o, void *user)
{
    compared *c = user;
    if (o == c->result && !c->itself)
        return c->itself = true, false;
    return o == c->result || dvt->storage_of(dvt_handle(o)) == c->storage;
}

typedef struct everything {
    PyObject *const *args, *const *results;
    Py_ssize_t nargs, nresults;
} everything;

/* May this result share memory with an argument or with another result? A tensor that cannot be read counts as sharing. */
static bool is_suspect(PyObject *result, void *user)
{
    const everything *all = user;
    if (dvt_way_of(result, false) == DV__TORCH_OTHER)
        return true;
    compared c = { result, dvt->storage_of(dvt_handle(result)), true };
    if (each_tensor(all->args, all->nargs, shares, &c))
        return true;
    c.itself = false;
    return each_tensor(all->results, all->nresults, shares, &c);
}

static bool result_fits(const slot *t, PyObject *o)
{
    seen unused = { -1 };
    if (t->type != TENSOR)
        return fits(t, o, &unused);
    if (!t->list || Py_IsNone(o))
        return dvt_is_tensor(o) || (Py_IsNone(o) && t->optional);
    bool all = PyList_CheckExact(o);
    for (Py_ssize_t i = 0; all && i < PyList_Size(o); i++)
        all = dvt_is_tensor(PyList_GetItem(o, i));
    return all;
}

static bool all_fit(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject *const *results)
{
    for (Py_ssize_t i = 0; i < k->nresults; i++)
        if (!result_fits(&k->slots[k->nargs + i], results[i]))
            return false;
    everything all = { args, results, nargs, k->nresults };
    return !k->fresh || !each_tensor(results, k->nresults, is_suspect, &all);
}

/* Would torch pass it on unchanged: None, the result, or a tuple of the results? */
static bool is_right(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject *result)
{
    PyObject *results[MOST];
    if (k->nresults == 0)
        return Py_IsNone(result);
    if (k->nresults == 1)
        return all_fit(k, args, nargs, &result);
    if (!PyTuple_CheckExact(result) || PyTuple_Size(result) != k->nresults)
        return false;
    for (Py_ssize_t i = 0; i < k->nresults; i++)
        results[i] = PyTuple_GetItem(result, i);
    return all_fit(k, args, nargs, results);
}

/* Takes the result. */
static PyObject *let_torch_say(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject *result)
{
    PyObject *tuple = PyTuple_New(nargs), *answer = NULL;
    for (Py_ssize_t i = 0; tuple && i < nargs; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    if (tuple)
        answer = PyObject_CallFunctionObjArgs(k->again, k->fallback, tuple, result, NULL);
    Py_XDECREF(tuple);
    Py_DECREF(result);
    return answer;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

static PyObject *run(const python_kernel *k, PyObject *kernel, PyObject *const *args, Py_ssize_t nargs)
{
    count_writes(k, args, nargs);
    Py_INCREF(kernel); /* the call may replace it */
    uint64_t *keys = k->below ? dvt->thread_keys() : NULL;
    const uint64_t before = keys ? dvt_below(keys, k->below - 1) : 0;
    PyObject *result = ext_call_python(kernel, args, (size_t)nargs, NULL);
    if (keys)
        keys[1] = before;
    Py_DECREF(kernel);
    return !result || is_right(k, args, nargs, result) ? result : let_torch_say(k, args, nargs, result);
}

/* Copy lists and tuples among the arguments to new lists for the kernel, as torch's dispatcher does. Returns how many arguments
 * were processed; fewer than nargs with an exception. */
static Py_ssize_t copy_lists(const python_kernel *k, PyObject *const *args, Py_ssize_t nargs, PyObject **out)
{
    Py_ssize_t i = 0;
    for (; i < nargs; i++) {
        out[i] = args[i];
        if (k->slots[i].list && (PyList_CheckExact(args[i]) || PyTuple_Check(args[i])) && !(out[i] = PySequence_List(args[i])))
            break;
    }
    return i;
}

static PyObject *call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const python_kernel *k = kernel_of(self);
    const Py_ssize_t nargs = EXT_NARGS(nargsf);
    PyObject *own[MOST], *const *given = args, *answer = NULL;
    const bool possible = k->usable && nargs <= k->nargs && !(kwnames && PyTuple_Size(kwnames)) && dvt_setup() &&
        dvt->python_is_plain();
    Py_ssize_t copied = 0;
    if (possible && k->lists) {
        copied = copy_lists(k, args, nargs, own);
        given = own;
    }
    if (PyErr_Occurred())
        goto done;
    PyObject *kernel = possible ? kernel_for(k, given, nargs) : NULL;
    Py_INCREF(self); /* the call may replace this object, too */
    answer = kernel ? run(k, kernel, given, nargs) : ext_call_python(k->fallback, args, nargsf, kwnames);
    Py_DECREF(self);
done:
    for (Py_ssize_t i = 0; i < copied; i++)
        if (own[i] != args[i])
            Py_DECREF(own[i]);
    return answer;
}

/* ---- Making -------------------------------------------------------------------------------------------------------------- */

/* "Tensor", "Tensor?", "List[int]", "List[Optional[Tensor]]", "Optional[float]" */
static slot parse_type(const char *text)
{
    static const struct {
        const char *name;
        enum type type;
    } names[] = { { "Tensor", TENSOR }, { "int", INT }, { "SymInt", INT }, { "float", FLOAT }, { "bool", BOOL },
        { "str", STRING }, { "number", NUMBER } };
    slot t = { .type = UNKNOWN };
    const size_t size = strlen(text);
    t.optional = size && text[size - 1] == '?';
    if (!strncmp(text, "Optional[", 9))
        t.optional = true, text += 9;
    if (!strncmp(text, "List[", 5))
        t.list = true, text += 5;
    if (t.list && !strncmp(text, "Optional[", 9))
        t.element_optional = true, text += 9;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == strcspn(text, "]?") && !strncmp(text, names[i].name, strlen(names[i].name)))
            t.type = names[i].type;
    return t;
}

static int fill(python_kernel *k, PyObject *arguments, PyObject *returns)
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
        k->slots[i] = parse_type(text);
        k->slots[i].has_default = has_default;
        k->slots[i].writes = written;
        k->slots[i].keyword = keyword;
        k->lists |= k->slots[i].list;
    }
    k->usable = k->nargs <= MOST && k->nresults <= MOST;
    for (Py_ssize_t i = 0; i < k->nresults; i++) {
        const char *text = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(returns, i), NULL);
        if (!text)
            return -1;
        k->slots[k->nargs + i] = parse_type(text);
        k->usable &= k->slots[k->nargs + i].type != UNKNOWN;
    }
    return 0;
}

PyObject *dvt_python_kernel(PyObject *m, PyObject *args)
{
    (void)m;
    PyObject *fallback, *arguments, *returns, *again;
    int below, fresh;
    if (!PyArg_ParseTuple(
            args, "OO!O!ipO", &fallback, &PyTuple_Type, &arguments, &PyTuple_Type, &returns, &below, &fresh, &again))
        return NULL;
    python_kernel *k = (python_kernel *)(void *)PyType_GenericAlloc(kernel_type, 0);
    if (!k)
        return NULL;
    k->vectorcall = call;
    k->fallback = Py_NewRef(fallback);
    k->again = Py_NewRef(again);
    k->fresh = fresh;
    k->below = below;
    if (fill(k, arguments, returns)) {
        Py_DECREF((PyObject *)k);
        return NULL;
    }
    return (PyObject *)k;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    const python_kernel *k = kernel_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(k->fallback);
    Py_VISIT(k->again);
    for (int d = 0; d < DV__TORCH_DEVICES; d++)
        Py_VISIT(k->kernels[d]);
    return 0;
}

static int clear(PyObject *self)
{
    python_kernel *k = kernel_of(self);
    for (int d = 0; d < DV__TORCH_DEVICES; d++)
        Py_CLEAR(k->kernels[d]);
    return 0;
}

static void dealloc(PyObject *self)
{
    python_kernel *k = kernel_of(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_XDECREF(k->fallback);
    Py_XDECREF(k->again);
    PyMem_Free(k->slots);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_kernels(PyObject *self, void *unused)
{
    (void)unused;
    const python_kernel *k = kernel_of(self);
    PyObject *all = PyTuple_New(DV__TORCH_DEVICES);
    for (int d = 0; all && d < DV__TORCH_DEVICES; d++)
        PyTuple_SetItem(all, d, Py_NewRef(k->kernels[d] ? k->kernels[d] : Py_None));
    return all;
}

static int set_kernels(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    python_kernel *k = kernel_of(self);
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

static PyObject *slow_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ext_vectorcall_of(call, self, args, kwargs);
}

static PyObject *getattro(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(kernel_of(self)->fallback, name);
}

static Py_hash_t hash(PyObject *self) { return PyObject_Hash(kernel_of(self)->fallback); }

static PyObject *compare(PyObject *self, PyObject *other, int op)
{
    if (Py_IS_TYPE(other, kernel_type))
        other = kernel_of(other)->fallback;
    return PyObject_RichCompare(kernel_of(self)->fallback, other, op);
}

static PyObject *repr(PyObject *self) { return PyObject_Repr(kernel_of(self)->fallback); }

static PyGetSetDef getset[] = { { "kernels", get_kernels, set_kernels, NULL, NULL }, { NULL, NULL, NULL, NULL, NULL } };
static PyMemberDef members[] = { { "fallback", T_OBJECT_EX, offsetof(python_kernel, fallback), READONLY, NULL },
    { "__vectorcalloffset__", T_PYSSIZET, offsetof(python_kernel, vectorcall), READONLY, NULL }, { NULL, 0, 0, 0, NULL } };
static PyType_Slot type_slots[] = { { Py_tp_dealloc, (void *)dealloc }, { Py_tp_call, (void *)slow_call },
    { Py_tp_traverse, (void *)traverse }, { Py_tp_clear, (void *)clear }, { Py_tp_getattro, (void *)getattro },
    { Py_tp_hash, (void *)hash }, { Py_tp_richcompare, (void *)compare }, { Py_tp_repr, (void *)repr }, { Py_tp_getset, getset },
    { Py_tp_members, members }, { 0, NULL } };
static PyType_Spec type_spec = { "dovetail._core.PythonKernel", sizeof(python_kernel), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | EXT_HAVE_VECTORCALL, type_slots };

int dvt_python_kernel_setup(void) { return kernel_type || (kernel_type = (PyTypeObject *)PyType_FromSpec(&type_spec)) ? 0 : -1; }
