/* Converts Python objects to values, with one function for each schema type (the table is in docs/). A function accepts Python
 * values of that type and the frameworks' own objects for it; it never converts with loss.
 */
#include "extension.h"

#include <stdio.h>

/* Replaces the OverflowError for an integer of more than 64 bits by a TypeError that names the argument. Returns the outcome of
 * ext_fail_argument(). */
static enum ext_outcome convert_fail_out_of_range(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o)
{
    PyErr_Clear();
    return ext_fail_argument(c, slot, element, "a number of 64 bits", o);
}

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

/* Returns the host in whose module the object's type is defined, such as a framework's dtype or device. NULL: no host. */
static const ext_host *convert_find_host_by_module(PyObject *o)
{
    PyObject *module = ext_get_optional_attribute((PyObject *)Py_TYPE(o), "__module__");
    const ext_host *found = NULL;
    for (int i = 0; i < EXT_HOSTS && module && PyUnicode_Check(module) && !found; i++)
        if (!PyUnicode_CompareWithASCIIString(module, ext_hosts[i]->name))
            found = ext_hosts[i];
    Py_XDECREF(module);
    return found;
}

/* Converts an object of no host that has __dlpack__, or a number of a host (is_number), to a tensor of the call's host. Only in
 * the second pass, since Python code runs. `write`: the call writes the tensor, which a number cannot be. */
static enum ext_outcome convert_import_object(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, bool is_number, const dv_tensor **out)
{
    if (!c->is_second_conversion_pass)
        return EXT_DEFER;
    PyObject *method = is_number || !c->host_table->import_object || PyType_Check(o)
        ? NULL
        : ext_get_optional_attribute(o, "__dlpack__");
    if (!method && PyErr_Occurred())
        return EXT_ABORT;
    if (!method && !(is_number && !write && c->host_table->import_object))
        return ext_fail_argument(c, slot, element,
            element < 0                                       ? c->host_table->tensor_noun
                : slot->info.flags & DV_SLOT_ELEMENT_OPTIONAL ? "Tensor or None"
                                                              : "Tensor",
            o);
    Py_XDECREF(method);
    PyObject *tensor = c->host_table->import_object(o);
    if (!tensor || ext_call_add_reference(c, tensor))
        return EXT_FAILED;
    if (!write && element < 0)
        c->passed[slot - c->f->slots] = tensor; /* what a view of it keeps alive */
    return c->host_table->describe_tensor(c, slot, element, tensor, write, out);
}

