/* MindSpore's host table: eager calls (PyNative) with the addresses of tensors, on the CPU and on Ascend NPUs. A Tensor has no C
 * interface, so it is read by the methods of its base class TensorPy. If MindSpore records gradients, the call goes through
 * dovetail.mindspore, which records the operator.
 *
 * MindSpore runs operators later, in threads of its own, and reading a tensor's address does not wait for them. A pending
 * in-place operator may still write the memory that the kernel reads, and a pending operator may still read the memory that the
 * kernel writes. So each call first waits for all operators that were issued (PyNativeExecutor_.sync).
 */
#include "../../numpy/host/array.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_DTYPES = 64 };

static PyTypeObject *tensor_type;
static bool only_cpu; /* this MindSpore is built for the CPU alone, so that every tensor is on the CPU */
static PyObject *get_data_ptr, *strides_of, *dtype_text, *device_text, *shape_text, *file_text, *name_text, *back_text,
    *wait_for_all, *wait_for_device, *tracing, *is_recording_gradients;       /* functions of MindSpore */
static PyObject *from_numpy, *from_bytes, *empty, *as_strided, *dtype_module; /* types: the module */
static PyObject *in_graph_text; /* the message of a call inside a graph, a str of dovetail.mindspore */

static struct {
    PyObject *type; /* an owned reference to one of MindSpore's types, each of which is one object */
    uint32_t key;
} dtypes[MAX_DTYPES];
static size_t ndtypes;

/* Calls a Python function with one argument; argument NULL: without. Returns the result; NULL with an exception. */
static PyObject *python_call_with(PyObject *function, PyObject *argument)
{
    return ext_call_python(function, &argument, argument ? 1 : 0, NULL);
}

/* ---- Setup --------------------------------------------------------------------------------------------------------------- */

/* Imports a module and returns a new reference to the object at a path of its attributes, "a.b.c"; path NULL: the module itself.
 * NULL with an exception. Before MindSpore 2.10, mindspore.graph was mindspore.common, which is tried too. */
static PyObject *python_import_path(const char *module, const char *path)
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

/* True if this MindSpore is built for the CPU alone; false if that cannot be found out. */
static bool mindspore_is_cpu_only(void)
{
    PyObject *context = python_import_path("mindspore._c_expression", "MSContext.get_instance"),
             *instance = context ? python_call_with(context, NULL) : NULL;
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

/* Finds MindSpore's functions. Returns DVNP_READY if tensors can be used; DVNP_NOT_IMPORTED if MindSpore is not imported
 * completely, so that no object can be one of its tensors; DVNP_RAISED with an exception. */
static enum dvnp_setup mindspore_setup_or_raise(void)
{
    static const struct {
        PyObject **to;
        const char *module, *path;
    } parts[] = {
        { &get_data_ptr, "mindspore._c_expression", "TensorPy._data_ptr" },
        { &strides_of, "mindspore._c_expression", "TensorPy.stride" },
        { &from_bytes, "mindspore._c_expression", "TensorPy.convert_bytes_to_tensor" },
        { &from_numpy, "mindspore", "Tensor.from_numpy" },
        { &empty, "mindspore.mint", "empty" },
        { &wait_for_device, "mindspore", "runtime.synchronize" },
        { &wait_for_all, "mindspore.graph.api", "_pynative_executor._executor.sync" },
        { &is_recording_gradients, "mindspore.graph.api", "_pynative_executor._executor.requires_grad" },
        { &tracing, "mindspore.graph.jit_context", "jit_context" },
        { &as_strided, "mindspore.ops.auto_generate", "as_strided" },
        { &dtype_module, "mindspore", NULL },
        { &in_graph_text, "dovetail.mindspore", "IN_GRAPH" },
    };
    static const struct {
        PyObject **to;
        const char *text;
    } texts[] = { { &dtype_text, "dtype" }, { &shape_text, "shape" }, { &device_text, "device" }, { &file_text, "co_filename" },
        { &name_text, "co_name" }, { &back_text, "f_back" } };
    if (tensor_type)
        return DVNP_READY;
    PyObject *modules = PySys_GetObject("modules"), *module = modules ? PyDict_GetItemString(modules, "mindspore") : NULL;
    if (!module || !PyObject_HasAttrString(module, "ops") || dvnp_setup_or_raise(false) != DVNP_READY)
        return PyErr_Occurred() ? DVNP_RAISED : DVNP_NOT_IMPORTED;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        Py_XDECREF(*parts[i].to);
        if (!(*parts[i].to = python_import_path(parts[i].module, parts[i].path)))
            return DVNP_RAISED;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i].to && !(*texts[i].to = PyUnicode_InternFromString(texts[i].text)))
            return DVNP_RAISED;
    only_cpu = mindspore_is_cpu_only();
    tensor_type = (PyTypeObject *)python_import_path(
        "mindspore", "Tensor"); /* set last, since another thread may test it while Python code runs here */
    return tensor_type ? DVNP_READY : DVNP_RAISED;
}

