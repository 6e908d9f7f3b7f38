/* dovetail.h: for those who CALL operators: C programs, bridges into frameworks, tools.
 *
 *     dv_library *lib;
 *     dv_operator *op;
 *     if (dv_load("my_ops.so", &lib) || dv_find("my_ops::swiglu", &op))
 *         return fprintf(stderr, "%s\n", dv_last_error()), 1;
 *     dv_value args[2] = { dv_from_tensor(&gate), dv_from_tensor(&up) }, result = dv_from_tensor(&out);
 *     if (dv_call(op, args, 2, &result, 1, NULL))
 *         return fprintf(stderr, "%s\n", dv_last_error()), 1;
 *
 * Conventions. A function that can fail returns 0 (DV_OK) or a negative enum dv_status, and leaves a message, which names the
 * operator, the argument, what was expected and what came, in dv_last_error() of the calling thread. `const T *` parameters are
 * borrowed for the call; `T **out` gives the caller something to free with the named function, and is NULL on failure; a returned
 * `const T *` is borrowed from the first argument. Everything may be called from any thread. Nothing here prints or aborts.
 * The library keeps one registry for the process.
 */
#ifndef DOVETAIL_H
#define DOVETAIL_H

#include "dovetail_op.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define DV_API __attribute__((visibility("default")))
#else
#define DV_API
#endif

#define DV_VERSION_MAJOR 0
#define DV_VERSION_MINOR 1
#define DV_VERSION_PATCH 0

/* ---- Status, memory ---------------------------------------------------------------------------------------------------- */

DV_API const char *dv_version(void);           /* "0.1.0" of the library that is running */
DV_API const char *dv_status_name(int status); /* "EINVAL"; "unknown status" for others */
DV_API const char *dv_last_error(void);        /* of this thread; "" when there is none; valid until its next failure */
DV_API void dv_clear_error(void);

/* Everything the library allocates goes through these three; user is passed along. To be set before anything else is called,
 * from one thread; NULL restores malloc. Tests use it to fail each allocation in turn. */
typedef struct dv_allocator {
    void *(*alloc)(void *user, size_t size);
    void *(*realloc)(void *user, void *p, size_t size);
    void (*free)(void *user, void *p);
    void *user;
} dv_allocator;
DV_API void dv_set_allocator(const dv_allocator *allocator);
DV_API void dv_free(void *p); /* for strings that the library returns; NULL is fine */

/* ---- Element types ------------------------------------------------------------------------------------------------------- */

/* The contract language's name ("f32", "bf16", "f8_e4m3fn"); lanes > 1 is not named: "f32x4" style text in a thread's buffer. */
DV_API const char *dv_dtype_name(dv_dtype dtype);
DV_API int dv_dtype_parse(const char *name, dv_dtype *out); /* also accepts "float32", "torch.float32", "int64"...; DV_EDTYPE */

/* A row of DV_DTYPES, which explains the columns. names: words, separated by spaces. */
typedef struct dv_dtype_row {
    dv_dtype dtype;
    const char *name, *names;
    int exponent, mantissa, bias;
    enum dv_float_form form;
    int torch;
} dv_dtype_row;
DV_API const dv_dtype_row *dv_dtype_at(size_t i);            /* NULL after the last */
DV_API const dv_dtype_row *dv_dtype_named(const char *name); /* "f32": by the row's own name alone; NULL: none */
DV_API const dv_dtype_row *dv_dtype_find(dv_dtype dtype);    /* lanes do not count; NULL: not in the table */
/* The first of the other names, in a thread's buffer: "float32", what NumPy, ml_dtypes and PyTorch call it. "": it has none. */
DV_API const char *dv_dtype_long_name(dv_dtype dtype);

/* Element i of memory on the CPU as a number. A complex element counts by its real part, and is written without an imaginary one.
 * A small float becomes the nearest that its format has. What is not in the table, and handles, read as 0 and stay as they are.
 */
DV_API double dv_element_get(const void *data, int64_t i, dv_dtype dtype);
DV_API void dv_element_put(void *data, int64_t i, dv_dtype dtype, double x);

DV_API const char *dv_device_name(int32_t device_type);       /* "cpu", "cuda", "npu"; "device 77" for unknown ones */
DV_API int dv_device_parse(const char *name, dv_device *out); /* "cpu", "cuda:1"; DV_EDEVICE */

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