enum ext_outcome ext_convert_foreign(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    enum ext_kind kind;
    const ext_host *other = ext_find_host(o, &kind);
    if (!other && PyErr_Occurred())
        return EXT_FAILED;
    if (other && other != c->host_table && kind == EXT_KIND_TENSOR)
        return ext_mixed(c, slot, element, o, other);
    if (c->host_table->has_dispatcher && c->purpose != EXT_DESCRIBE)
        return EXT_DISPATCH;
    return convert_import_object(c, slot, element, o, write, other && kind == EXT_KIND_NUMBER, out);
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------------- */

/* Returns the element kind of a framework's number or 0-d tensor: 'b', 'i', 'u', 'f', 'c', 'v'. 0: a tensor with dims; '-': not
 * an object of a framework, or of a framework that does not report kinds; '!': an exception is set. */
static char convert_get_number_kind(PyObject *o, const ext_host **host)
{
    enum ext_kind kind;
    if (ext_is_builtin(o)) /* nearly always */
        return '-';
    const ext_host *h = ext_find_host(o, &kind);
    if (!ext_try_clear_error())
        return '!';
    if (host)
        *host = h;
    const char letter = h && h->get_number_kind ? h->get_number_kind(o) : '-';
    return PyErr_Occurred() ? '!' : letter;
}

/* True if o is a tensor with dims, or an exception is set. */
static bool convert_has_dims(PyObject *object)
{
    const char kind = convert_get_number_kind(object, NULL);
    return !kind || kind == '!';
}

/* Converts an int, a bool or a framework's integer to *out. Objects with dims and floats fail. */
static enum ext_outcome convert_integer(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, int64_t *out)
{
    if (PyLong_CheckExact(o)) {
        *out = PyLong_AsLongLong(o);
        return *out == -1 && PyErr_Occurred() ? convert_fail_out_of_range(c, slot, element, o) : EXT_OK;
    }
    PyObject *index = !PyIndex_Check(o) || convert_has_dims(o)
        ? NULL
        : PyNumber_Index(o); /* also a bool, a framework's integer and a 0-d array */
    if (!index)
        return ext_fail_argument(c, slot, element, element < 0 ? NULL : "int", o);
    *out = PyLong_AsLongLong(index);
    Py_DECREF(index);
    return *out == -1 && PyErr_Occurred() ? convert_fail_out_of_range(c, slot, element, o) : EXT_OK;
}

static bool convert_is_text(PyObject *o) { return PyUnicode_Check(o) || PyBytes_Check(o) || PyByteArray_Check(o); }

/* Converts a real number, also a framework's, to *out. Complex numbers, text and objects with dims fail. */
static enum ext_outcome convert_real(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, double *out)
{
    const char *expected = element < 0 ? NULL : "float";
    if (PyFloat_CheckExact(o)) {
        *out = PyFloat_AsDouble(o);
        return EXT_OK;
    }
    const char kind = convert_get_number_kind(o, NULL);
    if (convert_is_text(o) || PyComplex_Check(o) || !kind || !strchr("biuf-", kind) || !PyNumber_Check(o))
        return ext_fail_argument(
            c, slot, element, expected, o); /* a complex number has __float__, which drops the imaginary part */
    *out = PyFloat_AsDouble(o);
    if (*out != -1 || !PyErr_Occurred())
        return EXT_OK;
    return PyLong_Check(o) && PyErr_ExceptionMatches(PyExc_OverflowError) ? ext_too_large(c, slot, element, o, "float")
                                                                          : ext_fail_argument(c, slot, element, expected, o);
}

/* Converts a bool, also a framework's, to *out. Integers fail. */
static enum ext_outcome convert_boolean(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool *out)
{
    if (!PyBool_Check(o) && convert_get_number_kind(o, NULL) != 'b')
        return ext_fail_argument(c, slot, element, element < 0 ? NULL : "bool", o);
    const int truth = PyObject_IsTrue(o);
    *out = truth > 0;
    return truth < 0 ? ext_fail_argument(c, slot, element, element < 0 ? NULL : "bool", o) : EXT_OK;
}

/* Converts a number, also a real one or a framework's, to *out. */
static enum ext_outcome convert_complex(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_complex *out)
{
    if (convert_is_text(o) || convert_has_dims(o) || (!PyComplex_Check(o) && !PyNumber_Check(o)))
        return ext_fail_argument(c, slot, element, element < 0 ? NULL : "complex", o);
    PyObject *z = PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, o, NULL);
    if (!z && PyLong_Check(o) && PyErr_ExceptionMatches(PyExc_OverflowError))
        return ext_too_large(c, slot, element, o, "complex");
    if (!z)
        return ext_fail_argument(c, slot, element, element < 0 ? NULL : "complex", o);
    out->re = PyComplex_RealAsDouble(z);
    out->im = PyComplex_ImagAsDouble(z);
    Py_DECREF(z);
    return EXT_OK;
}

/* Converts a number to a Scalar of the same kind: bool, int, float or complex. A framework's number becomes the Python number of
 * its kind first. */
