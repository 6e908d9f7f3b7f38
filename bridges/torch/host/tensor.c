#include "tensor.h"
#include "dovetail_op.h"

#include <dlfcn.h>
#include <stdio.h>

enum { IMPL_SIZE = 208, STORAGE_SIZE = 64, MAX_SAMPLES = 64 }; /* no TensorImpl is larger, and no StorageImpl smaller */

const struct dv__torch_inside *dvt;
const struct dv__torch_shims *dvt_shims;

static PyTypeObject *tensor_type, *parameter_type;
static PyObject *(*variable_wrap)(const void *tensor);                        /* THPVariable_Wrap(const at::TensorBase &) */
static PyObject *(*variable_take)(void *tensor);                              /* THPVariable_Wrap(at::TensorBase &&) */
static void (*scalar_slow)(void *result, const void *self, PyObject *object); /* torch::PythonArgs::scalar_slow */
static size_t handle_offset;
static struct dv__torch_layout layout;
static enum { UNTRIED, ON, OFF } state;
static char why[160];

/* ---- Setup --------------------------------------------------------------------------------------------------------------- */

static PyTypeObject *type_named(const char *module, const char *name)
{
    PyObject *m = PyImport_ImportModule(module), *type = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    if (type && !PyType_Check(type)) {
        PyErr_Format(PyExc_TypeError, "%s.%s is not a type", module, name);
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

int dvt_attach(const struct dv__torch_inside *inside)
{
    if (dvt)
        return 0;
    PyTypeObject *tensor = type_named("torch", "Tensor"), *parameter = tensor ? type_named("torch.nn", "Parameter") : NULL;
    if (!parameter || !inside->shims()) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, dv_last_error());
        Py_XDECREF((PyObject *)tensor);
        Py_XDECREF((PyObject *)parameter);
        return -1;
    }
    void *python = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    void *wrap = python ? dlsym(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE") : NULL;
    void *take = python ? dlsym(python, "_Z16THPVariable_WrapON2at10TensorBaseE") : NULL;
    void *slow = python ? dlsym(python, "_ZN5torch10PythonArgs11scalar_slowEP7_object") : NULL;
    memcpy(&variable_wrap, &wrap, sizeof wrap);
    memcpy(&variable_take, &take, sizeof take);
    memcpy(&scalar_slow, &slow, sizeof slow);
    tensor_type = tensor;
    parameter_type = parameter;
    dvt_shims = inside->shims();
    dvt = inside;
    return 0;
}

/* One of what probe.run() gives: (tensor, address of its TensorImpl, key set, address of its StorageImpl or 0, kind); and what
 * libtorch's shims say of it. */
typedef struct sample {
    PyObject *tensor;
    unsigned long long impl, keys, storage;
    int kind, dtype;
    int64_t ndim, offset, *sizes, *strides;
    const char *memory; /* of the storage */
} sample;
enum kind {
    OTHER,
    ORDINARY,
    INFERENCE,
    GRADIENT,
    CHECKED /* ordinary, but only torch may read its address */,
    EMPTY /* ordinary, no memory */
};

static const char *impl_of(const sample *s) { return (const char *)(uintptr_t)s->impl; }
static const char *storage_of(const sample *s) { return (const char *)(uintptr_t)s->storage; }

/* The only offset, in bytes, at which every sample has its expected value; 0: none, or several. */
static size_t only_place(
    const sample *s, size_t n, size_t begin, size_t end, size_t step, bool (*fits)(const sample *s, size_t place))
{
    size_t found = 0, count = 0;
    for (size_t place = begin; place < end; place += step) {
        bool all = true;
        for (size_t i = 0; i < n && all; i++)
            all = fits(&s[i], place);
        if (all && !count++)
            found = place;
    }
    return count == 1 ? found : 0;
}
enum { HEAD = 16 }; /* an object and an impl begin with a pointer and a count */
static bool is_handle(const sample *s, size_t place) { return dv__torch_word(s->tensor, place) == s->impl; }
static bool is_keys(const sample *s, size_t place) { return dv__torch_word(impl_of(s), place) == s->keys; }
static bool is_storage(const sample *s, size_t place) { return !s->storage || dv__torch_word(impl_of(s), place) == s->storage; }
static bool is_autograd(const sample *s, size_t place)
{
    const uint64_t w = dv__torch_word(impl_of(s), place); /* a pointer, or NULL */
    return s->kind == OTHER || (s->kind == GRADIENT ? w && !(w & 7) : !w);
}

/* The fields that dv__torch_read() reads. After the number of dims come the sizes and strides of up to five dims, or a pointer to
 * more. */
static bool is_ndim(const sample *s, size_t place)
{
    const char *at = impl_of(s) + place;
    if (s->kind == OTHER)
        return true;
    if (dv__torch_word(at, 0) != (uint64_t)s->ndim)
        return false;
    const size_t n = (size_t)s->ndim * 8;
    const char *sizes = n > 40 ? (const char *)s->sizes : at + 8, *strides = sizes + (n > 40 ? n : 40);
    if (n > 40 && dv__torch_word(at, 8) != (uint64_t)(uintptr_t)s->sizes)
        return false;
    return !memcmp(sizes, s->sizes, n) && !memcmp(strides, s->strides, n);
}
static bool is_offset(const sample *s, size_t place)
{
    return s->kind == OTHER || dv__torch_word(impl_of(s), place) == (uint64_t)s->offset;
}
static bool is_dtype(const sample *s, size_t place)
{
    uint16_t number;
    memcpy(&number, impl_of(s) + place, sizeof number);
    return s->kind == OTHER || number == s->dtype;
}
static bool is_memory(const sample *s, size_t place)
{
    return s->kind == OTHER || s->kind == EMPTY || dv__torch_word(storage_of(s), place) == (uint64_t)(uintptr_t)s->memory;
}
static bool is_check(const sample *s, size_t place) { return s->kind == OTHER || storage_of(s)[place] == (s->kind == CHECKED); }

/* Fills in what the shims say. */
static bool ask(sample *s)
{
    void *handle = (char *)(void *)s->tensor + handle_offset;
    const void *data;
    if (s->kind == OTHER)
        return true;
    if (dvt_shims->aoti_torch_get_dim(handle, &s->ndim) || dvt_shims->aoti_torch_get_sizes(handle, &s->sizes) ||
        dvt_shims->aoti_torch_get_strides(handle, &s->strides) || dvt_shims->aoti_torch_get_dtype(handle, &s->dtype) ||
        dvt_shims->aoti_torch_get_storage_offset(handle, &s->offset) || dvt_shims->torch_get_const_data_ptr(handle, &data) ||
        s->dtype < 0 || s->dtype >= DV_TORCH_MAX_DTYPE)
        return false;
    s->memory = (const char *)data - s->offset * (dv_dtype_from_key(dvt_shims->dtype_key[s->dtype]).bits / 8);
    return true;
}

/* Every sample must be classified as its kind requires. Gradients are on during this test. */
static bool guard_is_right(const sample *s, size_t n)
{
    static const enum dv__torch_way expected[] = { DV__TORCH_OTHER, DV__TORCH_PLAIN, DV__TORCH_PLAIN, DV__TORCH_GRADIENT,
        DV__TORCH_PLAIN, DV__TORCH_PLAIN };
    for (size_t i = 0; i < n; i++) {
        const void *handle = (const char *)(const void *)s[i].tensor + handle_offset;
        const bool ordinary = s[i].kind == ORDINARY || s[i].kind == CHECKED || s[i].kind == EMPTY;
        if (dvt->way_of(handle, false) != expected[s[i].kind] ||
            dvt->way_of(handle, true) != (ordinary ? DV__TORCH_PLAIN : DV__TORCH_OTHER))
            return false;
    }
    return dvt->python_is_plain();
}

/* Find the fields that dv__torch_read() reads. If one is not found, the shims are called instead. */
static void find_memory(sample *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!ask(&s[i]))
            return;
    const size_t ndim = only_place(s, n, HEAD, IMPL_SIZE - 88, 8, is_ndim);
    layout.offset = only_place(s, n, HEAD, IMPL_SIZE, 8, is_offset);
    layout.dtype = only_place(s, n, HEAD, IMPL_SIZE, 2, is_dtype);
    layout.data = only_place(s, n, HEAD, STORAGE_SIZE, 8, is_memory);
    layout.checked = layout.data ? only_place(s, n, layout.data + 24, STORAGE_SIZE, 1, is_check)
                                 : 0; /* it comes after memory, owner and deleter */
    for (int32_t i = 0; i < DV_TORCH_MAX_DTYPE; i++)
        if (dvt_shims->dtype_key[i])
            layout.dtypes[i] = dv_dtype_from_key(dvt_shims->dtype_key[i]);
    layout.ndim = layout.offset && layout.dtype && layout.checked ? ndim : 0;
}

