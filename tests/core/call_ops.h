/* The operators that the tests of the call use, declared as an author would. One library: tc. */
#ifndef TEST_CALL_OPS_H
#define TEST_CALL_OPS_H

#ifndef DV_STATIC
#define DV_STATIC 1
#endif
#include <math.h>
#include <sched.h>
#include <stdatomic.h>

#include "dovetail.h"

/* ---- elementwise, split over threads ---- */

struct swiglu {
    const dv_tensor *gate, *up;
    dv_tensor *out;
};
static atomic_int swiglu_slices;
static int swiglu_f32(dv_context *ctx, const struct swiglu *a)
{
    const float *gate = a->gate->data, *up = a->up->data;
    float *out = a->out->data;
    (void)ctx;
    atomic_fetch_add(&swiglu_slices, 1);
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
    return DV_OK;
}
DV_OPERATOR(swiglu, struct swiglu, (gate, up, out), .schema = "swiglu(Tensor gate, Tensor up) -> Tensor out",
    .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; parallel(*s); T in f32 f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct swiglu, "cpu", "f32", swiglu_f32, .split = 4096)));

/* ---- a mutated argument, returned ---- */

struct scale_ {
    dv_tensor *x;
    double by;
};
static int scale_f32(dv_context *ctx, const struct scale_ *a)
{
    float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        x[i] *= (float)a->by;
    return isnan(a->by) ? dv_error(ctx, DV_EINVAL, "by is not a number") : DV_OK;
}
DV_OPERATOR(scale_, struct scale_, (x, by), .schema = "scale_(Tensor(a!) x, float by=2) -> Tensor(a!)",
    .contract = "x[*s]:T; T in f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct scale_, "cpu", "f32", scale_f32)));

/* two mutated arguments: with no common alias set, and with one */
struct swap { dv_tensor *x, *y; };
static int swap_f32(dv_context *ctx, const struct swap *a)
{
    float *x = a->x->data, *y = a->y->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float t = x[i];
        x[i] = y[i];
        y[i] = t;
    }
    return DV_OK;
}
DV_OPERATOR(swap_, struct swap, (x, y), .schema = "swap_(Tensor(a!) x, Tensor(b!) y) -> ()",
    .contract = "x[*s]:T, y[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct swap, "cpu", NULL, swap_f32)));
DV_OPERATOR(swap_aliased, struct swap, (x, y), .schema = "swap_aliased(Tensor(a!) x, Tensor(a!) y) -> ()",
    .contract = "x[*s]:T, y[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct swap, "cpu", NULL, swap_f32)));

/* ---- every kind of value ---- */

struct every {
    const dv_tensor *x, *bias;
    int64_t n;
    double f;
    bool b;
    dv_string s;
    dv_scalar scalar;
    dv_complex z;
    dv_dtype dtype;
    dv_device device;
    dv_ints sizes;
    dv_floats weights;
    dv_bools mask;
    dv_opt_int opt_int;
    dv_opt_float opt_float;
    dv_opt_bool opt_bool;
    dv_opt_string opt_string;
    dv_opt_scalar opt_scalar;
    dv_opt_dtype opt_dtype;
    dv_opt_ints opt_ints;
    dv_tensors list;
    dv_opt_tensors opt_list;
    const dv_generator *generator;
    dv_layout layout;
    dv_memory_format format;
    dv_scalars scalars;
    dv_strings strings;
    dv_tensor *out;
    int64_t *count;
    double *mean;
    bool *any;
};
static struct every every_seen;
static int every_run(dv_context *ctx, const struct every *a)
{
    (void)ctx;
    every_seen = *a;
    *a->count = dv_numel(a->x);
    *a->mean = 0.5;
    *a->any = true;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(float));
    return DV_OK;
}
DV_OPERATOR(every, struct every,
    (x, bias, n, f, b, s, scalar, z, dtype, device, sizes, weights, mask, opt_int, opt_float, opt_bool, opt_string, opt_scalar,
        opt_dtype, opt_ints, list, opt_list, generator, layout, format, scalars, strings, out, count, mean, any),
    .schema = "every(Tensor x, Tensor?[] list, Scalar[] scalars, str[] strings, Tensor? bias=None, int n=1, float f=2, bool "
              "b=True, str s=\"mode\", Scalar scalar=3, complex z=1j, "
              "ScalarType dtype=float, Device device=\"cpu\", int[3] sizes=4, float[] weights=[], bool[2] mask=[True, False], "
              "int? opt_int=None, float? opt_float=None, bool? opt_bool=None, str? opt_string=None, Scalar? opt_scalar=None, "
              "ScalarType? opt_dtype=None, int[2]? opt_ints=None, Tensor[]? opt_list=None, Generator? generator=None, "
              "Layout layout=strided, MemoryFormat format=contiguous_format) "
              "-> (Tensor out, int count, float mean, bool any)",
    .contract = "x[*r]:T, bias[...], list{i}[...], opt_list{i}[...] -> out[*r]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct every, "cpu", "f32", every_run)));

/* ---- lists ---- */

struct cat {
    dv_tensors xs;
    int64_t dim;
    dv_tensor *out;
};
static int cat_f32(dv_context *ctx, const struct cat *a) /* along dim 0 only */
{
    float *out = a->out->data;
    (void)ctx;
    for (size_t i = 0; i < a->xs.size; i++) {
        const int64_t n = dv_numel(a->xs.data[i]);
        memcpy(out, a->xs.data[i]->data, (size_t)n * sizeof *out);
        out += n;
    }
    return DV_OK;
}
DV_OPERATOR(cat, struct cat, (xs, dim, out), .schema = "cat(Tensor[] xs, int dim=0) -> Tensor out",
    .contract = "xs{i}[*a n{i} *b]:T -> out[*a total(n) *b]:T; rank(*a) == dim",
    .kernels = DV_KERNELS(DV_KERNEL(struct cat, "cpu", "f32", cat_f32, .when = "dim == 0")));

struct fill_all {
    dv_mut_tensors xs;
    double value;
};
static int fill_all_run(dv_context *ctx, const struct fill_all *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((float *)a->xs.data[k]->data)[i] = (float)a->value;
    return DV_OK;
}
DV_OPERATOR(fill_all, struct fill_all, (xs, value), .schema = "fill_all(Tensor(a!)[] xs, float value) -> ()",
    .contract = "xs{i}[...]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct fill_all, "cpu", NULL, fill_all_run)));

struct copy_all {
    dv_tensors xs;
    dv_mut_tensors out;
};
static int copy_all_run(dv_context *ctx, const struct copy_all *a)
{
    if (a->xs.size != a->out.size)
        return dv_error(ctx, DV_EINVAL, "%zu tensors into %zu", a->xs.size, a->out.size);
    for (size_t k = 0; k < a->xs.size; k++)
        memcpy(a->out.data[k]->data, a->xs.data[k]->data, (size_t)dv_numel(a->xs.data[k]) * sizeof(float));
    return DV_OK;
}
DV_OPERATOR(copy_all, struct copy_all, (xs, out), .schema = "copy_all(Tensor[] xs) -> Tensor[] out",
    .kernels = DV_KERNELS(DV_KERNEL(struct copy_all, "cpu", NULL, copy_all_run)));

struct scale_all {
    dv_tensors xs;
    double by;
    dv_mut_tensors out;
};
static int scale_all_run(dv_context *ctx, const struct scale_all *a)
{
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((float *)a->out.data[k]->data)[i] = ((const float *)a->xs.data[k]->data)[i] * (float)a->by;
    return a->by == 13 ? dv_error(ctx, DV_EKERNEL, "thirteen") : DV_OK;
}
DV_OPERATOR(scale_all, struct scale_all, (xs, by, out), .schema = "scale_all(Tensor[] xs, float by) -> Tensor[] out",
    .contract = "xs{i}[*s{i}]:f32 -> out{i}[*s{i}]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale_all, "cpu", "f32", scale_all_run)));

struct unbind {
    const dv_tensor *x;
    dv_mut_tensors out;
};
DV_OPERATOR(unbind, struct unbind, (x, out), .schema = "unbind(Tensor(a) x) -> Tensor(a)[] out",
    .contract = "x[...] -> out{i < size(x, 0)} view(x, select(0, i)); rank(x) > 0");

/* ---- results: of a size that depends on data, absent, views, by shape function, of unknown shape ---- */

struct nonzero {
    const dv_tensor *x;
    dv_tensor *out;
};
static int nonzero_f32(dv_context *ctx, const struct nonzero *a)
{
    const float *x = a->x->data;
    int64_t n = 0;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        n += x[i] != 0;
    const dv_dtype i64 = { 0, 64, 1 };
    if (n == 3) /* says nothing: an error */
        return DV_OK;
    const int64_t shape[2] = { n == 4 ? 1000 : n, 1 };
    const int status = dv_set_output(ctx, a->out, i64, 2, shape);
    if (status)
        return status;
    if (n == 5)
        return dv_error(ctx, DV_EKERNEL, "five is too many");
    int64_t *out = a->out->data;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        if (x[i] != 0)
            *out++ = i;
    return DV_OK;
}
DV_OPERATOR(nonzero, struct nonzero, (x, out), .schema = "nonzero(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[u 1]:i64; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct nonzero, "cpu", NULL, nonzero_f32)));

struct maybe {
    const dv_tensor *x;
    bool second;
    dv_tensor *first, *other;
};
static int maybe_run(dv_context *ctx, const struct maybe *a)
{
    (void)ctx;
    memcpy(a->first->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(float));
    if (a->other)
        memset(a->other->data, 0, (size_t)dv_numel(a->other) * sizeof(float));
    return DV_OK;
}
DV_OPERATOR(maybe, struct maybe, (x, second, first, other),
    .schema = "maybe(Tensor x, bool second=False) -> (Tensor first, Tensor other)",
    .contract = "when second: x[n]:T -> first[n]:T, other[2*n]:T / else: x[n]:T -> first[n]:T, other[0]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct maybe, "cpu", NULL, maybe_run)));

struct transposed {
    const dv_tensor *self;
    int64_t dim0, dim1;
};
DV_OPERATOR(transposed, struct transposed, (self, dim0, dim1),
    .schema = "transposed(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
    .contract = "self[*s]:T -> view(self, swap(dim0, dim1))");

struct repeat {
    const dv_tensor *x;
    int64_t times;
    dv_tensor *out;
};
static int repeat_shape(dv_context *ctx, const struct repeat *a)
{
    if (a->times < 0)
        return dv_error(ctx, DV_EINVAL, "times is negative: %lld", (long long)a->times);
    if (a->times == 99)
        return DV_OK;
    int64_t n;
    if (__builtin_mul_overflow(dv_numel(a->x), a->times, &n))
        return dv_error(ctx, DV_EINVAL, "times is too large: %lld", (long long)a->times);
    return dv_set_output(ctx, a->out, a->x->dtype, 1, &n);
}
static int repeat_f32(dv_context *ctx, const struct repeat *a)
{
    const int64_t n = dv_numel(a->x);
    if (dv_dtype_key(a->x->dtype) != DV_DTYPE_f32)
        return dv_error(ctx, DV_EDTYPE, "expected f32");
    for (int64_t i = 0; i < dv_numel(a->out); i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i % n];
    return DV_OK;
}
DV_OPERATOR(repeat, struct repeat, (x, times, out), .schema = "repeat(Tensor x, int times) -> Tensor out",
    .shape = (dv_shape_fn)(void (*)(void))repeat_shape, .kernels = DV_KERNELS(DV_KERNEL(struct repeat, "cpu", NULL, repeat_f32)));

/* A shape function of two results that sets the first and then fails, or sets neither or both. */
struct halves {
    const dv_tensor *x;
    int64_t how;
    dv_tensor *low, *high;
};
static int halves_shape(dv_context *ctx, const struct halves *a)
{
    const int64_t n = dv_numel(a->x) / 2;
    int status = a->how == 1 ? DV_OK : dv_set_output(ctx, a->low, a->x->dtype, 1, &n);
    if (!status && a->how < 1)
        status = dv_set_output(ctx, a->high, a->x->dtype, 1, &n);
    return !status && a->how == 3 ? dv_error(ctx, DV_EINVAL, "three is too many") : status;
}
static int halves_f32(dv_context *ctx, const struct halves *a)
{
    const size_t n = (size_t)dv_numel(a->low);
    if (dv_dtype_key(a->x->dtype) != DV_DTYPE_f32)
        return dv_error(ctx, DV_EDTYPE, "expected f32");
    memcpy(a->low->data, a->x->data, n * sizeof(float));
    memcpy(a->high->data, (const float *)a->x->data + n, n * sizeof(float));
    return a->how ? dv_error(ctx, DV_EINVAL, "the kernel fails with both made") : DV_OK;
}
DV_OPERATOR(halves, struct halves, (x, how, low, high), .schema = "halves(Tensor x, int how=0) -> (Tensor low, Tensor high)",
    .shape = (dv_shape_fn)(void (*)(void))halves_shape, .kernels = DV_KERNELS(DV_KERNEL(struct halves, "cpu", NULL, halves_f32)));

/* A view beside a new result, and a row that takes neither strided: the view is read, never written. */
struct column {
    const dv_tensor *self;
    dv_tensor *out, *sum;
};
static int column_f32(dv_context *ctx, const struct column *a)
{
    float sum = 0;
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->out); i++)
        sum += ((const float *)a->out->data)[i];
    *(float *)a->sum->data = sum;
    return DV_OK;
}
DV_OPERATOR(column, struct column, (self, out, sum), .schema = "column(Tensor(a) self) -> (Tensor(a) out, Tensor sum)",
    .contract = "self[m n]:f32 -> out[m]:f32 view(self) strides[n], sum[]:f32; n >= 1",
    .kernels = DV_KERNELS(DV_KERNEL(struct column, "cpu", NULL, column_f32)));

struct bare {
    const dv_tensor *x;
    dv_tensor *out;
};
static int bare_run(dv_context *ctx, const struct bare *a)
{
    if (dv_numel(a->out) != dv_numel(a->x))
        return dv_error(ctx, DV_ESHAPE, "out has another number of elements");
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(float));
    return DV_OK;
}
DV_OPERATOR(bare, struct bare, (x, out), .schema = "bare(Tensor x) -> Tensor out",
    .kernels = DV_KERNELS(DV_KERNEL(struct bare, "cpu", NULL, bare_run)));

/* ---- layouts ---- */

struct sum_rows {
    const dv_tensor *x;
    dv_tensor *out;
};
static dv_tensor sum_rows_saw;
static int sum_rows_f32(dv_context *ctx, const struct sum_rows *a)
{
    (void)ctx;
    sum_rows_saw = *a->x;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        float sum = 0;
        for (int64_t j = 0; j < a->x->shape[1]; j++)
            sum += ((const float *)a->x->data)[i * a->x->strides[0] + j * a->x->strides[1]];
        ((float *)a->out->data)[i * a->out->strides[0]] = sum;
    }
    return DV_OK;
}
#define SUM_ROWS(NAME, FACTS)                                                                \
    DV_OPERATOR(NAME, struct sum_rows, (x, out), .schema = #NAME "(Tensor x) -> Tensor out", \
        .contract = "x[m n]:T -> out[m]:T; T in f32" FACTS,                                  \
        .kernels = DV_KERNELS(DV_KERNEL(struct sum_rows, "cpu", NULL, sum_rows_f32)))
SUM_ROWS(sum_rows, "");
SUM_ROWS(sum_rows_strided, "; strided(x); strided(out)");
SUM_ROWS(sum_rows_last, "; last_contiguous(x)");
SUM_ROWS(sum_rows_aligned, "; align(x, 256)");

/* ---- errors, memory, threads ---- */

struct fail_with {
    const dv_tensor *x;
    int64_t how;
    dv_tensor *out;
};
static int fail_piece(void *arg, int64_t begin, int64_t end)
{
    (void)end;
    return dv_error((dv_context *)arg, DV_EINVAL, "piece %lld failed", (long long)begin);
}
static int alloc_piece(void *arg, int64_t begin, int64_t end)
{
    (void)begin, (void)end;
    return dv_alloc(arg, 64, 64) ? DV_OK : DV_ENOMEM;
}
static int fail_run(dv_context *ctx, const struct fail_with *a)
{
    switch (a->how) {
    case 1: return dv_error(ctx, DV_EINVAL, "how is %d", 1);
    case 2: return DV_EKERNEL; /* no message */
    case 3: return 7;          /* no status */
    case 4: dv_error(ctx, DV_EINVAL, "the first"); return dv_error(ctx, DV_EKERNEL, "the second");
    case 5: dv_error(ctx, DV_EINVAL, "an error that is not returned"); return DV_OK;
    case 6: return dv_parallel_for(ctx, 0, 1000, 10, fail_piece, ctx);
    case 7: return dv_alloc(ctx, SIZE_MAX - 8, 64) ? DV_OK : DV_ENOMEM;
    case 8: return dv_alloc(ctx, 8, 3) ? DV_OK : DV_EINVAL;
    case 9: return dv_object(ctx, "layer.0") ? DV_OK : DV_ENOENT;
    case 10: {
        const int64_t n = 1;
        return dv_set_output(ctx, a->out, a->out->dtype, 1, &n);
    }
    case 11: return -999;
    case 12: return dv_parallel_for(ctx, 0, 1000, 10, alloc_piece, ctx);
    case 13: {
        const int status = dv_parallel_for(ctx, 0, 1, 1, fail_piece, ctx);
        return dv_alloc(ctx, 64, 64) ? status : DV_ENOMEM; /* the loop has ended */
    }
    default: break;
    }
    memset(a->out->data, 0, (size_t)dv_numel(a->out) * sizeof(float));
    return DV_OK;
}
DV_OPERATOR(fail_with, struct fail_with, (x, how, out), .schema = "fail_with(Tensor x, int how) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32; how < 100",
    .kernels = DV_KERNELS(DV_KERNEL(struct fail_with, "cpu", NULL, fail_run)));

/* Each piece fills its memory, and finds only that there afterwards. how: 0; 1 with a loop in each piece; 2 with pieces that
 * fail; 3 with more memory than there is; 4 and 5 are 0 and 3 on a runtime without parallel_scratch. out: 1 where a piece has
 * been. */
enum { SCRATCH = 4096 };
struct scratched {
    const dv_tensor *x;
    int64_t how;
    dv_tensor *out;
};
struct scratch_loop {
    dv_context *ctx;
    const struct scratched *a;
};
static atomic_int scratch_wrong;
static void use_scratch(void *scratch, int64_t mark)
{
    unsigned char *const at = scratch;
    memset(at, (int)mark & 0xff, SCRATCH);
    sched_yield();
    for (int64_t i = 0; i < SCRATCH; i++)
        if ((uintptr_t)at % 64 || at[i] != (unsigned char)mark)
            atomic_fetch_add(&scratch_wrong, 1);
}
static int inner_scratch(void *arg, int64_t begin, int64_t end, void *scratch)
{
    (void)arg, (void)end;
    use_scratch(scratch, begin + 100);
    return DV_OK;
}
static int scratch_piece(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct scratch_loop *l = arg;
    use_scratch(scratch, begin);
    if (l->a->how == 1) {
        memset(scratch, 7, SCRATCH);
        const int status = dv_parallel_scratch(l->ctx, 0, 10, 1, SCRATCH, inner_scratch, NULL);
        if (status || ((unsigned char *)scratch)[SCRATCH - 1] != 7)
            return status ? status : DV_EKERNEL;
    }
    if (l->a->how == 2 && begin > 20)
        return dv_error(l->ctx, DV_EINVAL, "a piece with memory failed");
    for (int64_t i = begin; i < end; i++)
        ((float *)l->a->out->data)[i] = 1;
    return DV_OK;
}
static int scratched_f32(dv_context *ctx, const struct scratched *a)
{
    struct scratch_loop l = { ctx, a };
    const dv_services *const now = ctx->services;
    dv_services older = *now;
    older.size = offsetof(dv_services, parallel_scratch);
    older.parallel_scratch = NULL;
    ctx->services = a->how > 3 ? &older : now;
    const int status = dv_parallel_scratch(
        ctx, 0, dv_numel(a->out), 3, a->how == 3 || a->how == 5 ? SIZE_MAX - 8 : SCRATCH, scratch_piece, &l);
    ctx->services = now;
    return status;
}
DV_OPERATOR(scratched, struct scratched, (x, how, out), .schema = "scratched(Tensor x, int how) -> Tensor out",
    .contract = "x[n]:T -> out[n]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scratched, "cpu", NULL, scratched_f32)));

/* Each slice fails when it begins at `at`, and checks its workspace and origin. */
struct slices {
    const dv_tensor *x;
    int64_t at;
    dv_tensor *out;
};
static atomic_int slices_run, slices_wrong;
static int slices_f32(dv_context *ctx, const struct slices *a)
{
    const int64_t origin = ctx->origin ? ctx->origin[0] : -1;
    const float *x = a->x->data;
    float *out = a->out->data, *w = ctx->workspace;
    atomic_fetch_add(&slices_run, 1);
    if (ctx->workspace_size != 4 * 1024 || (uintptr_t)w % 64 || !ctx->origin || (int)x[0] != (int)origin || origin % 512 ||
        a->x->ndim != 1)
        atomic_fetch_add(&slices_wrong, 1);
    if (a->at >= 0 && origin == a->at)
        return dv_error(ctx, DV_EINVAL, "slice %lld failed", (long long)origin);
    float *mine = dv_alloc(ctx, 1024 * sizeof *mine, 32);
    if (!mine)
        return DV_ENOMEM;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        w[i] = x[i];
        mine[i] = w[i] + 1;
    }
    memcpy(out, mine, (size_t)dv_numel(a->x) * sizeof *out);
    return DV_OK;
}
DV_OPERATOR(slices, struct slices, (x, at, out), .schema = "slices(Tensor x, int at=-1) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; parallel(*s); workspace = 4*1024; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct slices, "cpu", NULL, slices_f32, .split = 512)));

/* Rows of a matrix that are named apart, and a weight that every slice has whole. */
struct rows {
    const dv_tensor *x, *weight;
    dv_tensor *out;
};
static atomic_int rows_run, rows_wrong;
static int rows_f32(dv_context *ctx, const struct rows *a)
{
    const int64_t b = a->x->shape[0], h = a->x->shape[1], d = a->x->shape[2];
    atomic_fetch_add(&rows_run, 1);
    if (a->weight->shape[0] != d || (ctx->origin && ctx->origin_ndim != 2))
        atomic_fetch_add(&rows_wrong, 1);
    for (int64_t i = 0; i < b * h * d; i++) {
        const int64_t row = i / d, b0 = (ctx->origin ? ctx->origin[0] : 0) + row / h,
                      h0 = (ctx->origin ? ctx->origin[1] : 0) + row % h;
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * ((const float *)a->weight->data)[i % d] +
            (float)(b0 * 1000 + h0);
    }
    return DV_OK;
}
DV_OPERATOR(rows, struct rows, (x, weight, out), .schema = "rows(Tensor x, Tensor weight) -> Tensor out",
    .contract = "x[b h d]:T, weight[d]:T -> out[b h d]:T; parallel(b, h); T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct rows, "cpu", NULL, rows_f32, .split = 3)));

/* Calls swiglu, from the outside and from the inside of a loop. */
struct outer {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int outer_run(dv_context *ctx, const struct outer *a)
{
    struct swiglu inner = { a->x, a->y, a->out };
    return DV_CALL(ctx, "tc::swiglu", struct swiglu, (gate, up, out), &inner);
}
DV_OPERATOR(outer, struct outer, (x, y, out),
    .schema = "outer(Tensor x, Tensor y) -> Tensor out", /* its own contract sees nothing wrong: swiglu's does */
    .contract = "x[*s]:T, y[*r]:U -> out[*s]:T", .kernels = DV_KERNELS(DV_KERNEL(struct outer, "cpu", NULL, outer_run)));

struct noise {
    const dv_tensor *like;
    const dv_generator *generator;
    dv_tensor *out;
};
static int noise_run(dv_context *ctx, const struct noise *a)
{
    uint64_t seed, offset;
    const int64_t n = dv_numel(a->out);
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    if (status)
        return status;
    for (int64_t i = 0; i < n; i++) /* not Philox, but all of it depends on seed, offset and i */
        ((uint64_t *)a->out->data)[i] = (seed ^ (offset + (uint64_t)i)) * 0x9e3779b97f4a7c15u;
    return DV_OK;
}
DV_OPERATOR(noise, struct noise, (like, generator, out),
    .schema = "noise(Tensor like, *, Generator? generator=None) -> Tensor out",
    .contract = "like[*s]:T -> out[*s]:u64; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", NULL, noise_run)));
DV_OPERATOR(noise_split, struct noise, (like, generator, out),
    .schema = "noise_split(Tensor like, *, Generator? generator=None) -> Tensor out",
    .contract = "like[*s]:T -> out[*s]:u64; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", NULL, noise_run, .split = 64)));

/* ---- rows to choose from ---- */

struct pick {
    const dv_tensor *x;
    int64_t k;
    dv_tensor *out;
};
static const char *picked;
static void *picked_stream;
#define PICK(NAME)                                         \
    static int NAME(dv_context *ctx, const struct pick *a) \
    {                                                      \
        picked = #NAME;                                    \
        picked_stream = ctx->stream;                       \
        memset(a->out->data, 0, (size_t)dv_numel(a->out)); \
        return DV_OK;                                      \
    }
#if defined(__aarch64__)
#define PICK_ISA "pick_neon" /* what is taken where the processor has more than the base instructions */
#else
#define PICK_ISA "pick_avx2"
#endif
PICK(pick_unknown)
PICK(pick_neon)
PICK(pick_f32_big)
PICK(pick_avx2)
PICK(pick_f32)
PICK(pick_i64)
PICK(pick_cuda)
DV_OPERATOR(pick, struct pick, (x, k, out), .schema = "pick(Tensor x, int k=1) -> Tensor out",
    .contract = "x[n]:T -> out[n]:u8; T in f32 f64 i64 i32",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick, "cpu", "f32", pick_unknown, .isa = "quantum"),
        DV_KERNEL(struct pick, "cpu", "f32", pick_neon, .isa = "neon"),
        DV_KERNEL(struct pick, "cpu", "f32", pick_f32_big, .when = "n % 8 == 0 and k > 3"),
        DV_KERNEL(struct pick, "cpu", "f32", pick_avx2, .isa = "avx2"), DV_KERNEL(struct pick, "cpu", "f32 f64", pick_f32),
        DV_KERNEL(struct pick, "cpu", "i64", pick_i64), DV_KERNEL(struct pick, "cuda", "f32", pick_cuda)));

