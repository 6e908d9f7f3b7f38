/* fused_experts.c: the experts of a mixture, after routing, and the gradient of the forms whose weights are not quantised.
 *
 * y_t = sum over j of topk_weights[t, j] * (w2[e] a + w2_bias[e]), where e = topk_ids[t, j], a = act(g) * u and
 * [g; u] = w1[e] x_t + w1_bias[e]. Expert by expert, a row of weights is read once for all of the expert's tokens. Quantised
 * numbers are used by their values: (q - zero point) * scale. Sums are in double; a and y are rounded to the model's type. */
#include "../gauss.h"
#include "../product.h"
#include <math.h>

enum { CHUNK = 64 }; /* tokens at a time */
enum activation { SILU, GELU, GELU_TANH, SWIGLUOAI };

struct fused_experts {
    const dv_tensor *hidden_states, *w1, *w2, *topk_weights, *topk_ids;
    dv_string activation;
    bool apply_router_weight_on_input, use_fp8_w8a8, use_int8_w8a8, use_int8_w8a16, use_int4_w4a16;
    dv_opt_string ocp_mx_scheme;
    bool per_channel_quant;
    int64_t global_num_experts;
    const dv_tensor *expert_map, *w1_scale, *w2_scale, *w1_zp, *w2_zp, *a1_scale, *a2_scale;
    dv_opt_ints block_shape;
    const dv_tensor *w1_bias, *w2_bias;
    dv_tensor *out;
};

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

struct weights {
    const dv_tensor *q, *scale, *zero, *bias;
    int64_t rows, columns, block_rows, block_columns; /* of one expert; of a block with its own scale, 0: there are no blocks */
    bool packed;                                      /* two numbers of 4 bits in a byte, the low ones first */
};

static int64_t nibble(const dv_tensor *t, int64_t i) { return ((const uint8_t *)t->data)[i / 2] >> (i % 2 ? 4 : 0) & 15; }

/* Row `row` of expert e, as numbers. */
static void load_weights(double *to, const struct weights *w, int64_t e, int64_t row)
{
    const int64_t start = (e * w->rows + row) * w->columns, width = w->block_columns ? up(w->columns, w->block_columns) : 1;
    if (w->packed)
        for (int64_t i = 0; i < w->columns; i++)
            to[i] = (double)nibble(w->q, start + i);
    else
        load(to, w->q, start, w->columns);
    if (!w->scale)
        return;
    const int64_t scales = dv_numel(w->scale) / w->q->shape[0]; /* of an expert: one, or one for each row, without blocks */
    const int64_t line = w->block_columns ? row / w->block_rows * width : scales > 1 ? row : 0;
    const double half = w->packed ? 8 : dv_dtype_key(w->q->dtype) == DV_DTYPE_u8 ? 128 : 0;
    for (int64_t b = 0; b < width; b++) {
        double scale, zero = half;
        load(&scale, w->scale, e * scales + line + b, 1);
        if (w->zero && w->packed) /* packed along the rows */
            zero = (double)(((const uint8_t *)w->zero->data)[(e * (w->rows / 2) + row / 2) * width + b] >> (row % 2 ? 4 : 0) &
                15);
        else if (w->zero)
            zero = (double)get_int(w->zero, (e * w->rows + row) * width + b);
        const int64_t from = b * w->block_columns,
                      end = w->block_columns && from + w->block_columns < w->columns ? from + w->block_columns : w->columns;
        for (int64_t i = from; i < end; i++)
            to[i] = (to[i] - zero) * scale;
    }
}
static double bias_of(const struct weights *w, int64_t e, int64_t row)
{
    double b = 0;
    if (w->bias)
        load(&b, w->bias, e * w->rows + row, 1);
    return b;
}

/* ---- activations --------------------------------------------------------------------------------------------------------- */

static double rounded(double x, uint32_t dtype)
{
    double element;
    dv_put_f64(&element, 0, dtype, x);
    return dv_get_f64(&element, 0, dtype);
}
static double to_f8_e4m3fn(double x) /* the nearest, at most 448 */
{
    int exponent;
    frexp(x, &exponent);
    const double unit = ldexp(1, (exponent < -5 ? -5 : exponent) - 4), near = rint(x / unit) * unit;
    return near > 448 ? 448 : near < -448 ? -448 : near;
}
static double to_i8(double x)
{
    const double near = rint(x);
    return near > 127 ? 127 : near < -128 ? -128 : near;
}

/* Replaces x[n] by what is left of it as fp8 or int8: scale given, or for each group of so many elements of its own. */
static void quantise(double *x, int64_t n, bool fp8, const dv_tensor *given, int64_t group)
{
    for (int64_t from = 0; from < n; from += group) {
        const int64_t end = n - from < group ? n : from + group;
        double scale = 0;
        for (int64_t i = from; i < end; i++)
            scale = fmax(scale, fabs(x[i]));
        scale /= fp8 ? 448 : 127;
        if (given)
            load(&scale, given, 0, 1);
        for (int64_t i = from; i < end && scale != 0; i++)
            x[i] = (fp8 ? to_f8_e4m3fn(x[i] / scale) : to_i8(x[i] / scale)) * scale;
    }
}

static enum activation activation_of(dv_string name)
{
    static const char *const names[] = { "silu", "gelu", "gelu_tanh", "swigluoai" };
    int a = 0;
    while (a < SWIGLUOAI && strcmp(name.data, names[a]) != 0)
        a++;
    return (enum activation)a;
}
/* Where gate i and up i of n are in a row: swigluoai has them in pairs. */
static int64_t gate_at(enum activation a, int64_t i) { return a == SWIGLUOAI ? 2 * i : i; }
static int64_t up_at(enum activation a, int64_t i, int64_t n) { return a == SWIGLUOAI ? 2 * i + 1 : n + i; }

