/* Cases with one NaN or infinity. */
#include <math.h>

#include "check.h"

bool check_has_special_values(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present &&
            (c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES || c->tensors[i].fill >= CHECK_FILL_LOW_PAYLOAD_NAN))
            return true;
    return false;
}

bool check_try_make_lone_special_case(const check_op *op, const check_case *c, check_case *out)
{
    enum { MAX_LONE_ELEMENTS = 256, NEAR = 2 };
    const bool one = c->plan_index % 2 || check_case_max_numel(c) > 1, lowest = c->plan_index % 4 == 3;
    /* number of this case among those that do not get -infinity everywhere */
    const uint64_t turn = c->plan_index / 4 * 3 + c->plan_index % 4;
    bool any = false;
    if (check_has_special_values(c) || check_case_max_numel(c) > MAX_LONE_ELEMENTS)
        return false;
    *out = *c;
    for (size_t k = 0; k < c->ntensors; k++) {
        const size_t i = (c->plan_index + turn / CHECK_LONE_VARIANTS + k) % c->ntensors;
        check_tensor *t = &out->tensors[i];
        if (!t->present || check_is_integer_dtype(t->dtype) || !check_tensor_numel(t))
            continue;
        if (t->low > NEAR || t->high < -NEAR)
            return false;
        t->low = fmax(t->low, -NEAR);
        t->high = fmin(t->high, NEAR);
        if (any && one)
            continue;
        any = true;
        t->fill = !one ? CHECK_FILL_FIRST_INFINITE : lowest ? CHECK_FILL_NEGATIVE_INFINITY : CHECK_FILL_SPECIAL_VALUES;
        out->seed = c->seed / (4 * CHECK_LONE_VARIANTS) * (4 * CHECK_LONE_VARIANTS) + turn % CHECK_LONE_VARIANTS * 4 +
            CHECK_SEED_LONE_SPECIAL - i;
    }
    return any && (!op->has_element_facts || check_is_accepted(op, out));
}
