/* Results: their expected shape and dtype, their allocation, and their release or transfer to the caller. The caller's results
 * are not changed before the kernel has succeeded; on failure the tensors that the host made are freed. */
#include "call/results.h"

#include "call/fail.h"
#include "call/frame.h"
#include "call/host.h"
#include "call/services.h"
#include "call/values.h"

static int refuse_given(const dv__call *c, size_t r, const char *why)
{
    return dv__fail_argument(c, DV_EALIAS, c->plan->nargs + r, "%s", why);
}

bool dv__same_view(const dv_tensor *a, const dv_tensor *b)
{
    if (a->data != b->data || a->ndim != b->ndim || dv_dtype_key(a->dtype) != dv_dtype_key(b->dtype))
        return false;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || (a->strides[i] != b->strides[i] && a->shape[i] != 1))
            return false;
    return true;
}

/* Tensor(a!) -> Tensor(a!): the argument itself. */
static int alias_result(dv__call *c, size_t r, const dv_value *given)
{
    const size_t from = (size_t)c->plan->slots[c->plan->nargs + r].alias;
    const dv_value *v = &c->args[from];
    dv__result *out = &c->outs[r];
    if (v->type == DV_VALUE_TENSOR) {
        out->origin = DV__RESULT_ALIAS;
        out->tensor = (dv_tensor *)(uintptr_t)v->as.tensor;
        if (given->type == DV_VALUE_TENSOR && !dv__same_view(given->as.tensor, v->as.tensor))
            return dv__fail_argument(c, DV_EALIAS, c->plan->nargs + r,
                "is argument '%s' itself: another tensor cannot be given for it", c->op->schema->args[from].name);
    } else if (v->type == DV_VALUE_TENSORS) {
        out->origin = DV__RESULT_SCALAR; /* passed through */
        out->value = *v;
    } else {
        out->origin = DV__RESULT_ABSENT;
    }
    return DV_OK;
}

/* The argument that a result is a view of; of a list, its tensor at the same place. */
static const dv_tensor *base_of(const dv__call *c, int64_t place, const dv__output *o)
{
    const dv_value *of = &c->args[o->view_of];
    return of->type == DV_VALUE_TENSORS ? of->as.tensors.data[place < 0 ? 0 : place] : of->as.tensor;
}

/* The argument may itself be a part of more memory, which is not the view's. A view without elements is anywhere. */
static int check_view(const dv__call *c, size_t r, int64_t place, const dv__output *o)
{
    const dv_tensor *x = base_of(c, place, o);
    int64_t low, high, first, last, x_first, x_last;
    if (!dv__extent(x->ndim, x->shape, x->strides, &x_first, &x_last) ||
        !dv__extent(o->ndim, o->shape, o->strides, &low, &high) || __builtin_add_overflow(o->offset, low, &first) ||
        __builtin_add_overflow(o->offset, high, &last))
        return dv__fail_element(c, DV_ESHAPE, c->plan->nargs + r, place, "its strides reach beyond what an address can hold");
    if (low > high || (first >= x_first && last <= x_last))
        return DV_OK;
    return dv__fail_element(c, DV_ESHAPE, c->plan->nargs + r, place,
        "expected a view inside '%s', which has elements %lld to %lld, found elements %lld to %lld",
        c->op->schema->args[o->view_of].name, (long long)x_first, (long long)x_last, (long long)first, (long long)last);
}

int dv__describe_result(dv__call *c, size_t r, int64_t place, dv__output *o)
{
    const dv__contract *contract = c->op->contract;
    const int status = place < 0 ? dv__contract_output(contract, c->args, &c->solution, r, o)
                                 : dv__contract_element(contract, c->args, &c->solution, r, place, o);
    return status || o->ndim < 0 || o->view_of < 0 ? status : check_view(c, r, place, o);
}

static int new_view(dv__call *c, size_t r, int64_t place, const dv__output *o, dv_tensor **made)
{
    const dv_tensor *base = base_of(c, place, o);
    c->outs[r].view = true;
    if (DV__HOST(c->host, new_view))
        return dv__made_by_host(c,
            c->host->new_view(
                c->host, c->inner & DV__INNER_TEMPORARY ? -1 : (int)r, base, o->ndim, o->shape, o->strides, o->offset, made),
            made);
    if (DV__HOST(c->host, new_tensor))
        return dv__fail_argument(c, DV_ENOTSUP, c->plan->nargs + r, "is a view of '%s', and the host %s cannot make views",
            c->op->schema->args[o->view_of].name, c->host->name ? c->host->name : "");
    const int status = dv_tensor_view((dv_tensor *)(uintptr_t)base, o->ndim, o->shape, o->strides, o->offset, made);
    return status ? dv__fail_in_slot(c, status, c->plan->nargs + r, place) : DV_OK;
}