/* act(g) * u, and its derivatives. */
static double activate(enum activation a, double g, double u, double *dg, double *du)
{
    const double limit = 7, alpha = 1.702, root = 0.7978845608028654 /* sqrt(2 / pi) */, cubic = 0.044715;
    double s;
    switch (a) {
    case SILU:
        s = 1 / (1 + exp(-g));
        *du = g * s;
        *dg = u * s * (1 + g * (1 - s));
        return *du * u;
    case GELU:
        s = 0.5 * erfc(g * -0.7071067811865476); /* accurate far below 0, where 1 + erf cancels; so is GELU_TANH's form */
        *du = g * s;
        *dg = u * (s + g * 0.3989422804014327 * exp(-0.5 * g * g));
        return *du * u;
    case GELU_TANH:
        s = 1 / (1 + exp(-2 * root * (g + cubic * g * g * g)));
        *du = g * s;
        *dg = u * (s + 2 * g * s * (1 - s) * root * (1 + 3 * cubic * g * g));
        return *du * u;
    default: break;
    }
    const double gate = g > limit ? limit : g, linear = u > limit ? limit : u < -limit ? -limit : u;
    s = 1 / (1 + exp(-alpha * gate));
    *du = fabs(u) > limit ? 0 : gate * s;
    *dg = g > limit ? 0 : (linear + 1) * s * (1 + alpha * gate * (1 - s));
    return gate * s * (linear + 1);
}

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

/* Everything about a call that does not change from token to token, and a chunk's memory. */
struct mixture {
    struct weights w1, w2;
    const dv_tensor *x, *topk_weights, *ids, *map, *a1_scale, *a2_scale, *out;
    enum activation activation;
    bool on_input, fp8, quantised; /* activations become fp8 or int8 */
    int64_t k, n, choices, experts, group1, group2;
    double *row, *tokens, *hidden, *sums; /* a row of weights; x of the chunk; [g; u] of its pairs of token and choice; y */
};

/* The expert of pair i of token and choice; -1: none. */
static int64_t expert_of(const struct mixture *x, int64_t i)
{
    const int64_t id = get_int(x->ids, i);
    return id < 0 || !x->map ? id : get_int(x->map, id);
}
static int check_ids(dv_context *ctx, const struct mixture *x)
{
    const int64_t most = x->map ? x->map->shape[0] : x->experts;
    for (int64_t i = 0, n = dv_numel(x->ids); i < n; i++)
        if (get_int(x->ids, i) >= most)
            return dv_error(ctx, DV_EINVAL, "argument 'topk_ids': expected an expert below %lld, found %lld", (long long)most,
                (long long)get_int(x->ids, i));
        else if (expert_of(x, i) >= x->experts)
            return dv_error(ctx, DV_EINVAL, "argument 'expert_map': expected an expert below %lld, found %lld",
                (long long)x->experts, (long long)expert_of(x, i));
    return DV_OK;
}

static double router_weight(const struct mixture *x, int64_t i)
{
    double w;
    load(&w, x->topk_weights, i, 1);
    return w;
}
/* Token t as the first product takes it. */
static void load_token(const struct mixture *x, double *to, int64_t t)
{
    const uint32_t dtype = dv_dtype_key(x->x->dtype);
    load(to, x->x, t * x->k, x->k);
    for (int64_t i = 0; x->on_input && i < x->k; i++)
        to[i] = rounded(to[i] * router_weight(x, t), dtype);
    if (x->quantised)
        quantise(to, x->k, x->fp8, x->a1_scale, x->group1);
}
/* hidden: [g; u] becomes act(g) * u, in its first half. */
static void activate_row(const struct mixture *x, double *hidden)
{
    const uint32_t dtype = dv_dtype_key(x->x->dtype);
    double *const both = x->row, dg, du;
    memcpy(both, hidden, (size_t)(2 * x->n) * sizeof(double));
    for (int64_t i = 0; i < x->n; i++)
        hidden[i] = rounded(
            activate(x->activation, both[gate_at(x->activation, i)], both[up_at(x->activation, i, x->n)], &dg, &du), dtype);
    if (x->quantised)
        quantise(hidden, x->n, x->fp8, x->a2_scale, x->group2);
}

/* The pairs of tokens [begin, end) that chose expert e. */
static void run_expert(const struct mixture *x, int64_t e, int64_t begin, int64_t end)
{
    const int64_t first = begin * x->choices, pairs = (end - begin) * x->choices;
    bool chosen = false;
    for (int64_t p = 0; p < pairs && !chosen; p++)
        chosen = expert_of(x, first + p) == e;
    for (int64_t r = 0; r < x->w1.rows && chosen; r++) {
        const double bias = bias_of(&x->w1, e, r);
        load_weights(x->row, &x->w1, e, r);
        for (int64_t p = 0; p < pairs; p++)
            if (expert_of(x, first + p) == e)
                x->hidden[p * 2 * x->n + r] = dot(x->tokens + p / x->choices * x->k, x->row, x->k) + bias;
    }
    for (int64_t p = 0; p < pairs && chosen; p++)
        if (expert_of(x, first + p) == e)
            activate_row(x, x->hidden + p * 2 * x->n);
    for (int64_t r = 0; r < x->w2.rows && chosen; r++) {
        const double bias = bias_of(&x->w2, e, r);
        load_weights(x->row, &x->w2, e, r);
        for (int64_t p = 0; p < pairs; p++)
            if (expert_of(x, first + p) == e)
                x->sums[p / x->choices * x->k + r] += (x->on_input ? 1 : router_weight(x, first + p)) *
                    (dot(x->hidden + p * 2 * x->n, x->row, x->n) + bias);
    }
}

