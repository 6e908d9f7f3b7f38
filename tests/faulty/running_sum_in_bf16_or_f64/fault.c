/* The fault: with kernels for bf16 and f64 alone, a running sum is rounded to bf16 at each step, and nothing says what it should
 * be */
#define WITHOUT_F32
#include "../running_sum_in_bf16/fault.c"
