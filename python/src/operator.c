/* dovetail.Operator: one overload, or a packet of several. Calls use vectorcall. Descriptions are made on demand, mostly by
 * dovetail._describe. */
#include "extension.h"

#include <dlfcn.h>
#include <stdio.h>
#include <structmember.h>

PyTypeObject *ext_operator_type;

static ext_operator *operator_from_object(PyObject *self) { return (ext_operator *)(void *)self; }

/* ---- Making -------------------------------------------------------------------------------------------------------------- */

/* Sets the text of a slot's type for messages, such as "Tensor?" or "int[2]". */
static void slot_set_type_text(ext_slot *s)
{
    const dv_field_row *row = dv_field_at(s->info.type);
    const bool list = row->form == DV_FORM_LIST;
    char brackets[24] = "";
    if (list && s->info.fixed_size > 0)
        snprintf(brackets, sizeof brackets, "[%lld]", (long long)s->info.fixed_size);
    else if (list)
        strcpy(brackets, "[]");
    snprintf(s->type_text, sizeof s->type_text, "%s%s%s%s", *row->word ? row->word : "of another kind",
        s->info.flags & DV_SLOT_ELEMENT_OPTIONAL ? "?" : "", brackets, s->info.flags & DV_SLOT_OPTIONAL ? "?" : "");
}

/* Fills slot number i of an operator from its declaration. Returns 0, or -1 with an exception. */
static int slot_fill(ext_slot *s, dv_operator *op, size_t i)
{
    const int status = dv_operator_slot(op, i, &s->info);
    if (status)
        return ext_raise_status(status), -1;
    slot_set_type_text(s);
    if (!*s->info.name)
        return 0;
    if (!(s->name = PyUnicode_FromString(s->info.name)))
        return -1;
    PyUnicode_InternInPlace(&s->name);
    return 0;
}

/* Returns a new, zeroed operator object. NULL with an exception. */
static ext_operator *operator_alloc(void)
{
    allocfunc make = (allocfunc)PyType_GetSlot(ext_operator_type, Py_tp_alloc);
    return (ext_operator *)(void *)make(ext_operator_type, 0); /* zeroed */
}

PyObject *ext_operator_new(dv_operator *op)
{
    ext_operator *f = operator_alloc();
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
        if (slot_fill(&f->slots[i], op, i))
            goto fail;
        if (i < f->nargs && !(f->slots[i].info.flags & DV_SLOT_KWARG_ONLY))
            f->npositional = i + 1;
        if (i == f->first_tensor_slot && f->slots[i].info.type != DV_FIELD_TENSOR && f->slots[i].info.type != DV_FIELD_TENSORS)
            f->first_tensor_slot++;
        f->writes_argument |= i < f->nargs && f->slots[i].info.flags & DV_SLOT_WRITES;
    }
    for (int h = 0; h < EXT_HOSTS; h++)
        if (ext_hosts[h]->attach && !(f->host_data[h] = ext_hosts[h]->attach(f)))
            goto fail;
    return (PyObject *)f;
fail:
    Py_DECREF((PyObject *)f);
    return NULL;
}

PyObject *ext_packet_new(PyObject *name, PyObject *overloads)
{
    ext_operator *f = operator_alloc();
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

/* Frees an operator object when its last reference is gone (Py_tp_dealloc). */
static void operator_dealloc(PyObject *self)
{
    ext_operator *f = operator_from_object(self);
    PyTypeObject *type = Py_TYPE(self);
    if (f->weakrefs)
        PyObject_ClearWeakRefs(self);
    for (size_t i = 0; f->slots && i < f->nargs + f->nresults; i++)
        Py_XDECREF(f->slots[i].name);
    PyMem_Free(f->slots);
    for (int h = 0; h < EXT_HOSTS; h++)
        if (f->host_data[h])
            ext_hosts[h]->detach(f->host_data[h]);
    ext_packet_reset_cache(f);
    dv_operator_unref(f->op);
    Py_XDECREF(f->full_name);
    Py_XDECREF(f->overloads);
    Py_XDECREF(f->cache);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- Calls that do not come by vectorcall -------------------------------------------------------------------------------- */

/* Makes a vectorcall by PyObject_Call(), with a tuple and a dict, where PyObject_Vectorcall() is missing. */
static PyObject *operator_call_with_tuple(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
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
            call = operator_call_with_tuple;
    }
    return call(callable, args, nargsf, kwnames);
}

PyObject *ext_vectorcall_from_tuple(ext_vectorcall call, PyObject *self, PyObject *args, PyObject *kwargs)
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

/* Calls an operator with a tuple and a dict (Py_tp_call). */
static PyObject *operator_call_tuple(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ext_vectorcall_from_tuple(operator_from_object(self)->vectorcall, self, args, kwargs);
}

/* Returns the operator itself (Py_tp_descr_get): as a class attribute it is not bound to instances, and help() treats it as a
 * function. */
static PyObject *operator_descr_get(PyObject *self, PyObject *instance, PyObject *owner)
{
    (void)instance, (void)owner;
    return Py_NewRef(self);
}

/* ---- Attributes ---------------------------------------------------------------------------------------------------------- */

/* Returns dovetail._describe.<name>(operator), computed once for each operator. NULL with an exception. */
static PyObject *operator_get_described(PyObject *self, void *name)
{
    ext_operator *f = operator_from_object(self);
    PyObject *cached = f->cache ? PyDict_GetItemString(f->cache, name) : NULL;
    if (cached)
        return Py_NewRef(cached);
    PyObject *module = PyImport_ImportModule("dovetail._describe");
    PyObject *description = module ? PyObject_CallMethod(module, name, "O", self) : NULL;
    Py_XDECREF(module);
    if (description && ((!f->cache && !(f->cache = PyDict_New())) || PyDict_SetItemString(f->cache, name, description)))
        Py_CLEAR(description);
    return description;
}

static PyObject *operator_get_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(operator_from_object(self)->full_name);
}

