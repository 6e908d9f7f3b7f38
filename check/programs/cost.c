#include "call.h"
#include "tables.h"

static int question(dv_operator *op, dv_value *results)
{
    static dv_result_spec specs[NRESULTS + 1];
    double flops = 0, bytes = 0, written = 0;
    (void)call, (void)results, (void)is_written;
    make_arguments();
    if (dv_cost(op, args, NARGS, &flops, &bytes))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    for (int i = 0; i < NRESULTS && !dv_infer(op, args, NARGS, specs, NRESULTS); i++) {
        double n = specs[i].ndim < 0 || specs[i].flags || is_argument[i] ? 0 : specs[i].dtype.bits * specs[i].dtype.lanes / 8.0;
        for (int32_t d = 0; d < specs[i].ndim; d++)
            n *= (double)specs[i].shape[d];
        written += n;
    }
    fprintf(stderr, "flops %g, bytes %g, of the results alone %g\n", flops, bytes, written);
    if (!isfinite(flops) || (AT && flops < 0) || !isfinite(bytes) || bytes < written) /* AT: flops are declared */
        return 1;
    return puts("the fault does not show"), 0;
}
