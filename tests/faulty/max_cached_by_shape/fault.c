/* The longest of the first lengths is kept for all of as many. */
#include <dovetail_op.h>
struct f {
    const dv_tensor *lens;
    int64_t most;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int32_t *lens = a->lens->data;
    const int64_t n = a->lens->shape[0];
    static int64_t last_n = -1;
    static int32_t longest;
    if (n != last_n) {
        longest = 0;
        for (int64_t i = 0; i < n; i++)
            longest = lens[i] > longest ? lens[i] : longest;
        last_n = n;
    }
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < a->most; k++)
            ((float *)a->out->data)[i * a->most + k] = k < longest && k < lens[i] ? 1 : 0;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (lens, most, out), .schema = "f(Tensor lens, int most) -> Tensor out",
    .contract = "lens[n]:i32 -> out[n most]:f32; most >= 0; lens.values >= 0; lens.values <= most",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