static void set_sizes(struct mixture *x, const dv_tensor *w1, const dv_tensor *ids)
{
    x->choices = ids->shape[1];
    x->experts = w1->shape[0];
    x->n = w1->shape[1] / 2;
    x->k = x->x->shape[1];
    x->w1.rows = 2 * x->n;
    x->w1.columns = x->w2.rows = x->k;
    x->w2.columns = x->n;
}

static struct mixture mixture_of(const struct fused_experts *a)
{
    const bool blocks = a->block_shape.has;
    const int64_t block_rows = blocks && a->block_shape.value.data[0] ? a->block_shape.value.data[0] : 1;
    const int64_t block_columns = blocks ? a->block_shape.value.data[1] : 0;
    struct mixture x = {
        .w1 = { a->w1, a->w1_scale, a->w1_zp, a->w1_bias, 0, 0, block_rows, block_columns, a->use_int4_w4a16 },
        .w2 = { a->w2, a->w2_scale, a->w2_zp, a->w2_bias, 0, 0, block_rows, block_columns, a->use_int4_w4a16 },
        .x = a->hidden_states,
        .topk_weights = a->topk_weights,
        .ids = a->topk_ids,
        .map = a->expert_map,
        .a1_scale = a->a1_scale,
        .a2_scale = a->a2_scale,
        .out = a->out,
        .activation = activation_of(a->activation),
        .on_input = a->apply_router_weight_on_input,
        .fp8 = a->use_fp8_w8a8,
        .quantised = a->use_fp8_w8a8 || a->use_int8_w8a8,
    };
    set_sizes(&x, a->w1, a->topk_ids);
    x.group1 = blocks ? block_columns : x.k;
    x.group2 = blocks ? block_columns : x.n;
    return x;
}

static int fused_experts_reference(dv_context *ctx, const struct fused_experts *a)
{
    struct mixture x = mixture_of(a);
    const int64_t tokens = a->hidden_states->shape[0];
    const int status = check_ids(ctx, &x);
    const int64_t chunk = tokens < CHUNK ? tokens : CHUNK;
    if (status || !tokens || !x.k)
        return status;
    x.row = dv_alloc(ctx, (size_t)(x.k + 2 * x.n + chunk * (2 * x.k + x.choices * 2 * x.n) + 1) * sizeof(double), 64);
    if (!x.row)
        return DV_ENOMEM;
    x.tokens = x.row + x.k + 2 * x.n;
    x.sums = x.tokens + chunk * x.k;
    x.hidden = x.sums + chunk * x.k;
    for (int64_t begin = 0; begin < tokens; begin += CHUNK) {
        const int64_t end = tokens - begin < CHUNK ? tokens : begin + CHUNK;
        memset(x.sums, 0, (size_t)(chunk * x.k) * sizeof(double));
        for (int64_t t = begin; t < end; t++)
            load_token(&x, x.tokens + (t - begin) * x.k, t);
        for (int64_t e = 0; e < x.experts; e++)
            run_expert(&x, e, begin, end);
        store(a->out, begin * x.k, x.sums, (end - begin) * x.k);
    }
    return DV_OK;
}

/* ---- fast rows ----------------------------------------------------------------------------------------------------------- */

/* The pairs of token and choice, expert by expert, in groups of at most GROUP. Some groups at a time, as many as fit into ROOM
 * floats: their tokens are packed; blocks of rows of w1 give a part of act(g) * u, packed as well; blocks of rows of w2 add to
 * columns of `sums`, which has all tokens. Each sum has its order, so the result depends on sizes alone. */
enum { ROOM = 1 << 24 };

struct group { int64_t expert, first, pairs, x, a; }; /* its first pair; where its packed x and a are */
struct fast {
    const struct mixture *m;
    const product_isa *isa;
    void (*activate)(const struct mixture *m, float *g, const float *u, int64_t n);
    const factor *w1, *w2;
    struct group *groups;  /* those of this time */
    int64_t count, blocks; /* groups; blocks of rows of w1, for a group */
    int64_t *tokens;       /* of the pairs */
    float *weights, *packed, *sums;
};

/* Elements of a row of 8-bit weights whose scales or zero points change within the row, or whose zero is not 0. */
static void load_quantised(float *to, const void *of, int64_t row, int64_t at, int64_t n)
{
    const struct weights *const w = of;
    const int64_t width = w->block_columns ? up(w->columns, w->block_columns) : 1, e = row / w->rows, r = row % w->rows;
    const int64_t scales = dv_numel(w->scale) / w->q->shape[0], block = w->block_columns ? w->block_columns : w->columns;
    const int64_t line = w->block_columns ? r / w->block_rows * width : scales > 1 ? r : 0;
    const bool bytes = dv_dtype_key(w->q->dtype) == DV_DTYPE_u8;
    const uint8_t *const q = (const uint8_t *)w->q->data + row * w->columns;
    for (int64_t from = at, end; from < at + n; from = end) {
        const int64_t b = from / block;
        end = (b + 1) * block < at + n ? (b + 1) * block : at + n;
        const float zero = w->zero ? (float)get_int(w->zero, row * width + b) : bytes ? 128 : 0;
        const float scale = (float)dv_get_f64(w->scale->data, e * scales + line + b, dv_dtype_key(w->scale->dtype));
        for (int64_t i = from; i < end; i++)
            to[i - at] = ((float)(bytes ? q[i] : (int8_t)q[i]) - zero) * scale;
    }
}
/* The weights as the product takes them: a scale of a whole row is left for after it. */
static factor factor_of(const struct weights *w)
{
    const bool plain = !w->scale || (!w->block_columns && !w->zero && dv_dtype_key(w->q->dtype) == DV_DTYPE_i8);
    return (factor){ .q = w->q, .k = w->columns, .load = plain ? NULL : load_quantised, .of = w };
}
static float row_scale(const struct weights *w, const factor *f, int64_t e, int64_t row)
{
    const int64_t scales = f->load || !w->scale ? 0 : dv_numel(w->scale) / w->q->shape[0];
    return scales ? (float)dv_get_f64(w->scale->data, e * scales + (scales > 1 ? row : 0), dv_dtype_key(w->scale->dtype)) : 1;
}

