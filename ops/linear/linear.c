/* linear.c: input times the rows of weight, plus bias. A row of weight is read once for up to CHUNK rows of the input. */
#include "../product.h"

enum { CHUNK = 64, PIECE = 1 << 17 /* multiplications of a piece of a loop */ };

struct linear {
    const dv_tensor *input, *weight, *bias, *weight_scale;
    dv_tensor *out;
};

static int linear_reference(dv_context *ctx, const struct linear *a)
{
    const int64_t k = last_dim(a->input), n = a->weight->shape[0], rows = dv_numel_leading(a->input, a->input->ndim - 1);
    const int64_t chunk = rows < CHUNK ? rows : CHUNK;
    double *const row = dv_alloc(ctx, (size_t)(k + chunk * k + 1) * sizeof(double), 64);
    if (!row)
        return DV_ENOMEM;
    double *const x = row + k;
    for (int64_t begin = 0; begin < rows; begin += CHUNK) {
        const int64_t some = rows - begin < CHUNK ? rows - begin : CHUNK;
        load(x, a->input, begin * k, some * k);
        for (int64_t i = 0; i < n; i++) {
            double bias = 0, scale = 1;
            load(row, a->weight, i * k, k);
            if (a->bias)
                load(&bias, a->bias, i, 1);
            if (a->weight_scale)
                load(&scale, a->weight_scale, i, 1);
            for (int64_t j = 0; j < k; j++)
                row[j] *= scale;
            for (int64_t r = 0; r < some; r++) {
                const double y = dot(x + r * k, row, k) + bias;
                store(a->out, (begin + r) * n + i, &y, 1);
            }
        }
    }
    return DV_OK;
}

/* ---- fast rows ----------------------------------------------------------------------------------------------------------- */

/* A group of the input's rows, packed. */
struct piece {
    const struct linear *a;
    const product_isa *isa;
    float *x;
    int64_t begin, rows, at[GROUP]; /* at: begin, begin + 1, ... */
};

/* So many times SQUARE rows. */
static int pack_rows(void *arg, int64_t begin, int64_t end)
{
    const struct piece *const p = arg;
    const int64_t last = end * SQUARE < p->rows ? end * SQUARE : p->rows;
    pack(p->isa, p->x, p->a->input, last_dim(p->a->input), p->at, NULL, p->rows, begin * SQUARE, last);
    return DV_OK;
}

static float number(const dv_tensor *t, int64_t i, float none)
{
    return t ? (float)dv_get_f64(t->data, i, dv_dtype_key(t->dtype)) : none;
}

/* Blocks of COLUMNS columns of the result. */
static int blocks(void *arg, int64_t begin, int64_t end)
{
    const struct piece *const p = arg;
    const int64_t n = p->a->weight->shape[0];
    const factor w = { .q = p->a->weight, .k = p->a->weight->shape[1] };
    _Alignas(64) float sums[GROUP * COLUMNS];
    for (int64_t first = begin * COLUMNS; first < end * COLUMNS && first < n; first += COLUMNS) {
        const int64_t count = n - first < COLUMNS ? n - first : COLUMNS;
        float scale[COLUMNS] = { 0 }, bias[COLUMNS] = { 0 };
        product(p->isa, &w, first, 1, count, first + count, p->x, p->rows, sums);
        for (int64_t c = 0; c < count; c++) {
            scale[c] = number(w.k ? p->a->weight_scale : NULL, first + c, 1); /* a sum of nothing is 0 */
            bias[c] = number(p->a->bias, first + c, 0);
        }
        for (int64_t t = 0; t < p->rows; t++) {
            float *const sum = sums + t * COLUMNS;
            for (int64_t c = 0; c < COLUMNS; c++)
                sum[c] = sum[c] * scale[c] + bias[c];
            p->isa->store(p->a->out, (p->begin + t) * n + first, sum, count);
        }
    }
    return DV_OK;
}

static int linear_row(dv_context *ctx, const struct linear *a, const product_isa *isa)
{
    const int64_t rows = dv_numel_leading(a->input, a->input->ndim - 1), n = a->weight->shape[0], k = last_dim(a->input);
    const int64_t some = group_rows(isa, rows);
    struct piece p = { .a = a, .isa = isa, .x = dv_alloc(ctx, (size_t)(packed_size(isa, k, some) + 1) * sizeof(float), 64) };
    int status = p.x ? DV_OK : DV_ENOMEM;
    for (; !status && p.begin < rows; p.begin += some) {
        p.rows = rows - p.begin < some ? rows - p.begin : some;
        for (int64_t t = 0; t < p.rows; t++)
            p.at[t] = p.begin + t;
        clear_packed(isa, p.x, k, p.rows);
        status = dv_parallel_for(ctx, 0, up(p.rows, SQUARE), 1 + PIECE / (SQUARE * (k + 1)), pack_rows, &p);
        if (!status)
            status = dv_parallel_for(ctx, 0, up(n, COLUMNS), 1 + PIECE / (COLUMNS * (k + 1) * p.rows), blocks, &p);
    }
    return status;
}
#define ROW(ISA, TARGET) \
    static int linear_row_##ISA(dv_context *ctx, const struct linear *a) { return linear_row(ctx, a, &product_##ISA); }
PRODUCT_EACH(ROW)
PRODUCT_AMX(ROW)

#define OF(X, WEIGHT) "squeeze(matmul(unsqueeze(" X ", -2), transpose(" WEIGHT ", 0, 1)), -2)"
#define X WIDE("input")
#define SCALED "type_as(weight, " X ") * unsqueeze(type_as(weight_scale, " X "), 1)"
#define WITH_BIAS(PRODUCT) "if(present(bias), " PRODUCT " + bias, " PRODUCT ")"

DV_OPERATOR(linear, struct linear, (input, weight, bias, weight_scale, out),
    .schema = "linear(Tensor input, Tensor weight, Tensor? bias=None, Tensor? weight_scale=None) -> Tensor out",
    .contract = "input[*s k]:T, weight[n k]:W, bias[n]:T, weight_scale[n]:S -> out[*s n]:T; T in f32 f64 bf16 f16; S in f32 bf16 "
                "f16; W == T or W == i8; present(weight_scale) == (W == i8); parallel(*s); flops = numel(*s)*n*(2*k + 2)",
    .native = "if(present(weight_scale), type_as(" WITH_BIAS(OF(X, SCALED)) ", input), " WITH_BIAS(OF("input", "weight")) ")",
    .doc = "input times the transposed weight, plus bias. int8 weights have a scale for each row.", .tags = "autocast_lower",
    .kernels = DV_KERNELS(PRODUCT_ROWS(struct linear, linear_row),
        DV_KERNEL(struct linear, "cpu", NULL, linear_reference, .split = 16, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, linear, &dv_op_linear);
