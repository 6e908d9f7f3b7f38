/* dovetail.h: for code that CALLS operators: C programs, bridges to frameworks, tools.
 *
 *     dv_library *lib;
 *     dv_operator *op;
 *     if (dv_load("my_ops.so", &lib) || dv_find("my_ops::swiglu", &op))
 *         return fprintf(stderr, "%s\n", dv_last_error()), 1;
 *     dv_value args[2] = { dv_from_tensor(&gate), dv_from_tensor(&up) }, result = dv_from_tensor(&out);
 *     if (dv_call(op, args, 2, &result, 1, NULL))
 *         return fprintf(stderr, "%s\n", dv_last_error()), 1;
 *
 * Conventions. A function that can fail returns 0 (DV_OK) or a negative enum dv_status, and leaves a message for the calling
 * thread in dv_last_error(): it names the operator, the argument, what was expected and what was found. `const T *` parameters
 * are borrowed for the call. `T **out` receives an object that the caller frees with the function named there; it is NULL on
 * failure. A returned `const T *` is borrowed from the first argument. Every function may be called from any thread that
 * has 128 KB of stack. Nothing here prints or aborts. The library keeps one registry for the process.
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
DV_API const char *dv_last_error(void);        /* of this thread; "" without an error; valid until its next failure */
DV_API void dv_clear_error(void);

/* The library allocates through these three functions only, and passes user to each. Set them from one thread before any other
 * call; NULL restores malloc. Tests use it to fail each allocation in turn. */
typedef struct dv_allocator {
    void *(*alloc)(void *user, size_t size);
    void *(*realloc)(void *user, void *p, size_t size);
    void (*free)(void *user, void *p);
    void *user;
} dv_allocator;
DV_API void dv_set_allocator(const dv_allocator *allocator);
DV_API void dv_free(void *p); /* for strings that the library returns; NULL is fine */

/* ---- Element types ------------------------------------------------------------------------------------------------------- */

/* The contract language's name ("f32", "bf16", "f8_e4m3fn"). With several lanes: text such as "f32x4" in a buffer of this thread.
 */
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
DV_API const dv_dtype_row *dv_dtype_find(dv_dtype dtype);    /* ignores lanes; NULL: not in the table */
/* The first of the other names, "float32", which NumPy, ml_dtypes and PyTorch use; "" without one. In a buffer of this thread. */
DV_API const char *dv_dtype_long_name(dv_dtype dtype);

/* Element i of memory on the CPU as a number. Of a complex element the real part is read, and the imaginary part is written as 0.
 * A value is rounded to the nearest of a narrow format. Handles and dtypes outside the table read as 0, and writing them has no
 * effect.
 */
DV_API double dv_element_get(const void *data, int64_t i, dv_dtype dtype);
DV_API void dv_element_put(void *data, int64_t i, dv_dtype dtype, double x);

DV_API const char *dv_device_name(int32_t device_type);       /* "cpu", "cuda", "npu"; "device 77" for unknown ones */
DV_API int dv_device_parse(const char *name, dv_device *out); /* "cpu", "cuda:1"; DV_EDEVICE */

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

#define DV_MAX_NDIM 64

/* Bytes that n elements of this type take (sub-byte types are packed, rounded up to a byte); -1 when the number overflows. */
DV_API int64_t dv_dtype_bytes(dv_dtype dtype, int64_t n);

/* Fill *t as a view of the caller's memory. shape and strides are borrowed for as long as t is used. strides NULL means
 * contiguous: the strides are then written to contiguous_strides, which must have room for ndim of them (NULL: DV_EINVAL).
 * Refuses negative sizes, more than DV_MAX_NDIM dims, and sizes whose bytes overflow int64_t: DV_ESHAPE. */
DV_API int dv_tensor_init(dv_tensor *t, void *data, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t *contiguous_strides);

