/* Python objects to values, one function a schema type; docs/numpy.md has the table in words. What a function accepts is what
 * PyTorch accepts for that type, and NumPy's scalars, dtypes and arrays; never a conversion that loses something. */
#include "extension.h"

#include <stdio.h>

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

/* "list", "numpy.float32" */
static PyObject *type_title(PyTypeObject *type)
{
    PyObject *name = PyType_GetQualName(type), *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    PyErr_Clear();
    PyObject *title = name && module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "builtins")
        ? PyUnicode_FromFormat("%U.%U", module, name)
        : Py_XNewRef(name);
    Py_XDECREF(name);
    Py_XDECREF(module);
    return title;
}

/* What an object is, for a message: "int 3", "str 'abc'", "an array f32[2, 3]", "list". */
static PyObject *describe(PyObject *o)
{
    if (Py_IsNone(o))
        return PyUnicode_FromString("None");
    if (dvnp_is_array(o)) {
        PyObject *dtype = PyObject_GetAttrString(o, "dtype"), *shape = PyObject_GetAttrString(o, "shape");
        PyObject *text = dtype && shape ? PyUnicode_FromFormat("an array of %S with shape %S", dtype, shape) : NULL;
        Py_XDECREF(dtype);
        Py_XDECREF(shape);
        return text;
    }
    PyObject *type = type_title(Py_TYPE(o)), *text = NULL;
    if (PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o) || PyUnicode_Check(o)) {
        PyObject *repr = PyObject_Repr(o), *shown = repr ? PyUnicode_Substring(repr, 0, 40) : NULL;
        text = type && shown ? PyUnicode_FromFormat("%U %U", type, shown) : NULL;
        Py_XDECREF(repr);
        Py_XDECREF(shown);
    }
    if (!text) {
        PyErr_Clear();
        text = type;
        Py_XINCREF(text);
    }
    Py_XDECREF(type);
    return text;
}

static const char *kind_of(const ext_operator *f, const ext_slot *slot)
{
    return slot < f->slots + f->nargs ? "argument" : "result";
}

static enum ext_outcome wrong_text(
    const ext_operator *f, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *found)
{
    if (!found)
        return EXT_FAILED;
    PyObject *where = element < 0 ? PyUnicode_FromString("") : PyUnicode_FromFormat("[%zd]", element);
    PyObject *name = *slot->text ? PyUnicode_FromFormat("'%s'", slot->text)
                                 : PyUnicode_FromFormat("%zd", slot - f->slots - (Py_ssize_t)f->nargs);
    if (where && name)
        PyErr_Format(PyExc_TypeError, "%s: %s %U%U: expected %s%s%s%s, found %U", f->name, kind_of(f, slot), name, where,
            element < 0 ? slot->type_text : expected, element < 0 && expected ? " (" : "",
            element < 0 && expected ? expected : "", element < 0 && expected ? ")" : "", found);
    Py_XDECREF(where);
    Py_XDECREF(name);
    return EXT_FAILED;
}

/* expected: what the schema's type means in Python, or NULL when its name says it. element: index in a list, or -1. */
static enum ext_outcome wrong(ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *o)
{
    PyErr_Clear();
    PyObject *found = describe(o);
    enum ext_outcome outcome = wrong_text(c->f, slot, element, expected, found);
    Py_XDECREF(found);
    return outcome;
}

static enum ext_outcome out_of_range(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o)
{
    PyErr_Clear();
    return wrong(c, slot, element, "a number of 64 bits", o);
}

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

/* torch.Tensor, if torch has been imported. Looked up until it is there. */
static PyTypeObject *torch_tensor(void)
{
    static PyTypeObject *type;
    if (type)
        return type;
    PyObject *modules = PySys_GetObject("modules"), *torch = modules ? PyDict_GetItemString(modules, "torch") : NULL;
    if (!torch)
        return NULL;
    PyObject *found = PyObject_GetAttrString(torch, "Tensor");
    if (!found || !PyType_Check(found)) {
        PyErr_Clear();
        Py_XDECREF(found);
        return NULL;
    }
    return type = (PyTypeObject *)found;
}

bool ext_is_foreign(PyObject *o)
{
    PyTypeObject *type = torch_tensor();
    return type && (Py_IS_TYPE(o, type) || PyType_IsSubtype(Py_TYPE(o), type));
}