static enum ext_outcome convert_scalar(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_scalar *out)
{
    const ext_host *host;
    const char kind = convert_get_number_kind(o, &host);
    if (kind && kind != '-') {
        PyObject *item = kind == '!' ? NULL : host->get_items(o);
        if (!item)
            return ext_fail_argument(c, slot, element, "a number", o);
        const bool is_foreign = convert_get_number_kind(item, NULL) != '-'; /* Python has no number like it */
        enum ext_outcome outcome = is_foreign ? ext_fail_argument(c, slot, element, "a number", o)
                                              : convert_scalar(c, slot, element, item, out);
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
        return convert_complex(c, slot, element, o, &out->as.c);
    }
    if (!kind || !PyIndex_Check(o))
        return ext_fail_argument(c, slot, element, "a number", o);
    out->kind = DV_SCALAR_INT;
    return convert_integer(c, slot, element, o, &out->as.i);
}

/* ---- Names of things ----------------------------------------------------------------------------------------------------- */

/* Converts a str to *out, which borrows the str's UTF-8. A str with a lone surrogate fails. */
static enum ext_outcome convert_string(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_string *out)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(o))
        return ext_fail_argument(c, slot, element, element < 0 ? NULL : "str", o);
    if (!(out->data = PyUnicode_AsUTF8AndSize(o, &size))) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return EXT_FAILED;
        PyErr_Clear();
        return ext_fail_argument(c, slot, element, "text that UTF-8 encodes", o);
    }
    out->size = (size_t)size;
    return EXT_OK;
}

/* Returns the text of an object that stands for a dtype, device, layout or memory format: a str itself, or str() of an object of
 * a framework. NULL: neither, or an exception is set. */
static const char *convert_find_text(ext_call *c, PyObject *o)
{
    if (PyUnicode_Check(o)) {
        const char *text = PyUnicode_AsUTF8AndSize(o, NULL);
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            PyErr_Clear(); /* no word has a lone surrogate */
        return text;
    }
    PyObject *prefix_text = convert_find_host_by_module(o) ? PyObject_Str(o) : NULL;
    return !prefix_text || ext_call_add_reference(c, prefix_text) ? NULL : PyUnicode_AsUTF8AndSize(prefix_text, NULL);
}

/* Reads the dtype of a host's dtype object. Returns false if `object` is none. The host is that of the call, or the one with
 * import_object() if that has no dtype objects. */
static bool convert_try_read_dtype_object(const ext_call *c, PyObject *object, dv_dtype *out)
{
    const ext_host *host = c->host_table->read_dtype ? c->host_table : ext_find_importer();
    return !PyErr_Occurred() && !Py_IsNone(object) && host->read_dtype && !host->read_dtype(object, out);
}

/* Converts a dtype's name or a framework's dtype object to *out. */
static enum ext_outcome convert_dtype(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_dtype *out)
{
    const char *text = convert_find_text(c, o);
    if (text ? !dv_dtype_parse(text, out) : !PyUnicode_Check(o) && convert_try_read_dtype_object(c, o, out))
        return EXT_OK;
    return ext_fail_argument(c, slot, element, "a dtype, such as \"f32\"", o);
}

/* Converts a device's name or a framework's device object to *out. */
static enum ext_outcome convert_device(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_device *out)
{
    const char *text = convert_find_text(c, o);
    return text && !dv_device_parse(text, out) ? EXT_OK : ext_fail_argument(c, slot, element, "a device, such as \"cpu\"", o);
}

/* Finds the index of the word that `text` is, perhaps after a framework's name, as "name.strided". The index is its number in the
 * schema's grammar. Returns false if `text` is NULL or none of the words. */
static bool convert_try_find_word(const char *text, const char *const *words, int32_t *out)
{
    const char *dot = text ? strchr(text, '.') : NULL;
    for (int i = 0; dot && i < EXT_HOSTS; i++)
        if (strlen(ext_hosts[i]->name) == (size_t)(dot - text) && !strncmp(text, ext_hosts[i]->name, (size_t)(dot - text)))
            text = dot + 1;
    for (int32_t i = 0; text && words[i]; i++)
        if (!strcmp(text, words[i]))
            return *out = i, true;
    return false;
}