/* True for mindspore.Tensor and its subclasses; false for all until MindSpore's functions were found. */
static bool mindspore_is_tensor(PyObject *o)
{
    return tensor_type && (Py_IS_TYPE(o, tensor_type) || PyType_IsSubtype(Py_TYPE(o), tensor_type));
}

static enum ext_kind mindspore_classify_type(PyTypeObject *type)
{
    return mindspore_setup_or_raise() == DVNP_READY && PyType_IsSubtype(type, tensor_type) ? EXT_KIND_TENSOR : EXT_KIND_NONE;
}

/* ---- Element types ------------------------------------------------------------------------------------------------------- */

/* True if MindSpore's name of a type, "Float8E4M3FN", up to a space, is Dovetail's long name, "float8_e4m3fn", without
 * underscores and case. A short name, "f8e4m3fn", is not. */
static bool dtype_names_are_equal(const char *mindspore_name, const char *dovetail_long_name)
{
    while (*mindspore_name && *mindspore_name != ' ') {
        while (*dovetail_long_name == '_')
            dovetail_long_name++;
        const char c = *mindspore_name >= 'A' && *mindspore_name <= 'Z' ? (char)(*mindspore_name - 'A' + 'a') : *mindspore_name;
        if (c != *dovetail_long_name)
            return false;
        mindspore_name++, dovetail_long_name++;
    }
    return !*dovetail_long_name;
}

/* Returns dv_dtype_key() of one of MindSpore's types; 0, without an exception: Dovetail has no such element type. */
static uint32_t dtype_get_key(PyObject *type)
{
    for (size_t i = 0; i < ndtypes; i++)
        if (dtypes[i].type == type)
            return dtypes[i].key;
    PyObject *text = PyObject_Str(type);
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const dv_dtype_row *row = NULL;
    for (size_t i = 0; name && (row = dv_dtype_at(i)) && !dtype_names_are_equal(name, dv_dtype_long_name(row->dtype)); i++) {
    }
    PyErr_Clear();
    Py_XDECREF(text);
    if (row && ndtypes < MAX_DTYPES) {
        dtypes[ndtypes].type = Py_NewRef(type);
        dtypes[ndtypes++].key = dv_dtype_key(row->dtype);
    }
    return row ? dv_dtype_key(row->dtype) : 0;
}

/* ext_host.read_dtype: converts one of MindSpore's types, or anything that numpy.dtype() accepts. Returns 0, or -1. */
static int mindspore_read_dtype(PyObject *o, dv_dtype *out)
{
    const uint32_t key = mindspore_setup_or_raise() == DVNP_READY ? dtype_get_key(o) : 0;
    *out = dv_dtype_from_key(key);
    return key ? 0 : dvnp_read_dtype(o, out);
}

/* ext_host.make_dtype_object: returns a new reference to MindSpore's type, such as mindspore.float32 for f32; NULL with an
 * exception. */
static PyObject *mindspore_make_dtype_object(dv_dtype dtype)
{
    if (mindspore_setup_or_raise() != DVNP_READY)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ImportError, "MindSpore is not imported");
    for (size_t i = 0; i < ndtypes; i++)
        if (dtypes[i].key == dv_dtype_key(dtype))
            return Py_NewRef(dtypes[i].type);
    PyObject *found = PyObject_GetAttrString(dtype_module, dv_dtype_long_name(dtype));
    if (found && dtype_get_key(found) == dv_dtype_key(dtype))
        return found;
    Py_XDECREF(found);
    return PyErr_Format(PyExc_TypeError, "MindSpore has no element type like %s", dv_dtype_name(dtype));
}

