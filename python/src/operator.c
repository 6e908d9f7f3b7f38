/* dovetail.Operator: one overload, or a packet of several. Calls use vectorcall. Descriptions are made on demand, mostly by
 * dovetail._describe. */
#include "extension.h"

#include <dlfcn.h>
#include <stdio.h>
#include <structmember.h>

PyTypeObject *ext_operator_type;

static ext_operator *op_of(PyObject *self) { return (ext_operator *)(void *)self; }

/* ---- Making -------------------------------------------------------------------------------------------------------------- */

static void print_type(ext_slot *s)
{
    const dv_field_row *row = dv_field_at(s->type);
    const bool list = row->form == DV_FORM_LIST;
    char brackets[24] = "";
    if (list && s->fixed_size > 0)
        snprintf(brackets, sizeof brackets, "[%lld]", (long long)s->fixed_size);
    else if (list)
        strcpy(brackets, "[]");
    snprintf(s->type_text, sizeof s->type_text, "%s%s%s%s", *row->word ? row->word : "of another kind",
        s->flags & DV_SLOT_ELEMENT_OPTIONAL ? "?" : "", brackets, s->flags & DV_SLOT_OPTIONAL ? "?" : "");
}

static int fill_slot(ext_slot *s, dv_operator *op, size_t i)
{
    dv_slot_info info;
    const int status = dv_operator_slot(op, i, &info);
    if (status)
        return ext_raise(status), -1;
    s->text = info.name;
    s->type = info.type;
    s->flags = info.flags;
    s->alias = info.alias;
    s->fixed_size = info.fixed_size;
    s->has_default = info.default_text != NULL;
    print_type(s);
    if (!*info.name)
        return 0;
    if (!(s->name = PyUnicode_FromString(info.name)))
        return -1;
    PyUnicode_InternInPlace(&s->name);
    return 0;
}

static ext_operator *alloc(void)
{
    allocfunc make = (allocfunc)PyType_GetSlot(ext_operator_type, Py_tp_alloc);
    return (ext_operator *)(void *)make(ext_operator_type, 0); /* zeroed */
}

PyObject *ext_operator_new(dv_operator *op)
{
    ext_operator *f = alloc();
    if (!f)
        return NULL;
    f->vectorcall = ext_call_operator;
    f->op = dv_operator_ref(op);
    f->name = dv_operator_name(op);
    f->nargs = dv_operator_nargs(op);
    f->nresults = dv_operator_nresults(op);
    f->last_ticks = UINT64_MAX; /* not known to be short */
    f->slots = PyMem_Calloc(f->nargs + f->nresults + 1, sizeof *f->slots);
    if (!f->slots)
        PyErr_NoMemory();
    if (!f->slots || !(f->full_name = PyUnicode_FromString(f->name)))
        goto fail;
    for (size_t i = 0; i < f->nargs + f->nresults; i++) {
        if (fill_slot(&f->slots[i], op, i))
            goto fail;
        if (i < f->nargs && !(f->slots[i].flags & DV_SLOT_KWARG_ONLY))
            f->npositional = i + 1;
        if (i == f->first_tensor && f->slots[i].type != DV_FIELD_TENSOR && f->slots[i].type != DV_FIELD_TENSORS)
            f->first_tensor++;
        f->mutates |= i < f->nargs && f->slots[i].flags & DV_SLOT_WRITES;
    }
    for (int h = 0; h < EXT_HOSTS; h++)
        if (ext_hosts[h]->attach && !(f->of_host[h] = ext_hosts[h]->attach(f)))
            goto fail;
    return (PyObject *)f;
fail:
    Py_DECREF((PyObject *)f);
    return NULL;
}

PyObject *ext_packet_new(PyObject *name, PyObject *overloads)
{
    ext_operator *f = alloc();
    if (!f)
        return NULL;
    f->vectorcall = ext_call_packet;
    f->full_name = Py_NewRef(name);
    f->overloads = Py_NewRef(overloads);
    if (!(f->name = PyUnicode_AsUTF8AndSize(name, NULL))) {
        Py_DECREF((PyObject *)f);
        return NULL;
    }
    return (PyObject *)f;
}

