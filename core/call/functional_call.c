/* Calls of functional forms (registry/functionalize.c). Each written argument is copied into the tensor of its new value,
 * unless the caller passed the argument itself for the new value. Then the operator is called with the new values in place of
 * the arguments. */
#include "call/functional_call.h"

#include "base/memory.h"
#include "call/call_error.h"
#include "call/host_tensor.h"
#include "call/memory.h"
#include "call/results.h"
#include "call/bind.h"

/* Allocates the tensor for the new value of a written argument, in *out, with the argument's metadata. result_index: the
 * result that is the new value. Returns a status. */
static int functional_allocate_new_value(dv__call *c, size_t result_index, const dv_tensor *written_argument, dv_tensor **out)
{
    dv__result_metadata o = { .dtype = written_argument->dtype,
        .device = written_argument->device,
        .ndim = written_argument->ndim,
        .shape = written_argument->shape };
    int64_t strides[DV_MAX_NDIM];
    int status = DV_OK;
    if (c->op->contract && c->signature->slots[c->signature->nargs + result_index].value == DV_VALUE_TENSOR)
        status = dv__contract_eval_result(c->op->contract, c->args, &c->solution, result_index, &o);
    else if (!(status = dv__shape_check(written_argument->dtype, written_argument->ndim, written_argument->shape, strides)))
        o.strides = strides;
    return status ? status : dv__new_result_tensor(c, (int)result_index, o.dtype, o.device, o.ndim, o.shape, o.strides, out);
}

/* Sets up the result that is the new value of a written tensor: the tensor that the caller passed for it, else a new one.
 * Returns a status. */
static int functional_make_new_value(dv__call *c, size_t result_index, const dv_tensor *written_argument)
{
    dv__result *out = &c->outs[result_index];
    const dv_value *given = &c->results[result_index];
    if (given->type == DV_VALUE_DEFAULT) {
        const int status = functional_allocate_new_value(c, result_index, written_argument, &out->made);
        out->origin = DV__RESULT_ALLOCATED;
        out->tensor = out->made;
        return status;
    }
    out->tensor = (dv_tensor *)(uintptr_t)given->as.tensor;
    out->origin = DV__RESULT_GIVEN;
    int status = dv__check_passed_result(c, result_index, given, written_argument);
    if (!status && dv__tensors_are_same_view(given->as.tensor, written_argument))
        out->origin =
            DV__RESULT_ALIAS; /* the caller passed the argument itself: the operator writes it in place and checks its overlaps */
    return status;
}

/* Validates t, an element of a list that the caller passed for the new values of a written list. Fails unless t has the
 * dtype, device and shape of argument_element. Fails unless t is that element itself, or overlaps no argument. */
static int functional_check_passed_element(
    dv__call *c, size_t result_index, const dv_tensor *t, const dv_tensor *argument_element)
{
    const size_t slot = c->signature->nargs + result_index;
    const dv_value one = dv_from_tensor(t);
    char name[256];
    const int status = dv__check_passed_result(c, result_index, &one, argument_element);
    if (status || dv__tensors_are_same_view(t, argument_element))
        return status;
    if (dv__tensor_is_read_only(t))
        return dv__fail_slot(c, DV_EINVAL, slot, "would be written, but is read-only");
    for (size_t i = 0; i < c->signature->nargs; i++) {
        const dv_value *v = &c->args[i];
        const size_t n = v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n; k++) {
            const dv_tensor *other = v->type == DV_VALUE_TENSOR ? v->as.tensor : v->as.tensors.data[k];
            if (other && dv_tensor_overlaps(t, other))
                return dv__fail_slot(c, DV_EALIAS, slot, "would be written, but overlaps %s",
                    dv__print_slot_name(c, i, DV__NO_ELEMENT, name, sizeof name));
        }
    }
    return DV_OK;
}

static bool functional_is_written_arg(const dv__call *c, size_t argument_index)
{
    return c->op->functional_form_of->signature->slots[argument_index].flags & DV__SLOT_WRITES;
}

