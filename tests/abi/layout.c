/* The layout of dovetail_op.h, frozen at ABI 1.0. Compiled as C11 and as C++17; there is nothing to run.
 *
 * FROZEN: the plain values of frames never change. GROWS: a struct that begins with its size may become longer, and what was
 * there in 1.0 stays where it was. A new minor adds lines at the end of a struct's list and touches no other. */
#include "dovetail_op.h"

#ifdef __cplusplus
#define CHECK(condition, text) static_assert(condition, text)
#define ALIGNMENT(T) alignof(T)
#else
#define CHECK(condition, text) _Static_assert(condition, text)
#define ALIGNMENT(T) _Alignof(T)
#endif
#define SIZE_OF_FIELD(T, field) sizeof(((T *)0)->field)

/* clang-format off */
#define FROZEN(T, bytes, alignment) CHECK(sizeof(T) == (bytes) && ALIGNMENT(T) == (alignment), #T " is frozen")
#define GROWS(T, bytes, alignment) CHECK(sizeof(T) >= (bytes) && ALIGNMENT(T) == (alignment) && offsetof(T, size) == 0, #T " only grows")
#define FIELD(T, field, offset, bytes) CHECK(offsetof(T, field) == (offset) && SIZE_OF_FIELD(T, field) == (bytes), #T "." #field " moved")
#define IS(constant, value) CHECK((constant) == (value), #constant " changed")
/* clang-format on */

CHECK(sizeof(void *) == 8 && sizeof(size_t) == 8 && sizeof(bool) == 1, "a 64-bit platform");
IS(DV_ABI_MAJOR, 1);
CHECK(DV_ABI_MINOR >= 0, "minors only grow");

