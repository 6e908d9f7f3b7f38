"""Operators for the tests of this folder."""
import pytest

import dovetail

OPERATORS = r"""
#include <dovetail_op.h>
struct scale { dv_tensor *x; double by; };
static int scale(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->x->data)[i] *= a->by;
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, by), .schema = "scale_(Tensor(a!) x, float by) -> Tensor(a!)", .contract = "x[n]:f64",
    .gradient = "x: grad * by", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f64", scale)));
DV_OPERATOR(scale_only, struct scale, (x, by), .schema = "scale_only_(Tensor(a!) x, float by) -> ()", .contract = "x[n]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f64", scale)));
struct twice { const dv_tensor *x; dv_tensor *out; };
static int twice(dv_context *ctx, const struct twice *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->out->data)[i] = 2 * ((const double *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(twice, struct twice, (x, out), .schema = "twice(Tensor x) -> Tensor out", .contract = "x[n]:f64 -> out[n]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct twice, "cpu", "f64", twice)));
struct added { const dv_tensor *x; dv_tensors ys; dv_mut_tensors outs; };
static int added(dv_context *ctx, const struct added *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->outs.size; k++)
        for (int64_t i = 0; i < dv_numel(a->x); i++)
            ((double *)a->outs.data[k]->data)[i] = ((const double *)a->x->data)[i] + ((const double *)a->ys.data[k]->data)[i];
    return DV_OK;
}
DV_OPERATOR(added, struct added, (x, ys, outs), .schema = "added(Tensor x, Tensor[] ys) -> Tensor[] outs",
    .contract = "x[*s]:f64, ys{i}[*s]:f64 -> outs{i}[*s]:f64; len(ys) == 2", .gradient = "x: grad[0] + grad[1]; ys: grad",
    .kernels = DV_KERNELS(DV_KERNEL(struct added, "cpu", "f64", added)));
struct diagonal { const dv_tensor *x; dv_tensor *out; };
DV_OPERATOR(diagonal, struct diagonal, (x, out), .schema = "diagonal(Tensor(a) x) -> Tensor(a) out",
    .contract = "x[n m]:f64 -> out[min(n, m)]:f64 view(x) strides[stride(x, 0) + stride(x, 1)]");
struct unbind { const dv_tensor *x; dv_mut_tensors out; };
DV_OPERATOR(unbind, struct unbind, (x, out), .schema = "unbind(Tensor(a) x) -> Tensor(a)[] out",
    .contract = "x[n m]:f64 -> out{i < n}[m]:f64 view(x) strides[stride(x, 1)] offset(i * stride(x, 0))");
struct mask { const dv_tensor *x; dv_tensor *out; };
static int mask(dv_context *ctx, const struct mask *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((bool *)a->out->data)[i] = ((const double *)a->x->data)[i] > 0;
    return DV_OK;
}
DV_OPERATOR(mask, struct mask, (x, out), .schema = "mask(Tensor x) -> Tensor out", .contract = "x[*s]:f64 -> out[*s]:bool",
    .kernels = DV_KERNELS(DV_KERNEL(struct mask, "cpu", "f64", mask)));
static int counted(dv_context *ctx, const struct mask *a)
{
    static double calls;
    (void)ctx;
    *(double *)a->out->data = *(const double *)a->x->data + ++calls;
    return DV_OK;
}
DV_OPERATOR(counted, struct mask, (x, out), .schema = "counted(Tensor x) -> Tensor out", .contract = "x[]:f64 -> out[]:f64",
    .tags = "nondeterministic_seeded", .kernels = DV_KERNELS(DV_KERNEL(struct mask, "cpu", "f64", counted)));
struct drawn { const dv_tensor *x; const dv_generator *generator; dv_tensor *out; };
static int drawn(dv_context *ctx, const struct drawn *a)
{
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, 1, &seed, &offset);
    *(double *)a->out->data = *(const double *)a->x->data + (double)(seed % 1000);
    return status;
}
DV_OPERATOR(drawn, struct drawn, (x, generator, out), .schema = "drawn(Tensor x, *, Generator? generator=None) -> Tensor out",
    .contract = "x[1]:f64 -> out[1]:f64", .tags = "nondeterministic_seeded", .kernels = DV_KERNELS(DV_KERNEL(struct drawn, "cpu", "f64", drawn)));
struct total { const dv_tensor *x; dv_tensor *out; };
static int total(dv_context *ctx, const struct total *a)
{
    double sum = 0;
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        sum += ((const double *)a->x->data)[i];
    *(double *)a->out->data = sum;
    return DV_OK;
}
DV_OPERATOR(total, struct total, (x, out), .schema = "total(Tensor x) -> Tensor out", .contract = "x[n]:f64 -> out[]:f64",
    .gradient = "x: base::expand(grad, x.shape)", .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f64", total)));
static int fails(dv_context *ctx, const struct total *a)
{
    const int status = total(ctx, a);
    const double sum = *(double *)a->out->data;
    return sum < 0 ? dv_error(ctx, DV_EINVAL, "the sum is %g, which is less than 0", sum) : status;
}
DV_OPERATOR(fails, struct total, (x, out), .schema = "fails(Tensor x) -> Tensor out", .contract = "x[n]:f64 -> out[]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f64", fails)));
struct sum_of { dv_tensors ys; dv_tensor *out; };
DV_OPERATOR(sum_of, struct sum_of, (ys, out), .schema = "sum_of(Tensor[] ys) -> Tensor out", .contract = "ys{i}[*s]:f64 -> out[*s]:f64");
struct cast { const dv_tensor *x; dv_dtype to; dv_tensor *out; };
DV_OPERATOR(cast, struct cast, (x, to, out), .schema = "cast(Tensor x, ScalarType to) -> Tensor out", .contract = "x[*s] -> out[*s]:to",
    .native = "base::to.dtype(x, to)");
struct adamw { dv_tensor *param, *mean, *square; const dv_tensor *grad, *step; double lr; };
static int adamw(dv_context *ctx, const struct adamw *a)
{
    double *param = a->param->data, *mean = a->mean->data, *square = a->square->data, beta1 = 1, beta2 = 1;
    const double *grad = a->grad->data;
    (void)ctx;
    for (double t = *(const double *)a->step->data; t > 0; t--)
        beta1 *= 0.9, beta2 *= 0.999;
    for (int64_t i = 0, n = dv_numel(a->param); i < n; i++) {
        mean[i] = 0.9 * mean[i] + 0.1 * grad[i];
        square[i] = 0.999 * square[i] + 0.001 * grad[i] * grad[i];
        param[i] -= a->lr * (0.01 * param[i] + mean[i] / (1 - beta1) / (__builtin_sqrt(square[i] / (1 - beta2)) + 1e-8));
    }
    return DV_OK;
}
DV_OPERATOR(adamw, struct adamw, (param, mean, square, grad, step, lr),
    .schema = "adamw_(Tensor(a!) param, Tensor(b!) mean, Tensor(c!) square, Tensor grad, Tensor step, *, float lr=0.1) -> ()",
    .contract = "param[*s]:f64, mean[*s]:f64, square[*s]:f64, grad[*s]:f64, step[]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct adamw, "cpu", "f64", adamw)));
struct described { const dv_tensor *x; dv_ints dims; dv_string word; dv_tensor *out; };
static int described(dv_context *ctx, const struct described *a)
{
    int64_t *out = a->out->data;
    (void)ctx;
    out[0] = a->dims.data[a->dims.size - 1] == 1 ? a->x->shape[1] : a->x->shape[0], out[1] = (int64_t)a->word.size;
    return DV_OK;
}
DV_OPERATOR(described, struct described, (x, dims, word, out), .schema = "described(Tensor x, int[] dims, str word) -> Tensor out",
    .contract = "x[m n], dims[2] -> out[2]:i64", .kernels = DV_KERNELS(DV_KERNEL(struct described, "cpu", NULL, described)));
struct typed { const dv_tensor *x; dv_dtype to; dv_layout layout; dv_memory_format format; dv_tensor *out; };
static int typed(dv_context *ctx, const struct typed *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        dv_put_f64(a->out->data, i, dv_dtype_key(a->to), 2 * ((const double *)a->x->data)[i]);
    return DV_OK;
}
DV_OPERATOR(typed, struct typed, (x, to, layout, format, out),
    .schema = "typed(Tensor x, *, ScalarType to=float32, Layout layout=strided, MemoryFormat format=contiguous_format) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:to; to in f32 f64", .gradient = "x: grad * 2",
    .kernels = DV_KERNELS(DV_KERNEL(struct typed, "cpu", NULL, typed)));
DV_LIBRARY(msops, &dv_op_described, &dv_op_typed, &dv_op_fails, &dv_op_sum_of, &dv_op_adamw, &dv_op_unbind, &dv_op_mask, &dv_op_counted, &dv_op_drawn, &dv_op_total, &dv_op_cast, &dv_op_diagonal, &dv_op_scale, &dv_op_scale_only, &dv_op_twice, &dv_op_added);
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """MindSpore writes reports on graphs that fail into the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("msops")
    (folder / "msops.c").write_text(OPERATORS)
    return dovetail.load(folder / "msops.c")