/* A new tensor on the CPU with its own zeroed, 64-byte aligned, contiguous memory and a reference count of 1. */
DV_API int dv_tensor_new(dv_dtype dtype, int32_t ndim, const int64_t *shape, dv_tensor **out);
/* A new tensor that shares the memory of base. base was made by this library (then its reference count grows by one), or must
 * outlive the new tensor. offset and strides are in elements; the view must lie inside base's extent, else DV_ESHAPE. */
DV_API int dv_tensor_view(
    dv_tensor *base, int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t offset, dv_tensor **out);
/* Only for tensors that this library made. unref(NULL) is fine; the counts are atomic. */
DV_API dv_tensor *dv_tensor_ref(dv_tensor *t);
DV_API void dv_tensor_unref(dv_tensor *t);

/* DLPack 1.x (struct DLManagedTensorVersioned of dlpack.h; any minor). dv_tensor_from_dlpack() owns take_managed from then on,
 * also on failure. It accepts NULL strides and a byte_offset, and keeps the read-only flag. dv_tensor_to_dlpack() makes a managed
 * tensor whose deleter drops one reference to t. */
struct DLManagedTensorVersioned;
DV_API int dv_tensor_from_dlpack(struct DLManagedTensorVersioned *take_managed, dv_tensor **out);
DV_API int dv_tensor_to_dlpack(dv_tensor *t, struct DLManagedTensorVersioned **out);

DV_API bool dv_tensor_is_contiguous(const dv_tensor *t);
DV_API bool dv_tensor_overlaps_itself(
    const dv_tensor *t); /* may two indices name one element? exact for expanded dims, else conservative */
DV_API bool dv_tensor_overlaps(const dv_tensor *a, const dv_tensor *b); /* may they share a byte? exact for contiguous tensors */
/* Copy elements of equal shape and dtype, any strides, CPU. DV_ESHAPE, DV_EDTYPE, DV_EDEVICE. */
DV_API int dv_tensor_copy(const dv_tensor *dst, const dv_tensor *src);

/* ---- Values: the arguments and results of a call, in the schema's order -------------------------------------------------- */

/* X(name, C type, member of dv_value.as). Elements of TENSORS may be NULL. The tensors of results and of written arguments are
 * written, in spite of the const. */
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
    DV_VALUE_DEFAULT = 0, /* as an argument: the schema's default; as a result: the host allocates it */
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
/* The field type that has this form of `type`, or 0: of INT, LIST gives INTS, OPTIONAL gives OPT_INT and RESULT gives INT_RESULT.
 * A POINTER type is its own OPTIONAL. WRITTEN and RESULT both find a type of either form. */
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

typedef struct dv_library dv_library;   /* registrations that are added and removed together */
typedef struct dv_operator dv_operator; /* one overload; reference-counted */

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

/* Check that only this user and root can replace files in a folder: it and each folder above it must belong to one of them, and
 * others may not write there, unless the folder is sticky. DV_EINVAL: the folder itself fails the check. DV_EIO: a folder above
 * it fails, or cannot be reached. */
enum dv_folder {
    DV_FOLDER_MAKE = 1,    /* make what is missing, for this user alone */
    DV_FOLDER_OWN = 2,     /* the folder belongs to this user, and others may not write to it at all */
    DV_FOLDER_ANY_ROOT = 4 /* the owner of "/" counts as root: in a user namespace root may have another number */
};
DV_API int dv_folder_check(const char *path, unsigned flags);

/* Load a binary that `dovetail build` made: its operators (or kernels) are registered until the library is freed. The file is
 * checked first (ELF extents, architecture, the symbol, ABI): DV_EBINARY, DV_EABI, DV_ESCHEMA, DV_ECONTRACT, DV_EEXIST. The same
 * content can be loaded only once, but the base set that was loaded for a formula is handed over. The file may be replaced while
 * it is loaded. */
DV_API int dv_load(const char *path, dv_library **out);
/* The same for a descriptor that is linked into the program. The descriptor must outlive the library. */
DV_API int dv_load_static(const struct dv_library_decl *decl, dv_library **out);

