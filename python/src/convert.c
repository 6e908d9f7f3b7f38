/* Converts Python objects to values, with one function for each schema type (the table is in docs/). A function accepts Python
 * values of that type and the frameworks' own objects for it; it never converts with loss.
 */
#include "extension.h"

#include <stdio.h>

/* ---- Exceptions ---------------------------------------------------------------------------------------------------------- */

bool ext_clear_error(void)
{
    if (PyErr_Occurred() && (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)))
        return false;
    PyErr_Clear();
    return true;
}

PyObject *ext_optional_attribute(PyObject *o, const char *name)
{
    PyObject *found = PyObject_GetAttrString(o, name);
    if (!found && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return found;
}

/* Takes the exception that is set, to be the cause of another one. The caller owns it. NULL: none is set. */
static PyObject *take_cause(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!type)
        return NULL;
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace)
        PyException_SetTraceback(value, trace);
    Py_DECREF(type);
    Py_XDECREF(trace);
    return value;
}

/* Sets the cause of the current exception, and steals the reference to it. NULL: does nothing. */
static void set_cause(PyObject *cause)
{
    PyObject *type, *value, *trace;
    if (!cause)
        return;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyException_SetCause(value, Py_NewRef(cause));
    PyException_SetContext(value, cause);
    PyErr_Restore(type, value, trace);
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

/* "list", "package.float32" */
static PyObject *type_title(PyTypeObject *type)
{
    PyObject *name = PyType_GetQualName(type), *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    ext_clear_error();
    PyObject *title = name && module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "builtins")
        ? PyUnicode_FromFormat("%U.%U", module, name)
        : Py_XNewRef(name);
    Py_XDECREF(name);
    Py_XDECREF(module);
    return title;
}

/* Describes an object for a message: "int 3", "str 'abc'", "an array f32[2, 3]", "list". NULL with an exception that the caller
 * must see. */
static PyObject *describe(PyObject *o)
{
    if (Py_IsNone(o))
        return PyUnicode_FromString("None");
    enum ext_kind kind;
    const ext_host *host = ext_host_of(o, &kind);
    PyObject *text = host && host->describe ? host->describe(o) : NULL;
    if (text || !ext_clear_error())
        return text;
    PyObject *type = type_title(Py_TYPE(o));
    if (PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o) || PyUnicode_Check(o)) {
        PyObject *repr = PyObject_Repr(o), *shown = repr ? PyUnicode_Substring(repr, 0, 40) : NULL;
        text = type && shown ? PyUnicode_FromFormat("%U %U", type, shown) : NULL;
        Py_XDECREF(repr);
        Py_XDECREF(shown);
    }
    if (!text && ext_clear_error())
        text = Py_XNewRef(type);
    Py_XDECREF(type);
    return text;
}

static const char *kind_of(const ext_operator *f, const ext_slot *slot)
{
    return slot < f->slots + f->nargs ? "argument" : "result";
}

/* "'xs[1]'"; a result without a name: its number. */
static PyObject *name_of(const ext_operator *f, const ext_slot *slot, Py_ssize_t element)
{
    PyObject *where = element < 0 ? PyUnicode_FromString("") : PyUnicode_FromFormat("[%zd]", element);
    PyObject *name = !where ? NULL
        : *slot->text       ? PyUnicode_FromFormat("'%s%U'", slot->text, where)
                            : PyUnicode_FromFormat("%zd%U", slot - f->slots - (Py_ssize_t)f->nargs, where);
    Py_XDECREF(where);
    return name;
}

static enum ext_outcome complain(
    const ext_operator *f, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *found)
{
    if (!found)
        return EXT_FAILED;
    PyObject *name = name_of(f, slot, element);
    if (name)
        PyErr_Format(PyExc_TypeError, "%s: %s %U: expected %s%s%s%s, found %U", f->name, kind_of(f, slot), name,
            element < 0 ? slot->type_text : expected, element < 0 && expected ? " (" : "",
            element < 0 && expected ? expected : "", element < 0 && expected ? ")" : "", found);
    Py_XDECREF(name);
    return EXT_FAILED;
}

enum ext_outcome ext_wrong(ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *o)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
        return EXT_MIXED;
    PyObject *cause = take_cause(), *found = describe(o);
    complain(c->f, slot, element, expected, found);
    set_cause(cause);
    const enum ext_outcome outcome = found ? EXT_FAILED : EXT_MIXED;
    Py_XDECREF(found);
    return outcome;
}

enum ext_outcome ext_wrong_text(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, const char *found_text)
{
    PyObject *found = PyUnicode_FromString(found_text);
    complain(c->f, slot, element, expected, found);
    Py_XDECREF(found);
    return EXT_FAILED;
}

