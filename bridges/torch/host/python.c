/* Calls from the dispatcher to Python: converts the stack's arguments to Python objects, makes the call, and puts the results on
 * the stack. Compiled with -fexceptions: a Python exception continues as torch's python_error, through frames that release their
 * resources by cleanup attributes.
 */
#include "../autograd.h"
#include "tensor.h"

static const struct dv__torch_exchange *exchange;
static PyObject *from_number; /* (kind, number) -> a dtype, a device, a layout or a memory format */

struct visit {
    PyGILState_STATE gil;
    PyObject *f, *args, *out;
};

static void leave(struct visit *v)
{
    Py_XDECREF(v->f);
    Py_XDECREF(v->args);
    Py_XDECREF(v->out);
    PyGILState_Release(v->gil);
}

static void *handle_of(uint64_t cell) { return (void *)(uintptr_t)cell; }

/* ---- the stack's values as Python objects -------------------------------------------------------------------------------- */

static PyObject *object_of(
    const struct dv__torch_op *op, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell);

static PyObject *list_of(const struct dv__torch_op *op, const struct dv__torch_slot *s, uint8_t field, uint64_t cell)
{
    size_t n;
    if (op->t->torch_list_size(handle_of(cell), &n))
        return PyErr_Format(PyExc_RuntimeError, "%s: argument '%s': libtorch could not read a list", op->name, s->name);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        uint64_t item;
        PyObject *o = op->t->torch_list_get_item(handle_of(cell), i, &item) ? NULL
                                                                            : object_of(op, s, field, s->element_optional, item);
        if (!o) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_RuntimeError, "%s: argument '%s': libtorch could not read a list", op->name, s->name);
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, o);
        }
    }
    return list;
}

static PyObject *string_of(const struct dv__torch_op *op, const struct dv__torch_slot *s, void *string)
{
    const char *data;
    size_t size;
    if (op->t->torch_string_c_str(string, &data) || op->t->torch_string_length(string, &size))
        return PyErr_Format(PyExc_RuntimeError, "%s: argument '%s': libtorch could not read a string", op->name, s->name);
    return PyUnicode_FromStringAndSize(data, (Py_ssize_t)size);
}

static PyObject *object_of(
    const struct dv__torch_op *op, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell)
{
    double f;
    if (optional) {
        if (!cell)
            return Py_NewRef(Py_None);
        cell = *(const uint64_t *)handle_of(cell);
    }
    switch (field) {
    case DV_FIELD_TENSOR: return dvt_wrap(handle_of(cell));
    case DV_FIELD_INT: return PyLong_FromLongLong((long long)cell);
    case DV_FIELD_FLOAT: memcpy(&f, &cell, sizeof f); return PyFloat_FromDouble(f);
    case DV_FIELD_BOOL: return PyBool_FromLong((cell & 255) != 0);
    case DV_FIELD_STRING: return string_of(op, s, handle_of(cell));
    case DV_FIELD_DTYPE: return PyObject_CallFunction(from_number, "si", "dtype", (int)(int32_t)cell);
    case DV_FIELD_LAYOUT: return PyObject_CallFunction(from_number, "si", "layout", (int)(int32_t)cell);
    case DV_FIELD_MEMORY_FORMAT: return PyObject_CallFunction(from_number, "si", "memory_format", (int)(int32_t)cell);
    case DV_FIELD_DEVICE: /* the index in the low half, the type in the high half */
        return PyObject_CallFunction(from_number, "sii", "device", (int)(cell >> 32), (int)(int32_t)(uint32_t)cell);
    default: return list_of(op, s, (uint8_t)dv_field_at(field)->of, cell);
    }
}

