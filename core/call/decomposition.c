/* Runs decompositions: if the policy turns an operator off, if no kernel fits, and for operators that have only a
 * decomposition. A call that computes a result writes directly into the result's tensor where possible. Written arguments
 * get their new values last, when only the copy can still fail. */
#include "call/decomposition.h"

#include "base/memory.h"
#include "call/eval.h"
#include "call/call_error.h"
#include "call/host_tensor.h"
#include "call/memory.h"
#include "call/results.h"

enum { MAX_DECOMP_DEPTH = 48 }; /* maximum number of decompositions that run inside each other */
enum {
    TEST_KERNEL_F64_REFERENCE = -2
}; /* value of dv_test_hooks.kernel_number: run the decomposition with real tensors converted to f64 */
static _Thread_local int decomp_depth;

/* ---- In f64, for tests of kernels ---- */

static bool decomp_is_float_tensor(const dv_tensor *t)
{
    const uint32_t key = t ? dv_dtype_key(t->dtype) : 0;
    return key == DV_DTYPE_f64 || key == DV_DTYPE_f32 || key == DV_DTYPE_f16 || key == DV_DTYPE_bf16;
}

/* Calls an operator of the base set with one result. into_tensor: receives the result; NULL: *out is a new temporary.
 * Returns a status. */
static int decomp_call_base_op(
    dv__eval *ev, const char *name, const dv_value *args, size_t nargs, const dv_tensor *into_tensor, const dv_tensor **out)
{
    dv_operator *op;
    int status = dv__find_base_operator(name, &op);
    if (status)
        return status;
    dv_value result = into_tensor ? dv_from_tensor(into_tensor) : dv_default();
    status = ev->c->nested_call(
        op, args, nargs, &result, 1, ev->c->host, (ev->c->nested_flags & DV__NESTED_IN_KERNEL) | DV__NESTED_TEMPORARY);
    dv_operator_unref(op);
    if (!status && !into_tensor && !(status = dv__eval_add_temporary(ev, (dv_tensor *)(uintptr_t)result.as.tensor)))
        *out = result.as.tensor;
    return status;
}

static int decomp_convert_dtype(
    dv__eval *ev, const dv_tensor *tensor, dv_dtype dtype, const dv_tensor *into_tensor, const dv_tensor **out)
{
    const dv_value args[] = { dv_from_tensor(tensor), dv_from_dtype(dtype), dv_default(), dv_from_bool(true) };
    return decomp_call_base_op(ev, "to.dtype", args, sizeof args / sizeof *args, into_tensor, out);
}

/* Converts a tensor of smaller floats to a temporary in f64. Any other tensor, or NULL, is returned as it is. */
static int decomp_convert_tensor_to_f64(dv__eval *ev, const dv_tensor *t, const dv_tensor **out)
{
    const dv_dtype f64 = { .code = 2, .bits = 64, .lanes = 1 };
    *out = t;
    return decomp_is_float_tensor(t) && t->dtype.bits < 64 ? decomp_convert_dtype(ev, t, f64, NULL, out) : DV_OK;
}

static int decomp_convert_arguments_to_f64(dv__eval *ev)
{
    const size_t n = ev->c->signature->nargs;
    dv_value *wide = DV__ARENA_ARRAY(&ev->c->arena, dv_value, n + 1);
    int status = wide ? DV_OK : DV_ENOMEM;
    for (size_t i = 0; i < n && !status; i++) {
        wide[i] = ev->c->args[i];
        if (wide[i].type == DV_VALUE_TENSOR) {
            status = decomp_convert_tensor_to_f64(ev, wide[i].as.tensor, &wide[i].as.tensor);
        } else if (wide[i].type == DV_VALUE_TENSORS) {
            const dv_tensor **list = DV__ARENA_ARRAY(&ev->c->arena, const dv_tensor *, wide[i].as.tensors.size + 1);
            status = list ? DV_OK : DV_ENOMEM;
            for (size_t k = 0; k < wide[i].as.tensors.size && !status; k++)
                status = decomp_convert_tensor_to_f64(ev, wide[i].as.tensors.data[k], &list[k]);
            wide[i].as.tensors.data = list;
        }
    }
    ev->f64_args = wide;
    return status;
}

/* ---- Results ---- */