/* Replaces the OverflowError of a number that was converted already. */
static enum ext_outcome out_of_range(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o)
{
    PyErr_Clear();
    return ext_wrong(c, slot, element, "a number of 64 bits", o);
}

/* Replaces the OverflowError of a number that is too large for the type. */
static enum ext_outcome too_large(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, const char *type)
{
    PyErr_Clear();
    PyObject *shown = describe(o), *found = shown ? PyUnicode_FromFormat("%U, which is too large for %s", shown, type) : NULL;
    complain(c->f, slot, element, element < 0 ? NULL : type, found);
    Py_XDECREF(shown);
    const enum ext_outcome outcome = found ? EXT_FAILED : EXT_MIXED;
    Py_XDECREF(found);
    return outcome;
}

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

/* Tensors of two hosts. */
static enum ext_outcome mixed(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, const ext_host *other)
{
    PyObject *title = type_title(Py_TYPE(o)), *name = title ? name_of(c->f, slot, element) : NULL;
    if (name) {
        PyErr_Format(PyExc_TypeError,
            "%s: %s %U: expected a tensor of %s, like the call's first one, found %U, which belongs to %s: convert one of "
            "them",
            c->f->name, kind_of(c->f, slot), name, c->of->name, title, other->name);
    }
    Py_XDECREF(title);
    Py_XDECREF(name);
    return EXT_MIXED;
}

/* Convert an object of no host by DLPack, or a number of the host. */
static enum ext_outcome adopt(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, bool number, const dv_tensor **out)
{
    if (!c->late)
        return EXT_LATER;
    PyObject *method = number || !c->of->adopt || PyType_Check(o) ? NULL : ext_optional_attribute(o, "__dlpack__");
    if (!method && PyErr_Occurred())
        return EXT_MIXED;
    if (!method && !(number && !write && c->of->adopt))
        return ext_wrong(c, slot, element,
            element < 0                                  ? c->of->tensor_title
                : slot->flags & DV_SLOT_ELEMENT_OPTIONAL ? "Tensor or None"
                                                         : "Tensor",
            o);
    Py_XDECREF(method);
    PyObject *tensor = c->of->adopt(o);
    if (!tensor || ext_keep_object(c, tensor))
        return EXT_FAILED;
    if (!write && element < 0)
        c->given[slot - c->f->slots] = tensor; /* what a view of it keeps alive */
    return c->of->tensor(c, slot, element, tensor, write, out);
}

enum ext_outcome ext_other_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    enum ext_kind kind;
    const ext_host *other = ext_host_of(o, &kind);
    if (!other && PyErr_Occurred())
        return EXT_FAILED;
    if (other && other != c->of && kind == EXT_TENSOR)
        return mixed(c, slot, element, o, other);
    if (c->of->dispatches && c->purpose != EXT_LOOK)
        return EXT_SLOW;
    return adopt(c, slot, element, o, write, other && kind == EXT_NUMBER, out);
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------------- */

/* Returns the element kind of a framework's number or 0-d tensor: 'b', 'i', 'u', 'f', 'c', 'v'. 0: a tensor with dims; '-': not
 * an object of a framework, or of a framework that does not report kinds; '!': an exception is set. */
static char number_kind(PyObject *o, const ext_host **host)
{
    enum ext_kind kind;
    if (ext_is_builtin(o)) /* nearly always */
        return '-';
    const ext_host *h = ext_host_of(o, &kind);
    if (!ext_clear_error())
        return '!';
    if (host)
        *host = h;
    const char letter = h && h->number ? h->number(o) : '-';
    return PyErr_Occurred() ? '!' : letter;
}

/* True if o is a tensor with dims, or an exception is set. */
static bool is_not_one(PyObject *o)
{
    const char kind = number_kind(o, NULL);
    return !kind || kind == '!';
}

static enum ext_outcome integer(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, int64_t *out)
{
    if (PyLong_CheckExact(o)) {
        *out = PyLong_AsLongLong(o);
        return *out == -1 && PyErr_Occurred() ? out_of_range(c, slot, element, o) : EXT_OK;
    }
    PyObject *index = !PyIndex_Check(o) || is_not_one(o) ? NULL
                                                         : PyNumber_Index(o); /* bool, integers of a framework, 0-d arrays */
    if (!index)
        return ext_wrong(c, slot, element, element < 0 ? NULL : "int", o);
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
    const char kind = number_kind(o, NULL);
    if (is_text(o) || PyComplex_Check(o) || !kind || !strchr("biuf-", kind) || !PyNumber_Check(o))
        return ext_wrong(c, slot, element, expected, o); /* a complex number has __float__, which drops the imaginary part */
    *out = PyFloat_AsDouble(o);
    if (*out != -1 || !PyErr_Occurred())
        return EXT_OK;
    return PyLong_Check(o) && PyErr_ExceptionMatches(PyExc_OverflowError) ? too_large(c, slot, element, o, "float")
                                                                          : ext_wrong(c, slot, element, expected, o);
}