static void dealloc(PyObject *self)
{
    ext_operator *f = op_of(self);
    PyTypeObject *type = Py_TYPE(self);
    if (f->weakrefs)
        PyObject_ClearWeakRefs(self);
    for (size_t i = 0; f->slots && i < f->nargs + f->nresults; i++)
        Py_XDECREF(f->slots[i].name);
    PyMem_Free(f->slots);
    for (int h = 0; h < EXT_HOSTS; h++)
        if (f->of_host[h])
            ext_hosts[h]->detach(f->of_host[h]);
    ext_packet_forget(f);
    dv_operator_unref(f->op);
    Py_XDECREF(f->full_name);
    Py_XDECREF(f->overloads);
    Py_XDECREF(f->cache);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- Calls that do not come by vectorcall -------------------------------------------------------------------------------- */

static PyObject *call_with_tuple(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const Py_ssize_t nargs = EXT_NARGS(nargsf), nkw = kwnames ? PyTuple_Size(kwnames) : 0;
    PyObject *tuple = PyTuple_New(nargs), *dict = nkw ? PyDict_New() : NULL, *result = NULL;
    bool ok = tuple && (dict || !nkw);
    for (Py_ssize_t i = 0; ok && i < nargs; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; ok && i < nkw; i++)
        ok = !PyDict_SetItem(dict, PyTuple_GetItem(kwnames, i), args[nargs + i]);
    if (ok)
        result = PyObject_Call(callable, tuple, dict);
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return result;
}

PyObject *ext_call_python(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static PyObject *(*call)(PyObject *, PyObject *const *, size_t, PyObject *);
    if (!call) {
        void *found = dlsym(RTLD_DEFAULT, "PyObject_Vectorcall");
        memcpy(&call, &found, sizeof call);
        if (!call)
            call = call_with_tuple;
    }
    return call(callable, args, nargsf, kwnames);
}

PyObject *ext_vectorcall_of(ext_vectorcall call, PyObject *self, PyObject *args, PyObject *kwargs)
{
    const Py_ssize_t nargs = PyTuple_Size(args), nkw = kwargs ? PyDict_Size(kwargs) : 0;
    PyObject **all = PyMem_Malloc((size_t)(nargs + nkw + 1) * sizeof *all), *names = PyTuple_New(nkw), *key, *value,
             *result = NULL;
    if (!all)
        PyErr_NoMemory();
    if (all && names) {
        Py_ssize_t at = 0, n = 0;
        for (Py_ssize_t i = 0; i < nargs; i++)
            all[i] = PyTuple_GetItem(args, i);
        while (nkw && PyDict_Next(kwargs, &at, &key, &value)) {
            PyTuple_SetItem(names, n, Py_NewRef(key));
            all[nargs + n++] = value;
        }
        result = call(self, all, (size_t)nargs, nkw ? names : NULL);
    }
    PyMem_Free(all);
    Py_XDECREF(names);
    return result;
}

static PyObject *slow_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ext_vectorcall_of(op_of(self)->vectorcall, self, args, kwargs);
}

/* As a class attribute, an operator is not bound to instances; and help() treats it as a function. */
static PyObject *get(PyObject *self, PyObject *instance, PyObject *owner)
{
    (void)instance, (void)owner;
    return Py_NewRef(self);
}

/* ---- Attributes ---------------------------------------------------------------------------------------------------------- */

/* dovetail._describe.<name>(self), kept. */
static PyObject *described(PyObject *self, void *name)
{
    ext_operator *f = op_of(self);
    PyObject *kept = f->cache ? PyDict_GetItemString(f->cache, name) : NULL;
    if (kept)
        return Py_NewRef(kept);
    PyObject *module = PyImport_ImportModule("dovetail._describe");
    PyObject *made = module ? PyObject_CallMethod(module, name, "O", self) : NULL;
    Py_XDECREF(module);
    if (made && ((!f->cache && !(f->cache = PyDict_New())) || PyDict_SetItemString(f->cache, name, made)))
        Py_CLEAR(made);
    return made;
}

static PyObject *get_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(op_of(self)->full_name);
}