#define DV_MAX_NDIM 64

/* Bytes that n elements of this type take (sub-byte types are packed, rounded up to a byte); -1 when it overflows. */
DV_API int64_t dv_dtype_bytes(dv_dtype dtype, int64_t n);

/* Fill *t as a view of caller's memory. shape and strides are borrowed for as long as t is used; strides == NULL: contiguous, and
 * then storage for ndim strides must be given in contiguous_strides (else DV_EINVAL). Refuses negative sizes, more than
 * DV_MAX_NDIM dims, and sizes whose bytes overflow int64_t: DV_ESHAPE. */
DV_API int dv_tensor_init(dv_tensor *t, void *data, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t *contiguous_strides);

/* A new tensor on the CPU with its own zeroed, 64-byte aligned, contiguous memory and a reference count of 1. */
DV_API int dv_tensor_new(dv_dtype dtype, int32_t ndim, const int64_t *shape, dv_tensor **out);
/* A new header that shares the memory of base, which must come from this library (its count grows by one) or outlive it (owner
 * NULL). offset and strides are in elements; may point anywhere inside base's extent, else DV_ESHAPE. */
DV_API int dv_tensor_view(
    dv_tensor *base, int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t offset, dv_tensor **out);
/* Only for tensors that this library made. unref(NULL) is fine; both are atomic. */
DV_API dv_tensor *dv_tensor_ref(dv_tensor *t);
DV_API void dv_tensor_unref(dv_tensor *t);

/* DLPack 1.x (struct DLManagedTensorVersioned of dlpack.h; any minor). from takes ownership of managed in every case, also on
 * failure; NULL strides and byte_offset are accepted; a read-only flag is kept. to gives a managed tensor whose deleter drops one
 * reference to t. */
struct DLManagedTensorVersioned;
DV_API int dv_tensor_from_dlpack(struct DLManagedTensorVersioned *take_managed, dv_tensor **out);
DV_API int dv_tensor_to_dlpack(dv_tensor *t, struct DLManagedTensorVersioned **out);

DV_API bool dv_tensor_is_contiguous(const dv_tensor *t);
DV_API bool dv_tensor_overlaps_itself(
    const dv_tensor *t); /* two indices may name one element; exact for expanded dims, else conservative */
DV_API bool dv_tensor_overlaps(const dv_tensor *a, const dv_tensor *b); /* may share a byte; exact for contiguous tensors */
/* Copy elements of equal shape and dtype, any strides, CPU. DV_ESHAPE, DV_EDTYPE, DV_EDEVICE. */
DV_API int dv_tensor_copy(const dv_tensor *dst, const dv_tensor *src);

/* ---- Values: the arguments and results of a call, in the schema's order -------------------------------------------------- */

/* X(name, C type, member of dv_value.as). Elements of TENSORS may be NULL; the tensor of a result or of an argument that is
 * written is written. */
/* clang-format off */
#define DV_VALUES(X)                                  \
    X(TENSOR, const dv_tensor *, tensor)              \
    X(INT, int64_t, i)                                \
    X(FLOAT, double, f)                               \
    X(BOOL, bool, b)                                  \
    X(COMPLEX, dv_complex, c)                         \
    X(STRING, dv_string, s)                           \
    X(DTYPE, dv_dtype, dtype)                         \
    X(DEVICE, dv_device, device)                      \
    X(LAYOUT, dv_layout, layout)                      \
    X(MEMORY_FORMAT, dv_memory_format, memory_format) \
    X(GENERATOR, const dv_generator *, generator)     \
    X(TENSORS, dv_tensors, tensors)                   \
    X(INTS, dv_ints, ints)                            \
    X(FLOATS, dv_floats, floats)                      \
    X(BOOLS, dv_bools, bools)                         \
    X(STRINGS, dv_strings, strings)                   \
    X(SCALARS, dv_scalars, scalars)                   \
    X(COMPLEXES, dv_complexes, complexes)             \
    X(DTYPES, dv_dtypes, dtypes)                      \
    X(DEVICES, dv_devices, devices)
/* clang-format on */

enum dv_value_type {
    DV_VALUE_DEFAULT = 0, /* as argument: the schema's default; as result: the host allocates it */
    DV_VALUE_NONE,
#define DV__VALUE(name, ctype, member) DV_VALUE_##name,
    DV_VALUES(DV__VALUE)
#undef DV__VALUE
};

