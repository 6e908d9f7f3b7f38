/* routing.c: routing: which experts a token goes to, and with which weights. Experts are taken by score, the lower index
 * first among equals. */
#include "../numbers.h"
#include "../topk.h"

/* scores: logits become their softmax, or the sigmoid of each. */
static void score(double *scores, int64_t n, bool sigmoid)
{
    double most = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = scores[i] > most ? scores[i] : most;
    for (int64_t i = 0; i < n; i++) {
        scores[i] = sigmoid ? 1 / (1 + exp(-scores[i])) : exp(scores[i] - most);
        sum += scores[i];
    }
    for (int64_t i = 0; i < n && !sigmoid; i++)
        scores[i] /= sum;
}

struct routing {
    const dv_tensor *gating, *bias, *weights, *ids;
    int64_t groups, kept_groups;
    bool renormalize, sigmoid;
    double factor;
};

/* With bias a group's score is the sum of its two best, else its best. */
static double group_score(const double *chosen_by, int64_t n, bool bias)
{
    top_hit best[2];
    top t = { best, 0, bias && n > 1 ? 2 : 1 };
    for (int64_t i = 0; i < n; i++)
        top_add(&t, chosen_by[i], i);
    return best[0].score + (t.most == 2 ? best[1].score : 0);
}

/* memory: 2 * e doubles, then groups + k hits */
static void route(const struct routing *r, int64_t token, double *memory)
{
    const int64_t e = last_dim(r->gating), k = last_dim(r->weights), size = e / r->groups;
    double *const scores = memory, *const chosen_by = memory + e;
    double sum = 0;
    top groups = { (top_hit *)(void *)(memory + 2 * e), 0, r->kept_groups }, best = { groups.hits + r->groups, 0, k };
    load(scores, r->gating, token * e, e);
    score(scores, e, r->sigmoid);
    memset(chosen_by, 0, (size_t)e * sizeof(double));
    if (r->bias)
        load(chosen_by, r->bias, 0, e);
    add_times(chosen_by, 1, scores, e);
    for (int64_t g = 0; g < r->groups; g++)
        top_add(&groups, group_score(chosen_by + g * size, size, r->bias), g);
    for (int64_t g = 0; g < groups.size; g++)
        for (int64_t i = groups.hits[g].index * size, end = i + size; i < end; i++)
            top_add(&best, chosen_by[i], i);
    top_sort(&best);
    for (int64_t j = 0; j < k; j++)
        sum += scores[best.hits[j].index];
    for (int64_t j = 0; j < k; j++) {
        const double weight = scores[best.hits[j].index] / (r->renormalize ? sum : 1) * r->factor;
        store(r->weights, token * k + j, &weight, 1);
        if (r->ids->dtype.bits == 64)
            ((int64_t *)r->ids->data)[token * k + j] = best.hits[j].index;
        else
            ((int32_t *)r->ids->data)[token * k + j] = (int32_t)best.hits[j].index;
    }
}

static int route_all(dv_context *ctx, const struct routing *r)
{
    const int64_t e = last_dim(r->gating), tokens = r->gating->shape[0];
    const size_t hits = (size_t)(r->groups + last_dim(r->weights)) * sizeof(top_hit);
    double *const memory = dv_alloc(ctx, (size_t)(2 * e + 1) * sizeof(double) + hits, 64);
    for (int64_t t = 0; memory && t < tokens; t++)
        route(r, t, memory);
    return memory ? DV_OK : DV_ENOMEM;
}

struct grouped_topk {
    const dv_tensor *gating_output;
    int64_t topk;
    bool renormalize;
    int64_t num_expert_group, topk_group;
    dv_string scoring_func;
    double routed_scaling_factor;
    const dv_tensor *e_score_correction_bias;
    dv_tensor *topk_weights, *topk_ids;
};
static int grouped_topk_reference(dv_context *ctx, const struct grouped_topk *a)
{
    return route_all(ctx,
        &(struct routing){ a->gating_output, a->e_score_correction_bias, a->topk_weights, a->topk_ids, a->num_expert_group,
            a->topk_group, a->renormalize, a->scoring_func.data[1] == 'i', a->routed_scaling_factor });
}

#define FLOATS "T in f32 f16 bf16 f64"
#define WEIGHT "if(T == f64, f64, f32)"
#define ROW(FRAME, FN, ...) DV_KERNELS(DV_KERNEL(FRAME, "cpu", NULL, FN, .flags = DV_KERNEL_REFERENCE, __VA_ARGS__))

DV_OPERATOR(grouped_topk, struct grouped_topk,
    (gating_output, topk, renormalize, num_expert_group, topk_group, scoring_func, routed_scaling_factor, e_score_correction_bias,
        topk_weights, topk_ids),
    .schema = "grouped_topk(Tensor gating_output, int topk, bool renormalize, int num_expert_group=1, int topk_group=1, str "
              "scoring_func=\"softmax\", float routed_scaling_factor=1.0, Tensor? e_score_correction_bias=None) -> (Tensor "
              "topk_weights, Tensor topk_ids)",
    .contract =
        "gating_output[t e]:T, e_score_correction_bias[e]:B -> topk_weights[t topk]:" WEIGHT ", topk_ids[t topk]:i32; " FLOATS
        "; B in f32 f16 bf16 f64; scoring_func in \"softmax\" \"sigmoid\"; num_expert_group > 0; e % num_expert_group == 0; "
        "0 < topk_group <= num_expert_group; 0 <= topk; topk <= topk_group*(e//num_expert_group); parallel(t)",
    .gradient = "gating_output: grouped_topk_backward(grads[0], topk_ids, gating_output, renormalize, scoring_func, "
                "routed_scaling_factor); e_score_correction_bias: non_differentiable",
    .doc = "The topk experts of each token among those of its topk_group best groups, best first, and their scores; by "
           "score + bias, with the scores themselves as weights. renormalize divides them by their sum, before the factor.",
    .kernels = ROW(struct grouped_topk, grouped_topk_reference, .split = 16));

