/* base.h: the base set, shared by its files: how elements are walked over, and the list of operators.
 *
 * The base set is what decompositions and gradients are written in: a few dozen operators with ATen's names, arguments and
 * meaning, closed under differentiation. Every result is a new tensor: what is a view in ATen is a copy here. Right first, and
 * fast enough: elements go through buffers of one of three compute types, so a dtype costs a conversion and not a kernel. */
#ifndef BASE_H
#define BASE_H

#include <dovetail_op.h>

#define BASE_FLOATS "T in f32 f64 bf16 f16"
#define BASE_DTYPES "f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool" /* what elements can be converted from and to */
#define BASE_NUMBERS "T in " BASE_DTYPES
#define BASE_OTHER "; U in " BASE_DTYPES
#define BASE_PAIRS BASE_NUMBERS BASE_OTHER
#define BASE_TO "; dtype in " BASE_DTYPES /* of an argument */
#define BASE_MAYBE_TO "; absent(dtype) or dtype in " BASE_DTYPES

/* ---- compute types: f32 for f32, bf16 and f16; f64; i64 for integers and bool -------------------------------------------- */

enum base_compute { BASE_F32, BASE_F64, BASE_I64 };
enum { BASE_CHUNK = 512, BASE_MAX_INPUTS = 3 };

typedef union base_buffer {
    float f32[BASE_CHUNK];
    double f64[BASE_CHUNK];
    int64_t i64[BASE_CHUNK];
} base_buffer;

/* out[i] = f(in[0][i], in[1][i], ...) for i < n, all of one compute type. */
typedef void (*base_chunk_fn)(void *out, const void *const *in, int64_t n);
typedef struct base_function { base_chunk_fn of[3]; } base_function; /* by compute type; NULL: not for this one */

enum base_compute base_compute_of(dv_dtype t);
size_t base_item(dv_dtype t); /* bytes of an element */
/* torch.result_type of two tensors, or of a tensor and a scalar. */
dv_dtype base_promote(const dv_tensor *a, const dv_tensor *b);
dv_dtype base_promote_scalar(const dv_tensor *a, dv_scalar b);

void base_load(void *to, enum base_compute c, const void *data, dv_dtype t, int64_t start, int64_t n);
void base_store(void *data, dv_dtype t, int64_t start, enum base_compute c, const void *from, int64_t n);

/* An input of an element-wise operator: a tensor that broadcasts, or a number. */
typedef struct base_input {
    const dv_tensor *tensor;
    dv_scalar scalar;
} base_input;
static inline base_input base_tensor(const dv_tensor *t) { return (base_input){ t, { 0, { 0 } } }; }
static inline base_input base_number(dv_scalar s) { return (base_input){ NULL, s }; }

/* out = f(inputs), which are taken as elements of type `compute` (those of 16 bits as float, unrounded). */
int base_elementwise(
    dv_context *ctx, const dv_tensor *out, const base_function *f, dv_dtype compute, const base_input *in, int32_t n);

/* ---- moving elements ----------------------------------------------------------------------------------------------------- */

/* Copy a box of elements: strides in bytes, any sign. */
void base_copy(size_t item, int32_t ndim, const int64_t *shape, char *dst, const int64_t *dst_strides, const char *src,
    const int64_t *src_strides);
/* An axis that counts from the end when negative, of `rank` dims (0 dims count as one); -1 when it is outside. */
int32_t base_axis(int64_t dim, int32_t rank);
void base_byte_strides(const dv_tensor *t, int64_t *strides);

/* ---- the operators, by the file that declares them ----------------------------------------------------------------------- */

/* clang-format off */
#define BASE_REDUCE(X) X(sum) X(sum_dim_IntList) X(mean) X(mean_dim) X(amax) X(sum_to_size)
#define BASE_SHAPE(X)                                                                                                           \
    X(transpose_int) X(reshape) X(expand) X(unsqueeze) X(squeeze_dim) X(slice_Tensor) X(slice_scatter) X(narrow)     \
    X(flip) X(constant_pad_nd) X(cat) X(cat_backward) X(index_select) X(index_add)
#define BASE_MAKE(X) X(zeros_like) X(ones_like) X(full_like) X(to_dtype) X(type_as) X(clone)
#define BASE_MATMUL(X) X(matmul)
/* clang-format on */

#endif
