/* dovetail_op.h: for code that DEFINES operators.
 *
 * An operator is a struct (its arguments and results, by name), one or more C functions (its kernels) and one declaration:
 *
 *     struct swiglu { const dv_tensor *gate, *up; dv_tensor *out; };
 *     static int swiglu_f32(dv_context *ctx, const struct swiglu *a) { ... return DV_OK; }
 *     DV_OPERATOR(swiglu, struct swiglu, (gate, up, out),
 *         .schema   = "swiglu(Tensor gate, Tensor up) -> Tensor out",
 *         .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; parallel(*s)",
 *         .kernels  = DV_KERNELS(DV_KERNEL(struct swiglu, "cpu", "f32", swiglu_f32, .split = 4096)));
 *     DV_LIBRARY(my_ops, &dv_op_swiglu);
 *
 * This header is compiled into shipped binaries: it is the operator ABI, version 1. Nothing in it ever moves. Every struct that a
 * binary and the runtime share begins with its size and may only grow at its end. Fields past the end of an older struct read as
 * zero; a runtime refuses unknown fields at the end of a newer struct unless they are zero. Tables are NULL-terminated arrays of
 * pointers. docs/abi.md has the rules and tests/abi/ freezes the layout. Needs only libc; compiles as C11 and, for launchers
 * (CUDA), the types and inline functions as C++17.
 */
#ifndef DOVETAIL_OP_H
#define DOVETAIL_OP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DV_ABI_MAJOR 1 /* the major version, part of the exported symbol's name: dovetail_library_1 */
#define DV_ABI_MINOR 0 /* the minor version, which grows when a struct here grows */

/* ---- Status ------------------------------------------------------------------------------------------------------------ */

/* X(name, number, text). 0 is success. A kernel returns one of these numbers, and sets a message by dv_error(). */
#define DV_STATUSES(X)                                       \
    X(OK, 0, "success")                                      \
    X(EINVAL, -1, "invalid argument")                        \
    X(ENOMEM, -2, "out of memory")                           \
    X(ESYNTAX, -3, "syntax error")                           \
    X(ESCHEMA, -4, "schema error")                           \
    X(ECONTRACT, -5, "contract error")                       \
    X(ETYPE, -6, "wrong type")                               \
    X(ESHAPE, -7, "wrong shape")                             \
    X(EDTYPE, -8, "wrong dtype")                             \
    X(EDEVICE, -9, "wrong device")                           \
    X(EALIAS, -10, "overlapping memory")                     \
    X(ENOENT, -11, "not found")                              \
    X(EEXIST, -12, "already exists")                         \
    X(ENOKERNEL, -13, "no kernel")                           \
    X(EBINARY, -14, "not a usable operator binary")          \
    X(EABI, -15, "incompatible ABI")                         \
    X(EUNLOADED, -16, "the operator's library was unloaded") \
    X(EKERNEL, -17, "the kernel failed")                     \
    X(ENOTSUP, -18, "not supported")                         \
    X(EIO, -19, "input/output error")                        \
    X(ELIMIT, -20, "a limit was exceeded")                   \
    X(EHOST, -21, "the host framework failed")               \
    X(ENATIVE, -22, "the host runs the decomposition")

enum dv_status {
#define DV__STATUS(name, number, text) DV_##name = number,
    DV_STATUSES(DV__STATUS)
#undef DV__STATUS
};

/* ---- Values a frame can hold ------------------------------------------------------------------------------------------- */

/* Element type: DLPack's DLDataType. dv_dtype_key() packs it into a number that a switch or a template can use. */
/* clang-format off */
typedef struct dv_dtype { uint8_t code, bits; uint16_t lanes; } dv_dtype;
/* clang-format on */

/* The one table of element types: all of DLPack's, with one lane:
 * X(name, DLPack's code, bits, exponent bits, mantissa bits, bias, form, PyTorch's number, other names).
 * For a complex type, exponent, mantissa and bias are those of its parts. PyTorch's number is the ScalarType, or -1. The first of
 * the other names is the one that NumPy, ml_dtypes and PyTorch use. f4_e2m1fn and the f6 types take less than a byte; strides
 * count elements. A float's form says which special values it has. IEEE: infinities and NaN. FN: NaN with all bits one, no
 * infinities. FNUZ: NaN in place of minus zero, no infinities. FINITE: neither. FNU: powers of two without sign or zero, NaN with
 * all bits one. NONE: not a float. */
enum dv_float_form { DV_FLOAT_NONE, DV_FLOAT_IEEE, DV_FLOAT_FN, DV_FLOAT_FNUZ, DV_FLOAT_FINITE, DV_FLOAT_FNU };
/* clang-format off */
#define DV_DTYPES(X)                                                  \
    X(f16, 2, 16, 5, 10, 15, IEEE, 5, "float16 half")                 \
    X(f32, 2, 32, 8, 23, 127, IEEE, 6, "float32 float")               \
    X(f64, 2, 64, 11, 52, 1023, IEEE, 7, "float64 double")            \
    X(bf16, 4, 16, 8, 7, 127, IEEE, 15, "bfloat16")                   \
    X(i1, 0, 1, 0, 0, 0, NONE, 37, "int1")                            \
    X(i2, 0, 2, 0, 0, 0, NONE, 38, "int2")                            \
    X(i4, 0, 4, 0, 0, 0, NONE, 40, "int4")                            \
    X(i8, 0, 8, 0, 0, 0, NONE, 1, "int8")                             \
    X(i16, 0, 16, 0, 0, 0, NONE, 2, "int16 short")                    \
    X(i32, 0, 32, 0, 0, 0, NONE, 3, "int32 int")                      \
    X(i64, 0, 64, 0, 0, 0, NONE, 4, "int64 long")                     \
    X(u1, 1, 1, 0, 0, 0, NONE, 30, "uint1 bit")                       \
    X(u2, 1, 2, 0, 0, 0, NONE, 31, "uint2")                           \
    X(u4, 1, 4, 0, 0, 0, NONE, 33, "uint4")                           \
    X(u8, 1, 8, 0, 0, 0, NONE, 0, "uint8")                            \
    X(u16, 1, 16, 0, 0, 0, NONE, 27, "uint16")                        \
    X(u32, 1, 32, 0, 0, 0, NONE, 28, "uint32")                        \
    X(u64, 1, 64, 0, 0, 0, NONE, 29, "uint64")                        \
    X(bool, 6, 8, 0, 0, 0, NONE, 11, "bool bool_")                    \
    X(c32, 5, 32, 5, 10, 15, IEEE, 8, "complex32 chalf")              \
    X(c64, 5, 64, 8, 23, 127, IEEE, 9, "complex64 cfloat")            \
    X(c128, 5, 128, 11, 52, 1023, IEEE, 10, "complex128 cdouble")     \
    X(f8_e3m4, 7, 8, 3, 4, 3, IEEE, -1, "float8_e3m4")                \
    X(f8_e4m3, 8, 8, 4, 3, 7, IEEE, -1, "float8_e4m3")                \
    X(f8_e4m3b11fnuz, 9, 8, 4, 3, 11, FNUZ, -1, "float8_e4m3b11fnuz") \
    X(f8_e4m3fn, 10, 8, 4, 3, 7, FN, 24, "float8_e4m3fn")             \
    X(f8_e4m3fnuz, 11, 8, 4, 3, 8, FNUZ, 26, "float8_e4m3fnuz")       \
    X(f8_e5m2, 12, 8, 5, 2, 15, IEEE, 23, "float8_e5m2")              \
    X(f8_e5m2fnuz, 13, 8, 5, 2, 16, FNUZ, 25, "float8_e5m2fnuz")      \
    X(f8_e8m0fnu, 14, 8, 8, 0, 127, FNU, 44, "float8_e8m0fnu")        \
    X(f6_e2m3fn, 15, 6, 2, 3, 1, FINITE, -1, "float6_e2m3fn")         \
    X(f6_e3m2fn, 16, 6, 3, 2, 3, FINITE, -1, "float6_e3m2fn")         \
    X(f4_e2m1fn, 17, 4, 2, 1, 1, FINITE, -1, "float4_e2m1fn")         \
    X(handle, 3, 64, 0, 0, 0, NONE, -1, "")
