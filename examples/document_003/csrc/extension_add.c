/* extension_add.c: self + other, and its gradient, which both arguments get */
#include <dovetail_ascend.h>

#include "function.h"

struct my_op {
    const dv_tensor *self, *other;
    dv_tensor *result;
};

static int my_op_f32(dv_context *ctx, const struct my_op *a)
{
    const float *self = a->self->data, *other = a->other->data;
    float *result = a->result->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->result); i < n; i++)
        result[i] = self[i] + other[i];
    return DV_OK;
}

DV_OPERATOR(my_op, struct my_op, (self, other, result), .schema = "my_op(Tensor self, Tensor other) -> Tensor",
    .contract = "self[*s]:f32, other[*s]:f32 -> [*s]:f32; parallel(*s)", .native = "self + other",
    .gradient = "self, other: my_op_backward(grad)",
    .kernels = DV_KERNELS(
        DV_ACLNN("f32", "AddCustom", "self, other, result"), DV_KERNEL(struct my_op, "cpu", "f32", my_op_f32, .split = 4096)));

struct my_op_backward {
    const dv_tensor *self;
    dv_tensor *grad_self, *grad_other;
};

static int my_op_backward_f32(dv_context *ctx, const struct my_op_backward *a)
{
    const size_t size = (size_t)dv_numel(a->self) * sizeof(float);
    (void)ctx;
    if (size) {
        memcpy(a->grad_self->data, a->self->data, size);
        memcpy(a->grad_other->data, a->self->data, size);
    }
    return DV_OK;
}

DV_OPERATOR(my_op_backward, struct my_op_backward, (self, grad_self, grad_other),
    .schema = "my_op_backward(Tensor self) -> (Tensor, Tensor)", .contract = "self[*s]:f32 -> [*s]:f32, [*s]:f32; parallel(*s)",
    .native = "(self * 1, self * 1)", .gradient = "self: grads[0] + grads[1]",
    .kernels = DV_KERNELS(DV_KERNEL(struct my_op_backward, "cpu", "f32", my_op_backward_f32)));
