/* add_custom_autograd.c: self + other, and its gradient, which both arguments get */
#include "ops_function.h"

struct add_custom {
    const dv_tensor *self, *other;
    dv_tensor *result;
};

static int add_custom_f32(dv_context *ctx, const struct add_custom *a)
{
    const float *self = a->self->data, *other = a->other->data;
    float *result = a->result->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->result); i < n; i++)
        result[i] = self[i] + other[i];
    return DV_OK;
}

DV_OPERATOR(add_custom, struct add_custom, (self, other, result), .schema = "add_custom(Tensor self, Tensor other) -> Tensor",
    .contract = "self[*s]:f32, other[*s]:f32 -> [*s]:f32; parallel(*s)", .native = "self + other",
    .gradient = "self, other: add_custom_backward(grad)",
    .kernels = DV_KERNELS(DV_KERNEL(struct add_custom, "cpu", "f32", add_custom_f32, .split = 4096)));

struct add_custom_backward {
    const dv_tensor *self;
    dv_tensor *grad_self, *grad_other;
};

DV_OPERATOR(add_custom_backward, struct add_custom_backward, (self, grad_self, grad_other),
    .schema = "add_custom_backward(Tensor self) -> (Tensor, Tensor)", .contract = "self[*s]:f32 -> [*s]:f32, [*s]:f32",
    .native = "[clone(self), clone(self)]", .gradient = "self: grads[0] + grads[1]");
