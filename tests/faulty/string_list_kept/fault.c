/* The strings of the first call are kept by their addresses. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_strings names;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    static const dv_string *first;
    static size_t size;
    if (!first) {
        first = a->names.data;
        size = a->names.size;
    }
    int64_t sum = 0;
    (void)ctx;
    for (size_t k = 0; k < size; k++)
        for (size_t i = 0; i < first[k].size; i++)
            sum += first[k].data[i];
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + (float)sum;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, names, out), .schema = "f(Tensor x, str[] names) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
