/* layer_norm.c: (x - mean) / sqrt(variance + eps) * weight + bias over the last dim. */
#include "../lines.h"

struct layer_norm {
    const dv_tensor *x, *weight, *bias;
    double eps;
    dv_tensor *out;
};

static int layer_norm_reference(dv_context *ctx, const struct layer_norm *a)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1);
    double *const x = dv_alloc(ctx, (size_t)(3 * n + 1) * sizeof(double), 64), *const weight = x + n, *const bias = weight + n;
    if (!x)
        return DV_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        weight[i] = 1, bias[i] = 0;
    if (a->weight)
        load(weight, a->weight, 0, n);
    if (a->bias)
        load(bias, a->bias, 0, n);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, more = 0, squares = 0;
        load(x, a->x, r * n, n);
        for (int64_t i = 0; i < n; i++)
            mean += x[i];
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++)
            more += x[i] - mean;
        mean += more / (double)n;
        for (int64_t i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        const double scale = 1 / sqrt(squares / (double)n + a->eps);
        for (int64_t i = 0; i < n; i++)
            x[i] = (x[i] - mean) * scale * weight[i] + bias[i];
        store(a->out, r * n, x, n);
    }
    return DV_OK;
}

DV_INLINE int norm_of(dv_context *ctx, const struct layer_norm *a, const dv_isa *isa, uint32_t t)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1), room = line_room(n);
    const int64_t whole = n / DV_BLOCK * DV_BLOCK;
    float *const floats = dv_alloc(ctx, (size_t)(3 * room + 1) * sizeof(float), 64);
    float *const weight = floats + room, *const bias = weight + room;
    if (!floats)
        return DV_ENOMEM;
    for (int64_t i = 0; i < room; i++)
        weight[i] = 1, bias[i] = 0;
    if (a->weight)
        load_line(isa, weight, a->weight, 0, n, 0);
    if (a->bias)
        load_line(isa, bias, a->bias, 0, n, 0);
    for (int64_t r = 0; r < rows; r++) {
        const struct elements from = elements_of(a->x, t, r * n, n), to = result_of(isa, ctx, a->out, t, r * n, &from);
        double sum, squares;
        float *const there = floats_of(&from), *const x = there ? there : floats, *const out = floats_of(&to);
        SUM_BLOCKS(sum, room, keep_lanes(isa, &v, x, there, &from, k))
        double exact = sum / (double)n;
        float mean = (float)exact;
        SUM_BLOCKS(squares, whole, v = (LANES(x + k) - mean) * (LANES(x + k) - mean))
        for (int i = 0; i < n - whole; i++)
            squares += (double)((x[whole + i] - mean) * (x[whole + i] - mean));
        const bool constant = exact * exact >
            0x1p40 * (squares / (double)n + a->eps); /* but for rounding, which is all that is left */
        const bool floats_do = were_floats(squares, n, a->eps) && !constant;
        if (!floats_do) {
            exact = mean_again(x, n);
            mean = (float)exact;
            squares = squares_again(x, n, (double)mean);
        }
        double more = exact - (double)mean, variance = squares / (double)n; /* more: what the mean loses as a float */
        if (floats_do && exact * exact > variance) { /* and in its sum, where that is long and all elements are near the mean */
            SUM_BLOCKS(sum, whole, v = LANES(x + k) - mean)
            for (int i = 0; i < n - whole; i++)
                sum += (double)(x[whole + i] - mean);
            more = sum / (double)n;
        }
        variance -= more * more;
        const double exact_scale = 1 / sqrt((variance < 0 ? 0 : variance) + a->eps);
        const float scale = (float)exact_scale, shift = -(float)more * scale;
        if (!is_float_scale(exact_scale)) {
            put_scaled(a->out, r, x, (double)mean + more, exact_scale, weight, bias);
            continue;
        }
#define NORMALISED(AT) (((AT(x) - mean) * scale + shift) * AT(weight) + AT(bias))
        PUT_LINE(isa, &to, out, n, NORMALISED)
    }
    results_end(ctx);
    return DV_OK;
}
DV_INLINE int layer_norm_row(dv_context *ctx, const struct layer_norm *a, const dv_isa *isa)
{
#define ROW_OF(T) norm_of(ctx, a, isa, T)
    BY_DTYPE(isa, a->x, ROW_OF);
}
DV_ISAS(struct layer_norm, layer_norm_row)

#define CENTRED "(" WIDE("x") " - mean(" WIDE("x") ", [-1], True))"
#define NORMAL CENTRED " / sqrt(mean(" CENTRED " * " CENTRED ", [-1], True) + eps)" /* the gradient of rsqrt has its cube */
#define WEIGHTED "if(present(weight), " NORMAL " * weight, " NORMAL ")"

DV_OPERATOR(layer_norm, struct layer_norm, (x, weight, bias, eps, out),
    .schema = "layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor out",
    .contract = "x[*s n]:T, weight[n]:T, bias[n]:T -> out[*s n]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native = "type_as(if(present(bias), " WEIGHTED " + bias, " WEIGHTED "), x)",
    .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over the last dim.",
    .kernels = DV_KERNELS(DV_BF16_ROW(struct layer_norm, layer_norm_row, .split = 8)
                              DV_ISA_ROWS(struct layer_norm, layer_norm_row, "f32 bf16 f16", .split = 8),
        DV_KERNEL(struct layer_norm, "cpu", NULL, layer_norm_reference, .split = 8, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, layer_norm, &dv_op_layer_norm);
