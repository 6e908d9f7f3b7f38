/* The elements of the argument tensors of a guarded call. */
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

/* Elements that were last made for each argument tensor, because one case is called several times, and drawing elements takes
 * most of the time. */
static struct tensor_contents {
    check_tensor tensor;
    uint64_t seed;
    unsigned char *bytes;
    size_t size;
} tensor_contents[CHECK_MAX_TENSORS];

/* Multiplies each element by 1 + relative_change or 1 - relative_change, at random. relative_change 0: makes each square matrix
 * the identity. Elements that several indices share stay as they are, unless relative_change is 0. */
static void guarded_contents_perturb_or_make_identity(
    const check_tensor *t, void *first, const int64_t *strides, double relative_change)
{
    const bool square = t->ndim > 1 && t->shape[t->ndim - 1] == t->shape[t->ndim - 2];
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    check_random r = { 1 };
    dv_dtype dtype = t->dtype;
    const int parts = check_get_component_count_and_dtype(&dtype);
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        int64_t at = 0;
        bool is_aliased = false; /* several indices share the element, by a stride of 0 */
        for (int32_t d = 0; d < t->ndim; d++) {
            at += index[d] * strides[d];
            is_aliased |= index[d] && !strides[d];
        }
        for (int64_t k = at * parts; k < (at + 1) * parts && relative_change > 0 && !is_aliased; k++) {
            const double x = check_element_get(first, k, dtype);
            check_element_put(first, k, dtype, check_random_next(&r) & 1 ? x + relative_change * x : x - relative_change * x);
        }
        if (!(relative_change > 0) && square)
            check_element_put(first, at, t->dtype, index[t->ndim - 1] == index[t->ndim - 2]);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

bool check_can_replace_elements(const check_tensor *t)
{
    return check_is_float_dtype(t->dtype) ||
        (check_is_integer_dtype(t->dtype) && t->dtype.bits >= 8 && t->low < t->high && !check_has_positional_fill(t));
}

/* Adds a step, of any sign, to each integer, where the sum is in the range of range_dtype. Elements that several indices
 * share stay as they are. */
static void guarded_contents_add_step_to_integers(
    const check_tensor *t, void *first, const int64_t *strides, dv_dtype range_dtype, double step)
{
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        int64_t at = 0;
        bool is_aliased = false;
        for (int32_t d = 0; d < t->ndim; d++) {
            at += index[d] * strides[d];
            is_aliased |= index[d] && !strides[d];
        }
        const double x = check_element_get(first, at, t->dtype) + step;
        if (!is_aliased && check_is_in_integer_range(range_dtype, x))
            check_element_put(first, at, t->dtype, x);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

/* Replaces each element of a tensor: floats by 2.5 or -0.5 times their value, at random, and integers by an end of their range.
 */
static void guarded_contents_replace_elements(const check_tensor *t, void *first, const int64_t *strides)
{
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    if (check_is_float_dtype(t->dtype)) {
        guarded_contents_perturb_or_make_identity(t, first, strides, 1.5);
        return;
    }
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        int64_t at = 0;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * strides[d];
        check_element_put(first, at, t->dtype, check_element_get(first, at, t->dtype) > t->low ? t->low : t->high);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

/* Fills to_tensor with the elements that from_tensor, of the same shape, has with this seed, converted to the dtype of
 * to_tensor. Returns false if memory is out. */
static bool guarded_contents_try_convert_elements(
    const check_tensor *from_tensor, uint64_t seed, const check_tensor *to_tensor, void *to_first, const int64_t *to_strides)
{
    int64_t from_strides[CHECK_MAX_DIMS], low, high, index[CHECK_MAX_DIMS] = { 0 };
    check_compute_strides(from_tensor, from_strides, &low, &high);
    const int64_t size = dv_dtype_bytes(from_tensor->dtype, 1);
    char *bytes = malloc((size_t)((high - low + 1) * size) + 1), *origin = bytes ? bytes - low * size : NULL;
    dv_dtype from_component = from_tensor->dtype, to_component = to_tensor->dtype;
    const bool copies_bytes = dv_dtype_key(from_tensor->dtype) == dv_dtype_key(to_tensor->dtype) &&
        !check_is_sub_byte_dtype(from_tensor->dtype);
    const int ncomponents = check_get_component_count_and_dtype(&from_component);
    check_get_component_count_and_dtype(&to_component);
    if (bytes)
        check_fill_tensor(from_tensor, seed, origin, from_strides);
    for (int64_t n = bytes ? check_tensor_numel(to_tensor) : 0; n-- > 0;) {
        int64_t at = 0, to = 0;
        for (int32_t d = 0; d < to_tensor->ndim; d++) {
            at += index[d] * from_strides[d];
            to += index[d] * to_strides[d];
        }
        if (copies_bytes)
            memcpy((char *)to_first + to * size, origin + at * size, (size_t)size);
        for (int k = 0; !copies_bytes && k < ncomponents; k++)
            check_element_put(
                to_first, to * ncomponents + k, to_component, check_element_get(origin, at * ncomponents + k, from_component));
        for (int32_t d = to_tensor->ndim; d-- > 0 && ++index[d] == to_tensor->shape[d];)
            index[d] = 0;
    }
    free(bytes);
    return bytes != NULL;
}

bool check_guarded_try_fill_argument_elements(
    struct guarded_host *m, size_t tensor_index, guarded_region *r, const guarded_region *reusable)
{
    struct tensor_contents *k = &tensor_contents[tensor_index];
    const check_tensor *t = &m->c->tensors[tensor_index];
    const check_case *as = m->call->contents_from;
    const bool known = !as && k->bytes && k->seed == m->c->seed + tensor_index && k->size == r->bytes &&
        !memcmp(&k->tensor, t, sizeof *t);
    const bool replaced = m->call->replaced_tensor_plus_1 == tensor_index + 1;
    const bool steps = (m->call->integer_step > 0 || m->call->integer_step < 0) && t->dtype.code < 2 && t->dtype.bits >= 8 &&
        !m->call->op->is_bounded[check_find_tensor_slot(m->c, tensor_index)];
    const bool moved = steps ||
        ((m->call->relative_perturbation > 0 || m->call->use_identity_matrices) && check_is_float_dtype(t->dtype)) ||
        (m->call->relative_perturbation > 0 && check_is_complex_dtype(t->dtype)) || (replaced && check_can_replace_elements(t));
    if (known && !moved && check_guarded_can_reuse_readonly_bytes(r, reusable, k->bytes))
        return true;
    if (!check_guarded_try_map_and_fill_region(r, reusable, GAP_BYTE))
        return false;
    if (known) {
        memcpy(check_guarded_as_pointer(r->data), k->bytes, r->bytes);
    } else if (as) {
        if (!guarded_contents_try_convert_elements(&as->tensors[tensor_index], as->seed + tensor_index, t,
                check_guarded_as_pointer(r->first_element), m->values.strides[tensor_index]))
            return false;
    } else {
        check_fill_tensor(
            t, m->c->seed + tensor_index, check_guarded_as_pointer(r->first_element), m->values.strides[tensor_index]);
        free(k->bytes);
        *k = (struct tensor_contents){
            .tensor = *t, .seed = m->c->seed + tensor_index, .bytes = malloc(r->bytes + 1), .size = r->bytes
        };
        if (k->bytes)
            memcpy(k->bytes, check_guarded_as_pointer(r->data), r->bytes);
    }
    if (steps) {
        guarded_contents_add_step_to_integers(t, check_guarded_as_pointer(r->first_element), m->values.strides[tensor_index],
            as ? as->tensors[tensor_index].dtype : t->dtype, m->call->integer_step);
    } else if (replaced && moved) {
        const double first = check_element_get(check_guarded_as_pointer(r->first_element), 0, t->dtype);
        guarded_contents_replace_elements(t, check_guarded_as_pointer(r->first_element), m->values.strides[tensor_index]);
        if (m->call->keep_first_element)
            check_element_put(check_guarded_as_pointer(r->first_element), 0, t->dtype, first);
    } else if (moved) {
        guarded_contents_perturb_or_make_identity(
            t, check_guarded_as_pointer(r->first_element), m->values.strides[tensor_index], m->call->relative_perturbation);
    }
    return true;
}

bool check_has_written_argument(size_t tensor)
{
    const guarded_region *r = check_guarded_find_region(USE_ARGUMENT, tensor);
    const struct tensor_contents *k = &tensor_contents[tensor];
    return !r || !k->bytes || r->bytes != k->size || memcmp(check_guarded_as_pointer(r->data), k->bytes, k->size) != 0;
}
