/* From checked values to a kernel that has run: contract, row, results, stand-ins, frame, kernel, copying back. */
#include <stdio.h>

#include "base/memory.h"
#include "call/call.h"

/* ---- Contract ---- */

/* Without a contract all that can be asked is that every tensor is on one device. */
static int one_device(dv__call *c)
{
    const dv_tensor *first = NULL;
    size_t first_slot = 0;
    c->device = (dv_device){ DV_CPU, 0 };
    for (size_t i = 0; i < c->plan->nargs; i++) {
        const dv_value *v = &c->args[i];
        const size_t n = v->type == DV_VALUE_TENSOR ? 1 : v->type == DV_VALUE_TENSORS ? v->as.tensors.size : 0;
        if (v->type == DV_VALUE_DEVICE && !first)
            c->device = v->as.device;
        for (size_t k = 0; k < n; k++) {
            const dv_tensor *t = v->type == DV_VALUE_TENSOR ? v->as.tensor : v->as.tensors.data[k];
            if (!t)
                continue;
            if (first && (t->device.type != first->device.type || t->device.id != first->device.id))
                return dv__fail_argument(c, DV_EDEVICE, i, "is on %s:%d, but argument '%s' is on %s:%d",
                    dv_device_name(t->device.type), (int)t->device.id, c->op->schema->args[first_slot].name,
                    dv_device_name(first->device.type), (int)first->device.id);
            if (!first) {
                first = t;
                first_slot = i;
                c->device = t->device;
            }
        }
    }
    return DV_OK;
}

int dv__solve(dv__call *c)
{
    if (!c->op->contract)
        return one_device(c);
    const int status = dv__contract_solve(c->op->contract, c->args, &c->solution, dv__host_flags(c->host) & DV_HOST_CHECK);
    c->device = c->solution.device;
    return status;
}

/* ---- Rows ---- */

static bool runs_on(const dv__row *row, int32_t device_type)
{
    return row->device_type == device_type || (row->device_type == DV_CPU && dv__host_memory(device_type)) ||
        (row->device_type == DV_CUDA && device_type == DV_CUDA_MANAGED);
}

/* The host asks for one row. */
static const dv__row *asked_row(dv__call *c, const dv__entry *entry, size_t n, int *status)
{
    char reason[512];
    if (n > entry->nrows) {
        *status = dv_fail(DV_ENOKERNEL, "%s: the host asks for row %zu, and there are %zu", c->op->name, n, entry->nrows);
        return NULL;
    }
    const dv__row *row = entry->rows[n - 1];
    const char *why = dv__row_reason(c, row, reason, sizeof reason);
    if (why)
        *status = dv_fail(DV_ENOKERNEL, "%s: the host asks for row %s, but %s", c->op->name, row->name, why);
    return why ? NULL : row;
}

const dv__row *dv__choose_row(dv__call *c, const dv__entry *entry, int *status)
{
    *status = DV_OK;
    if (dv__asked_row(c) > 0)
        return asked_row(c, entry, (size_t)dv__asked_row(c), status);
    for (size_t i = 0; i < entry->nrows; i++) {
        const dv__row *row = entry->rows[i];
        if (row->dtypes && !dv__dtype_sets_match(row->dtypes, &c->solution))
            continue;
        if ((row->isa != DV__ISA_BASE && !dv__isa_available(row->isa)) || !runs_on(row, c->device.type))
            continue;
        if (row->when) {
            bool holds;
            if ((*status = dv__predicate_eval(c->op->contract, row->when, c->args, &c->solution, &holds)))
                return NULL;
            if (!holds)
                continue;
        }
        return row;
    }
    return NULL;
}

const char *dv__row_reason(dv__call *c, const dv__row *row, char *buffer, size_t size)
{
    bool holds = true;
    if (!runs_on(row, c->device.type))
        snprintf(buffer, size, "it is for %s, and the tensors are on %s", row->device, dv_device_name(c->device.type));
    else if (row->dtypes && !dv__dtype_sets_match(row->dtypes, &c->solution))
        snprintf(buffer, size, "it takes %s, and the tensors have other dtypes", row->dtypes_text);
    else if (row->isa == DV__ISA_UNKNOWN)
        snprintf(buffer, size, "this runtime does not know the instruction set %s", row->isa_text);
    else if (!dv__isa_available(row->isa))
        snprintf(buffer, size, "this processor has no %s, or dv_set_isa() hides it", row->isa_text);
    else if (row->when && dv__predicate_eval(c->op->contract, row->when, c->args, &c->solution, &holds))
        snprintf(buffer, size, "its condition %s cannot be evaluated: %s", row->when_text, dv_last_error());
    else if (!holds)
        snprintf(buffer, size, "its condition %s does not hold", row->when_text);
    else
        return NULL;
    return buffer;
}

