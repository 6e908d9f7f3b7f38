/* Results: their expected shape and dtype, their allocation, and their release or transfer to the caller. The caller's results
 * are not changed before the kernel has succeeded; on failure the tensors that the host made are freed. */
#include "call/results.h"

#include "call/call_error.h"
#include "call/frame.h"
#include "call/host_tensor.h"
#include "call/services.h"
#include "call/bind.h"

static int result_fail_passed(const dv__call *c, size_t result_index, const char *reason)
{
    return dv__fail_slot(c, DV_EALIAS, c->signature->nargs + result_index, "%s", reason);
}

bool dv__tensors_are_same_view(const dv_tensor *a, const dv_tensor *b)
{
    if (a->data != b->data || a->ndim != b->ndim || dv_dtype_key(a->dtype) != dv_dtype_key(b->dtype))
        return false;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || (a->strides[i] != b->strides[i] && a->shape[i] != 1))
            return false;
    return true;
}

/* Makes a result of `f(Tensor(a!) x) -> Tensor(a!)` the argument itself, absent if the argument is None. Fails if the caller
 * passed another tensor for the result. */
static int result_use_written_argument(dv__call *c, size_t result_index, const dv_value *passed)
{
    const size_t from = (size_t)c->signature->slots[c->signature->nargs + result_index].alias;
    const dv_value *v = &c->args[from];
    dv__result *out = &c->outs[result_index];
    if (v->type == DV_VALUE_TENSOR) {
        out->origin = DV__RESULT_ALIAS;
        out->tensor = (dv_tensor *)(uintptr_t)v->as.tensor;
        if (passed->type == DV_VALUE_TENSOR && !dv__tensors_are_same_view(passed->as.tensor, v->as.tensor))
            return dv__fail_slot(c, DV_EALIAS, c->signature->nargs + result_index,
                "is argument '%s' itself: another tensor cannot be given for it", c->op->schema->args[from].name);
    } else if (v->type == DV_VALUE_TENSORS) {
        out->origin = DV__RESULT_SCALAR; /* the list is passed through as a value */
        out->value = *v;
    } else {
        out->origin = DV__RESULT_ABSENT;
    }
    return DV_OK;
}

/* Returns the tensor of which a result is a view. element_index: the result's index in its list, which selects the tensor of
 * a list argument. */
static const dv_tensor *result_get_viewed_tensor(const dv__call *c, int64_t element_index, const dv__result_metadata *metadata)
{
    const dv_value *of = &c->args[metadata->viewed_slot];
    return of->type == DV_VALUE_TENSORS ? of->as.tensors.data[element_index < 0 ? 0 : element_index] : of->as.tensor;
}

/* Fails if a view reaches elements outside those of its argument, even if the argument's memory is larger. A view without
 * elements may lie anywhere. */
static int result_check_view_bounds(
    const dv__call *c, size_t result_index, int64_t element_index, const dv__result_metadata *metadata)
{
    const dv_tensor *x = result_get_viewed_tensor(c, element_index, metadata);
    int64_t low, high, first, last, x_first, x_last;
    if (!dv__try_find_element_range(x->ndim, x->shape, x->strides, &x_first, &x_last) ||
        !dv__try_find_element_range(metadata->ndim, metadata->shape, metadata->strides, &low, &high) ||
        __builtin_add_overflow(metadata->offset, low, &first) || __builtin_add_overflow(metadata->offset, high, &last))
        return dv__fail_slot_element(
            c, DV_ESHAPE, c->signature->nargs + result_index, element_index, "its strides reach beyond what an address can hold");
    if (low > high || (first >= x_first && last <= x_last))
        return DV_OK;
    return dv__fail_slot_element(c, DV_ESHAPE, c->signature->nargs + result_index, element_index,
        "expected a view inside '%s', which has elements %lld to %lld, found elements %lld to %lld",
        c->op->schema->args[metadata->viewed_slot].name, (long long)x_first, (long long)x_last, (long long)first,
        (long long)last);
}

int dv__describe_result(dv__call *c, size_t result_index, int64_t element_index, dv__result_metadata *metadata)
{
    const dv__contract *contract = c->op->contract;
    const int status = element_index < 0
        ? dv__contract_eval_result(contract, c->args, &c->solution, result_index, metadata)
        : dv__contract_eval_list_result(contract, c->args, &c->solution, result_index, element_index, metadata);
    return status || metadata->ndim < 0 || metadata->viewed_slot < 0
        ? status
        : result_check_view_bounds(c, result_index, element_index, metadata);
}