/* clang-format on */

enum dv_dtype_key { /* DV_DTYPE_f32 and so on: the number that dv_dtype_key() gives, code | bits << 8 | lanes << 16 */
#define DV__DTYPE(name, code, bits, ...) DV_DTYPE_##name = (code) | (bits) << 8 | 1 << 16,
    DV_DTYPES(DV__DTYPE)
#undef DV__DTYPE
};

static inline uint32_t dv_dtype_key(dv_dtype t) { return (uint32_t)t.code | (uint32_t)t.bits << 8 | (uint32_t)t.lanes << 16; }
static inline dv_dtype dv_dtype_from_key(uint32_t key)
{
    dv_dtype t;
    t.code = (uint8_t)(key & 255);
    t.bits = (uint8_t)(key >> 8 & 255);
    t.lanes = (uint16_t)(key >> 16);
    return t;
}

/* DLPack's device numbers. "npu" is kDLExtDev (PrivateUse1 in PyTorch). */
enum dv_device_type {
    DV_CPU = 1,
    DV_CUDA = 2,
    DV_CUDA_HOST = 3,
    DV_ROCM = 10,
    DV_NPU = 12,
    DV_CUDA_MANAGED = 13,
    DV_META = 1000
};
typedef struct dv_device { int32_t type, id; } dv_device;

/* A view of elements in memory, with the fields of DLPack's DLTensor. byte_offset is always 0 (it is added to data); strides are
 * in elements and never NULL. Frozen: this struct does not grow. Borrowed for the call. */
typedef struct dv_tensor {
    void *data;
    dv_device device;
    int32_t ndim;
    dv_dtype dtype;
    const int64_t *shape;
    const int64_t *strides;
    uint64_t byte_offset;
} dv_tensor;

typedef struct dv_complex { double re, im; } dv_complex;
/* clang-format off */
typedef struct dv_string { const char *data; size_t size; } dv_string; /* text of `size` bytes; data[size] is 0 */
/* clang-format on */
typedef struct dv_layout { int32_t value; } dv_layout; /* PyTorch's Layout number: 0 is strided */
typedef struct dv_memory_format {
    int32_t value;
} dv_memory_format; /* PyTorch's MemoryFormat number: 0 contiguous, 1 preserve, 2 channels_last, 3 channels_last_3d */
typedef struct dv_generator dv_generator; /* an opaque generator of random numbers, for dv_random() */

enum dv_scalar_kind { DV_SCALAR_INT = 1, DV_SCALAR_FLOAT, DV_SCALAR_BOOL, DV_SCALAR_COMPLEX };
typedef struct dv_scalar {
    uint32_t kind; /* enum dv_scalar_kind */
    /* clang-format off */
    union { int64_t i; double f; bool b; dv_complex c; } as;
    /* clang-format on */
} dv_scalar;

/* Lists. An element of dv_tensors is NULL where a Tensor?[] holds None. */
/* clang-format off */
typedef struct dv_tensors { const dv_tensor *const *data; size_t size; } dv_tensors;
typedef struct dv_mut_tensors { dv_tensor *const *data; size_t size; } dv_mut_tensors;
typedef struct dv_ints { const int64_t *data; size_t size; } dv_ints;
typedef struct dv_floats { const double *data; size_t size; } dv_floats;
typedef struct dv_bools { const bool *data; size_t size; } dv_bools;
typedef struct dv_strings { const dv_string *data; size_t size; } dv_strings;
typedef struct dv_scalars { const dv_scalar *data; size_t size; } dv_scalars;
typedef struct dv_complexes { const dv_complex *data; size_t size; } dv_complexes;
typedef struct dv_dtypes { const dv_dtype *data; size_t size; } dv_dtypes;
typedef struct dv_devices { const dv_device *data; size_t size; } dv_devices;
/* clang-format on */

/* Optionals: value is meaningful only when has is true. An absent tensor or generator is a NULL pointer. */
/* clang-format off */
typedef struct dv_opt_int { bool has; int64_t value; } dv_opt_int;
typedef struct dv_opt_float { bool has; double value; } dv_opt_float;
typedef struct dv_opt_bool { bool has; bool value; } dv_opt_bool;
typedef struct dv_opt_string { bool has; dv_string value; } dv_opt_string;
typedef struct dv_opt_scalar { bool has; dv_scalar value; } dv_opt_scalar;
typedef struct dv_opt_complex { bool has; dv_complex value; } dv_opt_complex;
typedef struct dv_opt_dtype { bool has; dv_dtype value; } dv_opt_dtype;
typedef struct dv_opt_device { bool has; dv_device value; } dv_opt_device;
typedef struct dv_opt_layout { bool has; dv_layout value; } dv_opt_layout;
typedef struct dv_opt_memory_format { bool has; dv_memory_format value; } dv_opt_memory_format;
typedef struct dv_opt_tensors { bool has; dv_tensors value; } dv_opt_tensors;
typedef struct dv_opt_ints { bool has; dv_ints value; } dv_opt_ints;
typedef struct dv_opt_floats { bool has; dv_floats value; } dv_opt_floats;
typedef struct dv_opt_bools { bool has; dv_bools value; } dv_opt_bools;
typedef struct dv_opt_strings { bool has; dv_strings value; } dv_opt_strings;
typedef struct dv_opt_scalars { bool has; dv_scalars value; } dv_opt_scalars;
/* clang-format on */

/* The one table of C types and the schema types they carry:
 * X(name, number, C type, word of the schema, form, the field type that it is made of, the value that carries it, its member).
 * The form says how the schema uses the word: alone (ONE; POINTER: the same, and NULL is None), T[] (LIST), T? (OPTIONAL), (a!)
 * or a returned tensor (WRITTEN), a returned number (RESULT). int stands for SymInt too. NUMBER is ONE for a Scalar, whose
 * dv_value has the type of its number. Value and member are those of dv_value, whose types are the rows of form ONE, POINTER and
 * LIST, in their order. A struct field of any other C type does not compile; a field whose schema type differs is refused when
 * the library is loaded. */
