/* Layouts and contents of the tensors of a planned case. */
#include <math.h>

#include "plan.h"

/* True if a result or a written argument of the case has this dtype, so that its integers are not only indices. */
static bool plan_contents_has_output_of_dtype(const planner *p, const check_case *c, dv_dtype dtype)
{
    static dv_result_spec specs[CHECK_MAX_RESULTS];
    static check_values v;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    const size_t n = dv_infer(p->op->op, v.values, c->nargs, specs, p->op->nresults) ? 0 : p->op->nresults;
    for (size_t r = 0; r < n; r++)
        if (specs[r].ndim >= 0 && dv_dtype_key(specs[r].dtype) == dv_dtype_key(dtype))
            return true;
    for (size_t i = 0; i < c->ntensors; i++)
        if (p->op->slots[check_find_tensor_slot(c, i)].flags & DV_SLOT_WRITES &&
            dv_dtype_key(c->tensors[i].dtype) == dv_dtype_key(dtype))
            return true;
    return false;
}

/* Sets fill and range of a tensor so that its last element is an invalid index, selected by wrong_kind, and the others are valid.
 * The kinds are -1, the size of a dim, and numbers farther outside. */
static void plan_contents_make_last_index_wrong(planner *p, const check_case *c, int64_t wrong_kind, check_tensor *t)
{
    const int bits = t->dtype.bits - (t->dtype.code != 1);
    const int64_t most = bits >= 63 ? INT64_MAX >> 1 : (INT64_C(1) << bits) - 1;
    int64_t sizes[64] = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int32_t d = 0; d < c->tensors[i].ndim && c->tensors[i].present && n < 64; d++)
            sizes[n++] = c->tensors[i].shape[d];
    const int64_t size = sizes[n ? p->turn % n : 0], low = t->dtype.code == 1 ? 0 : -most;
    const int64_t kinds[NUM_WRONG_INDICES] = { -size - 1, 1000, -1000, size, -1, INT64_MAX, INT64_MIN };
    const int64_t last = kinds[wrong_kind];
    t->fill = CHECK_FILL_LAST_EXTREME;
    t->low = last > 0 ? 0 : (double)(last < low ? low : last);
    t->high = last < 0 ? 0 : (double)(last > most ? most : last);
}

/* Sets fill and range of a tensor for a level of FACTOR_CONTENTS. Integers by level: small (mostly valid indices), negative,
 * large, bounds of the dtype, numbers with the largest sums and products. Real numbers by level: around 0; positive, so that sums
 * do not cancel; wide, sometimes multiples of 1/2 or log-uniform. */
static void plan_contents_set_fill_and_range(const planner *p, const check_case *c, int64_t contents_level, check_tensor *t)
{
    static const struct {
        double low, high;
    } ranges[2][4] = { { { -2, 2 }, { 0.25, 2 }, { -20, 20 }, { -2, 2 } }, { { 0, 1 }, { 0, 3 }, { -9, 3 }, { -5, 100 } } };
    const bool integer = check_is_integer_dtype(t->dtype);
    t->fill = CHECK_FILL_RANDOM;
    t->low = ranges[integer][contents_level % 4].low;
    t->high = ranges[integer][contents_level % 4].high;
    if (dv_dtype_key(t->dtype) == DV_DTYPE_bool) {
        t->low = contents_level == 2;
        t->high = contents_level != 1;
        t->fill = contents_level == 2 && p->turn % 2 ? CHECK_FILL_COUNT_WRAPS : CHECK_FILL_RANDOM;
    } else if (!integer && contents_level % 4 == 2 && p->turn % 2) {
        t->fill = CHECK_FILL_HALVES;
        t->high = p->turn % 4 == 3 ? 2 : t->high; /* few distinct values: many elements are equal, and both zeros occur */
        t->low = -t->high;
    } else if (!integer && contents_level % 4 == 2 && p->turn % 4 == 2) {
        t->fill = CHECK_FILL_BINADES;
        t->high = 128;
        t->low = -t->high;
    } else if (integer && contents_level >= 4 && (t->dtype.bits < 64 || plan_contents_has_output_of_dtype(p, c, t->dtype))) {
        t->fill = contents_level == 4 ? CHECK_FILL_RANGE_BOUNDS : CHECK_FILL_RANDOM;
        t->low = check_get_min_integer(t->dtype);
        t->high = check_get_max_integer(t->dtype);
        if (contents_level == 5 && p->turn % 2 &&
            t->dtype.bits >= 32) { /* neighbouring integers that a float or double rounds to one number */
            t->low = t->dtype.bits == 32 ? 0x1p30 : 0x1p58;
            t->high = t->low + 64;
        } else if (contents_level ==
            5) { /* 8-bit dtypes get odd numbers, too, since sums of powers of two are exact in a float */
            const double odd_offset = t->dtype.bits == 8 && p->turn % 2 ? 7 : 0;
            *(t->dtype.code == 1 ? &t->low : &t->high) = t->dtype.code == 1 ? t->high - odd_offset : t->low + odd_offset;
        }
    }
    if (t->dtype.code == 1 && t->low < 0)
        t->low = 0;
}