const char *const ext_layouts[] = { "strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc",
    "jagged", NULL };
const char *const ext_memory_formats[] = { "contiguous_format", "preserve_format", "channels_last", "channels_last_3d", NULL };

PyObject *ext_make_word(const char *const *words, int32_t number)
{
    for (int32_t i = 0; words[i]; i++)
        if (i == number)
            return PyUnicode_FromString(words[i]);
    return NULL;
}

/* Converts a layout's name or a framework's layout object to *out. */
static enum ext_outcome convert_layout(ext_call *c, const ext_slot *slot, PyObject *o, dv_layout *out)
{
    return convert_try_find_word(convert_find_text(c, o), ext_layouts, &out->value)
        ? EXT_OK
        : ext_fail_argument(c, slot, -1, "a layout, such as \"strided\"", o);
}

/* Converts a memory format's name or a framework's object for it to *out. */
static enum ext_outcome convert_memory_format(ext_call *c, const ext_slot *slot, PyObject *o, dv_memory_format *out)
{
    return convert_try_find_word(convert_find_text(c, o), ext_memory_formats, &out->value)
        ? EXT_OK
        : ext_fail_argument(c, slot, -1, "a memory format, such as \"contiguous_format\"", o);
}

/* ---- Lists --------------------------------------------------------------------------------------------------------------- */

bool ext_is_sequence(PyObject *o)
{
    return (PySequence_Check(o) || PyAnySet_Check(o) || Py_IS_TYPE(o, &PyDictKeys_Type) || Py_IS_TYPE(o, &PyDictValues_Type)) &&
        !convert_is_text(o);
}

/* Returns the elements of a list, tuple, range or 1-d array as a tuple that lives as long as the call. NULL: the object is none
 * of these, or an exception is set. */
static PyObject *convert_find_items_as_tuple(ext_call *c, const ext_slot *slot, PyObject *o)
{
    if (PyTuple_Check(o))
        return o;
    const ext_host *host = NULL;
    PyObject *items = NULL;
    const char kind = PyList_Check(o) ? '-' : convert_get_number_kind(o, &host);
    if (PyList_Check(o))
        items = PyList_AsTuple(o); /* a copy, since other threads may change a list */
    else if (!kind)
        items = host->get_items(o);
    else if (kind != '!' && !host && ext_is_sequence(o) &&
        (slot->info.type == DV_FIELD_TENSORS || !PyAnySet_Check(o))) /* numbers have an order */
        items = PySequence_Tuple(o);
    if (items && PyList_Check(items)) {
        PyObject *tuple = PyList_AsTuple(items);
        Py_DECREF(items);
        items = tuple;
    }
    return items && !ext_call_add_reference(c, items) ? items : NULL;
}

/* Returns the elements of a list of tensors as convert_find_items_as_tuple() does, and records the tuple in c->lists. */
static PyObject *convert_tensor_sequence(ext_call *c, const ext_slot *slot, PyObject *o)
{
    PyObject *items = convert_find_items_as_tuple(c, slot, o);
    ext_list *list = items ? ext_call_alloc(c, sizeof *list) : NULL;
    if (list) {
        *list = (ext_list){ (size_t)(slot - c->f->slots), items, c->lists };
        c->lists = list;
    }
    return list ? items : NULL;
}

/* Describes one tensor of a list at this position in *out; None becomes NULL in a list of optional tensors. */
static enum ext_outcome convert_one_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t position, PyObject *o, const dv_tensor **out)
{
    if (Py_IsNone(o) && (slot->info.flags & DV_SLOT_ELEMENT_OPTIONAL))
        return *out = NULL, EXT_OK;
    return c->host_table->describe_tensor(
        c, slot, position, o, slot->info.flags & DV_SLOT_WRITES || slot >= c->f->slots + c->f->nargs, out);
}