FROZEN(dv_dtype, 4, 2);
FIELD(dv_dtype, code, 0, 1);
FIELD(dv_dtype, bits, 1, 1);
FIELD(dv_dtype, lanes, 2, 2);
FROZEN(dv_device, 8, 4);
FIELD(dv_device, type, 0, 4);
FIELD(dv_device, id, 4, 4);
FROZEN(dv_tensor, 48, 8);
FIELD(dv_tensor, data, 0, 8);
FIELD(dv_tensor, device, 8, 8);
FIELD(dv_tensor, ndim, 16, 4);
FIELD(dv_tensor, dtype, 20, 4);
FIELD(dv_tensor, shape, 24, 8);
FIELD(dv_tensor, strides, 32, 8);
FIELD(dv_tensor, byte_offset, 40, 8);
FROZEN(dv_complex, 16, 8);
FIELD(dv_complex, re, 0, 8);
FIELD(dv_complex, im, 8, 8);
FROZEN(dv_string, 16, 8);
FIELD(dv_string, data, 0, 8);
FIELD(dv_string, size, 8, 8);
FROZEN(dv_layout, 4, 4);
FIELD(dv_layout, value, 0, 4);
FROZEN(dv_memory_format, 4, 4);
FIELD(dv_memory_format, value, 0, 4);
FROZEN(dv_scalar, 24, 8);
FIELD(dv_scalar, kind, 0, 4);
FIELD(dv_scalar, as, 8, 16);
FROZEN(dv_tensors, 16, 8);
FIELD(dv_tensors, data, 0, 8);
FIELD(dv_tensors, size, 8, 8);
FROZEN(dv_mut_tensors, 16, 8);
FIELD(dv_mut_tensors, data, 0, 8);
FIELD(dv_mut_tensors, size, 8, 8);
FROZEN(dv_ints, 16, 8);
FIELD(dv_ints, data, 0, 8);
FIELD(dv_ints, size, 8, 8);
FROZEN(dv_floats, 16, 8);
FIELD(dv_floats, data, 0, 8);
FIELD(dv_floats, size, 8, 8);
FROZEN(dv_bools, 16, 8);
FIELD(dv_bools, data, 0, 8);
FIELD(dv_bools, size, 8, 8);
FROZEN(dv_strings, 16, 8);
FIELD(dv_strings, data, 0, 8);
FIELD(dv_strings, size, 8, 8);
FROZEN(dv_scalars, 16, 8);
FIELD(dv_scalars, data, 0, 8);
FIELD(dv_scalars, size, 8, 8);
FROZEN(dv_complexes, 16, 8);
FIELD(dv_complexes, data, 0, 8);
FIELD(dv_complexes, size, 8, 8);
FROZEN(dv_dtypes, 16, 8);
FIELD(dv_dtypes, data, 0, 8);
FIELD(dv_dtypes, size, 8, 8);
FROZEN(dv_devices, 16, 8);
FIELD(dv_devices, data, 0, 8);
FIELD(dv_devices, size, 8, 8);
FROZEN(dv_opt_int, 16, 8);
FIELD(dv_opt_int, has, 0, 1);
FIELD(dv_opt_int, value, 8, 8);
FROZEN(dv_opt_float, 16, 8);
FIELD(dv_opt_float, has, 0, 1);
FIELD(dv_opt_float, value, 8, 8);
FROZEN(dv_opt_bool, 2, 1);
FIELD(dv_opt_bool, has, 0, 1);
FIELD(dv_opt_bool, value, 1, 1);
FROZEN(dv_opt_string, 24, 8);
FIELD(dv_opt_string, has, 0, 1);
FIELD(dv_opt_string, value, 8, 16);
FROZEN(dv_opt_scalar, 32, 8);
FIELD(dv_opt_scalar, has, 0, 1);
FIELD(dv_opt_scalar, value, 8, 24);
FROZEN(dv_opt_complex, 24, 8);
FIELD(dv_opt_complex, has, 0, 1);
FIELD(dv_opt_complex, value, 8, 16);
FROZEN(dv_opt_dtype, 6, 2);
FIELD(dv_opt_dtype, has, 0, 1);
FIELD(dv_opt_dtype, value, 2, 4);
FROZEN(dv_opt_device, 12, 4);
FIELD(dv_opt_device, has, 0, 1);
FIELD(dv_opt_device, value, 4, 8);
FROZEN(dv_opt_layout, 8, 4);
FIELD(dv_opt_layout, has, 0, 1);
FIELD(dv_opt_layout, value, 4, 4);
FROZEN(dv_opt_memory_format, 8, 4);
FIELD(dv_opt_memory_format, has, 0, 1);
FIELD(dv_opt_memory_format, value, 4, 4);
FROZEN(dv_opt_tensors, 24, 8);
FIELD(dv_opt_tensors, has, 0, 1);
FIELD(dv_opt_tensors, value, 8, 16);
FROZEN(dv_opt_ints, 24, 8);
FIELD(dv_opt_ints, has, 0, 1);
FIELD(dv_opt_ints, value, 8, 16);
FROZEN(dv_opt_floats, 24, 8);
FIELD(dv_opt_floats, has, 0, 1);
FIELD(dv_opt_floats, value, 8, 16);
FROZEN(dv_opt_bools, 24, 8);
FIELD(dv_opt_bools, has, 0, 1);
FIELD(dv_opt_bools, value, 8, 16);
FROZEN(dv_opt_strings, 24, 8);
FIELD(dv_opt_strings, has, 0, 1);
FIELD(dv_opt_strings, value, 8, 16);
FROZEN(dv_opt_scalars, 24, 8);
FIELD(dv_opt_scalars, has, 0, 1);
FIELD(dv_opt_scalars, value, 8, 16);

GROWS(dv_field_decl, 24, 8);
FIELD(dv_field_decl, size, 0, 4);
FIELD(dv_field_decl, type, 4, 4);
FIELD(dv_field_decl, name, 8, 8);
FIELD(dv_field_decl, offset, 16, 8);

GROWS(dv_kernel_decl, 88, 8);
FIELD(dv_kernel_decl, size, 0, 4);
FIELD(dv_kernel_decl, priority, 4, 4);
FIELD(dv_kernel_decl, name, 8, 8);
FIELD(dv_kernel_decl, device, 16, 8);
FIELD(dv_kernel_decl, dtypes, 24, 8);
FIELD(dv_kernel_decl, isa, 32, 8);
FIELD(dv_kernel_decl, when, 40, 8);
FIELD(dv_kernel_decl, takes, 48, 8);
FIELD(dv_kernel_decl, provider, 56, 8);
FIELD(dv_kernel_decl, run, 64, 8);
FIELD(dv_kernel_decl, split, 72, 8);
FIELD(dv_kernel_decl, flags, 80, 4);
FIELD(dv_kernel_decl, reserved, 84, 4);

