/* MindSpore's table: eager calls (PyNative) by pointers, on the CPU and on Ascend NPUs. A Tensor has no C interface, so it is
 * read by the methods of its base class TensorPy. Where a gradient may be wanted, the call goes through dovetail.mindspore, which
 * records it.
 *
 * MindSpore runs operators later, in threads of its own, and a tensor's pointer does not wait for them: a pending in-place
 * operator may still write what the kernel reads, and a pending read may still need what the kernel overwrites. So each call
 * waits first for all operators that were issued (PyNativeExecutor_.sync).
 */
#include "../../numpy/host/array.h"

#include <stdio.h>
#include <stdlib.h>

enum { DTYPES = 64 };

static PyTypeObject *tensor_type;
static bool only_cpu; /* this MindSpore is built for nothing else: tensors need not be asked */
static PyObject *data_ptr, *strides_of, *dtype_text, *device_text, *shape_text, *file_text, *name_text, *back_text, *wait_for_all,
    *wait_for_device, *tracing, *wants_gradients;                      /* functions of MindSpore */
static PyObject *from_numpy, *from_bytes, *empty, *as_strided, *types; /* types: the module */
static PyObject *in_graph_text;                                        /* function of dovetail.mindspore */

static struct {
    PyObject *type; /* a reference; equal types are the same object */
    uint32_t key;
} dtypes[DTYPES];
static size_t n_dtypes;

static PyObject *ask(PyObject *function, PyObject *o) { return ext_call_python(function, &o, o ? 1 : 0, NULL); }

/* ---- Setup --------------------------------------------------------------------------------------------------------------- */

/* The object at a path of attributes, "a.b.c", from a module; NULL with an exception. Before MindSpore 2.10, mindspore.graph was
 * mindspore.common. */
static PyObject *find(const char *module, const char *path)
{
    static const char graph[] = "mindspore.graph.";
    char before[64];
    PyObject *o = PyImport_ImportModule(module);
    if (!o && !strncmp(module, graph, strlen(graph))) {
        PyErr_Clear();
        snprintf(before, sizeof before, "mindspore.common.%s", module + strlen(graph));
        o = PyImport_ImportModule(before);
    }
    while (o && path) {
        const char *dot = strchr(path, '.');
        PyObject *name = PyUnicode_FromStringAndSize(path, dot ? dot - path : (Py_ssize_t)strlen(path));
        PyObject *next = name ? PyObject_GetAttr(o, name) : NULL;
        Py_XDECREF(name);
        Py_DECREF(o);
        o = next;
        path = dot ? dot + 1 : NULL;
    }
    return o;
}

/* Is this MindSpore built for the CPU alone? */
static bool has_only_cpu(void)
{
    PyObject *context = find("mindspore._c_expression", "MSContext.get_instance"),
             *instance = context ? ask(context, NULL) : NULL;
    bool other = !instance;
    for (const char *const *name = (const char *const[]){ "GPU", "Ascend", NULL }; *name && !other; name++) {
        PyObject *answer = PyObject_CallMethod(instance, "is_pkg_support_device", "s", *name);
        other = answer != Py_False;
        Py_XDECREF(answer);
    }
    PyErr_Clear();
    Py_XDECREF(context);
    Py_XDECREF(instance);
    return !other;
}