/* 24 bytes. Pointers are borrowed for the call. A Scalar is an INT, FLOAT, BOOL or COMPLEX. */
typedef struct dv_value {
    uint32_t type; /* enum dv_value_type */
    uint32_t reserved;
    union {
#define DV__VALUE(name, ctype, member) ctype member;
        DV_VALUES(DV__VALUE)
#undef DV__VALUE
    } as;
} dv_value;

/* A row of DV_FIELD_TYPES, which explains the columns. */
typedef struct dv_field_row {
    const char *name, *ctype, *word;
    size_t size, alignment;
    enum dv_field_form form;
    uint32_t type, of; /* enum dv_field_type */
    uint32_t value;    /* enum dv_value_type */
} dv_field_row;
DV_API const dv_field_row *dv_field_at(uint32_t type); /* enum dv_field_type; a row of zeros and "" for an unknown one */
/* The field type of this form over another, 0 when there is none: over INT it is INTS as LIST, OPT_INT as OPTIONAL and INT_RESULT
 * as RESULT. A POINTER is its own OPTIONAL; WRITTEN and RESULT are found by either. */
DV_API uint32_t dv_field_over(uint32_t type, enum dv_field_form form);

static inline dv_value dv_none(void)
{
    dv_value v;
    memset(&v, 0, sizeof v);
    v.type = DV_VALUE_NONE;
    return v;
}
static inline dv_value dv_default(void)
{
    dv_value v;
    memset(&v, 0, sizeof v);
    return v;
}
static inline dv_value dv_from_tensor(const dv_tensor *t)
{
    dv_value v = dv_none();
    if (t)
        v.type = DV_VALUE_TENSOR, v.as.tensor = t;
    return v;
}
static inline dv_value dv_from_int(int64_t i)
{
    dv_value v = dv_none();
    v.type = DV_VALUE_INT;
    v.as.i = i;
    return v;
}
static inline dv_value dv_from_float(double f)
{
    dv_value v = dv_none();
    v.type = DV_VALUE_FLOAT;
    v.as.f = f;
    return v;
}
static inline dv_value dv_from_bool(bool b)
{
    dv_value v = dv_none();
    v.type = DV_VALUE_BOOL;
    v.as.b = b;
    return v;
}
static inline dv_value dv_from_string(const char *s)
{
    dv_value v = dv_none();
    v.type = DV_VALUE_STRING, v.as.s.data = s, v.as.s.size = strlen(s);
    return v;
}
static inline dv_value dv_from_dtype(dv_dtype d)
{
    dv_value v = dv_none();
    v.type = DV_VALUE_DTYPE;
    v.as.dtype = d;
    return v;
}
static inline dv_value dv_from_ints(const int64_t *data, size_t n)
{
    dv_value v = dv_none();
    v.type = DV_VALUE_INTS, v.as.ints.data = data, v.as.ints.size = n;
    return v;
}
static inline dv_value dv_from_tensors(const dv_tensor *const *data, size_t n)
{
    dv_value v = dv_none();
    v.type = DV_VALUE_TENSORS, v.as.tensors.data = data, v.as.tensors.size = n;
    return v;
}

/* ---- Libraries and operators --------------------------------------------------------------------------------------------- */

typedef struct dv_library dv_library;   /* a set of registrations with one life */
typedef struct dv_operator dv_operator; /* one overload; counted */

/* Dispatch keys, with PyTorch's names and precedence. */
enum dv_key {
    DV_KEY_CPU,
    DV_KEY_CUDA,
    DV_KEY_PRIVATEUSE1, /* NPU */
    DV_KEY_META,
    DV_KEY_AUTOGRAD_CPU,
    DV_KEY_AUTOGRAD_CUDA,
    DV_KEY_AUTOGRAD_PRIVATEUSE1,
    DV_KEY_RUNTIME_COUNT, /* aliases follow: they fill the table, no call has them */
    DV_KEY_AUTOGRAD = DV_KEY_RUNTIME_COUNT,
    DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD,
    DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD,
    DV_KEY_COUNT,
    DV_KEY_NONE = -1
};
DV_API const char *dv_key_name(int key);
DV_API int dv_key_parse(const char *name, int *key); /* DV_ENOENT lists the names */

