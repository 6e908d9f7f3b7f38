#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    static dv_result_spec specs[NRESULTS + 1];
    make_arguments();
    if (dv_infer(op, args, NARGS, specs, NRESULTS) || call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    for (int i = 0; i < NRESULTS; i++) {
        const dv_tensor *t = results[i].type == DV_VALUE_TENSOR ? results[i].as.tensor : NULL;
        if (!t != (specs[i].ndim < 0) ||
            (t &&
                (t->ndim != specs[i].ndim || dv_dtype_key(t->dtype) != dv_dtype_key(specs[i].dtype) ||
                    memcmp(t->shape, specs[i].shape, sizeof *t->shape * (size_t)t->ndim))))
            return fprintf(stderr, "result %d is not as dv_infer() says\n", i), 1;
    }
    return puts("the fault does not show"), 0;
}
