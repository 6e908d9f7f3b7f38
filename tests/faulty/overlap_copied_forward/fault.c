/* The fault: the schema lets `from` lie in the memory of `to`, and where it begins before `to` its elements are written before
 * they are read. */
#include <dovetail_op.h>

struct halve_into {
    dv_tensor *to;
    const dv_tensor *from;
};
static int halve_into_f32(dv_context *ctx, const struct halve_into *a)
{
    float *to = a->to->data;
    const float *from = a->from->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->to); i < n; i++)
        to[i] = from[i] / 2;
    return DV_OK;
}
DV_OPERATOR(halve_into, struct halve_into, (to, from), .schema = "halve_into(Tensor(a!) to, Tensor(a) from) -> ()",
    .contract = "to[m n]:f32, from[m n]:f32", .native = "to: from / 2",
    .kernels = DV_KERNELS(DV_KERNEL(struct halve_into, "cpu", "f32", halve_into_f32)));
DV_LIBRARY(faulty, &dv_op_halve_into);