/* Registration by hand (what bridges and tests use). ns is borrowed; key is an enum dv_key for IMPL or DV_KEY_NONE. */
DV_API int dv_library_new(int kind, const char *ns, int key, dv_library **out);
DV_API int dv_library_define(dv_library *lib, const char *schema, const char *tags, dv_operator **borrowed_out);

/* A boxed kernel: args and results are in the schema's order; a result is DV_VALUE_DEFAULT (to be allocated) or given. It may
 * call dv_redispatch(). It returns a status; dv_fail() sets the message. */
struct dv_host;
typedef int (*dv_boxed_fn)(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const struct dv_host *host);
DV_API int dv_library_impl(
    dv_library *lib, const char *name, int key, dv_boxed_fn fn, void *user); /* DV_KEY_NONE: the library's key */
DV_API int dv_library_impl_fallthrough(dv_library *lib, const char *name, int key);
DV_API int dv_library_fallback(
    dv_library *lib, int key, dv_boxed_fn fn, void *user); /* for all operators; fn NULL: fallthrough */
/* Deregisters everything; the code of a loaded binary stays mapped. Handles to its operators stay valid and calls fail with
 * DV_EUNLOADED. NULL is fine. */
DV_API void dv_library_free(dv_library *lib);
DV_API const char *dv_library_name(const dv_library *lib);
DV_API const char *dv_library_path(const dv_library *lib); /* NULL unless it was loaded from a file */
/* A hash of the file's content when it was loaded, 32 hex digits; NULL unless it was loaded from a file. */
DV_API const char *dv_library_content(const dv_library *lib);
DV_API int dv_file_content(const char *path, char out[33]); /* the same hash of an operator binary's file */
/* Compute what `dovetail build` writes into an operator binary: a digest of the bytes that are loaded, by which dv_load() refuses
 * a damaged file. *at: where the 16 bytes belong in the file. DV_EBINARY: the binary has no note for them (docs/abi.md). */
DV_API int dv_file_stamp(const char *path, uint64_t *at, unsigned char stamp[16]);
DV_API size_t dv_library_size(const dv_library *lib);                     /* operators that it defines */
DV_API dv_operator *dv_library_operator(const dv_library *lib, size_t i); /* borrowed; NULL past the end */

/* Find "ns::name" or "ns::name.overload" (in the newest library that defines it) and give the caller a reference. The message of
 * DV_ENOENT lists similar names. dv_library_find() looks in one library only, for programs that load two versions. */
DV_API int dv_find(const char *name, dv_operator **out);
DV_API int dv_library_find(const dv_library *lib, const char *name, dv_operator **out);
DV_API dv_operator *dv_operator_ref(dv_operator *op);
DV_API void dv_operator_unref(dv_operator *op);
/* Call fn for every registered operator, in order of name, without holding a lock. Stops when fn returns non-zero, and returns
 * that. */
DV_API int dv_each_operator(int (*fn)(void *user, dv_operator *op), void *user);

/* The functional form of an operator that writes arguments (docs/schema.md). It writes no argument; its results are the
 * operator's own, then the new value of each written argument, "<name>_out". It is used as any other operator, and runs the
 * operator's own kernels. A tensor given for a new value may be the argument itself. The form is not registered, and the caller
 * unrefs it. For an operator that writes nothing, *out is that operator. DV_ENOTSUP: a result is a view of an argument that is
 * written. */
DV_API int dv_functional(dv_operator *op, dv_operator **out);

DV_API const char *dv_operator_name(const dv_operator *op);   /* "ns::name.overload" */
DV_API const char *dv_operator_schema(const dv_operator *op); /* as torch prints it */
DV_API const char *dv_operator_doc(const dv_operator *op);    /* "" without one */
DV_API const char *dv_operator_tags(const dv_operator *op);   /* as declared; "" without any */
/* The file that its library was loaded from (the caller's, freed with dv_free()), and dv_library_content(). DV_ENOENT: none. */
DV_API int dv_operator_binary(const dv_operator *op, char **path, char content[33]);
/* Does it have kernel rows for this kind of device (enum dv_device_type), from any library? */
DV_API bool dv_operator_has_rows(const dv_operator *op, int32_t device_type);
DV_API size_t dv_operator_nargs(const dv_operator *op);
DV_API size_t dv_operator_nresults(const dv_operator *op);
/* The type of one argument (slot < nargs) or one result (slot >= nargs), for hosts that convert values. All pointers in it are
 * borrowed from op. */