/* Returns the normalised schema as a str; for a packet the schemas of all overloads. */
static PyObject *operator_get_schema(PyObject *self, void *unused)
{
    (void)unused;
    ext_operator *f = operator_from_object(self);
    return f->op ? PyUnicode_FromString(dv_operator_schema(f->op)) : operator_get_described(self, (void *)(uintptr_t)"schemas");
}

/* Returns the author's description of the operator; for a packet that of its first overload. */
static PyObject *operator_get_doc(PyObject *self, void *unused)
{
    (void)unused;
    ext_operator *f = operator_from_object(self);
    return f->op ? PyUnicode_FromString(dv_operator_doc(f->op)) : PyObject_GetAttrString(PyTuple_GetItem(f->overloads, 0), "doc");
}

/* Returns a tuple of the overloads in the order in which they are tried; an overload itself is the only one. */
static PyObject *operator_get_overloads(PyObject *self, void *unused)
{
    (void)unused;
    ext_operator *f = operator_from_object(self);
    return f->op ? PyTuple_Pack(1, self) : Py_NewRef(f->overloads);
}

/* Returns whether the operator has kernels for a kind of device ("cpu", "cuda", "npu"): True or False; False for a packet. NULL
 * with an exception. */
static PyObject *operator_has_kernels(PyObject *self, PyObject *device_name)
{
    dv_device device;
    const char *text = PyUnicode_AsUTF8AndSize(device_name, NULL);
    const int status = text ? dv_device_parse(text, &device) : 0;
    if (!text || status)
        return text ? ext_raise_status(status) : NULL;
    return PyBool_FromLong(
        operator_from_object(self)->op && dv_operator_has_kernels(operator_from_object(self)->op, device.type));
}

/* Returns the address of the dv_operator as an int, for bridges; 0 for a packet. */
static PyObject *operator_get_pointer(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(operator_from_object(self)->op);
}

/* Returns whether the policy turns the operator on now, for guards of compiled programs. is_fusing: not NULL where the compiler
 * fuses decompositions. */
static PyObject *operator_get_enabled(PyObject *self, void *is_fusing)
{
    return PyBool_FromLong(!operator_from_object(self)->op || dv_policy_is_enabled(operator_from_object(self)->op, is_fusing));
}

static PyGetSetDef operator_getset[] = {
    { "name", operator_get_name, NULL, "\"namespace::name.overload\"", NULL },
    { "schema", operator_get_schema, NULL, "the schema, normalised", NULL },
    { "doc", operator_get_doc, NULL, "what the author wrote about it", NULL },
    { "overloads", operator_get_overloads, NULL, "a tuple of the overloads, in the order in which they are tried", NULL },
    { "_pointer", operator_get_pointer, NULL, NULL, NULL },
    { "_enabled", operator_get_enabled, NULL, NULL, NULL },
    { "_enabled_where_fused", operator_get_enabled, NULL, NULL, "" },
    { "__name__", operator_get_described, NULL, NULL, (void *)(uintptr_t)"short_name" },
    { "__qualname__", operator_get_described, NULL, NULL, (void *)(uintptr_t)"short_name" },
    { "__module__", operator_get_described, NULL, NULL, (void *)(uintptr_t)"module_name" },
    { "__doc__", operator_get_described, NULL, NULL, (void *)(uintptr_t)"help_text" },
    { "__signature__", operator_get_described, NULL, NULL, (void *)(uintptr_t)"signature" },
    { "__text_signature__", operator_get_described, NULL, NULL, (void *)(uintptr_t)"text_signature" },
    { NULL, NULL, NULL, NULL, NULL },
};