GROWS(dv_operator_decl, 120, 8);
FIELD(dv_operator_decl, size, 0, 4);
FIELD(dv_operator_decl, flags, 4, 4);
FIELD(dv_operator_decl, name, 8, 8);
FIELD(dv_operator_decl, schema, 16, 8);
FIELD(dv_operator_decl, mutates, 24, 8);
FIELD(dv_operator_decl, contract, 32, 8);
FIELD(dv_operator_decl, native, 40, 8);
FIELD(dv_operator_decl, gradient, 48, 8);
FIELD(dv_operator_decl, tangent, 56, 8);
FIELD(dv_operator_decl, tags, 64, 8);
FIELD(dv_operator_decl, doc, 72, 8);
FIELD(dv_operator_decl, frame_size, 80, 4);
FIELD(dv_operator_decl, line, 84, 4);
FIELD(dv_operator_decl, file, 88, 8);
FIELD(dv_operator_decl, fields, 96, 8);
FIELD(dv_operator_decl, kernels, 104, 8);
FIELD(dv_operator_decl, shape, 112, 8);

GROWS(dv_library_decl, 48, 8);
FIELD(dv_library_decl, size, 0, 4);
FIELD(dv_library_decl, abi_minor, 4, 4);
FIELD(dv_library_decl, kind, 8, 4);
FIELD(dv_library_decl, reserved, 12, 4);
FIELD(dv_library_decl, name, 16, 8);
FIELD(dv_library_decl, version, 24, 8);
FIELD(dv_library_decl, provider, 32, 8);
FIELD(dv_library_decl, operators, 40, 8);

GROWS(dv_services, 88, 8);
FIELD(dv_services, size, 0, 4);
FIELD(dv_services, reserved, 4, 4);
FIELD(dv_services, error, 8, 8);
FIELD(dv_services, alloc, 16, 8);
FIELD(dv_services, parallel_for, 24, 8);
FIELD(dv_services, set_output, 32, 8);
FIELD(dv_services, call, 40, 8);
FIELD(dv_services, random, 48, 8);
FIELD(dv_services, object, 56, 8);
FIELD(dv_services, query, 64, 8);
FIELD(dv_services, parallel_scratch, 72, 8);
FIELD(dv_services, for_each_slice, 80, 8);

GROWS(struct dv_context, 64, 8);
FIELD(struct dv_context, size, 0, 4);
FIELD(struct dv_context, flags, 4, 4);
FIELD(struct dv_context, services, 8, 8);
FIELD(struct dv_context, workspace, 16, 8);
FIELD(struct dv_context, workspace_size, 24, 8);
FIELD(struct dv_context, stream, 32, 8);
FIELD(struct dv_context, device, 40, 8);
FIELD(struct dv_context, origin, 48, 8);
FIELD(struct dv_context, origin_ndim, 56, 4);
FIELD(struct dv_context, reserved, 60, 4);

IS(DV_OK, 0);
IS(DV_EINVAL, -1);
IS(DV_ENOMEM, -2);
IS(DV_ESYNTAX, -3);
IS(DV_ESCHEMA, -4);
IS(DV_ECONTRACT, -5);
IS(DV_ETYPE, -6);
IS(DV_ESHAPE, -7);
IS(DV_EDTYPE, -8);
IS(DV_EDEVICE, -9);
IS(DV_EALIAS, -10);
IS(DV_ENOENT, -11);
IS(DV_EEXIST, -12);
IS(DV_ENOKERNEL, -13);
IS(DV_EBINARY, -14);
IS(DV_EABI, -15);
IS(DV_EUNLOADED, -16);
IS(DV_EKERNEL, -17);
IS(DV_ENOTSUP, -18);
IS(DV_EIO, -19);
IS(DV_ELIMIT, -20);
IS(DV_EHOST, -21);

IS(DV_DTYPE_f16, 2 | 16 << 8 | 1 << 16);
IS(DV_DTYPE_f32, 2 | 32 << 8 | 1 << 16);
IS(DV_DTYPE_f64, 2 | 64 << 8 | 1 << 16);
IS(DV_DTYPE_bf16, 4 | 16 << 8 | 1 << 16);
IS(DV_DTYPE_i1, 0 | 1 << 8 | 1 << 16);
IS(DV_DTYPE_i2, 0 | 2 << 8 | 1 << 16);
IS(DV_DTYPE_i4, 0 | 4 << 8 | 1 << 16);
IS(DV_DTYPE_i8, 0 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_i16, 0 | 16 << 8 | 1 << 16);
IS(DV_DTYPE_i32, 0 | 32 << 8 | 1 << 16);
IS(DV_DTYPE_i64, 0 | 64 << 8 | 1 << 16);
IS(DV_DTYPE_u1, 1 | 1 << 8 | 1 << 16);
IS(DV_DTYPE_u2, 1 | 2 << 8 | 1 << 16);
IS(DV_DTYPE_u4, 1 | 4 << 8 | 1 << 16);
IS(DV_DTYPE_u8, 1 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_u16, 1 | 16 << 8 | 1 << 16);
IS(DV_DTYPE_u32, 1 | 32 << 8 | 1 << 16);
IS(DV_DTYPE_u64, 1 | 64 << 8 | 1 << 16);
IS(DV_DTYPE_bool, 6 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_c32, 5 | 32 << 8 | 1 << 16);
IS(DV_DTYPE_c64, 5 | 64 << 8 | 1 << 16);
IS(DV_DTYPE_c128, 5 | 128 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e3m4, 7 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e4m3, 8 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e4m3b11fnuz, 9 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e4m3fn, 10 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e4m3fnuz, 11 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e5m2, 12 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e5m2fnuz, 13 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f8_e8m0fnu, 14 | 8 << 8 | 1 << 16);
IS(DV_DTYPE_f6_e2m3fn, 15 | 6 << 8 | 1 << 16);
IS(DV_DTYPE_f6_e3m2fn, 16 | 6 << 8 | 1 << 16);
IS(DV_DTYPE_f4_e2m1fn, 17 | 4 << 8 | 1 << 16);
IS(DV_DTYPE_handle, 3 | 64 << 8 | 1 << 16);

