/* Copies of everything that a call wrote, and how those of two calls differ. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

static const size_t OUTPUT_BYTES = (size_t)64 << 20;
enum { ALIGNMENT = 64 };

char *check_reserve_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Appends a contiguous copy of a tensor to the outputs. Returns false if there is no room, or it has too many dims. */
static bool output_try_append_tensor(check_outputs *o, size_t slot, size_t element, const dv_tensor *tensor)
{
    const int64_t bytes = dv_dtype_bytes(tensor->dtype, dv_numel(tensor));
    check_output *out = o->items + o->noutputs;
    int64_t n = 1;
    if (o->noutputs == sizeof o->items / sizeof *o->items || bytes < 0 || tensor->ndim > CHECK_MAX_DIMS ||
        o->used_bytes + (size_t)bytes + ALIGNMENT > o->capacity_bytes)
        return false;
    *out = (check_output){ .slot = slot, .element = element, .t = *tensor };
    out->t.data = o->memory + o->used_bytes;
    out->t.shape = out->dims;
    out->t.strides = out->dims + CHECK_MAX_DIMS;
    for (int32_t i = tensor->ndim; i-- > 0; n *= tensor->shape[i] ? tensor->shape[i] : 1) {
        out->dims[i] = tensor->shape[i];
        out->dims[CHECK_MAX_DIMS + i] = n;
    }
    o->used_bytes += ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    o->noutputs++;
    return !dv_tensor_copy(&out->t, tensor);
}

/* Appends an int, float or bool result to the outputs, as a tensor without dims. Returns false if there is no room. */
static bool output_try_append_number(check_outputs *o, size_t slot, const dv_value *v)
{
    const dv_dtype f64 = { 2, 64, 1 }, i64 = { 0, 64, 1 };
    int64_t i = v->type == DV_VALUE_BOOL ? v->as.b : v->as.i, none = 0;
    double f = v->as.f;
    const bool real = v->type == DV_VALUE_FLOAT;
    const dv_tensor t = { .data = real ? (void *)&f : (void *)&i,
        .dtype = real ? f64 : i64,
        .device = { DV_CPU, 0 },
        .shape = &none,
        .strides = &none };
    const bool is_copied = output_try_append_tensor(o, slot, 0, &t);
    if (is_copied)
        o->items[o->noutputs - 1].is_number_result = true;
    return is_copied;
}

bool check_try_move_result_lists(const check_op *op, dv_value *results, const dv_tensor **tensors)
{
    size_t used = 0;
    bool fits = true;
    for (size_t r = 0; r < op->nresults; r++) {
        dv_tensors *list = &results[r].as.tensors;
        if (results[r].type != DV_VALUE_TENSORS)
            continue;
        void *array = (void *)(uintptr_t)(const void *)list->data;
        fits = list->size <= CHECK_MAX_TENSORS - used;
        list->size = fits ? list->size : 0;
        memcpy(tensors + used, list->data, list->size * sizeof *tensors);
        list->data = tensors + used;
        used += list->size;
        dv_free(array);
    }
    return fits;
}

void check_outputs_copy(
    check_outputs *o, const check_op *op, const check_case *c, const dv_value *results, const dv_tensor *tensors)
{
    if (!o->memory) {
        o->memory = check_reserve_memory(OUTPUT_BYTES);
        o->capacity_bytes = o->memory ? OUTPUT_BYTES : 0;
    }
    o->noutputs = o->used_bytes = 0;
    o->is_incomplete = false;
    for (size_t r = 0; r < op->nresults; r++) {
        const dv_value *v = &results[r];
        const dv_tensor *const *t = v->type == DV_VALUE_TENSORS ? v->as.tensors.data : &v->as.tensor;
        const size_t n = v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n && op->slots[op->nargs + r].alias < 0; k++)
            o->is_incomplete |= !output_try_append_tensor(o, op->nargs + r, k, t[k]);
        if (v->type == DV_VALUE_INT || v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_BOOL)
            o->is_incomplete |= !output_try_append_number(o, op->nargs + r, v);
    }
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t slot = check_find_tensor_slot(c, i);
        if (c->tensors[i].present && slot < op->nargs && op->slots[slot].flags & DV_SLOT_WRITES)
            o->is_incomplete |= !output_try_append_tensor(o, slot, i - c->args[slot].first_tensor, &tensors[i]);
    }
}

