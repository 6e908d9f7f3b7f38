/* dovetail._core: thin wrappers of the functions in dovetail.h. The Python files have the public interface. */
#include "extension.h"

#define LIBRARY "dv_library" /* the capsules' name */

static dv_library *library_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, LIBRARY); }

static PyObject *done(int status)
{
    if (status)
        return ext_raise(status);
    Py_RETURN_NONE;
}

/* Of a str. what: the argument and what is expected, "name: expected a str", for the message. */
static const char *text_of(PyObject *o, const char *what)
{
    if (PyUnicode_Check(o))
        return PyUnicode_AsUTF8AndSize(o, NULL);
    PyErr_Format(PyExc_TypeError, "%s, found %R", what, o);
    return NULL;
}

/* ---- Libraries ----------------------------------------------------------------------------------------------------------- */

/* Libraries belong to the process, Python modules to an interpreter: a module that is imported again, or in a second interpreter,
 * shares the loaded libraries. The table is used with the GIL held. */
enum { MAX_LIBRARIES = 1024 };
static struct {
    dv_library *lib;
    unsigned refs;
} loaded[MAX_LIBRARIES];

static PyObject *capsule_of(size_t i)
{
    PyObject *capsule = PyCapsule_New(loaded[i].lib, LIBRARY, NULL);
    if (capsule)
        loaded[i].refs++;
    return capsule;
}

static PyObject *take_library(dv_library *lib)
{
    for (size_t i = 0; i < MAX_LIBRARIES; i++)
        if (!loaded[i].lib) {
            loaded[i].lib = lib;
            loaded[i].refs = 0;
            PyObject *capsule = capsule_of(i);
            if (capsule)
                return capsule;
            loaded[i].lib = NULL;
            break;
        }
    dv_library_free(lib);
    return PyErr_Occurred() ? NULL : ext_raise(dv_fail(DV_ELIMIT, "more than %d libraries are loaded", MAX_LIBRARIES));
}

/* share(path): another handle to the library that was loaded with this file's content, or None. */
static PyObject *share(PyObject *m, PyObject *path)
{
    (void)m;
    PyObject *bytes, *found = NULL;
    char content[33];
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const int status = dv_file_content(PyBytes_AsString(bytes), content);
    Py_DECREF(bytes);
    if (status)
        return ext_raise(status);
    for (size_t i = 0; !found && i < MAX_LIBRARIES; i++)
        if (loaded[i].lib && dv_library_content(loaded[i].lib) && !strcmp(dv_library_content(loaded[i].lib), content))
            found = capsule_of(i);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static PyObject *load(PyObject *m, PyObject *path)
{
    (void)m;
    PyObject *bytes;
    dv_library *lib;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const int status = dv_load(PyBytes_AsString(bytes), &lib);
    Py_DECREF(bytes);
    return status ? ext_raise(status) : take_library(lib);
}

static PyObject *library_free(PyObject *m, PyObject *capsule)
{
    (void)m;
    dv_library *lib = library_of(capsule);
    if (!lib || PyCapsule_SetName(capsule, "closed")) /* never twice */
        return NULL;
    for (size_t i = 0; i < MAX_LIBRARIES; i++)
        if (loaded[i].lib == lib && !--loaded[i].refs) {
            loaded[i].lib = NULL;
            dv_library_free(lib);
        }
    Py_RETURN_NONE;
}

static PyObject *library_info(PyObject *m, PyObject *capsule)
{
    (void)m;
    dv_library *lib = library_of(capsule);
    PyObject *path = !lib ? NULL : dv_library_path(lib) ? PyUnicode_DecodeFSDefault(dv_library_path(lib)) : Py_NewRef(Py_None);
    return path ? Py_BuildValue("(sNN)", dv_library_name(lib), path, PyLong_FromVoidPtr(lib)) : NULL;
}

static PyObject *library_operators(PyObject *m, PyObject *capsule)
{
    (void)m;
    dv_library *lib = library_of(capsule);
    PyObject *list = lib ? PyList_New(0) : NULL;
    for (size_t i = 0; list && i < dv_library_size(lib); i++) {
        PyObject *f = ext_operator_new(dv_library_operator(lib, i));
        if (!f || PyList_Append(list, f))
            Py_CLEAR(list);
        Py_XDECREF(f);
    }
    return list;
}

static PyObject *find(PyObject *m, PyObject *name)
{
    (void)m;
    const char *text = text_of(name, "find: expected the name of an operator, \"namespace::name\"");
    dv_operator *op;
    const int status = text ? dv_find(text, &op) : 0;
    if (!text || status)
        return text ? ext_raise(status) : NULL;
    PyObject *f = ext_operator_new(op);
    dv_operator_unref(op);
    return f;
}

static PyObject *site(PyObject *m, PyObject *o)
{
    (void)m;
    const char *text = text_of(o, "site: expected a str such as \"my_ops::f(f32[2, 3], n=1)\"");
    return text ? ext_site(text) : NULL;
}

static int add_name(void *list, dv_operator *op)
{
    PyObject *name = PyUnicode_FromString(dv_operator_name(op));
    const int failed = !name || PyList_Append(list, name);
    Py_XDECREF(name);
    return failed;
}

static PyObject *names(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    PyObject *list = PyList_New(0);
    if (list && dv_each_operator(add_name, list))
        Py_CLEAR(list);
    return list;
}

static PyObject *packet(PyObject *m, PyObject *args)
{
    (void)m;
    PyObject *name, *overloads;
    if (!PyArg_ParseTuple(args, "UO!", &name, &PyTuple_Type, &overloads))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(overloads); i++)
        if (!Py_IS_TYPE(PyTuple_GetItem(overloads, i), ext_operator_type) ||
            !((ext_operator *)(void *)PyTuple_GetItem(overloads, i))->op) {
            PyErr_SetString(PyExc_TypeError, "a packet is made of overloads");
            return NULL;
        }
    if (!PyTuple_Size(overloads)) {
        PyErr_SetString(PyExc_ValueError, "a packet has at least one overload");
        return NULL;
    }
    return ext_packet_new(name, overloads);
}

