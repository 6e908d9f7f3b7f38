/* Operators for the tests of the torch bridge: every kind of argument, result, contract and failure. */
#include <dovetail_op.h>
#include <math.h>

/* ---- every type that the shims carry; the result is what the kernel saw, as numbers ---- */

struct everything {
    const dv_tensor *x, *maybe;
    dv_tensors list, holes;
    int64_t i;
    dv_opt_int oi;
    double f;
    dv_opt_float of;
    bool b;
    dv_opt_bool ob;
    dv_string s;
    dv_opt_string os;
    dv_ints ints;
    dv_opt_ints oints;
    dv_floats floats;
    dv_bools bools;
    dv_strings strings;
    dv_dtype dtype;
    dv_opt_dtype odtype;
    dv_device device;
    dv_opt_layout layout;
    dv_opt_memory_format format;
    dv_tensor *out;
};

static double first(const dv_tensor *t) { return t ? (double)((const float *)t->data)[0] : -1; }

static int everything(dv_context *ctx, const struct everything *a)
{
    double *o = a->out->data;
    int n = 0;
    (void)ctx;
    o[n++] = first(a->x);
    o[n++] = first(a->maybe);
    o[n++] = (double)a->list.size;
    o[n++] = a->list.size ? first(a->list.data[a->list.size - 1]) : -1;
    o[n++] = (double)a->holes.size;
    o[n++] = a->holes.size ? first(a->holes.data[0]) : -2;
    o[n++] = (double)a->i;
    o[n++] = a->oi.has ? (double)a->oi.value : -1;
    o[n++] = a->f;
    o[n++] = a->of.has ? a->of.value : -1;
    o[n++] = a->b;
    o[n++] = a->ob.has ? a->ob.value : -1;
    o[n++] = (double)a->s.size;
    o[n++] = a->os.has ? a->os.value.data[0] : -1;
    o[n++] = (double)a->ints.size;
    o[n++] = a->ints.size ? (double)a->ints.data[a->ints.size - 1] : -1;
    o[n++] = a->oints.has ? (double)a->oints.value.size : -1;
    o[n++] = a->floats.size ? a->floats.data[0] : -1;
    o[n++] = a->bools.size ? a->bools.data[a->bools.size - 1] : -1;
    o[n++] = a->strings.size ? (double)a->strings.data[a->strings.size - 1].size : -1;
    o[n++] = a->dtype.bits;
    o[n++] = a->odtype.has ? a->odtype.value.code : -1;
    o[n++] = a->device.type;
    o[n++] = a->layout.has ? a->layout.value.value : -1;
    o[n++] = a->format.has ? a->format.value.value : -1;
    return n == 25 ? DV_OK : dv_error(ctx, DV_EKERNEL, "wrong count");
}
DV_OPERATOR(everything, struct everything,
    (x, maybe, list, holes, i, oi, f, of, b, ob, s, os, ints, oints, floats, bools, strings, dtype, odtype, device, layout,
        format, out),
    .schema = "everything(Tensor x, Tensor? maybe, Tensor[] list, Tensor?[] holes, int i, int? oi, float f, float? of, bool b, "
              "bool? ob, "
              "str s, str? os, int[] ints, int[]? oints, float[] floats, bool[] bools, str[] strings, ScalarType dtype, "
              "ScalarType? odtype, Device device, Layout? layout=None, MemoryFormat? format=None) -> Tensor out",
    .contract = "x[*shape]:f32, maybe[...]:f32, list{i}[...]:f32, holes{i}[...]:f32 -> out[25]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct everything, "cpu", NULL, everything)));

/* ---- mutation ---- */

struct inc { dv_tensor *x; };
static int inc(dv_context *ctx, const struct inc *a)
{
    float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        x[i] += 1;
    return DV_OK;
}
DV_OPERATOR(inc, struct inc, (x), .schema = "inc(Tensor(a!) x) -> ()", .contract = "x[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct inc, "cpu", "f32", inc)));

struct inc_ { dv_tensor *x, *out; };
static int inc_(dv_context *ctx, const struct inc_ *a) { return inc(ctx, &(struct inc){ a->x }); }
DV_OPERATOR(inc_, struct inc_, (x, out), .schema = "inc_(Tensor(a!) x) -> Tensor(a!) out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct inc_, "cpu", "f32", inc_)));

struct inc_all { dv_mut_tensors xs; };
static int inc_all(dv_context *ctx, const struct inc_all *a)
{
    for (size_t i = 0; i < a->xs.size; i++)
        inc(ctx, &(struct inc){ a->xs.data[i] });
    return DV_OK;
}
DV_OPERATOR(inc_all, struct inc_all, (xs), .schema = "inc_all(Tensor(a!)[] xs) -> ()", .contract = "xs{i}[...]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct inc_all, "cpu", "f32", inc_all)));

/* ---- errors ---- */

struct fail_if {
    const dv_tensor *x;
    int64_t when;
    dv_string message;
    dv_opt_strings more;
    dv_tensor *out;
};
static int fail_if(dv_context *ctx, const struct fail_if *a)
{
    if (a->when)
        return dv_error(ctx, DV_EKERNEL, "the kernel says: %s", a->message.data);
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4);
    return DV_OK;
}
DV_OPERATOR(fail_if, struct fail_if, (x, when, message, more, out),
    .schema = "fail_if(Tensor x, int when, str message='no', str[]? more=None) -> Tensor out",
    .contract = "x[n m]:f32 -> out[n m]:f32; m % 2 == 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct fail_if, "cpu", "f32", fail_if)));

/* ---- broadcasting and promotion: the contract is the test, the kernel fills zeros ---- */

struct badd {
    const dv_tensor *self, *other;
    dv_tensor *out;
};
static int badd(dv_context *ctx, const struct badd *a)
{
    (void)ctx;
    memset(a->out->data, 0, (size_t)dv_numel(a->out) * a->out->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(badd, struct badd, (self, other, out), .schema = "badd(Tensor self, Tensor other) -> Tensor out",
    .contract = "self[*a]:T, other[*b]:U -> out[broadcast(*a, *b)]:promote(T, U)",
    .kernels = DV_KERNELS(DV_KERNEL(struct badd, "cpu", NULL, badd, .takes = "strided(self), strided(other)")));

/* ---- lists, sizes that are computed, other strides ---- */

struct cat {
    dv_tensors xs;
    int64_t dim;
    dv_tensor *out;
};
static int cat(dv_context *ctx, const struct cat *a)
{
    int64_t before = 1, at = 0, row = 0;
    (void)ctx;
    for (int64_t i = 0; i < a->dim; i++)
        before *= a->out->shape[i];
    if (before)
        row = dv_numel(a->out) / before;
    for (size_t k = 0; k < a->xs.size; k++) {
        const int64_t part = before ? dv_numel(a->xs.data[k]) / before : 0;
        for (int64_t i = 0; i < before; i++)
            memcpy((float *)a->out->data + i * row + at, (const float *)a->xs.data[k]->data + i * part, (size_t)part * 4);
        at += part;
    }
    return DV_OK;
}
DV_OPERATOR(cat, struct cat, (xs, dim, out), .schema = "cat(Tensor[] xs, int dim=0) -> Tensor out",
    .contract = "xs{i}[*a n{i} *b]:T -> out[*a total(n) *b]:T; rank(*a) == dim; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct cat, "cpu", "f32", cat)));

enum { LIKE_DIMS = 8 };
struct like {
    const dv_tensor *x;
    dv_tensor *out;
};
static int like(dv_context *ctx, const struct like *a)
{
    int64_t index[LIKE_DIMS] = { 0 };
    if (a->x->ndim > LIKE_DIMS)
        return dv_error(ctx, DV_ENOTSUP, "at most %d dims", LIKE_DIMS);
    for (int64_t k = 0, n = dv_numel(a->x); k < n; k++) {
        int64_t from = 0, to = 0;
        for (int32_t d = 0; d < a->x->ndim; d++)
            from += index[d] * a->x->strides[d], to += index[d] * a->out->strides[d];
        ((float *)a->out->data)[to] = ((const float *)a->x->data)[from];
        for (int32_t d = a->x->ndim - 1; d >= 0 && ++index[d] == a->x->shape[d]; d--)
            index[d] = 0;
    }
    return DV_OK;
}
DV_OPERATOR(like, struct like, (x, out), .schema = "like(Tensor x) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; strided(x); out: like(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct like, "cpu", "f32", like)));

struct halves {
    const dv_tensor *x;
    dv_tensor *low, *high;
};
static int halves(dv_context *ctx, const struct halves *a)
{
    const int64_t n = a->low->shape[0];
    (void)ctx;
    memcpy(a->low->data, a->x->data, (size_t)n * 4);
    memcpy(a->high->data, (const float *)a->x->data + n, (size_t)n * 4);
    return DV_OK;
}
DV_OPERATOR(halves, struct halves, (x, low, high), .schema = "halves(Tensor x) -> (Tensor low, Tensor high)",
    .contract = "x[2*n]:f32 -> low[n]:f32, high[n]:f32", .gradient = "x: cat([grads[0], grads[1]])",
    .kernels = DV_KERNELS(DV_KERNEL(struct halves, "cpu", "f32", halves)));

/* ---- a size that depends on data ---- */

struct nonzero {
    const dv_tensor *x;
    dv_tensor *out;
};
static int nonzero(dv_context *ctx, const struct nonzero *a)
{
    const float *x = a->x->data;
    int64_t n = 0, rows = 0;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        rows += x[i] != 0;
    const int status = dv_set_output(ctx, a->out, dv_dtype_from_key(DV_DTYPE_i64), 1, &rows);
    for (int64_t i = 0; !status && i < a->x->shape[0]; i++)
        if (x[i] != 0)
            ((int64_t *)a->out->data)[n++] = i;
    return status;
}
DV_OPERATOR(nonzero, struct nonzero, (x, out), .schema = "nonzero(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[u]:i64; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct nonzero, "cpu", "f32", nonzero)));

/* ---- results that are numbers, optional tensors, cases, host threads ---- */

struct stats {
    const dv_tensor *x;
    int64_t *n;
    double *sum;
    bool *any;
};
static int stats(dv_context *ctx, const struct stats *a)
{
    (void)ctx;
    *a->n = dv_numel(a->x);
    *a->sum = 0;
    for (int64_t i = 0; i < *a->n; i++)
        *a->sum += (double)((const float *)a->x->data)[i];
    *a->any = *a->n > 0;
    return DV_OK;
}
DV_OPERATOR(stats, struct stats, (x, n, sum, any), .schema = "stats(Tensor x) -> (int n, float sum, bool any)",
    .contract = "x[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct stats, "cpu", "f32", stats)));

struct pick {
    const dv_tensor *x, *bias;
    dv_string layout;
    dv_tensor *out;
};
static int pick(dv_context *ctx, const struct pick *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] +
            (a->bias ? ((const float *)a->bias->data)[i % a->bias->shape[0]] : 0);
    return DV_OK;
}
DV_OPERATOR(pick, struct pick, (x, bias, layout, out),
    .schema = "pick(Tensor x, Tensor? bias=None, str layout='NT') -> Tensor out",
    .contract = "bias[c]:f32; when layout == \"NT\": x[n c]:f32 -> out[n c]:f32 / \"N\": x[c]:f32 -> out[c]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick, "cpu", "f32", pick)));

struct total {
    const dv_tensor *x;
    dv_tensor *out;
};
struct total_job {
    const float *x;
    double *parts;
};
static int total_range(void *arg, int64_t begin, int64_t end)
{
    struct total_job *job = arg;
    double sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += (double)job->x[i];
    job->parts[begin / 1000] = sum;
    return DV_OK;
}
static int total(dv_context *ctx, const struct total *a)
{
    const int64_t n = dv_numel(a->x), parts = n / 1000 + 1;
    struct total_job job = { a->x->data, dv_alloc(ctx, (size_t)parts * sizeof(double), 64) };
    double sum = 0;
    if (!job.parts)
        return DV_ENOMEM;
    memset(job.parts, 0, (size_t)parts * sizeof(double));
    const int status = dv_parallel_for(ctx, 0, n, 1000, total_range, &job);
    for (int64_t i = 0; i < parts; i++)
        sum += job.parts[i];
    *(double *)a->out->data = sum;
    return status;
}
DV_OPERATOR(total, struct total, (x, out), .schema = "total(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f32", total)));

/* ---- gradients: by formula, by the decomposition, partly ---- */

struct cube {
    const dv_tensor *x;
    dv_tensor *out;
};
static int cube(dv_context *ctx, const struct cube *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double v = ((const double *)a->x->data)[i];
        ((double *)a->out->data)[i] = v * v * v;
    }
    return DV_OK;
}
DV_OPERATOR(cube, struct cube, (x, out), .schema = "cube(Tensor x) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)", .gradient = "x: grad * 3 * x * x",
    .kernels = DV_KERNELS(DV_KERNEL(struct cube, "cpu", "f64", cube, .split = 16)));

struct gated {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int gated(dv_context *ctx, const struct gated *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double y = ((const double *)a->y->data)[i];
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] / (1 + exp(-y));
    }
    return DV_OK;
}
DV_OPERATOR(gated, struct gated, (x, y, out), .schema = "gated(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:f64, y[*s]:f64 -> out[*s]:f64", .native = "mul(x, sigmoid(y))",
    .kernels = DV_KERNELS(DV_KERNEL(struct gated, "cpu", "f64", gated)));

/* ---- views: no kernel is needed ---- */

struct swapped {
    const dv_tensor *self;
    int64_t i, j;
    dv_tensor *out;
};
DV_OPERATOR(swapped, struct swapped, (self, i, j, out), .schema = "swapped(Tensor(a) self, int i, int j) -> Tensor(a) out",
    .contract = "self[*s]:T -> view(self, swap(i, j))");
struct part {
    const dv_tensor *self;
    int64_t dim, start, length;
    dv_tensor *out;
};
DV_OPERATOR(part, struct part, (self, dim, start, length, out),
    .schema = "part(Tensor(a) self, int dim, int start, int length) -> Tensor(a) out",
    .contract = "self[*s]:T -> view(self, narrow(dim, start, length))");
struct diagonal {
    const dv_tensor *self;
    dv_tensor *out;
};
DV_OPERATOR(diagonal, struct diagonal, (self, out), .schema = "diagonal(Tensor(a) self) -> Tensor(a) out",
    .contract = "self[n m]:T -> out[min(n, m)]:T view(self) strides[stride(self, 0) + stride(self, 1)]");

DV_LIBRARY(torch_ops, &dv_op_swapped, &dv_op_part, &dv_op_diagonal, &dv_op_everything, &dv_op_inc, &dv_op_inc_, &dv_op_inc_all,
    &dv_op_fail_if, &dv_op_badd, &dv_op_cat, &dv_op_like, &dv_op_halves, &dv_op_nonzero, &dv_op_stats, &dv_op_pick, &dv_op_total,
    &dv_op_cube, &dv_op_gated);