static enum ext_outcome view(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *array, bool write, const dv_tensor **out)
{
    const int ndim = dvnp_ndim(array);
    dv_tensor *t = ext_alloc(c, sizeof *t + (size_t)(ndim ? ndim : 1) * sizeof(int64_t));
    if (!t)
        return EXT_FAILED;
    int64_t *strides = (int64_t *)(void *)(t + 1);
    const char *why = dvnp_view(array, write, strides, t);
    if (__builtin_expect(why != NULL, 0)) {
        PyObject *found = PyUnicode_FromString(why);
        enum ext_outcome outcome = wrong_text(
            c->f, slot, element, element < 0 ? write ? "an array to write to" : NULL : "Tensor", found);
        Py_XDECREF(found);
        return outcome;
    }
    c->elements += dv_numel(t);
    *out = t;
    return EXT_OK;
}

/* Not an array: perhaps something that can be seen as one. */
static enum ext_outcome other_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    if (ext_is_foreign(o))
        return EXT_BRIDGE;
    PyObject *array = NULL;
    if (!write && dvnp_is_scalar(o)) {
        array = dvnp_asarray(o);
    } else if (!PyType_Check(o)) {
        PyObject *method = PyObject_GetAttrString(o, "__dlpack__");
        if (method) {
            Py_DECREF(method);
            array = dvnp_setup(true) < 0 ? NULL : dvnp_from_dlpack(o);
        } else {
            PyErr_Clear();
            return wrong(c, slot, element,
                element < 0                                  ? "an array: use numpy.asarray()"
                    : slot->flags & DV_SLOT_ELEMENT_OPTIONAL ? "Tensor or None"
                                                             : "Tensor",
                o);
        }
    } else {
        return wrong(c, slot, element, element < 0 ? "an array" : "Tensor", o);
    }
    if (!array || ext_keep_object(c, array))
        return EXT_FAILED;
    if (!dvnp_is_array(array))
        return wrong(c, slot, element, element < 0 ? "an array" : "Tensor", o);
    if (!write && element < 0)
        c->given[slot - c->f->slots] = array; /* what a view of it keeps alive */
    return view(c, slot, element, array, write, out);
}

static enum ext_outcome tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    if (c->by_torch)
        return ext_torch_view(c, slot, o, write, out);
    if (dvnp_is_array(o))
        return view(c, slot, element, o, write, out);
    return other_tensor(c, slot, element, o, write, out);
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------------- */

/* A 0-d array stands for its element. */
static bool is_array_of_dims(PyObject *o) { return dvnp_is_array(o) && dvnp_ndim(o) > 0; }

static enum ext_outcome integer(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, int64_t *out)
{
    if (PyLong_CheckExact(o)) {
        *out = PyLong_AsLongLong(o);
        return *out == -1 && PyErr_Occurred() ? out_of_range(c, slot, element, o) : EXT_OK;
    }
    PyObject *index = PyFloat_Check(o) || is_array_of_dims(o) ? NULL : PyNumber_Index(o); /* bool, numpy.int32, 0-d arrays */
    if (!index)
        return wrong(c, slot, element, element < 0 ? NULL : "int", o);
    *out = PyLong_AsLongLong(index);
    Py_DECREF(index);
    return *out == -1 && PyErr_Occurred() ? out_of_range(c, slot, element, o) : EXT_OK;
}

static bool is_text(PyObject *o) { return PyUnicode_Check(o) || PyBytes_Check(o) || PyByteArray_Check(o); }

static enum ext_outcome real(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, double *out)
{
    const char *expected = element < 0 ? NULL : "float";
    if (PyFloat_CheckExact(o)) {
        *out = PyFloat_AsDouble(o);
        return EXT_OK;
    }
    if (is_text(o) || PyComplex_Check(o) || is_array_of_dims(o))
        return wrong(c, slot, element, expected, o);
    if (dvnp_is_scalar(o) || dvnp_is_array(o)) { /* numpy.complex64 has __float__, which drops a part */
        PyObject *kind = PyObject_GetAttrString(o, "dtype"), *letter = kind ? PyObject_GetAttrString(kind, "kind") : NULL;
        const bool good = letter && strchr("biuf", *PyUnicode_AsUTF8AndSize(letter, NULL)) != NULL;
        Py_XDECREF(kind);
        Py_XDECREF(letter);
        if (!good)
            return wrong(c, slot, element, expected, o);
    }
    *out = PyFloat_AsDouble(o);
    return *out == -1 && PyErr_Occurred() ? wrong(c, slot, element, expected, o) : EXT_OK;
}

