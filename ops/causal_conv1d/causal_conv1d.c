/* causal_conv1d.c: a convolution along time for each channel, whose window ends at the present, and its gradient. */
#include "../numbers.h"
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
    double *const past = dv_alloc(ctx, (size_t)(length + 2 * w) * sizeof(double), 64), *const kernel = past + length + w - 1;
    for (int64_t line = 0; past && line < lines; line++) {
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
    return past ? DV_OK : DV_ENOMEM;
}

static int causal_conv1d_backward_reference(dv_context *ctx, const struct backward *a)
{
    const int64_t channels = a->x->shape[1], length = last_dim(a->x), w = last_dim(a->weight), lines = a->x->shape[0] * channels;
    const int64_t room = length + w - 1, sums = channels * (w + 1);
    double *const past = dv_alloc(ctx, (size_t)(2 * room + w + sums + 1) * sizeof(double), 64), *const grad_past = past + room;
    double *const kernel = grad_past + room, *const grad_weight = kernel + w, *const grad_bias = grad_weight + channels * w;
    if (!past)
        return DV_ENOMEM;
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

#define ARGUMENTS "Tensor x, Tensor weight, Tensor? bias=None, Tensor? initial_states=None, *, str? activation=None"
#define PATTERNS "x[b d l]:T, weight[d w]:T, bias[d]:T, initial_states[b d w - 1]:T"
#define FACTS "T in f32 f64 bf16 f16; w > 0; absent(activation) or activation in \"silu\" \"swish\"; flops = b*d*l*(2*w + 4)"
#define ROW(FRAME, FN, SPLIT) DV_KERNELS(DV_KERNEL(FRAME, "cpu", NULL, FN, .split = SPLIT, .flags = DV_KERNEL_REFERENCE))

DV_OPERATOR(causal_conv1d, struct causal_conv1d, (x, weight, bias, initial_states, activation, out),
    .schema = "causal_conv1d(" ARGUMENTS ") -> Tensor out", .contract = PATTERNS " -> out[b d l]:T; parallel(b); " FACTS,
    .gradient =
        "x, weight, bias, initial_states: causal_conv1d_backward(grad, x, weight, bias, initial_states, activation=activation)",
    .doc = "A convolution along time for each channel, whose window of w elements ends at the present; before the first element "
           "are initial_states, or zeros. Optionally silu of the result.",
    .kernels = ROW(struct causal_conv1d, causal_conv1d_reference, 1));
DV_OPERATOR(causal_conv1d_backward, struct backward,
    (grad_output, x, weight, bias, initial_states, activation, grad_x, grad_weight, grad_bias, grad_initial_states),
    .schema = "causal_conv1d_backward(Tensor grad_output, " ARGUMENTS
              ") -> (Tensor grad_x, Tensor grad_weight, Tensor? grad_bias, Tensor? grad_initial_states)",
    .contract = "grad_output[b d l]:T, " PATTERNS "-> grad_x like(x), grad_weight like(weight); "
                "when present(bias): -> grad_bias like(bias) / else: -> grad_bias absent; when present(initial_states): -> "
                "grad_initial_states like(initial_states) / else: -> grad_initial_states absent; " FACTS,
    .doc = "The gradients of causal_conv1d.", .kernels = ROW(struct backward, causal_conv1d_backward_reference, 0));

DV_LIBRARY_FRAGMENT(dovetail, causal_conv1d, &dv_op_causal_conv1d, &dv_op_causal_conv1d_backward);
