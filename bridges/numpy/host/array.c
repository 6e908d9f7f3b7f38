/* Access to the fields of NumPy's structs, whose offsets are tested at setup. Element types are found by NumPy's type_num: a
 * built-in type by a table, and a type that the package ml_dtypes has registered by its name, once, since its number differs
 * between processes. */
#include "array.h"

#include <stdio.h>

typedef struct array_fields { /* the part of NumPy's PyArrayObject_fields that is read */
    PyObject ob_base;
    char *data;
    int nd;
    const int64_t *dimensions, *strides; /* npy_intp; strides in bytes */
    PyObject *base;
    struct descr_fields *descr;
    int flags;
} array_fields;

typedef struct descr_fields { /* the part of NumPy's PyArray_Descr that is equal in 1.x and 2.x */
    PyObject ob_base;
    PyTypeObject *typeobj;
    char kind, type, byteorder, former_flags;
    int type_num;
} descr_fields;

enum { FLAG_OWNDATA = 4, FLAG_ALIGNED = 0x100, FLAG_WRITEABLE = 0x400 }; /* NPY_ARRAY_* */
enum { API_VERSION = 0, API_NEW = 93, API_SET_BASE = 282 };              /* indices in NumPy's C-API table */
enum { MAX_BUILTIN_TYPES = 24, MAX_USER_TYPES = 32, FIRST_USER_TYPE = 256 };

typedef PyObject *(*array_new_fn)(PyTypeObject *, int, const int64_t *, int, const int64_t *, void *, int, int, PyObject *);

_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8, "npy_intp is read as int64_t, and long as 64 bits");

PyTypeObject *dvnp_ndarray, *dvnp_generic;
static PyTypeObject *masked_array_type;
static array_new_fn array_new;
static int (*array_set_base)(PyObject *array, PyObject *take_base);
static PyObject *numpy;
static PyObject *ndarray_protocols[2]; /* ndarray's __array_ufunc__ and __array_function__ */
static char setup_error[256];

static const char *const protocols[2] = { "__array_ufunc__", "__array_function__" };

/* dv_dtype_key() by NumPy's type_num of a built-in type; 0: no tensor can have elements of this type. */
static const uint32_t builtin_types[MAX_BUILTIN_TYPES] = {
    DV_DTYPE_bool, DV_DTYPE_i8, DV_DTYPE_u8, DV_DTYPE_i16, DV_DTYPE_u16, DV_DTYPE_i32, DV_DTYPE_u32, /* bool, byte ... uint */
    DV_DTYPE_i64, DV_DTYPE_u64, DV_DTYPE_i64, DV_DTYPE_u64,        /* long, ulong, longlong, ulonglong */
    DV_DTYPE_f32, DV_DTYPE_f64, 0, DV_DTYPE_c64, DV_DTYPE_c128, 0, /* ..., longdouble; clongdouble */
    0, 0, 0, 0, 0, 0, DV_DTYPE_f16                                 /* object ... timedelta, half */
};

/* True if an array of the package ml_dtypes can have this element type, with DLPack's layout: elements of whole bytes. ml_dtypes'
 * int4, float4 and float6 take a byte each, unlike DLPack's, and are left out. */
static bool array_is_ml_dtypes_type(dv_dtype dtype) { return (dtype.code == 4 || dtype.code >= 7) && dtype.bits % 8 == 0; }

static struct {
    int type_num;
    uint32_t key;
} user_types[MAX_USER_TYPES]; /* the types seen so far, with dv_dtype_key(); key 0: no tensor can have elements of the type */
static size_t nuser_types;

static PyObject *array_import_attribute(
    const char *module, const char *name) /* returns a new reference to module.name; NULL with an exception */
{
    PyObject *m = PyImport_ImportModule(module), *a = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    return a;
}

/* ---- Setup --------------------------------------------------------------------------------------------------------------- */

/* True if o.name.subattribute is the number `expected`; subattribute NULL: if o.name is. */
static bool array_has_number(PyObject *o, const char *name, const char *subattribute, int64_t expected)
{
    PyObject *a = PyObject_GetAttrString(o, name), *b = a && subattribute ? PyObject_GetAttrString(a, subattribute) : NULL;
    PyObject *number = subattribute ? b : a;
    const bool same = number && PyLong_AsLongLong(number) == expected;
    PyErr_Clear();
    Py_XDECREF(a);
    Py_XDECREF(b);
    return same;
}

