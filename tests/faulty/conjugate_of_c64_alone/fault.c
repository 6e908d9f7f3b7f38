/* The fault: the flag conj is followed where numbers are c64, and not where they are c128 */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x, *y;
    bool conj;
    dv_tensor *out;
};
#define KERNEL(name, T, SIGN)                                        \
    static int name(dv_context *ctx, const struct f *a)              \
    {                                                                \
        (void)ctx;                                                   \
        const T *x = a->x->data, *y = a->y->data;                    \
        T *out = a->out->data;                                       \
        for (int64_t i = 0, n = 2 * dv_numel(a->x); i < n; i += 2) { \
            const T im = (SIGN) ? -y[i + 1] : y[i + 1];              \
            out[i] = x[i] * y[i] - x[i + 1] * im;                    \
            out[i + 1] = x[i] * im + x[i + 1] * y[i];                \
        }                                                            \
        return DV_OK;                                                \
    }
KERNEL(of_c64, float, a->conj)
KERNEL(of_c128, double, false)
DV_OPERATOR(f, struct f, (x, y, conj, out), .schema = "f(Tensor x, Tensor y, bool conj=False) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; T in c64 c128; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "c64", of_c64), DV_KERNEL(struct f, "cpu", "c128", of_c128)));
DV_LIBRARY(faulty, &dv_op_f);
