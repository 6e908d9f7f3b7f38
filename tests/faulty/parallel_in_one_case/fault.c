/* Running sums along the first or the last dim. The first case says that rows are independent, and they are not. */
#include <dovetail_op.h>
struct running {
    const dv_tensor *x;
    dv_string along;
    dv_tensor *out;
};
static int running_f32(dv_context *ctx, const struct running *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1], back = a->along.data[0] == 'r' ? n : 1;
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++) {
            const bool first = back == 1 ? !k : !i;
            out[i * n + k] = x[i * n + k] + (first ? 0 : out[i * n + k - back]);
        }
    return DV_OK;
}

DV_OPERATOR(running, struct running, (x, along, out), .schema = "running(Tensor x, str along) -> Tensor out",
    .contract = "when along == \"rows\": x[m n]:T, parallel(m) -> out[m n]:T / \"columns\": x[m n]:T, parallel(m) -> out[m n]:T; "
                "T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct running, "cpu", "f32", running_f32)));
DV_LIBRARY(parallel_in_one_case, &dv_op_running);