/* X(list type, element's C type, conversion, field of dv_value, "what the elements are") */
#define LIST_TYPES(X)                                                               \
    X(TENSORS, const dv_tensor *, convert_one_tensor, tensors, "a list of tensors") \
    X(INTS, int64_t, convert_integer, ints, "a list of int")                        \
    X(FLOATS, double, convert_real, floats, "a list of float")                      \
    X(BOOLS, bool, convert_boolean, bools, "a list of bool")                        \
    X(STRINGS, dv_string, convert_string, strings, "a list of str")                 \
    X(SCALARS, dv_scalar, convert_scalar, scalars, "a list of numbers")             \
    X(COMPLEXES, dv_complex, convert_complex, complexes, "a list of complex")       \
    X(DTYPES, dv_dtype, convert_dtype, dtypes, "a list of dtypes")                  \
    X(DEVICES, dv_device, convert_device, devices, "a list of devices")

#define DEFINE_LIST_CONVERSION(TYPE, CTYPE, CONVERT, FIELD, WHAT)                                                         \
    static enum ext_outcome list_of_##FIELD(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)                \
    {                                                                                                                     \
        PyObject *items = (DV_FIELD_##TYPE == DV_FIELD_TENSORS ? convert_tensor_sequence : convert_find_items_as_tuple)(  \
            c, slot, o);                                                                                                  \
        if (!items && (PyErr_Occurred() || slot->info.fixed_size <= 0))                                                   \
            return ext_fail_argument(c, slot, -1, WHAT, o);                                                               \
        const Py_ssize_t n = items ? PyTuple_Size(items) : (Py_ssize_t)slot->info.fixed_size;                             \
        CTYPE *data = ext_call_alloc(c, (size_t)(n ? n : 1) * sizeof *data);                                              \
        if (!data)                                                                                                        \
            return EXT_FAILED;                                                                                            \
        for (Py_ssize_t i = 0; i < n; i++) { /* one number stands for all elements of a list of fixed size, as int[2] */  \
            enum ext_outcome outcome = CONVERT(c, slot, items ? i : -1, items ? PyTuple_GetItem(items, i) : o, &data[i]); \
            if (outcome)                                                                                                  \
                return outcome;                                                                                           \
        }                                                                                                                 \
        out->type = DV_VALUE_##TYPE;                                                                                      \
        out->as.FIELD.data = data;                                                                                        \
        out->as.FIELD.size = (size_t)n;                                                                                   \
        return EXT_OK;                                                                                                    \
    }
LIST_TYPES(DEFINE_LIST_CONVERSION)

/* Sets a TypeError for a slot of a type that Python cannot pass. Returns EXT_FAILED. */
static enum ext_outcome convert_fail_no_type(ext_call *c, const ext_slot *slot, PyObject *unused)
{
    (void)unused;
    PyErr_Format(
        PyExc_TypeError, "%s: argument '%s': type %s cannot be given from Python", c->f->name, slot->info.name, slot->type_text);
    return EXT_FAILED;
}

/* Converts a number to a value of type int, float, bool or complex, for an argument of type Scalar. */
static enum ext_outcome convert_scalar_value(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)
{
    dv_scalar s;
    enum ext_outcome outcome = convert_scalar(c, slot, -1, o, &s);
    if (outcome)
        return outcome;
    *out = dv_from_scalar(s);
    return EXT_OK;
}

