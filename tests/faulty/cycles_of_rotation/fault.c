/* The fault: x is rotated in one cycle where the shift and n have a common divisor and the shift does not divide n */
#include <dovetail_op.h>
#define F(t) ((float *)(t)->data)

struct roll_ {
    dv_tensor *x;
    int64_t shift;
};

DV_INLINE int body(dv_context *ctx, const struct roll_ *a, const bool good)
{
    (void)ctx;
    const int64_t n = a->x->shape[0];
    if (n < 2)
        return DV_OK;
    const int64_t shift = (a->shift % n + n) % n;
    if (!shift)
        return DV_OK;
    int64_t g = n, r = shift;
    while (r) {
        const int64_t t = g % r;
        g = r, r = t;
    }
    const int64_t cycles = good ? g : n % shift == 0 ? shift : 1; /* the gcd only where shift divides n */
    for (int64_t c = 0; c < cycles; c++) {
        float hold = F(a->x)[c];
        int64_t i = c;
        do {
            i = (i + shift) % n;
            const float next = F(a->x)[i];
            F(a->x)[i] = hold, hold = next;
        } while (i != c);
    }
    return DV_OK;
}
static int roll__row(dv_context *ctx, const struct roll_ *a) { return body(ctx, a, false); }
static int roll__reference(dv_context *ctx, const struct roll_ *a) { return body(ctx, a, true); }

DV_OPERATOR(roll_, struct roll_, (x, shift), .schema = "roll_(Tensor(a!) x, int shift=1) -> ()", .contract = "x[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct roll_, "cpu", "f32", roll__row),
        DV_KERNEL(struct roll_, "cpu", "f32", roll__reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY(cycles_of_rotation, &dv_op_roll_);
