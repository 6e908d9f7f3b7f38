/* Contents for index-like arguments: offsets, lengths, permutations. The contract's sorted(x) requires sorted ones. A contract
 * may not state which contents a kernel accepts: if the kernel refuses a case, other contents of its integer tensors are tried
 * until it accepts some. Accepted contents are tried first for the next refused case.
 *
 * A *role* describes the contents of a tensor: a fill, and an upper bound that follows a size of the case (a *size reference*).
 * So the bound stays right when a case is shrunk. */
#include <math.h>
#include <string.h>

#include "check.h"

/* ---- Elements ------------------------------------------------------------------------------------------------------------- */

/* Returns one number of a pseudo-random sequence in [0, 1), by the sequence's seed and the number's position. */
static double contents_get_random_fraction(uint64_t seed, int64_t position)
{
    check_random r = { seed + (uint64_t)position * UINT64_C(0x9e3779b97f4a7c15) };
    return (double)(check_random_next(&r) >> 11) * 0x1p-53;
}

/* Returns one of the noffsets offsets in a row of the last dim; `number` counts them from 0. Offsets do not decrease. Seed and
 * row select the lengths of the segments between offsets: similar, growing, or empty except at the end, middle or beginning. Most
 * rows begin with t->low and end with t->high. */
static double contents_get_offset(const check_tensor *t, uint64_t seed, int64_t row, int64_t number, int64_t noffsets)
{
    const uint64_t kind = (seed / 8 + (uint64_t)row) % 8;
    const double span = t->high - t->low;
    double x = noffsets < 2 || !number ? 0
        : number + 1 == noffsets
        ? 1
        : ((double)(number - 1) + contents_get_random_fraction(seed + (uint64_t)row, number)) / (double)(noffsets - 1);
    switch (kind) {
    case 1: x = x * x; break;
    case 2: x = x < 1 ? 0 : 1; break;
    case 3: x = fmin(1, fmax(0, 3 * x - 1)); break;
    case 4: x = number ? 1 : 0; break;
    case 5: x = x < 1 ? 0.75 * x : 1; break;
    case 6: x = 0.75 * x; break; /* offsets end before the upper bound, as lists of the begins of segments do */
    default: break;
    }
    return t->low + floor(span * x);
}

/* Returns element `index` of a permutation of 0 to nelements - 1; the seed selects the permutation. */
static int64_t contents_get_permutation_element(int64_t nelements, int64_t index, uint64_t seed)
{
    int64_t step = nelements * 5 / 8 | 1, a, b;
    do { /* next candidate, until the step is coprime to nelements */
        step += 2;
        for (a = nelements, b = step; b;) {
            const int64_t rest = a % b;
            a = b;
            b = rest;
        }
    } while (a > 1);
    return (int64_t)(((uint64_t)index * (uint64_t)step + seed / 8 % (uint64_t)nelements) % (uint64_t)nelements);
}

bool check_has_positional_fill(const check_tensor *t)
{
    return t->fill == CHECK_FILL_OFFSETS || t->fill == CHECK_FILL_LENGTHS || t->fill == CHECK_FILL_PERMUTATION;
}

double check_get_positional_element(const check_tensor *t, uint64_t seed, int64_t element_number)
{
    const int64_t n = t->ndim ? t->shape[t->ndim - 1] : 1, row = element_number / n, j = element_number % n;
    if (t->fill == CHECK_FILL_PERMUTATION)
        return fmin(t->low + (double)contents_get_permutation_element(n, j, seed), t->high);
    if (t->fill == CHECK_FILL_LENGTHS)
        return contents_get_offset(t, seed, row, j + 1, n + 1) - contents_get_offset(t, seed, row, j, n + 1);
    return contents_get_offset(t, seed, row, j, n);
}

/* ---- Sizes that bound elements -------------------------------------------------------------------------------------------- */

enum { NO_SIZE = -1, MAX_SIZE_REFS = 64 };

/* Returns the current size that a size reference names. The reference is 1 + CHECK_MAX_DIMS * tensor + dim, or 1 +
 * CHECK_MAX_TENSORS * CHECK_MAX_DIMS + slot of an int argument. Returns NO_SIZE if the case has no such size. */
