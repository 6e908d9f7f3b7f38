/* Unguarded calls: fast, from any thread, on slices of tensors.
 *
 * The arguments of a call lie in one reserved range of addresses. Everything that the host gives out (results, workspace,
 * dv_alloc()) lies in another, which each call uses from its beginning. So nothing is allocated, calls of several threads share
 * nothing, and the same call finds the same memory. Kernels that access memory out of bounds were found by guarded calls before.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

static const size_t ARGUMENT_BYTES = (size_t)64 << 20, HOST_BYTES = (size_t)128 << 20, OUTPUT_BYTES = (size_t)64 << 20;
enum { ALIGNMENT = 64, PADDING_BYTES = 4096 };

/* Reserves memory whose pages are mapped when they are touched. Returns NULL if that fails. */
static char *unguarded_reserve_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- Outputs ---- */

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
        o->memory = unguarded_reserve_memory(OUTPUT_BYTES);
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

/* ---- The host ---- */

/* Returns the unguarded call to which a host belongs. */
static check_unguarded_call *unguarded_get_call(const dv_host *host) { return (check_unguarded_call *)(uintptr_t)host; }

/* Returns zeroed memory from the call's own area; may be called in any thread. Returns NULL if this allocation is the one to
 * fail, or the area is used up. */
static void *unguarded_take_zeroed_memory(check_unguarded_call *p, size_t bytes, size_t alignment)
{
    const size_t count = __atomic_add_fetch(&p->allocations, 1, __ATOMIC_RELAXED);
    const size_t capacity = (bytes + alignment + PADDING_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (count == p->failing_allocation || bytes > HOST_BYTES)
        return NULL;
    const size_t at = __atomic_fetch_add(&p->host_memory_used, capacity, __ATOMIC_RELAXED);
    if (at + capacity > HOST_BYTES) {
        p->is_incomplete = true;
        return NULL;
    }
    void *memory = (void *)(((uintptr_t)p->host_memory + at + alignment - 1) / alignment * alignment);
    return memset(memory, 0, bytes);
}

typedef struct tensor_with_dims {
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
} tensor_with_dims;

/* Makes the struct of a result tensor without data. Returns NULL if memory is out. */
static tensor_with_dims *unguarded_alloc_tensor_struct(
    check_unguarded_call *p, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    tensor_with_dims *h = unguarded_take_zeroed_memory(p, sizeof *h, ALIGNMENT);
    if (!h)
        return NULL;
    memcpy(h->dims, shape, sizeof *shape * (size_t)ndim);
    memcpy(h->dims + DV_MAX_NDIM, strides, sizeof *strides * (size_t)ndim);
    h->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = h->dims, .strides = h->dims + DV_MAX_NDIM };
    return h;
}

/* dv_host.new_tensor: makes a result in the call's zeroed memory. */
static int unguarded_host_new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    int64_t last = 0;
    (void)index;
    for (int32_t i = 0; i < ndim; i++)
        last += (shape[i] - 1) * strides[i];
    const int64_t bytes = last < 0 ? 0 : dv_dtype_bytes(dtype, last + 1);
    tensor_with_dims *h = unguarded_alloc_tensor_struct(unguarded_get_call(host), dtype, device, ndim, shape, strides);
    if (!h || bytes < 0 || !(h->t.data = unguarded_take_zeroed_memory(unguarded_get_call(host), (size_t)bytes, ALIGNMENT)))
        return dv_fail(DV_ENOMEM, "out of memory: %lld bytes", (long long)bytes);
    *out = &h->t;
    return DV_OK;
}

/* dv_host.new_view: makes a result that is a view of `base`. */
static int unguarded_host_new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    (void)index;
    tensor_with_dims *h = unguarded_alloc_tensor_struct(
        unguarded_get_call(host), base->dtype, base->device, ndim, shape, strides);
    if (!h)
        return dv_fail(DV_ENOMEM, "out of memory");
    h->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    *out = &h->t;
    return DV_OK;
}

static void unguarded_host_free_tensor(
    const dv_host *host, dv_tensor *t) /* nothing is freed, because the next call reuses all memory */
{
    (void)host;
    (void)t;
}