typedef struct dv_slot_info {
    const char *name; /* "" for an unnamed result */
    uint32_t type;  /* enum dv_field_type of the plain input (TENSOR, INT ... DEVICES; never OPT_, MUT_ or _RESULT); 0: others */
    uint32_t flags; /* enum dv_slot_flags */
    int64_t fixed_size; /* of int[N]; else -1 */
    int32_t alias;      /* of a result Tensor(a!) or Tensor(a): the index of the argument in the same alias set; else -1 */
    uint32_t reserved;
    const char *default_text; /* as torch prints it; NULL: no default */
    dv_value default_value;   /* DV_VALUE_DEFAULT: no default */
} dv_slot_info;
enum dv_slot_flags {
    DV_SLOT_OPTIONAL = 1,         /* None is accepted */
    DV_SLOT_ELEMENT_OPTIONAL = 2, /* Tensor?[] */
    DV_SLOT_KWARG_ONLY = 4,
    DV_SLOT_WRITES = 8, /* (a!) */
    DV_SLOT_GIVEN = 16  /* a result that is a list of tensors, and no contract says how many: dv_call() needs it given */
};
DV_API int dv_operator_slot(const dv_operator *op, size_t slot, dv_slot_info *out); /* DV_EINVAL past the end */

/* Everything that was declared, as one JSON document: schema, contract and formulas as expression trees, kernel rows, tags, file
 * and line (docs/json.md). Bridges build fake functions and gradients from it. The caller frees it with dv_free(). */
DV_API int dv_operator_json(const dv_operator *op, char **out);
/* The text that `dovetail info` prints: the schema, the contract and the order in which it is solved, the kernel rows. */
DV_API int dv_operator_describe(const dv_operator *op, char **out);
/* The dispatch table, a line per runtime key: "CPU: kernel registered at ... [kernel]" in the manner of _dispatch_dump_table. */
DV_API int dv_operator_dump_table(const dv_operator *op, char **out);

/* May an operator with new_schema replace one with old_schema without breaking its callers? DV_OK, or DV_ESCHEMA with the reason
 * in dv_last_error(). */
DV_API int dv_schema_compatible(const char *new_schema, const char *old_schema);
/* Parse and print as PyTorch does; *out is freed with dv_free(). DV_ESYNTAX shows the column and what was expected. */
DV_API int dv_schema_normalize(const char *schema, char **out);
DV_API int dv_schema_json(const char *schema, char **out);

/* ---- Calling ------------------------------------------------------------------------------------------------------------- */

/* What a host framework provides for a call. Zero-initialise it and set size; a NULL entry takes the default. Each function gets
 * a pointer to this struct: embed it in a larger struct to reach your own data. Every entry returns a status (0: done) and may
 * set dv_fail(). */
