/* The flag is ignored: the kernel looks for the first place in any case. */
#include <dovetail_op.h>
struct f {
    const dv_tensor *edges, *x;
    bool right;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int32_t *edges = a->edges->data, *x = a->x->data;
    int64_t *out = a->out->data, n = dv_numel(a->edges);
    (void)ctx;
    for (int64_t i = 0, m = dv_numel(a->x); i < m; i++) {
        int64_t at = 0;
        while (at < n && edges[at] < x[i])
            at++;
        out[i] = at;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (edges, x, right, out), .schema = "f(Tensor edges, Tensor x, bool right=False) -> Tensor out",
    .contract = "edges[n]:i32, x[*s]:i32 -> out[*s]:i64; sorted(edges); parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