const char *check_output_format_name(const check_op *op, const check_output *o, char *buffer, size_t size)
{
    const dv_slot_info *s = &op->slots[o->slot];
    const bool list = s->type == DV_FIELD_TENSORS || s->type == DV_FIELD_MUT_TENSORS;
    const int n = list ? snprintf(buffer, size, "element %zu of ", o->element) : 0;
    if (o->slot < op->nargs)
        snprintf(buffer + n, size - (size_t)n, "argument '%s'", s->name);
    else
        check_format_result_name(op, o->slot - op->nargs, buffer + n, size - (size_t)n);
    return buffer;
}

void check_output_format_element_name(const check_op *op, const check_output *o, int64_t element_number, char *out, size_t size)
{
    int64_t index[CHECK_MAX_DIMS];
    const char *name = op->slots[o->slot].name;
    if (o->is_number_result) {
        check_output_format_name(op, o, out, size);
        return;
    }
    size_t n = (size_t)snprintf(out, size, "element [");
    for (int32_t i = o->t.ndim; i-- > 0; element_number /= o->dims[i] ? o->dims[i] : 1)
        index[i] = o->dims[i] ? element_number % o->dims[i] : 0;
    for (int32_t i = 0; i < o->t.ndim && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? ", " : "", (long long)index[i]);
    if (n < size && *name)
        snprintf(out + n, size - n, "] of %s '%s'", o->slot < op->nargs ? "argument" : "result", name);
    else if (n < size)
        snprintf(out + n, size - n, "] of result %zu", o->slot - op->nargs);
}

double check_output_get_max_magnitude(const check_output *o)
{
    double most = 0;
    dv_dtype dtype = o->t.dtype;
    const int ncomponents = check_get_component_count_and_dtype(&dtype);
    for (int64_t i = 0, n = dv_numel(&o->t) * ncomponents; i < n; i++) {
        const double x = fabs(check_element_get(o->t.data, i, dtype));
        most = isfinite(x) && x > most ? x : most;
    }
    return most;
}

/* Returns the dtype in which an output may have been computed: f32 for a float number result, else the output's own dtype. */
static dv_dtype output_get_computed_dtype(const check_output *o)
{
    return o->is_number_result && o->t.dtype.code == 2 ? (dv_dtype){ 2, 32, 1 } : o->t.dtype;
}

/* Returns the tolerance for an output's elements whose sums were added in another order. */
static double output_get_rounding_tolerance(const check_op *op, const check_output *o)
{
    return check_get_reorder_tolerance(op, output_get_computed_dtype(o), check_output_get_max_magnitude(o));
}

/* True if the outputs of two calls are equally many, with the same shapes and dtypes. */
static bool outputs_have_same_shapes_and_dtypes(const check_outputs *a, const check_outputs *b)
{
    bool same = a->noutputs == b->noutputs;
    for (size_t i = 0; i < a->noutputs && same; i++)
        same = a->items[i].slot == b->items[i].slot && a->items[i].t.ndim == b->items[i].t.ndim &&
            dv_dtype_key(a->items[i].t.dtype) == dv_dtype_key(b->items[i].t.dtype) &&
            !memcmp(a->items[i].dims, b->items[i].dims, sizeof a->items[i].dims);
    return same;
}

double check_output_get_number(const check_output *o, int64_t index, int component)
{
    dv_dtype dtype = o->t.dtype;
    const int parts = check_get_component_count_and_dtype(&dtype);
    return check_element_get(o->t.data, index * parts + component, dtype);
}

char *check_output_format_number(const check_output *o, int64_t index, int component, char *out, size_t size)
{
    return check_format_number(check_output_get_number(o, index, component), o->t.data, index, o->t.dtype, out, size);
}

bool check_output_elements_differ(
    const check_output *a, int64_t a_index, const check_output *b, int64_t b_index, double tolerance, int *component)
{
    dv_dtype dtype = a->t.dtype;
    const int ncomponents = check_get_component_count_and_dtype(&dtype);
    for (*component = 0; *component < ncomponents; ++*component) {
        const double x = check_output_get_number(a, a_index, *component), y = check_output_get_number(b, b_index, *component);
        if (!(x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance))
            return true;
    }
    return false;
}

/* True if element i of two outputs has the same bits. All NaNs count as equal, because a compiler chooses the order of operands,
 * and with it the sign and payload of a NaN, separately for each copy of a loop. */
