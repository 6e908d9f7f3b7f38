/* A toy framework of one folder: toy.Array, a row of f32 in memory of its own, made from a list. This is all that a host needs.
 */
#include "extension.h"

typedef struct array {
    PyObject ob_base;
    dv_tensor *t; /* owned */
    int written;  /* how often an operator wrote it */
} array;

static PyTypeObject *array_type;

static array *array_of(PyObject *o) { return (array *)(void *)o; }

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    dv_tensor_unref(array_of(self)->t);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *array_from(dv_tensor *take)
{
    PyObject *self = PyType_GenericAlloc(array_type, 0);
    if (self)
        array_of(self)->t = take;
    else
        dv_tensor_unref(take);
    return self;
}

static PyObject *new_array(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *list;
    dv_tensor *t;
    (void)type, (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list))
        return NULL;
    const int64_t n = PyList_Size(list);
    const int status = dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f32), 1, &n, &t);
    if (status)
        return ext_raise_status(status);
    for (Py_ssize_t i = 0; i < n; i++)
        ((float *)t->data)[i] = (float)PyFloat_AsDouble(PyList_GetItem(list, i));
    return array_from(t);
}

static PyObject *tolist(PyObject *self, PyObject *unused)
{
    const dv_tensor *t = array_of(self)->t;
    PyObject *list = PyList_New(t->shape[0]);
    (void)unused;
    for (Py_ssize_t i = 0; list && i < t->shape[0]; i++)
        PyList_SetItem(list, i, PyFloat_FromDouble((double)((const float *)t->data)[i]));
    return list;
}

static PyObject *get_written(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(array_of(self)->written);
}

static PyMethodDef methods[] = { { "tolist", tolist, METH_NOARGS, NULL }, { NULL, NULL, 0, NULL } };
static PyGetSetDef getset[] = { { "written", get_written, NULL, NULL, NULL }, { NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot slots[] = { { Py_tp_dealloc, (void *)dealloc }, { Py_tp_new, (void *)new_array }, { Py_tp_methods, methods },
    { Py_tp_getset, getset }, { 0, NULL } };
static PyType_Spec spec = { "toy.Array", sizeof(array), 0, Py_TPFLAGS_DEFAULT, slots };

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static int setup(PyObject *space)
{
    if (!array_type && !(array_type = (PyTypeObject *)PyType_FromSpec(&spec)))
        return -1;
    return PyModule_AddObjectRef(space, "Array", (PyObject *)array_type);
}

static enum ext_kind kind(PyTypeObject *type) { return type == array_type ? EXT_KIND_TENSOR : EXT_KIND_NONE; }

static enum ext_outcome begin(ext_call *c)
{
    c->host = (dv_host){ .size = sizeof(dv_host),
        .name = "toy",
        .random = ext_draw_random,
        .before_kernel = ext_before_kernel,
        .after_kernel = ext_after_kernel };
    return EXT_OK;
}

static enum ext_outcome tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    if (!Py_IS_TYPE(o, array_type))
        return ext_convert_foreign(c, slot, element, o, write, out);
    *out = array_of(o)->t;
    c->passed_numel += dv_numel(*out);
    return EXT_OK;
}

static void count(PyObject *o) { array_of(o)->written++; }
static void writes(ext_call *c) { ext_for_each_written(c, count); }

static PyObject *wrap(ext_call *c, dv_tensor *take)
{
    (void)c;
    return array_from(take);
}

const ext_host ext_host_toy = { .name = "toy",
    .setup = setup,
    .classify_type = kind,
    .begin_call = begin,
    .describe_tensor = tensor,
    .notify_writes = writes,
    .wrap_tensor = wrap };
