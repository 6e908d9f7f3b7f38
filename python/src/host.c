/* Which framework an object belongs to. Types repeat, so the last ones are cached by address; an entry holds a reference to its
 * type, so that the address cannot be reused. */
#include "extension.h"

#define HOST(name) extern const ext_host ext_host_##name;
#include "hosts.inc"
#undef HOST

const ext_host *const ext_hosts[EXT_HOSTS] = {
#define HOST(name) &ext_host_##name,
#include "hosts.inc"
#undef HOST
};

enum { CACHE = 32 };
static struct known {
    PyTypeObject *type; /* a reference */
    const ext_host *host;
    enum ext_kind kind;
} cache[CACHE];

static struct known *place_of(PyTypeObject *type) { return &cache[((uintptr_t)type >> 4 ^ (uintptr_t)type >> 10) % CACHE]; }

static const ext_host *ask_all(PyTypeObject *type, enum ext_kind *kind)
{
    for (int i = 0; i < EXT_HOSTS; i++) {
        *kind = ext_hosts[i]->kind(type);
        if (*kind != EXT_NOTHING)
            return ext_hosts[i];
        if (PyErr_Occurred())
            break;
    }
    return NULL;
}

const ext_host *ext_host_of(PyObject *o, enum ext_kind *kind)
{
    PyTypeObject *type = Py_TYPE(o);
    struct known *k = place_of(type);
    if (k->type == type) {
        *kind = k->kind;
        return k->host;
    }
    Py_INCREF((PyObject *)type); /* ask_all() may run Python code, which may free the type */
    const ext_host *host = ask_all(type, kind);
    PyTypeObject *old = type;
    if (host) {
        old = k->type;
        *k = (struct known){ type, host, *kind };
    }
    Py_XDECREF((PyObject *)old);
    return host;
}

const ext_host *ext_adopter(void)
{
    const ext_host *found = NULL;
    for (int i = 0; i < EXT_HOSTS && !found; i++)
        if (ext_hosts[i]->adopt)
            found = ext_hosts[i];
    return found;
}

const ext_host *ext_host_of_module(PyObject *o)
{
    PyObject *module = ext_optional_attribute((PyObject *)Py_TYPE(o), "__module__");
    const ext_host *found = NULL;
    for (int i = 0; i < EXT_HOSTS && module && PyUnicode_Check(module) && !found; i++)
        if (!PyUnicode_CompareWithASCIIString(module, ext_hosts[i]->name))
            found = ext_hosts[i];
    Py_XDECREF(module);
    return found;
}

int ext_hosts_setup(PyObject *module)
{
    for (int i = 0; i < EXT_HOSTS; i++) {
        const ext_host *h = ext_hosts[i];
        PyObject *space = PyModule_New(h->name);
        const int failed = !space || (h->setup && h->setup(space)) || PyModule_AddObjectRef(module, h->name, space);
        Py_XDECREF(space);
        if (failed)
            return -1;
    }
    return 0;
}