int dv__no_row(dv__call *c, const dv__entry *entry)
{
    dv__text all = { 0 };
    char reason[512];
    for (size_t i = 0; i < entry->nrows; i++) {
        const dv__row *row = entry->rows[i];
        const char *why = dv__row_reason(c, row, reason, sizeof reason);
        dv__text_add(&all, "\n    %s: %s", row->name, why ? why : "it fits");
    }
    const int status = dv_fail(
        DV_ENOKERNEL, "%s: no kernel fits this call; there are:%s", c->op->name, all.data ? all.data : " none");
    dv__text_deinit(&all);
    return status;
}

/* ---- Frames ---- */

#define PUT(T, x) (*(T *)(void *)(frame + b->fields[i].offset) = (x))
#define PUT_OPTIONAL(T, member)                            \
    if (v->type != DV_VALUE_NONE) {                        \
        T *o = (T *)(void *)(frame + b->fields[i].offset); \
        o->has = true;                                     \
        o->value = v->as.member;                           \
    }                                                      \
    break

static dv_scalar scalar_of(const dv_value *v)
{
    dv_scalar s;
    memset(&s, 0, sizeof s);
    switch (v->type) {
    case DV_VALUE_INT: s.kind = DV_SCALAR_INT, s.as.i = v->as.i; break;
    case DV_VALUE_FLOAT: s.kind = DV_SCALAR_FLOAT, s.as.f = v->as.f; break;
    case DV_VALUE_BOOL: s.kind = DV_SCALAR_BOOL, s.as.b = v->as.b; break;
    default: s.kind = DV_SCALAR_COMPLEX, s.as.c = v->as.c; break;
    }
    return s;
}

