/* NumPy's host table: arrays are tensors and NumPy scalars are numbers. It also makes the calls without tensors. */
#include "array.h"

static const ext_host *this_host(void) { return ext_hosts[EXT_HOST_numpy]; }

static enum ext_kind kind(PyTypeObject *type)
{
    const int ready = dvnp_setup(false);
    if (ready <= 0)
        return EXT_NOTHING;
    return PyType_IsSubtype(type, dvnp_ndarray) ? EXT_TENSOR : PyType_IsSubtype(type, dvnp_generic) ? EXT_NUMBER : EXT_NOTHING;
}

/* ---- Making arrays ------------------------------------------------------------------------------------------------------- */

/* As an error of the call, which adds the operator and the result. */
static int out_of_memory(dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int32_t i = 0; i < ndim; i++)
        n *= shape[i];
    PyErr_Clear();
    return dv_fail(DV_ENOMEM, "out of memory: an array of %lld bytes", (long long)dv_dtype_bytes(dtype, n));
}

static int new_array(
    ext_call *c, int index, dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    if (dvnp_setup(true) < 0)
        return DV_EHOST;
    PyObject *array = dvnp_new(dtype, ndim, shape, strides);
    if (!array)
        return PyErr_ExceptionMatches(PyExc_MemoryError) ? out_of_memory(dtype, ndim, shape) : DV_EHOST;
    dv_tensor *t = &c->made_tensors[index];
    int64_t *own = ext_alloc(c, (size_t)(ndim ? 2 * ndim : 1) * sizeof *own);
    const char *why = own ? dvnp_view(array, true, own, t) : "out of memory";
    if (why) {
        Py_DECREF(array);
        return DV_EHOST;
    }
    Py_XDECREF(c->made[index]);
    c->made[index] = array;
    *out = t;
    return DV_OK;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    if (device.type != DV_CPU)
        return dv_fail(DV_EDEVICE, "%s: a result on %s cannot be an array", c->f->name, dv_device_name(device.type));
    if (!ext_is_tensor(c, index))
        return ext_tensor_new(dtype, ndim, shape, strides, out);
    const ext_gil g = ext_take_gil(c);
    const int status = new_array(c, index, dtype, ndim, shape, strides, out);
    ext_give_gil(g);
    return status;
}

static PyObject *array_of(const ext_call *c, const dv_tensor *t, const void *place)
{
    PyObject *o = ext_owner(c, t, place, NULL);
    return o && dvnp_is_array(o) ? o : NULL;
}

static int view_array(ext_call *c, int index, const dv_tensor *base, dv_tensor *t)
{
    PyObject *owner = array_of(c, base, NULL);
    PyObject *array = dvnp_wrap(t, owner, dvnp_is_writeable(owner));
    if (!array)
        return DV_EHOST;
    Py_XDECREF(c->made[index]);
    c->made[index] = array;
    return DV_OK;
}

static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    if (index < 0)
        return dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    const ext_gil g = ext_take_gil(c);
    int status = DV_ENOMEM;
    int64_t *own = ext_alloc(c, (size_t)(ndim ? 2 * ndim : 2) * sizeof *own);
    if (!array_of(c, base, NULL)) {
        status = dv_fail(DV_ENOTSUP, "%s: result %d is a view of something that is not an array", c->f->name, index);
    } else if (!ext_is_tensor(c, index)) { /* of a list: wrap() finds the array */
        status = dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    } else if (own) {
        dv_tensor *t = &c->made_tensors[index];
        *t = *base;
        t->data = (char *)base->data + offset * (base->dtype.bits / 8);
        t->ndim = ndim;
        t->shape = memcpy(own, shape, (size_t)ndim * sizeof *own);
        t->strides = memcpy(own + ndim, strides, (size_t)ndim * sizeof *own);
        if (!(status = view_array(c, index, base, t)))
            *out = t;
    }
    ext_give_gil(g);
    return status;
}