/* 1: ready. 0: MindSpore is not imported (completely), so no object can be a tensor of it. -1 with an exception. */
static int get_ready(void)
{
    static const struct {
        PyObject **to;
        const char *module, *path;
    } parts[] = {
        { &data_ptr, "mindspore._c_expression", "TensorPy._data_ptr" },
        { &strides_of, "mindspore._c_expression", "TensorPy.stride" },
        { &from_bytes, "mindspore._c_expression", "TensorPy.convert_bytes_to_tensor" },
        { &from_numpy, "mindspore", "Tensor.from_numpy" },
        { &empty, "mindspore.mint", "empty" },
        { &wait_for_device, "mindspore", "runtime.synchronize" },
        { &wait_for_all, "mindspore.graph.api", "_pynative_executor._executor.sync" },
        { &wants_gradients, "mindspore.graph.api", "_pynative_executor._executor.requires_grad" },
        { &tracing, "mindspore.graph.jit_context", "jit_context" },
        { &as_strided, "mindspore.ops.auto_generate", "as_strided" },
        { &types, "mindspore", NULL },
        { &in_graph_text, "dovetail.mindspore", "IN_GRAPH" },
    };
    static const struct {
        PyObject **to;
        const char *text;
    } texts[] = { { &dtype_text, "dtype" }, { &shape_text, "shape" }, { &device_text, "device" }, { &file_text, "co_filename" },
        { &name_text, "co_name" }, { &back_text, "f_back" } };
    if (tensor_type)
        return 1;
    PyObject *modules = PySys_GetObject("modules"), *module = modules ? PyDict_GetItemString(modules, "mindspore") : NULL;
    if (!module || !PyObject_HasAttrString(module, "ops") || dvnp_setup(false) <= 0)
        return PyErr_Occurred() ? -1 : 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        Py_XDECREF(*parts[i].to);
        if (!(*parts[i].to = find(parts[i].module, parts[i].path)))
            return -1;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i].to && !(*texts[i].to = PyUnicode_InternFromString(texts[i].text)))
            return -1;
    only_cpu = has_only_cpu();
    tensor_type = (PyTypeObject *)find("mindspore", "Tensor"); /* last: another thread may read it */
    return tensor_type ? 1 : -1;
}

static bool is_tensor(PyObject *o)
{
    return tensor_type && (Py_IS_TYPE(o, tensor_type) || PyType_IsSubtype(Py_TYPE(o), tensor_type));
}

static enum ext_kind kind(PyTypeObject *type)
{
    return get_ready() > 0 && PyType_IsSubtype(type, tensor_type) ? EXT_TENSOR : EXT_NOTHING;
}

/* ---- Element types ------------------------------------------------------------------------------------------------------- */

/* "Float8E4M3FN" and "float8_e4m3fn" are the same name. */
static bool same_name(const char *theirs, const char *ours)
{
    while (*theirs && *theirs != ' ') {
        while (*ours == '_')
            ours++;
        const char c = *theirs >= 'A' && *theirs <= 'Z' ? (char)(*theirs - 'A' + 'a') : *theirs;
        if (c != *ours)
            return false;
        theirs++, ours++;
    }
    return !*ours;
}

/* The element type's key of one of MindSpore's types; 0: none, without an exception. */
static uint32_t key_of(PyObject *type)
{
    for (size_t i = 0; i < n_dtypes; i++)
        if (dtypes[i].type == type)
            return dtypes[i].key;
    PyObject *text = PyObject_Str(type);
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const dv_dtype_row *row = NULL;
    for (size_t i = 0; name && (row = dv_dtype_at(i)) && !same_name(name, dv_dtype_long_name(row->dtype)); i++) {
    }
    PyErr_Clear();
    Py_XDECREF(text);
    if (row && n_dtypes < DTYPES) {
        dtypes[n_dtypes].type = Py_NewRef(type);
        dtypes[n_dtypes++].key = dv_dtype_key(row->dtype);
    }
    return row ? dv_dtype_key(row->dtype) : 0;
}

static int dtype(PyObject *o, dv_dtype *out)
{
    const uint32_t key = get_ready() > 0 ? key_of(o) : 0;
    *out = dv_dtype_from_key(key);
    return key ? 0 : dvnp_dtype(o, out);
}

/* mindspore.float32 of f32; NULL with an exception. */
static PyObject *dtype_object(dv_dtype of)
{
    if (get_ready() <= 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ImportError, "MindSpore is not imported");
    for (size_t i = 0; i < n_dtypes; i++)
        if (dtypes[i].key == dv_dtype_key(of))
            return Py_NewRef(dtypes[i].type);
    PyObject *found = PyObject_GetAttrString(types, dv_dtype_long_name(of));
    if (found && key_of(found) == dv_dtype_key(of))
        return found;
    Py_XDECREF(found);
    return PyErr_Format(PyExc_TypeError, "MindSpore has no element type like %s", dv_dtype_name(of));
}

/* ---- Tensors that exist -------------------------------------------------------------------------------------------------- */

/* Numbers of a tuple or list. -1 with an exception. */
static int numbers(PyObject *from, int64_t *to)
{
    const bool list = PyList_Check(from);
    const Py_ssize_t n = list ? PyList_Size(from) : PyTuple_Size(from);
    for (Py_ssize_t i = 0; i < n; i++)
        to[i] = PyLong_AsLongLong(list ? PyList_GetItem(from, i) : PyTuple_GetItem(from, i));
    return PyErr_Occurred() ? -1 : 0;
}

