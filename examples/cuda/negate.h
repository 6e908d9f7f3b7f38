/* The launcher that negate.cu defines and negate.c calls. */
#include <dovetail_op.h>

#ifdef __cplusplus
extern "C"
#endif
int launch_negate(const float *x, float *out, int64_t n, void *stream);
