/* Elements of every dtype as doubles, for code that does not depend on the dtype. Conversions are core's (dv_element_put()). */
#include <math.h>

#include "check.h"

bool check_is_float_dtype(dv_dtype dtype)
{
    const dv_dtype_row *row = dv_dtype_find(dtype);
    return row && row->form && dtype.code != 5;
}
bool check_is_complex_dtype(dv_dtype dtype) { return dtype.code == 5; }
bool check_is_integer_dtype(dv_dtype dtype) { return dtype.code == 0 || dtype.code == 1 || dtype.code == 6; }

double check_get_unit_roundoff(dv_dtype dtype)
{
    const dv_dtype_row *row = dv_dtype_find(dtype);
    return row && row->form ? ldexp(1, -row->mantissa - 1) : 1;
}

double check_get_max_integer(dv_dtype dtype) { return dtype.code == 6 ? 1 : ldexp(1, dtype.bits - (dtype.code == 0)) - 1; }
double check_get_min_integer(dv_dtype dtype) { return dtype.code == 0 ? -ldexp(1, dtype.bits - 1) : 0; }

bool check_is_in_integer_range(dv_dtype dtype, double x)
{
    return x >= check_get_min_integer(dtype) && x <= check_get_max_integer(dtype);
}

void check_element_put(void *data, int64_t i, dv_dtype dtype, double x)
{
    if (dtype.bits == 64 && dtype.code < 2 &&
        x >= (dtype.code ? 0x1p64 : 0x1p63)) /* the largest integers round up to a double that is out of range */
        ((uint64_t *)data)[i] = dtype.code ? UINT64_MAX : INT64_MAX;
    else
        dv_element_put(data, i, dtype, dtype.code == 6 ? x > 0 : x);
}

int check_get_component_count_and_dtype(dv_dtype *dtype_to_replace)
{
    if (dtype_to_replace->code != 5)
        return 1;
    *dtype_to_replace = (dv_dtype){ 2, (uint8_t)(dtype_to_replace->bits / 2), 1 };
    return 2;
}

double check_element_get(const void *data, int64_t i, dv_dtype dtype) { return dv_element_get(data, i, dtype); }
