/* causal_conv1d.c: a convolution along time for each channel, whose window ends at the present, and its gradient. */
#include "../lines.h"
#include <math.h>

struct causal_conv1d {
    const dv_tensor *x, *weight, *bias, *initial_states;
    dv_opt_string activation;
    dv_tensor *out;
};
struct backward {
    const dv_tensor *grad_output, *x, *weight, *bias, *initial_states;
    dv_opt_string activation;
    dv_tensor *grad_x, *grad_weight, *grad_bias, *grad_initial_states;
};

/* Of one channel of one sequence: past[w - 1 + length] are its states and then x; kernel[w]. */
static double at_time(const double *past, const double *kernel, int64_t w, int64_t t, double bias)
{
    return dot(past + t, kernel, w) + bias;
}
static void load_past(double *past, const dv_tensor *states, const dv_tensor *x, int64_t line, int64_t w)
{
    const int64_t length = last_dim(x);
    memset(past, 0, (size_t)(w - 1) * sizeof(double));
    if (states)
        load(past, states, line * (w - 1), w - 1);
    load(past + w - 1, x, line * length, length);
}

static int causal_conv1d_reference(dv_context *ctx, const struct causal_conv1d *a)
{
    const int64_t channels = a->x->shape[1], length = last_dim(a->x), w = last_dim(a->weight), lines = a->x->shape[0] * channels;
    double *const past = dv_alloc(ctx, (size_t)(length + 2 * w) * sizeof(double), 64);
    if (!past)
        return DV_ENOMEM;
    double *const kernel = past + length + w - 1;
    for (int64_t line = 0; line < lines; line++) {
        double bias = 0;
        load_past(past, a->initial_states, a->x, line, w);
        load(kernel, a->weight, line % channels * w, w);
        if (a->bias)
            load(&bias, a->bias, line % channels, 1);
        for (int64_t t = 0; t < length; t++) {
            double y = at_time(past, kernel, w, t, bias);
            y = a->activation.has ? y / (1 + exp(-y)) : y;
            store(a->out, line * length + t, &y, 1);
        }
    }
    return DV_OK;
}

static int causal_conv1d_backward_reference(dv_context *ctx, const struct backward *a)
{
    const int64_t channels = a->x->shape[1], length = last_dim(a->x), w = last_dim(a->weight), lines = a->x->shape[0] * channels;
    const int64_t room = length + w - 1, sums = channels * (w + 1);
    double *const past = dv_alloc(ctx, (size_t)(2 * room + w + sums + 1) * sizeof(double), 64);
    if (!past)
        return DV_ENOMEM;
    double *const grad_past = past + room, *const kernel = grad_past + room, *const grad_weight = kernel + w,
                  *const grad_bias = grad_weight + channels * w;
    memset(grad_weight, 0, (size_t)sums * sizeof(double));
    for (int64_t line = 0; line < lines; line++) {
        const int64_t c = line % channels;
        double bias = 0, grad;
        load_past(past, a->initial_states, a->x, line, w);
        load(kernel, a->weight, c * w, w);
        memset(grad_past, 0, (size_t)room * sizeof(double));
        if (a->bias)
            load(&bias, a->bias, c, 1);
        for (int64_t t = 0; t < length; t++) {
            const double y = at_time(past, kernel, w, t, bias), s = 1 / (1 + exp(-y));
            load(&grad, a->grad_output, line * length + t, 1);
            grad *= a->activation.has ? s * (1 + y * (1 - s)) : 1;
            add_times(grad_past + t, grad, kernel, w);
            add_times(grad_weight + c * w, grad, past + t, w);
            grad_bias[c] += grad;
        }
        store(a->grad_x, line * length, grad_past + w - 1, length);
        if (a->grad_initial_states)
            store(a->grad_initial_states, line * (w - 1), grad_past, w - 1);
    }
    store(a->grad_weight, 0, grad_weight, channels * w);
    if (a->grad_bias)
        store(a->grad_bias, 0, grad_bias, channels);
    return DV_OK;
}

/* ---- in float, with lanes along time --------------------------------------------------------------------------------------
 * A piece is some channels, of all sequences. `past` has room for a window behind the last block. */

struct channels {
    const dv_tensor *x, *weight, *bias, *states;
    bool silu;
    const dv_tensor *out;        /* forward */
    const struct backward *back; /* or backward */
};
static int64_t room_of(const struct channels *c) { return line_room(last_dim(c->x)) + line_room(2 * last_dim(c->weight)); }

