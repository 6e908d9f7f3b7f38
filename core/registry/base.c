#include "registry/internal.h"

int dv__operator_formulas(const dv_library *lib, dv_operator *op)
{
    (void)lib;
    (void)op;
    return DV_OK;
}