static enum ext_outcome boolean(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool *out)
{
    if (!PyBool_Check(o)) {
        PyObject *kind = dvnp_is_scalar(o) || (dvnp_is_array(o) && !dvnp_ndim(o)) ? PyObject_GetAttrString(o, "dtype") : NULL;
        PyObject *letter = kind ? PyObject_GetAttrString(kind, "kind") : NULL;
        const bool good = letter && *PyUnicode_AsUTF8AndSize(letter, NULL) == 'b';
        Py_XDECREF(kind);
        Py_XDECREF(letter);
        if (!good)
            return wrong(c, slot, element, element < 0 ? NULL : "bool", o);
    }
    *out = PyObject_IsTrue(o) > 0;
    return EXT_OK;
}

static enum ext_outcome complex_number(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_complex *out)
{
    if (is_text(o) || is_array_of_dims(o) || (!PyComplex_Check(o) && !PyNumber_Check(o)))
        return wrong(c, slot, element, element < 0 ? NULL : "complex", o);
    PyObject *z = PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, o, NULL);
    if (!z)
        return wrong(c, slot, element, element < 0 ? NULL : "complex", o);
    out->re = PyComplex_RealAsDouble(z);
    out->im = PyComplex_ImagAsDouble(z);
    Py_DECREF(z);
    return EXT_OK;
}

/* A Scalar keeps the kind that it has in Python. */
static enum ext_outcome scalar(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_scalar *out)
{
    if (dvnp_is_scalar(o) || (dvnp_is_array(o) && !dvnp_ndim(o))) {
        PyObject *item = PyObject_CallMethod(o, "item", NULL);
        if (!item)
            return EXT_FAILED;
        const bool again = dvnp_is_scalar(item); /* longdouble */
        enum ext_outcome outcome = again ? wrong(c, slot, element, "a number", o) : scalar(c, slot, element, item, out);
        Py_DECREF(item);
        return outcome;
    }
    memset(out, 0, sizeof *out);
    if (PyBool_Check(o)) {
        out->kind = DV_SCALAR_BOOL;
        out->as.b = Py_IsTrue(o);
        return EXT_OK;
    }
    if (PyFloat_Check(o)) {
        out->kind = DV_SCALAR_FLOAT;
        out->as.f = PyFloat_AsDouble(o);
        return EXT_OK;
    }
    if (PyComplex_Check(o)) {
        out->kind = DV_SCALAR_COMPLEX;
        return complex_number(c, slot, element, o, &out->as.c);
    }
    if (is_array_of_dims(o) || !PyIndex_Check(o))
        return wrong(c, slot, element, "a number", o);
    out->kind = DV_SCALAR_INT;
    return integer(c, slot, element, o, &out->as.i);
}

/* ---- Names of things ----------------------------------------------------------------------------------------------------- */

static enum ext_outcome string(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_string *out)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(o))
        return wrong(c, slot, element, element < 0 ? NULL : "str", o);
    if (!(out->data = PyUnicode_AsUTF8AndSize(o, &size)))
        return EXT_FAILED;
    out->size = (size_t)size;
    return EXT_OK;
}

/* A word for a thing of torch's: a str, or an object whose str() is one (torch.float32, torch.device, torch.strided). */
static const char *word(ext_call *c, PyObject *o, const char *module)
{
    const char *text;
    if (PyUnicode_Check(o))
        return PyUnicode_AsUTF8AndSize(o, NULL);
    PyObject *from = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__module__");
    const bool known = from && PyUnicode_Check(from) && !PyUnicode_CompareWithASCIIString(from, module);
    Py_XDECREF(from);
    PyErr_Clear();
    PyObject *shown = known ? PyObject_Str(o) : NULL;
    if (!shown || ext_keep_object(c, shown) || !(text = PyUnicode_AsUTF8AndSize(shown, NULL)))
        return PyErr_Clear(), NULL;
    return text;
}

static enum ext_outcome dtype(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_dtype *out)
{
    const char *text = word(c, o, "torch");
    if (text ? !dv_dtype_parse(text, out) : !Py_IsNone(o) && dvnp_setup(true) > 0 && !dvnp_dtype(o, out))
        return EXT_OK;
    return wrong(c, slot, element, "a dtype, such as numpy.float32 or \"f32\"", o);
}

static enum ext_outcome device(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_device *out)
{
    const char *text = word(c, o, "torch");
    return text && !dv_device_parse(text, out) ? EXT_OK : wrong(c, slot, element, "a device, such as \"cpu\"", o);
}

/* One of some words, each with PyTorch's number; "torch." may be before it. */
static bool one_of(const char *text, const char *const *words, int32_t *out)
{
    if (text && !strncmp(text, "torch.", 6))
        text += 6;
    for (int32_t i = 0; text && words[i]; i++)
        if (!strcmp(text, words[i]))
            return *out = i, true;
    return false;
}

