/* Calls from the dispatcher to Python: converts the stack's arguments to Python objects, makes the call, and puts the results on
 * the stack. Compiled with -fexceptions: a Python exception continues as torch's python_error, through frames that release their
 * resources by cleanup attributes.
 */
#include "tensor.h"

static PyObject *from_number; /* a function (kind, number, ...) that returns a dtype, device, layout or memory format of torch */

struct python_call {
    PyGILState_STATE gil;
    PyObject *f, *args, *out;
};

/* Releases the objects of a call and the GIL; a cleanup attribute calls it. */
static void python_call_release(struct python_call *call)
{
    Py_XDECREF(call->f);
    Py_XDECREF(call->args);
    Py_XDECREF(call->out);
    PyGILState_Release(call->gil);
}

static void *cell_to_handle(uint64_t cell) { return (void *)(uintptr_t)cell; }

/* ---- the stack's values as Python objects -------------------------------------------------------------------------------- */

static PyObject *cell_to_python(
    const struct dv__torch_op *op, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell);

/* Returns a new list with the elements of torch's list in the cell, whose elements have the type `field`. NULL with an exception.
 */
static PyObject *list_to_python(const struct dv__torch_op *op, const struct dv__torch_slot *s, uint8_t field, uint64_t cell)
{
    size_t n;
    if (op->t->torch_list_size(cell_to_handle(cell), &n))
        return PyErr_Format(PyExc_RuntimeError, "%s: argument '%s': libtorch could not read a list", op->name, s->info.name);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        uint64_t item;
        PyObject *o = op->t->torch_list_get_item(cell_to_handle(cell), i, &item)
            ? NULL
            : cell_to_python(op, s, field, s->info.flags & DV_SLOT_ELEMENT_OPTIONAL, item);
        if (!o) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_RuntimeError, "%s: argument '%s': libtorch could not read a list", op->name, s->info.name);
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, o);
        }
    }
    return list;
}

/* Returns torch's string as a str; NULL with an exception. */
static PyObject *string_to_python(const struct dv__torch_op *op, const struct dv__torch_slot *s, void *string)
{
    const char *data;
    size_t size;
    if (op->t->torch_string_c_str(string, &data) || op->t->torch_string_length(string, &size))
        return PyErr_Format(PyExc_RuntimeError, "%s: argument '%s': libtorch could not read a string", op->name, s->info.name);
    return PyUnicode_FromStringAndSize(data, (Py_ssize_t)size);
}

/* Returns a new reference to the Python object of a cell's value, which stays owned by the cell. field: enum dv_field_type of the
 * value; optional: the cell may be None. NULL with an exception. */
static PyObject *cell_to_python(
    const struct dv__torch_op *op, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell)
{
    double f;
    if (optional) {
        if (!cell)
            return Py_NewRef(Py_None);
        cell = *(const uint64_t *)cell_to_handle(cell);
    }
    switch (field) {
    case DV_FIELD_TENSOR: return dvt_wrap_handle(cell_to_handle(cell));
    case DV_FIELD_INT: return PyLong_FromLongLong((long long)cell);
    case DV_FIELD_FLOAT: memcpy(&f, &cell, sizeof f); return PyFloat_FromDouble(f);
    case DV_FIELD_BOOL: return PyBool_FromLong((cell & 255) != 0);
    case DV_FIELD_STRING: return string_to_python(op, s, cell_to_handle(cell));
    case DV_FIELD_DTYPE: return PyObject_CallFunction(from_number, "si", "dtype", (int)(int32_t)cell);
    case DV_FIELD_LAYOUT: return PyObject_CallFunction(from_number, "si", "layout", (int)(int32_t)cell);
    case DV_FIELD_MEMORY_FORMAT: return PyObject_CallFunction(from_number, "si", "memory_format", (int)(int32_t)cell);
    case DV_FIELD_DEVICE: /* the index in the low half, the type in the high half */
        return PyObject_CallFunction(from_number, "sii", "device", (int)(cell >> 32), (int)(int32_t)(uint32_t)cell);
    default: return list_to_python(op, s, (uint8_t)dv_field_at(field)->of, cell);
    }
}