/* ---- decompositions ---- */

struct unary {
    const dv_tensor *x;
    dv_tensor *out;
};
static int twice_f32(dv_context *ctx, const struct unary *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * 2;
    return DV_OK;
}
static int plus_one_f32(dv_context *ctx, const struct unary *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + 1;
    return DV_OK;
}
#define UNARY "x[*s]:T -> out[*s]:T; T in f32"
DV_OPERATOR(twice, struct unary, (x, out), .schema = "twice(Tensor x) -> Tensor out", .contract = UNARY,
    .kernels = DV_KERNELS(DV_KERNEL(struct unary, "cpu", "f32", twice_f32)));
DV_OPERATOR(plus_one, struct unary, (x, out), .schema = "plus_one(Tensor x) -> Tensor out", .contract = UNARY,
    .kernels = DV_KERNELS(DV_KERNEL(struct unary, "cpu", "f32", plus_one_f32)));
DV_OPERATOR(pairs, struct maybe, (x, second, first, other),
    .schema = "pairs(Tensor x, bool second=False) -> (Tensor first, Tensor other)",
    .contract = "x[n]:T -> first[n]:T, other[n]:T; T in f32", .native = "(twice(x), if(second, plus_one(twice(x)), x))");
static int composed_f32(dv_context *ctx, const struct unary *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = -1; /* tells the two apart */
    return DV_OK;
}
DV_OPERATOR(composed, struct unary, (x, out), .schema = "composed(Tensor x) -> Tensor out", .contract = UNARY,
    .native = "plus_one(twice(x))", .kernels = DV_KERNELS(DV_KERNEL(struct unary, "cpu", "f32", composed_f32)));
