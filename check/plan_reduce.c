/* Few cases of a plan: those that differ most from each other. */
#include <string.h>

#include "plan.h"

enum { FEATURES = 4096 };

/* Returns how many features of a case are not in seen_features yet, and adds them. A feature is the hash of one name's size, one
 * tensor's dtype, layout or fill, or one argument's value. only_count: adds none. */
static uint32_t plan_reduce_count_and_add_new_features(
    const check_op *op, const check_case *c, bool *seen_features, bool only_count)
{
    uint32_t keys[4 * CHECK_MAX_ARGS + 6 * CHECK_MAX_TENSORS + 4 * CHECK_MAX_NAMES], n = 0, added = 0;
#define FEATURE(kind, of, value)                                                                                           \
    keys[n++] = (uint32_t)((((uint64_t)(kind) * 64 + (uint64_t)(of)) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(value)) * \
            UINT64_C(0xd1342543de82ef95) >>                                                                                \
        40)
    for (size_t k = 0; k < op->nnames && k < CHECK_MAX_NAMES; k++) {
        const check_name *name = &op->names[k];
        const check_shape *run = &c->names.variadics[name->value_index];
        int64_t most = 0;
        for (int32_t d = 0; name->kind == CHECK_NAME_VARIADIC && d < run->ndim; d++)
            most = run->sizes[d] > most ? run->sizes[d] : most;
        if (c->names.is_bound[k])
            FEATURE(1, k,
                name->kind == CHECK_NAME_DIM            ? c->names.dims[name->value_index]
                    : name->kind == CHECK_NAME_VARIADIC ? most
                                                        : 0);
        if (c->names.is_bound[k] && name->kind == CHECK_NAME_VARIADIC)
            FEATURE(2, k, run->ndim);
    }
    for (size_t i = 0; i < c->nargs && i < CHECK_MAX_ARGS; i++) {
        uint64_t value = c->args[i].type * UINT64_C(31) + c->args[i].count;
        for (size_t b = 0; !check_is_tensor_argument(op, i) && b < sizeof c->args[i]; b++)
            value = value * 31 + ((const unsigned char *)&c->args[i])[b];
        FEATURE(3, i, value);
    }
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        FEATURE(4, i, t->present ? dv_dtype_key(t->dtype) + 1 : 0);
        if (t->present && (t->layout == CHECK_LAYOUT_CONTIGUOUS || check_has_layout_variants(t)))
            FEATURE(5, i, t->layout * CHECK_LAYOUT_VARIANTS + t->layout_variant);
        if (t->present)
            FEATURE(6, i, t->fill);
    }
#undef FEATURE
    for (uint32_t k = 0; k < n; k++) {
        bool *const is = &seen_features[keys[k] % FEATURES];
        added += !*is;
        *is |= !only_count;
    }
    return added;
}

/* True if a case has a masking level: an empty tensor, special values as NaN, a wrong index or an int past 2^31. */
static bool plan_reduce_is_masked_case(const check_op *op, const check_case *c)
{
    bool masked = check_has_endless_int(op, c);
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        masked |= t->present &&
            (!check_tensor_numel(t) || t->fill == CHECK_FILL_SPECIAL_VALUES ||
                (t->fill == CHECK_FILL_LAST_EXTREME && check_is_integer_dtype(t->dtype)));
    }
    return masked;
}

void check_plan_reduce_to_wanted(const check_op *op, check_plan *plan, uint32_t wanted_cases)
{
    static bool set[FEATURES];
    static bool left[CHECK_MAX_CASES];
    uint32_t n = 0;
    memset(set, 0, sizeof set);
    memset(left, 0, sizeof left);
    for (uint32_t chosen = 0; chosen < wanted_cases; chosen++) {
        uint32_t best = chosen, most = 0;
        for (uint32_t i = 0; i < plan->ncases && chosen >= NUM_SIMPLE_CASES; i++) {
            const uint32_t score = left[i] ? 0
                                           : 1 +
                    plan_reduce_count_and_add_new_features(op, &plan->cases[i], set, true) *
                        (plan_reduce_is_masked_case(op, &plan->cases[i]) ? 1 : 3);
            best = score > most ? i : best;
            most = score > most ? score : most;
        }
        left[best] = true;
        plan_reduce_count_and_add_new_features(op, &plan->cases[best], set, false);
    }
    for (uint32_t i = 0; i < plan->ncases; i++) {
        if (!left[i]) {
            plan->uncovered_pairs += plan->newly_covered_pairs[i];
            continue;
        }
        plan->newly_covered_pairs[n] = plan->newly_covered_pairs[i];
        memmove(&plan->cases[n++], &plan->cases[i], sizeof *plan->cases);
    }
    plan->ncases = n;
    snprintf(plan->uncovered_example, sizeof plan->uncovered_example, "%u cases", n);
}