/* Makes a view of the argument that the result's metadata names, by the host or by the embedded default. Returns a status. */
static int result_new_view(
    dv__call *c, size_t result_index, int64_t element_index, const dv__result_metadata *metadata, dv_tensor **out)
{
    const dv_tensor *base = result_get_viewed_tensor(c, element_index, metadata);
    c->outs[result_index].is_view = true;
    if (DV__HOST_HAS(c->host, new_view))
        return dv__host_check_new_tensor(c,
            c->host->new_view(c->host, c->nested_flags & DV__NESTED_TEMPORARY ? -1 : (int)result_index, base, metadata->ndim,
                metadata->shape, metadata->strides, metadata->offset, out),
            out);
    if (DV__HOST_HAS(c->host, new_tensor))
        return dv__fail_slot(c, DV_ENOTSUP, c->signature->nargs + result_index,
            "is a view of '%s', and the host %s cannot make views", c->op->schema->args[metadata->viewed_slot].name,
            c->host->name ? c->host->name : "");
    const int status = dv_tensor_view(
        (dv_tensor *)(uintptr_t)base, metadata->ndim, metadata->shape, metadata->strides, metadata->offset, out);
    return status ? dv__fail_add_slot_context(c, status, c->signature->nargs + result_index, element_index) : DV_OK;
}

static int result_allocate_tensor_or_view(dv__call *c, size_t result_index, const dv__result_metadata *metadata)
{
    dv__result *out = &c->outs[result_index];
    const int status = metadata->viewed_slot >= 0 ? result_new_view(c, result_index, DV__NO_ELEMENT, metadata, &out->made)
                                                  : dv__new_result_tensor(c, (int)result_index, metadata->dtype, metadata->device,
                                                        metadata->ndim, metadata->shape, metadata->strides, &out->made);
    out->origin = DV__RESULT_ALLOCATED;
    out->tensor = out->made;
    return status;
}

static bool result_tensor_has_metadata(const dv_tensor *t, const dv__result_metadata *expected)
{
    if (dv_dtype_key(t->dtype) != dv_dtype_key(expected->dtype) || t->ndim != expected->ndim ||
        t->device.type != expected->device.type || t->device.id != expected->device.id)
        return false;
    for (int32_t i = 0; i < expected->ndim; i++)
        if (t->shape[i] != expected->shape[i])
            return false;
    return true;
}

/* Marks a result whose size the kernel sets. max_metadata: its dtype, device, and largest sizes; passed: the caller's tensor
 * or NULL. */
static void result_set_pending(dv__result *out, const dv__result_metadata *max_metadata, const dv_tensor *passed)
{
    out->origin = DV__RESULT_PENDING;
    memset(&out->descriptor, 0, sizeof out->descriptor);
    out->descriptor.dtype = max_metadata->dtype;
    out->descriptor.device = max_metadata->device;
    out->descriptor.ndim = max_metadata->ndim;
    out->descriptor.shape = max_metadata->shape;
    out->descriptor.strides = max_metadata->strides;
    out->max_sizes = max_metadata->shape;
    out->passed = (dv_tensor *)(uintptr_t)passed;
}

/* Fails unless the passed tensor has the expected dtype, device and shape. */
static int result_check_passed_tensor(
    const dv__call *c, size_t result_index, const dv_tensor *passed, const dv__result_metadata *expected)
{
    const size_t slot = c->signature->nargs + result_index;
    if (dv_dtype_key(passed->dtype) != dv_dtype_key(expected->dtype))
        return dv__fail_slot(
            c, DV_EDTYPE, slot, "expected %s, found %s", dv_dtype_name(expected->dtype), dv_dtype_name(passed->dtype));
    if (passed->device.type != expected->device.type || passed->device.id != expected->device.id)
        return dv__fail_slot(c, DV_EDEVICE, slot, "expected a tensor on %s:%d, found one on %s:%d",
            dv_device_name(expected->device.type), (int)expected->device.id, dv_device_name(passed->device.type),
            (int)passed->device.id);
    if (passed->ndim != expected->ndim)
        return dv__fail_slot(c, DV_ESHAPE, slot, "expected %d dims, found %d", (int)expected->ndim, (int)passed->ndim);
    for (int32_t i = 0; i < expected->ndim; i++)
        if (passed->shape[i] != expected->shape[i])
            return dv__fail_slot(c, DV_ESHAPE, slot, "expected size %lld in dim %d, found %lld", (long long)expected->shape[i],
                (int)i, (long long)passed->shape[i]);
    return DV_OK;
}