IS(DV_FIELD_TENSOR, 1);
IS(DV_FIELD_MUT_TENSOR, 2);
IS(DV_FIELD_INT, 3);
IS(DV_FIELD_FLOAT, 4);
IS(DV_FIELD_BOOL, 5);
IS(DV_FIELD_STRING, 6);
IS(DV_FIELD_SCALAR, 7);
IS(DV_FIELD_COMPLEX, 8);
IS(DV_FIELD_DTYPE, 9);
IS(DV_FIELD_DEVICE, 10);
IS(DV_FIELD_LAYOUT, 11);
IS(DV_FIELD_MEMORY_FORMAT, 12);
IS(DV_FIELD_GENERATOR, 13);
IS(DV_FIELD_TENSORS, 14);
IS(DV_FIELD_MUT_TENSORS, 15);
IS(DV_FIELD_INTS, 16);
IS(DV_FIELD_FLOATS, 17);
IS(DV_FIELD_BOOLS, 18);
IS(DV_FIELD_STRINGS, 19);
IS(DV_FIELD_SCALARS, 20);
IS(DV_FIELD_COMPLEXES, 21);
IS(DV_FIELD_DTYPES, 22);
IS(DV_FIELD_DEVICES, 23);
IS(DV_FIELD_OPT_INT, 24);
IS(DV_FIELD_OPT_FLOAT, 25);
IS(DV_FIELD_OPT_BOOL, 26);
IS(DV_FIELD_OPT_STRING, 27);
IS(DV_FIELD_OPT_SCALAR, 28);
IS(DV_FIELD_OPT_COMPLEX, 29);
IS(DV_FIELD_OPT_DTYPE, 30);
IS(DV_FIELD_OPT_DEVICE, 31);
IS(DV_FIELD_OPT_LAYOUT, 32);
IS(DV_FIELD_OPT_MEMORY_FORMAT, 33);
IS(DV_FIELD_OPT_TENSORS, 34);
IS(DV_FIELD_OPT_INTS, 35);
IS(DV_FIELD_OPT_FLOATS, 36);
IS(DV_FIELD_OPT_BOOLS, 37);
IS(DV_FIELD_OPT_STRINGS, 38);
IS(DV_FIELD_OPT_SCALARS, 39);
IS(DV_FIELD_INT_RESULT, 40);
IS(DV_FIELD_FLOAT_RESULT, 41);
IS(DV_FIELD_BOOL_RESULT, 42);

IS(DV_CPU, 1);
IS(DV_CUDA, 2);
IS(DV_CUDA_HOST, 3);
IS(DV_ROCM, 10);
IS(DV_NPU, 12);
IS(DV_CUDA_MANAGED, 13);
IS(DV_META, 1000);
IS(DV_SCALAR_INT, 1);
IS(DV_SCALAR_FLOAT, 2);
IS(DV_SCALAR_BOOL, 3);
IS(DV_SCALAR_COMPLEX, 4);
IS(DV_KERNEL_REFERENCE, 1);
IS(DV_LIBRARY_DEF, 0);
IS(DV_LIBRARY_FRAGMENT, 1);
IS(DV_LIBRARY_IMPL, 2);
IS(DV_CTX_DETERMINISTIC, 1);
IS(DV_CTX_CHECK, 2);
IS(DV_CTX_EXCEEDS_CACHE, 4);