static enum ext_outcome boolean(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool *out)
{
    if (!PyBool_Check(o) && number_kind(o, NULL) != 'b')
        return ext_wrong(c, slot, element, element < 0 ? NULL : "bool", o);
    const int truth = PyObject_IsTrue(o);
    *out = truth > 0;
    return truth < 0 ? ext_wrong(c, slot, element, element < 0 ? NULL : "bool", o) : EXT_OK;
}

static enum ext_outcome complex_number(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_complex *out)
{
    if (is_text(o) || is_not_one(o) || (!PyComplex_Check(o) && !PyNumber_Check(o)))
        return ext_wrong(c, slot, element, element < 0 ? NULL : "complex", o);
    PyObject *z = PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, o, NULL);
    if (!z && PyLong_Check(o) && PyErr_ExceptionMatches(PyExc_OverflowError))
        return too_large(c, slot, element, o, "complex");
    if (!z)
        return ext_wrong(c, slot, element, element < 0 ? NULL : "complex", o);
    out->re = PyComplex_RealAsDouble(z);
    out->im = PyComplex_ImagAsDouble(z);
    Py_DECREF(z);
    return EXT_OK;
}

/* A Scalar keeps the kind that it has in Python. */
static enum ext_outcome scalar(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_scalar *out)
{
    const ext_host *host;
    const char kind = number_kind(o, &host);
    if (kind && kind != '-') {
        PyObject *item = kind == '!' ? NULL : host->items(o);
        if (!item)
            return ext_wrong(c, slot, element, "a number", o);
        const bool again = number_kind(item, NULL) != '-'; /* Python has no number like it */
        enum ext_outcome outcome = again ? ext_wrong(c, slot, element, "a number", o) : scalar(c, slot, element, item, out);
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
    if (!kind || !PyIndex_Check(o))
        return ext_wrong(c, slot, element, "a number", o);
    out->kind = DV_SCALAR_INT;
    return integer(c, slot, element, o, &out->as.i);
}

/* ---- Names of things ----------------------------------------------------------------------------------------------------- */

static enum ext_outcome string(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_string *out)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(o))
        return ext_wrong(c, slot, element, element < 0 ? NULL : "str", o);
    if (!(out->data = PyUnicode_AsUTF8AndSize(o, &size))) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return EXT_FAILED;
        PyErr_Clear();
        return ext_wrong(c, slot, element, "text that UTF-8 encodes", o);
    }
    out->size = (size_t)size;
    return EXT_OK;
}

/* Returns the word for an object: a str, or str() of an object from a framework's module (a dtype, a device). NULL: none, or an
 * exception. */
static const char *word(ext_call *c, PyObject *o)
{
    if (PyUnicode_Check(o)) {
        const char *text = PyUnicode_AsUTF8AndSize(o, NULL);
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            PyErr_Clear(); /* no word has a lone surrogate */
        return text;
    }
    PyObject *shown = ext_host_of_module(o) ? PyObject_Str(o) : NULL;
    return !shown || ext_keep_object(c, shown) ? NULL : PyUnicode_AsUTF8AndSize(shown, NULL);
}

/* A host's own objects for dtypes, the call's host first. */
static bool dtype_of_host(const ext_call *c, PyObject *o, dv_dtype *out)
{
    const ext_host *host = c->of->dtype ? c->of : ext_adopter();
    return !PyErr_Occurred() && !Py_IsNone(o) && host->dtype && !host->dtype(o, out);
}

static enum ext_outcome dtype(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_dtype *out)
{
    const char *text = word(c, o);
    if (text ? !dv_dtype_parse(text, out) : !PyUnicode_Check(o) && dtype_of_host(c, o, out))
        return EXT_OK;
    return ext_wrong(c, slot, element, "a dtype, such as \"f32\"", o);
}

static enum ext_outcome device(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, dv_device *out)
{
    const char *text = word(c, o);
    return text && !dv_device_parse(text, out) ? EXT_OK : ext_wrong(c, slot, element, "a device, such as \"cpu\"", o);
}

/* Convert one of several words to its number in the schema's grammar; a framework's name may precede the word: "name.strided". */
static bool one_of(const char *text, const char *const *words, int32_t *out)
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