/* ---- Settings ------------------------------------------------------------------------------------------------------------ */

/* A str, or None for NULL. */
static PyObject *set_text(PyObject *o, const char *what, int (*set)(const char *))
{
    const char *text = Py_IsNone(o) ? NULL : text_of(o, what);
    return PyErr_Occurred() ? NULL : done(set(text));
}
#define POLICY "policy: expected a str such as \"all,-my_ops::rms_norm\", or None"
static PyObject *policy_set(PyObject *m, PyObject *o)
{
    (void)m;
    return set_text(o, POLICY, dv_policy_set);
}
static PyObject *policy_set_thread(PyObject *m, PyObject *o)
{
    (void)m;
    return set_text(o, POLICY, dv_policy_set_thread);
}
static PyObject *policy_load(PyObject *m, PyObject *o)
{
    (void)m;
    return set_text(o, "policy.load: expected the path of a file", dv_policy_load);
}
static PyObject *set_isa(PyObject *m, PyObject *o)
{
    (void)m;
    return set_text(o, "isa: expected the name of an instruction set, or None", dv_set_isa);
}
/* Only tests of kernels select a row: a plain variable, read by every call. */
static dv_test_hooks hooks;
const dv_test_hooks *ext_hooks(void) { return hooks.row ? &hooks : NULL; }

static PyObject *set_row(PyObject *m, PyObject *o)
{
    const long row = PyLong_AsLong(o);
    (void)m;
    if (row == -1 && PyErr_Occurred())
        return NULL;
    if (row < -2 || row > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "expected a row's number, 0, -1 or -2, found %ld", row);
        return NULL;
    }
    hooks.row = (int32_t)row;
    Py_RETURN_NONE;
}

static PyObject *get_isa(PyObject *m, PyObject *o)
{
    (void)m, (void)o;
    return PyUnicode_FromString(dv_get_isa());
}

static PyObject *policy_generation(PyObject *m, PyObject *o)
{
    (void)m, (void)o;
    return PyLong_FromUnsignedLongLong(dv_policy_generation());
}

static PyObject *policy_enabled(PyObject *m, PyObject *o)
{
    (void)m;
    PyObject *which;
    int fuses = 0;
    if (!PyArg_ParseTuple(o, "O|p:policy_enabled", &which, &fuses))
        return NULL;
    if (PyUnicode_Check(which)) {
        const char *name = PyUnicode_AsUTF8AndSize(which, NULL);
        return name ? PyBool_FromLong(dv_policy_enabled_class(name, fuses)) : NULL;
    }
    ext_operator *f = (ext_operator *)(void *)which;
    if (!Py_IS_TYPE(which, ext_operator_type) || !f->op) {
        PyErr_SetString(PyExc_TypeError, "expected one overload of an operator, or the name of a class");
        return NULL;
    }
    return PyBool_FromLong(dv_policy_enabled(f->op, fuses));
}

static int add_count(void *dict, const char *name, uint64_t enabled, uint64_t disabled)
{
    PyObject *pair = Py_BuildValue("(KK)", (unsigned long long)enabled, (unsigned long long)disabled);
    const int failed = !pair || PyDict_SetItemString(dict, name, pair);
    Py_XDECREF(pair);
    return failed;
}

static PyObject *policy_counts(PyObject *m, PyObject *o)
{
    (void)m, (void)o;
    PyObject *dict = PyDict_New();
    const int status = dict ? dv_policy_counts(add_count, dict) : 0;
    if (status)
        Py_CLEAR(dict);
    return status && !PyErr_Occurred() ? ext_raise(status) : dict;
}