DV_OPERATOR(wrong_native, struct repeat, (x, times, out), .schema = "wrong_native(Tensor x, int times=2) -> Tensor out",
    .contract = "x[n]:T -> out[n*times]:T; T in f32", .native = "twice(x)");
DV_OPERATOR(unsaid, struct unary, (x, out), .schema = "unsaid(Tensor x) -> Tensor out", .native = "twice(x)"); /* no contract */
struct double_ { dv_tensor *x; };
DV_OPERATOR(double_, struct double_, (x), .schema = "double_(Tensor(a!) x) -> Tensor(a!)", .contract = "x[*s]:T; T in f32",
    .native = "twice(x)");

/* int[1] says only that one int will do */
struct count {
    const dv_tensor *x;
    dv_ints dim;
    dv_tensor *out;
};
static int count_f32(dv_context *ctx, const struct count *a)
{
    (void)ctx;
    *(float *)a->out->data = (float)a->dim.size;
    return DV_OK;
}
DV_OPERATOR(count, struct count, (x, dim, out), .schema = "count(Tensor x, int[1] dim=[]) -> Tensor out",
    .contract = "x[...]:T -> out[]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct count, "cpu", "f32", count_f32)));

#define CALL_OPS                                                                                                             \
    &dv_op_swiglu, &dv_op_scale_, &dv_op_swap_, &dv_op_swap_aliased, &dv_op_every, &dv_op_cat, &dv_op_fill_all,              \
        &dv_op_scale_all, &dv_op_copy_all, &dv_op_nonzero, &dv_op_maybe, &dv_op_transposed, &dv_op_repeat, &dv_op_halves,    \
        &dv_op_column, &dv_op_bare, &dv_op_sum_rows, &dv_op_sum_rows_strided, &dv_op_sum_rows_last, &dv_op_sum_rows_aligned, \
        &dv_op_fail_with, &dv_op_scratched, &dv_op_slices, &dv_op_rows, &dv_op_outer, &dv_op_noise, &dv_op_noise_split,      \
        &dv_op_pick, &dv_op_twice, &dv_op_plus_one, &dv_op_pairs, &dv_op_composed, &dv_op_wrong_native, &dv_op_unsaid,       \
        &dv_op_double_, &dv_op_count, &dv_op_unbind
DV_LIBRARY(tc, CALL_OPS);

/* ---- helpers ---- */

static dv_library *tc;
static inline int load_tc(void **state)
{
    (void)state;
    if (!dv_load_static(&dv_library_tc, &tc))
        return 0;
    fprintf(stderr, "%s\n", dv_last_error());
    return 1;
}
static inline int unload_tc(void **state)
{
    (void)state;
    dv_library_free(tc);
    return 0;
}
static inline dv_operator *find(const char *name)
{
    static char full[128];
    dv_operator *op;
    snprintf(full, sizeof full, "tc::%s", name);
    if (dv_find(full, &op))
        fail_msg("%s", dv_last_error());
    dv_operator_unref(op); /* the library keeps it */
    return op;
}
static inline dv_tensor *floats(int32_t ndim, const int64_t *shape, float first, float step)
{
    dv_tensor *t;
    if (dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f32), ndim, shape, &t))
        fail_msg("%s", dv_last_error());
    for (int64_t i = 0; i < dv_numel(t); i++)
        ((float *)t->data)[i] = first + step * (float)i;
    return t;
}
static inline dv_tensor *tensor_of(const dv_value *v) { return (dv_tensor *)(uintptr_t)v->as.tensor; }
static inline float at(const dv_tensor *t, int64_t i) { return ((const float *)t->data)[i]; }
#define CALL_OK(...)                         \
    do {                                     \
        if (__VA_ARGS__)                     \
            fail_msg("%s", dv_last_error()); \
    } while (0)
#define CALL_FAILS(status, fragment, ...)                                                                                      \
    do {                                                                                                                       \
        dv_clear_error();                                                                                                      \
        const int got = __VA_ARGS__;                                                                                           \
        if (got != (status) || !strstr(dv_last_error(), fragment))                                                             \
            fail_msg(                                                                                                          \
                "expected %s and '%s', found %s: %s", dv_status_name(status), fragment, dv_status_name(got), dv_last_error()); \
    } while (0)

#endif
