/* After solving: outputs, costs, and how a call may be split. */
#include "lang/contract_internal.h"

#include <stdio.h>

/* "result 'out'", "result 0" */
static int wrong(const dv__env *v, int status, const dv__pattern *t, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int wrong(const dv__env *v, int status, const dv__pattern *t, const char *format, ...)
{
    char what[1800];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (*t->name)
        return dv_fail(status, "%s: result '%s': %s", v->c->name, t->name, what);
    return dv_fail(status, "%s: result %d: %s", v->c->name, (int)t->slot - (int)v->c->schema->nargs, what);
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

static int64_t *reserve(const dv__env *v, int32_t n)
{
    dv__solution *s = v->s;
    if (s->pool_used + n > DV__SHAPE_POOL) {
        dv_fail(DV_ELIMIT, "%s: the outputs have more than %d dims together", v->c->name, DV__SHAPE_POOL / 2);
        return NULL;
    }
    int64_t *p = s->pool + s->pool_used;
    s->pool_used += n;
    return p;
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------------- */

static int negative(const dv__env *v, const dv__pattern *t, const dv__item *item, int64_t size)
{
    dv__words w = { 0 };
    dv__say_variables(&w, v, item->needs);
    return wrong(v, DV_ESHAPE, t, "expected a size, found %s = %lld%s%s", item->text, (long long)size, w.n ? " with " : "",
        w.n ? w.data : "");
}

static int add_size(const dv__env *v, const dv__pattern *t, const dv__item *item, int64_t size, int64_t *shape, int32_t *n)
{
    if (size < 0)
        return negative(v, t, item, size);
    if (*n == DV_MAX_NDIM)
        return wrong(v, DV_ESHAPE, t, "expected at most %d dims", DV_MAX_NDIM);
    shape[(*n)++] = size;
    return DV_OK;
}

static int add_item(dv__env *v, const dv__pattern *t, const dv__item *item, int64_t *shape, int32_t *n)
{
    if (item->kind == DV__ITEM_INT || item->kind == DV__ITEM_EXPR) {
        int64_t size = 0;
        v->where = item->text;
        const int status = dv__eval_int(v, item->e, &size);
        return status ? status : add_size(v, t, item, size, shape, n);
    }
    dv__sizes sizes;
    v->where = item->text;
    int status = dv__eval_sizes(v, item->e, &sizes);
    for (int32_t i = 0; !status && i < sizes.n; i++)
        status = add_size(v, t, item, sizes.data[i], shape, n);
    return status;
}

static int make_shape(dv__env *v, const dv__pattern *t, dv__output *out)
{
    const dv__dims *dims = &t->dims;
    const dv__solution *s = v->s;
    if (dims->n == 1 && dims->items->kind == DV__ITEM_RUN) {
        out->shape = s->runs[dims->items->ref].sizes;
        out->ndim = s->runs[dims->items->ref].ndim;
        return DV_OK;
    }
    int64_t room[DV_MAX_NDIM], *shape = room;
    const bool direct = dims->singles == dims->n && dims->n <= DV_MAX_NDIM;
    int32_t n = 0;
    if (direct && !(shape = reserve(v, (int32_t)dims->n)))
        return DV_ELIMIT;
    for (uint32_t i = 0; i < dims->n; i++) {
        const dv__item *item = &dims->items[i];
        if (item->kind == DV__ITEM_VAR && n < DV_MAX_NDIM) {
            shape[n++] = s->dims[item->ref];
            if (s->dims[item->ref] < 0)
                return negative(v, t, item, s->dims[item->ref]);
            continue;
        }
        const int status = item->kind == DV__ITEM_VAR ? add_size(v, t, item, 0, shape, &n) : add_item(v, t, item, shape, &n);
        if (status)
            return status;
    }
    if (!direct) {
        int64_t *kept = reserve(v, n);
        if (!kept)
            return DV_ELIMIT;
        if (n)
            memcpy(kept, room, (size_t)n * sizeof *room);
        shape = kept;
    }
    out->shape = shape;
    out->ndim = n;
    return DV_OK;
}

/* ---- Strides ------------------------------------------------------------------------------------------------------------ */

static int too_big(const dv__env *v, const dv__pattern *t, const dv__output *out)
{
    dv__words w = { 0 };
    dv__say_sizes(&w, out->shape, out->ndim);
    return wrong(
        v, DV_ESHAPE, t, "expected a size in bytes that fits 64 bits, found shape %s of %s", w.data, dv_dtype_name(out->dtype));
}

/* Dense strides in the order of dims `order`, slowest first (NULL: as they stand). Sizes of 0 count as 1, as in PyTorch. */
static int dense_strides(const dv__env *v, const dv__pattern *t, dv__output *out, const int32_t *order)
{
    int64_t *strides = reserve(v, out->ndim), next = 1, bits;
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

/* Should dim a be slower than dim b? > 0: yes; < 0: no; 0: their strides do not tell. */
static int slower(const dv_tensor *x, int32_t a, int32_t b)
{
    if (!x->strides[a] || !x->strides[b])
        return 0;
    if (x->strides[a] != x->strides[b])
        return x->strides[a] > x->strides[b] ? 1 : -1;
    return x->shape[a] > x->shape[b] ? 1 : 0;
}

/* As torch.empty_like: the same strides when they are dense, else dense ones with dims in the order of the argument's strides.
 * PyTorch moves each dim past those that it must be slower than, through dims that do not tell, until one stops it. */
static int like_strides(const dv__env *v, const dv__pattern *t, dv__output *out)
{
    const dv_tensor *x = dv__tensor_of(v, t->like);
    if (!x)
        return wrong(v, DV_EINVAL, t, "expected a tensor in '%s' for like(), found None", v->c->schema->args[t->like].name);
    if (x->ndim != out->ndim)
        return wrong(v, DV_ESHAPE, t, "expected as many dims as '%s' has, %d, for like(), found %d",
            v->c->schema->args[t->like].name, (int)x->ndim, (int)out->ndim);
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

/* ---- Views --------------------------------------------------------------------------------------------------------------- */

static int eval_axis(const dv__env *v, const dv__pattern *t, const dv__expr *e, int64_t n, int64_t *out)
{
    int64_t dim = 0;
    const int status = dv__eval_int(v, e, &dim);
    if (status)
        return status;
    if (dim < -n || dim >= n)
        return wrong(
            v, DV_EINVAL, t, "expected a dim from %lld to %lld, found %lld", (long long)-n, (long long)(n - 1), (long long)dim);
    *out = dim < 0 ? dim + n : dim;
    return DV_OK;
}

static int permute(dv__env *v, const dv__pattern *t, const dv_tensor *x, int64_t *shape, int64_t *strides)
{
    const dv_value *order = &v->args[t->transform->args[0]->ref];
    uint64_t seen = 0;
    if (order->type != DV_VALUE_INTS || order->as.ints.size != (size_t)x->ndim)
        return wrong(v, DV_EINVAL, t, "expected %d dims in '%s'", (int)x->ndim, t->transform->args[0]->name);
    for (int32_t i = 0; i < x->ndim; i++) {
        const int64_t given = order->as.ints.data[i], d = given < 0 ? given + x->ndim : given;
        if (d < 0 || d >= x->ndim || seen >> d & 1)
            return wrong(v, DV_EINVAL, t, "'%s' is no permutation: found %lld at %d", t->transform->args[0]->name,
                (long long)given, (int)i);
        seen |= 1ull << d;
        shape[i] = x->shape[d];
        strides[i] = x->strides[d];
    }
    return DV_OK;
}

/* swap(a, b), permute(dims), narrow(dim, start, length), select(dim, index) of x's shape and strides. */
static int transform(dv__env *v, const dv__pattern *t, const dv_tensor *x, dv__output *out)
{
    const dv__expr *e = t->transform;
    enum { SWAP, PERMUTE, NARROW, SELECT };
    int64_t *shape = reserve(v, x->ndim), *strides = reserve(v, x->ndim), a = 0, b = 0, length = 0;
    if (!shape || !strides)
        return DV_ELIMIT;
    if (x->ndim) {
        memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
        memcpy(strides, x->strides, (size_t)x->ndim * sizeof *strides);
    }
    out->shape = shape;
    out->strides = strides;
    out->ndim = x->ndim;
    v->where = t->text;
    if (e->ref == PERMUTE)
        return permute(v, t, x, shape, strides);
    if (!x->ndim && e->ref != SWAP)
        return wrong(v, DV_ESHAPE, t, "expected at least one dim in '%s'", v->c->schema->args[t->view_of].name);
    int status = eval_axis(v, t, e->args[0], x->ndim ? x->ndim : 1, &a);
    if (!status)
        status = e->ref == SWAP ? eval_axis(v, t, e->args[1], x->ndim ? x->ndim : 1, &b)
            : e->ref == SELECT  ? eval_axis(v, t, e->args[1], x->shape[a], &b)
                                : dv__eval_int(v, e->args[1], &b);
    if (!status && e->ref == NARROW)
        status = dv__eval_int(v, e->args[2], &length);
    if (status || !x->ndim)
        return status;
    if (e->ref == SWAP) {
        shape[a] = x->shape[b], shape[b] = x->shape[a];
        strides[a] = x->strides[b], strides[b] = x->strides[a];
        return DV_OK;
    }
    if (e->ref == NARROW && (b < 0 || length < 0 || b > x->shape[a] || length > x->shape[a] - b))
        return wrong(v, DV_ESHAPE, t, "expected start and length inside %lld, found %lld and %lld", (long long)x->shape[a],
            (long long)b, (long long)length);
    if (__builtin_mul_overflow(b, strides[a], &out->offset))
        return too_big(v, t, out);
    if (e->ref == NARROW) {
        shape[a] = length;
        return DV_OK;
    }
    memmove(shape + a, shape + a + 1, (size_t)(x->ndim - a - 1) * sizeof *shape);
    memmove(strides + a, strides + a + 1, (size_t)(x->ndim - a - 1) * sizeof *strides);
    out->ndim--;
    return DV_OK;
}

static int explicit_strides(dv__env *v, const dv__pattern *t, dv__output *out)
{
    if (out->ndim != (int32_t)t->strides.n)
        return wrong(v, DV_ESHAPE, t, "expected %d strides, found %u", (int)out->ndim, t->strides.n);
    int64_t *strides = reserve(v, out->ndim);
    if (!strides)
        return DV_ELIMIT;
    for (uint32_t i = 0; i < t->strides.n; i++) {
        v->where = t->strides.items[i].text;
        const int status = dv__eval_int(v, t->strides.items[i].e, &strides[i]);
        if (status)
            return status;
    }
    out->strides = strides;
    return DV_OK;
}

static int make_view(dv__env *v, const dv__pattern *t, dv__output *out)
{
    const dv_tensor *x = dv__tensor_of(v, t->view_of);
    int status = DV_OK;
    if (!x)
        return wrong(v, DV_EINVAL, t, "expected a tensor in '%s' for view(), found None", v->c->schema->args[t->view_of].name);
    if (t->transform) {
        status = transform(v, t, x, out);
    } else {
        status = make_shape(v, t, out);
        if (!status && t->has_strides)
            status = explicit_strides(v, t, out);
        else if (!status && out->ndim != x->ndim)
            status = wrong(
                v, DV_ESHAPE, t, "a view with other dims than '%s' needs strides[...]", v->c->schema->args[t->view_of].name);
        else
            out->strides = x->strides;
    }
    if (!status && t->offset) {
        v->where = t->text;
        status = dv__eval_int(v, t->offset, &out->offset);
    }
    return status;
}

/* ---- Outputs ------------------------------------------------------------------------------------------------------------- */

static int output_device(const dv__env *v, const dv__pattern *t, dv__output *out)
{
    out->device = v->s->device;
    if (t->on == DV__ON_CPU) {
        out->device.type = DV_CPU;
        out->device.id = 0;
    } else if (t->on == DV__ON_ARGUMENT && v->args[t->on_slot].type == DV_VALUE_DEVICE) {
        out->device = v->args[t->on_slot].as.device;
    }
    return DV_OK;
}

static void argument_itself(const dv_tensor *x, int32_t slot, dv__output *out)
{
    out->dtype = x->dtype;
    out->device = x->device;
    out->ndim = x->ndim;
    out->shape = x->shape;
    out->strides = x->strides;
    out->view_of = slot;
}

static int make_output(dv__env *v, const dv__pattern *t, dv__output *out)
{
    if (t->is_argument >= 0) {
        const dv_tensor *x = dv__tensor_of(v, t->is_argument);
        if (!x)
            return wrong(v, DV_EINVAL, t, "expected a tensor in '%s', found None", v->c->schema->args[t->is_argument].name);
        argument_itself(x, t->is_argument, out);
        return DV_OK;
    }
    if (t->dims.any)
        return wrong(v, DV_ENOTSUP, t, "the contract leaves it to a C shape function");
    output_device(v, t, out);
    if (t->dtype.kind == DV__DTYPE_VAR) {
        out->dtype = v->s->dtypes[t->dtype.ref];
    } else {
        v->where = t->text;
        const int status = dv__eval_dtype(v, t->dtype.alternatives[0], &out->dtype);
        if (status)
            return status;
    }
    out->unbacked = t->unbacked;
    out->view_of = t->view_of;
    if (t->view_of >= 0)
        return make_view(v, t, out);
    const int status = make_shape(v, t, out);
    return status ? status : t->like >= 0 ? like_strides(v, t, out) : dense_strides(v, t, out, NULL);
}

/* The common output: names, literals and runs, contiguous, without a call. False: there is more to say, or something is wrong. */
static inline bool plain_output(dv__solution *s, const dv__pattern *t, dv__output *out)
{
    const dv__dims *dims = &t->dims;
    int64_t *shape = s->pool + s->pool_used, *strides, next = 1;
    int32_t n = 0;
    if (s->pool_used > DV__SHAPE_POOL - 2 * DV_MAX_NDIM || dims->n > DV_MAX_NDIM)
        return false;
    if (dims->n == 1 && dims->items->kind == DV__ITEM_RUN) {
        out->shape = s->runs[dims->items->ref].sizes;
        n = s->runs[dims->items->ref].ndim;
        strides = shape;
    } else {
        for (uint32_t i = 0; i < dims->n; i++) {
            const dv__item *item = &dims->items[i];
            if (item->kind == DV__ITEM_RUN) {
                const int64_t *sizes = s->runs[item->ref].sizes;
                const int32_t rank = s->runs[item->ref].ndim;
                if (rank > DV_MAX_NDIM - n)
                    return false;
                for (int32_t k = 0; k < rank; k++)
                    shape[n++] = sizes[k];
            } else if (n < DV_MAX_NDIM) {
                shape[n++] = item->kind == DV__ITEM_VAR ? s->dims[item->ref] : item->value;
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
    out->dtype = t->dtype.kind == DV__DTYPE_VAR ? s->dtypes[t->dtype.ref] : dv_dtype_from_key(t->dtype.one);
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
    if (t && t->plain && plain_output(s, t, out))
        return DV_OK;
    dv__env v = { .c = c, .args = args, .s = s };
    memset(out, 0, sizeof *out);
    out->view_of = -1;
    out->shape = out->strides = s->pool;
    if (!t || t->presence == DV__ABSENT) {
        out->ndim = -1;
        return DV_OK;
    }
    return make_output(&v, t, out);
}

bool dv__contract_needs_shape(const dv__contract *c)
{
    for (uint32_t i = 0; i < c->noutputs; i++)
        if (c->outputs[i].dims.any && c->outputs[i].is_argument < 0 && c->outputs[i].presence != DV__ABSENT)
            return true;
    return false;
}

int dv__contract_check_given(const dv__contract *c, const dv_value *args, dv__solution *s, size_t i, const dv_tensor *given)
{
    dv__env v = { .c = c, .args = args, .s = s };
    const int32_t used = s->pool_used;
    const dv__pattern *t = find_output(c, s, i);
    dv__output out;
    int status = dv__contract_output(c, args, s, i, &out);
    s->pool_used = used;
    if (status)
        return status;
    if (out.ndim < 0)
        return dv_fail(DV_EINVAL, "%s: result %zu: expected none in this case, found a tensor", c->name, i);
    if (dv_dtype_key(out.dtype) != dv_dtype_key(given->dtype))
        return wrong(&v, DV_EDTYPE, t, "expected dtype %s, found %s", dv_dtype_name(out.dtype), dv_dtype_name(given->dtype));
    if (out.device.type != given->device.type || (out.device.id != given->device.id && out.device.type != DV_CPU))
        return wrong(&v, DV_EDEVICE, t, "expected a tensor on %s:%d, found one on %s:%d", dv_device_name(out.device.type),
            (int)out.device.id, dv_device_name(given->device.type), (int)given->device.id);
    bool same = out.ndim == given->ndim;
    for (int32_t d = 0; same && d < out.ndim && !out.unbacked; d++)
        same = out.shape[d] == given->shape[d];
    if (same)
        return DV_OK;
    dv__words expected = { 0 }, found = { 0 };
    dv__say_sizes(&expected, out.shape, out.ndim);
    dv__say_sizes(&found, given->shape, given->ndim);
    return wrong(&v, DV_ESHAPE, t, "expected shape %s, found %s", expected.data, found.data);
}

/* ---- Costs --------------------------------------------------------------------------------------------------------------- */

int dv__contract_workspace(const dv__contract *c, const dv_value *args, dv__solution *s, int64_t *bytes)
{
    const dv__env v = { .c = c, .args = args, .s = s, .where = "workspace" };
    *bytes = 0;
    if (!c->workspace)
        return DV_OK;
    const int status = dv__eval_int(&v, c->workspace, bytes);
    if (!status && *bytes < 0)
        return dv_fail(DV_ESHAPE, "%s: workspace: expected a size, found %lld", c->name, (long long)*bytes);
    return status;
}

int dv__contract_flops(const dv__contract *c, const dv_value *args, dv__solution *s, double *flops)
{
    const dv__env v = { .c = c, .args = args, .s = s, .where = "flops" };
    *flops = -1;
    return c->flops ? dv__eval_real(&v, c->flops, flops) : DV_OK;
}

static double tensor_bytes(dv_dtype dtype, const int64_t *shape, int32_t ndim)
{
    double n = (double)dtype.bits * dtype.lanes / 8;
    for (int32_t i = 0; i < ndim; i++)
        n *= (double)shape[i];
    return n;
}

int dv__contract_bytes(const dv__contract *c, const dv_value *args, dv__solution *s, double *bytes)
{
    const dv__env v = { .c = c, .args = args, .s = s, .where = "bytes" };
    *bytes = 0;
    if (c->bytes)
        return dv__eval_real(&v, c->bytes, bytes);
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
        const int32_t used = s->pool_used;
        dv__output out;
        if (!t || t->dims.any || t->presence == DV__ABSENT)
            continue;
        const int status = dv__contract_output(c, args, s, i, &out);
        s->pool_used = used;
        if (status)
            return status;
        if (out.ndim >= 0 && out.view_of < 0)
            *bytes += tensor_bytes(out.dtype, out.shape, out.ndim);
    }
    return DV_OK;
}

/* ---- Splitting ----------------------------------------------------------------------------------------------------------- */

static bool is_parallel(const dv__contract *c, const dv__item *item)
{
    for (uint32_t i = 0; i < c->nparallel; i++)
        if (c->parallel[i].ref == item->ref && item->kind == (c->parallel[i].run ? DV__ITEM_RUN : DV__ITEM_VAR))
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

/* Which of the leading dims of the outputs can be cut: the most such that every tensor either begins with all of them or, if it
 * is only read, knows none. s NULL: for contracts without cases. Returns how many items; *lead points at them. */
static uint32_t split_items(const dv__contract *c, const dv__solution *s, const dv__item **lead)
{
    uint32_t most = 0;
    *lead = NULL;
    for (uint32_t i = 0; i < c->noutputs + c->npatterns && !*lead; i++) { /* the first tensor that is written leads */
        const bool output = i < c->noutputs;
        const dv__pattern *t = output ? &c->outputs[i] : &c->patterns[i - c->noutputs];
        if ((t->when.group >= 0 && !dv__when_holds(t->when, s)) || t->presence == DV__ABSENT || (output && t->is_argument >= 0))
            continue;
        if (!output && (!dv__argument_writes(&c->schema->args[t->slot]) || t->kind != DV__PATTERN_TENSOR))
            continue;
        *lead = t->dims.items;
        while (most < t->dims.n && is_parallel(c, &t->dims.items[most]))
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
            fits = begins_with(&t->dims, *lead, most) && t->view_of < 0 && !t->unbacked;
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

bool dv__contract_may_split(const dv__contract *c) { return c->split_items != 0; }

bool dv__contract_split(const dv__contract *c, const dv__solution *s, size_t slot, int32_t *leading)
{
    const dv__item *lead = c->split_lead;
    uint32_t n = c->split_items < 0 ? split_items(c, s, &lead) : (uint32_t)c->split_items;
    *leading = 0;
    if (!n)
        return false;
    if (c->split_items < 0 ? is_cut(c, s, slot, lead, n) : c->split_slots[slot])
        for (uint32_t i = 0; i < n; i++)
            *leading += lead[i].kind == DV__ITEM_RUN ? s->runs[lead[i].ref].ndim : 1;
    return true;
}

bool dv__contract_split_flattens(const dv__contract *c, const dv__solution *s)
{
    const dv__item *lead = c->split_lead;
    const uint32_t n = c->split_items < 0 ? split_items(c, s, &lead) : (uint32_t)c->split_items;
    return n == 1 && lead->kind == DV__ITEM_RUN;
}