static PyObject *get_schema(PyObject *self, void *unused)
{
    (void)unused;
    ext_operator *f = op_of(self);
    return f->op ? PyUnicode_FromString(dv_operator_schema(f->op)) : described(self, (void *)(uintptr_t)"schemas");
}

static PyObject *get_doc(PyObject *self, void *unused)
{
    (void)unused;
    ext_operator *f = op_of(self);
    return f->op ? PyUnicode_FromString(dv_operator_doc(f->op)) : PyObject_GetAttrString(PyTuple_GetItem(f->overloads, 0), "doc");
}

static PyObject *get_overloads(PyObject *self, void *unused)
{
    (void)unused;
    ext_operator *f = op_of(self);
    return f->op ? PyTuple_Pack(1, self) : Py_NewRef(f->overloads);
}

/* Are there kernel rows for this kind of device ("cpu", "cuda", "npu")? */
static PyObject *has_rows(PyObject *self, PyObject *name)
{
    dv_device device;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    const int status = text ? dv_device_parse(text, &device) : 0;
    if (!text || status)
        return text ? ext_raise(status) : NULL;
    return PyBool_FromLong(op_of(self)->op && dv_operator_has_rows(op_of(self)->op, device.type));
}

static PyObject *get_pointer(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(op_of(self)->op);
}

/* The policy's current decision, for guards of compiled programs. fuses: not NULL where the compiler fuses native forms. */
static PyObject *get_enabled(PyObject *self, void *fuses)
{
    return PyBool_FromLong(!op_of(self)->op || dv_policy_enabled(op_of(self)->op, fuses));
}

static PyGetSetDef getset[] = {
    { "name", get_name, NULL, "\"namespace::name.overload\"", NULL },
    { "schema", get_schema, NULL, "the schema, normalised", NULL },
    { "doc", get_doc, NULL, "what the author wrote about it", NULL },
    { "overloads", get_overloads, NULL, "a tuple of the overloads, in the order in which they are tried", NULL },
    { "_pointer", get_pointer, NULL, NULL, NULL },
    { "_enabled", get_enabled, NULL, NULL, NULL },
    { "_enabled_where_fused", get_enabled, NULL, NULL, "" },
    { "__name__", described, NULL, NULL, (void *)(uintptr_t)"short_name" },
    { "__qualname__", described, NULL, NULL, (void *)(uintptr_t)"short_name" },
    { "__module__", described, NULL, NULL, (void *)(uintptr_t)"module_name" },
    { "__doc__", described, NULL, NULL, (void *)(uintptr_t)"help_text" },
    { "__signature__", described, NULL, NULL, (void *)(uintptr_t)"signature" },
    { "__text_signature__", described, NULL, NULL, (void *)(uintptr_t)"text_signature" },
    { NULL, NULL, NULL, NULL, NULL },
};

