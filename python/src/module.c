/* dovetail._core: thin wrappers of the functions in dovetail.h. The Python files have the public interface. */
#include "extension.h"

#define CAPSULE_NAME "dv_library" /* the capsules' name */

static dv_library *library_from_capsule(PyObject *capsule) { return PyCapsule_GetPointer(capsule, CAPSULE_NAME); }

/* Returns None for DV_OK, else NULL with the exception for the status. */
static PyObject *module_none_or_raise(int status)
{
    if (status)
        return ext_raise_status(status);
    Py_RETURN_NONE;
}

/* Returns the UTF-8 of a str, borrowed from it. Otherwise sets a TypeError and returns NULL. what: begins the message, as "name:
 * expected a str". */
static const char *module_get_text(PyObject *o, const char *what)
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
} loaded_libraries[MAX_LIBRARIES];

/* Returns a new capsule for library number i of the table, and counts it as a reference. NULL with an exception. */
static PyObject *library_make_capsule(size_t i)
{
    PyObject *capsule = PyCapsule_New(loaded_libraries[i].lib, CAPSULE_NAME, NULL);
    if (capsule)
        loaded_libraries[i].refs++;
    return capsule;
}

/* Adds a loaded library to the table, and returns its first capsule. NULL with an exception: the library was freed. */
static PyObject *library_add_loaded(dv_library *lib)
{
    for (size_t i = 0; i < MAX_LIBRARIES; i++)
        if (!loaded_libraries[i].lib) {
            loaded_libraries[i].lib = lib;
            loaded_libraries[i].refs = 0;
            PyObject *capsule = library_make_capsule(i);
            if (capsule)
                return capsule;
            loaded_libraries[i].lib = NULL;
            break;
        }
    dv_library_free(lib);
    return PyErr_Occurred() ? NULL : ext_raise_status(dv_fail(DV_ELIMIT, "more than %d libraries are loaded", MAX_LIBRARIES));
}

/* Returns another capsule for the library that was loaded with the content of this file; None: no such library is loaded. NULL
 * with an exception. Function _core.share(path). */
