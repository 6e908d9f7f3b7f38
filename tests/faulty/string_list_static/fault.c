/* The lengths of the first call's strings are used by all later calls. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_strings names;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    static size_t letters;
    static bool known;
    if (!known)
        for (size_t k = 0; k < a->names.size; k++)
            letters += a->names.data[k].size;
    known = true;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + (float)letters;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, names, out), .schema = "f(Tensor x, str[] names) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
