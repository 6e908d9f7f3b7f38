#include "tensor.h"
#include "dovetail_op.h"

#include <dlfcn.h>
#include <stdio.h>

/* In bytes: no TensorImpl is larger than MAX_IMPL_SIZE, and no StorageImpl smaller than MIN_STORAGE_SIZE. */
enum { MAX_IMPL_SIZE = 208, MIN_STORAGE_SIZE = 64, MAX_SAMPLES = 64 };

const struct dv__torch_functions *dvt;
const struct dv__torch_shims *dvt_shims;

static PyTypeObject *tensor_type, *parameter_type;
static PyObject *(*variable_wrap)(const void *tensor);                        /* THPVariable_Wrap(const at::TensorBase &) */
static PyObject *(*variable_take)(void *tensor);                              /* THPVariable_Wrap(at::TensorBase &&) */
static void (*scalar_slow)(void *result, const void *self, PyObject *object); /* torch::PythonArgs::scalar_slow */
static size_t handle_offset;
static struct dv__torch_layout guard_layout;
static enum { GUARD_UNTRIED, GUARD_ON, GUARD_OFF } guard_state;
static char guard_off_reason[160];

/* ---- Setup --------------------------------------------------------------------------------------------------------------- */

/* Imports a module and returns its attribute `name`, a type, as a new reference. NULL with an exception, also if the attribute is
 * no type. */