/* Fields that are not a plain tensor. */
static void fill_field(dv__call *c, const dv__binding *b, size_t i, char *frame)
{
    static const dv_value none = { .type = DV_VALUE_NONE };
    const size_t slot = b->fields[i].slot, nargs = c->plan->nargs;
    const dv_value *v = slot < nargs ? &c->args[slot] : &none;
    dv_value *result = slot < nargs ? NULL : &c->outs[slot - nargs].value;
    switch (b->fields[i].type) {
    case DV_FIELD_INT: PUT(int64_t, v->as.i); break;
    case DV_FIELD_FLOAT: PUT(double, v->as.f); break;
    case DV_FIELD_BOOL: PUT(bool, v->as.b); break;
    case DV_FIELD_STRING: PUT(dv_string, v->as.s); break;
    case DV_FIELD_SCALAR: PUT(dv_scalar, scalar_of(v)); break;
    case DV_FIELD_COMPLEX: PUT(dv_complex, v->as.c); break;
    case DV_FIELD_DTYPE: PUT(dv_dtype, v->as.dtype); break;
    case DV_FIELD_DEVICE: PUT(dv_device, v->as.device); break;
    case DV_FIELD_LAYOUT: PUT(dv_layout, v->as.layout); break;
    case DV_FIELD_MEMORY_FORMAT: PUT(dv_memory_format, v->as.memory_format); break;
    case DV_FIELD_GENERATOR: PUT(const dv_generator *, v->type == DV_VALUE_NONE ? NULL : v->as.generator); break;
    case DV_FIELD_TENSORS: PUT(dv_tensors, c->lists[slot]); break;
    case DV_FIELD_MUT_TENSORS:
        PUT(dv_mut_tensors, ((dv_mut_tensors){ (dv_tensor *const *)(uintptr_t)c->lists[slot].data, c->lists[slot].size }));
        break;
    case DV_FIELD_INTS: PUT(dv_ints, v->as.ints); break;
    case DV_FIELD_FLOATS: PUT(dv_floats, v->as.floats); break;
    case DV_FIELD_BOOLS: PUT(dv_bools, v->as.bools); break;
    case DV_FIELD_STRINGS: PUT(dv_strings, v->as.strings); break;
    case DV_FIELD_SCALARS: PUT(dv_scalars, v->as.scalars); break;
    case DV_FIELD_COMPLEXES: PUT(dv_complexes, v->as.complexes); break;
    case DV_FIELD_DTYPES: PUT(dv_dtypes, v->as.dtypes); break;
    case DV_FIELD_DEVICES: PUT(dv_devices, v->as.devices); break;
    case DV_FIELD_OPT_INT: PUT_OPTIONAL(dv_opt_int, i);
    case DV_FIELD_OPT_FLOAT: PUT_OPTIONAL(dv_opt_float, f);
    case DV_FIELD_OPT_BOOL: PUT_OPTIONAL(dv_opt_bool, b);
    case DV_FIELD_OPT_STRING: PUT_OPTIONAL(dv_opt_string, s);
    case DV_FIELD_OPT_SCALAR:
        if (v->type != DV_VALUE_NONE)
            PUT(dv_opt_scalar, ((dv_opt_scalar){ true, scalar_of(v) }));
        break;
    case DV_FIELD_OPT_COMPLEX: PUT_OPTIONAL(dv_opt_complex, c);
    case DV_FIELD_OPT_DTYPE: PUT_OPTIONAL(dv_opt_dtype, dtype);
    case DV_FIELD_OPT_DEVICE: PUT_OPTIONAL(dv_opt_device, device);
    case DV_FIELD_OPT_LAYOUT: PUT_OPTIONAL(dv_opt_layout, layout);
    case DV_FIELD_OPT_MEMORY_FORMAT: PUT_OPTIONAL(dv_opt_memory_format, memory_format);
    case DV_FIELD_OPT_TENSORS:
        if (v->type != DV_VALUE_NONE)
            PUT(dv_opt_tensors, ((dv_opt_tensors){ true, c->lists[slot] }));
        break;
    case DV_FIELD_OPT_INTS: PUT_OPTIONAL(dv_opt_ints, ints);
    case DV_FIELD_OPT_FLOATS: PUT_OPTIONAL(dv_opt_floats, floats);
    case DV_FIELD_OPT_BOOLS: PUT_OPTIONAL(dv_opt_bools, bools);
    case DV_FIELD_OPT_STRINGS: PUT_OPTIONAL(dv_opt_strings, strings);
    case DV_FIELD_OPT_SCALARS: PUT_OPTIONAL(dv_opt_scalars, scalars);
    case DV_FIELD_INT_RESULT: PUT(int64_t *, result ? &result->as.i : NULL); break;
    case DV_FIELD_FLOAT_RESULT: PUT(double *, result ? &result->as.f : NULL); break;
    case DV_FIELD_BOOL_RESULT: PUT(bool *, result ? &result->as.b : NULL); break;
    default: assert(!"a field type that no binding has");
    }
}

void dv__fill_frame(dv__call *c, const dv__binding *b, char *frame)
{
    if (b->n * sizeof(void *) != b->frame_size) /* else every byte is written below: as many pointers as fit */
        memset(frame, 0, b->frame_size);
    for (uint32_t i = 0; i < b->n; i++) {
        assert(b->fields[i].slot < c->plan->nargs + c->plan->nreturns && b->fields[i].offset < b->frame_size);
        if (b->fields[i].type == DV_FIELD_TENSOR || b->fields[i].type == DV_FIELD_MUT_TENSOR)
            PUT(const dv_tensor *, c->tensors[b->fields[i].slot]);
        else
            fill_field(c, b, i, frame);
    }
}

/* ---- Running ---- */

int dv__report(dv__call *c, int status, const char *who)
{
    if (atomic_load_explicit(&c->failing, memory_order_acquire)) {
        const int own = atomic_load_explicit(&c->status, memory_order_acquire);
        return dv_fail(own ? own : status ? status : DV_EKERNEL, "%s: %s", c->op->name, c->message);
    }
    if (!status)
        return DV_OK;
    const char *name = dv_status_name(status);
    if (status > 0 || !strcmp(name, "unknown status"))
        return dv_fail(DV_EKERNEL, "%s: %s returned %d, which is no status", c->op->name, who, status);
    return dv_fail(status, "%s: %s failed with %s and no message", c->op->name, who, name);
}

static int check_pending(const dv__call *c)
{
    for (size_t r = 0; r < c->plan->nreturns; r++)
        if (c->outs[r].origin == DV__RESULT_PENDING && !c->outs[r].set)
            return dv__fail_argument(c, DV_EKERNEL, c->plan->nargs + r,
                "the kernel did not make it: its size depends on data, so it must call dv_set_output()");
    return DV_OK;
}

