/* A call of several overloads under one name.
 *
 * If the host has no dispatcher of its own, the overloads are tried in order until the arguments fit one. If it has one, that
 * dispatcher selects, unless the arguments' types alone leave only one overload: no other can fit then, whatever the values are.
 * Trial conversions find that overload, and it is remembered by the types of the arguments. A call is not remembered if more than
 * types matters: an int beyond 64 bits, a list of several types, an object that is neither a tensor nor of a usual Python type.
 */
#include "extension.h"

enum { MOST = 32, REMEMBERED = 8 };

/* The types of a call's arguments; for a list, its type and that of its elements. */
typedef struct signature {
    const ext_host *host;
    PyObject *kwnames;
    size_t n;
    PyTypeObject *types[MOST];
} signature;

struct ext_memory {
    size_t next;
    struct remembered {
        signature s;        /* with references; host NULL: free */
        ext_operator *only; /* NULL: several fit, the host picks */
    } known[REMEMBERED];
};

/* ---- The signature ------------------------------------------------------------------------------------------------------- */

static bool is_list(PyObject *o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); }
static Py_ssize_t list_size(PyObject *o) { return PyList_CheckExact(o) ? PyList_Size(o) : PyTuple_Size(o); }
static PyObject *list_item(PyObject *o, Py_ssize_t i)
{
    return PyList_CheckExact(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
}

static const ext_host *host_of_tensor(PyObject *o)
{
    enum ext_kind kind;
    const ext_host *host = ext_is_builtin(o) ? NULL : ext_host_of(o, &kind);
    ext_clear_error();
    return host && kind == EXT_TENSOR ? host : NULL;
}

static const ext_host *host_of_all(PyObject *const *args, Py_ssize_t n)
{
    const ext_host *found = NULL;
    for (Py_ssize_t i = 0; i < n && !found; i++) {
        found = host_of_tensor(args[i]);
        for (Py_ssize_t k = 0, size = is_list(args[i]) ? list_size(args[i]) : 0; k < size && !found; k++)
            found = host_of_tensor(list_item(args[i], k));
    }
    return found;
}

static bool add(signature *s, PyObject *o)
{
    int overflow = 0;
    if (s->n == MOST || (PyLong_CheckExact(o) && (PyLong_AsLongLongAndOverflow(o, &overflow), overflow)))
        return false;
    if (!ext_is_builtin(o) && host_of_tensor(o) != s->host)
        return false;
    s->types[s->n++] = Py_TYPE(o);
    return true;
}

static bool add_list(signature *s, PyObject *o)
{
    const Py_ssize_t size = list_size(o);
    if (s->n == MOST)
        return false;
    s->types[s->n++] = Py_TYPE(o);
    if (!size)
        return true;
    for (Py_ssize_t i = 1; i < size; i++)
        if (Py_TYPE(list_item(o, i)) != Py_TYPE(list_item(o, 0)))
            return false;
    for (Py_ssize_t i = 0; i < size; i++) { /* the last one stays */
        const size_t n = s->n;
        if (!add(s, list_item(o, i)))
            return false;
        s->n = i + 1 < size ? n : s->n;
    }
    return true;
}

/* False: not to be remembered. */
static bool sign(signature *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    s->kwnames = kwnames;
    s->n = 0;
    for (Py_ssize_t i = 0, n = nargs + (kwnames ? PyTuple_Size(kwnames) : 0); i < n; i++)
        if (!(is_list(args[i]) ? add_list(s, args[i]) : add(s, args[i])))
            return false;
    return true;
}

/* ---- Memory -------------------------------------------------------------------------------------------------------------- */

static struct remembered *recall(const ext_operator *packet, const signature *s)
{
    for (size_t i = 0; packet->memory && i < REMEMBERED; i++) {
        struct remembered *r = &packet->memory->known[i];
        if (r->s.host == s->host && r->s.kwnames == s->kwnames && r->s.n == s->n &&
            !memcmp(r->s.types, s->types, s->n * sizeof *s->types))
            return r;
    }
    return NULL;
}

static void forget(struct remembered *r)
{
    if (!r->s.host)
        return;
    r->s.host = NULL;
    Py_XDECREF(r->s.kwnames);
    for (size_t i = 0; i < r->s.n; i++)
        Py_DECREF((PyObject *)r->s.types[i]);
}

/* When memory is out, nothing is cached. */
static void remember(ext_operator *packet, const signature *s, ext_operator *only)
{
    if (!packet->memory && !(packet->memory = PyMem_Calloc(1, sizeof *packet->memory)))
        return;
    struct remembered *r = &packet->memory->known[packet->memory->next++ % REMEMBERED];
    forget(r);
    r->s = *s;
    r->only = only;
    Py_XINCREF(s->kwnames);
    for (size_t i = 0; i < s->n; i++)
        Py_INCREF((PyObject *)s->types[i]);
}

void ext_packet_forget(ext_operator *packet)
{
    for (size_t i = 0; packet->memory && i < REMEMBERED; i++)
        forget(&packet->memory->known[i]);
    PyMem_Free(packet->memory);
    packet->memory = NULL;
}

/* ---- Calls --------------------------------------------------------------------------------------------------------------- */

static ext_operator *overload(const ext_operator *packet, Py_ssize_t i)
{
    return (ext_operator *)(void *)PyTuple_GetItem(packet->overloads, i);
}

/* Tries an overload with a call's arguments. EXT_OK: the types fit. EXT_SLOW: only the host can tell. An exception that the
 * caller must see stays set. */
static enum ext_outcome try_one(ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    ext_call c;
    const enum ext_outcome outcome = ext_call_begin(&c, f, args, nargs, kwnames, EXT_TRIAL);
    ext_call_end(&c);
    if (outcome != EXT_MIXED || PyErr_ExceptionMatches(PyExc_TypeError)) /* MIXED also: what a conversion raised */
        ext_clear_error();
    return outcome;
}

PyObject *ext_accepts(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const enum ext_outcome outcome = try_one((ext_operator *)(void *)self, args, EXT_NARGS(nargsf), kwnames);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(outcome == EXT_OK || outcome == EXT_SLOW);
}

/* Returns how many overloads accept these types; *only: the last of them. 0 with an exception. */
static size_t try_all(const ext_operator *packet, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, ext_operator **only)
{
    size_t fitting = 0;
    *only = NULL;
    for (Py_ssize_t i = 0, n = PyTuple_Size(packet->overloads); i < n; i++) {
        if (try_one(overload(packet, i), args, nargs, kwnames) == EXT_OK) {
            fitting++;
            *only = overload(packet, i);
        }
        if (PyErr_Occurred())
            return 0;
    }
    return fitting;
}

/* Returns the only overload that accepts these types. NULL: the host selects, or an exception is set. */
static ext_operator *find_only(
    ext_operator *packet, const ext_host *host, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    signature s = { .host = host }, after = { .host = host };
    ext_operator *only;
    if (!sign(&s, args, nargs, kwnames))
        return NULL;
    const struct remembered *known = recall(packet, &s);
    if (known)
        return known->only;
    const size_t fitting = try_all(packet, args, nargs, kwnames, &only);
    if (fitting > 1)
        only = NULL;
    /* The trials may have run Python code, which may have changed a list. */
    if (fitting && sign(&after, args, nargs, kwnames) && after.n == s.n && !memcmp(after.types, s.types, s.n * sizeof *s.types))
        remember(packet, &s, only);
    return fitting ? only : NULL;
}

static PyObject *call_by_host(ext_operator *packet, const ext_host *host, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const Py_ssize_t nargs = EXT_NARGS(nargsf);
    ext_operator *only = find_only(packet, host, args, nargs, kwnames);
    if (PyErr_Occurred())
        return NULL;
    if (!only)
        return ext_call_bridge(host, packet, args, nargs, kwnames);
    ext_call c;
    const enum ext_outcome outcome = ext_call_begin(&c, only, args, nargs, kwnames, EXT_CALL);
    if (outcome != EXT_SLOW || c.way > 0)
        return ext_call_finish(&c, outcome, args, nargsf, kwnames);
    ext_call_end(&c);
    return ext_call_bridge(host, packet, args, nargs, kwnames);
}

/* Takes `why` and gives it with the exception's text, which is cleared. */
static PyObject *add_reason(PyObject *why)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *longer = PyUnicode_FromFormat("%U\n  %S", why, value ? value : Py_None);
    Py_DECREF(why);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return longer;
}

static PyObject *call_in_order(ext_operator *packet, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *why = PyUnicode_FromString("");
    for (Py_ssize_t i = 0, n = PyTuple_Size(packet->overloads); i < n && why; i++) {
        ext_call c;
        const enum ext_outcome outcome = ext_call_begin(&c, overload(packet, i), args, EXT_NARGS(nargsf), kwnames, EXT_CALL);
        if (outcome >= 0 || !PyErr_ExceptionMatches(PyExc_TypeError)) {
            Py_DECREF(why);
            return ext_call_finish(&c, outcome, args, nargsf, kwnames);
        }
        ext_call_end(&c);
        why = add_reason(why);
    }
    if (why)
        PyErr_Format(PyExc_TypeError, "%s: no overload takes these arguments:%U", packet->name, why);
    Py_XDECREF(why);
    return NULL;
}

PyObject *ext_call_packet(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_operator *packet = (ext_operator *)(void *)self;
    const ext_host *host = host_of_all(args, EXT_NARGS(nargsf) + (kwnames ? PyTuple_Size(kwnames) : 0));
    return host && host->dispatches ? call_by_host(packet, host, args, nargsf, kwnames)
                                    : call_in_order(packet, args, nargsf, kwnames);
}
