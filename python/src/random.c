/* Counter-based random states for kernels that ask for one (dv_random). A dovetail.Generator has a seed and a count of used
 * numbers; a framework's own generator gives a new seed for each call. Kernels reserve numbers without the GIL, so the count is
 * atomic.
 */
#include "extension.h"

#include <stdatomic.h>
#include <stdio.h>

typedef struct random_state {
    uint64_t seed;
    _Atomic uint64_t used;
} random_state; /* the extension's definition of a dv_generator */
typedef struct generator_object {
    PyObject ob_base;
    random_state state;
} generator_object;

static PyTypeObject *generator_type;
static random_state default_random_state = { 0x853c49e6748fea9b, 0 };

/* Sets *out to the lowest 64 bits of a Python integer. Returns 0, or -1 with an exception. */
static int generator_parse_seed(PyObject *integer, uint64_t *out)
{
    PyObject *index = PyNumber_Index(integer);
    if (!index)
        return -1;
    *out = PyLong_AsUnsignedLongLongMask(index);
    Py_DECREF(index);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

/* Initialises a Generator from its optional seed; without one it has the seed of the default random state. Returns 0, or -1 with
 * an exception. */
static int generator_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "seed", NULL };
    PyObject *seed = NULL;
    random_state *s = &((generator_object *)(void *)self)->state;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", names, &seed))
        return -1;
    s->seed = default_random_state.seed;
    atomic_store(&s->used, 0);
    return seed ? generator_parse_seed(seed, &s->seed) : 0;
}

static PyObject *generator_repr(PyObject *self)
{
    random_state *s = &((generator_object *)(void *)self)->state;
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
static PyType_Spec generator_spec = { "dovetail.Generator", sizeof(generator_object), 0, Py_TPFLAGS_DEFAULT, generator_slots };

/* Sets the default random state to this seed, with no numbers used. Returns None; NULL with an exception. Function
 * _core.seed(number). */
static PyObject *module_seed(PyObject *module, PyObject *seed_number)
{
    uint64_t seed;
    (void)module;
    if (generator_parse_seed(seed_number, &seed))
        return NULL;
    default_random_state.seed = seed;
    atomic_store(&default_random_state.used, 0);
    Py_RETURN_NONE;
}

static PyMethodDef random_methods[] = {
    { "seed", module_seed, METH_O, "seed(number, /)\n--\n\nSet the random state of calls that are given no Generator." },
    { NULL, NULL, 0, NULL },
};

int ext_random_setup(PyObject *module)
{
    if (!generator_type && !(generator_type = (PyTypeObject *)PyType_FromSpec(&generator_spec)))
        return -1;
    return PyModule_AddFunctions(module, random_methods) || PyModule_AddObjectRef(module, "Generator", (PyObject *)generator_type)
        ? -1
        : 0;
}

/* Makes a random state for this call, with a seed that is drawn from a generator of the call's host. Fails with a TypeError if
 * the object is no such generator. */
static enum ext_outcome generator_make_from_host(ext_call *c, const ext_slot *slot, PyObject *generator, const dv_generator **out)
{
    random_state *s = ext_call_alloc(c, sizeof *s);
    if (!s)
        return EXT_FAILED;
    atomic_init(&s->used, 0);
    const int drawn = c->host_table->draw_seed ? c->host_table->draw_seed(generator, &s->seed) : 0;
    *out = (const dv_generator *)(const void *)s;
    if (drawn)
        return drawn < 0 ? EXT_FAILED : EXT_OK;
    const char *theirs = c->host_table->generator_noun;
    char expected[128];
    snprintf(expected, sizeof expected, "a dovetail.Generator%s%s", theirs ? " or " : "", theirs ? theirs : "");
    return ext_fail_argument(c, slot, -1, expected, generator);
}

enum ext_outcome ext_convert_generator(ext_call *c, const ext_slot *slot, PyObject *o, const dv_generator **out)
{
    if (!PyType_IsSubtype(Py_TYPE(o), generator_type))
        return generator_make_from_host(c, slot, o, out);
    *out = (const dv_generator *)(const void *)&((generator_object *)(void *)o)->state;
    return EXT_OK;
}

int ext_draw_random(const dv_host *host, const dv_generator *g, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    (void)host;
    random_state *s = g ? (random_state *)(uintptr_t)(const void *)g : &default_random_state;
    *seed = s->seed;
    *offset = atomic_fetch_add(&s->used, count);
    return DV_OK;
}