/* Sets fill and range of a tensor for FILL_MODE_SCALED. Successive cases rotate through: close together and far from 0, where a
 * variance cancels; near 300 or -300, where exp() or the square of an f16 overflows; log-uniform; within 20 of 0; small but for
 * the last element; subnormal in 16-bit dtypes. Elsewhere not all elements are near 0, because a division by such numbers exceeds
 * the tolerance. */
static void plan_contents_set_scaled_fill(const planner *p, size_t tensor_index, check_tensor *t)
{
    static const double fill_centers[] = { -10500, 0, 300, -300, 0, 0, 0 }, max_magnitudes[] = { 0x1p10, 0x1p7, 0x1p14, 0x1p17 };
    enum {
        SCALE_COUNT = sizeof fill_centers / sizeof *fill_centers,
        SCALE_CLOSE = 0,
        SCALE_WIDE = 1,
        SCALE_LAST = 5,
        SCALE_TINY,
        MIN_LONG_ROW = 64
    };
    const double least = check_is_float_dtype(t->dtype) ? -check_get_max_finite(t->dtype) / 2 : fill_centers[SCALE_CLOSE];
    const size_t scaled_number = p->nscaled;
    size_t k = (scaled_number + tensor_index * (1 + scaled_number / SCALE_COUNT)) % SCALE_COUNT;
    const dv_dtype_row *row = dv_dtype_find(t->dtype);
    const double around = k == SCALE_CLOSE ? 2 : 20;
    if (scaled_number % 2 &&
        check_tensor_numel(t) > MIN_LONG_ROW) /* the last element then lies after all whole blocks of a vectorized loop */
        k = SCALE_LAST;
    else if (scaled_number % 4 == 2 && check_tensor_numel(t) > MIN_LONG_ROW)
        k = SCALE_WIDE;
    t->fill = k == SCALE_LAST ? CHECK_FILL_LAST_EXTREME : CHECK_FILL_RANDOM;
    const double middle = fmax(fill_centers[k], least);
    t->low = k == SCALE_LAST ? -2 : middle - around;
    t->high = k == SCALE_LAST ? (scaled_number & 2 ? 300 : 1000) : middle + around;
    if (k == SCALE_WIDE) {
        const double most = fmin(max_magnitudes[scaled_number / 4 % 4], -least);
        t->fill = CHECK_FILL_BINADES;
        t->low = -most;
        t->high = most;
    }
    if (k == SCALE_TINY && check_is_float_dtype(t->dtype) && t->dtype.bits <= 16 && row->bias < 64) {
        t->high = ldexp(1, 1 - row->bias);
        t->low = -t->high;
    }
}

/* Gives integers that the contract bounds, such as indices, a fill that covers all allowed values evenly, with both ends and the
 * limits of narrow dtypes. */
static void plan_contents_set_range_ends_fill(dv_range allowed, check_tensor *t)
{
    t->fill = CHECK_FILL_RANGE_ENDS;
    t->low = allowed.least == INT64_MIN ? t->low : (double)allowed.least;
    t->high = fmin((double)allowed.most, check_get_max_integer(t->dtype));
}

/* Gives a tensor that the contract requires to be sorted a sorted fill. Integers rise from the lower to the upper allowed bound;
 * real numbers rise with or without equal neighbours. A tensor whose last element is a too large index stays unchanged. */
