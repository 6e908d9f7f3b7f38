/* A word is copied into an array of 16 letters, however long it is. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_string name;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    char name[16] = "";
    strncpy(name, a->name.data, a->name.size);
    volatile char *letters = name;
    int sum = 0;
    (void)ctx;
    for (size_t i = 0; i < sizeof name; i++)
        sum += letters[i];
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + (float)sum;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, name, out), .schema = "f(Tensor x, str name) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