enum dv_field_form {
    DV_FORM_ONE,
    DV_FORM_POINTER,
    DV_FORM_LIST,
    DV_FORM_OPTIONAL,
    DV_FORM_WRITTEN,
    DV_FORM_RESULT,
    DV_FORM_NUMBER = DV_FORM_ONE
};
/* clang-format off */
#define DV_FIELD_TYPES(X)                                                                                                 \
    X(TENSOR, 1, const dv_tensor *, "Tensor", POINTER, TENSOR, TENSOR, tensor)                                            \
    X(MUT_TENSOR, 2, dv_tensor *, "Tensor", WRITTEN, TENSOR, TENSOR, tensor)                                              \
    X(INT, 3, int64_t, "int", ONE, INT, INT, i)                                                                           \
    X(FLOAT, 4, double, "float", ONE, FLOAT, FLOAT, f)                                                                    \
    X(BOOL, 5, bool, "bool", ONE, BOOL, BOOL, b)                                                                          \
    X(COMPLEX, 8, dv_complex, "complex", ONE, COMPLEX, COMPLEX, c)                                                        \
    X(STRING, 6, dv_string, "str", ONE, STRING, STRING, s)                                                                \
    X(SCALAR, 7, dv_scalar, "Scalar", NUMBER, SCALAR, FLOAT, f)                                                           \
    X(DTYPE, 9, dv_dtype, "ScalarType", ONE, DTYPE, DTYPE, dtype)                                                         \
    X(DEVICE, 10, dv_device, "Device", ONE, DEVICE, DEVICE, device)                                                       \
    X(LAYOUT, 11, dv_layout, "Layout", ONE, LAYOUT, LAYOUT, layout)                                                       \
    X(MEMORY_FORMAT, 12, dv_memory_format, "MemoryFormat", ONE, MEMORY_FORMAT, MEMORY_FORMAT, memory_format)              \
    X(GENERATOR, 13, const dv_generator *, "Generator", POINTER, GENERATOR, GENERATOR, generator)                         \
    X(TENSORS, 14, dv_tensors, "Tensor", LIST, TENSOR, TENSORS, tensors)                                                  \
    X(MUT_TENSORS, 15, dv_mut_tensors, "Tensor", WRITTEN, TENSORS, TENSORS, tensors)                                      \
    X(INTS, 16, dv_ints, "int", LIST, INT, INTS, ints)                                                                    \
    X(FLOATS, 17, dv_floats, "float", LIST, FLOAT, FLOATS, floats)                                                        \
    X(BOOLS, 18, dv_bools, "bool", LIST, BOOL, BOOLS, bools)                                                              \
    X(STRINGS, 19, dv_strings, "str", LIST, STRING, STRINGS, strings)                                                     \
    X(SCALARS, 20, dv_scalars, "Scalar", LIST, SCALAR, SCALARS, scalars)                                                  \
    X(COMPLEXES, 21, dv_complexes, "complex", LIST, COMPLEX, COMPLEXES, complexes)                                        \
    X(DTYPES, 22, dv_dtypes, "ScalarType", LIST, DTYPE, DTYPES, dtypes)                                                   \
    X(DEVICES, 23, dv_devices, "Device", LIST, DEVICE, DEVICES, devices)                                                  \
    X(OPT_INT, 24, dv_opt_int, "int", OPTIONAL, INT, INT, i)                                                              \
    X(OPT_FLOAT, 25, dv_opt_float, "float", OPTIONAL, FLOAT, FLOAT, f)                                                    \
    X(OPT_BOOL, 26, dv_opt_bool, "bool", OPTIONAL, BOOL, BOOL, b)                                                         \
    X(OPT_STRING, 27, dv_opt_string, "str", OPTIONAL, STRING, STRING, s)                                                  \
    X(OPT_SCALAR, 28, dv_opt_scalar, "Scalar", OPTIONAL, SCALAR, FLOAT, f)                                                \
    X(OPT_COMPLEX, 29, dv_opt_complex, "complex", OPTIONAL, COMPLEX, COMPLEX, c)                                          \
    X(OPT_DTYPE, 30, dv_opt_dtype, "ScalarType", OPTIONAL, DTYPE, DTYPE, dtype)                                           \
    X(OPT_DEVICE, 31, dv_opt_device, "Device", OPTIONAL, DEVICE, DEVICE, device)                                          \
    X(OPT_LAYOUT, 32, dv_opt_layout, "Layout", OPTIONAL, LAYOUT, LAYOUT, layout)                                          \
    X(OPT_MEMORY_FORMAT, 33, dv_opt_memory_format, "MemoryFormat", OPTIONAL, MEMORY_FORMAT, MEMORY_FORMAT, memory_format) \
    X(OPT_TENSORS, 34, dv_opt_tensors, "Tensor", OPTIONAL, TENSORS, TENSORS, tensors)                                     \
    X(OPT_INTS, 35, dv_opt_ints, "int", OPTIONAL, INTS, INTS, ints)                                                       \
    X(OPT_FLOATS, 36, dv_opt_floats, "float", OPTIONAL, FLOATS, FLOATS, floats)                                           \
    X(OPT_BOOLS, 37, dv_opt_bools, "bool", OPTIONAL, BOOLS, BOOLS, bools)                                                 \
    X(OPT_STRINGS, 38, dv_opt_strings, "str", OPTIONAL, STRINGS, STRINGS, strings)                                        \
    X(OPT_SCALARS, 39, dv_opt_scalars, "Scalar", OPTIONAL, SCALARS, SCALARS, scalars)                                     \
    X(INT_RESULT, 40, int64_t *, "int", RESULT, INT, INT, i)                                                              \
    X(FLOAT_RESULT, 41, double *, "float", RESULT, FLOAT, FLOAT, f)                                                       \
    X(BOOL_RESULT, 42, bool *, "bool", RESULT, BOOL, BOOL, b)
/* clang-format on */

enum dv_field_type {
#define DV__FIELD_TYPE(name, number, ...) DV_FIELD_##name = number,
    DV_FIELD_TYPES(DV__FIELD_TYPE)
#undef DV__FIELD_TYPE
};

/* ---- The parts of a declaration (the macros below write them) -------------------------------------------------------- */

typedef struct dv_context dv_context;
typedef int (*dv_kernel_fn)(dv_context *ctx, const void *frame);

typedef struct dv_field_decl {
    uint32_t size;
    uint32_t type;    /* enum dv_field_type of the field */
    const char *name; /* name of the field; the field default_ is for the argument default if the schema has no default_ */
    size_t offset;
} dv_field_decl;

/* One kernel. Kernels are tried in order of priority (higher first), then as written: put the best first. */
typedef struct dv_kernel_decl {
    uint32_t size;
    int32_t priority;
    const char *name;   /* name of the C function, for `dovetail explain` and messages */
    const char *device; /* the device type's name: "cpu", "cuda" or "npu" */
    const char *dtypes; /* the accepted dtypes: "f32 bf16" of the contract's first dtype variable, "T=f32, U=i32 i64" of named
                           variables; NULL: any */
    const char
        *isa; /* the instruction sets that the processor must have, all of them: "avx2", "avx512vnni+avx512bf16"; NULL: none */
    const char *when;     /* a predicate over sizes and arguments, in the contract's language; NULL: always true */
    const char *takes;    /* the layouts that this kernel accepts, in place of the contract's layout facts: "strided(x),
                           * last_contiguous(y), align(z, 64)" */
    const char *provider; /* who made the kernel; NULL: the library's provider */
    dv_kernel_fn run;
    int64_t split;  /* above 0: the call may be split over threads along the leading parallel dims, into slices of at least this
                     * many steps; 0: never */
    uint32_t flags; /* enum dv_kernel_flags */
    uint32_t reserved;
} dv_kernel_decl;