#define EACH_OF_BLOCK(T, GATE, EXPRESSION)  \
    DV_BLOCK_LOOP                           \
    {                                       \
        const T x = (T)(GATE), y = (T)u[i]; \
        g[i] = (float)(EXPRESSION);         \
    }
/* g becomes act(g) * u, rounded to the model's type. n is a number of whole blocks. */
DV_INLINE void activate_fast(const dv_isa_functions *isa, const struct mixture *m, float *g, const float *u, int64_t n)
{
    const uint32_t dtype = dv_dtype_key(m->x->dtype);
    const double root = 0.7978845608028654, cubic = 0.044715;
    uint16_t half[DV_BLOCK];
    for (const float *const end = g + n; g < end; g += DV_BLOCK, u += DV_BLOCK) {
        if (m->activation == SILU)
            EACH_OF_BLOCK(float, g[i], dv_siluf(x) * y)
        else if (m->activation == GELU)
            EACH_OF_BLOCK(float, g[i], x *below(x, gauss(x)) * y)
        else if (m->activation == GELU_TANH)
            EACH_OF_BLOCK(double, g[i], x *dv_sigmoid(2 * root * (x + cubic * x * x * x)) * y)
        else
            EACH_OF_BLOCK(float, g[i] > 7 ? 7 : g[i], x * dv_sigmoidf(1.702f * x) * ((y > 7 ? 7 : y < -7 ? -7 : y) + 1))
        if (dtype == DV_DTYPE_f32)
            continue;
        dv_block_store(isa, half, g, dtype);
        dv_block_load(isa, g, half, dtype);
    }
}

static int pack_groups(void *arg, int64_t begin, int64_t end)
{
    const struct fast *const f = arg;
    for (const struct group *g = f->groups + begin; g < f->groups + end; g++) {
        clear_packed(f->isa, f->packed + g->a, f->m->n, g->pairs);
        clear_packed(f->isa, f->packed + g->x, f->m->k, g->pairs);
        pack(f->isa, f->packed + g->x, f->m->x, f->m->k, f->tokens + g->first, f->m->on_input ? f->weights + g->first : NULL,
            g->pairs, 0, g->pairs);
    }
    return DV_OK;
}

/* sums = sums * scale + bias for `count` rows of w, from row `from` of expert e on. */
static void finish_rows(
    const struct weights *w, const factor *of, int64_t e, int64_t from, int64_t step, int64_t count, int64_t pairs, float *sums)
{
    float scale[COLUMNS] = { 0 }, bias[COLUMNS] = { 0 };
    if (!w->bias && (of->load || !w->scale))
        return;
    for (int64_t c = 0; c < count; c++) {
        scale[c] = row_scale(w, of, e, from + c * step);
        bias[c] = (float)bias_of(w, e, from + c * step);
    }
    for (float *const end = sums + pairs * COLUMNS; sums < end; sums += COLUMNS)
        for (int64_t c = 0; c < COLUMNS; c++)
            sums[c] = sums[c] * scale[c] + bias[c];
}

/* Blocks of units of all groups: gates and ups, then act(g) * u. */
static int up_blocks(void *arg, int64_t begin, int64_t end)
{
    const struct fast *const f = arg;
    const struct mixture *const m = f->m;
    const int64_t step = m->activation == SWIGLUOAI ? 2 : 1;
    _Alignas(64) float gates[GROUP * COLUMNS + DV_BLOCK], ups[GROUP * COLUMNS + DV_BLOCK];
    for (int64_t at = begin; at < end; at++) {
        const struct group *const g = f->groups + at / f->blocks;
        const int64_t first = at % f->blocks * COLUMNS, count = m->n - first < COLUMNS ? m->n - first : COLUMNS;
        const int64_t gate = gate_at(m->activation, first), high = up_at(m->activation, first, m->n), e = g->expert;
        const int64_t all = g->pairs * COLUMNS;
        product(f->isa, f->w1, e * 2 * m->n + gate, step, count, e * 2 * m->n + high, f->packed + g->x, g->pairs, gates);
        product(
            f->isa, f->w1, e * 2 * m->n + high, step, count, e * 2 * m->n + gate + count * step, f->packed + g->x, g->pairs, ups);
        finish_rows(&m->w1, f->w1, e, gate, step, count, g->pairs, gates);
        finish_rows(&m->w1, f->w1, e, high, step, count, g->pairs, ups);
        memset(gates + all, 0, DV_BLOCK * sizeof *gates), memset(ups + all, 0, DV_BLOCK * sizeof *ups);
        f->activate(m, gates, ups, line_room(all));
        for (int64_t t = 0, some; t < g->pairs; t += some) {
            uint16_t half[SQUARE * COLUMNS];
            const bool pairs = f->isa->each == 2;
            some = g->pairs - t < SQUARE ? g->pairs - t : SQUARE;
            for (int64_t r = 0; pairs && r < some; r++)
                as_words(f->isa, half + r * COLUMNS, gates + (t + r) * COLUMNS, count);
            put_packed(f->isa, f->packed + g->a, packed_room(f->isa, m->n), g->pairs, t, some, first / f->isa->each,
                pairs ? (const void *)half : gates + t * COLUMNS, COLUMNS * 4 / f->isa->each, count * 4 / f->isa->each);
        }
    }
    return DV_OK;
}

