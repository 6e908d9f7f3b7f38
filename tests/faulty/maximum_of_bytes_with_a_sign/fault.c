/* The fault: bytes without a sign are compared as if they had one */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
#define KERNEL(name, T, AS)                                               \
    static int name(dv_context *ctx, const struct f *a)                   \
    {                                                                     \
        (void)ctx;                                                        \
        const int64_t m = a->x->shape[0], n = a->x->shape[1];             \
        const T *x = a->x->data;                                          \
        T *out = a->out->data;                                            \
        for (int64_t r = 0; r < m; r++) {                                 \
            T most = x[r * n];                                            \
            for (int64_t j = 1; j < n; j++)                               \
                most = (AS)x[r * n + j] > (AS)most ? x[r * n + j] : most; \
            out[r] = most;                                                \
        }                                                                 \
        return DV_OK;                                                     \
    }
KERNEL(of_u8, uint8_t, int8_t)
KERNEL(of_i32, int32_t, int32_t)
KERNEL(of_i64, int64_t, int64_t)
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[m n]:T -> out[m]:T; T in u8 i32 i64; n > 0; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "u8", of_u8), DV_KERNEL(struct f, "cpu", "i32", of_i32),
        DV_KERNEL(struct f, "cpu", "i64", of_i64)));
DV_LIBRARY(faulty, &dv_op_f);