static PyObject *library_share(PyObject *m, PyObject *path)
{
    (void)m;
    PyObject *bytes, *found = NULL;
    char content[33];
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const int status = dv_file_content_hash(PyBytes_AsString(bytes), content);
    Py_DECREF(bytes);
    if (status)
        return ext_raise_status(status);
    for (size_t i = 0; !found && i < MAX_LIBRARIES; i++)
        if (loaded_libraries[i].lib && dv_library_content_hash(loaded_libraries[i].lib) &&
            !strcmp(dv_library_content_hash(loaded_libraries[i].lib), content))
            found = library_make_capsule(i);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* Loads the binary at this path, and returns its capsule. NULL with an exception. Function _core.load(path). */
static PyObject *library_load(PyObject *m, PyObject *path)
{
    (void)m;
    PyObject *bytes;
    dv_library *lib;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const int status = dv_load(PyBytes_AsString(bytes), &lib);
    Py_DECREF(bytes);
    return status ? ext_raise_status(status) : library_add_loaded(lib);
}

/* Closes a capsule, and frees its library with the last capsule of this library. Fails for a capsule that was closed before.
 * Function _core.library_free(capsule). */
static PyObject *library_free(PyObject *m, PyObject *capsule)
{
    (void)m;
    dv_library *lib = library_from_capsule(capsule);
    if (!lib || PyCapsule_SetName(capsule, "closed")) /* never twice */
        return NULL;
    for (size_t i = 0; i < MAX_LIBRARIES; i++)
        if (loaded_libraries[i].lib == lib && !--loaded_libraries[i].refs) {
            loaded_libraries[i].lib = NULL;
            dv_library_free(lib);
        }
    Py_RETURN_NONE;
}

/* Returns the tuple (name, path or None, address) of a library. NULL with an exception. */
static PyObject *library_info(PyObject *m, PyObject *capsule)
{
    (void)m;
    dv_library *lib = library_from_capsule(capsule);
    PyObject *path = !lib ? NULL : dv_library_path(lib) ? PyUnicode_DecodeFSDefault(dv_library_path(lib)) : Py_NewRef(Py_None);
    return path ? Py_BuildValue("(sNN)", dv_library_name(lib), path, PyLong_FromVoidPtr(lib)) : NULL;
}

/* Returns a list of new Operator objects for all operators of a library. NULL with an exception. */
static PyObject *library_operators(PyObject *m, PyObject *capsule)
{
    (void)m;
    dv_library *lib = library_from_capsule(capsule);
    PyObject *list = lib ? PyList_New(0) : NULL;
    for (size_t i = 0; list && i < dv_library_noperators(lib); i++) {
        PyObject *f = ext_operator_new(dv_library_operator(lib, i));
        if (!f || PyList_Append(list, f))
            Py_CLEAR(list);
        Py_XDECREF(f);
    }
    return list;
}

/* Returns a new Operator object for the operator of this name. NULL with an exception. Function _core.find(name). */
static PyObject *operator_find(PyObject *m, PyObject *name)
{
    (void)m;
    const char *text = module_get_text(name, "find: expected the name of an operator, \"namespace::name\"");
    dv_operator *op;
    const int status = text ? dv_find(text, &op) : 0;
    if (!text || status)
        return text ? ext_raise_status(status) : NULL;
    PyObject *f = ext_operator_new(op);
    dv_operator_unref(op);
    return f;
}

/* Parses the text of a call site, and returns the tuple (operator, dict of arguments), with new tensors. NULL with an exception.
 * Function _core.site(text). */
static PyObject *module_parse_site(PyObject *m, PyObject *site_text)
{
    (void)m;
    const char *text = module_get_text(site_text, "site: expected a str such as \"my_ops::f(f32[2, 3], n=1)\"");
    dv_site *site;
    int status = text ? dv_site_parse(text, &site) : 0;
    if (!text || status)
        return text ? ext_raise_status(status) : NULL;
    PyObject *f = NULL, *args = NULL, *both = NULL;
    if ((status = dv_site_alloc(site)))
        ext_raise_status(status);
    else if ((f = ext_operator_new(dv_site_operator(site))) && (args = ext_site_arguments((ext_operator *)(void *)f, site)))
        both = PyTuple_Pack(2, f, args);
    Py_XDECREF(args);
    Py_XDECREF(f);
    dv_site_free(site);
    return both;
}

/* Appends the name of an operator to a Python list. Returns 0, or 1 with an exception. Callback of dv_for_each_operator(). */
static int operator_names_append(void *list, dv_operator *op)
{
    PyObject *name = PyUnicode_FromString(dv_operator_name(op));
    const int failed = !name || PyList_Append(list, name);
    Py_XDECREF(name);
    return failed;
}

/* Returns a list of the names of all loaded operators. NULL with an exception. */
static PyObject *operator_names(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    PyObject *list = PyList_New(0);
    if (list && dv_for_each_operator(operator_names_append, list))
        Py_CLEAR(list);
    return list;
}

/* Returns a new packet of overloads from (name, tuple of operators). NULL with an exception. Function _core.packet(). */
static PyObject *operator_make_packet(PyObject *m, PyObject *args)
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

/* Calls set() with a str, or with NULL for None. Returns None, not the old value. NULL with an exception. */
static PyObject *module_set_text(PyObject *o, const char *what, int (*set)(const char *))
{
    const char *text = Py_IsNone(o) ? NULL : module_get_text(o, what);
    return PyErr_Occurred() ? NULL : module_none_or_raise(set(text));
}
#define POLICY_EXPECTED "policy: expected a str such as \"all,-my_ops::rms_norm\", or None"
static PyObject *policy_set(PyObject *m, PyObject *policy_text)
{
    (void)m;
    return module_set_text(policy_text, POLICY_EXPECTED, dv_policy_set);
}
static PyObject *policy_set_thread(PyObject *m, PyObject *policy_text)
{
    (void)m;
    return module_set_text(policy_text, POLICY_EXPECTED, dv_policy_set_thread);
}
static PyObject *policy_load(PyObject *m, PyObject *path)
{
    (void)m;
    return module_set_text(path, "policy.load: expected the path of a file", dv_policy_load);
}
static PyObject *set_isa(PyObject *m, PyObject *isa_name)
{
    (void)m;
    return module_set_text(isa_name, "isa: expected the name of an instruction set, or None", dv_set_isa);
}
/* Selects a kernel by its number for calls on arrays, for tests. Returns None; NULL with an exception. Function _core.set_row(n).
 */
static PyObject *test_set_kernel(PyObject *m, PyObject *kernel_number)
{
    const long number = PyLong_AsLong(kernel_number);
    (void)m;
    if (number == -1 && PyErr_Occurred())
        return NULL;
    if (number < -2 || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "expected a kernel's number, 0, -1 or -2, found %ld", number);
        return NULL;
    }
    ext_set_row((int32_t)number);
    Py_RETURN_NONE;
}

/* Returns the instruction sets for which kernels are selected now, as a str. */
static PyObject *get_isa(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    return PyUnicode_FromString(dv_get_isa());
}

/* Returns the number that changes whenever a policy's decision may change. */
static PyObject *policy_generation(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    return PyLong_FromUnsignedLongLong(dv_policy_generation());
}

/* Returns whether the policy turns on an operator, or a class of layers by its name: True or False. NULL with an exception. */
static PyObject *policy_enabled(PyObject *m, PyObject *args)
{
    (void)m;
    PyObject *which;
    int fuses = 0;
    if (!PyArg_ParseTuple(args, "O|p:policy_enabled", &which, &fuses))
        return NULL;
    if (PyUnicode_Check(which)) {
        const char *name = PyUnicode_AsUTF8AndSize(which, NULL);
        return name ? PyBool_FromLong(dv_policy_is_class_enabled(name, fuses)) : NULL;
    }
    ext_operator *f = (ext_operator *)(void *)which;
    if (!Py_IS_TYPE(which, ext_operator_type) || !f->op) {
        PyErr_SetString(PyExc_TypeError, "expected one overload of an operator, or the name of a class");
        return NULL;
    }
    return PyBool_FromLong(dv_policy_is_enabled(f->op, fuses));
}