/* op.overload, unless another attribute has the name. */
static PyObject *getattro(PyObject *self, PyObject *name)
{
    ext_operator *f = op_of(self);
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    const char *wanted = PyUnicode_AsUTF8AndSize(name, NULL);
    for (Py_ssize_t i = 0, n = f->op ? 1 : PyTuple_Size(f->overloads); wanted && !found && i < n; i++) {
        PyObject *one = f->op ? self : PyTuple_GetItem(f->overloads, i);
        const char *dot = strchr(op_of(one)->name, '.');
        if (!strcmp(dot ? dot + 1 : "default", wanted))
            found = Py_NewRef(one);
    }
    if (!found) {
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return found;
}

static PyObject *repr(PyObject *self)
{
    ext_operator *f = op_of(self);
    if (!f->op)
        return PyUnicode_FromFormat("<operator %s with %zd overloads>", f->name, PyTuple_Size(f->overloads));
    return PyUnicode_FromFormat("<operator %s>", dv_operator_schema(f->op));
}

/* ---- Methods ------------------------------------------------------------------------------------------------------------- */

static PyObject *text_of(PyObject *self, int (*make)(const dv_operator *, char **))
{
    ext_operator *f = op_of(self);
    char *text;
    if (!f->op) {
        PyErr_Format(PyExc_TypeError, "%s has several overloads: ask one of them, such as .overloads[0]", f->name);
        return NULL;
    }
    const int status = make(f->op, &text);
    if (status)
        return ext_raise(status);
    PyObject *s = PyUnicode_FromString(text);
    dv_free(text);
    return s;
}

static PyObject *json(PyObject *self, PyObject *unused)
{
    (void)unused;
    return text_of(self, dv_operator_json);
}
static PyObject *functional(PyObject *self, PyObject *unused)
{
    (void)unused;
    ext_operator *f = op_of(self);
    dv_operator *form;
    if (!f->op) {
        PyErr_Format(PyExc_TypeError, "%s has several overloads: ask one of them, such as .overloads[0]", f->name);
        return NULL;
    }
    const int status = dv_functional(f->op, &form);
    if (status)
        return ext_raise(status);
    PyObject *made = ext_operator_new(form);
    dv_operator_unref(form);
    return made;
}
static PyObject *describe(PyObject *self, PyObject *unused)
{
    (void)unused;
    return text_of(self, dv_operator_describe);
}
static PyObject *dump_table(PyObject *self, PyObject *unused)
{
    (void)unused;
    return text_of(self, dv_operator_dump_table);
}

static void add_row(void *list, const dv_row_report *row)
{
    PyObject *tuple = Py_BuildValue("(zzzzzzOz)", row->name, row->provider, row->device, row->dtypes, row->isa, row->when,
        row->taken ? Py_True : Py_False, row->reason);
    if (tuple && !PyErr_Occurred())
        PyList_Append(list, tuple);
    Py_XDECREF(tuple);
}

static PyObject *explain(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    ext_operator *f = op_of(self);
    if (!f->op) {
        PyErr_Format(PyExc_TypeError, "%s has several overloads: explain one of them, such as .overloads[0]", f->name);
        return NULL;
    }
    ext_call c;
    PyObject *rows = PyList_New(0), *result = NULL;
    const enum ext_outcome outcome = rows ? ext_call_begin(&c, f, args, nargs, kwnames, EXT_LOOK) : EXT_FAILED;
    if (outcome == EXT_SLOW)
        PyErr_Format(PyExc_TypeError, "%s: explain takes tensors without a mode or a transform that is on", f->name);
    if (!outcome) {
        const int status = dv_explain(f->op, c.args, f->nargs, add_row, rows);
        double flops = -1, bytes = -1;
        if (!status)
            (void)dv_cost(f->op, c.args, f->nargs, &flops, &bytes); /* it fails where there is no contract */
        PyObject *module = status ? ext_raise(status) : PyErr_Occurred() ? NULL : PyImport_ImportModule("dovetail._describe");
        result = module ? PyObject_CallMethod(module, "Explanation", "OOdd", self, rows, flops, bytes) : NULL;
        Py_XDECREF(module);
    }
    if (rows)
        ext_call_end(&c);
    Py_XDECREF(rows);
    return result;
}

/* A default as _describe reads it. Schemas print numbers for dtypes, layouts and memory formats: here they are what a call
 * takes. */
static PyObject *default_of(const dv_slot_info *info)
{
    const dv_value *v = &info->default_value;
    PyObject *words = NULL, *text = NULL;
    switch (v->type) {
    case DV_VALUE_DTYPE: words = PyUnicode_FromString(dv_dtype_name(v->as.dtype)); break;
    case DV_VALUE_LAYOUT: words = ext_word(ext_layouts, v->as.layout.value); break;
    case DV_VALUE_MEMORY_FORMAT: words = ext_word(ext_memory_formats, v->as.memory_format.value); break;
    case DV_VALUE_DTYPES:
        words = PyList_New((Py_ssize_t)v->as.dtypes.size);
        for (size_t i = 0; words && i < v->as.dtypes.size; i++) {
            PyObject *name = PyUnicode_FromString(dv_dtype_name(v->as.dtypes.data[i]));
            if (!name || PyList_SetItem(words, (Py_ssize_t)i, name))
                Py_CLEAR(words);
        }
        break;
    default: return Py_BuildValue("z", info->default_text);
    }
    text = words ? PyObject_Repr(words) : PyErr_Occurred() ? NULL : Py_BuildValue("z", info->default_text);
    Py_XDECREF(words);
    return text;
}

/* For _describe: ((name, type, default text or None, flags, alias), ...) of arguments and of results. */
static PyObject *slots(PyObject *self, PyObject *unused)
{
    (void)unused;
    ext_operator *f = op_of(self);
    PyObject *lists[2] = { PyList_New(0), PyList_New(0) };
    for (size_t i = 0; lists[0] && lists[1] && i < f->nargs + f->nresults; i++) {
        dv_slot_info info;
        if (dv_operator_slot(f->op, i, &info))
            break;
        PyObject *one = Py_BuildValue("(ssNIi)", f->slots[i].text, f->slots[i].type_text, default_of(&info), f->slots[i].flags,
            (int)f->slots[i].alias); /* NULL if there is no default_of() */
        if (!one || PyList_Append(lists[i >= f->nargs], one)) {
            Py_XDECREF(one);
            break;
        }
        Py_DECREF(one);
    }
    PyObject *both = PyErr_Occurred() || !lists[0] || !lists[1] ? NULL : PyTuple_Pack(2, lists[0], lists[1]);
    Py_XDECREF(lists[0]);
    Py_XDECREF(lists[1]);
    return both;
}

static PyObject *reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *module = PyImport_ImportModule("dovetail._library");
    PyObject *result = module ? PyObject_CallMethod(module, "_reduce", "O", self) : NULL;
    Py_XDECREF(module);
    return result;
}