typedef struct dv_host {
    uint32_t size;
    uint32_t flags; /* enum dv_host_flags */
    const char *name;
    /* Make a tensor for result `index` (or -1: a temporary). strides is never NULL. Default: dv_tensor_new; the caller of dv_call
     * unrefs the tensor. When the call fails, every tensor made so far is passed to free_tensor. */
    int (*new_tensor)(const struct dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
        const int64_t *strides, dv_tensor **out);
    void (*free_tensor)(const struct dv_host *host, dv_tensor *t);
    /* Copy between tensors of equal shape and dtype on a device other than the CPU. */
    int (*copy_tensor)(const struct dv_host *host, const dv_tensor *dst, const dv_tensor *src);
    int (*parallel_for)(const struct dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);
    int (*stream)(const struct dv_host *host, dv_device device, void **out);
    int (*random)(const struct dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset);
    int (*object)(const struct dv_host *host, const char *name, const void **out);
    /* Called just before and just after a call's kernel runs, to release and retake a lock. Nothing else of the call happens
     * between them. */
    void (*before_kernel)(const struct dv_host *host);
    void (*after_kernel)(const struct dv_host *host);
    /* Make a tensor for result `index` that shares base's memory (offset and strides in elements). Default: dv_tensor_view; a
     * host that sets new_tensor and not new_view cannot call operators that return views. On failure the tensor is passed to
     * free_tensor. */
    int (*new_view)(const struct dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
        const int64_t *strides, int64_t offset, dv_tensor **out);
    const struct dv_test_hooks *test; /* of dovetail_test.h, for tests of kernels; NULL in any other host */
} dv_host;

enum dv_host_flags {
    DV_HOST_DETERMINISTIC = 1,
    DV_HOST_CHECK = 2,       /* check mode: value checks on (`ids.values < e`) */
    DV_HOST_FUSES = 4,       /* a compiler will fuse native forms: the policy's word vllm-default means off */
    DV_HOST_NO_DISPATCH = 8, /* the host has dispatched already (PyTorch): go straight to the device's rows */
    DV_HOST_OWN_NATIVE = 32, /* the host runs native forms of tensors outside of the CPU's memory itself: a call that needs one
                                gives DV_ENATIVE after the contract's checks, and nothing is written */
};

/* Call an operator. args may be fewer than the schema's: the rest take their defaults. results must have one entry for each
 * return of the schema: a given tensor is written to (it must have the right shape, dtype and device, and overlap no input), a
 * DV_VALUE_DEFAULT entry is allocated by the host. On failure everything allocated has been freed and no result is set. host
 * NULL: the embedded default. A result that the schema declares to be an argument, Tensor(a!) -> Tensor(a!), is that argument's
 * own pointer, with no new reference. The caller owns the tensors of an allocated result, and of a list also its array: dv_free()
 * releases the array after the tensors. */
DV_API int dv_call(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host);
/* The same with the author's struct, in which the caller fills every field, also those of results, with tensors. fields describe
 * the struct: DV_FIELDS(struct swiglu, gate, up, out). */
DV_API int dv_call_frame(
    dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host);
/* What a call would return. */
typedef struct dv_result_spec {
    dv_dtype dtype;
    dv_device device;
    int32_t ndim;   /* -1: not a tensor, or absent */
    uint32_t flags; /* enum dv_spec_flags */
    int64_t shape[DV_MAX_NDIM], strides[DV_MAX_NDIM];
} dv_result_spec;
enum dv_spec_flags {
    DV_SPEC_UNBACKED = 1 /* sizes are upper bounds */,
    DV_SPEC_VIEW = 2,
    DV_SPEC_LIST = 4 /* dv_infer_list() */
};
/* Checks the arguments and fills `specs`, one for each return, without running a kernel. nspecs: the number of returns. */
DV_API int dv_infer(dv_operator *op, const dv_value *args, size_t nargs, dv_result_spec *specs, size_t nspecs);
/* The tensors of a result that is a list: how many, and the specs of the first `room` of them. */
DV_API int dv_infer_list(
    dv_operator *op, const dv_value *args, size_t nargs, size_t result, dv_result_spec *specs, size_t room, size_t *n);

/* ---- Calls of which not everything is known (docs/call.md) ----
 *
 * Arguments as for dv_infer(), except that in tensors a size below 0, an ndim below 0, a dtype of 0 bits and a device of type 0
 * are unknown (strides may be NULL), and an argument of type DV_VALUE_UNKNOWN is unknown altogether. All that follows is
 * inferred; only what contradicts every possible call fails, with the status and message of the contract's check. */
