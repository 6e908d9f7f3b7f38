/* Counter-based random states for kernels that ask for one (dv_random). A dovetail.Generator has a seed and a count of used
 * numbers; a framework's own generator gives a new seed for each call. Kernels reserve numbers without the GIL, so the count is
 * atomic.
 */
#include "extension.h"

#include <stdatomic.h>
#include <stdio.h>

typedef struct state {
    uint64_t seed;
    _Atomic uint64_t used;
} state; /* what a dv_generator is in this host */
typedef struct generator {
    PyObject ob_base;
    state state;
} generator;

static PyTypeObject *generator_type;
static state default_state = { 0x853c49e6748fea9b, 0 };

static int seed_of(PyObject *o, uint64_t *out)
{
    PyObject *index = PyNumber_Index(o);
    if (!index)
        return -1;
    *out = PyLong_AsUnsignedLongLongMask(index);
    Py_DECREF(index);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static int generator_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "seed", NULL };
    PyObject *seed = NULL;
    state *s = &((generator *)(void *)self)->state;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", names, &seed))
        return -1;
    s->seed = default_state.seed;
    atomic_store(&s->used, 0);
    return seed ? seed_of(seed, &s->seed) : 0;
}

static PyObject *generator_repr(PyObject *self)
{
    state *s = &((generator *)(void *)self)->state;
    return PyUnicode_FromFormat(
        "<dovetail.Generator seed=%llu used=%llu>", (unsigned long long)s->seed, (unsigned long long)atomic_load(&s->used));
}

static void generator_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot generator_slots[] = {
    { Py_tp_doc,
        (void *)(uintptr_t)"Generator(seed)\n--\n\nA random state for operators that take a Generator: a seed, and a count of "
                           "the numbers used." },
    { Py_tp_init, (void *)generator_init },
    { Py_tp_repr, (void *)generator_repr },
    { Py_tp_dealloc, (void *)generator_dealloc },
    { 0, NULL },
};
static PyType_Spec generator_spec = { "dovetail.Generator", sizeof(generator), 0, Py_TPFLAGS_DEFAULT, generator_slots };

static PyObject *set_seed(PyObject *module, PyObject *o)
{
    uint64_t seed;
    (void)module;
    if (seed_of(o, &seed))
        return NULL;
    default_state.seed = seed;
    atomic_store(&default_state.used, 0);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    { "seed", set_seed, METH_O, "seed(number, /)\n--\n\nSet the random state of calls that are given no Generator." },
    { NULL, NULL, 0, NULL },
};

int ext_random_setup(PyObject *module)
{
    if (!generator_type && !(generator_type = (PyTypeObject *)PyType_FromSpec(&generator_spec)))
        return -1;
    return PyModule_AddFunctions(module, methods) || PyModule_AddObjectRef(module, "Generator", (PyObject *)generator_type) ? -1
                                                                                                                            : 0;
}

/* Makes a random state for this call, and seeds it with a number drawn from the host's generator. */
static enum ext_outcome seed_from_host(ext_call *c, const ext_slot *slot, PyObject *o, const dv_generator **out)
{
    state *s = ext_alloc(c, sizeof *s);
    if (!s)
        return EXT_FAILED;
    atomic_init(&s->used, 0);
    const int drawn = c->of->seed ? c->of->seed(o, &s->seed) : 0;
    *out = (const dv_generator *)(const void *)s;
    if (drawn)
        return drawn < 0 ? EXT_FAILED : EXT_OK;
    const char *theirs = c->of->generator_title;
    char expected[128];
    snprintf(expected, sizeof expected, "a dovetail.Generator%s%s", theirs ? " or " : "", theirs ? theirs : "");
    return ext_wrong(c, slot, -1, expected, o);
}

enum ext_outcome ext_generator(ext_call *c, const ext_slot *slot, PyObject *o, const dv_generator **out)
{
    if (!PyType_IsSubtype(Py_TYPE(o), generator_type))
        return seed_from_host(c, slot, o, out);
    *out = (const dv_generator *)(const void *)&((generator *)(void *)o)->state;
    return EXT_OK;
}

int ext_random(const dv_host *host, const dv_generator *g, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    (void)host;
    state *s = g ? (state *)(uintptr_t)(const void *)g : &default_state;
    *seed = s->seed;
    *offset = atomic_fetch_add(&s->used, count);
    return DV_OK;
}