/* Is it a folder in which nobody but this user and root can put another file in a file's place? Every folder on the way belongs
 * to one of them, and others may not write to it, unless it is sticky. DV_EINVAL: the folder itself is not so; DV_EIO: one on the
 * way is not, or it cannot be reached. */
enum dv_folder {
    DV_FOLDER_MAKE = 1,    /* make what is missing, for this user alone */
    DV_FOLDER_OWN = 2,     /* the folder belongs to this user, and others may not write to it at all */
    DV_FOLDER_ANY_ROOT = 4 /* the owner of "/" counts as root: in a user namespace root may have another number */
};
DV_API int dv_folder_check(const char *path, unsigned flags);

/* Load a binary that `dovetail build` made: its operators (or kernels) are registered until the library is freed. The file is
 * checked first (ELF extents, architecture, the symbol, ABI), never trusted: DV_EBINARY, DV_EABI, DV_ESCHEMA, DV_ECONTRACT,
 * DV_EEXIST. The same content may be loaded only once; the file may be replaced while loaded. */
DV_API int dv_load(const char *path, dv_library **out);
/* The same for a descriptor that is linked into the program; it must outlive the library. */
DV_API int dv_load_static(const struct dv_library_decl *decl, dv_library **out);

/* Registration by hand (what bridges and tests use). ns is borrowed; key is an enum dv_key for IMPL or DV_KEY_NONE. */
DV_API int dv_library_new(int kind, const char *ns, int key, dv_library **out);
DV_API int dv_library_define(dv_library *lib, const char *schema, const char *tags, dv_operator **borrowed_out);

/* A boxed kernel: args and results in the schema's order; results come as DV_VALUE_DEFAULT or given. May call dv_redispatch().
 * Returns a status; dv_fail() sets the message. */
struct dv_host;
typedef int (*dv_boxed_fn)(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const struct dv_host *host);
DV_API int dv_library_impl(
    dv_library *lib, const char *name, int key, dv_boxed_fn fn, void *user); /* DV_KEY_NONE: the library's */
DV_API int dv_library_impl_fallthrough(dv_library *lib, const char *name, int key);
DV_API int dv_library_fallback(
    dv_library *lib, int key, dv_boxed_fn fn, void *user); /* for every operator; fn NULL: fallthrough */
/* Deregisters everything; the code of a loaded binary stays mapped. Handles to its operators stay valid and calls fail with
 * DV_EUNLOADED. NULL is fine. */
DV_API void dv_library_free(dv_library *lib);
DV_API const char *dv_library_name(const dv_library *lib);
DV_API const char *dv_library_path(const dv_library *lib); /* NULL unless it was loaded from a file */
/* What its file held when it was loaded: a hash of the content, 32 hex digits; NULL unless it was loaded from a file. */
DV_API const char *dv_library_content(const dv_library *lib);
DV_API int dv_file_content(const char *path, char out[33]); /* the same of a binary that is not loaded, or may have changed */
DV_API size_t dv_library_size(const dv_library *lib);       /* operators that it defines */
DV_API dv_operator *dv_library_operator(const dv_library *lib, size_t i); /* borrowed; NULL past the end */

/* Find "ns::name" or "ns::name.overload" (the newest library that defines it) and give the caller a reference. DV_ENOENT names
 * what exists that is near. dv_library_find() looks only in one library: for two versions side by side. */
DV_API int dv_find(const char *name, dv_operator **out);
DV_API int dv_library_find(const dv_library *lib, const char *name, dv_operator **out);
DV_API dv_operator *dv_operator_ref(dv_operator *op);
DV_API void dv_operator_unref(dv_operator *op);
/* Call fn for every registered operator, in order of name, without holding any lock; stops at a non-zero return and gives it. */
DV_API int dv_each_operator(int (*fn)(void *user, dv_operator *op), void *user);

/* The functional form of an operator that writes (docs/schema.md): nothing is written, and its results are the operator's own,
 * then the new value of each written argument, "<name>_out". It is called, inferred and described like any other, by the
 * operator's own kernels; a tensor given for a new value may be the argument itself. Not registered: the caller unrefs it. An
 * operator that writes nothing is its own. DV_ENOTSUP: a result is a view of an argument that is written. */
