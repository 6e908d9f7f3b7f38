/* Assigns positional and named arguments to slots. Tensors for results may be given too: by name, as out= (one array, or a tuple
 * with None for results to be allocated), or after the positional arguments in order, unless some arguments are keyword-only:
 * then one more is most likely such an argument. Error messages have the form of Python's. */
#include "extension.h"

#include <stdio.h>

/* Sets the TypeError "f() <text>" for an operator, with the formatted text. Returns -1. */
static int bind_fail(const ext_operator *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (text)
        PyErr_Format(PyExc_TypeError, "%s() %U", f->name, text);
    Py_XDECREF(text);
    return -1;
}

/* Sets the TypeError that Python sets for too many positional arguments; nargs of them were passed. Returns -1. */
static int bind_fail_too_many(const ext_operator *f, Py_ssize_t nargs)
{
    size_t required = 0, results = 0;
    for (size_t i = 0; i < f->npositional; i++)
        required += !f->slots[i].info.default_text;
    for (size_t i = 0; i < f->nresults && f->npositional == f->nargs; i++)
        results += f->slots[f->nargs + i].info.type == DV_FIELD_TENSOR && f->slots[f->nargs + i].info.alias < 0;
    PyObject *range = required == f->npositional ? PyUnicode_FromFormat("%zu", required)
                                                 : PyUnicode_FromFormat("from %zu to %zu", required, f->npositional);
    PyObject *more = results ? PyUnicode_FromFormat(" (and %zu result%s to write to)", results, results == 1 ? "" : "s")
                             : PyUnicode_FromString("");
    if (range && more)
        bind_fail(f, "takes %U positional argument%s%U but %zd were given", range, f->npositional == 1 ? "" : "s", more, nargs);
    Py_XDECREF(range);
    Py_XDECREF(more);
    return -1;
}

/* Sets the TypeError that Python sets for required arguments that were not passed, with their names. Returns -1; 0, without an
 * exception, if none is missing. */
static int bind_check_required(ext_call *c)
{
    const ext_operator *f = c->f;
    for (int kwarg = 0; kwarg < 2; kwarg++) { /* Python reports missing positional arguments before keyword-only ones */
        PyObject *names = PyUnicode_FromString("");
        size_t nmissing = 0, nunlisted = 0;
        for (size_t i = 0; i < f->nargs; i++)
            nmissing += !c->passed[i] && !f->slots[i].info.default_text && (i >= f->npositional) == kwarg;
        nunlisted = nmissing;
        for (size_t i = 0; i < f->nargs && names; i++)
            if (!c->passed[i] && !f->slots[i].info.default_text && (i >= f->npositional) == kwarg) {
                nunlisted--;
                PyObject *longer = PyUnicode_FromFormat("%U'%U'%s", names, f->slots[i].name,
                    !nunlisted          ? ""
                        : nunlisted > 1 ? ", "
                        : nmissing > 2  ? ", and "
                                        : " and ");
                Py_DECREF(names);
                names = longer;
            }
        if (nmissing && names)
            bind_fail(f, "missing %zu required %s argument%s: %U", nmissing, kwarg ? "keyword-only" : "positional",
                nmissing == 1 ? "" : "s", names);
        Py_XDECREF(names);
        if (nmissing)
            return -1;
    }
    return 0;
}

/* True if the caller may pass this object for a result, to be written into. For a list of tensors the object must be a list, a
 * tuple or None. False if the result aliases an argument, or is no tensor. */
static bool bind_can_receive_result(const ext_slot *result, PyObject *passed)
{
    return result->info.alias < 0 &&
        (result->info.type == DV_FIELD_TENSOR ||
            (result->info.type == DV_FIELD_TENSORS && (PyList_Check(passed) || PyTuple_Check(passed) || Py_IsNone(passed))));
}

/* Sets a TypeError that says why an object cannot be passed for a result. Returns -1. */
static int bind_fail_given_result(ext_call *c, size_t result_index, PyObject *passed)
{
    const ext_operator *f = c->f;
    const ext_slot *result = &f->slots[f->nargs + result_index];
    char name[200];
    if (*result->info.name)
        snprintf(name, sizeof name, "'%s'", result->info.name);
    else
        snprintf(name, sizeof name, "%zu", result_index);
    if (result->info.alias >= 0)
        return bind_fail(
            f, "cannot write result %s: it has the memory of argument '%s'", name, f->slots[result->info.alias].info.name);
    if (result->info.type != DV_FIELD_TENSORS)
        return bind_fail(f, "cannot write result %s: a value of type %s is only returned", name, result->type_text);
    ext_fail_argument(c, result, -1, "a list or tuple", passed);
    return -1;
}

