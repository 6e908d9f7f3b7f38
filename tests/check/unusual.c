/* Right operators with results and arguments that few have. */
#include <dovetail_op.h>
#include <stdlib.h>

struct summary {
    const dv_tensor *x;
    int64_t *count;
    double *mean;
    bool *any;
    dv_tensor *least;
};
static int summary_f64(dv_context *ctx, const struct summary *a)
{
    const double *x = a->x->data;
    double sum = 0, least = 0;
    (void)ctx;
    *a->any = false;
    *a->count = dv_numel(a->x);
    for (int64_t i = 0; i < *a->count; i++) {
        sum += x[i];
        *a->any |= x[i] > 0;
        least = x[i] < least ? x[i] : least;
    }
    *a->mean = *a->count ? sum / (double)*a->count : 0;
    *(double *)a->least->data = least;
    return DV_OK;
}
DV_OPERATOR(summary, struct summary, (x, count, mean, any, least),
    .schema = "summary(Tensor x) -> (int count, float mean, bool any, Tensor least)", .contract = "x[*s]:f64 -> least[]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct summary, "cpu", NULL, summary_f64)));

/* A list of results, with a gradient. */
struct pieces {
    const dv_tensor *x;
    int64_t size;
    dv_mut_tensors out;
};
static int pieces_f64(dv_context *ctx, const struct pieces *a)
{
    const double *x = a->x->data;
    (void)ctx;
    for (size_t k = 0; k < a->out.size; k++)
        for (int64_t i = 0, n = dv_numel(a->out.data[k]); i < n; i++)
            ((double *)a->out.data[k]->data)[i] = 2 * *x++;
    return DV_OK;
}
DV_OPERATOR(pieces, struct pieces, (x, size, out), .schema = "pieces(Tensor x, SymInt size) -> Tensor[] out",
    .contract = "x[n]:f64 -> out{i < ceildiv(n, size)}[min(size, n - i*size)]:f64; size > 0; n > 0; ceildiv(n, size) <= 40",
    .gradient = "x: cat(grad, 0) * 2", .kernels = DV_KERNELS(DV_KERNEL(struct pieces, "cpu", NULL, pieces_f64)));

struct each {
    dv_tensors xs, ys;
    dv_mut_tensors out;
};
static int each_f64(dv_context *ctx, const struct each *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((double *)a->out.data[k]->data)[i] = ((const double *)a->xs.data[k]->data)[i] -
                (a->ys.data[k] ? ((const double *)a->ys.data[k]->data)[i] : 0);
    return DV_OK;
}
DV_OPERATOR(each, struct each, (xs, ys, out), .schema = "each(Tensor[] xs, Tensor?[] ys) -> Tensor[] out",
    .contract = "xs{i}[n]:f64, ys{i}[n]:f64 -> out{i}[n]:f64; len(ys) == len(xs)",
    .kernels = DV_KERNELS(DV_KERNEL(struct each, "cpu", NULL, each_f64)));

/* int lists and optional ones */
struct roll {
    const dv_tensor *x;
    dv_ints shifts;
    dv_opt_ints dims;
    dv_opt_floats by;
    dv_tensor *out;
};
static int roll_any(dv_context *ctx, const struct roll *a)
{
    const int64_t n = a->x->shape[0], m = a->x->shape[1];
    int64_t by[2] = { 0, 0 };
    for (size_t k = 0; k < a->shifts.size; k++) {
        const int64_t d = a->dims.has && k < a->dims.value.size ? a->dims.value.data[k] : (int64_t)k, to = d < 0 ? d + 2 : d;
        if (to < 0 || to > 1)
            return dv_error(ctx, DV_EINVAL, "dim %lld is none of 2", (long long)d);
        const int64_t size = a->x->shape[to];
        if (size)
            by[to] = (by[to] + a->shifts.data[k] % size + size) % size;
    }
    double scale = 1;
    for (size_t k = 0; a->by.has && k < a->by.value.size; k++)
        scale *= a->by.value.data[k];
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < m; k++)
            ((double *)a->out->data)[(i + by[0]) % n * m + (k + by[1]) % m] = scale * ((const double *)a->x->data)[i * m + k];
    return DV_OK;
}
DV_OPERATOR(roll, struct roll, (x, shifts, dims, by, out),
    .schema = "roll(Tensor x, int[] shifts, int[]? dims=None, *, float[]? by=None) -> Tensor out",
    .contract = "x[n m]:f64 -> out[n m]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct roll, "cpu", NULL, roll_any)));

/* complex, with gradient */
struct two {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
#define CMUL(NAME, T)                                                         \
    static int NAME(dv_context *ctx, const struct two *a)                     \
    {                                                                         \
        const T *x = a->x->data, *y = a->y->data;                             \
        T *o = a->out->data;                                                  \
        (void)ctx;                                                            \
        for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {                 \
            o[2 * i] = x[2 * i] * y[2 * i] - x[2 * i + 1] * y[2 * i + 1];     \
            o[2 * i + 1] = x[2 * i] * y[2 * i + 1] + x[2 * i + 1] * y[2 * i]; \
        }                                                                     \
        return DV_OK;                                                         \
    }
CMUL(cmul64, float)
CMUL(cmul128, double)
DV_OPERATOR(cmul, struct two, (x, y, out), .schema = "cmul(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; T in c64 c128; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct two, "cpu", "c64", cmul64), DV_KERNEL(struct two, "cpu", "c128", cmul128)));

/* a mask, a number of any kind */
struct masked {
    const dv_tensor *x, *mask;
    dv_scalar fill;
    dv_tensor *out;
};
static int masked_f64(dv_context *ctx, const struct masked *a)
{
    const double fill = a->fill.kind == DV_SCALAR_FLOAT ? a->fill.as.f
        : a->fill.kind == DV_SCALAR_INT                 ? (double)a->fill.as.i
                                                        : (double)a->fill.as.b;
    if (a->fill.kind == DV_SCALAR_COMPLEX)
        return dv_error(ctx, DV_ETYPE, "argument 'fill': expected a real number, found a complex one");
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = ((const bool *)a->mask->data)[i] ? fill : ((const double *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(masked, struct masked, (x, mask, fill, out), .schema = "masked(Tensor x, Tensor mask, Scalar fill=0) -> Tensor out",
    .contract = "x[*s]:f64, mask[*s]:bool -> out[*s]:f64; parallel(*s)", .native = "where(mask, fill, x)",
    .gradient = "x: where(mask, 0, grad)", .kernels = DV_KERNELS(DV_KERNEL(struct masked, "cpu", NULL, masked_f64)));
static int not_bool(dv_context *ctx, const struct two *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((bool *)a->out->data)[i] = ((const bool *)a->x->data)[i] != ((const bool *)a->y->data)[i];
    return DV_OK;
}
DV_OPERATOR(differ, struct two, (x, y, out), .schema = "differ(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:bool, y[*s]:bool -> out[*s]:bool; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct two, "cpu", NULL, not_bool)));

/* in place, with an argument called mode */
struct accumulate {
    dv_tensor *x;
    const dv_tensor *y;
    dv_string mode;
    dv_string lambda;
};
static int accumulate_f64(dv_context *ctx, const struct accumulate *a)
{
    double *x = a->x->data;
    const double *y = a->y->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        x[i] = a->mode.size == 3 ? x[i] + y[i] : y[i] > x[i] || y[i] != y[i] ? y[i] : x[i];
    return DV_OK;
}
DV_OPERATOR(accumulate_, struct accumulate, (x, y, mode, lambda),
    .schema = "accumulate_(Tensor(a!) x, Tensor y, str mode=\"sum\", *, str lambda=\"\") -> Tensor(a!)",
    .contract = "x[*s]:f64, y[*s]:f64; mode in \"sum\" \"most\"; unused(lambda)",
    .kernels = DV_KERNELS(DV_KERNEL(struct accumulate, "cpu", NULL, accumulate_f64)));
struct negate { dv_tensor *x; };
static int negate_f64(dv_context *ctx, const struct negate *a)
{
    double *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        x[i] = -x[i];
    return DV_OK;
}
DV_OPERATOR(negate_, struct negate, (x), .schema = "negate_(Tensor(a!) x) -> ()", .contract = "x[*s]:f64; parallel(*s)",
    .gradient = "x: -grad", .kernels = DV_KERNELS(DV_KERNEL(struct negate, "cpu", NULL, negate_f64)));

/* views */
struct one {
    const dv_tensor *x;
    dv_tensor *out;
};
DV_OPERATOR(corners, struct one, (x, out), .schema = "corners(Tensor(a) x) -> Tensor(a) out",
    .contract = "x[n m]:T -> out[2 2]:T view(x) strides[(n - 1)*stride(x, 0), (m - 1)*stride(x, 1)]; n > 1; m > 1");
struct rows {
    const dv_tensor *x;
    dv_mut_tensors out;
};
DV_OPERATOR(rows_of, struct rows, (x, out), .schema = "rows_of(Tensor(a) x) -> Tensor(a)[] out",
    .contract = "x[n *s] -> out{i < n} view(x, select(0, i)); n <= 40");

/* several results, one absent at times */
struct moments {
    const dv_tensor *x;
    bool more;
    dv_tensor *mean, *square;
};
static int moments_f64(dv_context *ctx, const struct moments *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        double sum = 0, square = 0;
        for (int64_t k = 0; k < n; k++) {
            const double x = ((const double *)a->x->data)[i * n + k];
            sum += x;
            square += x * x;
        }
        ((double *)a->mean->data)[i] = n ? sum / (double)n : 0;
        if (a->square)
            ((double *)a->square->data)[i] = n ? square / (double)n : 0;
    }
    return DV_OK;
}
DV_OPERATOR(moments, struct moments, (x, more, mean, square),
    .schema = "moments(Tensor x, bool more=False) -> (Tensor mean, Tensor? square)",
    .contract = "x[m n]:f64 -> mean[m]:f64; when more: -> square[m]:f64 / else: -> square absent",
    .kernels = DV_KERNELS(DV_KERNEL(struct moments, "cpu", NULL, moments_f64)));

/* float8 */
static int widen(dv_context *ctx, const struct one *a)
{
    const dv_dtype t = a->x->dtype;
    (void)ctx;
    const bool e5m2 = dv_dtype_key(t) == DV_DTYPE_f8_e5m2;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) { /* the exponent alone */
        const int byte = ((const uint8_t *)a->x->data)[i];
        ((int32_t *)a->out->data)[i] = e5m2 ? byte >> 2 & 31 : byte >> 3 & 15;
    }
    return DV_OK;
}
DV_OPERATOR(exponent, struct one, (x, out), .schema = "exponent(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:i32; T in f8_e4m3fn f8_e5m2; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", NULL, widen)));
static int flip_sign(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((uint8_t *)a->out->data)[i] = ((const uint8_t *)a->x->data)[i] ^ 0x80;
    return DV_OK;
}
DV_OPERATOR(flip_sign, struct one, (x, out), .schema = "flip_sign(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f8_e4m3fn f8_e5m2; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", NULL, flip_sign)));
static int flip_sign_(dv_context *ctx, const struct negate *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((uint8_t *)a->x->data)[i] ^= 0x80;
    return DV_OK;
}
DV_OPERATOR(flip_sign_, struct negate, (x), .schema = "flip_sign_(Tensor(a!) x) -> ()",
    .contract = "x[*s]:T; T in f8_e4m3fn f8_e5m2; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct negate, "cpu", NULL, flip_sign_)));
struct flips {
    dv_tensors xs;
    dv_mut_tensors out;
};
static int flips(dv_context *ctx, const struct flips *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((uint8_t *)a->out.data[k]->data)[i] = ((const uint8_t *)a->xs.data[k]->data)[i] ^ 0x80;
    return DV_OK;
}
DV_OPERATOR(flips, struct flips, (xs, out), .schema = "flips(Tensor[] xs) -> Tensor[] out",
    .contract = "xs{i}[*s{i}]:f8_e5m2 -> out{i}[*s{i}]:f8_e5m2",
    .kernels = DV_KERNELS(DV_KERNEL(struct flips, "cpu", NULL, flips)));
static int narrow_u16(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((uint16_t *)a->out->data)[i] = (uint16_t)(((const uint32_t *)a->x->data)[i] >> 16);
    return DV_OK;
}
DV_OPERATOR(high_bits, struct one, (x, out), .schema = "high_bits(Tensor x) -> Tensor out",
    .contract = "x[*s]:u32 -> out[*s]:u16; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", NULL, narrow_u16)));
