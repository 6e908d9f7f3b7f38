/* A call of several overloads under one name.
 *
 * If the host has no dispatcher of its own, the overloads are tried in order until the arguments fit one. If it has one, that
 * dispatcher selects, unless the arguments' types alone leave only one overload: no other can fit then, whatever the values are.
 * Trial conversions find that overload, and it is remembered by the types of the arguments. A call is not remembered if more than
 * types matters: an int beyond 64 bits, a list of several types, an object that is neither a tensor nor of a usual Python type.
 */
#include "extension.h"

enum { MAX_TYPES = 32, CACHED_CALLS = 8 };

/* The types of a call's arguments, by which the packet caches the overload. A list counts with its type and the type of its
 * elements. */
typedef struct call_types {
    const ext_host *host;
    PyObject *kwnames;
    size_t n;
    PyTypeObject *types[MAX_TYPES];
} call_types;

struct ext_packet_cache {
    size_t next;
    struct cached_call {
        call_types s;           /* key of the entry, which owns references to the types; host NULL: the entry is unused */
        ext_operator *overload; /* the only overload that fits; NULL: several fit, so the host selects one */
    } entries[CACHED_CALLS];
};

/* ---- The signature ------------------------------------------------------------------------------------------------------- */

static bool packet_is_list(PyObject *o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); }
static Py_ssize_t packet_list_size(PyObject *o) { return PyList_CheckExact(o) ? PyList_Size(o) : PyTuple_Size(o); }
static PyObject *packet_list_item(PyObject *o, Py_ssize_t i)
{
    return PyList_CheckExact(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
}

/* Returns the host of a tensor. NULL: o is no tensor. Clears ordinary exceptions. */
static const ext_host *packet_find_host_of_tensor(PyObject *o)
{
    enum ext_kind kind;
    const ext_host *host = ext_is_builtin(o) ? NULL : ext_find_host(o, &kind);
    ext_try_clear_error();
    return host && kind == EXT_KIND_TENSOR ? host : NULL;
}

/* Returns the host of the first tensor among n arguments, also in lists and tuples. NULL: no argument is or has a tensor. */
static const ext_host *packet_find_first_host(PyObject *const *args, Py_ssize_t n)
{
    const ext_host *found = NULL;
    for (Py_ssize_t i = 0; i < n && !found; i++) {
        found = packet_find_host_of_tensor(args[i]);
        for (Py_ssize_t k = 0, size = packet_is_list(args[i]) ? packet_list_size(args[i]) : 0; k < size && !found; k++)
            found = packet_find_host_of_tensor(packet_list_item(args[i], k));
    }
    return found;
}

/* Appends the type of an argument. Returns false if a call with it is not cached: there are too many types, it is an int of more
 * than 64 bits, or it is neither builtin nor a tensor of the host. */
static bool types_try_add_object(call_types *s, PyObject *o)
{
    int overflow = 0;
    if (s->n == MAX_TYPES || (PyLong_CheckExact(o) && (PyLong_AsLongLongAndOverflow(o, &overflow), overflow)))
        return false;
    if (!ext_is_builtin(o) && packet_find_host_of_tensor(o) != s->host)
        return false;
    s->types[s->n++] = Py_TYPE(o);
    return true;
}

/* Appends the type of a list and that of its elements. Returns false if a call with it is not cached, as for elements of several
 * types. */
static bool types_try_add_list(call_types *s, PyObject *o)
{
    const Py_ssize_t size = packet_list_size(o);
    if (s->n == MAX_TYPES)
        return false;
    s->types[s->n++] = Py_TYPE(o);
    if (!size)
        return true;
    for (Py_ssize_t i = 1; i < size; i++)
        if (Py_TYPE(packet_list_item(o, i)) != Py_TYPE(packet_list_item(o, 0)))
            return false;
    for (Py_ssize_t i = 0; i < size; i++) { /* each element is tested, and only the type of the last one stays appended */
        const size_t n = s->n;
        if (!types_try_add_object(s, packet_list_item(o, i)))
            return false;
        s->n = i + 1 < size ? n : s->n;
    }
    return true;
}

/* Sets the types of a call's arguments. Returns false if such a call is not cached. */
static bool types_try_init(call_types *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    s->kwnames = kwnames;
    s->n = 0;
    for (Py_ssize_t i = 0, n = nargs + (kwnames ? PyTuple_Size(kwnames) : 0); i < n; i++)
        if (!(packet_is_list(args[i]) ? types_try_add_list(s, args[i]) : types_try_add_object(s, args[i])))
            return false;
    return true;
}

/* ---- Memory -------------------------------------------------------------------------------------------------------------- */

/* Returns the cached call with these types of arguments. NULL: there is none. */
static struct cached_call *packet_cache_find(const ext_operator *packet, const call_types *s)
{
    for (size_t i = 0; packet->packet_cache && i < CACHED_CALLS; i++) {
        struct cached_call *r = &packet->packet_cache->entries[i];
        if (r->s.host == s->host && r->s.kwnames == s->kwnames && r->s.n == s->n &&
            !memcmp(r->s.types, s->types, s->n * sizeof *s->types))
            return r;
    }
    return NULL;
}

/* Releases the types of a cache entry, and marks it unused. */
static void packet_cache_clear_entry(struct cached_call *entry)
{
    if (!entry->s.host)
        return;
    entry->s.host = NULL;
    Py_XDECREF(entry->s.kwnames);
    for (size_t i = 0; i < entry->s.n; i++)
        Py_DECREF((PyObject *)entry->s.types[i]);
}

/* Caches which overload fits these types: only_fitting; NULL: several fit. Replaces the oldest entry. Does nothing if memory is
 * out. */
static void packet_cache_add(ext_operator *packet, const call_types *s, ext_operator *only_fitting)
{
    if (!packet->packet_cache && !(packet->packet_cache = PyMem_Calloc(1, sizeof *packet->packet_cache)))
        return;
    struct cached_call *r = &packet->packet_cache->entries[packet->packet_cache->next++ % CACHED_CALLS];
    packet_cache_clear_entry(r);
    r->s = *s;
    r->overload = only_fitting;
    Py_XINCREF(s->kwnames);
    for (size_t i = 0; i < s->n; i++)
        Py_INCREF((PyObject *)s->types[i]);
}

void ext_packet_reset_cache(ext_operator *packet)
{
    for (size_t i = 0; packet->packet_cache && i < CACHED_CALLS; i++)
        packet_cache_clear_entry(&packet->packet_cache->entries[i]);
    PyMem_Free(packet->packet_cache);
    packet->packet_cache = NULL;
}

/* ---- Calls --------------------------------------------------------------------------------------------------------------- */

/* Returns overload number i of a packet, borrowed. */
static ext_operator *packet_get_overload(const ext_operator *packet, Py_ssize_t i)
{
    return (ext_operator *)(void *)PyTuple_GetItem(packet->overloads, i);
}

/* Tests whether an overload accepts arguments of these types, without calling it. EXT_OK: it does. EXT_DISPATCH: only the host
 * can tell. Other outcomes: it does not. An exception that the caller must see stays set. */
static enum ext_outcome packet_match_overload_types(ext_operator *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    ext_call c;
    const enum ext_outcome outcome = ext_call_begin(&c, f, args, nargs, kwnames, EXT_MATCH_TYPES);
    ext_call_end(&c);
    /* a TypeError means that the overload does not fit, also one that a conversion raised */
    if (outcome != EXT_ABORT || PyErr_ExceptionMatches(PyExc_TypeError))
        ext_try_clear_error();
    return outcome;
}

PyObject *ext_can_accept(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const enum ext_outcome outcome = packet_match_overload_types((ext_operator *)(void *)self, args, EXT_NARGS(nargsf), kwnames);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(outcome == EXT_OK || outcome == EXT_DISPATCH);
}

/* Returns the number of overloads that accept arguments of these types; 0 with an exception. *last_match receives the last such
 * overload; NULL: none. */
static size_t packet_count_matches(
    const ext_operator *packet, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, ext_operator **last_match)
{
    size_t nmatches = 0;
    *last_match = NULL;
    for (Py_ssize_t i = 0, n = PyTuple_Size(packet->overloads); i < n; i++) {
        if (packet_match_overload_types(packet_get_overload(packet, i), args, nargs, kwnames) == EXT_OK) {
            nmatches++;
            *last_match = packet_get_overload(packet, i);
        }
        if (PyErr_Occurred())
            return 0;
    }
    return nmatches;
}

/* Returns the only overload that accepts arguments of these types. NULL: no overload or several do, so that the host selects, or
 * an exception is set. */
static ext_operator *packet_find_unique(
    ext_operator *packet, const ext_host *host, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    call_types s = { .host = host }, after = { .host = host };
    ext_operator *only;
    if (!types_try_init(&s, args, nargs, kwnames))
        return NULL;
    const struct cached_call *cached = packet_cache_find(packet, &s);
    if (cached)
        return cached->overload;
    const size_t fitting = packet_count_matches(packet, args, nargs, kwnames, &only);
    if (fitting > 1)
        only = NULL;
    /* The trials may have run Python code, which may have changed a list. */
    if (fitting && types_try_init(&after, args, nargs, kwnames) && after.n == s.n &&
        !memcmp(after.types, s.types, s.n * sizeof *s.types))
        packet_cache_add(packet, &s, only);
    return fitting ? only : NULL;
}

/* Calls the only overload that fits the types of the arguments; if that is not clear, calls the framework's own dispatcher with
 * the packet. Returns the result; NULL with an exception. */
static PyObject *packet_call_by_host(
    ext_operator *packet, const ext_host *host, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const Py_ssize_t nargs = EXT_NARGS(nargsf);
    ext_operator *only = packet_find_unique(packet, host, args, nargs, kwnames);
    if (PyErr_Occurred())
        return NULL;
    if (!only)
        return ext_call_bridge(host, packet, args, nargs, kwnames);
    ext_call c;
    const enum ext_outcome outcome = ext_call_begin(&c, only, args, nargs, kwnames, EXT_CALL);
    if (outcome != EXT_DISPATCH || c.path > 0)
        return ext_call_finish(&c, outcome, args, nargsf, kwnames);
    ext_call_end(&c);
    return ext_call_bridge(host, packet, args, nargs, kwnames);
}

/* Returns `why` with the text of the exception that is set on a new line, and clears the exception. Takes the reference to `why`.
 * NULL: memory is out. */
static PyObject *packet_append_reason(PyObject *why)
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

/* Calls the first overload, in order, that accepts the arguments. Returns its result; NULL with an exception, which lists why
 * each overload failed if none fits. */
static PyObject *packet_call_first_fitting(ext_operator *packet, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *why = PyUnicode_FromString("");
    for (Py_ssize_t i = 0, n = PyTuple_Size(packet->overloads); i < n && why; i++) {
        ext_call c;
        const enum ext_outcome outcome = ext_call_begin(
            &c, packet_get_overload(packet, i), args, EXT_NARGS(nargsf), kwnames, EXT_CALL);
        if (outcome >= 0 || !PyErr_ExceptionMatches(PyExc_TypeError)) {
            Py_DECREF(why);
            return ext_call_finish(&c, outcome, args, nargsf, kwnames);
        }
        ext_call_end(&c);
        why = packet_append_reason(why);
    }
    if (why)
        PyErr_Format(PyExc_TypeError, "%s: no overload takes these arguments:%U", packet->name, why);
    Py_XDECREF(why);
    return NULL;
}

PyObject *ext_call_packet(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_operator *packet = (ext_operator *)(void *)self;
    const ext_host *host = packet_find_first_host(args, EXT_NARGS(nargsf) + (kwnames ? PyTuple_Size(kwnames) : 0));
    return host && host->has_dispatcher ? packet_call_by_host(packet, host, args, nargsf, kwnames)
                                        : packet_call_first_fitting(packet, args, nargsf, kwnames);
}