enum { DV_VALUE_UNKNOWN = 1000 }; /* dv_value.type */
/* An integer: from least to most, and rest above a multiple of step (0 or 1: any; then rest is 0). Known: least == most. */
typedef struct dv_range { int64_t least, most, step, rest; } dv_range;
typedef struct dv_known {
    /* 0: None, no result, or a name that is not bound; 1: there. The other fields hold where it is there. */
    dv_range present;
    dv_range value; /* an int or bool; how many: the dims of a tensor or a run, the elements of an int[], the tensors of a list */
    dv_dtype dtype; /* of 0 bits: unknown */
    dv_device device; /* of type 0: unknown */
    dv_string string; /* data NULL: unknown */
    uint32_t flags;   /* enum dv_spec_flags, of results */
    uint32_t reserved;
    dv_range sizes[DV_MAX_NDIM]; /* of dims, or of an int[]: its elements; any where their number is not known */
} dv_known;
static inline dv_known dv_unknown(void) /* dv_partial_set() narrows nothing by it. A size says: if there is such a dim */
{
    const dv_range any = { INT64_MIN, INT64_MAX, 1, 0 };
    dv_known k;
    memset(&k, 0, sizeof k);
    k.present.most = k.present.step = 1;
    k.value = any;
    for (int i = 0; i < DV_MAX_NDIM; i++)
        k.sizes[i] = any;
    return k;
}
/* The results: nspecs as the operator has. */
DV_API int dv_infer_partial(dv_operator *op, const dv_value *args, size_t nargs, dv_known *specs, size_t nspecs);

/* The same step by step: what is set narrows everything else that it decides. For one thread at a time; it borrows the operator
 * and what args point to. */
typedef struct dv_partial dv_partial;
enum dv_partial_of {
    DV_PARTIAL_ARGUMENT, /* index: the argument; element: of a list of tensors, else 0 */
    DV_PARTIAL_RESULT,
    DV_PARTIAL_NAME,    /* of the contract: dims, then runs, then dtypes, in the order of the operator's JSON */
    DV_PARTIAL_ELEMENT, /* of a result that is a list of tensors; present 0..1: it is not known whether the list is that long */
    /* The value is what facts (`ids.values < n`) allow the elements of a tensor to be; least > most: they allow none. Index as of
     * ARGUMENT. */
    DV_PARTIAL_VALUES,
    DV_PARTIAL_STRIDES, /* the strides of a result, or of one tensor of a list, in elements: dv_known.sizes holds them */
    DV_PARTIAL_CASE, /* index: the group of cases; element: the case; the value is 1 where it is the one that applies, else 0 */
};
DV_API int dv_partial_new(dv_operator *op, const dv_value *args, size_t nargs, dv_partial **out);
DV_API int dv_partial_get(const dv_partial *p, enum dv_partial_of of, size_t index, size_t element, dv_known *out);
/* What known says, and all that follows. Where no call is left, it fails and p stays as it was. For arguments
 * and names. */
DV_API int dv_partial_set(dv_partial *p, enum dv_partial_of of, size_t index, size_t element, const dv_known *known);
DV_API void dv_partial_free(dv_partial *p); /* NULL: nothing */

/* A call site: an operator with all arguments of a call fixed, its tensors by dtype, shape, strides and device. A node of a graph
 * is one, and tools name calls in this form. As text (docs/site.md): "my_ops::swiglu(gate=f32[4, 6], up=f32[4, 6], dim=-1)";
 * printing names every argument, and parsing that text gives an equal site. dv_site_new() takes args as dv_call() does; tensors
 * need no memory, and generators are refused (DV_ENOTSUP). */
