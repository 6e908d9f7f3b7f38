#include "counted.h"
#include "call.h"
#include "tables.h"

static int question(dv_operator *op, dv_value *results)
{
    double flops, bytes;
    (void)call, (void)results, (void)is_written, (void)is_argument;
    for (int i = 0; i < NRESULTS; i++)
        results[i] = dv_default();
    make_arguments();
    dv_host host = host_of(ROW);
    host.before_kernel = begin_steps;
    host.after_kernel = end_steps;
    if (dv_cost(op, args, NARGS, &flops, &bytes) || dv_call(op, args, NARGS, results, NRESULTS, &host))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    const double done = (double)(counted_operations > 0 ? counted_operations : counted_integers),
                 most = fmax((double)counted_operations, (double)counted_integers);
    fprintf(stderr, "flops are %g, and %g operations are counted\n", flops, done);
    if (done >= 8 * fmax(flops, 1) || flops >= 8 * fmax(most, 1))
        return 1;
    return puts("the fault does not show"), 0;
}