enum dv_kernel_flags {
    DV_KERNEL_REFERENCE = 1, /* the reference kernel, which is simple and slow on purpose: tried last; `dovetail check` compares
                                other kernels with it */
    DV_KERNEL_FOREIGN = 2,   /* the kernel's name is a call of another system's function, "f(x, float(eps))", which is checked
                                against the schema at load */
};

/* A shape function: a C function for shapes that a contract cannot express. It sets shape and dtype of each result by
 * dv_set_output(), and returns a status. */
typedef int (*dv_shape_fn)(dv_context *ctx, const void *frame);

typedef struct dv_operator_decl {
    uint32_t size;
    uint32_t flags;
    const char *name;    /* the name in DV_OPERATOR; the name in the schema has precedence */
    const char *schema;  /* the schema in PyTorch's grammar; NULL: inferred from the struct and .mutates */
    const char *mutates; /* for operators without a schema: the fields that are written in place, "a, b"; other fields dv_tensor *
                            are results */
    const char *contract; /* the contract (docs/contract.md); NULL: none */
    const char *native;   /* the decomposition: the same computation by base operators, for fusing compilers and as a reference;
                             NULL: none */
    const char *gradient; /* gradient formulas: "x, w: f_grad(grad, x, w); y: mul(grad, x)"; NULL: none */
    const char
        *tangent;     /* forward-mode formulas over the tangents x_t, for each result: "result: mul(x_t, cos(x))"; NULL: none */
    const char *tags; /* PyTorch's tags, separated by spaces: "needs_fixed_stride_order pt2_compliant_tag" */
    const char *doc;  /* one paragraph of text: help() in Python and `dovetail info` show it */
    uint32_t frame_size;
    uint32_t line; /* line of the declaration */
    const char *file;
    const dv_field_decl *const *fields; /* NULL-terminated */
    const dv_kernel_decl *const
        *kernels; /* NULL-terminated array, the best kernel first; NULL: no kernels, so the decomposition runs */
    dv_shape_fn shape;
} dv_operator_decl;

/* X(text field of dv_operator_decl, who may set it): DECLARER is the library that declares the operator; ANY includes libraries
 * that only add kernels.
 */
#define DV_OPERATOR_TEXTS(X) \
    X(schema, ANY)           \
    X(mutates, DECLARER)     \
    X(contract, DECLARER)    \
    X(native, DECLARER)      \
    X(gradient, DECLARER)    \
    X(tangent, DECLARER)     \
    X(tags, DECLARER)        \
    X(doc, ANY)              \
    X(file, ANY)

enum {
    DV_NOTE_DIGEST = 0x44560001
}; /* type of the ELF note that a binary may have: XXH64 of its loaded bytes, and the complement */
enum dv_library_kind { DV_LIBRARY_DEF = 0, DV_LIBRARY_FRAGMENT = 1, DV_LIBRARY_IMPL = 2 };

typedef struct dv_library_decl {
    uint32_t size;
    uint32_t abi_minor;
    uint32_t kind; /* enum dv_library_kind */
    uint32_t reserved;
    const char *name;                         /* the namespace of the operators, as in torch.ops.<name> */
    const char *version;                      /* the library's version, "1.2.3"; NULL: none */
    const char *provider;                     /* who adds the kernels of a DV_LIBRARY_IMPL */
    const dv_operator_decl *const *operators; /* NULL-terminated */
} dv_library_decl;

/* ---- What a kernel can request of the runtime---------------------------------------------------------------------------- */

enum dv_context_flags {
    DV_CTX_DETERMINISTIC = 1, /* the caller wants bit-identical results in every run */
    DV_CTX_CHECK = 2,         /* check mode: the kernel should look for invalid values in tensors, even if that takes time */
    DV_CTX_EXCEEDS_CACHE =
        4, /* the tensors that the whole call writes have more bytes than the processor's last-level cache, or than 32 MB */
};

typedef int (*dv_range_fn)(void *arg, int64_t begin, int64_t end);
typedef int (*dv_scratch_fn)(void *arg, int64_t begin, int64_t end, void *scratch);
typedef struct dv_slice_field { /* a tensor of DV_FOR_EACH_SLICE() */
    const dv_tensor *tensor;
    const char *name; /* of its field in the frame */
    size_t offset;    /* of the field, in bytes */
} dv_slice_field;

/* The functions that the runtime provides to kernels. New entries are added at the end only. Kernels call them through the
 * inline functions below. */
typedef struct dv_services {
    uint32_t size;
    uint32_t reserved;
    int (*error)(dv_context *ctx, int status, const char *format, va_list args);
    void *(*alloc)(dv_context *ctx, size_t bytes, size_t alignment);
    int (*parallel_for)(dv_context *ctx, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);
    int (*set_output)(dv_context *ctx, dv_tensor *out, dv_dtype dtype, int32_t ndim, const int64_t *shape);
    int (*call)(dv_context *ctx, const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields);
    int (*random)(dv_context *ctx, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset);
    const void *(*object)(dv_context *ctx, const char *name);
    const void *(*query)(dv_context *ctx, const char *name);
    int (*parallel_scratch)(
        dv_context *ctx, int64_t begin, int64_t end, int64_t grain, size_t bytes, dv_scratch_fn fn, void *arg);
    int (*for_each_slice)(dv_context *ctx, const void *frame, size_t frame_size, dv_kernel_fn kernel, const dv_slice_field *outs,
        size_t nouts, const dv_slice_field *ins, size_t nins);
} dv_services;

/* The context of one call (or of one slice of a call), which a kernel may use until it returns. Read later fields only if
 * size includes them. */
struct dv_context {
    uint32_t size;
    uint32_t flags; /* enum dv_context_flags */
    const dv_services *services;
    void *
        workspace; /* memory of workspace_size bytes, as the contract's workspace declares; 64-byte aligned, contents undefined */
    size_t workspace_size;
    void *stream; /* the device's current stream; NULL on the CPU */
    dv_device device;
    const int64_t *origin; /* in a split kernel, the index of this slice's first element in each of the origin_ndim leading dims;
                              NULL: not split */
    int32_t origin_ndim;
    uint32_t reserved;
};

#if defined(__GNUC__) || defined(__clang__)
#define DV__PRINTF(f, a) __attribute__((format(printf, f, a)))
#define DV_INLINE static inline __attribute__((always_inline))
#define DV__COLD static __attribute__((noinline, cold, unused)) /* small rather than fast, and once in a file */
#else
#define DV__PRINTF(f, a)
#define DV_INLINE static inline
#define DV__COLD static inline
#endif

/* Sets the call's error message and returns status: `return dv_error(ctx, DV_EINVAL, "token %lld is out of range", t);` The
 * first error of a call stays, also among worker threads. The message is copied. A status of 0 becomes DV_EKERNEL. */
DV__PRINTF(3, 4) static inline int dv_error(dv_context *ctx, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = ctx->services->error(ctx, status, format, args);
    va_end(args);
    return status;
}
/* Returns status, or DV_EKERNEL for 0. So the compiler knows that the value is not 0, and does not warn about variables that
 * a function sets only on success. */
