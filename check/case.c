/* Cases: the layouts of their tensors, which give strides (check_compute_strides()), and facts about cases. */
#include "check.h"

enum { MAX_WIDE_STRIDE_DIM = 8, MAX_SLICED_DIMS = 4 /* dims */ };

int64_t check_tensor_numel(const check_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

bool check_has_small_tensors(const check_case *c, int64_t max_numel)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        const int64_t n = c->tensors[i].present ? check_tensor_numel(&c->tensors[i]) : 1;
        if (n < 1 || n > max_numel)
            return false;
    }
    return true;
}

bool check_has_layout_variants(const check_tensor *t)
{
    int32_t wide = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        wide += t->shape[i] > 1;
    return wide > 1;
}

int32_t check_get_layout_variant(const check_tensor *t) { return check_has_layout_variants(t) ? t->layout_variant : 0; }

int32_t check_find_wide_stride_dim(const check_tensor *t)
{
    int32_t found = -1;
    for (int32_t i = 0; i < t->ndim && (found < 0 || t->layout_variant); i++)
        if (t->shape[i] > 1 && t->shape[i] <= MAX_WIDE_STRIDE_DIM)
            found = i;
    return found;
}

/* True if this dim of an expanded tensor has stride 0, or of a reversed tensor a negative stride. The layout variant selects the
 * dim: the last or the first one with more than one element, or all of them. */
static bool case_is_expanded_or_reversed_dim(const check_tensor *t, int32_t dim)
{
    const int32_t form = check_get_layout_variant(t);
    bool result = dim >= 0 && t->shape[dim] > 1;
    for (int32_t i = 0; i < t->ndim; i++)
        result &= t->shape[i] <= 1 || form == 2 || (form ? i >= dim : i <= dim);
    return result;
}

/* Returns the dim of a tensor that comes at this place in ascending order of strides, from 0. */
static int32_t case_get_dim_by_stride_order(const check_tensor *t, int32_t order)
{
    const int32_t form = check_get_layout_variant(t),
                  swapped = t->ndim > 2
        ? form % CHECK_LAYOUT_VARIANTS
        : 0; /* 0: all dims in reverse order; 1: the second and third innermost dim are swapped; 2: the two innermost */
    if (t->layout != CHECK_LAYOUT_TRANSPOSED)
        return t->ndim - 1 - order;
    if (!swapped)
        return order;
    const int32_t low = swapped == 1;
    return t->ndim - 1 - (order == low ? low + 1 : order == low + 1 ? low : order);
}

/* Returns the distance between neighbours in the dim with this place in the order of strides, for a sliced tensor, in elements of
 * the tensor that is sliced: 1 or 2. */
static int64_t case_get_slice_step(const check_tensor *t, int32_t stride_order)
{
    const int32_t form = check_get_layout_variant(t);
    return t->layout == CHECK_LAYOUT_SLICED && (form ? stride_order == form - 1 : stride_order < MAX_SLICED_DIMS) ? 2 : 1;
}

/* Returns how many elements of padding follow the dim with this place in the order of strides; 0 if the tensor is not padded
 * there. numel_up_to_dim: number of elements up to and including the dim. */
static int64_t case_get_padding_after_dim(const check_tensor *t, int32_t stride_order, int64_t numel_up_to_dim)
{
    const int32_t form = check_get_layout_variant(t);
    return t->layout != CHECK_LAYOUT_PADDED || stride_order != (form == 2 && t->ndim > 2) ? 0 : form ? 2 * numel_up_to_dim : 1;
}

void check_compute_strides(const check_tensor *t, int64_t *strides, int64_t *low, int64_t *high)
{
    const int32_t wide_stride_dim = t->layout == CHECK_LAYOUT_WIDE_STRIDE ? check_find_wide_stride_dim(t) : -1;
    int64_t n = 1;
    for (int32_t k = 0; k < t->ndim; k++) {
        const int32_t i = case_get_dim_by_stride_order(t, k);
        const bool expanded = t->layout == CHECK_LAYOUT_EXPANDED && case_is_expanded_or_reversed_dim(t, i);
        const int64_t step = case_get_slice_step(t, k);
        strides[i] = expanded ? 0 : i == wide_stride_dim ? INT64_C(1) << 31 : n * step;
        n *= expanded || i == wide_stride_dim ? 1 : (t->shape[i] > 0 ? t->shape[i] : 1) * step;
        n += case_get_padding_after_dim(t, k, n);
        if (t->layout == CHECK_LAYOUT_REVERSED && case_is_expanded_or_reversed_dim(t, i))
            strides[i] = -strides[i];
    }
    *low = *high = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        const int64_t reach = (t->shape[i] - 1) * strides[i];
        *low += reach < 0 ? reach : 0;
        *high += reach > 0 ? reach : 0;
    }
    if (!check_tensor_numel(t))
        *low = 0, *high = -1;
}

void check_copy_case_with_seed(const check_case *planned, uint64_t seed, check_case *out)
{
    check_random r = { seed * UINT64_C(0x2545f4914f6cdd1d) + planned->plan_index };
    *out = *planned;
    out->seed = (check_random_next(&r) & ~UINT64_C(1)) |
        (planned->seed & 1); /* the last bit of the seed decides whether special values include extreme numbers */
}

size_t check_find_tensor_slot(const check_case *c, size_t tensor)
{
    for (size_t i = 0; i < c->nargs; i++)
        if ((c->args[i].type == DV_VALUE_TENSOR || c->args[i].type == DV_VALUE_TENSORS) && tensor >= c->args[i].first_tensor &&
            tensor < (size_t)c->args[i].first_tensor + c->args[i].count)
            return i;
    return SIZE_MAX;
}

bool check_uses_min_alignment(const check_case *c) { return c->plan_index * 0x9e3779b1u >> 31; }

int64_t check_case_max_numel(const check_case *c)
{
    int64_t most = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && check_tensor_numel(&c->tensors[i]) > most)
            most = check_tensor_numel(&c->tensors[i]);
    return most;
}