/* Converts an object to a value of the slot's type. None is the value none for an optional argument. */
static enum ext_outcome convert_value(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)
{
    if (Py_IsNone(o) && (slot->info.flags & DV_SLOT_OPTIONAL)) {
        out->type = DV_VALUE_NONE;
        return EXT_OK;
    }
    switch (slot->info.type) {
    case DV_FIELD_TENSOR:
        out->type = DV_VALUE_TENSOR;
        return c->host_table->describe_tensor(c, slot, -1, o, slot->info.flags & DV_SLOT_WRITES, &out->as.tensor);
    case DV_FIELD_INT: out->type = DV_VALUE_INT; return convert_integer(c, slot, -1, o, &out->as.i);
    case DV_FIELD_FLOAT: out->type = DV_VALUE_FLOAT; return convert_real(c, slot, -1, o, &out->as.f);
    case DV_FIELD_BOOL: out->type = DV_VALUE_BOOL; return convert_boolean(c, slot, -1, o, &out->as.b);
    case DV_FIELD_STRING: out->type = DV_VALUE_STRING; return convert_string(c, slot, -1, o, &out->as.s);
    case DV_FIELD_COMPLEX: out->type = DV_VALUE_COMPLEX; return convert_complex(c, slot, -1, o, &out->as.c);
    case DV_FIELD_DTYPE: out->type = DV_VALUE_DTYPE; return convert_dtype(c, slot, -1, o, &out->as.dtype);
    case DV_FIELD_DEVICE: out->type = DV_VALUE_DEVICE; return convert_device(c, slot, -1, o, &out->as.device);
    case DV_FIELD_LAYOUT: out->type = DV_VALUE_LAYOUT; return convert_layout(c, slot, o, &out->as.layout);
    case DV_FIELD_MEMORY_FORMAT:
        out->type = DV_VALUE_MEMORY_FORMAT;
        return convert_memory_format(c, slot, o, &out->as.memory_format);
    case DV_FIELD_GENERATOR: out->type = DV_VALUE_GENERATOR; return ext_convert_generator(c, slot, o, &out->as.generator);
    case DV_FIELD_SCALAR: return convert_scalar_value(c, slot, o, out);
#define LIST_CASE(TYPE, CTYPE, CONVERT, FIELD, WHAT) \
    case DV_FIELD_##TYPE: return list_of_##FIELD(c, slot, o, out);
        LIST_TYPES(LIST_CASE)
#undef LIST_CASE
    default: return convert_fail_no_type(c, slot, o);
    }
}

/* ---- The arguments of a call --------------------------------------------------------------------------------------------- */

/* True if the conversion of an argument other than a tensor may run Python code. For a list of tensors it is false, since
 * describe_tensor() decides that for each element. */
static bool convert_can_run_python(const ext_slot *slot, PyObject *o)
{
    const bool list = PyList_Check(o);
    if (!list && !PyTuple_Check(o))
        return !ext_is_builtin(o);
    for (Py_ssize_t i = 0, n = list ? PyList_Size(o) : PyTuple_Size(o); i < n && slot->info.type != DV_FIELD_TENSORS; i++)
        if (!ext_is_builtin(list ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i)))
            return true;
    return false;
}

/* Converts the object of one slot: an argument, or a tensor that the caller passed for a result. EXT_DEFER: in the second pass.
 * EXT_DISPATCH: the host does not let the extension convert it. */
static enum ext_outcome convert_slot(ext_call *c, size_t slot_index, PyObject *object, dv_value *value)
{
    const ext_slot *slot = &c->f->slots[slot_index];
    value->reserved = 0;
    if (slot->info.type == DV_FIELD_TENSOR && !Py_IsNone(object)) { /* nearly always */
        value->type = DV_VALUE_TENSOR;
        return c->host_table->describe_tensor(
            c, slot, -1, object, slot_index >= c->f->nargs || slot->info.flags & DV_SLOT_WRITES, &value->as.tensor);
    }
    if (c->host_table->can_convert && !Py_IsNone(object) && !c->host_table->can_convert(slot, object))
        return EXT_DISPATCH;
    return !c->is_second_conversion_pass && convert_can_run_python(slot, object) ? EXT_DEFER
                                                                                 : convert_value(c, slot, object, value);
}