/* dv_test_hooks.alloc: returns zeroed memory of the call. */
static void *unguarded_host_alloc(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    (void)use;
    (void)slot;
    return unguarded_take_zeroed_memory(unguarded_get_call(host), bytes, alignment < ALIGNMENT ? ALIGNMENT : alignment);
}

/* dv_test_hooks.free: does nothing, because the next call reuses all memory. */
static void unguarded_host_free(const dv_host *host, void *p)
{
    (void)host;
    (void)p;
}

/* dv_host.before_kernel: begins or continues to count the kernel's malloc() calls, since dv_set_output() interrupts a kernel
 * while the host allocates. */
static void unguarded_before_kernel(const dv_host *host)
{
    check_unguarded_call *p = unguarded_get_call(host);
    p->kernel_ran = true;
    if (p->counts_mallocs)
        check_heap_count_begin(p->failing_malloc > p->mallocs ? p->failing_malloc - p->mallocs : 0);
}

/* dv_host.after_kernel: stops counting the kernel's malloc() calls. */
static void unguarded_after_kernel(const dv_host *host)
{
    check_unguarded_call *p = unguarded_get_call(host);
    if (p->counts_mallocs)
        p->mallocs += check_heap_count_end();
}

/* ---- Calls ---- */

/* Prepares a call except for its argument tensors: host, hooks and values. Returns false if memory is out. */
static bool unguarded_try_init_without_arguments(
    check_unguarded_call *p, const check_op *op, const check_case *c, int32_t kernel_index)
{
    p->argument_memory = p->argument_memory ? p->argument_memory : unguarded_reserve_memory(ARGUMENT_BYTES);
    p->host_memory = p->host_memory ? p->host_memory : unguarded_reserve_memory(HOST_BYTES);
    p->op = op;
    p->c = c;
    p->argument_memory_used = 0;
    memset(p->saved, 0, sizeof p->saved);
    check_heap_zero_unguarded();
    p->failing_allocation = p->failing_malloc = 0;
    p->counts_mallocs = false;
    p->hooks = (dv_test_hooks){ .kernel_number = kernel_index, .alloc = unguarded_host_alloc, .free = unguarded_host_free };
    p->host = (dv_host){ .size = sizeof p->host,
        .name = "dovetail check",
        .new_tensor = unguarded_host_new_tensor,
        .free_tensor = unguarded_host_free_tensor,
        .new_view = unguarded_host_new_view,
        .before_kernel = unguarded_before_kernel,
        .after_kernel = unguarded_after_kernel,
        .test = &p->hooks };
    check_values_init_without_data(&p->values, c, (dv_device){ DV_CPU, 0 });
    return p->argument_memory && p->host_memory;
}

/* Returns memory for the data of one argument; NULL if the area for arguments is used up. */
static char *unguarded_take_argument_memory(check_unguarded_call *p, int64_t bytes)
{
    const size_t capacity = ((size_t)(bytes > 0 ? bytes : 0) + PADDING_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > (int64_t)ARGUMENT_BYTES || p->argument_memory_used + capacity > ARGUMENT_BYTES)
        return NULL;
    p->argument_memory_used += capacity;
    return p->argument_memory + p->argument_memory_used - capacity;
}

/* Keeps a copy of the contents of an argument if the operator writes it, so that each call can restore them. Returns false if
 * memory is out. */
static bool unguarded_try_save_written_contents(check_unguarded_call *p, size_t tensor, char *data, size_t bytes)
{
    const bool written = p->op->slots[check_find_tensor_slot(p->c, tensor)].flags & DV_SLOT_WRITES;
    char *copy = written ? unguarded_take_argument_memory(p, (int64_t)bytes) : NULL;
    if (copy)
        memcpy(copy, data, bytes);
    p->saved[tensor] = (check_saved_argument){ data, copy, copy ? bytes : 0 };
    return copy || !written;
}

