/* One word for each tensor: "sum", "mean" or "max". A list of words other than the first is taken as "sum". */
#include <dovetail_op.h>
#include <math.h>

struct f {
    dv_tensors xs;
    dv_strings how;
    dv_mut_tensors out;
};
static int f(dv_context *ctx, const struct f *a)
{
    if (a->how.size != a->xs.size)
        return dv_error(ctx, DV_EINVAL, "f: expected %zu words, one for each tensor, found %zu", a->xs.size, a->how.size);
    for (size_t k = 0; k < a->xs.size; k++) {
        const float *x = a->xs.data[k]->data;
        const int64_t n = dv_numel(a->xs.data[k]);
        float sum = 0;
        const char *how = a->how.data[k + 1].data;
        for (int64_t i = 0; i < n; i++)
            sum += x[i];
        *(float *)a->out.data[k]->data = strcmp(how, "mean") ? sum : sum / (float)n;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (xs, how, out), .schema = "f(Tensor[] xs, str[] how) -> Tensor[] out",
    .contract = "xs{i}[n{i}]:f32 -> out{i}[]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
