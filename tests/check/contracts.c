/* Healthy operators whose contracts tie their arguments together in every way that the language has: for each, cases are found
 * and all of them pass. */
#include <dovetail_op.h>

enum { MOST_DIMS = 64 };

/* The element of a tensor with these strides that belongs to element i of `shape`. */
static int64_t element(int64_t i, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t at = 0;
    for (int32_t d = ndim; d-- > 0; i /= shape[d])
        at += i % shape[d] * strides[d];
    return at;
}

static int64_t from_start(int64_t dim, int32_t ndim) { return dim < 0 ? dim + (ndim ? ndim : 1) : dim; }

/* out = x with its dims in another order, plus y, which has that order already. */
struct swapped {
    const dv_tensor *x, *y;
    int64_t d0, d1;
    dv_tensor *out;
};
static int swapped_any(dv_context *ctx, const struct swapped *a)
{
    const int32_t n = a->x->ndim;
    int64_t strides[MOST_DIMS];
    (void)ctx;
    for (int32_t d = 0; d < n; d++)
        strides[d] = a->x->strides[d];
    if (n) {
        const int64_t d0 = from_start(a->d0, n), d1 = from_start(a->d1, n), kept = strides[d0];
        strides[d0] = strides[d1];
        strides[d1] = kept;
    }
    for (int64_t i = 0, all = dv_numel(a->out); i < all; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[element(i, n, a->out->shape, strides)] +
            ((const float *)a->y->data)[i];
    return DV_OK;
}
DV_OPERATOR(swapped, struct swapped, (x, y, d0, d1, out), .schema = "swapped(Tensor x, Tensor y, int d0, int d1) -> Tensor out",
    .contract = "x[*s]:f32, y[swap(*s, d0, d1)]:f32 -> out[swap(*s, d0, d1)]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct swapped, "cpu", "f32", swapped_any)));

struct permuted {
    const dv_tensor *x, *y;
    dv_ints order;
    dv_tensor *out;
};
static int permuted_any(dv_context *ctx, const struct permuted *a)
{
    const int32_t n = a->x->ndim;
    int64_t strides[MOST_DIMS];
    (void)ctx;
    for (int32_t d = 0; d < n; d++)
        strides[d] = a->x->strides[from_start(a->order.data[d], n)];
    for (int64_t i = 0, all = dv_numel(a->out); i < all; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[element(i, n, a->out->shape, strides)] +
            ((const float *)a->y->data)[i];
    return DV_OK;
}
DV_OPERATOR(permuted, struct permuted, (x, y, order, out), .schema = "permuted(Tensor x, Tensor y, int[] order) -> Tensor out",
    .contract = "x[*s]:f32, y[permute(*s, order)]:f32 -> out[permute(*s, order)]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct permuted, "cpu", "f32", permuted_any)));

/* x minus what was made of it by a reduction with these dims. */
struct centred {
    const dv_tensor *x, *mean;
    dv_ints dim;
    bool keepdim;
    dv_tensor *out;
};
static int centred_any(dv_context *ctx, const struct centred *a)
{
    const int32_t n = a->x->ndim;
    int64_t strides[MOST_DIMS], step = 1;
    bool gone[MOST_DIMS] = { false };
    (void)ctx;
    for (int32_t d = 0; d < n; d++)
        gone[d] = !a->dim.size;
    for (size_t k = 0; k < a->dim.size && n; k++)
        gone[from_start(a->dim.data[k], n)] = true;
    for (int32_t d = n; d-- > 0;) {
        strides[d] = gone[d] ? 0 : step;
        step *= gone[d] ? 1 : a->x->shape[d];
    }
    for (int64_t i = 0, all = dv_numel(a->out); i < all; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] -
            ((const float *)a->mean->data)[element(i, n, a->x->shape, strides)];
    return DV_OK;
}
DV_OPERATOR(centred, struct centred, (x, mean, dim, keepdim, out),
    .schema = "centred(Tensor x, Tensor mean, int[] dim, bool keepdim) -> Tensor out",
    .contract = "x[*s]:f32, mean[reduced(*s, dim, keepdim)]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct centred, "cpu", "f32", centred_any)));

/* The larger of two tensors that broadcast and may have two dtypes, in a tensor that is given. */
struct larger {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int larger_any(dv_context *ctx, const struct larger *a)
{
    const dv_tensor *const of[] = { a->x, a->y };
    int64_t strides[2][MOST_DIMS];
    (void)ctx;
    for (int k = 0; k < 2; k++)
        for (int32_t d = 0, lost = a->out->ndim - of[k]->ndim; d < a->out->ndim; d++)
            strides[k][d] = d < lost || of[k]->shape[d - lost] == 1 ? 0 : of[k]->strides[d - lost];
    for (int64_t i = 0, all = dv_numel(a->out); i < all; i++) {
        double v[2];
        for (int k = 0; k < 2; k++)
            v[k] = dv_get_f64(of[k]->data, element(i, a->out->ndim, a->out->shape, strides[k]), dv_dtype_key(of[k]->dtype));
        dv_put_f64(a->out->data, i, dv_dtype_key(a->out->dtype), v[0] > v[1] ? v[0] : v[1]);
    }
    return DV_OK;
}
DV_OPERATOR(larger, struct larger, (x, y, out), .schema = "larger(Tensor x, Tensor y, *, Tensor(a!) out) -> ()",
    .contract = "x[*a]:T, y[*b]:U, out[broadcast(*a, *b)]:promote(T, U); T in f32 f64 f16; U in f32 f64 f16",
    .kernels = DV_KERNELS(DV_KERNEL(struct larger, "cpu", "T=f32 f64 f16, U=f32 f64 f16", larger_any)));

/* A sum to which one more is added; integers add up in 64 bits. */
struct counted {
    const dv_tensor *x, *more;
    dv_tensor *out;
};
static int counted_any(dv_context *ctx, const struct counted *a)
{
    int64_t sum = ((const int64_t *)a->more->data)[0];
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        sum += a->x->dtype.bits == 8 ? ((const int8_t *)a->x->data)[i] : ((const int32_t *)a->x->data)[i];
    ((int64_t *)a->out->data)[0] = sum;
    return DV_OK;
}
DV_OPERATOR(counted, struct counted, (x, more, out), .schema = "counted(Tensor x, Tensor more) -> Tensor out",
    .contract = "x[...]:T, more[]:accumulate(T) -> out[]:accumulate(T); T in i8 i32",
    .kernels = DV_KERNELS(DV_KERNEL(struct counted, "cpu", "i8 i32", counted_any)));

/* Rows may be far apart; in a row elements are neighbours. */
struct rows {
    const dv_tensor *x;
    dv_tensor *out;
};
static int rows_any(dv_context *ctx, const struct rows *a)
{
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        const float *row = (const float *)a->x->data + i * a->x->strides[0];
        float sum = 0;
        for (int64_t k = 0; k < a->x->shape[1]; k++)
            sum += row[k];
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(rows, struct rows, (x, out), .schema = "rows(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m]:f32; stride(x, -1) == 1 or n <= 1; strided(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct rows, "cpu", "f32", rows_any)));

/* y is added to each of the last dims of x, from dim on. */
struct added_from {
    const dv_tensor *x, *y;
    int64_t dim;
    dv_tensor *out;
};
static int added_from_any(dv_context *ctx, const struct added_from *a)
{
    const int64_t n = dv_numel(a->y);
    (void)ctx;
    for (int64_t i = 0, all = dv_numel(a->x); i < all; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + ((const float *)a->y->data)[i % n];
    return DV_OK;
}
DV_OPERATOR(added_from, struct added_from, (x, y, dim, out), .schema = "added_from(Tensor x, Tensor y, int dim) -> Tensor out",
    .contract = "x[*a *b]:f32, y[*b]:f32 -> out[*a *b]:f32; rank(*a) == axis(dim, x); parallel(*a)",
    .kernels = DV_KERNELS(DV_KERNEL(struct added_from, "cpu", "f32", added_from_any)));

/* The slice at an index of a dim. */
struct slice_at {
    const dv_tensor *x;
    int64_t dim, index;
    dv_tensor *out;
};
static int slice_at_any(dv_context *ctx, const struct slice_at *a)
{
    const int64_t dim = from_start(a->dim, a->x->ndim), n = a->x->shape[dim];
    int64_t inner = 1;
    (void)ctx;
    for (int32_t d = (int32_t)dim + 1; d < a->x->ndim; d++)
        inner *= a->x->shape[d];
    for (int64_t i = 0, all = dv_numel(a->out); i < all; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[(i / inner * n + a->index) * inner + i % inner];
    return DV_OK;
}
DV_OPERATOR(slice_at, struct slice_at, (x, dim, index, out), .schema = "slice_at(Tensor x, int dim, int index) -> Tensor out",
    .contract = "x[*a n *b]:f32 -> out[*a *b]:f32; rank(*a) == axis(dim, x); 0 <= index < n; parallel(*a)",
    .kernels = DV_KERNELS(DV_KERNEL(struct slice_at, "cpu", "f32", slice_at_any)));

/* Sizes that depend on each other. */
struct coupled {
    const dv_tensor *x, *y;
    int64_t g;
    dv_tensor *out;
};
static int coupled_any(dv_context *ctx, const struct coupled *a)
{
    const int64_t n = a->x->shape[0];
    (void)ctx;
    for (int64_t k = 0; k < n / a->g; k++) {
        float sum = ((const float *)a->y->data)[2 * n];
        for (int64_t i = k * a->g; i < (k + 1) * a->g; i++)
            sum += ((const float *)a->x->data)[i] * ((const float *)a->y->data)[2 * i + 1];
        ((float *)a->out->data)[k] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(coupled, struct coupled, (x, y, g, out), .schema = "coupled(Tensor x, Tensor y, int g) -> Tensor out",
    .contract = "x[n]:f32, y[m]:f32 -> out[n//g]:f32; g > 0; n % g == 0; m == 2*n + 1",
    .kernels = DV_KERNELS(DV_KERNEL(struct coupled, "cpu", "f32", coupled_any)));

/* A word selects what the dims mean, and whether there is a bias. */
struct biased {
    const dv_tensor *x, *bias;
    dv_string layout;
    dv_tensor *out;
};
static int biased_any(dv_context *ctx, const struct biased *a)
{
    const bool first = a->layout.data[0] == 'C';
    const int64_t c = a->x->shape[!first], n = a->x->shape[first];
    (void)ctx;
    for (int64_t i = 0; i < c * n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] +
            (a->bias ? ((const float *)a->bias->data)[first ? i / n : i % c] : 1);
    return DV_OK;
}
DV_OPERATOR(biased, struct biased, (x, bias, layout, out),
    .schema = "biased(Tensor x, Tensor? bias, str layout=\"\") -> Tensor out",
    .contract = "when layout == \"CN\": x[c n]:f32, bias[c]:f32 present -> out[c n]:f32 "
                "/ \"NC\": x[n c]:f32, bias[c]:f32 -> out[n c]:f32 / \"plain\": x[n c]:f32 -> out[n c]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct biased, "cpu", "f32", biased_any)));

/* Lists of tensors with shapes of their own, and a list as the result. */
struct doubled {
    dv_tensors xs, ys;
    dv_mut_tensors outs;
};
static int doubled_any(dv_context *ctx, const struct doubled *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((float *)a->outs.data[k]->data)[i] = ((const float *)a->xs.data[k]->data)[i] +
                ((const float *)a->ys.data[k]->data)[i];
    return DV_OK;
}
DV_OPERATOR(doubled, struct doubled, (xs, ys, outs), .schema = "doubled(Tensor[] xs, Tensor[] ys) -> Tensor[] outs",
    .contract = "xs{i}[*s{i}]:f32, ys{i}[*s{i}]:f32 -> outs{i}[*s{i}]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct doubled, "cpu", "f32", doubled_any)));

/* Elements that are counts and positions, within what other sizes say. */
struct gathered {
    const dv_tensor *x, *at;
    dv_tensor *out;
};
static int gathered_any(dv_context *ctx, const struct gathered *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->at); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[2 * (int64_t)((const int32_t *)a->at->data)[i] + 1];
    return DV_OK;
}
DV_OPERATOR(gathered, struct gathered, (x, at, out), .schema = "gathered(Tensor x, Tensor at) -> Tensor out",
    .contract = "x[2*n]:f32, at[*k]:i32 -> out[*k]:f32; 0 <= at.values < n",
    .kernels = DV_KERNELS(DV_KERNEL(struct gathered, "cpu", "f32", gathered_any)));

DV_LIBRARY(contracts, &dv_op_swapped, &dv_op_permuted, &dv_op_centred, &dv_op_larger, &dv_op_counted, &dv_op_rows,
    &dv_op_added_from, &dv_op_slice_at, &dv_op_coupled, &dv_op_biased, &dv_op_doubled, &dv_op_gathered);