/* to[t] = start + sum over j < w of kernel[j] * from[t + j * step] */
DV_INLINE void slide(float *to, const float *from, const float *kernel, int64_t w, int64_t step, int64_t n, float start)
{
    for (int64_t t = 0; t < n; t += DV_BLOCK) {
        dv_lanes a = start - (dv_lanes){ 0 }, b = a, c = a, d = a;
        for (int64_t j = 0; j < w; j++) {
            const float *const at = from + t + j * step;
            a += LANES(at) * kernel[j], b += LANES(at + 16) * kernel[j];
            c += LANES(at + 32) * kernel[j], d += LANES(at + 48) * kernel[j];
        }
        LANES(to + t) = a, LANES(to + t + 16) = b, LANES(to + t + 32) = c, LANES(to + t + 48) = d;
    }
}

/* The sum of n products a b, or of a. */
DV_INLINE double sum_of(const float *a, const float *b, int64_t n)
{
    const int64_t whole = n / DV_BLOCK * DV_BLOCK;
    double sum;
    if (b)
        SUM_BLOCKS(sum, whole, v = LANES(a + k) * LANES(b + k))
    else
        SUM_BLOCKS(sum, whole, v = LANES(a + k))
    for (int64_t i = whole; i < n; i++)
        sum += b ? (double)a[i] * (double)b[i] : (double)a[i];
    return sum;
}