DV_INLINE int dv__not_ok(int status) { return status ? status : DV_EKERNEL; }
#define dv_error(...) dv__not_ok(dv_error(__VA_ARGS__))

/* Allocates memory that is freed when the kernel returns. alignment is a power of two. Returns NULL if memory is out (the
 * error is already set: return DV_ENOMEM). Call it on the kernel's own thread: in a chunk of dv_parallel_for() it fails.
 * Allocate before the loop, or run the loop by dv_parallel_scratch(). */
static inline void *dv_alloc(dv_context *ctx, size_t bytes, size_t alignment)
{
    return ctx->services->alloc(ctx, bytes, alignment);
}

/* Runs fn over [begin, end) in chunks of at least `grain` indices on the host's threads, and waits. There are size / grain
 * chunks, rounded down, at least one and at most 256: with grain 256, 300 elements are one chunk, and 600 are two of 300.
 * The chunks depend on the range and the grain, never on the number of threads. Returns the first non-zero value of fn,
 * after which no further chunk begins. A chunk may call dv_error() and dv_parallel_for(). dv_alloc(), dv_set_output(),
 * dv_random() and calls of operators are for the kernel's own thread. */
static inline int dv_parallel_for(dv_context *ctx, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    return ctx->services->parallel_for(ctx, begin, end, grain, fn, arg);
}

typedef struct dv__scratch_loop {
    dv_context *ctx;
    size_t bytes;
    dv_scratch_fn fn;
    void *arg;
} dv__scratch_loop;

/* Runs a chunk with scratch that it allocates itself, on a runtime without parallel_scratch. Returns a status. */
static inline int dv__scratch_chunk(void *arg, int64_t begin, int64_t end)
{
    const dv__scratch_loop *l = (const dv__scratch_loop *)arg;
    void *scratch = l->bytes > SIZE_MAX - 128 ? NULL : aligned_alloc(64, l->bytes / 64 * 64 + 64);
    const int status = scratch
        ? l->fn(l->arg, begin, end, scratch)
        : dv_error(l->ctx, DV_ENOMEM, "out of memory: %zu bytes of scratch for a chunk of a loop", l->bytes);
    free(scratch);
    return status;
}

/* Does as dv_parallel_for(), and gives each chunk `bytes` of scratch: 64-byte aligned, contents undefined, used by no other
 * chunk until this one returns. A thread's next chunk gets the same memory, so a loop allocates as much as its threads need.
 * The scratch is freed at the end, on errors too. A chunk may run such a loop itself, with other scratch. DV_ENOMEM: the
 * error is already set. */
static inline int dv_parallel_scratch(
    dv_context *ctx, int64_t begin, int64_t end, int64_t grain, size_t bytes, dv_scratch_fn fn, void *arg)
{
    if (ctx->services->size >= offsetof(dv_services, parallel_scratch) + sizeof ctx->services->parallel_scratch)
        return ctx->services->parallel_scratch(ctx, begin, end, grain, bytes, fn, arg);
    dv__scratch_loop l = { ctx, bytes, fn, arg };
    return dv_parallel_for(ctx, begin, end, grain, dv__scratch_chunk, &l);
}

/* In a shape function: sets dtype and shape of a result. In a kernel: allocates a result whose size depends on data
 * (`unbacked` in the contract), and fills out->data, shape and strides. Returns a status. */
static inline int dv_set_output(dv_context *ctx, dv_tensor *out, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    return ctx->services->set_output(ctx, out, dtype, ndim, shape);
}

/* Reserves `count` random numbers of the generator (NULL: the host's default one). The call's numbers are offset to offset +
 * count - 1 of the sequence that *seed selects (dovetail_random.h). Both count numbers of 32 bits, not blocks of four. In a
 * kernel with .split each slice gets a seed of its own, so number i of a slice is offset + i, without ctx->origin. Declare
 * the tag nondeterministic_seeded. Returns a status. */
static inline int dv_random(dv_context *ctx, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    return ctx->services->random(ctx, generator, count, seed, offset);
}

/* Returns a named object of the host, such as a layer of a forward context. NULL: not found (the error is already set). */
static inline const void *dv_object(dv_context *ctx, const char *name) { return ctx->services->object(ctx, name); }

/* Returns an extension of this runtime, by name; NULL: the runtime does not have it. */
static inline const void *dv_query(dv_context *ctx, const char *name) { return ctx->services->query(ctx, name); }

#if defined(__GNUC__)
#define DV__NO_VECTOR(x) __asm__("" : "+r"(x)) /* a loop over dims: as a vector it would be longer than its work */
#else
#define DV__NO_VECTOR(x) (void)(x)
#endif

/* Returns the product of the first n sizes: a tensor x has dv_numel_leading(x, x->ndim - 1) rows of x->shape[x->ndim - 1]
 * elements. */
static inline int64_t dv_numel_leading(const dv_tensor *t, int32_t n)
{
    int64_t m = 1;
    for (int32_t i = 0; i < n; i++) {
        m *= t->shape[i];
        DV__NO_VECTOR(m);
    }
    return m;
}

/* Returns the number of elements. The runtime has verified that the number does not overflow. */
static inline int64_t dv_numel(const dv_tensor *t) { return dv_numel_leading(t, t->ndim); }

/* ---- Elements of half precision, in forms that compilers vectorise ------------------------------------------------------- */

