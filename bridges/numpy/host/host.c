/* NumPy's host table: arrays are tensors and NumPy scalars are numbers. This host also makes the calls that have no tensor. */
#include "array.h"

/* Returns the host table of NumPy. */
static const ext_host *numpy_get_host(void) { return ext_hosts[EXT_HOST_numpy]; }

/* ext_host.classify_type: arrays are tensors, and NumPy scalars are numbers. */
static enum ext_kind numpy_classify_type(PyTypeObject *type)
{
    if (dvnp_setup_or_raise(false) != DVNP_READY)
        return EXT_KIND_NONE;
    return PyType_IsSubtype(type, dvnp_ndarray) ? EXT_KIND_TENSOR
        : PyType_IsSubtype(type, dvnp_generic)  ? EXT_KIND_NUMBER
                                                : EXT_KIND_NONE;
}

/* ---- Making arrays ------------------------------------------------------------------------------------------------------- */

/* Sets the error for an array that NumPy could not allocate, in place of NumPy's exception. The call adds operator and result to
 * the message. Returns DV_ENOMEM. */
static int numpy_fail_out_of_memory(dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int32_t i = 0; i < ndim; i++)
        n *= shape[i];
    PyErr_Clear();
    return dv_fail(DV_ENOMEM, "out of memory: an array of %lld bytes", (long long)dv_dtype_bytes(dtype, n));
}

/* Makes the array for a result, stores it in c->result_objects and describes it in *out. Returns a status. The GIL must be held.
 */
static int numpy_new_result_array(
    ext_call *c, int result_index, dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    if (dvnp_setup_or_raise(true) == DVNP_RAISED)
        return DV_EHOST;
    PyObject *array = dvnp_new_array(dtype, ndim, shape, strides);
    if (!array)
        return PyErr_ExceptionMatches(PyExc_MemoryError) ? numpy_fail_out_of_memory(dtype, ndim, shape) : DV_EHOST;
    dv_tensor *t = &c->result_tensors[result_index];
    int64_t *dims = ext_call_alloc(c, (size_t)(ndim ? 2 * ndim : 1) * sizeof *dims);
    const char *why = dims ? dvnp_describe_or_get_reason(array, true, dims, t) : "out of memory";
    if (why) {
        Py_DECREF(array);
        return DV_EHOST;
    }
    Py_XDECREF(c->result_objects[result_index]);
    c->result_objects[result_index] = array;
    *out = t;
    return DV_OK;
}

/* dv_host.new_tensor: makes an array for a result that is a tensor, else a tensor of the library. Returns a status. */
static int numpy_new_tensor(const dv_host *host, int result_index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    if (device.type != DV_CPU)
        return dv_fail(DV_EDEVICE, "%s: a result on %s cannot be an array", c->f->name, dv_device_name(device.type));
    if (!ext_is_result_tensor(c, result_index))
        return ext_tensor_new(dtype, ndim, shape, strides, out);
    const ext_gil g = ext_acquire_gil(c);
    const int status = numpy_new_result_array(c, result_index, dtype, ndim, shape, strides, out);
    ext_release_gil(g);
    return status;
}

/* Returns the passed array whose tensor is t, borrowed; t NULL: the passed array that has an element at `address`. NULL: there is
 * no such array. */
static PyObject *numpy_find_owner_array(const ext_call *c, const dv_tensor *t, const void *address)
{
    PyObject *o = ext_find_owner(c, t, address, NULL);
    return o && dvnp_is_array(o) ? o : NULL;
}

/* Stores an array over the memory of `view`, which keeps the array of `base` alive, as the result's object. Returns a status. */
static int numpy_set_result_view(ext_call *c, int result_index, const dv_tensor *base, dv_tensor *view)
{
    PyObject *owner = numpy_find_owner_array(c, base, NULL);
    PyObject *array = dvnp_new_array_over(view, owner, dvnp_is_writeable(owner));
    if (!array)
        return DV_EHOST;
    Py_XDECREF(c->result_objects[result_index]);
    c->result_objects[result_index] = array;
    return DV_OK;
}

/* dv_host.new_view: makes a view of base. A view that is a result becomes an array, and base must then be a passed array. Returns
 * a status. */