/* Binds the value of the keyword out=: one object, or a tuple with an object or None for each result. Returns 0, or -1 with a
 * TypeError. */
static int bind_out_keyword(ext_call *c, PyObject *out)
{
    const ext_operator *f = c->f;
    const bool list = f->nresults == 1 && f->slots[f->nargs].info.type == DV_FIELD_TENSORS,
               several = !list && (PyTuple_Check(out) || (PyList_Check(out) && f->nresults > 1));
    if (Py_IsNone(out))
        return 0; /* all are made */
    const Py_ssize_t n = !several ? 1 : PyTuple_Check(out) ? PyTuple_Size(out) : PyList_Size(out);
    if (n != (Py_ssize_t)f->nresults && several)
        return bind_fail(f, "got out= with a tuple of %zd for %zu result%s", n, f->nresults, f->nresults == 1 ? "" : "s");
    if (n != (Py_ssize_t)f->nresults)
        return bind_fail(f, "got out= with no tuple for %zu results: expected a tuple of %zu", f->nresults, f->nresults);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *one = !several ? out : PyTuple_Check(out) ? PyTuple_GetItem(out, i) : PyList_GetItem(out, i);
        if (Py_IsNone(one))
            continue;
        if (c->passed[f->nargs + (size_t)i])
            return bind_fail(f, "got multiple values for result %zd", i);
        if (!bind_can_receive_result(&f->slots[f->nargs + (size_t)i], one))
            return bind_fail_given_result(c, (size_t)i, one);
        /* another thread may change the list during the call */
        if (PyList_Check(out) && several && ext_call_add_reference(c, Py_NewRef(one)))
            return -1;
        c->passed[f->nargs + (size_t)i] = one;
    }
    return 0;
}

/* Returns the slot of the argument or result with this name, or the number of slots if no slot has it. `from_` stands for `from`,
 * since a Python keyword cannot be an argument's name. */
static size_t bind_find_slot_index(const ext_operator *f, PyObject *name)
{
    const size_t n = f->nargs + f->nresults;
    for (size_t i = 0; i < n; i++)
        if (f->slots[i].name == name) /* both are interned, as a rule */
            return i;
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    for (size_t i = 0; text && i < n; i++)
        if (f->slots[i].name && !strcmp(f->slots[i].info.name, text))
            return i;
    for (size_t i = 0; size > 1 && text[size - 1] == '_' && i < n; i++)
        if (!strncmp(f->slots[i].info.name, text, (size_t)size - 1) && !f->slots[i].info.name[size - 1])
            return i;
    PyErr_Clear();
    return n;
}

/* Binds one named argument, one result by its name, or out=. Returns 0, or -1 with a TypeError. */
static int bind_keyword(ext_call *c, PyObject *name, PyObject *value)
{
    const ext_operator *f = c->f;
    const size_t n = f->nargs + f->nresults, i = bind_find_slot_index(f, name);
    if (i == n || (i >= f->nargs && PyTuple_Check(value))) {
        if (!PyUnicode_CompareWithASCIIString(name, "out") && f->nresults)
            return bind_out_keyword(c, value);
    }
    if (i == n) {
        return bind_fail(f, "got an unexpected keyword argument '%U'", name);
    }
    if (c->passed[i])
        return bind_fail(f, "got multiple values for %s '%U'", i < f->nargs ? "argument" : "result", name);
    if (i >= f->nargs) {
        if (!bind_can_receive_result(&f->slots[i], value))
            return bind_fail_given_result(c, i - f->nargs, value);
        if (Py_IsNone(value))
            return 0;
    }
    c->passed[i] = value;
    return 0;
}

int ext_call_bind(ext_call *c, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const ext_operator *f = c->f;
    size_t slot = 0;
    for (Py_ssize_t i = 0; i < nargs; i++, slot++) {
        if (slot >= f->npositional) {
            if (f->npositional < f->nargs)
                return bind_fail_too_many(f, nargs);
            if (slot == f->npositional)
                slot = f->nargs;
            while (slot < f->nargs + f->nresults && !bind_can_receive_result(&f->slots[slot], args[i]))
                slot++;
            if (slot >= f->nargs + f->nresults)
                return bind_fail_too_many(f, nargs);
            if (Py_IsNone(args[i]))
                continue;
        }
        c->passed[slot] = args[i];
    }
    for (Py_ssize_t i = 0, n = kwnames ? PyTuple_Size(kwnames) : 0; i < n; i++)
        if (bind_keyword(c, PyTuple_GetItem(kwnames, i), args[nargs + i]))
            return -1;
    for (size_t i = (size_t)nargs < f->npositional ? (size_t)nargs : f->npositional; i < f->nargs; i++)
        if (!c->passed[i] && !f->slots[i].info.default_text)
            return bind_check_required(c);
    return 0;
}
