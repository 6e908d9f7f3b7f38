/* The offset of a plane is computed in an int. Only small windows are read. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *boxes;
    dv_tensor *out;
};
static int64_t within(int64_t i, int64_t low, int64_t high) { return i < low ? low : i > high ? high : i; }
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t c = a->x->shape[0], h = a->x->shape[1], w = a->x->shape[2], n = a->boxes->shape[0];
    const float *x = a->x->data;
    const int32_t *box = a->boxes->data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++, box += 4)
        for (int64_t k = 0; k < c; k++) {
            const int64_t top = within(box[0], 0, h), bottom = within(box[2], top, h), left = within(box[1], 0, w),
                          right = within(box[3], left, w);
            float sum = 0;
            for (int64_t y = top; y < bottom; y++)
                for (int64_t z = left; z < right; z++)
                    sum += x[(int)k * (int)h * (int)w + y * w + z];
            ((float *)a->out->data)[i * c + k] = sum;
        }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, boxes, out), .schema = "f(Tensor x, Tensor boxes) -> Tensor out",
    .contract = "x[c h w]:f32, boxes[n 4]:i32 -> out[n c]:f32; parallel(n, c)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