/* Sets *out to the device of a tensor. Returns NULL, or why the tensor cannot be used. */
static const char *device_of(PyObject *o, dv_device *out)
{
    static char text[160];
    *out = (dv_device){ .type = DV_CPU };
    if (only_cpu)
        return NULL;
    PyObject *device = PyObject_GetAttr(o, device_text);
    const char *name = device && PyUnicode_Check(device) ? PyUnicode_AsUTF8AndSize(device, NULL) : NULL, *why = NULL;
    if (name && !strncmp(name, "Ascend:", 7))
        *out = (dv_device){ .type = DV_NPU, .id = (int32_t)strtol(name + 7, NULL, 10) };
    else if (!name || strncmp(name, "CPU", 3) != 0)
        snprintf(text, sizeof text, "a tensor on %.32s (Dovetail takes MindSpore's tensors on the CPU and on Ascend)",
            name ? name : "a device"),
            why = text;
    Py_XDECREF(device);
    PyErr_Clear();
    return why;
}

/* Describes a tensor. Returns NULL with an exception, or with *why set. For a tensor on an NPU, waits for all of MindSpore's
 * streams: MindSpore's kernels and allocations are asynchronous, and the operator's kernel runs on another stream. */
static dv_tensor *view(ext_call *c, PyObject *o, const char **why)
{
    dv_tensor *t = NULL;
    dv_device device;
    if ((*why = device_of(o, &device)))
        return NULL;
    PyObject *waited = device.type == DV_CPU ? NULL : ask(wait_for_device, NULL);
    if (device.type != DV_CPU && !waited)
        return NULL;
    PyObject *type = PyObject_GetAttr(o, dtype_text), *steps = ask(strides_of, o), *place = ask(data_ptr, o);
    PyObject *shape = PyObject_GetAttr(o, shape_text);
    const uint32_t key = type ? key_of(type) : 0;
    if (!type || !steps || !place || !shape)
        goto done;
    if (!key && (*why = "a tensor of an element type that operators do not know"))
        goto done;
    const size_t n = (size_t)PyTuple_Size(shape);
    if (PyErr_Occurred() || !(t = ext_alloc(c, sizeof *t + (2 * n + 1) * sizeof(int64_t))))
        goto done;
    int64_t *numbers_of = (int64_t *)(void *)(t + 1);
    *t = (dv_tensor){ .data = PyLong_AsVoidPtr(place),
        .device = device,
        .ndim = (int32_t)n,
        .dtype = dv_dtype_from_key(key),
        .shape = numbers_of,
        .strides = numbers_of + n };
    if (numbers(shape, numbers_of) || numbers(steps, numbers_of + n))
        t = NULL;
done:
    Py_XDECREF(waited);
    Py_XDECREF(type);
    Py_XDECREF(steps);
    Py_XDECREF(place);
    Py_XDECREF(shape);
    return t;
}

/* ---- New tensors --------------------------------------------------------------------------------------------------------- */

/* A Tensor over an array's memory. Takes the array, also NULL. */
static PyObject *over(PyObject *array)
{
    PyObject *o = array ? ask(from_numpy, array) : NULL;
    Py_XDECREF(array);
    return o;
}

static PyObject *tuple_of(int32_t n, const int64_t *values)
{
    PyObject *tuple = PyTuple_New(n);
    for (int32_t i = 0; tuple && i < n; i++)
        PyTuple_SetItem(tuple, i, PyLong_FromLongLong(values[i])); /* NULL stays an exception */
    return tuple && PyErr_Occurred() ? Py_DECREF(tuple), NULL : tuple;
}

/* A view with any strides, by MindSpore's own operator. Its place in memory is that of x, moved by offset elements. */
static PyObject *strided(PyObject *x, int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t offset)
{
    PyObject *sizes = tuple_of(ndim, shape), *steps = tuple_of(ndim, strides), *o = NULL;
    if (sizes && steps)
        o = PyObject_CallFunction(as_strided, "OOOL", x, sizes, steps, (long long)offset);
    Py_XDECREF(sizes);
    Py_XDECREF(steps);
    return o;
}

