/* The frame of square, for its kernel and for callers in C. */
#include <dovetail_op.h>

struct square {
    const dv_tensor *x;
    dv_tensor *out;
};
