/* py_ops.c: operators for the tests of the Python host: one for every type that a schema can have, and for every way a call can
 * go. */
#define _POSIX_C_SOURCE 200809L
#include <dovetail_op.h>
#include <time.h>

/* ---- Echoes: what arrived, as numbers ---- */

struct echo_int {
    int64_t x;
    int64_t *y;
};
static int echo_int_run(dv_context *c, const struct echo_int *a)
{
    (void)c;
    *a->y = a->x;
    return DV_OK;
}
DV_OPERATOR(echo_int, struct echo_int, (x, y), .schema = "echo_int(int x) -> int y",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_int, "cpu", NULL, echo_int_run)));

struct echo_float {
    double x;
    double *y;
};
static int echo_float_run(dv_context *c, const struct echo_float *a)
{
    (void)c;
    *a->y = a->x;
    return DV_OK;
}
DV_OPERATOR(echo_float, struct echo_float, (x, y), .schema = "echo_float(float x) -> float y",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_float, "cpu", NULL, echo_float_run)));

struct echo_bool {
    bool x;
    bool *y;
};
static int echo_bool_run(dv_context *c, const struct echo_bool *a)
{
    (void)c;
    *a->y = a->x;
    return DV_OK;
}
DV_OPERATOR(echo_bool, struct echo_bool, (x, y), .schema = "echo_bool(bool x) -> bool y",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_bool, "cpu", NULL, echo_bool_run)));