static bool output_element_has_same_bits(const check_output *a, const check_output *b, int64_t i)
{
    dv_dtype dtype = a->t.dtype;
    const int ncomponents = check_get_component_count_and_dtype(&dtype);
    const size_t bytes = (size_t)dv_dtype_bytes(dtype, 1);
    bool same = true;
    if (dtype.bits < 8)
        return check_element_get(a->t.data, i, dtype) == check_element_get(b->t.data, i, dtype);
    for (int64_t k = i * ncomponents; k < (i + 1) * ncomponents && same; k++)
        same = !memcmp((const char *)a->t.data + (size_t)k * bytes, (const char *)b->t.data + (size_t)k * bytes, bytes) ||
            (check_is_float_dtype(dtype) && isnan(check_element_get(a->t.data, k, dtype)) &&
                isnan(check_element_get(b->t.data, k, dtype)));
    return same;
}

/* True if the outputs of two calls have the same shapes and dtypes; else writes the message "a result has another shape". */
static bool outputs_have_same_form_or_message(const check_outputs *a, const check_outputs *b, char *message, size_t size)
{
    const bool same = outputs_have_same_shapes_and_dtypes(a, b);
    if (!same)
        snprintf(message, size, "a result has another shape");
    return same;
}

/* True if the outputs a and b of two calls differ; writes the first difference to first_difference. allow_rounding: real numbers
 * may differ by the rounding of sums in another order. unordered_case (or NULL): case of an operator whose threads add numbers in
 * any order. Then integers and non-finite elements are skipped, and the case's tolerance is added. */
static bool outputs_differ(const check_op *op, const check_case *unordered_case, const check_outputs *a, const check_outputs *b,
    bool allow_rounding, char *first_difference, size_t size)
{
    char where[200], one[40], other[40];
    if (a->is_incomplete || b->is_incomplete)
        return false;
    if (!outputs_have_same_form_or_message(a, b, first_difference, size))
        return true;
    if (a->used_bytes == b->used_bytes && !memcmp(a->memory, b->memory, a->used_bytes))
        return false;
    for (size_t k = 0; k < a->noutputs; k++) {
        const check_output *x = &a->items[k], *y = &b->items[k];
        const int64_t n = dv_numel(&x->t);
        if (unordered_case && check_is_integer_dtype(x->t.dtype))
            continue;
        double tolerance = allow_rounding ? output_get_rounding_tolerance(op, x) : 0;
        if (unordered_case) {
            const check_tolerance t = check_get_tolerance(op, unordered_case, output_get_computed_dtype(x), n, true);
            tolerance = fmax(tolerance, t.atol + t.rtol * check_output_get_max_magnitude(x));
        }
        for (int64_t i = 0; i < n; i++) {
            int component;
            if (output_element_has_same_bits(x, y, i))
                continue;
            if (unordered_case && !(isfinite(check_output_get_number(x, i, 0)) && isfinite(check_output_get_number(y, i, 0))))
                continue; /* the order of additions decides which infinity or NaN the sum is */
            if (!check_output_elements_differ(x, i, y, i, tolerance, &component)) {
                if (allow_rounding)
                    continue;
                component = 0; /* bits differ within the tolerance: the difference is the sign of a zero */
            }
            check_output_format_element_name(op, x, i, where, sizeof where);
            snprintf(first_difference, size, "%s is %s and then %s", where,
                check_output_format_number(x, i, component, one, sizeof one),
                check_output_format_number(y, i, component, other, sizeof other));
            return true;
        }
    }
    return false;
}

bool check_outputs_differ(const check_op *op, const check_outputs *a, const check_outputs *b, char *difference, size_t size)
{
    return outputs_differ(op, NULL, a, b, false, difference, size);
}

bool check_outputs_differ_beyond_rounding(
    const check_op *op, const check_outputs *a, const check_outputs *b, char *difference, size_t size)
{
    return outputs_differ(op, NULL, a, b, true, difference, size);
}

bool check_outputs_differ_unordered(
    const check_op *op, const check_case *c, const check_outputs *a, const check_outputs *b, char *difference, size_t size)
{
    const bool any_order = op->is_nondeterministic && !op->is_seeded;
    return outputs_differ(op, any_order ? c : NULL, a, b, any_order, difference, size);
}