static int make(dv__call *c, size_t r, const dv__output *o)
{
    dv__result *out = &c->outs[r];
    const int status = o->view_of >= 0
        ? new_view(c, r, DV__WHOLE, o, &out->made)
        : dv__new_tensor(c, (int)r, o->dtype, o->device, o->ndim, o->shape, o->strides, &out->made);
    out->origin = DV__RESULT_MADE;
    out->tensor = out->made;
    return status;
}

static bool matches(const dv_tensor *t, const dv__output *o)
{
    if (dv_dtype_key(t->dtype) != dv_dtype_key(o->dtype) || t->ndim != o->ndim || t->device.type != o->device.type ||
        t->device.id != o->device.id)
        return false;
    for (int32_t i = 0; i < o->ndim; i++)
        if (t->shape[i] != o->shape[i])
            return false;
    return true;
}

static void pending(dv__result *out, const dv__output *o, const dv_tensor *given)
{
    out->origin = DV__RESULT_PENDING;
    memset(&out->header, 0, sizeof out->header);
    out->header.dtype = o->dtype;
    out->header.device = o->device;
    out->header.ndim = o->ndim;
    out->header.shape = o->shape;
    out->header.strides = o->strides;
    out->bounds = o->shape;
    out->given = (dv_tensor *)(uintptr_t)given;
}

/* Check a given tensor against the expected result, without a contract. */
static int check_given(const dv__call *c, size_t r, const dv_tensor *t, const dv__output *o)
{
    const size_t slot = c->plan->nargs + r;
    if (dv_dtype_key(t->dtype) != dv_dtype_key(o->dtype))
        return dv__fail_argument(c, DV_EDTYPE, slot, "expected %s, found %s", dv_dtype_name(o->dtype), dv_dtype_name(t->dtype));
    if (t->device.type != o->device.type || t->device.id != o->device.id)
        return dv__fail_argument(c, DV_EDEVICE, slot, "expected a tensor on %s:%d, found one on %s:%d",
            dv_device_name(o->device.type), (int)o->device.id, dv_device_name(t->device.type), (int)t->device.id);
    if (t->ndim != o->ndim)
        return dv__fail_argument(c, DV_ESHAPE, slot, "expected %d dims, found %d", (int)o->ndim, (int)t->ndim);
    for (int32_t i = 0; i < o->ndim; i++)
        if (t->shape[i] != o->shape[i])
            return dv__fail_argument(c, DV_ESHAPE, slot, "expected size %lld in dim %d, found %lld", (long long)o->shape[i],
                (int)i, (long long)t->shape[i]);
    return DV_OK;
}

int dv__check_given_like(const dv__call *c, size_t r, const dv_value *given, const dv_tensor *like)
{
    const size_t slot = c->plan->nargs + r;
    const dv__output o = { .dtype = like->dtype, .device = like->device, .ndim = like->ndim, .shape = like->shape };
    char found[96];
    if (given->type == DV_VALUE_TENSOR) {
        const int status = dv__check_tensor(c, slot, DV__WHOLE, given->as.tensor);
        return status ? status : check_given(c, r, given->as.tensor, &o);
    }
    dv__print_value_type(given, found, sizeof found);
    return dv__fail_argument(c, DV_ETYPE, slot, "expected Tensor, found %s", found);
}

static int tensor_result(dv__call *c, size_t r, const dv_value *given)
{
    dv__result *out = &c->outs[r];
    const size_t slot = c->plan->nargs + r;
    const dv_tensor *t = given->type == DV_VALUE_TENSOR ? given->as.tensor : NULL;
    dv__output o;
    int status;
    if (c->op->contract && !dv__uses_shape(c->op)) {
        if (t && dv__contract_fits(c->op->contract, &c->solution, r, t)) {
            out->origin = DV__RESULT_GIVEN;
            out->tensor = (dv_tensor *)(uintptr_t)t;
            return DV_OK;
        }
        if ((status = dv__describe_result(c, r, DV__WHOLE, &o)))
            return status;
    } else if (c->op->shape) {
        o = (dv__output){ .dtype = out->header.dtype,
            .device = c->device,
            .ndim = out->header.ndim,
            .view_of = -1,
            .shape = out->header.shape,
            .strides = out->header.strides };
    } else if (t) { /* its expected shape is unknown: the kernel must check it */
        out->origin = DV__RESULT_GIVEN;
        out->tensor = (dv_tensor *)(uintptr_t)t;
        return DV_OK;
    } else {
        return dv__fail_argument(
            c, DV_EINVAL, slot, "must be given: the operator has neither a contract nor a shape function that describes it");
    }
    if (o.ndim < 0) {
        out->origin = DV__RESULT_ABSENT;
        return t ? dv__fail_argument(c, DV_EINVAL, slot, "is absent with these arguments, but a tensor was given for it") : DV_OK;
    }
    if (given->type == DV_VALUE_NONE)
        return dv__fail_argument(c, DV_EINVAL, slot, "expected a tensor, or no value so that it is allocated; found None");
    if (o.view_of >= 0 && t)
        return refuse_given(c, r, "is a view of an argument: a tensor cannot be given for it");
    if (o.unbacked) {
        pending(out, &o, t);
        if (t && dv_dtype_key(t->dtype) != dv_dtype_key(o.dtype))
            return check_given(c, r, t, &o);
        return t && !dv_tensor_is_contiguous(t)
            ? dv__fail_argument(c, DV_EINVAL, slot, "its size depends on data: a given tensor must be contiguous")
            : DV_OK;
    }
    if (!t)
        return make(c, r, &o);
    out->origin = DV__RESULT_GIVEN;
    out->tensor = (dv_tensor *)(uintptr_t)t;
    if (matches(t, &o))
        return DV_OK;
    status = c->op->contract && !dv__uses_shape(c->op)
        ? dv__contract_check_given(c->op->contract, c->args, &c->solution, r, -1, t)
        : DV_OK;
    return status ? status : check_given(c, r, t, &o);
}

