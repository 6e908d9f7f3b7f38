/* scale_by_layer.c: each row of x times the scale of a layer, which the host knows by name */
#include "layer.h"
#include <dovetail_op.h>

struct scale_by_layer {
    const dv_tensor *x;
    dv_string layer_name;
    dv_tensor *out;
};

static int scale_by_layer_f32(dv_context *ctx, const struct scale_by_layer *a)
{
    const struct layer *layer = dv_object(ctx, a->layer_name.data);
    const float *x = a->x->data;
    float *out = a->out->data;
    if (!layer)
        return DV_ENOENT; /* the message is set */
    if (layer->columns != a->x->shape[1])
        return dv_error(ctx, DV_ESHAPE, "layer_name '%s': expected x of %lld columns, found %lld", a->layer_name.data,
            (long long)layer->columns, (long long)a->x->shape[1]);
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = x[i] * layer->scale[i % layer->columns];
    return DV_OK;
}

DV_OPERATOR(scale_by_layer, struct scale_by_layer, (x, layer_name, out),
    .schema = "scale_by_layer(Tensor x, str layer_name) -> Tensor out", .contract = "x[m n]:T -> out[m n]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale_by_layer, "cpu", "f32", scale_by_layer_f32)));

DV_LIBRARY(layers, &dv_op_scale_by_layer);