/* without a tensor */
struct grid {
    int64_t n;
    double step;
    dv_tensor *out;
};
static int grid_f64(dv_context *ctx, const struct grid *a)
{
    (void)ctx;
    for (int64_t i = 0; i < a->n; i++)
        ((double *)a->out->data)[i] = (double)i * a->step;
    return DV_OK;
}
DV_OPERATOR(grid, struct grid, (n, step, out), .schema = "grid(SymInt n, *, float step=1.0) -> Tensor out",
    .contract = "-> out[n]:f64; n >= 0; n <= 4096", .kernels = DV_KERNELS(DV_KERNEL(struct grid, "cpu", NULL, grid_f64)));
/* a sum over nothing, an optional sum */
struct optional {
    const dv_tensor *x, *w;
    int64_t dim;
    dv_tensor *out;
};
static int weighed(dv_context *ctx, const struct optional *a)
{
    double sum = 0;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        sum += ((const double *)a->x->data)[i] * (a->w ? ((const double *)a->w->data)[i] : 1);
    *(double *)a->out->data = sum + (double)(a->dim == INT64_MIN ? 0 : 0);
    return DV_OK;
}
DV_OPERATOR(weighed, struct optional, (x, w, dim, out), .schema = "weighed(Tensor x, Tensor? w=None, *, int dim=0) -> Tensor out",
    .contract = "x[n]:f64, w[n]:f64 -> out[]:f64; sum(n); unused(dim)",
    .gradient = "x: if(present(w), grad * w, grad * ones_like(x)); w: if(present(w), grad * x, None)",
    .kernels = DV_KERNELS(DV_KERNEL(struct optional, "cpu", NULL, weighed)));
DV_LIBRARY(unusual, &dv_op_summary, &dv_op_pieces, &dv_op_each, &dv_op_roll, &dv_op_cmul, &dv_op_masked, &dv_op_differ,
    &dv_op_accumulate_, &dv_op_negate_, &dv_op_corners, &dv_op_rows_of, &dv_op_moments, &dv_op_exponent, &dv_op_flip_sign,
    &dv_op_flip_sign_, &dv_op_flips, &dv_op_high_bits, &dv_op_grid, &dv_op_weighed);