/* ---- Lists ---- */

int dv__make_list(dv__call *c, size_t r, size_t n, dv__describe_fn describe)
{
    dv__result *out = &c->outs[r];
    const dv_tensor **list = dv__calloc(n + 1, sizeof *list);
    if (!list)
        return dv__fail_in_slot(c, DV_ENOMEM, c->plan->nargs + r, DV__WHOLE);
    out->origin = DV__RESULT_MADE_LIST;
    out->value = (dv_value){ .type = DV_VALUE_TENSORS };
    out->value.as.tensors.data = list;
    int status = DV_OK;
    for (size_t k = 0; k < n && !status; k++) {
        const int32_t used = c->solution.pool_used;
        int64_t strides[DV_MAX_NDIM];
        dv__output o;
        dv_tensor *made = NULL;
        if (!(status = describe(c, r, k, &o, strides)))
            status = o.view_of >= 0 ? new_view(c, r, (int64_t)k, &o, &made)
                                    : dv__new_tensor(c, (int)r, o.dtype, o.device, o.ndim, o.shape, o.strides, &made);
        c->solution.pool_used = used;
        list[k] = made;
        out->value.as.tensors.size = status ? k : k + 1;
    }
    return status;
}

static int by_contract(dv__call *c, size_t r, size_t place, dv__output *o, int64_t *strides)
{
    (void)strides;
    return dv__describe_result(c, r, (int64_t)place, o);
}

static int check_given_list(dv__call *c, size_t r, int64_t count)
{
    const dv_tensors list = c->outs[r].value.as.tensors;
    int status = DV_OK;
    if (count < 0)
        return dv__fail_argument(c, DV_EINVAL, c->plan->nargs + r, "is absent with these arguments, but a list was given for it");
    if (list.size != (size_t)count)
        return dv__fail_argument(
            c, DV_EINVAL, c->plan->nargs + r, "expected %lld tensors, found %zu", (long long)count, list.size);
    if (dv__contract_gives_view(c->op->contract, &c->solution, r))
        return refuse_given(c, r, "is a list of views of an argument: tensors cannot be given for it");
    for (size_t k = 0; k < list.size && !status; k++)
        status = dv__contract_check_given(c->op->contract, c->args, &c->solution, r, (int64_t)k, list.data[k]);
    return status;
}

static int list_result(dv__call *c, size_t r, const dv_value *given)
{
    dv__result *out = &c->outs[r];
    const size_t slot = c->plan->nargs + r;
    int64_t count = -1;
    int status = c->op->contract ? dv__contract_count(c->op->contract, c->args, &c->solution, r, &count) : DV_OK;
    if (!status && given->type == DV_VALUE_TENSORS) {
        out->origin = DV__RESULT_LIST;
        out->value = *given;
        status = dv__check_list(c, slot, &out->value);
        return status || !c->op->contract ? status : check_given_list(c, r, count);
    }
    if (status)
        return status;
    if (!c->op->contract)
        return dv__fail_argument(c, DV_ENOTSUP, slot, "is a list of tensors, and no contract describes it: it must be given");
    return count < 0 ? DV_OK : dv__make_list(c, r, (size_t)count, by_contract); /* else absent */
}