int dv__check_passed_result(const dv__call *c, size_t result_index, const dv_value *passed, const dv_tensor *expected)
{
    const size_t slot = c->signature->nargs + result_index;
    const dv__result_metadata o = {
        .dtype = expected->dtype, .device = expected->device, .ndim = expected->ndim, .shape = expected->shape
    };
    char found[96];
    if (passed->type == DV_VALUE_TENSOR) {
        const int status = dv__check_slot_tensor(c, slot, DV__NO_ELEMENT, passed->as.tensor);
        return status ? status : result_check_passed_tensor(c, result_index, passed->as.tensor, &o);
    }
    dv__print_value_type(passed, found, sizeof found);
    return dv__fail_slot(c, DV_ETYPE, slot, "expected Tensor, found %s", found);
}

/* Makes a tensor result: checks the passed tensor, or allocates a tensor or view, or marks the result as absent or pending.
 * Returns a status. */
static int result_make_tensor(dv__call *c, size_t result_index, const dv_value *passed)
{
    dv__result *out = &c->outs[result_index];
    const size_t slot = c->signature->nargs + result_index;
    const dv_tensor *t = passed->type == DV_VALUE_TENSOR ? passed->as.tensor : NULL;
    dv__result_metadata o;
    int status;
    if (c->op->contract && !dv__needs_shape_function(c->op)) {
        if (t && dv__contract_has_fast_match(c->op->contract, &c->solution, result_index, t)) {
            out->origin = DV__RESULT_GIVEN;
            out->tensor = (dv_tensor *)(uintptr_t)t;
            return DV_OK;
        }
        if ((status = dv__describe_result(c, result_index, DV__NO_ELEMENT, &o)))
            return status;
    } else if (c->op->shape) {
        o = (dv__result_metadata){ .dtype = out->descriptor.dtype,
            .device = c->device,
            .ndim = out->descriptor.ndim,
            .viewed_slot = -1,
            .shape = out->descriptor.shape,
            .strides = out->descriptor.strides };
    } else if (t) { /* the expected shape is unknown, so the kernel must check it */
        out->origin = DV__RESULT_GIVEN;
        out->tensor = (dv_tensor *)(uintptr_t)t;
        return DV_OK;
    } else {
        return dv__fail_slot(
            c, DV_EINVAL, slot, "must be given: the operator has neither a contract nor a shape function that describes it");
    }
    if (o.ndim < 0) {
        out->origin = DV__RESULT_ABSENT;
        return t ? dv__fail_slot(c, DV_EINVAL, slot, "is absent with these arguments, but a tensor was given for it") : DV_OK;
    }
    if (passed->type == DV_VALUE_NONE)
        return dv__fail_slot(c, DV_EINVAL, slot, "expected a tensor, or no value so that it is allocated; found None");
    if (o.viewed_slot >= 0 && t)
        return result_fail_passed(c, result_index, "is a view of an argument: a tensor cannot be given for it");
    if (o.is_unbacked) {
        result_set_pending(out, &o, t);
        if (t && dv_dtype_key(t->dtype) != dv_dtype_key(o.dtype))
            return result_check_passed_tensor(c, result_index, t, &o);
        return t && !dv_tensor_is_contiguous(t)
            ? dv__fail_slot(c, DV_EINVAL, slot, "its size depends on data: a given tensor must be contiguous")
            : DV_OK;
    }
    if (!t)
        return result_allocate_tensor_or_view(c, result_index, &o);
    out->origin = DV__RESULT_GIVEN;
    out->tensor = (dv_tensor *)(uintptr_t)t;
    if (result_tensor_has_metadata(t, &o))
        return DV_OK;
    status = c->op->contract && !dv__needs_shape_function(c->op)
        ? dv__contract_check_out(c->op->contract, c->args, &c->solution, result_index, -1, t)
        : DV_OK;
    return status ? status : result_check_passed_tensor(c, result_index, t, &o);
}

/* ---- Lists ---- */