/* Returns a tuple of the stack's first nargs values, those of out= included; NULL with an exception. */
static PyObject *arguments_to_python(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs)
{
    PyObject *args = PyTuple_New((Py_ssize_t)nargs);
    for (size_t i = 0; args && i < nargs; i++) {
        const struct dv__torch_slot *s = &op->slots[i];
        PyObject *o = cell_to_python(op, s, s->field, s->info.flags & DV_SLOT_OPTIONAL, stack[i]);
        if (o)
            PyTuple_SetItem(args, (Py_ssize_t)i, o);
        else
            Py_CLEAR(args);
    }
    return args;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

/* Raises a TypeError for a Python result of a wrong type. Returns -1. */
static int fail_wrong_result(const struct dv__torch_op *op, const struct dv__torch_slot *s, const char *expected, PyObject *found)
{
    PyErr_Format(
        PyExc_TypeError, "%s: result '%s': expected %s, found %R", op->name, s->info.name, expected, (PyObject *)Py_TYPE(found));
    return -1;
}

/* Stores a new handle of the tensor o in the cell. Returns 0, or -1 with an exception. */
static int tensor_to_cell(const struct dv__torch_op *op, const struct dv__torch_slot *s, PyObject *o, uint64_t *cell)
{
    void *handle;
    if (!dvt_is_tensor(o))
        return fail_wrong_result(op, s, "a tensor", o);
    if (op->t->aoti_torch_new_tensor_handle(dvt_get_handle(o), &handle)) {
        PyErr_NoMemory();
        return -1;
    }
    *cell = (uint64_t)(uintptr_t)handle;
    return 0;
}

/* Stores a new torch list with the tensors of a list or tuple in the cell. Returns 0, or -1 with an exception. */
static int list_to_cell(const struct dv__torch_op *op, size_t slot_index, PyObject *o, uint64_t *cell)
{
    void *list;
    const Py_ssize_t n = PyList_Check(o) ? PyList_Size(o) : PyTuple_Check(o) ? PyTuple_Size(o) : -1;
    if (n < 0)
        return fail_wrong_result(op, &op->slots[slot_index], "a list of tensors", o);
    if (op->t->torch_new_list_reserve_size((size_t)n, &list)) {
        PyErr_NoMemory();
        return -1;
    }
    *cell = (uint64_t)(uintptr_t)list;
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t item;
        if (tensor_to_cell(op, &op->slots[slot_index], PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i), &item)) {
            dvt->release_cell(op, slot_index, *cell);
            return -1;
        }
        op->t->torch_list_push_back(list, item);
    }
    return 0;
}

/* Stores a Python result in the cell, as the type of its slot requires. Returns 0; -1 with an exception, and the cell owns
 * nothing. */
static int result_to_cell(const struct dv__torch_op *op, size_t slot_index, PyObject *o, uint64_t *cell)
{
    const struct dv__torch_slot *s = &op->slots[slot_index];
    int status = 0;
    *cell = 0;
    if ((s->info.flags & DV_SLOT_OPTIONAL) && o == Py_None)
        return 0;
    switch (s->field) {
    case DV_FIELD_TENSOR: status = tensor_to_cell(op, s, o, cell); break;
    case DV_FIELD_INT: *cell = (uint64_t)PyLong_AsLongLong(o); break;
    case DV_FIELD_BOOL: *cell = PyObject_IsTrue(o) > 0; break;
    case DV_FIELD_FLOAT: {
        const double f = PyFloat_AsDouble(o);
        memcpy(cell, &f, sizeof f);
        break;
    }
    default: status = list_to_cell(op, slot_index, o, cell);
    }
    if (status || PyErr_Occurred())
        return -1;
    if ((s->info.flags & DV_SLOT_OPTIONAL) && dvt->box_optional(op, cell)) {
        dvt->release_cell(op, slot_index, *cell);
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Stores all results of a Python function in the stack's cells; several results must be a tuple. Returns 0; -1 with an exception,
 * and no cell owns a result. */
static int results_to_stack(const struct dv__torch_op *op, PyObject *python_results, uint64_t *stack)
{
    const bool many = op->nresults > 1;
    if (many && (!PyTuple_Check(python_results) || (size_t)PyTuple_Size(python_results) != op->nresults)) {
        PyErr_Format(
            PyExc_TypeError, "%s: expected %zu results, found %R", op->name, op->nresults, (PyObject *)Py_TYPE(python_results));
        return -1;
    }
    for (size_t i = 0; i < op->nresults; i++)
        if (result_to_cell(
                op, op->nargs + i, many ? PyTuple_GetItem(python_results, (Py_ssize_t)i) : python_results, &stack[i])) {
            while (i--)
                dvt->release_cell(op, op->nargs + i, stack[i]);
            return -1;
        }
    return 0;
}

/* ---- the call of Python -------------------------------------------------------------------------------------------------- */

/* Calls the operator's Python object for this path, releases the arguments on the stack, and stores the results there. Returns 0,
 * or -1 with an exception. call->gil must be held. */
static int python_call_run(
    struct python_call *call, const struct dv__torch_op *op, enum dv__torch_path path, uint64_t *stack, size_t nargs)
{
    call->f = atomic_load(path == DV__TORCH_PATH_AUTOGRAD ? &op->gradient
            : path == DV__TORCH_PATH_DECOMPOSITION        ? &op->decomposition
                                                          : &op->python);
    Py_XINCREF(call->f);
    call->args = call->f ? arguments_to_python(op, stack, nargs)
                         : PyErr_Format(PyExc_RuntimeError, "%s: its library was unloaded", op->name);
    dvt->release_arguments(op, stack, nargs);
    call->out = call->args ? PyObject_Call(call->f, call->args, NULL) : NULL;
    if (call->out && nargs > op->nargs && op->returns_list)
        return 0;
    return call->out ? results_to_stack(op, call->out, stack) : -1;
}

/* The function for dv__torch_set_python_fn(): takes the GIL and calls Python. A Python exception is thrown as torch's. */
static void python_call_operator(const struct dv__torch_op *op, enum dv__torch_path path, uint64_t *stack, size_t nargs)
{
    __attribute__((cleanup(python_call_release))) struct python_call v = { .gil = PyGILState_Ensure() };
    if (python_call_run(&v, op, path, stack, nargs))
        dvt_throw_python_error();
}

void dvt_set_from_number_function(PyObject *function)
{
    PyObject *const old = from_number;
    from_number = Py_NewRef(function);
    Py_XDECREF(old);
    dvt->set_python_fn(python_call_operator);
}