DV_INLINE float dv__f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Prints a shape as "[2, 3]", cut to the size of `to`. */
static inline void dv__print_shape(const dv_tensor *t, char *to, size_t size)
{
    size_t n = (size_t)__builtin_snprintf(to, size, "[");
    for (int32_t i = 0; i < t->ndim && n < size; i++)
        n += (size_t)__builtin_snprintf(to + n, size - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    if (n < size)
        __builtin_snprintf(to + n, size - n, "]");
}
/* True if t broadcasts to the shape of `out`: each of its dims, counted from the last, has the size of that dim, or 1. */
static inline bool dv__can_broadcast(const dv_tensor *t, const dv_tensor *out)
{
    bool can = t->ndim <= out->ndim;
    for (int32_t i = 0; i < t->ndim && can; i++)
        can = t->shape[i] == 1 || t->shape[i] == out->shape[out->ndim - t->ndim + i];
    return can;
}

/* DV_FOR_EACH_SLICE(ctx, struct f, a, (x, y), (out), kernel) calls kernel(ctx, &slice) for slices of the elements of `out`, on
 * the host's threads. The tensors x and y broadcast to the shape of `out`, and all are contiguous. `slice` is a copy of the frame
 * *a in which each of these tensors has one dim: as many elements as the slice, one after another, or one element for all of
 * them.
 *
 *     static int add_slice(dv_context *ctx, const struct add *a)
 *     {
 *         const int64_t n = dv_numel(a->out), x_step = dv_numel(a->x) != 1, y_step = dv_numel(a->y) != 1;
 *         for (int64_t i = 0; i < n; i++)
 *             ((float *)a->out->data)[i] = ((const float *)a->x->data)[i * x_step] + ((const float *)a->y->data)[i * y_step];
 *         return DV_OK;
 *     }
 *     static int add_kernel(dv_context *ctx, const struct add *a)
 *     {
 *         return DV_FOR_EACH_SLICE(ctx, struct add, a, (x, y), (out), add_slice);
 *     }
 *
 * The names are fields of the struct: inputs, then results, which have as many elements as the first one; at most eight of each.
 * Elements have one byte or more. Two kinds of inputs that broadcast are copied to a buffer: a bias, whose shape is the last dims
 * of the result, of at most 2,048 elements, once for many slices; and any other input of several elements if the result's rows
 * have less than 1,024 elements, for 2,048 elements at a time. All other tensors are used where they lie. The slices depend on
 * the shapes only, not on the threads. Returns the first status of the kernel that is not 0, or sets the error itself. For
 * `kernel` the rules of a chunk of dv_parallel_for() hold. In C++ there is no DV_FOR_EACH_SLICE. */
#ifndef __cplusplus
#define DV_FOR_EACH_SLICE(CTX, FRAME, A, INS, OUTS, KERNEL)                                              \
    dv__for_each_slice(CTX, A, sizeof(FRAME),                                                            \
        (dv_kernel_fn)(void (*)(void)) _Generic(KERNEL, int (*)(dv_context *, const FRAME *): (KERNEL)), \
        DV__SLICE_FIELDS(FRAME, A, OUTS), DV__SLICE_FIELDS(FRAME, A, INS))
#define DV__SLICE_FIELDS(FRAME, A, NAMES)                        \
    (const dv_slice_field[]){ DV__SLICE_LIST(FRAME, A, NAMES) }, \
        sizeof((const dv_slice_field[]){ DV__SLICE_LIST(FRAME, A, NAMES) }) / sizeof(dv_slice_field)
#define DV__SLICE_LIST(FRAME, A, NAMES) DV__SLICE_MAP(DV__SLICE_FIELD, (FRAME, A), DV__SLICE_NAMES NAMES)
#define DV__SLICE_MAP(...) DV__MAP(__VA_ARGS__)
#define DV__SLICE_NAMES(...) __VA_ARGS__
#define DV__SLICE_FIELD(FRAME_A, NAME) { DV__SLICE_SECOND FRAME_A->NAME, #NAME, offsetof(DV__SLICE_FIRST FRAME_A, NAME) },
#define DV__SLICE_FIRST(FIRST, SECOND) FIRST
#define DV__SLICE_SECOND(FIRST, SECOND) (SECOND)
#endif
/* Runs a kernel for each element alone, on a runtime without for_each_slice. Returns a status. */
DV__COLD int dv__for_each_element(dv_context *ctx, const void *frame, size_t frame_size, dv_kernel_fn kernel,
    const dv_slice_field *outs, size_t nouts, const dv_slice_field *ins, size_t nins)
{
    static const int64_t one = 1;
    const dv_tensor *const out = outs->tensor;
    const int64_t n = out ? dv_numel(out) : 0;
    char *const copy = (char *)dv_alloc(ctx, frame_size, 64);
    int status = copy && nouts + nins <= 16 ? DV_OK : DV_ENOMEM;
    for (size_t k = 0; k < nouts + nins && !status; k++) {
        const dv_slice_field *const field = k < nouts ? &outs[k] : &ins[k - nouts];
        if (!field->tensor || field->tensor->dtype.bits < 8 ||
            (k < nouts ? dv_numel(field->tensor) != n : dv_numel(field->tensor) != 1 && !dv__can_broadcast(field->tensor, out)))
            status = dv_error(ctx, DV_ESHAPE, "DV_FOR_EACH_SLICE: '%s' does not fit '%s'", field->name, outs->name);
    }
    for (int64_t i = 0; i < n && !status; i++) {
        dv_tensor views[16];
        memcpy(copy, frame, frame_size);
        for (size_t k = 0; k < nouts + nins; k++) {
            const dv_slice_field *const field = k < nouts ? &outs[k] : &ins[k - nouts];
            const dv_tensor *const t = field->tensor;
            dv_tensor *const view = &views[k];
            int64_t element = 0, stride = 1, rest = i;
            for (int32_t d = out->ndim, e = t->ndim; d-- > 0 && e-- > 0; rest /= out->shape[d]) {
                element += t->shape[e] == 1 ? 0 : rest % out->shape[d] * stride;
                stride *= t->shape[e];
            }
            *view = *t;
            view->ndim = 1;
            view->shape = view->strides = &one;
            view->data = (char *)t->data + (dv_numel(t) == n ? i : element) * (t->dtype.bits / 8);
            memcpy(copy + field->offset, &view, sizeof view);
        }
        status = kernel(ctx, copy);
    }
    return status;
}
DV__COLD int dv__for_each_slice(dv_context *ctx, const void *frame, size_t frame_size, dv_kernel_fn kernel,
    const dv_slice_field *outs, size_t nouts, const dv_slice_field *ins, size_t nins)
{
    if (ctx->services->size >= offsetof(dv_services, for_each_slice) + sizeof ctx->services->for_each_slice)
        return ctx->services->for_each_slice(ctx, frame, frame_size, kernel, outs, nouts, ins, nins);
    return dv__for_each_element(ctx, frame, frame_size, kernel, outs, nouts, ins, nins);
}
DV_INLINE uint32_t dv__bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
DV_INLINE float dv_bf16_to_f32(uint16_t h) { return dv__f32_from_bits((uint32_t)h << 16); }
DV_INLINE uint16_t dv_f32_to_bf16(float x) /* rounds to nearest even; NaN stays NaN */
{
    const uint32_t u = dv__bits_of_f32(x);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 | 0x40u) : rounded);
}
DV_INLINE float dv_f16_to_f32(uint16_t h) /* exact: multiplying by 2^112 moves the exponent and normalises denormals */
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    const uint32_t finite = dv__bits_of_f32(dv__f32_from_bits(rest) * 0x1p112f);
    return dv__f32_from_bits(sign | ((h & 0x7c00u) == 0x7c00u ? (rest | 0x7f800000u) : finite));
}
DV_INLINE uint16_t dv_f32_to_f16(float x) /* rounds to nearest even */
{
    const uint32_t u = dv__bits_of_f32(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    const uint32_t normal = (a + 0xfffu + (a >> 13 & 1) - 0x38000000u) >> 13;
    const uint32_t small = dv__bits_of_f32(dv__f32_from_bits(a) + 0.5f) - 0x3f000000u; /* the addition rounds to 2^-24 */
    const uint32_t big = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return (uint16_t)(sign | (a >= 0x477ff000u ? big : a < 0x38800000u ? small : normal));
}

/* dv_get() loads and dv_put() stores an element of dtype f32, bf16 or f16 as float. With a constant dtype the switch
 * disappears, and any other dtype does not compile (with -O1 or more). */
#if defined(__OPTIMIZE__) && defined(__has_attribute) && !defined(__CUDACC__)
#if __has_attribute(error)
#define DV__FLOAT_ONLY(dtype)                                                                                              \
    do {                                                                                                                   \
        if (__builtin_constant_p(dtype) && (dtype) != DV_DTYPE_f32 && (dtype) != DV_DTYPE_bf16 && (dtype) != DV_DTYPE_f16) \
            dv__not_a_float();                                                                                             \
    } while (0)
void dv__not_a_float(void)
    __attribute__((error("dv_get() and dv_put() are for f32, bf16 and f16; dv_get_f64() and dv_put_f64() also for f64; "
                         "read other dtypes by their C type")));
#endif
#endif
#ifndef DV__FLOAT_ONLY
#define DV__FLOAT_ONLY(dtype) (void)(dtype)
#endif
DV_INLINE float dv_get(const void *data, int64_t i, uint32_t dtype)
{
    DV__FLOAT_ONLY(dtype);
    switch (dtype) {
    case DV_DTYPE_bf16: return dv_bf16_to_f32(((const uint16_t *)data)[i]);
    case DV_DTYPE_f16: return dv_f16_to_f32(((const uint16_t *)data)[i]);
    default: return ((const float *)data)[i];
    }
}
DV_INLINE void dv_put(void *data, int64_t i, uint32_t dtype, float x)
{
    DV__FLOAT_ONLY(dtype);
    switch (dtype) {
    case DV_DTYPE_bf16: ((uint16_t *)data)[i] = dv_f32_to_bf16(x); break;
    case DV_DTYPE_f16: ((uint16_t *)data)[i] = dv_f32_to_f16(x); break;
    default: ((float *)data)[i] = x;
    }
}

/* dv_get_f64() loads and dv_put_f64() stores an element of dtype f64, f32, bf16 or f16 as double. They are for reference
 * kernels, whose speed does not matter. */
DV_INLINE double dv_get_f64(const void *data, int64_t i, uint32_t dtype)
{
    return dtype == DV_DTYPE_f64 ? ((const double *)data)[i] : (double)dv_get(data, i, dtype);
}
DV_INLINE void dv_put_f64(void *data, int64_t i, uint32_t dtype, double x)
{
    if (dtype == DV_DTYPE_f64)
        ((double *)data)[i] = x;
    else
        dv_put(data, i, dtype, (float)x);
}

/* dv_get_i64() loads an element of an integer dtype or bool. dv_load_f64() loads n elements, from index `start` on, of any
 * real dtype of at least 8 bits as double. Reference kernels read their tensors with them. */
static inline int64_t dv_get_i64(const void *data, int64_t i, uint32_t dtype)
{
    switch (dtype) {
    case DV_DTYPE_i8: return ((const int8_t *)data)[i];
    case DV_DTYPE_i16: return ((const int16_t *)data)[i];
    case DV_DTYPE_i32: return ((const int32_t *)data)[i];
    case DV_DTYPE_i64: return ((const int64_t *)data)[i];
    case DV_DTYPE_bool: return ((const uint8_t *)data)[i] != 0; /* a host's bool may be any byte; non-zero is true */
    default: return ((const uint8_t *)data)[i];
    }
}
static inline float dv_f8_e4m3fn_to_f32(uint8_t h) /* exact */
{
    const float finite = dv__f32_from_bits((uint32_t)(h & 0x7f) << 20) * 0x1p120f;
    return dv__f32_from_bits((uint32_t)(h & 0x80) << 24 | ((h & 0x7f) == 0x7f ? 0x7fc00000u : dv__bits_of_f32(finite)));
}
static inline void dv_load_f64(double *to, const void *data, int64_t start, int64_t n, uint32_t dtype)
{
    const bool real = dtype == DV_DTYPE_f64 || dtype == DV_DTYPE_f32 || dtype == DV_DTYPE_bf16 || dtype == DV_DTYPE_f16;
    for (int64_t i = 0; i < n; i++)
        to[i] = real                      ? dv_get_f64(data, start + i, dtype)
            : dtype == DV_DTYPE_f8_e4m3fn ? (double)dv_f8_e4m3fn_to_f32(((const uint8_t *)data)[start + i])
                                          : (double)dv_get_i64(data, start + i, dtype);
}

/* ---- Declaring ----------------------------------------------------------------------------------------------------------- */

#if defined(__GNUC__) || defined(__clang__)
#define DV__EXPORT __attribute__((visibility("default"), used))
#define DV__HIDDEN __attribute__((visibility("hidden")))
#else
#define DV__EXPORT
#define DV__HIDDEN
#endif

#ifdef __cplusplus
}
#define DV_OPERATOR(...) static_assert(false, "declare the operator in a C file; only kernel launchers may be C++ or CUDA")
#define DV_LIBRARY(...) static_assert(false, "declare the library in a C file; only kernel launchers may be C++ or CUDA")
#define DV_LIBRARY_FRAGMENT(...) static_assert(false, "declare the library in a C file; only kernel launchers may be C++ or CUDA")
#define DV_LIBRARY_IMPL(...) static_assert(false, "declare the library in a C file; only kernel launchers may be C++ or CUDA")
#else