/* Returns the index of the written argument whose new value is this result. */
static size_t functional_find_written_argument_index(const dv__call *c, size_t result_index)
{
    size_t i = c->signature->nargs, n = c->signature->nreturns;
    while (n > result_index)
        n -= functional_is_written_arg(c, --i);
    return i;
}

/* Describes an element of a result that is a list: by the contract, or as the element of the written list. Returns a status. */
static int functional_describe_list_element(
    dv__call *c, size_t result_index, size_t element_index, dv__result_metadata *metadata, int64_t *strides)
{
    if (c->op->contract)
        return dv__contract_eval_list_result(
            c->op->contract, c->args, &c->solution, result_index, (int64_t)element_index, metadata);
    const dv_tensor *t = c->args[functional_find_written_argument_index(c, result_index)].as.tensors.data[element_index];
    *metadata = (dv__result_metadata){
        .dtype = t->dtype, .device = t->device, .ndim = t->ndim, .shape = t->shape, .strides = strides, .viewed_slot = -1
    };
    return dv__shape_check(t->dtype, t->ndim, t->shape, strides);
}

/* Sets up the result that holds the new values of a written list: the list that the caller passed for it, else new tensors.
 * Returns a status. */
static int functional_make_new_list(dv__call *c, size_t result_index, const dv_tensors *written_argument)
{
    const dv_value *given = &c->results[result_index];
    if (given->type == DV_VALUE_DEFAULT)
        return dv__make_result_list(c, result_index, written_argument->size, functional_describe_list_element);
    if (given->type != DV_VALUE_TENSORS || given->as.tensors.size != written_argument->size)
        return dv__fail_slot(c, DV_ETYPE, c->signature->nargs + result_index,
            "is a list of new values: expected %zu tensors given for it", written_argument->size);
    c->outs[result_index].origin =
        DV__RESULT_SCALAR; /* dv__check_overlaps() skips SCALAR, so functional_check_passed_element() tests overlaps */
    c->outs[result_index].value = *given;
    int status = DV_OK;
    for (size_t k = 0; k < written_argument->size && !status; k++)
        status = functional_check_passed_element(c, result_index, given->as.tensors.data[k], written_argument->data[k]);
    return status;
}

/* Fails if the caller passed a tensor for the new value of an argument that is None. */
static int functional_check_nothing_passed(dv__call *c, size_t result_index)
{
    return c->results[result_index].type == DV_VALUE_TENSOR ? dv__fail_slot(c, DV_EINVAL, c->signature->nargs + result_index,
                                                                  "is absent with these arguments, but a tensor was given for it")
                                                            : DV_OK;
}

/* Records a tensor or list that the caller passed for a result that is not a new value. If none was passed, the operator's
 * call makes the result. Returns a status. */
static int functional_check_and_record_passed_result(dv__call *c, size_t result_index)
{
    const dv_value *given = &c->results[result_index];
    if (given->type == DV_VALUE_TENSOR) {
        c->outs[result_index].origin = DV__RESULT_GIVEN;
        c->outs[result_index].tensor = (dv_tensor *)(uintptr_t)given->as.tensor;
        return dv__check_slot_tensor(c, c->signature->nargs + result_index, DV__NO_ELEMENT, given->as.tensor);
    }
    if (given->type == DV_VALUE_TENSORS) {
        c->outs[result_index].origin = DV__RESULT_LIST;
        c->outs[result_index].value = *given;
        return dv__check_or_extend_list(c, c->signature->nargs + result_index, &c->outs[result_index].value);
    }
    return DV_OK;
}

/* Records the operator's own results, which the caller may have passed, and makes the new values of written arguments. Returns
 * a status. */
static int functional_record_or_make_results(dv__call *c, size_t nown_results)
{
    int status = DV_OK;
    dv__mark_results_absent(c);
    for (size_t r = 0; r < nown_results && !status; r++)
        status = functional_check_and_record_passed_result(c, r);
    for (size_t i = 0, r = nown_results; i < c->signature->nargs && !status; i++)
        if (functional_is_written_arg(c, i)) {
            const dv_value *v = &c->args[i];
            status = v->type == DV_VALUE_TENSOR ? functional_make_new_value(c, r, v->as.tensor)
                : v->type == DV_VALUE_TENSORS   ? functional_make_new_list(c, r, &v->as.tensors)
                                                : functional_check_nothing_passed(c, r);
            r++;
        }
    return status;
}