int dv__make_result_list(dv__call *c, size_t result_index, size_t length, dv__describe_fn describe)
{
    dv__result *out = &c->outs[result_index];
    const dv_tensor **list = dv__calloc(length + 1, sizeof *list);
    if (!list)
        return dv__fail_add_slot_context(c, DV_ENOMEM, c->signature->nargs + result_index, DV__NO_ELEMENT);
    out->origin = DV__RESULT_ALLOCATED_LIST;
    out->value = (dv_value){ .type = DV_VALUE_TENSORS };
    out->value.as.tensors.data = list;
    int status = DV_OK;
    for (size_t k = 0; k < length && !status; k++) {
        const int32_t used = c->solution.pool_count;
        int64_t strides[DV_MAX_NDIM];
        dv__result_metadata o;
        dv_tensor *made = NULL;
        if (!(status = describe(c, result_index, k, &o, strides)))
            status = o.viewed_slot >= 0
                ? result_new_view(c, result_index, (int64_t)k, &o, &made)
                : dv__new_result_tensor(c, (int)result_index, o.dtype, o.device, o.ndim, o.shape, o.strides, &made);
        c->solution.pool_count = used;
        list[k] = made;
        out->value.as.tensors.size = status ? k : k + 1;
    }
    return status;
}

static int result_describe_by_contract(
    dv__call *c, size_t result_index, size_t element_index, dv__result_metadata *metadata, int64_t *unused_strides)
{
    (void)unused_strides;
    return dv__describe_result(c, result_index, (int64_t)element_index, metadata);
}

/* Checks a list that the caller passed for a result. expected_length: negative if the result is absent. Returns a status. */
static int result_check_passed_list(dv__call *c, size_t result_index, int64_t expected_length)
{
    const dv_tensors list = c->outs[result_index].value.as.tensors;
    int status = DV_OK;
    if (expected_length < 0)
        return dv__fail_slot(
            c, DV_EINVAL, c->signature->nargs + result_index, "is absent with these arguments, but a list was given for it");
    if (list.size != (size_t)expected_length)
        return dv__fail_slot(c, DV_EINVAL, c->signature->nargs + result_index, "expected %lld tensors, found %zu",
            (long long)expected_length, list.size);
    if (dv__contract_is_view(c->op->contract, &c->solution, result_index))
        return result_fail_passed(c, result_index, "is a list of views of an argument: tensors cannot be given for it");
    for (size_t k = 0; k < list.size && !status; k++)
        status = dv__contract_check_out(c->op->contract, c->args, &c->solution, result_index, (int64_t)k, list.data[k]);
    return status;
}

/* Makes the tensors of a result that is a list, or uses the passed ones after a check. Returns a status. */
static int result_make_list(dv__call *c, size_t result_index, const dv_value *passed)
{
    dv__result *out = &c->outs[result_index];
    const size_t slot = c->signature->nargs + result_index;
    int64_t count = -1;
    int status = c->op->contract ? dv__contract_eval_list_length(c->op->contract, c->args, &c->solution, result_index, &count)
                                 : DV_OK;
    if (!status && passed->type == DV_VALUE_TENSORS) {
        out->origin = DV__RESULT_LIST;
        out->value = *passed;
        status = dv__check_or_extend_list(c, slot, &out->value);
        return status || !c->op->contract ? status : result_check_passed_list(c, result_index, count);
    }
    if (status)
        return status;
    if (!c->op->contract)
        return dv__fail_slot(c, DV_ENOTSUP, slot, "is a list of tensors, and no contract describes it: it must be given");
    return count < 0 ? DV_OK
                     : dv__make_result_list(c, result_index, (size_t)count,
                           result_describe_by_contract); /* a result with a negative length stays absent */
}

/* Makes one result before the kernel runs: an argument itself, a passed tensor or list, a new one, or a number to be set.
 * Returns a status. */
static int result_make_or_check(dv__call *c, size_t result_index)
{
    const size_t slot = c->signature->nargs + result_index;
    const dv__slot *s = &c->signature->slots[slot];
    const dv_value *given = &c->results[result_index];
    dv__result *out = &c->outs[result_index];
    if (s->alias >= 0 && (s->flags & DV__SLOT_WRITES))
        return result_use_written_argument(c, result_index, given);
    if (s->value == DV_VALUE_TENSOR)
        return result_make_tensor(c, result_index, given);
    if (s->flags & DV__SLOT_TENSORS)
        return result_make_list(c, result_index, given);
    if (s->value != DV_VALUE_INT && s->value != DV_VALUE_FLOAT && s->value != DV_VALUE_BOOL)
        return dv__fail_slot(c, DV_ENOTSUP, slot, "a result of this type cannot be made by a kernel");
    const dv_test_hooks *test = dv__test_hooks(c->host);
    memset(&out->value, 0, sizeof out->value);
    memset(&out->value.as, test ? test->fill_byte : 0, sizeof out->value.as);
    out->value.type = s->value;
    if (s->value == DV_VALUE_BOOL)
        out->value.as.b = test && test->fill_byte & 1;
    out->origin = DV__RESULT_SCALAR;
    return DV_OK;
}