DV_API int dv_functional(dv_operator *op, dv_operator **out);

DV_API const char *dv_operator_name(const dv_operator *op);   /* "ns::name.overload" */
DV_API const char *dv_operator_schema(const dv_operator *op); /* as torch prints it */
DV_API const char *dv_operator_doc(const dv_operator *op);    /* "" when there is none */
DV_API const char *dv_operator_tags(const dv_operator *op);   /* as declared; "" when there are none */
/* Does it have kernel rows for this kind of device (enum dv_device_type), from whichever library? */
DV_API bool dv_operator_has_rows(const dv_operator *op, int32_t device_type);
DV_API size_t dv_operator_nargs(const dv_operator *op);
DV_API size_t dv_operator_nresults(const dv_operator *op);
/* What one argument takes (slot < nargs), or one result gives (slot >= nargs): for hosts that convert values. Everything it
 * points to is borrowed from op. */
typedef struct dv_slot_info {
    const char *name; /* "" for an unnamed result */
    uint32_t type;  /* enum dv_field_type of the plain input (TENSOR, INT ... DEVICES; never OPT_, MUT_ or _RESULT); 0: others */
    uint32_t flags; /* enum dv_slot_flags */
    int64_t fixed_size; /* of int[N]; else -1 */
    int32_t alias;      /* of a result Tensor(a!) or Tensor(a): the argument with the same alias set; else -1 */
    uint32_t reserved;
    const char *default_text; /* as torch prints it; NULL: no default */
    dv_value default_value;   /* DV_VALUE_DEFAULT: no default */
} dv_slot_info;
enum dv_slot_flags {
    DV_SLOT_OPTIONAL = 1,         /* None is accepted */
    DV_SLOT_ELEMENT_OPTIONAL = 2, /* Tensor?[] */
    DV_SLOT_KWARG_ONLY = 4,
    DV_SLOT_WRITES = 8 /* (a!) */
};
DV_API int dv_operator_slot(const dv_operator *op, size_t slot, dv_slot_info *out); /* DV_EINVAL past the end */

/* Everything that was declared, as one JSON document: schema, contract and formulas as expression trees, kernel rows, tags, file
 * and line (docs/json.md). What bridges build fakes and gradients from. The caller frees it with dv_free(). */
DV_API int dv_operator_json(const dv_operator *op, char **out);
/* The operator in words, as `dovetail info` prints it: the schema, the contract and the order in which it is solved, rows. */
DV_API int dv_operator_describe(const dv_operator *op, char **out);
/* The dispatch table, a line per runtime key: "CPU: kernel registered at ... [kernel]" in the manner of _dispatch_dump_table. */
DV_API int dv_operator_dump_table(const dv_operator *op, char **out);

/* May an operator of the new schema replace one of the old schema without breaking its callers? DV_OK, or DV_ESCHEMA with the
 * reason in dv_last_error(). */
DV_API int dv_schema_compatible(const char *new_schema, const char *old_schema);
/* Parse and print as PyTorch does; *out is freed with dv_free(). DV_ESYNTAX shows the column and what was expected. */
DV_API int dv_schema_normalize(const char *schema, char **out);
DV_API int dv_schema_json(const char *schema, char **out);

/* ---- Calling ------------------------------------------------------------------------------------------------------------- */

/* What a host framework lends to a call. Zero-initialise, set size; a NULL entry takes the default. All entries get the struct
 * itself: embed it in a larger one to find your own data. Every entry returns a status (0: done) and may set dv_fail(). */
