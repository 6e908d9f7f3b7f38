/* numpy_sin.c: sin(input), written into an output that the caller gives */
#include <dovetail_elementwise.h>

struct numpy_sin {
    const dv_tensor *input;
    dv_tensor *output;
};

static int numpy_sin_reference(dv_context *ctx, const struct numpy_sin *a)
{
    const uint32_t t = dv_dtype_key(a->input->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->input); i < n; i++)
        dv_put_f64(a->output->data, i, t, sin(dv_get_f64(a->input->data, i, t)));
    return DV_OK;
}

/* Almost all blocks hold only small numbers; the others take a longer reduction, or the exact one. */
DV_INLINE void sin_f32(float *const *out, const float *const *in, void *with)
{
    int32_t largest = 0; /* |x| as bits: they are in the order of the numbers, and NaN comes last */
    (void)with;
    DV_BLOCK_LOOP
    {
        const int32_t bits = (int32_t)(dv__bits_of_f32(in[0][i]) & 0x7fffffffu);
        largest = bits > largest ? bits : largest;
    }
    const float most = dv__f32_from_bits((uint32_t)largest);
    float x[DV_BLOCK]; /* out may be in */
    if (most <= DV_SINF_NEAR) {
        DV_BLOCK_LOOP
        out[0][i] = dv_sinf_near(in[0][i]);
        return;
    }
    memcpy(x, in[0], sizeof x);
    DV_BLOCK_LOOP /* each element in its own way, whatever the others are */
        out[0][i] = dv_fabsf(x[i]) <= DV_SINF_NEAR ? dv_sinf_near(x[i]) : dv_sinf_small(x[i]);
    for (int i = 0; i < DV_BLOCK && !(most <= DV_SINF_SMALL); i++)
        if (!(dv_fabsf(x[i]) <= DV_SINF_SMALL))
            out[0][i] = sinf(x[i]);
}
DV_INLINE void sin_f64(double *const *out, const double *const *in, void *with)
{
    int64_t large = 0;
    (void)with;
    DV_BLOCK_LOOP
    large |= !(dv_fabs(in[0][i]) <= DV_SIN_SMALL);
    double x[DV_BLOCK];
    memcpy(x, in[0], sizeof x);
    DV_BLOCK_LOOP
    out[0][i] = dv_sin_small(x[i]);
    for (int i = 0; i < DV_BLOCK && large; i++)
        if (!(dv_fabs(x[i]) <= DV_SIN_SMALL))
            out[0][i] = sin(x[i]);
}

DV_INLINE int numpy_sin_row(dv_context *ctx, const struct numpy_sin *a, const dv_isa *isa)
{
    (void)ctx;
    dv_blocks(ctx, isa, dv_numel(a->input), DV_OUT(a->output), DV_IN(a->input), NULL, sin_f32, sin_f64);
    return DV_OK;
}
DV_ISAS(struct numpy_sin, numpy_sin_row)

DV_OPERATOR(numpy_sin, struct numpy_sin, (input, output), .schema = "numpy_sin(Tensor input, Tensor(a!) output) -> ()",
    .contract = "input[*s]:T, output[*s]:T; T in f32 f64 bf16 f16; parallel(*s)", .native = "output: sin(input)",
    .gradient = "input: grads[0] * cos(input); output: zeros_like(grads[0])",
    .doc = "output = sin(input), in place: nothing is returned. For angles of any size.",
    .kernels = DV_KERNELS(DV_BF16_ROW(struct numpy_sin, numpy_sin_row, .split = 16384)
                              DV_ISA_ROWS(struct numpy_sin, numpy_sin_row, "f32 f64 bf16 f16", .split = 16384),
        DV_KERNEL(struct numpy_sin, "cpu", "f32 f64 bf16 f16", numpy_sin_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, numpy_sin, &dv_op_numpy_sin);