typedef struct dv_site dv_site;
DV_API int dv_site_new(dv_operator *op, const dv_value *args, size_t nargs, dv_site **out);
DV_API int dv_site_parse(const char *text, dv_site **out); /* DV_ESYNTAX shows the column; DV_ENOENT: no such operator */
DV_API int dv_site_parse_for(dv_operator *op, const char *text, dv_site **out); /* for op, whatever name the text has */
DV_API int dv_site_print(const dv_site *s, char **out);                         /* freed with dv_free() */
DV_API void dv_site_free(dv_site *s);                                           /* NULL is fine */
DV_API dv_operator *dv_site_operator(const dv_site *s);                         /* borrowed */
DV_API const dv_value *dv_site_args(
    const dv_site *s); /* all arguments, with defaults filled in and values converted; tensors have no memory yet */
/* Give the tensors memory on the CPU, filled as the text says, else floats with values from -1 to 1, integers with 0. The same
 * text gives the same numbers. */
DV_API int dv_site_alloc(dv_site *s);
DV_API size_t dv_site_ntensors(const dv_site *s); /* each tensor of a list counts, None does not */
DV_API int dv_site_infer(const dv_site *s, dv_result_spec *specs, size_t nspecs);
/* Call the operator with these tensors in place of the site's, in the order of the arguments. They may differ from the site's:
 * the contract checks them. */
DV_API int dv_site_call(
    const dv_site *s, const dv_tensor *const *tensors, size_t ntensors, dv_value *results, size_t nresults, const dv_host *host);

/* The cost of one call that the contract declares: floating-point operations (-1: not declared) and bytes moved (default: every
 * tensor once). Checks the inputs, runs nothing. DV_ENOTSUP: the operator has no contract. */
DV_API int dv_cost(dv_operator *op, const dv_value *args, size_t nargs, double *flops, double *bytes);

/* Compute a declared gradient or tangent (docs/formula.md) by calling the operators that the formula names. All arrays have an
 * entry for each slot: the arguments, then the results. values: the arguments as they are after a successful call, and its
 * results. grads: the gradient of each result; for an argument that is written and not returned, its gradient, in the argument's
 * slot. A gradient that the formula names must be given. tangents: the tangent of each argument that the formula names. wanted:
 * which arguments need a gradient; NULL: all. out: new tensors and lists of tensors, made by the host and owned by the caller, in
 * the slots of the formula's targets (a list's array is freed with dv_free()); NONE where the gradient is zero. DV_ENOTSUP: no
 * formula is declared. */
DV_API int dv_gradient(
    dv_operator *op, const dv_value *values, const dv_value *grads, const bool *wanted, dv_value *out, const dv_host *host);
DV_API int dv_tangent(dv_operator *op, const dv_value *values, const dv_value *tangents, dv_value *out, const dv_host *host);

/* Called in a boxed kernel: continue the call with the next key below `key`. */
DV_API int dv_redispatch(
    dv_operator *op, int key, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host);
/* Thread-local guards: keys that are added to or removed from the keys of every call of this thread. Pass the returned guard to
 * dv_guard_pop(). */
typedef struct dv_guard { uint32_t included, excluded; } dv_guard;
DV_API dv_guard dv_guard_push(uint32_t include_keys, uint32_t exclude_keys); /* bits 1u << enum dv_key */
DV_API void dv_guard_pop(dv_guard previous);

/* Set the error message of this thread and return status: for hosts and boxed kernels. */
DV_API DV__PRINTF(2, 3) int dv_fail(int status, const char *format, ...);

/* Why a call selects its kernel: fn gets each row in the order in which rows are tried. No kernel runs. */
typedef struct dv_row_report {
    const char *name, *provider, *device, *dtypes, *isa, *when;
    bool taken;
    const char *reason; /* "taken", or why not: "this processor has no avx512" */
} dv_row_report;
DV_API int dv_explain(
    dv_operator *op, const dv_value *args, size_t nargs, void (*fn)(void *user, const dv_row_report *row), void *user);

/* The list of a row with DV_KERNEL_LIST, whose name is the call "f(x, float(eps), k or 0)" of a function of another system. It
 * was checked against the schema when the library was loaded. An empty list in the name stands for tensors, then all other
 * arguments, then results. */