static int decomp_fail_result_mismatch(const dv__eval *ev, size_t result_index, const dv_tensor *found, const dv_tensor *expected)
{
    dv__strbuf have = { 0 }, want = { 0 };
    const struct {
        const dv_tensor *t;
        dv__strbuf *to;
    } texts[] = { { found, &have }, { expected, &want } };
    for (int k = 0; k < 2; k++) {
        dv__strbuf_printf(texts[k].to, "%s[", dv_dtype_name(texts[k].t->dtype));
        for (int32_t i = 0; i < texts[k].t->ndim; i++)
            dv__strbuf_printf(texts[k].to, i ? " %lld" : "%lld", (long long)texts[k].t->shape[i]);
        dv__strbuf_append_str(texts[k].to, "]");
    }
    const int status = dv__fail_slot(ev->c, DV_ESHAPE, ev->c->signature->nargs + result_index,
        "the decomposition gives %s, but it must be %s", have.data ? have.data : "?", want.data ? want.data : "?");
    dv__strbuf_deinit(&have);
    dv__strbuf_deinit(&want);
    return status;
}

static bool decomp_shapes_are_equal(const dv_tensor *a, const dv_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* True if `from` was computed in f64 for a test and must be rounded to the smaller float dtype of `to`. */
static bool decomp_needs_rounding(const dv__eval *ev, const dv_tensor *from, const dv_tensor *to)
{
    return ev->f64_args && from->dtype.bits > to->dtype.bits && decomp_is_float_tensor(from) && decomp_is_float_tensor(to);
}

/* True if `from` can be copied to `to`: both have one shape and one dtype, or the copy has to round values computed in f64. */
static bool decomp_can_copy_to(const dv__eval *ev, const dv_tensor *from, const dv_tensor *to)
{
    return decomp_shapes_are_equal(from, to) &&
        (dv_dtype_key(from->dtype) == dv_dtype_key(to->dtype) || decomp_needs_rounding(ev, from, to));
}

static int decomp_copy_or_round(dv__eval *ev, const dv_tensor *to, const dv_tensor *from)
{
    return decomp_needs_rounding(ev, from, to) ? decomp_convert_dtype(ev, from, to->dtype, to, NULL)
                                               : dv__host_copy(ev->c->host, to, from);
}

static int decomp_copy_to_result(dv__eval *ev, size_t result_index, const dv_tensor *to, const dv_tensor *from)
{
    return decomp_can_copy_to(ev, from, to) ? decomp_copy_or_round(ev, to, from)
                                            : decomp_fail_result_mismatch(ev, result_index, from, to);
}

/* Allocates a result with the shape of `value`, which the decomposition computed, and copies `value` to it. Returns a
 * status. */
static int decomp_allocate_result(dv__eval *ev, size_t result_index, const dv_tensor *value, dv_dtype dtype)
{
    dv__call *c = ev->c;
    dv__result *out = &c->outs[result_index];
    int64_t strides[DV_MAX_NDIM];
    int status = dv__shape_check(dtype, value->ndim, value->shape, strides);
    if (!status)
        status = dv__new_result_tensor(
            c, (int)result_index, dtype, value->device, value->ndim, value->shape, strides, &out->made);
    if (status)
        return status;
    out->origin = DV__RESULT_ALLOCATED;
    out->tensor = out->made;
    return decomp_copy_to_result(ev, result_index, out->tensor, value);
}

/* Evaluates the formula e of a tensor result, into the result's tensor where possible. Skips results that are absent,
 * arguments or views. */
static int decomp_eval_tensor_result(dv__eval *ev, size_t result_index, const dv__expr *e)
{
    dv__call *c = ev->c;
    dv__result *out = &c->outs[result_index];
    const bool has_tensor = out->origin == DV__RESULT_GIVEN || out->origin == DV__RESULT_ALLOCATED;
    dv_value v;
    int status;
    if (out->origin == DV__RESULT_ABSENT || out->origin == DV__RESULT_ALIAS || (out->is_view && !ev->f64_args))
        return DV_OK;
    if (has_tensor && !ev->f64_args && e->kind == DV__EXPR_CALL && e->ref == DV__FORMULA_OPERATOR)
        status = dv__eval_call_into(ev, e, out->tensor, &v);
    else
        status = dv__eval_expr(ev, e, &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSOR)
        return dv__eval_fail(ev, DV_ETYPE, e, "expected a tensor");
    if (out->is_view) { /* an evaluation in f64 replaces the contract's view by the decomposition's value, so that a test can
                           compare both */
        const dv_dtype dtype = out->made->dtype;
        dv__free_host_tensor(c, out->made);
        out->made = NULL;
        return decomp_allocate_result(ev, result_index, v.as.tensor, dtype);
    }
    if (has_tensor)
        return v.as.tensor == out->tensor ? DV_OK : decomp_copy_to_result(ev, result_index, out->tensor, v.as.tensor);
    if (out->passed) /* the caller passed a tensor for a result whose size depends on data */
        return decomp_copy_to_result(ev, result_index, out->passed, v.as.tensor);
    return decomp_allocate_result(ev, result_index, v.as.tensor, v.as.tensor->dtype);
}

static int decomp_eval_list_result(dv__eval *ev, size_t result_index, const dv__expr *e)
{
    const dv_tensors to = ev->c->outs[result_index].value.as.tensors;
    dv_value v;
    int status = dv__eval_expr(ev, e, &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSORS || v.as.tensors.size != to.size)
        return dv__fail_slot(ev->c, DV_ETYPE, ev->c->signature->nargs + result_index,
            "expected %zu tensors from the decomposition, found %zu", to.size,
            v.type == DV_VALUE_TENSORS ? v.as.tensors.size : 1);
    for (size_t k = 0; k < to.size && !status; k++)
        status = decomp_copy_to_result(ev, result_index, to.data[k], v.as.tensors.data[k]);
    return status;
}

static int decomp_eval_number_result(dv__eval *ev, size_t result_index, const dv__expr *e)
{
    dv_value v;
    dv__result *out = &ev->c->outs[result_index];
    const int status = dv__eval_expr(ev, e, &v);
    if (status)
        return status;
    if (out->value.type == DV_VALUE_FLOAT && v.type == DV_VALUE_INT)
        v = dv_from_float((double)v.as.i);
    if (v.type != out->value.type)
        return dv__eval_fail(ev, DV_ETYPE, e, "gives a value of another type than the result has");
    out->value = v;
    return DV_OK;
}

static int decomp_eval_result(dv__eval *ev, size_t result_index, const dv__expr *e)
{
    switch (ev->c->outs[result_index].origin) {
    case DV__RESULT_SCALAR: return decomp_eval_number_result(ev, result_index, e);
    case DV__RESULT_LIST:
    case DV__RESULT_ALLOCATED_LIST: return decomp_eval_list_result(ev, result_index, e);
    default: return decomp_eval_tensor_result(ev, result_index, e);
    }
}

/* Returns the number of tensors in a value that is a tensor or a list; 0 for another value. *list: their array, borrowed
 * from v. */
static size_t decomp_count_tensors(const dv_value *v, const dv_tensor *const **list)
{
    *list = v->type == DV_VALUE_TENSORS ? v->as.tensors.data : &v->as.tensor;
    return v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
}

/* Replaces *tensor by a copy if it is a written argument, which could be written before it is read. Returns a status. */
static int decomp_clone_if_written(dv__eval *ev, const dv_tensor **tensor)
{
    const dv__call *c = ev->c;
    bool shared = false;
    for (size_t i = 0; i < c->signature->nargs; i++) {
        const dv_tensor *const *list;
        for (size_t k = 0, n = c->op->decomposition->written_values[i] ? decomp_count_tensors(&c->args[i], &list) : 0; k < n; k++)
            shared = shared || list[k] == *tensor;
    }
    const dv_value arg = dv_from_tensor(*tensor);
    return shared ? decomp_call_base_op(ev, "clone", &arg, 1, NULL, tensor) : DV_OK;
}

/* Evaluates the new values of all written arguments, then copies them to the arguments. Returns a status. */
static int decomp_write_arguments(dv__eval *ev)
{
    dv__call *c = ev->c;
    const dv__decomposition *n = c->op->decomposition;
    if (!n->written_values)
        return DV_OK;
    const dv_tensor ***new_values = DV__ARENA_ARRAY(&c->arena, const dv_tensor **, c->signature->nargs + 1);
    if (!new_values)
        return DV_ENOMEM;
    for (size_t i = 0; i < c->signature->nargs; i++) {
        const dv_tensor *const *to, *const *from;
        const size_t count = n->written_values[i] ? decomp_count_tensors(&c->args[i], &to) : 0;
        dv_value v;
        int status = count ? dv__eval_expr(ev, n->written_values[i], &v) : DV_OK;
        if (status)
            return status;
        if (count && (v.type != c->args[i].type || decomp_count_tensors(&v, &from) != count))
            return dv__fail_slot(
                c, DV_ETYPE, i, "expected %zu tensors from the decomposition, found %zu", count, decomp_count_tensors(&v, &from));
        if (count && !(new_values[i] = DV__ARENA_ARRAY(&c->arena, const dv_tensor *, count)))
            return DV_ENOMEM;
        for (size_t k = 0; k < count; k++) {
            new_values[i][k] = from[k];
            if (!to[k] || !from[k] || !decomp_can_copy_to(ev, from[k], to[k]))
                return dv__fail_slot(c, DV_ESHAPE, i, "the decomposition gives it a value of another shape or dtype");
            if (from[k] != to[k] && (status = decomp_clone_if_written(ev, &new_values[i][k])))
                return status;
        }
    }
    for (size_t i = 0; i < c->signature->nargs; i++) {
        const dv_tensor *const *to;
        const size_t count = n->written_values[i] ? decomp_count_tensors(&c->args[i], &to) : 0;
        for (size_t k = 0; k < count; k++) {
            const int status = new_values[i][k] == to[k] ? DV_OK : decomp_copy_or_round(ev, to[k], new_values[i][k]);
            if (status)
                return status;
        }
    }
    return DV_OK;
}

/* Sets the origin of each result, and makes new results where a contract or shape function describes them. Without one, a
 * tensor result is allocated once its value is known. Returns a status. */
static int decomp_set_result_origins(dv__call *c)
{
    if (c->op->contract || c->op->shape)
        return dv__make_results(c);
    dv__mark_results_absent(c);
    for (size_t r = 0; r < c->nouts; r++) {
        const dv__slot *slot = &c->signature->slots[c->signature->nargs + r];
        dv__result *out = &c->outs[r];
        const dv_value *given = &c->results[r];
        memset(&out->value, 0, sizeof out->value);
        memset(&out->descriptor, 0, sizeof out->descriptor);
        out->value.type = slot->value;
        if (slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES) && c->args[slot->alias].type == DV_VALUE_TENSOR) {
            out->origin = DV__RESULT_ALIAS;
            out->tensor = (dv_tensor *)(uintptr_t)c->args[slot->alias].as.tensor;
        } else if (slot->value == DV_VALUE_TENSOR) {
            out->origin = given->type == DV_VALUE_TENSOR ? DV__RESULT_GIVEN : DV__RESULT_PENDING;
            out->tensor = given->type == DV_VALUE_TENSOR ? (dv_tensor *)(uintptr_t)given->as.tensor : NULL;
        } else if (slot->value == DV_VALUE_INT || slot->value == DV_VALUE_FLOAT || slot->value == DV_VALUE_BOOL) {
            out->origin = DV__RESULT_SCALAR;
        } else {
            return dv__fail_slot(
                c, DV_ENOTSUP, c->signature->nargs + r, "a result of this type cannot be made by a decomposition");
        }
    }
    return DV_OK;
}