/* ---- Tensors that exist -------------------------------------------------------------------------------------------------- */

/* Copies the ints of a tuple or list to numbers_out. Returns 0, or -1 with an exception. */
static int numbers_from_sequence(PyObject *sequence, int64_t *numbers_out)
{
    const bool list = PyList_Check(sequence);
    const Py_ssize_t n = list ? PyList_Size(sequence) : PyTuple_Size(sequence);
    for (Py_ssize_t i = 0; i < n; i++)
        numbers_out[i] = PyLong_AsLongLong(list ? PyList_GetItem(sequence, i) : PyTuple_GetItem(sequence, i));
    return PyErr_Occurred() ? -1 : 0;
}

/* Sets *out to the device of a tensor. Returns NULL, or the reason why Dovetail cannot use the tensor. */
static const char *mindspore_read_device_or_get_reason(PyObject *o, dv_device *out)
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

/* Returns the description of a tensor, in memory of the call. NULL with an exception, or with *why set. For a tensor on an NPU,
 * waits for all of MindSpore's streams: MindSpore's kernels and allocations are asynchronous, and the operator's kernel runs on
 * another stream. */
static dv_tensor *call_describe_tensor(ext_call *c, PyObject *o, const char **why)
{
    dv_tensor *t = NULL;
    dv_device device;
    if ((*why = mindspore_read_device_or_get_reason(o, &device)))
        return NULL;
    PyObject *waited = device.type == DV_CPU ? NULL : python_call_with(wait_for_device, NULL);
    if (device.type != DV_CPU && !waited)
        return NULL;
    PyObject *type = PyObject_GetAttr(o, dtype_text), *steps = python_call_with(strides_of, o),
             *address = python_call_with(get_data_ptr, o);
    PyObject *shape = PyObject_GetAttr(o, shape_text);
    const uint32_t key = type ? dtype_get_key(type) : 0;
    if (!type || !steps || !address || !shape)
        goto done;
    if (!key && (*why = "a tensor of an element type that operators do not know"))
        goto done;
    const size_t n = (size_t)PyTuple_Size(shape);
    if (PyErr_Occurred() || !(t = ext_call_alloc(c, sizeof *t + (2 * n + 1) * sizeof(int64_t))))
        goto done;
    int64_t *numbers_of = (int64_t *)(void *)(t + 1);
    *t = (dv_tensor){ .data = PyLong_AsVoidPtr(address),
        .device = device,
        .ndim = (int32_t)n,
        .dtype = dv_dtype_from_key(key),
        .shape = numbers_of,
        .strides = numbers_of + n };
    if (numbers_from_sequence(shape, numbers_of) || numbers_from_sequence(steps, numbers_of + n))
        t = NULL;
done:
    Py_XDECREF(waited);
    Py_XDECREF(type);
    Py_XDECREF(steps);
    Py_XDECREF(address);
    Py_XDECREF(shape);
    return t;
}

/* ---- New tensors --------------------------------------------------------------------------------------------------------- */

/* Returns a new Tensor that shares an array's memory, and takes the array. NULL with an exception, also for array NULL. */
static PyObject *tensor_new_over_array(PyObject *take_array)
{
    PyObject *o = take_array ? python_call_with(from_numpy, take_array) : NULL;
    Py_XDECREF(take_array);
    return o;
}

/* Returns a new tuple of n ints; NULL with an exception. */
static PyObject *tuple_from_numbers(int32_t n, const int64_t *values)
{
    PyObject *tuple = PyTuple_New(n);
    for (int32_t i = 0; tuple && i < n; i++)
        PyTuple_SetItem(
            tuple, i, PyLong_FromLongLong(values[i])); /* a failed conversion leaves an exception, which is tested below */
    return tuple && PyErr_Occurred() ? Py_DECREF(tuple), NULL : tuple;
}

