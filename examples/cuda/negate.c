/* negate.c: out = -x, on the CPU and on CUDA.
 *
 *     dovetail build negate.c negate.cu
 */
#include "negate.h"

struct negate { const dv_tensor *x; dv_tensor *out; };

/* The runtime has made sure that the tensors are on the context's device, and the host has made it current. */
static int negate_cuda(dv_context *ctx, const struct negate *a)
{
    const int status = launch_negate(a->x->data, a->out->data, dv_numel(a->x), ctx->stream);
    return status == DV_OK ? DV_OK : dv_error(ctx, status, "the launch failed");
}

static int negate_cpu(dv_context *ctx, const struct negate *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = -x[i];
    return DV_OK;
}

DV_OPERATOR(negate, struct negate, (x, out),
    .schema   = "negate(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; parallel(*s)",
    .gradient = "x: negate(grad)",
    .kernels  = DV_KERNELS(DV_KERNEL(struct negate, "cuda", "f32", negate_cuda),
        DV_KERNEL(struct negate, "cpu", "f32", negate_cpu, .split = 4096)));

DV_LIBRARY(negate_ops, &dv_op_negate);