/* Returns an attribute of an operator: an ordinary one, or else the overload of this name. NULL with an AttributeError. */
static PyObject *operator_getattro(PyObject *self, PyObject *name)
{
    ext_operator *f = operator_from_object(self);
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    const char *wanted = PyUnicode_AsUTF8AndSize(name, NULL);
    for (Py_ssize_t i = 0, n = f->op ? 1 : PyTuple_Size(f->overloads); wanted && !found && i < n; i++) {
        PyObject *one = f->op ? self : PyTuple_GetItem(f->overloads, i);
        const char *dot = strchr(operator_from_object(one)->name, '.');
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

static PyObject *operator_repr(PyObject *self)
{
    ext_operator *f = operator_from_object(self);
    if (!f->op)
        return PyUnicode_FromFormat("<operator %s with %zd overloads>", f->name, PyTuple_Size(f->overloads));
    return PyUnicode_FromFormat("<operator %s>", dv_operator_schema(f->op));
}

/* ---- Methods ------------------------------------------------------------------------------------------------------------- */

/* Returns the text that make() gives for an overload, as a str. NULL with an exception, as for a packet. */
static PyObject *operator_make_text(PyObject *self, int (*make)(const dv_operator *, char **))
{
    ext_operator *f = operator_from_object(self);
    char *text;
    if (!f->op) {
        PyErr_Format(PyExc_TypeError, "%s has several overloads: ask one of them, such as .overloads[0]", f->name);
        return NULL;
    }
    const int status = make(f->op, &text);
    if (status)
        return ext_raise_status(status);
    PyObject *s = PyUnicode_FromString(text);
    dv_free(text);
    return s;
}

static PyObject *operator_json(PyObject *self, PyObject *unused)
{
    (void)unused;
    return operator_make_text(self, dv_operator_json);
}
/* Returns a new Operator object for the functional form of an overload. NULL with an exception. */
static PyObject *operator_functional(PyObject *self, PyObject *unused)
{
    (void)unused;
    ext_operator *f = operator_from_object(self);
    dv_operator *form;
    if (!f->op) {
        PyErr_Format(PyExc_TypeError, "%s has several overloads: ask one of them, such as .overloads[0]", f->name);
        return NULL;
    }
    const int status = dv_functional(f->op, &form);
    if (status)
        return ext_raise_status(status);
    PyObject *description = ext_operator_new(form);
    dv_operator_unref(form);
    return description;
}
static PyObject *operator_describe(PyObject *self, PyObject *unused)
{
    (void)unused;
    return operator_make_text(self, dv_operator_describe);
}
static PyObject *operator_dispatch_table(PyObject *self, PyObject *unused)
{
    (void)unused;
    return operator_make_text(self, dv_operator_dump_table);
}

/* Appends the report on one kernel to a Python list, as a tuple. Callback of dv_explain(). */
static void explain_append_kernel(void *list, const dv_kernel_report *row)
{
    PyObject *tuple = Py_BuildValue("(zzzzzzOz)", row->name, row->provider, row->device, row->dtypes, row->isa, row->when,
        row->selected ? Py_True : Py_False, row->reason);
    if (tuple && !PyErr_Occurred())
        PyList_Append(list, tuple);
    Py_XDECREF(tuple);
}

/* Returns a dovetail._describe.Explanation: for each kernel whether a call with these arguments would run it, and why not. Runs
 * no kernel. NULL with an exception. */
static PyObject *operator_explain(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    ext_operator *f = operator_from_object(self);
    if (!f->op) {
        PyErr_Format(PyExc_TypeError, "%s has several overloads: explain one of them, such as .overloads[0]", f->name);
        return NULL;
    }
    ext_call c;
    PyObject *kernels = PyList_New(0), *result = NULL;
    const enum ext_outcome outcome = kernels ? ext_call_begin(&c, f, args, nargs, kwnames, EXT_DESCRIBE) : EXT_FAILED;
    if (outcome == EXT_DISPATCH)
        PyErr_Format(PyExc_TypeError, "%s: explain takes tensors without a mode or a transform that is on", f->name);
    if (!outcome) {
        const int status = dv_explain(f->op, c.args, f->nargs, explain_append_kernel, kernels);
        double flops = -1, bytes = -1;
        /* dv_cost() fails for an operator without a contract; flops and bytes then stay -1 */
        if (!status)
            (void)dv_cost(f->op, c.args, f->nargs, &flops, &bytes);
        PyObject *module = status ? ext_raise_status(status)
            : PyErr_Occurred()    ? NULL
                                  : PyImport_ImportModule("dovetail._describe");
        result = module ? PyObject_CallMethod(module, "Explanation", "OOdd", self, kernels, flops, bytes) : NULL;
        Py_XDECREF(module);
    }
    if (kernels)
        ext_call_end(&c);
    Py_XDECREF(kernels);
    return result;
}

/* Returns the text of a slot's default as Python reads it; None: no default. Schemas print numbers for dtypes, layouts and memory
 * formats; here they are the words that a call accepts. NULL with an exception. */
static PyObject *slot_make_default_text(const dv_slot_info *info)
{
    const dv_value *v = &info->default_value;
    PyObject *words = NULL, *text = NULL;
    switch (v->type) {
    case DV_VALUE_DTYPE: words = PyUnicode_FromString(dv_dtype_name(v->as.dtype)); break;
    case DV_VALUE_LAYOUT: words = ext_make_word(ext_layouts, v->as.layout.value); break;
    case DV_VALUE_MEMORY_FORMAT: words = ext_make_word(ext_memory_formats, v->as.memory_format.value); break;
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

/* Returns ((name, type, default text or None, flags, alias), ...) of the arguments, and the same of the results, for
 * dovetail._describe. NULL with an exception. */
static PyObject *operator_slots(PyObject *self, PyObject *unused)
{
    (void)unused;
    ext_operator *f = operator_from_object(self);
    PyObject *lists[2] = { PyList_New(0), PyList_New(0) };
    for (size_t i = 0; lists[0] && lists[1] && i < f->nargs + f->nresults; i++) {
        const ext_slot *slot = &f->slots[i];
        PyObject *one = Py_BuildValue("(ssNIi)", slot->info.name, slot->type_text, slot_make_default_text(&slot->info),
            slot->info.flags, (int)slot->info.alias); /* NULL if slot_make_default_text() failed */
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

/* Returns what pickle needs to make the operator again, from dovetail._library (__reduce__). */
static PyObject *operator_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *module = PyImport_ImportModule("dovetail._library");
    PyObject *result = module ? PyObject_CallMethod(module, "_reduce", "O", self) : NULL;
    Py_XDECREF(module);
    return result;
}

/* Returns whether an overload may accept arguments of these types: True or False. NULL with an exception, as for a packet. */
static PyObject *operator_accepts(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (!operator_from_object(self)->op)
        return PyErr_Format(PyExc_TypeError, "%s has several overloads: ask one of them", operator_from_object(self)->name);
    return ext_vectorcall_from_tuple(ext_can_accept, self, args, kwargs);
}

static PyMethodDef operator_methods[] = {
    { "json", operator_json, METH_NOARGS, "json($self, /)\n--\n\nEverything that was declared, as a JSON text (docs/json.md)." },
    { "describe", operator_describe, METH_NOARGS,
        "describe($self, /)\n--\n\nThe operator in words, as `dovetail info` prints it." },
    { "dispatch_table", operator_dispatch_table, METH_NOARGS,
        "dispatch_table($self, /)\n--\n\nThe dispatch table, a line for each key." },
    { "explain", (PyCFunction)(void (*)(void))operator_explain, METH_FASTCALL | METH_KEYWORDS,
        "explain($self, /, *args, **kwargs)\n--\n\nWhich kernel these arguments would run, and why not the others. Runs "
        "nothing." },
    { "functional", operator_functional, METH_NOARGS,
        "functional($self, /)\n--\n\nThe operator that writes nothing and gives the new values of its arguments "
        "(docs/schema.md)." },
    { "_slots", operator_slots, METH_NOARGS, NULL },
    { "_accepts", (PyCFunction)(void (*)(void))operator_accepts, METH_VARARGS | METH_KEYWORDS, NULL },
    { "_has_rows", operator_has_kernels, METH_O, NULL },
    { "__reduce__", operator_reduce, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyMemberDef operator_members[] = {
    { "__vectorcalloffset__", T_PYSSIZET, offsetof(ext_operator, vectorcall), READONLY, NULL },
    { "__weaklistoffset__", T_PYSSIZET, offsetof(ext_operator, weakrefs), READONLY, NULL },
    { NULL, 0, 0, 0, NULL },
};

static PyType_Slot operator_type_slots[] = {
    { Py_tp_dealloc, (void *)operator_dealloc },
    { Py_tp_call, (void *)operator_call_tuple },
    { Py_tp_descr_get, (void *)operator_descr_get },
    { Py_tp_getattro, (void *)operator_getattro },
    { Py_tp_repr, (void *)operator_repr },
    { Py_tp_getset, operator_getset },
    { Py_tp_methods, operator_methods },
    { Py_tp_members, operator_members },
    { 0, NULL },
};
static PyType_Spec operator_type_spec = { "dovetail.Operator", sizeof(ext_operator), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | EXT_HAVE_VECTORCALL, operator_type_slots };

int ext_operator_setup(PyObject *module)
{
    if (!ext_operator_type && !(ext_operator_type = (PyTypeObject *)PyType_FromSpec(&operator_type_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Operator", (PyObject *)ext_operator_type);
}