struct echo_str {
    dv_string x;
    int64_t *size, *sum;
};
static int echo_str_run(dv_context *c, const struct echo_str *a)
{
    (void)c;
    *a->size = (int64_t)a->x.size;
    *a->sum = 0;
    for (size_t i = 0; i < a->x.size; i++)
        *a->sum += (unsigned char)a->x.data[i];
    return DV_OK;
}
DV_OPERATOR(echo_str, struct echo_str, (x, size, sum), .schema = "echo_str(str x) -> (int size, int sum)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_str, "cpu", NULL, echo_str_run)));

struct echo_scalar {
    dv_scalar x;
    int64_t *kind;
    double *re, *im;
};
static int echo_scalar_run(dv_context *c, const struct echo_scalar *a)
{
    (void)c;
    *a->kind = a->x.kind;
    *a->im = 0;
    switch ((enum dv_scalar_kind)a->x.kind) {
    case DV_SCALAR_INT: *a->re = (double)a->x.as.i; break;
    case DV_SCALAR_FLOAT: *a->re = a->x.as.f; break;
    case DV_SCALAR_BOOL: *a->re = a->x.as.b; break;
    case DV_SCALAR_COMPLEX: *a->re = a->x.as.c.re, *a->im = a->x.as.c.im; break;
    }
    return DV_OK;
}
DV_OPERATOR(echo_scalar, struct echo_scalar, (x, kind, re, im),
    .schema = "echo_scalar(Scalar x) -> (int kind, float re, float im)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_scalar, "cpu", NULL, echo_scalar_run)));

struct echo_complex {
    dv_complex x;
    double *re, *im;
};
static int echo_complex_run(dv_context *c, const struct echo_complex *a)
{
    (void)c;
    *a->re = a->x.re;
    *a->im = a->x.im;
    return DV_OK;
}
DV_OPERATOR(echo_complex, struct echo_complex, (x, re, im), .schema = "echo_complex(complex x) -> (float re, float im)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_complex, "cpu", NULL, echo_complex_run)));

struct echo_dtype {
    dv_dtype x;
    int64_t *key;
};
static int echo_dtype_run(dv_context *c, const struct echo_dtype *a)
{
    (void)c;
    *a->key = dv_dtype_key(a->x);
    return DV_OK;
}
DV_OPERATOR(echo_dtype, struct echo_dtype, (x, key), .schema = "echo_dtype(ScalarType x) -> int key",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_dtype, "cpu", NULL, echo_dtype_run)));

struct echo_places {
    dv_device device;
    dv_layout layout;
    dv_memory_format format;
    int64_t *type, *id, *l, *m;
};
static int echo_places_run(dv_context *c, const struct echo_places *a)
{
    (void)c;
    *a->type = a->device.type, *a->id = a->device.id, *a->l = a->layout.value, *a->m = a->format.value;
    return DV_OK;
}
DV_OPERATOR(echo_places, struct echo_places, (device, layout, format, type, id, l, m),
    .schema = "echo_places(Device device, Layout layout, MemoryFormat format) -> (int type, int id, int l, int m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_places, "cpu", NULL, echo_places_run)));

struct echo_opt {
    dv_opt_int i;
    dv_opt_float f;
    dv_opt_bool b;
    dv_opt_string s;
    int64_t *bits;
    double *sum;
};
static int echo_opt_run(dv_context *c, const struct echo_opt *a)
{
    (void)c;
    *a->bits = a->i.has | a->f.has << 1 | a->b.has << 2 | a->s.has << 3;
    *a->sum = (a->i.has ? (double)a->i.value : 0) + (a->f.has ? a->f.value : 0) + (a->b.has && a->b.value) +
        (a->s.has ? (double)a->s.value.size : 0);
    return DV_OK;
}
DV_OPERATOR(echo_opt, struct echo_opt, (i, f, b, s, bits, sum),
    .schema = "echo_opt(int? i=None, float? f=None, bool? b=None, str? s=None) -> (int bits, float sum)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_opt, "cpu", NULL, echo_opt_run)));

struct echo_lists {
    dv_ints i;
    dv_floats f;
    dv_bools b;
    dv_strings s;
    dv_scalars z;
    int64_t *sizes;
    double *sum;
};
static int echo_lists_run(dv_context *c, const struct echo_lists *a)
{
    (void)c;
    *a->sizes = (int64_t)(a->i.size + 10 * a->f.size + 100 * a->b.size + 1000 * a->s.size + 10000 * a->z.size);
    double sum = 0;
    for (size_t k = 0; k < a->i.size; k++)
        sum += (double)a->i.data[k];
    for (size_t k = 0; k < a->f.size; k++)
        sum += a->f.data[k];
    for (size_t k = 0; k < a->b.size; k++)
        sum += a->b.data[k];
    for (size_t k = 0; k < a->s.size; k++)
        sum += (double)a->s.data[k].size;
    for (size_t k = 0; k < a->z.size; k++)
        sum += a->z.data[k].kind == DV_SCALAR_INT  ? (double)a->z.data[k].as.i
            : a->z.data[k].kind == DV_SCALAR_FLOAT ? a->z.data[k].as.f
                                                   : 0;
    *a->sum = sum;
    return DV_OK;
}
DV_OPERATOR(echo_lists, struct echo_lists, (i, f, b, s, z, sizes, sum),
    .schema = "echo_lists(int[] i, float[] f, bool[] b, str[] s, Scalar[] z) -> (int sizes, float sum)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_lists, "cpu", NULL, echo_lists_run)));

struct echo_pair {
    dv_ints x;
    int64_t *a, *b;
};
static int echo_pair_run(dv_context *c, const struct echo_pair *p)
{
    (void)c;
    *p->a = p->x.data[0];
    *p->b = p->x.data[1];
    return DV_OK;
}
DV_OPERATOR(echo_pair, struct echo_pair, (x, a, b), .schema = "echo_pair(int[2] x) -> (int a, int b)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_pair, "cpu", NULL, echo_pair_run)));

struct echo_tensors {
    dv_tensors xs;
    int64_t *n, *nones, *elements;
};
static int echo_tensors_run(dv_context *c, const struct echo_tensors *a)
{
    (void)c;
    *a->n = (int64_t)a->xs.size, *a->nones = 0, *a->elements = 0;
    for (size_t i = 0; i < a->xs.size; i++)
        if (a->xs.data[i])
            *a->elements += dv_numel(a->xs.data[i]);
        else
            ++*a->nones;
    return DV_OK;
}
DV_OPERATOR(echo_tensors, struct echo_tensors, (xs, n, nones, elements),
    .schema = "echo_tensors(Tensor?[] xs) -> (int n, int nones, int elements)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_tensors, "cpu", NULL, echo_tensors_run)));

struct echo_random {
    const dv_generator *generator;
    int64_t n;
    int64_t *seed, *offset;
};
static int echo_random_run(dv_context *c, const struct echo_random *a)
{
    uint64_t seed, offset;
    const int status = dv_random(c, a->generator, (uint64_t)a->n, &seed, &offset);
    *a->seed = (int64_t)(seed >> 1), *a->offset = (int64_t)offset;
    return status;
}
DV_OPERATOR(echo_random, struct echo_random, (generator, n, seed, offset),
    .schema = "echo_random(Generator? generator=None, int n=4) -> (int seed, int offset)",
    .kernels = DV_KERNELS(DV_KERNEL(struct echo_random, "cpu", NULL, echo_random_run)));

/* ---- Arrays ---- */

struct scale {
    const dv_tensor *x;
    double factor;
    dv_tensor *out;
};
static int scale_run(dv_context *c, const struct scale *a)
{
    (void)c;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = (float)(a->factor * ((const float *)a->x->data)[i]);
    return DV_OK;
}
static int scale_f64(dv_context *c, const struct scale *a)
{
    (void)c;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = a->factor * ((const double *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, factor, out), .schema = "scale(Tensor x, float factor=2.0) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32 f64", .doc = "x times factor.",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_run), DV_KERNEL(struct scale, "cpu", "f64", scale_f64)));

struct copy_of {
    const dv_tensor *x;
    dv_tensor *out;
};
static int copy_of_run(dv_context *c, const struct copy_of *a)
{
    (void)c;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * a->x->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(copy_of, struct copy_of, (x, out), .schema = "copy_of(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct copy_of, "cpu", NULL, copy_of_run)));

struct minmax {
    const dv_tensor *x;
    dv_tensor *lo, *hi;
};
static int minmax_run(dv_context *c, const struct minmax *a)
{
    (void)c;
    const float *x = a->x->data;
    float lo = x[0], hi = x[0];
    for (int64_t i = 1, n = dv_numel(a->x); i < n; i++)
        lo = x[i] < lo ? x[i] : lo, hi = x[i] > hi ? x[i] : hi;
    *(float *)a->lo->data = lo, *(float *)a->hi->data = hi;
    return DV_OK;
}
DV_OPERATOR(minmax, struct minmax, (x, lo, hi), .schema = "minmax(Tensor x) -> (Tensor lo, Tensor hi)",
    .contract = "x[n]:f32 -> lo[]:f32, hi[]:f32; n > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct minmax, "cpu", "f32", minmax_run)));

struct add_ {
    dv_tensor *self;
    const dv_tensor *other;
};
static int add_run(dv_context *c, const struct add_ *a)
{
    (void)c;
    for (int64_t i = 0, n = dv_numel(a->self); i < n; i++)
        ((float *)a->self->data)[i] += ((const float *)a->other->data)[i];
    return DV_OK;
}
DV_OPERATOR(add_, struct add_, (self, other), .schema = "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    .contract = "self[*s]:f32, other[*s]:f32 -> [*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct add_, "cpu", "f32", add_run)));

struct fill {
    dv_tensor *out;
    double value;
};
static int fill_run(dv_context *c, const struct fill *a)
{
    (void)c;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = (float)a->value;
    return DV_OK;
}
DV_OPERATOR(fill, struct fill, (out, value), .schema = "fill(Tensor(a!) out, float value) -> ()", .contract = "out[*s]:f32 -> ()",
    .kernels = DV_KERNELS(DV_KERNEL(struct fill, "cpu", "f32", fill_run)));

struct keyed {
    const dv_tensor *x;
    int64_t k;
    double from;
    int64_t *y;
};
static int keyed_run(dv_context *c, const struct keyed *a)
{
    (void)c;
    *a->y = a->k * dv_numel(a->x) + (int64_t)a->from;
    return DV_OK;
}
DV_OPERATOR(keyed, struct keyed, (x, k, from, y), .schema = "keyed(Tensor x, *, int k, float from=1.0) -> int y",
    .kernels = DV_KERNELS(DV_KERNEL(struct keyed, "cpu", NULL, keyed_run)));

struct optional_sum {
    const dv_tensor *x, *y;
    double *sum;
};
static int optional_sum_run(dv_context *c, const struct optional_sum *a)
{
    (void)c;
    *a->sum = (a->x ? (double)dv_numel(a->x) : -1) + (a->y ? 100 * (double)dv_numel(a->y) : 0);
    return DV_OK;
}
DV_OPERATOR(optional_sum, struct optional_sum, (x, y, sum), .schema = "optional_sum(Tensor? x, Tensor? y=None) -> float sum",
    .kernels = DV_KERNELS(DV_KERNEL(struct optional_sum, "cpu", NULL, optional_sum_run)));

struct typed {
    const dv_tensor *x;
    dv_dtype dtype;
    dv_tensor *out;
};
static int typed_run(dv_context *c, const struct typed *a)
{
    (void)c;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * a->x->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(typed, struct typed, (x, dtype, out), .schema = "typed(Tensor x, ScalarType dtype) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T", .kernels = DV_KERNELS(DV_KERNEL(struct typed, "cpu", NULL, typed_run)));

struct repeated {
    const dv_tensor *x;
    dv_ints by;
    dv_tensor *out;
};
static int repeated_run(dv_context *c, const struct repeated *a)
{
    (void)c;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = (float)a->by.size;
    return DV_OK;
}
DV_OPERATOR(repeated, struct repeated, (x, by, out), .schema = "repeated(Tensor x, int[2] by=[]) -> Tensor out",
    .contract = "x[n]:f32 -> out[n*if(len(by) > 0, by[0], 1)]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct repeated, "cpu", "f32", repeated_run)));
DV_OPERATOR(repeated_sometimes, struct repeated, (x, by, out),
    .schema = "repeated_sometimes(Tensor x, int[2] by=[]) -> Tensor out", .contract = "x[n]:f32 -> out[n*by[1]]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct repeated, "cpu", "f32", repeated_run)));

/* ---- Overloads ---- */

struct pick_int {
    int64_t x;
    int64_t *y;
};
static int pick_int_run(dv_context *c, const struct pick_int *a)
{
    (void)c;
    *a->y = 1;
    return DV_OK;
}
DV_OPERATOR(pick_int, struct pick_int, (x, y), .schema = "pick.int(int x) -> int y", .doc = "Which overload it was.",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick_int, "cpu", NULL, pick_int_run)));
struct pick_tensor {
    const dv_tensor *x;
    int64_t *y;
};
static int pick_tensor_run(dv_context *c, const struct pick_tensor *a)
{
    (void)c;
    *a->y = 2;
    return DV_OK;
}
DV_OPERATOR(pick_tensor, struct pick_tensor, (x, y), .schema = "pick.tensor(Tensor x) -> int y",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick_tensor, "cpu", NULL, pick_tensor_run)));
struct pick_two {
    const dv_tensor *x;
    int64_t k;
    int64_t *y;
};
static int pick_two_run(dv_context *c, const struct pick_two *a)
{
    (void)c;
    *a->y = 3;
    return DV_OK;
}
DV_OPERATOR(pick_two, struct pick_two, (x, k, y), .schema = "pick.two(Tensor x, int k) -> int y",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick_two, "cpu", NULL, pick_two_run)));

/* ---- Ways to go ---- */

struct wait_ms {
    const dv_tensor *x;
    int64_t ms;
    dv_tensor *out;
};
static int wait_ms_run(dv_context *c, const struct wait_ms *a)
{
    (void)c;
    struct timespec t = { a->ms / 1000, a->ms % 1000 * 1000000 };
    if (a->ms)
        nanosleep(&t, NULL);
    memset(a->out->data, 0, (size_t)dv_numel(a->out) * 4);
    return DV_OK;
}
DV_OPERATOR(wait_ms, struct wait_ms, (x, ms, out), .schema = "wait_ms(Tensor x, int ms) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct wait_ms, "cpu", "f32", wait_ms_run)));

struct fails {
    const dv_tensor *x;
    int64_t status;
    dv_tensor *out;
};
static int fails_run(dv_context *c, const struct fails *a)
{
    return a->status ? dv_error(c, (int)a->status, "asked to fail with %d", (int)a->status) : DV_OK;
}
DV_OPERATOR(fails, struct fails, (x, status, out), .schema = "fails(Tensor x, int status=-17) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct fails, "cpu", "f32", fails_run)));

struct nonzero {
    const dv_tensor *x;
    dv_tensor *out;
};
static int nonzero_run(dv_context *c, const struct nonzero *a)
{
    const float *x = a->x->data;
    int64_t n = 0, shape[1];
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        n += x[i] != 0;
    shape[0] = n;
    const int status = dv_set_output(c, a->out, dv_dtype_from_key(DV_DTYPE_i64), 1, shape);
    if (status)
        return status;
    for (int64_t i = 0, k = 0; i < a->x->shape[0]; i++)
        if (x[i] != 0)
            ((int64_t *)a->out->data)[k++] = i;
    return DV_OK;
}
DV_OPERATOR(nonzero, struct nonzero, (x, out), .schema = "nonzero(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[u]:i64; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct nonzero, "cpu", "f32", nonzero_run)));

DV_LIBRARY(py_ops, &dv_op_echo_int, &dv_op_echo_float, &dv_op_echo_bool, &dv_op_echo_str, &dv_op_echo_scalar, &dv_op_echo_complex,
    &dv_op_echo_dtype, &dv_op_echo_places, &dv_op_echo_opt, &dv_op_echo_lists, &dv_op_echo_pair, &dv_op_echo_tensors,
    &dv_op_echo_random, &dv_op_scale, &dv_op_copy_of, &dv_op_minmax, &dv_op_add_, &dv_op_fill, &dv_op_keyed, &dv_op_optional_sum,
    &dv_op_typed, &dv_op_repeated, &dv_op_repeated_sometimes, &dv_op_pick_int, &dv_op_pick_tensor, &dv_op_pick_two,
    &dv_op_wait_ms, &dv_op_fails, &dv_op_nonzero);