/* A tensor that the library made: the array keeps it. A view of an argument keeps the argument's array instead. */
static PyObject *wrap(ext_call *c, dv_tensor *take)
{
    PyObject *owner = array_of(c, NULL, take->data);
    if (owner) {
        PyObject *view = dvnp_wrap(take, owner, dvnp_is_writeable(owner));
        dv_tensor_unref(take);
        return view;
    }
    PyObject *capsule = ext_keep_tensor(take);
    if (!capsule) {
        dv_tensor_unref(take);
        return NULL;
    }
    PyObject *array = dvnp_setup(true) < 0 ? NULL : dvnp_wrap(take, capsule, true);
    Py_DECREF(capsule);
    return array;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

static enum ext_outcome begin(ext_call *c)
{
    static const dv_host arrays = { .size = sizeof(dv_host),
        .name = "numpy",
        .new_tensor = new_tensor,
        .new_view = new_view,
        .free_tensor = ext_free_tensor,
        .random = ext_random,
        .before_kernel = ext_before_kernel,
        .after_kernel = ext_after_kernel };
    c->host = arrays;
    c->host.test = ext_hooks();
    return EXT_OK;
}

static enum ext_outcome tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **out)
{
    if (!dvnp_is_array(o))
        return ext_other_tensor(c, slot, element, o, write, out);
    const int ndim = dvnp_ndim(o);
    dv_tensor *t = ext_alloc(c, sizeof *t + (size_t)(ndim ? 2 * ndim : 1) * sizeof(int64_t));
    if (!t)
        return EXT_FAILED;
    const char *why = dvnp_view(o, write, (int64_t *)(void *)(t + 1), t);
    if (__builtin_expect(why != NULL, 0))
        return ext_wrong_text(c, slot, element, element < 0 ? write ? "an array to write to" : NULL : "Tensor", why);
    c->elements += dv_numel(t);
    *out = t;
    return EXT_OK;
}

static enum ext_outcome recheck(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool write, const dv_tensor **t)
{
    const char *why = dvnp_recheck(o, write, *t);
    return !why ? EXT_OK : ext_wrong_text(c, slot, element, element < 0 ? NULL : "Tensor", why);
}

static PyObject *adopt(PyObject *o)
{
    enum ext_kind kind_of;
    if (dvnp_setup(true) < 0)
        return NULL;
    return ext_host_of(o, &kind_of) == this_host() ? dvnp_asarray(o) : dvnp_from_dlpack(o);
}

/* ---- Other objects ------------------------------------------------------------------------------------------------------- */

static PyObject *describe(PyObject *o)
{
    if (!dvnp_is_array(o))
        return NULL;
    PyObject *dtype = PyObject_GetAttrString(o, "dtype"), *shape = PyObject_GetAttrString(o, "shape");
    PyObject *text = dtype && shape ? PyUnicode_FromFormat("an array of %S with shape %S", dtype, shape) : NULL;
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return text;
}

static char number(PyObject *o)
{
    if (dvnp_is_array(o) && dvnp_ndim(o))
        return 0;
    PyObject *dtype = ext_optional_attribute(o, "dtype"), *letter = dtype ? ext_optional_attribute(dtype, "kind") : NULL;
    const char *text = letter && PyUnicode_Check(letter) ? PyUnicode_AsUTF8AndSize(letter, NULL) : NULL;
    const char found = text && *text ? *text : 'V';
    Py_XDECREF(dtype);
    Py_XDECREF(letter);
    return found;
}

static PyObject *items(PyObject *o)
{
    return dvnp_is_array(o) && dvnp_ndim(o) > 1 ? NULL : PyObject_CallMethod(o, "tolist", NULL);
}

static int dtype(PyObject *o, dv_dtype *out) { return dvnp_setup(true) > 0 ? dvnp_dtype(o, out) : -1; }

static PyObject *dtype_object(dv_dtype of) { return dvnp_setup(true) < 0 ? NULL : dvnp_dtype_object(of); }

static int seed(PyObject *o, uint64_t *out)
{
    PyObject *name = PyType_GetName(Py_TYPE(o)), *module = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__module__");
    const bool mine = name && module && PyUnicode_Check(module) && !PyUnicode_CompareWithASCIIString(name, "Generator") &&
        strstr(PyUnicode_AsUTF8AndSize(module, NULL), "numpy.random") != NULL;
    Py_XDECREF(name);
    Py_XDECREF(module);
    if (!ext_clear_error())
        return -1;
    PyObject *drawn = mine ? PyObject_CallMethod(o, "integers", "L", INT64_MAX) : NULL;
    if (drawn)
        *out = PyLong_AsUnsignedLongLongMask(drawn);
    Py_XDECREF(drawn);
    return !mine ? 0 : drawn && !PyErr_Occurred() ? 1 : -1;
}

const ext_host ext_host_numpy = { .name = "numpy",
    .tensor_title = "an array: use numpy.asarray()",
    .generator_title = "numpy.random.Generator",
    .kind = kind,
    .begin = begin,
    .tensor = tensor,
    .recheck = recheck,
    .wrap = wrap,
    .adopt = adopt,
    .describe = describe,
    .number = number,
    .items = items,
    .dtype = dtype,
    .dtype_object = dtype_object,
    .seed = seed };