/* Blocks of columns of the result, for all groups one after the other. */
static int down_blocks(void *arg, int64_t begin, int64_t end)
{
    const struct fast *const f = arg;
    const struct mixture *const m = f->m;
    _Alignas(64) float sums[GROUP * COLUMNS];
    for (int64_t first = begin * COLUMNS; first < end * COLUMNS && first < m->k; first += COLUMNS)
        for (const struct group *g = f->groups; g < f->groups + f->count; g++) {
            const int64_t count = m->k - first < COLUMNS ? m->k - first : COLUMNS;
            const int64_t next = g + 1 < f->groups + f->count ? g[1].expert * m->k + first
                                                              : f->groups->expert * m->k + first + count;
            product(f->isa, f->w2, g->expert * m->k + first, 1, count, next, f->packed + g->a, g->pairs, sums);
            finish_rows(&m->w2, f->w2, g->expert, first, 1, count, g->pairs, sums);
            for (int64_t t = 0; t < g->pairs; t++) {
                float *const to = f->sums + f->tokens[g->first + t] * m->k + first;
                const float weight = m->on_input ? 1 : f->weights[g->first + t];
                for (int64_t c = 0; c < count; c++)
                    to[c] += weight * sums[t * COLUMNS + c];
            }
        }
    return DV_OK;
}
static int store_tokens(void *arg, int64_t begin, int64_t end)
{
    const struct fast *const f = arg;
    f->isa->store(f->m->out, begin * f->m->k, f->sums + begin * f->m->k, (end - begin) * f->m->k);
    return DV_OK;
}

/* Writes all groups, expert by expert, and the pairs' tokens and weights in that order; ends[experts + 1] is scratch. Returns how
 * many groups there are. */
static int64_t make_groups(const struct fast *f, struct group *groups, int64_t pairs, int64_t *ends)
{
    const struct mixture *const m = f->m;
    int64_t n = 0;
    memset(ends, 0, (size_t)(m->experts + 1) * sizeof *ends);
    for (int64_t p = 0; p < pairs; p++)
        if (expert_of(m, p) >= 0)
            ends[expert_of(m, p) + 1]++;
    for (int64_t e = 0; e < m->experts; e++) {
        const int64_t count = ends[e + 1], some = group_rows(f->isa, count);
        for (int64_t from = 0; from < count; from += some)
            groups[n++] =
                (struct group){ .expert = e, .first = ends[e] + from, .pairs = count - from < some ? count - from : some };
        ends[e + 1] += ends[e];
    }
    for (int64_t p = 0; p < pairs; p++)
        if (expert_of(m, p) >= 0) {
            const int64_t at = ends[expert_of(m, p)]++;
            f->tokens[at] = p / m->choices;
            f->weights[at] = (float)router_weight(m, p);
        }
    return n;
}
static int run_groups(dv_context *ctx, struct fast *f, int64_t n)
{
    const int64_t k = f->m->k, columns = up(k, COLUMNS);
    int64_t pairs = 0;
    f->count = n;
    for (int64_t i = 0; i < n; i++)
        pairs += f->groups[i].pairs;
    const int64_t each = pairs / n * COLUMNS; /* multiplications for a number of a row of x, in a piece */
    int status = dv_parallel_for(ctx, 0, n, 1 + 4096 / (k * (pairs / n) + 1), pack_groups, f);
    if (!status)
        status = dv_parallel_for(ctx, 0, n * f->blocks, 1 + 4096 / (2 * each * k + 1), up_blocks, f);
    if (!status)
        status = dv_parallel_for(ctx, 0, columns, 1 + 4096 / (n * each * f->m->n + 1), down_blocks, f);
    return status;
}

