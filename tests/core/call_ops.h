/* The operators that the tests of the call use, declared as an author would. */
#ifndef TEST_CALL_OPS_H
#define TEST_CALL_OPS_H

#include "dovetail.h"

#include <math.h>

/* ---- elementwise, split over threads ---- */

struct swiglu { const dv_tensor *gate, *up; dv_tensor *out; };
static int swiglu_f32(dv_context *ctx, const struct swiglu *a)
{
    const float *gate = a->gate->data, *up = a->up->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
    return DV_OK;
}
DV_OPERATOR(swiglu, struct swiglu, (gate, up, out),
    .schema = "swiglu(Tensor gate, Tensor up) -> Tensor out",
    .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct swiglu, "cpu", "f32", swiglu_f32, .split = 4096)));

#endif
