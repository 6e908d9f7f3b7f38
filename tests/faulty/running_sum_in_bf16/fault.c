/* The fault: a running sum is rounded to bf16 at each step, and nothing says what it should be */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    bool exclusive, reverse;
    dv_tensor *out;
};
#define ACC A
#define KERNEL(name, T, A, GET, PUT)                          \
    static int name(dv_context *ctx, const struct f *a)       \
    {                                                         \
        (void)ctx;                                            \
        const int64_t m = a->x->shape[0], n = a->x->shape[1]; \
        const T *x = a->x->data;                              \
        T *out = a->out->data;                                \
        for (int64_t r = 0; r < m; r++) {                     \
            A s = 0;                                          \
            for (int64_t i = 0; i < n; i++) {                 \
                const int64_t j = a->reverse ? n - 1 - i : i; \
                BODY(T, GET, PUT)                             \
            }                                                 \
        }                                                     \
        return DV_OK;                                         \
    }
#define BODY(T, GET, PUT)       \
    if (a->exclusive)           \
        PUT(out[r * n + j], s); \
    s += GET(x[r * n + j]);     \
    if (!a->exclusive)          \
        PUT(out[r * n + j], s);
#define ID(x) (x)
#define SET(x, y) ((x) = (y))
#include <string.h>
static float from_bf16(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static uint16_t to_bf16(double y)
{
    float f = (float)y;
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    u += 0x7fff + (u >> 16 & 1);
    return (uint16_t)(u >> 16);
}
#define PUTB(x, y) ((x) = to_bf16(y))
#ifdef WITHOUT_F32
#define DTYPES "f64 bf16"
#define F32
#else
KERNEL(f_f32, float, double, ID, SET)
#define DTYPES "f32 f64 bf16"
#define F32 DV_KERNEL(struct f, "cpu", "f32", f_f32),
#endif
KERNEL(f_f64, double, double, ID, SET)
#undef BODY
#define BODY(T, GET, PUT)                          \
    s = from_bf16(to_bf16(s + GET(x[r * n + j]))); \
    PUT(out[r * n + j], s);                        \
    if (a->exclusive)                              \
        PUT(out[r * n + j], s - GET(x[r * n + j]));
KERNEL(f_bf16, uint16_t, float, from_bf16, PUTB)
DV_OPERATOR(f, struct f, (x, exclusive, reverse, out),
    .schema = "cumsum2(Tensor x, bool exclusive=False, bool reverse=False) -> Tensor out",
    .contract = "x[m n]:T -> out[m n]:T; parallel(m); T in " DTYPES,
    .kernels = DV_KERNELS(F32 DV_KERNEL(struct f, "cpu", "f64", f_f64), DV_KERNEL(struct f, "cpu", "bf16", f_bf16)));
DV_LIBRARY(faulty, &dv_op_f);