PyObject *ext_find_list_items(const ext_call *c, size_t slot)
{
    for (const ext_list *list = c->lists; list; list = list->next)
        if (list->slot == slot)
            return list->items;
    return NULL;
}

/* Describes a tensor again in *t if Python code that ran meanwhile has changed it. element: its index in a list, or -1. Objects
 * that are no tensors of the call's host are left as they are. */
static enum ext_outcome convert_revalidate_tensor(ext_call *c, size_t i, Py_ssize_t element, PyObject *o, const dv_tensor **t)
{
    const ext_slot *slot = &c->f->slots[i];
    enum ext_kind kind;
    if (Py_IsNone(o) || ext_find_host(o, &kind) != c->host_table ||
        kind != EXT_KIND_TENSOR) /* such an object is described by the call's own tensor, which nobody can change */
        return PyErr_Occurred() ? EXT_ABORT : EXT_OK;
    return (c->host_table->revalidate_tensor ? c->host_table->revalidate_tensor : c->host_table->describe_tensor)(
        c, slot, element, o, i >= c->f->nargs || slot->info.flags & DV_SLOT_WRITES, t);
}

/* Validates all tensors of the call again, since Python code ran after they were described. */
static enum ext_outcome convert_revalidate_all(ext_call *c)
{
    enum ext_outcome outcome = EXT_OK;
    for (size_t i = 0, n = c->f->nargs + c->f->nresults; i < n && !outcome; i++) {
        dv_value *v = &c->args[i];
        if (v->type == DV_VALUE_TENSOR)
            outcome = convert_revalidate_tensor(c, i, -1, c->passed[i], &v->as.tensor);
        if (v->type != DV_VALUE_TENSORS)
            continue;
        const dv_tensor **data = (const dv_tensor **)(uintptr_t)(const void *)v->as.tensors.data; /* the call's memory */
        for (size_t k = 0; k < v->as.tensors.size && !outcome; k++)
            outcome = convert_revalidate_tensor(
                c, i, (Py_ssize_t)k, PyTuple_GetItem(ext_find_list_items(c, i), (Py_ssize_t)k), &data[k]);
    }
    return outcome;
}

/* Converts the passed objects: in the first pass those whose conversion runs no Python code, in the second the others. So tensors
 * have the shapes that they had when the call began, whatever that Python code does to them. Sets *needs_second_pass if some
 * object is left. */
static enum ext_outcome convert_pass(ext_call *c, bool *needs_second_pass)
{
    for (size_t i = 0, n = c->f->nargs + c->f->nresults; i < n; i++) {
        if (!c->passed[i]) {
            c->args[i].type = DV_VALUE_DEFAULT;
            continue;
        }
        if (c->is_second_conversion_pass && !c->args[i].reserved)
            continue;
        const enum ext_outcome outcome = convert_slot(c, i, c->passed[i], &c->args[i]);
        if (outcome != EXT_OK && outcome != EXT_DEFER)
            return outcome;
        if (outcome == EXT_DEFER) {
            c->args[i].reserved = 1; /* waits for the second pass */
            *needs_second_pass = true;
        }
    }
    return EXT_OK;
}

enum ext_outcome ext_call_convert(ext_call *c)
{
    bool later = false;
    enum ext_outcome outcome = convert_pass(c, &later);
    if (!outcome && later) {
        c->is_second_conversion_pass = true;
        outcome = convert_pass(c, &later);
        if (!outcome && c->purpose != EXT_MATCH_TYPES)
            outcome = convert_revalidate_all(c);
    }
    if (!outcome)
        return c->path && c->purpose != EXT_DESCRIBE ? EXT_DISPATCH : EXT_OK;
    c->path = -1;
    if (outcome != EXT_FAILED || !c->host_table->has_dispatcher || c->purpose == EXT_DESCRIBE || !ext_try_clear_error())
        return outcome;
    return EXT_DISPATCH; /* the framework's dispatcher reports what is wrong */
}