/* clang-format off */
#define DV__GENERIC(name, number, ctype, ...) ctype: number,
/* clang-format on */
#define DV__TYPE_OF(x) _Generic((x), DV_FIELD_TYPES(DV__GENERIC) struct dv__no_such_type *: 0)

#include "dovetail_op_map.h" /* DV__MAP(m, x, a, b, ...) = m(x, a) m(x, b) ..., up to 64 */

#define DV__FIELD(F, f) &(const dv_field_decl){ sizeof(dv_field_decl), DV__TYPE_OF(((F *)0)->f), #f, offsetof(F, f) },
#define DV__UNPAREN(...) __VA_ARGS__
#define DV_FIELDS(F, ...) ((const dv_field_decl *const[]){ DV__MAP(DV__FIELD, F, __VA_ARGS__) NULL })

/* DV_OPERATOR(name, struct frame, (field, ...), .schema = ..., ...): defines the constant dv_op_<name>. At most 64 fields. */
#define DV_OPERATOR(NAME, FRAME, FIELDS, ...)                                 \
    DV__HIDDEN extern const dv_operator_decl dv_op_##NAME;                    \
    const dv_operator_decl dv_op_##NAME = { .size = sizeof(dv_operator_decl), \
        .name = #NAME,                                                        \
        .file = __FILE__,                                                     \
        .line = __LINE__,                                                     \
        .frame_size = sizeof(FRAME),                                          \
        .fields = DV__FIELDS_OF(FRAME, DV__UNPAREN FIELDS),                   \
        __VA_ARGS__ }
/* clang-format off */
#define DV__FIELDS_OF(...) DV_FIELDS(__VA_ARGS__)
/* clang-format on */

/* DV_KERNEL(struct frame, device, dtypes, function, .isa = ..., ...): one kernel. A function that has another struct as its
 * parameter does not compile. */
#define DV_KERNEL(FRAME, DEVICE, DTYPES, FN, ...)                                                          \
    &(const dv_kernel_decl){ .size = sizeof(dv_kernel_decl),                                               \
        .name = #FN,                                                                                       \
        .device = DEVICE,                                                                                  \
        .dtypes = DTYPES,                                                                                  \
        .run = (dv_kernel_fn)(void (*)(void)) _Generic(&(FN), int (*)(dv_context *, const FRAME *): (FN)), \
        __VA_ARGS__ }
#define DV_KERNELS(...) ((const dv_kernel_decl *const[]){ __VA_ARGS__, NULL })