/* Find the rest of the layout, beside what is known of dispatch keys. */
static const char *find_layout(sample *s, size_t n, size_t object_words, const struct dv__torch_layout *known)
{
    layout = *known;
    handle_offset = only_place(s, n, HEAD, 8 * object_words, 8, is_handle);
    layout.key_set = only_place(s, n, HEAD, IMPL_SIZE, 8, is_keys);
    layout.autograd_meta = only_place(s, n, HEAD, IMPL_SIZE, 8, is_autograd);
    layout.storage = only_place(s, n, HEAD, IMPL_SIZE, 8, is_storage);
    if (!handle_offset || !layout.key_set || !layout.autograd_meta || !layout.storage)
        return "the layout of this torch's tensors was not recognised";
    if (!layout.inference_mode[0] || !layout.inference_mode[1] || !layout.below[0] || !layout.below[1])
        return "the dispatch keys of threads were not recognised";
    find_memory(s, n);
    dvt->guard_set(&layout);
    if (guard_is_right(s, n))
        return NULL;
    dvt->guard_set(NULL);
    return "the guard did not tell plain tensors from others";
}

int dvt_learn(PyObject *probed)
{
    sample samples[MAX_SAMPLES];
    unsigned long long inference[2], below[2], ordinary[DV__TORCH_DEVICES], inferred[DV__TORCH_DEVICES];
    PyObject *list;
    Py_ssize_t words;
    if (!dvt ||
        !PyArg_ParseTuple(probed, "O!n(KK)KK(KKK)(KKK)", &PyList_Type, &list, &words, &inference[0], &inference[1], &below[0],
            &below[1], &ordinary[0], &ordinary[1], &ordinary[2], &inferred[0], &inferred[1], &inferred[2]))
        return -1;
    const Py_ssize_t n = PyList_Size(list);
    for (Py_ssize_t i = 0; i < n && i < MAX_SAMPLES; i++) {
        sample *s = &samples[i];
        *s = (sample){ .kind = OTHER };
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "OKKKi", &s->tensor, &s->impl, &s->keys, &s->storage, &s->kind))
            return -1;
    }
    struct dv__torch_layout known = { .inference_mode = { inference[0], inference[1] }, .below = { below[0], below[1] } };
    for (int d = 0; d < DV__TORCH_DEVICES; d++) {
        known.ordinary[d] = ordinary[d];
        known.inference[d] = inferred[d];
    }
    const char *reason = n > MAX_SAMPLES || words < 0 ? "too many samples"
                                                      : find_layout(samples, (size_t)n, (size_t)words, &known);
    if (reason)
        PyErr_SetString(PyExc_RuntimeError, reason);
    return reason ? -1 : 0;
}

