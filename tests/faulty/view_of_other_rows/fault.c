/* The contract gives the rows from the second one, and the native form those before the last one. */
#include <dovetail_op.h>
struct tail {
    const dv_tensor *x;
    dv_tensor *out;
};
DV_OPERATOR(tail, struct tail, (x, out), .schema = "tail(Tensor(a) x) -> Tensor(a) out",
    .contract = "x[m n]:f32 -> out view(x, narrow(0, 1, m - 1)); m > 1; strided(x)", .native = "narrow(x, 0, 0, x.shape[0] - 1)");

DV_LIBRARY(faulty, &dv_op_tail);