/* True if every field that is read from arrays has the value of Python's attribute, on an array in which all these numbers
 * differ. */
static bool array_has_expected_layout(void)
{
    PyObject *sample = PyObject_CallMethod(numpy, "ones", "((iii)s)", 5, 7, 11, "int16");
    PyObject *swapped = sample ? PyObject_CallMethod(sample, "swapaxes", "ii", 0, 2) : NULL;
    PyObject *transposed = swapped ? PyObject_GetAttrString(swapped, "T") : NULL;
    PyObject *view = swapped ? PyObject_CallMethod(swapped, "reshape", "(iii)", 11, 7, 5) : NULL;
    bool ok = view && transposed;
    if (ok) {
        const array_fields *a = (const array_fields *)(void *)sample, *s = (const array_fields *)(void *)swapped;
        ok = a->nd == 3 && a->dimensions[0] == 5 && a->dimensions[1] == 7 && a->dimensions[2] == 11 && a->strides[0] == 154 &&
            a->strides[1] == 22 && a->strides[2] == 2 && s->dimensions[0] == 11 && s->strides[0] == 2 && s->strides[2] == 154 &&
            s->data == a->data && *(const int16_t *)(void *)a->data == 1 && s->base == sample && (a->flags & FLAG_OWNDATA) &&
            !(s->flags & FLAG_OWNDATA) && array_has_number(sample, "flags", "num", a->flags) && (a->flags & FLAG_WRITEABLE) &&
            (a->flags & FLAG_ALIGNED) && array_has_number(sample, "dtype", "num", a->descr->type_num) && a->descr->kind == 'i' &&
            a->descr->byteorder == '=';
    }
    if (ok) {
        PyObject *none = PyObject_CallMethod(sample, "setflags", "i", 0); /* write = False */
        ok = none && !(((const array_fields *)(void *)sample)->flags & FLAG_WRITEABLE);
        Py_XDECREF(none);
    }
    PyErr_Clear();
    Py_XDECREF(sample);
    Py_XDECREF(swapped);
    Py_XDECREF(transposed);
    Py_XDECREF(view);
    return ok;
}

/* Finds the functions that are used of NumPy's C-API table. Returns 0, or -1 with an exception. */
static int array_load_api(void)
{
    PyObject *capsule = array_import_attribute("numpy._core._multiarray_umath", "_ARRAY_API");
    if (!capsule) {
        PyErr_Clear();
        capsule = array_import_attribute("numpy.core._multiarray_umath", "_ARRAY_API"); /* NumPy 1 */
    }
    if (!capsule)
        return -1;
    void **api = PyCapsule_GetPointer(capsule, NULL);
    Py_DECREF(capsule); /* the table is static */
    if (!api)
        return -1;
    unsigned (*version)(void) = NULL;
    memcpy(&version, &api[API_VERSION], sizeof version);
    const unsigned abi = version();
    if (abi >> 24 != 1 && abi >> 24 != 2) {
        PyErr_Format(PyExc_ImportError, "dovetail knows NumPy's C ABI 1 and 2, this is %x", abi);
        return -1;
    }
    memcpy(&array_new, &api[API_NEW], sizeof array_new);
    memcpy(&array_set_base, &api[API_SET_BASE], sizeof array_set_base);
    return 0;
}

enum dvnp_setup dvnp_setup_or_raise(bool may_import)
{
    if (dvnp_ndarray)
        return DVNP_READY;
    if (!may_import) {
        PyObject *modules = PySys_GetObject("modules"); /* borrowed */
        if (!modules || !PyDict_GetItemString(modules, "numpy"))
            return DVNP_NOT_IMPORTED;
    }
    PyObject *array_type = NULL;
    if (!(numpy = PyImport_ImportModule("numpy"))) {
        if (!may_import && PyErr_ExceptionMatches(PyExc_ImportError))
            return PyErr_Clear(), DVNP_NOT_IMPORTED;
        return DVNP_RAISED;
    }
    if (!(array_type = PyObject_GetAttrString(numpy, "ndarray"))) {
        PyErr_Clear(); /* NumPy is still being imported, or another module has this name */
        Py_CLEAR(numpy);
        return DVNP_NOT_IMPORTED;
    }
    for (int i = 0; i < 2; i++) {
        Py_XDECREF(ndarray_protocols[i]);
        if (!(ndarray_protocols[i] = PyObject_GetAttrString(array_type, protocols[i])))
            goto fail;
    }
    if (!(dvnp_generic = (PyTypeObject *)PyObject_GetAttrString(numpy, "generic")) || array_load_api())
        goto fail;
    if (!array_has_expected_layout()) {
        PyErr_SetString(PyExc_ImportError, "dovetail does not know the layout of this NumPy's arrays");
        goto fail;
    }
    dvnp_ndarray =
        (PyTypeObject *)array_type; /* set last, since another thread may test this variable while Python code runs here */
    return DVNP_READY;
fail:
    Py_DECREF(array_type);
    Py_CLEAR(dvnp_generic);
    Py_CLEAR(numpy);
    return DVNP_RAISED;
}

