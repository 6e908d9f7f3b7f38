/* Assigns positional and named arguments to slots. Tensors for results may be given too: by name, as out= (one array, or a tuple
 * with None for results to be allocated), or after the positional arguments in order, unless some arguments are keyword-only:
 * then one more is most likely such an argument. Error messages have the form of Python's. */
#include "extension.h"

#include <stdio.h>

static int wrong(const ext_operator *f, const char *format, ...)
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

static int too_many(const ext_operator *f, Py_ssize_t nargs)
{
    size_t required = 0, results = 0;
    for (size_t i = 0; i < f->npositional; i++)
        required += !f->slots[i].has_default;
    for (size_t i = 0; i < f->nresults && f->npositional == f->nargs; i++)
        results += f->slots[f->nargs + i].type == DV_FIELD_TENSOR && f->slots[f->nargs + i].alias < 0;
    PyObject *range = required == f->npositional ? PyUnicode_FromFormat("%zu", required)
                                                 : PyUnicode_FromFormat("from %zu to %zu", required, f->npositional);
    PyObject *more = results ? PyUnicode_FromFormat(" (and %zu result%s to write to)", results, results == 1 ? "" : "s")
                             : PyUnicode_FromString("");
    if (range && more)
        wrong(f, "takes %U positional argument%s%U but %zd were given", range, f->npositional == 1 ? "" : "s", more, nargs);
    Py_XDECREF(range);
    Py_XDECREF(more);
    return -1;
}

static int missing(ext_call *c)
{
    const ext_operator *f = c->f;
    for (int kwarg = 0; kwarg < 2; kwarg++) { /* Python reports positional ones first */
        PyObject *names = PyUnicode_FromString("");
        size_t n = 0, left = 0;
        for (size_t i = 0; i < f->nargs; i++)
            n += !c->given[i] && !f->slots[i].has_default && (i >= f->npositional) == kwarg;
        left = n;
        for (size_t i = 0; i < f->nargs && names; i++)
            if (!c->given[i] && !f->slots[i].has_default && (i >= f->npositional) == kwarg) {
                left--;
                PyObject *longer = PyUnicode_FromFormat("%U'%U'%s", names, f->slots[i].name,
                    !left          ? ""
                        : left > 1 ? ", "
                        : n > 2    ? ", and "
                                   : " and ");
                Py_DECREF(names);
                names = longer;
            }
        if (n && names)
            wrong(
                f, "missing %zu required %s argument%s: %U", n, kwarg ? "keyword-only" : "positional", n == 1 ? "" : "s", names);
        Py_XDECREF(names);
        if (n)
            return -1;
    }
    return 0;
}

/* A list of tensors is given as a list or a tuple. */
static bool may_be_given(const ext_slot *result, PyObject *o)
{
    return result->alias < 0 &&
        (result->type == DV_FIELD_TENSOR ||
            (result->type == DV_FIELD_TENSORS && (PyList_Check(o) || PyTuple_Check(o) || Py_IsNone(o))));
}

/* Why o cannot be given for result i. */
static int refuse(ext_call *c, size_t i, PyObject *o)
{
    const ext_operator *f = c->f;
    const ext_slot *result = &f->slots[f->nargs + i];
    char name[200];
    if (*result->text)
        snprintf(name, sizeof name, "'%s'", result->text);
    else
        snprintf(name, sizeof name, "%zu", i);
    if (result->alias >= 0)
        return wrong(f, "cannot write result %s: it has the memory of argument '%s'", name, f->slots[result->alias].text);
    if (result->type != DV_FIELD_TENSORS)
        return wrong(f, "cannot write result %s: a value of type %s is only returned", name, result->type_text);
    ext_wrong(c, result, -1, "a list or tuple", o);
    return -1;
}