static enum ext_outcome layout(ext_call *c, const ext_slot *slot, PyObject *o, dv_layout *out)
{
    static const char *const words[] = { "strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr",
        "sparse_bsc", "jagged", NULL };
    return one_of(word(c, o, "torch"), words, &out->value) ? EXT_OK : wrong(c, slot, -1, "a layout, such as \"strided\"", o);
}

static enum ext_outcome memory_format(ext_call *c, const ext_slot *slot, PyObject *o, dv_memory_format *out)
{
    static const char *const words[] = { "contiguous_format", "preserve_format", "channels_last", "channels_last_3d", NULL };
    return one_of(word(c, o, "torch"), words, &out->value)
        ? EXT_OK
        : wrong(c, slot, -1, "a memory format, such as \"contiguous_format\"", o);
}

/* ---- Lists --------------------------------------------------------------------------------------------------------------- */

/* The elements of a list, tuple, range or 1-d array as a list or tuple that lives as long as the call; NULL: not one, or an
 * error. */
static PyObject *sequence(ext_call *c, PyObject *o)
{
    if (PyTuple_Check(o))
        return o;
    PyObject *items = NULL;
    if (PyList_Check(o))
        items = PyList_AsTuple(o); /* other threads may change a list */
    else if (dvnp_is_array(o) && dvnp_ndim(o) == 1)
        items = PyObject_CallMethod(o, "tolist", NULL);
    else if (Py_IS_TYPE(o, &PyRange_Type))
        items = PySequence_Tuple(o);
    if (items && PyList_Check(items)) {
        PyObject *tuple = PyList_AsTuple(items);
        Py_DECREF(items);
        items = tuple;
    }
    return items && !ext_keep_object(c, items) ? items : NULL;
}

static enum ext_outcome one_tensor(ext_call *c, const ext_slot *slot, Py_ssize_t i, PyObject *o, const dv_tensor **out)
{
    if (Py_IsNone(o) && (slot->flags & DV_SLOT_ELEMENT_OPTIONAL))
        return *out = NULL, EXT_OK;
    return tensor(c, slot, i, o, slot->flags & DV_SLOT_WRITES, out);
}

/* X(list type, element's C type, conversion, field of dv_value, "what the elements are") */
#define LISTS(X)                                                             \
    X(TENSORS, const dv_tensor *, one_tensor, tensors, "a list of arrays")   \
    X(INTS, int64_t, integer, ints, "a list of int")                         \
    X(FLOATS, double, real, floats, "a list of float")                       \
    X(BOOLS, bool, boolean, bools, "a list of bool")                         \
    X(STRINGS, dv_string, string, strings, "a list of str")                  \
    X(SCALARS, dv_scalar, scalar, scalars, "a list of numbers")              \
    X(COMPLEXES, dv_complex, complex_number, complexes, "a list of complex") \
    X(DTYPES, dv_dtype, dtype, dtypes, "a list of dtypes")                   \
    X(DEVICES, dv_device, device, devices, "a list of devices")

#define LIST(TYPE, CTYPE, CONVERT, FIELD, WHAT)                                                                           \
    static enum ext_outcome list_of_##FIELD(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)                \
    {                                                                                                                     \
        PyObject *items = sequence(c, o);                                                                                 \
        if (!items && PyErr_Occurred())                                                                                   \
            return EXT_FAILED;                                                                                            \
        if (!items && slot->fixed_size <= 0)                                                                              \
            return wrong(c, slot, -1, WHAT, o);                                                                           \
        const Py_ssize_t n = items ? PyTuple_Size(items) : (Py_ssize_t)slot->fixed_size;                                  \
        CTYPE *data = ext_alloc(c, (size_t)(n ? n : 1) * sizeof *data);                                                   \
        if (!data)                                                                                                        \
            return EXT_FAILED;                                                                                            \
        for (Py_ssize_t i = 0; i < n; i++) { /* int[2] takes one number for both */                                       \
            enum ext_outcome outcome = CONVERT(c, slot, items ? i : -1, items ? PyTuple_GetItem(items, i) : o, &data[i]); \
            if (outcome)                                                                                                  \
                return outcome;                                                                                           \
        }                                                                                                                 \
        out->type = DV_VALUE_##TYPE;                                                                                      \
        out->as.FIELD.data = data;                                                                                        \
        out->as.FIELD.size = (size_t)n;                                                                                   \
        return EXT_OK;                                                                                                    \
    }
