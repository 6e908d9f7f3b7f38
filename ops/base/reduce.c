/* reduce.c: sums, means and maxima over some of the dims.
 *
 * Neighbouring dims that are all kept or all reduced are one, so that a tensor is a nest of kept and reduced loops; the innermost
 * one runs over contiguous elements. Sums are kept in double (int64_t for integers) and rounded once, at the end. */
#include "base.h"
#include <math.h>

enum reduction { SUM, MEAN, MAX };

struct nest {
    int32_t ndim;
    int64_t shape[64], stride[64]; /* stride in the result: 0 for a reduced dim */
    int64_t count;                 /* elements that make up one result */
};

static void plan(struct nest *r, const dv_tensor *x, const bool *reduced)
{
    int64_t out_stride = 1, outs[64];
    for (int32_t d = x->ndim - 1; d >= 0; d--) {
        outs[d] = reduced[d] ? 0 : out_stride;
        out_stride *= reduced[d] ? 1 : x->shape[d];
    }
    r->ndim = 0;
    r->count = 1;
    for (int32_t d = 0; d < x->ndim; d++) {
        if (reduced[d])
            r->count *= x->shape[d];
        const bool merges = r->ndim && (r->stride[r->ndim - 1] == 0) == reduced[d];
        if (merges)
            r->shape[r->ndim - 1] *= x->shape[d];
        else
            r->shape[r->ndim++] = x->shape[d];
        r->stride[r->ndim - 1] = outs[d];
    }
    if (!r->ndim) {
        r->ndim = 1;
        r->shape[0] = 1;
        r->stride[0] = 0;
    }
}

static double sum_line(const double *x, int64_t n)
{
    double s[8] = { 0 };
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += x[i + k];
    for (; i < n; i++)
        s[0] += x[i];
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

static double larger(double a, double b) { return isnan(a) || a > b ? a : b; } /* NaN wins */

/* n elements of x go to total[0], total[stride], ... */
static void take_f64(enum reduction what, double *total, int64_t stride, const double *x, int64_t n)
{
    if (what == MAX)
        for (int64_t i = 0; i < n; i++)
            total[i * stride] = larger(total[i * stride], x[i]);
    else if (stride)
        for (int64_t i = 0; i < n; i++)
            total[i] += x[i];
    else
        total[0] += sum_line(x, n);
}

static void take_i64(enum reduction what, int64_t *total, int64_t stride, const int64_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t *const t = total + i * stride;
        *t = what == MAX ? (*t > x[i] ? *t : x[i]) : (int64_t)((uint64_t)*t + (uint64_t)x[i]);
    }
}

static int reduce(dv_context *ctx, enum reduction what, const dv_tensor *x, const dv_tensor *out, const bool *reduced)
{
    const enum base_compute c = base_compute_of(what == MAX ? x->dtype : out->dtype) == BASE_I64 ? BASE_I64 : BASE_F64;
    const int64_t results = dv_numel(out), n = dv_numel(x);
    struct nest r;
    int64_t index[64] = { 0 }, at = 0;
    base_buffer buffer;

    plan(&r, x, reduced);
    if (what == MAX && !r.count && results)
        return dv_error(ctx, DV_EINVAL, "no elements to take the largest of");
    if (!results)
        return DV_OK;
    int64_t *const total = dv_alloc(ctx, (size_t)results * sizeof(int64_t), 64);
    if (!total)
        return DV_ENOMEM;
    for (int64_t i = 0; i < results; i++)
        if (c == BASE_F64)
            ((double *)total)[i] = what == MAX ? -INFINITY : 0;
        else
            total[i] = what == MAX ? INT64_MIN : 0;

    const int32_t last = r.ndim - 1;
    for (int64_t done = 0; done < n; done += r.shape[last]) {
        for (int64_t begin = 0; begin < r.shape[last]; begin += BASE_CHUNK) {
            const int64_t m = r.shape[last] - begin < BASE_CHUNK ? r.shape[last] - begin : BASE_CHUNK;
            base_load(&buffer, c, x->data, x->dtype, done + begin, m);
            if (c == BASE_F64)
                take_f64(what, (double *)total + at + begin * r.stride[last], r.stride[last], buffer.f64, m);
            else
                take_i64(what, total + at + begin * r.stride[last], r.stride[last], buffer.i64, m);
        }
        for (int32_t d = last - 1; d >= 0; d--) {
            at += r.stride[d];
            if (++index[d] < r.shape[d])
                break;
            at -= r.stride[d] * r.shape[d];
            index[d] = 0;
        }
    }
    if (what == MEAN)
        for (int64_t i = 0; i < results; i++)
            ((double *)total)[i] /= (double)r.count;
    base_store(out->data, out->dtype, 0, c, total, results);
    return DV_OK;
}

/* ---- operators ----------------------------------------------------------------------------------------------------------- */

/* Of no dims: all of them. The contract's reduced() has looked at range and repetition. */
static int reduce_dims(dv_context *ctx, enum reduction what, const dv_tensor *x, const dv_tensor *out, dv_ints dims)
{
    bool reduced[64] = { false };
    for (int32_t d = 0; d < x->ndim; d++)
        reduced[d] = !dims.size;
    for (size_t i = 0; i < dims.size; i++) {
        const int32_t d = base_axis(dims.data[i], x->ndim);
        if (d < 0)
            return dv_error(ctx, DV_EINVAL, "dim %lld is out of range for a tensor of %d dims", (long long)dims.data[i], x->ndim);
        reduced[d] = true;
    }
    return reduce(ctx, what, x, out, reduced);
}

