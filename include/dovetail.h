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

DV_API const char *dv_version(void); /* returns the version of the library that is running, as "0.1.0" */
/* Returns the name of a status, as "EINVAL"; "unknown status" for another number. */
DV_API const char *dv_status_name(int status);
/* Returns the message of this thread's last failure; "" if nothing has failed; valid until the thread's next failure. */
DV_API const char *dv_last_error(void);
DV_API void dv_clear_error(void);

/* The library allocates through these three functions only, and passes `user` to each. Call dv_set_allocator() from one
 * thread before any other function; NULL restores malloc. Tests use it to fail each allocation in turn. */
typedef struct dv_allocator {
    void *(*alloc)(void *user, size_t size);
    void *(*realloc)(void *user, void *p, size_t size);
    void (*free)(void *user, void *p);
    void *user;
} dv_allocator;
DV_API void dv_set_allocator(const dv_allocator *allocator);
DV_API void dv_free(void *p); /* frees a string that the library returned; NULL is allowed */

/* ---- Element types ------------------------------------------------------------------------------------------------------- */

/* Returns the contract language's name of a dtype ("f32", "bf16", "f8_e4m3fn"). For several lanes the name is text such as
 * "f32x4" in a buffer of this thread. */
DV_API const char *dv_dtype_name(dv_dtype dtype);
/* Parses a dtype's name, also others such as "float32", "torch.float32", "int64". Fails with DV_EDTYPE. */
DV_API int dv_dtype_parse(const char *name, dv_dtype *out);

/* A row of DV_DTYPES, which explains the columns. names: words, separated by spaces. */
typedef struct dv_dtype_row {
    dv_dtype dtype;
    const char *name, *names;
    int exponent, mantissa, bias;
    enum dv_float_form form;
    int torch;
} dv_dtype_row;
DV_API const dv_dtype_row *dv_dtype_at(size_t i);            /* row i of the table; NULL after the last row */
DV_API const dv_dtype_row *dv_dtype_named(const char *name); /* finds a row by its short name, "f32", only; NULL: none */
DV_API const dv_dtype_row *dv_dtype_find(dv_dtype dtype);    /* finds a dtype's row, whatever its lanes; NULL: not in the table */
/* Returns the first of a dtype's other names, "float32", which NumPy, ml_dtypes and PyTorch use; "" if it has none. The text
 * is in a buffer of this thread. */
DV_API const char *dv_dtype_long_name(dv_dtype dtype);

/* dv_element_get() reads element i of memory on the CPU as a number, and dv_element_put() writes it. The real part of a
 * complex element is read; its imaginary part is written as 0. A written value is rounded to the nearest of a narrow format.
 * Handles and dtypes outside the table read as 0, and writing them has no effect. */
DV_API double dv_element_get(const void *data, int64_t i, dv_dtype dtype);
DV_API void dv_element_put(void *data, int64_t i, dv_dtype dtype, double x);

/* Returns a device type's name: "cpu", "cuda", "npu"; "device 77" for an unknown one. */
DV_API const char *dv_device_name(int32_t device_type);
DV_API int dv_device_parse(const char *name, dv_device *out); /* parses "cpu" or "cuda:1"; fails with DV_EDEVICE */

/* ---- Tensors ------------------------------------------------------------------------------------------------------------- */

#define DV_MAX_NDIM 64

/* Returns the bytes that n elements of this type take (sub-byte types are packed, rounded up to a byte). Returns -1 if n is
 * negative or the number overflows. */
DV_API int64_t dv_dtype_bytes(dv_dtype dtype, int64_t n);

/* Fills *t as a view of the caller's memory. shape and strides are borrowed for as long as t is used. strides NULL means
 * contiguous: the strides are then written to contiguous_strides, which must have memory for ndim of them (NULL: DV_EINVAL).
 * Fails with DV_ESHAPE for negative sizes, more than DV_MAX_NDIM dims, and sizes whose bytes overflow int64_t. */
DV_API int dv_tensor_init(dv_tensor *t, void *data, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t *contiguous_strides);

/* Makes a tensor on the CPU with zeroed, 64-byte aligned, contiguous memory of its own and a reference count of 1. */
DV_API int dv_tensor_new(dv_dtype dtype, int32_t ndim, const int64_t *shape, dv_tensor **out);
/* Makes a tensor that shares the memory of base. If this library made base, the view holds a reference to it; any other base
 * must outlive the view. offset and strides are in elements; the view must lie inside base's extent, else DV_ESHAPE. */
DV_API int dv_tensor_view(
    dv_tensor *base, int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t offset, dv_tensor **out);
/* dv_tensor_ref() adds a reference and returns t; dv_tensor_unref() drops one. Both are for tensors that this library made
 * only, and accept NULL. The counts are atomic. */
