/* Exceptions: for a status of the library, for an argument that cannot be converted, and the rule which of Python's exceptions
 * may be replaced. */
#include "extension.h"

/* ---- Exceptions ---------------------------------------------------------------------------------------------------------- */

bool ext_try_clear_error(void)
{
    if (PyErr_Occurred() && (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)))
        return false;
    PyErr_Clear();
    return true;
}

PyObject *ext_get_optional_attribute(PyObject *o, const char *name)
{
    PyObject *found = PyObject_GetAttrString(o, name);
    if (!found && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return found;
}

/* Returns the exception that is set, with its traceback, and clears it, so that it can become the cause of another one. The
 * caller owns it. NULL: no exception is set. */
static PyObject *error_take_cause(void)
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

/* Makes `cause` the cause and the context of the exception that is set, and takes the reference to it. Does nothing if cause is
 * NULL. */
static void error_set_cause(PyObject *cause)
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

/* Returns the name of a type with its module, except for builtins: "list", "package.float32". NULL with an exception. */
static PyObject *error_make_type_name(PyTypeObject *type)
{
    PyObject *name = PyType_GetQualName(type), *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    ext_try_clear_error();
    PyObject *title = name && module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "builtins")
        ? PyUnicode_FromFormat("%U.%U", module, name)
        : Py_XNewRef(name);
    Py_XDECREF(name);
    Py_XDECREF(module);
    return title;
}

/* Describes an object for a message: "int 3", "str 'abc'", "an array f32[2, 3]", "list". NULL with an exception that the caller
 * must see. */
static PyObject *error_describe_object(PyObject *o)
{
    if (Py_IsNone(o))
        return PyUnicode_FromString("None");
    enum ext_kind kind;
    const ext_host *host = ext_find_host(o, &kind);
    PyObject *text = host && host->describe ? host->describe(o) : NULL;
    if (text || !ext_try_clear_error())
        return text;
    PyObject *type = error_make_type_name(Py_TYPE(o));
    if (PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o) || PyUnicode_Check(o)) {
        PyObject *repr = PyObject_Repr(o), *shown = repr ? PyUnicode_Substring(repr, 0, 40) : NULL;
        text = type && shown ? PyUnicode_FromFormat("%U %U", type, shown) : NULL;
        Py_XDECREF(repr);
        Py_XDECREF(shown);
    }
    if (!text && ext_try_clear_error())
        text = Py_XNewRef(type);
    Py_XDECREF(type);
    return text;
}

/* Returns "argument" or "result", for messages about a slot. */
static const char *error_get_slot_word(const ext_operator *f, const ext_slot *slot)
{
    return slot < f->slots + f->nargs ? "argument" : "result";
}

/* Returns the name of a slot for messages: "'x'", or "'xs[1]'" for element 1 of a list; the number of a result without a name.
 * NULL with an exception. */
static PyObject *error_make_slot_name(const ext_operator *f, const ext_slot *slot, Py_ssize_t element)
{
    PyObject *where = element < 0 ? PyUnicode_FromString("") : PyUnicode_FromFormat("[%zd]", element);
    PyObject *name = !where ? NULL
        : *slot->info.name  ? PyUnicode_FromFormat("'%s%U'", slot->info.name, where)
                            : PyUnicode_FromFormat("%zd%U", slot - f->slots - (Py_ssize_t)f->nargs, where);
    Py_XDECREF(where);
    return name;
}

/* Sets the TypeError "f: argument 'x': expected Tensor (<expected>), found <found>", unless found is NULL. Returns EXT_FAILED. */
static enum ext_outcome error_fail_argument(
    const ext_operator *f, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *found)
{
    if (!found)
        return EXT_FAILED;
    PyObject *name = error_make_slot_name(f, slot, element);
    if (name)
        PyErr_Format(PyExc_TypeError, "%s: %s %U: expected %s%s%s%s, found %U", f->name, error_get_slot_word(f, slot), name,
            element < 0 ? slot->type_text : expected, element < 0 && expected ? " (" : "",
            element < 0 && expected ? expected : "", element < 0 && expected ? ")" : "", found);
    Py_XDECREF(name);
    return EXT_FAILED;
}

enum ext_outcome ext_fail_argument(ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, PyObject *o)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
        return EXT_ABORT;
    PyObject *cause = error_take_cause(), *found = error_describe_object(o);
    error_fail_argument(c->f, slot, element, expected, found);
    error_set_cause(cause);
    const enum ext_outcome outcome = found ? EXT_FAILED : EXT_ABORT;
    Py_XDECREF(found);
    return outcome;
}

enum ext_outcome ext_fail_argument_text(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, const char *expected, const char *found_text)
{
    PyObject *found = PyUnicode_FromString(found_text);
    error_fail_argument(c->f, slot, element, expected, found);
    Py_XDECREF(found);
    return EXT_FAILED;
}

enum ext_outcome ext_too_large(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, const char *type)
{
    PyErr_Clear();
    PyObject *shown = error_describe_object(o),
             *found = shown ? PyUnicode_FromFormat("%U, which is too large for %s", shown, type) : NULL;
    error_fail_argument(c->f, slot, element, element < 0 ? NULL : type, found);
    Py_XDECREF(shown);
    const enum ext_outcome outcome = found ? EXT_FAILED : EXT_ABORT;
    Py_XDECREF(found);
    return outcome;
}

enum ext_outcome ext_mixed(ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, const ext_host *other)
{
    PyObject *title = error_make_type_name(Py_TYPE(o)), *name = title ? error_make_slot_name(c->f, slot, element) : NULL;
    if (name) {
        PyErr_Format(PyExc_TypeError,
            "%s: %s %U: expected a tensor of %s, like the call's first one, found %U, which belongs to %s: convert one of "
            "them",
            c->f->name, error_get_slot_word(c->f, slot), name, c->host_table->name, title, other->name);
    }
    Py_XDECREF(title);
    Py_XDECREF(name);
    return EXT_ABORT;
}

PyObject *ext_raise_status(int status)
{
    if (PyErr_Occurred())
        return NULL;
    PyObject *module = PyImport_ImportModule("dovetail._errors");
    PyObject *error = module ? PyObject_CallMethod(module, "make", "ss", dv_status_name(status), dv_last_error()) : NULL;
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(module);
    return NULL;
}