/* Returns a new view with any strides of tensor x, by MindSpore's own operator; offset: in elements of x's storage. NULL with an
 * exception. */
static PyObject *tensor_new_strided_view(PyObject *x, int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t offset)
{
    PyObject *sizes = tuple_from_numbers(ndim, shape), *steps = tuple_from_numbers(ndim, strides), *o = NULL;
    if (sizes && steps)
        o = PyObject_CallFunction(as_strided, "OOOL", x, sizes, steps, (long long)offset);
    Py_XDECREF(sizes);
    Py_XDECREF(steps);
    return o;
}

/* True for element types that NumPy itself lacks: bf16 and floats of less than 16 bits, by DLPack's codes. */
static bool dtype_is_not_in_numpy(dv_dtype dtype) { return dtype.code == 4 || dtype.code > 6; }

/* Returns a new Tensor with a copy of these elements; data NULL: uninitialised. NULL with an exception. */
static PyObject *tensor_new_from_bytes(const void *data, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    const dv_tensor t = { .ndim = ndim, .shape = shape };
    PyObject *type = mindspore_make_dtype_object(dtype), *sizes = tuple_from_numbers(ndim, shape), *made = NULL, *o;
    PyObject *bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)dv_dtype_bytes(dtype, dv_numel(&t)));
    if (type && sizes && bytes)
        made = PyObject_CallFunctionObjArgs(from_bytes, bytes, sizes, type, NULL); /* an object of the base class TensorPy */
    o = made ? python_call_with((PyObject *)tensor_type, made) : NULL;
    Py_XDECREF(made);
    Py_XDECREF(type);
    Py_XDECREF(sizes);
    Py_XDECREF(bytes);
    return o;
}