static int bind_out(ext_call *c, PyObject *o)
{
    const ext_operator *f = c->f;
    const bool list = f->nresults == 1 && f->slots[f->nargs].type == DV_FIELD_TENSORS,
               several = !list && (PyTuple_Check(o) || (PyList_Check(o) && f->nresults > 1));
    if (Py_IsNone(o))
        return 0; /* all are made */
    const Py_ssize_t n = !several ? 1 : PyTuple_Check(o) ? PyTuple_Size(o) : PyList_Size(o);
    if (n != (Py_ssize_t)f->nresults && several)
        return wrong(f, "got out= with a tuple of %zd for %zu result%s", n, f->nresults, f->nresults == 1 ? "" : "s");
    if (n != (Py_ssize_t)f->nresults)
        return wrong(f, "got out= with no tuple for %zu results: expected a tuple of %zu", f->nresults, f->nresults);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *one = !several ? o : PyTuple_Check(o) ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i);
        if (Py_IsNone(one))
            continue;
        if (c->given[f->nargs + (size_t)i])
            return wrong(f, "got multiple values for result %zd", i);
        if (!may_be_given(&f->slots[f->nargs + (size_t)i], one))
            return refuse(c, (size_t)i, one);
        if (PyList_Check(o) && several && ext_keep_object(c, Py_NewRef(one))) /* the list may change during the call */
            return -1;
        c->given[f->nargs + (size_t)i] = one;
    }
    return 0;
}

/* The slot of this name, or the number of slots if no slot has it. `from_` stands for `from`, since a Python keyword cannot be an
 * argument's name. */
static size_t slot_named(const ext_operator *f, PyObject *name)
{
    const size_t n = f->nargs + f->nresults;
    for (size_t i = 0; i < n; i++)
        if (f->slots[i].name == name) /* both are interned, as a rule */
            return i;
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    for (size_t i = 0; text && i < n; i++)
        if (f->slots[i].name && !strcmp(f->slots[i].text, text))
            return i;
    for (size_t i = 0; size > 1 && text[size - 1] == '_' && i < n; i++)
        if (!strncmp(f->slots[i].text, text, (size_t)size - 1) && !f->slots[i].text[size - 1])
            return i;
    PyErr_Clear();
    return n;
}

static int bind_name(ext_call *c, PyObject *name, PyObject *value)
{
    const ext_operator *f = c->f;
    const size_t n = f->nargs + f->nresults, i = slot_named(f, name);
    if (i == n || (i >= f->nargs && PyTuple_Check(value))) {
        if (!PyUnicode_CompareWithASCIIString(name, "out") && f->nresults)
            return bind_out(c, value);
    }
    if (i == n) {
        return wrong(f, "got an unexpected keyword argument '%U'", name);
    }
    if (c->given[i])
        return wrong(f, "got multiple values for %s '%U'", i < f->nargs ? "argument" : "result", name);
    if (i >= f->nargs) {
        if (!may_be_given(&f->slots[i], value))
            return refuse(c, i - f->nargs, value);
        if (Py_IsNone(value))
            return 0;
    }
    c->given[i] = value;
    return 0;
}

int ext_bind(ext_call *c, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const ext_operator *f = c->f;
    size_t slot = 0;
    for (Py_ssize_t i = 0; i < nargs; i++, slot++) {
        if (slot >= f->npositional) {
            if (f->npositional < f->nargs)
                return too_many(f, nargs);
            if (slot == f->npositional)
                slot = f->nargs;
            while (slot < f->nargs + f->nresults && !may_be_given(&f->slots[slot], args[i]))
                slot++;
            if (slot >= f->nargs + f->nresults)
                return too_many(f, nargs);
            if (Py_IsNone(args[i]))
                continue;
        }
        c->given[slot] = args[i];
    }
    for (Py_ssize_t i = 0, n = kwnames ? PyTuple_Size(kwnames) : 0; i < n; i++)
        if (bind_name(c, PyTuple_GetItem(kwnames, i), args[nargs + i]))
            return -1;
    for (size_t i = (size_t)nargs < f->npositional ? (size_t)nargs : f->npositional; i < f->nargs; i++)
        if (!c->given[i] && !f->slots[i].has_default)
            return missing(c);
    return 0;
}
