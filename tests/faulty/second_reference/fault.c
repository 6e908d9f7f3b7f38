/* The fault: the row for i32 takes the magnitude of the second number; each dtype has a reference row of its own */
#include <dovetail_op.h>
#include <stdlib.h>

struct add {
    const dv_tensor *x, *y;
    dv_tensor *out;
};

#define ADD(NAME, T, OF)                                    \
    static int NAME(dv_context *ctx, const struct add *a)   \
    {                                                       \
        const T *x = a->x->data, *y = a->y->data;           \
        (void)ctx;                                          \
        for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) \
            ((T *)a->out->data)[i] = x[i] + OF(y[i]);       \
        return DV_OK;                                       \
    }
ADD(add_f32, float, )
ADD(add_i32, int32_t, abs)
ADD(add_f32_reference, float, )
ADD(add_i32_reference, int32_t, )

DV_OPERATOR(add, struct add, (x, y, out), .schema = "add(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; T in f32 i32",
    .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", "f32", add_f32), DV_KERNEL(struct add, "cpu", "i32", add_i32),
        DV_KERNEL(struct add, "cpu", "f32", add_f32_reference, .flags = DV_KERNEL_REFERENCE),
        DV_KERNEL(struct add, "cpu", "i32", add_i32_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_add);