/* Returns a new uninitialised contiguous Tensor on the NPU; MindSpore uses one NPU in a process. NULL with an exception. */
static PyObject *tensor_new_on_npu(dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    PyObject *type = mindspore_make_dtype_object(dtype), *sizes = tuple_from_numbers(ndim, shape), *o = NULL;
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

/* Returns a new uninitialised contiguous Tensor on a device. NULL with an exception. */
static PyObject *tensor_new_contiguous(dv_device device, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    if (device.type == DV_NPU)
        return tensor_new_on_npu(dtype, ndim, shape);
    PyObject *type = mindspore_make_dtype_object(dtype); /* for the error */
    Py_XDECREF(type);
    return !type                       ? NULL
        : dtype_is_not_in_numpy(dtype) ? tensor_new_from_bytes(NULL, dtype, ndim, shape)
                                       : tensor_new_over_array(dvnp_new_array(dtype, ndim, shape, NULL));
}

/* True if the strides are those of a contiguous tensor, or NULL. */
static bool layout_is_contiguous(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    const dv_tensor t = { .ndim = ndim, .shape = shape, .strides = strides };
    return !strides || dv_tensor_is_contiguous(&t);
}

/* Returns a new uninitialised Tensor with these strides. NULL with an exception. */
static PyObject *tensor_new_strided(dv_device device, dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    if (layout_is_contiguous(ndim, shape, strides))
        return tensor_new_contiguous(device, dtype, ndim, shape);
    int64_t n = 1; /* the number of elements up to the last one in memory */
    for (int32_t i = 0; i < ndim; i++)
        n = shape[i] ? n + (shape[i] - 1) * strides[i] : n;
    PyObject *all = tensor_new_contiguous(device, dtype, 1, &n),
             *o = all ? tensor_new_strided_view(all, ndim, shape, strides, 0) : NULL;
    Py_XDECREF(all);
    return o;
}

/* Stores a Tensor as the object of a result, and describes it in *out. Takes the object; NULL, or a Tensor that cannot be used,
 * fails. Returns a status. */
static int call_set_result(ext_call *c, int result_index, PyObject *take, dv_tensor **out)
{
    const char *why = NULL;
    dv_tensor *t = take ? call_describe_tensor(c, take, &why) : NULL;
    if (!t) {
        Py_XDECREF(take);
        return why ? dv_fail(DV_EHOST, "%s: result %d: %s", c->f->name, result_index, why) : DV_EHOST;
    }
    Py_XDECREF(c->result_objects[result_index]);
    c->result_objects[result_index] = take;
    c->result_tensors[result_index] = *t;
    *out = &c->result_tensors[result_index];
    return DV_OK;
}

/* Makes a contiguous result: a Tensor over a new array. If the Tensor keeps the array alive, its memory is the array's, and is
 * described from the array, which is faster. Returns a status. */
static int call_set_new_array_result(
    ext_call *c, int result_index, dv_dtype dtype, int32_t ndim, const int64_t *shape, dv_tensor **out)
{
    int64_t *dims = ext_call_alloc(c, (size_t)(ndim ? 2 * ndim : 1) * sizeof *dims);
    PyObject *type = mindspore_make_dtype_object(dtype); /* for the error */
    PyObject *array = type && dims ? dvnp_new_array(dtype, ndim, shape, NULL) : NULL,
             *o = array ? python_call_with(from_numpy, array) : NULL;
    dv_tensor *t = &c->result_tensors[result_index];
    const bool kept = o && Py_REFCNT(array) > 1 && !dvnp_describe_or_get_reason(array, true, dims, t);
    Py_XDECREF(type);
    Py_XDECREF(array);
    if (!kept)
        return call_set_result(c, result_index, o, out);
    Py_XDECREF(c->result_objects[result_index]);
    c->result_objects[result_index] = o;
    *out = t;
    return DV_OK;
}

/* dv_host.new_tensor: makes a Tensor for a result that is a tensor, else a tensor of the library, on the CPU only. Returns a
 * status. */
static int mindspore_new_tensor(const dv_host *host, int result_index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    const bool npu = device.type == DV_NPU;
    if (!npu && device.type != DV_CPU)
        return dv_fail(DV_EDEVICE, "%s: a result on %s (Dovetail makes MindSpore's tensors on the CPU and on Ascend)", c->f->name,
            dv_device_name(device.type));
    if (npu && result_index < 0)
        return dv_fail(DV_ENOTSUP,
            "%s: its kernel needs a contiguous copy of a tensor on Ascend, and Dovetail makes none in MindSpore: give it "
            "x.contiguous()",
            c->f->name);
    if (npu && !ext_is_result_tensor(c, result_index))
        return dv_fail(DV_ENOTSUP, "%s: result %d is a list of tensors, which Dovetail makes on the CPU only in MindSpore",
            c->f->name, result_index);
    if (!ext_is_result_tensor(c, result_index))
        return ext_tensor_new(dtype, ndim, shape, strides, out);
    const ext_gil g = ext_acquire_gil(c);
    const int status = !npu && !dtype_is_not_in_numpy(dtype) && layout_is_contiguous(ndim, shape, strides)
        ? call_set_new_array_result(c, result_index, dtype, ndim, shape, out)
        : call_set_result(c, result_index, tensor_new_strided(device, dtype, ndim, shape, strides), out);
    ext_release_gil(g);
    return status;
}

/* Returns a new view of the argument `owner`, whose tensor is `base`, that begins at an address in its memory. NULL with an
 * exception. */
static PyObject *tensor_new_view_at_address(
    PyObject *owner, const dv_tensor *base, const void *address, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    PyObject *start = PyObject_CallMethod(owner, "storage_offset", NULL);
    const int64_t first = start ? PyLong_AsLongLong(start) : 0, bytes = (const char *)address - (const char *)base->data;
    Py_XDECREF(start);
    return start ? tensor_new_strided_view(owner, ndim, shape, strides, first + bytes / (base->dtype.bits / 8)) : NULL;
}

/* dv_host.new_view: makes a view of base. A view that is a result becomes a Tensor, and base must then be a passed Tensor.
 * Returns a status. */
static int mindspore_new_view(const dv_host *host, int result_index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    if (result_index < 0)
        return dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    const ext_gil g = ext_acquire_gil(c);
    PyObject *owner = ext_find_owner(c, base, NULL, NULL);
    int status;
    if (!owner || !mindspore_is_tensor(owner))
        status = dv_fail(
            DV_ENOTSUP, "%s: result %d is a view of something that is not one of MindSpore's tensors", c->f->name, result_index);
    else if (!ext_is_result_tensor(
                 c, result_index)) /* the result is an element of a list: mindspore_wrap_tensor() makes the Tensor later */
        status = dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    else
        status = call_set_result(c, result_index,
            tensor_new_view_at_address(
                owner, base, (const char *)base->data + offset * (base->dtype.bits / 8), ndim, shape, strides),
            out);
    ext_release_gil(g);
    return status;
}

/* ext_host.wrap_tensor: returns a Tensor over a tensor that the library made, and takes the tensor; of types that NumPy lacks,
 * the Tensor has a copy. A view of an argument becomes a view of that Tensor. NULL with an exception. */
static PyObject *mindspore_wrap_tensor(ext_call *c, dv_tensor *take)
{
    const dv_tensor *base;
    PyObject *owner = ext_find_owner(c, NULL, take->data, &base);
    if (owner && mindspore_is_tensor(owner)) {
        PyObject *view = tensor_new_view_at_address(owner, base, take->data, take->ndim, take->shape, take->strides);
        dv_tensor_unref(take);
        return view;
    }
    PyObject *type = mindspore_make_dtype_object(take->dtype), *o = NULL, *capsule = NULL;
    if (type && dtype_is_not_in_numpy(take->dtype))
        o = tensor_new_from_bytes(take->data, take->dtype, take->ndim, take->shape);
    else if (type && (capsule = ext_make_tensor_capsule(take)))
        o = tensor_new_over_array(dvnp_new_array_over(take, capsule, true));
    if (!capsule)
        dv_tensor_unref(take);
    Py_XDECREF(capsule);
    Py_XDECREF(type);
    return o;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

/* Returns true if the object is true, and takes the object; false for NULL or an exception. */
static bool python_take_is_true(PyObject *take)
{
    const bool yes = take && PyObject_IsTrue(take) == 1;
    Py_XDECREF(take);
    return yes;
}

/* True if the object's attribute `name` is a str equal to text; false for object NULL. */
static bool python_attribute_equals_text(PyObject *object, PyObject *name, const char *text)
{
    PyObject *found = object ? PyObject_GetAttr(object, name) : NULL;
    const bool same = found && PyUnicode_Check(found) && !PyUnicode_CompareWithASCIIString(found, text);
    Py_XDECREF(found);
    return same;
}

/* True if MindSpore makes a graph, and calls the operator meanwhile. A graph of ms.jit evaluates calls of foreign operators as
 * Python text, takes the result for a constant and drops writes; a trace calls the operator once. Sources: eval_script() and
 * jit_context() in mindspore/graph. */
static bool mindspore_is_graph_running(void)
{
    PyObject *frame = (PyObject *)(void *)PyEval_GetFrame(), *back = NULL, *code = NULL, *trace = python_call_with(tracing, NULL);
    bool graph = trace && trace != Py_None;
    Py_XDECREF(trace);
    if (frame && !graph) {
        code = (PyObject *)(void *)PyFrame_GetCode((PyFrameObject *)(void *)frame);
        if (python_attribute_equals_text(code, file_text, "<string>") && (back = PyObject_GetAttr(frame, back_text)) &&
            back != Py_None) {
            Py_DECREF(code);
            code = (PyObject *)(void *)PyFrame_GetCode((PyFrameObject *)(void *)back);
            graph = python_attribute_equals_text(code, name_text, "eval_script");
        }
    }
    Py_XDECREF(code);
    Py_XDECREF(back);
    return graph;
}

/* ext_host.begin_call: fills the call's dv_host and waits for MindSpore's pending operators. Fails while MindSpore makes a graph.
 */
static enum ext_outcome mindspore_begin_call(ext_call *c)
{
    static const dv_host tensors = { .size = sizeof(dv_host),
        .name = "mindspore",
        .new_tensor = mindspore_new_tensor,
        .new_view = mindspore_new_view,
        .free_tensor = ext_free_tensor,
        .random = ext_draw_random,
        .before_kernel = ext_before_kernel,
        .after_kernel = ext_after_kernel };
    c->host = tensors;
    c->host.test = ext_get_test_hooks();
    if (c->purpose == EXT_MATCH_TYPES)
        return EXT_OK;
    if (mindspore_is_graph_running()) {
        PyErr_Format(PyExc_RuntimeError, "%s: %U", c->f->name, in_graph_text);
        return EXT_ABORT;
    }
    c->path = python_take_is_true(python_call_with(
        is_recording_gradients, NULL)); /* not 0: call_dispatcher() makes the call once all arguments are converted */
    PyObject *waited = PyErr_Occurred() ? NULL : python_call_with(wait_for_all, NULL);
    Py_XDECREF(waited);
    return waited ? EXT_OK : EXT_ABORT;
}

static enum ext_outcome mindspore_describe_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool is_written, const dv_tensor **out)
{
    if (!mindspore_is_tensor(o))
        return ext_convert_foreign(c, slot, element, o, is_written, out);
    if (c->purpose == EXT_MATCH_TYPES)
        return EXT_OK;
    const char *why = NULL;
    const dv_tensor *t = call_describe_tensor(c, o, &why);
    if (!t)
        return why ? ext_fail_argument_text(c, slot, element, element < 0 ? NULL : "Tensor", why) : EXT_FAILED;
    c->passed_numel += dv_numel(t);
    *out = t;
    return EXT_OK;
}

/* ext_host.call_dispatcher: makes the call by dovetail.mindspore, which records it for gradients. */
static PyObject *mindspore_call_dispatcher(ext_call *c, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return ext_call_bridge(c->host_table, c->f, args, EXT_NARGS(nargsf), kwnames);
}

/* ---- Other objects ------------------------------------------------------------------------------------------------------- */

/* ext_host.describe: returns "a mindspore.Tensor of Float32 with shape (2,)"; NULL for another object. */
static PyObject *mindspore_describe_object(PyObject *o)
{
    if (!mindspore_is_tensor(o))
        return NULL;
    PyObject *type = PyObject_GetAttr(o, dtype_text), *shape = PyObject_GetAttr(o, shape_text);
    PyObject *text = type && shape ? PyUnicode_FromFormat("a mindspore.Tensor of %S with shape %S", type, shape) : NULL;
    Py_XDECREF(type);
    Py_XDECREF(shape);
    return text;
}

/* ext_host.get_number_kind: returns the kind of number in a tensor without dims: 'i', 'u', 'f', 'c' or 'b'. 0: the tensor has
 * dims. */
static char mindspore_get_number_kind(PyObject *o)
{
    PyObject *shape = PyObject_GetAttr(o, shape_text), *type = PyObject_GetAttr(o, dtype_text);
    const dv_dtype t = dv_dtype_from_key(type ? dtype_get_key(type) : 0);
    const char letter = t.code < 7 ? "iufffcb"[t.code] : 'f'; /* by DLPack's codes */
    const bool single = shape && PyTuple_Size(shape) == 0;
    ext_try_clear_error();
    Py_XDECREF(shape);
    Py_XDECREF(type);
    return single ? letter : 0;
}

/* ext_host.get_items: returns a tensor without dims as a Python number, one of one dim as a list; NULL for more dims. */
static PyObject *mindspore_get_items(PyObject *o)
{
    PyObject *shape = PyObject_GetAttr(o, shape_text), *list = NULL;
    if (shape && PyTuple_Size(shape) < 2)
        list = PyObject_CallMethod(o, "tolist", NULL);
    Py_XDECREF(shape);
    return list;
}

const ext_host ext_host_mindspore = { .name = "mindspore",
    .tensor_noun = "a mindspore.Tensor",
    .classify_type = mindspore_classify_type,
    .begin_call = mindspore_begin_call,
    .describe_tensor = mindspore_describe_tensor,
    .wrap_tensor = mindspore_wrap_tensor,
    .call_dispatcher = mindspore_call_dispatcher,
    .describe = mindspore_describe_object,
    .get_number_kind = mindspore_get_number_kind,
    .get_items = mindspore_get_items,
    .read_dtype = mindspore_read_dtype,
    .make_dtype_object = mindspore_make_dtype_object };
