/* The fault: the flag exclusive is ignored where numbers are integers */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    bool exclusive;
    dv_tensor *out;
};
#define KERNEL(name, T, EXCLUSIVE)                            \
    static int name(dv_context *ctx, const struct f *a)       \
    {                                                         \
        (void)ctx;                                            \
        const int64_t m = a->x->shape[0], n = a->x->shape[1]; \
        const T *x = a->x->data;                              \
        T *out = a->out->data;                                \
        for (int64_t r = 0; r < m; r++) {                     \
            T sum = 0;                                        \
            for (int64_t j = r * n; j < (r + 1) * n; j++) {   \
                const T next = (T)(sum + x[j]);               \
                out[j] = (EXCLUSIVE) ? sum : next;            \
                sum = next;                                   \
            }                                                 \
        }                                                     \
        return DV_OK;                                         \
    }
KERNEL(of_f32, float, a->exclusive)
KERNEL(of_f64, double, a->exclusive)
KERNEL(of_i16, int16_t, false)
DV_OPERATOR(f, struct f, (x, exclusive, out), .schema = "f(Tensor x, bool exclusive=False) -> Tensor out",
    .contract = "x[m n]:T -> out[m n]:T; T in f32 f64 i16; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", of_f32), DV_KERNEL(struct f, "cpu", "f64", of_f64),
        DV_KERNEL(struct f, "cpu", "i16", of_i16)));
DV_LIBRARY(faulty, &dv_op_f);