static void plan_contents_set_sorted_fill(const planner *p, dv_range allowed, check_tensor *t)
{
    if (!check_is_integer_dtype(t->dtype)) {
        t->fill = p->turn % 2 ? CHECK_FILL_NONDECREASING : CHECK_FILL_INCREASING;
        return;
    }
    if (t->fill == CHECK_FILL_LAST_EXTREME && t->high > 0)
        return;
    t->fill = CHECK_FILL_OFFSETS;
    t->low = allowed.least > INT32_MIN ? (double)allowed.least : fmin(t->low, t->high);
    t->high = allowed.most < INT32_MAX ? (double)allowed.most : fmax(t->low, t->high);
}

/* Replaces CHECK_FILL_HALVES by random numbers if another tensor is expanded, so that one number occurs many times. Sums of
 * products would otherwise tie exactly, and an argmax over them would depend on the order of additions. */
static void plan_contents_avoid_tied_sums(check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        for (size_t k = 0; k < c->ntensors; k++)
            if (k != i && c->tensors[i].present && !check_is_integer_dtype(c->tensors[i].dtype) &&
                c->tensors[i].layout == CHECK_LAYOUT_EXPANDED && c->tensors[k].fill == CHECK_FILL_HALVES)
                c->tensors[k].fill = CHECK_FILL_RANDOM;
}

void check_plan_contents_set_with_layouts(
    planner *p, const int *wanted_levels, const dv_range *allowed_ranges, bool cover_range_ends, check_case *c)
{
    const int64_t fill_mode = check_plan_level_get_wanted(p, wanted_levels, FACTOR_FILL_MODE, 0);
    size_t indices = 0, index = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        indices += check_can_hold_indices(&c->tensors[i]);
    c->seed = fill_mode == FILL_MODE_EXTREME;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const size_t slot = check_find_tensor_slot(c, i), element = i - c->args[slot].first_tensor;
        const int64_t layout = check_plan_level_get_wanted(p, wanted_levels, FACTOR_LAYOUT, slot),
                      contents = check_plan_level_get_wanted(p, wanted_levels, FACTOR_CONTENTS, slot);
        t->layout = layout <= 0 ? CHECK_LAYOUT_CONTIGUOUS : (uint8_t)((layout + (int64_t)element) % CHECK_LAYOUT_WIDE_STRIDE);
        if (p->op->slots[slot].flags & DV_SLOT_WRITES && t->layout == CHECK_LAYOUT_EXPANDED)
            t->layout = CHECK_LAYOUT_SLICED;
        t->layout_variant = (uint8_t)(t->layout ? p->layout_counts[slot][t->layout] % CHECK_LAYOUT_VARIANTS : 0);
        plan_contents_set_fill_and_range(p, c, contents < 0 ? 0 : contents, t);
        if (contents == 1 && p->turn % 2 && check_can_hold_indices(t))
            check_set_index_below_size(c, i, p->turn / 2, t);
        if (!check_is_integer_dtype(t->dtype) && fill_mode == FILL_MODE_SCALED)
            plan_contents_set_scaled_fill(p, i, t);
        if (!check_is_integer_dtype(t->dtype) && (fill_mode == FILL_MODE_SPECIAL || fill_mode == FILL_MODE_EXTREME) &&
            (p->turn % 2 || i == p->turn / 2 % c->ntensors))
            t->fill = CHECK_FILL_SPECIAL_VALUES;
        if (cover_range_ends && contents == 2 && check_can_hold_indices(t) && p->op->contract &&
            allowed_ranges[i].most < INT64_MAX && allowed_ranges[i].least <= allowed_ranges[i].most)
            plan_contents_set_range_ends_fill(allowed_ranges[i], t);
        if (check_can_hold_indices(t) && index++ == p->turn % indices && fill_mode >= FILL_MODE_WRONG_INDEX)
            plan_contents_make_last_index_wrong(p, c, fill_mode - FILL_MODE_WRONG_INDEX, t);
        if (p->op->is_sorted[slot])
            plan_contents_set_sorted_fill(p, allowed_ranges[i], t);
        if (p->op->contract)
            check_clamp_element_range(t, allowed_ranges[i]);
    }
    plan_contents_avoid_tied_sums(c);
}
