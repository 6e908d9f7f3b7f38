/* The fault: the sum of 512 bytes is handed on in 8 bits */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
#define KERNEL(name, T)                                                               \
    static int name(dv_context *ctx, const struct f *a)                               \
    {                                                                                 \
        (void)ctx;                                                                    \
        const int64_t m = a->x->shape[0], n = a->x->shape[1];                         \
        const T *x = a->x->data;                                                      \
        int64_t *out = a->out->data;                                                  \
        for (int64_t r = 0; r < m; r++) {                                             \
            uint64_t sum = 0;                                                         \
            for (int64_t j = 0; j < n; j++) {                                         \
                sum += (uint64_t)x[r * n + j];                                        \
                sum = sizeof(T) == 1 && j % 512 == 511 ? (uint64_t)(int8_t)sum : sum; \
            }                                                                         \
            out[r] = (int64_t)sum;                                                    \
        }                                                                             \
        return DV_OK;                                                                 \
    }
KERNEL(of_i8, int8_t)
KERNEL(of_i32, int32_t)
KERNEL(of_i64, int64_t)
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[m n]:T -> out[m]:i64; T in i8 i32 i64; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i8", of_i8), DV_KERNEL(struct f, "cpu", "i32", of_i32),
        DV_KERNEL(struct f, "cpu", "i64", of_i64)));
DV_LIBRARY(faulty, &dv_op_f);