PyObject *ext_word(const char *const *words, int32_t number)
{
    for (int32_t i = 0; words[i]; i++)
        if (i == number)
            return PyUnicode_FromString(words[i]);
    return NULL;
}

static enum ext_outcome layout(ext_call *c, const ext_slot *slot, PyObject *o, dv_layout *out)
{
    return one_of(word(c, o), ext_layouts, &out->value) ? EXT_OK : ext_wrong(c, slot, -1, "a layout, such as \"strided\"", o);
}

static enum ext_outcome memory_format(ext_call *c, const ext_slot *slot, PyObject *o, dv_memory_format *out)
{
    return one_of(word(c, o), ext_memory_formats, &out->value)
        ? EXT_OK
        : ext_wrong(c, slot, -1, "a memory format, such as \"contiguous_format\"", o);
}

/* ---- Lists --------------------------------------------------------------------------------------------------------------- */

bool ext_is_sequence(PyObject *o)
{
    return (PySequence_Check(o) || PyAnySet_Check(o) || Py_IS_TYPE(o, &PyDictKeys_Type) || Py_IS_TYPE(o, &PyDictValues_Type)) &&
        !is_text(o);
}

/* The elements of a list, tuple, range or 1-d array as a list or tuple that lives as long as the call; NULL: not one, or an
 * error. */
static PyObject *sequence(ext_call *c, const ext_slot *slot, PyObject *o)
{
    if (PyTuple_Check(o))
        return o;
    const ext_host *host = NULL;
    PyObject *items = NULL;
    const char kind = PyList_Check(o) ? '-' : number_kind(o, &host);
    if (PyList_Check(o))
        items = PyList_AsTuple(o); /* other threads may change a list */
    else if (!kind)
        items = host->items(o);
    else if (kind != '!' && !host && ext_is_sequence(o) &&
        (slot->type == DV_FIELD_TENSORS || !PyAnySet_Check(o))) /* numbers have an order */
        items = PySequence_Tuple(o);
    if (items && PyList_Check(items)) {
        PyObject *tuple = PyList_AsTuple(items);
        Py_DECREF(items);
        items = tuple;
    }
    return items && !ext_keep_object(c, items) ? items : NULL;
}

/* Returns the elements of a list of tensors as sequence() does, and records them in c->lists. */
static PyObject *tensor_sequence(ext_call *c, const ext_slot *slot, PyObject *o)
{
    PyObject *items = sequence(c, slot, o);
    ext_list *list = items ? ext_alloc(c, sizeof *list) : NULL;
    if (list) {
        *list = (ext_list){ (size_t)(slot - c->f->slots), items, c->lists };
        c->lists = list;
    }
    return list ? items : NULL;
}

static enum ext_outcome one_tensor(ext_call *c, const ext_slot *slot, Py_ssize_t i, PyObject *o, const dv_tensor **out)
{
    if (Py_IsNone(o) && (slot->flags & DV_SLOT_ELEMENT_OPTIONAL))
        return *out = NULL, EXT_OK;
    return c->of->tensor(c, slot, i, o, slot->flags & DV_SLOT_WRITES || slot >= c->f->slots + c->f->nargs, out);
}

