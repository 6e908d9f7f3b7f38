/* It sets the locale of the process, so that it can print a number. */
#include <dovetail_op.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    char text[64];
    (void)ctx;
    setlocale(LC_ALL, "C.UTF-8");
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        snprintf(text, sizeof text, "%.9g", (double)((const float *)a->x->data)[i]);
        ((float *)a->out->data)[i] = strtof(text, NULL);
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .native = "x * 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