LISTS(LIST)

static enum ext_outcome no_type(ext_call *c, const ext_slot *slot, PyObject *o)
{
    (void)o;
    PyErr_Format(
        PyExc_TypeError, "%s: argument '%s': type %s cannot be given from Python", c->f->name, slot->text, slot->type_text);
    return EXT_FAILED;
}

static enum ext_outcome scalar_value(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)
{
    dv_scalar s;
    enum ext_outcome outcome = scalar(c, slot, -1, o, &s);
    if (outcome)
        return outcome;
    switch ((enum dv_scalar_kind)s.kind) {
    case DV_SCALAR_INT: out->type = DV_VALUE_INT, out->as.i = s.as.i; break;
    case DV_SCALAR_FLOAT: out->type = DV_VALUE_FLOAT, out->as.f = s.as.f; break;
    case DV_SCALAR_BOOL: out->type = DV_VALUE_BOOL, out->as.b = s.as.b; break;
    case DV_SCALAR_COMPLEX: out->type = DV_VALUE_COMPLEX, out->as.c = s.as.c; break;
    }
    return EXT_OK;
}

enum ext_outcome ext_convert(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)
{
    out->reserved = 0;
    if (slot->type == DV_FIELD_TENSOR && dvnp_ndarray && Py_IS_TYPE(o, dvnp_ndarray)) { /* nearly always */
        out->type = DV_VALUE_TENSOR;
        return view(c, slot, -1, o, slot->flags & DV_SLOT_WRITES, &out->as.tensor);
    }
    if (slot->type == DV_FIELD_TENSOR && dvt_is_exact(o)) {
        out->type = DV_VALUE_TENSOR;
        return c->by_torch ? ext_torch_view(c, slot, o, slot->flags & DV_SLOT_WRITES, &out->as.tensor) : EXT_BRIDGE;
    }
    if (!dvnp_ndarray && dvnp_setup(false) < 0) /* NumPy may have been imported since */
        return EXT_FAILED;
    if (Py_IsNone(o) && (slot->flags & DV_SLOT_OPTIONAL)) {
        out->type = DV_VALUE_NONE;
        return EXT_OK;
    }
    switch (slot->type) {
    case DV_FIELD_TENSOR:
        out->type = DV_VALUE_TENSOR;
        return tensor(c, slot, -1, o, slot->flags & DV_SLOT_WRITES, &out->as.tensor);
    case DV_FIELD_INT: out->type = DV_VALUE_INT; return integer(c, slot, -1, o, &out->as.i);
    case DV_FIELD_FLOAT: out->type = DV_VALUE_FLOAT; return real(c, slot, -1, o, &out->as.f);
    case DV_FIELD_BOOL: out->type = DV_VALUE_BOOL; return boolean(c, slot, -1, o, &out->as.b);
    case DV_FIELD_STRING: out->type = DV_VALUE_STRING; return string(c, slot, -1, o, &out->as.s);
    case DV_FIELD_COMPLEX: out->type = DV_VALUE_COMPLEX; return complex_number(c, slot, -1, o, &out->as.c);
    case DV_FIELD_DTYPE: out->type = DV_VALUE_DTYPE; return dtype(c, slot, -1, o, &out->as.dtype);
    case DV_FIELD_DEVICE: out->type = DV_VALUE_DEVICE; return device(c, slot, -1, o, &out->as.device);
    case DV_FIELD_LAYOUT: out->type = DV_VALUE_LAYOUT; return layout(c, slot, o, &out->as.layout);
    case DV_FIELD_MEMORY_FORMAT: out->type = DV_VALUE_MEMORY_FORMAT; return memory_format(c, slot, o, &out->as.memory_format);
    case DV_FIELD_GENERATOR: out->type = DV_VALUE_GENERATOR; return ext_generator(c, slot, o, &out->as.generator);
    case DV_FIELD_SCALAR: return scalar_value(c, slot, o, out);
#define LIST_CASE(TYPE, CTYPE, CONVERT, FIELD, WHAT) \
    case DV_FIELD_##TYPE: return list_of_##FIELD(c, slot, o, out);
        LISTS(LIST_CASE)
#undef LIST_CASE
    default: return no_type(c, slot, o);
    }
}

enum ext_outcome ext_convert_result(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)
{
    out->reserved = 0;
    out->type = DV_VALUE_TENSOR;
    if (!dvnp_ndarray && dvnp_setup(false) < 0)
        return EXT_FAILED;
    return tensor(c, slot, -1, o, true, &out->as.tensor);
}