DV_API dv_tensor *dv_tensor_ref(dv_tensor *t);
DV_API void dv_tensor_unref(dv_tensor *t);

/* DLPack 1.x (struct DLManagedTensorVersioned of dlpack.h; any minor version). dv_tensor_from_dlpack() owns take_managed
 * from then on, also on failure. NULL strides and a byte_offset are accepted, and the read-only flag is kept.
 * dv_tensor_to_dlpack() makes a managed tensor whose deleter drops one reference to t. */
struct DLManagedTensorVersioned;
DV_API int dv_tensor_from_dlpack(struct DLManagedTensorVersioned *take_managed, dv_tensor **out);
DV_API int dv_tensor_to_dlpack(dv_tensor *t, struct DLManagedTensorVersioned **out);

DV_API bool dv_tensor_is_contiguous(const dv_tensor *t);
/* True if two indices may name one element; exact for contiguous and expanded tensors, true also where it is not known. */
DV_API bool dv_tensor_overlaps_itself(const dv_tensor *t);
/* True if both may share a byte; exact for contiguous tensors, true also where it is not known. */
DV_API bool dv_tensor_overlaps(const dv_tensor *a, const dv_tensor *b);
/* Copies all elements between tensors of equal shape and dtype, with any strides, on the CPU. Fails with DV_ESHAPE,
 * DV_EDTYPE, DV_EDEVICE, or DV_EALIAS if the tensors overlap. */
DV_API int dv_tensor_copy(const dv_tensor *dst, const dv_tensor *src);

/* ---- Values: the arguments and results of a call, in the schema's order -------------------------------------------------- */

/* Lists the value types as DV__VALUE(name, C type, member of dv_value.as): the rows of DV_FIELD_TYPES whose form is ONE, POINTER
 * or LIST. Elements of TENSORS may be NULL. A call writes the tensors of results and of written arguments, in spite of the const.
 */
#define DV_VALUES DV_FIELD_TYPES(DV__VALUE_ROW)
#define DV__VALUE_ROW(name, number, ctype, word, form, of, value, member) DV__VALUE_##form(name, ctype, member)
#define DV__VALUE_ONE(...) DV__VALUE(__VA_ARGS__)
#define DV__VALUE_POINTER(...) DV__VALUE(__VA_ARGS__)
#define DV__VALUE_LIST(...) DV__VALUE(__VA_ARGS__)
#define DV__VALUE_NUMBER(...)
#define DV__VALUE_OPTIONAL(...)
#define DV__VALUE_WRITTEN(...)
#define DV__VALUE_RESULT(...)

enum dv_value_type {
    DV_VALUE_DEFAULT = 0, /* as an argument: use the schema's default; as a result: the host allocates it */
    DV_VALUE_NONE,
#define DV__VALUE(name, ctype, member) DV_VALUE_##name,
    DV_VALUES
#undef DV__VALUE
};

/* One argument or result, in 24 bytes. Pointers are borrowed for the call. A value for a Scalar is an INT, FLOAT, BOOL or
 * COMPLEX. */