static PyTypeObject *tensor_import_type(const char *module, const char *name)
{
    PyObject *m = PyImport_ImportModule(module), *type = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    if (type && !PyType_Check(type)) {
        PyErr_Format(PyExc_TypeError, "%s.%s is not a type", module, name);
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

int dvt_set_functions_once(const struct dv__torch_functions *functions)
{
    if (dvt)
        return 0;
    PyTypeObject *tensor = tensor_import_type("torch", "Tensor"),
                 *parameter = tensor ? tensor_import_type("torch.nn", "Parameter") : NULL;
    if (!parameter || !functions->get_shims()) {
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
    dvt_shims = functions->get_shims();
    dvt = functions;
    return 0;
}

/* A sample tensor, whose fields are searched for in memory. probe.run() gives (tensor, address of its TensorImpl, key set,
 * address of its StorageImpl or 0, kind). libtorch's shims give the other fields. */
typedef struct sample {
    PyObject *tensor;
    unsigned long long impl, keys, storage;
    int kind, dtype;
    int64_t ndim, offset, *sizes, *strides;
    const char *memory; /* address of the storage's memory */
} sample;
enum kind {
    SAMPLE_OTHER,
    SAMPLE_PLAIN,
    SAMPLE_INFERENCE,
    SAMPLE_GRADIENT,
    SAMPLE_CHECKED /* a plain tensor, of which only torch may read the memory's address */,
    SAMPLE_EMPTY /* a plain tensor without memory */
};

/* Returns the address of the sample's c10::TensorImpl. */
static const char *sample_get_impl(const sample *s) { return (const char *)(uintptr_t)s->impl; }
/* Returns the address of the sample's c10::StorageImpl. */
static const char *sample_get_storage(const sample *s) { return (const char *)(uintptr_t)s->storage; }

/* Returns the only offset in bytes from begin to end, in steps, at which fits() is true for all n samples. 0: no offset fits, or
 * more than one. */
static size_t sample_find_common_offset(
    const sample *s, size_t n, size_t begin, size_t end, size_t step, bool (*fits)(const sample *s, size_t byte_offset))
{
    size_t found = 0, count = 0;
    for (size_t byte_offset = begin; byte_offset < end; byte_offset += step) {
        bool all = true;
        for (size_t i = 0; i < n && all; i++)
            all = fits(&s[i], byte_offset);
        if (all && !count++)
            found = byte_offset;
    }
    return count == 1 ? found : 0;
}
enum {
    HEAD_SIZE = 16
}; /* in bytes: a Python object and a TensorImpl begin with a pointer and a reference count, which are not searched */
static bool sample_has_handle_at(const sample *s, size_t byte_offset)
{
    return dv__torch_load_word(s->tensor, byte_offset) == s->impl;
}
static bool sample_has_keys_at(const sample *s, size_t byte_offset)
{
    return dv__torch_load_word(sample_get_impl(s), byte_offset) == s->keys;
}
static bool sample_has_storage_at(const sample *s, size_t byte_offset)
{
    return !s->storage || dv__torch_load_word(sample_get_impl(s), byte_offset) == s->storage;
}
static bool sample_has_autograd_at(const sample *s, size_t byte_offset)
{
    const uint64_t w = dv__torch_load_word(sample_get_impl(s), byte_offset); /* a pointer, or NULL */
    return s->kind == SAMPLE_OTHER || (s->kind == SAMPLE_GRADIENT ? w && !(w & 7) : !w);
}

/* True if the sample's number of dims lies at this offset of its TensorImpl, followed by its sizes and strides: in place for up
 * to five dims, behind a pointer for more. */
static bool sample_has_ndim_at(const sample *s, size_t byte_offset)
{
    const char *at = sample_get_impl(s) + byte_offset;
    if (s->kind == SAMPLE_OTHER)
        return true;
    if (dv__torch_load_word(at, 0) != (uint64_t)s->ndim)
        return false;
    const size_t n = (size_t)s->ndim * 8;
    const char *sizes = n > 40 ? (const char *)s->sizes : at + 8, *strides = sizes + (n > 40 ? n : 40);
    if (n > 40 && dv__torch_load_word(at, 8) != (uint64_t)(uintptr_t)s->sizes)
        return false;
    return !memcmp(sizes, s->sizes, n) && !memcmp(strides, s->strides, n);
}
static bool sample_has_offset_at(const sample *s, size_t byte_offset)
{
    return s->kind == SAMPLE_OTHER || dv__torch_load_word(sample_get_impl(s), byte_offset) == (uint64_t)s->offset;
}
static bool sample_has_dtype_at(const sample *s, size_t byte_offset)
{
    uint16_t number;
    memcpy(&number, sample_get_impl(s) + byte_offset, sizeof number);
    return s->kind == SAMPLE_OTHER || number == s->dtype;
}
static bool sample_has_data_address_at(const sample *s, size_t byte_offset)
{
    return s->kind == SAMPLE_OTHER || s->kind == SAMPLE_EMPTY ||
        dv__torch_load_word(sample_get_storage(s), byte_offset) == (uint64_t)(uintptr_t)s->memory;
}
static bool sample_has_checked_flag_at(const sample *s, size_t byte_offset)
{
    return s->kind == SAMPLE_OTHER || sample_get_storage(s)[byte_offset] == (s->kind == SAMPLE_CHECKED);
}

/* Sets a sample's dims, sizes, strides, dtype and memory by libtorch's shims. Returns false if a shim fails. */
static bool sample_try_read_by_shims(sample *s)
{
    void *handle = (char *)(void *)s->tensor + handle_offset;
    const void *data;
    if (s->kind == SAMPLE_OTHER)
        return true;
    if (dvt_shims->aoti_torch_get_dim(handle, &s->ndim) || dvt_shims->aoti_torch_get_sizes(handle, &s->sizes) ||
        dvt_shims->aoti_torch_get_strides(handle, &s->strides) || dvt_shims->aoti_torch_get_dtype(handle, &s->dtype) ||
        dvt_shims->aoti_torch_get_storage_offset(handle, &s->offset) || dvt_shims->torch_get_const_data_ptr(handle, &data) ||
        s->dtype < 0 || s->dtype >= DV_TORCH_MAX_DTYPE)
        return false;
    s->memory = (const char *)data - s->offset * (dv_dtype_from_key(dvt_shims->dtype_key[s->dtype]).bits / 8);
    return true;
}

/* True if the guard chooses for each of n samples the path that the sample's kind requires. Gradients must be enabled. */
static bool guard_is_right_for_samples(const sample *s, size_t n)
{
    static const enum dv__torch_path expected[] = { DV__TORCH_PATH_DISPATCHER, DV__TORCH_PATH_KERNEL, DV__TORCH_PATH_KERNEL,
        DV__TORCH_PATH_AUTOGRAD, DV__TORCH_PATH_KERNEL, DV__TORCH_PATH_KERNEL };
    for (size_t i = 0; i < n; i++) {
        const void *handle = (const char *)(const void *)s[i].tensor + handle_offset;
        const bool ordinary = s[i].kind == SAMPLE_PLAIN || s[i].kind == SAMPLE_CHECKED || s[i].kind == SAMPLE_EMPTY;
        if (dvt->choose_path(handle, false) != expected[s[i].kind] ||
            dvt->choose_path(handle, true) != (ordinary ? DV__TORCH_PATH_KERNEL : DV__TORCH_PATH_DISPATCHER))
            return false;
    }
    return dvt->is_python_thread_plain();
}

/* Sets the offsets in guard_layout of the fields that dv__torch_try_read_tensor() reads. If a field is not found,
 * guard_layout.ndim stays 0, and tensors are read by libtorch's shims. */
static void guard_set_memory_fields_if_found(sample *samples, size_t nsamples)
{
    for (size_t i = 0; i < nsamples; i++)
        if (!sample_try_read_by_shims(&samples[i]))
            return;
    const size_t ndim = sample_find_common_offset(samples, nsamples, HEAD_SIZE, MAX_IMPL_SIZE - 88, 8, sample_has_ndim_at);
    guard_layout.offset = sample_find_common_offset(samples, nsamples, HEAD_SIZE, MAX_IMPL_SIZE, 8, sample_has_offset_at);
    guard_layout.dtype = sample_find_common_offset(samples, nsamples, HEAD_SIZE, MAX_IMPL_SIZE, 2, sample_has_dtype_at);
    guard_layout.data = sample_find_common_offset(samples, nsamples, HEAD_SIZE, MIN_STORAGE_SIZE, 8, sample_has_data_address_at);
    guard_layout.is_checked = guard_layout.data
        ? sample_find_common_offset(samples, nsamples, guard_layout.data + 24, MIN_STORAGE_SIZE, 1, sample_has_checked_flag_at)
        : 0; /* in StorageImpl the flag comes after the address, the owner and the deleter */
    for (int32_t i = 0; i < DV_TORCH_MAX_DTYPE; i++)
        if (dvt_shims->dtype_key[i])
            guard_layout.dtypes[i] = dv_dtype_from_key(dvt_shims->dtype_key[i]);
    guard_layout.ndim = guard_layout.offset && guard_layout.dtype && guard_layout.is_checked ? ndim : 0;
}

/* Finds the offsets of fields on n samples and turns the guard on. known_keys: a layout with the dispatch keys only. Returns
 * NULL, or the reason why the guard stays off. */
static const char *guard_turn_on_or_get_reason(
    sample *s, size_t n, size_t object_words, const struct dv__torch_layout *known_keys)
{
    guard_layout = *known_keys;
    handle_offset = sample_find_common_offset(s, n, HEAD_SIZE, 8 * object_words, 8, sample_has_handle_at);
    guard_layout.key_set = sample_find_common_offset(s, n, HEAD_SIZE, MAX_IMPL_SIZE, 8, sample_has_keys_at);
    guard_layout.autograd_meta = sample_find_common_offset(s, n, HEAD_SIZE, MAX_IMPL_SIZE, 8, sample_has_autograd_at);
    guard_layout.storage = sample_find_common_offset(s, n, HEAD_SIZE, MAX_IMPL_SIZE, 8, sample_has_storage_at);
    if (!handle_offset || !guard_layout.key_set || !guard_layout.autograd_meta || !guard_layout.storage)
        return "the layout of this torch's tensors was not recognised";
    if (!guard_layout.inference_mode[0] || !guard_layout.inference_mode[1] || !guard_layout.excluded_below[0] ||
        !guard_layout.excluded_below[1])
        return "the dispatch keys of threads were not recognised";
    guard_set_memory_fields_if_found(s, n);
    dvt->set_guard_layout(&guard_layout);
    if (guard_is_right_for_samples(s, n))
        return NULL;
    dvt->set_guard_layout(NULL);
    return "the guard did not tell plain tensors from others";
}

int dvt_find_layout(PyObject *probe_result)
{
    sample samples[MAX_SAMPLES];
    unsigned long long inference[2], below[2], ordinary[DV__TORCH_DEVICES], inferred[DV__TORCH_DEVICES];
    PyObject *list;
    Py_ssize_t words;
    if (!dvt ||
        !PyArg_ParseTuple(probe_result, "O!n(KK)KK(KKK)(KKK)", &PyList_Type, &list, &words, &inference[0], &inference[1],
            &below[0], &below[1], &ordinary[0], &ordinary[1], &ordinary[2], &inferred[0], &inferred[1], &inferred[2]))
        return -1;
    const Py_ssize_t n = PyList_Size(list);
    for (Py_ssize_t i = 0; i < n && i < MAX_SAMPLES; i++) {
        sample *s = &samples[i];
        *s = (sample){ .kind = SAMPLE_OTHER };
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "OKKKi", &s->tensor, &s->impl, &s->keys, &s->storage, &s->kind))
            return -1;
    }
    struct dv__torch_layout known = { .inference_mode = { inference[0], inference[1] },
        .excluded_below = { below[0], below[1] } };
    for (int d = 0; d < DV__TORCH_DEVICES; d++) {
        known.plain_keys[d] = ordinary[d];
        known.inference_keys[d] = inferred[d];
    }
    const char *reason = n > MAX_SAMPLES || words < 0 ? "too many samples"
                                                      : guard_turn_on_or_get_reason(samples, (size_t)n, (size_t)words, &known);
    if (reason)
        PyErr_SetString(PyExc_RuntimeError, reason);
    return reason ? -1 : 0;
}

/* Clears the current exception, and stores its text as the reason why the fast path is off. */
static void guard_take_exception_as_reason(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *shown = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    snprintf(guard_off_reason, sizeof guard_off_reason, "%s", shown ? shown : "no samples");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Finds the layout of tensors on samples that dovetail.torch.probe makes. Returns true if the guard is on now. guard_state stays
 * UNTRIED if a dispatch mode would see the samples, or for an exception such as KeyboardInterrupt, which stays set. */
static bool guard_try_turn_on_by_probe(void)
{
    const uint64_t *keys = dvt->get_thread_keys();
    guard_state = GUARD_OFF; /* operators that are called while the samples are made must not take the fast path */
    if (!variable_wrap || !keys || !dvt_shims->requires_grad || !dvt_shims->bump_version || !dvt_shims->function_modes ||
        !dvt_shims->has_callbacks) {
        snprintf(guard_off_reason, sizeof guard_off_reason, "this torch lacks a symbol that the fast path needs");
        return false;
    }
    if (keys[0] | keys[1] || dvt_shims->function_modes()) {
        guard_state = GUARD_UNTRIED; /* a mode would see the samples being made: a later call tries again */
        return false;
    }
    PyObject *module = PyImport_ImportModule("dovetail.torch.probe");
    PyObject *result = module ? PyObject_CallMethod(module, "run", NULL) : NULL;
    Py_XDECREF(module);
    if (!result && PyErr_ExceptionMatches(PyExc_Exception))
        guard_take_exception_as_reason();
    else
        guard_state = result && Py_IsTrue(result) ? GUARD_ON : GUARD_UNTRIED;
    Py_XDECREF(result);
    return guard_state == GUARD_ON;
}

bool dvt_try_setup(void)
{
    return guard_state == GUARD_ON || (guard_state == GUARD_UNTRIED && dvt && guard_try_turn_on_by_probe());
}

const char *dvt_get_fast_path_off_reason(void) { return guard_off_reason; }

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

bool dvt_is_exact_tensor(PyObject *o) { return tensor_type && (Py_IS_TYPE(o, tensor_type) || Py_IS_TYPE(o, parameter_type)); }

bool dvt_is_tensor(PyObject *o) { return dvt_is_exact_tensor(o) || (tensor_type && PyType_IsSubtype(Py_TYPE(o), tensor_type)); }

/* Returns the type torch.Tensor, without importing torch; NULL if torch is not imported yet. A later call looks again. */
static PyTypeObject *tensor_find_imported_type(void)
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

enum ext_kind dvt_classify_type(PyTypeObject *type)
{
    PyTypeObject *tensor = tensor_find_imported_type();
    if (!tensor || PyType_IsSubtype(type, tensor))
        return tensor ? EXT_KIND_TENSOR : EXT_KIND_NONE;
    /* An object that overrides torch functions (such as a Proxy of torch.fx) belongs to torch, whatever attributes it seems to
     * have. */
    PyObject *function = ext_get_optional_attribute((PyObject *)type, "__torch_function__");
    Py_XDECREF(function);
    return function ? EXT_KIND_TENSOR : EXT_KIND_NONE;
}

void *dvt_get_handle(PyObject *tensor) { return (char *)(void *)tensor + handle_offset; }

uint64_t dvt_exclude_thread_keys_below(uint64_t *thread_keys, int level)
{
    const uint64_t before = thread_keys[1];
    thread_keys[1] |= guard_layout.excluded_below[level];
    return before;
}

PyObject *dvt_wrap_handle(const void *handle) { return variable_wrap(handle); }

/* The object takes over the tensor's reference, so the reference count does not change. */
PyObject *dvt_wrap_and_take_handle(void *take_handle)
{
    PyObject *o = variable_take ? variable_take(take_handle) : variable_wrap(take_handle);
    dvt_shims->aoti_torch_delete_tensor_object(take_handle);
    return o;
}

enum dv__torch_path dvt_choose_path(PyObject *o, bool is_written)
{
    if (!dvt_is_exact_tensor(o))
        return DV__TORCH_PATH_DISPATCHER;
    const void *impl = *(void **)dvt_get_handle(o);
    if (dv__torch_load_word(impl, guard_layout.key_set) == guard_layout.plain_keys[0] &&
        !dv__torch_load_word(
            impl, guard_layout.autograd_meta)) /* the most frequent case: a plain CPU tensor without autograd data */
        return DV__TORCH_PATH_KERNEL;
    return dvt->choose_path(dvt_get_handle(o), is_written);
}

bool dvt_try_read_tensor(const void *handle, dv_tensor *out)
{
    return dv__torch_try_read_tensor_with(&guard_layout, handle, out);
}

/* ---- Exceptions ------------------------------------------------------------
 *
 * torch's scalar_slow() converts any object that is not a tensor, an int or a complex to a float, and throws python_error if
 * PyFloat_AsDouble() fails. So scalar_slow() is called with an object whose __float__ raises the exception that is to be thrown.
 */

typedef struct raising_object {
    PyObject ob_base;
    PyObject *type, *value, *trace;
} raising_object;

/* __float__: raises the stored exception, and so always returns NULL. */
static PyObject *raising_object_raise(PyObject *self)
{
    raising_object *t = (raising_object *)(void *)self;
    PyErr_Restore(t->type, t->value, t->trace);
    t->type = t->value = t->trace = NULL;
    return NULL;
}
static void raising_object_dealloc(PyObject *self)
{
    raising_object *t = (raising_object *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(t->type);
    Py_XDECREF(t->value);
    Py_XDECREF(t->trace);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}
static PyType_Slot raising_object_slots[] = { { Py_nb_float, (void *)raising_object_raise },
    { Py_tp_dealloc, (void *)raising_object_dealloc }, { 0, NULL } };
static PyType_Spec raising_object_spec = { "dovetail._core.Thrower", sizeof(raising_object), 0, Py_TPFLAGS_DEFAULT,
    raising_object_slots };

static void py_decref_cleanup(PyObject **o) { Py_XDECREF(*o); }

/* Throws a c10::Error with the text of a Python exception, for a torch without scalar_slow(). */
static void tensor_throw_as_runtime_error(PyObject *type, PyObject *value)
{
    __attribute__((cleanup(py_decref_cleanup))) PyObject *text = PyUnicode_FromFormat("%S: %S", type, value);
    const char *shown = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyErr_Clear();
    dvt_shims->aoti_torch_check(false, "dovetail", "dovetail", 0, shown ? shown : "an exception");
}

void dvt_throw_python_error(void)
{
    static PyTypeObject *thrower_type;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!thrower_type)
        thrower_type = (PyTypeObject *)PyType_FromSpec(&raising_object_spec);
    __attribute__((cleanup(py_decref_cleanup))) PyObject *object = thrower_type ? PyType_GenericAlloc(thrower_type, 0) : NULL;
    raising_object *raising = (raising_object *)(void *)object;
    if (raising) {
        raising->type = type;
        raising->value = value;
        raising->trace = trace;
    }
    if (raising && scalar_slow) {
        _Alignas(16) static const char arguments[1024]; /* stands for a torch::PythonArgs, which scalar_slow() does not read */
        _Alignas(16) char scalar[64];
        scalar_slow(scalar, arguments, object);
    }
    PyErr_Clear();
    tensor_throw_as_runtime_error(type, value);
}
