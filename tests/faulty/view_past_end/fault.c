/* The fault: the view of every second row steps by two rows for as many rows as there are */
#include <dovetail_op.h>

struct every_second {
    const dv_tensor *x;
    dv_tensor *out;
};

DV_OPERATOR(every_second, struct every_second, (x, out), .schema = "every_second(Tensor(a) x) -> Tensor(a) out",
    .contract = "x[n m]:T -> out[n m]:T view(x) strides[2*stride(x, 0), stride(x, 1)]");
DV_LIBRARY(faulty, &dv_op_every_second);
