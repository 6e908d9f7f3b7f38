/* declared.c: an operator without a kernel, which its maker leaves to others. */
#include <dovetail_op.h>

struct declared {
    const dv_tensor *x;
    dv_tensor *out;
};
DV_OPERATOR(
    declared, struct declared, (x, out), .schema = "declared(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T");
DV_LIBRARY(only_declared, &dv_op_declared);