/* Kernels for several dtypes and instruction sets from one body:
 *
 *     DV_INLINE int swiglu_body(dv_context *ctx, const struct swiglu *a, uint32_t dtype) { ... dv_get(x, i, dtype) ... }
 *     DV_VARIANTS(struct swiglu, swiglu_body, f32, bf16, f16)
 *     ... .kernels = DV_KERNELS(DV_VARIANT_KERNELS(struct swiglu, swiglu_body, (f32, bf16, f16), .split = 4096))
 *
 * makes swiglu_body_f32_avx512, ..._avx2 and ..._base, each compiled for its instruction set with a constant dtype. Where the
 * compiler or the architecture lacks an instruction set, only the base kernels remain. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(DV_NO_VARIANTS)
#define DV_TARGET_AVX2 __attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,movbe")))
#if defined(__clang__)
#define DV_TARGET_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,movbe")))
#else
#define DV_TARGET_AVX512   \
    __attribute__((target( \
        "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,movbe,prefer-vector-width=512")))
#endif
/* clang-format off */
#define DV__VARIANT(FB, T) DV__VARIANT_(DV__UNPAREN FB, T)
#define DV__VARIANT_(...) DV__VARIANT__(__VA_ARGS__)
/* clang-format on */
#define DV__VARIANT__(F, BODY, T)                                                                                       \
    DV_TARGET_AVX512 static int BODY##_##T##_avx512(dv_context *ctx, const F *a) { return BODY(ctx, a, DV_DTYPE_##T); } \
    DV_TARGET_AVX2 static int BODY##_##T##_avx2(dv_context *ctx, const F *a) { return BODY(ctx, a, DV_DTYPE_##T); }     \
    static int BODY##_##T##_base(dv_context *ctx, const F *a) { return BODY(ctx, a, DV_DTYPE_##T); }
/* clang-format off */
#define DV__VARIANT_KERNEL(FBX, T) DV__VARIANT_KERNEL_(DV__UNPAREN FBX, T)
#define DV__VARIANT_KERNEL_(...) DV__VARIANT_KERNEL__(__VA_ARGS__)
/* clang-format on */
#define DV__VARIANT_KERNEL__(F, BODY, X, T)                                       \
    DV_KERNEL(F, "cpu", #T, BODY##_##T##_avx512, .isa = "avx512", DV__UNPAREN X), \
        DV_KERNEL(F, "cpu", #T, BODY##_##T##_avx2, .isa = "avx2", DV__UNPAREN X), \
        DV_KERNEL(F, "cpu", #T, BODY##_##T##_base, DV__UNPAREN X),
#else
/* clang-format off */
#define DV__VARIANT(FB, T) DV__VARIANT_(DV__UNPAREN FB, T)
#define DV__VARIANT_(...) DV__VARIANT__(__VA_ARGS__)
/* clang-format on */
#define DV__VARIANT__(F, BODY, T) \
    static int BODY##_##T##_base(dv_context *ctx, const F *a) { return BODY(ctx, a, DV_DTYPE_##T); }
/* clang-format off */
#define DV__VARIANT_KERNEL(FBX, T) DV__VARIANT_KERNEL_(DV__UNPAREN FBX, T)
#define DV__VARIANT_KERNEL_(...) DV__VARIANT_KERNEL__(__VA_ARGS__)
#define DV__VARIANT_KERNEL__(F, BODY, X, T) DV_KERNEL(F, "cpu", #T, BODY##_##T##_base, DV__UNPAREN X),
/* clang-format on */
#endif
/* clang-format off */
#define DV_VARIANTS(FRAME, BODY, ...) DV__MAP(DV__VARIANT, (FRAME, BODY), __VA_ARGS__)
/* clang-format on */
#define DV_VARIANT_KERNELS(FRAME, BODY, TYPES, ...) \
    DV__VARIANT_KERNELS_OF(DV__VARIANT_KERNEL, (FRAME, BODY, (__VA_ARGS__)), DV__UNPAREN TYPES) DV__NO_KERNEL
#define DV__NO_KERNEL &(const dv_kernel_decl){ .size = sizeof(dv_kernel_decl) } /* a kernel without a function is ignored */
/* clang-format off */
#define DV__VARIANT_KERNELS_OF(...) DV__MAP(__VA_ARGS__)
/* clang-format on */

/* DV_LIBRARY(name, &dv_op_a, &dv_op_b): the binary's one exported symbol. name is the namespace of the operators, and
 * dv_library_<name> is the descriptor for a program that links it statically (compile with -DDV_STATIC).
 * DV_LIBRARY_FRAGMENT(space, name, ...) adds operators to a namespace that others may share.
 * DV_LIBRARY_IMPL(space, name, ...) adds kernels to operators that someone else declared; name is the provider. Its declarations
 * need only fields and .kernels; the macro's name, or .schema, says which operator is meant. */
#ifndef DV_LIBRARY_VERSION
#define DV_LIBRARY_VERSION NULL
#endif
#ifdef DV_STATIC
#define DV__LIBRARY_SYMBOL(SYMBOL)
#else
/* An ELF note of the owner "Dovetail": `dovetail build` writes a digest of the binary's loaded bytes into it (docs/abi.md). */
#define DV__LIBRARY_NOTE                 \
    static const struct {                \
        uint32_t owner_size, size, type; \
        char owner[12];                  \
        uint32_t digest[4];              \
    } dv__library_note                   \
        __attribute__((used, aligned(4), section(".note.dovetail"))) = { 9, 16, DV_NOTE_DIGEST, "Dovetail", { 0, 0, 0, 0 } };
#define DV__LIBRARY_SYMBOL(SYMBOL) \
    DV__LIBRARY_NOTE               \
    DV__EXPORT extern const dv_library_decl dovetail_library_1 __attribute__((alias("dv_library_" #SYMBOL)));
#endif
#define DV__LIBRARY(KIND, SPACE, SYMBOL, PROVIDER, ...)                            \
    DV__HIDDEN extern const dv_library_decl dv_library_##SYMBOL;                   \
    DV__LIBRARY_SYMBOL(SYMBOL)                                                     \
    const dv_library_decl dv_library_##SYMBOL = { .size = sizeof(dv_library_decl), \
        .abi_minor = DV_ABI_MINOR,                                                 \
        .kind = KIND,                                                              \
        .name = #SPACE,                                                            \
        .version = DV_LIBRARY_VERSION,                                             \
        .provider = PROVIDER,                                                      \
        .operators = (const dv_operator_decl *const[]){ __VA_ARGS__, NULL } }
/* clang-format off */
#define DV_LIBRARY(NAME, ...) DV__LIBRARY(DV_LIBRARY_DEF, NAME, NAME, #NAME, __VA_ARGS__)
#define DV_LIBRARY_FRAGMENT(SPACE, NAME, ...) DV__LIBRARY(DV_LIBRARY_FRAGMENT, SPACE, NAME, #NAME, __VA_ARGS__)
#define DV_LIBRARY_IMPL(SPACE, NAME, ...) DV__LIBRARY(DV_LIBRARY_IMPL, SPACE, NAME, #NAME, __VA_ARGS__)
/* clang-format on */

/* Call another operator from a kernel, through the registry and with all its checks:
 *     struct mul m = { a->x, a->y, &tmp };
 *     int status = DV_CALL(ctx, "my_ops::mul", struct mul, (self, other, out), &m);
 * The result fields must point to tensors that the caller owns: the called operator does not allocate them. */
#define DV_CALL(CTX, NAME, FRAME, FIELDS, POINTER) \
    ((CTX)->services->call((CTX), NAME, (1 ? (POINTER) : (FRAME *)NULL), sizeof(FRAME), DV__FIELDS_OF(FRAME, DV__UNPAREN FIELDS)))

#endif /* C */
#endif