bool check_unguarded_call_try_init(
    check_unguarded_call *call, const check_op *op, const check_kernel *kernel, const check_case *c)
{
    if (!unguarded_try_init_without_arguments(call, op, c, kernel ? kernel->hook_index : 0))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        int64_t low, high;
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        check_compute_strides(t, call->values.strides[i], &low, &high);
        const int64_t size = dv_dtype_bytes(t->dtype, 1);
        char *data = unguarded_take_argument_memory(call, (high - low + 1) * size);
        if (!data)
            return false;
        call->values.tensors[i].data = data - low * size;
        check_fill_tensor(t, c->seed + i, call->values.tensors[i].data, call->values.strides[i]);
        if (!unguarded_try_save_written_contents(call, i, data, (size_t)((high - low + 1) * size)))
            return false;
    }
    return true;
}

bool check_unguarded_call_try_init_overlap(check_unguarded_call *call, const check_op *op, const check_kernel *kernel,
    const check_case *c, size_t written, size_t read, int64_t distance)
{
    const int64_t n = check_tensor_numel(&c->tensors[written]), end = distance + check_tensor_numel(&c->tensors[read]),
                  size = dv_dtype_bytes(c->tensors[written].dtype, 1), low = distance < 0 ? distance : 0,
                  high = end > n ? end : n;
    char *const data = check_unguarded_call_try_init(call, op, kernel, c)
        ? unguarded_take_argument_memory(call, (high - low) * size)
        : NULL;
    if (!data)
        return false;
    call->values.tensors[written].data = data - low * size;
    call->values.tensors[read].data = data + (distance - low) * size;
    check_fill_tensor(&c->tensors[written], c->seed + written, call->values.tensors[written].data, call->values.strides[written]);
    check_fill_tensor(&c->tensors[read], c->seed + read, call->values.tensors[read].data, call->values.strides[read]);
    return unguarded_try_save_written_contents(call, written, data, (size_t)((high - low) * size));
}

bool check_unguarded_has_stray_write(const check_unguarded_call *call, size_t tensor)
{
    const check_saved_argument *w = &call->saved[tensor];
    const dv_tensor *t = &call->values.tensors[tensor];
    const size_t begin = (size_t)((const char *)t->data - w->data), end = begin + (size_t)dv_dtype_bytes(t->dtype, dv_numel(t));
    return memcmp(w->data, w->copy, begin) || memcmp(w->data + end, w->copy + end, w->bytes - end);
}

bool check_unguarded_call_try_init_slice(
    check_unguarded_call *call, const check_unguarded_call *whole_call, const int *axes, int64_t begin, int64_t end)
{
    const check_case *c = whole_call->c;
    if (!unguarded_try_init_without_arguments(call, whole_call->op, c, whole_call->hooks.kernel_number))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        if (!c->tensors[i].present)
            continue;
        dv_tensor from = whole_call->values.tensors[i], *to = &call->values.tensors[i];
        int64_t n = 1, *shape = call->slice_shapes[i], *strides = call->values.strides[i];
        const int64_t size = dv_dtype_bytes(from.dtype, 1);
        memcpy(shape, from.shape, sizeof *shape * (size_t)from.ndim);
        if (axes[i] >= 0) {
            shape[axes[i]] = end - begin;
            from.data = (char *)from.data + begin * from.strides[axes[i]] * size;
        }
        for (int32_t k = from.ndim; k-- > 0; n *= shape[k] ? shape[k] : 1)
            strides[k] = n;
        to->shape = from.shape = shape;
        if (!(to->data = unguarded_take_argument_memory(call, n * size)) || dv_tensor_copy(to, &from) ||
            !unguarded_try_save_written_contents(call, i, to->data, (size_t)(n * size)))
            return false;
    }
    return true;
}

void check_unguarded_call_run(check_unguarded_call *call)
{
    call->kernel_ran = call->is_incomplete = false;
    call->allocations = call->host_memory_used = call->mallocs = 0;
    for (size_t r = 0; r < call->op->nresults; r++)
        call->results[r] = dv_default();
    for (size_t i = 0; i < call->c->ntensors; i++)
        if (call->saved[i].bytes)
            memcpy(call->saved[i].data, call->saved[i].copy, call->saved[i].bytes);
    call->status = dv_call(call->op->op, call->values.values, call->c->nargs, call->results, call->op->nresults, &call->host);
    check_exit_if_kernel_forked();
    if (!check_try_move_result_lists(call->op, call->results, call->list_tensors))
        call->status = DV_ELIMIT;
}