/* ---- Element types ------------------------------------------------------------------------------------------------------- */

/* Returns dv_dtype_key() of a type that a package has registered in NumPy, and remembers it; 0: the type is not of ml_dtypes, or
 * no tensor can have it. */
static uint32_t array_find_user_type_key(const descr_fields *descr)
{
    for (size_t i = 0; i < nuser_types; i++)
        if (user_types[i].type_num == descr->type_num)
            return user_types[i].key;
    uint32_t key = 0;
    size_t i = 0;
    PyObject *name = PyObject_GetAttrString((PyObject *)descr->typeobj, "__name__");
    PyObject *module = PyObject_GetAttrString((PyObject *)descr->typeobj, "__module__");
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const char *from = module ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
    if (text && from && !strncmp(from, "ml_dtypes", 9))
        for (const dv_dtype_row *row; !key && (row = dv_dtype_at(i)); i++)
            if (array_is_ml_dtypes_type(row->dtype) && !strcmp(dv_dtype_long_name(row->dtype), text))
                key = dv_dtype_key(row->dtype);
    PyErr_Clear();
    Py_XDECREF(name);
    Py_XDECREF(module);
    if (nuser_types < MAX_USER_TYPES) {
        user_types[nuser_types].type_num = descr->type_num;
        user_types[nuser_types++].key = key;
    }
    return key;
}

/* Returns dv_dtype_key() of a numpy.dtype; 0: no tensor can have elements of this type, or the bytes are swapped. */
static uint32_t array_get_dtype_key(const descr_fields *descr)
{
    if (descr->byteorder == '>')
        return 0;
    if ((unsigned)descr->type_num < MAX_BUILTIN_TYPES)
        return builtin_types[descr->type_num];
    return descr->type_num >= FIRST_USER_TYPE ? array_find_user_type_key(descr) : 0;
}

/* Returns NumPy's type_num of an element type, which imports ml_dtypes if necessary; -1 with an exception. */
static int array_find_type_num(dv_dtype dtype)
{
    const uint32_t key = dv_dtype_key(dtype);
    for (int i = 0; i < MAX_BUILTIN_TYPES; i++)
        if (builtin_types[i] == key)
            return i;
    for (size_t i = 0; i < nuser_types; i++)
        if (user_types[i].key == key)
            return user_types[i].type_num;
    if (!array_is_ml_dtypes_type(dtype)) {
        PyErr_Format(PyExc_TypeError, "NumPy has no element type like %s", dv_dtype_name(dtype));
        return -1;
    }
    PyObject *type = array_import_attribute("ml_dtypes", dv_dtype_long_name(dtype)),
             *descr = type ? PyObject_CallMethod(numpy, "dtype", "O", type) : NULL;
    Py_XDECREF(type);
    if (!descr) {
        PyErr_Format(PyExc_TypeError, "an array of %s needs the package ml_dtypes", dv_dtype_name(dtype));
        return -1;
    }
    const int number = ((const descr_fields *)(void *)descr)->type_num;
    array_find_user_type_key((const descr_fields *)(void *)descr);
    Py_DECREF(descr); /* NumPy keeps registered types */
    return number;
}

int dvnp_read_dtype(PyObject *dtype_like, dv_dtype *out)
{
    PyObject *descr = PyObject_CallMethod(numpy, "dtype", "O", dtype_like);
    if (!descr)
        return -1;
    const uint32_t key = array_get_dtype_key((const descr_fields *)(void *)descr);
    if (!key)
        PyErr_Format(PyExc_TypeError, "%S is not an element type that a tensor can have", descr);
    *out = dv_dtype_from_key(key);
    Py_DECREF(descr);
    return key ? 0 : -1;
}