static PyObject *takes(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (!op_of(self)->op)
        return PyErr_Format(PyExc_TypeError, "%s has several overloads: ask one of them", op_of(self)->name);
    return ext_vectorcall_of(ext_accepts, self, args, kwargs);
}

static PyMethodDef methods[] = {
    { "json", json, METH_NOARGS, "json($self, /)\n--\n\nEverything that was declared, as a JSON text (docs/json.md)." },
    { "describe", describe, METH_NOARGS, "describe($self, /)\n--\n\nThe operator in words, as `dovetail info` prints it." },
    { "dispatch_table", dump_table, METH_NOARGS, "dispatch_table($self, /)\n--\n\nThe dispatch table, a line for each key." },
    { "explain", (PyCFunction)(void (*)(void))explain, METH_FASTCALL | METH_KEYWORDS,
        "explain($self, /, *args, **kwargs)\n--\n\nWhich kernel these arguments would run, and why not the others. Runs "
        "nothing." },
    { "functional", functional, METH_NOARGS,
        "functional($self, /)\n--\n\nThe operator that writes nothing and gives the new values of its arguments "
        "(docs/schema.md)." },
    { "_slots", slots, METH_NOARGS, NULL },
    { "_accepts", (PyCFunction)(void (*)(void))takes, METH_VARARGS | METH_KEYWORDS, NULL },
    { "_has_rows", has_rows, METH_O, NULL },
    { "__reduce__", reduce, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyMemberDef members[] = {
    { "__vectorcalloffset__", T_PYSSIZET, offsetof(ext_operator, vectorcall), READONLY, NULL },
    { "__weaklistoffset__", T_PYSSIZET, offsetof(ext_operator, weakrefs), READONLY, NULL },
    { NULL, 0, 0, 0, NULL },
};

static PyType_Slot type_slots[] = {
    { Py_tp_dealloc, (void *)dealloc },
    { Py_tp_call, (void *)slow_call },
    { Py_tp_descr_get, (void *)get },
    { Py_tp_getattro, (void *)getattro },
    { Py_tp_repr, (void *)repr },
    { Py_tp_getset, getset },
    { Py_tp_methods, methods },
    { Py_tp_members, members },
    { 0, NULL },
};
static PyType_Spec type_spec = { "dovetail.Operator", sizeof(ext_operator), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | EXT_HAVE_VECTORCALL, type_slots };

int ext_operator_setup(PyObject *module)
{
    if (!ext_operator_type && !(ext_operator_type = (PyTypeObject *)PyType_FromSpec(&type_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Operator", (PyObject *)ext_operator_type);
}