typedef struct dv_value {
    uint32_t type; /* enum dv_value_type */
    uint32_t reserved;
    union {
#define DV__VALUE(name, ctype, member) ctype member;
        DV_VALUES
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
/* Returns the row of an enum dv_field_type; for an unknown one a row of zeros and "". */
DV_API const dv_field_row *dv_field_at(uint32_t type);
/* Returns the row of form ONE, POINTER or LIST whose values have this enum dv_value_type; for an unknown one a row of zeros. */
DV_API const dv_field_row *dv_field_of_value(uint32_t type);
/* Returns element i of a value that is a list. An absent element of TENSORS is NONE. */
DV_API dv_value dv_value_element(const dv_value *list, size_t i);
/* Returns the field type that has this form of `type`; 0: none. For INT, LIST gives INTS, OPTIONAL gives OPT_INT, and RESULT
 * gives INT_RESULT. A type with the form POINTER is its own OPTIONAL. WRITTEN and RESULT both find a type of either form. */
DV_API uint32_t dv_field_with_form(uint32_t type, enum dv_field_form form);

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
/* Returns the number of a Scalar; NONE if its kind is unknown. */
static inline dv_value dv_from_scalar(dv_scalar s)
{
    dv_value v = dv_none();
    if (s.kind < DV_SCALAR_INT || s.kind > DV_SCALAR_COMPLEX)
        return v;
    v.type = DV_VALUE_INT + (s.kind - DV_SCALAR_INT); /* both enums have int, float, bool and complex in this order */
    memcpy(&v.as, &s.as, sizeof s.as);
    return v;
}
/* Returns a value of type INT, FLOAT, BOOL or COMPLEX as a Scalar. */
static inline dv_scalar dv_to_scalar(const dv_value *number)
{
    dv_scalar s;
    memset(&s, 0, sizeof s);
    s.kind = DV_SCALAR_INT + (number->type - DV_VALUE_INT);
    memcpy(&s.as, &number->as, sizeof s.as);
    return s;
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
typedef struct dv_operator dv_operator; /* one overload of an operator, with a reference count */

/* Dispatch keys, with PyTorch's names and precedence. */
enum dv_key {
    DV_KEY_CPU,
    DV_KEY_CUDA,
    DV_KEY_PRIVATEUSE1, /* NPU */
    DV_KEY_META,
    DV_KEY_AUTOGRAD_CPU,
    DV_KEY_AUTOGRAD_CUDA,
    DV_KEY_AUTOGRAD_PRIVATEUSE1,
    DV_KEY_RUNTIME_COUNT, /* alias keys follow: they fill entries of the dispatch table, and no call has them */
    DV_KEY_AUTOGRAD = DV_KEY_RUNTIME_COUNT,
    DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD,
    DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD,
    DV_KEY_COUNT,
    DV_KEY_NONE = -1
};
DV_API const char *dv_key_name(int key);
DV_API int dv_key_parse(const char *name, int *key); /* fails with DV_ENOENT; the message lists the names of all keys */

/* Checks that only this user and root can replace files in a folder. The folder and each folder above it must belong to one
 * of them, and others may not write there, unless the folder is sticky. DV_EINVAL: the folder itself fails the check.
 * DV_EIO: a folder above it fails, or cannot be reached. */
enum dv_folder {
    DV_FOLDER_MAKE = 1,    /* make missing folders, which only this user can enter */
    DV_FOLDER_OWN = 2,     /* the folder must belong to this user, and others may not write to it even if it is sticky */
    DV_FOLDER_ANY_ROOT = 4 /* the owner of "/" counts as root: in a user namespace root may have another number */
};
DV_API int dv_folder_check(const char *path, unsigned flags);

/* Loads a binary that `dovetail build` made: its operators (or kernels) are registered until the library is freed. The file
 * is checked first (ELF extents, architecture, the symbol, ABI): DV_EBINARY, DV_EABI, DV_ESCHEMA, DV_ECONTRACT, DV_EEXIST.
 * The same content can be loaded only once. If a formula has loaded the base set, the first dv_load() of its file returns
 * that library. The file may be replaced while it is loaded. */
DV_API int dv_load(const char *path, dv_library **out);
/* Registers the operators of a descriptor that is linked into the program. The descriptor must outlive the library. */
DV_API int dv_load_static(const struct dv_library_decl *decl, dv_library **out);

/* dv_library_new() makes an empty library for registration by hand, and dv_library_define() adds an operator by its schema.
 * ns is borrowed for the call; key: enum dv_key of an IMPL library, or DV_KEY_NONE. *borrowed_out: the operator, which the
 * library owns; NULL: not wanted. */
DV_API int dv_library_new(int kind, const char *ns, int key, dv_library **out);
DV_API int dv_library_define(dv_library *lib, const char *schema, const char *tags, dv_operator **borrowed_out);

/* A boxed kernel. args and results are in the schema's order; a result is DV_VALUE_DEFAULT (to be allocated) or a value that
 * the caller passed. A boxed kernel may call dv_redispatch(). It returns a status; dv_fail() sets the message. */
struct dv_host;
typedef int (*dv_boxed_fn)(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const struct dv_host *host);
/* Registers a boxed kernel for an operator by name; key DV_KEY_NONE: the library's key. */
DV_API int dv_library_impl(dv_library *lib, const char *name, int key, dv_boxed_fn fn, void *user);
DV_API int dv_library_impl_fallthrough(dv_library *lib, const char *name, int key);
/* Registers a boxed kernel for all operators that have none for the key; fn NULL: a fallthrough. */
DV_API int dv_library_fallback(dv_library *lib, int key, dv_boxed_fn fn, void *user);
/* Removes all registrations of the library; the code of a loaded binary stays mapped. References to its operators stay
 * valid, and calls fail with DV_EUNLOADED. NULL is allowed. */
DV_API void dv_library_free(dv_library *lib);
DV_API const char *dv_library_name(const dv_library *lib);
/* Returns the absolute path of the library's file; NULL if it was not loaded from a file. */
DV_API const char *dv_library_path(const dv_library *lib);
/* Returns a hash of the file's content when it was loaded, in 32 hex digits; NULL if the library was not loaded from a file. */
DV_API const char *dv_library_content_hash(const dv_library *lib);
/* Computes the hash of dv_library_content_hash() for an operator binary's file. */
DV_API int dv_file_content_hash(const char *path, char out[33]);
/* Computes the digest of an operator binary's loaded bytes, which `dovetail build` writes into the binary. With it dv_load()
 * refuses a damaged file. *at: where the 16 bytes belong in the file. DV_EBINARY: the binary has no note for the digest
 * (docs/abi.md). */
DV_API int dv_file_digest(const char *path, uint64_t *at, unsigned char stamp[16]);
DV_API size_t dv_library_noperators(const dv_library *lib); /* the number of operators that the library defines */
/* Returns operator i of the library, borrowed; NULL past the end. */
DV_API dv_operator *dv_library_operator(const dv_library *lib, size_t i);

/* Finds "ns::name" or "ns::name.overload" (in the newest library that defines it) and gives the caller a reference. The
 * message of DV_ENOENT lists similar names. dv_library_find() looks in one library only, for programs that load two
 * versions. */
DV_API int dv_find(const char *name, dv_operator **out);
DV_API int dv_library_find(const dv_library *lib, const char *name, dv_operator **out);
DV_API dv_operator *dv_operator_ref(dv_operator *op);
DV_API void dv_operator_unref(dv_operator *op);
/* Calls fn for every registered operator, in order of name, without holding a lock. Stops when fn returns non-zero, and
 * returns that value. */
DV_API int dv_for_each_operator(int (*fn)(void *user, dv_operator *op), void *user);

/* Makes the functional form of an operator that writes arguments (docs/schema.md). The form writes no argument; its results
 * are the operator's own, then the new value of each written argument, "<name>_out". It is called like any operator, and
 * runs the operator's own kernels. The caller may pass the argument itself for a new value. The form is not registered, and
 * the caller unrefs it. For an operator that writes nothing, *out is that operator. DV_ENOTSUP: a result is a view of a
 * written argument. */
DV_API int dv_functional(dv_operator *op, dv_operator **out);

DV_API const char *dv_operator_name(const dv_operator *op);   /* "ns::name.overload" */
DV_API const char *dv_operator_schema(const dv_operator *op); /* the schema, as torch prints it */
DV_API const char *dv_operator_doc(const dv_operator *op);    /* the one paragraph of text in .doc; "" without one */
DV_API const char *dv_operator_tags(const dv_operator *op);   /* the tags as declared; "" without any */
/* Gives the path of the file from which the operator's library was loaded (freed by the caller with dv_free()), and its
 * dv_library_content_hash(). DV_ENOENT: the library was not loaded from a file. */
DV_API int dv_operator_binary(const dv_operator *op, char **path, char content[33]);
/* True if the operator has kernels for this type of device (enum dv_device_type), from any library. */
DV_API bool dv_operator_has_kernels(const dv_operator *op, int32_t device_type);
DV_API size_t dv_operator_nargs(const dv_operator *op);
DV_API size_t dv_operator_nresults(const dv_operator *op);
/* One argument (slot < nargs) or one result (slot >= nargs), for hosts that convert values. All pointers in it are borrowed
 * from op. */
typedef struct dv_slot_info {
    const char *name;   /* the schema's name; "" for an unnamed result */
    uint32_t type;      /* enum dv_field_type of an unmodified input (TENSOR, INT ... DEVICES; never OPT_, MUT_ or _RESULT); 0: no
                         * dv_value can hold the type */
    uint32_t flags;     /* enum dv_slot_flags */
    int64_t fixed_size; /* N of int[N]; -1: not a list of fixed size */
    int32_t alias;      /* of a result Tensor(a!) or Tensor(a): the index of the argument in the same alias set; -1: none, or an
                           argument */
    uint32_t reserved;
    const char *default_text; /* the default as torch prints it; NULL: no default */
    dv_value default_value;   /* the default as a value; DV_VALUE_DEFAULT: no default */
} dv_slot_info;
enum dv_slot_flags {
    DV_SLOT_OPTIONAL = 1,         /* the value may be None */
    DV_SLOT_ELEMENT_OPTIONAL = 2, /* elements of the list may be None: Tensor?[] */
    DV_SLOT_KWARG_ONLY = 4,
    DV_SLOT_WRITES = 8, /* the operator writes the argument: Tensor(a!) */
    DV_SLOT_GIVEN =
        16 /* a result that is a list of tensors of unknown length, without a contract: the caller of dv_call() must pass it */
};
/* Describes a slot; fails with DV_EINVAL for a slot that does not exist. */
DV_API int dv_operator_slot(const dv_operator *op, size_t slot, dv_slot_info *out);

/* Prints everything that was declared as one JSON document: schema, contract and formulas as expression trees, kernels,
 * tags, file and line (docs/json.md). Bridges build fake functions and gradients from it. The caller frees *out with
 * dv_free(). */
DV_API int dv_operator_json(const dv_operator *op, char **out);
/* Prints the text of `dovetail info`: the schema, the contract and the order in which it is solved, the kernels. The caller
 * frees *out with dv_free(). */
DV_API int dv_operator_describe(const dv_operator *op, char **out);
/* Prints the dispatch table, a line for each runtime key, as "CPU: swiglu_f32 (my_ops) [kernel]", like PyTorch's
 * _dispatch_dump_table. The caller frees *out with dv_free(). */
DV_API int dv_operator_dump_table(const dv_operator *op, char **out);

/* Checks whether an operator with new_schema can replace one with old_schema without breaking its callers. Returns DV_OK, or
 * DV_ESCHEMA with the reason in dv_last_error(). */
DV_API int dv_schema_compatible(const char *new_schema, const char *old_schema);
/* dv_schema_normalize() parses a schema and prints it as PyTorch does; dv_schema_json() prints it as JSON. The caller frees
 * *out with dv_free(). The message of DV_ESYNTAX shows the column and what was expected. */
DV_API int dv_schema_normalize(const char *schema, char **out);
DV_API int dv_schema_json(const char *schema, char **out);

/* ---- Calling ------------------------------------------------------------------------------------------------------------- */

/* What a host framework provides for a call. Zero-initialise it and set size; a NULL entry has a default. Each function gets
 * a pointer to this struct: embed the struct in a larger one to reach your own data. Every entry that returns int returns a
 * status, and may set a message by dv_fail(). */
typedef struct dv_host {
    uint32_t size;
    uint32_t flags; /* enum dv_host_flags */
    const char *name;
    /* Makes a tensor for result `index` (-1: a temporary). strides is never NULL. Default: dv_tensor_new(), and the caller
     * of dv_call() unrefs the tensor. When the call fails, every tensor made so far is passed to free_tensor. */
    int (*new_tensor)(const struct dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
        const int64_t *strides, dv_tensor **out);
    void (*free_tensor)(const struct dv_host *host, dv_tensor *t);
    /* Copies between tensors of equal shape and dtype, at least one of which is on another device than the CPU. */
    int (*copy_tensor)(const struct dv_host *host, const dv_tensor *dst, const dv_tensor *src);
    int (*parallel_for)(const struct dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);
    int (*stream)(const struct dv_host *host, dv_device device, void **out);
    int (*random)(const struct dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset);
    int (*object)(const struct dv_host *host, const char *name, const void **out);
    /* before_kernel() is called just before a call's kernel and its staging copies, after_kernel() just after them, to
     * release and retake a lock. */
    void (*before_kernel)(const struct dv_host *host);
    void (*after_kernel)(const struct dv_host *host);
    /* Makes a tensor for result `index` that shares base's memory (offset and strides in elements). Default:
     * dv_tensor_view(). A host that sets new_tensor and not new_view cannot call operators that return views. On failure the
     * tensor is passed to free_tensor. */
    int (*new_view)(const struct dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
        const int64_t *strides, int64_t offset, dv_tensor **out);
    const struct dv_test_hooks *test; /* the hooks of dovetail_test.h, for tests of kernels; NULL in any other host */
} dv_host;

enum dv_host_flags {
    DV_HOST_DETERMINISTIC = 1,
    DV_HOST_CHECK = 2,       /* check mode: conditions on the elements of tensors are tested too (`ids.values < e`) */
    DV_HOST_FUSES = 4,       /* a compiler fuses decompositions: the policy's word vllm-default then turns operators off */
    DV_HOST_NO_DISPATCH = 8, /* the host has chosen the dispatch key (PyTorch): guards are ignored and the device's kernels run */
    DV_HOST_RUNS_NATIVE = 32, /* the host itself runs decompositions of tensors outside of the CPU's memory: a call that needs one
                               * returns DV_ENATIVE after the contract's checks, and writes nothing */
};

/* Calls an operator. args may be fewer than the schema's: the others have their defaults. results must have one entry for
 * each return of the schema. A tensor in it is written (it must have the right shape, dtype and device, and overlap no
 * input); for a DV_VALUE_DEFAULT entry the host allocates the result. On failure everything allocated has been freed and no
 * result is set. host NULL: the embedded default. A result that the schema declares to be an argument, Tensor(a!) ->
 * Tensor(a!), is that argument's own pointer, with no new reference. The caller owns the tensors of an allocated result, and
 * of a list also its array: dv_free() releases the array after the tensors. */
DV_API int dv_call(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host);
/* Calls an operator with the author's struct, in which the caller sets every field, also those of results, to tensors.
 * fields describe the struct: DV_FIELDS(struct swiglu, gate, up, out). */
DV_API int dv_call_frame(
    dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host);
/* Metadata of one result that a call would return. */
typedef struct dv_result_spec {
    dv_dtype dtype;
    dv_device device;
    int32_t ndim;   /* number of dims; -1: the result is no single tensor, or is absent */
    uint32_t flags; /* enum dv_spec_flags */
    int64_t shape[DV_MAX_NDIM], strides[DV_MAX_NDIM];
} dv_result_spec;
enum dv_spec_flags {
    DV_SPEC_UNBACKED = 1 /* the sizes are upper bounds */,
    DV_SPEC_VIEW = 2,
    DV_SPEC_LIST = 4 /* the result is a list of tensors: dv_infer_list() describes them */
};
/* Checks the arguments and fills `specs`, one for each return, without running a kernel. nspecs: the number of returns. */
DV_API int dv_infer(dv_operator *op, const dv_value *args, size_t nargs, dv_result_spec *specs, size_t nspecs);
/* Describes the tensors of a result that is a list. *n: the list's length. specs: receives the first `room` tensors. */
DV_API int dv_infer_list(
    dv_operator *op, const dv_value *args, size_t nargs, size_t result, dv_result_spec *specs, size_t room, size_t *n);

/* ---- Calls of which not everything is known (docs/call.md) ----
 *
 * Arguments as for dv_infer(), except that in tensors a size below 0, an ndim below 0, a dtype of 0 bits and a device of type 0
 * are unknown (strides may be NULL), and an argument of type DV_VALUE_UNKNOWN is unknown altogether. All that follows is
 * inferred; only what contradicts every possible call fails, with the status and message of the contract's check. */
enum { DV_VALUE_UNKNOWN = 1000 }; /* value of dv_value.type: nothing is known about the argument */
/* A partly known integer: from least to most, and `rest` above a multiple of step (step 0 or 1: any integer; then rest is
 * 0). The integer is known if least == most. */
typedef struct dv_range { int64_t least, most, step, rest; } dv_range;
typedef struct dv_partial_spec {
    /* 0: the value is None, an absent result, or a name that is not bound; 1: the value exists. The other fields describe an
     * existing value. */
    dv_range present;
    dv_range value;   /* the value of an int or bool; else a count: the dims of a tensor or of variadic dims, the elements of an
                       * int[], the tensors of a list */
    dv_dtype dtype;   /* the tensor's dtype; 0 bits: unknown */
    dv_device device; /* the tensor's device; type 0: unknown */
    dv_string string; /* the value of a str; data NULL: unknown */
    uint32_t flags;   /* enum dv_spec_flags of a result */
    uint32_t reserved;
    dv_range
        sizes[DV_MAX_NDIM]; /* the sizes of the dims, or the elements of an int[]; unknown ones if their number is not known */
} dv_partial_spec;
static inline dv_partial_spec dv_partial_spec_unknown(void) /* returns a value of which nothing is known, so that dv_partial_set()
                                           narrows nothing; sizes[d] describes dim d if it exists */
{
    const dv_range any = { INT64_MIN, INT64_MAX, 1, 0 };
    dv_partial_spec k;
    memset(&k, 0, sizeof k);
    k.present.most = k.present.step = 1;
    k.value = any;
    for (int i = 0; i < DV_MAX_NDIM; i++)
        k.sizes[i] = any;
    return k;
}
/* Infers what is known about each result of a call whose arguments are partly known. nspecs: the number of returns. */
DV_API int dv_infer_partial(dv_operator *op, const dv_value *args, size_t nargs, dv_partial_spec *specs, size_t nspecs);

/* Inference step by step: each value that is set narrows all values that follow from it. A dv_partial is for one thread at a
 * time. It borrows the operator and what args point to. */
typedef struct dv_partial dv_partial;
enum dv_partial_of {
    DV_PARTIAL_ARGUMENT, /* argument `index`; element: the tensor of a list, else 0 */
    DV_PARTIAL_RESULT,
    DV_PARTIAL_NAME, /* name `index` of the contract: dims, then variadic dims, then dtypes, in the order of the operator's JSON
                      */
    DV_PARTIAL_ELEMENT, /* tensor `element` of result `index`, a list; present from 0 to 1: it is not known whether the list is
                           that long */
    /* The values that facts (`ids.values < n`) allow the elements of argument `index` to have; least > most: they allow
     * none. */
    DV_PARTIAL_VALUES,
    DV_PARTIAL_STRIDES, /* the strides of result `index`, or of tensor `element` of a list, in elements, in dv_partial_spec.sizes
                         */
    DV_PARTIAL_CASE,    /* case `element` of group `index`: the value is 1 if the case is selected, else 0 */
};
DV_API int dv_partial_new(dv_operator *op, const dv_value *args, size_t nargs, dv_partial **out);
DV_API int dv_partial_get(const dv_partial *p, enum dv_partial_of of, size_t index, size_t element, dv_partial_spec *out);
/* Narrows an argument or a name to what `known` states, and all values that follow. If no call can meet it, fails and leaves
 * p as it was. */
DV_API int dv_partial_set(dv_partial *p, enum dv_partial_of of, size_t index, size_t element, const dv_partial_spec *known);
DV_API void dv_partial_free(dv_partial *p); /* frees the inference; NULL is allowed */

/* A call site: an operator with all arguments of a call fixed, its tensors described by dtype, shape, strides and device. A
 * node of a graph is a call site, and tools name calls in this form. Its text (docs/site.md) is "my_ops::swiglu(gate=f32[4,
 * 6], up=f32[4, 6], dim=-1)". Printing names every argument, and parsing that text gives an equal site. dv_site_new()
 * accepts args as dv_call() does; tensors need no memory, and generators are refused (DV_ENOTSUP). */
typedef struct dv_site dv_site;
DV_API int dv_site_new(dv_operator *op, const dv_value *args, size_t nargs, dv_site **out);
/* Returns the message of DV_ESYNTAX shows the column; DV_ENOENT: the operator does not exist. */
DV_API int dv_site_parse(const char *text, dv_site **out);
/* Parses a site of op, whatever operator the text names. */
DV_API int dv_site_parse_for(dv_operator *op, const char *text, dv_site **out);
DV_API int dv_site_print(const dv_site *s, char **out); /* prints the site's text, which the caller frees with dv_free() */
DV_API void dv_site_free(dv_site *s);                   /* NULL is fine */
DV_API dv_operator *dv_site_operator(const dv_site *s); /* borrowed */
/* Returns all arguments, with defaults filled in and values converted; tensors have no memory before dv_site_alloc(). */
DV_API const dv_value *dv_site_args(const dv_site *s);
/* Gives the tensors memory on the CPU, filled as the text states; without a statement floats are random from -1 to 1, and
 * integers 0. The same text gives the same numbers. */
DV_API int dv_site_alloc(dv_site *s);
/* Returns the number of the site's tensors: each tensor of a list counts, None does not. */
DV_API size_t dv_site_ntensors(const dv_site *s);
DV_API int dv_site_infer(const dv_site *s, dv_result_spec *specs, size_t nspecs);
/* Calls the operator with these tensors in place of the site's, in the order of the arguments. They may differ from the
 * site's: the contract checks them. */
DV_API int dv_site_call(
    const dv_site *s, const dv_tensor *const *tensors, size_t ntensors, dv_value *results, size_t nresults, const dv_host *host);

/* Computes the cost of one call by the contract: floating-point operations (-1: not declared) and bytes moved (by default
 * every tensor once, written arguments twice). Checks the inputs and runs no kernel. DV_ENOTSUP: the operator has no
 * contract. */
DV_API int dv_cost(dv_operator *op, const dv_value *args, size_t nargs, double *flops, double *bytes);

/* Computes a declared gradient or tangent (docs/formula.md) by calling the operators that the formula names. All arrays have
 * an entry for each slot: the arguments, then the results. values: the arguments as they are after a successful call, and
 * its results. grads: the gradient of each result; for an argument that is written and not returned, its gradient, in the
 * argument's slot. A gradient that the formula names must be given. tangents: the tangent of each argument that the formula
 * names. wanted: which arguments need a gradient; NULL: all. out: new tensors and lists of tensors, made by the host and
 * owned by the caller, in the slots of the formula's targets (a list's array is freed with dv_free()). An entry is NONE
 * where the gradient is zero. DV_ENOTSUP: no formula is declared. */
DV_API int dv_gradient(
    dv_operator *op, const dv_value *values, const dv_value *grads, const bool *wanted, dv_value *out, const dv_host *host);
DV_API int dv_tangent(dv_operator *op, const dv_value *values, const dv_value *tangents, dv_value *out, const dv_host *host);

/* Continues a call in a boxed kernel: dispatches again, among the keys below `key`. */
DV_API int dv_redispatch(
    dv_operator *op, int key, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host);
/* Thread-local guards: keys that are added to or removed from the keys of every call of this thread. dv_guard_push() returns
 * the guard before, which the caller passes to dv_guard_pop(). */
typedef struct dv_guard { uint32_t included, excluded; } dv_guard;
DV_API dv_guard dv_guard_push(uint32_t include_keys, uint32_t exclude_keys); /* each key is a bit, 1u << enum dv_key */
DV_API void dv_guard_pop(dv_guard previous);

/* Sets the error message of this thread and returns status: for hosts and boxed kernels. */
DV_API DV__PRINTF(2, 3) int dv_fail(int status, const char *format, ...);

/* Why a call selects a kernel or not. dv_explain() passes such a report of each kernel to fn, in the order in which kernels
 * are tried. No kernel runs. */
typedef struct dv_kernel_report {
    const char *name, *provider, *device, *dtypes, *isa, *when;
    bool selected;
    const char *reason; /* "selected", or why the kernel is not selected: "this processor has no avx512" */
} dv_kernel_report;
DV_API int dv_explain(
    dv_operator *op, const dv_value *args, size_t nargs, void (*fn)(void *user, const dv_kernel_report *kernel), void *user);

/* One argument of a kernel with DV_KERNEL_FOREIGN, whose name is the call "f(x, float(eps), k or 0)" of a function of
 * another system. The call was checked against the schema when the library was loaded. An empty list in the name stands for
 * tensors, then all other arguments, then results. */
typedef struct dv_foreign_arg {
    int32_t slot;      /* the operator's slot that is passed; -1: a constant is passed */
    uint32_t type;     /* enum dv_field_type of the value as it is passed: an unmodified input's; 0: a null pointer */
    bool narrow;       /* for FLOAT: true: passed as a C float; false: as a double */
    const char *name;  /* name of the argument or result, for messages */
    dv_value constant; /* the value that is passed if slot is -1 or the argument is None; DV_VALUE_DEFAULT: no such constant */
} dv_foreign_arg;
enum { DV_MAX_FOREIGN_ARGS = 128 };
typedef struct dv_foreign_call {
    uint32_t size;
    uint32_t reserved;
    const char *function; /* "f" */
    const dv_foreign_arg *items;
    size_t n;
} dv_foreign_call;

/* The call in which a kernel runs, from dv_query(ctx, "dovetail.call"). It is for code that launches kernels of another
 * system, as the kernel's name states (docs/ascend.md). Borrowed until the kernel returns; NULL in a kernel that is split. */
typedef struct dv_running_call {
    uint32_t size;
    uint32_t reserved;
    dv_operator *op;
    const char *kernel_name; /* the name of the kernel */
    const dv_host *host;     /* the caller's host; NULL: the embedded default */
    const dv_value *args; /* all arguments, with defaults and after conversions, then results; their tensors are the host's own */
    const dv_tensor *const *tensors; /* the tensors that the kernel gets, by slot (arguments, then results), perhaps staging
                                      * copies that the host did not make; NULL: None, or not a single tensor */
    const dv_tensors *lists;         /* the lists of tensors that the kernel gets, by slot */
    const dv_foreign_call *list;     /* the call in the kernel's name; NULL without DV_KERNEL_FOREIGN */
} dv_running_call;
/* Makes dv_query(ctx, name) return `what` in every kernel of this process from now on. */
DV_API int dv_register_query_extension(const char *name, const void *what);

/* Restarts the embedded default's random numbers (dv_random) from this seed. */
DV_API int dv_set_seed(uint64_t seed);
/* dv_set_threads() sets the number of threads of the embedded default: 1 to DV_MAX_THREADS; 0: as many as the process may
 * use. dv_get_threads() returns the number in use. The setting survives fork(). */
#define DV_MAX_THREADS 256
DV_API int dv_set_threads(int n);
DV_API int dv_get_threads(void);
/* Limits the choice of kernels to these instruction sets and those that they include ("base", "avx2", "avx512",
 * "avx512bf16+avx512vnni"), for tests and benchmarks. NULL: no limit. A set that the processor lacks is
 * accepted, and stays unused. DV_EINVAL: a name of another architecture, or an unknown one. */
DV_API int dv_set_isa(const char *allowed_isas);
/* Returns the instruction sets for which kernels are chosen, without those that another one includes:
 * "avx512vnni+avx512bf16". Valid until the thread's next call of dv_get_isa(). */
DV_API const char *dv_get_isa(void);
DV_API const char *dv_isa_at(size_t i); /* name i of those that a kernel's .isa may have, on any processor; NULL after the last */

/* ---- Policy: which operators run their own kernels and which their decomposition ------------------------------------------- */

/* Sets the policy by a text like "all,-ns::rms_norm" or "none,+swiglu": at most one of all, none and vllm-default (none
 * where the host fuses, else all), then +name and -name, where a name is "ns::name" or "name". Without one of the three
 * words all operators are on. Unknown names are accepted, since such operators may be loaded later. The message of DV_EINVAL
 * names the wrong word. The first policy that is set decides: the thread's, the process's (these functions), DOVETAIL_OPS,
 * the file named by DOVETAIL_POLICY. NULL unsets a policy. */
DV_API int dv_policy_set(const char *text);
DV_API int dv_policy_set_thread(const char *text);
DV_API int dv_policy_load(const char *path); /* reads the process policy from a file of such words, with # comments */
DV_API bool dv_policy_is_enabled(const dv_operator *op, bool host_fuses);
/* Decides for a class of layers with several forms (vLLM's CustomOp): without one of the three words it follows
 * vllm-default. NULL: false. */
DV_API bool dv_policy_is_class_enabled(const char *name, bool host_fuses);
DV_API uint64_t dv_policy_generation(void); /* a number that changes whenever a decision may change: for guards and cache keys */
/* Calls fn for each operator, in order of name, with the numbers of calls since the start while enabled and while disabled.
 * Stops when fn returns non-zero, and returns that value. */
DV_API int dv_policy_counts(int (*fn)(void *user, const char *name, uint64_t enabled, uint64_t disabled), void *user);

#ifdef __cplusplus
}
#endif
#endif
