/* Elements of every dtype as doubles. */
#include <math.h>

#include "check.h"

bool check_is_float(dv_dtype d)
{
    const dv_dtype_row *row = dv_dtype_find(d);
    return row && row->form && d.code != 5;
}
bool check_is_complex(dv_dtype d) { return d.code == 5; }
bool check_is_integer(dv_dtype d) { return d.code == 0 || d.code == 1 || d.code == 6; }

double check_unit(dv_dtype d)
{
    const dv_dtype_row *row = dv_dtype_find(d);
    return row && row->form ? ldexp(1, -row->mantissa - 1) : 1;
}

void check_put(void *data, int64_t i, dv_dtype dtype, double x)
{
    if (dtype.bits == 64 && dtype.code < 2 && x >= (dtype.code ? 0x1p64 : 0x1p63)) /* the largest, rounded to a double */
        ((uint64_t *)data)[i] = dtype.code ? UINT64_MAX : INT64_MAX;
    else
        dv_element_put(data, i, dtype, dtype.code == 6 ? x > 0 : x);
}

int check_numbers_in(dv_dtype *dtype)
{
    if (dtype->code != 5)
        return 1;
    *dtype = (dv_dtype){ 2, (uint8_t)(dtype->bits / 2), 1 };
    return 2;
}

double check_get(const void *data, int64_t i, dv_dtype dtype) { return dv_element_get(data, i, dtype); }