/* Evaluates all results, then the new values of the written arguments. Returns a status. */
static int decomp_eval_results_and_writes(dv__eval *ev)
{
    dv__call *c = ev->c;
    const dv__decomposition *n = c->op->decomposition;
    int status = dv__gather_args(c);
    if (status || (status = decomp_set_result_origins(c)))
        return status;
    if ((status = dv__gather_results(c)) || (status = dv__check_overlaps(c)) ||
        (dv__requested_kernel_number(c) == TEST_KERNEL_F64_REFERENCE && (status = decomp_convert_arguments_to_f64(ev))))
        return status;
    for (size_t r = 0; r < c->signature->nreturns && r < n->n; r++)
        if ((status = decomp_eval_result(ev, r, n->results[r])))
            return status;
    return decomp_write_arguments(ev);
}

int dv__decomposition_run(dv__call *c)
{
    dv__eval ev = { .c = c, .formula_kind = "decomposition" };
    if (!c->nested_flags && dv__host_flags(c->host) & DV_HOST_RUNS_NATIVE && !dv__is_cpu_memory(c->device.type))
        return dv_fail(DV_ENATIVE, "%s: the host runs its decomposition on %s", c->op->name, dv_device_name(c->device.type));
    if (decomp_depth >= MAX_DECOMP_DEPTH)
        return dv_fail(
            DV_ELIMIT, "%s: decompositions call each other more than %d deep: is there a cycle?", c->op->name, MAX_DECOMP_DEPTH);
    decomp_depth++;
    const int status = decomp_eval_results_and_writes(&ev);
    decomp_depth--;
    dv__eval_deinit(&ev);
    return status;
}