static int64_t contents_get_referenced_size(const check_case *c, int32_t size_reference)
{
    const uint32_t at = (uint32_t)(size_reference - 1);
    if (at >= CHECK_MAX_TENSORS * CHECK_MAX_DIMS) {
        const check_value *v = &c->args[at - CHECK_MAX_TENSORS * CHECK_MAX_DIMS];
        return v->type == DV_VALUE_INT && v->as.i > 0 && v->as.i < INT32_MAX ? v->as.i : NO_SIZE;
    }
    const check_tensor *t = &c->tensors[at / CHECK_MAX_DIMS];
    return at / CHECK_MAX_DIMS < c->ntensors && t->present && (int32_t)(at % CHECK_MAX_DIMS) < t->ndim
        ? t->shape[at % CHECK_MAX_DIMS]
        : NO_SIZE;
}

void check_update_bounds_from_sizes(check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const int64_t size = t->high_size_code ? contents_get_referenced_size(c, t->high_size_code) : NO_SIZE;
        if (size < 0)
            continue;
        const bool ends = t->fill == CHECK_FILL_OFFSETS || t->fill == CHECK_FILL_LENGTHS;
        t->high = fmin(
            ends && !t->high_is_last_index ? (double)size : fmax(0, (double)size - 1), check_get_max_integer(t->dtype));
    }
}

/* ---- Roles that are tried ------------------------------------------------------------------------------------------------- */

typedef struct contents_role {
    uint8_t fill;
    bool high_is_last_index;
    int32_t high_size_code;
    double low, high; /* high: upper bound of the elements, used only if high_size_code is 0 */
} contents_role;

static struct {
    bool any;
    contents_role of[CHECK_MAX_ARGS];
} accepted_roles; /* roles by argument that the kernel accepted last in this process */
static contents_role tried_roles[CHECK_MAX_ARGS];
static uint32_t failed_attempts; /* number of attempts since the kernel last accepted contents */

bool check_can_hold_indices(const check_tensor *t)
{
    return t->present && check_is_integer_dtype(t->dtype) && dv_dtype_key(t->dtype) != DV_DTYPE_bool;
}

/* Writes to size_refs the size references of a case, except those of the dims of tensor excluded_tensor. Returns their number.
 * *is_offset_shaped: true if the last dim of excluded_tensor is one longer than such a size, or its shape is [1], so that it may
 * hold offsets. */
static size_t contents_list_size_references(
    const check_case *c, size_t excluded_tensor, int32_t *size_refs, bool *is_offset_shaped)
{
    size_t n = 0;
    const check_tensor *self = &c->tensors[excluded_tensor];
    *is_offset_shaped = false;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int32_t d = 0; c->tensors[i].present && i != excluded_tensor && d < c->tensors[i].ndim && n < MAX_SIZE_REFS; d++) {
            size_refs[n++] = (int32_t)(i * CHECK_MAX_DIMS) + d + 1;
            *is_offset_shaped |= self->ndim && self->shape[self->ndim - 1] == c->tensors[i].shape[d] + 1;
        }
    for (size_t a = 0; a < c->nargs && n < MAX_SIZE_REFS; a++)
        if (c->args[a].type == DV_VALUE_INT && c->args[a].as.i > 0 && c->args[a].as.i < INT32_MAX)
            size_refs[n++] = (int32_t)(CHECK_MAX_TENSORS * CHECK_MAX_DIMS + a + 1);
    if (self->ndim == 1)
        *is_offset_shaped |= self->shape[0] == 1;
    return n;
}

/* Returns the size reference whose size is the smallest positive one; 0 if no size is positive. */
static int32_t contents_find_reference_to_smallest(const check_case *c, const int32_t *size_refs, size_t nrefs)
{
    int32_t best = 0;
    for (size_t k = 0; k < nrefs; k++) {
        const int64_t size = contents_get_referenced_size(c, size_refs[k]);
        best = size > 0 && (!best || size < contents_get_referenced_size(c, best)) ? size_refs[k] : best;
    }
    return best;
}