/* X(list type, element's C type, conversion, field of dv_value, "what the elements are") */
#define LISTS(X)                                                             \
    X(TENSORS, const dv_tensor *, one_tensor, tensors, "a list of tensors")  \
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
        PyObject *items = (DV_FIELD_##TYPE == DV_FIELD_TENSORS ? tensor_sequence : sequence)(c, slot, o);                 \
        if (!items && (PyErr_Occurred() || slot->fixed_size <= 0))                                                        \
            return ext_wrong(c, slot, -1, WHAT, o);                                                                       \
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

static enum ext_outcome convert(ext_call *c, const ext_slot *slot, PyObject *o, dv_value *out)
{
    if (Py_IsNone(o) && (slot->flags & DV_SLOT_OPTIONAL)) {
        out->type = DV_VALUE_NONE;
        return EXT_OK;
    }
    switch (slot->type) {
    case DV_FIELD_TENSOR:
        out->type = DV_VALUE_TENSOR;
        return c->of->tensor(c, slot, -1, o, slot->flags & DV_SLOT_WRITES, &out->as.tensor);
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

/* ---- The arguments of a call --------------------------------------------------------------------------------------------- */

/* True if the conversion of an argument other than a tensor may run Python code. In a list of tensors, tensor() decides that for
 * each element. */
static bool may_run_python(const ext_slot *slot, PyObject *o)
{
    const bool list = PyList_Check(o);
    if (!list && !PyTuple_Check(o))
        return !ext_is_builtin(o);
    for (Py_ssize_t i = 0, n = list ? PyList_Size(o) : PyTuple_Size(o); i < n && slot->type != DV_FIELD_TENSORS; i++)
        if (!ext_is_builtin(list ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i)))
            return true;
    return false;
}

/* Convert one argument, or one tensor given for a result. */
static enum ext_outcome convert_slot(ext_call *c, size_t i, PyObject *o, dv_value *v)
{
    const ext_slot *slot = &c->f->slots[i];
    v->reserved = 0;
    if (slot->type == DV_FIELD_TENSOR && !Py_IsNone(o)) { /* nearly always */
        v->type = DV_VALUE_TENSOR;
        return c->of->tensor(c, slot, -1, o, i >= c->f->nargs || slot->flags & DV_SLOT_WRITES, &v->as.tensor);
    }
    if (c->of->plain && !Py_IsNone(o) && !c->of->plain(slot, o))
        return EXT_SLOW;
    return !c->late && may_run_python(slot, o) ? EXT_LATER : convert(c, slot, o, v);
}

PyObject *ext_list_items(const ext_call *c, size_t slot)
{
    for (const ext_list *list = c->lists; list; list = list->next)
        if (list->slot == slot)
            return list->items;
    return NULL;
}

/* Validates tensor i again, since Python code that ran meanwhile may have changed it. element: its index in a list, or -1. */
static enum ext_outcome revalidate_tensor(ext_call *c, size_t i, Py_ssize_t element, PyObject *o, const dv_tensor **t)
{
    const ext_slot *slot = &c->f->slots[i];
    enum ext_kind kind;
    if (Py_IsNone(o) || ext_host_of(o, &kind) != c->of || kind != EXT_TENSOR) /* the call's own tensor, from DLPack */
        return PyErr_Occurred() ? EXT_MIXED : EXT_OK;
    return (c->of->recheck ? c->of->recheck : c->of->tensor)(
        c, slot, element, o, i >= c->f->nargs || slot->flags & DV_SLOT_WRITES, t);
}

/* Validates all tensors again, since Python code ran after they were described. */
static enum ext_outcome revalidate_all(ext_call *c)
{
    enum ext_outcome outcome = EXT_OK;
    for (size_t i = 0, n = c->f->nargs + c->f->nresults; i < n && !outcome; i++) {
        dv_value *v = &c->args[i];
        if (v->type == DV_VALUE_TENSOR)
            outcome = revalidate_tensor(c, i, -1, c->given[i], &v->as.tensor);
        if (v->type != DV_VALUE_TENSORS)
            continue;
        const dv_tensor **data = (const dv_tensor **)(uintptr_t)(const void *)v->as.tensors.data; /* the call's memory */
        for (size_t k = 0; k < v->as.tensors.size && !outcome; k++)
            outcome = revalidate_tensor(c, i, (Py_ssize_t)k, PyTuple_GetItem(ext_list_items(c, i), (Py_ssize_t)k), &data[k]);
    }
    return outcome;
}

/* Converts the given objects: in the first pass those whose conversion runs no Python code, in the second the others. So tensors
 * have the shapes that they had when the call began, whatever that code does to them. Sets *later if a second pass is needed. */
static enum ext_outcome convert_pass(ext_call *c, bool *later)
{
    for (size_t i = 0, n = c->f->nargs + c->f->nresults; i < n; i++) {
        if (!c->given[i]) {
            c->args[i].type = DV_VALUE_DEFAULT;
            continue;
        }
        if (c->late && !c->args[i].reserved)
            continue;
        const enum ext_outcome outcome = convert_slot(c, i, c->given[i], &c->args[i]);
        if (outcome != EXT_OK && outcome != EXT_LATER)
            return outcome;
        if (outcome == EXT_LATER) {
            c->args[i].reserved = 1; /* waits for the second pass */
            *later = true;
        }
    }
    return EXT_OK;
}

enum ext_outcome ext_convert_all(ext_call *c)
{
    bool later = false;
    enum ext_outcome outcome = convert_pass(c, &later);
    if (!outcome && later) {
        c->late = true;
        outcome = convert_pass(c, &later);
        if (!outcome && c->purpose != EXT_TRIAL)
            outcome = revalidate_all(c);
    }
    if (!outcome)
        return c->way && c->purpose != EXT_LOOK ? EXT_SLOW : EXT_OK;
    c->way = -1;
    if (outcome != EXT_FAILED || !c->of->dispatches || c->purpose == EXT_LOOK || !ext_clear_error())
        return outcome;
    return EXT_SLOW; /* the framework says what is wrong */
}