static void set_aliases(dv__call *c)
{
    assert(c->nouts == c->plan->nreturns);
    for (size_t r = 0; r < c->nouts; r++)
        if (c->outs[r].origin == DV__RESULT_ALIAS)
            c->tensors[c->plan->nargs + r] = c->tensors[c->plan->slots[c->plan->nargs + r].alias];
}

static int run_row(dv__call *c, const dv__row *row, char *frame)
{
    const bool hooks = !(c->inner & DV__INNER_KERNEL);
    void *stream = NULL;
    int status;
    c->workspace = 0;
    if (c->op->contract && (status = dv__contract_workspace(c->op->contract, c->args, &c->solution, &c->workspace)))
        return status;
    if (!dv__host_memory(c->device.type) && DV__HOST(c->host, stream) && (status = c->host->stream(c->host, c->device, &stream)))
        return status;
    set_aliases(c);
    dv__fill_frame(c, row->binding, frame);
    if (hooks && DV__HOST(c->host, before_kernel))
        c->host->before_kernel(c->host);
    c->in_kernel = true;
    if (!(status = dv__copy_in(c))) {
        status = dv__report(c, dv__run_kernel(c, row, frame, c->workspace, stream), row->name);
        if (!status)
            status = check_pending(c);
        if (!status)
            status = dv__copy_back(c);
    }
    c->in_kernel = false;
    if (hooks && DV__HOST(c->host, after_kernel))
        c->host->after_kernel(c->host);
    return status;
}

static int prepare_and_run(dv__call *c, const dv__row *row)
{
    _Alignas(16) char stack[DV__STACK_FRAME], *frame = stack;
    int status = dv__make_results(c);
    if (status || (status = dv__gather_results(c)) || (status = dv__check_overlaps(c)) || (status = dv__make_temps(c, row)))
        return status;
    if (row->binding->frame_size > sizeof stack && !(frame = dv__arena_alloc(&c->arena, row->binding->frame_size)))
        return DV_ENOMEM;
    return run_row(c, row, frame);
}

int dv__run_rows(dv__call *c, const dv__entry *entry)
{
    int status = dv__solve(c);
    if (status)
        return status;
    if (dv__asked_row(c))
        c->decision = dv__asked_row(c) > 0;
    if (c->decision < 0)
        c->decision = dv__policy_decide(c->op, dv__host_flags(c->host) & DV_HOST_FUSES);
    if (!c->decision && c->op->native)
        return dv__run_native(c);
    const dv__row *row = dv__choose_row(c, entry, &status);
    if (!row)
        return status ? status : c->op->native ? dv__run_native(c) : dv__no_row(c, entry);
    if (!dv__host_memory(c->device.type) && !c->host)
        return dv_fail(DV_EHOST, "%s: the tensors are on %s, which needs a host framework; the embedded default has only the cpu",
            c->op->name, dv_device_name(c->device.type));
    if ((status = dv__gather_args(c)))
        return status;
    status = prepare_and_run(c, row);
    if (!status && c->whole && !dv__asked_row(c))
        dv__remember(c, c->passed, c->npassed, entry, row, c->workspace);
    return status;
}

int dv__run_contract(dv__call *c)
{
    int status = dv__solve(c);
    if (status || (status = dv__gather_args(c)))
        return status;
    if (!(status = dv__make_results(c)) && !(status = dv__gather_results(c)))
        status = dv__check_overlaps(c);
    if (!status) /* sizes that depend on data are not known without it */
        for (size_t r = 0; r < c->plan->nreturns && !status; r++)
            if (c->outs[r].origin == DV__RESULT_PENDING)
                status = dv__fail_argument(c, DV_ENOTSUP, c->plan->nargs + r,
                    "its size depends on data, and the arguments have none (%s)", dv_device_name(c->device.type));
    return status;
}

int dv__run_views(dv__call *c, bool *all_views)
{
    *all_views = false;
    if (!c->op->contract || !c->plan->nreturns || c->plan->writes)
        return DV_OK;
    for (size_t r = 0; r < c->plan->nreturns; r++)
        if (c->plan->slots[c->plan->nargs + r].alias < 0)
            return DV_OK;
    int status = DV_OK; /* it is solved */
    for (size_t r = 0; r < c->plan->nreturns && !status; r++) {
        dv__output o;
        status = dv__contract_output(c->op->contract, c->args, &c->solution, r, &o);
        if (!status && o.view_of < 0)
            return DV_OK;
    }
    if (status)
        return status;
    *all_views = true;
    return dv__make_results(c);
}