PyObject *dvnp_make_dtype_object(dv_dtype dtype)
{
    static const int64_t empty = 0;
    const int type_num = array_find_type_num(dtype);
    PyObject *a = type_num < 0 ? NULL : array_new(dvnp_ndarray, 1, &empty, type_num, NULL, NULL, 0, 0, NULL);
    PyObject *descr = a ? PyObject_GetAttrString(a, "dtype") : NULL;
    Py_XDECREF(a);
    return descr;
}

/* ---- Views --------------------------------------------------------------------------------------------------------------- */

bool dvnp_is_array(PyObject *o)
{
    return dvnp_ndarray && (Py_IS_TYPE(o, dvnp_ndarray) || PyType_IsSubtype(Py_TYPE(o), dvnp_ndarray));
}

int dvnp_get_ndim(PyObject *array) { return ((const array_fields *)(void *)array)->nd; }

bool dvnp_is_writeable(PyObject *array) { return ((const array_fields *)(void *)array)->flags & FLAG_WRITEABLE; }

/* Returns the reason why arrays of this dtype are refused, as the end of "expected Tensor, found ...". */
static const char *array_explain_bad_dtype(const array_fields *a)
{
    PyObject *descr = (PyObject *)a->descr, *text = PyObject_Str(descr);
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (a->descr->byteorder == '>')
        snprintf(setup_error, sizeof setup_error, "an array of byte-swapped dtype %s (use .astype(dtype.newbyteorder('=')))",
            name ? name : "?");
    else
        snprintf(setup_error, sizeof setup_error, "an array of dtype %s, which no tensor can have", name ? name : "?");
    PyErr_Clear();
    Py_XDECREF(text);
    return setup_error;
}

/* True for numpy.ma.MaskedArray and its subclasses. They are refused, since their mask would be lost silently. */
static bool array_is_masked(PyObject *o)
{
    if (!masked_array_type) {
        PyObject *modules = PySys_GetObject("modules");
        PyObject *ma = modules ? PyDict_GetItemString(modules, "numpy.ma") : NULL;
        if (!ma || !(masked_array_type = (PyTypeObject *)PyObject_GetAttrString(ma, "MaskedArray")))
            return PyErr_Clear(), false;
    }
    return PyType_IsSubtype(Py_TYPE(o), masked_array_type);
}

/* Returns the reason why arrays of a subclass are refused: the subclass overrides a protocol. NULL: it overrides none. Such a
 * subclass gives its elements a meaning besides their values, such as a unit, which results would lose silently. */
static const char *array_explain_bad_subclass(PyTypeObject *type)
{
    for (int i = 0; i < 2; i++) {
        PyObject *found = PyObject_GetAttrString((PyObject *)type, protocols[i]);
        Py_XDECREF(found);
        if (found == ndarray_protocols[i])
            continue;
        PyErr_Clear();
        PyObject *name = PyType_GetQualName(type);
        const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
        snprintf(setup_error, sizeof setup_error,
            "an array of the subclass %.100s, whose own %s would be ignored (use .view(numpy.ndarray) for its plain numbers)",
            text ? text : "?", protocols[i]);
        PyErr_Clear();
        Py_XDECREF(name);
        return setup_error;
    }
    return NULL;
}

const char *dvnp_describe_or_get_reason(PyObject *array, bool is_written, int64_t *dims, dv_tensor *out)
{
    const char *why = NULL;
    if (__builtin_expect(!Py_IS_TYPE(array, dvnp_ndarray),
            0)) { /* tested first, before fields are read, since this test may run Python code of a metaclass */
        if (array_is_masked(array))
            return "a masked array, whose mask would be ignored (use .filled())";
        if ((why = array_explain_bad_subclass(Py_TYPE(array))))
            return why;
    }
    const array_fields *a = (const array_fields *)(void *)array;
    const uint32_t key = array_get_dtype_key(a->descr);
    if (!key)
        return array_explain_bad_dtype(a);
    if (is_written && !(a->flags & FLAG_WRITEABLE))
        return "a read-only array";
    if (!(a->flags & FLAG_ALIGNED))
        return "an array that is not aligned (use .copy())";
    const int64_t size = (int64_t)(key >> 8 & 255) / 8; /* a power of two */
    const int shift = __builtin_ctzll((uint64_t)size);
    int64_t *strides = dims + a->nd;
    for (int i = 0; i < a->nd; i++) {
        const int64_t bytes = a->strides[i];
        dims[i] = a->dimensions[i];
        if ((bytes & (size - 1)) && a->dimensions[i] > 1) {
            snprintf(setup_error, sizeof setup_error,
                "an array whose stride of dim %d, %lld bytes, is not a multiple of its element's %lld bytes (use .copy())", i,
                (long long)bytes, (long long)size);
            return setup_error;
        }
        strides[i] = bytes >> shift;
    }
    out->data = a->data;
    out->device.type = DV_CPU;
    out->device.id = 0;
    out->ndim = a->nd;
    out->dtype = dv_dtype_from_key(key);
    out->shape = dims;
    out->strides = strides;
    out->byte_offset = 0;
    return NULL;
}