/* NumPy has no elements of this kind: bf16 and the types of less than 16 bits, by DLPack's codes. */
static bool is_new_type(dv_dtype of) { return of.code == 4 || of.code > 6; }

/* A Tensor with a copy of these elements; data NULL: uninitialised. */
static PyObject *copied(const void *data, dv_dtype of, int32_t ndim, const int64_t *shape)
{
    const dv_tensor t = { .ndim = ndim, .shape = shape };
    PyObject *type = dtype_object(of), *sizes = tuple_of(ndim, shape), *made = NULL, *o;
    PyObject *bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)dv_dtype_bytes(of, dv_numel(&t)));
    if (type && sizes && bytes)
        made = PyObject_CallFunctionObjArgs(from_bytes, bytes, sizes, type, NULL); /* of the base class */
    o = made ? ask((PyObject *)tensor_type, made) : NULL;
    Py_XDECREF(made);
    Py_XDECREF(type);
    Py_XDECREF(sizes);
    Py_XDECREF(bytes);
    return o;
}

/* Makes an uninitialised dense Tensor on the NPU; MindSpore uses one in a process. Returns NULL with an exception. */
static PyObject *dense_on_npu(dv_dtype of, int32_t ndim, const int64_t *shape)
{
    PyObject *type = dtype_object(of), *sizes = tuple_of(ndim, shape), *o = NULL;
    PyObject *args = type && sizes ? PyTuple_Pack(1, sizes) : NULL;
    PyObject *named = args ? Py_BuildValue("{s:O,s:s}", "dtype", type, "device", "Ascend") : NULL;
    if (named)
        o = PyObject_Call(empty, args, named);
    Py_XDECREF(named);
    Py_XDECREF(args);
    Py_XDECREF(sizes);
    Py_XDECREF(type);
    return o;
}

/* A dense Tensor, uninitialised. NULL with an exception. */
static PyObject *dense(dv_device device, dv_dtype of, int32_t ndim, const int64_t *shape)
{
    if (device.type == DV_NPU)
        return dense_on_npu(of, ndim, shape);
    PyObject *type = dtype_object(of); /* for the error */
    Py_XDECREF(type);
    return !type ? NULL : is_new_type(of) ? copied(NULL, of, ndim, shape) : over(dvnp_new(of, ndim, shape, NULL));
}

static bool is_dense(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    const dv_tensor t = { .ndim = ndim, .shape = shape, .strides = strides };
    return !strides || dv_tensor_is_contiguous(&t);
}

static PyObject *new_object(dv_device device, dv_dtype of, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    if (is_dense(ndim, shape, strides))
        return dense(device, of, ndim, shape);
    int64_t n = 1; /* up to the last element */
    for (int32_t i = 0; i < ndim; i++)
        n = shape[i] ? n + (shape[i] - 1) * strides[i] : n;
    PyObject *all = dense(device, of, 1, &n), *o = all ? strided(all, ndim, shape, strides, 0) : NULL;
    Py_XDECREF(all);
    return o;
}

/* Keep the object as result index of the call, and describe it. Takes the object, also NULL. */
static int made(ext_call *c, int index, PyObject *o, dv_tensor **out)
{
    const char *why = NULL;
    dv_tensor *t = o ? view(c, o, &why) : NULL;
    if (!t) {
        Py_XDECREF(o);
        return why ? dv_fail(DV_EHOST, "%s: result %d: %s", c->f->name, index, why) : DV_EHOST;
    }
    Py_XDECREF(c->made[index]);
    c->made[index] = o;
    c->made_tensors[index] = *t;
    *out = &c->made_tensors[index];
    return DV_OK;
}

/* A dense result over an array. As long as the Tensor keeps the array it need not be asked: it is where the array is. */
static int made_over_array(ext_call *c, int index, dv_dtype of, int32_t ndim, const int64_t *shape, dv_tensor **out)
{
    int64_t *dims = ext_alloc(c, (size_t)(ndim ? 2 * ndim : 1) * sizeof *dims);
    PyObject *type = dtype_object(of); /* for the error */
    PyObject *array = type && dims ? dvnp_new(of, ndim, shape, NULL) : NULL, *o = array ? ask(from_numpy, array) : NULL;
    dv_tensor *t = &c->made_tensors[index];
    const bool kept = o && Py_REFCNT(array) > 1 && !dvnp_view(array, true, dims, t);
    Py_XDECREF(type);
    Py_XDECREF(array);
    if (!kept)
        return made(c, index, o, out);
    Py_XDECREF(c->made[index]);
    c->made[index] = o;
    *out = t;
    return DV_OK;
}