static int numpy_new_view(const dv_host *host, int result_index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    ext_call *c = ext_call_of(host);
    *out = NULL;
    if (result_index < 0)
        return dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    const ext_gil g = ext_acquire_gil(c);
    int status = DV_ENOMEM;
    int64_t *dims = ext_call_alloc(c, (size_t)(ndim ? 2 * ndim : 2) * sizeof *dims);
    if (!numpy_find_owner_array(c, base, NULL)) {
        status = dv_fail(DV_ENOTSUP, "%s: result %d is a view of something that is not an array", c->f->name, result_index);
    } else if (!ext_is_result_tensor(
                   c, result_index)) { /* the result is an element of a list: numpy_wrap_tensor() makes the array later */
        status = dv_tensor_view((dv_tensor *)(uintptr_t)(const void *)base, ndim, shape, strides, offset, out);
    } else if (dims) {
        dv_tensor *t = &c->result_tensors[result_index];
        *t = *base;
        t->data = (char *)base->data + offset * (base->dtype.bits / 8);
        t->ndim = ndim;
        t->shape = memcpy(dims, shape, (size_t)ndim * sizeof *dims);
        t->strides = memcpy(dims + ndim, strides, (size_t)ndim * sizeof *dims);
        if (!(status = numpy_set_result_view(c, result_index, base, t)))
            *out = t;
    }
    ext_release_gil(g);
    return status;
}

/* ext_host.wrap_tensor: returns an array over a tensor that the library made, and takes the tensor. The array keeps the tensor
 * alive; a view of a passed array keeps that array instead. NULL with an exception. */
static PyObject *numpy_wrap_tensor(ext_call *c, dv_tensor *take)
{
    PyObject *owner = numpy_find_owner_array(c, NULL, take->data);
    if (owner) {
        PyObject *view = dvnp_new_array_over(take, owner, dvnp_is_writeable(owner));
        dv_tensor_unref(take);
        return view;
    }
    PyObject *capsule = ext_make_tensor_capsule(take);
    if (!capsule) {
        dv_tensor_unref(take);
        return NULL;
    }
    PyObject *array = dvnp_setup_or_raise(true) == DVNP_RAISED ? NULL : dvnp_new_array_over(take, capsule, true);
    Py_DECREF(capsule);
    return array;
}

/* ---- The call ------------------------------------------------------------------------------------------------------------ */

/* ext_host.begin_call: fills the call's dv_host. */
static enum ext_outcome numpy_begin_call(ext_call *c)
{
    static const dv_host arrays = { .size = sizeof(dv_host),
        .name = "numpy",
        .new_tensor = numpy_new_tensor,
        .new_view = numpy_new_view,
        .free_tensor = ext_free_tensor,
        .random = ext_draw_random,
        .before_kernel = ext_before_kernel,
        .after_kernel = ext_after_kernel };
    c->host = arrays;
    c->host.test = ext_get_test_hooks();
    return EXT_OK;
}

/* ext_host.describe_tensor: describes an array in *out; other objects are handled by ext_convert_foreign(). */
static enum ext_outcome numpy_describe_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool is_written, const dv_tensor **out)
{
    if (!dvnp_is_array(o))
        return ext_convert_foreign(c, slot, element, o, is_written, out);
    const int ndim = dvnp_get_ndim(o);
    dv_tensor *t = ext_call_alloc(c, sizeof *t + (size_t)(ndim ? 2 * ndim : 1) * sizeof(int64_t));
    if (!t)
        return EXT_FAILED;
    const char *why = dvnp_describe_or_get_reason(o, is_written, (int64_t *)(void *)(t + 1), t);
    if (__builtin_expect(why != NULL, 0))
        return ext_fail_argument_text(c, slot, element, element < 0 ? is_written ? "an array to write to" : NULL : "Tensor", why);
    c->passed_numel += dv_numel(t);
    *out = t;
    return EXT_OK;
}

/* ext_host.revalidate_tensor: fails if the array's memory was replaced, or the array became read-only. */
static enum ext_outcome numpy_revalidate_tensor(
    ext_call *c, const ext_slot *slot, Py_ssize_t element, PyObject *o, bool is_written, const dv_tensor **t)
{
    const char *why = dvnp_recheck_or_get_reason(o, is_written, *t);
    return !why ? EXT_OK : ext_fail_argument_text(c, slot, element, element < 0 ? NULL : "Tensor", why);
}

/* ext_host.import_object: returns a new array from a NumPy scalar, or over the memory of an object with __dlpack__. NULL with an
 * exception. */