static int run_fast(dv_context *ctx, const struct fused_experts *a, struct fast f)
{
    const struct mixture m = mixture_of(a);
    const int64_t tokens = a->hidden_states->shape[0], pairs = tokens * m.choices;
    const factor w1 = factor_of(&m.w1), w2 = factor_of(&m.w2);
    int status = check_ids(ctx, &m);
    if (status || !tokens || !m.k)
        return status;
    f.isa = w1.load || w2.load ? product_of_floats(f.isa) : f.isa;
    f.m = &m;
    f.w1 = &w1;
    f.w2 = &w2;
    f.blocks = up(m.n, COLUMNS);
    struct group *const groups = dv_alloc(ctx, (size_t)(pairs / f.isa->group + m.experts + 1) * sizeof *groups, 64);
    f.tokens = dv_alloc(ctx, (size_t)(pairs + m.experts + 1) * sizeof *f.tokens, 64);
    f.weights = dv_alloc(ctx, (size_t)(pairs + 1) * sizeof *f.weights, 64);
    f.sums = m.x->dtype.bits == 32 ? a->out->data : dv_alloc(ctx, (size_t)(tokens * m.k + DV_BLOCK) * sizeof *f.sums, 64);
    if (!groups || !f.tokens || !f.weights || !f.sums)
        return DV_ENOMEM;
    const int64_t n = make_groups(&f, groups, pairs, f.tokens + pairs);
    memset(f.sums, 0, (size_t)(tokens * m.k) * sizeof *f.sums);
    int64_t room = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t of = packed_size(f.isa, m.k, groups[i].pairs) + packed_size(f.isa, m.n, groups[i].pairs);
        room += of;
        most = of > most ? of : most;
    }
    f.packed = dv_alloc(ctx, (size_t)((room < ROOM ? room : ROOM) + most + 1) * sizeof *f.packed, 64);
    status = f.packed ? DV_OK : DV_ENOMEM;
    for (int64_t from = 0, to; from < n && !status; from = to) {
        room = 0;
        for (to = from; to < n && room <= ROOM; to++) {
            groups[to].x = room;
            groups[to].a = room += packed_size(f.isa, m.k, groups[to].pairs);
            room += packed_size(f.isa, m.n, groups[to].pairs);
        }
        f.groups = groups + from;
        status = run_groups(ctx, &f, to - from);
    }
    if (!status && f.sums != a->out->data)
        status = dv_parallel_for(ctx, 0, tokens, 1 + 4096 / m.k, store_tokens, &f);
    return status;
}
#define ACTIVATE(ISA, TARGET)                                                                       \
    TARGET static void activate_##ISA(const struct mixture *m, float *g, const float *u, int64_t n) \
    {                                                                                               \
        activate_fast(&dv_isa_##ISA, m, g, u, n);                                                   \
    }
#define ROW_OF(ISA, LINES)                                                                             \
    static int fused_experts_row_##ISA(dv_context *ctx, const struct fused_experts *a)                 \
    {                                                                                                  \
        return run_fast(ctx, a, (struct fast){ .isa = &product_##ISA, .activate = activate_##LINES }); \
    }
#define ROW(ISA, TARGET) ACTIVATE(ISA, TARGET) ROW_OF(ISA, ISA)
PRODUCT_EACH(ROW)
PRODUCT_AMX(ROW_OF)

/* ---- the gradient -------------------------------------------------------------------------------------------------------- */

struct backward {
    const dv_tensor *grad, *hidden_states, *w1, *w2, *topk_weights, *topk_ids;
    dv_string activation;
    bool apply_router_weight_on_input, quantised;
    const dv_tensor *expert_map, *w1_bias, *w2_bias;
    dv_tensor *grad_hidden, *grad_w1, *grad_w2, *grad_topk_weights, *grad_w1_bias, *grad_w2_bias;
};
/* Sums over tokens, and one pair's values. */
struct sums { double *w1, *w2, *b1, *b2, *hidden, *grad, *x, *h, *a, *da, *dh, *dx; };

/* A token and expert e, which it chose with this weight (the sum, if more than once). Returns the gradient of a weight. The
 * roundings in between are taken as if they were not there. */
static double back_pair(const struct mixture *x, const struct sums *s, int64_t e, double weight)
{
    const double c = x->on_input ? 1 : weight, first = x->on_input ? weight : 1;
    double of_weight = 0;
    for (int64_t r = 0; r < 2 * x->n; r++) {
        load_weights(x->row, &x->w1, e, r);
        s->h[r] = first * dot(s->x, x->row, x->k) + bias_of(&x->w1, e, r);
    }
    for (int64_t r = 0; r < x->n; r++) {
        double dg, du;
        s->a[r] = activate(x->activation, s->h[gate_at(x->activation, r)], s->h[up_at(x->activation, r, x->n)], &dg, &du);
        s->dh[gate_at(x->activation, r)] = dg;
        s->dh[up_at(x->activation, r, x->n)] = du;
    }
    memset(s->da, 0, (size_t)x->n * sizeof(double));
    for (int64_t r = 0; r < x->k; r++) {
        load_weights(x->row, &x->w2, e, r);
        of_weight += s->grad[r] * (dot(s->a, x->row, x->n) + bias_of(&x->w2, e, r));
        add_times(s->da, c * s->grad[r], x->row, x->n);
        add_times(s->w2 + (e * x->k + r) * x->n, c * s->grad[r], s->a, x->n);
        s->b2[e * x->k + r] += c * s->grad[r];
    }
    memset(s->dx, 0, (size_t)x->k * sizeof(double));
    for (int64_t r = 0; r < 2 * x->n; r++) {
        const int64_t of = x->activation == SWIGLUOAI ? r / 2 : r % x->n;
        const double dh = s->dh[r] * s->da[of];
        load_weights(x->row, &x->w1, e, r);
        add_times(s->dx, dh, x->row, x->k);
        add_times(s->w1 + (e * 2 * x->n + r) * x->k, first * dh, s->x, x->k);
        s->b1[e * 2 * x->n + r] += dh;
    }
    add_times(s->hidden, first, s->dx, x->k);
    return x->on_input ? dot(s->dx, s->x, x->k) : of_weight;
}

static int fused_experts_backward_any(dv_context *ctx, const struct backward *a)
{
    struct mixture x = { .w1 = { .q = a->w1, .bias = a->w1_bias },
        .w2 = { .q = a->w2, .bias = a->w2_bias },
        .x = a->hidden_states,
        .topk_weights = a->topk_weights,
        .ids = a->topk_ids,
        .map = a->expert_map,
        .activation = activation_of(a->activation),
        .on_input = a->apply_router_weight_on_input };
    if (a->quantised)
        return dv_error(ctx, DV_ENOTSUP, "fused_experts has no gradient with quantised weights");
    set_sizes(&x, a->w1, a->topk_ids);
    const int status = check_ids(ctx, &x);
    const int64_t n1 = dv_numel(a->w1), n2 = dv_numel(a->w2), b1 = x.experts * 2 * x.n, b2 = x.experts * x.k;
    const int64_t sums = n1 + n2 + b1 + b2, room = sums + 5 * x.k + 8 * x.n + 1;
    double *const memory = status ? NULL : dv_alloc(ctx, (size_t)room * sizeof(double), 64);
    if (!memory)
        return status ? status : DV_ENOMEM;
    struct sums s = { memory, memory + n1, memory + n1 + n2, memory + n1 + n2 + b1, memory + sums, 0, 0, 0, 0, 0, 0, 0 };
    s.grad = s.hidden + x.k;
    s.x = s.grad + x.k;
    s.dx = s.x + x.k;
    s.h = s.dx + x.k;
    s.dh = s.h + 2 * x.n;
    s.a = s.dh + 2 * x.n;
    s.da = s.a + x.n;
    x.row = s.da + x.n; /* of k or n */
    memset(memory, 0, (size_t)sums * sizeof(double));
    for (int64_t t = 0; t < x.x->shape[0]; t++) {
        load(s.x, x.x, t * x.k, x.k);
        load(s.grad, a->grad, t * x.k, x.k);
        memset(s.hidden, 0, (size_t)x.k * sizeof(double));
        const int64_t begin = t * x.choices, end = begin + x.choices;
        for (int64_t i = begin; i < end; i++) {
            const int64_t e = expert_of(&x, i);
            double weight = 0;
            bool seen = e < 0;
            if (seen)
                store(a->grad_topk_weights, i, &weight, 1);
            for (int64_t p = begin; p < i && !seen; p++)
                seen = expert_of(&x, p) == e;
            for (int64_t p = i; p < end && !seen; p++)
                weight += expert_of(&x, p) == e ? router_weight(&x, p) : 0;
            const double grad = seen || !x.k ? 0 : back_pair(&x, &s, e, weight);
            for (int64_t p = i; p < end && !seen; p++)
                if (p == i || expert_of(&x, p) == e)
                    store(a->grad_topk_weights, p, &grad, 1);
        }
        store(a->grad_hidden, t * x.k, s.hidden, x.k);
    }
    store(a->grad_w1, 0, s.w1, n1);
    store(a->grad_w2, 0, s.w2, n2);
    if (a->grad_w1_bias)
        store(a->grad_w1_bias, 0, s.b1, b1);
    if (a->grad_w2_bias)
        store(a->grad_w2_bias, 0, s.b2, b2);
    return DV_OK;
}

/* ---- declarations -------------------------------------------------------------------------------------------------------- */

#define MODEL                                                                                                               \
    "hidden_states[m k]:T, topk_weights[m j]:R, topk_ids[m j]:i32|i64, w1_bias[e 2*n]:B, w2_bias[e k]:B; "                  \
    "when present(expert_map): expert_map[g]:i32, topk_ids.values < g, expert_map.values < e / else: topk_ids.values < e; " \
    "T in f32 f16 bf16 f64; R == f32 or R == T; absent(w1_bias) and absent(w2_bias) or B == f32 or B == T; "                \
    "activation in \"silu\" \"gelu\" \"gelu_tanh\" \"swigluoai\"; not apply_router_weight_on_input or j == 1; "

/* Scales: one for each expert or row of weights, or for each block of block_shape (0 rows: of one row). */
#define SCALES                                                                                                                  \
    "when present(block_shape): w1_scale[e ceildiv(2*n, max(block_shape[0], 1)) ceildiv(k, max(block_shape[1], 1))]:S, "        \
    "w2_scale[e ceildiv(k, max(block_shape[0], 1)) ceildiv(n, max(block_shape[1], 1))]:S, block_shape[0] >= 0, block_shape[1] " \
    "> 0, "                                                                                                                     \
    "block_shape[2] / else: w1_scale[e *p]:S, w2_scale[e *q]:S, numel(*p) == 1 or numel(*p) == 2*n, numel(*q) == 1 or "         \
    "numel(*q) == k; S in f32 f16 bf16; "

#define WEIGHT "if(use_fp8_w8a8, f8_e4m3fn, if(use_int8_w8a8, i8, T))"

DV_OPERATOR(fused_experts, struct fused_experts,
    (hidden_states, w1, w2, topk_weights, topk_ids, activation, apply_router_weight_on_input, use_fp8_w8a8, use_int8_w8a8,
        use_int8_w8a16, use_int4_w4a16, ocp_mx_scheme, per_channel_quant, global_num_experts, expert_map, w1_scale, w2_scale,
        w1_zp, w2_zp, a1_scale, a2_scale, block_shape, w1_bias, w2_bias, out),
    .schema =
        "fused_experts(Tensor hidden_states, Tensor w1, Tensor w2, Tensor topk_weights, Tensor topk_ids, str "
        "activation=\"silu\", "
        "bool apply_router_weight_on_input=False, bool use_fp8_w8a8=False, bool use_int8_w8a8=False, bool use_int8_w8a16=False, "
        "bool use_int4_w4a16=False, str? ocp_mx_scheme=None, bool per_channel_quant=False, SymInt global_num_experts=-1, "
        "Tensor? expert_map=None, Tensor? w1_scale=None, Tensor? w2_scale=None, Tensor? w1_zp=None, Tensor? w2_zp=None, "
        "Tensor? a1_scale=None, Tensor? a2_scale=None, SymInt[]? block_shape=None, Tensor? w1_bias=None, Tensor? w2_bias=None) "
        "-> Tensor out",
    .contract = MODEL SCALES
    "a1_scale[*a1]:f32, a2_scale[*a2]:f32; numel(*a1) == 1; numel(*a2) == 1; absent(a1_scale) and absent(a2_scale) or "
    "(use_fp8_w8a8 or use_int8_w8a8) and absent(block_shape) and not per_channel_quant; "
    "when use_int4_w4a16: w1[e 2*n k/2]:u8, w2[e k n/2]:u8, w1_zp[e n ceildiv(k, max(block_shape[1], 1))]:u8, "
    "w2_zp[e k/2 ceildiv(n, max(block_shape[1], 1))]:u8, present(block_shape) or (absent(w1_zp) and absent(w2_zp)) "
    "/ use_int8_w8a16 and not use_int4_w4a16: w1[e 2*n k]:W, w2[e k n]:W, w1_zp[e 2*n ceildiv(k, max(block_shape[1], 1))]:W, "
    "w2_zp[e k ceildiv(n, max(block_shape[1], 1))]:W, W == i8 or W == u8, present(block_shape) or (absent(w1_zp) and "
    "absent(w2_zp)) "
    "/ else: w1[e 2*n k]:" WEIGHT ", w2[e k n]:" WEIGHT "; "
    "-> out[m k]:T; parallel(m); absent(ocp_mx_scheme); "
    "if(use_fp8_w8a8, 1, 0) + if(use_int8_w8a8, 1, 0) + if(use_int8_w8a16, 1, 0) + if(use_int4_w4a16, 1, 0) <= 1; "
    "present(w1_scale) == (use_fp8_w8a8 or use_int8_w8a8 or use_int8_w8a16 or use_int4_w4a16); "
    "present(w2_scale) == present(w1_scale); absent(block_shape) or present(w1_scale); "
    "not per_channel_quant or absent(block_shape); "
    "global_num_experts == -1 or global_num_experts >= e; absent(expert_map) or global_num_experts in -1 g; "
    "flops = 6*m*j*n*k",
    .gradient = "hidden_states, w1, w2, topk_weights, w1_bias, w2_bias: fused_experts_backward(grad, hidden_states, w1, w2, "
                "topk_weights, topk_ids, activation, apply_router_weight_on_input, present(w1_scale), expert_map, w1_bias, "
                "w2_bias); w1_scale, w2_scale, a1_scale, a2_scale: non_differentiable",
    .doc =
        "The experts of a mixture, after routing: each token goes to the experts in topk_ids, and their results are added with "
        "topk_weights. A negative id, or one that expert_map sends to a negative number, adds nothing; one that appears twice "
        "counts twice. act(gate) * up is rounded to the element type in between; sums are not rounded before the end.",
    .kernels = DV_KERNELS(PRODUCT_ROWS(struct fused_experts, fused_experts_row,
                              .when = "not use_fp8_w8a8 and not use_int8_w8a8 and not use_int4_w4a16"),
        DV_KERNEL(struct fused_experts, "cpu", NULL, fused_experts_reference, .split = 16, .flags = DV_KERNEL_REFERENCE)));

DV_OPERATOR(fused_experts_backward, struct backward,
    (grad, hidden_states, w1, w2, topk_weights, topk_ids, activation, apply_router_weight_on_input, quantised, expert_map,
        w1_bias, w2_bias, grad_hidden, grad_w1, grad_w2, grad_topk_weights, grad_w1_bias, grad_w2_bias),
    .schema = "fused_experts_backward(Tensor grad, Tensor hidden_states, Tensor w1, Tensor w2, Tensor topk_weights, Tensor "
              "topk_ids, str activation, bool apply_router_weight_on_input, bool quantised, Tensor? expert_map, Tensor? w1_bias, "
              "Tensor? w2_bias) -> (Tensor grad_hidden, Tensor grad_w1, Tensor grad_w2, Tensor grad_topk_weights, Tensor? "
              "grad_w1_bias, Tensor? grad_w2_bias)",
    .contract = MODEL
    "grad[m k]:T; when quantised: w1[e *v], w2[e *w] / else: w1[e 2*n k]:T, w2[e k n]:T; -> grad_hidden like(hidden_states), "
    "grad_w1 like(w1), grad_w2 like(w2), grad_topk_weights like(topk_weights); "
    "when present(w1_bias): -> grad_w1_bias like(w1_bias) / else: -> grad_w1_bias absent; "
    "when present(w2_bias): -> grad_w2_bias like(w2_bias) / else: -> grad_w2_bias absent; flops = "
    "18*numel(topk_ids)*(numel(w2)//max(e, 1))",
    .doc = "The gradients of fused_experts; the ids are constant. With quantised weights it is an error.",
    .kernels = DV_KERNELS(DV_KERNEL(struct backward, "cpu", NULL, fused_experts_backward_any, .flags = DV_KERNEL_REFERENCE)));

/* With the routing before it, as vLLM's older function of this name. */
struct fused_moe {
    const dv_tensor *hidden_states, *w1, *w2, *gating_output;
    int64_t topk;
    bool renormalize;
    dv_string activation;
    dv_tensor *out;
};
#define ROUTED "grouped_topk(gating_output, topk, renormalize)"
DV_OPERATOR(fused_moe, struct fused_moe, (hidden_states, w1, w2, gating_output, topk, renormalize, activation, out),
    .schema = "fused_moe(Tensor hidden_states, Tensor w1, Tensor w2, Tensor gating_output, int topk, bool renormalize, str "
              "activation=\"silu\") -> Tensor out",
    .contract = "hidden_states[m k]:T, w1[e 2*n k]:T, w2[e k n]:T, gating_output[m e]:G -> out[m k]:T; T in f32 f16 bf16 f64; "
                "G in f32 f16 bf16 f64; 0 <= topk <= e; activation in \"silu\" \"gelu\" \"gelu_tanh\" \"swigluoai\"; "
                "flops = 6*m*topk*n*k",
    .native = "fused_experts(hidden_states, w1, w2, " ROUTED "[0], " ROUTED "[1], activation)",
    .doc = "A mixture of experts: each token goes to the topk experts with the largest softmax of gating_output, by grouped_topk "
           "and fused_experts.");

/* Those of routing.c. */
DV__HIDDEN extern const dv_operator_decl dv_op_grouped_topk, dv_op_grouped_topk_backward, dv_op_topk_softmax;

DV_LIBRARY_FRAGMENT(dovetail, fused_experts, &dv_op_fused_experts, &dv_op_fused_experts_backward, &dv_op_fused_moe,
    &dv_op_grouped_topk, &dv_op_grouped_topk_backward, &dv_op_topk_softmax);