static PyObject *arguments_of(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs)
{
    PyObject *args = PyTuple_New((Py_ssize_t)nargs);
    for (size_t i = 0; args && i < nargs; i++) {
        const struct dv__torch_slot *s = &op->slots[i];
        PyObject *o = object_of(op, s, s->field, s->optional, stack[i]);
        if (o)
            PyTuple_SetItem(args, (Py_ssize_t)i, o);
        else
            Py_CLEAR(args);
    }
    return args;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

static int wrong_result(const struct dv__torch_op *op, const struct dv__torch_slot *s, const char *expected, PyObject *found)
{
    PyErr_Format(
        PyExc_TypeError, "%s: result '%s': expected %s, found %R", op->name, s->name, expected, (PyObject *)Py_TYPE(found));
    return -1;
}

static int tensor_cell(const struct dv__torch_op *op, const struct dv__torch_slot *s, PyObject *o, uint64_t *cell)
{
    void *handle;
    if (!dvt_is_tensor(o))
        return wrong_result(op, s, "a tensor", o);
    if (op->t->aoti_torch_new_tensor_handle(dvt_handle(o), &handle)) {
        PyErr_NoMemory();
        return -1;
    }
    *cell = (uint64_t)(uintptr_t)handle;
    return 0;
}

static int list_cell(const struct dv__torch_op *op, size_t slot, PyObject *o, uint64_t *cell)
{
    void *list;
    const Py_ssize_t n = PyList_Check(o) ? PyList_Size(o) : PyTuple_Check(o) ? PyTuple_Size(o) : -1;
    if (n < 0)
        return wrong_result(op, &op->slots[slot], "a list of tensors", o);
    if (op->t->torch_new_list_reserve_size((size_t)n, &list)) {
        PyErr_NoMemory();
        return -1;
    }
    *cell = (uint64_t)(uintptr_t)list;
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t item;
        if (tensor_cell(op, &op->slots[slot], PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i), &item)) {
            exchange->release(op, slot, *cell);
            return -1;
        }
        op->t->torch_list_push_back(list, item);
    }
    return 0;
}

static int result_cell(const struct dv__torch_op *op, size_t slot, PyObject *o, uint64_t *cell)
{
    const struct dv__torch_slot *s = &op->slots[slot];
    int status = 0;
    *cell = 0;
    if (s->optional && o == Py_None)
        return 0;
    switch (s->field) {
    case DV_FIELD_TENSOR: status = tensor_cell(op, s, o, cell); break;
    case DV_FIELD_INT: *cell = (uint64_t)PyLong_AsLongLong(o); break;
    case DV_FIELD_BOOL: *cell = PyObject_IsTrue(o) > 0; break;
    case DV_FIELD_FLOAT: {
        const double f = PyFloat_AsDouble(o);
        memcpy(cell, &f, sizeof f);
        break;
    }
    default: status = list_cell(op, slot, o, cell);
    }
    if (status || PyErr_Occurred())
        return -1;
    if (s->optional && exchange->box(op, cell)) {
        exchange->release(op, slot, *cell);
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* All results, or none. */
static int results_to(const struct dv__torch_op *op, PyObject *out, uint64_t *stack)
{
    const bool many = op->nresults > 1;
    if (many && (!PyTuple_Check(out) || (size_t)PyTuple_Size(out) != op->nresults)) {
        PyErr_Format(PyExc_TypeError, "%s: expected %zu results, found %R", op->name, op->nresults, (PyObject *)Py_TYPE(out));
        return -1;
    }
    for (size_t i = 0; i < op->nresults; i++)
        if (result_cell(op, op->nargs + i, many ? PyTuple_GetItem(out, (Py_ssize_t)i) : out, &stack[i])) {
            while (i--)
                exchange->release(op, op->nargs + i, stack[i]);
            return -1;
        }
    return 0;
}

/* ---- the visit ----------------------------------------------------------------------------------------------------------- */

static int visit(struct visit *v, const struct dv__torch_op *op, enum dv__torch_way way, uint64_t *stack, size_t nargs)
{
    v->f = atomic_load(way == DV__TORCH_GRADIENT ? &op->gradient : way == DV__TORCH_NATIVE ? &op->native : &op->python);
    Py_XINCREF(v->f);
    v->args = v->f ? arguments_of(op, stack, nargs) : PyErr_Format(PyExc_RuntimeError, "%s: its library was unloaded", op->name);
    exchange->release_arguments(op, stack, nargs);
    v->out = v->args ? PyObject_Call(v->f, v->args, NULL) : NULL;
    if (v->out && nargs > op->nargs && op->lists)
        return 0;
    return v->out ? results_to(op, v->out, stack) : -1;
}

static void enter(const struct dv__torch_op *op, enum dv__torch_way way, uint64_t *stack, size_t nargs)
{
    __attribute__((cleanup(leave))) struct visit v = { .gil = PyGILState_Ensure() };
    if (visit(&v, op, way, stack, nargs))
        dvt_rethrow();
}

void dvt_set_exchange(const struct dv__torch_exchange *to, PyObject *numbers)
{
    exchange = to;
    Py_XDECREF(from_number);
    from_number = Py_NewRef(numbers);
    exchange->set_python(enter);
}