/* Returns the number of bytes from the first element to the end of the element at the highest address. */
static int64_t array_measure_extent(const dv_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->ndim; i++) {
        if (!t->shape[i])
            return 0;
        last += t->strides[i] > 0 ? t->strides[i] * (t->shape[i] - 1) : 0;
    }
    return (last + 1) * (t->dtype.bits / 8);
}

/* Compares address and size only: assignments to shape, strides and dtype leave the memory unchanged. resize() and __setstate__()
 * replace the memory or change its size in place; only an array that owns its memory can be resized. */
const char *dvnp_recheck_or_get_reason(PyObject *array, bool is_written, const dv_tensor *t)
{
    const array_fields *a = (const array_fields *)(void *)array;
    const int64_t needed = array_measure_extent(t);
    int64_t size = a->flags & FLAG_OWNDATA ? (int64_t)(array_get_dtype_key(a->descr) >> 8 & 255) / 8 : needed;
    for (int i = 0; i < a->nd && (a->flags & FLAG_OWNDATA); i++)
        size *= a->dimensions[i];
    if (needed && (a->data != t->data || size < needed))
        return "an array whose memory was replaced while the other arguments were converted";
    return is_written && !(a->flags & FLAG_WRITEABLE) ? "a read-only array" : NULL;
}

/* ---- New arrays ---------------------------------------------------------------------------------------------------------- */

/* True if the strides are those of a contiguous array in C order; strides of dims of size 1 do not matter. */
static bool array_is_c_order(int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t expected = 1;
    for (int i = ndim; i-- > 0;) {
        if (shape[i] != 1 && strides[i] != expected)
            return false;
        expected *= shape[i];
    }
    return true;
}

PyObject *dvnp_new_array(dv_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t bytes[DVNP_MAX_NDIM], numel = 1, extent = 1;
    const int type_num = array_find_type_num(dtype);
    if (type_num < 0)
        return NULL;
    if (!strides || array_is_c_order(ndim, shape, strides))
        return array_new(dvnp_ndarray, ndim, shape, type_num, NULL, NULL, 0, 0, NULL);
    for (int i = 0; i < ndim; i++) {
        numel *= shape[i];
        extent += strides[i] * (shape[i] - 1);
        bytes[i] = strides[i] * (dtype.bits / 8);
    }
    if (numel && extent > numel) { /* NumPy would allocate memory for `numel` elements only */
        PyErr_SetString(PyExc_ValueError, "a result with gaps between its elements cannot be allocated as an array");
        return NULL;
    }
    return array_new(dvnp_ndarray, ndim, shape, type_num, numel ? bytes : NULL, NULL, 0, 0, NULL);
}

PyObject *dvnp_new_array_over(const dv_tensor *t, PyObject *base, bool writeable)
{
    int64_t bytes[DVNP_MAX_NDIM];
    const int type_num = array_find_type_num(t->dtype);
    if (type_num < 0)
        return NULL;
    for (int i = 0; i < t->ndim; i++)
        bytes[i] = t->strides[i] * (t->dtype.bits / 8);
    PyObject *a = array_new(dvnp_ndarray, t->ndim, t->shape, type_num, bytes, t->data, 0, writeable ? FLAG_WRITEABLE : 0, NULL);
    if (a && array_set_base(a, Py_NewRef(base)))
        Py_CLEAR(a);
    return a;
}

PyObject *dvnp_asarray(PyObject *o) { return PyObject_CallMethod(numpy, "asarray", "O", o); }
PyObject *dvnp_from_dlpack(PyObject *o) { return PyObject_CallMethod(numpy, "from_dlpack", "O", o); }
