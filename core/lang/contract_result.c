/* Evaluation after solving: results, costs, and how a call may be split. */
#include "lang/contract_internal.h"

#include <assert.h>
#include <stdio.h>

/* Fails with a message that begins with "result 'out'", "result 'outs[1]'" or "result 0". list_index: the index in a list; < 0:
 * no list. */
static int result_fail(const dv__contract *c, int status, const dv__pattern *t, int64_t list_index, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static int result_fail(const dv__contract *c, int status, const dv__pattern *t, int64_t list_index, const char *format, ...)
{
    char what[1800], element[24] = "";
    if (list_index >= 0)
        snprintf(element, sizeof element, "[%lld]", (long long)list_index);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (*t->name)
        return dv_fail(status, "%s: result '%s%s': %s", c->name, t->name, element, what);
    return dv_fail(status, "%s: result %d%s: %s", c->name, (int)t->slot - (int)c->schema->nargs, element, what);
}

/* Returns the index, in a returned list, of the tensor that is described now; -1: the result is no list. */
static int64_t result_get_current_list_index(const dv__evaluator *v, const dv__pattern *t)
{
    const dv__operand index = v->program->results[t - v->c->result_patterns].index;
    return index < 0 ? -1 : v->s->registers[index].i;
}

/* Returns the pattern of a return in the call's selected cases. NULL: it has none. */
static const dv__pattern *return_find_selected_pattern(const dv__contract *c, const dv__solution *s, size_t return_index)
{
    const int pattern_index = c->result_pattern_index[return_index];
    if (pattern_index >= 0)
        return &c->result_patterns[pattern_index];
    for (uint32_t k = 0; pattern_index == -2 && k < c->nresult_patterns; k++)
        if (c->result_patterns[k].slot == (int32_t)(c->schema->nargs + return_index) &&
            dv__case_ref_is_selected(c->result_patterns[k].when, s))
            return &c->result_patterns[k];
    return NULL;
}

/* ---- Strides ------------------------------------------------------------------------------------------------------------- */

/* Fails because a result has more bytes than fit 64 bits. Returns DV_ESHAPE. */
static int result_fail_too_many_bytes(const dv__evaluator *v, const dv__pattern *t, const dv__result_metadata *out)
{
    dv__fixed_text w = { 0 };
    dv__fixed_text_add_sizes(&w, out->shape, out->ndim);
    return result_fail(v->c, DV_ESHAPE, t, result_get_current_list_index(v, t),
        "expected a size in bytes that fits 64 bits, found shape %s of %s", w.data, dv_dtype_name(out->dtype));
}

/* Sets dense strides. order: the dims, slowest first; NULL: in row-major order. A size of 0 counts as 1, as in PyTorch. Returns
 * a status. */
static int result_set_dense_strides(const dv__evaluator *v, const dv__pattern *t, dv__result_metadata *out, const int32_t *order)
{
    int64_t *strides = dv__solution_reserve_sizes(v, out->ndim), next = 1, bits;
    if (!strides)
        return DV_ELIMIT;
    for (int32_t i = out->ndim - 1; i >= 0; i--) {
        const int32_t d = order ? order[i] : i;
        strides[d] = next;
        if (__builtin_mul_overflow(next, out->shape[d] > 1 ? out->shape[d] : 1, &next))
            return result_fail_too_many_bytes(v, t, out);
    }
    out->strides = strides;
    return __builtin_mul_overflow(next, (int64_t)out->dtype.bits * out->dtype.lanes, &bits)
        ? result_fail_too_many_bytes(v, t, out)
        : DV_OK;
}

/* True if a tensor is "non-overlapping and dense" as in PyTorch: some order of the dims makes the tensor contiguous. True for
 * an empty tensor. */
static bool tensor_is_dense(const dv_tensor *x, const int32_t *order)
{
    int64_t next = 1;
    for (int32_t i = 0; i < x->ndim; i++)
        if (!x->shape[i])
            return true;
    for (int32_t i = x->ndim - 1; i >= 0; i--) {
        if (x->shape[order[i]] == 1)
            continue;
        if (x->strides[order[i]] != next || __builtin_mul_overflow(next, x->shape[order[i]], &next))
            return false;
    }
    return true;
}

/* Compares two dims by stride. Returns > 0 if dim a must be slower than dim b, < 0 if faster, 0 if the strides do not
 * decide. */
static int dims_compare_by_stride(const dv_tensor *x, int32_t a, int32_t b)
{
    if (!x->strides[a] || !x->strides[b])
        return 0;
    if (x->strides[a] != x->strides[b])
        return x->strides[a] > x->strides[b] ? 1 : -1;
    return x->shape[a] > x->shape[b] ? 1 : 0;
}

/* Sets the strides of a result like(x) as torch.empty_like() does: the strides of x if x is dense, else dense strides with the
 * dims in the order of x's strides. The order is PyTorch's insertion sort. Each dim moves inward past dims that must be slower
 * and past undecided ones, until a dim that must be faster stops it. Returns a status. */
static int result_set_like_strides(const dv__evaluator *v, const dv__program_result *r, dv__result_metadata *out)
{
    const dv__pattern *t = r->pattern;
    const dv_value *like = &v->args[t->like_slot]; /* for a returned list, a list with a tensor at the same index */
    const dv_tensor *x = like->type == DV_VALUE_TENSORS ? like->as.tensors.data[v->s->registers[r->index].i] : like->as.tensor;
    int32_t order[DV_MAX_NDIM] = { 0 }; /* the dims, the slowest first */
    const int32_t n = x->ndim;
    for (int32_t i = 0; i < n; i++)
        order[i] = i;
    for (int32_t i = n - 2; i >= 0; i--)
        for (int32_t at = i, other = i + 1; other < n; other++) {
            const int slower_than = dims_compare_by_stride(x, order[other], order[at]);
            if (slower_than < 0)
                break;
            if (slower_than > 0) {
                const int32_t d = order[at];
                order[at] = order[other];
                order[other] = d;
                at = other;
            }
        }
    const int status = result_set_dense_strides(v, t, out, order);
    if (status || (n && memcmp(x->shape, out->shape, (size_t)n * sizeof *x->shape) != 0))
        return status;
    int32_t by_stride[DV_MAX_NDIM];
    for (int32_t i = 0; i < n; i++) {
        int32_t k = i;
        for (; k > 0 && x->strides[i] > x->strides[by_stride[k - 1]]; k--)
            by_stride[k] = by_stride[k - 1];
        by_stride[k] = i;
    }
    if (tensor_is_dense(x, by_stride))
        out->strides = x->strides;
    return DV_OK;
}

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

/* Describes a result that is an argument: by the argument's metadata. */
static void result_set_alias(const dv_tensor *argument, int32_t slot, dv__result_metadata *out)
{
    out->dtype = argument->dtype;
    out->device = argument->device;
    out->ndim = argument->ndim;
    out->shape = argument->shape;
    out->strides = argument->strides;
    out->viewed_slot = slot;
}

/* Evaluates the section of a result and describes it in *out. Fails if a check does, or for a C shape function. */
static int result_eval_section(dv__evaluator *v, const dv__program_result *r, dv__result_metadata *out)
{
    if (r->kind == DV__PROGRAM_RESULT_SHAPE_FN)
        return result_fail(v->c, DV_ENOTSUP, r->pattern, -1, "the contract leaves it to a C shape function");
    const int status = dv__eval_section(v, &r->section);
    if (status)
        return status;
    if (r->kind == DV__PROGRAM_RESULT_ALIAS) {
        result_set_alias(dv__value_find_first_tensor(&v->args[r->source_slot]), r->source_slot, out);
        return DV_OK;
    }
    const dv__reg *shape = dv__eval_get_operand(v, r->shape);
    out->dtype = dv__eval_get_operand(v, r->dtype)->dtype;
    out->device = r->device == dv__device_register(v->c) ? v->s->device : dv__eval_get_operand(v, r->device)->device;
    out->shape = shape->sizes;
    out->ndim = shape->n;
    out->is_unbacked = r->pattern->is_unbacked;
    if (r->kind != DV__PROGRAM_RESULT_VIEW)
        return r->kind == DV__PROGRAM_RESULT_LIKE ? result_set_like_strides(v, r, out)
                                                  : result_set_dense_strides(v, r->pattern, out, NULL);
    out->viewed_slot = r->source_slot;
    out->strides = dv__eval_get_operand(v, r->strides)->sizes;
    out->offset = r->offset == DV__NEVER ? 0 : dv__eval_get_operand(v, r->offset)->i;
    return DV_OK;
}

/* Describes a simple result without a function call: contiguous, with names, literals and variadic dims. Returns false if the
 * result is not simple, or on an error. */
static inline bool result_try_describe_simple(
    const dv__contract *c, dv__solution *s, const dv__pattern *t, dv__result_metadata *out)
{
    const dv__dims *dims = &t->dims;
    int64_t *shape = s->pool + s->pool_count, *strides, next = 1;
    int32_t n = 0;
    if (s->pool_count > DV__SHAPE_POOL_SIZE - 2 * DV_MAX_NDIM || dims->n > DV_MAX_NDIM)
        return false;
    if (dims->n == 1 && dims->items->kind == DV__DIM_VARIADIC) {
        out->shape = s->registers[dv__variadic_register(c, dims->items->ref)].sizes;
        n = s->registers[dv__variadic_register(c, dims->items->ref)].n;
        strides = shape;
    } else {
        for (uint32_t i = 0; i < dims->n; i++) {
            const dv__dim_item *item = &dims->items[i];
            if (item->kind == DV__DIM_VARIADIC) {
                const int64_t *sizes = s->registers[dv__variadic_register(c, item->ref)].sizes;
                const int32_t rank = s->registers[dv__variadic_register(c, item->ref)].n;
                if (rank > DV_MAX_NDIM - n)
                    return false;
                for (int32_t k = 0; k < rank; k++)
                    shape[n++] = sizes[k];
            } else if (n < DV_MAX_NDIM) {
                shape[n++] = item->kind == DV__DIM_VAR ? s->registers[item->ref].i : item->value;
            } else {
                return false;
            }
        }
        out->shape = shape;
        strides = shape + n;
    }
    for (int32_t i = n - 1; i >= 0; i--) {
        const int64_t size = out->shape[i];
        strides[i] = next;
        if (size < 0 || __builtin_mul_overflow(next, size > 1 ? size : 1, &next))
            return false;
    }
    out->dtype = t->dtype.kind == DV__DTYPE_SPEC_VAR ? s->registers[dv__dtype_register(c, t->dtype.ref)].dtype
                                                     : dv_dtype_from_key(t->dtype.key);
    if (next > INT64_MAX >> 24) /* maybe too many bytes, as bits * lanes is below 2^24: result_set_dense_strides() decides */
        return false;
    s->pool_count = (int32_t)(strides + n - s->pool);
    out->strides = strides;
    out->ndim = n;
    out->device = s->device;
    out->is_unbacked = false;
    out->viewed_slot = -1;
    out->offset = 0;
    return true;
}

int dv__contract_eval_result(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, dv__result_metadata *out)
{
    const dv__pattern *t = c->result_pattern_index[return_index] >= 0 ? &c->result_patterns[c->result_pattern_index[return_index]]
                                                                      : return_find_selected_pattern(c, s, return_index);
    if (t && t->is_simple && result_try_describe_simple(c, s, t, out))
        return DV_OK;
    dv__evaluator r = { .c = c, .program = c->program, .args = args, .s = s };
    memset(out, 0, sizeof *out);
    out->viewed_slot = -1;
    out->shape = out->strides = s->pool;
    if (!t || t->presence == DV__PRESENCE_ABSENT) {
        out->ndim = -1;
        return DV_OK;
    }
    s->registers[dv__device_register(c)].device = s->device;
    return result_eval_section(&r, &c->program->results[t - c->result_patterns], out);
}

bool dv__contract_is_view(const dv__contract *c, const dv__solution *s, size_t return_index)
{
    const dv__pattern *t = return_find_selected_pattern(c, s, return_index);
    return t && t->viewed_slot >= 0;
}

int dv__contract_eval_list_length(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, int64_t *count)
{
    const dv__pattern *t = return_find_selected_pattern(c, s, return_index);
    const dv__program_result *r = t ? &c->program->results[t - c->result_patterns] : NULL;
    dv__evaluator run = { .c = c, .program = c->program, .args = args, .s = s };
    *count = -1;
    if (!r || r->list_count.value == DV__NEVER)
        return DV_OK;
    const int status = dv__eval_section(&run, &r->list_count);
    if (!status)
        *count = dv__eval_get_operand(&run, r->list_count.value)->i;
    return status;
}

int64_t dv__contract_const_list_length(const dv__contract *c, size_t return_index)
{
    const dv__pattern *t = c->result_pattern_index[return_index] >= 0 ? &c->result_patterns[c->result_pattern_index[return_index]]
                                                                      : NULL;
    int64_t n;
    return t && t->kind == DV__PATTERN_LIST && t->list_count && dv__expr_try_fold_constant(t->list_count, &n) ? n : -1;
}

int dv__contract_eval_list_result(const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index,
    int64_t list_index, dv__result_metadata *out)
{
    const dv__pattern *t = return_find_selected_pattern(c, s, return_index);
    assert(t && t->kind == DV__PATTERN_LIST);
    s->registers[c->program->results[t - c->result_patterns].index].i = list_index;
    return dv__contract_eval_result(c, args, s, return_index, out);
}

bool dv__contract_has_unbacked_size(const dv__contract *c) { return c->nunbacked; }

bool dv__contract_needs_shape_function(const dv__contract *c)
{
    for (uint32_t i = 0; i < c->nresult_patterns; i++)
        if (c->result_patterns[i].dims.is_any_shape && c->result_patterns[i].aliased_slot < 0 &&
            c->result_patterns[i].presence != DV__PRESENCE_ABSENT)
            return true;
    return false;
}

int dv__contract_check_out(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, int64_t list_index, const dv_tensor *given)
{
    const int32_t saved_count = s->pool_count;
    const dv__pattern *t = return_find_selected_pattern(c, s, return_index);
    dv__result_metadata out;
    int status = list_index < 0 ? dv__contract_eval_result(c, args, s, return_index, &out)
                                : dv__contract_eval_list_result(c, args, s, return_index, list_index, &out);
    s->pool_count = saved_count;
    if (status)
        return status;
    if (out.ndim < 0)
        return dv_fail(DV_EINVAL, "%s: result %zu: expected none in this case, found a tensor", c->name, return_index);
    if (dv_dtype_key(out.dtype) != dv_dtype_key(given->dtype))
        return result_fail(
            c, DV_EDTYPE, t, list_index, "expected dtype %s, found %s", dv_dtype_name(out.dtype), dv_dtype_name(given->dtype));
    if (out.device.type != given->device.type || (out.device.id != given->device.id && out.device.type != DV_CPU))
        return result_fail(c, DV_EDEVICE, t, list_index, "expected a tensor on %s:%d, found one on %s:%d",
            dv_device_name(out.device.type), (int)out.device.id, dv_device_name(given->device.type), (int)given->device.id);
    bool same = out.ndim == given->ndim;
    for (int32_t d = 0; same && d < out.ndim && !out.is_unbacked; d++)
        same = out.shape[d] == given->shape[d];
    if (same)
        return DV_OK;
    dv__fixed_text expected = { 0 }, found = { 0 };
    dv__fixed_text_add_sizes(&expected, out.shape, out.ndim);
    dv__fixed_text_add_sizes(&found, given->shape, given->ndim);
    return result_fail(c, DV_ESHAPE, t, list_index, "expected shape %s, found %s", expected.data, found.data);
}

/* ---- Costs --------------------------------------------------------------------------------------------------------------- */

int dv__contract_eval_workspace(const dv__contract *c, const dv_value *args, dv__solution *s, int64_t *bytes)
{
    *bytes = 0;
    if (!c->workspace)
        return DV_OK;
    dv__evaluator r = { .c = c, .program = c->program, .args = args, .s = s };
    const int status = dv__eval_section(&r, &c->program->workspace);
    *bytes = status ? 0 : dv__eval_get_operand(&r, c->program->workspace.value)->i;
    return status;
}

/* Evaluates the section of flops or bytes. Returns a status. */
static int cost_eval_section(
    const dv__contract *c, const dv__section *section, const dv_value *args, dv__solution *s, double *out)
{
    dv__evaluator r = { .c = c, .program = c->program, .args = args, .s = s };
    const int status = dv__eval_section(&r, section);
    if (!status)
        *out = dv__eval_get_operand(&r, section->value)->f;
    return status;
}

int dv__contract_eval_flops(const dv__contract *c, const dv_value *args, dv__solution *s, double *flops)
{
    *flops = -1;
    return c->flops ? cost_eval_section(c, &c->program->flops, args, s, flops) : DV_OK;
}

/* Returns the number of bytes of a tensor's elements, as a real number. */
static double cost_count_tensor_bytes(dv_dtype dtype, const int64_t *shape, int32_t ndim)
{
    double n = (double)dtype.bits * dtype.lanes / 8;
    for (int32_t i = 0; i < ndim; i++)
        n *= (double)shape[i];
    return n;
}

/* Adds the bytes of a result to *bytes, unless it is absent or shares an argument's memory. list_index: of a returned list,
 * else -1. Returns a status. */
static int cost_add_result_bytes(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t return_index, int64_t list_index, double *bytes)
{
    const int32_t saved_count = s->pool_count;
    dv__result_metadata out;
    const int status = list_index < 0 ? dv__contract_eval_result(c, args, s, return_index, &out)
                                      : dv__contract_eval_list_result(c, args, s, return_index, list_index, &out);
    s->pool_count = saved_count;
    if (!status && out.ndim >= 0 && out.viewed_slot < 0)
        *bytes += cost_count_tensor_bytes(out.dtype, out.shape, out.ndim);
    return status;
}

int dv__contract_eval_bytes(const dv__contract *c, const dv_value *args, dv__solution *s, double *bytes)
{
    *bytes = 0;
    if (c->bytes)
        return cost_eval_section(c, &c->program->bytes, args, s, bytes);
    for (size_t i = 0; i < c->schema->nargs; i++) {
        const dv_value *value = &args[i];
        const double times = dv__argument_is_written(&c->schema->args[i]) ? 2 : 1; /* a written argument is read and written */
        if (value->type == DV_VALUE_TENSOR)
            *bytes += times * cost_count_tensor_bytes(value->as.tensor->dtype, value->as.tensor->shape, value->as.tensor->ndim);
        for (size_t k = 0; value->type == DV_VALUE_TENSORS && k < value->as.tensors.size; k++)
            if (value->as.tensors.data[k])
                *bytes += times *
                    cost_count_tensor_bytes(
                        value->as.tensors.data[k]->dtype, value->as.tensors.data[k]->shape, value->as.tensors.data[k]->ndim);
    }
    for (size_t i = 0; i < c->schema->nreturns; i++) {
        const dv__pattern *t = return_find_selected_pattern(c, s, i);
        int64_t count;
        if (!t || t->dims.is_any_shape || t->presence == DV__PRESENCE_ABSENT)
            continue;
        int status = dv__contract_eval_list_length(c, args, s, i, &count);
        for (int64_t k = 0; k < (count < 0 ? 1 : count) && !status; k++)
            status = cost_add_result_bytes(c, args, s, i, count < 0 ? -1 : k, bytes);
        if (status)
            return status;
    }
    return DV_OK;
}

/* ---- Splitting ----------------------------------------------------------------------------------------------------------- */

/* True if the item is a size or variadic that a parallel() fact of the selected cases names. */
static bool dim_item_is_parallel(const dv__contract *c, const dv__solution *s, const dv__dim_item *item)
{
    for (uint32_t i = 0; i < c->nparallel_dims; i++)
        if (dv__case_ref_is_selected(c->parallel_dims[i].when, s) && c->parallel_dims[i].ref == item->ref &&
            item->kind == (c->parallel_dims[i].is_variadic ? DV__DIM_VARIADIC : DV__DIM_VAR))
            return true;
    return false;
}

/* True if the first n items of dims are the split dims. */
static bool dims_begin_with(const dv__dims *dims, const dv__dim_item *split_dims, uint32_t n)
{
    if (dims->is_any_shape || dims->n < n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (dims->items[i].kind != split_dims[i].kind || dims->items[i].ref != split_dims[i].ref)
            return false;
    return true;
}

/* True if some item of dims uses one of the n split dims. */
static bool dims_use_any_of(const dv__dims *dims, const dv__dim_item *split_dims, uint32_t n)
{
    for (uint32_t i = 0; i < dims->n; i++)
        for (uint32_t k = 0; k < n; k++)
            if (dims->items[i].vars.dims & split_dims[k].vars.dims ||
                dims->items[i].vars.variadics & split_dims[k].vars.variadics)
                return true;
    return false;
}

/* Counts the leading dims of the results that can be split: the largest number such that every tensor begins with all of them
 * or, if it is only read, has none of them. s NULL: for contracts without cases. *split_dims points at them. */
static uint32_t split_count_dims(const dv__contract *c, const dv__solution *s, const dv__dim_item **split_dims)
{
    uint32_t n = 0;
    *split_dims = NULL;
    for (uint32_t i = 0; i < c->nresult_patterns + c->npatterns && !*split_dims;
        i++) { /* the first written tensor gives the order of the dims */
        const bool output = i < c->nresult_patterns;
        const dv__pattern *t = output ? &c->result_patterns[i] : &c->patterns[i - c->nresult_patterns];
        if ((t->when.group >= 0 && !dv__case_ref_is_selected(t->when, s)) || t->presence == DV__PRESENCE_ABSENT ||
            (output && t->aliased_slot >= 0))
            continue;
        if ((!output && !dv__argument_is_written(&c->schema->args[t->slot])) || t->kind != DV__PATTERN_TENSOR)
            continue;
        *split_dims = t->dims.items;
        while (n < t->dims.n && dim_item_is_parallel(c, s, &t->dims.items[n]))
            n++;
    }
    for (; n; n--) {
        bool fits = true;
        for (uint32_t i = 0; i < c->npatterns && fits; i++) {
            const dv__pattern *t = &c->patterns[i];
            if ((t->when.group >= 0 && !dv__case_ref_is_selected(t->when, s)) || t->presence == DV__PRESENCE_ABSENT)
                continue;
            const bool leads = t->kind == DV__PATTERN_TENSOR && dims_begin_with(&t->dims, *split_dims, n);
            fits = leads || (!dv__argument_is_written(&c->schema->args[t->slot]) && !dims_use_any_of(&t->dims, *split_dims, n));
        }
        for (uint32_t i = 0; i < c->nresult_patterns && fits; i++) {
            const dv__pattern *t = &c->result_patterns[i];
            if ((t->when.group >= 0 && !dv__case_ref_is_selected(t->when, s)) || t->presence == DV__PRESENCE_ABSENT ||
                t->aliased_slot >= 0)
                continue;
            fits = t->kind == DV__PATTERN_TENSOR && dims_begin_with(&t->dims, *split_dims, n) && t->viewed_slot < 0 &&
                !t->is_unbacked;
        }
        if (fits)
            return n;
    }
    return 0;
}

/* Returns the pattern of a slot in the selected cases; of a return that is an argument, the argument's pattern. NULL: none. s
 * NULL: for contracts without cases. */
static const dv__pattern *slot_find_selected_pattern(const dv__contract *c, const dv__solution *s, size_t slot)
{
    const bool output = slot >= c->schema->nargs;
    for (uint32_t i = 0; i < (output ? c->nresult_patterns : c->npatterns); i++) {
        const dv__pattern *t = output ? &c->result_patterns[i] : &c->patterns[i];
        if (t->slot == (int32_t)slot && (t->when.group < 0 || dv__case_ref_is_selected(t->when, s)))
            return t->aliased_slot >= 0 ? slot_find_selected_pattern(c, s, (size_t)t->aliased_slot) : t;
    }
    return NULL;
}

/* True if the slot's tensor begins with the n split dims, so that each slice gets a part of it. */
static bool slot_is_split(const dv__contract *c, const dv__solution *s, size_t slot, const dv__dim_item *split_dims, uint32_t n)
{
    const dv__pattern *t = slot_find_selected_pattern(c, s, slot);
    return t && t->kind == DV__PATTERN_TENSOR && dims_begin_with(&t->dims, split_dims, n);
}

/* Finds the dims along which calls may be split, if they do not depend on cases. Returns DV_OK or DV_ENOMEM. */
int dv__contract_analyze_split(dv__contract *c)
{
    const size_t slots = c->schema->nargs + c->schema->nreturns;
    c->is_slot_split = DV__ARENA_ARRAY(&c->arena, uint8_t, slots);
    if (!c->is_slot_split)
        return DV_ENOMEM;
    if (!c->nparallel_dims)
        return DV_OK;
    if (c->ngroups) {
        c->nsplit_dims = -1;
        return DV_OK;
    }
    c->nsplit_dims = (int8_t)split_count_dims(c, NULL, &c->split_dims);
    for (size_t slot = 0; slot < slots && c->nsplit_dims; slot++)
        c->is_slot_split[slot] = slot_is_split(c, NULL, slot, c->split_dims, (uint32_t)c->nsplit_dims);
    return DV_OK;
}

enum { MAX_CASE_COMBINATIONS = 1 << 16 };

/* Advances to the next combination of cases, as a counter does. Returns false after the last combination. */
static bool cases_try_advance_to_next_combination(const dv__contract *c, int32_t *cases)
{
    for (uint32_t g = 0; g < c->ngroups; g++) {
        if (++cases[g] < (int32_t)c->groups[g].n)
            return true;
        cases[g] = 0;
    }
    return false;
}

/* True if calls can be split in some combination of cases, or if that is not known: memory is out, or there are too many. */
bool dv__contract_can_split(const dv__contract *c)
{
    if (c->nsplit_dims >= 0)
        return c->nsplit_dims > 0;
    dv__solution *s = dv__calloc(1, sizeof *s);
    const dv__dim_item *split_dims;
    uint32_t left = MAX_CASE_COMBINATIONS;
    bool may;
    if (!s) /* if memory is out, calls may be split */
        return true;
    do
        may = split_count_dims(c, s, &split_dims) || !--left;
    while (!may && cases_try_advance_to_next_combination(c, s->selected_cases));
    dv__free(s);
    return may;
}

bool dv__contract_try_get_split_dims(const dv__contract *c, const dv__solution *s, size_t slot, int32_t *nleading)
{
    const dv__dim_item *split_dims = c->split_dims;
    uint32_t n = c->nsplit_dims < 0 ? split_count_dims(c, s, &split_dims) : (uint32_t)c->nsplit_dims;
    *nleading = 0;
    if (!n)
        return false;
    if (c->nsplit_dims < 0 ? slot_is_split(c, s, slot, split_dims, n) : c->is_slot_split[slot])
        for (uint32_t i = 0; i < n; i++)
            *nleading += split_dims[i].kind == DV__DIM_VARIADIC ? s->registers[dv__variadic_register(c, split_dims[i].ref)].n : 1;
    return true;
}

bool dv__contract_can_flatten_split(const dv__contract *c, const dv__solution *s)
{
    const dv__dim_item *split_dims = c->split_dims;
    const uint32_t n = c->nsplit_dims < 0 ? split_count_dims(c, s, &split_dims) : (uint32_t)c->nsplit_dims;
    return n == 1 && split_dims->kind == DV__DIM_VARIADIC;
}
