/* One operator of each kind that the shipped ones lack: a view, a list as result, a size that only the kernel knows, a generator,
 * a Scalar, a written argument that is returned. */
#include <dovetail_op.h>
#include <string.h>

struct diagonal {
    const dv_tensor *x;
    dv_tensor *out;
};
DV_OPERATOR(diagonal, struct diagonal, (x, out), .schema = "diagonal(Tensor(a) x) -> Tensor(a) out",
    .contract = "x[n m] -> out[min(n, m)] view(x) strides[stride(x, 0) + stride(x, 1)]");

struct twice {
    dv_tensors xs;
    dv_mut_tensors outs;
};
static int twice(dv_context *ctx, const struct twice *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0; i < dv_numel(a->xs.data[k]); i++)
            ((double *)a->outs.data[k]->data)[i] = 2 * ((const double *)a->xs.data[k]->data)[i];
    return DV_OK;
}
DV_OPERATOR(twice, struct twice, (xs, outs), .schema = "twice(Tensor[] xs) -> Tensor[] outs",
    .contract = "xs{i}[n]:f64 -> outs{i}[n]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct twice, "cpu", "f64", twice)));

struct positive {
    const dv_tensor *x;
    dv_tensor *out;
};
static int positive(dv_context *ctx, const struct positive *a)
{
    const double *x = a->x->data;
    int64_t n = 0;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        n += x[i] > 0;
    const int status = dv_set_output(ctx, a->out, a->x->dtype, 1, &n);
    for (int64_t i = 0, k = 0; !status && i < a->x->shape[0]; i++)
        if (x[i] > 0)
            ((double *)a->out->data)[k++] = x[i];
    return status;
}
DV_OPERATOR(positive, struct positive, (x, out), .schema = "positive(Tensor x) -> Tensor out",
    .contract = "x[n]:f64 -> out[u]:f64; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct positive, "cpu", "f64", positive)));

struct noise {
    const dv_tensor *x;
    const dv_generator *generator;
    dv_tensor *out;
};
static int noise(dv_context *ctx, const struct noise *a)
{
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)dv_numel(a->x), &seed, &offset);
    for (int64_t i = 0; !status && i < dv_numel(a->x); i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] + (double)((seed + offset) % 1000 * (uint64_t)(i + 1) % 10);
    return status;
}
DV_OPERATOR(noise, struct noise, (x, generator, out), .schema = "noise(Tensor x, *, Generator? generator=None) -> Tensor out",
    .contract = "x[n]:f64 -> out[n]:f64", .tags = "nondeterministic_seeded",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f64", noise)));

struct scale {
    const dv_tensor *x;
    dv_scalar by;
    dv_tensor *out;
};
static int scale(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const double by = a->by.kind == DV_SCALAR_INT ? (double)a->by.as.i : a->by.as.f;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] * by;
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, by, out), .schema = "scale(Tensor x, Scalar by=2) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64", .gradient = "x: grad * by",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f64", scale)));

struct negate { dv_tensor *x; };
static int negate(dv_context *ctx, const struct negate *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->x->data)[i] *= -1;
    return DV_OK;
}
DV_OPERATOR(negate, struct negate, (x), .schema = "negate_(Tensor(a!) x) -> Tensor(a!)", .contract = "x[*s]:f64",
    .gradient = "x: -grad", .kernels = DV_KERNELS(DV_KERNEL(struct negate, "cpu", "f64", negate)));

DV_LIBRARY(kinds, &dv_op_diagonal, &dv_op_twice, &dv_op_positive, &dv_op_noise, &dv_op_scale, &dv_op_negate);