static void turn_off(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *shown = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    snprintf(why, sizeof why, "%s", shown ? shown : "no samples");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static bool set_up(void)
{
    const uint64_t *keys = dvt->thread_keys();
    state = OFF; /* operators that are called while samples are made see this, too */
    if (!variable_wrap || !keys || !dvt_shims->requires_grad || !dvt_shims->bump_version || !dvt_shims->function_modes ||
        !dvt_shims->has_callbacks) {
        snprintf(why, sizeof why, "this torch lacks a symbol that the fast path needs");
        return false;
    }
    if (keys[0] | keys[1] || dvt_shims->function_modes()) {
        state = UNTRIED; /* a mode would see the samples: try again later */
        return false;
    }
    PyObject *module = PyImport_ImportModule("dovetail.torch.probe");
    PyObject *result = module ? PyObject_CallMethod(module, "run", NULL) : NULL;
    Py_XDECREF(module);
    if (!result && PyErr_ExceptionMatches(PyExc_Exception))
        turn_off();
    else
        state = result && Py_IsTrue(result) ? ON : UNTRIED;
    Py_XDECREF(result);
    return state == ON;
}

bool dvt_setup(void) { return state == ON || (state == UNTRIED && dvt && set_up()); }

const char *dvt_why(void) { return why; }

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

bool dvt_is_exact(PyObject *o) { return tensor_type && (Py_IS_TYPE(o, tensor_type) || Py_IS_TYPE(o, parameter_type)); }

bool dvt_is_tensor(PyObject *o) { return dvt_is_exact(o) || (tensor_type && PyType_IsSubtype(Py_TYPE(o), tensor_type)); }

/* torch.Tensor, if torch has been imported. Looked up again until it is found. */
static PyTypeObject *any_tensor_type(void)
{
    static PyTypeObject *type;
    if (type)
        return type;
    PyObject *modules = PySys_GetObject("modules"), *torch = modules ? PyDict_GetItemString(modules, "torch") : NULL;
    PyObject *found = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
    if (found && PyType_Check(found))
        return type = (PyTypeObject *)found;
    PyErr_Clear();
    Py_XDECREF(found);
    return NULL;
}

enum ext_kind dvt_kind(PyTypeObject *type)
{
    PyTypeObject *tensor = any_tensor_type();
    if (!tensor || PyType_IsSubtype(type, tensor))
        return tensor ? EXT_TENSOR : EXT_NOTHING;
    /* An object that overrides torch functions (such as a Proxy of torch.fx) belongs to torch, whatever attributes it seems to
     * have. */
    PyObject *function = ext_optional_attribute((PyObject *)type, "__torch_function__");
    Py_XDECREF(function);
    return function ? EXT_TENSOR : EXT_NOTHING;
}

void *dvt_handle(PyObject *tensor) { return (char *)(void *)tensor + handle_offset; }

uint64_t dvt_below(uint64_t *keys, int which)
{
    const uint64_t before = keys[1];
    keys[1] |= layout.below[which];
    return before;
}

PyObject *dvt_wrap(const void *handle) { return variable_wrap(handle); }

/* Passing ownership of a tensor avoids changing its reference count twice. */
PyObject *dvt_wrap_taken(void *take)
{
    PyObject *o = variable_take ? variable_take(take) : variable_wrap(take);
    dvt_shims->aoti_torch_delete_tensor_object(take);
    return o;
}

enum dv__torch_way dvt_way_of(PyObject *o, bool written)
{
    if (!dvt_is_exact(o))
        return DV__TORCH_OTHER;
    const void *impl = *(void **)dvt_handle(o);
    if (dv__torch_word(impl, layout.key_set) == layout.ordinary[0] &&
        !dv__torch_word(impl, layout.autograd_meta)) /* nearly always */
        return DV__TORCH_PLAIN;
    return dvt->way_of(dvt_handle(o), written);
}

bool dvt_read(const void *handle, dv_tensor *t) { return dv__torch_read_at(&layout, handle, t); }

/* ---- Exceptions ------------------------------------------------------------
 *
 * scalar_slow() takes any object that is not a tensor, an int or a complex for a float, and throws python_error when
 * PyFloat_AsDouble() fails.
 * So it gets an object whose __float__ raises the exception that is to be thrown. */

typedef struct thrower {
    PyObject ob_base;
    PyObject *type, *value, *trace;
} thrower;

static PyObject *raise_it(PyObject *self)
{
    thrower *t = (thrower *)(void *)self;
    PyErr_Restore(t->type, t->value, t->trace);
    t->type = t->value = t->trace = NULL;
    return NULL;
}
static void free_thrower(PyObject *self)
{
    thrower *t = (thrower *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(t->type);
    Py_XDECREF(t->value);
    Py_XDECREF(t->trace);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}
static PyType_Slot thrower_slots[] = { { Py_nb_float, (void *)raise_it }, { Py_tp_dealloc, (void *)free_thrower }, { 0, NULL } };
static PyType_Spec thrower_spec = { "dovetail._core.Thrower", sizeof(thrower), 0, Py_TPFLAGS_DEFAULT, thrower_slots };

static void drop(PyObject **o) { Py_XDECREF(*o); }

/* The fallback if torch lacks scalar_slow: a RuntimeError with the text. */
static void throw_text(PyObject *type, PyObject *value)
{
    __attribute__((cleanup(drop))) PyObject *text = PyUnicode_FromFormat("%S: %S", type, value);
    const char *shown = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyErr_Clear();
    dvt_shims->aoti_torch_check(false, "dovetail", "dovetail", 0, shown ? shown : "an exception");
}

void dvt_rethrow(void)
{
    static PyTypeObject *thrower_type;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!thrower_type)
        thrower_type = (PyTypeObject *)PyType_FromSpec(&thrower_spec);
    __attribute__((cleanup(drop))) PyObject *object = thrower_type ? PyType_GenericAlloc(thrower_type, 0) : NULL;
    thrower *t = (thrower *)(void *)object;
    if (t) {
        t->type = type;
        t->value = value;
        t->trace = trace;
    }
    if (t && scalar_slow) {
        _Alignas(16) static const char arguments[1024]; /* a PythonArgs that is not looked at */
        _Alignas(16) char scalar[64];
        scalar_slow(scalar, arguments, object);
    }
    PyErr_Clear();
    throw_text(type, value);
}
