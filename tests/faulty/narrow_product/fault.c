/* The product of two bytes is a byte before it is widened. No kernel takes i64. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};

#define KERNEL(T)                                                                \
    static int f_##T(dv_context *ctx, const struct f *a)                         \
    {                                                                            \
        const T *x = a->x->data, *y = a->y->data;                                \
        (void)ctx;                                                               \
        for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)                      \
            ((int64_t *)a->out->data)[i] = (T)((uint32_t)x[i] * (uint32_t)y[i]); \
        return DV_OK;                                                            \
    }
KERNEL(int8_t)
KERNEL(int16_t)
KERNEL(int32_t)

DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:i64; T in i8 i16 i32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i8", f_int8_t), DV_KERNEL(struct f, "cpu", "i16", f_int16_t),
        DV_KERNEL(struct f, "cpu", "i32", f_int32_t)));
DV_LIBRARY(faulty, &dv_op_f);