typedef struct dv_row_item {
    int32_t slot;      /* of the operator; -1: a constant */
    uint32_t type;     /* enum dv_field_type of the plain input, as it is passed; 0: a null pointer */
    bool narrow;       /* of FLOAT: a C float, else a double */
    const char *name;  /* of the argument or result, for messages */
    dv_value constant; /* where slot is -1, or where the argument is None; DV_VALUE_DEFAULT: no such constant */
} dv_row_item;
enum { DV_MOST_ROW_ITEMS = 128 };
typedef struct dv_row_list {
    uint32_t size;
    uint32_t reserved;
    const char *function; /* "f" */
    const dv_row_item *items;
    size_t n;
} dv_row_list;

/* The call in which a kernel runs, from dv_query(ctx, "dovetail.call"): for code that launches kernels of another system as the
 * name of their row says (docs/ascend.md). Borrowed until the kernel returns; NULL in a row that is split. */
typedef struct dv_running {
    uint32_t size;
    uint32_t reserved;
    dv_operator *op;
    const char *row;                 /* its name */
    const dv_host *host;             /* NULL: the embedded default */
    const dv_value *args;            /* all arguments, completed and converted, then results; their tensors are the host's own */
    const dv_tensor *const *tensors; /* what the kernel sees, by slot (arguments, then results), perhaps contiguous copies that
                                        the host did not make; NULL: None, or not one tensor */
    const dv_tensors *lists;         /* the same of lists of tensors */
    const dv_row_list *list;         /* what the row's name says; NULL without DV_KERNEL_LIST */
} dv_running;
/* From now on dv_query(ctx, name) answers `what` in every kernel of this process. */
DV_API int dv_extend(const char *name, const void *what);

/* Restart the embedded default's random numbers (dv_random) from this seed. */
DV_API int dv_set_seed(uint64_t seed);
/* Threads of the embedded default: 1 to DV_MAX_THREADS; 0: as many as the process may use. Survives fork. */
#define DV_MAX_THREADS 256
DV_API int dv_set_threads(int n);
DV_API int dv_get_threads(void);
/* Act as if the processor had at most these instruction sets, and those that they include ("base", "avx2", "avx512",
 * "avx512bf16+avx512vnni",
 * ...; NULL: its own), for tests and benchmarks. DV_EINVAL: a name of another architecture, or of none. */
DV_API int dv_set_isa(const char *isas);
/* Those that rows are chosen for, without what others include: "avx512vnni+avx512bf16". Valid until the thread's next call. */
DV_API const char *dv_get_isa(void);
DV_API const char *dv_isa_at(size_t i); /* every name that a row's .isa may have, on any processor; NULL after the last */

/* ---- Policy: which operators run their own kernels and which their native form ------------------------------------------- */

/* Text like "all,-ns::rms_norm" or "none,+swiglu": at most one of all, none and vllm-default (none where the host fuses, else
 * all), then +name and -name, where a name is "ns::name" or "name". Without the first word all operators are on. Unknown names
 * are accepted, since they may be loaded later. The message of DV_EINVAL names the wrong word. Precedence: thread, process (these
 * functions), DOVETAIL_OPS, the file named by DOVETAIL_POLICY. NULL unsets. */
DV_API int dv_policy_set(const char *text);
DV_API int dv_policy_set_thread(const char *text);
DV_API int dv_policy_load(const char *path); /* a file of such words, # comments; sets the process policy */
DV_API bool dv_policy_enabled(const dv_operator *op, bool host_fuses);
/* The same for a class of layers with several forms (vLLM's CustomOp): without a first word it follows vllm-default. NULL: false.
 */
DV_API bool dv_policy_enabled_class(const char *name, bool host_fuses);
DV_API uint64_t dv_policy_generation(void); /* changes whenever a decision may change: for guards and cache keys */
/* How often each operator was called while enabled and while disabled, since the start, in order of name. */
DV_API int dv_policy_counts(int (*fn)(void *user, const char *name, uint64_t enabled, uint64_t disabled), void *user);

#ifdef __cplusplus
}
#endif
#endif