/* Puts name: (calls while on, calls while off) into a dict. Returns 0, or 1 with an exception. Callback of dv_policy_counts(). */
static int policy_append_count(void *dict, const char *name, uint64_t enabled, uint64_t disabled)
{
    PyObject *pair = Py_BuildValue("(KK)", (unsigned long long)enabled, (unsigned long long)disabled);
    const int failed = !pair || PyDict_SetItemString(dict, name, pair);
    Py_XDECREF(pair);
    return failed;
}

/* Returns a dict: for each operator the number of calls while it was on, and while it was off. NULL with an exception. */
static PyObject *policy_counts(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    PyObject *dict = PyDict_New();
    const int status = dict ? dv_policy_counts(policy_append_count, dict) : 0;
    if (status)
        Py_CLEAR(dict);
    return status && !PyErr_Occurred() ? ext_raise_status(status) : dict;
}

static PyObject *set_threads(PyObject *m, PyObject *count)
{
    (void)m;
    const long n = PyLong_AsLong(count);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    return module_none_or_raise(n < INT32_MIN || n > INT32_MAX ? dv_fail(DV_EINVAL, "%ld threads", n) : dv_set_threads((int)n));
}
static PyObject *get_threads(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    return PyLong_FromLong(dv_get_threads());
}
static PyObject *module_version(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    return PyUnicode_FromString(dv_version());
}

/* Returns a dict of all dtypes: the contract's name -> (the frameworks' name, DLPack's type code, bits). NULL with an exception.
 */
static PyObject *module_dtypes(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
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

/* Calls make() with a schema's text, and returns the new text that it makes as a str. NULL with an exception. */
static PyObject *schema_make_text(PyObject *schema_text, int (*make)(const char *, char **))
{
    const char *text = module_get_text(schema_text, "schema: expected a str");
    char *text_out;
    const int status = text ? make(text, &text_out) : 0;
    if (!text || status)
        return text ? ext_raise_status(status) : NULL;
    PyObject *s = PyUnicode_FromString(text_out);
    dv_free(text_out);
    return s;
}
static PyObject *schema_normalize(PyObject *m, PyObject *schema_text)
{
    (void)m;
    return schema_make_text(schema_text, dv_schema_normalize);
}
static PyObject *schema_json(PyObject *m, PyObject *schema_text)
{
    (void)m;
    return schema_make_text(schema_text, dv_schema_json);
}
/* Returns None if an operator with the schema `newer` may replace one with the schema `older`. NULL with an exception that says
 * why not. */
static PyObject *schema_check_compatible(PyObject *m, PyObject *newer_and_older)
{
    (void)m;
    const char *newer, *older;
    return PyArg_ParseTuple(newer_and_older, "ss", &newer, &older) ? module_none_or_raise(dv_schema_compatible(newer, older))
                                                                   : NULL;
}

static PyMethodDef module_methods[] = {
    { "load", library_load, METH_O, NULL },
    { "share", library_share, METH_O, NULL },
    { "library_free", library_free, METH_O, NULL },
    { "library_info", library_info, METH_O, NULL },
    { "library_operators", library_operators, METH_O, NULL },
    { "find", operator_find, METH_O, NULL },
    { "names", operator_names, METH_NOARGS, NULL },
    { "site", module_parse_site, METH_O, NULL },
    { "packet", operator_make_packet, METH_VARARGS, NULL },
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
    { "set_row", test_set_kernel, METH_O,
        "set_row(n, /)\n--\n\nFor tests of kernels: calls on arrays run the nth kernel, -1 the decomposition, -2 the same in "
        "f64, 0 the one that fits best." },
    { "get_isa", get_isa, METH_NOARGS, "get_isa()\n--\n\nThe instruction sets that kernels are chosen for." },
    { "dtypes", module_dtypes, METH_NOARGS, NULL },
    { "version", module_version, METH_NOARGS, NULL },
    { "schema_normalize", schema_normalize, METH_O, NULL },
    { "schema_json", schema_json, METH_O, NULL },
    { "schema_check_compatible", schema_check_compatible, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

#define HOST(name) extern const ext_host ext_host_##name;
#include "hosts.inc"
#undef HOST

/* Fills the module when it is imported: types, functions and hosts. Returns 0, or -1 with an exception. */
static int module_exec(PyObject *module)
{
    static const ext_host *const hosts[EXT_HOSTS] = {
#define HOST(name) &ext_host_##name,
#include "hosts.inc"
#undef HOST
    };
    ext_debug_setup();
    return ext_operator_setup(module) || ext_random_setup(module) || ext_hosts_setup(module, hosts) ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = { { Py_mod_exec, (void *)module_exec }, { 0, NULL } };
static struct PyModuleDef module_definition = { PyModuleDef_HEAD_INIT, "dovetail._core", NULL, 0, module_methods, module_slots,
    NULL, NULL, NULL };

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module_definition); }