/* Fills `args` for the operator's call: each written argument is replaced by the tensor of its new value, which gets a copy
 * of the argument's contents. Returns a status. */
static int functional_copy_written_arguments(dv__call *c, size_t nown_results, dv_value *args)
{
    int status = DV_OK;
    for (size_t i = 0, r = nown_results; i < c->signature->nargs && !status; i++) {
        args[i] = c->args[i];
        if (!functional_is_written_arg(c, i))
            continue;
        const dv__result *out = &c->outs[r++];
        if (args[i].type == DV_VALUE_TENSOR) {
            if (out->origin != DV__RESULT_ALIAS)
                status = dv__host_copy(c->host, out->tensor, args[i].as.tensor);
            args[i].as.tensor = out->tensor;
        } else if (args[i].type == DV_VALUE_TENSORS) {
            args[i].as.tensors = out->value.as.tensors;
            for (size_t k = 0; k < args[i].as.tensors.size && !status; k++)
                if (!dv__tensors_are_same_view(args[i].as.tensors.data[k], c->args[i].as.tensors.data[k]))
                    status = dv__host_copy(c->host, args[i].as.tensors.data[k], c->args[i].as.tensors.data[k]);
        }
    }
    return status;
}

/* Stores v, a result of the operator's call, as result result_index of the functional form. A result for which the caller
 * passed a tensor or a list is left as it is. */
static void functional_store_result(dv__call *c, size_t result_index, const dv_value *v)
{
    dv__result *out = &c->outs[result_index];
    if (out->origin == DV__RESULT_GIVEN || out->origin == DV__RESULT_LIST || v->type == DV_VALUE_NONE)
        return;
    out->origin = v->type == DV_VALUE_TENSOR ? DV__RESULT_ALLOCATED : DV__RESULT_SCALAR;
    out->made = out->tensor = v->type == DV_VALUE_TENSOR ? (dv_tensor *)(uintptr_t)v->as.tensor : NULL;
    out->value = *v;
}

/* True if a result of the operator is no written argument, so that the functional form has it as a result of its own. */
static bool functional_is_own_result(const dv__signature *signature, size_t result_index)
{
    const dv__slot *slot = &signature->slots[signature->nargs + result_index];
    return slot->alias < 0 || !(slot->flags & DV__SLOT_WRITES);
}

int dv__functional_run(dv__call *c)
{
    dv_operator *op = c->op->functional_form_of;
    const dv__signature *signature = op->signature;
    dv_value *args = DV__ARENA_ARRAY(&c->arena, dv_value, signature->nargs + 1);
    dv_value *results = DV__ARENA_ARRAY(&c->arena, dv_value, signature->nreturns + 1);
    if (!args || !results)
        return DV_ENOMEM;
    size_t ndirect = 0;
    for (size_t r = 0; r < signature->nreturns; r++) {
        if (functional_is_own_result(signature, r) && ndirect != r && c->results[ndirect].type == DV_VALUE_DEFAULT &&
            signature->slots[signature->nargs + r].value == DV_VALUE_TENSOR)
            return dv__fail_slot(c, DV_ENOTSUP, c->signature->nargs + ndirect,
                "must be given: in %s it stands after a result that is an argument", op->name);
        results[r] = functional_is_own_result(signature, r) ? c->results[ndirect++] : dv_default();
    }
    int status = dv__call_solve_contract(c);
    if (status || (status = dv__gather_args(c)) || (status = functional_record_or_make_results(c, ndirect)) ||
        (status = dv__gather_results(c)) || (status = dv__check_overlaps(c)) ||
        (status = functional_copy_written_arguments(c, ndirect, args)) ||
        (status = c->nested_call(op, args, signature->nargs, results, signature->nreturns, c->host, c->nested_flags)))
        return status;
    for (size_t r = 0, direct = 0; r < signature->nreturns; r++)
        if (functional_is_own_result(signature, r))
            functional_store_result(c, direct++, &results[r]);
    return DV_OK;
}