/* Draws a random role for the contents of an integer tensor; likely roles are drawn more often. */
static contents_role contents_draw_role(const check_case *c, size_t tensor, check_random *r)
{
    int32_t size_refs[MAX_SIZE_REFS];
    bool like_offsets;
    const size_t n = contents_list_size_references(c, tensor, size_refs, &like_offsets);
    const int64_t turn = check_random_between(r, 0, 99);
    const int32_t any = n ? size_refs[check_random_between(r, 0, (int64_t)n - 1)] : 0,
                  least = contents_find_reference_to_smallest(c, size_refs, n);
    if (n && turn < (like_offsets ? 65 : 20))
        return (contents_role){ .fill = CHECK_FILL_OFFSETS, .high_size_code = any };
    switch (check_random_between(r, 0, 7)) {
    case 0: return (contents_role){ .fill = CHECK_FILL_OFFSETS, .high_size_code = any, .high_is_last_index = true };
    case 1: return (contents_role){ .fill = CHECK_FILL_LENGTHS, .high_size_code = any };
    case 2: return (contents_role){ .fill = CHECK_FILL_PERMUTATION, .high = INT32_MAX };
    case 3: return (contents_role){ .fill = CHECK_FILL_SEQUENCE };
    case 4: return (contents_role){ .fill = CHECK_FILL_SEQUENCE, .low = 1, .high = 1 };
    case 5: return (contents_role){ .fill = CHECK_FILL_RANDOM, .high_size_code = any, .high_is_last_index = true };
    default: return (contents_role){ .fill = CHECK_FILL_RANDOM, .high_size_code = least, .high_is_last_index = true };
    }
}

void check_set_index_below_size(const check_case *c, size_t tensor, uint32_t rotation, check_tensor *t)
{
    int32_t size_refs[MAX_SIZE_REFS];
    bool like_offsets;
    const size_t n = contents_list_size_references(c, tensor, size_refs, &like_offsets);
    for (size_t k = 0; k < n; k++) {
        const int32_t span = size_refs[(rotation + k) % n];
        if (contents_get_referenced_size(c, span) <= (int64_t)t->high + 1)
            continue;
        t->fill = CHECK_FILL_RANDOM;
        t->high_size_code = span;
        t->high_is_last_index = true;
        t->low = 0;
        t->high = (double)contents_get_referenced_size(c, span) - 1;
        return;
    }
}

/* Sets fill and range of a tensor to those of a role. */
static void contents_apply_role(const contents_role *role, check_tensor *t)
{
    t->fill = role->fill;
    t->high_size_code = role->high_size_code;
    t->high_is_last_index = role->high_size_code && role->high_is_last_index;
    t->low = role->low;
    t->high = fmin(role->high, check_get_max_integer(t->dtype));
}

bool check_try_make_contents_variant(const check_op *op, const check_case *refused, uint32_t attempt, check_case *out)
{
    enum { MAX_VARIANTS = 12, MAX_FAILED_CASES = 40 };
    check_random r = { (uint64_t)refused->plan_index * 64 + attempt };
    bool any = false,
         use_accepted = accepted_roles.any &&
        attempt == refused->plan_index % 2; /* accepted roles are tried in attempt 0 or 1, alternating with the case's index */
    *out = *refused;
    if (attempt >= MAX_VARIANTS || failed_attempts > MAX_FAILED_CASES * MAX_VARIANTS || (accepted_roles.any && attempt > 3))
        return false;
    failed_attempts++;
    for (size_t a = 0; a < op->nargs; a++) {
        const check_value *v = &out->args[a];
        bool drawn = false;
        for (uint32_t e = 0; (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS) && e < v->count; e++) {
            if (!check_can_hold_indices(&out->tensors[v->first_tensor + e]))
                continue;
            if (!drawn)
                tried_roles[a] = use_accepted ? accepted_roles.of[a] : contents_draw_role(out, v->first_tensor + e, &r);
            drawn = any = true;
            contents_apply_role(&tried_roles[a], &out->tensors[v->first_tensor + e]);
        }
    }
    check_update_bounds_from_sizes(out);
    return any;
}

void check_note_accepted_contents(void)
{
    bool all_elements_equal =
        true; /* with equal elements in each tensor the kernel computes little, so these roles are not remembered */
    for (size_t a = 0; a < CHECK_MAX_ARGS; a++)
        all_elements_equal &= tried_roles[a].fill == CHECK_FILL_SEQUENCE ||
            (tried_roles[a].fill == CHECK_FILL_RANDOM && !tried_roles[a].high_size_code);
    failed_attempts = 0;
    if (all_elements_equal)
        return;
    memcpy(accepted_roles.of, tried_roles, sizeof tried_roles);
    accepted_roles.any = true;
}