static PyObject *set_threads(PyObject *m, PyObject *o)
{
    (void)m;
    const long n = PyLong_AsLong(o);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    return done(n < INT32_MIN || n > INT32_MAX ? dv_fail(DV_EINVAL, "%ld threads", n) : dv_set_threads((int)n));
}
static PyObject *get_threads(PyObject *m, PyObject *o)
{
    (void)m, (void)o;
    return PyLong_FromLong(dv_get_threads());
}
static PyObject *version(PyObject *m, PyObject *o)
{
    (void)m, (void)o;
    return PyUnicode_FromString(dv_version());
}

/* Element types: what the contract calls one -> (what frameworks call it, DLPack's code, bits). */
static PyObject *dtypes(PyObject *m, PyObject *o)
{
    (void)m, (void)o;
    const dv_dtype_row *row;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && (row = dv_dtype_at(i)); i++) {
        PyObject *v = Py_BuildValue("(sii)", dv_dtype_long_name(row->dtype), row->dtype.code, row->dtype.bits);
        if (!v || PyDict_SetItemString(dict, row->name, v))
            Py_CLEAR(dict);
        Py_XDECREF(v);
    }
    return dict;
}

/* ---- Schemas ------------------------------------------------------------------------------------------------------------- */

static PyObject *of_schema(PyObject *o, int (*make)(const char *, char **))
{
    const char *text = text_of(o, "schema: expected a str");
    char *made;
    const int status = text ? make(text, &made) : 0;
    if (!text || status)
        return text ? ext_raise(status) : NULL;
    PyObject *s = PyUnicode_FromString(made);
    dv_free(made);
    return s;
}
static PyObject *schema_normalize(PyObject *m, PyObject *o)
{
    (void)m;
    return of_schema(o, dv_schema_normalize);
}
static PyObject *schema_json(PyObject *m, PyObject *o)
{
    (void)m;
    return of_schema(o, dv_schema_json);
}
static PyObject *schema_compatible(PyObject *m, PyObject *args)
{
    (void)m;
    const char *newer, *older;
    return PyArg_ParseTuple(args, "ss", &newer, &older) ? done(dv_schema_compatible(newer, older)) : NULL;
}

static PyMethodDef methods[] = {
    { "load", load, METH_O, NULL },
    { "share", share, METH_O, NULL },
    { "library_free", library_free, METH_O, NULL },
    { "library_info", library_info, METH_O, NULL },
    { "library_operators", library_operators, METH_O, NULL },
    { "find", find, METH_O, NULL },
    { "names", names, METH_NOARGS, NULL },
    { "site", site, METH_O, NULL },
    { "packet", packet, METH_VARARGS, NULL },
    { "policy_set", policy_set, METH_O, NULL },
    { "policy_set_thread", policy_set_thread, METH_O, NULL },
    { "policy_load", policy_load, METH_O, NULL },
    { "policy_generation", policy_generation, METH_NOARGS, NULL },
    { "policy_enabled", policy_enabled, METH_VARARGS, NULL },
    { "policy_counts", policy_counts, METH_NOARGS, NULL },
    { "set_threads", set_threads, METH_O,
        "set_threads(n, /)\n--\n\nThreads that kernels may use: at least 1; 0: as many as the process may use." },
    { "get_threads", get_threads, METH_NOARGS, "get_threads()\n--\n\nHow many threads kernels may use." },
    { "set_isa", set_isa, METH_O,
        "set_isa(name, /)\n--\n\nPretend that the processor has no more than \"base\", \"avx2\", \"avx512\", \"avx512vnni+"
        "avx512bf16\", ... and what these include; None: what it has." },
    { "set_row", set_row, METH_O,
        "set_row(n, /)\n--\n\nFor tests of kernels: calls on arrays run the nth kernel row, -1 the native form, -2 the same in "
        "f64, 0 the one that fits best." },
    { "get_isa", get_isa, METH_NOARGS, "get_isa()\n--\n\nThe instruction sets that rows are chosen for." },
    { "dtypes", dtypes, METH_NOARGS, NULL },
    { "version", version, METH_NOARGS, NULL },
    { "schema_normalize", schema_normalize, METH_O, NULL },
    { "schema_json", schema_json, METH_O, NULL },
    { "schema_compatible", schema_compatible, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static int exec(PyObject *module)
{
    ext_debug_setup();
    return ext_operator_setup(module) || ext_random_setup(module) || ext_hosts_setup(module) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, (void *)exec }, { 0, NULL } };
static struct PyModuleDef definition = { PyModuleDef_HEAD_INIT, "dovetail._core", NULL, 0, methods, slots, NULL, NULL, NULL };

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