DV_INLINE int channels_of(
    void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa_functions *isa, load_fn load_floats, store_fn store_floats)
{
    const struct channels *const c = arg;
    const struct backward *const back = c->back;
    const int64_t batch = c->x->shape[0], channels = c->x->shape[1], n = last_dim(c->x), w = last_dim(c->weight),
                  room = room_of(c);
    float *const past = scratch, *const y = past + room, *const grad = y + room, *const kernel = grad + room;
    double *const sums = (double *)(void *)(kernel + line_room(w));
    memset(scratch, 0, (size_t)(3 * room) * sizeof(float));
    for (int64_t channel = begin; channel < end; channel++) {
        const float bias = c->bias ? dv_get(c->bias->data, channel, dv_dtype_key(c->bias->dtype)) : 0;
        load_floats(kernel, c->weight, channel * w, w, 0);
        memset(sums, 0, (size_t)(w + 1) * sizeof *sums);
        for (int64_t b = 0; b < batch; b++) {
            const int64_t line = b * channels + channel;
            if (c->states)
                load_floats(past, c->states, line * (w - 1), w - 1, 0);
            load_floats(past + w - 1, c->x, line * n, n, 0);
            if (!back || c->silu)
                slide(y, past, kernel, w, 1, n, bias);
            if (back)
                load_floats(grad + w - 1, back->grad_output, line * n, n, 0);
            for (int64_t t = 0; t < n && c->silu; t += DV_BLOCK) {
                float e[DV_BLOCK], *const at = y + t, *const g = grad + w - 1 + t;
                DV_BLOCK_LOOP
                e[i] = -at[i];
                dv_block_exp(isa, e, e, 0);
                if (back)
                    DV_BLOCK_LOOP
                    {
                        const float s = 1 / (1 + e[i]);
                        g[i] *= s * (1 + at[i] * (1 - s));
                    }
                else
                    DV_BLOCK_LOOP
                at[i] /= 1 + e[i];
            }
            if (!back) {
                store_floats(c->out, line * n, y, n);
                continue;
            }
            for (int64_t j = 0; j < w; j++)
                sums[j] += sum_of(grad + w - 1, past + j, n);
            sums[w] += sum_of(grad + w - 1, NULL, n);
            slide(y, grad + w - 1, kernel, w, -1, n + w - 1, 0); /* the gradient of what the window saw */
            for (int64_t t = 0; t < n + w - 1; t = t + 1 == w - 1 && n > w - 1 ? n : t + 1) { /* where it saw less */
                y[t] = 0;
                for (int64_t j = t < n ? 0 : t - n + 1; j < w && j <= t; j++)
                    y[t] += grad[w - 1 + t - j] * kernel[j];
            }
            store_floats(back->grad_x, line * n, y + w - 1, n);
            if (back->grad_initial_states)
                store_floats(back->grad_initial_states, line * (w - 1), y, w - 1);
        }
        for (int64_t j = 0; back && j < w; j++)
            dv_put_f64(back->grad_weight->data, channel * w + j, dv_dtype_key(back->grad_weight->dtype), sums[j]);
        if (back && back->grad_bias)
            dv_put_f64(back->grad_bias->data, channel, dv_dtype_key(back->grad_bias->dtype), sums[w]);
    }
    return DV_OK;
}
static int run_channels(dv_context *ctx, const struct channels *c, dv_scratch_fn piece)
{
    const int64_t channels = c->x->shape[1], work = c->x->shape[0] * (last_dim(c->x) + 1) * last_dim(c->weight);
    const size_t floats = (size_t)(3 * room_of(c) + line_room(last_dim(c->weight)));
    return dv_parallel_scratch(ctx, 0, channels, 1 + 32768 / (work + 1),
        floats * sizeof(float) + (size_t)(last_dim(c->weight) + 1) * sizeof(double), piece, (void *)(uintptr_t)c);
}
/* A long window is for the reference: its sums lose digits in float. */
enum { LONG = 16 };
#define ROWS(ISA, TARGET)                                                                                                     \
    LOAD_LINE(ISA, TARGET)                                                                                                    \
    STORE_LINE(ISA, TARGET)                                                                                                   \
    TARGET static int channels_##ISA(void *arg, int64_t begin, int64_t end, void *scratch)                                    \
    {                                                                                                                         \
        return channels_of(arg, begin, end, scratch, &dv_isa_##ISA, load_##ISA, store_##ISA);                                 \
    }                                                                                                                         \
    static int causal_conv1d_row_##ISA(dv_context *ctx, const struct causal_conv1d *a)                                        \
    {                                                                                                                         \
        const struct channels c = { a->x, a->weight, a->bias, a->initial_states, a->activation.has, a->out, NULL };           \
        return last_dim(a->weight) > LONG ? causal_conv1d_reference(ctx, a) : run_channels(ctx, &c, channels_##ISA);          \
    }                                                                                                                         \
    static int causal_conv1d_backward_row_##ISA(dv_context *ctx, const struct backward *a)                                    \
    {                                                                                                                         \
        const struct channels c = { a->x, a->weight, a->bias, a->initial_states, a->activation.has, NULL, a };                \
        return last_dim(a->weight) > LONG ? causal_conv1d_backward_reference(ctx, a) : run_channels(ctx, &c, channels_##ISA); \
    }
FOR_EACH_ISA(ROWS)

#define ARGUMENTS "Tensor x, Tensor weight, Tensor? bias=None, Tensor? initial_states=None, *, str? activation=None"
#define PATTERNS "x[b d l]:T, weight[d w]:T, bias[d]:T, initial_states[b d w - 1]:T"
#define FACTS "T in f32 f64 bf16 f16; w > 0; absent(activation) or activation in \"silu\" \"swish\"; flops = b*d*l*(2*w + 4)"
#define EACH_ROW(FRAME, FN, SPLIT)                                          \
    DV_KERNELS(DV_ISA_KERNELS(FRAME, FN##_row, "f32 bf16 f16", .flags = 0), \
        DV_KERNEL(FRAME, "cpu", NULL, FN##_reference, .split = SPLIT, .flags = DV_KERNEL_REFERENCE))

DV_OPERATOR(causal_conv1d, struct causal_conv1d, (x, weight, bias, initial_states, activation, out),
    .schema = "causal_conv1d(" ARGUMENTS ") -> Tensor out", .contract = PATTERNS " -> out[b d l]:T; parallel(b); " FACTS,
    .gradient =
        "x, weight, bias, initial_states: causal_conv1d_backward(grad, x, weight, bias, initial_states, activation=activation)",
    .doc = "A convolution along time for each channel, whose window of w elements ends at the present; before the first element "
           "are initial_states, or zeros. Optionally silu of the result.",
    .kernels = EACH_ROW(struct causal_conv1d, causal_conv1d, 1));
DV_OPERATOR(causal_conv1d_backward, struct backward,
    (grad_output, x, weight, bias, initial_states, activation, grad_x, grad_weight, grad_bias, grad_initial_states),
    .schema = "causal_conv1d_backward(Tensor grad_output, " ARGUMENTS
              ") -> (Tensor grad_x, Tensor grad_weight, Tensor? grad_bias, Tensor? grad_initial_states)",
    .contract = "grad_output[b d l]:T, " PATTERNS "-> grad_x like(x), grad_weight like(weight); "
                "when present(bias): -> grad_bias like(bias) / else: -> grad_bias absent; when present(initial_states): -> "
                "grad_initial_states like(initial_states) / else: -> grad_initial_states absent; " FACTS,
    .doc = "The gradients of causal_conv1d.", .kernels = EACH_ROW(struct backward, causal_conv1d_backward, 0));

DV_LIBRARY_FRAGMENT(dovetail, causal_conv1d, &dv_op_causal_conv1d, &dv_op_causal_conv1d_backward);
