/* The work of a call, as far as its sizes and ints decide it. */
#include <math.h>

#include "check.h"

double check_estimate_work(const check_op *op, const check_case *c)
{
    double dims = 1, most = 1;
    for (size_t k = 0; k < op->nnames; k++) {
        const check_name *name = &op->names[k];
        const check_shape *variadic = &c->names.variadics[name->value_index];
        double n = 1;
        for (int32_t d = 0; name->kind == CHECK_NAME_VARIADIC && c->names.is_bound[k] && d < variadic->ndim; d++)
            n *= fmax((double)variadic->sizes[d], 1);
        if (name->kind == CHECK_NAME_DIM && c->names.is_bound[k])
            dims *= fmax((double)c->names.dims[name->value_index], 1);
        most = n > most ? n : most;
    }
    return dims * most;
}

double check_estimate_work_with_ints(const check_op *op, const check_case *c)
{
    double work = check_estimate_work(op, c);
    for (size_t i = 0; i < c->nargs; i++)
        work *= c->args[i].type == DV_VALUE_INT && c->args[i].as.i > 1 ? (double)c->args[i].as.i : 1;
    for (size_t i = 0; i < c->nargs; i++)
        for (uint32_t k = 0; c->args[i].type == DV_VALUE_INTS && k < c->args[i].count; k++)
            work *= c->args[i].ints[k] > 1 ? (double)c->args[i].ints[k] : 1;
    return work;
}

bool check_has_endless_int(const check_op *op, const check_case *c)
{
    bool result = false;
    for (size_t i = 0; i < c->nargs; i++) {
        const int64_t number = c->args[i].as.i;
        bool named = false;
        for (size_t k = 0; k < op->literals[i].nequality_values; k++)
            named |= op->literals[i].equality_values[k]->int_value == number;
        result |= c->args[i].type == DV_VALUE_INT && (number >= INT32_MAX || number <= INT32_MIN) && !named;
    }
    return result;
}