bool dv__needs_shape_function(const dv_operator *op)
{
    return op->shape && (!op->contract || dv__contract_needs_shape_function(op->contract));
}

void dv__mark_results_absent(dv__call *c)
{
    c->nouts = c->signature->nreturns;
    for (size_t r = 0; r < c->nouts; r++) {
        dv__result *out = &c->outs[r];
        out->origin = DV__RESULT_ABSENT;
        out->tensor = out->made = out->passed = NULL;
        out->output_was_set = out->is_view = false;
    }
}

int dv__make_results(dv__call *c)
{
    int status = dv__needs_shape_function(c->op) ? dv__run_shape_function(c) : DV_OK;
    dv__mark_results_absent(c);
    for (size_t r = 0; r < c->nouts && !status; r++)
        status = result_make_or_check(c, r);
    return status;
}

int dv__run_shape_function(dv__call *c)
{
    const dv__binding *b = c->op->binding;
    _Alignas(16) char stack[DV__MAX_STACK_FRAME_SIZE], *frame = stack;
    if (!b)
        return dv_fail(DV_ENOTSUP, "%s: a shape function needs the operator's struct", c->op->name);
    if (b->frame_size > sizeof stack && !(frame = dv__arena_alloc(&c->arena, b->frame_size)))
        return DV_ENOMEM;
    for (size_t r = 0; r < c->signature->nreturns; r++) {
        dv__result *out = &c->outs[r];
        memset(&out->descriptor, 0, sizeof out->descriptor);
        out->descriptor.device = c->device;
        out->output_was_set = false;
        c->tensors[c->signature->nargs + r] = &out->descriptor;
        c->lists[c->signature->nargs + r] = (dv_tensors){ NULL, 0 };
    }
    dv__slice s;
    c->stage = DV__STAGE_SHAPE;
    dv__slice_init(&s, c);
    dv__frame_fill(c, b, frame);
    int status = c->op->shape(&s.ctx, frame);
    dv__slice_deinit(&s);
    c->stage = DV__STAGE_KERNEL;
    status = dv__call_report_recorded_error(c, status, "the shape function");
    for (size_t r = 0; r < c->signature->nreturns && !status; r++) {
        const dv__slot *slot = &c->signature->slots[c->signature->nargs + r];
        if (slot->value == DV_VALUE_TENSOR && !(slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES)) &&
            !c->outs[r].output_was_set)
            status = dv__fail_slot(c, DV_EKERNEL, c->signature->nargs + r, "the shape function did not set it");
    }
    return status;
}

/* ---- The end ---- */

/* Moves a result to c->results. Tensors that the caller passed are there already. */
static void result_transfer_to_caller(dv__call *c, size_t result_index)
{
    const dv__result *out = &c->outs[result_index];
    dv_value *to = &c->results[result_index];
    switch (out->origin) {
    case DV__RESULT_GIVEN:
    case DV__RESULT_LIST: return; /* the caller passed these tensors, so nothing is transferred */
    case DV__RESULT_ABSENT: *to = dv_none(); return;
    case DV__RESULT_ALLOCATED_LIST:
    case DV__RESULT_SCALAR: *to = out->value; return;
    case DV__RESULT_ALIAS: *to = dv_from_tensor(out->tensor); return;
    case DV__RESULT_ALLOCATED:
    case DV__RESULT_PENDING:
        assert(out->made || out->passed);
        if (out->made)
            *to = dv_from_tensor(out->made);
        return;
    }
}

static void result_free_tensor_list(const dv__call *c, const dv_tensors *list)
{
    for (size_t k = 0; k < list->size; k++)
        dv__free_host_tensor(c, (dv_tensor *)(uintptr_t)(const void *)list->data[k]);
    dv__free((void *)(uintptr_t)(const void *)list->data);
}

void dv__transfer_or_free_results(dv__call *c, bool success)
{
    for (size_t r = 0; r < c->nouts; r++)
        if (success)
            result_transfer_to_caller(c, r);
        else if (c->outs[r].origin == DV__RESULT_ALLOCATED_LIST)
            result_free_tensor_list(c, &c->outs[r].value.as.tensors);
        else if (c->outs[r].made)
            dv__free_host_tensor(c, c->outs[r].made);
}
