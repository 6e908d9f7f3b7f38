/* softmax.c: exp(x - max) / sum over one dim. */
#include "../lines.h"

struct softmax {
    const dv_tensor *x;
    int64_t dim;
    dv_tensor *out;
};

static int softmax_reference(dv_context *ctx, const struct softmax *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    const int32_t dim = (int32_t)(a->dim < 0 ? a->dim + a->x->ndim : a->dim);
    const int64_t n = a->x->shape[dim], before = dv_numel_leading(a->x, dim), all = dv_numel(a->x);
    const int64_t step = all ? all / before / n : 0;
    (void)ctx;
    for (int64_t line = 0; line < before * step; line++) {
        const int64_t first = line / step * n * step + line % step;
        double most = -(double)INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            const double x = dv_get_f64(a->x->data, first + i * step, t);
            most = x > most || isnan(x) ? x : most;
        }
        for (int64_t i = 0; i < n; i++)
            sum += exp(dv_get_f64(a->x->data, first + i * step, t) - most);
        for (int64_t i = 0; i < n; i++)
            dv_put_f64(a->out->data, first + i * step, t, exp(dv_get_f64(a->x->data, first + i * step, t) - most) / sum);
    }
    return DV_OK;
}

/* floats: room for the line. */
DV_INLINE void softmax_line(const dv_isa_functions *isa, const struct elements *to, const struct elements *from, float *floats)
{
    float most[DV_BLOCK];
    double sum;
    float *const there = floats_of(from), *const x = there ? there : floats, *const out = floats_of(to),
                 *const e = out && !to->past ? out : floats;
    for (int i = 0; i < DV_BLOCK; i++)
        most[i] = -(float)INFINITY;
    for (int64_t k = 0; !there && k < line_room(from->n); k += 16)
        get_lanes(isa, &LANES(x + k), from, k, -(float)INFINITY);
    for (int64_t k = 0; k < from->n; k += DV_BLOCK)
        DV_BLOCK_LOOP
    most[i] = x[k + i] > most[i] ? x[k + i] : most[i]; /* NaN comes back with the sum */
    for (int half = DV_BLOCK / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            most[i] = most[i + half] > most[i] ? most[i + half] : most[i];
    const float all = most[0];
    SUM_BLOCKS(sum, from->n, if (k % DV_BLOCK == 0) dv_block_exp(isa, e + k, x + k, all); v = LANES(e + k))
    const float scale = (float)(1 / sum);
#define SCALED(AT) (AT(e) * scale)
    PUT_LINE(isa, to, out, from->n, SCALED)
}

struct lines {
    const dv_context *ctx;
    const struct softmax *a;
    int64_t n, step; /* element i of line l is at l / step * n * step + l % step + i * step */
    int64_t groups;  /* of lines side by side; 0: one line after the other */
};

DV_INLINE int lines_of(void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa_functions *isa, uint32_t t)
{
    const struct lines *const x = arg;
    for (int64_t l = begin; l < end; l++) {
        const int64_t first = l / x->step * x->n * x->step + l % x->step;
        struct elements from = elements_of(x->a->x, t, first, x->n), to;
        if (x->step == 1 && t == DV_DTYPE_f32) /* 16-bit types wait for exp, not for memory */
            to = result_of(isa, x->ctx, x->a->out, t, first, &from);
        else
            to = elements_of(x->a->out, t, first, x->n), from.step = to.step = x->step;
        softmax_line(isa, &to, &from, scratch);
    }
    results_end(x->ctx);
    return DV_OK;
}

/* Lines that lie side by side: lanes are lines, and a row has an element of each. Short lines, which lie one behind the other,
 * are turned into such rows and back. */
enum { LINES = DV_BLOCK / 2, ROWS = 8, LONG = 1 << 17, SHORT = 48 };
#define EACH_LINE DV__VECTOR_LOOP(i, LINES)
static int64_t room_of(const struct lines *x) /* floats: the rows, and then short lines as they lie */
{
    return (x->n + 1) * LINES + (x->step == 1 ? line_room(x->n * LINES) : 0);
}
DV_INLINE int groups_of(
    void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa_functions *isa, load_fn load_floats, store_fn store_floats)
{
    const struct lines *const x = arg;
    const uint32_t t = dv_dtype_key(x->a->x->dtype);
    float *const rows = scratch, *const flat = rows + (x->n + 1) * LINES;
    const bool one = x->step == 1; /* behind the other */
    const int64_t beside = one ? dv_numel(x->a->x) / x->n : x->step;
    for (int64_t group = begin; group < end; group++) {
        const int64_t line = group % x->groups * LINES, few = beside - line < LINES ? beside - line : LINES;
        const int64_t first = one ? line * x->n : group / x->groups * x->n * x->step + line;
        float most[LINES], scale[LINES];
        double sum[LINES] = { 0 };
        for (int i = 0; i < LINES; i++)
            most[i] = -(float)INFINITY;
        if (one)
            load_floats(flat, x->a->x, first, few * x->n, 0);
        for (int64_t r = 0; r < x->n + x->n % 2; r++) {
            float *const row = rows + r * LINES;
            const struct elements from = elements_of(x->a->x, t, first + r * x->step, few);
            if (one)
                for (int64_t i = 0; i < LINES; i++)
                    row[i] = r < x->n && i < few ? flat[i * x->n + r] : -(float)INFINITY;
            else
                for (int64_t k = 0; k < LINES; k += 16)
                    if (k < few && r < x->n)
                        get_lanes(isa, &LANES(row + k), &from, k, 0);
                    else
                        for (int i = 0; i < 16; i++)
                            row[k + i] = -(float)INFINITY;
            EACH_LINE
            most[i] = row[i] > most[i] ? row[i] : most[i]; /* NaN comes back with the sum */
        }
        for (int64_t part = 0; part < x->n; part += ROWS) { /* a long sum in float loses digits */
            float some[LINES] = { 0 };
            for (int64_t r = part; r < x->n && r < part + ROWS; r += 2) {
                float *const row = rows + r * LINES, *const next = row + LINES;
                EACH_LINE
                row[i] -= most[i], next[i] -= most[i];
                dv_block_exp(isa, row, row, 0);
                EACH_LINE
                some[i] += row[i] + next[i];
            }
            EACH_LINE
            sum[i] += (double)some[i];
        }
        EACH_LINE
        scale[i] = (float)(1 / sum[i]);
        for (int64_t r = 0; r < x->n; r++) {
            float *const row = rows + r * LINES;
            const struct elements to = elements_of(x->a->out, t, first + r * x->step, few);
            EACH_LINE
            row[i] *= scale[i];
            for (int64_t i = 0; one && i < few; i++)
                flat[i * x->n + r] = row[i];
            for (int64_t k = 0; k < few && !one; k += 16)
                put_lanes(isa, &to, k, &LANES(row + k));
        }
        if (one)
            store_floats(x->a->out, first, flat, few * x->n);
    }
    return DV_OK;
}

/* One function for all rows of an instruction set. */
#define GROUPS(ISA, TARGET)                                                                       \
    LOAD_LINE(ISA, TARGET)                                                                        \
    STORE_LINE(ISA, TARGET)                                                                       \
    TARGET FEW_ONCE static int groups_##ISA(void *arg, int64_t begin, int64_t end, void *scratch) \
    {                                                                                             \
        return groups_of(arg, begin, end, scratch, &dv_isa_##ISA, load_##ISA, store_##ISA);       \
    }
FOR_EACH_ISA(GROUPS)

DV_INLINE int softmax_lines(void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa_functions *isa)
{
    const struct lines *const x = arg;
    if (x->groups)
        return OF_EACH_ISA(isa, groups)(arg, begin, end, scratch);
#define LINES_OF(T) lines_of(arg, begin, end, scratch, isa, T)
    BY_DTYPE(isa, x->a->x, LINES_OF);
}
static int softmax_row(dv_context *ctx, const struct softmax *a, dv_scratch_fn piece)
{
    const int32_t dim = (int32_t)(a->dim < 0 ? a->dim + a->x->ndim : a->dim);
    struct lines x = { .ctx = ctx, .a = a, .n = a->x->shape[dim] };
    const int64_t all = dv_numel(a->x), before = dv_numel_leading(a->x, dim);
    if (!all)
        return DV_OK;
    x.step = all / x.n / before;
    const bool turned = x.step == 1 && x.n <= SHORT;
    if ((x.step < 16 && !turned) || x.n > LONG)
        return dv_parallel_scratch(ctx, 0, all / x.n, 1 + 16384 / x.n, (size_t)line_room(x.n) * sizeof(float), piece, &x);
    x.groups = ((turned ? before : x.step) + LINES - 1) / LINES;
    return dv_parallel_scratch(
        ctx, 0, turned ? x.groups : before * x.groups, 1 + 16384 / LINES / x.n, (size_t)room_of(&x) * sizeof(float), piece, &x);
}
DV_ISA_VARIANTS_LOOP(struct softmax, softmax_row, softmax_lines)

#define E "exp(" WIDE("x") " - amax(" WIDE("x") ", [dim], True))"

DV_OPERATOR(softmax, struct softmax, (x, dim, out), .schema = "softmax(Tensor x, int dim=-1) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32 f64 bf16 f16; axis(dim, x) >= 0; rank(x) > 0",
    .native = "if(x.numel == 0, x * 1, type_as(" E " / sum(" E ", [dim], True), x))",
    .gradient = "x: result * (grad - sum(grad * result, [dim], True))",
    .doc = "exp(x - max) / sum of these, over one dim: positive numbers with the sum 1.",
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct softmax, softmax_row, .flags = 0)
                              DV_ISA_KERNELS(struct softmax, softmax_row, "f32 bf16 f16"),
        DV_KERNEL(struct softmax, "cpu", NULL, softmax_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, softmax, &dv_op_softmax);
