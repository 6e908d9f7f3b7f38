/* adamw_step.c: one step of AdamW on lists of parameters, in place. */
#include "../numbers.h"
#include <dovetail_elementwise.h>
#include <math.h>

struct adamw_step {
    dv_mut_tensors params;
    dv_tensors grads;
    dv_mut_tensors exp_avgs, exp_avg_sqs, max_exp_avg_sqs;
    int64_t step;
    double lr, beta1, beta2, eps, weight_decay;
    bool amsgrad, maximize;
};

static void step_one(const struct adamw_step *a, size_t k)
{
    const dv_tensor *const p = a->params.data[k], *const m = a->exp_avgs.data[k], *const v = a->exp_avg_sqs.data[k];
    const double scale = a->lr / (1 - pow(a->beta1, (double)a->step)), root = sqrt(1 - pow(a->beta2, (double)a->step));
    for (int64_t i = 0, n = dv_numel(p); i < n; i++) {
        double g, param, mean, square, most;
        load(&g, a->grads.data[k], i, 1);
        load(&param, p, i, 1);
        load(&mean, m, i, 1);
        load(&square, v, i, 1);
        g = a->maximize ? -g : g;
        mean += (1 - a->beta1) * (g - mean);
        square = a->beta2 * square + (1 - a->beta2) * g * g;
        most = square;
        if (a->amsgrad) {
            load(&most, a->max_exp_avg_sqs.data[k], i, 1);
            most = square > most || isnan(square) ? square : most;
            store(a->max_exp_avg_sqs.data[k], i, &most, 1);
        }
        param -= a->lr * a->weight_decay * param + scale * mean / (sqrt(most) / root + a->eps);
        store(p, i, &param, 1);
        store(m, i, &mean, 1);
        store(v, i, &square, 1);
    }
}

static int adamw_step_reference(dv_context *ctx, const struct adamw_step *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->params.size; k++)
        step_one(a, k);
    return DV_OK;
}

/* The same in blocks, in float where no tensor is f64. */
struct rates {
    const struct adamw_step *a;
    size_t k;
    double scale, root;
};
enum { GRAD, PARAM, MEAN, SQUARE, MOST, ALL }; /* inputs; results are those behind GRAD */
#define STEP(NAME, NUMBER, SQRT, AMSGRAD)                                                                                   \
    DV_INLINE void NAME(NUMBER *const *out, const NUMBER *const *in, void *with)                                            \
    {                                                                                                                       \
        const struct rates *const r = with;                                                                                 \
        const struct adamw_step *const a = r->a;                                                                            \
        const NUMBER new_mean = (NUMBER)(1 - a->beta1), old_square = (NUMBER)a->beta2, new_square = (NUMBER)(1 - a->beta2); \
        const NUMBER sign = a->maximize ? -1 : 1, decay = (NUMBER)(a->lr * a->weight_decay), eps = (NUMBER)a->eps;          \
        const NUMBER scale = (NUMBER)r->scale, root = (NUMBER)(1 / r->root);                                                \
        DV_BLOCK_LOOP                                                                                                       \
        {                                                                                                                   \
            const NUMBER g = in[GRAD][i] * sign, mean = in[MEAN][i] + new_mean * (g - in[MEAN][i]);                         \
            const NUMBER square = old_square * in[SQUARE][i] + new_square * g * g, before = AMSGRAD ? in[MOST][i] : square; \
            const NUMBER most = ((square > before) | (square != square)) ? square : before;                                 \
            const NUMBER p = in[PARAM][i];                                                                                  \
            out[PARAM - 1][i] = p - (decay * p + scale * mean / (SQRT(most) * root + eps));                                 \
            out[MEAN - 1][i] = mean, out[SQUARE - 1][i] = square;                                                           \
            if (AMSGRAD)                                                                                                    \
                out[MOST - 1][i] = most;                                                                                    \
        }                                                                                                                   \
    }
STEP(step_f32, float, sqrtf, false)
STEP(step_f64, double, sqrt, false)
STEP(amsgrad_f32, float, sqrtf, true)
STEP(amsgrad_f64, double, sqrt, true)

DV_INLINE int step_piece(void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa_functions *isa)
{
    struct rates *const r = arg;
    const struct adamw_step *const a = r->a;
    const int all = a->amsgrad ? ALL : MOST;
    const dv_tensor *const those[] = { a->grads.data[r->k], a->params.data[r->k], a->exp_avgs.data[r->k],
        a->exp_avg_sqs.data[r->k], a->amsgrad ? a->max_exp_avg_sqs.data[r->k] : NULL };
    const dv_tensor *in[ALL];
    const int64_t size = end - begin;
    dv_tensor parts[ALL], *out[ALL];
    (void)scratch;
    for (int i = 0; i < all; i++) {
        parts[i] = *those[i];
        parts[i].data = (char *)those[i]->data + begin * (those[i]->dtype.bits / 8);
        parts[i].ndim = 1, parts[i].shape = &size;
        in[i] = out[i] = &parts[i];
    }
    if (a->amsgrad)
        dv_for_each_block(isa, size, out + 1, all - 1, in, all, r, amsgrad_f32, amsgrad_f64);
    else
        dv_for_each_block(isa, size, out + 1, all - 1, in, all, r, step_f32, step_f64);
    return DV_OK;
}
static int adamw_step_row(dv_context *ctx, const struct adamw_step *a, dv_scratch_fn piece)
{
    struct rates r = {
        .a = a, .scale = a->lr / (1 - pow(a->beta1, (double)a->step)), .root = sqrt(1 - pow(a->beta2, (double)a->step))
    };
    int status = DV_OK;
    for (; r.k < a->params.size && !status; r.k++)
        status = dv_parallel_scratch(ctx, 0, dv_numel(a->params.data[r.k]), 16384, 64, piece, &r);
    return status;
}
DV_ISA_VARIANTS_LOOP(struct adamw_step, adamw_step_row, step_piece)

DV_OPERATOR(adamw_step_, struct adamw_step,
    (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, step, lr, beta1, beta2, eps, weight_decay, amsgrad, maximize),
    .schema = "adamw_step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] "
              "max_exp_avg_sqs, int step, *, float lr=0.001, float beta1=0.9, float beta2=0.999, float eps=1e-08, float "
              "weight_decay=0.01, bool amsgrad=False, bool maximize=False) -> ()",
    .contract = "params{i}[*s{i}]:T, grads{i}[*s{i}]:G, exp_avgs{i}[*s{i}]:M, exp_avg_sqs{i}[*s{i}]:M; "
                "when amsgrad: max_exp_avg_sqs{i}[*s{i}]:M / else: max_exp_avg_sqs{i}[...], len(max_exp_avg_sqs) == 0; "
                "T in f32 f64 bf16 f16; G in f32 f64 bf16 f16; M in f32 f64 bf16 f16; step > 0; 0 <= beta1 < 1; 0 <= beta2 < 1",
    .doc = "One step of AdamW on all parameters, in place; step counts from 1. With amsgrad max_exp_avg_sqs has a tensor for "
           "each parameter, else it is empty. maximize goes up the gradient.",
    .kernels = DV_KERNELS(DV_ISA_KERNELS(struct adamw_step, adamw_step_row, NULL),
        DV_KERNEL(struct adamw_step, "cpu", NULL, adamw_step_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, adamw_step, &dv_op_adamw_step_);
