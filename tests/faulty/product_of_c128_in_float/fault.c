/* The fault: the product of c128 is computed in float */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
#define KERNEL(name, T)                                                  \
    static int name(dv_context *ctx, const struct f *a)                  \
    {                                                                    \
        (void)ctx;                                                       \
        const T *x = a->x->data, *y = a->y->data;                        \
        T *out = a->out->data;                                           \
        for (int64_t i = 0, n = 2 * dv_numel(a->x); i < n; i += 2) {     \
            const float r = (float)(x[i] * y[i] - x[i + 1] * y[i + 1]);  \
            const float im = (float)(x[i] * y[i + 1] + x[i + 1] * y[i]); \
            out[i] = (T)r;                                               \
            out[i + 1] = (T)im;                                          \
        }                                                                \
        return DV_OK;                                                    \
    }
KERNEL(of_c64, float)
KERNEL(of_c128, double)
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; T in c64 c128; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "c64", of_c64), DV_KERNEL(struct f, "cpu", "c128", of_c128)));
DV_LIBRARY(faulty, &dv_op_f);
