/* extension_add1.c: the name that the module custom_ops_lib has for my_op */
#include "function.h"

struct add_custom {
    const dv_tensor *self, *other;
    dv_tensor *result;
};

DV_OPERATOR(add_custom, struct add_custom, (self, other, result), .schema = "add_custom(Tensor self, Tensor other) -> Tensor",
    .contract = "self[*s]:f32, other[*s]:f32 -> [*s]:f32; parallel(*s)", .native = "my_op(self, other)", .doc = "x + y");