typedef struct dv_host {
    uint32_t size;
    uint32_t flags; /* enum dv_host_flags */
    const char *name;
    /* Make a tensor for result `index` (or -1: a temporary). strides is never NULL. Default: dv_tensor_new, which the caller of
     * dv_call unrefs. On failure of the call every tensor made so far is given back to free_tensor. */
    int (*new_tensor)(const struct dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
        const int64_t *strides, dv_tensor **out);
    void (*free_tensor)(const struct dv_host *host, dv_tensor *t);
    /* Copy between tensors of equal shape and dtype on a device other than the CPU. */
    int (*copy_tensor)(const struct dv_host *host, const dv_tensor *dst, const dv_tensor *src);
    int (*parallel_for)(const struct dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);
    int (*stream)(const struct dv_host *host, dv_device device, void **out);
    int (*random)(const struct dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset);
    int (*object)(const struct dv_host *host, const char *name, const void **out);
    /* Just before the kernel of a call runs and just after it ended, when everything else is done: release and retake a lock. */
    void (*before_kernel)(const struct dv_host *host);
    void (*after_kernel)(const struct dv_host *host);
    /* Make a tensor for result `index` that shares base's memory (offset and strides in elements). Default: dv_tensor_view; a
     * host with new_tensor and without this one cannot call operators that return views. Given back to free_tensor on failure. */
    int (*new_view)(const struct dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
        const int64_t *strides, int64_t offset, dv_tensor **out);
    const struct dv_test_hooks *test; /* of dovetail_test.h, for tests of kernels; NULL in any other host */
} dv_host;

enum dv_host_flags {
    DV_HOST_DETERMINISTIC = 1,
    DV_HOST_CHECK = 2,       /* check mode: value checks on (`ids.values < e`) */
    DV_HOST_FUSES = 4,       /* a compiler will fuse native forms: the policy's default is off */
    DV_HOST_NO_DISPATCH = 8, /* the host has dispatched already (PyTorch): go straight to the device's rows */
    DV_HOST_OWN_NATIVE = 32, /* the host runs native forms of tensors outside of the CPU's memory itself: a call that needs one
                                gives DV_ENATIVE after the contract's checks, and nothing is written */
};

/* Call an operator. args may be fewer than the schema has: the rest take their defaults. results must have as many entries as the
 * schema has returns: given tensors are written to (they must match and overlap nothing that is read), DV_VALUE_DEFAULT ones are
 * allocated by the host. On failure nothing is allocated and no result is set. host NULL: the embedded default. A result that the
 * schema declares to be an argument, Tensor(a!) -> Tensor(a!), is that argument's own pointer, with no new reference. */
DV_API int dv_call(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host);
/* The same from the author's struct: every field is filled by the caller, results included (tensors given). fields describe it:
 * DV_FIELDS(struct swiglu, gate, up, out). */
DV_API int dv_call_frame(
    dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host);
/* Shapes only: fills results' specs without running anything. Also checks the inputs. */
typedef struct dv_result_spec {
    dv_dtype dtype;
    dv_device device;
    int32_t ndim;   /* -1: not a tensor, or absent */
    uint32_t flags; /* enum dv_spec_flags */
    int64_t shape[DV_MAX_NDIM], strides[DV_MAX_NDIM];
} dv_result_spec;
enum dv_spec_flags { DV_SPEC_UNBACKED = 1 /* sizes are upper bounds */, DV_SPEC_VIEW = 2 };
DV_API int dv_infer(dv_operator *op, const dv_value *args, size_t nargs, dv_result_spec *specs, size_t nspecs);

/* A call site: an operator with all arguments of a call fixed, its tensors by dtype, shape, strides and device. What a graph's
 * node is, and what tools name a call by. As text (docs/site.md): "my_ops::swiglu(gate=f32[4, 6], up=f32[4, 6], dim=-1)";
 * printing gives every argument by name, and parsing that gives an equal site. args of dv_site_new() are those of dv_call();
 * tensors need no memory, and generators cannot be kept (DV_ENOTSUP). */
typedef struct dv_site dv_site;
DV_API int dv_site_new(dv_operator *op, const dv_value *args, size_t nargs, dv_site **out);
DV_API int dv_site_parse(const char *text, dv_site **out); /* DV_ESYNTAX shows the column; DV_ENOENT: no such operator */
DV_API int dv_site_print(const dv_site *s, char **out);    /* freed with dv_free() */
DV_API void dv_site_free(dv_site *s);                      /* NULL is fine */
DV_API dv_operator *dv_site_operator(const dv_site *s);    /* borrowed */
DV_API const dv_value *dv_site_args(const dv_site *s);     /* all of them, completed and converted; tensors without memory */
DV_API size_t dv_site_ntensors(const dv_site *s);          /* those of lists counted one by one, None not at all */
DV_API int dv_site_infer(const dv_site *s, dv_result_spec *specs, size_t nspecs);
/* Call it with these tensors, in the order of the arguments. They need not be like the site's: what is right is the contract's
 * affair. */
