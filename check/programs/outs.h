#pragma once
#include "call.h"
#include "tables.h"
#include "element.h"

/* What calls wrote, and how it differs. */

/* What a call wrote: results, and arguments that are written, each contiguous. */
typedef struct out {
    int slot, number;
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
} out;
typedef struct outs {
    int n;
    out of[64];
} outs;

static void add(outs *o, int slot, const dv_tensor *from)
{
    out *to = &o->of[o->n++];
    int64_t n = 1;
    to->slot = slot;
    to->number = 0;
    to->t = *from;
    to->t.shape = to->dims;
    to->t.strides = to->dims + DV_MAX_NDIM;
    to->t.data = calloc((size_t)dv_numel(from) + 1, (size_t)dv_dtype_bytes(from->dtype, 1));
    for (int32_t i = from->ndim; i-- > 0; n *= from->shape[i] ? from->shape[i] : 1) {
        to->dims[i] = from->shape[i];
        to->dims[DV_MAX_NDIM + i] = n;
    }
    if (!to->t.data || dv_tensor_copy(&to->t, from))
        exit(2);
}

static void add_number(outs *o, int slot, const dv_value *v)
{
    double x = v->type == DV_VALUE_FLOAT ? v->as.f : v->type == DV_VALUE_INT ? (double)v->as.i : v->as.b;
    int64_t none[1] = { 0 };
    const dv_tensor t = { &x, cpu, 0, { 2, 64, 1 }, none, none, 0 };
    add(o, slot, &t);
    o->of[o->n - 1].number = 1;
}

static void take(outs *o, const dv_value *results)
{
    while (o->n)
        free(o->of[--o->n].t.data);
    for (int i = 0; i < NRESULTS && o->n < 64; i++) {
        const dv_value *v = &results[i];
        if (v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_INT || v->type == DV_VALUE_BOOL)
            add_number(o, NARGS + i, v);
    }
    const dv_tensor *t;
    int of;
    for (size_t k = 0; o->n < 64 && (t = result_tensor(results, k, &of)); k++)
        if (!is_argument[of])
            add(o, NARGS + of, t);
    for (int i = 0; i < NARGS; i++) {
        const dv_value *v = &args[i];
        if (is_written[i] && v->type == DV_VALUE_TENSOR && v->as.tensor && o->n < 64)
            add(o, i, v->as.tensor);
        for (size_t k = 0; is_written[i] && v->type == DV_VALUE_TENSORS && k < v->as.tensors.size && o->n < 64; k++)
            if (v->as.tensors.data[k])
                add(o, i, v->as.tensors.data[k]);
    }
}

static int apart(double x, double y, double rtol, double atol)
{
    return isfinite(x) && isfinite(y) ? fabs(x - y) > atol + rtol * fabs(y) : x != y && !(isnan(x) && isnan(y));
}

/* By more than this, or in a bit (rtol < 0)? Of one slot, or of all (-1). */
static inline int differ(const outs *a, const outs *b, int slot, double rtol, double atol)
{
    for (int i = 0; i < a->n && i < b->n; i++) {
        const dv_tensor *x = &a->of[i].t, *y = &b->of[i].t;
        const int64_t n = dv_numel(x), parts = x->dtype.code == 5 ? 2 : 1, size = dv_dtype_bytes(x->dtype, 1) / parts;
        if (slot >= 0 && a->of[i].slot != slot)
            continue;
        if (n != dv_numel(y) || dv_dtype_key(x->dtype) != dv_dtype_key(y->dtype))
            return fprintf(stderr, "slot %d: another size\n", a->of[i].slot), 1;
        for (int64_t k = 0; k < n * parts; k++)
            if (rtol < 0 ? memcmp((const char *)x->data + k * size, (const char *)y->data + k * size, (size_t)size)
                         : apart(element(x, k), element(y, k), rtol, atol))
                return fprintf(stderr, "slot %d, element %lld: %.17g and %.17g\n", a->of[i].slot, (long long)k, element(x, k),
                           element(y, k)),
                       1;
    }
    return 0;
}

/* In the same memory as the calls before. */
static inline int call_again(dv_operator *op, int row, dv_value *results)
{
    again = 1;
    nbuffers = 0;
    return call(op, row, results);
}

/* The same, and does a result differ in a bit from this call's? It does not if the call fails. */
static inline int differs_again(const outs *first, dv_operator *op, int row, dv_value *results)
{
    static outs now;
    if (call_again(op, row, results))
        return 0;
    take(&now, results);
    return differ(first, &now, -1, -1, 0);
}