/* w_j = factor s_j (/ sum of the chosen s): back to s, and to the logits. */
struct backward {
    const dv_tensor *grad, *topk_ids, *gating_output;
    bool renormalize;
    dv_string scoring_func;
    double routed_scaling_factor;
    dv_tensor *grad_gating;
};
static int grouped_topk_backward_reference(dv_context *ctx, const struct backward *a)
{
    const bool sigmoid = a->scoring_func.data[1] == 'i';
    const int64_t e = last_dim(a->gating_output), k = last_dim(a->grad), tokens = a->gating_output->shape[0];
    double *const s = dv_alloc(ctx, (size_t)(2 * e + 1) * sizeof(double), 64);
    for (int64_t i = 0; i < tokens * k; i++)
        if (get_int(a->topk_ids, i) < 0 || get_int(a->topk_ids, i) >= e)
            return dv_error(ctx, DV_EINVAL, "argument 'topk_ids': expected an expert from 0 to %lld, found %lld",
                (long long)e - 1, (long long)get_int(a->topk_ids, i));
    if (!s)
        return DV_ENOMEM;
    double *const ds = s + e;
    for (int64_t t = 0; t < tokens; t++) {
        double sum = 0, weighted = 0, mean = 0, grad;
        load(s, a->gating_output, t * e, e);
        score(s, e, sigmoid);
        memset(ds, 0, (size_t)e * sizeof(double));
        for (int64_t j = t * k; j < (t + 1) * k; j++) {
            load(&grad, a->grad, j, 1);
            sum += s[get_int(a->topk_ids, j)];
            weighted += grad * s[get_int(a->topk_ids, j)];
        }
        for (int64_t j = t * k; j < (t + 1) * k; j++) {
            load(&grad, a->grad, j, 1);
            ds[get_int(a->topk_ids, j)] += a->routed_scaling_factor * (a->renormalize ? (grad - weighted / sum) / sum : grad);
        }
        for (int64_t i = 0; i < e && !sigmoid; i++)
            mean += ds[i] * s[i];
        for (int64_t i = 0; i < e; i++)
            ds[i] = sigmoid ? ds[i] * s[i] * (1 - s[i]) : s[i] * (ds[i] - mean);
        store(a->grad_gating, t * e, ds, e);
    }
    return DV_OK;
}
DV_OPERATOR(grouped_topk_backward, struct backward,
    (grad, topk_ids, gating_output, renormalize, scoring_func, routed_scaling_factor, grad_gating),
    .schema =
        "grouped_topk_backward(Tensor grad, Tensor topk_ids, Tensor gating_output, bool renormalize, str scoring_func, float "
        "routed_scaling_factor) -> Tensor grad_gating",
    .contract = "grad[t k]:G, topk_ids[t k]:i32, gating_output[t e]:T -> grad_gating[t e]:T; " FLOATS
                "; 0 <= topk_ids.values < e; G in f32 f64; scoring_func in \"softmax\" \"sigmoid\"; parallel(t)",
    .doc = "The gradient of grouped_topk's weights with respect to the logits; the ids are constant.",
    .kernels = ROW(struct backward, grouped_topk_backward_reference, .split = 16));

/* vLLM's: results are written to given tensors. token_expert_indices[t, j] is j * tokens + t. */
struct topk_softmax {
    dv_tensor *topk_weights, *topk_indices, *token_expert_indices;
    const dv_tensor *gating_output;
    bool renormalize;
    const dv_tensor *bias;
};
static int topk_softmax_reference(dv_context *ctx, const struct topk_softmax *a)
{
    const int64_t tokens = a->gating_output->shape[0], k = last_dim(a->topk_weights);
    const int status = route_all(
        ctx, &(struct routing){ a->gating_output, a->bias, a->topk_weights, a->topk_indices, 1, 1, a->renormalize, false, 1 });
    for (int64_t i = 0; !status && i < tokens * k; i++)
        ((int32_t *)a->token_expert_indices->data)[i] = (int32_t)(i % k * tokens + i / k);
    return status;
}
DV_OPERATOR(topk_softmax, struct topk_softmax,
    (topk_weights, topk_indices, token_expert_indices, gating_output, renormalize, bias),
    .schema = "topk_softmax(Tensor(a!) topk_weights, Tensor(b!) topk_indices, Tensor(c!) token_expert_indices, Tensor "
              "gating_output, bool renormalize=False, Tensor? bias=None) -> ()",
    .contract =
        "topk_weights[t k]:f32, topk_indices[t k]:i32|i64, token_expert_indices[t k]:i32, gating_output[t e]:T, bias[e]:B; "
        "k <= e; t*k <= 2147483647; " FLOATS "; B in f32 f16 bf16 f64",
    .doc = "The k experts with the largest softmax of the logits (plus bias), best first, and their softmax, divided by its sum "
           "if renormalize. vLLM's operator of this name.",
    .kernels = ROW(struct topk_softmax, topk_softmax_reference, .split = 0));
