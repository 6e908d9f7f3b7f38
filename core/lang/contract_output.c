/* The work after solving: outputs, costs, and how a call may be split. */
#include "lang/contract_internal.h"

#include <assert.h>
#include <stdio.h>

/* "result 'out'", "result 'outs[1]'", "result 0". place: of a list; < 0: none */
static int wrong(const dv__contract *c, int status, const dv__pattern *t, int64_t place, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static int wrong(const dv__contract *c, int status, const dv__pattern *t, int64_t place, const char *format, ...)
{
    char what[1800], element[24] = "";
    if (place >= 0)
        snprintf(element, sizeof element, "[%lld]", (long long)place);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (*t->name)
        return dv_fail(status, "%s: result '%s%s': %s", c->name, t->name, element, what);
    return dv_fail(status, "%s: result %d%s: %s", c->name, (int)t->slot - (int)c->schema->nargs, element, what);
}

/* The place of the tensor of a list that is described now; -1: not a list. */
static int64_t place_of(const dv__run *v, const dv__pattern *t)
{
    const dv__operand index = v->program->results[t - v->c->outputs].index;
    return index < 0 ? -1 : v->s->registers[index].i;
}

/* The pattern of return i in this call's cases, or NULL. */
static const dv__pattern *find_output(const dv__contract *c, const dv__solution *s, size_t i)
{
    const int only = c->output_of[i];
    if (only >= 0)
        return &c->outputs[only];
    for (uint32_t k = 0; only == -2 && k < c->noutputs; k++)
        if (c->outputs[k].slot == (int32_t)(c->schema->nargs + i) && dv__when_holds(c->outputs[k].when, s))
            return &c->outputs[k];
    return NULL;
}

/* ---- Strides ------------------------------------------------------------------------------------------------------------ */

static int too_big(const dv__run *v, const dv__pattern *t, const dv__output *out)
{
    dv__words w = { 0 };
    dv__say_sizes(&w, out->shape, out->ndim);
    return wrong(v->c, DV_ESHAPE, t, place_of(v, t), "expected a size in bytes that fits 64 bits, found shape %s of %s", w.data,
        dv_dtype_name(out->dtype));
}

/* Dense strides in the order of dims `order`, slowest first (NULL: as they stand). Sizes of 0 count as 1, as in PyTorch. */
static int dense_strides(const dv__run *v, const dv__pattern *t, dv__output *out, const int32_t *order)
{
    int64_t *strides = dv__reserve(v, out->ndim), next = 1, bits;
    if (!strides)
        return DV_ELIMIT;
    for (int32_t i = out->ndim - 1; i >= 0; i--) {
        const int32_t d = order ? order[i] : i;
        strides[d] = next;
        if (__builtin_mul_overflow(next, out->shape[d] > 1 ? out->shape[d] : 1, &next))
            return too_big(v, t, out);
    }
    out->strides = strides;
    return __builtin_mul_overflow(next, (int64_t)out->dtype.bits * out->dtype.lanes, &bits) ? too_big(v, t, out) : DV_OK;
}

/* PyTorch's "non-overlapping and dense": some order of the dims makes it contiguous. An empty tensor is. */
static bool is_dense(const dv_tensor *x, const int32_t *order)
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

/* Should dim a be slower than dim b? > 0: yes; < 0: no; 0: undetermined by their strides. */
static int slower(const dv_tensor *x, int32_t a, int32_t b)
{
    if (!x->strides[a] || !x->strides[b])
        return 0;
    if (x->strides[a] != x->strides[b])
        return x->strides[a] > x->strides[b] ? 1 : -1;
    return x->shape[a] > x->shape[b] ? 1 : 0;
}

/* As torch.empty_like: the same strides when they are dense, else dense ones with dims in the order of the argument's strides.
 * As in PyTorch, each dim moves past the dims that it must be slower than, also past undetermined ones, until a faster one stops
 * it. */
static int like_strides(const dv__run *v, const dv__result *r, dv__output *out)
{
    const dv__pattern *t = r->pattern;
    const dv_value *like = &v->args[t->like]; /* of a list: the tensor at the same place */
    const dv_tensor *x = like->type == DV_VALUE_TENSORS ? like->as.tensors.data[v->s->registers[r->index].i] : like->as.tensor;
    int32_t order[DV_MAX_NDIM] = { 0 }; /* slowest first */
    const int32_t n = x->ndim;
    for (int32_t i = 0; i < n; i++)
        order[i] = i;
    for (int32_t i = n - 2; i >= 0; i--)
        for (int32_t at = i, other = i + 1; other < n; other++) {
            const int moves = slower(x, order[other], order[at]);
            if (moves < 0)
                break;
            if (moves > 0) {
                const int32_t d = order[at];
                order[at] = order[other];
                order[other] = d;
                at = other;
            }
        }
    const int status = dense_strides(v, t, out, order);
    if (status || (n && memcmp(x->shape, out->shape, (size_t)n * sizeof *x->shape) != 0))
        return status;
    int32_t by_stride[DV_MAX_NDIM];
    for (int32_t i = 0; i < n; i++) {
        int32_t k = i;
        for (; k > 0 && x->strides[i] > x->strides[by_stride[k - 1]]; k--)
            by_stride[k] = by_stride[k - 1];
        by_stride[k] = i;
    }
    if (is_dense(x, by_stride))
        out->strides = x->strides;
    return DV_OK;
}

/* ---- Outputs ------------------------------------------------------------------------------------------------------------- */

static void argument_itself(const dv_tensor *x, int32_t slot, dv__output *out)
{
    out->dtype = x->dtype;
    out->device = x->device;
    out->ndim = x->ndim;
    out->shape = x->shape;
    out->strides = x->strides;
    out->view_of = slot;
}

static int make_output(dv__run *v, const dv__result *r, dv__output *out)
{
    if (r->kind == DV__RESULT_FUNCTION)
        return wrong(v->c, DV_ENOTSUP, r->pattern, -1, "the contract leaves it to a C shape function");
    const int status = dv__run_section(v, &r->section);
    if (status)
        return status;
    if (r->kind == DV__RESULT_ARGUMENT) {
        argument_itself(dv__first_tensor(&v->args[r->of]), r->of, out);
        return DV_OK;
    }
    const dv__reg *shape = dv__read(v, r->shape);
    out->dtype = dv__read(v, r->dtype)->dtype;
    out->device = r->device == dv__device_register(v->c) ? v->s->device : dv__read(v, r->device)->device;
    out->shape = shape->sizes;
    out->ndim = shape->n;
    out->unbacked = r->pattern->unbacked;
    if (r->kind != DV__RESULT_VIEW)
        return r->kind == DV__RESULT_LIKE ? like_strides(v, r, out) : dense_strides(v, r->pattern, out, NULL);
    out->view_of = r->of;
    out->strides = dv__read(v, r->strides)->sizes;
    out->offset = r->offset == DV__NEVER ? 0 : dv__read(v, r->offset)->i;
    return DV_OK;
}

/* The common case of an output, without a function call: contiguous, with names, literals and runs as dims. False: another case,
 * or an error. */
static inline bool plain_output(const dv__contract *c, dv__solution *s, const dv__pattern *t, dv__output *out)
{
    const dv__dims *dims = &t->dims;
    int64_t *shape = s->pool + s->pool_used, *strides, next = 1;
    int32_t n = 0;
    if (s->pool_used > DV__SHAPE_POOL - 2 * DV_MAX_NDIM || dims->n > DV_MAX_NDIM)
        return false;
    if (dims->n == 1 && dims->items->kind == DV__ITEM_RUN) {
        out->shape = s->registers[dv__run_register(c, dims->items->ref)].sizes;
        n = s->registers[dv__run_register(c, dims->items->ref)].n;
        strides = shape;
    } else {
        for (uint32_t i = 0; i < dims->n; i++) {
            const dv__item *item = &dims->items[i];
            if (item->kind == DV__ITEM_RUN) {
                const int64_t *sizes = s->registers[dv__run_register(c, item->ref)].sizes;
                const int32_t rank = s->registers[dv__run_register(c, item->ref)].n;
                if (rank > DV_MAX_NDIM - n)
                    return false;
                for (int32_t k = 0; k < rank; k++)
                    shape[n++] = sizes[k];
            } else if (n < DV_MAX_NDIM) {
                shape[n++] = item->kind == DV__ITEM_VAR ? s->registers[item->ref].i : item->value;
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
    out->dtype = t->dtype.kind == DV__DTYPE_VAR ? s->registers[dv__dtype_register(c, t->dtype.ref)].dtype
                                                : dv_dtype_from_key(t->dtype.one);
    if (next > INT64_MAX >> 24) /* bits * lanes is below 2^24; dense_strides() is exact */
        return false;
    s->pool_used = (int32_t)(strides + n - s->pool);
    out->strides = strides;
    out->ndim = n;
    out->device = s->device;
    out->unbacked = false;
    out->view_of = -1;
    out->offset = 0;
    return true;
}

int dv__contract_output(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, dv__output *out)
{
    const dv__pattern *t = c->output_of[i] >= 0 ? &c->outputs[c->output_of[i]] : find_output(c, s, i);
    if (t && t->plain && plain_output(c, s, t, out))
        return DV_OK;
    dv__run r = { .c = c, .program = c->program, .args = args, .s = s };
    memset(out, 0, sizeof *out);
    out->view_of = -1;
    out->shape = out->strides = s->pool;
    if (!t || t->presence == DV__ABSENT) {
        out->ndim = -1;
        return DV_OK;
    }
    s->registers[dv__device_register(c)].device = s->device;
    return make_output(&r, &c->program->results[t - c->outputs], out);
}

bool dv__contract_gives_view(const dv__contract *c, const dv__solution *s, size_t i)
{
    const dv__pattern *t = find_output(c, s, i);
    return t && t->view_of >= 0;
}

int dv__contract_count(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, int64_t *count)
{
    const dv__pattern *t = find_output(c, s, i);
    const dv__result *r = t ? &c->program->results[t - c->outputs] : NULL;
    dv__run run = { .c = c, .program = c->program, .args = args, .s = s };
    *count = -1;
    if (!r || r->count.value == DV__NEVER)
        return DV_OK;
    const int status = dv__run_section(&run, &r->count);
    if (!status)
        *count = dv__read(&run, r->count.value)->i;
    return status;
}

int64_t dv__contract_length(const dv__contract *c, size_t i)
{
    const dv__pattern *t = c->output_of[i] >= 0 ? &c->outputs[c->output_of[i]] : NULL;
    int64_t n;
    return t && t->kind == DV__PATTERN_LIST && t->count && dv__constant(t->count, &n) ? n : -1;
}

int dv__contract_element(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, int64_t place, dv__output *out)
{
    const dv__pattern *t = find_output(c, s, i);
    assert(t && t->kind == DV__PATTERN_LIST);
    s->registers[c->program->results[t - c->outputs].index].i = place;
    return dv__contract_output(c, args, s, i, out);
}

bool dv__contract_is_unbacked(const dv__contract *c) { return c->nunbacked; }

bool dv__contract_needs_shape(const dv__contract *c)
{
    for (uint32_t i = 0; i < c->noutputs; i++)
        if (c->outputs[i].dims.any && c->outputs[i].is_argument < 0 && c->outputs[i].presence != DV__ABSENT)
            return true;
    return false;
}

int dv__contract_check_given(
    const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, int64_t place, const dv_tensor *given)
{
    const int32_t used = s->pool_used;
    const dv__pattern *t = find_output(c, s, i);
    dv__output out;
    int status = place < 0 ? dv__contract_output(c, args, s, i, &out) : dv__contract_element(c, args, s, i, place, &out);
    s->pool_used = used;
    if (status)
        return status;
    if (out.ndim < 0)
        return dv_fail(DV_EINVAL, "%s: result %zu: expected none in this case, found a tensor", c->name, i);
    if (dv_dtype_key(out.dtype) != dv_dtype_key(given->dtype))
        return wrong(
            c, DV_EDTYPE, t, place, "expected dtype %s, found %s", dv_dtype_name(out.dtype), dv_dtype_name(given->dtype));
    if (out.device.type != given->device.type || (out.device.id != given->device.id && out.device.type != DV_CPU))
        return wrong(c, DV_EDEVICE, t, place, "expected a tensor on %s:%d, found one on %s:%d", dv_device_name(out.device.type),
            (int)out.device.id, dv_device_name(given->device.type), (int)given->device.id);
    bool same = out.ndim == given->ndim;
    for (int32_t d = 0; same && d < out.ndim && !out.unbacked; d++)
        same = out.shape[d] == given->shape[d];
    if (same)
        return DV_OK;
    dv__words expected = { 0 }, found = { 0 };
    dv__say_sizes(&expected, out.shape, out.ndim);
    dv__say_sizes(&found, given->shape, given->ndim);
    return wrong(c, DV_ESHAPE, t, place, "expected shape %s, found %s", expected.data, found.data);
}

/* ---- Costs --------------------------------------------------------------------------------------------------------------- */

int dv__contract_workspace(const dv__contract *c, const dv_value *args, dv__solution *s, int64_t *bytes)
{
    *bytes = 0;
    if (!c->workspace)
        return DV_OK;
    dv__run r = { .c = c, .program = c->program, .args = args, .s = s };
    const int status = dv__run_section(&r, &c->program->workspace);
    *bytes = status ? 0 : dv__read(&r, c->program->workspace.value)->i;
    return status;
}

static int real_cost(const dv__contract *c, const dv__section *section, const dv_value *args, dv__solution *s, double *out)
{
    dv__run r = { .c = c, .program = c->program, .args = args, .s = s };
    const int status = dv__run_section(&r, section);
    if (!status)
        *out = dv__read(&r, section->value)->f;
    return status;
}

int dv__contract_flops(const dv__contract *c, const dv_value *args, dv__solution *s, double *flops)
{
    *flops = -1;
    return c->flops ? real_cost(c, &c->program->flops, args, s, flops) : DV_OK;
}

static double tensor_bytes(dv_dtype dtype, const int64_t *shape, int32_t ndim)
{
    double n = (double)dtype.bits * dtype.lanes / 8;
    for (int32_t i = 0; i < ndim; i++)
        n *= (double)shape[i];
    return n;
}

static int add_output_bytes(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, int64_t place, double *bytes)
{
    const int32_t used = s->pool_used;
    dv__output out;
    const int status = place < 0 ? dv__contract_output(c, args, s, i, &out) : dv__contract_element(c, args, s, i, place, &out);
    s->pool_used = used;
    if (!status && out.ndim >= 0 && out.view_of < 0)
        *bytes += tensor_bytes(out.dtype, out.shape, out.ndim);
    return status;
}

int dv__contract_bytes(const dv__contract *c, const dv_value *args, dv__solution *s, double *bytes)
{
    *bytes = 0;
    if (c->bytes)
        return real_cost(c, &c->program->bytes, args, s, bytes);
    for (size_t i = 0; i < c->schema->nargs; i++) {
        const dv_value *value = &args[i];
        const double times = dv__argument_writes(&c->schema->args[i]) ? 2 : 1; /* read and written */
        if (value->type == DV_VALUE_TENSOR)
            *bytes += times * tensor_bytes(value->as.tensor->dtype, value->as.tensor->shape, value->as.tensor->ndim);
        for (size_t k = 0; value->type == DV_VALUE_TENSORS && k < value->as.tensors.size; k++)
            if (value->as.tensors.data[k])
                *bytes += times *
                    tensor_bytes(
                        value->as.tensors.data[k]->dtype, value->as.tensors.data[k]->shape, value->as.tensors.data[k]->ndim);
    }
    for (size_t i = 0; i < c->schema->nreturns; i++) {
        const dv__pattern *t = find_output(c, s, i);
        int64_t count;
        if (!t || t->dims.any || t->presence == DV__ABSENT)
            continue;
        int status = dv__contract_count(c, args, s, i, &count);
        for (int64_t k = 0; k < (count < 0 ? 1 : count) && !status; k++)
            status = add_output_bytes(c, args, s, i, count < 0 ? -1 : k, bytes);
        if (status)
            return status;
    }
    return DV_OK;
}

/* ---- Splitting ----------------------------------------------------------------------------------------------------------- */

static bool is_parallel(const dv__contract *c, const dv__solution *s, const dv__item *item)
{
    for (uint32_t i = 0; i < c->nparallel; i++)
        if (dv__when_holds(c->parallel[i].when, s) && c->parallel[i].ref == item->ref &&
            item->kind == (c->parallel[i].run ? DV__ITEM_RUN : DV__ITEM_VAR))
            return true;
    return false;
}

static bool begins_with(const dv__dims *dims, const dv__item *lead, uint32_t n)
{
    if (dims->any || dims->n < n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (dims->items[i].kind != lead[i].kind || dims->items[i].ref != lead[i].ref)
            return false;
    return true;
}

static bool knows_any(const dv__dims *dims, const dv__item *lead, uint32_t n)
{
    for (uint32_t i = 0; i < dims->n; i++)
        for (uint32_t k = 0; k < n; k++)
            if (dims->items[i].needs.dims & lead[k].needs.dims || dims->items[i].needs.runs & lead[k].needs.runs)
                return true;
    return false;
}

/* Which of the leading dims of the outputs can be cut: the largest number such that every tensor either begins with all of them
 * or, if it is only read, has none of them. s NULL: for contracts without cases. Returns how many items; *lead points at them. */
static uint32_t split_items(const dv__contract *c, const dv__solution *s, const dv__item **lead)
{
    uint32_t most = 0;
    *lead = NULL;
    for (uint32_t i = 0; i < c->noutputs + c->npatterns && !*lead; i++) { /* the first tensor that is written leads */
        const bool output = i < c->noutputs;
        const dv__pattern *t = output ? &c->outputs[i] : &c->patterns[i - c->noutputs];
        if ((t->when.group >= 0 && !dv__when_holds(t->when, s)) || t->presence == DV__ABSENT || (output && t->is_argument >= 0))
            continue;
        if ((!output && !dv__argument_writes(&c->schema->args[t->slot])) || t->kind != DV__PATTERN_TENSOR)
            continue;
        *lead = t->dims.items;
        while (most < t->dims.n && is_parallel(c, s, &t->dims.items[most]))
            most++;
    }
    for (; most; most--) {
        bool fits = true;
        for (uint32_t i = 0; i < c->npatterns && fits; i++) {
            const dv__pattern *t = &c->patterns[i];
            if ((t->when.group >= 0 && !dv__when_holds(t->when, s)) || t->presence == DV__ABSENT)
                continue;
            const bool leads = t->kind == DV__PATTERN_TENSOR && begins_with(&t->dims, *lead, most);
            fits = leads || (!dv__argument_writes(&c->schema->args[t->slot]) && !knows_any(&t->dims, *lead, most));
        }
        for (uint32_t i = 0; i < c->noutputs && fits; i++) {
            const dv__pattern *t = &c->outputs[i];
            if ((t->when.group >= 0 && !dv__when_holds(t->when, s)) || t->presence == DV__ABSENT || t->is_argument >= 0)
                continue;
            fits = t->kind == DV__PATTERN_TENSOR && begins_with(&t->dims, *lead, most) && t->view_of < 0 && !t->unbacked;
        }
        if (fits)
            return most;
    }
    return 0;
}

static const dv__pattern *pattern_of(const dv__contract *c, const dv__solution *s, size_t slot)
{
    const bool output = slot >= c->schema->nargs;
    for (uint32_t i = 0; i < (output ? c->noutputs : c->npatterns); i++) {
        const dv__pattern *t = output ? &c->outputs[i] : &c->patterns[i];
        if (t->slot == (int32_t)slot && (t->when.group < 0 || dv__when_holds(t->when, s)))
            return t->is_argument >= 0 ? pattern_of(c, s, (size_t)t->is_argument) : t;
    }
    return NULL;
}

static bool is_cut(const dv__contract *c, const dv__solution *s, size_t slot, const dv__item *lead, uint32_t n)
{
    const dv__pattern *t = pattern_of(c, s, slot);
    return t && t->kind == DV__PATTERN_TENSOR && begins_with(&t->dims, lead, n);
}

int dv__contract_prepare_split(dv__contract *c)
{
    const size_t slots = c->schema->nargs + c->schema->nreturns;
    c->split_slots = DV__ARENA_ARRAY(&c->arena, uint8_t, slots);
    if (!c->split_slots)
        return DV_ENOMEM;
    if (!c->nparallel)
        return DV_OK;
    if (c->ngroups) {
        c->split_items = -1;
        return DV_OK;
    }
    c->split_items = (int8_t)split_items(c, NULL, &c->split_lead);
    for (size_t slot = 0; slot < slots && c->split_items; slot++)
        c->split_slots[slot] = is_cut(c, NULL, slot, c->split_lead, (uint32_t)c->split_items);
    return DV_OK;
}

enum { MANY_CASES = 1 << 16 };

/* The next combination of cases, like the next number; false: all were there. */
static bool next_cases(const dv__contract *c, int32_t *cases)
{
    for (uint32_t g = 0; g < c->ngroups; g++) {
        if (++cases[g] < (int32_t)c->groups[g].n)
            return true;
        cases[g] = 0;
    }
    return false;
}

bool dv__contract_may_split(const dv__contract *c)
{
    if (c->split_items >= 0)
        return c->split_items > 0;
    dv__solution *s = dv__calloc(1, sizeof *s);
    const dv__item *lead;
    uint32_t left = MANY_CASES;
    bool may;
    if (!s) /* then, and after so many cases, it is not known */
        return true;
    do
        may = split_items(c, s, &lead) || !--left;
    while (!may && next_cases(c, s->cases));
    dv__free(s);
    return may;
}

bool dv__contract_split(const dv__contract *c, const dv__solution *s, size_t slot, int32_t *leading)
{
    const dv__item *lead = c->split_lead;
    uint32_t n = c->split_items < 0 ? split_items(c, s, &lead) : (uint32_t)c->split_items;
    *leading = 0;
    if (!n)
        return false;
    if (c->split_items < 0 ? is_cut(c, s, slot, lead, n) : c->split_slots[slot])
        for (uint32_t i = 0; i < n; i++)
            *leading += lead[i].kind == DV__ITEM_RUN ? s->registers[dv__run_register(c, lead[i].ref)].n : 1;
    return true;
}

bool dv__contract_split_flattens(const dv__contract *c, const dv__solution *s)
{
    const dv__item *lead = c->split_lead;
    const uint32_t n = c->split_items < 0 ? split_items(c, s, &lead) : (uint32_t)c->split_items;
    return n == 1 && lead->kind == DV__ITEM_RUN;
}
