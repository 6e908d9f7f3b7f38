/* The fault: of the tensors of a list that follow the one which is done, only one is passed, also if it is empty */
#include <dovetail_op.h>
#define F(t) ((float *)(t)->data)

struct foreach_lerp_ {
    dv_mut_tensors xs;
    dv_tensors ys;
    double weight;
};

struct job {
    const struct foreach_lerp_ *a;
    bool good;
};
static int piece(void *arg, int64_t begin, int64_t end)
{
    const struct job *job = arg;
    const struct foreach_lerp_ *a = job->a;
    size_t t = 0;
    int64_t first = 0;
    while (first + dv_numel(a->xs.data[t]) <= begin)
        first += dv_numel(a->xs.data[t++]);
    for (int64_t i = begin; i < end; i++) {
        if (job->good)
            while (i - first >= dv_numel(a->xs.data[t]))
                first += dv_numel(a->xs.data[t++]);
        else if (i - first >= dv_numel(a->xs.data[t])) /* one step: an empty tensor between two others is not passed */
            first += dv_numel(a->xs.data[t++]);
        float *x = F(a->xs.data[t]);
        x[i - first] += (float)a->weight * (F(a->ys.data[t])[i - first] - x[i - first]);
    }
    return DV_OK;
}

DV_INLINE int body(dv_context *ctx, const struct foreach_lerp_ *a, const bool good)
{
    int64_t total = 0;
    for (size_t t = 0; t < a->xs.size; t++)
        total += dv_numel(a->xs.data[t]);
    struct job j = { a, good };
    return dv_parallel_for(ctx, 0, total, 4096, piece, &j);
}
static int foreach_lerp__row(dv_context *ctx, const struct foreach_lerp_ *a) { return body(ctx, a, false); }
static int foreach_lerp__reference(dv_context *ctx, const struct foreach_lerp_ *a) { return body(ctx, a, true); }

DV_OPERATOR(foreach_lerp_, struct foreach_lerp_, (xs, ys, weight),
    .schema = "foreach_lerp_(Tensor(a!)[] xs, Tensor[] ys, float weight=0.5) -> ()",
    .contract = "xs{i}[*s{i}]:f32, ys{i}[*s{i}]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct foreach_lerp_, "cpu", "f32", foreach_lerp__row),
        DV_KERNEL(struct foreach_lerp_, "cpu", "f32", foreach_lerp__reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY(empty_in_list, &dv_op_foreach_lerp_);
