/* Operators with gradients of every kind. What each computes is one line of ops in test_autograd.py. */
#include <dovetail_op.h>
#include <math.h>

static int64_t size(const dv_tensor *t) { return dv_numel(t); }
static const double *in(const dv_tensor *t) { return t->data; }
static double *out(dv_tensor *t) { return t->data; }

/* clang-format off */
#define ROWS(name, T) DV_KERNELS(DV_KERNEL(T, "cpu", NULL, name))
/* clang-format on */
#define EACH(t) for (int64_t i = 0, n = size(t); i < n; i++)

struct one {
    const dv_tensor *x;
    dv_tensor *out;
};
struct two {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
struct in_place {
    dv_tensor *y;
    const dv_tensor *x;
    double k;
};
struct returned {
    dv_tensor *y;
    const dv_tensor *x;
    double k;
    dv_tensor *out;
};

static int times(dv_context *ctx, const struct two *a)
{
    (void)ctx;
    EACH(a->x) out(a->out)[i] = in(a->x)[i] * in(a->y)[i];
    return DV_OK;
}
static int cosine(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    EACH(a->x) out(a->out)[i] = cos(in(a->x)[i]);
    return DV_OK;
}
static int add_times(dv_context *ctx, const struct in_place *a)
{
    (void)ctx;
    EACH(a->x) out(a->y)[i] += a->k * in(a->x)[i];
    return DV_OK;
}
static int add_returned(dv_context *ctx, const struct returned *a)
{
    return add_times(ctx, &(struct in_place){ a->y, a->x, a->k });
}

#define SAME_TWO "x[*s]:f64, y[*s]:f64 -> out[*s]:f64; parallel(*s)"

DV_OPERATOR(times, struct two, (x, y, out), .schema = "times(Tensor x, Tensor y) -> Tensor out", .contract = SAME_TWO,
    .gradient = "x: grad * y; y: grad * x", .kernels = ROWS(times, struct two));
DV_OPERATOR(times_declared, struct two, (x, y, out), .schema = "times_declared(Tensor x, Tensor y) -> Tensor out",
    .contract = SAME_TWO, .gradient = "x: grad * y; y: grad * x", .tangent = "result: x_t * y + x * y_t",
    .kernels = ROWS(times, struct two));
DV_OPERATOR(times_native, struct two, (x, y, out), .schema = "times_native(Tensor x, Tensor y) -> Tensor out",
    .contract = SAME_TWO, .native = "x * y", .kernels = ROWS(times, struct two));
DV_OPERATOR(times_left, struct two, (x, y, out), .schema = "times_left(Tensor x, Tensor y) -> Tensor out", .contract = SAME_TWO,
    .gradient = "x: grad * y; y: non_differentiable", .kernels = ROWS(times, struct two));
DV_OPERATOR(times_bare, struct two, (x, y, out), .schema = "times_bare(Tensor x, Tensor y) -> Tensor out", .contract = SAME_TWO,
    .kernels = ROWS(times, struct two));
DV_OPERATOR(cosine, struct one, (x, out), .schema = "cosine(Tensor x) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)", .gradient = "x: times(-grad, sin(x))",
    .kernels = ROWS(cosine, struct one));

/* Writes: not returned; returned; an argument beside it that only the result depends on. */
DV_OPERATOR(add_, struct in_place, (y, x, k), .schema = "add_(Tensor(a!) y, Tensor x, float k=2.0) -> ()",
    .contract = "y[*s]:f64, x[*s]:f64", .gradient = "y: grad; x: grad * k", .kernels = ROWS(add_times, struct in_place));
DV_OPERATOR(add_back_, struct returned, (y, x, k, out),
    .schema = "add_back_(Tensor(a!) y, Tensor x, *, float k=2.0) -> Tensor(a!) out",
    .contract = "y[*s]:f64, x[*s]:f64 -> out[*s]:f64", .gradient = "y: grad; x: grad * k",
    .kernels = ROWS(add_returned, struct returned));
DV_OPERATOR(add_bare_, struct in_place, (y, x, k), .schema = "add_bare_(Tensor(a!) y, Tensor x, float k=2.0) -> ()",
    .contract = "y[*s]:f64, x[*s]:f64", .kernels = ROWS(add_times, struct in_place));
static int exp_into(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    EACH(a->x) out(a->out)[i] = exp(in(a->x)[i]);
    return DV_OK;
}
DV_OPERATOR(exp_into, struct one, (x, out), .schema = "exp_into(Tensor x, Tensor(a!) out) -> ()",
    .contract = "x[*s]:f64, out[*s]:f64", .gradient = "x: grad * out; out: zeros_like(out)",
    .kernels = ROWS(exp_into, struct one));

/* Lists, an optional tensor, keyword-only arguments, several results of which one has no gradient and one is of integers. */
struct mixed {
    dv_tensors xs;
    const dv_tensor *w;
    double k;
    dv_tensor *sum, *product, *count, *least;
};
static int mixed(dv_context *ctx, const struct mixed *a)
{
    (void)ctx;
    EACH(a->sum)
    {
        const double x = in(a->xs.data[0])[i], y = in(a->xs.data[1])[i], w = a->w ? in(a->w)[i] : 1;
        out(a->sum)[i] = a->k * (x + y) * w;
        out(a->product)[i] = x * y;
        ((int64_t *)a->count->data)[i] = (int64_t)(x > 0) + (y > 0);
        out(a->least)[i] = x < y ? x : y;
    }
    return DV_OK;
}
DV_OPERATOR(mixed, struct mixed, (xs, w, k, sum, product, count, least),
    .schema = "mixed(Tensor[] xs, Tensor? w=None, *, float k=2.0) -> (Tensor sum, Tensor product, Tensor count, Tensor least)",
    .contract = "xs{i}[n]:f64, w[n]:f64 -> sum[n]:f64, product[n]:f64, count[n]:i64, least[n]:f64; len(xs) == 2",
    .gradient = "xs: [if(present(w), grads[0] * w, grads[0]) * k + grads[1] * xs[1], if(present(w), grads[0] * w, grads[0]) * k "
                "+ grads[1] * xs[0]]; "
                "w: grads[0] * (xs[0] + xs[1]) * k",
    .kernels = ROWS(mixed, struct mixed));

/* A size that torch gives as a symbol, and a shape of which only the sizes are kept. */
struct spread {
    const dv_tensor *x;
    int64_t n;
    dv_tensor *out;
};
static int spread(dv_context *ctx, const struct spread *a)
{
    (void)ctx;
    EACH(a->out) out(a->out)[i] = in(a->x)[i / a->n];
    return DV_OK;
}
DV_OPERATOR(spread, struct spread, (x, n, out), .schema = "spread(Tensor x, SymInt n) -> Tensor out",
    .contract = "x[m]:f64 -> out[m n]:f64", .gradient = "x: sum(grad, [1])", .kernels = ROWS(spread, struct spread));

DV_LIBRARY(grad_ops, &dv_op_times, &dv_op_times_declared, &dv_op_times_native, &dv_op_times_left, &dv_op_times_bare,
    &dv_op_cosine, &dv_op_add_, &dv_op_add_back_, &dv_op_add_bare_, &dv_op_exp_into, &dv_op_mixed, &dv_op_spread);