static int new_tensor(const dv_host *host, int index, dv_dtype of, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    const bool npu = device.type == DV_NPU;
    if (!npu && device.type != DV_CPU)
        return dv_fail(DV_EDEVICE, "%s: a result on %s (Dovetail makes MindSpore's tensors on the CPU and on Ascend)", c->f->name,
            dv_device_name(device.type));
    if (npu && index < 0)
        return dv_fail(DV_ENOTSUP,
            "%s: its kernel needs a contiguous copy of a tensor on Ascend, and Dovetail makes none in MindSpore: give it "
            "x.contiguous()",
            c->f->name);
    if (npu && !ext_is_tensor(c, index))
        return dv_fail(DV_ENOTSUP, "%s: result %d is a list of tensors, which Dovetail makes on the CPU only in MindSpore",
            c->f->name, index);
    if (!ext_is_tensor(c, index))
        return ext_tensor_new(of, ndim, shape, strides, out);
    const ext_gil g = ext_take_gil(c);
    const int status = !npu && !is_new_type(of) && is_dense(ndim, shape, strides)
        ? made_over_array(c, index, of, ndim, shape, out)
        : made(c, index, new_object(device, of, ndim, shape, strides), out);
    ext_give_gil(g);
    return status;
}

/* A view of an argument at this place in memory. NULL with an exception. */
static PyObject *view_of(
    PyObject *owner, const dv_tensor *base, const void *place, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    PyObject *start = PyObject_CallMethod(owner, "storage_offset", NULL);
    const int64_t first = start ? PyLong_AsLongLong(start) : 0, bytes = (const char *)place - (const char *)base->data;
    Py_XDECREF(start);
    return start ? strided(owner, ndim, shape, strides, first + bytes / (base->dtype.bits / 8)) : NULL;
}

static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    if (index < 0)
        return dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    const ext_gil g = ext_take_gil(c);
    PyObject *owner = ext_owner(c, base, NULL, NULL);
    int status;
    if (!owner || !is_tensor(owner))
        status = dv_fail(
            DV_ENOTSUP, "%s: result %d is a view of something that is not one of MindSpore's tensors", c->f->name, index);
    else if (!ext_is_tensor(c, index)) /* of a list: wrap() finds the tensor */
        status = dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    else
        status = made(c, index,
            view_of(owner, base, (const char *)base->data + offset * (base->dtype.bits / 8), ndim, shape, strides), out);
    ext_give_gil(g);
    return status;
}