DV_API int dv_site_call(
    const dv_site *s, const dv_tensor *const *tensors, size_t ntensors, dv_value *results, size_t nresults, const dv_host *host);

/* What one call does, by its contract: floating-point operations (-1: not declared) and bytes moved (default: every tensor once).
 * Checks the inputs, runs nothing. DV_ENOTSUP: the operator has no contract. */
DV_API int dv_cost(dv_operator *op, const dv_value *args, size_t nargs, double *flops, double *bytes);

/* What a declared gradient or tangent (docs/formula.md) gives, by calling the operators that it names. All arrays have an entry
 * for each slot: the arguments, then the results. values: of a call that went well, arguments as they are after it. grads: of
 * each result, and in its argument's slot that of an argument that is written and not returned; never absent where the formula
 * names it. tangents: of each argument that the formula names. wanted: for which arguments; NULL: all. out: tensors and lists of
 * tensors in the slots of the clauses' targets (a list's array is freed with dv_free()), each a new one of the host, the
 * caller's; else NONE: nothing flows there. DV_ENOTSUP: none is declared. */
DV_API int dv_gradient(
    dv_operator *op, const dv_value *values, const dv_value *grads, const bool *wanted, dv_value *out, const dv_host *host);
DV_API int dv_tangent(dv_operator *op, const dv_value *values, const dv_value *tangents, dv_value *out, const dv_host *host);

/* From inside a boxed kernel: go on with the next key below `key`. */
DV_API int dv_redispatch(
    dv_operator *op, int key, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host);
/* Thread-local guards: keys added to or taken from the keys of every call of this thread. Give back what was returned. */
typedef struct dv_guard { uint32_t included, excluded; } dv_guard;
DV_API dv_guard dv_guard_push(uint32_t include_keys, uint32_t exclude_keys); /* bits 1u << enum dv_key */
DV_API void dv_guard_pop(dv_guard previous);

/* Set the error message of this thread and return status: for hosts and boxed kernels. */
DV_API DV__PRINTF(2, 3) int dv_fail(int status, const char *format, ...);

/* Why this kernel and why not the others: fn gets each row in the order in which it is tried. Does not run anything. */
typedef struct dv_row_report {
    const char *name, *provider, *device, *dtypes, *isa, *when;
    bool taken;
    const char *reason; /* "taken", or why not: "this processor has no avx512" */
} dv_row_report;
DV_API int dv_explain(
    dv_operator *op, const dv_value *args, size_t nargs, void (*fn)(void *user, const dv_row_report *row), void *user);

/* The embedded default's random numbers (dv_random) begin again, from this seed. */
DV_API int dv_set_seed(uint64_t seed);
/* Threads of the embedded default: n >= 1; 0: as many as the process may use. Survives fork. */
DV_API int dv_set_threads(int n);
DV_API int dv_get_threads(void);
/* Pretend that the processor has no more than this ("base", "avx2", "avx512", NULL: what it has): for tests and benchmarks. */
DV_API int dv_set_isa(const char *isa);
DV_API const char *dv_get_isa(void);
DV_API const char *dv_isa_at(size_t i); /* every name that a row's .isa may have, on any processor; NULL after the last */

/* ---- Policy: which operators run their own kernels and which their native form ------------------------------------------- */

/* Text like "all,-ns::rms_norm" or "none,+swiglu": exactly one of all and none at most (absent: the default: all on, unless the
 * host fuses), then +name and -name, where a name is "ns::name" or "name". Unknown names are accepted (they may be loaded later).
 * DV_EINVAL says which word is wrong. Precedence: thread, process (API), DOVETAIL_OPS, the file named by DOVETAIL_POLICY.  NULL
 * unsets. */
DV_API int dv_policy_set(const char *text);
DV_API int dv_policy_set_thread(const char *text);
DV_API int dv_policy_load(const char *path); /* a file of such words, # comments; sets the process policy */
DV_API bool dv_policy_enabled(const dv_operator *op, bool host_fuses);
DV_API uint64_t dv_policy_generation(void); /* changes whenever a decision may: for guards and cache keys */
/* How often each operator was asked for and enabled or disabled since the start, in order of name. */
DV_API int dv_policy_counts(int (*fn)(void *user, const char *name, uint64_t enabled, uint64_t disabled), void *user);

#ifdef __cplusplus
}
#endif
#endif