static PyObject *numpy_import_object(PyObject *o)
{
    enum ext_kind kind_of;
    if (dvnp_setup_or_raise(true) == DVNP_RAISED)
        return NULL;
    return ext_find_host(o, &kind_of) == numpy_get_host() ? dvnp_asarray(o) : dvnp_from_dlpack(o);
}

/* ---- Other objects ------------------------------------------------------------------------------------------------------- */

/* ext_host.describe: returns "an array of float32 with shape (2,)"; NULL for an object that is not an array. */
static PyObject *numpy_describe_object(PyObject *o)
{
    if (!dvnp_is_array(o))
        return NULL;
    PyObject *dtype = PyObject_GetAttrString(o, "dtype"), *shape = PyObject_GetAttrString(o, "shape");
    PyObject *text = dtype && shape ? PyUnicode_FromFormat("an array of %S with shape %S", dtype, shape) : NULL;
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return text;
}

/* ext_host.get_number_kind: returns dtype.kind of a NumPy scalar or 0-d array: 'f', 'i', 'u', 'b' or 'c'. 0: an array with dims.
 * 'V': the object has no such kind. */
static char numpy_get_number_kind(PyObject *o)
{
    if (dvnp_is_array(o) && dvnp_get_ndim(o))
        return 0;
    PyObject *dtype = ext_get_optional_attribute(o, "dtype"), *letter = dtype ? ext_get_optional_attribute(dtype, "kind") : NULL;
    const char *text = letter && PyUnicode_Check(letter) ? PyUnicode_AsUTF8AndSize(letter, NULL) : NULL;
    const char found = text && *text ? *text : 'V';
    Py_XDECREF(dtype);
    Py_XDECREF(letter);
    return found;
}

/* ext_host.get_items: returns a NumPy scalar or 0-d array as a Python number, an array of one dim as a list; NULL for more dims.
 */
static PyObject *numpy_get_items(PyObject *o)
{
    return dvnp_is_array(o) && dvnp_get_ndim(o) > 1 ? NULL : PyObject_CallMethod(o, "tolist", NULL);
}

static int numpy_read_dtype(PyObject *o, dv_dtype *out)
{
    return dvnp_setup_or_raise(true) == DVNP_READY ? dvnp_read_dtype(o, out) : -1;
}

static PyObject *numpy_make_dtype_object(dv_dtype dtype)
{
    return dvnp_setup_or_raise(true) == DVNP_RAISED ? NULL : dvnp_make_dtype_object(dtype);
}

/* ext_host.draw_seed: draws a seed if o is a numpy.random.Generator. Returns 1; 0: o is not such a generator; -1 with an
 * exception.
 */
static int numpy_draw_seed_if_generator(PyObject *o, uint64_t *seed_out)
{
    PyObject *name = PyType_GetName(Py_TYPE(o)), *module = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__module__");
    const bool mine = name && module && PyUnicode_Check(module) && !PyUnicode_CompareWithASCIIString(name, "Generator") &&
        strstr(PyUnicode_AsUTF8AndSize(module, NULL), "numpy.random") != NULL;
    Py_XDECREF(name);
    Py_XDECREF(module);
    if (!ext_try_clear_error())
        return -1;
    PyObject *drawn = mine ? PyObject_CallMethod(o, "integers", "L", INT64_MAX) : NULL;
    if (drawn)
        *seed_out = PyLong_AsUnsignedLongLongMask(drawn);
    Py_XDECREF(drawn);
    return !mine ? 0 : drawn && !PyErr_Occurred() ? 1 : -1;
}

const ext_host ext_host_numpy = { .name = "numpy",
    .tensor_noun = "an array: use numpy.asarray()",
    .generator_noun = "numpy.random.Generator",
    .classify_type = numpy_classify_type,
    .begin_call = numpy_begin_call,
    .describe_tensor = numpy_describe_tensor,
    .revalidate_tensor = numpy_revalidate_tensor,
    .wrap_tensor = numpy_wrap_tensor,
    .import_object = numpy_import_object,
    .describe = numpy_describe_object,
    .get_number_kind = numpy_get_number_kind,
    .get_items = numpy_get_items,
    .read_dtype = numpy_read_dtype,
    .make_dtype_object = numpy_make_dtype_object,
    .draw_seed = numpy_draw_seed_if_generator };