static int make_result(dv__call *c, size_t r)
{
    const size_t slot = c->plan->nargs + r;
    const dv__slot *s = &c->plan->slots[slot];
    const dv_value *given = &c->results[r];
    dv__result *out = &c->outs[r];
    if (s->alias >= 0 && (s->flags & DV__SLOT_WRITES))
        return alias_result(c, r, given);
    if (s->value == DV_VALUE_TENSOR)
        return tensor_result(c, r, given);
    if (s->flags & DV__SLOT_TENSORS)
        return list_result(c, r, given);
    if (s->value != DV_VALUE_INT && s->value != DV_VALUE_FLOAT && s->value != DV_VALUE_BOOL)
        return dv__fail_argument(c, DV_ENOTSUP, slot, "a result of this type cannot be made by a kernel");
    const dv_test_hooks *test = dv__test_hooks(c->host);
    memset(&out->value, 0, sizeof out->value);
    memset(&out->value.as, test ? test->fill : 0, sizeof out->value.as);
    out->value.type = s->value;
    if (s->value == DV_VALUE_BOOL)
        out->value.as.b = test && test->fill & 1;
    out->origin = DV__RESULT_SCALAR;
    return DV_OK;
}

bool dv__uses_shape(const dv_operator *op) { return op->shape && (!op->contract || dv__contract_needs_shape(op->contract)); }

void dv__begin_results(dv__call *c)
{
    c->nouts = c->plan->nreturns;
    for (size_t r = 0; r < c->nouts; r++) {
        dv__result *out = &c->outs[r];
        out->origin = DV__RESULT_ABSENT;
        out->tensor = out->made = out->given = NULL;
        out->set = out->view = false;
    }
}

int dv__make_results(dv__call *c)
{
    int status = dv__uses_shape(c->op) ? dv__run_shape(c) : DV_OK;
    dv__begin_results(c);
    for (size_t r = 0; r < c->nouts && !status; r++)
        status = make_result(c, r);
    return status;
}

int dv__run_shape(dv__call *c)
{
    const dv__binding *b = c->op->binding;
    _Alignas(16) char stack[DV__STACK_FRAME], *frame = stack;
    if (!b)
        return dv_fail(DV_ENOTSUP, "%s: a shape function needs the operator's struct", c->op->name);
    if (b->frame_size > sizeof stack && !(frame = dv__arena_alloc(&c->arena, b->frame_size)))
        return DV_ENOMEM;
    for (size_t r = 0; r < c->plan->nreturns; r++) {
        dv__result *out = &c->outs[r];
        memset(&out->header, 0, sizeof out->header);
        out->header.device = c->device;
        out->set = false;
        c->tensors[c->plan->nargs + r] = &out->header;
        c->lists[c->plan->nargs + r] = (dv_tensors){ NULL, 0 };
    }
    dv__slice s;
    c->stage = DV__STAGE_SHAPE;
    dv__slice_init(&s, c);
    dv__fill_frame(c, b, frame);
    int status = c->op->shape(&s.ctx, frame);
    dv__slice_deinit(&s);
    c->stage = DV__STAGE_KERNEL;
    status = dv__report(c, status, "the shape function");
    for (size_t r = 0; r < c->plan->nreturns && !status; r++) {
        const dv__slot *slot = &c->plan->slots[c->plan->nargs + r];
        if (slot->value == DV_VALUE_TENSOR && !(slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES)) && !c->outs[r].set)
            status = dv__fail_argument(c, DV_EKERNEL, c->plan->nargs + r, "the shape function did not set it");
    }
    return status;
}

/* ---- The end ---- */

static void publish(dv__call *c, size_t r)
{
    const dv__result *out = &c->outs[r];
    dv_value *to = &c->results[r];
    switch (out->origin) {
    case DV__RESULT_GIVEN:
    case DV__RESULT_LIST: return; /* it is the caller's already */
    case DV__RESULT_ABSENT: *to = dv_none(); return;
    case DV__RESULT_MADE_LIST:
    case DV__RESULT_SCALAR: *to = out->value; return;
    case DV__RESULT_ALIAS: *to = dv_from_tensor(out->tensor); return;
    case DV__RESULT_MADE:
    case DV__RESULT_PENDING:
        assert(out->made || out->given);
        if (out->made)
            *to = dv_from_tensor(out->made);
        return;
    }
}

static void free_list(const dv__call *c, const dv_tensors *list)
{
    for (size_t k = 0; k < list->size; k++)
        dv__free_tensor(c, (dv_tensor *)(uintptr_t)(const void *)list->data[k]);
    dv__free((void *)(uintptr_t)(const void *)list->data);
}

void dv__end_results(dv__call *c, bool success)
{
    for (size_t r = 0; r < c->nouts; r++)
        if (success)
            publish(c, r);
        else if (c->outs[r].origin == DV__RESULT_MADE_LIST)
            free_list(c, &c->outs[r].value.as.tensors);
        else if (c->outs[r].made)
            dv__free_tensor(c, c->outs[r].made);
}
