/* linear.c: input times the rows of weight, plus bias. A row of weight is read once for up to CHUNK rows of the input. */
#include "../numbers.h"

enum { CHUNK = 64 };

struct linear {
    const dv_tensor *input, *weight, *bias, *weight_scale;
    dv_tensor *out;
};

static int linear_reference(dv_context *ctx, const struct linear *a)
{
    const int64_t k = last_dim(a->input), n = a->weight->shape[0], rows = dv_numel_leading(a->input, a->input->ndim - 1);
    const int64_t chunk = rows < CHUNK ? rows : CHUNK;
    double *const row = dv_alloc(ctx, (size_t)(k + chunk * k + 1) * sizeof(double), 64), *const x = row + k;
    if (!row)
        return DV_ENOMEM;
    for (int64_t begin = 0; begin < rows; begin += CHUNK) {
        const int64_t some = rows - begin < CHUNK ? rows - begin : CHUNK;
        load(x, a->input, begin * k, some * k);
        for (int64_t i = 0; i < n; i++) {
            double bias = 0, scale = 1;
            load(row, a->weight, i * k, k);
            if (a->bias)
                load(&bias, a->bias, i, 1);
            if (a->weight_scale)
                load(&scale, a->weight_scale, i, 1);
            for (int64_t j = 0; j < k; j++)
                row[j] *= scale;
            for (int64_t r = 0; r < some; r++) {
                const double y = dot(x + r * k, row, k) + bias;
                store(a->out, (begin + r) * n + i, &y, 1);
            }
        }
    }
    return DV_OK;
}

#define WEIGHT "transpose(if(present(weight_scale), type_as(weight * unsqueeze(weight_scale, 1), input), weight), 0, 1)"
#define PRODUCT "squeeze(matmul(unsqueeze(input, -2), " WEIGHT "), -2)"

DV_OPERATOR(linear, struct linear, (input, weight, bias, weight_scale, out),
    .schema = "linear(Tensor input, Tensor weight, Tensor? bias=None, Tensor? weight_scale=None) -> Tensor out",
    .contract = "input[*s k]:T, weight[n k]:W, bias[n]:T, weight_scale[n]:S -> out[*s n]:T; T in f32 f64 bf16 f16; S in f32 bf16 "
                "f16; W == T or W == i8; present(weight_scale) == (W == i8); parallel(*s); flops = numel(*s)*n*(2*k + 2)",
    .native = "if(present(bias), " PRODUCT " + bias, " PRODUCT ")",
    .doc = "input times the transposed weight, plus bias. int8 weights have a scale for each row.",
    .kernels = DV_KERNELS(DV_KERNEL(struct linear, "cpu", NULL, linear_reference, .split = 16, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, linear, &dv_op_linear);
