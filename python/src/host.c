/* Which framework an object belongs to. Types repeat, so the last ones are cached by address; an entry holds a reference to its
 * type, so that the address cannot be reused. */
#include "extension.h"

const ext_host *ext_hosts[EXT_HOSTS];

enum { HOST_CACHE_SIZE = 32 };
static struct host_cache_entry {
    PyTypeObject *type; /* a reference */
    const ext_host *host;
    enum ext_kind kind;
} host_cache[HOST_CACHE_SIZE];

/* Returns the only cache entry that can hold this type. The entry may hold another type, or none. */
static struct host_cache_entry *host_find_cache_entry(PyTypeObject *type)
{
    return &host_cache[((uintptr_t)type >> 4 ^ (uintptr_t)type >> 10) % HOST_CACHE_SIZE];
}

/* Asks each host in turn for the role of a type. Returns the host to which it belongs, and its role in *kind. NULL: no host; with
 * an exception, a host that cannot be used. */
static const ext_host *host_find_uncached(PyTypeObject *type, enum ext_kind *kind)
{
    for (int i = 0; i < EXT_HOSTS; i++) {
        *kind = ext_hosts[i]->classify_type(type);
        if (*kind != EXT_KIND_NONE)
            return ext_hosts[i];
        if (PyErr_Occurred())
            break;
    }
    return NULL;
}

const ext_host *ext_find_host(PyObject *o, enum ext_kind *kind)
{
    PyTypeObject *type = Py_TYPE(o);
    struct host_cache_entry *k = host_find_cache_entry(type);
    if (k->type == type) {
        *kind = k->kind;
        return k->host;
    }
    Py_INCREF((PyObject *)type); /* host_find_uncached() may run Python code, which may free the type */
    const ext_host *host = host_find_uncached(type, kind);
    PyTypeObject *old = type;
    if (host) {
        old = k->type;
        *k = (struct host_cache_entry){ type, host, *kind };
    }
    Py_XDECREF((PyObject *)old);
    return host;
}

const ext_host *ext_find_importer(void)
{
    const ext_host *found = NULL;
    for (int i = 0; i < EXT_HOSTS && !found; i++)
        if (ext_hosts[i]->import_object)
            found = ext_hosts[i];
    return found;
}

int ext_hosts_setup(PyObject *module, const ext_host *const *hosts)
{
    for (int i = 0; i < EXT_HOSTS; i++) {
        const ext_host *h = ext_hosts[i] = hosts[i];
        PyObject *space = PyModule_New(h->name);
        const int failed = !space || (h->setup && h->setup(space)) || PyModule_AddObjectRef(module, h->name, space);
        Py_XDECREF(space);
        if (failed)
            return -1;
    }
    return 0;
}