struct full_reduction {
    const dv_tensor *self;
    dv_opt_dtype dtype;
    dv_tensor *out;
};
struct dim_reduction {
    const dv_tensor *self;
    dv_opt_ints dim;
    bool keepdim;
    dv_opt_dtype dtype;
    dv_tensor *out;
};

#define FULL(NAME, WHAT)                                                      \
    static int NAME##_any(dv_context *ctx, const struct full_reduction *a)    \
    {                                                                         \
        return reduce_dims(ctx, WHAT, a->self, a->out, (dv_ints){ NULL, 0 }); \
    }
#define DIMS(NAME, WHAT)                                                                                  \
    static int NAME##_any(dv_context *ctx, const struct dim_reduction *a)                                 \
    {                                                                                                     \
        return reduce_dims(ctx, WHAT, a->self, a->out, a->dim.has ? a->dim.value : (dv_ints){ NULL, 0 }); \
    }
FULL(sum, SUM)
DIMS(sum_dim, SUM)
FULL(mean, MEAN)
DIMS(mean_dim, MEAN)

DV_OPERATOR(sum, struct full_reduction, (self, dtype, out), .schema = "sum(Tensor self, *, ScalarType? dtype=None) -> Tensor out",
    .contract = "self[*s]:T -> out[]:if(present(dtype), dtype, accumulate(T)); " BASE_NUMBERS BASE_MAYBE_TO,
    .gradient = "self: expand(grad, self.shape)", .kernels = DV_KERNELS(DV_KERNEL(struct full_reduction, "cpu", NULL, sum_any)));
DV_OPERATOR(sum_dim_IntList, struct dim_reduction, (self, dim, keepdim, dtype, out),
    .schema = "sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor out",
    .contract =
        "self[*s]:T -> out[reduced(*s, dim, keepdim)]:if(present(dtype), dtype, accumulate(T)); " BASE_NUMBERS BASE_MAYBE_TO,
    .gradient = "self: expand(reshape(grad, sum(self, dim, True).shape), self.shape)",
    .kernels = DV_KERNELS(DV_KERNEL(struct dim_reduction, "cpu", NULL, sum_dim_any)));
DV_OPERATOR(mean, struct full_reduction, (self, dtype, out),
    .schema = "mean(Tensor self, *, ScalarType? dtype=None) -> Tensor out",
    .contract = "self[*s]:T -> out[]:if(present(dtype), dtype, T); " BASE_FLOATS BASE_MAYBE_TO,
    .gradient = "self: div(expand(grad, self.shape), self.numel)",
    .kernels = DV_KERNELS(DV_KERNEL(struct full_reduction, "cpu", NULL, mean_any)));
DV_OPERATOR(mean_dim, struct dim_reduction, (self, dim, keepdim, dtype, out),
    .schema = "mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor out",
    .contract = "self[*s]:T -> out[reduced(*s, dim, keepdim)]:if(present(dtype), dtype, T); " BASE_FLOATS BASE_MAYBE_TO,
    .gradient = "self: div(expand(reshape(grad, sum(self, dim, True).shape), self.shape), if(result.numel == 0, 1, self.numel // "
                "result.numel))",
    .kernels = DV_KERNELS(DV_KERNEL(struct dim_reduction, "cpu", NULL, mean_dim_any)));

struct amax {
    const dv_tensor *self;
    dv_ints dim;
    bool keepdim;
    dv_tensor *out;
};

static int amax_any(dv_context *ctx, const struct amax *a) { return reduce_dims(ctx, MAX, a->self, a->out, a->dim); }

/* Where several elements are the largest, they share the gradient evenly. */
DV_OPERATOR(amax, struct amax, (self, dim, keepdim, out),
    .schema = "amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor out",
    .contract = "self[*s]:T -> out[reduced(*s, dim, keepdim)]:T; " BASE_NUMBERS,
    .gradient = "self: mul(eq(self, amax(self, dim, True)), "
                "div(reshape(grad, amax(self, dim, True).shape), sum(eq(self, amax(self, dim, True)), dim, True)))",
    .kernels = DV_KERNELS(DV_KERNEL(struct amax, "cpu", NULL, amax_any)));

struct sum_to_size {
    const dv_tensor *self;
    dv_ints size;
    dv_tensor *out;
};

static int sum_to_size_any(dv_context *ctx, const struct sum_to_size *a)
{
    const int32_t rank = a->self->ndim, extra = rank - (int32_t)a->size.size;
    bool reduced[64] = { false };
    for (int32_t d = 0; d < rank; d++) {
        const int64_t want = d < extra ? 1 : a->size.data[d - extra];
        if (extra < 0 || (want != 1 && want != a->self->shape[d]))
            return dv_error(ctx, DV_ESHAPE, "size %lld cannot come from dim %d, of size %lld", (long long)want, d,
                (long long)a->self->shape[d]);
        reduced[d] = d < extra || (want == 1 && a->self->shape[d] != 1);
    }
    return reduce(ctx, SUM, a->self, a->out, reduced);
}

DV_OPERATOR(sum_to_size, struct sum_to_size, (self, size, out), .schema = "sum_to_size(Tensor self, SymInt[] size) -> Tensor out",
    .contract = "self[*s]:T -> out[*size]:T; " BASE_NUMBERS "; len(size) <= rank(self)",
    .gradient = "self: expand(grad, self.shape)", .doc = "The sum over the dims that broadcasting from this size would repeat.",
    .kernels = DV_KERNELS(DV_KERNEL(struct sum_to_size, "cpu", NULL, sum_to_size_any)));