/* A tensor that the library made. The Tensor keeps it, unless NumPy lacks its type. A view of an argument keeps that. */
static PyObject *wrap(ext_call *c, dv_tensor *take)
{
    const dv_tensor *base;
    PyObject *owner = ext_owner(c, NULL, take->data, &base);
    if (owner && is_tensor(owner)) {
        PyObject *view = view_of(owner, base, take->data, take->ndim, take->shape, take->strides);
        dv_tensor_unref(take);
        return view;
    }
    PyObject *type = dtype_object(take->dtype), *o = NULL, *capsule = NULL;
    if (type && is_new_type(take->dtype))
        o = copied(take->data, take->dtype, take->ndim, take->shape);
    else if (type && (capsule = ext_keep_tensor(take)))
        o = over(dvnp_wrap(take, capsule, true));
    if (!capsule)
        dv_tensor_unref(take);
    Py_XDECREF(capsule);
    Py_XDECREF(type);
    return o;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

static bool is_true(PyObject *take)
{
    const bool yes = take && PyObject_IsTrue(take) == 1;
    Py_XDECREF(take);
    return yes;
}

static bool is_text(PyObject *of, PyObject *name, const char *text)
{
    PyObject *found = of ? PyObject_GetAttr(of, name) : NULL;
    const bool same = found && PyUnicode_Check(found) && !PyUnicode_CompareWithASCIIString(found, text);
    Py_XDECREF(found);
    return same;
}

/* Does a graph make this call? A graph of ms.jit evaluates what is not an operator of MindSpore as Python text, and then takes
 * its result for a constant and drops its writes; a trace calls it once. Sources: eval_script() and jit_context() in
 * mindspore/graph. */
static bool in_graph(void)
{
    PyObject *frame = (PyObject *)(void *)PyEval_GetFrame(), *back = NULL, *code = NULL, *trace = ask(tracing, NULL);
    bool graph = trace && trace != Py_None;
    Py_XDECREF(trace);
    if (frame && !graph) {
        code = (PyObject *)(void *)PyFrame_GetCode((PyFrameObject *)(void *)frame);
        if (is_text(code, file_text, "<string>") && (back = PyObject_GetAttr(frame, back_text)) && back != Py_None) {
            Py_DECREF(code);
            code = (PyObject *)(void *)PyFrame_GetCode((PyFrameObject *)(void *)back);
            graph = is_text(code, name_text, "eval_script");
        }
    }
    Py_XDECREF(code);
    Py_XDECREF(back);
    return graph;
}

static enum ext_outcome begin(ext_call *c)
{
    static const dv_host tensors = { .size = sizeof(dv_host),
        .name = "mindspore",
        .new_tensor = new_tensor,
        .new_view = new_view,
        .free_tensor = ext_free_tensor,
        .random = ext_random,
        .before_kernel = ext_before_kernel,
        .after_kernel = ext_after_kernel };
    c->host = tensors;
    c->host.test = ext_hooks();
    if (c->purpose == EXT_TRIAL)
        return EXT_OK;
    if (in_graph()) {
        PyErr_Format(PyExc_RuntimeError, "%s: %U", c->f->name, in_graph_text);
        return EXT_MIXED;
    }
    c->way = is_true(ask(wants_gradients, NULL)); /* then slow() makes the call, once all arguments are converted */
    PyObject *waited = PyErr_Occurred() ? NULL : ask(wait_for_all, NULL);
    Py_XDECREF(waited);
    return waited ? EXT_OK : EXT_MIXED;
}

static enum ext_outcome tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    if (!is_tensor(o))
        return ext_other_tensor(c, slot, element, o, write, out);
    if (c->purpose == EXT_TRIAL)
        return EXT_OK;
    const char *why = NULL;
    const dv_tensor *t = view(c, o, &why);
    if (!t)
        return why ? ext_wrong_text(c, slot, element, element < 0 ? NULL : "Tensor", why) : EXT_FAILED;
    c->elements += dv_numel(t);
    *out = t;
    return EXT_OK;
}

static PyObject *slow(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return ext_call_bridge(c->of, c->f, args, EXT_NARGS(nargsf), kwnames);
}

/* ---- Other objects ------------------------------------------------------------------------------------------------------- */

static PyObject *describe(PyObject *o)
{
    if (!is_tensor(o))
        return NULL;
    PyObject *type = PyObject_GetAttr(o, dtype_text), *shape = PyObject_GetAttr(o, shape_text);
    PyObject *text = type && shape ? PyUnicode_FromFormat("a mindspore.Tensor of %S with shape %S", type, shape) : NULL;
    Py_XDECREF(type);
    Py_XDECREF(shape);
    return text;
}

/* The letter of a tensor without dims, for an argument that is a number. */
static char number(PyObject *o)
{
    PyObject *shape = PyObject_GetAttr(o, shape_text), *type = PyObject_GetAttr(o, dtype_text);
    const dv_dtype t = dv_dtype_from_key(type ? key_of(type) : 0);
    const char letter = t.code < 7 ? "iufffcb"[t.code] : 'f'; /* by DLPack's codes */
    const bool single = shape && PyTuple_Size(shape) == 0;
    ext_clear_error();
    Py_XDECREF(shape);
    Py_XDECREF(type);
    return single ? letter : 0;
}

static PyObject *items(PyObject *o)
{
    PyObject *shape = PyObject_GetAttr(o, shape_text), *list = NULL;
    if (shape && PyTuple_Size(shape) < 2)
        list = PyObject_CallMethod(o, "tolist", NULL);
    Py_XDECREF(shape);
    return list;
}

const ext_host ext_host_mindspore = { .name = "mindspore",
    .tensor_title = "a mindspore.Tensor",
    .kind = kind,
    .begin = begin,
    .tensor = tensor,
    .wrap = wrap,
    .slow = slow,
    .describe = describe,
    .number = number,
    .items = items,
    .dtype = dtype,
    .dtype_object = dtype_object };
